"""infer and train: one point gives an Estimate, any list among the arguments gives a labelled Dataset."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rooflm import __version__
from rooflm.inference import InferenceEstimate, infer_scenario
from rooflm.request import build_inference
from rooflm.results import INFER_KEYS, flatten, infer_values
from rooflm.sweep import dataset, find_axes, nest, run

if TYPE_CHECKING:
    import xarray

    from rooflm.model import Model


def _infer_point(axes: int = 0, **arguments: Any) -> InferenceEstimate:
    request = build_inference(**arguments)
    scenario = replace(request.scenario, axes=axes)
    return infer_scenario(scenario, request.assumed, request.warnings)


def _infer_flat(axes: int = 0, **arguments: Any) -> dict[str, Any]:
    return flatten(infer_values(_infer_point(axes, **arguments)))


def infer(model: str | Model, **arguments: Any) -> InferenceEstimate | xarray.Dataset:
    """Predict inference: time, memory and fit, communication, utilisation, energy and cost.

    model: a catalogue name, a Hugging Face id that the catalogue knows, a path to a config.json or a .toml, a Model.
    Arguments (each may be a list, which makes an axis of that name):
      gpu: device name or path; cluster: where it stands (default: the device's own); gpus: how many.
      tp, pp, dp, ep, cp: degrees of tensor, pipeline, data, expert and context parallelism.
      batch: sequences in all; prompt, output: tokens a sequence; cached: prompt tokens in the cache already.
      logits: "last" or "all"; quant: a scheme such as "w4a16kv8"; engine: a row of the engines.
      efficiency: "calibrated" (default), "ideal", or flat factors "F,M" of peak compute and bandwidth.
      sets: {path: value} for any other input, such as {"cluster.device.dram.bandwidth": 4e12}.

    Returns an InferenceEstimate (SI units), or with axes an xarray.Dataset of the same numbers. An infeasible point is
    no error: `fits` is false and `reason` says why. Raises RooflmError for bad input.

    >>> round(infer("llama-7b", gpu="a100-sxm-80gb", prompt=512, output=32, efficiency="ideal").tpot * 1e3, 2)
    6.62
    """
    axes, fixed = find_axes({"model": model, **arguments})
    if not axes:
        return _infer_point(**nest(fixed))
    arrays = run(_infer_flat, axes, fixed)
    attributes = {"rooflm": __version__, "scenario": ", ".join(f"{k}={v}" for k, v in fixed.items() if v is not None)}
    return dataset(arrays, axes, INFER_KEYS, attributes)
