"""What is fitted of engines under load: few constants, of one engine or of all, and no engine's own moves another's."""

from __future__ import annotations

import numpy as np
import pytest

from rooflm import infer
from rooflm.estimate.step import issue_time
from rooflm.readers.devices import load_cluster
from rooflm.readers.engines import load_engine
from rooflm_fit.serving_constants import COMMON, OWN, PRIORS, start


def test_what_is_common_moves_every_engine_and_what_is_own_moves_one() -> None:
    theta = start(("vllm", "sglang"))
    assert set(theta.names) == {(e, n) for e in ("vllm", "sglang") for n in OWN} | {("", n) for n in COMMON}
    for j, (whose, name) in enumerate(theta.names):
        for engine in ("vllm", "sglang"):
            before, after = theta.constants(engine), theta.bumped(j).constants(engine)
            moved = {n for n in before if after[n] != before[n]}
            assert moved == ({name} if whose in ("", engine) else set())


def test_an_engine_that_nobody_measured_stands_at_the_priors() -> None:
    theta = start(("vllm",))._replace(logs=np.array([0.2] * len(OWN) + [0.0] * len(COMMON)))
    found = theta.constants("nobody")
    assert {n: found[n] for n in PRIORS} == {n: p.value for n, p in PRIORS.items()}


@pytest.mark.parametrize("name", ["vllm", "trtllm", "sglang"])
def test_shipped_rows_share_what_is_not_their_own(name: str) -> None:
    row, first = load_engine(name), load_engine("vllm")
    for field in PRIORS:
        if field not in OWN:
            assert row.value(field) == first.value(field), field


def test_prompts_of_current_releases_run_in_graphs() -> None:
    new, old = load_engine("sglang-0.5.10"), load_engine("sglang")
    one, other = ([float(issue_time(e, n, e.host.captured)) for n in (1024, 8192)] for e in (new, old))
    assert one[0] < other[0] and one[1] == other[1] and new.runs == old.runs


def test_prompts_are_launched_from_python_by_servers_of_today_and_not_by_engines_in_cpp() -> None:
    assert all(load_engine(name).host.eager > 2e-5 for name in ("vllm", "trtllm", "sglang"))
    assert not any(load_engine(name).host.eager for name in ("trtllm-2024", "trtllm-0.17", "trtllm-0.9", "vllm-2024"))


def test_a_machine_whose_hosts_launch_faster_shows_the_first_token_earlier() -> None:
    """B300's machines: first tokens of GLM-5 with 1,024 tokens 0.53 of B200's, in one build of SGLang."""
    slow, fast = (load_cluster(name, "b200-sxm-180gb") for name in ("dgx-b200", "dgx-b300"))
    assert (slow.launching, fast.launching) == (1.0, 0.5)
    e = load_engine("sglang")
    assert issue_time(e, 1024, 0, 0.3, fast.launching) == 0.5 * issue_time(e, 1024, 0, 0.3, slow.launching)
    first = [infer("glm-5", gpu="b200", cluster=c, tp=8, quant="fp8-block", prompt=1024, engine="sglang")
             for c in ("dgx-b200", "dgx-b300")]  # fmt: skip
    assert float(first[1].ttft) < 0.75 * float(first[0].ttft) and float(first[1].tpot) == float(first[0].tpot)


def test_a_decoding_pass_that_no_graph_holds_is_launched_from_python() -> None:
    held, more = (infer("deepseek-r1", gpu="h200", tp=8, batch=n, prompt=200, engine="sglang") for n in (512, 520))
    assert float(more.tpot) > 1.2 * float(held.tpot)
    alike = [infer("deepseek-r1", gpu="h200", tp=8, batch=n, prompt=200, engine="trtllm") for n in (512, 520)]
    assert float(alike[1].tpot) < 1.1 * float(alike[0].tpot)
