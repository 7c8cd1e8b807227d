"""Fit `rooflm.kernels.gemm` to a table of measured GEMM kernels.

    python -m rooflm_fit.gemm --data DIR --out FILE

DIR holds gemm.parquet: source gpu backend version kernel dtype m n k time_us, one row a measured kernel. 30 % of the
(n, k) pairs are kept aside by a hash. One set comes out for each generation of cards, library and data type, fitted to
all its tables at once, and one a data type over everything. SMs draw operands from L2, so a generation's set holds
`c_sm` at the mean of its measured cards' bandwidth of L2 over DRAM's, and a card's goes by its own. In 16 bits every
engine calls cuBLAS; in narrower types engines differ in what they time (quantising) and in how their kernels split the
work. Of one card's tables the feed and the peak of full tiles cannot be told apart: in 16 bits they take the feed of
the generation's set of several cards. Cards whose units for a data type are not those of their generation (B300's for
4 bits) have a set of their own.

Left out, because the times are not those of a kernel on that GPU: vLLM's fp8_block (timed without CUDA graphs, so the
host's launch shows), SGLang on B300 (a copy of another GPU's table), its fp8_block on Blackwell (the benchmark hands
DeepGEMM scales of weights in fp32, which it makes ready by four kernels at each call; the server does so as it loads,
so TensorRT-LLM's table of the same library stands for it), Intel B60 (not in this formula's reach), and what
ran on a throttled card (`throttled`). TensorRT-LLM's nvfp4 on Blackwell cards with HBM was measured without tuning (up
to 128 rows 1.5 to 1.9 times what other engines' kernels of the same libraries take, from 1,024 rows on, and on cards
with GDDR, the same): vLLM's stand for it, and it stands for frameworks of training, whose products have thousands of
rows and which tune none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.kernels.constants import ANY, FitRow
from rooflm.kernels.gemm import GemmConstants, gemm_time
from rooflm.kernels.rates import Card
from rooflm.readers.devices import load_device
from rooflm.validation.folds import held_out
from rooflm_fit.common import (
    CATALOGUE_GPU,
    GPUS,
    L2_SAVES,
    Array,
    Error,
    Gpu,
    Param,
    error,
    fit,
    fit_row,
    folders,
    ideal_gemm_time,
    in_and_out,
    measured_table,
    say,
    warm_share,
    write_fits,
)

ELEMENT_BYTES = {
    "bf16": (2.0, 2.0), "fp16": (2.0, 2.0), "fp8": (1.0, 1.0), "int8": (1.0, 1.0), "fp8_block": (1.0, 1.0),
    "nvfp4": (0.5625, 0.5625), "int8_wo": (1.0, 2.0), "int4_wo": (0.5, 2.0),
}  # fmt: skip
"""Bytes an element of weights and activations in the kernel (nvfp4 with a scale each 16 elements); outputs take 2."""
OUT_BYTES = 2.0
DTYPE = {"sq": "int8"}
"""Names of dtypes in the table that we call otherwise: SmoothQuant multiplies int8 by int8."""
PARAMS: tuple[Param, ...] = (
    Param("t0", 2e-6, 0.3e-6, 40e-6), Param("eff_c", 0.9, 0.2, 1.1), Param("thr", 0.1, 0.0, 0.9, log=False),
    Param("eff_m", 0.85, 0.3, 1.1), Param("k0", 150.0, 5.0, 3000.0), Param("pen", 0.1, 0.0, 1.0, log=False),
    Param("c_sm", 3.0, 0.7, 15.0), Param("mix", 0.05, 0.001, 1.0), Param("split", 2e-6, 0.1e-6, 1e-3),
    Param("ramp", 2e-6, 0.05e-6, 10e-6),
)  # fmt: skip
LOW_PRECISION = (Param("q_pass", 1.0, 0.01, 30.0), Param("q_row", 100.0, 1.0, 1e5))
EFF_C_LOW = 1.3
"""Upper bound of eff_c in low precision: kernels with one large tile for all shapes lose the excess in k0 and thr."""
LARGE_WEIGHT = 2.0
"""Weight of kernels over 20 us (roofline) in the fit: they make up a model's step."""
STARTS: tuple[dict[str, float], ...] = (
    *({"c_sm": a, "pen": b, "split": s} for a in (2.5, 6.0) for b in (0.05, 0.7) for s in (2.5e-6, 1e-4)),
    {"pen": 0.9, "split": 5e-4, "k0": 400.0, "eff_c": 1.05},
    {"c_sm": 3.5, "pen": 0.9, "split": 1e-3, "k0": 400.0},
)
"""Several basins: libraries that split k and shrink tiles freely, and ones that do neither."""
WARM_L2 = {"ampere": 0.7, "hopper": 0.73, "blackwell": 0.52, "vllm": 0.95, "trtllm": 1.08, "sglang": 1.03}
"""Share of L2 that a benchmark's loop can keep warm, fitted on the bf16 tables: by generation where L2 is two halves
that hold duplicates (and where it hardly matters), by the engine's loop on GDDR cards, where L2 is in one piece."""
GDDR = ("ada", "blackwell-rtx")
"""Generations whose L2 is over five times faster than their DRAM: there a warm L2 also speeds up quantising."""
LARGE = 20e-6
JOINT_ROWS = 1500
"""Rows drawn from each table for a joint fit, so that every table weighs the same."""


class Table(NamedTuple):
    """One measured table: its names, shapes, times in s, and how its loop uses memory: bytes touched between
    two uses of the same weights and of the same activations, and the number of weight copies."""

    gpu: str
    engine: str
    dtype: str
    source: str
    m: Array
    n: Array
    k: Array
    time: Array
    footprint: Array
    footprint_act: Array
    copies: Array
    aside: NDArray[np.bool_]

    @property
    def device(self) -> Gpu:
        return GPUS[self.gpu]

    def take(self, rows: NDArray[np.intp]) -> Table:
        return self._replace(**{f: getattr(self, f)[rows] for f in self._fields[4:]})


def weight_copies(engine: str, dtype: str, weight: Array, l2: float) -> Array:
    """Weight buffers that the measuring loop cycles through, by its published source.

    aiconfigurator's collectors: vLLM and SGLang six (one for nvfp4 and block fp8 in vLLM), TensorRT-LLM as many as
    fill L2, at most five. Vidur ("torch") times whole layers, so its buffers are cold: many.
    """
    if engine == "trtllm":
        return np.clip(np.ceil(l2 / weight), 1.0, 5.0)
    return np.full_like(weight, 1e3 if engine == "torch" else 1.0 if (engine, dtype) == ("vllm", "nvfp4") else 6.0)


def _footprint_act(engine: str, gpu: str, once: Array, source: Array, quantised: bool) -> Array:
    """Bytes touched between two uses of the same activations; infinite where a warm L2 brings nothing.

    once: B of one GEMM; source: B of its 16-bit activations. SGLang's loop has activations of its own in each of six
    GEMMs, vLLM's and TensorRT-LLM's share one. Quantising gains nothing from L2 on HBM cards nor in vLLM's kernels,
    which do not reach the DRAM's rate anyway (seen in the fits).
    """
    if engine == "torch" or (quantised and (engine == "vllm" or GPUS[gpu].architecture not in GDDR)):
        return np.full_like(once, np.inf)
    return (once + source * quantised) * (6.0 if engine == "sglang" else 1.0)


@cache
def l2_rate(gpu: str) -> float:
    """B/s of a card's L2, by the catalogue."""
    return float(load_device(gpu).l2.bandwidth)


def mean_feed(tables: Sequence[Table]) -> float:
    """Bandwidth of L2 over DRAM's of the cards of these tables (geometric mean)."""
    ratios = [l2_rate(gpu) / GPUS[gpu].bandwidth for gpu in sorted({t.gpu for t in tables})]
    return float(f"{np.exp(np.mean(np.log(ratios))):.4g}")


def warm_fraction(gpu: str, engine: str) -> float:
    """The share of L2 that the engine's loop keeps warm on a GPU (see WARM_L2)."""
    generation = GPUS[gpu].architecture
    return WARM_L2.get(engine if generation in GDDR else generation, 1.0)


def load_tables(data: Path) -> list[Table]:
    """The measured tables that time real kernels (see the module's text for what is left out)."""
    frame = measured_table(data / "gemm.parquet")
    bad = ((frame.backend == "vllm") & (frame.dtype == "fp8_block")) | (
        (frame.backend == "sglang")
        & ((frame.gpu == "b300_sxm") | (frame.gpu.isin(["b200_sxm", "gb200"]) & (frame.dtype == "fp8_block")))
    )
    frame = frame[frame.gpu.isin(list(CATALOGUE_GPU)) & ~bad]
    tables = []
    for (gpu_name, engine, dtype_name), part in frame.groupby(["gpu", "backend", "dtype"], sort=True):
        gpu, dtype = CATALOGUE_GPU[str(gpu_name)], DTYPE.get(str(dtype_name), str(dtype_name))
        weight_bytes, act_bytes = ELEMENT_BYTES[dtype]
        m, n, k = (part[c].to_numpy(np.float64) for c in ("m", "n", "k"))
        copies = weight_copies(str(engine), dtype, n * k * weight_bytes, GPUS[gpu].l2)
        once = m * k * act_bytes + m * n * OUT_BYTES
        footprint = copies * n * k * weight_bytes + once
        footprint_act = _footprint_act(str(engine), gpu, n * k * weight_bytes + once, m * k * 2.0, act_bytes < 2.0)
        source = f"{part.source.iloc[0]} {engine} {part.version.iloc[0]}"
        time = part.time_us.to_numpy(np.float64) * 1e-6
        aside = held_out(part.n.astype(int), part.k.astype(int))
        tables.append(Table(gpu, str(engine), dtype, source, m, n, k, time, footprint, footprint_act, copies, aside))
    return tables


CALLERS = {
    ("trtllm", "blackwell", "nvfp4"): "torch",
    ("vllm", "blackwell", "nvfp4"): "vllm trtllm",
    ("trtllm", "blackwell", "fp8_block"): "trtllm flashinfer sglang",
}
"""Whose products a table's are, where not those of its engine alone (engine, generation, data type): see the module's
text for 4 bits; FlashInfer publishes TensorRT-LLM's of 8-bit blocks, so that other servers may be told to run them."""
SIXTEEN = ("bf16", "fp16")
"""Data types without quantising."""
COMMON = "bf16"
"""Data type in which all engines call one library. (Vidur's tables in fp16 are kernels' own times, in PyTorch of 2024:
without them the generations' sets are 10 to 12 % off on them, with them worse by up to 1 % on the others.)"""


def callers(table: Table) -> str:
    """The engines, apart by spaces, that call the library of a table."""
    key = (table.engine, table.device.architecture, table.dtype)
    return ANY if table.dtype == COMMON else CALLERS.get(key, table.engine)


REACH = 0.85
"""Share of what the other tables of its set reach below which a table was measured on a throttled card."""
LONG = 200e-6
"""s of arithmetic alone from which a product runs as long as a card's power allows."""


def reached(table: Table) -> float:
    """Median share of the peak that a table's long products bound by arithmetic reach."""
    g, (weight_bytes, act_bytes) = table.device, ELEMENT_BYTES[table.dtype]
    compute = 2.0 * table.m * table.n * table.k / g.peak(table.dtype)
    moved = table.n * table.k * weight_bytes + table.m * (table.k * act_bytes + table.n * OUT_BYTES)
    long = (compute > LONG) & (compute > 2.0 * moved / g.bandwidth)
    return float(np.median((compute / table.time)[long]))


def throttled(tables: Sequence[Table]) -> list[Table]:
    """The tables of a set that reach less than REACH of the median of its others."""
    shares = [reached(t) for t in tables]
    others = [[s for i, s in enumerate(shares) if i != own] for own in range(len(tables))]
    return [t for t, s, rest in zip(tables, shares, others, strict=True) if rest and s < REACH * np.median(rest)]


def predict(table: Table, constants: Mapping[str, float]) -> Array:
    """Times in s of a table's shapes as its benchmark loop would measure them: the shipped formula with a DRAM that is
    as much more efficient as a warm L2 serves of the traffic, and quantising that is as much cheaper."""
    c, g, (weight_bytes, act_bytes) = GemmConstants(**constants), table.device, ELEMENT_BYTES[table.dtype]
    warm_l2 = g.l2 * warm_fraction(table.gpu, table.engine)
    cold = 1.0 - L2_SAVES * warm_share(table.footprint, table.copies, warm_l2)
    cold_act = 1.0 - L2_SAVES * warm_share(table.footprint_act, 6.0, warm_l2)
    weights = table.n * table.k * weight_bytes + table.m * table.n * OUT_BYTES
    acts = table.m * table.k * act_bytes
    warm = c._replace(eff_m=c.eff_m * (weights + acts) / (weights * cold + acts * cold_act), q_pass=c.q_pass * cold_act)
    return np.asarray(
        gemm_time(
            table.m, table.n, table.k, weight_bytes=weight_bytes, act_bytes=act_bytes, out_bytes=OUT_BYTES,
            card=Card(g.peak(table.dtype), g.bandwidth, g.sms, l2=l2_rate(table.gpu)), c=warm,
        )
    )  # fmt: skip


def is_large(table: Table) -> NDArray[np.bool_]:
    """Rows whose plain roofline exceeds 20 us."""
    g, (weight_bytes, act_bytes) = table.device, ELEMENT_BYTES[table.dtype]
    return np.asarray(
        ideal_gemm_time(
            table.m, table.n, table.k, weight_bytes=weight_bytes, act_bytes=act_bytes, out_bytes=OUT_BYTES,
            peak=g.peak(table.dtype), bandwidth=g.bandwidth,
        ) > LARGE
    )  # fmt: skip


def fit_tables(
    tables: Sequence[Table],
    rows: int | None = None,
    starts: Sequence[Mapping[str, float]] = STARTS,
    held: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Constants fitted to the rows of `tables` that are not kept aside (`rows` of each, drawn with seed 0); held: those
    that stay."""
    own = dict(held or {})
    params = PARAMS
    if tables[0].dtype not in SIXTEEN:
        params = tuple(p._replace(high=EFF_C_LOW) if p.name == "eff_c" else p for p in PARAMS) + LOW_PRECISION
    params = tuple(p for p in params if p.name not in own)
    parts = []
    for table in tables:
        index = np.flatnonzero(~table.aside)
        if rows is not None and index.size > rows:
            index = np.random.default_rng(0).choice(index, rows, replace=False)
        parts.append(table.take(index))
    measured = np.concatenate([p.time for p in parts])
    weights = np.concatenate([np.where(is_large(p), LARGE_WEIGHT, 1.0) / p.time.size for p in parts])

    def model(c: Mapping[str, float]) -> Array:
        return np.concatenate([predict(p, {**c, **own}) for p in parts])

    return fit(model, measured, params, weights=weights, starts=starts) | own


def errors(tables: Sequence[Table], constants: Mapping[str, float]) -> tuple[Error, Error]:
    """Errors inside and outside the fitted shapes, over all rows of `tables`."""
    p = np.concatenate([predict(t, constants) for t in tables])
    t = np.concatenate([t.time for t in tables])
    return in_and_out(p, t, np.concatenate([t.aside for t in tables]))


def transfer(fitted: Sequence[Table], others: Sequence[Table], held: Mapping[str, float] | None = None) -> float:
    """Error in per cent on `others` of constants fitted to `fitted` (0 where either is empty)."""
    if not fitted or not others:
        return 0.0
    c = fit_tables(fitted, JOINT_ROWS, STARTS[::4], held)
    return float(np.mean([error(predict(t, c), t.time).mape for t in others]))


def joint_row(
    tables: Sequence[Table], architecture: str, engine: str, cards: Sequence[str], groups: Mapping[str, str],
    feed: Mapping[str, float] | None = None,
) -> FitRow:  # fmt: skip
    """One set of constants for several tables; transfer error by leaving out one group (`groups`: GPU -> group), or one
    engine's tables where there is one group. cards: those that it holds for; feed: c_sm and l2 where
    others' tables tell them."""
    out = throttled(tables) if architecture != ANY else []
    tables = [t for t in tables if t not in out]
    several = len({t.gpu for t in tables}) > 1
    held = {"l2": mean_feed(tables)} if architecture != ANY and several else dict(feed or {}) if not several else {}
    c = fit_tables(tables, JOINT_ROWS, held=held)
    inside, outside = errors(tables, c)
    apart = len({groups[t.gpu] for t in tables}) > 1
    label = [groups[t.gpu] if apart else t.engine for t in tables]
    left = [
        transfer([t for t, o in zip(tables, label, strict=True) if o != g],
                 [t for t, o in zip(tables, label, strict=True) if o == g], held)
        for g in sorted(set(label))
    ]  # fmt: skip
    names = {"gpu": " ".join(cards), "architecture": architecture, "engine": engine, "dtype": tables[0].dtype}
    said = "; throttled, left out: " + ", ".join(f"{t.gpu} {t.engine}" for t in out) if out else ""
    return fit_row(
        names=names, constants=c, inside=inside, outside=outside, note=said.removeprefix("; "),
        source=", ".join(sorted({f"{t.gpu} {t.source}" for t in tables})),
        mape_transfer=float(np.mean(left)) if len(left) > 1 else 0.0,
    )  # fmt: skip


def units(gpu: str, dtype: str) -> tuple[str, float]:
    """Generation of a card, and how many times the rate of 16 bits its units have for a data type."""
    card = GPUS[gpu]
    return card.architecture, round(card.peak(dtype) / card.peak16, 1)


def fit_all(tables: Sequence[Table]) -> list[FitRow]:
    """Every row of the calibration file, in its order. A set holds for the cards of its generation that no other set of
    its engines was measured on."""
    rows: list[FitRow] = []
    for dtype in dict.fromkeys(t.dtype for t in tables):
        same = [t for t in tables if t.dtype == dtype]
        sets: dict[tuple[tuple[str, float], str], list[Table]] = {}
        for t in same:
            sets.setdefault((units(t.gpu, dtype), callers(t)), []).append(t)
        for (kind, engine), mine in sets.items():
            own = {t.gpu for t in mine}
            others = {t.gpu for (_, whose), found in sets.items() if whose == engine for t in found} - own
            cards = [gpu for gpu, card in GPUS.items() if card.architecture == kind[0] and gpu not in others]
            where = kind[0] if len(sets) > 1 else ANY
            rows.append(joint_row(mine, where, engine, cards, {name: name for name in GPUS}, told(rows, where, dtype)))
            say(rows[-1])
        for engine in [ANY] if dtype in SIXTEEN else [ANY, *dict.fromkeys(t.engine for t in same)]:
            part = [t for t in same if engine in (ANY, t.engine)]
            if len({t.device.architecture for t in part}) > 1:
                rows.append(joint_row(part, ANY, engine, [ANY], {name: g.architecture for name, g in GPUS.items()}))
                say(rows[-1])
    return rows


def told(rows: Sequence[FitRow], architecture: str, dtype: str) -> dict[str, float]:
    """c_sm and l2 of a generation's set of several cards in 16 bits, for another set in 16 bits; empty without one."""
    mine = [r for r in rows if r.architecture == architecture and r.dtype in SIXTEEN]
    sixteen = [r.constants for r in mine if "l2" in r.constants]
    return {name: sixteen[0][name] for name in ("c_sm", "l2")} if sixteen and dtype in SIXTEEN else {}


HEADER = """Constants of the GEMM kernel time (rooflm.kernels.gemm), fitted by `python -m rooflm_fit.gemm`.
Source of the measurements: tables of measured kernels published by ai-dynamo/aiconfigurator (Apache-2.0) and
microsoft/vidur (MIT); `source` gives commit, engine and version. Efficiencies refer to the datasheet figures in
rooflm_fit.common.GPUS. Errors are mean absolute percentage errors; 30 % of (n, k) pairs were kept aside (_out)."""


def main() -> None:
    """Fit everything and write the calibration file."""
    arguments = folders(__doc__)
    write_fits(arguments.out, fit_all(load_tables(arguments.data)), HEADER)


if __name__ == "__main__":
    main()
