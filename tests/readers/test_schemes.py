"""Schemes of quantisation: what differs between them is a field of their rows, whatever suffix a name has."""

from dataclasses import fields

import pytest

from rooflm.catalogue.quant import PARTS, Quant
from rooflm.readers.schemes import PRESETS, as_run, parse_quant, without_cache

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
    assert as_run(parse_quant("mxfp4kv8"), peaks, own_files=True).kv_bits == 8
    assert as_run(parse_quant("mxfp4kv8"), peaks, own_files=True).rest_bits == 8.5
    assert as_run(parse_quant("fp8kv8"), peaks, own_files=True) == parse_quant("fp8kv8")
