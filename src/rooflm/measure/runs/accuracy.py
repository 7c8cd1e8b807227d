"""How right the outputs are: perplexity and next-token top-1 on a text, and agreement with the plain fp32 model."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rooflm.errors import RooflmError
from rooflm.measure.case import Case
from rooflm.measure.results import Row, constant_stat
from rooflm.measure.runs import load
from rooflm.measure.runs.infer import Bench

GREEDY = 32
"""Tokens generated to compare greedy outputs."""


def text_of(case: Case) -> str:
    """The text: a file, or `pydoc_data.topics` of the standard library."""
    if case.text:
        try:
            return Path(case.text).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise RooflmError(f"cannot read text {case.text!r}: {reason}") from error
    spec = importlib.util.find_spec("pydoc_data.topics")
    if spec is None or spec.origin is None:
        raise RooflmError("this Python has no pydoc_data.topics: give a text file with --text")
    from pydoc_data import topics

    return "\n\n".join(str(topics.topics[k]) for k in sorted(topics.topics))


def windows(case: Case, vocab: int, device: torch.device) -> tuple[torch.Tensor, bool]:
    """Tokens of the text in equal rows of at most `context`, and True; random ones and False without a tokenizer."""
    tokenizer = load.tokenizer_of(case)
    if tokenizer is None:
        rows = max(case.tokens // case.context, 1)
        return load.tokens(case, vocab, rows, case.context, device), False
    ids = tokenizer(text_of(case), add_special_tokens=False, return_tensors="pt").input_ids[0, : case.tokens]
    if ids.numel() < 2:
        raise RooflmError("the text has fewer than two tokens")
    length = ids.numel() // math.ceil(ids.numel() / case.context)
    return ids[: ids.numel() // length * length].reshape(-1, length).to(device), True


class Score:
    """Negative log likelihood of next tokens, and how many of them the largest logit names, summed over windows."""

    def __init__(self) -> None:
        self.nll, self.hits, self.count = 0.0, 0, 0

    def add(self, logits: torch.Tensor, ids: torch.Tensor) -> None:
        """One window."""
        flat, goal = logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten()
        self.nll += float(torch.nn.functional.cross_entropy(flat, goal, reduction="sum"))
        self.hits += int((flat.argmax(-1) == goal).sum())
        self.count += goal.numel()

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log likelihood."""
        return math.exp(self.nll / self.count)

    @property
    def top1(self) -> float:
        """Share of next tokens that the largest logit names."""
        return self.hits / self.count


def greedy(bench: Bench, start: torch.Tensor) -> torch.Tensor:
    """Greedy continuation of one prompt."""
    cache, ids, made = bench.runner.cache(), start, []
    for _ in range(GREEDY):
        ids = bench.runner.next_ids(bench.runner.forward(ids, cache), 1, bench.device)
        made.append(ids)
    return torch.cat(made, dim=1)


@torch.inference_mode()
def run(case: Case, rank: int) -> list[Row]:
    """Score the case, and compare it with the same model in fp32, one process, eager attention (unless it is that)."""
    if case.text:
        text_of(case)  # a text that cannot be read is told before the model is loaded
    case_bench = replace(case, batch=case.dp, prompt=2)
    plain = replace(case_bench, dtype="fp32", quant="none", compiled=False, graphs=False, tp=1, pp=1, dp=1, batch=1)
    plain = replace(plain, attention="eager")
    last = rank == case.world - 1
    compared = replace(case_bench, attention="eager") != plain
    with load.read_once(case):
        bench = Bench(case_bench, rank)
        reference: Any = Bench(plain, rank) if last and compared else None
        ids, real = windows(case, int(bench.runner.model.config.vocab_size), bench.device)
    ours, theirs = Score(), Score()
    same, worst = 0, 0.0
    for window in ids.split(1):
        logits = bench.runner.forward(window, bench.runner.cache(), keep=0)
        if not last or logits is None:
            continue
        ours.add(logits, window)
        if reference is not None:
            base = reference.runner.forward(window, reference.runner.cache(), keep=0)
            theirs.add(base, window)
            same += int((logits.argmax(-1) == base.argmax(-1)).sum())
            worst = max(worst, float((logits.float() - base.float()).abs().max()))
    start = ids[:1, : min(64, ids.shape[1])]
    made = greedy(bench, start) if compared else None
    if not last:
        return []
    values = {"perplexity": ours.perplexity, "top1": ours.top1} if real else {}
    if reference is not None and made is not None:
        if real:
            values |= {"baseline_perplexity": theirs.perplexity, "baseline_top1": theirs.top1}
        values |= {"top1_agreement": same / ids.numel(), "max_logit_error": worst,
                   "greedy_match": float((made == greedy(reference, start)).float().mean())}  # fmt: skip
    shape = bench.shape.text() if bench.shape else ""
    return [Row(case, k, "1", constant_stat(v), shape) for k, v in values.items()]
