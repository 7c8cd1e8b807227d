"""A Hugging Face causal LM for a case: real weights (folder, GGUF) or random ones (config.json, catalogue name)."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rooflm.errors import RooflmError
from rooflm.measure.case import Case, source
from rooflm.measure.shape import Shape, of_model

TORCH = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def device_of(case: Case, local: int = 0) -> torch.device:
    """The device that a rank runs on: a GPU each where there are any, else the CPU."""
    wanted = case.device if case.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    if wanted == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RooflmError("device is 'cuda', but PyTorch sees no CUDA GPU: use --device cpu")
    if local >= torch.cuda.device_count():
        raise RooflmError(f"the case needs {local + 1} GPUs, but there are {torch.cuda.device_count()}")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def sync(device: torch.device) -> None:
    """Wait for the device, so that the clock is read when the work is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def llama_config(shape: Shape) -> Any:
    """The Llama configuration of a shape."""
    from transformers import LlamaConfig

    if shape.qk_norm:
        raise RooflmError("norms on queries and keys are no part of Llama: give the model's own config.json")
    return LlamaConfig(
        vocab_size=shape.vocab, hidden_size=shape.hidden, intermediate_size=shape.width, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim,
        attention_bias=bool(shape.qkv_bias), tie_word_embeddings=bool(shape.tied), max_position_embeddings=131072,
    )  # fmt: skip


def config_of(case: Case) -> Any:
    """The configuration of the case's model before any pruning, for random weights."""
    kind, path = source(case.model)
    if kind == "config":
        from transformers import AutoConfig

        if path is None or not isinstance(json.loads(path.read_text(encoding="utf-8")), dict):
            raise RooflmError(f"{case.model!r} holds no JSON object")
        return AutoConfig.from_pretrained(path)
    from rooflm.readers.checkpoints.load import load_model

    return llama_config(of_model(load_model(case.model)))


def pruned(config: Any, case: Case) -> Any:
    """The configuration with `layers` kept and heads and feed-forward width pruned."""
    if case.layers:
        if case.layers > config.num_hidden_layers:
            raise RooflmError(f"layers is {case.layers}, but {case.model} has {config.num_hidden_layers}")
        config.num_hidden_layers = case.layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[: case.layers]
    if case.width_prune:
        keep = 1 - case.width_prune
        config.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        group = config.num_attention_heads // config.num_key_value_heads
        config.num_key_value_heads = max(round(config.num_key_value_heads * keep), 1)
        config.num_attention_heads = config.num_key_value_heads * group
        config.intermediate_size = max(round(config.intermediate_size * keep), 1)
    return config


def as_array(reader: Any, name: str, value: Any) -> None:
    """Set an attribute; a `memmap` as the plain array that it is."""
    object.__setattr__(reader, name, np.asarray(value) if isinstance(value, np.memmap) else value)


@contextmanager
def read_once(case: Case) -> Iterator[None]:
    """transformers parses a .gguf file anew for the configuration, the weights and the tokenizer, and makes the table
    of its tensors' names anew for every module: within this, each once. Its parser looks at the file a number at a
    time, which costs several times more in NumPy's `memmap` than in the plain array that it is."""
    if source(case.model)[0] != "gguf":
        yield
        return
    import gguf

    gguf.gguf_reader.GGUFReader.__setattr__ = as_array
    theirs = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    for name, function in theirs.items():
        setattr(gguf, name, functools.cache(function))
    try:
        yield
    finally:
        for name, function in theirs.items():
            setattr(gguf, name, function)


def load(case: Case, device: torch.device) -> Any:
    """The model on the device, in evaluation mode, with the asked attention."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    from transformers import AutoModelForCausalLM, modeling_gguf_pytorch_utils
    from transformers.utils import logging as theirs

    theirs.disable_progress_bar()
    # the reader of .gguf files asks nobody: its bar writes to standard error and leaves a semaphore behind
    modeling_gguf_pytorch_utils.tqdm = lambda tensors, **_: tensors

    dtype = TORCH[case.dtype]
    kind, path = source(case.model)
    if kind in ("gguf", "folder") and path is not None:
        if case.width_prune:
            raise RooflmError("width_prune needs random weights: give a config.json or a catalogue name")
        where: dict[str, Any] = {"gguf_file": path.name} if kind == "gguf" else {}
        folder = path.parent if kind == "gguf" else path
        with read_once(case):
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, attn_implementation=case.attention, local_files_only=True, **where
            )
        if case.layers:
            model.model.layers = model.model.layers[: case.layers]
            model.config.num_hidden_layers = case.layers
    else:
        config = pruned(config_of(case), case)
        torch.manual_seed(case.seed)
        with device:
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=case.attention)
    return model.to(device).eval()


def shape_of(model: Any) -> Shape | None:
    """The Shape of a loaded Llama-like model; None for any other."""
    config = model.config
    try:
        layer = model.model.layers[0]
        attention, mlp = layer.self_attn, layer.mlp
        dim = attention.head_dim
        heads, kv = attention.q_proj.out_features // dim, attention.k_proj.out_features // dim
        return Shape(
            config.hidden_size, config.vocab_size, len(model.model.layers), heads, kv, dim, mlp.gate_proj.out_features,
            int(bool(config.tie_word_embeddings)), int(attention.q_proj.bias is not None),
            int(hasattr(attention, "q_norm")),
        )  # fmt: skip
    except AttributeError:
        return None


def tokenizer_of(case: Case) -> Any:
    """The tokenizer of real weights; None for random ones."""
    from transformers import AutoTokenizer

    kind, path = source(case.model)
    if path is None or kind not in ("gguf", "folder"):
        return None
    if kind == "gguf":
        return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    return AutoTokenizer.from_pretrained(path, local_files_only=True)


def tokens(case: Case, vocab: int, rows: int, length: int, device: torch.device) -> torch.Tensor:
    """Random token ids, alike on every rank."""
    made = torch.Generator().manual_seed(case.seed + 1)
    return torch.randint(0, vocab, (rows, length), generator=made).to(device)


@torch.inference_mode()
def toy(case: Case) -> None:
    """Run two passes of a two-layer model with a few thousand parameters, in the case's data type."""
    from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig

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
