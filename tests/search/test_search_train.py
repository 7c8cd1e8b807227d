"""Training search: the brute-force best, ten different answers, limits of the run, the commands of the engines."""

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rooflm
from rooflm.asked.machine import machine_size
from rooflm.cli import main
from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.devices import load_cluster
from rooflm.readers.engines import load_engine
from rooflm.search.result import SearchResult
from rooflm.search.train_command import train_command
from rooflm.search.training import GOALS, MARGIN, layer_splits, stage_splits

TRAIN: dict[str, Any] = {
    "gpu": "a100-sxm-80gb", "gpus": 8, "batch": 16, "seq": 1024, "efficiency": "0.5,0.8", "engine": "megatron",
}  # fmt: skip
SMALL: dict[str, Any] = {**TRAIN, "micro_batch": [1, 2, 4], "vp": [1, 2], "zero": [0, 1], "cp": [1, 2]}


def brute_force() -> list[tuple[float, float]]:
    """Every split of the small case as a prediction of its own: (step time, memory) of those that are legal."""
    found = []
    for tp, pp, cp in itertools.product((1, 2, 4, 8), repeat=3):
        if 8 % (tp * pp * cp):
            continue
        dp = 8 // (tp * pp * cp)
        for size, policy, zero, vp in itertools.product(
            (1, 2, 4, 8, 16), ("none", "selective", "full"), (0, 1, 2), (1, 2, 4, 8, 16, 17, 32)
        ):
            if (
                16 % (dp * size)
                or (zero > 1 and pp > 1)
                or (vp > 1 and (pp == 1 or (32 % (pp * vp) and 34 % (pp * vp))))
            ):
                continue
            if vp > 1 and (16 // (dp * size)) % pp:
                continue
            split = {"tp": tp, "pp": pp, "cp": cp, "dp": dp, "vp": vp, "micro_batch": size, "zero": zero}
            schedule = "interleaved" if vp > 1 else "1f1b"
            e = rooflm.train("llama-7b", recompute=policy, schedule=schedule, **split, **TRAIN)
            if e.fits:
                found.append((float(e.step_time), float(e.memory.total)))
    return sorted(found)


def test_best_is_the_brute_force_best_and_ties_count_once() -> None:
    found = rooflm.search_train("llama-7b", zero=[0, 1, 2], memory_margin=0, **TRAIN)
    expected = brute_force()
    assert found.feasible == len(expected) > 100
    different = sorted({(float(f"{t:.9g}"), float(f"{b:.9g}")) for t, b in expected})
    assert len(different) < len(expected)  # recomputing the attention core is without effect under flash attention
    got = [(c.outputs["step_time_s"], c.outputs["memory_bytes"]) for c in found.top]
    assert [t for t, _ in got] == pytest.approx([t for t, _ in different[:10]], rel=1e-8)
    assert len({(f"{t:.9g}", f"{b:.9g}") for t, b in got}) == 10
    assert found.best is not None and found.best.outputs["step_time_s"] == pytest.approx(expected[0][0], rel=1e-12)
    again = rooflm.train("llama-7b", **TRAIN | found.best.inputs)
    assert float(again.step_time) == pytest.approx(expected[0][0], rel=1e-9) and again.fits
    assert "recompute selective is as none in all" in found.same


def test_front_holds_no_trade_off_twice() -> None:
    found = rooflm.search_train("llama-7b", **SMALL)
    edge = [(c.outputs["step_time_s"], c.outputs["memory_bytes"]) for c in found.front]
    assert len({(f"{t:.8g}", f"{b:.8g}") for t, b in edge}) == len(edge) > 3
    for (t, b), (u, c) in itertools.combinations(edge, 2):
        assert (t < u) != (b < c)


def test_zero_levels_are_one_where_nothing_is_shared() -> None:
    found = rooflm.search_train(
        "llama-7b", **TRAIN | {"gpus": 1, "gpu": "b200-sxm-180gb"}, micro_batch=1, recompute="none", zero=[0, 1, 2]
    )
    assert found.feasible == 3 and len(found.top) == 1
    assert found.same == ("zero 1 is as 0 in all", "zero 2 is as 0 in all")
    alone = rooflm.search_train("llama-3.1-8b", gpu="rtx-4090", gpus=1, batch=16, lora_rank=16, base_bits=4)
    assert alone.top and {c.inputs["zero"] for c in alone.top} == {0}


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(GOALS)), st.floats(0.0, 0.6), st.floats(0.5, 20.0), st.floats(1.0, 60.0),
    st.floats(50.0, 20000.0), st.floats(100.0, 50000.0), st.floats(1e9, 1e12), st.integers(1, 16),
)  # fmt: skip
def test_limits_are_never_violated(
    objective: str, margin: float, step: float, days: float, hours: float, cost: float, energy: float, most: int
) -> None:
    asked = {k: v for k, v in SMALL.items() if k != "gpus"}
    found = rooflm.search_train(
        "llama-7b", **asked, gpus_max=most, tokens=1e9, objective=objective, memory_margin=margin, step_time=step,
        days=days, gpu_hours=hours, cost=cost, energy=energy,
    )  # fmt: skip
    for c in (*found.top, *found.front):
        o = c.outputs
        assert o["memory_share"] <= 1 - margin and o["step_time_s"] <= step and o["gpus"] <= most
        assert o["days"] <= days and o["gpu_hours"] <= hours and o["cost_usd"] <= cost and o["energy_j"] <= energy
    assert (found.best is None) == (found.feasible == 0) == (found.nearest is not None)
    scores = [found.goal.score(c.outputs) for c in found.top]
    assert scores == sorted(scores)
    for b in found.blocked:
        assert b.why and found.goal.score(b.candidate.outputs) < scores[0]


def run_of(**arguments: Any) -> SearchResult:
    return rooflm.search_train("llama-7b", **{**SMALL, "tokens": 1e9} | arguments)


def test_outputs_of_the_run_are_those_of_a_prediction() -> None:
    found = run_of(objective="gpu-hours")
    assert found.best is not None
    one = rooflm.train("llama-7b", tokens=1e9, **TRAIN | found.best.inputs)
    o = found.best.outputs
    told = (o["gpu_hours"], o["cost_usd"], o["energy_j"], o["days"])
    assert told == pytest.approx((one.gpu_hours, one.cost, one.energy, one.days), rel=1e-9)


def test_what_cannot_be_met_is_named_with_by_how_much() -> None:
    hours = run_of(objective="gpu-hours").best
    assert hours is not None
    least = hours.outputs["gpu_hours"]
    none = run_of(gpu_hours=least / 2)
    assert none.best is None and none.nearest is not None
    assert any("GPU-hours is" in w and ", 2 times " in w for w in none.nearest.why)
    assert none.unmet[0].startswith("No point at all meets GPU-hours")
    assert not any("memory in use" in w for w in none.nearest.why)  # the nearest is one that fits
    full = rooflm.search_train("gpt3-175b", **TRAIN)
    assert full.best is None and full.nearest is not None and "memory in use" in full.nearest.why[0]
    assert len([w for w in full.nearest.why if "memory" in w]) == 1


def test_the_next_better_answer_is_named_with_what_rules_it_out() -> None:
    free = run_of(objective="time").best
    assert free is not None
    bound = run_of(objective="time", cost=free.outputs["cost_usd"] * 0.999)
    assert bound.best is None or bound.blocked[0].why[0].startswith(("cost is", "memory in use"))


def test_fewer_gpus_cost_less() -> None:
    asked = {k: v for k, v in SMALL.items() if k != "gpus"}
    fast, cheap = (
        rooflm.search_train("llama-7b", **asked, gpus_max=16, tokens=1e9, objective=o).best for o in ("time", "cost")
    )
    assert fast is not None and cheap is not None
    assert fast.outputs["gpus"] == 16 and cheap.outputs["cost_usd"] < fast.outputs["cost_usd"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"gpus": None}, "needs GPUs"),
        ({"gpus_max": 8}, "not both"),
        ({"cost": 1e6, "tokens": 0}, "give --tokens"),
        ({"days": -1.0}, "above 0"),
        ({"memory_margin": 1.5}, "share kept free"),
        ({"objective": "speed"}, "objective"),
        ({"tp": 3}, "no split"),
    ],
)
def test_bad_input_is_one_sentence(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(RooflmError, match=words):
        run_of(**arguments)


def test_splits_are_legal() -> None:
    model = load_model("llama-3.1-405b")
    ranks = {cp for _, cp, _, _ in layer_splits(model, 64, 8, 24, {"tp": 1, "ep": 1, "micro_batch": 1})}
    assert ranks == {1, 2, 4}  # 24 tokens: two chunks a rank
    assert {tp for tp, *_ in layer_splits(model, 64, 8, 24, {})} == {1, 2, 4, 8}  # eight heads of keys and values
    assert 16 in {tp for tp, *_ in layer_splits(model, 64, 8, 24, {"tp": [8, 16]})}
    assert {(16, 8), (9, 14), (9, 7)} <= set(stage_splits(model, 144, "interleaved", {}))  # 126 layers, 128 places
    assert (16, 3) not in stage_splits(model, 144, "interleaved", {})


def test_default_batch_and_margin_are_said() -> None:
    asked = {k: v for k, v in SMALL.items() if k != "batch"}
    found = rooflm.search_train("llama-7b", **asked)
    assert "batch 4096" in found.assumed and f"{100 * MARGIN:g} % of memory free" in found.assumed
    assert found.best is not None and found.best.inputs["batch"] == 4096
    assert all(c.outputs["memory_share"] <= 1 - MARGIN for c in found.top)


def test_short_sequences_take_no_context_parallelism() -> None:
    found = rooflm.search_train("llama-7b", gpu="a100-sxm-80gb", gpus=64, batch=512, seq=2048)
    long = rooflm.search_train("llama-3.1-8b", gpu="h100-sxm-80gb", gpus=64, batch=16, seq=131072)
    assert found.best is not None and long.best is not None
    assert found.best.inputs["cp"] == 1 and found.best.inputs["tp"] <= 8 and long.best.inputs["cp"] > 1


def command(model: str, engine: str, chosen: dict[str, Any], **fixed: Any) -> str:
    return train_command(load_model(model), load_engine(engine), chosen, {"batch": 1024, "seq": 8192, **fixed})


@pytest.mark.parametrize(
    ("cluster", "gpus", "words"),
    [
        ("gb200-nvl72", 1024, "--nnodes 256 --nproc-per-node 4"),  # a host starts a tray, not the rack
        ("h100-pcie-box", 16, "--nnodes 2 --nproc-per-node 8"),  # nor the pair behind a bridge
        ("dgx-h100", 12, "--nnodes 2 --nproc-per-node 6"),  # as many ranks on every node as there are GPUs in all
        ("dgx-h100", 13, "--nnodes 2 --nproc-per-node gpu"),  # nor thirteen nodes of one: 8 and 5
        ("dgx-spark-pair", 2, "--nnodes 2 --nproc-per-node 1"),
    ],
)
def test_torchrun_starts_what_a_host_has(cluster: str, gpus: int, words: str) -> None:
    node = machine_size(load_cluster(cluster))
    assert command("llama-3.1-8b", "megatron", {"dp": gpus}, gpus=gpus, node=node).startswith(f"torchrun {words} ")


def test_megatron_command() -> None:
    split = {"tp": 8, "cp": 2, "pp": 16, "vp": 4, "dp": 8, "zero": 1, "micro_batch": 1, "recompute": "full"}
    words = command("llama-3.1-405b", "megatron", split, gpus=2048, node=8, dtype="fp8")
    assert words.startswith(
        "torchrun --nnodes 256 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --sequence-parallel "
        "--pipeline-model-parallel-size 16 --num-virtual-stages-per-pipeline-rank 4 "
        "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split "
        "--context-parallel-size 2 --cp-comm-type p2p --micro-batch-size 1 --global-batch-size 1024 --seq-length 8192 "
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "
        "--bf16 --fp8-format hybrid --fp8-recipe tensorwise --optimizer adam"
    )
    assert " --optimizer adam --use-precision-aware-optimizer " in command(
        "llama-3.1-405b", "megatron", split, optimizer="adam-bf16"
    )
    sharded = command("llama-3.1-8b", "megatron", {"dp": 8, "zero": 3, "micro_batch": 1})
    assert (
        "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --ckpt-format fsdp_dtensor" in sharded
    )
    old = command("gpt3-175b", "megatron-2022", {"tp": 8, "pp": 8, "vp": 3, "recompute": "selective"}, dtype="fp16")
    assert "--recompute-granularity selective --recompute-modules core_attn" in old and "--fp16" in old
    assert "--overlap-grad-reduce" not in old and "--no-overlap-p2p-communication" in old
    assert "--attention-backend unfused" in old and "--sequence-parallel" in old
    overlapped = command("llama-3.1-8b", "megatron-bridge", {"tp": 2})
    assert "--tp-comm-overlap" in overlapped


def test_megatron_command_of_experts() -> None:
    split = {"tp": 2, "ep": 8, "pp": 16, "dp": 8, "zero": 1, "micro_batch": 1}
    words = command("deepseek-v3", "megatron", split)
    assert "--decoder-last-pipeline-num-layers 1 " in words  # 61 layers on 16 stages of 4
    by_hand = command("llama-3.1-405b", "megatron", {"tp": 8, "pp": 25})  # 25 stages of 6 would leave none to the last
    assert "--pipeline-model-parallel-layout 'Et*5|(t*6|)*1(t*5|)*22t*5L'" in by_hand
    assert "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --moe-grouped-gemm" in words
    assert "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep" in words
    inside = command("mixtral-8x7b", "megatron", {"tp": 8, "ep": 2})
    assert "--expert-tensor-parallel-size 4" in inside


def test_torchtitan_command() -> None:
    split = {"tp": 8, "cp": 2, "pp": 8, "vp": 2, "dp": 4, "zero": 3, "micro_batch": 2, "recompute": "selective",
             "schedule": "interleaved"}  # fmt: skip
    assert command("llama-3.1-405b", "torchtitan", split, gpus=512, node=8) == (
        "NGPU=8 MODULE=llama3 CONFIG=llama3_405b ./run_train.sh --training.local_batch_size 256 "
        "--training.global_batch_size 1024 --training.seq_len 8192 --parallelism.data_parallel_shard_degree 4 "
        "--parallelism.fsdp_reshard_after_forward never --parallelism.tensor_parallel_degree 8 "
        "--parallelism.pipeline_parallel_degree 8 --parallelism.pipeline_parallel_schedule Interleaved1F1B "
        "--parallelism.pipeline_parallel_layers_per_stage 8 --parallelism.pipeline_parallel_microbatch_size 2 "
        "--parallelism.context_parallel_degree 2 --parallelism.context_parallel_rotate_method allgather "
        "--activation_checkpoint.mode selective --compile.enable"
    )
    plain = command("llama-3.1-8b", "fsdp", {"dp": 8, "zero": 0, "micro_batch": 1, "recompute": "none"})
    assert "--parallelism.data_parallel_shard_degree 1 --parallelism.data_parallel_replicate_degree 8" in plain
    assert "--training.local_batch_size 1 " in plain and "--activation_checkpoint.mode none" in plain
    assert command("llama-3.1-8b", "torchtitan", {"dp": 8, "zero": 3}, dtype="fp8").endswith(
        "(docs/float8.md, docs/mxfp8.md)"
    )
    assert command("llama-3.1-8b", "torchtitan", {"pp": 2, "schedule": "zb-h1"}) == ""
    assert command("llama-3.1-8b", "deepspeed", {"dp": 8}) == ""


def test_an_engine_on_fsdp_has_no_zero_1() -> None:
    found = rooflm.search_train("llama-7b", **{**SMALL, "engine": "torchtitan", "zero": [0, 1, 2, 3]})
    zeros = {c.inputs["zero"] for c in (*found.top, *found.front)}
    assert zeros and 1 not in zeros


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--gpu", "a100", "--gpus", "8", "--batch", "16", "--cp", "1", "--micro-batch", "1"]
    assert main(["search", "train", "llama-7b", *few[2:]]) == 2
    assert capsys.readouterr().err.startswith("rooflm: gpu is missing: name a GPU")
    assert main(["search", "train", "llama-7b", *few]) == 0
    text = capsys.readouterr().out
    assert "Ten best" in text and "--global-batch-size 16" in text and max(map(len, text.splitlines())) <= 80
    assert "without effect: recompute selective is as none" in text and "one GPU" not in text
    run = ["--tokens", "1B", "--cost", "1k", "--energy", "1MWh", "--objective", "energy", "--json"]
    assert main(["search", "train", "llama-7b", *few, *run]) == 0
    best = json.loads(capsys.readouterr().out)["best"]
    assert best["cost_usd"] <= 1e3 and best["energy_j"] <= 3.6e9
    assert main(["search", "train", "llama-7b", *few, "--gpu-hours", "1"]) == 2
    assert "give --tokens" in capsys.readouterr().err


def test_ranks_with_none_among_them_are_each_as_alone() -> None:
    """Who trains adapters alone is assumed to take another engine: both are searched, and each cell is its own."""
    given = {"gpu": "h100", "gpus": 2, "batch": 4, "seq": 512}
    grid = rooflm.train("llama-3.1-8b", **given, lora_rank=[0, 16])
    alone = [rooflm.train("llama-3.1-8b", **given, lora_rank=rank).step_time for rank in (0, 16)]
    assert list(grid["step_time_s"].values) == pytest.approx(alone, rel=1e-12)
    both = rooflm.search_train("llama-3.1-8b", **given, lora_rank=[0, 16], memory_margin=0.0)
    for rank, engine in ((0, "megatron"), (16, "peft")):
        one = rooflm.search_train("llama-3.1-8b", **given, lora_rank=rank, memory_margin=0.0)
        assert {"cluster dgx-h100", "efficiency calibrated", f"engine {engine}"} <= {*one.assumed}
        assert ("wider error bands for want of fitted runs" in one.assumed) == (engine == "peft")
        assert one.best.inputs["engine"] == engine
    assert both.assumed[-1] == "engine megatron or peft"
    each = [rooflm.search_train("llama-3.1-8b", **given, lora_rank=16, engine=e, memory_margin=0.0).best
            for e in ("megatron", "peft")]  # fmt: skip
    fastest = min(each, key=lambda c: c.outputs["step_time_s"])
    assert both.best.outputs == pytest.approx(fastest.outputs) and both.best.inputs["lora_rank"] == 16
    assert both.best.inputs["engine"] == fastest.inputs["engine"]


def test_a_type_that_the_device_lacks_is_told_as_for_one_point():
    found = rooflm.search_train("llama-7b", gpu="a100", gpus=2, batch=8, dtype="fp8", recompute="none", zero=1, cp=1)
    assert found.best is None and found.nearest is None
    assert "has no rate of its own" in found.unmet[0] and "try bf16 or fp16" in found.unmet[0]


def test_ranks_in_an_array_are_a_list_of_ranks() -> None:
    given: dict[str, Any] = {"gpu": "a100", "gpus": 1, "seq": 512, "recompute": "full"}
    one, other = (
        rooflm.search_train("llama-7b", **given, lora_rank=ranks).best for ranks in ([8, 16], np.array([8, 16]))
    )
    assert one is not None and other is not None and one.inputs == other.inputs and one.inputs["batch"] == 16


def test_a_run_that_fails_is_ranked_and_limited_as_it_goes():
    """With failures, days and dollars are those of `train` over its goodput, and so are their limits."""
    asked = {"gpu": "h100", "gpus": 8, "batch": 64, "seq": 2048, "tokens": 1e11, "zero": 1, "cp": 1, "tp": 1, "pp": 1}
    failing = {"training.mtbf": 2e5, "training.restart": 600, "training.checkpoint_bandwidth": 2e9}
    plain = rooflm.search_train("llama-3.1-8b", recompute="full", micro_batch=1, **asked)
    found = rooflm.search_train("llama-3.1-8b", recompute="full", micro_batch=1, sets=failing, **asked)
    one = {k: v for k, v in asked.items() if k != "zero"} | {"zero": 1, "micro_batch": 1, "recompute": "full"}
    job = rooflm.train("llama-3.1-8b", sets=failing, **one).job
    share = found.best.outputs["goodput"]
    assert 0.5 < share < 0.99 and share == pytest.approx(float(job.goodput))
    assert found.best.outputs["days"] == pytest.approx(float(job.days_with_failures))
    for key in ("cost_usd", "gpu_hours", "energy_j", "days"):
        assert found.best.outputs[key] == pytest.approx(plain.best.outputs[key] / share)
    assert "goodput" not in plain.best.outputs and any("with failures" in words for words in found.assumed)
    limit = plain.best.outputs["days"] * 1.001
    assert (
        rooflm.search_train("llama-3.1-8b", days=limit, sets=failing, micro_batch=1, recompute="full", **asked).best
        is None
    )


def test_every_card_is_searched_with_its_own_framework() -> None:
    cards = ["tpu-v5e", "h100-sxm-80gb"]
    found = rooflm.search_train("llama-7b", gpu=cards, gpus=8, batch=64, recompute="full", zero=1, cp=1)
    alone = [
        rooflm.search_train("llama-7b", gpu=card, gpus=8, batch=64, recompute="full", zero=1, cp=1) for card in cards
    ]
    assert found.feasible == sum(one.feasible for one in alone)
    assert (found.best.inputs["gpu"], found.best.inputs["engine"]) == ("h100-sxm-80gb", "megatron")
    assert found.best.outputs["step_time_s"] == alone[1].best.outputs["step_time_s"]
    assert found.assumed[-1] == "engine pax (h100-sxm-80gb: megatron)"
