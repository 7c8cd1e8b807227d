"""What else one could do: the same scenario with one thing changed, beside what was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rooflm.errors import RooflmError
from rooflm.shown.blocks import Table
from rooflm.units import count, gib, percent, text

SCHEMES = ("bf16", "fp8", "int8", "int4", "nvfp4")
RECOMPUTE = ("none", "selective", "full")
WAYS: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    "half the GPUs": lambda g: {"gpus": g["gpus"] // 2} if g.get("gpus", 1) > 1 else None,
    "twice the GPUs": lambda g: {"gpus": 2 * g.get("gpus", 1)},
    "half the batch": lambda g: {"batch": g["batch"] // 2} if g.get("batch", 1) > 1 else None,
    "twice the batch": lambda g: {"batch": 2 * g.get("batch", 1)},
}
"""Alternative -> the arguments that it changes, or None where there is none."""


def changes(given: dict[str, Any], phase: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each alternative by name with the arguments that it changes. Degrees that were given go with the GPUs."""
    yield "as asked", {}
    for name, change in WAYS.items():
        found = change(given)
        if found is not None:
            yield name, found
    if phase == "infer":
        yield from ((q, {"quant": q}) for q in SCHEMES if q != given.get("quant"))
    else:
        yield from ((f"recompute {r}", {"recompute": r}) for r in RECOMPUTE if r != given.get("recompute"))


def written(key: str, value: Any) -> str:
    """An output for people, by the unit at the end of its key."""
    if key.endswith("_bytes"):
        return gib(float(value))
    if key.endswith("_s"):
        return text(float(value), "s") if not key.endswith("per_s") else count(value)
    return percent(value) if key == "mfu" else count(value)


def alternatives(
    predict: Callable[..., Any], model: str, given: dict[str, Any], columns: Sequence[tuple[str, str]]
) -> tuple[Table, dict[str, dict[str, Any]]]:
    """A row an alternative, those that cannot be left out; and the outputs of each by name.

    predict: `infer` or `train`; columns: outputs with their headings.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, change in changes(given, predict.__name__):
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
