"""Whatever is written on a command line or in a file: an answer, or one sentence. Some 400 inputs here, any number with
`scripts/fuzz`; every input that once failed stays in known.txt."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from fuzz.files import SEEDS, whole
from fuzz.inputs import INPUTS, Input
from fuzz.judge import judged

EXAMPLES = {"infer": 80, "train": 60, "serve": 20, "search infer": 5, "search train": 6} | {
    kind: 12 for kind in INPUTS if kind.startswith("file: ")
}
"""Kind of input -> how many are drawn."""
KNOWN = [line for line in (Path(__file__).parent / "known.txt").read_text(encoding="utf-8").splitlines() if line]


@pytest.mark.parametrize("kind", INPUTS)
def test_an_answer_or_a_sentence(kind: str) -> None:
    @settings(max_examples=EXAMPLES[kind], suppress_health_check=list(HealthCheck))
    @given(INPUTS[kind])
    def drawn(one: Input) -> None:
        line, files = one
        ran = judged(line, files=files)
        assert not ran.fault, f"{shlex.join(line)}: {ran.fault}"

    drawn()


@pytest.mark.parametrize("line", KNOWN)
def test_what_once_failed(line: str) -> None:
    ran = judged(shlex.split(line), limit=10)
    assert not ran.fault


@pytest.mark.parametrize("kind", SEEDS)
def test_files_that_are_whole_are_read(kind: str) -> None:
    for content in whole(kind):
        ran = judged(SEEDS[kind].line, files={SEEDS[kind].name: content})
        assert (ran.status, ran.fault) == (0, ""), content
