"""`rooflm infer`: one prediction as a readable answer, or a grid as a table; --json, --out and --ops."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rooflm.cli import options, render, streams
from rooflm.cli.deliver import check_files, deliver_grid, deliver_point, deliver_sensitivity
from rooflm.cli.values import assignments, efficiency_text, numbers, texts
from rooflm.errors import RooflmError


def infer(
    model: options.Model,
    gpu: options.Gpu = None,
    gpus: Annotated[str | None, typer.Option(help="How many GPUs; split into tp, then pp, unless given.")] = None,
    cluster: options.Cluster = None,
    tp: options.Tp = None,
    pp: options.Pp = None,
    dp: Annotated[str | None, typer.Option(help="Data parallel degree (replicas, or attention DP with --ep).")] = None,
    ep: Annotated[str | None, typer.Option(help="Expert parallel degree (of tp x dp).")] = None,
    cp: options.Cp = None,
    batch: Annotated[str, typer.Option(help="Sequences at a time, in all.")] = "1",
    prompt: options.Prompt = "512",
    output: options.Output = "128",
    cached: Annotated[str, typer.Option(help="Prompt tokens already in the cache (prefix caching).")] = "0",
    logits: Annotated[str, typer.Option(help="Logits of the 'last' prompt token or of 'all'.")] = "last",
    quant: Annotated[str | None, typer.Option(help="Scheme, such as w16a16kv16, w4a16kv8, fp8, nvfp4.")] = None,
    engine: Annotated[str | None, typer.Option(help="Engine row (default: vllm; ideal without overheads).")] = None,
    efficiency: options.Efficiency = None,
    sets: options.Sets = None,
    ops: Annotated[bool, typer.Option("--ops", help="Add the table of operations.")] = False,
    sensitivity: options.Sensitivity = False,
    json_: options.Json = False,
    out: options.Out = None,
    plot: options.Plot = None,
    plot_kind: Annotated[str | None, typer.Option(help="lines, heatmap, parts, memory, pareto or roofline.")] = None,
    plot_value: Annotated[str | None, typer.Option(help="Which output to draw, such as busy or tpot_s.")] = None,
    zips: options.Zips = None,
    outputs: options.Outputs = None,
    on: options.On = "local",
) -> None:
    """Predict inference: time, memory and fit, what bounds it, communication, energy and cost."""
    from rooflm.api import infer_grid, infer_point, infer_request, infer_stream

    arguments: dict[str, Any] = {
        "model": texts(model), "gpu": texts(gpu), "gpus": numbers(gpus, "gpus"), "cluster": texts(cluster),
        "tp": numbers(tp, "tp"), "pp": numbers(pp, "pp"), "dp": numbers(dp, "dp"), "ep": numbers(ep, "ep"),
        "cp": numbers(cp, "cp"), "batch": numbers(batch, "batch"), "prompt": numbers(prompt, "prompt"),
        "output": numbers(output, "output"), "cached": numbers(cached, "cached"), "logits": texts(logits),
        "quant": texts(quant), "engine": texts(engine), "efficiency": efficiency_text(efficiency),
        "sets": assignments(sets), "on": on,
    }  # fmt: skip
    if zips:
        arguments["zip"] = [tuple(name.strip() for name in group.split(",")) for group in zips]
    if outputs:
        arguments["outputs"] = [name.strip() for name in outputs.split(",")]
    axes, _, _ = infer_request(arguments)
    check_files(out, plot, plot_kind, bool(axes))
    if out and streams.wanted(out, axes):
        print(streams.run(infer_stream, arguments, out, axes, json_))
        return
    grid = infer_grid(arguments)
    if grid is None:
        estimate = infer_point(arguments)
        values = render.infer_json(estimate, ops)
        text = "" if json_ else render.infer_text(estimate, ops)
        if sensitivity:
            from rooflm.sweep.sensitivity import of_scenario

            text += deliver_sensitivity(of_scenario(estimate.scenario), values)
        deliver_point(estimate, values, text, json_=json_, out=out, plot=plot, kind=plot_kind)
        return
    if sensitivity:
        raise RooflmError("--sensitivity is for a single prediction: leave out the lists")
    if ops:
        raise RooflmError("--ops is for a single prediction: leave out the lists")
    deliver_grid(grid, json_=json_, out=out, plot=plot, kind=plot_kind, value=plot_value)
