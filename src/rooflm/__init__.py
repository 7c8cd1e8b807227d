"""Predict and measure the performance of large language models: time, memory, communication, energy and cost.

The public names are below; everything else may move. They are loaded when first used, so `import rooflm` is quick.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rooflm.shown.version import __version__ as __version__

_PLACES = {
    "": "explore plot",
    "api": "infer infer_grid scenario serve stream train train_grid training_scenario",
    "asked.answers.inference": "InferenceEstimate",
    "asked.answers.training": "TrainingEstimate",
    "asked.kernel": "predict_attention predict_collective predict_gemm",
    "catalogue.engine": "Engine",
    "catalogue.hardware": "Cluster Device",
    "catalogue.model": "Model",
    "catalogue.quant": "Quant",
    "errors": "RooflmError RooflmWarning",
    "readers.checkpoints.load": "load_model",
    "readers.devices": "load_cluster load_device",
    "readers.engines": "load_engine",
    "reporting.report": "report",
    "scenario.mapping": "Mapping",
    "scenario.scenario": "Scenario Workload",
    "scenario.training": "Training",
    "search.inference": "search_infer",
    "search.result": "SearchResult",
    "search.training": "search_train",
    "search.under_load": "search_serve",
    "serving.deploy": "Served",
    "serving.server": "Server",
    "sweep.sensitivity": "sensitivity",
    "tools": "calibrate compare measure measure_server validate",
    "works.study": "study",
}
"""Module -> the public names that it defines; "": names of modules."""
_HOMES = {name: home for home, names in _PLACES.items() for name in names.split()}

__all__ = [
    "Cluster", "Device", "Engine", "InferenceEstimate", "Mapping", "Model", "Quant", "RooflmError", "RooflmWarning",
    "Scenario", "SearchResult", "Served", "Server", "Training", "TrainingEstimate", "Workload", "calibrate",
    "compare", "explore", "infer", "infer_grid", "load_cluster", "load_device", "load_engine", "load_model",
    "measure", "measure_server", "plot", "predict_attention", "predict_collective", "predict_gemm", "report",
    "scenario", "search_infer", "search_serve", "search_train", "sensitivity", "serve", "stream", "study", "train",
    "train_grid", "training_scenario", "validate",
]  # fmt: skip

if TYPE_CHECKING:
    from rooflm import explore, plot
    from rooflm.api import infer, infer_grid, scenario, serve, stream, train, train_grid, training_scenario
    from rooflm.asked.answers.inference import InferenceEstimate
    from rooflm.asked.answers.training import TrainingEstimate
    from rooflm.asked.kernel import predict_attention, predict_collective, predict_gemm
    from rooflm.catalogue.engine import Engine
    from rooflm.catalogue.hardware import Cluster, Device
    from rooflm.catalogue.model import Model
    from rooflm.catalogue.quant import Quant
    from rooflm.errors import RooflmError, RooflmWarning
    from rooflm.readers.checkpoints.load import load_model
    from rooflm.readers.devices import load_cluster, load_device
    from rooflm.readers.engines import load_engine
    from rooflm.reporting.report import report
    from rooflm.scenario.mapping import Mapping
    from rooflm.scenario.scenario import Scenario, Workload
    from rooflm.scenario.training import Training
    from rooflm.search.inference import search_infer
    from rooflm.search.result import SearchResult
    from rooflm.search.training import search_train
    from rooflm.search.under_load import search_serve
    from rooflm.serving.deploy import Served
    from rooflm.serving.server import Server
    from rooflm.sweep.sensitivity import sensitivity
    from rooflm.tools import calibrate, compare, measure, measure_server, validate


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'rooflm' has no attribute {name!r}")
    found = getattr(import_module(f"rooflm.{home}"), name) if home else import_module(f"rooflm.{name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Face(ModuleType):
    """The package as people see it: `measure` and `scenario` stay the public calls when the folders of these names,
    which hold their parts, are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and _HOMES.get(name)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
