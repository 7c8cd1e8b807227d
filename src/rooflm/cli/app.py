"""The `rooflm` command: its sub-commands, and the one place where bad input becomes a sentence and exit status 2."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

import typer

from rooflm.cli import calibrate as calibrate_command
from rooflm.cli import compare as compare_command
from rooflm.cli import explore as explore_command
from rooflm.cli import lists, predict, serve
from rooflm.cli import measure as measure_command
from rooflm.cli import search as search_command
from rooflm.cli import validate as validate_command
from rooflm.cli import web as web_command
from rooflm.cli.options import bare, group
from rooflm.errors import RooflmError
from rooflm.version import __version__

app = group("rooflm", "Predict and measure the performance of large language models.")
app.command("infer")(predict.infer_command)
app.command("train")(predict.train_command)
app.command("validate")(validate_command.validate)
app.add_typer(explore_command.app, name="explore")
app.add_typer(search_command.app, name="search")
app.command("measure")(measure_command.measure)
app.command("compare")(compare_command.compare)
app.command("calibrate")(calibrate_command.calibrate)
app.command("serve")(serve.serve_command)
app.command("web")(web_command.web)
app.command("list")(lists.list_rows)
app.command("show")(lists.show_row)


def _version(asked: bool) -> None:
    if asked:
        print(f"rooflm {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Predict and measure the performance of large language models."""
    bare(context)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    print(f"rooflm: warning: {message}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (0, or 2 for bad input). Errors go to standard error."""
    warnings.showwarning = _warn
    try:
        ended = app(args=list(arguments) if arguments is not None else None, standalone_mode=False)
    except RooflmError as error:
        print(f"rooflm: {error}", file=sys.stderr)
        return 2
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        print("rooflm: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:
        usage = getattr(error, "format_message", None)
        if usage is None:
            raise
        print(f"rooflm: {' '.join(usage().split())}", file=sys.stderr)
        return 2
    return ended if isinstance(ended, int) else 0  # typer gives back the status of what was interrupted


def run() -> None:
    """Entry point of the `rooflm` script."""
    raise SystemExit(main())
