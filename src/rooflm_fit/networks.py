"""Fit `collectives.on_tier` to collectives that cross nodes: `python -m rooflm_fit.networks --data CSV --out FILE`.

CSV holds what nccl-tests printed on pages (docs/measured/networks.csv): source, op, gpu, kind of network,
link_bytes_per_s of a GPU, ranks, ranks_a_node, bytes and time_us. Ranks of a node are joined by NVLink, whose constants
stand; the network's are fitted through `hierarchical`. Errors out of sample leave out one source after the other, or
every third size where an operation has one source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from rooflm.catalogue.hardware import Link
from rooflm.kernels.collectives import CollectiveConstants, fitted, hierarchical
from rooflm.kernels.constants import ANY, FitRow
from rooflm_fit.common import GPUS, error, fit_row, fold_by_fold, folders, write_fits

HEADER = """Fitted constants of collectives.on_tier between nodes, by kind of network and operation (`kernel`).
Written by: python -m rooflm_fit.networks --data docs/measured/networks.csv --out FILE
`_out`: fits without one source after the other, or without every third size of the only one.
Units: s and shares of the network's one-way rate."""
NVLINK = {"ampere": ("nvlink", 300e9), "hopper": ("nvswitch", 450e9), "blackwell": ("nvswitch", 900e9)}
ARCHITECTURES = {"h20-sxm-96gb": "hopper", "a100-sxm-40gb": "ampere"}
"""Of cards that no other fit has."""
LATENCY = {"infiniband": 2e-6, "efa": 5e-6, "gpudirect-tcp": 5e-6}
"""The link's latency inside the fitted times (s a hop), as in `rooflm_fit.collectives`."""
LINK_LATENCY = 5e-6
"""The clusters' (s a hop)."""
STARTS = {"start": 3e-5, "eff_short": 0.37, "wait": 2.0, "eff_long": 0.73, "grow": 0.01}
BOUNDS = {
    "start": (1e-6, 5e-4), "eff_short": (0.01, 1.0), "wait": (1.0, 20.0), "eff_long": (0.1, 1.0), "grow": (1e-3, 3.0),
}  # fmt: skip
PRIOR = 0.2
"""Weight of the starting values' logarithms: constants that a table does not tell stay near them."""
HOP = 4e-6
"""s that one more hop adds, as in `rooflm_fit.collectives`; none where ranks send to each other straight away."""
UNLIKE = ("a3-high", "p4d")
"""Sources of first generations (TCPX, EFA), which are in no fit."""
ALONE = ("vultr-b200",)
"""Exchanges by NCCL's defaults, which reach 0.6 of what the same machines reach when told otherwise."""


class Kin(NamedTuple):
    """A row of a file: what it is fitted to, and operations nobody measured there that take it."""

    kind: str
    op: str
    also: tuple[str, ...] = ()


KIN = (
    Kin("infiniband", "all_to_all"),
    Kin("efa", "all_reduce", ("all_gather", "reduce_scatter", "p2p")),
    Kin("efa", "all_to_all"),
    Kin("gpudirect-tcp", "all_reduce"),
    Kin("gpudirect-tcp", "all_gather", ("reduce_scatter", "all_to_all", "p2p")),
)


def time(c: CollectiveConstants, row: Any) -> float:
    """Seconds of a measured row by constants of the network."""
    generation = ARCHITECTURES.get(row.gpu) or GPUS[row.gpu].architecture
    kind, rate = NVLINK[generation]
    inner = [Link("nvlink", kind, row.ranks_a_node, rate, 2.5e-6)] if row.ranks_a_node > 1 else []
    tiers = (*inner, Link("network", row.kind, 2**20, row.link_bytes_per_s, LINK_LATENCY))
    known = [fitted(row.op, row.gpu, generation, "nccl", kind) for _ in inner]
    return float(hierarchical(row.op, float(row.bytes), float(row.ranks), tiers, constants=(*known, c)))


def constants_of(values: Mapping[str, float], op: str, kind: str) -> CollectiveConstants:
    """Constants of any group: a step a hop but where ranks send to each other; no gain with the group."""
    step = 0.0 if op in ("all_to_all", "p2p") else HOP
    return CollectiveConstants(step=step, gain_short=0.0, gain_long=0.0, latency=LATENCY[kind], **values)


def fit(rows: pd.DataFrame, op: str, kind: str) -> dict[str, float]:
    """Constants by the logarithms of times, all rows alike, near STARTS where they tell nothing."""
    names = [name for name in STARTS if name != "grow" or op not in ("all_to_all", "p2p")]
    begin = np.log([STARTS[name] for name in names])
    listed, measured = list(rows.itertuples()), np.log(rows["time_us"].to_numpy(float) * 1e-6)

    def values(x: NDArray[Any]) -> dict[str, float]:
        return {"grow": 0.001, **dict(zip(names, np.exp(x).tolist(), strict=True))}

    def off(x: NDArray[Any]) -> NDArray[Any]:
        c = constants_of(values(x), op, kind)
        return np.concatenate([np.log([time(c, row) for row in listed]) - measured, PRIOR * (x - begin)])

    low, high = (np.log([BOUNDS[name][end] for name in names]) for end in (0, 1))
    return values(least_squares(off, begin, bounds=(low, high)).x)


def predicted(rows: pd.DataFrame, values: Mapping[str, float], op: str, kind: str) -> NDArray[Any]:
    """Seconds of rows."""
    c = constants_of(values, op, kind)
    return np.array([time(c, row) for row in rows.itertuples()])


def row_of(rows: pd.DataFrame, kin: Kin) -> list[FitRow]:
    """The rows of the calibration file that one fit makes."""
    seconds = rows["time_us"].to_numpy(float) * 1e-6
    values = fit(rows, kin.op, kin.kind)
    third = np.searchsorted(np.sort(rows["bytes"].unique()), rows["bytes"]) % 3
    part = rows["source"].to_numpy(str) if rows["source"].nunique() > 1 else third
    guess = fold_by_fold(part, lambda out: predicted(rows[out], fit(rows[~out], kin.op, kin.kind), kin.op, kin.kind))
    note = "fitted to " + ", ".join(sorted(rows["source"].unique()))
    made = []
    for kernel in (kin.op, *kin.also):
        c = constants_of(values, kernel, kin.kind)
        names = {"gpu": ANY, "architecture": kin.kind, "engine": "nccl", "dtype": ANY, "kernel": kernel}
        made.append(
            fit_row(
                names=names, inside=error(predicted(rows, values, kin.op, kin.kind), seconds), mape_transfer=0.0,
                outside=error(guess, seconds), source="nccl-tests on pages, docs/measured/networks.csv",
                constants={k: v for k, v in c._asdict().items() if k not in ("mesh", "whole")},
                note=note if kernel == kin.op else f"{note}; measured as {kin.op}, not as {kernel}",
            )
        )  # fmt: skip
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of the fit."""
    options = folders(__doc__, argv)
    table = pd.read_csv(options.data)
    table = table[~table["source"].str.contains("|".join(UNLIKE))]
    found: list[FitRow] = []
    for kin in KIN:
        rows = table[(table["kind"] == kin.kind) & (table["op"] == kin.op)]
        found += row_of(rows[~rows["source"].isin(ALONE)] if kin.op == "all_to_all" else rows, kin)
    write_fits(options.out, found, HEADER)
    for row in found:
        print(f"{row.architecture:14} {row.kernel:15} in {row.mape_in:5.1f} %  out {row.mape_out:5.1f} %")


if __name__ == "__main__":
    main()
