"""What older releases of vLLM do with mixtures over nodes: caches, graphs and exchanges (docs/decisions/0450)."""

import pytest

import rooflm

RUN = {"gpu": "h200", "tp": 8, "quant": "fp8-block", "batch": 4, "prompt": 1024, "output": 2}


def test_keys_and_values_of_every_head_are_cached_before_latents_are() -> None:
    """61 layers of 128 heads, of 256 values each, and as many values, in 16 bits on eight ranks; then 576 a token."""
    old, new = (rooflm.infer("deepseek-v3", engine=f"vllm-{release}", **RUN) for release in ("0.7.0", "0.7.1"))
    held = 4 * (1024 + 16)  # whole blocks of 16
    assert float(old.memory.parts["kv_cache"]) == pytest.approx(held * 61 * 2 * 128 / 8 * 256 * 2)
    assert float(new.memory.parts["kv_cache"]) == pytest.approx(held * 61 * 576 * 2)
    nodes = {t.node.name: t.node for t in old.timed["decode"]}
    assert {"kv_up", "attention"} <= nodes.keys() and "q_absorb" not in nodes
    assert nodes["attention"].kind == "decode_attention"
    kept = [0, 256]
    case = {**RUN, "engine": "vllm-0.7.1"}
    grid = rooflm.infer("deepseek-v3", **case, sets={"engine.head_kept": kept})
    each = [float(rooflm.infer("deepseek-v3", **case, sets={"engine.head_kept": n}).ttft) for n in kept]
    assert grid["ttft_s"].values == pytest.approx(each)


def test_no_graph_holds_256_experts_that_allocate_memory() -> None:
    """DeepSeek-V3 in vLLM 0.6 waits for its host: some 10 tokens/s on eight H200 (github.com/deepseek-ai/DeepSeek-V3,
    issue 24). Other models have graphs."""
    tpot = float(rooflm.infer("deepseek-v3", engine="vllm-0.6.6", **RUN | {"batch": 1, "prompt": 200}).tpot)
    assert 0.085 < tpot < 0.115
    other = [float(rooflm.infer("llama-3.1-8b", gpu="h100", engine=f"vllm-{r}").tpot) for r in ("0.6.6", "0.7.3")]
    assert other[0] == other[1]


def test_a_naive_exchange_sends_all_tokens_of_every_group_to_every_rank() -> None:
    """Eight groups of four ranks, 256 tokens of 7,168 values in 16 bits each: eight broadcasts and a sum of all."""
    run = {"gpu": "h200", "tp": 4, "dp": 8, "ep": 32, "quant": "fp8-block", "batch": 2048}
    timed = {
        release: {t.node.name: t for t in rooflm.infer("deepseek-v3", engine=f"vllm-{release}", **run).timed["decode"]}
        for release in ("0.10.1", "0.10.2")
    }
    sent, summed = (timed["0.10.1"][name].node for name in ("ep_dispatch", "ep_combine"))
    assert (sent.op, sent.count, sent.bytes, sent.ranks, sent.stride) == ("broadcast", 8 * 58, 256 * 7168 * 2, 8, 4)
    assert (summed.op, summed.count, summed.bytes, summed.ranks) == ("all_reduce", 58, 2048 * 7168 * 2, 8)
    old, new = (
        sum(float(t[name].time * t[name].node.count) for name in ("ep_dispatch", "ep_combine")) for t in timed.values()
    )
    assert old > 3 * new


def test_scattered_tokens_of_a_tensor_group_travel_and_are_summed_once_a_layer() -> None:
    """SGLang's communicator.py: with DeepEP a rank of a tensor group keeps its share of the tokens between attention's
    reduce-scatter and the next layer's gather, an all-reduce together. 128 tokens a rank over EFA took 219 us in 8 bits
    and 326 back in 16, by a proxy on the CPU (uccl-project/uccl, pull request 745; of 288 experts, not 256)."""
    run = {"gpu": "h200", "cluster": "aws-p5en", "engine": "sglang-0.5.10", "tp": 16, "ep": 16, "quant": "fp8-block"}
    whole, scattered = (
        rooflm.infer("deepseek-v3", **run, batch=2048, sets={"engine.exchange": w}).timed["decode"]
        for w in ("all_to_all", "scattered")
    )
    sums = [sum(t.node.count for t in timed if t.node.name == "tp_all_reduce") for timed in (whole, scattered)]
    assert sums == [2 * 61, 61 + 3]  # three layers are dense
    sent, back = (next(t for t in scattered if t.node.name == name) for name in ("ep_dispatch", "ep_combine"))
    assert (sent.node.op, sent.node.ranks, sent.node.count) == ("all_to_all", 16, 58)
    assert float(back.node.bytes) == pytest.approx(2 * float(sent.node.bytes))
    assert float(sent.time) * 1e6 == pytest.approx(219, rel=0.35)
    assert float(back.time) * 1e6 == pytest.approx(326, rel=0.1)
    split = {"gpu": "h100", "tp": 8, "batch": 64, "engine": "sglang", "sets": {"engine.exchange": "scattered"}}
    grid = rooflm.infer("qwen3-30b-a3b", ep=[1, 8], **split)["tpot_s"].values
    assert grid == pytest.approx([float(rooflm.infer("qwen3-30b-a3b", ep=n, **split).tpot) for n in (1, 8)])
