"""Search: its best is the brute-force best, constraints hold, and what is not legal is said with by how much."""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rooflm
from rooflm.catalogue.engine import Engine
from rooflm.cli import main
from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.engines import load_engine
from rooflm.readers.schemes import parse_quant
from rooflm.search import inference, under_load
from rooflm.search import search as searching
from rooflm.search.inference import search_infer
from rooflm.search.limits import Limit
from rooflm.search.serve_command import serve_command
from rooflm.search.splits import GOALS, degrees
from rooflm.shown.progress import listening

BATCHES = [1, 4, 16, 64, 256]
SMALL = {
    "gpu": ["rtx-3090", "a100-sxm-80gb"], "gpus": [1, 2, 4], "batch": BATCHES, "prompt": 512, "output": 64,
    "quant": ["w16a16kv16", "w4a16"], "efficiency": "0.7,0.9", "engine": "vllm",
}  # fmt: skip


def brute_force(limits):
    """Every point as a prediction of its own: (throughput per GPU, inputs) of those that are legal."""
    found = []
    model = load_model("llama-13b")
    for gpu, quant, split, batch in itertools.product(
        SMALL["gpu"], SMALL["quant"], degrees(model, SMALL["gpus"], {}), BATCHES
    ):
        tp, pp, dp, ep = split
        if dp > batch:
            continue  # refused alone
        e = rooflm.infer(
            "llama-13b",
            gpu=gpu,
            quant=quant,
            tp=tp,
            pp=pp,
            dp=dp,
            ep=ep,
            batch=batch,
            prompt=512,
            output=64,
            efficiency="0.7,0.9",
            engine="vllm",
        )
        if e.fits and all(getattr(e, name) <= bound for name, bound in limits.items()):
            told = (f"{e.ttft:.9g}", f"{e.tpot:.9g}")
            found.append((float(e.output_tokens_per_s_per_gpu), (gpu, quant, tp, pp, dp, batch), told))
    return sorted(found, key=lambda row: -row[0])


@pytest.mark.parametrize("limits", [{}, {"tpot": 0.02}, {"ttft": 0.5, "tpot": 0.03}])
def test_best_is_the_brute_force_best(limits):
    found = search_infer("llama-13b", **SMALL, **limits)
    expected = brute_force(limits)
    assert found.feasible == len(expected)
    assert found.points == 2 * 2 * len(list(degrees(load_model("llama-13b"), [1, 2, 4], {}))) * len(BATCHES)
    answers, seen = [], set()
    for rate, inputs, told in expected:  # ten different ones: of several batches the best, of replicas alike the first
        if inputs[:-1] not in seen and (f"{rate:.9g}", *told) not in seen:
            answers.append(rate)
        seen |= {inputs[:-1], (f"{rate:.9g}", *told)}
    assert [c.outputs["output_tokens_per_s_per_gpu"] for c in found.top] == pytest.approx(answers[:10], rel=1e-12)
    best = found.best.inputs
    assert tuple(best[k] for k in ("gpu", "quant", "tp", "pp", "dp", "batch")) == expected[0][1]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(GOALS)), st.floats(0.005, 1.0), st.floats(0.002, 0.1), st.floats(0.0, 0.6), st.integers(1, 8)
)
def test_constraints_are_never_violated(objective, ttft, tpot, margin, gpus_max):
    found = search_infer(
        "llama-7b",
        gpu="a100-sxm-80gb",
        gpus_max=gpus_max,
        objective=objective,
        ttft=ttft,
        tpot=tpot,
        memory_margin=margin,
        batch=[1, 8, 64, 300],
        efficiency="0.7,0.9",
    )
    for c in (*found.top, *found.front):
        o = c.outputs
        assert o["ttft_s"] <= ttft and o["tpot_s"] <= tpot and o["memory_share"] <= 1 - margin and o["gpus"] <= gpus_max
    scores = [found.goal.score(c.outputs) for c in found.top]
    assert scores == sorted(scores)
    for b in found.blocked:
        assert found.goal.score(b.candidate.outputs) < scores[0] and b.why
    assert (found.best is None) == (found.feasible == 0) == (found.nearest is not None)


def test_front_is_not_beaten_by_any_legal_point():
    found = search_infer("llama-13b", **SMALL)
    everything = rooflm.infer(
        "llama-13b",
        **{k: v for k, v in SMALL.items() if k != "gpus"},
        tp=[1, 2, 4],
        outputs=["tpot_s", "output_tokens_per_s_per_gpu", "fits"],
    )
    ok = everything["fits"].values
    speed, rate = everything["tpot_s"].values[ok], everything["output_tokens_per_s_per_gpu"].values[ok]
    for s, r in zip(speed, rate, strict=True):
        outputs = [(c.outputs["tpot_s"], c.outputs["output_tokens_per_s_per_gpu"]) for c in found.front]
        assert any(slow <= s * (1 + 1e-12) and fast >= r * (1 - 1e-12) for slow, fast in outputs)


def test_blocked_points_say_what_rules_them_out():
    found = search_infer("llama-7b", gpu="a100-sxm-80gb", gpus=1, tpot=0.02, efficiency="0.7,0.9")
    first = found.blocked[0]
    assert first.candidate.inputs["batch"] == found.best.inputs["batch"] + 1
    assert "time per output token" in first.why[0] and "above 20.0 ms" in first.why[0]


def test_ten_best_are_different_answers():
    """Neither another batch of the same split, nor an option without effect, nor replicas that users cannot tell."""
    found = search_infer(
        "llama-7b", gpu="a100-sxm-80gb", gpus_max=4, tpot=0.02, sets={"engine.stage_tokens": [1e6, 2e6]}
    )
    rows = [tuple(v for k, v in c.inputs.items() if k != "batch") for c in found.top]
    felt = [
        tuple(f"{c.outputs[k]:.9g}" for k in ("output_tokens_per_s_per_gpu", "ttft_s", "tpot_s")) for c in found.top
    ]
    assert len(set(rows)) == len(set(felt)) == len(rows) > 5
    own = {k: v for k, v in found.best.inputs.items() if k != "batch"}
    first = found.blocked[0].candidate.inputs
    assert {k: v for k, v in first.items() if k != "batch"} == own and first["batch"] > found.best.inputs["batch"]
    named = [tuple(v for k, v in b.candidate.inputs.items() if k != "batch") for b in found.blocked]
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("block", [7, 64, 1 << 17])
def test_answers_do_not_depend_on_the_blocks(monkeypatch, block):
    """Batches of one answer that fall into several blocks are one answer all the same."""
    import rooflm.search.inference as search_module

    whole = search_infer("llama-7b", gpu="a100-sxm-80gb", gpus_max=2, tpot=0.02, efficiency="0.7,0.9")
    monkeypatch.setattr(search_module, "SearchTask", partial(search_module.SearchTask, block=block))
    parted = search_infer("llama-7b", gpu="a100-sxm-80gb", gpus_max=2, tpot=0.02, efficiency="0.7,0.9")
    assert [c.inputs for c in parted.top] == [c.inputs for c in whole.top]
    assert [b.candidate.inputs for b in parted.blocked] == [b.candidate.inputs for b in whole.blocked]
    assert [c.inputs for c in parted.front] == [c.inputs for c in whole.front]


def test_nothing_legal_names_the_nearest():
    found = search_infer("llama-7b", gpu="a100-sxm-80gb", gpus=1, tpot=1e-3, efficiency="0.7,0.9")
    one = rooflm.infer("llama-7b", gpu="a100-sxm-80gb", batch=1, efficiency="0.7,0.9")
    assert found.best is None and found.feasible == 0 and found.nearest.candidate.inputs["batch"] == 1
    assert f"{one.tpot / 1e-3:.3g} times 1.00 ms" in found.nearest.why[0] and "No point at all" in found.unmet[0]


def test_where_nothing_fits_it_is_said_what_would():
    """As one prediction of the nearest point says; and nothing of it where memory is not what is short."""
    for load in ({}, {"concurrency": 4}):
        search = rooflm.search_serve if load else search_infer
        found = search("llama-3.1-405b", gpu="h100", gpus_max=8, **load)
        assert found.best is None and "would fit with: quant fp8; 16 GPUs (tp 8, pp 2)" in found.unmet[-1]
        assert found.unmet[0].startswith("No point fits: the nearest takes ")
    trained = rooflm.search_train("llama-3.1-70b", gpu="h100", gpus=8)
    assert trained.best is None and "GPUs (dp" in trained.unmet[-1]


def test_narrower_weights_are_advised_where_they_could_meet_the_limits():
    """None reads a prompt in 1 ms; 4 ms a token only the narrowest gives, 6 both."""
    said = "Weights of 16 bits alone were tried: --quant {} tries narrower ones."
    for limits, names in [({"ttft": 1e-3}, ""), ({"tpot": 6e-3}, "fp8,awq"), ({"tpot": 4e-3}, "awq")]:
        found = search_infer("llama-3.1-8b", gpu="h100", gpus=1, **limits)
        assert found.best is None and [*found.unmet[1:]] == [said.format(names)] * bool(names)
    load = {"rate": 1.0, "confirm": 0}
    late, slow = (rooflm.search_serve("llama-3.1-8b", gpu="h100", gpus=1, **load, **k)
                  for k in ({"ttft": 1e-3}, {"tpot": 6e-3}))  # fmt: skip
    assert said.format("fp8,awq") not in late.unmet and said.format("fp8,awq") in slow.unmet


def test_two_limits_that_only_together_cannot_be_met():
    """Each can be met by some point, not both by one: the nearest says which one misses and by how much."""
    found = search_infer("llama-7b", gpu="a100-sxm-80gb", gpus=1, tpot=0.0095, throughput=2000, efficiency="0.7,0.9")
    assert found.best is None and [line.split(":")[0] for line in found.unmet] == [
        "Weights of 16 bits alone were tried"
    ]
    broken = [
        Limit("tpot_s", 0.0095, "t").excess(found.nearest.candidate.outputs["tpot_s"]),
        Limit("x", 2000.0, "x", at_most=False).excess(found.nearest.candidate.outputs["output_tokens_per_s"]),
    ]
    assert max(broken) > 0 and len(found.nearest.why) == sum(b > 0 for b in broken)


def test_degrees_are_legal_and_complete():
    model = load_model("mixtral-8x7b")
    got = set(degrees(model, [4], {}))
    brute = {
        (tp, pp, dp, ep)
        for tp, pp, dp, ep in itertools.product(range(1, 5), repeat=4)
        if tp * pp * dp == 4 and 32 % tp == 0 and 8 % ep == 0 and (tp * dp) % ep == 0
    }
    assert got == brute
    assert {d[3] for d in degrees(load_model("llama-7b"), [8], {})} == {1}
    assert set(degrees(model, [4], {"tp": [2], "ep": 1})) == {d for d in brute if d[0] == 2 and d[3] == 1}


def test_the_answer_names_the_better_gpu_and_other_variables():
    found = search_infer(
        "llama-7b",
        gpu=["rtx-3090", "h100-sxm-80gb"],
        gpus=1,
        objective="latency",
        batch=[1, 2],
        sets={"engine.token_budget": [512, 8192]},
        efficiency="0.7,0.9",
    )
    assert found.best.inputs["gpu"] == "h100-sxm-80gb" and "engine.token_budget" in found.best.inputs
    assert found.points == 2 * 2 * 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"objective": "speed"}, "objective"), ({"ttft": -1}, "above 0"), ({"memory_margin": 2}, "share kept free"),
        ({"prompt": [1, 2]}, "use a sweep"), ({"gpus": 4, "gpus_max": 2}, "gpus_max"),
        ({"gpus": 4, "tp": [3]}, "no split"), ({"sets": {"engine.nope": [1, 2]}}, "unknown path"),
        ({"gpu": "a1000000"}, "unknown"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(arguments, words):
    with pytest.raises(RooflmError, match=words):
        search_infer("llama-7b", **{"gpu": "a100-sxm-80gb"} | arguments)


def test_commands_of_engines():
    chosen = {"tp": 4, "pp": 2, "dp": 2, "ep": 8, "batch": 65}
    vllm = serve_command("m", load_engine("vllm"), parse_quant("fp8kv8"), chosen, 640)
    assert vllm.startswith("vllm serve m --tensor-parallel-size 4 --pipeline-parallel-size 2 --data-parallel-size 2")
    assert "--enable-expert-parallel" in vllm and "--max-num-seqs 33" in vllm
    assert "--quantization fp8 --kv-cache-dtype fp8_e4m3" in vllm
    sglang = serve_command("m", load_engine("sglang"), parse_quant("bf16"), chosen, 640)
    assert "--tp-size 8" in sglang and "--enable-dp-attention" in sglang and "--ep-size 8" in sglang
    trt = serve_command("m", load_engine("trtllm"), parse_quant("bf16"), chosen, 640)
    assert trt.startswith("trtllm-serve m") and "--tp_size 4" in trt and "--max_batch_size 33" in trt
    assert serve_command("m", Engine("ideal"), parse_quant("bf16"), chosen, 640) == ""


def test_command_line(capsys):
    assert main(["search", "infer", "llama-7b", "--gpu", "a100", "--gpus", "1", "--tpot", "20ms"]) == 0
    text = capsys.readouterr().out
    assert "Ten best" in text and "Better, but ruled out" in text and "vllm serve huggyllama/llama-7b" in text
    assert main(["search", "infer", "llama-7b", "--gpu", "a100", "--gpus", "1", "--tpot", "1us", "--json"]) == 1
    import json

    answer = json.loads(capsys.readouterr().out)
    assert answer["best"] is None and "times 1.00 µs" in answer["nearest"]["why"][0]


def test_what_is_not_finite_is_never_best():
    found = search_infer(
        "llama-7b", gpu="a100-sxm-80gb", gpus=1, batch=[1], output=1, objective="tpot", efficiency="ideal"
    )
    assert np.isfinite(found.best.outputs["tpot_s"])


def test_degrees_that_no_split_has_are_told_with_the_rules() -> None:
    with pytest.raises(RooflmError, match="over 1 to 8 GPUs has tp 3: tp divides 32, pp is at most 32"):
        rooflm.search_infer("llama-3.1-8b", gpu="h100", tp=3)


def test_a_limit_of_cost_is_in_dollars() -> None:
    found = rooflm.search_infer("llama-3.1-8b", gpu="h100", gpus=1, cost=0.1)
    assert found.best is None and "cost of a million tokens (0.10 USD)" in str(found)


def test_the_best_points_bands_are_those_of_its_prediction(capsys):
    found = search_infer("llama-3.1-8b", gpu="h100", gpus_max=4, ttft=0.5)
    best = rooflm.infer("llama-3.1-8b", **{"gpu": "h100", **found.best.inputs})
    for key, band in best.error_band.items():
        assert found.error_band[key] == pytest.approx({end: float(v) for end, v in band.items()}, rel=1e-9)
    assert not search_infer("llama-3.1-8b", gpu="h100", ttft=1e-9).error_band
    step = rooflm.search_train("llama-3.1-8b", gpu="h100", gpus=8, batch=64)
    run = rooflm.train("llama-3.1-8b", **{"gpu": "h100", "gpus": 8, "batch": 64, **step.best.inputs})
    assert step.error_band["step_time_s"]["low"] == pytest.approx(float(run.error_band["step_time_s"]["low"]), rel=1e-9)
    under = rooflm.search_serve("llama-3.1-8b", gpu="h100", gpus=1, concurrency=8, confirm=1)
    assert under.error_band == under.chosen.served.values()["error_band"]
    main(["search", "infer", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1"])
    assert "In four of five like cases: TTFT between " in capsys.readouterr().out


def test_every_card_of_several_has_its_best_point_or_none() -> None:
    cards = ["b200", "a100", "rtx-4090", "t4"]
    given = {"gpus": [4, 8], "batch": [1, 2, 4, 8, 16, 32, 64, 128], "quant": ["w16a16kv16", "fp8"], "tpot": 0.025}
    found = search_infer("llama-3.1-70b", gpu=cards, **given)
    assert {c.inputs["gpu"] for c in found.top} == {"b200"} and found.ruled_out == ("t4",)
    assert [c.inputs["gpu"] for c in found.others] == ["a100", "rtx-4090"]
    for other in found.others:
        alone = search_infer("llama-3.1-70b", gpu=other.inputs["gpu"], **given).best
        assert alone is not None and alone.outputs == pytest.approx(other.outputs)
    assert [one["gpu"] for one in found.to_dict()["others"]] == ["a100", "rtx-4090"]
    one = search_infer("llama-3.1-70b", gpu="b200", **given)
    assert one.others == () and one.ruled_out == ()


def test_the_other_cards_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", "infer", "llama-3.1-70b", "--gpu", "b200,a100,t4", "--gpus", "8", "--batch", "1..64*2"]
    assert main([*words, "--tpot", "50ms"]) == 0
    out = capsys.readouterr().out
    assert "Best of the other cards" in out and "No point of t4 meets every constraint." in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_search_that_its_listener_ends_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever went away raises where progress is told; what runs the blocks is closed while that error is held."""
    closed: list[bool] = []
    spread = searching.spread

    def watched(*given: Any) -> Iterator[Any]:
        try:
            yield from spread(*given)
        finally:
            closed.append(True)

    def leave(done: int, total: int) -> None:
        raise InterruptedError

    monkeypatch.setattr(searching, "spread", watched)
    with listening(leave), pytest.raises(InterruptedError) as held:
        search_infer("llama-2-7b", **SMALL)
    assert closed and held.tb


def test_a_budget_leaves_the_answers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a budget does not buy, and batches that fit nowhere, are left out before they are timed."""
    asked = {
        "gpu": ["rtx-4090", "arc-b580", "gb10"],
        "under": 5000,
        "objective": "total",
        "batch": [1, 8, 64, 512, 1024],
    }
    few = rooflm.search_infer("llama-3.1-8b", **asked)
    monkeypatch.setattr(inference, "within_budget", lambda splits, *_: list(splits))
    monkeypatch.setattr(inference, "worth_trying", lambda axes, batch, arguments: batch.shape[-1])
    every = rooflm.search_infer("llama-3.1-8b", **asked)
    assert few.points < every.points and few.feasible == every.feasible > 0
    assert (few.top, few.front, few.others) == (every.top, every.front, every.others)
    assert few.prices.endswith("to buy: cards alone, without the machine that holds them")
    assert {c.inputs["gpu"] for c in few.top} <= {"rtx-4090", "arc-b580"}


def test_a_budget_that_buys_too_little_says_what_would_do() -> None:
    found = rooflm.search_infer("llama-3.1-70b", gpu="rtx-4090", under=3000, batch=1)
    assert found.best is None and found.nearest is not None
    assert found.nearest.why == ("purchase price is 12,792 USD, 4.26 times 3000 USD",)


def test_under_load_a_budget_leaves_the_answers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"gpu": ["rtx-4090", "arc-b580"], "under": 700, "concurrency": 8, "confirm": 0, "quant": "int4"}
    few = rooflm.search_serve("llama-3.1-8b", **asked)
    monkeypatch.setattr(under_load, "within_budget", lambda splits, *_: list(splits))
    every = rooflm.search_serve("llama-3.1-8b", **asked)
    assert few.points < every.points and few.top == every.top and few.feasible == every.feasible > 0
