"""What a row of a table becomes: a Request (score it) or a Skip (with its reason)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rooflm.validation.columns import METRICS as _METRICS

METRICS = {name: f"{m.meaning} ({m.unit})" for name, m in _METRICS.items()}
"""Metric -> what it means, and its unit."""


@dataclass(frozen=True)
class Request:
    """One measured figure and the arguments of the command whose answer it is compared with.

    task: "infer", "serve" or "train". metric: one of METRICS. measured: in its unit. kwargs: arguments of
    `rooflm.infer`, `rooflm.serve` or `rooflm.train`; "model" is a name or a dict of sizes. group: (model, gpu) as
    printed or resolved, the unit by which rows are kept aside. engine: the row's engine with its release, as a label;
    release: as printed. doubt: why the row is set apart. assumed: what the row does not state, or no catalogue holds,
    and what stands in, in words; such a row is scored, and counted apart from those whose conditions are complete.
    cells: the row as it stands.
    """

    id: str
    source: str
    task: str
    metric: str
    measured: float
    kwargs: dict[str, Any]
    group: tuple[str, str]
    engine: str
    release: str = ""
    trust: str = ""
    doubt: str = ""
    assumed: tuple[str, ...] = ()
    cells: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def apart(self) -> str:
        """Why the row is scored but not counted: its doubt, or its grade; "" for the others."""
        return self.doubt or ("graded C by its table" if self.trust.upper() == "C" else "")


@dataclass(frozen=True)
class Skip:
    """A row that cannot be scored, and a short reason that is the same for every row of its kind."""

    id: str
    reason: str
    source: str = ""


Outcome = Request | Skip


class Unusable(Exception):  # noqa: N818 (a verdict on a row, not an error)
    """Raised while a row is read and turned into a Skip; never leaves the package."""


RAN: dict[str, Any] = {
    "engine.schemes": "", "engine.caches": "", "engine.expert_groups": "any",
    **{f"engine.{groups}": True for groups in ("tensor_groups", "stage_groups", "context_groups", "mixed_groups")},
}  # fmt: skip
"""Paths that let an engine run what it ran: a measurement stands, whatever the engine's documents say that it can."""


def as_run(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a measured run, which no rule of its engine refuses.

    >>> as_run({"batch": 1, "sets": {"engine.step": 0.0}})["sets"]["engine.expert_groups"]
    'any'
    """
    return {**kwargs, "sets": RAN | dict(kwargs.get("sets") or {})}
