"""infer, train, serve: one scenario gives an estimate, any list among the arguments a labelled Dataset.

Signatures and lists of arguments are written by `scripts/signatures` from `asked.arguments.TABLE`.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, get_overloads, overload

import numpy as np

from rooflm.asked.answers import inference
from rooflm.asked.answers.bands import borrowed, whose_constants
from rooflm.asked.answers.inference import InferenceEstimate
from rooflm.asked.answers.outputs import INFER_OUTPUTS, TRAIN_OUTPUTS, Outputs, check_outputs, chosen
from rooflm.asked.answers.result import Result
from rooflm.asked.arguments import SWEPT, defaults, idle, refuse_idle, refuse_unknown, refuse_wrong
from rooflm.asked.arguments import arguments as table_of
from rooflm.asked.build_inference import Built, build_inference, find_model, output_of
from rooflm.asked.files import arguments_of, read_table
from rooflm.asked.written import read
from rooflm.errors import RooflmError
from rooflm.scenario.rules import INFERENCE, TRAINING, Rule, flags
from rooflm.scenario.scenario import Scenario
from rooflm.shown.answer import flatten
from rooflm.shown.numbers import count
from rooflm.shown.progress import notebook_clock
from rooflm.sweep.assumed import of_points
from rooflm.sweep.axes import Axis, Point, columns, find_axes, grids, is_list, nest, numeric_point, points
from rooflm.sweep.grid import Grid
from rooflm.sweep.sweep import BLOCK, GridJob, run

if TYPE_CHECKING:
    import xarray
    from numpy.typing import NDArray

    from rooflm.asked.answers.training import TrainingEstimate
    from rooflm.catalogue.engine import Engine
    from rooflm.catalogue.hardware import Cluster, Device
    from rooflm.catalogue.model import Model
    from rooflm.catalogue.quant import Quant
    from rooflm.scenario.scenario import Efficiency
    from rooflm.serving.deploy import Served
    from rooflm.serving.server import Server
    from rooflm.serving.simulate import Progress
    from rooflm.sweep.stream import Progress as Blocks
    from rooflm.sweep.stream import Streamed

    Names = str | Sequence[str]
    Numbers = float | Sequence[float] | NDArray[Any]
    Models = str | Model | Sequence[str | Model]
    Devices = Names | Device | Sequence[Device]
    Clusters = Names | Cluster | Sequence[Cluster]
    Engines = Names | Engine | Sequence[Engine]
    Schemes = Names | Quant | Sequence[Quant]

P = ParamSpec("P")
T = TypeVar("T")


WITH_TEXT = (str, list, tuple, Mapping)
"""Arguments that may hold numbers as texts ("8k")."""
CALLS = {"infer_grid": "infer", "scenario": "infer", "train_grid": "train", "training_scenario": "train"}
"""Public call -> the call whose arguments it takes."""


def named(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which refuses an argument that it does not have with the arguments most like it, and takes a
    scenario file in the model's place: what it holds stands where nothing else is given. Of one with overloads the last
    one's arguments are known, and their defaults given."""
    signature = inspect.signature((get_overloads(function) or [function])[-1])
    known = {name: p.default for name, p in signature.parameters.items() if name != "model"}

    @wraps(function)
    def call(*given: P.args, **arguments: P.kwargs) -> T:
        if not known.keys() >= arguments.keys() - {"model"}:
            refuse_unknown(function.__name__, arguments, [*known])
        sets = arguments.get("sets")
        if sets is not None and not (isinstance(sets, Mapping) and all(isinstance(path, str) for path in sets)):
            raise RooflmError(f"sets is {sets!r}, but it must be a dict of paths, such as {{'model.depth_scale': 2}}")
        if len(given) > 1:
            raise RooflmError(
                f"{function.__name__} takes the model alone without a name: give the rest as gpu='h100', batch=16"
            )
        for name, value in arguments.items():
            if isinstance(value, np.ndarray | os.PathLike | list) or getattr(value, "ndim", 0) > 1:
                arguments[name] = _plain(name, value)
        same = CALLS.get(function.__name__, function.__name__)
        if any(isinstance(v, WITH_TEXT) for v in arguments.values()):
            arguments = read(same, arguments)  # type: ignore[assignment]
        model = given[0] if given else arguments.get("model")
        if model is None:
            raise RooflmError("model is missing: give a name, such as llama-3.1-8b (see `rooflm list models`)")
        table = read_table(model) if given and isinstance(model, str) else None
        if table is None:
            return function(*given, **known | arguments)
        return function(table["model"], **known | arguments_of(str(model), table, table_of(same), same) | arguments)

    returns = function.__annotations__["return"]
    call.__signature__ = signature.replace(return_annotation=returns)  # type: ignore[attr-defined]
    return call


def _plain(name: str, value: Any) -> Any:
    """A path as text, in a list too, and an array without dimensions as its number.

    >>> from pathlib import Path
    >>> _plain("batch", np.array(4)), _plain("gpu", [Path("mine.toml"), "h100"])
    (4, ['mine.toml', 'h100'])
    """
    if isinstance(value, list):
        return [os.fspath(v) if isinstance(v, os.PathLike) else v for v in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value.ndim > 1:
        kind = "an array" if isinstance(value, np.ndarray) else "a table"
        raise RooflmError(f"{name} is {kind} of {value.ndim} dimensions, but a list of values has one")
    return value if value.ndim else value.item()


VERDICT = ("fits", "reason")
"""Outputs that a point has which breaks a rule."""


def blank(value: Any, broken: NDArray[Any]) -> NDArray[Any]:
    """An output with not-a-number (a text: nothing) where a point breaks a rule.

    >>> blank(np.array([1, 2]), np.array([False, True])), blank("dram", np.array([False, True]))
    (array([ 1., nan]), array(['dram', ''], dtype='<U4'))
    """
    told = np.asarray(value)
    return np.where(broken, np.nan if told.dtype.kind in "fiub" else "", told)


@dataclass(frozen=True)
class Task:
    """What can be predicted of a scenario: how it is built from arguments, worked out, and read.

    name: of the public call whose arguments these are; rules: that a split keeps; streamed: outputs of a streamed grid
    unless others are named; block: points that are evaluated at a time.
    """

    name: str
    build: Callable[..., Built]
    estimate: Callable[..., Result]
    outputs: Outputs
    rules: tuple[Rule, ...]
    streamed: tuple[str, ...]
    block: int = BLOCK

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Of its rules."""
        return tuple(rule.reason for rule in self.rules)

    def __reduce__(self) -> str:
        """Workers know it by its name, INFER or TRAIN."""
        return self.name.upper()

    def over(self, axes: int = 0, alone: bool = False, **arguments: Any) -> Any:
        """The estimate of arguments whose numbers may be arrays of `axes` dimensions. alone: a split that breaks a rule
        is refused; otherwise, inside a grid or a search, its points are marked."""
        request = self.build(**arguments, alone=alone)
        scenario = replace(request.scenario, axes=axes) if axes else request.scenario
        if alone:  # what was not refused keeps every rule
            assumed = whose_constants(scenario, request.assumed)
            return self.estimate(scenario, assumed, request.warnings, dict.fromkeys(self.reasons, False))
        broken = flags(scenario, self.rules)
        # numbers of marked points mean nothing, and NumPy does not warn of them
        with np.errstate(all="ignore") if any(map(np.any, broken.values())) else nullcontext():
            return self.estimate(scenario, request.assumed, request.warnings, broken)

    def bands(self, axes: int = 0, **arguments: Any) -> dict[str, dict[str, Any]]:
        """Error bands by output, over `axes` array dimensions."""
        bands: dict[str, dict[str, Any]] = self.over(axes, **arguments).error_band
        return bands

    def flat(self, axes: int = 0, outputs: tuple[str, ...] | None = None, **arguments: Any) -> dict[str, Any]:
        """Outputs by dotted name (all, or those named), over `axes` array dimensions.

        A point that breaks a rule has its reason and no numbers: alone it would be refused.
        """
        keys = None if outputs is None else {name.split(".")[0] for name in outputs}
        estimate = self.over(axes, **arguments)
        broken = estimate.limits.illegal
        if not np.any(broken):
            return chosen(flatten(estimate.values(keys)), outputs)
        with np.errstate(all="ignore"):
            found = chosen(flatten(estimate.values(keys)), outputs)
        return {k: v if k in VERDICT else blank(v, broken) for k, v in found.items()}

    def point(self, arguments: Point) -> Any:
        """The estimate of arguments without lists."""
        refuse_idle(self.name, arguments)
        return self.over(alone=True, **{k: v for k, v in arguments.items() if v is not None and k not in SWEPT})

    def request(self, arguments: Point) -> tuple[list[Axis], Point, tuple[str, ...] | None]:
        """The axes, the fixed inputs and the outputs asked for, of arguments with lists."""
        refuse_unknown(self.name, arguments)
        refuse_wrong(self.name, arguments)
        if arguments.get("on") not in (None, "local"):
            from rooflm.sweep.workers import place

            place(arguments["on"])
        axes, fixed = find_axes({k: v for k, v in arguments.items() if k not in ("outputs", "on")})
        outputs = arguments.get("outputs")
        listed = [outputs] if isinstance(outputs, str) else outputs
        if "output" in fixed and "model" in fixed:
            fixed["output"] = output_of(find_model(fixed["model"]), fixed["output"])
        return axes, fixed, None if listed is None else check_outputs(listed, self.outputs)

    def grid(self, arguments: Point) -> Grid:
        """A grid over the lists among the arguments (of one point where there are none)."""
        axes, fixed, outputs = self.request(arguments)
        with notebook_clock("working out points"):
            arrays = run(self.flat, axes, fixed, outputs, arguments.get("on") or "local", self.block)
        return Grid(axes, fixed, arrays, self.outputs, outputs or ())

    def runs_somewhere(self, grid: Grid) -> None:
        """RooflmError where every point of a grid breaks a rule: the sentence on the first of them."""
        numbers = [v for k, v in grid.arrays.items() if v.dtype.kind == "f"]
        if numbers and all(np.isnan(v).all() for v in numbers):
            first = {m.name: m.values[0] for axis in grid.axes for m in axis.members}
            try:
                self.over(alone=True, **nest({**grid.fixed, **first}))
            except RooflmError as refused:
                raise RooflmError(f"no point of the grid can run; the first: {refused}") from None

    def stream(self, arguments: Point, path: str, progress: Blocks | None = None) -> Streamed:
        """A grid of any size into a parquet, nc or csv file, block by block; an interrupted run carries on."""
        from rooflm.sweep.stream import stream

        axes, fixed, outputs = self.request(arguments)
        if not axes:
            raise RooflmError("there is nothing to sweep: give at least one option a list, such as batch=[1, 8, 64]")
        job = GridJob(self.flat, tuple(axes), fixed, outputs or self.streamed)
        where = arguments.get("on") or "local"
        return stream(job, path, where, progress=progress, content=self.content(axes, fixed))

    def content(self, axes: list[Axis], fixed: Point) -> str:
        """A hash of every structure that a grid has, as it was read: models, devices and engines may be files."""
        first = {m.name: m.values[0] for a in grids(axes)[1] for m in a.members}
        import hashlib  # which loads OpenSSL

        told = hashlib.sha256()
        for names in points(grids(axes)[0]):
            scenario = self.build(**nest({**fixed, **first, **names}), alone=False).scenario
            with np.printoptions(threshold=2**40, precision=17):
                told.update(repr(asdict(scenario)).encode())
        return told.hexdigest()

    def told(self, grid: Grid) -> Grid:
        """The grid with what its points take for granted and what to know of them; of very many names as it is."""
        every = list(points(grids(grid.axes)[0]))
        if len(every) > MOST_NAMES:
            return grid
        numbers = numeric_point(grids(grid.axes)[1])
        asked = {**grid.fixed, **numbers}
        told: list[tuple[dict[str, str], list[str]]] = []
        warnings: dict[str, None] = {}
        for names in every:
            request = self.build(**nest({**asked, **names}), alone=False)
            labels = {name: str(getattr(value, "name", value)) for name, value in names.items()}
            told.append((labels, [*request.assumed, *borrowed(request.scenario)]))
            warnings |= dict.fromkeys(request.warnings)
        return grid._replace(assumed=of_points(told), warnings=tuple(warnings))

    def answer(self, given: Point) -> Any:
        """The estimate of a scenario, or of arguments; with lists among them, a Dataset."""
        scenario = given["model"]
        if isinstance(scenario, Scenario):
            usual = defaults(self.name)
            more = [k for k, v in given.items() if k != "model" and k not in SWEPT and v != usual[k]]
            if more:
                raise RooflmError(f"{more[0]} is given beside a Scenario, which holds it already: leave it out")
            return self.estimate(scenario)
        given = {k: v if type(v) in PLAIN else columns(v) for k, v in given.items() if v is not None}
        zipped = given.get("zip", ())
        if not (isinstance(zipped, str | list | tuple) and not zipped) or has_lists(given):
            return self.told(self.grid(given)).dataset()
        if "outputs" in given:
            self.request(given)
        return self.point(given)


PLAIN = (str, int, float, bool)
"""Kinds of arguments that are one value, neither a list nor a column of a table."""


MOST_NAMES = 64
"""Most combinations of names of a grid whose assumptions are told."""


def has_lists(given: Point) -> bool:
    """Whether any argument, or any of `sets`, makes an axis."""
    inputs = (v for k, v in given.items() if type(v) not in PLAIN and k not in SWEPT)
    return any(map(is_list, inputs)) or any(map(is_list, (given.get("sets") or {}).values()))


def _build_training(**arguments: Any) -> Built:
    """`build_training`, imported when first used: inference starts without it."""
    from rooflm.asked.build_training import build_training

    return build_training(**arguments)


def _train(*given: Any) -> TrainingEstimate:
    """`answers.training.train`, imported when first used."""
    from rooflm.asked.answers.training import train

    return train(*given)


INFER = Task(
    "infer", build_inference, inference.infer, INFER_OUTPUTS, INFERENCE,
    ("ttft_s", "tpot_s", "latency_s", "output_tokens_per_s", "output_tokens_per_s_per_gpu", "memory_bytes", "fits"),
)  # fmt: skip
TRAIN = Task(
    "train", _build_training, _train, TRAIN_OUTPUTS, TRAINING,
    ("step_time_s", "tokens_per_s_per_gpu", "mfu", "memory_bytes", "fits"), 2 * BLOCK,
)  # fmt: skip


@overload
def infer(  # type: ignore[overload-overlap]  # a list is told from one value at run time
    model: str | Model | Scenario, *, gpu: str | Device | None = None, gpus: float | None = None,
    price: float | None = None, owned: bool = False, purchase: float | None = None, electricity: float = 0.15,
    cluster: str | Cluster | None = None, tp: float | None = None, pp: float | None = None, dp: float | None = None,
    cp: float | None = None, ep: float | None = None, batch: float = 1, prompt: float = 512, output: float = 128,
    cached: float = 0, logits: str = "last", guesses: float = 0, draft: str | None = None, acceptance: float = 0.7,
    accepted: float = 0, branches: float = 1, adapters: float = 0, adapter_rank: float = 16,
    adapter_modules: str | None = None, cpu_layers: float = 0, cpu_experts: float = 0,
    host_bandwidth: float | None = None, quant: str | Quant | None = None, engine: str | Engine | None = None,
    efficiency: str | Efficiency | None = None, sets: Mapping[str, Any] | None = None, zip: Sequence[Any] | None = None,
    outputs: Names | None = None, on: str = "local",
) -> InferenceEstimate: ...  # fmt: skip
@overload
def infer(
    model: Models | Scenario, *, gpu: Devices | None = None, gpus: Numbers | None = None, price: Numbers | None = None,
    owned: bool = False, purchase: Numbers | None = None, electricity: Numbers = 0.15, cluster: Clusters | None = None,
    tp: Numbers | None = None, pp: Numbers | None = None, dp: Numbers | None = None, cp: Numbers | None = None,
    ep: Numbers | None = None, batch: Numbers = 1, prompt: Numbers = 512, output: Numbers = 128, cached: Numbers = 0,
    logits: Names = "last", guesses: Numbers = 0, draft: str | None = None, acceptance: Numbers = 0.7,
    accepted: Numbers = 0, branches: Numbers = 1, adapters: Numbers = 0, adapter_rank: Numbers = 16,
    adapter_modules: Names | None = None, cpu_layers: Numbers = 0, cpu_experts: Numbers = 0,
    host_bandwidth: Numbers | None = None, quant: Schemes | None = None, engine: Engines | None = None,
    efficiency: Names | Efficiency | None = None, sets: Mapping[str, Any] | None = None,
    zip: Sequence[Any] | None = None, outputs: Names | None = None, on: str = "local",
) -> xarray.Dataset: ...  # fmt: skip
@named
def infer(model: Any, **arguments: Any) -> InferenceEstimate | xarray.Dataset:
    """Predict inference: time, memory and fit, communication, utilisation, energy and cost.

    model: a catalogue name, a Hugging Face id that the catalogue knows, a path to a config.json or a .toml, a Model, or
    a Scenario (see `scenario`), which then holds everything else.
    Arguments (a list makes an axis of that name):
      gpu: GPU name or .toml (see `rooflm list gpus`).
      gpus: How many GPUs; split into tp, then pp, unless given.
      price: USD an hour of one GPU (default: the card's row).
      owned: Cost of GPUs of one's own, bought at their public price and used for 4 years, and their electricity,
        in place of rent.
      purchase: USD that one GPU of one's own costs to buy (default with --owned: the catalogue's).
      electricity (USD/kWh): USD a kWh of one's own GPUs.
      cluster: Cluster (default: the GPU's own).
      tp: Tensor parallel degree.
      pp: Pipeline parallel degree.
      dp: Data parallel degree (replicas, or attention DP with ep).
      cp: Context parallel degree.
      ep: Expert parallel degree (of tp x dp).
      batch: Sequences at a time, in all.
      prompt: Prompt tokens a sequence.
      output: Output tokens a sequence.
      cached: Prompt tokens already in the cache (prefix caching).
      logits: Logits of the 'last' prompt token or of 'all'.
      guesses: Tokens guessed a step by a draft or the model's own heads (0: none).
      draft: Draft model that guesses (default: heads of the model's own: MTP, EAGLE).
      acceptance: Chance that a guess is right.
      accepted: Tokens that a step gains as measured, in place of acceptance.
      branches: Guesses side by side at each depth: 1 a chain, else a tree.
      adapters: Adapters held on the devices, each request asking for one (0: none).
      adapter_rank: Rank of each.
      adapter_modules: Products that they adapt, such as qkv,out (default: all).
      cpu_layers: Whole layers in the host's memory, on its CPU (llama.cpp: all less -ngl).
      cpu_experts: Layers whose experts alone are there (llama.cpp: --n-cpu-moe).
      host_bandwidth (B/s): Rate of the host's memory, such as 89.6GB/s of two channels of DDR5-5600.
      quant: Scheme, such as w16a16kv16, w4a16kv8, fp8, nvfp4.
      engine: Engine, of a release as vllm-0.11 (default: vllm; ideal without overheads).
      efficiency: calibrated, ideal, or factors such as 0.7,0.9.
      sets: Any other input by its path.
      zip: Lists that go in step: pairs, no products.
      outputs: Work out these outputs only (keys of --json).
      on: Where blocks of a grid run: local, ray or ray://host:port.

    Returns an InferenceEstimate (SI units), or with lists an xarray.Dataset of the same numbers. An infeasible point is
    no error: `fits` is false and `reason` says why. Raises RooflmError for bad input.

    >>> round(infer("llama-7b", gpu="a100-sxm-80gb", prompt=512, output=32, efficiency="ideal").tpot * 1e3, 2)
    6.62
    """
    return INFER.answer({"model": model, **arguments})


@named
def infer_grid(
    model: Models, *, gpu: Devices | None = None, gpus: Numbers | None = None, price: Numbers | None = None,
    owned: bool = False, purchase: Numbers | None = None, electricity: Numbers = 0.15, cluster: Clusters | None = None,
    tp: Numbers | None = None, pp: Numbers | None = None, dp: Numbers | None = None, cp: Numbers | None = None,
    ep: Numbers | None = None, batch: Numbers = 1, prompt: Numbers = 512, output: Numbers = 128, cached: Numbers = 0,
    logits: Names = "last", guesses: Numbers = 0, draft: str | None = None, acceptance: Numbers = 0.7,
    accepted: Numbers = 0, branches: Numbers = 1, adapters: Numbers = 0, adapter_rank: Numbers = 16,
    adapter_modules: Names | None = None, cpu_layers: Numbers = 0, cpu_experts: Numbers = 0,
    host_bandwidth: Numbers | None = None, quant: Schemes | None = None, engine: Engines | None = None,
    efficiency: Names | Efficiency | None = None, sets: Mapping[str, Any] | None = None,
    zip: Sequence[Any] | None = None, outputs: Names | None = None, on: str = "local",
) -> xarray.Dataset:  # fmt: skip
    """As `infer`, but always an xarray.Dataset: without lists, of one point and no axes.

    >>> infer_grid("llama-7b", gpu="a100-sxm-80gb", batch=[1, 8], efficiency="ideal").sizes["batch"]
    2
    """
    return INFER.grid(given_of(locals())).dataset()


@named
def scenario(
    model: str | Model, *, gpu: str | Device | None = None, gpus: float | None = None, price: float | None = None,
    owned: bool = False, purchase: float | None = None, electricity: float = 0.15, cluster: str | Cluster | None = None,
    tp: float | None = None, pp: float | None = None, dp: float | None = None, cp: float | None = None,
    ep: float | None = None, batch: float = 1, prompt: float = 512, output: float = 128, cached: float = 0,
    logits: str = "last", guesses: float = 0, draft: str | None = None, acceptance: float = 0.7, accepted: float = 0,
    branches: float = 1, adapters: float = 0, adapter_rank: float = 16, adapter_modules: str | None = None,
    cpu_layers: float = 0, cpu_experts: float = 0, host_bandwidth: float | None = None,
    quant: str | Quant | None = None, engine: str | Engine | None = None, efficiency: str | Efficiency | None = None,
    sets: Mapping[str, Any] | None = None,
) -> Scenario:  # fmt: skip
    """The scenario that `infer` predicts from the same arguments, for `infer(scenario)` and for `dataclasses.replace`.

    >>> infer(scenario("llama-7b", gpu="a100", batch=8)) == infer("llama-7b", gpu="a100", batch=8)
    True
    """
    return INFER.build(**given_of(locals())).scenario


@overload
def train(  # type: ignore[overload-overlap]  # a list is told from one value at run time
    model: str | Model | Scenario, *, gpu: str | Device | None = None, gpus: float | None = None,
    price: float | None = None, owned: bool = False, purchase: float | None = None, electricity: float = 0.15,
    cluster: str | Cluster | None = None, tp: float | None = None, pp: float | None = None, vp: float = 1,
    dp: float | None = None, cp: float | None = None, ep: float | None = None, sp: bool | None = None,
    batch: float | None = None, seq: float = 2048, micro_batch: float | None = None, tokens: float = 0,
    recompute: str | None = None, recompute_layers: float = 0, recompute_modules: str | None = None,
    zero: float | str | None = None, fsdp_group: float = 0, schedule: str | None = None, order: str | None = None,
    dtype: str | None = None, optimizer: str = "adam", dropout: bool | None = None, lora_rank: float = 0,
    lora_modules: str | None = None, base_bits: float = 16, engine: str | Engine | None = None,
    efficiency: str | Efficiency | None = None, sets: Mapping[str, Any] | None = None, zip: Sequence[Any] | None = None,
    outputs: Names | None = None, on: str = "local",
) -> TrainingEstimate: ...  # fmt: skip
@overload
def train(
    model: Models | Scenario, *, gpu: Devices | None = None, gpus: Numbers | None = None, price: Numbers | None = None,
    owned: bool = False, purchase: Numbers | None = None, electricity: Numbers = 0.15, cluster: Clusters | None = None,
    tp: Numbers | None = None, pp: Numbers | None = None, vp: Numbers = 1, dp: Numbers | None = None,
    cp: Numbers | None = None, ep: Numbers | None = None, sp: bool | None = None, batch: Numbers | None = None,
    seq: Numbers = 2048, micro_batch: Numbers | None = None, tokens: Numbers = 0, recompute: Names | None = None,
    recompute_layers: Numbers = 0, recompute_modules: Names | None = None, zero: Numbers | Names | None = None,
    fsdp_group: Numbers = 0, schedule: Names | None = None, order: Names | None = None, dtype: Names | None = None,
    optimizer: Names = "adam", dropout: bool | None = None, lora_rank: Numbers = 0, lora_modules: Names | None = None,
    base_bits: Numbers = 16, engine: Engines | None = None, efficiency: Names | Efficiency | None = None,
    sets: Mapping[str, Any] | None = None, zip: Sequence[Any] | None = None, outputs: Names | None = None,
    on: str = "local",
) -> xarray.Dataset: ...  # fmt: skip
@named
def train(model: Any, **arguments: Any) -> TrainingEstimate | xarray.Dataset:
    """Predict training: step time, memory and fit, communication, MFU and HFU, GPU-hours, energy and cost.

    model: as in `infer`; a Scenario is one of `training_scenario`.
    Arguments (a list makes an axis of that name):
      gpu: GPU name or .toml (see `rooflm list gpus`).
      gpus: How many GPUs; what tp, pp, cp leave is data parallel.
      price: USD an hour of one GPU (default: the card's row).
      owned: Cost of GPUs of one's own, bought at their public price and used for 4 years, and their electricity,
        in place of rent.
      purchase: USD that one GPU of one's own costs to buy (default with --owned: the catalogue's).
      electricity (USD/kWh): USD a kWh of one's own GPUs.
      cluster: Cluster (default: the GPU's own).
      tp: Tensor parallel degree.
      pp: Pipeline parallel degree.
      vp: Virtual pipeline stages a GPU (interleaved).
      dp: Data parallel degree.
      cp: Context parallel degree.
      ep: Expert parallel degree (of tp x dp).
      sp: Sequence parallelism (default: the engine's).
      batch: Sequences a step, in all.
      seq: Tokens a sequence.
      micro_batch: Sequences a micro-batch (default: 1, or what the framework takes).
      tokens: Tokens of the whole run, such as 300B.
      recompute: none, selective, ops, full or block.
      recompute_layers: Layers recomputed with full or block (0: all).
      recompute_modules: Modules recomputed too: layernorm, mla_up_proj, moe_act, mlp, moe, core_attn.
      zero: ZeRO stage 0 to 3, or fsdp.
      fsdp_group: GPUs of a sharding group (0: all of dp).
      schedule: gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min or dualpipe.
      order: Groups by nearness, such as tp-cp-dp-pp (default).
      dtype: bf16 (fp16 where the device has no bf16), fp16, fp32, tf32, fp8, fp8-rowwise, fp8-block, mxfp8, nvfp4
        or int8.
      optimizer: adam, adam-bf16, adam8bit, adafactor, muon, sgd or sgd-momentum.
      dropout: Masks on attention and both outputs of a layer (default: the engine's).
      lora_rank: Train adapters of this rank, everything else frozen.
      lora_modules: Products with adapters, such as q,v or qkv,out (default: all but routed experts).
      base_bits (bit): Stored bits of a frozen weight (4: QLoRA).
      engine: Engine, of a release as nemo-24.07 (default: megatron).
      efficiency: calibrated, ideal, or factors such as 0.7,0.9.
      sets: Any other input by its path.
      zip: Lists that go in step: pairs, no products.
      outputs: Work out these outputs only (keys of --json).
      on: Where blocks of a grid run: local, ray or ray://host:port.

    Returns a TrainingEstimate (SI units), or with lists an xarray.Dataset. Raises RooflmError for bad input.

    >>> run = train("gpt3-175b", gpu="a100", gpus=1024, tp=8, pp=8, batch=1536, seq=2048, recompute="selective")
    >>> run.fits
    True
    """
    return TRAIN.answer({"model": model, **arguments})


@named
def train_grid(
    model: Models, *, gpu: Devices | None = None, gpus: Numbers | None = None, price: Numbers | None = None,
    owned: bool = False, purchase: Numbers | None = None, electricity: Numbers = 0.15, cluster: Clusters | None = None,
    tp: Numbers | None = None, pp: Numbers | None = None, vp: Numbers = 1, dp: Numbers | None = None,
    cp: Numbers | None = None, ep: Numbers | None = None, sp: bool | None = None, batch: Numbers | None = None,
    seq: Numbers = 2048, micro_batch: Numbers | None = None, tokens: Numbers = 0, recompute: Names | None = None,
    recompute_layers: Numbers = 0, recompute_modules: Names | None = None, zero: Numbers | Names | None = None,
    fsdp_group: Numbers = 0, schedule: Names | None = None, order: Names | None = None, dtype: Names | None = None,
    optimizer: Names = "adam", dropout: bool | None = None, lora_rank: Numbers = 0, lora_modules: Names | None = None,
    base_bits: Numbers = 16, engine: Engines | None = None, efficiency: Names | Efficiency | None = None,
    sets: Mapping[str, Any] | None = None, zip: Sequence[Any] | None = None, outputs: Names | None = None,
    on: str = "local",
) -> xarray.Dataset:  # fmt: skip
    """As `train`, but always an xarray.Dataset: without lists, of one point and no axes."""
    return TRAIN.grid(given_of(locals())).dataset()


@named
def training_scenario(
    model: str | Model, *, gpu: str | Device | None = None, gpus: float | None = None, price: float | None = None,
    owned: bool = False, purchase: float | None = None, electricity: float = 0.15, cluster: str | Cluster | None = None,
    tp: float | None = None, pp: float | None = None, vp: float = 1, dp: float | None = None, cp: float | None = None,
    ep: float | None = None, sp: bool | None = None, batch: float | None = None, seq: float = 2048,
    micro_batch: float | None = None, tokens: float = 0, recompute: str | None = None, recompute_layers: float = 0,
    recompute_modules: str | None = None, zero: float | str | None = None, fsdp_group: float = 0,
    schedule: str | None = None, order: str | None = None, dtype: str | None = None, optimizer: str = "adam",
    dropout: bool | None = None, lora_rank: float = 0, lora_modules: str | None = None, base_bits: float = 16,
    engine: str | Engine | None = None, efficiency: str | Efficiency | None = None,
    sets: Mapping[str, Any] | None = None,
) -> Scenario:  # fmt: skip
    """The scenario that `train` predicts from the same arguments, for `train(scenario)` and `dataclasses.replace`."""
    return TRAIN.build(**given_of(locals())).scenario


def stream(
    path: str, model: Any, call: Literal["infer", "train"] = "infer", progress: Blocks | None = None, **arguments: Any
) -> Streamed:
    """A grid of any size to a file, block by block; the same call again carries on where one was interrupted.

    path: ends in .parquet, .nc or .csv; call: whose arguments the rest are, lists among them; outputs: by default the
    times, rates, memory and verdict; progress: told how many more points are done. Raises RooflmError for bad input.
    """
    task = {"infer": INFER, "train": TRAIN}.get(call)
    if task is None:
        raise RooflmError(f"call is {call!r}, but it must be 'infer' or 'train'")
    return task.stream(given_of({"model": model, **arguments}), path, progress)


@overload
def serve(  # type: ignore[overload-overlap]  # a list is told from one value at run time
    model: str | Model, *, gpu: str | Device | None = None, gpus: float | None = None, price: float | None = None,
    owned: bool = False, purchase: float | None = None, electricity: float = 0.15, cluster: str | Cluster | None = None,
    tp: float | None = None, pp: float | None = None, dp: float | None = None, cp: float | None = None,
    ep: float | None = None, prompt: float = 512, output: float = 128, cached: int = 0, guesses: float = 0,
    draft: str | None = None, acceptance: float = 0.7, accepted: float = 0, branches: float = 1, adapters: float = 0,
    adapter_rank: float = 16, adapter_modules: str | None = None, cpu_layers: float = 0, cpu_experts: float = 0,
    host_bandwidth: float | None = None, concurrency: float | None = None, rate: float | None = None,
    trace: str | None = None, dataset: str | None = None, requests: int | None = None,
    spread: tuple[float, float] | None = None, prompt_limit: int | None = None, output_limit: int | None = None,
    output_ended: int | None = None, output_variation: float | None = None, warmup: int | None = None, seed: int = 0,
    burstiness: float = 1.0, peak: float = 1.0, copies: int = 1, limit: int | None = None, shared_prefix: int = 0,
    replicas: float = 1, router: str = "round-robin", prefill_replicas: int = 0,
    prefill_gpu: str | Device | None = None, prefill_price: float | None = None, prefill_purchase: float | None = None,
    prefill_tp: int | None = None, prefill_pp: int | None = None, prefill_dp: int | None = None,
    prefill_ep: int | None = None, transfer_bandwidth: float | None = None,
    server: Server | Mapping[str, Any] | None = None, slo: str = "", definitions: str = "after-first",
    horizon: float = math.inf, quant: str | Quant | None = None, engine: str | Engine | None = None,
    efficiency: str | Efficiency | None = None, sets: Mapping[str, Any] | None = None, zip: Sequence[Any] | None = None,
    progress: Progress | None = None,
) -> Served: ...  # fmt: skip
@overload
def serve(
    model: Models, *, gpu: Devices | None = None, gpus: Numbers | None = None, price: Numbers | None = None,
    owned: bool = False, purchase: Numbers | None = None, electricity: Numbers = 0.15,
    cluster: str | Cluster | None = None, tp: Numbers | None = None, pp: Numbers | None = None,
    dp: Numbers | None = None, cp: Numbers | None = None, ep: Numbers | None = None, prompt: Numbers = 512,
    output: Numbers = 128, cached: int = 0, guesses: Numbers = 0, draft: str | None = None, acceptance: Numbers = 0.7,
    accepted: Numbers = 0, branches: Numbers = 1, adapters: Numbers = 0, adapter_rank: Numbers = 16,
    adapter_modules: Names | None = None, cpu_layers: Numbers = 0, cpu_experts: Numbers = 0,
    host_bandwidth: Numbers | None = None, concurrency: Numbers | None = None, rate: Numbers | None = None,
    trace: str | None = None, dataset: Names | None = None, requests: int | None = None,
    spread: tuple[float, float] | None = None, prompt_limit: int | None = None, output_limit: int | None = None,
    output_ended: int | None = None, output_variation: float | None = None, warmup: int | None = None, seed: int = 0,
    burstiness: float = 1.0, peak: float = 1.0, copies: int = 1, limit: int | None = None, shared_prefix: int = 0,
    replicas: Numbers = 1, router: str = "round-robin", prefill_replicas: int = 0,
    prefill_gpu: str | Device | None = None, prefill_price: float | None = None, prefill_purchase: float | None = None,
    prefill_tp: int | None = None, prefill_pp: int | None = None, prefill_dp: int | None = None,
    prefill_ep: int | None = None, transfer_bandwidth: float | None = None,
    server: Server | Mapping[str, Any] | None = None, slo: str = "", definitions: str = "after-first",
    horizon: float = math.inf, quant: Schemes | None = None, engine: Engines | None = None,
    efficiency: Names | Efficiency | None = None, sets: Mapping[str, Any] | None = None,
    zip: Sequence[Any] | None = None, progress: Progress | None = None,
) -> xarray.Dataset: ...  # fmt: skip
@named
def serve(model: Any, **arguments: Any) -> Served | xarray.Dataset:
    """Simulate a deployment under load: what users see (TTFT, TPOT, latency), throughput, occupancy, cost and energy.

    model: as in `infer`. The load is concurrency (closed loop), rate (open loop) or both, or a trace.
    Arguments:
      gpu: GPU name or .toml (see `rooflm list gpus`).
      gpus: GPUs of one replica; split into tp, then pp, unless given.
      price: USD an hour of one GPU (default: the card's row).
      owned: Cost of GPUs of one's own, bought at their public price and used for 4 years, and their electricity,
        in place of rent.
      purchase: USD that one GPU of one's own costs to buy (default with --owned: the catalogue's).
      electricity (USD/kWh): USD a kWh of one's own GPUs.
      cluster: Cluster (default: the GPU's own).
      tp: Tensor parallel degree.
      pp: Pipeline parallel degree.
      dp: Attention data parallel degree (MoE), else replicas.
      cp: Context parallel degree.
      ep: Expert parallel degree (of tp x dp).
      prompt: Prompt tokens a request.
      output: Output tokens a request.
      cached: Tokens of each prompt that an earlier run left in the prefix cache.
      guesses: Tokens guessed a step by a draft or the model's own heads (0: none).
      draft: Draft model that guesses (default: heads of the model's own: MTP, EAGLE).
      acceptance: Chance that a guess is right.
      accepted: Tokens that a step gains as measured, in place of acceptance.
      branches: Guesses side by side at each depth: 1 a chain, else a tree.
      adapters: Adapters held on the devices, each request asking for one (0: none).
      adapter_rank: Rank of each.
      adapter_modules: Products that they adapt, such as qkv,out (default: all).
      cpu_layers: Whole layers in the host's memory, on its CPU (llama.cpp: all less -ngl).
      cpu_experts: Layers whose experts alone are there (llama.cpp: --n-cpu-moe).
      host_bandwidth (B/s): Rate of the host's memory, such as 89.6GB/s of two channels of DDR5-5600.
      concurrency: Closed loop: clients that wait for their answer; with a rate: requests at a time.
      rate (1/s): Open loop: requests/s (of a trace: its mean rate).
      trace: Requests from a .csv, .jsonl or .json file.
      dataset: Lengths of a published data set whose answers end by themselves, such as sharegpt (see `rooflm list
        datasets`).
      requests: Requests in all (default 10 a client, or 1000).
      spread: Lengths as shares LOW,HIGH of prompt and output, uniform (default: 0.8,1.2; of one client 1,1).
      prompt_limit: Most tokens of a prompt: many are short and few long, `prompt` is their mean, and the spread
        is of outputs alone.
      output_limit: Most tokens of an output: outputs end by themselves, `output` is their mean, and the spread is
        of prompts alone.
      output_ended: Mean of the outputs that end by themselves, where the others all run to output_limit.
      output_variation: Standard deviation of outputs over their mean, where it is at most a third of output_limit
        (default: of a law with one chance a token to be the last).
      warmup: First requests that times leave out (default: a closed loop's first wave).
      seed: Seed of all chance.
      burstiness: Gamma shape of the gaps: 1 Poisson, below 1 bursts.
      peak: Highest rate of the day over the mean, 1 to 2.
      copies: Requests that each row of the trace stands for.
      limit: Read at most so many rows of the trace.
      shared_prefix: Prompt tokens that all requests share (prefix caching).
      replicas: Replicas behind a router.
      router: round-robin, least-loaded or prefix-aware.
      prefill_replicas: Separate prefill replicas (disaggregated).
      prefill_gpu: Another GPU for the prefill replicas.
      prefill_price: USD an hour of one of those (default: the card's row).
      prefill_purchase: USD that one of those costs to buy (default: its public price).
      prefill_tp: Tensor parallel degree of the prefill replicas (default: as of the others).
      prefill_pp: Pipeline parallel degree of the prefill replicas.
      prefill_dp: Data parallel degree of the prefill replicas.
      prefill_ep: Expert parallel degree of the prefill replicas.
      transfer_bandwidth (B/s): From prefill to decode replicas, such as 50GB/s (default: the cluster's).
      server: Options of the server: those to change, or a whole Server.
      slo: Limits such as ttft:p95=1s,tpot:p95=50ms.
      definitions: TPOT over the tokens after-first or the whole-request.
      horizon (s): Stop after so many simulated seconds.
      quant: Scheme, such as fp8, fp8kv8, int4, nvfp4.
      engine: Engine, of a release as vllm-0.11 (default vllm).
      efficiency: calibrated, ideal, or factors such as 0.7,0.9.
      sets: Any other input by its path.
      zip: Lists that go in step: pairs, no products.
      progress: Told now and then: requests ended, requests in all, seconds simulated.

    Never raises for a load that cannot be served: `queue_grows` says so. Raises RooflmError for bad input.

    >>> out = serve("llama-7b", gpu="a100-sxm-80gb", concurrency=4, prompt=128, output=16, efficiency="ideal")
    >>> out.finished, out.values()["requests"]
    (40, 40)
    """
    given = given_of({"model": model, **arguments})
    dataset, server = arguments["dataset"], arguments["server"]
    from rooflm.readers.datasets import lengths_of
    from rooflm.serving.deploy import serve as simulate
    from rooflm.serving.deploy import usual_load
    from rooflm.serving.grid import serve_grid, split_lists
    from rooflm.serving.server import Server

    refuse_wrong("serve", given)
    axes, fixed = split_lists(given)
    if axes:
        again = {k: v for k, v in fixed.items() if k != "progress"}

        def one(**chosen: Any) -> Any:
            return serve(**{k: v for k, v in chosen.items() if k not in idle("serve", chosen)})

        return serve_grid(axes, again, one).dataset()
    whole = [n for n, a in table_of("serve").items() if a.least is not None and isinstance(given.get(n), float)]
    given |= {n: int(given[n]) for n in whole if float(given[n]).is_integer()}
    given |= lengths_of(given.pop("dataset")) if dataset is not None else {}
    chosen = usual_load(given)
    given |= chosen
    if server is not None and not isinstance(server, Server | Mapping):
        raise RooflmError(f"server is {server!r}, but it must be a Server, or a dict of options: {{'budget': 4096}}")
    if isinstance(server, Server):
        given["server"] = asdict(server)
    with notebook_clock("simulating"):
        served = simulate(**{"options" if k == "server" else k: v for k, v in given.items()})
    told = [f"lengths {s[0]:g} to {s[1]:g} of prompt and output" for k, s in chosen.items() if k == "spread"]
    if dataset:
        ends = f"at {count(given['output_limit'])} tokens at the latest"
        told.append(f"lengths of {dataset}: answers end by themselves, {ends}")
    return replace(served, assumed=(*served.assumed, *told))


def given_of(arguments: Mapping[str, Any]) -> Point:
    """The arguments of a call that were given or have a default, lists as lists."""
    return {k: columns(v) for k, v in arguments.items() if v is not None}
