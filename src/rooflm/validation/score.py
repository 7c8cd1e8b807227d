"""Published rows -> predictions: each Request gets the number that `rooflm` predicts for it, or a reason why not.

Rows that differ in numbers only (sizes, lengths, degrees) are predicted together, as one array evaluation: a table of
three thousand rows takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rooflm.catalogue import devices as catalogue
from rooflm.catalogue.engines import load_engine
from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError
from rooflm.estimate.bands import around, band
from rooflm.estimate.inference import InferenceEstimate, infer_scenario
from rooflm.estimate.training import TrainingEstimate, train_scenario
from rooflm.kernels.constants import measured_cards
from rooflm.scenario.build_inference import build_inference
from rooflm.scenario.build_training import build_training
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num
from rooflm.validation.metrics import describe, summarise
from rooflm.validation.readers import training_facts
from rooflm.validation.readers.distrust import distrusted
from rooflm.validation.readers.sizes import model_from_sizes
from rooflm.validation.readers.tables import labels
from rooflm.validation.request import Outcome, Request, ServeRequest, Skip
from rooflm.validation.under_load import predict_load

NUMBERS = ("tp", "pp", "dp", "ep", "batch", "prompt", "output")
"""Keyword arguments of an inference request that may be arrays."""
BORDER = 0.05
"""Share of the capacity within which a verdict on memory is borderline."""
VERDICT = "verdict on memory: see verdicts"


class Scored(NamedTuple):
    """A row and its prediction (SI units as in METRICS); nan where there is none, with the reason.

    margin: free memory of the predicted run over the capacity (negative: missing); waves: rounds in which the batch
    runs; low, high: error band.
    """

    request: Request | ServeRequest
    predicted: float
    reason: str = ""
    margin: float = float("nan")
    waves: float = 1.0
    low: float = float("nan")
    high: float = float("nan")

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.request.measured


def engine_row(name: str, version: str) -> str:
    """The engine row of a release: its own, that of the longest part of its version, or the engine's plain row.

    >>> engine_row("trtllm", "0.9.0"), engine_row("vllm", "2024"), engine_row("vllm", "0.18.0")
    ('trtllm-0.9', 'vllm-2024', 'vllm')
    """
    known = catalogue.aliases("engine")
    parts = version.split(".") if version else []
    for size in range(len(parts), 0, -1):
        found = known.get(catalogue.normalise(f"{name}-{'.'.join(parts[:size])}"))
        if found:
            return found
    plain = known.get(catalogue.normalise(name))
    if plain is None:
        raise RooflmError(f"no engine row for {name} {version}".strip())
    return plain


def engine_of(request: Request | ServeRequest) -> str:
    """The engine row of an inference request: the build for the card's software where the engine has one."""
    k = request.kwargs
    row = engine_row(str(k["engine"]), str(k.get("engine_version", "")))
    known = catalogue.aliases("engine")
    software = catalogue.load_device(str(k["gpu"])).software
    return known.get(f"{row}-{software}", row) if software else row


@lru_cache(maxsize=256)
def _model_of(sizes: str) -> Model:
    return model_from_sizes(json.loads(sizes))


def model_argument(model: Any) -> Any:
    """The `model` argument of a builder: a name as it is, sizes as a Model (the same one for the same sizes)."""
    return _model_of(json.dumps(model, sort_keys=True)) if isinstance(model, dict) else model


def family(request: Request) -> tuple[Any, ...]:
    """What rows must share to be predicted in one evaluation."""
    k = request.kwargs
    model = json.dumps(k["model"], sort_keys=True)
    return (model, k["gpu"], k.get("quant", ""), request.engine, request.task, request.facts.get("kv_dtype", ""),
            request.facts.get("cluster", ""))  # fmt: skip


def scenario_of(requests: Sequence[Request], engine: str = "") -> Scenario:
    """One scenario for requests of one family: their numbers as arrays along one axis. RooflmError if it has none."""
    first = requests[0].kwargs
    arrays: dict[str, Any] = {k: np.array([float(r.kwargs[k]) for r in requests]) for k in NUMBERS}
    if np.all(arrays["ep"] == 1):
        arrays["ep"] = 1  # a plain 1 leaves expert parallelism out of the graph
    row = engine or engine_of(requests[0])
    cluster = str(requests[0].facts.get("cluster", "")) or None
    built = build_inference(model=model_argument(first["model"]), gpu=first["gpu"], quant=first["quant"], engine=row,
                            cluster=cluster, efficiency="calibrated", **arrays)  # fmt: skip
    s = replace(built.scenario, axes=1)
    if requests[0].facts.get("kv_dtype") == "int8":  # every device converts from int8 in hardware
        s = replace(s, engine=replace(s.engine, kv_convert=0.0))
    return s


INFER: Mapping[str, Any] = {
    "ttft": lambda e, s: e.ttft,
    "tpot": lambda e, s: e.tpot,
    "latency_s": lambda e, s: e.latency,
    "output_tokens_per_s": lambda e, s: e.output_tokens_per_s,
    "prefill_tokens_per_s": lambda e, s: s.workload.batch * s.workload.prompt / e.ttft,
    "decode_tokens_per_s": lambda e, s: s.workload.batch / e.tpot,
    "memory_bytes": lambda e, s: e.memory.total,
    "oom": lambda e, s: np.where(np.asarray(e.fits), 0.0, 1.0),
}
"""Metric of a row -> how an inference estimate gives it."""
TRAIN: Mapping[str, Any] = {
    "step_time_s": lambda e: e.step_time,
    "tokens_per_s_per_gpu": lambda e: e.tokens_per_s_per_gpu,
    "memory_bytes": lambda e: e.memory.total,
    "layer_fwd_s": lambda e: e.layer_forward,
    "layer_bwd_s": lambda e: e.layer_backward,
    "gpu_hours": lambda e: e.gpu_hours,
}
"""The same of a training estimate."""


def _at(values: Num, index: int, rows: int) -> float:
    return float(np.broadcast_to(np.asarray(values, dtype=float), (rows,))[index])


def score_inference(requests: Sequence[Request]) -> list[Scored]:
    """Predictions of requests of one family, in order."""
    try:
        s = scenario_of(requests)
        estimate = infer_scenario(s)
    except RooflmError as why:
        if len(requests) > 1:  # one odd row must not take the others with it
            return [one for r in requests for one in score_inference([r])]
        return [Scored(requests[0], float("nan"), str(why))]
    return pick(requests, s, estimate)


def pick(requests: Sequence[Request], s: Scenario, e: InferenceEstimate) -> list[Scored]:
    """Each request's own metric out of an estimate over all of them; a broken rule other than memory is a reason."""
    rows = len(requests)
    free = e.memory.margin / e.memory.capacity
    broken = {name: flag for name, flag in e.limits.flags.items() if name != "out of memory"}
    values = {m: INFER[m](e, s) for m in {r.metric for r in requests} if m in INFER}
    scored = []
    for i, r in enumerate(requests):
        wrong = [name for name, flag in broken.items() if _at(flag, i, rows)]
        if wrong or r.metric not in values:
            scored.append(Scored(r, float("nan"), wrong[0] if wrong else f"metric {r.metric} is not predicted"))
        else:
            scored.append(Scored(r, _at(values[r.metric], i, rows), "", _at(free, i, rows), _at(e.waves, i, rows)))
    return scored


OPTIONS = ("gpus", "tp", "pp", "dp", "cp", "ep", "vp", "sp", "batch", "seq", "micro_batch", "recompute", "dtype", "gpu")
"""Keyword arguments of a training request that go to the builder as they are."""


def training_scenario(request: Request) -> Scenario:
    """The training scenario of a request; RooflmError where there is none."""
    k = request.kwargs
    said = training_facts.run_facts(request)
    zero = said.get("zero", {"none": 0, "fsdp": 3}.get(str(k.get("zero", 0)), k.get("zero", 0)))
    options = {o: k[o] for o in OPTIONS if o in k}
    options["fsdp_group"] = said.get("fsdp_group", request.facts.get("fsdp_group", 0))
    options["recompute_modules"] = said.get("recompute")
    options["optimizer"] = said.get("optimizer", "adam")
    built = build_training(model=model_argument(k["model"]), zero=zero, engine=trainer_of(request),
                           efficiency="calibrated", sets=training_facts.inputs(request), **options)  # fmt: skip
    return built.scenario


def train_estimate(request: Request) -> TrainingEstimate:
    """The training prediction of a request; RooflmError where none can be made."""
    return train_scenario(training_scenario(request))


def score_training(request: Request) -> Scored:
    """The prediction of one training row."""
    if request.metric not in TRAIN:
        return Scored(request, float("nan"), f"metric {request.metric} is not predicted")
    try:
        estimate = train_estimate(request)
    except RooflmError as why:
        return Scored(request, float("nan"), str(why))
    capacity = float(np.max(np.asarray(estimate.memory.capacity)))
    margin = (capacity - float(np.max(np.asarray(estimate.memory.total)))) / capacity
    return Scored(request, float(np.max(np.asarray(TRAIN[request.metric](estimate)))), "", margin)


def score_load(requests: Sequence[ServeRequest], tell: Callable[[int], None] | None = None) -> list[Scored]:
    """Predictions of rows measured under load, in order."""
    found = predict_load(requests, tell)
    return [Scored(r, predicted, reason) for r, (predicted, reason) in zip(requests, found, strict=True)]


def score(requests: Iterable[Request | ServeRequest], tell: Callable[[int], None] | None = None) -> list[Scored]:
    """Predictions of all requests, in order. tell: called with the rows done since it was last called."""
    listed = list(requests)
    groups: dict[tuple[Any, ...], list[int]] = {}
    done: dict[int, Scored] = {}
    loads: dict[int, ServeRequest] = {}
    plain: dict[int, Request] = {}
    for i, r in enumerate(listed):
        if isinstance(r, ServeRequest):
            loads[i] = r
        else:
            plain[i] = r
            groups.setdefault(family(r) if r.task == "infer" else (i,), []).append(i)
    done |= dict(zip(loads, score_load(list(loads.values()), tell), strict=True))
    for members in groups.values():
        chosen = [plain[i] for i in members]
        results = score_inference(chosen) if chosen[0].task == "infer" else [score_training(chosen[0])]
        done |= dict(zip(members, results, strict=True))
        if tell:
            tell(len(members))
    return [banded(done[i]) for i in range(len(listed))]


def is_rate(metric: str) -> bool:
    """True for what is inverse to a time.

    >>> is_rate("decode_tokens_per_s"), is_rate("ttft")
    (True, False)
    """
    return "per_s" in metric


PHASES = {
    "ttft": "prefill", "prefill_tokens_per_s": "prefill", "tpot": "decode", "decode_tokens_per_s": "decode",
    "latency_s": "request", "output_tokens_per_s": "request", "memory_bytes": "memory",
}  # fmt: skip
"""Metric -> phase of an error band; the others are of a training step."""


def band_phase(metric: str, task: str = "infer") -> str:
    """The phase whose error band a metric has.

    >>> band_phase("ttft"), band_phase("tokens_per_s_per_gpu"), band_phase("ttft", "serve")
    ('prefill', 'step', 'prefill under load')
    """
    phase = PHASES.get(metric, "step")
    return f"{phase} under load" if task == "serve" else phase


def trainer_of(request: Request | ServeRequest) -> str:
    """The engine row of a training request."""
    name, _, version = str(request.kwargs["framework"]).partition(" ")
    return engine_row(name, version)


def banded(x: Scored) -> Scored:
    """A scored row with the ends of its error band, where there is one."""
    r = x.request
    if x.reason or r.metric == "oom":
        return x
    engine = trainer_of(r) if r.task == "train" else engine_of(r)
    found = band(band_phase(r.metric, r.task), engine, catalogue.load_device(str(r.kwargs["gpu"])).architecture)
    if found is None:
        return x
    low, high = around(x.predicted, found, is_rate(r.metric))
    return x._replace(low=float(low), high=float(high))


def generic(reason: str) -> str:
    """A reason without the figures of one row, so that rows of one kind count together.

    >>> generic("tp is 3, but it must divide the 32 attention heads of x")
    'tp does not suit the model'
    """
    head = reason.split(" is ", 1)[0]
    return f"{head} does not suit the model" if " but it must " in reason else reason


def verdicts(scored: Sequence[Scored]) -> dict[str, Any]:
    """How the verdicts on memory fare: rows published as out of memory, and rows that ran.

    wrong and borderline (margin within BORDER of the capacity) rows are listed by id with their margin.
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


def report(outcomes: Sequence[Outcome], scored: Sequence[Scored]) -> dict[str, Any]:
    """The object that `rooflm validate --json` prints: `summarise` of the scored rows, and the verdicts on memory."""
    skipped = [o.reason for o in outcomes if isinstance(o, Skip)]
    skipped += [generic(x.reason) for x in scored if x.reason]
    skipped += [VERDICT for x in scored if x.request.metric == "oom" and not x.reason]
    kept = [x for x in scored if not x.reason and x.request.metric != "oom"]
    result = summarise(
        [x.request.measured for x in kept], [x.predicted for x in kept], labels(x.request for x in kept), skipped,
        [x.low for x in kept], [x.high for x in kept],
    )  # fmt: skip
    load = [x for x in kept if x.request.task == "serve"]
    return result | {"under_load": by_load(load), "verdicts": verdicts([x for x in scored if not queues(x.request)])}


def by_load(scored: Sequence[Scored]) -> dict[str, Any]:
    """Errors of rows measured under load, by engine and metric, and over all engines."""
    groups: dict[str, list[Scored]] = {}
    for x in scored:
        engine = str(x.request.kwargs["engine"])
        for name in (f"{engine} {x.request.metric}", f"all {x.request.metric}"):
            groups.setdefault(name, []).append(x)
    return {name: figures(xs) for name, xs in sorted(groups.items())}


def figures(scored: Sequence[Scored]) -> dict[str, float | int | None]:
    """`describe` of scored rows."""
    values = [(x.request.measured, x.predicted, x.low, x.high) for x in scored]
    return describe(*zip(*values, strict=True))


def queues(request: Request | ServeRequest) -> bool:
    """True where the engine lets requests wait that do not fit, so that a run says nothing about memory."""
    if request.task != "infer":
        return request.task == "serve"
    try:
        return load_engine(engine_of(request)).waves
    except RooflmError:
        return False


def why(x: Scored) -> str:
    """What sets a row apart, in words: rounds of its batch, what nobody measured, what the reader had to assume."""
    doubt = distrusted(x.request) if isinstance(x.request, Request) else ""
    facts = [doubt] if doubt else []
    if x.waves > 1:
        facts.append(f"the batch runs in {x.waves:.0f} rounds")
    gpu = str(x.request.kwargs.get("gpu", ""))
    if catalogue.load_device(gpu).kernels_from not in measured_cards("gemm"):
        facts.append(f"no kernels of {gpu} were measured")
    facts += [str(n) for n in x.request.notes]
    return "; ".join(facts) or "nothing: within what the sources contradict each other, or a missing mechanism"


def requests_of(outcomes: Iterable[Outcome]) -> list[Request | ServeRequest]:
    """The rows that can be scored."""
    return [o for o in outcomes if not isinstance(o, Skip)]


__all__ = ["Scored", "Skip", "engine_row", "report", "requests_of", "score", "verdicts", "why"]
