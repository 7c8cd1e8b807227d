"""Twelve questions of a new user: page, shell and Python give the same number, which is that of the document."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

from rooflm.web.page import Shown
from rooflm.web.tabs.table import TABS
from rooflm_fit.twelve import PAGE, QUESTIONS, Question, section

TEXT = PAGE.read_text(encoding="utf-8")


def test_they_are_twelve_and_the_readme_leads_to_them() -> None:
    assert len(QUESTIONS) == 12 and TEXT.count("\n## ") == 12
    assert {q.tab for q in QUESTIONS} >= TABS.keys() - {"serve"}
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert "(docs/twelve-questions.md)" in readme


@pytest.mark.parametrize("number", range(1, 13), ids=[q.text for q in QUESTIONS])
def test_three_ways_one_number(number: int) -> None:
    q: Question = QUESTIONS[number - 1]
    shell, python = q.in_the_shell(), q.in_python()
    assert len(shell) == len(python) == len(q.told)
    for one, other in zip(shell, python, strict=True):
        assert one == (str(other) if isinstance(one, str) else pytest.approx(float(other), rel=1e-9))
    page = Shown(TABS[q.tab], q.asked)
    text = html.unescape(page.html() + page.rest())
    assert not [w for w in q.words(shell) if w not in text]
    assert section(number, q) in TEXT, "run python -m rooflm_fit.twelve"
