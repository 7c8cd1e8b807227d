"""A stable split of rows into held-out ones and the rest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def held_out(*columns: Iterable[Any], share: float = 0.3, seed: int = 0) -> NDArray[np.bool_]:
    """Mask of held-out rows: whole groups (equal values of the columns), chosen by a hash, hence stable.

    >>> held_out([1, 1, 2, 3, 4, 4], [8, 8, 8, 8, 8, 8]).tolist()
    [False, False, False, False, True, True]
    """
    keys = list(zip(*columns, strict=True))
    texts = {key: f"{seed}|" + "|".join(str(part) for part in key) for key in set(keys)}
    hashes = {key: hashlib.blake2b(text.encode(), digest_size=8).digest() for key, text in texts.items()}
    return np.array([int.from_bytes(hashes[key], "big") / 2.0**64 < share for key in keys], dtype=bool)
