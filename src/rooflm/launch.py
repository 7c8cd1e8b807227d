"""The command that starts an engine as a search's answer says.

Flags as the projects document them: vLLM (docs.vllm.ai, "Engine Arguments"), TensorRT-LLM (its page "trtllm-serve"),
 SGLang (docs.sglang.io, "Server Arguments"), Megatron-LM (megatron/training/arguments.py), torchtitan
(its job configuration).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflm.engine import Engine
from rooflm.quant import Quant


def serve_command(model: str, engine: Engine, quant: Quant, chosen: Mapping[str, Any], length: int) -> str:
    """The command of the engine's family, or an empty text for one that has none.

    chosen: tp, pp, dp, ep and batch. length: longest sequence (prompt and output).

    >>> from rooflm.quant import PRESETS
    >>> serve_command("m", Engine("vllm"), PRESETS["bf16"], {"tp": 8, "batch": 64}, 640)
    'vllm serve m --tensor-parallel-size 8 --max-num-seqs 64 --max-model-len 640'
    """
    make = {"vllm": _vllm, "trtllm": _trtllm, "sglang": _sglang}.get(engine.kernels)
    if make is None or engine.name == "ideal":
        return ""
    values = {k: int(chosen.get(k, 1)) for k in ("tp", "pp", "dp", "ep", "batch")}
    return " ".join(make(model, engine, quant, values, length))


def _budget(engine: Engine) -> int | None:
    """Most new tokens in a pass, where the engine has such a limit."""
    return int(engine.token_budget) if engine.token_budget != float("inf") else None


def _vllm(model: str, engine: Engine, quant: Quant, v: Mapping[str, int], length: int) -> list[str]:
    words = ["vllm serve", model]
    names = {"tp": "tensor", "pp": "pipeline", "dp": "data"}
    words += [f"--{name}-parallel-size {v[k]}" for k, name in names.items() if v[k] > 1]
    words += ["--enable-expert-parallel"] if v["ep"] > 1 else []
    words += [f"--max-num-seqs {-(-v['batch'] // v['dp'])}", f"--max-model-len {length}"]
    words += [f"--max-num-batched-tokens {_budget(engine)}"] if _budget(engine) else []
    words += [f"--gpu-memory-utilization {float(engine.memory_fraction):g}"] if engine.memory_fraction != 1 else []
    return words + _quantised(quant)


def _sglang(model: str, engine: Engine, quant: Quant, v: Mapping[str, int], length: int) -> list[str]:
    # with attention data parallelism SGLang counts the whole group as its tensor size
    shared = v["ep"] > 1 and v["dp"] > 1
    tp = v["tp"] * v["dp"] if shared else v["tp"]
    words = ["python -m sglang.launch_server --model-path", model]
    words += [
        f"--{name}-size {n}" for name, n in (("tp", tp), ("pp", v["pp"]), ("dp", v["dp"]), ("ep", v["ep"])) if n > 1
    ]
    words += ["--enable-dp-attention"] if shared else []
    words += [f"--max-running-requests {v['batch']}", f"--context-length {length}"]
    words += [f"--chunked-prefill-size {_budget(engine)}"] if _budget(engine) else []
    words += [f"--mem-fraction-static {float(engine.memory_fraction):g}"] if engine.memory_fraction != 1 else []
    return words + _quantised(quant)


def _quantised(quant: Quant) -> list[str]:
    """vLLM's and SGLang's words for weights and cache; 4-bit weights come from a checkpoint that says so itself."""
    words = []
    if quant.weight_bits == 8 and quant.act_bits == 8 and quant.kind != "int" and not quant.block:
        words.append("--quantization fp8")
    if quant.kv_bits == 8:
        words.append("--kv-cache-dtype fp8_e4m3")
    return words


def _trtllm(model: str, engine: Engine, quant: Quant, v: Mapping[str, int], length: int) -> list[str]:
    # data parallelism is a server each; inside one, attention data parallelism is an option of its YAML file
    words = ["trtllm-serve", model, "--backend pytorch"]
    words += [f"--{k}_size {v[k]}" for k in ("tp", "pp", "ep") if v[k] > 1]
    words += [f"--max_batch_size {-(-v['batch'] // v['dp'])}", f"--max_seq_len {length}"]
    words += [f"--max_num_tokens {_budget(engine)}"] if _budget(engine) else []
    return words


def train_command(chosen: Mapping[str, Any], fixed: Mapping[str, Any]) -> str:
    """Megatron-LM's arguments of a training answer.

    >>> train_command({"tp": 8, "pp": 4, "micro_batch": 1, "recompute": "selective"}, {"batch": 64, "seq": 2048})[:60]
    '--tensor-model-parallel-size 8 --pipeline-model-parallel-siz'
    """
    v = {**fixed, **chosen}
    words = []
    sizes = {"tp": "tensor-model", "pp": "pipeline-model", "cp": "context", "ep": "expert-model"}
    words += [f"--{name}-parallel-size {int(v[k])}" for k, name in sizes.items() if int(v.get(k, 1)) > 1]
    if int(v.get("tp", 1)) > 1:
        words.append("--sequence-parallel")
    if int(v.get("vp", 1)) > 1:
        words.append(f"--num-virtual-stages-per-pipeline-rank {int(v['vp'])}")
    names = {"micro_batch": "micro-batch-size", "batch": "global-batch-size", "seq": "seq-length"}
    words += [f"--{name} {int(v[k])}" for k, name in names.items() if v.get(k) is not None]
    policy = v.get("recompute")
    if policy == "full":
        words.append("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    elif policy == "selective":
        words.append("--recompute-granularity selective")
    if int(v.get("zero") or 0) >= 1:
        words.append("--use-distributed-optimizer")
    return " ".join(words)
