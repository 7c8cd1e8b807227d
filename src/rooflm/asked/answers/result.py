"""What every answer can do: say itself in a few lines, compare, and become plain names and numbers (the keys of
--json, the columns of files, the variables of a Dataset) by one table of outputs a kind of answer."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from rooflm.asked.answers.bands import bands_around
from rooflm.asked.answers.outputs import Outputs
from rooflm.estimate.figures import Figures
from rooflm.shown.answer import Answer, broadcast, data_frame, flatten, plain, same

if TYPE_CHECKING:
    import pandas


class Result(Answer, Figures):
    """What answers share. OUTPUTS: their table."""

    OUTPUTS: ClassVar[Outputs] = {}
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, found: Figures, assumed: tuple[str, ...], warnings: tuple[str, ...]) -> Self:
        """The answer that these figures give, as they were worked out."""
        made = object.__new__(cls)
        made.__dict__.update(found.__dict__, assumed=assumed, warnings=warnings)
        return made

    def values(self, names: Collection[str] | None = None) -> dict[str, Any]:
        """Outputs by their keys (all, or those named); groups are dicts. Numbers may be arrays."""
        return {k: self.plainly(o.read(self)) for k, o in self.OUTPUTS.items() if names is None or k in names}

    def to_dict(self) -> dict[str, Any]:
        """Every output by its key of --json, in plain Python values, ready for `json.dumps`."""
        return {**plain(self.values()), "assumed": list(self.assumed), "warnings": list(self.warnings)}

    def to_pandas(self) -> pandas.DataFrame:
        """One row (or one a point, where numbers are arrays) with a column an output, groups by dotted names."""
        return data_frame({k: np.ravel(v) for k, v in broadcast(flatten(self.values())).items()})

    @property
    def error_band(self) -> dict[str, dict[str, Any]]:
        """Output -> low and high end of its error band (four of five measurements like it lie inside) and the number
        of published rows behind it; not-a-number and 0 rows where nothing was calibrated."""
        asked = {k: (o.phase, o.read(self), o.roof(self)) for k, o in self.OUTPUTS.items() if o.phase}
        return {k: self.plainly(v) for k, v in bands_around(self.scenario, asked).items()}

    def __eq__(self, other: object) -> bool:
        """Whether both give the same outputs."""
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = flatten(self.values()), flatten(other.values())
        return mine.keys() == theirs.keys() and all(map(same, mine.values(), theirs.values()))

    __hash__ = None  # type: ignore[assignment]  # estimates are compared by their numbers, which may be arrays
