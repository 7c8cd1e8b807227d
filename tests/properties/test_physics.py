"""Physics that holds for every model and every scenario, on random ones."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rooflm import infer
from rooflm.estimate.memory import shards
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.rows import names
from rooflm.scenario.mapping import Mapping

GPUS = ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "l40s", "rtx-3090", "mi300x", "tpu-v5e")
MODES = ("ideal", "0.5,0.8", "calibrated")
relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WRITERS = [name for name in names("model") if load_model(name).head]
"""Models that write tokens: those that embed have a prefill alone."""
models = st.sampled_from(WRITERS)
modes = st.sampled_from(MODES)
points = st.fixed_dictionaries(
    {
        "gpu": st.sampled_from(GPUS), "batch": st.integers(1, 512),
        "prompt": st.integers(1, 8192), "output": st.integers(1, 2048),
        "tp": st.sampled_from((1, 2, 4, 8)), "pp": st.sampled_from((1, 2)),
        "quant": st.sampled_from(("w16a16kv16", "fp8", "int8", "w4a16kv16", "w4a16kv8", "w8a8")),
    }
)  # fmt: skip


@lru_cache
def _splits(model: str) -> set[int]:
    heads = [int(b.mixer.heads) for b in load_model(model).blocks if b.mixer is not None]
    return {t for t in (1, 2, 4, 8) if all(h % t == 0 for h in heads)}


def _legal(model: str, point: dict[str, object]) -> dict[str, object]:
    ways = _splits(model)
    tp = max(t for t in ways if t <= point["tp"])  # type: ignore[operator]
    return {**point, "tp": tp}


@relaxed
@given(models, points, modes)
def test_parts_sum_to_the_total(model: str, point: dict[str, object], mode: str) -> None:
    e = infer(model, **_legal(model, point), efficiency=mode)
    assert np.isclose(sum(e.prefill_parts.values()), e.ttft, rtol=1e-9)
    assert np.isclose(sum(e.decode_parts.values()), e.tpot, rtol=1e-9)
    assert np.isclose(sum(e.parts.values()), e.latency, rtol=1e-9)
    assert np.isclose(sum(e.memory.parts.values()), e.memory.total, rtol=1e-12)
    assert all(
        float(v) >= -1e-12 for v in (*e.prefill_parts.values(), *e.decode_parts.values(), *e.memory.parts.values())
    )
    assert 0 <= float(e.busy) <= 1 + 1e-9
    assert 0 <= float(e.mfu) <= 1 + 1e-9


@relaxed
@given(
    models,
    points,
    modes,
    st.sampled_from(("cluster.device.dram.bandwidth", "cluster.tiers.0.bandwidth")),
    st.floats(1.05, 10),
)
def test_more_bandwidth_is_never_slower(
    model: str, point: dict[str, object], mode: str, path: str, factor: float
) -> None:
    from rooflm.asked import paths
    from rooflm.asked.build_inference import build_inference

    legal = _legal(model, point)
    old = paths.get(build_inference(model=model, **legal).scenario, path)
    base = infer(model, **legal, efficiency=mode)
    fast = infer(model, **legal, efficiency=mode, sets={path: old * factor})
    assert float(fast.ttft) <= float(base.ttft) * (1 + 1e-9)
    assert float(fast.tpot) <= float(base.tpot) * (1 + 1e-9)


@relaxed
@given(models, points, st.floats(1.5, 8))
def test_all_rates_times_k_give_all_times_over_k(model: str, point: dict[str, object], k: float) -> None:
    from rooflm.asked.build_inference import build_inference

    legal = _legal(model, point)
    s = build_inference(model=model, **legal, efficiency="ideal").scenario
    sets: dict[str, float] = {f"cluster.device.peak.{name}": rate * k for name, rate in s.cluster.device.peak.items()}
    for level in ("l1", "l2", "dram"):
        sets[f"cluster.device.{level}.bandwidth"] = getattr(s.cluster.device, level).bandwidth * k
    for i, tier in enumerate(s.cluster.tiers):
        sets |= {f"cluster.tiers.{i}.bandwidth": tier.bandwidth * k, f"cluster.tiers.{i}.latency": tier.latency / k}
    base, fast = infer(model, **legal, efficiency="ideal"), infer(model, **legal, efficiency="ideal", sets=sets)
    assert np.isclose(float(base.latency), float(fast.latency) * k, rtol=1e-9)


@relaxed
@given(models, st.sampled_from((1, 2, 4, 8)), st.sampled_from((1, 2, 4)))
def test_shards_sum_to_the_whole(model: str, tp: int, pp: int) -> None:
    """Every parameter is somewhere: the shards of all ranks hold at least the model, and little more than it."""
    loaded = load_model(model)
    if tp not in _splits(model) or loaded.layers % pp:
        return
    total = sum(float(v) for v in shards(loaded, Mapping(tp=tp, pp=pp)).values()) * tp * pp
    whole = float(loaded.parameters)
    assert total >= whole * 0.999
    if tp == pp == 1:
        assert np.isclose(total, whole, rtol=2e-3)


@relaxed
@given(models, points, modes, st.lists(st.integers(1, 300), min_size=2, max_size=3, unique=True),
       st.lists(st.integers(1, 4000), min_size=2, max_size=3, unique=True))  # fmt: skip
def test_a_sweep_equals_its_points(
    model: str, point: dict[str, object], mode: str, batch: list[int], prompt: list[int]
) -> None:
    legal = _legal(model, point) | {"batch": batch, "prompt": prompt}
    grid = infer(model, **legal, efficiency=mode)
    b, p = batch[-1], prompt[0]
    e = infer(model, **{**legal, "batch": b, "prompt": p}, efficiency=mode)
    at = grid.sel(batch=b, prompt=p)
    for key, value in (("ttft_s", e.ttft), ("tpot_s", e.tpot), ("latency_s", e.latency),
                       ("memory_bytes", e.memory.total),
                       ("max_batch", e.max_batch), ("energy_j_per_token", e.energy_per_token)):  # fmt: skip
        assert np.isclose(float(at[key]), float(value), rtol=1e-12), key
    assert bool(at["fits"]) == bool(e.fits)


@relaxed
@given(models, points, st.floats(1.01, 4))
def test_more_memory_never_makes_a_fit_fail(model: str, point: dict[str, object], factor: float) -> None:
    from rooflm import load_device

    legal = _legal(model, point)
    size = load_device(str(legal["gpu"])).dram.size
    base = infer(model, **legal, efficiency="ideal")
    more = infer(model, **legal, efficiency="ideal", sets={"cluster.device.dram.size": size * factor})
    assert bool(more.fits) or not bool(base.fits)
    assert float(more.max_batch) >= float(base.max_batch)


@pytest.mark.parametrize("model", WRITERS)
def test_every_model(model: str) -> None:
    """The same physics once for each model of the catalogue: sums, bounds, shards, and bandwidth."""
    ways = max(t for t in _splits(model) if t <= 4)
    point = {"gpu": "h200-sxm-141gb", "batch": 3, "prompt": 300, "output": 40, "tp": ways}
    ideal, real = infer(model, **point, efficiency="ideal"), infer(model, **point)
    for e in (ideal, real):
        assert np.isclose(sum(e.prefill_parts.values()), e.ttft, rtol=1e-9)
        assert np.isclose(sum(e.decode_parts.values()), e.tpot, rtol=1e-9)
        assert np.isclose(sum(e.memory.parts.values()), e.memory.total, rtol=1e-12)
    assert float(ideal.ttft) < float(real.ttft)
    assert float(ideal.tpot) < float(real.tpot)
    fast = infer(model, **point, efficiency="ideal", sets={"cluster.device.dram.bandwidth": 9.6e12})
    assert float(fast.tpot) < float(ideal.tpot)
    loaded = load_model(model)
    assert np.isclose(sum(float(v) for v in shards(loaded, Mapping()).values()), float(loaded.parameters), rtol=1e-6)
