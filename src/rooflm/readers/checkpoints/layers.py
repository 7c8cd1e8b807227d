"""Layers of a config: each gets its mixer and feed-forward from what the config says; equal ones make a block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from rooflm.catalogue.model import INF, MLA, MLP, Attention, Block, FeedForward, LinearAttention, Mixer, MoE
from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.config import Config
from rooflm.readers.checkpoints.families import table
from rooflm.units import Num

MOST_LAYERS = 10_000
_ENDLESS = 2**40


def kinds(c: Config) -> list[str]:
    """What each layer is: "full", "window", "blocks" (attention), "recurrent" or "conv" with a feed-forward, "hybrid",
    or "mlp"/"moe" alone."""
    pattern = c.get("hybrid_override_pattern")
    if pattern is not None and not isinstance(pattern, str):
        raise c.bad("hybrid_override_pattern", "text such as 'M-M*'")
    said = table().kinds
    key = next((k for k in said.lists if c.get(k)), "layer_types")
    listed = list(pattern) if pattern else c.items(key, str)
    count = c.number("layers", len(listed) if listed else None)
    if count > MOST_LAYERS:
        raise c.bad(c.key("layers"), f"at most {MOST_LAYERS}")
    if listed is None:
        return _by_number(c, count) or [_kind_by_rule(c, i, count) for i in range(count)]
    if len(listed) != count:
        key = "hybrid_override_pattern" if pattern else key
        raise RooflmError(f"{c.label}: {key} has {len(listed)} items, but there are {count} layers")
    latent = bool(c.get("kv_lora_rank") and c.get("index_topk"))
    known = {k for k, v in said.names.items() if (v != "indexed" or latent) and (v != "hybrid" or c.family.layers)}
    unknown = sorted(set(listed) - known)
    if unknown:
        raise RooflmError(f"{c.label}: {key} names {unknown[0]!r}, a kind of layer that is not modelled")
    return [said.names[kind].replace("indexed", "full") for kind in listed]


def _by_number(c: Config, count: int) -> list[str] | None:
    """Kinds by a list of numbers a layer, or by lists of layers' numbers; None where the config has neither."""
    for key, names in table().kinds.numbered.items():
        listed = c.items(key, int)
        if listed:
            if len(listed) < count or any(v not in (0, 1) for v in listed):
                raise c.bad(key, f"0 or 1 for each of {count} layers")
            return [names[v] for v in listed[:count]]
    recurrent = c.items("linear_attn_config.kda_layers", int)  # numbered from 1
    if recurrent:
        return ["recurrent" if i + 1 in recurrent else "full" for i in range(count)]
    attention = c.items("attn_layer_indices", int)
    if attention is None:
        attention = c.items("full_attn_idxs", int)
        return None if attention is None else ["full" if i in attention else "conv" for i in range(count)]
    return ["full" if i in attention else "recurrent" for i in range(count)]


def _kind_by_rule(c: Config, i: int, layers: int) -> str:
    """What layer `i` is where the config has no list of layers."""
    if c.has("attn_layer_period"):
        return "full" if i % c.number("attn_layer_period") == c.number("attn_layer_offset", 0, 0) else "recurrent"
    if c.has("full_attention_interval") and c.has("linear_num_value_heads"):
        return "recurrent" if (i + 1) % c.number("full_attention_interval") else "full"
    if c.has("layer_group_size"):
        return "recurrent" if (i + 1) % c.number("layer_group_size") else "full"
    if c.has("mamba_n_heads") and not c.family.layers:
        return "recurrent"
    rule = c.family.window
    if not c.has("window") or not c.number("window") or rule == "never":
        return "full"
    period = c.number("sliding_window_pattern", 0, 0) or c.number("_sliding_window_pattern", 0, 0)
    if rule == "late":
        used = c.flag("use_sliding_window") and i >= c.number("max_window_layers", layers, 0)
    elif rule == "even":
        used = i % 2 == 0
    elif rule == "after":
        used = i % c.number("global_attn_every_n_layers") != 0
    elif rule == "chunked":
        rotary = c.items("no_rope_layers", int, layers)
        used = bool(rotary[i]) if rotary else (i + 1) % 4 != 0
    else:
        used = c.flag("use_sliding_window?") and (not period or (i + 1) % period != 0)
    return "window" if used else "full"


def attention(c: Config, i: int, kind: str, layers: int) -> Mixer:
    """The softmax attention (plain or latent) of layer `i`."""
    f, heads, hidden = c.family, c.number("heads"), c.number("hidden")
    if c.has("kv_lora_rank"):
        return _latent(c, i, kind, layers)
    own = kind == "window" and c.get("hybrid_layer_pattern") is not None  # MiMo-V2's windows have heads of their own
    heads = c.number("swa_num_attention_heads", heads) if own else heads
    given = c.get(c.key("head_dim")) is not None
    if not given and hidden % heads:
        raise RooflmError(
            f"{c.label}: {c.key('heads')} is {heads}, but it must divide {c.key('hidden')} {hidden} without a head_dim"
        )
    dim = c.number("head_dim") if given else hidden // heads
    dim = c.number("swa_head_dim", dim) if own else dim
    value = c.number("v_head_dim", dim)
    value = c.number("swa_v_head_dim", value) if own else value
    kv_heads = _kv_heads(c, i, heads, kind)
    context = c.number("context", _ENDLESS)
    window: float = c.number("window") if kind == "window" else INF
    bias = c.flag(f.bias)
    whole = {"all": True, "vision": False}.get(str(c.get("use_bidirectional_attention")))  # or images' tokens
    both_ways = c.get("is_causal") is False or (c.flag("use_bidirectional_attention") if whole is None else whole)
    free = (f.window == "chunked" or "full_without_rope" in f.extra) and kind == "full"
    index = _block_index(c) if kind == "blocks" else (0, 0, 0)
    return Attention(
        heads, kv_heads, dim, 0 if value == dim else value, window=INF if window >= context else window, bias=bias,
        out_bias=bias if f.out_bias is None else c.flag(f.out_bias), qk_norm=c.flag(f.qk_norm), gate=c.flag(f.gate),
        rope=f.rope and not free, causal=f.causal and not both_ways, index_topk=index[0], index_heads=index[1],
        index_dim=index[2], joint_norm="joint_qk_norm" in f.extra and c.flag(f.qk_norm),
    )  # fmt: skip


def _latent(c: Config, i: int, kind: str, layers: int) -> MLA:
    """Latent attention, with its sparse indexer where there is one."""
    if kind == "window":
        raise RooflmError(f"{c.label}: layer {i} is latent attention with a window, which is not modelled")
    topk = c.number("index_topk", 0, 0)
    shared = (c.items("indexer_types", str, layers) or [""] * layers)[i] == "shared"
    own = topk > 0 and not shared  # a shared layer takes the tokens that an earlier layer's indexer picked
    return MLA(
        c.number("heads"), c.number("q_lora_rank", 0, 0), c.number("kv_lora_rank"), c.number("qk_nope_head_dim"),
        c.number("qk_rope_head_dim", None, 0), c.number("v_head_dim"), topk,
        c.number("index_n_heads") if own else 0, c.number("index_head_dim") if own else 0,
    )  # fmt: skip


def _block_index(c: Config) -> tuple[int, int, int]:
    """Tokens that a query reads, heads and head size of the indexer that picks their blocks (MiniMax-M3)."""
    inner = "sparse_attention_config.sparse_"

    def either(flat: str, nested: str) -> int:
        return c.number(inner + nested) if c.get(inner + nested) is not None else c.number(flat)

    blocks = either("index_topk_blocks", "topk_blocks")  # the local blocks are among them
    return (
        blocks * either("index_block_size", "block_size"),
        either("index_n_heads", "num_index_heads"),
        either("index_head_dim", "index_dim"),
    )


def _kv_heads(c: Config, i: int, heads: int, kind: str) -> int:
    """KV heads of layer `i`: as many as there are query heads where the config says nothing."""
    each = c.items("num_key_value_heads_per_layer", int)
    if each is not None:
        if i >= len(each) or isinstance(each[i], bool) or each[i] < 1:
            raise c.bad("num_key_value_heads_per_layer", "a whole number of at least 1 for each layer")
        return int(each[i])
    if "window_sinks" in c.family.extra and kind == "window":  # transformers doubles them where the config says nothing
        return c.number("swa_num_key_value_heads", 2 * c.number("kv_heads", heads))
    if "falcon" in c.family.extra and not c.flag("new_decoder_architecture"):
        return 1 if c.flag("multi_query?") else heads
    if "multi_query" in c.family.extra:
        return 1 if c.flag("multi_query?") else heads
    if "mpt" in c.family.extra:
        known = c.get("attn_config.attn_type")
        return {"multiquery_attention": 1, "grouped_query_attention": c.number("attn_config.kv_n_heads", heads)}.get(
            known if isinstance(known, str) else "", heads
        )
    return c.number("kv_heads", heads)


def recurrent(c: Config) -> LinearAttention:
    """The recurrent mixer: gated DeltaNet (Qwen3-Next), Kimi delta attention, Mamba-2 (Nemotron-H, Bamba, Granite 4),
    lightning attention (MiniMax-01, Ling 2.5) or Mamba-1 (Jamba)."""
    if c.get("linear_num_value_heads") is not None:
        names = ("linear_num_value_heads", "linear_value_head_dim", "linear_num_key_heads", "linear_key_head_dim")
        heads, dim, keys, state = (c.number(n) for n in names)
        return LinearAttention("gated-delta", heads, dim, keys, state, c.number("linear_conv_kernel_dim", 4))
    for at in ("linear_attn_config.", "linear_"):
        if c.get(at + "num_heads") is not None:
            heads, dim = c.number(at + "num_heads"), c.number(at + "head_dim")
            width = at + ("short_conv_kernel_size" if at.endswith(".") else "conv_kernel_dim")
            return LinearAttention("kda", heads, dim, heads, dim, c.number(width, 4))
    if any(c.get(k) is not None for k in table().kinds.lightning):
        heads = c.number("lightning_nh", c.number("heads"))
        dim = c.number("lightning_head_dim", c.number("head_dim", c.number("hidden") // heads))
        return LinearAttention("lightning", heads, dim, c.number("lightning_nkv", heads), dim, 0)
    heads_of = c.get("mamba_num_heads") is not None or c.get("mamba_n_heads") is not None
    if heads_of or c.get("n_mamba_heads") is not None:
        return mamba2(c)
    return mamba1(c)


def mamba2(c: Config) -> LinearAttention:
    """Mamba-2 by any family's names; the head size is what the inner width leaves where it is not given."""
    heads = c.number("mamba_heads")
    inner = c.number("mamba_expand", 2) * c.number("hidden")
    given = c.get(c.key("mamba_head"))
    dim = inner // heads if given is None or given == "auto" else c.number("mamba_head")
    return LinearAttention(
        "mamba2", heads, dim, c.number("mamba_groups", 1), c.number("mamba_state"), c.number("mamba_conv", 4)
    )


def mamba1(c: Config) -> LinearAttention:
    """Mamba-1, its channels in heads of 64 so that tensor parallelism can split them."""
    inner = c.number("mamba_expand", 2) * c.number("hidden")
    dim = 64 if inner % 64 == 0 else 1
    return LinearAttention("mamba1", inner // dim, dim, 1, c.number("mamba_state"), c.number("mamba_conv", 4))


def short_convolution(c: Config) -> LinearAttention:
    """LFM2's gated short convolution, as wide as the hidden state."""
    hidden = c.number("hidden")
    dim = next(d for d in (64, 32, 16, 8, 4, 2, 1) if hidden % d == 0)
    return LinearAttention("conv", hidden // dim, dim, 1, 1, c.number("conv_L_cache", 3))


def sparse(c: Config, i: int, layers: int) -> bool:
    """True when layer `i` has experts."""
    if not c.has("experts") or c.get("is_moe") is False or c.get("enable_moe_block") is False:
        return False
    listed = c.items("mlp_layer_types", str, layers)
    if listed:
        return bool(listed[i] == "sparse")
    dense, moe = c.items("mlp_only_layers", int) or [], c.items("moe_layers", int)
    if moe:
        return i in moe
    if isinstance(c.get("moe_layer_freq"), list):
        return bool((c.items("moe_layer_freq", int, layers) or [1] * layers)[i])
    if c.has("expert_layer_period"):
        return i % c.number("expert_layer_period") == c.number("expert_layer_offset", 0, 0)
    step = c.number("interleave_moe_layer_step", c.number("decoder_sparse_step", 1))
    every = i % c.number("moe_layer_freq", 1) == 0
    first = c.number("first_dense", 0, 0)
    return i not in dense and i >= first and every and (i + 1) % step == 0


def experts(c: Config) -> MoE:
    """The mixture of experts."""
    f, extra = c.family, c.family.extra
    width = c.number("expert_width", c.number("width", 0) or None)
    shared = c.number("shared_width", 0, 0) or c.number("shared_experts", 0, 0) * width
    if "shared_as_wide" in extra:
        shared = width
    bias = c.get("topk_method") == "noaux_tc" or c.flag(f.router_bias)
    return MoE(
        c.number("experts"), c.number("top_k"), width, shared, gated=f.gated, bias="expert_bias" in extra,
        shared_gate=f.shared_gate and shared > 0, router_bias=bias, groups=c.number("n_group", 1, 0) or 1,
        latent=c.number("latent", 0, 0), joined="joined_experts" in extra, wide_router="wide_router" in extra,
    )  # fmt: skip


def dense(c: Config) -> MLP:
    """The dense feed-forward; LFM2 shrinks the stated width to two thirds, in whole multiples."""
    hidden, factor = c.number("hidden"), c.family.width_factor
    factor = c.number("expansion_ratio", factor, 1) if "mpt" in c.family.extra else factor
    width = c.number("width", factor * hidden or None)
    if "adjusted_width" in c.family.extra and c.flag("block_auto_adjust_ff_dim?"):
        multiple = c.number("block_multiple_of", 256)
        share = c.get("block_ffn_dim_multiplier")
        width = int((share if isinstance(share, int | float) else 1.0) * int(2 * width / 3))
        width = -(-width // multiple) * multiple
    return MLP(width, c.family.gated, c.flag(c.family.ffn_bias))


def counted(pairs: list[tuple[Mixer | None, FeedForward | None]], norms: int, parallel: bool) -> tuple[Block, ...]:
    """Group equal layers into blocks with a count, in order of first appearance; equal mixers become one object."""
    same: dict[Any, Any] = {}
    counts: dict[tuple[Mixer | None, FeedForward | None], int] = {}
    for mixer, ffn in pairs:
        key = (same.setdefault(mixer, mixer), same.setdefault(ffn, ffn))
        counts[key] = counts.get(key, 0) + 1
    return tuple(Block(n, m, f, norms, parallel and m is not None and f is not None) for (m, f), n in counts.items())


def blocks(c: Config) -> tuple[Block, ...]:
    """The layers of a decoder whose layers are one mixer and one feed-forward each."""
    listed = kinds(c)
    alone = bool(c.get("hybrid_override_pattern") or c.get("layers_block_type")) and c.get("attn_layer_period") is None
    made: dict[tuple[Any, ...], Any] = {}

    def once(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in made:
            made[key] = make()
        return made[key]

    each = layers_differ(c)
    pairs: list[tuple[Mixer | None, FeedForward | None]] = []
    for i, kind in enumerate(listed):
        at, own = (i, c.layer(i)) if each else (0, c)
        mixer = ffn = None
        if kind in ("full", "window", "blocks"):
            mixer = once((kind, at), partial(attention, own, i, kind, len(listed)))
        elif kind in ("recurrent", "conv"):
            mixer = once((kind,), partial(recurrent if kind == "recurrent" else short_convolution, c))
        if kind == "moe" or (not alone and sparse(c, i, len(listed))):
            ffn = once(("experts", at), partial(experts, own))
        elif kind == "mlp" or not alone:
            ffn = once(("dense", at), partial(dense, own))
        pairs.append((mixer, ffn))
    parallel, norms = c.flag(c.family.parallel), c.family.norms
    if "falcon" in c.family.extra and parallel and not c.flag("new_decoder_architecture"):
        norms = 1
    return counted(pairs, norms, parallel)


def layers_differ(c: Config) -> bool:
    """True if the config has values per layer, so that layers of one kind may differ."""
    named = ("num_key_value_heads_per_layer", "indexer_types", "per_layer_config")
    sized = [c.key(n) for n in ("heads", "kv_heads", "width", "experts", "top_k", "expert_width", "shared_experts")]
    return any(c.get(k) is not None for k in named) or any(isinstance(c.get(k), list) for k in sized)


def _indexers(c: Config) -> int:
    """Layers with an indexer of their own."""
    listed = kinds(c)
    types = c.items("indexer_types", str, len(listed)) or [""] * len(listed)
    return sum(kind == "full" and own != "shared" for kind, own in zip(listed, types, strict=True))


class Sizes(NamedTuple):
    """What corrections count with: hidden values, layers, and how many layers have each plain mixer and each scan."""

    hidden: int
    layers: int
    plain: list[tuple[Num, Attention]]
    scans: list[tuple[Num, LinearAttention]]


def _opt(c: Config, n: Sizes) -> int:
    """OPT's: products to and from a narrower token table; no last norm where norms follow the products."""
    narrow = c.number("word_embed_proj_dim", n.hidden)
    table = (narrow - n.hidden) * c.number("vocab") + 2 * narrow * n.hidden if narrow != n.hidden else 0
    return table - (0 if c.flag("do_layer_norm_before?") else 2 * n.hidden)


def mixing(streams: int, hidden: int) -> int:
    """What mixes the streams of a residual around half a layer (modeling_deepseek_v4.py, modeling_glm5_next.py)."""
    return (2 + streams) * streams * (streams * hidden + 1) + 3


EXTRA: dict[str, Callable[[Config, Sizes], Any]] = {
    "embedding_norm": lambda _, n: 2 * n.hidden,
    "plain_embedding_norm": lambda _, n: n.hidden,
    "one_norm_less": lambda _, n: -n.hidden,
    "no_final_norm": lambda _, n: -2 * n.hidden,
    "no_norm_weights": lambda _, n: -(2 * n.layers + 1) * n.hidden,  # the norms are there, without weights
    "wide_qk_norm": lambda _, n: sum(m * (a.heads + a.kv_heads - 2) * a.head_dim for m, a in n.plain if a.qk_norm),
    "sinks": lambda _, n: sum(m * a.heads for m, a in n.plain),
    "sub_norms": lambda c, n: n.layers * (n.hidden + c.number("width")),  # before the last product of either part
    "window_sinks": lambda _, n: sum(m * a.heads for m, a in n.plain if a.window != INF),
    "head_gates": lambda c, n: c.flag("use_attention_gate") * sum(m * a.heads * n.hidden for m, a in n.plain),
    "full_gates": lambda _, n: sum(  # decay and output gate of full rank, not through a low one
        m * 2 * (n.hidden * a.heads * a.head_dim - a.head_dim * (n.hidden + a.heads * a.head_dim))
        for m, a in n.scans
        if a.kind == "kda"
    ),
    "jamba": lambda c, n: sum(m for m, _ in n.scans) * (-(-n.hidden // 16) + 2 * c.number("mamba_d_state")),
    "kinds_of_text": lambda c, n: c.number("type_vocab_size", 2, 0) * n.hidden,
    "pooler": lambda _, n: n.hidden**2 + n.hidden,
    # of positions, in all layers alike (MPNet)
    "shared_biases": lambda c, _: c.number("relative_attention_num_buckets", 32) * c.number("heads"),
    "last_bias": lambda _, n: n.layers * n.hidden,  # of the feed-forward's second product alone
    "hyper_connections": lambda c, n: 2 * n.layers * mixing(c.number("hc_mult", 4), n.hidden),
    # of an indexer that picks pools of tokens: a place of each token of a pool, and weights of theirs
    "pooled_index": lambda c, n: c.number("index_head_dim") * (c.number("index_kpool", 1) + n.hidden) * _indexers(c),
    "opt": _opt,
}  # fmt: skip
"""A family's named correction (`extra` of families.toml) -> parameters that no shape of a block counts."""


def extra_params(c: Config, made: tuple[Block, ...]) -> int:
    """Parameters outside the blocks' own shapes, by the family's named corrections."""
    plain = [(b.count, b.mixer) for b in made if isinstance(b.mixer, Attention)]
    scans = [(b.count, b.mixer) for b in made if isinstance(b.mixer, LinearAttention)]
    sizes = Sizes(c.number("hidden"), int(sum(b.count for b in made)), plain, scans)
    return sum(int(rule(c, sizes)) for name, rule in EXTRA.items() if name in c.family.extra)


def matrices(made: tuple[Block, ...]) -> int:
    """Weight matrices of all layers, as a scheme quantises them one by one."""
    total = 0
    for b in made:
        each = 0 if b.mixer is None else 4
        if b.ffn is not None:
            mats = 3 if b.ffn.gated else 2
            each += mats * (int(b.ffn.experts) + int(b.ffn.shared_width > 0) if isinstance(b.ffn, MoE) else 1)
        total += int(b.count) * each
    return total


def mtp_params(c: Config, made: tuple[Block, ...]) -> int:
    """Parameters of the multi-token-prediction layers that a checkpoint holds beside its decoder.

    Each is one more layer like the last, a projection of hidden state and embedding to the hidden width, three norms,
    and, where the config counts "nextn" layers, an embedding and a head of its own (DeepSeek-V3, arXiv 2412.19437,
    section 2.2; its checkpoint holds both for layer 61). Qwen3.5's share the model's.
    """
    from rooflm.catalogue.model import ffn_params, mixer_params

    own = c.number("num_nextn_predict_layers", 0, 0)
    layers = own or c.number("mtp_num_hidden_layers", 0, 0)
    if not layers or not made:
        return 0
    hidden, last = c.number("hidden"), made[-1]
    each = mixer_params(last.mixer, hidden) + ffn_params(last.ffn, hidden) + 2 * hidden**2 + (last.norms + 3) * hidden
    return int(layers * (each + (2 * c.number("vocab") * hidden if own else 0)))
