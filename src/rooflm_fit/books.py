"""The notebooks of examples/, executed: `python -m rooflm_fit.books` writes them with today's outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
LONGEST = 240
"""Seconds that one cell may take."""


def executed(path: Path) -> Any:
    """The notebook with every cell run in a kernel of its own; an error in a cell is raised."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, 4)
    where = {"metadata": {"path": str(path.parent)}}
    return NotebookClient(book, timeout=LONGEST, kernel_name="python3", resources=where, record_timing=False).execute()


if __name__ == "__main__":
    import nbformat

    for book in BOOKS:
        nbformat.write(executed(book), book)
        print(f"executed {book.name}")
