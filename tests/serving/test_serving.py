"""The serving simulator: conservation, capacity, Little's law, agreement with single predictions, and its options."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.asked.assumed import of_card, with_limits
from rooflm.asked.build_inference import build_inference
from rooflm.errors import RooflmError
from rooflm.estimate.capacity import fixed_buffers, memory_use, usable
from rooflm.estimate.inference import infer_scenario
from rooflm.estimate.request import every_pass
from rooflm.estimate.step import issue_time, step
from rooflm.graph.context import Context, Decode, Pass, Prefill
from rooflm.graph.forward import build
from rooflm.kernels.roofline import time_nodes
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.devices import load_device
from rooflm.readers.engines import load_engine
from rooflm.serving import metrics, workload
from rooflm.serving.capacity import capacity
from rooflm.serving.components import TableSize, components
from rooflm.serving.deploy import serve, server_for, server_options
from rooflm.serving.replica import FINISHED, REJECTED, RUNNING
from rooflm.serving.schedulers import SCHEDULERS, Ranks
from rooflm.serving.server import Server
from rooflm.serving.simulate import Pool, Run, simulate, visible
from rooflm.serving.steps import StepTable
from rooflm.serving.workload import Requests, closed_loop, held, open_loop, prefixed

SCENARIO = build_inference(model="llama-3.1-8b", gpu="h100-sxm-80gb", batch=1, prompt=512, output=128).scenario
PARTS = components(SCENARIO, TableSize(8192 + 512, 512, 8192))
TABLE = StepTable(PARTS)
KV = capacity(SCENARIO, 8192, 8192)


def run_of(
    load: Requests, tokens: float | None = None, replicas: int = 1, router: str = "round-robin", **options: Any
) -> Run:
    kv = KV if tokens is None else KV._replace(tokens=tokens)
    server = Server(**{"max_sequences": 512, **options})
    return simulate(load, (Pool(TABLE, server, kv, replicas),), router)


def lasts(table: StepTable, *given: Any, **more: Any) -> float:
    """Seconds of a pass."""
    return table.passed(*given, **more)[0]


def accounted(run: Run) -> bool:
    """True when every request is finished, rejected, running or waiting, and finished ones have all their times."""
    r = run.records
    good = all(s in (0, RUNNING, FINISHED, REJECTED) for s in r.status)
    return good and all(
        r.first[i] <= r.end[i] and r.arrival[i] <= r.first[i] for i in range(len(r.status)) if r.status[i] == FINISHED
    )


@pytest.mark.parametrize(
    ("new", "past", "sequences", "context"), [(512, 0, 32, 1000), (2048, 0, 100, 2000), (64, 4096, 7, 300)]
)
def test_a_mixed_pass_is_the_sum_of_its_kernels(new: int, past: int, sequences: int, context: int) -> None:
    s = replace(SCENARIO, engine=SCENARIO.engine.but(prompt=1.0))
    work = Pass(Prefill(1, new, past), Decode(sequences, context), 1 + sequences)
    nodes = build(Context(s.model.scaled, work, s.mapping, s.quant, s.engine.kernels))
    timed = time_nodes(nodes, s, s.engine.factors)
    e = s.engine
    whole = step(timed, e, s.cluster.device, issue_time(e, new + sequences, e.host.captured),
                 (sequences + 1) * e.host.sequence + every_pass(s, e))  # fmt: skip
    table = StepTable(PARTS, s.engine)
    assert lasts(table, [(new, past)], sequences, context) == pytest.approx(float(whole.total), rel=0.02)


def test_what_prompts_add_is_scaled_and_of_decoding_what_flops_take() -> None:
    plain, slow = (StepTable(PARTS, SCENARIO.engine.but(prompt=f, eager=0.0)) for f in (1.0, 2.0))
    alone = plain.decode_time(32, 1000.0)
    assert alone < slow.decode_time(32, 1000.0) < 1.1 * alone  # what 32 rows multiply
    assert lasts(slow, [(512, 0)], 0, 0.0) == pytest.approx(2 * lasts(plain, [(512, 0)], 0, 0.0), rel=0.05)
    added = lasts(plain, [(512, 0)], 32, 1000.0) - alone
    assert lasts(slow, [(512, 0)], 32, 1000.0) - slow.decode_time(32, 1000.0) == pytest.approx(2 * added, rel=0.1)


def test_decoding_runs_in_the_next_larger_graph_and_reads_its_own_cache() -> None:
    """TensorRT-LLM's enable_padding: dummies take part in products, attention is over the sequences that there are."""
    table = StepTable(PARTS, SCENARIO.engine.but(graphs="128 512"))
    more = [table.decode_time(300, context) - TABLE.decode_time(300, context) for context in (700.0, 4000.0)]
    assert more[0] == pytest.approx(more[1], rel=1e-6)
    assert 0 < more[0] < TABLE.decode_time(512, 700.0) - TABLE.decode_time(300, 700.0)
    assert table.decode_time(128, 700.0) == TABLE.decode_time(128, 700.0)
    assert table.decode_time(129, 700.0) - TABLE.decode_time(129, 700.0) > more[0]  # more places are empty
    assert table.decode_times(np.array([129]), 700.0)[0] == pytest.approx(table.decode_time(129, 700.0))
    assert lasts(table, [(512, 0)], 300, 700.0) == lasts(TABLE, [(512, 0)], 300, 700.0)


def test_handing_tokens_out_takes_its_time_beside_any_kernel() -> None:
    slow = StepTable(PARTS, SCENARIO.engine.but(deliver=float(SCENARIO.engine.host.deliver) + 1e-5))
    for sequences in (16, 128):
        more = slow.decode_time(sequences, 700.0) - TABLE.decode_time(sequences, 700.0)
        assert more == pytest.approx(sequences * 1e-5)
    assert lasts(slow, [(512, 0)], 128, 700.0) - lasts(TABLE, [(512, 0)], 128, 700.0) == pytest.approx(128e-5)
    assert lasts(slow, [(512, 0)], 0, 0.0) == lasts(TABLE, [(512, 0)], 0, 0.0)
    every = (StepTable(PARTS, e.but(graphs="512")) for e in (slow.engine, SCENARIO.engine))
    late, soon = (table.decode_time(100, 700.0) for table in every)
    assert late - soon == pytest.approx(100e-5)  # none for a graph's empty places


def test_steps_in_closed_form_are_the_sum_of_single_steps() -> None:
    summed = sum(TABLE.decode_time(20, 700.0 + j) for j in range(400))
    assert TABLE.decode_sum(20, 700.0, 400) == pytest.approx(summed, rel=1e-6)


@pytest.mark.parametrize("prompt", [128, 2000, 7000])
def test_one_client_is_the_single_request_prediction(prompt: int) -> None:
    e = infer_scenario(build_inference(model="llama-3.1-8b", gpu="h100-sxm-80gb", prompt=prompt, output=200).scenario)
    run = run_of(
        closed_loop(1, 3, prompt, 200),
        request=float(e.scenario.engine.host.request),
        front=float(e.scenario.engine.host.front),
        tokenise=float(e.scenario.engine.host.tokenise),
        carry=float(e.scenario.engine.host.carry),
    )
    t = metrics.table(run)
    assert t.ttft == pytest.approx(float(e.ttft), rel=0.01)
    assert t.tpot == pytest.approx(float(e.tpot), rel=0.01)
    out = serve("llama-3.1-8b", gpu="h100-sxm-80gb", concurrency=1, requests=3, prompt=prompt, output=200)
    assert out.latency_s["mean"] == pytest.approx(float(e.latency), rel=0.01)


@pytest.mark.parametrize("gpu", ["rtx-4090", "m4-max", "strix-halo"])
def test_experts_of_a_long_prompt_cost_one_client_what_a_batch_of_one_costs(gpu: str) -> None:
    """llama.cpp's passes are of 512 tokens in both, each of which reads the experts' weights."""
    asked: dict[str, Any] = {"gpu": gpu, "quant": "q4_k_m", "prompt": 2048, "output": 16}
    one = rooflm.infer("qwen3-30b-a3b", **asked)
    served = rooflm.serve("qwen3-30b-a3b", concurrency=1, requests=2, **asked)
    assert served.ttft_s["mean"] == pytest.approx(one.ttft, rel=0.02)


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize(
    "load", [closed_loop(48, 300, 500, 300, (0.3, 1.0), 1), open_loop(30, 300, 700, 200, (0.1, 1.0), 2)]
)
def test_requests_are_accounted_for_and_kv_stays_within_capacity(name: str, preemption: str, load: Requests) -> None:
    run = run_of(load, tokens=9000.0, scheduler=name, preemption=preemption)
    assert accounted(run)
    assert run.records.status.count(FINISHED) == load.count
    assert max(r.kv.peak for r in run.replicas) <= 9000.0 * (1 + 1e-9)
    assert all(abs(r.kv.used) < 1e-3 and abs(r.decoding.stored) < 1e-3 and not r.decoding.heap for r in run.replicas)
    made = sum(r.meter.sequence_steps for r in run.replicas)
    firsts = load.count + sum(r.meter.preemptions for r in run.replicas) * (preemption == "recompute")
    assert made + firsts >= int(load.output.sum())


def test_no_eviction_never_preempts_and_utilisation_does() -> None:
    load = closed_loop(64, 300, 400, 400, (0.5, 1.0), 3)
    assert run_of(load, 12000.0, scheduler="no-evict").replicas[0].meter.preemptions == 0
    assert run_of(load, 12000.0, scheduler="in-flight").replicas[0].meter.preemptions > 0


def test_what_cannot_fit_is_rejected_and_the_rest_is_served() -> None:
    load = Requests(np.array([100, 9000, 100]), np.array([10, 10, 10]), np.array([0.0, 0.1, 0.2]))
    run = run_of(load, tokens=5000.0)
    assert list(run.records.status) == [FINISHED, REJECTED, FINISHED]
    assert metrics.summarise(run).values["rejected"] == 1


def test_littles_law_on_a_long_run() -> None:
    load = open_loop(20, 6000, 512, 128, (0.5, 1.0), seed=5)
    run = run_of(load)
    t = metrics.table(run)
    events = np.concatenate(
        [np.stack([t.arrival, np.ones(6000)]), np.stack([t.arrival + t.latency, -np.ones(6000)])], 1
    )
    order = np.argsort(events[0])
    time, inside = events[0][order], np.cumsum(events[1][order])
    mean_inside = float(np.sum(inside[:-1] * np.diff(time)) / time[-1])
    rate = 6000 / time[-1]
    assert mean_inside == pytest.approx(rate * float(t.latency.mean()), rel=1e-6)
    r = run.replicas[0]
    decoding = r.meter.sequence_steps / r.decoding.steps
    assert decoding == pytest.approx(rate * float((t.latency - t.ttft).mean()), rel=0.25)


def test_same_seed_same_result_and_another_seed_another() -> None:
    first, again, other = (run_of(open_loop(25, 400, seed=s)).records.end for s in (7, 7, 8))
    assert list(first) == list(again)
    assert list(first) != list(other)


def test_more_replicas_never_raise_the_mean_latency() -> None:
    load = open_loop(60, 1500, 512, 128, (0.5, 1.0), seed=11)
    for router in ("round-robin", "least-loaded"):
        means = [float(metrics.table(run_of(load, replicas=n, router=router)).latency.mean()) for n in (1, 2, 4)]
        assert means == sorted(means, reverse=True)


def test_more_bandwidth_never_raises_the_mean_latency() -> None:
    means = []
    for share in (0.5, 1.0, 2.0):
        out = serve(
            "llama-3.1-8b", gpu="h100-sxm-80gb", rate=20.0, requests=300, efficiency="ideal",
            sets={"cluster.device.dram.bandwidth": share * 3.35e12},
        )  # fmt: skip
        means.append(out.latency_s["mean"])
    assert means == sorted(means, reverse=True)


def test_the_event_jump_is_the_same_as_stepping() -> None:
    """Arrivals cut runs of decode steps at step boundaries: a trickle of no-op observers changes nothing."""
    load = open_loop(15, 200, 512, 64, (0.5, 1.0), seed=3)
    plain = run_of(load)
    # requests that can never fit are rejected on arrival and must leave no trace in the others
    noise = np.linspace(0.01, float(load.arrival[-1]), 500)
    order = np.argsort(np.concatenate([load.arrival, noise]), kind="stable")
    both = Requests(
        np.concatenate([load.prompt, np.full(500, 10**9)])[order],
        np.concatenate([load.output, np.ones(500, int)])[order],
        np.concatenate([load.arrival, noise])[order],
    )  # fmt: skip
    mixed = metrics.table(run_of(both))
    kept = mixed.status == "finished"
    assert np.allclose(mixed.latency[kept], metrics.table(plain).latency)


def test_chunks_hold_back_nothing_and_static_batches_wait() -> None:
    load = closed_loop(32, 320, 1024, 128, (0.8, 1.0), 1)
    mixed = metrics.summarise(run_of(load)).values
    static = metrics.summarise(run_of(load, scheduler="static", max_sequences=32)).values
    assert mixed["requests_per_s"] > static["requests_per_s"]


def test_prefill_first_gives_sooner_first_tokens_and_longer_gaps() -> None:
    load = open_loop(12, 500, 2048, 128, (0.8, 1.0), 1)
    vllm, sglang = (metrics.summarise(run_of(load, scheduler=n)).values for n in ("continuous", "prefill-first"))
    assert sglang["itl_s"]["p99"] > vllm["itl_s"]["p50"]
    assert sglang["ttft_s"]["p50"] < 1.3 * vllm["ttft_s"]["p50"]


def test_priority_goes_first_when_there_is_a_queue() -> None:
    load = open_loop(80, 600, 1024, 64, seed=2)
    load = replace(load, priority=np.arange(600) % 2.0)
    t = metrics.table(run_of(load, policy="priority", max_sequences=16))
    assert float(t.ttft[::2].mean()) < 0.5 * float(t.ttft[1::2].mean())
    t = metrics.table(
        run_of(replace(load, prompt=np.where(np.arange(600) % 2, 3000, 100)), policy="shortest", max_sequences=8)
    )
    assert float(np.median(t.ttft[::2])) < float(np.median(t.ttft[1::2]))


def test_a_shared_prefix_is_found_again() -> None:
    common = {"gpu": "h100-sxm-80gb", "rate": 5.0, "requests": 200, "prompt": 4096, "output": 32, "shared_prefix": 3584}
    cold = serve("llama-3.1-8b", **common, options={"prefix_caching": False})
    warm = serve("llama-3.1-8b", **common)
    assert cold.cached_share == 0
    assert warm.cached_share == pytest.approx(3584 / 4096, rel=0.02)
    assert warm.ttft_s["mean"] < 0.5 * cold.ttft_s["mean"]
    assert max(r.kv.peak for r in warm.run.replicas) <= warm.run.pools[0].capacity.tokens


def test_what_an_earlier_run_left_is_found_as_far_as_memory_holds_it() -> None:
    """The same prompts sent again: all but the last block of each where they fit, none where the least recently used is
    given up for each newcomer."""
    common = {"gpu": "h100-sxm-80gb", "concurrency": 16, "requests": 64, "prompt": 4096, "output": 32}
    cold, warm = serve("llama-3.1-8b", **common), serve("llama-3.1-8b", **common, cached=4095)
    assert (cold.cached_share, warm.cached_share) == (0, 4080 / 4096)
    assert warm.ttft_s["mean"] < 0.2 * cold.ttft_s["mean"]
    assert warm.kv_peak == pytest.approx(cold.kv_peak, rel=0.01)  # all sixteen with their prompts, once
    assert serve("llama-3.1-8b", **common, cached=4095, options={"prefix_caching": False}).latency_s == cold.latency_s
    small = {"cached": 4095, "options": {"cache_blocks": 40 * 4096 // 16}}
    assert serve("llama-3.1-8b", **common, **small).cached_share == 0


def test_each_replica_finds_its_share_of_an_earlier_run() -> None:
    """Memory for 40 of 64 prompts: 32 of each replica's own are there, and with one replica none in their turn."""
    common = {"gpu": "h100-sxm-80gb", "concurrency": 16, "requests": 64, "prompt": 4096, "output": 32, "cached": 4095}
    common["options"] = {"cache_blocks": 40 * 4096 // 16}
    one, two = (serve("llama-3.1-8b", **common, replicas=n) for n in (1, 2))
    assert (one.cached_share, two.cached_share) == (0, 4080 / 4096)
    apart = serve("llama-3.1-8b", **common, replicas=2, prefill_replicas=2)
    assert apart.cached_share == 4080 / 4096


@pytest.mark.parametrize("name", ["shared_prefix", "cached"])
def test_it_is_said_where_no_cache_keeps_what_is_told_to_be_there(name: str) -> None:
    common = {"gpu": "h100", "concurrency": 2, "requests": 4, "prompt": 512, "output": 4}
    said = f"{name} has no effect: hf-eager keeps no prefix cache here"
    assert said in serve("llama-3.1-8b", **common, engine="hf-eager", **{name: 100}).warnings
    off = serve("llama-3.1-8b", **common, engine="vllm", options={"prefix_caching": False}, **{name: 100})
    assert any(w.startswith(f"{name} has no effect: vllm") for w in off.warnings)
    for engine, told in (("vllm", {name: 100}), ("hf-eager", {})):
        assert not any("has no effect" in w for w in serve("llama-3.1-8b", **common, engine=engine, **told).warnings)


@pytest.mark.parametrize(
    ("engine", "prefix", "found"),
    [("vllm", 1500, 1488), ("sglang", 1500, 1500), ("trtllm", 1500, 1472), ("vllm", 400, 400), ("hf-eager", 1500, 0)],
)
def test_prefixes_are_cached_in_whole_blocks_of_the_engine(engine: str, prefix: int, found: int) -> None:
    """Block sizes: vLLM 16, SGLang 1, TensorRT-LLM 32 tokens; Hugging Face has no cache of prefixes."""
    out = serve(
        "llama-3.1-8b", gpu="h100-sxm-80gb", engine=engine, concurrency=4, requests=60, prompt=2048, output=32,
        shared_prefix=prefix,
    )  # fmt: skip
    cached = out.table.cached
    assert int(cached.max()) == found
    assert (cached == found).sum() >= 56  # all but the first wave


def test_what_all_share_is_read_once_by_releases_that_do_so() -> None:
    """vLLM's cascade attention: from 256 tokens and eight requests on, and no more than the prefix is spared."""
    common = {"gpu": "l4", "requests": 64, "prompt": 2048, "output": 64, "engine": "vllm-0.14"}

    def gain(concurrency: int, prefix: int) -> float:
        once, each = (
            serve("llama-3.1-8b", **common, concurrency=concurrency, shared_prefix=prefix, sets={"engine.cascade": c})
            for c in (8, 0)
        )
        return float(each.tpot_s["mean"] / once.tpot_s["mean"])

    assert gain(4, 1920) == gain(16, 240) == 1.0
    assert 1.0 < gain(16, 512) < gain(16, 1920) < 1.5


def test_blocks_in_use_are_memory_and_stay() -> None:
    """A card whose memory holds some 52 of these requests runs 52 at a time, whatever they share, and sharing helps."""
    common = {"gpu": "h100", "concurrency": 300, "requests": 600, "prompt": 8192, "output": 512, "spread": (0.9, 1.1)}
    plain = serve("llama-3.1-8b", **common)
    shared = serve("llama-3.1-8b", **common, shared_prefix=512)
    each = 8192 + 512 / 2
    tokens = plain.kv_capacity_tokens
    assert plain.running_mean == pytest.approx(tokens / each, rel=0.1)
    assert shared.running_mean == pytest.approx((tokens - 512) / (each - 512), rel=0.1)
    assert shared.kv_occupancy == pytest.approx(plain.kv_occupancy, rel=0.05)
    assert shared.kv_peak <= 1.0 + 1e-9
    assert shared.output_tokens_per_s > plain.output_tokens_per_s
    assert shared.ttft_s["mean"] < plain.ttft_s["mean"]


def test_a_prompt_that_nobody_shares_leaves_memory_as_it_was() -> None:
    common = {"gpu": "h100-sxm-80gb", "concurrency": 16, "requests": 100, "prompt": 4096, "output": 64}
    plain, own = serve("llama-3.1-8b", **common), serve("llama-3.1-8b", **common, shared_prefix=8)
    assert own.cached_share == 0  # shorter than a block
    assert own.kv_occupancy == pytest.approx(plain.kv_occupancy, rel=1e-9)
    assert own.latency_s == plain.latency_s


def test_a_document_that_an_earlier_run_read_is_there_once_for_all() -> None:
    common = {"gpu": "h100-sxm-80gb", "concurrency": 64, "requests": 64, "prompt": 32832, "output": 64}
    cold, own, warm = (serve("llama-3.1-8b", **common, **kwargs)
                       for kwargs in ({"shared_prefix": 32768}, {"cached": 32768},
                                      {"shared_prefix": 32768, "cached": 32768}))  # fmt: skip
    assert warm.cached_share > cold.cached_share > own.cached_share  # 64 copies of their own do not fit
    assert warm.ttft_s["max"] < cold.ttft_s["max"] < 0.5 * own.ttft_s["max"]
    assert warm.kv_occupancy < 0.3


def test_an_earlier_run_left_of_a_common_part_what_it_is_told_to_have() -> None:
    """Less than all of it: the first to come reads the rest. Of prompts of unequal lengths the longest part counts."""
    common = {"gpu": "h100-sxm-80gb", "concurrency": 1, "requests": 20, "prompt": 4096, "output": 8}
    first = [serve("llama-3.1-8b", **common, shared_prefix=2048, cached=n, spread=(1, 1)).run.records.cached[0]
             for n in (0, 512, 1024, 2048, 4000)]  # fmt: skip
    assert first == [0, 512, 1024, 2048, 4000]
    load = serve("llama-3.1-8b", **common, shared_prefix=4000, cached=4000, spread=(0.5, 1)).run
    assert all(c >= min(p, 4000) - 16 for c, p in zip(load.records.cached, load.records.prompt, strict=True))


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_memory_is_conserved_with_shared_prefixes(name: str, preemption: str) -> None:
    load = prefixed(closed_loop(48, 300, 500, 300, (0.3, 1.0), 1), 200)
    run = run_of(load, tokens=9000.0, scheduler=name, preemption=preemption, prefix_caching=True)
    assert run.records.status.count(FINISHED) == load.count
    kv = run.replicas[0].kv
    assert kv.cache is not None and not kv.cache.pins and not kv.shared
    assert abs(kv.used) < 1e-3 and kv.peak <= 9000.0 * (1 + 1e-9)
    assert kv.cache.idle == sum(kv.cache.tokens.values()) <= 9000


def test_prefix_aware_routing_keeps_conversations_together() -> None:
    hashes = [[100 * (i % 4) + b for b in range(7)] + [10_000 + i] for i in range(400)]
    load = replace(open_loop(40, 400, 4096, 16, seed=4), hashes=hashes)
    hits = {}
    for router in ("round-robin", "prefix-aware"):
        out = serve(
            "llama-3.1-8b", gpu="h100-sxm-80gb", trace=load, replicas=4, router=router, options={"prefix_caching": True}
        )  # type: ignore[arg-type]
        hits[router] = out.cached_share
    assert hits["prefix-aware"] >= hits["round-robin"]


def test_speculation_makes_fewer_steps() -> None:
    out = {
        n: serve("llama-3.1-8b", gpu="h100-sxm-80gb", concurrency=4, options={"speculative": n, "acceptance": 0.8})
        for n in (0, 3)
    }
    assert out[3].tpot_s["mean"] < 0.6 * out[0].tpot_s["mean"]
    assert out[3].finished == out[0].finished == 40


def test_separate_prefill_and_decode_pools() -> None:
    common = {"gpu": "h100-sxm-80gb", "rate": 6.0, "requests": 200, "prompt": 4096, "output": 128, "spread": (0.5, 1.0)}
    joint = serve("llama-3.1-8b", **common, replicas=2)
    apart = serve("llama-3.1-8b", **common, replicas=1, prefill_replicas=1)
    assert apart.finished == 200 and apart.gpus == 2
    assert apart.itl_s["p99"] < joint.itl_s["p99"]
    loop = serve("llama-3.1-8b", gpu="h100-sxm-80gb", concurrency=8, replicas=1, prefill_replicas=1)
    assert loop.finished == 80 and accounted(loop.run)


def test_the_first_token_of_pools_comes_with_the_cache() -> None:
    """Clients hear from the decode replica: a slow way, and a wait for its memory, are of the first token."""
    common = {"gpu": "h100-sxm-80gb", "concurrency": 8, "prompt": 2048, "output": 64, "prefill_replicas": 1}
    fast, slow = (serve("llama-3.1-8b", **common, transfer_bandwidth=b) for b in (400e9, 2e9))
    sent = 2048 * slow.run.pools[1].capacity.bytes_per_token / 2e9
    assert slow.ttft_s["mean"] - fast.ttft_s["mean"] > 0.5 * sent
    assert slow.tpot_s["mean"] <= fast.tpot_s["mean"]
    for out in (fast, slow):
        assert out.steady is not None and out.steady.ttft == pytest.approx(out.ttft_s["mean"], rel=0.35)


POOLS = {"gpu": "h100-sxm-80gb", "engine": "sglang", "concurrency": 16, "prompt": 1024, "prefill_replicas": 1}


def test_a_prefill_server_sends_caches_one_after_the_other() -> None:
    """Keys and values of 32 layers are 64 pieces: the last of 16 prompts that are read at once waits for 1,024."""
    at_once, slow = (
        serve("llama-3.1-8b", **POOLS | {"prompt": 32}, output=8, requests=16, sets={"engine.handover": piece})
        for piece in (0, 1e-3)
    )
    late = np.sort(np.asarray(slow.run.records.first)) - np.sort(np.asarray(at_once.run.records.first))
    assert late[-1] == pytest.approx(16 * 64e-3, rel=0.1)
    assert late[0] == pytest.approx(64e-3, abs=0.02)


def test_a_decode_server_with_prompts_of_their_own_shows_a_token_before_it_decodes() -> None:
    """SGLang takes a request in on a turn without work, while a step runs that it is not part of."""
    load = {**POOLS, "output": 32, "spread": (0.9, 1.0), "requests": 128}
    out = {e: serve("llama-3.1-8b", **load | {"engine": e}) for e in ("sglang", "vllm")}
    gaps = {}
    for engine, served in out.items():
        r, step = served.run.records, served.itl_s["mean"]
        made = np.asarray(r.output)[16:] - 1
        took = (np.asarray(r.end) - np.asarray(r.first))[16:]
        gaps[engine] = float(np.median(took - made * step)) / step
    assert gaps["sglang"] - gaps["vllm"] == pytest.approx(1.0, abs=0.4)


def test_a_cold_server_is_late_once() -> None:
    common = {"gpu": "h100-sxm-80gb", "concurrency": 4, "prompt": 512, "output": 32, "requests": 40}
    warm, cold = (serve("llama-3.1-8b", **common, options={"cold": s}) for s in (0.0, 2.0))
    late = np.asarray(cold.run.records.first) - np.asarray(cold.run.records.arrival)
    assert late[:4].min() > 2 and late[4:].max() < 0.5
    assert cold.run.duration == pytest.approx(warm.run.duration + 2, rel=0.01)


def test_a_front_end_that_copies_whole_outputs_holds_up_long_ones() -> None:
    """64 outputs of 1,000 tokens that are copied at 1 us a token: 64 ms a step at their end."""
    common = {"gpu": "h100-sxm-80gb", "engine": "sglang", "concurrency": 64, "prompt": 16, "requests": 64}
    tpot = {
        (copied, n): serve("llama-3.1-8b", **common, output=n, sets={"engine.copied": copied}).tpot_s["mean"]
        for n in (64, 1000)
        for copied in (0, 1e-6)
    }
    assert tpot[1e-6, 64] == pytest.approx(tpot[0, 64], rel=0.01)
    assert tpot[1e-6, 1000] == pytest.approx(64e-6 * 1000 / 2, rel=0.1)


def test_tables_of_blocks_slow_long_sequences_down() -> None:
    """16 sequences of some 4,100 tokens at 1 us a block of 16: 4.1 ms a step, as in a fixed batch."""
    common = {"gpu": "h100-sxm-80gb", "engine": "vllm-2024", "concurrency": 16, "output": 64, "requests": 16}
    slower = {
        n: serve("llama-3.1-8b", **common, prompt=n, sets={"engine.listed": 1e-6}).tpot_s["mean"]
        - serve("llama-3.1-8b", **common, prompt=n, sets={"engine.listed": 0}).tpot_s["mean"]
        for n in (64, 4096)
    }
    assert slower[4096] == pytest.approx(16e-6 * 4128 / 16, rel=0.1) and slower[64] < 0.1 * slower[4096]


def test_attention_data_parallelism_of_experts() -> None:
    common = {"gpu": "h200-sxm-141gb", "concurrency": 64, "prompt": 512, "output": 64, "quant": "fp8"}
    wide = serve("deepseek-v3", **common, tp=1, dp=8, ep=8)
    tensor = serve("deepseek-v3", **common, tp=8)
    assert wide.finished == tensor.finished == 640
    assert wide.kv_capacity_tokens > 3 * tensor.kv_capacity_tokens


def test_dense_data_parallel_ranks_are_replicas() -> None:
    assert serve("llama-3.1-8b", gpu="h100-sxm-80gb", concurrency=8, dp=2).replicas == 2


def test_stream_and_receive_intervals_delay_the_first_token() -> None:
    load = closed_loop(8, 80, 512, 128, (0.8, 1.0), 1)
    plain, streamed, polled = (
        float(metrics.table(run_of(load, **o)).ttft.mean())
        for o in ({}, {"stream_interval": 10}, {"receive_interval": 30})
    )
    assert streamed > plain + 7 * TABLE.decode_time(8, 600.0)
    assert polled > plain + 7 * TABLE.decode_time(8, 600.0)


def two(gap: float, table: StepTable = TABLE, **options: Any) -> float:
    """TTFT of a request that comes `gap` s after one that decodes."""
    load = Requests(np.array([512, 512]), np.array([400, 100]), np.array([0.0, gap]))
    records = simulate(load, (Pool(table, Server(**options), KV, 1),)).records
    return float(records.first[1] - records.arrival[1])


QUICK, SLOW = (StepTable(PARTS, SCENARIO.engine.but(eager=eager)) for eager in (0.0, 3e-4))
"""The same passes launched in no time, and by a host that takes longer than the device."""


def test_a_pass_made_up_ahead_costs_a_newcomer_one_step_in_which_the_host_launches_it() -> None:
    step = TABLE.decode_time(1, 700.0)
    for gap in (0.5, 0.5003, 0.777):
        assert two(gap, QUICK, lookahead=1) - two(gap, QUICK) == pytest.approx(step, rel=0.02)
        assert two(gap, SLOW, lookahead=1) == pytest.approx(two(gap, SLOW), rel=0.01)
    assert two(9.0, lookahead=1) == two(9.0)  # nothing runs: nothing is made up ahead
    whole, device = (lasts(SLOW, [(512, 0)], 4, 600.0, ahead=ahead) for ahead in (0.0, 1.0))
    assert lasts(SLOW, [(512, 0)], 4, 600.0, ahead=2e-3) == pytest.approx(whole - 2e-3) and device < whole / 2


@pytest.mark.parametrize("apart", [False, True])
def test_who_comes_while_the_scheduler_itself_launches_is_in_the_next_pass(apart: bool) -> None:
    """SGLang's event_loop_overlap, TensorRT-LLM's _executor_loop_overlap, vLLM's UniProcExecutor: receive, make up a
    pass, launch it, wait for the one before. Workers beside the scheduler let it go on at once."""
    table = copy(SLOW)
    table.apart, table.ahead = apart, False
    load = Requests(np.array([512, 512]), np.array([400, 100]), np.array([0.0, 1e-3]))
    first = simulate(load, (Pool(table, Server(lookahead=1), KV, 1),)).records.first
    prompt, step, both = (
        lasts(table, [(512, 0)], 0, 0.0),
        table.decode_time(1, 513.0),
        lasts(table, [(512, 0)], 1, 514.0),
    )
    assert first[0] == prompt
    assert first[1] == pytest.approx(prompt + apart * step + both, rel=1e-3)


def test_looks_at_the_queue_come_at_fixed_steps() -> None:
    step = TABLE.decode_time(1, 700.0)
    waits = [(two(0.5 + i * step / 3, receive_interval=10) - two(0.5 + i * step / 3)) / step for i in range(30)]
    assert min(waits) < 1 and 8 < max(waits) < 10.2
    assert np.mean(waits) == pytest.approx(4.5, abs=1.0)


def test_prompts_wait_for_company_and_not_longer_than_told() -> None:
    step = TABLE.decode_time(1, 700.0)
    options = {"scheduler": "no-evict", "wait_steps": 20, "wait_share": 0.9}
    assert (two(0.5, **options) - two(0.5, scheduler="no-evict")) / step == pytest.approx(20, abs=1.1)
    assert two(0.5, **options, budget=560) == two(0.5, scheduler="no-evict", budget=560)  # enough tokens alone
    load = Requests(np.array([512] * 3), np.array([400, 100, 100]), np.array([0.0, 0.5, 0.5 + 5 * step]))
    records = run_of(load, **options, budget=1100).records
    assert records.first[1] == records.first[2] and (records.first[1] - 0.5) / step < 12


def test_ranks_of_attention_begin_prompts_together_or_at_every_so_many_steps() -> None:
    """TensorRT-LLM, attention_dp_config enable_balance: the steps are counted whether prompts wait or not, and a pass
    takes what each rank's own budget does. Two ranks decode; prompts that follow go to that which holds the fewest."""
    split = replace(SCENARIO.mapping, dp=2, tp=1)
    table = StepTable(components(replace(SCENARIO, mapping=split), TableSize(2048, 64, 4096)), balanced=True)
    options = {"scheduler": "no-evict", "wait_steps": 20, "budget": 600}

    def first(*arrival: float) -> Any:
        n = len(arrival)
        load = Requests(np.full(2 + n, 512), np.array([900, 900] + [9] * n), np.array([0.0, 0.0, *arrival]))
        server = Server(max_sequences=512, **options)
        return simulate(load, (Pool(table, server, KV, 1),), "round-robin").records.first[2:]

    step = table.decode_time(2, 700.0)
    lone = np.array([(first(0.5 + i * step)[0] - 0.5) / step - i for i in range(40)])
    assert lone.min() < 6 and 18 < lone.max() - lone.min() < 21  # at the next of fixed steps
    both = first(0.5, 0.5)
    assert both[0] == both[1] and (both[0] - 0.5) / step < 6  # every rank has one
    third = first(0.5, 0.5, 0.5)
    assert third[2] - third[0] > 18 * step  # its rank's pass was full


def test_a_serial_front_end_queues() -> None:
    assert visible(np.array([0.0, 0.0, 0.0, 9.0]), np.full(4, 0.5)).tolist() == [0.5, 1.0, 1.5, 9.5]
    run = run_of(closed_loop(32, 32, 64, 4), front=0.1)
    assert metrics.table(run).ttft.max() > 3.2


def test_a_text_becomes_tokens_before_it_is_scheduled_one_after_the_other() -> None:
    """Of four prompts that come at once the n-th waits for n texts; a longer text takes longer."""
    load = Requests(np.array([1000, 1000, 1000, 3000]), np.full(4, 2), np.zeros(4))
    late = metrics.table(run_of(load, tokenise=1e-3)).ttft - [1.0, 2.0, 3.0, 6.0]
    assert (late > 0).all() and (late < metrics.table(run_of(load)).ttft).all()


def test_the_way_of_a_prompt_to_the_engine_delays_it_alone() -> None:
    load = Requests(np.array([1000, 1000, 1000, 3000]), np.full(4, 2), np.zeros(4))
    late = metrics.table(run_of(load, carry=1e-3)).ttft - metrics.table(run_of(load)).ttft
    assert late == pytest.approx([1.0, 1.0, 1.0, 3.0], abs=0.2)


def test_the_queue_that_grows_is_said() -> None:
    out = serve("llama-3.1-70b", gpu="h100-sxm-80gb", tp=4, rate=60.0, requests=1500, prompt=1024)
    assert out.queue_grows and out.queue_growth_per_s > 1 and out.queue_grows_from_s < 20
    assert not serve("llama-3.1-70b", gpu="h100-sxm-80gb", tp=4, rate=2.0, requests=300).queue_grows


@pytest.mark.parametrize(("rate", "grows"), [(13.0, False), (15.0, True)])
def test_a_rate_just_above_what_is_served_grows_too(rate: float, grows: bool) -> None:
    """An L40S serves 13.2 requests/s: at 15 the queue rises by less than a tenth of what comes, but without end."""
    out = serve("llama-3.1-8b", gpu="l40s", rate=rate, requests=3000)
    assert out.queue_grows == grows and ("THE QUEUE GROWS" in str(out)) == grows
    assert not grows or out.queue_growth_per_s == pytest.approx(rate - 13.2, rel=0.1)


def test_a_short_open_loop_says_that_its_cost_counts_the_draining() -> None:
    asked = {"model": "llama-3.1-8b", "gpu": "l40s", "rate": 4.0, "output": 512}
    said = "after the last request: in the long run"
    short, long = (serve(**asked, requests=n) for n in (100, 1000))
    assert said in " ".join(str(short).split()) and said not in " ".join(str(long).split())
    for out in (short, long):  # the price of the GPUs over what the same run served
        each = out.summary.price_usd_per_hour * out.summary.gpus / 3600 / out.summary.output_tokens_per_s * 1e6
        assert out.summary.cost_usd_per_million_tokens == pytest.approx(each)
    closed = serve("llama-3.1-8b", gpu="l40s", concurrency=4)
    assert said not in " ".join(str(closed).split())


@pytest.mark.parametrize("requests", [60, 100])
def test_a_short_run_that_only_fills_up_has_no_growing_queue(requests: int) -> None:
    """Answers of 1,000 tokens take longer than all arrivals: nothing waits, and the rate is served in the long run."""
    asked = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "output": 1000, "requests": requests}
    assert not serve(**asked, rate=7.0).queue_grows
    assert serve(**{**asked, "requests": 300}, rate=50.0).queue_grows


def test_the_horizon_leaves_requests_inside() -> None:
    out = serve("llama-3.1-8b", gpu="h100-sxm-80gb", rate=40.0, requests=400, horizon=3.0)
    v = out.summary.values
    assert v["running"] + v["waiting"] > 0
    assert sum(v[name] for name in ("finished", "rejected", "running", "waiting", "unsent")) == 400
    assert v["unsent"] == int(np.sum(out.run.requests.arrival > 3.0)) > 200
    assert v["good_share"] == 1.0
    assert f"{v['unsent']} were not sent until then" in " ".join(str(out).split())


def test_of_a_closed_loop_only_its_clients_have_sent() -> None:
    out = serve("llama-3.1-8b", gpu="h100-sxm-80gb", concurrency=8, requests=80, horizon=2.0)
    v = out.summary.values
    assert v["running"] + v["waiting"] == 8 and v["finished"] + v["unsent"] == 72
    assert np.isnan(out.table.arrival).sum() == v["unsent"]


def test_a_run_that_ends_before_its_horizon_lasts_as_long_as_it_takes() -> None:
    asked = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "rate": 5.0, "requests": 50}
    assert serve(**asked, horizon=3600.0).to_dict() == serve(**asked).to_dict()


def test_where_nothing_finished_nothing_has_a_price() -> None:
    v = serve("llama-3.1-8b", gpu="h100-sxm-80gb", rate=20.0, requests=100, horizon=0.01).values()
    assert not v["finished"] and not v["steady"]["agrees"]
    assert all(np.isnan(v[f"{k}_per_{of}"]) for k in ("cost_usd", "energy_j") for of in ("request",))
    assert np.isnan(v["cost_usd_per_million_tokens"]) and np.isnan(v["energy_j_per_token"])


def test_a_queue_grows_by_what_comes_and_is_not_served() -> None:
    """However few passes the server makes while all arrive, and however few end until then."""
    for rate, requests in ((100.0, 200), (200.0, 1000), (1000.0, 1000)):
        out = serve("llama-3.1-8b", gpu="h100", rate=rate, requests=requests, prompt=512, output=128).summary
        assert out.queue_growth_per_s == pytest.approx(rate - out.requests_per_s, rel=0.12)
        assert out.queue_growth_per_s < 0.96 * rate


def test_a_queue_that_grows_is_seen_in_a_run_that_is_stopped() -> None:
    asked = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "rate": 200.0, "requests": 9000}
    assert serve(**asked, horizon=20.0).summary.queue_grows and serve(**asked).summary.queue_grows


def test_an_interrupted_run_keeps_what_is_done() -> None:
    calls = []

    def stop(done: int, total: int, now: float) -> None:
        calls.append(done)
        if done > 2000:
            raise KeyboardInterrupt

    out = serve("llama-3.1-8b", gpu="h100-sxm-80gb", rate=30.0, requests=20000, progress=stop)
    assert out.interrupted and 2000 < out.finished < 20000 and len(calls) > 0


def test_steady_state_is_near_the_simulation() -> None:
    for load in ({"concurrency": 32, "spread": (0.6, 1.0)}, {"rate": 10.0, "requests": 2000}):
        out = serve("llama-3.1-8b", gpu="h100-sxm-80gb", prompt=1024, output=256, **load)
        assert out.steady is not None and out.steady.stable
        assert out.steady.tpot == pytest.approx(out.tpot_s["mean"], rel=0.12)
        assert out.steady.ttft == pytest.approx(out.ttft_s["mean"], rel=0.4)
    assert not serve("llama-3.1-8b", gpu="h100-sxm-80gb", rate=500.0, requests=2000).steady.stable  # type: ignore[union-attr]


def test_summary_names_and_units() -> None:
    out = serve("llama-3.1-8b", gpu="h100-sxm-80gb", concurrency=4, slo="ttft:p95=1s")
    v = out.values()
    assert v["requests_per_s"] == pytest.approx(40 / v["duration_s"])
    assert v["goodput_per_s"] == pytest.approx(v["requests_per_s"])
    assert 0 < v["kv_occupancy"] <= v["kv_peak"] <= 1 and 0 < v["busy"] <= 1
    assert v["energy_j_per_token"] * v["output_tokens_per_s"] <= 1.05 * 700 and v["cost_usd_per_request"] > 0
    assert v["itl_s"]["mean"] == pytest.approx(v["tpot_s"]["mean"], rel=0.03)
    assert math.isfinite(v["steady"]["ttft_s"])
    guide = serve("llama-3.1-8b", gpu="h100-sxm-80gb", concurrency=4, definitions="whole-request")
    assert guide.tpot_s["mean"] == pytest.approx(guide.latency_s["mean"] / 128, rel=1e-6)


def test_prompts_fall_on_attention_ranks_by_chance_but_never_beyond_a_budget() -> None:
    request = build_inference(model="qwen3-30b-a3b", gpu="h100", tp=1, dp=4, ep=4, batch=4, prompt=512, output=64)
    build = components(request.scenario, TableSize(4096 + 64, 64, 1024))
    even, chance = StepTable(build, balanced=True), StepTable(build)
    few, many = [(512, 0.0)] * 4, [(512, 0.0)] * 32  # 32 x 512 over four ranks: each is full
    assert lasts(even, few, 0, 0.0) < lasts(chance, few, 0, 0.0) <= lasts(even, [(512, 0.0)] * 16, 0, 0.0)
    assert lasts(chance, many, 0, 0.0) == pytest.approx(lasts(even, many, 0, 0.0))
    assert lasts(chance, few[:1], 0, 0.0) == lasts(even, few[:1], 0, 0.0)


def test_experts_of_all_ranks_work_on_the_mean_and_attention_on_the_fullest_rank() -> None:
    device = {"engine.eager": 0, "engine.eager_experts": 0}  # the host's launches would hide it
    request = build_inference(
        model="qwen3-30b-a3b", gpu="h100", tp=1, dp=4, ep=4, batch=4, prompt=512, output=64, sets=device
    )
    table = StepTable(components(request.scenario, TableSize(4096 + 64, 64, 1024)), balanced=True)
    chunks = [(512, 0.0)] * 8
    even, fuller, fullest = (lasts(table, chunks, 0, 0.0, n) for n in (1.0, 1.5, 2.0))
    assert even < fuller < fullest < lasts(table, [(512, 0.0)] * 16, 0, 0.0)


def test_the_fullest_rank_is_that_with_most_new_tokens() -> None:
    ranks = Ranks(4)
    chunks = [([request, 0, 100], 100) for request in range(6)]
    assert ranks.fullest(chunks) == pytest.approx(200 / 150)


def test_a_share_for_weights_and_cache_leaves_the_rest_beside_it() -> None:
    weights = float(memory_use(SCENARIO, batch=0.0).parts["weights"])
    size = float(usable(SCENARIO.cluster.device))
    for share in (0.5, 0.9):
        engine = SCENARIO.engine.but(server=replace(SCENARIO.engine.server, static_fraction=share))
        s = replace(SCENARIO, engine=engine)
        own = capacity(s, 8192, 8192)
        before = size - sum(fixed_buffers(SCENARIO))  # free before the weights are loaded
        assert own.tokens * own.bytes_per_token == pytest.approx(share * before - weights)
        assert capacity(s, 100, 8192) == own


def test_outputs_that_end_by_themselves_have_their_mean_and_a_longest() -> None:
    kw = {"model": "llama-3.1-8b", "gpu": "h100", "concurrency": 64, "requests": 256, "prompt": 128, "output": 300}
    alike, own = serve(**kw), serve(**kw, output_limit=3000)
    made = [r.run.requests.output for r in (alike, own)]
    assert made[1].mean() == pytest.approx(made[0].mean(), rel=0.01)
    assert 300 < made[1].max() <= 3000
    assert own.output_tokens_per_s < alike.output_tokens_per_s  # the longest run on alone


def test_most_prompts_of_a_data_set_are_short() -> None:
    """ShareGPT's on a RTX 3090 (zhjunqin): half of the first tokens come in 69 ms, one in ten after 170 to 190 ms."""
    kw = {"model": "llama-3-8b", "gpu": "rtx-3090", "engine": "vllm-2024", "rate": 1.0, "requests": 100, "output": 200}
    alike = serve(**kw, prompt=220, spread=(0.05, 1.95), output_limit=1024)
    own = serve(**kw, prompt=220, prompt_limit=1024, output_limit=1024)
    made = own.run.requests.prompt
    assert made.mean() == pytest.approx(220, rel=0.01) and np.median(made) < 0.75 * 220 and made.max() <= 1024
    first = [(t["p50"], t["p90"]) for t in (r.values()["ttft_s"] for r in (alike, own))]
    assert first[1][0] < first[0][0] and first[1][1] > first[0][1]


def test_answers_of_a_data_set_differ_as_its_own_do() -> None:
    """ShareGPT's: half of 250 latencies are at most 0.61 to 0.67 of their mean, one in ten 2.32 to 2.46 times it."""
    kw = {"model": "llama-3.1-8b", "gpu": "h100", "rate": 20.0, "requests": 1000}
    plain = serve(**kw, prompt=220, output=200, output_limit=1024).run.requests.output
    made = serve(**kw, prompt=220, output=200, output_limit=1024, output_variation=1.04).run.requests.output
    assert made.mean() == pytest.approx(200, rel=0.01) and made.std() == pytest.approx(208, rel=0.02)
    assert 0.61 < np.median(made) / 200 < 0.67 < np.median(plain) / 200
    assert np.percentile(made, 90) / 200 == pytest.approx(2.41, rel=0.05)


@pytest.mark.parametrize("variation", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("limit", [600, 1000, 20000])
def test_answers_keep_their_mean_however_much_they_differ(limit: int, variation: float) -> None:
    """Below a limit of three means no law varies by three: then as much as one does."""
    made = workload.ending(200, limit, 2000, 1, variation=variation)
    assert made.mean() == pytest.approx(200, rel=0.01) and made.max() <= limit
    assert made.std() <= (variation + 0.01) * 200


def test_outputs_that_never_end_run_to_the_limit() -> None:
    kw = {"model": "llama-3.1-8b", "gpu": "h100", "concurrency": 16, "requests": 200, "prompt": 128, "output": 300}
    made = serve(**kw, output_limit=1000, output_ended=40).run.requests.output
    assert made.mean() == pytest.approx(300, rel=0.01)
    assert made[made < 1000].mean() == pytest.approx(40, rel=0.05)


@pytest.mark.parametrize(
    ("engine", "gpu", "budget", "running"),
    [
        ("vllm", "h100-sxm-80gb", 8192, 1024), ("vllm", "a100-sxm-80gb", 2048, 256), ("vllm", "l40s", 2048, 256),
        ("vllm", "gb10", 2048, 256), ("vllm", "jetson-thor-128gb", 2048, 256), ("vllm-2024", "l40s", 4096, 256),
        ("sglang", "b200-sxm-180gb", 16384, 4096), ("sglang", "h200-sxm-141gb", 8192, 4096),
        ("sglang", "l40s", 4096, 4096), ("sglang", "rtx-4090", 2048, 4096),
    ],
)  # fmt: skip
def test_servers_take_the_limits_that_their_documents_give_a_card(
    engine: str, gpu: str, budget: int, running: int
) -> None:
    options = server_options(with_limits(load_engine(engine), load_device(gpu), load_model("llama-3.1-8b"), 1))
    assert (options["budget"], options["max_sequences"]) == (budget, running)


@pytest.mark.parametrize(
    ("engine", "model", "gpus", "budget", "running"),
    [
        ("sglang", "deepseek-v3", {"dp": 8, "ep": 8}, 2048, 4096),  # chunked_prefill_size // dp_size
        ("sglang", "deepseek-v3", {"tp": 8}, 16384, 4096),
        ("sglang", "llama-3.1-8b", {"dp": 8}, 16384, 4096),  # servers of their own
        ("vllm", "deepseek-v3", {"dp": 8, "ep": 8}, 8192, 1024),
        ("sglang", "deepseek-v4-pro", {"dp": 8, "ep": 8}, 2048, 32),  # max_running_requests of its hook, 256 in all
        ("sglang", "deepseek-v4-flash", {"tp": 4}, 16384, 256),
    ],
)
def test_ranks_of_attention_share_out_what_is_said_of_a_whole_server(
    engine: str, model: str, gpus: dict[str, int], budget: int, running: int
) -> None:
    server = server_for(build_inference(model=model, gpu="b200", engine=engine, batch=8, **gpus).scenario)
    assert (server.budget, server.max_sequences) == (budget, running)


def test_limits_that_are_told_are_those_of_a_rank(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('base = "sglang"\n[server]\nmax_sequences = 16\nbudget = 1024\n', encoding="utf-8")
    for model in ("deepseek-v3", "deepseek-v4-pro"):
        given: dict[str, Any] = {"model": model, "gpu": "b200", "dp": 8, "ep": 8, "batch": 8}
        server = server_for(build_inference(engine=str(own), **given).scenario)
        assert (server.budget, server.max_sequences) == (1024, 16)
        asked = server_for(build_inference(engine="sglang", **given).scenario, {"budget": 4096, "max_sequences": 7})
        assert (asked.budget, asked.max_sequences) == (4096, 7)


def test_limits_by_card_are_checked() -> None:
    for text in ("35-2048", "mamba2", "mamba2:many", "mamba2:-5", "mamba2:1:2"):
        with pytest.raises(RooflmError, match="gives limits by card"):
            of_card(text, load_device("l40s"), 1)


def test_templates_of_a_burst_are_filled_in_before_its_first_request_goes_on() -> None:
    def first(template: float) -> float:
        load = {"concurrency": 100, "requests": 100, "prompt": 64, "output": 4}
        run = rooflm.serve("llama-2-7b", gpu="h100-sxm-80gb", server={"template": template}, **load)
        return float(run.summary.values["ttft_s"]["mean"])

    assert first(0.01) - first(0.0) == pytest.approx(1.0, rel=0.1)


def test_kernels_of_experts_cost_their_own_launches() -> None:
    def ttft(model: str, experts: float) -> float:
        sets = {"engine.eager": 20e-6, "engine.eager_experts": experts}
        size = {"concurrency": 1, "requests": 2, "prompt": 64, "output": 4}
        run = serve(model, gpu="h100-sxm-80gb", engine="sglang", sets=sets, **size)
        return float(run.summary.values["ttft_s"]["mean"])

    assert ttft("qwen3-8b", 1e-3) == ttft("qwen3-8b", 0.0)
    assert ttft("qwen3-30b-a3b", 1e-3) > ttft("qwen3-30b-a3b", 0.0) + 0.1


def test_one_call_launches_experts_where_triton_takes_nothing_but_blocks() -> None:
    def ttft(quant: str, experts: float) -> float:
        sets = {"engine.eager_experts": experts}
        return float(rooflm.infer("qwen3-30b-a3b", gpu="mi300x", engine="sglang-rocm", quant=quant, sets=sets).ttft)

    assert ttft("bf16", 1e-3) == ttft("bf16", 0.0)
    assert ttft("fp8-block", 1e-3) > ttft("fp8-block", 0.0) + 0.1


def test_only_experts_and_what_goes_to_them_are_shared_by_ranks_of_attention() -> None:
    def saved(model: str, ep: int) -> float:
        request = build_inference(model=model, gpu="h100", tp=4, dp=2, ep=ep, batch=4, prompt=512, output=64)
        table = StepTable(components(request.scenario, TableSize(8192, 64, 1024)))
        return float(table.together(2048, 4096))

    assert saved("llama-3.1-70b", 1) == 0.0
    assert saved("qwen3-30b-a3b", 8) < 0.0


def test_a_limit_that_is_told_holds_on_every_card(tmp_path: Path) -> None:
    card, model = load_device("l40s"), load_model("llama-3.1-8b")
    own = tmp_path / "own.toml"
    own.write_text('base = "vllm"\nmax_sequences = 16\n[server]\nbudget = 1024\n', encoding="utf-8")
    engines = ("vllm", "exllamav3", "tgi", "atom", str(own))
    told = {e: server_options(with_limits(load_engine(e), card, model, 1)) for e in engines}
    assert [(o["budget"], o["max_sequences"]) for o in told.values()] == [
        (2048, 256), (2048, 16), (4096, 128), (16384, 512), (1024, 16),
    ]  # fmt: skip
    asked = server_options(with_limits(load_engine("vllm").but(token_budget=512, max_sequences=8), card, model, 1))
    assert (asked["budget"], asked["max_sequences"]) == (512, 8)


def test_an_open_burst_waits_for_its_templates_as_a_closed_one() -> None:
    together, apart = (Requests(np.full(4, 100), np.full(4, 4), np.arange(4) * gap) for gap in (0.0, 10.0))
    waited = [
        metrics.table(run_of(load, template=0.5)).ttft - metrics.table(run_of(load)).ttft for load in (together, apart)
    ]
    assert waited[0][0] == pytest.approx(2.0) and waited[1] == pytest.approx(np.full(4, 0.5))
    closed = metrics.table(run_of(closed_loop(4, 4, 100, 4), template=0.5)).ttft
    assert metrics.table(run_of(together, template=0.5)).ttft == pytest.approx(closed)


def test_all_that_comes_at_once_is_parsed_before_the_first_goes_on() -> None:
    """The first of four is late by the others' time in the front end, the last by nothing; so in vLLM since 0.6.5."""
    load = closed_loop(4, 4, 100, 1)
    parsed, apart = (metrics.table(run_of(load, front=0.5, all_parsed=x)).ttft for x in (True, False))
    assert parsed - apart == pytest.approx([1.5, 1.0, 0.5, 0.0], abs=0.01)
    engines = ("vllm", "vllm==0.8", "vllm==0.6.3", "sglang", "trtllm", "ray-serve", "tgi")
    assert [load_engine(e).server.all_parsed for e in engines] == [True, True, *[False] * 5]


def test_clients_at_a_rate_send_nothing_before_it_is_due_and_no_more_at_a_time() -> None:
    """`--request-rate` with `--max-concurrency`: a slow rate is an open loop, a fast one a closed loop that starts
    one by one."""
    slow, fast = open_loop(0.5, 20, 512, 64), open_loop(1000.0, 160, 512, 64)
    lone, same = (metrics.table(run_of(load)).latency for load in (slow, held(slow, 8)))
    assert same == pytest.approx(lone)
    paced, closed = (metrics.table(run_of(load)) for load in (held(fast, 8), closed_loop(8, 160, 512, 64)))
    assert bool(np.all(paced.arrival >= fast.arrival))
    ends = paced.arrival + paced.latency
    assert max(int(np.sum((paced.arrival <= t) & (ends > t))) for t in paced.arrival) == 8
    assert float(np.mean(paced.latency)) == pytest.approx(float(np.mean(closed.latency)), rel=0.05)


@pytest.mark.parametrize("rate", [100.0, 1e5])
def test_a_rate_that_few_clients_do_not_hold_grows_in_the_client(rate: float) -> None:
    """The server has eight requests at most: what waits is due and not sent yet."""
    load = held(open_loop(rate, 500, 512, 64), 8)
    values = metrics.summarise(run_of(load)).values
    assert values["queue_grows"] and values["requests_per_s"] < 0.9 * rate
    assert values["queue_growth_per_s"] == pytest.approx(rate - values["requests_per_s"], rel=0.1)
    slow = metrics.summarise(run_of(held(open_loop(0.5 * values["requests_per_s"], 500, 512, 64), 8))).values
    assert not slow["queue_grows"]


def test_clients_that_start_at_a_rate_do_not_wait_for_each_others_prompts() -> None:
    """Sixteen clients on an L40S (vLLM, sixteen requests a second): 118 ms measured, 238 where all begin at once."""
    given: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "l40s", "engine": "vllm-0.8", "quant": "fp8",
                             "prompt": 938, "output": 512, "requests": 100, "concurrency": 16, "spread": (1.0, 1.0),
                             "warmup": 0}  # fmt: skip
    paced, at_once = (rooflm.serve(**given, **rate).summary.values["ttft_s"]["mean"] for rate in ({"rate": 16.0}, {}))
    assert paced < 0.7 * at_once


def test_where_only_warm_up_finished_nothing_agrees() -> None:
    out = serve("llama-3.1-8b", gpu="h100-sxm-80gb", concurrency=8, requests=80, horizon=1.0, warmup=8)
    assert out.finished and not out.values()["steady"]["agrees"] and "Steady-state" not in str(out)


def test_prompts_first_runs_them_whole_beside_nothing() -> None:
    """vLLM before V1: a newcomer's pass holds its prompt alone, so that its first token comes no later than with chunks
    beside decoding, and the others' steps are held up by as much."""
    load = open_loop(12, 500, 2048, 128, (0.8, 1.0), 1)
    mixed, first = (metrics.summarise(run_of(load, scheduler=n)).values for n in ("continuous", "prompts-first"))
    assert first["ttft_s"]["mean"] < 1.02 * mixed["ttft_s"]["mean"]
    assert first["tpot_s"]["mean"] > mixed["tpot_s"]["mean"]


@pytest.mark.parametrize(("scheduler", "passes"), [("prompts-first", 3), ("prefill-first", 2)])
def test_prompts_first_cuts_none_that_a_later_pass_holds_whole(scheduler: str, passes: int) -> None:
    """Three prompts of 600 tokens at once, 1,000 tokens a pass: one whole each, or in pieces 1,000 and 800."""
    run = run_of(closed_loop(3, 3, 600, 4, (1.0, 1.0), 1), scheduler=scheduler, budget=1000)
    assert run.replicas[0].meter.prefill_passes == passes


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("rate", [0.5, 2.0, 40.0])
def test_no_more_wait_than_their_first_tokens_allow(engine: str, rate: float) -> None:
    """Little's law: requests that wait, in the mean, are those that come a second times how long each waits, which is
    part of its time to first token."""
    found = serve("llama-3.1-8b", gpu="h100-sxm-80gb", engine=engine, rate=rate, requests=200).values()
    assert 0 <= found["queue"] <= found["requests_per_s"] * found["ttft_s"]["mean"]


def test_who_is_served_one_by_one_waits_for_all_before() -> None:
    common: dict[str, Any] = {"gpu": "h100-sxm-80gb", "spread": (1.0, 1.0), "prompt": 300, "output": 20}
    found = serve("llama-3.1-8b", rate=math.inf, requests=30, options={"max_sequences": 1}, **common).values()
    assert found["queue"] == pytest.approx(np.mean(range(30)), rel=0.03)  # 29 at first, none at last
