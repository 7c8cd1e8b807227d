"""From an answer to HTML and to what the page's script reads."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from rooflm.errors import RooflmError
from rooflm.shown.answer import plain
from rooflm.shown.blocks import Fold
from rooflm.shown.notebook import command
from rooflm.shown.version import __version__
from rooflm.web.asked import Asked
from rooflm.web.blocks import Answer, Figure
from rooflm.web.dropped import dropped_model, is_dropped, shown_name
from rooflm.web.fields import BY_KEY, WORDS, Field, choices
from rooflm.web.memo import is_kept, memoised
from rooflm.web.tabs.table import TABS, Tab
from rooflm.web.words import bar

HERE = Path(__file__).parent
LISTS = ("model", "gpu", "engine", "quant", "cluster")
"""Kinds of names that a field offers while a person types."""


@cache
def environment() -> Environment:
    """The templates, every value escaped."""
    found = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
                        trim_blocks=True, lstrip_blocks=True)  # fmt: skip
    found.globals.update(
        tabs=TABS,
        fields=BY_KEY,
        version=__version__,
        words=WORDS,
        shown_name=shown_name,
        bar=bar,
        is_folded=is_folded,
        kind=kind,
    )
    found.filters.update(kept=kept, whole=lambda text: Markup(command(text)))
    return found


@cache
def options(kind: str) -> Markup:
    """The names of a kind as options, written once: there are hundreds, and every page has them."""
    return Markup("").join(Markup('<option value="{}">').format(name) for name in choices(kind))


def kept(text: str) -> Markup:
    """A sentence that breaks between no number and what it counts, and within no short name.

    >>> str(kept("rtx-4090 < 1.88 s"))
    '<span class="kept">rtx-4090</span> &lt; <span class="kept">1.88 s</span>'
    """
    counted = r"\d[\d.,]* (?:\w{1,12}|%)(?![\w-])"
    named = r"(?=[\w.-]{3,20}(?![\w.-]))\w+(?:[-.]\w+)+"
    pattern = rf"(?<![\w-])(?:{counted}|{named})"
    return Markup(re.sub(pattern, r'<span class="kept">\g<0></span>', str(escape(text))))


def kind(block: Any) -> str:
    """The template macro that draws a block."""
    return type(block).__name__.lower()


def is_folded(block: Any) -> bool:
    """Whether a block stands below the pictures."""
    return isinstance(block, Fold)


class Shown:
    """A tab's answer, or what is wrong with what was asked."""

    def __init__(self, tab: Tab, asked: Asked) -> None:
        self.tab, self.asked = tab, asked
        self.answer: Answer | None = None
        self.errors = asked.errors()
        if self.errors:
            return
        try:
            self.answer = tab.answer(asked)
        except RooflmError as error:
            self.errors = {asked.blamed(error): str(error)}

    @cached_property
    def whole(self) -> Answer | None:
        """The answer with what takes seconds, worked out when first asked for: the stops of a slider have none."""
        return self.answer.more() if self.answer and self.answer.more else self.answer

    def html(self, whole: bool = True) -> str:
        """The answer as a fragment."""
        errors = [(BY_KEY[k].label if k else "", v) for k, v in self.errors.items()]
        return environment().get_template("answer.html").render(
            a=self.whole if whole else self.answer, errors=errors, tab=self.tab, notes=dropped_notes(self.asked)
        )  # fmt: skip

    def rest(self) -> str:
        """The part below the answer: numbers, assumptions, code, files."""
        query = self.asked.query()
        return environment().get_template("rest.html").render(a=self.whole, tab=self.tab, query=query)

    @cached_property
    def figures(self) -> Sequence[Figure]:
        """The pictures, drawn when first asked for: the stops of a slider have none."""
        return self.answer.figures() if self.answer else ()

    def pictures(self) -> str:
        """The places of the pictures as a fragment."""
        return environment().get_template("figures.html").render(figures=self.figures)

    def as_dict(self) -> dict[str, Any]:
        """The parts of the page that the script replaces."""
        return {
            "html": self.html(), "rest": self.rest(), "errors": self.errors, "query": self.asked.query(),
            "pictures": self.pictures(), "figures": plain([dict(f.spec) for f in self.figures]),
        }  # fmt: skip


class Unanswered(Shown):
    """A tab's answer before it is asked for."""

    def __init__(self, tab: Tab, asked: Asked) -> None:
        self.tab, self.asked, self.answer, self.errors = tab, asked, None, {}

    def html(self, whole: bool = True) -> str:
        """Nothing yet."""
        return ""


def dropped_notes(asked: Asked) -> tuple[str, ...]:
    """What a person should know of how a dropped model was read."""
    name = asked.texts.get("model", "").strip()
    try:
        return dropped_model(name)[1] if is_dropped(name) else ()
    except RooflmError:
        return ()


def answer_of(tab: Tab, asked: Asked) -> Shown:
    """A tab's answer, cached."""

    def made() -> Shown:
        found = Shown(tab, asked)
        _ = found.whole  # all that takes seconds
        return found

    return memoised(key_of(tab, asked), made)


def key_of(tab: Tab, asked: Asked) -> str:
    """Under which an answer is kept."""
    return f"shown {tab.name}?{asked.query()}"


def is_known(tab: Tab, asked: Asked) -> bool:
    """Whether an answer was worked out already."""
    return is_kept(key_of(tab, asked))


def whole_page(tab: Tab, asked: Asked, later: bool = False, unread: Sequence[str] = ()) -> str:
    """The page with its first answer, or with a place for it: its script then asks. unread: what is said of names in
    the address that are no fields."""
    found = Unanswered(tab, asked) if later else answer_of(tab, asked)
    keys = [BY_KEY[k] for k in tab.keys]
    figures = json.dumps(plain([dict(f.spec) for f in found.figures])).replace("<", "\\u003c")
    return environment().get_template("page.html").render(
        tab=tab, asked=asked, value=lambda f: asked.texts.get(f.key, f.usual), errors=found.errors,
        answer=found.html(), pictures=found.pictures(), rest=found.rest(), figures=figures, main=sections(keys),
        lists=LISTS, options=options, keys=keys, more=[f for f in keys if f.more], query=asked.query(),
        later=later, unread=unread, sliders=[BY_KEY[k] for k in tab.sliders],
    )  # fmt: skip


SECTIONS = (("What", ("model", "gpu", "gpus", "engine", "quant")), ("Work", ("prompt", "output", "batch")))
"""Headings of the shared fields."""
GROUPS = {"": "Limits", "find": "Find", "train": "Training", "map": "Map", "b": "Second", "c": "Third", "d": "Fourth"}
"""Headings of the fields of a tab's own."""


def sections(keys: list[Field]) -> list[tuple[str, list[Field]]]:
    """The fields that are always in sight, under their headings."""
    here = [f for f in keys if not f.more]
    found = [(title, [f for f in here if f.key in names]) for title, names in SECTIONS]
    rest = [f for f in here if not any(f.key in names for _, names in SECTIONS)]
    for group, title in GROUPS.items():
        found.append((title, [f for f in rest if f.group == group]))
    return [(title, fields) for title, fields in found if fields]


def frames(tab: Tab, asked: Asked, key: str) -> list[dict[str, Any]]:
    """The answers at all stops of a slider, computed together so that dragging needs no request."""

    def compute() -> list[dict[str, Any]]:
        found = []
        for stop in BY_KEY[key].stops:
            at = Asked(tab.name, asked.keys, {**asked.texts, key: str(stop)})
            one = Shown(tab, at)
            found.append({"value": str(stop), "html": one.html(whole=False), "errors": one.errors})
        return found

    rest = Asked(tab.name, asked.keys, {**asked.texts, key: ""}).query()
    return memoised(f"frames?{tab.name}&{key}&{rest}", compute)


def as_json(found: Answer) -> str:
    """The numbers of an answer."""
    return json.dumps(plain(dict(found.data())), indent=1)


def as_csv(found: Answer) -> str:
    """The rows of an answer, else its numbers as one row."""
    rows = [dict(r) for r in found.rows] or [flat(plain(dict(found.data())))]
    out = io.StringIO()
    names = list(dict.fromkeys(k for r in rows for k in r))
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Groups as dotted names, lists as text."""
    found: dict[str, Any] = {}
    for k, v in values.items():
        if isinstance(v, dict):
            found |= flat(v, f"{before}{k}.")
        else:
            found[f"{before}{k}"] = "; ".join(map(str, v)) if isinstance(v, list) else v
    return found
