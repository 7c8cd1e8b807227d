"""The small real cluster: eight published rows within 10 per cent under one stated assumption."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import small_cluster


def test_eight_rows_within_ten_per_cent() -> None:
    table = small_cluster.lines()
    assert len(table) == 8
    for row in table:
        assert abs(row.predicted / row.measured - 1) < 0.10, row
        assert row.gpu_ms > 3 * row.other_ms > 0
