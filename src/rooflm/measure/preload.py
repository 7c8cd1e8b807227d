"""What every worker needs, imported once by the server that forks them, so that a fresh process costs little.

A worker then runs a toy model before it looks at its memory: what libraries allocate on first use is no part of a case.
"""

from __future__ import annotations

import torch
import torch.distributed
import torch.utils.flop_counter
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig
from transformers.models.llama import modeling_llama  # noqa: F401

from rooflm.measure import accuracy, infer, micro, train, worker  # noqa: F401
from rooflm.measure.case import Case


@torch.inference_mode()
def toy(case: Case) -> None:
    """Two passes of a two-layer model of a few thousand parameters, in the case's data type."""
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1,
    )  # fmt: skip
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[case.dtype]
    for kind in ("eager", "sdpa"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=kind)
        cache = DynamicCache()
        for length in (16, 1):
            model(torch.zeros(1, length, dtype=torch.long), past_key_values=cache, use_cache=True, logits_to_keep=1)
