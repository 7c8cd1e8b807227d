"""What every estimate can do: say itself in a few lines, compare, and become plain names and numbers (the keys of
--json, the columns of files, the variables of a Dataset) by one table of outputs a kind of estimate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from rooflm.errors import RooflmError, near_matches
from rooflm.estimate.bands import around, band, own_band
from rooflm.kernels.lookup import standing_in
from rooflm.scenario.scenario import Scenario
from rooflm.shown.answer import Answer, broadcast, flatten, frame, plain, same, shown
from rooflm.units import Num

if TYPE_CHECKING:
    import pandas

    from rooflm.estimate.capacity import Limits


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest device: parts sum to total; capacity is what may be used of it."""

    parts: dict[str, Num]
    total: Num
    capacity: Num

    @property
    def margin(self) -> Num:
        """Bytes left (negative: missing)."""
        return self.capacity - self.total


class Output(NamedTuple):
    """One output. key: of --json, with its unit as its end where it has one; meaning and unit of the values (of a
    group's members); read: how an estimate gives it; phase: of its error band, where it has one."""

    key: str
    meaning: str
    unit: str
    read: Callable[[Any], Any]
    phase: str = ""


PRICE = (
    Output("price_usd_per_hour", "price of an hour of one GPU", "USD", lambda e: e.scenario.cluster.device.price),
    Output("price_basis", "what that price is: kind and date", "", lambda e: e.scenario.cluster.device.priced),
)
"""What costs rest on."""
Outputs = Mapping[str, Output]
"""The table of outputs, by key."""


def whose_constants(s: Scenario, assumed: tuple[str, ...]) -> tuple[str, ...]:
    """What was assumed, with whose measured kernels stand in for a device that has none of its own."""
    told = standing_in(s)
    if not told:
        return assumed
    return tuple(f"{a} ({told})" if a == "efficiency calibrated" else a for a in assumed)


def table(*rows: Output) -> dict[str, Output]:
    """Rows by their key; a key stands once."""
    found = {row.key: row for row in rows}
    assert len(found) == len(rows)
    return found


OFFLOADED = 1.6
"""Power by which bands are wider where the host holds layers, adapters are served or texts embedded: nobody's runs of
that were fitted."""


def bands_around(s: Scenario, asked: Mapping[str, tuple[str, Num]]) -> dict[str, dict[str, Any]]:
    """Key -> (phase, predicted time) to key -> ends of the error band (s) and the number of published rows behind it;
    not-a-number and 0 rows where nothing was calibrated."""
    bands: dict[str, dict[str, Any]] = {}
    for key, (phase, value) in asked.items():
        own = own_band(phase, s.cluster.device.measured.off) if s.cluster.device.measured else None
        found = own or band(phase, s.engine.runs, s.cluster.device.architecture)
        found = found if s.efficiency.mode == "calibrated" else None
        if found and found is not own:
            unseen = np.asarray(s.offload.layers + s.offload.experts + s.adapters.held + (not s.model.head)) > 0
            usual = s.offload.off and s.adapters.off and s.model.head
            doubt = s.engine.doubt * (1.0 if usual else np.where(unseen, OFFLOADED, 1.0))
            found = found._replace(low=found.low**doubt, high=found.high**doubt)
        low, high = around(value, found) if found else (value * np.nan, value * np.nan)
        bands[key] = {"low": low, "high": high, "rows": found.rows if found else 0}
    return bands


R = TypeVar("R", bound="Result")


def figure(method: Callable[[R], Any]) -> cached_property[Any]:
    """A number (or a dict of them) of an estimate, worked out when it is first read; plain for a single point."""

    @wraps(method)
    def read(e: R) -> Any:
        return e.plainly(method(e))

    return cached_property(read)


def single(value: Any) -> Any:
    """NumPy's numbers of one value as Python's, also those in dicts and in small records; the rest as it is.

    >>> single({"a": np.float64(0.5), "b": np.array(True)})
    {'a': 0.5, 'b': True}
    """
    if isinstance(value, dict):
        return {k: single(v) if isinstance(v, HELD) else v for k, v in value.items()}
    if isinstance(value, Memory):
        return Memory(single(value.parts), single(value.total), single(value.capacity))
    return value.item() if isinstance(value, NUMPY) and value.ndim == 0 else value


NUMPY = (np.generic, np.ndarray)
HELD = (*NUMPY, dict, Memory)
"""Kinds of values that are, or hold, NumPy's numbers."""


class Result(Answer):
    """What estimates share. OUTPUTS: their table."""

    OUTPUTS: ClassVar[Outputs] = {}
    scenario: Scenario
    limits: Limits
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]

    def __post_init__(self) -> None:
        """Numbers of a single point are plain Python numbers."""
        if self.scenario.axes == 0:
            self.__dict__.update({k: single(v) for k, v in self.__dict__.items() if isinstance(v, HELD)})

    def plainly(self, value: Any) -> Any:
        """A value as this estimate shows it: plain where it is of a single point."""
        return single(value) if self.scenario.axes == 0 else value

    @figure
    def reason(self) -> Num:
        """Why it cannot run: the first rule that a point breaks, or an empty text."""
        return self.limits.reason

    def values(self, names: Collection[str] | None = None) -> dict[str, Any]:
        """Outputs by their keys (all, or those named); groups are dicts. Numbers may be arrays."""
        return {k: self.plainly(o.read(self)) for k, o in self.OUTPUTS.items() if names is None or k in names}

    def to_dict(self) -> dict[str, Any]:
        """Every output by its key of --json, in plain Python values, ready for `json.dumps`."""
        return {**plain(self.values()), "assumed": list(self.assumed), "warnings": list(self.warnings)}

    def to_pandas(self) -> pandas.DataFrame:
        """One row (or one a point, where numbers are arrays) with a column an output, groups by dotted names."""
        return frame({k: np.ravel(v) for k, v in broadcast(flatten(self.values())).items()})

    @property
    def error_band(self) -> dict[str, dict[str, Any]]:
        """Output -> low and high end of its error band (eight of ten measurements like it lie inside) and the number
        of published rows behind it; not-a-number and 0 rows where nothing was calibrated."""
        asked = {k: (o.phase, o.read(self)) for k, o in self.OUTPUTS.items() if o.phase}
        return {k: self.plainly(v) for k, v in bands_around(self.scenario, asked).items()}

    def __eq__(self, other: object) -> bool:
        """Whether both give the same outputs."""
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = flatten(self.values()), flatten(other.values())
        return mine.keys() == theirs.keys() and all(map(same, mine.values(), theirs.values()))

    __hash__ = None  # type: ignore[assignment]  # estimates are compared by their numbers, which may be arrays


def headline(s: Scenario, gpus: Num) -> str:
    """What runs on what, and how it is split."""
    degrees = [f"{k} {shown(getattr(s.mapping, k))}" for k in SPLIT if np.any(np.asarray(getattr(s.mapping, k)) != 1)]
    split = f" ({', '.join(degrees)})" if degrees else ""
    return f"{s.model.name} on {shown(gpus)} x {s.cluster.device.name}{split}, {s.engine.name}, {s.quant.name}"


SPLIT = ("tp", "pp", "vp", "dp", "cp", "ep")
"""Degrees of a split that are said where they are not one."""


def verdict(memory: Memory, fits: Num, reason: Num) -> str:
    """Memory in use, and whether it runs: for an array, at how many of its points."""
    flags = np.asarray(fits)
    told = str(reason) if flags.ndim == 0 else f"{int(np.sum(flags))} of {flags.size} points fit"
    used = f"{shown(memory.total / 2**30)} of {shown(memory.capacity / 2**30)} GiB a GPU"
    return f"{used}: {'fits' if flags.ndim == 0 and flags else told}"


UNIT_ENDS = ("_s", "_w", "_j", "_bytes", "_usd", "_fraction")


def key_of(name: str, known: Outputs) -> str:
    """The key that a name means: itself, without its unit, or the only key that begins or ends with the name.

    >>> rows = table(*(Output(key, "", "", id) for key in ("tpot_s", "tpot_end_s", "memory", "output_tokens_per_s")))
    >>> [key_of(name, rows) for name in ("tpot_s", "tpot", "memory.weights", "tokens_per_s")]
    ['tpot_s', 'tpot_s', 'memory.weights', 'output_tokens_per_s']
    """
    head, dot, member = name.partition(".")
    units = [head + end for end in UNIT_ENDS if head + end in known]
    parts = [key for key in known if key.startswith(head + "_") or key.endswith("_" + head)]
    for found in ([head] if head in known else [], units, parts):
        if len(found) == 1:
            return found[0] + dot + member
    near = near_matches(name, known) or list(known)[:6]
    raise RooflmError(f"unknown output {name!r}: did you mean {' or '.join(map(repr, near))}?")


def check_outputs(names: Iterable[str], known: Outputs) -> tuple[str, ...]:
    """Keys of the outputs asked for (a key, the short of one, or a member of a group such as "memory.weights").

    >>> check_outputs(["tpot", "memory.weights"], table(Output("tpot_s", "", "s", id), Output("memory", "", "B", id)))
    ('tpot_s', 'memory.weights')
    """
    return tuple(dict.fromkeys(key_of(name, known) for name in names))


def chosen(flat: Mapping[str, Any], names: Collection[str] | None) -> dict[str, Any]:
    """The outputs named, a group's name standing for its members; all without names.

    >>> chosen({"memory.weights": 1, "memory.context": 2, "tpot_s": 3}, ("memory.weights", "tpot_s"))
    {'memory.weights': 1, 'tpot_s': 3}
    """
    if names is None:
        return dict(flat)
    return {k: v for k, v in flat.items() if any(k == n or k.startswith(f"{n}.") for n in names)}
