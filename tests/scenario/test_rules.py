"""The rules of a split: alone a sentence, in a grid a mark, in a search left out; one list for the three."""

import itertools
import math

import numpy as np
import pytest

import rooflm
from rooflm.asked.build_inference import build_inference
from rooflm.asked.build_training import build_training
from rooflm.asked.refused import SENTENCES, nearest
from rooflm.asked.ways import tensor_ways
from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model
from rooflm.scenario.rules import INFERENCE, TRAINING, divisors, flags
from rooflm.search.splits import degrees

SERVED = [
    ("llama-7b", {"tp": 3}, "tp does not divide the heads", "try 2 or 4"),
    ("llama-7b", {"gpus": 6, "tp": 4}, "the degrees do not divide the GPUs", "tp 4 must divide it: try 4 or 8"),
    ("llama-7b", {"gpus": 8, "tp": 4, "dp": 4, "batch": 4}, "the degrees make another number of GPUs",
     "tp x pp x dp x cp is 16"),
    ("llama-7b", {"pp": 33}, "pp exceeds the layers", "use at most 32"),
    ("llama-7b", {"dp": 4, "batch": 2}, "dp exceeds the batch", "the batch has 2 sequences"),
    ("llama-7b", {"cached": 512}, "cached is not below the prompt", "must be below prompt (512)"),
    ("llama-7b", {"ep": 2}, "ep needs a mixture of experts", "leave ep at 1"),
    ("mixtral-8x7b", {"tp": 2, "dp": 4, "ep": 3, "batch": 4}, "ep does not divide the experts", "try 2 or 4"),
    ("mixtral-8x7b", {"tp": 2, "ep": 4}, "ep does not divide tp x dp", "try 1 or 2"),
    ("deepseek-v3", {"dp": 8, "ep": 8, "batch": 8, "sets": {"mapping.slices": 3}}, "slices do not divide ep / tp",
     "try 2 or 4"),
    ("llama-7b", {"sets": {"model.blocks.0.mixer.kv_heads": 64}}, "kv_heads does not divide the heads",
     "try 16 or 32"),
    ("mixtral-8x7b", {"sets": {"model.blocks.0.ffn.top_k": 9}}, "top_k exceeds the experts", "only 8 experts"),
    ("llama-7b", {"sets": {"model.depth_prune": 0.9}, "pp": 4}, "pp exceeds the layers", "use at most 3"),
    ("llama-7b", {"engine": "llama.cpp", "quant": "nvfp4"}, "the engine does not run the scheme", "try q4_0"),
    ("llama-7b", {"engine": "vllm", "quant": "q4_k_m"}, "the engine does not run the scheme", "try int4 or awq"),
    ("llama-7b", {"engine": "ollama", "tp": 2}, "the engine has no tensor groups", "leave it out"),
    ("llama-7b", {"engine": "llama.cpp", "tp": 16}, "the engine has no tensor groups over machines",
     "devices of one machine alone: try pp or dp"),
    ("llama-7b", {"engine": "tgi", "pp": 2}, "the engine has no pipeline stages", "leave it out"),
    ("llama-7b", {"engine": "tgi", "cp": 2}, "the engine has no context groups", "leave it out"),
    ("llama-7b", {"engine": "llama.cpp", "tp": 2, "pp": 2}, "the engine does not mix tp and pp", "make the other 1"),
    ("mixtral-8x7b", {"engine": "llama.cpp", "tp": 2, "ep": 2}, "the engine spreads experts otherwise",
     "leave ep at 1"),
    ("deepseek-v3", {"engine": "vllm", "tp": 8, "ep": 4}, "the engine spreads experts otherwise", "try 1 or 8"),
    ("llama-7b", {"engine": "vllm", "quant": "fp8kv4"}, "the engine keeps no such cache", "keeps 32, 16 or 8"),
    ("llama-7b", {"engine": "vllm", "cpu_layers": 4}, "the engine runs nothing on the host",
     "runs nothing on the host"),
    ("llama-7b", {"engine": "llama.cpp", "adapters": 2}, "the engine serves no adapters", "several adapters at once"),
    ("llama-7b", {"engine": "llama.cpp", "cpu_experts": 4}, "cpu_experts needs a mixture of experts", "has no experts"),
    ("llama-7b", {"engine": "llama.cpp", "cpu_layers": 32}, "the host holds more layers than there are",
     "holds at least one"),
    ("llama-7b", {"guesses": 3, "accepted": 9}, "a step gains more than its guesses", "gains at most 4"),
    ("llama-7b", {"sets": {"cluster.device.tdp": 1.0}}, "TDP is not above idle power", "takes while idle"),
    ("bge-m3", {"output": 2}, "the model embeds texts: no output follows", "output is 2"),
]  # fmt: skip
TRAINED = [
    ("bge-m3", {}, "the model has no head to train", "only models that predict tokens"),
    ("gpt3-175b", {"tp": 5}, "tp does not divide the heads", "try 4 or 6"),
    ("gpt3-175b", {"gpus": 8, "pp": 3}, "the degrees do not divide the GPUs", "pp 3 must divide it"),
    ("gpt3-175b", {"pp": 8, "vp": 13}, "pp x vp exceeds the layers", "try vp 12"),
    ("gpt3-175b", {"pp": 8, "sets": {"training.last_layers": 90}}, "the last stage leaves none to the others", "89"),
    ("gpt3-175b", {"dp": 3}, "dp x micro_batch does not divide the batch", "try 63"),
    ("gpt3-175b", {"cp": 3}, "cp does not divide seq", "try seq 2049, or on another number of GPUs cp 2 or 4"),
    ("gpt3-175b", {"gpus": 12, "cp": 12}, "cp does not divide seq", "or cp 2 or 4"),
    ("gpt3-175b", {"dp": 8, "fsdp_group": 3}, "fsdp_group does not divide dp x cp", "dp x cp = 8: try 2 or 4"),
    ("gpt3-175b", {"pp": 8, "vp": 2, "batch": 12}, "interleaving needs a multiple of pp micro-batches",
     "make batch a multiple of 8"),
    ("gpt3-175b", {"sets": {"training.flushes": 3}}, "flushes does not divide the micro-batches", "try 2 or 4"),
    ("gpt3-175b", {"sets": {"training.in_backward": True}}, "in_backward needs one micro-batch a step", "of 64 micro"),
    ("mixtral-8x7b", {"tp": 2, "dp": 2, "ep": 8}, "ep does not divide tp x cp x dp", "try 2 or 4"),
    ("mixtral-8x7b", {"dp": 8, "ep": 8, "sets": {"training.imbalance": 4.5}}, "a rank has more tokens than all",
     "use at most 4"),
    ("mixtral-8x7b", {"dp": 2, "ep": 2, "sets": {"training.imbalance": 3}}, "a rank has more tokens than all",
     "use at most 2"),
    ("llama-7b", {"dtype": "nvfp4"}, "the device does not multiply in such a type", "try fp8 or bf16"),
    ("llama-7b", {"dtype": "mxfp8"}, "the device does not multiply in such a type", "try fp8 or bf16"),
    ("llama-7b", {"dtype": "int8"}, "the engine does not run the scheme", "dtype is int8, but engine megatron"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "split", "reason", "says"), SERVED)
def test_a_split_of_serving(model, split, reason, says):
    with pytest.raises(RooflmError) as error:
        rooflm.infer(model, gpu="h100", **split)
    assert says in str(error.value) and "\n" not in str(error.value)
    grid = rooflm.infer_grid(model, gpu=["h100", "a100"], **split)
    assert set(grid["reason"].values) == {reason} and not grid["fits"].any()


@pytest.mark.parametrize(("model", "split", "reason", "says"), TRAINED)
def test_a_split_of_training(model, split, reason, says):
    split = {"batch": 64, **split}
    with pytest.raises(RooflmError) as error:
        rooflm.train(model, gpu="h100", **split)
    assert says in str(error.value) and "\n" not in str(error.value)
    grid = rooflm.train_grid(model, gpu=["h100", "a100"], **split)
    assert set(grid["reason"].values) == {reason} and not grid["fits"].any()


def test_a_card_without_bf16_trains_in_fp16():
    with pytest.raises(RooflmError, match="dtype is bf16, but v100-sxm-32gb has no rate of its own for it"):
        rooflm.train("llama-7b", gpu="v100-sxm-32gb", gpus=8, batch=8, dtype="bf16")
    usual = rooflm.train("llama-7b", gpu="v100-sxm-32gb", gpus=8, batch=8)
    assert (
        "dtype fp16" in usual.assumed
        and usual.step_time == rooflm.train("llama-7b", gpu="v100-sxm-32gb", gpus=8, batch=8, dtype="fp16").step_time
    )
    assert rooflm.train("llama-7b", gpu="b200", gpus=8, batch=8, dtype="mxfp8").step_time > 0


def test_every_rule_is_tested():
    """But for the indexer's, which no model of the catalogue breaks, and training's that are serving's too."""
    assert {r.reason for r in INFERENCE} - {row[2] for row in SERVED} == {"the indexer has no heads"}
    assert {r.reason for r in TRAINING} - {row[2] for row in SERVED + TRAINED} == {"the indexer has no heads"}


def test_a_fixed_degree_marks_only_the_models_that_it_does_not_suit():
    grid = rooflm.infer(["llama-7b", "llama-33b"], gpu="a100", tp=8)
    assert grid["reason"].values.tolist() == ["", "tp does not divide the heads"]


@pytest.mark.parametrize("model", ["llama-7b", "mixtral-8x7b", "jamba-1.5-mini", "qwen3-30b-a3b"])
def test_a_search_lists_the_splits_that_break_no_rule(model):
    """All of tp x pp x dp x ep on eight GPUs: those that break no rule are those that a search tries."""
    legal = set()
    for tp, pp, ep in itertools.product(range(1, 9), repeat=3):
        if 8 % (tp * pp) == 0:
            split = {"tp": tp, "pp": pp, "dp": 8 // (tp * pp), "ep": ep}
            s = build_inference(model=model, gpu="h100", batch=8, engine="ideal", alone=False, **split).scenario
            if not any(np.any(flag) for flag in flags(s, INFERENCE).values()):
                legal.add(tuple(split.values()))
    assert legal == set(degrees(rooflm.load_model(model), [8], {}))


def test_a_point_that_breaks_no_rule_has_no_flag():
    s = build_training(model="gpt3-175b", gpu="a100", tp=8, pp=8, batch=64).scenario
    assert not any(np.any(flag) for flag in flags(s, TRAINING).values())


def test_frameworks_of_training_split_heads_of_keys_too():
    model = load_model("llama-3.1-8b")
    assert (tensor_ways(model), tensor_ways(model, shared=True)) == (32, 8)


def test_divisors_of_large_numbers_come_at_once():
    assert divisors(2**40, 8) == [1, 2, 4, 8]
    assert nearest(divisors(math.factorial(12)), 1000) == "990 or 1008"


def test_every_rule_has_a_sentence_and_no_sentence_lacks_a_rule() -> None:
    assert {rule.reason for rule in (*INFERENCE, *TRAINING)} == SENTENCES.keys()
