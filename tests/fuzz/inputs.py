"""Every kind of input: a strategy of command lines with the files that they name, and how often it is drawn."""

from __future__ import annotations

from hypothesis import strategies as st

from fuzz import files
from fuzz.texts import BASES, lines

Input = tuple[tuple[str, ...], dict[str, bytes]]
"""A command line, and name -> content of the files that it names."""

INPUTS: dict[str, st.SearchStrategy[Input]] = {
    **{command: lines(command).map(lambda line: (line, {})) for command in BASES},
    **{f"file: {kind}": files.inputs(kind) for kind in files.SEEDS},
}
SHARES = {
    kind: {"infer": 8, "train": 6, "serve": 2, "search infer": 1, "search train": 1}.get(kind, 2) for kind in INPUTS
}
"""Kind of input -> its share of all that are drawn."""
