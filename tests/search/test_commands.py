"""What a search prints starts what it predicted: flags that the engines' parsers have, the checkpoint of the scheme,
the model's shape, adapters; and files that deploy it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rooflm.catalogue.abilities import listed
from rooflm.catalogue.command import Command
from rooflm.catalogue.engines import engine_names, load_engine
from rooflm.catalogue.fields import abouts
from rooflm.catalogue.quant import PRESETS, parse_quant
from rooflm.checkpoints.load import load_model
from rooflm.cli.app import main
from rooflm.search.checkpoint import weights_for
from rooflm.search.serve_command import start
from rooflm.search.train_command import train_command

PARSERS = {
    # vllm/engine/arg_utils.py of 0.14, read there but for speculative-config and kv-transfer-config (its documentation
    # and public launch scripts), and vllm/entrypoints/openai/cli_args.py
    "vllm": "tensor-parallel-size pipeline-parallel-size data-parallel-size enable-expert-parallel max-num-seqs "
    "max-model-len no-enable-chunked-prefill max-num-batched-tokens gpu-memory-utilization quantization kv-cache-dtype "
    "speculative-config kv-transfer-config enable-lora max-loras max-lora-rank host port",
    # sglang/srt/server_args.py (0.5), from its documentation, some read in the parser
    "sglang": "model-path tp-size pp-size dp-size ep-size enable-dp-attention max-running-requests context-length "
    "chunked-prefill-size mem-fraction-static quantization kv-cache-dtype speculative-algorithm "
    "speculative-draft-model-path speculative-num-steps speculative-eagle-topk speculative-num-draft-tokens "
    "enable-lora lora-target-modules max-loras-per-batch max-lora-rank disaggregation-mode "
    "disaggregation-transfer-backend host port "
    "pd-disaggregation prefill decode",  # the last three of sglang_router.launch_router
    # tensorrt_llm/commands/serve.py, each read there at commit 00209af (1.2) but config_file of
    # "disaggregated" (its documentation)
    "trtllm": "backend tp_size pp_size ep_size max_batch_size max_seq_len max_num_tokens enable_chunked_prefill "
    "kv_cache_free_gpu_memory_fraction extra_llm_api_options config_file host port",
    # llama.cpp, as tools/server/README.md lists what common/arg.cpp parses
    "llama.cpp": "model n-gpu-layers n-cpu-moe split-mode parallel ctx-size ubatch-size flash-attn cache-type-k "
    "cache-type-v model-draft draft-max host port",
    # mlx_lm/server.py
    "mlx": "model decode-concurrency prefill-step-size draft-model num-draft-tokens host port",
    # TabbyAPI, common/config_models.py, whose fields are its arguments
    "exllamav3": "model-name tensor-parallel max-batch-size max-seq-len chunk-size cache-mode draft-model-name "
    "host port",
    # text-generation-inference, launcher/src/main.rs (3.3)
    "tgi": "model-id num-shard max-concurrent-requests max-total-tokens max-batch-prefill-tokens "
    "cuda-memory-fraction quantize kv-cache-dtype hostname port",
    # lmdeploy/cli/serve.py and cli/utils.py (0.9)
    "lmdeploy": "tp dp ep max-batch-size session-len max-prefill-token-num cache-max-entry-count model-format "
    "quant-policy server-name server-port",
}


@pytest.mark.parametrize("engine", sorted(PARSERS))
def test_every_flag_is_one_of_the_parsers(engine: str) -> None:
    command = load_engine(engine).command
    texts = [getattr(command, name) for name, about in abouts(Command).items() if about.kind == "word"]
    flags = {flag for text in texts for flag in re.findall(r"(?<!\S)--([\w-]+)", text)}
    assert flags and flags <= set(PARSERS[engine].split())


def test_every_engine_with_a_command_is_checked() -> None:
    own = {n for n in engine_names() if load_engine(n).command.start and not load_engine(n).family}
    assert own - set(PARSERS) == {"ollama"}  # told by its environment alone
    assert all(listed(load_engine(n).abilities.schemes) for n in own)


WEIGHTS: tuple[tuple[str, str, str, tuple[str, bool, str]], ...] = (
    ("llama-3.1-70b", "vllm", "bf16", ("meta-llama/Llama-3.1-70B", False, "")),
    ("llama-3.1-70b", "vllm", "fp8", ("meta-llama/Llama-3.1-70B", True, "")),
    ("llama-3.1-70b", "vllm", "nvfp4", ("./Llama-3.1-70B-nvfp4", False, "put a checkpoint in nvfp4 there")),
    ("deepseek-v3", "vllm", "nvfp4-ffn", ("nvidia/DeepSeek-V3-0324-FP4", False, "")),
    ("deepseek-v3", "sglang", "fp8-blockkv8", ("deepseek-ai/DeepSeek-V3", False, "")),
    ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16", "vllm", "int4",
     ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16", False, "")),
    ("llama-3.1-8b", "llama.cpp", "q4_k_m", ("Llama-3.1-8B-Q4_K_M.gguf", False, "llama-quantize")),
)  # fmt: skip


@pytest.mark.parametrize(("named", "engine", "scheme", "wanted"), WEIGHTS)
def test_the_checkpoint_is_of_the_scheme(
    named: str, engine: str, scheme: str, wanted: tuple[str, bool, str]
) -> None:  # fmt: skip
    found = weights_for(named, load_model(named), parse_quant(scheme), load_engine(engine))
    assert (found.name, found.online) == wanted[:2] and wanted[2] in found.note and bool(found.note) == bool(wanted[2])


def test_a_folder_stays_a_folder(tmp_path: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2,
              "num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 1000}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    named = str(tmp_path / "config.json")
    begun = start(named, load_model(named), load_engine("vllm"), PRESETS["bf16"], {"batch": 8}, 640)
    assert begun is not None and begun.text.startswith(f"vllm serve {tmp_path} --max-num-seqs 8")


def searched(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["search", *words]) in (None, 0)
    return capsys.readouterr().out.replace(" \\\n    ", " ")


def test_commands_of_the_searches(capsys: pytest.CaptureFixture[str]) -> None:
    out = searched(capsys, "infer", "llama-3.1-8b", "--gpu", "rtx-3090", "--gpus", "2", "--batch", "1",
                   "--quant", "q4_k_m")  # fmt: skip
    assert "llama-server --model Llama-3.1-8B-Q4_K_M.gguf --n-gpu-layers 999 --split-mode tensor --parallel 1" in out
    out = searched(capsys, "infer", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--batch", "64")
    assert "vllm serve deepseek-ai/DeepSeek-V3 " in out and "--enable-expert-parallel" in out
    out = searched(capsys, "train", "llama-3.1-8b", "--gpu", "rtx-4090", "--gpus", "1", "--batch", "16",
                   "--set", "training.lora_rank=16", "--set", "training.base_bits=4")  # fmt: skip
    assert "trl sft --model_name_or_path meta-llama/Llama-3.1-8B" in out
    assert "--use_peft --lora_r 16" in out and "--load_in_4bit" in out


def test_every_line_of_a_command_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What goes before a command is a comment in each of its lines, at any width."""
    monkeypatch.setenv("COLUMNS", "80")
    out = searched(capsys, "infer", "llama-3.1-70b", "--gpu", "b200", "--gpus", "1", "--batch", "8",
                   "--quant", "nvfp4")  # fmt: skip
    told = out[out.index("vllm serve") :].split("\n\n")[0].splitlines()[1:]
    assert len(told) == 2 and all(line.startswith("# ") for line in told)
    assert "put a checkpoint in nvfp4 there" in told[0] and "meta-llama/Llama-3.1-70B is bf16" in told[1]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("llama-3.1-8b", "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention "
         "--num-query-groups 8 --ffn-hidden-size 14336 --swiglu --normalization RMSNorm --disable-bias-linear "
         "--position-embedding-type rope --untie-embeddings-and-output-weights"),
        ("deepseek-v3", "--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 "
         "--qk-pos-emb-head-dim 64 --v-head-dim 128 --ffn-hidden-size 18432 --num-experts 256 --moe-router-topk 8 "
         "--moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 --moe-layer-freq '([0]*3+[1]*58)'"),
    ],
)  # fmt: skip
def test_megatron_gets_the_shape(model: str, words: str) -> None:
    chosen = {"tp": 8, "pp": 1, "micro_batch": 1, "zero": 1}
    assert words in train_command(load_model(model), load_engine("megatron"), chosen, {"batch": 64, "seq": 4096})


@pytest.mark.parametrize(("engine", "words"), [
    ("peft", "--use_peft --lora_r 8 --lora_target_modules q_proj k_proj v_proj o_proj --load_in_4bit"),
    ("unsloth", "--r 8 --load_in_4bit"), ("axolotl", "adapter: qlora\\nlora_r: 8"), ("megatron", ""),
])  # fmt: skip
def test_adapters_stay_adapters(engine: str, words: str) -> None:
    fixed = {"batch": 16, "seq": 2048, "lora_rank": 8, "lora_modules": "qkv,out", "base_bits": 4, "gpus": 1}
    made = train_command(load_model("llama-3.1-8b"), load_engine(engine), {"micro_batch": 2, "dp": 1}, fixed)
    assert words in made and bool(words) == bool(made)


DEPLOYED: tuple[tuple[tuple[str, ...], str, int], ...] = (
    (("llama-3.1-8b", "--gpu", "h100", "--gpus", "2", "--batch", "8"), "vllm/vllm-openai", 2),
    (("llama-3.1-8b", "--gpu", "h100", "--gpus", "2", "--batch", "8", "--engine", "sglang"), "lmsysorg/sglang", 2),
    (("llama-3.1-8b", "--gpu", "h100", "--gpus", "2", "--tp", "2", "--batch", "8", "--engine", "trtllm", "--quant",
      "fp8kv8"), "tensorrt-llm/release", 2),
    (("llama-3.1-8b", "--gpu", "rtx-3090", "--gpus", "2", "--batch", "1", "--quant", "q4_k_m"), "llama.cpp", 2),
)  # fmt: skip


@pytest.mark.parametrize(("words", "image", "gpus"), DEPLOYED)
@pytest.mark.parametrize("name", ["compose.yaml", "deployment.yaml"])
def test_files_that_deploy(
    words: tuple[str, ...], image: str, gpus: int, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    out = searched(capsys, "infer", *words, "--deploy", str(tmp_path / name))
    documents: list[dict[str, Any]] = list(yaml.safe_load_all((tmp_path / name).read_text(encoding="utf-8")))
    if name.startswith("compose"):
        service = next(iter(documents[0]["services"].values()))
        line, own = service["entrypoint"], service["deploy"]
        asked = own["resources"]["reservations"]["devices"][0]["count"] * own.get("replicas", 1)
        assert ("configs" in service) == ("fp8kv8" in words)
    else:
        deployment = next(d for d in documents if d["kind"] == "Deployment")
        service = deployment["spec"]["template"]["spec"]["containers"][0]
        line = service["command"]
        asked = service["resources"]["limits"]["nvidia.com/gpu"] * deployment["spec"]["replicas"]
        assert {d["kind"] for d in documents} >= {"Deployment", "Service"}
    assert image in service["image"] and asked == gpus
    assert line[0] in out and all(w in out for w in line[2:] if w.startswith("--") and w not in ("--host", "--port"))


def test_what_cannot_be_deployed_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, why in (
        (("deepseek-v3", "--gpu", "h100", "--gpus", "16", "--batch", "64", "--tp", "16"), "one machine of 8"),
        (("llama-3.1-8b", "--gpu", "rtx-3090", "--batch", "1", "--engine", "mlx", "--gpus", "1"), "no container image"),
    ):
        assert main(["search", "infer", *words, "--deploy", str(tmp_path / "k.yaml")]) == 2
        assert why in capsys.readouterr().err and not (tmp_path / "k.yaml").exists()
