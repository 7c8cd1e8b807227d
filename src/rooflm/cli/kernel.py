"""`rooflm predict`: one matrix product, one attention, one collective."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from rooflm.asked.answers.said import BOUND
from rooflm.asked.written import amounts, numbers
from rooflm.cli.console import Voice, dumps, save, show
from rooflm.cli.examples import exemplified
from rooflm.cli.options import group
from rooflm.errors import RooflmError
from rooflm.shown.blocks import BLANK, Block, Say, Table, listed
from rooflm.shown.numbers import percent, seconds, text

if TYPE_CHECKING:
    from rooflm.asked.kernel import Kernel
    from rooflm.plots.picture import Picture

app = group("predict", "Predict one kernel or one collective.")

Gpu = Annotated[str, typer.Option(help="GPU name or .toml.")]
Size = Annotated[str, typer.Option(help="A number, a list or a range.")]
Quant = Annotated[str | None, typer.Option(help="Scheme, such as bf16, w8a8, w4a16, fp8. Default: bf16.")]
EngineName = Annotated[str | None, typer.Option(help="Engine whose kernels run.")]
Efficiency = Annotated[str | None, typer.Option(help="calibrated, ideal, or factors such as 0.7,0.9.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON in SI units: an object, or a list of them.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="The answer alone: no assumptions or warnings.")]
Plot = Annotated[str | None, typer.Option(metavar="FILE", help="Draw the time over lists: png, svg, html, json.")]


def predict_all(
    call: Callable[..., Kernel], sizes: dict[str, str], as_json: bool, plot: tuple[str | None, str], quiet: bool,
    read: Any = numbers,
) -> None:  # fmt: skip
    """Predict every combination of the sizes; a single one is shown in detail, several as a table. plot: the file of
    the picture (None: none) and its title."""
    Voice.quiet = Voice.quiet or quiet
    lists = {k: (v if isinstance(v, list) else [v]) for k, v in ((k, read(t, k)) for k, t in sizes.items())}
    path, title = plot
    if path:
        from rooflm.plots.picture import check_picture

        check_picture(path)
        if all(len(v) == 1 for v in lists.values()):
            raise RooflmError("--plot draws the time over a list of sizes: give one, such as 1,2,4 or 1..4096*2")
    points = [dict(zip(lists, p, strict=True)) for p in itertools.product(*lists.values())]
    found = [call(**p) for p in points]
    save(path, lambda at: times_picture(lists, points, found, title).save(at))
    if as_json:
        print(dumps(found[0].to_dict() if len(found) == 1 else {"kernels": [f.to_dict() for f in found]}))
        return
    show(single_blocks(found[0]) if len(found) == 1 else table_blocks(points, found))


def times_picture(
    lists: dict[str, list[float]], points: list[dict[str, float]], found: list[Kernel], title: str
) -> Picture:
    """Time over the longest list of sizes, a curve for each combination of the others; of a single curve, what the
    datasheet's rates would take beside it."""
    from rooflm.plots.lines import Curve, lines
    from rooflm.plots.scale import Scale, Side

    across = max(lists, key=lambda k: len(lists[k]))
    rest = [k for k in lists if k != across and len(lists[k]) > 1]
    order = sorted(range(len(points)), key=lambda i: points[i][across])
    taken: dict[str, list[tuple[float, float]]] = {}
    for i in order:
        name = ", ".join(f"{k} {written(k, points[i][k])}" for k in rest) or "predicted"
        taken.setdefault(name, []).append((points[i][across], found[i].time_s))
    if not rest:
        taken["at the datasheet's rates"] = [(points[i][across], found[i].roofline_s) for i in order]
    scale = Scale("time (µs)", log=True)
    curves = [Curve(name, np.array([1e6 * t for _, t in pairs])) for name, pairs in taken.items()]
    about = [f"{found[0].device}, {found[0].engine}"]
    about += [f"{k} {written(k, v[0])}" for k, v in lists.items() if len(v) == 1]
    unit = " (B)" if across == "size" else ""
    x = Side(f"{across}{unit}", tuple(sorted(lists[across])))
    return lines(title, x, scale, curves, ", ".join(about))


def written(name: str, value: float) -> str:
    """A size for people."""
    return text(value, "B") if name == "size" else f"{value:g}"


def single_blocks(found: Kernel) -> list[Block]:
    """A single kernel for people."""
    rows = [("time", seconds(found.time_s)), ("at the datasheet's rates", seconds(found.roofline_s)),
            ("bound by", BOUND.get(found.bound, found.bound))]  # fmt: skip
    if found.bound == "network":
        rows += [("of these rates", percent(found.memory)), ("sent by a device", text(found.bytes, "B"))]
    else:
        rows += [("FLOP", text(found.flops, "")), ("bytes", text(found.bytes, "B")),
                 ("of the peak FLOP/s", percent(found.compute)),
                 ("of the memory's B/s", percent(found.memory))]  # fmt: skip
    title = Say(f"{found.name} on {found.device}, {found.engine}", "title")
    return [title, Table(rows, "lr"), *told(found)]


def told(found: Kernel) -> list[Block]:
    """What was assumed, unless the answer alone is asked for."""
    return [] if Voice.quiet else [BLANK, *listed("assumed", found.assumed)]


def table_blocks(points: list[dict[str, float]], found: list[Kernel]) -> list[Block]:
    """Several kernels as a table."""
    names = list(points[0])
    head, shares = ("of FLOP/s", "of B/s"), [(percent(f.compute), percent(f.memory)) for f in found]
    if found[0].bound == "network":
        head, shares = ("of roofline", "sent"), [(percent(f.memory), text(f.bytes, "B")) for f in found]
    rows = [(*names, "time", "roofline", "bound", *head)]
    sizes = [[written(n, v) for n, v in p.items()] for p in points]
    rows += [(*size, seconds(f.time_s), seconds(f.roofline_s), BOUND.get(f.bound, f.bound), *share)
             for size, f, share in zip(sizes, found, shares, strict=True)]  # fmt: skip
    made = Table(rows, "r" * (len(names) + 2) + "lrr", head=True, indent=0)
    return [Say(f"{found[0].device}, {found[0].engine}", "title"), made, *told(found[0])]


@app.command("gemm", cls=exemplified("predict gemm"))
def gemm_command(
    m: Size, n: Size, k: Size, gpu: Gpu = "h100-sxm-80gb", quant: Quant = None, engine: EngineName = None,
    efficiency: Efficiency = None, json_: Json = False, plot: Plot = None, quiet: Quiet = False,
) -> None:  # fmt: skip
    """A matrix product of m rows, k deep, n wide; m = 1 is the GEMV of decoding."""
    from rooflm.asked.kernel import predict_gemm

    def call(**sizes: float) -> Kernel:
        return predict_gemm(**sizes, gpu=gpu, quant=quant, engine=engine, efficiency=efficiency)

    predict_all(call, {"m": m, "n": n, "k": k}, json_, (plot, "Time of a product"), quiet)


@app.command("attention", cls=exemplified("predict attention"))
def attention_command(
    phase: Annotated[str, typer.Argument(help="prefill or decode.")],
    batch: Size = "1", tokens: Annotated[str, typer.Option(help="Of the prompt, or of the context.")] = "512",
    heads: int = 32, kv_heads: Annotated[int | None, typer.Option(help="Default: as many as heads.")] = None,
    head_dim: int = 128, gpu: Gpu = "h100-sxm-80gb", quant: Quant = None, engine: EngineName = None,
    efficiency: Efficiency = None, json_: Json = False, plot: Plot = None, quiet: Quiet = False,
) -> None:  # fmt: skip
    """The core of one layer's attention: scores, softmax, weighted values."""
    from rooflm.asked.kernel import predict_attention

    def call(**sizes: float) -> Kernel:
        return predict_attention(phase, **sizes, heads=heads, kv_heads=kv_heads, head_dim=head_dim, gpu=gpu,
                                 quant=quant, engine=engine, efficiency=efficiency)  # fmt: skip

    def read(text: str, field: str) -> Any:
        """A length in powers of 1024, as a prompt's is; else a number."""
        return numbers(text, "prompt" if field == "tokens" else field)

    predict_all(call, {"batch": batch, "tokens": tokens}, json_, (plot, f"Time of attention, {phase}"), quiet, read)


@app.command("collective", cls=exemplified("predict collective"))
def collective_command(
    operation: Annotated[str, typer.Argument(help="all_reduce, reduce_scatter, all_gather, all_to_all, ... or p2p.")],
    size: Annotated[str, typer.Option(help="Bytes of the whole message, such as 1e6, 64M or 1 GiB.")],
    ranks: Size, gpu: Gpu = "h100-sxm-80gb",
    cluster: Annotated[str | None, typer.Option(help="Default: the GPU's own.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="ring or tree, by its formula at full rate.")] = None,
    engine: EngineName = None, efficiency: Efficiency = None, json_: Json = False, plot: Plot = None,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """A collective of neighbouring devices, as its library takes, or a ring or tree by formula."""
    from rooflm.asked.kernel import predict_collective

    def call(**sizes: float) -> Kernel:
        return predict_collective(operation, **sizes, gpu=gpu, cluster=cluster, algorithm=algorithm,
                                  engine=engine, efficiency=efficiency)  # fmt: skip

    title = f"Time of {operation.replace('_', '-')}"
    predict_all(call, {"size": size, "ranks": ranks}, json_, (plot, title), quiet, amounts)
