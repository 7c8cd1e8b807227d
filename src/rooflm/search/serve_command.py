"""The command that starts a serving engine as a search's answer says (of training: `launch_training`).

Flags as the projects document them: vLLM (docs.vllm.ai, "Engine Arguments"), TensorRT-LLM (its page "trtllm-serve"),
SGLang (docs.sglang.io, "Server Arguments").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.quant import Quant


def serve_command(model: str, engine: Engine, quant: Quant, chosen: Mapping[str, Any], length: int) -> str:
    """The command of the engine's family, or an empty text for one that has none.

    chosen: tp, pp, dp, ep, batch (0: the engine's own limit), and a token_budget where one was chosen (infinity:
    prompts go in whole). length: longest sequence (prompt and output).

    >>> from rooflm.catalogue.quant import PRESETS
    >>> serve_command("m", Engine("vllm"), PRESETS["bf16"], {"tp": 8, "batch": 64}, 640)
    'vllm serve m --tensor-parallel-size 8 --max-num-seqs 64 --max-model-len 640'
    """
    make = {"vllm": _vllm, "trtllm": _trtllm, "sglang": _sglang}.get(engine.kernels.whose)
    if make is None or engine.name == "ideal":
        return ""
    values = {k: int(chosen.get(k, 1)) for k in ("tp", "pp", "dp", "ep", "batch")}
    values["budget"], values["whole"] = token_budget(engine, chosen, length)
    return " ".join(make(model, engine, quant, values, length))


def token_budget(engine: Engine, chosen: Mapping[str, Any], length: int) -> tuple[int, bool]:
    """New tokens a pass (0: nothing to say), and whether prompts were chosen to go in whole.

    >>> token_budget(Engine("vllm").but(token_budget=8192), {}, 640), token_budget(Engine("vllm"), {}, 640)
    ((8192, False), (0, False))
    >>> token_budget(Engine("vllm").but(token_budget=8192), {"token_budget": math.inf}, 9000)
    (9000, True)
    """
    own = float(engine.room.token_budget)
    asked = float(chosen.get("token_budget", own))
    if math.isfinite(asked):
        return int(asked), False
    return (int(max(own if math.isfinite(own) else 0, length)), True) if "token_budget" in chosen else (0, False)


def _vllm(model: str, engine: Engine, quant: Quant, v: Mapping[str, int], length: int) -> list[str]:
    words = ["vllm serve", model]
    names = {"tp": "tensor", "pp": "pipeline", "dp": "data"}
    words += [f"--{name}-parallel-size {v[k]}" for k, name in names.items() if v[k] > 1]
    words += ["--enable-expert-parallel"] if v["ep"] > 1 else []
    words += [f"--max-num-seqs {-(-v['batch'] // v['dp'])}"] if v["batch"] else []
    words += [f"--max-model-len {length}"]
    words += ["--no-enable-chunked-prefill"] if v["whole"] else []
    words += [f"--max-num-batched-tokens {v['budget']}"] if v["budget"] else []
    words += (
        [f"--gpu-memory-utilization {float(engine.room.memory_fraction):g}"] if engine.room.memory_fraction != 1 else []
    )
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
    words += [f"--max-running-requests {v['batch']}"] if v["batch"] else []
    words += [f"--context-length {length}"]
    chunk = -1 if v["whole"] else v["budget"] * (v["dp"] if shared else 1)  # it shares the size out over the ranks
    words += [f"--chunked-prefill-size {chunk}"] if chunk else []
    words += (
        [f"--mem-fraction-static {float(engine.room.memory_fraction):g}"] if engine.room.memory_fraction != 1 else []
    )
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
    # data parallelism is a server each, but for attention: every rank of the group has its own sequences then
    shared = v["ep"] > 1 and v["dp"] > 1 and v["tp"] == 1
    sizes = {"tp": v["dp"] if shared else v["tp"], "pp": v["pp"], "ep": v["ep"]}
    free = f"{float(engine.room.free_fraction):g}"
    file = ["enable_attention_dp: true"] if shared else []
    if quant.kv_bits == 8:
        file += ["kv_cache_config:", "  dtype: fp8", f"  free_gpu_memory_fraction: {free}"]
    words = ["printf '" + "".join(f"{line}\\n" for line in file) + "' > extra.yaml &&"] if file else []
    words += ["trtllm-serve", model, "--backend pytorch", *(f"--{k}_size {n}" for k, n in sizes.items() if n > 1)]
    words += [f"--max_batch_size {-(-v['batch'] // v['dp'])}"] if v["batch"] else []
    words += [f"--max_seq_len {length}"]
    words += [f"--max_num_tokens {v['budget']}"] if v["budget"] else []
    words += ["--enable_chunked_prefill"] if 0 < v["budget"] < length else []
    words += (
        [f"--kv_cache_free_gpu_memory_fraction {free}"] if engine.room.free_fraction != 1 and quant.kv_bits != 8 else []
    )
    return words + (["--extra_llm_api_options extra.yaml"] if file else [])
