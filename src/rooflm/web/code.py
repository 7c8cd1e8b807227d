"""The question of a tab as Python and as a command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from rooflm.asked.arguments import arguments
from rooflm.catalogue.model import Model

IMPORT = "import rooflm"


def model_text(model: Any) -> str:
    """A model as a call takes it: its name, or the file that was dropped."""
    return str(model.source) if isinstance(model, Model) else str(model)


def given(call: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not as the call has them by itself."""
    known = arguments(call)
    return {k: v for k, v in asked.items() if k in known and v != known[k].default}


def as_python(call: str, asked: Mapping[str, Any], name: str = "answer") -> str:
    """The call.

    >>> print(as_python("infer", {"model": "llama-7b", "gpu": "a100", "batch": 8, "output": 128}))
    import rooflm
    <BLANKLINE>
    answer = rooflm.infer("llama-7b", gpu="a100", batch=8)
    print(answer)
    """
    words = [_literal(model_text(asked["model"])), *(f"{k}={_literal(v)}" for k, v in given(call, asked).items())]
    line = f"{name} = rooflm.{call}({', '.join(words)})"
    if len(line) > 88:
        line = f"{name} = rooflm.{call}(\n    {_filled(words)},\n)"
    return f"{IMPORT}\n\n{line}\nprint({name})"


def together(pieces: Iterable[str]) -> str:
    """Calls one after the other, with what they import once.

    >>> print(together(["import rooflm\\n\\na = 1", "import rooflm\\n\\nb = 2"]))
    import rooflm
    <BLANKLINE>
    a = 1
    <BLANKLINE>
    b = 2
    """
    return "\n\n".join([IMPORT, *(piece.removeprefix(f"{IMPORT}\n\n") for piece in pieces)])


def _filled(words: list[str]) -> str:
    """Arguments in lines of at most 88 characters.

    >>> _filled(["a=1", "b=" + "2" * 80, "c=3"]).count("\\n")
    2
    """
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > 80:
            lines.append("")
        lines[-1] += f"{', ' if lines[-1] else ''}{word}"
    return ",\n    ".join(lines)


def _literal(value: Any) -> str:
    """A value as Python writes it, names in double quotes."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    return repr(value)


COMMANDS = {"search_infer": "search infer", "search_serve": "search infer", "search_train": "search train"}
"""Call -> its command, where that has another name."""


def as_command(call: str, asked: Mapping[str, Any], more: str = "") -> str:
    """The command.

    >>> as_command("infer", {"model": "llama-7b", "gpu": "a100", "batch": [1, 8], "output": 128})
    'rooflm infer llama-7b --gpu a100 --batch 1,8'
    """
    words = ["rooflm", *COMMANDS.get(call, call).split(), shlex.quote(model_text(asked["model"]))]
    known = arguments(call)
    for name, value in given(call, asked).items():
        text = ",".join(map(_shell, value)) if isinstance(value, list | tuple) else _shell(value)
        words += [known[name].option or f"--{name.replace('_', '-')}", shlex.quote(text)]
    return " ".join([*words, more]).strip()


def _shell(value: Any) -> str:
    """A value as an option takes it."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
