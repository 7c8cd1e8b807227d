"""Error bands out of scored rows: how wide they are made."""

import numpy as np

from rooflm_fit.bands import GOAL, RANGE, Ratio, coverage, inside, percentiles, widening


def rows(models: int, spread: float, phase: str = "decode under load") -> list[Ratio]:
    """Thirty ratios of every model, each model with an error of its own beside that of its rows."""
    drawn = np.random.default_rng(7)
    own = drawn.normal(0, spread, models)
    return [
        Ratio(phase, "vllm", "hopper", float(np.exp(e + drawn.normal(0, 0.02))), (f"m{i}", "h100-sxm-80gb"))
        for i, e in enumerate(own)
        for _ in range(30)
    ]


def test_bands_hold_eight_of_ten_rows_of_models_left_out() -> None:
    made = rows(40, 0.1)
    power = widening(made)
    count, share = coverage(made, power)
    assert count == len(made)
    assert GOAL <= share < 0.9
    assert coverage(made, power - 0.05)[1] < GOAL or power == 1.0


def test_sources_aside_move_a_phase_towards_what_holds_both() -> None:
    made, farther = rows(40, 0.1), rows(20, 0.2)
    alone, both = widening(made), widening(made, farther)
    assert both > alone
    held = [coverage(made, both)[1], np.mean(inside(farther, percentiles(made, both)))]
    assert held[1] < GOAL < held[0]
    assert max(abs(h - GOAL) for h in held) < GOAL - np.mean(inside(farther, percentiles(made, alone)))


def test_sources_aside_leave_the_models_their_share() -> None:
    made = rows(40, 0.1)
    for spread in (0.0, 2.0):  # all inside, and all but none
        share = coverage(made, widening(made, rows(20, spread)))[1]
        assert RANGE[0] <= share <= RANGE[1]


def test_a_row_without_a_band_is_not_counted() -> None:
    made = rows(3, 0.1)
    assert inside([made[0]._replace(phase="step")], percentiles(made)) == []
    assert len(inside(made, percentiles(made))) == len(made)
