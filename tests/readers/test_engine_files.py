"""Engines as rows and as files of one's own: one set of numbers, one set of rules, wherever a value comes from."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rooflm import RooflmError, infer, serve, train
from rooflm.catalogue.engine import GROUPS, PLACES, Engine, ServerOptions
from rooflm.catalogue.fields import abouts
from rooflm.cli.app import main
from rooflm.readers.command import Command
from rooflm.readers.engines import ABOUT, engine_names, load_engine
from rooflm.readers.schemes import parse_quant
from rooflm.readers.tables import LEAST
from rooflm.search.serve_command import serve_command

HERE: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "batch": 8, "quant": "fp8"}


def own(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(f'source = "a test"\n{text}\n', encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("base", ["vllm", "trtllm", "sglang", "llama.cpp"])
@pytest.mark.parametrize("more", ["", "memory_fraction = {memory_fraction}", 'note = "as it is"'])
def test_a_file_on_a_base_gives_the_bases_answer(tmp_path: Path, base: str, more: str) -> None:
    name = own(tmp_path, f'base = "{base}"\n' + more.format(memory_fraction=load_engine(base).room.memory_fraction))
    here = HERE | {"quant": "q8_0" if base == "llama.cpp" else "fp8"}
    theirs, mine = infer(**here, engine=base), infer(**here, engine=name)
    assert (float(mine.ttft), float(mine.tpot)) == (float(theirs.ttft), float(theirs.tpot))
    assert mine.error_band == theirs.error_band
    load: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "concurrency": 8, "prompt": 256}
    load |= {"output": 32, "requests": 24}
    assert serve(**load, engine=name).values()["ttft_s"] == serve(**load, engine=base).values()["ttft_s"]


def test_a_row_is_its_base_without_some_constants(tmp_path: Path) -> None:
    every = sorted({*ABOUT} - {"version", "date", "phase", "measured_as", "family"})
    plain = load_engine(own(tmp_path, f'base = "vllm"\nwithout = "{", ".join(every)}"'))
    assert all(plain.value(name) == Engine("").value(name) for name in every)
    mine = load_engine(own(tmp_path, 'base = "vllm"\nwithout = "overlap, eager"\neager = "9 us"'))
    assert (mine.host.overlap, mine.host.waits, mine.host.eager) == (False, "", 9e-6)
    assert mine.host.step == load_engine("vllm").host.step
    with pytest.raises(RooflmError, match=r"without has the unknown field 'overlp': did you mean 'overlap'"):
        load_engine(own(tmp_path, 'base = "vllm"\nwithout = "overlp"'))


def test_a_row_differs_from_its_base_as_those_it_is_like(tmp_path: Path) -> None:
    """Constants, options and factors of cards, in turn; its own lines stand; neither their names nor their command."""
    mine = load_engine(own(tmp_path, 'base = "ollama"\nlike = "vllm-0.28, llama.cpp-metal"\nkv_reread = 3'))
    ollama, metal, later = map(load_engine, ("ollama", "llama.cpp-metal", "vllm-0.28"))
    assert (mine.kernels.kv_reread, mine.host.gap, mine.server.budgets) == (3, metal.host.gap, later.server.budgets)
    assert (mine.version, mine.command, mine.runs) == (ollama.version, ollama.command, ollama.runs)
    on_hopper = load_engine(own(tmp_path, 'base = "ollama"\nlike = "llama.cpp-2026-05"'), "", "hopper")
    assert on_hopper.host.gap == load_engine("llama.cpp-2026-05", "", "hopper").host.gap
    path = own(tmp_path, f'base = "vllm"\nlike = "{tmp_path}/mine.toml"')
    with pytest.raises(RooflmError, match="takes its lines from this row"):
        load_engine(path)


def test_a_row_that_says_how_it_starts_has_no_flag_of_its_base() -> None:
    assert not re.search("--", " ".join(str(v) for v in vars(load_engine("nim").command).values()))
    assert load_engine("ollama").command.host == ""  # llama-server's


def test_an_answer_says_what_a_file_of_ones_own_stands_on(tmp_path: Path) -> None:
    said = {
        'base = "vllm"\nstep = "0.5 ms"\n[server]\nmax_sequences = 8': "mine is vllm but for step, "
        "server.max_sequences (constants and error bands of vllm)",
        'base = "vllm"': "mine is as vllm",
        'base = "vllm"\nlike = "vllm-0.28"': "mine is vllm but for what vllm-0.28 changes (constants and error bands "
        "of vllm)",
        'base = "vllm"\nwithout = "overlap"': "mine is vllm but for overlap (constants and error bands of vllm)",
        'step = "0.5 ms"': "mine has no base: all but step are defaults, fitted to no engine",
    }
    for text, expected in said.items():
        assert expected in infer(**HERE, engine=own(tmp_path, text)).assumed
    trained = train("llama-3.1-8b", gpu="h100", batch=8, engine=own(tmp_path, 'base = "megatron"\nstep = "1 ms"'))
    assert any(told.startswith("mine is megatron but for step") for told in trained.assumed)
    machine = Path(__file__).parents[2] / "docs" / "measured" / "two-cores.toml"
    told = " ".join(infer("smollm2-135m", gpu=str(machine)).assumed)
    assert "base" not in told.replace(str(machine), "")


def test_what_a_file_gives_itself_no_card_scales(tmp_path: Path) -> None:
    name = own(tmp_path, 'base = "vllm"\nprompt = 2\nsequence = "5 us"')
    mine, theirs = load_engine(name, "h100-sxm-80gb"), load_engine("vllm", "h100-sxm-80gb")
    assert [mine.value(n) for n in ("prompt", "sequence", "gemm_factor")] == [2.0, 5e-6, theirs.factors.gemm_factor]


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang", "hf-eager", "llama.cpp"])
def test_show_prints_the_numbers_that_predictions_use(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", "engine", engine])
    lines = capsys.readouterr().out.partition("\nServer")[0]
    shown = dict(re.findall(r"^  (\w+) +(\S+(?: [µmn]?s\b)?) ", lines, re.MULTILINE))
    used = infer("llama-3.1-8b", gpu="a100-sxm-80gb", engine=engine).scenario.engine  # no factors of its own
    units = {"": 1.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
    for name in ("step", "sequence", "request", "front", "gap", "eager", "collective_factor", "gemm_factor", "prompt"):
        value, _, unit = shown[name].partition(" ")
        assert float(value) * units[unit] == pytest.approx(float(used.value(name)), rel=2e-3, abs=1e-12), name


def test_a_server_takes_the_limits_of_its_engine(tmp_path: Path) -> None:
    name = own(tmp_path, 'base = "vllm"\ntoken_budget = 2048')
    run = serve("llama-3.1-8b", gpu="h100-sxm-80gb", engine=name, concurrency=2, requests=4, prompt=64, output=4)
    assert run.run.pools[0].table.components.scenario.engine.room.token_budget == 2048
    small, large = (
        serve("llama-3.1-8b", gpu=g, engine="sglang", concurrency=2, requests=4, prompt=64, output=4).run.pools[0]
        for g in ("h100-sxm-80gb", "b200-sxm-180gb")
    )
    assert (small.server.budget, large.server.budget) == (8192, 16384)


BAD = [
    ("memory_fraction", 1.7, "above 0 and at most 1"),
    ("free_fraction", 3, "above 0 and at most 1"),
    ("kernels", "nobody", "it must be one of llama.cpp, sglang, torch, trtllm, vllm"),
    ("gap", -1.0, "it must be from -1.25e-06 to 0.01"),
    ("stage_tokens", 0, "a whole number of at least 1"),
    ("max_sequences", 0, "a whole number of at least 1"),
    ("max_sequences", 2.5, "a whole number of at least 1"),
    ("graphs", "8 4", "whole numbers from 1 to 65536 that rise"),
    ("graphs", "1, nan", "whole numbers from 1 to 65536 that rise"),
    ("graphs", [1, 200000000], "whole numbers from 1 to 65536 that rise"),
    ("step", -1e-3, "0 or more"),
    ("step", math.inf, "0 or more"),
    ("many_experts", "nobody:8", "it must be one of 1stage, aiter, cutlass"),
    ("all_reduce", "ring", "it must be one of nccl, custom"),
    ("overlap", 1, "it must be true or false"),
    ("gemm_factor", 0, "above 0"),
]


@pytest.mark.parametrize(("field", "value", "rule"), BAD)
def test_a_file_and_a_set_path_obey_the_same_rule(tmp_path: Path, field: str, value: Any, rule: str) -> None:
    written = {"True": "true", "False": "false"}.get(str(value), repr(value).replace("'", '"'))
    with pytest.raises(RooflmError, match=re.escape(rule)) as of_file:
        load_engine(own(tmp_path, f"{field} = {written}"))
    with pytest.raises(RooflmError, match=re.escape(rule)) as of_set:
        infer(**HERE, sets={f"engine.{field}": value})
    assert field in str(of_file.value) and f"engine.{field}" in str(of_set.value)


def test_values_within_their_rules_pass_by_either_door(tmp_path: Path) -> None:
    for name, about in ABOUT.items():
        for value in {about.low, about.high, 1.0} if about.kind == "number" else ():
            inside = about.low <= value <= about.high and math.isfinite(value) and not (about.above and value == 0)
            if inside and not 0 < value < LEAST.get(about.unit, 0):  # a rate without its unit
                assert load_engine(own(tmp_path, f"{name} = {value}")).value(name) == value
                assert float(infer(**HERE, sets={f"engine.{name}": value}).scenario.engine.value(name)) == value
    text = infer(**HERE, sets={"engine.step": "2 ms"}).scenario.engine
    assert text.host.step == 2e-3


def test_no_stage_of_no_tokens() -> None:
    for path in ("engine.stage_tokens", "engine.max_sequences", "model.max_context"):
        with pytest.raises(RooflmError, match="is 0, but"):
            infer("llama-3.1-8b", gpu="h100-sxm-80gb", pp=2, sets={path: 0})


def test_launches_that_overlap_never_make_time_negative() -> None:
    at = {"model": "smollm2-135m", "batch": 1, "prompt": 1, "output": 2, "sets": {"engine.gap": -1.25e-6}}
    for gpu in ("a40", "a100-sxm-80gb", "b200-sxm-180gb"):
        for engine in ("vllm", "trtllm", "hf-eager"):
            found = infer(gpu=gpu, engine=engine, **at)
            assert float(found.tpot) > 0 and all(float(np.min(v)) >= 0 for v in found.decode_parts.values())


def test_fitted_corrections_of_kernels_do_not_beat_the_roofline() -> None:
    """An ideal prediction keeps the engine's host costs, not what corrects the times of measured kernels."""
    e = infer("llama-3.1-8b", gpu="h100-sxm-80gb", engine="vllm", efficiency="ideal")
    alone = sum(float(t.total) for t in e.timed["decode"] if np.ndim(t.total) == 0)
    assert float(e.decode_parts["gaps"]) == 0.0 and float(e.tpot) >= alone
    row = load_engine("vllm")
    front = row.host.front + (row.host.tokenise + row.host.carry) * e.scenario.workload.prompt
    assert float(e.prefill_parts["request"]) == pytest.approx(row.host.request + front, rel=1e-3)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    name = own(tmp_path, 'base = "vllm"\nstep = "1 ms"')
    before = float(infer(**HERE, engine=name).tpot)
    own(tmp_path, 'base = "vllm"\nstep = "50 ms"')
    assert load_engine(name).host.step == 0.05
    assert float(infer(**HERE, engine=name).tpot) > before + 0.02


def test_a_neutral_number_is_neutral_whatever_object_it_is() -> None:
    one = float("1") + 0.0
    plain = infer(**HERE, tp=2)
    assert float(infer(**HERE, tp=2, sets={"engine.collective_floor": one}).tpot) == float(plain.tpot)
    assert float(infer(**HERE, tp=2, sets={"engine.collective_floor": np.float64(1)}).tpot) == float(plain.tpot)


def test_bad_rows_say_what_is_wrong(tmp_path: Path) -> None:
    for text, rule in (
        ('[x]\nstep = "fast"', "step"), ("[x.server]\nbugdet = 1", "did you mean 'budget'?"),
        ("[x.cards.hopper]\nkernels = 2", "no number of an engine"), ("[x.cards.hopper]\ngemm_factor = 0", "above 0"),
        ("[x.cards.hoper]\ngemm_factor = 2", "did you mean 'hopper'?"),
        ("[x]\nstepp = 1", "stepp"), ("[x]\nbase = 3", "base"),
    ):  # fmt: skip
        path = tmp_path / "bad.toml"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(RooflmError, match=re.escape(rule)):
            load_engine(str(path))
    path.write_text(f'base = "{path}"', encoding="utf-8")
    with pytest.raises(RooflmError, match="builds on itself"):
        load_engine(str(path))


@pytest.mark.parametrize("name", ["llama.cpp-rocm", "llama.cpp-rocm-2025-12", "llama.cpp-vulkan-rocm"])
def test_factors_hold_for_a_generation(name: str) -> None:
    plain, known, new = (load_engine(name, *on) for on in ((), ("rx-9070", "rdna4"), ("a-new-card", "rdna4")))
    assert known == new != plain
    assert load_engine(name, "a-new-card", "rdna2") == plain


def test_cards_without_tensor_cores_had_integer_products_before_others() -> None:
    early, today = (load_engine(name, "p40", "pascal") for name in ("llama.cpp-2024-05", "llama.cpp"))
    assert early.kernels.dequant == today.kernels.dequant == 0
    assert early.factors.prompt == pytest.approx(today.factors.prompt)
    assert load_engine("llama.cpp-2024-05", "rtx-3090", "ampere").kernels.dequant > 0


def test_factors_on_a_card_are_those_of_the_row_that_one_builds_on(tmp_path: Path) -> None:
    """But for fields that it states itself, which are as it says on every card: builds for Metal have their own gap."""
    on = ("quadro-rtx-8000", "turing")
    gap = {name: load_engine(name, *on).host.gap for name in ("llama.cpp-2025-02", "ollama-2025-12", "llama.cpp-metal")}
    assert gap["ollama-2025-12"] == gap["llama.cpp-2025-02"] == pytest.approx(3 * load_engine("llama.cpp").host.gap)
    assert gap["llama.cpp-metal"] == load_engine("llama.cpp-metal").host.gap
    more = load_engine(own(tmp_path, 'base = "ollama"\n[cards.turing]\nstream_factor = 2\n'), *on)
    assert more.host.gap == load_engine("ollama", *on).host.gap
    assert more.factors.stream_factor == pytest.approx(2 * load_engine("ollama").factors.stream_factor)


def test_a_factor_may_be_none_where_the_field_may() -> None:
    assert load_engine("llama.cpp-vulkan-rocm", "rx-9070", "rdna4").kernels.bf16_share == 0


def test_every_field_of_an_engine_is_described_once() -> None:
    groups = {f.name for f in fields(Engine)} - set(abouts(Engine))
    assert groups == {*GROUPS, "name", "server", "command", "residuals"}
    for kind in (*GROUPS.values(), ServerOptions, Command):
        assert {f.name for f in fields(kind)} == set(abouts(kind)), kind
    assert all(about.meaning and (about.kind != "number" or about.unit) for about in ABOUT.values())
    names = [name for kind in (Engine, *GROUPS.values()) for name in abouts(kind)]
    assert len(names) == len(set(names))  # so that each may go by its own name


def test_a_constant_goes_by_its_own_name_and_by_its_place() -> None:
    here = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "batch": 8}
    for name, value in {"step": 3e-3, "kernels": "trtllm", "flash": False, "token_budget": 64}.items():
        one, other = (infer(**here, sets={f"engine.{path}": value}) for path in (name, PLACES[name]))
        assert float(one.latency) == float(other.latency) and one.scenario == other.scenario
    grid = infer(**here, sets={"engine.step": [0.0, 2e-3], "engine.host.sequence": [0.0, 1e-3]})
    assert grid.tpot_s.shape == (2, 2)
    with pytest.raises(RooflmError, match="did you mean 'step'"):
        infer(**here, sets={"engine.stepp": 1e-3})


def test_engines_of_single_tables_are_found_by_name_and_not_offered() -> None:
    for name in ("hf-boxes", "tgi-1.1", "mlc", "exllamav2", "tinychat-2.0", "megatron-infer", "trtllm-nemo"):
        assert load_engine(name).name == name and name not in engine_names()
    assert load_engine("tinychat-1.0").name == "tinychat"  # by alias, too


def test_an_engine_is_one_row(tmp_path: Path) -> None:
    """Kernels, costs, server and command of a new engine: all from its row."""
    name = own(
        tmp_path,
        'base = "sglang"\nstep = "2 ms"\n[server]\nscheduler = "static"\n[cards.h100-sxm-80gb]\nmoe_factor = 2\n'
        '[command]\nstart = "serve {model}"\ntp = "--ranks {tp}"\nbatch = ""\nlength = ""\nmemory = ""\nbudget = ""',
    )
    e, theirs = load_engine(name, "h100-sxm-80gb"), load_engine("sglang")
    assert (e.host.step, e.factors.moe_factor, e.server.scheduler) == (2e-3, 2 * theirs.factors.moe_factor, "static")
    assert e.kernels == theirs.kernels
    assert serve_command("m", e, parse_quant("bf16"), {"tp": 4, "batch": 9}, 99) == "serve m --ranks 4"


def test_no_engine_is_named_in_code() -> None:
    source = Path(__file__).parents[2] / "src" / "rooflm"
    name = re.compile(r'"(vllm|sglang|trtllm|llama\.cpp|megatron(?!-bert)|nemo(?!tron))')
    allowed = ("cli/", "validation/", "works/", "measure/foreign.py", "measure/load.py")
    # a study is a table of scenarios; files and load generators of other tools go by the tools' names
    found = [
        f"{path.relative_to(source)}: {line.strip()}"
        for path in source.rglob("*.py")
        if not str(path.relative_to(source)).startswith(allowed)
        for line in path.read_text(encoding="utf-8").split("\n")
        if name.search(line) and ">>>" not in line and not line.startswith('"""')
    ]
    assert found == []
