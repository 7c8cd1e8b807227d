"""Options of the commands: a row of `scenario.arguments` (or of SHELL below) makes an option, and its text a value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

import typer

from rooflm.scenario.arguments import INFER, TRAIN, Argument, arguments
from rooflm.scenario.files import arguments_of, read_table
from rooflm.scenario.written import READ, as_it_is, texts


class Written(NamedTuple):
    """How a kind of argument is written on the command line. type: typer's."""

    type: Any = str
    metavar: str | None = None


WRITTEN = {
    "switch": Written(bool),
    "flag": Written(bool),
    "file": Written(str, "FILE"),
    "count": Written(str, "INTEGER"),
    "number": Written(str, "NUMBER"),
    "sets": Written(list[str], "PATH=VALUE"),
    "zips": Written(list[str], "A,B"),
    "pairs": Written(list[str], "NAME=VALUE"),
}
"""Kinds of argument that typer does not take as one text, and what help calls a value."""

SHELL = (
    Argument("under_load", "flag", "Requests come and go; the best number of clients is searched.", ("search infer",)),
    Argument("scheduler", "text", "continuous, prefill-first, in-flight, static.", ("serve",)),
    Argument("option", "pairs", "Server option: budget=16384, prefix_caching=true, ...", ("serve",)),
    Argument("find", "text", "With --slo: highest rate or concurrency, fewest replicas.", ("serve",)),
    Argument("ops", "flag", "Add the table of operations.", (INFER,)),
    Argument("sensitivity", "flag", "Add what one per cent more of each rate and overhead gives.", (INFER, TRAIN)),
    Argument("json", "flag", "Print one JSON object in SI units.",
             (INFER, TRAIN, "serve", "search infer", "search train")),
    Argument("out", "file", "Write csv, parquet, nc or json.", (INFER, TRAIN)),
    Argument("out", "file", "Per-request table: csv, parquet or json.", ("serve",)),
    Argument("plot", "file", "Draw a png, svg or html.", (INFER, TRAIN)),
    Argument("plot", "file", "Queue, running, KV over time: png, svg, html.", ("serve",)),
    Argument("plot_kind", "text", "lines, heatmap, parts, memory, pareto or roofline.", (INFER,)),
    Argument("plot_kind", "text", "parts, memory or roofline; of a grid lines, heatmap, parts or memory.", (TRAIN,)),
    Argument("plot_value", "text", "Which output to draw, such as mfu or tpot_s.", (INFER, TRAIN)),
)  # fmt: skip
"""What a command alone has: how its answer is shown, and where it goes."""

MODEL = "Name, Hugging Face id, config.json, .gguf, or a scenario file (.toml, .yaml, .csv)"


def rows_of(command: str, calls: Iterable[str]) -> dict[str, Argument]:
    """The options of a command, by name: the arguments of its calls that a shell has, then what it alone has."""
    found: dict[str, Argument] = {}
    for call in calls:
        found |= {name: a for name, a in arguments(call).items() if a.shell and name not in found}
    return found | {a.name: a for a in SHELL if command in a.of}


def parameter(a: Argument, unset: bool = False) -> inspect.Parameter:
    """The option of an argument as typer reads it. unset: without its default, so that one can tell it was given."""
    kind = WRITTEN.get(a.kind, Written())
    default = None if unset else a.default
    if a.kind == "flag":
        return inspect.Parameter(
            a.name, inspect.Parameter.KEYWORD_ONLY, default=False,
            annotation=Annotated[bool, typer.Option(f"--{a.name.replace('_', '-')}", help=a.help)],
        )  # fmt: skip
    if kind.type is str and default is not None:
        default = ",".join(f"{v:g}" for v in default) if isinstance(default, tuple) else str(default)
    usual = f" Default: {a.default}." if unset and a.default not in (None, "") else ""
    names = [a.option] if a.option else []
    if a.kind == "switch":
        names = [f"--{a.name.replace('_', '-')}/--no-{a.name.replace('_', '-')}"]
    option = typer.Option(*names, metavar=kind.metavar, help=a.help + usual)
    typed = kind.type if default is not None else kind.type | None
    return inspect.Parameter(
        a.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[typed, option]
    )


def command(
    name: str,
    calls: Iterable[str],
    run: Callable[[Any, dict[str, Any], dict[str, Any]], None],
    told: str,
    *,
    axes: bool = False,
    unset: Iterable[str] = (),
) -> Callable[..., None]:
    """The function behind a command: its options are rows, its values go to `run(model, arguments, shown)`.

    told: its help; axes: the model may be a comma list; unset: names of options whose default is not filled in.
    """
    rows = rows_of(name, calls)
    bare = set(unset)

    def call(model: str, context: typer.Context | None = None, **given: Any) -> None:
        read = {
            a.name: given[a.name] if given[a.name] is None else READ.get(a.kind, as_it_is)(given[a.name], a.name)
            for a in rows.values()
        }
        table = read_table(model)
        if table is not None:
            filled = arguments_of(model, table, rows)
            model = table["model"] if isinstance(table["model"], str) else ",".join(table["model"])
            read |= {k: v for k, v in filled.items() if not on_the_line(context, k)}
        asked = {k: v for k, v in read.items() if rows[k] not in SHELL and v is not None and v != {}}
        run(texts(model) if axes else model, asked, {k: v for k, v in read.items() if rows[k] in SHELL})

    help_ = f"{MODEL}; a comma list makes an axis." if axes else f"{MODEL}."
    first = inspect.Parameter(
        "model", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[str, typer.Argument(help=help_)]
    )
    line = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=typer.Context)
    parameters = [first, line, *(parameter(a, a.name in bare) for a in rows.values())]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    call.__doc__, call.__name__ = told, name.replace(" ", "_")
    return call


def on_the_line(context: typer.Context | None, name: str) -> bool:
    """Whether an option stands on the command line, where it overrides a scenario file."""
    source = context.get_parameter_source(name) if context else None
    return source is not None and source.name == "COMMANDLINE"


def group(name: str, told: str) -> typer.Typer:
    """A command of sub-commands, which by itself shows its help; -h does too, everywhere below it."""
    made = typer.Typer(
        name=name, help=told, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    made.callback(invoke_without_command=True)(bare)
    return made


def bare(context: typer.Context) -> None:
    """Show the help of a command that was given no sub-command."""
    if context.invoked_subcommand is None:
        print(context.get_help())
