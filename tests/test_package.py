"""What a user installs: the package with its data, without fits, studies or tests."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    return zipfile.ZipFile(next(folder.glob("*.whl"))).namelist()


def test_the_wheel_holds_the_package_alone(names: list[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert tops == {"rooflm", next(t for t in tops if t.endswith(".dist-info"))}
    assert not [n for n in names if "studies" in n or "test" in Path(n).name]


def test_the_wheel_holds_its_data(names: list[str]) -> None:
    own = {f"rooflm/{p.relative_to(ROOT / 'src/rooflm')}" for p in (ROOT / "src/rooflm/data").rglob("*.toml")}
    assert own and own <= {*names}
