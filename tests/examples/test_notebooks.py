"""The notebooks run from their first cell to their last, and show an answer below every cell that asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rooflm_fit.books import BOOKS, executed


def test_there_are_three() -> None:
    assert [p.stem for p in BOOKS] == ["choose_cards", "explain_a_measurement", "plan_training"]


@pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)
def test_it_runs(path: Path) -> None:
    cells = [c for c in executed(path).cells if c.cell_type == "code"]
    silent = [c.source for c in cells if not c.outputs and "=" not in c.source.splitlines()[-1]]
    assert cells and not silent
