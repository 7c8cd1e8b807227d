"""What each Hugging Face `model_type` calls things and what it fixes: one row a family, read by
`rooflm.catalogue.huggingface.read`.

A trait is either fixed (True, False) or the name of the config's own field: "field" (absent: false), "field?" (absent:
true), or "field!", the opposite of a field (absent: true). Names with a dot are looked up inside a nested object.
Source of every row: the configuration and modelling code of Hugging Face transformers
(https://github.com/huggingface/transformers) or, where a model brings its own code, of that model's page.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Trait = bool | str


class Family(NamedTuple):
    """One family. `names`: our name -> the config's, where it is not the usual one (`STANDARD`).

    `defaults`: fields that the released configs leave out. `width_factor`: feed-forward width over hidden where the
    config has no width. `out_bias` None: as `bias`. `norms`: norm weights a layer; `window`: the rule by which layers
    get the window when there is no `layer_types`: "never", "all", "even", "period" (all but each n-th), "late"
    (from max_window_layers on) or "chunked". `tied`: when the config does not say. `extra`: named corrections.
    """

    names: dict[str, str] = {}  # noqa: RUF012 - never changed
    defaults: dict[str, Any] = {}  # noqa: RUF012 - never changed
    width_factor: int = 0
    bias: Trait = "attention_bias"
    out_bias: Trait | None = None
    ffn_bias: Trait = "mlp_bias"
    head_bias: Trait = False
    gated: bool = True
    norm: str = "rms"
    norms: int = 2
    parallel: Trait = False
    qk_norm: Trait = False
    gate: Trait = False
    rope: bool = True
    position_offset: int | None = None
    window: str = "all"
    tied: bool = False
    router_bias: Trait = False
    shared_gate: bool = False
    extra: tuple[str, ...] = ()


STANDARD: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim",),
    "width": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
    "context": ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length"),
    "window": ("sliding_window", "attention_chunk_size"),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    "top_k": ("num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_topk", "moe_k", "num_experts_per_token"),
    "expert_width": ("moe_intermediate_size",),
    "shared_width": ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
                     "shared_intermediate_size", "share_expert_dim"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
}  # fmt: skip
"""Our names -> what configs call them, the usual one first. `head_dim` may be null, then it is hidden / heads."""

_GPT = Family(width_factor=4, bias=True, ffn_bias=True, gated=False, norm="layer", tied=True, window="never")
_GEMMA = Family(tied=True, window="never", defaults={"head_dim": 256, "max_position_embeddings": 8192})
_QWEN2 = Family(bias=True, out_bias=False, window="late")
_QWEN3 = Family(qk_norm=True, window="late")
_NEXT = _QWEN3._replace(gate="attn_output_gate?", shared_gate=True, window="never",
                        defaults={"full_attention_interval": 4, "linear_conv_kernel_dim": 4})  # fmt: skip
_DEEPSEEK = Family(window="never")
_GLM = Family(out_bias=False, window="never")
_GEMMA3 = _GEMMA._replace(
    norms=4, qk_norm=True, window="period",
    defaults={"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208,
              "max_position_embeddings": 131072, "sliding_window": 4096, "sliding_window_pattern": 6},
)  # fmt: skip
_LLAMA4 = Family(
    names={"expert_width": "intermediate_size", "width": "intermediate_size_mlp"}, window="chunked", ffn_bias=False,
    defaults={"attention_chunk_size": 8192, "max_position_embeddings": 131072}, extra=("shared_as_wide",),
)  # fmt: skip
_FALCON = _GPT._replace(bias="bias", ffn_bias="bias", parallel="parallel_attn?",
                        defaults={"max_position_embeddings": 2048}, extra=("falcon",))  # fmt: skip

FAMILIES: dict[str, Family] = {
    "llama": Family(window="never"),
    "mistral": Family(bias=False, ffn_bias=False),
    "ministral": Family(bias=False, ffn_bias=False),
    "mixtral": Family(bias=False, ffn_bias=False),
    "smollm3": Family(window="late"),
    "seed_oss": Family(bias="attention_bias?", out_bias="attention_out_bias", window="never"),
    "granite": Family(window="never"),
    "internlm2": Family(bias="bias", window="never"),
    "deci": Family(window="never"),
    "nemotron": Family(gated=False, norm="layer", window="never"),
    "olmo2": Family(qk_norm=True, window="never", extra=("wide_qk_norm",)),
    "qwen2": _QWEN2,
    "qwen2_moe": _QWEN2._replace(shared_gate=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_next": _NEXT,
    "qwen3_5": _NEXT,
    "qwen3_5_moe": _NEXT,
    "gemma": _GEMMA,
    "gemma2": _GEMMA._replace(norms=4, window="even"),
    "gemma3": _GEMMA3,
    "phi": Family(bias=True, ffn_bias=True, head_bias=True, gated=False, norm="layer", norms=1, parallel=True,
                  window="never"),
    "phi3": Family(bias=False, ffn_bias=False),
    "phimoe": Family(norm="layer", head_bias="lm_head_bias"),
    "gpt2": _GPT._replace(rope=False, position_offset=0),
    "gpt_bigcode": _GPT._replace(rope=False, position_offset=0, extra=("multi_query",)),
    "gptj": _GPT._replace(bias=False, head_bias=True, norms=1, parallel=True, tied=False),
    "gpt_neox": _GPT._replace(bias="attention_bias?", parallel="use_parallel_residual?", tied=False),
    "opt": _GPT._replace(rope=False, position_offset=2, extra=("opt",)),
    "bloom": _GPT._replace(rope=False, extra=("embedding_norm",)),
    "mpt": _GPT._replace(rope=False, bias="no_bias!", ffn_bias="no_bias!", extra=("mpt",)),
    "falcon": _FALCON,
    "refinedweb": _FALCON,
    "refinedwebmodel": _FALCON,
    "starcoder2": Family(bias="use_bias?", ffn_bias="use_bias?", gated=False, norm="layer", tied=True),
    "cohere": Family(norm="layer-no-bias", norms=1, parallel=True, qk_norm="use_qk_norm", tied=True, window="never",
                     extra=("wide_qk_norm",)),
    "cohere2": Family(norm="layer-no-bias", norms=1, parallel=True, tied=True, window="period", ffn_bias=False,
                      defaults={"sliding_window_pattern": 4}, extra=("full_without_rope",)),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK._replace(router_bias=True),
    "deepseek_v32": _DEEPSEEK._replace(router_bias=True),
    "kimi_k2": _DEEPSEEK._replace(router_bias=True),
    "glm_moe_dsa": _DEEPSEEK._replace(router_bias=True),
    "gpt_oss": Family(bias="attention_bias?", ffn_bias=False, window="even", extra=("sinks", "expert_bias")),
    "glm": _GLM,
    "glm4": _GLM._replace(norms=4),
    "glm4_moe": _GLM._replace(qk_norm="use_qk_norm", router_bias=True),
    "chatglm": Family(
        names={"kv_heads": "multi_query_group_num", "vocab": "padded_vocab_size", "head_dim": "kv_channels"},
        bias="add_qkv_bias", out_bias="add_bias_linear", ffn_bias="add_bias_linear", window="never",
    ),
    "minimax_m2": Family(qk_norm="use_qk_norm?", router_bias="use_routing_bias?", extra=("wide_qk_norm",)),
    "llama4": _LLAMA4,
    "nemotron_h": Family(norms=1, gated=False, rope=False, router_bias=True, window="never"),
    "jamba": Family(rope=False, bias=False, window="never", extra=("jamba",)),
    "dbrx": Family(
        names={"kv_heads": "attn_config.kv_n_heads", "experts": "ffn_config.moe_num_experts",
               "top_k": "ffn_config.moe_top_k", "expert_width": "ffn_config.ffn_hidden_size"},
        bias=False, norm="layer-no-bias", window="never",
    ),
}  # fmt: skip
"""model_type -> its row. A `_text` ending is dropped before the look-up."""

FAMILIES |= {
    same: FAMILIES[as_]
    for same, as_ in {
        "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3", "qwen3_vl_moe": "qwen3_moe", "olmo3": "olmo2",
        "olmoe": "olmo2", "granitemoe": "granite", "granitemoeshared": "granite", "glm4v_moe": "glm4_moe",
        "glm4_moe_lite": "deepseek_v3", "ernie4_5": "llama", "ernie4_5_moe": "llama",
    }.items()
}  # fmt: skip

REFUSED = {
    "deepseek_v4": "its compressed attention is not modelled",
    "minimax_m1": "its lightning attention is not modelled",
    "longcat_flash": "its layers of two attentions and a shortcut are not modelled",
    "minimax_text_01": "its lightning attention is not modelled",
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "distilbert", "t5", "mt5", "bart", "whisper", "vit", "clip"),
                    "it is not a decoder-only language model"),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), "a model without attention is not read"),
}  # fmt: skip
"""model_type -> why a config of that type is not read."""
