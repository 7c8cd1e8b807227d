"""What a user installs: the package with its data, without fits, studies or tests."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def names(built: Path) -> list[str]:
    return zipfile.ZipFile(next(built.glob("*.whl"))).namelist()


def test_the_wheel_holds_the_package_alone(names: list[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert tops == {"rooflm", next(t for t in tops if t.endswith(".dist-info"))}
    assert not [n for n in names if "studies" in n or "test" in Path(n).name]


def test_the_wheel_holds_its_data(names: list[str]) -> None:
    own = {f"rooflm/{p.relative_to(ROOT / 'src/rooflm')}" for p in (ROOT / "src/rooflm/data").rglob("*.toml")}
    assert own and own <= {*names}


def test_wheel_and_sdist_pass_the_checks_of_an_index(built: Path) -> None:
    for words in (["twine", "check", "--strict", *map(str, built.iterdir())],
                  ["check_wheel_contents", str(next(built.glob("*.whl")))]):  # fmt: skip
        told = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
        assert told.returncode == 0, f"{told.stdout}{told.stderr}"


def test_the_sdist_can_be_built_from(built: Path) -> None:
    sdist = next(built.glob("*.tar.gz"))
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "CITATION.cff", "scripts/test", "tests/test_package.py"} <= inside
    assert sdist.stat().st_size < 25e6


def test_the_metadata_says_what_it_is(built: Path) -> None:
    wheel = zipfile.ZipFile(next(built.glob("*.whl")))
    meta = Parser().parsestr(wheel.read(next(n for n in wheel.namelist() if n.endswith("METADATA"))).decode())
    assert meta["Author"] == "The rooflm project" and meta["License-Expression"] == "MIT"
    assert "TTFT" in meta["Keywords"] and "Typing :: Typed" in meta.get_all("Classifier")
    assert meta["Version"] in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


REQUIREMENT = re.compile(r"([\w.-]+)>=([\d.]+)$")


def number(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text))


def test_every_requirement_has_a_lower_bound_and_no_cap() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = {m[1]: m[2] for m in map(REQUIREMENT.match, project["dependencies"]) if m}
    assert len(bounds) == len(project["dependencies"])
    for name, least in bounds.items():
        assert number(version(name)) >= number(least), name
    lines = (ROOT / "scripts" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    oldest = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {k: number(v)[:2] for k, v in oldest.items()} == {k: number(v)[:2] for k, v in bounds.items()}


def test_the_core_is_light(tmp_path: Path) -> None:
    """A prediction and a grid on the command line need none of what extras bring, nor pandas, nor training's code."""
    seen = (
        "import sys; from rooflm.cli.app import main; main(['infer', 'llama-7b', '--gpu', 'a100,h100']); "
        "print(sorted({'xarray', 'pandas', 'altair', 'h5py', 'scipy', 'torch', 'rooflm.estimate.training'}"
        " & sys.modules.keys()))"
    )
    told = subprocess.run([sys.executable, "-c", seen], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert told.stdout.splitlines()[-1] == "[]"


def test_ci_calls_the_one_script() -> None:
    assert "- run: scripts/test\n" in (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")


def test_netcdf_without_its_extra_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from rooflm.errors import RooflmError
    from rooflm.sweep.files import check_target

    monkeypatch.setitem(sys.modules, "h5netcdf", None)
    with pytest.raises(RooflmError, match=r"pip install 'rooflm\[nc\]'"):
        check_target(str(tmp_path / "a.nc"))
