"""AMD Instinct: whose measured kernels run there, in which engine and release, and what generations make of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from tables import by_rates

from rooflm import infer
from rooflm.asked.answers.bands import standing_in
from rooflm.asked.assumed import build_for
from rooflm.asked.build_inference import build_inference
from rooflm.errors import RooflmError
from rooflm.graph.ops import Comm, distinct_experts
from rooflm.kernels import gemm, moe
from rooflm.kernels.collectives import fitted
from rooflm.kernels.constants import lookup
from rooflm.kernels.derating import derating
from rooflm.kernels.expert_kernels import choices
from rooflm.kernels.gemm import GemmConstants
from rooflm.kernels.moe import Routing
from rooflm.kernels.products import has_shape
from rooflm.kernels.roofline import time_comms
from rooflm.readers.devices import load_cluster, load_device
from rooflm.readers.engines import load_engine
from rooflm_fit.collectives import time
from rooflm_fit.instinct import triton_four

gemm_time, moe_time = by_rates(gemm.gemm_time), by_rates(moe.moe_time)
GENERATIONS = ("mi300x", "mi325x", "mi350x", "mi355x")


def tpot(model: str, gpu: str, batch: int = 16, **given: Any) -> float:
    return float(infer(model, gpu=gpu, batch=batch, prompt=1024, output=256, **given).tpot)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("generation", ["cdna3", "cdna4"])
@pytest.mark.parametrize("family", ["gemm", "moe"])
def test_engines_that_serve_take_the_sets_of_aiter(engine: str, generation: str, family: str) -> None:
    assert lookup(family, "", generation, engine, "fp8_block").row.architecture == generation


@pytest.mark.parametrize(("family", "dtype"), [("gemm", "bf16"), ("moe", "bf16")])
def test_frameworks_keep_the_common_ones(family: str, dtype: str) -> None:
    before, now = (lookup(family, "", kind, "torch", dtype).row for kind in ("no-such-generation", "cdna4"))
    assert before.constants == now.constants


def test_an_engine_takes_its_build_for_rocm() -> None:
    assert load_device("mi300x").software == "rocm"
    assert build_for("vllm", "rocm") == "vllm-rocm"
    assert load_engine("vllm-rocm").host.gap > load_engine("vllm").host.gap


def test_products_of_blocks_by_release_of_sglang_on_cdna3() -> None:
    """aiter's own until 0.5.5; then Triton's default configuration; from 0.5.10 shapes of DeepSeek's are tuned."""
    given = {"tp": 8, "quant": "fp8-block"}
    own, untuned, tuned = (
        tpot("deepseek-v3", "mi300x", engine=name, **given) for name in ("sglang-0.5.5", "sglang", "sglang-0.5.10")
    )
    assert untuned > 1.3 * own
    assert own == pytest.approx(tuned, rel=0.05)
    later = [
        tpot("deepseek-v3", "mi355x", engine=name, **given) for name in ("sglang-0.5.5", "sglang", "sglang-0.5.10")
    ]
    assert later == pytest.approx([later[0]] * 3, rel=1e-3)  # CDNA4: tuned from the start


def test_triton_on_cdna3_takes_a_time_of_its_own() -> None:
    """ROCm/aiter pull request 1930: DeepSeek-R1 on eight MI300X, 4 clients: 28.8 ms, 22.1 with one shape tuned."""
    given = {"tp": 8, "quant": "fp8-block-kv8", "batch": 4}
    assert 1e3 * tpot("deepseek-v3", "mi300x", engine="sglang", **given) == pytest.approx(28.76, rel=0.15)


def test_graphs_hold_blocks_of_the_longest_sequence_since_0_11() -> None:
    """vLLM 0.11.0, release notes: FULL_AND_PIECEWISE. A block of 256 tokens, sequence and layer takes 0.2 ns."""
    given = {"model": "llama-3.1-70b", "gpu": "mi300x", "tp": 8, "quant": "fp8", "batch": 128}
    told = {"sets": {"engine.graph_length": 8192}}
    before, since = (
        tpot(**given, engine=name) - tpot(**given, engine=name, **told) for name in ("vllm 0.10.2", "vllm 0.11.1")
    )
    assert before == 0
    blocks = 80 * 128 * (131072 - 8192) / 256
    assert (
        blocks * 0.2e-9 < since < 1.3 * blocks * 0.2e-9
    )  # with what kernels take in the engine over what they do alone


def test_sums_of_2024_over_xgmi_have_no_floor_of_nvidias() -> None:
    old, new = (load_engine(name).factors.collective_floor for name in ("vllm-2024-11-rocm", "vllm-rocm"))
    assert old == new == 1 < load_engine("vllm-2024-11").factors.collective_floor


def product(m: float, n: float, k: float, kernels: str, gpu: str = "mi300x", dtype: str = "fp8_block") -> float:
    """Seconds of a product in fp8 by the kernels of a library, as the sets are fitted."""
    device = load_device(gpu)
    reached = derating(device, "")
    constants = GemmConstants(**lookup("gemm", "", device.kernel_generation, kernels, dtype).row.constants)
    return float(gemm_time(m, n, k, weight_bytes=1.0, act_bytes=1.0, out_bytes=2.0, c=constants, sms=device.sms,
                           peak=device.peak["fp8"] * reached.compute,
                           bandwidth=device.dram.bandwidth * reached.bandwidth))  # fmt: skip


def test_products_with_a_scale_a_tensor_are_those_of_llama_on_cdna3() -> None:
    """ROCm/aiter fbb52dd, a8w8_tuned_gemm.csv: us of Llama's shapes on eight MI300X, of 1 to 256 rows."""
    for n, k, measured in (
        (7168, 8192, ((1, 26.4), (64, 28.9), (128, 37.6), (256, 59.3))),
        (13312, 16384, ((1, 71.8), (64, 95.5), (128, 124.1), (256, 177.7))),
    ):
        for m, us in measured:
            assert product(m, n, k, "vllm", dtype="fp8") == pytest.approx(us * 1e-6, rel=0.08)
            assert product(m, n, k, "vllm", dtype="fp8") != product(m, n, k, "torch", dtype="fp8")


def test_no_kernel_that_quantises_by_groups_before_a_scale_a_tensor() -> None:
    """Inductor writes the operand in norms and activations; a block's is quantised by a kernel of its own."""
    given = {"model": "llama-3.1-70b", "gpu": "mi300x", "tp": 8, "engine": "vllm-0.9.2-rocm", "batch": 1}
    slower = {"sets": {"engine.quantise": 20e-6}}
    assert tpot(**given, quant="fp8", **slower) == tpot(**given, quant="fp8")
    layers = 80 * 4  # products
    gap = tpot(**given, quant="fp8-block", **slower) - tpot(**given, quant="fp8-block")
    assert gap == pytest.approx(layers * 11.2e-6 * 0.95, rel=0.01)  # gemm_factor of products in the engine


@pytest.mark.parametrize(
    ("shape", "measured"),
    [((1, 3072, 6144), 12.2), ((1, 6144, 2048), 8.4), ((16, 25600, 5120), 36.6), ((48, 8192, 5120), 24.5)],
)
def test_tuned_products_of_few_rows_take_what_the_tuner_measured(shape: tuple[int, int, int], measured: float) -> None:
    """aiter/configs, a8w8_blockscale_tuned_gemm_*.csv, cu_num 304. A fit in which prompts outnumber steps a hundred to
    one had 23.5 us for the first."""
    assert 1e6 * product(*shape, "vllm") == pytest.approx(measured, rel=0.4)


def test_what_aiter_has_not_tuned_runs_one_kernel_whatever_the_rows() -> None:
    """vllm-project/vllm pull request 56812 saw it stay flat from 512 rows on (418 TFLOP/s on an MI355X); tuned kernels
    reach 800 on an MI300X."""
    rates = [2 * m * 34816 * 5120 / product(m, 34816, 5120, "ck") / 1e12 for m in (2048, 8192, 32768)]
    assert rates == pytest.approx([rates[0]] * 3, rel=0.03)
    assert 250 < rates[0] < 350
    for n, k in ((2112, 7168), (7168, 2048), (34816, 5120)):
        assert product(4096, n, k, "ck") > 1.5 * product(4096, n, k, "vllm")


def test_untuned_products_and_experts_slow_prompts_of_vllm_on_cdna3_alone() -> None:
    """Qwen3-14B on one MI325X, 600 prompts of 2,048 tokens: 4.82 a second in all (pull request 56812)."""
    given = {"batch": 4, "prompt": 2048, "output": 2, "quant": "fp8-block"}
    now, tuned = (
        float(infer("qwen3-14b", gpu="mi325x", engine="vllm", sets=sets, **given).ttft)
        for sets in ({}, {"engine.untuned": ""})
    )
    assert now > 1.5 * tuned
    assert 4 / now == pytest.approx(4.82, rel=0.3)
    later = [
        float(infer("qwen3-14b", gpu="mi355x", engine="vllm", sets=sets, **given).ttft)
        for sets in ({}, {"engine.untuned": ""})
    ]
    assert later[0] == later[1]


def test_experts_that_aiter_has_not_tuned_are_slower_for_prompts_alone() -> None:
    """ROCm/aiter pull request 4261: 1.56 times in the mean of 2,048 to 32,768 tokens, up to 1.8."""
    times = []
    for sets in ({"engine.experts": "1stage"}, {"engine.experts": "aiter"}):
        given = {"gpu": "mi300x", "engine": "vllm", "quant": "fp8-block", "batch": 1, "prompt": 8192, "output": 8}
        e = infer("qwen3.5-122b-a10b", sets=sets, **given)
        times.append((float(e.prefill_parts["moe"]), float(e.decode_parts["moe"])))
    assert 1.2 < times[0][0] / times[1][0] < 1.8
    assert times[0][1] == pytest.approx(times[1][1], rel=0.02)


def test_experts_of_four_bits_in_vllm_on_cdna3_are_slower_than_elsewhere() -> None:
    """vllm-project/vllm pull request 55934: gpt-oss-120b twice as slow on triton_kernels as on AITER's experts; ATOM
    has the latter."""
    given: dict[str, Any] = {"quant": "mxfp4", "batch": 1}
    times = {
        engine: tpot("gpt-oss-20b", "mi300x", engine=engine, **given) for engine in ("vllm-0.9.2-rocm", "vllm", "atom")
    }
    aiter = tpot("gpt-oss-20b", "mi300x", engine="vllm", sets={"engine.experts": "1stage"}, **given)
    assert 1.3 < times["vllm"] / aiter < 2.5
    assert times["vllm-0.9.2-rocm"] > 1.3 * aiter
    assert times["atom"] < 1.1 * aiter
    others = [tpot("gpt-oss-20b", "mi355x", engine="vllm", sets=s, **given) for s in ({}, {"engine.experts": "1stage"})]
    assert others[0] == others[1]


def test_the_set_by_hand_is_what_its_fit_writes() -> None:
    row, named = triton_four(), lookup("moe", "", "cdna3", "triton", "mxfp4", "triton").row
    assert (row.constants, row.family) == (named.constants, named.family)
    assert row.mape_in < 1.0


def test_shapes_are_pairs() -> None:
    assert has_shape(np.array([[2112.0], [2112.0]]), np.array([[7168.0], [7168.0]]), "2112x7168").all()
    assert not has_shape(np.array([7168.0]), np.array([2112.0]), "2112x7168").any()


def test_two_ranks_have_one_link_of_seven() -> None:
    """ROCm/aiter pull request 801: two MI300X reduce 16 MiB in 356 us, four in 230 us."""
    link, c = load_cluster("mi300x-box").tiers[0], fitted("all_reduce", "mi300x", "cdna3", "vllm", "xgmi")
    two, four = (
        float(time("all_reduce", 2.0**24, n, bandwidth=link.bandwidth, latency=link.latency, c=c)) for n in (2, 4)
    )
    assert two == pytest.approx(356e-6, rel=0.25)
    assert four == pytest.approx(230e-6, rel=0.25)


def test_amds_checkpoints_in_4_bits_keep_their_cache_in_16() -> None:
    found = infer("amd/DeepSeek-R1-0528-MXFP4", gpu="mi355x", tp=8, engine="vllm", batch=4)
    assert (found.scenario.quant.weight_bits, found.scenario.quant.kv_bits) == (4, 16)


@pytest.mark.parametrize(
    ("model", "quant", "tp"),
    [
        ("deepseek-v3", "fp8-block", 8), ("gpt-oss-120b", "mxfp4", 1), ("llama-3.1-70b", "bf16", 4),
        ("llama-3.1-70b", "fp8", 4), ("qwen3-235b-a22b", "fp8", 8), ("glm-4.5", "fp8", 8),
        ("qwen3-30b-a3b", "fp8", 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_next_card_is_never_slower(model: str, quant: str, tp: int, engine: str) -> None:
    taken = [tpot(model, gpu, engine=engine, quant=quant, tp=tp) for gpu in GENERATIONS]
    assert taken == sorted(taken, reverse=True)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ("tuned", "engine.tuned is '7x', but it must be shapes such as '2112x7168 7168x2048'"),
        ("pass_rows", "engine.pass_rows is '7x', but it must be numbers above 0 by name such as 'gptq:8 int4:2'"),
        ("untuned", "engine.untuned is '7x': it must be one of none, ck, triton, flashinfer"),
    ],
)
@pytest.mark.parametrize("model", ["deepseek-v3", "llama-3.1-8b"])
def test_tuned_products_are_checked_when_they_are_read(told: str, sentence: str, model: str) -> None:
    with pytest.raises(RooflmError, match=sentence):
        infer(model, gpu="mi300x", gpus=8, engine="sglang", sets={f"engine.{told}": "7x"})


@pytest.mark.parametrize(
    ("told", "value", "sentence"),
    [
        ("dots_times", "q6_k:0", "engine.dots_times is 'q6_k:0', but it must be numbers above 0 by name"),
        ("dots_times", "cortex-b76.q6_k:2", "engine.dots_times is 'cortex-b76': did you mean 'cortex-a76'"),
        ("unpacked", "blackwel-rtx.q3_k_m:12", "engine.unpacked is 'blackwel-rtx': did you mean 'blackwell-rtx'"),
        ("integers_on", "x87", "engine.integers_on is 'x87': did you mean 'x86'"),
        ("first_on", "vollta", "engine.first_on is 'vollta': did you mean 'volta'"),
    ],
)
def test_words_of_generations_are_checked(told: str, value: str, sentence: str) -> None:
    with pytest.raises(RooflmError, match=sentence):
        infer("llama-3.2-1b", gpu="raspberry-pi-5-8gb", engine="llama.cpp", sets={f"engine.{told}": value})


def test_a_card_whose_kernels_were_measured_is_not_told_otherwise() -> None:
    told = [standing_in(build_inference(model="llama-3.1-8b", gpu=g, quant="fp8").scenario) for g in GENERATIONS]
    assert not told[0] and not told[3]
    assert told[2] == "constants of mi355x: none of mi350x was measured"


@pytest.mark.parametrize(
    ("ranks", "mib", "microseconds"),
    [(2, 1, 23.08), (2, 4, 41.37), (2, 16, 132.14), (2, 64, 459.58), (4, 2, 28.49), (4, 4, 37.49), (4, 8, 64.23)],
)
def test_a_quick_all_reduce_takes_as_long_as_its_authors_measured(ranks: int, mib: int, microseconds: float) -> None:
    """INT4 on MI300X: ROCm/aiter pull request 801 (two ranks), sgl-project/sglang 6619 (four); nothing was fitted."""
    given = {"gpu": "mi300x", "tp": ranks, "engine": "vllm"}
    s = build_inference(
        "llama-3.1-70b", **given, sets={"engine.reduce_bits": 4.5, "engine.collective_factor": 1.0}
    ).scenario
    comm = Comm("", "", "all_reduce", 1, float(mib << 20), float(ranks), 1.0)
    seconds = time_comms([comm], s)[0].time
    assert float(seconds) == pytest.approx(microseconds * 1e-6, rel=0.17)


def test_quick_reduce_narrows_activations_within_a_node_alone() -> None:
    """Not gradients, nor what leaves the node; its own kernels take as long in every engine, and bytes follow."""
    sets = {"engine.reduce_bits": 4.5}
    s = build_inference("llama-3.1-70b", gpu="mi300x", gpus=16, tp=16, engine="vllm", sets=sets).scenario
    inside = Comm("", "", "all_reduce", 1, float(64 << 20), 4.0, 1.0)
    others = [inside._replace(group="dp"), inside._replace(ranks=16.0), inside._replace(stride=4.0)]
    quick, *rest = time_comms([inside, *others], s)
    assert quick.node.bytes == inside.bytes * 4.5 / 16
    assert quick.time < 0.5 * rest[0].time
    assert [t.node for t in rest] == others


def test_quick_reduce_helps_prompts_on_few_cards_and_never_harms() -> None:
    plain, quick = (
        infer("qwen3-235b-a22b", gpu="mi355x", tp=4, prompt=8192, output=2, engine="atom", sets=given)
        for given in ({}, {"engine.reduce_bits": 4.5})
    )
    assert float(quick.ttft) < 0.85 * float(plain.ttft)
    assert float(quick.tpot) == pytest.approx(float(plain.tpot), rel=1e-6)  # a token's message is too small


@pytest.mark.parametrize("engine", ["vllm-rocm", "sglang-0.5.5-rocm", "sglang-rocm", "sglang-0.5.10-rocm"])
def test_kernels_wait_half_as_long_for_each_other_on_cdna4(engine: str) -> None:
    gaps = [
        build_inference("qwen3-8b", gpu=card, engine=engine).scenario.engine.host.gap for card in ("mi300x", "mi355x")
    ]
    assert gaps == [pytest.approx(1.1e-6), pytest.approx(0.55e-6)]


def test_blocks_of_a_graph_beyond_a_sequence_take_time() -> None:
    def step(model: str = "ministral-3-14b", engine: str = "sglang-rocm", batch: int = 64, **told: object) -> float:
        given = {f"engine.{k}": v for k, v in told.items()}
        return tpot(model, "mi300x", batch, engine=engine, sets=given)

    told = step(graph_length=8192)  # 32 blocks a head and sequence, where the model's longest context has 1,024
    assert step() > 1.25 * told > 1.25 * step(empty_block=0)
    more = [step(batch=b) - step(batch=b, empty_block=0) for b in (16, 64)]
    assert more[1] == pytest.approx(4 * more[0], rel=0.01)
    assert step(engine="atom") == step(engine="atom", graph_length=8192)  # kernels of its own


def test_windows_have_other_kernels() -> None:
    windowed, plain = "mistral-7b-v0.1", "mistral-7b-v0.3"
    long, short = ({"engine.graph_length": n} for n in (32768, 2048))
    steps = [tpot(m, "mi300x", 64, engine="sglang-rocm", sets=n) for m in (windowed, plain) for n in (long, short)]
    assert steps[0] == steps[1] and steps[2] > steps[3]


def test_a_kernel_quantises_what_aiters_products_take() -> None:
    """aiter's tuner times a product alone, whose operand vLLM quantises in a kernel before it and ATOM in the norm: as
    long as said, and three bytes a value; products of 16 bits and those of NVIDIA's tables have nothing to add."""
    told = {"engine.quantise": 0.0}
    for engine, a_layer in (("vllm", 1), ("sglang", 2)):  # vLLM's norms quantise for Q, K and V
        each = load_engine(f"{engine}-rocm").kernels.quantise
        for quant, products in (("fp8-block", a_layer * 94), ("bf16", 0)):
            own, without = (
                tpot("qwen3-235b-a22b", "mi355x", engine=engine, gpus=8, tp=8, quant=quant, sets=s) for s in ({}, told)
            )
            assert own - without == pytest.approx(products * each, rel=0.05)
    assert load_engine("atom").kernels.quantise == 0.0


def test_norms_and_activations_quantise_blocks_in_later_releases() -> None:
    """vLLM's pull requests 41825 and 42864, of fp8 blocks alone; an activation's by its pass before them."""
    given = {"model": "deepseek-r1", "gpu": "mi355x", "batch": 1, "gpus": 8, "tp": 8}
    kept = {"engine.quantise": 0.0}
    counts = {"fp8-block": (3 * 61 + 61, 61 + 58), "w4a4g32": (5 * 61, 5 * 61)}  # in all; out and shared experts' first
    for quant, products in counts.items():
        for engine, count in zip(("vllm-0.14-rocm", "vllm-rocm"), products, strict=True):
            gap = tpot(**given, quant=quant, engine=engine) - tpot(**given, quant=quant, engine=engine, sets=kept)
            assert gap == pytest.approx(count * 8.8e-6 * 0.95, rel=0.02), (quant, engine)  # gemm_factor, as above


def test_one_stream_on_hip() -> None:
    """vLLM's pull request 30085: shared experts beside the others on CUDA alone; ATOM has a second stream."""
    assert load_engine("vllm").kernels.shared_aside > 0 < load_engine("atom").kernels.shared_aside
    assert not any(load_engine(f"vllm-{at}rocm").kernels.shared_aside for at in ("0.14-", "0.20-", "", "0.28-"))


@pytest.mark.parametrize(("tokens", "us"), [(1, 212), (2, 241), (4, 298), (8, 415)])
def test_integer_experts_by_triton_go_through_k_step_by_step(tokens: int, us: float) -> None:
    """385 experts of 7,168 x 256 on MI355X (sgl-project/sglang pull request 22208); aiter's would take a tenth."""
    device = load_device("mi355x")
    ((own,), (before,)) = (
        choices("mi355x", "cdna4", "sglang", "int4_wo", family=load_engine(name).kernels.experts)
        for name in ("sglang-0.5.10-rocm", "sglang-rocm")
    )
    (atoms,) = choices("mi355x", "cdna4", "vllm", "int4_wo", family=load_engine("atom").kernels.experts)
    routing = Routing(9.0 * tokens, 1.0 + float(distinct_experts(384, 8, tokens)), 1.0)
    reached = derating(device)
    each = partial(
        moe_time, tokens, 7168, 256, routing, top_k=9, experts=385, sms=device.sms, weight_bytes=0.5625,
        peak=device.peak["bf16"] * reached.compute, bandwidth=device.dram.bandwidth * reached.bandwidth,
    )  # fmt: skip
    assert each(c=own.constants) * 1e6 == pytest.approx(us, rel=0.3)
    assert each(c=atoms.constants) < 0.3 * each(c=own.constants)
    assert each(c=before.constants) == pytest.approx(2.124 / 1.287 * each(c=own.constants), rel=0.15)  # 20023
