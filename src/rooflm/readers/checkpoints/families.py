"""What each Hugging Face `model_type` calls things and what it fixes: a row of data/families.toml each.

A trait is either fixed (True, False) or the name of the config's own field: "field" (absent: false), "field?" (absent:
true), or "field!", the opposite of a field (absent: true). Names with a dot are looked up inside a nested object.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import msgspec

from rooflm.readers import outside
from rooflm.readers.rows import DATA, convert

Trait = bool | str


class Family(NamedTuple):
    """One family. `names`: our name -> the config's, where it is not the usual one (`STANDARD`).

    `defaults`: fields that the released configs leave out. `width_factor`: feed-forward width over hidden where the
    config has no width. `out_bias` None: as `bias`. `norms`: norm weights a layer; `window`: the rule by which layers
    get the window when there is no `layer_types`: "never", "all", "even", "period" (all but each n-th), "after" (all
    but the first of each n), "late" (from max_window_layers on) or "chunked". `tied`: when the config does not say.
    `extra`: named corrections. `causal`: False where a token sees all others; such a model embeds texts. `layers`: the
    builder of layers that are not one mixer and one feed-forward (`unusual.BUILDERS`). `note`: what of its physics is
    approximate, told with each answer.
    """

    names: dict[str, str] = {}  # noqa: RUF012 - never changed
    defaults: dict[str, Any] = {}  # noqa: RUF012 - never changed
    width_factor: int = 0
    bias: Trait = "attention_bias"
    out_bias: Trait | None = None
    ffn_bias: Trait = "mlp_bias"
    head_bias: Trait = False
    gated: bool = True
    norm: str = "rms"
    norms: int = 2
    parallel: Trait = False
    qk_norm: Trait = False
    gate: Trait = False
    rope: bool = True
    position_offset: int | None = None
    window: str = "all"
    tied: bool = False
    router_bias: Trait = False
    shared_gate: bool = False
    extra: tuple[str, ...] = ()
    causal: bool = True
    layers: str = ""
    note: str = ""


class Refused(msgspec.Struct, forbid_unknown_fields=True):
    """Why configs with some model_types are rejected."""

    why: str
    names: list[str]


class Kinds(msgspec.Struct, forbid_unknown_fields=True):
    """How configs say what each layer is. names: in lists -> ours; lists: what they call these; numbered: lists of
    numbers -> what 0 and 1 stand for; lightning: fields of which any says that recurrent layers are such."""

    names: dict[str, str]
    lists: tuple[str, ...]
    numbered: dict[str, tuple[str, str]]
    lightning: tuple[str, ...]


class Table(msgspec.Struct, forbid_unknown_fields=True):
    """The file. standard: our names -> what configs call them, the usual one first; same: those with the row of
    another; gguf: llama.cpp's general.architecture -> model_type of the same layers."""

    kinds: Kinds
    standard: dict[str, tuple[str, ...]]
    families: dict[str, dict[str, Any]]
    same: dict[str, str]
    refused: list[Refused]
    gguf: dict[str, str]


@cache
def table() -> Table:
    """data/families.toml."""
    path = DATA / "families.toml"
    return convert(outside.read_toml(path, "families"), Table, path.name)


@cache
def families() -> dict[str, Family]:
    """model_type -> its row. A row may build on another (`base`)."""
    rows, found = table().families, {}
    for name, row in rows.items():
        whole = rows.get(row.get("base", ""), {}) | row
        whole |= {"extra": tuple(whole.get("extra", ()))}
        found[name] = Family(**{field: value for field, value in whole.items() if field != "base"})
    return found | {name: found[other] for name, other in table().same.items()}


def refused(name: str) -> str:
    """Why configs with a model_type are rejected; "" if they are accepted."""
    return next((group.why for group in table().refused if name in group.names), "")
