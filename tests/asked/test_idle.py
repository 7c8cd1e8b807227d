"""An argument that says more of another, which is not given, is refused: it would have no effect."""

from __future__ import annotations

import pytest

import rooflm
from rooflm.cli.app import main
from rooflm.errors import RooflmError

CALLS = {"infer": rooflm.infer, "serve": rooflm.serve, "search_infer": rooflm.search_infer,
         "search_serve": rooflm.search_serve, "train": rooflm.train, "search_train": rooflm.search_train}  # fmt: skip
SERVED = ("infer", "serve", "search_infer", "search_serve")
IDLE = [
    *(
        (call, {"electricity": 0.3}, "electricity has no effect without owned or purchase.*: give one of them too")
        for call in CALLS
    ),
    *((call, {"adapter_rank": 8}, "adapter_rank has no effect without adapters: give it too") for call in SERVED),
    *((call, {"adapter_modules": "foo"}, "adapter_modules has no effect without adapters") for call in SERVED),
    *(
        (call, {"host_bandwidth": 9e9}, "host_bandwidth has no effect without cpu_layers or cpu_experts: give")
        for call in SERVED
    ),
    ("serve", {"transfer_bandwidth": 5e9}, "transfer_bandwidth has no effect without prefill_replicas: give it too"),
    ("infer", {"batch": [1, 8], "adapter_rank": [8, 16]}, "adapter_rank has no effect without adapters"),
    *((call, {"acceptance": 0.9}, "acceptance has no effect without guesses: give it too") for call in SERVED),
    *(
        ("serve", {name: 2}, f"{name} has no effect without {of}: give it too")
        for name, of in (
            ("burstiness", "rate"),
            ("peak", "rate"),
            ("copies", "trace"),
            ("limit", "trace"),
            ("output_ended", "output_limit"),
            ("output_variation", "output_limit"),
        )
    ),
    ("infer", {"tp": 4, "sets": {"mapping.tp": 2}}, "mapping.tp is what tp says too: give one of them"),
    ("infer", {"batch": [1, 8], "sets": {"workload.batch": 4}}, "workload.batch is what batch says too: give one"),
    ("train", {"batch": 8, "seq": 64, "sets": {"workload.seq": 128}}, "workload.seq is what seq says too"),
    *(
        (call, {"sets": {"mapping.tp": 2}}, "mapping.tp is what tp says here: give tp in its place")
        for call in ("serve", "search_infer", "search_serve", "search_train")
    ),
    ("search_infer", {"sets": {"workload.batch": 8}}, "workload.batch is what batch says here"),
    *(
        (call, {"sets": {"workload.batch": 8}}, "workload.batch has no effect where requests come and go: give concur")
        for call in ("serve", "search_serve")
    ),
    (
        "serve",
        {"dataset": "sharegpt", "output_variation": 1.0},
        "dataset has its own output_variation: leave one of them",
    ),
    (
        "serve",
        {"output_limit": 999, "output_ended": 9, "output_variation": 1.0},
        "output_ended has its own output_variat",
    ),
    *(
        ("serve", {"trace": "t.csv", name: value}, f"trace has its own {name}: leave one of them out")
        for name, value in (("prompt", 99), ("requests", 9), ("concurrency", 3), ("spread", (0.5, 1.5)))
    ),
]


@pytest.mark.parametrize(("call", "given", "words"), IDLE)
def test_without_what_it_belongs_to_it_is_refused(call, given, words):
    with pytest.raises(RooflmError, match=words):
        CALLS[call]("llama-3.1-8b", gpu="h100", **given)


def test_with_it_or_at_its_default_it_is_not():
    rooflm.infer("llama-3.1-8b", gpu="h100", electricity=0.15, adapter_rank=16)
    rooflm.infer("llama-3.1-8b", gpu="h100", adapter_rank=8, sets={"adapters.held": 4})
    assert rooflm.infer("llama-3.1-8b", gpu="h100", batch=1, sets={"workload.batch": 4, "mapping.tp": 2}).gpus == 2
    made = rooflm.serve("llama-3.1-8b", gpu="h100", concurrency=2, requests=4, adapters=[0, 4], adapter_rank=8)
    assert made["tpot_s"].notnull().all()
    found = rooflm.search_infer("llama-3.1-8b", gpu="h100", gpus=1, batch=8, adapters=[0, 4], adapter_rank=8)
    assert found.points


def test_on_the_command_line(capsys):
    assert main(["infer", "llama-3.1-8b", "--gpu", "h100", "--host-bandwidth", "9GB/s"]) == 2
    assert "host_bandwidth has no effect without cpu_layers or cpu_experts" in capsys.readouterr().err
