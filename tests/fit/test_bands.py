"""Error bands out of scored rows: how wide they are made."""

import numpy as np

from rooflm.kernels.constants import ANY
from rooflm_fit.bands import (
    GOAL,
    RANGE,
    Ratio,
    coverage,
    inside,
    models_out,
    percentiles,
    sources_out,
    tails,
    widening,
)


def rows(models: int, spread: float, phase: str = "decode under load", engine: str = "vllm") -> list[Ratio]:
    """Thirty ratios of every model, each model with an error of its own beside that of its rows; all of one source."""
    drawn = np.random.default_rng(7)
    own = drawn.normal(0, spread, models)
    return [
        Ratio(phase, engine, "hopper", float(np.exp(e + drawn.normal(0, 0.02))), (f"m{i}", "h100-sxm-80gb"), "campaign")
        for i, e in enumerate(own)
        for _ in range(30)
    ]


def others(count: int, spread: float, engine: str = "vllm") -> list[Ratio]:
    """The same, each model of a source of its own."""
    return [r._replace(source=f"of {r.group[0]}") for r in rows(count, spread, engine=engine)]


def test_bands_hold_eight_of_ten_rows_of_models_left_out() -> None:
    made = models_out(rows(40, 0.1, "decode"))
    power = widening(made)
    count, _, share = coverage(made, power)
    assert count == 40 * 30
    assert GOAL <= share < 0.9
    assert coverage(made, power - 0.05)[2] < GOAL or power == 1.0


def test_under_load_every_source_counts_alike() -> None:
    """A campaign of a thousand rows says as much as a source of thirty."""
    near, far = rows(40, 0.05), others(20, 0.3)
    low, high = tails([(r.unit, r.ratio) for r in far])
    (band,) = [b for b in percentiles([*near, *far]) if b.engine == ANY]
    assert band.high / band.low > 0.8 * high / low
    assert {b.architecture for b in percentiles([*near, *far])} == {ANY}


def test_sources_left_out_hold_their_share_while_models_do() -> None:
    made, farther = rows(40, 0.1), others(40, 0.12)
    models, sources = models_out(made, farther), sources_out(made, farther)
    power = widening(models, sources)
    assert abs(coverage(sources, power)[1] - GOAL) < 0.06
    assert RANGE[0] <= coverage(models, power)[1] <= RANGE[1]


def test_models_have_the_last_word() -> None:
    """Whatever sources hold, bands are not so wide that nearly all models lie inside."""
    made, farther = rows(40, 0.1), others(20, 0.15)
    models, sources = models_out(made, farther), sources_out(made, farther)
    none = [([r._replace(ratio=9.0) for r in left], bands) for left, bands in sources]
    assert coverage(models, widening(models, none))[1] <= RANGE[1]


def test_a_source_is_not_in_the_band_that_it_is_judged_by() -> None:
    made, farther = rows(5, 0.1), others(20, 0.2)
    for left, bands in sources_out(made, farther):
        assert len({r.source for r in left}) == 1
        assert max(b.rows for b in bands) == len(made) + len(farther) - len(left)


def test_one_source_says_little_of_an_engine() -> None:
    """Its band stays half that of all engines."""
    narrow = [r._replace(engine="sglang", source="one") for r in rows(3, 0.0)]
    made = percentiles([*narrow, *others(20, 0.3)])
    ends = {b.engine: np.log(b.high / b.low) for b in made}
    assert 0.45 * ends[ANY] < ends["sglang"] < 0.65 * ends[ANY]


def test_a_row_without_a_band_is_not_counted() -> None:
    made = rows(3, 0.1)
    assert inside([made[0]._replace(phase="step")], percentiles(made)) == []
    assert len(inside(made, percentiles(made))) == len(made)
