"""Generations of a family of cards, as a walk: each starts from the one before it, so that a card of a generation
nobody measured stands on its neighbours in time and not on the mean of ten years."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from rooflm.readers.devices import load_device
from rooflm.readers.rows import names
from rooflm_fit.jobs import Job


@cache
def generations(family: str, vendor: str) -> tuple[tuple[str, int], ...]:
    """Architectures of a vendor's cards of a product family, each with the year of its first, in that order.

    >>> [name for name, _ in generations("apple", "apple")][:3]
    ['apple-m1', 'apple-m2', 'apple-m3']
    """
    first: dict[str, int] = {}
    for device in map(load_device, names("gpu")):
        if (device.product_family, device.vendor) == (family, vendor):
            first[device.architecture] = min(device.year, first.get(device.architecture, device.year))
    return tuple(sorted(first.items(), key=lambda item: (item[1], item[0])))


@cache
def line(gpu: str) -> tuple[str, ...]:
    """Keys of the constants that a card's family and the generations up to its own have: their product is what a card
    of that generation reaches.

    >>> line("rtx-4090")
    ('~geforce', '~geforce/turing', '~geforce/ampere', '~geforce/ada')
    """
    device = load_device(gpu)
    known = [name for name, _ in generations(device.product_family, device.vendor)]
    family = f"~{device.product_family}"
    return (family, *(f"{family}/{name}" for name in known[1 : known.index(device.architecture) + 1]))


def kin(gpu: str) -> str:
    """The product family of a card as a key of constants, which no card's name is.

    >>> kin("rtx-4090")
    '~geforce'
    """
    return line(gpu)[0]


def places(
    job: Job, constants: Mapping[str, float], cards: Sequence[str]
) -> dict[str, tuple[list[str], tuple[str, ...], int]]:
    """What gets factors of a fit: a card, a family, or a generation of one where the job tells those apart; each with
    the lines that name it (with its cards that have none of their own), the keys of the constants that it is the
    product of, and its rows. cards: of every row of the fit."""
    done: dict[str, tuple[list[str], tuple[str, ...], list[str]]] = {}
    for gpu in sorted(set(cards)):
        if any(k.startswith(f"{gpu}|") for k in constants):
            done[gpu] = ([f'gpu = "{gpu}"'], (gpu, *line(gpu)), [gpu])
        device, keys = load_device(gpu), line(gpu)
        named, place = [f'product_family = "{device.product_family}"'], keys[0]
        if job.generation:
            year = dict(generations(device.product_family, device.vendor))[device.architecture]
            named += [f'architecture = "{device.architecture}"', f"year = {year}"]
            place += f"/{device.architecture}"
        if job.kin:
            done.setdefault(place, (named, keys if job.generation else keys[:1], []))[2].append(gpu)
    for place, (named, _, own) in done.items():
        if rest := sorted({*own} - {*done, place}):
            named.append(f'cards = "{", ".join(rest)}"')
    return {k: (named, keys, sum(gpu in own for gpu in cards)) for k, (named, keys, own) in done.items()}
