"""What a card reaches of its datasheet: by card, twin, product family and architecture; a new card is one row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rooflm import infer
from rooflm.catalogue import rows as catalogue
from rooflm.catalogue.devices import load_device
from rooflm.catalogue.hardware import Derating
from rooflm.errors import RooflmError
from rooflm.kernels.derating import derating

ROW = """
vendor = "nobody"
architecture = "ada"
product_family = "geforce"
peak = { fp32 = "20 TFLOP/s", fp16 = "80 TFLOP/s", bf16 = "80 TFLOP/s" }
sms = 40
clock = "2 GHz"
l1 = { size = "5 MiB", bandwidth = "10 TB/s" }
l2 = { size = "32 MiB", bandwidth = "3 TB/s" }
dram = { size = "16 GiB", bandwidth = "500 GB/s" }
tdp = "200 W"
idle = "10 W"
price = "1 USD/h"
"""


def card(folder: Path, more: str = "") -> str:
    path = folder / "new-card.toml"
    path.write_text(ROW + more, encoding="utf-8")
    return str(path)


def test_from_near_to_far() -> None:
    own, general = (derating(load_device("rtx-4090"), e) for e in ("llama.cpp", "no-such-engine"))
    new = replace(load_device("rtx-4090"), name="new")
    assert own != general
    assert derating(new, "llama.cpp") not in (own, Derating())  # its family's
    assert derating(replace(new, kernels_of="rtx-4090"), "llama.cpp") == own
    assert derating(replace(new, product_family="none", architecture="none"), "llama.cpp") == Derating()
    assert derating(replace(new, derating=Derating(compute=0.5)), "llama.cpp") == Derating(compute=0.5)


def test_a_new_card_is_one_row(tmp_path: Path) -> None:
    """What decides its speed beside the datasheet stands in the row, whatever its name."""
    given: dict[str, Any] = {"model": "llama-2-7b", "engine": "llama.cpp", "quant": "q4_k_m", "batch": 1, "prompt": 512}
    times = {
        more: float(infer(gpu=card(tmp_path, more), **given).tpot)
        for more in ("", "derating = { bandwidth = 0.5 }", 'kernels_of = "l40s"', "system_memory = '4 GiB'")
    }
    plain, slow, twin, shared = times.values()
    assert slow > 1.5 * plain
    assert twin != plain and shared == plain
    sizes = [float(infer(gpu=card(tmp_path, m), **given).max_batch) for m in ("", "system_memory = '4 GiB'")]
    assert sizes[1] < sizes[0]


def test_a_factor_is_a_positive_number(tmp_path: Path) -> None:
    with pytest.raises(RooflmError, match=r"derating\.bandwidth"):
        load_device(card(tmp_path, "derating = { bandwidth = -1.0 }"))


def test_rows_say_what_cards_are() -> None:
    """Every shipped row states its family; a twin is a row whose own kernels were measured."""
    for name in catalogue.names("gpu"):
        row, _ = catalogue.raw_row("gpu", name)
        assert "product_family" in row, name
        twin = row.get("kernels_of", "")
        assert not twin or not load_device(twin).kernels_of, name
