from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import by_rates, load_constants

from rooflm import infer
from rooflm.graph.ops import distinct_experts, occupied, popularity
from rooflm.kernels import moe
from rooflm.kernels.constants import entries_of, typed
from rooflm.kernels.moe import MoEConstants, Routing, imbalance, pieces, routed, usual
from rooflm_fit.common import L2_SAVES, hot_share
from rooflm_fit.moe import balanced

moe_time = by_rates(moe.moe_time)
H200: Any = {"peak": 989e12, "bandwidth": 4.8e12, "sms": 132.0}
FUSED = MoEConstants(18e-6, 3e-8, 0.9, 0.97, 2.0, 7e-6, 1e-6, 0.45, 0.01)
FREE = MoEConstants(0.0, 0.0, 1.0, 1.0, 1e9, 0.0, 0.0, 1e9, 0.0)
counts = st.integers(1, 4096)


def seconds(tokens: object, *, top_k: int = 8, experts: int = 128, c: MoEConstants = FUSED, **rest: object) -> object:
    """Qwen3-30B's layer (hidden 2048, width 768) on H200, unless told otherwise."""
    ep = rest.get("ep", 1)
    routing = rest.pop("routing", None) or routed(tokens, top_k, experts, ep)  # type: ignore[arg-type]
    width = 768 / rest.pop("tp", 1)  # type: ignore[operator]
    return moe_time(tokens, 2048, width, routing, top_k=top_k, experts=experts, c=c, **H200 | rest)


def draw(tokens: int, top_k: int, experts: int, popularity: np.ndarray, seed: int) -> np.ndarray:
    """Rows of each expert when every token draws top_k different experts by popularity (Gumbel top-k)."""
    rng = np.random.default_rng(seed)
    scores = np.log(popularity) + rng.gumbel(size=(tokens, experts))
    chosen = np.argpartition(scores, -top_k, axis=1)[:, -top_k:]
    return np.bincount(chosen.ravel(), minlength=experts)


@pytest.mark.parametrize(("tokens", "top_k", "experts"), [(1, 8, 256), (16, 8, 256), (32, 2, 8), (64, 4, 128)])
def test_distinct_experts_against_drawing_lots(tokens: int, top_k: int, experts: int) -> None:
    drawn = [np.count_nonzero(draw(tokens, top_k, experts, np.ones(experts), seed)) for seed in range(200)]
    assert float(distinct_experts(experts, top_k, tokens)) == pytest.approx(np.mean(drawn), rel=0.02)


def test_skewed_popularity_touches_fewer_experts_as_drawn() -> None:
    popularity = np.random.default_rng(7).gamma(1.0, size=256) + 1e-9  # coefficient of variation 1
    drawn = [np.count_nonzero(draw(64, 8, 256, popularity, seed)) for seed in range(50)]
    assert float(distinct_experts(256, 8, 64, skew=1.0)) == pytest.approx(np.mean(drawn), rel=0.08)
    assert float(distinct_experts(256, 8, 64, skew=1.0)) < float(distinct_experts(256, 8, 64))


def test_imbalance_against_drawing_lots() -> None:
    drawn = [draw(256, 8, 128, np.ones(128), seed).reshape(8, 16).sum(axis=1).max() / 256 for seed in range(200)]
    assert float(imbalance(256, 8, 128, 8)) == pytest.approx(np.mean(drawn), rel=0.03)


def test_fewer_experts_a_token_scatter_more_as_a_router_does() -> None:
    """Logits of a normal bias an expert and normal scatter a token: what is fitted to 8 of 256 holds for 2 of 8."""
    rng = np.random.default_rng(5)

    def spread(experts: int, top_k: int) -> float:
        cells = []
        for _ in range(40):
            logits = 0.3 * rng.standard_normal(experts) + rng.standard_normal((3000, experts))
            rows = np.bincount(np.argpartition(logits, -top_k, axis=1)[:, -top_k:].ravel(), minlength=experts)
            cells.append((rows / rows.mean() - 1) ** 2)
        return float(np.sqrt(np.mean(cells)))

    skew = np.sqrt(np.log1p(spread(256, 8) ** 2) / np.log(256 / 8))
    assert popularity(256, 8, skew) == pytest.approx(spread(256, 8), rel=0.1)
    assert popularity(8, 2, skew) == pytest.approx(spread(8, 2), rel=0.3)
    assert popularity(8, 8, 1.0) == 0.0 and popularity(256, 8, 0) == 0.0


@given(tokens=counts, top_k=st.integers(1, 16), experts=st.sampled_from([16, 64, 256]), skew=st.floats(0, 3))
def test_distinct_experts_bounds(tokens: int, top_k: int, experts: int, skew: float) -> None:
    found = float(distinct_experts(experts, top_k, tokens, skew=skew))
    assert top_k * (1 - 1e-9) <= found <= min(experts, tokens * top_k) * (1 + 1e-9)


@given(tokens=counts, ep=st.sampled_from([1, 2, 8, 32]), skew=st.floats(0, 3))
def test_routing_of_the_busiest_rank(tokens: int, ep: int, skew: float) -> None:
    routing = routed(tokens, 8, 128, ep, skew)
    assert float(routing.rows) >= min(tokens * 8 / ep, tokens * 128 / ep) * (1 - 1e-9)
    assert float(routing.rows) <= tokens * min(8, 128 / ep) * (1 + 1e-9)
    assert float(routing.experts) <= min(128 / ep, float(routing.rows)) * (1 + 1e-9)


@pytest.mark.parametrize("ep", [2, 8])
@pytest.mark.parametrize("tokens", [4, 8, 32, 128])
def test_the_busiest_rank_as_drawn(tokens: int, ep: int) -> None:
    """Rows of the fullest rank, and most experts that any rank touches, of 256 experts with a gamma's popularity: the
    formulas fall short of the draws by up to 4 and 10 %."""
    skew = float(popularity(256, 8, 0.5))
    rows, touched = [], []
    for seed in range(60):
        shares = np.random.default_rng(seed + 1000).gamma(1 / skew**2, size=256) + 1e-9
        ranks = draw(tokens, 8, 256, shares, seed).reshape(ep, -1)
        rows.append(ranks.sum(axis=1).max())
        touched.append(np.count_nonzero(ranks, axis=1).max())
    found = routed(tokens, 8, 256, ep, skew)
    assert float(found.rows) == pytest.approx(np.mean(rows), rel=0.05)
    assert float(found.experts) == pytest.approx(np.mean(touched), rel=0.11)


def test_balanced_routing_by_hand() -> None:
    assert [float(x) for x in balanced(1, 8, 128)] == [8, 8, 0]
    assert [float(x) for x in balanced(64, 8, 128)] == [512, 128, 0]
    assert [float(x) for x in balanced(64, 8, 128, ep=16)] == [32, 8, 0]


@pytest.mark.parametrize("mean", [1.5, 8.0, 40.0, 200.0])
def test_tiles_of_scattered_rows(mean: float) -> None:
    rows = np.random.default_rng(0).geometric(1 / mean, size=100_000)
    assert float(pieces(mean, 64.0, 1.0)) == pytest.approx(np.ceil(rows / 64).mean(), rel=0.12)


def test_ideal_kernels_stream_the_touched_weights() -> None:
    # 8 experts x 3 x 2048 x 768 x 2 B = 75.5 MB at 4.8 TB/s = 15.73 us; activations add 0.1 us
    time = seconds(1, c=FREE, routing=balanced(1, 8, 128))
    assert float(time) == pytest.approx(15.73e-6, rel=0.02)  # type: ignore[arg-type]


def test_ideal_kernels_compute_at_peak_when_tiles_fit() -> None:
    # 132 SMs: tiles of 128 x 256 fill whole waves: 11 experts x 128·k rows; 2·rows·3·2048·3072 FLOP at peak
    routing = Routing(11 * 1024.0, 11.0, 0.0)
    time = moe_time(1408, 2048, 3072, routing, top_k=8, experts=11, c=FREE, **H200)
    flops = 2 * 11 * 1024 * 3 * 2048 * 3072
    assert float(time) == pytest.approx(flops / 989e12, rel=0.12)


def test_nothing_for_no_tokens() -> None:
    assert float(seconds(0)) == 0  # type: ignore[arg-type]


@given(tokens=counts, more=st.floats(1.05, 8))
def test_better_hardware_is_never_slower(tokens: int, more: float) -> None:
    base = float(seconds(tokens))  # type: ignore[arg-type]
    for rate in ("peak", "bandwidth"):
        assert float(seconds(tokens, **{rate: H200[rate] * more})) <= base * (1 + 1e-12)  # type: ignore[arg-type]


@given(tokens=counts)
def test_more_tokens_are_never_quicker(tokens: int) -> None:
    assert float(seconds(tokens + 64)) >= float(seconds(tokens)) * (1 - 1e-9)  # type: ignore[arg-type]


def test_tensor_parallel_and_narrow_weights_are_quicker() -> None:
    assert float(seconds(64, tp=4)) < float(seconds(64))  # type: ignore[arg-type]
    assert float(seconds(64, weight_bytes=0.5)) < float(seconds(64))  # type: ignore[arg-type]
    assert float(seconds(64, gated=0.0)) < float(seconds(64))  # type: ignore[arg-type]


def test_rows_of_other_ranks_cost_where_kernels_mask_them() -> None:
    masking = FUSED._replace(stray=1.0)
    seen, dropped = seconds(4096, ep=8, c=masking), seconds(4096, ep=8, c=FUSED._replace(stray=0.0))
    # 4096 x 8 pairs less the busiest rank's rows, each (2·2048 + 3·768)·2 B
    rows = 4096 * 8 - float(routed(4096, 8, 128, 8).rows)
    expected = rows * (2 * 2048 + 3 * 768) * 2 / (0.45 * 4.8e12)
    assert float(seen) - float(dropped) == pytest.approx(expected, rel=1e-6)  # type: ignore[arg-type]


def fetched(experts: float, tp: int, warm: float) -> float:
    """Share of the weights that DRAM serves in a benchmark that keeps `warm` of an L2 of 50 MB."""
    return float(1.0 - L2_SAVES * hot_share(experts * 2048 * 768 / tp * 3 * 2, 50e6, warm))


def test_a_warm_cache_only_helps_small_weights() -> None:
    cold, warm = seconds(8, tp=8), seconds(8, tp=8, fetched=fetched(50.0, 8, 0.5))
    assert float(warm) < float(cold)  # type: ignore[arg-type]
    assert float(seconds(64, fetched=fetched(125.0, 1, 0.5))) == pytest.approx(float(seconds(64)), rel=0.01)  # type: ignore[arg-type]


def test_arrays_equal_scalars() -> None:
    tokens, tp, ep = np.array([[1.0], [33.0], [5000.0]]), np.array([1.0, 2.0, 8.0]), np.array([1.0, 4.0, 8.0])
    grid = np.asarray(seconds(tokens, tp=tp, ep=ep))
    assert grid.shape == (3, 3)
    for i, j in np.ndindex(3, 3):
        one = seconds(float(tokens[i, 0]), tp=float(tp[j]), ep=float(ep[j]))
        assert float(one) == pytest.approx(grid[i, j], rel=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("engine", "tokens", "tp", "measured"),
    # aiconfigurator 095f58a, H200, bf16, 128 experts of 2048 x 768, top 8, balanced, ep = 1
    [("trtllm", 16, 1, 301e-6), ("trtllm", 4096, 1, 712e-6), ("vllm", 1, 1, 40e-6), ("vllm", 1024, 8, 111e-6)],
)
def test_measured_kernels(engine: str, tokens: int, tp: int, measured: float) -> None:
    c = typed(MoEConstants, usual("h200-sxm-141gb", "hopper", engine, "bf16").row)
    routing, warm = balanced(tokens, 8, 128), {"trtllm": 0.5429, "vllm": 0.5047}[engine]  # as fitted with them
    time = seconds(tokens, tp=tp, c=c, routing=routing, fetched=fetched(float(routing.experts), tp, warm))
    assert float(time) == pytest.approx(measured, rel=0.25)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp8_block", "nvfp4", "mxfp4", "int4_wo"])
@pytest.mark.parametrize(("gpu", "architecture"), [("b200-sxm-180gb", "blackwell"), ("mi300x", "cdna")])
def test_every_gpu_and_dtype_has_constants(gpu: str, architecture: str, dtype: str) -> None:
    for expert_parallel in (False, True):
        match = usual(gpu, architecture, "vllm", dtype, expert_parallel)
        assert 0 < typed(MoEConstants, match.row).eff_m <= 1.05
        assert 0 < match.row.mape_out < 100


def test_shipped_fits_are_described() -> None:
    rows = load_constants("moe")
    assert len(rows) > 100
    assert all(set(row.constants) >= set(MoEConstants._fields) - {"l2"} for row in rows)
    assert all(row.source and row.rows_in > 0 for row in rows)


def test_occupied_ranks_by_hand() -> None:
    assert float(occupied(4, 2)) == pytest.approx(4 * (1 - 0.75**2))
    assert float(occupied(8, 1)) == 1


@pytest.mark.parametrize("ep", [4, 8])
@pytest.mark.parametrize("tokens", [16, 64])
def test_the_busiest_rank_touches_as_many_experts_as_of_drawn_routers(ep: int, tokens: int) -> None:
    """Routers whose experts have biases (normal, 0.5 of what a token adds), as `popularity` says of them: experts with
    rows on the rank that has most of them, in the mean of 200 layers."""
    draw = np.random.default_rng(5)
    logits = draw.normal(0, 0.5, (200, 1, 256)) + draw.normal(size=(200, tokens, 256))
    np.put_along_axis(logits, np.argpartition(logits, -8)[..., -8:], np.inf, axis=-1)
    taken = np.isinf(logits).any(axis=1).reshape(200, ep, -1)
    found = routed(tokens, 8, 256, ep, popularity(256, 8, 0.5))
    assert float(found.experts) == pytest.approx(taken.sum(axis=-1).max(axis=-1).mean(), rel=0.05)


def test_a_card_that_others_stand_in_for_feeds_its_experts_from_its_own_l2() -> None:
    """Jetson Thor (273 GB/s of LPDDR5X, L2 5.9 times as fast; B200's is 2.5 times): 2,042 tokens of Qwen3-30B-A3B in
    16 bits take some 0.27 s, little more than the 0.22 s of its weights (vLLM; first tokens of 8 clients: 1.64 s)."""
    sets = [typed(MoEConstants, r.row) for r in entries_of("moe") if "cdna" not in r.architecture]
    assert all(c.l2 > 1.9 for c in sets)
    found = infer("qwen3-30b-a3b", gpu="jetson-thor-128gb", engine="vllm", batch=1, prompt=2042, output=2)
    weights = 48 * 128 * 3 * 2048 * 768 * 2 / 273e9
    assert 1.0 < found.prefill_parts["moe"] / weights < 1.8
