"""Quantised checkpoints: every method as its own configuration class writes it; what is unknown is told by name."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hf_configs import CONFIGS

from rooflm import RooflmError
from rooflm.errors import RooflmWarning
from rooflm.estimate.memory import weight_bytes
from rooflm.readers.checkpoints.read import read_config
from rooflm.readers.schemes import parse_quant
from rooflm.scenario.mapping import Mapping

FP8_GROUP = {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8, "type": "float"}}
INT4_GROUP = {"weights": {"num_bits": 4, "type": "int", "group_size": 32}, "targets": ["Linear"]}
ATTENTION = ["lm_head", "re:.*self_attn.*"]
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "gptq 3 bits": ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "w3a16g128"),
    "gptq 4 bits, fine groups": ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "w4a16g32"),
    "hqq": ({"quant_method": "hqq", "quant_config": {
        "weight_quant_params": {"nbits": 4, "group_size": 64}}}, "w4a16g32"),  # a scale and a zero point
    "torchao text": ({"quant_method": "torchao", "quant_type": "int4_weight_only",
                      "quant_type_kwargs": {"group_size": 128}}, "int4"),
    "torchao nested": ({"quant_method": "torchao", "quant_type": {"default": {
        "_type": "Float8DynamicActivationFloat8WeightConfig", "_data": {}}}}, "fp8"),
    "torchao int8": ({"quant_method": "torchao", "quant_type": {
        "default": {"_type": "Int8WeightOnlyConfig"}}}, "int8-wo"),
    "quark fp8": ({"quant_method": "quark", "global_quant_config": {
        "weight": {"dtype": "fp8_e4m3"}, "input_tensors": {"dtype": "fp8_e4m3"}}, "exclude": ["lm_head"]}, "fp8"),
    "quark mxfp4": ({"quant_method": "quark", "global_quant_config": {
        "weight": {"dtype": "fp4", "group_size": 32}, "input_tensors": {"dtype": "fp4"}}}, "w4a4g32"),
    "aqlm 1x16": ({"quant_method": "aqlm", "in_group_size": 8, "nbits_per_codebook": 16, "num_codebooks": 1,
                   "out_group_size": 1}, "w2a16g4096"),
    "auto-round": ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "data_type": "int"}, "int4"),
    "intel/auto-round": ({"quant_method": "intel/auto-round", "bits": 2, "group_size": 64}, "w2a16g64"),
    "exl3": ({"quant_method": "exl3", "bits": 3.5, "head_bits": 6}, "w3.5a16"),
    "eetq": ({"quant_method": "eetq", "weights": "int8"}, "int8-wo"),
    "higgs": ({"quant_method": "higgs", "bits": 4, "group_size": 256}, "w4a16g256"),
    "vptq": ({"quant_method": "vptq", "config_for_layers": {"model.layers.0.mlp.up_proj": {
        "vector_lens": [-1, 8], "num_centroids": [-1, 65536], "num_res_centroids": [-1, 256]}}}, "w3a16g4096"),
    "spqr": ({"quant_method": "spqr", "bits": 3, "beta1": 16, "beta2": 16}, "w3a16g16"),
    "mlx names no method": ({"group_size": 64, "bits": 4}, "w4a16g32e4.5"),
    "bitnet": ({"quant_method": "bitnet"}, "w2a8"),
    "modelopt nested": ({"quant_method": "modelopt", "quantization": {
        "quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}, "fp8kv8"),
    "modelopt mixed": ({"quantization": {
        "quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": "FP8", "quantized_layers": {
        "backbone.layers.1.mixer.experts.0.up_proj": {"quant_algo": "NVFP4", "group_size": 16},
        "backbone.layers.1.mixer.shared_experts.up_proj": {"quant_algo": "FP8"},
        "backbone.layers.0.mixer.in_proj": {"quant_algo": "FP8"}}}}, "nvfp4-fp8-kv8"),
    "modelopt mixed, dense": ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
        "model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"},
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}}}, "nvfp4-ffn-fp8"),
    "quant_algo alone": ({"quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "nvfp4kv8"),
    "compressed-tensors w4a8": ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {
        "weights": {"num_bits": 4, "type": "int", "group_size": 128},
        "input_activations": {"num_bits": 8, "type": "int"}}}}, "w4a8g128"),
    "compressed-tensors with an fp8 cache": ({"quant_method": "compressed-tensors", "config_groups": {"g": FP8_GROUP},
                                              "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8kv8"),
    "attention stays wide": ({"quant_method": "compressed-tensors", "config_groups": {"g": FP8_GROUP},
                              "ignore": ATTENTION}, "fp8-ffn"),
    "attention wide, fp8 cache": ({"quant_method": "compressed-tensors", "config_groups": {"g": FP8_GROUP},
                                   "ignore": ATTENTION, "kv_cache_scheme": {"num_bits": 8}}, "fp8-ffn-kv8"),
    "gptq a scale a row, acts in order": ({"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": True},
                                          "w4a16g4096"),
    "gptqmodel leaves attention": ({"quant_method": "gptq", "bits": 4, "group_size": 128,
                                    "dynamic": {"-:.*attn.*": {}}}, "gptq-ffn"),
    "nf4": ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "w4a16g32"),
    "nf4, scales in 8 bits": ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                               "bnb_4bit_use_double_quant": True}, "int4"),
    "nf4, attention of no layer": ({"quant_method": "bitsandbytes", "load_in_4bit": True,
                                    "llm_int8_skip_modules": [f"layers.{i}.self_attn" for i in range(80)]},
                                   "w4a16g32-ffn"),
    "auto-round mxfp4": ({"quant_method": "auto-round", "bits": 4, "act_bits": 4, "group_size": 32,
                          "data_type": "mx_fp"}, "w4a4g32"),
    "auto-round nvfp4": ({"quant_method": "auto-round", "bits": 4, "act_bits": 4, "group_size": 16,
                          "data_type": "nv_fp"}, "nvfp4"),
    "auto-round fp8": ({"quant_method": "auto-round", "bits": 8, "act_bits": 8, "data_type": "fp"}, "fp8"),
    "groups: attention in fp8, the rest in 4 bits": ({"quant_method": "compressed-tensors", "config_groups": {
        "a": FP8_GROUP | {"targets": ["re:.*self_attn.*"]}, "b": INT4_GROUP}}, "w4a16g32-ffn-fp8"),
    "groups: experts in 4 bits, the rest in fp8": ({"quant_method": "compressed-tensors", "config_groups": {
        "a": FP8_GROUP | {"targets": ["Linear"]}, "b": INT4_GROUP | {"targets": ["re:.*mlp.experts.*"]}}},
        "w4a16g32-fp8"),
    "groups: the last products in 8 bits": ({"quant_method": "compressed-tensors", "config_groups": {
        "a": FP8_GROUP | {"targets": ["re:.*down_proj"]}, "b": INT4_GROUP}}, "w4a16g32"),
    "quark: attention in fp8": ({"quant_method": "quark", "global_quant_config": {
        "weight": {"dtype": "fp4", "group_size": 32}, "input_tensors": {"dtype": "fp4"}}, "layer_quant_config": {
        "*self_attn*": {"weight": {"dtype": "fp8_e4m3"}, "input_tensors": {"dtype": "fp8_e4m3"}}}}, "w4a4g32-ffn-fp8"),
    "torchao by module": ({"quant_method": "torchao", "quant_type": {"default": {"_type": "ModuleFqnToConfig",
        "_data": {"module_fqn_to_config": {"_default": {"_type": "Int8WeightOnlyConfig"}, "lm_head": None}}}}},
        "int8-wo"),
    "fp8, small modules in 16 bits": ({"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert":
        [f"layers.{i}.{m}" for i in range(80) for m in ("linear_attn.conv1d", "linear_attn.in_proj_ba", "mlp.gate",
                                                        "self_attn.o_proj", "mlp.shared_expert_gate")]}, "fp8-block"),
    "fbgemm": ({"quant_method": "fbgemm_fp8", "modules_to_not_convert":
        [f"model.layers.{i}.self_attn.{m}_proj" for i in range(80) for m in "qkvo"]}, "fp8-ffn"),
}  # fmt: skip


def written(folder: Path, base: str, quantised: dict[str, Any], beside: dict[str, Any] | None = None) -> Path:
    config = {k: v for k, v in CONFIGS[base].items() if k != "quantization_config"}
    (folder / "config.json").write_text(json.dumps(config | ({"quantization_config": quantised} if quantised else {})))
    if beside is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(beside))
    return folder


@pytest.mark.parametrize("name", CASES)
def test_every_method_keeps_its_widths(name: str, tmp_path: Path) -> None:
    quantised, expected = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_config(written(tmp_path, "llama-2-70b", quantised)).quant
    assert found == expected
    parse_quant(found)


def test_an_unknown_method_is_told_by_name(tmp_path: Path) -> None:
    with pytest.warns(RooflmWarning, match="quantization_config names 'sorcery'.*read as 16 bits; give --quant"):
        assert read_config(written(tmp_path, "llama-2-70b", {"quant_method": "sorcery"})).quant == ""


def test_modelopts_file_beside_the_config_is_read(tmp_path: Path) -> None:
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    assert read_config(written(tmp_path, "llama-2-70b", {}, beside)).quant == "fp8kv8"


def test_experts_alone_are_narrow_where_all_else_is_ignored(tmp_path: Path) -> None:
    """As Kimi-K2-Thinking's ignore list has it; two thirds of the rest's bytes stay."""
    ignore = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]
    quantised = {"quant_method": "compressed-tensors", "config_groups": {"g": INT4_GROUP}, "ignore": ignore}
    model = read_config(written(tmp_path, "deepseek-v3", quantised))
    assert model.quant == "w4a16g32-experts"
    wide, narrow, all_narrow = (
        float(weight_bytes(model, Mapping(), parse_quant(q))) for q in ("bf16", model.quant, "w4a16g32")
    )
    experts = sum(b.count * 3 * 7168 * 2048 * 256 for b in model.blocks if hasattr(b.ffn, "experts"))
    assert narrow == pytest.approx(wide - experts * (2 - 4.5 / 8), rel=1e-12)
    assert narrow > all_narrow


@pytest.mark.parametrize(
    ("name", "says"),
    [("w0a16", "weight width of 0 bits, but it must be 1 to 16"), ("w4a12", "activation width of 12 bits"),
     ("w4a16g0", "groups of 0 values"), ("int4-expert", "unknown quantisation 'int4-expert'")],
)  # fmt: skip
def test_wrong_names_are_told(name: str, says: str) -> None:
    with pytest.raises(RooflmError, match=says):
        parse_quant(name)
