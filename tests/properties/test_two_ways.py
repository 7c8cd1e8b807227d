"""Under load there are two ways to an answer, the steady state and the simulation: they say the same."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rooflm.asked.build_inference import build_inference
from rooflm.serving import workload
from rooflm.serving.deploy import Served, deploy, serve
from rooflm.serving.passes import Load
from rooflm.serving.steady import Steady, states

ENGINES = ("vllm", "sglang", "trtllm", "vllm-0.6")
LENGTHS = ((1024, 128), (1024, 512), (8000, 16), (9000, 200), (128, 512))
RANKS: dict[str, Any] = {"dp": 8, "ep": 8, "quant": "fp8"}
FIELDS = ("ttft", "tpot", "requests_per_s")


def ratios(served: Served) -> list[float]:
    """TTFT, TPOT and requests/s of the steady state over those of the simulation."""
    v, s = served.summary.values, served.steady
    assert s is not None
    simulated = (v["ttft_s"]["mean"], v["tpot_s"]["mean"], v["requests_per_s"])
    return [got / said for got, said in zip((s.ttft, s.tpot, s.requests_per_s), simulated, strict=True)]


def off(ratio: float) -> float:
    """A ratio as the factor by which two numbers differ."""
    return max(ratio, 1 / ratio)


@pytest.mark.parametrize("spread", [(1.0, 1.0), (0.8, 1.2)], ids=["equal lengths", "spread"])
@pytest.mark.parametrize("engine", ENGINES)
def test_steady_state_and_simulation_are_one_answer(engine: str, spread: tuple[float, float]) -> None:
    """First tokens within a factor of 1.45 everywhere and 1.2 in half of the cases; TPOT and throughput 1.35, 1.05."""
    found = [
        ratios(serve("llama-3.1-8b", gpu="h100", engine=engine, prompt=prompt, output=output, concurrency=clients,
                     requests=6 * clients, warmup=clients, spread=spread))
        for prompt, output in LENGTHS for clients in (4, 24, 150)
    ]  # fmt: skip
    for which, most, median in zip(zip(*found, strict=True), (1.45, 1.35, 1.35), (1.2, 1.05, 1.05), strict=True):
        apart = sorted(off(r) for r in which)
        assert apart[-1] < most and apart[len(apart) // 2] < median


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize(("prompt", "output"), [(1024, 256), (9000, 256)])
def test_ranks_of_attention_are_one_answer_too(engine: str, prompt: int, output: int) -> None:
    for clients, spread in ((24, (1.0, 1.0)), (200, (1.0, 1.0)), (24, (0.8, 1.2)), (200, (0.8, 1.2))):
        served = serve("deepseek-v3", gpu="h200", engine=engine, prompt=prompt, output=output, concurrency=clients,
                       requests=5 * clients, warmup=clients, spread=spread, **RANKS)  # fmt: skip
        assert all(off(r) < 1.45 for r in ratios(served))


def test_clients_in_step_wait_longer_the_nearer_their_outputs_are_alike() -> None:
    """They part with their outputs: first tokens come sooner, at the same throughput, without a jump."""
    ask: dict[str, Any] = {"gpu": "h100", "prompt": 1024, "output": 512, "concurrency": 64, "requests": 640}
    found = [serve("llama-3.1-8b", **ask, warmup=64, spread=(1 - w, 1 + w)).steady for w in (0.0, 0.01, 0.05, 0.2)]
    times = [s.ttft for s in found if s]
    assert times == sorted(times, reverse=True) and times[0] > 3 * times[-1]
    rates = [s.requests_per_s for s in found if s]
    assert max(rates) < 1.05 * min(rates)


def test_whole_prompts_as_long_as_the_budget_wait_for_those_that_decode() -> None:
    """TensorRT-LLM without chunks: beside who decodes there is no room for such a prompt, so they go one by one."""
    ask: dict[str, Any] = {"gpu": "h100", "engine": "trtllm", "output": 100, "concurrency": 16, "requests": 160}
    for prompt in (8000, 8192):
        served = serve("llama-3.1-8b", prompt=prompt, **ask, options={"budget": 8192, "scheduler": "in-flight"})
        assert all(off(r) < 1.2 for r in ratios(served))


@pytest.mark.parametrize("apart", [0.0, math.inf])
@pytest.mark.parametrize("engine", ENGINES)
def test_no_answer_jumps_from_one_client_to_the_next(engine: str, apart: float) -> None:
    """No more than 1.5 times the neighbour, but where clients begin to meet (one to four), where one more does not fit
    the memory or the limit of running sequences, and where a batch leaves the CUDA graphs (256)."""
    request = build_inference(model="llama-3.1-8b", gpu="h200", engine=engine, prompt=10000, output=300)
    pool = deploy(request, workload.closed_loop(512, prompt=10000, output=300)).pools[0]
    load = Load(1.0, 1.0, np.arange(4.0, 513.0), 0.0, 0.0, pool.server.budget, pool.capacity.tokens, apart=apart)
    for prompt, output in ((1024.0, 128.0), (8192.0, 200.0), (9000.0, 200.0), (128.0, 300.0)):
        found: Steady = states(pool, replace(load, prompt=prompt, output=output))
        fit = min(pool.capacity.tokens / (prompt + output), pool.server.max_sequences)
        smooth = (abs(load.clients[1:] / fit - 1) > 0.1) & (abs(load.clients[1:] - 257) > 1)
        for name in FIELDS:
            steps = getattr(found, name)[1:] / getattr(found, name)[:-1]
            assert np.all(np.maximum(steps, 1 / steps)[smooth] < 1.5), (prompt, output, name)


@pytest.mark.parametrize("clients", [2.0, 16.0, 64.0])
@pytest.mark.parametrize("engine", ENGINES)
def test_no_answer_jumps_where_a_prompt_passes_the_budget(engine: str, clients: float) -> None:
    request = build_inference(model="llama-3.1-8b", gpu="h200", engine=engine, prompt=10000, output=300)
    pool = deploy(request, workload.closed_loop(512, prompt=10000, output=300)).pools[0]
    for apart in (0.0, math.inf):
        load = Load(1.0, 200.0, np.array([clients]), 0.0, 0.0, pool.server.budget, pool.capacity.tokens, apart=apart)
        found = [states(pool, replace(load, prompt=float(prompt))) for prompt in range(7900, 8500, 50)]
        for name in FIELDS:
            values = np.array([float(getattr(s, name)[0]) for s in found])
            assert np.all(np.maximum(values[1:] / values[:-1], values[:-1] / values[1:]) < 1.5), name
