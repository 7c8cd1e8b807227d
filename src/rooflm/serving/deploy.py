"""From an engine, a scenario and options to pools, and from these and a load to a run (`serve`)."""

from __future__ import annotations

import math
from collections.abc import Mapping as Dict
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.asked.answers.bands import bands_around, whose_constants
from rooflm.asked.answers.remedies import serving_remedies
from rooflm.asked.arguments import REPLICAS
from rooflm.asked.assumed import attention_dp, with_overlap, with_share
from rooflm.asked.build_inference import Built, build_inference, generating
from rooflm.asked.checks import whole as whole_number
from rooflm.catalogue.engine import BY_CARD, Engine, ServerOptions
from rooflm.catalogue.fields import abouts, words_in
from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError, near_matches
from rooflm.estimate.inference import infer_scenario
from rooflm.estimate.offloaded import stored_part
from rooflm.readers.tables import field_value
from rooflm.scenario.scenario import Scenario
from rooflm.serving import metrics, workload
from rooflm.serving.capacity import capacity
from rooflm.serving.components import TableSize, components
from rooflm.serving.pools import prefill_built, steady_of, transfer_of
from rooflm.serving.router import ROUTERS
from rooflm.serving.schedulers import SCHEDULERS, InFlight
from rooflm.serving.server import FRONT, Server
from rooflm.serving.simulate import Pool, Progress, Run, Transfer, simulate
from rooflm.serving.steps import StepTable, padded
from rooflm.serving.traces import read_trace
from rooflm.serving.workload import Requests
from rooflm.shown.answer import Answer, data_frame, plain, plotting, timespan
from rooflm.shown.blocks import Block
from rooflm.shown.numbers import count, percent

if TYPE_CHECKING:
    import pandas

    from rooflm.serving.steady import Steady

LOAD = ("concurrency", "rate", "trace", "requests", "spread", "seed", "burstiness", "peak", "copies", "shared_prefix",
        "cached", "limit", "prompt_limit", "output_limit", "output_ended", "output_variation")  # fmt: skip
"""Arguments of `serve` that describe the load."""
SPREAD = (0.8, 1.2)
"""Lengths as shares of prompt and output where nothing is said: users' differ (of equal ones, the clients of a closed
loop stay in step). `search` takes the same."""


def usual_load(given: Dict[str, Any]) -> dict[str, Any]:
    """What is assumed of a load where nothing is said: lengths that differ, and of a closed loop the first wave, whose
    prompts come all at once as no later ones do, as warm-up. One client has neither.

    >>> usual_load({"concurrency": 50}), usual_load({"concurrency": 1}), usual_load({"rate": 2.0})
    ({'spread': (0.8, 1.2), 'warmup': 50}, {'warmup': 0}, {'spread': (0.8, 1.2), 'warmup': 0})
    """
    burst = given.get("rate") == math.inf and given.get("concurrency") is None
    closed = given.get("rate") in (None, math.inf) and given.get("trace") is None and not burst
    clients = int(given.get("concurrency") or 16) if closed else 0
    many = clients > 1 and int(given.get("requests") or 10 * clients) >= 2 * clients
    drawn = given.get("trace") is None and (given.get("prompt_limit") is None or given.get("output_limit") is None)
    spread = {"spread": SPREAD} if drawn and clients != 1 else {}
    return {k: v for k, v in {**spread, "warmup": clients if many else 0}.items() if given.get(k) is None}


USUAL = {"budget": 8192, "max_sequences": 1024}
"""Limits of a server whose engine has none: vLLM's, as the most used."""


def server_options(engine: Engine) -> dict[str, Any]:
    """Documented options of an engine's server; where they leave its limits to the engine, the engine's."""
    options = {f.name: getattr(engine.server, f.name) for f in fields(ServerOptions)}
    defaults = {"budget": engine.room.token_budget, "max_sequences": engine.room.max_sequences}
    for name, value in defaults.items():
        if not options[name]:
            options[name] = int(value) if math.isfinite(float(value)) else USUAL[name]
    return options


def make_server(options: Dict[str, Any]) -> Server:
    """Server options checked. RooflmError for an unknown one, and for values out of range."""
    about = abouts(Server)
    for name in options:
        if name not in about:
            near = near_matches(name, about)
            tail = f"did you mean {near[0]!r}?" if near else f"it must be one of {', '.join(about)}"
            raise RooflmError(f"unknown server option {name!r}: {tail}")
    server = Server(**{name: field_value(name, value, about[name]) for name, value in options.items()})
    for name in USUAL:
        if name in options and options[name] < 1:
            raise RooflmError(f"{name} is {options[name]}, but it must be at least 1")
    return server


class NoMemoryError(RooflmError):
    """The weights leave no memory for a KV cache."""


def make_pool(
    s: Scenario, server: Server, longest: int, sequences: int,
    *, replicas: int = 1, role: str = "both", must_fit: bool = True,
) -> Pool:  # fmt: skip
    """Equal replicas of a scenario. longest: most tokens of a request; sequences: most that may run at once. Raises
    RooflmError where weights leave no KV memory, if it must fit."""
    if not attention_dp(s.model) and s.mapping.dp != 1:
        replicas *= int(s.mapping.dp)
        whole_number("replicas x dp", replicas, 1, REPLICAS)
        s = replace(s, mapping=replace(s.mapping, dp=1))
    e = s.engine.but(token_budget=server.budget, max_sequences=server.max_sequences)
    if server.static_fraction != e.server.static_fraction:  # told
        e = e.but(server=replace(e.server, static_fraction=server.static_fraction, reserved=""))
    eager = {"pools": role != "both", "guesses": server.speculative > 0}
    if any(map(eager.get, words_in(e.host.uncaptured))):
        e = e.but(captured=0)
    s = with_share(with_overlap(replace(s, engine=e), server.prefix_caching, server.speculative))
    context = int(min(longest, float(np.max(s.model.max_context)))) + 1
    most = min(server.budget, context * sequences)
    kv = capacity(stored_part(s), most, context, server.prefix_caching, server.scheduler == "static")
    if must_fit and kv.tokens <= 0:
        states = 0 < kv.running < np.inf  # a pool of recurrent states has what weights leave
        would = "; ".join(r.words for r in serving_remedies(s))
        way = f"would fit: {would}" if would else "use more GPUs or a narrower quantisation"
        way = " beside its recurrent states: set engine.state_share below 1" if states else f": {way}"
        on = f"{int(s.mapping.devices)} x {s.cluster.device.name}"
        raise NoMemoryError(f"{s.model.name} leaves no memory for a KV cache on {on}{way}")
    ranks, counted = int(s.mapping.dp), kv.tokens
    if server.cache_blocks:
        kv = kv._replace(tokens=float(server.cache_blocks * s.engine.room.block * ranks))
    fit = int(min(server.max_sequences, kv.running, kv.tokens / ranks / (1 + kv.each) + 1, -(-sequences // ranks)))
    local = max(fit, 1)
    widest = int(padded(s.engine.host.graphs, local))
    tokens = int(min(server.budget, context * local)) + widest
    build = components(s, TableSize(tokens, widest, context), server.speculative, server.draft)
    table, limited = StepTable(build, balanced=server.wait_steps > 0), replace(server, max_sequences=local)
    return Pool(table, limited, kv, replicas, role, int(s.mapping.devices), float(np.max(s.model.max_context)), counted)


@dataclass(frozen=True, eq=False, repr=False)
class Served(Answer):
    """A simulated deployment: summary (numbers of --json), per-request table, timeline, steady-state estimate."""

    run: Run
    limits: tuple[metrics.Slo, ...]
    definitions: str
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]
    warmup: int = 0

    def lines(self) -> list[str]:
        """What runs on what; the load; times; rates and memory."""
        from rooflm.serving import said

        v = self.values()
        return [
            said.title(self.run.pools),
            f"{v['load']}: {v['requests']} requests in {timespan(v['duration_s'])}, {v['finished']} finished",
            f"TTFT mean {timespan(v['ttft_s']['mean'])}, p95 {timespan(v['ttft_s']['p95'])}; "
            f"TPOT mean {timespan(v['tpot_s']['mean'])}, p95 {timespan(v['tpot_s']['p95'])}",
            f"{count(v['requests_per_s'])} requests/s, {count(v['output_tokens_per_s'])} output tokens/s; "
            f"KV memory {percent(v['kv_occupancy'])}",
        ]

    def blocks(self, verbose: bool = False) -> list[Block]:
        """The whole run, what can be served first."""
        from rooflm.serving import said

        return said.blocks(self, self.values())

    def plot(self, path: str | None = None, kind: str | None = None) -> Any:
        """Requests and KV memory over time; path: write it there too."""
        return plotting().load(self, path)

    def to_dict(self) -> dict[str, Any]:
        """The numbers of --json in plain Python values."""
        told: dict[str, Any] = plain(self.values())
        return told

    def to_pandas(self) -> pandas.DataFrame:
        """The requests: one a row, times in s."""
        return data_frame(self.table._asdict())

    @cached_property
    def summary(self) -> metrics.Summary:
        """All numbers; times in s. Its names are attributes of this object too (`ttft_s`, `busy`, ...)."""
        return metrics.summarise(self.run, self.limits, self.definitions, self.warmup)

    @cached_property
    def table(self) -> metrics.RequestTable:
        """One row a request."""
        return metrics.table(self.run, self.definitions)

    @cached_property
    def timeline(self) -> dict[str, NDArray[np.float64]]:
        """Queue, running sequences and KV occupancy over time."""
        return metrics.timeline(self.run)

    @cached_property
    def steady(self) -> Steady | None:
        """The steady-state estimate; of several equal replicas, of one of them."""
        return steady_of(self.run, self.warmup)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.summary, name)

    def values(self) -> dict[str, Any]:
        """The numbers of --json: the summary, the error band of the mean TTFT and TPOT (10th to 90th percentile of
        measured runs under load like it), the steady state and where the two part."""
        out = {**self.summary.values, "load": self.run.requests.name}
        s = self.run.pools[-1].table.components.scenario
        times = {"ttft_s": "prefill under load", "tpot_s": "decode under load"}
        asked = {k: (phase, out[k]["mean"], 0.0) for k, phase in times.items()}
        out["error_band"] = bands_around(s, asked, split=len(self.run.pools) > 1)
        if self.steady is not None:
            out["steady"] = {f"{k}_s": getattr(self.steady, k) for k in ("ttft", "tpot", "latency")} | {
                "requests_per_s": steady_rate(self), "stable": self.steady.stable, "agrees": agrees(self)}  # fmt: skip
        return out | {"assumed": list(self.assumed), "warnings": list(self.warnings)}


def whole(served: Served) -> Served:
    """A run that came to its end; KeyboardInterrupt again where Ctrl-C cut it short, for who goes by its numbers."""
    if served.run.interrupted:
        raise KeyboardInterrupt
    return served


AGREED = 0.25
"""Steady state and simulation agree when their mean times and rates differ by no more of the simulation's."""


def steady_rate(served: Served) -> float:
    """Requests a second of the steady state, all replicas together."""
    copies = len(served.run.replicas) if len(served.run.pools) == 1 else 1
    return served.steady.requests_per_s * copies if served.steady else 0.0


def agrees(served: Served) -> bool:
    """True when steady state and simulation give the same TPOT, TTFT and requests a second to within a quarter."""
    s, v = served.steady, served.summary.values
    if s is None or not s.stable or math.isnan(v["ttft_s"]["mean"]):
        return False
    pairs = ((s.ttft, v["ttft_s"]["mean"]), (s.tpot, v["tpot_s"]["mean"]), (steady_rate(served), v["requests_per_s"]))
    return all(abs(a - b) <= AGREED * b for a, b in pairs if math.isfinite(b))


class Deployment(NamedTuple):
    """Pools with how they are joined, and what was assumed."""

    pools: tuple[Pool, ...]
    router: str
    transfer: Transfer
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]


def make_requests(
    prompt: int = 512, output: int = 128, *, concurrency: int | None = None, rate: float | None = None,
    trace: str | Requests | None = None, requests: int | None = None, spread: tuple[float, float] = (1.0, 1.0),
    seed: int = 0, burstiness: float = 1.0, peak: float = 1.0, copies: int = 1, shared_prefix: int = 0, cached: int = 0,
    limit: int | None = None, prompt_limit: int | None = None, output_limit: int | None = None,
    output_ended: int | None = None, output_variation: float | None = None,
) -> Requests:  # fmt: skip
    """The load: a closed loop (concurrency), an open loop (rate; with concurrency no more under way than that; an
    infinite rate is none, or all at once), or a trace (a file or Requests; `rate` then plays it at that mean rate and
    `copies` repeats each request). peak: highest rate of the day over the mean one, 1 to 2. prompt_limit: most tokens
    of a prompt, where many are short and few long, with `prompt` as their mean; output_limit: of an output, where they
    end by themselves; output_ended: the mean of those that do, where the others run to the limit; output_variation: the
    standard deviation of outputs over their mean."""
    if rate == math.inf:
        rate = None
        if concurrency is None:
            concurrency = requests = requests or workload.BURST
    if trace is not None:
        made = played(trace if isinstance(trace, Requests) else read_trace(trace, limit), rate, copies, seed)
    elif rate is not None:
        day = workload.daily(peak, period=(requests or 1000) / rate) if peak != 1 else None
        made = workload.open_loop(rate, requests or 1000, prompt, output, spread, seed, burstiness, day)
        made = made if concurrency is None else workload.held(made, concurrency)
    else:
        made = workload.closed_loop(16 if concurrency is None else concurrency, requests, prompt, output, spread, seed)
    if prompt_limit is not None:
        made = replace(made, prompt=workload.ending(prompt, prompt_limit, made.count, [seed, 1], what="prompt"))
    if output_limit is not None:
        made = replace(made, output=workload.ending(
            output, output_limit, made.count, [seed, 2], output_ended, variation=output_variation))  # fmt: skip
    workload.lasting(made)
    return workload.prefixed(made, shared_prefix, cached) if shared_prefix or cached else made


def played(trace: Requests, rate: float | None, copies: int, seed: int) -> Requests:
    """A trace at a mean rate (requests/s; None: its own), each request repeated `copies` times. RooflmError for a rate
    that is not above 0, and for one of a trace without times."""
    speed = 1.0
    if rate is not None:
        if not rate > 0:
            raise RooflmError(f"rate is {rate:g} requests/s, but it must be above 0")
        if not math.isfinite(trace.rate):
            raise RooflmError("the trace has no times, so it cannot be played at a rate: leave --rate out")
        speed = rate / (trace.rate * copies)
    return workload.scaled(trace, speed, copies, seed) if speed != 1.0 or copies != 1 else trace


def server_for(s: Scenario, options: Dict[str, Any] | None = None) -> Server:
    """The server of a scenario's engine on its card: documented options, the engine's constants, then `options`.
    RooflmError where these hold what an engine's row says of its cards, which counts no longer once a limit is told."""
    e = s.engine
    for name in (options or {}).keys() & BY_CARD.keys():
        told = {"token_budget": "option budget"}.get(BY_CARD[name], f"engine.{BY_CARD[name]}")
        raise RooflmError(f"server option {name!r} is of an engine's row: tell the limit itself, {told}")
    host = {name: float(s.cluster.answering * getattr(e.host, name)) for name in ("request", *FRONT)}
    server = make_server({**host, **server_options(e), **speculating(s), **(options or {})})
    ranks = int(s.mapping.dp) if attention_dp(s.model) else 1
    return server if server.streams else replace(server, streams=ranks)


TYPICAL = 8
"""Sequences of a rank at which the cost of a guess over that of a step is worked out."""


def speculating(s: Scenario) -> dict[str, Any]:
    """The server's options of speculative decoding: guessed tokens verified a step, their acceptance (such that a step
    gains what was asked), and the cost of a guess as a share of the verifying step."""
    spec = s.speculation
    if spec.off:
        return {}
    e = infer_scenario(replace(s, workload=replace(s.workload, batch=TYPICAL * s.mapping.dp)))
    guess, gained = float(e.decode_parts["guesses"]), float(e.gained)
    rows = int(spec.guesses * spec.branches)
    return {"speculative": rows, "gained": gained, "draft": guess / max(float(e.tpot) - guess, 1e-12) / rows}


def room_for_prompts(server: Server, given: Dict[str, Any], prompt: int, sequences: int) -> Server:
    """The server with a token budget that holds the longest prompt and all decoding sequences, if it takes prompts
    whole and no budget was given: a prompt as long as the budget would wait until nothing else runs.

    Every published launch script of such an engine sets its budget above a prompt and its clients (InferenceX:
    max_num_tokens = prompt + clients + 64; AIConfigurator's generator: prompt + max_batch_size + 1500), as its guide
    asks for without chunked context (TensorRT-LLM, "Tuning max batch size and max num tokens").

    >>> room_for_prompts(Server("no-evict"), {}, 8192, 64).budget, room_for_prompts(Server(), {}, 8192, 64).budget
    (8256, 8192)
    """
    if "budget" in given or not issubclass(SCHEDULERS[server.scheduler], InFlight):
        return server
    return replace(server, budget=max(server.budget, prompt + sequences))


def deploy(
    built: Built, load: Requests, replicas: int = 1, *, router: str = "round-robin",
    options: Dict[str, Any] | None = None, prefill_replicas: int = 0, prefill: Built | None = None,
    transfer_bandwidth: float | None = None,
) -> Deployment:  # fmt: skip
    """Pools for a load. prefill_replicas: disaggregated, that many prefill replicas (of `prefill`, default the same
    scenario) feed `replicas` decode replicas over the cluster's network."""
    s = built.scenario
    if replicas < 1 or prefill_replicas < 0:
        raise RooflmError(f"replicas is {min(replicas, prefill_replicas)}, but it must be at least 1")
    server = server_for(s, options)
    longest = int(np.max(load.prompt + load.output))
    most = int(server.max_sequences * max(float(s.mapping.dp), 1))
    sequences = min(most, load.concurrency or load.count)
    whole, most_here = int(np.max(load.prompt)), min(sequences, server.max_sequences)
    roomy = room_for_prompts(server, {}, whole, most_here)
    server = server if "budget" in (options or {}) else roomy
    sequences = sequences if load.concurrency else most  # the steady state of an open loop has no last request
    limits = f"token budget {server.budget}", f"at most {server.max_sequences} sequences"
    assumed = [f"{server.scheduler} scheduler", *limits]
    network = Transfer()
    if prefill_replicas:
        first, before = prefill or built, server
        if prefill is not None:
            before = replace(server_for(first.scenario, options), max_sequences=server.max_sequences)
            before = room_for_prompts(before, options or {}, whole, 0)
        pools: tuple[Pool, ...] = (
            make_pool(first.scenario, before, longest, sequences, replicas=prefill_replicas, role="prefill"),
            make_pool(s, server, longest, sequences, replicas=replicas, role="decode"),
        )
        network = transfer_of(first.scenario, s, transfer_bandwidth)
        assumed.append(f"KV transfer at {network.bandwidth / 1e9:.0f} GB/s")
    else:
        pools = (make_pool(s, server, longest, sequences, replicas=replicas),)
    constants_note = whose_constants(s, built.assumed, split=len(pools) > 1)
    beyond = [f"cache_blocks {p.server.cache_blocks} hold {p.capacity.tokens:,.0f} tokens, but memory has room for "
              f"{p.counted:,.0f} by our count: they are taken as told" for p in pools if p.capacity.tokens > p.counted
    ]  # fmt: skip
    if most_here > 1 and whole <= server.budget < roomy.budget and not prefill_replicas:
        left = server.budget - whole
        beyond.append(f"a prompt of {whole} tokens leaves {left} of the token budget for sequences that decode, so it "
                      f"waits until no more of them run: {roomy.budget} holds both")  # fmt: skip
    if router != ROUTERS[0] and max(replicas, prefill_replicas) == 1:
        beyond.append(f"router {router} has no effect with one replica")
    return Deployment(pools, router, network, (*constants_note, *assumed), (*built.warnings, *beyond))


def serve(
    model: str | Model, *, replicas: int = 1, router: str = "round-robin", prefill_replicas: int = 0,
    prefill_gpu: str | None = None, prefill_tp: int | None = None, prefill_pp: int | None = None,
    prefill_dp: int | None = None, prefill_ep: int | None = None, prefill_price: float | None = None,
    prefill_purchase: float | None = None, transfer_bandwidth: float | None = None,
    prompt: int = 512, output: int = 128, slo: str = "",
    definitions: str = metrics.AFTER_FIRST, horizon: float = math.inf,
    progress: Progress | None = None, options: Dict[str, Any] | None = None, warmup: int = 0, **arguments: Any,
) -> Served:  # fmt: skip
    """`rooflm.serve`, whose arguments these are (options: its `server`; arguments: the load, see `make_requests`, and
    those of `infer`), with nothing assumed of the load."""
    load_arguments = {k: arguments.pop(k) for k in LOAD if k in arguments}
    load = make_requests(prompt, output, **load_arguments)
    longest_prompt = int(np.max(load.prompt))
    common: dict[str, Any] = {"model": model, "batch": int(arguments.get("dp") or 1), "prompt": longest_prompt}
    common |= {"output": int(np.max(load.output)), **{k: v for k, v in arguments.items() if v is not None}}
    generating(common["model"], "serve")
    built = build_inference(**common)
    of_prefill = {"gpu": prefill_gpu, "tp": prefill_tp, "pp": prefill_pp, "dp": prefill_dp, "ep": prefill_ep,
           "price": prefill_price, "purchase": prefill_purchase}  # fmt: skip
    first = prefill_built(common, {k: v for k, v in of_prefill.items() if v is not None}, prefill_replicas)
    d = deploy(built, load, replicas, router=router, options=options, prefill_replicas=prefill_replicas, prefill=first,
               transfer_bandwidth=transfer_bandwidth)  # fmt: skip
    if warmup and warmup >= load.count:
        raise RooflmError(f"warmup is {warmup}, but it must be below the {load.count} requests of the run")
    limits = metrics.parse_limits(slo) if slo else ()
    run = simulate(load, d.pools, d.router, d.transfer, horizon, progress)
    which = "each client's first request is" if warmup == load.concurrency else f"the first {warmup} requests are"
    notes = [f"{which} warm-up"] * (warmup > 0)
    unused = [f"{name} has no effect: {built.scenario.engine.name} keeps no prefix cache here"
              for name in ("shared_prefix", "cached")
              if load_arguments.get(name) and not any(p.server.prefix_caching for p in d.pools)]  # fmt: skip
    return Served(run, limits, definitions, (*d.assumed, *notes), (*d.warnings, *unused), warmup)
