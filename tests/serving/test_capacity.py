"""KV capacity beside what servers print of theirs when they start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rooflm.asked.build_inference import build_inference
from rooflm.estimate.offloaded import device_part
from rooflm.scenario.scenario import Scenario
from rooflm.serving.capacity import capacity
from rooflm.serving.deploy import server_options


def served(**asked: Any) -> tuple[Scenario, dict[str, Any]]:
    """A scenario as its server runs it, and that server's options."""
    s = build_inference(**asked).scenario
    options = server_options(s.engine, s.cluster.device)
    limits = {"token_budget": options["budget"], "max_sequences": options["max_sequences"]}
    return replace(s, engine=s.engine.but(**limits)), options


def tokens(static: float = 0.0, **asked: Any) -> float:
    """Tokens that fit in a server's KV cache."""
    s, options = served(**asked)
    longest = float(np.max(s.model.max_context))
    return capacity(device_part(s), options["budget"], longest, static).tokens


@pytest.mark.parametrize(
    ("asked", "printed"),
    [  # "max_total_num_tokens" and "#tokens": ai-dynamo/aisimulate, pull request 263; vLLM, issue 21348
        ({"model": "deepseek-ai/DeepSeek-R1", "gpu": "h200", "engine": "sglang", "tp": 8, "static": 0.82}, 509_000),
        ({"model": "Qwen/Qwen3-235B-A22B-FP8", "gpu": "h100", "engine": "sglang", "tp": 4, "static": 0.93}, 367_404),
    ],
)  # fmt: skip
def test_a_static_share_is_of_what_is_free_before_the_weights(asked: dict[str, Any], printed: int) -> None:
    assert tokens(**asked) == pytest.approx(printed, rel=0.02)


@pytest.mark.parametrize(
    ("asked", "printed", "within"),
    [  # "GPU KV cache size": vllm-project/recipes, pull request 115; vLLM, pull request 10511 and issue 13061
        ({"model": "moonshotai/Kimi-K2-Thinking", "gpu": "h200", "engine": "vllm-0.10.2", "tp": 8}, 715_072, 0.03),
        ({"model": "llama-3-8b", "gpu": "h100", "engine": "vllm-2024-11"}, 436_551, 0.03),
    ],
)  # fmt: skip
def test_a_trial_of_sampling_is_kept_free_beside_the_cache(asked: dict[str, Any], printed: int, within: float) -> None:
    assert tokens(**asked) == pytest.approx(printed, rel=within)


def test_sampling_for_every_sequence_takes_the_whole_vocabulary_on_each_rank() -> None:
    s, _ = served(model="minimax-m2", gpu="h100", tp=4, engine="vllm-0.10.2")
    sorting, none = (capacity(replace(s, engine=s.engine.but(sampled=n)), 8192, 8192) for n in (40, 0))
    full = 8192 * float(np.max(s.model.scaled().hidden)) * 2  # at least the residual of a pass is held anyway
    lost = (none.tokens - sorting.tokens) * none.bytes_per_token / 4
    assert 40 * 1024 * s.model.vocab - lost > full
    few = capacity(replace(s, engine=s.engine.but(max_sequences=64)), 8192, 8192)
    assert few == none  # activations of a full pass are more
