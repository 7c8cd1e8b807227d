"""Scenarios written in a file: a table of arguments (TOML, YAML), or a table with a row a scenario (CSV).

```toml
model = "llama-3.1-70b"
gpu = ["h100", "b200"]      # a list makes an axis
gpus = 4
prompt = "8k"               # as on the command line
[set]
"engine.memory_fraction" = 0.95
```
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rooflm.asked.arguments import EVERY, Argument, arguments, refuse_unknown
from rooflm.asked.build_inference import find_model
from rooflm.asked.written import READ, as_it_is, assignments
from rooflm.errors import RooflmError, near_matches
from rooflm.readers import outside
from rooflm.readers.devices import load_device

ENDS = (".toml", ".yaml", ".yml", ".csv")
ALONE = (".csv", ".yaml", ".yml")
"""Ends of scenario files that no model or card has."""
ASIDE = ("question", "note", "task", "title")
"""Keys of a file that say something of the scenario and are no argument of it."""


def read_table(path: str) -> dict[str, Any] | None:
    """What a scenario file holds: argument -> value, a column of a CSV file as a list; None where the file is not one
    (it names no model: it is a row of one's own).

    Raises RooflmError where it cannot be read.
    """
    suffix = Path(path).suffix.lower()
    if suffix in ALONE and not outside.checked_path(path, "scenario").exists():
        raise RooflmError(f"cannot read the scenarios of {path!r}: there is no such file")
    if suffix not in ENDS or not outside.checked_path(path, "scenario").is_file():
        return None
    content = PARSERS[suffix](outside.text(path, "scenario", "toml"), path)
    if not isinstance(content, dict):
        held = "nothing" if content is None else f"{content!r:.40}"
        raise RooflmError(f"{path}: a scenario is a table of arguments (model: NAME), but this holds {held}")
    model = content.get("model")
    if isinstance(model, str | list):
        return content
    if isinstance(model, int | float):
        raise RooflmError(f"{path}: model is {model!r}, but it must be a name (see `rooflm list models`)")
    refuse_nameless(path, {k: v for k, v in content.items() if isinstance(v, str | list)})
    return None


def refuse_nameless(path: str, texts: Mapping[str, Any]) -> None:
    """RooflmError for a file without a model that can be no row of one's own: by its end, as it names a card, or as one
    of its keys is most like `model`. texts: its keys that hold a text or a list."""
    known = {"model", *(name for call in EVERY for name in arguments(call))}
    meant = next((k for k in texts if near_matches(str(k), known, limit=1) == ["model"]), None)
    if meant is not None:
        raise RooflmError(f"{path}: a scenario has no argument {meant!r}: did you mean 'model'?")
    if "gpu" in texts or Path(path).suffix.lower() in ALONE:
        raise RooflmError(f"{path}: a scenario needs a model (model = NAME; see `rooflm list models`)")


def _yaml(text: str, path: str) -> Any:
    """What a YAML file holds. RooflmError where it is not valid, or where PyYAML is not installed."""
    try:
        import yaml
    except ImportError:
        raise RooflmError(f"{path!r} is YAML, which needs PyYAML: pip install 'rooflm[yaml]', or write TOML") from None
    try:
        return outside.refuse_nested(yaml.safe_load(text), path)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, RooflmError):
            raise
        mark, problem = (getattr(error, name, None) for name in ("problem_mark", "problem"))
        said = f"line {mark.line + 1}: {problem}" if mark else " ".join(str(error).split())
        raise RooflmError(f"cannot read {path!r}, it is not valid YAML: {said}") from None


def _columns(text: str, path: str) -> dict[str, Any]:
    """The columns of a CSV file, each a list; one value if all cells are equal; empty columns are left out."""
    try:
        header, *rows = [line for line in outside.cells_of(text) if line] or [[]]
    except csv.Error as error:
        raise RooflmError(f"cannot read {path!r}: {error}") from None
    if not rows:
        raise RooflmError(f"{path!r} has no rows: its first line names arguments, each further line is a scenario")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise RooflmError(
                f"{path!r} has {len(row)} cells in row {number}, but its first line names {len(header)} columns"
            )
    columns: dict[str, Any] = {}
    for name, *found in zip(header, *rows, strict=True):
        cells = [cell.strip() for cell in found]
        if name.strip() in columns:
            raise RooflmError(f"{path!r} has the column {name.strip()!r} twice: leave one of them out")
        if any(cells) and not all(cells):
            raise RooflmError(f"{path!r}: column {name!r} is empty in some rows: fill it in, or leave it out")
        if all(cells):
            columns[name.strip()] = cells if len(set(cells)) > 1 else cells[0]
    for name, of in (("model", find_model), ("gpu", load_device)):
        if isinstance(columns.get(name), list):
            refuse_rows(path, columns[name], of)
    lists = [name for name, value in columns.items() if isinstance(value, list)]
    return columns | ({"zip": [",".join(lists)]} if len(lists) > 1 else {})


def refuse_rows(path: str, cells: list[str], of: Callable[[str], Any]) -> None:
    """RooflmError for the first cell of a column that is no known name, with its row. of: what finds a name."""
    for name in dict.fromkeys(cells):
        try:
            of(name)
        except RooflmError as error:
            raise RooflmError(f"{path!r}, row {cells.index(name) + 1}: {error}") from None


PARSERS = {".toml": outside.toml, ".yaml": _yaml, ".yml": _yaml, ".csv": _columns}


def value_of(a: Argument, value: Any) -> Any:
    """The value of an argument as a file has it: text is read as on the command line, a list member by member.

    >>> value_of(Argument("prompt", "numbers", "", ()), ["1..4*2", 16])
    [1, 2, 4, 16]
    """
    read = READ.get(a.kind, as_it_is)
    if a.kind == "sets":
        return assignments([f"{path}={written(v)}" for path, v in value.items()])
    if a.kind in ("zips", "spread", "listed"):
        text = value if isinstance(value, str) else ",".join(map(str, value))
        return read(value if a.kind == "zips" else text, a.name)
    if isinstance(value, dict):
        raise RooflmError(f"{a.name} is a table, but it must be a value, or the path of a file: {a.help}")
    if isinstance(value, list):
        flat: list[Any] = []
        for member in value:
            one = value_of(a, member)
            flat += one if isinstance(one, list) else [one]
        return flat
    return read(value, a.name) if isinstance(value, str) else value


def written(value: Any) -> str:
    """A value of a `[set]` table as after --set PATH=."""
    if isinstance(value, list):
        return ",".join(map(written, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def arguments_of(path: str, table: Mapping[str, Any], known: Mapping[str, Argument], call: str) -> dict[str, Any]:
    """The arguments of a scenario file, each by its name in Python. known: option -> argument of the call, which
    messages name.

    Raises RooflmError where it names what is no argument, with what is most like it.
    """
    options = {(a.option.lstrip("-") or name).replace("-", "_"): a for name, a in known.items()} | dict(known)
    given = {k.replace("-", "_"): v for k, v in table.items() if k not in ASIDE and k != "model"}
    refuse_unknown(f"{path}: {call}", given, options)
    return {options[k].name: value_of(options[k], v) for k, v in given.items()}
