"""Fit the attention constants: python -m rooflm_fit.attention --data DIR --out FILE.

DIR holds attention_prefill.parquet and attention_decode.parquet (measured kernel times). Left out: prefill with 8-bit
queries, which no prediction asks for.
One row of constants for each (generation, engine, dtype, kernel), fitted to all its cards at once, and sets for all.
30 % of the (heads, KV heads, head size) groups are kept aside by a hash; the constants shipped never saw them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rooflm.kernels.attention import (
    TENSOR_GROUP,
    WIDE_GROUP,
    DecodeConstants,
    PrefillConstants,
    decode_attention_time,
    prefill_attention_time,
    prefill_bytes,
)
from rooflm.kernels.constants import ANY, FitRow
from rooflm.kernels.derating import softmax_share
from rooflm.kernels.rates import Card
from rooflm.readers.devices import load_device
from rooflm.validation.folds import held_out
from rooflm_fit.common import (
    CATALOGUE_GPU,
    GPUS,
    Array,
    Error,
    Param,
    error,
    fit,
    fit_row,
    folders,
    hot_share,
    in_and_out,
    measured_table,
    say,
    write_fits,
)

Columns = dict[str, Array]
SOURCE = "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), measured kernel times"
SHAPES = ("heads", "kv_heads", "head_dim")
LARGE_HEAD = 256
"""Larger heads do not fit the usual tiles: the same kernel's name, another efficiency."""
HOT_GAIN = 0.95
"""Share of the DRAM time that decode saves on KV found in L2 (not fitted: the SMs bound it then)."""
HOT_GAIN_PREFILL = 0.65
"""The same of prefill's reads and passes, which write as well."""
WARM = "l2_frac"
"""Share of L2 that keeps data between a benchmark's repeats: fitted with the rest, no constant of the kernel."""
COPIES = frozenset({("b300-sxm-288gb", "sglang")})
"""Cells whose rows are copies of another GPU's."""
NARROWING = ("fa3", "trtllm_mha")
"""Kernels before which SGLang turns Q into the cache's 8 bits (flashattention_backend.py, trtllm_mha_backend.py)."""


class Recipe(NamedTuple):
    """How a kind of kernel is fitted: predictor of seconds, continuous constants, lists to pick constants from.

    columns: table -> what predict takes; unused: (picked name, value) -> a constant that is 0 with it.
    """

    kind: str
    predict: Callable[[Columns, Mapping[str, float]], Array]
    params: tuple[Param, ...]
    choices: Mapping[str, tuple[float, ...]]
    columns: Callable[[Any], Columns]
    unused: Mapping[tuple[str, float], str]


def split_warm(kind: Any, constants: Mapping[str, float]) -> tuple[Any, float]:
    """The kernel's constants as `kind`, and the share of L2 that the benchmark keeps warm (0: none)."""
    return kind(**{k: v for k, v in constants.items() if k != WARM}), constants.get(WARM, 0.0)


def predict_prefill(x: Columns, constants: Mapping[str, float]) -> Array:
    """Warm-cache seconds of the rows `x` (columns in SI): the shipped formula with a DRAM that is as much faster as L2
    serves of Q, K, V, O and the cache."""
    c, warm = split_warm(PrefillConstants, constants)
    q, kv = x["q_bytes"], x["kv_bytes"]
    c = c._replace(softmax_dim=c.softmax_dim * x["softmax"])
    shape = (x["batch"], x["new"], np.zeros(1), x["heads"], x["kv_heads"], x["head_dim"])
    cached = 2 * x["batch"] * x["new"] * x["kv_heads"] * x["head_dim"] * kv
    hot = hot_share(prefill_bytes(*shape, q_bytes=q, kv_bytes=kv) + cached, x["l2"], warm)
    time = prefill_attention_time(
        *shape, q_bytes=q, kv_bytes=kv, c=c,
        card=Card(x["peak"], x["bandwidth"] / (1.0 - HOT_GAIN_PREFILL * hot), x["sms"]),
    )  # fmt: skip
    return np.asarray(time)


def predict_decode(x: Columns, constants: Mapping[str, float]) -> Array:
    """Warm-cache seconds of decode rows: the shipped formula with an efficiency of DRAM that is as much higher as L2
    serves of the KV cache."""
    c, warm = split_warm(DecodeConstants, constants)
    nbytes = 2 * x["batch"] * x["kv_heads"] * x["kv_len"] * x["head_dim"] * x["kv_bytes"]
    hot: Any = hot_share(nbytes, x["l2"], warm)
    time = decode_attention_time(
        x["batch"], x["kv_len"], x["heads"], x["kv_heads"], x["head_dim"], kv_bytes=x["kv_bytes"],
        card=Card(x["peak"], x["bandwidth"], x["sms"], x["l1"]), c=c._replace(eff_m=c.eff_m / (1.0 - HOT_GAIN * hot)),
    )  # fmt: skip
    return np.asarray(time)


def load(path: Path, copies: Collection[tuple[str, str]] = COPIES) -> Any:
    """A measured table as a DataFrame: catalogue GPU names, seconds, one row a shape; copied cells left out."""
    rows = measured_table(path)
    rows = rows[rows.gpu.isin(list(CATALOGUE_GPU))].assign(time=rows.time_us.astype(float) * 1e-6)
    rows["gpu"] = rows.gpu.map(CATALOGUE_GPU)
    return rows[[(g, e) not in copies for g, e in zip(rows.gpu, rows.backend, strict=True)]]


def as_served(rows: Any) -> Any:
    """Prefill's rows as servers run them: Q has 16 bits, but where the server makes it as narrow as its cache. There
    kernels of 8-bit Q take the place of others with a wide Q, which only a server told so runs (FlashInfer, Triton)."""
    both = rows.kernel.isin(NARROWING) & (rows.dtype == "fp8")
    pairs = set(zip(rows.gpu[both], rows.backend[both], rows.head_dim[both], strict=True))
    here = np.array([x in pairs for x in zip(rows.gpu, rows.backend, rows.head_dim, strict=True)])
    kept = both | ((rows.dtype != "fp8") & ~((rows.kv_dtype == "fp8") & here))
    return rows.assign(dtype=rows.dtype.where(~both, "bf16"))[kept]


def columns(rows: Any) -> Columns:
    """Columns of the predictors (SI) from a table: shapes, widths of Q and KV, and the device's datasheet figures."""
    same = {"batch": "batch", "seq_q": "new", "seq_kv": "kv_len", "heads": "heads", "kv_heads": "kv_heads"}
    x = {new: rows[old].to_numpy(float) for old, new in (same | {"head_dim": "head_dim"}).items() if old in rows}
    pairs = list(zip(rows.gpu, rows.dtype, strict=True))
    x["peak"] = np.array([GPUS[g].peak(d) for g, d in pairs])
    for name in ("bandwidth", "sms", "l2"):
        x[name] = np.array([float(getattr(GPUS[g], name)) for g, _ in pairs])
    x["l1"] = np.array([float(load_device(g).l1.bandwidth) for g, _ in pairs])
    x["softmax"] = np.array([softmax_share(load_device(g)) for g, _ in pairs])
    x["q_bytes"] = np.where(rows.dtype == "fp8", 1.0, 2.0)
    x["kv_bytes"] = np.where(rows.kv_dtype == "fp8", 1.0, 2.0)
    return x


PREFILL_PARAMS = (
    Param("launch_s", 9e-6, 5e-7, 1e-4), Param("eff", 0.8, 0.05, 1.1), Param("tile_s", 2e-6, 1e-8, 1e-4),
    Param("softmax_dim", 40.0, 0.0, 200.0, log=False), Param("kv_passes", 2.0, 0.0, 20.0, log=False),
    Param("qo_passes", 1.0, 0.0, 20.0, log=False), Param("sharp", 1.6, 1.0, 8.0),
    Param("throttle", 0.1, 0.0, 0.6, log=False), Param("tail", 0.6, 0.0, 2.5, log=False),
    Param("l2_frac", 0.4, 0.01, 3.0), Param("swap_s", 1e-6, 0.0, 3e-5, log=False),
)  # fmt: skip
DECODE_PARAMS = (
    Param("launch_s", 7e-6, 5e-7, 1e-4), Param("eff_m", 0.9, 0.2, 1.0), Param("ramp_s", 4e-6, 0.0, 5e-5, log=False),
    Param("sharp", 2.0, 1.0, 8.0), Param("sm_bw", 2.0, 0.1, 20.0), Param("cta_s", 1.5e-6, 1e-8, 1e-4),
    Param("split_s", 5e-6, 0.0, 8e-5, log=False), Param("l2_frac", 0.5, 0.01, 2.0),
    Param("swap_s", 1e-6, 0.0, 1.5e-5, log=False), Param("seq_s", 1e-8, 0.0, 1e-5, log=False),
)  # fmt: skip
TILES = {"tile": (64.0, 128.0, 256.0), "pack_to": (0.0, 1.0, math.inf)}
CUTS = {"block": (64.0, 128.0, 256.0), "max_splits": (32.0,), "group_tile": (16.0, 64.0), "min_group": (1.0, 2.0)}
UNPACKED = {("pack_to", 0.0): "swap_s", ("pack_to", math.inf): "swap_s"}
WRAPPERS = {("min_group", 2.0): "seq_s", ("min_group", 1.0): "swap_s"}
"""FlashAttention-2 splits and swaps for groups of two and more; the other kernels do neither."""

PREFILL = Recipe("prefill", predict_prefill, PREFILL_PARAMS, TILES, columns, UNPACKED)
LANES = PREFILL._replace(
    params=(*(p for p in PREFILL_PARAMS if p.name != "qo_passes"), Param("lane_s", 3e-6, 1e-8, 1e-4)),
    choices=TILES | {"qo_passes": (0.0,)},
)
"""vLLM: nothing passes over Q and O, and a kernel of its own writes the cache, a block a token."""
DECODE = Recipe("decode", predict_decode, DECODE_PARAMS, CUTS, columns, WRAPPERS)
FALLBACK = DECODE._replace(choices=CUTS | {"group_tile": (1.0,), "min_group": (1.0,)})
"""Decode kernels where every query head reads the KV cache by itself."""


def own_l1(recipe: Recipe, gpus: Iterable[str]) -> dict[str, float]:
    """What decode sets of one generation state besides: L1's bandwidth over DRAM's, the geometric mean of their cards.

    >>> own_l1(PREFILL, ["a100-sxm-80gb"]), round(own_l1(DECODE, ["h100-sxm-80gb", "h200-sxm-141gb"])["l1"], 2)
    ({}, 7.71)
    """
    ratios = [float(load_device(g).l1.bandwidth) / GPUS[g].bandwidth for g in sorted(set(gpus))]
    return {"l1": float(np.exp(np.mean(np.log(ratios))))} if recipe.kind == "decode" else {}


def fit_recipe(
    recipe: Recipe, rows: Any, most: int = 4000, picks: Iterable[tuple[float, ...]] | None = None,
    known: Mapping[str, float] = {},
) -> dict[str, float]:  # fmt: skip
    """Constants for the rows: a robust fit for each pick from the recipe's lists (or of `picks`), the best kept.
    known: constants that are not fitted."""
    sample = rows.sample(min(most, len(rows)), random_state=0)
    x, y = recipe.columns(sample), sample.time.to_numpy()
    best: dict[str, float] = {}
    least = math.inf
    for pick in picks or itertools.product(*recipe.choices.values()):
        chosen = dict(zip(recipe.choices, pick, strict=True))
        zero = {recipe.unused[item]: 0.0 for item in chosen.items() if item in recipe.unused} | dict(known)

        def model(c: Mapping[str, float], chosen: Mapping[str, float] = {**chosen, **zero}) -> Array:
            return recipe.predict(x, {**c, **chosen})

        constants = {**fit(model, y, [p for p in recipe.params if p.name not in zero]), **zero, **chosen}
        off = error(recipe.predict(x, constants), y).mape
        if off < least:
            least, best = off, constants
    return best


def cells(rows: Any, kind: str) -> Iterator[tuple[dict[str, str], Any]]:
    """(names, rows) of a kind: one a GPU, engine and dtype, more where the engine's kernels differ.

    The engine's commonest kernel gives the plain row; head sizes that only another kernel takes, and those beyond
    LARGE_HEAD, get "-hd<size>". TensorRT-LLM's decode has "-mha" (one query head a KV head) and "-wide" (more than
    WIDE_GROUP), SGLang's with FlashInfer "-few" (fewer than TENSOR_GROUP).
    """
    for (gpu, engine, dtype, kv), cell in rows.groupby(["gpu", "backend", "dtype", "kv_dtype"], observed=True):
        name = kind + ("-kv8" if kind == "prefill" and kv != dtype else "")
        width = kv if kind == "decode" else dtype
        names = {"gpu": gpu, "architecture": GPUS[gpu].architecture, "engine": engine, "dtype": width, "kernel": name}
        main = cell.kernel == cell.kernel.value_counts().index[0]
        own = cell.head_dim.isin(cell.head_dim[main].unique()) & (cell.head_dim <= LARGE_HEAD)
        group = cell.heads // cell.kv_heads
        parts = {"": group > 0}
        if engine == "trtllm" and kind == "decode":
            parts = {"": (group > 1) & (group <= WIDE_GROUP), "-mha": group == 1, "-wide": group > WIDE_GROUP}
        if engine == "sglang" and kind == "decode" and cell.kernel[main].iloc[0] == "flashinfer":
            parts = {"": group >= TENSOR_GROUP, "-few": group < TENSOR_GROUP}
        for suffix, part in parts.items():
            if (own & part).any():
                yield {**names, "kernel": name + suffix}, cell[own & part]
        for size in sorted(cell.head_dim[~own].unique()):
            yield {**names, "kernel": f"{name}-hd{size}"}, cell[cell.head_dim == size]


def recipe_of(recipe: Recipe, kernel: str, engine: str) -> Recipe:
    """The recipe of an engine's kernel: vLLM's prefill has its own, as have groups that no main decode kernel takes."""
    if recipe is PREFILL and engine == "vllm":
        return LANES
    return FALLBACK if recipe is DECODE and kernel.endswith(("-mha", "-wide")) else recipe


def split(rows: Any) -> Any:
    """True for rows kept aside: whole (heads, KV heads, head size) groups."""
    return held_out(*(rows[c] for c in SHAPES))


Sets = dict[tuple[str, str, str, str], Any]
"""(generation, engine, dtype, kernel) -> its rows, of all its cards."""


def joined(parts: Iterable[tuple[dict[str, str], Any]]) -> Sets:
    """The rows of every generation's cards together, in the order of the first."""
    import pandas as pd

    found: dict[tuple[str, str, str, str], list[Any]] = {}
    for names, used in parts:
        found.setdefault((names["architecture"], names["engine"], names["dtype"], names["kernel"]), []).append(used)
    return {key: pd.concat(tables, ignore_index=True) for key, tables in found.items()}


MOST = 5000
"""Rows that a set is fitted to at the most, evenly from each GPU."""


def fit_cells(
    recipe: Recipe, parts: Iterable[tuple[dict[str, str], Any]], holdout: Callable[[Any], Any] = split
) -> tuple[list[FitRow], Any]:
    """One FitRow for each set, and the table with columns predicted, out (kept aside), row and width.

    A head size's own row has few shapes, so it takes the picks of the last plain row: always in decode (else left-out
    groups come out twice too long), elsewhere if the kernel's name is the same.
    """
    import pandas as pd

    done, tables = [], []
    cell: tuple[str, ...] = ()
    picks: list[tuple[float, ...]] = []
    for (generation, engine, dtype, kernel), used in joined(parts).items():
        chosen = recipe_of(recipe, kernel, engine)
        out = holdout(used)
        apart = bool(out.any() and (~out).sum() > 50)
        here = (generation, engine, dtype, "" if recipe is DECODE else used.kernel.mode()[0])
        few = "-hd" in kernel and cell == here
        kept = _even(used[~out] if apart else used)
        known = own_l1(recipe, used.gpu)
        constants = fit_recipe(chosen, kept, MOST, picks if few else None, known)
        pick = tuple(constants[n] for n in chosen.choices)
        if "-hd" not in kernel:
            cell, picks = here, [pick]
        used = used.assign(predicted=chosen.predict(chosen.columns(used), constants), out=out)
        tables.append(used.assign(row=kernel, width=dtype))
        inside, outside = _errors(used, apart)
        names = {"gpu": " ".join(sorted(used.gpu.unique())), "architecture": generation, "engine": engine,
                 "dtype": dtype, "kernel": kernel}  # fmt: skip
        note = "" if apart else "too few shapes to keep any aside: mape_out is in sample"
        off = _transfer(chosen, used, kept, used.gpu, [pick], known)
        done.append(fit_row(names=names, constants=cold(constants), inside=inside, outside=outside, source=SOURCE,
                            mape_transfer=off, note=note))  # fmt: skip
        say(done[-1])
    return done, pd.concat(tables)


def lent(rows: Sequence[FitRow]) -> list[FitRow]:
    """The rows as engines run them: SGLang's decode on A100 was timed with FlashAttention 3 built for it; a server
    takes FlashInfer, as on Ada, whose rows stand in.

    Source: docs.sglang.io, "Attention Backend" (MHA models on Ampere and Ada: flashinfer).
    """
    ada = [r for r in rows if (r.engine, r.dtype, r.architecture) == ("sglang", "bf16", "ada") and "decode" in r.kernel]
    l1 = {r.gpu: r.constants.get("l1") for r in rows if r.architecture == "ampere" and r.kernel == "decode"}
    own = [r for r in rows if not (r.engine == "sglang" and r.gpu in l1 and r.kernel == "decode")]
    for gpu, size in l1.items():
        named = {"gpu": gpu, "architecture": "ampere", "note": "FlashInfer's, of Ada"}
        own += [msgspec.structs.replace(r, constants=r.constants | {"l1": size}, **named) for r in ada]
    return own


def _transfer(
    recipe: Recipe, rows: Any, kept: Any, groups: Any, picks: Iterable[tuple[float, ...]],
    known: Mapping[str, float] = {},
) -> float:  # fmt: skip
    """Mean error on each group of rows (by its label) of constants fitted to the others; 0 for a single group."""
    off = []
    labels = sorted(groups.unique())
    for label in labels if len(labels) > 1 else ():
        others = fit_recipe(recipe, kept[groups[kept.index] != label], MOST // 2, picks, known)
        left = rows[groups == label]
        off.append(error(recipe.predict(recipe.columns(left), others), left.time.to_numpy()).mape)
    return float(np.mean(off)) if off else 0.0


def cold(constants: Mapping[str, float]) -> dict[str, float]:
    """What is written: the kernel's constants, without what the benchmark's loop kept warm."""
    return {k: v for k, v in constants.items() if k != WARM}


def _errors(used: Any, apart: bool) -> tuple[Error, Error]:
    """Errors of the rows that were fitted and of those kept aside; where none is, both are in sample."""
    aside = used.out.to_numpy() if apart else np.zeros(len(used), bool)
    inside, outside = in_and_out(used.predicted.to_numpy(), used.time.to_numpy(), aside)
    return inside, outside if apart else inside._replace(rows=0)


def fit_families(
    recipe: Recipe, table: Any, cells_done: Sequence[FitRow], holdout: Callable[[Any], Any] = split
) -> list[FitRow]:
    """Sets of an engine for all GPUs; transfer error from generations left out.

    Lists are searched only over what the generations picked. Kernels of a single head size get none, nor what one
    generation has alone: the plain row serves.
    """
    done = []
    table = table[~table.row.str.contains("-hd")]
    for (name, dtype, engine), rows in table.groupby(["row", "width", "backend"], observed=True):
        chosen = recipe_of(recipe, name, engine)
        members = [r for r in cells_done if (r.kernel, r.dtype, r.engine) == (name, dtype, engine)]
        if len(members) < 2:
            continue
        rows = rows.reset_index(drop=True)
        groups = rows.gpu.map(lambda gpu: GPUS[gpu].architecture)
        picks = {tuple(r.constants[n] for n in chosen.choices) for r in members}
        out = holdout(rows)
        kept = _even(rows[~out])
        constants = fit_recipe(chosen, kept, MOST, picks)
        used = rows.assign(predicted=chosen.predict(chosen.columns(rows), constants), out=out)
        inside, outside = _errors(used, True)
        off = _transfer(chosen, rows, kept, groups, {tuple(constants[n] for n in chosen.choices)})
        names = {"gpu": ANY, "architecture": ANY, "engine": engine, "dtype": dtype, "kernel": name}
        done.append(fit_row(names=names, constants=cold(constants), inside=inside, outside=outside, source=SOURCE,
                            mape_transfer=off, note="over " + ", ".join(r.architecture for r in members)))  # fmt: skip
        say(done[-1])
    return done


def _even(rows: Any) -> Any:
    """Up to MOST rows, evenly from each GPU."""
    share = max(1, MOST // max(rows.gpu.nunique(), 1))
    return rows.sample(frac=1.0, random_state=0).groupby("gpu", observed=True).head(share)


def summary(table: Any, label: str) -> str:
    """Errors in and out of sample of all kernels of a cell together, as text: what the marks are compared with."""
    lines = []
    for (engine, dtype, kv), rows in table.groupby(["backend", "dtype", "kv_dtype"], observed=True):
        parts = []
        for gpu, cell in rows.groupby("gpu", observed=True):
            off = [error(c.predicted.to_numpy(), c.time.to_numpy()).mape for c in (cell[~cell.out], cell[cell.out])]
            parts.append(f"{gpu} {off[0]:.1f}/{off[1]:.1f}")
        lines.append(f"{label} {engine} {dtype} kv {kv} (in/out): " + ", ".join(parts))
    return "\n".join(lines)


HEADER = """Constants of the attention kernels (rooflm.kernels.attention), fitted by python -m rooflm_fit.attention.
kernel: prefill (PrefillConstants), decode (DecodeConstants). dtype: of the KV cache in decode, of Q in prefill;
prefill-kv8: a cache of 8 bits, and Q as the engine makes it. -hd<size>: a head size that it gives to another kernel.
decode-mha, decode-wide: TensorRT-LLM with one query head a KV head, and with more than 32; decode-few: FlashInfer in
SGLang with fewer than 4 (rooflm.kernels.attention.decode_kernels names them).
Benchmarks ran with a warm cache; the fits know what it saved, a model's step has none of it.
30 % of (heads, KV heads, head size) groups kept aside; errors of warm predictions in per cent."""


def main(argv: Sequence[str] | None = None) -> None:
    """Fit all kinds and write the file."""
    args = folders(__doc__, argv)
    done: list[FitRow] = []
    for recipe in (PREFILL, DECODE):
        rows = load(args.data / f"attention_{recipe.kind}.parquet")
        if recipe is PREFILL:
            rows = as_served(rows)
        fitted, table = fit_cells(recipe, cells(rows, recipe.kind))
        print(summary(table, recipe.kind), flush=True)
        done += fitted + fit_families(recipe, table, fitted)
        write(args.out, lent(done), HEADER)


def write(path: Path, rows: Iterable[FitRow], header: str) -> None:
    """Write the rows sorted by kernel, dtype, GPU and engine."""
    write_fits(path, sorted(rows, key=lambda r: (r.kernel, r.dtype, r.gpu, r.architecture, r.engine)), header)


if __name__ == "__main__":
    main()
