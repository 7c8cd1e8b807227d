"""`rooflm train` as a person meets it: answers, JSON, grids, the error band, and one sentence for bad input."""

import json
import re

import numpy as np
import pytest

import rooflm
from rooflm.asked.answers.bands import band
from rooflm.asked.answers.outputs import TRAIN_OUTPUTS
from rooflm.asked.build_training import DTYPES
from rooflm.cli.app import main
from rooflm.scenario.mapping import RECOMPUTE, SCHEDULES
from rooflm.scenario.training import OPTIMIZERS

CONTRACT = {
    "step_time_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu", "mfu", "hfu", "memory_bytes", "memory", "fits",
    "comm_bytes", "parts_s", "bubble_fraction", "steps", "gpu_hours", "days", "cost_usd", "energy_j", "error_band",
}  # fmt: skip
GPT = ("gpt3-175b", "--gpu", "a100-sxm-80gb", "--gpus", "64", "--tp", "8", "--pp", "8", "--batch", "64")


def instead(words):
    """Words in which an option that comes again stands in place of the first: a line gives each once."""
    options = re.split(r"\n(?=--)", "\n".join(words))
    return "\n".join({o if o.startswith("--set") else o.partition("\n")[0]: o for o in options}.values()).split("\n")


@pytest.fixture
def train(capsys):
    def run(*words):
        status = main(["train", *instead(words)])
        out = capsys.readouterr()
        return status, out.out, out.err

    return run


def test_json_holds_the_contract(train):
    status, out, err = train(*GPT, "--tokens", "300B", "--json")
    values = json.loads(out)
    assert (status, err) == (0, "")
    assert set(values) >= CONTRACT | set(TRAIN_OUTPUTS)
    assert sum(values["parts_s"].values()) == pytest.approx(values["step_time_s"])
    assert sum(values["memory"].values()) == pytest.approx(values["memory_bytes"])
    assert values["fits"] is True and values["reason"] == ""
    assert values["steps"] == pytest.approx(300e9 / (64 * 2048))
    assert values["gpu_hours"] == pytest.approx(values["steps"] * values["step_time_s"] * 64 / 3600)
    assert values["days"] == pytest.approx(values["gpu_hours"] / 64 / 24)
    assert values["energy_j"] == pytest.approx(values["power_w"] * values["gpu_hours"] * 3600)
    assert values["tokens_per_s_per_gpu"] == pytest.approx(2048 / values["step_time_s"])
    assert values["mfu"] == pytest.approx(values["model_tflops_per_gpu"] / 312)
    assert values["bubble_fraction"] == pytest.approx(7 / 64)


@pytest.mark.parametrize(
    "options",
    [
        ("--recompute", "full", "--vp", "3", "--sp"),
        ("--recompute", "block", "--recompute-layers", "4"),
        ("--schedule", "zb-h1", "--zero", "1"),
        ("--schedule", "dualpipe", "--dtype", "fp16"),
        ("--lora-rank", "16", "--base-bits", "4", "--micro-batch", "4"),
        ("--engine", "megatron-bridge", "--efficiency", "ideal"),
        ("--set", "training.offload_optimizer=1"),
    ],
)
def test_parts_sum_to_the_step(train, options):
    status, out, _ = train(*GPT, *options, "--json")
    values = json.loads(out)
    assert status == 0 and values["step_time_s"] > 0
    assert sum(values["parts_s"].values()) == pytest.approx(values["step_time_s"])
    assert min(values["parts_s"].values()) >= 0


def test_grid_json_has_axes(train):
    status, out, _ = train(*GPT, "--recompute", "none,full", "--micro-batch", "1,2,4", "--json")
    values = json.loads(out)
    assert status == 0
    assert list(values["axes"].items()) == [("micro_batch", [1, 2, 4]), ("recompute", ["none", "full"])]
    assert set(values) >= CONTRACT
    assert np.shape(values["step_time_s"]) == np.shape(values["error_band"]["step_time_s"]["low"]) == (3, 2)
    one = json.loads(train(*GPT, "--recompute", "full", "--micro-batch", "2", "--json")[1])
    for key in ("step_time_s", "memory_bytes", "mfu", "energy_j"):
        assert values[key][1][1] == pytest.approx(one[key]), key
    assert values["parts_s"]["backward"][1][1] == pytest.approx(one["parts_s"]["backward"])
    assert values["error_band"]["step_time_s"]["high"][1][1] == pytest.approx(one["error_band"]["step_time_s"]["high"])


def test_degrees_that_do_not_divide_the_gpus_cannot_run_in_a_grid(train):
    values = json.loads(train(*GPT[:5], "--pp", "8", "--batch", "64", "--tp", "8,16", "--json")[1])
    assert values["fits"] == [True, False]
    assert values["reason"] == ["", "the degrees do not divide the GPUs"]


def test_the_band_lies_around_the_step_and_is_printed(train):
    status, out, _ = train(*GPT)
    e = rooflm.train("gpt3-175b", gpu="a100-sxm-80gb", gpus=64, tp=8, pp=8, batch=64)
    found = band("step", "megatron", "datacenter ampere")
    assert status == 0 and found is not None and found.low < 1 < found.high and found.rows >= 20
    said = re.search(r"A step takes ([\d.]+) s, between ([\d.]+) and ([\d.]+) s in four of five like cases", out)
    assert said is not None
    step, low, high = (float(said[i]) for i in (1, 2, 3))
    assert step == pytest.approx(float(e.step_time), rel=5e-3)
    assert (low, high) == pytest.approx((float(e.step_time) * found.low, float(e.step_time) * found.high), rel=5e-3)
    assert f"error bands: step {found.rows}" in " ".join(train(*GPT, "--verbose")[1].split())


def test_no_band_where_nothing_was_calibrated(train):
    _, out, _ = train(*GPT, "--efficiency", "0.5,0.9")
    assert "like cases" not in out
    values = json.loads(train(*GPT, "--efficiency", "0.5,0.9", "--json")[1])
    assert values["error_band"]["step_time_s"] == {"low": None, "high": None, "rows": 0}


def test_tables_keep_to_80_columns(train):
    for words in (
        GPT,
        (*GPT, "--tokens", "300B", "--recompute", "full", "--vp", "3", "--set", "training.mtbf=1.8e8"),
        (*GPT, "--micro-batch", "32"),
        ("deepseek-v3", "--gpu", "h800-sxm-80gb", "--gpus", "2048", "--pp", "16", "--ep", "64", "--batch", "15360",
         "--schedule", "dualpipe", "--dtype", "fp8-block", "--seq", "4096", "--tokens", "14.8T"),
        ("llama-2-70b", "--gpu", "a100-sxm-80gb", "--gpus", "8", "--tp", "8", "--batch", "8", "--lora-rank", "16",
         "--base-bits", "4"),
        (*GPT, "--recompute", "none,selective,full", "--micro-batch", "1,2,4"),
        (*GPT, "--tp", "1,2,4,8,16", "--schedule", "1f1b,zb-h1,dualpipe", "--dtype", "bf16,fp16"),
        (*GPT, "--outputs", "goodput,days,bubble_fraction", "--micro-batch", "1,2"),
    ):  # fmt: skip
        status, out, err = train(*words)
        assert status == 0, (words, err)
        assert len(out.splitlines()) > 2
        assert max(map(len, out.splitlines())) <= 80, (words, max(out.splitlines(), key=len))


def test_what_does_not_fit_says_what_would(train):
    _, out, _ = train(*GPT, "--micro-batch", "32")
    words = " ".join(out.split())
    assert re.search(r"DOES NOT FIT: [\d.]+ of [\d.]+ GiB a GPU, [\d.]+ GiB too much; the largest micro-batch", words)
    status, out, err = train(*GPT, "--batch", "20", "--vp", "3")
    assert (status, out) == (2, "") and "needs a multiple of pp 8: make batch a multiple of 8" in err
    _, out, _ = train(*GPT, "--batch", "20,24", "--vp", "3")
    assert "interleaving needs a multiple" in out and "pp micro-batches" in out


def test_an_option_without_effect_is_said(train):
    status, _, err = train(*GPT, "--vp", "2", "--schedule", "1f1b")
    assert status == 0
    assert err == "rooflm: warning: vp 2 has no effect: schedule 1f1b does not interleave\n"
    _, _, err = train(*GPT, "--vp", "2", "--pp", "1", "--recompute-layers", "4", "--lora-modules", "qkv")
    assert err.splitlines() == [
        *("rooflm: warning: vp 2 has no effect: pp is 1",
          "rooflm: warning: recompute_layers 4 has no effect: recompute is none, not full or block",
          "rooflm: warning: lora_modules has no effect: lora_rank is 0"),
    ]  # fmt: skip


def test_a_zero_stage_that_goes_with_no_pipeline_is_said(train):
    _, _, err = train(*GPT, "--zero", "3")
    assert err == "rooflm: warning: zero 3 with a pipeline is none of megatron: it has at most zero 1\n"
    _, _, err = train(*GPT, "--schedule", "interleaved")
    assert err == "rooflm: warning: schedule interleaved has no effect: vp is 1\n"


def test_large_clusters_are_written_out(train):
    _, out, _ = train(
        "llama-3.1-405b", "--gpu", "h100", "--gpus", "16384", "--tp", "8", "--pp", "16", "--batch", "2048"
    )
    assert out.startswith("llama-3.1-405b on 16,384 x h100-sxm-80gb")


def test_help_names_every_choice(train, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    status, out, _ = train("--help")
    words = set(re.findall(r"[a-z0-9][a-z0-9-]*", out))
    assert status == 0
    for known in (RECOMPUTE, SCHEDULES, DTYPES, OPTIMIZERS):
        assert words >= set(known)


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "nc"])
def test_files_hold_the_band(train, tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    status, _, err = train(*GPT, "--micro-batch", "1,2", "--out", str(path))
    assert status == 0, err
    if suffix == "csv":
        lines = path.read_text().splitlines()
        assert len(lines) == 3 and "error_band.step_time_s.low" in lines[0].split(",")
    assert path.stat().st_size > 500


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (("gpt3-175x",), "did you mean 'gpt3-175b'"),
        (("--gpu", "a101"), "unknown GPU 'a101': did you mean 'a10' or 'a100-sxm-80gb'"),
        (("--cluster", "dgx-x"), "unknown cluster 'dgx-x'"),
        (("--engine", "megatrn"), "did you mean 'megatron'"),
        (("--tp", "7"), "gpus is 64, but tp 7 x pp 8 must divide it"),
        (("--dp", "4"), "gpus is 64, but tp x pp x dp x cp is 256"),
        (("--ep", "2"), "gpt3-175b has no experts"),
        (("--batch", "0"), "batch is 0, but it must be a whole number of at least 1"),
        (("--batch", "2.5"), "batch is 2.5, but it must be a whole number"),
        (("--batch", "many"), "batch is 'many', but it must be a number"),
        (("--batch", "64,,128"), "batch is '64,,128'"),
        (("--batch", "nan"), "batch is nan"),
        (("--micro-batch", "3"), "batch is 64, but it must be a multiple of dp x micro_batch = 3: try 63"),
        (("--gpus", "8192"), "dp x micro_batch = 128: try 128 or, for fewer data-parallel ranks, more tp, pp or cp"),
        (("--micro-batch", "0"), "micro_batch is 0"),
        (("--seq", "1e400"), "seq is inf"),
        (("--vp", "200"), "pp x vp is 1600, but gpt3-175b has only 96 layers"),
        (("--recompute", "som"), "it must be one of none, selective, ops, full, block"),
        (("--recompute-layers", "-1"), "recompute_layers is -1"),
        (("--schedule", "zb-h9"), "did you mean 'zb-h1' or 'zb-h2' or 'zb-v'?"),
        (("--zero", "4"), "zero is 4, but it must be 0, 1, 2 or 3"),
        (("--zero", "fsdq"), "did you mean 'fsdp'?"),
        (("--dtype", "ternary"), "dtype is 'ternary': it must be one of bf16"),
        (("--optimizer", "adamm"), "did you mean 'adam' or 'adam8bit'?"),
        (("--set", "training.optimizer=adamm"), "training.optimizer is 'adamm': did you mean 'adam'"),
        (("--set", "mapping.schedule=1f2b"), "mapping.schedule is '1f2b': did you mean '1f1b'"),
        (("--set", "engine.all_reduce=ring"), "it must be one of nccl, custom"),
        (("--tokens", "-5"), "tokens is -5, but it must be a whole number of at least 0"),
        (("--tokens", "lots"), "tokens is 'lots', but it must be a number such as 64, 8k or 1.5M"),
        (("--base-bits", "4"), "only a frozen base may be narrow: give lora_rank"),
        (("--lora-rank", "8", "--lora-modules", "qkx"), "did you mean 'qkv'?"),
        (("--efficiency", "2,3"), "each factor must be from 0.000001 to 1"),
        (("--set", "engine.graphed=2"), "engine.graphed is 2, but it must be from 0 to 1"),
        (("--set", "training.flushes=0"), "training.flushes is 0, but it must be a whole number of at least 1"),
        (("--set", "training.flushes=1.5"), "training.flushes is 1.5, but it must be a whole number of at least 1"),
        (("--set", "training.mtp=0.5"), "training.mtp is 0.5, but it must be a whole number of at least 0"),
        (("--set", "training.mtp=-1"), "training.mtp is -1, but it must be a whole number of at least 0"),
        (("--set", "training.nothing=1"), "unknown path 'training.nothing' at 'nothing'"),
        (("--set", "training.consecutive=perhaps"), "training.consecutive is 'perhaps', but it must be true or false"),
        (("--set", "engine.chunk_host=-1 ms"), "engine.chunk_host is -0.001, but it must be 0 or more"),
        (("--set", "workload.seq"), "must be PATH=VALUE"),
        (("--out", "a.doc"), "--out is 'a.doc', but it must end in .csv"),
        (("--plot", "no/a.png"), "the folder 'no' does not exist"),
        (("--plot", ""), "--plot is empty: give it a value, or leave it out"),
        (("--plot-kind", "parts"), "give --plot FILE"),
        (("--outputs", "mfuu"), "unknown output 'mfuu': did you mean 'mfu'?"),
        (("--zip", "tp,pp"), "zip names 'tp', but it is not a list"),
        (("--sensitivity", "--micro-batch", "1,2"), "--sensitivity is for a single prediction"),
        (("--on", "mars", "--micro-batch", "1,2"), "--on is 'mars'"),
        (("--nothing",), "No such option: --nothing"),
    ],
)
def test_bad_input_is_one_sentence(train, changes, says):
    words = (*changes, *GPT[1:]) if not changes[0].startswith("--") else (*GPT, *changes)
    status, out, err = train(*words)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1 and err.startswith("rooflm: ")
    assert says in err


def test_a_missing_batch_is_asked_for(train):
    status, out, err = train(*GPT[:-2])
    assert (status, out) == (2, "") and err == "rooflm: batch is missing: give the sequences of one step with --batch\n"


def test_placement_by_the_order_of_groups(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "gpt3-175b", "--gpu", "a100", "--gpus", "64", "--tp", "8", "--pp", "4", "--batch", "64", "--json"]
    steps = []
    for order in ("tp-cp-dp-pp", "dp-cp-pp-tp"):
        assert main([*words, "--order", order]) == 0
        steps.append(json.loads(capsys.readouterr().out)["step_time_s"])
    assert steps[1] > 1.2 * steps[0]  # tensor groups across nodes
    assert main([*words, "--order", "tp-dp"]) == 2
    assert "must name tp, cp, dp and pp once each" in capsys.readouterr().err


def test_what_waits_for_the_host_is_said_with_what_would_not(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["train", "llama-3.1-70b", "--gpu", "b200", "--gpus", "64", "--tp", "8", "--batch", "128"]
    assert main(asked) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "for the CPU that launches their kernels, 4.09 ms a layer and micro-batch" in shown
    assert "with micro-batch 16" in shown and "(--set engine.graphed=1)" in shown
    assert main([*asked, "--micro-batch", "16"]) == 0
    assert "for the CPU that launches" not in " ".join(capsys.readouterr().out.split())


def test_a_narrow_grid_leaves_out_what_others_imply_before_memory(capsys: pytest.CaptureFixture[str]) -> None:
    grid = "--gpus 8,16 --batch 64,128 --tp 1,2 --pp 1,2 --micro-batch 1,2 --zero 1,2"
    assert main(["train", "llama-3.1-8b", "--gpu", "h100", *grid.split()]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split()[-3:] == ["step", "tokens/s/GPU", "memory"]
    assert "(left out: TFLOP/s/GPU, MFU;" in out
