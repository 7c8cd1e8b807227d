"""Every row of a table of kernel constants, as the reader of single rows parses them."""

from __future__ import annotations

from rooflm.kernels.constants import FitRow, entries_of, parsed


def load_constants(family: str) -> tuple[FitRow, ...]:
    """The rows of data/calibration/<family>.toml."""
    return tuple(parsed(family, entry.text) for entry in entries_of(family))
