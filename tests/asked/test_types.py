"""Arguments of another type than their own are one sentence, whatever the call; and what is of theirs passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rooflm
from rooflm.asked.arguments import refuse_kind
from rooflm.errors import RooflmError


@pytest.mark.parametrize(
    ("call", "given", "says"),
    [
        ("infer", {"owned": "no"}, "owned is 'no', but it must be True or False"),
        ("infer", {"owned": float("nan")}, "owned is nan, but it must be True or False"),
        ("infer", {"price": [[1, 2]]}, "price is [[1, 2]], but it must be a number or a list of them"),
        ("infer", {"outputs": 3}, "outputs is 3, but it must be a text or a list of texts"),
        ("infer", {"outputs": [None]}, "outputs is [None], but it must be a text or a list of texts"),
        ("infer", {"draft": ["a"], "guesses": 2}, "draft is ['a'], but it must be one text, not a list"),
        ("train", {"dropout": ""}, "dropout is '', but it must be True or False"),
        ("train", {"order": 3}, "order is 3, but it must be a text or a list of texts"),
        ("train", {"lora_rank": {1, 2}}, "lora_rank is {1, 2}, but it must be a number or a list of them"),
        ("train", {"recompute_modules": 3}, "recompute_modules is 3, but it must be a text or a list of texts"),
        ("serve", {"spread": (1,)}, "spread is (1,), but it must be two numbers such as (0.8, 1.2)"),
        ("serve", {"horizon": [1]}, "horizon is [1], but it must be one number, not a list"),
        ("serve", {"progress": 3}, "progress is 3, but it must be a function"),
        ("search_infer", {"ttft": [1, 2]}, "ttft is [1, 2], but it must be one number, not a list"),
        ("search_infer", {"guesses": []}, "guesses is an empty list: give at least one value"),
        ("search_train", {"objective": ["time"]}, "objective is ['time'], but it must be one text, not a list"),
    ],
)
def test_an_argument_of_another_type_is_one_sentence(call: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(RooflmError) as error:
        refuse_kind(call, given)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ("infer", {"owned": np.bool_(True), "batch": np.array([1, 2]), "outputs": ["tpot"], "price": np.float32(2)}),
        ("train", {"sp": [True, False], "zero": "fsdp", "recompute_modules": ["mlp"], "order": "tp-cp-dp-pp"}),
        ("serve", {"spread": [0.5, 1], "progress": print, "rate": [1, 2], "seed": 0}),
        ("search_infer", {"tp": range(1, 3), "token_budget": float("inf")}),
    ],
)
def test_an_argument_of_its_type_passes(call: str, given: dict[str, Any]) -> None:
    refuse_kind(call, given)


@pytest.mark.parametrize("zipped", [True, 3.0, {1, 2}, [None], [[1, 2]], np.array([1, 2]), object()])
def test_a_zip_that_names_no_lists_is_one_sentence(zipped: Any) -> None:
    with pytest.raises(RooflmError, match=r"zip is .*, but it must be names of lists, such as"):
        rooflm.infer("llama-7b", gpu="a100", batch=[1, 2], zip=zipped)


def test_kernels_are_predicted_one_at_a_time() -> None:
    wrong: list[dict[str, Any]] = [{"m": [1, 2]}, {"quant": []}, {"quant": np.array([[1, 2]])}, {"gpu": ["h100"]}]
    for given in wrong:
        with pytest.raises(RooflmError, match="one kernel at a time"):
            rooflm.predict_gemm(**{"m": 8, "n": 64, "k": 64, "gpu": "h100"} | given)


def test_flat_factors_leave_times_finite() -> None:
    with pytest.raises(RooflmError, match=r"each factor must be from 0\.000001 to 1"):
        rooflm.infer("llama-7b", gpu="a100", efficiency="1e-320")
