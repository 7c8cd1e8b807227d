"""Published Hugging Face configs, typed in: the fields that describe the architecture, as each model's page has them.

Catalogue name -> config. Fields that a released config leaves out are left out here too.
"""

from __future__ import annotations

from typing import Any


def llama(**more: Any) -> dict[str, Any]:
    return {"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-05, "attention_bias": False,
            "mlp_bias": False, "tie_word_embeddings": False, "torch_dtype": "bfloat16"} | more  # fmt: skip


def shape(
    hidden: int, layers: int, heads: int, kv: int | None, width: int | None, vocab: int, ctx: int
) -> dict[str, Any]:
    named = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
             "num_key_value_heads": kv, "intermediate_size": width, "vocab_size": vocab,
             "max_position_embeddings": ctx}  # fmt: skip
    return {k: v for k, v in named.items() if v is not None}


def deepseek(kind: str, **more: Any) -> dict[str, Any]:
    return {"model_type": kind, "attention_bias": False, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_layer_freq": 1, "tie_word_embeddings": False,
            "torch_dtype": "bfloat16"} | more  # fmt: skip


FP8 = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
V3 = shape(7168, 61, 128, 128, 18432, 129280, 163840) | {
    "q_lora_rank": 1536, "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
    "n_shared_experts": 1, "first_k_dense_replace": 3, "topk_method": "noaux_tc", "num_nextn_predict_layers": 1,
    "quantization_config": FP8,
}  # fmt: skip
NEXT = {"head_dim": 256, "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_num_key_heads": 16, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "attention_bias": False, "tie_word_embeddings": False, "dtype": "bfloat16"}  # fmt: skip
HYBRID = {"model_type": "nemotron_h", "attention_bias": False, "mlp_bias": False, "n_groups": 8, "ssm_state_size": 128,
          "mamba_head_dim": 64, "conv_kernel": 4, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}  # fmt: skip
VISION = {"model_type": "qwen3_5_moe", "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16,
          "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 2304,
          "deepstack_visual_indexes": [], "hidden_act": "gelu_pytorch_tanh"}  # fmt: skip
QWEN2 = {"use_sliding_window": False, "sliding_window": 131072, "torch_dtype": "bfloat16", "tie_word_embeddings": False}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama-2-70b": llama(torch_dtype="float16") | shape(8192, 80, 64, 8, 28672, 32000, 4096),
    "llama-3.2-1b": llama(tie_word_embeddings=True, head_dim=64) | shape(2048, 16, 32, 8, 8192, 128256, 131072),
    "smollm2-135m": llama(tie_word_embeddings=True) | shape(576, 30, 9, 3, 1536, 49152, 8192),
    "mistral-7b": llama(model_type="mistral", sliding_window=4096) | shape(4096, 32, 32, 8, 14336, 32000, 32768),
    "mistral-7b-v0.3": llama(model_type="mistral", sliding_window=None) | shape(4096, 32, 32, 8, 14336, 32768, 32768),
    "mistral-nemo-12b": llama(model_type="mistral", sliding_window=None, head_dim=128)
    | shape(5120, 40, 32, 8, 14336, 131072, 131072),
    "mixtral-8x7b": llama(model_type="mixtral", sliding_window=None, num_local_experts=8, num_experts_per_tok=2)
    | shape(4096, 32, 32, 8, 14336, 32000, 32768),
    "deepseek-v2-lite": deepseek("deepseek_v2", q_lora_rank=None, n_routed_experts=64, num_experts_per_tok=6,
                                 moe_intermediate_size=1408, n_shared_experts=2, first_k_dense_replace=1,
                                 topk_method="greedy")
    | shape(2048, 27, 16, 16, 10944, 102400, 163840),
    "deepseek-v3": deepseek("deepseek_v3", n_group=8) | V3,
    "deepseek-v3.2": deepseek("deepseek_v32", n_group=8, index_topk=2048, index_n_heads=64, index_head_dim=128) | V3,
    "kimi-k2": deepseek("kimi_k2") | V3
    | {"num_hidden_layers": 61, "num_attention_heads": 64, "vocab_size": 163840, "n_routed_experts": 384,
       "first_k_dense_replace": 1, "max_position_embeddings": 131072, "num_nextn_predict_layers": 0},
    "glm-5": deepseek("glm_moe_dsa", q_lora_rank=2048, qk_nope_head_dim=192, v_head_dim=256, index_topk=2048,
                      head_dim=64, index_n_heads=32, index_head_dim=128, n_routed_experts=256, num_experts_per_tok=8,
                      moe_intermediate_size=2048, n_shared_experts=1, first_k_dense_replace=3, topk_method="noaux_tc",
                      mlp_layer_types=["dense"] * 3 + ["sparse"] * 75)
    | shape(6144, 78, 64, 64, 12288, 154880, 202752),
    "gpt-oss-20b": shape(2880, 24, 64, 8, 2880, 201088, 131072)
    | {"model_type": "gpt_oss", "attention_bias": True, "head_dim": 64, "num_local_experts": 32, "experts_per_token": 4,
       "num_experts_per_tok": 4, "sliding_window": 128, "tie_word_embeddings": False,
       "layer_types": ["sliding_attention", "full_attention"] * 12,
       "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}},
    "qwen1.5-moe-a2.7b": shape(2048, 24, 16, 16, 5632, 151936, 8192) | QWEN2
    | {"model_type": "qwen2_moe", "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
       "shared_expert_intermediate_size": 5632, "decoder_sparse_step": 1, "max_window_layers": 21},
    "qwen2.5-7b": shape(3584, 28, 28, 4, 18944, 152064, 131072) | QWEN2
    | {"model_type": "qwen2", "max_window_layers": 28},
    "qwen3-8b": shape(4096, 36, 32, 8, 12288, 151936, 40960) | QWEN2
    | {"model_type": "qwen3", "head_dim": 128, "attention_bias": False, "sliding_window": None,
       "max_window_layers": 36},
    "qwen3-30b-a3b": shape(2048, 48, 32, 4, 6144, 151936, 40960) | QWEN2
    | {"model_type": "qwen3_moe", "head_dim": 128, "attention_bias": False, "num_experts": 128,
       "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "qwen3-next-80b-a3b": shape(2048, 48, 16, 2, 5120, 151936, 262144) | NEXT
    | {"model_type": "qwen3_next", "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
       "shared_expert_intermediate_size": 512, "linear_num_value_heads": 32},
    "qwen3.5-397b-a17b": {
        "model_type": "qwen3_5_moe", "tie_word_embeddings": False, "vision_config": VISION | {"out_hidden_size": 4096},
        "text_config": shape(4096, 60, 32, 2, None, 248320, 262144) | NEXT
        | {"model_type": "qwen3_5_moe_text", "num_experts": 512, "num_experts_per_tok": 10,
           "moe_intermediate_size": 1024, "shared_expert_intermediate_size": 1024, "linear_num_value_heads": 64,
           "attn_output_gate": True, "mtp_num_hidden_layers": 1,
           "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 15},
    },
    "gemma-7b": shape(3072, 28, 16, 16, 24576, 256000, 8192)
    | {"model_type": "gemma", "head_dim": 256, "torch_dtype": "bfloat16"},
    "gemma-2-9b": shape(3584, 42, 16, 8, 14336, 256000, 8192)
    | {"model_type": "gemma2", "head_dim": 256, "sliding_window": 4096, "torch_dtype": "bfloat16"},
    "gemma-3-1b": shape(1152, 26, 4, 1, 6912, 262144, 32768)
    | {"model_type": "gemma3_text", "head_dim": 256, "sliding_window": 512, "sliding_window_pattern": 6},
    "gemma-3-4b": {
        "model_type": "gemma3", "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1152},
        "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                        "num_hidden_layers": 34, "sliding_window": 1024},
    },
    "phi-2": shape(2560, 32, 32, 32, 10240, 51200, 2048)
    | {"model_type": "phi", "torch_dtype": "float16", "tie_word_embeddings": False, "partial_rotary_factor": 0.4},
    "phi-3-mini": shape(3072, 32, 32, 32, 8192, 32064, 4096)
    | {"model_type": "phi3", "sliding_window": 2047, "attention_bias": False, "tie_word_embeddings": False},
    "phi-3-mini-128k": shape(3072, 32, 32, 32, 8192, 32064, 131072)
    | {"model_type": "phi3", "sliding_window": 262144, "attention_bias": False, "tie_word_embeddings": False},
    "phi-3.5-moe": shape(4096, 32, 32, 8, 6400, 32064, 131072)
    | {"model_type": "phimoe", "attention_bias": True, "lm_head_bias": True, "num_local_experts": 16,
       "num_experts_per_tok": 2, "sliding_window": 131072, "tie_word_embeddings": False},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024, "n_ctx": 1024,
                "vocab_size": 50257, "torch_dtype": "float32"},
    "gpt-j-6b": {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048,
                 "n_inner": None, "rotary_dim": 64, "vocab_size": 50400, "tie_word_embeddings": False,
                 "torch_dtype": "float16"},
    "gpt-neox-20b": shape(6144, 44, 64, None, 24576, 50432, 2048)
    | {"model_type": "gpt_neox", "tie_word_embeddings": False, "torch_dtype": "float16"},
    "opt-350m": {"model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
                 "ffn_dim": 4096, "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 512,
                 "do_layer_norm_before": False, "torch_dtype": "float16"},
    "opt-6.7b": {"model_type": "opt", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                 "ffn_dim": 16384, "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 4096,
                 "do_layer_norm_before": True, "torch_dtype": "float16"},
    "bloom-7b1": {"model_type": "bloom", "n_embed": 4096, "n_layer": 30, "num_attention_heads": 32,
                  "vocab_size": 250880, "seq_length": 2048},
    "mpt-7b": {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "expansion_ratio": 4,
               "max_seq_len": 2048, "vocab_size": 50432, "no_bias": True, "learned_pos_emb": True,
               "attn_config": {"alibi": True, "attn_type": "multihead_attention"}, "torch_dtype": "bfloat16"},
    "falcon-7b": {"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
                  "vocab_size": 65024, "multi_query": True, "new_decoder_architecture": False, "parallel_attn": True,
                  "bias": False, "alibi": False, "torch_dtype": "bfloat16"},
    "falcon-40b": {"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128,
                   "num_kv_heads": 8, "vocab_size": 65024, "new_decoder_architecture": True, "parallel_attn": True,
                   "bias": False, "alibi": False, "torch_dtype": "bfloat16"},
    "starcoder2-3b": shape(3072, 30, 24, 2, 12288, 49152, 16384)
    | {"model_type": "starcoder2", "use_bias": True, "sliding_window": 4096, "mlp_type": "default"},
    "starcoder-15b": {"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576,
                      "n_positions": 8192, "multi_query": True, "vocab_size": 49152},
    "command-r-35b": shape(8192, 40, 64, 64, 22528, 256000, 131072)
    | {"model_type": "cohere", "use_qk_norm": False, "torch_dtype": "float16"},
    "command-r-plus-104b": shape(12288, 64, 96, 8, 33792, 256000, 131072)
    | {"model_type": "cohere", "use_qk_norm": True, "torch_dtype": "float16"},
    "dbrx": {"model_type": "dbrx", "d_model": 6144, "n_layers": 40, "n_heads": 48, "max_seq_len": 32768,
             "vocab_size": 100352, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000},
             "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
             "tie_word_embeddings": False},
    "glm-4-9b": {"model_type": "chatglm", "hidden_size": 4096, "num_layers": 40, "num_attention_heads": 32,
                 "multi_query_attention": True, "multi_query_group_num": 2, "kv_channels": 128,
                 "ffn_hidden_size": 13696, "padded_vocab_size": 151552, "vocab_size": 151552, "seq_length": 131072,
                 "add_qkv_bias": True, "add_bias_linear": False, "tie_word_embeddings": False},
    "glm-4.5": shape(5120, 92, 96, 8, 12288, 151552, 131072)
    | {"model_type": "glm4_moe", "attention_bias": True, "head_dim": 128, "use_qk_norm": True, "n_routed_experts": 160,
       "num_experts_per_tok": 8, "moe_intermediate_size": 1536, "n_shared_experts": 1, "first_k_dense_replace": 3,
       "num_nextn_predict_layers": 1, "tie_word_embeddings": False},
    "minimax-m2": shape(3072, 62, 48, 8, 1536, 200064, 196608)
    | {"model_type": "minimax_m2", "head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8,
       "use_qk_norm": True, "qk_norm_type": "per_layer", "use_routing_bias": True, "attn_type_list": [1] * 62,
       "shared_intermediate_size": 0, "tie_word_embeddings": False, "quantization_config": FP8},
    "llama-4-maverick": {
        "model_type": "llama4", "torch_dtype": "bfloat16", "vision_config": {"hidden_size": 1408},
        "text_config": shape(5120, 48, 40, 8, 8192, 202048, 1048576)
        | {"model_type": "llama4_text", "head_dim": 128, "intermediate_size_mlp": 16384, "num_local_experts": 128,
           "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 8192,
           "attention_bias": False, "use_qk_norm": False, "no_rope_layers": [], "tie_word_embeddings": False},
    },
    "llama-4-scout": {
        "model_type": "llama4", "torch_dtype": "bfloat16",
        "text_config": shape(5120, 48, 40, 8, 8192, 202048, 10485760)
        | {"model_type": "llama4_text", "head_dim": 128, "intermediate_size_mlp": 16384, "num_local_experts": 16,
           "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "attention_chunk_size": 8192,
           "no_rope_layers": [1, 1, 1, 0] * 12, "tie_word_embeddings": False},
    },
    "nemotron-h-8b": HYBRID | shape(4096, 52, 32, 8, 21504, 131072, 8192)
    | {"mamba_num_heads": 128, "head_dim": 128,
       "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"},
    "nemotron-3-nano-30b-a3b": HYBRID | shape(2688, 52, 32, 2, 1856, 131072, 262144)
    | {"mamba_num_heads": 64, "head_dim": 128, "n_routed_experts": 128, "num_experts_per_tok": 6, "n_shared_experts": 1,
       "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "moe_latent_size": None,
       "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"},
    "jamba-1.5-mini": shape(4096, 32, 32, 8, 14336, 65536, 262144)
    | {"model_type": "jamba", "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2,
       "expert_layer_offset": 1, "num_experts": 16, "num_experts_per_tok": 2, "mamba_d_state": 16, "mamba_d_conv": 4,
       "mamba_expand": 2, "mamba_dt_rank": 256, "tie_word_embeddings": False},
    "decilm-7b": shape(4096, 32, 32, None, 14336, 32000, 8192)
    | {"model_type": "deci", "tie_word_embeddings": False,
       "num_key_value_heads_per_layer": [4] * 5 + [2] * 5 + [4] + [2] * 9 + [1] * 11 + [4]},
}  # fmt: skip
