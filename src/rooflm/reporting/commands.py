"""The command that starts what was predicted."""

from __future__ import annotations

from typing import Any

from rooflm.search.serve_command import serve_command
from rooflm.search.train_command import train_command

DEGREES = ("tp", "pp", "dp", "ep", "cp")


def serving_command(model: str, made: Any, given: dict[str, Any]) -> str:
    """What starts the server of an estimate of inference or of a simulated load."""
    s = made.scenario
    batch = given.get("batch") or given.get("concurrency") or 1
    chosen = {k: int(getattr(s.mapping, k)) for k in DEGREES if k != "cp"} | {"batch": int(batch)}
    length = int(given.get("prompt", 512)) + int(given.get("output", 128))
    return serve_command(model, s.engine, s.quant, chosen, length)


def training_command(model: str, made: Any) -> str:
    """What starts the training run of an estimate."""
    s = made.scenario
    m = s.mapping
    chosen = {k: int(getattr(m, k)) for k in (*DEGREES, "vp", "micro_batch")}
    chosen |= {"recompute": m.recompute, "zero": m.zero, "schedule": m.schedule, "batch": int(s.workload.batch)}
    node = int(s.cluster.tiers[0].size)
    fixed = {"gpu": s.cluster.device.name, "engine": s.engine.name, "seq": int(s.workload.seq), "node": node,
             "gpus": int(made.gpus), "batch": chosen["batch"], "dtype": None, "cluster": None}  # fmt: skip
    return train_command(s.model, s.engine, chosen, fixed)
