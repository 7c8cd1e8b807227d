"""Fit what training steps take over calibrated kernels: `python -m rooflm_fit.training TABLE.csv [--without NAME]`.

All sources are fitted jointly, with priors on constants that steps identify weakly: factors of products, experts and
attention by device generation (data/calibration/training.toml), and a few habits of frameworks
(data/engines/training.toml). The constants and errors are printed; --write puts the constants there. --without leaves
a source out and reports its error; --crossed keeps each third of the groups aside in turn; --common fits one set for
all frameworks; --check only reports the errors of the shipped constants.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from rooflm.asked import paths
from rooflm.asked.answers.training import train
from rooflm.catalogue.model import MoE
from rooflm.kernels.constants import CALIBRATION
from rooflm.kernels.training_factors import table
from rooflm.scenario.scenario import Scenario
from rooflm.validation.folds import held_out
from rooflm.validation.request import Request
from rooflm.validation.score import TRAINED, training_scenario
from rooflm_fit import engine_rows, runs
from rooflm_fit.engine_rows import base_of, file_of, updated

Array = NDArray[np.float64]

OLD = "megatron-2021 megatron-2022 megatron-deepspeed"
NEW = "nemo nemo-2024 megatron-bridge megatron internevo nanotron"
FOUNDRY = "llm-foundry llm-foundry-0.0"
FSDP = f"{FOUNDRY} torchtitan torchtitan-2024 fsdp nemo-automodel pax"


class Constant(NamedTuple):
    """A constant with its prior: exp(N(log prior, spread)). path: into training.toml (of several places, with
    spaces, that share it), or a field of the engines."""

    path: str
    prior: float
    spread: float
    engines: str = ""


CONSTANTS = (
    Constant("gemm.ampere.half", 1.1, 0.1),
    Constant("gemm.hopper.half", 1.05, 0.1),
    Constant("gemm.hopper.fp8", 1.0, 0.1),
    Constant("scheme.fp8-rowwise.gemm", 1.3, 0.1),
    Constant("gemm.blackwell.half", 1.05, 0.1),
    Constant("gemm.blackwell.fp8", 1.0, 0.1),
    Constant("gemm.blackwell.fp4", 1.0, 0.15),
    Constant("early.blackwell.half", 1.1, 0.1),
    Constant("early.blackwell.fp8", 1.1, 0.1),
    Constant("attention.fa1.ampere.forward", 1.3, 0.2),
    Constant("attention.fa1.ampere.backward", 1.3, 0.2),
    Constant("attention.fa1.hopper.forward", 1.8, 0.2),
    Constant("attention.fa1.hopper.backward", 2.3, 0.3),
    Constant("attention.fa2.ampere.forward", 0.8, 0.1),
    Constant("attention.fa2.ampere.backward", 1.3, 0.1),
    Constant("attention.fa2.hopper.forward", 1.8, 0.1),
    Constant("attention.fa2.hopper.backward", 1.7, 0.2),
    Constant("attention.cudnn.hopper.forward", 0.78, 0.05),
    Constant("attention.cudnn.hopper.backward", 1.39, 0.05),
    Constant("attention.cudnn.blackwell.forward", 0.75, 0.05),
    Constant("attention.cudnn.blackwell.backward", 1.68, 0.05),
    Constant("attention.cudnn-2024.hopper.forward", 1.1, 0.2),
    Constant("attention.cudnn-2024.hopper.backward", 1.3, 0.2),
    Constant("attention.cudnn-2024.blackwell.forward", 1.1, 0.2),
    Constant("attention.cudnn-2024.blackwell.backward", 1.3, 0.2),
    Constant("moe.hopper.forward moe.blackwell.forward", 1.2, 0.2),
    Constant("experts.bias", 1.5, 0.4),
    Constant("scan.hopper.roofline", 13.6, 0.3),
    Constant("scan.blackwell.roofline", 21.0, 0.3),
    Constant("expert_launch", 10e-6, 0.5, NEW),
    Constant("moe_host", 9e-3, 0.3, NEW),
    Constant("chunk_host", 10e-3, 0.5, NEW),
    Constant("bmm_factor", 1.0, 0.2, OLD),
    Constant("stream_share", 0.7, 0.15, OLD),
    Constant("collective_factor", 1.0, 0.15, OLD),
    Constant("dp_factor", 1.2, 0.3, OLD),
    Constant("gap", 240e-6, 0.5, "megatron-deepspeed"),
    Constant("stream_share", 0.75, 0.15, FOUNDRY),
    Constant("stream_share", 0.8, 0.15, "torchtitan torchtitan-2024 fsdp"),
    Constant("stream_share", 0.8, 0.15, f"{NEW} nemo-automodel pax"),
)
ALL = f"{OLD} {NEW} {FSDP}"
COMMON = (
    *(c for c in CONSTANTS if not c.engines),
    Constant("bmm_factor", 1.0, 0.2, ALL),
    Constant("stream_share", 0.75, 0.15, ALL),
    Constant("collective_factor", 1.0, 0.2, ALL),
    Constant("dp_factor", 1.1, 0.3, ALL),
    Constant("expert_launch", 10e-6, 0.5, ALL),
    Constant("moe_host", 9e-3, 0.3, ALL),
    Constant("chunk_host", 10e-3, 0.5, ALL),
    Constant("gap", 240e-6, 0.5, "megatron-deepspeed"),
)
"""One set for every framework. `gap` is no framework's habit but what a launch costs that the host waits for: it
belongs to the runs that needed CUDA_LAUNCH_BLOCKING=1, which only BigScience's did."""
SPREAD = {
    "KOR": 0.03, "KORL": 0.03, "NAR": 0.03, "NAR2": 0.03, "BLM": 0.06, "LLMF": 0.05, "TT": 0.06, "NEMO": 0.04,
    "MBR": 0.06, "AUTO": 0.1, "PAX": 0.1, "MOE": 0.15, "FMS": 0.06, "IEVO": 0.12, "dgxc": 0.05, "dgxc2": 0.08,
    "mlplora": 0.06, "mlplorabw": 0.06, "mlp8b": 0.06, "mlp405bw": 0.06,
}  # fmt: skip
"""Error that a row of a source is expected to have: how repeats scatter, and how much its table leaves unsaid."""
SHIPPED = CALIBRATION.parent / "published" / "training.csv"
OWN = "dgxc dgxc2 mlplora mlplorabw mlp8b mlp405bw"
"""Sources that the package's own table holds whole, fitted beside the table that is given."""
SOURCE_ROWS = 40
"""Rows of one source beyond this many count less, so that no source rules."""
THIN = {"LLMF": 3, "MBR": 2, "BLM": 2, "IEVO": 3}
"""Every how many-th row of the long sources is fitted."""
REPEAT = 1.3
"""A row is not fitted (but scored) where its configuration was published several times, for other releases, and it is
off their median by more than this."""


MOST_SHARE = 0.95
"""No share of a rate is fitted above this."""
STEP = -0.03
"""Change of a constant's logarithm over which a derivative is taken: downwards, since shares end at a most."""
MOST = 0.7
"""Log error beyond which a row pulls no harder."""


class Problem:
    """Rows with their scenarios, and the constants to fit."""

    def __init__(self, rows: Sequence[Request], constants: Sequence[Constant] = CONSTANTS) -> None:
        self.constants = constants
        self.rows: list[tuple[Request, Scenario]] = [(r, training_scenario(r)) for r in rows]
        many = Counter(r.source for r, _ in self.rows)
        self.weights = np.array(
            [
                min(1.0, (SOURCE_ROWS / many[r.source]) ** 0.5) * (0.5 if has_experts(s) else 1.0) / SPREAD[r.source]
                for r, s in self.rows
            ]
        )

    def errors(self, logs: Array | None) -> Array:
        """log(predicted / measured time) of every row with these constants (None: as shipped)."""
        chosen: list[tuple[set[str], str, float]] = []
        for constant, value in zip(self.constants, logs if logs is not None else (), strict=logs is not None):
            if constant.engines:
                chosen.append((set(constant.engines.split()), f"engine.{constant.path}", float(np.exp(value))))
            else:
                for path in constant.path.split():
                    put_constant(path, float(np.exp(value)))
        return np.array([log_error(r, changed(s, chosen)) for r, s in self.rows])

    def residuals(self, logs: Array) -> Array:
        """Weighted errors, and how far each constant is from its prior."""
        away = [(x - np.log(c.prior)) / c.spread for c, x in zip(self.constants, logs, strict=True)]
        return np.concatenate([np.clip(self.errors(logs), -MOST, MOST) * self.weights, away])

    def slopes(self, logs: Array) -> tuple[Array, Array]:
        """(errors of all rows, their derivatives by the constants' logarithms: rows x constants)."""
        start, rows = self.errors(logs), self.rows
        found = np.zeros((len(rows), len(logs)))
        for k, constant in enumerate(self.constants):
            names = constant.engines.split()
            own = np.array([not names or s.engine.name in names for _, s in rows])
            self.rows = [row for row, kept in zip(rows, own, strict=True) if kept]
            found[own, k] = (self.errors(logs + STEP * (np.arange(len(logs)) == k)) - start[own]) / STEP
            self.rows = rows
        return start, found

    def pulls(self, logs: Array) -> Array:
        """Derivatives of the residuals."""
        errors, slopes = self.slopes(logs)
        pulled = slopes * (self.weights * (np.abs(errors) < MOST))[:, None]
        return np.concatenate([pulled, np.diag([1.0 / c.spread for c in self.constants])])

    def fit(self, rounds: int) -> tuple[Array, Array]:
        """(logs of the constants, their standard errors)."""
        start = np.log([c.prior for c in self.constants])
        found = least_squares(self.residuals, start, jac=self.pulls, max_nfev=rounds, loss="soft_l1", ftol=1e-5)
        return found.x, np.sqrt(np.diag(np.linalg.pinv(found.jac.T @ found.jac)))


def has_experts(s: Scenario) -> bool:
    """Whether the model is a mixture of experts."""
    return any(isinstance(b.ffn, MoE) for b in s.model.blocks)


def put_constant(path: str, value: float) -> None:
    """Replace a constant of the loaded training table (of this process only)."""
    *sections, name = path.split(".")
    node: dict[str, Any] = table()
    for section in sections:
        node = node[section]
    node[name] = value


def changed(s: Scenario, chosen: Sequence[tuple[set[str], str, float]]) -> Scenario:
    """The scenario with the fields that belong to its engine replaced."""
    for engines, path, value in chosen:
        if s.engine.name in engines:
            s = paths.put(s, path, min(value, MOST_SHARE) if path.endswith("share") else value)
    return s


def log_error(r: Request, s: Scenario) -> float:
    """log(predicted / measured), of the time also where the row is a rate."""
    predicted = float(np.max(np.asarray(TRAINED[r.metric](train(s)))))
    ratio = float(np.log(predicted / r.measured))
    return -ratio if r.metric == "tokens_per_s_per_gpu" else ratio


def configuration(r: Request) -> str:
    """What rows of one run in several releases share."""
    k = {name: value for name, value in r.kwargs.items() if name != "engine"}
    return json.dumps([r.source, r.metric, k], sort_keys=True)


def read(path: Path, thin: bool = True) -> list[Request]:
    """Rows of time; to fit (thin), every few of the long sources, without those that contradict their repeats."""
    fitted = {*OLD.split(), *NEW.split(), *FSDP.split()}
    both = [*runs.read(path), *(r for r in runs.read(SHIPPED) if r.source in OWN.split())]
    rows = [r for r in both if r.task == "train" and r.metric != "memory_bytes"]
    rows = [r for r in rows if r.kwargs["engine"] in fitted]
    if not thin:
        return rows
    repeats: dict[str, list[float]] = defaultdict(list)
    for r in rows:
        repeats[configuration(r)].append(r.measured)
    agree = [r for r in rows if abs(np.log(r.measured / np.median(repeats[configuration(r)]))) <= np.log(REPEAT)]
    seen: Counter[str] = Counter()
    kept: list[Request] = []
    for r in agree:
        seen[r.source] += 1
        if seen[r.source] % THIN.get(r.source, 1) == 0:
            kept.append(r)
    return kept


def report(problem: Problem, errors: Array) -> None:
    """Mean absolute error and bias of each source, dense models and experts apart."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (r, s), error in zip(problem.rows, errors, strict=True):
        groups[r.source, "experts" if has_experts(s) else "dense"].append(float(np.expm1(error)))
    for (source, kind), values in sorted(groups.items()):
        mean, bias = 100 * np.mean(np.abs(values)), 100 * np.mean(values)
        print(f"{source:6} {kind:8} {len(values):4d} rows  error {mean:5.1f} %  bias {bias:+5.1f} %")
    for kind in ("dense", "experts", ""):
        every = [v for (_, k), values in groups.items() for v in values if k.startswith(kind)]
        if every:
            print(f"all    {kind:8} {len(every):4d} rows  error {100 * np.mean(np.abs(every)):5.1f} %")


def folds(rows: Sequence[Request]) -> NDArray[np.int64]:
    """The part (of three) of each row's group, a model and a card, by a hash of their names."""
    first = held_out(*zip(*(r.group for r in rows), strict=True), share=1 / 3)
    second = held_out(*zip(*(r.group for r in rows), strict=True), share=2 / 3)
    return np.where(first, 0, np.where(second, 1, 2))


def crossed(table_path: Path, constants: Sequence[Constant], rounds: int, parts: Sequence[int]) -> None:
    """Errors of the parts by constants fitted to the others: groups of a model and a card that the fit never saw."""
    thin, whole = read(table_path), read(table_path, thin=False)
    seen, asked = folds(thin), folds(whole)
    rows: list[tuple[Request, Scenario]] = []
    errors: list[float] = []
    for k in parts:
        logs, _ = Problem([r for r, f in zip(thin, seen, strict=True) if f != k], constants).fit(rounds)
        aside = Problem([r for r, f in zip(whole, asked, strict=True) if f == k], constants)
        errors += list(aside.errors(logs))
        rows += aside.rows
        print(f"part {k}: {len(aside.rows)} rows", flush=True)
    both = Problem([], constants)
    both.rows = rows
    report(both, np.array(errors))


def write(constants: Sequence[Constant], logs: Array) -> None:
    """Put the fitted constants into the calibration file and the engines' rows: into a row, but not into those fitted
    with it that build on it."""
    kernels = CALIBRATION / "training.toml"
    for constant, log in zip(constants, logs, strict=True):
        value = float(np.exp(log))
        if constant.engines:
            value = min(value, MOST_SHARE) if constant.path.endswith("share") else value
            names = constant.engines.split()
            places = [(file_of(name), name, constant.path) for name in names if base_of(name) not in names]
        else:
            split = [path.rpartition(".") for path in constant.path.split()]
            places = [(kernels, section, name) for section, _, name in split]
        for path, section, name in places:
            engine_rows.write(path, updated(path.read_text(encoding="utf-8"), section, {name: value}))


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="table of published training runs")
    parser.add_argument("--without", default="", help="sources left out of the fit, by comma")
    parser.add_argument("--rounds", type=int, default=30, help="steps of the fit at most; 8 are too few")
    parser.add_argument("--common", action="store_true", help="one set of constants for all frameworks")
    parser.add_argument("--crossed", type=int, nargs="*", help="parts of the groups to keep aside in turn (0 1 2)")
    parser.add_argument("--check", action="store_true", help="only report the errors of the shipped constants")
    parser.add_argument("--write", action="store_true", help="put the constants where the package reads them")
    options = parser.parse_args(argv)
    if options.check:
        whole = Problem(read(options.table, thin=False))
        report(whole, whole.errors(None))
        return
    if options.crossed is not None:
        crossed(options.table, COMMON if options.common else CONSTANTS, options.rounds, options.crossed or (0, 1, 2))
        return
    rows = read(options.table)
    out = [r for r in rows if r.source in options.without.split(",")]
    constants = COMMON if options.common else CONSTANTS
    problem = Problem([r for r in rows if r not in out], constants)
    logs, spread = problem.fit(options.rounds)
    for constant, x, dx in zip(problem.constants, logs, spread, strict=True):
        print(f"{constant.engines or 'training.toml':55} {constant.path:36} {np.exp(x):9.4g} +- {dx:.3f}")
    if options.write:
        write(problem.constants, logs)
    print("in sample")
    report(problem, problem.errors(logs))
    if options.common:
        print("all rows, those not fitted too")
        whole = Problem(read(options.table, thin=False), constants)
        report(whole, whole.errors(logs))
    if out:
        print("left out")
        aside = Problem(out, constants)
        report(aside, aside.errors(logs))


if __name__ == "__main__":
    main()
