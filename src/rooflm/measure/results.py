"""Measurements as a table of measured runs: one row a case and metric, in SI units, with the environment beside it."""

from __future__ import annotations

import json
import math
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rooflm.catalogue.fields import LARGEST
from rooflm.errors import RooflmError
from rooflm.measure.case import Case, check
from rooflm.measure.shape import parse
from rooflm.readers import outside
from rooflm.shown.numbers import plain_number
from rooflm.shown.version import __version__
from rooflm.sweep.files import check_target, locked, write_columns, write_text
from rooflm.sweep.workers import cores
from rooflm.validation.columns import RUN

FORMATS = ("csv", "parquet")


class Stat(NamedTuple):
    """Statistics of N repeats: median, percentiles, and N."""

    value: float
    p10: float
    p90: float
    p99: float
    n: int

    def times(self, factor: float) -> Stat:
        """The same statistics in another unit."""
        return Stat(self.value * factor, self.p10 * factor, self.p90 * factor, self.p99 * factor, self.n)


def stat(samples: Sequence[float]) -> Stat:
    """The statistics of repeats.

    >>> stat([3.0, 1.0, 2.0]).value
    2.0
    """
    p10, p50, p90, p99 = np.percentile(np.asarray(samples, float), (10, 50, 90, 99))
    return Stat(float(p50), float(p10), float(p90), float(p99), len(samples))


def constant_stat(value: float) -> Stat:
    """Statistics of a single value."""
    return Stat(float(value), float(value), float(value), float(value), 1)


@dataclass(frozen=True)
class Row:
    """One metric of one case. rank -1: over all ranks. m, n, k, ranks: sizes of a micro-benchmark (0 elsewhere).

    status: ok, oom or failed (then metric is "status" and reason says why). shape: of the model, as `Shape.text`.
    """

    case: Case
    metric: str
    unit: str
    stat: Stat
    shape: str = ""
    rank: int = -1
    m: int = 0
    n: int = 0
    k: int = 0
    status: str = "ok"
    reason: str = ""


COMMON = ("task", "model", "tp", "pp", "dp", "batch", "output")
"""Fields of a case that are columns of a table of measured runs as they stand."""
OWN = tuple(f for f in fields(Case) if f.name not in (*COMMON, "prompt"))
"""The others: columns `run:NAME`, which no prediction reads."""
SIZES = {"layers": "layers", "hidden": "hidden", "heads": "heads", "kv_heads": "kv_heads", "head_dim": "head_dim",
         "width": "ffn", "vocab": "vocab", "tied": "tied"}  # fmt: skip
"""Size of a `Shape` -> its column."""
PLACE = ("rank", "m", "n", "k", "shape", "status", "reason")
"""What a row says beside its case and value: columns `run:NAME` too."""
COLUMNS = ("id", *COMMON, "prompt", "seq", "quant", "dtype", *SIZES.values(), "metric", "value", "unit", "p10", "p90",
           "p99", "samples", f"{RUN}key", *(RUN + f.name for f in OWN), *(RUN + name for name in PLACE))  # fmt: skip


def flat(row: Row) -> dict[str, Any]:
    """A row by column of a table of measured runs (docs/tables.md)."""
    s, case = row.stat, row.case
    sizes = parse(row.shape)._asdict() if row.shape else {}
    trained = case.task == "train"
    length = {"seq" if trained else "prompt": case.prompt}
    kind = {"dtype": case.dtype} if trained else {"quant": case.scheme}
    return dict.fromkeys(COLUMNS, "") | {
        "id": case.label, **{name: getattr(case, name) for name in COMMON}, **length, **kind,
        **{column: sizes[name] for name, column in SIZES.items() if sizes}, "metric": row.metric, "unit": row.unit,
        "value": s.value, "p10": s.p10, "p90": s.p90, "p99": s.p99, "samples": s.n, f"{RUN}key": case.key,
        **{RUN + f.name: getattr(case, f.name) for f in OWN}, **{RUN + name: getattr(row, name) for name in PLACE},
    }  # fmt: skip


_KINDS: dict[str, Any] = {"int": int, "float": float, "bool": bool, "str": str}


def _typed(kind: str, value: Any) -> Any:
    if kind == "bool":
        return value in (True, "True", "true", "1", 1)
    return _KINDS[kind](value if value is not None else "")


def unflat(record: dict[str, Any], label: str) -> Row:
    """A row back from its columns; RooflmError names the column that is missing or wrong."""
    try:
        given = {f.name: record[f.name if f.name in COMMON else RUN + f.name] for f in fields(Case)
                 if f.name != "prompt"}  # fmt: skip
        given["prompt"] = record["prompt"] or record["seq"]
        case = check(Case(**{f.name: _typed(str(f.type), given[f.name]) for f in fields(Case)}))
        value, p10, p90, p99 = (float(record[c]) for c in ("value", "p10", "p90", "p99"))
        own = {name: record[RUN + name] for name in PLACE}
        told = {"value": value, "p10": p10, "p90": p90, "p99": p99} if own["status"] == "ok" else {}
        for column in (c for c, v in told.items() if not 0 <= v < math.inf):
            rule = "it must be a finite number, 0 or more"
            raise RooflmError(f"{label}: {column} of {record['metric']} is {record[column]}, but {rule}")
        sizes = {name: _whole(own[name], name) for name in ("rank", "m", "n", "k")}
        return Row(case, record["metric"], record["unit"], Stat(value, p10, p90, p99, int(record["samples"])),
                   own["shape"] or "", status=own["status"], reason=own["reason"] or "", **sizes)  # fmt: skip
    except KeyError as error:
        raise RooflmError(f"{label}: column {error} is missing: it is no table of `rooflm measure`") from error
    except RooflmError as error:
        raise RooflmError(f"{label}: {str(error).removeprefix(f'{label}: ')}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise RooflmError(f"{label}: {error}") from error


def _whole(value: Any, column: str) -> int:
    """A size of a micro-benchmark, or a rank (-1: all of them)."""
    number = int(value)
    if not -1 <= number <= LARGEST:
        raise RooflmError(f"{column} is {number}, but it must be a whole number from -1 to {plain_number(LARGEST)}")
    return number


def read(path: str | Path) -> list[Row]:
    """The rows of a results file."""
    if str(path).lower().endswith(".parquet"):
        return [unflat(r, f"{path}, row {i}") for i, r in enumerate(_parquet(path), start=2)]
    content = outside.text(path, "results", "csv")
    return [unflat(r, f"{path}, row {i}") for i, r in outside.csv_rows(content, f"results {str(path)!r}")]


def _parquet(path: str | Path) -> list[dict[str, Any]]:
    """The records of a parquet file."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise RooflmError("reading parquet needs pyarrow: pip install 'rooflm[parquet]'") from error
    try:
        records: list[dict[str, Any]] = parquet.read_table(outside.checked_path(path, "results")).to_pylist()
    except (OSError, ArrowException) as error:
        said = outside.os_reason(error) or " ".join(str(error).split())[:200]
        raise RooflmError(f"cannot read results {str(path)!r}: {said}") from error
    return records


def add(path: str | Path, rows: Sequence[Row]) -> None:
    """Rows into a results file: those of the same cases go, all others stay, whoever wrote them and whenever."""
    target = check_target(str(path), FORMATS)
    mine = {row.case.key for row in rows}
    with locked(target.parent):
        kept = read(target) if target.exists() else []
        write(target, [*(row for row in kept if row.case.key not in mine), *rows])


def write(path: str | Path, rows: Iterable[Row]) -> None:
    """All rows to a csv or parquet file, whole or not at all."""
    target = check_target(str(path), FORMATS)
    records = [flat(r) for r in rows]
    write_columns(target, {c: [r[c] for r in records] for c in COLUMNS})


def environment_file(path: str | Path) -> Path:
    """Where the environment of a results file is kept."""
    return Path(path).with_suffix(".environment.json")


PACKAGES = ("torch", "transformers", "numpy", "torchao", "gguf", "safetensors", "psutil", "nvidia-ml-py")


def environment() -> dict[str, Any]:
    """Hardware, clocks, drivers, library versions and commit."""
    found: dict[str, Any] = {"rooflm": __version__, "python": platform.python_version(), "system": platform.platform()}
    found["cpu"] = _cpu()
    found["cores"] = cores()
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    found["memory_bytes"] = installed_memory()
    found["commit"] = command_output("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD")
    asked = "name,driver_version,clocks.max.sm,clocks.max.mem,power.limit,memory.total"
    gpus = command_output("nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader")
    if gpus:
        found["gpus"] = gpus.splitlines()
    return {k: v for k, v in found.items() if v}


def command_output(*command: str) -> str:
    """The output of a command, "" if it cannot run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def installed_memory() -> int:
    """Bytes of memory of this machine; 0 where the system does not tell."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def write_environment(path: str | Path) -> None:
    """The environment beside a results file."""
    text = json.dumps(environment(), indent=1) + "\n"
    write_text(environment_file(path), text)
