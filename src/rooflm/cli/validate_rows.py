"""Every row that `rooflm validate` scored, as JSON and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def rows_json(scored: Sequence[Any]) -> list[dict[str, Any]]:
    """Every row for --json --rows; not-a-number where there is no prediction or band."""
    return [
        {"id": x.request.id, "source": x.request.source, "metric": x.request.metric, "measured": x.request.measured,
         "predicted": x.predicted, "low": x.low, "high": x.high, "skipped": x.reason,
         "apart": x.request.apart, "assumed": list(x.assumed)}
        for x in scored
    ]  # fmt: skip


COLUMNS = ("id", "source", "trust", "model", "gpu", "engine", "metric", "measured", "predicted", "ratio", "low", "high",
           "skipped", "apart", "assumed")  # fmt: skip


def write_rows(path: str, outcomes: Sequence[Any], scored: Sequence[Any]) -> None:
    """Every row, in order: measured and predicted, the band, or why it was skipped; what sets it apart."""
    from rooflm.sweep.files import write_whole

    done = {id(x.request): x for x in scored}

    def write(target: str) -> None:
        with Path(target).open("w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle)
            writer.writerow(COLUMNS)
            for o in outcomes:
                x = done.get(id(o))
                if x is None:
                    writer.writerow([o.id, o.source, *[""] * 10, o.reason, "", ""])
                    continue
                r = x.request
                figures = [_cell(v) for v in (r.measured, x.predicted, x.ratio, x.low, x.high)]
                writer.writerow([r.id, r.source, r.trust, *r.group, r.engine, r.metric, *figures, x.reason, r.apart,
                                 "; ".join(x.assumed)])  # fmt: skip

    write_whole(Path(path), write)


def _cell(value: float) -> str:
    return "" if value != value else f"{value:.6g}"
