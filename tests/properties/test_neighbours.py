"""Servers that no table holds, by their neighbours: cards of a family, releases, engines on a card, more clients."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

from rooflm.asked.build_inference import build_inference
from rooflm.serving.deploy import make_pool, room_for_prompts, server_for
from rooflm.serving.passes import Load
from rooflm.serving.steady import Steady, states

CLIENTS = np.array([1.0, 4.0, 16.0, 64.0, 128.0, 256.0])


class Asked(NamedTuple):
    """A model in a scheme on cards of a tensor group."""

    model: str
    quant: str
    tp: int


DENSE = [Asked("llama-3.3-70b", "fp8", 4), Asked("qwen3-32b", "bf16", 2)]
EXPERTS = [Asked("qwen3-235b-a22b", "fp8-block", 8), Asked("gpt-oss-120b", "mxfp4", 4)]


def served(asked: Asked, gpu: str, engine: str, prompt: int = 1024, output: int = 1024) -> Steady:
    """Steady states of CLIENTS of one instance, with nothing told but the engine's defaults."""
    s = build_inference(prompt=prompt, output=output, gpu=gpu, engine=engine, **asked._asdict()).scenario
    most = int(CLIENTS[-1])
    pool = make_pool(s, room_for_prompts(server_for(s), {}, prompt, most), prompt + output, most)
    return states(pool, Load(prompt, output, CLIENTS, budget=pool.server.budget, tokens=pool.capacity.tokens))


FAMILIES = [  # the newer card's bandwidth over the older one's: no decoding gains more (but for what B300's hosts do)
    ("h100-sxm-80gb", "h200-sxm-141gb", 1.44), ("b200-sxm-180gb", "gb200", 1.11), ("gb200", "gb300", 1.1),
    ("mi300x", "mi325x", 1.17), ("mi350x", "mi355x", 1.15),
]  # fmt: skip


ENGINES = {"mi": ("vllm", "sglang")}
"""Engines by the first letters of a card, where not all three run on it."""


@pytest.mark.parametrize(
    ("older", "newer", "most", "engine"),
    [(*pair, e) for pair in FAMILIES for e in ENGINES.get(pair[0][:2], ("vllm", "sglang", "trtllm"))],
)
@pytest.mark.parametrize("asked", DENSE + EXPERTS)
def test_cards_of_a_family_differ_by_their_rates(
    asked: Asked, older: str, newer: str, most: float, engine: str
) -> None:
    old, new = (served(asked, gpu, engine) for gpu in (older, newer))
    held = np.abs(new.running / old.running - 1) < 0.05  # more memory holds more sequences
    gain = (old.tpot / new.tpot)[held]
    assert gain.size
    assert np.all((gain > 0.97) & (gain < most))


RELEASES = {
    "vllm": ["vllm-0.8", "vllm-0.10.2", "vllm-0.11.1", "vllm-0.14", "vllm-0.17", "vllm-0.18", "vllm-0.19", "vllm",
             "vllm-0.28"],
    "sglang": ["sglang-0.4.5", "sglang-0.4.7", "sglang-0.5.2", "sglang-0.5.4", "sglang-0.5.5", "sglang-0.5.6", "sglang",
               "sglang-0.5.10", "sglang-0.5.14"],
    "trtllm": ["trtllm-1.0", "trtllm"],
}  # fmt: skip


@pytest.mark.parametrize("engine", RELEASES)
@pytest.mark.parametrize("gpu", ["h200-sxm-141gb", "b200-sxm-180gb"])
@pytest.mark.parametrize("asked", DENSE)
def test_releases_that_follow_each_other_are_neighbours(asked: Asked, gpu: str, engine: str) -> None:
    times = [served(asked, gpu, release).tpot[:4] for release in RELEASES[engine]]
    for before, after in itertools.pairwise(times):
        assert np.all((after / before > 1 / 1.5) & (after / before < 1.1))  # a regression of 10 % would be told of


@pytest.mark.parametrize("gpu", ["h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "gb300"])
@pytest.mark.parametrize("asked", [*DENSE, Asked("mixtral-8x7b", "bf16", 4), Asked("qwen3-30b-a3b", "bf16", 2)])
def test_engines_of_one_card_run_like_each_other(asked: Asked, gpu: str) -> None:
    """SGLang's 16-bit experts on Hopper have tiles of their own where it has a file for their shape: without it a
    prompt of Mixtral waited two and a half times as long as in vLLM. On Blackwell it has none for Mixtral, whose
    prompts wait 1.8 times as long (docs/decisions/0531)."""
    runs = [served(asked, gpu, engine, prompt=4096) for engine in ("vllm", "sglang-0.5.10", "trtllm")]
    prompts = 0.8 if (asked.model, gpu) == ("mixtral-8x7b", "b200-sxm-180gb") else 0.75
    for times, rel in (([r.tpot[:4] for r in runs], 0.75), ([r.ttft[:1] for r in runs], prompts)):
        assert np.max(times, axis=0) == pytest.approx(np.min(times, axis=0), rel=rel)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("gpu", ["h200-sxm-141gb", "b200-sxm-180gb"])
@pytest.mark.parametrize("asked", DENSE + EXPERTS)
def test_more_clients_share_what_there_is(asked: Asked, gpu: str, engine: str) -> None:
    state = served(asked, gpu, engine)
    gained = state.requests_per_s[1:] / state.requests_per_s[:-1]
    assert np.all((gained > 0.98) & (gained < 1.02 * CLIENTS[1:] / CLIENTS[:-1]))
    assert np.all(state.tpot[1:] > 0.99 * state.tpot[:-1])
    assert np.all(state.ttft[1:] > 0.97 * state.ttft[:-1])


def held(model: str, engine: str, **given: Any) -> tuple[float, float]:
    """Decoding sequences, and tokens of a pass with prompts, that an engine's graphs hold."""
    host = build_inference(model, gpu="h200", engine=engine, **given).scenario.engine.host
    return float(host.graphed_sequences), float(host.captured)


def test_graphs_of_a_family_that_the_engine_captures_more_for() -> None:
    """vLLM's own limit for gpt-oss; what a server is told counts, and other engines do as they do for any model."""
    assert held("gpt-oss-120b", "vllm-0.11.1") == held("gpt-oss-20b", "vllm") == (1024, 1024)
    assert held("qwen3-32b", "vllm") == (512, 512)
    assert held("gpt-oss-120b", "vllm", sets={"engine.captured": 2048}) == (1024, 2048)
    none = {"engine.captured": 0, "engine.graphed_sequences": 0}
    assert held("gpt-oss-120b", "vllm", sets=none) == (0, 0)
    assert held("gpt-oss-120b", "sglang", tp=4) == (512, 0)


@pytest.mark.parametrize(
    ("release", "gpu", "tp", "share"),
    [("0.4.5", "h100", 8, 0.81), ("0.4.7", "h100", 1, 0.88), ("0.4.7", "h200", 8, 0.872), ("0.5.2", "h100", 8, 0.83),
     ("0.5.2", "h200", 8, 0.887), ("0.5.2", "mi300x", 8, 0.83), ("0.5.2", "rtx-4090", 1, 0.88)],
)  # fmt: skip
def test_sglang_keeps_of_memory_what_its_release_does(release: str, gpu: str, tp: int, share: float) -> None:
    asked = {"gpu": gpu, "engine": f"sglang-{release}", "tp": tp}
    found = build_inference("llama-3.2-1b", **asked).scenario.engine.server.static_fraction
    assert float(np.max(found)) == pytest.approx(share, abs=0.005)
