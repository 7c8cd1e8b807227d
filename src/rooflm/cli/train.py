"""`rooflm train`: one training prediction as a readable answer, or a grid as a table; --json, --out and --plot."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rooflm.cli import options, streams
from rooflm.cli.deliver import check_files, deliver_grid, deliver_point, deliver_sensitivity
from rooflm.cli.values import amounts, assignments, efficiency_text, numbers, texts
from rooflm.errors import RooflmError


def train(
    model: options.Model,
    gpu: options.Gpu = None,
    gpus: Annotated[str | None, typer.Option(help="How many GPUs; what tp, pp, cp leave is data parallel.")] = None,
    cluster: options.Cluster = None,
    tp: options.Tp = None,
    pp: options.Pp = None,
    vp: Annotated[str, typer.Option(help="Virtual pipeline stages a GPU (interleaved).")] = "1",
    dp: Annotated[str | None, typer.Option(help="Data parallel degree.")] = None,
    cp: options.Cp = None,
    ep: Annotated[str | None, typer.Option(help="Expert parallel degree.")] = None,
    sp: Annotated[
        bool | None, typer.Option("--sp/--no-sp", help="Sequence parallelism (default: the engine's).")
    ] = None,
    batch: Annotated[str | None, typer.Option(help="Sequences a step, in all.")] = None,
    seq: Annotated[str, typer.Option(help="Tokens a sequence.")] = "2048",
    micro_batch: Annotated[str, typer.Option(help="Sequences a micro-batch.")] = "1",
    recompute: Annotated[str | None, typer.Option(help="none, selective, ops, full or block.")] = None,
    recompute_layers: Annotated[str, typer.Option(help="Layers recomputed with full or block (0: all).")] = "0",
    recompute_modules: Annotated[
        str | None, typer.Option(help="Modules recomputed too: layernorm, mla_up_proj, moe_act, mlp, moe, core_attn.")
    ] = None,
    zero: Annotated[str | None, typer.Option(help="ZeRO stage 0 to 3, or fsdp.")] = None,
    schedule: Annotated[str | None, typer.Option(help="gpipe, 1f1b, interleaved, zb-h1, zb-h2 or dualpipe.")] = None,
    order: Annotated[str | None, typer.Option(help="Groups by nearness, such as tp-cp-dp-pp (default).")] = None,
    tokens: Annotated[str, typer.Option(help="Tokens of the whole run, such as 300B.")] = "0",
    dtype: Annotated[str, typer.Option(help="bf16, fp16, fp32, fp8, fp8-rowwise, fp8-block, mxfp8 or nvfp4.")] = "bf16",
    optimizer: Annotated[
        str, typer.Option(help="adam, adam-bf16, adam8bit, adafactor, muon, sgd or sgd-momentum.")
    ] = "adam",
    lora_rank: Annotated[str, typer.Option(help="Train adapters of this rank, everything else frozen.")] = "0",
    lora_modules: Annotated[str | None, typer.Option(help="Products with adapters, such as qkv,out.")] = None,
    base_bits: Annotated[str, typer.Option(help="Stored bits of a frozen weight (4: QLoRA).")] = "16",
    engine: Annotated[str | None, typer.Option(help="Engine row (default: megatron).")] = None,
    efficiency: Annotated[str | None, typer.Option(help="calibrated, ideal, or factors such as 0.5,0.9.")] = None,
    sets: options.Sets = None,
    sensitivity: options.Sensitivity = False,
    json_: options.Json = False,
    out: options.Out = None,
    plot: options.Plot = None,
    plot_kind: Annotated[
        str | None, typer.Option(help="parts, memory or roofline; of a grid lines, heatmap, parts or memory.")
    ] = None,
    plot_value: Annotated[str | None, typer.Option(help="Which output to draw, such as mfu.")] = None,
    zips: options.Zips = None,
    outputs: options.Outputs = None,
    on: options.On = "local",
) -> None:
    """Predict training: step time, memory and fit, communication, MFU, GPU-hours, energy and cost."""
    from rooflm.api import grid_request, train_grid, train_point, train_stream
    from rooflm.cli.render_training import train_json, train_text
    from rooflm.estimate.training_results import TRAIN_KEYS

    arguments: dict[str, Any] = {
        "model": texts(model), "gpu": texts(gpu), "gpus": numbers(gpus, "gpus"), "cluster": texts(cluster),
        "tp": numbers(tp, "tp"), "pp": numbers(pp, "pp"), "vp": numbers(vp, "vp"), "dp": numbers(dp, "dp"),
        "cp": numbers(cp, "cp"), "ep": numbers(ep, "ep"), "sp": sp, "batch": numbers(batch, "batch"),
        "seq": numbers(seq, "seq"), "micro_batch": numbers(micro_batch, "micro_batch"), "recompute": texts(recompute),
        "recompute_layers": numbers(recompute_layers, "recompute_layers"), "recompute_modules": recompute_modules,
        "zero": zero_text(zero),
        "schedule": texts(schedule), "order": order, "tokens": amounts(tokens, "tokens"), "dtype": texts(dtype),
        "optimizer": texts(optimizer), "lora_rank": numbers(lora_rank, "lora_rank"), "lora_modules": lora_modules,
        "base_bits": numbers(base_bits, "base_bits"), "engine": texts(engine),
        "efficiency": efficiency_text(efficiency), "sets": assignments(sets), "on": on,
    }  # fmt: skip
    if zips:
        arguments["zip"] = [tuple(name.strip() for name in group.split(",")) for group in zips]
    if outputs:
        arguments["outputs"] = [name.strip() for name in outputs.split(",")]
    axes, _, _ = grid_request(arguments, TRAIN_KEYS)
    check_files(out, plot, plot_kind, bool(axes))
    if out and streams.wanted(out, axes):
        print(streams.run(train_stream, arguments, out, axes, json_))
        return
    grid = train_grid(arguments)
    if grid is not None:
        if sensitivity:
            raise RooflmError("--sensitivity is for a single prediction: leave out the lists")
        deliver_grid(grid, json_=json_, out=out, plot=plot, kind=plot_kind, value=plot_value)
        return
    estimate = train_point(arguments)
    text = "" if json_ else train_text(estimate)
    values = train_json(estimate)
    if sensitivity:
        from rooflm.sweep.sensitivity import of_training

        text += deliver_sensitivity(of_training(estimate.scenario), values)
    deliver_point(estimate, values, text, json_=json_, out=out, plot=plot, kind=plot_kind)


def zero_text(text: str | None) -> Any:
    """ZeRO stages as numbers, `fsdp` and the like as names."""
    if text is None or not all(piece.strip().isdigit() for piece in text.split(",")):
        return texts(text)
    return numbers(text, "zero")
