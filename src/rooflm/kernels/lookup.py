"""Which fitted constants a kernel takes: by device, engine, data type and kernel, with the documented fall-backs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.hardware import Device
from rooflm.catalogue.quant import Quant
from rooflm.errors import UnknownNameError
from rooflm.kernels.constants import ANY, LEVELS, TWINS, Match, entries_of, lookup, typed
from rooflm.kernels.derating import card_file, derating, power_slowdown
from rooflm.kernels.mla import MlaDecodeConstants
from rooflm.kernels.rates import Rates, rates_of
from rooflm.scenario.kept import kept
from rooflm.scenario.scenario import Efficiency
from rooflm.units import highest, smaller


class Where(NamedTuple):
    """What the look-up of constants goes by."""

    gpu: str  # the card whose kernels these are (`Device.kernels_from`)
    generation: str  # whose sets stand in for a card without any
    kernels: str  # whose, a key of the calibration tables
    quant: str  # data type of quantised products as the tables know it
    half: str  # of the others
    engines: tuple[str, ...] = ()  # those whose factors of cards hold
    rest: str = ""  # of products that a scheme leaves wider than its narrowest (none: as half)


def weight_dtype(q: Quant, computed: str) -> str:
    """The name by which the calibration tables know a scheme's products. NVFP4's weights alone, as on cards without
    units for them, run on integers' kernels, Marlin's (vLLM pull request 18000, SGLang 19652).

    >>> weight_dtype(Quant("int4", 4), "bf16"), weight_dtype(Quant("fp8-block", 8, 8, block=True), "fp8")
    ('int4_wo', 'fp8_block')
    """
    bits, act = highest(q.weight_bits), highest(q.act_bits)
    if q.block:
        return "fp8_block" if computed == "fp8" else "int8_wo"
    if bits >= 16:
        return computed
    if act >= 16:
        if q.kind == "float" and bits <= 4 and q.by_32:
            return "mxfp4"
        return "int4_wo" if bits < 6 else "int8_wo"
    if bits <= 4:
        return "nvfp4" if act <= 4 else "mxfp4_mxfp8" if q.kind == "float" else "int4_wo"
    return computed if computed in ("fp8", "int8") else "int8_wo"


@kept
def setting(device: Device, engine: Engine, scheme: Quant, efficiency: Efficiency) -> tuple[Where, Rates]:
    """What picks the constants of kernels, and the rates that the device reaches of its datasheet."""
    r = rates_of(device, scheme, efficiency)
    quant, engines = weight_dtype(scheme, r.dtype["quant"]), (engine.runs, engine.kernels.sums)
    rest = weight_dtype(Quant("", 8, 8, block=True), r.dtype["rest"]) if scheme.rest_act_bits else ""
    half, whose = r.dtype["half"], engine.kernels.whose
    w = Where(device.kernels_from, device.kernel_generation, whose, quant, half, engines, rest)
    reached = derating(device, *w.engines)
    dram = smaller(r.dram * reached.bandwidth, reached.sm_stream * device.sms * device.clock)
    compute = reached.compute / power_slowdown(device)
    return w, r._replace(peak={k: v * compute for k, v in r.peak.items()}, dram=dram)


@lru_cache(maxsize=4096)
def constants(family: str, kind: type[Any], w: Where, dtype: str, kernels: tuple[str, ...] = ("",)) -> Any:
    """Constants of a kernel family as its NamedTuple `kind`: of the first of `kernels` that `nearest_of` finds."""
    return typed(kind, nearest_of(family, w, dtype, kernels).row)


def nearest_of(family: str, w: Where, dtype: str, kernels: tuple[str, ...]) -> Match:
    """The calibration row of the first of these kernels, most special first, that was measured in this very engine, at
    a level no farther than that of the last one, the plain kernel. Kernels of COMMON also count where they were
    measured in another engine."""
    plain = lookup(family, w.gpu, w.generation, w.kernels, dtype, kernels[-1])
    for kernel in [k for k in kernels[:-1] if any(e.kernel == k for e in entries_of(family))]:
        try:
            match = lookup(family, w.gpu, w.generation, w.kernels, dtype, kernel)
        except UnknownNameError:
            continue
        measured = w.kernels in match.row.engine.split() and LEVELS.index(match.level) <= LEVELS.index(plain.level)
        if measured or kernel in COMMON:
            return match
    return plain


EAGER = 5e-5
"""s: the floor of a kernel above which its table was measured eagerly, launch by launch from the host."""


@lru_cache(maxsize=4096)
def in_graphs(w: Where, dtype: str, kernel: str) -> tuple[Any, ...]:
    """Constants of a library's kernel over latents as it runs inside a CUDA graph, of which the fastest counts, from
    this very card, else from cards of its generation, else of the nearest of its kin ([kin] in devices.toml), else
    over all cards: the engine's own where its table was measured in graphs, else those of every other engine that was.
    Without any, the usual look-up (`constants`).

    A kernel that leaves a sequence whole is its engine's last resort (TensorRT-LLM's on cards without latent kernels):
    elsewhere Triton's cut it, on any card."""
    same = [e for e in entries_of("mla") if e.dtype in (dtype, TWINS.get(dtype)) and e.kernel == kernel]
    rows = [e for e in same if w.gpu in e.gpu]
    for generation in (w.generation, *card_file().kin.get(w.generation, "").split(), ANY):
        rows = rows or [e for e in same if e.architecture == generation]
    by_engine = {engine: typed(MlaDecodeConstants, e.row) for e in rows for engine in e.engine}
    graphed = {engine: c for engine, c in by_engine.items() if c.floor_s < EAGER}
    if w.kernels in graphed:
        return (graphed[w.kernels],)
    cut = tuple(c for c in graphed.values() if c.max_splits != 1)
    at = (w.half, (ANYWHERE,)) if graphed else (dtype, (kernel,))  # Triton's widens a narrow cache
    return cut or (typed(MlaDecodeConstants, nearest_of("mla", w, *at).row),)


ANYWHERE = "mla-decode-triton"
"""Kernel that runs on any card."""
COMMON = ("prefill-kv8",)
"""Kernels that every engine has, and that differ more from the plain one than between engines."""
