"""Fit `collectives.on_tier` to measured collectives: `python -m rooflm_fit.collectives --data DIR --out FILE`.

DIR holds collective.parquet (gpu, library, version, op, dtype, ranks, bytes, time_us, interconnect).
Errors out of sample are those of three fits that each left out every third size; the shipped constants fit all sizes.
Rows a GPU and library, then a generation, all NVLink GPUs, PCIe and the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rooflm.kernels.collectives import CollectiveConstants, on_tier, volume
from rooflm.kernels.constants import ANY, FitRow
from rooflm.units import Num
from rooflm_fit.common import (
    CATALOGUE_GPU,
    GPUS,
    Error,
    Param,
    error,
    fit,
    fit_row,
    fold_by_fold,
    folders,
    measured_table,
    say,
    stacked,
    write_fits,
)

LINKS = {
    "a100-sxm-80gb": 300e9, "h100-sxm-80gb": 450e9, "h200-sxm-141gb": 450e9, "b200-sxm-180gb": 900e9,
    "b300-sxm-288gb": 900e9, "gb200": 900e9, "l40s": 32e9, "rtx-pro-6000-server-96gb": 64e9,
}  # fmt: skip
"""B/s one way a GPU: half of the vendor's bidirectional NVLink figure; PCIe 4.0 and 5.0 x16."""
LATENCY = {"nvlink": 0.5e-6, "pcie": 1.0e-6, "infiniband": 2.0e-6, "ethernet": 5.0e-6}
"""Link latency inside the fitted times (s a hop): only differences from it move a prediction."""
NETWORKS = {"h100_sxm": ("infiniband", 50e9), "a100_sxm": ("ethernet", 12.5e9)}
"""Kind and B/s of the network between Vidur's nodes. Both are inferred from the rates that it reached (34 and 8 GB/s:
400 and 100 Gbit/s a GPU); Vidur does not say."""
HOP = 4e-6
"""s that one more hop over a network adds. Inferred, not measured (only two nodes were): 8 nodes then reduce an empty
message in about 45 us, 64 nodes in about 70."""
OPS = {"alltoall": "all_to_all", "send_recv": "p2p"}
SUMS = ("all_reduce", "reduce_scatter")
"""Operations that add values up: on NVLink fitted to 16-bit values, which is what engines add. The tables' 8-bit
integers are 4 to 6 % slower there, and 26 % for the largest messages of eight H100: the switch adds no 8-bit integers
(PTX ISA, multimem.ld_reduce). On PCIe, and where bytes only move, the two agree but for scatter: the median of both."""
LIBRARIES = {
    "nccl": "nccl",
    "vLLM_custom_graph": "vllm",
    "custom_ar:trtllm": "flashinfer",
    "SGLang_CustomAllReduce_graph": "sglang",
}
PARAMS = (
    Param("start", 3e-6, 3e-7, 1e-4), Param("step", 2e-6, 1e-8, 1e-4), Param("eff_short", 0.25, 0.003, 2.0),
    Param("gain_short", 0.0, -3.0, 2.0, log=False, prior=1.0), Param("wait", 2.0, 1.0, 20.0),
    Param("eff_long", 0.65, 0.02, 1.3), Param("gain_long", 0.1, -3.0, 1.0, log=False, prior=1.0),
    Param("grow", 0.1, 1e-3, 1.0),
)  # fmt: skip
STARTS: tuple[Mapping[str, float], ...] = ({}, {"eff_short": 0.1, "gain_short": -0.5}, {"eff_short": 0.5, "wait": 4.0})
GAINS = ("gain_short", "gain_long")
PRIVATE = 0.3
"""Prior width of the gains where every rank has links of its own and hands on what it gets (NCCL's rings on NVLink)."""
SHARED = -1.0
"""Where the prior of the gains lies on PCIe, whose ranks may share a root port."""
FOLDS = 3
NETWORK_KIN = ("p2p", "all_gather", "reduce_scatter", "all_to_all", "all_reduce")
"""What the measured messages between nodes stand for where the tables have no such operation there."""
ELSEWHERE = (("nccl", "all_to_all", "infiniband"),)
"""Fitted to whole exchanges by `rooflm_fit.networks`."""
TWO_RANKS = ("step", "gain_short", "gain_long")
"""Constants that one group size cannot tell; zero then."""
SOURCE = "ai-dynamo/aiconfigurator 095f58a (2026-08-21, Apache-2.0), measured tables"
VIDUR = "microsoft/vidur 7d47513 (2024-11-19, MIT), measured tables"
HEADER = """Fitted constants of collectives.on_tier, by generation (PCIe: by GPU), library and operation (`kernel`).
Written by: python -m rooflm_fit.collectives --data DIR --out FILE
engine: nccl, or the engine whose all-reduce kernels they are; architecture: a generation (NVLink), "pcie" or a network.
`_out`: three fits, each without every third message size; the constants are those of all sizes.
Units: s and shares of the link's one-way rate.
On PCIe no gain with the group's size is kept but where every card was measured with a slot of its own: a root port
that cards share is the machine's, not the card's (docs/decisions/0017)."""
OWN_SLOTS = ("rtx-pro-6000-server-96gb",)
"""GPUs that were measured on PCIe on a machine whose cards have slots of their own. The L40S' share a root port: the
rate falls with the power -1.9 of the group, where a ring loads every slot alike."""


class Table(NamedTuple):
    """Measured rows of one group: ranks, bytes, link B/s, seconds, and which third (0, 1, 2) a size is in."""

    ranks: NDArray[Any]
    bytes: NDArray[Any]
    link: NDArray[Any]
    seconds: NDArray[Any]
    third: NDArray[Any]

    def where(self, mask: NDArray[np.bool_]) -> Table:
        return Table(*(column[mask] for column in self))


def read(data: Path) -> pd.DataFrame:
    """Rows to fit: eager launches dropped, the newest library version of each GPU, medians of repeats; see SUMS."""
    raw = measured_table(data / "collective.parquet")
    raw["op"] = raw["op"].replace(OPS)
    aic = raw[raw["source"].str.startswith("aiconfigurator") & raw["library"].isin(LIBRARIES)].copy()
    aic["gpu"] = aic["gpu"].map(CATALOGUE_GPU)
    aic["library"] = aic["library"].map(LIBRARIES)
    aic = aic[aic["gpu"].notna() & ~aic["version"].str.startswith("1.3.0rc10")]
    number = aic["version"].str.extract(r"(\d+)\.(\d+)").astype(int)
    aic["order"] = number[0] * 1000 + number[1]
    aic = aic[aic["order"] == aic.groupby(["gpu", "library"])["order"].transform("max")]
    aic["link"] = aic["gpu"].map(LINKS)
    aic["tier"] = np.where(aic["link"] < 100e9, "pcie", "nvlink")
    aic = aic[~(aic["op"].isin(SUMS) & (aic["dtype"] == "int8") & (aic["tier"] == "nvlink"))]
    vidur = raw[raw["source"].str.startswith("vidur") & (raw["ranks"] == 2)].copy()
    across = vidur["interconnect"].str.endswith("devs/node=1") & vidur["gpu"].isin(NETWORKS)
    inside = vidur["interconnect"].str.endswith("devs/node=2") & vidur["gpu"].isin(NETWORKS) & (vidur["op"] == "p2p")
    outside = {gpu: rate for gpu, (_, rate) in NETWORKS.items()}
    vidur["link"] = np.where(across, vidur["gpu"].map(outside), vidur["gpu"].map(CATALOGUE_GPU).map(LINKS))
    kinds = {gpu: kind for gpu, (kind, _) in NETWORKS.items()}
    vidur["tier"] = np.where(across, vidur["gpu"].map(kinds), "nvlink")
    vidur["library"] = "nccl"
    vidur["bytes"] = (2 ** (np.round(2 * np.log2(vidur["bytes"])) / 2)).round().astype(int)
    vidur["gpu"] = vidur["gpu"].map(CATALOGUE_GPU)
    keys = ["gpu", "library", "op", "tier", "link", "ranks", "bytes"]
    both = pd.concat([aic, vidur[across | inside]])
    dtypes = both.groupby([*keys, "dtype"], as_index=False)["time_us"].median()
    return pd.DataFrame(dtypes).drop(columns="dtype")


def table(rows: pd.DataFrame) -> Table:
    """Columns of a group as arrays; its sizes are dealt out to three thirds in turn."""
    sizes = np.sort(rows["bytes"].unique())
    third = np.searchsorted(sizes, rows["bytes"]) % FOLDS
    ranks, bytes_, link, seconds = (rows[name].to_numpy(float) for name in ("ranks", "bytes", "link", "time_us"))
    return Table(ranks, bytes_, link, seconds * 1e-6, third)


def params_of(library: str, op: str, tier: str, ranks: int) -> list[Param]:
    """Constants to fit: without those of TWO_RANKS where one group size was measured, without `grow` where nothing is
    handed on (each message has a channel of its own); priors of the gains by wiring."""
    left_out = (() if ranks > 1 else TWO_RANKS) + (("grow",) if op in ("all_to_all", "p2p") else ())
    chosen = [p for p in PARAMS if p.name not in left_out]
    if tier == "pcie":
        return [p._replace(start=SHARED) if p.name in GAINS else p for p in chosen]
    if library == "nccl" and op != "all_to_all":
        return [p._replace(prior=PRIVATE) if p.name in GAINS else p for p in chosen]
    return chosen


def time(op: str, bytes_: Num, n: Num, **link: Any) -> Num:
    """Seconds of a collective on one tier, by the arguments of `on_tier`."""
    return sum(on_tier(op, bytes_, n, **link))


def model(op: str, rows: Table, latency: float) -> Callable[[Mapping[str, float]], NDArray[Any]]:
    """The formula as a function of the constants alone, for `fit`."""
    return lambda c: np.asarray(
        time(op, rows.bytes, rows.ranks, bandwidth=rows.link, latency=latency,
             c=CollectiveConstants(**{**dict.fromkeys(TWO_RANKS, 0.0), **c}, latency=latency))
    )  # fmt: skip


def fit_group(op: str, rows: Table, latency: float, params: Sequence[Param]) -> tuple[dict[str, float], Error, Error]:
    """Constants fitted to all rows and their error; and the error of each third of the sizes by a fit to the others."""

    def fitted(some: Table) -> dict[str, float]:
        return fit(model(op, some, latency), some.seconds, params, starts=STARTS, max_nfev=150)

    guess = fold_by_fold(rows.third, lambda out: model(op, rows.where(out), latency)(fitted(rows.where(~out))))
    found = fitted(rows)
    return found, error(model(op, rows, latency)(found), rows.seconds), error(guess, rows.seconds)


def interpolated(op: str, rows: Table) -> Error:
    """Error of plain interpolation on the sizes kept aside that lie between fitted ones: how hard the split is.

    The logarithm of the efficiency is a straight line between neighbouring sizes, for each group size by itself.
    """
    wire = volume(op, rows.bytes, rows.ranks) / rows.link
    line = np.full_like(rows.seconds, np.nan)
    for third in range(FOLDS):
        for ranks in np.unique(rows.ranks):
            unseen = (rows.ranks == ranks) & (rows.third == third)
            seen = rows.where((rows.ranks == ranks) & (rows.third != third))
            sizes, at = np.unique(seen.bytes, return_inverse=True)
            known = np.bincount(at, np.log(volume(op, seen.bytes, ranks) / seen.link / seen.seconds)) / np.bincount(at)
            line[unseen] = np.interp(np.log(rows.bytes[unseen]), np.log(sizes), known, np.nan, np.nan)
    between = np.isfinite(line)
    return error((wire / np.exp(line))[between], rows.seconds[between])


def transfer(op: str, parts: Sequence[Table], latency: float, params: Sequence[Param]) -> float:
    """Mean error on each GPU by constants fitted to the others, in per cent; 0 with a single GPU."""
    if len(parts) < 2:
        return 0.0
    errors = []
    for index, left in enumerate(parts):
        others = stacked([part for other, part in enumerate(parts) if other != index])
        found = fit(model(op, others, latency), others.seconds, params, starts=STARTS[:1], max_nfev=100)
        errors.append(error(model(op, left, latency)(found), left.seconds).mape)
    return float(np.mean(errors))


def fit_all(rows: pd.DataFrame) -> list[FitRow]:
    """Every row of the calibration file."""
    result = []
    measured = set(rows[["library", "op", "tier"]].itertuples(index=False, name=None))
    for (library, op, tier), group in rows.groupby(["library", "op", "tier"]):
        latency = LATENCY[str(tier)]
        parts = {str(gpu): table(part) for gpu, part in group.groupby("gpu")}
        common = "*" if tier == "nvlink" else str(tier)
        network = tier in ("infiniband", "ethernet")
        sets = {(gpu, "pcie"): [gpu] for gpu in parts} if tier == "pcie" else {}
        if tier == "nvlink":
            for gpu in parts:
                sets.setdefault((ANY, GPUS[gpu].architecture), []).append(gpu)
        sets[(ANY, common)] = list(parts)
        for (gpu, architecture), members in sets.items():
            chosen = [parts[name] for name in members]
            joint = stacked(chosen)
            params = params_of(str(library), str(op), str(tier), np.unique(joint.ranks).size)
            constants, inside, outside = fit_group(str(op), joint, latency, params)
            if tier == "pcie" and gpu not in OWN_SLOTS:
                constants |= dict.fromkeys(GAINS, 0.0)
            moved = transfer(str(op), chosen, latency, params) if gpu == ANY and not network else 0.0
            names = {"gpu": gpu, "architecture": architecture, "engine": str(library), "dtype": ANY}
            note = "fitted to " + ", ".join(members) if gpu == ANY else ""
            missing = [kernel for kernel in NETWORK_KIN if (library, kernel, tier) not in {*measured, *ELSEWHERE}]
            for kernel in [str(op), *missing] if network and op == "p2p" else [str(op)]:
                result.append(
                    fit_row(
                        names={**names, "kernel": kernel}, inside=inside, outside=outside, mape_transfer=moved,
                        constants={**_for_groups(constants, kernel), "latency": latency},
                        source=VIDUR if op == "p2p" or network else SOURCE,
                        note=note if kernel == op else note + "; measured as p2p, not as " + kernel,
                    )
                )  # fmt: skip
    return result


def _for_groups(constants: Mapping[str, float], kernel: str) -> dict[str, float]:
    """Constants of two ranks for any group: HOP of the time of an empty message is one a hop (p2p has no groups)."""
    if "step" in constants:
        return dict(constants)
    full = {**constants, **dict.fromkeys(TWO_RANKS, 0.0)}
    if kernel not in ("p2p", "all_to_all"):
        full["step"], full["start"] = HOP, full["start"] - HOP
    return {name: full[name] for name in CollectiveConstants._fields if name in full}


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of the fit."""
    options = folders(__doc__, argv)
    measured = read(options.data)
    rows = fit_all(measured)
    write_fits(options.out, rows, HEADER)
    for row in rows:
        say(row)
    nccl = measured[(measured["library"] == "nccl") & (measured["op"] == "all_reduce")]
    for gpu, part in nccl[nccl["tier"].isin(["nvlink", "pcie"])].groupby("gpu"):
        print(f"nccl     all_reduce      {gpu:16} interpolated {interpolated('all_reduce', table(part)).mape:5.1f} %")


if __name__ == "__main__":
    main()
