"""`rooflm explore`: grids over nodes, memories and networks, best splits of budgets, products by GPU, known dies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rooflm.asked.arguments import Argument, grouped
from rooflm.asked.written import assignments, names_in, numbers
from rooflm.cli.console import dumps, save, show, working
from rooflm.cli.examples import exemplified
from rooflm.cli.explore_text import (
    MEANING,
    cells,
    design_rows,
    design_summary,
    hardware_text,
    number_text,
    table_blocks,
    title_blocks,
    varying_axes,
)
from rooflm.cli.options import command, group
from rooflm.errors import RooflmError
from rooflm.shown.blocks import BLANK, Block, Say, Table
from rooflm.shown.numbers import count, text

if TYPE_CHECKING:
    from rooflm.plots.picture import Picture
    from rooflm.technology.explore import Columns, Space
    from rooflm.technology.tasks import Task

Run = Callable[[Any, dict[str, Any], dict[str, Any]], None]
app = group("explore", "Explore hardware: what a node, a memory or a network buys.")

GRID, SPLIT, FRONT, GEMMS, LADDER, DIES = (
    f"explore {name}" for name in ("grid", "split", "front", "gemms", "generations", "dies")
)
DESIGNS = (GRID, SPLIT, FRONT)
A = Argument
ROWS = grouped((
    "Which hardware",
    A("die", "text", "Die to start from: v100, a100, h100, b200, or a .toml: base = 'h100' and what differs.", DESIGNS,
      "a100"),
    A("node", "text", "Logic nodes, such as n12,n7,n5,n3,n2,a10 or uniform-7.", DESIGNS),
    A("dram", "text", "Memories, such as hbm2e,hbm3,hbm4,gddr7.", DESIGNS),
    A("network", "text", "Links inside and between nodes: nvlink3+hdr,nvlink5+xdr.", DESIGNS, "nvlink3+hdr"),
    A("sets", "pairs", "Such as technology.budget.power=400,700.", DESIGNS, option="--set"),
    A("gpu", "listed", "GPUs, a comma list.", (GEMMS,), "a100-sxm-80gb,h100-sxm-80gb"),
    A("readings", "flag", "Every reading of what the published ladder leaves open.", (LADDER,)),
    A("left_out", "flag", "Each with the mean shares of the others.", (DIES,)),
    "How it is split",
    A("gpus", "count", "Devices; split into tp, pp and dp as is best, unless given.", DESIGNS, 1),
    *(A(name, "count", "Fixed degree (else searched).", DESIGNS) for name in ("tp", "pp", "dp")),
    A("gpus", "count", "GPUs.", (LADDER,), 1024),
    A("tp", "count", "Tensor parallel degree.", (LADDER,), 8),
    A("pp", "count", "Pipeline parallel degree.", (LADDER,), 8),
    A("micro_batch", "count", "Sequences of a micro-batch.", (LADDER,), 1),
    "What is asked",
    A("phase", "text", "train or infer.", DESIGNS, "train", words=("train", "infer")),
    A("batch", "count", "Sequences (a step in all, or at a time).", DESIGNS),
    A("batch", "count", "Sequences.", (GEMMS,), 1),
    A("batch", "count", "Sequences a step.", (LADDER,), 1024),
    A("seq", "count", "Tokens a sequence (train).", (*DESIGNS, LADDER), 2048),
    A("prompt", "count", "Prompt tokens a sequence (infer).", DESIGNS, 512),
    A("prompt", "count", "Tokens of the prompt.", (GEMMS,), 200),
    A("output", "count", "Output tokens a sequence (infer).", DESIGNS, 128),
    A("recompute", "text", "none, selective or full (train).", DESIGNS),
    A("dtype", "text", "Data type (train).", DESIGNS),
    A("quant", "scheme", "Scheme (infer).", DESIGNS),
    A("metric", "text", "step_time; latency, ttft or tpot.", DESIGNS),
    A("efficiency", "text", "ideal, calibrated (gemms) or factors of compute, memory, network such as 0.7,0.85,0.8.",
      (*DESIGNS, GEMMS), "ideal"),
    "What is searched, within what",
    A("front", "text", "Only the Pareto front of these columns.", (GRID,)),
    A("method", "text", "evolution, exhaustive or gradient.", (SPLIT,), "evolution"),
    A("goal", "text", "A column of the report, such as time_s or tokens_per_j.", (SPLIT,), "time_s"),
    A("goals", "text", "Two or more columns.", (FRONT,), "time_s,capital_usd"),
    A("limit", "pairs", "Most of a column, such as device_usd=20000.", (SPLIT, FRONT)),
    A("split", "flag", "Seek the shares of area, power and edge too.", (FRONT,)),
    A("seed", "count", "The same seed gives the same answer.", (SPLIT, FRONT), 0),
    A("generations", "count", "Generations of designs.", (FRONT,), 60),
    A("population", "count", "Designs of a generation.", (FRONT,), 64),
    A("on", "text", "local, ray or ray://host:port.", (GRID,), "local"),
))  # fmt: skip
"""Arguments of `rooflm explore ...`."""
TASK = ("gpus", "tp", "pp", "dp", "batch", "seq", "prompt", "output", "recompute", "dtype", "quant", "metric",
        "efficiency")  # fmt: skip
"""Arguments that say what runs."""


def _names(listed: str | None) -> tuple[str, ...]:
    return tuple(names_in(listed)) if listed else ("",)


def _task(model: str, asked: Mapping[str, Any]) -> Task:
    from rooflm.technology.tasks import make_task

    phase = asked["phase"]
    given = {k: asked[k] for k in TASK if k in asked}
    unknown = {"train": ("prompt", "output", "quant"), "infer": ("seq", "recompute", "dtype")}.get(phase, ())
    if phase == "train" and "batch" not in given:
        raise RooflmError("batch is missing: give the sequences of one step with --batch")
    given.setdefault("batch", 1)
    return make_task(phase, model, **{k: v for k, v in given.items() if k not in unknown})


def _space(asked: Mapping[str, Any]) -> Space:
    from rooflm.technology.explore import Space

    listed = []
    for pair in asked.get("sets") or []:
        if not pair.strip().startswith("technology."):
            path = pair.partition("=")[0].strip()
            raise RooflmError(f"--set path {path!r} must start with technology., such as technology.budget.power")
    for path, value in assignments(asked.get("sets")).items():
        listed.append((path, tuple(value) if isinstance(value, list) else (value,)))
    node, dram = _names(asked.get("node")), _names(asked.get("dram"))
    return Space(asked["die"], node, dram, tuple(names_in(asked["network"])), tuple(listed))


def _deliver(
    table: Columns, head: dict[str, Any], shown: Mapping[str, Any], blocks: Sequence[Block],
    picture: Callable[[], Picture],
) -> None:  # fmt: skip
    """Draw and write what is asked for, then print."""
    from rooflm.shown.answer import plain
    from rooflm.sweep.files import check_target, write_text
    from rooflm.sweep.files import table as csv_text

    columns = {k: v.tolist() for k, v in table.items()}
    values = {**head, "columns": columns}

    def write(path: str) -> None:
        target = check_target(path, ("csv", "json"))
        write_text(target, json.dumps(plain(values)) if target.suffix == ".json" else csv_text(columns))

    save(shown["plot"], lambda path: picture().save(path))
    save(shown["out"], write)
    print(dumps(values)) if shown["json"] else show(blocks)


def _front(table: Columns, front: str | None) -> Columns:
    """The rows on the Pareto front of the columns named, or all."""
    if not front:
        return table
    from rooflm.sweep.pareto import pareto
    from rooflm.technology.front import directions

    goals = directions(_names(front), [k for k, v in table.items() if v.dtype.kind == "f"])
    keep = pareto(table, goals) & table["fits"]
    return {k: v[keep] for k, v in table.items()}


def _limits(limit: list[str] | None) -> dict[str, float]:
    """Columns and the most that they may be, from "device_usd=20000"."""
    return {k: float(numbers(v, k)) for k, _, v in (pair.partition("=") for pair in limit or [])}


def grid(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm explore grid` does with its arguments."""
    from rooflm.cli.explore_pictures import KINDS, grid_picture
    from rooflm.technology.explore import grid as worked_out

    task, space = _task(model, asked), _space(asked)
    if shown["plot_kind"] not in (None, *KINDS):
        raise RooflmError(f"--plot-kind is {shown['plot_kind']!r}, but it must be {' or '.join(KINDS)}")
    if shown["plot_kind"] and not shown["plot"]:
        raise RooflmError("--plot-kind needs a picture to draw: give --plot FILE")
    with working("designs worked out"):
        table = _front(worked_out(task, space, on=asked["on"]), asked.get("front"))

    def picture() -> Picture:
        title = f"{MEANING[task.metric].capitalize()} by cause"
        return grid_picture(table, space.names, title, f"{model}, {hardware_text(asked)}", shown["plot_kind"])

    head = {"model": model, "phase": asked["phase"], "metric": task.metric, "mappings": task.choices,
            "axes": list(space.names)}  # fmt: skip
    _deliver(table, head, shown, [*title_blocks(model, task, asked), *design_rows(table, space.names)], picture)


def split(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm explore split` does with its arguments."""
    from rooflm.cli.explore_pictures import split_picture
    from rooflm.technology.split import METHODS, problem

    method, goal, seed = asked["method"], asked["goal"], asked["seed"]
    if method not in METHODS:
        raise RooflmError(f"method is {method!r}, but it must be one of {', '.join(METHODS)}")
    task = _task(model, asked)
    p = problem(task, _space(asked), goal, _limits(asked.get("limit")))
    with working("designs tried"):
        found = METHODS[method](p, seed)
    value, start = (text(v, "s") if goal == "time_s" else count(v) for v in (found.value, found.start))
    rows: list[Sequence[str]] = [("component", "area", "power", "edge")]
    for name, share in found.shares["area"].items():
        edge = found.shares["edge"].get(name)
        power = found.shares["watts"][name]
        rows.append((name, f"{100 * share:.1f} %", f"{100 * power:.1f} %", f"{100 * edge:.1f} %" if edge else ""))
    name = MEANING[task.metric] if goal == "time_s" else goal
    told = f"{name}: {value}, from {start} of the die as it is ({method}, {found.evaluations:,} designs)"
    blocks = [*title_blocks(model, task, asked), Say(told), BLANK, Table(rows, "lrrr", head=True), BLANK,
              *design_rows(found.report, ()), BLANK, *design_summary(found.report)]  # fmt: skip
    head = {"model": model, "goal": goal, "value": found.value, "start": found.start, "evaluations": found.evaluations,
            "method": method, "seed": seed, "shares": found.shares}  # fmt: skip
    _deliver(
        {k: v for k, v in found.report.items() if v.dtype != object},
        head,
        shown,
        blocks,
        lambda: split_picture(found.shares, f"Best split for {name}", f"{model}, {hardware_text(asked)}: {value}"),
    )


def front(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm explore front` does with its arguments."""
    from rooflm.cli.explore_pictures import front_picture
    from rooflm.technology.front import search

    task, space = _task(model, asked), _space(asked)
    how = {k: asked[k] for k in ("split", "seed", "generations", "population")}
    with working("designs tried"):
        found = search(task, space, _names(asked["goals"]), limits=_limits(asked.get("limit")), **how)
    t, most = found.report, 40
    axes, heads = varying_axes(t, space.names)
    rows: list[Sequence[str]] = [(*heads, "bound", *found.goals)]
    for i in range(min(len(t["time_s"]), most)):
        rows.append((*cells(t, axes, i), str(t["bottleneck"][i]), *(number_text(t[g][i]) for g in found.goals)))
    sides = "l" * (len(axes) + 1) + "r" * len(found.goals)
    spread = f"{count(len(t['time_s']))} designs of {found.evaluations} tried, none beaten in {', '.join(found.goals)}"
    head = {"model": model, "phase": asked["phase"], "metric": task.metric, "goals": list(found.goals),
            "seed": asked["seed"], "evaluations": found.evaluations, "space": space.size}  # fmt: skip
    _deliver(t, head, shown, [*title_blocks(model, task, asked), Say(spread), BLANK,
                           *table_blocks(rows, sides, ("bound",), len(t["time_s"]) - most)],
             lambda: front_picture(t, space.names, found.goals, "Designs that no other beats",
                                   f"{model}, {hardware_text(asked)}"))  # fmt: skip


def gemms(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm explore gemms` does with its arguments."""
    from rooflm.cli.explore_pictures import products_picture
    from rooflm.technology.reports import gemm_bounds

    prompt, batch = asked["prompt"], asked["batch"]
    t = gemm_bounds(model, tuple(asked["gpu"]), prompt, batch, asked["efficiency"])
    rows: list[Sequence[str]] = [("GPU", "product", "m", "n", "k", "time", "bound by", "FLOP/B", "balance")]
    rows += [(str(t["gpu"][i]), str(t["product"][i]), *(f"{t[k][i]:.0f}" for k in "mnk"), text(t["time_s"][i], "s"),
              str(t["bound"][i]), count(t["flop_per_byte"][i]), count(t["balance"][i]))
             for i in range(len(t["gpu"]))]  # fmt: skip
    about = f"{model}, products of a prefill layer: batch {batch}, prompt {prompt}, 16 bits, {asked['efficiency']}"
    told = [
        Say(about, "title"),
        Say("FLOP/B: arithmetic per byte moved; below the GPU's balance (peak FLOP/s over B/s) memory is the bound."),
    ]  # fmt: skip
    _deliver(t, {"model": model, "prompt": prompt, "batch": batch}, shown,
          [*told, BLANK, *table_blocks(rows, "llrrrrlrr", ("balance", "FLOP/B"), 0)],
          lambda: products_picture(t, about))  # fmt: skip


def generations(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm explore generations` does with its arguments."""
    from rooflm.cli.explore_generations import ladder_blocks, ladder_picture, ladder_table, reading_blocks
    from rooflm.technology.generations import Ladder

    head = {k: asked[k] for k in ("gpus", "tp", "pp", "batch", "seq", "micro_batch")}
    ladder = Ladder(model, **head)
    readings = asked["readings"]
    table = ladder.readings([ladder.gpus * n for n in (1, 2, 4, 8)]) if readings else ladder_table(ladder)
    worth = {} if readings else {"worth": {mode: ladder.worth(mode) for mode in ("calibrated", "ideal")}}
    blocks = reading_blocks(table) if readings else ladder_blocks(ladder, table, worth["worth"])
    _deliver(table, {"model": model} | head | worth, shown, blocks, lambda: ladder_picture(ladder))


def dies(_: None, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm explore dies` does with its arguments."""
    from rooflm.cli.explore_pictures import dies_picture
    from rooflm.technology.reports import reconstruction
    from rooflm.technology.tasks import DIES as KNOWN

    t = reconstruction(KNOWN, asked["left_out"])
    rows: list[Sequence[str]] = [("die", "quantity", "engine", "catalogue", "error")]
    notes = [f"{t['die'][i]}, {t['quantity'][i]}: {t['reason'][i]}" for i in range(len(t["die"])) if t["reason"][i]]
    rows += [(str(t["die"][i]), str(t["quantity"][i]), text(t["engine"][i], str(t["unit"][i])),
              text(t["catalogue"][i], str(t["unit"][i])), f"{100 * t['error'][i]:+.0f} %")
             for i in range(len(t["die"]))]  # fmt: skip
    _deliver(t, {}, shown, [*table_blocks(rows, "llrrr", (), 0), BLANK, *map(Say, notes)], lambda: dies_picture(t))


def checked(run: Run) -> Run:
    """A command that refuses a picture which could not be drawn, before any work is done."""

    def started(model: Any, asked: dict[str, Any], shown: dict[str, Any]) -> None:
        if shown["plot"]:
            from rooflm.plots.picture import check_picture

            check_picture(shown["plot"])
        run(model, asked, shown)

    return started


for name, run, told in (
    (GRID, grid, "Time, bottleneck and cost over nodes x memories x networks, each with its best parallel mapping."),
    (SPLIT, split, "The best split of area, power and edge among cores, caches, memory and links, jointly with the "
     "mapping."),
    (FRONT, front, "Designs that no other beats in any of several goals (NSGA-II), in spaces too large for a grid."),
    (GEMMS, gemms, "What bounds each product of a prefill layer, GPU by GPU."),
    (LADDER, generations, "Training from A100 with HDR to B200 behind an NVLink switch: times faster, and what each "
     "change is worth."),
    (DIES, dies, "Known GPUs as the engine rebuilds them from node and die, beside their catalogue numbers."),
):  # fmt: skip
    made = command(name, [], checked(run), told, own=ROWS, first=run is not dies or None)
    app.command(name.split()[1], cls=exemplified(name))(made)
