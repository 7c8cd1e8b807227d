"""Checks of the raw command line: repeated options; and a fast path for text values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rooflm.errors import RooflmError


def refuse_repeated(command: Any, context: Any, words: Sequence[str]) -> None:
    """RooflmError if an option is given twice, or a name twice in NAME=VALUE options. Skipped for --help and
    --version."""
    values, _, order = command.make_parser(context).parse_args(args=[*words])
    if any(option.is_eager for option in order):
        return
    single = [option for option in order if not option.multiple]
    given = ["/".join((option.opts[-1], *option.secondary_opts)) for option in single]
    lists = {option.opts[-1] for option in single if not getattr(option, "is_flag", False) and option.metavar != "FILE"}
    for option in {*order}:
        if option.multiple:
            pairs = [text.partition("=") for text in values[option.name]]
            given += [f"{option.opts[-1]} {name.strip()}" for name, equals, _ in pairs if equals and name.strip()]
    for name, times in Counter(given).items():
        if times > 1:
            hint = ": a list has commas" if name in lists else ""
            raise RooflmError(f"{name} is given {times} times, but it may be given once{hint}")


def without_conversion(parameter: Any) -> Callable[[Any, Any], Any]:
    """A `process_value` that passes text through unchanged; typer would import pydantic for it, a fifth of a short
    command's time. Other types are left to typer."""
    usual, many = parameter.process_value, parameter.multiple or parameter.nargs == -1
    texts = getattr(getattr(parameter, "type_descriptor", None), "annotation", None) in (str, list[str])

    def process(context: Any, value: Any) -> Any:
        if (parameter.required and not value) or not (value is None or texts):
            return usual(context, value)
        value = [*(value or ())] if many else value
        return parameter.callback(context, parameter, value) if parameter.callback else value

    return process
