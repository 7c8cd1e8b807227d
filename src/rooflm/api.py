"""infer and train: one point gives an Estimate, any list among the arguments gives a labelled Dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rooflm.errors import RooflmError
from rooflm.estimate.inference import InferenceEstimate, infer_scenario
from rooflm.estimate.inference_results import INFER_KEYS, check_outputs, chosen, flatten, infer_values, unflatten
from rooflm.scenario.build_inference import build_inference
from rooflm.scenario.rules import INFERENCE, TRAINING, marking
from rooflm.sweep.axes import Axis, Point, find_axes
from rooflm.sweep.sweep import Job, dataset, run
from rooflm.version import __version__

if TYPE_CHECKING:
    import xarray

    from rooflm.catalogue.model import Model
    from rooflm.estimate.training import TrainingEstimate
    from rooflm.sweep.stream import Progress, Streamed


def infer_over(axes: int = 0, alone: bool = False, **arguments: Any) -> InferenceEstimate:
    """The estimate of arguments whose numbers may be arrays of `axes` dimensions. alone: a split that breaks a rule is
    refused; otherwise, inside a grid or a search, its points are marked."""
    request = build_inference(**arguments, alone=alone)
    scenario = replace(request.scenario, axes=axes)
    with nullcontext() if alone else marking(scenario, INFERENCE):
        return infer_scenario(scenario, request.assumed, request.warnings)


def infer_flat(axes: int = 0, outputs: tuple[str, ...] | None = None, **arguments: Any) -> dict[str, Any]:
    """Outputs of `infer` by dotted name (all, or those named), over `axes` array dimensions."""
    keys = None if outputs is None else {name.split(".")[0] for name in outputs}
    given = {k: v for k, v in arguments.items() if v is not None}
    return chosen(flatten(infer_values(infer_over(axes, **given), keys)), outputs)


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


class Grid(NamedTuple):
    """A grid of predictions: its axes, what does not vary, and every output over the axes by its dotted name.

    keys: meaning and unit of each output.
    """

    axes: list[Axis]
    fixed: Point
    arrays: dict[str, np.ndarray[Any, Any]]
    keys: Mapping[str, tuple[str, str]] = INFER_KEYS

    def dataset(self) -> xarray.Dataset:
        """The grid with labels, units, long names, and the scenario in its attributes."""
        scenario = ", ".join(f"{k}={v}" for k, v in self.fixed.items() if v is not None)
        return dataset(self.arrays, self.axes, self.keys, {"rooflm": __version__, "scenario": scenario})

    def values(self) -> dict[str, Any]:
        """The grid as nested names and arrays, the axes first (the shape of --json)."""
        return {"axes": {m.name: list(m.values) for a in self.axes for m in a.members}, **unflatten(self.arrays)}


NOT_INPUTS = ("zip", "outputs", "on")
"""Arguments about how to sweep, not what."""


def infer_point(arguments: Point) -> InferenceEstimate:
    """One prediction from arguments without lists (see `infer`)."""
    return infer_over(alone=True, **{k: v for k, v in arguments.items() if v is not None and k not in NOT_INPUTS})


InferGrid = Grid
"""A grid of `infer`."""


def grid_request(
    arguments: Point, keys: Mapping[str, tuple[str, str]]
) -> tuple[list[Axis], Point, tuple[str, ...] | None]:
    """The axes, the fixed inputs and the outputs asked for (of `keys`), of arguments with lists."""
    axes, fixed = find_axes({k: v for k, v in arguments.items() if k not in ("outputs", "on")})
    outputs = arguments.get("outputs")
    listed = [outputs] if isinstance(outputs, str) else outputs
    return axes, fixed, None if listed is None else check_outputs(listed, keys)


def infer_request(arguments: Point) -> tuple[list[Axis], Point, tuple[str, ...] | None]:
    """The axes, the fixed inputs and the outputs asked for, of arguments of `infer` with lists."""
    return grid_request(arguments, INFER_KEYS)


def make_grid(
    flat: Callable[..., dict[str, Any]], arguments: Point, keys: Mapping[str, tuple[str, str]]
) -> Grid | None:
    """The grid of arguments with lists, or None where there are none."""
    axes, fixed, outputs = grid_request(arguments, keys)
    if not axes:
        return None
    return Grid(axes, fixed, run(flat, axes, fixed, outputs, arguments.get("on") or "local"), keys)


def infer_grid(arguments: Point) -> Grid | None:
    """A grid from arguments with lists (see `infer`), or None where there are none."""
    return make_grid(infer_flat, arguments, INFER_KEYS)


def train_over(axes: int = 0, alone: bool = False, **arguments: Any) -> TrainingEstimate:
    """The training estimate of arguments whose numbers may be arrays of `axes` dimensions; alone: as `infer_over`."""
    from rooflm.estimate.training import train_scenario
    from rooflm.scenario.build_training import build_training

    request = build_training(**arguments, alone=alone)
    scenario = replace(request.scenario, axes=axes)
    with nullcontext() if alone else marking(scenario, TRAINING):
        return train_scenario(scenario, request.assumed, request.warnings)


def train_flat(axes: int = 0, outputs: tuple[str, ...] | None = None, **arguments: Any) -> dict[str, Any]:
    """Outputs of `train` by dotted name (all, or those named), over `axes` array dimensions."""
    from rooflm.estimate.training_results import train_values

    given = {k: v for k, v in arguments.items() if v is not None}
    return chosen(flatten(train_values(train_over(axes, **given))), outputs)


def train_point(arguments: Point) -> TrainingEstimate:
    """One prediction of training from arguments without lists (see `train`)."""
    return train_over(alone=True, **{k: v for k, v in arguments.items() if v is not None and k not in NOT_INPUTS})


def train_grid(arguments: Point) -> Grid | None:
    """A grid of training predictions from arguments with lists (see `train`), or None where there are none."""
    from rooflm.estimate.training_results import TRAIN_KEYS

    return make_grid(train_flat, arguments, TRAIN_KEYS)


def train(model: str | Model, **arguments: Any) -> TrainingEstimate | xarray.Dataset:
    """Predict training: step time, memory and fit, communication, MFU and HFU, GPU-hours, energy and cost.

    model: as in `infer`. Arguments (each may be a list, which makes an axis of that name):
      gpu, cluster, gpus; tp, pp, vp, dp, cp, ep: as in `infer`, vp virtual stages a device; sp: sequence parallelism.
      batch: sequences a step in all; seq: tokens a sequence; micro_batch: sequences a micro-batch; tokens: of the run.
      recompute: none, selective, ops, full or block; recompute_layers: how many (0 all); recompute_modules: parts of a
      layer beside that (core_attn, layernorm, mla_up_proj, moe_act, mlp, moe); zero: 0 to 3 or "fsdp".
      order: groups by nearness, "tp-cp-dp-pp" unless told otherwise; schedule: gpipe, 1f1b, interleaved, zb-h1, zb-h2
      or dualpipe; dtype: bf16, fp16, fp8 and others; optimizer: adam, adam-bf16, adam8bit,
      adafactor, muon, sgd or sgd-momentum.
      lora_rank, lora_modules, base_bits: fine-tuning through adapters on a base of that many bits.
      engine: a training row; efficiency, sets, zip, outputs, on: as in `infer`.

    Returns a TrainingEstimate (SI units), or with axes an xarray.Dataset. Raises RooflmError for bad input.

    >>> run = train("gpt3-175b", gpu="a100", gpus=1024, tp=8, pp=8, batch=1536, seq=2048, recompute="selective")
    >>> bool(run.fits)
    True
    """
    given = {"model": model, **arguments}
    grid = train_grid(given)
    return train_point(given) if grid is None else grid.dataset()


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
    return stream_grid(infer_flat, arguments, INFER_KEYS, STREAMED, path, progress)


STREAMED_TRAINING = ("step_time_s", "tokens_per_s_per_gpu", "mfu", "memory_bytes", "fits")
"""Outputs of a streamed grid of training unless others are named."""


def train_stream(arguments: Point, path: str, progress: Progress | None = None) -> Streamed:
    """As `infer_stream`, of training."""
    from rooflm.estimate.training_results import TRAIN_KEYS

    return stream_grid(train_flat, arguments, TRAIN_KEYS, STREAMED_TRAINING, path, progress)


def stream_grid(
    flat: Callable[..., dict[str, Any]],
    arguments: Point,
    keys: Mapping[str, tuple[str, str]],
    usual: tuple[str, ...],
    path: str,
    progress: Progress | None,
) -> Streamed:
    """The grid of arguments with lists into a file; `usual`: its outputs unless others are named."""
    from rooflm.sweep.stream import stream

    axes, fixed, outputs = grid_request(arguments, keys)
    if not axes:
        raise RooflmError("there is nothing to sweep: give at least one option a list, such as batch=[1, 8, 64]")
    job = Job(flat, tuple(axes), fixed, outputs or usual)
    return stream(job, path, arguments.get("on") or "local", progress=progress)
