"""How right the outputs are: perplexity and next-token top-1 on a text, and agreement with the plain fp32 model."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rooflm.errors import RooflmError
from rooflm.measure import load
from rooflm.measure.case import Case
from rooflm.measure.infer import Bench
from rooflm.measure.results import Row, one

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


def score(logits: torch.Tensor, ids: torch.Tensor) -> tuple[float, int]:
    """Summed negative log likelihood of the next tokens, and how many the largest logit names."""
    flat, goal = logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten()
    nll = torch.nn.functional.cross_entropy(flat, goal, reduction="sum")
    return float(nll), int((flat.argmax(-1) == goal).sum())


def greedy(bench: Bench, start: torch.Tensor) -> torch.Tensor:
    """Greedy continuation of one prompt."""
    cache, ids, made = bench.runner.cache(), start, []
    for _ in range(GREEDY):
        ids = bench.runner.next_ids(bench.runner.forward(ids, cache), 1, bench.device)
        made.append(ids)
    return torch.cat(made, dim=1)


@torch.inference_mode()
def run(case: Case, rank: int) -> list[Row]:
    """Score the case, and compare it with the same model in fp32, one process, eager attention."""
    case_bench = replace(case, batch=case.dp, prompt=2)
    bench = Bench(case_bench, rank)
    device = bench.device
    plain = replace(
        case_bench, dtype="fp32", quant="none", attention="eager", compiled=False, tp=1, pp=1, dp=1, batch=1
    )
    last = rank == case.world - 1
    reference: Any = Bench(plain, rank) if last else None
    ids, real = windows(case, load_vocab(bench), device)
    totals = {"nll": 0.0, "base_nll": 0.0}
    right = base_right = same = count = 0
    worst = 0.0
    for window in ids.split(1):
        logits = bench.runner.forward(window, bench.runner.cache(), keep=0)
        if not last or logits is None:
            continue
        base = reference.runner.forward(window, reference.runner.cache(), keep=0)
        nll, hits = score(logits, window)
        base_nll, base_hits = score(base, window)
        totals["nll"] += nll
        totals["base_nll"] += base_nll
        right, base_right = right + hits, base_right + base_hits
        same += int((logits.argmax(-1) == base.argmax(-1)).sum())
        worst = max(worst, float((logits.float() - base.float()).abs().max()))
        count += window.numel()
    start = ids[:1, : min(64, ids.shape[1])]
    made = greedy(bench, start)
    if not last:
        return []
    match = float((made == greedy(reference, start)).float().mean())
    shape = bench.shape.text() if bench.shape else ""
    scored = ids.numel() - ids.shape[0]
    values = {
        "perplexity": math.exp(totals["nll"] / scored), "baseline_perplexity": math.exp(totals["base_nll"] / scored),
        "top1": right / scored, "baseline_top1": base_right / scored, "top1_agreement": same / count,
        "greedy_match": match, "max_logit_error": worst,
    }  # fmt: skip
    if not real:
        values = {k: v for k, v in values.items() if k in ("top1_agreement", "greedy_match", "max_logit_error")}
    return [Row(case, k, "1", one(v), shape) for k, v in values.items()]


def load_vocab(bench: Bench) -> int:
    """The size of the vocabulary."""
    return int(bench.runner.model.config.vocab_size)
