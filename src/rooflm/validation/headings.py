"""The header of a table as people write it -> columns and metrics of ours; the text of a table -> its rows."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Sequence

from rooflm.asked.synonyms import OTHERWISE, meanings, plain
from rooflm.errors import RooflmError
from rooflm.readers import outside
from rooflm.validation.columns import COLUMNS, CONFIG, METRIC_NAMES, METRICS, PERCENTILES, TRAIN, UNITS, Metric

OLDER = {"precision_weights", "zero_fsdp"}
"""Columns of the format that `scripts/convert-published` reads."""
SEPARATORS = ",;\t"
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_BRACKETS = re.compile(r"\s*[(\[]([^()\[\]]+)[)\]]$")


def cells_of(content: str) -> list[list[str]]:
    """The lines of a table, separated as its header is: by commas, semicolons or tabs. Beside semicolons a comma within
    a number is a decimal one.

    >>> cells_of("gpu;tpot_ms\\nh100;8,25"), cells_of("gpu,tpot_ms\\nh100,8.25")
    ([['gpu', 'tpot_ms'], ['h100', '8.25']], [['gpu', 'tpot_ms'], ['h100', '8.25']])
    """
    header = content.partition("\n")[0]
    mark = max(SEPARATORS, key=header.count)
    lines = list(csv.reader(io.StringIO(content, newline=""), delimiter=mark))
    if mark != ";":
        return lines
    return [[c.replace(",", ".") if _DECIMAL_COMMA.fullmatch(c.strip()) else c for c in line] for line in lines]


def records(content: str, label: str) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """(header, rows by column with their lines) of the text of a table; RooflmError where it is none. A column of a
    metric (ttft, tpot_ms) in place of `metric` and `value` makes a row of each of its cells.

    >>> records("Model,tpot_ms,ttft\\nllama-2-7b,9,\\n", "mine.csv")
    (['model', 'metric', 'value'], [(2, {'model': 'llama-2-7b', 'metric': 'tpot_ms', 'value': '9'})])
    """
    try:
        csv.field_size_limit(outside.WIDEST)
        lines = cells_of(content)
    except csv.Error as error:
        raise RooflmError(f"{label} is not a table of comma-separated values: {error}") from None
    header = [name.strip() for name in lines[0]] if lines else []
    header = header if OLDER & {*header} else [own_name(name, header, label) for name in header]
    rows = [(n, dict(zip(header, line, strict=False))) for n, line in enumerate(lines[1:], 2)]
    if beyond := [n for n, line in enumerate(lines[1:], 2) if any(c.strip() for c in line[len(header) :])]:
        print(f"rooflm: {label}: line {beyond[0]}{' and others have' if beyond[1:] else ' has'} more cells than there "
              "are columns, and those are not read: is a number written with a comma?", file=sys.stderr)  # fmt: skip
    rows = [(n, row) for n, row in rows if any(cell.strip() for cell in row.values())]
    wide = [] if {"metric", "value"} & {*header} else [n for n in header if n not in COLUMNS and metric_at(n)]
    if not wide:
        return header, rows
    shared = [name for name in header if name not in wide]
    return [*shared, "metric", "value"], [
        (n, {k: row[k] for k in shared if k in row} | {"metric": name, "value": row[name]})
        for n, row in rows for name in wide if row.get(name, "").strip()
    ]  # fmt: skip


def own_name(name: str, header: Sequence[str], label: str) -> str:
    """The column that a heading means: in any case, or by another tool's name where that means one of ours alone."""
    if (low := name.lower().strip("# ")) in COLUMNS:
        return low
    meant = columns_meant(name)
    if len(meant) > 1 and (told := [metric_at(n) for n in header if n.lower() not in COLUMNS and metric_at(n)]):
        trained = any(found and found[0].task == TRAIN for found in told)
        meant = [column for column in meant if (COLUMNS[column].read == (TRAIN,)) == trained]
        meant = [] if any(columns_meant(n) == meant for n in header) else meant
    if len(meant) != 1 or meant[0] in header or metric_at(name) or plain(name) in OTHERWISE.split():
        return name
    print(f"rooflm: {label}: column {name!r} is read as {meant[0]!r}", file=sys.stderr)
    return meant[0]


def columns_meant(name: str) -> list[str]:
    """Columns that another tool's name may mean; a batch size is a batch, not a load.

    >>> columns_meant("framework"), columns_meant("batch_size"), columns_meant("seq_len"), columns_meant("hidden_size")
    (['engine'], ['batch'], ['prompt', 'seq'], ['hidden'])
    """
    found = [column for own in meanings(name) if (column := own.replace("-", "_")) in COLUMNS]
    own = CONFIG.get(name.strip().lower())
    return [own] if own else ["batch"] if "batch" in found else found


def metric_at(name: str) -> tuple[Metric, str] | None:
    """A metric by a name that may end in a unit or have it in brackets, and that unit; None where there is none.

    >>> [f"{m.name} {unit}" for m, unit in map(metric_at, ("TPOT_ms", "step_time_s", "Mean ITL (ms):"))]
    ['tpot ms', 'step_time_s ', 'tpot ms']
    >>> metric_at("speed"), metric_at("P99 ITL (ms)"), metric_at("TTFT (GB)")
    (None, None, None)
    """
    low = name.strip(" :").lower()
    unit = found[1].strip() if (found := _BRACKETS.search(low)) else ""
    low = _joined(_BRACKETS.sub("", low)).removeprefix("mean_")
    if low in METRIC_NAMES:
        metric = METRIC_NAMES[low]
    else:
        stem, _, unit = (low, "", unit) if unit else low.rpartition("_")
        if stem not in METRIC_NAMES:
            return None
        metric = METRIC_NAMES[stem]
    return None if unit and UNITS.get(unit, ("", 0.0))[0] != metric.unit else (metric, unit)


def _joined(name: str) -> str:
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def statistic_of(name: str) -> str:
    """Which of the requests' times a metric's name means.

    >>> statistic_of("Median TTFT (ms)"), statistic_of("p99_tpot"), statistic_of("ttft_ms")
    ('p50', 'p99', 'mean')
    """
    return PERCENTILES.get(_joined(name).partition("_")[0], "mean")


def metrics_meant(name: str) -> list[str]:
    """Metrics that a heading which is none may mean: rates of tokens, of which there are several.

    >>> metrics_meant("Throughput (tok/s)")
    ['output_tokens_per_s', 'prefill_tokens_per_s', 'decode_tokens_per_s', 'tokens_per_s_per_gpu']
    """
    low = name.lower()
    rates = [m.name for m in METRICS.values() if m.name.partition("_per_s")[1]]
    return rates if "throughput" in low or re.search(r"tok\w*(/|_per_)s", low) else []
