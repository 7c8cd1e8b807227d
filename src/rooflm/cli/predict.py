"""`rooflm infer` and `rooflm train`: one prediction as a readable answer, or a grid as a table."""

from __future__ import annotations

from typing import Any

from rooflm.cli import streams
from rooflm.cli.console import Voice, working
from rooflm.cli.deliver import check_files, deliver_grid, deliver_point, deliver_sensitivity
from rooflm.cli.options import command
from rooflm.errors import RooflmError
from rooflm.shown.blocks import BLANK, Block
from rooflm.sweep.axes import size_of
from rooflm.sweep.grid import refuse_too_large


def infer(model: Any, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm infer` does with its arguments."""
    from rooflm.api import INFER
    from rooflm.cli import render

    def written(estimate: Any) -> tuple[dict[str, Any], list[Block]]:
        extra = render.op_tables(estimate) if shown["ops"] else []
        return render.infer_json(estimate, shown["ops"]), [] if shown["json"] else [*estimate_blocks(estimate), *extra]

    predict(INFER, {"model": model, **asked}, shown, written)


def train(model: Any, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm train` does with its arguments."""
    from rooflm.api import TRAIN
    from rooflm.cli import render_step
    from rooflm.cli.render import train_json

    added = [name for name in ("parts", "ops") if shown[name]]
    if shown["flops_only"] and added:
        raise RooflmError(f"--flops-only leaves out what --{added[0]} shows: give one of them")

    def written(estimate: Any) -> tuple[dict[str, Any], list[Block]]:
        if shown["flops_only"]:
            return render_step.flops_json(estimate), render_step.flops_blocks(estimate)
        values = train_json(estimate) | {name: render_step.ROWS[name](estimate) for name in added}
        tables = [block for name in added for block in (BLANK, *render_step.BLOCKS[name](estimate))]
        return values, [] if shown["json"] else [*estimate_blocks(estimate), *tables]

    predict(TRAIN, {"model": model, **asked}, shown, written)


def estimate_blocks(estimate: Any) -> list[Block]:
    """An estimate as blocks, with its assumptions unless quiet."""
    from rooflm.shown.answer import assumptions

    return [*estimate.blocks(Voice.verbose), *([] if Voice.quiet else assumptions(estimate))]


USUAL = 100
"""About so many outputs has a point of which none are named."""


def predict(task: Any, arguments: dict[str, Any], shown: dict[str, Any], written: Any) -> None:
    """Predict a point or a grid and deliver it. written: turns an estimate into the values of --json and its blocks."""
    axes, _, outputs = task.request(arguments)
    json_, out = shown["json"], shown["out"]
    check_files(out, shown["plot"], shown["plot_kind"], bool(axes), shown["plot_value"])
    if axes:
        for name in ("sensitivity", "ops", "parts", "flops_only"):
            if shown.get(name):
                more = "; of a grid, --outputs names flops_time_s and flops_gpu_hours" if name == "flops_only" else ""
                raise RooflmError(f"--{name.replace('_', '-')} is for a single prediction: leave out the lists{more}")
        if not out or out.endswith(".json"):
            refuse_too_large(size_of(axes), len(outputs) if outputs else USUAL, "a table" if not json_ else "JSON")
        if out and streams.wanted(out, axes):
            print(streams.run(task.stream, arguments, out, axes, json_))
            return
        with working("points worked out"):
            grid = judged(task, arguments, () if json_ or out else outputs or ())
        task.runs_somewhere(grid)
        if json_ or out or not Voice.quiet:
            grid = task.told(grid)
        deliver_grid(grid, shown)
        return
    estimate = task.point(arguments)
    values, blocks = written(estimate)
    if outputs:
        from rooflm.cli import render

        values = only(estimate, outputs)
        blocks = render.grid_table(task.told(judged(task, arguments, outputs)))
    if shown["sensitivity"]:
        from rooflm.sweep.sensitivity import sensitivity

        blocks = [*blocks, BLANK, *deliver_sensitivity(sensitivity(estimate), values)]
    deliver_point(estimate, values, blocks, shown)


def judged(task: Any, arguments: dict[str, Any], outputs: tuple[str, ...]) -> Any:
    """The grid of arguments; beside outputs that were asked for, whether its points run."""
    from rooflm.api import VERDICT

    asked = {"outputs": [*dict.fromkeys((*outputs, *VERDICT))]} if outputs else {}
    return task.grid(arguments | asked)._replace(asked=outputs)


def only(estimate: Any, outputs: tuple[str, ...]) -> dict[str, Any]:
    """The outputs that were asked for, as values."""
    from rooflm.asked.answers.outputs import chosen
    from rooflm.shown.answer import flatten, unflatten

    flat = flatten(estimate.values({name.split(".")[0] for name in outputs}))
    return unflatten({k: v for name in outputs for k, v in chosen(flat, (name,)).items()})


infer_command = command(
    "infer", ["infer"], infer,
    "Predict inference: time, memory and fit, what bounds it, communication, energy and cost.", axes=True,
)  # fmt: skip
train_command = command(
    "train", ["train"], train,
    "Predict training: step time, memory and fit, communication, MFU, GPU-hours, energy and cost.", axes=True,
)  # fmt: skip
