"""Engine rows and the mechanisms behind them: each makes a step slower in the way that it says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rooflm import RooflmError, infer
from rooflm.asked.build_inference import build_inference
from rooflm.catalogue.hardware import Derating
from rooflm.estimate.inference import infer_scenario
from rooflm.estimate.request import stalls
from rooflm.estimate.step import launches
from rooflm.graph.ops import distinct_experts
from rooflm.kernels.derating import derating, few_rows_time
from rooflm.kernels.rates import rates
from rooflm.readers import rows as catalogue
from rooflm.readers.devices import load_device
from rooflm.readers.engines import load_engine
from rooflm.readers.rows import row_files, rows_of
from rooflm.scenario.scenario import Scenario
from rooflm_fit.engine_rows import updated
from rooflm_fit.jobs import JOBS


def scenario(
    model: str = "llama-3-8b", gpu: str = "h100-sxm-80gb", engine: str = "trtllm-0.9", **more: object
) -> Scenario:  # fmt: skip
    given = {"batch": 16, "prompt": 1024, "output": 64, "quant": "fp16"} | more
    return build_inference(model=model, gpu=gpu, engine=engine, **given).scenario  # type: ignore[arg-type]


def tpot(s: Scenario, **engine: object) -> float:
    return float(infer_scenario(replace(s, engine=s.engine.but(**engine))).tpot)


def ttft(s: Scenario, **engine: object) -> float:
    return float(infer_scenario(replace(s, engine=s.engine.but(**engine))).ttft)


def test_every_row_loads_and_says_its_source() -> None:
    for name in (row.name for path in row_files("engine") for row in rows_of(path)):
        row, _ = catalogue.raw_row("engine", name)
        assert load_engine(name).name == name
        assert row.get("source") or row.get("note"), name


def test_every_fitted_engine_has_a_row() -> None:
    for name in {e for job in JOBS.values() for e in job.engines}:
        assert load_engine(name).name == name


def test_grouped_queries_that_share_no_read_are_slower() -> None:
    s = scenario()  # 32 heads, 8 KV heads
    assert tpot(s, kv_reread=2.0, kv_shared=1) > tpot(s, kv_reread=2.0, kv_shared=16)
    assert tpot(s, kv_reread=2.0, kv_shared=16) == tpot(s, kv_reread=0.0)
    mha = scenario("llama-2-7b")  # one head a group: nothing to share
    assert tpot(mha, kv_reread=2.0, kv_shared=1) == tpot(mha, kv_reread=0.0)
    window = scenario("mistral-7b-v0.1")  # no sharing within a window
    assert tpot(window, kv_reread=2.0, kv_shared=16) > tpot(window, kv_reread=0.0)


def test_many_heads_are_read_by_whole_blocks_as_many_as_l1_holds_scores() -> None:
    s = scenario()  # 16 sequences of 32 heads
    old = {"kv_reread": 0.01, "block_rate": 1e6, "unsplit": 100_000}
    assert tpot(s, **old | {"unsplit": 512}) == tpot(s, **old)  # PagedAttention V1 takes more heads than its limit
    assert tpot(s, **old | {"unsplit": 511}) > 5 * tpot(s, **old)
    short = replace(s, model=replace(s.model, max_context=4096))
    longer = replace(s, model=replace(s.model, max_context=131072))
    for length in (8192, 16384):  # graphs are captured for so many tokens
        cut = {**old, "unsplit": 511, "graph_length": length}
        blocks = {k: tpot(m, **cut) - tpot(m, **old) for k, m in (("short", short), ("longer", longer))}
        assert blocks["longer"] == pytest.approx(length / 4096 * blocks["short"], rel=0.05)
    assert load_engine("vllm-2024-rocm").kernels.graph_length == 8192  # vLLM's max_seq_len_to_capture


def test_paged_attention_reads_at_the_memorys_rate_whatever_products_reach() -> None:
    s = scenario("llama-2-7b", prompt=3500)
    poor = derated(s, Derating(bandwidth=0.5))
    lost = {limit: tpot(poor, unsplit=limit) - tpot(s, unsplit=limit) for limit in (math.inf, 100_000)}
    assert 0 < lost[100_000] < 0.7 * lost[math.inf]  # the weights alone


def test_kernels_that_read_for_each_head_cut_any_cache() -> None:
    mha = scenario("llama-2-7b", "a100-sxm-80gb", "vllm-2024", prompt=3500, tp=4, batch=1)
    assert tpot(mha, kv_reread=2.0) < 0.95 * tpot(mha, kv_reread=0.0)  # the later kernel cuts groups alone


def test_kernels_of_whole_vectors_are_those_that_the_engine_names() -> None:
    s = scenario("llama-2-70b", "a100-sxm-80gb", "vllm-2024", tp=4, batch=1)
    cool = s.engine.but(prompt=1.0)  # heat is of the whole step
    named = {v: replace(s, engine=cool.but(vectorised=v)) for v in ("", "norm", "all")}
    kinds = {v: infer_scenario(one).decode_parts for v, one in named.items()}
    assert kinds["norm"]["norm"] < 0.5 * kinds[""]["norm"]
    assert kinds["norm"]["mlp"] == kinds[""]["mlp"]  # its activation
    assert kinds["all"]["mlp"] < kinds["norm"]["mlp"]


def test_of_alike_prompts_the_busiest_rank_holds_whole_experts_too() -> None:
    spread, cut = (scenario("mixtral-8x7b", "a100-sxm-40gb", "trtllm-2024", tp=4, ep=e, batch=1) for e in (4, 1))
    assert float(spread.engine.kernels.alike) > 0.5
    # two experts of eight over four ranks: 8/7 of one on the busiest, cut by tensor 1/2; 13 GB more at 1.555 TB/s
    assert tpot(spread) - tpot(cut) == pytest.approx((8 / 7 - 0.5) * 32 * 3 * 4096 * 14336 * 2 / 1.555e12, rel=0.35)


def test_an_fp8_cache_is_converted_where_the_device_does_not_know_it() -> None:
    a100, h100 = (scenario(gpu=g, quant="w16a16kv8", engine="vllm-2024") for g in ("a100-sxm-80gb", "h100-sxm-80gb"))
    assert tpot(a100) > tpot(a100, kv_convert=0.0)
    assert tpot(h100) == tpot(h100, kv_convert=0.0)


def test_a_cache_of_integers_costs_a_few_operations_a_query_head() -> None:
    a100, plain = (scenario(gpu="a100-sxm-80gb", quant=q, engine="trtllm-2024") for q in ("int8kv8", "int8"))
    assert tpot(a100) == tpot(a100, kv_convert=1e6)  # what fp8 in software costs is not theirs
    assert tpot(a100) > tpot(a100, int_convert=0.0)
    assert tpot(plain) == tpot(plain, int_convert=1e3)  # 16 bits
    cool = replace(a100, engine=a100.engine.but(prompt=1.0))  # heat is of the whole step
    grouped = tpot(cool, int_convert=5.0) - tpot(cool, int_convert=0.0)
    shared = tpot(cool, int_convert=5.0, kv_shared=16) - tpot(cool, int_convert=0.0, kv_shared=16)
    assert grouped == pytest.approx(4 * shared, rel=1e-6)  # 32 query heads, 8 KV heads


def test_an_engine_that_converts_no_fp8_keeps_integers() -> None:
    a100 = scenario(gpu="a100-sxm-80gb", quant="w4a8kv8", engine="trtllm-2024", batch=64)
    software, integers = tpot(a100), tpot(a100, kv_convert=0.0)
    assert integers < 0.7 * software
    assert tpot(a100, kv_convert=0.0, int_convert=0.0) < integers


def test_latency_of_collectives_scales_alone() -> None:
    s = scenario(tp=8, batch=1)
    low, high = (infer_scenario(replace(s, engine=s.engine.but(collective_floor=f))) for f in (1.0, 3.0))
    decode = high.decode_parts["tp_comm"] / low.decode_parts["tp_comm"]
    assert 2.0 < decode <= 3.0  # a decode step's messages are nearly all latency
    assert high.prefill_parts["tp_comm"] / low.prefill_parts["tp_comm"] < decode


def test_one_prompt_many_times_touches_fewer_experts() -> None:
    assert float(distinct_experts(8, 2, 64)) > 7.9
    assert float(distinct_experts(8, 2, 64, 1.0)) == pytest.approx(2.0)
    s = scenario("mixtral-8x7b", tp=4, engine="trtllm-2024")
    assert tpot(s, alike=1.0) < 0.8 * tpot(s, alike=0.0)


def test_unequal_experts_help_the_few_and_hurt_the_ranks() -> None:
    """Fewer experts to read where a rank holds all; a busier rank where they are spread, once tokens are not few."""
    whole, spread = (
        scenario("deepseek-v3", "h200-sxm-141gb", "vllm", quant="fp8", tp=8, ep=n, batch=64) for n in (1, 8)
    )
    assert tpot(whole, skew=0.5) < tpot(whole, skew=0.0)
    gain = [tpot(s, skew=0.5) / tpot(s, skew=0.0) for s in (whole, spread)]
    assert gain[0] < gain[1]
    assert ttft(spread, skew=0.5) > ttft(spread, skew=0.0)


def test_kernels_beside_the_shared_expert_and_the_gates_of_a_linear_mixer() -> None:
    qwen, deepseek = (
        {
            t.node.name: t.node
            for t in infer_scenario(scenario(m, "h200-sxm-141gb", "sglang", tp=8)).passes["decode"].timed
        }
        for m in ("qwen3.5-397b-a17b", "deepseek-v3")
    )
    assert {"in_gates", "shared_gate", "shared_scale", "shared_add"} <= set(qwen)
    assert float(qwen["in_gates"].flops) == 2 * 16 * 4096 * (2 * 64 / 8)  # two gates a head, on 16 tokens
    assert "shared_add" in deepseek and {"shared_gate", "in_gates"}.isdisjoint(deepseek)


def test_the_shared_expert_rides_beside_the_routed_ones_while_tokens_are_few() -> None:
    few, many = (scenario("deepseek-v3", "h200-sxm-141gb", "sglang", quant="fp8", tp=8, batch=n) for n in (16, 2048))
    assert tpot(few, shared_aside=1024) < tpot(few, shared_aside=0)
    assert tpot(many, shared_aside=1024) == tpot(many, shared_aside=0)
    assert ttft(few, shared_aside=1024) == ttft(few, shared_aside=0)  # prompts run outside CUDA graphs
    timed = {t.node.name: t.time for t in infer_scenario(few).passes["decode"].timed}
    assert float(timed["shared_down"]) < float(timed["router"]) / 3  # what it moves, not what it launches


def test_the_host_issues_prompts_that_no_graph_holds() -> None:
    s = scenario("deepseek-v3", "h200-sxm-141gb", "vllm", quant="fp8", tp=8, batch=1, prompt=1024)
    launched = sum(t.node.count * getattr(t.node, "launches", 1) for t in infer_scenario(s).passes["prefill"].timed)
    plain, slow = (infer_scenario(replace(s, engine=s.engine.but(eager=e))) for e in (0.0, 200e-6))
    assert float(slow.ttft) > 1.5 * float(plain.ttft)
    parts = slow.prefill_parts
    assert sum(map(float, parts.values())) == pytest.approx(float(slow.ttft), rel=1e-12)
    assert float(slow.ttft - parts["request"]) == pytest.approx(float(launched) * 200e-6, rel=0.05)
    assert ttft(s, eager=200e-6, captured=1024) == ttft(s, eager=0.0, captured=1024)  # a replayed graph
    many = scenario("deepseek-v3", "h200-sxm-141gb", "vllm", quant="fp8", tp=8, batch=64, prompt=8192)
    assert ttft(many, eager=20e-6) == pytest.approx(ttft(many, eager=0.0), rel=1e-6)  # the device is slower


def test_mechanisms_may_be_switched_off_by_path() -> None:
    given = {"gpu": "h200", "tp": 8, "quant": "fp8"}
    for name in ("eager", "captured", "skew", "shared_aside", "alike"):
        off = infer("deepseek-v3", sets={f"engine.{name}": 0}, **given)
        assert float(off.scenario.engine.value(name)) == 0.0
    with pytest.raises(RooflmError, match=r"engine\.captured is -5, but it must be a whole number of at least 0"):
        infer("deepseek-v3", sets={"engine.captured": -5}, **given)


def test_the_weighted_sum_belongs_to_the_experts_kernels() -> None:
    """The measured kernels of experts end with it: no op of its own when serving, one in training."""
    served = [t.node.name for t in infer_scenario(scenario("mixtral-8x7b")).passes["decode"].timed]
    assert "experts" in served and "combine" not in served


def test_vector_kernels_stream_narrow_weights() -> None:
    s = scenario(engine="llama.cpp-2024-05", gpu="rtx-4090", quant="q4_k_m", batch=1)
    assert tpot(s, gemv=True) < tpot(s, gemv=False)
    assert ttft(s, dequant=4.0) > ttft(s, dequant=0.0)


def test_prompts_overlap_in_a_pipeline_as_far_as_queues_hold_them() -> None:
    s = scenario(engine="llama.cpp-2024-05", gpu="rtx-4090", quant="q4_k_m", batch=1, prompt=4096, pp=4)
    none, all_ = ttft(s, pipelined=False), ttft(s, queue=1e9)
    ahead = 7 * (9 / 8 - 1)  # the first of four stages has 9 of the 32 layers: the head counts as the last one's
    assert none / all_ == pytest.approx(8 * 4 / (4 + 7 + ahead), rel=0.02)  # 8 passes: in turn, or behind each other
    assert all_ == ttft(s, queue=1e6) < ttft(s, queue=1000) < ttft(s, queue=300) < none


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("held", [0.3, 0.84, 1.2, 2.4, 4.1])
@pytest.mark.parametrize("passes", [1, 2, 8, 13])
def test_full_queues_are_those_of_a_run_step_by_step(pp: int, held: float, passes: int) -> None:
    """A host that issues stage after stage, pass after pass, against the formula: stages of one second each, of whose
    passes a queue holds `held`."""
    host, done = 0.0, np.zeros((passes + 1, pp))
    for i in range(1, passes + 1):
        for stage in range(pp):
            begin = max(host, done[i - 1, stage], done[i, stage - 1] if stage else 0.0)
            done[i, stage] = begin + 1
            due = i - held  # passes of the stage that must have run until the last kernel of this one is in the queue
            if due > 0:
                whole = int(due)
                host = max(host, done[whole + 1, stage] - 1 + due - whole)
    s = scenario(engine="llama.cpp", gpu="rtx-4090", batch=1, pp=pp, sets={"engine.even_stages": False})
    timed = infer_scenario(s).passes["prefill"].timed
    s = replace(s, engine=s.engine.but(commands=1.0, queue=held * launches(timed) / pp))
    assert done[-1, -1] == pytest.approx(pp + passes - 1 + stalls(s, timed, rates(s), passes))


def test_stages_wait_for_a_choice_of_experts_that_the_host_makes() -> None:
    """llama.cpp on V100: passes of 64 tokens and more spread quantised experts and visit them one by one, with a wait
    for the router, so that a prompt of 16 passes takes 16 times one of one (two mixtures on eight V100, b9644)."""
    there: dict[str, Any] = {"engine": "llama.cpp-b9644", "gpu": "v100-sxm-32gb", "quant": "q4_k_m", "batch": 1}
    there |= {"model": "qwen3-30b-a3b", "gpus": 4, "pp": 4}
    one, many = (ttft(scenario(**there, prompt=512 * n)) for n in (1, 16))
    assert many / one == pytest.approx(16, rel=0.1)
    there["gpu"] = "rtx-3090"
    one, many = (ttft(scenario(**there, prompt=512 * n)) for n in (1, 16))
    assert many / one < 8


def test_bf16_experts_without_a_kernel_of_their_own_slow_prompts_alone() -> None:
    s = scenario("qwen3-30b-a3b", gpu="strix-halo-128gb", engine="llama.cpp", quant="bf16", batch=1)
    assert ttft(s, bf16_experts=0.1) > 1.3 * ttft(s, bf16_experts=0.0)
    assert tpot(s, bf16_experts=0.1) == tpot(s, bf16_experts=0.0)  # a token's run on vector kernels
    narrow = scenario("qwen3-30b-a3b", gpu="strix-halo-128gb", engine="llama.cpp", quant="q8_0", batch=1)
    assert ttft(narrow, bf16_experts=0.1) == ttft(narrow, bf16_experts=0.0)


def derated(s: Scenario, factors: Derating) -> Scenario:
    """The scenario on a card that reaches these shares of its datasheet."""
    return replace(s, cluster=replace(s.cluster, device=replace(s.cluster.device, derating=factors)))


def test_products_of_few_rows() -> None:
    m = np.array([1.0, 64.0, 4096.0])
    slow = few_rows_time(np.ones(3), m, 1e14 / (16384.0 * m), 8192.0, 30.0, 0.0)
    assert slow[0] == pytest.approx(30.0, rel=1e-3)
    assert slow[2] == pytest.approx((1.0 + (30.0 * 292 / 4096) ** 3) ** (1 / 3), rel=1e-3)
    assert few_rows_time(1.0, 1.0, 64.0, 8192.0, 0.0, 304.0) == 1.0
    short, long = (few_rows_time(1e-9, 64.0, 4096.0, inner, 2.0, 0.0) for inner in (2048.0, 8192.0))
    assert long == pytest.approx(4**1.7 * short, rel=1e-3)  # four times the FLOPs, at 0.38 of the rate
    one, whole = (few_rows_time(1e-9, 64.0, columns, 8192.0, 2.0, 304.0) for columns in (608.0, 4864.0))
    assert whole == pytest.approx(2 * 4864 / (608 + 4864) * one, rel=1e-3)  # an eighth of them: half the time


def test_more_rows_of_poor_kernels_are_never_faster() -> None:
    """A first token of 512 tokens took 1.05 s on MI300X in 70B, and of 1,024 0.32 s."""
    rows = 2.0 ** np.arange(0, 15, 0.25)
    assert np.all(np.diff(few_rows_time(1e-7 * rows, rows, 8192.0, 8192.0, 1.75, 304.0)) > 0)
    grid = infer("llama-2-70b", gpu="mi300x", engine="vllm-2024-rocm", prompt=[128, 256, 512, 1024, 2048, 4096])
    assert np.all(np.diff(grid["ttft_s"].values.ravel()) > 0)


def test_8_bit_weights_have_products_of_their_own_where_those_of_16_are_poor() -> None:
    by = {
        quant: [tpot(derated(scenario("llama-3-8b", gpu="mi300x", engine="vllm-2024-11-rocm", quant=quant, batch=64),
                             Derating(few=few))) for few in (0.0, 4.0)]
        for quant in ("bf16", "fp8")
    }  # fmt: skip
    assert by["bf16"][1] > 1.5 * by["bf16"][0]
    assert by["fp8"][1] < 1.2 * by["fp8"][0]  # its head is of 16 bits


def test_cards() -> None:
    assert derating(load_device("a100-sxm-80gb"), "no-such-engine") == Derating()
    assert derating(load_device("mi300x"), "vllm-2024-rocm").few > 1.5
    assert derating(load_device("mi300x"), "no-such-engine").few == 0
    assert derating(load_device("rtx-4080"), "no-such-engine").bandwidth > 1  # its product family's
    s = scenario(engine="vllm")
    assert tpot(derated(s, Derating(bandwidth=0.5))) > 1.5 * tpot(s)


def test_ideal_is_untouched_by_cards_and_engines() -> None:
    s = build_inference(model="llama-7b", gpu="mi300x", efficiency="ideal").scenario
    slow = derated(s, Derating(0.1, 0.1))
    assert float(infer_scenario(slow).tpot) == float(infer_scenario(s).tpot)


def test_numbers_are_put_into_their_row() -> None:
    text = '[a]\nstep = "1 us"\n\n["b.c"]\nbase = "a"\n'
    assert updated(text, "b.c", {"step": 0.0123, "gap": 1e-6}) == (
        '[a]\nstep = "1 us"\n\n["b.c"]\nbase = "a"\nstep = "12300 us"\ngap = "1 us"\n'
    )
    assert updated(text, "none", {"step": 1.0}) == text


def test_heads_of_gguf_files_are_narrow() -> None:
    from rooflm.estimate.memory import weight_bytes
    from rooflm.readers.checkpoints.load import load_model
    from rooflm.readers.schemes import parse_quant
    from rooflm.scenario.mapping import Mapping

    quant = parse_quant("q4_k_m")
    sizes = {m: float(weight_bytes(load_model(m), Mapping(), quant)) for m in ("llama-3-8b", "llama-3-70b")}
    assert sizes["llama-3-8b"] == pytest.approx(4.92e9, rel=0.03)  # published files
    assert sizes["llama-3-70b"] == pytest.approx(42.5e9, rel=0.02)


def test_prompts_in_chunks_have_half_the_scores() -> None:
    whole = scenario(engine="llama.cpp-2024-05", gpu="rtx-4090", quant="q4_k_m", batch=1, prompt=8192)
    parts = infer_scenario(whole).timed["prefill"]
    softmax = next(t.node for t in parts if t.node.name == "softmax")
    # 16 passes of 512 rows: 512 to 8192 keys, (512 + 8192) / 2 on average, 20 bytes a score and 32 heads
    assert float(np.max(softmax.bytes)) == pytest.approx(512 * 4352 * 32 * 20)  # type: ignore[union-attr]


def test_activations_in_fp32_cost_conversions() -> None:
    s = scenario(engine="llama.cpp-2024-05", gpu="h100-pcie-80gb", batch=1, prompt=512)
    assert 1.02 < ttft(s) / ttft(s, convert=0.0) < 1.4
    assert tpot(s) == tpot(s, convert=0.0)  # vector kernels read fp32 activations


def test_a_card_without_runs_takes_its_family() -> None:
    measured = load_device("rtx-4090")
    seen, unseen = (derating(d, "llama.cpp") for d in (measured, replace(measured, name="a-new-card")))
    assert unseen.compute == pytest.approx(seen.compute, rel=0.5)
    assert unseen.compute > 1.2
    assert derating(load_device("h100-sxm-80gb"), "no-such-engine") == Derating()
