"""What a simulated deployment shows its users, in words: what can be served first, then times, rates and memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rooflm.asked.answers.said import banded, dollars, headline, machines
from rooflm.shown.blocks import BLANK, Block, Columns, Say, Table, called
from rooflm.shown.numbers import count, percent, plural, seconds, text, times

if TYPE_CHECKING:
    from rooflm.serving.deploy import Served
    from rooflm.serving.simulate import Pool


def title(pools: tuple[Pool, ...]) -> str:
    """Model, machines, engine and scheme: of one pool, or of separate prefill and decode pools."""
    of = [p.table.components.scenario for p in pools]
    counts = " and ".join(f"{p.replicas}" for p in pools)
    if len(pools) == 1:
        return f"{headline(of[0], pools[0].gpus * pools[0].replicas)}, replicas {counts}"
    parts = [f"{machines(s, p.gpus * p.replicas)} for {p.role}" for s, p in zip(of, pools, strict=True)]
    return f"{of[-1].model.name} on {' and '.join(parts)}, {of[-1].engine.name}, {of[-1].quant.name}, replicas {counts}"


def blocks(served: Served, values: dict[str, Any]) -> list[Block]:
    """A run in words: what can be served first. values: its numbers, and where a load was sought what was found."""
    out: list[Block] = [
        Say(title(served.run.pools), "title"),
        Say(f"{values['load']}: {plural(values['requests'], 'request')}, {seconds(values['duration_s'])} simulated"),
        BLANK,
        *verdicts(values, served),
    ]
    if values["rejected"] == values["requests"]:
        return out
    out.append(BLANK)
    head = ("", "mean", "p50", "p90", "p95", "p99", "max")
    names = {
        "ttft_s": "time to first token",
        "tpot_s": "time per output token",
        "itl_s": "between tokens",
        "latency_s": "latency",
    }
    rows = [(name, *times([values[key][k] for k in head[1:]])) for key, name in names.items()]
    out += [Table([head, *rows], "lrrrrrr", head=True, spare=("max", "p90")), *band_lines(values), BLANK]
    left = [
        ("requests/s", count(values["requests_per_s"])),
        ("output tokens/s", count(values["output_tokens_per_s"])),
        ("  per GPU", count(values["output_tokens_per_s_per_gpu"])),
        ("goodput (requests/s)", count(values["goodput_per_s"])),
        ("USD per 1M output tokens", dollars(values["cost_usd_per_million_tokens"]) if values["finished"] else "-"),
        ("energy per token", text(values["energy_j_per_token"], "J") if values["finished"] else "-"),
    ]
    right = [
        ("running (mean)", count(values["running_mean"])),
        ("waiting (mean)", count(values["queue"])),
        ("engine busy", percent(values["busy"])),
        ("KV memory, mean", percent(values["kv_occupancy"])),
        ("KV memory, peak", percent(values["kv_peak"])),
        ("preemptions", str(values["preemptions"])),
    ]
    if values["cached_share"] > 0:
        right.append(("prompt tokens cached", percent(values["cached_share"])))
    out += [Columns([Table(left, "lr"), Table(right, "lr")]), BLANK, *drained(served, values)]
    out.append(Say(values["price_basis"], "faint", "price"))
    return list(called(out, served.run.pools[-1].table.components.scenario.cluster.device.called))


DRAINED = 0.1
"""Share of a run after its last request came from which on its rates and cost are said to count that time."""


def drained(served: Served, values: dict[str, Any]) -> list[Block]:
    """Of an open loop: how long after its last request it ran, where that is long against the whole."""
    requests, whole = served.run.requests, values["duration_s"]
    after = whole - float(requests.arrival[-1]) if requests.rate < math.inf else 0.0
    if not after > DRAINED * whole or values["queue_grows"]:  # a queue that grew is served at the full rate till then
        return []
    return [Say(
        f"Rates and cost are of the whole run, {percent(after / whole)} of which came after the last "
        "request: in the long run more is served and a token costs less (more --requests).", "faint",
    )]  # fmt: skip


def band_lines(values: dict[str, Any]) -> list[Block]:
    """The error band of the mean times, where measured runs under load say how far off such predictions are."""
    bands = [(name, banded(values[key]["mean"], values["error_band"][key])) for key, name in BANDED.items()]
    sentences = [f"mean time {name} {band}" for name, band in bands if band]
    return [Say(f"In four of five like cases: {'; '.join(sentences)}.")] if sentences else []


BANDED = {"ttft_s": "to first token", "tpot_s": "per output token"}
"""Times with an error band."""


def verdicts(values: dict[str, Any], served: Served) -> list[Block]:
    """The leading sentences: growing queue, limits, unfinished requests, and the steady state."""
    out: list[Block] = []
    if values["interrupted"]:
        out.append(Say("INTERRUPTED: the numbers are of what was done until then.", "bad"))
    if values["queue_grows"]:
        growth = f"from {seconds(values['queue_grows_from_s'])} on, by {count(values['queue_growth_per_s'])} requests/s"
        clients = served.run.requests.concurrency
        out.append(Say(
            f"THE RATE IS NOT REACHED: with at most {clients} requests at a time {count(values['requests_per_s'])} "
            f"requests/s are served. The others wait in the client {growth}; the times below leave that wait out."
            if clients else
            f"THE QUEUE GROWS WITHOUT BOUND {growth}: this load cannot be served.", "bad"
        ))  # fmt: skip
    if "found" in values:
        what, load = next(iter(values["found"].items()))
        why = "; ".join(values["found"]["broken_above"])
        best = "fewest" if what == "replicas" else "highest"
        beyond = "with one less" if what == "replicas" else "just above it"
        out.append(Say(f"{best.capitalize()} {what} within the limits: {load:.4g}"
                       + (f" ({beyond}, {why})" if why else "") + ".", "good"))  # fmt: skip
    if served.limits:
        share, broken = values["good_share"], served.summary.broken(served.limits)
        means = ", ".join(m.name for m in served.limits if not m.percentile)
        of_means = f" each by itself ({means}: a limit of the mean, not of every request)" if means else ""
        out += [Say(f"Not within the limits: {'; '.join(broken)}.", "bad")] if broken else []
        limits = ", ".join(f"{m.name} {seconds(m.seconds)}" for m in served.limits)
        out.append(Say(f"{100 * share:.1f} % of the requests meet all limits ({limits}){of_means}.",
                       "good" if share > 0.95 else "bad"))  # fmt: skip
    holds = min(p.capacity.tokens / p.table.ranks for p in served.run.pools)
    room = f"longer than the {count(holds)} tokens of KV memory or the model's context"
    dropped = f", {values['rejected']} rejected ({room})" * bool(values["rejected"])
    if values["rejected"] == values["requests"]:
        dropped += "; more GPUs (--gpus), a narrower quantisation (--quant) or shorter requests would help"
    left = f", {values['running']} running and {values['waiting']} waiting at the end"
    left = left if values["running"] or values["waiting"] else ""
    left += f"; {values['unsent']} were not sent until then" * bool(values["unsent"])
    fine = "" if values["queue_grows"] or values["interrupted"] or values["rejected"] else "good"
    out.append(Say(f"{values['finished']} of {values['requests']} requests finished{dropped}{left}.", fine))
    return [*out, *steady_line(values)]


def steady_line(values: dict[str, Any]) -> list[Block]:
    """The steady-state estimate, and whether it agrees."""
    steady = values.get("steady")
    if math.isnan(values["ttft_s"]["mean"]) or not steady or not steady["stable"]:
        return []
    each = f"TPOT {seconds(steady['tpot_s'])}, " * (steady["tpot_s"] > 0)
    why = "waves in step, bursts, a full cache or too few requests"
    same = "agrees" if steady["agrees"] else f"DIFFERS FROM THE SIMULATION ({why})"
    return [Say(
        f"Steady-state estimate: TTFT {seconds(steady['ttft_s'])}, {each}"
        f"{steady['requests_per_s']:.3g} requests/s; it {same}.", "faint"
    )]  # fmt: skip
