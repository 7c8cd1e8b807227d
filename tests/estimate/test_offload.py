"""Layers and experts in the host's memory, by hand count and as people at home measure them."""

from __future__ import annotations

import numpy as np
import pytest

import rooflm
from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model
from rooflm.scenario.offload import Offload, on_device
from rooflm.search.serve_command import start_of

DRAWN = 0.44 * 89.6e9
"""What layers on a CPU draw of two channels of DDR5-5600 (decision 296)."""
HOME = {"gpu": "rtx-4090", "quant": "q4_k_m", "batch": 1}


def test_half_of_a_70b_by_hand() -> None:
    """45 of 80 layers of 0.855 G parameters at 4.8 bits are 23.1 GB, read in 586 ms a token at the 0.44
    of 89.6 GB/s that a CPU's products draw."""
    whole = rooflm.infer("llama-3.1-70b", **HOME)
    e = rooflm.infer("llama-3.1-70b", cpu_layers=45, **HOME)
    assert not whole.fits and e.fits
    assert e.decode_parts["host layers"] == pytest.approx(45 * 0.8556e9 * 0.6 / DRAWN, rel=0.02)
    assert e.tpot == pytest.approx(e.decode_parts["host layers"] + whole.tpot * 35 / 80, rel=0.06)
    assert sum(e.decode_parts.values()) == pytest.approx(e.tpot)
    assert e.memory.parts["kv_cache"] == pytest.approx(whole.memory.parts["kv_cache"] * 35 / 80)
    faster = rooflm.infer("llama-3.1-70b", cpu_layers=45, host_bandwidth="179.2GB/s", **HOME)
    assert faster.decode_parts["host layers"] == pytest.approx(e.decode_parts["host layers"] / 2)
    whole_rate = rooflm.infer("llama-3.1-70b", cpu_layers=45, sets={"engine.cpu_share": 1.0}, **HOME)
    assert whole_rate.decode_parts["host layers"] == pytest.approx(e.decode_parts["host layers"] * 0.44)


def test_the_hosts_cpu_draws_while_it_works() -> None:
    """100 W of the host's seconds beside the card's own joules; none where chip and memory are one."""
    e = rooflm.infer("llama-3.1-70b", cpu_layers=45, **HOME)
    quiet = rooflm.infer("llama-3.1-70b", cpu_layers=45, sets={"offload.power": 0}, **HOME)
    seconds = e.prefill_parts["host layers"] + 127 * e.decode_parts["host layers"]
    assert 128 * (e.energy_per_token - quiet.energy_per_token) == pytest.approx(100 * seconds)
    assert e.power == pytest.approx(quiet.power + 100 * seconds / e.latency) and e.power > 100
    pair = [rooflm.infer("llama-3.1-70b", cpu_layers=45, **{**HOME, "gpus": 2, "dp": 2, "batch": 2},
                         sets={"offload.power": w}) for w in (0, 100)]  # fmt: skip
    assert pair[1].energy_per_token - pair[0].energy_per_token == pytest.approx(100 * seconds / 128)
    mac = {"cpu_layers": 8, "gpu": "m3-max", "quant": "q4_k_m", "engine": "llama.cpp-metal"}
    same = [rooflm.infer("llama-3.1-8b", sets={"offload.power": w}, **mac).power for w in (0, 100)]
    assert same[0] == same[1]


def test_a_server_counts_the_hosts_cpu_too() -> None:
    served = [rooflm.serve("llama-3.1-8b", gpu="rtx-4090", quant="q4_k_m", engine="llama.cpp", cpu_layers=16,
                           concurrency=1, requests=20, sets={"offload.power": w}).summary.values
              for w in (0, 100)]  # fmt: skip
    more = served[1]["energy_j_per_token"] - served[0]["energy_j_per_token"]
    each = rooflm.infer("llama-3.1-8b", cpu_layers=16, engine="llama.cpp", **HOME).decode_parts["host layers"]
    assert more == pytest.approx(100 * each, rel=0.15)


def test_the_device_has_the_other_layers() -> None:
    assert on_device(load_model("llama-7b"), Offload(8)).layers == 24


def test_the_last_guessed_token_takes_as_long_as_the_first() -> None:
    """Two output tokens have one decode step: its mean is its end, the host's seconds shared by the tokens gained."""
    guessed = {"engine": "llama.cpp", "guesses": 2, "draft": "llama-3.2-1b", "output": 2, **HOME}
    e = rooflm.infer("llama-3.1-70b", cpu_layers=45, **guessed)
    assert e.tpot_end == pytest.approx(e.tpot, rel=1e-12)


def test_experts_on_the_cpu() -> None:
    """gpt-oss-120b with all experts in the host's memory: 4 of 128 experts of 36 layers of 24.9 M parameters at 4.25
    bits are 1.9 GB a token: some 20 tokens/s, and attention alone on the card."""
    e = rooflm.infer("gpt-oss-120b", gpu="rtx-4090", engine="llama.cpp", cpu_experts=36)
    assert e.fits and e.memory.parts["weights"] < 4e9
    assert e.decode_parts["host layers"] == pytest.approx(36 * 4 * 3 * 2880**2 * 4.25 / 8 / DRAWN, rel=0.02)
    many = rooflm.infer("gpt-oss-120b", gpu="rtx-4090", engine="llama.cpp", cpu_experts=36, batch=16)
    assert many.decode_parts["host layers"] > 8 * e.decode_parts["host layers"]


def test_a_grid_and_bands_and_what_is_refused() -> None:
    grid = rooflm.infer("llama-3.1-70b", cpu_layers=[0, 20, 45], **HOME)
    assert np.all(np.diff(grid["tpot_s"].values) > 0) and np.all(np.diff(grid["memory_bytes"].values) < 0)
    assert grid["tpot_s"].values[0] == pytest.approx(rooflm.infer("llama-3.1-70b", **HOME).tpot, rel=1e-12)
    whole, some = (rooflm.infer("llama-3.1-70b", cpu_layers=n, **HOME) for n in (0, 45))
    spreads = [e.error_band["tpot_s"]["high"] / e.error_band["tpot_s"]["low"] for e in (whole, some)]
    assert spreads[1] > spreads[0]
    with pytest.raises(RooflmError, match="runs nothing on the host"):
        rooflm.infer("llama-3.1-8b", gpu="rtx-4090", engine="vllm", cpu_layers=4)
    with pytest.raises(RooflmError, match="80 layers, of which the device holds at least one"):
        rooflm.infer("llama-3.1-70b", cpu_layers=80, **HOME)


@pytest.mark.parametrize(("model", "name"), [("llama-3.1-70b", "cpu_layers"), ("qwen3-30b-a3b", "cpu_experts")])
def test_the_verdict_names_it(model: str, name: str) -> None:
    home = {**HOME, "gpu": "rtx-3060-12gb"}
    found = [r for r in rooflm.infer(model, **home).would_fit if name in r.change]
    assert len(found) == 1 and found[0].change[name] > 1
    assert rooflm.infer(model, **home, **found[0].change).fits
    assert not rooflm.infer(model, **home, **{name: found[0].change[name] - 1}).fits


def test_served_and_searched_as_predicted() -> None:
    """One client alone is the batch of one; searches choose how many layers stay, and print what starts that."""
    given = {"gpu": "rtx-4090", "quant": "q4_k_m", "engine": "llama.cpp", "prompt": 512, "output": 64}
    e = rooflm.infer("llama-3.1-70b", cpu_layers=45, batch=1, **given)
    served = rooflm.serve("llama-3.1-70b", cpu_layers=45, concurrency=1, requests=3, **given).values()
    assert served["tpot_s"]["mean"] == pytest.approx(e.tpot, rel=1e-3)
    assert served["ttft_s"]["mean"] == pytest.approx(e.ttft, rel=0.01)
    given |= {"gpus": 1, "objective": "tpot"}
    found = rooflm.search_infer("llama-3.1-70b", cpu_layers=[30, 40, 50], batch=1, **given)
    assert found.best is not None and found.best.inputs["cpu_layers"] == 40
    begun = start_of("llama-3.1-70b", found, {"prompt": 512, "output": 64, **given})
    assert begun is not None and "--n-gpu-layers 40 " in begun.text
    loaded = rooflm.search_serve("llama-3.1-70b", cpu_layers=[30, 45], concurrency=1, confirm=1, **given)
    assert loaded.best is not None and loaded.best.inputs["cpu_layers"] == 45
    assert loaded.confirmed[0].served.values()["tpot_s"]["mean"] == pytest.approx(e.tpot, rel=0.01)


def test_experts_on_the_cpu_are_told_to_the_server() -> None:
    for more in ({"engine": "llama.cpp"}, {}):  # the engine that is assumed is the one that starts
        given = {"gpu": "rtx-4090", "cpu_experts": 30, "batch": 1, **more}
        found = rooflm.search_infer("gpt-oss-120b", gpus=1, **given)
        begun = start_of("gpt-oss-120b", found, {"prompt": 512, "output": 128, **given})
        assert begun is not None and "--n-gpu-layers 999 --n-cpu-moe 30 " in begun.text
        assert "llama-quantize gpt-oss-120b-F16.gguf gpt-oss-120b-MXFP4_MOE.gguf MXFP4_MOE" in begun.note


@pytest.mark.parametrize("model", ["bge-m3", "falcon-h1-7b", "qwen3-30b-a3b"])
def test_models_of_every_kind_run_on_the_host(model: str) -> None:
    """One that embeds, one whose layers are two blocks each, one of experts: an answer, and what bounds it."""
    e = rooflm.infer(model, gpu="rtx-4090", engine="llama.cpp", quant="q8_0", cpu_layers=3)
    assert e.host_memory > 0 and set(e.bound) <= {"prefill", "decode"} and "The host holds" in str(e)


def test_what_the_host_holds_is_the_rest_of_the_model() -> None:
    """Device and host hold the weights of the whole together; where most of a step is the host's it is what bounds."""
    asked = {"gpu": "rtx-4090", "engine": "llama.cpp", "quant": "q4_k_m", "prompt": 512, "output": 128}
    whole = rooflm.infer("llama-3.3-70b", **asked)
    split = rooflm.infer("llama-3.3-70b", cpu_layers=40, **asked)
    held = ("weights", "kv_cache")
    assert split.host_memory + sum(split.memory.parts[k] for k in held) == pytest.approx(
        sum(whole.memory.parts[k] for k in held), rel=0.02)  # fmt: skip
    assert split.bound["decode"] == "host layers" and "The host holds 19." in str(split)
    assert whole.host_memory == 0 and "The host holds" not in str(whole)
    grid = rooflm.infer("llama-3.3-70b", cpu_layers=[0, 40], **asked)
    assert grid["host_memory_bytes"].values.tolist() == [0.0, split.host_memory]
