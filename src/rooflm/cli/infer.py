"""`rooflm infer`: one prediction as a readable answer, or a grid as a table; --json, --out and --ops."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rooflm.cli import render, streams
from rooflm.cli.deliver import check_files, deliver_grid, deliver_point, deliver_sensitivity
from rooflm.cli.values import assignments, efficiency_text, numbers, texts
from rooflm.errors import RooflmError


def infer(
    model: Annotated[
        str, typer.Argument(help="Name, Hugging Face id, config.json or .toml; a comma list makes an axis.")
    ],
    gpu: Annotated[str | None, typer.Option(help="GPU name or .toml (see `rooflm list gpus`).")] = None,
    gpus: Annotated[str | None, typer.Option(help="How many GPUs; split into tp, then pp, unless given.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Cluster (default: the GPU's own).")] = None,
    tp: Annotated[str | None, typer.Option(help="Tensor parallel degree.")] = None,
    pp: Annotated[str | None, typer.Option(help="Pipeline parallel degree.")] = None,
    dp: Annotated[str | None, typer.Option(help="Data parallel degree (replicas, or attention DP with --ep).")] = None,
    ep: Annotated[str | None, typer.Option(help="Expert parallel degree (of tp x dp).")] = None,
    cp: Annotated[str | None, typer.Option(help="Context parallel degree.")] = None,
    batch: Annotated[str, typer.Option(help="Sequences at a time, in all.")] = "1",
    prompt: Annotated[str, typer.Option(help="Prompt tokens a sequence.")] = "512",
    output: Annotated[str, typer.Option(help="Output tokens a sequence.")] = "128",
    cached: Annotated[str, typer.Option(help="Prompt tokens already in the cache (prefix caching).")] = "0",
    logits: Annotated[str, typer.Option(help="Logits of the 'last' prompt token or of 'all'.")] = "last",
    quant: Annotated[str | None, typer.Option(help="Scheme, such as w16a16kv16, w4a16kv8, fp8, nvfp4.")] = None,
    engine: Annotated[str | None, typer.Option(help="Engine row (default: vllm; ideal without overheads).")] = None,
    efficiency: Annotated[str | None, typer.Option(help="calibrated, ideal, or factors such as 0.7,0.9.")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Any other input by its path.")
    ] = None,
    ops: Annotated[bool, typer.Option("--ops", help="Add the table of operations.")] = False,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Add what one per cent more of each rate and overhead gives.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object in SI units.")] = False,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Write csv, parquet, nc or json.")] = None,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw a png, svg or html.")] = None,
    plot_kind: Annotated[str | None, typer.Option(help="lines, heatmap, parts, memory, pareto or roofline.")] = None,
    plot_value: Annotated[str | None, typer.Option(help="Which output to draw, such as busy or tpot_s.")] = None,
    zips: Annotated[
        list[str] | None, typer.Option("--zip", metavar="A,B", help="Lists that go in step: pairs, no products.")
    ] = None,
    outputs: Annotated[str | None, typer.Option(help="Work out these outputs only (keys of --json).")] = None,
    on: Annotated[str, typer.Option(help="Where blocks of a grid run: local, ray or ray://host:port.")] = "local",
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
            from rooflm.sensitivity import of_scenario

            text += deliver_sensitivity(of_scenario(estimate.scenario), values)
        deliver_point(estimate, values, text, json_=json_, out=out, plot=plot, kind=plot_kind)
        return
    if sensitivity:
        raise RooflmError("--sensitivity is for a single prediction: leave out the lists")
    if ops:
        raise RooflmError("--ops is for a single prediction: leave out the lists")
    deliver_grid(grid, json_=json_, out=out, plot=plot, kind=plot_kind, value=plot_value)
