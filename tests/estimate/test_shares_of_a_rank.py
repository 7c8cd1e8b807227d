"""What a rank holds of a layer, a stage, a cache and an expert, by hand."""

from __future__ import annotations

from rooflm.catalogue.model import MLP, Attention, Block, CompressedAttention, Model
from rooflm.catalogue.quant import Quant
from rooflm.estimate.memory import block_shard, compressed_bytes, extra_share, stage_share
from rooflm.kernels.expert_kernels import busiest_share, filled
from rooflm.scenario.mapping import Mapping


def test_a_tensor_group_of_two_halves_the_matrices() -> None:
    block = Block(1, Attention(32, 32, 128), MLP(11008))
    shard = block_shard(Model("m", 4096, 32000, (block,)), block, Mapping(tp=2))
    assert (shard["attention"] + shard["mlp"]) * 2 == 4 * 4096**2 + 3 * 4096 * 11008


def test_the_fullest_of_twelve_stages_has_seven_of_78_layers() -> None:
    model = Model("m", 64, 100, (Block(78, Attention(1, 1, 64), MLP(64)),))
    assert stage_share(model, 12) * 78 == 7


def test_a_table_narrower_than_the_model_is_split_as_the_table() -> None:
    assert extra_share(Model("m", 64, 100, (), extra_params=-80), Mapping(tp=8)) == -10


def test_compressed_attention_keeps_a_window_entries_and_a_tail() -> None:
    a = CompressedAttention(64, 1024, 448, 448, 64, 512, ratio=128, out_groups=8)
    assert compressed_bytes(a, Quant("bf16"), 131072) == (128 + 1024) * 1024 + 2 * 128 * 512 * 4


def test_marlin_stores_whole_tiles() -> None:
    assert filled("marlin", "mxfp4", 2880, 360) == (3072, 384)
    assert filled("cutlass", "fp8", 2880, 360) == (2880, 360)


def test_the_busiest_multiprocessor_has_more_than_its_share() -> None:
    assert busiest_share(4.0, 1.0, 132.0) == 1
    assert busiest_share(4.0, 0.1, 132.0) > 0.1
