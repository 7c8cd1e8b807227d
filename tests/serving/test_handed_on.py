"""A request that a proxy hands on to a decode server: its client's second request, and the steps that its cache waits
for. Simulated and steady state agree."""

from dataclasses import replace

import pytest

from rooflm.serving.deploy import serve
from rooflm.serving.server import Server

ASK = {"gpu": "h100", "prompt": 2000, "output": 200, "prefill_replicas": 1}


def ttft_of(on: bool, **load: float) -> tuple[float, float]:
    """Mean seconds to the first token, simulated and of the steady state."""
    out = serve("llama-3.1-8b", **ASK, sets={"engine.server.handed_on": on}, **load)
    return out.ttft_s["mean"], float(out.steady.ttft)


def test_a_second_request_costs_what_the_first_does() -> None:
    """A proxy sends the text again, which the decode server's front end takes as well."""
    server = Server(request=0.01, carry=1e-6, front=1e-3, tokenise=3e-6)
    assert server.seen_again(1000) == 0.0
    assert replace(server, handed_on=True).seen_again(1000) == pytest.approx(0.015)


def test_a_lone_request_waits_for_no_step() -> None:
    simulated, steady = ttft_of(True, concurrency=1, requests=5)
    assert simulated == pytest.approx(steady, rel=1e-3)


def test_among_others_a_cache_waits_for_a_step_too() -> None:
    (simulated, steady), (without, _) = (ttft_of(on, rate=4, requests=400) for on in (True, False))
    (lone, _), (lone_without, _) = (ttft_of(on, concurrency=1, requests=5) for on in (True, False))
    assert simulated - without > lone - lone_without > 0
    assert simulated == pytest.approx(steady, rel=0.1)
