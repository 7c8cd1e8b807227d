"""What a person writes for an argument, on the command line or on the page, to its value: numbers, quantities, names,
comma lists, ranges, and PATH=VALUE."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from rooflm.asked import quantities
from rooflm.asked.arguments import TABLE, arguments
from rooflm.errors import RooflmError

_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)"
_SIZE = rf"({_NUMBER}(?:e[+-]?\d+)?(?:\s?[A-Za-z/%]+)?)"
_RANGE = re.compile(rf"{_SIZE}\.\.{_SIZE}(?:([*+])({_NUMBER}[A-Za-z]?))?")
MOST = 100_000
"""Most values that one range may have."""


@cache
def unit_of(field: str) -> str:
    """The unit of an argument by its name, or of the argument that fills the field at a path; "" where it has none.

    >>> unit_of("prompt"), unit_of("workload.prompt"), unit_of("ttft"), unit_of("batch")
    ('tokens', 'tokens', 's', '')
    """
    units = {key: a.unit for a in TABLE for key in (a.name, a.path) if key and a.unit and a.kind not in RUNS}
    return units.get(field, "")


RUNS = ("amount", "amounts")
"""Kinds of arguments that count in powers of ten, whatever their unit: tokens of a run, dollars, GPU-hours."""


def single(text: str, field: str) -> int | float:
    """One number of an argument, in its unit.

    >>> single("8k", "prompt"), single("8k", "batch"), single("120/min", "rate")
    (8192, 8000, 2.0)
    """
    unit = unit_of(field)
    return quantities.amount(text, unit, field)


def expand_range(text: str, field: str) -> list[int | float]:
    """`1..8` (steps of one), `16..128+16` (steps of 16), `1..512*2` (times two), both ends included.

    >>> expand_range("1..8*2", "batch"), expand_range("1..4", "tp"), expand_range("16..64+16", "prompt")
    ([1, 2, 4, 8], [1, 2, 3, 4], [16, 32, 48, 64])
    >>> expand_range("8k..32k*2", "prompt")
    [8192, 16384, 32768]
    """
    match = _RANGE.fullmatch(text.replace(" ", ""))
    if match is None:
        raise RooflmError(f"{field} is {text!r}, but a range is written like 1..8, 16..128+16 or 1..512*2")
    first, last = single(match[1], field), single(match[2], field)
    times = match[3] == "*"
    stride = (float(match[4]) if times and match[4][-1].isdigit() else single(match[4], field)) if match[4] else 1
    stride = int(stride) if float(stride).is_integer() else stride
    if last < first or stride <= 0 or (times and (stride <= 1 or first <= 0)):
        raise RooflmError(f"{field} is {text!r}, but a range must go upwards, such as 1..512*2")
    values: list[int | float] = []
    value: int | float = first
    while value <= last * (1 + 1e-12):
        values.append(value)
        value = value * stride if times else value + stride
        if len(values) > MOST:
            raise RooflmError(f"{field} is {text!r}, but a range may have at most {MOST} values")
    return values


def numbers(text: str | None, field: str) -> Any:
    """A number, or a list of them for a comma list or a range; None stays None.

    >>> numbers("8k,32k,128k", "prompt"), numbers("1,8..32*2", "batch")
    ([8192, 32768, 131072], [1, 8, 16, 32])
    """
    if text is None:
        return None
    values: list[int | float] = []
    for piece in text.split(","):
        piece = piece.strip()
        if not piece:
            why = "a number is missing between its commas" if "," in text else "it must be a number or a list"
            raise RooflmError(f"{field} is {text!r}, but {why}")
        values += expand_range(piece, field) if ".." in piece else [single(piece, field)]
    return values if len(values) > 1 else values[0]


def amounts(text: str | None, field: str) -> Any:
    """Numbers that may end in k, M, B or T, powers of ten, such as tokens: 300B, 1.4T; a comma list makes an axis.

    >>> amounts("300B", "tokens"), amounts("1e12", "tokens"), amounts("64M,1 GiB", "size")
    (300000000000, 1000000000000.0, [64000000.0, 1073741824.0])
    """
    if text is None:
        return None
    values = [quantities.amount(piece, RUN_UNITS.get(field, ""), field) for piece in text.split(",")]
    return values if len(values) > 1 else values[0]


RUN_UNITS = {"gpu_hours": "h", "cost": "USD", "size": "B"}
"""Units of amounts, beside counts."""


def one_number(text: str, field: str) -> int | float:
    """One number; RooflmError for a list."""
    value = numbers(text, field)
    if isinstance(value, list):
        raise RooflmError(f"{field} is {text!r}, but it must be one number")
    return value


def seconds(text: str, field: str) -> int | float:
    """One time.

    >>> seconds("500ms", "interval"), seconds("2", "ttft")
    (0.5, 2)
    """
    return quantities.amount(text, "s", field)


def count(text: str, field: str) -> int:
    """One whole number.

    >>> count("10k", "requests"), count("8k", "prompt")
    (10000, 8192)
    """
    value = one_number(text, field)
    if not float(value).is_integer():
        raise RooflmError(f"{field} is {text!r}, but it must be a whole number")
    return int(value)


def texts(text: str | None, field: str = "a comma list") -> Any:
    """A name, or a list of them for a comma list."""
    return text if text is None or "," not in text else names_in(text, field)


def efficiency_text(text: str | None) -> Any:
    """`ideal`, `calibrated` or factors "0.7,0.9"; a list of them is separated by semicolons."""
    if text is None or ";" not in text:
        return text
    return [piece.strip() for piece in text.split(";") if piece.strip()]


def at_path(piece: str, path: str) -> Any:
    """One value of --set: a number, true or false, a quantity in the unit of its field, or a name.

    >>> at_path("8k", "workload.prompt"), at_path("20000 h", "training.mtbf"), at_path("1f1b", "mapping.schedule")
    (8192, 72000000.0, '1f1b')
    >>> at_path("400 Gb/s", "cluster.tiers.0.bandwidth")
    50000000000.0
    """
    low = piece.lower()
    if low in ("true", "false"):
        return low == "true"
    if not re.match(r"[+-]?[\d.]", piece):
        return piece
    from rooflm.asked.bounds import about_at, unit_at

    about = about_at(path)
    if about is not None and about.kind in ("word", "sizes", "shapes", "named", "formula"):
        return piece  # a word may begin with a digit: 1f1b
    unit = unit_of(path) or unit_at(path)
    if unit is None:
        try:
            return quantities.amount(piece, "", path)
        except RooflmError:
            return quantities.quantity_of_any_unit(piece, path)
    return quantities.amount(piece, unit, path)


def outside_brackets(text: str) -> list[str]:
    """The pieces between commas, of which those inside brackets part nothing.

    >>> outside_brackets("1,2"), outside_brackets("max(512 + max(tokens, 2), card),0")
    (['1', '2'], ['max(512 + max(tokens, 2), card)', '0'])
    """
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return pieces


def assignments(pairs: list[str] | None) -> dict[str, Any]:
    """--set PATH=VALUE, each value a single one, a comma list or a range.

    >>> assignments(["model.width_scale=2", "cluster.device.dram.bandwidth=2TB/s,3TB/s"])
    {'model.width_scale': 2, 'cluster.device.dram.bandwidth': [2000000000000.0, 3000000000000.0]}
    """
    sets: dict[str, Any] = {}
    for pair in pairs or []:
        path, equals, text = pair.partition("=")
        path = path.strip()
        if not equals or not path or not text.strip():
            raise RooflmError(f"--set is {pair!r}, but it must be PATH=VALUE, such as model.width_scale=2")
        if "." not in path:
            option = path.lower().replace("_", "-")
            raise RooflmError(
                f"--set path {path!r} must start with model., workload., mapping., cluster., engine. or quant."
                + f": did you mean --{option}?" * any(a.name == option.replace("-", "_") and a.shell for a in TABLE)
            )
        values: list[Any] = []
        for piece in outside_brackets(text):
            if ".." in piece:
                values += expand_range(piece.strip(), path)
            else:
                values.append(at_path(piece.strip(), path))
        sets[path] = values if len(values) > 1 else values[0]
    return sets


def amount(text: str, name: str) -> float:
    """One number that may end in k, M, B or T, such as 2M."""
    value = amounts(text, name)
    if isinstance(value, list):
        raise RooflmError(f"{name} is {text!r}, but it must be one number")
    return float(value)


def share(text: str, name: str) -> float:
    """A share written as 0.1 or 10%.

    >>> share("10%", "memory_margin"), share("0.1", "memory_margin")
    (0.1, 0.1)
    """
    return float(one_number(text, name))


def budgets(text: str, name: str) -> Any:
    """Token budgets: numbers, a list or a range; off is infinity.

    >>> budgets("512..2048*2,off", "token_budget"), budgets("8192", "token_budget")
    ([512, 1024, 2048, inf], 8192)
    """
    pieces = [p.strip() for p in text.split(",")]
    sizes = numbers(",".join(p for p in pieces if p != "off"), name) if set(pieces) != {"off"} else []
    listed = sizes if isinstance(sizes, list) else [sizes]
    if any(not (n >= 1 and n % 1 == 0) for n in listed):
        raise RooflmError(f"{name} is {text!r}, but it must be whole numbers of tokens of at least 1, or off")
    listed = [*listed, *([float("inf")] if "off" in pieces else [])]
    return listed if len(listed) > 1 else listed[0]


def spread(text: str, name: str) -> tuple[float, float]:
    """ "0.8,1" as (0.8, 1.0); one number is the low end.

    >>> spread("0.8,1", "spread"), spread("0.5", "spread")
    ((0.8, 1.0), (0.5, 1.0))
    """
    try:
        numbers = [float(p) for p in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise RooflmError(f"{name} is {text!r}, but it must be LOW,HIGH such as 0.8,1")
    return numbers[0], numbers[1] if len(numbers) == 2 else max(1.0, numbers[0])


def stage(text: str, name: str) -> Any:
    """ZeRO stages as numbers, `fsdp` and the like as names."""
    if not all(piece.strip().isdigit() for piece in text.split(",")):
        return texts(text, name)
    return numbers(text, name)


def names_in(text: str, field: str = "a comma list") -> list[str]:
    """The names in a comma list; RooflmError where it has none.

    >>> names_in("a, b,")
    ['a', 'b']
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise RooflmError(f"{field} is {text!r}, an empty list: give at least one name")
    return names


def file_name(text: str, name: str) -> str:
    """A file's name; RooflmError for an empty one, as a shell makes of a variable that is not set."""
    if not text:
        raise RooflmError(f"{name} is '', but it must be the name of a file: leave it out to write or read none")
    return text


def as_it_is(value: Any, _: str) -> Any:
    """A value that needs no reading."""
    return value


ROWS = ("device", "cluster", "engine", "scheme")
"""Kinds whose text is the name of a row."""
READ: dict[str, Callable[[Any, str], Any]] = {
    "numbers": numbers,
    "amounts": amounts,
    "amount": amount,
    "names": texts,
    **{f"{row}s": texts for row in ROWS},
    "factors": lambda text, _: efficiency_text(text),
    "stage": stage,
    "seconds": seconds,
    "joules": one_number,
    "count": count,
    "number": one_number,
    "share": share,
    "budgets": budgets,
    "spread": spread,
    "sets": lambda pairs, _: assignments(pairs),
    "zips": lambda groups, _: [tuple(n.strip() for n in g.split(",")) for g in groups],
    "listed": names_in,
    "file": file_name,
    "repeated": lambda given, field: [name for text in given for name in names_in(text, field)],
}
"""Kind of argument -> the reader of what a person writes for it (text and name to the value); all others are as they
are."""


NUMERIC = ("numbers", "amounts", "amount", "seconds", "joules", "count", "number", "share", "budgets")
"""Kinds of arguments that hold numbers."""


def read(call: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a public call whose numbers may be texts, by themselves or in lists, and paths that were set.

    >>> read("infer", {"prompt": ["8k", 512], "batch": "1..4*2", "sets": {"workload.output": "1k"}, "engine": "vllm"})
    {'prompt': [8192, 512], 'batch': [1, 2, 4], 'sets': {'workload.output': 1024}, 'engine': 'vllm'}
    """
    table = arguments(call)

    def number(a: Any, value: Any) -> Any:
        if isinstance(value, str):
            return READ[a.kind](value, a.name)
        if isinstance(value, list | tuple) and any(isinstance(v, str) for v in value):
            return [READ[a.kind](v, a.name) if isinstance(v, str) else v for v in value]
        return value

    def put(path: str, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [put(path, v) for v in value]
        return at_path(value, path) if isinstance(value, str) else value

    values = {k: number(table[k], v) if k in table and table[k].kind in NUMERIC else v for k, v in given.items()}
    if isinstance(values.get("sets"), Mapping):
        values["sets"] = {path: put(path, value) for path, value in values["sets"].items()}
    return values
