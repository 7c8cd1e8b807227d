"""What wide sweeps found (docs/decisions/0553): power, few rows, windows, servers' energy, beside what bounds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.readers.devices import load_device

ROWS = [1, 2, 4, 8, 9, 12, 16, 17, 32, 33, 64, 128, 256]


@pytest.mark.parametrize("engine", ["exllamav2", "mlc"])
@pytest.mark.parametrize("gpu", ["rtx-3090", "rtx-4090", "rtx-5090"])
def test_sums_of_16_bits_draw_no_more_than_the_card_may(gpu: str, engine: str) -> None:
    """They go at twice a GeForce's peak, by which power was counted: 840 W of 575."""
    points: Any = {"engine": engine, "quant": "bf16", "batch": [1, 64, 1024], "prompt": [128, 8192]}
    power = rooflm.infer("llama-3.1-8b", gpu=gpu, outputs=["power_w"], **points)["power_w"].values
    assert (power <= load_device(gpu).tdp).all()


def rate(model: str, **points: Any) -> Any:
    """Tokens a second by batch of ROWS."""
    r = rooflm.infer(model, batch=ROWS, prompt=1, output=32, outputs=["tpot_s"], **points)
    return np.array(ROWS) / r["tpot_s"].values


@pytest.mark.parametrize("quant", ["bf16", "q8_0", "q4_k_m", "iq4_xs"])
@pytest.mark.parametrize("gpu", ["core-i9-14900k", "epyc-9654", "ryzen-9-7950x", "raspberry-pi-5-8gb"])
def test_a_cpu_has_no_tiles_to_fill(gpu: str, quant: str) -> None:
    """Nine rows took a 14900K 16 times as long a token as eight."""
    found = rate("llama-3.1-8b", gpu=gpu, engine="llama.cpp", quant=quant)
    assert (found[1:] > 0.97 * found[:-1]).all()


@pytest.mark.parametrize("gpu", ["rtx-3090", "rtx-4090"])
def test_exllamav3_reads_weights_once_for_16_rows(gpu: str) -> None:
    """It spreads them from 145 rows on, where that is as fast; from nine on it did here, at a quarter of the rate."""
    found = dict(zip(ROWS, rate("llama-3.1-8b", gpu=gpu, engine="exllamav3", quant="w4a16"), strict=True))
    assert found[9] > found[8] and found[16] > 1.7 * found[8] and 0.5 < found[17] / found[16] < 0.8
    near = rooflm.infer("llama-3.1-8b", gpu=gpu, engine="exllamav3", quant="w4a16", batch=[144, 145], prompt=1)
    assert 0.7 < near["tpot_s"].values[0] / near["tpot_s"].values[1] < 1


@pytest.mark.parametrize("model", ["gemma-3-27b", "gpt-oss-20b", "gemma-4-31b", "llama-3.1-8b", "deepseek-v3"])
@pytest.mark.parametrize("engine", ["megatron", "megatron-2021", "torchtitan"])
def test_no_step_uses_more_than_there_is(engine: str, model: str) -> None:
    """A window's pairs were counted as the square of the sequence: Gemma 3 had an MFU of 2.3 at 262,144 tokens."""
    points: Any = {"gpus": 8, "batch": 64, "seq": [1024, 16384, 262144], "recompute": ["none", "selective", "full"]}
    r = rooflm.train(model, gpu="h100", engine=engine, **points)
    assert (r["hfu"].values < 1).all() and (r["mfu"].values <= r["hfu"].values * (1 + 1e-9)).all()
    assert (r["mfu_causal"].values <= r["mfu"].values * (1 + 1e-9)).all()
    assert (r["mfu"].values < 2 * r["mfu_causal"].values * (1 + 1e-9)).all()


def test_scores_that_no_tensor_core_takes_are_told() -> None:
    """Only where attention has no flash kernel."""
    points: Any = {"gpu": "h100", "gpus": 8, "batch": 64}
    found = {(e, n): rooflm.train("llama-3.1-8b", engine=e, seq=n, **points).warnings
             for e in ("megatron-2021", "megatron") for n in (4096, 4097)}  # fmt: skip
    told = {k for k, warnings in found.items() if any("no multiple of 8" in w for w in warnings)}
    assert told == {("megatron-2021", 4097)}


@pytest.mark.parametrize(
    ("model", "gpu", "quant"),
    [("llama-3.1-8b", "h100", "bf16"), ("gpt-oss-120b", "b200", "mxfp4"), ("qwen3-30b-a3b", "h200", "bf16")],
)
@pytest.mark.parametrize("clients", [1, 16, 64])
def test_a_server_takes_the_energy_of_a_batch(model: str, gpu: str, quant: str, clients: int) -> None:
    """And no more than its longer time accounts for: a line through all numbers of sequences had 1.27 times that."""
    points: Any = {"gpu": gpu, "quant": quant, "prompt": 1024, "output": 1024}
    batch = rooflm.infer(model, batch=clients, **points).values(None)
    served = rooflm.serve(model, concurrency=clients, **points).to_dict()
    more = served["cost_usd_per_million_tokens"] / batch["cost_usd_per_million_tokens"]
    assert 0.98 < served["energy_j_per_token"] / batch["energy_j_per_token"] < 1.02 * more
