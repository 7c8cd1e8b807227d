"""What a user's editor sees, checked by mypy with the package (scripts/check): one scenario gives an estimate, lists a
table, and a name that is no argument an error (an ignore that is not needed is one too)."""

from typing import assert_type

import xarray

import rooflm


def script() -> None:
    """Lines of a user's."""
    assert_type(rooflm.infer("llama-7b", gpu="a100", batch=8), rooflm.InferenceEstimate)
    assert_type(rooflm.infer("llama-7b", gpu="a100", batch=[1, 8]), xarray.Dataset)
    assert_type(rooflm.train("llama-7b", gpu=["a100", "h100"], batch=8), xarray.Dataset)
    rooflm.infer("llama-7b", bach=8)  # type: ignore[call-overload]
