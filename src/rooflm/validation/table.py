"""A table of measured runs -> Requests. The columns are those of `columns.COLUMNS`; nothing is known of any source.

A row that lacks what a prediction needs becomes a Skip with a short, stable reason.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rooflm.errors import RooflmError, near_matches
from rooflm.readers import outside
from rooflm.readers import rows as catalogue
from rooflm.readers.datasets import lengths_of
from rooflm.readers.tables import one_of
from rooflm.serving.workload import BURST
from rooflm.validation.cells import LONGEST, arguments, number
from rooflm.validation.columns import (
    CARD_SIZES,
    COLUMNS,
    INFER,
    METRIC_NAMES,
    METRICS,
    MODEL_SIZES,
    RUN,
    SERVE,
    SETTING,
    SPELLED,
    STATISTICS,
    TRAIN,
    UNITS,
    mean_of,
    of_task,
)
from rooflm.validation.headings import OLDER, columns_meant, metric_at, metrics_meant, records
from rooflm.validation.named import device_of, engine_of_row, known_device, model_of
from rooflm.validation.request import Outcome, Request, Skip, Unusable

TASKS = (INFER, SERVE, TRAIN)
"""What a row may be of."""
LOADS = ("concurrency", "rate", "trace", "dataset", "replicas", "prefill_replicas", "spread", "requests",
         "prompt_limit", "output_limit", "output_ended", "output_variation")  # fmt: skip
MEANS = [m.name for m in METRICS.values() if not m.of]
"""The metrics that are no percentile."""
ONLY_TRAINING = tuple(c.name for c in of_task(TRAIN) if c.read == (TRAIN,))


Row = Mapping[str, str | None]
"""Cells of a row by column."""
_WITH_UNIT = re.compile(r"(?<=[\d.])\s*[^\d\s.,+-][^\d]*$")
"""What follows the number of a measured value: its unit."""
UNNAMED = "unnamed"
"""Source of rows that do not say who measured them."""


def published_tables() -> list[Path]:
    """The project's own tables of published figures."""
    return sorted((catalogue.DATA / "published").glob("*.csv"))


@cache
def source_names() -> dict[str, str]:
    """Source of the project's own tables -> its name for people.

    >>> source_names()["LLMF"]
    'MosaicML LLM Foundry'
    """
    return catalogue.shipped("published/sources", dict[str, str])


def read_rows(path: str | os.PathLike[str]) -> list[Outcome]:
    """Every row of a table, in order, as a Request or a Skip. RooflmError when it is no such table."""
    return [read_row(row, line) for row, line in rows_of(path)]


def rows_of(path: str | os.PathLike[str]) -> list[tuple[Row, int]]:
    """Every row of a table as its cells and its line. RooflmError when it is no such table."""
    content = outside.text(path, "table", "csv", errors="replace")
    if content.lstrip()[:1] in ("{", "["):
        raise RooflmError(
            f"{path} is JSON, but a table is comma-separated values: what a benchmark wrote, "
            f"`rooflm compare {path} --gpu GPU` scores"
        )
    return checked_rows(content.replace("\0", ""), os.fspath(path))


def read_tables(files: Sequence[str] = (), sources: Sequence[str] = ()) -> list[Outcome]:
    """The rows of tables (none named: the shipped ones), of some sources where they are named, as the rows have them,
    by name or by a part of it. RooflmError where a source has no row."""
    paths = [Path(f) for f in files] or published_tables()
    rows = [(source_of(row), row, line) for path in paths for row, line in rows_of(path)]
    named = {source: source for source, _, _ in rows}
    named |= {name: source for source, name in source_names().items() if source in named}
    chosen = {source for name in whole_names(sources, {n.lower() for n in named}) for source in sources_of(name, named)}
    return [read_row(row, line) for source, row, line in rows if not sources or source in chosen]


def source_of(row: Row) -> str:
    """Who measured a row."""
    return (row.get("source") or "").strip()[:LONGEST] or UNNAMED


def sources_of(name: str, named: Mapping[str, str]) -> list[str]:
    """The source behind a name or a key, in any case, else all whose name holds it; RooflmError where there is none.
    named: keys and names -> sources.

    >>> sources_of("nim", {"NIM, Llama": "a", "NIM, Guard": "b", "vLLM": "c"})
    ['a', 'b']
    """
    low = name.lower()
    found = [source for one, source in named.items() if one.lower() == low]
    found = found or [source for one, source in named.items() if low in one.lower()]
    if not found:
        pieces = {one.lower(): one for one in named}
        near = [pieces[n] for n in near_matches(low, pieces)] or sorted(named)[:8]
        raise RooflmError(f"source is {name!r}, but no row has one of that name: try {' or '.join(map(repr, near))}")
    return found


def whole_names(pieces: Sequence[str], names: Collection[str]) -> list[str]:
    """Names out of a list that was cut at its commas, some of which stand within a name. names: in lower case.

    >>> whole_names(["a", "B", "c"], {"b, c"}), whole_names(["a"], {"b, c"})
    (['a', 'B, c'], ['a'])
    """
    found: list[str] = []
    rest = [p.strip() for p in pieces]
    while rest:
        taken = next((k for k in range(len(rest), 1, -1) if ", ".join(rest[:k]).lower() in names), 1)
        found.append(", ".join(rest[:taken]))
        rest = rest[taken:]
    return found


def parse(content: str, label: str = "table") -> list[Outcome]:
    """As `read_rows`, from the text of a table; `label` names it in messages."""
    return [read_row(row, line) for row, line in checked_rows(content, label)]


def checked_rows(content: str, label: str) -> list[tuple[Row, int]]:
    """As `rows_of`, from the text of a table."""
    header, rows = records(content, label)
    check_header(header, label)
    return [(row, line) for line, row in rows]


def check_header(header: list[str], label: str) -> None:
    """RooflmError where a table has no columns of ours; columns that nobody reads are said on standard error."""
    if OLDER & set(header):
        raise RooflmError(
            f"{label} has the columns of the older format ({', '.join(sorted(OLDER & set(header)))}): "
            f"convert it with scripts/convert-published {label} NEW.csv"
        )
    lacking = [name for name in ("model", "metric", "value") if name not in header]
    if lacking and header and header[0].startswith(("{", "[", "==")):
        raise RooflmError(
            f"{label} is no table but what a benchmark wrote: `rooflm compare {label} --gpu GPU` reads it"
        )
    if lacking:
        if len(STATISTICS.keys() & {name.lower() for name in header}) > 1:
            raise RooflmError(
                f"{label} has a row a metric, but a table of measured runs has a row a run and a column a metric, such "
                "as ttft_p50 (the JSON of the same benchmark is scored by `rooflm compare FILE --gpu GPU`)"
            )
        named = (
            next((f" (is it {name!r}?)" for name in header if "name" in name.lower()), "")
            if lacking[0] == "model"
            else ""
        )
        wide = named if lacking == ["model"] else ", or a column of a metric, such as tpot_ms"
        for name in header if wide else ():
            if rates := metrics_meant(name):
                wide = f", or a column of a metric: {name!r} may be {' or '.join(rates)}"
        raise RooflmError(
            f"{label} is no table of measured runs: it lacks the column{'s' * bool(lacking[1:])} "
            f"{' and '.join(lacking)}{wide} "
            "(see `rooflm validate --columns`)"
        )
    for name in dict.fromkeys(header):
        if name and name not in COLUMNS and not name.startswith((SETTING, RUN)):
            near = metrics_meant(name) or columns_meant(name) or columns_meant(name.rpartition(" ")[2])
            near = near or near_matches(name, COLUMNS)[:1]
            tail = f": did you mean {' or '.join(map(repr, near))}?" if near else ""
            print(f"rooflm: {label}: column {name!r} is not read{tail}", file=sys.stderr)


def read_row(row: Row, line: int = 0) -> Outcome:
    """One row (column -> text) as a Request or a Skip.

    >>> row = {"model": "llama-2-7b", "gpu": "a100", "metric": "tpot", "value": "11", "unit": "ms", "batch": "1"}
    >>> found = read_row(row)
    >>> found.measured, found.kwargs["gpu"], found.assumed[0]
    (0.011, 'a100-sxm-80gb', 'engine not stated: vllm')
    >>> [read_row(row | given).kwargs["gpus"] for given in ({"gpu": "1 x A100 80G"}, {"gpu": "", "gpus": "2x A100"})]
    [1, 2]
    """
    cells = {k: (v or "").strip()[:LONGEST] for k, v in row.items() if isinstance(k, str) and isinstance(v, str | None)}
    cells = {k: v for k, v in cells.items() if v}
    row_id, source = cells.get("id") or f"line {line}", cells.get("source", "")
    gpus = cells.get("gpus", "")
    if "gpu" not in cells and (known_device(gpus) or catalogue.count_and_name(gpus)[1] != gpus):  # GPUs: 8x H100
        cells["gpu"] = cells.pop("gpus")
    try:
        return request_of(cells, row_id)
    except Unusable as why:
        return Skip(row_id, str(why), source)


def request_of(cells: Mapping[str, str], row_id: str) -> Request:
    """The request of a row's cells. Unusable where it cannot be scored."""
    metric, measured = measured_of(cells)
    task = task_of(cells, metric)
    told = arguments(cells, task)
    kwargs = of_dataset(cells, task, told) | told
    assumed = [cells["stand_in"]] if "stand_in" in cells else []
    own = {name: kwargs.pop(name) for name in (*MODEL_SIZES, *CARD_SIZES) if name in kwargs}
    release = str(kwargs.pop("release", ""))
    untold_types(kwargs, assumed)
    model = model_of(kwargs, own, assumed)
    gpu = device_of(kwargs, own, assumed)
    kwargs["engine"] = engine_of_row(kwargs, task, release, assumed, cells.get("date", ""))
    if task == TRAIN:
        fill_training(kwargs, assumed)
    else:
        fill_inference(kwargs, task, metric, assumed)
    return Request(
        id=row_id,
        source=cells.get("source", "") or UNNAMED,
        task=task,
        metric=metric,
        measured=measured,
        kwargs=kwargs,
        group=(model, gpu),
        engine=f"{cells.get('engine', kwargs['engine'])} {release}".strip(),
        release=release,
        trust=cells.get("trust", ""),
        doubt=cells.get("doubt", ""),
        assumed=tuple(assumed),
        cells=cells,
    )


def of_dataset(cells: Mapping[str, str], task: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """The lengths of the data set that a row names; of a run without load their means. told: the row's own, which a
    limit of the set does not hold where they are longer.

    >>> of_dataset({"dataset": "sharegpt"}, "infer", {}), of_dataset({}, "serve", {})
    ({'prompt': 220, 'output': 200}, {})
    >>> of_dataset({"dataset": "sharegpt"}, "serve", {"prompt": 2000})
    {'prompt': 220, 'output': 200, 'output_limit': 1024, 'output_variation': 1.04}
    """
    if "dataset" not in cells or task == TRAIN:
        return {}
    try:
        found = lengths_of(cells["dataset"])
    except RooflmError as why:
        raise Unusable(str(why)) from None
    for name in ("prompt", "output"):
        limit = f"{name}_limit"
        if told.get(name, 0) > found.get(limit, math.inf) or (name == "prompt" and "spread" in cells):
            found.pop(limit, None)
    if "output_ended" in told or ("output_limit" not in found and "output_limit" not in told):
        found.pop("output_variation", None)
    return {k: v for k, v in found.items() if task == SERVE or k in ("prompt", "output")}


def unit_of(cells: Mapping[str, str]) -> str:
    """The unit that a row states, behind its value, by itself or in the name of its metric.

    >>> unit_of({"metric": "tpot", "unit": "ms"}), unit_of({"metric": "tpot_us"}), unit_of({"metric": "tpot"})
    ('ms', 'us', '')
    >>> unit_of({"metric": "tpot_us", "value": "9.5 ms"})
    'ms'
    """
    named, behind = metric_at(cells.get("metric", "")), _WITH_UNIT.search(cells.get("value", ""))
    return behind[0].strip() if behind else cells.get("unit") or (named[1] if named else "")


def measured_of(cells: Mapping[str, str]) -> tuple[str, float]:
    """(metric, value in its unit).

    >>> measured_of({"metric": "memory", "value": "2", "unit": "GiB"})
    ('memory_bytes', 2147483648.0)
    """
    printed = cells.get("metric", "")
    if not printed:
        raise Unusable("metric is blank")
    try:
        named = metric_at(printed)
        metric = named[0] if named else METRICS[one_of("metric", printed, metrics_meant(printed) or MEANS)]
    except RooflmError as why:
        raise Unusable(str(why)) from None
    stated, unit = _WITH_UNIT.sub("", cells.get("value", "")), unit_of(cells)
    value = number(stated)
    if value is None or value <= 0:
        said = repr(cells["value"]) if stated else "blank"
        plain = f" (with a decimal point: {stated.replace(',', '.')})" if re.fullmatch(r"\d+,\d+", stated) else ""
        raise Unusable(f"{metric.name} is {said}, but a measurement must be a number above 0{plain}")
    base, scale = UNITS.get(SPELLED.get(unit.lower(), unit.lower()), ("", 0.0)) if unit else (metric.unit, 1.0)
    if base != metric.unit:
        own = ", ".join(name for name, (one, _) in UNITS.items() if one == metric.unit)
        raise Unusable(f"unit is {unit!r}, but that of {metric.name} must be one of {own}")
    return metric.name, value * scale


def task_of(cells: Mapping[str, str], metric: str) -> str:
    """The command that predicts a row: as the row says, or as its metric or its load do."""
    said = cells.get("task", "").lower()
    if said:
        if said not in TASKS:
            raise Unusable(f"task is {said!r}, but it must be one of {', '.join(TASKS)}")
        return said
    if METRIC_NAMES[metric].task:
        return METRIC_NAMES[metric].task
    if any(name in cells for name in LOADS):
        return SERVE
    return TRAIN if any(name in cells for name in ONLY_TRAINING) else INFER


UNTOLD = re.compile(r"auto|default|mixed([- ]precision)?|compressed[-_ ]tensors", re.IGNORECASE)
"""What people write in place of a scheme that tells none: the engine reads it off the checkpoint."""


def untold_types(kwargs: dict[str, Any], assumed: list[str]) -> None:
    """Leave out what tells no type of numbers, so that the checkpoint's own or the default is taken, and say so.

    >>> kwargs, assumed = {"quant": "compressed-tensors"}, []
    >>> untold_types(kwargs, assumed)
    >>> kwargs, assumed
    ({}, ["quant not stated by 'compressed-tensors': the checkpoint's own, else 16 bits"])
    """
    for name in ("quant", "dtype"):
        if UNTOLD.fullmatch(str(kwargs.get(name, ""))):
            own = "the checkpoint's own, else 16 bits" if name == "quant" else "the engine's default"
            assumed.append(f"{name} not stated by {kwargs.pop(name)!r}: {own}")


def fill_inference(kwargs: dict[str, Any], task: str, metric: str, assumed: list[str]) -> None:
    """What a row of inference may leave out, with its default said: one sequence, the command's own lengths."""
    if task == SERVE:
        fill_load(kwargs, assumed)
    elif not kwargs.get("batch"):
        kwargs["batch"] = 1
        assumed.append("batch not stated: 1")
    of_prompts = mean_of(metric) in ("ttft", "prefill_tokens_per_s")
    for name, value in {"prompt": 512, "output": 1 if of_prompts else 128}.items():
        if not kwargs.get(name):
            kwargs[name] = value
            assumed += [] if name == "output" and of_prompts else [f"{name} not stated: {value}"]
    if kwargs.get("cached", 0) >= kwargs["prompt"]:
        raise Unusable("cached is not below prompt")


def fill_load(kwargs: dict[str, Any], assumed: list[str]) -> None:
    """The load of a row whose users come and go: all at once at an infinite rate, or as many clients as run."""
    kwargs.pop("batch", None)
    if kwargs.get("rate") == math.inf:
        del kwargs["rate"]
        if "concurrency" not in kwargs:
            kwargs["concurrency"] = kwargs["requests"] = kwargs.get("requests") or BURST
    if not {"concurrency", "rate", "trace"} & kwargs.keys():
        assumed.append("load not stated: as many clients as the server runs")
        kwargs["concurrency"] = "max"


def fill_training(kwargs: dict[str, Any], assumed: list[str]) -> None:
    """What a row of training may leave out, with its default said: a micro-batch of one, the fewest devices that its
    split allows, one micro-batch a rank and stage."""
    ways = {k: int(kwargs.get(k) or 1) for k in ("tp", "pp", "cp", "ep", "vp")}
    inner = ways["tp"] * ways["pp"] * ways["cp"]
    if not kwargs.get("gpus") and not kwargs.get("dp"):
        kwargs["dp"] = max(1, -(-ways["ep"] // (ways["tp"] * ways["cp"])))
        assumed.append(f"gpus not stated: {kwargs['dp'] * inner}, the fewest of the split")
    elif kwargs.get("gpus") and not kwargs.get("tp") and not kwargs.get("pp"):
        assumed += ["split not stated: data parallel alone"] if kwargs["gpus"] > 1 else []
        kwargs["tp"] = kwargs["pp"] = 1
    if kwargs.get("gpus") and kwargs.get("dp") and kwargs["gpus"] != kwargs["dp"] * inner:
        raise Unusable("gpus is not tp x pp x dp x cp")
    if kwargs.get("gpus") and kwargs["gpus"] % inner:
        raise Unusable("gpus is not tp x pp x dp x cp")
    dp = kwargs.get("dp") or kwargs["gpus"] // inner
    if not kwargs.get("seq"):
        kwargs["seq"] = 2048
        assumed.append("seq not stated: 2048")
    if not kwargs.get("micro_batch"):
        assumed.append("micro_batch not stated: the engine's default")
    if not kwargs.get("recompute") and not kwargs.get("recompute_modules"):
        assumed.append("recompute not stated: the engine's default")
    if not kwargs.get("batch"):
        kwargs["batch"] = dp * (kwargs.get("micro_batch") or 1) * ways["pp"] * (4 if ways["pp"] > 1 else 1)
        assumed.append(f"batch not stated: {kwargs['batch']}")


def label(request: Request, column: str) -> str:
    """What `--by COLUMN` groups a row by: what the row was read as, or the cell of that column."""
    known = {"source": request.source, "gpu": request.group[1], "engine": request.engine, "model": request.group[0],
             "metric": request.metric, "task": request.task, "release": request.release or "not stated"}  # fmt: skip
    return known[column] if column in known else request.cells.get(column, "") or "blank"
