"""One family of errors; every message names the field, the value, the rule and the nearest right answer."""

from __future__ import annotations

import copyreg
import difflib
import re
from collections.abc import Iterable
from typing import Any

LONGEST = 1000
"""Most characters of a message: a value of a file may be as long as the file."""


class RooflmError(ValueError):
    """Bad input: the message is one sentence that a person can act on, in one line."""

    def __init__(self, message: str) -> None:
        line = message if message.isprintable() else " ".join(message.split())
        half = LONGEST // 2
        super().__init__(line if len(line) <= LONGEST else f"{line[:half]} ... {line[-half:]}")

    def __reduce__(self) -> Any:
        """As workers send it back: its kind, its sentence and what else it holds."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class RooflmWarning(UserWarning):
    """An answer rests on a guess that a person should know of: the message says which."""


class UnknownNameError(RooflmError):
    """A name that no catalogue row has, with the names nearest to it."""

    def __init__(
        self, what: str, name: str, known: Iterable[str], hint: str = "", near: list[str] | None = None
    ) -> None:
        near = near_matches(name, known) if near is None else near
        tail = f": did you mean {' or '.join(map(repr, near))}" if near else f"; see `rooflm list {what.lower()}s`"
        super().__init__(f"unknown {what} {name!r}{tail}{hint}{'?' * bool(near)}")
        self.near, self.hint = near, hint


ALIKE = str.maketrans("oil", "011")
"""Characters that are typed for one another, each as one of them."""


def near_matches(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """The known names most like `name`, best first; sharing a whole piece between hyphens counts before looks, and
    numbers alone make none alike.

    >>> near_matches("h100-sxm5", ["h100-sxm-80gb", "a100-sxm-80gb", "l4"], limit=1), near_matches("h1oo", ["h100"])
    (['h100-sxm-80gb'], ['h100'])
    >>> near_matches("iphone-16", ["mi50-16gb", "p100-pcie-16gb"])
    []
    """
    low = name.lower().strip()
    pieces = _pieces(low)
    words = [p for p in pieces if not p[0].isdigit()]

    def score(candidate: str) -> float:
        ratio = difflib.SequenceMatcher(None, low.translate(ALIKE), candidate.translate(ALIKE)).ratio()
        shared = sum(len(p) for p in pieces if len(p) > 1 and p in candidate)
        joined = len(low) > 2 and "".join(pieces) in candidate.replace("-", "")
        return ratio + 0.5 * max(shared / max(len(low), 1), joined)

    def alike(candidate: str) -> bool:
        return not words or any(
            p in candidate or difflib.get_close_matches(p.translate(ALIKE), _pieces(candidate.translate(ALIKE)), 1)
            for p in words
        )

    ranked = sorted(known, key=lambda n: (-score(n), n))
    near = [n for n in ranked[:limit] if score(n) >= (0.6 if len(low) > 3 or n[:1] == low[:1] else 0.7)]
    return [n for n in near if alike(n)]


def _pieces(name: str) -> list[str]:
    """The parts of a name between hyphens, underscores, slashes and spaces."""
    return [p for p in re.split(r"[-_/\s]+", name) if p]
