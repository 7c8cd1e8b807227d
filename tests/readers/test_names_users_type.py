"""Names as users type them: hub ids of quantised repositories, Ollama's tags, files."""

import pytest

from rooflm.errors import RooflmError
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
    ("glm-4.7-flash:q4_K_M", "", "q4_k_m", 202752),
    ("hermes3:70b", "", "", 131072),
    ("NousResearch/Hermes-4-14B", "hermes-4-14b", "", 40960),
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


def north(**more: object) -> dict[str, object]:
    """North Mini Code's config, as public copies have it."""
    kinds = ["full_attention" if i % 4 == 0 else "sliding_attention" for i in range(49)]
    return {
        "model_type": "cohere2_moe", "hidden_size": 2048, "head_dim": 128, "num_hidden_layers": 49,
        "vocab_size": 262144, "intermediate_size": 768, "prefix_dense_intermediate_size": 3072,
        "num_attention_heads": 32, "num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8,
        "num_shared_experts": 0, "first_k_dense_replace": 1, "sliding_window": 4096, "max_position_embeddings": 500000,
        "tie_word_embeddings": None, "layer_types": kinds, **more,
    }  # fmt: skip


def test_experts_beside_attention_and_a_wider_dense_layer() -> None:
    """Its card: 30.5 B, 2.7 B of which a token uses without the table."""
    model = from_fields(north(), "config.json", "north")
    assert model.blocks == load_model("north-mini-code").blocks and model.parameters == 30_484_303_872
    assert round(float(model.active_parameters - model.vocab * model.hidden) / 1e9, 1) == 2.8


def test_experts_of_their_own_width_behind_a_projection() -> None:
    """Muse Spark's sizes by transformers' defaults: read as experts of the hidden width, it had 1,612 B."""
    kinds = ["full_attention" if i % 4 == 1 else "sliding_attention" for i in range(62)]
    model = from_fields(
        {
            "model_type": "muse_spark_text", "hidden_size": 8192, "intermediate_size": 16384, "head_dim": 64,
            "moe_hidden_size": 4096, "moe_intermediate_size": 4096, "num_attention_heads": 128, "layer_types": kinds,
            "num_key_value_heads": 16, "num_hidden_layers": 62, "num_local_experts": 256, "num_experts_per_tok": 8,
            "vocab_size": 202048, "sliding_window": 2048, "max_position_embeddings": 1048576,
        }, "config.json", "spark",
    )  # fmt: skip
    assert model.parameters == load_model("muse-spark").parameters
    assert round(float(model.parameters - 2 * model.vocab * model.hidden) / 1e9, 1) == 816.7


@pytest.mark.parametrize("field", ["n_recurrent_loops", "total_ut_steps", "mean_recurrence"])
def test_layers_that_run_several_times_are_not_read_as_once(field: str) -> None:
    with pytest.raises(RooflmError, match=f"model_type 'looped' is unknown, and {field} says that its layers are not"):
        from_fields(north(model_type="looped", **{field: 4}), "config.json", "looped")
