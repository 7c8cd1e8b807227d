"""From a server's own results to a machine as that server uses it: few constants on top of a calibrated machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.hardware import Measured
from rooflm.errors import RooflmError
from rooflm.measure.calibrate import FITTED, Array, Calibration, Constant, deviations, errors
from rooflm.measure.case import Case, weights_of
from rooflm.measure.compare import Key, Machine, fast_times, measured
from rooflm.measure.gap import rows_of, shown, undisturbed
from rooflm.measure.results import Row, constant_stat
from rooflm.readers import rows as catalogue
from rooflm.readers.engines import load_engine
from rooflm.serving.server import FRONT
from rooflm.validation.cells import number
from rooflm.validation.columns import mean_of
from rooflm.validation.table import measured_of


def served_cases(path: str, model: str | None, dtype: str, quant: str, clock: str = "wall") -> list[Row]:
    """The runs of a server in a table of measured runs or a file of another tool, as cases of so many sequences as
    there were clients. clock: "cpu" for the `gap.undisturbed` times. RooflmError names what a run lacks."""
    found = []
    for told in rows_of(path, {"model": model} if model else {})[1]:
        cells = undisturbed(told) if clock == "cpu" else told
        sizes = {"batch": cells.get("concurrency") or cells.get("batch", "1"), "prompt": cells.get("prompt", ""),
                 "output": cells.get("output", "")}  # fmt: skip
        counts: dict[str, Any] = {name: int(number(text) or 0) for name, text in sizes.items()}
        lacking = [name for name, value in counts.items() if not value] + ["model"] * (not cells.get("model"))
        if number(cells.get("rate", "")) and cells.get("concurrency"):
            raise RooflmError(f"{path}: how many clients of a run at a rate are busy is not known: leave it out")
        if lacking:
            raise RooflmError(f"{path}: a run does not say {lacking[0]}: give --{lacking[0]}")
        metric, value = measured_of(cells)
        case = Case(model=cells["model"], dtype=dtype, quant=weights_of(quant), **counts)
        found.append(Row(case, shown(mean_of(metric)), "s", constant_stat(value)))
    return found


def engine_of(path: str) -> Engine:
    """The engine that a file of runs names; one without any habit where it names none that is known."""
    engines = (cells.get("engine", "") for cells in rows_of(path, {})[1])
    known = next((e for e in engines if e in catalogue.names("engine")), "")
    return load_engine(known) if known else Engine("own")


def serving(rows: Sequence[Row], base: Machine, apart: bool = False, of_engine: Engine | None = None) -> Calibration:
    """The machine as a server of another library uses it, from its own results at one level of load or more.

    Two constants of the data type in which it computes are fitted to its times: the rate of its products (TTFT) and the
    bandwidth at which it reads weights (TPOT). The rest is the base's: its link and memory, and what fp32 reaches in
    attention and streams; kernels cost no launch. apart: as in `Measured`. of_engine: whose server it is: its
    options and its front end are taken (default: the base's). No pass is made up while another runs, since the cores
    that would do so are those that compute (vLLM's CPU platform turns asynchronous scheduling off).
    """
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise RooflmError("calibrating needs scipy: pip install 'rooflm[fit]'") from error
    known, values = measured(rows)
    keys: list[Key] = [(c.key, m) for c in known for m in FITTED if (c.key, m) in values]
    if len(keys) < 2:
        raise RooflmError("the server's results hold no ttft_s and tpot_s to calibrate with")
    device = base.cluster.device
    first = next(iter(known))
    half = first.dtype if first.dtype in device.peak else next(iter(device.peak))
    known_constants = (device.measured or Measured()).of("fp32")
    wide = replace(known_constants, launch=0.0, convert=0.0, apart=float(apart), own={}, off={})
    engine = base.engine.but(fused=True, merged=True, step=0.0, context=0.0)
    habits = of_engine or engine
    engine = engine.but(**{name: habits.value(name) for name in FRONT})
    engine = replace(engine, server=replace(habits.server, lookahead=0))

    def of(x: Array) -> Machine:
        rate, bandwidth = np.exp(x).tolist()
        own: Any = {half: {"vector": bandwidth, "matrix": bandwidth}}
        peak: Any = dict.fromkeys({*device.peak, half}, rate)
        card = replace(device, peak=peak, measured=replace(wide, own=own))
        return Machine(replace(base.cluster, device=card), engine)

    def residual(x: Array) -> Array:
        told = fast_times(known, of(x))
        return np.log(np.array([told[k] / values[k] for k in keys]))

    best = least_squares(residual, np.log([1e11, 1.0]), bounds=(np.log([1e9, 1e-3]), np.log([1e16, 50.0])))
    machine = of(best.x)
    sigma = deviations(best.jac, float(np.mean(best.fun**2)))
    names = (f"peak.{half}", f"vector.{half}")
    constants = {n: Constant(float(np.exp(v)), float(d)) for n, v, d in zip(names, best.x, sigma, strict=True)}
    return Calibration(machine, constants, errors(known, values, machine), {}, len(known), 0)
