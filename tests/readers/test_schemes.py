"""Schemes of quantisation: what differs between them is a field of their rows, whatever suffix a name has."""

from dataclasses import fields

import pytest

from rooflm.catalogue.quant import PARTS, Quant
from rooflm.estimate.memory import weight_bytes
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.schemes import ELSEWHERE, PRESETS, as_run, in_blocks, parse_quant, without_cache
from rooflm.scenario.mapping import Mapping

WIDTHS = ("weight_bits", "act_bits", "kv_bits", "scale_bits", "table_bits", "rest_bits")


@pytest.mark.parametrize("name", PRESETS)
def test_a_row_is_sensible(name: str) -> None:
    q = PRESETS[name]
    assert all(0 <= getattr(q, width) <= 32 for width in WIDTHS) and q.weight_bits >= 1
    assert q.kind in ("float", "int", "any") and q.half in ("", "bf16", "fp16") and set(q.wide) <= set(PARTS)
    assert not q.in_files or q.in_files in PRESETS
    assert parse_quant(name) == q


@pytest.mark.parametrize("name", PRESETS)
def test_a_width_of_the_cache_changes_nothing_else(name: str) -> None:
    narrow = parse_quant(f"{name}kv8")
    same = [f.name for f in fields(Quant) if f.name not in ("name", "kv_bits")]
    assert narrow.kv_bits == 8 and [getattr(narrow, n) for n in same] == [getattr(PRESETS[name], n) for n in same]
    assert without_cache(narrow.name) == name and parse_quant(narrow.name) == narrow


def test_what_an_engine_of_its_own_files_reads_keeps_the_cache() -> None:
    peaks = {"bf16": 1.0}
    assert as_run(parse_quant("mxfp4kv8"), peaks, own_files="8.5").kv_bits == 8
    assert as_run(parse_quant("mxfp4kv8"), peaks, own_files="8.5").rest_bits == 8.5
    assert as_run(parse_quant("mxfp4kv8"), peaks, own_files="16").rest_bits == 16
    assert as_run(parse_quant("fp8kv8"), peaks, own_files="16") == parse_quant("fp8kv8")


@pytest.mark.parametrize(("model", "scheme", "size"), [
    ("gemma-4-26b-a4b", "q4_k_m", 16.80e9), ("qwen2.5-0.5b", "q4_k_m", 373.71 * 2**20),
    ("qwen2.5-0.5b", "q6_k", 476.6 * 2**20), ("qwen2.5-0.5b", "q4_0", 330.2 * 2**20),
    ("smollm2-135m", "q6_k", 130.3 * 2**20), ("smollm2-135m", "q2_k", 82.4 * 2**20),
])  # fmt: skip
def test_rows_of_no_whole_blocks_take_wider_types(model: str, scheme: str, size: float) -> None:
    """Files whose sizes docs/decisions/0421 cites."""
    found = load_model(model)
    held = weight_bytes(found, Mapping(), in_blocks(PRESETS[scheme], found))
    assert float(held) == pytest.approx(size, rel=0.06 if scheme == "q2_k" else 0.01)


def test_native_4_bit_experts_and_whole_rows_keep_their_widths() -> None:
    """gpt-oss's experts stay mxfp4 in a K-quantised file; Llama's rows are whole blocks."""
    assert in_blocks(PRESETS["q4_k_m"], load_model("gpt-oss-20b")).name == "mxfp4-moe"
    assert in_blocks(PRESETS["q4_k_m"], load_model("llama-3.1-8b")).weight_bits == PRESETS["q4_k_m"].weight_bits


@pytest.mark.parametrize(
    ("typed", "ours"),
    [("bfloat16", "bf16"), ("half", "fp16"), ("fp8_e4m3", "fp8"), ("awq_marlin", "awq"), ("gptq-int8", "int8-wo"),
     ("UD-IQ2_M", "iq2_m"), ("UD-Q4_K_XL", "q4_k_m"), ("float16kv8", "fp16kv8"), ("w4afp8", "w4a8g128")],
)  # fmt: skip
def test_what_others_call_a_scheme(typed: str, ours: str) -> None:
    assert parse_quant(typed) == parse_quant(ours)


def test_schemes_that_are_near_exist() -> None:
    assert all(parse_quant(name) for near in ELSEWHERE.values() for name in near)
