"""Predict and measure the performance of large language models: time, memory, communication, energy and cost.

The public names are below; everything else may move. They are loaded when first used, so `import rooflm` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Cluster": "hardware",
    "Device": "hardware",
    "InferenceEstimate": "inference",
    "Mapping": "mapping",
    "Model": "model",
    "RooflmError": "errors",
    "Scenario": "scenario",
    "Workload": "scenario",
    "infer": "api",
    "load_cluster": "catalogue",
    "load_device": "catalogue",
    "load_model": "models",
    "search_infer": "infer_search",
    "search_train": "train_search",
    "serve": "serving.deploy",
    "train": "api",
    "TrainingEstimate": "training",
}
"""Public name -> the module that defines it."""

__all__ = [
    "Cluster",
    "Device",
    "InferenceEstimate",
    "Mapping",
    "Model",
    "RooflmError",
    "Scenario",
    "TrainingEstimate",
    "Workload",
    "infer",
    "load_cluster",
    "load_device",
    "load_model",
    "search_infer",
    "search_train",
    "serve",
    "train",
]

if TYPE_CHECKING:
    from rooflm.api import infer, train
    from rooflm.catalogue import load_cluster, load_device
    from rooflm.errors import RooflmError
    from rooflm.hardware import Cluster, Device
    from rooflm.infer_search import search_infer
    from rooflm.inference import InferenceEstimate
    from rooflm.mapping import Mapping
    from rooflm.model import Model
    from rooflm.models import load_model
    from rooflm.scenario import Scenario, Workload
    from rooflm.serving.deploy import serve
    from rooflm.train_search import search_train
    from rooflm.training import TrainingEstimate


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name in _HOMES:
        return getattr(import_module(f"rooflm.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'rooflm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
