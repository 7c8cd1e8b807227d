"""An option that a command lacks: a user who types another tool's name for it is told ours, and whose it is who types
one of another command."""

from __future__ import annotations

import difflib

from rooflm.asked.arguments import BEST, EVERY, FIT, LOAD, arguments
from rooflm.asked.synonyms import TOGETHER, meanings, plain

MOST_LISTED = 16
"""How many options a sentence holds."""

WHERE = {BEST: "search infer", LOAD: "search infer", FIT: "search train"}
"""Public call -> its command, where that has another name."""


def other_tools_option(error: BaseException) -> str:
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
    named = " or ".join(
        has[name] for of in dict.fromkeys((plain(theirs), *meanings(theirs))) for name in (f"--{of}", of) if name in has
    )
    if "release" in (plain(theirs), *meanings(theirs)) and "--engine" in has:
        return f"No such option: {theirs}; a release stands behind its engine: --engine NAME==RELEASE, as vllm==0.11"
    together = TOGETHER.get(plain(theirs), "")
    if together and {word for word in together.split() if word.startswith("--")} <= has.keys():
        return f"No such option: {theirs}; {context.info_name} says it as {together}"
    if named:
        users = "concurrency" in (plain(theirs), *meanings(theirs)) and context.info_name == "infer"
        static = ", of requests that start together; `rooflm serve` has users who come and go" * users
        return f"No such option: {theirs}; {context.command_path.removeprefix('rooflm ')} calls it {named}{static}"
    for name in (own.replace("-", "_") for own in (plain(theirs), *meanings(theirs))):
        others = dict.fromkeys(WHERE.get(c, c) for c in EVERY if name in arguments(c) and arguments(c)[name].shell)
        if others:
            ours = name.replace("_", "-")
            named = "" if ours == plain(theirs) else f", which call it --{ours}"
            return f"No such option: {theirs}; it is of {', '.join(others)}{named}"
    name = plain(theirs).replace("-", "_")
    if "--set" in has and (paths := set_paths(name, context.info_name == "train")):
        return f"No such option: {theirs}; an input by its path: {' or '.join(f'--set {p}=VALUE' for p in paths[:3])}"
    options = [option[2:] for option in has.values() if option.startswith("--") and option != "--help"]
    near = difflib.get_close_matches(plain(theirs), options, 2, 0.8)
    if near or 0 < len(options) <= MOST_LISTED:
        said = f"did you mean --{' or --'.join(near)}?" if near else f"{context.info_name} has --{', --'.join(options)}"
        return f"No such option: {theirs}; {said}"
    return f"No such option: {theirs}; see `{context.command_path} --help`"


def set_paths(name: str, training: bool) -> list[str]:
    """Inputs of a prediction that have a path and no option, of that name or of one that begins with it.

    >>> set_paths("offload_optimizer", True), set_paths("gap", False), set_paths("offload", False)
    (['training.offload_optimizer'], ['engine.gap'], [])
    """
    from rooflm.asked.bounds import DESCRIBED
    from rooflm.catalogue.fields import abouts
    from rooflm.readers.engines import ABOUT

    known = {part: abouts(kind) for part, kind in DESCRIBED.items() if training == (part == "training")}
    every = [f"{part}.{field}" for part, fields in (known | {"engine": ABOUT}).items() for field in fields]
    return [p for p in every if f"{p.partition('.')[2]}_".startswith(f"{name}_")]
