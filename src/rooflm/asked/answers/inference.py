"""The answer of `infer`: its figures, what they assume, and how they are told: whether it fits first, then what would,
then speeds with their error band, memory, cost and the parts of prefill and decode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rooflm.asked.answers import causes
from rooflm.asked.answers.outputs import INFER_OUTPUTS
from rooflm.asked.answers.remedies import Remedy, experts_apart, serving_remedies
from rooflm.asked.answers.result import Result
from rooflm.asked.answers.said import (
    BOUND,
    LIKELY,
    banded,
    dollars,
    headline,
    in_use,
    noted,
    remembered,
    short_verdict,
    sure,
    verdict,
)
from rooflm.asked.answers.use import RequestUse
from rooflm.estimate.capacity import running_limit
from rooflm.estimate.figures import figure
from rooflm.estimate.inference import infer_scenario
from rooflm.estimate.offloaded import host_watts
from rooflm.kernels.expert_kernels import expert_families
from rooflm.readers.prices import price_note
from rooflm.readers.schemes import parse_quant
from rooflm.scenario.scenario import Scenario
from rooflm.shown.answer import timespan
from rooflm.shown.blocks import BLANK, Block, Columns, Parts, Say, Table, called
from rooflm.shown.numbers import count, gib, percent, plural, text, value_text
from rooflm.units import Num, larger, smaller


@dataclass(frozen=True, eq=False, repr=False)
class InferenceEstimate(Result, RequestUse):
    """The answer: the figures, with what they assume. See docs/nomenclature.md."""

    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    OUTPUTS = INFER_OUTPUTS

    def lines(self) -> list[str]:
        """Model, device and split; the work; times and rate; memory and the verdict."""
        s, w = self.scenario, self.scenario.workload
        told = [
            headline(s, self.gpus),
            f"batch {value_text(w.batch)}, prompt {value_text(w.prompt)}"
            + f", output {value_text(w.output)}" * s.model.head,
            f"TTFT {timespan(self.ttft)}, TPOT {timespan(self.tpot)}, latency {timespan(self.latency)}, "
            f"{value_text(self.output_tokens_per_s)} tokens/s"
            if s.model.head
            else f"latency {timespan(self.latency)}, {value_text(self.requests_per_s)} embeddings/s",
            short_verdict(self.memory, self.fits, self.reason),
        ]
        return list(called(told, s.cluster.device.called))

    def blocks(self, verbose: bool = False) -> list[Block]:
        """The whole answer, verdict first; of arrays, in short."""
        told = blocks(self, verbose) if self.scenario.axes == 0 else super().blocks(verbose)
        return list(called(told, self.scenario.cluster.device.called))

    @figure
    def bound(self) -> dict[str, Num]:
        """What bounds the prefill and the decode step."""
        return causes.of_request(self)

    @cached_property
    def would_fit(self) -> tuple[Remedy, ...]:
        """Of a single point that does not fit in memory: changes with which it would."""
        if np.ndim(self.fits) or not self.memory.margin < 0:
            return ()
        return serving_remedies(self.scenario)

    @property
    def error_band(self) -> dict[str, dict[str, Any]]:
        """As of any answer; a request's ends are those of its first token and, of the rest, its own."""
        bands = super().error_band
        first, whole, roof = bands["ttft_s"], bands["latency_s"], self.OUTPUTS["latency_s"].roof(self)
        rest = 1.0 - smaller(self.ttft / self.latency, 1.0)
        whole |= {end: self.plainly(first[end] + rest * whole[end]) for end in ("low", "high")}
        whole["low"] = self.plainly(larger(whole["low"], self.latency * smaller(roof, 1.0)))
        return bands

    @cached_property
    def wider(self) -> InferenceEstimate | None:
        """The answer at 16 bits of a single point whose weights alone are narrower (not as the model was released),
        where that is faster and fits: narrow weights are widened again for every pass."""
        s, q = self.scenario, self.scenario.quant
        if s.axes or q.act_bits < 16 or q.weight_bits >= 16 or s.model.quant or s.model.dtype == "fp32":
            return None
        wide = infer(replace(s, quant=replace(parse_quant("w16a16kv16"), kv_bits=q.kv_bits)))
        return wide if wide.fits and wide.latency < FASTER * self.latency else None

    @cached_property
    def on_other_experts(self) -> tuple[str, InferenceEstimate] | None:
        """Of a single point whose engine picks one library of experts' kernels by itself (`experts_of`): another that
        it has for them, and the answer on those, where that is faster."""
        s, k = self.scenario, self.scenario.engine.kernels
        if s.axes or k.experts or not k.experts_of:
            return None
        others = expert_families(replace(s, engine=s.engine.but(experts_of=""))) - expert_families(s) - {"", "plain"}
        told = {name: infer(replace(s, engine=s.engine.but(experts=name))) for name in sorted(others)}
        best = min(told, key=lambda name: float(told[name].latency), default="")
        return (best, told[best]) if best and told[best].latency < FASTER * self.latency else None

    @cached_property
    def with_experts_apart(self) -> InferenceEstimate | None:
        """Of a single point of a mixture in a tensor group or stages: the answer of its experts over all ranks instead,
        where that makes more tokens a second by far."""
        other = None if self.scenario.axes else experts_apart(self.scenario)
        told = other and infer(other)
        return told if told and told.output_tokens_per_s > MORE * self.output_tokens_per_s else None


MORE = 1.5
"""Times as many tokens a second from which another split is told."""
FASTER = 0.97
"""Share of a request's time from which another scheme is called faster."""


def infer(
    s: Scenario, assumed: tuple[str, ...] = (), warnings: tuple[str, ...] = (),
    broken: Mapping[str, Num] | None = None,
) -> InferenceEstimate:  # fmt: skip
    """The answer of one scenario, or of every point of a grid (`infer_scenario`). broken: the rules that it breaks,
    where that is known already."""
    return InferenceEstimate.of(infer_scenario(s, broken), assumed, warnings)


def blocks(e: InferenceEstimate, verbose: bool = False) -> list[Block]:
    """The answer; of what does not fit, its speeds are only outlined unless verbose."""
    bands, head = e.error_band, e.scenario.model.head
    limit = float(running_limit(e.scenario))
    runs = f"; {e.scenario.engine.name} runs {count(limit)} at a time" if limit < float(e.max_batch) else ""
    fits = [*verdict(e, "batch", e.max_batch, runs), *_asking(e), *_on_host(e), *_widened(e), *_experts(e), *_apart(e)]
    out: list[Block] = [Say(headline(e.scenario, e.gpus), "title"), Say(_asked(e.scenario)), BLANK, *fits, BLANK]
    likely = LIKELY if any(b["rows"] for b in bands.values()) else ""
    speed = [("Speed" if e.fits else "Speed, if it did", "", likely), *(_spoken(e) if head else _embedded(e))]
    out += [Table(speed, "lrl", head=True, indent=0), BLANK]
    if e.fits or verbose:
        out += _detail(e)
    else:
        out.append(remembered(e.memory))
    return out + (sure(bands, {"ttft_s": "first token", "tpot_s": "output token", "latency_s": "request"})
                  if verbose else [])  # fmt: skip


def _asked(s: Scenario) -> str:
    """The work in words, and what goes on beside it.

    >>> from rooflm.asked.build_inference import build_inference
    >>> _asked(build_inference("llama-7b", gpu="h100", prompt=1024, cached=512, guesses=3, adapters=4).scenario)
    'batch 1, prompt 1024 (512 cached), output 128 tokens; 3 guesses a step; 4 adapters of rank 16'
    """
    w, guessed, lora, away = s.workload, s.speculation, s.adapters, s.offload
    prompt = f"prompt {count(w.prompt)}" + f" ({count(w.cached)} cached)" * bool(w.cached)
    lengths = f"{prompt}, output {plural(w.output, 'token')}" if s.model.head else f"{prompt} tokens"
    by = f" by {guessed.draft.name}" if guessed.draft else ""
    options = [
        (guessed.guesses, f"{count(guessed.guesses)} guess{'es' * (float(guessed.guesses) != 1)} a step{by}"),
        (lora.held, f"{plural(lora.held, 'adapter')} of rank {count(lora.rank)}"),
        (away.layers, f"{plural(away.layers, 'layer')} on the host"),
        (away.experts, f"experts of {plural(away.experts, 'layer')} on the host"),
    ]
    return "; ".join([f"batch {count(w.batch)}, {lengths}", *(price_note for many, price_note in options if many)])


def _asking(e: InferenceEstimate) -> list[Block]:
    """Where it fits only if the system is asked for more than it gives of itself."""
    device, used = e.scenario.cluster.device, float(e.memory.total)
    if not e.fits or not 0 < float(device.unasked) < used:
        return []
    return [Say(f"That is beyond the {gib(float(device.unasked))} that the system gives the GPU unasked: 'rooflm show "
                f"gpu {device.name}' says how to ask for more.")]  # fmt: skip


def _on_host(e: InferenceEstimate) -> list[Block]:
    """What the host's memory has to hold, where it holds any."""
    held = float(e.host_memory)
    if held and e.scenario.cluster.unified:
        return [Say(f"The CPU's layers take {gib(held)} of it: host and device share one memory.")]
    return [Say(f"The host holds {gib(held)} beside it.")] if held else []


def _widened(e: InferenceEstimate) -> list[Block]:
    """Where 16 bits are faster than narrow weights, how much."""
    if not e.fits or (wide := e.wider) is None:
        return []
    took, whole, first, each = (text(float(t), "s") for t in (e.latency, wide.latency, wide.ttft, wide.tpot))
    parts = f" (first token {first}, then {each} each)" if float(e.scenario.workload.output) > 1 else ""
    return [Say(f"With weights of 16 bits it would take {whole}{parts}, not {took}, in {in_use(wide.memory)}.")]


def _experts(e: InferenceEstimate) -> list[Block]:
    """Where other kernels of the engine's take its experts faster than those that it picks, how much."""
    if not e.fits or (told := e.on_other_experts) is None:
        return []
    library, other = told
    own, took, less = (*expert_families(e.scenario),), text(float(e.latency), "s"), text(float(other.latency), "s")
    return [Say(f"{e.scenario.engine.name} runs these experts on {' and '.join(sorted(own))} kernels unless told "
                f"otherwise; on {library} kernels, where it has them for this checkpoint, it would take {less}, not "
                f"{took}: --set engine.experts={library}.")]  # fmt: skip


def _apart(e: InferenceEstimate) -> list[Block]:
    """Where experts over all ranks make more of the same devices than a tensor group or stages do, how much."""
    if not e.fits or (other := e.with_experts_apart) is None:
        return []
    m, most, now = other.scenario.mapping, count(other.output_tokens_per_s), count(e.output_tokens_per_s)
    some = f", on {count(other.gpus)} of the GPUs," if other.gpus < e.gpus else ""
    return [Say(f"By dp {count(m.dp)} and ep {count(m.ep)}{some} it would make {most} tokens/s, not {now}: `rooflm "
                "search infer` tries every split.")]  # fmt: skip


def _spoken(e: InferenceEstimate) -> list[tuple[str, str, str]]:
    """Speed of a model that generates, with error bands."""
    bands = e.error_band
    return [
        ("  time to first token", text(float(e.ttft), "s"), banded(e.ttft, bands["ttft_s"])),
        ("  time per output token", text(float(e.tpot), "s"), banded(e.tpot, bands["tpot_s"])),
        ("    at the end", text(float(e.tpot_end), "s"), ""),
        ("  request latency", text(float(e.latency), "s"), banded(e.latency, bands["latency_s"])),
        ("  output tokens/s", count(e.output_tokens_per_s), ""),
        ("    per GPU", count(e.output_tokens_per_s_per_gpu), ""),
    ]


def _embedded(e: InferenceEstimate) -> list[tuple[str, str, str]]:
    """Speed of a model that embeds texts: one pass over a batch of them."""
    rate = float(e.requests_per_s)
    return [
        ("  time of the batch", text(float(e.ttft), "s"), banded(e.ttft, e.error_band["ttft_s"])),
        ("  embeddings/s", count(rate), ""),
        ("    per GPU", count(rate / float(e.gpus)), ""),
        ("  prompt tokens/s", count(rate * float(e.scenario.workload.prompt)), ""),
    ]


def _detail(e: InferenceEstimate) -> list[Block]:
    """Memory, cost, communication and parts."""
    head = e.scenario.model.head
    kind = "output" if head else "prompt"
    cost = [
        ("MFU (prefill)", percent(e.prefill_mfu)),
        *([("MBU (decode)", percent(e.decode_mbu))] if head else []),
        ("GPU busy", percent(e.busy)),
        ("power per GPU" + ", host's CPU" * bool(np.any(host_watts(e.scenario))), text(float(e.power), "W")),
        (f"energy per {kind} token", text(float(e.energy_per_token), "J")),
        (f"USD per 1M {kind} tokens", dollars(e.cost_per_million_tokens)),
    ]
    bounds = [(k, BOUND.get(str(v), str(v))) for k, v in e.bound.items()]
    sent = [(k.replace("decode", "decode step"), text(float(e.comm_bytes[k]), "B")) for k in e.bound]
    silent = not any(float(v) for v in e.comm_bytes.values())
    right = [Table(cost, "lr", "Efficiency and cost"), BLANK, Table(bounds, "ll", "Bound by")]
    right += [] if silent else [BLANK, Table(sent, "lr", "Bytes sent by one GPU")]
    parts = [Parts(f"Prefill, {text(float(e.ttft), 's')}", e.prefill_parts)]
    parts += [Parts(f"Decode step, {text(float(e.tpot), 's')}", e.decode_parts)] if head else []
    price = [BLANK, Say(price_note([e.scenario.cluster.device]), "faint", "price")]
    meant = noted(e.scenario.model, e.bound, e.prefill_parts, e.decode_parts)
    return [Columns([remembered(e.memory), right, *parts]), *price, *meant]
