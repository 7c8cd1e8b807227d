"""Vision and audio encoders beside a language model: their parameters, out of vision_config and audio_config.

A tower is layers of attention and feed-forward on patches, then a projector to the language model's width. It is sized
by its config's own fields; norms and biases, under 0.5 % of it, are left out. Sources: transformers' modelling code of
CLIP, SigLIP, Pixtral, InternVL, Qwen2-VL to Qwen3-VL, GLM-4V, Whisper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]
_WIDTHS = ("hidden_size", "embed_dim", "width", "d_model")
_LAYERS = ("num_hidden_layers", "depth", "layers", "num_layers", "encoder_layers", "num_blocks")
_FEEDS = ("intermediate_size", "mlp_dim", "encoder_ffn_dim", "ffn_dim")


def _number(fields: Fields, *names: str, default: int = 0) -> int:
    """The first name that holds a whole number of at least 1 (of a list, such as an image's sides: its first)."""
    for name in names:
        value = fields.get(name)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40:
            return value
    return default


def _stack(fields: Fields, width: int) -> int:
    """Layers of attention and feed-forward: three matrices with SiLU (Pixtral, Qwen2.5-VL), else two."""
    ratio = fields.get("mlp_ratio")
    usual = int(width * ratio) if isinstance(ratio, int | float) and 0 < ratio < 100 else 4 * width
    feed = _number(fields, *_FEEDS, default=usual)
    gated = str(fields.get("hidden_act") or fields.get("activation_function") or "").lower() in ("silu", "swish")
    gated = gated or fields.get("model_type") == "pixtral"
    if "glm4v" in str(fields.get("model_type", "")):  # as wide as its output; the stated width is the merger's
        feed = _number(fields, "out_hidden_size", default=feed)
    return _number(fields, *_LAYERS) * (4 * width**2 + (3 if gated else 2) * width * feed)


def vision_params(fields: Fields, hidden: int) -> int:
    """Parameters of a vision tower that feeds a language model of `hidden` width, patches, positions and projector too.

    >>> round(vision_params({"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096, "patch_size": 14,
    ...     "image_size": 336}, 4096) / 1e6)  # CLIP ViT-L of LLaVA 1.5: 303 M and 21 M
    324
    """
    merged = "out_hidden_size" in fields or ("embed_dim" in fields and "hidden_size" in fields)
    width = _number(fields, "embed_dim", *_WIDTHS) if "embed_dim" in fields else _number(fields, *_WIDTHS)
    if not width or not _number(fields, *_LAYERS):
        return 0
    patch = _number(fields, "patch_size", default=14)
    total = _stack(fields, width) + 3 * _number(fields, "temporal_patch_size", default=1) * patch**2 * width
    side = _number(fields, "image_size")
    total += _number(fields, "num_position_embeddings", default=(side // patch) ** 2 if side else 0) * width
    merge = _number(fields, "spatial_merge_size", default=1)
    if fields.get("projector") is not None or not merged:
        return total + width * hidden + hidden**2
    out = _number(fields, "out_hidden_size", default=hidden)
    if "glm" in str(fields.get("model_type", "")):
        wide = _number(fields, "intermediate_size", default=4 * out)
        return total + width * out * merge**2 + out**2 + 3 * out * wide
    gathered = width * merge**2
    deep = fields.get("deepstack_visual_indexes")
    return total + (1 + (len(deep) if isinstance(deep, list) else 0)) * (gathered**2 + gathered * out)


def audio_params(fields: Fields, hidden: int) -> int:
    """Parameters of an audio tower: a Whisper-like encoder, or a Conformer (two feed-forwards and convolutions)."""
    width = _number(fields, *_WIDTHS)
    layers = _number(fields, *_LAYERS)
    if not width or not layers:
        return 0
    conformer = any(("conv" in k and "kernel" in k) or k in ("conv_glu_type", "ext_pw_out_channel") for k in fields)
    stack = _stack(fields, width)
    if conformer:  # a second, gated feed-forward, and a gated pointwise convolution with its way back
        feed = _number(fields, *_FEEDS, default=4 * width)
        stack = layers * (4 * width**2 + 6 * width * feed + 4 * width**2)
    return stack + 2 * width * hidden


def _qformer_params(fields: Fields) -> int:
    """Parameters of a Q-Former (BLIP-2): layers with cross-attention in every second one."""
    width = _number(fields, "hidden_size", default=768)
    layers = _number(fields, "num_hidden_layers", default=12)
    every = _number(fields, "cross_attention_frequency", default=2)
    seen = _number(fields, "encoder_hidden_size", default=width)
    across = math.ceil(layers / every) * (2 * width**2 + 2 * width * seen)
    return _stack({**fields, "num_hidden_layers": layers}, width) + across


def tower_params(config: Fields, hidden: int) -> int:
    """Parameters of all towers of a model whose language part is `hidden` wide; 0 where its config has none.

    >>> tower_params({"model_type": "llama"}, 4096)
    0
    """
    total = 0
    for part in (config, config.get("thinker_config")):
        if not isinstance(part, Mapping):
            continue
        for key, size in (("vision_config", vision_params), ("audio_config", audio_params)):
            fields = part.get(key)
            total += size(fields, hidden) if isinstance(fields, Mapping) else 0
        qformer = part.get("qformer_config")
        total += _qformer_params(qformer) if isinstance(qformer, Mapping) else 0
    return total
