"""Engine: the software that runs a model, as the few constants that matter for time and memory.

A row of data/engines/*.toml: which kernels it uses (fused or not, which attention, which all-reduce), what the host
costs a kernel and a step, whether decoding is replayed from CUDA graphs, and how it spends memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rooflm.units import Num

if TYPE_CHECKING:
    from rooflm.catalogue.residuals import Residuals


@dataclass(frozen=True)
class Engine:
    """Constants of one version of one engine; times in s, memory in bytes.

    kernels: whose kernels (a key of the calibration tables). phase: "inference" or "training".
    fused: norms take the residual add in, Q/K/V and gate/up are one product each, the activation multiplies in place,
    rotary embedding and cache write are one kernel; unfused: each is a chain of plain kernels.
    flash: attention keeps its scores on chip; decode_flash: so does decoding (one kernel), whatever the prefill does.
    issue_prefill, issue_decode: host time a kernel launch (a CUDA graph makes the second small). step: host time a
    forward pass; sequence: host time a sequence in a pass (sampling, bookkeeping); request: once a request (tokenise,
    schedule, first response); overlap: the host prepares the next step while the device runs, so that step and sequence
    costs show only when the device is done first.
    gap: device idle time between two dependent kernels (negative: launches overlap).
    all_reduce: "nccl" or "custom" (one- and two-shot kernels inside a node). collective_factor: time of its
    collectives over today's; collective_floor: the same of their latency alone. kv_reread: time of query heads that
    read the KV cache each by itself, over that of 16-bit values at L1's rate; kv_shared: largest group of query heads
    that shares one read instead (no group does within a sliding window, where kv_reread is above 0). kv_convert: vector
    operations that an 8-bit cached value costs where the device does not know fp8.
    memory_fraction: share of device memory that it may use; context: bytes of CUDA context and libraries;
    free_fraction: share of what is left beside weights, activations and buffers that the KV cache may take;
    workspace: fixed buffers; token_budget: most new tokens in one prefill pass; block: tokens a KV block.
    pipelined: pipeline stages work on different micro-batches at the same time;
    pipeline_loss: share of a prefill's passes that run as if they did not; stage_tokens: most
    new tokens in one micro-batch of a pipeline; even_stages: layers and head are shared out by bytes, not by count.
    vocab_parallel: the embedding table is split over the tensor group. merged: Q, K, V and gate, up are one product
    each. epilogue: rotary embedding and activation happen inside the products and cost no traffic of their own.
    rope_inside: the attention kernel (as measured) turns Q and K and writes the cache. alike: share of
    tokens that take the same experts as others, in benchmarks that repeat a prompt; skew: how unequally popular experts
    are (`ops.popularity`; 0: alike); shared_aside: most sequences of a decoding pass at which the shared expert's
    kernels run beside the routed experts' (a second stream, or one kernel for both). gemv: own
    kernels for few rows, which stream weights of any width without tiles; dequant: passes that spread narrow weights
    out to 16 bits before the products of many rows; convert: bytes moved a value between fp32 activations and the
    16-bit operands and results of such a product. max_sequences: running limit.
    waves: sequences beyond that limit or the KV cache wait and run in later rounds (off: they count as out of memory).

    Training: attention_kernel: a row of data/calibration/training.toml; selective: what selective recomputation means,
    "core" (the attention core) or "ops" (all but attention and every other product, as in torchtitan);
    early_stop: recomputation ends with the last tensor that is needed, so that the closing product of a layer is not
    run again (PyTorch 2.1 and later, XLA); narrow_gather: gathers of a tensor group carry 8-bit values where products
    take them;
    stream_share: share of memory bandwidth that elementwise kernels reach on a micro-batch's large tensors;
    zero, sequence_parallel: what the framework does unless told otherwise; grad_bytes: bytes a gradient as accumulated
    and reduced; grad_extra_bf16: bytes a gradient kept beside it with bf16 weights (DeepSpeed's fp32 accumulation);
    grad_overlap, param_overlap: gradient reduction behind the backward pass, gathers of parameters behind the forward
    pass (FSDP: behind both); tp_overlap, cp_overlap, ep_overlap: share of that communication that may hide behind
    compute (cp_overlap: behind the attention that runs beside it); pp_overlap: sends between stages hide behind compute
    where the schedule is interleaved; overlap_tax: compute time lost a second of hidden communication; ring: context
    parallelism passes K and V around a ring, else it gathers them; dedup: as in `graph.Style`; grouped: one kernel
    holds the products of all experts, else each expert's products and casts are kernels of their own, at expert_launch
    each over their time; moe_host: host time of one layer of experts, forward and backward, for one micro-batch where
    it is issued kernel by kernel (what the device does not cover shows); chunk_host: the same for one pass of a virtual
    stage where exchanges run beside another micro-batch (ep_overlap): plans of both are laid side by side first;
    graphed: share of both which CUDA graphs hold;
    regather: FSDP gathers again at each micro-batch even with a pipeline; logit_bytes: bytes a logit at the loss's
    fullest moment (16-bit and fp32 copies, and their gradients where these are not in place);
    dropout: the framework's recipes train with it. gemm_factor, bmm_factor, attention_factor, attention_backward,
    stream_factor, moe_factor: time of a kernel in a training step over its calibrated (warm, alone) time;
    attention_backward: of the backward pass a FLOP over the forward. dp_factor: the same for collectives of the
    data-parallel group. speed: factor of all device times when serving; prompt: further factor of what prompt tokens
    add to a pass (both fitted under load, by card: see `under_load`). eager: host time a launch of a pass with prompts
    that no CUDA graph holds, where it is above issue_prefill (fitted under load: Python issues what the graph's nodes
    stand for); captured: most tokens of such a pass that graphs do hold.
    fragmentation: memory that the framework holds over what its tensors need. residuals: one's own measurements over
    the predictions, from the engine's own file.
    """

    name: str
    version: str = ""
    date: str = ""
    phase: str = "inference"
    kernels: str = "vllm"
    fused: bool = True
    flash: bool = True
    decode_flash: bool = True
    issue_prefill: Num = 0.0
    issue_decode: Num = 0.0
    step: Num = 0.0
    sequence: Num = 0.0
    request: Num = 0.0
    overlap: bool = False
    gap: Num = 0.0
    all_reduce: str = "nccl"
    collective_factor: Num = 1.0
    collective_floor: Num = 1.0
    kv_reread: Num = 0.0
    kv_shared: Num = 1.0
    kv_convert: Num = 0.0
    memory_fraction: Num = 1.0
    free_fraction: Num = 1.0
    context: Num = 0.0
    workspace: Num = 0.0
    token_budget: Num = float("inf")
    block: Num = 1
    pipelined: bool = True
    pipeline_loss: Num = 0.0
    stage_tokens: Num = float("inf")
    even_stages: bool = False
    vocab_parallel: bool = False
    merged: bool = True
    epilogue: bool = False
    rope_inside: bool = False
    alike: Num = 0.0
    skew: Num = 0.0
    shared_aside: Num = 0.0
    gemv: bool = False
    dequant: Num = 0.0
    convert: Num = 0.0
    max_sequences: Num = float("inf")
    waves: bool = False
    zero: Num = 1
    sequence_parallel: bool = True
    grad_bytes: Num = 4
    grad_extra_bf16: Num = 0.0
    grad_overlap: bool = True
    param_overlap: bool = True
    tp_overlap: Num = 0.0
    cp_overlap: Num = 1.0
    ep_overlap: Num = 0.0
    pp_overlap: bool = True
    overlap_tax: Num = 0.0
    ring: bool = False
    dedup: bool = True
    grouped: bool = False
    expert_launch: Num = 0.0
    moe_host: Num = 0.0
    chunk_host: Num = 0.0
    graphed: Num = 0.0
    regather: bool = False
    logit_bytes: Num = 6.0
    dropout: bool = False
    attention_kernel: str = "cudnn"
    selective: str = "core"
    early_stop: bool = False
    narrow_gather: bool = False
    stream_share: Num = 0.8
    gemm_factor: Num = 1.0
    bmm_factor: Num = 1.0
    attention_factor: Num = 1.0
    decode_factor: Num = 1.0
    attention_backward: Num = 1.0
    stream_factor: Num = 1.0
    moe_factor: Num = 1.0
    speed: Num = 1.0
    prompt: Num = 1.0
    eager: Num = 0.0
    captured: Num = 0.0
    dp_factor: Num = 1.0
    fragmentation: Num = 1.0
    residuals: Residuals | None = None


IDEAL = Engine("ideal", epilogue=True)
"""No overheads at all, everything fused: the physical lower bound."""
