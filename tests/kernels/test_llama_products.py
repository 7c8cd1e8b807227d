"""Products of llama.cpp: one tile on Metal, weights spread where no unit takes them, Vulkan before its kernels."""

import math
from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.catalogue.fields import words_in
from rooflm.kernels.products import integer_peak, one_tile_time
from rooflm.readers.devices import load_device
from rooflm.readers.engines import load_engine
from rooflm.readers.rows import row_files, rows_of

OLD = {"engine.flash": False, "engine.decode_flash": False}
"""As llama.cpp ran unless flash attention was asked for, until the end of 2025."""


def prompt_rate(model: str, gpu: str, engine: str, quant: str, tokens: int, **sets: Any) -> float:
    """Prompt tokens a second of one sequence. sets: of the engine."""
    more = {f"engine.{name}": value for name, value in sets.items()}
    found = rooflm.infer(model, gpu=gpu, engine=engine, quant=quant, batch=1, prompt=tokens, output=1, sets=OLD | more)
    return tokens / float(found.ttft)


def test_a_tile_by_hand() -> None:
    """Two rows of 128 columns are two blocks of 32 rows, on two SMs one each: 2 x 32 x 64 x 100 FLOPs at half of the
    peak, and one and a half such more."""
    block = 2.0 * 32 * 64 * 100 / 5e11
    assert float(one_tile_time(2.0, 128.0, 100.0, rows=32.0, more=1.5, peak=1e12, sms=2.0)) == pytest.approx(
        2.5 * block
    )
    rows = np.array([1.0, 32.0, 33.0, 3200.0])
    blocks = np.array([1.0, 1.0, 2.0, 100.0])
    assert one_tile_time(rows, 128.0, 100.0, rows=32.0, more=1.5, peak=1e12, sms=2.0) == pytest.approx(
        (blocks + 1.5) * block
    )


@pytest.mark.parametrize("engine", ["llama.cpp-2024-05-metal", "llama.cpp-metal-2024-11"])
def test_rows_on_metal_take_as_long_as_a_whole_tile(engine: str) -> None:
    """Before kernels of a few rows (pull request 10581): two rows last as long as 32, 33 as two tiles."""
    there = ("llama-2-13b", "apple-m1-pro-16core-32gb", engine, "q4_0")
    few, many, more = (n / prompt_rate(*there, n) for n in (2, 32, 33))
    assert few == pytest.approx(many, rel=0.1)
    assert 1.5 * many < more < 2.1 * many


@pytest.mark.parametrize(
    ("model", "gpu", "build", "quant", "rows", "measured", "off"),
    [
        ("llama-2-13b", "apple-m1-pro-16core-32gb", "b4160", "q4_0", 2, 9.11, 0.18),  # pull requests 10491 and 10581
        ("llama-2-13b", "apple-m1-pro-16core-32gb", "b4160", "q4_0", 4, 18.08, 0.17),
        ("llama-3.2-3b", "apple-m2-ultra-76core-192gb", "b4080", "q4_0", 8, 250.69, 0.05),  # 48 blocks on 76 cores
        ("llama-3.2-3b", "apple-m2-ultra-76core-192gb", "b4080", "fp16", 8, 245.71, 0.05),
        ("llama-7b", "apple-m2-max-30core-32gb", "b1155", "q4_0", 32, 388.64, 0.05),  # pull requests of 2023
        ("mistral-7b", "apple-m3-max-40core-64gb", "b1690", "q4_0", 2, 25.92, 0.25),  # issue 4624
    ],
)  # fmt: skip
def test_few_rows_on_metal_as_published(
    model: str, gpu: str, build: str, quant: str, rows: int, measured: float, off: float
) -> None:
    there = (model, gpu, f"llama.cpp-{build}", quant, rows)
    assert prompt_rate(*there) == pytest.approx(measured, rel=off)


def test_few_blocks_do_not_keep_cores_busy() -> None:
    """A small model on many cores reaches a smaller share of them in one tile than a large one on few."""
    shares = [
        32 * prompt_rate(model, gpu, "llama.cpp-b4080", "q4_0", 2) / 2 * 2 * size / load_device(gpu).half_peak
        for model, gpu, size in (
            ("llama-3.2-3b", "apple-m2-ultra-76core-192gb", 3.2e9), ("llama-2-13b", "apple-m1-pro-16core-32gb", 13e9)
        )
    ]  # fmt: skip
    assert shares[0] < 0.3 < 0.55 < shares[1] < 0.8


def test_no_build_on_metal_inherits_what_cudas_kernels_take() -> None:
    """Each builds, in the end, on a row of CUDA's."""
    found = [load_engine(row.name) for path in row_files("engine") for row in rows_of(path)]
    built = [e for e in found if e.kernels.gemv and {"amd", "nvidia"} <= {*words_in(e.abilities.elsewhere)}]
    assert {"mlx", "llama.cpp-metal", "ollama-metal", "llama.cpp-2024-05-metal"} <= {e.name for e in built}
    for e in built:
        k = e.kernels
        taken = (k.sm_stream, k.sm_integers, k.tile_rate, k.row_rate, k.dots_below, k.widened)
        assert (k.unpacked, *taken, e.stages.queue) == ("", *[0] * len(taken), math.inf), e.name


def test_ollama_on_metal_has_the_same_tile() -> None:
    rows = ("llama.cpp-metal", "ollama-metal", "ollama-2025-12-metal", "ollama-2025-08-metal")
    assert {load_engine(name).kernels.tile_rows for name in rows} == {32}
    assert load_engine("mlx").kernels.tile_rows == load_engine("llama.cpp").kernels.tile_rows == 0


@pytest.mark.parametrize(
    ("quant", "rows", "measured"), [("q5_1", 16, 719.5), ("q5_0", 256, 2421.77), ("q5_0", 512, 3326.19)]
)
def test_volta_multiplies_integers_for_few_rows_and_spreads_weights_for_more(
    quant: str, rows: int, measured: float
) -> None:
    """8B on V100 by micro-batch (pull request 24127, b9500): dp4a below 64 rows, else fp16 from weights spread out."""
    there = ("llama-3.1-8b", "v100-pcie-32gb", "llama.cpp-b9500", quant, 512)
    assert prompt_rate(*there, token_budget=rows) == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize(("rows", "measured"), [(16, 434.49), (32, 544.48), (64, 718.58), (128, 830.13)])
def test_pascal_reads_weights_before_it_multiplies_by_them(rows: int, measured: float) -> None:
    """8B on P40 by micro-batch (pull request 24127, b9500): what is read is not hidden behind the products."""
    there: dict[str, Any] = {"engine": "llama.cpp-b9500", "quant": "q4_k_s", "tokens": 512, "token_budget": rows}
    assert prompt_rate("llama-3.1-8b", gpu="p40", **there) == pytest.approx(measured, rel=0.13)
    beside, after = (512 / prompt_rate("llama-3.1-8b", gpu="p40", **there, staged_on=x) for x in ("", "pascal"))
    passes, read = 512 / rows, 4.4e9 / 346e9
    assert rows == 128 or 0.2 * passes * read < after - beside < 1.6 * passes * read


@pytest.mark.parametrize(("rows", "measured"), [(16, 3018.53), (32, 5254.86), (64, 8108.33), (128, 10145.40)])
def test_cards_with_matrix_units_read_weights_first_too(rows: int, measured: float) -> None:
    """8B in IQ4_NL on RTX 5090 by micro-batch (pull request 24127, b9500): 1.18 to 1.40 too fast if it is hidden."""
    there = ("llama-3.1-8b", "rtx-5090", "llama.cpp-b9500", "iq4_nl", 512)
    sets = {"token_budget": rows, "flash": True, "decode_flash": True}
    assert prompt_rate(*there, **sets) == pytest.approx(measured, rel=0.12)
    assert prompt_rate(*there, **sets, staged_on="") > 1.15 * measured


def test_scores_on_geforce_sum_in_fp32() -> None:
    """Half of attention's FLOPs at the datasheet's rate, half at twice that, whatever products reach."""
    least = 1.0 / (4 / 3 * load_device("rtx-5090").peak["fp16"])
    for past in (0, 16384):
        found = rooflm.infer("llama-2-7b", gpu="rtx-5090", engine="llama.cpp", quant="q4_0", prompt=past + 512,
                             cached=past, output=1)  # fmt: skip
        core = next(t for t in found.timed["prefill"] if t.node.name == "attention")
        assert core.kernel > least * core.node.flops


@pytest.mark.parametrize(("prompt", "measured"), [(64, 191.69), (256, 318.73), (512, 513.29), (2048, 1358.24)])
def test_prompts_on_cdna_3_take_what_a_tile_multiplies(prompt: int, measured: float) -> None:
    """DeepSeek-V3 in Q4_K_M on eight MI300X by layers (ROCm's documentation, b6662)."""
    there: dict[str, Any] = {"gpus": 8, "pp": 8, "engine": "llama.cpp-rocm-b6662", "quant": "q4_k_m", "output": 1}
    found = rooflm.infer("deepseek-v3", gpu="mi300x", batch=1, prompt=prompt, **there)
    assert prompt / found.ttft == pytest.approx(measured, rel=0.16)


def test_what_is_spread_takes_its_bytes() -> None:
    """Written and read in 2 B beside its own width, at no more than the memory's rate; cards with units for integers,
    and weights that have 16 bits, know nothing of it."""
    there: dict[str, Any] = {"engine": "llama.cpp-b9500", "tokens": 64, "token_budget": 64}
    for gpu, quant, least in (("v100-pcie-32gb", "q5_0", 4 * 7e9 / 900e9), ("v100-pcie-32gb", "fp16", 0.0),
                              ("t4", "q5_0", 0.0), ("rtx-3090", "q5_0", 0.0), ("p40", "q5_0", 0.0)):  # fmt: skip
        spread, none = (64 / prompt_rate("llama-3.1-8b", gpu=gpu, quant=quant, **there, dots_below=n) for n in (64, 0))
        assert spread - none > least if least else spread == none


def test_a_card_without_dp4a_spreads_from_the_first_row_of_a_library() -> None:
    """P100 has none (compute capability 6.0), and no matrix units whose tiles experts could take."""
    p100 = load_engine("llama.cpp", "p100-pcie-16gb", "gp100").kernels
    assert p100.dots_below == 1 and p100.tile_rate == p100.row_rate == 0
    assert load_engine("llama.cpp", "v100-pcie-32gb", "volta").kernels.dots_below == 64


@pytest.mark.parametrize(
    ("gpu", "engine", "slower"),
    [("mi50-32gb", "llama.cpp-rocm", True), ("p40", "llama.cpp", True), ("rtx-3090", "llama.cpp", False)],
)
def test_bf16_is_spread_to_32_bits_where_a_card_has_no_such_type(gpu: str, engine: str, slower: bool) -> None:
    """Six bytes a weight at least (read, and written in 32 bits), before products of more rows than vectors take."""
    bf16, plain = (64 / prompt_rate("llama-3.2-1b", gpu, engine, "bf16", 64, widened=spread) for spread in (10, 0))
    bytes_moved = 6 * 0.97e9  # without the table of embedding, which nothing multiplies but the head
    assert (bf16 - plain > bytes_moved / load_device(gpu).dram.bandwidth) if slower else bf16 == plain


def test_bf16_on_mi50_as_published() -> None:
    """llama.cpp's pull requests, b9520, micro-batches of 32: 904 tokens/s; 2,900 were said without any rule."""
    there = ("llama-3.2-1b", "mi50-32gb", "llama.cpp-b9520", "bf16", 512)
    found, before = (prompt_rate(*there, token_budget=32, **sets) for sets in ({}, {"widened": 0}))
    assert found == pytest.approx(903.58, rel=0.1) and before > 1.5 * 903.58


def decoding(batch: int, build: str) -> float:
    """Tokens a second of 8B in q4_0 on an RTX 3090 by Vulkan."""
    found = rooflm.infer("llama-3.1-8b", gpu="rtx-3090", engine=f"llama.cpp-vulkan-{build}", quant="q4_0", batch=batch,
                         prompt=512, output=128, sets=OLD)  # fmt: skip
    return batch / float(found.tpot)


def test_a_few_rows_by_vulkan_took_a_whole_tile_before_2025() -> None:
    """Pull request 10991 (January 2025): 57 and 187 tokens/s of 4 and 10 sequences before."""
    assert decoding(10, "b4400") == pytest.approx(187.04, rel=0.1)
    assert decoding(4, "b4400") == pytest.approx(56.99, rel=0.35)
    assert decoding(2, "b4400") < decoding(1, "b4400")
    assert decoding(4, "b5370") > 4 * decoding(4, "b4400")


def test_experts_by_vulkan_are_looked_up_once_since_august_2025() -> None:
    """RTX 5090: a mixture's prompts of 512 (pull requests 15427 and 15524); dense products did not change."""
    mixture, dense = (
        [prompt_rate(model, "rtx-5090", f"llama.cpp-vulkan-{build}", "q4_k_m", 512) for build in ("b6200", "b6400")]
        for model in ("deepseek-v2-lite", "llama-2-7b")
    )
    assert mixture[1] > 1.3 * mixture[0] and dense[0] == dense[1]
    measured = rooflm.infer(
        "deepseek-v2-lite", gpu="rtx-5090", engine="llama.cpp-vulkan-b6200", quant="q4_k_m", batch=1, prompt=512
    )
    assert 512 / float(measured.ttft) == pytest.approx(7549.93, rel=0.12)


def test_a_pascal_card_as_published() -> None:
    """Without graphs a kernel waits for the next launch: 7B on GTX 1060 (b10690), 27B on P100 (b10200)."""
    for model, gpu, build, measured in (("qwen2.5-7b", "gtx-1060-6gb", "b10690", 24.0),
                                        ("qwen3.5-27b", "p100-pcie-16gb", "b10200", 12.89)):  # fmt: skip
        found = rooflm.infer(model, gpu=gpu, engine=f"llama.cpp-{build}", quant="q4_k_m", batch=1, prompt=1, output=128)
        assert 1 / float(found.tpot) == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(
    ("quant", "measured"), [("q4_0", 153.52), ("q8_0", 147.92), ("q2_k_s", 122.37), ("q6_k", 82.56), ("iq3_s", 30.2)]
)
def test_a_cpu_multiplies_narrow_weights_by_integers(quant: str, measured: float) -> None:
    """8B on a Ryzen 9 7950X in b4384 (ik_llama.cpp discussion 164), whose units for bf16 no narrow weight reaches."""
    assert prompt_rate("llama-3.1-8b", "ryzen-9-7950x", "llama.cpp", quant, 512) == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize(
    ("model", "quant", "prompt", "measured", "off"),
    [("qwen3.5-2b", "q8_0", 2048, 38.16, 0.12), ("llama-2-7b", "q4_0", 109, 8.1, 0.23)],
)
def test_so_do_the_cores_of_a_small_board(model: str, quant: str, prompt: int, measured: float, off: float) -> None:
    """Raspberry Pi 5 (llamafile's pull request 974, llama.cpp's 6928), which none of its constants was taken from: a
    short prompt is 1.22 times too fast since no rows are padded (docs/decisions/0553)."""
    engine = "llama.cpp" if quant == "q8_0" else "llama.cpp-2024-05"
    assert prompt_rate(model, "raspberry-pi-5-8gb", engine, quant, prompt) == pytest.approx(measured, rel=off)


def test_types_that_arm_repacks_are_quicker_there() -> None:
    """q6_K in blocks of rows on Arm alone (llama.cpp's pull request 19360): 2.6 times as fast as without."""
    of = {card: [prompt_rate("llama-3.2-1b", card, "llama.cpp", q, 512) for q in ("q4_0", "q6_k")]
          for card in ("raspberry-pi-5-8gb", "ryzen-9-7950x")}  # fmt: skip
    slower = {card: q4 / q6 for card, (q4, q6) in of.items()}
    assert slower["raspberry-pi-5-8gb"] < 1.2 < 1.6 < slower["ryzen-9-7950x"]


def test_16_bit_weights_run_on_a_cpu_by_what_it_has_for_them() -> None:
    """fp16 is widened (F16C); bf16 has products of its own on Zen 4, at twice the rate."""
    there = ("llama.cpp", 512)
    fp16, bf16 = (prompt_rate("llama-3.1-8b", "ryzen-9-7950x", there[0], q, there[1]) for q in ("fp16", "bf16"))
    assert bf16 == pytest.approx(2 * fp16, rel=0.1)


@pytest.mark.parametrize(("gpu", "quant"), [("xeon-8480", "q4_0"), ("xeon-8480", "q6_k"), ("ryzen-9-7950x", "iq3_s")])
def test_experts_of_a_cpu_take_the_same_integers(gpu: str, quant: str) -> None:
    """AMX' rate of 8-bit integers, and a type's own blocks, reach no expert either."""
    e = rooflm.infer("qwen3-30b-a3b", gpu=gpu, engine="llama.cpp", quant=quant, prompt=512, output=1)
    experts = [t for t in e.timed["prefill"] if t.node.name == "experts"]
    assert experts
    for t in experts:
        assert np.all(t.node.flops <= (1 + 1e-9) * integer_peak(e.scenario) * t.time)


def test_a_cpu_without_a_rate_of_integers_multiplies_as_others_do() -> None:
    """Not in no time, nor never: at the rate of its halves."""
    none = rooflm.infer("llama-3.1-8b", gpu="ryzen-9-7950x", engine="llama.cpp", quant="q4_0", sets={"engine.dots": 0})
    usual = rooflm.infer("llama-3.1-8b", gpu="ryzen-9-7950x", engine="llama.cpp", quant="q4_0")
    assert 0.3 < float(none.ttft) / float(usual.ttft) < 1


def test_integers_of_rtx_blackwell_unpack_twice_as_fast() -> None:
    """27B in Q3_K_S on RTX 5070 Ti (b8480), one token: 0.63 of this with the 64 lanes for integers of Ada's SM."""
    there: dict[str, Any] = {"gpu": "rtx-5070-ti", "engine": "llama.cpp-b8480", "quant": "q3_k_s"}
    assert 1 / rooflm.infer("qwen3.5-27b", **there, prompt=1, output=128).tpot == pytest.approx(45.59, rel=0.1)


@pytest.mark.parametrize(("rows", "measured"), [(16, 775.82), (32, 1362.59), (64, 1915.09), (128, 2401.0)])
def test_tiles_of_cdna_1_are_as_narrow_as_a_pass(rows: int, measured: float) -> None:
    """8B in IQ4_NL on MI100 by micro-batch (pull request 22051, b8850): 0.55 to 0.73 in tiles that few rows waste."""
    rate = prompt_rate("llama-3.1-8b", "mi100", "llama.cpp-rocm-b8850", "iq4_nl", 512, token_budget=rows)
    assert rate == pytest.approx(measured, rel=0.15)
