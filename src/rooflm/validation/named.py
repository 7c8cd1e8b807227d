"""The model, device and engine that a row of a table names, as the catalogue has them. What no catalogue holds is made
from the row's own sizes, or the nearest row stands in, and the request says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflm.asked.assumed import build_for, usual_engine
from rooflm.errors import ALIKE, RooflmError, near_matches
from rooflm.readers import rows as catalogue
from rooflm.readers.devices import load_device
from rooflm.readers.engine_releases import nearest_by_range, row_named, rows_of_releases
from rooflm.readers.engines import load_engine
from rooflm.readers.released import find, scheme_in_name
from rooflm.validation import sizes
from rooflm.validation.columns import MODEL_SIZES, TRAIN
from rooflm.validation.request import Unusable


def model_of(kwargs: dict[str, Any], own: dict[str, Any], assumed: list[str]) -> str:
    """Put the `model` argument in place: own sizes, the catalogue's row, the nearest; the name by which rows group."""
    printed = str(kwargs.get("model", ""))
    given = {k: v for k, v in own.items() if k in MODEL_SIZES}
    if all(given.get(name) for name in sizes.NEEDED):
        kwargs["model"] = {"name": printed or "unnamed", **given}
        return str(kwargs["model"]["name"])
    if not printed:
        raise Unusable("model is blank")
    found = catalogue.aliases("model").get(catalogue.normalise(printed))
    known = find(printed)
    if found is None and (known or catalogue.is_path(printed) or printed.endswith(".json")):
        return known.model if known else printed
    if found is None:
        counts = {**sizes.sizes_in_name(printed), **given}
        if not counts.get("params"):
            near = near_matches(printed, catalogue.names("model"))[:1]
            meant = f"did you mean {near[0]}? Else " if near else ""
            raise Unusable(
                f"model {printed} is not in the catalogue: {meant}give layers, hidden, heads and ffn, or params"
            )
        found = sizes.nearest_model(float(counts["params"]), float(counts.get("active", 0)), printed)
        lacks = [name for name in sizes.NEEDED if not given.get(name)]
        partly = f", nor made of its sizes without {' and '.join(lacks)}" if len(lacks) < len(sizes.NEEDED) else ""
        assumed.append(f"model {printed} is not in the catalogue{partly}: {found} stands in")
        kwargs["model"] = found
        if scheme := scheme_in_name(printed):
            kwargs.setdefault("quant", scheme)
        return printed
    kwargs["model"] = found
    return found


def known_device(name: str) -> str | None:
    """The device of the catalogue by its name or an alias, or None."""
    try:
        return catalogue.resolve("gpu", name) if name and not catalogue.is_path(name) else None
    except RooflmError:
        return None


def device_of(kwargs: dict[str, Any], own: dict[str, Any], assumed: list[str]) -> str:
    """Put the `gpu` argument in place (and its own figures as settings); the name by which rows group."""
    printed = str(kwargs.get("gpu", ""))
    count, one = catalogue.count_and_name(printed)
    if one != printed and not catalogue.is_path(printed):
        printed, kwargs["gpus"] = one, kwargs.get("gpus") or count
    found = known_device(printed)
    figures = {k: float(own[k]) for k in ("peak", "bandwidth", "memory") if own.get(k)}
    if found is None and catalogue.is_path(printed):
        return printed
    if found is None:
        if not printed and not figures:
            raise Unusable("gpu is blank")
        meant = near_matches(catalogue.normalise(printed), catalogue.aliases("gpu"))[:1]
        mistyped = [name for name in meant if name.translate(ALIKE) == catalogue.normalise(printed).translate(ALIKE)]
        like = known_device(next(iter(mistyped), str(own.get("like", ""))))
        like = like or (None if figures else sizes.device_in_series(printed))
        asked = f"did you mean {meant[0]}? Else " if meant else ""
        if like is None and not figures:
            raise Unusable(f"gpu {printed} is not in the catalogue: {asked}give peak, bandwidth and memory, or like")
        found = like or sizes.nearest_device(figures)
        stands = f"kernels of {found}, own rates" if figures else f"{found} stands in"
        assumed.append(f"gpu {printed} is not in the catalogue: {asked * bool(mistyped)}{stands}")
        kwargs["gpu"] = found
        kwargs["sets"] = sizes.device_settings(found, figures) | kwargs.get("sets", {})
        return printed or found
    kwargs["gpu"] = found
    return found


def nearest_by_date(plain: str, date: str) -> str:
    """Of an engine's rows of several releases, the one whose date is nearest (months; the later of two).

    >>> nearest_by_date("vllm", "2024-05"), nearest_by_date("vllm", "2025-12"), nearest_by_date("vllm", "")
    ('vllm-2024', 'vllm-0.14', 'vllm')
    """
    rows = rows_of_releases(plain)

    def months(text: str) -> int:
        year, _, month = text.partition("-")
        return 12 * int(year) + int(month[:2] or 6)

    dated = {row: load_engine(row).date for row in rows}
    if not date[:4].isdigit() or not dated.get(plain):
        return plain
    return min((row for row in rows if dated[row]), key=lambda r: (abs(months(dated[r]) - months(date)), r != plain))


def engine_row(name: str, release: str, date: str = "") -> str | None:
    """The engine's row of a release: that of its name, or whose range holds it or is nearest. Without a release, or
    without numbers in it, that nearest in date.

    >>> engine_row("trtllm", "0.9.0"), engine_row("vllm", "2024"), engine_row("vllm", "0.18.0"), engine_row("x", "")
    ('trtllm-0.9', 'vllm-2024', 'vllm-0.17', None)
    >>> engine_row("trtllm", "0.14"), engine_row("vllm", "0.99"), engine_row("vllm", "0.10.2")
    ('trtllm-0.17', 'vllm-0.28', 'vllm-0.10.2')
    >>> engine_row("hf-eager-4.36", "")
    'hf-eager-4.36'
    """
    known = catalogue.aliases("engine")
    plain = known.get(catalogue.normalise(name)) or row_named(name)
    if plain is None or not release:
        return plain and nearest_by_date(plain, date)
    exact = known.get(catalogue.normalise(f"{name}-{release}"))
    return exact or nearest_by_range(plain, release) or nearest_by_date(plain, date)


def engine_of_row(kwargs: Mapping[str, Any], task: str, release: str, assumed: list[str], date: str = "") -> str:
    """The engine's row of a request: the build for its device's software where the engine has one."""
    printed = str(kwargs.get("engine", ""))
    found = engine_row(printed, release, date) if printed else None
    if found is None and catalogue.is_path(printed):
        return printed
    if found is None:
        found = usual_engine("training" if task == TRAIN else "inference")
        why = f"engine {printed} is not in the catalogue" if printed else "engine not stated"
        assumed.append(f"{why}: {found}")
    software = "" if catalogue.is_path(str(kwargs["gpu"])) else load_device(str(kwargs["gpu"])).software
    named = catalogue.aliases("engine").get(build_for(f"{printed}-{release}", software))  # builds have releases apart
    if software and named:
        return named
    build = build_for(found, software)
    if not release and build != found:  # the nearest in date of the build's own releases
        build = build_for(catalogue.aliases("engine").get(catalogue.normalise(printed), found), software)
    return found if build == found else engine_row(build, release, date) or build
