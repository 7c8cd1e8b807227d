"""An option that a command lacks: a user who types another tool's name for it is told ours, and whose it is who types
one of another command."""

from __future__ import annotations

from rooflm.asked.arguments import BEST, EVERY, FIT, LOAD, arguments
from rooflm.asked.synonyms import meanings, plain

WHERE = {BEST: "search infer", LOAD: "search infer", FIT: "search train"}
"""Public call -> its command, where that has another name."""


def other_tools_option(error: Exception) -> str:
    """Our name for an option that another tool calls differently, or the commands that have it; "" for any other error.

    >>> other_tools_option(ValueError("no"))
    ''
    """
    theirs, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if theirs is None or context is None:
        return ""
    has = {
        name.lower(): name if name.startswith("-") else f"{name.upper()}, without dashes"
        for option in context.command.params
        for name in option.opts
    }
    named = " or ".join(has[name] for of in meanings(theirs) for name in (f"--{of}", of) if name in has)
    if "release" in (plain(theirs), *meanings(theirs)) and "--engine" in has:
        return f"No such option: {theirs}; a release stands behind its engine: --engine NAME==RELEASE, as vllm==0.11"
    if named:
        return f"No such option: {theirs}; {context.info_name} calls it {named}"
    name = plain(theirs).replace("-", "_")
    others = dict.fromkeys(WHERE.get(c, c) for c in EVERY if name in arguments(c) and arguments(c)[name].shell)
    return f"No such option: {theirs}; it is of {', '.join(others)}" if others else ""
