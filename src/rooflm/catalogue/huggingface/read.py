"""A Hugging Face config.json to a Model, without transformers.

Each layer gets its mixer and feed-forward from what the config says (`hf_families` has one row a model_type); equal
layers are then counted into blocks. A mixture of experts is never read as dense, latent attention never as plain
attention, a window never as full attention: those fields are honoured in a model_type of any name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rooflm.catalogue.huggingface.config import Config, language_part, read_json
from rooflm.catalogue.huggingface.families import FAMILIES, REFUSED, Family
from rooflm.catalogue.huggingface.quantisation import scheme
from rooflm.catalogue.model import (
    INF,
    MLA,
    MLP,
    Attention,
    Block,
    FeedForward,
    LinearAttention,
    Mixer,
    Model,
    MoE,
    checked,
)
from rooflm.errors import RooflmError, RooflmWarning

MOST_LAYERS = 10_000
_ENDLESS = 2**40
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_KINDS = {"full_attention": "full", "global": "full", "attention": "full", "sliding_attention": "window",
          "chunked_attention": "window", "indexed_attention": "indexed", "deepseek_sparse_attention": "indexed",
          "linear_attention": "recurrent", "mamba": "recurrent", "mlp": "mlp", "moe": "moe",
          "*": "full", "M": "recurrent", "-": "mlp", "E": "moe"}  # fmt: skip
_STRANGE = ("mamba", "ssm_", "linear_num", "linear_attn", "rwkv", "lru_", "attn_type_list", "block_configs",
            "compress_r")  # fmt: skip


def _family(config: dict[str, Any], label: str) -> tuple[Family, bool]:
    """The family's row and whether the model_type is known; unknown ones read as Llama-like, with a warning."""
    name = config.get("model_type")
    if not isinstance(name, str) or not name:
        raise RooflmError(f"{label}: model_type is {name!r}, but it must be a name such as 'llama'")
    short = name.lower().removesuffix("_text")
    if short in REFUSED or config.get("is_encoder_decoder") is True:
        raise RooflmError(f"{label}: model_type {name!r} cannot be read: {REFUSED.get(short, REFUSED['t5'])}")
    if short in FAMILIES:
        return FAMILIES[short], True
    return Family(), False


def _required(c: Config) -> None:
    """Refuse a config without the fields that nothing can stand in for, naming them all."""
    needed = ["hidden", "layers", "heads", "vocab"]
    if c.get("hybrid_override_pattern") or c.get("layers_block_type"):
        needed.remove("layers")
    if not c.family.width_factor and not c.has("experts"):
        needed.append("width")
    if c.has("kv_lora_rank"):
        needed += ["qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"]
    if c.has("experts"):
        needed.append("top_k")
    missing = [c.key(n) for n in needed if c.get(c.key(n)) is None]
    if missing:
        raise RooflmError(f"{c.label}: missing field{'s' * (len(missing) > 1)} {', '.join(missing)}")


def _kinds(c: Config) -> list[str]:
    """What each layer is: "full", "window" or "recurrent" (with a feed-forward), or "mlp"/"moe" alone."""
    pattern = c.get("hybrid_override_pattern")
    if pattern is not None and not isinstance(pattern, str):
        raise c.bad("hybrid_override_pattern", "text such as 'M-M*'")
    key = "layers_block_type" if c.get("layers_block_type") else "layer_types"
    listed = list(pattern) if pattern else c.items(key, str)
    count = c.number("layers", len(listed) if listed else None)
    if count > MOST_LAYERS:
        raise c.bad(c.key("layers"), f"at most {MOST_LAYERS}")
    if listed is None:
        return [_kind_by_rule(c, i, count) for i in range(count)]
    if len(listed) != count:
        key = "hybrid_override_pattern" if pattern else key
        raise RooflmError(f"{c.label}: {key} has {len(listed)} items, but there are {count} layers")
    latent = bool(c.get("kv_lora_rank") and c.get("index_topk"))
    unknown = sorted({k for k in listed if k not in _KINDS or (_KINDS[k] == "indexed" and not latent)})
    if unknown:
        raise RooflmError(f"{c.label}: {key} names {unknown[0]!r}, a kind of layer that is not modelled")
    return [_KINDS[kind].replace("indexed", "full") for kind in listed]


def _kind_by_rule(c: Config, i: int, layers: int) -> str:
    """What layer `i` is where the config has no list of layers."""
    if c.has("attn_layer_period"):
        return "full" if i % c.number("attn_layer_period") == c.number("attn_layer_offset", 0, 0) else "recurrent"
    if c.has("full_attention_interval") and c.has("linear_num_value_heads"):
        return "recurrent" if (i + 1) % c.number("full_attention_interval") else "full"
    rule = c.family.window
    if rule == "never" or not c.has("window"):
        return "full"
    period = c.number("sliding_window_pattern", 0, 0) or c.number("_sliding_window_pattern", 0, 0)
    if rule == "late":
        used = c.flag("use_sliding_window") and i >= c.number("max_window_layers", layers, 0)
    elif rule == "even":
        used = i % 2 == 0
    elif rule == "chunked":
        rotary = c.items("no_rope_layers", int, layers)
        used = bool(rotary[i]) if rotary else (i + 1) % 4 != 0
    else:
        used = c.flag("use_sliding_window?") and (not period or (i + 1) % period != 0)
    return "window" if used else "full"


def _attention(c: Config, i: int, kind: str, layers: int) -> Mixer:
    """The softmax attention (plain or latent) of layer `i`."""
    f, heads, hidden = c.family, c.number("heads"), c.number("hidden")
    if c.has("kv_lora_rank"):
        if kind == "window":
            raise RooflmError(f"{c.label}: layer {i} is latent attention with a window, which is not modelled")
        topk = c.number("index_topk", 0, 0)
        shared = (c.items("indexer_types", str, layers) or [""] * layers)[i] == "shared"
        own = topk > 0 and not shared  # a shared layer takes the tokens that an earlier layer's indexer picked
        return MLA(
            heads, c.number("q_lora_rank", 0, 0), c.number("kv_lora_rank"), c.number("qk_nope_head_dim"),
            c.number("qk_rope_head_dim"), c.number("v_head_dim"), topk,
            c.number("index_n_heads") if own else 0, c.number("index_head_dim") if own else 0,
        )  # fmt: skip
    given = c.get(c.key("head_dim")) is not None
    if not given and hidden % heads:
        raise RooflmError(
            f"{c.label}: {c.key('heads')} is {heads}, but it must divide {c.key('hidden')} {hidden} without a head_dim"
        )
    dim = c.number("head_dim") if given else hidden // heads
    kv_heads = _kv_heads(c, i, heads)
    context = c.number("context", _ENDLESS)
    window: float = c.number("window") if kind == "window" else INF
    bias = c.flag(f.bias)
    free = ("chunked" in f.window or "full_without_rope" in f.extra) and kind == "full"
    return Attention(
        heads, kv_heads, dim, window=INF if window >= context else window, bias=bias,
        out_bias=bias if f.out_bias is None else c.flag(f.out_bias), qk_norm=c.flag(f.qk_norm), gate=c.flag(f.gate),
        rope=f.rope and not free,
    )  # fmt: skip


def _kv_heads(c: Config, i: int, heads: int) -> int:
    """KV heads of layer `i`: as many as there are query heads where the config says nothing."""
    each = c.items("num_key_value_heads_per_layer", int)
    if each is not None:
        if i >= len(each) or isinstance(each[i], bool) or each[i] < 1:
            raise c.bad("num_key_value_heads_per_layer", "a whole number of at least 1 for each layer")
        return int(each[i])
    if "falcon" in c.family.extra and not c.flag("new_decoder_architecture"):
        return 1 if c.flag("multi_query?") else heads
    if "multi_query" in c.family.extra:
        return 1 if c.flag("multi_query?") else heads
    if "mpt" in c.family.extra:
        kind = c.get("attn_config.attn_type")
        return {"multiquery_attention": 1, "grouped_query_attention": c.number("attn_config.kv_n_heads", heads)}.get(
            kind if isinstance(kind, str) else "", heads
        )
    return c.number("kv_heads", heads)


def _recurrent(c: Config) -> LinearAttention:
    """The recurrent mixer: gated DeltaNet (Qwen3-Next), Mamba-2 (Nemotron-H) or Mamba-1 (Jamba)."""
    if c.get("linear_num_value_heads") is not None:
        names = ("linear_num_value_heads", "linear_value_head_dim", "linear_num_key_heads", "linear_key_head_dim")
        heads, dim, keys, state = (c.number(n) for n in names)
        return LinearAttention("gated-delta", heads, dim, keys, state, c.number("linear_conv_kernel_dim", 4))
    if c.get("mamba_num_heads") is not None:
        return LinearAttention(
            "mamba2", c.number("mamba_num_heads"), c.number("mamba_head_dim"), c.number("n_groups"),
            c.number("ssm_state_size"), c.number("conv_kernel", 4),
        )  # fmt: skip
    inner = c.number("mamba_expand") * c.number("hidden")
    dim = 64 if inner % 64 == 0 else 1
    return LinearAttention("mamba1", inner // dim, dim, 1, c.number("mamba_d_state"), c.number("mamba_d_conv", 4))


def _sparse(c: Config, i: int, layers: int) -> bool:
    """True when layer `i` has experts."""
    if not c.has("experts"):
        return False
    listed = c.items("mlp_layer_types", str, layers)
    if listed:
        return bool(listed[i] == "sparse")
    dense, sparse = c.items("mlp_only_layers", int) or [], c.items("moe_layers", int)
    if sparse:
        return i in sparse
    if isinstance(c.get("moe_layer_freq"), list):
        return bool((c.items("moe_layer_freq", int, layers) or [1] * layers)[i])
    if c.has("expert_layer_period"):
        return i % c.number("expert_layer_period") == c.number("expert_layer_offset", 0, 0)
    step = c.number("interleave_moe_layer_step", c.number("decoder_sparse_step", 1))
    every = i % c.number("moe_layer_freq", 1) == 0
    first = c.number("first_k_dense_replace", c.number("moe_layer_start_index", 0, 0), 0)
    return i not in dense and i >= first and every and (i + 1) % step == 0


def _experts(c: Config) -> MoE:
    f, extra = c.family, c.family.extra
    width = c.number("expert_width", c.number("width", 0) or None)
    shared = c.number("shared_width", 0, 0) or c.number("shared_experts", 0, 0) * width
    if "shared_as_wide" in extra:
        shared = width
    bias = c.get("topk_method") == "noaux_tc" or c.flag(f.router_bias)
    return MoE(
        c.number("experts"), c.number("top_k"), width, shared, gated=f.gated, bias="expert_bias" in extra,
        shared_gate=f.shared_gate and shared > 0, router_bias=bias, latent=c.number("moe_latent_size", 0, 0),
    )  # fmt: skip


def _dense(c: Config) -> MLP:
    hidden, factor = c.number("hidden"), c.family.width_factor
    factor = c.number("expansion_ratio", factor, 1) if "mpt" in c.family.extra else factor
    width = c.number("width", factor * hidden or None)
    return MLP(width, c.family.gated, c.flag(c.family.ffn_bias))


def _blocks(c: Config) -> tuple[Block, ...]:
    """Equal layers counted, in the order in which each first appears."""
    counts: dict[tuple[Mixer | None, FeedForward | None], int] = {}
    made: dict[tuple[Any, ...], Any] = {}

    def once(key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in made:
            made[key] = make()
        return made[key]

    kinds = _kinds(c)
    alone = bool(c.get("hybrid_override_pattern") or c.get("layers_block_type")) and c.get("attn_layer_period") is None
    per_layer = any(c.get(k) is not None for k in ("num_key_value_heads_per_layer", "indexer_types"))
    for i, kind in enumerate(kinds):
        mixer = ffn = None
        if kind in ("full", "window"):
            mixer = once((kind, i if per_layer else 0), partial(_attention, c, i, kind, len(kinds)))
        elif kind == "recurrent":
            mixer = once((kind,), partial(_recurrent, c))
        if kind == "moe" or (not alone and _sparse(c, i, len(kinds))):
            ffn = once(("experts",), partial(_experts, c))
        elif kind == "mlp" or not alone:
            ffn = once(("dense",), partial(_dense, c))
        counts[mixer, ffn] = counts.get((mixer, ffn), 0) + 1
    parallel = c.flag(c.family.parallel)
    norms = c.family.norms
    if "falcon" in c.family.extra and parallel and not c.flag("new_decoder_architecture"):
        norms = 1
    return tuple(Block(n, m, f, norms, parallel and m is not None and f is not None) for (m, f), n in counts.items())


def _extra(c: Config, blocks: tuple[Block, ...]) -> int:
    """Parameters outside the blocks' own shapes, by the family's named corrections."""
    hidden, named, total = c.number("hidden"), c.family.extra, 0
    attention = [(b.count, b.mixer) for b in blocks if isinstance(b.mixer, Attention)]
    if "embedding_norm" in named:
        total += 2 * hidden
    if "wide_qk_norm" in named:
        total += int(sum(n * (a.heads + a.kv_heads - 2) * a.head_dim for n, a in attention if a.qk_norm))
    if "sinks" in named:
        total += int(sum(n * a.heads for n, a in attention))
    if "jamba" in named:
        rank, state = -(-hidden // 16), c.number("mamba_d_state")
        total += int(sum(b.count for b in blocks if isinstance(b.mixer, LinearAttention))) * (rank + 2 * state)
    if "opt" in named:
        narrow = c.number("word_embed_proj_dim", hidden)
        if narrow != hidden:
            total += (narrow - hidden) * c.number("vocab") + 2 * narrow * hidden
        total -= 0 if c.flag("do_layer_norm_before?") else 2 * hidden
    return total


def _quant(config: dict[str, Any], file: Path, label: str, blocks: tuple[Block, ...]) -> str:
    """The scheme of the checkpoint, by its config and ModelOpt's hf_quant_config.json beside it; "" for 16 bits."""
    other = file.parent / "hf_quant_config.json"
    beside = read_json(other) if other.is_file() else {}
    experts = any(isinstance(b.ffn, MoE) for b in blocks)
    return scheme(config, beside, label, int(sum(b.count for b in blocks)), experts)


def _positions(c: Config) -> int:
    """Learned position embeddings: GPT-2 and its like have them, rotary and ALiBi models none."""
    if "mpt" in c.family.extra:
        alibi = c.flag("attn_config.alibi") or not c.flag("learned_pos_emb?")
        return 0 if alibi else c.number("context")
    return 0 if c.family.position_offset is None else c.number("context") + c.family.position_offset


def read_config(path: str | Path) -> Model:
    """The model that a config.json (or the folder that holds it) describes.

    An unknown model_type is read as a Llama-like decoder, with a RooflmWarning that says so; RooflmError names the
    field, its value and the rule when the config is damaged or lacks what is needed.
    """
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    whole = read_json(file)
    label = str(file)
    config = language_part(whole, label)
    family, known = _family(config, label)
    c = Config(config, family, label)
    if not known:
        strange = [k for k in config if k.startswith(_STRANGE)]
        if strange:
            raise RooflmError(f"{label}: model_type {config['model_type']!r} is unknown, and {strange[0]} says that "
                              "its layers are not those of a plain decoder")  # fmt: skip
    _required(c)
    if not known:
        warnings.warn(f"{label}: unknown model_type {config['model_type']!r}, read as a Llama-like decoder "
                      "(gated feed-forward, RMS norms, rotary embedding)", RooflmWarning, stacklevel=2)  # fmt: skip
    blocks = _blocks(c)
    if "mpt" in family.extra and c.flag("no_bias"):
        family = family._replace(norm="layer-no-bias")
    tied = c.flag("tie_word_embeddings" + "?" * family.tied)
    given = config.get("dtype") or config.get("torch_dtype")
    name = config.get("_name_or_path")
    model = Model(
        name=name if isinstance(name, str) and name else (file.parent.name or file.stem),
        hidden=c.number("hidden"), vocab=c.number("vocab"), blocks=blocks, positions=_positions(c),
        max_context=c.number("context", 0, 0) or INF, tied=tied, norm=family.norm, head_bias=c.flag(family.head_bias),
        extra_params=_extra(c, blocks), dtype=_DTYPES.get(given, "bf16") if isinstance(given, str) else "bf16",
        quant=_quant(config, file, label, blocks), source=label,
    )  # fmt: skip
    return checked(model, label)
