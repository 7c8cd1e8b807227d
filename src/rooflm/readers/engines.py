"""Engines by name: a row of data/engines/*.toml or a TOML file of the user's own. A row may build on another
(`base`)."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rooflm.catalogue.abilities import KINDS
from rooflm.catalogue.engine import BY_CARD, GROUPS, PLACES, Engine, ServerOptions
from rooflm.catalogue.fields import About, abouts, words_in
from rooflm.catalogue.model import RECURRENT
from rooflm.errors import RooflmError, UnknownNameError
from rooflm.kernels.constants import entries_of
from rooflm.readers import outside
from rooflm.readers.checkpoints.families import table
from rooflm.readers.command import Command, command_of
from rooflm.readers.provenance import Description, descriptive_fields
from rooflm.readers.residuals import parse
from rooflm.readers.rows import as_text, is_path, names, own_row, raw_row, resolve, row_label, words_of
from rooflm.readers.schemes import PRESETS
from rooflm.readers.tables import check_bounds, check_field_name, field_value, one_of
from rooflm.readers.tables import dataclass_fields as values_of

Factors = Mapping[str, Mapping[str, float]]
"""Card or generation of cards -> field of the engine -> factor."""


class Row(NamedTuple):
    """An engine as its row describes it, and the factors of its constants by card."""

    engine: Engine
    cards: Factors


class EngineDescription(Description):
    """What a row holds besides the constants. base: the row that it builds on; without: of whose constants it has the
    defaults, with commas; like: rows that say what it does not say itself, with commas; usual: the default engine of
    its phase; cards: factors on constants per card; fitted: errors of its fit in per cent, for people."""

    base: str | None = None
    without: str = ""
    like: str = ""
    server: dict[str, Any] = msgspec.field(default_factory=dict)
    command: dict[str, Any] = msgspec.field(default_factory=dict)
    usual: bool = False
    cards: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    fitted: dict[str, float] = msgspec.field(default_factory=dict)


ABOUT: dict[str, About] = {
    name: abouts(GROUPS.get(place.rpartition(".")[0], Engine))[place.rpartition(".")[2]]
    for name, place in PLACES.items() if name not in ("server", "command", "residuals")
}  # fmt: skip
"""Constant by its own name -> what is known of it."""
PLAIN = Engine("")
"""An engine all of whose constants are defaults."""


def load_engine(name: str | Path, gpu: str = "", generation: str = "") -> Engine:
    """An engine by name, alias or path, on a card by its catalogue name, else by its generation
    (`Device.kernel_generation`; none: before any card's factors). A user's file is read each time. Raises RooflmError
    for unknown names and bad rows.

    >>> load_engine("ideal").host.step, load_engine("vllm", "h100-sxm-80gb").name
    (0.0, 'vllm')
    """
    name = as_text("engine", name)
    if is_path(name):
        return on_card(_read(name), (gpu, generation))
    return _loaded(name, (gpu, generation))


@lru_cache(maxsize=4096)
def _loaded(name: str, cards: tuple[str, ...]) -> Engine:
    """`load_engine` of a row of the catalogue."""
    return on_card(_packaged(resolve("engine", name)), cards)


def on_card(row: Row, cards: tuple[str, ...]) -> Engine:
    """The engine of a row on a card, scaled by the row's factors for the first of these keys (card, generation) that it
    has."""
    return scaled(row.engine, next((row.cards[key] for key in cards if key in row.cards), {}))


def scaled(engine: Engine, factors: Mapping[str, float]) -> Engine:
    """The engine with some of its constants multiplied; of one that is 0 the factor is the value.

    >>> scaled(Engine("x").but(step=2.0), {"step": 1.5}).host.step, scaled(Engine("x"), {"step": 1.5}).host.step
    (3.0, 1.5)
    """
    return engine.but(**{k: (engine.value(k) or 1.0) * v for k, v in factors.items()}) if factors else engine


def family_of(name: str) -> str:
    """The engine of which this one is a release; the name itself where no row has it.

    >>> family_of("vllm-2024-rocm"), family_of("llama.cpp-2024-05"), family_of("hf-eager"), family_of("nobody")
    ('vllm', 'llama.cpp', 'hf-eager', 'nobody')
    """
    try:
        e = load_engine(name)
    except UnknownNameError:
        return name
    return e.family or e.runs


@lru_cache
def engines_of_adapters() -> tuple[str, ...]:
    """Engines that serve several adapters at once and whose command line can say so, without their older releases.

    >>> engines_of_adapters()
    ('sglang', 'trtllm', 'vllm')
    """
    rows = [e for e in map(load_engine, engine_names()) if not e.family and e.abilities.many_adapters]
    return tuple(e.name for e in rows if command_of(e).lora)


def row_of(name: str, above: tuple[str, ...] = ()) -> Row:
    """An engine by name, alias or path with its factors by card. above: the files that build on it."""
    if name in above:
        raise RooflmError(f"{name}, engine: it builds on itself")
    return _read(name, above) if is_path(name) else _packaged(resolve("engine", name))


def stands_on(path: str) -> str:
    """What an engine's file builds on and whose constants it takes, in words for the answer ("" of a whole machine's
    file, whose constants were fitted to that machine)."""
    if own_row("engine", path):
        return ""
    raw, name = raw_row("engine", path)
    about, own = descriptive_fields(raw, row_label("engine", path), EngineDescription)
    tables = {"server": about.server, "command": about.command, "cards": about.cards}
    new = [*own, *words_in(about.without), *(f"{table}.{key}" for table, keys in tables.items() for key in keys)]
    new += [f"what {row} changes" for row in words_in(about.like)]
    said = ", ".join(new) if len(new) <= 6 else f"{len(new)} fields"
    if not about.base:
        return f"{name} has no base: all but {said} are defaults, fitted to no engine"
    runs = row_of(about.base).engine.runs
    whose = f"constants{' and error bands' * (own.get('measured_as', runs) == runs)} of {runs}"
    return f"{name} is {about.base} but for {said} ({whose})" if new else f"{name} is as {about.base}"


@cache
def _packaged(canonical: str) -> Row:
    return _read(canonical)


class Lines(NamedTuple):
    """What a row says that holds over its base, in the row's own words: constants, options of the server, factors."""

    own: Mapping[str, Any]
    server: Mapping[str, Any]
    cards: Factors


OF_ITSELF = ("version", "measured_as", "family")
"""What a row says of itself alone."""


def _lines(name: str, above: tuple[str, ...] = ()) -> Lines:
    """A row's own lines, over those of the rows that it is like: what these change of their bases it changes of its
    own, but for how they are started. above: the rows that ask for it."""
    label = row_label("engine", name)
    about, own = descriptive_fields(raw_row("engine", name)[0], label, EngineDescription)
    for field in words_in(about.without):
        check_field_name(field, ABOUT, f"{label}: without")
    found = Lines({}, {}, {})
    for other in words_in(about.like):
        row = other if is_path(other) else resolve("engine", other)
        if row in (*above, name):
            raise RooflmError(f"{label}: like is {about.like!r}, but {other} takes its lines from this row")
        theirs = _lines(row, (*above, name))
        found = _over(found, theirs._replace(own={k: v for k, v in theirs.own.items() if k not in OF_ITSELF}))
    without = {field: PLAIN.value(field) for field in words_in(about.without)}
    return _over(found, Lines(without | own, about.server, _factors(about.cards, label)))


def _over(below: Lines, own: Lines) -> Lines:
    """Lines over others."""
    cards = merge_card_factors(below.cards, own.cards, own.own)
    return Lines({**below.own, **own.own}, {**below.server, **own.server}, cards)


def _read(name: str, above: tuple[str, ...] = ()) -> Row:
    """A row read and checked, over the row that it builds on. `measured_as` and `family` are not taken from the base by
    a row of the catalogue, but they are by a user's file. A command that says how the engine starts is whole."""
    raw, canonical = raw_row("engine", name)
    label = row_label("engine", name)
    about, _ = descriptive_fields(raw, label, EngineDescription)
    own, told, factors = _lines(name)
    base = row_of(about.base, (*above, name)) if about.base else Row(Engine(canonical), {})
    values = _constants(own, label)
    same = {"budget": "token_budget", "static_fraction": "memory_fraction"}  # options that are limits by another name
    limits = {*own, *told, *(limit for option, limit in same.items() if option in told)}
    server: dict[str, Any] = {by_card: "" for by_card, limit in BY_CARD.items() if limit in limits}
    server |= values_of(ServerOptions, dict(told), label, "server")
    if is_path(name):
        check_words(name)
    values["server"] = replace(base.engine.server, **server)
    command = Command() if "start" in about.command and not is_path(name) else command_of(base.engine)
    values["command"] = replace(command, **values_of(Command, about.command, label, "command"))
    known = outside.read_toml(name, "file").get("residuals") if is_path(name) else None
    if isinstance(known, dict):
        values["residuals"] = parse(known, label)
    cards = merge_card_factors(base.cards, factors, values)
    again = {"measured_as": base.engine.runs, "family": base.engine.family} if is_path(name) and about.base else {}
    whole = {"waits": ""} if "overlap" in own else {}  # of all models, not but for those that its base names
    values = {"measured_as": "", "family": "", **whole, **again, **values}
    return Row(replace(base.engine, name=canonical).but(**values), cards)


def merge_card_factors(inherited: Factors, own: Factors, given: Mapping[str, Any]) -> Factors:
    """A row's factors per card merged over its base's. A field that the row sets itself has that value on every card,
    so the base's factors on it are dropped."""
    left = {key: {k: v for k, v in kin.items() if k not in given} for key, kin in inherited.items()}
    merged = {key: {**left.get(key, {}), **own.get(key, {})} for key in (*left, *own)}
    return {key: factors for key, factors in merged.items() if factors}


def _constants(given: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Constants of a row by their own names, each checked against its field."""
    known = [*ABOUT, "base"]  # which is taken out of a row before
    for name in given:
        check_field_name(name, known, f"{label}: the row")
    return {name: field_value(f"{label}: {name}", value, ABOUT[name]) for name, value in given.items()}


def check_words(row: str) -> None:
    """`known_words` of all that a row says: of a user's file as it is read, of the catalogue's in a test. A row may
    give its own name for its family and for whose measurements hold for it."""
    label, itself, lines = row_label("engine", row), raw_row("engine", row)[1], _lines(row)
    for name, value in lines.own.items():
        if name not in OF_ITSELF or value != itself:
            known_words(name, value, f"{label}: {name}")
    for option, value in lines.server.items():
        known_words(option, value, f"{label}: server.{option}")


LIBRARIES = ("experts", "many_experts", "experts_of")
"""Fields that name libraries of experts' products."""
SIGNED = (*LIBRARIES, "uncaptured")
"""Fields whose words may have a minus before them: not these."""
LIMITS = ("budgets", "limits", "graphed", "graphed_few", "pieces")
"""Options of a server that hold limits by card."""
FORMS = {
    "caches": (r"\d+", "widths in bits such as '16, 8'"),
    "experts_of": (r"[\w.-]+:[^/:]+/[^/:]+(/[^/:]+)?", "such as 'triton:*/bf16, cutlass:qwen3_moe/nvfp4/blackwell'"),
    "widened_experts": (r"-?[^/:]*/[^/:]+/[^/:]+", "family, type and generation such as '*/mxfp4/cdna3, -qwen3*/*/*'"),
    "ready_operands": (r"[\w.-]+/[\w.-]+", "products in a type such as 'q_up/fp8_block'"),
    "families": (r"[\w.-]+:\d+", "limits by family such as 'deepseek_v4:256'"),
    **dict.fromkeys(LIMITS, (r"[\w.-]+:\d+", "limits by card such as '35:2048 ampere:4096'")),
}
"""Field -> what each of its words must look like."""


def known_words(field: str, value: Any, label: str) -> None:
    """RooflmError if a word of an engine's text field is unknown: a kernel library, kind of scheme, excluded device,
    library of experts' kernels, data type of products, generation, family of models, card or scheme."""
    if field == "kernels" and value and value not in kernel_names():
        raise RooflmError(f"{label} is {value!r}, but it must be one of {', '.join(kernel_names())}")
    apart = field in ("padded", "families", *LIMITS) or ABOUT.get(field, About("")).kind == "named"
    held = isinstance(value, str) and field in {**AMONG, **FORMS}  # a number of the same name holds no words
    pieces = () if not held else value.split() if apart else words_in(value)
    form, rule = FORMS.get(field, ("", ""))
    for piece in pieces:
        if form and not re.fullmatch(form, piece):
            raise RooflmError(f"{label} is {value!r}, but it must be {rule}")
        word, _, rest = piece.partition(":")
        if field in ("dots_times", "unpacked") and "." in word:
            generation, _, word = word.rpartition(".")
            one_of(label, generation, sorted(generations()))
        if field in ("reduce_norm_on", "staged_on") and word.startswith("-"):
            if word[1:] not in names("gpu"):
                raise RooflmError(f"{label} is {word!r}, but no card has that name")
        elif field == "ready_operands":
            one_of(f"{label}: type", word.partition("/")[2], sorted(product_types()))
        elif field in AMONG and not word.replace(".", "", 1).isdecimal():  # a number is a card's memory
            _among(label, word.removeprefix("-") if field in SIGNED else word, AMONG[field]())
        if field in ("experts_of", "widened_experts"):
            of = dict(zip(("family", "type", "generation"), (rest or word.removeprefix("-")).split("/"), strict=False))
            known = ({"", *model_families()}, {e.dtype for e in entries_of("moe")}, generations())
            for (what, pattern), among in zip(of.items(), known, strict=False):
                if not fnmatch.filter(among, pattern):
                    _among(f"{label}: {what}", pattern, among)


def _among(label: str, word: str, known: Collection[str]) -> None:
    """RooflmError if a word is unknown. Families of models are listed last, and once where their text part is one."""
    families = model_families()
    if word.lower() not in known:
        once = {name for name in known if name not in families or name.removesuffix("_text") not in {*known} - {name}}
        one_of(label, word, sorted(once, key=lambda name: (name in families, name)))


@lru_cache
def model_families() -> set[str]:
    """What models' configs call their code (model_type), each also as the text part of a larger model."""
    rows = table()
    known = {*rows.families, *rows.same, *words_of("model", "family")}
    return known | {f"{name}_text" for name in known}


@lru_cache
def product_types() -> set[str]:
    """Types of products whose kernels were measured."""
    return {e.dtype for e in entries_of("gemm")}


@lru_cache
def generations() -> set[str]:
    """Generations of the catalogue's devices, whose kernels stand for their cards."""
    return words_of("gpu", "architecture", "generation")


@lru_cache
def engines_named() -> set[str]:
    """Engines that rows have or name: of some tables' alone, which are not offered, too."""
    return {*names("engine"), *words_of("engine", "family", "measured_as")}


@lru_cache
def product_families() -> set[str]:
    """Lines of products of the catalogue's devices."""
    return words_of("gpu", "product_family")


@lru_cache
def device_words() -> set[str]:
    """Makers, families and architectures of the catalogue's devices."""
    return words_of("gpu", "vendor", "product_family", "architecture")


AMONG: dict[str, Callable[[], Collection[str]]] = {
    "schemes": lambda: KINDS, "elsewhere": device_words, "first_on": device_words,
    "padded": product_types,
    **dict.fromkeys(("reduce_norm_on", "gates_on", "scaled_on", "narrow_prompts", "picked_on"), generations),
    **dict.fromkeys(("integers_on", "staged_on", "fused_scans", "fp8_once"), generations),
    **dict.fromkeys(("reduce_norm_of", "joined", "families"), model_families),
    **dict.fromkeys(("family", "measured_as"), lambda: engines_named()),
    "uncached": lambda: {*model_families(), *RECURRENT},
    "waits": lambda: {*model_families(), *RECURRENT, "guesses", "stages"},
    "uncaptured": lambda: {*model_families(), *AMONG["experts"](), "ranks", "stages", "pools", "guesses", "adapters"},
    **dict.fromkeys(LIMITS, lambda: {*generations(), *model_families(), *product_families()}),
    "grouped_on": generations, "tuned_experts_on": lambda: names("gpu"),
    "states_on": lambda: words_of("gpu", "vendor"),
    **{name: lambda: PRESETS for name, about in ABOUT.items() if about.kind == "named" and not about.among},
    **dict.fromkeys((*LIBRARIES, "scales_twice"), lambda: {e.family for e in entries_of("moe")} - {"", "plain"}),
}  # fmt: skip
"""Field of text -> the words that it may hold."""


def _factors(given: Mapping[str, Mapping[str, float]], label: str) -> Factors:
    """Factors by card or generation, of fields that hold numbers; above 0 where the field is."""
    for key, own in given.items():
        one_of(f"{label}: cards", key, sorted({*names("gpu"), *generations()}))
        for name, value in own.items():
            if name not in ABOUT or ABOUT[name].kind != "number":
                raise RooflmError(f"{label}: {key} has a factor of {name!r}, which is no number of an engine")
            check_bounds(f"{label}: {key}, {name}", value, About("", above=ABOUT[name].above))
    return given


@lru_cache
def kernel_names() -> tuple[str, ...]:
    """Whose kernels there are: every one that a row of the catalogue names."""
    return tuple(sorted(words_of("engine", "kernels")))


def engine_names() -> list[str]:
    """Names of all engines, sorted."""
    return names("engine")
