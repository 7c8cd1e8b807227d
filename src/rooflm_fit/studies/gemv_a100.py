"""GEMV and skinny products on one A100: measured kernels against the fitted formula and a constant utilisation.

    python src/rooflm_fit/studies/gemv_a100.py FOLDER [ENGINE]

FOLDER holds gemm.parquet (public kernel tables of ai-dynamo/aiconfigurator). Prints the share of the device-memory
bandwidth reached by the bytes that a product moves, measured and predicted, and the mean absolute error of three
predictions: the roofline, the roofline at one constant utilisation (the median), and the formula with its fitted
constants (a third of the (n, k) pairs was not in its fit; "aside" is their error).
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from rooflm.kernels.constants import lookup
from rooflm_fit.common import error, ideal_gemm_time
from rooflm_fit.gemm import Table, load_tables, predict

EDGES = (0, 1e6, 4e6, 16e6, 64e6, 256e6, 4e9)
"""B that a product moves."""
MOST_ROWS = 16


def predictions(table: Table) -> pd.DataFrame:
    """Rows, bytes moved, and seconds measured, by roofline and by formula."""
    g, found = table.device, lookup("gemm", table.gpu, "ampere", table.engine, table.dtype)
    moved = 2.0 * (table.m * table.k + table.k * table.n + table.m * table.n)
    roofline = ideal_gemm_time(table.m, table.n, table.k, weight_bytes=2.0, act_bytes=2.0, out_bytes=2.0,
                               peak=g.peak(table.dtype), bandwidth=g.bandwidth)  # fmt: skip
    return pd.DataFrame(
        {"m": table.m, "bytes": moved, "measured": table.time, "roofline": roofline, "aside": table.aside,
         "formula": predict(table, found.row.constants), "full": moved / g.bandwidth}
    )  # fmt: skip


def report(table: pd.DataFrame) -> list[str]:
    """Utilisation and errors by size."""
    used = float(np.median(table["full"] / table["measured"]))
    out = ["  MB moved    kernels  utilisation      error %: roofline  constant  formula  aside"]
    for low, high in [*pairwise(EDGES), (0.0, np.inf)]:
        rows = table[(table["bytes"] >= low) & (table["bytes"] < high)]
        aside, measured = rows[rows["aside"]], rows["measured"]
        name = "all" if high == np.inf else f"{low / 1e6:g} to {high / 1e6:g}"
        share = [float(np.median(rows["full"] / rows[c])) for c in ("measured", "formula")]
        pairs = [(rows["roofline"], measured), (rows["roofline"] / used, measured), (rows["formula"], measured),
                 (aside["formula"], aside["measured"])]  # fmt: skip
        errors = [error(predicted.to_numpy(), own.to_numpy()).mape for predicted, own in pairs]
        out.append(
            f"  {name:12s} {len(rows):6d}  {share[0]:5.2f} / {share[1]:.2f}" + "".join(f"{e:13.1f}" for e in errors)
        )
    return out


def main(folder: str, engine: str = "vllm") -> None:
    """Print the report for one row and for 2 to MOST_ROWS rows."""
    tables = [t for t in load_tables(Path(folder)) if (t.gpu, t.engine, t.dtype) == ("a100-sxm-80gb", engine, "bf16")]
    table = predictions(tables[0])
    for name, low, high in (("GEMV, m = 1", 1, 1), (f"skinny, m = 2 to {MOST_ROWS}", 2, MOST_ROWS)):
        print(name)
        print("\n".join(report(table[table["m"].between(low, high)])))


if __name__ == "__main__":
    main(*sys.argv[1:3])
