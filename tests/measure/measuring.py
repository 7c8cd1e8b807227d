"""What the measuring tests share: a tiny random Llama on disk."""

from __future__ import annotations

import json
from pathlib import Path

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 192,
    "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3,
    "head_dim": 32, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip


def tiny(folder: Path, **other: object) -> str:
    """A folder with the configuration of a 2-layer Llama of three groups of heads; no weights."""
    (folder / "config.json").write_text(json.dumps({**CONFIG, **other}), encoding="utf-8")
    return str(folder)
