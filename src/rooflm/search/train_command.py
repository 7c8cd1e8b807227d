"""The command that runs a training answer: Megatron-LM's arguments, or torchtitan's.

Megatron-LM, read as megatron/training/arguments.py (commit 000c4ac2) and, for what is newer, docs/user-guide of the
same repository in 2026 (parallelism-guide.md, features/context_parallel.md, features/low_precision_training.md,
features/megatron_fsdp.md, and megatron/core/transformer/moe/README.md). Flags that newer releases renamed, the old name
last:

* `--num-virtual-stages-per-pipeline-rank V`: `--num-layers-per-virtual-pipeline-stage`, which takes layers, not stages;
* `--use-megatron-fsdp --data-parallel-sharding-strategy S`: `--use-custom-fsdp` with the same strategy;
* `--moe-flex-dispatcher-backend deepep`: `--moe-enable-deepep` (still the name in arguments.py of that commit);
* `--recompute-granularity selective --recompute-modules core_attn`: `--recompute-activations`;
* `--expert-tensor-parallel-size`: `--moe-extended-tp`.

`--pipeline-model-parallel-layout`, whose letters are those of NVIDIA's Megatron-MoE-ModelZoo ("Et*2|(tt|)*22t|..."), is
in no release before 2025.

torchtitan, read as torchtitan/config/configs.py (commit 0014ac2c), run_train.sh (0168bd51) and config/README.md
(1b4a5caf, 2026): `--section.option` flags still override a configuration (MODULE and CONFIG of run_train.sh), but their
list is frozen and they are to go; before 2026 the configuration was a TOML file (CONFIG_FILE) and the section was the
same, but for `--training.compile` (now `--compile.enable`) and `--model.converters float8` (now part of the
configuration: Float8LinearConverter).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.fields import words_in
from rooflm.catalogue.model import MLA, Model, MoE
from rooflm.readers.command import command_of
from rooflm.search.finetune_command import axolotl, trl, unsloth
from rooflm.search.model_arguments import megatron_model

SCHEDULES = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B", "gpipe": "GPipe", "dualpipe": "DualPipeV"}
"""Schedule -> the name that torchtitan (torch.distributed.pipelining) knows it by."""
LOW = {
    "fp8": "--fp8-format hybrid --fp8-recipe tensorwise",
    "fp8-block": "--fp8-format e4m3 --fp8-recipe blockwise",
    "mxfp8": "--fp8-format e4m3 --fp8-recipe mxfp8",
    "nvfp4": "--fp4-format e2m1 --fp4-recipe nvfp4",
}
"""Data type -> Megatron-LM's words beside --bf16."""
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
OPTIMIZERS = {
    "adam": "adam",
    "adam-bf16": "adam --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16",
    "sgd": "sgd",
    "sgd-momentum": "sgd",
}
"""Optimisers and their words; moments of bf16 need a release whose --exp-avg-dtype takes it (early ones do not)."""


def train_command(model: Model, engine: Engine, chosen: Mapping[str, Any], fixed: Mapping[str, Any]) -> str:
    """The command of the engine's family, or an empty text for one that has none (or no such schedule).

    chosen: tp, pp, vp, cp, ep, dp, micro_batch, zero, recompute, schedule; fixed: batch, seq, and where known gpus,
    node (GPUs of a node), dtype, optimizer, lora_rank, lora_modules, base_bits, tokens, home (hub id or folder of the
    model). Data are the caller's own: Megatron-LM starts with mock data.

    >>> from rooflm.readers.engines import load_engine; from rooflm.readers.checkpoints.load import load_model
    >>> where = {"tp": 4, "pp": 8, "vp": 12, "micro_batch": 2, "zero": 1}
    >>> train_command(load_model("gpt3-175b"), load_engine("megatron"), where, {"batch": 1536, "seq": 2048})[:76]
    'torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --sequence-parallel '
    """
    v = {**fixed, **chosen}
    sizes = {k: int(v.get(k) or 1) for k in ("tp", "pp", "vp", "cp", "ep", "dp", "micro_batch")}
    v["home"] = v.get("home") or model.name
    make = PROGRAMS.get(command_of(engine).train)
    if command_of(engine).train in PRETRAIN and int(v.get("lora_rank") or 0):
        return ""  # these programs train whole models
    return "" if make is None else " ".join(make(model, engine, sizes, v))


def _megatron(model: Model, engine: Engine, n: Mapping[str, int], v: Mapping[str, Any]) -> list[str]:
    """Words of a Megatron-LM run of a split: degrees by name (n) and the other arguments of the search (v)."""
    gpus, node = v.get("gpus"), v.get("node")
    nodes = ["--nnodes {} --nproc-per-node {}".format(*spread(int(gpus), int(node)))] if gpus and node else []
    words = ["torchrun", *nodes, "pretrain_gpt.py"]
    if n["tp"] > 1:
        words.append(f"--tensor-model-parallel-size {n['tp']}")
        words += ["--sequence-parallel"] if engine.habits.sequence_parallel else []
        words += ["--tp-comm-overlap"] if engine.overlaps.tp_overlap and engine.habits.sequence_parallel else []
    words += _megatron_stages(model, engine, n)
    if n["cp"] > 1:
        words.append(
            f"--context-parallel-size {n['cp']} --cp-comm-type {'p2p' if engine.kernels.ring else 'all_gather'}"
        )
    if any(isinstance(b.ffn, MoE) for b in model.blocks):
        words += _megatron_experts(engine, n)
    names = {"micro_batch": "micro-batch-size", "batch": "global-batch-size", "seq": "seq-length"}
    words += [f"--{name} {int(v[k])}" for k, name in names.items() if v.get(k) is not None]
    words += _megatron_recompute(model, engine, str(v.get("recompute") or "none"))
    words += _megatron_sharding(engine, int(v.get("zero") or 0))
    dtype = str(v.get("dtype") or "bf16")
    words += [{"fp16": "--fp16", "fp32": ""}.get(dtype, "--bf16"), LOW.get(dtype, "")]
    optimizer = OPTIMIZERS.get(str(v.get("optimizer") or "adam"))
    words += [f"--optimizer {optimizer}"] if optimizer else []
    words += ["--cross-entropy-loss-fusion"] if engine.kernels.fused and engine.kernels.fused_loss else []
    words += [] if engine.kernels.flash else ["--attention-backend unfused"]
    shape = megatron_model(model, v["home"])
    tokens, batch, seq = (float(v.get(k) or 0) for k in ("tokens", "batch", "seq"))
    run = max(round(tokens / (batch * seq)), 1) if tokens and batch and seq else 100
    context = f"--max-position-embeddings {int(max(seq, 1))}"
    words += [*shape, context, f"--mock-data --train-iters {run} --lr 3e-4"] if shape else []
    return [w for w in words if w]


def spread(gpus: int, node: int) -> tuple[int, int | str]:
    """The fewest nodes that hold so many GPUs, and torchrun's word for those of each: as many on all of them, or `gpu`
    for as many as it finds there.

    >>> spread(12, 8), spread(13, 8)
    ((2, 6), (2, 'gpu'))
    """
    nodes = -(-gpus // node)
    return nodes, "gpu" if gpus % nodes else gpus // nodes


def _megatron_stages(model: Model, engine: Engine, n: Mapping[str, int]) -> list[str]:
    """Pipeline stages; layers that do not divide evenly either count embedding and loss as layers, or leave fewer to
    the last stage."""
    if n["pp"] == 1:
        return []
    layers, stages = int(model.scaled.layers), n["pp"] * n["vp"]
    words = [f"--pipeline-model-parallel-size {n['pp']}"]
    if n["vp"] > 1:
        words.append(f"--num-virtual-stages-per-pipeline-rank {n['vp']}")
        words += [] if engine.overlaps.pp_overlap else ["--no-overlap-p2p-communication"]
    if layers % stages and (layers + 2) % stages == 0:
        words.append("--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split")
    elif layers % stages:
        last = layers - (n["pp"] - 1) * -(-layers // n["pp"])
        words += [f"--decoder-last-pipeline-num-layers {last}"] if last > 0 else []
        words += [f"--pipeline-model-parallel-layout '{_layout(layers, stages)}'"] if last <= 0 and n["vp"] == 1 else []
    return words


def _layout(layers: int, stages: int) -> str:
    """Layers over stages by hand, the further ones behind the first stage (E: embedding, t: a layer, L: loss).

    >>> _layout(126, 25), _layout(32, 20)
    ('Et*5|(t*6|)*1(t*5|)*22t*5L', 'Et*1|(t*2|)*12(t*1|)*6t*1L')
    """
    each, more = divmod(layers, stages)
    sizes = [each + (1 <= i <= more) for i in range(stages)]
    middle = "".join(f"(t*{size}|)*{len([*same])}" for size, same in itertools.groupby(sizes[1:-1]))
    return f"Et*{sizes[0]}|{middle}t*{sizes[-1]}L"


def _megatron_experts(engine: Engine, n: Mapping[str, int]) -> list[str]:
    """Expert parallelism: experts are whole where ep is tp or more, else split over the rest of the tensor group."""
    words = [f"--expert-model-parallel-size {n['ep']}"] if n["ep"] > 1 else []
    words.append(f"--expert-tensor-parallel-size {max(n['tp'] // n['ep'], 1)} --moe-grouped-gemm --moe-permute-fusion")
    if n["ep"] > 1:
        flex = "flex --moe-flex-dispatcher-backend deepep"
        words.append(f"--moe-token-dispatcher-type {flex if engine.kernels.dedup else 'alltoall'}")
        words += ["--overlap-moe-expert-parallel-comm"] if engine.overlaps.ep_overlap else []
    return words


def _megatron_recompute(model: Model, engine: Engine, policy: str) -> list[str]:
    """Recomputation; of the attention core under flash attention it is without effect and left out."""
    if policy == "full":
        return ["--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"]
    if policy == "selective" and not engine.kernels.flash and not any(isinstance(b.mixer, MLA) for b in model.blocks):
        return ["--recompute-granularity selective --recompute-modules core_attn"]
    return []


def _megatron_sharding(engine: Engine, zero: int) -> list[str]:
    """ZeRO-1 is the distributed optimizer; stages 2 and 3 are Megatron-FSDP's, whose checkpoints have a form of their
    own."""
    overlap = ["--overlap-grad-reduce"] if engine.overlaps.grad_overlap else []
    if zero == 0:
        return overlap
    gather = ["--overlap-param-gather"] if engine.overlaps.param_overlap and engine.overlaps.grad_overlap else []
    words = ["--use-distributed-optimizer", *overlap, *gather]
    if zero >= 2:
        strategy = f"--use-megatron-fsdp --data-parallel-sharding-strategy {SHARDING[zero]}"
        words.append(f"{strategy} --ckpt-format fsdp_dtensor")
    return words


def _torchtitan(model: Model, engine: Engine, n: Mapping[str, int], v: Mapping[str, Any]) -> list[str]:
    """run_train.sh with the options of a configuration; a batch larger than dp x local batch is accumulated. Nothing of
    a schedule that it has not."""
    if v.get("schedule", "1f1b") not in SCHEDULES:
        return []
    node = int(v.get("node") or 8)
    gpus = int(v.get("gpus") or node)
    words = [f"NGPU={spread(gpus, node)[1]}"]
    known = dict(pair.split("=") for pair in words_in(command_of(engine).configs))
    if model.name in known:
        module, _, config = known[model.name].partition("/")
        words += [f"MODULE={module}", f"CONFIG={config}"]
    words.append("./run_train.sh")
    zero, pp = int(v.get("zero") or 0), n["pp"]
    local = int(v["batch"]) // n["dp"] if pp > 1 and v.get("batch") else n["micro_batch"]
    words.append(f"--training.local_batch_size {local}")
    words += [f"--training.global_batch_size {int(v['batch'])}"] if v.get("batch") else []
    words += [f"--training.seq_len {int(v['seq'])}"] if v.get("seq") else []
    shard, replicate = (n["dp"], 1) if zero else (1, n["dp"])
    words.append(f"--parallelism.data_parallel_shard_degree {shard}")
    words += [f"--parallelism.data_parallel_replicate_degree {replicate}"] if replicate > 1 else []
    if zero and n["dp"] * n["cp"] > 1:
        again = zero >= 3 and pp == 1
        words.append(f"--parallelism.fsdp_reshard_after_forward {'always' if again else 'never'}")
    words += [f"--parallelism.tensor_parallel_degree {n['tp']}"] if n["tp"] > 1 else []
    if n["tp"] > 1 and engine.overlaps.tp_overlap:
        words.append("--parallelism.enable_async_tensor_parallel")
    if pp > 1:
        layers = -(-int(model.scaled.layers) // (pp * n["vp"]))
        words.append(f"--parallelism.pipeline_parallel_degree {pp}")
        words.append(f"--parallelism.pipeline_parallel_schedule {SCHEDULES[str(v.get('schedule', '1f1b'))]}")
        words.append(f"--parallelism.pipeline_parallel_layers_per_stage {layers}")
        words.append(f"--parallelism.pipeline_parallel_microbatch_size {n['micro_batch']}")
    if n["cp"] > 1:
        words.append(f"--parallelism.context_parallel_degree {n['cp']}")
        words.append(
            f"--parallelism.context_parallel_rotate_method {'alltoall' if engine.kernels.ring else 'allgather'}"
        )
    words += [f"--parallelism.expert_parallel_degree {n['ep']}"] if n["ep"] > 1 else []
    mode = {"selective": "selective", "ops": "selective", "full": "full"}.get(str(v.get("recompute")), "none")
    narrow = str(v.get("dtype") or "bf16") not in ("bf16", "fp16", "fp32")
    note = [f"# {v['dtype']}: a converter in the configuration (docs/float8.md, docs/mxfp8.md)"] if narrow else []
    return [*words, f"--activation_checkpoint.mode {mode}", "--compile.enable", *note]


PROGRAMS: dict[str, Callable[[Model, Engine, Mapping[str, int], Mapping[str, Any]], list[str]]] = {
    "pretrain_gpt.py": _megatron,
    "run_train.sh": _torchtitan,
    "trl": lambda model, engine, n, v: trl(n, v),
    "unsloth": lambda model, engine, n, v: unsloth(n, v),
    "axolotl": lambda model, engine, n, v: axolotl(n, v),
}
"""Program (`Engine.command.train`) -> its words. Megatron-Bridge and NeMo have Megatron-LM's fields by its names."""
PRETRAIN = ("pretrain_gpt.py", "run_train.sh")
"""Programs that train no adapters."""
