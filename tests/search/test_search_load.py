"""Search under load: exact by the steady state, limits never broken, the best simulated, and what parts said."""

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

import rooflm
from rooflm.cli import main
from rooflm.cli.found import deliver_result
from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.engines import load_engine
from rooflm.readers.schemes import parse_quant
from rooflm.search import under_load
from rooflm.search.inference import search_infer
from rooflm.search.serve_command import serve_command
from rooflm.search.space import Candidate
from rooflm.search.splits import GOALS, degrees
from rooflm.search.under_load import Confirmed, amount, evaluate, search_serve
from rooflm.serving import steady
from rooflm.serving.deploy import serve
from rooflm.serving.metrics import Slo
from rooflm.shown.blocks import Table
from rooflm.shown.progress import listening
from rooflm.sweep.axes import Axis

CASE = {"gpu": "h100", "prompt": 600, "output": 100, "quant": "w16a16kv16", "engine": "vllm"}


def test_of_cards_that_serve_a_rate_alike_the_cheapest_is_best():
    case = {**CASE, "gpu": ["h100", "l40s", "a100"], "gpus": 1}
    found = search_serve("llama-3.1-8b", rate=2, confirm=2, **case)
    assert found.best.simulated and found.best.inputs["gpu"] == "l40s"
    found = search_serve("llama-3.1-8b", rate=2, confirm=0, **case)
    costs = [c.outputs["cost_usd_per_million_tokens"] for c in found.top]
    assert len({round(c.outputs["output_tokens_per_s_per_gpu"], 9) for c in found.top}) == 1 and costs == sorted(costs)
    assert found.best.inputs["gpu"] == "l40s"


def test_of_splits_that_serve_a_rate_alike_at_one_price_the_quickest_is_best():
    found = search_serve("llama-3.1-8b", rate=2, gpus=4, confirm=0, **CASE)
    waits = [c.outputs["latency_s"] for c in found.top]
    assert len(waits) > 3 and waits == sorted(waits)


@pytest.mark.parametrize("model", ["llama-2-13b", "mixtral-8x7b"])
def test_best_is_the_brute_force_best(model):
    loads, budgets = [1, 8, 64, 200], [512.0, 8192.0]
    found = search_serve(
        model, gpus=[2], concurrency=loads, token_budget=budgets, ttft=0.4, tpot=0.03, confirm=0, **CASE
    )
    rows = []
    for (tp, pp, dp, ep), load, budget in itertools.product(degrees(load_model(model), [2], {}), loads, budgets):
        e = evaluate(model=model, tp=tp, pp=pp, dp=dp, ep=ep, concurrency=load, token_budget=budget, **CASE)
        if e["memory_share"] <= 1 and e["ttft_s"] <= 0.4 and e["tpot_s"] <= 0.03:
            rows.append((float(e["output_tokens_per_s_per_gpu"]), tp, pp, dp, ep, load, budget))
    assert found.feasible == len(rows) > 8
    best = max(rows)
    assert found.best.outputs["output_tokens_per_s_per_gpu"] == pytest.approx(best[0], rel=1e-6)
    assert tuple(found.best.inputs[k] for k in ("tp", "pp", "dp", "ep", "concurrency", "token_budget")) == best[1:]


@settings(max_examples=5, deadline=None)
@given(st.floats(0.03, 2.0), st.floats(0.004, 0.08), st.floats(0.0, 0.5), st.sampled_from(["concurrency", "rate"]))
def test_constraints_are_never_violated(ttft, tpot, margin, kind):
    found = search_serve("llama-3.1-8b", gpus_max=2, ttft=ttft, tpot=tpot, memory_margin=margin, confirm=0,
                        **{kind: [1, 4, 16, 64]}, **CASE)  # fmt: skip
    for c in (*found.top, *found.front):
        o = c.outputs
        assert o["ttft_s"] <= ttft and o["tpot_s"] <= tpot and o["memory_share"] <= 1 - margin
        assert o["gpus"] <= 2 and o["load_share"] <= 1
    assert (found.best is None) == (found.feasible == 0) == (found.nearest is not None)
    for b in found.blocked:
        assert found.goal.score(b.candidate.outputs) < found.goal.score(found.best.outputs) and b.why


def test_what_is_simulated_holds_its_limits():
    """A limit on a percentile is decided by the simulation, which steps the load down to where it holds."""
    found = search_serve("llama-3.1-8b", gpus=1, slo="ttft:p95=120ms,tpot:p95=20ms", confirm=1, **CASE)
    chosen = found.chosen
    assert chosen.held and chosen.load == found.best.inputs["concurrency"]
    v = chosen.served.summary.values
    assert v["ttft_s"]["p95"] <= 0.12 and v["tpot_s"]["p95"] <= 0.02
    assert chosen.load < chosen.candidate.inputs["concurrency"] and "above" in chosen.broken[0]
    assert found.best.simulated and found.best.outputs["ttft_s"] == v["ttft_s"]["mean"]
    heads = [b.rows[0][0] for b in found.blocks() if isinstance(b, Table) and b.head]
    assert "Best, simulated" in heads and "Ten best" not in heads and "Trade-off, estimated" in heads
    again = serve("llama-3.1-8b", gpu="h100", tp=1, concurrency=chosen.load, requests=int(amount(chosen.load)),
                  prompt=600, output=100, quant="w16a16kv16", engine="vllm", spread=(0.8, 1.2), warmup=int(chosen.load),
                  options={"budget": int(found.best.inputs["token_budget"])})  # fmt: skip
    assert again.ttft_s["mean"] == v["ttft_s"]["mean"]


def test_estimate_and_simulation_agree_on_the_best():
    found = search_serve("llama-3.1-8b", gpus=1, concurrency=[4, 32], confirm=1, **CASE)
    one = found.confirmed[0]
    o, v = one.candidate.outputs, one.served.summary.values
    assert one.held and one.agrees and one.load == found.best.inputs["concurrency"]
    assert o["output_tokens_per_s"] == pytest.approx(v["output_tokens_per_s"], rel=0.1)
    assert o["cost_usd_per_million_tokens"] == pytest.approx(v["cost_usd_per_million_tokens"], rel=0.1)
    assert o["energy_j_per_token"] == pytest.approx(v["energy_j_per_token"], rel=0.15)
    assert o["tpot_s"] == pytest.approx(v["tpot_s"]["mean"], rel=0.1)


def test_rates_that_cannot_be_served():
    found = search_serve("llama-3.1-8b", gpus=1, rate=[5.0, 20.0, 5000.0], confirm=1, **CASE)
    assert found.best.inputs["rate"] == 20.0 and found.chosen.served.queue_grows is False
    assert "load is" in found.blocked[0].why[-1] and found.blocked[0].candidate.inputs["rate"] == 5000.0
    none = search_serve("llama-3.1-8b", gpus=1, rate=5000.0, confirm=1, **CASE)
    assert none.best is None and "load" in none.unmet[0] and "times 100.0 %" in none.nearest.why[0]


def test_memory_that_does_not_suffice_says_by_how_much():
    found = search_serve("llama-3.1-70b", gpus=1, concurrency=8, confirm=0, **CASE)
    assert found.best is None and "memory in use" in found.nearest.why[0]
    assert found.nearest.candidate.outputs["memory_share"] == pytest.approx(
        (2 * 70.55e9 / 2**30 + 2) / (80 * 0.9), rel=0.05
    )


def test_token_budgets_trade_the_first_token_against_the_next_ones():
    """Small chunks keep decoding steps short; large ones bring the first token sooner under load."""
    both = evaluate(axes=2, model="llama-3.1-8b", tp=1, pp=1, ep=1, concurrency=np.array([[1.0, 96.0]]),
                    token_budget=np.array([[512.0], [2048.0], [math.inf]]), **CASE | {"prompt": 3000})  # fmt: skip
    ttft, tpot = (np.broadcast_to(both[k], (3, 2)) for k in ("ttft_s", "tpot_s"))
    assert ttft[0, 0] > 1.03 * ttft[1:, 0].max()  # one client: each further pass costs its overhead
    assert tpot[0, 1] < tpot[1, 1] < tpot[2, 1] and ttft[0, 1] > ttft[1, 1]
    whole = search_serve(
        "llama-3.1-8b", gpus=1, concurrency=4, token_budget=math.inf, confirm=1, **CASE | {"prompt": 9000}
    )
    assert whole.chosen.held and whole.best.inputs["token_budget"] == math.inf


def test_a_load_among_others_is_the_load_alone_where_all_clients_stay_in_step():
    """Where tokens wait to be streamed, each load of a grid is followed until it is at rest, and no further."""
    given = {"model": "llama-3.1-8b", "gpu": "h100", "tp": 1, "pp": 1, "ep": 1, "spread": (1.5, 1.5)}
    loads = np.array([64.0, 300.0, 512.0, 2048.0])
    many = evaluate(axes=1, concurrency=loads, token_budget=2048, **given)
    for i in (1, 2):
        one = evaluate(concurrency=loads[i], token_budget=2048, **given)
        for name in ("ttft_s", "tpot_s", "requests_per_s"):
            assert many[name][i] == pytest.approx(float(one[name]), rel=1e-9), (i, name)


def test_what_is_at_rest_is_not_followed_again(monkeypatch):
    seen, closed = [], steady._closed
    monkeypatch.setattr(steady, "_closed", lambda pool, load: seen.append(load.clients.size) or closed(pool, load))
    given = {"model": "llama-3.1-8b", "gpu": "h100", "tp": 1, "pp": 1, "ep": 1, "spread": (1.5, 1.5)}
    loads = np.array([1.0, 8.0, 64.0, 100.0, 2048.0])
    evaluate(axes=1, concurrency=loads, token_budget=2048, **given)
    assert seen[0] == loads.size and len(seen) > 1 and max(seen[1:]) == 1


def test_batches_search_over_token_budgets_too():
    found = search_infer("llama-7b", gpu="a100-sxm-80gb", gpus=1, batch=[8, 64], token_budget=[512, 2048, math.inf],
                         objective="ttft")  # fmt: skip
    assert found.points == 6 and found.best.inputs["engine.token_budget"] == math.inf
    passes = [c.outputs["ttft_s"] for c in found.top]
    assert passes == sorted(passes) and passes[0] < passes[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"concurrency": 4, "rate": 2}, "one of them"), ({"concurrency": 2.5}, "whole number"),
        ({"rate": -1}, "above 0"), ({"slo": "ttft=500ms,foo=1"}, "slo is"),
        ({"batch": 4}, "search_serve has no argument 'batch'"), ({"engine": "hf-eager"}, "static batches"),
        ({"concurrency": 4, "prompt": 10**6}, "beyond"), ({"concurrency": 4, "spread": (2.0, 1.0)}, "spread"),
        ({"concurrency": 4, "gpus": 4, "tp": [3]}, "no split"),
        ({"concurrency": 4, "objective": "speed"}, "objective"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(arguments, words):
    with pytest.raises(RooflmError, match=words):
        search_serve("llama-7b", **{"gpu": "a100-sxm-80gb"} | arguments)


def test_commands_carry_the_token_budget():
    chosen = {"tp": 1, "pp": 1, "dp": 4, "ep": 4, "batch": 64}
    quant = parse_quant("fp8kv8")
    for budget, words in (
        (512, "--max-num-batched-tokens 512"),
        (math.inf, "--no-enable-chunked-prefill --max-num-batch"),
    ):
        assert words in serve_command("m", load_engine("vllm"), quant, chosen | {"token_budget": budget}, 640)
    sglang = load_engine("sglang")
    assert "--chunked-prefill-size 2048" in serve_command("m", sglang, quant, chosen | {"token_budget": 512}, 640)
    assert "--chunked-prefill-size -1" in serve_command("m", sglang, quant, chosen | {"token_budget": math.inf}, 640)
    assert "--max-running-requests" not in serve_command("m", sglang, quant, chosen | {"batch": 0}, 640)
    trt = serve_command("m", load_engine("trtllm"), quant, chosen | {"token_budget": 512}, 640)
    assert "--max_num_tokens 512 --enable_chunked_prefill" in trt and "--tp_size 4 --ep_size 4" in trt
    assert "enable_attention_dp: true\\nkv_cache_config:\\n  dtype: fp8" in trt and trt.endswith("extra.yaml")
    assert "chunked" not in serve_command("m", load_engine("trtllm"), quant, chosen | {"token_budget": 4096}, 640)


def test_command_line(capsys):
    words = [
        "search", "infer", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1", "--slo", "ttft:p95=200ms", "--confirm",
        "1",
    ]  # fmt: skip
    assert main([*words, "--concurrency", "4,16,64,256"]) == 0
    text = capsys.readouterr().out
    assert "Simulated (estimate)" in text and "ttft:p95" in text and "--max-num-seqs" in text
    assert max(map(len, text.splitlines())) <= 80
    assert main([*words, "--rate", "2,8", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["confirmed"][0]["held"] and answer["confirmed"][0]["simulated"]["ttft_s"]["p95"] <= 0.2
    assert main(["search", "infer", "llama-7b", "--gpu", "a100", "--gpus", "1", "--token-budget", "512,off"]) == 0
    text = capsys.readouterr().out
    assert "one batch that comes at once" in text and "whole prompts" in text
    assert main(["search", "infer", "llama-7b", "--gpu", "a100", "--gpus", "1", "--memory-margin", "30%"]) == 0
    assert main(["search", "infer", "llama-7b", "--gpu", "a100", "--token-budget", "0.5"]) == 2
    assert "token_budget" in capsys.readouterr().err


def test_a_search_leaves_out_the_first_wave_as_its_runs_do() -> None:
    """The estimate of the table is that of the simulated run beside it: one state, without what starts at once."""
    found = search_serve("llama-3.1-8b", gpu="h100", gpus=1, concurrency=50, prompt=2048, output=64, confirm=1)
    (run,) = found.confirmed
    steady = run.served.steady
    assert steady is not None
    assert run.candidate.outputs["ttft_s"] == pytest.approx(steady.ttft, rel=0.02)
    assert run.candidate.outputs["tpot_s"] == pytest.approx(steady.tpot, rel=0.02)


def answered(name: str, estimate: float, simulated: float, held: bool = True) -> Confirmed:
    """An answer of so many tokens/s by the estimate and by its simulation."""
    keys = ("ttft_s", "tpot_s", "output_tokens_per_s_per_gpu")
    values = {"ttft_s": {"mean": 0.1}, "tpot_s": {"mean": 0.01}, keys[2]: simulated}
    steady = {"ttft_s": 0.1, "tpot_s": 0.01 * simulated / estimate}
    candidate = Candidate({"gpu": name, "concurrency": 8}, dict(zip(keys, (0.1, 0.01, estimate), strict=True)))
    served = SimpleNamespace(summary=SimpleNamespace(values=values), agrees=abs(simulated / estimate - 1) < 0.25,
                             steady=steady)  # fmt: skip
    return Confirmed(candidate, 8, served, held, ())


def test_an_answer_stands_where_its_simulation_puts_it(monkeypatch):
    """What is a third slower than its estimate falls behind estimates; what agrees stays before them; what holds no
    limit is left out; for each that is not borne out another is simulated."""
    monkeypatch.setattr(under_load, "agrees", lambda served: served.agrees)
    runs = [
        answered("a", 300.0, 198.0), answered("b", 280.0, 290.0), answered("c", 270.0, 250.0),
        answered("d", 260.0, 255.0, held=False), answered("e", 240.0, 230.0), answered("f", 190.0, 0.0),
    ]  # fmt: skip
    top = [c.candidate for c in runs]
    by_name = {c.candidate.inputs["gpu"]: c for c in runs}
    done = list(under_load.confirmations(top, 2, lambda c: by_name[c.inputs["gpu"]]))
    assert [c.candidate.inputs["gpu"] for c in done] == ["a", "b", "c"]
    goal = GOALS["throughput"]
    found = under_load.ranked(top, runs[:4], goal)
    assert [(c.inputs["gpu"], c.simulated) for c in found] == [
        ("b", True), ("c", True), ("e", False), ("a", True), ("f", False)]  # fmt: skip
    assert found[0].outputs["output_tokens_per_s_per_gpu"] == 290.0
    assert not list(under_load.confirmations(top, 0, lambda c: by_name[c.inputs["gpu"]]))
    none = [answered(n, 100.0, 90.0, held=False) for n in "xyz"]
    names = {c.candidate.inputs["gpu"]: c for c in none}
    assert len(list(under_load.confirmations([c.candidate for c in none], 1, lambda c: names[c.inputs["gpu"]]))) == 3
    assert under_load.ranked([c.candidate for c in none], none, goal) == ()


@pytest.mark.parametrize(("pp", "engine"), [(1, "vllm"), (4, "sglang")])
def test_a_budget_that_divides_the_mean_prompt_is_no_brink(pp, engine):
    """Of prompts of 8,192 tokens, a fifth more or less, half need a third pass of 4,096."""
    given = CASE | {"prompt": 8192, "engine": engine, "model": "llama-3.1-8b", "pp": pp, "concurrency": 16.0}
    low, at, high = (evaluate(**given, spread=(0.8, 1.2), token_budget=b)["ttft_s"] for b in (4050, 4096, 4150))
    assert low == pytest.approx(at, rel=0.03) and high == pytest.approx(at, rel=0.03)


def test_of_points_whose_wait_has_no_end_the_nearest_is_told():
    case = {**CASE, "gpus": [1, 2, 8], "ttft": 3.0, "tp": [1, 2, 8]}
    found = search_serve("llama-3.1-8b", rate=2000, confirm=0, **case)
    assert found.best is None and found.nearest.candidate.inputs["dp"] == 8
    assert found.unmet[0].partition("off by ")[2] in found.nearest.why[-1]


def stop_after(points: int) -> Callable[[int, int], None]:
    """A listener to whom Ctrl-C comes once so many points were evaluated."""

    def listener(done: int, _: int) -> None:
        if done >= points:
            raise KeyboardInterrupt

    return listener


def test_an_interrupted_search_has_the_best_of_what_was_done(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    case = {**CASE, "gpus_max": 4, "concurrency": 8, "confirm": 1}
    with listening(stop_after(10)):
        found = search_serve("llama-3.1-8b", **case)
    assert found.best and 10 <= found.points < 30 and not found.confirmed
    assert found.interrupted == f"{found.points} of 84 points evaluated"
    with listening(stop_after(1)):
        assert rooflm.search_train("llama-7b", gpu="a100", gpus=8, batch=64).interrupted
    whole = search_serve("llama-3.1-8b", **case)
    assert not whole.interrupted and whole.points == 84
    table = tmp_path / "found.csv"
    with pytest.raises(typer.Exit) as stopped:
        deliver_result(found, "", 1.0, {"out": str(table), "plot": None, "json": False})
    said = capsys.readouterr()
    assert stopped.value.exit_code == 130 and not table.exists()
    assert "no file is written" in said.err and f"Interrupted: {found.interrupted}" in " ".join(said.out.split())


@given(st.integers(0, 80), st.floats(0.0, 1.0), st.booleans())
def test_the_highest_load_that_holds_is_found_in_few_runs(most: int, fixed: float, grows: bool) -> None:
    """most: place of the highest load that holds (0: none does); fixed: share of the limit that no load changes."""
    values = tuple(under_load.ladder(1024))
    limit, tried = Slo("tpot", 0, 0.05), list[float]()
    edge = float(values[most - 1]) if most else 0.5

    def run(_: Candidate, load: float) -> Any:
        tried.append(load)
        time = 0.05 * (fixed + (1.0 - fixed) * load / edge)
        holds = load <= edge
        summary = SimpleNamespace(
            meets=lambda _: holds, measure=lambda _: 0.01 if grows else time, broken=lambda _: [],
            queue_grows=grows and not holds, queue_growth_per_s=1.0, rejected=0)  # fmt: skip
        return SimpleNamespace(summary=summary, limits=(limit,))

    candidate = Candidate({"concurrency": values[-1]}, {})
    found = under_load.confirmation(candidate, Axis("concurrency", values), run)
    assert found.held == bool(most) and found.load == (edge if most else values[-1])
    assert len(tried) <= 1 + under_load.STRAIGHT + math.ceil(math.log2(len(values)))


def test_what_is_simulated_is_told() -> None:
    told: list[tuple[Any, ...]] = []
    with listening(lambda *given: told.append(given)):
        search_serve("llama-3.1-8b", gpus=1, concurrency=8, **CASE)
    at = next(i for i, t in enumerate(told) if t[2:] == ("best points simulated",))
    assert [t[0] for t in told[at:]] == [*range(len(told) - at)] and at + 1 < len(told)
    assert told[at - 1][0] == told[at - 1][1]


def test_an_interrupt_keeps_the_simulations_that_were_done(monkeypatch: pytest.MonkeyPatch) -> None:
    real, runs = under_load.confirmation, itertools.count()

    def second_is_stopped(*given: Any, **named: Any) -> Confirmed:
        if next(runs):
            raise KeyboardInterrupt
        return real(*given, **named)

    monkeypatch.setattr(under_load, "confirmation", second_is_stopped)
    found = search_serve("llama-3.1-8b", gpus=2, concurrency=8, **CASE)
    assert len(found.confirmed) == 1 and found.best.simulated
    assert found.interrupted == "1 of the best points simulated"
