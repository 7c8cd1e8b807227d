"""A GGUF file to a Model: its header names the architecture and holds every tensor's shape and type.

Only the header is read, a few megabytes of any file, and tokenizer lists are skipped over. Sources: ggml's
docs/gguf.md (layout, version 2 and 3) and ggml-common.h (values and bytes of a block of each type); llama.cpp's
llama-arch.cpp (names of keys and tensors).
"""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError, RooflmWarning
from rooflm.readers.checkpoints import families
from rooflm.readers.checkpoints.read import from_fields
from rooflm.readers.outside import os_reason
from rooflm.readers.schemes import PRESETS

BLOCKS: dict[int, tuple[int, int]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74),
    18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2),
    26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
    40: (64, 36), 41: (128, 18),
}  # fmt: skip
"""Type of a tensor -> values and bytes of one of its blocks."""
FILES = {2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k", 11: "q3_k_s", 12: "q3_k_m", 13: "q3_k_l",
         14: "q4_k_s", 15: "q4_k_m", 16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 19: "iq2_xxs", 20: "iq2_xs", 21: "q2_k_s",
         22: "iq3_xs", 23: "iq3_xxs", 24: "iq1_s", 25: "iq4_nl", 26: "iq3_s", 27: "iq3_m", 28: "iq2_s", 29: "iq2_m",
         30: "iq4_xs", 31: "iq1_m"}  # fmt: skip
"""general.file_type -> the scheme of that name."""
_FIELDS = {
    "embedding_length": "hidden_size", "block_count": "num_hidden_layers", "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "context_length": "max_position_embeddings", "attention.sliding_window": "sliding_window",
    "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size", "expert_shared_count": "num_shared_experts",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "leading_dense_block_count": "first_k_dense_replace", "attention.q_lora_rank": "q_lora_rank",
    "attention.kv_lora_rank": "kv_lora_rank", "shortconv.l_cache": "conv_L_cache",
    "interleave_moe_layer_step": "interleave_moe_layer_step", "moe_latent_size": "moe_latent_size",
    "attention.indexer.head_count": "index_n_heads", "attention.indexer.key_length": "index_head_dim",
    "attention.indexer.top_k": "index_topk", "attention.shared_kv_layers": "num_kv_shared_layers",
    "embedding_length_per_layer_input": "hidden_size_per_layer_input",
}  # fmt: skip
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MOST = 10_000_000


class Tensor(NamedTuple):
    """Name, dimensions (the fastest first) and type of a tensor."""

    name: str
    shape: tuple[int, ...]
    type: int

    @property
    def values(self) -> int:
        count = 1
        for side in self.shape:
            count *= side
        return count

    @property
    def bytes(self) -> float:
        values, size = BLOCKS.get(self.type, (1, 2))
        return self.values * size / values


class _Reader:
    """A header's bytes in order; RooflmError where the file ends early."""

    def __init__(self, file: BinaryIO, label: str) -> None:
        self.file, self.label = file, label

    def take(self, size: int) -> bytes:
        found = self.file.read(size)
        if len(found) < size:
            raise RooflmError(f"{self.label} is not a whole GGUF file: it ends within its header")
        return found

    def number(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self) -> str:
        size = self.number("Q")
        if size > _MOST:
            raise RooflmError(f"{self.label} is not a GGUF file that can be read: a text of {size} bytes")
        return self.take(size).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """A value of a type; of a list of texts (a vocabulary) only the length."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == 8:
            return self.text()
        if kind != 9:
            raise RooflmError(f"{self.label} is not a GGUF file that can be read: a value of type {kind}")
        item, count = self.number("I"), self.number("Q")
        if count > _MOST:
            raise RooflmError(f"{self.label} is not a GGUF file that can be read: a list of {count} items")
        if item in _SCALARS:
            code = _SCALARS[item]
            return list(struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize("<" + code))))
        for _ in range(count):
            self.value(item)
        return count


def header(path: Path) -> tuple[dict[str, Any], list[Tensor]]:
    """Metadata and tensors of one GGUF file."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise RooflmError(f"cannot read {str(path)!r}: {os_reason(error) or error}") from error
    with file:
        reader = _Reader(file, str(path))
        if reader.take(4) != b"GGUF" or reader.number("I") not in (2, 3):
            raise RooflmError(f"{path} is not a GGUF file of version 2 or 3")
        tensors, pairs = reader.number("Q"), reader.number("Q")
        if max(tensors, pairs) > _MOST:
            raise RooflmError(f"{path} is not a GGUF file that can be read: {tensors} tensors, {pairs} values")
        metadata = {reader.text(): reader.value(reader.number("I")) for _ in range(pairs)}
        listed = []
        for _ in range(tensors):
            name, sides = reader.text(), reader.number("I")
            if sides > 8:
                raise RooflmError(f"{path} is not a GGUF file that can be read: a tensor of {sides} dimensions")
            shape = tuple(reader.number("Q") for _ in range(sides))
            kind = reader.number("I")
            reader.number("Q")
            listed.append(Tensor(name, shape, kind))
    return metadata, listed


def parts(path: Path) -> list[Path]:
    """The file itself, or all parts of a model split as NAME-00001-of-00003.gguf; RooflmError names one that lacks."""
    found = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if not found:
        return [path]
    each = [path.with_name(f"{found[1]}-{i + 1:05d}-of-{found[3]}.gguf") for i in range(int(found[3]))]
    missing = [p for p in each if not p.is_file()]
    if missing:
        raise RooflmError(f"{path.name} is one of {found[3].lstrip('0')} parts, but {missing[0].name} is not beside it")
    return each


def _fields(metadata: dict[str, Any], tensors: list[Tensor], label: str) -> dict[str, Any]:
    """The header in the words of a config.json."""
    name = str(metadata.get("general.architecture", ""))
    kind = families.table().gguf.get(name)
    if kind is None:
        raise RooflmError(f"{label}: general.architecture is {name!r}, whose GGUF files are unknown here: give the "
                          "model's config.json, and --quant for its scheme")  # fmt: skip
    has = {t.name for t in tensors}

    def get(key: str) -> Any:
        return metadata.get(f"{name}.{key}")

    fields = {ours: get(key) for key, ours in _FIELDS.items() if get(key) is not None}
    fields["model_type"] = families.table().gguf.get(f"{name}+experts", kind) if fields.get("num_experts") else kind
    fields["num_hidden_layers"] = int(get("block_count") or 0) - int(get("nextn_predict_layers") or 0)
    table = next((t for t in tensors if t.name == "token_embd.weight"), None)
    if table is None or len(table.shape) != 2:
        raise RooflmError(f"{label}: there is no token_embd.weight, so it is not a language model")
    fields["vocab_size"] = table.shape[1]
    fields["tie_word_embeddings"] = "output.weight" not in has
    if get("attention.key_length"):
        fields["head_dim"] = get("attention.key_length")
    if fields.get("kv_lora_rank"):
        rope = int(get("rope.dimension_count") or 64)
        key, value = (get(f"attention.{k}_length_mla") or get(f"attention.{k}_length") for k in ("key", "value"))
        fields |= {"qk_rope_head_dim": rope, "qk_nope_head_dim": int(key or 0) - rope, "v_head_dim": value}
        fields.pop("head_dim", None)
    if any(h.endswith("attn_q.bias") or h.endswith("attn_qkv.bias") for h in has):
        fields |= {"attention_bias": True, "use_qkv_bias": True, "qkv_bias": True}
    fields["use_qk_norm"] = any(h.endswith("attn_q_norm.weight") for h in has)
    fields["moe_router_enable_expert_bias"] = any("exp_probs_b" in h for h in has)
    fields |= _windows(fields, get, has)
    kinds = _by_tensors(fields, has)
    fields |= _recurrent(fields, get, kinds)
    for key in ("num_key_value_heads", "intermediate_size"):  # 0 of layers without
        if isinstance(fields.get(key), list) and 0 in fields[key]:
            fields[key] = max(fields[key])
    if "conv" in kinds:
        fields["block_auto_adjust_ff_dim"] = False
    if fields["model_type"] == "granitemoehybrid":
        fields["shared_intermediate_size"] = (
            fields.get("shared_expert_intermediate_size") or fields["intermediate_size"]
        )
    return fields


def _by_tensors(fields: dict[str, Any], has: set[str]) -> list[str]:
    """What each layer is, where its tensors tell: "conv", "M" (recurrent), "*" (attention), "E" (experts) or "-" (a
    feed-forward) alone; [] where all have attention."""
    marks = {"shortconv.in_proj": "conv", "ssm_out": "M", "attn_output": "*", "ffn_gate_inp": "E", "ffn_up": "-"}
    count = fields["num_hidden_layers"]
    held = [[kind for part, kind in marks.items() if f"blk.{i}.{part}.weight" in has] for i in range(count)]
    each = [kinds[0] if kinds else "*" for kinds in held]
    both = all("M" in kinds and "*" in kinds for kinds in held)  # side by side (Falcon-H1)
    return [] if both or {*each} == {"*"} else each


def _recurrent(fields: dict[str, Any], get: Callable[[str], Any], kinds: list[str]) -> dict[str, Any]:
    """Sizes of recurrent layers, and which layers they are, in the words of the configs that llama.cpp converts
    (conversion scripts of Qwen3-Next, Nemotron-H, Granite 4 and Kimi Linear)."""
    heads, inner, states = (get(f"ssm.{key}") for key in ("time_step_rank", "inner_size", "state_size"))
    groups, conv = get("ssm.group_count"), get("ssm.conv_kernel")
    found: dict[str, Any] = {}
    if get("kda.head_dim"):
        layers = [i + 1 for i, kind in enumerate(kinds) if kind == "M"]
        sizes = {"num_heads": fields["num_attention_heads"], "head_dim": get("kda.head_dim")}
        return {"linear_attn_config": {**sizes, "short_conv_kernel_size": conv, "kda_layers": layers}}
    if heads and inner and get("full_attention_interval"):
        found = {"linear_num_value_heads": heads, "linear_value_head_dim": inner // heads,
                 "linear_num_key_heads": groups, "linear_key_head_dim": states,
                 "linear_conv_kernel_dim": conv}  # fmt: skip
    elif heads and inner:
        found = {"mamba_num_heads": heads, "mamba_head_dim": inner // heads, "n_groups": groups,
                 "ssm_state_size": states, "conv_kernel": conv}  # fmt: skip
    if {"E", "-"} & {*kinds}:
        return found | {"hybrid_override_pattern": "".join(kinds)}
    names = {"M": "linear_attention", "*": "full_attention", "conv": "conv"}
    return found | ({"layer_types": [names[kind] for kind in kinds]} if kinds else {})


def _windows(fields: dict[str, Any], get: Callable[[str], Any], has: set[str]) -> dict[str, Any]:
    """Which layers have a window, and what layers without one have otherwise (Gemma 4: heads of another size)."""
    pattern, count = get("attention.sliding_window_pattern"), fields["num_hidden_layers"]
    if not pattern or not fields.get("sliding_window"):
        return {}
    windows = pattern[:count] if isinstance(pattern, list) else [(i + 1) % pattern != 0 for i in range(count)]
    found: dict[str, Any] = {"layer_types": ["sliding_attention" if w else "full_attention" for w in windows]}
    wide, heads = get("attention.key_length_swa"), fields.get("num_key_value_heads")
    if not wide or all(windows):
        return found
    full, near = windows.index(False), windows.index(True)
    found |= {"head_dim": wide, "global_head_dim": get("attention.key_length")}
    if isinstance(heads, list):
        found |= {"num_key_value_heads": heads[near], "num_global_key_value_heads": heads[full]}
    wider = isinstance(fields.get("intermediate_size"), list)
    return found | {
        "attention_k_eq_v": f"blk.{full}.attn_v.weight" not in has, "enable_moe_block": bool(fields.get("num_experts")),
        "intermediate_size": fields["intermediate_size"][0] if wider else fields.get("intermediate_size"),
        "use_double_wide_mlp": wider and len({*fields["intermediate_size"]}) > 1,
    }  # fmt: skip


def _scheme(tensors: list[Tensor], file_type: int) -> tuple[str, str]:
    """(scheme, 16-bit type): the preset of the file's type where its widths are those, else the widths themselves."""
    in_layers = [t for t in tensors if t.name.startswith("blk.") and len(t.shape) > 1 and ".norm" not in t.name]
    tables = [t for t in tensors if t.name in ("token_embd.weight", "output.weight")]

    def bits(of: list[Tensor]) -> float:
        return 8 * sum(t.bytes for t in of) / max(sum(t.values for t in of), 1)

    layer, table = bits(in_layers), bits(tables)
    if layer > 15:
        types = {t.type for t in in_layers}
        return "", "fp32" if types == {0} else "fp16" if 1 in types else "bf16"
    preset = PRESETS.get(FILES.get(file_type, ""))
    close = preset is not None and abs(float(preset.weight_bits) / layer - 1) < 0.015
    if preset is not None and close and abs(float(preset.table_bits) / table - 1) < 0.1:
        return preset.name, "bf16"
    attention = [t for t in in_layers if "attn" in t.name]
    experts = [t for t in in_layers if "_exps" in t.name]
    alone = bool(experts) and bits(attention) > 15
    width = bits(experts) if alone else layer
    width += 0.01 * (abs(width - round(width)) < 0.005)  # a whole width would be read as one with scales beside it
    return f"w{width:.2f}a16e{table:.2f}" + "-experts" * alone, "bf16"


def read_gguf(path: Path) -> Model:
    """The model in a GGUF file (or in all parts of a split one), in the scheme that its tensors have.

    Any scheme of a GGUF file is of weights alone; activations are at 16 bits.
    """
    files = parts(path)
    metadata, tensors = header(files[0])
    for other in files[1:]:
        tensors += header(other)[1]
    label = str(path)
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", path.stem)
    quant, dtype = _scheme(tensors, int(metadata.get("general.file_type") or 0))
    pooled = bool(metadata.get(f"{metadata.get('general.architecture')}.pooling_type"))
    try:
        fields = _fields(metadata, tensors, label)
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        raise RooflmError(f"{label}: its header lacks sizes or gives others than llama.cpp writes ({error}): give the "
                          "model's config.json") from error  # fmt: skip
    model = from_fields(fields, label, stem, quant, dtype, pooled=pooled)
    later = tuple(f"blk.{i}." for i in range(fields["num_hidden_layers"], int(metadata.get(_count(metadata)) or 0)))
    held = sum(t.values for t in tensors if not t.name.startswith(later)) if later else sum(t.values for t in tensors)
    off = float(model.parameters) / max(held, 1) - 1
    if abs(off) > 0.02:
        warnings.warn(f"{label}: read as {float(model.parameters) / 1e9:.4g} billion parameters, but its tensors hold "
                      f"{held / 1e9:.4g}: give the model's config.json", RooflmWarning, stacklevel=3)  # fmt: skip
    return model


def _count(metadata: dict[str, Any]) -> str:
    """The key of the number of blocks, those that predict further ahead among them."""
    return f"{metadata.get('general.architecture')}.block_count"
