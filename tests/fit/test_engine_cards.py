"""What a fit of engines writes of cards."""

from __future__ import annotations

import pytest

from rooflm.kernels.derating import on_file
from rooflm.readers.engines import load_engine
from rooflm_fit.engines import elsewhere
from rooflm_fit.jobs import JOBS


@pytest.mark.parametrize("engine", ["mlc", "exllamav2"])
def test_a_factor_that_is_not_fitted_stays_what_other_runs_give(engine: str) -> None:
    assert JOBS[engine].cards["rtx-4090"].bandwidth == 0
    own, others = on_file("rtx-4090", "", "geforce", "ada", 2022, engine), elsewhere("rtx-4090")
    assert own.bandwidth == pytest.approx(others.bandwidth, rel=1e-3)
    assert own.compute > others.compute  # its products sum in 16 bits


def test_kernels_for_few_rows_take_alike_bytes_a_clock() -> None:
    alike = {load_engine(engine).kernels.sm_stream for engine in ("llama.cpp", "exllamav2")}
    assert len(alike) == 1
