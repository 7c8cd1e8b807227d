"""Errors that several sources share: a source counts by the root of its rows, and its own error can be taken out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rooflm_fit.residuals import against, along, by, joined, main

MODELS = {"dense": "llama-3.1-8b", "mixture": "qwen3-30b-a3b"}


def tables(sources: int = 6) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sources each off by a factor of its own; mixtures 1.2 times too fast in all, a doubling of clients 1.05."""
    table, scored = [], []
    for s in range(sources):
        for kind, model in MODELS.items():
            for clients in (4, 16):
                name = f"s{s}-{kind}-{clients}"
                speed = 1.3 ** (s - 2) * (1.2 if kind == "mixture" else 1.0) * 1.05 ** np.log2(clients)
                table.append({"id": name, "metric": "tpot", "concurrency": clients, "prompt": 512, "tp": 1})
                scored.append({"id": name, "metric": "tpot", "source": f"s{s}", "model": model, "gpu": "h100-sxm-80gb",
                               "engine": "vllm 0.11", "ratio": 1 / speed, "apart": None})  # fmt: skip
    return pd.DataFrame(table), pd.DataFrame(scored)


def test_a_time_too_short_is_a_speed_too_high() -> None:
    rows = joined(*tables(1))
    assert set(rows.kind) == {"token"} and set(rows.engine) == {"vllm"} and set(rows.card) == {"datacenter hopper"}
    assert rows.log.iloc[0] == pytest.approx(-np.log(rows.ratio.iloc[0]))
    assert set(rows.clients) == {"to 8", "to 32"}


def test_rows_set_apart_and_rows_not_scored_do_not_count() -> None:
    table, scored = tables(1)
    scored.loc[0, "apart"] = "cold"
    scored.loc[1, "ratio"] = np.nan
    assert len(joined(table, scored)) == len(scored) - 2


def test_what_sources_share_is_found_though_each_has_an_error_of_its_own() -> None:
    rows = joined(*tables())
    assert by(rows, ["architecture"]).ratio.max() > 1.3  # here the sources' own error is in it
    found = against(rows, "architecture").set_index("kind, architecture")
    assert found.loc["token, mixture", "ratio"] == pytest.approx(1.2)
    assert found.loc["token, mixture", "sources"] == 6 and found.loc["token, mixture", "side"] == 10
    assert along(rows, "concurrency").ratio.tolist() == pytest.approx([1.05])


def test_a_source_of_many_rows_counts_by_their_root() -> None:
    table, scored = tables(3)
    many = scored[scored.source == "s0"]
    copies = [many.assign(id=many.id + f"-{i}") for i in range(3)]
    own = table[table.id.isin(many.id)]
    more = [own.assign(id=own.id + f"-{i}") for i in range(3)]
    rows = joined(pd.concat([table, *more]), pd.concat([scored, *copies]))
    alone = by(joined(table, scored), ["kind"]).ratio[0]
    assert by(rows, ["kind"]).ratio[0] == pytest.approx(alone / 1.3)  # weights 4, 2, 2: the first is half of all
    assert by(rows, ["kind"], least=4).empty


def test_files_are_read_and_groups_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [tmp_path / "table.csv", tmp_path / "scored.csv"]
    for data, name in zip(tables(), names, strict=True):
        data.to_csv(name, index=False)
    main([f"{names[0]}={names[1]}", "--where", "architecture == 'mixture'", "--by", "kind,card", "--against", "model"])
    first, second = capsys.readouterr().out.strip().split("\n\n")
    assert "token, datacenter hopper" in first and "Empty" in second  # one model alone is left in each source
