"""Error bands of answers: no lower than the roof, finite, around the prediction; and whose runs they are of."""

import numpy as np
import pytest

import rooflm
from rooflm.asked.answers.bands import band, bands_around, distance, fitted, kind_of
from rooflm.readers.devices import load_device
from rooflm.validation.score import score
from rooflm.validation.table import read_row

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
        ("vllm", "a100", "no run of this release of vllm on datacenter ampere cards was fitted"),
        ("vllm", "rtx-3090", "no run of vllm on geforce ampere cards was fitted"),
        ("vllm", "arc-b580", "no run on arc xe2 cards was fitted"),
        ("tgi", "arc-b580", "no run of tgi and none on arc xe2 cards was fitted"),
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
    near, *others = (rooflm.infer("llama-7b", gpu=gpu, engine=engine, batch=8) for engine, gpu in asked)
    for far in others:
        assert all(width(near, key) <= width(far, key) * 1.05 for key in TIMES)
        assert width(near, "tpot_s") < width(far, "tpot_s")


def test_near_bands_lie_within_far_ones() -> None:
    for phase in ("prefill", "decode", "request", "prefill under load", "decode under load", "step", "memory"):
        engine = "megatron" if phase in ("step", "memory") else "vllm"
        near, far = (band(phase, engine, "datacenter hopper", far) for far in (False, True))
        assert near and far and (near.distance, far.distance) == ("near", "far")
        assert far.low <= near.low < 1 < near.high <= far.high


def test_a_card_of_another_line_is_not_near() -> None:
    """Runs on B200 say little of a GeForce card of the same generation."""
    kinds = [kind_of(load_device(name)) for name in ("b200", "b300", "rtx-5090")]
    assert [distance("vllm", kind, fitted()) for kind in kinds] == ["near", "near", "far"]


def test_what_a_row_states_never_widens_its_band() -> None:
    known = {"model": "llama-2-7b", "gpu": "h100", "metric": "tpot", "value": "0.01", "batch": "8"}
    told = [{}, {"engine": "vllm"}, {"engine": "vllm", "prompt": "512", "output": "64", "quant": "fp8", "tp": "1"}]
    widths = [x.high / x.low for x in score([read_row(known | more) for more in told])]  # type: ignore[list-item]
    assert widths == sorted(widths, reverse=True) and widths[0] > widths[-1]


def test_parts_that_nobody_fitted_are_far() -> None:
    """Layers on the host: alone and in a grid."""
    given = {"gpu": "rtx-4090", "quant": "q4_k_m", "engine": "llama.cpp", "cpu_layers": [0, 45]}
    grid, spans = rooflm.infer("llama-3.1-70b", **given), []
    for i, layers in enumerate((0, 45)):
        alone = rooflm.infer("llama-3.1-70b", **{**given, "cpu_layers": layers})
        assert np.isclose(grid["error_band.tpot_s.high"].values[i], alone.error_band["tpot_s"]["high"])
        spans.append(width(alone, "tpot_s"))
        assert ("no run with layers on the host was fitted" in " ".join(alone.assumed)) == bool(layers)
    near, far = spans
    assert far > 1.05 * near


def test_servers_of_prompts_alone_are_far() -> None:
    """Under load, in answers and in rows of a table."""
    load = {"model": "llama-3.1-8b", "gpu": "h100", "engine": "vllm", "concurrency": 2, "prompt": 64, "output": 8}
    one, split = (rooflm.serve(**load, requests=4, **more) for more in ({}, {"prefill_replicas": 1}))
    told = "wider error bands: no run with servers of prompts alone was fitted"
    assert [told in " ".join(x.assumed) for x in (one, split)] == [False, True]
    spans = [x.values()["error_band"]["ttft_s"] for x in (one, split)]
    ratio = [band["high"] / x.values()["ttft_s"]["mean"] for x, band in zip((one, split), spans, strict=True)]
    cells = {k: str(v) for k, v in load.items()} | {"requests": "4", "metric": "ttft", "value": "1", "unit": "s"}
    rows = [read_row(cells), read_row(cells | {"prefill_replicas": "1"})]
    assert [x.high / x.predicted for x in score(rows)] == pytest.approx(ratio)  # type: ignore[arg-type]
    near, far = (band["high"] / band["low"] for band in spans)
    assert far > near


def test_models_that_embed_are_far() -> None:
    """No run of one was fitted: in answers and in rows of a table alike."""
    alone = rooflm.infer("bge-m3", gpu="h100", batch=8, prompt=256, output=1)
    assert "no run that embeds was fitted" in " ".join(alone.assumed)
    cells = {"model": "bge-m3", "gpu": "h100", "engine": "vllm", "batch": "8", "prompt": "256", "output": "1"}
    row = score([read_row(cells | {"metric": "ttft", "value": "0.01"})])[0]  # type: ignore[list-item]
    assert row.high / row.predicted == pytest.approx(alone.error_band["ttft_s"]["high"] / float(alone.ttft))


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


def test_experts_have_a_band_of_their_own() -> None:
    """Wider than what is far, of servers over nodes (told in words) and wherever they train; a dense model, one node,
    and what NVLink joins have none."""
    told = "no run of experts over more than one node was fitted"
    runs = {"deepseek-v3": {"gpu": "h200", "tp": 16}, "llama-3.1-405b": {"gpu": "h200", "tp": 16}}
    across, dense = (rooflm.infer(m, engine="vllm", quant="fp8", **more) for m, more in runs.items())
    joined = rooflm.infer("deepseek-v3", gpu="gb200", tp=16, engine="vllm", quant="fp8")
    assert [told in " ".join(x.assumed) for x in (across, dense, joined)] == [True, False, False]
    ends = [float(x.error_band["tpot_s"]["high"]) / float(x.tpot) for x in (across, dense, joined)]
    assert ends[0] > 1.5 * ends[1] and ends[1] == pytest.approx(ends[2])
    cells = {"model": "deepseek-v3", "gpu": "h200", "engine": "vllm", "tp": "16", "batch": "1", "quant": "fp8"}
    cells |= {"metric": "tpot", "value": "0.01", "prompt": "512", "output": "128"}
    assert [x.where for x in score([read_row(cells), read_row(cells | {"tp": "8"})])] == ["experts", ""]
    assert score([read_row(cells | {"tp": "", "gpus": "16"})])[0].where == "experts"
    case = {"gpu": "h100", "batch": 64, "seq": 2048, "ep": 8, "engine": "megatron-bridge"}
    steps = [rooflm.train("qwen3-30b-a3b", gpus=gpus, **case) for gpus in (8, 16)]  # training was fitted there
    assert not any(told in " ".join(e.assumed) for e in steps)
    plain = rooflm.train("qwen3-8b", gpus=8, **{**case, "ep": 1})
    highs = [float(e.error_band["step_time_s"]["high"]) / float(e.step_time) for e in (*steps, plain)]
    assert highs[0] == pytest.approx(highs[1]) and highs[0] > 1.2 * highs[2]
    cells = {"task": "train", "model": "qwen3-30b-a3b", "gpus": "8", "metric": "step_time_s", "value": "1"}
    cells |= {k: str(v) for k, v in case.items()}
    rows = score([read_row(cells), read_row(cells | {"model": "qwen3-8b", "ep": "1"})])
    assert [x.where == "experts" for x in rows] == [True, False]
