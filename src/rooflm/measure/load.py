"""Load a running server level by level with a maintained load generator, and keep what it took as measured rows.

The generators are programs of their own (rows of data/generators.toml), started here and read by `foreign`; none is
imported, so each may live in an environment of its own. The table is written after every level: an interrupt keeps what
is done.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from rooflm.errors import RooflmError, near_matches
from rooflm.measure import profile, server
from rooflm.measure.case import gguf_of
from rooflm.measure.foreign import Cells, read_foreign
from rooflm.readers.rows import shipped
from rooflm.sweep.files import check_target, table, write_text
from rooflm.validation.columns import COLUMNS, RUN

GRACE = 180.0
"""s beyond the length of a level after which its generator is ended: start, tokenizer, the last answers."""
Tell = Callable[[int, int, str, str], None]


@dataclass(frozen=True)
class Generator:
    """A load generator: its program, the words of its command line, those of each kind of load, and its report."""

    program: str
    words: tuple[str, ...]
    loads: dict[str, tuple[str, ...]]
    report: str


@lru_cache
def generators() -> dict[str, Generator]:
    """Load generators by name."""
    return shipped("generators", dict[str, Generator])


@dataclass(frozen=True)
class Plan:
    """What to load a server with. url: its address; model: as predictions know it ("": as the server names it); cells:
    columns of the table that the caller states; clients, rates, trace: levels of load; prompt, output: tokens a
    request; requests: of a level (0: six a client, at least twelve); seconds: longest level; tokenizer: of the model,
    for the generator; interval: s between two samples of the profile (0: none)."""

    url: str
    model: str = ""
    cells: Cells = field(default_factory=dict)
    clients: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    trace: str = ""
    prompt: int = 128
    output: int = 64
    requests: int = 0
    seconds: float = 300.0
    tokenizer: str = ""
    generator: str = "guidellm"
    interval: float = 0.5


@dataclass
class Run:
    """What a plan gave: rows, what the server told, counters of each level, samples over time, levels that failed with
    their reasons; interrupted: the user ended it early."""

    rows: list[Cells]
    told: dict[str, Any]
    levels: dict[str, dict[str, float]] = field(default_factory=dict)
    samples: list[profile.Sample] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


class Level(NamedTuple):
    """One level of load: the kind of load, the words for it, its name and requests."""

    kind: str
    values: dict[str, Any]
    label: str
    requests: int


def levels(plan: Plan) -> list[Level]:
    """The levels of a plan, in order.

    >>> [(x.label, x.requests) for x in levels(Plan("x", clients=(1, 8)))]
    [('1 client, 128+64', 12), ('8 clients, 128+64', 48)]
    """
    size = f"{plan.prompt}+{plan.output}"
    found = [Level("clients", {"clients": n}, f"{n} client{'s' * (n > 1)}, {size}", plan.requests or max(12, 6 * n))
             for n in plan.clients]  # fmt: skip
    found += [Level("rate", {"rate": r}, f"{r:g} requests/s, {size}", plan.requests or max(12, round(30 * r)))
              for r in plan.rates]  # fmt: skip
    if plan.trace:
        found.append(Level("trace", {"trace": plan.trace}, f"trace {plan.trace}", plan.requests or 100_000))
    return found


def generator_of(name: str, kind: str = "clients") -> Generator:
    """A generator that makes loads of a kind; RooflmError with what does."""
    known = generators()
    if name not in known:
        near = near_matches(name, known) or list(known)
        raise RooflmError(f"load is {name!r}: did you mean {' or '.join(map(repr, near))}?")
    found = known[name]
    if kind not in found.loads:
        raise RooflmError(f"load is {name!r}, which makes no load of kind {kind}: take {next(iter(known))}")
    return found


def program(name: str, kind: str = "clients") -> tuple[Generator, str]:
    """A generator and where its program is; RooflmError that says what to install."""
    found = generator_of(name, kind)
    own = program_path(found.program)
    where = str(own) if own.is_file() else shutil.which(found.program)
    if where is None:
        raise RooflmError(f"the program {found.program} was not found: pip install 'rooflm[load]', or put it on PATH "
                          "from an environment of its own (uv tool install, pipx)")  # fmt: skip
    return found, where


def program_path(name: str) -> Path:
    """Where a program installed in this Python environment would be."""
    return Path(sys.executable).parent / name


def check(plan: Plan) -> None:
    """RooflmError for what cannot be run, before anything is."""
    for name, value in (("prompt", plan.prompt), ("output", plan.output), *(("concurrency", c) for c in plan.clients)):
        if not (isinstance(value, int) and 1 <= value <= 10**7):
            raise RooflmError(f"{name} is {value!r}, but it must be a whole number from 1 to 10,000,000")
    for number in plan.rates:
        if not 0 < number <= 1e6:
            raise RooflmError(f"rate is {number!r}, but it must be above 0 and at most 1e6")
    if not 0 <= plan.requests <= 10**6 or not 1 <= plan.seconds <= 86400 or not 0 <= plan.interval <= 3600:
        raise RooflmError("requests must be 0 to 1,000,000, duration 1 to 86,400 s and interval 0 to 3,600 s")
    if not (plan.clients or plan.rates or plan.trace):
        raise RooflmError("there is no load: give --concurrency 1,2,4, --rate or --trace")
    if plan.trace and not Path(plan.trace).is_file():
        raise RooflmError(f"trace is {plan.trace!r}, but there is no such file")
    for level in levels(plan):
        generator_of(plan.generator, level.kind)


def run(plan: Plan, out: str | None = None, tell: Tell | None = None) -> Run:
    """Load the server at every level that `out` does not hold yet. RooflmError only before any level."""
    check(plan)
    kept = kept_rows(out) if out else []
    told = server.ask(plan.url)
    base = server.base_of(plan.url)
    program(plan.generator)
    found = Run(kept, {"url": base, "columns": told.columns, "model": told.name, "answers": told.raw})
    todo, common = levels(plan), stated(plan, told)
    watch = profile.Profiler(profile.listening(base), plan.interval) if plan.interval else None
    with tempfile.TemporaryDirectory(prefix="rooflm-") as folder:
        tokenizer = tokenizer_of(plan.tokenizer or told.root, folder)
        try:
            warm_up(base, told.name)
            if watch:
                watch.__enter__()
            for number, level in enumerate(todo, start=1):
                name = f"{common['source']} {level.label}"
                status = "kept"
                if not any(r.get("id") == name for r in kept):
                    if watch:
                        watch.label = level.label
                    had = len(found.rows)
                    status = one_level(plan, level, name, common, base, told.name, tokenizer, found)
                    got = cores_used(watch.samples, level.label) if watch else {}
                    found.rows[had:] = [r | got for r in found.rows[had:]]
                    save(out, found)
                if tell:
                    tell(number, len(todo), level.label, status)
        except KeyboardInterrupt:
            found.interrupted = True
        finally:
            if watch:
                watch.__exit__()
                found.samples = watch.samples
    save(out, found)
    return found


def one_level(
    plan: Plan, level: Level, name: str, common: Cells, base: str, model: str, tokenizer: str, found: Run
) -> str:
    """Run one level and add its rows; what became of it."""
    generator, where = program(plan.generator, level.kind)
    with tempfile.TemporaryDirectory(prefix="rooflm-level-") as folder:
        seed = sum(level.label.encode()) % 10_000 + 1  # the same in every run, but no two levels share prompts
        values = {"url": base, "name": model, "tokenizer": tokenizer, "prompt": plan.prompt, "output": plan.output,
                  "requests": level.requests, "seconds": f"{plan.seconds:g}", "folder": folder, "rate": "",
                  "clients": "", "trace": "", "seed": seed} | level.values  # fmt: skip
        words = [w.format(**values) for w in (*generator.words, *generator.loads[level.kind])]
        before, start = server.counters(base), time.perf_counter()
        why = run_program([where, *words], plan.seconds + GRACE)
        report = Path(folder) / generator.report
        if not report.is_file():
            found.failed[level.label] = why or "it left no report"
            return f"failed: {found.failed[level.label]}"
        try:
            rows = read_foreign(str(report))
        except RooflmError as error:
            found.failed[level.label] = str(error).replace(str(report), "its report")
            return f"failed: {found.failed[level.label]}"
        taken = time.perf_counter() - start
        after = server.counters(base)
        found.levels[level.label] = {"wall_s": taken, **{k: v - before[k] for k, v in after.items()
                                                         if k in before and v != before[k]}}  # fmt: skip
        load = {"trace": plan.trace} if level.kind == "trace" else {}
        found.rows += [{**row, **load, **common, "id": name} for row in rows]
        return "ok"


def cores_used(samples: Sequence[profile.Sample], label: str) -> Cells:
    """CPU cores that the server's processes used during a level: all together, and the busiest one."""
    found = {"cores": profile.cores(samples, label), "busiest": profile.busiest(samples, label)}
    return {RUN + name: f"{value:.3f}" for name, value in found.items() if value}


def run_program(command: list[str], limit: float) -> str:
    """Run a program; after the time limit kill it with its children. Returns why it failed ("" if it did not)."""
    quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "GUIDELLM__LOGGING__DISABLED": "true"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True, env={**os.environ, **quiet})  # fmt: skip
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return f"it did not end within {limit:g} s"
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    code, text = process.returncode, said.decode("utf-8", "replace")
    return f"exit status {code}: {reason(text)}" if code else ""


def reason(said: str) -> str:
    """Why a program failed: the first line in what it said that tells of an error, else the last one.

    >>> reason("starting\\n12:00:01 ERROR no tokenizer\\n| see the log |\\n"), reason("it broke\\n"), reason("")
    ('12:00:01 ERROR no tokenizer', 'it broke', '')
    """
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
    return (told[0] if told else (lines or [""])[-1])[:300]


def stated(plan: Plan, told: server.Told) -> Cells:
    """Columns shared by all rows: given by the caller, else reported by the server."""
    model = {"model": plan.model or told.root}
    when = {"date": datetime.now(UTC).strftime("%Y-%m-%d")}
    return {"source": server.base_of(plan.url), **when, **told.columns, **model, **plan.cells}


def warm_up(base: str, name: str) -> None:
    """Send one short request, so that one-time costs of the server do not count in the first level."""
    body = json.dumps({"model": name, "prompt": "hello", "max_tokens": 2}).encode()
    with suppress(OSError, ValueError):
        request = urllib.request.Request(f"{base}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            reply.read(4096)


def tokenizer_of(name: str, folder: str) -> str:
    """A folder or hub id as it is; of a .gguf file (or gguf:PACKAGE) the tokenizer inside it, written to a folder."""
    if not (name.endswith(".gguf") or name.startswith("gguf:")):
        return name
    file = gguf_of(name)
    try:
        from transformers import AutoTokenizer

        made = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    except ImportError as error:
        raise RooflmError("a tokenizer inside a .gguf needs transformers: pip install 'rooflm[measure]'") from error
    except (OSError, ValueError) as error:
        raise RooflmError(f"cannot read a tokenizer from {str(file)!r}: {error}; give --tokenizer") from None
    made.save_pretrained(folder)
    return folder


def kept_rows(out: str) -> list[Cells]:
    """The rows of a table that is there already; RooflmError for a file that is no such table."""
    target = check_target(out, ("csv",))
    if not target.exists():
        return []
    try:
        with target.open(encoding="utf-8", newline="") as file:
            rows = [{k: v for k, v in row.items() if k and isinstance(v, str) and v} for row in csv.DictReader(file)]
    except (OSError, ValueError, csv.Error) as error:
        raise RooflmError(f"cannot read {out!r}: {error}") from None
    if any("metric" not in r or "value" not in r for r in rows):
        raise RooflmError(f"{out} is there, but it is no table of measured runs: name another file")
    return rows


def save(out: str | None, found: Run) -> None:
    """The rows, and beside them what the server and the machine told, each whole or not at all."""
    if not out or not found.rows:
        return
    from rooflm.measure.results import environment, environment_file

    used = [c for c in (*COLUMNS, *sorted({k for r in found.rows for k in r} - COLUMNS.keys()))
            if any(c in r for r in found.rows)]  # fmt: skip
    columns: dict[str, list[Any]] = {c: [r.get(c, "") for r in found.rows] for c in used}
    write_text(Path(out), table(columns))
    notes = {**environment(), "server": found.told, "levels": found.levels, "failed": found.failed}
    text = json.dumps(notes, indent=1, default=str) + "\n"
    write_text(environment_file(out), text)
