"""Rows measured under load: which are scored, and that a run is simulated once for all its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rooflm.validation import under_load as load
from rooflm.validation.request import ServeRequest
from rooflm.validation.score import by_load, report, score
from rooflm.validation.under_load import REASONS, barred, predict_load

RUN = ServeRequest(
    id="aic-1", source="aic", metric="ttft", measured=0.2, group=("llama-3.1-8b", "h100"), engine="vllm 0.18.0",
    kwargs={"model": "llama-3.1-8b", "gpu": "h100-sxm", "gpus": 1, "tp": 1, "pp": 1, "dp": 1, "ep": 1, "prompt": 1024,
            "output": 128, "quant": "fp8", "engine": "vllm", "engine_version": "0.18.0"},
    concurrency=8, spread=(0.8, 1.0),
)  # fmt: skip


def test_one_run_gives_both_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = load.figures

    def counted(request: ServeRequest) -> dict[str, float]:
        calls.append(request.id)
        return real(request)

    monkeypatch.setattr(load, "figures", counted)
    twin = replace(RUN, id="aic-2", metric="tpot", measured=0.006)
    (ttft, _), (tpot, _) = predict_load([RUN, twin])
    assert calls == ["aic-1"]
    assert 0.02 < ttft < 2
    assert 0.002 < tpot < 0.02
    other = replace(RUN, id="aic-3", concurrency=64)
    assert predict_load([other])[0][0] > ttft


@pytest.mark.parametrize("flag", sorted(REASONS))
def test_runs_of_unknown_conditions_are_skipped_with_their_reason(flag: str) -> None:
    (x,) = score([replace(RUN, flags=(flag,))])
    assert x.reason == REASONS[flag]
    assert x.predicted != x.predicted


def test_runs_without_a_split_or_lengths_are_skipped() -> None:
    bare = {k: v for k, v in RUN.kwargs.items() if k not in ("tp", "prompt")}
    assert barred(replace(RUN, kwargs=bare)) == "under load: split or lengths not stated"
    assert barred(RUN) == ""


def test_what_cannot_run_says_why() -> None:
    (x,) = score([replace(RUN, kwargs=RUN.kwargs | {"model": "llama-3.1-405b"})])
    assert x.reason
    result = report([RUN], [x])
    assert result["scored"] == 0
    assert result["under_load"] == {}


def test_errors_under_load_stand_by_engine_and_metric() -> None:
    rows = [RUN, replace(RUN, id="aic-2", metric="tpot", measured=0.006)]
    found = by_load(score(rows))
    assert list(found) == ["all tpot", "all ttft", "vllm tpot", "vllm ttft"]
    assert found["all ttft"] == found["vllm ttft"]
    assert found["vllm tpot"]["rows"] == 1
