"""Remake the fitted files of the package, and say which changed: scripts/fit [--data DIR] all | STEP ...

Without a step: the list of them. DIR holds ops/ (measured kernels) and published/ (measured runs). A step runs in a
process of its own; afterwards each TOML file under src/rooflm/data is held against what it was. --check puts the files
back. Dates and error figures of a row count as changes only where its constants changed too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rooflm.readers.rows import DATA


class Step(NamedTuple):
    """A fit: its module, its arguments ({data}: the measured tables, {aiter}: a copy of ROCm/aiter, {package}: the
    package's data, {work}: a folder for what one step hands to the next), what it remakes, and in which files of the
    package's data."""

    module: str
    arguments: str
    makes: str
    files: str


STEPS: dict[str, Step] = {
    "gemm": Step(
        "gemm", "--data {data}/ops --out {package}/calibration/gemm.toml", "products", "calibration/gemm.toml"
    ),
    "attention": Step(
        "attention",
        "--data {data}/ops --out {package}/calibration/attention.toml",
        "attention",
        "calibration/attention.toml",
    ),
    "mla": Step(
        "mla", "--data {data}/ops --out {package}/calibration/mla.toml", "latent attention", "calibration/mla.toml"
    ),
    "moe": Step("moe", "--data {data}/ops --out {package}/calibration/moe.toml", "experts", "calibration/moe.toml"),
    "elementwise": Step(
        "elementwise",
        "--data {data}/ops --out {package}/calibration/elementwise.toml",
        "vector kernels",
        "calibration/elementwise.toml",
    ),
    "collectives": Step(
        "collectives",
        "--data {data}/ops --out {package}/calibration/collective.toml",
        "collectives",
        "calibration/collective.toml",
    ),
    "instinct": Step(
        "instinct",
        "--data {aiter} --out {package}/calibration",
        "kernels on AMD Instinct",
        "calibration/gemm-instinct.toml, moe-instinct.toml, collective-instinct.toml",
    ),
    "engines": Step(
        "engines",
        "--data {data}/published/inference.csv {data}/published/inference-2.csv --write --rows {work}/rows.csv",
        "engines with fixed batches",
        "engines/*.toml, published/engines.toml, calibration/devices.toml",
    ),
    "serving": Step(
        "serving",
        "{data}/published/inference.csv --most 8 --write --rows {work}/load_rows.csv",
        "engines under load",
        "engines/inference.toml",
    ),
    "training": Step(
        "training",
        "{data}/published/training.csv --write",
        "training steps",
        "engines/training*.toml, calibration/training.toml",
    ),
    "bands": Step(
        "bands",
        "--data {data}/published/inference.csv {data}/published/inference-2.csv {data}/published/training.csv "
        "{data}/published/training-2.csv --rows {work}/rows.csv --load {work}/load_rows.csv "
        "--out {package}/calibration/bands.toml",
        "error bands (after engines and serving)",
        "calibration/bands.toml",
    ),
}
"""In the order in which one rests on the others."""
BY_HAND = ("calibration/mla-blackwell.toml", "calibration/experts.toml")
"""Files that state their constants; so do lines of engines with a comment behind the value, and rows of cards whose
source does not say that they were fitted: fits leave them as they are."""
AITER = "ROCm/aiter e404860 (git clone https://github.com/ROCm/aiter; git -C aiter checkout e404860)"
"""What `instinct` reads, which is no part of the measured tables."""
NAMES = ("gpu", "architecture", "engine", "dtype", "kernel", "family", "phase", "device", "level")
"""Keys that say what a row of a list is of."""
JUDGED = ("date", "rows_in", "rows_out", "mape_in", "mape_out", "mape_large", "mape_transfer", "p10", "p90")
"""Keys of a row that say how good it is, not what it is."""


def leaves(tree: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a TOML tree with its path; tables of a list are named by what they are of.

    >>> dict(leaves({"fit": [{"gpu": "a", "x": 1.0}], "y": {"z": 2}}))
    {'fit.a.gpu': 'a', 'fit.a.x': 1.0, 'y.z': 2}
    """
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves(value, f"{at}.{key}" if at else key)
    elif isinstance(tree, list) and tree and isinstance(tree[0], Mapping):
        for row in tree:
            name = "/".join(str(v) for k, v in row.items() if k in NAMES)
            yield from leaves(row, f"{at}.{name}")
    else:
        yield at, tree


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two trees, worst first, in words; empty where the constants are the same.

    >>> changes({"a": 1.0, "b": 2.0}, {"a": 1.1, "c": 3})
    ['c is new', 'b is gone', 'a 1.0 -> 1.1 (+10.0 %)']
    """
    old, new = dict(leaves(before)), dict(leaves(after))
    out = [f"{k} is new" for k in new if k not in old] + [f"{k} is gone" for k in old if k not in new]
    moved: list[tuple[float, str]] = []
    for key in new:
        if key in old and old[key] != new[key] and key.rpartition(".")[2] not in JUDGED:
            numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (old[key], new[key]))
            ratio = new[key] / old[key] - 1 if numbers and old[key] else float("inf")
            said = f" ({100 * ratio:+.1f} %)" if abs(ratio) < float("inf") else ""
            moved.append((abs(ratio), f"{key} {old[key]} -> {new[key]}{said}"))
    return out + [text for _, text in sorted(moved, reverse=True)]


def report(before: Mapping[Path, bytes], most: int) -> bool:
    """Print what became of each file; True where any constant changed."""
    any_changed = False
    for path, text in before.items():
        now = path.read_bytes()
        if now == text:
            continue
        found = changes(tomllib.loads(text.decode()), tomllib.loads(now.decode()))
        any_changed |= bool(found)
        print(f"{path.relative_to(DATA)}: {len(found) or 'no'} constant{'s' * (len(found) != 1)} changed")
        print("".join(f"    {line}\n" for line in found[:most]), end="")
    if not any_changed:
        print("nothing changed")
    return any_changed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the steps; 0 where all ran, with --check 1 where a constant would change."""
    parser = argparse.ArgumentParser(prog="scripts/fit", description=__doc__)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(["all", *STEPS]))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of ops/ and published/")
    parser.add_argument("--aiter", type=Path, default=Path("../aiter"), help=f"for instinct: {AITER}")
    parser.add_argument("--work", type=Path, default=Path("out"), help="folder for what steps hand on")
    parser.add_argument("--check", action="store_true", help="put the files back; status 1 where one would change")
    parser.add_argument("--most", type=int, default=5, help="changes shown of a file")
    given = parser.parse_args(argv)
    if not given.steps:
        for name, step in STEPS.items():
            print(f"{name:12} {step.makes:28} {step.files}")
        print(f"{'':12} {'by hand':28} {', '.join(BY_HAND)}")
        return 0
    unknown = [name for name in given.steps if name not in (*STEPS, "all")]
    if unknown:
        parser.error(f"unknown step {unknown[0]!r}: use one of {', '.join(STEPS)}")
    for folder in ("ops", "published"):
        if not (given.data / folder).is_dir():
            parser.error(f"--data is {given.data}, but it holds no folder {folder}")
    steps = list(STEPS) if "all" in given.steps else given.steps
    if "instinct" in steps and not (given.aiter / "aiter" / "configs").is_dir():
        if "instinct" in given.steps:
            parser.error(f"--aiter is {given.aiter}, but it is not {AITER}")
        steps.remove("instinct")
        print(f"== instinct: left out, {given.aiter} is not {AITER}", flush=True)
    given.work.mkdir(parents=True, exist_ok=True)
    before = {path: path.read_bytes() for path in sorted(DATA.rglob("*.toml"))}
    try:
        for name in steps:
            began, step = time.monotonic(), STEPS[name]
            words = step.arguments.format(data=given.data, package=DATA, work=given.work, aiter=given.aiter).split()
            print(f"== {name}: {step.makes}", flush=True)
            subprocess.run([sys.executable, "-m", f"rooflm_fit.{step.module}", *words], check=True)
            print(f"   {time.monotonic() - began:.0f} s", flush=True)
        changed = report(before, given.most)
    finally:
        if given.check:
            for path, text in before.items():
                if path.read_bytes() != text:
                    path.write_bytes(text)
    return int(changed and given.check)


if __name__ == "__main__":
    raise SystemExit(main())
