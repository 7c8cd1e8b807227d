"""The backward rules against counts made by hand."""

from __future__ import annotations

from one_layer import H, S, layer, products
from rooflm.catalogue.model import MoE
from rooflm.graph.backward import Rules, adapters, backward, backward_op, quantisation, recomputed
from rooflm.graph.ops import Comm, Op, bmm, distinct, gemm, stream
from rooflm.kernels.dispatch import _key
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.training import Training


def test_forward_and_backward_flops_of_a_layer() -> None:
    # 24 s h^2 + 4 s^2 h forward (Korthikanti, appendix A, b = 1); backward twice that
    forward = layer(Mapping())
    want = 24 * S * H**2 + 4 * S**2 * H
    assert products(forward) == want
    assert products(backward(forward, Rules())) == 2 * want
    # split over two ranks each does half
    assert products(layer(Mapping(tp=2))) == want / 2


def test_flash_attention_backward_is_two_and_a_half() -> None:
    op = Op("attention", "attention", "attention", 3, 100.0, 10.0)
    (back,) = backward_op(op, Rules())
    assert isinstance(back, Op)
    assert back.count * back.flops == 2.5 * 300


def test_frozen_products_have_no_wgrad() -> None:
    op = gemm("up", "mlp", 1, 4, 8, 16, (2, 2, 2))
    assert [o.name for o in backward_op(op, Rules(weights=0.0))] == ["up_dgrad"]
    half = backward_op(op, Rules(weights=0.5))
    assert sum(o.count * o.flops for o in half if isinstance(o, Op)) == 1.5 * op.flops


def test_every_node_says_what_it_does_and_for_which_module() -> None:
    forward = layer(Mapping(), ffn=MoE(8, 2, 512, True, 256))
    back = [op for op in backward(forward, Rules()) if isinstance(op, Op)]
    products_of = {op.of for op in forward if isinstance(op, Op) and op.kind == "gemm"}
    assert {op.role for op in forward if isinstance(op, Op)} == {"forward"}
    assert {op.of for op in back if op.role == "wgrad"} == products_of  # each product has weights of its own
    assert {op.role for op in back} == {"dgrad", "wgrad"}
    assert {op.name for op in forward if isinstance(op, Op) and op.of == "experts"} == {
        "permute", "experts_up", "experts_activation", "experts_down",
    }  # fmt: skip
    # the shared expert's products are asked for by the names of the dense layer's
    assert {op.name for op in forward if isinstance(op, Op) and op.of == "down"} == {"shared_down"}


def test_shapes_and_bytes_of_the_backward_products() -> None:
    dgrad, wgrad = backward_op(gemm("up", "mlp", 1, 4, 8, 16, (2, 2, 2)), Rules(grad_bytes=4))
    assert isinstance(dgrad, Op)
    assert isinstance(wgrad, Op)
    assert dgrad.shape[:3] == (4, 16, 8)
    assert wgrad.shape == (16, 8, 4)
    # reads x (4 x 16) and dy (4 x 8) at 2 bytes, reads and writes the fp32 gradient (16 x 8)
    assert wgrad.bytes == 2 * (4 * 16 + 4 * 8) + 2 * 4 * 16 * 8


def test_grouped_products() -> None:
    op = gemm("experts_up", "moe", 1, 512, 64, 32, (2, 2, 2), groups=8)
    dgrad, wgrad = backward_op(op, Rules(grad_bytes=4))
    assert isinstance(dgrad, Op)
    assert isinstance(wgrad, Op)
    assert op.flops == dgrad.flops == wgrad.flops == 2 * 512 * 64 * 32
    assert wgrad.bytes == 2 * 512 * (64 + 32) + 2 * 4 * 8 * 64 * 32


def test_communication_of_a_layer() -> None:
    # Megatron: two all-reduces forward, two backward, of s h values; with sequence parallelism each a
    # reduce-scatter and an all-gather, and two inputs gathered once more for the weight gradients
    plain = layer(Mapping(tp=8))
    assert [c.op for c in plain if isinstance(c, Comm)] == ["all_reduce"] * 2
    assert [c.op for c in backward(plain, Rules()) if isinstance(c, Comm)] == ["all_reduce"] * 2
    assert {float(c.bytes) for c in plain if isinstance(c, Comm)} == {2.0 * S * H}
    sp = layer(Mapping(tp=8, sp=True))
    assert sorted(c.op for c in sp if isinstance(c, Comm)) == ["all_gather"] * 2 + ["reduce_scatter"] * 2
    back = [c for c in backward(sp, Rules(sequence_parallel=True)) if isinstance(c, Comm)]
    assert sorted(c.op for c in back) == ["all_gather"] * 4 + ["reduce_scatter"] * 2
    assert sum(c.part == "tp_regather" for c in back) == 2


def test_recomputation() -> None:
    forward = layer(Mapping(tp=2))
    assert recomputed(forward, "none") == []
    core = recomputed(forward, "selective")
    assert [n.name for n in core] == ["scores", "softmax", "values"]
    assert products(core) == 4 * S**2 * H / 2
    assert recomputed(forward, "full") == forward
    assert products(recomputed(forward, "block", 0.25)) == products(forward) / 4
    assert recomputed(layer(Mapping(), flash=True), "selective") == []


def test_streams_and_batched_products() -> None:
    (act,) = backward_op(stream("activation", "mlp", "activation", 1, 300.0), Rules())
    assert isinstance(act, Op)
    assert act.bytes == 500.0
    (back,) = backward_op(bmm("scores", "attention", 1, 64, 64, 8, 4, 2), Rules())
    assert isinstance(back, Op)
    assert back.count * back.flops == 2 * 2 * 64 * 64 * 8


def test_adapters_and_casts() -> None:
    op = gemm("up", "mlp", 2, 4, 8, 16, (2, 2, 2), "quant")
    extra = adapters([op], Training(lora_rank=2, lora_modules=("up",)))
    assert [n.name for n in extra] == ["lora_a", "lora_b", "lora_add"]
    assert products(extra) == 2 * 2 * 4 * 2 * (16 + 8)
    assert adapters([op], Training(lora_rank=2, lora_modules=("out",))) == []
    apart = adapters([op], Training(lora_rank=2, lora_modules=("up",)), 15.0)
    assert [float(n.bytes) for n in apart if isinstance(n, Op) and n.name in ("lora_in", "lora_add")] == [
        4 * 16 * 15.0, 4 * 8 * 10.0]  # fmt: skip
    # bitsandbytes' layers leave types to autocast: no more than in 16 bits
    narrow = adapters([op], Training(lora_rank=2, lora_modules=("up",), base_bits=4), 15.0)
    assert float(narrow[0].bytes) == 4 * 16 * 5.0 and products(narrow) == products(extra)  # type: ignore[union-attr]
    narrow = op._replace(widths=(1.0, 1.0, 2.0))
    (cast,) = quantisation([narrow], 0.5)
    assert isinstance(cast, Op)
    assert cast.bytes == 4 * 16 * 4 + 0.5 * 8 * 16 * 4


def test_routed_experts_have_an_adapter_each_or_one_for_all_of_a_rank() -> None:
    """Where they are named: 32 experts of 64 rows each, as many calls as their own products (ms-swift); or one pair of
    plain products over all rows (Megatron-Bridge, share_expert_adapters)."""
    op = gemm("experts_up", "moe", 1, 2048, 96, 64, (2, 2, 2), "quant", 32, "experts", 32)
    assert adapters([op], Training(lora_rank=4)) == []
    for name, sets, launches in (("experts", 32, 32), ("experts_shared", 1, 1)):
        a, b, add = (n for n in adapters([op], Training(lora_rank=4, lora_modules=("qkv", name))) if isinstance(n, Op))
        assert products([a, b]) == 2 * 2048 * 4 * (64 + 96)
        assert (a.launches, b.launches, add.bytes) == (launches, launches, 2048 * 96 * 6)
        assert (a.bytes, b.bytes) == (2 * (2048 * (64 + 4) + sets * 64 * 4), 2 * (2048 * (4 + 96) + sets * 4 * 96))


def test_a_backward_kernel_is_timed_by_its_own_constants() -> None:
    """It has the shape and bytes of the forward one: what evaluates equal kernels once must tell them apart."""
    forward = next(op for op in layer(Mapping(), flash=True) if isinstance(op, Op) and op.name == "attention")
    twice = forward._replace(name="attention_backward")
    assert len(distinct([_key(op) for op in (forward, forward, twice)])[0]) == 2
    assert len(distinct([_key(op) for op in (forward, forward._replace(count=7.0))])[0]) == 1
    assert len(distinct([_key(op) for op in (forward, forward._replace(flops=forward.flops * 2))])[0]) == 2


def test_adapters_of_keys_and_values_stand_alone() -> None:
    # Llama 2 7B: q is 4096 x 4096, keys and values are one product of 4096 x 8192, with an adapter each
    both = gemm("kv", "attention", 1, 8, 8192, 4096, (2, 2, 2), launches=2)._replace(columns=(4096, 4096))
    ops = [gemm("q", "attention", 1, 8, 4096, 4096, (2, 2, 2)), both]

    def params(*modules: str) -> float:
        made = adapters(ops, Training(lora_rank=16, lora_modules=modules))
        return sum(float(n.count * n.shape[1] * n.shape[2]) for n in made if isinstance(n, Op) and n.kind == "gemm")

    assert params("q") == params("v") == params("k") == 16 * 8192
    assert params("q", "v") == 2 * 16 * 8192
    assert params("kv") == params("k", "v") == 2 * 16 * 8192
    assert params("qkv") == params("q", "kv") == 3 * 16 * 8192
