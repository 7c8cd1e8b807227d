"""Fields of text that hold words refuse words that nothing knows, in a row of one's own and by --set alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from rooflm import infer
from rooflm.catalogue.engine import GROUPS, Engine, ServerOptions
from rooflm.catalogue.fields import About, abouts
from rooflm.catalogue.model import Model
from rooflm.errors import RooflmError
from rooflm.readers.engines import check_words, load_engine
from rooflm.readers.rows import names

FREE = ("version", "date", "name")
"""Texts that hold no words of a list."""


def words_of(owner: Any) -> list[str]:
    """Names of a record's fields of text."""
    known: Mapping[str, About] = abouts(owner)
    return [f.name for f in fields(owner) if f.name in known and known[f.name].kind not in ("number", "flag")
            and isinstance(known[f.name].among, tuple) and f.name not in FREE]  # fmt: skip


def refused(call: Callable[[], object]) -> str:
    """The sentence with which a call refuses."""
    with pytest.raises(RooflmError) as told:
        call()
    return str(told.value)


def paths_of_words() -> list[str]:
    """Paths of every text of an engine, but for the commands that start it."""
    parts = {place: GROUPS[place] for place in GROUPS} | {"server": ServerOptions}
    own = [name for name in words_of(Engine) if isinstance(getattr(Engine("x"), name), str)]
    return [*own, *(f"{place}.{name}" for place, owner in parts.items() for name in words_of(owner)
                    if isinstance(attrgetter(f"{place}.{name}")(Engine("x")), str))]  # fmt: skip


@pytest.mark.parametrize("path", paths_of_words())
def test_an_engine_refuses_a_word_that_nothing_knows(path: str, tmp_path: Path) -> None:
    told = refused(lambda: infer("llama-3.1-8b", gpu="h100", sets={f"engine.{path}": "zzz"}))
    assert told.startswith(f"engine.{path} is 'zzz'") and "\n" not in told and len(told) < 900
    file = tmp_path / "mine.toml"
    part, _, name = path.rpartition(".")
    name = "kernels" if name == "whose" else name
    file.write_text(f'base = "vllm"\n{"[server]" if part == "server" else ""}\n{name} = "zzz"\n', encoding="utf-8")
    assert f"{name} is 'zzz'" in refused(lambda: load_engine(file))


@pytest.mark.parametrize(("path", "first"), [("waits", "conv, gated-delta, guesses, kda,"), ("uncaptured", "1stage, ")])
def test_a_refusal_lists_families_of_models_last_and_once(path: str, first: str) -> None:
    told = refused(lambda: infer("llama-3.1-8b", gpu="h100", sets={f"engine.{path}": "zzz"}))
    listed = told.partition("it must be one of ")[2]
    assert listed.startswith(first) and "stages" in listed.split("afmoe")[0] and "_text" not in listed


def test_a_row_of_ones_own_may_be_a_family_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "vllm"\nfamily = "mine"\nmeasured_as = "mine"\n', encoding="utf-8")
    one, plain = (infer("llama-3.1-8b", gpu="h100", engine=engine) for engine in (str(file), "vllm"))
    assert one.scenario.engine.family == one.scenario.engine.runs == "mine" and one.tpot == plain.tpot
    file.write_text('base = "vllm"\nfamily = "mnie"\n', encoding="utf-8")
    assert "family is 'mnie'" in refused(lambda: load_engine(file))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("engine.waits", "guess", "did you mean 'guesses'"),
        ("engine.uncaptured", "qwen3_nex", "did you mean 'qwen3_next'"),
        ("engine.server.budgets", "amper:2048", "did you mean 'ampere'"),
        ("engine.server.budgets", "35=2048", "limits by card such as '35:2048"),
        ("engine.experts_of", "tritn:*/bf16", "did you mean 'triton'"),
        ("engine.experts_of", "triton:*/bf17", "type is 'bf17': did you mean 'bf16'"),
        ("engine.experts_of", "triton:*/bf16/hoper", "generation is 'hoper': did you mean 'hopper'"),
        ("engine.experts_of", "triton", "it must be such as 'triton:*/bf16"),
        ("engine.widened_experts", "mixtral/mxfp4/cdna", "generation is 'cdna': did you mean 'cdna"),
        ("engine.widened_experts", "mixtrel/mxfp4/cdna3", "family is 'mixtrel': did you mean 'mixtral'"),
        ("engine.ready_operands", "q_up/fp9", "type is 'fp9': did you mean 'fp8'"),
        ("model.norm", "lyer", "did you mean 'layer'"),
        ("model.dtype", "bf17", "did you mean 'bf16'"),
        ("model.params_kind", "exactly", "did you mean 'exact'"),
        ("cluster.device.kernels_of", "h10", "did you mean 'h100"),
    ],
)
def test_a_refusal_names_the_nearest_word(path: str, value: str, said: str) -> None:
    assert said in refused(lambda: infer("llama-3.1-8b", gpu="h100", sets={path: value}))


def test_what_rows_say_is_known() -> None:
    """Every row of the catalogue keeps to the words; cards of one's own to cards that are known."""
    for name in names("engine"):
        check_words(name)
    assert {"norm", "dtype", "params_kind"} < {*words_of(Model)} and "h100-sxm-80gb" in names("gpu")


def test_a_card_of_ones_own_has_kernels_of_a_known_card(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "rtx-4090"\nkernels_of = "rtx-409"\n', encoding="utf-8")
    assert "kernels_of is 'rtx-409': did you mean 'rtx-4090'" in refused(lambda: infer("llama-3.1-8b", gpu=str(file)))
