"""Models that embed texts: a pass over the prompts, no head, no tokens after it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import rooflm
from rooflm.catalogue.model import Attention
from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model

QWEN: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
    "vocab_size": 151669, "max_position_embeddings": 32768, "tie_word_embeddings": True,
}  # fmt: skip
"""https://huggingface.co/Qwen/Qwen3-Embedding-0.6B, whose class has a head that embedding leaves out."""


def folder(path: Path, fields: dict[str, Any], pooled: bool = False) -> str:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    if pooled:
        (path / "modules.json").write_text('[{"type": "sentence_transformers.models.Pooling"}]', encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", ["bge-m3", "BAAI/bge-large-en-v1.5", "modernbert-base", "e5-mistral-7b",
                                  "Qwen/Qwen3-Embedding-8B"])  # fmt: skip
def test_embeddings_have_a_prefill_alone(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    e = rooflm.infer(name, gpu="l40s", batch=32, prompt=256)
    assert (
        e.tpot != e.tpot
        and e.decode_parts == {}
        and e.latency == e.ttft == pytest.approx(sum(e.prefill_parts.values()))
    )
    assert not any(op.name in ("logits", "sample") for op in (t.node for t in e.timed["prefill"]))
    assert e.requests_per_s == pytest.approx(32 / e.ttft)
    assert e.memory.parts["logits"] == 0  # an embedding leaves with its pass
    assert e.cost_per_million_tokens == pytest.approx(
        float(e.scenario.cluster.device.price) / 3600 * e.ttft / 8192 * 1e6
    )
    assert main(["infer", name, "--gpu", "l40s", "--batch", "32", "--ops"]) in (None, 0)
    out = capsys.readouterr().out
    assert "embeddings/s" in out and "per output token" not in out and "Decode" not in out and "decode" not in out
    assert "embeddings/s" in repr(e) and json.loads(json.dumps(e.to_dict()))["tpot_s"] is None


def test_a_folder_with_a_pooling_module_embeds(tmp_path: Path) -> None:
    plain, pooled = (load_model(folder(tmp_path / str(p), QWEN, p)) for p in (False, True))
    assert plain.head and not pooled.head
    assert plain.parameters == pooled.parameters  # the head was tied
    fields = QWEN | {"architectures": ["Qwen3ForSequenceClassification"]}
    assert not load_model(folder(tmp_path / "judge", fields)).head
    both_ways = load_model(folder(tmp_path / "both", QWEN | {"is_causal": False}))
    assert not both_ways.head and all(isinstance(b.mixer, Attention) and not b.mixer.causal for b in both_ways.blocks)


def test_tokens_that_see_all_others_cost_twice_the_scores(tmp_path: Path) -> None:
    """Every query sees n keys, not (n + 1) / 2; of a window of 128 no more than 128; and nothing is cached."""
    ask: dict[str, Any] = {"gpu": "a100", "batch": 8, "prompt": 4096, "efficiency": "ideal"}
    one, both = (rooflm.infer(folder(tmp_path / str(i), QWEN | more, True), **ask) for i, more in
                 enumerate(({}, {"is_causal": False})))  # fmt: skip

    def scores(e: Any) -> tuple[float, float]:
        found = [t for t in e.timed["prefill"] if t.node.kind == "attention"]
        return sum(t.node.count * t.node.flops for t in found), sum(t.total for t in found)

    for causal, whole in zip(scores(one), scores(both), strict=True):
        assert whole / causal == pytest.approx(4096 / 2048.5, rel=1e-9)
    assert one.memory.parts["kv_cache"] > 0 == both.memory.parts["kv_cache"]
    window = rooflm.infer("modernbert-base", **ask)
    kinds = {t.node.shape[7]: t.node.flops for t in window.timed["prefill"] if t.node.kind == "attention"}
    assert kinds[float("inf")] / kinds[128] == pytest.approx(4096 / 128)


def test_what_embeds_generates_nothing() -> None:
    for call, arguments in ((rooflm.infer, {"output": 3}), (rooflm.serve, {"rate": 1.0}), (rooflm.train, {"batch": 8}),
                            (rooflm.search_infer, {}), (rooflm.search_serve, {"rate": 1.0})):  # fmt: skip
        with pytest.raises(RooflmError, match="embeds texts"):
            call("bge-m3", gpu="a100", **arguments)
    grid = rooflm.infer(["bge-m3", "llama-3.1-8b"], gpu="a100", output=[1, 64])
    assert list(grid.fits.values.ravel()) == [True, False, True, True]


def test_encoders_are_counted_as_transformers_counts_them(tmp_path: Path) -> None:
    """Parameters on the meta device, default configurations of transformers 5.23."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    for family in ("bert", "xlm-roberta", "camembert", "distilbert", "mpnet", "modernbert", "eurobert", "nomic_bert"):
        config = transformers.AutoConfig.for_model(family)
        with torch.device("meta"):
            made = transformers.AutoModel.from_config(config)
        fields = json.loads(config.to_json_string(use_diff=False)) | {"architectures": [type(made).__name__]}
        found = load_model(folder(tmp_path / family, fields))
        assert int(found.parameters) == sum(p.numel() for p in made.parameters()), family
        assert not found.head


def test_embedding_models_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the page, as a draft, in a search of training, in pictures, and within their own context."""
    from rooflm.web.asked import read_query
    from rooflm.web.tabs.table import TABS

    tab = TABS["speed"]
    assert "bge-m3" in str(tab.answer(read_query("speed", tab.keys, {"model": "bge-m3"})))
    with pytest.raises(RooflmError, match="embeds texts"):
        rooflm.infer("llama-3.1-8b", gpu="h100", draft="bge-m3", guesses=2)
    assert main(["search", "train", "bge-m3", "--gpu", "h100", "--gpus", "8", "--batch", "64", "--seq", "512"]) == 2
    assert "embeds texts" in capsys.readouterr().err
    assert not rooflm.infer("bge-large-en-v1.5", gpu="h100", prompt=512).warnings
    drawn = tmp_path / "p.svg"
    words = ["infer", "bge-m3", "--gpu", "h100", "--batch", "1..4*2", "--plot", str(drawn), "--plot-kind", "parts"]
    assert main(words) == 0 and drawn.stat().st_size > 1000
    assert main(["infer", "bge-m3", "--gpu", "h100", "--outputs", "decode_parts_s"]) == 0


def test_small_things_that_a_reading_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "infer llama-3.1-8b --gpu h100 --batch 1,2 --set cluster.device.price=3 --outputs cost_usd_per_million_tokens"
    )
    assert main(words.split()) == 0
    assert "2.95" not in capsys.readouterr().out
    assert main(["infer", "llama-3.1-8b", "--gpu", "h100", "--batch", "1,2", "--out", str(tmp_path / "x.XLSX")]) == 0
    assert main(["infer", "qwen3-30b-a3b", "--gpu", "h100", "--set", "engine.kernels.skew=20"]) == 2
    narrow = rooflm.infer("qwen3-4b", gpu="rx-7900-xtx", engine="llama.cpp-vulkan", quant="bf16kv8")
    wide = rooflm.infer("qwen3-4b", gpu="rx-7900-xtx", engine="llama.cpp-vulkan", quant="bf16")
    assert narrow.ttft > 0.9 * wide.ttft  # type: ignore[union-attr]


@pytest.mark.parametrize(("engine", "most"), [("sglang", math.inf), ("vllm", math.inf), ("hf-eager", 7995)])
def test_what_leaves_nothing_behind_fits_in_any_batch(engine: str, most: float) -> None:
    e = rooflm.infer("bge-large-en-v1.5", gpu="h100", engine=engine)
    assert e.max_batch == most and e.fits
    many = rooflm.infer("bge-large-en-v1.5", gpu="h100", engine=engine, batch=100_000)
    assert bool(many.fits) == (most == math.inf)


def test_a_grid_of_what_embeds_counts_embeddings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "bge-large-en-v1.5", "--gpu", "l4", "--batch", "1,2"]) == 0
    head = capsys.readouterr().out.splitlines()[0].split()
    assert "embeddings/s" in head and "tokens/s" not in head and "TPOT" not in head
