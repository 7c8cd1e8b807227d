"""Checkpoints under ids of their own carry their own scheme, context and page, not the 16-bit row's."""

from __future__ import annotations

import pytest

from rooflm.errors import RooflmWarning, UnknownNameError
from rooflm.estimate.memory import weight_bytes
from rooflm.readers import released
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.provenance import provenance
from rooflm.readers.rows import aliases, names, resolve
from rooflm.readers.schemes import parse_quant
from rooflm.scenario.mapping import Mapping

RELEASED = [
    ("zai-org/GLM-5-FP8", "fp8-block", 202752),
    ("zai-org/GLM-4.6", "", 202752),
    ("zai-org/GLM-4.6-FP8", "fp8", 202752),
    ("glm-4.6", "", 202752),
    ("zai-org/GLM-4.5", "", 131072),
    ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8kv8", 131072),
    ("nvidia/Qwen3-32B-NVFP4", "nvfp4kv8", 40960),
    ("Qwen/Qwen3-235B-A22B-FP8", "fp8-block", 40960),
    ("Qwen/Qwen3-235B-A22B-Instruct-2507", "", 262144),
    ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "fp8-block", 262144),
    ("nvidia/DeepSeek-V3.1-NVFP4", "nvfp4-ffn-kv8", 163840),
    ("moonshotai/Kimi-K2-Thinking", "w4a16g32-experts", 262144),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", "fp8kv8", 262144),
    ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "int8", 131072),
    ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "fp8", 131072),
    ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "awq", 131072),
    ("Qwen/Qwen3-32B-AWQ", "awq", 40960),
    ("unsloth/Qwen3-8B", "", 40960),
    ("somebody/Meta-Llama-3.1-8B-Instruct-GGUF", "q4_k_m", 131072),
    ("TheBloke/Llama-2-13B-chat-AWQ", "awq", 4096),
    ("mlx-community/Qwen3-30B-A3B-4bit", "w4a16g32", 40960),
    ("amd/Llama-3.3-70B-Instruct-FP8-KV", "fp8kv8", 131072),
    ("unsloth/DeepSeek-R1", "fp8-block", 163840),
    ("RedHatAI/DeepSeek-R1-Distill-Llama-70B-FP8-dynamic", "fp8", 131072),
    ("nvidia/Kimi-K2.5-NVFP4", "nvfp4-ffn-kv8", 262144),
    ("nvidia/DeepSeek-V4-Pro-NVFP4", "nvfp4-fp8", 1048576),
    ("Mixtral-8x7b-instruct", "", 32768),
    ("llama3.1:8b", "", 131072),
]  # fmt: skip


@pytest.mark.parametrize(("name", "quant", "context"), RELEASED)
def test_a_released_checkpoint_has_its_own_scheme_and_context(name: str, quant: str, context: int) -> None:
    found = load_model(name)
    assert (found.quant, found.max_context) == (quant, context)
    assert provenance("model", name)


def test_a_checkpoint_is_named_after_itself_and_points_at_its_page() -> None:
    found = load_model("zai-org/GLM-5-FP8")
    assert (found.name, found.source) == ("glm-5-fp8", "https://huggingface.co/zai-org/GLM-5-FP8")
    assert found.blocks == load_model("glm-5").blocks
    assert resolve("model", "zai-org/GLM-5-FP8") == "glm-5"


def test_glm_5_in_fp8_is_half_of_its_row() -> None:
    """It was told as 176.6 GiB a GPU of eight, in 16 bits (trial C3)."""
    found = load_model("zai-org/GLM-5-FP8")
    each = float(weight_bytes(found, Mapping(tp=8, ep=8), parse_quant(found.quant))) / 2**30
    assert 85 < each < 92


def test_every_entry_of_the_table_stands() -> None:
    known = set(names("model"))
    for name, row in released.listed().items():
        assert row.model in known, name
        assert not row.quant or parse_quant(row.quant)
        assert name not in aliases("model"), f"{name} is an alias of a row, which would hide it"
    for endings in released._table().endings.values():
        for quant in endings.values():
            assert not quant or parse_quant(quant)


def test_a_stranger_is_unknown_as_before() -> None:
    for name in ("somebody/else-AWQ", "somebody/EAGLE-llama2-chat-7B", "Llama-3-3B"):
        with pytest.raises(UnknownNameError, match=f"unknown model '{name}'"):
            load_model(name)


def test_no_two_models_are_told_apart_by_words_alone() -> None:
    rows: dict[str, set[str]] = {}
    for name, row in aliases("model").items():
        rows.setdefault(released.stem(name), set()).add(row)
    assert not {stem: found for stem, found in rows.items() if len(found) > 1}


def test_a_checkpoint_whose_row_is_its_language_model_says_so() -> None:
    with pytest.warns(RooflmWarning, match=r"Qwen2.5-VL-7B-Instruct: its language model alone, without its vision"):
        model = load_model("Qwen/Qwen2.5-VL-7B-Instruct")
    assert model.max_context == 128000 and not model.tower_params
