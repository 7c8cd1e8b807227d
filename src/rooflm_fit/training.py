"""Fit what training steps take over calibrated kernels: `python -m rooflm_fit.training TABLE.csv --write --page PAGE`.

All sources are fitted jointly, with priors on constants that steps identify weakly: factors of products, experts and
attention by device generation (data/calibration/training.toml), and a few habits of frameworks
(data/engines/training.toml). Rounds of Gauss-Newton from the shipped constants: each takes the derivatives of all rows'
errors by the constants' logarithms (an evaluation of the rows a constant: two to four minutes) and solves for the
constants at which the linear errors and the priors cost least. The last derivatives also say what is left out: each
source, card, model and framework in turn, predicted by the constants that the other rows want. --write puts the
constants where the package reads them, --page the errors into docs/training.md; --rounds 0 fits nothing.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.asked import paths
from rooflm.asked.answers.training import train
from rooflm.catalogue.model import MoE
from rooflm.kernels.constants import CALIBRATION
from rooflm.kernels.training_factors import table
from rooflm.readers.engines import load_engine
from rooflm.scenario.scenario import Scenario
from rooflm.validation.request import Request
from rooflm.validation.score import TRAINED, training_scenario
from rooflm_fit import engine_rows, runs
from rooflm_fit.engine_rows import base_of, file_of, updated
from rooflm_fit.pages import markdown, rewrite

Array = NDArray[np.float64]

OLD = "megatron-2021 megatron-2022 megatron-deepspeed"
NEW = "nemo nemo-2024 megatron-bridge megatron internevo nanotron"
FOUNDRY = "llm-foundry llm-foundry-0.0"
FSDP = f"{FOUNDRY} torchtitan torchtitan-2025 torchtitan-2024 fsdp fsdp-2.8 nemo-automodel pax"


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
    Constant("stream_share", 0.7, 0.15, OLD),
    Constant("collective_factor", 1.0, 0.15, OLD),
    Constant("dp_factor", 1.2, 0.3, OLD),
    Constant("gap", 240e-6, 0.5, "megatron-deepspeed"),
    Constant("plain_share", 0.75, 0.15, FOUNDRY),
    Constant("stream_share", 0.8, 0.15, "torchtitan torchtitan-2025 torchtitan-2024 fsdp fsdp-2.8"),
    Constant("stream_share", 0.8, 0.15, f"{NEW} nemo-automodel pax"),
)
"""`gap` is no framework's habit but what a launch costs that the host waits for: it belongs to the runs that needed
CUDA_LAUNCH_BLOCKING=1, which only BigScience's did."""


class Source(NamedTuple):
    """A source's name on the page, and the error that a row of it is expected to have: how repeats scatter, and how
    much its table leaves unsaid."""

    name: str
    spread: float


SOURCES = {
    "LLMF": Source("llm-foundry", 0.05), "BLM": Source("BigScience (Megatron-DeepSpeed)", 0.06),
    "IEVO": Source("InternEvo, 8 to 1,024 GPUs", 0.12), "MBR": Source("Megatron-Bridge", 0.06),
    "TT": Source("torchtitan", 0.06), "NEMO": Source("NeMo", 0.04), "dgxc": Source("NeMo 24, DGX Cloud", 0.05),
    "dgxc2": Source("NeMo 25.04, DGX Cloud", 0.08), "mlp405bw": Source("MLPerf, 405B on Blackwell", 0.06),
    "mlp8b": Source("MLPerf, 8B", 0.06), "mlplora": Source("MLPerf, LoRA on Hopper", 0.06),
    "mlplorabw": Source("MLPerf, LoRA on Blackwell", 0.06), "KOR": Source("Korthikanti et al. 2022, steps", 0.03),
    "KORL": Source("Korthikanti et al. 2022, one layer", 0.03), "NAR": Source("Narayanan et al. 2021", 0.03),
    "NAR2": Source("Narayanan et al. 2021", 0.03), "FMS": Source("fms-fsdp", 0.06), "PAX": Source("JAX toolbox", 0.1),
    "AUTO": Source("AutoModel", 0.1), "MOE": Source("Megatron-Core, experts", 0.15),
}  # fmt: skip
SHIPPED = CALIBRATION.parent / "published" / "training.csv"
OWN = "dgxc dgxc2 mlplora mlplorabw mlp8b mlp405bw"
"""Sources that the package's own table holds whole, fitted beside the table that is given."""
SOURCE_ROWS = 40
"""Rows of one source beyond this many count less, so that no source rules."""
MOST_SHARE = 0.95
"""No share of a rate is fitted above this."""
STEP = -0.03
"""Change of a constant's logarithm over which a derivative is taken: downwards, since shares end at a most."""
MOST = 0.7
"""Log error beyond which a row pulls no harder."""


class Problem:
    """Rows with their scenarios and weights."""

    def __init__(self, rows: Sequence[Request]) -> None:
        self.rows: list[tuple[Request, Scenario]] = [(r, training_scenario(r)) for r in rows]
        many = Counter(r.source for r in rows)
        self.weights = np.array(
            [
                min(1.0, (SOURCE_ROWS / many[r.source]) ** 0.5) * (0.5 if has_experts(s) else 1.0)
                / SOURCES[r.source].spread
                for r, s in self.rows
            ]
        )  # fmt: skip

    def errors(self, logs: Array) -> Array:
        """log(predicted / measured time) of every row with these constants."""
        chosen: list[tuple[set[str], str, float]] = []
        for constant, value in zip(CONSTANTS, np.exp(logs).tolist(), strict=True):
            if constant.engines:
                chosen.append((set(constant.engines.split()), f"engine.{constant.path}", value))
            else:
                for path in constant.path.split():
                    put_constant(path, value)
        return np.array([log_error(r, changed(s, chosen)) for r, s in self.rows])

    def slopes(self, logs: Array) -> tuple[Array, Array]:
        """(errors of all rows, their derivatives by the constants' logarithms: rows x constants)."""
        start, rows = self.errors(logs), self.rows
        found = np.zeros((len(rows), len(logs)))
        for k, constant in enumerate(CONSTANTS):
            names = constant.engines.split()
            own = np.array([not names or s.engine.name in names for _, s in rows])
            self.rows = [row for row, kept in zip(rows, own, strict=True) if kept]
            found[own, k] = (self.errors(logs + STEP * (np.arange(len(logs)) == k)) - start[own]) / STEP
            self.rows = rows
        return start, found

    def cost(self, logs: Array, errors: Array) -> float:
        """What the fit makes least: errors and distances from the priors in their expected widths, each square where it
        is small and linear where it is large (soft L1)."""
        away = (logs - PRIORS) / SPREADS
        squares = np.concatenate([(np.clip(errors, -MOST, MOST) * self.weights) ** 2, away**2])
        return float(np.sum(np.sqrt(1.0 + squares) - 1.0))

    def fit(self, rounds: int) -> Fit:
        """Rounds from the shipped constants until the cost falls by less than ENOUGH of itself; 0 only takes the
        derivatives."""
        at = np.array([shipped(c) for c in CONSTANTS])
        for n in range(rounds + 1):
            errors, slopes = self.slopes(at)
            now = self.cost(at, errors)
            print(f"round {n}: cost {now:.2f}, mean error {mean(errors):.2f} %", flush=True)
            if n == rounds:
                break
            then = at + solved(errors, slopes, self.weights, at)
            if self.cost(then, self.errors(then)) > (1.0 - ENOUGH) * now:
                break
            at = then
        return Fit(at, errors, slopes)


class Fit(NamedTuple):
    """Logarithms of the constants, errors (rows) and their derivatives (rows x constants) there."""

    logs: Array
    errors: Array
    slopes: Array


ENOUGH = 0.02
"""Share of the cost that a round has to save, or the fit stays where it is (decision 544)."""
PRIORS = np.log([c.prior for c in CONSTANTS])
SPREADS = np.array([c.spread for c in CONSTANTS])
ROOM = np.array([np.log(MOST_SHARE) if c.path.endswith("share") else np.inf for c in CONSTANTS])
"""Logarithms that constants have at most."""


def shipped(constant: Constant) -> float:
    """The logarithm of a constant as the package holds it.

    >>> np.exp(shipped(CONSTANTS[0])) > 0.5
    np.True_
    """
    if constant.engines:
        return float(np.log(load_engine(constant.engines.split()[0]).value(constant.path)))
    node: Any = table()
    for name in constant.path.split()[0].split("."):
        node = node[name]
    return float(np.log(node))


def solved(errors: Array, slopes: Array, weights: Array, at: Array) -> Array:
    """How far constants move from `at` to where the linear errors + slopes moved and the priors cost least, by
    reweighting; none beyond its ROOM."""
    moved, away, room = np.zeros(len(at)), at - PRIORS, ROOM - at
    for _ in range(30):
        left = errors + slopes @ moved
        pull = weights**2 / np.sqrt(1.0 + np.clip(left, -MOST, MOST) ** 2 * weights**2)
        held = 1.0 / np.sqrt(1.0 + ((away + moved) / SPREADS) ** 2) / SPREADS**2
        uphill = slopes.T @ (pull * left) + held * (away + moved)
        free = (moved < room) | (uphill > 0)
        square = slopes.T @ (slopes * pull[:, None]) + np.diag(held)
        moved[free] -= np.linalg.solve(square[np.ix_(free, free)], uphill[free])
        moved = np.minimum(moved, room)
    return moved


GROUPS = ("model", "card", "framework", "source")
"""What is left out whole, in turn."""


def left_out(problem: Problem, found: Fit, groups: Sequence[str]) -> Array:
    """Each row's error by constants fitted to the rows of other groups, errors taken as linear around the fit."""
    errors = np.empty(len(found.errors))
    for name in sorted(set(groups)):
        own = np.array([g == name for g in groups])
        moved = solved(found.errors, found.slopes, problem.weights * ~own, found.logs)
        errors[own] = (found.errors + found.slopes @ moved)[own]
    return errors


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


def read(path: Path) -> list[Request]:
    """Rows of time of frameworks that are fitted."""
    fitted = {*OLD.split(), *NEW.split(), *FSDP.split()}
    both = [*runs.read(path), *(r for r in runs.read(SHIPPED) if r.source in OWN.split())]
    rows = [r for r in both if r.task == "train" and r.metric != "memory_bytes"]
    return [r for r in rows if r.kwargs["engine"] in fitted]


def mean(errors: Array) -> float:
    """Mean absolute error in per cent."""
    return float(100 * np.mean(np.abs(np.expm1(errors))))


MANY = 20
"""Rows of dense models and of experts from which on a source is told of by both."""


def kinds(problem: Problem) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """What the page tells of apart, and which rows those are: sources, all dense models, all experts, all."""
    names = np.array([SOURCES[r.source].name for r, _ in problem.rows])
    experts = np.array([has_experts(s) for _, s in problem.rows])
    apart = {"dense": ~experts, "experts": experts}
    for name in dict.fromkeys(source.name for source in SOURCES.values()):
        own = names == name
        if min(np.sum(own & kind) for kind in apart.values()) < MANY:
            yield name, own
        else:
            yield from ((f"{name}, {kind}", own & rows) for kind, rows in apart.items())
    yield from ((f"all {kind}", rows) for kind, rows in apart.items())
    yield "all", np.ones(len(names), bool)


def page_table(problem: Problem, found: Fit) -> str:
    """Errors of all rows as fitted, and by constants that never saw their model, card, framework or source."""
    rows = [(r.group[0], r.group[1], s.engine.name, r.source) for r, s in problem.rows]
    columns = [found.errors, *(left_out(problem, found, groups) for groups in zip(*rows, strict=True))]
    head = ("source", "rows", "as shipped", *(f"{name} out" for name in GROUPS))
    lines = [
        (name, str(np.sum(own)), *(f"{mean(errors[own]):.1f}" for errors in columns))
        for name, own in kinds(problem) if own.any()
    ]  # fmt: skip
    return markdown(head, lines)


def write(logs: Array) -> None:
    """Put the fitted constants into the calibration file and the engines' rows: into a row, but not into those fitted
    with it that build on it."""
    kernels = CALIBRATION / "training.toml"
    for constant, value in zip(CONSTANTS, np.exp(logs).tolist(), strict=True):
        if constant.engines:
            names = constant.engines.split()
            places = [(file_of(name), name, constant.path) for name in names if base_of(name) not in names]
        else:
            split = [path.rpartition(".") for path in constant.path.split()]
            places = [(kernels, section, name) for section, _, name in split]
        for path, section, name in places:
            engine_rows.write(path, updated(path.read_text(encoding="utf-8"), section, {name: value}))


def main(argv: Sequence[str] | None = None) -> None:
    """Fit; print the constants that moved and the errors, and put them where they belong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="table of published training runs")
    parser.add_argument("--rounds", type=int, default=4, help="steps of the fit at most")
    parser.add_argument("--write", action="store_true", help="put the constants where the package reads them")
    parser.add_argument("--page", type=Path, help="page to put the table of errors into")
    options = parser.parse_args(argv)
    problem, before = Problem(read(options.table)), np.array([shipped(c) for c in CONSTANTS])
    found = problem.fit(options.rounds)
    for constant, old, new in zip(CONSTANTS, np.exp(before), np.exp(found.logs), strict=True):
        if old != new:
            print(f"{constant.engines or 'training.toml':55} {constant.path:36} {old:9.4g} -> {new:9.4g}")
    if options.write and not np.array_equal(before, found.logs):
        write(found.logs)
    text = page_table(problem, found)
    print(text)
    if options.page:
        rewrite({"training": text}, options.page)


if __name__ == "__main__":
    main()
