"""Residuals of one's own measurements: from cases of `rooflm measure`, or from rows of a published table's form, to the
[residuals] of an engine's file; and what they gain on points kept aside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rooflm.errors import RooflmError
from rooflm.estimate.capacity import running
from rooflm.estimate.inference import infer_scenario
from rooflm.measure.case import Case
from rooflm.measure.compare import Key, Machine, fast_times, groups, machine_of, measured, scenario
from rooflm.measure.results import read
from rooflm.readers.devices import load_device
from rooflm.readers.engines import load_engine
from rooflm.readers.residuals import AXES, PHASES, Point, Residuals, place
from rooflm.validation.columns import TAILS, mean_of
from rooflm.validation.folds import held_out
from rooflm.validation.request import Request
from rooflm.validation.score import PHASES as PHASE_OF
from rooflm.validation.score import engine_of, is_rate, pick, scenario_of
from rooflm.validation.score import family as family_of
from rooflm.validation.table import read_rows

PARTS = 3
"""Parts of the points, each predicted from the others."""
METRICS = {"ttft_s": "prefill", "tpot_s": "decode"}
"""Metrics of measured cases that a phase's residuals are learnt from."""


class Gain(NamedTuple):
    """Points of a phase; mean of |log(measured / predicted)| on points kept aside, without and with interpolation."""

    points: int
    plain: float
    interpolated: float


def gains(known: Residuals) -> dict[str, Gain]:
    """What interpolation gains, by phase: each third of the points predicted from the other two."""
    found = {}
    for phase, points in known.points.items():
        share = [held_out([str(p.at) for p in points], share=(i + 1) / PARTS) for i in range(PARTS - 1)]
        part = PARTS - 1 - np.sum(share, axis=0) if share else np.zeros(len(points))
        off = []
        for k in range(PARTS):
            rest = Residuals({phase: tuple(p for p, i in zip(points, part, strict=True) if i != k)})
            off += [abs(p.ratio - float(np.log(rest.at(phase, p.at))))
                    for p, i in zip(points, part, strict=True) if i == k]  # fmt: skip
        plain = float(np.mean([abs(p.ratio) for p in points]))
        found[phase] = Gain(len(points), plain, float(np.mean(off)))
    return found


def from_tables(paths: Sequence[str], gpu: str, engine: str) -> Residuals:
    """Residuals over a catalogue GPU and engine, from tables of `rooflm measure` or of a published table's form (of
    which the rows of this GPU and engine count)."""
    device = load_device(gpu).name
    requests: list[Request] = []
    rows = []
    for path in paths:
        try:
            outcomes = read_rows(path)
        except RooflmError:
            rows += read(path)
            continue
        requests += [r for r in outcomes if isinstance(r, Request) and r.task == "infer" and r.group[1] == device]
    if rows:
        return from_cases(*measured(rows), machine_of(gpu, engine))
    name = load_engine(engine).runs
    return from_requests([r for r in requests if engine_of(r) == name])


def bare(machine: Machine) -> Machine:
    """The machine without its residuals."""
    return machine._replace(engine=replace(machine.engine, residuals=None))


def from_cases(known: Mapping[Case, str], values: Mapping[Key, float], machine: Machine) -> Residuals:
    """Residuals of measured cases (as `compare.measured` gives them) over a machine's predictions."""
    plain = bare(machine)
    runs = {c: shape for c, shape in known.items() if c.task == "infer"}
    told = fast_times(runs, plain)
    found: dict[str, list[Point]] = {phase: [] for phase in PHASES}
    for shape, cases in groups(runs):
        s = scenario(cases, shape, plain)
        for metric, phase in METRICS.items():
            at = np.broadcast_arrays(*place(s, phase, running(s).sequences), np.zeros(len(cases)))[:-1]
            for i, case in enumerate(cases):
                value = values.get((case.key, metric), float("nan"))
                if value > 0:
                    ratio = float(np.log(value / told[case.key, metric]))
                    found[phase].append(Point(tuple(float(x[i]) for x in at), ratio))
    return averaged(found)


def phase_of(r: Request) -> str:
    """The phase that a row is of; "" for none, and for tails, which are a run's accidents."""
    return "" if r.metric.endswith(TAILS) else PHASE_OF.get(mean_of(r.metric), "")


def from_requests(requests: Iterable[Request]) -> Residuals:
    """Residuals of rows of a published table's form (one engine's) over its predictions. Whole requests, whose time is
    of both phases, count for decoding where they have an output of eight tokens or more."""
    sets: dict[tuple[Any, ...], list[Request]] = {}
    for r in requests:
        if r.task == "infer" and phase_of(r) not in ("", "memory"):
            sets.setdefault(family_of(r), []).append(r)
    found: dict[str, list[Point]] = {phase: [] for phase in PHASES}
    for members in sets.values():
        s = scenario_of(members)
        plain = replace(s, engine=replace(s.engine, residuals=None))
        for i, (r, x) in enumerate(zip(members, pick(members, plain, infer_scenario(plain)), strict=True)):
            phase = {"prefill": "prefill"}.get(phase_of(r), "decode")
            if x.predicted > 0 and (phase_of(r) != "request" or r.kwargs["output"] >= 8):
                at = np.broadcast_arrays(*place(plain, phase, running(plain).sequences), np.zeros(len(members)))[:-1]
                ratio = np.log(r.measured / x.predicted) * (-1.0 if is_rate(r.metric) else 1.0)
                found[phase].append(Point(tuple(float(a[i]) for a in at), float(ratio)))
    return averaged(found)


def averaged(found: Mapping[str, Sequence[Point]]) -> Residuals:
    """Points by phase, with points at one position averaged; RooflmError if there are none."""
    done: dict[str, tuple[Point, ...]] = {}
    for phase, points in found.items():
        places: dict[tuple[float, ...], list[float]] = {}
        for p in points:
            places.setdefault(p.at, []).append(p.ratio)
        if places:
            done[phase] = tuple(Point(at, float(np.mean(ratios))) for at, ratios in places.items())
    if not done:
        raise RooflmError("no measured time to interpolate: the table has no prefill, decode or latency of a run")
    return Residuals(done)


def lines(known: Residuals) -> list[str]:
    """The [residuals] table of a TOML file."""
    text = ["", "[residuals]", f"# log of measured over predicted time at the logarithms of {', '.join(AXES)}"]
    for phase, points in known.points.items():
        text.append(f"{phase} = [")
        text += [f"  [{', '.join(f'{x:.5g}' for x in (*p.at, p.ratio))}]," for p in points]
        text.append("]")
    return text


def engine_file(base: str, known: Residuals, source: str) -> str:
    """The text of an engine's file that corrects `base` by residuals: for --engine."""
    head = [f"# {base} with residuals of {source}, by rooflm.", "[engine]", f'base = "{base}"']
    return "\n".join([*head, *lines(known)]) + "\n"
