"""Calibrated times of what streams: elementwise kernels, copies, and scans and states of recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rooflm.catalogue.fields import words_in
from rooflm.graph.ops import Op
from rooflm.graph.recurrent import CHUNK
from rooflm.kernels.constants import ANY
from rooflm.kernels.elementwise import LEAST, MEASURED_KERNEL, ElementwiseConstants, elementwise_time
from rooflm.kernels.expert_kernels import routed_inside
from rooflm.kernels.lookup import Where, constants
from rooflm.kernels.products import has_shape, sm_limit
from rooflm.kernels.rates import Rates
from rooflm.kernels.training_factors import scans
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, highest, larger, pick, smaller

STATE_DRAM_SHARE = 0.83
"""Share of DRAM that decoding's kernels of recurrent states reach at most (H100 0.82 to 0.84: vLLM's pull requests
43083 and 48110; B300 0.85: TensorRT-LLM's 14869; docs/decisions/0260)."""
CAT_BYTES = 5.3
"""Bytes a clock of an SM that torch.cat reads and writes of a cache: strided tensors go an element a thread, its index
divided out by four sizes (CatArrayBatchedCopy; Llama 7B and 13B in 16 to 64 sequences on A100, decision 219)."""


def stream_times(ops: Sequence[Op], shape: tuple[int, ...], w: Where, s: Scenario, r: Rates) -> list[Num]:
    """Elementwise kernels: each launch of a chain pays its floor and moves its share of the bytes. A biased router
    beside a shared expert is a longer chain where the engine's own kernels run and none of them has its shape.

    What was measured of norms, activations and rotary embeddings are kernels of 2023 (0.35 to 0.6 of the bandwidth, a
    quarter of an SM's share on a row); engines that vectorised them since stream as the sum of two tensors does."""
    times: list[Num] = []
    k = s.engine.kernels
    constants_of = {kind: stream_constants(kind, w, k.vectorised) for kind in {op.kind for op in ops}}
    compiles = s.cluster.device.kernel_generation in words_in(k.gates_on)
    for op in ops:
        traffic = op.bytes / larger(op.launches, 1)
        c = constants_of[op.kind]
        row: Num = 0.0
        if op.kind == "gate":
            alone = has_shape(op.shape[0], op.shape[1], k.gates) | (not compiles)
            c = c._replace(t0=pick(alone, c.t0, larger(c.t0, LEAST["index"] * k.gate_chain / op.launches)))
        elif op.shape and op.kind != "scan" and not (k.spread and op.kind in ("activation", "rope")):
            row = traffic / larger(op.shape[0], 1)
        if op.name == "route" and k.inner_gates and routed_inside(s):
            times.append(0.0 * row)
            continue
        one = elementwise_time(traffic, bandwidth=r.dram, c=c, row_bytes=row, sms=r.sms)
        if op.kind == "kv_write" and not k.fused:  # the cache is joined anew
            one = larger(one, traffic / (sm_limit(s, CAT_BYTES) * r.larger_cores))
        one = one * op.launches
        if op.kind == "scan" and op.shape:
            prompts = _chunked_scan_time(op, s, r) if highest(op.launches) > 2 else 0.0
            one = larger(one, pick(op.launches > 2, prompts, _state_update_time(op, s, r)))
        times.append(one)
    return times


def fused_scan(op: Op, s: Scenario) -> bool:
    """Whether one kernel scans a prompt by gated deltas."""
    return any(op.shape[1:2]) and s.cluster.device.kernel_generation in words_in(s.engine.kernels.fused_scans)


def _chunked_scan_time(op: Op, s: Scenario, r: Rates) -> Num:
    """Seconds of a prompt's scan by chunks: SMs share out its work, but a share of it (of Triton's one kernel, of
    FlashInfer's all: docs/decisions/0241) goes chunk by chunk of a sequence, so that few heads leave SMs idle."""
    new, device = op.shape[0], s.cluster.device
    family = "fused_scan" if fused_scan(op, s) else "delta_scan" if highest(new) else "scan"  # no tokens in its shape
    row = scans(family, device.name, device.kernel_generation)
    chunks = smaller(new, s.workload.prompt) / CHUNK  # a pass of a server holds several prompts
    work = row["roofline"] * op.flops / r.peak[op.rate]
    return work * (1.0 - row["share"]) + larger(work * row["share"], chunks * row["chunk"])


def _state_update_time(op: Op, s: Scenario, r: Rates) -> Num:
    """Seconds of decoding's kernel of recurrent states, timed whole, so that the engine's factor does not apply: what
    its blocks draw, and STATE_DRAM_SHARE of DRAM at most."""
    least = larger(op.bytes / (STATE_DRAM_SHARE * r.dram), op.flops / sm_limit(s, op.shape[2]))
    least = least / s.engine.factors.stream_factor
    return pick((op.shape[2] > 0) & (s.cluster.device.vendor in words_in(s.engine.kernels.states_on)), least, 0.0)


@lru_cache(maxsize=4096)
def stream_constants(kind: str, w: Where, vectorised: str) -> ElementwiseConstants:
    """Constants of a kind of streaming kernel."""
    measured = MEASURED_KERNEL.get(kind, "add")
    c: ElementwiseConstants = constants("elementwise", ElementwiseConstants, w, "fp16", (measured,))
    if vectorised in (measured, "all"):
        add = constants("elementwise", ElementwiseConstants, w._replace(gpu=ANY, generation=ANY), "fp16", ("add",))
        c = add._replace(t0=larger(c.t0, add.t0))  # (norms on A100 were fitted with hardly any floor)
    return c._replace(t0=larger(c.t0, LEAST.get(kind, 0.0)))
