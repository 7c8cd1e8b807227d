"""From measurements to a machine of one's own: few constants of device, links and engine, with their uncertainty.

The constants of `hardware.Measured`, the rates, the link and the engine's cost a step are fitted to the logarithms of
the measured times of part of the cases (and of the micro-benchmarks); the rest of the cases say how far to trust them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.catalogue.engine import Engine, ServerOptions
from rooflm.catalogue.fields import abouts
from rooflm.catalogue.hardware import Cluster, Device, Link, Measured, Memory
from rooflm.errors import RooflmError
from rooflm.kernels.own_machine import attention_time, product_time
from rooflm.measure.case import BYTES, Case
from rooflm.measure.compare import Key, Machine, predictions, times, training
from rooflm.measure.compare import measured as medians
from rooflm.measure.results import Row
from rooflm.serving.server import FRONT
from rooflm.sweep.files import check_target, write_text
from rooflm.units import Num
from rooflm.validation.metrics import describe

Array = NDArray[np.float64]
HELD_OUT = 0.3
"""Share of the cases that are kept aside."""
MICRO_WEIGHT = 0.1
"""Weight of a micro-benchmark beside a whole model's time."""
ROBUST = 0.1
"""Relative error beyond which a point weighs like an absolute one, not a squared one."""
STEP, LEAST = 1e-3, 2.0**-26
"""Step of a slope over the logarithm of a constant, and the step of a logarithm of nothing."""
FITTED = ("ttft_s", "tpot_s")
TRAINED = ("forward_s", "backward_s", "optimizer_s")
REPORTED = {"ttft_s": "prefill", "tpot_s": "decode", "latency_s": "request", "step_time_s": "step",
            "memory_bytes": "memory"}  # fmt: skip
"""Metric -> phase of its error band."""
OWN = ("vector", "matrix", "attention", "decode", "stream")
"""Constants that each data type has of its own: libraries serve each by other kernels."""
KV_HEADS, DECODED = 2, 4
"""Of the attention micro-benchmarks: heads of keys and values, and sequences that decode."""
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "p2p")


class Param(NamedTuple):
    """A constant: its start and bounds; all are fitted as logarithms."""

    name: str
    start: float
    low: float
    high: float


class Constant(NamedTuple):
    """A fitted constant with the share by which it may be off (one standard deviation of its logarithm)."""

    value: float
    sigma: float


class Calibration(NamedTuple):
    """The machine, its constants, the error figures by metric on fitted and held-out cases, and how many there were."""

    machine: Machine
    constants: dict[str, Constant]
    inside: dict[str, dict[str, Any]]
    outside: dict[str, dict[str, Any]]
    cases: int
    held: int


def kept_aside(case: Case, share: float = HELD_OUT) -> bool:
    """Whether a case is held out: by a hash of its key, so the same for ever, wherever a model's folder lies: of an
    absolute path the last part alone counts.

    >>> sum(kept_aside(Case(batch=b)) for b in range(1, 101)) in range(15, 46)
    True
    """
    path = Path(case.model)
    drawn = replace(case, model=path.name) if path.is_absolute() or case.model.startswith("~") else case
    draw = int.from_bytes(hashlib.blake2b(drawn.key.encode(), digest_size=8).digest(), "big") / 2.0**64
    return draw < share


def micro(rows: Sequence[Row]) -> list[Row]:
    """Micro-benchmarks that the fit uses: products, attention, and collectives by size."""
    used = ("gemm_s", "attention_s", "decode_attention_s", *(f"{op}_s" for op in COLLECTIVES))
    return [r for r in rows if r.status == "ok" and r.case.task == "micro" and r.metric in used]


def params(rows: Sequence[Row], known: Mapping[Case, str]) -> list[Param]:
    """The constants that the measurements can tell; they start from the micro-benchmarks where there are any.

    `bandwidth` is what a product of one row reaches in the first data type (fp32 where there is any); the shares of
    OWN are of it, for each data type.
    """
    small = micro(rows)
    products = [r for r in small if r.metric == "gemm_s"]
    found = []
    dtypes = sorted({c.dtype for c in known} | {r.case.dtype for r in products}, key=lambda d: (d != "fp32", d))
    for dtype in dtypes:
        rates = [2.0 * r.m * r.n * r.k / r.stat.value for r in products if r.case.dtype == dtype]
        found.append(Param(f"peak.{dtype}", max(rates, default=1e11), 1e9, 1e16))
    streams = [r.n * r.k * BYTES[r.case.dtype] / r.stat.value for r in products if r.m == 1]
    found.append(Param("bandwidth", float(np.median(streams)) if streams else 1e10, 1e8, 1e14))
    starts = {"vector": 1.0, "matrix": 1.0, "attention": 0.3, "decode": 0.3, "stream": 1.0}
    wide = "fp32" if "fp32" in dtypes else dtypes[0]
    for dtype in dtypes:
        shares = [n for n in OWN if (n, dtype) != ("vector", wide)]
        found += [Param(f"{n}.{dtype}", starts[n], 1e-3, 50.0) for n in shares]
    found += [
        Param("launch", 3e-6, 1e-8, 1e-3), Param("half_rows", 1.0, 0.01, 1e3), Param("sharp", 1.5, 1.0, 12.0),
        Param("step", 5e-4, 1e-6, 1e-1),
    ]  # fmt: skip
    if any(c.quant != "none" for c in known):
        found.append(Param("convert", 1e-10, 1e-14, 1e-7))
    if any(c.world > 1 for c in known) or any(r.n > 1 for r in small if r.metric.removesuffix("_s") in COLLECTIVES):
        found += [Param("link_latency", 2e-4, 1e-7, 1e-1), Param("link_bandwidth", 1e9, 1e6, 1e13)]
    return found


def build(values: Mapping[str, Num]) -> Machine:
    """A machine from constants, or a column of machines from columns. Caches are taken as part of the reached rates, so
    that only DRAM and compute bind."""
    peak: dict[str, Any] = {k.removeprefix("peak."): v for k, v in values.items() if k.startswith("peak.")}
    own: dict[str, dict[str, Num]] = {}
    for name, dtype in (k.split(".") for k in values if "." in k and not k.startswith("peak.")):
        own.setdefault(dtype, {})[name] = values[f"{name}.{dtype}"]
    plain: dict[str, Any] = {k: values[k] for k in abouts(Measured) if k in values}
    constants = Measured(**plain, own=own)
    fast = Memory(2.0**25, 1e15)
    device: Any = Device(
        name="own", vendor="own", architecture="own", peak=peak, sms=1.0, clock=1e9, l1=fast, l2=fast,
        dram=Memory(2.0**34, values["bandwidth"]), tdp=1.0, idle=0.0, price=0.0, measured=constants,
    )  # fmt: skip
    tier: Any = (values.get("link_bandwidth", 1e9), values.get("link_latency", 1e-4))
    link = Link("own", "ethernet", 2.0, *tier)
    engine = Engine("own").but(
        kernels="torch", fused=False, merged=False, flash=True, decode_flash=True, vocab_parallel=True,
        pipelined=False, step=values["step"],
    )  # fmt: skip
    return Machine(Cluster("own", device, (link,)), engine)


def micro_times(rows: Sequence[Row], machine: Machine) -> Array:
    """Predicted seconds of micro-benchmarks, without launches: a loop over one call costs its host next to nothing,
    where a model's own code spends tens of microseconds a kernel. Alike ones are evaluated together."""
    device, link = machine.cluster.device, machine.cluster.tiers[0]
    out: list[Any] = [None] * len(rows)
    alike: dict[tuple[str, str], list[int]] = {}
    for index, r in enumerate(rows):
        alike.setdefault((r.metric, r.case.dtype), []).append(index)
    for (metric, dtype), members in alike.items():
        m, n, k = (np.array([float(getattr(rows[i], x)) for i in members]) for x in "mnk")
        found = _micro(metric.removesuffix("_s"), dtype, m, n, k, device, link)
        for i, member in enumerate(members):
            out[member] = found[..., i]
    return np.array(out)


def _micro(kind: str, dtype: str, m: Array, n: Array, k: Array, device: Device, link: Link) -> Any:
    """Predicted seconds of micro-benchmarks of one kind: sizes as in `measure.micro` (attention: m keys, n query heads
    of k values, DECODED sequences when decoding)."""
    from rooflm.kernels.collectives import by_tree

    if kind in COLLECTIVES:
        return by_tree(kind, m, n, link.bandwidth, link.latency)
    c, each = (device.measured or Measured()).of(dtype), BYTES[dtype]
    peak: Any = device.peak[dtype]
    if kind == "gemm":
        moved = each * (n * k + m * k + m * n)
        return product_time(2 * m * n * k, moved, m, peak=peak, bandwidth=device.dram.bandwidth, c=c)
    if kind == "attention":
        flops, moved, share = 2 * m * m * n * k, each * 2 * m * (n + KV_HEADS) * k, c.stream
    else:
        flops, moved, share = 4 * DECODED * m * n * k, each * 2 * DECODED * m * KV_HEADS * k, c.decode
    return attention_time(flops, moved, peak=peak, bandwidth=device.dram.bandwidth, share=share, c=c)


def calibrate(rows: Sequence[Row], share: float = HELD_OUT, clock: str = "wall") -> Calibration:
    """Fit a machine to measurements. Raises RooflmError when there are too few of them."""
    if not any(r.status == "ok" for r in rows):
        raise RooflmError("there is no measured time to fit: give a table of `rooflm measure`")
    known, values = medians(rows, clock)
    runs = {c: s for c, s in known.items() if c.task == "infer" and not c.compiled}
    steps = {c: s for c, s in known.items() if c.task == "train"}
    fitted = {c: s for c, s in runs.items() if not kept_aside(c, share)}
    small = micro(rows)
    wanted = params(rows, runs)
    keys: list[Key] = [(c.key, m) for c in fitted for m in FITTED if (c.key, m) in values]
    if len(keys) + len(small) < len(wanted) or len(keys) < 2:
        raise RooflmError(f"{len(keys)} measured times are too few for {len(wanted)} constants: measure more cases")
    quick = clock == "cpu"  # a micro-benchmark is short enough to run undisturbed now and then
    goal = np.log(np.array([values[k] for k in keys] + [r.stat.p10 if quick else r.stat.value for r in small]))
    weight = np.sqrt(np.array([1.0] * len(keys) + [MICRO_WEIGHT] * len(small)))

    def residual(machine: Machine) -> Array:
        whole = times(fitted, machine)
        found = np.log(np.array([*(whole[k] for k in keys), *micro_times(small, machine)]))
        return np.asarray(weight * (found.T - goal))

    constants = _fit(wanted, {}, residual)
    trained = {c: s for c, s in steps.items() if not kept_aside(c, share)}
    if trained:
        constants |= _fit(TRAINING, constants, lambda machine: _training_residual(trained, values, machine))
    machine = build({k: c.value for k, c in constants.items()})
    context = overhead(fitted, values, machine)
    constants["context"] = Constant(context, 0.0)
    machine = machine._replace(engine=machine.engine.but(context=context))
    mine = {**fitted, **trained}
    aside = {c: s for c, s in {**runs, **steps}.items() if c not in mine}
    inside, outside = errors(mine, values, machine), errors(aside, values, machine)
    return Calibration(machine, constants, inside, outside, len(mine), len(aside))


TRAINING = [Param("backward", 1.0, 0.1, 30.0), Param("chain", 1.0, 0.1, 100.0), Param("update", 1.0, 0.1, 100.0)]
"""Constants of a training step, fitted to its phases with the others as they are."""


def _training_residual(trained: Mapping[Case, str], values: Mapping[Key, float], machine: Machine) -> Array:
    """Logarithms of predicted over measured, phase by phase, for each of a column of machines."""
    out = []
    for case, shape in trained.items():
        told = training(case, shape, machine)
        out += [np.log(told[m] / values[case.key, m])[:, 0] for m in TRAINED if (case.key, m) in values]
    return np.array(out).T


def _fit(
    wanted: Sequence[Param], known: Mapping[str, Constant], residual: Callable[[Machine], Array]
) -> dict[str, Constant]:
    """Constants that make residuals least, with their deviations. residual: of a column of machines (built with the
    `known` constants too), a row each; so all slopes at a point cost one evaluation."""
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise RooflmError("calibrating needs scipy: pip install 'rooflm[fit]'") from error
    fixed = {k: c.value for k, c in known.items()}

    start = np.log([np.clip(p.start, p.low * 1.01, p.high * 0.99) for p in wanted])
    limits = np.log([p.low for p in wanted]), np.log([p.high for p in wanted])

    def of(points: Array) -> Array:
        columns = np.exp(points).T[..., None]
        return residual(build({**fixed, **dict(zip((p.name for p in wanted), columns, strict=True))}))

    def slopes(x: Array) -> Array:
        step = np.where(x, STEP * x, LEAST)
        step = np.where((x + step < limits[0]) | (x + step > limits[1]), -step, step)
        first, *others = of(np.array([x, *(x + np.diag(step))]))
        return np.array([(y - first) / ((at + h) - at) for y, at, h in zip(others, x, step, strict=True)]).T

    best = least_squares(lambda x: of(x[None])[0], start, slopes, limits, loss="soft_l1", f_scale=ROBUST, max_nfev=80)
    sigma = deviations(best.jac, float(np.mean(best.fun**2)))
    return {p.name: Constant(float(np.exp(v)), float(d)) for p, v, d in zip(wanted, best.x, sigma, strict=True)}


def deviations(jacobian: Array, variance: float) -> Array:
    """Standard deviations of the parameters from the Jacobian at the optimum; infinite where nothing tells them."""
    values, vectors = np.linalg.eigh(jacobian.T @ jacobian)
    safe = np.maximum(values, 1e-9)
    covariance: Array = (vectors / safe) @ vectors.T * variance
    return np.asarray(np.sqrt(np.diag(covariance)))


def overhead(known: Mapping[Case, str], values: Mapping[Key, float], machine: Machine) -> float:
    """Bytes that a process takes beyond what the model predicts: the median, at least 0."""
    told = predictions(dict(known), machine)
    extra = [v - told[k] for k, v in values.items() if k[1] == "memory_bytes" and k in told]
    return max(float(np.median(extra)), 0.0) if extra else 0.0


def errors(known: Mapping[Case, str], values: Mapping[Key, float], machine: Machine) -> dict[str, dict[str, Any]]:
    """Error figures by metric."""
    told = predictions(dict(known), machine)
    out = {}
    for metric in REPORTED:
        both = [(values[k], told[k]) for k in told if k[1] == metric and k in values]
        if both:
            out[metric] = describe([b[0] for b in both], [b[1] for b in both])
    return out


SWITCHES = ("fused", "merged", "flash", "decode_flash", "vocab_parallel", "pipelined")
"""How the engine builds its graph: what the file says of it."""


def server_lines(options: ServerOptions) -> list[str]:
    """Options of a server as lines of its table, without those that are as usual.

    >>> server_lines(ServerOptions(budget=2048, prefix_caching=True))
    ['', '[engine.server]', 'budget = 2048', 'prefix_caching = true']
    """
    usual, own = asdict(ServerOptions()), asdict(options)
    lines = [f"{name} = {json.dumps(value)}" for name, value in own.items() if value != usual[name]]
    return ["", "[engine.server]", *lines] if lines else []


def write(path: str, found: Calibration, environment: Mapping[str, Any], source: str) -> None:
    """The machine as a TOML file that --gpu (and --engine, --cluster) take, with uncertainties and errors in it."""
    import datetime

    target = check_target(path, ("toml",))
    d, e, link = found.machine.cluster.device, found.machine.engine, found.machine.cluster.tiers[0]
    rates = ", ".join(f"{k} = {v:.4g}" for k, v in d.peak.items())
    constants = d.measured or Measured()
    plain = [f"{k} = {getattr(constants, k):.4g}" for k in abouts(Measured)]
    by = [f"{t} = {{ {', '.join(f'{k} = {v:.4g}' for k, v in c.items())} }}" for t, c in constants.own.items()]
    off = {REPORTED[m]: f["p90_ape"] for m, f in found.outside.items()} | {"cases": found.held}
    told = ", ".join(f"{phase} = {value:.4g}" for phase, value in off.items())
    own = ", ".join([*plain, f"own = {{ {', '.join(by)} }}", *[f"off = {{ {told} }}"][: found.held > 0]])
    size = float(environment.get("memory_bytes") or d.dram.size)
    name = str(environment.get("cpu") or "own machine").replace('"', "'")
    lines = [
        f"# A machine calibrated by rooflm on {datetime.date.today()} from {source}:",
        f"# {found.cases} cases fitted, {found.held} kept aside.",
        f"# {name}. Rates are those that were reached by one rank, not a datasheet's. Energy and price are not known.",
        "", "[gpu]", f'called = "{"GPU" if environment.get("gpus") else "device"}"', 'vendor = "own"',
        'architecture = "own"', f"peak = {{ {rates} }}", "sms = 1", 'clock = "1 GHz"',
        'l1 = { size = "32 MiB", bandwidth = 1e15 }', 'l2 = { size = "32 MiB", bandwidth = 1e15 }',
        f"dram = {{ size = {size:.0f}, bandwidth = {d.dram.bandwidth:.4g} }}", 'tdp = "1 W"', 'idle = "0 W"',
        'price = "0 USD/h"', f"measured = {{ {own} }}",
        "", "[cluster]", 'device = "*"',
        f'tiers = [{{ name = "own", kind = "ethernet", size = {int(link.size)}, '
        f"bandwidth = {link.bandwidth:.4g}, latency = {link.latency:.4g} }}]",
        "", "[engine]", 'kernels = "torch"', *(f"{k} = {str(e.value(k)).lower()}" for k in SWITCHES),
        f"step = {e.host.step:.4g}", *(f"{k} = {e.value(k):.4g}" for k in FRONT if e.value(k)),
        f"context = {e.room.context:.0f}", *server_lines(e.server),
        "", "[fit]", "# constant = [value, share by which it may be off (one standard deviation)]",
        *(f'"{k}" = [{c.value:.4g}, {c.sigma:.3g}]' for k, c in found.constants.items()),
    ]  # fmt: skip
    for title, figures in (("inside", found.inside), ("held_out", found.outside)):
        lines += ["", f"[fit.{title}]", "# median and 90th percentile of |predicted / measured - 1|"]
        lines += [f"{m} = {{ cases = {f['rows']}, median = {f['median_ape']:.4f}, p90 = {f['p90_ape']:.4f} }}"
                  for m, f in figures.items()]  # fmt: skip
    text = "\n".join(lines) + "\n"
    write_text(target, text)
