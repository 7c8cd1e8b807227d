"""A query parsed for a tab: the text of each field, its value, and any error in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from rooflm.asked.arguments import arguments
from rooflm.asked.build_inference import find_model
from rooflm.errors import RooflmError, near_matches
from rooflm.web.fields import BY_KEY, value_of


class FieldError(RooflmError):
    """An error in a field's value (key "": in none alone)."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True)
class Asked:
    """The fields of a tab. texts: what stands in every field of the page; keys: fields of this tab."""

    tab: str
    keys: tuple[str, ...]
    texts: Mapping[str, str]
    values: dict[str, Any] = field(default_factory=dict)

    def value(self, key: str) -> Any:
        """The value of a field, None where it is empty. FieldError says what is wrong with it."""
        if key not in self.values:
            text = self.texts.get(key, BY_KEY[key].usual).strip()
            try:
                self.values[key] = value_of(BY_KEY[key], text) if text else None
            except RooflmError as error:
                raise FieldError(key, str(error)) from None
            if key == "model" and self.values[key] is None:
                raise FieldError(key, "model is missing: name one, or drop its config.json")
        return self.values[key]

    def errors(self) -> dict[str, str]:
        """Field -> what is wrong with what it holds."""
        found = {}
        for key in self.keys:
            try:
                self.value(key)
            except FieldError as error:
                found[key] = str(error)
        return found

    def arguments(self, call: str, group: str = "") -> dict[str, Any]:
        """The arguments of a call: the tab's fields that it has, those of the group before the shared ones."""
        known = arguments(call)
        own = {k.rpartition(".")[2]: k for k in self.keys if k.rpartition(".")[0] == group}
        shared = {k: k for k in self.keys if "." not in k}
        chosen = {**shared, **{name: key for name, key in own.items() if group == "" or self.value(key) is not None}}
        found = {name: self.value(key) for name, key in chosen.items() if name in known or name == "model"}
        if "output" in found and self.texts.get("output", "") in ("", BY_KEY["output"].usual):
            models = found["model"] if isinstance(found["model"], list) else [found["model"]]
            if not any(find_model(m).head for m in models):
                del found["output"]  # it embeds texts, and nobody asked for an output
        return {name: v for name, v in found.items() if v is not None}

    def single(self, given: Mapping[str, Any], free: Iterable[str] = ()) -> dict[str, Any]:
        """The arguments, if none but the free ones is a list."""
        for name, v in given.items():
            if isinstance(v, list) and name not in free:
                raise RooflmError(f"{name} is a list, but here one is asked for at a time: the map takes lists")
        return dict(given)

    def but(self, **changes: Any) -> Asked:
        """The same with other texts; keys with a dot are written with two underscores."""
        new = {k.replace("__", "."): str(v) for k, v in changes.items()}
        return Asked(self.tab, self.keys, {**self.texts, **new})

    def query(self, **changes: Any) -> str:
        """The address of the same with other texts: only what is not as at first."""
        texts = self.but(**changes).texts
        return urlencode({k: v for k, v in texts.items() if k in BY_KEY and v != BY_KEY[k].usual})

    def blamed(self, error: RooflmError) -> str:
        """The field that an error message is about, the first that it names; "" if it names none."""
        if isinstance(error, FieldError):
            return error.key
        text = str(error).lower()
        words = re.findall(r"[a-z_]+", text.replace("quantisation", "quant").replace("--", ""))
        names: dict[str, str] = {}
        for key in sorted(self.keys, key=lambda k: "." not in k):
            names.setdefault(key.rpartition(".")[2], key)
        return next((names[w] for w in words[:12] if w in names), "")


def read_query(tab: str, keys: Iterable[str], query: Mapping[str, str]) -> Asked:
    """What an address asks of a tab. Names that no field has are left out."""
    return Asked(tab, tuple(keys), {k: v for k, v in query.items() if k in BY_KEY})


def unread(keys: Iterable[str], query: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence on each name of an address that a tab does not read: of no field at all, or of other tabs where this
    one has a field of its own, which the address leaves out (fields of other tabs alone are kept for these).

    >>> unread(["model", "train.gpus"], {"gpus": "64", "now": "1"})
    ('The address has gpus, which is not read here: did you mean train.gpus?',)
    """
    own, found = tuple(keys), []
    for key in (k for k in query if k not in own and k not in READ):
        named = [k for k in own if k.rpartition(".")[2] == key.rpartition(".")[2]]
        if key in BY_KEY and (not named or any(k in query for k in named)):
            continue
        near = named or near_matches(key[:40], own)
        found.append(
            f"The address has {key[:40]}, which is not read here" + (f": did you mean {near[0]}?" if near else ".")
        )
    return tuple(found)


READ = ("now",)
"""Names of an address that are no fields: of a browser without scripts (`server.whole`)."""
