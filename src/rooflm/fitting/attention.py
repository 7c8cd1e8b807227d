"""Fit the attention constants: python -m rooflm.fitting.attention --data DIR --out FILE.

DIR holds attention_prefill.parquet, attention_decode.parquet and attention_encoder.parquet (measured kernel times).
One row of constants for each (GPU, engine, dtype, kernel), sets for each architecture generation and for all GPUs.
30 % of the (heads, KV heads, head size) groups are kept aside by a hash; the constants shipped never saw them.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rooflm.fitting.common import (
    CATALOGUE_GPU,
    GPUS,
    Array,
    Error,
    Param,
    error,
    fit,
    fit_row,
    held_out,
    write_fits,
)
from rooflm.kernels.attention import (
    DecodeConstants,
    PrefillConstants,
    decode_attention_time,
    hot_share,
    prefill_attention_time,
    prefill_bytes,
)
from rooflm.kernels.constants import ANY, FitRow

Columns = dict[str, Array]
SOURCE = "ai-dynamo/aiconfigurator@095f58a (Apache-2.0), measured kernel times"
SHAPES = ("heads", "kv_heads", "head_dim")
WIDE_GROUP = 32
"""TensorRT-LLM's decode kernel takes 2 to 32 query heads a KV head; one, or more, go to kernels of their own."""
COPIES = {("b300", "sglang")}
"""Cells whose rows are copies of another GPU's."""


class Recipe(NamedTuple):
    """How a kind of kernel is fitted: predictor of seconds, continuous constants, lists to pick constants from."""

    kind: str
    predict: Callable[[Columns, Mapping[str, float]], Array]
    params: tuple[Param, ...]
    choices: dict[str, tuple[float, ...]]


def predict_prefill(x: Columns, constants: Mapping[str, float], causal: bool = True) -> Array:
    """Warm-cache seconds of the rows `x` (columns in SI): the shipped formula with `hot` from the working set."""
    c = PrefillConstants(**constants)
    shape = (x["batch"], x["new"], np.zeros(1), x["heads"], x["kv_heads"], x["head_dim"])
    width = {"q_bytes": x["q_bytes"], "kv_bytes": x["kv_bytes"]}
    hot = hot_share(prefill_bytes(*shape, **width), x["l2"], c.l2_frac)
    device = {name: x[name] for name in ("peak", "bandwidth", "sms")}
    return np.asarray(prefill_attention_time(*shape, **width, **device, c=c, causal=causal, hot=hot))


def predict_encoder(x: Columns, constants: Mapping[str, float]) -> Array:
    """The same without a causal mask."""
    return predict_prefill(x, constants, causal=False)


def predict_decode(x: Columns, constants: Mapping[str, float]) -> Array:
    """Warm-cache seconds of decode rows: the shipped formula with `hot` from the bytes of KV."""
    c = DecodeConstants(**constants)
    nbytes = 2 * x["batch"] * x["kv_heads"] * x["kv_len"] * x["head_dim"] * x["kv_bytes"]
    names = ("batch", "kv_len", "heads", "kv_heads", "head_dim")
    device = {name: x[name] for name in ("kv_bytes", "peak", "bandwidth", "sms")}
    return np.asarray(
        decode_attention_time(*(x[n] for n in names), **device, c=c, hot=hot_share(nbytes, x["l2"], c.l2_frac))
    )


PREFILL_PARAMS = (
    Param("launch_s", 9e-6, 5e-7, 1e-4),
    Param("eff", 0.8, 0.05, 1.5),
    Param("tile_s", 2e-6, 1e-8, 1e-4),
    Param("softmax_dim", 40.0, 0.0, 300.0, log=False),
    Param("kv_passes", 2.0, 0.0, 20.0, log=False),
    Param("qo_passes", 1.0, 0.0, 20.0, log=False),
    Param("sharp", 1.6, 1.0, 8.0),
    Param("throttle", 0.1, 0.0, 0.6, log=False),
    Param("tail", 0.6, 0.0, 2.5, log=False),
    Param("l2_frac", 0.4, 0.01, 3.0),
)
DECODE_PARAMS = (
    Param("launch_s", 7e-6, 5e-7, 1e-4),
    Param("eff_m", 0.9, 0.2, 1.0),
    Param("sharp", 2.0, 1.0, 8.0),
    Param("sm_bw", 2.0, 0.1, 20.0),
    Param("cta_s", 1.5e-6, 1e-8, 1e-4),
    Param("split_s", 5e-6, 0.0, 8e-5, log=False),
    Param("eff_c", 0.3, 0.002, 1.2),
    Param("l2_frac", 0.5, 0.01, 2.0),
    Param("swap_s", 1e-6, 0.0, 1.5e-5, log=False),
)
TILES = {"tile": (64.0, 128.0, 256.0), "pack_to": (0.0, 1.0, math.inf)}
CUTS = {"block": (64.0, 128.0, 256.0), "max_splits": (32.0, 128.0), "group_tile": (16.0, 64.0), "min_group": (1.0, 2.0)}

PREFILL = Recipe("prefill", predict_prefill, PREFILL_PARAMS, TILES)
ENCODER = Recipe("encoder", predict_encoder, PREFILL_PARAMS, TILES | {"pack_to": (0.0,)})
DECODE = Recipe("decode", predict_decode, DECODE_PARAMS, CUTS)
FALLBACK = Recipe("decode", predict_decode, DECODE_PARAMS, CUTS | {"group_tile": (1.0,), "min_group": (1.0,)})
"""Decode kernels where every query head reads the KV cache by itself."""


def load(path: Path) -> Any:
    """A measured table as a DataFrame: catalogue GPU names, seconds, one row a shape; copied cells left out."""
    import pandas as pd

    rows = pd.read_parquet(path)
    rows = rows.astype({c: str for c in ("gpu", "backend", "kernel", "dtype", "kv_dtype") if c in rows})
    rows = rows[rows.gpu.isin(list(CATALOGUE_GPU))].assign(time=rows.time_us.astype(float) * 1e-6)
    rows["gpu"] = rows.gpu.map(CATALOGUE_GPU)
    rows = rows[[(g, e) not in COPIES for g, e in zip(rows.gpu, rows.backend, strict=True)]]
    if "seq" in rows:
        rows = rows.rename(columns={"seq": "seq_q"}).assign(kv_heads=rows.heads, kv_dtype=rows.dtype)
    return rows


def columns(rows: Any) -> Columns:
    """Columns of the predictors (SI) from a table: shapes, widths of Q and KV, and the device's datasheet figures."""
    same = {"batch": "batch", "seq_q": "new", "seq_kv": "kv_len", "heads": "heads", "kv_heads": "kv_heads"}
    x = {new: rows[old].to_numpy(float) for old, new in (same | {"head_dim": "head_dim"}).items() if old in rows}
    pairs = list(zip(rows.gpu, rows.dtype, strict=True))
    x["peak"] = np.array([GPUS[g].peak(d) for g, d in pairs])
    for name in ("bandwidth", "sms", "l2"):
        x[name] = np.array([float(getattr(GPUS[g], name)) for g, _ in pairs])
    x["q_bytes"] = np.where(rows.dtype == "fp8", 1.0, 2.0)
    x["kv_bytes"] = np.where(rows.kv_dtype == "fp8", 1.0, 2.0)
    return x


def fit_recipe(
    recipe: Recipe, rows: Any, most: int = 4000, fixed: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Constants for the rows: a robust fit for each pick from the recipe's lists (or the `fixed` ones), the best kept."""
    sample = rows.sample(min(most, len(rows)), random_state=0)
    x, y = columns(sample), sample.time.to_numpy()
    best: dict[str, float] = {}
    least = math.inf
    picks = [tuple(fixed[n] for n in recipe.choices)] if fixed else itertools.product(*recipe.choices.values())
    for pick in picks:
        chosen = dict(zip(recipe.choices, pick, strict=True))

        def model(c: Mapping[str, float], chosen: Mapping[str, float] = chosen) -> Array:
            return recipe.predict(x, {**c, **chosen})

        constants = {**fit(model, y, recipe.params), **chosen}
        off = error(recipe.predict(x, constants), y).mape
        if off < least:
            least, best = off, constants
    return best


def cells(rows: Any, kind: str) -> Iterator[tuple[dict[str, str], Any, Any]]:
    """(names of the row, rows to fit, rows that will use it) of a kind: one a GPU, engine and dtype, more where kernels differ.

    The engine's commonest kernel gives the plain row; head sizes that only another kernel takes get "-hd<size>".
    TensorRT-LLM's decode has "-mha" (one query head a KV head) and "-wide" (more than WIDE_GROUP).
    """
    for (gpu, engine, dtype, kv), cell in rows.groupby(["gpu", "backend", "dtype", "kv_dtype"], observed=True):
        name = kind + ("-kv8" if kv == "fp8" and kind != "encoder" else "")
        names = {"gpu": gpu, "architecture": GPUS[gpu].architecture, "engine": engine, "dtype": dtype, "kernel": name}
        main = cell.kernel == cell.kernel.value_counts().index[0]
        own = cell.head_dim.isin(cell.head_dim[main].unique())
        group = cell.heads // cell.kv_heads
        parts = {"": group > 0}
        if engine == "trtllm" and kind == "decode":
            parts = {"": (group > 1) & (group <= WIDE_GROUP), "-mha": group == 1, "-wide": group > WIDE_GROUP}
        for suffix, part in parts.items():
            yield {**names, "kernel": name + suffix}, cell[main & part], cell[own & part]
        for size in sorted(cell.head_dim[~own].unique()):
            other = cell[cell.head_dim == size]
            yield {**names, "kernel": f"{name}-hd{size}"}, other, other


def recipe_of(recipe: Recipe, kernel: str) -> Recipe:
    """The fall-back recipe for kernels of groups that the main decode kernel does not take."""
    return FALLBACK if recipe is DECODE and kernel.endswith(("-mha", "-wide")) else recipe


def split(rows: Any) -> Any:
    """True for rows kept aside: whole (heads, KV heads, head size) groups."""
    return held_out(*(rows[c] for c in SHAPES))


def fit_cells(recipe: Recipe, rows: Any, holdout: Callable[[Any], Any] = split) -> tuple[list[FitRow], Any]:
    """One FitRow a cell, and the table with columns predicted and out (kept aside)."""
    done, tables = [], []
    import pandas as pd

    for names, fitted, used in cells(rows, recipe.kind):
        chosen = recipe_of(recipe, names["kernel"])
        out = holdout(fitted)
        kept = fitted[~out] if (~out).sum() > 50 and out.sum() else fitted
        constants = fit_recipe(chosen, kept)
        used = used.assign(predicted=chosen.predict(columns(used), constants), out=holdout(used))
        tables.append(used.assign(row=names["kernel"]))
        inside, outside = _errors(used, kept is not fitted)
        note = "" if kept is not fitted else "too few shapes to keep any aside: mape_out is in sample"
        done.append(fit_row(names=names, constants=constants, inside=inside, outside=outside, source=SOURCE,
                            mape_large=_large(used), note=note))  # fmt: skip
        print(f"{names['kernel']:20s} {names['gpu']:16s} {names['engine']:7s} {names['dtype']:5s} "
              f"in {inside.mape:5.1f}  out {outside.mape:5.1f}  rows {len(used)}", flush=True)  # fmt: skip
    return done, pd.concat(tables)


def _errors(used: Any, apart: bool) -> tuple[Error, Error]:
    pick = used.out.to_numpy() if apart else np.zeros(len(used), bool)
    predicted, measured = used.predicted.to_numpy(), used.time.to_numpy()
    inside = error(predicted[~pick], measured[~pick])
    return inside, error(predicted[pick], measured[pick]) if apart else inside._replace(rows=0)


def _large(used: Any) -> float:
    """Error of the rows kept aside whose plain roofline takes over 20 us."""
    rows = used[used.out]
    x = columns(rows)
    kv = x.get("kv_len", x.get("new"))
    new = x.get("new", np.ones_like(x["batch"]))
    flops = 4 * x["batch"] * x["heads"] * new * x["head_dim"] * np.where(new > 1, kv / 2, kv)
    nbytes = 2 * x["batch"] * x["head_dim"] * (new * x["heads"] * x["q_bytes"] + kv * x["kv_heads"] * x["kv_bytes"])
    big = np.maximum(flops / x["peak"], nbytes / x["bandwidth"]) > 20e-6
    return float(error(rows.predicted.to_numpy()[big], rows.time.to_numpy()[big]).mape) if big.any() else 0.0


def fit_families(recipe: Recipe, table: Any, holdout: Callable[[Any], Any] = split, most: int = 6000) -> list[FitRow]:
    """Sets for each architecture generation and for all, over all engines; transfer error from left-out GPUs."""
    done = []
    for (name, dtype), rows in table.groupby(["row", "dtype"], observed=True):
        chosen = recipe_of(recipe, name)
        architectures = {g: GPUS[g].architecture for g in rows.gpu.unique()}
        for arch in (*sorted(set(architectures.values())), ANY):
            mine = rows[rows.gpu.map(architectures) == arch] if arch != ANY else rows
            out = holdout(mine)
            kept = _even(mine[~out], most) if out.any() and not out.all() else _even(mine, most)
            constants = fit_recipe(chosen, kept, most)
            measured = mine.assign(predicted=chosen.predict(columns(mine), constants), out=out)
            inside, outside = _errors(measured, bool(out.any() and not out.all()))
            picked = {n: constants[n] for n in chosen.choices}
            transfer = _left_out(chosen, mine, kept, most, picked) if mine.gpu.nunique() > 1 else 0.0
            names = {"gpu": ANY, "architecture": arch, "engine": ANY, "dtype": dtype, "kernel": name}
            done.append(fit_row(names=names, constants=constants, inside=inside, outside=outside, source=SOURCE,
                                mape_transfer=transfer, note="over " + ", ".join(sorted(mine.gpu.unique()))))  # fmt: skip
            print(f"{name:20s} {arch:16s} {dtype:5s} in {inside.mape:5.1f}  out {outside.mape:5.1f}  "
                  f"left-out GPU {transfer:5.1f}", flush=True)  # fmt: skip
    return done


def _even(rows: Any, most: int) -> Any:
    """Up to `most` rows, evenly from each GPU and engine."""
    groups = rows.groupby(["gpu", "backend"], observed=True)
    share = max(1, most // max(groups.ngroups, 1))
    return groups.sample(frac=1.0, random_state=0).groupby(["gpu", "backend"], observed=True).head(share)


def _left_out(recipe: Recipe, rows: Any, kept: Any, most: int, picked: Mapping[str, float]) -> float:
    """Mean over GPUs of the error on a GPU by constants of the others."""
    found = []
    for gpu in sorted(rows.gpu.unique()):
        constants = fit_recipe(recipe, kept[kept.gpu != gpu], most // 2, picked)
        other = rows[rows.gpu == gpu]
        found.append(error(recipe.predict(columns(other), constants), other.time.to_numpy()).mape)
    return float(np.mean(found))


def summary(table: Any, label: str) -> str:
    """Errors in and out of sample of all kernels of a cell together, as a text table: what the marks are compared with."""
    lines = []
    for (engine, dtype, kv), rows in table.groupby(["backend", "dtype", "kv_dtype"], observed=True):
        parts = []
        for gpu, cell in rows.groupby("gpu", observed=True):
            off = [error(c.predicted.to_numpy(), c.time.to_numpy()).mape for c in (cell[~cell.out], cell[cell.out])]
            parts.append(f"{gpu} {off[0]:.1f}/{off[1]:.1f}")
        lines.append(f"{label} {engine} {dtype} kv {kv} (in/out): " + ", ".join(parts))
    return "\n".join(lines)


HEADER = """Constants of the attention kernels (rooflm.kernels.attention), fitted by python -m rooflm.fitting.attention.
kernel: prefill, encoder (PrefillConstants), decode (DecodeConstants); -kv8 with a KV cache of 8 bits;
-hd<size> where another kernel of the engine takes that head size alone; -mha and -wide: TensorRT-LLM's decode with one
query head a KV head, and with more than 32. dtype is that of Q. Benchmarks ran with a warm cache: hot = 0 in a model.
30 % of (heads, KV heads, head size) groups kept aside; errors of warm predictions in per cent."""


def main(argv: Sequence[str] | None = None) -> None:
    """Fit all kinds and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="one kind, or one GPU (for a quick look; nothing is written)")
    args = parser.parse_args(argv)
    done: list[FitRow] = []
    for recipe in (PREFILL, DECODE, ENCODER):
        rows = load(args.data / f"attention_{recipe.kind}.parquet")
        if args.only and args.only != recipe.kind:
            continue
        fitted, table = fit_cells(recipe, rows)
        print(summary(table, recipe.kind), flush=True)
        done += fitted + fit_families(recipe, table)
    if not args.only:
        write_fits(args.out, _ordered(done), HEADER)


def _ordered(rows: Iterable[FitRow]) -> list[FitRow]:
    return sorted(rows, key=lambda r: (r.kernel, r.dtype, r.gpu, r.architecture, r.engine))


if __name__ == "__main__":
    main()
