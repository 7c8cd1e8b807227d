"""`rooflm search infer` and `rooflm search train`: the best legal point of a space, and why no better one is legal."""

from __future__ import annotations

import time
from typing import Any

from rooflm.cli.console import working
from rooflm.cli.examples import exemplified
from rooflm.cli.found import found_shown
from rooflm.cli.options import command, group
from rooflm.cli.search_infer import infer_command

app = group("search", "The best split, batch and scheme under constraints.")


def train(model: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    """What `rooflm search train` does with its arguments."""
    from rooflm.search.training import search_train

    start = time.perf_counter()
    with working("searching"):
        found = search_train(model, **asked)
    found_shown(found, _trainer(model, found, asked), time.perf_counter() - start, shown["json"])


app.command("infer", cls=exemplified("search infer"))(infer_command)
app.command("train", cls=exemplified("search train"))(
    command(
        "search train", ["search_train"], train, "Search every legal way to split a training step for the best one."
    )
)


def _trainer(model: str, found: Any, given: dict[str, Any]) -> str:
    """The command that runs the best answer."""
    from rooflm.catalogue.engines import load_engine
    from rooflm.checkpoints.load import load_model
    from rooflm.scenario.build_inference import find_cluster, node_size
    from rooflm.scenario.build_training import assumed_trainer
    from rooflm.search.checkpoint import home_of
    from rooflm.search.train_command import train_command

    if found.best is None:
        return ""
    chosen = found.best.inputs
    named = ("gpu", "engine", "dtype", "cluster", "optimizer", "lora_rank", "lora_modules", "base_bits")
    sets = given.get("sets") or {}
    own = {k: chosen.get(f"training.{k}", sets.get(f"training.{k}")) for k in named}
    one = {k: own[k] or chosen.get(k) or given.get(k) for k in named}
    loaded = load_model(model)
    engine = one["engine"] or assumed_trainer(loaded, {k: v for k, v in one.items() if v is not None})
    node = node_size(find_cluster(one["gpu"], one["cluster"])[0])
    one["lora_rank"] = one["lora_rank"] or loaded.lora_rank or None
    fixed = {**one, "seq": given["seq"], "node": node, "gpus": found.best.outputs["gpus"], "batch": chosen["batch"],
             "tokens": given.get("tokens"), "home": home_of(model, loaded)}  # fmt: skip
    return train_command(loaded, load_engine(engine), chosen, fixed)
