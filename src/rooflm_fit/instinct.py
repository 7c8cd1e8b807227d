"""Fit kernels on AMD Instinct: `python -m rooflm_fit.instinct --data DIR --out DIR`.

Products and experts: DATA is the folder aiter/configs of ROCm/aiter (MIT): csv files (as of commit
e404860 of 2026-08-22; no part of the measured tables that `scripts/fit` takes) whose rows say, for a shape, the
fastest kernel that its tuner found and its time in us (`us`), on cards of 304 CUs (MI300X, MI325X) and 256 (MI350X,
MI355X), and beside it those files of older commits where later ones have dropped rows (`DROPPED`). vLLM and SGLang run
these kernels on such cards. Collectives: `REDUCED`, as printed in pull requests. OUT gets gemm-instinct.toml,
moe-instinct.toml and collective-instinct.toml. Efficiencies refer to the rates that data/calibration/devices.toml says
the family reaches of its datasheet, by which all its kernels are scaled.

An expert's time is that of its two products alone: routing, sorting and quantising launch kernels of their own, which
`LAUNCHES` adds. The tuner routes tokens at random, evenly over the experts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rooflm.catalogue.hardware import Device
from rooflm.kernels.collectives import CollectiveConstants, nearest
from rooflm.kernels.constants import ANY, FitRow, lookup
from rooflm.kernels.derating import derating
from rooflm.kernels.gemm import GemmConstants, gemm_time
from rooflm.kernels.moe import MoEConstants, Routing, grouped_gemm_time, moe_time, routed
from rooflm.kernels.rates import Card
from rooflm.readers.devices import load_cluster, load_device
from rooflm_fit import collectives, gemm, moe
from rooflm_fit.common import Array, Param, error, fit, fit_row, fold_by_fold, folders, say, write_fits

CARDS = {304: "mi300x", 256: "mi355x"}
"""Compute units of a table's rows -> the card they were measured on."""
LAUNCHES = 8e-6
"""s: sorting and quantising (aiter pull request 2748: 33.3 us with them where the table has 29.2), routing as much."""
TORCH = "torch"
"""Whose kernels PyTorch's engines have (the field of their rows)."""
SOURCE = "ROCm/aiter e404860 (2026-08-22, MIT), aiter/configs"
DROPPED = {
    "cdna3 fp8": "ROCm/aiter fbb52dd (2025-09-26, pull request 1092) and b7c5fc6 (2025-12-26), MIT, aiter/configs: "
    "a8w8_tuned_gemm.csv and a8w8_bpreshuffle_tuned_gemm.csv, rows of cu_num 304 that later commits have not"
}
"""Generation and type -> where its rows are, if not there."""
FOLDS = 3
LEAST = 14
"""Rows of a set."""
MOST = 1500
"""Rows in one fit of products, of each doubling of their rows alike: tables hold a thousand sizes of a prompt for one
of a decoding step. More do not move the constants."""


class Kind(NamedTuple):
    """A data type of the tables: our name, bytes an element of weights and activations, the rate it multiplies at."""

    name: str
    weight_bytes: float
    act_bytes: float
    rate: str


PRODUCTS = {
    "bf16": Kind("bf16", 2.0, 2.0, "bf16"),
    "a8w8_blockscale": Kind("fp8_block", 1.0, 1.0, "fp8"),
    "a8w8": Kind("fp8", 1.0, 1.0, "fp8"),
    "a4w4": Kind("nvfp4", 0.53125, 0.53125, "fp4"),
}
"""Word in a file's name -> kind, the first that matches. Four bits in and four bits out have one name here, whoever
scales them."""
EXPERTS = {
    ("bfloat16", "bfloat16", "No"): Kind("bf16", 2.0, 2.0, "bf16"),
    ("float8", "float8", "per_1x128"): Kind("fp8_block", 1.0, 1.0, "fp8"),
    ("float4", "float4", "per_1x32"): Kind("nvfp4", 0.53125, 0.53125, "fp4"),
    ("float8", "float4", "per_1x32"): Kind("mxfp4_mxfp8", 0.53125, 1.03125, "fp8"),
    ("bfloat16", "float4", "per_1x32"): Kind("mxfp4", 0.53125, 2.0, "bf16"),
    ("bfloat16", "int4", "per_1x32"): Kind("int4_wo", 0.515625, 2.0, "bf16"),
}
"""Types of activations and weights, and how they are scaled -> kind. Of 8 bits with a scale a token only CDNA4 has
enough shapes (68, 17.8 % out): with a set on one generation alone the newer card would be the slower one."""
HEADER = """Fitted constants of {what} on AMD Instinct. Written by: python -m rooflm_fit.instinct --data DIR --out DIR
Efficiencies refer to what devices.toml says the family reaches of its datasheet. {judged}"""
THIRDS = "`_out`: three fits, each without a\nthird of the model shapes, where rows_out is not 0."
IN_SAMPLE = "`_out` where rows_out is 0: in\nsample, as no size was kept aside."


class Table(NamedTuple):
    """Measured shapes of a card and kind: columns of the shape, seconds, and in which fit a row is left out."""

    shape: tuple[Array, ...]
    seconds: Array
    fold: Array

    def where(self, mask: NDArray[Any]) -> Table:
        return Table(tuple(column[mask] for column in self.shape), self.seconds[mask], self.fold[mask])


def reached(device: Device, kind: Kind) -> Card:
    """Rates of a card that the constants are shares of."""
    own = derating(device, "")
    peak = device.peak[kind.rate] * own.compute
    bandwidth = device.dram.bandwidth * own.bandwidth
    return Card(float(peak), float(bandwidth), float(device.sms))


def product_tables(data: Path) -> dict[tuple[int, str], Table]:
    """Products of every file: (m, n, k) and the least time of a shape."""
    parts: dict[tuple[int, str], list[pd.DataFrame]] = {}
    for path in sorted(data.rglob("*tuned_gemm*.csv")):
        kind = next((k for word, k in PRODUCTS.items() if word in path.name), None)
        rows = pd.read_csv(path, low_memory=False)
        if kind is None or "untuned" in path.name or not {"cu_num", "M", "N", "K", "us"} <= set(rows.columns):
            continue
        if "q_dtype_w" in rows.columns:
            rows = rows[~rows["q_dtype_w"].astype(str).str.contains("int8")]
        for cu, own in rows[rows["us"] > 0].groupby("cu_num"):
            parts.setdefault((int(str(cu)), kind.name), []).append(own[["M", "N", "K", "us"]])
    return {key: _table(frames, ["M", "N", "K"], ["N", "K"]) for key, frames in parts.items()}


def expert_tables(data: Path) -> dict[tuple[int, str], Table]:
    """Experts of every file: (tokens, hidden, width, experts, top_k) and the least time of a shape."""
    parts: dict[tuple[int, str], list[pd.DataFrame]] = {}
    columns = ["token", "model_dim", "inter_dim", "expert", "topk"]
    for path in sorted(data.rglob("*tuned_fmoe*.csv")):
        rows = pd.read_csv(path, low_memory=False)
        if "untuned" in path.name or "us" not in rows.columns:
            continue
        rows = rows[(rows["us"] > 0) & (rows["topk"] > 0)]
        for (cu, act, weight, scaled), own in rows.groupby(["cu_num", "q_dtype_a", "q_dtype_w", "q_type"]):
            names = (str(act).split(".")[-1].split("_")[0], str(weight).split(".")[-1].split("_")[0])
            kind = EXPERTS.get((*names, str(scaled).split(".")[-1]))
            if kind is not None:
                parts.setdefault((int(str(cu)), kind.name), []).append(own[[*columns, "us"]])
    return {key: _table(frames, columns, ["model_dim", "inter_dim", "expert"]) for key, frames in parts.items()}


def _table(frames: Sequence[pd.DataFrame], columns: Sequence[str], groups: Sequence[str]) -> Table:
    """The least time of each shape (`columns`) of several files; folds go by `groups`, or by rows where there are fewer
    groups than folds."""
    rows = pd.concat(frames).groupby([*columns])["us"].min().reset_index()
    number = rows.groupby(list(groups)).ngroup().to_numpy()
    fold = (number if number.max() + 1 >= FOLDS else np.arange(len(rows))) % FOLDS
    shape = tuple(rows[name].to_numpy(float) for name in columns)
    return Table(shape, rows["us"].to_numpy(float) * 1e-6, fold.astype(float))


def product_time(rows: Table, kind: Kind, card: Card, c: Mapping[str, float]) -> Array:
    """The formula of a product (s)."""
    m, n, k = rows.shape
    return np.asarray(
        gemm_time(
            m,
            n,
            k,
            weight_bytes=kind.weight_bytes,
            act_bytes=kind.act_bytes,
            out_bytes=2.0,
            card=card,
            c=GemmConstants(**c),
        )
    )


def expert_time(rows: Table, kind: Kind, card: Card, c: Mapping[str, float]) -> Array:
    """The formula of experts, under even routing at random (s)."""
    tokens, hidden, width, experts, top_k = rows.shape
    routing = routed(tokens, top_k, experts)
    return np.asarray(
        moe_time(
            tokens,
            hidden,
            width,
            routing,
            top_k=top_k,
            experts=experts,
            card=card,
            c=MoEConstants(**c),
            weight_bytes=kind.weight_bytes,
            act_bytes=kind.act_bytes,
        )
    )


class ByHand(NamedTuple):
    """A kernel for shapes that its library was not tuned for: rows, columns and inner size of products that were timed
    with it on CDNA3 (us), the constants by hand, where the times are from and what the kernel is."""

    times: tuple[tuple[float, float, float, float], ...]
    constants: dict[str, float]
    source: str
    note: str


UNTUNED = {
    "triton": ByHand(
        ((64, 2112, 7168, 128.799), (128, 2112, 7168, 127.317), (256, 2112, 7168, 117.496)),
        {"t0": 2e-6, "eff_c": 0.74, "thr": 0.0, "eff_m": 1.2, "k0": 90.0, "pen": 1.0, "c_sm": 0.28, "mix": 0.3,
         "split": 1.0, "ramp": 2e-6},
        "ROCm/aiter pull request 1232: N 2112, K 7168 in 129, 127 and 117 us for 64, 128 and 256 rows, of the "
        "MI300 series by its title and of a host named mi350xas2",
        "aiter's Triton kernel by its default configuration, one tile of 128 x 128 and K not split, by hand: "
        "SGLang takes it for shapes that aiter has not tuned (fp8_utils.py, aiter_w8a8_block_fp8_linear); mape_out is "
        "in sample",
    ),
    "ck": ByHand(
        ((16, 25600, 5120, 36.6313), (48, 7168, 2048, 11.4007), (48, 7168, 2304, 11.1956), (48, 8192, 5120, 24.452),
         (64, 5120, 2048, 11.4053), (96, 4608, 4096, 20.4666), (96, 5120, 768, 6.0885), (112, 5120, 768, 6.1661),
         (112, 5120, 1024, 7.8045), (112, 5120, 1536, 10.7289), (144, 4096, 1024, 7.2013)),
        {"t0": 1.56e-6, "eff_c": 0.19, "thr": 0.0, "eff_m": 1.2, "k0": 40.0, "pen": 0.0, "c_sm": 2.1, "mix": 0.1,
         "split": 1.0, "ramp": 1e-6},
        SOURCE + ": the eleven rows of cu_num 304 whose fastest kernel is this one, K not split",
        "aiter's CK kernel for shapes that are in none of its tables (gemm_a8w8_blockscale.cu): one tile of 16 x 128 "
        "and 256 of K, not split, whatever the rows. Its operands take 36 of the 64 KiB that a CU shares out, so that "
        "one block runs at a time, 4.2 ns an element of K: eff_c, by hand, as the rest; mape_out is in sample",
    ),
}  # fmt: skip
"""aiter's products of blocks in 8 bits as nobody tuned them, by library; c_sm of Triton's by the open rows of decision
87."""


def untuned(library: str) -> FitRow:
    """Products of blocks in 8 bits that nobody tuned on CDNA3, judged by the times above (none is kept aside)."""
    device = load_device("mi300x")
    kind, kernel = PRODUCTS["a8w8_blockscale"], UNTUNED[library]
    *shape, us = np.array(kernel.times).T
    table = Table(tuple(shape), us * 1e-6, np.zeros(us.size))
    judged = error(product_time(table, kind, reached(device, kind), kernel.constants), table.seconds)
    names = {"gpu": ANY, "architecture": device.kernel_generation, "engine": library, "dtype": kind.name}
    return fit_row(
        names=names | {"family": library},
        constants=kernel.constants,
        inside=judged,
        outside=judged._replace(rows=0),
        source=kernel.source,
        note=kernel.note,
    )


ONE_STAGE = 0.25
"""eff_c of experts in blocks of 8 bits that aiter has no row of, on CDNA3: tiles of 32 x 256, where its tuner finds
ones of 64 (pull request 4261: 1.56 times faster in the mean of 2,048 to 32,768 tokens). Fewer tokens are as fast: the
tuner's own choice there."""


def one_stage(tuned: FitRow) -> FitRow:
    """Experts of blocks on CDNA3 before aiter had rows of its 304 compute units (July 2026), by the tuned set."""
    return msgspec.structs.replace(
        tuned, engine="aiter", family="1stage", constants=tuned.constants | {"eff_c": ONE_STAGE},
        source=tuned.source + "; ROCm/aiter pull request 4261, issue 3853",
        note="aiter's '1stage default' (fused_moe.py), of which no time is printed alone: eff_c by hand, the rest and "
        "the errors are those of the tuned set",
    )  # fmt: skip


TRITON_FOUR = ByHand(
    ((1, 6144, 3072, 82.28),),
    {"start": 2.7e-5, "expert": 1.8e-8, "eff_c": 0.70, "eff_m": 0.92, "c_sm": 0.387, "ramp": 1.6e-6, "wave": 1.5e-6,
     "eff_pass": 0.80, "stray": 0.0},
    "ROCm/triton issue 970 (2026-09-08): a product of gpt-oss-20b's 32 experts, 4 of them a token, in 82.28 us with "
    "Triton 3.6 on MI300X",
    "OpenAI's triton_kernels as vLLM launches them, whose gate-up product of one token leaves two of three compute "
    "units idle: c_sm, by hand, for that time; the rest is theirs on Hopper in vLLM; mape_out is in sample",
)  # fmt: skip
"""Experts of 4 bits on CDNA3 before vLLM's pull request 50622 of July 2026 (AITER's own have no row of 304 units)."""


def triton_four() -> FitRow:
    """Experts of 4 bits in vLLM on CDNA3, judged by the one product that is printed alone (rows, columns, inner)."""
    device, kind = load_device("mi300x"), EXPERTS["bfloat16", "float4", "per_1x32"]
    tokens, n, k, us = TRITON_FOUR.times[0]
    top_k = 4.0
    seconds = grouped_gemm_time(
        Routing(tokens * top_k, tokens * top_k, 0.0), n, k, weight_bytes=kind.weight_bytes, act_bytes=kind.act_bytes,
        c=MoEConstants(**TRITON_FOUR.constants), card=reached(device, kind),
    )  # fmt: skip
    judged = error(np.atleast_1d(seconds), np.array([us * 1e-6]))
    names = {"gpu": ANY, "architecture": device.kernel_generation, "engine": "triton", "dtype": kind.name}
    return fit_row(
        names=names | {"kernel": "triton", "family": "triton_kernels"}, constants=TRITON_FOUR.constants, inside=judged,
        outside=judged._replace(rows=0), source=TRITON_FOUR.source, note=TRITON_FOUR.note,
    )  # fmt: skip


KIB = 1024.0
REDUCED = {
    (2, "mi300x"): ((4, 7.07), (8, 7.58), (16, 7.53), (32, 7.30), (64, 7.66), (128, 8.70), (256, 11.45), (512, 17.13),
                    (1024, 28.15), (2048, 49.67), (4096, 93.79), (8192, 181.43), (16384, 355.91), (32768, 703.69)),
    (4, "mi300x"): ((2, 7.18), (16, 7.26), (32, 7.58), (256, 14.39), (512, 14.65), (1024, 22.91), (2048, 36.64),
                    (4096, 63.86), (8192, 118.31), (16384, 230.48)),
    (8, "mi355x"): ((24, 6.3), (48, 6.7), (96, 7.6), (192, 10.0), (384, 13.1), (768, 16.0), (1536, 24.2)),
}  # fmt: skip
"""Ranks and card -> KiB of a message and us of vLLM's custom all-reduce in 16 bits: ROCm/aiter pull request 801
(2025-08), vllm-project/vllm pull requests 19744 (2025-06) and 39080 (2026-04). Links join
pairs: two ranks have one of seven."""
LINKS = 7.0
"""Links of a card of eight, each to another: in a box of fewer cards a pair shares more of a card's rate."""
REDUCE_PARAMS = (
    Param("start", 5e-6, 1e-7, 2e-5), Param("step", 2e-7, 1e-9, 3e-6), Param("eff_short", 0.1, 0.005, 1.0),
    Param("gain_short", 0.5, -1.0, 2.0, log=False), Param("wait", 1.5, 1.0, 6.0), Param("eff_long", 0.1, 0.02, 0.5),
    Param("gain_long", 1.4, 0.0, 2.0, log=False), Param("grow", 0.3, 0.0, 3.0, log=False),
)  # fmt: skip


def reduces() -> list[FitRow]:
    """Collectives: the engines' own all-reduces for both generations, and every operation of RCCL, as NCCL's elsewhere,
    in a mesh."""
    ranks = np.array([n for (n, _), points in REDUCED.items() for _ in points], float)
    rate = np.array([load_cluster(f"{card}-box").tiers[0].bandwidth for (_, card), p in REDUCED.items() for _ in p])
    sizes, us = np.array([point for points in REDUCED.values() for point in points]).T
    link = float(load_cluster("mi300x-box").tiers[0].latency)

    def model(c: Mapping[str, float]) -> Array:
        own = CollectiveConstants(**c, latency=link)
        return np.asarray(collectives.time("all_reduce", sizes * KIB, ranks, bandwidth=rate, latency=link, c=own))

    c = fit(model, us * 1e-6, REDUCE_PARAMS, starts=({}, {"eff_short": 0.05, "gain_short": 0.0}), max_nfev=300)
    inside = error(model(c), us * 1e-6)
    print(f"all-reduce median {inside.median:.1f} of {inside.rows}, mean {inside.mape:.1f} %: {c}")
    operations = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "p2p")
    switched = [nearest(op, gpu="", generation="", library="nccl", kind="xgmi").row for op in operations]
    found = []
    for generation in ("cdna3", "cdna4"):
        for engine in ("vllm", "sglang"):
            names = {"gpu": ANY, "architecture": generation, "engine": engine, "dtype": ANY, "kernel": "all_reduce"}
            found.append(
                fit_row(
                    names=names,
                    constants=c | {"latency": link, "mesh": LINKS},
                    inside=inside,
                    outside=inside._replace(rows=0),
                    source="ROCm/aiter pull request 801; vllm-project/vllm pull requests 19744, 39080",
                )
            )
        for row in switched:
            own = {k: float(f"{v:.4g}") for k, v in meshed(row.constants, pair=row.kernel == "p2p").items()}
            own["mesh"] = LINKS
            found.append(msgspec.structs.replace(row, architecture=generation, constants=own))
    return found


MESH = 8
"""Cards of a full mesh."""


def meshed(switched: Mapping[str, float], pair: bool = False) -> dict[str, float]:
    """NCCL's constants behind a switch, as RCCL has them in a full mesh: all MESH reach what they did, and fewer
    only their own links to each other (two of eight cards one of seven, four three). pair: of a message between two,
    which has one link whatever the group.

    >>> own = meshed({"eff_short": 0.25, "gain_short": 0.0, "eff_long": 0.7, "gain_long": 0.0})
    >>> round(own["eff_long"], 9), round(own["eff_long"] * 4 ** own["gain_long"], 9)
    (0.1, 0.7)
    >>> pair = meshed({"eff_short": 0.07, "gain_short": 0.0, "eff_long": 0.7, "gain_long": 0.0}, pair=True)
    >>> round(pair["eff_long"], 9)
    0.1
    """
    if pair:
        return dict(switched) | {f"eff_{r}": switched[f"eff_{r}"] / (MESH - 1) for r in ("short", "long")}
    half, gain = MESH / 2, float(np.log(MESH - 1) / np.log(MESH / 2))
    own = {f"gain_{r}": gain for r in ("short", "long")}
    own |= {f"eff_{r}": switched[f"eff_{r}"] * half ** (switched[f"gain_{r}"] - gain) for r in ("short", "long")}
    return dict(switched) | own


WIDE = {"eff_c": 1.5, "eff_m": 1.2, "eff_pass": 4.0}
"""Upper bounds: shares of rates that are shares of a datasheet already."""
PRODUCT_PARAMS = tuple(p._replace(high=WIDE.get(p.name, p.high)) for p in gemm.PARAMS)
EXPERT_PARAMS = tuple(
    p._replace(high=WIDE.get(p.name, p.high)) for p in moe.PARAMS if p.name not in (moe.WARM, "stray")
)


def fitted(
    rows: Table, kind: Kind, device: Device, model: Any, params: Sequence[Param], starts: Any
) -> dict[str, float]:
    """Constants of a table. Of one number of experts no time an expert is fitted: it would be a part of the start, and
    grow where there are more."""
    card = reached(device, kind)
    if rows.seconds.size > MOST:
        _, octave, many = np.unique(np.floor(np.log2(rows.shape[0])), return_inverse=True, return_counts=True)
        chance = 1.0 / many[octave]
        rows = rows.where(np.random.default_rng(0).choice(octave.size, MOST, replace=False, p=chance / chance.sum()))
    extra = {"stray": 0.0} if params is EXPERT_PARAMS else {}
    if extra and np.ptp(rows.shape[3]) == 0:
        extra["expert"] = 0.0
    free = [p for p in params if p.name not in extra]
    return (
        fit(lambda c: model(rows, kind, card, {**c, **extra}), rows.seconds, free, starts=starts, max_nfev=50) | extra
    )


def row(rows: Table, kind: Kind, device: Device, model: Any, params: Sequence[Param], starts: Any) -> FitRow:
    """The row of a generation: fitted to all, judged by thirds left out."""
    card = reached(device, kind)
    constants = fitted(rows, kind, device, model, params, starts)

    def unseen(out: NDArray[np.bool_]) -> Array:
        others = fitted(rows.where(~out), kind, device, model, params, starts)
        return np.asarray(model(rows.where(out), kind, card, others))

    guess = fold_by_fold(rows.fold, unseen)
    inside, outside = error(model(rows, kind, card, constants), rows.seconds), error(guess, rows.seconds)
    if params is EXPERT_PARAMS:
        constants = constants | {"start": constants["start"] + LAUNCHES}
    names = {"gpu": ANY, "architecture": device.kernel_generation, "engine": ANY, "dtype": kind.name, "family": "aiter"}
    source = DROPPED.get(f"{device.kernel_generation} {kind.name}", SOURCE)
    found = fit_row(names=names, constants=constants, inside=inside, outside=outside, source=source,
                    note=f"median out {outside.median:.1f} %; measured on {device.name}")  # fmt: skip
    say(found)
    return found


def as_before(family: str, row: FitRow) -> FitRow:
    """The set of all cards for PyTorch on a measured generation: frameworks of training have these kernels not, but the
    libraries' own, untuned."""
    common = lookup(family, "", "", TORCH, row.dtype).row
    return msgspec.structs.replace(common, architecture=row.architecture, engine=TORCH)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of the fit."""
    options = folders(__doc__, argv)
    kinds = {k.name: k for k in (*EXPERTS.values(), *PRODUCTS.values())}
    works: tuple[tuple[str, str, Any, Any, Any, Any], ...] = (
        ("gemm", "products", product_tables(options.data), product_time, PRODUCT_PARAMS, gemm.STARTS),
        ("moe", "experts", expert_tables(options.data), expert_time, EXPERT_PARAMS, ({},)),
    )
    for name, what, tables, model, params, starts in works:
        rows = [
            row(table, kinds[kind], load_device(CARDS[cu]), model, params, starts)
            for (cu, kind), table in sorted(tables.items())
            if cu in CARDS and table.seconds.size >= LEAST
        ]
        rows += [untuned(library) for library in UNTUNED] if name == "gemm" else []
        rows += [
            one_stage(own) for own in rows if name == "moe" and (own.architecture, own.dtype) == ("cdna3", "fp8_block")
        ]
        rows += [triton_four()] if name == "moe" else []
        rows += [as_before(name, own) for own in rows if own.engine == ANY]
        write_fits(options.out / f"{name}-instinct.toml", rows, HEADER.format(what=what, judged=THIRDS))
    write_fits(options.out / "collective-instinct.toml", reduces(), HEADER.format(what="collectives", judged=IN_SAMPLE))


if __name__ == "__main__":
    main()
