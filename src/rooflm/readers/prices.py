"""The basis of a device's hourly price (its kind and date), shown next to every cost."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rooflm.catalogue.hardware import Device
from rooflm.readers.provenance import Source

GIVEN, OWN = "as given", "of one's own"


def basis(found: Source | None) -> str:
    """Kind and date of a price in words: the first clause of its source.

    >>> basis(Source("Rough price of an hour, set in proportion", "2026-05", "inferred"))
    'rough price of an hour, inferred, 2026-05'
    """
    if found is None:
        return ""
    what = found.source.partition(",")[0]
    return ", ".join(word for word in (what[:1].lower() + what[1:], found.kind, found.date) if word)


def price_note(devices: Iterable[Device]) -> str:
    """The hourly prices of devices and their basis in words, grouped by basis; "" if every price is a list.

    >>> from rooflm.readers.devices import load_device
    >>> price_note([load_device("l4"), load_device("rtx-4090")])
    'l4 0.7 and rtx-4090 0.45 USD an hour (rough on-demand price of one device an hour, inferred, 2026-05)'
    """
    groups: dict[str, list[str]] = {}
    for d in devices:
        if np.ndim(d.price) == 0:
            groups.setdefault(d.priced, []).append(f"{d.name} {float(d.price):.4g}")
    return "; ".join(f"{in_words(dict.fromkeys(each))} USD an hour ({why or 'of its file'})"
                     for why, each in groups.items())  # fmt: skip


def in_words(names: Iterable[str]) -> str:
    """Names as a sentence lists them.

    >>> in_words(["l4"]), in_words(["l4", "t4", "v100"])
    ('l4', 'l4, t4 and v100')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
