"""Writing results: csv, parquet, nc, json. A file appears whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rooflm.errors import RooflmError
from rooflm.estimate.results import flatten, plain
from rooflm.sweep.axes import column_name

FORMATS = ("csv", "parquet", "nc", "json")


def check_target(path: str, formats: tuple[str, ...] = FORMATS, option: str = "--out") -> Path:
    """The path, if something can be written there; RooflmError with the rule otherwise, before any work is done."""
    target = Path(path).expanduser()
    if target.suffix.lstrip(".").lower() not in formats:
        raise RooflmError(f"{option} is {path!r}, but it must end in {', '.join('.' + f for f in formats)}")
    folder = target.parent
    if not folder.is_dir():
        raise RooflmError(f"{option} is {path!r}, but the folder {str(folder)!r} does not exist")
    if target.is_dir() or not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise RooflmError(f"{option} is {path!r}, but it cannot be written there")
    return target


def write_whole(path: Path, write: Callable[[str], None]) -> None:
    """Write through a temporary file beside the target, then rename, so that no half file is ever seen."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    try:
        write(name)
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(path)
    except OSError as error:
        raise RooflmError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        Path(name).unlink(missing_ok=True)


def save_text(path: Path, text: str) -> None:
    """A text to a file, whole or not at all."""
    write_whole(path, lambda name: _text(name, text))


def table(columns: Mapping[str, list[Any]]) -> str:
    """Columns as csv text."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def grid_columns(grid: Any) -> dict[str, list[Any]]:
    """A grid as tidy columns: one row a point, the axes first."""
    shape = tuple(len(a.values) for a in grid.axes)
    places = np.indices(shape).reshape(len(shape), -1)
    columns: dict[str, list[Any]] = {
        m.name: [m.values[i] for i in place] for a, place in zip(grid.axes, places, strict=True) for m in a.members
    }
    outputs = {column_name(name, grid.axes): data for name, data in grid.arrays.items()}
    return columns | {name: np.broadcast_to(data, shape).reshape(-1).tolist() for name, data in outputs.items()}


def _parquet(columns: Mapping[str, list[Any]], path: str) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise RooflmError("writing parquet needs pyarrow: pip install 'rooflm[parquet]'") from error
    parquet.write_table(pyarrow.table(dict(columns)), path)


def write_values(path: str, values: dict[str, Any]) -> None:
    """One prediction to a file of any format: its keys, nested ones with dots, as one row."""
    target = check_target(path)
    kind = target.suffix.lower()
    if kind == ".json":
        write_whole(target, lambda name: _text(name, json.dumps(plain(values), indent=1) + "\n"))
        return
    columns = {k: [v] for k, v in flatten(plain({k: v for k, v in values.items() if not isinstance(v, list)})).items()}
    if kind == ".csv":
        write_whole(target, lambda name: _text(name, table(columns)))
    elif kind == ".parquet":
        write_whole(target, lambda name: _parquet(columns, name))
    else:
        import xarray

        numbers = {k: v[0] for k, v in columns.items() if v[0] is not None}
        write_whole(target, lambda name: xarray.Dataset(numbers).to_netcdf(name, engine="h5netcdf"))


def write_grid(path: str, grid: Any) -> None:
    """A grid to a file: tidy rows (csv, parquet), labelled arrays (nc), nested arrays (json)."""
    target = check_target(path)
    kind = target.suffix.lower()
    if kind == ".json":
        write_whole(target, lambda name: _text(name, json.dumps(plain(grid.values())) + "\n"))
    elif kind == ".csv":
        write_whole(target, lambda name: _text(name, table(grid_columns(grid))))
    elif kind == ".parquet":
        write_whole(target, lambda name: _parquet(grid_columns(grid), name))
    else:
        write_whole(target, lambda name: grid.dataset().to_netcdf(name, engine="h5netcdf"))


def write_text(target: Path, text: str) -> None:
    """A text to a file, whole or not at all."""
    write_whole(target, lambda name: _text(name, text))


def _text(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")
