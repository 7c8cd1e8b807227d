"""A cost is said with what its price is: its kind and date, in every command, in text, JSON and tables."""

from __future__ import annotations

from typing import Any

import pytest

import rooflm
from rooflm.cli.app import main
from rooflm.errors import RooflmError

MODEL = "llama-3.2-1b"
COSTING = (
    ("infer", MODEL, "--gpu", "l4"),
    ("infer", MODEL, "--gpu", "l4,rtx-4090", "--outputs", "cost,tpot"),
    ("infer", MODEL, "--gpu", "l4", "--outputs", "cost"),
    ("train", MODEL, "--gpu", "l4", "--batch", "8", "--seq", "256", "--tokens", "1G"),
    ("serve", MODEL, "--gpu", "l4", "--concurrency", "2", "--prompt", "64", "--output", "8"),
    ("search", "infer", MODEL, "--gpu", "l4,rtx-4090", "--batch", "1", "--gpus", "1"),
    ("search", "infer", MODEL, "--gpu", "l4", "--gpus", "1", "--concurrency", "4", "--confirm", "0"),
    ("search", "train", MODEL, "--gpu", "l4", "--gpus", "2", "--batch", "8", "--seq", "256", "--tokens", "1G"),
)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) in (None, 0)
    return capsys.readouterr().out


@pytest.mark.parametrize("words", COSTING, ids=" ".join)
def test_a_price_is_told_beside_its_cost(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(said(capsys, *words).split())
    assert "price: l4 0.7 " in out and "rough on-demand price of one device an hour, inferred, 2026-05" in out
    answer = said(capsys, *words, "--json")
    assert "rough on-demand" in answer or "--outputs" in words
    assert "as given" in " ".join(said(capsys, *words, "--price", "2").split())


def test_prices_are_columns_of_a_grid() -> None:
    grid = rooflm.infer(MODEL, gpu=["l4", "h100"])
    assert grid.price_usd_per_hour.values.tolist() == [0.7, 2.95]
    assert ["rough" in str(v) for v in grid.price_basis.values] == [True, False]
    own = rooflm.infer(MODEL, gpu="l4", sets={"cluster.device.price": 3.0})
    assert own.to_dict()["price_basis"] == "as given"
    assert (
        rooflm.infer(MODEL, gpu="rtx-4090", owned=True)
        .to_dict()["price_basis"]
        .startswith("of one's own, bought for 1,599 USD")
    )


def test_two_cards_have_two_prices(capsys: pytest.CaptureFixture[str]) -> None:
    """What is given for a card is no price of the card that prefills; `prefill_price` is."""
    ask: dict[str, Any] = {
        "gpu": "h100", "concurrency": 2, "prompt": 64, "output": 8, "prefill_replicas": 1, "prefill_gpu": "l4",
    }  # fmt: skip
    plain, given, both = (rooflm.serve(MODEL, **ask, **more) for more in
                          ({}, {"price": 2.0}, {"price": 2.0, "prefill_price": 0.5}))  # fmt: skip
    hours = [v.values()["price_usd_per_hour"] for v in (plain, given, both)]
    assert hours == pytest.approx([(2.95 + 0.7) / 2, (2.0 + 0.7) / 2, (2.0 + 0.5) / 2])
    told = given.values()["price_basis"]
    assert "h100-sxm-80gb 2 USD an hour (as given)" in told and "l4 0.7 USD an hour (rough" in told
    assert main(["serve", MODEL, "--gpu", "h100", "--concurrency", "2", "--prefill-price", "1"]) == 2
    assert "prefill_price has no effect without prefill_gpu" in capsys.readouterr().err
    found = rooflm.search_serve(MODEL, gpu="h100", gpus=2, concurrency=8, prompt=64, output=8, pools=True,
                                prefill_gpu="l4", price=2.0, prefill_price=0.5, confirm=0)  # fmt: skip
    pools = [c for c in found.top if "prefill_replicas" in c.inputs]
    assert pools and all(
        c.outputs["cost_usd_per_million_tokens"] * c.outputs["output_tokens_per_s"] * 3600 / 1e6
        == pytest.approx(2.0 * c.inputs["replicas"] + 0.5 * c.inputs["prefill_replicas"])
        for c in pools
    )
    assert found.prices == "h100-sxm-80gb 2 and l4 0.5 USD an hour (as given)"


def test_two_cards_of_ones_own_have_two_purchase_prices(capsys: pytest.CaptureFixture[str]) -> None:
    """Each card's price, kind and date are told, and the cost is of both; a price that is missing is named."""
    ask: dict[str, Any] = {"gpu": "rtx-4090", "gpus": 2, "concurrency": 8, "prompt": 64, "output": 8, "pools": True,
                           "prefill_gpu": "l4", "confirm": 0}  # fmt: skip
    with pytest.raises(RooflmError, match="purchase price of l4 is known: give it with --prefill-purchase"):
        rooflm.search_serve(MODEL, **ask, owned=True)
    hours = [usd / (4 * 8766 * 0.8) + watts / 1000 * 0.15 for usd, watts in ((1599, 450), (2500, 72))]
    cases = (({"prefill_purchase": 2500.0}, hours[1], "l4 0.09992 USD an hour (of one's own, bought for 2,500 USD)"),
             ({"prefill_price": 0.5}, 0.5, "l4 0.5 USD an hour (as given)"))  # fmt: skip
    for more, hour, told in cases:
        found = rooflm.search_serve(MODEL, **ask, owned=True, **more)
        assert told in found.prices and "1,599 USD (NVIDIA launch price, 2022-09)" in found.prices
        pool = next(c for c in found.top if "prefill_replicas" in c.inputs)
        of_both = pool.outputs["cost_usd_per_million_tokens"] * pool.outputs["output_tokens_per_s"] * 3600 / 1e6
        assert of_both == pytest.approx(hours[0] + hour)
        served = rooflm.serve(MODEL, **{k: ask[k] for k in ("gpu", "concurrency", "prompt", "output", "prefill_gpu")},
                              prefill_replicas=1, owned=True, **more).values()  # fmt: skip
        assert told in served["price_basis"] and served["price_usd_per_hour"] == pytest.approx((hours[0] + hour) / 2)
    rented = rooflm.search_serve(MODEL, **ask, prefill_purchase=2500.0, electricity=0.0)
    assert "rtx-4090 0.45 USD an hour (rough" in rented.prices and "l4 0.08912" in rented.prices
    assert main(["serve", MODEL, "--gpu", "h100", "--concurrency", "2", "--prefill-purchase", "1"]) == 2
    assert "prefill_purchase has no effect without prefill_gpu" in capsys.readouterr().err


def test_what_is_of_one_card_is_said_as_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Each card's own cluster is assumed; and no two empty lines follow each other."""
    for gpu, told in (("l4,rtx-4090", "pcie4-8 (rtx-4090: desktop);"), ("l4", "pcie4-8;")):
        for load in (["--batch", "1"], ["--concurrency", "4", "--confirm", "0"]):
            out = said(capsys, "search", "infer", MODEL, "--gpu", gpu, "--gpus", "1", *load)
            assert f"assumed: cluster {told}" in out and "\n\n\n" not in out
            assert "constants of ada cards for want of its own" in " ".join(out.split())
