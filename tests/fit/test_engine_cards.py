"""What a fit of engines writes of cards."""

from __future__ import annotations

from typing import Any

import pytest

from rooflm import infer
from rooflm.kernels.derating import on_file, reach
from rooflm.readers.engines import load_engine
from rooflm_fit.engines import GEFORCE_REACH
from rooflm_fit.jobs import JOBS


@pytest.mark.parametrize("engine", ["mlc", "exllamav2"])
def test_engines_that_sum_in_16_bits_have_all_that_llama_cpp_has_of_a_geforce(engine: str) -> None:
    assert not JOBS[engine].cards  # nothing of a card is fitted to their own few runs
    sums = load_engine(engine).kernels.sums
    for gpu, own in (("rtx-3090-ti", "ampere"), ("rtx-4090", "ada"), ("rtx-4080", "ada")):
        asked = gpu, "", "geforce", own, 2022
        found, general = on_file(*asked, engine, sums), on_file(*asked, "no-such-engine")
        assert general.compute * reach(own)[0] == pytest.approx(GEFORCE_REACH, rel=1e-3)
        assert found.compute > general.compute
        assert found.bandwidth == general.bandwidth
    datacentre = ("a100-pcie-80gb", "", "none", "ampere", 2020)
    assert on_file(*datacentre, engine, sums) == on_file(*datacentre, engine)  # full rate whatever they sum in


def test_a_prompt_takes_less_where_its_sums_are_of_16_bits() -> None:
    given: dict[str, Any] = {"model": "llama-3-8b", "quant": "int4", "prompt": 4096, "output": 1, "engine": "mlc"}
    for gpu, least, most in (("rtx-4090", 1.15, 2.0), ("a100-sxm-80gb", 0.999, 1.001)):
        whole, half = (float(infer(**given, gpu=gpu, sets={"engine.sums": s}).ttft) for s in ("fp32", "fp16"))
        assert least < whole / half < most


def test_kernels_for_few_rows_take_alike_bytes_a_clock() -> None:
    alike = {load_engine(engine).kernels.sm_stream for engine in ("llama.cpp", "exllamav2")}
    assert len(alike) == 1
