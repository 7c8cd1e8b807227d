"""Training memory against the formulas of Korthikanti et al. 2022 and ZeRO, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.asked import paths
from rooflm.asked.answers.training import TrainingEstimate
from rooflm.asked.answers.training import train as answer
from rooflm.asked.build_training import build_training
from rooflm.catalogue.engine import Kernels
from rooflm.catalogue.model import MLA, MLP, Attention, Block, Model, MoE
from rooflm.errors import RooflmError
from rooflm.estimate.training import TrainingFigures, train_scenario
from rooflm.estimate.training_memory import Setup, layer_activations, model_states, stage_layers, zero_bytes
from rooflm.estimate.training_time import HOST_UPDATE
from rooflm.graph.context import Pass, Prefill
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.schemes import parse_quant
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.training import Training

BF16 = parse_quant("bf16")
GPT = {
    "22b": (48, 6144, 64, 4, 1),
    "175b": (96, 12288, 96, 1, 8),
    "530b": (105, 20480, 128, 1, 35),
    "1t": (128, 25600, 160, 1, 64),
}


def korthikanti(s: float, b: float, h: float, a: float, t: float, sp: bool = False, recompute: str = "none") -> float:
    """Activation bytes of one GPT layer and micro-batch: sequence s, batch b, hidden h, heads a, tensor degree t.

        none  sbh (10 + 24/t + 5as/(ht))    selective  sbh (10 + 24/t)    full  2 sbh
        with sequence parallelism:  sbh/t (34 + 5as/h)    34 sbh/t    2 sbh/t

    Source: Korthikanti et al. 2022 (arXiv 2205.05198), equations 1 to 4 and table 2 (16-bit values, dropout).

    >>> korthikanti(2048, 1, 12288, 96, 8, sp=True, recompute="selective") == 34 * 2048 * 12288 / 8
    True
    """
    scores = 5 * a * s / (h * t) if recompute == "none" else 0.0
    if recompute == "full":
        return 2.0 * s * b * h / (t if sp else 1)
    return s * b * h * (34 / t + scores) if sp else s * b * h * (10 + 24 / t + scores)


def gpt(layers: int, hidden: int, heads: int) -> Model:
    block = Block(layers, Attention(heads, heads, hidden // heads, rope=False), MLP(4 * hidden, False))
    return Model("gpt", hidden, 51200, (block,), positions=2048, tied=True, norm="layer")


PLAIN, FUSED = Training(), Kernels()


def setup_of(
    model: Model, m: Mapping, seq: int, options: Training = PLAIN, kernels: Kernels = FUSED, micro_batches: int = 1
) -> Setup:
    """A pass of micro-batches of whole sequences in 16 bits."""
    work = Pass(Prefill(m.micro_batch, seq), None, m.micro_batch * seq)
    return Setup(model, work, m, BF16, kernels, options, micro_batches=micro_batches)


@pytest.mark.parametrize("name", GPT)
@pytest.mark.parametrize("sp", [False, True])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_activations_of_a_layer_are_korthikanti_s(name: str, sp: bool, recompute: str) -> None:
    layers, h, a, b, _ = GPT[name]
    m = Mapping(tp=8, sp=sp, micro_batch=b, recompute=recompute)
    model = gpt(layers, h, a)
    setup = setup_of(model, m, 2048, Training(dropout=True), Kernels(flash=False))
    got = layer_activations(setup, model.blocks[0]).kept
    assert got == pytest.approx(korthikanti(2048, b, h, a, 8, sp, recompute), rel=1e-12)


def test_korthikanti_by_hand() -> None:
    # 175B, s 2048, b 1, t 8: sbh = 25,165,824; 10 + 3 + 5 x 96 x 2048 / (12288 x 8) = 13 + 10
    assert korthikanti(2048, 1, 12288, 96, 8) == 25_165_824 * 23
    assert korthikanti(2048, 1, 12288, 96, 8, True) == 25_165_824 / 8 * (34 + 80)
    assert korthikanti(2048, 1, 12288, 96, 8, False, "full") == 50_331_648
    assert korthikanti(2048, 1, 12288, 96, 8, True, "full") == 50_331_648 / 8


def test_flash_attention_drops_the_score_term() -> None:
    model = gpt(2, 1024, 16)
    m = Mapping(micro_batch=1)
    setup = setup_of(model, m, 4096, Training(dropout=True))
    flash = layer_activations(setup, model.blocks[0]).kept
    selective = korthikanti(4096, 1, 1024, 16, 1, recompute="selective")
    assert flash == pytest.approx(selective + 4096 * 16 * 4.0)  # one fp32 number a token and head


@pytest.mark.parametrize(("zero", "want"), [(0, 16.0), (1, 4 + 12 / 64), (2, 2 + 14 / 64), (3, 16 / 64)])
def test_zero_stages(zero: int, want: float) -> None:
    assert float(sum(zero_bytes(zero, 64))) == want
    stages = np.array([[0], [1], [2], [3]])
    both = sum(zero_bytes(stages, np.array([1, 64])))
    assert both.shape == (4, 2)
    assert np.all(both[:, 0] == 16.0)
    assert both[zero, 1] == want


def test_model_states_of_a_whole_model() -> None:
    model = gpt(4, 512, 8)
    params = 4 * (12 * 512**2 + 4 * 512) + 51200 * 512 + 2048 * 512 + 2 * 512
    for zero, each in ((0, 16.0), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 2.0)):
        m = Mapping(dp=8, zero=zero)
        setup = setup_of(model, m, 2048, micro_batches=4)
        states = model_states(setup, 4, 51200 * 512 + 2048 * 512 + 2 * 512)
        own = states["weights"] + states["gradients"] + states["optimizer"]
        assert own == pytest.approx(params * each)


def published(name: str, recompute: str, sp: bool) -> TrainingFigures:
    """The four configurations of Korthikanti et al. 2022, table 3."""
    layers, hidden, heads, micro, pp = GPT[name]
    batch = {"22b": 4, "175b": 64, "530b": 280, "1t": 512}[name]
    request = build_training(
        model=gpt(layers, hidden, heads), gpu="a100-sxm-80gb", tp=8, pp=pp, vp=3 if name in ("175b", "530b") else 1,
        batch=batch, seq=2048, micro_batch=micro, recompute=recompute, sp=sp, dtype="fp16", zero=0,
        engine="megatron-2022", efficiency="0.6,0.8",
    )  # fmt: skip
    return train_scenario(request.scenario)


@pytest.mark.parametrize("name", GPT)
def test_published_configurations_fit_where_the_paper_says(name: str) -> None:
    # Figure 1: with tensor parallelism alone none fits 80 GB; with sequence parallelism and selective recomputation,
    # and with full recomputation (both were run, table 5), all do.
    assert not published(name, "none", False).fits
    assert published(name, "none", False).reason == "out of memory"
    assert published(name, "selective", True).fits
    assert published(name, "full", False).fits


def test_memory_parts_sum_and_more_memory_never_breaks_a_fit() -> None:
    e = published("175b", "selective", True)
    assert sum(e.memory.parts.values()) == pytest.approx(e.memory.total)
    s = e.scenario
    sizes = np.array([20e9, 40e9, 80e9, 160e9])
    device = replace(s.cluster.device, dram=replace(s.cluster.device.dram, size=sizes))
    grid = train_scenario(replace(s, cluster=replace(s.cluster, device=device), axes=1))
    assert np.all(np.diff(np.asarray(grid.fits).astype(int)) >= 0)
    assert not grid.fits[0]
    assert grid.fits[-1]


def test_largest_micro_batch_is_the_largest_that_fits() -> None:
    for micro in (1, 2, 4, 8, 16, 32, 64):
        r = build_training(
            model="llama-2-7b", gpu="a100-sxm-80gb", dp=8, batch=512, micro_batch=micro, efficiency="0.6,0.8"
        )
        e = train_scenario(r.scenario)
        assert bool(e.fits) == (micro <= e.max_micro_batch)


def test_uneven_stages() -> None:
    assert [float(x) for x in stage_layers(78, 12)] == [6.0, 7.0]
    ends, between = stage_layers(np.array([126, 96]), np.array([16, 8]))
    assert list(ends) == [7, 12]
    assert list(between) == [8, 12]


def test_adapters_train_little() -> None:
    base = {"model": "llama-2-7b", "gpu": "a100-sxm-80gb", "batch": 8, "efficiency": "0.6,0.8"}
    full = train_scenario(build_training(**base).scenario)
    lora = train_scenario(build_training(**base, lora_rank=16, lora_modules="qkv,out", engine="megatron").scenario)
    qlora = train_scenario(build_training(**base, lora_rank=16, base_bits=4).scenario)
    # 7B x 18 bytes do not fit; 7B x 2 do; rank 16 on qkv (4096 -> 12288) and out (4096 -> 4096): 16 x 6 x 4096 a layer
    assert not full.fits
    assert lora.fits
    assert lora.memory.parts["gradients"] == pytest.approx(32 * 16 * 6 * 4096 * 4)
    assert qlora.memory.parts["weights"] < 0.35 * lora.memory.parts["weights"]
    assert lora.parts["backward"] < 0.6 * full.parts["backward"]


def test_inputs_that_a_tensor_group_gathered_are_kept_where_autograd_keeps_them() -> None:
    base = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 8, "tp": 8, "batch": 1, "seq": 8192, "engine": "torchtitan"}
    base |= {"micro_batch": 1, "recompute": "none", "zero": 3}
    given = build_training(**base).scenario
    kept, again = (
        float(train_scenario(paths.put(given, "engine.keeps_gathered", value)).memory.parts["activations"])
        for value in (True, False)
    )
    assert kept - again == pytest.approx(32 * 2 * 8192 * 4096 * 2 * 7 / 8)  # both inputs of a layer, 16 bits


def test_a_quantised_base_keeps_its_embedding_and_head_in_16_bits_or_fp32() -> None:
    base = {"model": "llama-3.1-8b", "gpu": "a100-sxm-80gb", "batch": 1, "seq": 512, "lora_rank": 16}
    tables = 2 * 128256 * 4096.0  # bitsandbytes skips both; prepare_model_for_kbit_training has them in fp32
    for engine, bytes_ in (("axolotl", 2.0), ("peft", 4.0)):
        asked = {**base, "engine": engine}
        whole, narrow = (rooflm.train(**asked, base_bits=bits).memory.parts["weights"] for bits in (16, 4))
        want = (8.03e9 - tables) * (2 - 4.127 / 8) + tables * (2 - bytes_)
        assert float(whole - narrow) == pytest.approx(want, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "printed"), [("llama-3.1-8b", 7.8), ("llama-2-13b", 8.0), ("gemma-7b", 7.2), ("phi-3-mini", 2.7)]
)
def test_weights_of_a_readied_base_are_what_a_card_held_after_loading(model: str, printed: float) -> None:
    """Universal LLM Trainer, "Model Mem." of QLoRA on A100 (1e9 bytes; github.com/ljm565/universal-llm-trainer)."""
    asked = {"gpu": "a100", "batch": 1, "seq": 512, "lora_rank": 8, "engine": "peft", "base_bits": 4}
    assert float(rooflm.train(model, **asked).memory.parts["weights"]) / 1e9 == pytest.approx(printed, rel=0.03)


def test_a_device_that_works_alone_has_no_communicators() -> None:
    asked: dict[str, Any] = {"gpu": "a100", "batch": 2, "seq": 512, "engine": "peft", "lora_rank": 8}
    alone, two = (rooflm.train("llama-3.2-1b", **asked, gpus=gpus).memory.parts for gpus in (1, 2))
    fixed = [float(parts["context"] + parts["workspace"]) / 2**30 for parts in (alone, two)]
    assert fixed == pytest.approx([0.5, 2.5])


@pytest.mark.parametrize(("memory", "seq"), [(12, 932), (16, 2551), (24, 5789), (40, 12264), (48, 15502), (80, 28454)])
def test_the_longest_sequence_of_qlora_in_so_much_memory(memory: int, seq: int) -> None:
    """Hugging Face and FlashAttention 2, Llama 3.1 8B, rank 32, one sequence: what fitted (Unsloth's benchmarks)."""
    asked: dict[str, Any] = {"gpu": "a100", "batch": 1, "recompute": "full", "engine": "peft-0.16", "lora_rank": 32}
    needed = rooflm.train("llama-3.1-8b", **asked, base_bits=4, seq=seq).memory.total
    assert float(needed) / 1e9 == pytest.approx(memory, rel=0.06)


def test_a_layer_that_runs_again_takes_the_room_of_the_loss() -> None:
    """By what tensors need; an allocator that keeps its pieces holds both (engine.fragmentation)."""
    asked: dict[str, Any] = {"gpu": "h100", "batch": 1, "seq": 8192, "recompute": "full", "engine": "fsdp"}

    def held(logit: float, room: float) -> float:
        sets = {"engine.logit_bytes": logit, "engine.fragmentation": room}
        parts = rooflm.train("llama-3.1-8b", **asked, sets=sets).memory.parts
        return float(parts["activations"] + parts["logits"])

    logits = 8192 * 128256 * 6.0
    assert held(6, 1.05) - held(1e-9, 1.05) == pytest.approx(logits)
    assert 0 < held(6, 1) - held(1e-9, 1) < logits


def test_flops_of_adapters_are_counted_as_run() -> None:
    """No gradients of frozen weights: 4 FLOPs a parameter and token, scores and adapters beside, of the 6 of a full
    step. Long products reach some 65 % of the card's peak, a step 40 to 55."""
    given = build_training(model="llama-3.1-8b", gpu="rtx-4090", lora_rank=16, batch=16, seq=2048).scenario
    e = answer(given)
    assert e.hfu == pytest.approx(e.mfu) and 0.4 < e.mfu < 0.55
    each = float(e.mfu * given.cluster.device.peak["bf16"] * e.step_time) / (16 * 2048 * 8.03e9)
    assert 4.0 < each < 4.5


def test_optimizers_and_offload() -> None:
    base = {"model": "llama-2-7b", "gpu": "a100-sxm-80gb", "batch": 8, "efficiency": "0.6,0.8", "zero": 0}
    params = load_model("llama-2-7b").published_params
    for name, each in (("adam", 12), ("adam-bf16", 8), ("adam8bit", 6), ("sgd", 4), ("muon", 8)):
        e = train_scenario(build_training(**base, optimizer=name).scenario)
        assert e.memory.parts["optimizer"] == pytest.approx(each * params)
    base |= {"micro_batch": 8, "sets": {"training.offload_optimizer": 1}}
    moved = train_scenario(build_training(**base).scenario)
    assert moved.memory.parts["optimizer"] == 0
    assert moved.memory.parts["gradients"] == pytest.approx(4 * params)  # Megatron-Core copies them at the update
    away = train_scenario(build_training(**base, engine="deepspeed").scenario)
    assert away.memory.parts["optimizer"] == away.memory.parts["gradients"] == 0  # ZeRO-Offload
    host = 42 / HOST_UPDATE  # norm 8, zeros 4, states read and written 24, gradient 4, weight 2
    assert moved.parts["offload"] == pytest.approx(params * (host + 2 / moved.scenario.cluster.host_bandwidth))
    assert moved.parts["optimizer"] == 0


def test_fsdp_holds_whole_gradients_of_a_layer_beside_two_gathered_ones() -> None:
    """PyTorch, BACKWARD_PRE; adapters have no such gradients, DeepSpeed gathers what its settings say."""
    base = {"model": "llama-3.1-405b", "gpu": "h100", "gpus": 64, "dp": 64, "batch": 64, "zero": 3, "engine": "fsdp"}
    each, ends = 3.187e9, 4 * 128256 * 16384  # bytes of both tables
    for rank, sets in ((0, 3), (16, 2)):
        parts = train_scenario(build_training(**base, lora_rank=rank).scenario).memory.parts
        assert parts["buffers"] == pytest.approx(sets * 2 * each + ends, rel=1e-3)


def test_an_update_in_the_backward_pass_leaves_no_gradients_and_runs_as_fast() -> None:
    """torchtune's optimizer_in_bwd: each gradient is freed by the hook that uses it."""
    usual, used = (
        rooflm.train("llama-2-7b", gpu="h100", gpus=1, batch=1, engine="torchtune",
                     sets={"training.in_backward": flag, "training.master": False})
        for flag in (False, True)
    )  # fmt: skip
    assert usual.memory.parts["gradients"] > 4e9
    assert used.memory.parts["gradients"] == 0
    assert used.memory.total < usual.memory.total - 4e9
    assert used.step_time == usual.step_time


def kept(model: Model, modules: tuple[str, ...] = (), **mapping: Any) -> float:
    """Bytes kept of one layer for a micro-batch of 1024 tokens."""
    m = Mapping(recompute_modules=modules, **mapping)
    setup = setup_of(model, m, 1024)
    return float(layer_activations(setup, model.blocks[0]).kept)


def test_modules_that_run_again_are_not_kept() -> None:
    """By hand, 16 bits: the output of a norm 2 h; gate, up and their product 6 w a token or pair; queries and keys of
    192 and values of 128 a head."""
    tokens, h, w = 1024, 512, 1408
    dense = Model("dense", h, 1000, (Block(2, Attention(8, 8, 64), MLP(w)),))
    whole = kept(dense)
    assert whole - kept(dense, ("layernorm",)) == pytest.approx(tokens * 2 * h * 2)
    assert whole - kept(dense, ("mlp",)) == pytest.approx(tokens * 6 * w)
    assert kept(dense, ("moe", "moe_act", "mla_up_proj")) == whole
    assert whole - kept(dense, ("mlp", "layernorm")) == pytest.approx(tokens * (6 * w + 4 * h))
    experts = Model("moe", h, 1000, (Block(2, MLA(8, 256, 128, 128, 64, 128), MoE(16, 4, w, shared_width=w)),))
    whole, pairs = kept(experts), tokens * 4
    assert whole - kept(experts, ("moe_act",)) == pytest.approx(pairs * 2 * w)
    assert whole - kept(experts, ("mla_up_proj",)) == pytest.approx(tokens * 8 * (192 + 192 + 128) * 2)
    everything = tokens * (16 * 8 + 6 * w) + pairs * (4 * h + 6 * w)  # router, shared expert, permuted rows, experts
    assert whole - kept(experts, ("moe",)) == pytest.approx(everything)
    assert kept(experts, ("moe", "moe_act")) == kept(experts, ("moe",))
    latent = replace(experts.blocks[0].ffn, latent=h // 4)
    narrow = Model("latent", h, 1000, (replace(experts.blocks[0], ffn=latent),))
    # inputs and outputs of the routed experts are latent; one more input: that of the projection out of the latent
    assert whole - kept(narrow) == pytest.approx(pairs * 4 * (h - h // 4) - tokens * 2 * (h // 4))
    assert kept(experts, ("layernorm",), recompute="selective") < kept(experts, recompute="selective")


def test_modules_that_run_again_cost_their_forward_pass() -> None:
    asked: dict[str, Any] = {"model": "qwen3-30b-a3b", "gpu": "h100", "dp": 8, "ep": 8, "batch": 64, "seq": 4096}

    def run(**more: Any) -> TrainingEstimate:
        return answer(build_training(**asked, **more).scenario)

    plain, act, moe, full = (
        run(),
        run(recompute_modules="moe_act"),
        run(recompute_modules="moe,layernorm"),
        run(recompute="full"),
    )
    again = [float(np.max(e.parts["recompute"])) for e in (plain, act, moe, full)]
    assert again[0] == 0 < again[1] < again[2] < again[3]
    assert act.hfu == pytest.approx(plain.hfu * plain.step_time / act.step_time, rel=1e-12)  # no product runs again
    assert moe.hfu > moe.mfu
    assert moe.comm_bytes["ep_dispatch"] == pytest.approx(2 * plain.comm_bytes["ep_dispatch"])
    assert run(recompute_modules="core_attn").scenario.mapping.recompute == "selective"
    with pytest.raises(RooflmError, match="did you mean 'moe_act'"):
        run(recompute_modules="moe_acts")
    with pytest.raises(RooflmError, match="recompute_modules go with recompute none or selective"):
        run(recompute="full", recompute_modules="moe")


@pytest.mark.parametrize("pp", [1, 4, 8])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_largest_micro_batch_fits_on_every_stage(pp, recompute):
    """Also where logits make the last stage the fullest one for larger micro-batches than the one asked about."""
    point = {"gpu": "h100", "tp": 2, "pp": pp, "batch": 512, "recompute": recompute, "seq": 4096}
    most = int(rooflm.train("gemma-2-2b", **point).max_micro_batch)
    fits = max(d for d in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if d <= most)
    assert rooflm.train("gemma-2-2b", **point, micro_batch=fits).fits


def test_stages_hold_every_layer() -> None:
    layers, pp = np.meshgrid(np.arange(2.0, 130.0), np.arange(2.0, 33.0))
    ends, between = stage_layers(layers, pp)
    assert np.all((2 * ends + (pp - 2) * between >= layers) | (pp > layers))
    assert np.all(between - ends <= 1)


def test_sharded_parameters_stay_gathered_under_a_pipeline() -> None:
    """torchtitan's table, 405B on 512 H100 (interleaved, 78.1 GB), by what is known of FSDP alone; 41 to 48 % of it
    where each micro-batch gathers again."""
    split: dict[str, Any] = {"gpus": 512, "tp": 8, "pp": 8, "vp": 2, "dp": 8, "zero": 3, "batch": 256, "micro_batch": 4}
    r = rooflm.train(
        "llama-3.1-405b", gpu="h100-sxm-96gb", engine="fsdp", dtype="fp8", seq=8192, recompute="full", **split
    )
    assert float(r.memory.total) == pytest.approx(78.1e9, rel=0.1)


def test_offloaded_activations_leave_the_layer_at_work() -> None:
    """With recomputation it is as large as with none offloaded but for the kept inputs of the other layers."""

    def activations(away: float, recompute: str) -> float:
        sets = {"training.offload_activations": away, "engine.logit_bytes": 0.1}
        made = rooflm.train("llama-3.1-8b", gpu="h100", batch=1, seq=8192, recompute=recompute, sets=sets)
        return float(made.memory.parts["activations"])

    for policy, share in (("full", 0.3), ("none", 0.02)):
        here, away = activations(0.0, policy), activations(1.0, policy)
        assert share * here < away < here
    assert activations(0.0, "full") - activations(1.0, "full") == pytest.approx(31 * 8192 * 4096 * 2)


def test_norms_that_keep_fp32_copies() -> None:
    """transformers' LlamaRMSNorm: 6 bytes a value in place of a kernel's 2, on 32 layers of two norms of 4,096 values,
    frozen 4; and the slope of FlagPerf's two runs of DeepSpeed (57 and 70 GiB with 4,096 and 6,144 tokens a card)
    within an eighth."""
    asked: dict[str, Any] = {"gpu": "a800-sxm-80gb", "gpus": 8, "dp": 8, "zero": 3, "batch": 8}
    asked |= {"engine": "deepspeed", "seq": 4096}
    usual, lean = (
        rooflm.train("llama-2-7b", **asked),
        rooflm.train("llama-2-7b", **asked, sets={"engine.norm_kernel": True}),
    )
    values = 32 * 2 * 4096 * 4096
    assert float(usual.memory.parts["activations"] - lean.memory.parts["activations"]) == values * 4
    frozen = {**asked, "lora_rank": 8, "recompute": "none"}
    few = [rooflm.train("llama-2-7b", **frozen, sets={"engine.norm_kernel": one}) for one in (False, True)]
    assert float(few[0].memory.parts["activations"] - few[1].memory.parts["activations"]) == values * 2
    wide = rooflm.train("llama-2-7b", **asked | {"seq": 2048, "batch": 24, "micro_batch": 3})
    assert float(wide.memory.total - usual.memory.total) == pytest.approx(13 * 2**30, rel=0.125)


@pytest.mark.parametrize(
    ("zero", "master", "recompute", "norms", "inputs", "checkpoint"),
    [
        (0, True, "none", 4 * 4, 5 * 2, 0),  # autocast: inputs and quotients in fp32, copies for Q, K, V, gate, up
        (0, False, "none", 2 * (4 + 2), 2 * 2, 0),  # 16 bits throughout: an fp32 copy, the quotient
        (3, True, "none", 2 * (4 + 2), 2 * 2, 0),  # fully_shard casts weights, so that layers hand on 16 bits
        (0, True, "full", 0, 0, 4),
        (0, False, "full", 0, 0, 2),
    ],
)
def test_what_autocast_keeps(zero: int, master: bool, recompute: str, norms: int, inputs: int, checkpoint: int) -> None:
    """Bytes a token and layer over the hidden width, as torch.autograd.graph.saved_tensors_hooks counts them of a layer
    of Llama with its own norm (256 wide, 704 within: 56 under autocast, 46 in 16 bits); Q, K, V, output 8, SwiGLU 8."""

    def kept(layers: int) -> float:
        sets = {
            "model.blocks.0.count": layers,
            "training.master": master,
            "engine.fused": False,
            "engine.merged": False,
        }
        asked: dict[str, Any] = {"gpus": 4, "dp": 4, "zero": zero, "engine": "fsdp", "recompute": recompute}
        made = rooflm.train("llama-2-7b", gpu="h100", batch=4, seq=2048, sets=sets, **asked)
        return float(made.memory.parts["activations"])

    halves = checkpoint if recompute == "full" else norms + inputs + 8 + 8 * 11008 / 4096 + 4 * 32 / 4096
    assert (kept(33) - kept(32)) / (2048 * 4096) == pytest.approx(halves)


def test_a_narrow_base_readied_for_training_keeps_fp32_between_layers_and_in_them() -> None:
    asked = {"gpu": "a100", "engine": "peft", "gpus": 2, "batch": 16, "micro_batch": 8, "seq": 4096, "lora_rank": 16,
             "recompute": "full"}  # fmt: skip

    def kept(zero: int, **more: object) -> float:
        return float(rooflm.train("mistral-7b", **asked, zero=zero, **more).memory.parts["activations"])

    work = kept(0) - 31 * 8 * 4096 * 4096 * 2.0  # one layer, with what the loss reads
    scores = 8 * 4096 * 32 * 4.0  # attention's sums have fp32 already
    norms = (
        2 * 8 * 4096 * 4096 * 4.0
    )  # and norms keep an input in fp32 either way: a copy, or what stands between layers
    assert kept(0, base_bits=4) == pytest.approx(31 * 8 * 4096 * 4096 * 4.0 + 2 * work - scores - norms)
    assert kept(3, base_bits=4) == kept(3) == kept(0)  # TRL does not ready a sharded base
    assert kept(0, base_bits=4, sets={"engine.narrow_residual": 2}) == kept(0)


@pytest.mark.parametrize(("engine", "tp", "pp"), [("fsdp", 1, 1), ("nanotron", 4, 4)])
def test_one_rank_gathers_nothing(engine: str, tp: int, pp: int) -> None:
    asked: dict[str, Any] = {"gpu": "h200", "gpus": tp * pp, "tp": tp, "pp": pp, "dp": 1, "batch": 8, "engine": engine}
    plain, sharded = (rooflm.train("llama-3.1-8b", zero=z, **asked).memory for z in (0, 3))
    assert float(sharded.total) == pytest.approx(float(plain.total))


def test_what_torchtitan_s_selective_policy_keeps_of_a_llama_layer() -> None:
    """Of Llama 3.1 8B a token and layer, 16 bits each: the layer's input (4,096), q and v (4,096 and 1,024; k runs
    again), attention's output (4,096) and its sums (32 in fp32), the gate's product (14,336); plain kernels keep the
    last product, which a compiler leaves out. Every other product is kept, in the order they run in."""
    wide = (4096 + 4096 + 1024 + 4096 + 14336) * 2.0 + 32 * 4.0

    def held(fused: bool) -> float:
        sets = {"engine.fused": fused, "engine.selective": "ops", "engine.fragmentation": 1}
        asked: dict[str, Any] = {"gpu": "h100", "gpus": 8, "zero": 3, "batch": 8, "seq": 1024, "recompute": "selective"}
        made = rooflm.train("llama-3.1-8b", engine="torchtitan", sets=sets, **asked)
        ends = 4 * 4096 * 2  # what the loss reads, and a layer's gradients
        return (float(made.memory.parts["activations"]) / 1024 - ends) / 32

    assert held(fused=True) == pytest.approx(wide)
    assert held(fused=False) == pytest.approx(wide + 4096 * 2)


def test_what_torchtitan_s_selective_policy_keeps_of_exchanges() -> None:
    """Of Qwen3-30B-A3B's 48 layers, eight experts of 128 a token of 2,048 values, on eight ranks: what both exchanges
    bring of each pair; with DeepEP a token once for each of 5.25 ranks, and its sum; nothing where they run again."""
    asked: dict[str, Any] = {"gpu": "h200", "gpus": 8, "dp": 8, "ep": 8, "batch": 8, "seq": 4096, "zero": 3}

    def run(*modules: str, **sets: object) -> TrainingFigures:
        sets = {"engine.fragmentation": 1} | sets
        given = asked | {"model": "qwen3-30b-a3b", "engine": "torchtitan", "recompute": "selective"}
        return train_scenario(build_training(**given, recompute_modules=modules, sets=sets).scenario)

    pair, sparse, again = run(), run(**{"engine.dedup": True}), run("moe")
    held = [float(e.memory.parts["activations"]) / (48 * 4096 * 2048 * 2) for e in (pair, sparse, again)]
    assert held[0] - held[2] == pytest.approx(2 * 8, rel=0.01)
    assert held[1] - held[2] == pytest.approx(8 * (1 - (7 / 8) ** 8) + 1, rel=0.01)
    assert again.scenario.mapping.recompute == "ops"
    assert again.comm_bytes["ep_dispatch"] == pytest.approx(2 * pair.comm_bytes["ep_dispatch"])


def test_deepspeed_s_buffers() -> None:
    """Of 16-bit gradients two buckets of 5e8, one of ZeRO 3; 1e9 parameters that ZeRO 3 gathers, and an fp32 copy of as
    many gradients at most; of a whole shard in ZeRO 2 (6.74e9 / 8). What was allocated finds room in what the backward
    pass has used up, what was reserved does not."""

    def parts(zero: int, **sets: object) -> dict[str, float]:
        asked: dict[str, Any] = {"gpu": "h100", "gpus": 2, "dp": 2, "batch": 2, "recompute": "full"}
        made = rooflm.train("llama-2-7b", engine="deepspeed", zero=zero, sets=sets, **asked)
        return {name: float(size) for name, size in made.memory.parts.items()}

    shard = 6_738_415_616 / 2
    for zero, buckets in ((1, 2), (2, 2), (3, 1)):
        usual, small = parts(zero), parts(zero, **{"engine.bucket": 1e7})
        assert usual["workspace"] - small["workspace"] == pytest.approx(buckets * 2 * 4.9e8)
        without = parts(zero, **{"engine.live": 0, "engine.grads_joined": 0})
        copies = 4 * (1e9 if zero == 3 else shard) - 2 * shard * (zero == 1)  # hooks pass them on where buckets are
        assert usual["gradients"] - without["gradients"] == pytest.approx(copies, rel=1e-6)
        sets = {"engine.fragmentation": 1.0}
        spent = sum(parts(zero, **sets)[n] for n in ("activations", "logits"))
        less = usual["gradients"] - parts(zero, **sets)["gradients"]
        assert less == pytest.approx(min(spent, 4 * (1e9 if zero == 3 else shard)), rel=1e-6)
    assert parts(3)["buffers"] == 2e9
    assert parts(2)["buffers"] == 0
    lean = parts(2, **{"training.optimizer": "adam-bf16"})  # keeps nothing in fp32
    assert (
        lean["gradients"]
        == parts(2, **{"training.optimizer": "adam-bf16", "engine.live": 0, "engine.grads_joined": 0})["gradients"]
    )


def test_internevo_joins_gradients_and_runs_adam_over_all_of_them() -> None:
    """hybrid_zero_optim.py: weights 2, gradients 2, states 12, joined in 16 bits 2, in 32 bits 4, AdamW's divisors 4
    make 26 bytes a parameter of a rank, of which what activations had is reused."""
    made = rooflm.train("llama-7b", gpu="a800", engine="internevo", gpus=4, tp=4, batch=4, seq=2048, recompute="full")
    parts = {name: float(size) for name, size in made.memory.parts.items()}
    spent = parts["activations"] + parts["logits"]
    states = sum(parts[name] for name in ("weights", "gradients", "optimizer"))
    assert states + spent == pytest.approx(26 * 6.738e9 / 4, rel=0.01)


def test_weights_that_zero_3_gathers_stand_until_the_backward_pass_is_through() -> None:
    """DeepSpeed, pull request 8189: products keep what was gathered, where no layer runs again; FSDP without
    limit_all_gathers gathers as fast as its host runs."""

    def gathered(engine: str, recompute: str, **sets: object) -> float:
        asked: dict[str, Any] = {"gpu": "h100", "gpus": 8, "zero": 3, "batch": 8, "engine": engine, "sets": sets}
        return float(rooflm.train("llama-2-7b", recompute=recompute, **asked).memory.parts["buffers"])

    weights = 2.0 * load_model("llama-2-7b").published_params
    assert gathered("deepspeed", "none") == pytest.approx(weights, rel=1e-3)
    assert gathered("deepspeed", "full") == gathered("deepspeed", "none", **{"engine.holds": "layer"}) == 2e9
    assert gathered("fsdp", "none") == gathered("fsdp", "full") < 0.2 * weights
    assert gathered("fsdp", "full", **{"engine.holds": "ahead"}) == pytest.approx(weights, rel=1e-3)


def test_gradients_beside_the_buckets_that_reduce_them() -> None:
    """PyTorch, DistributedDataParallel: as much as all gradients, unless gradient_as_bucket_view; activations that
    are used up make room where one micro-batch is all."""

    def held(gpus: int, zero: int, batch: int) -> float:
        asked: dict[str, Any] = {"gpu": "h200", "gpus": gpus, "zero": zero, "batch": batch, "micro_batch": 1}
        parts = rooflm.train("llama-2-7b", seq=64, recompute="full", engine="fsdp", **asked).memory.parts
        spent = sum(float(parts[name]) for name in ("activations", "logits", "buffers"))
        return (float(parts["gradients"]) + spent * (batch <= gpus)) / 6_738_415_616

    assert held(2, 0, 2) == pytest.approx(8.0, rel=1e-3)  # and a layer at work
    assert held(2, 0, 4) == pytest.approx(8.0)  # both stand from micro-batch to micro-batch
    assert held(1, 0, 2) == pytest.approx(4.0)
    assert held(2, 2, 4) == pytest.approx(2.0)


def test_what_stands_when_the_last_gradients_are_made() -> None:
    """FSDP's root: the tables and their gradients in 16 bits, unless they are sharded by themselves (torchtitan, pull
    request 1094); measured: TRL, FSDP2, Liger, Qwen3-4B on two to eight H200 (cluster-bench, 2026-08)."""
    room = {"engine.context": 0, "engine.workspace": 0, "engine.fragmentation": 1, "engine.logit_bytes": 0.1}
    asked: dict[str, Any] = {"gpu": "h200", "engine": "fsdp", "recompute": "full", "zero": 3}

    def held(root: bool) -> float:
        sets = room | {"engine.root": root}
        return float(rooflm.train("llama-3.1-8b", **asked, gpus=8, batch=8, seq=64, sets=sets).memory.total)

    assert held(True) - held(False) == pytest.approx(2 * 2 * 2 * 128256 * 4096, rel=0.01)
    assert rooflm.load_engine("torchtitan-2024").room.root
    assert not rooflm.load_engine("torchtitan").room.root
    for gpus, measured in ((2, 34.017), (4, 18.869), (8, 11.998)):
        sets = room | {"engine.fused": True}
        trl = rooflm.train(
            "qwen3-4b", **asked | {"engine": "trl"}, gpus=gpus, batch=2 * gpus, micro_batch=2, seq=4096, sets=sets
        )
        assert float(trl.memory.total) / 2**30 == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(("master", "gelu", "score"), [(True, 16 - 4, 4.0), (False, 10 - 4, 0.0)])
def test_what_gelu_and_softmax_keep_as_plain_kernels(master: bool, gelu: int, score: float) -> None:
    """Bytes a value, as torch.autograd.graph.saved_tensors_hooks counts them of GELU written out between two products:
    10 in 16 bits, 16 under autocast, 4 as one kernel; and a score in fp32 beside its 16 bits under autocast."""

    def kept(**sets: object) -> float:
        given = {f"engine.{k}": v for k, v in ({"fused": False} | sets).items()} | {"training.master": master}
        run = rooflm.train("gpt2", gpu="h100", gpus=1, batch=1, seq=512, engine="fsdp", recompute="none", sets=given)
        return float(run.memory.parts["activations"])

    assert (kept(plain_gelu=True) - kept()) / (12 * 512 * 3072) == pytest.approx(gelu)
    wide = kept(flash=False, softmax="wide") - kept(flash=False, softmax="plain")
    assert wide / (12 * 12 * 512 * 512) == pytest.approx(4.0 - score)


def test_softmax_of_transformers_stands_in_fp32_beside_16_bits() -> None:
    def kept(wide: bool) -> float:
        sets = {"engine.flash": False, "engine.softmax": "wide" if wide else "plain"}
        run = rooflm.train("llama-2-7b", gpu="h100", gpus=1, batch=1, seq=512, engine="peft", lora_rank=8, sets=sets)
        return float(run.memory.parts["activations"])

    assert kept(wide=True) - kept(wide=False) == pytest.approx(32 * 32 * 512 * 512 * 4.0)
    assert rooflm.load_engine("peft").kernels.softmax == "wide"


def test_buffers_of_a_list_are_those_of_its_values() -> None:
    asked: dict[str, Any] = {"gpu": "h100", "gpus": 2, "batch": 2, "engine": "deepspeed", "zero": 3}
    both = rooflm.train("llama-2-7b", **asked, sets={"engine.live": [0, 1e9]}).memory_bytes.values
    each = [rooflm.train("llama-2-7b", **asked, sets={"engine.live": n}).memory.total for n in (0, 1e9)]
    assert both.tolist() == pytest.approx([float(n) for n in each], rel=1e-12)
    whole = rooflm.train("llama-2-7b", **asked | {"engine": "megatron-2021"}, sets={"engine.live": 1e9})  # no buckets
    assert float(whole.memory.total) < 1e12


def test_gathered_keys_stand_when_the_feed_forward_is_gone() -> None:
    """2^20 tokens over eight H100 hold 56.2 GB in Qwen3-8B, 20.8 in 0.6B (TRL, pull request 6845; Accelerate, 4175)."""

    def peak(model: str, **sets: Any) -> float:
        shape: Any = {"gpus": 8, "cp": 8, "batch": 1, "seq": 2**20, "zero": 3, "recompute": "full"}
        said = {"engine.torch_context": True, "engine.fragmentation": 1, "engine.logit_bytes": 0.1, **sets}
        said |= {"engine.fused": False, "training.offload_activations": 1, "engine.context": 0, "engine.workspace": 0}
        return float(rooflm.train(model, gpu="h100", engine="fsdp", sets=said, **shape).memory.total)

    alone = {"engine.torch_context": False}
    # keys and values whole (8 x 2), as made (2) and in fp32 (3 x 4), and queries' 2 + 4, where a feed-forward of 3,072
    # values had 8 bytes of each, and 4 of two products' gradients
    keys, gone = 2048 * (8 * 2 + 2 + 3 * 4 + 2 + 4), 3072 * (8 + 4)
    assert peak("qwen3-0.6b") - peak("qwen3-0.6b", **alone) == pytest.approx(2**17 * (keys - gone), rel=0.01)
    assert peak("qwen3-8b") == peak("qwen3-8b", **alone)  # its feed-forward is the wider
    assert peak("qwen3-8b", **{"engine.root": False}) == pytest.approx(56.2e9, rel=0.15)
    assert peak("qwen3-0.6b") == pytest.approx(20.8e9, rel=0.15)
    assert peak("qwen3-0.6b", **{"engine.ring": True}) == peak("qwen3-0.6b", **alone)


def test_gradients_that_wait_stand_whole() -> None:
    """FSDP's no_sync: whole on each rank where micro-batches add up, reduced once a step; a single one is as ever."""

    def run(batch: int, waits: int) -> Any:
        shape: Any = {"gpus": 8, "batch": batch, "micro_batch": 1, "seq": 1024, "recompute": "full"}
        said = {"engine.unsynced": waits, "engine.fragmentation": 1}
        return rooflm.train("llama-3-8b", gpu="h100", engine="fsdp", sets=said, **shape)

    waiting, reduced = run(32, 2), run(32, 0)
    assert waiting.memory.parts["gradients"] == pytest.approx(2 * 8.03e9, rel=0.01)
    assert 3 * reduced.memory.parts["gradients"] < waiting.memory.parts["gradients"]
    assert 4 * waiting.comm_bytes["dp_reduce_scatter"] == pytest.approx(reduced.comm_bytes["dp_reduce_scatter"])
    assert float(waiting.step_time) < float(reduced.step_time)
    assert run(8, 2).memory.total == run(8, 0).memory.total


@pytest.mark.parametrize("batch", [32, 64, 256])
def test_gradients_that_wait_cost_no_time(batch: int) -> None:
    """Two nodes, whose gathers take about a backward pass each: one micro-batch to eight."""
    asked: Any = {"gpu": "b200", "gpus": 16, "micro_batch": 2, "seq": 2048, "recompute": "full", "batch": batch}
    waits, reduces = (
        float(rooflm.train("llama-3-8b", engine="fsdp", sets={"engine.unsynced": n}, **asked).step_time) for n in (2, 0)
    )
    assert waits <= reduces * (1 + 1e-9)


def test_what_experts_return_is_kept_to_be_weighed() -> None:
    """Megatron-Core weighs before their last product: 2 bytes a value of each pair less, of eight pairs a token."""

    def run(*, inside: bool) -> float:
        said = {"engine.weighed_inside": inside, "engine.fragmentation": 1}
        shape: Any = {"gpus": 8, "ep": 8, "batch": 8, "micro_batch": 1, "seq": 4096, "recompute": "none"}
        got = rooflm.train("qwen3-30b-a3b", gpu="h200", engine="megatron", sets=said, **shape)
        return float(got.memory.parts["activations"])

    assert run(inside=False) - run(inside=True) == pytest.approx(48 * 4096 * 8 * 2048 * 2)


def test_what_experts_keep_has_more_room_in_graphs_of_whole_steps() -> None:
    """Of every pair of token and expert; a dense model, and graphs of parts of a step, take what they did."""

    def held(model: str, **engine: float) -> float:
        asked: Any = {"gpu": "gb300", "gpus": 8, "ep": 8 if "a3b" in model else 1, "batch": 8, "seq": 4096}
        sets = {"engine.fragmentation": 1.0} | {f"engine.{field}": value for field, value in engine.items()}
        return float(rooflm.train(model, engine="megatron", **asked, sets=sets).memory.parts["activations"])

    parts, whole, even = (held("qwen3-30b-a3b", graphed=g, stash=s) for g, s in ((0.5, 1.2), (1, 1.2), (1, 1)))
    pair = (2048 + 3 * 768) * 2  # what it reads, gate and up, and what the last product reads, at 16 bits
    assert parts == even and held("qwen3-8b", graphed=1) == held("qwen3-8b", graphed=0)
    assert whole - even == pytest.approx(0.2 * 48 * 4096 * 8 * pair)
