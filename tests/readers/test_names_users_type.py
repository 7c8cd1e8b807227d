"""Names as users type them: hub ids of quantised repositories, Ollama's tags, files."""

import pytest

from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.checkpoints.read import from_fields

pytestmark = pytest.mark.filterwarnings("ignore::rooflm.errors.RooflmWarning")
TYPED = [
    ("Qwen/Qwen3-VL-8B-Thinking", "qwen3-vl-8b-thinking", "", 262144),
    ("Qwen/Qwen3-VL-30B-A3B-Thinking-FP8", "qwen3-vl-30b-a3b-thinking-fp8", "fp8-block", 262144),
    ("meituan-longcat/LongCat-Flash-Thinking-2601", "longcat-flash-thinking-2601", "", 131072),
    ("huihui-ai/Qwen3-8B-abliterated", "qwen3-8b-abliterated", "", 40960),
    ("mlx-community/Qwen3-4B-Instruct-2507-4bit-DWQ-2510", "", "w4a16g32", 262144),
    ("ISTA-DASLab/gemma-3-27b-it-GPTQ-4b-128g", "", "gptq", 131072),
    ("jart25/Qwen3-Coder-30B-A3B-Instruct-Int4-gptq", "", "gptq", 262144),
    ("nytopop/Qwen3-30B-A3B.w8a8", "", "int8", 40960),
    ("RedHatAI/Qwen3-4B-quantized.w8a8", "", "int8", 40960),
    ("amd/Qwen3-Coder-480B-A35B-Instruct-PTPC", "", "fp8", 262144),
    ("Intel/Qwen3-8B-int4-AutoRound-inc", "", "int4", 40960),
    ("moonshotai/Kimi-K2-Thinking", "kimi-k2-thinking", "w4a16g32-experts", 262144),
    ("mlx-community/gemma-4-26b-a4b-it-mxfp4", "", "w4a16g64e4.25", 262144),
    ("unsloth/Qwen3.5-122B-A10B-GGUF:MXFP4_MOE", "", "mxfp4-moe", 262144),
    ("glm-4.6:cloud", "", "", 202752),
    ("qwen3-coder:30b", "", "", 262144),
    ("devstral:24b", "", "", 131072),
    ("deepseek-r1:8b", "", "", 131072),
    ("moonshotai/Kimi-K2.7-Code", "kimi-k2.7-code", "w4a16g32-experts", 262144),
]


@pytest.mark.parametrize(("typed", "name", "quant", "context"), TYPED)
def test_a_name_has_its_scheme_and_context(typed: str, name: str, quant: str, context: int) -> None:
    model = load_model(typed)
    assert (model.quant, model.max_context) == (quant, context)
    assert not name or model.name == name


def test_layers_of_sparse_and_lightning_attention() -> None:
    """MiniCPM-SALA's config: 18,076 MiB in 16 bits."""
    model = from_fields(
        {
            "model_type": "minicpm_sala", "hidden_size": 4096, "intermediate_size": 16384, "vocab_size": 73448,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
            "lightning_nh": 32, "lightning_nkv": 32, "lightning_head_dim": 128, "attn_use_output_gate": True,
            "mixer_types": ["minicpm4", "lightning-attn", "lightning-attn", "lightning-attn"] * 8,
        }, "config.json", "sala",
    )  # fmt: skip
    assert model.parameters == load_model("minicpm-sala").parameters
    assert round(float(model.parameters) * 2 / 2**20) == 18076


def test_kda_beside_latent_attention_without_rotation() -> None:
    """GLM-5.3-Flash's config by transformers' defaults: three layers of four have a state, the others an indexer."""
    layers = ["indexed_attention" if i % 4 == 3 else "linear_attention" for i in range(45)]
    model = from_fields(
        {
            "model_type": "glm5_next_text", "hidden_size": 4096, "intermediate_size": 12288, "vocab_size": 154880,
            "moe_intermediate_size": 2048, "num_hidden_layers": 45, "num_attention_heads": 64, "n_routed_experts": 288,
            "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3, "kv_lora_rank": 512,
            "q_lora_rank": 1536, "qk_rope_head_dim": 0, "qk_nope_head_dim": 256, "v_head_dim": 256, "index_topk": 2048,
            "index_n_heads": 32, "index_head_dim": 128, "index_kpool": 16, "linear_num_heads": 64, "hc_mult": 4,
            "linear_head_dim": 128, "linear_conv_kernel_dim": 4, "layer_types": layers,
        }, "config.json", "glm",
    )  # fmt: skip
    assert model.parameters == load_model("glm-5.3-flash").parameters
    assert model.streams == 4 and model.blocks == load_model("glm-5.3-flash").blocks
