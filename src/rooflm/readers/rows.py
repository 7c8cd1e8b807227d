"""Rows of data/*.toml by name, alias or path (where their values come from: `readers.provenance`).

A row is one top-level TOML table; its sub-tables follow it. Reading is lazy and cheap: files are split into rows with
one regular expression, and only the row that is asked for is parsed. This serves every kind of row (FOLDERS).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rooflm.catalogue.fields import structured
from rooflm.errors import RooflmError, UnknownNameError, near_matches
from rooflm.readers import outside
from rooflm.readers.quantities import parse

DATA = Path(__file__).parents[1] / "data"
FOLDERS = {
    "gpu": "devices", "cluster": "clusters", "model": "models", "engine": "engines",
    "node": "technology/nodes", "dram": "technology/dram", "link": "technology/links", "die": "technology/dies",
}  # fmt: skip
PUBLISHED = {"engine": "published/engines.toml"}
"""Rows that stand for single published tables: found by name, but not listed."""


_HEADER = re.compile(r'^\[(?:"([^"\n]+)"|([\w-]+))\][ \t]*(?:#.*)?$', re.MULTILINE)
_ALIASES = re.compile(r"^aliases\s*=\s*\[(.*?)\]", re.MULTILINE | re.DOTALL)
_STRING = re.compile(r'"([^"\n]*)"')
_MARKS = re.compile(r"\([^)]*\)|[®™+]")
_CORES = re.compile(r"-\d+-core-processor$")
_MEMORY = re.compile(r"-(\d+)gi?b$")
_AT = re.compile(r" - at `(?:key in )?\$\.?(.*?)`$")
_RULES = {
    "Object contains unknown field": "has the unknown field", "Object missing required field": "lacks the field",
    "Expected": "it must be", "Invalid enum value": "it cannot be", ", got": ", not", " | null": "",
    "'object'": "a table", "'array'": "a list", "'float'": "a number", "'int'": "a whole number", "'str'": "text",
}  # fmt: skip
"""What the converter says -> what we say after `FIELD is VALUE, but`."""
T = TypeVar("T")


@dataclass(frozen=True)
class RawRow:
    """A row before it is parsed. text: its TOML alone; above: how many lines of its file stand above it."""

    name: str
    path: Path
    text: str
    above: int

    def parsed(self) -> dict[str, Any]:
        """Its fields; line numbers in messages are those of its file."""
        row: dict[str, Any] = outside.toml("\n" * self.above + self.text, self.path)[self.name]
        return row


@lru_cache(maxsize=16384)
def normalise(name: str) -> str:
    """The form in which names and aliases are compared.

    >>> normalise(" NVIDIA_A100-SXM4  80GB")
    'nvidia-a100-sxm4-80gb'
    """
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


def as_text(kind: str, name: Any) -> str:
    """A name, or a path as its text; RooflmError for anything else.

    >>> as_text("gpu", Path("mine.toml")), as_text("gpu", "a100")
    ('mine.toml', 'a100')
    """
    if isinstance(name, str | Path):
        return str(name)
    raise RooflmError(f"{kind} is {repr(name)[:60]}, but it must be a name or a path")


def is_path(name: str) -> bool:
    """True when `name` is a file of the user's own rather than a catalogue name.

    >>> is_path("cards/mine.toml"), is_path("a100")
    (True, False)
    """
    return name.lower().endswith(".toml")


def row_files(kind: str) -> list[Path]:
    """The files that hold the rows of a kind; those whose name starts with an underscore hold none."""
    own = sorted((DATA / FOLDERS[kind]).glob("[!_]*.toml"))
    return [*own, DATA / PUBLISHED[kind]] if kind in PUBLISHED else own


def rows_of(path: Path) -> Iterator[RawRow]:
    """The rows of a file, unparsed, in order."""
    text = path.read_text(encoding="utf-8")
    heads = list(_HEADER.finditer(text))
    ends = [*(head.start() for head in heads), len(text)]
    above = text.count("\n", 0, ends[0])
    for head, end in zip(heads, ends[1:], strict=True):
        own = text[head.start() : end]
        yield RawRow(head[1] or head[2], path, own, above)
        above += own.count("\n")


def words_of(kind: str, *fields: str) -> set[str]:
    """All values that rows of a kind give for these fields, found by searching their text.

    >>> sorted(words_of("gpu", "vendor"))[:3]
    ['amd', 'apple', 'aws']
    """
    given = re.compile(rf'^(?:{"|".join(fields)}) = "([^"]+)"', re.MULTILINE)
    return {word for row in _rows(kind).values() for word in given.findall(row.text)}


def rows_with(kind: str, field: str) -> list[str]:
    """Sorted names of the rows of a kind that set a field, found by searching their text.

    >>> rows_with("engine", "usual")
    ['megatron', 'vllm']
    """
    given = re.compile(rf"^{field} = ", re.MULTILINE)
    return sorted(name for name, row in _rows(kind).items() if given.search(row.text))


@lru_cache
def _rows(kind: str) -> dict[str, RawRow]:
    """Every row of a kind by its name, unparsed."""
    return {row.name: row for path in row_files(kind) for row in rows_of(path)}


@lru_cache
def aliases(kind: str) -> dict[str, str]:
    """Normalised name or alias -> canonical name, for every row of a kind."""
    rows = _rows(kind)
    other = {
        normalise(alias): row.name
        for row in rows.values()
        if (block := _ALIASES.search(row.text))
        for alias in _STRING.findall(block[1])
    }
    return other | {normalise(name): name for name in rows}


class _Naming(msgspec.Struct, forbid_unknown_fields=True):
    """How product names are compared (`devices/_names.toml`)."""

    dropped: list[str]
    computers: list[str]
    clouds: list[str]
    before_number: list[str]
    after_number: list[str]
    same: dict[str, str]
    instances: dict[str, str]


@lru_cache
def _naming() -> _Naming:
    return shipped(f"{FOLDERS['gpu']}/_names", _Naming)


def product(name: str) -> str:
    """The part of a device's product name that identifies it: without maker, product line and trade marks, in one
    spelling.

    >>> [product(n) for n in ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx4070tisuper", "Intel(R) Arc(TM) A770 Graphics")]
    ['4090-laptop', '4070-ti-super', 'a770']
    >>> product("A100 80G") == product("A100 80 GB"), product("A10G"), product("MacBook Pro M3 Max 64GB")
    (True, 'a10g', 'm3-max-64gb')
    """
    naming = _naming()
    text = normalise(_MARKS.sub(" ", name.lower()).split("@")[0])
    text = re.sub(r"(-\d+)-?g(?:i?b)?$", r"\1gb", _CORES.sub("", text))
    text = re.sub(rf"\b({'|'.join(naming.before_number)})(?=a?\d)", r"\1-", text)
    text = re.sub(rf"\b({'|'.join(naming.computers)})-", "", text)
    after = "|".join(naming.after_number)
    text = re.sub(rf"(?<=\d)(?:{after})+(?=-|$)", lambda found: "-" + "-".join(re.findall(after, found[0])), text)
    words = [naming.same.get(word, word) for word in text.split("-") if word]
    return "-".join(word for word in words if word not in naming.dropped) or text


@lru_cache
def products() -> dict[str, str]:
    """`product` of every name and alias of a device -> canonical name."""
    return {product(alias): name for alias, name in aliases("gpu").items()}


def _device_of(name: str) -> str | None:
    """The device that a product name means, or the name of a cloud's instance; None where it is unknown. A memory
    stated in the name ("24 GB") must be that of the row, as sold or as programs may use it."""
    low = _without_cloud(name)
    for begins, card in _naming().instances.items():
        if re.match(begins, low):
            return card
    short = product(name)
    stated = _MEMORY.search(short)
    if short in products() or stated is None:
        return products().get(short)
    found = products().get(short[: stated.start()])
    if found is None:
        return None
    size = parse(str(_packaged_row("gpu", found)["dram"]["size"]), "bytes")
    return found if 0.99 * size <= float(stated[1]) * 2**30 <= 1.08 * size else None


def _without_cloud(name: str) -> str:
    """An instance's name without its cloud's.

    >>> _without_cloud("Azure ND H100 v5"), _without_cloud("ml.g5.12xlarge")
    ('nd-h100-v5', 'g5.12xlarge')
    """
    cloud, *rest = re.split("[-.]", normalise(name), maxsplit=1)
    return rest[0] if rest and cloud in _naming().clouds else normalise(name)


def names(kind: str) -> list[str]:
    """The names of a kind ("gpu", "cluster", "model", "engine"), sorted.

    >>> "a100-sxm-80gb" in names("gpu")
    True
    """
    hidden = DATA / PUBLISHED[kind] if kind in PUBLISHED else None
    return sorted(name for name, row in _rows(kind).items() if row.path != hidden)


_RELEASED = re.compile(r"(.*?[a-z])((?:==|[@: -])v?\d[\w.+-]*)", re.IGNORECASE)
"""An engine's name, and the release behind it."""


KINDS = {"model": "a model", "gpu": "a GPU", "cluster": "a cluster", "engine": "an engine"}
"""What a name of another kind than the one asked for is told to be."""


@lru_cache(maxsize=4096)
def resolve(kind: str, name: str) -> str:
    """The canonical name behind a name or an alias, in any case, with spaces or underscores for hyphens. Devices are
    also known by any spelling of their product name (see `product`), models by the hub ids of listed checkpoints,
    engines by a release (see `engine_releases.row_named`).

    >>> resolve("gpu", "NVIDIA A100-SXM4-80GB"), resolve("gpu", "GeForce RTX 4090 24 GB")
    ('a100-sxm-80gb', 'rtx-4090')
    >>> resolve("gpu", "h100-sxm5")
    Traceback (most recent call last):
    rooflm.errors.UnknownNameError: unknown GPU 'h100-sxm5': did you mean 'h100-sxm-80gb' or ...?
    >>> resolve("model", "h100")
    Traceback (most recent call last):
    rooflm.errors.RooflmError: unknown model 'h100': that is a GPU
    """
    found = aliases(kind).get(normalise(name))
    if found is None and kind == "gpu":
        found = _device_of(name)
    if found is None and kind == "cluster":  # "Azure ND H100 v5"
        found = aliases(kind).get(_without_cloud(name))
    if found is None and kind == "model":
        from rooflm.readers.released import find

        checkpoint = find(name)
        found = checkpoint.model if checkpoint is not None else None
    if found is None and kind == "engine":
        from rooflm.readers.engine_releases import row_named

        found = row_named(name)
    if found is None:
        if kind == "gpu" and "+" in name and all(map(_is_gpu, name.split("+"))):
            raise RooflmError(
                f"gpu is {name!r}, but cards of one kind are predicted at a time: only separate pools, of prefill and "
                "of decode, may have one each (`rooflm serve --prefill-replicas 1 --prefill-gpu NAME`)"
            )
        known = aliases(kind)
        count, one = count_and_name(name) if kind == "gpu" else (1, name)
        exact = [known[normalise(one)]] if count > 1 and normalise(one) in known else []
        near = exact or [known[alias] for alias in near_matches(_unbranded(kind, normalise(one)), known, limit=6)]
        near = near or near_matches(normalise(one), names(kind))
        near = (kind == "gpu" and [n for n, row in _rows(kind).items() if row.path.stem == normalise(one)]) or near
        hint = f" ({count} of them: gpus {count})" if count > 1 else ""
        if "," in name:
            near, hint = [], ", and give several as a list"
        if kind == "gpu" and not near and not hint:
            hint = f", or of one vendor (`rooflm list gpus VENDOR`): {', '.join(sorted(words_of(kind, 'vendor')))}"
            hint += OWN_CARD
        if beside := beside_of(kind, one):
            near, hint = ([beside[0]], f" ({beside[1]})") if beside[0] else ([], f" ({beside[1]}){OWN_CARD}")
        if kind == "engine" and (parts := _RELEASED.fullmatch(name)):
            near = [f"{known[alias]}{parts[2]}" for alias in near_matches(normalise(parts[1]), known, limit=1)] or near
        other = next((told for row, told in KINDS.items() if normalise(name) in aliases(row)), "")
        if other:
            raise RooflmError(f"unknown {KINDS.get(kind, f'a {kind}').partition(' ')[2]} {name!r}: that is {other}")
        what = "GPU" if kind == "gpu" else kind
        raise UnknownNameError(what, name, known, hint, list(dict.fromkeys(near))[:3])
    return found


def _unbranded(kind: str, name: str) -> str:
    """A device's name without its vendor's, which is like all that the vendor makes.

    >>> _unbranded("gpu", "intel-iris-xe"), _unbranded("gpu", "intel"), _unbranded("model", "nvidia-nemotron")
    ('iris-xe', 'intel', 'nvidia-nemotron')
    """
    vendors = words_of(kind, "vendor") if kind == "gpu" else set()
    return "-".join(p for p in name.split("-") if p not in vendors) or name


OWN_CARD = "; a file with its peak, memory and bandwidth will do too"


def beside_of(kind: str, name: str) -> list[str] | None:
    """Of an engine or a device without a row: the nearest row ("": none), and what to know of it.

    >>> beside_of("engine", "aphrodite"), beside_of("gpu", "NVIDIA VR200 NVL144")[0], beside_of("gpu", "h100-sxm5")
    (['vllm', 'which it is a fork of'], 'gb300', None)
    """
    if kind == "gpu":
        return next((said for begins, said in _near(kind).items() if re.match(begins, product(name))), None)
    return _near(kind).get(normalise(name)) if kind == "engine" else None


@lru_cache
def _near(kind: str) -> dict[str, list[str]]:
    return shipped(f"{FOLDERS[kind]}/_near", dict[str, list[str]])


def _is_gpu(name: str) -> bool:
    """Whether a device has this name, with a number of them or without."""
    try:
        return bool(resolve("gpu", count_and_name(name.strip())[1].strip()))
    except UnknownNameError:
        return False


def count_and_name(name: str) -> tuple[int, str]:
    """Split a name such as "4x H100" into the number of devices and the device's name.

    >>> count_and_name("4x H100 80GB"), count_and_name("h100:8"), count_and_name("L40Sx4"), count_and_name("AI Max 395")
    ((4, 'H100 80GB'), (8, 'h100'), (4, 'L40S'), (1, 'AI Max 395'))
    """
    before = re.fullmatch(r"(\d{1,6}) ?[x×*] ?(.+)", name.strip())
    after = re.fullmatch(r"(.+?) ?(?<![Mm]a)[x×*:] ?(\d{1,3})", name.strip())
    if before:
        return int(before[1]), before[2]
    return (int(after[2]), after[1]) if after else (1, name)


def _user_row(kind: str, name: str) -> tuple[dict[str, Any], str]:
    """A file of the user's own: the row's fields at the top level, or in a single table, which then names the row. Its
    name is what it says (`name`), or that of the file."""
    path = Path(name)
    table = outside.read_toml(name, f"{kind} file")
    given = table.pop("name", "")
    if not isinstance(given, str):
        raise RooflmError(f"{name}: name is {given!r}, but it must be text")
    called = given or path.stem
    own = table.get(kind)
    if isinstance(own, dict) and "source" not in table:  # a machine's file: a table a kind
        return own, called
    if len(table) == 1:
        ((key, row),) = table.items()
        if isinstance(row, dict) and key not in next(iter(_rows(kind).values())).parsed():  # [dram] names no card
            return row, key
    return table, called


def own_row(kind: str, name: str | None) -> str | None:
    """The path of a user's file that holds a table [gpu], if it also holds a table [kind] (cluster or engine); else
    None."""
    if name is None or not is_path(name):
        return None
    try:
        table = outside.read_toml(name, "file")
    except RooflmError:
        return None
    return name if isinstance(table.get("gpu"), dict) and isinstance(table.get(kind), dict) else None


@cache
def _packaged_row(kind: str, name: str) -> dict[str, Any]:
    return _rows(kind)[name].parsed()


def raw_row(kind: str, name: str) -> tuple[dict[str, Any], str]:
    """The parsed TOML of one row and its canonical name; `name` is a name, an alias or a path. Do not change it.

    >>> row, name = raw_row("gpu", "a100")
    >>> name, row["sms"]
    ('a100-sxm-80gb', 108)
    """
    if is_path(name):
        return _user_row(kind, name)
    canonical = resolve(kind, name)
    return _packaged_row(kind, canonical), canonical


def base_of(kind: str, row: Mapping[str, Any], label: str) -> str:
    """The row of the catalogue that a user's file builds on.

    >>> base_of("gpu", {"base": "mine.toml"}, "mine.toml")
    Traceback (most recent call last):
    rooflm.errors.RooflmError: mine.toml: base is 'mine.toml', but it must be the name of a card (`rooflm list gpus`)
    """
    base = row["base"]
    if not isinstance(base, str) or is_path(base):
        what = "card" if kind == "gpu" else kind
        raise RooflmError(f"{label}: base is {base!r}, but it must be the name of a {what} (`rooflm list {kind}s`)")
    return base


def row_label(kind: str, name: str) -> str:
    """How error messages refer to a row: its file and its name."""
    path = name if is_path(name) else str(_rows(kind)[resolve(kind, name)].path.name)
    return f"{path}, {kind} {Path(name).stem if is_path(name) else resolve(kind, name)!r}"


def _value_at(row: object, path: str) -> str:
    """The value that an error path such as `tiers[0].size` points at, as text for a message; "" when it has none."""
    value: Any = row
    for piece in re.findall(r"[\w*-]+", path):
        try:
            value = value[int(piece)] if isinstance(value, list) else value[piece]
        except (KeyError, IndexError, ValueError, TypeError):
            return ""
    return "" if isinstance(value, dict) else f" is {value!r}, but"


def convert(row: dict[str, Any], schema: type[T], label: str) -> T:
    """A parsed row as a strict msgspec `schema`; a bad one raises RooflmError naming file, field, value and rule."""
    try:
        return structured(row, schema)
    except msgspec.ValidationError as error:
        raise RooflmError(f"{label}: {rule_said(error, row, 'the row')}") from error


def shipped(name: str, schema: type[T]) -> T:
    """A table that comes with the package, data/NAME.toml, as a strict schema.

    >>> shipped("datasets", dict[str, dict[str, Any]])["sharegpt"]["output"]
    200
    """
    path = DATA / f"{name}.toml"
    return convert(outside.toml(path.read_text(encoding="utf-8"), path), schema, path.name)


def rule_said(error: msgspec.ValidationError, row: Any, whole: str) -> str:
    """A converter's error as we say it: field, value and rule. whole: what the row is called, where it names no field.

    >>> try:
    ...     msgspec.convert({"tp": "two"}, msgspec.defstruct("Row", [("tp", int | None)]))
    ... except msgspec.ValidationError as error:
    ...     print(rule_said(error, {"tp": "two"}, "the row"))
    tp is 'two', but it must be a whole number, not text
    """
    message = str(error)
    at = _AT.search(message)
    path = at[1] if at else ""
    rule = (message[: at.start()] if at else message).replace("`", "'")
    for theirs, ours in _RULES.items():
        rule = rule.replace(theirs, ours)
    return f"{path or whole}{_value_at(row, path)} {rule}"
