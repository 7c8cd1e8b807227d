"""`rooflm search infer` and `rooflm search train`: the best legal point of a space, and why no better one is legal."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from rooflm.cli import options, render
from rooflm.cli.found import found_shown
from rooflm.cli.search_infer import infer, seconds
from rooflm.cli.values import amounts, assignments, efficiency_text, numbers, texts
from rooflm.units import gib, parse
from rooflm.units import text as units_text

app = typer.Typer(
    name="search",
    no_args_is_help=True,
    help="The best split, batch and scheme under constraints.",
    rich_markup_mode=None,
)


app.command("infer")(infer)


@app.command("train")
def train(
    model: options.OneModel,
    gpus: Annotated[str | None, typer.Option(help="How many GPUs, or a list.")] = None,
    gpus_max: Annotated[int | None, typer.Option(help="Instead: 1, 2, 4, ... GPUs up to this many.")] = None,
    batch: Annotated[int | None, typer.Option(help="Sequences a step in all (default: 4 Mi tokens).")] = None,
    gpu: options.SearchedGpu = "a100-sxm-80gb",
    cluster: options.Cluster = None,
    seq: Annotated[int, typer.Option(help="Tokens a sequence.")] = 2048,
    tokens: Annotated[str, typer.Option(help="Tokens of the whole run, such as 15T.")] = "0",
    step_time: Annotated[str | None, typer.Option(help="Longest step, such as 10s.")] = None,
    days: Annotated[float | None, typer.Option(help="Longest run, in days.")] = None,
    gpu_hours: Annotated[str | None, typer.Option(help="Most GPU-hours of the run, such as 2M.")] = None,
    cost: Annotated[str | None, typer.Option(help="Most USD of the run, such as 5M.")] = None,
    energy: Annotated[str | None, typer.Option(help="Most energy of the run, such as 20GWh or 70TJ.")] = None,
    memory_margin: Annotated[float | None, typer.Option(help="Share of memory to keep free (default: 0.05).")] = None,
    objective: Annotated[str, typer.Option(help="time, throughput, mfu, cost, gpu-hours, energy or memory.")] = "time",
    tp: options.SearchedTp = None,
    pp: options.SearchedPp = None,
    vp: Annotated[str | None, typer.Option(help="Only these numbers of virtual stages.")] = None,
    cp: Annotated[str | None, typer.Option(help="Only these context parallel degrees.")] = None,
    ep: options.SearchedEp = None,
    micro_batch: Annotated[str | None, typer.Option(help="Only these micro-batches.")] = None,
    recompute: Annotated[str | None, typer.Option(help="Only these of none, selective, full.")] = None,
    zero: Annotated[str | None, typer.Option(help="Only these ZeRO stages.")] = None,
    schedule: Annotated[str | None, typer.Option(help="1f1b, interleaved, gpipe, zb-h1, or a comma list.")] = None,
    dtype: Annotated[str | None, typer.Option(help="bf16, fp16, fp8 or fp32.")] = None,
    engine: Annotated[str | None, typer.Option(help="Training engine, or a comma list.")] = None,
    efficiency: options.Efficiency = None,
    sets: options.SearchedSets = None,
    on: options.SearchedOn = "local",
    json_: options.Json = False,
) -> None:
    """Search every legal way to split a training step for the best one."""
    from rooflm.search.training import search_train

    start = time.perf_counter()
    asked: dict[str, Any] = {
        "cluster": cluster,
        "dtype": texts(dtype),
        "engine": texts(engine),
        "efficiency": efficiency_text(efficiency),
    }
    found = search_train(
        model,
        gpu=texts(gpu),
        gpus=numbers(gpus, "gpus"),
        gpus_max=gpus_max,
        batch=batch,
        seq=seq,
        tokens=amounts(tokens, "tokens"),
        objective=objective,
        **({} if memory_margin is None else {"memory_margin": memory_margin}),
        step_time=seconds(step_time, "--step-time"),
        days=days,
        gpu_hours=amounts(gpu_hours, "gpu_hours"),
        cost=amounts(cost, "cost"),
        energy=_joules(energy),
        tp=numbers(tp, "tp"),
        pp=numbers(pp, "pp"),
        vp=numbers(vp, "vp"),
        cp=numbers(cp, "cp"),
        ep=numbers(ep, "ep"),
        micro_batch=numbers(micro_batch, "micro_batch"),
        recompute=texts(recompute),
        zero=numbers(zero, "zero"),
        schedule=texts(schedule),
        on=on,
        sets=assignments(sets),
        **{k: v for k, v in asked.items() if v is not None},
    )
    given = {"gpu": gpu, "cluster": cluster, "seq": seq, "dtype": dtype, "engine": engine}
    columns = RUN if amounts(tokens, "tokens") else TRAIN
    command = _trainer(model, found, given)
    print(found_shown(found, columns, command, time.perf_counter() - start, json_))


def _joules(value: str | None) -> float | None:
    """Joules of "20GWh" or "70TJ".

    >>> _joules("2kWh"), _joules("1GJ")
    (7200000.0, 1000000000.0)
    """
    if value is None:
        return None
    if value.strip().endswith("Wh"):
        return 3600 * parse(value.strip().removesuffix("h"), "w", "--energy")
    return parse(value, "j", "--energy")


def _trainer(model: str, found: Any, given: dict[str, Any]) -> str:
    """The command that runs the best answer."""
    from rooflm.catalogue.engines import load_engine, usual_engine
    from rooflm.catalogue.models import load_model
    from rooflm.scenario.build_inference import find_cluster, node_size
    from rooflm.search.train_command import train_command

    if found.best is None:
        return ""
    chosen = found.best.inputs
    one = {k: chosen.get(k) or given[k] for k in ("gpu", "engine", "dtype", "cluster")}
    node = node_size(find_cluster(one["gpu"], one["cluster"])[0])
    fixed = {**one, "seq": given["seq"], "node": node, "gpus": found.best.outputs["gpus"], "batch": chosen["batch"]}
    return train_command(load_model(model), load_engine(one["engine"] or usual_engine("training")), chosen, fixed)


TRAIN = (
    ("step_time_s", "step", render.seconds),
    ("mfu", "MFU", render.percent),
    ("tokens_per_s_per_gpu", "tok/s/GPU", render.count),
    ("memory_bytes", "memory", lambda v: gib(float(v))),
)
"""The same of training."""
RUN = (
    *TRAIN[:2],
    ("days", "days", render.count),
    ("cost_usd", "USD", lambda v: units_text(float(v), "")),
    ("gpu_hours", "GPU-h", lambda v: units_text(float(v), "")),
    ("energy_j", "energy", lambda v: f"{float(v) / 3.6e12:.3g} GWh"),
    TRAIN[3],
)
"""And of a run of so many tokens."""
