"""What is worked out once for a deployed model: the same for the same names, anew for a file that changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.asked import build_inference as built
from rooflm.asked.build_inference import build_inference
from rooflm.errors import RooflmError
from rooflm.scenario import kept as keeper
from rooflm.scenario.mapping import Mapping


def test_a_deployment_of_names_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_inference("llama-7b", gpu="a100", tp=2, batch=4)
    monkeypatch.setattr(built, "deployed", None)  # not called again
    again = build_inference("llama-7b", gpu="a100", tp=2, batch=64, prompt=9)
    assert again.scenario.mapping is first.scenario.mapping and again.scenario.cluster is first.scenario.cluster
    assert (again.scenario.workload.batch, first.scenario.workload.batch) == (64, 4)
    assert again.assumed == first.assumed


def test_equal_numbers_of_other_kinds_are_not_taken_for_each_other() -> None:
    build_inference("llama-7b", gpu="a100", tp=1)
    with pytest.raises(RooflmError, match="tp is True"):
        build_inference("llama-7b", gpu="a100", tp=True)


def test_what_breaks_a_rule_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(RooflmError, match="tp is 3"):
            build_inference("llama-7b", gpu="a100", tp=3)
        with pytest.raises(RooflmError, match="dp is 2, but the batch has 1"):
            build_inference("llama-7b", gpu="a100", dp=2)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    card = tmp_path / "card.toml"
    times = []
    for bandwidth in ("1 TB/s", "2 TB/s"):
        card.write_text(f'base = "a100-sxm-80gb"\ndram = {{ bandwidth = "{bandwidth}" }}\n')
        times.append(rooflm.infer("llama-7b", gpu=str(card), engine="ideal").tpot)
    assert times[0] == pytest.approx(2 * times[1], rel=0.05)


def test_few_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "MOST", 2)
    asked = []

    @keeper.kept
    def devices(m: Mapping) -> float:
        asked.append(m)
        return float(m.devices)

    one, two, three = Mapping(), Mapping(tp=2), Mapping(tp=3)
    assert [devices(m) for m in (one, one, two, two, three, one)] == [1, 1, 2, 2, 3, 1]
    assert [m.devices for m in asked] == [1, 2, 3, 1]


@pytest.mark.parametrize(
    ("model", "quant", "whole"),
    [("llama-3.1-8b", "mxfp4", True), ("gpt-oss-20b", "mxfp4", False), ("llama-3.1-8b", "nvfp4-ffn", False),
     ("llama-3.1-8b", "fp8", False), ("llama-3.1-8b", "nvfp4-experts", True)],
)  # fmt: skip
def test_a_scheme_whose_parts_a_model_lacks_narrows_all_and_says_so(model: str, quant: str, whole: bool) -> None:
    built = build_inference(model, gpu="b200", engine="vllm", quant=quant)
    told = [text for text in built.assumed if "of all products" in text]
    assert len(told) == whole
    assert (built.scenario.quant.wide == ()) == (whole or quant == "fp8")


@pytest.mark.parametrize(("dp", "ep"), [(1, None), (8, None), (8, 1)])
def test_ranks_of_attention_share_the_experts(dp: int, ep: int | None) -> None:
    s = build_inference("deepseek-v3", gpu="h200", engine="vllm", tp=1, dp=dp, ep=ep, batch=8).scenario
    assert s.mapping.ep == (dp if ep is None else 1)


@pytest.mark.parametrize(
    ("model", "engine", "tp", "dp", "ep", "told"),
    [("deepseek-v3", "trtllm", 2, 8, 1, ""), ("mixtral-8x7b", "vllm", 1, 3, 1, ""),
     ("mixtral-8x7b", "vllm", 1, np.array([3, 4]), [1, 4], "experts over all ranks where these divide them")],
)  # fmt: skip
def test_experts_stay_whole_where_ranks_cannot_share_them(
    model: str, engine: str, tp: int, dp: Any, ep: Any, told: str
) -> None:
    built = build_inference(model, gpu="h200", engine=engine, tp=tp, dp=dp, batch=48)
    assert np.array_equal(built.scenario.mapping.ep, ep)
    assert [text for text in built.assumed if "experts over" in text] == [told] * bool(told)


def test_a_tag_of_ollamas_library_runs_in_an_engine_that_reads_its_files() -> None:
    named = (("llama3.1:8b-instruct-q8_0", "q8_0"), ("qwen3:30b-a3b-fp16", "fp16"), ("deepseek-r1:671b", "q4_k_m"))
    plain = (("llama3.1:8b", "q4_k_m"), ("gpt-oss:20b", "mxfp4-moe"))
    for tag, quant in (*plain, *named):
        s = build_inference(tag, gpu="rtx-4090").scenario
        assert (s.engine.name, s.quant.name) == ("llama.cpp", quant)
    for tag, _ in plain:
        assert build_inference(tag, gpu="rtx-4090", engine="vllm").scenario.engine.name == "vllm"
    assert build_inference("gpt-oss-20b", gpu="rtx-4090").scenario.engine.name == "vllm"


def test_layers_on_the_host_are_run_by_an_engine_that_can() -> None:
    assert build_inference("qwen3-30b-a3b", gpu="rtx-4090", cpu_experts=24).scenario.engine.name == "llama.cpp"
    with pytest.raises(RooflmError, match=r"use one that does, such as llama\.cpp"):
        build_inference("qwen3-30b-a3b", gpu="rtx-4090", cpu_experts=24, engine="vllm")
