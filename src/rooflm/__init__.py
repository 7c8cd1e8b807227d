"""Predict and measure the performance of large language models: time, memory, communication, energy and cost.

The public names are below; everything else may move. They are loaded when first used, so `import rooflm` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rooflm.version import __version__ as __version__

_HOMES = {
    "Cluster": "catalogue.hardware",
    "Device": "catalogue.hardware",
    "InferenceEstimate": "estimate.inference",
    "Mapping": "scenario.mapping",
    "Model": "catalogue.model",
    "RooflmError": "errors",
    "Scenario": "scenario.scenario",
    "Workload": "scenario.scenario",
    "infer": "api",
    "load_cluster": "catalogue.devices",
    "load_device": "catalogue.devices",
    "load_model": "catalogue.models",
    "search_infer": "search.inference",
    "search_train": "search.training",
    "serve": "serving.deploy",
    "train": "api",
    "TrainingEstimate": "estimate.training",
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
    from rooflm.catalogue.devices import load_cluster, load_device
    from rooflm.catalogue.hardware import Cluster, Device
    from rooflm.catalogue.model import Model
    from rooflm.catalogue.models import load_model
    from rooflm.errors import RooflmError
    from rooflm.estimate.inference import InferenceEstimate
    from rooflm.estimate.training import TrainingEstimate
    from rooflm.scenario.mapping import Mapping
    from rooflm.scenario.scenario import Scenario, Workload
    from rooflm.search.inference import search_infer
    from rooflm.search.training import search_train
    from rooflm.serving.deploy import serve


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name in _HOMES:
        return getattr(import_module(f"rooflm.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'rooflm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
