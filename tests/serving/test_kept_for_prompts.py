"""Memory that a decode server keeps for prompts which are read elsewhere: they wait for it, and take it from others."""

import random
from typing import Any

import pytest

from rooflm.serving.deploy import Served, serve
from rooflm.serving.replica import FINISHED
from rooflm.serving.schedulers import SCHEDULERS

ASK: dict[str, Any] = {"gpu": "h100", "engine": "sglang", "prefill_replicas": 1, "seed": 1, "spread": (1, 1)}


def loaded(on: bool, tokens: int, **load: Any) -> Served:
    """A load on two pools whose servers hold so many tokens. on: prompts wait for a decode server's memory."""
    sets = {"engine.server.handed_on": not on}
    return serve("llama-3.1-8b", **ASK, sets=sets, options={"cache_blocks": tokens}, **load)


def steady_of(out: Served) -> Any:
    """Its steady state, which it has."""
    assert out.steady is not None
    return out.steady


def test_prompts_wait_for_memory_of_a_decode_server() -> None:
    """What is kept for prompts on their way cannot decode: fewer run, and fewer requests a second are served."""
    load = {"prompt": 8000, "output": 200, "concurrency": 24, "requests": 120}
    kept, handed = (loaded(on, 60_000, **load) for on in (True, False))
    assert kept.requests_per_s < 0.95 * handed.requests_per_s
    assert set(kept.run.records.status) == {FINISHED}
    decoding = kept.run.replicas[-1]
    assert decoding.kv.peak <= 60_000 and not decoding.reserved and not decoding.asking


@pytest.mark.parametrize("tokens", [60_000, 1_000_000])
def test_the_steady_state_knows_of_it(tokens: int) -> None:
    out = loaded(True, tokens, prompt=8000, output=200, concurrency=24, requests=240)
    assert float(steady_of(out).requests_per_s) == pytest.approx(out.requests_per_s, rel=0.15)


def test_among_others_a_prompt_waits_for_half_a_step() -> None:
    """Memory is given between two steps of those that decode, and at once where none do."""
    alone = loaded(True, 500_000, prompt=500, output=200, concurrency=1, requests=5)
    others = loaded(True, 500_000, prompt=500, output=200, rate=8, requests=400)
    assert alone.ttft_s["mean"] == pytest.approx(float(steady_of(alone).ttft), rel=1e-3)
    assert others.ttft_s["mean"] == pytest.approx(float(steady_of(others).ttft), rel=0.1)


def test_a_steady_state_keeps_no_more_than_there_is() -> None:
    """Of a rate, too: kept memory bounds what can be served; prompts of one token need none."""
    over, under = (loaded(True, 60_000, prompt=8000, output=200, rate=rate, requests=300) for rate in (3.6, 2.0))
    assert not steady_of(over).stable and steady_of(under).stable
    assert float(steady_of(over).requests_per_s) == pytest.approx(over.requests_per_s, rel=0.05)
    assert float(steady_of(under).requests_per_s) == 2.0
    one = loaded(True, 30_000, prompt=8000, output=1, concurrency=64, requests=300)
    assert float(steady_of(one).requests_per_s) == pytest.approx(one.requests_per_s, rel=0.05)


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
@pytest.mark.parametrize("policy", ["fcfs", "shortest"])
def test_whoever_has_its_memory_gets_in(scheduler: str, policy: str) -> None:
    """Also where a scheduler wants room for all that is still to come, which others' kept memory takes."""
    options = {"scheduler": scheduler, "policy": policy, "cache_blocks": 9000}
    load: dict[str, Any] = {"prompt": 1000, "output": 1500, "concurrency": 30, "requests": 60}
    out = serve("llama-3.1-8b", **{**ASK, "spread": (0.2, 1.8)}, options=options, **load)
    assert set(out.run.records.status) == {FINISHED}
    assert not out.run.replicas[-1].reserved and out.run.replicas[-1].kv.used == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("scheduler", ["continuous", "in-flight", "prefill-first", "prompts-first"])
@pytest.mark.parametrize("prefix", [0, 100])
def test_no_more_memory_is_taken_than_there_is(scheduler: str, prefix: int) -> None:
    """Under stress: little more than one request's memory, many prompts on their way, sequences that lose theirs and
    come back over what is kept for others."""
    draw, preempted = random.Random(7), 0
    for _ in range(40):
        prompt, output = draw.choice([1000, 4000, 8000]), draw.choice([300, 1500, 4000])
        options: dict[str, Any] = {
            "scheduler": scheduler, "policy": draw.choice(["fcfs", "shortest"]), "speculative": draw.choice([0, 3]),
            "cache_blocks": int((prompt + output) * draw.choice([1.9, 2.5, 4.0])), "lookahead": draw.choice([0, 1]),
            "preemption": draw.choice(["swap", "recompute"]), "prefix_caching": prefix > 0,
        }  # fmt: skip
        load = draw.choice([{"concurrency": 30}, {"concurrency": 6}, {"rate": 1.0}, {"rate": 4.0}])
        ask = {**ASK, "spread": (0.1, 1.9), "prefill_replicas": draw.choice([2, 4]), "seed": draw.randrange(99), **load}
        out = serve(
            "llama-3.1-8b", **ask, options=options, prompt=prompt, output=output, shared_prefix=prefix, requests=60
        )
        decoding = out.run.replicas[-1]
        assert decoding.kv.peak <= decoding.kv.capacity * (1 + 1e-9)
        assert set(out.run.records.status) == {FINISHED}
        assert not decoding.reserved and not decoding.asking and not decoding.taken
        preempted += decoding.meter.preemptions
    assert preempted > 100


def test_a_request_of_one_token_needs_no_decode_server() -> None:
    out = loaded(True, 100_000, prompt=1000, output=1, concurrency=8, requests=40)
    assert set(out.run.records.status) == {FINISHED}
