"""Shapes to parameter counts, scaling and pruning, and the rules that a model must keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rooflm.catalogue.model import (
    INF,
    MLA,
    MLP,
    Attention,
    Block,
    LinearAttention,
    Model,
    MoE,
    ffn_params,
    mixer_params,
)
from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.models import checked

LLAMA = Model("llama-7b", 4096, 32000, (Block(32, Attention(32, 32, 128), MLP(11008)),))


@pytest.mark.parametrize(
    ("mixer", "hidden", "by_hand"),
    [
        (Attention(4, 4, 8), 32, 4 * 32 * 32),
        (Attention(4, 2, 8), 32, 2 * 32 * 32 + 2 * 32 * 16),
        (Attention(4, 1, 8, bias=True, out_bias=True), 32, 2 * 32 * 32 + 2 * 32 * 8 + (32 + 8 + 8) + 32),
        (Attention(4, 2, 8, value_dim=4), 32, 32 * 32 + 32 * 16 + 32 * 8 + 16 * 32),
        (Attention(4, 2, 8, qk_norm=True, gate=True), 32, 3 * 32 * 32 + 2 * 32 * 16 + 2 * 8),
        # DeepSeek-V2-Lite: no low-rank queries: q, latent with its norm, expansion, output
        (MLA(16, 0, 512, 128, 64, 128), 2048, 2048 * 16 * 192 + 2048 * 576 + 512 + 512 * 16 * 256 + 2048 * 2048),
        # DeepSeek-V3 (arXiv 2412.19437): 187,107,328 = 61 layers' attention over 61
        (MLA(128, 1536, 512, 128, 64, 128), 7168, 187107328),
        # Nemotron-H 8B's Mamba-2: in, conv with bias, A, D and dt bias, norm, out
        (LinearAttention("mamba2", 128, 64, 8, 128), 4096,
         4096 * (2 * 8192 + 2 * 1024 + 128) + 5 * 10240 + 3 * 128 + 8192 + 8192 * 4096),
        # Qwen3-Next's gated DeltaNet: q, k, v, z, b, a, conv, A and dt bias, norm, out
        (LinearAttention("gated-delta", 32, 128, 16, 128), 2048,
         2048 * (2 * 2048 + 2 * 4096 + 64) + 4 * 8192 + 64 + 128 + 4096 * 2048),
        (None, 4096, 0),
    ],
)  # fmt: skip
def test_mixer_params_by_hand(mixer: Attention | MLA | LinearAttention | None, hidden: int, by_hand: int) -> None:
    assert mixer_params(mixer, hidden) == by_hand


@pytest.mark.parametrize(
    ("ffn", "hidden", "total", "active"),
    [
        (MLP(64), 32, 3 * 32 * 64, 3 * 32 * 64),
        (MLP(64, gated=False, bias=True), 32, 2 * 32 * 64 + 64 + 32, 2 * 32 * 64 + 64 + 32),
        (MoE(8, 2, 64), 32, 8 * 3 * 32 * 64 + 8 * 32, 2 * 3 * 32 * 64 + 8 * 32),
        (MoE(8, 2, 64, 16, shared_gate=True), 32, 8 * 6144 + 256 + 3 * 32 * 16 + 32, 2 * 6144 + 256 + 3 * 32 * 16 + 32),
        (MoE(8, 2, 64, router_bias=True), 32, 8 * 6144 + 256 + 8, 2 * 6144 + 256 + 8),
        # LatentMoE: experts see 16 values, one projection down and one up, the router sees 32
        (MoE(8, 2, 64, gated=False, latent=16), 32, 8 * 2 * 16 * 64 + 2 * 32 * 16 + 256,
         2 * 2 * 16 * 64 + 2 * 32 * 16 + 256),
        (MoE(4, 1, 8, bias=True), 6, 4 * (3 * 6 * 8 + 2 * 8 + 6) + 4 * 6 + 4, 3 * 6 * 8 + 2 * 8 + 6 + 4 * 6 + 4),
        (None, 32, 0, 0),
    ],
)  # fmt: skip
def test_ffn_params_by_hand(ffn: MLP | MoE | None, hidden: int, total: int, active: int) -> None:
    assert ffn_params(ffn, hidden) == total
    assert ffn_params(ffn, hidden, active=True) == active


def test_parameters_of_llama_7b_and_what_each_switch_adds() -> None:
    assert LLAMA.parameters == 6738415616
    assert replace(LLAMA, tied=True).parameters == 6738415616 - 32000 * 4096
    assert replace(LLAMA, norm="layer").parameters == 6738415616 + 65 * 4096
    assert replace(LLAMA, positions=2048, head_bias=True).parameters == 6738415616 + 2048 * 4096 + 32000


def test_arrays_and_broadcasting_give_the_scalars_numbers() -> None:
    hidden, layers = np.array([[2048.0], [4096.0]]), np.array([16.0, 32.0, 64.0])
    model = Model("grid", hidden, 32000, (Block(layers, Attention(32, 32, 128), MLP(11008)),))
    grid = model.parameters
    assert np.shape(grid) == (2, 3)
    assert grid[1, 1] == 6738415616
    for i in range(2):
        for j in range(3):
            block = Block(float(layers[j]), Attention(32, 32, 128), MLP(11008))
            assert grid[i, j] == Model("point", float(hidden[i, 0]), 32000, (block,)).parameters


def test_neutral_scales_change_nothing() -> None:
    assert LLAMA.scaled is LLAMA
    assert replace(LLAMA, width_scale=1.0, depth_prune=0.0).parameters == LLAMA.parameters


def test_depth_scale_and_prune_change_the_layers_only() -> None:
    half = replace(LLAMA, depth_scale=0.5)
    assert half.layers == 16 and half.scaled.hidden == 4096
    outside = 2 * 32000 * 4096 + 4096
    assert half.parameters - outside == (LLAMA.parameters - outside) / 2
    # Shortened LLaMA (arXiv 2402.02834): 32 blocks less 27 % leave 23
    assert replace(LLAMA, depth_prune=0.27).layers == 23
    assert replace(LLAMA, depth_scale=0.73).layers == 23


def test_width_scale_widens_hidden_heads_and_feed_forward() -> None:
    wide = replace(LLAMA, width_scale=2).scaled
    block = wide.blocks[0]
    assert wide.hidden == 8192 and block.count == 32
    assert block.mixer == Attention(64, 64, 128) and block.ffn == MLP(22016)


def test_width_prune_keeps_the_hidden_size() -> None:
    thin = replace(LLAMA, width_prune=0.25).scaled
    block = thin.blocks[0]
    assert thin.hidden == 4096
    assert block.mixer == Attention(24, 24, 128) and block.ffn == MLP(8256)


def test_scaling_keeps_a_window_a_parallel_block_and_absent_parts() -> None:
    scaled = replace(load_model("gemma-2-9b"), width_scale=2).scaled
    assert [b.mixer.window for b in scaled.blocks if isinstance(b.mixer, Attention)] == [4096, INF]
    assert replace(load_model("falcon-7b"), depth_scale=0.5).scaled.blocks[0].parallel
    hybrid = replace(load_model("nemotron-3-super-120b-a12b"), width_scale=0.5).scaled
    assert hybrid.blocks[0].ffn is None and hybrid.blocks[1].mixer is None
    lite = replace(load_model("deepseek-v2-lite"), width_scale=0.5).scaled
    assert isinstance(lite.blocks[0].mixer, MLA) and lite.blocks[0].mixer.q_rank == 0


def test_pruning_to_nothing_leaves_one_of_each() -> None:
    least = replace(LLAMA, width_prune=1.0, depth_prune=1.0).scaled
    assert least.layers == 1
    assert least.blocks[0].mixer == Attention(1, 1, 128) and least.blocks[0].ffn == MLP(1)


def test_a_scale_may_be_an_axis() -> None:
    swept = replace(LLAMA, depth_scale=np.array([0.5, 1.0, 2.0]))
    assert list(swept.layers) == [16, 32, 64]
    assert swept.parameters[1] == 6738415616


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden": 0}, "hidden is 0, but it must be a whole number of at least 1"),
        ({"vocab": -5}, "vocab is -5"),
        ({"hidden": 4096.5}, "hidden is 4096.5, but it must be a whole number"),
        ({"hidden": float("nan")}, "hidden is nan"),
        ({"hidden": float("inf")}, "hidden is inf"),
        ({"max_context": 0}, "max_context is 0"),
        ({"published_params": -1.0}, "published_params is -1, but it must be 0 or more"),
        ({"blocks": ()}, "blocks is empty"),
        ({"blocks": (Block(32, None, None),)}, r"blocks\[0\] is empty"),
        ({"blocks": (Block(0, None, MLP(8)),)}, r"blocks\[0\].count is 0"),
        ({"blocks": (Block(1, Attention(32, 5, 128), None),)}, "heads is 32, but it must be a multiple of kv_heads 5"),
        ({"blocks": (Block(1, None, MoE(8, 9, 64)),)}, "top_k is 9, but there are only 8 experts"),
        ({"blocks": (Block(1, Attention(8, 8, 64, window=0), None),)}, r"blocks\[0\].mixer.window is 0"),
    ],
)
def test_shapes_that_make_no_sense_are_one_sentence(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(RooflmError, match=sentence):
        checked(replace(LLAMA, **change), "model 'x'")
    assert checked(LLAMA, "model 'x'") is LLAMA


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.77])
def test_pruned_depth_is_whole_layers_of_the_model(share: float) -> None:
    pruned = replace(load_model("longcat-flash"), depth_prune=share)
    assert pruned.layers == round(28 * (1 - share))
    assert pruned.scaled.blocks[0].count == 2 * pruned.scaled.blocks[1].count
