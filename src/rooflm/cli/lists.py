"""`rooflm list` and `rooflm show`: what the catalogue holds, with units and sources."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rooflm.catalogue import devices as catalogue
from rooflm.catalogue.engine import GROUPS
from rooflm.catalogue.engines import load_engine, row_of
from rooflm.catalogue.fields import abouts
from rooflm.checkpoints.load import load_model
from rooflm.cli import render
from rooflm.errors import RooflmError, near_matches
from rooflm.units import gib, text

KINDS = {
    "gpus": "gpu", "models": "model", "clusters": "cluster", "engines": "engine", "quants": "quant",
    "nodes": "node", "drams": "dram", "links": "link", "dies": "die",
}  # fmt: skip


def _kind(word: str) -> str:
    singular = word.lower().strip()
    singular = KINDS.get(singular, singular)
    if singular not in KINDS.values():
        near = near_matches(word, KINDS) or list(KINDS)
        raise RooflmError(f"unknown list {word!r}: did you mean {' or '.join(map(repr, near))}?")
    return singular


def _gpu_row(name: str) -> tuple[str, ...]:
    d = catalogue.load_device(name)
    best = "bf16" if "bf16" in d.peak else next(iter(d.peak))
    peak, rate = text(float(d.peak[best]), "FLOP/s"), text(float(d.dram.bandwidth), "B/s")
    return (name, peak, best, gib(float(d.dram.size)), rate,
            text(float(d.tdp), "W"), f"{float(d.price):.2f}")  # fmt: skip


def _model_row(name: str) -> tuple[str, ...]:
    from rooflm.catalogue.model import parameters
    from rooflm.catalogue.quant import PRESETS
    from rooflm.estimate.memory import kv_bytes_per_token

    m = load_model(name)
    return (name, text(float(parameters(m)), ""), text(float(parameters(m, active=True)), ""), render.count(m.layers),
            render.count(m.hidden), text(float(kv_bytes_per_token(m, PRESETS["bf16"])), "B"))  # fmt: skip


def _cluster_row(name: str) -> tuple[str, ...]:
    row, _ = catalogue.raw_row("cluster", name)
    tiers = ", ".join(f"{t['name']} x{t['size']} {t['bandwidth']}" for t in row["tiers"])
    return (name, str(row["device"]), tiers)


def _engine_row(name: str) -> tuple[str, ...]:
    e = load_engine(name)
    return (name, e.version, e.phase)


TECHNOLOGY = {
    "node": ("nm", "year", "logic_area", "sram_area", "energy", "voltage"),
    "dram": ("year", "pin_gbps", "pins", "capacity_gb", "energy_pj"),
    "link": ("year", "gbps", "latency_us", "energy_pj"),
    "die": ("device", "node", "dram", "area_mm2", "tdp_w"),
}
"""Fields of technology rows that a list shows; units are in their names (a node's areas, energy: over 16 nm's)."""


def _technology_rows(kind: str, names: list[str]) -> list[str]:
    """A table of nodes, memories, links or dies."""
    rows = [catalogue.raw_row(kind, name)[0] for name in names]
    shown = [f for f in TECHNOLOGY[kind] if any(f in row for row in rows)]
    cells = [(name, *(str(row.get(f, "-")) for f in shown)) for name, row in zip(names, rows, strict=True)]
    return render.columns([(kind, *(f.replace("_", " ") for f in shown)), *cells], "l" + "r" * len(shown), indent=0)


HEADS: dict[str, tuple[tuple[str, ...], str, Any]] = {
    "gpu": (("GPU", "peak", "type", "memory", "bandwidth", "TDP", "USD/h"), "lrlrrrr", _gpu_row),
    "model": (("model", "parameters", "active", "layers", "hidden", "KV B/token"), "lrrrrr", _model_row),
    "cluster": (("cluster", "device", "tiers (devices, B/s one way)"), "lll", _cluster_row),
    "engine": (("engine", "version", "for"), "lll", _engine_row),
}


def list_rows(
    kind: Annotated[str, typer.Argument(help="gpus, models, clusters, engines, quants, nodes, drams, links or dies.")],
    match: Annotated[str, typer.Argument(help="Only names that contain this.")] = "",
    json_: Annotated[bool, typer.Option("--json", help="Print names as JSON.")] = False,
) -> None:
    """List what the catalogue holds."""
    singular = _kind(kind)
    if singular == "quant":
        from rooflm.catalogue.quant import PRESETS

        rows = [(q.name, f"w{q.weight_bits}a{q.act_bits}kv{q.kv_bits}", f"{float(q.weight_bytes):.3g} B a weight")
                for q in PRESETS.values()]  # fmt: skip
        print(
            render.dumps({"quants": [r[0] for r in rows]})
            if json_
            else "\n".join(render.columns(rows, "lll", indent=0))
        )
        return
    names = [n for n in catalogue.names(singular) if match.lower() in n]
    if json_:
        print(render.dumps({f"{singular}s": names}))
        return
    if singular in TECHNOLOGY:
        print("\n".join(_technology_rows(singular, names)))
        return
    head, sides, make = HEADS[singular]
    print(
        "\n".join(line[: render.WIDTH] for line in render.columns([head, *(make(n) for n in names)], sides, indent=0))
    )


def _show_gpu(name: str) -> list[str]:
    d = catalogue.load_device(name)
    found = catalogue.provenance("gpu", name)
    rows = [("vendor", d.vendor, ""), ("architecture", d.architecture, ""), ("SMs", render.count(d.sms), "sms"),
            ("clock", text(float(d.clock), "Hz"), "clock")]  # fmt: skip
    rows += [(f"peak {k}", text(float(v), "FLOP/s"), f"peak.{k}") for k, v in d.peak.items()]
    for level, m in (("l1", d.l1), ("l2", d.l2), ("dram", d.dram)):
        size = gib(float(m.size)) if level == "dram" else f"{float(m.size) / 2**20:.1f} MiB"
        rows += [
            (f"{level} size", size, f"{level}.size"),
            (f"{level} bandwidth", text(float(m.bandwidth), "B/s"), f"{level}.bandwidth"),
        ]
    rows += [("TDP", text(float(d.tdp), "W"), "tdp"), ("idle", text(float(d.idle), "W"), "idle"),
             ("price", f"{float(d.price):.2f} USD/h", "price"),
             ("cluster", catalogue.default_cluster(name), "")]  # fmt: skip
    return [d.name, *render.columns([(a, b, _kind_of(found, c)) for a, b, c in rows], "lrl"), "", *_source_lines(found)]


def _kind_of(found: dict[str, Any], field: str) -> str:
    record = found.get(field) or found.get(field.split(".")[0])
    return f"{record.kind}, {record.date}" if record and field else ""


def _source_lines(found: dict[str, Any]) -> list[str]:
    import textwrap

    unique = sorted({record.source for record in found.values()})
    return [
        "Sources",
        *(
            line
            for s in unique
            for line in textwrap.wrap(s, render.WIDTH, initial_indent="  ", subsequent_indent="    ")
        ),
    ]


def _show_model(name: str) -> list[str]:
    from rooflm.catalogue.model import parameters
    from rooflm.catalogue.quant import PRESETS
    from rooflm.estimate.memory import kv_bytes_per_token

    m = load_model(name)
    rows = [("parameters", text(float(parameters(m)), "", 4)),
            ("  active for a token", text(float(parameters(m, True)), "", 4)),
            ("layers", render.count(m.layers)), ("hidden", render.count(m.hidden)),
            ("vocabulary", render.count(m.vocab)),
            ("context", render.count(m.max_context) if m.max_context != float("inf") else "-"),
            ("KV cache a token, 16 bits", f"{float(kv_bytes_per_token(m, PRESETS['bf16'])) / 1024:g} KiB"),
            ("native type", m.quant or m.dtype)]  # fmt: skip
    lines = [m.name, *render.columns(rows, "lr"), "", "Blocks"]
    for block in m.blocks:
        lines += _wrapped(f"{render.count(block.count)} layers", [_words(block.mixer), _words(block.ffn)])
    return lines


def _wrapped(label: str, items: list[str]) -> list[str]:
    """A label and its items, each in lines of at most 80 columns."""
    import textwrap

    lines = [f"  {label}"]
    for item in items:
        lines += textwrap.wrap(item, render.WIDTH, initial_indent="    ", subsequent_indent="      ")
    return lines


def _words(part: Any) -> str:
    """A mixer or feed-forward as words: its kind, its numbers, and the flags that are set."""
    if part is None:
        return "-"
    given = {k: v for k, v in vars(part).items() if v not in (False, 0, float("inf")) and k != "rope"}
    words = [k if v is True else f"{k} {v if isinstance(v, str) else render.count(v)}" for k, v in given.items()]
    return f"{type(part).__name__}: {', '.join(words)}"


def _show_engine(name: str) -> list[str]:
    """Every constant as predictions use it, then what multiplies some of them on a card and in a release."""
    e, row = load_engine(name), row_of(name)
    lines = [e.name, *_described(e)]
    aside = ("habits", "overlaps") if e.phase == "inference" else ("stages", "server")
    for group in (g for g in (*GROUPS, "server") if g not in aside):
        lines += ["", group.capitalize(), *_described(getattr(e, group))]
    for title, factors in (("Factors on a card", row.cards), (f"Factors of a release ({name}@RELEASE)", row.releases)):
        if any(factors.values()):
            lines += ["", title]
            words = {key: ", ".join(f"{k} {v:g}" for k, v in own.items()) for key, own in factors.items()}
            lines += [line for key, text_ in words.items() for line in _wrapped(key, [text_])]
    return lines


LONG = 40
"""Characters of a value above which its meaning stands below it."""


def _described(part: Any) -> list[str]:
    """The described fields of a dataclass: value with its unit, and what it means."""
    import textwrap

    units = {"s": "s", "bytes": "B", "bytes/s": "B/s"}
    lines: list[str] = []
    for field, about in abouts(type(part)).items():
        value = getattr(part, field)
        if isinstance(value, bool):
            value = "yes" if value else "no"
        elif about.kind == "number":
            unit = units.get(about.unit)
            size = gib(float(value)) if unit == "B" and value >= 2**20 else text(abs(value), unit, 4) if unit else None
            value = f"{'-' if value < 0 else ''}{size}" if size else f"{float(value):g}"
        if len(str(value)) > LONG:
            lines += textwrap.wrap(f"{field:18} {value}", render.WIDTH, initial_indent="  ",
                                   subsequent_indent=" " * 21)  # fmt: skip
            value, field = " ", ""  # the meaning below it
        first = f"  {field:18} {value or '-'!s:11} "
        lines += textwrap.wrap(about.meaning, render.WIDTH, initial_indent=first, subsequent_indent=" " * len(first))
    return lines


def _show_cluster(name: str) -> list[str]:
    row, canonical = catalogue.raw_row("cluster", name)
    tiers = [(t["name"], t["kind"], str(t["size"]), str(t["bandwidth"]), str(t["latency"])) for t in row["tiers"]]
    return [
        canonical,
        f"  device {row['device']}",
        "",
        *render.columns([("tier", "kind", "devices", "B/s one way", "latency"), *tiers], "llrrr"),
    ]


def _show_technology(kind: str, name: str, row: dict[str, Any]) -> list[str]:
    """The values of a node, memory, link or die with their kind and date, then the sources."""
    found = catalogue.provenance(kind, name)
    rows = [
        (k.replace("_", " "), str(v)[:40], _kind_of(found, k)) for k, v in row.items() if k not in ("aliases", "from")
    ]
    return [name, *render.columns(rows, "lrl"), "", *_source_lines(found)]


def show_row(
    kind: Annotated[str, typer.Argument(help="gpu, model, cluster, engine, node, dram, link or die.")],
    name: Annotated[str, typer.Argument(help="Name, alias or path.")],
    json_: Annotated[bool, typer.Option("--json", help="Print the row as JSON.")] = False,
) -> None:
    """Show one row of the catalogue, with its sources."""
    from dataclasses import asdict

    singular = _kind(kind)
    loaders: dict[str, Any] = {
        "gpu": catalogue.load_device,
        "model": load_model,
        "cluster": catalogue.load_cluster,
        "engine": load_engine,
    }
    shows = {"gpu": _show_gpu, "model": _show_model, "cluster": _show_cluster, "engine": _show_engine}
    if singular in TECHNOLOGY:
        row, canonical = catalogue.raw_row(singular, name)
        print(render.dumps(row) if json_ else "\n".join(_show_technology(singular, canonical, row)))
        return
    if singular not in shows:
        raise RooflmError(f"there is nothing to show of {kind!r}: use one of {', '.join(KINDS.values())}")
    if json_:
        print(render.dumps(asdict(loaders[singular](name))))
        return
    print("\n".join(shows[singular](name)))
