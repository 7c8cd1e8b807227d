"""The shape of the house: what imports what, how long a function may be, how much the core may hold."""

from __future__ import annotations

import ast
import itertools
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rooflm"
FILES = sorted(SOURCE.rglob("*.py"))
LONGEST, FEW, BOXES, CORE = 60, 10, 25, 9_500
FACE = "tools"
"""The highest box that has a public name: what imports the package itself stands above it."""
CORE_BOXES = ("errors", "units", "version", "catalogue", "scenario", "graph", "kernels", "estimate")


@cache
def tree(path: Path) -> ast.Module:
    """A file, parsed when the first test asks: every process collects this module, one runs it."""
    return ast.parse(path.read_text(encoding="utf-8"))


def box(path: Path) -> str:
    """The box of the picture that a file belongs to: its folder, or a file of the package itself."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import of our own, those inside functions and for type checkers included."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            named = [f"{node.module}.{a.name}" for a in node.names] if node.module == "rooflm" else [str(node.module)]
        elif isinstance(node, ast.Import):
            named = [a.name for a in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in named if name.split(".")[0] == "rooflm")


def levels() -> dict[str, int]:
    """Box -> level, as pyproject.toml has the layers (0: the lowest)."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = [c["layers"] for c in tool["contracts"] if c["type"] == "layers"]
    own = [[name.strip().split(".")[1] for name in layer.split(":") if "." in name] for layer in reversed(layers)]
    return {name: level for level, layer in enumerate(own) for name in layer}


def picture() -> dict[str, set[str]]:
    """Box -> boxes that it imports. The package's own __init__ and __main__ only hand names on."""
    found: dict[str, set[str]] = {}
    for path in FILES:
        if box(path) not in ("__init__", "__main__"):
            found.setdefault(box(path), set()).update(m.split(".")[1] for _, m in imports(path) if "." in m)
    return {name: seen - {name} for name, seen in found.items()}


def test_every_box_has_a_layer_and_they_are_few() -> None:
    assert picture().keys() == levels().keys()
    assert len(levels()) <= BOXES
    assert len(list(SOURCE.glob("*.py"))) <= FEW


def test_no_import_upwards() -> None:
    level = levels()
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {box(path)} imports {module}"
        for path in FILES if box(path) not in ("__init__", "__main__") for line, module in imports(path)
        if level[module.split(".")[1] if "." in module else FACE] > level[box(path)]
    ]  # fmt: skip
    assert not wrong


def test_no_circle() -> None:
    left = picture()
    while left:
        free = {name for name, seen in left.items() if not seen & left.keys()}
        assert free, f"a circle among {sorted(left)}"
        left = {name: seen for name, seen in left.items() if name not in free}


def bodies() -> Iterator[tuple[str, int]]:
    """(place, lines of the body without its docstring) of every function."""
    for path, node in itertools.chain.from_iterable(((p, n) for n in ast.walk(tree(p))) for p in FILES):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[ast.get_docstring(node) is not None :]
            if body:
                place = f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"
                yield place, (body[-1].end_lineno or 0) - body[0].lineno + 1


def test_no_function_is_long() -> None:
    assert not [f"{place}: {lines} lines" for place, lines in bodies() if lines > LONGEST]


def test_the_core_is_small() -> None:
    own = [p for p in FILES if box(p) in CORE_BOXES]
    lines = dict.fromkeys(CORE_BOXES, 0)
    for path in own:
        lines[box(path)] += len(path.read_text(encoding="utf-8").splitlines())
    assert sum(lines.values()) < CORE, lines


def test_examples_of_the_core_need_nothing_above_it() -> None:
    own = {p: p.read_text(encoding="utf-8").splitlines() for p in FILES if box(p) in CORE_BOXES}
    asked = [(p, line.split()[2].split(".")) for p, lines in own.items() for line in lines if ">>> from rooflm" in line]
    assert not [p for p, module in asked if module[1] not in CORE_BOXES]


def test_every_folder_has_a_line_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    # of a folder that has moved, bytecode may be left
    files = [p.relative_to(SOURCE) for p in SOURCE.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    folders = {p.parts[0] for p in files if len(p.parts) > 1}
    assert not [name for name in sorted(folders) if f"\n| `{name}/` |" not in text]
