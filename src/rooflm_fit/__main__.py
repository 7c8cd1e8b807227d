"""Remake all that is fitted or generated, and say what changed: scripts/fit [--data DIR] all | --from STEP | STEP ...

Without a step: the list of them. DIR holds ops/ (measured kernels) and published/ (measured runs). What steps hand to
later ones lies in the folder of --work, so that each can be made again by itself. A step that does not end, whatever
ends it, leaves every file as it was. Dates and error figures of a row count as changes only where its constants changed
too; --check puts all files back.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rooflm.readers.rows import DATA

ROOT = Path(__file__).resolve().parents[2]


class Step(NamedTuple):
    """What is made together: commands of Python ({data}: the measured tables, {aiter}: a copy of ROCm/aiter, {package}:
    the package's data, {root}: the repository, {work}: the folder for what steps hand on), what they make, in which
    files (of the package's data, or of the repository), the minutes of a processor that they took, and what they hand
    on."""

    commands: tuple[str, ...]
    makes: str
    files: str
    minutes: float
    hands: tuple[str, ...] = ()


OLD = ("inference", "inference-2", "training", "training-2")
"""Tables of the older format."""
FIXED = "{work}/inference.csv {work}/inference-2.csv"


def kernels(name: str, makes: str, minutes: float, file: str = "") -> Step:
    """A step that fits kernels of one kind."""
    file = f"calibration/{file or name}.toml"
    return Step((f"-m rooflm_fit.{name} --data {{data}}/ops --out {{package}}/{file}",), makes, file, minutes)


STEPS: dict[str, Step] = {
    "gemm": kernels("gemm", "products", 0),
    "attention": kernels("attention", "attention", 0),
    "mla": kernels("mla", "latent attention", 0.7),
    "moe": kernels("moe", "experts", 0),
    "elementwise": kernels("elementwise", "vector kernels", 0.1),
    "collectives": kernels("collectives", "collectives", 0.2, "collective"),
    "networks": Step(
        (
            "-m rooflm_fit.networks --data {root}/docs/measured/networks.csv "
            "--out {package}/calibration/collective-network.toml",
        ),
        "collectives between nodes",
        "calibration/collective-network.toml",
        0.3,
    ),
    "instinct": Step(
        ("-m rooflm_fit.instinct --data {aiter} --out {package}/calibration",),
        "kernels on AMD Instinct",
        "calibration/gemm-instinct.toml, moe-instinct.toml, collective-instinct.toml",
        0,
    ),
    "tables": Step(
        tuple(f"-m rooflm_fit.convert {{data}}/published/{name}.csv {{work}}/{name}.csv" for name in OLD),
        "published runs as rooflm validate reads them",
        "",
        0.3,
        tuple(f"{name}.csv" for name in OLD),
    ),
    "engines": Step(
        (
            f"-m rooflm_fit.engines --data {FIXED} --write --rows {{work}}/rows.csv",
            "-m rooflm_fit.engines --data {package}/published/batches.csv --only llama.cpp-experts --quick --write",
        ),
        "engines with fixed batches",
        "engines/*.toml, published/engines.toml, calibration/devices.toml",
        10,
        ("rows.csv",),
    ),
    "serving": Step(
        ("-m rooflm_fit.serving {work}/inference.csv --most 8 --write --rows {work}/load_rows.csv",),
        "engines under load",
        "engines/inference.toml",
        1,
        ("load_rows.csv",),
    ),
    "training": Step(
        ("-m rooflm_fit.training {work}/training.csv --write --page {root}/docs/training.md",),
        "training steps, and what is left out",
        "engines/training*.toml, calibration/training.toml, docs/training.md",
        1,
    ),
    "bands": Step(
        (
            f"-m rooflm_fit.bands --data {FIXED} {{work}}/training.csv {{work}}/training-2.csv "
            "--rows {work}/rows.csv --load {work}/load_rows.csv --first {root}/docs/measured/first-sight.csv "
            "--out {package}/calibration/bands.toml --page {root}/docs/accuracy.md",
        ),
        "error bands, and what they hold",
        "calibration/bands.toml, docs/accuracy.md",
        1.2,
    ),
    "fixed": Step(
        (f"-m rooflm_fit.fixed_left_out --data {FIXED} --page {{root}}/docs/accuracy.md",),
        "fixed batches: models, cards and engines left out",
        "docs/accuracy.md",
        30,
    ),
    "accuracy": Step(
        (
            "-m rooflm_fit.accuracy_page --page {root}/docs/accuracy.md {root}/docs/sources.md {root}/README.md "
            f"--rows {{work}}/rows.csv --data {FIXED} --load {{work}}/load_rows.csv --aside {{work}}/inference-2.csv",
        ),
        "errors by source",
        "docs/accuracy.md, docs/sources.md, README.md",
        0.9,
    ),
    "bank": Step(("{root}/tests/replay/bank.py --update",), "replay bank", "tests/replay/bank.json", 0.1),
    "docs": Step(
        (
            "-m rooflm study all --out {root}/docs/works",
            "-m rooflm infer llama-3.1-70b --gpu h100,h200,b200 --tp 2,4,8 --batch 1..256*2 --prompt 1024 --output 256 "
            "--quant fp8 --plot {root}/docs/figures/readme.png --plot-kind pareto",
            "-m rooflm_fit.pages",
            "-m rooflm_fit.shown",
            "-m rooflm_fit.readme",
            "-m rooflm_fit.twelve",
            "-m rooflm_fit.books",
        ),
        "studies, outputs on pages, notebooks",
        "docs/*, README.md, examples/*.ipynb",
        1.2,
    ),
}
"""In the order in which one rests on the others."""
_STATED = ("attention-instinct", "gemm-marlin", "gemm-triton", "mla-blackwell", "mla-instinct", "mla-sparse",
           "moe-tiled", "moe-wna16")  # fmt: skip
BY_HAND = tuple(f"calibration/{name}.toml" for name in (*_STATED, "experts"))
"""Files that state their constants; so do lines of engines with a comment behind the value, and rows of cards whose
source does not say that they were fitted: fits leave them as they are."""
AITER = "ROCm/aiter e404860 (git clone https://github.com/ROCm/aiter; git -C aiter checkout e404860)"
"""What `instinct` reads, which is no part of the measured tables."""
MADE = ("src/rooflm/data/**/*.toml", "docs/**/*", "examples/*.ipynb", "tests/replay/bank.json", "README.md")
"""All that steps write beside the work folder."""
NAMES = ("gpu", "architecture", "engine", "dtype", "kernel", "family", "phase", "device", "level")
"""Keys that say what a row of a list is of."""
JUDGED = ("date", "rows_in", "rows_out", "mape_in", "mape_out", "mape_transfer")
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


def kept() -> dict[Path, bytes]:
    """What every file that steps write holds now."""
    return {path: path.read_bytes() for made in MADE for path in sorted(ROOT.glob(made)) if path.is_file()}


def put_back(before: Mapping[Path, bytes]) -> None:
    """The files as they were; those that are new are removed."""
    for path in kept().keys() - before.keys():
        path.unlink()
    for path, text in before.items():
        if not path.is_file() or path.read_bytes() != text:
            path.write_bytes(text)


def report(before: Mapping[Path, bytes], most: int) -> bool:
    """Print what became of each file; True where any constant or page changed."""
    any_changed = False
    for path, now in kept().items():
        text, name = before.get(path, b""), path.relative_to(ROOT)
        if now == text:
            continue
        if path.suffix == ".toml":
            found = changes(tomllib.loads(text.decode()), tomllib.loads(now.decode()))
            any_changed |= bool(found)
            print(f"{name}: {len(found) or 'no'} constant{'s' * (len(found) != 1)} changed")
            print("".join(f"    {line}\n" for line in found[:most]), end="")
        else:
            any_changed = True
            print(f"{name}: changed" if text else f"{name}: new")
    if not any_changed:
        print("nothing changed")
    return any_changed


def listed() -> str:
    """The steps, a line each, and what stays by hand."""
    took = {name: f"{step.minutes:g} min" if step.minutes else "?" for name, step in STEPS.items()}
    rows = [(name, step.makes, took[name], step.files) for name, step in STEPS.items()]
    lines = [f"{name:12} {makes:46} {minutes:>8}  {files}".rstrip() for name, makes, minutes, files in rows]
    return "\n".join([*lines, f"{'':12} {'by hand':46} {'':8}  {', '.join(BY_HAND)}"])


def words_of(command: str, places: Mapping[str, Path]) -> list[str]:
    """A command's words with its places filled in.

    >>> words_of("-m x {work}/a.csv", {"work": Path("my out")})
    ['-m', 'x', 'my out/a.csv']
    """
    return [word.format(**places) for word in command.split()]


def lacking(steps: Sequence[str], work: Path) -> str:
    """What a step reads in the work folder that neither is there nor is made before it, in a sentence, or nothing."""
    there = {path.name for path in work.glob("*")}
    for name in steps:
        read = {w[7:] for c in STEPS[name].commands for w in c.split() if w.startswith("{work}/")}
        there |= {*STEPS[name].hands}
        for missed in sorted(read - there):
            maker = next(step for step, made in STEPS.items() if missed in made.hands)
            return f"{name} reads {work / missed}, which is not there: the step {maker} makes it"
    return ""


def whole(words: Sequence[str]) -> None:
    """Run a command to its end, or stop it with all that it started."""
    with subprocess.Popen(words, start_new_session=True) as child:
        try:
            if child.wait():
                raise subprocess.CalledProcessError(child.returncode, words)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            raise


def run(name: str, places: Mapping[str, Path]) -> None:
    """Run a step; where it does not end, its files are as they were."""
    began, used, before = time.monotonic(), os.times().children_user, kept()
    print(f"== {name}: {STEPS[name].makes}", flush=True)
    try:
        for command in STEPS[name].commands:
            whole([sys.executable, *words_of(command, places)])
    except BaseException:
        put_back(before)
        print(f"   {name} did not end; its files are as they were. Go on by --from {name}", flush=True)
        raise
    took = (os.times().children_user - used) / 60
    print(f"   {name} took {time.monotonic() - began:.0f} s, {took:.1f} minutes of a processor", flush=True)


def chosen(parser: argparse.ArgumentParser, given: argparse.Namespace) -> list[str]:
    """The steps that are asked for and can run."""
    order, asked = list(STEPS), {*given.steps} - {"all"} | {*filter(None, [given.first])}
    if unknown := asked - {*order}:
        parser.error(f"unknown step {min(unknown)!r}: use one of {', '.join(STEPS)}")
    later = order[order.index(given.first) :] if given.first else order if "all" in given.steps else []
    steps = [name for name in order if name in asked or name in later]
    commands = " ".join(c for name in steps for c in STEPS[name].commands)
    for folder in ("ops", "published"):
        if f"{{data}}/{folder}" in commands and not (given.data / folder).is_dir():
            parser.error(f"--data is {given.data}, but it holds no folder {folder}")
    if "instinct" in steps and not (given.aiter / "aiter" / "configs").is_dir():
        if "instinct" in given.steps:
            parser.error(f"--aiter is {given.aiter}, but it is not {AITER}")
        steps.remove("instinct")
        print(f"== instinct: left out, {given.aiter} is not {AITER}", flush=True)
    if lack := lacking(steps, given.work):
        parser.error(lack)
    return steps


def main(argv: Sequence[str] | None = None) -> int:
    """Run the steps; 0 where all ran, with --check 1 where a constant or page would change."""
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="scripts/fit", description=__doc__, formatter_class=about)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(["all", *STEPS]))
    parser.add_argument("--from", dest="first", metavar="STEP", help="this step and all after it")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of ops/ and published/")
    parser.add_argument("--aiter", type=Path, default=Path("../aiter"), help=f"for instinct: {AITER}")
    parser.add_argument("--work", type=Path, default=Path("out"), help="folder for what steps hand on")
    parser.add_argument("--check", action="store_true", help="put the files back; status 1 where one would change")
    parser.add_argument("--most", type=int, default=5, help="changes shown of a file")
    given = parser.parse_args(argv)
    if not given.steps and not given.first:
        print(listed())
        return 0
    steps = chosen(parser, given)
    given.work.mkdir(parents=True, exist_ok=True)
    places = {"data": given.data, "package": DATA, "root": ROOT, "work": given.work, "aiter": given.aiter}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a kill, too, puts back what is half made
    before = kept()
    try:
        for name in steps:
            run(name, places)
        changed = report(before, given.most)
    except (subprocess.CalledProcessError, KeyboardInterrupt) as error:
        print(error if str(error) else "interrupted", file=sys.stderr)
        return 1
    finally:
        if given.check:
            put_back(before)
    return int(changed and given.check)


if __name__ == "__main__":
    raise SystemExit(main())
