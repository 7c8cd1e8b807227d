"""Runs cases, each in fresh processes, and keeps every finished one in the results file, so that a run can resume."""

from __future__ import annotations

import importlib.util
import multiprocessing
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any, NamedTuple

from rooflm.errors import RooflmError
from rooflm.measure import results
from rooflm.measure.case import Case
from rooflm.measure.results import Row, constant_stat
from rooflm.measure.runs import worker
from rooflm.shown.progress import tell_done

TIMEOUT = 1800.0
"""s after which a case counts as failed."""
PRELOAD = ("rooflm.measure.runs.preload",)
Tell = Callable[[int, int, Case, str], None]


def needs_torch() -> None:
    """RooflmError that says what to install, unless it is there."""
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        raise RooflmError(f"measuring needs {' and '.join(missing)}: pip install 'rooflm[measure]'")


def start() -> Any:
    """How processes are started: from a server that has imported torch once, so that a fresh one costs little."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOAD))
    return context


class Outcome(NamedTuple):
    """The result of a case: its rows, or a status and a reason."""

    rows: list[Row]
    status: str = "ok"
    reason: str = ""


def run_case(case: Case, timeout: float = TIMEOUT) -> Outcome:
    """Measure one case in fresh processes, one a rank. A worker's death or error is an outcome, never an exception."""
    context = start()
    with tempfile.TemporaryDirectory(prefix="rooflm-") as folder:
        pipes, processes = [], []
        for rank in range(case.world):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=worker.main, args=(case, rank, folder, theirs), daemon=True)
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        try:
            return _collect(pipes, processes, timeout)
        finally:
            for process in processes:
                if process.is_alive():
                    process.kill()
                process.join()


def _collect(pipes: list[Any], processes: list[Any], timeout: float) -> Outcome:
    """Wait for every rank, or for the first that fails."""
    left, rows, end = dict(enumerate(pipes)), {}, time.monotonic() + timeout
    while left:
        ready = connection.wait(list(left.values()), timeout=max(end - time.monotonic(), 0))
        if not ready:
            return Outcome([], "failed", f"no answer within {timeout:g} s")
        for rank in [r for r, pipe in left.items() if pipe in ready]:
            try:
                kind, value = left.pop(rank).recv()
            except EOFError:
                return Outcome([], *_died(processes[rank], rank))
            if kind != "rows":
                return Outcome([], *_first_cause(kind, value, left))
            rows[rank] = value
    return Outcome([row for rank in sorted(rows) for row in rows[rank]])


def _first_cause(kind: str, value: str, left: dict[int, Any]) -> tuple[str, str]:
    """The cause of a failure: a rank that lost its peer is told apart from the peer that ran out of memory."""
    for pipe in left.values():
        try:
            if kind != "oom" and pipe.poll(1.0):
                other = pipe.recv()
                if other[0] == "oom":
                    return str(other[0]), str(other[1])
        except (EOFError, OSError):
            continue
    return kind, value


def _died(process: Any, rank: int) -> tuple[str, str]:
    """Status and reason of a worker that went away without a word."""
    process.join(5)
    code = process.exitcode
    if code == -signal.SIGKILL:
        return "oom", f"worker {rank} was killed, most likely for want of memory"
    name = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
    return "failed", f"worker {rank} ended without an answer ({name})"


def run(cases: Sequence[Case], out: str | None = None, tell: Tell | None = None, timeout: float = TIMEOUT) -> list[Row]:
    """Measure every case; those that the file `out` holds already are kept, failed ones run
    again. Writes `out` after each case.

    tell: called with (number, of how many, case, status) after each case. Raises RooflmError only before any work.
    """
    needs_torch()
    kept: list[Row] = []
    if out:
        from rooflm.sweep.files import check_target

        if check_target(out, results.FORMATS).exists():
            kept = results.read(out)
    again = {row.case.key for row in kept if row.status == "failed"} & {case.key for case in cases}
    rows = [row for row in kept if row.case.key not in again]
    done = {row.case.key for row in rows}
    if out and not results.environment_file(out).exists():
        results.write_environment(out)
    for number, case in enumerate(cases, start=1):
        tell_done(number - 1, len(cases))
        if case.key in done:
            status = "kept"
        else:
            outcome = run_case(case, timeout)
            found = outcome.rows or [
                Row(case, "status", "", constant_stat(float("nan")), status=outcome.status, reason=outcome.reason)
            ]
            rows += found
            done.add(case.key)
            status = outcome.status if outcome.status == "ok" else f"{outcome.status}: {outcome.reason}"
            if out:
                results.add(out, found)
        if tell is not None:
            tell(number, len(cases), case, status)
    return rows
