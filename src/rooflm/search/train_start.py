"""How a training run starts, from a scenario or from what a search found: for searches, reports and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rooflm.asked.arguments import TRAIN, arguments
from rooflm.asked.build_training import DTYPES, build_training
from rooflm.asked.machine import machine_size
from rooflm.catalogue.model import Model
from rooflm.scenario.scenario import Scenario
from rooflm.scenario.training import Training
from rooflm.search.checkpoint import home_of
from rooflm.search.train_command import train_command
from rooflm.sweep.axes import nest

SPLIT = ("tp", "pp", "dp", "cp", "ep", "vp", "micro_batch", "zero")


def training_start(s: Scenario, named: str = "") -> str:
    """The command that runs a scenario; an empty text where its framework has none. named: the model as it was asked
    for (default: by its own name)."""
    m, t, w = s.mapping, s.training, s.workload
    dtype = "fp16" if t.loss_scaling else next((k for k, q in DTYPES.items() if q == s.quant), None)
    chosen = {k: int(getattr(m, k)) for k in SPLIT} | {"recompute": m.recompute, "schedule": m.schedule}
    own = t.lora_modules if t.adapters and t.lora_modules != Training.lora_modules else None
    fixed = {"batch": int(w.batch), "seq": int(w.seq), "tokens": float(w.tokens), "gpus": int(m.devices),
             "node": machine_size(s.cluster), "dtype": dtype, "optimizer": t.optimizer, "lora_rank": int(t.lora_rank),
             "lora_modules": own, "base_bits": int(t.base_bits),
             "home": home_of(named, s.model) if named else s.model.name}  # fmt: skip
    return train_command(s.model, s.engine, chosen, fixed)


def trained_by(model: str | Model, found: Any, given: Mapping[str, Any]) -> str:
    """The command that runs the best answer of a search; an empty text where there is none. given: the arguments of
    the search."""
    if found.best is None:
        return ""
    rest = {k: v for k, v in given.items() if k in arguments(TRAIN) and k != "sets" and not isinstance(v, list | tuple)}
    chosen = nest({**rest, **found.best.inputs, "gpus": int(found.best.outputs["gpus"])})
    sets = {k: v for k, v in (given.get("sets") or {}).items() if not isinstance(v, list | tuple)}
    s = build_training(model, **{**chosen, "sets": {**sets, **chosen.get("sets", {})}}, alone=False).scenario
    return training_start(s, model if isinstance(model, str) else "")
