"""The notebooks of examples/, executed: `python -m rooflm_fit.books` writes them with today's outputs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from rooflm.sweep.files import write_text

ROOT = Path(__file__).resolve().parents[2]
BOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
LONGEST = 240
"""Seconds that one cell may take."""


def executed(path: Path) -> Any:
    """The notebook with every cell run in a kernel of its own; an error in a cell is raised."""
    from nbclient import NotebookClient

    v4: Any = import_module("nbformat.v4")

    book = v4.reads(path.read_text(encoding="utf-8"))
    where = {"metadata": {"path": str(path.parent)}}
    return NotebookClient(book, timeout=LONGEST, kernel_name="python3", resources=where, record_timing=False).execute()


if __name__ == "__main__":
    v4: Any = import_module("nbformat.v4")

    for book in BOOKS:
        write_text(book, v4.writes(executed(book)) + "\n")
        print(f"executed {book.name}")
