"""Why predictions differ from measured runs: test hypotheses on all rows and rank them.

A hypothesis is a row of data/causes/suspects.toml: changes to the scenario's inputs at one or several levels. The one
whose predictions come closest to all rows explains them best.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rooflm.asked.assumed import built_for
from rooflm.asked.paths import get
from rooflm.errors import RooflmError
from rooflm.readers import rows as catalogue
from rooflm.readers.devices import load_device
from rooflm.readers.engines import family_of, load_engine
from rooflm.serving.deploy import server_for
from rooflm.shown.numbers import text as with_unit
from rooflm.sweep.workers import in_processes
from rooflm.validation import under_load
from rooflm.validation.columns import SERVE, TRAIN
from rooflm.validation.request import Request
from rooflm.validation.score import Scored, scenario_of, training_scenario, without_bands

OPTION, SETTING, SEVERAL, FACTOR = "option:", "set:", ".*", "*"
LEVEL = "{}"
UNIT = re.compile(r"\{\} (s|B/s)\b")
"""A level with its unit."""
CHOICE = 0.004
"""Loss (mean of |ln predicted/measured|) that twice as many levels must gain: more of them fit by chance."""
WORTH = 0.1
"""Least share of the loss that a cause must take away to be told."""
REPEATED = 0.05
"""Loss up to which nothing needs a cause: two runs of one server differ by a few per cent themselves."""
FINER, CLOSE = 2, 0.95
"""Rounds in which levels are halved, and the share of the base's loss above which that is not worth it."""
MOST_RUNS = 12
"""Simulated runs that suspects are played on: those furthest off."""


class Suspect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A hypothesis. name; says: its meaning, `{}` being the level; changes: input -> value; levels: values to try
    ("releases": the engine's other rows); tasks: which runs; needs: least values of arguments; between: whether levels
    between them are possible too."""

    name: str
    says: str
    changes: dict[str, str]
    levels: tuple[str, ...] | str = ("",)
    tasks: tuple[str, ...] = ()
    needs: dict[str, float] = {}
    between: bool = True

    def told(self, level: str) -> str:
        """What it means at a level; an amount with its unit.

        >>> Suspect("", "launched at {} s each", {}).told("2e-5"), Suspect("", "over {} B/s", {}).told("6e9")
        ('launched at 20.0 µs each', 'over 6.00 GB/s')
        """
        unit = UNIT.search(self.says)
        return self.says.replace(*(unit[0], with_unit(float(level), unit[1])) if unit else (LEVEL, level))


class _Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    suspect: tuple[Suspect, ...]


class Cause(NamedTuple):
    """A suspect at its best level. loss: mean |ln predicted/measured| if it were so, base: as predicted; share: of the
    base that it takes away; predicted: of each row, in its unit (nan where none)."""

    name: str
    says: str
    level: str
    loss: float
    base: float
    predicted: tuple[float, ...]

    @property
    def share(self) -> float:
        """Share of the gap that is explained."""
        return 1 - self.loss / self.base if self.base else 0.0


@cache
def suspects() -> tuple[Suspect, ...]:
    """Every suspect."""
    return catalogue.shipped("causes/suspects", _Known).suspect


def levels_of(s: Suspect, requests: Sequence[Request]) -> tuple[str, ...]:
    """The levels of a suspect; the other releases of the engine that the runs name."""
    if not isinstance(s.levels, str):
        return s.levels
    own = {str(r.kwargs["engine"]) for r in requests}
    families = {family_of(name) for name in own}
    devices = [load_device(str(r.kwargs["gpu"])) for r in requests]
    return tuple(row for row in catalogue.names("engine") if row not in own and family_of(row) in families
                 and all(built_for(load_engine(row), d) for d in devices))  # fmt: skip


def plain(text: str) -> Any:
    """A value as written: true, false, a number or a word."""
    if text in ("true", "false"):
        return text == "true"
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number == int(number) and "e" not in text else number


def ends(text: str) -> tuple[float, float]:
    """ "1-0.2,1+0.2" as (0.8, 1.2).

    >>> ends("1-0.2,1+0.2"), ends("1,1")
    ((0.8, 1.2), (1.0, 1.0))
    """
    low, _, high = text.partition(",")
    return (round(float(low.partition("-")[0]) - float(low.partition("-")[2] or 0), 9),
            round(float(high.partition("+")[0]) + float(high.partition("+")[2] or 0), 9))  # fmt: skip


def changed(r: Request, s: Suspect, level: str, scene: Callable[[], Any]) -> Request:
    """A run under a hypothesis. scene: its scenario, for values to be multiplied."""
    k = {**r.kwargs, "sets": dict(r.kwargs.get("sets", {})), "options": dict(r.kwargs.get("options", {}))}
    for key, written in s.changes.items():
        value = written.replace(LEVEL, level)
        if key.startswith(SETTING):
            path = key.removeprefix(SETTING)
            stem = path.removesuffix(SEVERAL)
            for one in [path] if stem == path else [f"{stem}.{name}" for name in get(scene(), stem)]:
                old = k["sets"].get(one)
                k["sets"][one] = scaled(value, lambda: get(scene(), one) if old is None else old)  # noqa: B023
        elif key.startswith(OPTION):
            name = key.removeprefix(OPTION)
            k["options"][name] = scaled(value, lambda: getattr(server_for(scene(), k["options"]), name))  # noqa: B023
        elif key == "spread":
            k[key] = ends(value)
        elif FACTOR in value:
            name, _, factor = value.partition(FACTOR)
            k[key] = int(k[name or key] * float(factor))
        else:
            k[key] = plain(value)
    return replace(r, kwargs={name: v for name, v in k.items() if v != {}})


def scaled(value: str, old: Callable[[], Any]) -> Any:
    """The new value, or for "*F" the old one times F."""
    return old() * float(value[1:]) if value.startswith(FACTOR) else plain(value)


def scene_of(r: Request) -> Callable[[], Any]:
    """The scenario of a run, built when it is asked for."""

    @cache
    def build() -> Any:
        if r.task == SERVE:
            return under_load.scenario(r)
        return training_scenario(r) if r.task == TRAIN else scenario_of([r])

    return build


def loss(requests: Sequence[Request], predicted: Iterable[float]) -> float:
    """Mean of |ln predicted/measured| over rows; infinity where one has no prediction."""
    ratios = [p / r.measured if p > 0 else math.nan for r, p in zip(requests, predicted, strict=True)]
    value = float(np.mean(np.abs(np.log(ratios)))) if ratios else math.inf
    return value if math.isfinite(value) else math.inf


def repeated(ratios: Iterable[float]) -> bool:
    """Whether predictions over measurements are off by no more than two runs of one server (REPEATED).

    >>> repeated([1.04, 0.97]), repeated([1.2])
    (True, False)
    """
    return float(np.mean(np.abs(np.log([*ratios])))) <= REPEATED


def worst_rows(scored: Sequence[Scored]) -> list[Scored]:
    """The rows on which hypotheses are tried; of runs under load only those that are off most."""
    good = [x for x in scored if not x.reason and x.predicted > 0 and x.request.measured > 0]
    worst: dict[str, float] = {}
    for x in good:
        if x.request.task == SERVE:
            run = under_load.run_of(x.request)
            worst[run] = max(worst.get(run, 0.0), abs(math.log(x.ratio)))
    kept = set(sorted(worst, key=lambda run: -worst[run])[:MOST_RUNS])
    return [x for x in good if x.request.task != SERVE or under_load.run_of(x.request) in kept]


class Trial(NamedTuple):
    """A suspect to be played. held: whether it can hold for each row; base: the loss of the rows as predicted."""

    suspect: Suspect
    rows: Sequence[Scored]
    held: Sequence[bool]
    base: float

    @property
    def requests(self) -> list[Request]:
        """The rows' runs."""
        return [x.request for x in self.rows]

    @property
    def work(self) -> int:
        """How many runs its levels have to be played on."""
        return len(levels_of(self.suspect, self.requests)) * len(loads(self.requests, self.held))


def trial(s: Suspect, rows: Sequence[Scored], base: float) -> Trial:
    """A suspect and the rows for which it can hold: those of its tasks, with the arguments that it needs."""
    held = [(not s.tasks or x.request.task in s.tasks)
            and all((x.request.kwargs.get(k) or 0) >= v for k, v in s.needs.items()) for x in rows]  # fmt: skip
    return Trial(s, rows, held, base)


def causes(scored: Sequence[Scored], tell: Callable[[int, int, str], None] | None = None) -> list[Cause]:
    """Hypotheses that bring predictions closer to the measurements, best first.

    tell: called with (number, total, name) after each. An interrupt ends the search with the results so far.
    """
    rows = worst_rows(scored)
    base = loss([x.request for x in rows], [x.predicted for x in rows])
    if not rows or repeated(x.ratio for x in rows):
        return []
    trials = [t for t in (trial(s, rows, base) for s in suspects()) if any(t.held)]
    trials.sort(key=lambda t: -t.work)  # so that no core is left with the longest
    found: dict[str, Cause | None] = {}
    with suppress(KeyboardInterrupt), closing(in_processes(best_level, trials, sum(t.work for t in trials))) as played:
        for number, (t, cause) in enumerate(played, start=1):
            found[t.suspect.name] = cause
            if tell:
                tell(number, len(trials), t.suspect.name)
    best = [cause for s in suspects() if (cause := found.get(s.name))]
    return sorted((c for c in best if c.share >= WORTH), key=lambda c: c.loss)


def best_level(t: Trial) -> Cause | None:
    """A suspect at the level that comes nearest, if any can be predicted and helps; where levels are numbers and it
    helps, levels between them are tried too."""
    scenes = [scene_of(r) for r in t.requests]
    tried: dict[str, tuple[float, tuple[float, ...]]] = {}
    bound = CLOSE * t.base  # above it nothing is told

    def try_level(level: str) -> None:
        nonlocal bound
        try:
            asked = [changed(r, t.suspect, level, scene) if h else r
                     for r, scene, h in zip(t.requests, scenes, t.held, strict=True)]  # fmt: skip
        except RooflmError:
            return
        tried[level] = play(asked, t.held, [x.predicted for x in t.rows], bound)
        bound = min(bound, tried[level][0])

    levels = levels_of(t.suspect, t.requests)
    for level in levels:
        try_level(level)
    for _ in range(FINER if t.suspect.between else 0):
        if not tried or min(v for v, _ in tried.values()) > CLOSE * t.base:
            break
        for level in between(tried, min(tried, key=lambda k: tried[k][0])):
            try_level(level)
    if not tried or not math.isfinite(min(v for v, _ in tried.values())):
        return None
    level = min(tried, key=lambda k: tried[k][0])
    toll = CHOICE * math.log2(max(len(levels), 1))
    return Cause(t.suspect.name, t.suspect.told(level), level, tried[level][0] + toll, t.base, tried[level][1])


def play(
    asked: Sequence[Request], held: Sequence[bool], before: Sequence[float], bound: float
) -> tuple[float, tuple[float, ...]]:
    """Loss and predictions of runs, of which those that are not held stay as before; infinity as soon as what was
    played leaves no way below the bound."""
    new, known = [*before], [not h for h in held]
    for rows in loads(asked, held):
        for i, x in zip(rows, without_bands([asked[i] for i in rows]), strict=True):
            new[i], known[i] = x.predicted, True
        so_far = [i for i, k in enumerate(known) if k]
        least = loss([asked[i] for i in so_far], [new[i] for i in so_far]) * len(so_far) / len(asked)
        if least > bound * (1 + 1e-9) and len(so_far) < len(asked):
            return math.inf, ()
    return loss(asked, new), tuple(new)


def loads(asked: Sequence[Request], held: Sequence[bool]) -> list[list[int]]:
    """Rows that are held: figures of one run under load together, runs of few requests first; all others together."""
    groups: dict[str, list[int]] = {}
    for i, (r, h) in enumerate(zip(asked, held, strict=True)):
        if h:
            groups.setdefault(under_load.run_of(r) if r.task == SERVE else "", []).append(i)
    return sorted(groups.values(), key=lambda rows: size(asked[rows[0]]))


def size(r: Request) -> float:
    """About how many requests are simulated for a run."""
    told = (r.kwargs.get(name) for name in ("requests", "concurrency"))
    return max((float(x) for x in told if isinstance(x, int | float)), default=0.0)


def between(levels: Iterable[str], best: str) -> list[str]:
    """Levels half-way (by ratio) between the best and its neighbours; none where levels are words.

    >>> between(["16", "32", "64"], "32"), between(["0.5", "0.25"], "0.25"), between(["", "x"], "x")
    (['23', '45'], ['0.354'], [])
    """
    try:
        numbers = {float(x): x for x in levels}
        here = float(best)
    except ValueError:
        return []
    whole = all(x.isdigit() for x in numbers.values())
    near = [max((n for n in numbers if n < here), default=0.0), min((n for n in numbers if n > here), default=0.0)]
    halves = [math.sqrt(n * here) for n in near if n > 0]
    made = [f"{h:.0f}" if whole else f"{h:.3g}" for h in halves]
    return [m for m in made if float(m) not in numbers]
