"""Fit what only whole runs can give: an engine's host costs, its factors on kernels, and what a card reaches.

    python -m rooflm_fit.engines --data inference.csv inference-2.csv [--only JOB ...] [--write]

Log ratios of predicted over measured, robust (soft L1), each (model, GPU) group weighted by the root of its rows, with
a prior on every constant. The groups fall into three parts by a hash of their names: the errors "out" of each part are
of a fit to the other two. What is written is a fit on all groups (errors "in").
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.hardware import Derating
from rooflm.estimate.capacity import Running, running
from rooflm.estimate.request import Passes, Speed, speed, timed_passes
from rooflm.graph.ops import Op
from rooflm.kernels.constants import CALIBRATION
from rooflm.kernels.derating import card_file, derating, on_file, reach, rows_by_place
from rooflm.kernels.dispatch import FACTORS
from rooflm.kernels.roofline import Timed
from rooflm.readers import engines, rows
from rooflm.readers.devices import load_device
from rooflm.readers.engines import load_engine
from rooflm.scenario.scenario import Scenario
from rooflm.sweep.files import write_text
from rooflm.validation.folds import held_out
from rooflm.validation.request import Request
from rooflm.validation.score import band_phase, engine_of, family, scenario_of
from rooflm_fit.common import Array, Param, error, fit
from rooflm_fit.engine_rows import base_of, bases_of, file_of, held, unmoved, updated, write
from rooflm_fit.generations import kin, line, places
from rooflm_fit.jobs import FREE, JOBS, Job
from rooflm_fit.runs import DISTRUSTED, read

FOLDS = 3
"""Parts of the groups (model, GPU, number of GPUs), each predicted by a fit to the other two."""
SCALE = 0.06
"""Log ratio at which a row's weight turns from square to linear."""
KERNEL_FIELDS = ("bf16_share", "sm_stream", "kv_reread", "block_rate", "kv_convert", "alike", "dequant",
                 "tile_rate", "row_rate")  # fmt: skip
"""Constants that enter a kernel's formula: kernels are timed again for them."""


@dataclass
class Family:
    """Rows predicted in one evaluation, and their kernels' times by what those depend on."""

    requests: list[Request]
    index: list[int]
    scenario: Scenario
    engine: str
    cache: dict[tuple[float, ...], Passes] = field(default_factory=dict)
    empty: dict[tuple[int, int], Any] | None = None
    last: dict[tuple[Any, ...], Array] = field(default_factory=dict)

    @cached_property
    def running(self) -> Running:
        """What runs at once of each row: no fitted constant moves it."""
        return running(self.scenario)

    @cached_property
    def held(self) -> frozenset[str]:
        """Fields that what a job has in common does not move."""
        return unmoved(self.engine)

    @property
    def gpu(self) -> str:
        """The card's name."""
        return self.scenario.cluster.device.name

    @property
    def kin(self) -> str:
        """The card's product family as a key of constants."""
        return kin(self.gpu)

    def timed(self, engine: Engine, reach: Derating) -> Passes:
        """Both passes with neutral engine factors, from the cache where it has them."""
        experts = shared_experts(engine)
        key = (*astuple(reach), experts, *(float(engine.value(f)) for f in KERNEL_FIELDS))
        if key not in self.cache:
            if len(self.cache) > 40:
                self.cache.clear()
            neutral = dict.fromkeys({*FACTORS.values(), "stream_factor"}, 1.0) | {"moe_factor": experts}
            plain = engine.but(collective_factor=1.0, collective_floor=1.0, **neutral)
            cluster = self.scenario.cluster
            device = replace(cluster.device, derating=reach)
            given = replace(self.scenario, engine=plain, cluster=replace(cluster, device=device))
            self.cache[key] = timed_passes(given, self.running)
            if self.empty is None:
                twice = timed_passes(replace(given, engine=plain.but(collective_floor=2.0)), self.running)
                self.empty = {
                    (i, j): t.time - u.time
                    for i, (many, few) in enumerate(zip(twice, self.cache[key], strict=True))
                    for j, (t, u) in enumerate(zip(many, few, strict=True))
                }
        return self.cache[key]

    def predict(self, free: Mapping[str, float], reach: Derating) -> Array:
        """Each request's metric with these constants of the engine; asked twice, it remembers."""
        key = (reach, *sorted(free.items()))
        if key not in self.last:
            if len(self.last) > 8:
                self.last.clear()
            self.last[key] = self._predict(self.scenario.engine.but(**free), reach)
        return self.last[key]

    def _predict(self, engine: Engine, reach: Derating) -> Array:
        passes = self.timed(engine, reach)
        empty = self.empty or {}
        floor = float(np.max(engine.factors.collective_floor)) - 1.0
        scaled = Passes(
            *([_scaled(t, engine, floor * empty[i, j]) for j, t in enumerate(part)]
              for i, part in enumerate(passes))
        )  # fmt: skip
        s = replace(self.scenario, engine=engine)
        return metrics(self.requests, s, speed(s, scaled, self.running))


def shared_experts(e: Engine) -> float:
    """moe_factor with which experts are timed before the others' factor is put on them: of engines whose experts may
    run on the kernels of other products, it over gemm_factor; else 1, and their own factor is put on them.

    >>> from rooflm.readers.engines import load_engine
    >>> [shared_experts(load_engine(e).but(moe_factor=2.0, gemm_factor=1.0)) for e in ("vllm", "llama.cpp")]
    [1.0, 2.0]
    """
    return float(e.factors.moe_factor / e.factors.gemm_factor) if e.kernels.gemv else 1.0


def _scaled(t: Timed, e: Engine, extra: Any) -> Timed:
    if isinstance(t.node, Op):
        kind = "gemm" if t.node.kind == "moe" and e.kernels.gemv else t.node.kind
        return t._replace(time=t.time * getattr(e.factors, FACTORS.get(kind, "stream_factor")))
    return t._replace(time=(t.time + extra) * e.factors.collective_factor)


def metrics(requests: Sequence[Request], s: Scenario, v: Speed) -> Array:
    """The metric of each request out of the times of all (speeds only)."""
    w = s.workload
    table = {
        "ttft": v.ttft, "tpot": v.tpot, "latency_s": v.latency, "output_tokens_per_s": w.batch * w.output / v.latency,
        "prefill_tokens_per_s": w.batch * (w.prompt - w.cached) / v.ttft, "decode_tokens_per_s": w.batch / v.tpot,
    }  # fmt: skip
    full = {k: np.broadcast_to(np.asarray(x, float), (len(requests),)) for k, x in table.items()}
    return np.array([full[r.metric][i] for i, r in enumerate(requests)])


def families(requests: Sequence[Request]) -> list[Family]:
    """Requests by family; index: their places."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, r in enumerate(requests):
        groups.setdefault(family(r), []).append(i)
    done = []
    for members in groups.values():
        chosen = [requests[i] for i in members]
        name = engine_of(chosen[0])
        done.append(Family(chosen, members, scenario_of(chosen), name))
    return done


SPEEDS = ("ttft", "tpot", "latency_s", "output_tokens_per_s", "prefill_tokens_per_s", "decode_tokens_per_s")


def rows_of(job: Job, requests: Sequence[Request]) -> list[Request]:
    """The rows that a job is fitted to."""
    return [r for r in requests if r.metric in SPEEDS and r.task == "infer" and r.source not in job.skip
            and engine_of(r) in job.engines]  # fmt: skip


class Fitted(NamedTuple):
    """A job's constants by name, its rows, their predictions, and those of fits that never saw the row's group (nan
    where there was none)."""

    constants: dict[str, float]
    requests: list[Request]
    predicted: Array
    outside: Array


def params_of(job: Job, members: Sequence[Family]) -> list[Param]:
    """All constants of a job: "field", "engine:field", "gpu|compute", "gpu|bandwidth". Of a card that ran no prompt
    nothing tells its `compute`, which is its family's."""
    listed = list(job.shared)
    prompts = {f.gpu for f in members for r in f.requests if band_phase(r.metric) != "decode"}
    for engine, own in job.own.items():
        listed += [p._replace(name=f"{engine}:{p.name}") for p in own if p.name not in held(engine)]
    for gpu in sorted({f.gpu for f in members if not on_hand(f)}):
        widths = job.cards.get(gpu) or job.cards.get("*")
        for name, width in widths._asdict().items() if widths else ():
            if width and (name != "compute" or gpu in prompts):
                start = 1.0 if job.kin else getattr(elsewhere(gpu), name) or FREE[name].start  # a share of its family's
                listed.append(FREE[name]._replace(name=f"{gpu}|{name}", start=start, prior=width))
    lines = [line(f.gpu) for f in members]
    for name, width in job.kin._asdict().items() if job.kin else ():
        if width:
            keys = sorted({f"{x[0]}|{name}" for x in lines})
            listed += [FREE[name]._replace(name=k, start=job.start.get(k, FREE[name].start), prior=width) for k in keys]
    for name, width in job.generation._asdict().items() if job.generation else ():
        if width:
            kinds = sorted({key for own in lines for key in own[1:]})
            listed += [FREE[name]._replace(name=f"{k}|{name}", start=1.0, prior=width) for k in kinds]
    return listed


def predict(members: Sequence[Family], rows: int, theta: Mapping[str, float]) -> Array:
    """Predictions of all rows of a job for its constants."""
    out = np.empty(rows)
    shared = {k: v for k, v in theta.items() if ":" not in k and "|" not in k}
    for f in members:
        told = f.requests[0].kwargs.get("sets") or {}  # what the rows themselves say of their engine
        common = {k: v for k, v in shared.items() if k not in f.held}
        free = {k: v for k, v in {**common, **own_of(theta, f.engine)}.items() if f"engine.{k}" not in told}
        out[f.index] = f.predict(free, reach_of(f, theta))
    return out


def own_of(theta: Mapping[str, float], engine: str, alone: bool = False) -> dict[str, float]:
    """An engine row's own constants: those of the engine whose runs it shares, unless `alone`, and over them its own (a
    build's).

    >>> own_of({"llama.cpp:dequant": 1.0, "llama.cpp-metal:gap": 2.0, "step": 3.0}, "llama.cpp-metal")
    {'dequant': 1.0, 'gap': 2.0}
    """
    marks = (f"{engine}:",) if alone else (f"{load_engine(engine).runs}:", f"{engine}:")
    return {k.split(":", 1)[1]: v for mark in marks for k, v in theta.items() if k.startswith(mark)}


FITTED = ("fitted to runs of ", "as fitted to runs of ")
"""How the source of a card's row begins that a fit wrote; any other is stated, and stays."""


def on_hand(f: Family) -> bool:
    """Whether a card's factors in an engine are stated."""
    runs = load_engine(f.engine).runs
    return any((r.gpu, r.engine) == (f.gpu, runs) and not r.source.startswith(FITTED) for r in card_file().card)


def elsewhere(gpu: str) -> Derating:
    """What llama.cpp's runs gave a GeForce for other engines: a card's factors start there in a fit without families,
    and a card that such a fit never saw has them.

    >>> elsewhere("rtx-4090").compute > 1.2, elsewhere("a100-sxm-80gb").compute
    (True, 1.0)
    """
    own = kin(gpu).removeprefix("~")
    return on_file(gpu, "", own, "", 0, "") if own == "geforce" else Derating()


def reach_of(f: Family, theta: Mapping[str, float]) -> Derating:
    """A card's factors in a fit: its own times its family's where the fit has cards at all (one that it never saw has
    its family's alone; a GeForce in a fit without families what llama.cpp's runs gave it), else those on file."""
    if on_hand(f) or not any("|" in key for key in theta):
        return derating(f.scenario.cluster.device, f.engine, f.scenario.engine.kernels.sums)
    families_too = any(key.startswith("~") for key in theta)
    found = asdict(Derating() if families_too else elsewhere(f.gpu))
    for name in found:
        parts = [theta[f"{key}|{name}"] for key in (f.gpu, *line(f.gpu)) if f"{key}|{name}" in theta]
        if parts:
            found[name] = float(np.prod(parts))
    return Derating(**found)


def taken(job: Job, results: Mapping[str, Fitted]) -> dict[str, float]:
    """Constants of a job that another's fit gives: of `results` where it is there, else of the row as it is.

    >>> taken(JOBS["exllamav2"], {})["sm_stream"] == load_engine("llama.cpp").kernels.sm_stream
    True
    """
    fitted = {e: f.constants for name, f in results.items() for e in JOBS[name].engines}
    rows = {k: (fitted.get(whose, {}), load_engine(whose)) for k, whose in job.taken.items()}
    return {k: own.get(k, float(row.value(k))) for k, (own, row) in rows.items()}


def run(job: Job, requests: Sequence[Request], crossed: bool = True, given: Mapping[str, float] = {}) -> Fitted:
    """Fit a job to all its rows; and, where `crossed`, predict each fold by a fit to the others. given: constants that
    are not free."""
    chosen = rows_of(job, requests)
    members = families(chosen)
    theta = fit_to(job, members, chosen, np.ones(len(chosen), bool), given=given)
    inside = predict(members, len(chosen), theta)
    outside = np.full(len(chosen), np.nan)
    fold = folds(chosen)
    for k in range(FOLDS if crossed else 0):
        aside = fold == k
        if aside.any() and not aside.all():
            outside[aside] = predict(members, len(chosen), fit_to(job, members, chosen, ~aside, given=given))[aside]
    return Fitted(theta, chosen, inside, outside)


def folds(requests: Sequence[Request]) -> NDArray[np.int64]:
    """The fold of each row: a hash of its model, GPU and number of GPUs, so that whole groups are kept aside."""
    keys = [(r.group[0], r.group[1], r.kwargs.get("tp", 1) * r.kwargs.get("pp", 1)) for r in requests]
    first = held_out(*zip(*keys, strict=True), share=1 / FOLDS)
    second = held_out(*zip(*keys, strict=True), share=2 / FOLDS)
    return np.where(first, 0, np.where(second, 1, 2))


def fit_to(
    job: Job, members: Sequence[Family], requests: Sequence[Request], use: NDArray[np.bool_],
    start: Mapping[str, float] | None = None, given: Mapping[str, float] = {},
) -> dict[str, float]:  # fmt: skip
    """Constants of a job from the rows in use that can be trusted; a card without any has none of its own. start: where
    to start from (a fit to more rows), which saves most of the steps; given: constants that are not free."""
    use = use & np.array([not r.apart and not job.odd(r) for r in requests])
    kept = [f for f in members if use[f.index].any()]
    seen = {f.gpu for f in kept} | {f.engine for f in kept} | {key for f in kept for key in line(f.gpu)}
    free = params_of(job, members)
    listed = [p for p in free if p.name.replace("|", ":").split(":")[0] in seen or p.name.isidentifier()]
    if not listed:  # all of them stated
        return dict(given)
    sizes: dict[tuple[str, str], int] = {}
    for r, u in zip(requests, use, strict=True):
        sizes[r.group] = sizes.get(r.group, 0) + int(u)
    weights = np.array([sizes[r.group] ** -0.5 for r, u in zip(requests, use, strict=True) if u])
    measured = np.array([r.measured for r, u in zip(requests, use, strict=True) if u])

    def model(theta: Mapping[str, float]) -> Array:
        return predict(kept, len(requests), {**theta, **given})[use]

    steps = 4 if start else 30
    found = fit(model, measured, listed, weights=weights, scale=SCALE, starts=(start or {},), max_nfev=steps)
    return found | dict(given)


def table(found: Fitted, label: str) -> list[str]:
    """Errors by source, in and out of sample."""
    lines = []
    for source in sorted({r.source for r in found.requests}):
        parts = []
        for values in (found.predicted, found.outside):
            pick = [i for i, r in enumerate(found.requests) if r.source == source and np.isfinite(values[i])]
            off = error(values[pick], np.array([found.requests[i].measured for i in pick]))
            parts.append(f"{off.rows:5d} {off.mape:6.1f} {off.median:6.1f}")
        lines.append(f"{label:14s} {source:22s} in {parts[0]}   out {parts[1]}")
    return lines


GEFORCE_REACH = 0.97
"""Share of the datasheet that long products of 16 bits reach on GeForce in engines without runs: sums of fp32 have half
the rate there, which takes neither power nor operands to the end. torch.matmul's best on 17 desktop cards is 0.91 to
1.13 of it, 1.06 in the median; of 8,192 and 10,240 square on an RTX 4090 0.94 to 0.97
(github.com/zzc0721/torch-performance-test-data, database.md and issue 78). None passes the datasheet here."""
MANY_ROWS = 0.82
"""Share of the bandwidth that tensor cores' products reach (`eff_m` in 16 bits: 0.78 to 0.88, in the mean 0.82), which
engines without runs have: a share in kernels for few rows is over their `vector_share`."""
GENERAL = ("~geforce", "~apple", "~radeon", "rtx-3", "rtx-4070", "rtx-4080", "apple", "jetson")
"""Cards (first parts of their names) without kernel data, whose factors serve every engine."""


def write_engines(results: Mapping[str, Fitted]) -> None:
    """Put the fitted constants into the engines' rows, in place; what is not fitted stays. What the engines of a job
    share goes into the row that the others build on, or into each that stands by itself."""
    for name, found in results.items():
        for engine in JOBS[name].engines:
            alone = load_engine(engine).runs == engine and base_of(engine) not in JOBS[name].engines
            base = load_engine(engine).runs in bases_of(engine)  # what the row it builds on is given, it is given, too
            own = own_of(found.constants, engine, alone=base)
            shared = {k: v for k, v in found.constants.items() if k.isidentifier() and alone}
            path = file_of(engine)
            write(path, updated(path.read_text(encoding="utf-8"), engine, shared | own))


def factors_of(parts: Sequence[tuple[str, float]], less: str = "") -> dict[str, float]:
    """The product of what a card, its family and its generations have, by factor; less: whose are left out.

    >>> factors_of([("m1|bandwidth", 0.5), ("~apple|bandwidth", 0.8)], "m1")
    {'bandwidth': 0.8}
    """
    kept = [(key.partition("|"), value) for key, value in parts]
    return {
        name: float(np.prod([v for (own, _, k), v in kept if k == name and own != less])) for (_, _, name), _ in kept
    }


GENERALLY = "for engines without runs on this card"
WHOLE = "; compute: as PyTorch's products (GEFORCE_REACH of rooflm_fit.engines)"


def write_cards(path: Path, results: Mapping[str, Fitted]) -> None:
    """Put the fitted jobs' cards into the file: a row a card and engine, then a general one a card where GENERAL says
    so, of the first of JOBS that has it (engines that serve stand before llama.cpp). A row that states its factors
    stays. All in the order of JOBS, stated rows first: fitted together or one by one, jobs make the same file."""
    head, *found_there = (b.rstrip() for b in path.read_text(encoding="utf-8").split("[[card]]"))
    blocks = [one for block in found_there for one in apart(block)]
    runs = {name: dict.fromkeys(load_engine(e).runs for e in JOBS[name].engines) for name in results}
    gone = [f"fitted to runs of {name}{mark}" for name in results for mark in ":;"]
    said = {of_whom(block) for block in blocks if not any(f'source = "{how}' in block for how in FITTED)}
    kept = [block for block in blocks if of_whom(block) in said or not any(mark in block for mark in gone)]
    kept = [lent(block, results) if of_whom(block) in said else block for block in kept]
    general = [block for block in kept if GENERALLY in block]
    rows = [block for block in kept if GENERALLY not in block]
    for name, found in results.items():
        cards = [r.group[1] for r in found.requests]
        for place, (named, keys, count) in places(JOBS[name], found.constants, cards).items():
            parts = [(k, v) for k, v in found.constants.items() if k.split("|")[0] in keys]
            bound = JOBS[name].bound.get(place, "")
            factors = known_of(place, name) | factors_of(parts, place if bound else "")
            sources = ", ".join(sorted({r.source for r in found.requests}))
            for engine in runs[name]:
                note = f"fitted to runs of {name}: {sources}"
                here = factors_of(parts) if engine == bound else factors
                row = card_row([*named, f'engine = "{engine}"'], here, count, note)
                rows += [row] if of_whom(row) not in said else []
            whole = factors["compute"] if name == "llama.cpp" and "~geforce" in keys else 0.0
            if whole:
                generation = place.partition("/")[2] or load_device(place).kernel_generation
                factors["compute"] = GEFORCE_REACH / reach(generation)[0]
            kernels = load_engine(JOBS[name].engines[0]).kernels
            if kernels.sm_stream and "~apple" not in keys:
                few = float(kernels.vector_share) / MANY_ROWS
                factors = {k: v * (few if k == "bandwidth" else 1.0) for k, v in factors.items()}
            if place.startswith(GENERAL):
                plain = {k: v for k, v in factors.items() if k not in ("few", "sm_stream")}
                note = f"as fitted to runs of {name}; {GENERALLY}"
                own = [card_row(named, plain, count, f"{note}{WHOLE if whole else ''}")]
                if whole:
                    half = [*named, 'engine = "fp16"']
                    own.append(card_row(half, plain | {"compute": whole}, count, f"{note} that sum in fp16"))
                general += [row for row in own if of_whom(row) not in said]
    rows.sort(key=lambda block: next((i for i, job in enumerate(JOBS, 1) if f"runs of {job}:" in block), 0))
    general.sort(key=lambda block: next(i for i, job in enumerate(JOBS) if f"runs of {job};" in block))
    first = {of_whom(block): block for block in reversed(general)}
    write_text(path, "\n\n[[card]]".join([head, *together([*rows, *reversed(first.values())])]) + "\n")


OF_ENGINES = re.compile(r'(?m)(?<=^engine = ").*(?="$)')
"""The engines of a card's row, apart by spaces."""


def apart(block: str) -> list[str]:
    """A card's row as a row an engine."""
    return [OF_ENGINES.sub(engine, block) for found in OF_ENGINES.findall(block) for engine in found.split()] or [block]


def together(blocks: Sequence[str]) -> list[str]:
    """Rows of cards that are alike but for their engines as one, where the first of them stands.

    >>> together(['\\nengine = "a"\\nx = 1', '\\nx = 1', '\\nengine = "b"\\nx = 1'])
    ['\\nengine = "a b"\\nx = 1', '\\nx = 1']
    """
    alike: dict[str, list[str]] = {}
    for block in blocks:
        alike.setdefault(OF_ENGINES.sub("", block), []).extend(OF_ENGINES.findall(block))
    return [OF_ENGINES.sub(" ".join(names), block) for block, names in alike.items()]


def lent(block: str, results: Mapping[str, Fitted]) -> str:
    """A stated row of a card with the factors that a job lends it out of its family's fit."""
    for name, found in results.items():
        for gpu, factors in JOBS[name].lent.items():
            own = factors_of([(k, v) for k, v in found.constants.items() if k.split("|")[0] in line(gpu)])
            if of_whom(block) in [f'\ngpu = "{gpu}"\nengine = "{engine}"' for engine in JOBS[name].engines]:
                for factor in factors:
                    block = re.sub(rf"(?m)^{factor} = .*$", f"{factor} = {own[factor]:.4g}", block)
    return block


def known_of(place: str, job: str) -> dict[str, float]:
    """Factors of a card that a fit without families leaves as llama.cpp's runs have them.

    >>> known_of("rtx-4090", "tinychat").keys() == {"compute", "bandwidth"}
    True
    >>> known_of("rtx-4090", "llama.cpp")
    {}
    """
    return {} if JOBS[job].kin else {k: v for k, v in asdict(elsewhere(place)).items() if 0 < v < np.inf}


def of_whom(block: str) -> str:
    """The lines of a card's row that say of which card and engine it is.

    >>> of_whom('\\nproduct_family = "a"\\ncards = "c, d"\\nengine = "b"\\ncompute = 0.5')
    '\\nproduct_family = "a"\\nengine = "b"'
    """
    return re.split(r"\n(?:compute|bandwidth|few|sm_stream) = ", re.sub(r"\ncards = .*", "", block))[0]


def card_row(named: Sequence[str], factors: Mapping[str, float], rows: int, source: str) -> str:
    """A row of devices.toml without its head; first the lines that say of whom it is (`of_whom`).

    >>> card_row(['cards = "x"', 'gpu = "a"'], {"compute": 0.5}, 7, "b")
    '\\ngpu = "a"\\ncards = "x"\\ncompute = 0.5\\nrows = 7\\nsource = "b"'
    """
    named = sorted(named, key=lambda line: line.startswith("cards = "))
    values = [f"{k} = {v:.4g}" for k, v in factors.items()]
    return "\n".join(["", *named, *values, f"rows = {rows}", f'source = "{source}"'])


def at_an_end(params: Sequence[Param], constants: Mapping[str, float]) -> list[str]:
    """Constants that stand at a bound of their range, which no row has told.

    >>> at_an_end([Param("gap", 1.0, 0.1, 5.0), Param("step", 1.0, 0.1, 5.0)], {"gap": 5.0, "step": 1.0})
    ['gap']
    """
    return [p.name for p in params if p.name in constants and not p.low * 1.01 < constants[p.name] < p.high * 0.99]


READ = (card_file, rows_by_place, on_file, rows._rows, rows._packaged_row, engines._packaged, engines._loaded)
"""What remembers rows that a job writes: the next one may build on them."""


def main(argv: Sequence[str] | None = None) -> None:
    """Fit the jobs asked for; print errors and constants; with --write, put them where the package reads them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--only", nargs="*", default=list(JOBS))
    parser.add_argument("--quick", action="store_true", help="leave the errors out of sample out")
    parser.add_argument("--write", action="store_true", help="write engine rows and cards")
    parser.add_argument("--rows", type=Path, help="write every row's prediction in and out of sample")
    args = parser.parse_args(argv)
    requests = [r for path in args.data for r in read(path, DISTRUSTED) if r.task == "infer"]
    results: dict[str, Fitted] = {}
    asked = [name for name in JOBS if name in args.only and rows_of(JOBS[name], requests)]
    for name in sorted(asked, key=lambda name: JOBS[name].kin is None):  # GeForce's cards of others start from a family
        results[name] = found = run(JOBS[name], requests, not args.quick, taken(JOBS[name], results))
        print("\n".join(table(found, name)), flush=True)
        print("   ", "  ".join(f"{k}={v:.4g}" for k, v in found.constants.items()), flush=True)
        if ends := at_an_end(params_of(JOBS[name], families(found.requests)), found.constants):
            print("    at a bound:", ", ".join(ends), flush=True)
        if args.write:
            write_engines({name: found})
            write_cards(CALIBRATION / "devices.toml", {name: found})
            for kept in READ:
                kept.cache_clear()
    if args.rows:
        write_rows(args.rows, {name: results[name] for name in asked})


def write_rows(path: Path, results: Mapping[str, Fitted]) -> None:
    """Every row with its prediction by the shipped fit and by one that never saw its group."""
    lines = ["job,id,source,model,gpu,engine,metric,measured,inside,outside"]
    for name, f in results.items():
        for r, inside, outside in zip(f.requests, f.predicted, f.outside, strict=True):
            figures = f"{r.measured:.6g},{inside:.6g},{outside:.6g}"
            lines.append(f"{name},{r.id},{r.source},{r.group[0]},{r.group[1]},{r.engine},{r.metric},{figures}")
    write_text(path, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
