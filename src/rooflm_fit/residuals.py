"""Errors that several sources share: python -m rooflm_fit.residuals TABLE.csv=SCORED.csv ... --by engine,card [...]

Of scored tables (`rooflm validate TABLE.csv --out SCORED.csv`): groups of rows whose sources err to one side. Every
ratio is of speeds, predicted over measured: above 1 is too fast, of a time as of a rate.

--by COLUMNS: the median of each source, then of sources, a source counting as the root of its rows; `side` is how many
of ten sources are more than 2 % off to that side. Columns of the table and `kind` (first token, token, rate), `card`,
`release`, `architecture` of the model, `clients` and `tokens` (of the prompt) in steps. Sources differ by hosts,
conditions and pages, so that a group of few sources says little of its column. Two ways take them out:
--against COLUMN: of each value of a column, its rows over all others of the same source, kind and engine.
--along COLUMN: how much a doubling of a number moves the ratio within a source, all else equal.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rooflm.asked.answers.bands import kind_of
from rooflm.asked.build_inference import find_model
from rooflm.catalogue.model import MLA, LinearAttention, MoE
from rooflm.errors import UnknownNameError
from rooflm.readers.devices import load_device
from rooflm.validation.score import is_rate

STEPS = {"clients": ("concurrency", (1, 8, 32, 128)), "tokens": ("prompt", (300, 1100, 4200, 9000))}
"""Columns in steps: of which number, and the ends of all steps but the last."""
SAME = ["model", "gpu", "quant", "tp", "metric", "engine", "prompt", "output", "concurrency", "rate"]
"""What is equal in rows that differ by a number alone."""


def architecture(name: str) -> str:
    """What a model's layers are.

    >>> architecture("deepseek-r1"), architecture("llama-3.1-8b"), architecture("a table's own")
    ('latents, mixture', 'dense', 'unknown')
    """
    try:
        blocks = find_model(name).blocks
    except UnknownNameError:  # its sizes are the table's
        return "unknown"
    parts = [part for block in blocks for part in (block.mixer, block.ffn)]
    names = {"recurrent": LinearAttention, "latents": MLA, "mixture": MoE}
    return ", ".join(name for name, kind in names.items() if any(isinstance(p, kind) for p in parts)) or "dense"


def card(name: str) -> str:
    """The line and generation of a card.

    >>> card("h200-sxm-141gb"), card("a table's own")
    ('datacenter hopper', 'unknown')
    """
    try:
        return kind_of(load_device(name))
    except UnknownNameError:
        return "unknown"


def step(value: float, ends: Sequence[float]) -> str:
    """The step that a number falls in.

    >>> step(8, (1, 8, 32)), step(33, (1, 8, 32)), step(float("nan"), (1, 8, 32))
    ('to 8', 'beyond 32', 'none')
    """
    if np.isnan(value):
        return "none"
    return next((f"to {end:g}" for end in ends if value <= end), f"beyond {ends[-1]:g}")


def joined(table: pd.DataFrame, scored: pd.DataFrame) -> pd.DataFrame:
    """Scored rows that count, with the columns of their table and what is asked of both; `log` of the speeds' ratio."""
    beside = [c for c in table if c in ("id", "metric") or c not in scored]
    rows = scored.merge(table[beside].drop_duplicates(["id", "metric"]), on=["id", "metric"])
    rows = rows[rows.ratio.notna() & (rows.ratio > 0) & rows.apart.isna()].copy()
    rate = rows.metric.map(is_rate)
    rows["log"] = np.log(rows.ratio) * np.where(rate, 1.0, -1.0)
    first, later = rows.metric.str.contains("ttft|prefill"), rows.metric.str.contains("tpot|itl|decode")
    rows["kind"] = np.select([first, later, rate], ["first token", "token", "rate"], "other")
    rows[["engine", "release"]] = rows.engine.str.split(" ", n=1, expand=True).reindex(columns=[0, 1])
    rows["card"] = rows.gpu.map({name: card(name) for name in rows.gpu.unique()})
    rows["architecture"] = rows.model.map({name: architecture(name) for name in rows.model.unique()})
    for name, (number, ends) in STEPS.items():
        values = pd.to_numeric(rows[number], errors="coerce") if number in rows else pd.Series(np.nan, rows.index)
        rows[name] = [step(v, ends) for v in values]
    return rows


def of_sources(logs: pd.Series, many: pd.Series, least: int) -> dict[str, float] | None:
    """Median of sources by the root of their rows, and how many of ten are more than 2 % off to its side."""
    if len(logs) < least:
        return None
    order = np.argsort(logs.to_numpy())
    weight = np.sqrt(many.to_numpy(float))[order].cumsum()
    middle = float(logs.to_numpy()[order][np.searchsorted(weight, weight[-1] / 2)])
    side = float((logs * np.sign(middle) > 0.02).mean())
    return {"sources": len(logs), "rows": int(many.sum()), "ratio": np.exp(middle), "side": 10 * side,
            "weight": abs(middle) * weight[-1]}  # fmt: skip


def listed(found: Sequence[tuple[Any, dict[str, float] | None]], heading: str, most: int) -> pd.DataFrame:
    """The groups of enough sources, those first that most sources share and that are furthest off."""
    rows = [{heading: name if isinstance(name, str) else ", ".join(map(str, name)), **f} for name, f in found if f]
    table = pd.DataFrame(rows, columns=[heading, "sources", "rows", "ratio", "side", "weight"])
    return table.sort_values("weight", ascending=False).head(most).drop(columns="weight").reset_index(drop=True)


def by(rows: pd.DataFrame, columns: Sequence[str], least: int = 3, most: int = 30) -> pd.DataFrame:
    """Groups of rows that are equal in these columns."""
    found = []
    for name, group in rows.groupby(list(columns), dropna=False):
        each = group.groupby("source").log.agg(["median", "count"])
        found.append((name, of_sources(each["median"], each["count"], least)))
    return listed(found, ", ".join(columns), most)


def against(rows: pd.DataFrame, column: str, least: int = 3, most: int = 30) -> pd.DataFrame:
    """Each value of a column over all others of the same source, kind and engine."""
    apart: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for (kind, *_), group in rows.groupby(["kind", "source", "engine"]):
        medians = group.groupby(column).log.agg(["median", "count"])
        for value in medians.index if len(medians) > 1 else ():
            rest = float(medians["median"].drop(value).median())
            own = (float(medians["median"][value]) - rest, int(medians["count"][value]))
            apart.setdefault((str(kind), str(value)), []).append(own)
    found = []
    for name, each in apart.items():
        logs, many = (pd.Series(part) for part in zip(*each, strict=True))
        found.append((name, of_sources(logs, many, least)))
    return listed(found, f"kind, {column}", most)


def along(rows: pd.DataFrame, column: str, columns: Sequence[str] = ("kind", "engine"), least: int = 3,
          most: int = 30) -> pd.DataFrame:  # fmt: skip
    """How much a doubling of a number moves the ratio, within each source and rows that are equal but for it."""
    rows = rows.assign(doublings=np.log2(pd.to_numeric(rows[column], errors="coerce").where(lambda v: v > 0)))
    rows = rows[rows.doublings.notna()]
    cell = [rows[c].astype(str) for c in SAME if c != column and c in rows]
    alike = rows.groupby([rows.source, *cell], dropna=False)
    x, y = (rows[c] - alike[c].transform("mean") for c in ("doublings", "log"))
    rows = rows.assign(xx=x * x, xy=x * y, moved=x != 0)
    sums = rows.groupby([*columns, "source"]).agg(xx=("xx", "sum"), xy=("xy", "sum"), count=("moved", "sum"))
    sums = sums[sums.xx > 0.4]  # half a doubling and less tells noise alone
    sums["slope"] = sums.xy / sums.xx
    found = [(name, of_sources(g.slope, g["count"], least)) for name, g in sums.groupby(list(columns))]
    return listed(found, f"{', '.join(columns)}: a doubling of {column}", most)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the groups that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", metavar="TABLE.csv=SCORED.csv")
    parser.add_argument("--where", default="", help="rows alone that a query holds for, as \"engine == 'vllm'\"")
    parser.add_argument("--by", action="append", default=[])
    parser.add_argument("--against", action="append", default=[])
    parser.add_argument("--along", action="append", default=[])
    parser.add_argument("--sources", type=int, default=3, help="least sources of a group")
    parser.add_argument("--most", type=int, default=30)
    a = parser.parse_args(arguments)
    files = [[pd.read_csv(f, low_memory=False) for f in pair.split("=", 1)] for pair in a.tables]
    rows = pd.concat([joined(*pair) for pair in files], ignore_index=True)
    rows = rows.query(a.where) if a.where else rows
    tables = [by(rows, c.split(","), a.sources, a.most) for c in a.by]
    tables += [against(rows, c, a.sources, a.most) for c in a.against]
    tables += [along(rows, c, least=a.sources, most=a.most) for c in a.along]
    for table in tables:
        print(table.round({"ratio": 3, "side": 1}).to_string(index=False), end="\n\n")


if __name__ == "__main__":
    main()
