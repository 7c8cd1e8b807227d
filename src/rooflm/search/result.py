"""The answer of a search, as Python objects and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rooflm.search.space import Candidate, Goal
from rooflm.shown.answer import Answer, data_frame, plain, plotting
from rooflm.shown.blocks import Block
from rooflm.shown.numbers import value_text

if TYPE_CHECKING:
    import pandas


class Blocked(NamedTuple):
    """A point better than the best, and the constraints that it violates."""

    candidate: Candidate
    why: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class SearchResult(Answer):
    """The answer of a search.

    top: the best points, the best first; front: legal points that no other beats in both traded outputs; blocked: the
    next better points, and the constraints that they violate; nearest: where no point is legal, the one that comes
    nearest; unmet: constraints that no point meets, in words; same: options without effect on the best points, in
    words; without_pools: the answer of deployments without pools, where there are both kinds; prices: what costs rest
    on; model: the name of what was searched for; error_band: of the best point, as an estimate has it;
    others: of several cards the best point of each that the best points leave out; ruled_out: those without any;
    limits: what was asked of a point, in words; interrupted: what was done until Ctrl-C, in words ("": all)."""

    goal: Goal
    points: int
    feasible: int
    top: tuple[Candidate, ...]
    front: tuple[Candidate, ...]
    blocked: tuple[Blocked, ...]
    nearest: Blocked | None
    unmet: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    without_pools: SearchResult | None = None
    prices: str = ""
    model: str = ""
    error_band: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    others: tuple[Candidate, ...] = ()
    ruled_out: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    interrupted: str = ""

    @property
    def best(self) -> Candidate | None:
        """The best point, None where no point is legal."""
        return self.top[0] if self.top else None

    def lines(self) -> list[str]:
        """What was searched, and the best point with what it gives; without one, the nearest and why."""
        stopped = [f"interrupted: {self.interrupted}"] if self.interrupted else []
        lines = [*stopped, f"best {self.goal.name} of {self.points:,} points, of which {self.feasible:,} meet every "
                 "constraint"]  # fmt: skip
        if self.best is not None:
            return [*lines, _words(self.best.inputs), _words({k: value_text(v) for k, v in self.best.outputs.items()})]
        return [*lines, _words(self.nearest.candidate.inputs), *self.nearest.why[:2]] if self.nearest else lines

    def named(self, inputs: Mapping[str, Any]) -> str:
        """A point, or some inputs of one, as the tables write it."""
        from rooflm.search import said

        return said.point_text(dict(inputs))

    def blocks(self, verbose: bool = False) -> list[Block]:
        """The best point, the ten best, the trade-off, and what would be better but is not legal."""
        from rooflm.search import said

        return said.blocks(self)

    def plot(self, path: str | None = None, kind: str | None = None) -> Any:
        """The trade-off, or of training the best steps; path: write it there too."""
        return plotting().search(self, path)

    def to_dict(self) -> dict[str, Any]:
        """The best points and the trade-off, in plain Python values."""
        top, front, others = ([c.flat for c in cs] for cs in (self.top, self.front, self.others))
        told: dict[str, Any] = plain({
            "objective": self.goal.name, "points": self.points, "feasible": self.feasible, "top": top, "front": front,
            "others": others, "error_band": self.error_band, "prices": self.prices, "assumed": self.assumed,
            "interrupted": self.interrupted,
        })  # fmt: skip
        return told

    def to_pandas(self) -> pandas.DataFrame:
        """The best points: one a row, inputs then outputs."""
        rows = [c.flat for c in self.top]
        return data_frame({k: [r[k] for r in rows] for k in (rows[0] if rows else ())})


def _words(values: Mapping[str, Any]) -> str:
    """Names and values on one line of at most 100 characters, cut between pairs."""
    line = ""
    for k, v in values.items():
        pair = f"{', ' if line else ''}{k} {getattr(v, 'name', v)}"
        if len(line) + len(pair) > 100:
            break
        line += pair
    return line
