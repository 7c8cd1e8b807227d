"""Measured rows -> predictions: each Request gets the number that `rooflm` predicts for it, or a reason why not.

Rows of fixed batches go through `infer`, rows under load through `serve`, training rows through `train`. Rows of infer
that differ in numbers only (sizes, lengths, degrees) are predicted together, as one array evaluation: a table of three
thousand rows takes seconds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from rooflm.asked.answers.bands import PARTS, around, band, kind_of, over_nodes
from rooflm.asked.answers.training import train
from rooflm.asked.build_inference import build_inference, find_model
from rooflm.asked.build_training import build_training
from rooflm.errors import RooflmError
from rooflm.estimate.inference import InferenceFigures, infer_scenario
from rooflm.kernels.constants import ANY, entries_of
from rooflm.readers.devices import load_device
from rooflm.readers.engines import family_of, load_engine
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num
from rooflm.validation.columns import INFER, METRICS, SERVE, TAILS, TRAIN, UNITS, mean_of
from rooflm.validation.metrics import describe
from rooflm.validation.request import Outcome, Request, Skip, as_run
from rooflm.validation.sizes import model_argument
from rooflm.validation.table import label, unit_of
from rooflm.validation.under_load import predict_load, run_of, scenario

NUMBERS = ("gpus", "tp", "pp", "dp", "ep", "cp", "batch", "prompt", "output", "cached")
"""Arguments of inference that may be arrays."""
BORDER = 0.05
"""Share of the capacity within which a verdict on memory is borderline."""
VERDICT = "verdict on memory: see verdicts"


class Scored(NamedTuple):
    """A row and its prediction (in the unit of its metric); nan where there is none, with the reason.

    margin: free memory of the predicted run over the capacity (negative: missing); waves: rounds in which the batch
    runs; low, high: error band; stands_on: what the prediction had to assume of the run, in words; first: the first
    token's share of a request that runs alone or in a batch.
    """

    request: Request
    predicted: float
    reason: str = ""
    margin: float = float("nan")
    waves: float = 1.0
    low: float = float("nan")
    high: float = float("nan")
    stands_on: str = ""
    first: float = 0.0

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the row does not state, or no catalogue holds, and what its prediction had to assume."""
        return (*self.request.assumed, *filter(None, [self.stands_on]))

    @property
    def where(self) -> str:
        """The distance of its error band where its conditions decide that ("": its engine and card do)."""
        given = self.request.kwargs
        several = any(int(given.get(name) or 1) > 1 for name in ("gpus", "tp", "pp", "cp", "dp"))
        if self.request.task != TRAIN and several:
            s = scenario(self.request) if self.request.task == SERVE else scenario_of([self.request])
            if np.any(over_nodes(s)):
                return "nodes"
        embeds = not find_model(model_argument(given["model"])).head
        rare = embeds or self.request.metric.endswith(TAILS)
        return "far" if self.assumed or rare or any(given.get(part) for part in PARTS) else ""

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.request.measured


def engine_of(request: Request) -> str:
    """The engine row of a request."""
    return str(request.kwargs["engine"])


def family(request: Request) -> tuple[Any, ...]:
    """What rows of inference must share to be predicted in one evaluation: all but their numbers."""
    rest = {k: v for k, v in request.kwargs.items() if k not in NUMBERS}
    given = tuple(k for k in NUMBERS if k in request.kwargs)
    return json.dumps(rest, sort_keys=True, default=str), given, request.task


def scenario_of(requests: Sequence[Request]) -> Scenario:
    """One scenario for requests of one family: their numbers as arrays along one axis. RooflmError if it has none."""
    first = as_run(requests[0].kwargs)
    for name in NUMBERS:
        if name in first:
            first[name] = np.array([float(r.kwargs[name]) for r in requests])
    if np.all(first.get("ep", 1) == 1):
        first.pop("ep", None)  # without it, expert parallelism is left out of the graph
    first["model"] = model_argument(first["model"])
    built = build_inference(**{"efficiency": "calibrated", **first})
    return replace(built.scenario, axes=1)


INFERRED: Mapping[str, Any] = {
    "ttft": lambda e, s: e.ttft,
    "tpot": lambda e, s: e.tpot,
    "latency_s": lambda e, s: e.latency,
    "output_tokens_per_s": lambda e, s: e.output_tokens_per_s,
    "total_tokens_per_s": lambda e, s: e.requests_per_s * (s.workload.prompt + s.workload.output),
    "requests_per_s": lambda e, s: e.requests_per_s,
    "prefill_tokens_per_s": lambda e, s: s.workload.batch * (s.workload.prompt - s.workload.cached) / e.ttft,
    "decode_tokens_per_s": lambda e, s: s.workload.batch / e.tpot,
    "memory_bytes": lambda e, s: e.memory.total,
    "oom": lambda e, s: np.where(np.asarray(e.fits), 0.0, 1.0),
}
"""Metric of a row -> how an inference estimate gives it; all requests of a batch are alike."""
TRAINED: Mapping[str, Any] = {
    "step_time_s": lambda e: e.step_time, "tokens_per_s_per_gpu": lambda e: e.tokens_per_s_per_gpu,
    "model_tflops_per_gpu": lambda e: e.model_tflops_per_gpu, "mfu": lambda e: e.mfu, "hfu": lambda e: e.hfu,
    "memory_bytes": lambda e: e.memory.total, "layer_fwd_s": lambda e: e.layer_forward,
    "layer_bwd_s": lambda e: e.layer_backward, "gpu_hours": lambda e: e.gpu_hours,
}  # fmt: skip
"""The same of a training estimate."""


def _each(values: Num, rows: int) -> list[float]:
    """A number or an array of them, as one a row."""
    return np.broadcast_to(np.asarray(values, dtype=float), (rows,)).tolist()


ODD = (ArithmeticError, LookupError, ValueError, TypeError, AttributeError)
"""What a prediction must not raise, but for RooflmError: said as a reason, so that one row never ends a run."""


def reason_of(error: Exception) -> str:
    """The reason given by an exception."""
    return str(error) if isinstance(error, RooflmError) else f"not predicted: {type(error).__name__}"


def score_inference(requests: Sequence[Request]) -> list[Scored]:
    """Predictions of requests of one family, in order."""
    try:
        s = scenario_of(requests)
        estimate = infer_scenario(s)
        return pick(requests, s, estimate)
    except ODD as why:
        if len(requests) > 1:  # one odd row must not take the others with it
            return [one for r in requests for one in score_inference([r])]
        return [Scored(requests[0], float("nan"), reason_of(why))]


def pick(requests: Sequence[Request], s: Scenario, e: InferenceFigures) -> list[Scored]:
    """Each request's own metric out of an estimate over all of them; a broken rule other than memory is a reason."""
    rows = len(requests)
    free, waves = _each(e.memory.margin / e.memory.capacity, rows), _each(e.waves, rows)
    broken = {name: _each(flag, rows) for name, flag in e.limits.flags.items() if name != "out of memory"}
    values = {
        m: _each(INFERRED[mean_of(m)](e, s), rows) for m in {r.metric for r in requests} if mean_of(m) in INFERRED
    }
    first = _each(np.minimum(e.ttft / e.latency, 1.0), rows)
    scored = []
    for i, r in enumerate(requests):
        wrong = [name for name, flag in broken.items() if flag[i]]
        if wrong or r.metric not in values:
            scored.append(Scored(r, float("nan"), wrong[0] if wrong else not_predicted(r)))
        else:
            scored.append(Scored(r, values[r.metric][i], "", free[i], waves[i], first=first[i]))
    return scored


def training_scenario(request: Request) -> Scenario:
    """The training scenario of a request; RooflmError where there is none."""
    given = {"efficiency": "calibrated", **request.kwargs, "model": model_argument(request.kwargs["model"])}
    return build_training(**given).scenario


def score_training(requests: Sequence[Request]) -> list[Scored]:
    """Predictions of the figures of one training run, in order."""
    try:
        estimate = train(training_scenario(requests[0]))
        capacity, held = (largest(x) for x in (estimate.memory.capacity, estimate.memory.total))
        values = {m: largest(TRAINED[m](estimate)) for m in {r.metric for r in requests} if m in TRAINED}
    except ODD as why:
        return [Scored(r, float("nan"), reason_of(why)) for r in requests]
    margin = (capacity - held) / capacity
    return [
        Scored(r, values[r.metric], "", margin) if r.metric in values else Scored(r, float("nan"), not_predicted(r))
        for r in requests
    ]


def largest(values: Num) -> float:
    """The largest of several, or the one."""
    return float(np.max(np.asarray(values)))


def not_predicted(request: Request) -> str:
    """The reason why a row of a metric that its task has not is left out."""
    return f"metric {request.metric} is not predicted"


def score_load(requests: Sequence[Request], tell: Callable[[int], None] | None = None) -> list[Scored]:
    """Predictions of rows measured under load, in order."""
    found = predict_load(requests, tell)
    return [
        Scored(r, value, stands_on=told) if np.isfinite(value) else Scored(r, value, told)
        for r, (value, told) in zip(requests, found, strict=True)
    ]


def score(requests: Iterable[Request], tell: Callable[[int], None] | None = None) -> list[Scored]:
    """Predictions of all requests with their error bands, in order. tell: called with the rows done since it was last
    called."""
    return [banded(x) for x in without_bands(requests, tell)]


def without_bands(requests: Iterable[Request], tell: Callable[[int], None] | None = None) -> list[Scored]:
    """The predictions of `score` alone."""
    listed = list(requests)
    groups: dict[tuple[Any, ...], list[int]] = {}
    loads: list[int] = []
    done: dict[int, Scored] = {}
    for i, r in enumerate(listed):
        if r.task == SERVE:
            loads.append(i)
        else:
            groups.setdefault(family(r) if r.task == INFER else (run_of(r),), []).append(i)
    for members in groups.values():
        chosen = [listed[i] for i in members]
        results = score_inference(chosen) if chosen[0].task == INFER else score_training(chosen)
        done |= dict(zip(members, results, strict=True))
        if tell:
            tell(len(members))
    done |= dict(zip(loads, score_load([listed[i] for i in loads], tell), strict=True))
    return [done[i] for i in range(len(listed))]


def is_rate(metric: str) -> bool:
    """True for what is inverse to a time.

    >>> is_rate("decode_tokens_per_s"), is_rate("mfu"), is_rate("ttft")
    (True, True, False)
    """
    return "per_s" in metric or metric in ("mfu", "hfu", "model_tflops_per_gpu")


PHASES = {
    "ttft": "prefill", "prefill_tokens_per_s": "prefill", "tpot": "decode", "decode_tokens_per_s": "decode",
    "latency_s": "request", "output_tokens_per_s": "request", "total_tokens_per_s": "request",
    "requests_per_s": "request", "memory_bytes": "memory",
}  # fmt: skip
"""Metric -> phase of an error band; the others are of a training step."""


def band_phase(metric: str, task: str = "infer") -> str:
    """The phase whose error band a metric has.

    >>> band_phase("ttft"), band_phase("tokens_per_s_per_gpu"), band_phase("ttft", "serve")
    ('prefill', 'step', 'prefill under load')
    """
    phase = PHASES.get(mean_of(metric), "step")
    return f"{phase} under load" if task == SERVE else phase


def banded(x: Scored) -> Scored:
    """A scored row with the ends of its error band, where there is one: of a request, its first token's as far as that
    is of it, as answers have it (`InferenceEstimate.error_band`)."""
    r = x.request
    if x.reason or r.metric == "oom":
        return x
    cards = kind_of(load_device(str(r.kwargs["gpu"])))
    engine, phase = load_engine(engine_of(r)).runs, band_phase(r.metric, r.task)
    found = band(phase, engine, cards, x.where)
    if found is None:
        return x
    first = band("prefill", engine, cards, x.where)
    if first and phase == "request":
        low, high = (x.first * f + (1 - x.first) * d for f, d in ((first.low, found.low), (first.high, found.high)))
        found = found._replace(low=low, high=high)
    low, high = around(x.predicted, found, is_rate(r.metric))
    return x._replace(low=float(low), high=float(high))


def generic(reason: str) -> str:
    """A reason without a single row's figures, so that rows with the same problem are counted together.

    >>> generic("tp is 3, but it must divide the 32 attention heads of x")
    'tp does not suit the model'
    """
    if " leaves no memory for a KV cache" in reason:
        return "the weights leave no memory for a KV cache"
    head = reason.split(" is ", 1)[0]
    return f"{head} does not suit the model" if " but it must " in reason else reason


def verdicts(scored: Sequence[Scored]) -> dict[str, Any]:
    """How well memory is predicted: rows published as out of memory, and rows that ran.

    wrong and borderline rows (margin within BORDER of the capacity) are listed by id with their margin.
    """
    right, wrong, near = 0, {}, {}
    for x in scored:
        if not np.isfinite(x.margin):
            continue
        fits = x.margin >= 0
        if fits == (x.request.metric != "oom"):
            right += 1
        elif abs(x.margin) <= BORDER:
            near[x.request.id] = round(x.margin, 4)
        else:
            wrong[x.request.id] = round(x.margin, 4)
    return {"right": right, "borderline": near, "wrong": wrong}


def predicted(scored: Iterable[Scored]) -> list[Scored]:
    """The rows that have a prediction of a value."""
    return [x for x in scored if not x.reason and x.request.metric != "oom" and np.isfinite(x.predicted)
            and x.predicted > 0]  # fmt: skip


def counted(x: Scored) -> bool:
    """Whether a row counts in the error figures: complete conditions, known to the catalogue, no doubts."""
    return not x.request.apart and not x.assumed


def left_out(outcomes: Sequence[Outcome], scored: Sequence[Scored]) -> list[tuple[str, str]]:
    """(reason, id) of every row without a figure to compare; the reason of one row alone as it stands."""
    found = [(o.reason, o.id) for o in outcomes if isinstance(o, Skip)]
    alike = Counter(generic(x.reason) for x in scored if x.reason)
    good = {id(x) for x in predicted(scored)}
    for x in scored:
        if id(x) not in good:
            none = VERDICT if x.request.metric == "oom" else "no prediction"
            told = generic(x.reason) if alike[generic(x.reason)] > 1 else x.reason
            found.append((told or none, x.request.id))
    return found


LABELS = ("source", "gpu", "engine", "metric", "model")
"""What errors are always grouped by, in the order of the report."""


def report(outcomes: Sequence[Outcome], scored: Sequence[Scored], by: Sequence[str] = ()) -> dict[str, Any]:
    """The object that `rooflm validate --json` prints: errors of the rows that count (all, and by LABELS and `by`),
    then by what stands in and by what sets rows apart, and the verdicts on memory. scored: all rows that have a
    prediction."""
    reasons = Counter(reason for reason, _ in left_out(outcomes, scored))
    good = predicted(scored)
    kept = [x for x in good if counted(x)]
    mine = [x for x in scored if not queues(x.request) and counted(x)]
    return {
        "rows": len(outcomes),
        "scored": len(good),
        "counted": len(kept),
        "skipped": dict(sorted(reasons.items(), key=lambda kv: (-kv[1], kv[0]))),
        "all": figures(kept),
        **{f"by_{name}": grouped(kept, partial(labelled, name)) for name in (*LABELS, *by)},
        "all_scored": figures(good),
        "assumed": grouped((x for x in good if x.assumed and not x.request.apart), by_assumed),
        "apart": grouped((x for x in good if x.request.apart), lambda x: x.request.apart.split("; ")),
        "under_load": by_load([x for x in kept if x.request.task == SERVE]),
        "verdicts": verdicts(mine),
    }


def labelled(column: str, x: Scored) -> list[str]:
    """The group of a row by a column."""
    return [label(x.request, column)]


def by_assumed(x: Scored) -> list[str]:
    """What stands in for something in a row, without the names of one row."""
    found = []
    for text in x.assumed:
        lacks = text.split(" ", 1)[0] + " not in the catalogue" if " is not in the catalogue" in text else text
        found.append(text.split(":", 1)[0] if " not stated" in text else lacks)
    return found


def grouped(scored: Iterable[Scored], names: Callable[[Scored], Iterable[str]]) -> dict[str, Any]:
    """`describe` of rows by each of their names."""
    groups: dict[str, list[Scored]] = {}
    for x in scored:
        for name in names(x):
            groups.setdefault(name, []).append(x)
    return {name: figures(xs) for name, xs in sorted(groups.items())}


def by_load(scored: Sequence[Scored]) -> dict[str, Any]:
    """Errors of rows measured under load, by engine and metric, and over all engines."""
    return grouped(
        scored, lambda x: (f"{family_of(engine_of(x.request))} {x.request.metric}", f"all {x.request.metric}")
    )


def figures(scored: Sequence[Scored]) -> dict[str, float | int | None]:
    """`describe` of scored rows."""
    values = [(x.request.measured, x.predicted, x.low, x.high) for x in scored]
    return describe(*zip(*values, strict=True)) if values else describe([], [])


def queues(request: Request) -> bool:
    """True where the engine lets requests wait that do not fit, so that a run says nothing about memory."""
    if request.task != INFER:
        return request.task == SERVE
    try:
        return load_engine(engine_of(request)).room.waves
    except RooflmError:
        return False


@cache
def measured_cards(family: str) -> frozenset[str]:
    """Cards with rows of their own in a family.

    >>> "h100-sxm-80gb" in measured_cards("gemm")
    True
    """
    return frozenset(gpu for r in entries_of(family) for gpu in r.gpu if gpu != ANY)


def other_unit(x: Scored) -> str:
    """The unit in which a value without a unit would be within a factor of ten of its prediction, if in the metric's
    own it is off by a hundred; else "".

    >>> from rooflm.validation.table import read_row
    >>> row = {"model": "llama-2-7b", "gpu": "a100", "engine": "vllm", "metric": "tpot", "value": "11", "batch": "1"}
    >>> other_unit(Scored(read_row(row), 0.011)), other_unit(Scored(read_row(row), 11.0))
    ('ms', '')
    """
    own = METRICS[x.request.metric].unit
    if unit_of(x.request.cells) or 0.01 <= x.ratio <= 100:
        return ""
    units = ((name, UNITS[name.lower()]) for name in ("ms", "us", "GiB", "MiB", "%"))
    return next((name for name, (base, scale) in units if base == own and 0.1 <= x.ratio / scale <= 10), "")


def remarks(x: Scored) -> str:
    """What is special about a row, in words: doubts, batches run in several rounds, no measurements of its card,
    substitutes."""
    facts = [x.request.apart] if x.request.apart else []
    unit = other_unit(x)
    facts += [f"no unit: read in {METRICS[x.request.metric].unit}, but it fits in {unit}"] if unit else []
    if x.waves > 1:
        facts.append(f"the batch runs in {x.waves:.2g} rounds")
    gpu = str(x.request.kwargs.get("gpu", ""))
    if load_device(gpu).kernels_from not in measured_cards("gemm"):
        facts.append(f"no kernels of {gpu} were measured")
    facts += x.assumed
    return "; ".join(facts)


def requests_of(outcomes: Iterable[Outcome]) -> list[Request]:
    """The rows that can be scored."""
    return [o for o in outcomes if not isinstance(o, Skip)]
