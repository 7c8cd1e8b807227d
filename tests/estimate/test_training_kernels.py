"""What a step makes of kernels: a card's power, devices of few big cores, and what unfused kernels keep."""

from itertools import pairwise
from typing import Any

import pytest

import rooflm
from rooflm.estimate.training_step import of_phase
from rooflm.graph.ops import PREFILL_ATTENTION
from rooflm.readers.engines import load_engine


def step(**arguments: object) -> "rooflm.TrainingEstimate":
    given = {"gpus": 8, "batch": 8, "seq": 2048, "micro_batch": 1, "engine": "fsdp"} | arguments
    return rooflm.train("llama-3.1-8b", **given)  # type: ignore[arg-type]


def test_products_of_a_power_bound_card_take_the_cube_root_of_its_power() -> None:
    paths = ({"cluster.device.tdp": watts, "engine.logit_bytes": 4.0} for watts in (1200.0, 600.0))
    full, half = (step(gpu="gb200", sets=sets).detail["forward"]["logits"] for sets in paths)
    assert float(half / full) == pytest.approx(2 ** (1 / 3), rel=0.02)


@pytest.mark.parametrize("gpu", ["h100", "gh200-96gb", "b200", "gb200", "gb300", "mi300x", "mi355x"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_no_step_gets_slower_by_more_peak(gpu: str, dtype: str) -> None:
    """Power is what products draw, not what the datasheet says: where operands bind, a higher peak costs nothing."""
    had = rooflm.load_device(gpu).peak
    steps = [
        float(step(gpu=gpu, dtype=dtype, engine="megatron", sets={
            f"cluster.device.peak.{name}": k * float(had[name]) for name in ("bf16", "fp8")}).step_time)
        for k in (0.9, 1.0, 1.2, 1.6)
    ]  # fmt: skip
    assert all(more <= less * 1.0001 for less, more in pairwise(steps)), steps


def test_products_that_wait_for_memory_are_not_power_bound() -> None:
    """Half of the power slows large products down by up to its cube root, a product of few rows not at all."""

    def forward(**asked: object) -> float:
        return float(step(gpu="gb200", engine="megatron", **asked).detail["forward"]["logits"])

    sets = {"cluster.device.tdp": 600.0}
    assert forward(sets=sets) > 1.15 * forward()
    assert forward(sets=sets, seq=16, batch=8) == pytest.approx(forward(seq=16, batch=8))


def test_attention_of_few_big_cores_reaches_what_gpus_reach() -> None:
    found = step(gpu="tpu-v5e", gpus=256, batch=256, engine="pax", zero=3)
    core = next(t for t in found.timed["forward", "layers"] if getattr(t.node, "kind", "") == "attention")
    assert 0.3 < float(core.roof / core.time) <= 1


def test_how_attention_runs_on_big_cores_is_the_cards_to_say() -> None:
    def core(**sets: float) -> float:
        found = step(gpu="tpu-v5e", gpus=256, batch=256, engine="pax", zero=3, sets=sets)
        return float(
            next(t for t in found.timed["forward", "layers"] if getattr(t.node, "kind", "") == "attention").time
        )

    assert core(**{"cluster.device.attention_share": 0.0}) > 1.1 * core()
    few = {"cluster.device.sms": 8.0}
    assert step(gpu="h100", sets=few).step_time > step(gpu="h100").step_time


def test_a_gate_of_its_own_kernel_is_kept_beside_its_input() -> None:
    fused, apart = (
        step(
            gpu="h100-sxm-80gb", recompute="none", sets={"engine.fused": flag, "engine.norm_kernel": True}
        ).memory.parts["activations"]
        for flag in (True, False)
    )
    assert float(apart - fused) == pytest.approx(32 * 2048 * 14336 * 2)


def test_a_norm_of_one_kernel_saves_traffic_that_every_rank_of_a_tensor_group_has() -> None:
    def norms(**sets: bool) -> float:
        found = step(gpu="h100-sxm-80gb", tp=8, gpus=8, engine="nanotron", sp=False, zero=0, sets=sets)
        timed = found.timed["forward", "layers"]
        return float(sum(t.time for t in timed if getattr(t.node, "of", "") == "norm" and t.node.name != "residual"))

    chain = norms(**{"engine.norm_kernel": False})
    assert 4.0 < chain / norms() < 36 / 4
    assert norms(**{"engine.fused": True, "engine.norm_kernel": False}) > norms()  # with the residual add in it


def test_attention_that_nobody_measured_on_a_generation_is_cudnns() -> None:
    """PyTorch prefers cuDNN on Blackwell, from 2.9 on Hopper too: sharded training is no faster than Megatron there."""

    def core(gpu: str, engine: str) -> float:
        timed = of_phase(step(gpu=gpu, engine=engine, seq=65536).timed, "backward")
        return float(sum(t.total for t in timed if getattr(t.node, "kind", "") == "attention"))

    assert core("b200", "fsdp") == pytest.approx(core("b200", "megatron"))
    assert core("h100", "llm-foundry") > core("h100", "fsdp-2.8") > 1.3 * core("h100", "megatron")
    assert core("h100", "fsdp") == pytest.approx(core("h100", "megatron"))
    assert core("a100", "llm-foundry") > 1.4 * core("a100", "fsdp")


def test_a_compiled_step_has_no_host_a_layer_of_experts() -> None:
    """XLA launches a step as one program, however fast the device: 9 ms a layer would be most of a step on a TPU7x."""
    given = {"gpu": "tpu-v7x", "gpus": 16, "ep": 8, "batch": 64, "seq": 4096, "recompute": "full"}
    made = rooflm.train("qwen3-30b-a3b", engine="maxtext", **given)
    assert float(made.parts["host"]) < 0.05 * float(made.step_time) and float(made.mfu) > 0.2


def test_spreading_out_a_narrow_base_moves_its_bytes_alone_at_the_roof() -> None:
    """At a card's roof a frozen base of 4 bits costs its own bytes; the kernel that spreads it out reaches less."""
    asked = {"model": "llama-3.1-8b", "gpu": "a100", "gpus": 1, "batch": 1, "seq": 2048, "lora_rank": 8,
             "sets": {"engine.adapter_in": 0}}  # fmt: skip

    def step(mode: str, bits: int) -> float:
        return float(rooflm.train(**asked, base_bits=bits, efficiency=mode).step_time)  # type: ignore[arg-type]

    more = [step(mode, 4) - step(mode, 16) for mode in ("ideal", "calibrated")]
    moved = 2 * 6.98e9 * 2.5 / rooflm.load_device("a100").dram.bandwidth
    assert more[0] == pytest.approx(moved, rel=0.05)
    assert more[1] > 3 * more[0]


def test_an_attention_kernel_that_nobody_measured_says_what_stands_for_it() -> None:
    def said(gpu: str, kernel: str) -> bool:
        found = rooflm.train("llama-3-8b", gpu=gpu, gpus=8, batch=64, sets={"engine.attention_kernel": kernel})
        return any(f"attention kernel {kernel} was not measured" in line for line in found.assumed)

    assert said("b200", "fa1") and said("mi300x", "fa1")
    assert (
        not said("b200", "cudnn")
        and not said("mi300x", "fa2")
        and not said("mi300x", "cudnn")
        and not said("h100", "fa1")
    )


def test_layers_bound_by_the_host_take_what_the_engine_says_on_any_machine() -> None:
    """B300's hosts halve what servers launch; training on them asks for whole host times (docs/decisions/0272)."""
    given = {"gpus": 8, "tp": 8, "batch": 128, "engine": "megatron-bridge"}
    slow, fast = (rooflm.train("qwen3-8b", gpu=gpu, **given) for gpu in ("b200", "b300"))
    assert float(fast.step_time) == pytest.approx(float(slow.step_time), rel=0.05)


def test_plain_kernels_that_a_tensor_group_shares_wait_for_dtensors() -> None:
    """Qwen3-32B at TP 8, 2,048 tokens: 21 ms a layer (docs/decisions/0272)."""
    given: Any = {"gpu": "h100", "gpus": 8, "tp": 8, "batch": 1, "seq": 2048, "recompute": "full", "engine": "fsdp"}

    def host(**sets: Any) -> float:
        found = rooflm.train("qwen3-32b", **given, sets={"engine.fused": False, **sets})
        return float(found.parts["host"])

    assert host() > host(**{"engine.dtensor": 0}) + 0.2
    assert rooflm.load_engine("deepspeed").host.dtensor == 0 < rooflm.load_engine("torchtitan").host.dtensor


def test_routers_of_many_kernels_and_packed_documents_take_the_host_longer() -> None:
    given = {"gpu": "h100", "engine": "megatron-bridge", "gpus": 8, "ep": 8, "batch": 8, "seq": 64, "micro_batch": 1}

    def step(**sets: object) -> float:
        return float(rooflm.train("qwen3-30b-a3b", **given, sets={"engine.graphed": 0, **sets}).step_time)

    host = rooflm.load_engine("megatron-bridge").host
    plain = step()
    assert step(**{"engine.router_host": 0.004}) - plain == pytest.approx(48 * 0.004, rel=0.02)
    packed = step(**{"training.packed_mean": 32, "training.packed_square": 1024})
    assert packed - plain == pytest.approx(48 * host.packed_host, rel=0.05)


def named(name: str, place: str, **arguments: object) -> list[object]:
    """Kernels of this name in a place of a step."""
    timed = step(gpu="h100", **arguments).timed
    return [t for (phase, layers), found in timed.items() if layers == place for t in found if t.node.name == name]


def test_a_loss_whose_logits_stand_whole_in_fp32_is_a_chain_of_kernels() -> None:
    chain, fused = (
        sum(t.node.bytes for t in named("loss", "head", sets={"engine.logit_bytes": kept})) for kept in (12.0, 8.0)
    )
    assert chain / fused == pytest.approx(4.5, rel=0.05)


def test_megatrons_loss_is_a_chain_unless_its_script_says_otherwise() -> None:
    """model_parallel_config.py: cross_entropy_loss_fusion False; NeMo's and Megatron-Bridge's models have it True."""

    def moved(engine: str, **sets: object) -> float:
        asked = {f"engine.{name}": value for name, value in sets.items()}
        return sum(t.node.bytes for t in named("loss", "head", engine=engine, sets=asked))

    assert moved("megatron") / moved("megatron", fused_loss=True) == pytest.approx(4.5, rel=0.05)
    assert moved("nemo") == moved("megatron-bridge") == moved("megatron", fused_loss=True)


def test_fsdp2_copies_what_it_gathers_and_reduces() -> None:
    """Read and write of 16 bits in both passes under ZeRO 3, in none under ZeRO 1; gradients of 16 bits to fp32."""
    gathered = named("gather_copy", "layers", zero=3, sets={"engine.copies": True})
    assert len(gathered) == 2 and len(named("reduce_copy", "layers", zero=2, sets={"engine.copies": True})) == 1
    assert gathered[0].node.count * gathered[0].node.bytes == pytest.approx(2 * 2 * 6.98e9, rel=0.01)
    for kept in ({"zero": 1}, {"gpus": 1, "zero": 3}, {"engine": "llm-foundry", "zero": 3}):
        assert not sum(t.node.count * t.node.bytes for t in named("gather_copy", "layers", **kept))


def test_experts_without_kernels_for_routing_index_tensors_step_by_step() -> None:
    def seconds(**sets: float) -> float:
        given = {"gpu": "b200", "gpus": 8, "batch": 64, "micro_batch": 8, "seq": 8192, "engine": "torchtitan-2025"}
        return float(rooflm.train("qwen3-30b-a3b", **given, zero=3, recompute="selective", sets=sets).step_time)

    fused, indexed = seconds(**{"engine.route_copies": 0}), seconds()
    pairs = 65536 * 8 * 2048 * 48  # 32 bytes forward, again, and 2.8 times as many backward, for 12 each of three sorts
    bandwidth = 7.7e12 * load_engine("torchtitan").value("stream_share")
    assert indexed - fused == pytest.approx((32 * 4.8 - 12 * 3) * pairs / bandwidth, rel=0.05)


@pytest.mark.parametrize(("gpu", "slower"), [("b200", 1.4), ("h100", 1.0)])
def test_one_kernel_for_all_experts_takes_longer_on_blackwell(gpu: str, slower: float) -> None:
    """torch's grouped products, which one library holds; another's (none named) take as long as single ones."""

    def seconds(**sets: str) -> float:
        made = rooflm.train("qwen3-30b-a3b", gpu=gpu, gpus=8, batch=8, seq=4096, engine="torchtitan", sets=sets)
        timed = made.timed["forward", "layers"]
        return sum(float(t.time) for t in timed if t.node.name in {"experts_up", "experts_down"})

    assert seconds() == pytest.approx(slower * seconds(**{"engine.experts": ""}))


def test_exponentials_of_blackwell_ultra_take_half_the_time() -> None:
    def core(**sets: float) -> float:
        timed = step(gpu="b300", seq=8192, micro_batch=1, sets=sets).timed["forward", "layers"]
        return float(next(t.time for t in timed if getattr(t.node, "kind", "") == "attention"))

    assert core(**{"cluster.device.exponentials": 16.0}) > 1.15 * core()


def attention_core(model: str, gpu: str, kernel: str, engine: str) -> float:
    """What grows with the square of the length: seconds of a step of 32,768 tokens, less three times one of 16,384, and
    twice one of 8,192 more, so that what is constant or linear cancels."""
    steps = [
        rooflm.train(model, gpu=gpu, gpus=1, batch=1, seq=seq, dtype="bf16", engine=engine,
                     sets={"engine.attention_kernel": kernel}).step_time
        for seq in (32768, 16384, 8192)
    ]  # fmt: skip
    return float(steps[0]) - 3 * float(steps[1]) + 2 * float(steps[2])


def test_flash_attention_2_gains_nothing_of_blackwells_tensor_memory() -> None:
    """Azure measured it at 374 TFLOP/s on GB200, 328 on H100. PyTorch picks cuDNN on both from 2.9 on, before it
    FlashAttention 2, but where torchtitan asked for cuDNN on Blackwell; FlexAttention in Triton lies between."""
    kernels = ("cudnn", "fa2", "flex", "sdpa", "sdpa-2.8", "sdpa-blackwell")
    core = {(g, k): attention_core("llama-3-8b", g, k, "fsdp") for g in ("h200", "gb200") for k in kernels}
    assert core["gb200", "fa2"] > core["h200", "cudnn"]
    assert core["gb200", "sdpa"] == core["gb200", "cudnn"] < 0.5 * core["gb200", "fa2"]
    assert core["h200", "sdpa"] == core["h200", "cudnn"]
    assert core["h200", "sdpa-2.8"] == core["h200", "sdpa-blackwell"] == core["h200", "fa2"] < core["h200", "flex"]
    assert core["gb200", "sdpa-blackwell"] == core["gb200", "cudnn"] < core["gb200", "flex"] < core["gb200", "fa2"]
    assert core["gb200", "sdpa-2.8"] == core["gb200", "fa2"]


def test_attention_of_today_takes_what_cudnn_prints_of_its_kernels() -> None:
    """cudnn-frontend, benchmark/sdpa_benchmark_training, H200: causal, 64 heads over 8 of 128 values, 101.3 ms at
    32,768 tokens, 25.5 at 16,384 and 6.8 at 8,192; Transformer Engine's choice before mid 2025 took longer."""
    today, before = (attention_core("llama-3-70b", "h200", k, "megatron") / 80 for k in ("cudnn", "cudnn-2024"))
    assert today == pytest.approx(101.254e-3 - 3 * 25.533e-3 + 2 * 6.791e-3, rel=0.1)
    assert before > 1.5 * today


def test_latent_attention_takes_what_cudnn_prints_of_128_heads_of_192_and_128_values() -> None:
    """cudnn-frontend, H200: 4.28 + 16.16 ms at 8,192 tokens, 1.15 + 4.42 at 4,096: one sequence of 8,192 tokens less
    two of 4,096, where all else is alike."""
    one, two = (
        float(
            rooflm.train(
                "deepseek-v3", gpu="h200", gpus=1, dtype="bf16", batch=n, micro_batch=n, seq=8192 // n
            ).step_time
        )
        for n in (1, 2)
    )
    assert (one - two) / 61 == pytest.approx((4.278 + 16.162 - 2 * (1.148 + 4.424)) * 1e-3, rel=0.1)


def test_norms_of_queries_and_keys_are_kernels_and_keep_what_they_read() -> None:
    def of(flag: bool) -> "rooflm.TrainingEstimate":
        return step(gpu="h100-sxm-80gb", recompute="none", sets={"model.blocks.0.mixer.qk_norm": flag})

    plain, normed = of(False), of(True)
    assert float(normed.step_time) > float(plain.step_time)
    kept = float(normed.memory.parts["activations"] - plain.memory.parts["activations"])
    assert kept == pytest.approx(32 * 2048 * (32 + 8) * 128 * 2)


def test_logits_of_odd_rows_are_slow_where_no_framework_pads_them() -> None:
    def logits(engine: str, vocab: int) -> float:
        return float(step(gpu="a100-sxm-80gb", engine=engine, sets={"model.vocab": vocab}).components["logits"])

    assert logits("fsdp", 50257) > 1.4 * logits("fsdp", 50304)
    assert logits("megatron", 50257) == pytest.approx(logits("megatron", 50304), rel=0.01)


def test_adapters_of_32_bits_are_cast_and_the_host_launches_that() -> None:
    def host(**sets: bool) -> float:
        found = step(gpu="b200", engine="unsloth", recompute="full", lora_rank=16, sets=sets)
        return float(found.parts["host"])

    assert host() > host(**{"engine.adapter_wide": False})


def test_norms_of_queries_and_keys_run_on_the_kernels_of_all_norms() -> None:
    """Plain PyTorch's where a layer's norms are; one kernel where the engine brings one, or of layer norms."""

    def names(**sets: object) -> set[str]:
        given = {"model.blocks.0.mixer.qk_norm": True, "engine.fused": False} | sets
        found = step(gpu="h100-sxm-80gb", engine="nanotron", sets=given)
        nodes = [t.node for t in found.timed["forward", "layers"]]
        return {n.name for n in nodes if getattr(n, "kind", "") == "norm"}

    assert names(**{"engine.norm_kernel": False}) == {"plain_norm"}
    assert names() == {"norm", "qk_norm"}
    assert names(**{"engine.norm_kernel": False, "model.norm": "layer"}) == {"norm", "qk_norm"}


def test_autocast_casts_what_products_read_and_moves_norms_in_fp32() -> None:
    """Of a layer of Llama, bytes a value of the hidden states: norms 28 for 36, adds 10 for 6, five copies of 6; of
    weights 6 a parameter, both ways; backward each copy that another product's gradient joins moves 6 and 12."""

    def moved(**sets: object) -> dict[tuple[str, str], float]:
        found = step(gpu="a100", zero=0, engine="fsdp", sets={"engine.fused": False, "engine.merged": False, **sets})
        out: dict[tuple[str, str], float] = {}
        for phase in ("forward", "backward"):
            for node in [t.node for t in found.timed[phase, "layers"]]:
                out[phase, node.name] = out.get((phase, node.name), 0.0) + float(node.count * node.bytes)
        return out

    plain, cast = moved(**{"engine.autocast": False}), moved()
    values = 32 * 2048 * 4096
    wanted = {"plain_norm": 2 * 28, "residual": 2 * 10, "cast_in": 2 * 6, "cast_again": 3 * 6}
    assert {name: cast["forward", name] / values for name in wanted} == pytest.approx(wanted)
    assert plain["forward", "plain_norm"] == 2 * 36 * values
    assert plain["forward", "residual"] == 2 * 6 * values
    assert cast["backward", "cast_again_backward"] == 3 * cast["forward", "cast_again"]
    assert (
        cast["forward", "weight_cast"] == cast["backward", "weight_cast"] == pytest.approx(6 * 32 * 218.1e6, rel=1e-3)
    )
    assert not {"cast_in", "cast_again", "weight_cast"} & {name for _, name in plain}
    assert "cast_in" not in {name for _, name in moved(**{"training.master": False})}
    assert cast["forward", "cast_again"] > 0 == moved(**{"engine.merged": True})["forward", "cast_again"]


def attention_ms(seq: int, engine: str) -> float:
    """Milliseconds of attention, both ways, of each of 25 layers with a window of 1,024 and 16 heads of 256, on H200;
    the other five layers' come on top."""
    run = rooflm.train("gemma-4-26b-a4b", gpu="h200", gpus=1, batch=1, seq=seq, engine=engine, recompute="none")
    return 1e3 / 25 * sum(float(run.detail[phase]["attention"]) for phase in ("forward", "backward"))


def test_windows_are_whole_squares_to_pytorch_where_one_kernel_serves_all_layers() -> None:
    """72 and 2.25 ms a layer under a mask and by FlashAttention 2 (verl, pull request 7131: 8,192 tokens, H200)."""
    far, near = (attention_ms(seq, "peft") - attention_ms(seq, "axolotl") for seq in (8192, 1024))
    assert far == pytest.approx(72 - 2.25, rel=0.1)
    assert near == pytest.approx(0.0, abs=0.01)


def attention_tflops(
    heads: int, head_dim: int, batch: int, seq: int, gpu: str = "a100", **sets: object
) -> tuple[float, float]:
    """TFLOP/s of attention over whole squares, forward and backward (2.5 times the work)."""
    mixer = "model.blocks.0.mixer."
    shape = {mixer + "heads": heads, mixer + "kv_heads": heads, mixer + "head_dim": head_dim}
    given = {"gpus": 1, "batch": batch, "micro_batch": batch, "seq": seq, "engine": "fsdp", "recompute": "none"}
    run = rooflm.train("gpt2", gpu=gpu, sets={**shape, **{f"engine.{k}": v for k, v in sets.items()}}, **given)  # type: ignore[arg-type]
    seconds = dict.fromkeys(("forward", "dgrad"), 0.0)
    for t in (t for timed in run.timed.values() for t in timed if getattr(t.node, "kind", "") == "attention"):
        seconds[t.node.role] += float(t.total / t.node.count)
    flops = 4e-12 * batch * seq**2 * heads * head_dim
    return flops / seconds["forward"], flops / seconds["dgrad"]


@pytest.mark.parametrize(
    ("heads", "head_dim", "batch", "seq", "forward", "backward"),
    [(16, 128, 16, 1024, 103, None), (20, 128, 8, 2048, None, 85.4), (16, 256, 64, 1024, 88, None)],
)
def test_masks_are_whole_squares_at_the_speed_of_pytorchs_efficient_kernel(
    heads: int, head_dim: int, batch: int, seq: int, forward: float | None, backward: float | None
) -> None:
    """xformers, issue 712 and pull request 587 (forward); CUTLASS, pull request 992 (backward)."""
    reached = attention_tflops(heads, head_dim, batch, seq, masked=True)
    for predicted, measured in zip(reached, (forward, backward), strict=True):
        assert measured is None or predicted == pytest.approx(measured, rel=0.1)


def test_a_mask_costs_more_than_the_half_that_flash_kernels_leave_out_unless_the_engine_picks_its_own() -> None:
    """A flash kernel's causal pass has half the work and more than the efficient kernel's speed."""
    masked, plain, own = (
        attention_tflops(16, 64, 8, 4096, **sets)
        for sets in ({"masked": True}, {}, {"masked": True, "attention_kernel": "fa2"})
    )
    assert masked[0] < 0.5 * plain[0] and masked[1] < 0.5 * plain[1]
    assert own == attention_tflops(16, 64, 8, 4096, attention_kernel="fa2")


def test_cudnn_takes_masks_of_heads_up_to_128_where_it_comes_first() -> None:
    """PyTorch's order on Hopper: cuDNN from 2.9 on, before flash kernels, of which none takes a mask."""
    new, old = (
        [attention_tflops(16, d, 8, 4096, "h100", masked=True, attention_kernel=k)[0] for d in (64, 128, 256)]
        for k in ("sdpa", "sdpa-2.8")
    )
    assert new[0] > 2 * old[0] and new[1] > 2 * old[1] and new[2] == old[2] < old[1]


@pytest.mark.parametrize("engine", ["fsdp", "megatron", "unsloth", "peft"])
def test_heads_that_no_flash_kernel_takes_run_by_another(engine: str) -> None:
    """A width beyond 256 costs more than its work; a sweep over it says the same as each alone."""
    path = "model.blocks.0.mixer.head_dim"
    given = {"gpu": "h100", "gpus": 8, "batch": 8, "seq": 8192, "micro_batch": 1, "engine": engine}
    alone = [float(rooflm.train("llama-3.1-8b", sets={path: d}, **given).step_time) for d in (256, 264)]  # type: ignore[arg-type]
    assert alone[1] > 1.15 * alone[0]
    swept = rooflm.train("llama-3.1-8b", sets={path: [256, 264]}, **given)  # type: ignore[arg-type]
    assert [float(x) for x in swept.step_time_s] == alone


def test_plain_norms_of_gated_deltas_are_chains_as_all_others_are() -> None:
    """Qwen3.5-9B on eight B200 under FSDP2 took 0.605 s with plain norms, 0.486 with fused ones (transformers, pull
    requests 48692 and 48915); those of the gated deltas move 66 bytes a value, and 2.1 times that backward, for 6."""
    given = {"gpu": "b200", "gpus": 8, "batch": 64, "seq": 1024, "micro_batch": 8, "zero": 3, "engine": "peft"}
    plain, fused = (
        rooflm.train("qwen3.5-9b", sets={"engine.norm_kernel": kernel}, **given)  # type: ignore[arg-type]
        for kernel in (False, True)
    )
    assert float(plain.step_time) == pytest.approx(0.605, rel=0.1)
    assert float(plain.step_time / fused.step_time) == pytest.approx(0.605 / 0.486, rel=0.1)
    backward = float(plain.detail["backward"]["attention"] - fused.detail["backward"]["attention"])
    forward = float(plain.detail["forward"]["attention"] - fused.detail["forward"]["attention"])
    assert 2.0 < backward / forward < 2.4


def test_automodel_keeps_whole_logits_in_fp32_unless_told() -> None:
    """Llama 3.2 1B, eight sequences of 2,048, all recomputed: 33.06 GB (AutoModel, guides/gradient-checkpointing)."""
    state = {"training.master": False, "training.grad_bytes": 2}
    room = {"engine.context": 0, "engine.workspace": 0, "engine.fragmentation": 1}
    run = rooflm.train("llama-3.2-1b", gpu="h100", gpus=1, batch=8, seq=2048, micro_batch=8, recompute="full",
                       engine="nemo-automodel", optimizer="adam-bf16", sets=state | room)  # fmt: skip
    assert float(run.memory.total) == pytest.approx(33.06e9, rel=0.03)


def test_gradients_of_later_micro_batches_are_added_by_a_kernel_of_autograd() -> None:
    """Three values of 4 bytes a parameter, of nine in ten micro-batches; none of one, of shards, of Megatron's."""

    def added(**given: Any) -> float:
        run = {"gpu": "a100", "gpus": 1, "batch": 10, "seq": 1024, "micro_batch": 1, "recompute": "none", "zero": 0}
        groups = rooflm.train("gpt2", **(run | {"engine": "fsdp"} | given)).timed
        nodes = [t.node for t in groups["backward", "layers"] if t.node.name == "gradient_add"]
        return float(sum(n.bytes * n.count for n in nodes))

    assert added() == pytest.approx(0.9 * 12 * 124.4e6, rel=0.01)
    sharded = {"gpus": 2, "batch": 20, "zero": 3}
    assert [added(batch=1), added(**sharded), added(engine="megatron")] == [0, 0, 0]


def test_layers_left_uncompiled_stream_as_plain_kernels_do() -> None:
    """Kernels by torch.compile reach stream_share of the bandwidth, PyTorch's own plain_share."""
    given = {"gpu": "a100", "gpus": 8, "batch": 64, "seq": 4096, "engine": "torchtitan", "recompute": "none"}
    row = load_engine("torchtitan")
    assert row.value("plain_share") < row.value("stream_share")

    def step(**sets: object) -> float:
        return float(rooflm.train("llama-3.1-8b", **given, sets={f"engine.{k}": v for k, v in sets.items()}).step_time)

    assert step(plain_share=1.0) == step()
    alike = step(fused=False, stream_share=row.value("plain_share"))
    assert step(fused=False) == alike > step(fused=False, plain_share=1.0)


def test_streams_of_unified_memory_go_no_faster_than_its_copies() -> None:
    """GB10 copies at 218 of LPDDR5X's 273 GB/s (huggingface/kernels, pull request 283); HBM is not asked."""

    def reached(gpu: str) -> float:
        run = rooflm.train("gpt2", gpu=gpu, gpus=1, batch=64, seq=1024, micro_batch=64, engine="fsdp")
        t = next(t for t in run.timed["forward", "layers"] if getattr(t.node, "kind", "") == "activation")
        return float(t.node.bytes / (t.time * rooflm.load_device(gpu).dram.bandwidth))

    assert reached("gb10") == pytest.approx(0.80, rel=0.01)
    assert reached("a100") == pytest.approx(load_engine("fsdp").value("stream_share"), rel=0.02)


@pytest.mark.parametrize(("gpu", "forward", "backward"), [("mi300x", 0.53e15, 0.42e15), ("mi355x", 1.25e15, 1.02e15)])
def test_transformer_engine_on_instinct_runs_aiters_attention(gpu: str, forward: float, backward: float) -> None:
    """FLOP/s of a product over 4,096 and 8,192 causal tokens, as AITER prints them (docs/decisions/0425)."""
    for seq in (4096, 8192):
        timed = step(gpu=gpu, engine="megatron", seq=seq, micro_batch=32768 // seq, batch=8 * 32768 // seq).timed
        ahead, back = (
            32 * sum(t.time for t in timed[phase, "layers"] if t.node.kind in PREFILL_ATTENTION)  # type: ignore[union-attr]
            for phase in ("forward", "backward")
        )
        flops = 32 * 2 * 32768 * seq * 4096.0
        assert (flops / ahead, flops / back) == pytest.approx((forward, backward), rel=0.06)


def test_the_power_of_a_card_counts_once() -> None:
    """MI325X is MI300X's chip at 1,000 W for 750: its products gain the cube root of that, alone and in a step."""
    took = [step(gpu=gpu, engine="megatron").detail["forward"]["logits"] for gpu in ("mi300x", "mi325x")]
    assert float(took[0] / took[1]) == pytest.approx((1000 / 750) ** (1 / 3), rel=0.03)


def test_torch_multiplies_expert_by_expert_but_on_hopper_and_blackwell() -> None:
    """`_grouped_mm_fallback`: a product an expert of the rank, called from C++."""

    def taken(gpu: str, **sets: object) -> float:
        e = rooflm.train("qwen3-30b-a3b", gpu=gpu, gpus=8, batch=8, seq=2048, zero=3, engine="torchtitan", sets=sets)
        up = next(t for t in e.timed["forward", "layers"] if getattr(t.node, "name", "") == "experts_up")
        return float(up.total)

    launch = float(load_engine("torchtitan").host.expert_launch)
    apart = taken("a100-sxm-80gb") - taken("a100-sxm-80gb", **{"engine.grouped_on": ""})
    assert apart == pytest.approx(48 * 128 * launch)
    assert taken("h100") == taken("h100", **{"engine.grouped_on": ""})
