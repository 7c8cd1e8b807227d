"""infer and train: one point gives an Estimate, any list among the arguments gives a labelled Dataset."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rooflm import __version__
from rooflm.axes import Axis, Point, find_axes
from rooflm.errors import RooflmError
from rooflm.inference import InferenceEstimate, infer_scenario
from rooflm.request import build_inference
from rooflm.results import INFER_KEYS, check_outputs, chosen, flatten, infer_values, unflatten
from rooflm.sweep import Job, dataset, run

if TYPE_CHECKING:
    import xarray

    from rooflm.model import Model
    from rooflm.stream import Progress, Streamed


def _infer_point(axes: int = 0, **arguments: Any) -> InferenceEstimate:
    request = build_inference(**arguments)
    scenario = replace(request.scenario, axes=axes)
    return infer_scenario(scenario, request.assumed, request.warnings)


def infer_flat(axes: int = 0, outputs: tuple[str, ...] | None = None, **arguments: Any) -> dict[str, Any]:
    """Outputs of `infer` by dotted name (all, or those named), over `axes` array dimensions."""
    keys = None if outputs is None else {name.split(".")[0] for name in outputs}
    given = {k: v for k, v in arguments.items() if v is not None}
    return chosen(flatten(infer_values(_infer_point(axes, **given), keys)), outputs)


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
      zip: lists that go in step (pairs, no products): ("gpu", "tp"), or several such groups.
      outputs: names of the outputs to work out (default all); on: "local" cores, "ray", or "ray://host:port".

    Returns an InferenceEstimate (SI units), or with axes an xarray.Dataset of the same numbers. An infeasible point is
    no error: `fits` is false and `reason` says why. Raises RooflmError for bad input.

    >>> round(float(infer("llama-7b", gpu="a100-sxm-80gb", prompt=512, output=32, efficiency="ideal").tpot) * 1e3, 2)
    6.62
    """
    given = {"model": model, **arguments}
    grid = infer_grid(given)
    return infer_point(given) if grid is None else grid.dataset()


class InferGrid(NamedTuple):
    """A grid of predictions: its axes, what does not vary, and every output over the axes by its dotted name."""

    axes: list[Axis]
    fixed: Point
    arrays: dict[str, np.ndarray[Any, Any]]

    def dataset(self) -> xarray.Dataset:
        """The grid with labels, units, long names, and the scenario in its attributes."""
        scenario = ", ".join(f"{k}={v}" for k, v in self.fixed.items() if v is not None)
        return dataset(self.arrays, self.axes, INFER_KEYS, {"rooflm": __version__, "scenario": scenario})

    def values(self) -> dict[str, Any]:
        """The grid as nested names and arrays, the axes first (the shape of --json)."""
        return {"axes": {m.name: list(m.values) for a in self.axes for m in a.members}, **unflatten(self.arrays)}


NOT_INPUTS = ("zip", "outputs", "on")
"""Arguments about how to sweep, not what."""


def infer_point(arguments: Point) -> InferenceEstimate:
    """One prediction from arguments without lists (see `infer`)."""
    return _infer_point(**{k: v for k, v in arguments.items() if v is not None and k not in NOT_INPUTS})


def infer_request(arguments: Point) -> tuple[list[Axis], Point, tuple[str, ...] | None]:
    """The axes, the fixed inputs and the outputs asked for, of arguments with lists."""
    axes, fixed = find_axes({k: v for k, v in arguments.items() if k not in ("outputs", "on")})
    outputs = arguments.get("outputs")
    listed = [outputs] if isinstance(outputs, str) else outputs
    return axes, fixed, None if listed is None else check_outputs(listed, INFER_KEYS)


def infer_grid(arguments: Point) -> InferGrid | None:
    """A grid from arguments with lists (see `infer`), or None where there are none."""
    axes, fixed, outputs = infer_request(arguments)
    if not axes:
        return None
    return InferGrid(axes, fixed, run(infer_flat, axes, fixed, outputs, arguments.get("on") or "local"))


STREAMED = (
    "ttft_s",
    "tpot_s",
    "latency_s",
    "output_tokens_per_s",
    "output_tokens_per_s_per_gpu",
    "memory_bytes",
    "fits",
)
"""Outputs of a streamed grid unless others are named."""


def infer_stream(arguments: Point, path: str, progress: Progress | None = None) -> Streamed:
    """A grid of any size into a parquet, nc or csv file, block by block; an interrupted run carries on."""
    from rooflm.stream import stream

    axes, fixed, outputs = infer_request(arguments)
    if not axes:
        raise RooflmError("there is nothing to sweep: give at least one option a list, such as batch=[1, 8, 64]")
    job = Job(infer_flat, tuple(axes), fixed, outputs or STREAMED)
    return stream(job, path, arguments.get("on") or "local", progress=progress)
