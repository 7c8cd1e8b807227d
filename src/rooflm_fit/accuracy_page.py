"""Tables of docs/accuracy.md and sources.md: python -m rooflm_fit.accuracy_page --page FILE.md ... --rows ROWS.csv ...

ROWS.csv comes from `rooflm_fit.engines --rows`, files of --load from `rooflm_fit.serving --rows`. What stands between
the marks of a table is replaced; tables of what was not given stay.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from rooflm.validation.columns import mean_of
from rooflm.validation.score import Scored, counted, is_rate, predicted, queues, requests_of, score, verdicts
from rooflm.validation.table import published_tables, read_rows, source_names
from rooflm_fit.pages import markdown, rewrite
from rooflm_fit.runs import DISTRUSTED, read, rows_in

SOURCES = {
    "argonne": "Argonne LLM-Inference-Bench, NVIDIA", "argonne-amd": "Argonne LLM-Inference-Bench, AMD",
    "trtllm05": "TensorRT-LLM 0.5", "trtllm06": "TensorRT-LLM 0.6", "trtllm09": "TensorRT-LLM 0.9",
    "nemo-infer": "NeMo, Llama 2", "ft": "FasterTransformer", "ft-megatron": "Megatron-LM, inference",
    "llamacpp": "llama.cpp, one GPU", "llamacpp-multi": "llama.cpp, several GPUs",
    "llamacpp-apple": "llama.cpp, Apple", "tinychat": "TinyChat", "tinychat-other": "TinyChat's rivals",
    "ninehills": "TGI",
}  # fmt: skip
"""Key of a source -> its name on the page."""


def figures(predicted: Sequence[float], measured: Sequence[float]) -> tuple[str, str, str]:
    """Mean, median and 90th percentile of the absolute error in per cent; dashes where nothing was predicted."""
    pairs = [(p, m) for p, m in zip(predicted, measured, strict=True) if np.isfinite(p)]
    if not pairs:
        return "-", "-", "-"
    ape = np.array([abs(p / m - 1) * 100 for p, m in pairs])
    return f"{ape.mean():.1f}", f"{np.median(ape):.1f}", f"{np.percentile(ape, 90):.1f}"


def by_source(path: Path, doubtful: Collection[str] = (), apart: bool = False) -> str:
    """Errors of every source and phase, by the shipped fit and by fits that never saw the row's group; doubtful: ids of
    rows not to be trusted, which are left out, or (apart) alone in the table."""
    groups: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for row in rows_in(path):
        if (row["id"] in doubtful) != apart:
            continue
        name = SOURCES.get(row["source"], row["source"])
        if row["source"].startswith("llamacpp") and row["source"] != "llamacpp-apple":
            name += ", decode" if row["metric"].startswith("decode") else ", prefill"
        groups[name].append((float(row["measured"]), float(row["inside"]), float(row["outside"])))
    rows = []
    for name, items in sorted(groups.items(), key=lambda kv: -len(kv[1])):
        measured, inside, outside = zip(*items, strict=True)
        mean, median, p90 = figures(inside, measured)
        out_mean, out_median, _ = figures(outside, measured)
        rows.append((name, str(len(items)), mean, median, p90, out_mean, out_median))
    return markdown(("source", "rows", "mean", "median", "p90", "mean, out", "median, out"), rows)


ASIDE = {"": "in sample", "model": "model left out", "card": "card", "release": "release"}
"""What is left out whole, as `rooflm_fit.serving` names it -> as the page does."""
LABELS = {"model": "model", "card": "gpu", "release": "release"}
"""The same -> the column of its rows that says which one."""
ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
"""Row of an engine -> its name on the page."""
TIMES = ("tpot", "ttft")
Run = Mapping[str, str]


def pair(runs: Sequence[Run], time: str) -> str:
    """Mean / median error of runs in per cent.

    >>> pair([{"tpot": "1.1"}, {"tpot": "0.9"}, {"tpot": "1"}], "tpot")
    '6.7/10.0'
    """
    mean, median, _ = figures([float(r[time]) for r in runs], [1.0] * len(runs))
    return f"{mean}/{median}"


def read_load(paths: Iterable[Path]) -> list[Run]:
    """Runs under load that were fitted, each once for all that was left out in turn."""
    return [row for path in paths for row in rows_in(path) if row["fitted"]]


def left_out(runs: Sequence[Run]) -> str:
    """Errors by engine and of all runs together, in sample and with each model, card and release left out whole."""
    engines = sorted({r["engine"] for r in runs})
    rows = []
    for name, own_runs in [(e, [r for r in runs if r["engine"] == e]) for e in engines] + [("all together", [*runs])]:
        cells = []
        for aside in ASIDE:
            some = [r for r in own_runs if r["aside"] == aside]
            cells += [", ".join(pair(some, time) for time in TIMES)]
        rows.append((ENGINES.get(name, name), str(sum(r["aside"] == "" for r in own_runs)), *cells))
    head = ("under load, TPOT mean / median and TTFT mean / median", "runs", *ASIDE.values())
    return markdown(head, rows)


def each_left_out(runs: Sequence[Run], aside: str) -> str:
    """Errors of every model (or card, or release) when it was left out whole, most runs first."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for r in runs:
        if r["aside"] == aside:
            engine = f"{r['engine']} " if aside == "release" else ""
            groups[engine + (r[LABELS[aside]] or "(not stated)")].append(r)
    rows = [
        (name, str(len(some)), *(pair(some, time) for time in TIMES))
        for name, some in sorted(groups.items(), key=lambda kv: (-len(kv[1]), kv[0]))
    ]
    return markdown((f"{aside} left out", "runs", "TPOT mean/median", "TTFT mean/median"), rows)


KINDS = {"ttft": "TTFT", "tpot": "TPOT"}


def errors_and_coverage(some: Sequence[Scored]) -> tuple[str, str, str, str]:
    """Mean, median and 90th percentile of the error of times (of rates as times), and the share in their bands."""
    ratios = [x.ratio ** (-1 if is_rate(x.request.metric) else 1) for x in some]
    inside = np.mean([x.low <= x.request.measured <= x.high for x in some])
    return *figures(ratios, [1.0] * len(ratios)), f"{100 * inside:.0f} %"


def counting(scored: Sequence[Scored]) -> list[Scored]:
    """The rows with a prediction of a value that count."""
    return [x for x in predicted(scored) if counted(x)]


def nothing_fitted(scored: Sequence[Scored]) -> str:
    """Errors and coverage of rows under load of sources that nothing was fitted to, by source and metric."""
    groups: dict[tuple[str, str], list[Scored]] = defaultdict(list)
    for x in counting(scored):
        kind = KINDS.get(mean_of(x.request.metric), "rate, latency")
        for source in (x.request.source, "all"):
            for what in (kind, "all"):
                groups[source, what].append(x)
    rows = []
    for (source, kind), some in sorted(groups.items(), key=lambda kv: (kv[0][0] == "all", kv[0])):
        rows.append((source, kind, str(len(some)), *errors_and_coverage(some)))
    head = ("source", "metric", "rows", "mean", "median", "p90", "in band")
    return markdown(head, rows)


def own(scored: Sequence[Scored]) -> str:
    """Errors on the project's own table, by source."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for x in counting(scored):
        groups[x.request.source].append(x)
    rows = []
    for name, items in sorted(groups.items(), key=lambda kv: -len(kv[1])):
        mean, median, p90 = figures([x.predicted for x in items], [x.request.measured for x in items])
        rows.append((SOURCES.get(name) or source_names().get(name, name), str(len(items)), mean, median, p90))
    return markdown(("source", "rows", "mean", "median", "p90"), rows)


FEW = 10
"""Rows of a source from which on it is told of by itself."""


def served(scored: Sequence[Scored]) -> str:
    """Errors and coverage under load of the project's own tables, by source, most rows first."""
    good = counting(scored)
    many = Counter(x.request.source for x in good)
    few = [source for source, rows in many.items() if rows < FEW]
    groups: dict[str, list[Scored]] = {source: [] for source, rows in many.most_common() if rows >= FEW}
    groups |= {f"{len(few)} of fewer than {FEW} rows": [], "all": []}
    *_, rest, _ = groups
    for x in good:
        for name in (x.request.source if x.request.source in groups else rest, "all"):
            groups[name].append(x)
    rows = [
        (source_names().get(name, name), str(len(items)), *errors_and_coverage(items)) for name, items in groups.items()
    ]
    return markdown(("source", "rows", "mean", "median", "p90", "in band"), rows)


def verdict_text(scored: Sequence[Scored]) -> str:
    """Verdicts on memory in a sentence and two lists."""
    found = verdicts(scored)
    named = {k: [f"{i} ({100 * m:+.1f} %)" for i, m in found[k].items()] for k in ("wrong", "borderline")}
    lists = [", ".join(v) or "none" for v in named.values()]
    total = found["right"] + len(found["wrong"]) + len(found["borderline"])
    return f"{found['right']} of {total} right. Wrong: {lists[0]}. Within 5 % of the capacity: {lists[1]}."


def static_tables(args: argparse.Namespace) -> dict[str, str]:
    """The tables of fixed batches and of memory, where their rows were given."""
    if not (args.rows and args.data):
        return {}
    mine = [r for p in published_tables() for r in requests_of(read_rows(p))]
    all_rows = [r for path in args.data for r in read(path, DISTRUSTED) if r.task == "infer"]
    memory = score([r for r in all_rows if not queues(r)])
    doubtful = {r.id for r in all_rows if r.apart}
    return {
        "inference": by_source(args.rows, doubtful),
        "distrusted": by_source(args.rows, doubtful, apart=True),
        "own": own(score([r for r in mine if r.task == "infer"])),
        "served": served(score([r for r in mine if r.task == "serve"])),
        "memory": own([x for x in memory if x.request.metric == "memory_bytes"]),
        "verdicts": verdict_text(memory),
    }


def load_tables(load: Sequence[Path], aside: Sequence[Path]) -> dict[str, str]:
    """The tables of runs under load, where their rows were given."""
    found = {}
    if load:
        runs = read_load(load)
        found = {"left out": left_out(runs), **{f"each {a}": each_left_out(runs, a) for a in LABELS}}
    if aside:
        found["aside"] = nothing_fitted(score([r for p in aside for r in read(p) if r.task == "serve"]))
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Write the tables into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, nargs="+", required=True)
    parser.add_argument("--rows", type=Path, help="rows of rooflm_fit.engines")
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="the tables that --rows was made from")
    parser.add_argument("--load", type=Path, nargs="*", default=[], help="rows of rooflm_fit.serving")
    parser.add_argument("--aside", type=Path, nargs="*", default=[], help="tables that nothing was fitted to")
    args = parser.parse_args(argv)
    tables = {**static_tables(args), **load_tables(args.load, args.aside)}
    rewrite(tables, *args.page)


if __name__ == "__main__":
    main()
