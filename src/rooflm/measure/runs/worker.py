"""What a fresh process does: set up its rank, measure the case, send the rows (or the error) back."""

from __future__ import annotations

import importlib
import os
import traceback
import warnings
from pathlib import Path
from typing import Any

from rooflm.errors import RooflmError
from rooflm.measure.case import Case

OOM_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory")


def classify(error: BaseException) -> tuple[str, str]:
    """(status, reason) of an error: "oom" where memory ran out, else "failed".

    >>> classify(MemoryError()), classify(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))[0]
    (('oom', 'out of memory'), 'oom')
    """
    text = str(error)
    if isinstance(error, MemoryError) or any(word in text.lower() for word in OOM_WORDS):
        return "oom", "out of memory"
    if isinstance(error, RooflmError):
        return "failed", text
    if "required" in text and "pip install" in text:
        return "failed", f"{text.strip()} (or pip install 'rooflm[measure]')"
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" ({Path(last[0].filename).name}:{last[0].lineno})" if last else ""
    return "failed", f"{type(error).__name__}: {' '.join(text.split())[:300]}{place}"


def main(case: Case, rank: int, folder: str, pipe: Any) -> None:
    """Entry of a worker process; sends ("rows", list) or (status, reason) through the pipe."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["TQDM_DISABLE"] = "1"
    warnings.simplefilter("ignore")
    try:
        pipe.send(("rows", measured(case, rank, folder)))
    except Exception as error:
        pipe.send(classify(error))
    finally:
        pipe.close()


def measured(case: Case, rank: int, folder: str) -> list[Any]:
    """Rows of this rank."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(case.threads)
    if case.task != "micro":
        from rooflm.measure.runs.load import toy

        toy(case)
    module = importlib.import_module(f"rooflm.measure.runs.{case.task}")
    if case.world == 1:
        return list(module.run(case, rank))
    cuda = case.device == "cuda" or (case.device == "auto" and torch.cuda.is_available())
    try:
        dist.init_process_group(
            "nccl" if cuda else "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=case.world
        )
    except RuntimeError as error:
        raise RooflmError(
            f"the ranks cannot connect to each other on this machine: {str(error).splitlines()[0]}"
        ) from error
    try:
        return list(module.run(case, rank))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
