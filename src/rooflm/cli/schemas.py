"""JSON Schemas of the files that people write (device, cluster, model, engine, scenario, a row of a measured table),
made from what fields and arguments say of themselves: an editor completes and checks with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from rooflm.asked.arguments import EVERY, KINDS, Argument, arguments
from rooflm.catalogue.engine import ServerOptions
from rooflm.catalogue.fields import About, abouts
from rooflm.catalogue.hardware import DTYPES, Cluster, Derating, Device, Link, Measured, Memory
from rooflm.catalogue.model import FEED_FORWARDS, MIXERS, Block, Model
from rooflm.cli.options import SHELL
from rooflm.readers import quantities
from rooflm.readers.command import Command
from rooflm.readers.devices import LIMIT
from rooflm.readers.engines import ABOUT
from rooflm.readers.own_card import SHORT
from rooflm.readers.tables import bounds_text
from rooflm.validation.columns import COLUMNS, METRIC_NAMES, RUN, SETTING, Column

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
QUANTITY = r"^\s*[+$-]?(\d|\.\d)"
"""How a quantity written as text begins."""
TEXT: Schema = {"type": "string"}


def value(about: About) -> Schema:
    """A described field: its type, its bounds where it is a plain number, its meaning with unit and rule.

    >>> value(About("heads", whole=True, low=1))
    {'description': 'heads (a whole number of at least 1)', 'type': 'number', 'minimum': 1}
    """
    if about.kind == "flag":
        return {"description": about.meaning, "type": "boolean"}
    if about.kind == "sizes":
        return {"description": about.meaning, "anyOf": [TEXT, {"type": "array", "items": {"type": "integer"}}]}
    if about.kind in ("word", "shapes", "named", "formula"):
        enum = {"enum": list(about.among)} if about.among and about.kind == "word" else {}
        return {"description": about.meaning, **TEXT, **enum}
    unit = quantities.WRITTEN.get(about.unit, about.unit)
    told = ", ".join([*([unit] if unit not in ("", "1") else []), bounds_text(about)])
    bounds: Schema = {"exclusiveMinimum" if about.above else "minimum": about.low}
    if math.isfinite(about.high) and about.high < 2**50:
        bounds["exclusiveMaximum" if about.below else "maximum"] = about.high
    bounds = {k: v for k, v in bounds.items() if abs(v) < 2**50}
    return {"description": f"{about.meaning} ({told})", **quantity({"type": "number", **bounds}, unit)}


def quantity(number: Schema, unit: str) -> Schema:
    """A number, or where it has a unit, a text such as "80 GiB" too."""
    return number if unit in ("", "1") else {"anyOf": [number, {**TEXT, "pattern": QUANTITY}]}


def table(properties: Mapping[str, Schema], required: list[str] | None = None, **more: Any) -> Schema:
    """A table that knows these keys and no other."""
    must = {"required": required} if required else {}
    return {"type": "object", "properties": dict(properties), "additionalProperties": False, **must, **more}


PLAIN: dict[str, Schema] = {
    "Num": {"type": "number"}, "float": {"type": "number"}, "int": {"type": "integer"}, "bool": {"type": "boolean"},
    "str": TEXT, "tuple[str, ...]": {"type": "array", "items": TEXT},
}  # fmt: skip
"""Type of a field that says no more of itself -> its schema."""


def described(kind: Any, **parts: Schema) -> dict[str, Schema]:
    """Every field of a dataclass. parts: fields that are tables of their own."""
    known = abouts(kind)
    return {f.name: parts.get(f.name) or (value(known[f.name]) if f.name in known else PLAIN[str(f.type)])
            for f in fields(kind)}  # fmt: skip


def needed(kind: Any, *but: str) -> list[str]:
    """The fields of a dataclass that have no default."""
    return [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING and f.name not in but]


SOURCE = table({"source": TEXT, "date": TEXT, "kind": {"enum": ["vendor", "measured", "inferred"]}}, ["source"])
ROW: dict[str, Schema] = {
    "aliases": {"description": "other names", "type": "array", "items": TEXT},
    "note": {"description": "free text", **TEXT},
    "source": {"description": "where all of its values are printed", **TEXT},
    "date": {"description": "when that was read", **TEXT},
    "from": {"description": "field, group of fields or default -> its source", "type": "object",
             "additionalProperties": {"anyOf": [TEXT, SOURCE]}},
}  # fmt: skip
"""What may be said of any row."""
NUMBERS: Schema = {"type": "object", "additionalProperties": {"type": "number"}}


def device() -> Schema:
    """A card: a whole row, a known card and what differs, or its peak, memory and bandwidth alone."""
    rate = value(About("dense FLOP/s, never the sparse figure", "flop/s", above=True))
    levels = {k: {"description": told, **table(described(Memory))} for k, told in (
        ("l1", "shared memory and L1 of all SMs together"), ("l2", "last-level cache"), ("dram", "device memory"))
    }  # fmt: skip
    peak = {"description": "dense FLOP/s by data type, or the 16-bit one alone",
            "anyOf": [table(dict.fromkeys(DTYPES, rate)), rate]}  # fmt: skip
    own = {k: {"description": f"{'.'.join(place)}, in short", **quantity({"type": "number"}, "B")}
           for k, place in SHORT.items()}  # fmt: skip
    measured = table(described(Measured, off=NUMBERS, own={"type": "object", "additionalProperties": NUMBERS}))
    parts = described(
        Device, peak=peak, **levels, derating=table(described(Derating)),
        measured={"description": "constants of one's own machine, by `rooflm calibrate`", **measured},
    )  # fmt: skip
    left = {k: v for k, v in parts.items() if k not in ("name", "inferred")}
    base = {"base": {"description": "a card of the catalogue, from which all else is taken", **TEXT},
            "cluster": {"description": "the cluster in which it is usually found", **TEXT}}  # fmt: skip
    ways = [["base"], ["peak", "dram"], ["peak", "memory", "bandwidth"]]
    return table({**base, **own, **left, **ROW}, anyOf=[{"required": w} for w in ways])


def cluster() -> Schema:
    """A device and the tiers that join many of it, or a known cluster and what differs."""
    links = {"description": "the nearest first", "type": "array", "minItems": 1,
             "items": table(described(Link), needed(Link))}  # fmt: skip
    own = described(Cluster, device={"description": 'a card, or "*": any', **TEXT}, tiers=links)
    own[LIMIT] = value(abouts(Device)[LIMIT])
    del own["name"]
    base = {"base": {"description": "a cluster of the catalogue, from which all else is taken", **TEXT}}
    partly = {"description": "those of the base that differ, by name; the nearest first", "type": "array",
              "items": table(described(Link), ["name"])}  # fmt: skip
    return {"anyOf": [table({**own, **ROW}, ["device", "tiers"]),
                      table({**base, **own, "tiers": partly, **ROW}, ["base"])]}  # fmt: skip


def one_of(kinds: Mapping[str, Any]) -> Schema:
    """A part of a block, told by its `kind`."""
    found = []
    for kind in dict.fromkeys(kinds.values()):
        own = described(kind) | {"kind": {"enum": [name for name, other in kinds.items() if other is kind]}}
        found.append({"title": kind.__name__, **table(own, ["kind", *needed(kind, "kind")])})
    return {"anyOf": found}


def model() -> Schema:
    """Embedding, counted blocks, head."""
    block = table(described(Block, mixer=one_of(MIXERS), ffn=one_of(FEED_FORWARDS)), ["count"])
    whole = described(Model, blocks={"type": "array", "minItems": 1, "items": block})
    return table({**whole, **ROW}, needed(Model, "name"))


def engine() -> Schema:
    """An engine: its constants by their own names, the options of its server, how it is started."""
    factors = {"type": "object", "additionalProperties": NUMBERS}
    own: dict[str, Schema] = {
        "base": {"description": "an engine from which all else is taken", **TEXT},
        "without": {"description": "its constants that are not taken, but are as by default, with commas", **TEXT},
        "like": {
            "description": "engines whose own lines it takes first, with commas: it differs from its base as they do",
            **TEXT,
        },
        **{name: value(about) for name, about in ABOUT.items()},
        "server": table(described(ServerOptions)), "command": table(described(Command)),
        "cards": {"description": "card -> field -> factor", **factors},
        "fitted": {"description": "what its constants were fitted to", **NUMBERS},
        "usual": {"description": "assumed where no engine of its phase is named", "type": "boolean"},
        "residuals": {"description": "one's own measurements over the predictions, by `rooflm calibrate`",
                      "type": "object"},
    }  # fmt: skip
    return table({**own, **ROW})


AMOUNT: Schema = {"type": ["number", "string"]}
WRITTEN: dict[str, Schema] = {
    "switch": {"type": "boolean"}, "flag": {"type": "boolean"}, "sets": {"type": "object"},
    **{k: {"type": ["string", "array"]} for k in ("zips", "listed", "spread", "repeated", "pairs")},
}  # fmt: skip
"""Kind of argument -> its schema, where it is neither a number nor a name."""


def argument(a: Argument) -> Schema:
    """An argument as a file gives it: a value, or a list of them where that makes an axis."""
    own = WRITTEN.get(a.kind) or (TEXT if a.kind in KINDS and KINDS[a.kind].text else AMOUNT)
    many = a.kind in KINDS and KINDS[a.kind].many != KINDS[a.kind].one
    listed = {"anyOf": [own, {"type": "array", "items": own}]} if many and a.kind not in WRITTEN else own
    return {"description": f"{a.help}{f' In {a.unit}.' if a.unit else ''}", **listed}


def scenario() -> Schema:
    """A question: model, arguments of a call, what is set by its path."""
    from rooflm.reporting.report import MAKERS

    tasks = {task: call for task, (call, _) in MAKERS.items()}
    own: dict[str, Schema] = {
        "model": {"description": "a name, hub id or file, or a list of them",
                  "anyOf": [TEXT, {"type": "array", "items": TEXT}]},
        "task": {"description": "what is asked (default: infer)", "enum": list(tasks)},
        **{k: {"description": f"{k}, for people", **TEXT} for k in ("question", "title", "note")},
    }  # fmt: skip
    shared = list(own)
    shell = {a.name: argument(a) for a in SHELL}
    calls = {call: {("set" if a.name == "sets" else a.name): argument(a) for a in arguments(call).values() if a.shell}
             for call in EVERY}  # fmt: skip
    ways = [{"if": {"properties": {"task": {"const": task}}, "required": ["task"]},
             "then": {"propertyNames": {"enum": [*shared, *calls[call], *shell]}}}
            for task, call in tasks.items()]  # fmt: skip
    for known in (shell, *reversed(calls.values())):
        own |= known
    return table(own, ["model"], allOf=ways)


CELLS: dict[str, Schema] = {
    "whole": {"pattern": r"^(\d+(\.0*)?)?$"}, "number": {"pattern": r"^(\s*[+-]?(\d|\.\d).*)?$"},
    "flag": {"pattern": "^(|1|0|yes|no|true|false|True|False)$"},
}  # fmt: skip
"""Kind of a column -> what its cells look like; a blank cell is always allowed."""


def cell(c: Column) -> Schema:
    """A column of a measured table."""
    unit = f" ({c.unit})" if c.unit not in ("", "1") else ""
    return {"description": f"{c.meaning}{unit}; read by {', '.join(c.read)}", **TEXT, **CELLS.get(c.kind, {})}


def measured() -> Schema:
    """A row of a table of measured runs, cell by cell as text."""
    own = {name: cell(c) for name, c in COLUMNS.items()}
    own["metric"] |= {"enum": list(METRIC_NAMES)}
    own["value"] |= CELLS["number"]
    return table(own, ["metric", "value"], patternProperties={f"^({SETTING}|{RUN})": TEXT})


SCHEMAS: dict[str, tuple[Callable[[], Schema], str]] = {
    "device": (device, "A card of one's own: --gpu FILE.toml"),
    "cluster": (cluster, "A cluster of one's own: --cluster FILE.toml"),
    "model": (model, "A model of one's own: FILE.toml in the model's place"),
    "engine": (engine, "An engine of one's own: --engine FILE.toml"),
    "scenario": (scenario, "A question as a file: rooflm infer FILE.toml, rooflm report FILE.yaml"),
    "measured": (measured, "A row of a table of measured runs: rooflm validate FILE.csv"),
}
"""Kind of file -> what makes its schema, and what it is."""


def schema(kind: str) -> Schema:
    """The JSON Schema of a kind of file."""
    make, told = SCHEMAS[kind]
    return {"$schema": DIALECT, "title": f"rooflm: {kind}", "description": told, **make()}
