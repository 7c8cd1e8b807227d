"""scripts/fit says what changed: constants by the row they are of, never dates; wrong input is told in a sentence."""

import pytest

from rooflm_fit.__main__ import STEPS, changes, main

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
    assert {"gemm", "attention", "mla", "moe", "elementwise", "collectives", "engines", "serving", "training"} < {
        *STEPS
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [(["gem"], "unknown step 'gem'"), (["gemm", "--data", "nowhere"], "--data is nowhere, but it holds no folder ops")],
)
def test_wrong_input_is_told(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err
