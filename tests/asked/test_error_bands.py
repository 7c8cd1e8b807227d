"""Error bands of answers: no lower than the roof, finite, around the prediction; and whose runs they are of."""

import numpy as np
import pytest

import rooflm
from rooflm.asked.answers.bands import bands_around

TIMES = ("ttft_s", "tpot_s", "latency_s")


@pytest.mark.parametrize("gpu", ["h100", "rtx-4090", "mi300x", "arc-b580", "apple-m2-ultra-76core-192gb"])
@pytest.mark.parametrize("engine", ["vllm", "tgi", "llama.cpp", "exllamav2"])
def test_no_band_of_inference_passes_the_roof(gpu: str, engine: str) -> None:
    for batch in (1, 8, 64):
        e = rooflm.infer("llama-3.1-8b", gpu=gpu, engine=engine, batch=batch, prompt=2048)
        roofs = (e.prefill_mfu * e.ttft, e.decode_mbu * e.tpot, max(e.mfu, e.mbu) * e.latency)
        for key, roof in zip(TIMES, roofs, strict=True):
            band, value = e.error_band[key], e.values([key])[key]
            assert min(roof, value) * (1 - 1e-12) <= band["low"] <= value <= band["high"] < np.inf, key


def test_a_band_ends_at_the_roof() -> None:
    s = rooflm.infer("llama-3.1-8b", gpu="h100", engine="tgi").scenario
    low = [bands_around(s, {"tpot_s": ("decode", 10.0, roof)})["tpot_s"]["low"] for roof in (0.0, 0.97, 1.2)]
    assert low[0] < 9.0 and low[1:] == [9.7, 10.0]  # and never above the prediction


def test_no_band_of_a_step_passes_the_roof() -> None:
    for gpu in ("h100", "a100", "tpu-v5p"):
        e = rooflm.train("llama-3.1-8b", gpu=gpu, gpus=64, dp=64, batch=256)
        band = e.error_band["step_time_s"]
        assert min(e.flops_time, e.step_time) <= band["low"] <= e.step_time <= band["high"] < np.inf


@pytest.mark.parametrize(
    ("engine", "gpu", "lacks"),
    [
        ("tgi", "h100", "no run of tgi was fitted"),
        ("vllm", "rtx-3090", "no run of this release of vllm on ampere cards was fitted"),
        ("vllm", "arc-b580", "no run on xe2 cards was fitted"),
        ("tgi", "arc-b580", "no run of tgi and none on xe2 cards was fitted"),
        ("vllm", "h100", ""),
    ],
)
def test_an_answer_says_what_no_fitted_run_has(engine: str, gpu: str, lacks: str) -> None:
    told = " ".join(rooflm.infer("llama-3.1-8b", gpu=gpu, engine=engine).assumed)
    assert f"wider error bands: {lacks}" in told if lacks else "error bands" not in told
    assert "error bands" not in " ".join(
        rooflm.infer("llama-3.1-8b", gpu=gpu, engine=engine, efficiency="0.7,0.9").assumed
    )


def test_served_times_say_it_too() -> None:
    served = rooflm.serve("llama-3.1-8b", gpu="h100", engine="tgi", concurrency=2, requests=4)
    assert "wider error bands: no run of tgi was fitted" in " ".join(served.assumed)
    for key in ("ttft_s", "tpot_s"):
        band, mean = served.values()["error_band"][key], served.values()[key]["mean"]
        assert band["low"] < mean < band["high"] < np.inf


def width(e: object, key: str) -> float:
    band = e.error_band[key]  # type: ignore[attr-defined]
    return float(band["high"] / band["low"])


def test_farther_scenarios_have_wider_bands() -> None:
    asked = [("vllm", "h100"), ("vllm", "a100"), ("tgi", "arc-b580")]
    near, kin, far = (rooflm.infer("llama-7b", gpu=gpu, engine=engine, batch=8) for engine, gpu in asked)
    for key in TIMES:
        assert width(near, key) <= width(kin, key) * 1.05 and width(kin, key) <= width(far, key) * 1.05
    assert width(near, "tpot_s") < width(far, "tpot_s")


def test_parts_that_nobody_fitted_are_far() -> None:
    """Layers on the host: alone and in a grid."""
    given = {"gpu": "rtx-4090", "quant": "q4_k_m", "engine": "llama.cpp", "cpu_layers": [0, 45]}
    grid = rooflm.infer("llama-3.1-70b", **given)
    for i, layers in enumerate((0, 45)):
        alone = rooflm.infer("llama-3.1-70b", **{**given, "cpu_layers": layers})
        assert np.isclose(grid["error_band.tpot_s.high"].values[i], alone.error_band["tpot_s"]["high"])
        assert (width(alone, "tpot_s") > 1.5) == bool(layers)


def test_the_band_of_a_request_has_no_step() -> None:
    """From the band of a first token to that of the others as the output grows."""
    grid = rooflm.infer("llama-3.1-8b", gpu="h100", output=[1, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513])
    ends = grid["error_band.latency_s.high"].values / grid["latency_s"].values
    assert np.all(np.diff(ends) < 0) and np.max(-np.diff(ends)) < 0.06


def test_a_request_of_one_token_has_the_band_of_its_first():
    for output, same in ((1, True), (2, False), ([1, 2], [True, False])):
        bands = rooflm.infer("llama-3.1-8b", gpu="h100", output=output)
        ends = [
            bands[f"error_band.{k}.high"].values if isinstance(output, list) else bands.error_band[k]["high"]
            for k in ("ttft_s", "latency_s")
        ]
        assert np.array_equal(ends[0] == ends[1], same)
