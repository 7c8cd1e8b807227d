"""`rooflm explore`: grids over nodes, memories and networks, best splits of budgets, products by GPU, known dies."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rooflm.cli.options import group
from rooflm.errors import RooflmError
from rooflm.scenario.written import assignments, numbers

if TYPE_CHECKING:
    from rooflm.technology.explore import Columns, Space, Task

app = group("explore", "Explore hardware: what a node, a memory or a network buys.")

Model = Annotated[str, typer.Argument(help="Name, Hugging Face id, config.json or .toml.")]
Phase = Annotated[str, typer.Option(help="train or infer.")]
Die = Annotated[str, typer.Option(help="Die to start from: v100, a100, h100, b200 or a .toml.")]
Nodes = Annotated[str | None, typer.Option("--node", help="Logic nodes, such as n12,n7,n5,n3,n2,a10 or uniform-7.")]
Drams = Annotated[str | None, typer.Option("--dram", help="Memories, such as hbm2e,hbm3,hbm4,gddr7.")]
Networks = Annotated[str, typer.Option("--network", help="Links inside and between nodes: nvlink3+hdr,nvlink5+xdr.")]
Gpus = Annotated[int, typer.Option(help="Devices; split into tp, pp and dp as is best, unless given.")]
Degree = Annotated[int | None, typer.Option(help="Fixed degree (else searched).")]
Batch = Annotated[int | None, typer.Option(help="Sequences (a step in all, or at a time).")]
Tokens = Annotated[int, typer.Option()]
Metric = Annotated[str | None, typer.Option(help="step_time; latency, ttft or tpot.")]
Text = Annotated[str | None, typer.Option()]
Efficiency = Annotated[str, typer.Option(help="ideal, or factors of compute, memory, network such as 0.7,0.85,0.8.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Such as technology.budget.power=400,700.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object in SI units.")]
Out = Annotated[str | None, typer.Option(metavar="FILE", help="Write csv or json.")]
Plot = Annotated[str | None, typer.Option(metavar="FILE", help="Draw png, svg or html.")]
On = Annotated[str, typer.Option("--on", help="local, ray or ray://host:port.")]


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(p.strip() for p in text.split(",") if p.strip()) if text else ("",)


def _networks(text: str) -> tuple[str, ...]:
    """Names with a plus each: "nvlink3+hdr,nvlink5+xdr"."""
    return tuple(p.strip() for p in text.split(",") if p.strip())


def _task(phase: str, model: str, given: dict[str, Any]) -> Task:
    from rooflm.technology.explore import make_task

    kept = {k: v for k, v in given.items() if v is not None}
    unknown = {"train": ("prompt", "output", "quant"), "infer": ("seq", "recompute", "dtype")}.get(phase, ())
    if phase == "train" and "batch" not in kept:
        raise RooflmError("batch is missing: give the sequences of one step with --batch")
    kept.setdefault("batch", 1)
    return make_task(phase, model, **{k: v for k, v in kept.items() if k not in unknown})


def _space(die: str, node: str | None, dram: str | None, network: str, sets: list[str] | None) -> Space:
    from rooflm.technology.explore import Space

    listed = []
    for path, value in assignments(sets).items():
        if not path.startswith("technology."):
            raise RooflmError(f"--set path {path!r} must start with technology., such as technology.budget.power")
        listed.append((path, tuple(value) if isinstance(value, list) else (value,)))
    return Space(die, _names(node), _names(dram), _networks(network), tuple(listed))


def _emit(table: Columns, head: dict[str, Any], as_json: bool, out: str | None, text: list[str]) -> None:
    """Write, then print."""
    from rooflm.cli.render import dumps
    from rooflm.estimate.results import plain
    from rooflm.sweep.files import check_target, write_whole
    from rooflm.sweep.files import table as csv_text

    values = {**head, "columns": {k: v.tolist() for k, v in table.items()}}
    if out:
        target = check_target(out, ("csv", "json"))
        body = (
            json.dumps(plain(values))
            if target.suffix == ".json"
            else csv_text({k: v.tolist() for k, v in table.items()})
        )

        def write(name: str) -> None:
            with open(name, "w", encoding="utf-8") as file:  # noqa: PTH123 - a temporary name is text
                file.write(body)

        write_whole(target, write)
    print(dumps(values) if as_json else "\n".join(text))


def _share(table: Columns, i: int, names: Sequence[str]) -> str:
    return f"{100 * sum(float(table[f'{c}_s'][i]) for c in names) / float(table['time_s'][i]):.0f}"


def _rows(table: Columns, axes: Sequence[str], most: int = 60) -> list[str]:
    """The table for people: the axes that vary, time, what bounds it, shares in per cent, the split, cost."""
    from rooflm.cli.render import seconds

    shown = [a for a in axes if len(set(map(str, table[a].tolist()))) > 1]
    heads = [a.removeprefix("technology.").removeprefix("budget.") for a in shown]
    rows: list[Sequence[str]] = [(*heads, "time", "bound", "comp%", "mem%", "net%", "tp pp dp", "USD/Mtok")]
    for i in range(min(len(table["time_s"]), most)):
        cells = [f"{table[a][i]:.4g}" if isinstance(table[a][i], float) else str(table[a][i]) for a in shown]
        if not table["fits"][i]:
            rows.append((*cells, "-", "no fit", *[""] * 5))
            continue
        split = " ".join(f"{table[k][i]:.0f}" for k in ("tp", "pp", "dp"))
        parts = [_share(table, i, c) for c in (("compute",), ("dram", "l2", "l1"), ("network",))]
        rows.append((*cells, seconds(table["time_s"][i]), str(table["bottleneck"][i]), *parts, split,
                     f"{table['usd_per_million_tokens'][i]:.3g}"))  # fmt: skip
    lines = _fitting(rows, "l" * len(shown) + "rlrrrrr", ("comp%", "tp pp dp", "mem%", "net%"))
    more = len(table["time_s"]) - most
    return lines + ([f"... {more} more: write them with --out"] if more > 0 else [])


def _fitting(rows: list[Sequence[str]], sides: str, spare: Sequence[str] = ()) -> list[str]:
    """Rows as lines no wider than a terminal: columns closer together, then without the spare ones, which is said."""
    from rooflm.cli.render import WIDTH, columns

    dropped: list[str] = []
    while True:
        for gap in (2, 1):
            lines = columns(rows, sides, gap=gap, indent=0)
            if max(map(len, lines)) <= WIDTH:
                said = [f"(no room for {', '.join(dropped)}: --json and --out have them)"] if dropped else []
                return lines + said
        left = [name for name in spare if name in rows[0]]
        if not left:
            return [line[:WIDTH] for line in lines]
        at = list(rows[0]).index(left[0])
        dropped.append(left[0])
        rows = [[*row[:at], *row[at + 1 :]] for row in rows]
        sides = sides[:at] + sides[at + 1 :]


def _draw(table: Columns, axes: Sequence[str], title: str, about: str, path: str) -> None:
    """Bars of the seconds by cause, a group for each value of the last axis that varies, or of the first of two."""
    from rooflm.plots.bars import Bar, bars
    from rooflm.plots.choose import MOST_BARS
    from rooflm.plots.scale import Scale
    from rooflm.technology.explore import CAUSES

    count = len(table["time_s"])
    if count > MOST_BARS:
        raise RooflmError(f"--plot draws at most {MOST_BARS} points, but there are {count}")
    varied = [a for a in axes if len(set(map(str, table[a]))) > 1]
    outer, inner = (varied[-1:], varied[:-1]) if len(varied) > 1 else ([], varied)
    order = sorted(range(count), key=lambda i: list(dict.fromkeys(map(str, table[outer[0]]))).index(
        str(table[outer[0]][i])) if outer else 0)  # fmt: skip
    top = max((float(t) for t, ok in zip(table["time_s"], table["fits"], strict=True) if ok), default=1.0)
    factor, unit = (1.0, "s") if top >= 2 else ((1e3, "ms") if top >= 2e-3 else (1e6, "µs"))
    made = []
    for i in order:
        parts = {c: factor * float(table[f"{c}_s"][i]) for c in CAUSES if table["fits"][i] and table[f"{c}_s"][i] > 0}
        group = ", ".join(_word(a, table[a][i]) for a in outer)
        mark = "" if table["fits"][i] else "no fit"
        made.append(Bar(", ".join(_word(a, table[a][i]) for a in inner), parts, group, mark=mark))
    bars(title, Scale(f"{title[:1].lower()}{title[1:]} ({unit})"), made, about).save(path)


def _word(axis: str, value: Any) -> str:
    """A value of an axis: a name as it is, a number after what it is of."""
    own = axis.rsplit(".", 1)[-1].replace("_", " ")
    return str(value) if isinstance(value, str) else f"{own} {value:.4g}"


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


def _made(report: Columns) -> list[str]:
    """What a design is made of and what it costs, in three lines."""
    from rooflm.units import text

    r = {k: float(v[0]) for k, v in report.items() if v.dtype.kind == "f"}
    return [
        f"{text(r['peak_flops'], 'FLOP/s')} in 16 bits; L2 {r['l2_bytes'] / 2**20:.0f} MiB at "
        f"{text(r['l2_bandwidth'], 'B/s')}; memory {r['dram_bytes'] / 2**30:.0f} GiB at "
        f"{text(r['dram_bandwidth'], 'B/s')}",
        f"{1e6 * r['area_used_m2']:.0f} of {1e6 * r['die_m2']:.0f} mm2, {r['power_used_w']:.0f} of {r['tdp_w']:.0f} W; "
        f"{r['device_usd']:.0f} USD a device",
        f"{r['tokens_per_j']:.3g} tokens/J with the network; {r['tco_usd']:.3g} USD over its years",
    ]


NOTE = "No software overheads: bounds to compare hardware by, not predictions."


@app.command("grid")
def grid_command(
    model: Model, phase: Phase = "train", die: Die = "a100", node: Nodes = None, dram: Drams = None,
    network: Networks = "nvlink3+hdr", gpus: Gpus = 1, tp: Degree = None, pp: Degree = None, dp: Degree = None,
    batch: Batch = None, seq: Tokens = 2048, prompt: Tokens = 512, output: Tokens = 128, recompute: Text = None,
    dtype: Text = None, quant: Text = None, metric: Metric = None, efficiency: Efficiency = "ideal", sets: Sets = None,
    front: Annotated[str | None, typer.Option(metavar="COLUMNS", help="Only the Pareto front of these.")] = None,
    json_: Json = False, out: Out = None, plot: Plot = None, on: On = "local",
) -> None:  # fmt: skip
    """Time, bottleneck and cost over nodes x memories x networks, each with its best parallel mapping."""
    from rooflm.technology.explore import grid

    task = _task(phase, model, {"gpus": gpus, "tp": tp, "pp": pp, "dp": dp, "batch": batch, "seq": seq,
                                "prompt": prompt, "output": output, "recompute": recompute, "dtype": dtype,
                                "quant": quant, "metric": metric, "efficiency": efficiency})  # fmt: skip
    if plot:
        from rooflm.plots.picture import check_picture

        check_picture(plot)
    space = _space(die, node, dram, network, sets)
    table = grid(task, space, on=on)
    table = _front(table, front)
    if plot:
        name = task.metric.replace("_", " ").capitalize()
        _draw(table, space.names, f"{name} by cause", f"{model}, die {die}, {gpus} devices", plot)
    head = {"model": model, "phase": phase, "metric": task.metric, "mappings": task.choices, "axes": list(space.names)}
    title = f"{model}, {task.metric.replace('_', ' ')}, die {die}, {gpus} devices"
    _emit(table, head, json_, out, [title, NOTE, "", *_rows(table, space.names)])


@app.command("split")
def split_command(
    model: Model, phase: Phase = "train", die: Die = "a100", node: Nodes = None, dram: Drams = None,
    network: Networks = "nvlink3+hdr", gpus: Gpus = 1, tp: Degree = None, pp: Degree = None, dp: Degree = None,
    batch: Batch = None, seq: Tokens = 2048, prompt: Tokens = 512, output: Tokens = 128, recompute: Text = None,
    dtype: Text = None, quant: Text = None, metric: Metric = None, efficiency: Efficiency = "ideal", sets: Sets = None,
    method: Annotated[str, typer.Option(help="evolution, exhaustive or gradient.")] = "evolution",
    goal: Annotated[str, typer.Option(help="A column of the report, such as time_s or tokens_per_j.")] = "time_s",
    limit: Annotated[list[str] | None, typer.Option(metavar="COLUMN=MOST", help="Such as device_usd=20000.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same answer.")] = 0,
    json_: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """The best split of area, power and edge among cores, caches, memory and links, jointly with the mapping."""
    from rooflm.cli.render import columns, count, seconds
    from rooflm.technology.split import METHODS, problem

    if method not in METHODS:
        raise RooflmError(f"method is {method!r}, but it must be one of {', '.join(METHODS)}")
    task = _task(phase, model, {"gpus": gpus, "tp": tp, "pp": pp, "dp": dp, "batch": batch, "seq": seq,
                                "prompt": prompt, "output": output, "recompute": recompute, "dtype": dtype,
                                "quant": quant, "metric": metric, "efficiency": efficiency})  # fmt: skip
    p = problem(task, _space(die, node, dram, network, sets), goal, _limits(limit))
    found = METHODS[method](p, seed)
    unit = seconds if goal == "time_s" else count
    rows: list[Sequence[str]] = [("component", "area", "power", "edge")]
    for name, share in found.shares["area"].items():
        edge = found.shares["edge"].get(name)
        power = found.shares["watts"][name]
        rows.append((name, f"{100 * share:.1f} %", f"{100 * power:.1f} %", f"{100 * edge:.1f} %" if edge else ""))
    text = [f"{model}, {goal}: {unit(found.value)}, from {unit(found.start)} ({method}, {found.evaluations} designs)",
            NOTE, "", *columns(rows, "lrrr"), "", *_rows(found.report, ()), "", *_made(found.report)]  # fmt: skip
    head = {"model": model, "goal": goal, "value": found.value, "start": found.start, "evaluations": found.evaluations,
            "method": method, "seed": seed, "shares": found.shares}  # fmt: skip
    report = {k: v for k, v in found.report.items() if v.dtype != object}
    _emit(report, head, json_, out, text)


@app.command("front")
def front_command(
    model: Model, phase: Phase = "train", die: Die = "a100", node: Nodes = None, dram: Drams = None,
    network: Networks = "nvlink3+hdr", gpus: Gpus = 1, tp: Degree = None, pp: Degree = None, dp: Degree = None,
    batch: Batch = None, seq: Tokens = 2048, prompt: Tokens = 512, output: Tokens = 128, recompute: Text = None,
    dtype: Text = None, quant: Text = None, metric: Metric = None, efficiency: Efficiency = "ideal", sets: Sets = None,
    goals: Annotated[str, typer.Option(metavar="COLUMNS", help="Two or more columns.")] = "time_s,capital_usd",
    limit: Annotated[list[str] | None, typer.Option(metavar="COLUMN=MOST", help="Such as device_usd=20000.")] = None,
    split: Annotated[bool, typer.Option("--split", help="Seek the shares of area, power and edge too.")] = False,
    seed: Annotated[int, typer.Option(help="The same seed gives the same answer.")] = 0,
    generations: Annotated[int, typer.Option(min=1)] = 60, population: Annotated[int, typer.Option(min=4)] = 64,
    json_: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """Designs that no other beats in any of several goals (NSGA-II), in spaces too large for a grid."""
    from rooflm.cli.render import WIDTH, count
    from rooflm.technology.front import search

    task = _task(phase, model, {"gpus": gpus, "tp": tp, "pp": pp, "dp": dp, "batch": batch, "seq": seq,
                                "prompt": prompt, "output": output, "recompute": recompute, "dtype": dtype,
                                "quant": quant, "metric": metric, "efficiency": efficiency})  # fmt: skip
    space = _space(die, node, dram, network, sets)
    found = search(task, space, _names(goals), limits=_limits(limit), split=split, seed=seed, generations=generations,
                   population=population)  # fmt: skip
    t, most = found.report, 40
    shown = [a for a in space.names if len(set(map(str, t[a].tolist()))) > 1]
    heads = [a.removeprefix("technology.").removeprefix("budget.") for a in shown]
    rows: list[Sequence[str]] = [(*heads, "bound", *found.goals)]
    for i in range(min(len(t["time_s"]), most)):
        cells = [f"{t[a][i]:.4g}" if isinstance(t[a][i], float) else str(t[a][i]) for a in shown]
        rows.append((*cells, str(t["bottleneck"][i]), *(f"{t[g][i]:.4g}" for g in found.goals)))
    lines = _fitting(rows, "l" * (len(shown) + 1) + "r" * len(found.goals), ("bound",))
    more = [f"... {len(t['time_s']) - most} more: write them with --out"] if len(t["time_s"]) > most else []
    spread = f"{count(len(t['time_s']))} designs of {found.evaluations} tried, none beaten in {', '.join(found.goals)}"
    title = f"{model}, {task.metric.replace('_', ' ')}, die {die}, {gpus} devices"
    head = {"model": model, "phase": phase, "metric": task.metric, "goals": list(found.goals), "seed": seed,
            "evaluations": found.evaluations, "space": space.size}  # fmt: skip
    text = [title, *textwrap.wrap(spread, WIDTH), NOTE, "", *lines, *more]
    _emit(t, head, json_, out, text)


@app.command("gemms")
def gemms_command(
    model: Model, gpu: Annotated[str, typer.Option(help="GPUs, a comma list.")] = "a100-sxm-80gb,h100-sxm-80gb",
    prompt: Tokens = 200, batch: Tokens = 1, efficiency: Efficiency = "ideal", json_: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """What bounds each product of a prefill layer, GPU by GPU."""
    from rooflm.cli.render import count, seconds
    from rooflm.technology.reports import gemm_bounds

    t = gemm_bounds(model, _names(gpu), prompt, batch, efficiency)
    rows: list[Sequence[str]] = [("GPU", "product", "m", "n", "k", "time", "bound by", "FLOP/B", "GPU's")]
    rows += [(str(t["gpu"][i]), str(t["product"][i]), *(f"{t[k][i]:.0f}" for k in "mnk"), seconds(t["time_s"][i]),
              str(t["bound"][i]), count(t["flop_per_byte"][i]), count(t["balance"][i]))
             for i in range(len(t["gpu"]))]  # fmt: skip
    lines = _fitting(rows, "llrrrrlrr", ("GPU's", "FLOP/B"))
    _emit(t, {"model": model, "prompt": prompt, "batch": batch}, json_, out, lines)


@app.command("dies")
def dies_command(
    left_out: Annotated[bool, typer.Option("--left-out", help="Each with the mean shares of the others.")] = False,
    json_: Json = False, out: Out = None,
) -> None:  # fmt: skip
    """Known GPUs as the engine rebuilds them from node and die, beside their catalogue numbers."""
    from rooflm.cli.render import WIDTH, columns
    from rooflm.technology.explore import DIES
    from rooflm.technology.reports import reconstruction
    from rooflm.units import text

    t = reconstruction(DIES, left_out)
    rows: list[Sequence[str]] = [("die", "quantity", "engine", "catalogue", "error")]
    notes = [f"{t['die'][i]}, {t['quantity'][i]}: {t['reason'][i]}" for i in range(len(t["die"])) if t["reason"][i]]
    rows += [(str(t["die"][i]), str(t["quantity"][i]), text(t["engine"][i], str(t["unit"][i])),
              text(t["catalogue"][i], str(t["unit"][i])), f"{100 * t['error'][i]:+.0f} %")
             for i in range(len(t["die"]))]  # fmt: skip
    lines = [line for note in notes for line in textwrap.wrap(note, WIDTH, subsequent_indent="  ")]
    _emit(t, {}, json_, out, [*columns(rows, "llrrr", indent=0), "", *lines])
