"""Published tables -> Requests: reads any CSV with the columns of the inference or of the training table.

Never guesses: a row that lacks what a prediction needs becomes a Skip with a short, stable reason, and so does the
second figure of one run (a derived row, a TFLOP/s beside the step time, one measurement printed in two tables).
"""

from __future__ import annotations

import csv
import io
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from rooflm.errors import RooflmError
from rooflm.validation.readers.inference import read_inference
from rooflm.validation.readers.serving import is_serving, read_serving
from rooflm.validation.readers.training import DEPTH, SPEED, depth_left_blank, read_training
from rooflm.validation.request import Outcome, Request, Row, ServeRequest, Skip, prefix_of, text

INFERENCE_COLUMNS = (
    *("id", "source", "model", "params_b", "gpu", "gpus", "tp", "pp", "engine"),
    *("precision_weights", "precision_activations", "precision_kv"),
    *("batch", "input_len", "output_len", "metric", "value", "note"),
)
TRAINING_COLUMNS = (
    *("id", "source", "model", "params_b", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq"),
    *("gpu", "gpus", "tp", "pp", "vp", "cp", "ep", "dp", "zero_fsdp", "sequence_parallel", "recompute", "precision"),
    *("global_batch", "micro_batch", "metric", "value", "note"),
)
DERIVED = "derived from another row"
SAME_RUN = "same run is scored by another row"
DUPLICATE = "same measurement as another row"


def published_tables() -> list[Path]:
    """The project's own tables of published figures."""
    folder = Path(str(resources.files("rooflm").joinpath("data/published")))
    return sorted(folder.glob("*.csv"))


def read_rows(path: str | os.PathLike[str]) -> list[Outcome]:
    """Every row of a table, in order, as a Request, a ServeRequest or a Skip. RooflmError when it is no such table."""
    where = Path(path)
    try:
        content = where.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise RooflmError(f"{where} cannot be read: {error.strerror}") from None
    return parse(content.replace("\0", ""), str(where))


def parse(content: str, label: str = "table") -> list[Outcome]:
    """As `read_rows`, from the text of a table; `label` names it in the error message."""
    try:
        lines = list(csv.reader(io.StringIO(content, newline="")))
    except csv.Error as error:
        raise RooflmError(f"{label} is not a table of comma-separated values: {error}") from None
    header = [name.strip() for name in lines[0]] if lines else []
    rows: list[Row] = [dict(zip(header, line, strict=False)) for line in lines[1:] if any(c.strip() for c in line)]
    if {"metric", "value", "global_batch"} <= set(header):
        return training_rows(rows)
    if {"metric", "value", "engine"} <= set(header):
        return inference_rows(rows)
    raise RooflmError(
        f"{label} has no header of a published table: "
        "it needs metric, value and engine (inference) or global_batch (training)"
    )


def labels(requests: Iterable[Request | ServeRequest]) -> dict[str, list[str]]:
    """The labels by which `summarise` groups: source, gpu, engine, model and metric of each request."""
    items = list(requests)
    return {
        "source": [r.source for r in items],
        "gpu": [r.group[1] for r in items],
        "engine": [r.engine for r in items],
        "model": [r.group[0] for r in items],
        "metric": [r.metric for r in items],
    }


def inference_rows(rows: Iterable[Row]) -> list[Outcome]:
    """Inference rows; a measurement that two tables of a source print is scored once."""
    outcomes: list[Outcome] = []
    for index, row in enumerate(rows, 2):
        row_id = text(row, "id") or f"line {index}"
        prefix = prefix_of(text(row, "id"))
        if is_serving(prefix, text(row, "source")):
            outcomes.append(read_serving(row, row_id, prefix or "serving"))
        else:
            outcomes.append(read_inference(row, row_id))
    return contradictory(_without_duplicates(outcomes))


SLOWER = 1.15
"""Times the time per token of longer prompts, from where a run of shorter ones contradicts it (repeats differ by 3 to
4 %)."""


def contradictory(outcomes: list[Outcome]) -> list[Outcome]:
    """The same, runs under load flagged whose tokens take longer than those of a run that differs only in having longer
    prompts (more to prefill between two tokens, and a longer context): one of the two figures is wrong."""
    runs: dict[str, list[ServeRequest]] = defaultdict(list)
    for item in outcomes:
        if not isinstance(item, ServeRequest) or {"anomalous", "mtp-suspect"} & set(item.flags):
            continue
        if item.metric == "tpot" and item.concurrency:
            runs[_kind_of(item, "prompt")].append(item)
    odd = {
        _kind_of(a)
        for own in runs.values()
        for a in own
        if any(a.kwargs["prompt"] < b.kwargs["prompt"] and a.measured > SLOWER * b.measured for b in own)
    }
    return [
        replace(item, flags=(*item.flags, "anomalous"))
        if isinstance(item, ServeRequest) and _kind_of(item) in odd
        else item
        for item in outcomes
    ]


def _kind_of(item: ServeRequest, but: str = "") -> str:
    """What the figures of one run under load have in common; runs that differ only in the argument `but` are alike."""
    rest = sorted(f"{k}={v}" for k, v in item.kwargs.items() if k != but)
    return str((item.source, rest, sorted(item.facts.items()), item.concurrency))


def _identity(item: Request | ServeRequest) -> tuple[Any, ...]:
    """What makes two rows one measurement: the run and the value. DeepSeek-V3 and -R1 are one architecture."""
    model = "deepseek-v3" if item.group[0] in ("deepseek-v3", "deepseek-r1") else item.group[0]
    rest = tuple(sorted((k, str(v)) for k, v in item.kwargs.items() if k not in ("model", "engine_version")))
    load = (item.concurrency, item.rate, item.facts.get("scenario")) if isinstance(item, ServeRequest) else ()
    return (
        item.source,
        model,
        item.metric,
        f"{item.measured:.{4 if item.source.startswith('argonne') else 6}g}",
        rest,
        load,
    )


def _without_duplicates(outcomes: list[Outcome]) -> list[Outcome]:
    seen: set[tuple[Any, ...]] = set()
    kept: list[Outcome] = []
    for item in outcomes:
        if isinstance(item, Skip) or item.metric == "oom" or item.source == "mlperf":
            kept.append(item)
            continue
        key = _identity(item)
        kept.append(Skip(item.id, DUPLICATE, item.source) if key in seen else item)
        seen.add(key)
    return kept


def _run_key(row: Row) -> tuple[str, ...]:
    """What two figures of one run share: every column but id, metric and value, the note without its [DERIVED]."""
    note = text(row, "note").removeprefix("[DERIVED]").strip()
    rest = (text(row, c) for c in TRAINING_COLUMNS if c not in ("id", "metric", "value", "note"))
    return (note, *rest)


def training_rows(rows: Iterable[Row]) -> list[Outcome]:
    """Training rows; of the figures of one run only the best measure of speed is scored (and memory beside it)."""
    table = list(rows)
    outcomes: list[Outcome] = [
        read_training(row, text(row, "id") or f"line {index}") for index, row in enumerate(table, 2)
    ]
    for index in depth_left_blank(table):
        outcomes[index] = Skip(outcomes[index].id, DEPTH, outcomes[index].source)
    runs: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(table):
        if text(row, "metric") in SPEED:
            runs[_run_key(row)].append(index)
    for members in runs.values():
        usable = [i for i in members if isinstance(outcomes[i], Request)]
        best = min((_rank(table[i]) for i in usable), default=None)
        for i in members if best else ():
            if _rank(table[i]) != best:
                reason = DERIVED if _is_derived(table[i]) else SAME_RUN
                outcomes[i] = Skip(outcomes[i].id, reason, outcomes[i].source)
    return outcomes


def _is_derived(row: Row) -> bool:
    return text(row, "note").startswith("[DERIVED]")


def _rank(row: Row) -> tuple[bool, int]:
    metric = text(row, "metric")
    return _is_derived(row), SPEED.index(metric) if metric in SPEED else len(SPEED)
