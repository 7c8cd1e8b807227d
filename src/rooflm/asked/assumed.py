"""Which engine runs where nobody names one, and which build or release of it: by what the rows of engines say."""

from __future__ import annotations

from functools import cache
from typing import Any

from rooflm.catalogue.abilities import listed
from rooflm.catalogue.quant import Quant
from rooflm.readers.engines import load_engine
from rooflm.readers.rows import aliases, is_path, names, normalise, raw_row


@cache
def _rows(phase: str = "") -> dict[str, dict[str, Any]]:
    """Engine -> its row, of those that serve ("inference"), that train, or of all."""
    return {n: raw_row("engine", n)[0] for n in names("engine") if phase in ("", load_engine(n).phase)}


def build_for(name: str, software: str) -> str:
    """The row of an engine's build for a device's software, where the catalogue has one; else the name as it is.

    >>> build_for("llama.cpp", "rocm"), build_for("vllm", "rocm"), build_for("llama.cpp", "")
    ('llama.cpp-rocm', 'vllm-rocm', 'llama.cpp')
    """
    if not software or is_path(name):
        return name
    known = aliases("engine")
    plain = known.get(normalise(name), name)
    return known.get(f"{plain}-{software}", name)


@cache
def other_releases(name: str) -> tuple[str, ...]:
    """The rows of other releases of an engine of the catalogue, where it has any.

    >>> other_releases("llama.cpp"), other_releases("hf-eager")
    (('llama.cpp-2024-05',), ())
    """
    return tuple(n for n, row in _rows().items() if row.get("family") == name and n != name)


@cache
def usual_engine(phase: str) -> str:
    """The engine that is assumed where none is named, of a phase ("inference", "training"): the row that says `usual`.

    >>> usual_engine("inference"), usual_engine("training")
    ('vllm', 'megatron')
    """
    return next(name for name, row in _rows(phase).items() if row.get("usual"))


@cache
def engines_instead(phase: str, of: str = "instead") -> tuple[str, ...]:
    """Engines that are assumed where the usual one of a phase cannot run what is asked, by the field that says so.

    >>> engines_instead("inference")[0], engines_instead("training", "for_adapters")
    ('llama.cpp', ('peft',))
    """
    places = {name: int(row[of]) for name, row in _rows(phase).items() if row.get(of)}
    return tuple(sorted(places, key=lambda name: places[name]))


def assumed_engine(own: str | None, quant: Quant, *kinds: str) -> str:
    """The engine that is assumed where none is named: that of the card's own measurements, else the usual one, or where
    it does not run the scheme or is not built for the card's product family, one that does and is.

    >>> from rooflm.readers.schemes import PRESETS
    >>> assumed_engine(None, PRESETS["fp8"]), assumed_engine(None, PRESETS["q4_k_m"])
    ('vllm', 'llama.cpp')
    """

    def able(name: str) -> bool:
        abilities = load_engine(name).abilities
        return abilities.runs(quant) and not set(kinds) & set(listed(abilities.elsewhere))

    usual = own or usual_engine("inference")
    others = () if own or able(usual) else engines_instead("inference")
    return next((name for name in others if able(name)), usual)
