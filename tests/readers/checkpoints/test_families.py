"""Families beyond the plain decoder: published configs give published counts, caches and states; what is not modelled
is refused with its reason."""

from __future__ import annotations

import json
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hf_configs import shape
from meta_counts import causal_families, count

import rooflm
from rooflm.catalogue.model import INF, MLP, Attention, LinearAttention, Model, MoE
from rooflm.catalogue.quant import Quant
from rooflm.errors import RooflmError, RooflmWarning
from rooflm.estimate.memory import kv_bytes_per_sequence
from rooflm.readers.checkpoints.read import read_config
from rooflm.scenario.mapping import Mapping

PLAIN = {"tie_word_embeddings": False, "torch_dtype": "bfloat16"}
PUBLISHED: dict[str, tuple[dict[str, Any], float]] = {
    # https://huggingface.co/XiaomiMiMo/MiMo-V2-Flash: 309 B
    "mimo-v2-flash": (shape(4096, 48, 64, 4, 16384, 152576, 262144) | PLAIN | {
        "model_type": "mimo_v2_flash", "head_dim": 192, "v_head_dim": 128, "swa_num_key_value_heads": 8,
        "swa_head_dim": 192, "swa_v_head_dim": 128, "swa_num_attention_heads": 64, "sliding_window": 128,
        "hybrid_layer_pattern": [0] + ([1] * 4 + [0] + [1]) * 7 + [1] * 4 + [0], "moe_layer_freq": [0] + [1] * 47,
        "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": None},
        309e9),
    # https://huggingface.co/MiniMaxAI/MiniMax-M1-80k: 456 B
    "minimax-m1": (shape(6144, 80, 64, 8, 9216, 200064, 10240000) | PLAIN | {
        "model_type": "minimax_m1", "head_dim": 128, "num_local_experts": 32, "num_experts_per_tok": 2,
        "attn_type_list": ([0] * 7 + [1]) * 10, "shared_intermediate_size": [0]}, 456e9),
    # https://huggingface.co/tencent/Hunyuan-A13B-Instruct: 80.4 B
    "hunyuan-a13b": (shape(4096, 32, 32, 8, 3072, 128167, 32768) | {
        "model_type": "hunyuan", "head_dim": 128, "num_experts": 64, "moe_topk": [8] * 32, "use_qk_norm": True,
        "moe_intermediate_size": [3072] * 32, "num_shared_expert": [1] * 32, "tie_word_embeddings": True}, 80.4e9),
    # https://huggingface.co/LiquidAI/LFM2-1.2B: 1.17 B
    "lfm2-1.2b": (shape(2048, 16, 32, 8, 12288, 65536, 128000) | {
        "model_type": "lfm2", "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0, "conv_L_cache": 3,
        "block_multiple_of": 256, "full_attn_idxs": [2, 5, 8, 10, 12, 14]}, 1.17e9),
    # https://huggingface.co/moonshotai/Kimi-Linear-48B-A3B-Instruct: 49.1 B with its metadata's count
    "kimi-linear": (shape(2304, 27, 32, 32, 9216, 163840, 1048576) | PLAIN | {
        "model_type": "kimi_linear", "head_dim": 72, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 256, "num_experts_per_token": 8,
        "num_shared_experts": 1, "moe_intermediate_size": 1024, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "linear_attn_config": {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
                               "short_conv_kernel_size": 4,
                               "kda_layers": [i for i in range(1, 27) if i % 4]}}, 49.1e9),
    # https://huggingface.co/meituan-longcat/LongCat-Flash-Chat: 562 B
    "longcat-flash": (shape(6144, 28, 64, 64, None, 131072, 131072) | PLAIN | {
        "model_type": "longcat_flash", "ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048, "moe_topk": 12,
        "n_routed_experts": 512, "zero_expert_num": 256, "kv_lora_rank": 512, "q_lora_rank": 1536,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}, 561e9),
    # https://huggingface.co/ibm-ai-platform/Bamba-9B-v1: 9.78 B
    "bamba-9b": (shape(4096, 32, 32, 8, 14336, 128256, 4096) | PLAIN | {
        "model_type": "bamba", "attn_layer_indices": [9, 18, 27], "mamba_n_heads": 128, "mamba_d_head": 64,
        "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2}, 9.78e9),
    # https://huggingface.co/state-spaces/mamba-2.8b-hf: 2.77 B
    "mamba-2.8b": ({"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 64, "vocab_size": 50280,
                    "state_size": 16, "conv_kernel": 4, "expand": 2, "time_step_rank": 160}, 2.77e9),
    # https://huggingface.co/mistralai/Mamba-Codestral-7B-v0.1: 7.29 B
    "mamba-codestral-7b": ({"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "vocab_size": 32768,
                            "num_heads": 128, "head_dim": 64, "n_groups": 8, "state_size": 128, "conv_kernel": 4,
                            "expand": 2, "tie_word_embeddings": False}, 7.285e9),
}  # fmt: skip


def read(config: dict[str, Any], folder: Path) -> Model:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return read_config(path)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_count(name: str, tmp_path: Path) -> None:
    config, published = PUBLISHED[name]
    assert float(read({k: v for k, v in config.items() if v is not None}, tmp_path).parameters) == pytest.approx(
        published, rel=0.006
    )


def test_a_pattern_of_windows_is_read(tmp_path: Path) -> None:
    """MiMo-V2-Flash: 9 of 48 layers are full attention; the cache was 0.07 GiB at any length (trial C5)."""
    model = read({k: v for k, v in PUBLISHED["mimo-v2-flash"][0].items() if v is not None}, tmp_path)
    mixers = [(b.count, b.mixer) for b in model.blocks if isinstance(b.mixer, Attention)]
    full = [(n, m) for n, m in mixers if m.window == INF]
    assert sum(n for n, _ in full) == 9 and {m.kv_heads for _, m in full} == {4}
    assert sum(n for n, m in mixers if m.window == 128 and m.kv_heads == 8) == 39
    each = float(kv_bytes_per_sequence(model, Mapping(), Quant("bf16"), 131072))
    by_hand = 9 * 131072 * 4 * (192 + 128) * 2 + 39 * 128 * 8 * (192 + 128) * 2
    assert each == pytest.approx(by_hand, rel=1e-12)


def sparse_minimax() -> dict[str, Any]:
    return shape(6144, 60, 64, 4, 3072, 200064, 524288) | PLAIN | {
        "model_type": "minimax_m3_vl_text", "head_dim": 128, "num_local_experts": 128, "num_experts_per_tok": 4,
        "shared_intermediate_size": 3072, "dense_intermediate_size": 12288, "moe_layer_freq": [0] * 3 + [1] * 57,
        "sparse_attention_config": {
            "sparse_attention_freq": [0] * 3 + [1] * 57, "sparse_topk_blocks": 16, "sparse_block_size": 128,
            "sparse_num_index_heads": 4, "sparse_index_dim": 128, "sparse_local_block": 1},
    }  # fmt: skip


def test_block_sparse_attention_reads_what_its_indexer_picks(tmp_path: Path) -> None:
    read(sparse_minimax(), tmp_path)
    dense = sparse_minimax()
    del dense["sparse_attention_config"]
    (tmp_path / "dense").mkdir()
    read(dense, tmp_path / "dense")
    ask: dict[str, Any] = {"gpu": "h200", "gpus": 8, "quant": "fp8", "output": 8, "batch": 4}
    short = [rooflm.infer(str(p), prompt=1024, **ask) for p in (tmp_path, tmp_path / "dense")]
    long = [rooflm.infer(str(p), prompt=400_000, **ask) for p in (tmp_path, tmp_path / "dense")]
    assert float(long[0].ttft) < 0.4 * float(long[1].ttft)
    assert float(long[0].tpot) < float(long[1].tpot)
    assert float(short[0].ttft) == pytest.approx(float(short[1].ttft), rel=0.1)
    cache = [float(e.memory.parts["kv_cache"]) for e in long]
    assert cache[0] / cache[1] == pytest.approx(
        1 + 57 / 60 * 0.5, rel=0.001
    )  # the whole cache is kept, and a key of the indexer a token


def test_gemma_layers_that_share_keys_have_no_cache(tmp_path: Path) -> None:
    config = shape(2048, 35, 8, 2, None, 262400, 32768) | {
        "model_type": "gemma3n_text", "head_dim": 256, "intermediate_size": [16384] * 35, "sliding_window": 512,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7, "num_kv_shared_layers": 15,
        "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "altup_num_inputs": 4,
        "laurel_rank": 64,
    }  # fmt: skip
    with pytest.warns(RooflmWarning, match="embeddings a layer.*not timed"):
        model = read(config, tmp_path)
    assert int(model.parameters) == pytest.approx(6_835_235_568, rel=1e-4)  # transformers, Gemma3nForCausalLM
    own = 16 * 512 + 4 * 32768  # of the first 20 layers: 16 windows, 4 full
    assert float(kv_bytes_per_sequence(model, Mapping(), Quant("bf16"), 32768)) == own * 2 * 2 * 256 * 2


def test_gemma_4_of_experts_beside_a_dense_layer(tmp_path: Path) -> None:
    """Gemma-4-26B-A4B: full layers have two KV heads of 512, whose keys are the values too."""
    config = shape(2816, 30, 16, 8, 2112, 262144, 262144) | {
        "model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 2,
        "attention_k_eq_v": True, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
        "sliding_window": 1024, "enable_moe_block": True, "num_experts": 128, "top_k_experts": 8,
        "moe_intermediate_size": 704, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0,
    }  # fmt: skip
    model = read(config, tmp_path)
    assert float(model.parameters) == pytest.approx(25.2e9, rel=0.02)
    assert float(model.active_parameters) == pytest.approx(3.8e9, rel=0.05)
    full = next(b.mixer for b in model.blocks if isinstance(b.mixer, Attention) and b.mixer.window == INF)
    assert (full.head_dim, full.kv_heads) == (512, 2)
    assert all(isinstance(b.ffn, MoE) and b.ffn.shared_width == 2112 for b in model.blocks)


@pytest.mark.parametrize(("value", "causal"), [(None, True), (False, True), ("vision", True), ("all", False)])
def test_images_alone_that_look_both_ways_leave_text_causal(value: object, causal: bool, tmp_path: Path) -> None:
    """Gemma 4's "vision" is of the tokens of an image among themselves, "all" of every token."""
    config = shape(2560, 6, 8, 4, 10240, 262144, 131072) | {
        "model_type": "gemma4_text", "head_dim": 256, "global_head_dim": 512, "hidden_size_per_layer_input": 0,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"], "sliding_window": 512,
        "use_bidirectional_attention": value,
    }  # fmt: skip
    assert [b.mixer.causal for b in read(config, tmp_path).blocks if isinstance(b.mixer, Attention)] == [causal] * 2
    with pytest.raises(RooflmError, match="use_bidirectional_attention is 'some'"):
        read(config | {"use_bidirectional_attention": "some"}, tmp_path)


def test_attention_and_mamba_side_by_side(tmp_path: Path) -> None:
    """Falcon-H1-7B: 7.59 B (https://huggingface.co/tiiuae/Falcon-H1-7B-Base)."""
    config = shape(3072, 44, 12, 2, 12288, 130048, 262144) | PLAIN | {
        "model_type": "falcon_h1", "head_dim": 128, "mamba_d_ssm": 3072, "mamba_n_heads": 24, "mamba_d_head": 128,
        "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_rms_norm": False,
    }  # fmt: skip
    model = read(config, tmp_path)
    assert [type(b.mixer) for b in model.blocks] == [LinearAttention, Attention]
    assert float(model.parameters) == pytest.approx(7.59e9, rel=0.005)
    assert model.layers == rooflm.load_model("falcon-h1-7b").layers == 44


def test_two_attentions_and_experts_make_one_layer(tmp_path: Path) -> None:
    read({k: v for k, v in PUBLISHED["longcat-flash"][0].items() if v is not None}, tmp_path)
    assert rooflm.load_model(str(tmp_path)).layers == rooflm.load_model("longcat-flash").layers == 28
    with pytest.raises(RooflmError, match="has only 28 layers"):
        rooflm.infer("longcat-flash", gpu="h200", pp=32)


def test_granite_4_with_and_without_experts(tmp_path: Path) -> None:
    """granite-4.0-h-small: 32.2 B; granite-4.0-h-1b has no experts: its shared width is the dense one."""
    kinds = ["mamba"] * 40
    for i in (5, 15, 25, 35):
        kinds[i] = "attention"
    config = shape(4096, 40, 32, 8, 768, 100352, 131072) | {
        "model_type": "granitemoehybrid", "layer_types": kinds, "num_local_experts": 72, "num_experts_per_tok": 10,
        "shared_intermediate_size": 1536, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1,
        "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "tie_word_embeddings": True,
    }  # fmt: skip
    assert float(read(config, tmp_path).parameters) == pytest.approx(32.2e9, rel=0.005)
    dense = read(config | {"num_local_experts": 0, "num_experts_per_tok": 0}, tmp_path)
    assert {b.ffn for b in dense.blocks} == {MLP(1536)}


@pytest.mark.parametrize(
    ("activation", "family", "matrices"),
    [("relu2", "arcee", 2), ("xielu", "apertus", 2), ("relu2", "jais2", 2), ("relu2", "nanochat", 2),
     ("relu2", "bitnet", 3)],
)  # fmt: skip
def test_two_matrices_where_there_is_no_gate(activation: str, family: str, matrices: int, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RooflmWarning)
        model = read(
            shape(1024, 4, 8, 8, 4096, 32000, 4096) | {"model_type": family, "hidden_act": activation}, tmp_path
        )
    (block,) = model.blocks
    assert isinstance(block.ffn, MLP) and 2 + block.ffn.gated == matrices


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"model_type": "clip"}, "it is an encoder, which embeds its input"),
        ({"model_type": "wav2vec2"}, "it is an encoder, which embeds its input"),
        ({"model_type": "deberta-v2"}, "it is an encoder, which embeds its input"),
        *(({"model_type": x}, f"model_type '{x}' cannot be read: it is an encoder")
          for x in ("siglip", "hubert", "dpr", "electra", "deberta")),
        ({"model_type": "newbert", "architectures": ["NewBertForMaskedLM"]}, "architectures is 'NewBertForMaskedLM'"),
        ({"model_type": "whisper"}, "it is an encoder with a decoder"),
        ({"model_type": "newest", "sparse_attention_config": {"x": 1}}, "sparse_attention_config says that its layers"),
        ({"model_type": "qwen9_moe", "linear_num_key_heads": 4}, "if its layers are those of qwen"),
        ({"model_type": "newest", "hc_mult": 4}, "hc_mult says that its layers are not those of a plain decoder"),
        ({"model_type": "hunyuan", "moe_topk": [8, "x"] * 2, "num_experts": 8, "moe_intermediate_size": 64},
         "moe_topk is"),
    ],
)  # fmt: skip
def test_what_is_not_modelled_is_refused_by_name(fields: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(RooflmError, match=sentence):
        read(shape(1024, 4, 8, 8, 4096, 32000, 4096) | fields, tmp_path)


VISION = {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
          "num_attention_heads": 16, "image_size": 896, "patch_size": 14}  # fmt: skip


def test_a_vision_tower_is_counted_and_told(tmp_path: Path) -> None:
    """Gemma-3-4B: 4.30 B with its SigLIP tower, 3.88 B without (https://huggingface.co/google/gemma-3-4b-it)."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "sliding_window": 1024}  # fmt: skip
    with pytest.warns(RooflmWarning, match="about 42. M parameters, in memory; images and sounds count as tokens"):
        model = read({"model_type": "gemma3", "text_config": text, "vision_config": VISION}, tmp_path)
    assert float(model.parameters) == pytest.approx(4.30e9, rel=0.003)
    assert float(model.active_parameters) == pytest.approx(3.88e9, rel=0.003)


def test_prediction_layers_are_counted_beside_the_model(tmp_path: Path) -> None:
    """GLM-4.5's checkpoint has 358,337,791,296 parameters, 352,797,829,024 without its prediction layer."""
    assert rooflm.load_model("glm-4.5").mtp_params == 358_337_791_296 - 352_797_829_024
    assert rooflm.load_model("deepseek-v3").mtp_params == pytest.approx(13.5e9, rel=0.01)  # 685 B less 671 B


@pytest.mark.parametrize("name", ["mamba-codestral-7b", "lfm2-1.2b", "minimax-m1", "kimi-linear", "longcat-flash"])
def test_they_can_be_predicted(name: str, tmp_path: Path) -> None:
    read({k: v for k, v in PUBLISHED[name][0].items() if v is not None}, tmp_path)
    found = rooflm.infer(str(tmp_path), gpu="h200", gpus=8, prompt=4096, output=16)
    assert 0 < float(found.tpot) < float(found.ttft) < 10


V4 = shape(4096, 43, 64, 1, None, 129280, 1048576) | PLAIN | {
    "model_type": "deepseek_v4", "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1024, "o_lora_rank": 1024,
    "o_groups": 8, "sliding_window": 128, "compress_ratios": [0, 0] + [4, 128] * 20 + [4, 0], "index_n_heads": 64,
    "index_head_dim": 128, "index_topk": 512, "hc_mult": 4, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 6, "moe_intermediate_size": 2048, "num_hash_layers": 3, "topk_method": "noaux_tc",
    "num_nextn_predict_layers": 1, "expert_dtype": "fp4",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"},
}  # fmt: skip
"""DeepSeek-V4-Flash, 284 B of which 13 B active: the defaults of transformers' DeepseekV4Config, and the pattern of its
layers in llm engines' tests: two of windows alone, then entries of 4 and 128 tokens in turn; one more of the MTP layer.
"""


@pytest.mark.filterwarnings("ignore::rooflm.errors.RooflmWarning")
@pytest.mark.parametrize(
    ("field", "value"), [("kv_source_layers", [2]), ("compress_ratios", [7] * 43), ("layer_types", ["full_attention"])]
)
def test_compressed_layers_of_other_kinds_are_refused(field: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(RooflmError, match=f"config.json: {field} (says|is|has)"):
        read(V4 | {field: value}, tmp_path)


def test_what_is_approximate_is_told(tmp_path: Path) -> None:
    with pytest.warns(RooflmWarning) as said:
        read(V4, tmp_path)
    streams, scheme = (str(w.message) for w in said)
    assert "the streams of its residual" in streams and "expert_dtype is 'fp4'" in scheme


@pytest.mark.filterwarnings("ignore::rooflm.errors.RooflmWarning")
def test_compressed_entries_and_windows_make_the_cache(tmp_path: Path) -> None:
    """By hand at 128k tokens: 128 latest tokens and one entry for every 4 or 128, of 512 values (448 and 64 with
    position) in 16 bits; a key of 128 + 4 bytes for every entry that is picked; tails in fp32, twice (values and
    weights): two series of 2 x 4 places where windows overlap, one of 128 where they do not."""
    model = read(V4, tmp_path)
    window = 128 * 512 * 2
    picked = 131072 // 4 * (512 * 2 + 132) + 2 * (2 * 4) * 2 * (512 + 128) * 4
    heavy = 131072 // 128 * 512 * 2 + 2 * 128 * 512 * 4
    by_hand = 43 * window + 21 * picked + 20 * heavy
    kept = float(kv_bytes_per_sequence(model, Mapping(), Quant("bf16"), 131072))
    assert kept == by_hand
    assert float(kv_bytes_per_sequence(model, Mapping(tp=8), Quant("bf16"), 131072)) == by_hand  # all ranks have all
    assert kept < 0.12 * 43 * 131072 * (576 * 2 + 132)  # an eighth of what DeepSeek-V3.2's attention would keep
    assert float(model.parameters) == pytest.approx(284e9, rel=0.005)
    assert float(model.active_parameters) == pytest.approx(13.8e9, rel=0.01)  # 13 B without the embedding
    assert model.quant == "mxfp4a8-fp8"


@pytest.mark.filterwarnings("ignore::rooflm.errors.RooflmWarning")
def test_compressed_attention_is_timed_in_every_question(tmp_path: Path) -> None:
    read(V4, tmp_path)
    cached = [float(rooflm.infer(str(tmp_path), gpu="h200", gpus=8, prompt=n, output=16).tpot) for n in (4096, 131072)]
    assert cached[0] < cached[1] < 1.5 * cached[0]
    step = rooflm.train(str(tmp_path), gpu="h200", gpus=64, ep=64, batch=64, seq=4096)
    assert 0 < float(step.step_time) < 100
    served = rooflm.serve(str(tmp_path), gpu="h200", gpus=8, rate=1, requests=20, prompt=1000, output=50)
    assert served.finished == 20 and 0 < served.kv_peak < 0.1


def test_layers_that_a_search_thinned_out(tmp_path: Path) -> None:
    """One whole layer, one without attention, one that is left out (config.json of Llama-3.3-Nemotron-Super-49B)."""
    kept = {"attention": {"n_heads_in_group": 8, "no_op": False}, "ffn": {"ffn_mult": 5.25, "no_op": False}}
    bare, gone = {"n_heads_in_group": None, "no_op": True}, {"ffn_mult": None, "no_op": True}
    config = {
        "model_type": "nemotron-nas", "hidden_size": 8192, "num_hidden_layers": 3, "num_attention_heads": 64,
        "vocab_size": 128256, "tie_word_embeddings": False, "block_configs": [
            kept, {"attention": bare, "ffn": kept["ffn"]}, {"attention": bare, "ffn": gone}],
    }  # fmt: skip
    blocks = read(config, tmp_path).blocks
    assert [(b.count, b.norms, b.mixer is None) for b in blocks] == [(1, 2, False), (1, 1, True)]
    assert {b.ffn.width for b in blocks if b.ffn} == {28672}
    config["block_configs"][0] = kept | {"ffn": {"ffn_mult": "5"}}  # type: ignore[index]
    with pytest.raises(RooflmError, match=r"ffn\.ffn_mult is"):
        read(config, tmp_path)


SAMPLE = ("llama", "afmoe", "apertus", "bamba", "falcon_h1", "zamba2", "kimi_linear", "minimax", "olmo_hybrid",
          "lfm2", "gemma3n_text", "gemma4_text", "mimo_v2_flash", "granitemoehybrid", "mamba2", "persimmon", "gpt_neo",
          "gemma3", "bert", "jetmoe", "gemma4_unified_text", "hunyuan_v1_moe", "lfm2_moe", "nemotron")  # fmt: skip


@pytest.mark.parametrize("family", SAMPLE)
def test_counts_agree_with_transformers(family: str) -> None:
    """All of them: `python tests/readers/checkpoints/meta_counts.py`."""
    import_module("transformers")
    found = count(family, causal_families()[family])
    assert found.theirs and found.told, found
    assert not found.ours or abs(found.off) < 0.005


def test_compressed_layers_of_all_kinds_count_as_in_transformers() -> None:
    """Exactly, at four layers: a window alone, entries that are picked, and all entries."""
    import_module("transformers")
    family = "deepseek_v4"
    found = count(family, causal_families()[family], num_hidden_layers=4, compress_ratios=[0, 4, 128, 4])
    assert found.ours == found.theirs > 25e9
