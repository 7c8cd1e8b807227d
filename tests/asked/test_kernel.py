"""One kernel or collective: by hand, by formula, and as it stands in a whole prediction."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rooflm import infer, predict_attention, predict_collective, predict_gemm
from rooflm.cli import main
from rooflm.errors import RooflmError


def test_a_product_at_the_datasheets_rates_is_its_roofline() -> None:
    big = predict_gemm(8192, 8192, 8192, gpu="a100-sxm-80gb", efficiency="ideal")
    assert big.time_s == pytest.approx(2 * 8192**3 / 312e12) and big.bound == "compute"
    thin = predict_gemm(1, 8192, 8192, gpu="a100-sxm-80gb", efficiency="ideal")
    assert thin.time_s == pytest.approx(2 * (8192**2 + 2 * 8192) / 2.039e12, rel=1e-3) and thin.bound == "dram"
    narrow = predict_gemm(8192, 8192, 8192, gpu="h100-sxm-80gb", efficiency="ideal", quant="fp8")
    assert narrow.time_s == pytest.approx(2 * 8192**3 / 1979e12, rel=1e-3)


@pytest.mark.parametrize("spelled", ["all-reduce", "AllReduce", "allreduce", "ALL_REDUCE"])
def test_a_collective_goes_by_its_letters(spelled: str) -> None:
    assert predict_collective(spelled, 1e6, 8, gpu="h100") == predict_collective("all_reduce", 1e6, 8, gpu="h100")


@pytest.mark.parametrize("size", [-5, float("nan"), float("inf"), "1GiB", None, [1e6, 1e9], True])
def test_a_message_is_a_number_of_bytes(size: Any) -> None:
    with pytest.raises(RooflmError, match=r"size is .* must be a number of bytes of at least 0"):
        predict_collective("all_reduce", size, 8, gpu="h100")


def test_kernels_are_those_of_a_whole_prediction() -> None:
    e = infer("llama-2-7b", gpu="a100-sxm-80gb", batch=4, prompt=512, output=2, quant="bf16")
    down = next(t for t in e.timed["decode"] if t.node.name == "down")
    alone = predict_gemm(4, 4096, 11008, gpu="a100-sxm-80gb", engine=e.scenario.engine.name)
    assert alone.time_s * e.scenario.engine.factors.gemm_factor == pytest.approx(float(down.time), rel=0.02)
    core = next(t for t in e.timed["prefill"] if t.node.name == "attention")
    assert predict_attention(
        "prefill", gpu="a100-sxm-80gb", batch=4, tokens=512, heads=32, head_dim=128, engine=e.scenario.engine.name
    ).time_s == pytest.approx(float(core.time))


def test_ring_and_tree_by_their_formulas() -> None:
    volume, link, hop = 2 * 1023 / 1024 * 1e9, 25e9, 5e-6
    ring, tree = (predict_collective("all_reduce", 1e9, 1024, gpu="a100", algorithm=a) for a in ("ring", "tree"))
    assert ring.time_s == pytest.approx(volume / link + 2 * 1023 * hop)
    assert tree.time_s == pytest.approx(volume / link + 2 * 10 * hop)
    assert ring.bytes == tree.bytes == pytest.approx(volume)
    assert predict_collective("all_gather", 1e6, 1, gpu="a100").time_s == 0


def test_no_collective_passes_what_its_links_allow_on_all_tiers() -> None:
    for op, ranks in ((op, n) for op in ("all_reduce", "all_gather", "all_to_all") for n in (2, 8, 16, 64)):
        ideal, real = (predict_collective(op, 64e6, ranks, gpu="h100", efficiency=e) for e in ("ideal", None))
        assert ideal.time_s == pytest.approx(ideal.roofline_s) and ideal.memory == pytest.approx(1.0)
        assert real.roofline_s == ideal.roofline_s and 0 < real.memory < 1
    node, fabric = 450e9, 50e9  # NVSwitch adds up 64 MB a box; an eighth of it goes all round between two
    across = predict_collective("all_reduce", 64e6, 16, gpu="h100")
    assert across.roofline_s == pytest.approx(max(64e6 / node, 64e6 / 8 / fabric), rel=0.1)


def test_a_kernel_says_whose_constants_it_stands_on() -> None:
    assert "constants of other geforce cards" in " ".join(predict_gemm(1, 64, 64, gpu="rtx-4060").assumed)
    assert predict_gemm(1, 64, 64, gpu="a100").assumed[-1] == "efficiency calibrated"


def test_commands_print_tables_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "gemm", "--m", "1,16", "--n", "4096", "--k", "4096", "--gpu", "a100"]) == 0
    out = capsys.readouterr().out
    assert len(out.partition("\n\nassumed: ")[0].splitlines()) == 4
    assert main(["predict", "collective", "all-reduce", "--size", "1M", "--ranks", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bound"] == "network"
    assert main(["predict", "collective", "all-reduce", "--size", "1M,64M", "--ranks", "8"]) == 0
    assert "64.0 MB" in capsys.readouterr().out
    assert main(["predict", "attention", "decode", "--batch", "8", "--tokens", "4096"]) == 0
    assert "bound by" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: predict_gemm(1.5, 1, 1, gpu="a100"), "m is 1.5"),
        (lambda: predict_gemm(1, 1, 1, gpu="a100,h100"), "on one GPU: name one at a time"),
        (lambda: predict_attention("both", gpu="a100"), "prefill or decode"),
        (lambda: predict_attention("decode", gpu="a100", heads=32, kv_heads=5), "must divide"),
        (lambda: predict_collective("sum", 1.0, 2, gpu="a100"), "all_reduce"),
        (lambda: predict_collective("all_reduce", 1.0, 2, gpu="a100", algorithm="star"), "ring or tree"),
    ],
)
def test_bad_requests_are_refused(call: object, said: str) -> None:
    with pytest.raises(RooflmError, match=said):
        call()  # type: ignore[operator]
