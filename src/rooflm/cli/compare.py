"""`rooflm compare`: measured cases beside their predictions, of `rooflm measure` or of others' tools."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rooflm.cli.render import columns, dumps
from rooflm.cli.validate import percent, signed

if TYPE_CHECKING:
    from rooflm.plots.picture import Picture

WORST = 10


def compare(
    results: Annotated[list[str], typer.Argument(metavar="RESULTS...", help="Tables of `rooflm measure`, or JSON.")],
    gpu: Annotated[str, typer.Option(help="What to predict for: GPU name or a calibrated machine's .toml.")],
    engine: Annotated[str | None, typer.Option(help="Engine row (default: the machine's own, else hf-eager).")] = None,
    efficiency: Annotated[str | None, typer.Option(help="calibrated, ideal, or factors.")] = None,
    model: Annotated[str | None, typer.Option(help="Model of others' results that do not name one we know.")] = None,
    dtype: Annotated[str, typer.Option(help="Data type of others' results: fp32, bf16 or fp16.")] = "bf16",
    quant: Annotated[str, typer.Option(help="Weights of others' results: none, int8-wo or int4-wo.")] = "none",
    prompt: Annotated[int | None, typer.Option(help="Prompt tokens, where others' results do not say.")] = None,
    output: Annotated[int | None, typer.Option(help="Output tokens, where others' results do not say.")] = None,
    clock: Annotated[str, typer.Option(help="wall, or cpu where other work ran on the machine.")] = "wall",
    out: Annotated[str | None, typer.Option(metavar="FILE.csv", help="Write every pair.")] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw predicted over measured (png, svg, html).")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object; errors are fractions.")] = False,
) -> None:
    """Predict every measured case; errors by metric, strategy and model."""
    from rooflm.measure.figures import coordinates
    from rooflm.plots.picture import check_picture
    from rooflm.sweep.files import check_target, table, write_whole
    from rooflm.tools import compare as paired

    if out:
        check_target(out, ("csv",))
    if plot:
        check_picture(plot)
    pairs = paired(*results, gpu=gpu, engine=engine, efficiency=efficiency, model=model, dtype=dtype, quant=quant,
                   prompt=prompt, output=output, clock=clock)  # fmt: skip
    figures = {name: errors(pairs, by) for name, by in {
        "metric": lambda p: p.metric, "strategy": lambda p: coordinates(p.case)["strategy"],
        "optimisation": lambda p: coordinates(p.case)["optimisation"], "dtype": lambda p: p.case.dtype,
        "model": lambda p: coordinates(p.case)["model"]}.items()}  # fmt: skip
    if out:
        cells: dict[str, list[Any]] = {"case": [p.case.label for p in pairs], "key": [p.case.key for p in pairs],
                 "metric": [p.metric for p in pairs], "measured": [p.measured for p in pairs],
                 "predicted": [p.predicted for p in pairs]}  # fmt: skip
        write_whole(check_target(out, ("csv",)), lambda name: _save(name, table(cells)))
        print(f"rooflm: wrote {out}", file=sys.stderr)
    if plot:
        picture(pairs, gpu).save(plot)
        print(f"rooflm: wrote {plot}", file=sys.stderr)
    if json_:
        listed = [
            {"case": p.case.label, "metric": p.metric, "measured": p.measured, "predicted": p.predicted} for p in pairs
        ]
        print(dumps({"pairs": listed, **{f"by_{k}": v for k, v in figures.items()}}))
        return
    print("\n".join(report(pairs, figures)))


def picture(pairs: list[Any], gpu: str) -> Picture:
    """Predicted over measured of every case, by model and how it ran, and by metric."""
    from rooflm.measure.figures import coordinates
    from rooflm.plots.scatter import ratios

    found = []
    for p in pairs:
        at = coordinates(p.case)
        how = " ".join(at[k] for k in ("dtype", "strategy", "optimisation") if at[k] != "none")
        if p.measured > 0 and p.metric in SHOWN:
            found.append((f"{at['model']}, {how}", SHOWN[p.metric], p.predicted / p.measured))
    about = f"{len({p.case.key for p in pairs})} cases, predicted for {gpu}"
    return ratios("Predictions over measurements", found, about, near=0.15)


SHOWN = {"ttft_s": "time to the first token", "tpot_s": "time per output token", "step_time_s": "time of a step",
         "memory_bytes": "memory", "prefill_comm_bytes": "bytes sent, prefill",
         "decode_comm_bytes": "bytes sent, decode step", "step_comm_bytes": "bytes sent, step"}  # fmt: skip
"""Metrics that are drawn, and the name of each one's panel."""


def _save(name: str, text: str) -> None:
    from pathlib import Path

    Path(name).write_text(text, encoding="utf-8")


def errors(pairs: list[Any], by: Callable[[Any], str]) -> dict[str, dict[str, Any]]:
    """Error figures by group; of times and memory where the group is no metric."""
    from rooflm.validation.metrics import describe

    grouped: dict[str, list[Any]] = defaultdict(list)
    for p in pairs:
        if by(p) == p.metric or p.metric in ("ttft_s", "tpot_s", "step_time_s"):
            grouped[by(p)].append(p)
    return {k: describe([max(p.measured, 1e-30) for p in v], [p.predicted for p in v]) for k, v in grouped.items()}


def report(pairs: list[Any], figures: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Tables of errors, and the cases that are furthest off."""
    lines = [f"{len({p.case.key for p in pairs})} cases; errors of predicted over measured in per cent"]
    for name, groups in figures.items():
        title = f"by {name}" + ("" if name == "metric" else " (times)")
        head = (title, "cases", "median", "p90", "bias")
        body = [(k[:40], str(f["rows"]), percent(f["median_ape"]), percent(f["p90_ape"]), signed(f["bias"]))
                for k, f in groups.items()]  # fmt: skip
        if len(groups) > 1 or name == "metric":
            lines += ["", *columns([head, *body], "lrrrr")]
    worst = sorted(pairs, key=lambda p: -abs(p.predicted / max(p.measured, 1e-30) - 1))[:WORST]
    lines += ["", "Furthest off (predicted over measured)"]
    return lines + [f"  {p.predicted / max(p.measured, 1e-30):6.2f}  {p.metric:<20} {p.case.label}" for p in worst]
