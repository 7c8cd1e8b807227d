"""The commands that train adapters: TRL's, Unsloth's and Axolotl's, with the rank, base and batches of an answer.

TRL, read as its documentation "Command Line Interfaces" and the fields of SFTConfig and ModelConfig (0.23); Unsloth as
unsloth-cli.py (2025.9); Axolotl as its configuration reference (0.12).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MODULES = {
    "qkv": ("q_proj", "k_proj", "v_proj"), "q": ("q_proj",), "kv": ("k_proj", "v_proj"), "k": ("k_proj",),
    "v": ("v_proj",), "out": ("o_proj",),
    "gate_up": ("gate_proj", "up_proj"), "gate": ("gate_proj",), "up": ("up_proj",), "down": ("down_proj",),
    "experts": (), "experts_shared": (),
}  # fmt: skip
"""Products -> the modules that Hugging Face's models call them; routed experts are parameters (EXPERTS)."""
EXPERTS = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
OPTIMIZERS = {"adam": "adamw_torch", "adam8bit": "adamw_8bit", "adafactor": "adafactor", "sgd": "sgd"}
SHARDING = {1: "zero1", 2: "zero2", 3: "fsdp2"}


def modules(given: Any) -> list[str]:
    """Modules with adapters, none for all products.

    >>> modules("qkv,out"), modules(None)
    (['q_proj', 'k_proj', 'v_proj', 'o_proj'], [])
    """
    return list(dict.fromkeys(own for name in named(given) for own in MODULES[name]))


def named(given: Any) -> list[str]:
    """Products with adapters by their names."""
    return [name.strip() for name in (given.split(",") if isinstance(given, str) else given or ())]


def steps(n: Mapping[str, int], v: Mapping[str, Any]) -> int:
    """Micro-batches that a step adds up on a GPU."""
    return max(int(v.get("batch") or n["micro_batch"]) // (n["micro_batch"] * n["dp"]), 1)


def trl(n: Mapping[str, int], v: Mapping[str, Any]) -> list[str]:
    """`trl sft`; data parallel by Accelerate's ready-made configurations."""
    gpus, zero, rank = int(v.get("gpus") or 1), int(v.get("zero") or 0), int(v.get("lora_rank") or 0)
    words = ["trl sft", f"--model_name_or_path {v['home']}", "--dataset_name DATA", "--output_dir out"]
    if gpus > 1:
        words.append(f"--accelerate_config {SHARDING.get(zero, 'multi_gpu')} --num_processes {gpus}")
    if rank:
        own, given = modules(v.get("lora_modules")), named(v.get("lora_modules"))
        words.append(f"--use_peft --lora_r {rank}")
        words += [f"--lora_target_modules {' '.join(own) or 'all-linear'}"] if own or not given else []
        words += [f"--lora_target_parameters {' '.join(EXPERTS)}"] if "experts" in given else []
    words += _bits(v)
    words.append(f"--per_device_train_batch_size {n['micro_batch']} --gradient_accumulation_steps {steps(n, v)}")
    words += [f"--max_length {int(v['seq'])}"] if v.get("seq") else []
    words.append(f"--gradient_checkpointing {'true' if v.get('recompute') == 'full' else 'false'}")
    return [*words, "--bf16 true", f"--optim {OPTIMIZERS.get(str(v.get('optimizer') or 'adam'), 'adamw_torch')}"]


def _bits(v: Mapping[str, Any], eight: str = "--load_in_8bit") -> list[str]:
    bits = int(v.get("base_bits") or 16)
    return ["--load_in_4bit"] if bits <= 4 else [eight] if bits <= 8 else []


def unsloth(n: Mapping[str, int], v: Mapping[str, Any]) -> list[str]:
    """unsloth-cli.py, on one GPU or several by torchrun."""
    gpus = int(v.get("gpus") or 1)
    start = f"torchrun --nproc-per-node {gpus}" if gpus > 1 else "python"
    words = [f"{start} unsloth-cli.py", f"--model_name {v['home']}", "--dataset DATA"]
    words += [f"--r {int(v['lora_rank'])}"] if v.get("lora_rank") else []
    words += _bits(v, "")
    words += [f"--max_seq_length {int(v['seq'])}"] if v.get("seq") else []
    words.append(f"--per_device_train_batch_size {n['micro_batch']} --gradient_accumulation_steps {steps(n, v)}")
    words += ["--use_gradient_checkpointing unsloth"] if v.get("recompute") == "full" else []
    return [w for w in words if w]


def axolotl(n: Mapping[str, int], v: Mapping[str, Any]) -> list[str]:
    """A configuration and `axolotl train`."""
    rank, bits = int(v.get("lora_rank") or 0), int(v.get("base_bits") or 16)
    own, given = modules(v.get("lora_modules")), named(v.get("lora_modules"))
    lines = [f"base_model: {v['home']}", "datasets: [{path: DATA, type: alpaca}]", "bf16: true", "output_dir: out"]
    if rank:
        target = f"lora_target_modules: [{', '.join(own)}]" if own else "lora_target_linear: true"
        lines += [f"adapter: {'qlora' if bits <= 4 else 'lora'}", f"lora_r: {rank}", f"lora_alpha: {rank}"]
        lines += [target] if own or not given else []
        lines += [f"lora_target_parameters: [{', '.join(EXPERTS)}]"] if "experts" in given else []
        lines += ["load_in_4bit: true"] if bits <= 4 else ["load_in_8bit: true"] if bits <= 8 else []
    lines += [f"micro_batch_size: {n['micro_batch']}", f"gradient_accumulation_steps: {steps(n, v)}"]
    lines += [f"sequence_len: {int(v['seq'])}"] if v.get("seq") else []
    lines += [f"gradient_checkpointing: {'true' if v.get('recompute') == 'full' else 'false'}"]
    degrees = {"tp": "tensor_parallel_size", "cp": "context_parallel_size"}
    lines += [f"{name}: {n[k]}" for k, name in degrees.items() if n[k] > 1]
    lines += [f"dp_shard_size: {n['dp']}", "fsdp_version: 2"] if int(v.get("zero") or 0) == 3 and n["dp"] > 1 else []
    lines.append(f"optimizer: {OPTIMIZERS.get(str(v.get('optimizer') or 'adam'), 'adamw_torch')}")
    text = "".join(f"{line}\\n" for line in lines)
    return [f"printf '{text}' > axolotl.yaml &&", "axolotl train axolotl.yaml"]
