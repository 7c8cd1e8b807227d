"""Three tables of README.md, made of what pages of docs/ hold: python -m rooflm_fit.readme writes them.

What was left out whole beside servers (of docs/accuracy.md and docs/training.md), how far off published measurements
are by kind of question (of docs/questions.md, which shows the output of `rooflm validate`), and what blind rounds came
to (of docs/accuracy.md, a line a round).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

from rooflm_fit.pages import DOCS, markdown, rewrite
from rooflm_fit.shown import shown

README = DOCS.parent / "README.md"
LONG = "rooflm validate --brief --by task,source"
"""The command whose output docs/questions.md shows. It predicts all rows: longer than all others take."""
TASKS = {"serve": "users under load", "infer": "fixed batches", "train": "training: steps and memory", "all": "all"}
"""Groups that `rooflm validate --by task` prints -> their names in README.md."""
GROUP = re.compile(r"^  (?P<name>\w+)  +(?P<figures>\d+(?: +[-+.\d]+){5})$", re.MULTILINE)
ROUND = re.compile(r"^\| (?P<kind>[^|]*?) ?\| \[\d{4}\]\([^)]*\) \| (?P<figures>[\d,]+) of \d+ \| "
                   r"(?P<mean>[\d.]+) / (?P<median>[\d.]+)", re.MULTILINE)  # fmt: skip
"""A round: what it was of (blank: as the line before), figures, mean and median error in per cent before any change."""


def total(page: str, mark: str) -> list[str]:
    """Cells behind the name of a marked table's line of all.

    >>> total("<!-- x -->\\n| all | 3 | 4 / 5 |\\n<!-- end x -->", "x")
    ['3', '4 / 5']
    """
    table = page.partition(f"<!-- {mark} -->")[2].partition(f"<!-- end {mark} -->")[0]
    line = next(line for line in table.splitlines() if line.startswith("| all |"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def left_out(accuracy: str, training: str) -> str:
    """Errors of fixed batches and of training steps whose model, card or framework was left out of the fit."""
    rows = (("fixed batches, mean / median", *total(accuracy, "fixed"), ""),
            ("steps of training, mean", *total(training, "training")[:5]))  # fmt: skip
    return markdown(("left out, %", "rows", "in sample", "model left out", "card", "framework"), rows)


def published(output: str) -> str:
    """Errors on published measurements by kind of question, of LONG's output."""
    found = {line["name"]: line["figures"].split() for line in GROUP.finditer(output)}
    rows = [(word, f"{int(found[task][0]):,}", *found[task][1:]) for task, word in TASKS.items()]
    return markdown(("error, %", "rows", "mean", "median", "nine of ten below", "bias", "in band"), rows)


def spread(errors: Sequence[float]) -> str:
    """The least, the middle and the largest.

    >>> spread([12.0, 30.4, 8.1])
    '8, 12, 30'
    """
    return ", ".join(f"{x:.0f}" for x in (min(errors), statistics.median(errors), max(errors)))


def blind(page: str) -> str:
    """What rounds of sources that nobody had seen came to, by kind."""
    rounds: dict[str, list[tuple[int, float, float]]] = {}
    kind = ""
    for line in ROUND.finditer(page):
        kind = line["kind"] or kind
        told = int(line["figures"].replace(",", "")), float(line["mean"]), float(line["median"])
        rounds.setdefault(kind, []).append(told)
    rows = []
    for kind, mine in rounds.items():
        figures, means, medians = zip(*mine, strict=True)
        latest = ", ".join(f"{mean:.0f}/{median:.0f}" for _, mean, median in mine[-2:])
        rows.append((kind, str(len(mine)), f"{sum(figures):,}", spread(means), spread(medians), latest))
    head = ("error before any change, %", "rounds", "figures", "mean: best, middle, worst round", "median: the same",
            "the latest two: mean/median")  # fmt: skip
    return markdown(head, rows)


def parts() -> dict[str, str]:
    """Each table by its mark."""
    output = next(block.body for block in shown(DOCS / "questions.md") if block.command == LONG)
    accuracy, training = ((DOCS / page).read_text(encoding="utf-8") for page in ("accuracy.md", "training.md"))
    return {"out": left_out(accuracy, training), "published": published(output), "blind": blind(accuracy)}


if __name__ == "__main__":
    rewrite(parts(), README)
