"""What every table of the older format says alike: the model, the device, the engine, where a figure is printed."""

from __future__ import annotations

import re
from typing import Any

from rooflm.readers import rows as catalogue
from rooflm_fit.convert import names
from rooflm_fit.convert.cells import Row, Unusable, number, text, trust_of

_COUNTS = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)[bB](?:[-_ ]?[aA](\d+(?:\.\d+)?)[bB])?(?![a-z0-9])")
_DATE = re.compile(r"(?<=\()\d{4}(?:-\d\d){0,2}(?=\))|(?<=\bof )20\d\d-\d\d(?:-\d\d)?\b")
"""A date in brackets, or of what something is: a post of 2025-10-12, an image of 2025-09."""
_MONTH = re.compile(r"\barXiv[: ]+(\d\d)([01]\d)\.\d{4,5}|(?<![\d.])20(\d\d)-?([01]\d)(?![\d.])", re.IGNORECASE)
"""Where a source names no day: the month of a preprint's number, or that in a file's name."""


def counts_in(name: str) -> tuple[float, float]:
    """(parameters, those that a token uses) that a model's name states; 0 where it does not.

    >>> counts_in("Qwen3.6-35B-A3B-BF16"), counts_in("Llama-30B"), counts_in("GPT-4")
    ((35000000000.0, 3000000000.0), (30000000000.0, 0.0), (0.0, 0.0))
    """
    found = _COUNTS.search(name)
    return (float(found[1]) * 1e9, float(found[2] or 0) * 1e9) if found else (0.0, 0.0)


def model_cells(name: str, params_b: float | None = None) -> tuple[str, dict[str, Any]]:
    """(resolved name, cells) of a printed model: the catalogue's name, sizes, or the counts that find the nearest."""
    if not name:
        return "", {}
    try:
        return names.model_cells(name)
    except Unusable:
        params, active = names.table()["counts"].get(catalogue.normalise(name)) or counts_in(name)
        params = params_b * 1e9 if params_b else params
        return name, {"model": name, "params": params or None, "active": active or None}


def counted(row: Row) -> Row:
    """The row, a count in the name of its card moved to its own column, which holds where both are there.

    >>> counted({"gpu": "8xH100"}), counted({"gpu": "H100 x8", "gpus": "2"})
    ({'gpu': 'H100', 'gpus': '8'}, {'gpu': 'H100', 'gpus': '2'})
    """
    count, one = catalogue.count_and_name(text(row, "gpu"))
    return {**row, "gpu": one, "gpus": text(row, "gpus") or str(count)} if one != text(row, "gpu") else row


def gpu_cells(name: str, source: str = "") -> tuple[str, dict[str, Any]]:
    """(resolved name, cells) of a printed device: the catalogue's name, or its own figures out of aliases.toml."""
    try:
        found = names.gpu(name, source)
        return found, {"gpu": found}
    except Unusable:
        return name, {"gpu": name, **names.table()["cards"].get(catalogue.normalise(name), {})}


def engine_cells(name: str, source: str) -> dict[str, Any]:
    """engine and release of a printed engine, and what it stands in for where it is another's kin."""
    try:
        engine, release = names.engine(name, source)
    except Unusable:
        return {"engine": "" if name.lower().startswith("unstated") else name}
    rule = names.rule_of(name, source)
    return {"engine": engine, "release": release} | ({"stand_in": rule["stand_in"]} if "stand_in" in rule else {})


def origin(row: Row, source: str, trust: str = "") -> dict[str, Any]:
    """id, source, url, date, trust and note of a row.

    >>> noted = ("a blog post of 2025-10-12, prompts of 2048", "image of 2025-09; table (2024)", "prompts of 2048")
    >>> [origin({"id": "x", "note": note}, "x")["date"] for note in noted]
    ['2025-10-12', '2024', '']
    >>> [origin({"source": said}, "x")["date"] for said in ("A paper, arXiv 2411.00136", "h100_202412_torchtitan.md")]
    ['2024-11', '2024-12']
    """
    note = text(row, "note")
    day = _DATE.findall(note) or _DATE.findall(text(row, "source"))
    day = day or ["20" + "-".join(filter(None, found)) for found in _MONTH.findall(text(row, "source"))[:1]]
    return {
        "id": text(row, "id"), "source": source, "url": text(row, "source"), "date": day[-1] if day else "",
        "trust": trust_of(note, trust), "note": note,
    }  # fmt: skip


def printed(row: Row, names_of: tuple[str, ...]) -> dict[str, Any]:
    """Whole numbers above 0 of columns, by the same names; blank for anything else."""
    found = {name: number(row, name) for name in names_of}
    return {k: int(v) for k, v in found.items() if v is not None and v >= 1 and v == int(v) and v < 1e12}


def split_cells(row: Row, devices: int = 1) -> dict[str, int]:
    """gpus, tp and pp as printed; what of the three is blank follows from the others. devices: what software sees of
    one printed GPU, over which it cuts tensors.

    >>> split_cells({"gpus": "16", "tp": "8"}), split_cells({"tp": "2"}), split_cells({"gpus": "8"})
    ({'gpus': 16, 'tp': 8, 'pp': 2}, {'tp': 2, 'gpus': 2}, {'gpus': 8})
    >>> split_cells({"gpus": "2", "tp": "2", "pp": "1"}, devices=2), split_cells({"gpus": "8", "tp": "16"})
    ({'gpus': 4, 'tp': 4, 'pp': 1}, {'gpus': 8, 'tp': 16})
    """
    found = printed(row, ("gpus", "tp", "pp"))
    found |= {name: devices * found[name] for name in ("gpus", "tp") if name in found}
    gpus, tp, pp = (found.get(name, 0) for name in ("gpus", "tp", "pp"))
    if tp and not gpus:
        found["gpus"] = tp * max(pp, 1)
    elif tp and not pp and gpus % tp == 0:
        found["pp"] = gpus // tp
    elif pp and not tp and gpus and gpus % pp == 0:
        found["tp"] = gpus // pp
    return found
