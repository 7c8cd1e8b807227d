"""Every public field and every output has its line in docs/nomenclature.md; the public names are few and sorted."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from rooflm.asked.answers.outputs import INFER_OUTPUTS, TRAIN_OUTPUTS
from rooflm.catalogue.engine import Engine
from rooflm.catalogue.hardware import Cluster, Device, Link
from rooflm.catalogue.hardware import Memory as Level
from rooflm.catalogue.model import MLA, MLP, Attention, Block, LinearAttention, Model, MoE
from rooflm.catalogue.quant import Quant
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.scenario import Efficiency, Workload

TEXT = (Path(__file__).parents[1] / "docs" / "nomenclature.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`(\w+)`", TEXT))


@pytest.mark.parametrize(
    "kind",
    [
        Device, Level, Link, Cluster, Model, Block, Attention, MLA, LinearAttention, MLP, MoE, Mapping, Workload,
        Engine, Quant, Efficiency,
    ],
)  # fmt: skip
def test_every_field_is_explained(kind: type[Any]) -> None:
    assert [f.name for f in fields(kind) if f.name not in NAMED] == []


def test_every_output_is_explained() -> None:
    assert [k for k in (*INFER_OUTPUTS, *TRAIN_OUTPUTS) if k not in NAMED] == []


def test_the_engines_part_is_what_its_fields_say() -> None:
    from rooflm_fit.pages import DOCS, pages

    path = DOCS / "nomenclature.md"
    assert path.read_text(encoding="utf-8") == pages()[path], "run python -m rooflm_fit.pages"
