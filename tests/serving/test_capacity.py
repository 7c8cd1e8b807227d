"""KV capacity beside what servers print of theirs when they start."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.asked.build_inference import build_inference
from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.estimate.capacity import fixed_buffers, memory_use
from rooflm.estimate.offloaded import device_part
from rooflm.readers.engines import load_engine
from rooflm.scenario.scenario import Scenario
from rooflm.serving.capacity import capacity
from rooflm.serving.deploy import make_pool, server_for, server_options


def served(**asked: Any) -> tuple[Scenario, dict[str, Any]]:
    """A scenario as its server runs it, and that server's options."""
    s = build_inference(**asked).scenario
    options = server_options(s.engine)
    limits = {"token_budget": options["budget"], "max_sequences": options["max_sequences"]}
    return replace(s, engine=s.engine.but(**limits)), options


STATIC = "engine.server.static_fraction"


def tokens(**asked: Any) -> float:
    """Tokens that fit in a server's KV cache."""
    s, options = served(**asked)
    longest = float(np.max(s.model.max_context))
    return capacity(device_part(s), options["budget"], longest).tokens


@pytest.mark.parametrize(
    ("asked", "printed"),
    [  # "max_total_num_tokens" and "#tokens": ai-dynamo/aisimulate, pull request 263; vLLM, issue 21348
        ({"model": "deepseek-ai/DeepSeek-R1", "gpu": "h200", "tp": 8, "sets": {STATIC: 0.82}}, 509_000),
        ({"model": "Qwen/Qwen3-235B-A22B-FP8", "gpu": "h100", "tp": 4, "sets": {STATIC: 0.93}}, 367_404),
    ],
)  # fmt: skip
def test_a_static_share_is_of_what_is_free_before_the_weights(asked: dict[str, Any], printed: int) -> None:
    assert tokens(engine="sglang", **asked) == pytest.approx(printed, rel=0.02)


@pytest.mark.parametrize(
    ("asked", "printed"),
    [  # "GPU KV cache size": vllm-project/recipes, pull request 115; vLLM, pull request 10511, whose build of that day
        # took the peak of 1.26 GiB off twice (1.79 beside PyTorch on one H100; 0.16 in pull request 12126)
        ({"model": "moonshotai/Kimi-K2-Thinking", "gpu": "h200", "engine": "vllm-0.11.1", "tp": 8}, 715_072),
        ({"model": "llama-3-8b", "gpu": "h100", "engine": "vllm-2024-11"}, 436_551 + 1.26 * 2**13),
        ({"model": "llama-3-8b", "gpu": "h100", "engine": "vllm-2024-11", "tp": 2}, 966_100 + 1.26 * 2**14),
    ],
)
def test_what_sampling_for_every_sequence_takes_is_kept_free(asked: dict[str, Any], printed: int) -> None:
    assert tokens(**asked) == pytest.approx(printed, rel=0.01)


@pytest.mark.parametrize(
    ("asked", "share", "budget", "printed"),
    [  # "# GPU blocks" and "# CUDA blocks": vLLM, pull request 2031 and issues 10360, 13061, 15815
        ({"model": "llama-2-7b", "gpu": "a100", "engine": "vllm-2024"}, 0.9, 4096, 7351 * 16),
        ({"model": "qwen2.5-32b", "gpu": "rtx-a6000", "engine": "vllm-2024-11", "quant": "int4"}, 0.9, 4096, 93_143),
        ({"model": "qwen2.5-14b", "gpu": "rtx-4090", "engine": "vllm-2024-11", "tp": 2}, 0.98, 2048, 81_536),
        ({"model": "qwen2.5-32b", "gpu": "l40s", "engine": "vllm-2024-11", "tp": 2}, 0.9, 10_000, 3947 * 16),
    ],
)
def test_little_but_sampling_is_taken_beside_the_weights(
    asked: dict[str, Any], share: float, budget: int, printed: int
) -> None:
    s = build_inference(**asked, sets={"engine.memory_fraction": share, "engine.token_budget": budget}).scenario
    assert capacity(device_part(s), budget, budget).tokens == pytest.approx(printed, rel=0.025)


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "llama-3.1-70b", "gpu": "h100", "engine": "vllm", "tp": 4},
        {"model": "gpt-oss-120b", "gpu": "h100", "engine": "vllm"},
        {"model": "llama-3.1-8b", "gpu": "a100", "engine": "vllm"},
        {"model": "qwen2.5-7b", "gpu": "l40s", "engine": "vllm-0.6"},
        {"model": "llama-3.1-8b", "gpu": "h100", "engine": "sglang"},
        {"model": "llama-3.1-8b", "gpu": "h100", "engine": "sglang", "sets": {STATIC: 0.8}},
        {"model": "llama-3.1-8b", "gpu": "h100", "engine": "sglang", "sets": {"engine.memory_fraction": 0.8}},
        {"model": "deepseek-v3", "gpu": "h200", "engine": "sglang", "quant": "fp8", "tp": 1, "dp": 8, "ep": 8},
    ],
    ids=str,
)
def test_the_largest_batch_is_what_a_servers_cache_holds(asked: dict[str, Any]) -> None:
    """`infer` and `serve` ask one function for what a full pass and its trial take, and one for budgets of ranks."""
    asked = asked | {"batch": asked.get("dp", 1), "prompt": 2000, "output": 200}
    s, options = served(**asked)
    held = capacity(s, options["budget"], 2200)
    assert float(rooflm.infer(**asked).max_batch) == pytest.approx(held.tokens / (2200 + held.each), rel=0.015)
    assert options["budget"] == s.engine.room.token_budget


def test_a_budget_that_is_asked_for_holds_on_a_card_that_has_another() -> None:
    for asked in (512, 4096):
        s, options = served(model="llama-7b", gpu="a100", engine="vllm", sets={"engine.token_budget": asked})
        assert s.engine.room.token_budget == options["budget"] == asked
    assert served(model="llama-7b", gpu="a100", engine="vllm")[1]["budget"] == 2048


def test_releases_that_sort_keep_more_free_than_those_that_follow() -> None:
    old, new = (tokens(model="llama-3.1-8b", gpu="h100", engine=e) for e in ("vllm-0.14", "vllm"))
    assert new - old == pytest.approx((38 - 14) * 1024 * 128_256 / 2**17, rel=0.1)


@pytest.mark.parametrize(
    ("model", "tp", "gib"),
    [  # vLLM 0.19 at 0.95 of an H100: llm-d-incubation/llm-d-planner, accuracy/accuracy_report.md
        ("llama-3.1-8b", 1, 58.11),
        ("llama-3.1-8b", 4, 0.95 * 79.19 - 3.77 - 1.89 - 2.13),
        ("qwen2.5-7b", 1, 58.53),
        ("qwen2.5-7b", 2, 0.95 * 79.19 - 7.12 - 2.21 - 2.06),
    ],
)
def test_ranks_that_meet_in_a_switch_that_adds_up_hold_its_buffers(model: str, tp: int, gib: float) -> None:
    s, options = served(model=model, gpu="h100", engine="vllm", tp=tp, sets={"engine.memory_fraction": 0.95})
    found = capacity(s, options["budget"], 8192)
    assert found.tokens * found.bytes_per_token / tp == pytest.approx(gib * 2**30, rel=0.005)


def test_only_a_layers_ranks_meet_in_that_switch() -> None:
    def more(gpu: str, **split: int) -> float:
        s, _ = served(model="llama-3.1-8b", gpu=gpu, engine="vllm", **split)
        return float(fixed_buffers(s)[1])

    assert more("h100", tp=2) == 1.8 * 2**30
    assert more("h100", tp=1) == more("h100", pp=2) == more("a100", tp=4) == more("l40s", tp=4) == 0


def test_releases_that_sort_to_sample_take_more_a_logit() -> None:
    """A kernel of Triton's replaced PyTorch's sort in 0.17 (pull request 33538), FlashInfer's was V1's default until
    26859 (0.11.1); builds that do not sample on trial."""
    names = ("vllm-0.7", "vllm-0.10.2", "vllm-0.13", "vllm-0.15", "vllm-0.16", "vllm-0.18", "atom", "tgi", "sglang")
    assert [load_engine(name).room.sampled for name in names] == [38, 14, 38, 38, 38, 14, 0, 0, 0]


def test_logits_are_whole_on_each_rank_when_a_pass_is_tried() -> None:
    s, options = served(model="minimax-m2", gpu="h100", tp=4, engine="vllm-0.10.2")
    sorting, none = (capacity(replace(s, engine=s.engine.but(sampled=n)), options["budget"], 8192) for n in (38, 0))
    lost = (none.tokens - sorting.tokens) * none.bytes_per_token / 4
    assert 38 * 1024 * s.model.vocab * 0.75 < lost < 38 * 1024 * s.model.vocab
    few = capacity(replace(s, engine=s.engine.but(max_sequences=64)), options["budget"], 8192)
    assert few == none  # activations of a full pass are more


@pytest.mark.parametrize("option", ["budgets", "limits", "families", "graphed"])
def test_what_a_row_says_of_cards_is_no_option_of_a_server(option: str) -> None:
    with pytest.raises(RooflmError, match=f"server option '{option}' is of an engine's row: tell the limit itself"):
        rooflm.serve("llama-3.1-8b", gpu="h100", concurrency=2, server={option: "70:256"})


@pytest.mark.parametrize(("engine", "layers"), [("sglang", 42), ("vllm", 24)])
def test_layers_that_read_anothers_cache_have_room_where_the_engine_counts_them(engine: str, layers: int) -> None:
    """Gemma 4's E4B has 42 layers; 18 read what earlier ones of their kind cached, and SGLang's pools count layers by
    their kind alone (pool_configurator.py), vLLM's only those that cache."""
    s, _ = served(model="gemma-4-e4b", gpu="h200", engine=engine)
    full, windowed = {42: (7, 35), 24: (4, 20)}[layers]
    values = 2 * 2 * (full * 512 + s.engine.room.window_kept * windowed * 256)
    assert capacity(s, 8192, 131072).bytes_per_token == pytest.approx(2 * values)


@pytest.mark.parametrize(
    ("engine", "asked", "slots"),
    [("sglang", {}, 3), ("sglang-0.5.10", {}, 3), ("sglang-0.5.14", {}, 5), ("sglang", {"kept_states": False}, 1)],
)
def test_recurrent_states_have_a_pool_of_their_own_with_room_for_those_of_earlier_prompts(
    engine: str, asked: dict[str, Any], slots: int
) -> None:
    """kv_cache_configurator.py: mamba_full_memory_ratio 0.9 parts what weights leave, and states over a ratio run.
    Qwen3.5-27B: 48 layers of 48 heads, 128 x 128 in fp32, and 10,240 channels of a convolution of 4."""
    s, _ = served(model="qwen3.5-27b", gpu="h200", engine=engine, sets={STATIC: 0.8})
    got, one = capacity(s, 8192, 131072, **asked), 48 * (48 * 128 * 128 * 4 + 10240 * 4 * 2)
    free = 0.8 * (150.75e9 - float(sum(fixed_buffers(s)))) - float(memory_use(s, 0.0).parts["weights"])
    assert got.running == pytest.approx(free * 0.9 / 1.9 / one / slots, abs=1)
    assert got.tokens == pytest.approx(free / 1.9 / (16 * 4 * 2 * 256 * 2), rel=1e-3)
    assert capacity(replace(s, engine=s.engine.but(state_share=0.0)), 8192, 131072).running == np.inf


def test_a_pool_of_recurrent_states_that_takes_all_is_named_where_no_cache_is_left() -> None:
    with pytest.raises(RooflmError, match=r"beside its recurrent states: set engine.state_share below 1$"):
        rooflm.serve(
            "qwen3.5-27b", gpu="h200", engine="sglang", prompt=8192, output=64, concurrency=2, requests=2,
            sets={"engine.state_share": 1},
        )  # fmt: skip


def test_a_server_runs_no_more_than_its_pool_of_recurrent_states_allows() -> None:
    """The pool alone keeps Qwen3.5-27B on a H200 from running more of 200 clients (SGLang's cookbook,
    1,024 of them: 28 on average)."""
    served = rooflm.serve(
        "qwen3.5-27b", gpu="h200", engine="sglang-0.5.16", prompt=8192, output=1024, concurrency=200, requests=200,
        server={"static_fraction": 0.8},
    )  # fmt: skip
    assert 20 < served.to_dict()["running_mean"] < 40


def test_a_cache_of_known_blocks_holds_that_many() -> None:
    """140 blocks of 16 tokens on each rank: two requests of 1,088 tokens at once, whatever memory leaves; one of 2,304
    never fits."""
    run = {"model": "llama-3.1-8b", "gpu": "h100", "output": 64, "spread": (1.0, 1.0), "server": {"cache_blocks": 140}}
    served = rooflm.serve(**run, prompt=1024, concurrency=8, requests=16).to_dict()
    assert served["finished"] == 16 and not served["warnings"]
    assert 1 < served["running_mean"] <= 2
    assert rooflm.serve(**run, prompt=2240, concurrency=1, requests=1).to_dict()["finished"] == 0
    more = rooflm.serve(**run | {"server": {"cache_blocks": 10**6}}, prompt=128, concurrency=1, requests=1)
    assert any("cache_blocks 1000000 hold 16,000,000 tokens, but memory has room for" in w for w in more.warnings)
    with pytest.raises(RooflmError, match="leaves no memory for a KV cache"):  # weights that do not fit, fit no better
        rooflm.serve(**run | {"model": "llama-3.1-405b"}, prompt=1024, concurrency=1, requests=1)


@pytest.mark.parametrize(
    ("asked", "kept"),
    [  # server_args.py of SGLang 0.5.9 and 0.5.14: 512 MiB, a token's 1.5, a graphed sequence's 2, a device's 128
        ({"gpu": "h100"}, 512 + 8192 * 1.5 + 256 * 2 + 128),
        ({"gpu": "h100", "tp": 4}, 512 + 8192 * 1.5 + 512 * 2 + 4 * 128),
        ({"gpu": "h100", "sets": {"engine.token_budget": 1024}}, 10_240),  # at least so much on such a card
        ({"gpu": "l40s"}, 512 + 4096 * 1.5 + 32 * 2 + 128),
        ({"gpu": "h100", "sets": {"engine.memory_fraction": 0.8}}, None),  # told: nothing to work out
        ({"gpu": "h100", "engine": "sglang-0.5.2"}, 10_240),  # by card and devices: 9.5 and 0.5 GiB
        ({"gpu": "h100", "engine": "vllm"}, None),
    ],
)
def test_a_server_keeps_what_its_own_rule_says_beside_weights_and_cache(
    asked: dict[str, Any], kept: float | None
) -> None:
    s, _ = served(**{"model": "llama-3.1-8b", "engine": "sglang"} | asked)
    size = s.cluster.device.dram.size / 2**20
    wanted = 0 if kept is None else pytest.approx(1 - kept / size, rel=1e-6)
    assert s.engine.server.static_fraction == wanted


def test_ranks_of_attention_keep_more_of_a_card_than_a_group_of_tensors() -> None:
    """Beyond two MiB of a graph's sequence, 4.5 on each of eight ranks, beside what tokens of all ranks take."""
    there = {"model": "deepseek-v3", "gpu": "h200", "engine": "sglang-0.5.14", "batch": 8}
    one, more = (served(**there | degrees) for degrees in ({"tp": 8}, {"tp": 1, "dp": 8, "ep": 8}))
    assert one[0].engine.host.graphed_sequences == more[0].engine.host.graphed_sequences == 512
    kept = [
        (1 - float(s.engine.server.static_fraction)) * float(s.cluster.device.dram.size) / 2**20 for s, _ in (one, more)
    ]
    assert kept[1] - kept[0] == pytest.approx(512 * 8 * 4.5 + (more[1]["budget"] * 8 - one[1]["budget"]) * 1.5)


def test_the_share_that_a_server_works_out_makes_its_cache_and_a_told_one_counts_before_it() -> None:
    """Where it leaves nothing, the one for all memory counts."""
    there = {"model": "llama-3.1-8b", "gpu": "h100", "engine": "sglang", "batch": 1}
    s = build_inference(**there).scenario
    size = float(s.cluster.device.dram.size)

    def cache(**options: Any) -> float:
        return make_pool(s, server_for(s, options), 4096, 256).capacity.tokens

    assert cache() == cache(static_fraction=1 - (512 + 8192 * 1.5 + 256 * 2 + 128) * 2**20 / size)
    assert cache(static_fraction=0.5) < cache() < cache(static_fraction=0.88)
    tight = build_inference(**there | {"model": "llama-3.1-70b", "quant": "fp8"}).scenario
    assert make_pool(tight, server_for(tight), 256, 4).capacity.tokens > 0


def test_a_release_shares_memory_out_by_the_size_of_its_tensor_group() -> None:
    """SGLang 0.4 gives weights and cache 0.88 of a lone card and 0.81 of each of eight; what is said counts."""

    def cache(gpus: int, **said: Any) -> float:
        run = rooflm.serve(
            "llama-3.1-8b", gpu="h200", tp=gpus, engine="sglang-0.4.3", prompt=128, output=2, concurrency=1, requests=1,
            **said,
        ).run  # fmt: skip
        return run.pools[0].capacity.tokens * run.pools[0].capacity.bytes_per_token / gpus

    a_percent = cache(8, server={"static_fraction": 0.81}) - cache(8, server={"static_fraction": 0.80})
    assert cache(8) == cache(8, server={"static_fraction": 0.81})
    assert cache(1) == cache(1, server={"static_fraction": 0.88})
    assert cache(8, server={"static_fraction": 0.88}) - cache(8) == pytest.approx(7 * a_percent)
    assert not load_engine("sglang-0.4.3").but(memory_fraction=0.9).server.reserved
    assert cache(1, sets={"engine.memory_fraction": 0.5}) < 0.6 * cache(1)


def test_an_engine_of_ones_own_may_keep_a_part_of_what_another_does_and_no_more_than_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rule = {"engine.server.reserved": "1024 * devices if card > 61440 else 0.1 * card"}
    cards = rooflm.infer("llama-3.1-8b", engine="vllm", gpu=["h100", "l40s"], tp=[1, 2], sets=rule)
    for gpu in ("h100", "l40s"):
        for tp in (1, 2):
            s, _ = served(model="llama-3.1-8b", engine="vllm", gpu=gpu, tp=tp, sets=rule)
            size = s.cluster.device.dram.size / 2**20
            kept = 0.1 * size if gpu == "l40s" else 1024 * tp
            assert s.engine.server.static_fraction == pytest.approx(1 - kept / size)
            one = float(rooflm.infer("llama-3.1-8b", engine="vllm", gpu=gpu, tp=tp, sets=rule).max_batch)
            assert float(cards["max_batch"].sel(gpu=gpu, tp=tp)) == one
    told = ["infer", "llama-3.1-8b", "--gpu", "h100", "--json"]
    assert main([*told, "--set", "engine.server.reserved=max(card * 0.1, max(tokens, 2)),0 - card"]) == 0
    fewer, all_of_it = json.loads(capsys.readouterr().out)["max_batch"]
    assert 0 < fewer < all_of_it < 1e4
    for text in ("much", "2 * tokn", "2 tokens", "fixed:512 token:1.5", "card ** 2", "True", "max(card)", "(" * 300):
        with pytest.raises(RooflmError, match="it must be a formula of card, tokens, graphed, devices, ranks such as"):
            served(model="llama-3.1-8b", engine="vllm", gpu="h100", sets={"engine.server.reserved": text})


@pytest.mark.parametrize(
    ("model", "gpu", "quant", "block"),
    [  # "Setting attention block size to": vLLM, issues 40691 (290,864 tokens are 371 of them) and 48401
        ("qwen3.5-27b", "h20-sxm-141gb", "bf16", 784),
        ("nemotron-3-super-120b-a12b", "rtx-pro-6000-server-96gb", "nvfp4-fp8-kv8", 8320),
        ("lfm2-1.2b", "h100", "bf16", 16),
    ],
)
def test_a_block_weighs_as_much_as_a_recurrent_state(model: str, gpu: str, quant: str, block: int) -> None:
    made = build_inference(model, gpu=gpu, engine="vllm", quant=quant).scenario
    assert float(np.max(made.engine.room.block)) == block
    assert build_inference(model, gpu=gpu, engine="sglang", quant=quant).scenario.engine.room.block == 1
    told = build_inference(model, gpu=gpu, engine="vllm", quant=quant, sets={"engine.block": 32})
    assert told.scenario.engine.room.block == 32


def test_so_many_long_requests_fit_beside_their_states() -> None:
    """vLLM, issue 40691: "Maximum concurrency for 32,768 tokens per request: 33.04x"."""
    s, options = served(model="qwen3.5-27b", gpu="h20-sxm-141gb", engine="vllm-0.19")
    kv = capacity(device_part(s), options["budget"], 32768)
    assert kv.tokens / (32768 + kv.each) == pytest.approx(33.04, rel=0.02)


def test_hybrids_keep_no_prompts_unless_told_or_of_today() -> None:
    """vLLM, pull request 50991 of August 2026; SGLang keeps no prompts of Kimi Linear up to 0.5.13."""

    def keeps(engine: str, model: str) -> bool:
        return bool(server_options(build_inference(model, gpu="h200", engine=engine).scenario.engine)["prefix_caching"])

    assert [keeps(f"vllm-{r}", "qwen3.5-27b") for r in ("0.19", "0.27", "0.28")] == [False, False, True]
    assert [keeps(f"sglang-{r}", "kimi-linear-48b-a3b") for r in ("0.5.9", "0.5.13", "0.5.14")] == [False, False, True]
    assert keeps("vllm-0.27", "llama-3.1-8b") and keeps("sglang-0.5.9", "qwen3.5-27b")
