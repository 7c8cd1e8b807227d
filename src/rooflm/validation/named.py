"""The model, device and engine that a row of a table names, as the catalogue has them. What no catalogue holds is made
from the row's own sizes, or the nearest row stands in, and the request says so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

from rooflm.asked.answers.bands import fitted, kind_of
from rooflm.asked.assumed import assumed_engine, build_for, usual_engine
from rooflm.asked.build_inference import find_model, quant_for
from rooflm.asked.build_training import assumed_trainer
from rooflm.asked.machine import node_size
from rooflm.errors import ALIKE, RooflmError, near_matches
from rooflm.readers import rows as catalogue
from rooflm.readers.devices import default_cluster, load_cluster, load_device
from rooflm.readers.engine_releases import nearest_by_range, row_named, rows_of_releases
from rooflm.readers.engines import family_of, load_engine
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
        newest = None if counts.get("params") else sizes.newest_in_series(printed)
        if not counts.get("params") and not newest:
            near = near_matches(printed, catalogue.names("model"))[:1]
            meant = f"did you mean {near[0]}? Else " if near else ""
            raise Unusable(
                f"model {printed} is not in the catalogue: {meant}give layers, hidden, heads and ffn, or params"
            )
        found = newest or sizes.nearest_model(float(counts["params"]), float(counts.get("active", 0)), printed)
        lacks = [name for name in sizes.NEEDED if not given.get(name)]
        partly = f", nor made of its sizes without {' and '.join(lacks)}" if len(lacks) < len(sizes.NEEDED) else ""
        assumed.append(f"model {printed} is not in the catalogue{partly}: {found} stands in")
        kwargs["model"] = found
        if scheme := scheme_in_name(printed):
            kwargs.setdefault("quant", scheme)
        return printed
    kwargs["model"] = found
    return found


@cache
def _words_of_devices() -> dict[frozenset[str], set[str]]:
    """The words of every alias, in any order -> its devices."""
    found: dict[frozenset[str], set[str]] = {}
    for alias, row in catalogue.aliases("gpu").items():
        found.setdefault(frozenset(alias.split("-")), set()).add(row)
    return found


def known_device(name: str) -> str | None:
    """The device of the catalogue by its name or an alias, whose words may come in another order, or None.

    >>> known_device("H100 80GB SXM5"), known_device("A100 (40 GB, PCIe)"), known_device("H300")
    ('h100-sxm-80gb', 'a100-pcie-40gb', None)
    """
    if not name or catalogue.is_path(name):
        return None
    plain = re.sub(r"(?<=\d)[ -]?gi?b\b", "gb", re.sub(r"(?<=sxm)\d", "", name.lower()))
    words = re.findall(r"[a-z0-9.+]+", plain)
    with suppress(RooflmError):
        return catalogue.resolve("gpu", "-".join(words))
    rows = _words_of_devices().get(frozenset(words) - {"nvidia", "amd", "geforce"}, set())
    with suppress(RooflmError):
        return next(iter(rows)) if len(rows) == 1 else catalogue.resolve("gpu", name)
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
        unlike = partial(unlike_told, kwargs)
        like = known_device(next(iter(mistyped), str(own.get("like", ""))))
        beside, why = catalogue.beside_of("gpu", printed) or ("", "")
        like = like or (None if figures else beside or sizes.device_in_series(printed, unlike))
        asked = f"did you mean {meant[0]}? Else " if meant else ""
        if like is None and not figures:
            raise Unusable(f"gpu {printed} is not in the catalogue: {asked}give peak, bandwidth and memory, or like")
        found = like or sizes.nearest_device(figures, unlike)
        stands = f"kernels of {found}, own rates" if figures else f"{found} stands in"
        stands += f" ({why})" * (found == beside)
        assumed.append(f"gpu {printed} is not in the catalogue: {asked * bool(mistyped)}{stands}")
        kwargs["gpu"] = found
        kwargs["sets"] = sizes.device_settings(found, figures) | kwargs.get("sets", {})
        return printed or found
    kwargs["gpu"] = found
    return found


def unlike_told(kwargs: Mapping[str, Any], device: str) -> int:
    """In how many things a device is not what a row tells of its own: no run of the row's engine was fitted on its kind
    of cards, that is a build for other software, or a node has fewer of it than a tensor group.

    >>> [unlike_told({"engine": "llama.cpp-rocm", "tp": 8}, name) for name in ("mi300x", "h100", "tpu-v4")]
    [1, 2, 2]
    """
    one, engine = load_device(device), engine_row(str(kwargs.get("engine", "")), "")
    unlike = 2 * int(node_size(load_cluster(default_cluster(device), device)) < int(kwargs.get("tp") or 1) <= 8)
    if engine is None:
        return unlike
    told = next((name for name in ("rocm", "metal", "vulkan") if f"-{name}" in engine), "")
    suits = one.software == told if told else not one.software or build_for(engine, one.software) != engine
    family = family_of(engine)
    fits = any(kind_of(one) == on and f.startswith(family) for f, _, on in fitted())
    return unlike + (not suits) + (not fits)


def nearest_by_date(plain: str, date: str) -> str:
    """Of an engine's rows of several releases, the one whose date is nearest (months; the later of two).

    >>> nearest_by_date("vllm", "2024-05"), nearest_by_date("vllm", "2025-12"), nearest_by_date("vllm", "")
    ('vllm-2024', 'vllm-0.14', 'vllm')
    """
    rows = rows_of_releases(plain)

    dated = {row: month_of(load_engine(row).date) for row in rows}
    asked = month_of(date)
    if not asked or not dated.get(plain):
        return plain
    return min((row for row in rows if dated[row]), key=lambda r: (abs(dated[r] - asked), r != plain))


MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def month_of(date: str) -> int:
    """Months since year 0 of a date as people write it, June where it has no month; 0 where it has no year.

    >>> [month_of(text) - 12 * 2025 for text in ("2025-03-28", "03/2025", "28.03.2025", "March 2025", "2025/3", "2025")]
    [3, 3, 3, 3, 3, 6]
    >>> month_of("03/28/2025") - 12 * 2025, month_of("last week")
    (3, 0)
    >>> month_of("20250328") - 12 * 2025, month_of("Q3 2025") - 12 * 2025
    (3, 6)
    """
    date = re.sub(r"\b((?:19|20)\d\d)(\d\d)(\d\d)\b", r"\1-\2-\3", date)
    year = re.search(r"(?:19|20)\d\d", date)
    if not year:
        return 0
    after, before = (re.findall(r"\b\d+\b|[a-z]+", side.lower()) for side in (date[year.end() :], date[: year.start()]))
    named = [MONTHS.index(part[:3]) + 1 for part in (*after, *before) if part[:3] in MONTHS]
    counted = [int(part) for part in (*after, *reversed(before)) if part.isdigit() and 1 <= int(part) <= 12]
    return 12 * int(year[0]) + (*named, *counted, 6)[0]


_SIGNS = re.compile(r"[^a-z0-9.]+")
"""What may stand between a name and its release."""


def engine_row(name: str, release: str, date: str = "") -> str | None:
    """The engine's row of a release: that of its name, or whose range holds it or is nearest. Without a release, or
    without numbers in it, that nearest in date.

    >>> engine_row("trtllm", "0.9.0"), engine_row("vllm", "2024"), engine_row("vllm", "0.18.0"), engine_row("x", "")
    ('trtllm-0.9', 'vllm-2024', 'vllm-0.18', None)
    >>> engine_row("trtllm", "0.14"), engine_row("vllm", "0.99"), engine_row("vllm", "0.10.2")
    ('trtllm-0.17', 'vllm-0.28', 'vllm-0.10.2')
    >>> engine_row("hf-eager-4.36", ""), engine_row("vLLM (0.8.5)", "")
    ('hf-eager-4.36', 'vllm-0.8')
    """
    known = catalogue.aliases("engine")
    plain = (
        known.get(catalogue.normalise(name)) or row_named(name) or row_named(_SIGNS.sub("-", name.lower()).strip("-"))
    )
    if plain is None or not release:
        return plain and nearest_by_date(plain, date)
    exact = known.get(catalogue.normalise(f"{name}-{release}"))
    return exact or nearest_by_range(plain, release) or nearest_by_date(plain, date)


def engine_to_assume(kwargs: Mapping[str, Any], task: str) -> str:
    """The engine of a row that names none of the catalogue: one that its name holds as a word, else the one that a
    command assumes for its device, scheme and task.

    >>> row = {"gpu": "h100", "model": "llama-7b"}
    >>> told = ({"engine": "vLLM-omni"}, {"quant": "q4_k_m"}, {"gpu": "mi50"})
    >>> [engine_to_assume(row | more, "infer") for more in told]
    ['vllm', 'llama.cpp', 'llama.cpp']
    """
    words = _SIGNS.sub("-", f"-{kwargs.get('engine', '')}-".lower())
    phase = "training" if task == TRAIN else "inference"
    held = [
        a for a, row in catalogue.aliases("engine").items() if f"-{a}-" in words and load_engine(row).phase == phase
    ]
    if held:
        return catalogue.aliases("engine")[max(held, key=len)]
    with suppress(RooflmError):
        model, device = find_model(sizes.model_argument(kwargs["model"])), load_device(str(kwargs["gpu"]))
        if task == TRAIN:
            return assumed_trainer(model, dict(kwargs), device)
        return assumed_engine(None, quant_for(model, kwargs.get("quant"), []), device)
    return usual_engine(phase)


def engine_of_row(kwargs: Mapping[str, Any], task: str, release: str, assumed: list[str], date: str = "") -> str:
    """The engine's row of a request: the build for its device's software where the engine has one."""
    printed = str(kwargs.get("engine", ""))
    found = engine_row(printed, release, date) if printed else None
    if found is None and catalogue.is_path(printed):
        return printed
    software = "" if catalogue.is_path(str(kwargs["gpu"])) else load_device(str(kwargs["gpu"])).software
    if found is None:
        usual = build_for(engine_to_assume(kwargs, task), software)
        told = re.search(r"\d+(?:\.\d+)+\w*", release or printed)
        found = engine_row(usual, told[0] if told and usual in printed.lower() else "", date) or usual
        unknown = f"engine {printed} is not in the catalogue: {found} stands in"
        assumed.append(unknown if printed else f"engine not stated: {found}")
        return found
    named = catalogue.aliases("engine").get(build_for(f"{printed}-{release}", software))  # builds have releases apart
    if software and named:
        return named
    build = build_for(found, software)
    if not release and build != found:  # the nearest in date of the build's own releases
        build = build_for(catalogue.aliases("engine").get(catalogue.normalise(printed), found), software)
    return found if build == found else engine_row(build, release, date) or build
