"""What users and operators see: latencies by percentile, throughput, goodput, occupancy, cost and energy.

Definitions (all from the client's side). TTFT: from sending a request to seeing its first token. Latency: to its last.
TPOT: (latency - TTFT) / (output - 1) of a request of more than one token (vLLM's benchmark; genai-perf and AIPerf call
it inter-token latency), or with definitions="whole-request" latency / output (guidellm). ITL: time between two tokens,
every token counted alike. Percentiles are over finished requests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError
from rooflm.readers.prices import price_note
from rooflm.serving.meter import BUCKETS, ORIGIN
from rooflm.serving.pools import steady_of
from rooflm.serving.replica import FINISHED, REJECTED
from rooflm.serving.simulate import Run
from rooflm.serving.steps import energy_fit, step_joules

Array = NDArray[np.float64]
PERCENTILES = (50, 90, 95, 99)
DEFINITIONS = AFTER_FIRST, WHOLE = "after-first", "whole-request"
"""What a time per output token is counted over: the tokens after the first, or all of the request."""
MEASURES = ("ttft", "tpot", "itl", "latency")
STATUS = ("waiting", "running", "finished", "rejected", "unsent")
"""What becomes of a request, by the numbers of `replica`; the last: its time had not come when the run ended."""


class RequestTable(NamedTuple):
    """One row a request; times in s. status: finished, rejected, running, waiting, or unsent (its time had not come
    when the run was stopped; nor is it known, of the client of a closed loop)."""

    arrival: Array
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    cached: NDArray[np.int64]
    status: NDArray[Any]
    replica: NDArray[np.int64]
    preempted: NDArray[np.int64]
    ttft: Array
    tpot: Array
    latency: Array


def table(run: Run, definitions: str = AFTER_FIRST) -> RequestTable:
    """The per-request table of a run."""
    if definitions not in DEFINITIONS:
        raise RooflmError(f"definitions is {definitions!r}, but it must be one of {', '.join(DEFINITIONS)}")
    r = run.records
    arrival, first, end = (np.frombuffer(x, dtype=float) for x in (r.arrival, r.first, r.end))
    status = np.frombuffer(bytes(r.status), dtype=np.uint8)
    done = status == FINISHED
    output = np.asarray(r.output, dtype=np.int64)
    ttft = np.where(done, first - arrival, np.nan)
    latency = np.where(done, end - arrival, np.nan)
    steps = np.where(output > 1, output - 1, 1)
    tpot = latency / output if definitions == WHOLE else np.where(output > 1, (latency - ttft) / steps, np.nan)
    status = np.where((arrival > run.duration) & (status != REJECTED), STATUS.index("unsent"), status)
    return RequestTable(
        np.where(np.isfinite(arrival), arrival, np.nan), np.asarray(r.prompt, dtype=np.int64), output,
        np.array(r.cached, dtype=np.int64), np.array(STATUS)[status],
        np.array(r.replica, dtype=np.int64), np.array(r.preempted, dtype=np.int64), ttft, tpot, latency,
    )  # fmt: skip


def spread(values: Array) -> dict[str, float]:
    """Mean, percentiles and maximum, ignoring NaN (all NaN if nothing is left).

    >>> spread(np.array([1.0, 3.0, np.nan]))["mean"]
    2.0
    """
    good = values[np.isfinite(values)]
    if not good.size:
        return figures_of(math.nan, np.full(len(PERCENTILES), math.nan), math.nan)
    return figures_of(good.mean(), np.percentile(good, PERCENTILES), good.max())


def figures_of(mean: Any, cuts: Array, most: Any) -> dict[str, float]:
    """A mean, PERCENTILES and a maximum by name."""
    names = ("mean", *(f"p{p}" for p in PERCENTILES), "max")
    return dict(zip(names, map(float, (mean, *cuts, most)), strict=True))


def gap_spread(gaps: dict[int, float]) -> dict[str, float]:
    """Mean and percentiles of the time between tokens, from the histogram (buckets 1 % wide)."""
    if not gaps:
        return spread(np.zeros(0))
    keys = np.array(sorted(gaps))
    weight = np.array([gaps[k] for k in keys.tolist()])
    value = np.exp((keys - ORIGIN + 0.5) / BUCKETS)
    share = np.cumsum(weight) / weight.sum()
    cuts = value[np.minimum(np.searchsorted(share, np.array(PERCENTILES) / 100), len(value) - 1)]
    return figures_of((value * weight).sum() / weight.sum(), cuts, value[-1])


class Slo(NamedTuple):
    """One service-level limit: a measure's percentile (0: mean) at most `seconds`."""

    measure: str
    percentile: int
    seconds: float

    @property
    def name(self) -> str:
        """As it is written: ttft:p95."""
        return f"{self.measure}:{'mean' if not self.percentile else f'p{self.percentile}'}"


def parse_limits(text: str) -> tuple[Slo, ...]:
    """Limits such as "ttft:p95=500ms,tpot:p95=50ms" (or mean, p50, p90, p99).

    >>> parse_limits("ttft:p95=500ms")[0]
    Slo(measure='ttft', percentile=95, seconds=0.5)
    """
    from rooflm.readers.quantities import parse

    limits = []
    for piece in text.split(","):
        name, equals, value = piece.partition("=")
        measure, _, which = name.strip().lower().partition(":")
        which = which or "mean"
        percentiles = {"mean": 0, **{f"p{p}": p for p in PERCENTILES}}
        if not equals or measure not in MEASURES or which not in percentiles:
            raise RooflmError(
                f"slo is {piece.strip()!r}, but a limit is written like ttft:p95=500ms, with one of "
                f"{', '.join(MEASURES)} and one of {', '.join(percentiles)}"
            )
        seconds = parse(value.strip(), "s", f"slo {measure}")
        if not seconds > 0:
            raise RooflmError(f"slo {name.strip()} is {value.strip()}, but it must be above 0")
        limits.append(Slo(measure, percentiles[which], seconds))
    return tuple(limits)


@dataclass(frozen=True)
class Summary:
    """The numbers of a run; times in s, rates a second. See `summarise`."""

    values: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def meets(self, limits: tuple[Slo, ...]) -> bool:
        """True when every limit holds of what finished, nothing was rejected, and no queue grows without bound."""
        if self.values["rejected"] or not self.values["finished"] or self.values["queue_grows"]:
            return False
        return not self.broken(limits)

    def broken(self, limits: tuple[Slo, ...]) -> list[str]:
        """The limits that do not hold, each with its value."""
        return [f"{m.name} is {self.measure(m) * 1e3:.4g} ms, above {m.seconds * 1e3:.4g} ms"
                for m in limits if not self.measure(m) <= m.seconds]  # fmt: skip

    def measure(self, limit: Slo) -> float:
        """The value that a limit is about."""
        return float(self.values[f"{limit.measure}_s"]["mean" if not limit.percentile else f"p{limit.percentile}"])


def summarise(run: Run, limits: tuple[Slo, ...] = (), definitions: str = AFTER_FIRST, warmup: int = 0) -> Summary:
    """Everything about a run, as `--json` prints it.

    warmup: the first requests, which times and shares of good requests leave out (rates, memory, cost and the time
    between tokens are of the whole run).
    goodput_per_s: finished requests a second that meet every limit by themselves (their share after the warm-up, of the
    rate of the whole run). busy: share of the time with a pass running, mean over replicas; queue, running: means over
    time; kv_occupancy: mean and peak share of the KV memory.
    energy and cost: GPUs of all replicas for the whole duration; energy from the passes' FLOPs and bytes."""
    t = table(run, definitions)
    done = t.status == "finished"
    seconds = max(run.duration, 1e-12)
    good = done.copy()
    for limit in limits:
        column = t.tpot if limit.measure == "itl" else getattr(t, limit.measure)
        good &= ~(column > limit.seconds)
    counted = (np.arange(len(done)) >= warmup) & (done | (t.status == "rejected"))
    late = done & counted
    gpus = sum(p.gpus * p.replicas for p in run.pools)
    finished = int(done.sum())
    tokens = float(t.output[done].sum())
    active = sum(r.meter.active for r in run.replicas) / (len(run.replicas) * seconds)
    kv = sum(r.meter.kv_time / r.kv.capacity for r in run.replicas) / (len(run.replicas) * seconds)
    joules = energy(run)
    devices = [p.table.components.scenario.cluster.device for p in run.pools]
    hour = sum(p.gpus * p.replicas * float(d.price) for p, d in zip(run.pools, devices, strict=True))
    price = hour / 3600 * seconds
    count = {name: int((t.status == name).sum()) for name in ("finished", "rejected", "running", "waiting", "unsent")}
    growth = queue_growth(run)
    steps = sum(r.decoding.steps for r in run.replicas)
    values: dict[str, Any] = {
        "requests": len(t.arrival), **count, "duration_s": run.duration, "interrupted": run.interrupted,
        "ttft_s": spread(t.ttft[late]), "tpot_s": spread(t.tpot[late]), "itl_s": gap_spread(run.records.gaps),
        "latency_s": spread(t.latency[late]), "definitions": definitions,
        "requests_per_s": finished / seconds, "output_tokens_per_s": tokens / seconds,
        "output_tokens_per_s_per_gpu": tokens / seconds / gpus,
        "prompt_tokens_per_s": float(t.prompt[done].sum()) / seconds,
        "goodput_per_s": finished / seconds * float((good & late).sum()) / max(int(late.sum()), 1), "warmup": warmup,
        "good_share": float((good & counted).sum()) / max(int(counted.sum()), 1),
        "busy": active, "kv_occupancy": kv, "kv_peak": max(r.kv.peak / r.kv.capacity for r in run.replicas),
        "kv_capacity_tokens": sum(r.kv.capacity for r in run.replicas),
        "queue": sum(r.meter.queue_time for r in run.replicas) / seconds,
        "running_mean": sum(r.meter.sequence_steps for r in run.replicas) / steps if steps else 0.0,
        "preemptions": sum(r.meter.preemptions for r in run.replicas),
        "cached_share": float(t.cached[done].sum()) / max(float(t.prompt[done].sum()), 1.0),
        "gpus": gpus, "replicas": len(run.replicas),
        "cost_usd_per_request": each(price, finished), "cost_usd_per_million_tokens": each(price, tokens) * 1e6,
        "price_usd_per_hour": hour / gpus, "price_basis": price_note(devices),
        "energy_j_per_request": each(joules, finished), "energy_j_per_token": each(joules, tokens),
        "queue_grows": growth is not None, "queue_grows_from_s": growth[0] if growth else None,
        "queue_growth_per_s": growth[1] if growth else 0.0,
    }  # fmt: skip
    return Summary(values)


def each(whole: float, parts: float) -> float:
    """A total divided by a count; NaN if the count is 0.

    >>> each(6.0, 2), each(6.0, 0)
    (3.0, nan)
    """
    return whole / parts if parts else math.nan


def energy(run: Run) -> float:
    """Joules of all GPUs: idle power for the whole duration, and the passes' dynamic energy by linear forms."""
    joules = 0.0
    for pool in run.pools:
        c = pool.table.components
        prefill = energy_fit(c)
        device = c.scenario.cluster.device
        joules += float(device.idle) * run.duration * pool.gpus * pool.replicas
        for r in (r for r in run.replicas if r.table is pool.table and r.role == pool.role):
            steps, did = r.decoding.steps * pool.table.ranks, r.meter
            a_step = step_joules(c, did.sequence_steps / max(steps, 1), did.context_steps / max(did.sequence_steps, 1))
            joules += c.ranks * steps * float(a_step)
            joules += c.ranks * float(prefill @ np.array([did.prefill_passes, did.prefill_tokens, did.prefill_pairs]))
    return joules


def timeline(run: Run) -> dict[str, Array]:
    """Queue, running sequences and KV memory (share) over time, summed (KV: mean) over replicas.

    Waiting and running hold until the next time. KV memory grows evenly from `kv` at one time to `kv_before` at the
    next, where what ends then is released."""
    lists = [np.array(r.meter.samples, dtype=float).reshape(-1, 5) for r in run.replicas]
    times = np.unique(np.concatenate([x[:, 0] for x in lists])) if lists else np.zeros(0)
    if times.size > 2000:
        times = times[np.linspace(0, times.size - 1, 2000).astype(int)]
    out = {"time_s": times} | {k: np.zeros(times.size) for k in ("waiting", "running", "kv", "kv_before")}
    for samples, r in zip(lists, run.replicas, strict=True):
        if not len(samples) or not times.size:
            continue
        at = np.maximum(np.searchsorted(samples[:, 0], times, side="right") - 1, 0)
        out["waiting"] += samples[at, 1]
        out["running"] += samples[at, 2]
        whole = r.kv.capacity * len(run.replicas)
        for key, held in zip(("kv_before", "kv"), ramp(samples, times), strict=True):
            out[key] += held / whole
    return out


def ramp(samples: Array, times: Array) -> tuple[Array, Array]:
    """Tokens held just before and just after each of the times: between two samples they grow evenly, from what was
    held after the one to what was held before the other.

    samples: rows of (time, waiting, running, held, held before releases).

    >>> rows = np.array([[0.0, 0, 1, 10, 0], [10.0, 0, 0, 0, 30]])
    >>> [v.tolist() for v in ramp(rows, np.array([0.0, 5.0, 10.0, 20.0]))]
    [[0.0, 20.0, 30.0, 0.0], [10.0, 20.0, 0.0, 0.0]]
    """
    clock, after, before = samples[:, 0], samples[:, 3], samples[:, 4]
    following = np.searchsorted(clock, times, side="left")
    last, inside = len(clock) - 1, np.clip(following, 1, len(clock) - 1) if len(clock) > 1 else following * 0
    start = np.maximum(inside - 1, 0)
    gone = np.clip((times - clock[start]) / np.maximum(clock[inside] - clock[start], 1e-30), 0.0, 1.0)
    between = after[start] + (before[inside] - after[start]) * gone
    between = np.where(following > last, after[last], np.where(times <= clock[0], before[0], between))
    hit = np.searchsorted(clock, times, side="right") - 1
    exact = (hit >= 0) & (clock[np.maximum(hit, 0)] == times)
    return between, np.where(exact, after[np.maximum(hit, 0)], between)


FEWEST = 50
"""Fewest requests of an open loop from which a growing queue is told."""
POINTS = 5
"""Fewest requests that come in its second half, through which a line is drawn."""
RISE, RISEN = 0.1, 20
"""By which share of the requests that come there, and by how many, the queue rises at least where it grows."""


def queue_growth(run: Run) -> tuple[float, float] | None:
    """(time from which it grows, requests a second) when the queue of an open loop grows without bound, else None. The
    queue is the server's, or with a limit of clients the requests that are due and wait in the client.

    It grows when, over the second half of the arrivals, a straight line through the number of unfinished requests rises
    by more than a tenth of the arrivals (and by more than 20); by more than by chance (the root of the arrivals) is
    enough where they wait and the steady-state estimate says too that the rate is beyond the server. A short run that
    only fills up (the requests run, few wait) does not count where the steady-state estimate says that the rate can be
    served. The time is when the queue was last empty. Of a run that was stopped, the arrivals until then count. It
    grows by no more than came in that half and the whole run did not serve: while a short run fills up, almost nothing
    ends, and what comes beyond the rate of the steady state is what it grows by."""
    requests = run.requests
    if requests.count < FEWEST or not requests.rate < math.inf:
        return None
    last = min(float(requests.arrival[-1]), run.duration)
    time, inside, waiting = unfinished(run)
    half = (time >= last / 2) & (time <= last)
    if half.sum() < POINTS:
        return None
    slope = float(np.polyfit(time[half], inside[half], 1)[0])
    came = int(np.sum((requests.arrival >= last / 2) & (requests.arrival <= last)))
    rise, chance = slope * last / 2, math.sqrt(came)
    if rise < max(min(RISE * came, chance), RISEN):
        return None
    steady, filling = steady_of(run), np.polyfit(time[half], waiting[half], 1)[0] < slope / 2
    if filling:
        chance = math.inf
        if steady is not None and steady.stable:
            return None
    if rise < (RISE * came if steady is None or steady.stable else min(RISE * came, chance)):
        return None
    empty = time[(waiting <= 0) & (time <= last)]
    ended = int(np.sum(np.frombuffer(run.records.end, dtype=float) <= run.duration))
    left = 2 * came / last - ended / run.duration
    if filling and steady is not None and len(run.pools) == 1:
        left = min(left, requests.rate - float(steady.requests_per_s) * run.pools[0].replicas)
    return (float(empty[-1]) if empty.size else 0.0), min(slope, left) if left > 0 else slope


def unfinished(run: Run) -> tuple[Array, Array, Array]:
    """Times (s) at which requests are due, how many have not ended then, and how many of them wait: in the client where
    it has a limit, else in the server."""
    due, r = run.requests.arrival, run.records
    sent, end = (np.frombuffer(x, dtype=float) for x in (r.arrival, r.end))
    end = np.where(np.frombuffer(bytes(r.status), dtype=np.uint8) == REJECTED, sent, end)
    time = due[due <= run.duration]
    came, ended, left = (np.searchsorted(np.sort(x), time, side="right") for x in (due, end, sent))
    if run.requests.concurrency:
        return time, (came - ended).astype(float), (came - left).astype(float)
    at, queued = (np.append(0.0, timeline(run)[name]) for name in ("time_s", "waiting"))
    return time, (came - ended).astype(float), np.interp(time, at, queued)
