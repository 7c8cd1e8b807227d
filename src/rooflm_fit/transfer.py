"""How far off an engine is that the fits never saw: each left out in turn.

    python -m rooflm_fit.transfer --data inference.csv [--page docs/accuracy.md]

An engine left out keeps what its code and documentation say (fused or not, which attention, CUDA graphs, and about
what its host costs: the starts of the fits) and takes its factors on kernels and collectives as the geometric mean over
the other engines of its kind; once more with the host's costs of the others, too. A card left out is
`rooflm_fit.fixed_left_out`'s.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rooflm_fit.accuracy_page import figures
from rooflm_fit.common import Array
from rooflm_fit.engines import Family, families, fit_to, predict, rows_of
from rooflm_fit.jobs import JOBS, Job
from rooflm_fit.pages import markdown, rewrite
from rooflm_fit.runs import DISTRUSTED, read

PLAIN = ("vllm-2024", "trtllm-2024", "trtllm", "trtllm-nemo")
"""Jobs of engines that serve with CUDA graphs and fused kernels: what one of them fits may stand in for another."""


def common(fits: Mapping[str, Mapping[str, float]], without: str) -> dict[str, float]:
    """Geometric mean over the other jobs of every constant that is no card's and no single release's."""
    logs: dict[str, list[float]] = {}
    for name, theta in fits.items():
        for key, value in theta.items() if name != without else ():
            if "|" not in key and value > 0:
                logs.setdefault(key.split(":")[-1], []).append(float(np.log(value)))
    return {k: float(np.exp(np.mean(v))) for k, v in logs.items()}


HOST = ("step", "sequence", "request", "gap")
"""Constants of the host."""


def engine_left_out(
    job: Job, members: Sequence[Family], rows: int, known: Mapping[str, float], host_known: bool = True
) -> Array:
    """Predictions of a job's rows with constants of other engines; what nobody else fits, and the host's where it is
    known, takes its start."""
    known = {k: v for k, v in known.items() if not (host_known and k in HOST)}
    free = [*job.shared, *(p for own in job.own.values() for p in own)]
    return predict(members, rows, {p.name: known.get(p.name, p.start) for p in free} | {"~datacenter|compute": 1.0})


def main(argv: Sequence[str] | None = None) -> None:
    """Print both errors of every engine; with --page, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    args = parser.parse_args(argv)
    requests = [r for r in read(args.data, DISTRUSTED) if r.task == "infer"]
    sets = {name: rows_of(JOBS[name], requests) for name in PLAIN}
    groups = {name: families(chosen) for name, chosen in sets.items()}
    fits = {n: fit_to(JOBS[n], groups[n], sets[n], np.ones(len(sets[n]), bool)) for n in PLAIN}
    lines = []
    for name, chosen in sets.items():
        measured = [r.measured for r in chosen]
        cells = [name, str(len(chosen))]
        for host_known in (True, False):
            theirs = common(fits, name)
            found = engine_left_out(JOBS[name], groups[name], len(chosen), theirs, host_known)
            cells.append(" / ".join(figures(found.tolist(), measured)[:2]))
        lines.append(tuple(cells))
        print("  ".join(cells), flush=True)
    head = ("engine left out, mean / median", "rows", "its host as documented", "the others' host, too")
    if args.page:
        rewrite({"transfer": markdown(head, lines)}, args.page)


if __name__ == "__main__":
    main()
