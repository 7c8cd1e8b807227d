"""From options to cases: strategies and optimisations by name, combinations that make no sense left out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rooflm.asked.checks import whole
from rooflm.errors import RooflmError, near_matches
from rooflm.measure.case import Case, check
from rooflm.sweep.workers import cores

OPTIMISATIONS: dict[str, dict[str, Any]] = {
    "none": {}, "eager-attention": {"attention": "eager"}, "compile": {"compiled": True}, "graphs": {"graphs": True},
    "int8-wo": {"quant": "int8-wo"}, "int4-wo": {"quant": "int4-wo"},
}  # fmt: skip
"""Name -> what it changes in a case."""


class Plan(NamedTuple):
    """Cases to run, and those left out: (label, reason)."""

    cases: list[Case]
    left_out: list[tuple[str, str]]


def strategy(text: str) -> dict[str, int]:
    """Degrees from `none`, `tp2`, `pp2`, `dp4`, or several joined by `+`.

    >>> strategy("none"), strategy("tp2+dp2")
    ({}, {'tp': 2, 'dp': 2})
    """
    if text in ("none", "1"):
        return {}
    degrees: dict[str, int] = {}
    for piece in text.split("+"):
        match = re.fullmatch(r"(tp|pp|dp)=?(\d+)", piece)
        if match is None:
            raise RooflmError(f"strategy is {text!r}, but it must be none, or tp2, pp2, dp2 joined by +")
        degrees[match[1]] = int(whole(f"strategy {piece}: {match[1]}", int(match[2]), 1, 4096))
    return degrees


def optimisation(text: str) -> dict[str, Any]:
    """Fields of a case from a name, or several joined by `+`.

    >>> optimisation("compile+int8-wo")
    {'compiled': True, 'quant': 'int8-wo'}
    """
    fields: dict[str, Any] = {}
    for piece in text.split("+"):
        if piece not in OPTIMISATIONS:
            near = near_matches(piece, OPTIMISATIONS) or list(OPTIMISATIONS)
            raise RooflmError(f"unknown optimisation {piece!r}: did you mean {' or '.join(map(repr, near))}?")
        fields |= OPTIMISATIONS[piece]
    return fields


def listed(value: Any) -> list[Any]:
    """A value, several or none, as a list."""
    return (
        [] if value is None else list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    )


def plan(
    given: Mapping[str, Any], strategies: Iterable[str] = ("none",), optimisations: Iterable[str] = ("none",)
) -> Plan:
    """Every combination of the lists in `given`, of strategies and of optimisations.

    A combination that breaks a rule (quantised weights with fp32, say) is left out and told, unless it is the only one.
    threads: cores over the largest number of ranks, the same for all cases, unless given.
    """
    splits = [strategy(s) for s in strategies]
    extras = [optimisation(o) for o in optimisations]
    fields = {k: listed(v) for k, v in given.items() if v is not None}
    if "threads" not in fields:
        most = max(s.get("tp", 1) * s.get("pp", 1) * s.get("dp", 1) for s in splits)
        fields["threads"] = [max(cores() // most, 1)]
    cases: list[Case] = []
    left: list[tuple[str, str]] = []
    for *point, split, extra in itertools.product(*fields.values(), splits, extras):
        case = Case(**{**dict(zip(fields, point, strict=True)), **split, **extra})
        try:
            cases.append(check(case))
        except RooflmError as error:
            left.append((case.label, str(error)))
    if not cases:
        raise RooflmError(left[0][1] if left else "there is nothing to measure")
    return Plan(list(dict.fromkeys(cases)), left)
