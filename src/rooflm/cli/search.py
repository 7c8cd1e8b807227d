"""`rooflm search infer` and `rooflm search train`: the best legal point of a space, and why no better one is legal."""

from __future__ import annotations

import time
from typing import Any

from rooflm.cli import render
from rooflm.cli.found import found_shown
from rooflm.cli.options import command, group
from rooflm.cli.search_infer import infer_command
from rooflm.units import gib
from rooflm.units import text as units_text

app = group("search", "The best split, batch and scheme under constraints.")


def train(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm search train` does with its arguments."""
    from rooflm.search.training import search_train

    start = time.perf_counter()
    found = search_train(model, **asked)
    columns = RUN if asked.get("tokens") else TRAIN
    command = _trainer(model, found, asked)
    print(found_shown(found, columns, command, time.perf_counter() - start, shown["json"]))


app.command("infer")(infer_command)
app.command("train")(
    command(
        "search train", ["search_train"], train, "Search every legal way to split a training step for the best one."
    )
)


def _trainer(model: str, found: Any, given: dict[str, Any]) -> str:
    """The command that runs the best answer."""
    from rooflm.catalogue.engines import load_engine, usual_engine
    from rooflm.checkpoints.load import load_model
    from rooflm.scenario.build_inference import find_cluster, node_size
    from rooflm.search.train_command import train_command

    if found.best is None:
        return ""
    chosen = found.best.inputs
    one = {k: chosen.get(k) or given.get(k) for k in ("gpu", "engine", "dtype", "cluster")}
    node = node_size(find_cluster(one["gpu"], one["cluster"])[0])
    fixed = {**one, "seq": given["seq"], "node": node, "gpus": found.best.outputs["gpus"], "batch": chosen["batch"]}
    return train_command(load_model(model), load_engine(one["engine"] or usual_engine("training")), chosen, fixed)


TRAIN = (
    ("step_time_s", "step", render.seconds),
    ("mfu", "MFU", render.percent),
    ("tokens_per_s_per_gpu", "tok/s/GPU", render.count),
    ("memory_bytes", "memory", lambda v: gib(float(v))),
)
"""The same of training."""
RUN = (
    *TRAIN[:2],
    ("days", "days", render.count),
    ("cost_usd", "USD", lambda v: units_text(float(v), "")),
    ("gpu_hours", "GPU-h", lambda v: units_text(float(v), "")),
    ("energy_j", "energy", lambda v: f"{float(v) / 3.6e12:.3g} GWh"),
    TRAIN[3],
)
"""And of a run of so many tokens."""
