"""Engine: the software that runs a model, as the few constants that matter for time and memory.

A row of data/engines/*.toml: which kernels it uses, what the host costs a kernel and a step, how it spends memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar

from rooflm.catalogue.abilities import Abilities
from rooflm.catalogue.fields import EACH, abouts, count, each, flag, formula, named, number, shapes, share, sizes, word
from rooflm.shown.records import engine_line
from rooflm.units import Num

INF = float("inf")
SCHEDULERS = ("continuous", "prompts-first", "prefill-first", "in-flight", "no-evict", "static")
"""What makes a server's passes, by name (docs/serving.md; `serving.schedulers`)."""
POLICIES = ("fcfs", "priority", "shortest")
"""Order of its queue: first come first served, by the requests' priority (small first), or shortest prompt first."""


@dataclass(frozen=True)
class ServerOptions:
    """Options of an engine's server, as its documentation names them; none is fitted."""

    scheduler: str = word("continuous", "what makes its passes", SCHEDULERS)
    policy: str = word("fcfs", "order of its queue", POLICIES)
    budget: int = count(0, "most new tokens in a pass of a rank (0: the engine's token_budget)", 0)
    budgets: str = word("", "the same by card, as 35:2048 60:4096: below so many GiB; ampere:2048: of a kind of card")
    limits: str = word("", "max_sequences by card, likewise")
    graphed: str = word("", "most sequences that decoding graphs hold by card, likewise")
    graphed_few: str = word("", "the same of tensor groups of fewer than four")
    pieces: str = word("", "most tokens of a pass with prompts that graphs hold, by card or family of a model's code")
    max_sequences: int = count(0, "running limit of a rank (0: the engine's max_sequences)", 0)
    shared: str = word("", "ranks of attention share out its token budget, or have half each", ("", "budget", "half"))
    families: str = word("", "running limit of all those ranks by the family of a model's code, as mamba2:256")
    preemption: str = word("recompute", "what becomes of sequences that lose their memory", ("recompute", "swap"))
    stream_interval: int = count(1, "tokens that are made before the client sees the first, and the next ones")
    streams: int = count(1, "processes that stream tokens to clients (0: one a rank of attention)", 0)
    receive_interval: int = count(1, "decode steps between two looks at the queue")
    lookahead: int = count(0, "1 where a pass is made up while one runs: what arrives meanwhile waits for the next", 0)
    wait_steps: int = count(0, "decode steps that prompts wait for wait_share of the budget, or for one a rank", 0)
    wait_share: float = share(0.0, "share of the budget that prompts wait for")
    prefix_caching: bool = flag(False, "blocks of earlier prompts are found again by hash")
    uncached: str = word("", "families (model_type) and kinds of recurrent layers whose prompts it does not keep")
    cache_block: int = count(512, "tokens a hash")
    speculative: int = count(0, "tokens guessed a step", 0)
    acceptance: float = share(0.7, "chance that a guess is right")
    draft: float = number(0.03, "cost of a guess over that of a step")
    gained: float = number(0.0, "tokens that a step gains, where it is known (0: worked out of acceptance)")
    swap_bandwidth: float = number(25e9, "between device and host, all GPUs of the instance", "bytes/s", above=True)
    static_fraction: float = share(0.0, "share of free memory for weights and cache (0: memory_fraction, for all)")
    reserved: str = formula("without it, the formula of the MiB that are kept beside both",
                            ("card", "tokens", "graphed", "devices", "ranks"))  # fmt: skip
    all_parsed: bool = flag(False, "requests that come at once are all parsed before the first of them goes on")
    handed_on: bool = flag(False, "a decode server gets a request when the prefill server has answered, not with it")
    cache_blocks: int = count(0, "blocks of its KV cache on a rank, where they are known (0: what memory leaves)", 0)


ATTENTION = ("cudnn", "cudnn-2024", "sdpa", "sdpa-2.8", "sdpa-blackwell", "fa1", "fa2", "flex")
"""Attention kernels of training by name: rows of training.toml, and what PyTorch picks by generation (sdpa...)."""


@dataclass(frozen=True)
class Kernels:
    """Which kernels it runs, and how a graph is built of them."""

    whose: str = word("torch", "whose measured kernels it runs: a key of the calibration tables (none: the roofline)")
    fused: bool = flag(True, "norms take the residual add in, Q/K/V and gate/up are one product each, the activation "
                       "multiplies in place, rotary embedding and cache write are one kernel; else each is a chain of "
                       "plain kernels")  # fmt: skip
    early: bool = flag(False, "training: libraries older than today's cards ([early] of training.toml)")
    flash: bool = flag(True, "attention keeps its scores on chip")
    flash_heads: str = sizes("over prompts, widths of heads with which it does so (none: all)")
    decode_flash: bool = flag(True, "so does decoding (one kernel), whatever the prefill does")
    all_reduce: str = word("nccl", "nccl, in a node its own (custom) or FlashInfer's", ("nccl", "custom", "flashinfer"))
    one_link: bool = flag(False, "its library takes one link of a card of a mesh, unless all cards take part")
    vectorised: str = word("", "kernels of whole vectors, which stream as sums do: norms, or all", ("", "norm", "all"))
    spread: bool = flag(False, "activations and rotary embeddings share out a token's row among SMs (norms never do)")
    reduce_norm: Num = number(0.0, "largest all-reduce whose kernel takes in the residual add and the norm", "bytes")
    reduce_norm_of: str = word("", "families (model_type) of which it does so by itself (none: all), with commas")
    reduce_norm_on: str = word("", "generations of cards on which it does so then, with commas; -NAME: a card not")
    norm_reduce: bool = flag(False, "norms over all heads add up their squares over a tensor group by an all-reduce")
    reduce_bits: Num = number(16.0, "bits a value of large all-reduces carries (quick reduce: 4.5, 6.5 or 8.5)", low=1)
    # -- which libraries -----------------------------------------------------------------------------------------------
    experts: str = word("", "libraries of experts' products, with commas; -NAME: its release lacks one (none: usual)")
    many_experts: str = named("as `experts`, besides, of layers of more experts than so many: moe_wna16:32")
    experts_of: str = word("", "as `experts`, where those name none, by family, type, generation: triton:*/bf16/hopper")
    untuned: str = word("", "whose kernels take products of blocks that its library is not tuned for (none: its own)",
                        ("", "ck", "triton", "flashinfer"))  # fmt: skip
    tuned: str = shapes("shapes of such products that it is tuned for, columns x inner: 2112x7168 7168x2048")
    expert_fill: Num = count(1, "multiple to which the sides of a rank's experts in MXFP4 are filled up", 1)
    scales_twice: str = word("", "libraries of experts, with commas, beside whose layout of scales the loaded stay")
    padded: str = word("", "types of products whose kernels fill up the rows of a group's instruction, apart by spaces")
    # -- attention over keys and values --------------------------------------------------------------------------------
    attention: str = word("own", "library of its latent attention, as the server was told", ("own", "triton"))
    fixed_attention: bool = flag(False, "its attention is its own, whatever a measured case asked PyTorch for")
    kv_reread: Num = number(0.0, "time of query heads that read the cache one by one, over 16-bit values at L1's rate")
    kv_shared: Num = number(1.0, "largest group of query heads that shares a read of the cache (no window)", low=1)
    unsplit: Num = count(INF, "decoding, query heads of all sequences above which a block reads a whole sequence", 0)
    block_rate: Num = number(1e9, "what such a block reads (it holds a score a token in L1)", "bytes/s", above=True)
    head_rows: Num = count(INF, "decoding with kv_reread, most query heads of a tile, whose rows all take time", 1)
    head_rate: Num = number(0.0, "decoding, what a block a head of a sequence reads (0: caches are cut)", "bytes/s")
    graph_length: Num = count(INF, "longest sequence that its decoding graphs are captured for (none: the model's)", 1)
    empty_block: Num = each("decoding, time of a block of 256 tokens of graph_length beyond a sequence")
    kv_convert: Num = number(0.0, "vector operations of an 8-bit cached value where the device does not know fp8")
    int_convert: Num = number(0.0, "vector operations of a cached integer, for each query head that reads it")
    # -- products, and what runs into them -----------------------------------------------------------------------------
    sampling: str = word("greedy", "how tokens are picked: the likeliest, or drawn from the top (top-k, top-p)",
                         ("greedy", "top"))  # fmt: skip
    drawn: Num = number(12.0, "what drawing from the top moves a logit (`sampling`; greedy: 12)", "bytes")
    vocab_parallel: bool = flag(False, "the embedding table is split over the tensor group")
    merged: bool = flag(True, "Q, K, V and gate, up are one product each")
    epilogue: bool = flag(False, "rotary embedding and activation happen inside the products, without own traffic")
    adapter_by_token: bool = flag(False, "decoding, each token reads its adapter anew (BGMV), not a pass each once")
    rope_inside: bool = flag(False, "the attention kernel (as measured) turns Q and K and writes the cache")
    ready_scales: bool = flag(False, "kernels before a product quantise its operand, which the measured products do")
    scaled_on: str = word("", "generations of cards where quantising an 8-bit operand is a launch alone, with commas")
    quantise: Num = each("a kernel that quantises a product's operand, where the product was timed without")
    ready_operands: str = word("", "products in a type before which it does not run, with commas: q_up/fp8_block")
    grouped_values: Num = number(0.0, "values a clock that an SM quantises, a block a group (0: as measured together)")
    # -- experts and their routers -------------------------------------------------------------------------------------
    launched: bool = flag(False, "its graphs hold the launches around shared libraries' experts that benchmarks have")
    alike: Num = share(0.0, "share of tokens that take the same experts as others, in benchmarks that repeat a prompt")
    skew: Num = number(0.0, "how unequally popular experts are (`ops.popularity`; 0: alike)", high=8)
    shared_aside: Num = count(0, "most sequences of a decoding pass whose shared expert runs beside the others", 0)
    gates: str = shapes("biased routers beside a shared expert that one kernel does, experts x groups: 256x8 384x1")
    gates_on: str = word("", "generations of cards on which other such routers are PyTorch's chains, with commas")
    inner_gates: bool = flag(True, "routers inside experts' kernels take no time beyond what was measured of those")
    wide_routers: bool = flag(False, "routers kept in 32 bits (training: all) run as fp32 on vector units, not as TF32")
    tuned_experts: str = shapes("experts x width on a rank, whose 8-bit products memory alone holds, so well tuned")
    tuned_experts_on: str = word("", "cards on which these are so (none: all), with commas")
    expert_values: Num = number(2.0, "read and written a value by what runs between experts' products", "bytes")
    expert_tile: Num = count(0, "rows of a tile of quantised experts' products, however few an expert has", 0)
    wide_pass: Num = count(1, "most rows of tiles, as wide as a pass; tokens from which 16-bit experts have a rate", 1)
    tile_rate: Num = number(0.0, "FLOPs a clock of an SM in experts' tiles of so many rows, full or not", "FLOP")
    tile_floats: Num = number(1.0, "times as many of 4-bit floats, where the units multiply them as stored", above=True)
    tile_stream: Num = number(0.0, "most bytes of them a clock that an SM draws, dealt its tiles before (0: no limit)")
    row_rate: Num = number(0.0, "the same of gathering, quantising and writing rows, which goes with products", "FLOP")
    expert_rows: Num = count(INF, "most tokens of a pass whose quantised experts' products vector kernels take", 1)
    widened_experts: str = word("", "family/type/generation of experts (-: but these) that passes spread to 16 bits")
    expert_spread: str = named("bytes a value to which a scheme's experts are spread first, or that unpacking is worth")
    library_calls: Num = each("time of a library's call a product and 16-bit expert that a token chose")
    narrow_calls: Num = each("the same of quantised experts, where those are visited one by one")
    spread_calls: Num = each("the same where passes spread their weights to 16 bits (dots_below)")
    # -- products of few rows, and of narrow weights -------------------------------------------------------------------
    gemv: bool = flag(False, "own kernels for few rows, which stream weights of any width without tiles")
    vector_rows: Num = count(8, "most rows of these (ggml-cuda: MMVQ_MAX_BATCH_SIZE)", 1)
    vector_tile: Num = count(INF, "rows of these that read weights once, by matrix units (none: all, by vectors)", 1)
    narrow_rows: Num = count(0, "without gemv: most rows that weights of 8 bits or fewer take by such a kernel", 0)
    vector_share: Num = share(1.0, "share of the bandwidth that these reach where their SMs do not bind")
    vector_ramp: Num = number(INF, "most that filling and draining one of these costs", "s")
    unpacked: str = named("values of weights of a scheme (or generation.scheme) a clock that an SM unpacks")
    sm_stream: Num = number(0.0, "most bytes of weights a clock that an SM takes (without gemv: 8 bits as 4)", "bytes")
    scheme_stream: str = named("the same of a scheme's kernels, as awq:2.6 int4:4 (none: as sm_stream)")
    sm_integers: Num = number(0.0, "most FLOPs a clock of an SM in products by narrow weights (0: no limit)", "FLOP")
    sm_vectors: Num = number(0.0, "most FLOPs a clock of an SM in vector kernels for few rows (0: its peak)", "FLOP")
    dots: Num = share(0.0, "share of the reached int8 rate of integer products on a card without matrix units")
    staged_on: str = word("", "generations whose integer products read weights, then multiply; -NAME: a card not")
    integers_on: str = word("", "generations of cards whose vector units multiply narrow weights by integers alone")
    dots_times: str = named("there, times that products of a scheme (or generation.scheme) take over those of 4 bits")
    sums: str = word("fp32", "what its matrix products sum in: cards have factors by it", ("fp32", "fp16"))
    bf16_share: Num = share(0.0, "share of the vector rate in products of bf16 weights (0: they use matrix units)")
    bf16_experts: Num = share(0.0, "the same of bf16 experts (0: they use matrix units)")
    bf16_tile: Num = count(1, "rows of a tile of these, however few an expert has", 1)
    bf16_step: Num = each("least time of an inner value of these, which no vector kernels take then (0: they do)")
    joined: str = word("", "families (model_type) whose experts' gate and up are one product there, with commas")
    # -- recurrent layers, and a common prefix -------------------------------------------------------------------------
    delta_chain: Num = count(0, "more kernels of a gated delta layer, where its step is a chain of them", 0)
    delta_passes: Num = count(2, "reads and writes of a gated delta layer's state a pass", 0)
    scan_chain: str = named("more kernels of a recurrent layer in decoding, by its kind, as gated-delta:4 mamba2:8",
                            ("gated-delta", "kda", "mamba2", "lightning"))  # fmt: skip
    delta_rate: Num = number(0.0, "FLOPs a clock of an SM in decoding's kernel of a gated delta's states (0: no limit)")
    mamba_rate: Num = number(0.0, "the same of Mamba-2's states")
    states_on: str = word("", "makers of cards on which these two hold, with commas")
    delta_steps: Num = number(0.0, "vector FLOPs a state value of scans that take a prompt token by token (0: chunks)")
    fused_scans: str = word("", "generations of cards where prompts' scans by gated deltas are one kernel, with commas")
    cascade: Num = count(0, "fewest requests whose common prefix decoding reads once for all (0: each reads it)", 0)
    cascade_tokens: Num = count(1, "fewest tokens of such a prefix")
    mixed_scans: bool = flag(False, "gated deltas of decoding sequences go by chunks in passes with prompts")
    # -- how many kernels a layer is -----------------------------------------------------------------------------------
    gate_chain: Num = count(8, "kernels of a router that is a chain (gates_on)", 1)
    latent_chain: Num = count(0, "kernels of latent attention beside products, norms, rotation (prompts: the bytes)", 0)
    cache_chain: Num = count(0, "more kernels of a decode step's attention, not over latents, whose cache is narrow", 0)
    latents_apart: bool = flag(False, "queries' latent and that of keys and values are made by a product each")
    absorb_chain: Num = count(0, "the same, of each absorbed product whose 8-bit operand is made in plain kernels", 0)
    index_chain: Num = count(0, "more kernels of latent attention's indexer than its products, scores and choice", 0)
    mix_chain: Num = count(0, "more kernels around each half of a layer where streams of a residual are mixed", 0)
    expert_chain: Num = count(0, "more kernels of a layer of experts, whose outputs are then added one by one", 0)
    expert_kernels: Num = count(4, "kernels of each expert visited one by one, or, where grouped, of a layer's", 1)
    expert_calls: Num = number(0.0, "kernels more of each expert that a token chose (a loop in C++: a part of one)")
    chosen_alone: bool = flag(False, "experts visited one by one are those that a token chose, not all")
    expert_looks: Num = number(0.0, "host time of an expert's look at a choice of a token, a product", "s", high=1e-7)
    expert_waits: Num = number(0.0, "host time of a product of experts before which it waits for their choice", "s")
    # -- attention over latents, and over prompts ----------------------------------------------------------------------
    narrow_prompts: str = word("", "generations of cards where prompts of latents run in 8 bits, if so cached")
    latent_prompts: Num = count(0, "prompts behind some tokens, but fewer, read latents (no limit: all do)", 0, INF)
    picked_on: str = word("", "generations of cards where FlashMLA decodes over picked tokens, if cached in 8 bits")
    latent_blocks: Num = count(0, "decoding, blocks that Triton cuts a sequence's latents into (0: as measured)", 0)
    latent_cut: Num = count(0, "tokens of such a block where long sequences are cut into more (0: they are not)", 0)
    cut_caches: bool = flag(False, "attention over a prompt is shared out among SMs along the cache as well (stream-k)")
    wide_heads: Num = number(1.0, "attention over a prompt: time of heads of more than 128 values, over its formula's")
    wide_latents: Num = number(1.0, "the same over latents, and of few tokens over many")
    sparse_prompts: bool = flag(False, "prompts no longer than what an indexer picks go through its kernel, too")
    # -- narrow weights that are spread out ----------------------------------------------------------------------------
    own_files: str = word("", "bits beside 4-bit experts, in files of its own (none: it reads none)", ("", "8.5", "16"))
    dequant: Num = number(0.0, "passes that spread narrow weights out to 16 bits before the products of many rows")
    dots_below: Num = count(0, "rows from which narrow weights are spread where fast units take only 16 bits", 0)
    widened: Num = number(0.0, "moved a bf16 weight, spread to 32 bits first on cards without bf16 (0: not)", "bytes")
    tile_rows: Num = count(0, "rows of the only tile that its products have, of 64 columns (0: the best of several)", 0)
    tile_more: Num = number(0.0, "blocks by which the time of such a product is more than that of an SM's own")
    unpack_rows: str = named("rows from which weights of a scheme are spread to 16 bits first, as gptq:8 int4:2")
    pass_rows: str = named("rows that its kernel takes at a time where there are fewer than these, by scheme likewise")
    more_launches: str = named("kernels more that Python launches for a product, by scheme likewise")
    convert: Num = number(0.0, "bytes moved a value between fp32 activations and 16-bit operands of a product", "bytes")
    # -- training, and how tokens come to experts ----------------------------------------------------------------------
    attention_kernel: str = word("cudnn", "attention in training: a row of training.toml", ATTENTION)
    one_kernel: bool = flag(False, "training: one attention kernel serves all layers (transformers)")
    masked: bool = flag(False, "training: attention takes a mask of its own (padding, slopes of ALiBi)")
    dedup: bool = flag(True, "a token is sent once to a rank that holds several of its experts")
    exchange: str = word("all_to_all", "how tokens of data-parallel ranks come to their experts: each to its own "
                         "(all_to_all; scattered: a tensor group's too, which then sums once a layer), or all to every "
                         "rank, whose sums are scattered (gather, of up to eight ranks; sum: with prompts both by "
                         "all-reduces; naive: by broadcasts and an all-reduce, of any, each rank of a tensor group "
                         "all tokens)", ("all_to_all", "scattered", "gather", "sum", "naive"))  # fmt: skip
    gathered: str = word("narrow", "what ranks gather of a token: 8 or 4 bits as products take it; 16 where scales are "
                         "by blocks; or always 16", ("narrow", "blocks_wide", "wide"))  # fmt: skip
    ring: bool = flag(False, "context parallelism passes K and V around a ring, else it gathers them")
    torch_context: bool = flag(False, "training: context groups are PyTorch's: keys and values stand whole on a rank, "
                               "their gradients come around in fp32, outputs are merged by plain kernels")  # fmt: skip
    cast_apart: bool = flag(False, "training: narrow copies scaled by blocks down a column are cast in the backward "
                            "pass, from 16 bits kept till then")  # fmt: skip
    grouped: bool = flag(False, "one kernel holds the products of all experts, else each expert has its own")
    grouped_on: str = word("", "training: generations of cards that have this one kernel, others loop (none: all)")
    weighed_inside: bool = flag(False, "training: experts' rows are weighed before the last product: outputs not kept")
    route_copies: Num = count(0, "training: bytes a value of a pair that indexing moves in place of sorts", 0)
    narrow_gather: bool = flag(False, "gathers of a tensor group carry 8-bit values where products take them")
    norm_kernel: bool = flag(False, "where kernels are plain, a norm is one kernel all the same (Triton's, apex')")
    plain_gelu: bool = flag(False, "training: where kernels are plain, GELU is written out by its tanh (minGPT's "
                            "NewGELU, transformers' gelu_new)")  # fmt: skip
    fused_loss: bool = flag(True, "training: one kernel makes the loss of 16-bit logits, else a chain on fp32 ones")
    norm_cast: bool = flag(False, "training: that kernel takes a cast copy in 32 bits, and runs again backward")
    autocast: bool = flag(False, "training: fp32 weights that nothing shards run under PyTorch's autocast")
    adapter_in: Num = number(0.0, "training: bytes an adapter's kernels move a value of its input, before A", "bytes")
    pads_vocab: bool = flag(True, "training: the table of the head is padded to whole rows of its products' tiles")
    adapter_wide: bool = flag(False, "training: adapters of 32 bits are cast to 16 for each of their products")
    narrow_residual: Num = number(2.0, "training: bytes of a value between layers over a narrow base (4: fp32 norms)")
    copied_inputs: bool = flag(False, "training: products by a narrow frozen base keep copies of what a layer reads")
    keeps_gathered: bool = flag(False, "training: inputs gathered by a tensor group are kept, not gathered again")
    softmax: str = word("fused", "training: how unfused attention takes its softmax: scale, mask and softmax in one "
                        "kernel (fused), in three (plain), or in fp32 with a cast to 16 bits behind (wide)",
                        ("fused", "plain", "wide"))  # fmt: skip


@dataclass(frozen=True)
class Host:
    """What the host costs, and how it runs beside the device. Times in s."""

    issue_prefill: Num = each("host time a kernel launch of a pass with prompts")
    issue_decode: Num = each("host time a kernel launch in decoding (a CUDA graph makes it small)")
    eager: Num = each("the same, from Python, of a pass no graph holds (training: plain kernels), if more")
    dtensor: Num = each("training: time more a launch of plain kernels that a tensor group shares")
    eager_experts: Num = each("the same of experts' kernels and recurrent scans, in passes with prompts")
    eager_scans: Num = each("the same of recurrent scans alone, where that is more")
    experts_once: bool = flag(False, "one call issues its own experts' kernels (not Triton's, nor beside its blocks)")
    captured: Num = count(0, "most tokens of a pass with prompts that CUDA graphs hold", 0)
    captured_latent: Num = count(INF, "the same of models with latent attention (MLA), where that is fewer", 0)
    uncaptured: str = word("", "families (model_type) of which they hold no pass with prompts, with commas; and other "
                           "reasons: ranks (of attention), stages, pools, guesses, adapters, a library of experts (but "
                           "for a family: -NAME)")  # fmt: skip
    graphed_sequences: Num = count(INF, "most sequences of a decoding pass that they hold (0: it has none)", 0)
    graphs: str = sizes("under load (`serve`): sequences of decoding CUDA graphs, to which fewer are padded")
    step: Num = number(0.0, "host time a forward pass", "s")
    sequence: Num = number(0.0, "host time a sequence in a pass (sampling, bookkeeping)", "s")
    listed: Num = each("time a KV block of a decoding sequence, where lists of them are made at each step")
    message: Num = number(0.0, "host time of a message between a pipeline's stages, or that brings the token back", "s")
    remote: Num = number(0.0, "host time a pass of a tensor group that has a process a device, to be called (Ray)", "s")
    request: Num = number(0.0, "time once a request until its client sees the first token; others do not wait", "s")
    front: Num = number(0.0, "time once a request in a front end that takes them one after the other", "s")
    tokenise: Num = each("time a prompt token in that front end (its text becomes tokens)")
    carry: Num = each("time a prompt token between client and engine that others do not wait for")
    handover: Num = each("host time of a piece of a cache that a prefill server sends: a layer's K, its V")
    stream: Num = each("time of a message to a client, of a step's tokens, in a process that streams them")
    copied: Num = each("time a token of an output so far, at every step, where all of it is handed on anew")
    deliver: Num = number(0.0, "time a decoding sequence under load: its token goes out before the next pass runs", "s")
    overlap: bool = flag(False, "the host prepares a step while the device runs: its costs show where it is later")
    waits: str = word("", "where it does not all the same, with commas: guesses; stages, whose hosts take turns; "
                      "families (model_type) and kinds of recurrent layers with states in a prefix cache")  # fmt: skip
    ahead: bool = flag(False, "processes beside the scheduler launch a pass with prompts while the step before it runs")
    gap: Num = number(0.0, "device idle time between two dependent kernels (negative: launches overlap)", "s",
                      -1.25e-6, EACH)  # fmt: skip  # the shortest kernels take 1.3 us
    cpu_share: Num = share(1.0, "share of the rate of the host's memory that layers on its CPU draw", above=True)
    expert_launch: Num = each("training: time of each expert's own kernels over that of its work")
    moe_host: Num = number(0.0, "training: host time of a layer of experts and a micro-batch, kernel by kernel", "s")
    gather_host: Num = number(0.0, "training: host time of each matrix that ZeRO 3 gathers, a micro-batch", "s")
    hooks_again: bool = flag(False, "training: it takes that once more where the layer's forward pass runs again")
    router_host: Num = each("training: more, where the router is many kernels (Megatron, no moe_router_fusion: 4 ms)")
    layer_host: Num = number(0.0, "training: host time of a layer without experts and a micro-batch, likewise", "s")
    packed_host: Num = number(0.0, "training: either, more where a sequence holds several documents", "s")
    chunk_host: Num = number(0.0, "training: host time of a pass of a virtual stage beside another (ep_overlap)", "s")
    graphed: Num = share(0.0, "training: share of what the host issues which CUDA graphs hold")


@dataclass(frozen=True)
class Room:
    """How it spends memory, and the limits of a pass. Memory in bytes."""

    memory_fraction: Num = share(1.0, "share of device memory that it may use", above=True)
    free_fraction: Num = share(1.0, "share of what weights, activations and buffers leave for the KV cache", above=True)
    context: Num = number(0.0, "CUDA context and libraries", "bytes")
    workspace: Num = number(0.0, "fixed buffers", "bytes")
    alone: Num = share(1.0, "share of context and workspace on a device that works alone (no communicators)")
    live: Num = number(0, "training: parameters that ZeRO 3 gathers, or updates, at a time (0: a layer's, no buckets)")
    in_switch: Num = number(0.0, "fixed buffers more where a switch adds up what a layer's ranks send", "bytes")
    sampled: Num = number(0.0, "a logit of a pass that samples for every sequence before the cache is sized", "bytes")
    token_budget: Num = count(INF, "most new tokens in one pass")
    block: Num = count(1, "tokens a KV block")
    state_blocks: bool = flag(False, "a block weighs as much as a recurrent layer's state: so many tokens, then")
    window_kept: Num = share(0.0, "share of its tokens that a layer with a window keeps at least, whatever the window")
    window_beside: Num = count(0, "passes that a layer keeps beside its window, which tokens read as well", 0, INF)
    head_kept: Num = count(0, "values of a head's key, and of its value, cached in place of latents (0: latents)", 0)
    shared_kept: bool = flag(False, "layers that read what an earlier one cached have room for a copy of their own")
    state_share: Num = share(0.0, "share of the cache's memory in a pool of recurrent states (0: one pool for all)")
    state_slots: Num = count(1, "recurrent states that this pool holds for each sequence that may run")
    states_ahead: Num = count(0, "the same, more where the host prepares steps ahead (overlap)", 0)
    max_sequences: Num = count(INF, "most sequences that run at a time")
    waves: bool = flag(False, "sequences beyond the running limit or the cache run later, else they do not fit")
    fragmentation: Num = number(1.0, "memory that the framework holds over what its tensors need", low=1)
    logit_bytes: Num = number(6.0, "training: a logit at its fullest moment, copies and gradients", "bytes", above=True)
    grad_bytes: Num = number(4, "a gradient as accumulated and reduced", "bytes", above=True)
    fp8_weights: str = word("wide", "weights of 8-bit training are kept in 16 bits (wide), with copies in fp8 from "
                            "step to step (copied), or in 8, as they are gathered (narrow: fp8_param_gather)",
                            ("wide", "copied", "narrow"))  # fmt: skip
    fp8_once: str = word("", "generations whose units take them in either layout: no transposed copies")
    grads_away: bool = flag(False, "training: gradients of an offloaded optimiser stand in host memory, too")
    holds: str = word("layer", "what ZeRO 3 holds of weights that it gathered: a layer's; without recomputation all, "
                      "until the backward pass is through (saved); or all in any case, as the host runs ahead (ahead)",
                      ("layer", "saved", "ahead"))  # fmt: skip
    root: bool = flag(True, "FSDP's root holds the tables: gathered, and with whole gradients, to the end of a pass")
    grad_extra_bf16: Num = number(0.0, "a gradient kept beside it with bf16 weights (DeepSpeed)", "bytes")
    stash: Num = number(1.0, "training: room for what experts keep, over what it is, where graphs hold steps", low=1)
    grads_joined: Num = number(0.0, "training: copies that an update makes of a gradient: joined, wider", "bytes")

    @property
    def in_buckets(self) -> Any:
        """True where buckets bound what stands gathered, reduced or updated at a time (`live`; DeepSpeed)."""
        return self.live > 0


@dataclass(frozen=True)
class Stages:
    """How it runs pipeline stages when serving."""

    pipelined: bool = flag(True, "pipeline stages work on different micro-batches at the same time")
    expert_stages: bool = flag(True, "and so they do where they decode mixtures of experts")
    queue: Num = count(INF, "commands a device's queue holds: beyond, the host waits, and with it the other stages")
    commands: Num = number(1.0, "commands in it a kernel as counted here", above=True)
    stage_tokens: Num = count(INF, "most new tokens in one micro-batch of a pipeline")
    even_stages: bool = flag(False, "layers and head are shared out by bytes, not by count")


@dataclass(frozen=True)
class Habits:
    """What a training framework does unless told otherwise."""

    zero: Num = count(1, "ZeRO stage unless told otherwise", 0, 3)
    copies: bool = flag(False, "training: parameters are sharded one by one, and copied around each collective (FSDP2)")
    lockstep: bool = flag(False, "interleaved stages exchange at each step of a table (torch.distributed.pipelining)")
    zero_one: bool = flag(True, "it shards optimiser states apart from gradients (FSDP shards both: no ZeRO-1)")
    foreach: bool = flag(False, "training: Adam runs operation by operation over all tensors (PyTorch, foreach)")
    pipeline_zero: Num = count(3, "highest ZeRO stage that goes with its pipelines (Megatron-LM, DeepSpeed: 1)", 0, 3)
    sequence_parallel: bool = flag(True, "sequence parallelism unless told otherwise")
    dropout: bool = flag(False, "the framework's recipes train with it")
    master: bool = flag(True, "training: an fp32 master copy of 16-bit weights is kept unless told otherwise")
    selective: str = word("core", "selective recomputation: attention's core, or torchtitan's policy", ("core", "ops"))
    recompute: str = word("none", "recomputation unless told otherwise", ("none", "selective", "full"))
    whole_share: bool = flag(False, "a micro-batch is a rank's share of the batch unless told otherwise (no pipeline)")
    early_stop: bool = flag(False, "recomputation leaves out the last product of a layer (PyTorch from 2.1, XLA)")
    bucket: Num = number(INF, "below ZeRO 3: gradients of a message at least", low=1)
    bucket_rank: Num = number(0.0, "the same a data-parallel rank")
    unsynced: Num = number(0.0, "ZeRO 2, 3: a gradient that waits whole for the last micro-batch (no_sync)", "bytes")
    owners: bool = flag(False, "under ZeRO 1 each rank owns whole tensors: a collective an owner (InternEvo)")


@dataclass(frozen=True)
class Overlaps:
    """Which communication of a training step hides behind compute."""

    grad_overlap: bool = flag(True, "gradient reduction hides behind the backward pass")
    param_overlap: bool = flag(True, "gathers of parameters hide behind the forward pass (FSDP: behind both)")
    tp_overlap: Num = share(0.0, "share of tensor-parallel communication that may hide behind compute")
    cp_overlap: Num = share(1.0, "share of context-parallel communication that may hide behind the attention beside it")
    ep_overlap: Num = share(0.0, "share of expert-parallel communication that may hide behind compute")
    pp_overlap: bool = flag(True, "sends between stages hide behind compute where the schedule is interleaved")
    overlap_tax: Num = number(0.1, "compute time lost a second of hidden data-parallel communication")


@dataclass(frozen=True)
class Factors:
    """Time of its kernels and collectives over what was measured of them alone: fitted."""

    collective_factor: Num = number(1.0, "time of its collectives over that of today's", above=True)
    dp_factor: Num = number(1.0, "the same of collectives of the data-parallel group", above=True)
    collective_floor: Num = number(1.0, "the same of their latency alone", above=True)
    stream_share: Num = share(0.8, "share of memory bandwidth that elementwise kernels of training reach", above=True)
    plain_share: Num = share(1.0, "the same of PyTorch's own kernels, one by one (training: plain kernels)", above=True)
    gemm_factor: Num = number(1.0, "time of products over their calibrated (warm, alone) time", above=True)
    attention_factor: Num = number(1.0, "the same of attention over a prompt", above=True)
    decode_factor: Num = number(1.0, "the same of attention in decoding", above=True)
    stream_factor: Num = number(1.0, "the same of elementwise kernels", above=True)
    moe_factor: Num = number(1.0, "the same of products of experts", above=True)
    moe_steps: Num = number(0.0, "moe_factor of quantised experts; of 16 bits of few tokens (0: the same as of many)")
    moe_vectors: Num = number(1.0, "time of experts' weights for few rows, over other weights' of the size", above=True)
    prompt: Num = number(1.0, "factor of what prompt tokens add to a pass when serving", above=True)


@dataclass(frozen=True)
class Engine:
    """One version of one engine. People write its constants by their own names: `engine.step` for engine.host.step."""

    name: str
    version: str = word("", "release")
    date: str = word("", "when it was released, or measured")
    phase: str = word("inference", "what it does", ("inference", "training"))
    family: str = word("", "engine that it is a release of (none: itself)")
    measured_as: str = word("", "engine whose runs its card factors and error bands were fitted to (none: itself)")
    kernels: Kernels = Kernels()
    host: Host = Host()
    room: Room = Room()
    stages: Stages = Stages()
    habits: Habits = Habits()
    overlaps: Overlaps = Overlaps()
    factors: Factors = Factors()
    abilities: Abilities = Abilities()  # noqa: RUF009  frozen, so one for all is right
    server: ServerOptions = ServerOptions()
    command: object = None
    """How it is started (`readers.command`), which no prediction reads."""
    residuals: Any = None
    """One's own measurements over the predictions, from the engine's own file (`readers.residuals.Residuals`)."""

    places: ClassVar[Mapping[str, str]] = {}
    """Constant by its own name -> where it stands: `asked.paths` takes either."""

    __repr__ = engine_line

    @property
    def runs(self) -> str:
        """The engine whose measured runs its card factors and error bands were fitted to."""
        return self.measured_as or self.name

    def but(self, **values: Any) -> Engine:
        """The engine with some of its constants, by their own names; a limit that is told holds on every card.

        >>> Engine("x").but(step=1e-3, flash=False).host.step
        0.001
        """
        limits: dict[str, Any] = {by_card: "" for by_card, limit in BY_CARD.items() if limit in values}
        if limits and "server" not in values:
            values["server"] = replace(self.server, **limits)
        groups: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            group, _, field = PLACES[name].rpartition(".")
            groups.setdefault(group, {})[field] = value
        values_of = groups.pop("", {})
        return replace(self, **values_of, **{g: replace(getattr(self, g), **new) for g, new in groups.items()})

    def value(self, name: str) -> Any:
        """A constant by its own name.

        >>> Engine("x").value("kernels"), Engine("x").value("gap")
        ('torch', 0.0)
        """
        return attrgetter(PLACES[name])(self)


BY_CARD = {"budgets": "token_budget", "limits": "max_sequences", "graphed": "graphed_sequences",
           "graphed_few": "graphed_sequences", "pieces": "captured", "shared": "token_budget",
           "families": "max_sequences", "reserved": "memory_fraction"}  # fmt: skip
"""Option of the server that makes up a limit by card, ranks or model -> the limit, which counts once it is told."""
GROUPS: dict[str, Any] = {
    "kernels": Kernels, "host": Host, "room": Room, "stages": Stages, "habits": Habits, "overlaps": Overlaps,
    "factors": Factors, "abilities": Abilities,
}  # fmt: skip
PLACES: dict[str, str] = {
    **{name: name for name in abouts(Engine)},
    **{name: f"{group}.{name}" for group, kind in GROUPS.items() for name in abouts(kind) if name != "whose"},
    "kernels": "kernels.whose", **{name: name for name in ("server", "command", "residuals")},
}  # fmt: skip
"""Constant by its own name -> where it stands."""
Engine.places = PLACES
