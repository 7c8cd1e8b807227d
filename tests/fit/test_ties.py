"""What a fit of engines writes beside its own constants, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from rooflm.kernels.derating import card_file
from rooflm.readers.engines import load_engine
from rooflm.readers.rows import DATA
from rooflm.validation.request import Request
from rooflm_fit import engines
from rooflm_fit.engine_rows import held, unmoved
from rooflm_fit.engines import Fitted, lent, taken, write_engines
from rooflm_fit.jobs import JOBS


def fitted(**constants: float) -> Fitted:
    return Fitted({k.replace("__", ":"): v for k, v in constants.items()}, [], np.array([]), np.array([]))


def test_exllamav2_takes_llama_cpps_bytes_a_clock_as_just_fitted() -> None:
    assert taken(JOBS["exllamav2"], {"llama.cpp": fitted(sm_stream=7.5)}) == {"sm_stream": 7.5}


@pytest.mark.parametrize(("gpu", "factors"), JOBS["vllm-2024-rocm"].lent.items())
def test_a_stated_card_has_the_factors_that_its_family_lends_it(gpu: str, factors: tuple[str, ...]) -> None:
    constants = {"~instinct|few": 1.25, "~instinct|sm_stream": 4.0}
    found = {"vllm-2024-rocm": Fitted(constants, cast("list[Request]", []), np.array([]), np.array([]))}
    block = f'\ngpu = "{gpu}"\nengine = "vllm-2024-rocm"\nbandwidth = 0.5\nfew = 1.6\nsm_stream = 5\nsource = "s"'
    expected = block.replace("few = 1.6", "few = 1.25")
    if "sm_stream" in factors:
        expected = expected.replace("sm_stream = 5", "sm_stream = 4")
    assert lent(block, found) == expected
    other = block.replace("vllm-2024-rocm", "vllm")
    assert lent(other, found) == other


def test_shipped_cards_have_what_their_family_lends_them() -> None:
    text = (DATA / "calibration" / "devices.toml").read_text(encoding="utf-8")
    blocks = text.split("[[card]]")
    of = {engines.of_whom(b.rstrip()): b for b in blocks}
    family = next(b for b in blocks if 'product_family = "instinct"\nengine = "vllm-2024-rocm"' in b)
    for gpu, factors in JOBS["vllm-2024-rocm"].lent.items():
        row = of[f'\ngpu = "{gpu}"\nengine = "vllm-2024-rocm"'].splitlines()
        assert {f.split(" = ")[0] for f in row if f in family.splitlines()} >= {*factors}


def test_rows_of_several_engines_are_parted_and_put_together_again(tmp_path: Path) -> None:
    shipped = (DATA / "calibration" / "devices.toml").read_text(encoding="utf-8")
    path = tmp_path / "devices.toml"
    path.write_text(shipped, encoding="utf-8")
    engines.write_cards(path, {})
    assert path.read_text(encoding="utf-8") == shipped
    assert len(card_file().card) > shipped.count("[[card]]") == len(set(shipped.split("[[card]]"))) - 1


def test_a_row_is_not_given_again_what_the_row_it_builds_on_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "engines.toml"
    path.write_text('["llama.cpp-2024-05"]\n\n["llama.cpp-2024-05-metal"]\n', encoding="utf-8")
    monkeypatch.setattr(engines, "file_of", lambda engine: path)
    job: Any = SimpleNamespace(engines=("llama.cpp-2024-05", "llama.cpp-2024-05-metal"))
    monkeypatch.setitem(engines.JOBS, "llama.cpp", job)
    constants = {"llama.cpp-2024-05:dequant": 0.5, "llama.cpp-2024-05-metal:gap": 7e-6}
    write_engines({"llama.cpp": Fitted(constants, [], np.array([]), np.array([]))})
    assert path.read_text(encoding="utf-8") == (
        '["llama.cpp-2024-05"]\ndequant = 0.5\n\n["llama.cpp-2024-05-metal"]\ngap = "7 us"\n'
    )


def test_what_the_rows_of_radeon_cannot_tell_is_stated() -> None:
    assert held("llama.cpp-rocm") >= {"attention_factor", "moe_factor", "decode_factor", "gap"}


def test_what_a_row_is_without_is_stated() -> None:
    """Else Metal is given CUDA's bytes of an SM, which it shares a job with."""
    assert held("llama.cpp-2024-05-metal") >= {"sm_stream", "queue", "unpacked"}


@pytest.mark.parametrize("name", JOBS)
def test_what_engines_are_fitted_to_have_in_common_they_have(name: str) -> None:
    """Where a row on the way states a constant, the fit must know: else it is fitted with another than it predicts
    with, and every refit moves (decision 369)."""
    job = JOBS[name]
    for param in job.shared:
        own = {e for e in job.engines if param.name in unmoved(e) or param.name in {p.name for p in job.own.get(e, ())}}
        values = {load_engine(e).value(param.name) for e in job.engines if e not in own}
        assert len(values) <= 1, (param.name, values)
