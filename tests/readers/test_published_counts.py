"""Counts that makers publish beside the total: without embeddings, or of a token; and what names of files mean.

The totals of all rows are held in test_models.py, as are active parameters where a row has them.
"""

from __future__ import annotations

import pytest

from rooflm.catalogue.model import MoE
from rooflm.errors import RooflmError, RooflmWarning
from rooflm.estimate.memory import weight_bytes
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.checkpoints.read import from_fields
from rooflm.readers.rows import names
from rooflm.readers.schemes import parse_quant
from rooflm.scenario.mapping import Mapping

WITHOUT_EMBEDDING = {
    # https://huggingface.co/Qwen, model cards: "Number of Paramaters (Non-Embedding)"
    "qwen2.5-0.5b": 0.36, "qwen2.5-1.5b": 1.31, "qwen2.5-3b": 2.77, "qwen2.5-7b": 6.53, "qwen2.5-14b": 13.1,
    "qwen2.5-32b": 31.0, "qwen2.5-72b": 70.0, "qwen3-0.6b": 0.44, "qwen3-1.7b": 1.4, "qwen3-4b": 3.6, "qwen3-8b": 6.95,
    "qwen3-14b": 13.2, "qwen3-32b": 31.2, "qwen3-30b-a3b": 29.9, "qwen3-235b-a22b": 234, "qwen3-next-80b-a3b": 79,
    # https://huggingface.co/LGAI-EXAONE/EXAONE-4.0-32B and -1.2B: "without embeddings"
    "exaone-4.0-32b": 30.95, "exaone-4.0-1.2b": 1.07,
}  # fmt: skip
ACTIVE_WITHOUT_EMBEDDING = {
    # arXiv 2510.19338: 957 M; https://huggingface.co/inclusionAI/Ling-flash-base-2.0: 4.8 B;
    # https://huggingface.co/sarvamai/sarvam-30b: 2.4 B; https://huggingface.co/sarvamai/sarvam-105b: 10.3 B
    "ring-mini-linear-2.0": 0.957, "ling-flash-100b-a6b": 4.8, "sarvam-30b": 2.4, "sarvam-105b": 10.3,
}  # fmt: skip
ACTIVE = {
    # arXiv 2508.10925, table 1; docs/ARCHITECTURE.md of FareedKhan-dev/kimi-k3-in-c; arXiv 2412.19437, 2507.20534
    "gpt-oss-20b": 3.61, "gpt-oss-120b": 5.13, "kimi-k3": 104, "deepseek-v3": 37, "kimi-k2": 32,
}  # fmt: skip
"""Billions, of tokens that pass the head and look up one row of the embedding."""


@pytest.mark.parametrize("name", WITHOUT_EMBEDDING)
def test_without_embedding(name: str) -> None:
    model = load_model(name)
    rest = model.parameters - (1 if model.tied else 2) * model.vocab * model.hidden
    assert rest / 1e9 == pytest.approx(WITHOUT_EMBEDDING[name], rel=0.015)


@pytest.mark.parametrize("name", ACTIVE_WITHOUT_EMBEDDING)
def test_active_without_embedding(name: str) -> None:
    model = load_model(name)
    rest = model.active_parameters - 2 * model.vocab * model.hidden
    assert rest / 1e9 == pytest.approx(ACTIVE_WITHOUT_EMBEDDING[name], rel=0.015)


@pytest.mark.parametrize("name", ACTIVE)
def test_active(name: str) -> None:
    model = load_model(name)
    passed = model.active_parameters - model.vocab * model.hidden
    assert passed / 1e9 == pytest.approx(ACTIVE[name], rel=0.02)


def test_mixtures_of_experts_say_how_many_are_active() -> None:
    """All but those whose maker gives none, a share (Grok 1: a quarter), or one a few hundredths away (Hunyuan Large:
    52 B for 51.3 with all tables; Ring-flash-linear: 6.1 B, those of Ling-flash, for 6.16 without any; GLM-5.3-Flash:
    18 B with its tower; Muse Spark: 42 B for 42.8 without any table)."""
    silent = {n for n in names("model") if any(isinstance(b.ffn, MoE) for b in load_model(n).blocks)
              and not load_model(n).published_active}  # fmt: skip
    assert silent <= {
        "grok-1", "minimax-m3", "hunyuan-large-389b-a52b", "ring-flash-linear-104b-a6.1b", "glm-5.3-flash",
        "muse-spark-816b-a42b", "kolibri-1-78b-a3.8b",
    }  # fmt: skip


NAMES = {
    "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf": ("llama-3.1-8b", "q4_k_m"),
    "mistral-7b-instruct-v0.2.Q5_K_M.gguf": ("mistral-7b-v0.2", "q5_k_m"),
    "Meta-Llama-3.1-8B-Instruct-Q6_K_L.gguf": ("llama-3.1-8b", "q6_k_l"),
    "Llama-3.3-70B-Instruct-Q3_K_XL.gguf": ("llama-3.3-70b", "q3_k_xl"),
    "Llama-3.3-70B-Instruct-IQ2_XXS.gguf": ("llama-3.3-70b", "iq2_xxs"),
    "google_gemma-3-27b-it-Q4_K_M.gguf": ("gemma-3-27b", "q4_k_m"),
    "Qwen3-Coder-30B-A3B-Instruct-UD-Q4_K_XL.gguf": ("qwen3-30b-a3b", "q4_k_m"),
    "gpt-oss-120b-mxfp4-00001-of-00003.gguf": ("gpt-oss-120b", "mxfp4-moe"),
    "bartowski/Qwen_Qwen3-30B-A3B-GGUF:IQ4_XS": ("qwen3-30b-a3b", "iq4_xs"),
    "mlx-community/Qwen3-30B-A3B-Instruct-2507-4bit-DWQ": ("qwen3-30b-a3b", "w4a16g32"),
    "mlx-community/gpt-oss-20b-MXFP4-Q8": ("gpt-oss-20b", "mxfp4-moe"),
    "mlx-community/Qwen3-235B-A22B-Instruct-2507-3bit": ("qwen3-235b-a22b", "w3a16g32"),
    "lmstudio-community/Qwen3-8B-MLX-8bit": ("qwen3-8b", "w8a16g32"),
    "qwen3:latest": ("qwen3-8b", ""), "qwen3:30b-a3b-q8_0": ("qwen3-30b-a3b", "q8_0"),
    "granite4:tiny-h": ("granite-4.0-h-tiny", ""), "deepseek-r1:1.5b": ("deepseek-r1-distill-qwen-1.5b", ""),
    "XiaomiMiMo/MiMo-V2.6-Flash-MOPD": ("mimo-v2-flash", "mxfp4a8-fp8"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::rooflm.errors.RooflmWarning")
@pytest.mark.parametrize("name", NAMES)
def test_names_of_files_and_of_publishers(name: str) -> None:
    row, scheme = NAMES[name]
    found = load_model(name)
    assert found.blocks == load_model(row).blocks
    assert found.quant == (scheme or load_model(row).quant)


def test_a_file_that_is_not_here_is_read_by_its_name_alone() -> None:
    with pytest.warns(RooflmWarning, match="no such file here; read by its name"):
        load_model("Qwen3-8B-Q4_K_M.gguf")
    with pytest.raises(RooflmError, match=r"its name alone will do: Qwen3-8B-Q4_K_M\.gguf"):
        load_model("nowhere/Qwen3-8B-Q4_K_M.gguf")


@pytest.mark.parametrize(
    ("name", "says"),
    [("claude-3.5-sonnet", "its weights are not published"), ("stable-diffusion-xl", "it makes images, not text")],
)
def test_models_without_weights_or_text(name: str, says: str) -> None:
    with pytest.raises(RooflmError, match=says):
        load_model(name)


SIZES = [
    # bartowski/Meta-Llama-3.1-8B-Instruct-GGUF, in GB
    ("llama-3.1-8b", "q2_k_l", 3.69), ("llama-3.1-8b", "q3_k_xl", 4.78), ("llama-3.1-8b", "q4_k_l", 5.31),
    ("llama-3.1-8b", "q5_k_l", 6.06), ("llama-3.1-8b", "q6_k_l", 6.85),
    # experts of 1.45 TB, 108.81 GB beside them and 4.70 of embedding and head (kimi-k3-in-c, docs/ARCHITECTURE.md)
    ("kimi-k3", "", 1450 + 108.81 + 4.70),
    # without prediction layers and drafter (github.com/JustVugg/colibri, docs/mimo.md), and without towers
    ("XiaomiMiMo/MiMo-V2.6-Pro-MOPD", "", 563.6),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::rooflm.errors.RooflmWarning")
@pytest.mark.parametrize(("name", "quant", "published"), SIZES)
def test_size_on_disk(name: str, quant: str, published: float) -> None:
    model = load_model(name)
    assert float(weight_bytes(model, Mapping(), parse_quant(quant or model.quant))) / 1e9 == pytest.approx(
        published, rel=0.02
    )


LING = {
    "model_type": "bailing_hybrid", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "intermediate_size": 9216, "moe_intermediate_size": 1024, "num_experts": 256,
    "moe_shared_expert_intermediate_size": 1024, "num_shared_experts": 1, "num_experts_per_tok": 8, "head_dim": 128,
    "first_k_dense_replace": 1, "layer_group_size": 8, "group_norm_size": 4, "vocab_size": 157184, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 8,
    "max_position_embeddings": 131072, "tie_word_embeddings": False,
}  # fmt: skip
"""inclusionAI/Ling-2.6-flash, config.json (as copied in its fp8 checkpoint)."""


def test_ling_2_6_has_lightning_and_latent_attention() -> None:
    read, row = from_fields(LING, "config.json", "ling"), load_model("ling-2.6-flash")
    assert read.blocks == row.blocks and read.parameters == row.parameters
    kinds = {getattr(b.mixer, "kind", "latent"): 0 for b in read.blocks}
    for b in read.blocks:
        kinds[getattr(b.mixer, "kind", "latent")] += b.count
    assert kinds == {"lightning": 28, "latent": 4}


def test_a_matrix_in_place_of_attention() -> None:
    """Puzzle's searched models (Nemotron 51B) put one square matrix where a layer's attention was."""
    attends = {"n_heads_in_group": 8, "no_op": False, "replace_with_linear": False}
    linear = {"n_heads_in_group": None, "no_op": False, "replace_with_linear": True}
    ffn = {"ffn_mult": 5.25, "no_op": False, "replace_with_linear": False}
    layers = [{"attention": a, "ffn": ffn} for a in (attends, linear)]
    fields = {"model_type": "nemotron-nas", "hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 2,
              "vocab_size": 128256, "block_configs": layers}  # fmt: skip
    model = from_fields(fields, "config.json", "nas")
    attention = 2 * 8192 * 8192 + 2 * 8192 * 1024
    within = attention + 8192**2 + 2 * 3 * 8192 * 28672 + 5 * 8192
    assert model.parameters == 2 * 128256 * 8192 + within
