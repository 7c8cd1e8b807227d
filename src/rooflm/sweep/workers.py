"""Runs blocks of work: on the cores of this machine, or on a Ray cluster, with the same answer to the bit.

NumPy lets go of the interpreter inside its array operations, so threads share one process and copy nothing; what is
plain Python runs on a process a core, on at most eight (`in_processes`). On Ray a block is a task; the scheduler
retries it when its worker dies. Few blocks are in flight, so memory is bounded.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from rooflm.errors import RooflmError

if TYPE_CHECKING:
    from concurrent.futures import Future

Part = TypeVar("Part")
Answer = TypeVar("Answer")
Work = TypeVar("Work")

RETRIES = 5
"""Times that Ray tries a block again when the worker that runs it dies."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(
    job: Callable[[Part], Answer], parts: Sequence[Part], on: str = "local"
) -> Generator[tuple[Part, Answer], None, None]:
    """Each part with its answer, as they are done. on: "local", "ray" (a running cluster) or "ray://host:port".

    Raises RooflmError for another place and where no Ray cluster answers.

    >>> sorted(spread(abs, [-2, 3]))
    [(-2, 2), (3, 3)]
    """
    if place(on) != "local":
        return _ray(job, parts, on)
    return _threads(job, parts) if len(parts) > 1 and cores() > 1 else ((p, job(p)) for p in parts)


def place(on: str) -> str:
    """Where blocks run, if there is such a place; RooflmError otherwise.

    >>> place("mars")
    Traceback (most recent call last):
    rooflm.errors.RooflmError: --on is 'mars', but it must be local, ray, or ray://host:port
    """
    if on not in ("local", "ray") and not on.startswith("ray://"):
        raise RooflmError(f"--on is {on!r}, but it must be local, ray, or ray://host:port")
    return on


def _threads(job: Callable[[Part], Answer], parts: Sequence[Part]) -> Generator[tuple[Part, Answer], None, None]:
    """Parts on one thread a core, at most two a thread in flight."""
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

    def finished(running: Sequence[Future[Answer]]) -> Iterable[Future[Answer]]:
        return wait(running, return_when=FIRST_COMPLETED).done

    workers = min(cores(), len(parts))
    with ThreadPoolExecutor(workers) as pool:
        try:
            for part, future in in_flight(parts, 2 * workers, lambda p: pool.submit(job, p), finished):
                yield part, future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def in_flight(
    parts: Sequence[Part], most: int, start: Callable[[Part], Work], finished: Callable[[list[Work]], Iterable[Work]]
) -> Iterator[tuple[Part, Work]]:
    """Each part with its work as that ends, at most so many at a time. start: begins a part's work; finished: waits
    until some of those that run have ended, and gives these.

    >>> list(in_flight([1, 2, 3], 2, start=lambda part: -part, finished=lambda running: running[:1]))
    [(1, -1), (2, -2), (3, -3)]
    """
    waiting = iter(parts)
    running: dict[Work, Part] = {}
    while True:
        for part in islice(waiting, most - len(running)):
            running[start(part)] = part
        if not running:
            return
        for work in finished(list(running)):
            yield running.pop(work), work


EACH = 50
"""Parts that are worth the start of a process (half a second): a simulated run takes some 70 ms, a split of a search
under load 40."""
MOST = 8
"""Processes at most: each holds tables of its own."""


def in_processes(
    job: Callable[[Part], Answer], parts: Sequence[Part], worth: float = 0
) -> Generator[tuple[Part, Answer], None, None]:
    """Each part with its answer, as they are done, on a process a core, but at most MOST, where there are parts enough.
    worth: as many usual parts these are (default: one each).
    For work in plain Python, of which one thread runs at a time; parts and answers must pickle. A job that does not, or
    that a script defines itself, stays on threads.

    The processes are programs of their own: a copy of this one would need a guard around the main part of whoever
    calls, and none may be made beside threads. They end with this one, whose end closes their input. Modules that lie
    in the folder of whoever calls are none of theirs (-P). Raises what the job raises of RooflmError, and RooflmError
    where a process ends before its work. Whoever stops in the midst of it closes this (`contextlib.closing`): an error
    on its way up may keep it, and so the processes, alive.
    """
    many = min(cores(), MOST, len(parts), int((worth or len(parts)) / EACH))
    work = _pickled(job)
    if many < 2 or not sys.executable or not work:  # an interpreter inside another program has no executable
        yield from spread(job, parts)
        return
    command = [sys.executable, "-P", "-W", "ignore", "-c", f"from {__name__} import answer_parts; answer_parts()"]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    started: list[subprocess.Popen[bytes]] = []
    told: set[Any] = set()
    free: SimpleQueue[Any] = SimpleQueue()

    def ask(part: Part) -> Answer:
        """The answer of whichever process is free. RooflmError as it raised one, or where it has ended."""
        process = free.get()
        try:
            process.stdin.write((b"" if process in told else work) + pickle.dumps(part))
            process.stdin.flush()
            told.add(process)
            answer: Answer = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise RooflmError("a process of this run ended before its work was done") from error
        finally:
            free.put(process)
        if isinstance(answer, RooflmError):
            raise answer
        return answer

    try:
        for _ in range(many):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=surroundings,
                                       start_new_session=True)  # fmt: skip
            started.append(process)
            free.put(process)
        yield from _threads(ask, parts)
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _pickled(job: Callable[..., Any]) -> bytes:
    """A job for another process; empty where that could not read it."""
    try:
        work = pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError):
        return b""
    return b"" if b"__main__" in work else work


def answer_parts() -> None:
    """What a process of `in_processes` does: read the job, then answer each part that comes, until none does."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    with suppress(EOFError, BrokenPipeError):
        job = pickle.load(sys.stdin.buffer)
        while True:
            part = pickle.load(sys.stdin.buffer)
            try:
                answer = job(part)
            except RooflmError as error:
                answer = error
            pickle.dump(answer, answers)
            answers.flush()


def _answers(on: str) -> None:
    """Try the cluster's address for a few seconds; Ray itself would wait for minutes. Raises OSError."""
    known = Path(tempfile.gettempdir()) / "ray" / "ray_current_cluster"
    address = on if on != "ray" else os.environ.get("RAY_ADDRESS") or (known.read_text() if known.exists() else "")
    host, colon, port = address.strip().removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


def connect(on: str) -> Any:
    """The ray module, joined to a running cluster. Raises RooflmError when it is not installed or none answers."""
    try:
        import ray
    except ImportError as error:
        raise RooflmError("--on ray needs Ray: pip install 'rooflm[ray]'") from error
    if not ray.is_initialized():
        try:
            _answers(on)
            ray.init(address="auto" if on == "ray" else on, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            where = "on this machine or at RAY_ADDRESS" if on == "ray" else f"at {on}"
            raise RooflmError(f"no Ray cluster answers {where}: start one with `ray start --head`") from error
    return ray


def _ray(job: Callable[[Part], Answer], parts: Sequence[Part], on: str) -> Generator[tuple[Part, Answer], None, None]:
    """Parts as Ray tasks, at most two a core of the cluster in flight."""
    ray = connect(on)
    shared = ray.put(job)
    task = ray.remote(_call).options(max_retries=RETRIES)
    flight = 2 * max(int(ray.cluster_resources().get("CPU", 1)), 1)
    for part, work in in_flight(
        parts, flight, lambda p: task.remote(shared, p), lambda r: ray.wait(r, num_returns=1)[0]
    ):
        yield part, ray.get(work)


def _call(job: Callable[[Part], Answer], part: Part) -> Answer:
    return job(part)
