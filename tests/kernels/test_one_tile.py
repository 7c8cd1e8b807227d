"""Small helpers of kernels."""

import numpy as np
import pytest

from rooflm.catalogue.abilities import of_name
from rooflm.kernels.attention import THROTTLE_S, sm_rate
from rooflm.kernels.blend import filling, filling_soon
from rooflm.kernels.moe import largest_of
from rooflm.kernels.products import among


def test_helpers() -> None:
    assert among(np.array([2112, 2112]), np.array([7168, 1536]), "2112x7168 7168x2048").tolist() == [True, False]
    assert (of_name("gptq:8 int4:2", "int4kv8", 1.0), of_name("gptq:8 int4:2", "awq", 1.0)) == (2.0, 1.0)
    assert sm_rate(1e12, 0.2, THROTTLE_S) == 9e11
    assert filling(5e-6, 2e-6) == pytest.approx(1e-6)
    assert float(filling_soon(5e-6, 1.0)) == pytest.approx(0.632, abs=1e-3)
    assert float(largest_of(1)) == 0.0
    assert float(largest_of(8)) == pytest.approx(1.39, abs=0.01)  # exactly 1.42
