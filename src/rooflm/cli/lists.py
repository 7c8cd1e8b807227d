"""`rooflm list` and `rooflm show`: what the catalogue holds, with units and sources."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import typer

from rooflm.asked.arguments import Argument
from rooflm.asked.machine import FABRIC
from rooflm.asked.purchase import affordable, purchase
from rooflm.catalogue.engine import GROUPS, PLACES
from rooflm.catalogue.fields import abouts
from rooflm.catalogue.model import Model
from rooflm.cli.console import dumps, show
from rooflm.cli.guard import of_names
from rooflm.cli.options import command, completing, completions, word
from rooflm.errors import RooflmError, near_matches
from rooflm.readers import rows as catalogue
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.datasets import Lengths, datasets
from rooflm.readers.devices import ANY_DEVICE, LIMIT, cluster_parts, default_cluster, load_cluster, load_device
from rooflm.readers.engine_releases import out_of_range
from rooflm.readers.engines import load_engine, row_of
from rooflm.readers.provenance import provenance
from rooflm.readers.schemes import PRESETS, narrowed, parse_quant
from rooflm.readers.tables import one_of
from rooflm.shown.blocks import BLANK, Block, Say, Table
from rooflm.shown.numbers import count, gib, text

KINDS = {
    "gpus": "gpu", "models": "model", "clusters": "cluster", "engines": "engine", "quants": "quant",
    "nodes": "node", "drams": "dram", "links": "link", "dies": "die", "datasets": "dataset",
    "schemas": "schema",
}  # fmt: skip


OWN_NAMES = ("quant", "schema", "dataset")
"""Kinds whose names have no aliases."""


def _kind(word: str) -> str:
    singular = word.lower().strip()
    singular = KINDS.get(singular, singular)
    if singular not in KINDS.values():
        near = near_matches(word, KINDS)
        said = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it must be one of {', '.join(KINDS)}"
        raise RooflmError(f"unknown list {word!r}: {said}")
    return singular


def kinds_of(name: str) -> list[str]:
    """Kinds that have a row of this name or alias.

    >>> kinds_of("h100"), kinds_of("dgx-h100"), kinds_of("zzz")
    (['gpu'], ['cluster'], [])
    """
    found = []
    for kind in ("gpu", "model", "cluster", "engine"):
        with suppress(RooflmError):
            catalogue.resolve(kind, name)
            found.append(kind)
    return [*found, *(["quant"] if name.lower() in PRESETS else [])]


def _gpu_row(name: str) -> tuple[str, ...]:
    d = load_device(name)
    best = "bf16" if "bf16" in d.peak else next(iter(d.peak))
    peak, rate = count(float(d.peak[best]) / 1e12), text(float(d.dram.bandwidth), "B/s")
    size = f"{float(d.dram.size) / 2**30:.4g} GiB"
    return (name, peak, best, size, rate, text(float(d.tdp), "W"), f"{float(d.price):.2f}",
            purchase_text(name))  # fmt: skip


def purchase_text(name: str) -> str:
    """The purchase price of a card in whole USD, "-" where none is public."""
    found = purchase(name)
    return f"{found.usd:,.0f}" if found else "-"


def cache_a_token(m: Model) -> float:
    """Bytes that one more token adds to a model's cache of 16 bits (windows not yet full)."""
    from rooflm.estimate.memory import kv_bytes_per_sequence
    from rooflm.scenario.mapping import Mapping

    one, two = (float(kv_bytes_per_sequence(m, Mapping(), PRESETS["bf16"], tokens)) for tokens in (1, 2))
    return two - one


def _model_row(name: str) -> tuple[str, ...]:
    m = load_model(name)
    return (name, text(float(m.parameters), ""), text(float(m.active_parameters), ""), count(m.layers),
            count(m.hidden), text(cache_a_token(m), "B"))  # fmt: skip


def _cluster_row(name: str) -> tuple[str, ...]:
    row, _ = catalogue.raw_row("cluster", name)
    sizes = [f"x{t['size']}" if t["size"] < FABRIC else "any number" for t in row["tiers"]]
    tiers = ", ".join(f"{t['name']} {size} {t['bandwidth']}" for t, size in zip(row["tiers"], sizes, strict=True))
    return (name, str(row["device"]), tiers)


def _engine_row(name: str) -> tuple[str, ...]:
    e = load_engine(name)
    return (name, e.version, e.phase)


TECHNOLOGY = {
    "node": {"nm": "nm", "year": "year", "logic_area": "logic area", "sram_area": "SRAM area", "energy": "energy",
             "voltage": "V"},
    "dram": {"year": "year", "pin_gbps": "Gb/s a pin", "pins": "pins", "capacity_gb": "GB", "energy_pj": "pJ a bit"},
    "link": {"kind": "kind", "bandwidth_gbs": "GB/s one way", "latency_us": "latency, µs", "energy_pj": "pJ a bit"},
    "die": {"device": "device", "node": "node", "dram": "memory", "area_mm2": "mm²", "tdp_w": "TDP, W"},
}  # fmt: skip
"""Fields of technology rows that a list shows, with their headings."""
NODE_NOTE = "areas and energy: of the same circuit, over those of n12, or of uniform-14 among the uniform ones"


def _technology_rows(kind: str, names: list[str]) -> list[Block]:
    """A table of nodes, memories, links or dies."""
    rows = [catalogue.raw_row(kind, name)[0] for name in names]
    cells = [(name, *(str(row.get(f) or "-") for f in TECHNOLOGY[kind])) for name, row in zip(names, rows, strict=True)]
    made = Table([(kind, *TECHNOLOGY[kind].values()), *cells], "l" + "r" * len(TECHNOLOGY[kind]), head=True, indent=0)
    return [made, *[Say(NODE_NOTE, "faint")] * (kind == "node")]


def _quants(match: str) -> Table:
    rows = [(q.name, f"w{q.weight_bits}a{q.act_bits}kv{q.kv_bits}", f"{float(q.weight_bytes):.3g}",
             f"{narrowed(q)} only" if q.wide else "all")
            for q in PRESETS.values() if match in q.name]  # fmt: skip
    return Table([("scheme", "widths (bits)", "B a weight", "narrow"), *rows], "llrl", head=True, indent=0)


def _prompts_of(d: Lengths) -> str:
    """How the lengths of a data set's prompts differ."""
    if d.spread is not None:
        return f"{d.spread[0]:g} to {d.spread[1]:g} of it"
    return f"few long, at most {count(d.prompt_limit or 0)}"


def _dataset_row(name: str) -> tuple[str, ...]:
    d = datasets()[name]
    return (name, count(d.prompt), _prompts_of(d), count(d.output), count(d.output_limit))


HEADS: dict[str, tuple[tuple[str, ...], str, Any]] = {
    "gpu": (("GPU", "TFLOP/s", "type", "memory", "bandwidth", "TDP", "USD/h", "to buy"), "lrlrrrrr", _gpu_row),
    "model": (("model", "parameters", "active", "layers", "hidden", "KV B/token"), "lrrrrr", _model_row),
    "cluster": (("cluster", "device", "tiers (devices, B/s one way)"), "llw", _cluster_row),
    "engine": (("engine", "version", "for"), "lll", _engine_row),
    "dataset": (("data set", "prompt", "of its mean", "answer", "at most"), "lrlrr", _dataset_row),
}


KIND = word("kind", "gpus, models, clusters, engines, quants, nodes, drams, links, dies, datasets or schemas.",
            completing(lambda: KINDS))  # fmt: skip


def matching(kind: str, match: str) -> list[str]:
    """Names of a list in which a word begins with a text (without any: that contain it), in the name or an alias; of
    GPUs also by vendor, architecture, family and usual cluster, of clusters by their device, the devices whose usual
    cluster it is and the links, of engines by what they are for.

    >>> matching("gpu", "RTX 4080"), matching("model", "moonshotai/Kimi-K2-I"), matching("gpu", "neoverse")
    (['rtx-4080', 'rtx-4080-laptop', 'rtx-4080-super'], ['kimi-k2'], ['grace-72'])
    """
    text_ = catalogue.normalise(match)
    words = {name: [name] for name in completions(kind)}
    for alias, name in catalogue.aliases(kind).items() if kind not in OWN_NAMES else ():
        words.get(name, []).append(alias)
    usual: dict[str, list[str]] = {}
    for gpu in completions("gpu") if kind == "cluster" else ():
        usual.setdefault(default_cluster(gpu), []).append(gpu)
    for name in words if kind == "gpu" else ():
        d = load_device(name)
        words[name] += [d.vendor, d.architecture, d.product_family, default_cluster(name)]
    for name in words if kind == "engine" else ():
        words[name].append(load_engine(name).phase)
    for name in words if kind == "cluster" else ():
        row = catalogue.raw_row(kind, name)[0]
        words[name] += [str(row["device"]), *(str(tier["name"]) for tier in row["tiers"]), *usual.get(name, ())]
    begins = [name for name, of in words.items() if any(f"-{text_}" in f"-{word}" for word in of)]
    return begins or [name for name, of in words.items() if any(text_ in word for word in of)]


def list_rows(begun: tuple[str, str], asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm list` does with its arguments."""
    kind, match = begun
    singular = _kind(kind)
    names = matching(singular, match)
    if "under" in asked:
        if singular != "gpu":
            raise RooflmError(f"under is of what cards cost, not of {kind}")
        found, names = names, [n for n in affordable(asked["under"]) if n in names]
        if found and not names:
            raise RooflmError(
                f"none of the {len(found)} gpus with {match!r} in their name has a known price of at most "
                f"{count(asked['under'])} USD: 'rooflm show gpu {found[0]}' says what is known"
            )
    if shown["json"]:
        print(dumps({f"{singular}s": names}))
        return
    if not names:
        near = near_matches(match, completions(singular))
        tail = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise RooflmError(f"no {singular} has {match!r} in its name{tail}")
    if singular == "schema":
        from rooflm.cli.schemas import SCHEMAS

        show([Table([(n, SCHEMAS[n][1]) for n in names], "lw", indent=0)])
    elif singular == "quant":
        show([_quants(match.lower())])
    elif singular in TECHNOLOGY:
        show(_technology_rows(singular, names))
    else:
        head, sides, make = HEADS[singular]
        spare = () if singular != "gpu" else ("TDP", "type") if "under" in asked else ("to buy",)
        show([Table([head, *(make(n) for n in names)], sides, head=True, indent=0, spare=spare)])


list_command = command(
    "list", [], list_rows, "List what the catalogue holds.",
    first=(KIND, word("match", "Only names with this (GPUs: or vendor, architecture; clusters: or GPU, link).",
                      lambda: [], "")),
    own=(Argument("under", "number", "Only cards that cost at most so many USD to buy.", (), unit="USD", above=True),),
)  # fmt: skip


def _show_gpu(name: str) -> list[Block]:
    d = load_device(name)
    found = provenance("gpu", name)
    rows = [("vendor", d.vendor, ""), ("architecture", d.architecture, ""), ("SMs", count(d.sms), "sms"),
            ("clock", text(float(d.clock), "Hz"), "clock")]  # fmt: skip
    rows += [(f"peak {k}", text(float(v), "FLOP/s"), f"peak.{k}") for k, v in d.peak.items()]
    for level, m in (("l1", d.l1), ("l2", d.l2), ("dram", d.dram)):
        size = gib(float(m.size)) if level == "dram" else f"{float(m.size) / 2**20:.1f} MiB"
        rows += [
            (f"{level} size", size, f"{level}.size"),
            (f"{level} bandwidth", text(float(m.bandwidth), "B/s"), f"{level}.bandwidth"),
        ]
    given = [("  given unasked", gib(float(d.unasked)), "unasked")] * bool(d.unasked)
    held = [("power limit", text(float(d.power_limit), "W"), "")] * bool(d.power_limit < d.tdp)
    rows += [*given,
             ("TDP", text(float(d.tdp), "W"), "tdp"), *held, ("idle", text(float(d.idle), "W"), "idle"),
             ("price", f"{float(d.price):.2f} USD/h", "price"), ("to buy", purchase_note(name), ""),
             ("cluster", default_cluster(name), "")]  # fmt: skip
    return [Table([(a, b, _kind_of(found, c)) for a, b, c in rows], "lww", d.name), *_source_lines(found)]


def purchase_note(name: str) -> str:
    """What a card costs to buy, or that no price is public."""
    found = purchase(name)
    whole = " for the whole machine" if found and found.of == "machine" else ""
    return f"{found.told}{whole}" if found else "no public price"


def _kind_of(found: dict[str, Any], field: str) -> str:
    record = found.get(field) or found.get(field.split(".")[0])
    return ", ".join(filter(None, (record.kind, record.date))) if record and field else ""


def _source_lines(found: dict[str, Any]) -> list[Block]:
    unique = sorted({record.source for record in found.values()})
    return [BLANK, Table([(source,) for source in unique], "w", "Sources")]


def _show_model(name: str) -> list[Block]:
    m = load_model(name)
    rows = [("parameters", text(float(m.parameters), "", 4)),
            ("  active for a token", text(float(m.active_parameters), "", 4)),
            ("layers", count(m.layers)), ("hidden", count(m.hidden)),
            ("vocabulary", count(m.vocab)),
            ("context", count(m.max_context) if m.max_context != float("inf") else "-"),
            ("KV cache a token, 16 bits", f"{cache_a_token(m) / 1024:g} KiB"),
            ("native type", m.quant or m.dtype)]  # fmt: skip
    out: list[Block] = [Table(rows, "lr", m.name), BLANK, Say("Blocks", "title")]
    for block in m.blocks:
        out.append(Say(f"  {count(block.count)} layers"))
        out.append(Table([(_words(block.mixer),), (_words(block.ffn),)], "w", indent=4))
    return out


def _words(part: Any) -> str:
    """A mixer or feed-forward as words: its kind, its numbers, and the flags that are set."""
    if part is None:
        return "-"
    given = {k: v for k, v in vars(part).items() if v not in (False, 0, float("inf")) and k != "rope"}
    words = [k if v is True else f"{k} {v if isinstance(v, str) else count(v)}" for k, v in given.items()]
    return f"{type(part).__name__}: {', '.join(words)}"


def _show_engine(name: str) -> list[Block]:
    """Every constant as predictions use it, then what multiplies some of them on a card."""
    e, row = load_engine(name), row_of(name)
    out: list[Block] = [_described(e, e.name)]
    aside = ("habits", "overlaps") if e.phase == "inference" else ("stages", "server")
    for group in (g for g in (*GROUPS, "server") if g not in aside):
        out += [BLANK, _described(getattr(e, group), group.capitalize(), group)]
    if row.cards:
        rows = [(key, ", ".join(f"{k} {v:g}" for k, v in own.items())) for key, own in row.cards.items()]
        out += [BLANK, Table(rows, "lw", "Factors on a card")]
    return out


def _described(part: Any, title: str, group: str = "") -> Table:
    """The described fields of a dataclass: value with its unit, and what it means. group: that of an engine's fields,
    which go by the names that a file and --set take."""
    units = {"s": "s", "bytes": "B", "bytes/s": "B/s"}
    names = {place: name for name, place in PLACES.items()}
    rows = []
    for field, about in abouts(type(part)).items():
        value = getattr(part, field)
        if isinstance(value, bool):
            value = "yes" if value else "no"
        elif about.kind == "number":
            unit = units.get(about.unit)
            size = gib(float(value)) if unit == "B" and value >= 2**20 else text(abs(value), unit, 4) if unit else None
            value = f"{'-' if value < 0 else ''}{size}" if size else f"{float(value):g}"
            value = "no limit" if value.endswith("inf") or value.startswith("inf ") else value
        words = ", ".join(word for word in about.among if word)
        meaning = about.meaning if all(word in about.meaning for word in about.among) else f"{about.meaning}: {words}"
        rows.append((names.get(f"{group}.{field}", field), str(value or "-"), meaning))
    return Table(rows, "lww", title)


def _show_cluster(name: str) -> list[Block]:
    canonical, device, own = cluster_parts(name)
    if device != ANY_DEVICE:
        load_device(device)  # a device of that name is there
    tiers = [
        (t.name, t.kind, f"{t.size:,.0f}" if t.size < FABRIC else "any number", text(float(t.bandwidth), "B/s"),
         text(float(t.latency), "s"))
        for t in own["tiers"]
    ]  # fmt: skip
    head = ("tier", "kind", "devices", "B/s one way", "latency")
    held = f", each held to {text(own[LIMIT], 'W')}" if LIMIT in own else ""
    return [Say(canonical, "title"), Say(f"  device {device}{held}"), BLANK, Table([head, *tiers], "llrrr", head=True)]


def _show_quant(name: str) -> list[Block]:
    q = parse_quant(name)
    rows = [("weights", f"{float(q.weight_bits):g} bits, {float(q.weight_bytes):.3g} B with scales"),
            ("activations", f"{float(q.act_bits):g} bits"), ("KV cache", f"{float(q.kv_bits):g} bits"),
            *[("narrow", f"{narrowed(q)} only")] * bool(q.wide)]  # fmt: skip
    return [Table(rows, "ll", q.name)]


def _show_technology(kind: str, name: str, row: dict[str, Any]) -> list[Block]:
    """The fields of a node, memory, link or die, as a file names them, with their kind and date, then the sources."""
    found = provenance(kind, name)
    told = {k: ", ".join(f"{n} {x}" for n, x in v.items()) if isinstance(v, dict) else str(v) for k, v in row.items()}
    rows = [(k, v, _kind_of(found, k)) for k, v in told.items() if k not in ("aliases", "from")]
    return [Table(rows, "lww", name), *_source_lines(found)]


def _show_dataset(name: str) -> list[Block]:
    """The lengths of a data set, and where they were counted."""
    named = one_of("dataset", name, datasets())
    found = datasets()[named]
    rows = [("prompt", f"{count(found.prompt)} tokens, mean"), ("lengths", _prompts_of(found)),
            ("output", f"{count(found.output)} tokens, mean"), ("output limit", f"{count(found.output_limit)} tokens"),
            ("output variation", "" if found.output_variation is None else f"{found.output_variation:g} of the mean"),
            ("source", found.source)]  # fmt: skip
    return [Table([row for row in rows if row[1]], "lw", named)]


SHOWS: dict[str, tuple[Any, Any]] = {
    "gpu": (_show_gpu, load_device),
    "model": (_show_model, load_model),
    "cluster": (_show_cluster, load_cluster),
    "engine": (_show_engine, load_engine),
    "quant": (_show_quant, parse_quant),
    "dataset": (_show_dataset, lambda name: datasets()[one_of("dataset", name, datasets())]),
}
"""Kind -> what shows a row, what loads it."""


def _names(context: typer.Context, incomplete: str) -> list[str]:
    kind = KINDS.get(str(context.params.get("kind")), str(context.params.get("kind")))
    return [n for n in completions(kind) if n.startswith(incomplete.lower())] if kind in KINDS.values() else []


def _alone(first: str) -> tuple[str, str]:
    """Kind and name where only one word is given: the name of a row, whose kind it tells."""
    found = kinds_of(first)
    if len(found) == 1 and first not in (*KINDS, *KINDS.values()):
        return found[0], first
    raise RooflmError(f"Missing argument 'NAME': {of_names('name, alias or path', completions(_kind(first)))}")


def show_row(begun: tuple[str, str], _: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm show` does with its arguments."""
    from dataclasses import asdict

    kind, name = begun if begun[1] else _alone(begun[0])
    singular = _kind(kind)
    if singular == "schema":
        from rooflm.cli.schemas import SCHEMAS, schema

        print(dumps(schema(one_of("schema", name, SCHEMAS))))
        return
    if singular in TECHNOLOGY:
        row, canonical = catalogue.raw_row(singular, name)
        print(dumps(row)) if shown["json"] else show(_show_technology(singular, canonical, row))
        return
    blocks, loaded = SHOWS[singular]
    found = loaded(name)
    beside = out_of_range(name, found.name) if singular == "engine" else ""
    told = [Say(f"{beside}."), BLANK] if beside else []
    print(dumps(asdict(found))) if shown["json"] else show([*told, *blocks(name)])


show_command = command(
    "show", [], show_row, "Show one row of the catalogue, with its sources; or the JSON Schema of a kind of file.",
    first=(KIND, word("name", "Name, alias or path.", _names, "")),
)  # fmt: skip
