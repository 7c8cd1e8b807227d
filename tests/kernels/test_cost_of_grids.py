"""What a grid pays for: labels that bind, axes that something varies along, equal rows once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rooflm.asked.answers.causes import by_bound
from rooflm.asked.build_inference import build_inference
from rooflm.asked.build_training import build_training
from rooflm.catalogue.quant import PARTS
from rooflm.estimate.inference import infer_scenario
from rooflm.estimate.training_step import context, kernels_of_training, setup_of, step_graph
from rooflm.graph.ops import distinct
from rooflm.kernels.roofline import BOUNDS, time_groups, time_nodes
from rooflm.readers.engines import load_engine
from rooflm.readers.schemes import parse_quant
from rooflm.units import MANY, Num, once_each


def test_seconds_by_what_bounds_them_are_all_seconds_in_a_grid_as_at_a_point() -> None:
    def seconds(batch: Num) -> dict[str, Num]:
        s = build_inference("mixtral-8x7b", gpu="h100", gpus=2, tp=2, batch=batch, alone=False).scenario
        timed = infer_scenario(replace(s, axes=np.ndim(batch))).timed["prefill"]
        found = by_bound(timed)
        assert tuple(found) == BOUNDS and sum(found.values()) == pytest.approx(sum(t.total for t in timed))
        return found

    grid = seconds(np.array([1.0, 64.0]))
    for i, batch in enumerate((1.0, 64.0)):
        for label, one in seconds(batch).items():
            assert np.broadcast_to(grid[label], 2)[i] == pytest.approx(one)


def test_groups_timed_together_are_timed_as_each_alone() -> None:
    s = build_training("llama-2-7b", gpu="h100", dp=8, batch=8).scenario
    groups = step_graph(s, context(s))
    timed = time_groups(groups, s)
    assert timed.keys() == groups.keys() and ("step", "update") in timed
    for key, nodes in groups.items():
        assert [t.node for t in timed[key]] == list(nodes)
        assert [float(t.total) for t in timed[key]] == [float(t.total) for t in time_nodes(nodes, s)]


def test_what_an_engine_does_not_do_makes_no_axis() -> None:
    def setup(engine: str) -> tuple[Num, Num]:
        s = build_training("llama-2-7b", gpu="h100", dp=np.array([1, 8]), batch=8, engine=engine, alone=False).scenario
        found = setup_of(s, context(s))
        return found.fleeting, found.doubled

    assert setup("megatron") == (0.0, 0.0)
    assert all(np.shape(x) == (2,) for x in setup("fsdp"))


def test_equal_rows_are_found_among_numbers_and_arrays_alike() -> None:
    a, b = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    rows = [("x", 1), ("x", a), ("x", 1.0), ("x", b), ("x", a.copy()), ("y", 1)]
    assert distinct(rows) == ([0, 1, 3, 5], [0, 1, 0, 2, 1, 3])


def test_what_follows_from_an_engine_or_a_scheme_alone_is_made_once() -> None:
    kernels, scheme = load_engine("megatron").kernels, parse_quant("mxfp4")
    assert kernels_of_training(kernels) is kernels_of_training(kernels)
    assert kernels_of_training(kernels).vocab_parallel
    assert scheme.widths is scheme.widths and set(scheme.widths) == set(scheme.rates) == set(PARTS)
    assert scheme.widths["experts"][0] < scheme.widths["attention"][0] == 2.0
    assert (scheme.rates["experts"], scheme.rates["attention"]) == ("quant", "half")


def test_elements_with_equal_arguments_are_worked_out_once() -> None:
    sizes: list[int] = []

    def product(a: Num, b: Num, c: Num) -> Num:
        sizes.append(np.broadcast(a, b, c).size)
        return np.asarray(a) * b + c

    rows = np.arange(7.0)[:, None]
    columns = np.tile([1.0, 3.0], MANY)
    assert np.array_equal(once_each(product, rows, columns, 2.0), rows * columns + 2.0)
    one = np.array([[2.0]])  # an array of one number is as the number
    assert np.array_equal(once_each(product, rows, columns, one), rows * columns + 2.0)
    near = np.where(np.arange(MANY) % 2, 1.0, 1.0 + 2.0**-52)  # rounding hides that these differ, beside large numbers
    large = np.where(np.arange(MANY) % 2, 1e300, 2e300)
    assert np.array_equal(once_each(product, near, 1.0, 0.0), near)
    assert np.array_equal(once_each(product, large, 1.0, near), large + near)
    assert sizes[:2] == [14, 14] and once_each(product, 2.0, 3.0, 1.0) == 7.0


@pytest.mark.parametrize("gpu", ["h100", "rtx-4090"])
def test_a_large_grid_is_as_its_points(gpu: str) -> None:
    def times(batch: Num, tp: Num) -> tuple[Num, Num]:
        s = build_inference("llama-3.1-8b", gpu=gpu, gpus=8, tp=tp, batch=batch, cluster=None, alone=False).scenario
        found = infer_scenario(replace(s, axes=max(np.ndim(batch), np.ndim(tp))))
        return found.ttft, found.tpot

    batches = np.tile(np.arange(1.0, 65.0), MANY // 16)
    splits = np.repeat([1.0, 2.0, 4.0, 8.0], len(batches) // 4)
    grid = [np.broadcast_to(v, batches.shape) for v in times(batches, splits)]
    for at in (0, 63, len(batches) // 3, len(batches) - 1):
        point = times(float(batches[at]), float(splits[at]))
        assert [float(v[at]) for v in grid] == pytest.approx([float(v) for v in point], rel=1e-12)
