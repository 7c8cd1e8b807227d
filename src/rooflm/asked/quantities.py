"""Numbers as a person writes them for an argument: 8k, 128K tokens, 1.4T, 120/min, 10%, or with any known unit."""

from __future__ import annotations

import re
from functools import lru_cache

from rooflm.errors import RooflmError
from rooflm.readers.quantities import NUMBER, TIMES, UNITS, parse, standing
from rooflm.scenario.scenario import Efficiency

READ = ("", "s", "B", "B/s", "W", "tokens")
"""Units that `amount` knows of the fields of a scenario."""
_LARGE = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_EXAMPLES = {
    "tokens": " of tokens such as 512, 8k or 128K",
    "1/s": " such as 2.5 or 120/min",
    "s": " such as 500ms",
    "USD": " such as 2.5, 1500 or 1.5 kUSD",
    "USD/h": " such as 2.5 or $2.5/h",
}


def amount(text: str, unit: str = "", field: str = "value") -> int | float:
    """A number as a person writes it, in the unit of its argument: a count may end in k, M, B or T (powers of ten), a
    length in tokens in k or M (powers of 1024, as contexts are named), a rate in /s, /min or /h, a share in %; days,
    hours and every unit of `parse` alike. A whole number stays one.

    >>> amount("8k", "tokens"), amount("128K", "tokens"), amount("1M", "tokens"), amount("300B"), amount("1e12")
    (8192, 131072, 1048576, 300000000000, 1000000000000.0)
    >>> amount("2.5", "d"), amount("3 weeks", "d"), amount("120/min", "1/s"), amount("10%"), amount("20 GWh", "J")
    (2.5, 21.0, 2.0, 0.1, 72000000000000.0)
    >>> amount("1.5 kUSD", "USD"), amount("$2.5/h", "USD/h"), amount("1.4m usd", "USD")
    (1500, 2.5, 1400000)
    """
    plain = text.strip().replace("_", "")
    if unit.startswith("USD"):
        plain = standing(plain.lower().removesuffix(unit[3:].lower()), "usd")[0].replace("usd", "").strip()
    try:
        return int(plain) if plain.lstrip("+-").isdigit() else float(plain)
    except ValueError:
        pass
    match = NUMBER.fullmatch(plain)
    si_name = {"s": "s", "J": "j", "B/s": "bytes/s", "B": "bytes", "W": "w"}.get(unit)
    if si_name:
        return parse(plain, si_name, field)
    if match is None:
        raise RooflmError(
            f"{field} is {text!r}, but it must be a number{_EXAMPLES.get(unit, ' such as 64, 8k or 1.5M')}"
        )
    ending = match[2].strip()
    if unit in ("d", "h") and ending in TIMES and not (unit == "h" and ending == "m"):
        return float(match[1]) * TIMES[ending] / TIMES[unit]
    if unit == "1/s" and ending.startswith("/") and ending[1:] in TIMES:
        return float(match[1]) / TIMES[ending[1:]]
    if ending == "%":
        return float(match[1]) / 100
    return _scaled(plain, match, field, unit)


def _scaled(text: str, match: re.Match[str], field: str, unit: str = "") -> int | float:
    """A number that ends in k, M, B or T."""
    ending = match[2].strip().lower().removesuffix("tokens").strip()
    scale = {"k": 2.0**10, "m": 2.0**20}.get(ending) if unit == "tokens" else None
    scale = scale or _LARGE.get(ending) or (1.0 if not ending else None)
    if scale is None:
        example = _EXAMPLES.get(unit, " such as 64, 8k or 1.5M")
        raise RooflmError(f"{field} is {text!r}, but it must be a number{example}")
    value = float(match[1]) * scale
    return int(value) if value.is_integer() else value


def quantity_of_any_unit(text_: str, field: str) -> float:
    """A quantity whose unit may be any of the known ones ("2 TB/s", "80 GiB", "5 us"); SI.

    >>> quantity_of_any_unit("5 us", "engine.gap")
    5e-06
    """
    for unit in UNITS:
        try:
            return parse(text_, unit, field)
        except RooflmError:
            continue
    raise RooflmError(
        f"{field} is {text_!r}, which is no quantity: write a number with a unit such as 2 TB/s, 80 GiB or 5 us"
    )


@lru_cache(maxsize=256)
def parse_efficiency(text: str) -> Efficiency:
    """ "ideal", "calibrated", or flat factors "F,M" or "F,M,N" (compute, memory, network).

    Raises RooflmError for anything else, and for factors outside [1e-6, 1].

    >>> parse_efficiency("0.7,0.9").memory
    0.9
    """
    low = text.strip().lower()
    if low in ("ideal", "calibrated"):
        return Efficiency(low)
    pieces = low.split(",")
    try:
        factors = [float(p) for p in pieces]
    except ValueError:
        factors = []
    if len(factors) not in (1, 2, 3):
        raise RooflmError(f"efficiency is {text!r}, but it must be 'ideal', 'calibrated' or factors such as '0.7,0.9'")
    for factor in factors:
        if not 1e-6 <= factor <= 1:
            raise RooflmError(f"efficiency is {text!r}, but each factor must be from 0.000001 to 1")
    compute = factors[0]
    memory = factors[1] if len(factors) > 1 else compute
    return Efficiency("flat", compute, memory, factors[2] if len(factors) > 2 else 1.0)
