"""The header of a table as people write it -> columns and metrics of ours; the text of a table -> its rows."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence

from rooflm.asked.synonyms import OTHERWISE, meanings, plain
from rooflm.errors import RooflmError
from rooflm.readers import outside
from rooflm.validation.columns import COLUMNS, CONFIG, METRIC_NAMES, METRICS, SPELLED, STATISTICS, TRAIN, UNITS, Metric

OLDER = {"precision_weights", "zero_fsdp"}
"""Columns of the format that `scripts/convert-published` reads."""
_PERCENTILE = re.compile(r"(?<![a-z])p\d[\d.]*")
_BENCH = re.compile(r"(pp|tg)(\d+)(?: *@ *d(\d+))?(?!\w| *[+@])")
"""llama-bench's tests: pp512, tg128, either behind so many cached tokens (@ d4096); not both in one (pp512+tg128)."""
MOST_ABOVE = 20
"""Lines that may stand above a header: a title, blank lines."""
_BETWEEN = re.compile(r"[\s:_,()\[\]-]+")


def records(content: str, label: str) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """(header, rows by column with their lines) of the text of a table; RooflmError where it is none. A column of a
    metric (ttft, tpot_ms) in place of `metric` and `value` makes a row of each of its cells.

    >>> records("Model,tpot_ms,ttft\\nllama-2-7b,9,\\n", "mine.csv")
    (['model', 'metric', 'value'], [(2, {'model': 'llama-2-7b', 'metric': 'tpot_ms', 'value': '9'})])
    """
    try:
        csv.field_size_limit(outside.WIDEST)
        lines = outside.cells_of(content)
    except csv.Error as error:
        raise RooflmError(f"{label} is not a table of comma-separated values: {error}") from None
    first = next((i for i, line in enumerate(lines[:MOST_ABOVE]) if any(names_model(cell) for cell in line)), 0)
    lines = lines[first:]
    header = [name.strip() for name in lines[0]] if lines else []
    header = header if OLDER & {*header} else [own_name(name, header, label) for name in header]
    if twice := next((name for i, name in enumerate(header) if name and name in header[:i]), ""):
        raise RooflmError(f"{label} has the column {twice!r} twice, but a column is read once: leave one of them out")
    rows = [(n, dict(zip(header, line, strict=False))) for n, line in enumerate(lines[1:], first + 2)]
    if beyond := [n for n, line in enumerate(lines[1:], first + 2) if any(c.strip() for c in line[len(header) :])]:
        print(f"rooflm: {label}: line {beyond[0]}{' and others have' if beyond[1:] else ' has'} more cells than there "
              "are columns, and those are not read: is a number written with a comma?", file=sys.stderr)  # fmt: skip
    rows = [(n, row) for n, row in rows if any(cell.strip() for cell in row.values())]
    wide = [] if {"metric", "value"} & {*header} else [n for n in header if n not in COLUMNS and metric_at(n)]
    if not wide:
        return header, [(n, in_bench(row.get("metric", ""), row)) for n, row in rows]
    shared = [name for name in header if name not in wide]
    return [*shared, "metric", "value"], [
        (n, in_bench(name, {k: row[k] for k in shared if k in row} | {"metric": name, "value": row[name]}))
        for n, row in rows for name in wide if row.get(name, "").strip()
    ]  # fmt: skip


def names_model(cell: str) -> bool:
    """Whether a cell is the heading of the column of models, by which a header is known."""
    return cell.lower().strip("# ") == "model" or columns_meant(cell) == ["model"]


def in_bench(metric: str, row: dict[str, str]) -> dict[str, str]:
    """A row with the lengths that llama-bench's name of its metric tells (tg128 after one token), where it has no
    others.

    >>> in_bench("pp512 (t/s)", {"value": "9"}), in_bench("tg128", {"prompt": "99"}), in_bench("ttft", {})
    ({'prompt': '512', 'value': '9'}, {'prompt': '99', 'output': '128'}, {})
    >>> in_bench("pp512 @ d4096", {"prompt": ""}), in_bench("tg32 @ d4096", {})
    ({'prompt': '4608', 'cached': '4096'}, {'prompt': '4097', 'output': '32'})
    """
    found = _BENCH.match(metric.lower().strip())
    if not found:
        return row
    depth, tokens = int(found[3] or 0), int(found[2])
    told = {"prompt": str(depth + tokens), "cached": str(depth)} if found[1] == "pp" else {
        "prompt": str(depth + 1), "output": str(tokens)}  # fmt: skip
    told = {name: cell for name, cell in told.items() if cell != "0"}
    return told | {name: cell for name, cell in row.items() if cell.strip() or name not in told}


def own_name(name: str, header: Sequence[str], label: str) -> str:
    """The column that a heading means: in any case, or by another tool's name where that means one of ours alone."""
    if (low := re.sub(r"[ -]+", "_", name.lower().strip("# "))) == "dtype" and "quant" not in header:
        of = [found[0] for n in header if n.lower() not in COLUMNS and (found := metric_at(n))]
        low = "quant" if of and all(metric.task != TRAIN for metric in of) else low
    if low in COLUMNS:
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
    """A metric by a name that may hold a unit and a statistic, before it, after it or in brackets, and that unit; None
    where there is none. A gap between tokens is one of all tokens as itl, of a request's mean by its longer names.

    >>> [f"{m.name} {unit}" for m, unit in map(metric_at, ("TPOT_ms", "step_time_s", "Mean ITL (ms):"))]
    ['tpot ms', 'step_time_s ', 'tpot ms']
    >>> [metric_at(n)[0].name for n in ("P99 TTFT (ms)", "median_itl_ms", "Inter-token latency [ms] p90", "e2el_p95")]
    ['ttft_p99', 'itl_p50', 'tpot_p90', 'latency_p95']
    >>> metric_at("speed"), metric_at("P99 throughput"), metric_at("TTFT (GB)")
    (None, None, None)
    """
    if bench := _BENCH.match(name.lower().strip()):
        return METRICS["prefill_tokens_per_s" if bench[1] == "pp" else "decode_tokens_per_s"], ""
    words = [SPELLED.get(word, word) for word in _BETWEEN.split(name.lower()) if word]
    at = {STATISTICS[word] for word in words if word in STATISTICS} or {""}
    words = [word for word in words if word not in STATISTICS]
    stem, unit = "_".join(words), ""
    if stem not in METRIC_NAMES:
        unit = next((word for word in reversed(words) if word in UNITS), "")
        stem = "_".join(word for word in words if word != unit)
    metric = METRIC_NAMES.get(stem)
    if metric and at != {""}:
        short = "itl" if stem.startswith("itl") else metric.name.removesuffix("_s")
        metric = METRICS.get(f"{short}_{at.pop()}") if len(at) == 1 else None
    return (metric, unit) if metric and (not unit or UNITS[unit][0] == metric.unit) else None


def percentiles_meant(name: str) -> list[str]:
    """The percentiles that there are of a metric whose name speaks of another.

    >>> percentiles_meant("p75_ttft_ms"), percentiles_meant("ttft")
    (['ttft_p50', 'ttft_p90', 'ttft_p95', 'ttft_p99'], [])
    """
    rest = _PERCENTILE.sub(" ", name.lower())
    found = metric_at(rest) if rest != name.lower() else None
    gaps = "itl" in rest
    return [m.name for m in METRICS.values() if found and m.of == found[0].name and m.name.startswith("itl") == gaps]


def metrics_meant(name: str) -> list[str]:
    """Metrics that a heading which is none may mean: rates of tokens, of which there are several, or the percentiles of
    a time where it speaks of another.

    >>> metrics_meant("Throughput (tok/s)")
    ['output_tokens_per_s', 'total_tokens_per_s', 'prefill_tokens_per_s', 'decode_tokens_per_s', 'tokens_per_s_per_gpu']
    """
    low = name.lower()
    rates = [m.name for m in METRICS.values() if "tokens_per_s" in m.name]
    return percentiles_meant(name) or (rates if re.search(r"throughput|\btps\b|tok\w*(/|_per_)s", low) else [])
