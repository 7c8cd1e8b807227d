"""What every worker needs, imported once by the server that forks them, so that a fresh process costs little.

A worker then runs a toy model before it looks at its memory: what libraries allocate on first use is no part of a case.
What was imported lives as long as the worker, so its garbage collections leave it out (0.2 s each otherwise).
"""

from __future__ import annotations

import gc

from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig  # noqa: F401
from transformers.models.llama import modeling_llama  # noqa: F401

from rooflm.measure.runs import accuracy, infer, micro, train, worker  # noqa: F401

gc.freeze()
