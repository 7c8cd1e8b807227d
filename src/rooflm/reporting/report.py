"""A one-page report for decision makers: question, answer, alternatives, bottleneck, confidence, and how to run it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rooflm import api
from rooflm.asked.answers.said import LIKELY
from rooflm.asked.arguments import arguments as table_of
from rooflm.asked.build_inference import find_model
from rooflm.asked.files import arguments_of, read_table
from rooflm.errors import RooflmError, near_matches
from rooflm.plots.answers import search_picture
from rooflm.plots.bars import Bar, bars
from rooflm.plots.choose import point_picture
from rooflm.plots.picture import Picture
from rooflm.plots.point import Estimate
from rooflm.plots.scale import Scale
from rooflm.reporting.alternatives import alternatives
from rooflm.reporting.page import page, write
from rooflm.scenario.mapping import SERVED_DEGREES
from rooflm.scenario.scenario import Scenario
from rooflm.search import said
from rooflm.search.checkpoint import home_of
from rooflm.search.inference import search_infer
from rooflm.search.result import SearchResult
from rooflm.search.serve_command import Start, start, start_of
from rooflm.search.train_start import trained_by, training_start
from rooflm.search.training import search_train
from rooflm.search.under_load import search_serve
from rooflm.serving.deploy import Served
from rooflm.shown.answer import Answer, timespan
from rooflm.shown.blocks import Block, Code, Say, Table, listed
from rooflm.sweep.sensitivity import lines as sensitivity_rows
from rooflm.sweep.sensitivity import sensitivity


@dataclass(frozen=True)
class Section:
    """A part of the page: blocks of words and tables, then pictures."""

    title: str
    blocks: Sequence[Block] = ()
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class Report:
    """The page before it is written. question: as its heading; answer: what stands first; sections: all else."""

    question: str
    answer: Sequence[Block]
    sections: Sequence[Section] = field(default_factory=tuple)

    def html(self) -> str:
        """The page: one file that needs no other. RooflmError where what draws is not installed."""
        return page(self)

    def save(self, path: str | Path) -> Path:
        """Write the page, whole or not at all."""
        return write(self, path)

    def __repr__(self) -> str:
        return f"Report({self.question!r}, {len(self.sections)} sections)"


def report(scenario: str | Path | Mapping[str, Any], path: str | Path | None = None) -> Report:
    """The report on a scenario: a file (see docs/files.md) or a table of the same keys; `task` says what is asked of it
    (infer, train, serve, search infer, search serve or search train; default: infer), `question` is its heading.

    path: write it there, as one .html file. Raises RooflmError for bad input.
    """
    if isinstance(scenario, Path):
        scenario = str(scenario)
    if not isinstance(scenario, str | Mapping):
        raise RooflmError(f"the scenario is {scenario!r}, but it must be a file's name or a table of arguments")
    label = scenario if isinstance(scenario, str) else "the scenario"
    table = read_table(scenario) if isinstance(scenario, str) else dict(scenario)
    if table is None or "model" not in table:
        missing = isinstance(scenario, str) and not Path(scenario).exists()
        why = (
            "there is no such file" if missing else "it must be a .toml, .yaml or .csv file with a model and arguments"
        )
        raise RooflmError(f"{label!r} is no scenario: {why}")
    task = str(table.get("task", "infer"))
    if task not in MAKERS:
        near = near_matches(task, MAKERS) or list(MAKERS)
        raise RooflmError(f"task is {task!r}, but it must be one of {', '.join(MAKERS)}: did you mean {near[0]!r}?")
    loads = table_of("search_serve").keys() - table_of("search_infer").keys()
    if task == "search infer" and loads & {name.replace("-", "_") for name in table}:
        task = "search serve"  # as on the command line: who asks for a load searches under load
    call, make = MAKERS[task]
    given = arguments_of(str(label), table, table_of(call), f"task {task!r}")
    if isinstance(table["model"], list) or "zip" in given:
        raise RooflmError(f"{label}: a report is of one model and one scenario, not of a list: name one")
    answer, sections = make(str(table["model"]), given)
    question = str(table.get("question") or table.get("title") or f"{table['model']}: {TOLD[task]}")
    made = Report(question, answer, sections)
    if path is not None:
        made.save(path)
    return made


def of_inference(model: str, given: dict[str, Any]) -> tuple[list[Block], list[Section]]:
    """What one prediction of inference says."""
    made = single(api.infer(model, **given), "infer")
    other, drawn = alternatives(api.infer, model, given, made.scenario, INFERENCE)
    return made.blocks(), [
        Section("Memory and time", pictures=[point_picture(made, "memory"), point_picture(made, "parts")]),
        Section(
            "Alternatives", [other], [tradeoff(drawn, "tpot_s", "Time per output token by alternative", "ms", 1e3)]
        ),
        Section("What bounds it", [moved(made)], [point_picture(made, "roofline")]),
        *sure(made),
        served(model, made, given),
    ]


def of_training(model: str, given: dict[str, Any]) -> tuple[list[Block], list[Section]]:
    """What one prediction of training says."""
    made = single(api.train(model, **given), "train")
    other, drawn = alternatives(api.train, model, given, made.scenario, TRAINING)
    return made.blocks(), [
        Section("Memory and time", pictures=[point_picture(made, "memory"), point_picture(made, "parts")]),
        Section("Alternatives", [other], [tradeoff(drawn, "step_time_s", "Time of a step by alternative", "s", 1.0)]),
        Section("What bounds it", [moved(made)]),
        *sure(made),
        Section("To run it", [Code(training_start(made.scenario, model))]),
    ]


def of_serving(model: str, given: dict[str, Any]) -> tuple[list[Block], list[Section]]:
    """What users feel at a load."""
    made = single(api.serve(model, **given), "serve")
    return made.blocks(), [*sure(made), served(model, made, given)]


def served(model: str, made: Estimate | Served, given: Mapping[str, Any]) -> Section:
    """The commands that start the servers of an estimate or of a simulated load (with separate pools the prefill
    servers first), and any step to take before."""
    pools = made.run.pools if isinstance(made, Served) else ()
    known = [p.table.components.scenario for p in pools] if isinstance(made, Served) else [made.scenario]
    begun: Start | None = None
    for i, s in enumerate(known):
        role = {"role": pools[i].role} if len(pools) > 1 else {}
        chosen = asked_of(s, model, given) | role
        if isinstance(made, Served) and not given.get("concurrency"):  # as many at a time as the server takes
            chosen["batch"] = int((given.get("options") or {}).get("max_sequences", 0))
        own = start(model, s.model, s.engine, s.quant, chosen, int(s.workload.prompt + s.workload.output))
        begun = replace(own, before=begun, replicas=pools[i].replicas if role else 1) if own else None
    return Section("To run it", [Code(begun.text), *([Say(begun.note)] if begun.note else [])] if begun else [])


def asked_of(s: Scenario, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the start command that follow from the scenario: split, batch, and any adapters, speculation and
    host offload (`search.serve_command.serve_command`)."""
    own: dict[str, Any] = {k: int(getattr(s.mapping, k)) for k in SERVED_DEGREES}
    own["batch"] = int(given.get("batch") or given.get("concurrency") or 1)
    own |= {"adapters": int(s.adapters.held), "adapter_rank": int(s.adapters.rank)}
    own |= {"guesses": int(s.speculation.guesses), "cpu_experts": int(s.offload.experts)}
    if s.speculation.draft is not None:
        named = str(given.get("draft") or s.speculation.draft.name)
        own["draft"] = home_of(named, s.speculation.draft) or named
    if s.offload.layers:
        own["layers"] = int(find_model(model).layers) - int(s.offload.layers)
    return own


def of_search(run: Callable[..., SearchResult]) -> Callable[[str, dict[str, Any]], tuple[list[Block], list[Section]]]:
    """What a search of this kind says: the best and what starts it, the ten best, the trade-off, what is better but not
    legal."""

    def make(model: str, given: dict[str, Any]) -> tuple[list[Block], list[Section]]:
        found = run(model, **given)
        if found.interrupted:
            raise KeyboardInterrupt
        pictures = [search_picture(found)] if found.best is not None else []
        begun = None if run is search_train else start_of(model, found, given)
        command = trained_by(model, found, given) if run is search_train else begun.text if begun else ""
        note = "" if run is search_train else said.figures(given, run is search_serve)
        return said.blocks(found, command, note, begun.note if begun else ""), [
            Section("Best steps" if run is search_train else "The trade-off", pictures=pictures),
            *sure(found),
        ]

    return make


def single(made: Any, call: str) -> Any:
    """The answer; RooflmError for a grid, since a report answers one question."""
    if not isinstance(made, Answer):
        raise RooflmError(f"a report on {call} is of one scenario, not of a list: name one of each, or use a search")
    return made


def moved(made: Estimate) -> Table:
    """The effect of one per cent more of each rate and overhead, the strongest first."""
    rows = sensitivity_rows(sensitivity(made))
    return Table(rows, "l" + "r" * (len(rows[0]) - 1), "Per cent of change for one per cent more", head=True)


def sure(made: Any) -> list[Section]:
    """The error band with its reason, and the assumptions."""
    blocks: list[Block] = []
    for key, band in getattr(made, "error_band", {}).items():
        name = key.removesuffix("_s").replace("_", " ").replace("ttft", "time to first token").replace(
            "tpot", "time per output token")  # fmt: skip
        low, high, rows = (band[k] for k in ("low", "high", "rows"))
        if rows and not math.isfinite(low):  # of a model that embeds texts
            continue
        known = f"between {timespan(low)} and {timespan(high)} {LIKELY} ({rows} measured rows)"
        blocks.append(Say(known if rows else "nothing like it was measured: no band", label=name))
    blocks += listed("assumed", getattr(made, "assumed", ()))
    blocks += [Say(text, "bad", "warning") for text in getattr(made, "warnings", ())]
    return [Section("How sure, and what is assumed", blocks)] if blocks else []


def tradeoff(drawn: Mapping[str, Mapping[str, Any]], key: str, title: str, unit: str, factor: float) -> Picture:
    """A bar per alternative; those that do not fit are marked instead of drawn."""
    made = [Bar(name, {"time": factor * float(v[key])} if v["fits"] else {}, mark="" if v["fits"] else "does not fit")
            for name, v in drawn.items()]  # fmt: skip
    return bars(title, Scale(f"{title.split(' by ')[0].lower()} ({unit})"), made)


INFERENCE = (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("output_tokens_per_s_per_gpu", "tokens/s a GPU"),
             ("cost_usd_per_million_tokens", "USD a million tokens"), ("memory_bytes", "memory"))  # fmt: skip
"""Outputs of an alternative of inference, with their headings."""
TRAINING = (("step_time_s", "step"), ("mfu", "MFU"), ("tokens_per_s_per_gpu", "tokens/s a GPU"),
            ("memory_bytes", "memory"))  # fmt: skip
"""The same of training."""
Maker = Callable[[str, dict[str, Any]], tuple[list[Block], list[Section]]]
MAKERS: dict[str, tuple[str, Maker]] = {
    "infer": ("infer", of_inference),
    "train": ("train", of_training),
    "serve": ("serve", of_serving),
    "search infer": ("search_infer", of_search(search_infer)),
    "search serve": ("search_serve", of_search(search_serve)),
    "search train": ("search_train", of_search(search_train)),
}
"""Task of a scenario file -> the call whose arguments it holds, and what makes its report."""
TOLD = {"infer": "how fast, does it fit, what does it cost?", "train": "how long, does it fit, what does it cost?",
        "serve": "what do users feel?", "search infer": "how is it served best?",
        "search serve": "how is it served best under load?", "search train": "how is it trained best?"}  # fmt: skip
"""Task -> the question where a scenario has none."""
