"""Rules that hold whatever the numbers: parts sum, no order matters, more bandwidth is never slower, memory grows.
Points and paths are drawn from the tables, so a new path is drawn without a line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fuzz.texts import MODELS, SIZES, settable
from rooflm.api import INFER, TRAIN
from rooflm.errors import RooflmError
from rooflm.serving.deploy import serve

NUMBERS = [int(s) for s in SIZES if int(s) <= 4096]
BANDWIDTHS = ("cluster.device.dram.bandwidth", "cluster.device.l2.bandwidth", "cluster.tiers.0.bandwidth")
small = st.sampled_from(NUMBERS)
points = st.fixed_dictionaries({"model": st.sampled_from(MODELS), "gpu": st.sampled_from(("h100", "a100", "mi300x")),
                                "tp": st.sampled_from((1, 2, 8)), "batch": small, "prompt": small,
                                "output": st.sampled_from((1, 2, 100))})  # fmt: skip


def predicted(**arguments: Any) -> Any:
    """An estimate; a point that is refused is not drawn."""
    try:
        return INFER.point(arguments)
    except RooflmError:
        assume(False)


def path_values(training: bool) -> st.SearchStrategy[dict[str, Any]]:
    """One number of a scenario by its path, near what it is."""
    known = {p: [float(t) for t in texts if t.replace(".", "").isdigit() and math.isfinite(float(t))]
             for p, texts in settable(training).items()}  # fmt: skip
    numeric = sorted(p for p, values in known.items() if values)
    return st.sampled_from(numeric).flatmap(lambda p: st.sampled_from(known[p]).map(lambda v: {p: v}))


@settings(max_examples=60)
@given(points, path_values(training=False))
def test_parts_sum_whatever_is_set(point: dict[str, Any], sets: dict[str, Any]) -> None:
    e = predicted(**point, sets=sets)
    assert float(sum(e.prefill_parts.values())) == pytest.approx(float(e.ttft), rel=1e-9)
    assert float(sum(e.decode_parts.values())) == pytest.approx(float(e.tpot), rel=1e-9)
    assert float(sum(e.memory.parts.values())) == pytest.approx(float(e.memory.total), rel=1e-9)
    assert all(float(v) >= 0 for v in e.memory.parts.values())


@settings(max_examples=40)
@given(path_values(training=True), st.sampled_from((8, 16, 32)), st.sampled_from((1, 2)))
def test_parts_of_a_step_sum_whatever_is_set(sets: dict[str, Any], gpus: int, tp: int) -> None:
    try:
        t = TRAIN.point({"model": "mixtral-8x7b", "gpu": "h100", "gpus": gpus, "tp": tp, "batch": 64, "sets": sets})
    except RooflmError:
        assume(False)
    assert float(sum(t.parts.values())) == pytest.approx(float(t.step_time), rel=1e-9)
    assert all(float(v) >= 0 for v in t.parts.values())


@settings(max_examples=40)
@given(points, st.lists(small, min_size=2, max_size=5, unique=True), st.randoms())
def test_the_order_of_a_list_does_not_matter(point: dict[str, Any], batches: list[int], order: Any) -> None:
    mixed = list(batches)
    order.shuffle(mixed)
    keys = ("tpot_s", "ttft_s", "memory_bytes", "fits")
    try:
        one, other = (INFER.grid({**point, "batch": b, "outputs": keys}) for b in (batches, mixed))
    except RooflmError:
        assume(False)
    at = [mixed.index(b) for b in batches]
    for key in keys:
        assert np.array_equal(one.arrays[key], other.arrays[key][at], equal_nan=one.arrays[key].dtype.kind == "f"), key


@settings(max_examples=40)
@given(points, st.sampled_from(BANDWIDTHS), st.floats(1.01, 100))
def test_more_bandwidth_is_never_slower(point: dict[str, Any], path: str, factor: float) -> None:
    from rooflm.asked import paths

    e = predicted(**point)
    now = float(paths.get(e.scenario, path))
    more = predicted(**point, sets={path: factor * now})
    assert float(more.ttft) <= float(e.ttft) * (1 + 1e-9)
    assert float(more.tpot) <= float(e.tpot) * (1 + 1e-9) or math.isnan(float(e.tpot))


@settings(max_examples=40)
@given(points, st.sampled_from(("batch", "prompt", "output")), st.integers(2, 8))
def test_memory_grows_with_batch_and_context(point: dict[str, Any], name: str, factor: int) -> None:
    e, more = predicted(**point), predicted(**{**point, name: point[name] * factor})
    assert float(more.memory.parts["kv_cache"]) >= float(e.memory.parts["kv_cache"])
    assert float(more.memory.total) >= float(e.memory.total) * (1 - 1e-12)


@settings(max_examples=15)
@given(st.sampled_from(("llama-7b", "mixtral-8x7b")), st.integers(1, 40), st.sampled_from((1, 3, 17, 64)),
       st.sampled_from((1, 33, 900)), st.sampled_from((1, 2, 50)), st.booleans())  # fmt: skip
def test_requests_are_conserved(model: str, clients: int, requests: int, prompt: int, output: int, open_: bool) -> None:
    load: dict[str, Any] = {"rate": float(clients)} if open_ else {"concurrency": clients}
    v = serve(model, gpu="h100", tp=2, requests=requests, prompt=prompt, output=output, **load).values()
    assert v["finished"] + v["rejected"] + v["running"] + v["waiting"] == v["requests"] == requests
