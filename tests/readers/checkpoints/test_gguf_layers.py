"""GGUF files whose layers differ: what a layer is, its tensors tell; sizes are in llama.cpp's own words."""

import struct
from pathlib import Path
from typing import Any

import pytest

from rooflm.errors import RooflmError, RooflmWarning
from rooflm.readers.checkpoints.load import load_model

MIXTURE = ("ffn_gate_inp", "ffn_up_exps")
STATE, SOFTMAX = ("ssm_conv1d", "ssm_out"), ("attn_q", "attn_k", "attn_q_norm", "attn_output")
GRANITE_ATTENDS, GEMMA_NEAR = (5, 15, 25, 35), [(i + 1) % 6 != 0 for i in range(30)]
ALONE = {"M": STATE, "E": MIXTURE, "*": ("attn_q", "attn_output")}
SSM = {"ssm.conv_kernel": 4, "ssm.state_size": 128}
FILES: list[tuple[str, str, dict[str, Any], list[tuple[str, ...]]]] = [
    ("qwen35moe", "qwen3.5-35b-a3b", SSM | {
        "block_count": 40, "attention.head_count": 16, "attention.head_count_kv": 2, "attention.key_length": 256,
        "expert_count": 256, "expert_used_count": 8, "expert_feed_forward_length": 512,
        "expert_shared_feed_forward_length": 512, "ssm.group_count": 16, "ssm.time_step_rank": 32,
        "ssm.inner_size": 4096, "full_attention_interval": 4,
    }, [(SOFTMAX if i % 4 == 3 else STATE) + MIXTURE for i in range(40)]),
    ("nemotron_h_moe", "nemotron-3-nano-30b-a3b", SSM | {
        "block_count": 52, "attention.head_count": 32, "attention.head_count_kv": [0] * 46 + [2] * 6,
        "attention.key_length": 128, "feed_forward_length": [0] * 23 + [1856] * 23 + [0] * 6, "expert_count": 128,
        "expert_used_count": 6, "expert_feed_forward_length": 1856, "expert_shared_feed_forward_length": 3712,
        "ssm.group_count": 8, "ssm.time_step_rank": 64, "ssm.inner_size": 4096,
    }, [ALONE[kind] for kind in "M" * 23 + "E" * 23 + "*" * 6]),
    ("gemma4", "gemma-4-26b-a4b", {
        "block_count": 30, "attention.head_count": 16, "attention.head_count_kv": [8 if n else 2 for n in GEMMA_NEAR],
        "attention.key_length": 512, "attention.key_length_swa": 256, "attention.sliding_window": 1024,
        "attention.sliding_window_pattern": GEMMA_NEAR, "feed_forward_length": 2112, "expert_count": 128,
        "expert_used_count": 8, "expert_feed_forward_length": 704,
    }, [SOFTMAX + (("attn_v",) if near else ()) for near in GEMMA_NEAR]),
    ("granitehybrid", "granite-4.0-h-tiny", SSM | {
        "block_count": 40, "attention.head_count": 12,
        "attention.head_count_kv": [4 * (i in GRANITE_ATTENDS) for i in range(40)], "feed_forward_length": 512,
        "expert_count": 64, "expert_used_count": 6, "expert_shared_feed_forward_length": 1024, "ssm.group_count": 1,
        "ssm.time_step_rank": 48, "ssm.inner_size": 3072,
    }, [(ALONE["*"] if i in GRANITE_ATTENDS else STATE) + MIXTURE for i in range(40)]),
]  # fmt: skip


def value(item: Any) -> bytes:
    """A value as GGUF types it: text, a whole number, a list of numbers or of truths."""
    if isinstance(item, str):
        return struct.pack("<IQ", 8, len(item)) + item.encode()
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    kind, code = (7, "?") if isinstance(item[0], bool) else (4, "I")
    return struct.pack(f"<IIQ{len(item)}{code}", 9, kind, len(item), *item)


def written(path: Path, metadata: dict[str, Any], names: list[str], table: tuple[int, int]) -> Path:
    """A file of a header alone, every matrix of a layer of one value."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(names) + 1, len(metadata))
    for key, item in metadata.items():
        out += struct.pack("<Q", len(key)) + key.encode() + value(item)
    for name, shape in [("token_embd", table), *((name, (1, 1)) for name in names)]:
        whole = f"{name}.weight".encode()
        out += struct.pack("<Q", len(whole)) + whole + struct.pack("<IQQIQ", 2, *shape, 30, 0)
    path.write_bytes(out)
    return path


@pytest.mark.parametrize(("kind", "row", "sizes", "layers"), FILES, ids=[f[0] for f in FILES])
def test_layers_are_those_of_the_row(
    kind: str, row: str, sizes: dict[str, Any], layers: list[tuple[str, ...]], tmp_path: Path
) -> None:
    known = load_model(row)
    metadata = {"general.architecture": kind, f"{kind}.embedding_length": int(known.hidden)}
    metadata |= {f"{kind}.{key}": item for key, item in sizes.items()}
    names = [f"blk.{i}.{name}" for i, held in enumerate(layers) for name in held]
    path = written(tmp_path / "m.gguf", metadata, names, (int(known.hidden), int(known.vocab)))
    with pytest.warns(RooflmWarning, match="billion parameters, but its tensors hold"):
        model = load_model(path)
    assert model.blocks == known.blocks


@pytest.mark.parametrize(("kind", "sizes", "held"), [
    ("kimi-linear", {"block_count": 2, "kda.head_dim": 8}, ["blk.0.ssm_out"]),
    ("granitehybrid", {"block_count": 2, "attention.head_count": 2}, ["blk.0.ssm_out"]),
    ("nemotron_h", {"block_count": "a"}, []),
    ("gemma4", {"block_count": 2, "attention.sliding_window": 8, "attention.sliding_window_pattern": "x"}, []),
    ("gemma4", {"block_count": 2, "attention.sliding_window": 8, "attention.sliding_window_pattern": [True, False],
                "attention.key_length_swa": 16, "attention.head_count_kv": [1]}, []),
])  # fmt: skip
def test_sizes_that_llama_cpp_does_not_write(kind: str, sizes: dict[str, Any], held: list[str], tmp_path: Path) -> None:
    metadata = {"general.architecture": kind} | {f"{kind}.{key}": item for key, item in sizes.items()}
    with pytest.raises(RooflmError, match=r"its header lacks sizes or gives others than llama.cpp writes"):
        load_model(written(tmp_path / "m.gguf", metadata, held, (64, 100)))
