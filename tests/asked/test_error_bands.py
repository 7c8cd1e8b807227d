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


def test_an_answer_says_that_its_band_is_of_other_engines() -> None:
    def told(engine: str, **given: object) -> str:
        return " ".join(rooflm.infer("llama-3.1-8b", gpu="h100", engine=engine, **given).assumed)

    assert "error bands of other engines on hopper cards, wider: too few such runs of tgi" in told("tgi")
    assert "error bands" not in told("vllm")
    assert "error bands" not in told("tgi", efficiency="0.7,0.9")


def test_served_times_say_it_too() -> None:
    served = rooflm.serve("llama-3.1-8b", gpu="h100", engine="tgi", concurrency=2, requests=4)
    assert "error bands of all engines and cards, wider: too few such runs of tgi" in " ".join(served.assumed)
    for key in ("ttft_s", "tpot_s"):
        band, mean = served.values()["error_band"][key], served.values()[key]["mean"]
        assert band["low"] < mean < band["high"] < np.inf


def test_a_request_of_one_token_has_the_band_of_its_first():
    for output, same in ((1, True), (2, False), ([1, 2], [True, False])):
        bands = rooflm.infer("llama-3.1-8b", gpu="h100", output=output)
        ends = [
            bands[f"error_band.{k}.high"].values if isinstance(output, list) else bands.error_band[k]["high"]
            for k in ("ttft_s", "latency_s")
        ]
        assert np.array_equal(ends[0] == ends[1], same)
