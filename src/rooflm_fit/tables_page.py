"""The tables of docs/tables.md out of the columns in code: python -m rooflm_fit.tables_page docs/tables.md"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rooflm.validation.columns import METRICS, listed
from rooflm_fit.accuracy_page import put


def plain(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is code."""
    lines = [header, tuple("---" for _ in header), *((f"`{first}`", *rest) for first, *rest in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tables() -> dict[str, str]:
    """Mark of the page -> its table."""
    metrics = [(m.name, m.meaning, m.unit, m.task or "infer, serve, train") for m in METRICS.values()]
    return {
        "columns": plain(("column", "meaning", "unit", "read by"), listed()),
        "metrics": plain(("metric", "meaning", "unit", "of"), metrics),
    }


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(put(page.read_text(encoding="utf-8"), tables()), encoding="utf-8")
