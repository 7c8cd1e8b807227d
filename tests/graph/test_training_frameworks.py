"""What frameworks do to a step: recomputation that stops early, narrow gathers, scales a row, blocked launches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from one_layer import H, S, layer, products
from rooflm.asked.answers.training import TrainingEstimate
from rooflm.asked.answers.training import train as answer
from rooflm.asked.build_training import build_training
from rooflm.errors import RooflmError
from rooflm.estimate.training import train_scenario
from rooflm.estimate.training_step import context, of_phase, step_graph
from rooflm.graph.backward import every_other, recomputed
from rooflm.graph.ops import Comm, Op
from rooflm.readers.devices import load_device
from rooflm.readers.engine_releases import numbers
from rooflm.readers.engines import load_engine
from rooflm.readers.rows import names
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.scenario import Scenario
from rooflm.validation.request import Request
from rooflm.validation.score import training_scenario
from rooflm.validation.table import read_row
from rooflm_fit.convert.cells import shipped
from rooflm_fit.convert.tables import training_rows
from rooflm_fit.convert.training_facts import GRAPHED, TRAINING, Run, inputs, run_facts

FOUNDRY: dict[str, str] = {
    "id": "LLMF-1", "source": "llm-foundry", "model": "MPT-7b", "layers": "32", "hidden": "4096", "heads": "32",
    "kv_heads": "32", "ffn": "16384", "vocab": "50368", "seq": "1024", "gpu": "A100-80GB", "gpus": "8", "tp": "1",
    "pp": "1", "dp": "8", "zero_fsdp": "fsdp full_shard (zero3)", "recompute": "full", "precision": "amp_bf16",
    "global_batch": "1024", "micro_batch": "64", "metric": "tokens_per_s_per_gpu", "value": "4357",
    "note": "MP mode DEFAULT; grad accum 2",
}  # fmt: skip


def only(row: dict[str, str]) -> Request:
    (cells,) = training_rows([row])
    outcome = read_row(cells)
    assert isinstance(outcome, Request), outcome
    return outcome


def step(**asked: Any) -> TrainingEstimate:
    return answer(build_training(**asked).scenario)


def test_recomputation_that_stops_early_leaves_out_the_closing_product() -> None:
    forward = layer(Mapping())
    again = recomputed(forward, "full", early_stop=True)
    assert products(forward) - products(again) == 8 * S * H**2  # down, 4 H by H
    assert recomputed(forward, "selective", early_stop=True) == recomputed(forward, "selective")
    names = [n.name for n in recomputed(layer(Mapping(tp=2, sp=True)), "full", early_stop=True) if isinstance(n, Comm)]
    assert names.count("tp_reduce_scatter") == 1  # of attention's output; that of the closing product is left out
    assert names.count("tp_all_gather") == 2


def test_hardware_flops_follow_the_early_stop() -> None:
    # 72 s h^2 a layer and token without recomputation; again 24 s h^2, or 16 without the closing product
    asked: dict[str, Any] = {"model": "gpt3-175b", "gpu": "a100-sxm-80gb", "tp": 8, "pp": 8, "dp": 8, "batch": 64}
    late, soon = (
        step(**asked, recompute="full", engine="megatron", sets={"engine.early_stop": stop}) for stop in (False, True)
    )
    none = step(**asked, engine="megatron")
    again = [float(e.hfu / e.mfu) - 1 for e in (late, soon)]
    assert again[1] / again[0] == pytest.approx(1 - 8 / (24 + 4 * 2048 / 12288), rel=0.01)
    assert float(none.step_time) < float(soon.step_time) < float(late.step_time)


def test_every_other_product_runs_again_and_gathers_too() -> None:
    s = build_training(
        model="llama-3-8b", gpu="h100-sxm-80gb", engine="torchtitan", gpus=8, tp=8, batch=8, recompute="selective",
        seq=8192,
    ).scenario  # fmt: skip
    assert s.mapping.recompute == "ops"
    forward = [t.node for t in train_scenario(s).timed["forward", "layers"]]
    again = every_other(forward)
    stored = {n.name for n in forward if isinstance(n, Op) and n.kind == "gemm"} - {n.name for n in again}
    assert stored == {"q", "gate", "down"}  # and v, the other half of "kv"
    assert [n.name for n in again if isinstance(n, Comm)] == ["tp_all_gather"] * 2


def test_grouped_products_run_again_and_leave_nothing_behind() -> None:
    asked: dict[str, Any] = {"model": "qwen3-30b-a3b", "gpu": "b200", "gpus": 8, "batch": 64, "micro_batch": 8}
    asked |= {"seq": 8192, "engine": "torchtitan"}
    found = {policy: step(**asked, recompute=policy) for policy in ("none", "selective", "full")}
    forward = [t.node for t in found["selective"].timed["forward", "layers"]]
    assert {"experts_up", "experts_down"} <= {n.name for n in every_other(forward)}
    kept = {policy: float(e.memory.parts["activations"]) for policy, e in found.items()}
    assert kept["full"] < kept["selective"] < 0.35 * kept["none"]  # of 8 experts a token, nothing


@pytest.mark.parametrize(("dtype", "share"), [("bf16", 1.0), ("fp8", 0.5), ("fp8-rowwise", 1.0)])
def test_a_tensor_group_gathers_at_the_products_width(dtype: str, share: float) -> None:
    asked: dict[str, Any] = {"model": "llama-3-70b", "gpu": "h100-sxm-80gb", "gpus": 64, "tp": 8, "batch": 64}
    plain = step(**asked, engine="torchtitan").comm_bytes
    found = step(**asked, engine="torchtitan", dtype=dtype).comm_bytes
    assert float(found["tp_all_gather"]) == pytest.approx(share * float(plain["tp_all_gather"]))
    assert float(found["tp_reduce_scatter"]) == pytest.approx(float(plain["tp_reduce_scatter"]))


def test_rows_of_scales_cost_time() -> None:
    # torchtitan, 70B on 256 H100 of 500 W: 809.8 tokens a second with one scale a tensor, 599.6 with one a row
    asked: dict[str, Any] = {
        "model": "llama-3.1-70b", "gpu": "h100-sxm-96gb", "gpus": 256, "tp": 8, "batch": 512, "micro_batch": 16,
        "seq": 8192, "recompute": "full", "engine": "torchtitan",
    }  # fmt: skip
    ratio = float(step(**asked, dtype="fp8-rowwise").step_time / step(**asked, dtype="fp8").step_time)
    assert ratio == pytest.approx(809.8 / 599.6, rel=0.1)


def test_cards_of_one_die_share_kernels() -> None:
    times = []
    for gpu in ("a100-sxm-40gb", "a100-sxm-80gb"):
        e = step(model="gpt3-13b", gpu=gpu, gpus=8, batch=8, engine="llm-foundry")
        times.append({t.node.name: float(np.max(t.time)) for t in e.timed["forward", "layers"]})
    assert load_device("a100-sxm-40gb").kernels_from == "a100-sxm-80gb"
    assert times[0]["up"] == pytest.approx(times[1]["up"], rel=0.02)
    assert times[0]["activation"] / times[1]["activation"] == pytest.approx(2.039 / 1.555, rel=0.01)


def test_two_releases_of_llm_foundry() -> None:
    new, old = only(FOUNDRY), only(FOUNDRY | {"precision": "bf16", "note": "MP mode PURE; grad accum 2"})
    assert (new.kwargs["engine"], old.kwargs["engine"]) == ("llm-foundry", "llm-foundry-0.0")
    rates = [float(answer(training_scenario(r)).tokens_per_s_per_gpu) for r in (new, old)]
    # its table of torch 1.13 (before PR 543) has 4030 tokens a second for this run, that of torch 2 has 4357
    assert rates[0] / rates[1] == pytest.approx(4357 / 4030, rel=0.03)
    assert rates[0] == pytest.approx(4357, rel=0.12)


def test_blocked_launches_cost_more_with_small_micro_batches() -> None:
    # BigScience, 72 layers of 14336 over TP 8, PP 12: 128.8 s with micro-batches of 2, 117.1 s with 4 (2022-02-25)
    shape = {
        "model.blocks.0.mixer.heads": 64,
        "model.blocks.0.mixer.kv_heads": 64,
        "model.hidden": 14336,
        "model.blocks.0.mixer.head_dim": 224,
        "model.blocks.0.count": 72,
        "model.blocks.0.ffn.width": 57344,
    }
    times = [
        float(step(model="gpt3-175b", gpu="a100-sxm-80gb", engine="megatron-deepspeed", gpus=384, tp=8, pp=12,
                   batch=2048, micro_batch=b, recompute="full", dtype="fp16", sets=shape).step_time)
        for b in (2, 4)
    ]  # fmt: skip
    assert times[0] / times[1] == pytest.approx(128.82 / 117.07, rel=0.06)
    assert load_engine("gpt-neox").host.gap == 0


def test_tokens_of_latent_experts_travel_in_the_latent_width() -> None:
    e = step(model="nemotron-3-super-120b-a12b", gpu="h100-sxm-80gb", gpus=64, ep=64, batch=128, seq=4096)
    nodes = {t.node.name: t.node for t in e.timed["forward", "layers"]}
    (block, *_) = [b for b in e.scenario.model.blocks if getattr(b.ffn, "latent", 0)]
    assert block.ffn is not None
    inner = block.ffn.inner(e.scenario.model.hidden)  # type: ignore[union-attr]
    assert inner < e.scenario.model.hidden
    rows = nodes["ep_combine"].bytes / (2.0 * inner)
    assert rows >= 4096
    assert rows <= 2 * 4096 * block.ffn.top_k  # type: ignore[union-attr]


def test_details_of_torchtitan_rows() -> None:
    row = FOUNDRY | {
        "id": "TT-1", "source": "torchtitan", "model": "Llama 3.1 8B", "layers": "32", "vocab": "128256",
        "ffn": "14336", "kv_heads": "8", "seq": "8192", "gpus": "64", "dp": "64", "zero_fsdp": "fsdp2",
        "global_batch": "64", "micro_batch": "1", "recompute": "selective (layer)",
        "precision": "bf16", "note": "no compile stated",
    }  # fmt: skip
    s = training_scenario(only(row))
    assert (s.mapping.recompute, s.mapping.recompute_layers, s.engine.kernels.fused) == ("block", 16, False)
    hopper = {"precision": "float8 rowwise", "gpu": "H100-SXM-80GB"}
    compiled = training_scenario(only(row | {"recompute": "full", "note": "torch.compile"} | hopper))
    assert (compiled.mapping.recompute, compiled.quant.name, compiled.engine.kernels.fused) == (
        "full",
        "fp8-rowwise",
        True,
    )


def test_every_entry_of_runs_names_known_models_and_cards_and_says_where_from() -> None:
    said = {"dispatcher", "graphs", "overlap", "grouped", "fp8_attention", "mtp", "recompute", "offload", "zero",
            "fsdp_group", "optimizer", "logit_bytes", "fused_loss", "ran", "doubt", *TRAINING}  # fmt: skip
    models, cards = names("model"), names("gpu")
    for framework, rows in shipped("training_runs").items():
        assert framework == load_engine(framework).name
        for row in rows:
            when, sets = row["when"], row["set"]
            assert row["source"] and sets and set(sets) <= said, row
            known = [m for m in when.get("models", []) if m not in ("deepseek-v4", "nemotron-8b")]  # own sizes printed
            assert all(any(name.startswith(m) for name in models) for m in known), row
            assert all(any(name.startswith(c) for name in cards) for c in when.get("cards", [])), row
            assert sets.get("dispatcher", "flex") in ("flex", "alltoall") and sets.get("graphs", "none") in GRAPHED
            assert numbers(when.get("first", "0")) <= numbers(when.get("last", "99"))


@pytest.mark.parametrize(
    ("model", "gpu", "dtype", "version", "want"),
    [
        (
            "qwen3-30b-a3b",
            "h100-sxm-80gb",
            "fp8",
            "26.02",
            {"dispatcher": "alltoall", "graphs": "none", "overlap": True},
        ),
        ("qwen3-30b-a3b", "h100-sxm-80gb", "fp8", "26.02.01", {"dispatcher": "flex", "graphs": "none"}),
        ("qwen3-30b-a3b", "gb200", "mxfp8", "26.04", {"dispatcher": "flex", "graphs": "router"}),
        ("qwen3-30b-a3b", "gb200", "bf16", "26.04", {"dispatcher": "flex", "graphs": "partial"}),
        ("nemotron-3-super-120b-a12b", "b300", "mxfp8", "26.06", {"dispatcher": "flex", "graphs": "partial", "mtp": 2}),
        (
            "nemotron-3-super-120b-a12b",
            "gb300",
            "nvfp4",
            "26.08",
            {"dispatcher": "flex", "graphs": "partial", "mtp": 2},
        ),
        ("llama-3.1-70b", "h100-sxm-80gb", "fp8", "26.02", {}),
    ],
)
def test_published_runs_are_as_their_scripts_had_them(
    model: str, gpu: str, dtype: str, version: str, want: dict[str, Any]
) -> None:
    assert run_facts(Run("MBR", "megatron-bridge", version, model, gpu, dtype=dtype)) == want


def test_cells_of_a_release_s_own_script_stand_for_what_its_page_prints() -> None:
    oss = {"model": "GPT OSS 120B", "gpus": "64", "dp": "64", "precision": "BF16", "seq": "4096", "global_batch": "512"}
    ran = bridge(**oss, gpu="B200", ep="8", note="25.11 NeMo Container")
    assert (ran.mapping.ep, ran.mapping.micro_batch, ran.engine.host.graphed) == (64, 2, 0)
    assert bridge(**oss, gpu="B200", ep="8", note="26.04 NeMo Container").mapping.ep == 8


def test_what_a_page_calls_a_fault_of_its_release_is_no_yardstick() -> None:
    asked = [Run("MBR", "megatron-bridge", v, "gpt-oss-120b", "gb200", dtype="mxfp8") for v in ("26.06.01", "26.08")]
    assert ["doubt" in run_facts(run) for run in asked] == [True, False]
    assert not run_facts(asked[1])["fp8_attention"]  # sinks and windows have no such kernel


def bridge(**changes: str) -> Scenario:
    row = FOUNDRY | {"id": "MBR-1", "source": "Megatron-Bridge", "model": "LLAMA3_70B", "vp": "", "seq": "8192",
                     "gpu": "GB200-192GB", "gpus": "64", "dp": "64", "precision": "FP8", "global_batch": "512",
                     "micro_batch": "2", "recompute": "", "zero_fsdp": "", "note": "26.02 NeMo Container"}  # fmt: skip
    row |= dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn", "vocab"), "")
    return training_scenario(only(row | changes))


def test_what_runs_keep_elsewhere_or_in_16_bits_is_not_held() -> None:
    sharded = bridge(zero_fsdp="megatron-fsdp")
    assert sharded.training.offload_activations == 40 / 80
    assert sharded.mapping.zero == 3
    assert bridge().training.offload_activations == 0
    assert bridge(zero_fsdp="megatron-fsdp", gpu="H100-80GB").training.offload_activations == 0
    ultra = bridge(model="Nemotron_3_Ultra", gpu="GB300", gpus="256", dp="256", ep="64", note="26.08 NeMo Container")
    assert (ultra.mapping.zero, ultra.mapping.fsdp_group, ultra.mapping.recompute_modules) == (3, 64, ("moe_act",))
    auto = bridge(id="AUTO-1", model="Qwen3 MoE 30B", gpu="H100-80GB", precision="bf16", zero_fsdp="fsdp", note="x")
    assert (auto.training.optimizer, auto.training.master) == ("adam-bf16", False)  # entries without a release


def test_full_graphs_hold_the_host_and_one_kernel_all_experts() -> None:
    asked = Run("MBR", "megatron-bridge", "26.06", "qwen3-30b-a3b", "gb200", dtype="mxfp8")
    found = inputs(asked)
    assert found["engine.graphed"] == 1.0 and found["engine.grouped"] is True and found["engine.dedup"] is True
    assert found["engine.ep_overlap"] == 0.7 and 0.5 < found["engine.attention_factor"] < 0.7


def test_what_a_row_itself_says_counts_more_than_its_scripts() -> None:
    asked = Run("MBR", "megatron-bridge", "25.11", "deepseek-v3", "gb200", dtype="bf16", facts={"mtp": 0.0})
    assert "training.mtp" not in inputs(asked)
    assert inputs(replace(asked, facts={}))["training.mtp"] == 1


NEMO: dict[str, str] = {
    "id": "NEMO-1", "source": "NVIDIA/NeMo", "model": "LLAMA2-70B", "layers": "80", "hidden": "8192", "heads": "64",
    "kv_heads": "8", "ffn": "28672", "vocab": "32000", "seq": "4096", "gpu": "H100-80GB", "gpus": "64", "tp": "4",
    "pp": "4", "vp": "20", "dp": "4", "precision": "FP8", "global_batch": "128", "micro_batch": "1",
    "metric": "tokens_per_s_per_gpu", "value": "1728", "note": "container 24.07; FP8",
}  # fmt: skip


def test_nemo_keeps_remainders_until_its_optimizer_became_megatron_cores() -> None:
    old, new = (training_scenario(only(NEMO | {"note": f"container {release}; FP8"})) for release in ("24.07", "25.04"))
    assert (old.engine.name, old.training.remainders, new.training.remainders) == ("nemo-2024", True, False)
    assert old.engine.room.grad_bytes == 2
    less = train_scenario(new).memory.parts["optimizer"] / train_scenario(old).memory.parts["optimizer"]
    assert less == pytest.approx(12 / 10)  # two fp32 moments, and 4 or 2 bytes of the master copy
    small = {"model": "Nemotron-8B", "layers": "", "hidden": "", "heads": "", "kv_heads": "", "ffn": "", "vocab": "",
             "tp": "2", "pp": "1", "vp": "1", "dp": "32"}  # fmt: skip
    assert training_scenario(only(NEMO | small)).training.grad_bytes == 4
    assert only(NEMO | {"note": "FP8"}).release == ""  # no release: entries of releases do not hold


def test_neighbouring_experts_need_fewer_sends() -> None:
    asked: dict[str, Any] = {
        "model": "qwen3-30b-a3b", "gpu": "h100-sxm-80gb", "gpus": 8, "ep": 8, "batch": 64, "seq": 4096,
        "micro_batch": 4, "zero": "fsdp", "recompute": "full", "engine": "nemo-automodel",
    }  # fmt: skip
    drawn = step(**asked)
    beside = step(**asked, sets={"training.consecutive": True})
    # 8 experts of 128 over 8 ranks: on 8 (1 - (7/8)^8) = 5.25 of them where drawn, on 1 + 7 / 16 where neighbours
    less = beside.parts["ep_comm"] / drawn.parts["ep_comm"]
    assert less == pytest.approx(1.4375 / 5.2511, rel=0.1)
    assert beside.step_time < drawn.step_time
    counts = {"model.blocks.0.ffn.experts": np.array([64, 128])}
    both = step(**asked, sets=counts | {"training.consecutive": True})
    assert both.parts["ep_comm"][1] == pytest.approx(beside.parts["ep_comm"])
    assert both.parts["ep_comm"][0] > both.parts["ep_comm"][1]  # neighbours among 64 span more ranks
    assert step(**asked, sets=counts).parts["ep_comm"][1] == pytest.approx(drawn.parts["ep_comm"])


def test_a_pipeline_that_drains_more_often_idles_more_and_holds_less() -> None:
    asked: dict[str, Any] = {
        "model": "llama-2-13b", "gpu": "h100-sxm-80gb", "gpus": 16, "pp": 4, "dp": 4, "vp": 2, "batch": 64,
        "seq": 4096, "micro_batch": 1, "schedule": "interleaved", "engine": "nemo-automodel",
    }  # fmt: skip
    free = {"engine.lockstep": False}
    once, often = step(**asked, sets=free), step(**asked, sets={**free, "training.flushes": 4})
    assert often.parts["bubble"] == pytest.approx(4 * once.parts["bubble"])
    assert step(**asked).parts["bubble"] > once.parts["bubble"]  # torch's ranks wait for each other at every step
    assert often.memory.parts["activations"] < once.memory.parts["activations"]
    assert often.parts["forward"] == once.parts["forward"]
    with pytest.raises(RooflmError, match="schedule interleaved needs a multiple of pp 4"):
        step(**asked, sets={"training.flushes": 16})
    with pytest.raises(RooflmError, match=r"training\.flushes is 3"):
        step(**(asked | {"schedule": "1f1b"}), sets={"training.flushes": 3})


def test_a_local_batch_is_one_filling_of_the_pipeline() -> None:
    row = NEMO | {"id": "AUTO-1", "source": "NVIDIA-NeMo/Automodel", "precision": "bf16", "zero_fsdp": "fsdp 4"}
    note = "DGX-H100 BF16; local batch 8, grad accum 4; recompute not stated"
    piped = training_scenario(only(row | {"note": note, "vp": "4"}))
    assert piped.training.flushes == 4
    flat = training_scenario(only(row | {"note": note, "pp": "1", "vp": "1", "dp": "16", "zero_fsdp": "fsdp 16"}))
    assert flat.training.flushes == 1


@pytest.mark.parametrize(
    ("engine", "policy"),
    [("peft", "none"), ("trl", "full"), ("trl==0.12", "none"), ("unsloth", "full"), ("megatron", "none")],
)
def test_recomputation_left_unsaid_is_the_frameworks_own(engine: str, policy: str) -> None:
    asked: dict[str, Any] = {"gpu": "h100", "gpus": 1, "batch": 8, "seq": 2048, "engine": engine}
    assert build_training("llama-3.1-8b", **asked).scenario.mapping.recompute == policy
    assert build_training("llama-3.1-8b", **asked, recompute="none").scenario.mapping.recompute == "none"


def test_gelu_written_out_moves_each_of_its_kernels_values() -> None:
    """pow, two products, sum, tanh, sum, half, product: 18 reads and writes of 2 bytes or, under autocast, of 4 where a
    power (amp.rst) or what it is added to makes them so, with casts to and from. Not where kernels are fused."""

    def moved(phase: str, **sets: object) -> float:
        given = {f"engine.{k}": v for k, v in ({"fused": False, "plain_gelu": True} | sets).items()}
        s = build_training("gpt2", gpu="a100", gpus=1, batch=1, seq=1024, engine="fsdp", sets=given).scenario
        nodes = of_phase(step_graph(s, context(s)), phase)
        return sum(float(n.bytes) for n in nodes if getattr(n, "kind", "") == "activation") / (1024 * 3072)

    assert [moved("forward", autocast=cast) for cast in (False, True)] == [36, 76]
    assert [moved("backward", autocast=cast) for cast in (False, True)] == pytest.approx([56, 118], rel=0.01)
    assert moved("forward", plain_gelu=False) == moved("forward", fused=True) == 4


def test_softmax_of_plain_kernels_moves_the_scores_three_times() -> None:
    """Under autocast plain ones go through fp32, too: softmax is on its list (PyTorch, amp.rst)."""

    def moved(how: str, autocast: bool = False) -> float:
        sets = {"engine.flash": False, "engine.softmax": how, "engine.autocast": autocast}
        s = build_training("llama-2-7b", gpu="a100", gpus=1, batch=1, seq=1024, engine="fsdp", sets=sets).scenario
        nodes = of_phase(step_graph(s, context(s)), "forward")
        return sum(float(n.bytes) for n in nodes if n.name == "softmax")

    scores = 32 * 1024**2
    assert [moved(how) for how in ("fused", "plain", "wide")] == [4 * scores, 12 * scores, 20 * scores]
    assert [moved(how, autocast=True) for how in ("fused", "plain", "wide")] == [4 * scores, 20 * scores, 20 * scores]
    assert [load_engine(name).kernels.softmax for name in ("megatron-2022", "fsdp", "peft")] == [
        "fused",
        "plain",
        "wide",
    ]


def test_torch_before_2_2_attends_with_the_first_flash_attention() -> None:
    kernels = [load_engine(name).kernels.attention_kernel for name in ("fsdp-2.1", "fsdp-2.8", "fsdp")]
    assert kernels == ["fa1", "sdpa-2.8", "sdpa"]
