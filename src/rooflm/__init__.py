"""Predict and measure the performance of large language models: time, memory, communication, energy and cost.

The public names are below; everything else may move. They are loaded when first used, so `import rooflm` is quick.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rooflm.shown.version import __version__ as __version__

_HOMES = {
    "Cluster": "catalogue.hardware",
    "Device": "catalogue.hardware",
    "Engine": "catalogue.engine",
    "InferenceEstimate": "asked.answers.inference",
    "Mapping": "scenario.mapping",
    "Model": "catalogue.model",
    "Quant": "catalogue.quant",
    "RooflmError": "errors",
    "RooflmWarning": "errors",
    "Scenario": "scenario.scenario",
    "SearchResult": "search.result",
    "Served": "serving.deploy",
    "Server": "serving.server",
    "Training": "scenario.training",
    "TrainingEstimate": "asked.answers.training",
    "Workload": "scenario.scenario",
    "calibrate": "tools",
    "compare": "tools",
    "explore": "",
    "infer": "api",
    "infer_grid": "api",
    "load_cluster": "readers.devices",
    "load_device": "readers.devices",
    "load_engine": "readers.engines",
    "load_model": "readers.checkpoints.load",
    "measure": "tools",
    "measure_server": "tools",
    "plot": "",
    "predict_attention": "asked.kernel",
    "predict_collective": "asked.kernel",
    "predict_gemm": "asked.kernel",
    "report": "reporting.report",
    "scenario": "api",
    "search_infer": "search.inference",
    "search_serve": "search.under_load",
    "search_train": "search.training",
    "sensitivity": "sweep.sensitivity",
    "serve": "api",
    "stream": "api",
    "study": "works.study",
    "train": "api",
    "train_grid": "api",
    "training_scenario": "api",
    "validate": "tools",
}
"""Public name -> the module that defines it; "" for a module of that name."""

__all__ = [
    "Cluster",
    "Device",
    "Engine",
    "InferenceEstimate",
    "Mapping",
    "Model",
    "Quant",
    "RooflmError",
    "RooflmWarning",
    "Scenario",
    "SearchResult",
    "Served",
    "Server",
    "Training",
    "TrainingEstimate",
    "Workload",
    "calibrate",
    "compare",
    "explore",
    "infer",
    "infer_grid",
    "load_cluster",
    "load_device",
    "load_engine",
    "load_model",
    "measure",
    "measure_server",
    "plot",
    "predict_attention",
    "predict_collective",
    "predict_gemm",
    "report",
    "scenario",
    "search_infer",
    "search_serve",
    "search_train",
    "sensitivity",
    "serve",
    "stream",
    "study",
    "train",
    "train_grid",
    "training_scenario",
    "validate",
]

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
