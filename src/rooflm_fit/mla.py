"""Fit the MLA constants: python -m rooflm_fit.mla --data DIR --out FILE (DIR holds mla.parquet).

30 % of the numbers of heads would be two of seven, so whole (batch, heads) pairs are kept aside by a hash instead.
vLLM's rows were timed from the host without CUDA graphs: their floor (floor_s) is the host's, not the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rooflm.kernels.constants import FitRow
from rooflm.kernels.mla import MlaDecodeConstants, MlaPrefillConstants, mla_decode_time, mla_prefill_time
from rooflm.kernels.rates import Card
from rooflm.validation.folds import held_out
from rooflm_fit.attention import (
    COPIES,
    HOT_GAIN,
    Columns,
    Recipe,
    fit_cells,
    fit_families,
    load,
    split_warm,
    summary,
    write,
)
from rooflm_fit.attention import columns as attention_columns
from rooflm_fit.common import GPUS, Array, Param, folders, hot_share

PROJECTING = ("vllm",)
"""Engines whose measured prefill call includes the up-projection of the latent, which a model's graph has apart."""
PROJECTED = 512 * (192 - 64 + 128)
"""Weights of that product a head: from the latent to keys without their rotary part, and values."""

NARROWING = "blackwell"
"""Generation on which servers turn Q, K and V of a prompt into the cache's 8 bits (docs/decisions/0164)."""

LIBRARIES = {"triton"}
"""Kernels that a server runs on any card if it is told to (`engine.attention`): they have rows under their own name."""

WIDE_HEADS = 64
"""TensorRT-LLM has a kernel of its own for more heads with an 8-bit cache on RTX Blackwell, three times as fast: left
out."""


def columns(rows: Any) -> Columns:
    """Columns of the predictors (SI) from mla.parquet: those of any attention, and whether a call projects."""
    return attention_columns(rows) | {"project": np.where(rows.backend.isin(PROJECTING), 1.0, 0.0)}


def predict_prefill(x: Columns, constants: Mapping[str, float]) -> Array:
    """Seconds of the measured prefill calls."""
    c: Any = MlaPrefillConstants(**constants)
    c = c._replace(softmax_dim=c.softmax_dim * x["softmax"])
    project = x["project"] * 2 * x["batch"] * x["new"] * x["heads"] * PROJECTED / (c.eff * x["peak"])
    time = mla_prefill_time(
        x["batch"], x["new"], np.zeros(1), x["heads"], q_bytes=x["q_bytes"],
        card=Card(x["peak"], x["bandwidth"], x["sms"]), c=c, beside=project,
    )  # fmt: skip
    return np.asarray(time)


def predict_decode(x: Columns, constants: Mapping[str, float]) -> Array:
    """Warm-cache seconds of the measured decode calls."""
    c, warm = split_warm(MlaDecodeConstants, constants)
    hot: Any = hot_share(x["batch"] * x["kv_len"] * 576 * x["kv_bytes"], x["l2"], warm)
    time = mla_decode_time(
        x["batch"], x["kv_len"], x["heads"], kv_bytes=x["kv_bytes"],
        card=Card(x["peak"], x["bandwidth"], x["sms"]), c=c._replace(eff_m=c.eff_m / (1.0 - HOT_GAIN * hot)),
    )  # fmt: skip
    return np.asarray(time)


PREFILL = Recipe(
    "mla-prefill",
    predict_prefill,
    (
        Param("launch_s", 1e-5, 5e-7, 1e-4), Param("eff", 0.6, 0.02, 1.1), Param("tile_s", 2e-6, 1e-8, 1e-4),
        Param("passes", 1.0, 0.0, 40.0, log=False), Param("sharp", 1.6, 1.0, 8.0),
        Param("throttle", 0.1, 0.0, 0.6, log=False), Param("tail", 0.6, 0.0, 2.5, log=False),
        Param("floor_s", 1e-5, 1e-6, 1e-3),
    ),
    {"tile": (64.0, 128.0, 256.0)},
    columns,
    {},
)  # fmt: skip
NARROW = PREFILL._replace(
    params=(
        *(Param("eff", 1.2, 0.02, 2.2) if p.name == "eff" else p for p in PREFILL.params),
        Param("softmax_dim", 100.0, 0.0, 1000.0, log=False),
    )
)
"""Of 8-bit queries over an 8-bit cache: twice the rate of 16 bits, at which softmax binds."""
DECODE = Recipe(
    "mla-decode",
    predict_decode,
    (
        Param("launch_s", 8e-6, 5e-7, 1e-4), Param("eff_m", 0.8, 0.1, 1.0),
        Param("ramp_s", 4e-6, 0.0, 5e-5, log=False), Param("sharp", 2.0, 1.0, 8.0), Param("sm_bw", 1.5, 0.02, 20.0),
        Param("cta_s", 3e-6, 1e-8, 1e-3), Param("split_s", 5e-6, 0.0, 8e-5, log=False),
        Param("eff_c", 0.5, 0.002, 1.2), Param("l2_frac", 0.6, 0.01, 2.0), Param("floor_s", 1e-5, 1e-6, 1e-3),
    ),
    {"block": (64.0, 128.0), "max_splits": (1.0, -8.0, 32.0, 128.0), "group_tile": (16.0, 32.0, 64.0, 128.0)},
    columns,
    {},
)  # fmt: skip


def cells(rows: Any, kind: str, narrow: bool = False) -> Iterator[tuple[dict[str, str], Any]]:
    """(names, rows) of a kind: one a GPU, engine, dtype and KV dtype, of what predictions ask for. narrow: prompts of
    8-bit queries, else all others."""
    for (gpu, engine, kv), cell in rows.groupby(["gpu", "backend", "kv_dtype"], observed=True):
        arch = GPUS[gpu].architecture
        names = {"gpu": gpu, "architecture": arch, "engine": engine, "dtype": kv, "kernel": kind}
        if (engine, kind) == ("sglang", "mla-prefill") and arch in ("hopper", "ada", "blackwell-rtx"):
            continue  # measured on the latent itself (absorbed, 3.1 times the work); its server expands keys and values
        if (kind == "mla-prefill" and kv == "fp8") != narrow or (narrow and arch != NARROWING):
            continue  # 8-bit queries are what servers run on this generation alone
        if (engine, arch, kind, kv) == ("trtllm", "blackwell-rtx", "mla-decode", "fp8"):
            cell = cell[cell.heads <= WIDE_HEADS]
        yield names, cell
        if kind == "mla-decode" and set(cell.kernel) <= LIBRARIES:  # and what runs where a server is told to use it
            yield names | {"kernel": f"{kind}-{cell.kernel.iloc[0]}"}, cell


def shapes(table: Any) -> Any:
    """One row a shape: the median of its times."""
    by = [c for c in table.columns if c not in ("time", "time_us", "tp")]
    return table.groupby(by, observed=True).time.median().reset_index()


def split(rows: Any) -> Any:
    """True for rows kept aside: whole (batch, heads) pairs."""
    return held_out(rows.batch, rows.heads)


APART = 50.0
"""Error (%) out of sample from which a set mixes kernels that have nothing in common, and stands in for no card:
SGLang's with an 8-bit cache are FlashAttention 3 on Hopper, five times slower a byte than TensorRT-LLM's on Blackwell.
"""

HEADER = """Constants of the MLA kernels (rooflm.kernels.mla), fitted by python -m rooflm_fit.mla.
kernel: mla-prefill (MlaPrefillConstants), mla-decode (MlaDecodeConstants); dtype is that of the KV cache (Q is bf16,
but of 8 bits in prefill over fp8, where B300's rows in SGLang are GB300's, whose units are the same).
floor_s of vLLM's rows is the host's time of a call without CUDA graphs: set it to 0 where graphs replay the step.
30 % of (batch, heads) pairs kept aside; errors in per cent."""


def main(argv: Sequence[str] | None = None) -> None:
    """Fit both phases and write the file."""
    args = folders(__doc__, argv)
    rows, everywhere = (shapes(load(args.data / "mla.parquet", copies)) for copies in (COPIES, frozenset()))
    done: list[FitRow] = []
    for recipe in (PREFILL, NARROW, DECODE):
        narrow = recipe is NARROW
        phase = (everywhere if narrow else rows).query("phase == @kind", local_dict={"kind": recipe.kind[4:]})
        fitted, measured = fit_cells(recipe, cells(phase, recipe.kind, narrow), split)
        print(summary(measured, recipe.kind), flush=True)
        done += fitted + fit_families(recipe, measured, fitted, split)
        write(args.out, [r for r in done if r.mape_out < APART], HEADER)


if __name__ == "__main__":
    main()
