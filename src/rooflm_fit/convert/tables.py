"""Tables of the older format -> tables of runs: scripts/convert-published OLD.csv NEW.csv.

Every row of the old table is a row of the new one, in the same order. What a row does not say stays blank; what sets it
apart is in its `doubt`: a second figure of the same run, a measurement that two tables print, a contradiction.
"""

from __future__ import annotations

import csv
import io
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from rooflm.errors import RooflmError
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.devices import load_device
from rooflm.readers.engines import load_engine
from rooflm.sweep.files import write_text
from rooflm.validation.columns import COLUMNS
from rooflm_fit.convert import names
from rooflm_fit.convert.about import counted
from rooflm_fit.convert.cells import Cells, Row, number, prefix_of, text
from rooflm_fit.convert.inference import key_of, tidy_inference
from rooflm_fit.convert.serving import is_serving, tidy_serving
from rooflm_fit.convert.training import SOURCES, depth_left_blank, tidy_training

DIGITS = 4
"""Significant digits from which one figure of one configuration in two sources is one measurement."""
DERIVED = "derived from another row"
SAME_RUN = "same run is scored by another row"
DUPLICATE = "same measurement as another row"
DEPTH = "interleaving depth left blank, printed for the same run of other releases"
CONTRADICTS = "contradicts its own neighbours"
SLOWER = 1.15
"""Times the time per token of longer prompts, or the latency of a larger batch, from where a run of less contradicts it
(repeats differ by 3 to 4 %)."""
LITTLE = 2.0
"""Factor between a closed loop's printed rate and clients over their latency, from where a run contradicts itself."""
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
SPEED = ("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "hfu", "mfu", "gpu_hours")
"""Metrics of a run's speed, the one to score first. Never two of one run."""
ABOUT = ("id", "source", "url", "date", "trust", "doubt", "note", "metric", "value", "unit")
PRINTED_ROUGHLY = {"argonne": 4, "argonne-amd": 4}
"""Source -> significant digits in which its tables repeat a measurement."""


def doubtful(cells: Cells, why: str) -> Cells:
    """The same row with one more doubt.

    >>> doubtful({"doubt": "a"}, "b")["doubt"]
    'a; b'
    """
    return cells | {"doubt": f"{cells['doubt']}; {why}" if cells.get("doubt") else why}


UNREAD = "not read: its cells contradict each other"
"""A row of which nothing but its name and figure can be told: better than a table that cannot be read."""


def tidied(row: Row, tidy: Callable[[Row], Cells], source: str) -> Cells:
    """A row as cells; where that fails, what names it, doubted.

    >>> tidied({"id": "a-1", "metric": "ttft_ms"}, lambda row: {"x": str(1 // 0)}, "a")
    {'id': 'a-1', 'source': 'a', 'metric': 'ttft_ms', 'doubt': 'not read: its cells contradict each other'}
    """
    try:
        return tidy(row)
    except (ArithmeticError, LookupError, ValueError, TypeError, AttributeError):
        named = {"id": text(row, "id"), "source": source, "model": text(row, "model"), "gpu": text(row, "gpu")}
        named |= {"metric": text(row, "metric"), "value": text(row, "value"), "note": text(row, "note")}
        return {k: v for k, v in named.items() if v} | {"doubt": UNREAD}


def inference_rows(rows: Sequence[Row]) -> list[Cells]:
    """Rows of an inference table; one measurement that two tables of a source print counts once."""
    found = []
    for row in map(counted, rows):
        prefix = key_of(row)
        tidy = partial(tidy_serving, prefix=prefix or "serving") if is_serving(row, prefix) else tidy_inference
        found.append(tidied(row, tidy, prefix.lower() or "serving"))
    return impossible(outrun(contradictory(repeated(undated(found, [prefix_of(text(r, "id")) for r in rows])))))


@lru_cache
def out_since(model: str, gpu: str) -> str:
    """The month from which a model and a device could be had together, as the catalogue dates them; "" where it does
    not.

    >>> out_since("llama-3-8b", "a100-sxm-80gb"), out_since("llama-7b", "b200-sxm-180gb"), out_since("nobody", "")
    ('2024-04', '2024', '')
    """
    found = []
    with suppress(RooflmError):
        found.append(load_model(model).date)
    with suppress(RooflmError):
        found.append(str(load_device(gpu).year or ""))
    return max(found, default="")


def served_since(cells: Cells) -> str:
    """The date of the first release of an engine whose runs were of a server, for a run under load; "" for others.

    >>> served_since({"task": "serve", "engine": "trtllm"}), served_since({"task": "serve", "engine": "vllm"})
    ('2025-02', '')
    """
    release = names.table()["served"].get(cells.get("engine", ""), "") if cells.get("task") == "serve" else ""
    return load_engine(f"{cells['engine']}-{release}").date if release and cells.get("scheduler") != "static" else ""


MEASURED_AFTER = 6
"""Months after its newest model or device that a source is measured: the median of 973 dated sources of the project's
own tables (quartiles 2 and 14)."""


def later(month: str, months: int) -> str:
    """The month so many after another; a year alone counts from its middle.

    >>> later("2024-04", 6), later("2023", 6), later("2025-11-03", 2)
    ('2024-10', '2023-12', '2026-01')
    """
    year, _, rest = month.partition("-")
    at = int(year) * 12 + int(rest[:2] or 6) - 1 + months
    return f"{at // 12}-{at % 12 + 1:02}"


def undated(rows: list[Cells], keys: Sequence[str]) -> list[Cells]:
    """The same, with a date for runs of a known engine that print neither a release nor a day: MEASURED_AFTER months
    after the newest model or device among the rows of their source (the release nearest in date then stands in). keys:
    what names each row's source."""
    newest: dict[str, str] = defaultdict(str)
    for cells, key in zip(rows, keys, strict=True):
        newest[key] = max(newest[key], out_since(cells.get("model", ""), cells.get("gpu", "")))
    return [
        c if c.get("release") or c.get("date") or not newest[key]
        else c | {"date": max(later(newest[key], MEASURED_AFTER), served_since(c))}
        for c, key in zip(rows, keys, strict=True)
    ]  # fmt: skip


def conditions(cells: Cells, but: Iterable[str] = ()) -> tuple[tuple[str, str], ...]:
    """What the figures of one run have in common; runs that differ only in `but` are alike."""
    return tuple(sorted((k, v) for k, v in cells.items() if k not in (*ABOUT, *but)))


SAME_MODEL = {"deepseek-r1": "deepseek-v3"}
"""Names of one architecture."""


def repeated(rows: list[Cells]) -> list[Cells]:
    """The same, a row that repeats an earlier one's measurement doubted: of its own source, or to at least DIGITS under
    another name.

    >>> runs = [{"source": name, "metric": "tpot", "value": v} for v in ("11.73", "12") for name in ("a", "b")]
    >>> [row.get("doubt", "") for row in repeated(runs)]
    ['', 'same measurement as another row', '', '']
    """
    seen: set[tuple[object, ...]] = set()
    found = []
    for cells in rows:
        if cells.get("metric") == "oom" or cells["source"] == "mlperf" or cells.get("trust") == "C":
            found.append(cells)
            continue
        value = f"{figure(cells):.{PRINTED_ROUGHLY.get(cells['source'], 6)}g}" if figure(cells) else ""
        alike = cells | {"model": SAME_MODEL.get(cells.get("model", ""), cells.get("model", ""))}
        own = "" if len(value.replace(".", "").strip("0")) >= DIGITS else cells["source"]
        key = (own, cells.get("metric"), value, conditions(alike, ("release", "options")))
        found.append(doubtful(cells, DUPLICATE) if value and key in seen else cells)
        seen.add(key)
    return found


def figure(cells: Cells, name: str = "value") -> float:
    """A cell as a number above 0; 0 where it is none.

    >>> figure({"value": "1,024.5"}), figure({"value": "n/a"}), figure({})
    (1024.5, 0.0, 0.0)
    """
    return max(number(cells, name) or 0.0, 0.0)


def contradictory(rows: list[Cells]) -> list[Cells]:
    """The same, runs under load doubted whose tokens take longer than those of a run that differs only in having longer
    prompts (more to prefill between two tokens, and a longer context): one of the two figures is wrong."""
    runs: dict[object, list[tuple[float, float, object]]] = defaultdict(list)
    derived = ("prompt", "budget")  # what a script computes from the prompt is no difference
    for cells in rows:
        if cells.get("metric") != "tpot" or cells.get("concurrency", "max") == "max" or cells.get("doubt"):
            continue
        if figure(cells, "prompt") and figure(cells):
            key = (cells["source"], conditions(cells, derived))
            runs[key].append((figure(cells, "prompt"), figure(cells), conditions(cells)))
    odd = {
        (key[0], own)  # type: ignore[index]
        for key, members in runs.items()
        for prompt, value, own in members
        if any(prompt < other and value > SLOWER * faster for other, faster, _ in members)
    }
    return [doubtful(c, CONTRADICTS) if (c["source"], conditions(c)) in odd else c for c in rows]


def outrun(rows: list[Cells]) -> list[Cells]:
    """The same, fixed batches doubted whose requests take longer than those of a larger batch that differs in nothing
    else (the first run of a process may hold what others do not pay again)."""
    runs: dict[object, list[tuple[float, float]]] = defaultdict(list)
    for cells in rows:
        if cells.get("metric") == "latency_s" and not cells.get("doubt"):
            runs[cells["source"], conditions(cells, ("batch",))].append((figure(cells, "batch"), figure(cells)))

    def late(cells: Cells) -> bool:
        alike = runs.get((cells["source"], conditions(cells, ("batch",))), [])
        own = (figure(cells, "batch"), figure(cells))
        return own in alike and any(own[0] < batch and own[1] > SLOWER * faster for batch, faster in alike)

    return [doubtful(c, CONTRADICTS) if c.get("metric") == "latency_s" and late(c) else c for c in rows]


def impossible(rows: list[Cells]) -> list[Cells]:
    """The same, runs of a closed loop doubted whose figures contradict Little's law: N clients whose requests last
    TTFT + (output - 1) TPOT make N output / that tokens a second, whatever the server does."""
    runs: dict[Any, dict[str, float]] = defaultdict(dict)
    again = set()
    for cells in rows:
        if (
            cells.get("task") == "serve"
            and cells.get("concurrency", "").isdigit()
            and cells.get("output", "").isdigit()
            and figure(cells)
        ):
            value = figure(cells) * SECONDS.get(cells.get("unit", ""), 1.0)
            key = (cells["source"], conditions(cells))
            again |= {key} if cells.get("metric", "") in runs[key] else set()  # repeats: whose figure belongs to whose?
            runs[key][cells.get("metric", "")] = value
    odd = set()
    for run_key, found in runs.items():
        if {"ttft", "tpot", "output_tokens_per_s"} <= set(found) and run_key not in again:
            run = dict(run_key[1])
            lasts = found["ttft"] + (int(run["output"]) - 1) * found["tpot"]
            ratio = found["output_tokens_per_s"] * lasts / (int(run["concurrency"]) * int(run["output"]))
            if not 1 / LITTLE < ratio < LITTLE:
                odd.add(run_key)
    return [doubtful(c, CONTRADICTS) if (c["source"], conditions(c)) in odd else c for c in rows]


def is_derived(row: Row) -> bool:
    """True for arithmetic on a printed value."""
    return text(row, "note").startswith("[DERIVED]")


def rank(row: Row) -> tuple[bool, int]:
    """Order in which the figures of a run are scored."""
    metric = text(row, "metric")
    return is_derived(row), SPEED.index(metric) if metric in SPEED else len(SPEED)


def training_rows(rows: Sequence[Row]) -> list[Cells]:
    """Rows of a training table; of the figures of one run only the best measure of speed counts (and memory)."""
    table = list(map(counted, rows))
    found = [tidied(row, tidy_training, prefix_of(text(row, "id")) or "training") for row in table]
    keys = [prefix_of(text(row, "id")) for row in table]
    found = [
        own if key in SOURCES or "engine" not in own else one
        for own, one, key in zip(found, undated(found, keys), keys, strict=True)
    ]
    for index in depth_left_blank(table):
        found[index] = doubtful(found[index], DEPTH)
    columns = [c for c in table[0] if c not in ("id", "metric", "value", "note")] if table else []
    runs: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(table):
        if text(row, "metric") in SPEED:
            note = text(row, "note").removeprefix("[DERIVED]").strip()
            runs[(note, *(text(row, c) for c in columns))].append(index)
    for members in runs.values():
        usable = [i for i in members if not found[i].get("doubt")] or members
        best = min(rank(table[i]) for i in usable)
        for i in members:
            if rank(table[i]) != best:
                found[i] = doubtful(found[i], DERIVED if is_derived(table[i]) else SAME_RUN)
    return found


def converted(content: str, label: str = "table") -> list[Cells]:
    """Every row of a table of the older format as cells of the new one. RooflmError where it is no such table."""
    try:
        csv.field_size_limit(2**31 - 1)
        lines = list(csv.reader(io.StringIO(content.replace("\0", ""), newline="")))
    except csv.Error as error:
        raise RooflmError(f"{label} is not a table of comma-separated values: {error}") from None
    header = [name.strip() for name in lines[0]] if lines else []
    rows: list[Row] = [dict(zip(header, line, strict=False)) for line in lines[1:] if any(c.strip() for c in line)]
    if {"metric", "value", "global_batch"} <= set(header):
        return training_rows(rows)
    if {"metric", "value", "engine"} <= set(header):
        return inference_rows(rows)
    raise RooflmError(
        f"{label} has no header of the older format: it needs metric, value and engine (inference) or global_batch "
        "(training)"
    )


def text_of(rows: Sequence[Cells]) -> str:
    """A table of the new format: the columns that some row fills, in their documented order, the note last."""
    used = {"id", "model", "gpu", "metric", "value"} | {name for cells in rows for name in cells}
    first = ("id", "source", "task", "model", "gpu", "engine", "release")
    last = ("metric", "value", "unit", "trust", "doubt", "stand_in", "url", "date", "note")
    middle = [name for name in COLUMNS if name in used and name not in (*first, *last)]
    header = [*(c for c in first if c in used), *middle, *(c for c in last if c in used)]
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([cells.get(name, "") for name in header] for cells in rows)
    return out.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert OLD.csv to NEW.csv; exit status 2 with one sentence where that cannot be done."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 2 or given[0] in ("-h", "--help"):
        print("usage: scripts/convert-published OLD.csv NEW.csv", file=sys.stderr)
        return 0 if given[:1] in (["-h"], ["--help"]) else 2
    old, new = (Path(name) for name in given)
    try:
        rows = converted(old.read_text(encoding="utf-8-sig", errors="replace"), str(old))
        write_text(new, text_of(rows))
    except RooflmError as error:
        print(f"convert-published: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"convert-published: {error.filename or old}: {error.strerror}", file=sys.stderr)
        return 2
    apart = sum("doubt" in cells for cells in rows)
    unread = sum(UNREAD in cells.get("doubt", "") for cells in rows)
    print(f"{new}: {len(rows)} rows, {apart} of them set apart, {unread} not read", file=sys.stderr)
    return 0
