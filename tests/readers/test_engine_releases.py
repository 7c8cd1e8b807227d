"""Releases of engines: each is found by the range that a row says, in the build for the card, wherever it is named."""

from __future__ import annotations

import csv
from importlib import resources
from itertools import combinations

import pytest

import rooflm
from rooflm.asked.assumed import build_for, built_for, other_releases, with_graphs
from rooflm.asked.build_inference import build_inference, find_engine
from rooflm.errors import RooflmError, UnknownNameError
from rooflm.readers import rows
from rooflm.readers.command import command_of
from rooflm.readers.devices import load_device
from rooflm.readers.engine_releases import out_of_range, rows_of_releases, span
from rooflm.readers.engines import load_engine
from rooflm.readers.rows import row_files, rows_of
from rooflm.validation.named import engine_row

ROWS = [row.name for path in row_files("engine") for row in rows_of(path)]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("vllm-0.2.5", "vllm-2023"), ("vllm-0.2.7", "vllm-2024"), ("vllm-0.3.3", "vllm-2024"),
        ("vllm-0.5.2", "vllm-2024"), ("vllm-0.5.4", "vllm-0.5.3"), ("vllm-0.6", "vllm-0.6"),
        ("vllm-0.7.2", "vllm-2024-11"), ("vllm-0.8.5", "vllm-0.8"), ("vllm-v0.10.1", "vllm-0.8"),
        ("vllm-0.11.0", "vllm-0.10.2"), ("vllm-0.11.2", "vllm-0.11.1"), ("vllm-0.13.0", "vllm-0.11.1"),
        ("vllm-0.16.0", "vllm-0.15"), ("vLLM 0.18", "vllm-0.18"), ("vLLM 0.24", "vllm"), ("sglang-0.4", "sglang-0.4"),
        ("sglang-0.4.1.post2", "sglang-0.4"), ("sglang-0.4.5.post3", "sglang-0.4.5"),
        ("sglang-0.4.6", "sglang-0.4.7"), ("sglang-0.4.8", "sglang-0.5.2"), ("sglang-0.5.4", "sglang-0.5.4"),
        ("sglang-0.5.5", "sglang-0.5.5"), ("nim-1.5.0", "nim-1.5"), ("nim-2.0.8", "nim"),
        ("sglang-0.5.7", "sglang-0.5.6"), ("sglang-0.5.12", "sglang-0.5.11"), ("sglang-0.5.17", "sglang-0.5.14"),
        ("trtllm-0.19", "trtllm-0.17"), ("trtllm-0.20", "trtllm-1.0"), ("trtllm-1.0", "trtllm-1.0"),
        ("trtllm-1.2.0rc6", "trtllm"), ("trtllm-0.8", "trtllm-0.9"), ("trtllm-0.7.1", "trtllm-0.9"),
        ("trtllm-0.11", "trtllm-0.17"), ("llama.cpp-b10700", "llama.cpp"), ("llama.cpp-b9300", "llama.cpp-2026-06"),
        ("llama.cpp-b9200", "llama.cpp-2026-05"), ("llama.cpp-b8700", "llama.cpp-2026-02"),
        ("llama.cpp-b7600", "llama.cpp-2026-01"), ("llama.cpp-b7100", "llama.cpp-2025-12"),
        ("llama.cpp-metal-b5000", "llama.cpp-metal-2025-04"), ("llama.cpp-metal-b5330", "llama.cpp-metal-2025-02"),
        ("llama.cpp-metal-b8000", "llama.cpp-metal-2026-01"), ("llama.cpp-metal-b8400", "llama.cpp-metal"),
        ("llama.cpp-b5215", "llama.cpp-2025-04"), ("llama.cpp-b5000", "llama.cpp-2024-10"),
        ("llama.cpp-b3200", "llama.cpp-2024-10"), ("llama.cpp-b3000", "llama.cpp-2024-05"),
        ("hf-4.31", "hf-eager-4.28"), ("hf-4.46.3", "hf-eager-4.36"), ("hf-4.51", "hf-eager-4.48"),
        ("vllm-0.17.1", "vllm-0.17"), ("vllm-0.18.1", "vllm-0.18"), ("vllm-0.19.1", "vllm-0.19"),
        ("vllm-0.22", "vllm-0.20"), ("sglang-0.2.12", "sglang-0.3"), ("sglang-0.3.4", "sglang-0.3"),
        ("exllamav3-0.0.43", "exllamav3-0.0"), ("exllamav3-1.2", "exllamav3"), ("hf-4.55", "hf-eager-4.53"),
        ("hf-5.0", "hf-eager"), ("llama.cpp-b6500", "llama.cpp-2025-10"), ("ollama-0.10", "ollama-2025-07"),
        ("ollama-0.12.3", "ollama-2025-08"), ("ollama-0.21", "ollama-2025-12"), ("ollama-0.32.15", "ollama"),
        ("lmdeploy-0.10", "lmdeploy"), ("megatron-core-0.4", "megatron-2023"), ("megatron-core-0.6", "megatron-2024"),
        ("megatron-core-0.9", "megatron"), ("nemo-25.04.01", "nemo-2024"), ("nemo-25.05", "nemo-2024"),
        ("nemo-25.06", "nemo-2024"), ("nemo-25.07", "nemo"), ("nemo-26.02", "nemo"),
        ("megatron-bridge-26.10", "megatron-bridge"),
    ],
)  # fmt: skip
def test_a_release_is_found_by_range(name: str, row: str) -> None:
    assert load_engine(name).name == row


@pytest.mark.parametrize(
    ("name", "row"),
    [("vllm-9.0", "vllm-0.28"), ("vllm-0.0.5", "vllm-2023"), ("sglang==99", "sglang-0.5.20"), ("mlx==0.40", "mlx")],
)
def test_the_nearest_row_stands_in_for_a_release_out_of_all_ranges(name: str, row: str) -> None:
    said = rooflm.infer("llama-3-8b", gpu="m3-max" if row == "mlx" else "h100", engine=name).assumed
    assert load_engine(name).name == row
    assert any(f"{name} is in the range of no row: {row} stands in, of releases " in line for line in said), said


def test_the_build_that_runs_is_what_stands_in() -> None:
    said = rooflm.infer("llama-3-8b", gpu="mi300x", engine="vllm==99").assumed
    assert "vllm==99 is in the range of no row: vllm-0.28-rocm stands in, of releases 0.28 to 0.33" in said
    for release, row in (("0.17", "vllm-0.14-rocm"), ("0.19", "vllm-0.14-rocm"), ("0.20", "vllm-0.20-rocm")):
        assert rooflm.infer("llama-3-8b", gpu="mi300x", engine=f"vllm-{release}").scenario.engine.name == row
    others = (
        ("sglang-0.3", "mi300x", "sglang-0.4-rocm"),
        ("ollama-2025-07", "apple-m2-ultra-76core-192gb", "ollama-2025-08-metal"),
    )
    for engine, gpu, row in others:  # a release's row on CUDA has no twin of its own there
        assert rooflm.infer("llama-3-8b", gpu=gpu, engine=engine).scenario.engine.name == row
    assert not out_of_range("engines/vllm-9.toml", "vllm") and not out_of_range("vllm-9.toml", "vllm")


def test_a_trainer_of_another_release_stands_in() -> None:
    said = rooflm.train("llama-3-8b", gpu="h100", gpus=8, batch=8, engine="torchtune==0.3").assumed
    assert "torchtune==0.3 is in the range of no row: torchtune stands in, of releases 0.6" in said


def test_a_build_of_an_older_release_is_no_newer_one() -> None:
    said = rooflm.infer("llama-3-8b", gpu="mi300x", engine="vllm-rocm==0.1").assumed
    assert any("vllm-rocm==0.1 is in the range of no row: vllm-2024-rocm stands in" in line for line in said), said
    assert load_engine("vllm-rocm==0.10.2").name == "vllm-0.10.2-rocm"


def test_a_mistyped_engine_keeps_its_release() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown engine 'vlm==0.25': did you mean 'vllm==0.25'\?"):
        load_engine("vlm==0.25")
    with pytest.raises(UnknownNameError, match=r"did you mean 'hf-eager-4\.40'\?"):  # by its name, not an alias of it
        load_engine("optimun-benchmark-4.40")


def test_an_engine_without_a_number_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown engine 'vllm-nightly': did you mean 'vllm' or"):
        load_engine("vllm-nightly")


def test_a_release_takes_its_build_for_the_card() -> None:
    found = [build_for(name, "rocm") for name in ("vllm-0.10.1", "vllm-0.18", "llama.cpp-b7000", "sglang-0.5.7")]
    assert found == ["vllm-0.9.2-rocm", "vllm-0.14-rocm", "llama.cpp-rocm-2025-10", "sglang-0.5.6-rocm"]


def test_an_older_build_is_not_faster_than_a_newer_one() -> None:
    older, newer = (
        rooflm.infer("llama-3.1-8b", gpu="rx-7900-xtx", engine=f"llama.cpp-{build}", quant="q4_k_m", prompt=4096)
        for build in ("b6077", "b7000")
    )
    assert float(older.ttft) >= float(newer.ttft) and float(older.tpot) >= float(newer.tpot)


def test_ranges_of_releases_do_not_overlap() -> None:
    for plain in ROWS:
        for a, b in combinations([row for row in rows_of_releases(plain) if span(row)[0]], 2):
            (low, high), (other_low, other_high) = span(a), span(b)
            apart = high < other_low[: len(high)] or other_high < low[: len(other_high)]
            assert apart, (a, b)


def test_other_releases_are_of_the_same_build() -> None:
    assert other_releases("sglang-0.5.5-rocm") == (
        "sglang-0.4-rocm", "sglang-0.4.3-rocm", "sglang-0.4.5-rocm", "sglang-0.5.10-rocm", "sglang-0.5.14-rocm",
        "sglang-0.5.2-rocm", "sglang-0.5.4-rocm", "sglang-0.5.6-rocm", "sglang-rocm",
    )  # fmt: skip
    assert not [name for name in other_releases("vllm") if "rocm" in name]
    said = rooflm.infer("llama-3-8b", gpu="mi300x", engine="sglang").assumed
    assert any("other releases: sglang-0.4-rocm" in line for line in said)


@pytest.mark.parametrize(
    ("engine", "gpu"),
    [("atom", "h100"), ("vllm-rocm", "h100"), ("mlx", "h100"), ("vllm", "m3-max"), ("trtllm", "mi300x")],
)
def test_an_engine_that_is_not_built_for_a_card_is_told(engine: str, gpu: str) -> None:
    said = rooflm.infer("llama-3-8b", gpu=gpu, engine=engine).warnings
    assert any("is not built for" in line for line in said), said


def test_an_engine_that_is_built_for_a_card_is_not_told() -> None:
    for engine, gpu in (("atom", "mi300x"), ("vllm", "mi300x"), ("mlx", "m3-max"), ("llama.cpp-vulkan", "rtx-4090")):
        assert not rooflm.infer("llama-3.2-1b", gpu=gpu, engine=engine).warnings


def test_a_framework_that_is_not_built_for_a_card_is_told() -> None:
    built = ((None, "m3-ultra"), ("fsdp", "m3-ultra"), ("maxtext", "tpu-v5e"), (None, "mi300x"))
    not_built = (("megatron", "m3-ultra"), ("nemo", "tpu-v5e"), ("megatron", "gaudi3"))
    for engine, gpu, told in (*((*pair, False) for pair in built), *((*pair, True) for pair in not_built)):
        said = rooflm.train("llama-3.2-1b", gpu=gpu, batch=4, engine=engine).warnings
        assert any("is not built for" in line for line in said) == told, (engine, gpu, said)


def test_a_build_for_amd_is_published_in_an_image_of_its_own() -> None:
    for name in ("vllm-rocm", "vllm-0.9.2-rocm", "sglang-rocm", "sglang-0.5.5-rocm", "sglang-0.5.10-rocm"):
        assert "roc" in command_of(load_engine(name)).image


@pytest.mark.parametrize("plain", ["vllm", "sglang"])
def test_every_release_of_an_engine_with_a_build_for_rocm_has_one(plain: str) -> None:
    """But for vLLM's of 2023, of which nothing was measured on AMD's cards; those of 2024 are apart."""
    rows = [row for row in rows_of_releases(plain) if load_engine(row).date > "2025"]
    builds = [build_for(row, "rocm") for row in rows]
    assert all(build.endswith("-rocm") for build in builds), dict(zip(rows, builds, strict=True))


def test_releases_of_one_engine_know_each_other() -> None:
    later = ("hf-eager-4.32", "hf-eager-4.36", "hf-eager-4.48", "hf-eager-4.53")
    assert other_releases("hf-eager") == ("hf-eager-4.28", *later)
    assert other_releases("hf-eager-4.28") == ("hf-eager", *later)


@pytest.mark.parametrize("gpu", ["tpu-v5e", "trainium1", "gaudi2"])
@pytest.mark.parametrize("engine", ["atom", "trtllm", "vllm-rocm", "llama.cpp-metal"])
def test_an_engine_of_one_maker_is_built_for_no_other(engine: str, gpu: str) -> None:
    assert not built_for(load_engine(engine), load_device(gpu))


def test_a_device_that_none_is_called_is_refused() -> None:
    with pytest.raises(RooflmError, match=r"engine\.elsewhere is 'nvidea': did you mean 'nvidia'"):
        rooflm.infer("llama-3.1-8b", gpu="h100", sets={"engine.elsewhere": "apple, nvidea"})
    for row in ROWS:
        load_engine(row)


def test_every_engine_that_a_shipped_table_names_is_known() -> None:
    tables = [p for p in resources.files("rooflm").joinpath("data/published").iterdir() if p.name.endswith(".csv")]
    rows = [cells for p in tables for cells in csv.DictReader(p.read_text(encoding="utf-8").splitlines())]
    named = {(cells.get("engine") or "", cells.get("release") or "") for cells in rows}
    assert len(named) > 50
    assert not [each for each in sorted(named) if each[0] and engine_row(*each) is None]


def test_a_table_takes_names_with_releases_as_the_command_does() -> None:
    assert engine_row("hf-eager-4.36", "") == load_engine("hf-eager-4.36").name == "hf-eager-4.36"
    assert engine_row("vllm-0.8.5", "") == "vllm-0.8"


def test_vllm_of_late_2024_has_a_build_for_rocm() -> None:
    assert build_for("vllm-0.6.3", "rocm") == "vllm-2024-11-rocm"
    found = load_engine("vllm-2024-11-rocm")
    assert (found.kernels.kv_reread, found.kernels.unsplit) == (0, float("inf"))


@pytest.mark.parametrize("name", ["torchtune", "llm-foundry"])
def test_engines_of_fsdp_alone_run_no_stages(name: str) -> None:
    with pytest.raises(RooflmError, match="pp"):
        rooflm.train("llama-3-8b", gpu="h100", gpus=16, batch=64, engine=name, pp=2)


def test_decoding_graphs_go_by_memory_and_tensor_group() -> None:
    """SGLang, server_args.py of 0.5.6 on: cuda_graph_max_bs."""
    held = [
        build_inference("llama-3.1-8b", engine="sglang", gpu=card, gpus=n, tp=n).scenario.engine.host.graphed_sequences
        for card, n in (("rtx-4090", 1), ("l40s", 1), ("l40s", 4), ("h100", 2), ("h100", 4), ("mi300x", 1))
    ]
    assert [int(x) for x in held] == [24, 32, 160, 256, 512, 512]
    for n, graphs in ((1, 32), (4, 160)):  # a degree set by its path is one as well
        asked = {"engine": "sglang", "gpu": "l40s", "sets": {"mapping.tp": n}}
        assert build_inference("llama-3.1-8b", **asked).scenario.engine.host.graphed_sequences == graphs
    told = build_inference("llama-3.1-8b", engine="sglang", gpu="l40s", sets={"engine.graphed_sequences": 99}).scenario
    assert told.engine.host.graphed_sequences == 99
    eager, graphed = (
        rooflm.infer("llama-3.1-8b", gpu="h100", engine="sglang", quant="fp8", batch=n).tpot for n in (257, 256)
    )
    assert float(eager) > 1.03 * float(graphed)


def test_a_release_on_a_build_is_by_the_range_of_the_builds_own_rows() -> None:
    # 0.6.1 is among vllm-0.6's releases, but its build for ROCm begins with 0.6.2
    for release, row in (("0.6.1", "vllm-2024-rocm"), ("0.6.2", "vllm-2024-11-rocm"), ("0.14", "vllm-0.14-rocm")):
        assert build_inference("llama-2-7b", engine=f"vllm-{release}", gpu="mi300x").scenario.engine.name == row


def test_the_newest_row_stands_in_for_a_release_above_all_known_ones() -> None:
    for name, newest in (("megatron-core-99", "megatron"), ("vllm-0.99", "vllm-0.28"), ("trtllm-7.0", "trtllm")):
        assert load_engine(name).name == newest


def test_a_row_without_an_overlapped_scheduler_has_none_for_any_model() -> None:
    """Nor does it take its base's cases of models without one, which would overlap all others."""
    for name, guesses, overlaps in (("sglang-0.3", 0, False), ("sglang-0.3", 2, False), ("sglang-0.4", 0, True)):
        host = build_inference("llama-3-8b", gpu="h100", engine=name, guesses=guesses).scenario.engine.host
        assert host.overlap is overlaps, (name, guesses)


def test_engines_without_a_row_name_the_nearest_and_why() -> None:
    """Every nearest row is one, no such name is a row's, and the sentence says why."""
    beside = rows._near("engine")
    assert all(rows.resolve("engine", near) == near and why for near, why in beside.values())
    assert not set(beside) & set(rows.aliases("engine")) and all(rows.normalise(n) == n for n in beside)
    with pytest.raises(UnknownNameError, match=r"did you mean 'mlx' \(which its plugin computes with\)\?"):
        find_engine("vllm-metal")
    for tool in ("koboldcpp", "LM Studio", "oobabooga", "jan"):
        assert rows.resolve("engine", tool) == "llama.cpp"


def test_small_cards_take_more_from_sglang_0_5_20_on() -> None:
    """arg_groups/memory_hook.py of the wheels: a 5090 has passes of 4,096 tokens and graphs of 48 sequences."""
    budgets, graphs = [], []
    for release in ("0.5.19", "0.5.22"):
        found = rooflm.serve("llama-3.1-8b", gpu="rtx-5090", engine=f"sglang=={release}", quant="fp8", concurrency=2,
                             prompt=64, output=8, requests=4)  # fmt: skip
        budgets += [line for line in found.assumed if line.startswith("token budget")]
        card = load_device("rtx-5090")
        graphs.append(int(with_graphs(load_engine(f"sglang=={release}"), card, 1).host.graphed_sequences))
    assert budgets == ["token budget 2048", "token budget 4096"] and graphs == [24, 48]
