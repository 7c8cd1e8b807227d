"""What is computed: Model = embedding, a short list of counted blocks, head. A block is a mixer and a feed-forward.

Layers are counted, not listed, so a 126-layer model costs one block and depth is an axis. Numbers may be arrays.
Parameter counts follow from the shapes; `tests/catalogue/test_model.py` holds each against the published count.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from rooflm.catalogue.fields import LARGEST, About, abouts, bounded, count, number, size
from rooflm.errors import RooflmError
from rooflm.units import Num, is_plain

INF = float("inf")
WIDEST = 1e6
"""Times that a model may be as wide or as deep: beyond, sizes are no longer exact."""


@dataclass(frozen=True)
class Attention:
    """Softmax attention: MHA, GQA or MQA by `kv_heads`; a sliding (or chunked) window where `window` is finite.

    head_dim: of queries and keys; value_dim: of values (0 = head_dim). bias: on Q, K, V; out_bias: on the output.
    qk_norm: a norm weight on Q and K of head_dim each. gate: an output gate as wide as the queries (Qwen3-Next).
    shared_kv_layers are not modelled. rope: rotary embedding is applied.
    """

    heads: Num = field(metadata=size("query heads"))
    kv_heads: Num = field(metadata=size("heads of keys and values"))
    head_dim: Num = field(metadata=size("width of a head of queries and keys"))
    value_dim: Num = count(0, "width of a head of values (0: head_dim)", low=0)
    window: Num = count(INF, "tokens that a query sees")
    bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    gate: bool = False
    rope: bool = True

    @property
    def v_dim(self) -> Num:
        """Width of a value head: value_dim where given, head_dim otherwise."""
        return self.head_dim if is_plain(self.value_dim, 0) else self.value_dim


@dataclass(frozen=True)
class MLA:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the cache holds kv_rank + rope_dim values a token.

    q_rank 0: queries are projected directly. index_topk > 0: sparse attention (DeepSeek-V3.2, arXiv 2512.02556): a
    light indexer of index_heads x index_dim picks index_topk past tokens for each query.
    """

    heads: Num = field(metadata=size("query heads"))
    q_rank: Num = field(metadata=size("width of the latent of queries (0: none)", low=0))
    kv_rank: Num = field(metadata=size("width of the latent of keys and values"))
    nope_dim: Num = field(metadata=size("width of a head without position"))
    rope_dim: Num = field(metadata=size("width of a head with position"))
    value_dim: Num = field(metadata=size("width of a head of values"))
    index_topk: Num = count(0, "past tokens that a query attends to (0: all)", low=0)
    index_heads: Num = count(0, "heads of the indexer", low=0)
    index_dim: Num = count(0, "width of a head of the indexer", low=0)


@dataclass(frozen=True)
class LinearAttention:
    """A recurrent mixer with a state of fixed size: Mamba-2 (SSD), gated DeltaNet, Kimi delta attention, Mamba-1.

    kind: "mamba2", "gated-delta", "kda" or "mamba1". heads x head_dim is the value width; key_heads x state the key
    width (Mamba: groups x state size). conv: kernel width of the short convolution.
    """

    kind: str
    heads: Num = field(metadata=size("heads of values"))
    head_dim: Num = field(metadata=size("width of a head of values"))
    key_heads: Num = field(metadata=size("heads of keys (Mamba: groups)"))
    state: Num = field(metadata=size("width of a head of keys (Mamba: state size)"))
    conv: Num = count(4, "kernel width of the convolution")


@dataclass(frozen=True)
class MLP:
    """Dense feed-forward of `width`; gated (SwiGLU, GeGLU: three matrices) or not (two)."""

    width: Num = field(metadata=size("inner width"))
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True)
class MoE:
    """Mixture of experts: `top_k` of `experts` a token, each an MLP of `width`, beside a shared MLP of `shared_width`.

    shared_gate: one scalar gate on the shared expert (Qwen2-MoE). bias: biases on the router and on the
    experts' matrices (gpt-oss). router_bias: a bias that only balances the choice of experts (DeepSeek-V3).
    latent > 0: the routed experts read and write a latent of that width, with one projection down and one up a layer
    (LatentMoE, Nemotron 3 Super); the router and the shared MLP keep the hidden width.
    """

    experts: Num = field(metadata=size("routed experts of a layer"))
    top_k: Num = field(metadata=size("experts that a token takes"))
    width: Num = field(metadata=size("inner width of an expert"))
    shared_width: Num = count(0, "inner width of the shared expert (0: none)", low=0)
    gated: bool = True
    bias: bool = False
    shared_gate: bool = False
    router_bias: bool = False
    latent: Num = count(0, "width of the latent that experts work on (0: none)", low=0)

    def inner(self, hidden: Num) -> Num:
        """Width that the routed experts read and write: the latent where there is one, else the hidden width."""
        return hidden if is_plain(self.latent, 0) else self.latent


Mixer = Attention | MLA | LinearAttention
FeedForward = MLP | MoE


@dataclass(frozen=True)
class Block:
    """`count` equal layers, each a mixer and a feed-forward (either may be absent, as in Nemotron-H).

    norms: norm weights of the hidden width a layer (2 as usual, 1 in GPT-J, 4 with Gemma 2's sandwich).
    parallel: mixer and feed-forward read the same input and their outputs are added (GPT-J, GPT-NeoX, Falcon): one
    all-reduce a layer under tensor parallelism instead of two.
    """

    count: Num = field(metadata=size("equal layers"))
    mixer: Mixer | None
    ffn: FeedForward | None
    norms: Num = number(2, "norms of the hidden width a layer")
    parallel: bool = False


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer (or hybrid). Sizes are of the whole model, before any split.

    positions: learned position embeddings (0 with rotary or ALiBi). norm: "rms" (one weight) or "layer" (weight and
    bias). tied: the head shares the embedding. softcap/other pointwise details that cost next to nothing are left out.
    extra_params: what no block holds (an embedding norm, projections beside the embedding). quant: how the released
    weights are stored ("fp8", "mxfp4", ...; empty: in dtype). published_params: the count in `source`, params_kind
    "exact" or "rounded"; published_active: the count that one token uses, as published.
    width_scale, depth_scale: widen or deepen any model (Q/KV heads, hidden and feed-forward width; number of layers).
    width_prune, depth_prune: shares removed: width pruning removes heads and feed-forward width and keeps the hidden
    size (LLM-Pruner, arXiv 2305.11627), depth pruning removes whole blocks (Shortened LLaMA, arXiv 2402.02834).
    """

    name: str
    hidden: Num = field(metadata=size("hidden width"))
    vocab: Num = field(metadata=size("tokens of the vocabulary"))
    blocks: tuple[Block, ...]
    positions: Num = count(0, "learned position embeddings", low=0)
    max_context: Num = count(INF, "tokens that it was made for")
    tied: bool = False
    norm: str = "rms"
    head_bias: bool = False
    extra_params: Num = count(0, "parameters that no block holds", low=-LARGEST)
    dtype: str = "bf16"
    quant: str = ""
    published_params: float = number(0.0, "parameters as published")
    published_active: float = number(0.0, "parameters that one token uses, as published")
    params_kind: str = "rounded"
    source: str = ""
    date: str = ""
    width_scale: Num = number(1.0, "times as wide", high=WIDEST, above=True)
    depth_scale: Num = number(1.0, "times as many layers", high=WIDEST, above=True)
    width_prune: Num = number(0.0, "share of heads and inner width removed", high=1.0, below=True)
    depth_prune: Num = number(0.0, "share of layers removed", high=1.0, below=True)

    @property
    def layers(self) -> Num:
        """Number of layers, after any depth scaling."""
        return sum(block.count for block in self.scaled().blocks)

    def scaled(self) -> Model:
        """The model with its width and depth scales and prunings applied (itself when there are none).

        Head counts and widths are rounded to whole numbers, at least 1; the head size is kept.
        """
        neutral = (1.0, 1.0, 0.0, 0.0)
        asked = (self.width_scale, self.depth_scale, self.width_prune, self.depth_prune)
        if all(is_plain(a, n) for a, n in zip(asked, neutral, strict=True)):
            return self
        inner = self.width_scale * (1 - self.width_prune)
        depth = self.depth_scale * (1 - self.depth_prune)
        blocks = tuple(
            replace(b, count=_whole(b.count * depth), mixer=_widen(b.mixer, inner), ffn=_widen(b.ffn, inner))
            for b in self.blocks
        )
        return replace(
            self, hidden=_whole(self.hidden * self.width_scale), blocks=blocks, width_scale=1.0, depth_scale=1.0,
            width_prune=0.0, depth_prune=0.0, published_params=0.0, published_active=0.0,
        )  # fmt: skip


def _whole(value: Num) -> Num:
    """Round to a whole number of at least 1.

    >>> float(_whole(23.36)), float(_whole(0.2))
    (23.0, 1.0)
    """
    return np.maximum(np.round(value), 1)


_SCALED = {
    Attention: ("heads", "kv_heads"),
    MLA: ("heads",),
    LinearAttention: ("heads", "key_heads"),
    MLP: ("width",),
    MoE: ("width", "shared_width"),
}


def _widen(part: Any, scale: Num) -> Any:
    """A mixer or feed-forward with its heads or width times `scale`, whole numbers; what is absent stays so."""
    if part is None:
        return None
    sizes = {n: getattr(part, n) for n in _SCALED[type(part)]}
    return replace(part, **{n: _whole(v * scale) * (v > 0) for n, v in sizes.items() if not is_plain(v, 0)})


def mixer_params(mixer: Mixer | None, hidden: Num) -> Num:
    """Parameters of a mixer, norms inside it included.

    >>> mixer_params(Attention(32, 32, 128), 4096) == 4 * 4096**2
    True
    """
    h = hidden
    if mixer is None:
        return 0
    if isinstance(mixer, Attention):
        q, k, val = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim, mixer.kv_heads * mixer.v_dim
        out = mixer.heads * mixer.v_dim
        biases = mixer.bias * (q + k + val) + mixer.out_bias * h
        return h * (q * (1 + mixer.gate) + k + val) + out * h + biases + mixer.qk_norm * 2 * mixer.head_dim
    if isinstance(mixer, MLA):
        qk = mixer.nope_dim + mixer.rope_dim
        low_rank = mixer.q_rank * (h + mixer.heads * qk + 1)
        query = h * mixer.heads * qk if is_plain(mixer.q_rank, 0) else low_rank
        latent = h * (mixer.kv_rank + mixer.rope_dim) + mixer.kv_rank
        expand = mixer.kv_rank * mixer.heads * (mixer.nope_dim + mixer.value_dim)
        # the indexer (DeepSeek-V3.2): queries from the low-rank queries, one key a token with a LayerNorm, head weights
        index = (mixer.index_topk > 0) * (
            mixer.q_rank * mixer.index_heads * mixer.index_dim + h * mixer.index_dim + h * mixer.index_heads
            + 2 * mixer.index_dim
        )  # fmt: skip
        return query + latent + expand + mixer.heads * mixer.value_dim * h + index
    inner, keys = mixer.heads * mixer.head_dim, mixer.key_heads * mixer.state
    if mixer.kind == "mamba2":
        # in: z, x, B, C, dt; conv over x, B, C with bias; A, D, dt bias a head; gated norm; out
        return (
            h * (2 * inner + 2 * keys + mixer.heads)
            + (mixer.conv + 1) * (inner + 2 * keys)
            + 3 * mixer.heads
            + (inner + inner * h)
        )
    if mixer.kind == "mamba1":
        # in: x, z; conv with bias; x -> dt rank, B, C; dt -> inner with bias; A, D; out (state per channel)
        rank = np.ceil(h / 16)
        return (
            2 * h * inner
            + (mixer.conv + 1) * inner
            + inner * (rank + 2 * mixer.state)
            + (rank + 1) * inner
            + (inner * mixer.state + inner + inner * h)
        )
    if mixer.kind == "gated-delta":
        # q, k, v, output gate z; beta and decay a head; conv over q, k, v; A and dt bias; norm of head_dim; out
        return (
            h * (2 * keys + 2 * inner + 2 * mixer.heads)
            + mixer.conv * (2 * keys + inner)
            + 2 * mixer.heads
            + (mixer.head_dim + inner * h)
        )
    # Kimi delta attention: q, k, v, per-channel decay and output gate through a low rank of head_dim, beta a head
    gates = mixer.head_dim * (2 * h + keys + inner)
    return (
        h * (2 * keys + inner + mixer.heads)
        + mixer.conv * (2 * keys + inner)
        + gates
        + mixer.heads
        + keys
        + (mixer.head_dim + inner * h)
    )


def ffn_params(ffn: FeedForward | None, hidden: Num, active: bool = False) -> Num:
    """Parameters of a feed-forward; `active`: only those that one token uses.

    >>> ffn_params(MLP(11008), 4096) == 3 * 4096 * 11008
    True
    """
    if ffn is None:
        return 0
    mats = 3 if ffn.gated else 2
    inner = ffn.inner(hidden) if isinstance(ffn, MoE) else hidden
    each = mats * inner * ffn.width + ffn.bias * ((mats - 1) * ffn.width + inner)
    if isinstance(ffn, MLP):
        return each
    routed = (ffn.top_k if active else ffn.experts) * each + 2 * hidden * ffn.latent
    shared = mats * hidden * ffn.shared_width + ffn.shared_gate * hidden
    return routed + shared + ffn.experts * (hidden + (ffn.bias or ffn.router_bias))


def norm_params(model: Model) -> Num:
    """Parameters of one norm of the hidden width."""
    return model.hidden * (2 if model.norm == "layer" else 1)


def parameters(model: Model, active: bool = False) -> Num:
    """Total parameters (or, with `active`, those that one token touches) of the model as scaled.

    >>> llama = Model("llama-7b", 4096, 32000, (Block(32, Attention(32, 32, 128), MLP(11008)),))
    >>> int(parameters(llama))
    6738415616
    """
    m = model.scaled()
    layers = sum(
        b.count * (mixer_params(b.mixer, m.hidden) + ffn_params(b.ffn, m.hidden, active) + b.norms * norm_params(m))
        for b in m.blocks
    )
    head = (0 if m.tied else m.vocab * m.hidden) + m.head_bias * m.vocab
    return m.vocab * m.hidden + m.positions * m.hidden + layers + norm_params(m) + head + m.extra_params


def _wrong(at: str, value: Any, about: About) -> list[str]:
    """The rule of its field that a number breaks, if any."""
    if not isinstance(value, int | float):
        return [f"{at} is {value!r}, but it must be {about.rule}"]
    try:
        bounded(at, value, about)
    except RooflmError as error:
        return [str(error)]
    return []


def _walk(part: Any, at: str) -> list[str]:
    """The rules that the numbers of a model and its parts break."""
    wrong = []
    known = abouts(type(part))
    for f in fields(part):
        value, name = getattr(part, f.name), f"{at}{f.name}"
        if is_dataclass(value):
            wrong += _walk(value, f"{name}.")
        elif f.name == "blocks":
            wrong += [w for i, b in enumerate(value) for w in _walk(b, f"{name}[{i}].")]
        elif f.name in known:
            wrong += _wrong(name, value, known[f.name])
    return wrong


def checked(model: Model, label: str) -> Model:
    """The model itself when its shapes make sense; otherwise RooflmError naming the field, the value and the rule.

    For models as read, whose numbers are plain: sizes without a default are whole numbers of at least 1, others of at
    least 0; queries come in whole groups a KV head; no more experts are chosen than there are.
    """
    wrong = _walk(model, "")
    if not model.blocks:
        wrong.append("blocks is empty, but a model needs at least one block")
    for i, block in enumerate(model.blocks if not wrong else ()):
        mixer, ffn, at = block.mixer, block.ffn, f"blocks[{i}]"
        if isinstance(mixer, Attention) and mixer.heads % mixer.kv_heads:
            wrong.append(f"{at}.mixer.heads is {mixer.heads}, but it must be a multiple of kv_heads {mixer.kv_heads}")
        if isinstance(ffn, MoE) and ffn.top_k > ffn.experts:
            wrong.append(f"{at}.ffn.top_k is {ffn.top_k}, but there are only {ffn.experts} experts")
        if mixer is None and ffn is None:
            wrong.append(f"{at} is empty, but a block needs a mixer or a feed-forward")
    if wrong:
        raise RooflmError(f"{label}: {wrong[0]}")
    return model
