"""Writing results: csv, parquet, xlsx, md, nc, json. A file appears whole or not at all."""

from __future__ import annotations

import csv
import glob
import io
import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rooflm.errors import RooflmError
from rooflm.readers.outside import checked_path
from rooflm.shown.answer import flatten, plain
from rooflm.sweep.axes import column_name
from rooflm.sweep.grid import refuse_too_large

FORMATS = ("csv", "parquet", "xlsx", "md", "nc", "json")
TABLES = ("csv", "parquet", "xlsx", "md")
"""Formats of columns."""
NEEDED = {
    ".nc": ("netCDF files need", ("h5netcdf",), "nc"),
    ".parquet": ("writing parquet needs", ("pyarrow",), "parquet"),
    ".xlsx": ("writing xlsx needs", ("pandas", "openpyxl"), "tables"),
    ".md": ("writing md needs", ("pandas", "tabulate"), "tables"),
}
"""Ending -> the libraries that write such files, and the extra that brings them."""


def needs_library(ending: str) -> None:
    """RooflmError where files of an ending cannot be written, as a library is missing."""
    words, modules, extra = NEEDED.get(ending, ("", (), ""))
    if not all(find_spec(m) for m in modules):
        raise RooflmError(f"{words} {' and '.join(modules)}: pip install 'rooflm[{extra}]'")


def check_target(path: str, formats: tuple[str, ...] = FORMATS, option: str = "--out") -> Path:
    """The path, if something can be written there; RooflmError with the rule otherwise, before any work is done."""
    target = checked_path(path, option)
    if target.suffix.lstrip(".").lower() not in formats:
        raise RooflmError(f"{option} is {path!r}, but it must end in {', '.join('.' + f for f in formats)}")
    needs_library(target.suffix.lower())
    folder = target.parent
    if not folder.is_dir():
        raise RooflmError(f"{option} is {path!r}, but the folder {str(folder)!r} does not exist")
    if target.exists() and not target.is_file():
        raise RooflmError(f"{option} is {path!r}, but it cannot be written there: it is no file")
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise RooflmError(f"{option} is {path!r}, but it cannot be written there")
    return target


def write_whole(path: Path, write: Callable[[str], None]) -> None:
    """Write to a temporary file next to the target, then rename it. After an error, a full disk, a kill or a power loss
    the target holds either the old or the complete new content. Concurrent writers each write a whole file.

    Temporary files left by killed processes are removed on the next write to the same target.
    """
    name = f".{path.stem[:100]}-{os.getpid()}-{threading.get_ident()}{TEMPORARY}{path.suffix}"
    made = path.with_name(name)
    remove_stale(path)
    try:
        write(str(made))
        fsync(made)
        mask = os.umask(0)
        os.umask(mask)
        made.chmod(0o666 & ~mask)
        made.replace(path)
    except OSError as error:  # of the system, or of a library that writes
        raise RooflmError(f"cannot write {str(path)!r}: {error.strerror or error}") from error
    finally:
        made.unlink(missing_ok=True)


TEMPORARY = ".part"
"""Mark of a temporary file."""
_LEFT = re.compile(r"-(\d+)-\d+" + re.escape(TEMPORARY))


def remove_stale(path: Path) -> None:
    """Remove this target's temporary files that killed processes left behind."""
    for old in path.parent.glob(f".{glob.escape(path.stem[:100])}-*{TEMPORARY}{glob.escape(path.suffix)}"):
        found = _LEFT.search(old.name)
        if found and not process_runs(int(found[1])):
            old.unlink(missing_ok=True)


def process_runs(process: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def fsync(path: Path) -> None:
    """Wait until a file is on disk, so that it is not renamed before its content is there."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[bool]:
    """A folder locked against other processes; yields whether the lock was obtained (wait: block until it is). The
    system releases the lock when a process dies. Without such locks nobody is kept out."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        mine = True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            mine = False
        except OSError:  # a file system without locks
            mine = True
        # FileNotFoundError where the folder has gone; another of its name is not the one that was opened
        yield mine and os.fstat(handle).st_ino == folder.stat().st_ino
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Text to a file, whole or not at all."""

    def write(name: str) -> None:
        with Path(name).open("w", encoding="utf-8", newline="") as file:
            file.write(text)

    write_whole(path, write)


def ensure_space(name: str, size: int) -> None:
    """OSError if a file of about this many bytes would not fit on the disk. The netCDF library crashes the process on a
    full disk, so space is checked first."""
    with Path(name).open("wb") as file:
        if size > 0 and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def netcdf_size(arrays: Iterable[NDArray[Any]], points: int = 0) -> int:
    """Bytes that a netCDF file of these arrays may take, with some to spare. points: values of each, where they are not
    those that it has."""
    cells = ((points or int(a.size), 64 if a.dtype.kind in "OUS" else a.dtype.itemsize) for a in arrays)
    return 2**20 + sum(count * size for count, size in cells) * 11 // 10


def write_netcdf(name: str, data: Any) -> None:
    """An xarray.Dataset to a netCDF file."""
    ensure_space(name, netcdf_size(v.values for v in data.variables.values()))
    data.to_netcdf(name, engine="h5netcdf")


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
    refuse_too_large(math.prod(shape), len(grid.arrays), "a table of rows")
    places = np.indices(shape).reshape(len(shape), -1)
    columns: dict[str, list[Any]] = {
        m.name: [m.values[i] for i in place] for a, place in zip(grid.axes, places, strict=True) for m in a.members
    }
    outputs = {column_name(name, grid.axes): data for name, data in grid.arrays.items()}
    return columns | {name: np.broadcast_to(data, shape).reshape(-1).tolist() for name, data in outputs.items()}


def _parquet(columns: Mapping[str, list[Any]], path: str) -> None:
    import pyarrow
    from pyarrow import parquet

    try:
        parquet.write_table(pyarrow.table(dict(columns)), path)
    except pyarrow.ArrowException as error:
        raise RooflmError(f"cannot write as parquet: {' '.join(str(error).split())[:200]}") from error


MOST_ROWS = 1_048_575
"""Rows of a sheet, less its heading."""


def _sheet(columns: Mapping[str, list[Any]], path: str) -> None:
    """An Excel sheet of columns."""
    import pandas as pd
    from openpyxl.utils.exceptions import IllegalCharacterError

    found = pd.DataFrame(dict(columns))
    if len(found) > MOST_ROWS:
        raise RooflmError(f"a sheet of xlsx has {MOST_ROWS:,} rows at most, and these are {len(found):,}: write csv")
    try:
        with Path(path).open("wb") as sheet:
            found.to_excel(sheet, index=False, freeze_panes=(1, 0), engine="openpyxl")
    except (ValueError, IllegalCharacterError) as error:
        raise RooflmError(f"cannot write as xlsx: {' '.join(str(error).split())[:200]}") from error


def _markdown(columns: Mapping[str, list[Any]], path: str) -> None:
    """A Markdown table of columns; of one row, a row a column."""
    import pandas as pd

    def cell(value: Any) -> Any:
        return " ".join(value.replace("|", "\\|").split()) if isinstance(value, str) else value

    if len(next(iter(columns.values()), [])) == 1:
        columns = {"output": list(columns), "value": [f"{v[0]:.6g}" if isinstance(v[0], float) else v[0]
                                                      for v in columns.values()]}  # fmt: skip
    found = pd.DataFrame({k: [cell(v) for v in values] for k, values in columns.items()})
    Path(path).write_text(found.to_markdown(index=False, disable_numparse="output" in columns) + "\n", "utf-8")


def write_columns(target: Path, columns: Mapping[str, list[Any]]) -> None:
    """Columns to a file of one of TABLES."""
    kind = target.suffix.lower()
    if kind == ".csv":
        write_text(target, table(columns))
    else:
        write = {".parquet": _parquet, ".xlsx": _sheet, ".md": _markdown}[kind]
        write_whole(target, lambda name: write(columns, name))


def write_values(path: str, values: dict[str, Any]) -> None:
    """One prediction to a file of any format: its keys, nested ones with dots, as one row."""
    target = check_target(path)
    kind = target.suffix.lower()
    if kind == ".json":
        write_text(target, json.dumps(plain(values), indent=1) + "\n")
        return
    columns = {k: [v] for k, v in flatten(plain({k: v for k, v in values.items() if not isinstance(v, list)})).items()}
    if kind != ".nc":
        write_columns(target, columns)
    else:
        import xarray

        numbers = {k: v[0] for k, v in columns.items() if v[0] is not None}
        write_whole(target, lambda name: write_netcdf(name, xarray.Dataset(numbers)))


def write_grid(path: str, grid: Any) -> None:
    """A grid to a file: tidy rows (csv, parquet, xlsx, md), labelled arrays (nc), nested arrays (json)."""
    target = check_target(path)
    kind = target.suffix.lower()
    if kind == ".json":
        write_text(target, json.dumps(plain(grid.values())) + "\n")
    elif kind != ".nc":
        write_columns(target, grid_columns(grid))
    else:
        write_whole(target, lambda name: write_netcdf(name, grid.dataset()))
