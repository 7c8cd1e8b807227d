"""What each Hugging Face `model_type` calls things and what it fixes: one row a family, read by
`rooflm.checkpoints.read`.

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
    get the window when there is no `layer_types`: "never", "all", "even", "period" (all but each n-th), "after" (all
    but the first of each n), "late" (from max_window_layers on) or "chunked". `tied`: when the config does not say.
    `extra`: named corrections. `causal`: False where a token sees all others; such a model embeds texts. `layers`: the
    builder of layers that are not one mixer and one feed-forward (`unusual.BUILDERS`). `note`: what of its physics is
    approximate, told with each answer.
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
    causal: bool = True
    layers: str = ""
    note: str = ""


STANDARD: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim",),
    "width": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "dff"),
    "vocab": ("vocab_size",),
    "context": ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length", "model_max_length"),
    "window": ("sliding_window", "sliding_window_size", "attention_chunk_size"),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    "top_k": ("num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_topk", "moe_k", "num_experts_per_token",
              "top_k_experts"),
    "expert_width": ("moe_intermediate_size",),
    "shared_width": ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
                     "shared_intermediate_size", "share_expert_dim"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "first_dense": ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"),
    "mamba_heads": ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads"),
    "mamba_head": ("mamba_head_dim", "mamba_d_head", "mamba_headdim", "head_dim"),
    "mamba_groups": ("n_groups", "mamba_n_groups", "mamba_ngroups"),
    "mamba_state": ("ssm_state_size", "mamba_d_state", "state_size"),
    "mamba_conv": ("conv_kernel", "mamba_d_conv"),
    "mamba_expand": ("mamba_expand", "expand"),
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
_MAMBA = Family(norms=1, rope=False, window="never", layers="mamba")
_OLMO_NORMS = ("no_norm_weights",)
_LFM2 = Family(qk_norm=True, tied=True, window="never", extra=("adjusted_width",))
_PER_LAYER = "its embeddings a layer, and what mixes streams of the residual, are counted as parameters and not timed"
_STREAMS = ("the streams of its residual and what mixes them are counted as parameters, and neither timed nor kept by "
            "training; kernels over compressed entries are timed as those of latent attention")  # fmt: skip
_GEMMA4 = Family(norms=4, qk_norm=True, tied=True, layers="gemma4", defaults={"max_position_embeddings": 131072})
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
    "deepseek_v4": Family(window="never", layers="deepseek_v4", note=_STREAMS),
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
    "mimo_v2_flash": Family(window="never", router_bias=True, extra=("window_sinks",)),
    "minimax_m3_vl": Family(qk_norm=True, router_bias=True, window="never",
                            names={"expert_width": "intermediate_size", "width": "dense_intermediate_size"}),
    "minimax": Family(window="never"),
    "kimi_linear": Family(window="never", router_bias=True),
    "bailing_hybrid": Family(window="never", router_bias=True, extra=("full_gates",)),
    "olmo_hybrid": Family(qk_norm=True, window="never", extra=("wide_qk_norm",)),
    "bamba": Family(window="never"),
    "granitemoehybrid": Family(rope=False, window="never", names={"width": "shared_intermediate_size",
                               "expert_width": "intermediate_size", "shared_width": "shared_intermediate_size"}),
    "falcon_h1": Family(window="never", layers="falcon_h1"),
    "zamba2": Family(window="never", tied=True, layers="zamba2",
                     names={"head_dim": "attention_head_dim"}),
    "longcat_flash": Family(window="never", layers="longcat", names={"width": "ffn_hidden_size",
                            "expert_width": "expert_ffn_hidden_size"}),
    "mamba": _MAMBA._replace(tied=True),
    "falcon_mamba": _MAMBA._replace(tied=True),
    "mamba2": _MAMBA,
    "lfm2": _LFM2,
    "lfm2_moe": Family(qk_norm=True, tied=True, window="never", router_bias="use_expert_bias?"),
    "lfm3": Family(qk_norm=True, tied=True, norms=4, extra=("head_gates",)),
    "gemma3n": _GEMMA3._replace(layers="gemma3n", note=_PER_LAYER),
    "gemma4": _GEMMA4,
    "gemma4_unified": _GEMMA4,
    "hunyuan_v1_dense": Family(qk_norm=True, window="never"),
    "hunyuan_v1_moe": Family(qk_norm=True, window="never", defaults={"num_shared_expert": 1}),
    "hy_v3": Family(qk_norm=True, window="never", router_bias=True),
    "afmoe": Family(qk_norm=True, gate=True, norms=4, router_bias=True, window="never"),
    "apertus": Family(gated=False, qk_norm=True, window="never"),
    "arcee": Family(gated=False, window="never"),
    "jais2": Family(gated=False, norm="layer", window="never"),
    "nanochat": Family(gated=False, window="never", extra=_OLMO_NORMS),
    "persimmon": Family(bias=True, ffn_bias=True, gated=False, norm="layer", qk_norm="qk_layernorm?", window="never"),
    "bitnet": Family(window="never", note="its weights are ternary: give --quant w2a8 unless the config says so"),
    "olmo": Family(window="never", extra=_OLMO_NORMS),
    "olmo3": Family(qk_norm=True, window="never", extra=("wide_qk_norm",)),
    "exaone4": Family(qk_norm=True, window="never"),
    "stablelm": Family(bias="use_qkv_bias", out_bias=False, norm="layer", parallel="use_parallel_residual",
                       window="never"),
    "helium": Family(bias="attention_bias", window="never"),
    "internlm3": Family(bias="qkv_bias", out_bias="bias", ffn_bias="bias", window="never"),
    "minicpm": Family(window="never"),
    "minicpm3": Family(window="never", tied=True),
    "ministral3": Family(bias=False, ffn_bias=False),
    "cwm": Family(window="never"),
    "solar_open": Family(window="never", router_bias=True),
    "doge": Family(qk_norm=True, window="never"),
    "codegen": _GPT._replace(bias=False, head_bias=True, norms=1, parallel=True, tied=False),
    "ctrl": _GPT._replace(rope=False, head_bias=True),
    "gpt_neo": _GPT._replace(bias=False, out_bias=True, rope=False, position_offset=0,
                             names={"window": "window_size"}),
    "gpt_neox_japanese": _GPT._replace(bias=False, ffn_bias=False),
    "openai-gpt": _GPT._replace(rope=False, position_offset=0, extra=("no_final_norm",)),
    "biogpt": _GPT._replace(rope=False, position_offset=2),
    "xglm": _GPT._replace(rope=False),
    "jamba": Family(rope=False, bias=False, window="never", extra=("jamba",)),
    "dbrx": Family(
        names={"kv_heads": "attn_config.kv_n_heads", "experts": "ffn_config.moe_num_experts",
               "top_k": "ffn_config.moe_top_k", "expert_width": "ffn_config.ffn_hidden_size"},
        bias=False, norm="layer-no-bias", window="never",
    ),
}  # fmt: skip
"""model_type -> its row. A `_text` ending is dropped before the look-up."""

_BERT = Family(bias=True, ffn_bias=True, gated=False, norm="layer", rope=False, position_offset=0, window="never",
               extra=("no_final_norm", "embedding_norm", "kinds_of_text", "pooler"), causal=False)  # fmt: skip
FAMILIES |= {
    "bert": _BERT,
    "roberta": _BERT._replace(extra=(*_BERT.extra, "padded_positions")),
    "distilbert": _BERT._replace(extra=("no_final_norm", "embedding_norm"), names={
        "hidden": "dim", "layers": "n_layers", "heads": "n_heads", "width": "hidden_dim"}),
    "mpnet": _BERT._replace(extra=("no_final_norm", "embedding_norm", "pooler", "padded_positions", "shared_biases")),
    "nomic_bert": _BERT._replace(bias="qkv_proj_bias", ffn_bias="mlp_fc1_bias", gated=True, rope=True, width_factor=4,
                                 position_offset=None, extra=("no_final_norm", "embedding_norm", "kinds_of_text")),
    "new": _BERT._replace(out_bias=True, ffn_bias=False, gated=True, rope=True, position_offset=None,
                          extra=("no_final_norm", "embedding_norm", "kinds_of_text", "last_bias")),
    "modernbert": Family(bias="attention_bias", norm="layer-no-bias", window="after", causal=False,
                         names={"window": "local_attention"}, extra=("one_norm_less", "plain_embedding_norm"),
                         defaults={"global_attn_every_n_layers": 3, "local_attention": 128}),
    "eurobert": Family(window="never", causal=False),
    "llama_bidirec": Family(window="never", causal=False),
}  # fmt: skip
"""Encoders that embed texts. Sources: transformers, modeling_bert.py, modeling_xlm_roberta.py, modeling_distilbert.py,
modeling_mpnet.py, modeling_modernbert.py, modeling_eurobert.py; nomic-ai/nomic-bert-2048 and Alibaba-NLP/new-impl."""

FAMILIES |= {
    same: FAMILIES[as_]
    for same, as_ in {
        "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3", "qwen3_vl_moe": "qwen3_moe",
        "olmoe": "olmo2", "granitemoe": "granite", "granitemoeshared": "granite", "glm4v_moe": "glm4_moe",
        "glm4_moe_lite": "deepseek_v3", "ernie4_5": "llama", "ernie4_5_moe": "llama", "qwen3_5_vl": "qwen3_5",
        "hunyuan": "hunyuan_v1_moe", "glm4v": "glm4", "glm_ocr": "glm4", "paddleocr_vl": "llama",
        "minimax_m1": "minimax", "axk1": "deepseek_v3", "aria": "llama", "youtu": "minicpm3", "fuyu": "persimmon",
        "mimo_v2": "mimo_v2_flash", "minimax_m3": "minimax_m3_vl", "phi4_multimodal": "phi3", "qwen2_5_omni": "qwen2",
        "qwen3_omni_moe": "qwen3_moe", "granite_swa": "granite", "gpt-sw3": "gpt2", "yi": "llama",
        "baichuan": "llama", "xlm-roberta": "roberta", "camembert": "roberta",
    }.items()
}  # fmt: skip

_ENCODER = "it is an encoder, which embeds its input and generates no text, of a kind that is not modelled"
_PAIR = "it is an encoder with a decoder, not a decoder-only language model"
_OWN = "its layers are not modelled"

REFUSED = {
    "minimax_text_01": "its lightning attention is not modelled",
    "gemma4_assistant": "it is a draft model that reads another model's cache",
    **dict.fromkeys(("xlm-roberta-xl", "electra", "deberta", "deberta-v2", "albert", "ernie", "big_bird",
                     "data2vec-text", "megatron-bert", "mobilebert", "rembert", "roberta-prelayernorm", "roc_bert",
                     "roformer", "xmod", "xlm", "flaubert", "funnel", "longformer", "nystromformer", "squeezebert",
                     "esm", "dpr", "luke", "layoutlm", "layoutlmv3", "bert-generation", "clip",
                     "clip_vision_model", "clip_text_model", "siglip", "siglip2", "siglip_vision_model", "vit",
                     "dinov2", "dinov3_vit", "swin", "beit", "deit", "convnext", "wav2vec2", "wav2vec2-bert", "wavlm",
                     "hubert", "data2vec-audio", "unispeech", "sew", "clap", "align", "altclip",
                     "blip_vision_model"), _ENCODER),
    **dict.fromkeys(("t5", "mt5", "umt5", "t5gemma", "t5gemma2", "longt5", "switch_transformers", "bart", "mbart",
                     "marian", "m2m_100", "pegasus", "pegasus_x", "bigbird_pegasus", "blenderbot", "blenderbot-small",
                     "fsmt", "led", "mvp", "plbart", "prophetnet", "nllb-moe", "encoder-decoder",
                     "vision-encoder-decoder", "speech-encoder-decoder", "trocr", "whisper", "speech_to_text",
                     "moonshine", "pix2struct", "udop", "florence2", "seamless_m4t", "speecht5"), _PAIR),
    **dict.fromkeys(("rwkv", "rwkv5", "rwkv6", "rwkv7", "xlstm", "recurrent_gemma", "jetmoe", "blt", "cpmant",
                     "xlnet", "transfo-xl", "reformer", "zamba", "zaya", "hrm_text", "moshi", "musicgen",
                     "musicgen_melody", "git", "mllama", "mllama_text_model", "emu3", "nemotron-nas", "inkling",
                     "inkling2"), _OWN),
}  # fmt: skip
"""model_type -> why a config of that type is not read."""
