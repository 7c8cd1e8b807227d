"""Measured runs beside their predictions, each played as it was: under load by the simulator, a static batch as such.

Tables of measured runs, `rooflm measure`'s own, and files of other tools all become the same rows; what the caller
states goes before what a file says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from rooflm.errors import RooflmError
from rooflm.measure import compare as cases
from rooflm.measure import results, why
from rooflm.measure.figures import coordinates, strategy
from rooflm.measure.foreign import Cells, read_foreign
from rooflm.readers import outside
from rooflm.readers.devices import load_device
from rooflm.readers.engines import load_engine
from rooflm.shown.numbers import plural
from rooflm.validation import headings, table
from rooflm.validation.cells import number
from rooflm.validation.columns import COLUMNS, METRICS, SERVER_OPTIONS, SETTING
from rooflm.validation.request import Skip
from rooflm.validation.score import Scored, score


class Point(NamedTuple):
    """One metric of one run: measured and predicted, in SI units, the ends of the band (nan: none), what the run was in
    words, and where it stands (strategy, dtype, model, ...)."""

    label: str
    metric: str
    measured: float
    predicted: float
    low: float
    high: float
    at: Mapping[str, Any]

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / max(self.measured, 1e-30)


@dataclass(frozen=True)
class Comparison:
    """Points, rows left out by reason, and causes, best first. rows: the points on which causes were played, in the
    order of their predictions."""

    points: tuple[Point, ...]
    skipped: Mapping[str, int] = field(default_factory=dict)
    causes: tuple[why.Cause, ...] = ()
    rows: tuple[Point, ...] = ()
    assumed: tuple[str, ...] = ()


def rows_of(path: str, given: Cells) -> tuple[list[results.Row], list[Cells]]:
    """(own measurements, rows of a table) of a file of any kind that is read, with what the caller states in them."""
    suffix = Path(path).suffix.lower()
    if suffix in (".json", ".jsonl", ".txt", ".log"):
        return [], [row | given for row in read_foreign(path)]
    if suffix == ".parquet":
        return results.read(path), []
    header, listed = headings.records(outside.text(path, "results", "csv"), path)
    if "run:key" in header:
        return results.read(path), []
    table.check_header(header, path)
    return [], [{k: v for k, v in row.items() if v} | given for _, row in listed]


def cells_of(given: Mapping[str, Any]) -> Cells:
    """Arguments as cells of a table; RooflmError for an argument that is not a column."""
    cells: Cells = {}
    for name, value in given.items():
        if name == "sets":
            cells |= {f"{SETTING}{path}": str(v) for path, v in value.items()}
        elif name not in COLUMNS:
            raise RooflmError(f"compare has no argument {name!r}")
        elif value is not None:
            cells[name] = ",".join(f"{v:g}" for v in value) if isinstance(value, tuple) else str(value)
    return cells


def compare(
    paths: Sequence[str], given: Mapping[str, Any], clock: str = "wall", explain: bool = True,
    tell: Callable[[int, int, str], None] | None = None, efficiency: str | None = None,
) -> Comparison:  # fmt: skip
    """Every measured metric of the files beside its prediction, and why they part.

    given: columns that the caller states. Raises RooflmError where nothing can be compared.
    """
    stated = cells_of(given)
    for name, load in (("gpu", load_device), ("engine", load_engine)):
        if name in stated:  # an unknown name is refused once, not row by row
            load(stated[name])
    own: list[results.Row] = []
    rows: list[Cells] = []
    for path in paths:
        mine, theirs = rows_of(path, stated)
        own += mine
        rows += theirs
    points: list[Point] = own_points(own, stated, clock, efficiency) if own else []
    rows = [undisturbed(r) for r in rows] if clock == "cpu" else rows
    outcomes = [table.read_row(r, i) for i, r in enumerate(with_engine(rows, stated), start=2)]
    skipped = Counter(o.reason for o in outcomes if isinstance(o, Skip))
    requests = [o for o in outcomes if not isinstance(o, Skip)]
    if efficiency:
        requests = [replace(r, kwargs={**r.kwargs, "efficiency": efficiency}) for r in requests]
    scored = score(requests)
    skipped.update(x.reason for x in scored if x.reason)
    good = by_load([x for x in scored if not x.reason and x.predicted > 0])
    played = [point(x) for x in good]
    points += played
    if not points:
        said = "; ".join(f"{reason} ({plural(n, 'row')})" for reason, n in skipped.most_common(3))
        said = said.replace("gpu is blank", "gpu is blank: name the one that they ran on with --gpu")
        raise RooflmError(f"nothing can be compared: {said or 'the files hold no measured value'}")
    causes = why.causes(good, tell) if explain and good else []
    kept = {id(x) for x in why.worst_rows(good)}
    rows_played = tuple(p for x, p in zip(good, played, strict=True) if id(x) in kept)
    assumed = tuple(dict.fromkeys(a for x in good for a in x.request.assumed))
    return Comparison(tuple(points), dict(skipped), tuple(causes), rows_played, assumed)


def undisturbed(row: Cells) -> Cells:
    """A row of a server of one thread as it would be if it had had a core to itself: times by the share of a core that
    its busiest process had while it worked (`run:busiest`; in older rows all processes, `run:cores`).

    >>> undisturbed({"metric": "ttft", "value": "2.0", "run:cores": "1.25", "run:busiest": "0.25"})["value"]
    '0.5'
    """
    share = number(row.get("run:busiest") or row.get("run:cores", ""))
    value = number(row.get("value", ""))
    if not share or not value or share >= 1:
        return row
    rate = "per_s" in row["metric"]
    return row | {"value": repr(value / share if rate else value * share)}


def with_engine(rows: Sequence[Cells], stated: Cells) -> list[Cells]:
    """Rows, with the engine of a calibrated machine's own file: its constants were fitted to that server, whatever the
    file of a run calls it. What the caller states goes before it."""
    from rooflm.readers.rows import is_path, own_row

    if "engine" in stated:
        return list(rows)
    known = {r["gpu"]: own_row("engine", r["gpu"]) for r in rows if is_path(r.get("gpu", ""))}
    return [{**r, "engine": own} if (own := known.get(r.get("gpu", ""))) else r for r in rows]


def own_points(rows: Sequence[results.Row], stated: Cells, clock: str, efficiency: str | None) -> list[Point]:
    """Points of `rooflm measure`'s own cases, predicted as they ran."""
    if "gpu" not in stated:
        raise RooflmError(
            "these runs were measured on a machine of one's own: give --gpu, a device or a calibrated .toml"
        )
    machine = cases.machine_of(stated["gpu"], stated.get("engine"), efficiency)
    nan = float("nan")
    return [Point(p.case.label, p.metric, p.measured, p.predicted, nan, nan, coordinates(p.case))
            for p in cases.pairs(rows, machine, clock)]  # fmt: skip


def point(x: Scored) -> Point:
    """The point of a scored row."""
    r = x.request
    at = {"model": r.group[0], "strategy": strategy(r.kwargs), "optimisation": str(r.kwargs.get("quant", "none")),
          "dtype": "none", "engine": r.engine, "task": r.task}  # fmt: skip
    return Point(label(x), shown(r.metric), r.measured, x.predicted, x.low, x.high, at)


def shown(metric: str) -> str:
    """A metric as answers have it: a time says its unit.

    >>> shown("ttft"), shown("latency_s"), shown("mfu")
    ('ttft_s', 'latency_s', 'mfu')
    """
    return metric if METRICS[metric].unit != "s" or metric.endswith("_s") else f"{metric}_s"


LOADS = {"concurrency": "clients", "rate": "requests/s", "batch": "at a time"}
"""What a run's load is given as, and its words."""


def by_load(runs: Sequence[Scored]) -> list[Scored]:
    """Runs that differ in nothing but their load from the least to the most, where the first of them stands."""
    alike = [label(x, ()) for x in runs]
    loads = [tuple(float(x.request.kwargs.get(n) or 0) for n in LOADS) for x in runs]
    order = sorted(range(len(runs)), key=lambda i: (alike.index(alike[i]), loads[i]))
    return [runs[i] for i in order]


def label(x: Scored, loads: Collection[str] = LOADS) -> str:
    """What a run was, in a few words."""
    k = x.request.kwargs
    given = [f"{k[n]} {LOADS[n].removesuffix('s' * (k[n] == 1 and n == 'concurrency'))}" for n in loads if k.get(n)]
    load = ", ".join(given) or ("a trace" if k.get("trace") else "")
    size = f"{k['prompt']}+{k['output']}" if "prompt" in k else f"{k.get('seq', '')} tokens"
    options = [f"{n} {v}" for n, v in k.get("options", {}).items() if n in SERVER_OPTIONS]
    model = f"{x.request.group[0].rsplit('/', 1)[-1]} {strategy(k)}".removesuffix(" none")
    return ", ".join([model, str(k.get("gpu") or "").rsplit("/", 1)[-1], load, size, *options])
