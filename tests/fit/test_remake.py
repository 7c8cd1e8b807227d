"""scripts/fit says what changed: constants by the row they are of, never dates; wrong input is told in a sentence."""

import argparse
from pathlib import Path

import msgspec
import pytest

from rooflm.kernels.constants import CALIBRATION, FitRow
from rooflm_fit import __main__ as remake
from rooflm_fit import engines
from rooflm_fit.__main__ import BY_HAND, MADE, STEPS, Step, changes, chosen, lacking, main
from rooflm_fit.common import write_fits
from rooflm_fit.generations import places
from rooflm_fit.jobs import JOBS

ROW = {"gpu": "a100-sxm-80gb", "engine": "*", "dtype": "bf16", "date": "2026-01-01", "mape_in": 5.0}


def tree(**constants: float) -> dict[str, object]:
    return {"fit": [{**ROW, "constants": constants}]}


def test_a_new_date_or_error_figure_is_no_change() -> None:
    after = {"fit": [{**ROW, "date": "2026-02-02", "mape_in": 4.0, "constants": {"t0": 1.0}}]}
    assert changes(tree(t0=1.0), after) == []


def test_a_constant_is_named_with_its_row_and_how_far_it_moved() -> None:
    assert changes(tree(t0=2.0, k0=1.0), tree(t0=2.2, k0=1.01)) == [
        "fit.a100-sxm-80gb/*/bf16.constants.t0 2.0 -> 2.2 (+10.0 %)",
        "fit.a100-sxm-80gb/*/bf16.constants.k0 1.0 -> 1.01 (+1.0 %)",
    ]


def test_every_calibration_file_has_a_step() -> None:
    said = " ".join([*(step.files for step in STEPS.values()), *BY_HAND])
    assert [path.name for path in CALIBRATION.glob("*.toml") if path.name not in said] == []


def test_without_a_step_the_steps_are_listed_and_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()][: len(STEPS)] == [*STEPS]


def test_a_step_that_lacks_what_an_earlier_one_hands_on_says_which(tmp_path: Path) -> None:
    assert lacking(["bands"], tmp_path).endswith("inference-2.csv, which is not there: the step tables makes it")
    assert lacking(["tables", "engines", "serving", "bands"], tmp_path) == "" == lacking(list(STEPS), tmp_path)


def test_a_step_named_beside_those_from_one_on_runs_too() -> None:
    parser = argparse.ArgumentParser()
    given = argparse.Namespace(
        steps=["tables"], first="docs", data=Path("nowhere"), work=Path("nowhere"), aiter=Path("nowhere")
    )
    with pytest.raises(SystemExit):  # `tables` reads --data
        chosen(parser, given)
    given.steps = ["bank"]
    assert chosen(parser, given) == ["bank", "docs"]


def test_a_step_that_does_not_end_leaves_every_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "half.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        "folder = Path(sys.argv[1])\n(folder / 'README.md').write_text('half')\n"
        "(folder / 'docs' / 'new.md').write_text('new')\nsys.exit(3)\n",
        encoding="utf-8",
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("whole", encoding="utf-8")
    steps = {"half": Step((f"{script} {{root}}",), "a half", "README.md", 0)}
    monkeypatch.setattr(remake, "STEPS", steps)
    monkeypatch.setattr(remake, "ROOT", tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert main(["half", "--work", str(tmp_path / "out")]) == 1
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "whole"
    assert not (tmp_path / "docs" / "new.md").exists()
    assert "Go on by --from half" in capfd.readouterr().out


def test_all_that_steps_write_is_put_back() -> None:
    own = {path for made in MADE for path in remake.ROOT.glob(made)}
    named = [name for step in STEPS.values() for name in step.files.split(", ") if name]
    assert [name for name in named if not any(path.match(name) for path in own)] == []


def test_the_same_fit_writes_the_same_file(tmp_path: Path) -> None:
    row = FitRow(gpu="a", architecture="b", engine="c", dtype="d", constants={"t0": 1.0}, rows_in=1, rows_out=1,
                 mape_in=1.0, mape_out=1.0, source="s", date="2026-01-01")  # fmt: skip
    path = tmp_path / "fit.toml"
    write_fits(path, [row], "head")
    first = path.read_bytes()
    write_fits(path, [msgspec.structs.replace(row, date="2026-02-02")], "head")
    assert path.read_bytes() == first
    write_fits(path, [msgspec.structs.replace(row, date="2026-02-02", mape_in=2.0)], "head")
    assert b"2026-02-02" in path.read_bytes()


def test_a_stated_card_is_neither_removed_nor_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stated = '\ngpu = "gb10"\nengine = "llama.cpp"\ncompute = 0.42\nrows = 26\nsource = "a table"'
    fitted = (
        '\ngpu = "rtx-3090"\nengine = "llama.cpp"\ncompute = 0.9\nrows = 2\nsource = "fitted to runs of llama.cpp: x"'
    )
    path = tmp_path / "devices.toml"
    path.write_text("# head\n" + "".join(f"\n[[card]]{row}\n" for row in (stated, fitted)), encoding="utf-8")
    constants = {"gb10|compute": 0.7, "rtx-3090|compute": 0.8}
    found = engines.Fitted(constants, [], engines.np.array([]), engines.np.array([]))
    monkeypatch.setattr(engines, "places", lambda job, theta, cards: {
        gpu: ([f'gpu = "{gpu}"'], {gpu}, 1) for gpu in ("gb10", "rtx-3090")})  # fmt: skip
    engines.write_cards(path, {"llama.cpp": found})
    text = path.read_text(encoding="utf-8")
    assert text.count('gpu = "gb10"\nengine = "llama.cpp"\n') == 1
    assert "compute = 0.42" in text
    assert "compute = 0.8\n" in text
    assert "compute = 0.9\n" not in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gem"], "unknown step 'gem'"),
        (["--from", "all"], "unknown step 'all'"),
        (["gemm", "--data", "nowhere"], "--data is nowhere, but it holds no folder ops"),
    ],
)
def test_wrong_input_is_told(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err


def test_a_familys_row_names_the_cards_that_have_none_of_their_own() -> None:
    """By them the answer knows that a card was measured, though its factors are its family's."""
    constants = {"~instinct|few": 1.6, "mi300x|bandwidth": 0.5}
    found = places(JOBS["vllm-2024-rocm"], constants, ["mi300x", "mi250-gcd", "mi300x"])
    assert found["mi300x"][0] == ['gpu = "mi300x"']
    assert found["~instinct"][0] == ['product_family = "instinct"', 'cards = "mi250-gcd"']
