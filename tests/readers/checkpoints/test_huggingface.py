"""config.json to Model: published configs give the catalogue's rows; damaged ones give one sentence, never a crash."""

from __future__ import annotations

import copy
import json
import random
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hf_configs import CONFIGS, llama, shape

from rooflm.catalogue.model import INF, MLA, MLP, Attention, LinearAttention, Model, MoE
from rooflm.errors import RooflmError, RooflmWarning
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.checkpoints.read import read_config

HEARSAY = {"name": "", "source": "", "date": "", "params_kind": "", "published_params": 0, "published_active": 0}


def read(config: Any, folder: Path) -> Model:
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return read_config(path)


@pytest.mark.parametrize("name", CONFIGS)
def test_published_config_gives_the_catalogue_row(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if "vision_config" in CONFIGS[name] else "error", RooflmWarning)
        found = read(CONFIGS[name], tmp_path)
    row = load_model(name)
    assert row.family in ("", found.family)  # said where some engine has code of its own for it
    assert replace(found, family="", **HEARSAY) == replace(row, family="", **HEARSAY)


def test_a_folder_and_load_model_read_it_too(tmp_path: Path) -> None:
    (tmp_path / "my-model").mkdir()
    read(CONFIGS["qwen3-8b"], tmp_path / "my-model")
    assert read_config(tmp_path / "my-model").name == "my-model"
    assert load_model(tmp_path / "my-model") == load_model(str(tmp_path / "my-model" / "config.json"))


def test_unknown_type_is_read_as_llama_with_a_warning(tmp_path: Path) -> None:
    config = llama(model_type="brandnew") | shape(4096, 32, 32, 32, 11008, 32000, 4096)
    with pytest.warns(RooflmWarning, match="unknown model_type 'brandnew', read as a Llama-like decoder"):
        found = read(config, tmp_path)
    assert found.blocks == load_model("llama-2-7b").blocks


def test_unknown_type_keeps_experts_latent_attention_and_windows(tmp_path: Path) -> None:
    base = llama(model_type="brandnew") | shape(4096, 32, 32, 8, 14336, 32000, 32768)
    cases: list[tuple[dict[str, Any], type, type]] = [
        ({"num_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 1024}, Attention, MoE),
        ({"num_local_experts": 8, "num_experts_per_tok": 2}, Attention, MoE),
        ({"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 0,
          "moe_intermediate_size": 1024}, Attention, MoE),
        ({"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}, MLA, MLP),
        ({"sliding_window": 1024}, Attention, MLP),
    ]  # fmt: skip
    for more, mixer, ffn in cases:
        with pytest.warns(RooflmWarning):
            (block,) = read(base | more, tmp_path).blocks
        assert isinstance(block.mixer, mixer) and isinstance(block.ffn, ffn), more
        if "sliding_window" in more:
            assert isinstance(block.mixer, Attention) and block.mixer.window == 1024
    mixed = base | {"sliding_window": 1024, "layer_types": ["sliding_attention"] * 24 + ["full_attention"] * 8}
    with pytest.warns(RooflmWarning):
        local, full = read(mixed, tmp_path).blocks
    assert (local.count, full.count) == (24, 8)
    assert isinstance(full.mixer, Attention) and full.mixer.window == INF


def test_window_only_where_it_is_used(tmp_path: Path) -> None:
    qwen = CONFIGS["qwen2.5-7b"]
    (off,) = read(qwen, tmp_path).blocks
    assert isinstance(off.mixer, Attention) and off.mixer.window == INF
    on = read(qwen | {"use_sliding_window": True, "max_window_layers": 20, "sliding_window": 4096}, tmp_path)
    assert [(b.count, b.mixer.window) for b in on.blocks if isinstance(b.mixer, Attention)] == [(20, INF), (8, 4096)]


def test_a_layer_that_shares_an_indexer_has_none_of_its_own(tmp_path: Path) -> None:
    config = CONFIGS["glm-5"] | {"indexer_types": ["full"] * 3 + ["shared", "full", "shared"] * 25}
    dense, shared, own = read(config, tmp_path).blocks
    assert [b.count for b in (dense, shared, own)] == [3, 50, 25]
    assert isinstance(shared.mixer, MLA) and isinstance(own.mixer, MLA)
    assert (shared.mixer.index_topk, shared.mixer.index_heads) == (2048, 0)
    assert (own.mixer.index_topk, own.mixer.index_heads) == (2048, 32)


def test_the_newer_names_of_layers_are_read(tmp_path: Path) -> None:
    sparse = CONFIGS["deepseek-v3.2"] | {"layer_types": ["indexed_attention"] * 61}
    assert read(sparse, tmp_path).blocks == load_model("deepseek-v3.2").blocks
    names = {"M": "linear_attention", "E": "moe", "*": "full_attention"}
    nano = dict(CONFIGS["nemotron-3-nano-30b-a3b"])
    pattern = nano.pop("hybrid_override_pattern")
    del nano["num_hidden_layers"]
    listed = read(nano | {"layers_block_type": [names[x] for x in pattern]}, tmp_path)
    assert listed.blocks == load_model("nemotron-3-nano-30b-a3b").blocks


def test_hybrid_of_recurrent_and_attention_layers(tmp_path: Path) -> None:
    kinds = {type(b.mixer) for b in read(CONFIGS["jamba-1.5-mini"], tmp_path).blocks}
    assert kinds == {LinearAttention, Attention}


@pytest.mark.parametrize(
    ("quantisation", "expected"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "gptq", "bits": 8}, "int8-wo"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "w4a16g32"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "compressed-tensors", "config_groups": {
            "g": {"weights": {"num_bits": 4, "type": "int"}}}}, "int4"),
        ({"quant_method": "compressed-tensors", "config_groups": {
            "g": {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}}}, "fp8"),
        ({}, ""),
    ],
)  # fmt: skip
def test_quantisation_is_kept(quantisation: dict[str, Any], expected: str, tmp_path: Path) -> None:
    assert read(CONFIGS["llama-2-70b"] | {"quantization_config": quantisation}, tmp_path).quant == expected


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden_size": None, "vocab_size": None}, "missing fields hidden_size, vocab_size"),
        ({"intermediate_size": None}, "missing field intermediate_size"),
        ({"num_attention_heads": "32"}, "num_attention_heads is '32', but it must be a whole number of at least 1"),
        ({"num_hidden_layers": -3}, "num_hidden_layers is -3, but it must be a whole number of at least 1"),
        ({"hidden_size": 0}, "hidden_size is 0, but it must be a whole number of at least 1"),
        ({"vocab_size": 1e30}, "vocab_size is 1e+30, but it must be a whole number of at most 1,099,511,627,776"),
        ({"sliding_window": -4096}, "sliding_window is -4096, but it must be a whole number of at least 1"),
        ({"vocab_size": float("nan")}, "vocab_size is nan, but it must be a whole number of at least 1"),
        ({"hidden_size": 4097}, "num_attention_heads is 64, but it must divide hidden_size 4097 without a head_dim"),
        ({"num_key_value_heads": 7}, "kv_heads 7"),
        ({"attention_bias": "no"}, "attention_bias is 'no', but it must be true or false"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, but it must be at most 10000"),
        ({"model_type": None}, "model_type is missing"),
        ({"quantization_config": 5}, "quantization_config is 5, but it must be a JSON object"),
        ({"model_type": "t5"}, "model_type 't5' cannot be read: it is an encoder with a decoder, not a decoder-only"),
        ({"model_type": "zamba9", "mamba_d_state": 64}, "mamba_d_state says that its layers are not those of a plain"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types has 3 items, but there are 80 layers"),
        ({"layer_types": ["odd_attention"] * 80}, "layer_types names 'odd_attention', a kind of layer that is not"),
        ({"text_config": 7}, "text_config is 7, but it must be a JSON object"),
        ({"num_local_experts": 8}, "missing field num_experts_per_tok"),
        ({"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "sliding_window": 9,
          "layer_types": ["sliding_attention"] * 80}, "latent attention with a window, which is not modelled"),
        ({"layer_types": ["indexed_attention"] * 80}, "layer_types names 'indexed_attention', a kind of layer that"),
        ({"kv_lora_rank": 512}, "missing fields qk_nope_head_dim, qk_rope_head_dim, v_head_dim"),
    ],
)  # fmt: skip
def test_damaged_config_is_one_sentence(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    config = {k: v for k, v in (CONFIGS["llama-2-70b"] | change).items() if v is not None}
    with pytest.raises(RooflmError) as error:
        read(config, tmp_path)
    assert sentence in str(error.value) and "config.json" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"a"', "[" * 100_000, "\x00", "{'a': 1}", "1" * 5000])
def test_what_is_no_config_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(RooflmError, match=r"config\.json"):
        read(text, tmp_path)


def test_unreadable_paths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00{")
    for path in (tmp_path, tmp_path / "absent.json", tmp_path / "absent"):
        with pytest.raises(RooflmError):
            read_config(path)


DAMAGE: list[Any] = [
    None, 0, -1, -(2**70), 2**70, 1, 3, 7, 0.5, 4096.0, 1e308, float("nan"), float("inf"), "", "4096", "abc", True,
    False, [], [1, 2], ["full_attention"], [None], {}, {"a": 1}, [[[]]], "é\u0000", 10**9,
]  # fmt: skip


def damage(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(DAMAGE))


def damaged(rng: random.Random) -> dict[str, Any]:
    """A published config with one to four fields damaged, removed or renamed, at any depth."""
    config = copy.deepcopy(CONFIGS[rng.choice(list(CONFIGS))])
    for _ in range(rng.randint(1, 4)):
        holders = [config, *(v for v in config.values() if isinstance(v, dict) and v)]
        holder = rng.choice(holders)
        key = rng.choice(list(holder))
        action = rng.random()
        if action < 0.15:
            del holder[key]
        elif action < 0.25:
            holder[rng.choice(list(CONFIGS["deepseek-v3"]))] = damage(rng)
        elif isinstance(holder[key], list) and action < 0.6:
            holder[key] = rng.choice([holder[key][:-1], holder[key] * 2, [damage(rng), *holder[key][1:]]])
        else:
            holder[key] = damage(rng)
        if not config:
            break
    return config


@pytest.mark.parametrize("seed", range(20))
def test_fuzzed_configs_give_a_model_or_one_sentence(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    refused = 0
    for _ in range(40):
        config = damaged(rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RooflmWarning)
            try:
                found = read(config, tmp_path)
            except RooflmError as error:
                assert "\n" not in str(error) and len(str(error)) < 500
                refused += 1
            else:
                assert found.hidden >= 1 and found.blocks
    assert refused >= 5, "the damage should show"


@pytest.mark.parametrize("seed", range(5))
def test_damaged_bytes_give_a_model_or_one_sentence(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        raw = bytearray(json.dumps(CONFIGS[rng.choice(list(CONFIGS))]).encode())
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.randint(0, 3)] = bytes(rng.randrange(256) for _ in range(rng.randint(0, 3)))
        (tmp_path / "config.json").write_bytes(raw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RooflmWarning)
            try:
                read_config(tmp_path)
            except RooflmError as error:
                assert "\n" not in str(error)
