"""The shared forms: how two limits join, and how device memory starts up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflm.kernels.blend import FILL, filling, filling_soon, part_overlap, smooth_max, smooth_min

seconds = st.floats(1e-9, 1e3)


@given(seconds, seconds, st.floats(1.0, 30.0))
def test_a_smooth_maximum_lies_between_the_larger_and_the_sum(a: float, b: float, sharp: float) -> None:
    joined = float(smooth_max(sharp, a, b))
    assert max(a, b) * (1 - 1e-12) <= joined <= (a + b) * (1 + 1e-12)
    assert float(smooth_max(sharp, a, b, 0.0)) == pytest.approx(joined, rel=1e-12)  # two terms or three
    assert 1.0 / float(smooth_min(sharp, 1 / a, 1 / b)) == pytest.approx(joined, rel=1e-9)


@given(seconds, seconds, st.floats(0.0, 1.0))
def test_partly_overlapped_lies_between_the_larger_and_the_sum(a: float, b: float, mix: float) -> None:
    joined = float(part_overlap(a, b, mix))
    assert max(a, b) * (1 - 1e-9) <= joined <= (a + b) * (1 + 1e-9)


def test_smooth_forms_of_nothing_are_nothing() -> None:
    assert float(smooth_max(3.0, 0.0, 0.0)) == 0.0
    assert float(part_overlap(0.0, 0.0, 0.5)) == 0.0


def test_memory_fills_once() -> None:
    # long transfers lose all of it, short ones next to nothing; half, and 1 - 1/e, at 5 us
    assert filling(1.0, 2e-6) == pytest.approx(2e-6, rel=1e-4) == float(filling_soon(1.0, 2e-6))
    assert filling(FILL, 2.0) == pytest.approx(1.0)
    assert float(filling_soon(FILL, 2.0)) == pytest.approx(2.0 * (1 - np.exp(-1)))
