"""The `rooflm` command: its sub-commands, and the one place where bad input becomes a sentence and exit status 2."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

import typer

from rooflm.cli.console import Voice, never_fail_to_encode, tell
from rooflm.cli.examples import START, below, exemplified
from rooflm.cli.guard import install_signal_handlers, run_guarded
from rooflm.cli.options import group, help_if_alone
from rooflm.shown.version import __version__

PREDICT, CHOOSE, TRUST, LOOK = "Predict", "Choose", "Measure, and how far to trust it", "What is known"
COMMANDS = {
    "infer": ("predict:infer_command", PREDICT, "Inference: time, memory and fit, bounds, energy, cost."),
    "train": ("predict:train_command", PREDICT, "Training: step, memory and fit, MFU, days and cost of a run."),
    "predict": ("kernel:app", PREDICT, "One kernel or one collective."),
    "serve": ("serve:serve_command", PREDICT, "Users on a deployment, simulated: TTFT, TPOT, queue, cost."),
    "search": ("search:app", CHOOSE, "The best split, batch and scheme under constraints."),
    "explore": ("explore:app", CHOOSE, "Hardware: what a node, a memory or a network buys."),
    "study": ("study:study_command", CHOOSE, "Published works: their numbers beside ours."),
    "report": ("report:report", CHOOSE, "One page for whoever pays, of a scenario file."),
    "web": ("web:web", CHOOSE, "All of it as a page in a browser, without the internet."),
    "measure": ("measure:measure_command", TRUST, "Models on this machine, or a server under load."),
    "compare": ("compare:compare_command", TRUST, "Predict measured runs: both times, and why they part."),
    "calibrate": ("calibrate:calibrate_command", TRUST, "Fit a machine's constants to its measurements."),
    "validate": ("validate:validate_command", TRUST, "How far off predictions of measured runs are."),
    "list": ("lists:list_command", LOOK, "What the catalogue holds."),
    "show": ("lists:show_command", LOOK, "One row of it with its sources, or a kind of file."),
}
"""Command -> module and name of its function or group, its heading in the list of commands, and what it does in a line
there."""
STATUS = (
    "Exit status: 0 answered, also where the answer is that it does not fit; 1 a",
    "search found nothing, or standard output could not be written; 2 bad input, a",
    "file that cannot be read or written, or too little memory; 130 interrupted.",
)


def build_app(words: Sequence[str]) -> typer.Typer:
    """The Typer application. Only the command that the words name is imported; all of them if they name none."""
    app = group("rooflm", "Predict and measure the performance of large language models.",
                [*below(*START), *(f" {line}" for line in STATUS)], [*COMMANDS], complete=True)  # fmt: skip
    app.callback(invoke_without_command=True)(_root)
    first = next((w for w in words if not w.startswith("-")), "")
    for name in [first] if first in COMMANDS else COMMANDS:
        where, panel, does = COMMANDS[name]
        module, _, attribute = where.partition(":")
        found = getattr(import_module(f"rooflm.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, rich_help_panel=panel, short_help=does, cls=exemplified(name))
        else:
            app.command(name, rich_help_panel=panel, short_help=does, cls=exemplified(name))(found)
    return app


def completion_words() -> list[str]:
    """The words of a command line that a shell wants completed; empty in a normal run."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
    try:
        return shlex.split(line)[1:]
    except ValueError:
        return line.split()[1:]


def _version(asked: bool) -> None:
    if asked:
        print(f"rooflm {__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
    quiet: bool = typer.Option(False, "--quiet", help="The answer alone: no assumptions, warnings or progress."),
    verbose: bool = typer.Option(False, "--verbose", help="Also what stands behind the answer."),
) -> None:
    """Predict and measure the performance of large language models."""
    Voice.quiet, Voice.verbose = quiet, verbose
    help_if_alone(context)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    tell(f"warning: {message}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (see STATUS and `guard`). Errors go to standard error."""
    warnings.showwarning = _warn
    never_fail_to_encode()
    Voice.quiet = Voice.verbose = False
    words = sys.argv[1:] if arguments is None else list(arguments)
    return run_guarded(
        lambda: build_app(completion_words() or words)(args=words, prog_name="rooflm", standalone_mode=False)
    )


def run() -> None:
    """Entry point of the `rooflm` script."""
    install_signal_handlers()
    raise SystemExit(main())
