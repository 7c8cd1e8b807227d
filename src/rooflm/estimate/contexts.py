"""Context lengths at which a decode step is evaluated, and means over an output of what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.scenario.scenario import Scenario, arrays_in
from rooflm.units import Num, common_shape, larger

OUTPUT_SHARES = np.array([0.0, 0.5, 1.0])
"""Shares of the output after which the decode step is evaluated: its first, middle and last step."""
FEW = 256
"""Contexts of which none are looked for that come again: that takes as long as it would save."""


class Contexts(NamedTuple):
    """Tokens of a sequence at the first, middle and last step of its output, along a leading axis: these three or, of a
    grid whose prompts and outputs make the same lengths again and again, each length once."""

    tokens: NDArray[Any]
    which: NDArray[Any] | None = None  # then: where the three are among them, (3, *axes)

    def steps(self, x: NDArray[Any]) -> Any:
        """A number of the decode pass, which has the leading axis, at the three steps.

        >>> once = Contexts(np.array([[9.0], [17.0]]), np.array([[0, 1], [0, 1], [1, 1]]))
        >>> [found.tolist() for found in once.steps(np.array([[1.0], [2.0]]))]
        [[1.0, 2.0], [1.0, 2.0], [2.0, 2.0]]
        """
        if self.which is None:
            return x if x.ndim > 1 else x.tolist()
        own = [axis for axis, n in enumerate(self.which.shape[1:]) if n > 1]  # axes of the lengths: x has 1 along them
        others = [n for axis, n in enumerate(x.shape[1:]) if axis not in own]
        last = np.moveaxis(x, 0, -1).reshape([*others, len(x)])  # looked up along the last axis: the quickest way
        return [np.moveaxis(last[..., at.squeeze()], range(-len(own), 0), own) for at in self.which]

    def mean(self, x: Num) -> Num:
        """Average over the output of a number that may carry the leading axis (Simpson's rule)."""
        if not isinstance(x, np.ndarray) or x.ndim < self.tokens.ndim:
            return x
        first, middle, last = self.steps(x)
        mean: Num = (first + 4.0 * middle + last) / 6.0
        return mean


def contexts_of(s: Scenario) -> Contexts:
    """The contexts of a scenario; each once where nothing of a decode pass but these varies along their axes."""
    w, room = s.workload, s.engine.room
    # elsewhere lengths say more than the context: of sequences that run at once, residuals, offloaded layers, drafts
    alone = not (room.waves or s.engine.residuals) and s.offload.off and s.speculation.off
    tokens = w.prompt + 1 + larger(w.output - 2, 0) * OUTPUT_SHARES.reshape((3,) + (1,) * s.axes)
    if tokens.size < FEW or not alone:
        return Contexts(tokens)
    rest = replace(s, model=replace(s.model), workload=replace(w, prompt=0, output=0))  # the model without what it kept
    axes = zip(tokens.shape[:0:-1], common_shape(arrays_in(rest))[::-1], strict=False)  # from the last on
    each, which = np.unique(tokens, return_inverse=True)
    if any(lengths > 1 and others > 1 for lengths, others in axes) or 2 * each.size > tokens.size:
        return Contexts(tokens)
    return Contexts(each.reshape((-1,) + (1,) * s.axes), which.reshape(tokens.shape))
