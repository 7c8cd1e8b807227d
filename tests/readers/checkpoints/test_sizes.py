"""Weights of quantised checkpoints in memory, within 3 % of the sizes of their published files.

A row: hub id or row of the catalogue; scheme or quantization_config ("": the row's own); size. Sizes are those of the
repository's weight files (safetensors of the main revision in the autumn of 2026 unless a source says otherwise). Left
out for want of a source: every id of `_checkpoints.toml` but those here. Left out because the file holds what its
config does not tell: Qwen2.5-3B-Instruct-AWQ (its tied head is stored twice, 2.69 for 2.06 GB), AQLM's Mixtral (12.6
for 13.1 GB), Phi-3 (fused products), gemma-2b in 2x8 (1.6 for 1.55 GB) and groups of 16.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hf_configs import CONFIGS, llama, shape

from rooflm.catalogue.model import Model
from rooflm.estimate.memory import weight_bytes
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.checkpoints.read import read_config
from rooflm.readers.schemes import parse_quant
from rooflm.scenario.mapping import Mapping

GIB, GB = 2**30, 1e9


def size(model: Model, quant: str = "") -> float:
    """Bytes of the files: the model, and its prediction layers in the same scheme."""
    scheme = parse_quant(quant or model.quant)
    return float(weight_bytes(model, Mapping(), scheme)) + float(model.mtp_params) * float(scheme.weight_bytes)


SAFETENSORS = [
    # file listings on the hub, in GiB of safetensors, with the revision listed
    ("moonshotai/Kimi-K2.5", "", 554.30 * GIB),  # 4d01dfe
    ("moonshotai/Kimi-K2.6", "", 554.30 * GIB),  # b5aabbf
    ("MiniMaxAI/MiniMax-M2.7", "", 214.33 * GIB),  # d494266
    ("Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8", "", 29.03 * GIB),  # dcaee4d
    ("Qwen/Qwen3.5-27B-FP8", "", 28.75 * GIB),  # 97f5941
    ("qwen3.5-35b-a3b", "fp8-block", 34.89 * GIB),  # Qwen/Qwen3.6-35B-A3B-FP8, 95a723d: the same shapes
    ("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8", "", 74.86 * GIB),  # Qwen/Qwen3-Coder-Next-FP8, da6e2ed: the same shapes
    ("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "", 449.04 * GIB),  # 003f183
    ("openai/gpt-oss-20b", "", 12.82 * GIB),  # root of the repository; 12.8 GiB in the model card, arXiv 2508.10925
    ("openai/gpt-oss-120b", "", 60.8 * GIB),  # model card, arXiv 2508.10925, table 1
    ("RedHatAI/Qwen3-30B-A3B-NVFP4", "", 16.88 * GIB),  # model card
    ("qwen3-30b-a3b", "nvfp4", 18.11 * GB),  # ThakiCloud/Qwen3-30B-A3B-NVFP4-RTN, model card
    # as vLLM reports them at its start ("model loading took"): the files without their headers
    ("Qwen/Qwen2.5-7B-Instruct-AWQ", "", 5.20 * GIB),
    ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "", 5.18 * GIB),
    ("Qwen/Qwen3-32B-AWQ", "", 18.14 * GIB),
    # sizes on disk (du), in GiB of two figures
    ("Qwen/Qwen3-8B-FP8", "", 8.9 * GIB),
    ("Qwen/Qwen3-8B-AWQ", "", 5.7 * GIB),
    ("nvidia/Qwen3-8B-FP4", "", 6.0 * GIB),
    ("qwen3-8b", "gptq", 5.7 * GIB),  # JunHowie/Qwen3-8B-GPTQ-Int4
    ("qwen3-8b", "int8-wo", 9.0 * GIB),  # JunHowie/Qwen3-8B-GPTQ-Int8
]  # fmt: skip


@pytest.mark.parametrize(("name", "quant", "published"), SAFETENSORS)
def test_safetensors(name: str, quant: str, published: float) -> None:
    assert size(load_model(name), quant) == pytest.approx(published, rel=0.03)


AQLM_1X16, AQLM_2X8, AQLM_1X8 = (1, 16), (2, 8), (1, 8)
AQLM: list[tuple[str, str, tuple[int, int], float]] = [
    # https://github.com/Vahe1994/AQLM, README: "Model size, Gb"; ids under ISTA-DASLab
    ("Meta-Llama-3-8B-AQLM-2Bit-1x16", "llama-3-8b", AQLM_1X16, 4.1),
    ("Meta-Llama-3-8B-Instruct-AQLM-2Bit-1x16", "llama-3-8b", AQLM_1X16, 4.1),
    ("Meta-Llama-3-70B-AQLM-2Bit-1x16", "llama-3-70b", AQLM_1X16, 21.9),
    ("Meta-Llama-3-70B-Instruct-AQLM-2Bit-1x16", "llama-3-70b", AQLM_1X16, 21.9),
    ("c4ai-command-r-v01-AQLM-2Bit-1x16", "command-r-35b", AQLM_1X16, 12.7),
    ("c4ai-command-r-plus-AQLM-2Bit-1x16", "command-r-plus-104b", AQLM_1X16, 31.9),
    ("Mistral-7B-v0.1-AQLM-2Bit-1x16-hf", "mistral-7b", AQLM_1X16, 2.5),
    ("Llama-2-7b-AQLM-2Bit-1x16-hf", "llama-2-7b", AQLM_1X16, 2.4),
    ("Llama-2-7b-AQLM-2Bit-2x8-hf", "llama-2-7b", AQLM_2X8, 2.2),
    ("Llama-2-13b-AQLM-2Bit-1x16-hf", "llama-2-13b", AQLM_1X16, 4.1),
    ("Llama-2-13b-AQLM-2Bit-2x8-hf", "llama-2-13b", AQLM_2X8, 3.8),
    ("Llama-2-70b-AQLM-2Bit-1x16-hf", "llama-2-70b", AQLM_1X16, 18.8),
    ("Llama-2-70b-AQLM-2Bit-2x8-hf", "llama-2-70b", AQLM_2X8, 18.2),
    ("gemma-2b-AQLM-2Bit-1x16-hf", "gemma-2b", AQLM_1X16, 1.7),
    ("Llama-2-7b-AQLM-1Bit-1x8-hf", "llama-2-7b", AQLM_1X8, 1.34),
]  # fmt: skip
PLAIN: dict[str, dict[str, Any]] = {
    "llama-3-8b": llama() | shape(4096, 32, 32, 8, 14336, 128256, 8192),
    "llama-3-70b": llama() | shape(8192, 80, 64, 8, 28672, 128256, 8192),
    "llama-2-7b": llama() | shape(4096, 32, 32, 32, 11008, 32000, 4096),
    "llama-2-13b": llama() | shape(5120, 40, 40, 40, 13824, 32000, 4096),
    "gemma-2b": shape(2048, 18, 8, 1, 16384, 256000, 8192) | {"model_type": "gemma", "head_dim": 256},
}  # fmt: skip


@pytest.mark.parametrize(("name", "base", "books", "published"), AQLM)
def test_aqlm(name: str, base: str, books: tuple[int, int], published: float, tmp_path: Path) -> None:
    """Codes of 8 weights each, and a codebook for every matrix (a megabyte each in 1x16)."""
    config = (PLAIN.get(base) or CONFIGS[base]) | {"quantization_config": {
        "quant_method": "aqlm", "num_codebooks": books[0], "nbits_per_codebook": books[1], "in_group_size": 8,
        "out_group_size": 1, "linear_weights_not_to_quantize": ["lm_head.weight"]}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    half = 0.05 if published >= 1.5 else 0.005  # the published size is rounded to a tenth
    assert size(read_config(tmp_path)) == pytest.approx(published * GB, abs=max(0.03 * published, half) * GB)


GGUF = [
    # bartowski's Llama-3.1-70B files (Llama-3.1-Nemotron-70B-Instruct-HF-GGUF, README), in GB
    *[("llama-3.1-70b", q, s * GB) for q, s in {
        "q8_0": 74.98, "q6_k": 57.89, "q5_k_m": 49.95, "q5_k_s": 48.66, "q4_k_m": 42.52, "q4_k_s": 40.35, "q4_0": 40.12,
        "q3_k_l": 37.14, "q3_k_m": 34.27}.items()],
    # https://huggingface.co/bartowski/Qwen_Qwen3-4B-GGUF and Qwen_Qwen3-8B-GGUF, README, in GB
    *[("qwen3-4b", q, s * GB) for q, s in {
        "q8_0": 4.28, "q6_k": 3.31, "q5_k_m": 2.89, "q5_k_s": 2.82, "q4_1": 2.60, "q4_k_m": 2.50, "q4_k_s": 2.38,
        "q4_0": 2.38}.items()],
    ("qwen3-8b", "q8_0", 8.71 * GB), ("qwen3-8b", "q6_k", 6.73 * GB),
    # https://github.com/ggml-org/llama.cpp, tools/quantize/README.md: Llama-3.1-8B in GiB, 405B in GB
    *[("llama-3.1-8b", q, s * GIB) for q, s in {
        "iq1_m": 2.01, "iq2_xs": 2.42, "iq3_xxs": 3.04, "iq4_nl": 4.38, "q2_k": 2.95, "q4_k_m": 4.58, "q5_k_m": 5.33,
        "q6_k": 6.14, "q8_0": 7.95}.items()],
    ("llama-3.1-405b", "q4_k_m", 249.1 * GB),
]  # fmt: skip


@pytest.mark.parametrize(("name", "quant", "published"), GGUF)
def test_gguf_files(name: str, quant: str, published: float) -> None:
    assert size(load_model(name), quant) == pytest.approx(published, rel=0.03)


def test_there_are_sixty() -> None:
    assert len(SAFETENSORS) + len(AQLM) + len(GGUF) >= 60
