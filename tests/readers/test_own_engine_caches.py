"""Widths of cached values in an engine's file."""

from pathlib import Path

import pytest

import rooflm
from rooflm.errors import RooflmError


def test_widths_are_whole_numbers(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('base = "vllm"\ncaches = "16, x"\n', encoding="utf-8")
    with pytest.raises(RooflmError, match="caches"):
        rooflm.infer("llama-7b", gpu="h100", engine=str(own))
