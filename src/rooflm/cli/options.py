"""Options of the commands: a row of `scenario.arguments` (or of SHELL below) makes an option, and its text a value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

import typer

from rooflm.cli import values
from rooflm.errors import RooflmError
from rooflm.scenario.arguments import INFER, KINDS, TRAIN, Argument, arguments
from rooflm.units import parse


class Written(NamedTuple):
    """How a kind of argument is written on the command line. type: typer's; read: text and name to the value."""

    type: Any
    read: Callable[[Any, str], Any]
    metavar: str | None = None


def seconds(text: str, name: str) -> float:
    """Seconds of "500ms"."""
    return parse(text, "s", f"--{name.replace('_', '-')}")


def amount(text: str, name: str) -> float:
    """One number that may end in k, M, B or T, such as 2M."""
    value = values.amounts(text, name)
    if isinstance(value, list):
        raise RooflmError(f"{name} is {text!r}, but it must be one number")
    return float(value)


def joules(text: str, name: str) -> float:
    """Joules of "20GWh" or "70TJ".

    >>> joules("2kWh", "energy"), joules("1GJ", "energy")
    (7200000.0, 1000000000.0)
    """
    if text.strip().endswith("Wh"):
        return 3600 * parse(text.strip().removesuffix("h"), "w", f"--{name}")
    return parse(text, "j", f"--{name}")


def share(text: str, name: str) -> float:
    """A share written as 0.1 or 10%.

    >>> share("10%", "memory_margin"), share("0.1", "memory_margin")
    (0.1, 0.1)
    """
    number = values.numbers(text.strip().removesuffix("%"), name)
    if isinstance(number, list):
        raise RooflmError(f"{name} is {text!r}, but it must be one share, such as 0.1 or 10%")
    return float(number) / (100 if text.strip().endswith("%") else 1)


def budgets(text: str, name: str) -> Any:
    """Token budgets: numbers, a list or a range; off is infinity.

    >>> budgets("512..2048*2,off", "token_budget"), budgets("8192", "token_budget")
    ([512, 1024, 2048, inf], 8192)
    """
    pieces = [p.strip() for p in text.split(",")]
    sizes = values.numbers(",".join(p for p in pieces if p != "off"), name) if set(pieces) != {"off"} else []
    listed = sizes if isinstance(sizes, list) else [sizes]
    if any(not (n >= 1 and n == int(n)) for n in listed):
        raise RooflmError(f"{name} is {text!r}, but it must be whole numbers of tokens of at least 1, or off")
    listed = [*listed, *([float("inf")] if "off" in pieces else [])]
    return listed if len(listed) > 1 else listed[0]


def spread(text: str, name: str) -> tuple[float, float]:
    """ "0.8,1" as (0.8, 1.0); one number is the low end.

    >>> spread("0.8,1", "spread"), spread("0.5", "spread")
    ((0.8, 1.0), (0.5, 1.0))
    """
    try:
        numbers = [float(p) for p in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise RooflmError(f"{name} is {text!r}, but it must be LOW,HIGH such as 0.8,1")
    return numbers[0], numbers[1] if len(numbers) == 2 else max(1.0, numbers[0])


def stage(text: str, name: str) -> Any:
    """ZeRO stages as numbers, `fsdp` and the like as names."""
    if not all(piece.strip().isdigit() for piece in text.split(",")):
        return values.texts(text)
    return values.numbers(text, name)


def _as_is(value: Any, _: str) -> Any:
    return value


ROWS = ("device", "cluster", "engine", "scheme")
"""Kinds whose text is the name of a row."""
WRITTEN = {
    "numbers": Written(str, values.numbers),
    "amounts": Written(str, values.amounts),
    "amount": Written(str, amount),
    "names": Written(str, lambda text, _: values.texts(text)),
    "joined": Written(str, _as_is),
    **{f"{row}s": Written(str, lambda text, _: values.texts(text)) for row in ROWS},
    **{row: Written(str, _as_is) for row in ROWS},
    "factors": Written(str, lambda text, _: values.efficiency_text(text)),
    "stage": Written(str, stage),
    "switch": Written(bool, _as_is),
    "flag": Written(bool, _as_is),
    "text": Written(str, _as_is),
    "file": Written(str, _as_is, "FILE"),
    "count": Written(int, _as_is),
    "number": Written(float, _as_is),
    "seconds": Written(str, seconds),
    "joules": Written(str, joules),
    "share": Written(str, share),
    "budgets": Written(str, budgets),
    "spread": Written(str, spread),
    "sets": Written(list[str], lambda pairs, _: values.assignments(pairs), "PATH=VALUE"),
    "zips": Written(list[str], lambda groups, _: [tuple(n.strip() for n in g.split(",")) for g in groups], "A,B"),
    "listed": Written(str, lambda text, _: [name.strip() for name in text.split(",")]),
    "pairs": Written(list[str], _as_is, "NAME=VALUE"),
}
"""Kind of argument -> how it is written."""

MEASURE, COMPARE = "measure", "compare"
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
    # measure: models of one's own
    Argument("task", "text", "infer, train, accuracy or micro.", (MEASURE,), "infer"),
    Argument("batch", "numbers", "Sequences at a time, in all.", (MEASURE,), "1"),
    Argument("prompt", "numbers", "Prompt tokens a sequence (train: tokens a sequence).", (MEASURE,), "32"),
    Argument("output", "numbers", "Output tokens a sequence, forced.", (MEASURE,), "8"),
    Argument("dtype", "names", "fp32, bf16 or fp16.", (MEASURE,), "fp32"),
    Argument("strategy", "listed", "none, tp2, pp2, dp2, or joined by +; starts the processes.", (MEASURE,), "none"),
    Argument("optimise", "listed", "none, eager-attention, compile, graphs, int8-wo, int4-wo, or joined by +.",
             (MEASURE,), "none"),
    Argument("layers", "numbers", "Keep so many layers (0: all).", (MEASURE,), "0"),
    Argument("width_prune", "numbers", "Share of heads and feed-forward width removed.", (MEASURE,), "0"),
    Argument("repeats", "count", "Timed repeats.", (MEASURE,), 5),
    Argument("warmup", "count", "Runs before them.", (MEASURE,), 1),
    Argument("threads", "count", "CPU threads a rank (default: cores over ranks).", (MEASURE,)),
    Argument("device", "text", "auto, cpu or cuda.", (MEASURE,), "auto"),
    Argument("size", "text", "Grid of micro-benchmarks: tiny, small or full.", (MEASURE,), "small"),
    Argument("text", "file", "Text for perplexity.", (MEASURE,), ""),
    Argument("tokens", "count", "Tokens of it.", (MEASURE,), 2044),
    Argument("context", "count", "Context of perplexity.", (MEASURE,), 512),
    Argument("timeout", "number", "Seconds after which a case has failed.", (MEASURE,), 1800.0),
    # measure: a server that runs
    Argument("url", "text", "Load this OpenAI-compatible server instead, such as http://host:8000/v1.", (MEASURE,)),
    Argument("concurrency", "numbers", "With --url: clients that wait for their answers, such as 1..8*2.", (MEASURE,)),
    Argument("rate", "numbers", "With --url: requests/s that arrive on their own, or a list.", (MEASURE,)),
    Argument("trace", "file", "With --url: requests of a trace.", (MEASURE,)),
    Argument("requests", "count", "With --url: requests a level (default: six a client).", (MEASURE,)),
    Argument("duration", "seconds", "With --url: longest level.", (MEASURE,), "300"),
    Argument("tokenizer", "text", "With --url: folder, hub id or .gguf (default: the server's model).", (MEASURE,)),
    Argument("load", "text", "With --url: the load generator: guidellm, aiperf or vllm.", (MEASURE,), "guidellm"),
    Argument("release", "text", "Release of the engine, where the server does not tell it.", (MEASURE,)),
    Argument("interval", "seconds", "Between two samples of the profile; 0: none.", (MEASURE,), "500ms"),
    Argument("profile", "file", "Utilisation, memory, power, clocks and bytes over time: csv.", (MEASURE,)),
    Argument("profile_plot", "file", "The same drawn: png, svg, html.", (MEASURE,)),
    Argument("out", "file", "csv (cases: or parquet); what is finished in it is kept.", (MEASURE,)),
    Argument("plot", "file", "Draw a png, svg or html.", (MEASURE,)),
    Argument("plot_kind", "text", "lines or heatmap.", (MEASURE,)),
    Argument("plot_value", "text", "Which metric to draw, such as tpot_s.", (MEASURE,)),
    Argument("json", "flag", "Print every row as JSON.", (MEASURE,)),
    # compare
    Argument("model", "text", "Model, where a file names none that is known.", (COMPARE,)),
    Argument("release", "text", "Release of the engine.", (COMPARE,)),
    Argument("batch", "count", "Sequences at a time, where a file does not say.", (COMPARE,), least=1),
    Argument("prompt", "count", "Prompt tokens, where a file does not say.", (COMPARE,), least=1),
    Argument("output", "count", "Output tokens, where a file does not say.", (COMPARE,), least=1),
    Argument("spread", "spread", "Lengths as shares LOW,HIGH of prompt and output.", (COMPARE,)),
    Argument("shared_prefix", "count", "Prompt tokens that all requests share.", (COMPARE,)),
    Argument("replicas", "count", "Replicas behind a router.", (COMPARE,), least=1),
    Argument("option", "pairs", "Server option: budget=16384, prefix_caching=true, ...", (COMPARE,)),
    Argument("clock", "text", "wall, or cpu where other work ran on a measured machine.", (COMPARE,), "wall"),
    Argument("why", "switch", "Play what may be the cause of the gap, best first.", (COMPARE,), True),
    Argument("out", "file", "Write every pair: csv.", (COMPARE,)),
    Argument("plot", "file", "Draw predicted over measured (png, svg).", (COMPARE,)),
    Argument("json", "flag", "Print one JSON object; errors are fractions.", (COMPARE,)),
)  # fmt: skip
"""What a command alone has: how its answer is shown, and where it goes."""

MODEL = "Name, Hugging Face id, config.json or .toml"


def rows_of(command: str, calls: Iterable[str]) -> dict[str, Argument]:
    """The options of a command, by name: the arguments of its calls that a shell has, then what it alone has."""
    found: dict[str, Argument] = {}
    for call in calls:
        found |= {name: a for name, a in arguments(call).items() if a.shell and name not in found}
    return found | {a.name: a for a in SHELL if command in a.of}


def parameter(a: Argument, unset: bool = False) -> inspect.Parameter:
    """The option of an argument as typer reads it. unset: without its default, so that one can tell it was given."""
    kind = WRITTEN[a.kind]
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
    only: Iterable[str] | None = None,
    first: inspect.Parameter | None = None,
) -> Callable[..., None]:
    """The function behind a command: its options are rows, its values go to `run(model, arguments, shown)`.

    told: its help; axes: the model may be a comma list; unset: names of options whose default is not filled in; only:
    of the calls' arguments these alone; first: what comes before the options, where it is not one model.
    """
    kept = None if only is None else set(only)
    rows = {n: a for n, a in rows_of(name, calls).items() if kept is None or n in kept or a in SHELL}
    bare = set(unset)
    help_ = f"{MODEL}; a comma list makes an axis." if axes else f"{MODEL}."
    lead = first or inspect.Parameter(
        "model", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[str, typer.Argument(help=help_)]
    )

    def call(**given: Any) -> None:
        model = given.pop(lead.name)
        read = {
            a.name: given[a.name] if given[a.name] is None else WRITTEN[a.kind].read(given[a.name], a.name)
            for a in rows.values()
        }
        asked = {k: v for k, v in read.items() if rows[k] not in SHELL and v is not None and v != {}}
        run(values.texts(model) if axes else model, asked, {k: v for k, v in read.items() if rows[k] in SHELL})

    options = [parameter(a, a.name in bare) for a in rows.values()]
    call.__signature__ = inspect.Signature([lead, *options])  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in (lead, *options)}
    call.__doc__, call.__name__ = told, name.replace(" ", "_")
    return call


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


assert WRITTEN.keys() >= KINDS.keys() - {"server", "progress"}
