"""What is computed: Model = embedding, a short list of counted blocks, head. A block is a mixer and a feed-forward.

Layers are counted, not listed, so a 126-layer model costs one block and depth is an axis. Numbers may be arrays.
Parameter counts follow from the shapes; `tests/catalogue/test_model.py` holds each against the published count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from rooflm.catalogue.fields import LARGEST, count, flag, number, part, size, text, word
from rooflm.shown.records import model_line
from rooflm.units import Num, is_plain, pick

INF = float("inf")
WIDEST = 1e6
"""Times that a model may be as wide or as deep: beyond, sizes are no longer exact."""


@dataclass(frozen=True)
class Attention:
    """Softmax attention: MHA, GQA or MQA by `kv_heads`; a sliding (or chunked) window where `window` is finite.

    index_topk > 0: a query reads so many tokens of its cache, picked in blocks by an indexer (MiniMax-M3)."""

    heads: Num = field(metadata=size("query heads"))
    kv_heads: Num = field(metadata=size("heads of keys and values"))
    head_dim: Num = field(metadata=size("width of a head of queries and keys"))
    value_dim: Num = count(0, "width of a head of values (0: head_dim)", low=0)
    window: Num = count(INF, "tokens that a query sees")
    bias: bool = flag(False, "a bias on Q, K and V")
    out_bias: bool = flag(False, "a bias on the output")
    qk_norm: bool = flag(False, "a norm weight on Q and K, of head_dim each")
    joint_norm: bool = flag(False, "that norm is over all heads at once (MiniMax-M2, OLMo 2)")
    gate: bool = flag(False, "an output gate as wide as the queries (Qwen3-Next)")
    rope: bool = flag(True, "rotary embedding is applied")
    causal: bool = flag(True, "a query sees earlier tokens only; else all of them, and nothing is cached")
    shared_kv: bool = flag(False, "reads what an earlier layer cached, without projections of its own (Gemma 3n, 4)")
    index_topk: Num = count(0, "past tokens that a query reads (0: all)", low=0)
    index_heads: Num = count(0, "heads of the indexer", low=0)
    index_dim: Num = count(0, "width of a head of the indexer", low=0)

    @property
    def v_dim(self) -> Num:
        """Width of a value head: value_dim where given, head_dim otherwise."""
        return self.head_dim if is_plain(self.value_dim, 0) else self.value_dim


@dataclass(frozen=True)
class MLA:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the cache holds kv_rank + rope_dim values a token.

    q_rank 0: queries are projected directly. index_topk > 0: sparse attention (DeepSeek-V3.2, arXiv 2512.02556): a
    light indexer of index_heads x index_dim picks index_topk past tokens for each query."""

    heads: Num = field(metadata=size("query heads"))
    q_rank: Num = field(metadata=size("width of the latent of queries (0: none)", low=0))
    kv_rank: Num = field(metadata=size("width of the latent of keys and values"))
    nope_dim: Num = field(metadata=size("width of a head without position"))
    rope_dim: Num = field(metadata=size("width of a head with position", low=0))
    value_dim: Num = field(metadata=size("width of a head of values"))
    index_topk: Num = count(0, "past tokens that a query attends to (0: all)", low=0)
    index_heads: Num = count(0, "heads of the indexer", low=0)
    index_dim: Num = count(0, "width of a head of the indexer", low=0)


@dataclass(frozen=True)
class CompressedAttention(MLA):
    """Attention of one entry for keys and values (DeepSeek-V4): kv_rank + rope_dim values, shared by all heads and read
    as they are, without projections to keys and values of each head.

    The cache holds the last `window` tokens, and one entry for every `ratio` tokens, a weighted sum of theirs; a query
    reads both. index_topk > 0: of the entries an indexer picks index_topk by its own entries of index_dim, and each
    sums 2 x ratio tokens through two series of projections. The output goes through out_groups x out_rank values, heads
    in groups. Source: transformers, modeling_deepseek_v4.py."""

    window: Num = count(128, "latest tokens that a query sees one by one")
    ratio: Num = count(0, "tokens of a compressed entry (0: nothing beside the window)", low=0)
    out_groups: Num = count(1, "groups of heads of the output projection")
    out_rank: Num = count(1024, "width that a group of heads is projected to")

    @property
    def entry(self) -> Num:
        """Values of a cached entry."""
        return self.kv_rank + self.rope_dim

    @property
    def series(self) -> int:
        """Series of projections that make compressed entries: 2 where windows overlap, 1, or 0 without any."""
        return 0 if is_plain(self.ratio, 0) else 1 if is_plain(self.index_topk, 0) else 2


RECURRENT = ("mamba2", "mamba1", "gated-delta", "kda", "lightning", "conv")
"""Kinds of recurrent mixers."""


@dataclass(frozen=True)
class LinearAttention:
    """A recurrent mixer with a state of fixed size: Mamba-2 (SSD), gated DeltaNet, Kimi delta attention, Mamba-1,
    lightning attention (MiniMax-01, arXiv 2501.08313), or a gated short convolution alone (LFM2).

    heads x head_dim is the value width; key_heads x state the key width (Mamba: groups x state size; "conv": none)."""

    kind: str = field(metadata=text("which of them", RECURRENT))
    heads: Num = field(metadata=size("heads of values"))
    head_dim: Num = field(metadata=size("width of a head of values"))
    key_heads: Num = field(metadata=size("heads of keys (Mamba: groups)"))
    state: Num = field(metadata=size("width of a head of keys (Mamba: state size)"))
    conv: Num = count(4, "kernel width of the convolution (0: none)", low=0.0)


@dataclass(frozen=True)
class MLP:
    """Dense feed-forward of `width`; gated (SwiGLU, GeGLU: three matrices) or not (two)."""

    width: Num = field(metadata=size("inner width"))
    gated: bool = flag(True, "three matrices (SwiGLU, GeGLU), else two")
    bias: bool = flag(False, "biases on the matrices")


@dataclass(frozen=True)
class MoE:
    """Mixture of experts: `top_k` of `experts` a token, each an MLP of `width`, beside a shared MLP of `shared_width`.

    Around a latent (Nemotron 3 Super) are projections down and up; router and shared MLP keep the hidden width."""

    experts: Num = field(metadata=size("routed experts of a layer"))
    top_k: Num = field(metadata=size("experts that a token takes"))
    width: Num = field(metadata=size("inner width of an expert"))
    shared_width: Num = count(0, "inner width of the shared expert (0: none)", low=0)
    gated: bool = flag(True, "three matrices an expert, else two")
    bias: bool = flag(False, "biases on the router and the experts' matrices (gpt-oss)")
    shared_gate: bool = flag(False, "one scalar gate on the shared expert (Qwen2-MoE)")
    router_bias: bool = flag(False, "a bias that only balances the choice of experts (DeepSeek-V3)")
    wide_router: bool = flag(False, "servers keep the router in 32 bits (MiniMax-M2)")
    groups: Num = count(1, "groups of experts, of which a token takes some first (DeepSeek-V3: 8)")
    latent: Num = count(0, "width of the latent that experts work on (0: none)", low=0)
    joined: bool = flag(False, "one tensor holds a matrix of all experts in transformers (gpt-oss, Llama 4, DBRX)")

    @property
    def tensors(self) -> Num:
        """Tensors that hold a layer's routed experts in transformers before version 5."""
        return (2 + self.gated) * (1 if self.joined else self.experts)

    def inner(self, hidden: Num) -> Num:
        """Width that the routed experts read and write: the latent where there is one, else the hidden width."""
        return hidden if is_plain(self.latent, 0) else self.latent


Mixer = Attention | MLA | LinearAttention
FeedForward = MLP | MoE
MIXERS = {"attention": Attention, "mla": MLA, "compressed": CompressedAttention,
          **dict.fromkeys(RECURRENT, LinearAttention)}  # fmt: skip
FEED_FORWARDS = {"mlp": MLP, "moe": MoE}
"""What a row calls them by `kind`."""


@dataclass(frozen=True)
class Block:
    """`count` equal layers, each a mixer and a feed-forward (either may be absent, as in Nemotron-H)."""

    count: Num = field(metadata=size("equal layers"))
    mixer: Mixer | None = field(default=None, metadata=part(MIXERS))
    ffn: FeedForward | None = field(default=None, metadata=part(FEED_FORWARDS))
    norms: Num = number(2, "norms of the hidden width a layer (1 in GPT-J, 4 with Gemma 2's sandwich)")
    parallel: bool = flag(False, "mixer and feed-forward read the same input: one all-reduce a layer (GPT-J, Falcon)")
    layers: Num = number(1, "of the model's own layers, how many each is (0: beside others in theirs, as in Falcon-H1)")


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer (or hybrid). Sizes are of the whole model, before any split.

    Softcap and other pointwise details that cost next to nothing are left out. Towers (vision and audio encoders with
    their projectors) stay at 16 bits; their images and sounds are tokens of the prompt. Width scales change heads,
    hidden and inner width; width pruning keeps the hidden size (LLM-Pruner, arXiv 2305.11627), depth pruning removes
    whole blocks (Shortened LLaMA, arXiv 2402.02834)."""

    name: str
    hidden: Num = field(metadata=size("hidden width"))
    vocab: Num = field(metadata=size("tokens of the vocabulary"))
    blocks: tuple[Block, ...] = field(metadata=part(Block, many=True))
    positions: Num = count(0, "learned position embeddings", low=0)
    streams: Num = count(1, "streams of its residual, which hyper-connections mix around each half of a layer")
    max_context: Num = count(INF, "tokens that it was made for")
    head: bool = flag(True, "an output head; without one it embeds texts: a pass over the prompts and no tokens")
    tied: bool = flag(False, "the head shares the embedding")
    norm: str = word("rms", "its norms, with a bias or none", ("rms", "layer", "layer-no-bias"))
    family: str = word("", "model_type of its config: the code that an engine has for it, where some have more")
    head_bias: bool = flag(False, "a bias on the head")
    extra_params: Num = count(0, "parameters that no block holds (norms beside the embedding, ...)", low=-LARGEST)
    tower_params: Num = count(0, "parameters of towers beside it", low=0)
    mtp_params: Num = count(0, "parameters of layers that predict further ahead, loaded only to speculate or train", 0)
    lora_rank: Num = count(0, "rank of the adapter that it was loaded with, among extra_params (0: none)", low=0)
    lora_modules: tuple[str, ...] = field(default=(), metadata=part(str, many=True))
    dtype: str = word("bf16", "number format of its weights", ("bf16", "fp16", "fp32"))
    quant: str = word("", "how the released weights are stored, such as fp8 or mxfp4 (none: in dtype)")
    published_params: float = number(0.0, "parameters as published")
    published_active: float = number(0.0, "parameters that one token uses, as published")
    params_kind: str = word("rounded", "how its parameters were published", ("rounded", "exact"))
    source: str = word("", "where its shape is printed")
    date: str = word("", "when that was read")
    width_scale: Num = number(1.0, "times as wide", high=WIDEST, above=True)
    depth_scale: Num = number(1.0, "times as many layers", high=WIDEST, above=True)
    width_prune: Num = number(0.0, "share of heads and inner width removed", high=1.0, below=True)
    depth_prune: Num = number(0.0, "share of layers removed", high=1.0, below=True)

    __repr__ = model_line

    @property
    def parameters(self) -> Num:
        """Parameters in all, as scaled."""
        return self._counted()

    @property
    def active_parameters(self) -> Num:
        """Parameters that one token uses, as scaled."""
        return self._counted(active=True)

    def _counted(self, active: bool = False) -> Num:
        m = self.scaled
        layers = sum(
            b.count * (mixer_params(b.mixer, m.hidden) + ffn_params(b.ffn, m.hidden, active) + b.norms * norm_params(m))
            for b in m.blocks
        )
        head = (m.vocab * m.hidden if m.head and not m.tied else 0) + m.head_bias * m.vocab
        tables = m.vocab * m.hidden + m.positions * m.hidden
        return tables + layers + norm_params(m) + head + m.extra_params + (0 if active else m.tower_params)

    @property
    def layers(self) -> Num:
        """Number of layers, after any depth scaling."""
        return sum(block.count * block.layers for block in self.scaled.blocks)

    @cached_property
    def scaled(self) -> Model:
        """The model with its width and depth scales and prunings applied (itself when there are none).

        Head counts and widths are rounded to whole numbers, at least 1; the head size is kept."""
        neutral = (1.0, 1.0, 0.0, 0.0)
        asked = (self.width_scale, self.depth_scale, self.width_prune, self.depth_prune)
        if all(is_plain(a, n) for a, n in zip(asked, neutral, strict=True)):
            return self
        inner = self.width_scale * (1 - self.width_prune)
        depth = self.depth_scale * (1 - self.depth_prune)
        blocks = tuple(
            replace(b, count=_kept(b, depth), mixer=_widen(b.mixer, inner), ffn=_widen(b.ffn, inner))
            for b in self.blocks
        )
        return replace(self, hidden=_whole(self.hidden * self.width_scale), blocks=blocks, width_scale=1.0,
                       depth_scale=1.0, width_prune=0.0, depth_prune=0.0, published_params=0.0,
                       published_active=0.0)  # fmt: skip


def _whole(value: Num) -> Num:
    """Round to a whole number of at least 1."""
    return np.maximum(np.round(value), 1)


def _kept(block: Block, depth: Num) -> Num:
    """The blocks left at a depth: whole layers, where blocks are parts of layers.

    >>> float(_kept(Block(56, layers=0.5), 0.7)), float(_kept(Block(28, layers=0), 0.7))
    (40.0, 20.0)
    """
    each = pick(block.layers > 0, block.layers, 1.0)
    return _whole(block.count * each * depth) / each


WIDENED: dict[type[Any], tuple[str, ...]] = {
    Attention: ("heads", "kv_heads"), MLA: ("heads",), CompressedAttention: ("heads",),
    LinearAttention: ("heads", "key_heads"), MLP: ("width",), MoE: ("width", "shared_width"),
}  # fmt: skip
"""What of a mixer or feed-forward grows with the width."""


def _widen(part: Any, scale: Num) -> Any:
    """A mixer or feed-forward with its heads or width times `scale`, whole numbers; what is absent stays so."""
    if part is None:
        return None
    sizes = {n: getattr(part, n) for n in WIDENED[type(part)]}
    return replace(part, **{n: _whole(v * scale) * (v > 0) for n, v in sizes.items() if not is_plain(v, 0)})


def mixer_params(mixer: Mixer | None, hidden: Num) -> Num:
    """Parameters of a mixer, norms inside it included."""
    return 0 if mixer is None else _PARAMS[type(mixer)](mixer, hidden)


def attention_params(a: Attention, h: Num) -> Num:
    """Projections of queries, keys, values and output, biases, norms of q and k, and (MiniMax-M3) the indexer: its
    queries and one key a token from the hidden state, a norm on each."""
    has_kv = not a.shared_kv
    kv_heads = has_kv * a.kv_heads
    q, k, val = a.heads * a.head_dim, kv_heads * a.head_dim, kv_heads * a.v_dim
    index = (a.index_heads + (a.index_heads > 0)) * a.index_dim * h + 2 * a.index_dim
    norms = a.qk_norm * (1 + has_kv) * a.head_dim
    biases = a.bias * (q + k + val) + a.out_bias * h
    return h * (q * (1 + a.gate) + k + val) + a.heads * a.v_dim * h + biases + norms + index


def latent_params(a: MLA, h: Num) -> Num:
    """Latent attention, and (DeepSeek-V3.2) the indexer: queries from low-rank ones, a normed key a token, weights."""
    qk = a.nope_dim + a.rope_dim
    query = h * a.heads * qk if is_plain(a.q_rank, 0) else a.q_rank * (h + a.heads * qk + 1)
    latent = h * (a.kv_rank + a.rope_dim) + a.kv_rank
    expand = a.kv_rank * a.heads * (a.nope_dim + a.value_dim)
    read = h if is_plain(a.q_rank, 0) else a.q_rank
    index = read * a.index_heads * a.index_dim + h * (a.index_dim + a.index_heads) + 2 * a.index_dim
    return query + latent + expand + a.heads * a.value_dim * h + (a.index_topk > 0) * index


def compressed_params(a: CompressedAttention, h: Num) -> Num:
    """Low-rank queries, one entry a token, the output in groups, a sink a head; what makes compressed entries (values
    and weights of each series, biases by place, a norm), and the indexer with its own."""
    entry, picks = a.entry, a.index_topk > 0
    query = a.q_rank * (h + a.heads * entry + 1)
    out = a.out_rank * (a.heads * a.value_dim + a.out_groups * h)
    pooled = a.series * (2 * h + a.ratio) + (a.ratio > 0)
    index = a.q_rank * a.index_heads * a.index_dim + h * a.index_heads + pooled * a.index_dim
    made: Num = pooled * entry + picks * index
    return query + h * entry + entry + out + a.heads + made


def recurrent_params(a: LinearAttention, h: Num) -> Num:
    """A recurrent mixer: what goes in, the convolution and the state's own parameters, and the output projection."""
    inner, keys, rank = a.heads * a.head_dim, a.key_heads * a.state, np.ceil(h / 16)
    into = {
        # z, x, B, C, dt; convolution over x, B, C with bias; A, D, dt bias a head; gated norm
        "mamba2": h * (2 * inner + 2 * keys + a.heads) + (a.conv + 1) * (inner + 2 * keys) + 3 * a.heads + inner,
        # x, z; convolution with bias; x -> dt rank, B, C; dt -> inner with bias; A a channel and state, D
        "mamba1": 2 * h * inner + (a.conv + 1) * inner + inner * (rank + 2 * a.state) + (rank + 1) * inner
        + inner * a.state + inner,
        # q, k, v, output gate; norm
        "lightning": h * (2 * inner + 2 * keys) + inner,
        # two gates and the value; convolution
        "conv": 3 * h * inner + a.conv * inner,
        # q, k, v, output gate z; beta and decay a head; convolution over q, k, v; A and dt bias; norm of head_dim
        "gated-delta": h * (2 * keys + 2 * inner + 2 * a.heads) + a.conv * (2 * keys + inner) + 2 * a.heads
        + a.head_dim,
        # q, k, v, beta a head; convolution; decay a channel and output gate through a low rank of head_dim; A; norm
        "kda": h * (2 * keys + inner + a.heads) + a.conv * (2 * keys + inner) + a.head_dim * (2 * h + keys + inner)
        + a.heads + keys + a.head_dim,
    }  # fmt: skip
    return into[a.kind] + inner * h


_PARAMS: dict[type[Mixer], Callable[[Any, Num], Num]] = {
    Attention: attention_params, MLA: latent_params, CompressedAttention: compressed_params,
    LinearAttention: recurrent_params,
}  # fmt: skip


def matrix_params(hidden: Num, width: Num, gated: bool, bias: bool = False) -> Num:
    """Parameters of the matrices of one feed-forward or expert, up (and gate) and down, with their biases.

    >>> matrix_params(4096, 11008, gated=True) == 3 * 4096 * 11008
    True
    """
    matrices = 2 + gated
    return matrices * hidden * width + bias * ((matrices - 1) * width + hidden)


def ffn_params(ffn: FeedForward | None, hidden: Num, active: bool = False) -> Num:
    """Parameters of a feed-forward; `active`: only those that one token uses."""
    if ffn is None:
        return 0
    if isinstance(ffn, MLP):
        return matrix_params(hidden, ffn.width, ffn.gated, ffn.bias)
    each = matrix_params(ffn.inner(hidden), ffn.width, ffn.gated, ffn.bias)
    routed = (ffn.top_k if active else ffn.experts) * each + 2 * hidden * ffn.latent
    shared = matrix_params(hidden, ffn.shared_width, ffn.gated) + ffn.shared_gate * hidden
    return routed + shared + ffn.experts * (hidden + (ffn.bias or ffn.router_bias))


def norm_params(model: Model) -> Num:
    """Parameters of one norm of the hidden width."""
    return model.hidden * (2 if model.norm == "layer" else 1)
