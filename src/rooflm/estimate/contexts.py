"""How long the contexts are at which a decode step is evaluated, and its mean over the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.scenario.scenario import Scenario, arrays_in
from rooflm.units import Num, common_shape, larger

OUTPUT_SHARES = np.array([0.0, 0.5, 1.0])
"""Shares of the output after which the decode step is evaluated: its first, middle and last step."""


class Contexts(NamedTuple):
    """Tokens of a sequence at the first, middle and last step of its output, along a leading axis: these three or, of a
    grid whose prompts and outputs make the same lengths again and again, each length once."""

    tokens: NDArray[Any]
    which: NDArray[Any] | None = None  # then: where the three are among them, (3, *axes)

    def steps(self, x: NDArray[Any]) -> Sequence[Num]:
        """A number of the decode pass, which has the leading axis, at the three steps."""
        if self.which is None:
            return x if x.ndim > 1 else x.tolist()
        own = [axis for axis, n in enumerate(self.which.shape[1:]) if n > 1]
        rows = np.moveaxis(x, 0, -1).reshape([n for axis, n in enumerate(x.shape[1:]) if axis not in own] + [len(x)])
        at = [np.take(rows, one.squeeze(), axis=-1) for one in self.which]
        return [np.moveaxis(one, range(-len(own), 0), own) for one in at]

    def mean(self, x: Num) -> Num:
        """Average over the output of a number that may carry the leading axis (Simpson's rule).

        >>> float(Contexts(np.ones(3)).mean(np.array([1.0, 2.0, 3.0])))
        2.0
        >>> Contexts(np.ones((2, 1)), np.array([[0, 0], [0, 1], [1, 1]])).mean(np.array([[0.0], [6.0]])).tolist()
        [1.0, 5.0]
        """
        if not isinstance(x, np.ndarray) or x.ndim < self.tokens.ndim:
            return x
        first, middle, last = self.steps(x)
        return (first + 4.0 * middle + last) / 6.0


MANY = 256
"""Contexts of a grid from which on it is worth a look whether they are the same again and again."""


def contexts_of(s: Scenario) -> Contexts:
    """The contexts of a scenario; each once where nothing of a decode pass but these varies along their axes."""
    w, own = s.workload, s.engine.room.waves or s.engine.residuals or not (s.offload.off and s.speculation.off)
    tokens = w.prompt + 1 + larger(w.output - 2, 0) * OUTPUT_SHARES.reshape((3,) + (1,) * s.axes)
    if own or tokens.size < MANY:
        return Contexts(tokens)
    each, which = np.unique(tokens, return_inverse=True)
    others = common_shape(arrays_in(replace(s, model=replace(s.model), workload=replace(w, prompt=0, output=0))))
    along = any(n > 1 and m > 1 for n, m in zip(tokens.shape[1:], others, strict=False))
    if along or 2 * each.size > tokens.size:
        return Contexts(tokens)
    return Contexts(each.reshape((-1,) + (1,) * s.axes), which.reshape(tokens.shape))
