"""What is fitted of engines under load: few constants, of one engine or of all, and no engine's own moves another's."""

from __future__ import annotations

import numpy as np
import pytest

from rooflm import infer
from rooflm.asked.build_inference import build_inference
from rooflm.estimate.step import EagerShares, captured, issue_time
from rooflm.readers.devices import load_cluster
from rooflm.readers.engines import load_engine
from rooflm_fit.serving_constants import COMMON, OWN, PRIORS, by_hand, start


def test_what_is_common_moves_every_engine_and_what_is_own_moves_one() -> None:
    theta = start(("vllm", "sglang"))
    assert set(theta.names) == {("sglang", n) for n in OWN} | {("", n) for n in COMMON}
    for j, (whose, name) in enumerate(theta.names):
        for engine in ("vllm", "sglang"):
            before, after = theta.constants(engine), theta.bumped(j).constants(engine)
            moved = {n for n in before if after[n] != before[n]}
            stays = name in by_hand(engine) or (not whose and (engine, name) in theta.names)
            assert moved == ({name} if whose in ("", engine) and not stays else set())


def test_an_engine_that_nobody_measured_stands_at_the_priors() -> None:
    theta = start(("sglang",))._replace(logs=np.array([0.0] * len(COMMON) + [0.2] * len(OWN)))
    found = theta.constants("trtllm")
    assert {n: found[n] for n in PRIORS} == {n: p.value for n, p in PRIORS.items()}


@pytest.mark.parametrize("name", ["vllm", "trtllm", "sglang"])
def test_shipped_rows_share_what_is_not_their_own(name: str) -> None:
    row, first = load_engine(name), load_engine("trtllm")
    for field in PRIORS:
        if (field not in OWN or row.host.gap < 0) and field not in by_hand(name):
            assert row.value(field) == first.value(field), field


def test_prompts_of_current_releases_run_in_graphs() -> None:
    new, old = load_engine("sglang-0.5.10"), load_engine("sglang")
    latent, other = (build_inference(m, gpu="h100", gpus=8).scenario for m in ("deepseek-v3", "qwen3-235b-a22b"))
    late, mid, early = (
        [float(issue_time(e, n, captured(e.host, m))) for n in (1024, 8192)]
        for e, m in ((new, other), (new, latent), (old, latent))
    )
    assert mid[0] < early[0] and mid[1] == early[1] and new.runs == old.runs  # of latent attention 2,048 tokens
    assert late[0] == late[1] == mid[0]  # of others a whole chunk
    slow, fast = (infer("qwen3-235b-a22b", gpu="h200", tp=8, quant="fp8-block", batch=4, prompt=1024, engine=e)
                  for e in ("sglang", "sglang-0.5.10"))  # fmt: skip
    assert float(fast.ttft) < 0.85 * float(slow.ttft)


def test_prompts_are_launched_from_python_by_servers_of_today_and_not_by_engines_in_cpp() -> None:
    assert all(load_engine(name).host.eager > 2e-5 for name in ("vllm", "trtllm", "sglang"))
    assert not any(load_engine(name).host.eager for name in ("trtllm-2024", "trtllm-0.17", "trtllm-0.9"))


def test_a_machine_whose_hosts_launch_faster_shows_the_first_token_earlier() -> None:
    """A campaign's B300: first tokens of GLM-5 with 1,024 tokens 0.53 of its B200's, in one build of SGLang."""
    assert all(load_cluster(name, "b300-sxm-288gb").launching == 1 for name in ("dgx-b300", "aws-p6-b300"))
    e = load_engine("sglang")
    each = [issue_time(e, 1024, 0, EagerShares(0.3), launching) for launching in (1.0, 0.5)]
    assert each[1] == 0.5 * each[0]
    first = [infer("glm-5", gpu="b200", tp=8, quant="fp8-block", prompt=1024, engine="sglang",
                   sets={"cluster.launching": launching}) for launching in (1.0, 0.5)]  # fmt: skip
    assert float(first[1].ttft) < 0.75 * float(first[0].ttft) and float(first[1].tpot) == float(first[0].tpot)


def test_a_desktops_server_answers_sooner_and_steps_alike() -> None:
    """vLLM 0.31 on RTX 4090 behind a Ryzen 9 7950X and an EPYC 7642: first tokens 12 and 20 ms, steps 3.5 and 3.6."""
    first = [infer("llama-3.2-1b", gpu="rtx-4090", prompt=512, engine="vllm", cluster=cluster)
             for cluster in ("desktop", "pcie4-8-staged")]  # fmt: skip
    assert float(first[0].ttft) < 0.9 * float(first[1].ttft) and float(first[0].tpot) == float(first[1].tpot)


def test_so_do_engines_without_any_graph() -> None:
    """Down to 9.6 us a kernel, which PyTorch takes to issue it: 11.4 is what Python takes on either's hosts."""
    lone = [infer("llama-3.2-1b", gpu="b200", prompt=128, engine="hf-eager", sets={"cluster.launching": launching})
            for launching in (1.0, 0.5)]  # fmt: skip
    assert float(lone[1].tpot) < 0.9 * float(lone[0].tpot) and float(lone[1].ttft) < 0.9 * float(lone[0].ttft)


def test_a_decoding_pass_that_no_graph_holds_is_launched_from_python() -> None:
    """Steps of DeepSeek-V2-Lite without graphs took 25 to 31 ms (SGLang's pull request 1401 and issue 1369); a launch,
    fitted to prompts of 2026, makes them 13 % longer than that."""
    held, more = (infer("deepseek-r1", gpu="h200", tp=8, batch=n, prompt=200, engine="sglang") for n in (512, 520))
    assert 1.2 * float(held.tpot) < float(more.tpot) < 2.5 * float(held.tpot)
    small = infer("deepseek-v2-lite", gpu="a100", batch=2, prompt=128, output=8, engine="sglang",
                  sets={"engine.graphed_sequences": 1})  # fmt: skip
    assert 0.025 < float(small.tpot) < 1.13 * 0.031
    dear = {"engine.eager_experts": 1e-3}  # what kernels of experts cost in passes with prompts
    assert infer("deepseek-r1", gpu="h200", tp=8, batch=520, prompt=200, engine="sglang", sets=dear).tpot == more.tpot
    alike = [infer("deepseek-r1", gpu="h200", tp=8, batch=n, prompt=200, engine="trtllm") for n in (512, 520)]
    assert float(alike[1].tpot) < 1.1 * float(alike[0].tpot)


@pytest.mark.parametrize("name", ["vllm-2024", "atom", "exllamav3", "tgi", "lmdeploy"])
def test_the_limit_of_graphs_holds_for_engines_that_state_it(name: str) -> None:
    assert load_engine("vllm").host.graphed_sequences == 512 and load_engine(name).host.graphed_sequences == np.inf
