"""What other tools call our arguments, so that who writes their name is told ours.

The names are those of llm-analysis, vLLM, SGLang, TensorRT-LLM, llama.cpp, AIConfigurator, GenZ, Megatron-LM and
Hugging Face's trainer.
"""

from __future__ import annotations

OTHER_NAMES = {
    "model": "hf-id hf-model model model-id model-name model-path pretrained",
    "gpu": "accelerator card chip device gpu-name gpu-type hardware hw system system-name",
    "gpus": "devices gpu-count n-gpus ngpus nnodes nodes num-devices num-gpus num-nodes nproc-per-node total-gpus "
    "world-size",
    "cluster": "network node-type topology",
    "engine": "backend framework release runtime",
    "release": "engine-version framework-version version",
    "batch": "batch-size bs bsz concurrency gbs global-batch global-batch-size max-batch-size max-num-seqs "
    "gradient-accumulation-steps total-batch-size train-batch-size",
    "micro-batch": "batch-size-per-gpu mbs micro-batch-size per-device-train-batch-size",
    "prompt": "context context-len context-length context-size ctx ctx-size input input-len input-length "
    "input-sequence-length input-size input-tokens isl max-model-len n-ctx n-prompt num-ctx prefill-len prompt-len "
    "prompt-tokens random-input-len seq seq-len",
    "output": "decode-len generated-tokens max-new-tokens max-tokens n-gen num-tokens-to-generate osl output-len "
    "output-length output-sequence-length output-size output-tokens random-output-len",
    "seq": "block-size context context-len context-length context-size max-length max-model-len max-seq-len "
    "max-seq-length prompt seq-len seq-length sequence-length",
    "concurrency": "batch batch-size clients conc max-concurrency max-num-seqs num-clients num-users number-of-users "
    "parallel users",
    "rate": "arrival-rate qps request-rate rps",
    "requests": "num-prompts num-requests",
    "ranks": "gpus devices n-gpus ngpus num-devices num-gpus world-size",
    "size": "bytes message-size",
    "tp": "tensor-parallel tensor-parallelism tensor-parallel-size tensor-model-parallel-size tp-size",
    "pp": "pipeline-model-parallel-size pipeline-parallel pipeline-parallelism pipeline-parallel-size pp-size",
    "dp": "data-parallel data-parallel-size dp-size",
    "ep": "ep-size expert-model-parallel-size expert-parallel expert-parallel-size",
    "cp": "context-parallel-size cp-size",
    "vp": "num-virtual-stages virtual-pipeline virtual-pipeline-model-parallel-size",
    "quant": "cache-type-k cache-type-v dtype kv kv-cache kv-cache-dtype kv-cache-type kv-quant "
    "precision quantization quantisation weight-dtype weights",
    "dtype": "bf16 fp8 precision quant",
    "zero": "deepspeed fsdp use-distributed-optimizer zero-stage",
    "base-bits": "bnb-4bit load-in-4bit load-in-8bit qlora",
    "lora-rank": "adapter-rank lora lora-r peft-rank rank use-lora",
    "adapter-rank": "lora-rank max-lora-rank",
    "lora-modules": "lora-target-modules target-modules",
    "tokens": "epochs iters max-steps num-epochs num-train-epochs steps train-iters train-tokens",
    "optimizer": "optim optimiser",
    "recompute": "activation-checkpointing activation-recomputation gradient-checkpointing recompute-granularity",
    "pools": "disagg disaggregate disaggregated disaggregation pd",
    "prefill-replicas": "disagg disaggregate disaggregated disaggregation pd prefill-workers",
    "cpu-experts": "cpu-moe n-cpu-moe offload-experts",
    "host-bandwidth": "cpu cpu-bandwidth host host-memory ram",
    "cpu-layers": "gpu-layers n-gpu-layers ngl offload-layers",
    "guesses": "draft-max mtp n-draft nextn num-speculative-tokens spec spec-tokens speculative "
    "speculative-num-draft-tokens speculative-num-steps speculative-tokens",
    "adapters": "enable-lora lora loras max-loras num-loras",
    "draft": "draft-model model-draft speculative-draft-model-path speculative-model",
    "slo": "goodput itl-sla tpot ttft",
    "price": "cost cost-per-hour gpu-price",
    "match": "filter find grep name query search",
    "out": "csv file output-file save",
}
"""Names elsewhere, by the argument of ours that means the same."""
OTHERWISE = (
    "bf16 bnb-4bit cache-type-k cache-type-v context context-len context-length context-size cost ctx ctx-size "
    "deepspeed epochs fp8 fsdp gpu-layers gradient-accumulation-steps iters kv kv-cache kv-cache-dtype kv-cache-type "
    "kv-quant load-in-4bit load-in-8bit lora max-batch-size max-model-len max-num-seqs max-steps n-ctx n-gpu-layers "
    "network ngl nnodes nodes nproc-per-node num-ctx num-epochs num-nodes num-train-epochs offload-layers qlora "
    "release steps train-iters use-distributed-optimizer use-lora"
)
"""Those of them that say it in other numbers: who writes one is told ours, its value is never taken as it stands."""
TOGETHER = dict.fromkeys(("qlora", "bnb-4bit", "load-in-4bit"), "--lora-rank 16 --base-bits 4 --batch 16") | {
    **dict.fromkeys(("gpu-layers", "n-gpu-layers", "ngl"), "--cpu-layers N, the layers that are not on the GPU"),
    **dict.fromkeys(
        ("cache-type-k", "cache-type-v", "kv", "kv-cache", "kv-cache-dtype", "kv-cache-type", "kv-quant"),
        "--quant SCHEME with the cache's bits behind it, as fp8kv8 or q4_k_m-kv8",
    ),
    **dict.fromkeys(("rank", "lora-rank", "max-lora-rank"), "--adapters N --set adapters.rank=R"),
    **dict.fromkeys(("power-limit", "power-cap", "tdp", "watts"), "--set cluster.device.power_limit=WATTS"),
    "load-in-8bit": "--lora-rank 16 --base-bits 8 --batch 16",
    **dict.fromkeys(
        ("turns", "num-turns", "multi-turn", "sessions", "conversations"),
        "--trace FILE.jsonl, a line a turn, whose hash_ids name the blocks of its prompt",
    ),
}
"""Those that take several of our options together, with values to begin with."""


def meanings(theirs: str) -> list[str]:
    """Our arguments that another tool's name may mean.

    >>> meanings("Tensor_Parallel_Size"), meanings("seq-len"), meanings("joy")
    (['tp'], ['prompt', 'seq'], [])
    """
    return [name for name, others in OTHER_NAMES.items() if plain(theirs) in others.split()]


def plain(theirs: str) -> str:
    """A name as the table above has it.

    >>> plain("--Load_in_4bit") in OTHERWISE.split()
    True
    """
    return theirs.strip("- ").lower().replace("_", "-").replace(" ", "-")
