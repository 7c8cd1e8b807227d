"""What every worker needs, imported once by the server that forks them, so that a fresh process costs little.

A worker then runs a toy model before it looks at its memory: what libraries allocate on first use is no part of a case.
"""

from __future__ import annotations

from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig  # noqa: F401
from transformers.models.llama import modeling_llama  # noqa: F401

from rooflm.measure.runs import accuracy, infer, micro, train, worker  # noqa: F401
