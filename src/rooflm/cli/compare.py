"""`rooflm compare`: measured runs beside their predictions, ours or of other tools, and why they part."""

from __future__ import annotations

import inspect
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rooflm.cli.options import COMPARE, command
from rooflm.cli.render import columns, dumps, wrap
from rooflm.cli.validate import percent, signed
from rooflm.units import text as quantity

if TYPE_CHECKING:
    from rooflm.measure.gap import Comparison, Point

ROWS, TOLD = 24, 3
"""Points and causes that are printed."""
STATED = ("gpu", "cluster", "gpus", "tp", "pp", "dp", "ep", "cp", "quant", "engine", "efficiency", "concurrency",
          "rate", "requests", "sets")  # fmt: skip
"""Arguments of `serve` that go before what a file says."""
OWN = ("model", "release", "batch", "prompt", "output", "spread", "shared_prefix", "replicas")
"""Columns among the command's own options."""


def compare(results: Sequence[str], asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm compare` does with its arguments."""
    from rooflm.cli.serve import server_options
    from rooflm.measure.plot import FORMATS, draw
    from rooflm.sweep.files import check_target
    from rooflm.tools import compare as played

    out, plot = shown["out"], shown["plot"]
    if out:
        check_target(out, ("csv",))
    if plot:
        check_target(plot, FORMATS, "--plot")
    given = {**asked, **{n: shown[n] for n in OWN if shown[n] is not None}, **server_options(shown["option"], None)}
    found = played(*results, clock=shown["clock"], explain=shown["why"], progress=tell, **given)
    if out:
        write(out, found)
        print(f"rooflm: wrote {out}", file=sys.stderr)
    if plot:
        draw(found.points, plot)
        print(f"rooflm: wrote {plot}", file=sys.stderr)
    print(dumps(values(found)) if shown["json"] else "\n".join(report(found)))


compare_command = command(
    COMPARE, ["serve"], compare, "Predict every measured run as it was; both times, and why they part.", only=STATED,
    first=inspect.Parameter(
        "results", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[list[str], typer.Argument(
            metavar="RESULTS...", help="Tables of measured runs, or files of other tools (docs/measure.md).")]),
)  # fmt: skip


def tell(number: int, count: int, name: str) -> None:
    """Progress on standard error."""
    print(f"rooflm: cause {number}/{count}: {name}?", file=sys.stderr)


def write(out: str, found: Comparison) -> None:
    """Every point to a csv."""
    from rooflm.sweep.files import check_target, save_text, table

    ps = found.points
    names = {"run": "label", **{n: n for n in ("metric", "measured", "predicted", "low", "high")}}
    cells: dict[str, list[Any]] = {column: [getattr(p, n) for p in ps] for column, n in names.items()}
    text = table({k: ["" if v != v else v for v in column] for k, column in cells.items()})
    save_text(check_target(out, ("csv",)), text)


def groupings() -> dict[str, Callable[[Point], str]]:
    """What errors are grouped by."""
    found: dict[str, Callable[[Point], str]] = {"metric": lambda p: p.metric}
    for name in ("strategy", "optimisation", "dtype", "model"):
        found[name] = lambda p, name=name: str(p.at[name])  # type: ignore[misc]
    return found


def errors(points: Sequence[Point], by: Callable[[Point], str]) -> dict[str, dict[str, Any]]:
    """Error figures by group; of times and memory where the group is no metric."""
    from rooflm.validation.metrics import describe

    grouped: dict[str, list[Point]] = defaultdict(list)
    for p in points:
        if by(p) == p.metric or p.metric in ("ttft_s", "tpot_s", "step_time_s"):
            grouped[by(p)].append(p)
    return {k: describe([max(p.measured, 1e-30) for p in v], [p.predicted for p in v]) for k, v in grouped.items()}


def values(found: Comparison) -> dict[str, Any]:
    """The object of --json."""

    def known(x: float) -> float | None:
        return x if math.isfinite(x) else None

    pairs = [{"case": p.label, "metric": p.metric, "measured": p.measured, "predicted": p.predicted,
              "low": known(p.low), "high": known(p.high)} for p in found.points]  # fmt: skip
    causes = [{"name": c.name, "level": c.level, "says": c.says, "explains": c.share, "loss": c.loss, "base": c.base,
               "predicted": [known(x) for x in c.predicted]} for c in found.causes]  # fmt: skip
    figures = {f"by_{name}": errors(found.points, by) for name, by in groupings().items()}
    return {"pairs": pairs, "skipped": dict(found.skipped), "causes": causes, "assumed": list(found.assumed), **figures}


UNITS = {"memory_bytes": "B"}


def cell(value: float, metric: str) -> str:
    """A value for people.

    >>> cell(0.0123, "tpot_s"), cell(412.0, "output_tokens_per_s")
    ('12.3 ms', '412')
    """
    if metric.endswith("per_s") or "tflops" in metric or not metric.endswith(("_s", "_bytes")):
        return f"{value:.4g}"
    return quantity(value, "B" if metric.endswith("_bytes") else "s")


def report(found: Comparison) -> list[str]:
    """Both times of every run, errors by group, and why they part."""
    points, figures = found.points, {name: errors(found.points, by) for name, by in groupings().items()}
    what = {p.label.partition(", ")[0] for p in points}
    common = f"{next(iter(what))}, " if len(what) == 1 and any(", " in p.label for p in points) else ""
    lines = [f"{common}{len({p.label for p in points})} cases; predicted over measured", ""]
    worst = points if len(points) <= ROWS else sorted(points, key=lambda p: -abs(math.log(max(p.ratio, 1e-12))))[:ROWS]
    first = found.causes[0] if found.causes else None
    told = dict(zip([id(x) for x in found.rows], first.predicted, strict=True)) if first else {}
    head = ("run" if worst is points else "run (furthest off)", "", "measured", "predicted", "ratio", "band",
            *(["if 1."] if first else []))  # fmt: skip
    body = [(p.label.removeprefix(common)[-27:], p.metric.removesuffix("_s").replace("output_tokens_per", "tok/s"),
             cell(p.measured, p.metric), cell(p.predicted, p.metric), f"{p.ratio:.2f}", band(p),
             *([cell(told[id(p)], p.metric) if id(p) in told else ""] if first else [])) for p in worst]  # fmt: skip
    lines += columns([head, *body], "llrrrlr"[: len(head)], indent=0)
    for name, groups in figures.items():
        if groups and (len(groups) > 1 or name == "metric"):
            title = f"errors by {name}" + ("" if name == "metric" else " (times)")
            table = [(k[:40], str(f["rows"]), percent(f["median_ape"]), percent(f["p90_ape"]), signed(f["bias"]))
                     for k, f in groups.items()]  # fmt: skip
            lines += ["", *columns([(title, "cases", "median %", "p90 %", "bias %"), *table], "lrrrr")]
    if found.skipped:
        left = sorted(found.skipped.items(), key=lambda kv: -kv[1])[:5]
        lines += ["", *wrap("left out", [f"{reason} ({n})" for reason, n in left])]
    if found.assumed:
        lines += ["", *wrap("assumed", found.assumed[:6])]
    return lines + why(found)


def band(p: Point) -> str:
    """The ends of the band over the measured value, and whether it holds it."""
    if not math.isfinite(p.low):
        return ""
    inside = p.low <= p.measured <= p.high
    return f"{p.low / p.measured:.2f}-{p.high / p.measured:.2f}{'' if inside else ' out'}"


def why(found: Comparison) -> list[str]:
    """What explains the gap, best first."""
    if not found.causes:
        return ["", "No single cause that is known explains a tenth of the gap."] if found.rows else []
    lines = ["", "Why: what the rows would be if it were so, by how much of the gap it takes away"]
    for rank, c in enumerate(found.causes[:TOLD], start=1):
        off = f"{100 * (math.exp(c.base) - 1):.0f} % off on average becomes {100 * (math.exp(c.loss) - 1):.0f} %"
        lines += wrap(f"{rank}. {c.name}", [f"{c.says}; {off}"])
    return lines


__all__ = ["compare_command"]
