"""Every row of a table of kernel constants, as the reader of single rows parses them."""

from __future__ import annotations

from rooflm.kernels.constants import FitRow, _entries, _parse


def load_constants(family: str) -> tuple[FitRow, ...]:
    """The rows of data/calibration/<family>.toml."""
    return tuple(_parse(family, entry.text) for entry in _entries(family))
