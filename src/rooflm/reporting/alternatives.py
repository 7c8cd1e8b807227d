"""Alternatives to a scenario: the same with one thing changed, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rooflm.asked.answers.remedies import POPULAR, runnable
from rooflm.asked.answers.said import dollars
from rooflm.errors import RooflmError
from rooflm.scenario.scenario import Scenario
from rooflm.search.training import RECOMPUTE
from rooflm.shown.blocks import Table
from rooflm.shown.numbers import count, gib, percent, text

WAYS: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    "half the GPUs": lambda g: {"gpus": g["gpus"] // 2} if g.get("gpus", 1) > 1 else None,
    "twice the GPUs": lambda g: {"gpus": 2 * g.get("gpus", 1)},
    "half the batch": lambda g: {"batch": g["batch"] // 2} if g.get("batch", 1) > 1 else None,
    "twice the batch": lambda g: {"batch": 2 * g.get("batch", 1)},
}
"""Alternative -> the arguments that it changes, or None where there is none."""


def changes(given: dict[str, Any], s: Scenario, phase: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name of each alternative -> the arguments that it changes. Given degrees are dropped when the number of GPUs
    changes; schemes are the common ones that the engine and card support."""
    yield "as asked", {}
    for name, change in WAYS.items():
        found = change(given)
        if found is not None:
            yield name, found
    if phase == "infer":
        schemes = ["bf16", *(q.name for q in runnable(s) if q.name in POPULAR)]
        yield from ((q, {"quant": q}) for q in schemes if q not in (given.get("quant"), s.quant.name))
    else:
        yield from ((f"recompute {r}", {"recompute": r}) for r in RECOMPUTE if r != s.mapping.recompute)


def written(key: str, value: Any) -> str:
    """An output for people, by the unit at the end of its key."""
    if key.endswith("_bytes"):
        return gib(float(value))
    if key.endswith("_s"):
        return text(float(value), "s") if not key.endswith("per_s") else count(value)
    return percent(value) if key == "mfu" else dollars(value) if "usd" in key else count(value)


def alternatives(
    predict: Callable[..., Any], model: str, given: dict[str, Any], s: Scenario, columns: Sequence[tuple[str, str]]
) -> tuple[Table, dict[str, dict[str, Any]]]:
    """A row an alternative, those that cannot be left out; and the outputs of each by name.

    predict: `infer` or `train`; s: what was asked of it as a scenario; columns: outputs with their headings.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, change in changes(given, s, predict.__name__):
        keep = {
            k: v for k, v in given.items() if not (change.keys() & {"gpus"} and k in ("tp", "pp", "dp", "ep", "cp"))
        }
        try:
            found[name] = predict(model, **keep | change).values()
        except RooflmError:
            continue
    rows: list[Sequence[str]] = [("", *(heading for _, heading in columns), "fits")]
    rows += [(name, *(written(key, v[key]) for key, _ in columns), "yes" if v["fits"] else "no")
             for name, v in found.items()]  # fmt: skip
    return Table(rows, "l" + "r" * len(columns) + "l", "One thing changed at a time", head=True), found
