"""What a card reaches of its datasheet: by card, twin, product family and architecture; a new card is one row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rooflm import infer, serve, train
from rooflm.catalogue.hardware import Derating
from rooflm.errors import RooflmError
from rooflm.estimate.capacity import running
from rooflm.estimate.request import timed_passes
from rooflm.estimate.step import prompt_factor
from rooflm.kernels import derating as factors
from rooflm.kernels.derating import (
    beside_units,
    derating,
    matrix_share,
    power_ratio,
    power_slowdown,
    reach,
    softmax_share,
    warp_share,
)
from rooflm.readers import rows as catalogue
from rooflm.readers.devices import load_device
from rooflm.readers.engines import load_engine

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


def test_an_engines_row_of_a_generation_comes_before_a_cards_of_any_engine() -> None:
    """H100 NVL in llama.cpp is as other Hopper cards there; what its watts leave of kernels is of servers'."""
    nvl, other = load_device("h100-nvl-94gb"), replace(load_device("h100-pcie-80gb"), name="new", kernels_of="")
    assert derating(nvl, "llama.cpp") == derating(other, "llama.cpp") != Derating()
    assert derating(nvl, "no-such-engine").compute == pytest.approx(0.88, abs=0.01)


def test_faster_memory_does_not_help_kernels_that_wait_for_their_units() -> None:
    """ROCm's of mid-2024 take as many bytes a clock and unit on MI250 and MI300X, half of either card's memory: with
    MI325X's memory and all else alike nothing is gained, with more units it is."""
    mi300x = load_device("mi300x")
    reached = derating(mi300x, "vllm-2024-rocm")
    assert reached == derating(load_device("mi250-gcd"), "vllm-2024-rocm") and 4 < reached.sm_stream < 5
    assert derating(load_device("mi325x"), "vllm-2024-rocm").sm_stream == pytest.approx(reached.sm_stream, rel=0.01)
    taken = reached.sm_stream * mi300x.sms * mi300x.clock
    assert 0.5 < taken / mi300x.dram.bandwidth < 0.6
    s = infer("llama-3.1-8b", gpu="mi300x", engine="vllm-2024-rocm").scenario

    def seconds(**more: Any) -> float:
        given = replace(s, cluster=replace(s.cluster, device=replace(mi300x, **more)))
        ops = timed_passes(given, running(given)).decode
        return sum(float(t.time) for t in ops if "attention" not in getattr(t.node, "kind", "attention"))

    faster = replace(mi300x.dram, bandwidth=1.2 * mi300x.dram.bandwidth)
    assert seconds(dram=faster) == pytest.approx(seconds(), rel=1e-9)
    assert seconds(sms=1.2 * mi300x.sms) < seconds()


def test_a_derating_of_ones_own_that_holds_at_a_power_is_put_to_the_cards() -> None:
    """1 W a TFLOP/s on a card of 989 TFLOP/s and 700 W: products draw 1.41 times what it may take."""
    h100 = load_device("h100")
    own = derating(replace(h100, derating=Derating(compute=0.9, watts=1.0)))
    assert own.compute == pytest.approx(0.9 / (h100.half_peak / 1e12 / h100.tdp) ** (1 / 3)) and own.watts == 0


def test_a_chip_with_fewer_watts_multiplies_more_slowly() -> None:
    """The cube root of W a FLOP/s: H100 NVL takes 400 W for 835 TFLOP/s, H100 SXM 700 for 989."""
    for few, many in (("h100-nvl-94gb", "h100-sxm-80gb"), ("mi300x", "mi325x")):
        a, b = (load_device(name) for name in (few, many))
        power = [float(d.tdp / d.peak["bf16"]) for d in (a, b)]
        for engine in ("vllm", "vllm-2024", "no-such-engine"):
            share = derating(a, engine).compute / derating(b, engine).compute
            assert share == pytest.approx((power[0] / power[1]) ** (1 / 3), rel=5e-3), (few, engine)


def test_a_card_held_below_its_watts_multiplies_more_slowly_and_streams_as_before() -> None:
    """A power limit slows the clock, of products by matrix units and of kernels counted by the clock alike: llama-bench
    on RTX PRO 6000 reaches 0.77 of its prompts' rate at 300 of 600 W, decoding 0.93."""
    given: dict[str, Any] = {"model": "llama-2-7b", "gpu": "rtx-pro-6000", "engine": "llama.cpp", "quant": "q4_0"}
    whole, half = (
        infer(**given, batch=1, prompt=512, output=128, sets={"cluster.device.power_limit": watts})
        for watts in (600, 300)
    )
    assert float(half.ttft) / float(whole.ttft) == pytest.approx(2 ** (1 / 3), rel=0.1)
    assert float(half.tpot) / float(whole.tpot) < 1.1
    above = replace(load_device("rtx-pro-6000"), power_limit=900.0)
    assert derating(above, "vllm") == derating(load_device("rtx-pro-6000"), "vllm")


@pytest.mark.parametrize(
    ("card", "watts", "measured"),
    [*(("rtx-pro-6000", w, m) for w, m in ((500, 0.99), (400, 0.915), (300, 0.77), (250, 0.64), (200, 0.55))),
     ("rtx-3090", 300, 0.96), ("rtx-3090", 280, 0.955), ("rtx-3090", 250, 0.876), ("h100", 60, 0.15)],
)  # fmt: skip
def test_what_a_card_takes_at_any_clock_comes_off_its_limit_first(card: str, watts: float, measured: float) -> None:
    """Rates of prompts (llama-bench on RTX PRO 6000; MiniMax M2.5 on RTX 3090, llmgarage.ai) and of training (RTX 3090
    at 280 W, Puget Systems) over those without a limit; below what it takes anyway a card keeps its lowest clock."""
    assert 1 / power_slowdown(replace(load_device(card), power_limit=float(watts))) == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize("card", ["h100", "rtx-3090", "tpu-v4", "raspberry-pi-5-8gb"])
def test_a_clock_rises_with_its_limit_to_all_of_it(card: str) -> None:
    """At TDP, and without a limit, a card has its whole clock; far below what it takes anyway the least one."""
    device = load_device(card)
    shares = np.linspace(0.01, 1.0, 100)
    clocks = 1 / np.asarray(power_slowdown(replace(device, power_limit=shares * device.tdp)))
    assert np.all(np.diff(clocks) >= 0) and clocks[0] == pytest.approx(factors.LEAST_CLOCK)
    assert (
        clocks[-1] == 1.0 == 1 / power_slowdown(replace(device, power_limit=device.tdp)) == 1 / power_slowdown(device)
    )


@pytest.mark.parametrize("watts", [100.0, 300.0])
def test_a_card_never_draws_more_than_it_is_held_to(watts: float) -> None:
    sets = {"cluster.device.power_limit": [watts, 700.0]}
    given: dict[str, Any] = {"gpu": "h100", "gpus": 8, "batch": 64, "prompt": 2048, "output": 32}
    served, trained = infer("llama-3.1-70b", **given, sets=sets), train("llama-3.1-8b", gpu="h100", batch=64, sets=sets)
    for found in (served, trained):
        limited, free = found["power_w"].values
        assert limited <= watts * (1 + 1e-9) and limited < free
    loads = [serve("llama-3.1-8b", gpu="h100", concurrency=64, requests=200, sets={"cluster.device.power_limit": w})
             for w in (watts, 700.0)]  # fmt: skip
    assert loads[0].values()["energy_j_per_token"] < loads[1].values()["energy_j_per_token"]


def test_one_chip_has_one_row_whatever_it_is_sold_as() -> None:
    cards = [load_device(name) for name in ("mi50-32gb", "mi60", "radeon-vii", "radeon-pro-vii")]
    assert len({derating(card, "llama.cpp-rocm") for card in cards}) == 1
    assert [card.product_family for card in cards] == ["instinct", "instinct", "radeon", "radeon"]


def test_a_card_reaches_no_more_of_its_sums_in_another_build() -> None:
    given: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "gb10", "quant": "q4_k_m", "prompt": 512, "output": 1}
    cuda, vulkan = (float(infer(**given, engine=e).ttft) for e in ("llama.cpp", "llama.cpp-vulkan"))
    assert vulkan > cuda


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_memory_gives_no_more_than_a_kernel_that_only_reads_it(engine: str) -> None:
    """GB10: 231 to 234 GB/s of 273; one token of a dense model reads all its weights."""
    e = infer(model="llama-3.1-8b", gpu="gb10", engine=engine, quant="bf16", batch=1, prompt=16, output=16)
    assert 200e9 < 2 * 7.5e9 / float(e.tpot) < 234e9


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


def test_a_generation_nobody_measured_takes_the_one_nearest_in_time() -> None:
    last = load_device("apple-m5-max-40core-64gb")
    before = load_device("apple-m1-ultra-48core-64gb")
    newest = replace(last, name="x", year=last.year + 9, architecture="apple-m14")
    assert derating(newest, "llama.cpp") == derating(last, "llama.cpp") != derating(before, "llama.cpp")


def test_units_of_m5_reach_less_of_their_datasheet_than_its_predecessors() -> None:
    """Prompts by matrix units of llama.cpp and MLX on M5 and M5 Max (decision 291): three quarters of 66 TFLOP/s."""
    units, vectors = (derating(load_device(f"apple-m{n}-max-40core-128gb"), "mlx") for n in (5, 4))
    assert units.compute == 0.75 < vectors.compute and units.bandwidth == vectors.bandwidth


def test_fp8_of_one_scale_a_tensor_on_instinct() -> None:
    """AMD's vLLM image of November 2025: 70B in fp8 of one scale a tensor, eight MI300X, 7.9 ms a token."""
    one = infer("llama-3.1-70b", gpu="mi300x", tp=8, engine="vllm", quant="fp8", batch=1, prompt=128, output=2048)
    assert float(one.latency) == pytest.approx(16.15, rel=0.25)


def test_experts_on_an_engines_own_kernels_do_not_take_the_share_of_dense_products() -> None:
    there = {"gpu": "rtx-5090", "engine": "llama.cpp", "quant": "mxfp4", "sets": {"engine.staged_on": ""}}
    s = infer("gpt-oss-20b", prompt=512, output=8, **there).scenario
    found = []
    for compute in (1.0, 2.0):
        device = replace(s.cluster.device, derating=Derating(compute=compute))
        given = replace(s, cluster=replace(s.cluster, device=device))
        prefill = timed_passes(given, running(given)).last
        found.append([float(t.time) for t in prefill if getattr(t.node, "kind", "") == "moe"])
        found.append([float(t.time) for t in prefill if getattr(t.node, "name", "") == "q"])
    assert found[0] == found[2] and found[1][0] > 1.3 * found[3][0]


def test_softmax_takes_the_time_of_an_sm_whatever_its_matrix_units() -> None:
    shares = {name: float(matrix_share(load_device(name))) for name in ("h100-pcie", "h20", "a40", "b200", "mi300x")}
    assert shares == pytest.approx({"h100-pcie": 1, "h20": 0.25, "a40": 0.5, "b200": 1, "mi300x": 1}, rel=0.02)
    # Qwen3's speed table: SGLang 0.4.6, 129,042 tokens of prompt on one H20 (qwen.readthedocs.io)
    for model, quant, seconds in (("qwen3-8b", "awq", 109.419), ("qwen3-14b", "awq", 152.864)):
        found = infer(model=model, gpu="h20", engine="sglang-0.5.5", quant=quant, prompt=129042, output=2048)
        assert float(found.latency) == pytest.approx(seconds, rel=0.2)


def test_more_peak_makes_no_prompt_slower() -> None:
    peak = load_device("h100").peak["bf16"]
    found: list[float] = []
    for more in (1.0, 1.2, 1.4, 1.42, 1.6):
        sets = {"cluster.device.peak.bf16": peak * more}
        found.append(float(infer(model="llama-3.1-8b", gpu="h100", prompt=65536, sets=sets).ttft))
    assert found == sorted(found, reverse=True)


def test_weights_in_four_bits_are_multiplied_no_faster_than_by_amperes_instructions() -> None:
    """Prompts in int4 came out as fast as in bf16 on Hopper and Blackwell, by kernels that were measured on A100."""
    given: dict[str, Any] = {"model": "llama-3.1-8b", "batch": 8, "prompt": 4096, "output": 2}
    for engine in ("vllm", "trtllm", "sglang"):
        first = {
            (gpu, quant): float(infer(**given, gpu=gpu, engine=engine, quant=quant).ttft)
            for gpu in ("a100", "h100", "b200", "h20") for quant in ("bf16", "int4")
        }  # fmt: skip
        slower = {gpu: first[gpu, "int4"] / first[gpu, "bf16"] for gpu in ("a100", "h100", "b200", "h20")}
        marlin = engine != "trtllm"  # which spreads weights once for each 64 rows: 0.6 of A100's peak (decision 278)
        assert slower["a100"] == pytest.approx(1.35 if marlin else 1.05, abs=0.1)
        assert slower["h20"] < 1.1 and 1.4 < slower["h100"] < 2 < slower["b200"] < 3
        assert first["b200", "int4"] < first["h100", "int4"] < first["a100", "int4"]
    # NVIDIA Model Optimizer's table, TensorRT-LLM 0.15 on H200: 64 prompts of 2,048 tokens, tokens a second
    for model, tokens in (("llama-3.1-8b", 1392.78), ("llama-3.1-70b", 176.68)):
        found = infer(model, gpu="h200", engine="trtllm-0.9", quant="awq", batch=64, prompt=2048, output=128)
        assert 64 * 128 / float(found.latency) == pytest.approx(tokens, rel=0.2)


def test_cards_in_slots_have_no_bridge_and_less_power() -> None:
    given: dict[str, Any] = {"model": "llama-3.1-8b", "engine": "trtllm", "quant": "fp16", "prompt": 2048}
    slot, board = (float(infer(**given, gpu=name).ttft) for name in ("a100-pcie-80gb", "a100-sxm-80gb"))
    e = load_engine("trtllm")  # a prompt's passes draw more than kernels alone, and the slot has fewer watts for that
    heat = [float(prompt_factor(e, load_device(name))) for name in ("a100-pcie-80gb", "a100-sxm-80gb")]
    assert 1.03 < slot / board < (400 / 300) ** (1 / 3) * heat[0] / heat[1]
    kinds = {link.kind for link in infer(**given, gpu="a100-pcie-80gb", tp=2).scenario.cluster.tiers}
    assert "nvlink" not in kinds and "pcie" in kinds


def test_a_plain_framework_starts_every_expert_one_by_one() -> None:
    # Qwen3's speed table: transformers 4.51, 2,048 tokens after one in 1,084 s, memory 58,462 MiB
    asked = {"model": "qwen3-30b-a3b", "gpu": "h20", "prompt": 1, "output": 2048}
    found = infer(**asked, engine="hf-eager-4.51")
    assert float(found.latency) == pytest.approx(1084.127, rel=0.25)
    chosen, grouped = (float(infer(**asked, engine=f"hf-eager-{release}").tpot) for release in ("4.55", "5.0"))
    assert grouped < chosen < 0.4 * float(found.tpot)  # eight of 128, each by more kernels; then one product for all
    many = infer(**asked | {"prompt": 4096}, engine="hf-eager-4.55")
    assert float(many.ttft) > 5 * chosen  # a prompt chooses them all


@pytest.mark.parametrize(
    ("engine", "by"), [("llama.cpp", 1.02), ("trtllm-0.5", 1.1), ("vllm", 1.1), ("vllm-2024", 1.1)]
)
def test_a_cards_power_does_not_hide_what_its_twin_reaches_in_an_engine(engine: str, by: float) -> None:
    """A100's cards for slots have a factor in any engine; the one with less bandwidth decodes more slowly in each, if
    hardly where their SMs bind (llama.cpp)."""
    small, large = (infer("llama-2-7b", gpu=f"a100-pcie-{size}gb", engine=engine).tpot for size in (40, 80))
    assert small > by * large


def test_units_of_cards_by_the_matrix_products_that_they_make_a_clock() -> None:
    assert power_ratio(0.7, 350.0, 1e15) == pytest.approx(2.0)
    assert derating(load_device("tpu-v4"), "no-such-engine").compute == 1
    assert [round(float(matrix_share(load_device(name))), 2) for name in ("h200", "h20")] == [1.0, 0.25]
    assert [softmax_share(load_device(name)) for name in ("b200", "b300")] == [1.0, 0.5]
    warp = [round(float(warp_share(load_device(name))), 2) for name in ("a100", "h200", "h20", "b200", "rtx-5090")]
    assert warp == [1.0, 0.5, 1.0, 0.25, 1.0]


def test_a_factor_of_another_generations_cards_keeps_the_share_that_is_reached() -> None:
    """Ada's factors of GeForce go with Ada's kernels; on Blackwell's, which reach more, they would pass its rates."""
    cards = (replace(load_device(name), name="a-new-card") for name in ("rtx-4080", "rtx-5090"))
    ada, blackwell = (derating(card, "no-such-engine") for card in cards)
    assert blackwell.lent and not ada.lent and blackwell.bandwidth < ada.bandwidth
    (own, own_memory), (lender, lender_memory) = reach("blackwell-rtx"), reach("ada")
    beside = 1.0 / (
        1.0 + float(matrix_share(load_device("rtx-5090"))) * (1.0 / own - 1.0)
    )  # tiles lose less beside smaller units
    assert blackwell.compute * beside == pytest.approx(ada.compute * lender)
    assert blackwell.bandwidth * own_memory == pytest.approx(ada.bandwidth * lender_memory)


def test_kernels_that_lose_time_beside_their_products_reach_more_of_small_units() -> None:
    """Half of the peak of a card of 4,096 FLOPs a clock of an SM is 1 / (1 + 1/4) of one of a quarter of these."""
    h20, h200 = load_device("h20-sxm-96gb"), load_device("h200-sxm-141gb")
    share = float(matrix_share(h20))
    assert share == pytest.approx(0.25, rel=0.02)
    assert beside_units(h20, Derating(), 0.5, "hopper") == pytest.approx(2.0 / (1.0 + share))
    assert beside_units(h200, Derating(), 0.5, "hopper") == pytest.approx(1.0, rel=0.01)


def test_a_share_that_was_fitted_to_products_holds_what_they_gained() -> None:
    """On RTX 4090 kernels that reach on an L40S what its products do gain what these did, others more or less."""
    card, fitted = load_device("rtx-4090"), Derating(compute=1.694)
    alike = reach("ada")[0]
    assert beside_units(card, fitted, alike, "ada") == pytest.approx(1.0)
    assert beside_units(card, fitted, 0.9, "ada") < 1.0 < beside_units(card, fitted, 0.3, "ada")
