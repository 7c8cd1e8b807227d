"""What a published row becomes: a Request (score it), a ServeRequest (a run under load) or a Skip (with its reason)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, str | None]
Fact = str | float | bool


@dataclass(frozen=True)
class Request:
    """One published figure and the keyword arguments whose prediction it is compared with.

    task: "infer" or "train". metric: what the prediction must give (see METRICS). measured: SI (s, tokens/s, bytes).
    published: the metric's name in the file. kwargs: for rooflm.infer or rooflm.train; "model" is a catalogue name or
    a dict of sizes. group: (model, gpu), the unit by which rows are kept aside. facts: what the source says beyond the
    keyword arguments (network, host, kernels, era), for engine rows and calibration. notes: assumptions, in words.
    """

    id: str
    source: str
    task: str
    metric: str
    measured: float
    kwargs: dict[str, Any]
    group: tuple[str, str]
    engine: str
    trust: str = "B"
    published: str = ""
    citation: str = ""
    facts: dict[str, Fact] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServeRequest:
    """A measurement under load, for the serving simulator.

    metric: "ttft" or "tpot" (mean, s) or "output_tokens_per_s" (all GPUs). concurrency: closed loop; rate: requests/s
    of an open loop; both None: maximum load. spread: shortest and longest length as shares of prompt and output.
    flags: why the row is to be scored apart (see DESIGN of the data: "mtp-suspect", "anomalous", "precision-unstated").
    """

    id: str
    source: str
    metric: str
    measured: float
    kwargs: dict[str, Any]
    group: tuple[str, str]
    engine: str
    concurrency: float | None = None
    rate: float | None = None
    requests: float | None = None
    spread: tuple[float, float] = (1.0, 1.0)
    trust: str = "B"
    citation: str = ""
    facts: dict[str, Fact] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    task: str = "serve"


@dataclass(frozen=True)
class Skip:
    """A row that cannot be scored, and a short reason that is the same for every row of its kind."""

    id: str
    reason: str
    source: str = ""


Outcome = Request | ServeRequest | Skip

METRICS = {
    "ttft": "s from the start to the first token of every sequence of the batch",
    "tpot": "s per decode step, mean over the output",
    "latency_s": "s from the start to the last token",
    "output_tokens_per_s": "batch x output / latency, all GPUs",
    "prefill_tokens_per_s": "batch x prompt / ttft",
    "decode_tokens_per_s": "batch / tpot",
    "memory_bytes": "peak bytes on the fullest GPU",
    "oom": "1: the run did not fit",
    "step_time_s": "s a training step",
    "tokens_per_s_per_gpu": "trained tokens / s / GPU",
    "layer_fwd_s": "s, forward of one layer and micro-batch",
    "layer_bwd_s": "s, backward of one layer and micro-batch, recomputation included",
    "gpu_hours": "GPU-hours of a whole run",
}


class Unusable(Exception):  # noqa: N818 (a verdict on a row, not an error)
    """Raised inside a row's reader and turned into a Skip; never leaves the package."""


def text(row: Row, column: str) -> str:
    """The cell as text without outer blanks, at most 2,000 characters; "" when the column or the cell is not there."""
    value = row.get(column)
    return value.strip()[:2000] if isinstance(value, str) else ""


def number(row: Row, column: str) -> float | None:
    """The cell as a finite number, or None (blank, words, nan, inf).

    >>> number({"value": "1,024.5"}, "value"), number({"value": "max"}, "value"), number({}, "value")
    (1024.5, None, None)
    """
    cell = text(row, column).replace(",", "")
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", cell):
        return None
    value = float(cell)
    return value if math.isfinite(value) else None


def positive(row: Row, column: str, reason: str) -> float:
    """The cell as a number above zero; Unusable(reason) otherwise."""
    value = number(row, column)
    if value is None or value <= 0:
        raise Unusable(reason)
    return value


def count(row: Row, column: str, reason: str) -> int:
    """The cell as a whole number of at least 1; Unusable(reason) otherwise."""
    value = positive(row, column, reason)
    if value != int(value) or value > 1e12:
        raise Unusable(reason)
    return int(value)


def count_or(row: Row, column: str, default: int) -> int:
    """As `count`, but `default` where the cell is blank."""
    return default if not text(row, column) else count(row, column, f"{column} is not a whole number above 0")


def trust_of(note: str, default: str = "B") -> str:
    """The grade at the start of an inference note: A, B or C.

    >>> trust_of("trust=A; fixed batch"), trust_of("no grade")
    ('A', 'B')
    """
    match = re.search(r"\btrust=([ABC])\b", note)
    return match[1] if match else default


def slug(citation: str) -> str:
    """A short key out of a citation, for tables without ids.

    >>> slug("My Notes, 2024"), slug("")
    ('my-notes-2024', 'unnamed')
    """
    return re.sub(r"\W+", "-", citation.lower())[:24].strip("-") or "unnamed"


def prefix_of(row_id: str) -> str:
    """The letters (and digits) before the number of an id: the source it belongs to.

    >>> prefix_of("trtllm17-0001"), prefix_of("KORL-001"), prefix_of("optimus-t2-03"), prefix_of("")
    ('trtllm17', 'KORL', 'optimus-t2', '')
    """
    return re.sub(r"[-_ ]?\d+[a-z]?$", "", row_id.strip()[:80])
