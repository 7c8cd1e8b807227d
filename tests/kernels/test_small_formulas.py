"""Formulas of a line or two of kernels and rows, by hand."""

import numpy as np
import pytest

from rooflm.catalogue.fields import number_by_name
from rooflm.kernels.attention import THROTTLE_S, sm_rate
from rooflm.kernels.blend import FILL, filling, filling_soon
from rooflm.kernels.moe import largest_of
from rooflm.kernels.products import has_shape


def test_a_product_is_among_shapes_by_both_sizes() -> None:
    assert has_shape(np.array([2112, 2112]), np.array([7168, 1536]), "2112x7168 7168x2048").tolist() == [True, False]


def test_a_scheme_goes_by_its_name_whatever_its_cache() -> None:
    assert (number_by_name("gptq:8 int4:2", "int4kv8", 1.0), number_by_name("gptq:8 int4:2", "awq", 1.0)) == (2.0, 1.0)


def test_half_of_what_power_takes_is_lost_at_its_own_length() -> None:
    assert sm_rate(1e12, 0.2, THROTTLE_S) == 9e11
    assert sm_rate(1e12, 0.2, np.array([0.0, 1e9])) == pytest.approx([1e12, 8e11])


def test_memory_fills_slowly_or_soon() -> None:
    assert filling(FILL, 2e-6) == pytest.approx(1e-6)
    assert float(filling_soon(FILL, 1.0)) == pytest.approx(1 - np.exp(-1))
    assert (
        filling(1.0, 2e-6) == pytest.approx(2e-6, rel=1e-4) == pytest.approx(float(filling_soon(1.0, 2e-6)), rel=1e-4)
    )


def test_the_largest_of_some_normals() -> None:
    """Of eight 1.42 exactly (Harter 1961), of 100 2.51; of one none."""
    assert float(largest_of(1)) == 0.0
    assert largest_of(np.array([8, 100])) == pytest.approx([1.424, 2.508], rel=0.08)
