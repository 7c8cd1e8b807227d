"""The small real cluster: eight published rows within 10 per cent under one stated assumption."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import small_cluster


def test_eight_rows_within_ten_per_cent() -> None:
    table = small_cluster.lines()
    assert len(table) == 8
    for row in table:
        assert abs(row.predicted / row.measured - 1) < 0.10, row
        assert row.gpu_ms > 2 * row.other_ms > 0
    # the source: some 0.1 s of GPU and 0.04 s of other time a token at batch 1
    assert abs(table[0].gpu_ms - 100) < 20
    assert abs(table[0].other_ms - 40) < 8
