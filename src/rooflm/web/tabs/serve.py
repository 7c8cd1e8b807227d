"""How many users at a time? Times to the first and to each further token over the number of clients, and where the
limits break."""

from __future__ import annotations

from functools import partial
from typing import Any

import rooflm
from rooflm.asked.arguments import arguments as table_of
from rooflm.serving.deploy import NoMemoryError, Served
from rooflm.serving.highest import highest
from rooflm.shown.blocks import Fact, Facts, Fold, Table, folded
from rooflm.shown.numbers import count, percent, seconds
from rooflm.shown.progress import tell_done
from rooflm.web.asked import Asked, FieldError
from rooflm.web.blocks import Answer, Choices
from rooflm.web.code import as_command, as_python
from rooflm.web.fields import LOADS
from rooflm.web.figures import served
from rooflm.web.memo import memoised
from rooflm.web.tabs.fits import REMEDIES, larger, memory_parts, remedies
from rooflm.web.words import band, dollars

KEYS = ("model", "gpu", "gpus", "engine", "quant", "prompt", "output", "ttft", "tpot", "concurrency", "tp", "pp", "dp",
        "ep", "cluster", "efficiency")  # fmt: skip
SLIDERS = ("concurrency",)


def answer(asked: Asked) -> Answer:
    """The most clients within the limits, and what they see at the load chosen."""
    given = arguments(asked)
    wanted = asked.value("concurrency")
    clients = 16 if wanted is None else int(wanted)
    if wanted is not None and not clients == wanted >= 1:
        text = asked.texts["concurrency"]
        raise FieldError("concurrency", f"concurrency is {text}, but it must be a whole number of at least 1")
    try:
        runs = memoised(f"serve?{asked.but(concurrency='').query()}", lambda: curve(given))
    except NoMemoryError as error:
        return unfit(asked, given, error)
    edge = max((c for c, r in runs.items() if r["held"]), default=0)
    above = min((c for c, r in runs.items() if not r["held"] and c > edge), default=None)
    if clients not in runs:
        runs = {**runs, clients: told(rooflm.serve(**given, concurrency=clients))}
    words = {"ttft": "first token within {}", "tpot": "each further one within {}"}
    limits = " and ".join(w.format(short(asked.value(k))) for k, w in words.items() if asked.value(k) is not None)
    at = runs[clients]
    tone, verdict, said = verdict_of(edge, above, runs, limits)
    some = bool(at["requests_per_s"])  # else there is neither a wait nor a cost to show
    blocks: list[Any] = [at_load(clients, at), table(runs, clients)] if some else []
    blocks.append(folded([*at["assumed"], *at["warnings"]]))
    code = {**given, "concurrency": clients}
    command = as_command("serve", code)
    if limits:
        command += "\n" + as_command("serve", given, "--find concurrency")
    pictures = partial(served, runs, asked.value("ttft"), asked.value("tpot")) if some else tuple
    return Answer(tone, verdict, said, blocks, pictures, as_python("serve", code), command,
                  lambda: {"limits": given.get("slo", ""), "most_clients": edge, "runs": rows(runs)},
                  rows(runs))  # fmt: skip


def unfit(asked: Asked, given: dict[str, Any], error: NoMemoryError) -> Answer:
    """What would make it fit, where the weights leave no memory for a cache."""
    one = {k: v for k, v in given.items() if k in table_of("infer") or k == "model"} | {"batch": 1}
    e = rooflm.infer(**one)
    verdict, _, way = str(error).partition(": ")
    blocks: list[Any] = [
        memory_parts(e),
        Choices(REMEDIES, [*remedies(asked, e), *larger(asked, one, float(e.memory.total))]),
    ]
    return Answer("bad", f"{verdict}.", [] if e.would_fit else [f"{way}."], blocks, tuple, as_python("serve", given),
                  as_command("serve", given), e.to_dict)  # fmt: skip


def arguments(asked: Asked) -> dict[str, Any]:
    """The arguments of `serve` but the number of clients."""
    given = asked.single(asked.arguments("serve"))
    given.pop("concurrency", None)
    slo = ",".join(f"{k}:p95={asked.value(k):g}s" for k in ("ttft", "tpot") if asked.value(k) is not None)
    return {**given, **({"slo": slo} if slo else {})}


def short(value: float) -> str:
    """A limit as a person writes it.

    >>> short(0.05), short(1.0)
    ('50 ms', '1 s')
    """
    return f"{value:g} s" if value >= 1 else f"{1e3 * value:g} ms"


def curve(given: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Runs over the number of clients: doubled until the limits have broken twice, then as `serve --find concurrency`
    comes closer to where they do."""
    made: dict[int, Served] = {}

    def trial(clients: float) -> Served:
        """The run at one load, made once."""
        many = int(clients)
        if many not in made:
            tell_done(len(made), 0)
            made[many] = rooflm.serve(**given, concurrency=many, progress=lambda *_: tell_done(len(made), 0))
        return made[many]

    broken = 0
    for clients in LOADS:
        broken += not held(trial(clients))
        if broken == 2:
            break
    if broken:
        highest(trial, whole=True)
    return {clients: told(made[clients]) for clients in sorted(made)}


def held(found: Served) -> bool:
    """Whether a run meets its limits; without one, all do."""
    return bool(found.meets(found.limits)) if found.limits else True


def told(found: Served) -> dict[str, Any]:
    """One simulated load, as the numbers that the tab shows."""
    v = found.values()
    return {
        **{f"{k}_{p}": v[f"{k}_s"][p] for k in ("ttft", "tpot", "latency") for p in ("mean", "p50", "p95", "p99")},
        **{k: v[k] for k in ("requests_per_s", "output_tokens_per_s", "output_tokens_per_s_per_gpu", "busy",
                             "kv_occupancy", "cost_usd_per_million_tokens", "price_basis", "queue", "good_share")},
        "held": held(found), "band": v["error_band"],
        "assumed": v["assumed"], "warnings": v["warnings"],
    }  # fmt: skip


def verdict_of(
    edge: int, above: int | None, runs: dict[int, dict[str, Any]], limits: str
) -> tuple[str, str, list[str]]:
    """Tone, verdict, and the sentence below it."""
    one = runs[min(runs)]
    if not one["requests_per_s"]:
        return "bad", "Not one request of this length is served.", [f"{w}." for w in one["warnings"]]
    if not limits:
        return "plain", f"{count(max(runs))} clients and no limit: give one to see where it breaks.", []
    if not edge:
        return "bad", f"Not even one client gets {limits}.", [f"One alone waits {seconds(one['ttft_p95'])} and then "
                                                              f"{seconds(one['tpot_p95'])} a token."]  # fmt: skip
    best = runs[edge]
    gives = (f"That is {count(best['requests_per_s'])} requests and {count(best['output_tokens_per_s'])} output tokens "
             f"a second, {dollars(best['cost_usd_per_million_tokens'])} a million.")  # fmt: skip
    if above is None:
        return "good", f"{count(edge)} clients at a time and more: {limits}, 95 times in 100.", [gives]
    return "good", f"Up to {count(edge)} clients at a time: {limits}, 95 times in 100.", [gives]


def at_load(clients: int, at: dict[str, Any]) -> Facts:
    """What clients see at one load."""
    return Facts(f"With {count(clients)} client{'s' * (clients != 1)}", [
        Fact("First token, 95 of 100", seconds(at["ttft_p95"]), f"mean {seconds(at['ttft_mean'])}, "
             f"{band(at['ttft_mean'], at['band']['ttft_s'])}"),
        Fact("Each token, 95 of 100", seconds(at["tpot_p95"]), f"mean {seconds(at['tpot_mean'])}, "
             f"{band(at['tpot_mean'], at['band']['tpot_s'])}"),
        Fact("Whole request", seconds(at["latency_mean"]), f"95 of 100 within {seconds(at['latency_p95'])}"),
        Fact("Output tokens a second", count(at["output_tokens_per_s"]),
             f"{count(at['output_tokens_per_s_per_gpu'])} a card"),
        Fact("KV memory in use", percent(at["kv_occupancy"]), "mean over time"),
        Fact("A million output tokens", dollars(at["cost_usd_per_million_tokens"]), f"at {at['price_basis']}"),
    ])  # fmt: skip


def table(runs: dict[int, dict[str, Any]], clients: int) -> Fold:
    """All loads."""
    head = ("Clients", "Within limits", "TTFT p95", "TPOT p95", "Tokens/s", "USD a million")
    body = [(count(c), "yes" if r["held"] else "no", seconds(r["ttft_p95"]), seconds(r["tpot_p95"]),
             count(r["output_tokens_per_s"]), f"{r['cost_usd_per_million_tokens']:.2f}")
            for c, r in sorted(runs.items())]  # fmt: skip
    return Fold("Every load that was simulated", [Table([head, *body], "llrrrr", head=True)])


def rows(runs: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The loads to download."""
    left = ("band", "assumed", "warnings")
    return [{"clients": c, **{k: v for k, v in r.items() if k not in left}} for c, r in sorted(runs.items())]
