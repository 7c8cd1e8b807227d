"""What came of sources when nobody had looked at them: python -m rooflm_fit.first_sight SOURCE ... --out FILE.csv

Of the package's tables, rows of these sources as typed, predicted by the code and constants at hand, join FILE.csv: id,
and measured over predicted time. It is run in the commit that types a blind round, before anything is changed because
of it; rows that the file has stay as they were first seen. `rooflm_fit.bands --first` makes bands of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rooflm.sweep.files import write_text
from rooflm.validation.request import Request
from rooflm.validation.table import published_tables
from rooflm_fit.bands import from_tables
from rooflm_fit.runs import outcomes, rows_in


def joined(had: dict[str, str], now: dict[str, float]) -> str:
    """The text of the file with more rows.

    >>> joined({"a-1": "1.2"}, {"a-1": 1.0, "b-1": 0.87654})
    'id,ratio\\na-1,1.2\\nb-1,0.8765\\n'
    """
    rows = {name: f"{ratio:.4g}" for name, ratio in now.items()} | had
    return "\n".join(["id,ratio", *(f"{name},{rows[name]}" for name in sorted(rows))]) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Add the rows of new sources."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    read = [r for path in published_tables() for r in outcomes(path) if isinstance(r, Request)]
    now = {i: r.ratio for i, r in from_tables(r for r in read if r.source in args.sources).items()}
    had = {row["id"]: row["ratio"] for row in rows_in(args.out)} if args.out.exists() else {}
    write_text(args.out, joined(had, now))


if __name__ == "__main__":
    main()
