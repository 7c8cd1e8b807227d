"""The tables of outputs: what they list by hand is what estimates make."""

import pytest

from rooflm import RooflmError, infer, train
from rooflm.asked.answers.outputs import INFER_OUTPUTS, TRAIN_OUTPUTS, key_of


def test_members_of_memory_are_those_that_estimates_make() -> None:
    served = infer("llama-3.1-8b", gpu="h100", adapters=2)
    trained = train("llama-3.1-8b", gpu="h100", gpus=8, batch=8, zero=3)
    assert sorted(served.memory.parts) == sorted(INFER_OUTPUTS["memory"].members)
    assert sorted(trained.memory.parts) == sorted(TRAIN_OUTPUTS["memory"].members)


def test_a_member_that_is_asked_for_by_its_own_name_is_named() -> None:
    with pytest.raises(RooflmError, match=r"did you mean 'memory\.kv_cache'\?"):
        key_of("kv_cache", INFER_OUTPUTS)
    with pytest.raises(RooflmError, match=r"did you mean 'memory\.gradients'\?"):
        key_of("gradients", TRAIN_OUTPUTS)
    with pytest.raises(RooflmError, match=r"unknown output 'memory\.gradients'"):
        key_of("memory.gradients", INFER_OUTPUTS)
