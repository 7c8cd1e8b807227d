"""Another tool's name for an option: a user who types it is told ours."""

from __future__ import annotations

from rooflm.asked.synonyms import meanings


def other_tools_option(error: Exception) -> str:
    """Our name for an option that another tool calls differently; "" for any other error.

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
    return f"No such option: {theirs}; {context.info_name} calls it {named}" if named else ""
