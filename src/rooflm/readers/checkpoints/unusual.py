"""Families whose layers are not one mixer and one feed-forward: written as several blocks a layer, with corrections.

A builder takes a config and gives blocks and the parameters that no block holds (negative where applications of one
shared block are counted as blocks). Sources: the families' modelling code in Hugging Face transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rooflm.catalogue.model import (
    MLP,
    Attention,
    Block,
    CompressedAttention,
    FeedForward,
    Mixer,
    MoE,
    ffn_params,
    mixer_params,
)
from rooflm.errors import RooflmError
from rooflm.readers.checkpoints import layers
from rooflm.readers.checkpoints.config import Config

Built = tuple[tuple[Block, ...], int]


def _mamba(c: Config) -> Built:
    """Mamba layers alone, one norm each (modeling_mamba.py, modeling_mamba2.py)."""
    count = len(layers.kinds(c))
    mixer = layers.mamba2(c) if c.get("num_heads") is not None else layers.mamba1(c)
    return (Block(count, mixer, None, 1),), 0


def _falcon_h1(c: Config) -> Built:
    """Mamba-2 and attention side by side on one norm, then the feed-forward (modeling_falcon_h1.py)."""
    count, mixer = len(layers.kinds(c)), layers.mamba2(c)
    attention = layers.attention(c, 0, "full", count)
    inner = int(mixer.heads * mixer.head_dim)
    blocks = (Block(count, mixer, None, 0, layers=0), Block(count, attention, layers.dense(c), 2))
    return blocks, 0 if c.flag("mamba_rms_norm") else -count * inner


def _zamba2(c: Config) -> Built:
    """Mamba-2 layers; some apply a shared transformer block first, to the state beside the embedding, and a projection
    of their own (arXiv 2411.15242; modeling_zamba2.py). Each application is a block; what is shared is taken off."""
    kinds, hidden = layers.kinds(c), c.number("hidden")
    mixer, used = layers.mamba2(c), kinds.count("hybrid")
    heads = c.number("heads")
    attention = Attention(heads, c.number("kv_heads", heads), c.number("head_dim", 2 * hidden // heads),
                          rope=c.flag("use_mem_rope"))  # fmt: skip
    ffn = MLP(c.number("width", 4 * hidden), True, c.flag("add_bias_linear"))
    blocks = (Block(len(kinds), mixer, None, 1), Block(used, attention, ffn, 2, layers=0))
    shared = int(mixer_params(attention, hidden) + ffn_params(ffn, hidden) + 2 * hidden)
    wider = 3 * hidden * int(attention.heads * attention.head_dim) + hidden  # Q, K, V and their norm read 2 x hidden
    rank = c.number("adapter_rank", 128)
    adapters = rank * (hidden + 2 * int(ffn.width))
    if c.flag("use_shared_attention_adapter"):
        adapters += 3 * rank * (2 * hidden + int(attention.heads * attention.head_dim))
    own = c.number("num_mem_blocks", 1)
    return blocks, own * (shared + wider) - used * shared + used * (hidden**2 + adapters)


def _longcat(c: Config) -> Built:
    """Two latent attentions and two dense feed-forwards a layer, experts across both (arXiv 2509.01322). Some experts
    are the identity: of the chosen ones only a share computes."""
    count, hidden = c.number("layers"), c.number("hidden")
    attention = layers.attention(c, 0, "full", count)
    real, none = c.number("experts"), c.number("zero_expert_num", 0, 0)
    busy = max(round(c.number("top_k") * real / (real + none)), 1)
    moe = MoE(real, busy, c.number("expert_width"))
    blocks = (Block(2 * count, attention, MLP(c.number("width")), 2, layers=0.5), Block(count, None, moe, 0, layers=0))
    return blocks, count * none * hidden


def _shared_from(c: Config, count: int) -> int:
    """The first layer that reads an earlier layer's keys and values."""
    return count - c.number("num_kv_shared_layers", 0, 0)


def _per_layer_embeddings(c: Config, count: int) -> int:
    """Gemma 3n's and 4's embeddings a layer: their table, its projection and norm, and a gate and projection a layer,
    whose norm is one of the layer's."""
    hidden, width = c.number("hidden"), c.number("hidden_size_per_layer_input", 0, 0)
    table = c.number("vocab_size_per_layer_input", c.number("vocab"))
    if not width:
        return 0
    return table * count * width + hidden * count * width + width + count * 2 * hidden * width


def _gemma3n(c: Config) -> Built:
    """Attention whose last layers share keys and values; AltUp's streams and LAuReL beside (modeling_gemma3n.py)."""
    kinds, hidden = layers.kinds(c), c.number("hidden")
    count, first = len(kinds), _shared_from(c, len(kinds))
    pairs: list[tuple[Mixer | None, FeedForward | None]] = []
    for i, kind in enumerate(kinds):
        own = c.layer(i)
        pairs.append((_gemma_attention(own, i, kind, count, i >= first), layers.dense(own)))
    streams, rank = c.number("altup_num_inputs", 4), c.number("laurel_rank", 64)
    altup = hidden + streams**2 + streams * hidden + streams**3 + hidden  # scale, correction, router, prediction, norm
    laurel = 2 * hidden * rank + hidden
    extra = count * (altup + laurel) + 2 * (streams - 1) * hidden**2 + _per_layer_embeddings(c, count)
    return layers.counted(pairs, c.family.norms + 1, False), extra


def _gemma_attention(c: Config, i: int, kind: str, count: int, shared: bool) -> Attention:
    """Attention of a Gemma 3n or 4 layer: the full layers of Gemma 4 have heads of another size."""
    made = layers.attention(c, i, kind, count)
    assert isinstance(made, Attention)
    if kind == "full" and c.get("per_layer_config") is None and c.get("global_head_dim") is not None:
        made = replace(made, head_dim=c.number("global_head_dim"))
        if c.get("num_global_key_value_heads") is not None and c.get("attention_k_eq_v") is not False:
            made = replace(made, kv_heads=c.number("num_global_key_value_heads"))
    return replace(made, shared_kv=shared)


def _gemma4(c: Config) -> Built:
    """Full layers with wider heads, some with keys for values, last layers that share keys and values and may be twice
    as wide, experts beside the dense feed-forward (modeling_gemma4.py)."""
    kinds, hidden = layers.kinds(c), c.number("hidden")
    count, first = len(kinds), _shared_from(c, len(kinds))
    pairs: list[tuple[Mixer | None, FeedForward | None]] = []
    extra = _per_layer_embeddings(c, count)
    for i, kind in enumerate(kinds):
        own = c.layer(i)
        attention = _gemma_attention(own, i, kind, count, i >= first)
        ffn: FeedForward = layers.dense(own)
        if i >= first and c.flag("use_double_wide_mlp"):
            ffn = MLP(2 * ffn.width)
        if c.flag("enable_moe_block"):
            ffn = MoE(c.number("experts"), c.number("top_k"), c.number("expert_width"), ffn.width)
            extra += int(ffn.experts)  # a scale of each
        if c.flag("attention_k_eq_v") and kind == "full" and i < first:
            extra -= hidden * int(attention.kv_heads * attention.head_dim)  # no projection for the values
        pairs.append((attention, ffn))
    inputs = c.number("hidden_size_per_layer_input", 0, 0) > 0
    norms = c.family.norms * (1 + c.flag("enable_moe_block")) + inputs  # of each feed-forward, their sum and the router
    return layers.counted(pairs, norms, False), extra


def _nas(c: Config) -> Built:
    """Layers that a search thinned out (Puzzle, arXiv 2411.19146; modeling_decilm.py): any may lack its attention, its
    feed-forward or both, or have one square matrix in its place (Nemotron 51B), counted as two of half as many columns;
    a width is two thirds of `ffn_mult` hidden widths, in whole multiples of 256."""
    hidden, heads, count = c.number("hidden"), c.number("heads"), c.number("layers")
    square = MLP(hidden // 2, gated=False)
    pairs: list[tuple[Mixer | None, FeedForward | None]] = []
    for part in (Config({**c.fields, **one}, c.family, c.label) for one in c.items("block_configs", dict, count) or []):
        share = part.get("ffn.ffn_mult") or 0
        if not isinstance(share, int | float) or not 0 <= share <= 100:
            raise part.bad("ffn.ffn_mult", "a number of 0 to 100")
        width = -(-int(2 * share * hidden / 3) // 256) * 256
        linear = part.get("attention.replace_with_linear")
        none = linear or part.get("attention.no_op")
        groups = 0 if none else heads // part.number("attention.n_heads_in_group")
        attends = None if none else Attention(heads, groups, hidden // heads)
        ffn = square if part.get("ffn.replace_with_linear") else MLP(width)
        pairs += [(None, square)] * bool(linear)
        pairs.append((attends, ffn if ffn.width and not part.get("ffn.no_op") else None))
    made = layers.counted([pair for pair in pairs if pair != (None, None)], 2, False)
    return tuple(replace(b, norms=(b.mixer is not None) + (b.ffn is not None)) for b in made), 0


_RATES = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
_SHARED = ("kv_source_layers", "index_source_layers", "engram_layer_ids", "candidate_source_layer")
"""Fields by which layers share entries or read tables: another model's layers."""


def _compressed_kinds(c: Config, count: int) -> list[tuple[int, bool]]:
    """Tokens of a compressed entry of each layer (0: window alone), and whether an indexer picks entries: by
    `compress_ratios` (longer by the layers that predict further ahead), else `layer_types`, else by default."""
    rates = dict(_RATES)
    _, sparse, heavy = _RATES
    rates[sparse] = c.number("compress_rate_csa", c.number(f"compress_rates.{sparse}", rates[sparse]))
    rates[heavy] = c.number("compress_rate_hca", c.number(f"compress_rates.{heavy}", rates[heavy]))
    ratios, listed = c.items("compress_ratios", int), c.items("layer_types", str)
    if not listed and ratios:
        names = {r: name for name, r in _RATES.items()}
        if len(ratios) < count or any(r not in names for r in ratios[:count]):
            raise c.bad("compress_ratios", f"0, 4 or 128 for each of {count} layers")
        listed = [names[r] for r in ratios]
    listed = listed or [heavy] * 2 + [sparse if i % 2 else heavy for i in range(count)]
    if len(listed) < count or any(k not in rates for k in listed[:count]):
        raise c.bad("layer_types", f"{', '.join(_RATES)} for each of {count} layers")
    return [(rates[k], k == sparse) for k in listed[:count]]


def _deepseek_v4(c: Config) -> Built:
    """A window beside compressed entries (of few tokens and picked, or of many and all read), experts in every layer,
    several streams of the residual (modeling_deepseek_v4.py). The first layers look their experts up by token, in a
    table that is no parameter."""
    count, hidden, dim = c.number("layers"), c.number("hidden"), c.number("head_dim")
    unread = [k for k in _SHARED if c.get(k) not in (None, [], -1)]
    if unread:
        raise RooflmError(f"{c.label}: {unread[0]} says that layers share what they cache, which is not modelled")
    if count > layers.MOST_LAYERS:
        raise c.bad(c.key("layers"), f"at most {layers.MOST_LAYERS}")
    rope = c.number("qk_rope_head_dim", max(dim // 8, 1))
    if rope >= dim:
        raise c.bad("qk_rope_head_dim", f"less than head_dim {dim}")
    pairs: list[tuple[Mixer | None, FeedForward | None]] = []
    for ratio, picks in _compressed_kinds(c, count):
        topk, index_heads, index_dim = (
            c.number(k) if picks else 0 for k in ("index_topk", "index_n_heads", "index_head_dim")
        )
        mixer = CompressedAttention(
            c.number("heads"), c.number("q_lora_rank"), dim - rope, dim - rope, rope, dim, topk, index_heads,
            index_dim, window=c.number("window"), ratio=ratio, out_groups=c.number("o_groups"),
            out_rank=c.number("o_lora_rank"),
        )  # fmt: skip
        pairs.append((mixer, layers.experts(c)))
    streams = c.number("hc_mult", 4)
    extra = 2 * count * layers.mixing(streams, hidden) + streams * (streams * hidden + 1) + 1
    return layers.counted(pairs, c.family.norms, False), extra


BUILDERS: dict[str, Callable[[Config], Built]] = {
    "mamba": _mamba, "falcon_h1": _falcon_h1, "zamba2": _zamba2, "longcat": _longcat, "gemma3n": _gemma3n,
    "gemma4": _gemma4, "deepseek_v4": _deepseek_v4, "nas": _nas,
}  # fmt: skip
"""A family's `layers` -> its builder."""
