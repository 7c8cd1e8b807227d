"""Measuring real (tiny, random) models in processes: time, memory, bytes, FLOPs, accuracy; failures as cells."""

from __future__ import annotations

import doctest
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from measuring import tiny

from rooflm.cli.app import main
from rooflm.errors import RooflmError
from rooflm.measure import results
from rooflm.measure.case import Case, check, check_room
from rooflm.measure.plan import plan
from rooflm.measure.results import Row
from rooflm.measure.runs import runner, worker
from rooflm.measure.shape import Shape


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny(tmp_path_factory.mktemp("llama"))


def measured(case: Case) -> dict[tuple[str, int], float]:
    outcome = runner.run_case(case, timeout=600)
    assert outcome.status == "ok", outcome.reason
    return {(r.metric, r.rank): r.stat.value for r in outcome.rows}


def small(model: str, **other: object) -> Case:
    fields: dict[str, object] = {"model": model, "batch": 2, "prompt": 12, "output": 4, "repeats": 2, **other}
    return check(Case(**fields))  # type: ignore[arg-type]


def test_one_process_gives_times_memory_and_the_graphs_flops(model: str) -> None:
    found = measured(small(model))
    assert 0 < found["ttft_s", -1] < found["latency_s", -1]
    assert found["latency_s", -1] >= 3 * 0.5 * found["tpot_s", -1]
    # by hand: 2 layers of q 192, kv 96 twice, o 192 and three of 256 by 192; embedding and head of 512 rows; 5 norms
    weights = 4 * (2 * 192 * (192 * 2 + 96 * 2 + 3 * 256) + 2 * 512 * 192 + 5 * 192)
    assert found["weights_bytes", 0] == pytest.approx(weights, rel=0.001)  # and the rotary table
    assert found["kv_cache_bytes", 0] == 2 * (12 + 3) * 2 * 2 * 96 * 4
    assert found["prefill_flops", -1] == found["prefill_flops_expected", -1] > 0
    assert found["decode_flops", -1] == found["decode_flops_expected", -1] > 0
    # by hand: products of two tokens, scores and values over 13 keys in full
    by_hand = 2 * 2 * (2 * 192 * (192 * 2 + 96 * 2 + 3 * 256) + 512 * 192) + 2 * 2 * 2 * 2 * 13 * 192
    assert found["decode_flops", -1] == by_hand
    assert 0 < found["busy", 0] <= 1.1
    assert found["decode_kernels", -1] > 40


def test_tensor_parallel_sends_what_is_predicted_to_the_byte(model: str) -> None:
    found = measured(small(model, tp=2))
    for rank in (0, 1):
        for phase, tokens in (("prefill", 24), ("decode", 2)):
            # embedding and two reductions a layer of 192 values of 4 B; logits of 2 rows: each sends its half
            assert found[f"{phase}_comm_bytes", rank] == 5 * tokens * 192 * 4 + 2 * 512 * 4 / 2
            assert found[f"{phase}_comm_bytes", rank] == found[f"{phase}_comm_bytes_expected", rank]
    assert found["weights_bytes", 0] > found["weights_bytes", 1]  # two groups of heads and one


def test_pipeline_parallel_sends_hidden_states_once(model: str) -> None:
    found = measured(small(model, pp=2))
    assert found["prefill_comm_bytes", 0] == found["prefill_comm_bytes_expected", 0] == 24 * 192 * 4
    assert found["decode_comm_bytes", 0] == found["decode_comm_bytes_expected", 0] == 2 * 192 * 4
    assert found["prefill_comm_bytes", 1] == found["prefill_comm_bytes_expected", 1] == 0
    assert found["decode_control_bytes", 0] == 2 * 8  # the next tokens, told to every stage


def test_data_parallel_training_reduces_every_gradient_once(model: str) -> None:
    found = measured(small(model, task="train", dp=2))
    assert found["step_comm_bytes", 0] == found["step_comm_bytes_expected", 0]
    parameters = 2 * 192 * (192 * 2 + 96 * 2 + 3 * 256) + 2 * 512 * 192 + 5 * 192
    assert found["step_comm_bytes", 0] == parameters * 4  # 2 (n - 1) / n of them
    assert found["step_time_s", -1] >= found["forward_s", -1]


def test_training_splits_agree_and_send_what_is_predicted_to_the_byte(tmp_path: Path) -> None:
    tied = tiny(tmp_path, tie_word_embeddings=True)
    plain, tensor, stages = (
        measured(small(tied, task="train", **split)) for split in ({}, {"tp": 2}, {"pp": 2})
    )  # fmt: skip
    # the loss after two updates: wrong gradients of any part would show
    assert tensor["loss", 0] == tensor["loss", 1] == pytest.approx(plain["loss", 0], abs=1e-4)
    assert stages["loss", 1] == pytest.approx(plain["loss", 0], abs=1e-4)
    # embedding, two reductions a layer and their mirror images: 24 rows of 192 values; three numbers a row at the loss
    assert tensor["step_comm_bytes", 0] == 2 * 5 * 24 * 192 * 4 + 3 * 24 * 4
    # hidden states forward or their gradient back, and the gradient of the tied embedding
    assert stages["step_comm_bytes", 0] == stages["step_comm_bytes", 1] == 24 * 192 * 4 + 512 * 192 * 4
    for found in (tensor, stages):
        for rank in (0, 1):
            assert found["step_comm_bytes", rank] == found["step_comm_bytes_expected", rank]


def test_examples_of_what_runs() -> None:
    """Those of all other modules are collected by pytest, which imports them in every process."""
    from rooflm.measure.runs import parallel

    for module in (worker, parallel):
        done = doctest.testmod(module)
        assert done.attempted and not done.failed, module.__name__


def test_the_head_sees_one_matrix(model: str) -> None:
    import torch

    from rooflm.measure.runs.parallel import Flat

    head = Flat(torch.nn.Linear(8, 16, bias=False))
    x = torch.randn(3, 5, 8)
    seen: list[tuple[int, ...]] = []
    head.head.register_forward_pre_hook(lambda _, given: seen.append(tuple(given[0].shape)))
    assert torch.allclose(head(x[:, -1:]), head.head(x)[:, -1:], atol=1e-6)
    assert seen[0] == (3, 8)


@pytest.mark.parametrize("split", [{"tp": 2}, {"pp": 2}])
def test_splits_agree_with_the_plain_model(model: str, split: dict[str, int]) -> None:
    case = Case(task="accuracy", model=model, tokens=96, context=48, **split)  # type: ignore[arg-type]
    found = measured(case)
    assert found["max_logit_error", -1] < 1e-4
    assert found["top1_agreement", -1] == 1 and found["greedy_match", -1] == 1


def test_int8_weights_are_smaller_and_nearly_right(model: str) -> None:
    found = measured(Case(task="accuracy", model=model, tokens=96, context=48, dtype="bf16", quant="int8-wo"))
    assert 1e-4 < found["max_logit_error", -1] < 0.1
    assert found["top1_agreement", -1] > 0.8
    plain, narrow = (measured(small(model, dtype="bf16", quant=q))["weights_bytes", 0] for q in ("none", "int8-wo"))
    blocks = 2 * 192 * (192 * 2 + 96 * 2 + 3 * 256)
    assert plain - narrow == pytest.approx(blocks, rel=0.03)  # one byte less a value, two more a row for its scale


def test_micro_benchmarks_cover_kernels_and_collectives() -> None:
    rows = runner.run_case(Case(task="micro", size="tiny", repeats=2), 600).rows
    assert {r.metric for r in rows} == {
        "gemm_s", "attention_s", "decode_attention_s", "elementwise_s", "copy_s", "launch_s"}  # fmt: skip
    assert all(r.stat.value > 0 for r in rows)
    together = runner.run_case(Case(task="micro", size="tiny", repeats=2, tp=2), 600).rows
    assert {r.metric for r in together} == {"all_reduce_s", "all_gather_s", "reduce_scatter_s", "p2p_s"}
    assert {r.n for r in together} == {2}


def test_a_run_resumes_and_a_bad_case_is_a_cell(model: str, tmp_path: Path) -> None:
    out = str(tmp_path / "r.csv")
    good, bad = small(model), small(model, layers=9)
    told: list[str] = []
    runner.run([good, bad], out, lambda i, n, case, status: told.append(status))
    assert told[0] == "ok" and told[1] == f"failed: layers is 9, but {model} has 2"
    told.clear()
    rows = runner.run([good, replace(bad, layers=1)], out, lambda i, n, case, status: told.append(status))
    assert told == ["kept", "ok"]
    fine = [r for r in rows if r.status == "ok"]  # the others hold nan, which equals nothing
    assert [r for r in results.read(out) if r.status == "ok"] == fine
    assert len({r.case for r in fine}) == 2
    assert sum(r.status == "failed" for r in rows) == 1
    environment = results.environment_file(out).read_text(encoding="utf-8")
    assert '"torch"' in environment and '"python"' in environment


def test_memory_beyond_the_machine_is_a_cell(tmp_path: Path) -> None:
    huge = tiny(tmp_path, hidden_size=6 * 2**18, head_dim=2**18, vocab_size=8)  # a matrix of 10 TB
    outcome = runner.run_case(small(huge), timeout=600)
    assert outcome.status == "oom" and outcome.reason == "out of memory"


def die(case: Case, rank: int, folder: str, pipe: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_killed_worker_is_told(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "main", die)
    outcome = runner.run_case(small(model), timeout=600)
    assert outcome.status == "failed" and "SIGTERM" in outcome.reason


def test_a_killed_worker_leaves_finished_cases(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    out = str(tmp_path / "r.csv")
    runner.run([small(model)], out)
    monkeypatch.setattr(worker, "main", die)
    told: list[str] = []
    runner.run([small(model), small(model, batch=1), small(model, prompt=8)], out, lambda i, n, c, s: told.append(s))
    assert told[0] == "kept" and all("SIGTERM" in t for t in told[1:])  # the run goes on
    assert {r.case.batch for r in results.read(out) if r.status == "ok"} == {2}


def cut_off(case: Case, rank: int, folder: str, pipe: object) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "nosuch0"
    worker.main(case, rank, folder, pipe)


def test_ranks_that_cannot_connect_are_told(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "main", cut_off)
    outcome = runner.run_case(small(model, tp=2), timeout=600)
    assert outcome.status == "failed" and "the ranks cannot connect to each other" in outcome.reason
    assert "\n" not in outcome.reason


def test_a_missing_model_and_text_are_told(model: str, tmp_path: Path) -> None:
    outcome = runner.run_case(Case(model="/no/such.gguf"), 600)
    assert outcome.status == "failed" and "no such file" in outcome.reason
    lost = runner.run_case(Case(task="accuracy", model="gguf:no-such-package"), 600)
    assert lost.status == "failed" and "no installed package" in lost.reason
    (tmp_path / "t.txt").write_bytes(b"\xff\xfe\x00")
    for text, reason in (("/no/such.txt", "No such file"), (str(tmp_path / "t.txt"), "it is not UTF-8 text")):
        unread = runner.run_case(Case(task="accuracy", model=model, text=text), 600)
        assert unread.status == "failed" and unread.reason.startswith(f"cannot read text {text!r}: {reason}")


def test_the_command_measures_and_draws(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, plot = tmp_path / "r.parquet", tmp_path / "r.png"
    asked = ["measure", model, "--batch", "1,2", "--prompt", "8,16", "--output", "2", "--repeats", "1"]
    assert main([*asked, "--out", str(out), "--plot", str(plot), "--plot-kind", "heatmap"]) == 0
    said = capsys.readouterr()
    assert "b2 16+2" in said.out and "4/4" in said.err
    assert len({r.case for r in results.read(out)}) == 4
    assert plot.stat().st_size > 5000


def test_without_torch_the_command_says_what_to_install(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["measure", model]) == 2
    assert "pip install 'rooflm[measure]'" in capsys.readouterr().err


def test_cases_are_checked() -> None:
    wrong = (
        ({"dtype": "fp8"}, "dtype"), ({"batch": 3, "dp": 2}, "multiple of dp"), ({"quant": "int8-wo"}, "bf16"),
        ({"batch": 0}, "at least 1"), ({"tp": 2, "pp": 2}, "one at a time"), ({"width_prune": 1.0}, "below 1"),
        ({"compiled": True, "tp": 2}, "one process"), ({"size": "huge"}, "it must be one of tiny, small, full"),
        ({"text": "nowhere.txt"}, "text is 'nowhere.txt', but there is no such file"),
    )  # fmt: skip
    for bad, said in wrong:
        with pytest.raises(RooflmError, match=said):
            check(Case(model="m", **bad))  # type: ignore[arg-type]


def test_a_plan_leaves_out_what_makes_no_sense() -> None:
    made = plan({"model": "m", "dtype": ["fp32", "bf16"], "threads": 1}, ["none", "tp2"], ["none", "int8-wo"])
    assert [(c.dtype, c.tp, c.quant) for c in made.cases] == [
        ("fp32", 1, "none"), ("fp32", 2, "none"), ("bf16", 1, "none"), ("bf16", 1, "int8-wo"), ("bf16", 2, "none"),
    ]  # fmt: skip
    assert len(made.left_out) == 3
    with pytest.raises(RooflmError, match="strategy is 'xp2'"):
        plan({"model": "m"}, ["xp2"])
    with pytest.raises(RooflmError, match="unknown optimisation 'int8'"):
        plan({"model": "m"}, ["none"], ["int8"])


def test_tables_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(RooflmError, match="no such file"):
        results.read(tmp_path / "absent.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(RooflmError, match="no table of `rooflm measure`"):
        results.read(tmp_path / "other.csv")
    row = Row(Case(model="m"), "memory_bytes", "B", results.constant_stat(-2.0))
    results.write(tmp_path / "r.csv", [row])
    with pytest.raises(RooflmError, match=r"value of memory_bytes is -2\.0, but it must be a finite"):
        results.read(tmp_path / "r.csv")


def test_rows_survive_a_file(tmp_path: Path) -> None:
    row = Row(
        Case(model="m", compiled=True, width_prune=0.25),
        "ttft_s",
        "s",
        results.stat([1.0, 2.0, 4.0]),
        Shape(64, 100, 2, 4, 2, 16, 128).text(),
        3,
        1,
        2,
        4,
    )
    for name in ("r.csv", "r.parquet"):
        results.write(tmp_path / name, [row])
        assert results.read(tmp_path / name) == [row]


def test_weights_beyond_the_memory_are_refused_before_they_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random weights of a model on a machine without a GPU: all of them, those of some layers, of a narrower type."""
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/rocm-smi" if name == "rocm-smi" else None)
    check_room(Case(model="llama-3.1-8b"), 2**30)  # PyTorch takes an AMD GPU by itself, too
    case = Case(model="llama-3.1-8b", device="cpu")
    with pytest.raises(RooflmError, match=r"weights in fp32 take 29.92 GiB, and this machine has 24.00 GiB"):
        check_room(case, 24 * 2**30)
    for fits in (replace(case, layers=4), replace(case, dtype="bf16"), replace(case, width_prune=0.5)):
        check_room(fits, 24 * 2**30)
    check_room(case, 0)  # a system that does not tell
