"""How tokens are picked, by what a client asks and an engine's release (docs/decisions/0317)."""

import pytest

import rooflm


@pytest.mark.parametrize(
    ("engine", "more"),
    [("vllm-0.15.1", 400 / 12), ("vllm-0.17", 75 / 12), ("vllm", 45 / 12), ("sglang", 45 / 12), ("trtllm", 1.0)],
)
def test_drawing_from_the_top_moves_what_its_kernels_do(engine: str, more: float) -> None:
    greedy, top = (
        next(t.node for t in rooflm.infer("qwen2.5-7b", gpu="h100", batch=64, engine=engine, sets=s).timed["decode"]
             if t.node.name == "sample")
        for s in ({}, {"engine.sampling": "top"})
    )  # fmt: skip
    assert float(greedy.bytes) == 64 * 152064 * 12
    assert float(top.bytes) == pytest.approx(more * float(greedy.bytes))


def test_an_unknown_way_is_refused_and_served_ones_are_slower() -> None:
    with pytest.raises(rooflm.RooflmError, match="sampling"):
        rooflm.infer("qwen2.5-7b", gpu="h100", sets={"engine.sampling": "beam"})
    asked = {"gpu": "h100", "engine": "vllm-0.15.1", "concurrency": 64, "prompt": 256, "output": 128}
    greedy, top = (
        rooflm.serve("qwen2.5-1.5b", **asked, sets=s).values()["tpot_s"] for s in ({}, {"engine.sampling": "top"})
    )
    assert 1.1 < top["mean"] / greedy["mean"] < 2.0
