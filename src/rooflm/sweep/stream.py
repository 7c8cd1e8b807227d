"""Grids too large for memory, written block by block, and carried on where an interrupted run stopped.

Each block becomes a file in `FILE.parts/`, beside a manifest with a hash of the request and of what its files say; when
all are there, they are joined into FILE and the folder goes. Memory holds a few blocks only, whatever the size of the
grid. One run at a time holds the folder; a part that is not whole is worked out again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rooflm.asked.answers.outputs import INFER_OUTPUTS, TRAIN_OUTPUTS
from rooflm.errors import RooflmError
from rooflm.readers import outside
from rooflm.shown.numbers import text
from rooflm.shown.version import __version__
from rooflm.sweep.axes import Axis, column_name, grids, shape_of, size_of
from rooflm.sweep.files import TEMPORARY, check_target, ensure_space, locked, netcdf_size, write_text, write_whole
from rooflm.sweep.sweep import GridBlock, GridJob, Values, blocks
from rooflm.sweep.workers import spread

FORMATS = ("parquet", "nc", "csv")
STREAM_BLOCK = 1 << 19
"""Points of a block that becomes a file."""
Progress = Callable[[int], None]


class Streamed(NamedTuple):
    """What a run did: points in all, those worked out now, those kept from a run before."""

    points: int
    done: int
    kept: int


def fingerprint(job: GridJob, block: int, suffix: str, content: str = "") -> str:
    """A hash of everything that determines the blocks' content. content: the text of the model, device and engine files
    used, which may change between a run and its continuation."""
    told = [__version__, [[m.name, list(m.values)] for a in job.axes for m in a.members],
            [a.name for a in job.axes], {k: full_repr(v) for k, v in sorted(job.fixed.items())},
            job.outputs, block, suffix, content]  # fmt: skip
    return hashlib.sha256(json.dumps(told, default=full_repr).encode()).hexdigest()


def full_repr(value: Any) -> str:
    """A value with all its fields, for rows whose own `repr` is abbreviated.

    >>> from rooflm.catalogue.hardware import Link
    >>> full_repr(Link("nvlink", "nvlink", 8, 3e11, 2e-6)), full_repr(8)
    ("{'name': 'nvlink', 'kind': 'nvlink', 'size': 8, 'bandwidth': 300000000000.0, 'latency': 2e-06}", '8')
    """
    return repr(asdict(value)) if is_dataclass(value) and not isinstance(value, type) else repr(value)


def stream(
    job: GridJob, path: str, on: str = "local", block: int = STREAM_BLOCK, progress: Progress | None = None,
    content: str = "",
) -> Streamed:  # fmt: skip
    """Evaluate the whole grid of a job into a parquet, nc or csv file.

    progress: called with the number of points of each block, those kept from an earlier run first; content: see
    `fingerprint`. Raises RooflmError for a bad target, when FILE.parts holds another request, and while another run
    writes there.
    """
    target = check_target(path, FORMATS)
    suffix = target.suffix.lower()
    if suffix != ".nc" and find_spec("pyarrow") is None:
        raise RooflmError("streaming to parquet or csv needs pyarrow: pip install 'rooflm[parquet]'")
    folder = target.with_name(target.name + ".parts")
    todo = blocks(job.axes, block)
    names = {b: folder / f"{i:07d}{'.npz' if suffix == '.nc' else suffix}" for i, b in enumerate(todo)}
    with lock_parts(folder):
        _open(folder, fingerprint(job, block, suffix, content), len(todo))
        kept = [b for b in todo if names[b].exists() and is_whole(names[b], suffix, b.points)]
        for one in kept:
            report_block(progress, one)
        left = [b for b in todo if b not in set(kept)]
        for one, values in spread(job, left, on):
            write_whole(names[one], lambda name, b=one, v=values: write_part(name, suffix, job.axes, b, v))  # type: ignore[misc]
            refuse_full(target, names[one].stat().st_size / one.points * size_of(job.axes))
            report_block(progress, one)
        write_whole(target, lambda name: JOIN[suffix](name, [(b, names[b]) for b in todo], job.axes))
        shutil.rmtree(folder)
    return Streamed(size_of(job.axes), *(sum(b.points for b in group) for group in (left, kept)))


def refuse_full(target: Path, size: float) -> None:
    """RooflmError where a file of about this many bytes, as one block's points say, is more than what is free on its
    disk (beside it the parts take as much again)."""
    free = shutil.disk_usage(target.parent).free
    if size > free:
        held = f"but {text(free, 'B')} are free there: name fewer outputs or points"
        raise RooflmError(f"{str(target)!r} would have about {text(size, 'B')}, {held}")


def _open(folder: Path, mark: str, count: int) -> None:
    """The folder of parts, empty or from the same request. Parts without a manifest come from a run killed at its very
    start and are deleted."""
    manifest = folder / MANIFEST
    if manifest.exists():
        told = outside.read_json(manifest, "manifest")
        if not isinstance(told, dict) or told.get("request") != mark:
            raise RooflmError(f"{str(folder)!r} holds parts of another run: delete it, or write to another --out")
        return
    others = [p.name for p in folder.iterdir() if not (OURS.fullmatch(p.name) or TEMPORARY in p.name)]
    if others:
        raise RooflmError(f"{str(folder)!r} holds {others[0]!r}, which is no part of a run: write to another --out")
    for old in folder.iterdir():
        old.unlink()
    write_text(manifest, json.dumps({"request": mark, "blocks": count, "rooflm": __version__}) + "\n")


MANIFEST = "manifest.json"
OURS = re.compile(r"\d{7}\.(parquet|csv|npz)")
"""Names of the files in a folder of parts, but the manifest."""


@contextmanager
def lock_parts(folder: Path) -> Iterator[None]:
    """Create and lock the folder of parts; RooflmError if another run holds it."""
    with ExitStack() as until_the_end:
        while True:
            try:
                folder.mkdir(exist_ok=True)
                mine = until_the_end.enter_context(locked(folder, wait=False))
                break
            except FileNotFoundError:  # the run before has just ended, and taken its folder with it
                continue
            except OSError as error:
                raise RooflmError(f"cannot write {str(folder)!r}: {error.strerror or error}") from error
        if not mine:
            raise RooflmError(f"another run writes to {str(folder)!r}: wait, or write to another --out")
        yield


def is_whole(part: Path, suffix: str, points: int) -> bool:
    """Whether a part is complete; a power loss may have cut it short."""
    try:
        if suffix == ".parquet":
            from pyarrow import parquet

            return bool(parquet.read_metadata(part).num_rows == points)
        if suffix == ".csv":
            content = part.read_bytes()
            return content.endswith(b"\n") and content.count(b"\n") > points
        with np.load(part) as values:
            return all(values[key].size <= points for key in values.files)
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error):  # ArrowInvalid is a ValueError
        return False


def report_block(progress: Progress | None, block: GridBlock) -> None:
    """Tell how many points a block has, where somebody listens."""
    if progress is not None:
        progress(block.points)


def part_columns(axes: Sequence[Axis], block: GridBlock, values: Values) -> dict[str, NDArray[Any]]:
    """A block as tidy columns: one row a point, the axes first, in the order of the grid's numeric axes."""
    structural, numeric = grids(axes)
    shape = block.shape
    columns: dict[str, NDArray[Any]] = {}
    for axis in axes:
        for member in axis.members:
            if axis in structural:
                value = member.values[block.place[structural.index(axis)]]
                columns[member.name] = np.broadcast_to(np.array(value), (block.points,))
            else:
                i = numeric.index(axis)
                cut = np.array(member.values[slice(*block.slices[i])])
                wide = cut.reshape((1,) * i + (len(cut),) + (1,) * (len(shape) - i - 1))
                columns[member.name] = np.broadcast_to(wide, shape).reshape(-1)
    for name, value in values.items():
        columns[column_name(name, axes)] = np.broadcast_to(value, shape).reshape(-1)
    return columns


def write_part(name: str, suffix: str, axes: Sequence[Axis], block: GridBlock, values: Values) -> None:
    """One block as a file: rows for parquet and csv, arrays in their own shape for nc."""
    if suffix == ".nc":
        np.savez(name, **{k.replace("/", "_"): v.astype(str) if v.dtype == object else v for k, v in values.items()})  # type: ignore[arg-type]
        return
    columns = part_columns(axes, block, values)
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({k: _arrow(v) for k, v in columns.items()})
    if suffix == ".parquet":
        parquet.write_table(table, name, use_dictionary=[k for k in columns if k not in values], compression="snappy")
    else:
        from pyarrow import csv

        csv.write_csv(table, name, csv.WriteOptions(quoting_style="needed"))


def _arrow(column: NDArray[Any]) -> Any:
    """A column for a table; one that repeats a single value is not spelled out."""
    import pyarrow

    if column.size and column.strides == (0,):
        return pyarrow.repeat(column[0].item() if hasattr(column[0], "item") else column[0], len(column))
    return column.tolist() if column.dtype.kind in "OU" else np.ascontiguousarray(column)


def _join_parquet(name: str, parts: list[tuple[GridBlock, Path]], axes: Sequence[Axis]) -> None:
    """Row groups one after the other; an output that a block lacks (another kind of model) is null there."""
    import pyarrow
    from pyarrow import parquet

    schema = pyarrow.unify_schemas([parquet.read_schema(part) for _, part in parts])
    plain = [f.name for f in schema if f.name in {m.name for a in axes for m in a.members}]
    with parquet.ParquetWriter(name, schema, use_dictionary=plain, compression="snappy") as writer:
        for _, part in parts:
            table = parquet.read_table(part, use_threads=False)
            has = set(table.column_names)
            columns = [table[f.name] if f.name in has else pyarrow.nulls(len(table), f.type) for f in schema]
            writer.write_table(pyarrow.table(columns, schema=schema))


def _join_csv(name: str, parts: list[tuple[GridBlock, Path]], axes: Sequence[Axis]) -> None:
    """The header once, then every part's rows."""
    head = b""
    with Path(name).open("wb") as out:
        for _, part in parts:
            with part.open("rb") as source:
                own = source.readline()
                if head and own != head:
                    raise RooflmError("models of different kinds have different outputs: name some, or write parquet")
                out.write(b"" if head else own)
                head = own
                shutil.copyfileobj(source, out)


def _join_nc(name: str, parts: list[tuple[GridBlock, Path]], axes: Sequence[Axis]) -> None:
    """A labelled array an output, filled block by block."""
    import h5netcdf

    structural, numeric = grids(axes)
    order = [*structural, *numeric]
    ensure_space(name, _nc_size(parts, size_of(axes)))
    with h5netcdf.File(name, "w") as file:
        file.dimensions = {a.name: n for a, n in zip(order, shape_of(order), strict=True)}
        for axis in axes:
            for member in axis.members:
                data = np.array(member.values, dtype=object if isinstance(member.values[0], str) else None)
                kind: Any = _text_type() if data.dtype == object else data.dtype
                file.create_variable(member.name, (axis.name,), kind, data=data)
        for block, part in parts:
            with np.load(part) as values:
                for key in values.files:
                    _fill(file, column_name(key, axes), values[key], block, order)


def _nc_size(parts: list[tuple[GridBlock, Path]], points: int) -> int:
    """Bytes that the whole netCDF file may take: every output over all points."""
    kinds: dict[str, NDArray[Any]] = {}
    for _, part in parts[:1] + parts[-1:]:
        with np.load(part) as values:
            kinds |= {key: values[key].reshape(-1)[:1] for key in values.files}
    return netcdf_size(kinds.values(), points)


def _text_type() -> Any:
    """The type of text in netCDF."""
    import h5py

    return h5py.string_dtype()


def _fill(file: Any, key: str, value: NDArray[Any], block: GridBlock, order: Sequence[Axis]) -> None:
    """Write one output of a block into its place in a netCDF file, whose variable the first block makes."""
    if key not in file.variables:
        text = value.dtype.kind in "US"
        kind: Any = _text_type() if text else ("u1" if value.dtype.kind == "b" else value.dtype)
        made = file.create_variable(key, tuple(a.name for a in order), kind)
        row = (INFER_OUTPUTS | TRAIN_OUTPUTS).get(key.split(".")[0])
        made.attrs["long_name"], made.attrs["units"] = (row.meaning, row.unit) if row else (key, "")
        if value.dtype.kind == "b":
            made.attrs["dtype"] = "bool"
    data = np.broadcast_to(value, block.shape)
    wide = data.astype(object) if data.dtype.kind in "US" else (data.astype("u1") if data.dtype.kind == "b" else data)
    file.variables[key][(*block.place, *(slice(*s) for s in block.slices))] = wide


JOIN: dict[str, Callable[[str, list[tuple[GridBlock, Path]], Sequence[Axis]], None]] = {
    ".parquet": _join_parquet,
    ".csv": _join_csv,
    ".nc": _join_nc,
}
"""Suffix -> how the parts become one file."""
