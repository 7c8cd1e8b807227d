"""A card that is left out of a fit is predicted by what the others tell, not by its own row on file."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

from rooflm.asked.build_inference import build_inference
from rooflm.catalogue.hardware import Derating
from rooflm_fit.engines import Family, reach_of


def test_a_card_left_out_does_not_read_its_own_row() -> None:
    s = build_inference(model="llama-3-8b", gpu="gh200-96gb", engine="vllm-2024").scenario
    member = Family(cast(Any, [SimpleNamespace(kwargs={})]), [0], s, "vllm-2024")
    assert not math.isclose(reach_of(member, {}).bandwidth, 1.0)  # on file, as fitted
    assert reach_of(member, {"|": 1.0}) == Derating()
