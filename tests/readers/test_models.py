"""The catalogue of models: every row's parameter count against the published one, names, and files of one's own."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from rooflm.catalogue.model import INF, MLA, Attention, LinearAttention, MoE
from rooflm.errors import RooflmError, UnknownNameError
from rooflm.readers import rows as catalogue
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.rows import names
from rooflm.readers.schemes import parse_quant

NAMES = names("model")
FAMILIES = {
    "gpt2", "gpt3-125m", "gpt3-175b", "megatron-1.7b", "megatron-22b", "mt-nlg-530b", "megatron-1t", "opt-175b",
    "bloom-176b", "gpt-j-6b", "gpt-neox-20b", "pythia-12b", "llama-7b", "llama-33b", "llama-65b", "vicuna-13b",
    "llama-2-70b", "llama-3-8b", "llama-3.1-8b", "llama-3.1-405b", "llama-3.2-1b", "llama-3.3-70b", "llama-4-scout",
    "llama-4-maverick", "mistral-7b", "mixtral-8x7b", "mixtral-8x22b", "qwen2-72b", "qwen2.5-32b", "qwen3-32b",
    "qwen3-235b-a22b", "qwen3-next-80b-a3b", "qwen3.5-397b-a17b", "gemma-2-9b", "gemma-3-27b", "phi-4", "falcon-180b",
    "yi-34b", "deepseek-v2", "deepseek-v3", "deepseek-r1", "deepseek-v3.2", "kimi-k2", "gpt-oss-20b", "gpt-oss-120b",
    "glm-4.5", "glm-5", "minimax-m2", "nemotron-h-8b", "jamba-1.5-mini", "smollm2-135m",
}  # fmt: skip
EMBEDDING_AND_HEAD = 2
"""Makers count neither, one or both of these two matrices among the active parameters."""


@pytest.mark.parametrize("name", NAMES)
def test_parameter_count_is_the_published_one(name: str) -> None:
    model = load_model(name)
    count, published = model.parameters - model.tower_params, model.published_params
    tolerance = {"exact": 0.005, "rounded": 0.01}[model.params_kind]
    off = count / published - 1
    row = f"{name}: computed {count:,.0f}, published {published:,.0f} ({model.params_kind}), {off:+.3%}"
    assert abs(off) <= tolerance, row


def test_most_counts_are_exact_to_the_last_parameter() -> None:
    models = [load_model(n) for n in NAMES]
    exact = [m for m in models if m.params_kind == "exact"]
    off = {m.name: m.parameters - m.published_params for m in exact if m.parameters != m.published_params}
    assert len(exact) >= 130 and not off


@pytest.mark.parametrize("name", [n for n in NAMES if load_model(n).published_active])
def test_active_parameters_are_the_published_ones(name: str) -> None:
    model = load_model(name)
    most = model.active_parameters
    least = most - EMBEDDING_AND_HEAD * model.vocab * model.hidden
    printed = str(int(model.published_active))
    half_a_digit = min(10 ** (len(printed) - len(printed.rstrip("0"))), 10**9) / 2
    assert least - half_a_digit <= model.published_active <= most + half_a_digit
    assert most < model.parameters


def test_the_catalogue_covers_the_families() -> None:
    assert len(NAMES) >= 190
    assert not FAMILIES - set(NAMES)


def test_every_row_has_a_source_a_date_and_a_scheme_that_exists() -> None:
    for name in NAMES:
        model = load_model(name)
        assert len(model.source) > 10 and re.fullmatch(r"20\d\d-\d\d", model.date), name
        assert model.dtype in ("bf16", "fp16", "fp32") and model.norm in ("rms", "layer", "layer-no-bias"), name
        parse_quant(model.quant or model.dtype)


def test_names_and_aliases_are_unique_and_lower_case() -> None:
    seen: dict[str, str] = {}
    for path in sorted((catalogue.DATA / "models").glob("*.toml")):
        for name, row in tomllib.loads(path.read_text()).items():
            assert re.fullmatch(r"[a-z0-9.-]+", name), name
            for alias in {catalogue.normalise(a) for a in (name, *row.get("aliases", []))}:
                assert seen.setdefault(alias, name) == name, f"{alias} names both {seen[alias]} and {name}"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"), ("meta-llama/llama-3.1-8b-instruct", "llama-3.1-8b"),
        ("LLAMA3.1_405B", "llama-3.1-405b"), ("GPT-3 175B", "gpt3-175b"), ("huggyllama/llama-30b", "llama-33b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"), ("Qwen/Qwen3.5-397B-A17B", "qwen3.5-397b-a17b"),
        ("zhipuai/GLM-5", "glm-5"), ("MiniMaxAI/MiniMax-M2.5", "minimax-m2"), ("Megatron 22B", "megatron-22b"),
    ],
)  # fmt: skip
def test_aliases(asked: str, name: str) -> None:
    assert load_model(asked).name == name
    assert load_model(asked) is load_model(name)


def test_unknown_name_has_near_matches() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown model 'lama-2-7b': did you mean 'llama-2-7b'"):
        load_model("lama-2-7b")


def test_kinds_of_layers_are_what_the_models_have() -> None:
    for name in ("deepseek-v2", "deepseek-v3", "kimi-k2", "glm-5"):
        assert all(isinstance(b.mixer, MLA) for b in load_model(name).blocks)
        assert isinstance(load_model(name).blocks[-1].ffn, MoE)
    windows = {n: [b.mixer.window for b in load_model(n).blocks if isinstance(b.mixer, Attention)]
               for n in ("mistral-7b", "mistral-7b-v0.3", "gemma-3-27b", "gpt-oss-120b", "llama-4-scout")}  # fmt: skip
    assert windows == {"mistral-7b": [4096], "mistral-7b-v0.3": [INF], "gemma-3-27b": [1024, INF],
                       "gpt-oss-120b": [128, INF], "llama-4-scout": [8192, INF]}  # fmt: skip
    assert any(isinstance(b.mixer, LinearAttention) for b in load_model("qwen3.5-397b-a17b").blocks)
    layers = {"llama-3.1-405b": 126, "deepseek-v3": 61, "gemma-3-27b": 62, "qwen3.5-397b-a17b": 60,
              "nemotron-3-ultra-550b-a55b": 108, "jamba-1.5-large": 72}  # fmt: skip
    assert {n: load_model(n).layers for n in layers} == layers


OWN = """
hidden = 64
vocab = 1000
[[blocks]]
count = 2
mixer = {kind = "attention", heads = 4, kv_heads = 2, head_dim = 16}
ffn = {kind = "mlp", width = 128}
"""


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(OWN)
    model = load_model(path)
    assert (model.name, model.hidden, model.layers) == ("tiny", 64, 2)
    per_layer = 64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64
    assert model.parameters == 2 * 1000 * 64 + 2 * per_layer + 64


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("hidden = 64", 'hidden = "64"', "hidden is '64', but"),
        ("hidden = 64", "hidden = 0", "hidden is 0, but it must be a whole number of at least 1"),
        ("hidden = 64", "hiden = 64", "hiden"),
        ("vocab = 1000", "", "vocab"),
        ("vocab = 1000", "vocab = nan", "vocab is nan"),
        ("heads = 4", "heads = 4.5", "heads is 4.5"),
        ("kv_heads = 2", "kv_heads = 3", "must be a multiple of kv_heads 3"),
        ('kind = "mlp"', 'kind = "mpl"', "mpl"),
        ("width = 128", "width = true", "width is True, but"),
        ("width = 128", "with = 128", "with"),
        ("[[blocks]]", "[[blocks]", "not valid TOML"),
        ("count = 2", "count = -2", "count is -2"),
        ("hidden = 64", "hidden = 64\nwidth_scale = -1.0", "width_scale is -1, but it must be above 0"),
    ],
)
def test_a_damaged_file_of_ones_own_is_one_sentence(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    assert old in OWN
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(RooflmError) as error:
        load_model(path)
    message = str(error.value)
    assert sentence in message and "tiny.toml" in message and "\n" not in message


def test_absent_paths_are_one_sentence(tmp_path: Path) -> None:
    for name in (tmp_path / "no.toml", tmp_path / "no.json", tmp_path / "nowhere"):
        with pytest.raises(RooflmError, match="no"):
            load_model(name)
