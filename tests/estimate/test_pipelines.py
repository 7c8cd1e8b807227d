"""Inference over pipeline stages: what a request sends, reads and keeps busy, counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

import rooflm
from rooflm.asked.build_inference import build_inference
from rooflm.estimate.capacity import most_in_flight, running
from rooflm.estimate.request import turns
from rooflm.readers.checkpoints.load import load_model

HIDDEN = 5120
"""Of llama-2-13b; a hidden state is as many values of two bytes."""


@pytest.mark.parametrize(
    ("batch", "flight", "micro", "fuller"),
    [(1, 1, 1, 0), (3, 3, 1, 0), (5, 4, 2, 1), (8, 4, 2, 0), (9, 4, 3, 1)],  # five sequences: 2 + 1 + 1 + 1
)
def test_no_more_micro_batches_than_sequences(batch, flight, micro, fuller):
    run = running(build_inference(model="llama-2-13b", gpu="a100", pp=4, batch=batch).scenario)
    assert (float(run.flight), float(run.micro), float(run.fuller)) == (flight, micro, fuller)


def test_stages_that_wait_for_one_another_hold_one_micro_batch():
    two = build_inference(model="llama-7b", gpu="a100", tp=1, pp=2, engine="vllm").scenario
    waiting = replace(two, engine=two.engine.but(pipelined=False))
    assert [float(most_in_flight(s)) for s in (two, waiting)] == [2.0, 1.0]


@pytest.mark.parametrize(
    ("model", "release", "asked", "flight"),
    [
        ("qwen3-30b-a3b", "0.14", None, 4),  # asynchronous scheduling left pipelines out
        ("qwen3-30b-a3b", "0.19.1", None, 1),  # each pass waits for the tokens of the pass before
        ("llama-3.1-8b", "0.19.1", None, 1),
        ("qwen3-30b-a3b", "0.27.1", None, 1),
        ("qwen3-30b-a3b", "0.27.1", 3, 3),  # who asks for more gets it
        ("llama-3.1-8b", "0.27.1", None, 4),  # the new model runner, for dense models
    ],
)
def test_vllm_decodes_mixtures_one_micro_batch_at_a_time(model, release, asked, flight):
    """vLLM's pull requests 32618, 38726 and 42187."""
    given = {} if asked is None else {"sets": {"mapping.in_flight": asked}}
    s = build_inference(model=model, gpu="h100", pp=4, batch=64, engine=f"vllm-{release}", **given).scenario
    assert float(most_in_flight(s)) == flight


@pytest.mark.parametrize(("release", "alone", "full"), [("0.5.5", 4, 12), ("0.5.4", 4, 12), ("0.5.7", 1, 1)])
def test_hosts_of_stages_take_turns_in_sglang(release, alone, full):
    """SGLang, scheduler_pp_mixin.py, event_loop_pp, until pull request 11852."""
    s = build_inference(model="qwen3-235b-a22b", gpu="h200", tp=8, pp=4, batch=128, engine=f"sglang-{release}").scenario
    assert bool(s.engine.host.overlap) == (full == 1)
    assert [float(turns(s, micro)) for micro in (1, 4)] == [alone, full]
    one = build_inference(model="qwen3-235b-a22b", gpu="h200", tp=8, batch=128, engine=f"sglang-{release}").scenario
    assert one.engine.host.overlap and float(turns(one, 1)) == 1


def test_a_pipeline_of_sglang_as_its_pull_request_measured_it():
    """SGLang's pull request 7979: 128 prompts, 121,703 tokens in 47.13 s, of Qwen3-235B over four nodes of eight."""
    served = rooflm.serve(
        "qwen3-235b-a22b", gpu="h200", engine="sglang-0.5.2", tp=8, pp=4, concurrency=128, requests=128, prompt=946,
        output=951, spread=(0.95, 1.05), warmup=0, server={"budget": 16384, "max_sequences": 512},
    )  # fmt: skip
    assert float(served.values()["output_tokens_per_s"]) == pytest.approx(121_703 / 47.13, rel=0.15)


@pytest.mark.parametrize(("batch", "sent"), [(1, 10_240), (5, 51_200), (9, 92_160)])
def test_each_stage_sends_every_sequence_once_a_step(batch, sent):
    e = rooflm.infer("llama-2-13b", gpu="a100", pp=4, batch=batch)
    assert batch * HIDDEN * 2 == sent
    assert float(e.comm_bytes["decode"]) == sent


def test_one_sequence_keeps_one_of_four_stages_busy():
    """A token passes stage after stage: a fourth of one device's share of time, bandwidth and energy beyond idle."""
    points = {"gpu": "a100", "batch": 1, "prompt": 16, "output": 256}
    alone, four = rooflm.infer("llama-2-13b", **points), rooflm.infer("llama-2-13b", **points, pp=4)
    assert float(four.busy) == pytest.approx(float(alone.busy) / 4, rel=0.02)
    assert float(four.mbu) == pytest.approx(float(alone.mbu) / 4, rel=0.02)
    idle = 4 * alone.scenario.cluster.device.idle

    def beyond_idle(e, watts):
        return float(e.energy_per_token) - watts * float(e.latency) / 256

    assert beyond_idle(four, idle) == pytest.approx(beyond_idle(alone, idle / 4), rel=1e-3)


@pytest.mark.parametrize(("batch", "passes"), [(1, 1), (5, 4), (9, 4)])
def test_weights_are_read_once_a_micro_batch(batch, passes):
    """Bytes of a decode step without a cache to speak of: the weights (but for the embedding's table) for each
    micro-batch in flight, whose number is that of the stages, or of the sequences where these are fewer."""
    e = rooflm.infer("llama-2-13b", gpu="a100", pp=4, batch=batch, prompt=1, output=2)
    model = load_model("llama-2-13b")
    weights = 2 * (model.parameters - model.vocab * model.hidden)
    assert float(e.in_step("bytes")) == pytest.approx(passes * float(weights), rel=0.005)


def test_energy_and_busy_of_uneven_micro_batches_lie_between_even_ones():
    each = [rooflm.infer("llama-2-13b", gpu="a100", pp=4, batch=b, prompt=1, output=500) for b in (4, 5, 8)]
    step = [float(e.in_step("flops")) for e in each]
    assert np.allclose(np.diff(step) / step[0], [1 / 4, 3 / 4], rtol=0.02)  # FLOPs go with sequences
    assert float(each[0].busy) > float(each[1].busy) < float(each[2].busy)  # smaller micro-batches wait for the larger
    assert all(0.9 < float(e.busy) <= 1 for e in each)


def test_a_token_more_than_a_micro_batch_holds_costs_a_token():
    """8,192 tokens pass as one micro-batch, 8,193 as one and a single token behind it."""
    full, more = (float(rooflm.infer("llama-3.1-8b", gpu="h100", pp=4, prompt=p).ttft) for p in (8192, 8193))
    assert 0.99 * full < more < 1.01 * full  # tiles of another number of rows may fill their waves better
    halves, whole = (float(rooflm.infer("llama-3.1-8b", gpu="h100", pp=4, prompt=p).ttft) for p in (12288, 16384))
    assert full < halves < whole < 2 * full


def test_layers_of_a_last_stage_laid_out_by_hand_stand_beside_its_losses() -> None:
    """Megatron-Core's pipeline_model_parallel_layout: each layer beside the losses slows that stage."""

    def step(last: int, mtp: int) -> float:
        sets = {"training.last_layers": last, "training.mtp": mtp}
        return float(
            rooflm.train("deepseek-v2-lite", gpu="h100", gpus=8, pp=4, batch=32, seq=4096, sets=sets).step_time
        )

    for mtp in (0, 1):
        assert step(0, mtp) < step(9, mtp) < step(12, mtp)
