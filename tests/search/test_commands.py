"""What a search prints starts what it predicted: flags that the engines' parsers have, the checkpoint of the scheme,
the model's shape, adapters; and files that deploy it."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import rooflm
from rooflm.catalogue.fields import abouts, words_in
from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.command import Command, command_of
from rooflm.readers.engines import engine_names, load_engine
from rooflm.readers.rows import raw_row
from rooflm.readers.schemes import PRESETS, parse_quant
from rooflm.search.checkpoint import weights_for
from rooflm.search.deploy_file import deployment_text
from rooflm.search.serve_command import serve_command, start, start_of
from rooflm.search.train_command import PROGRAMS, train_command

TABLE = tomllib.loads((Path(__file__).parent / "flags.toml").read_text(encoding="utf-8"))["parser"]
PARSERS: dict[str, set[str]] = {}
for _parser in TABLE:
    PARSERS.setdefault(_parser["of"], set()).update(_parser["flags"].split())


def test_every_parser_is_cited() -> None:
    assert all(set(p) == {"of", "release", "file", "flags"} and p["release"] and p["file"] for p in TABLE)


def parser_of(engine: str) -> str:
    """Whose parser reads an engine's flags: its own, or that of the engine of which it is a build, or builds on."""
    if engine in PARSERS:
        return engine
    other = engine.rpartition("-")[0] or raw_row("engine", engine)[0].get("base")
    assert other, f"{engine} has a command: cite the parser of its flags in flags.toml"
    return parser_of(other)


SERVERS = sorted(n for n in engine_names() if command_of(load_engine(n)).start and not load_engine(n).family)


def test_an_option_goes_where_its_word_says() -> None:
    """Into the environment, into the file of options, or onto the command line."""

    def told(engine: str, scheme: str, **chosen: int) -> str:
        return serve_command("m", load_engine(engine), parse_quant(scheme), {"batch": 4, **chosen}, 640)

    environment = "OLLAMA_NUM_PARALLEL=4 OLLAMA_CONTEXT_LENGTH=640 "
    assert told("ollama", "w4a16kv8").startswith(environment + "OLLAMA_KV_CACHE_TYPE=q8_0 ollama serve")
    assert told("ollama", "w4a16kv16").startswith(environment + "ollama serve")
    plain, both = told("trtllm", "w16a16kv16"), told("trtllm", "w16a16kv8", adapters=2)
    assert plain.startswith("trtllm-serve") and "--kv_cache_free_gpu_memory_fraction 0.9" in plain
    lines = re.findall(r"^printf '(.*)' > extra.yaml && trtllm-serve .* --extra_llm_api_options extra.yaml$", both)[0]
    assert yaml.safe_load(lines.replace("\\n", "\n")) == {
        "kv_cache_config": {"dtype": "fp8", "free_gpu_memory_fraction": 0.9}, "enable_lora": True,
        "lora_config": {"max_lora_rank": 16, "max_loras": 2},
    }  # fmt: skip
    assert "--kv_cache_free" not in both  # the file tells it
    assert "--kv-cache-dtype fp8_e4m3" in told("vllm", "w16a16kv8")


OWN = [n for n in engine_names() if raw_row("engine", n)[0].get("command", {}).get("start")]


@pytest.mark.parametrize("engine", [n for n in OWN if n != "ollama"])  # told by its environment
def test_every_flag_is_one_of_the_parsers(engine: str) -> None:
    command = command_of(load_engine(engine))
    texts = [getattr(command, name) for name, about in abouts(Command).items() if about.kind == "word"]
    flags = {flag for text in texts for flag in re.findall(r"(?<!\S)--([\w-]+)", text)}
    assert flags and flags <= PARSERS[parser_of(engine)]
    assert words_in(load_engine(engine).abilities.schemes)


@pytest.mark.parametrize(
    ("engine", "sets", "told"),
    [
        ("sglang", {}, None),  # it works its own out, by card, split, chunk and graphs
        ("sglang-0.5.2", {}, None),  # by a rule of its own
        ("sglang", {"engine.memory_fraction": 0.8}, "--mem-fraction-static 0.8"),
        ("sglang", {"engine.memory_fraction": [0.7, 0.8]}, "--mem-fraction-static 0.8"),
        ("sglang", {"engine.server.static_fraction": 0.85}, "--mem-fraction-static 0.85"),
        ("sglang", {"engine.token_budget": 2048}, "--chunked-prefill-size 2048"),
        ("vllm", {"engine.memory_fraction": 0.8}, "--gpu-memory-utilization 0.8"),
    ],
)
def test_a_command_tells_what_was_told_and_no_share_that_the_engine_works_out(
    engine: str, sets: dict[str, Any], told: str | None
) -> None:
    given = {"gpu": "h100", "engine": engine, "gpus": 1, "prompt": 4096, "output": 100, "sets": sets}
    begun = start_of("llama-3.1-8b", rooflm.search_infer("llama-3.1-8b", **given), given)
    assert begun is not None and (f" {told} " in f"{begun.server} " if told else "fraction" not in begun.server)


def test_a_cache_that_holds_one_sequence_is_told_of_all() -> None:
    """TabbyAPI's cache is as long as its longest sequence unless told, in whole pages of 256 tokens."""
    text = serve_command("m", load_engine("exllamav3"), PRESETS["bf16"], {"batch": 16}, 700)
    assert "--max-seq-len 700 --cache-size 12288 " in text and 12288 == 16 * 3 * 256


SPLITS: tuple[dict[str, Any], ...] = (
    {"tp": 1, "pp": 1, "micro_batch": 1, "zero": 0, "dp": 8},
    {"tp": 8, "pp": 4, "vp": 2, "cp": 2, "ep": 2, "micro_batch": 2, "zero": 1, "dp": 2, "recompute": "full"},
    {"tp": 2, "pp": 3, "zero": 3, "ep": 8, "dp": 16, "micro_batch": 1, "recompute": "selective"},
    {"tp": 1, "pp": 1, "dp": 8, "zero": 2, "micro_batch": 1},
    {"tp": 4, "pp": 5, "dp": 1, "zero": 1, "micro_batch": 1, "schedule": "interleaved", "vp": 2},
)
TRAINED: tuple[dict[str, Any], ...] = (
    {}, {"lora_rank": 8, "base_bits": 4, "lora_modules": "qkv,out"}, {"lora_rank": 8, "base_bits": 8},
    {"lora_rank": 8, "lora_modules": "experts"},
    {"dtype": "fp8", "optimizer": "adam-bf16"}, {"dtype": "fp16", "optimizer": "sgd"}, {"dtype": "mxfp8"},
    {"dtype": "nvfp4"}, {"dtype": "fp8-block", "optimizer": "muon"}, {"dtype": "fp8-rowwise", "optimizer": "adam8bit"},
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_flag_of_a_trainer_is_one_of_its_parsers(program: str) -> None:
    seen: set[str] = set()
    for engine in (e for n in engine_names() if command_of(e := load_engine(n)).train == program):
        for model, split, more in itertools.product(("llama-3.1-8b", "deepseek-v3", "gpt3-175b", "qwen3-32b"), SPLITS,
                                                    TRAINED):  # fmt: skip
            fixed = {"batch": 64, "seq": 4096, "gpus": 64, "node": 8, "tokens": 1e9, "home": "X/Y", **more}
            made = train_command(load_model(model), engine, split, fixed)
            seen |= set(re.findall(r"(?<!\S)--([A-Za-z][\w.-]*)", made))
            if program == "axolotl":
                seen |= set(re.findall(r"(?:'|\\n)([a-z_0-9]+):", made))
    assert len(seen) > 7 and seen <= PARSERS[program], seen - PARSERS[program]


def test_a_draft_of_llama_cpp_is_switched_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Its newest parser removed --draft-max, guesses nothing without a kind of speculation, and reads files."""
    out = searched(capsys, "infer", "llama-3.1-8b", "--gpu", "rtx-3090", "--gpus", "1", "--batch", "1", "--quant",
                   "q4_k_m", "--guesses", "3", "--draft", "llama-3.2-1b")  # fmt: skip
    assert "--spec-type draft-simple --model-draft Llama-3.2-1B-Q4_K_M.gguf --spec-draft-n-max 3" in " ".join(
        out.split()
    )


@pytest.mark.parametrize(("gpu", "length"), [("mi300x", 262144), ("h100-sxm-80gb", 2400)])
def test_a_server_is_told_the_length_that_its_steps_are_for(gpu: str, length: int) -> None:
    """Where blocks of the longest sequence take time, figures are for the model's; its id ends where notes begin."""
    given = {"gpu": gpu, "engine": "vllm", "gpus": 1, "batch": 64, "prompt": 2000, "output": 400}
    for more, told in (({}, length), ({"sets": {"engine.graph_length": 2880}}, 2880 if length > 2880 else length)):
        begun = start_of("ministral-3-14b", rooflm.search_infer("ministral-3-14b", **given, **more), given | more)
        assert begun is not None and f"--max-model-len {told} " in begun.server + " "
        assert "vllm serve mistralai/Ministral-3-14B-Instruct-2512 " in begun.server


WEIGHTS: tuple[tuple[str, str, str, tuple[str, bool, str]], ...] = (
    ("llama-3.1-70b", "vllm", "bf16", ("meta-llama/Llama-3.1-70B", False, "")),
    ("llama-3.1-70b", "vllm", "fp8", ("meta-llama/Llama-3.1-70B", True, "")),
    ("llama-3.1-70b", "vllm", "nvfp4", ("./Llama-3.1-70B-nvfp4", False, "put a checkpoint in nvfp4 there")),
    ("deepseek-v3", "vllm", "nvfp4-ffn", ("nvidia/DeepSeek-V3-0324-FP4", False, "")),
    ("deepseek-v3", "sglang", "fp8-blockkv8", ("deepseek-ai/DeepSeek-V3", False, "")),
    ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16", "vllm", "int4",
     ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16", False, "")),
    ("unsloth/Qwen3-8B-GGUF:Q5_K_M", "llama.cpp", "q5_k_m",
     ("Qwen3-8B-Q5_K_M.gguf", False, "a file of https://huggingface.co/unsloth/Qwen3-8B-GGUF")),
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


@pytest.mark.parametrize("name", engine_names())
def test_commands_that_checkpoint_whole_layers_or_none_mean_the_core(name: str) -> None:
    """A switch alone cannot ask for torchtitan's policy, so its memory is not promised."""
    engine = load_engine(name)
    if command_of(engine).train in ("trl", "unsloth", "axolotl"):
        assert engine.habits.selective == "core"


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


@pytest.mark.parametrize(("engine", "front", "roles"), [
    ("sglang", "--prefill http://{0}:30000 8998", "--disaggregation-mode"),
    ("vllm", "--prefiller-hosts {0}", "--kv-transfer-config"),
    ("trtllm", "context_servers:\\n  num_instances: {1}\\n  urls: [\"{0}:8000\"", "--extra_llm_api_options"),
])  # fmt: skip
@pytest.mark.parametrize("name", ["compose.yaml", "pools.yaml"])
def test_pools_are_deployed_with_their_router(engine: str, front: str, roles: str, name: str) -> None:
    """Every server has GPUs of its own and a name by which the router reaches it."""
    m, e = load_model("llama-3.1-8b"), load_engine(engine)
    one, two = (start("llama-3.1-8b", m, e, PRESETS["bf16"], {"tp": tp, "batch": 8, "role": role}, 640)
                for tp, role in ((1, "prefill"), (2, "decode")))  # fmt: skip
    assert one and two
    begun = replace(two, replicas=2, before=replace(one, replicas=3))
    documents = list(yaml.safe_load_all(deployment_text(name, begun, "nvidia", 8)))
    names = ["prefill-0", "prefill-1", "prefill-2", "decode-0", "decode-1"]
    if name.startswith("compose"):
        services = documents[0]["services"]
        taken = [services[n]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for n in names]
        assert taken == [["0"], ["1"], ["2"], ["3", "4"], ["5", "6"]]
        router = services["router"]["entrypoint"][2]
        assert services["router"]["ports"] == ["9000:9000"] and all("ports" not in services[n] for n in names)
        lines = [services[n]["entrypoint"] for n in names]
        own = [services[n]["environment"] for n in names]
        assert engine != "vllm" or all(f"VLLM_NIXL_SIDE_CHANNEL_HOST={n}" in o for n, o in zip(names, own, strict=True))
        files = {n: services[n].get("configs", [{}])[0].get("source") for n in names}
        assert engine != "trtllm" or (files["prefill-0"], files["decode-1"]) == ("prefill-options", "decode-options")
    else:
        pods = {d["metadata"]["name"]: d["spec"]["template"]["spec"]["containers"][0]
                for d in documents if d["kind"] == "Deployment"}  # fmt: skip
        assert {d["metadata"]["name"] for d in documents if d["kind"] == "Service"} == {*names, "router"}
        assert [pods[n]["resources"]["limits"]["nvidia.com/gpu"] for n in names] == [1, 1, 1, 2, 2]
        router, lines = pods["router"]["command"][2], [pods[n]["command"] for n in names]
        address = {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        assert (address in pods["decode-0"]["env"]) == (engine == "vllm")
    assert front.format("prefill-0", 3) in router and all(n in router for n in names)
    assert all(any(w == roles for w in line) for line in lines)
    with pytest.raises(RooflmError, match="one kind of card"):
        deployment_text(name, begun, "nvidia", 8, apart=True)
    if name.startswith("compose"):
        with pytest.raises(RooflmError, match=r"takes 7 GPUs.*or a Kubernetes file"):
            deployment_text(name, begun, "nvidia", 4)


NAMED = r"^(services|configs|data)$|\.(limits|labels|matchLabels)$"
"""Paths of tables whose keys are names of one's own."""


def paths(part: Any, at: str = "") -> set[str]:
    """Every path of a file with the kind of its value, names and places of lists left out."""
    if isinstance(part, dict):
        star = re.search(NAMED, at)
        return {p for k, v in part.items() for p in paths(v, ".".join(filter(None, (at, "*" if star else k))))}
    return {p for v in part for p in paths(v, at)} if isinstance(part, list) else {f"{at}:{type(part).__name__}"}


@pytest.mark.parametrize("engine", [n for n in SERVERS if command_of(load_engine(n)).image])
def test_deployment_files_hold_what_their_schemas_have(engine: str) -> None:
    table = tomllib.loads((Path(__file__).parent / "deployed.toml").read_text(encoding="utf-8"))
    m, e = load_model("llama-3.1-8b"), load_engine(engine)
    quant = parse_quant("q4_k_m" if e.command.weights else "fp8kv8" if "8" in e.abilities.caches else "bf16")
    whole, one, two = (start("llama-3.1-8b", m, e, quant, {"tp": 2, "batch": 8, **role}, 640)
                       for role in ({}, {"role": "prefill"}, {"role": "decode"}))  # fmt: skip
    assert whole and one and two
    pooled = [replace(two, replicas=2, before=one)] * e.command.pools
    starts, names = (whole, replace(whole, replicas=2), *pooled), ("compose.yaml", "k.yaml")
    for begun, name, vendor in itertools.product(starts, names, ("nvidia", "amd", "intel")):
        for document in yaml.safe_load_all(deployment_text(name, begun, vendor, 8)):
            known = table["compose" if name.startswith("compose") else document["kind"]]
            assert paths(document) <= set(known["paths"].split())


def test_the_router_of_trtllm_reads_its_file(tmp_path: Path) -> None:
    """What the shell writes is the YAML that `trtllm-serve disaggregated` reads."""
    e = load_engine("trtllm")
    begun = start("llama-3.1-8b", load_model("llama-3.1-8b"), e, PRESETS["bf16"], {"batch": 8, "role": "decode"}, 640)
    assert begun
    subprocess.run(["sh", "-c", begun.router(["a", "b"], ["c"]).partition(" && ")[0]], cwd=tmp_path, check=True)
    found = yaml.safe_load((tmp_path / "disagg_config.yaml").read_text(encoding="utf-8"))
    assert found["context_servers"] == {"num_instances": 2, "urls": ["a:8000", "b:8000"]}
    assert found["generation_servers"] == {"num_instances": 1, "urls": ["c:8000"]} and found["port"] == 9000


def test_equal_replicas_of_a_machine_have_gpus_of_their_own() -> None:
    m, e = load_model("llama-3.1-8b"), load_engine("vllm")
    begun = start("llama-3.1-8b", m, e, PRESETS["bf16"], {"tp": 2, "batch": 8}, 640)
    assert begun
    services = yaml.safe_load(deployment_text("compose.yaml", replace(begun, replicas=2), "nvidia", 8))["services"]
    taken = [s["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for s in services.values()]
    assert taken == [["0", "1"], ["2", "3"]] and [s["ports"] for s in services.values()] == [
        ["8000:8000"],
        ["8001:8000"],
    ]


def test_a_cpu_is_asked_for_no_layers_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["search", "infer", "llama-3.2-1b", "--gpu", "raspberry-pi-5-8gb", "--gpus-max", "1", "--quant", "q4_0"]
    assert main(words) == 0
    assert "llama-server --model Llama-3.2-1B-Q4_0.gguf --parallel" in capsys.readouterr().out


def test_a_search_says_its_limits_with_their_units(capsys: pytest.CaptureFixture[str]) -> None:
    """500 is of seconds: whoever meant milliseconds sees it."""
    words = ["search", "infer", "llama-3.1-8b", "--gpu", "h100", "--gpus-max", "1"]
    for more, told in (["--ttft", "500"], ": time to first token at most 8.3 minutes."), ([], "meet every constraint."):
        assert main([*words, *more]) == 0
        assert told in " ".join(capsys.readouterr().out.split())
