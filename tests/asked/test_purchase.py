"""What cards cost to buy: the table, an hour of one's own card by hand, searches within a budget."""

from __future__ import annotations

import json

import pytest

import rooflm
from rooflm.asked.purchase import affordable, purchase, purchases
from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.readers.devices import load_device
from rooflm.readers.rows import names

Q4 = {"quant": "q4_k_m", "engine": "llama.cpp", "batch": 1}


def test_every_price_is_of_a_card_of_the_catalogue():
    table = purchases()
    assert set(table) <= set(names("gpu")) and len(table) > 60
    for name, found in table.items():
        assert 100 <= found.usd <= 50_000 and found.of in ("card", "machine"), name
        year, month = map(int, found.date.split("-"))
        assert 2016 <= year <= 2026 and 1 <= month <= 12 and ("launch" in found.source) != ("street" in found.source)
        made = load_device(name).year
        near = abs(year - made) <= 1  # announced late in the year before, or sold a year after
        assert near or "street" in found.source, name


def test_an_hour_of_ones_own_card_by_hand():
    rent, own = (rooflm.infer("llama-3.1-8b", gpu="rtx-4090", **Q4, owned=o) for o in (False, True))
    hour = 1599 / (4 * 8766 * 0.8) + 0.45 * 0.15
    share = own.cost_per_million_tokens / rent.cost_per_million_tokens
    assert share == pytest.approx(hour / load_device("rtx-4090").price)
    grid = rooflm.infer("llama-3.1-8b", gpu="rtx-4090", **Q4, purchase=[1599, 3198], electricity=0.0)
    dear = grid["cost_usd_per_million_tokens"].values
    assert dear[1] == pytest.approx(2 * dear[0])
    bought = rooflm.train("llama-3.1-8b", gpu="h100", gpus=8, batch=8, seq=2048, tokens=1e9, purchase=25_000)
    rented = rooflm.train("llama-3.1-8b", gpu="h100", gpus=8, batch=8, seq=2048, tokens=1e9)
    assert bought.job.cost / rented.job.cost == pytest.approx((25_000 / (4 * 8766 * 0.8) + 0.7 * 0.15) / 2.95)


def test_a_card_without_a_public_price_says_so():
    assert purchase("mi300x") is None and purchase("rtx4090").usd == 1599
    assert purchase("h100").usd == 30_000 and "indicative street price" in purchase("h100").told
    with pytest.raises(RooflmError, match="no public purchase price of mi300x is known"):
        rooflm.infer("llama-3.1-8b", gpu="mi300x", owned=True)
    with pytest.raises(RooflmError, match="give one of them"):
        rooflm.infer("llama-3.1-8b", gpu="h100", purchase=25_000, price=2)
    with pytest.raises(RooflmError, match="cheapest card"):
        affordable(50)


def test_the_best_card_under_a_budget():
    found = rooflm.search_infer("llama-3.1-8b", under=300, objective="tpot", gpus=1, **Q4)
    prices = {c.inputs["gpu"]: c.outputs["purchase_usd"] for c in found.top}
    assert prices and all(p <= 300 and p == purchases()[g].usd for g, p in prices.items())
    two = rooflm.search_infer("llama-3.1-8b", gpu=["rtx-5060", "rtx-3090"], under=600, gpus_max=2, **Q4)
    assert {c.inputs["gpu"] for c in two.top} == {"rtx-5060"}
    assert max(c.outputs["purchase_usd"] for c in two.top) == 598
    with pytest.raises(RooflmError, match="no public purchase price of mi300x is known: give it with --purchase"):
        rooflm.search_infer("llama-3.1-8b", gpu="mi300x", under=10_000, gpus=1, batch=1)
    one = rooflm.search_infer("llama-3.1-8b", gpu=["mi300x", "rtx-5060"], under=400, gpus=1, **Q4)
    assert "no public purchase price of this GPU is known" in one.blocked[0].why[0]


@pytest.mark.parametrize(
    "load", [{}, {"concurrency": 8, "confirm": 0}, {"concurrency": 8, "confirm": 0, "pools": True}]
)
def test_a_budget_takes_the_price_that_was_given(load):
    search = rooflm.search_serve if load else rooflm.search_infer
    given = {"gpu": "l4", "tp": 1, "pp": 1, "gpus": [2, 3], "under": 7000, **load}
    found = search("llama-3.1-8b", purchase=3000, **given)
    assert {(c.outputs["purchase_usd"], c.outputs["gpus"]) for c in found.top} == {(6000, 2)}


def test_a_price_is_read_as_its_hint_says(capsys):
    words = ["infer", "llama-3.1-8b", "--gpu", "l4", "--json", "--purchase"]
    told = []
    for text in ("1.5 kUSD", "1500"):
        assert main([*words, text]) == 0
        told.append(json.loads(capsys.readouterr().out)["cost_usd_per_million_tokens"])
    assert told[0] == told[1]
    refused = {"abc": "1500 or 1.5 kUSD", "0": "must be a number above 0", "3GB": "such as 2.5, 1500 or 1.5 kUSD"}
    for text, why in refused.items():
        assert main([*words, text]) == 2
        assert why in capsys.readouterr().err


def test_lists_within_a_budget(capsys):
    assert main(["list", "gpus", "--under", "260"]) == 0
    told = capsys.readouterr().out
    assert "rtx-5050" in told and "249" in told and "rtx-4090" not in told
    assert main(["show", "gpu", "mi300x"]) == 0
    assert "no public price" in capsys.readouterr().out
    assert main(["list", "models", "--under", "260"]) == 2
