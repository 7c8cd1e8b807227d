"""Options of the commands: a row of `asked.arguments` (or of SHELL below) makes an option with its place in help and
the completion of its names, and its text a value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from rooflm.asked.arguments import GRIDS, INFER, KINDS, TRAIN, Argument, arguments, grouped
from rooflm.asked.files import arguments_of, read_table
from rooflm.asked.written import READ, as_it_is, texts
from rooflm.cli.console import Voice
from rooflm.cli.line import refuse_repeated, without_conversion
from rooflm.errors import RooflmError


class Written(NamedTuple):
    """How a kind of argument is written on the command line. type: typer's; metavar: what help calls a value;
    completes: the list (`rooflm list`) whose names a shell completes."""

    type: Any = str
    metavar: str | None = None
    completes: str = ""


LISTS = {"device": "gpu", "cluster": "cluster", "engine": "engine", "scheme": "quant"}
"""Kinds whose text is the name of a row -> the list that has it."""
WRITTEN = {
    **dict.fromkeys(("numbers", "amounts"), Written(metavar="NUMBERS")),
    **dict.fromkeys(("amount", "number"), Written(metavar="NUMBER")),
    **dict.fromkeys(("names", "joined", "listed"), Written(metavar="NAMES")),
    **{f"{row}s": Written(metavar=f"{name.upper()}S", completes=name) for row, name in LISTS.items()},
    **{row: Written(metavar=name.upper(), completes=name) for row, name in LISTS.items()},
    "factors": Written(metavar="FACTORS"),
    "stage": Written(metavar="STAGE"),
    "switch": Written(bool),
    "flag": Written(bool),
    "text": Written(metavar="TEXT"),
    "file": Written(metavar="FILE"),
    "folder": Written(metavar="DIR"),
    "count": Written(metavar="N"),
    "seconds": Written(metavar="TIME"),
    "joules": Written(metavar="ENERGY"),
    "share": Written(metavar="SHARE"),
    "budgets": Written(metavar="TOKENS"),
    "spread": Written(metavar="LOW,HIGH"),
    "sets": Written(list[str], "PATH=VALUE"),
    "zips": Written(list[str], "A,B"),
    "repeated": Written(list[str], "NAMES"),
    "pairs": Written(list[str], "NAME=VALUE"),
}
"""Kind of argument -> how it is written."""

SEARCHES = ("search infer", "search train")
EXPLORES = tuple(f"explore {name}" for name in ("grid", "split", "front", "gemms", "generations", "dies"))
EVERY = (*GRIDS, "serve", *SEARCHES, *EXPLORES, "validate", "calibrate", "measure", "compare", "list", "show", "study")
SHELL = grouped((
    "What is asked",
    Argument("under_load", "flag", "Requests come and go; the best number of clients is searched.", ("search infer",)),
    Argument("find", "text", "With --slo: highest rate or concurrency, fewest replicas.", ("serve",)),
    "How it runs",
    Argument("scheduler", "text", "continuous, prompts-first, prefill-first, in-flight, no-evict, static.", ("serve",)),
    Argument("option", "pairs", "Server option: budget=16384, prefix_caching=true, ...", ("serve",)),
    "The answer",
    Argument("ops", "flag", "Add the table of operations.", GRIDS),
    Argument("parts", "flag", "Add the time by part of the model: attention, mlp, embedding, ...", (TRAIN,)),
    Argument("flops_only", "flag", "What FLOPs alone take, at the peak or the factor given.", (TRAIN,)),
    Argument("sensitivity", "flag", "Add what one per cent more of each rate and overhead gives.", GRIDS),
    Argument("json", "flag", "Print one JSON object in SI units; errors are fractions.", EVERY),
    Argument("deploy", "file", "Write the best as a compose*.yaml (Docker Compose), else Kubernetes .yaml.",
             ("search infer",)),
    Argument("out", "file", "Write csv, parquet, xlsx, md, nc or json.", GRIDS),
    Argument("out", "file", "Per-request table: csv, parquet, xlsx, md or json.", ("serve",)),
    Argument("out", "file", "Write the best and the trade-off: csv, parquet, xlsx, md or json.", SEARCHES),
    Argument("out", "file", "Write csv or json.", EXPLORES),
    Argument("out", "file", "Write every row and its prediction, csv.", ("validate",)),
    Argument("plot", "file", "Draw a png, svg, html or json (Vega-Lite).", (*GRIDS, *EXPLORES)),
    Argument("plot", "file", "Queue, running, KV over time; of a grid its curves: png, svg, html, json.", ("serve",)),
    Argument("plot", "file", "Draw the trade-off, or of training the best steps: png, svg, html, json.", SEARCHES),
    Argument("plot", "file", "Draw predicted over measured (png, svg, html, json).", ("validate",)),
    Argument("plot_kind", "text", "lines, heatmap, parts, shares, memory, pareto or roofline.", (INFER,)),
    Argument("plot_kind", "text", "parts, memory or roofline; of a grid lines, heatmap, parts, shares or memory.",
             (TRAIN,)),
    Argument("plot_kind", "text", "Bars of the time by cause: seconds or shares.", ("explore grid",),
             words=("seconds", "shares")),
    Argument("plot_value", "text", "Which output to draw, such as mfu or tpot_s.", GRIDS),
    Argument("plot_value", "text", "Of a grid: which output to draw, such as ttft_p95_s.", ("serve",)),
    Argument("quiet", "flag", "The answer alone: no assumptions, warnings or progress.", EVERY),
    Argument("verbose", "flag", "Also what stands behind the answer.", EVERY),
))  # fmt: skip
"""What a command alone has: how its answer is shown, and where it goes."""

MODEL = "Name, Hugging Face id, config.json, .gguf, or a scenario file (.toml, .yaml, .csv)"


def completions(kind: str) -> list[str]:
    """Names of a list, for shell completion."""
    if kind == "quant":
        from rooflm.readers.schemes import PRESETS

        return [q.name for q in PRESETS.values()]
    if kind == "schema":
        from rooflm.cli.schemas import SCHEMAS

        return [*SCHEMAS]
    if kind == "dataset":
        from rooflm.readers.datasets import datasets

        return [*datasets()]
    from rooflm.readers.rows import names

    return names(kind)


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What completes a comma list of names."""

    def complete(incomplete: str) -> list[str]:
        done, comma, last = incomplete.rpartition(",")
        return [f"{done}{comma}{name}" for name in names() if name.startswith(last.lower())]

    return complete


def completion(a: Argument) -> Callable[[str], list[str]] | None:
    """What completes an argument: the names of its list, or its words; None for what has none."""
    kind = WRITTEN[a.kind].completes
    if kind:
        return completing(lambda: completions(kind))
    return completing(lambda: a.words) if a.words else None


def rows_of(command: str, calls: Iterable[str], own: Iterable[Argument] = ()) -> dict[str, Argument]:
    """The options of a command, by name: the arguments of its calls that a shell has, its own, then those of SHELL."""
    found: dict[str, Argument] = {}
    for call in calls:
        found |= {name: a for name, a in arguments(call).items() if a.shell and name not in found}
    found |= {a.name: a for a in own if not a.of or command in a.of}
    return found | {a.name: a for a in SHELL if command in a.of}


def parameter(a: Argument, unset: bool = False) -> inspect.Parameter:
    """The option of an argument as typer reads it. unset: without its default, so that one can tell it was given."""
    kind = WRITTEN[a.kind]
    name = a.name.replace("_", "-")
    default = False if a.kind == "flag" else a.default
    if kind.type is str and default is not None:
        default = ",".join(f"{v:g}" for v in default) if isinstance(default, tuple) else str(default)
    usual, default = (f" Default: {default}." if default else "", None) if unset else ("", default)
    names = [a.option] if a.option else [f"--{name}/--no-{name}"] if a.kind == "switch" else [f"--{name}"]
    option = typer.Option(*names, metavar=kind.metavar, help=a.help + usual, rich_help_panel=a.group or None,
                          show_default=default not in (None, "", False), autocompletion=completion(a))  # fmt: skip
    typed = kind.type if default is not None else kind.type | None
    return inspect.Parameter(
        a.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[typed, option]
    )


def model(axes: bool = False) -> inspect.Parameter:
    """The model, which comes first. axes: it may be a comma list."""
    help_ = f"{MODEL}; a comma list makes an axis." if axes else f"{MODEL}."
    return word("model", help_, completing(lambda: completions("model")))


def word(
    name: str, told: str, completes: Callable[..., list[str]], default: str | None = None
) -> inspect.Parameter:  # fmt: skip
    """A word among what comes first. completes: what a shell may complete it to; default: where it may be left out."""
    metavar = name.upper() if default is None else f"[{name.upper()}]"
    made = typer.Argument(help=told, metavar=metavar, autocompletion=completes, show_default=False)
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[str, made],
        default=inspect.Parameter.empty if default is None else default,
    )  # fmt: skip


def files(name: str, metavar: str, told: str, least: int = 1) -> inspect.Parameter:
    """Files as what comes first. least: none may be given where it is 0."""
    typed: Any = list[str] if least else list[str] | None
    default = inspect.Parameter.empty if least else None
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default,
        annotation=Annotated[typed, typer.Argument(metavar=metavar, help=told)],
    )  # fmt: skip


Run = Callable[[Any, dict[str, Any], dict[str, Any]], None]
"""What a command does with what comes first (None without it), the options that were given, and those of SHELL."""


def command(
    name: str,
    calls: Iterable[str],
    run: Run,
    told: str,
    *,
    axes: bool = False,
    unset: Iterable[str] = (),
    own: Iterable[Argument] = (),
    first: inspect.Parameter | Sequence[inspect.Parameter] | bool | None = True,
) -> Callable[..., None]:
    """The function behind a command: its options are rows, its values go to `run`.

    told: its help; axes: the model may be a comma list; unset: names of options whose default is not filled in; own:
    rows that no public call has; first: what comes first, where it is no model (None: nothing; of several, `run` gets
    their values as a tuple).
    """
    rows = rows_of(name, calls, own)
    bare = set(unset)
    begins = [model(axes)] if first is True else [first] if isinstance(first, inspect.Parameter) else [*(first or ())]

    def call(*begun: Any, call_context: typer.Context | None = None, **given: Any) -> None:
        begun = begun or tuple(given.pop(p.name) for p in begins)
        at: Any = begun if len(begins) > 1 else begun[0] if begun else None
        for option, value in given.items():
            if isinstance(value, str) and not value.strip() and on_the_line(call_context, option):
                raise RooflmError(f"--{option.replace('_', '-')} is empty: give it a value, or leave it out")
        read = {
            a.name: given[a.name] if given[a.name] is None else READ.get(a.kind, as_it_is)(given[a.name], a.name)
            for a in rows.values()
        }
        refuse_overwriting(read, [at] if isinstance(at, str) else at or ())
        table = read_table(at) if first is True else None
        if table is not None:
            filled = arguments_of(at, table, rows, name)
            at = table["model"] if isinstance(table["model"], str) else ",".join(table["model"])
            read |= {k: v for k, v in filled.items() if not on_the_line(call_context, k)}
        Voice.quiet, Voice.verbose = Voice.quiet or read.pop("quiet"), Voice.verbose or read.pop("verbose")
        asked = {k: v for k, v in read.items() if rows[k] not in SHELL and v is not None and v != {}}
        run(texts(at) if axes else at, asked, {k: v for k, v in read.items() if rows[k] in SHELL})

    line = inspect.Parameter("call_context", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=typer.Context)
    parameters = [*begins, line, *(parameter(a, a.name in bare) for a in rows.values())]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    call.__doc__, call.__name__ = told, name.replace(" ", "_")
    return call


def refuse_overwriting(given: Mapping[str, Any], begun: Iterable[Any]) -> None:
    """RooflmError where a command would write over what it reads: a table, the config of a model or of its draft, a
    scenario, a trace."""
    read = *begun, *(given.get(name) for name in ("trace", "base", "draft"))
    named = [name for said in read if isinstance(said, str) for name in {said, *said.split(",")}]
    for option in ("out", "plot", "deploy", "profile"):
        if (target := given.get(option)) and any(one_file(target, name) for name in named):
            raise RooflmError(f"--{option} is {target!r}, but that is a file that is read: name another")


def one_file(path: str, other: str) -> bool:
    """Whether two paths lead to one file, which is there."""
    try:
        return Path(path).samefile(other)
    except (OSError, ValueError):
        return False


def on_the_line(context: typer.Context | None, name: str) -> bool:
    """Whether an option stands on the command line, where it overrides a scenario file."""
    source = context.get_parameter_source(name) if context else None
    return source is not None and source.name == "COMMANDLINE"


def command_class(base: Any, below: Sequence[str], order: Sequence[str] = ()) -> Any:
    """A kind of command that reads its line by `cli.line`, and whose help ends in these lines; of a group, its commands
    in this order."""

    class Shown(base):  # type: ignore[misc]
        def parse_args(self, context: Any, words: list[str]) -> list[str]:
            for p in self.get_params(context):
                p.process_value = without_conversion(p)
            if not context.resilient_parsing:
                refuse_repeated(self, context, words)
            found: list[str] = super().parse_args(context, words)
            return found

        def format_help(self, context: Any, formatter: Any) -> None:
            super().format_help(context, formatter)
            print("\n".join(below))

        def list_commands(self, context: Any) -> list[str]:
            names: list[str] = super().list_commands(context)
            return sorted(names, key=lambda n: order.index(n) if n in order else -1)

    return Shown


def group(
    name: str, told: str, below: Sequence[str] = (), order: Sequence[str] = (), complete: bool = False
) -> typer.Typer:
    """A command of sub-commands, which by itself shows its help; -h does too, everywhere below it. below: lines at the
    end of its help; complete: with the options that install completion in a shell."""
    made = typer.Typer(
        name=name, help=told, add_completion=complete, pretty_exceptions_enable=False, rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]}, cls=command_class(TyperGroup, below, order),
    )  # fmt: skip
    made.callback(invoke_without_command=True)(help_if_alone)
    return made


def help_if_alone(context: typer.Context) -> None:
    """Print the help of a group that is called without a sub-command."""
    if context.invoked_subcommand is None and (told := context.get_help()):
        print(told)


assert WRITTEN.keys() >= KINDS.keys() - {"server", "progress"}
