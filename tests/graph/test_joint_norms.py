"""Norms of queries and keys over all heads, whose squares a tensor group adds up (docs/decisions/0304)."""

import json
from pathlib import Path

import pytest

import rooflm
from rooflm.catalogue.model import Attention
from rooflm.graph.ops import Comm

SETTING = {"gpu": "h100", "gpus": 8, "tp": 8, "batch": 4, "prompt": 1024, "output": 64}


def sums(engine: str, model: str = "minimax-m2", **more: object) -> list[Comm]:
    """The all-reduces of such norms in a decode step."""
    timed = rooflm.infer(model, engine=engine, **{**SETTING, **more}).timed["decode"]
    return [t.node for t in timed if isinstance(t.node, Comm) and t.node.name == "norm_all_reduce"]


def test_two_sums_of_a_token_go_around_in_every_layer() -> None:
    (found,) = sums("sglang-0.5.10")
    assert (int(found.count), float(found.bytes), int(found.ranks)) == (62, 4 * 2 * 4.0, 8)


@pytest.mark.parametrize("engine", ["sglang-0.5.11", "sglang-0.5.14", "vllm", "trtllm"])
def test_a_kernel_that_holds_both_sends_none_of_its_own(engine: str) -> None:
    assert not sums(engine)


def test_one_device_and_norms_of_each_head_have_none() -> None:
    assert not sums("sglang", gpus=1, tp=1, gpu="b300")
    assert not sums("sglang", "qwen3-235b-a22b")


def test_the_step_is_longer_by_what_they_take() -> None:
    with_them, without = (
        rooflm.infer("minimax-m2", engine="sglang-0.5.10", **SETTING, sets={"engine.norm_reduce": on})
        for on in (True, False)
    )
    assert 62 * 4e-6 < float(with_them.tpot - without.tpot) < 62 * 20e-6


def test_a_config_of_the_family_says_so_too(tmp_path: Path) -> None:
    config = {
        "model_type": "olmo2", "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
        "intermediate_size": 4096, "vocab_size": 1000, "max_position_embeddings": 2048,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    mixer = rooflm.load_model(str(tmp_path / "config.json")).blocks[0].mixer
    assert isinstance(mixer, Attention) and mixer.joint_norm
