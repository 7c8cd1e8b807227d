"""`rooflm compare`: measured runs beside their predictions, ours or of other tools, and why they part."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rooflm.asked.arguments import Argument, arguments, grouped
from rooflm.cli.console import dumps, save, show, working
from rooflm.cli.deliver import check_targets
from rooflm.cli.error_text import errors_table, ratio_text
from rooflm.cli.options import command, files
from rooflm.cli.serve import server_options
from rooflm.shown.blocks import BLANK, Block, Say, Table, listed
from rooflm.shown.numbers import gib, plural
from rooflm.shown.numbers import text as quantity

if TYPE_CHECKING:
    from rooflm.measure.gap import Comparison, Point
    from rooflm.plots.picture import Picture

LINES, TOLD = 24, 3
"""Points and causes that are printed."""
STATED = ("gpu", "cluster", "gpus", "tp", "pp", "dp", "ep", "cp", "concurrency", "rate", "requests", "quant", "engine",
          "efficiency", "sets")  # fmt: skip
"""Arguments of `serve` that go before what a file says."""
ROWS = (
    *(arguments("serve")[name]._replace(of=()) for name in STATED),
    *grouped((
        "What was run, where a file does not say",
        Argument("model", "text", "Model.", ()),
        Argument("release", "text", "Release of the engine.", ()),
        Argument("batch", "count", "Sequences at a time.", (), least=1),
        Argument("prompt", "count", "Prompt tokens (mean).", (), least=1),
        Argument("output", "count", "Output tokens (mean).", (), least=1),
        Argument("spread", "spread", "Lengths as shares LOW,HIGH of prompt and output.", ()),
        Argument("shared_prefix", "count", "Prompt tokens that all requests share.", ()),
        Argument("replicas", "count", "Replicas behind a router.", (), least=1),
        Argument("option", "pairs", "Server option: budget=16384, prefix_caching=true, ...", ()),
        Argument("clock", "text", "wall, or cpu where other work ran on the machine.", (), "wall",
                 words=("wall", "cpu")),
        "The answer",
        Argument("why", "switch", "Play what may be the cause of the gap, best first.", (), True),
        Argument("out", "file", "Write every pair: csv.", ()),
        Argument("plot", "file", "Draw predicted over measured (png, svg, html, json).", ()),
    )),
)  # fmt: skip
"""Arguments of `rooflm compare`."""


def compare(results: list[str], asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm compare` does with its arguments."""
    from rooflm.tools import compare as played

    out, plot, options = (asked.pop(name, None) for name in ("out", "plot", "option"))
    check_targets(out, plot, ("csv",))
    explain = asked.pop("why")
    with working("runs and causes played") as advance:

        def progress(number: int, count: int, name: str) -> None:
            advance(said=f"cause {number} of {count}: {name}")

        found = played(*results, explain=explain, progress=progress, **asked, **server_options(options, None))
    save(out, lambda path: write(path, found))
    save(plot, lambda path: picture(found, str(asked.get("gpu", ""))).save(path))
    if shown["json"]:
        print(dumps(values(found)))
    else:
        show(report(found, explain))


compare_command = command(
    "compare", [], compare, "Predict every measured run as it was: both times, and why they part.", own=ROWS,
    first=files("results", "RESULTS", "Tables of measured runs, or files of other tools (docs/measure.md)."),
)  # fmt: skip


def picture(found: Comparison, gpu: str) -> Picture:
    """Predicted over measured of every point, by model and how it ran, and by metric."""
    from rooflm.plots.ratios import ratios

    drawn = []
    for p in found.points:
        how = " ".join(
            p.at[k] for k in ("engine", "dtype", "strategy", "optimisation") if p.at.get(k, "none") != "none"
        )
        metric = p.metric.replace("_p50_s", "_s")
        if p.measured > 0 and metric in SHOWN:
            drawn.append((f"{p.at['model']}, {how}", SHOWN[metric], p.ratio))
    about = plural(len({p.label for p in found.points}), "case") + (f", predicted for {gpu}" if gpu else "")
    return ratios(drawn, about, near=0.15)


SHOWN = {"ttft_s": "time to the first token", "tpot_s": "time per output token", "latency_s": "latency",
         "output_tokens_per_s": "output tokens/s", "step_time_s": "time of a step", "memory_bytes": "memory",
         "prefill_comm_bytes": "bytes sent, prefill", "decode_comm_bytes": "bytes sent, decode step",
         "step_comm_bytes": "bytes sent, step"}  # fmt: skip
"""Metrics that are drawn, and the name of each one's panel."""


def write(out: str, found: Comparison) -> None:
    """Every point to a csv."""
    from rooflm.sweep.files import check_target, table, write_text

    names = {"run": "label", **{n: n for n in ("metric", "measured", "predicted", "low", "high")}}
    cells: dict[str, list[Any]] = {column: [getattr(p, n) for p in found.points] for column, n in names.items()}
    text = table({k: ["" if v != v else v for v in column] for k, column in cells.items()})
    write_text(check_target(out, ("csv",)), text)


def grouping(name: str) -> Callable[[Point], str]:
    """What errors are grouped by."""
    return (lambda p: p.metric) if name == "metric" else (lambda p: str(p.at.get(name, "none")))


GROUPS = ("metric", "strategy", "optimisation", "dtype", "engine", "model")


def errors(points: Sequence[Point], by: Callable[[Point], str]) -> dict[str, dict[str, Any]]:
    """Error figures by group; of times and memory where the group is no metric."""
    from rooflm.validation.metrics import describe

    grouped: dict[str, list[Point]] = defaultdict(list)
    for p in points:
        if by(p) == p.metric or p.metric.startswith(("ttft_", "tpot_", "step_time_")):
            grouped[by(p)].append(p)
    return {k: describe([max(p.measured, 1e-30) for p in v], [p.predicted for p in v]) for k, v in grouped.items()}


def values(found: Comparison) -> dict[str, Any]:
    """The object of --json."""
    pairs = [{"case": p.label, "metric": p.metric, "measured": p.measured, "predicted": p.predicted,
              "low": p.low, "high": p.high} for p in found.points]  # fmt: skip
    causes = [{"name": c.name, "level": c.level, "says": c.says, "explains": c.share, "loss": c.loss, "base": c.base,
               "predicted": c.predicted} for c in found.causes]  # fmt: skip
    figures = {f"by_{name}": errors(found.points, grouping(name)) for name in GROUPS}
    return {"pairs": pairs, "skipped": dict(found.skipped), "causes": causes, "assumed": list(found.assumed), **figures}


def cell(value: float, metric: str) -> str:
    """A value for people.

    >>> cell(0.0123, "tpot_s"), cell(412.0, "output_tokens_per_s")
    ('12.3 ms', '412')
    """
    if metric.endswith("per_s") or not metric.endswith(("_s", "_bytes")):
        return f"{value:.4g}"
    return gib(value) if metric == "memory_bytes" else quantity(value, "B" if metric.endswith("_bytes") else "s")


def report(found: Comparison, explain: bool = True) -> list[Block]:
    """Both times of every run, errors by group, and why they part (explain)."""
    points = found.points
    labels = list(dict.fromkeys(p.label for p in points))
    common = shared(labels)
    title = ", ".join([*common, f"{plural(len(labels), 'case')}; predicted over measured"])
    blocks: list[Block] = [Say(title, "title"), BLANK, times_table(found, common)]
    if found.causes and explain:
        blocks.append(Say("cause 1: predicted if the first cause below holds", "faint"))
    for name in GROUPS:
        groups = errors(points, grouping(name))
        if groups and (len(groups) > 1 or name == "metric"):
            title = f"errors by {name}" + ("" if name == "metric" else " (times)")
            blocks += [BLANK, errors_table((title, "rows", "median %", "p90 %", "bias %"), groups)]
    left = sorted(found.skipped.items(), key=lambda kv: -kv[1])[:5]
    blocks += [BLANK] if left or found.assumed else []
    blocks += listed("left out", [f"{reason} ({n})" for reason, n in left])
    blocks += listed("assumed", found.assumed[:6])
    return blocks + (causes_table(found) if explain else [])


def shared(labels: Sequence[str]) -> list[str]:
    """The parts that every run's name has: said once, above. Of one run's name only what stands first.

    >>> shared(["llama, 1 client, 8+8, tp 2", "llama, 2 clients, 8+8, tp 2"]), shared(["llama, 1 client"])
    (['llama', '8+8', 'tp 2'], ['llama'])
    """
    parts = [label.split(", ") for label in labels]
    if len(parts) == 1:
        return parts[0][:1] if parts[0][1:] else []
    return [p for p in parts[0] if all(p in other for other in parts)] if parts else []


def times_table(found: Comparison, common: Sequence[str]) -> Table:
    """Measured and predicted times of each run, their ratio, the band, and the prediction if the top cause held."""
    points = found.points
    few = len(points) <= LINES
    worst = points if few else sorted(points, key=lambda p: -abs(math.log(max(p.ratio, 1e-12))))[:LINES]
    first = found.causes[0] if found.causes else None
    told = dict(zip([id(x) for x in found.rows], first.predicted, strict=True)) if first else {}
    head = ("run" if few else "furthest off", "", "measured", "predicted", "ratio", "band", "cause 1")
    own = {p.label: ", ".join(x for x in p.label.split(", ") if x not in common) for p in points}
    body = [(own[p.label], short(p.metric),
             cell(p.measured, p.metric), cell(p.predicted, p.metric), ratio_text(p.ratio), band(p),
             cell(told[id(p)], p.metric) if id(p) in told else "") for p in worst]  # fmt: skip
    kept = [i for i in range(7) if i < 5 or any(row[i] for row in body)]
    return Table([[row[i] for i in kept] for row in (head, *body)], "".join("wlrrrlr"[i] for i in kept), head=True,
                 spare=("band",), indent=0)  # fmt: skip


def short(metric: str) -> str:
    """A metric in a narrow column.

    >>> short("output_tokens_per_s"), short("decode_tokens_per_s"), short("ttft_s")
    ('tok/s', 'decode tok/s', 'ttft')
    """
    return metric.removesuffix("_s").removeprefix("output_").replace("tokens_per", "tok/s").replace("_", " ")


def band(p: Point) -> str:
    """The ends of the band over the prediction, and whether the measured value lies outside."""
    if not math.isfinite(p.low):
        return ""
    outside = not p.low <= p.measured <= p.high
    low, high = cell(p.low, p.metric), cell(p.high, p.metric)
    same = low.split()[1:] == high.split()[1:]
    return f"{low.split()[0] if same else low}-{high.split()[0] if same else high}{' out' if outside else ''}"


def causes_table(found: Comparison) -> list[Block]:
    """The causes that would explain the gap, best first."""
    from rooflm.measure.why import repeated

    if found.rows and repeated(p.ratio for p in found.rows):
        return [BLANK, Say("No cause was sought: two runs of one server differ by as much.")]
    if not found.causes:
        return [BLANK, Say("No single cause that is known explains a tenth of the gap.")] if found.rows else []
    blocks: list[Block] = [BLANK, Say("Why: what explains the gap, over all runs together", "title")]
    for rank, c in enumerate(found.causes[:TOLD], start=1):
        now, then = (f"{x:.0f} %" if x >= 10 else f"{x:.1f} %" for x in (100 * math.expm1(y) for y in (c.base, c.loss)))
        off = f"with that the runs would be {then} off on average, and not {now}"
        blocks.append(Say(f"{c.says}; {off}", label=f"{rank}. {c.name}"))
    return blocks
