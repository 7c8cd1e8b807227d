"""Fine-tuning runs: adapters, quantised bases and packed examples, as the scripts of their sources have them."""

from __future__ import annotations

import re
from typing import Any

from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model
from rooflm_fit.convert.cells import Row, shipped, text

NF4 = 4.5 / (1 + 0.127 / 4)
"""Bits of a weight of bitsandbytes' nf4 without double quantisation, as ours count them (4 and 0.127 for the scales):
4, and 32 for the scale of 64. Source: Dettmers et al. 2023, "QLoRA", arXiv 2305.14314, section 3."""
SQUAD = 185.0
"""Tokens of an example of SQuAD: 117 words of a paragraph, 10 of a question, 3 of an answer (Rajpurkar et al. 2016,
arXiv 1606.05250), 1.35 tokens a word, and the template around them; inferred."""
SPREAD = 1.2
"""Mean square of these lengths over the square of their mean; inferred."""
SMALL_VOCABULARY = 40000
"""Below it a vocabulary is Llama's (32,000), which takes more tokens of a text than GPT-2's kin (50,257 and more)."""


def adapters_of(row: Row, source: str) -> dict[str, Any]:
    """lora_rank, lora_modules and base_bits of fine-tuning through adapters; {} for a full run.

    >>> adapters_of({"note": "LoRA Performance", "precision": "bnb.nf4"}, "MBR")
    {'lora_rank': 16, 'lora_modules': 'qkv', 'base_bits': 4}
    """
    if "LoRA" not in text(row, "note") and "LoRA" not in text(row, "model"):
        return {}
    narrow = text(row, "precision").lower().startswith("bnb.nf4")
    return shipped("sources")["adapters"].get(source, {"lora_rank": 32}) | ({"base_bits": 4} if narrow else {})


def tuned(row: Row, source: str) -> dict[str, Any]:
    """{path: value} of a fine-tuning run: packed examples of SQuAD, scales of its base.

    >>> tuned({"note": "LoRA FINE-TUNING on packed SQuAD"}, "NEMO")["training.packed_mean"], tuned({}, "NEMO")
    (185.0, {})
    """
    sets: dict[str, Any] = {}
    note = text(row, "note")
    if "packed SQuAD" in note or (source == "MBR" and re.search(r"\b(SFT|LoRA) Performance", note)):
        # Megatron-Bridge, scripts/performance, llama3_llm_finetune.py: packed_sequence_specs of the same examples
        sets |= {"training.packed_mean": SQUAD, "training.packed_square": SPREAD * SQUAD**2}
    if text(row, "precision").lower() == "bnb.nf4":
        sets["training.base_bits"] = NF4
    return sets


ALLOCATED = {"context": 0, "fragmentation": 1, "alone": 1}
"""litgpt prints what the allocator handed out."""
CHUNKED = {"logit_bytes": 4, "adapter_in": 5}
"""Its adapters, 16 bits throughout, with a loss over chunks of logits (finetune/lora.py of October 2023)."""


def litgpt(cells: dict[str, Any]) -> dict[str, Any]:
    """Cells of a fine-tuning run of litgpt (finetune/lora.py): eager PyTorch, the memory that its allocator handed out.

    On several GPUs every block is recomputed, and FSDP holds frozen and trained weights of a block in one flat tensor,
    whose gradient is whole (PyTorch, FullyShardedDataParallel, use_orig_params) and unsharded while steps accumulate
    (no_backward_sync). On one, adapters as PEFT's, without fp32 copies; over a base of 4 bits a product keeps its input
    (bitsandbytes until pull request 1270 of July 2024, MatMul4Bit: ctx.tensors = (A, B)), beside what norms and
    activations keep (copied_inputs; that it is a copy is INFERRED, of four rows).

    >>> litgpt({"model": "llama-2-7b", "gpus": 4})["recompute"], litgpt({"model": "llama-2-7b"})["engine"]
    ('full', 'peft')
    """
    if (cells.get("gpus") or 1) > 1:
        try:
            held = 2.0 * float(load_model(str(cells.get("model") or "")).parameters)
        except RooflmError:  # a model that no catalogue holds: its sizes are not known here
            held = 0.0
        shown = {"fused": False} | ALLOCATED | {"workspace": held}
        return {"sets": {f"engine.{k}": v for k, v in shown.items()}, "recompute": "full"}
    room: dict[str, Any] = ALLOCATED | {"workspace": 0} | CHUNKED
    room |= {"narrow_residual": 2, "copied_inputs": True} if cells.get("base_bits") else {}
    sets = {"training.master": False} | {f"engine.{k}": v for k, v in room.items()}
    return {"sets": sets, "engine": "peft", "optimizer": "adam-bf16"}


def longest(note: str, model: str) -> float | None:
    """Tokens of the longest sample, which a run meets first: as many as its note's most where the tokeniser has a small
    vocabulary (Llama's, 32,000), as its least with GPT-2's kin.

    >>> [longest("longest 1044 to 1304 tokens", name) for name in ("llama-2-7b", "phi-1.5")]
    [1304.0, 1044.0]
    """
    found = re.search(r"longest (\d+) to (\d+) tokens", note)
    try:
        small = load_model(model).vocab < SMALL_VOCABULARY
    except RooflmError:
        small = True
    return float(found[2] if small else found[1]) if found else None
