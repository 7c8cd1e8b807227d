"""Published rows become requests: names, splits, units, conventions, which rows count, and nothing ever raises."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflm.catalogue import devices as catalogue
from rooflm.catalogue.model import parameters
from rooflm.errors import RooflmError
from rooflm.validation import (
    METRICS,
    Request,
    ServeRequest,
    Skip,
    describe,
    labels,
    model_from_sizes,
    published_tables,
    read_rows,
    summarise,
)
from rooflm.validation.readers import names as alias_names
from rooflm.validation.readers.conventions import megatron_hardware_flops, megatron_model_flops
from rooflm.validation.readers.tables import (
    DERIVED,
    DUPLICATE,
    INFERENCE_COLUMNS,
    SAME_RUN,
    TRAINING_COLUMNS,
    inference_rows,
    parse,
    training_rows,
)
from rooflm_fit.llama_hours import llama_hours

INFER = {
    "id": "argonne-1",
    "model": "meta-llama/Llama-2-7b-hf",
    "gpu": "Nvidia H100",
    "gpus": "2",
    "tp": "2",
    "pp": "1",
    "engine": "vLLM",
    "precision_weights": "fp16",
    "precision_activations": "fp16",
    "precision_kv": "fp16",
    "batch": "16",
    "input_len": "128",
    "output_len": "256",
    "metric": "latency_s",
    "value": "2.5",
    "note": "trust=A; fixed",
}
TRAIN = {
    "id": "NAR-1",
    "model": "GPT 76.1B",
    "layers": "60",
    "hidden": "10240",
    "heads": "80",
    "kv_heads": "80",
    "ffn": "40960",
    "vocab": "51200",
    "seq": "2048",
    "gpu": "A100-80GB SXM",
    "gpus": "1024",
    "tp": "8",
    "pp": "4",
    "vp": "3",
    "dp": "32",
    "zero_fsdp": "none",
    "sequence_parallel": "no",
    "recompute": "full",
    "precision": "fp16",
    "global_batch": "1792",
    "micro_batch": "2",
    "metric": "tflops_per_gpu",
    "value": "140",
    "note": "hardware FLOPs",
}


def infer_row(**changes: str) -> Request | ServeRequest | Skip:
    return inference_rows([INFER | changes])[0]


def train_row(**changes: str) -> Request | ServeRequest | Skip:
    return training_rows([TRAIN | changes])[0]


def request(item: object) -> Request:
    assert isinstance(item, Request), item
    return item


def test_an_inference_row_becomes_the_arguments_of_infer() -> None:
    got = request(infer_row())
    assert got.kwargs == {
        **{"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "gpus": 2, "tp": 2, "pp": 1, "dp": 1, "ep": 1},
        **{"batch": 16, "prompt": 128, "output": 256, "quant": "w16a16kv16"},
        **{"engine": "vllm", "engine_version": "2024"},
    }
    assert (got.task, got.metric, got.measured, got.trust, got.source) == ("infer", "latency_s", 2.5, "A", "argonne")
    assert got.group == ("llama-2-7b", "h100-sxm-80gb")


@pytest.mark.parametrize(
    ("metric", "value", "want"),
    [
        ("ttft_ms", "20", ("ttft", 0.02)),
        ("tpot_ms", "7.5", ("tpot", 0.0075)),
        ("throughput_out_tok_s", "1,234", ("output_tokens_per_s", 1234.0)),
        ("memory_gb", "2", ("memory_bytes", 2.0 * 2**30)),
        ("oom", "1", ("oom", 1.0)),
    ],
)
def test_measured_values_are_si(metric: str, value: str, want: tuple[str, float]) -> None:
    got = request(infer_row(metric=metric, value=value))
    assert (got.metric, got.measured) == pytest.approx(want)


def test_llama_bench_lengths_and_layer_split() -> None:
    row = {"id": "xd-1", "engine": "llama.cpp", "gpus": "4", "tp": "1", "pp": "4", "gpu": "3090 24GB", "batch": "1"}
    row |= {"precision_weights": "Q4_K_M", "precision_activations": "f16", "precision_kv": "f16"}
    decode = request(infer_row(**row, metric="decode_tok_s", input_len="0", output_len="512"))
    prefill = request(infer_row(**row, metric="prefill_tok_s", input_len="512", output_len="0"))
    assert (decode.kwargs["prompt"], decode.kwargs["output"], decode.kwargs["pp"]) == (1, 512, 4)
    assert (prefill.kwargs["prompt"], prefill.kwargs["output"]) == (512, 1)
    assert (decode.source, decode.kwargs["quant"], decode.engine) == ("llamacpp-multi", "q4_k_m", "llama.cpp 2024-05")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "nobody-7b"}, "unknown model nobody-7b"),
        ({"gpu": "Abacus 3000"}, "unknown gpu Abacus 3000"),
        ({"engine": "mystery"}, "unknown engine mystery"),
        ({"note": "trust=C; odd"}, "graded C: not to be scored"),
        ({"batch": "max"}, "batch not stated"),
        ({"output_len": ""}, "prompt or output length not stated"),
        ({"tp": ""}, "split over GPUs not stated"),
        ({"tp": "3"}, "split does not multiply to the number of GPUs"),
        ({"value": "nan"}, "value is not a number above 0"),
        ({"precision_kv": ""}, "precision not stated"),
        ({"metric": "joy"}, "unknown metric joy"),
    ],
)
def test_what_is_missing_is_a_reason_never_a_guess(changes: dict[str, str], reason: str) -> None:
    assert infer_row(**changes) == Skip("argonne-1", reason, "argonne")


def test_expert_parallel_rows_keep_attention_split_over_all_gpus() -> None:
    row = {"model": "mistralai/Mixtral-8x7B-v0.1", "gpus": "4", "tp": "1"}
    got = request(infer_row(**row, note="trust=B; EP; expert parallel = gpus"))
    assert (got.kwargs["tp"], got.kwargs["ep"]) == (4, 4)


def test_argonnes_a100_is_the_40_gb_card_and_others_are_not() -> None:
    assert request(infer_row(gpu="Nvidia A100")).kwargs["gpu"] == "a100-sxm-40gb"
    assert (
        request(infer_row(id="ft-1", gpu="A100-SXM-80GB", engine="FasterTransformer")).kwargs["gpu"] == "a100-sxm-80gb"
    )


def test_one_measurement_printed_in_two_tables_counts_once() -> None:
    first, second, other = inference_rows(
        [INFER, INFER | {"id": "argonne-2"}, INFER | {"id": "argonne-3", "value": "2.6"}]
    )
    assert isinstance(first, Request) and isinstance(other, Request)
    assert second == Skip("argonne-2", DUPLICATE, "argonne")


LOAD = INFER | {"id": "aic-1", "engine": "trtllm 1.0.0rc3", "metric": "ttft_ms", "precision_weights": "fp8"}
LOAD |= {"model": "deepseek-ai/DeepSeek-R1", "gpu": "H200-SXM-141GB", "gpus": "64", "tp": "64", "batch": "32"}


def test_rows_under_load_are_serve_requests_with_the_true_split() -> None:
    note = "trust=B; moe_tp=8 moe_ep=8 attn_dp=1; batch = concurrency; 2026_01_14_deepseek_trtllm_c32_tp8_ep8_983"
    got = inference_rows([LOAD | {"note": note}])[0]
    assert isinstance(got, ServeRequest)
    assert [got.kwargs[k] for k in ("gpus", "tp", "ep", "dp")] == [8, 8, 8, 1]
    assert (got.concurrency, got.spread, got.measured) == (32.0, (1.0, 1.0), 0.0025)  # its client fixes the lengths
    assert "mtp-suspect" in got.flags


def test_products_in_the_tp_column_without_a_name_in_the_id() -> None:
    note = "trust=B; moe_tp=4 moe_ep=4 attn_dp=1; batch = concurrency; dsr1_cfg717"
    got = inference_rows([LOAD | {"tp": "16", "gpus": "16", "note": note}])[0]
    assert isinstance(got, ServeRequest) and (got.kwargs["tp"], got.kwargs["gpus"]) == (4, 4)


def test_r1_and_v3_of_one_run_count_once() -> None:
    twin = LOAD | {"id": "aic-2", "model": "deepseek-ai/DeepSeek-V3"}
    kinds = [type(x).__name__ for x in inference_rows([LOAD, twin])]
    assert kinds == ["ServeRequest", "Skip"]


def test_a_run_that_decodes_slower_than_with_longer_prompts_is_set_apart() -> None:
    def tpot(number: int, prompt: str, value: str) -> dict[str, str]:
        run = {"id": f"aic-{number}", "metric": "tpot_ms", "input_len": prompt, "output_len": "1024", "value": value}
        return LOAD | run | {"model": "Qwen/Qwen3-32B", "tp": "1", "gpus": "1", "note": "trust=B; batch = concurrency"}

    def flagged(*rows: dict[str, str]) -> list[bool]:
        return [isinstance(r, ServeRequest) and "anomalous" in r.flags for r in inference_rows(rows)]

    ttft = tpot(3, "1024", "300") | {"metric": "ttft_ms"}
    assert flagged(tpot(1, "1024", "22.6"), tpot(2, "8192", "17.4"), ttft) == [True, False, True]
    assert flagged(tpot(1, "1024", "17.9"), tpot(2, "8192", "17.4"), ttft) == [False, False, False]  # they scatter
    assert flagged(tpot(1, "1024", "22.6"), tpot(2, "8192", "17.4") | {"batch": "16"}) == [False, False]


def test_hardware_flops_turn_back_into_the_step_time() -> None:
    """Narayanan et al. 2021 table 1: the 175B row, 1024 GPUs, batch 1536, 140 TFLOP/s -> 34 days for 300B tokens."""
    seconds = megatron_hardware_flops(1536, 2048, 96, 12288, 51200) / (140e12 * 1024)
    days = seconds * 300e9 / (1536 * 2048) / 86400
    assert days == pytest.approx(34.4, abs=0.5)  # the paper says 34 days
    got = request(train_row())
    assert got.metric == "step_time_s" and got.published == "tflops_per_gpu"
    assert got.measured == pytest.approx(megatron_hardware_flops(1792, 2048, 60, 10240, 51200) / (140e12 * 1024))


@pytest.mark.parametrize(
    ("batch", "layers", "hidden", "gpus", "seconds", "mfu"),
    [(4, 48, 6144, 8, 1.10, 0.415), (64, 96, 12288, 64, 13.75, 0.514), (512, 128, 25600, 512, 71.49, 0.563)],
)
def test_model_flops_reproduce_printed_mfu(
    batch: int, layers: int, hidden: int, gpus: int, seconds: float, mfu: float
) -> None:
    """Korthikanti et al. 2022 table 5."""
    flops = megatron_model_flops(batch, 2048, layers, hidden, 51200)
    assert flops / gpus / seconds / 312e12 == pytest.approx(mfu, abs=0.002)


def test_a_training_row_becomes_the_arguments_of_train() -> None:
    got = request(train_row())
    want = {"gpus": 1024, "tp": 8, "pp": 4, "vp": 3, "cp": 1, "ep": 1, "dp": 32, "batch": 1792, "seq": 2048}
    want |= {"micro_batch": 2}
    assert {k: got.kwargs[k] for k in want} == want
    assert [got.kwargs[k] for k in ("recompute", "zero", "sp", "dtype", "framework")] == [
        *("full", "none", False, "fp16", "megatron-2021")
    ]


def test_sizes_of_a_model_that_no_catalogue_has() -> None:
    row = {"id": "BLM-1", "model": "BLOOM candidate 181B", "layers": "72", "hidden": "14336", "heads": "64"}
    row |= {"kv_heads": "64", "ffn": "57344", "vocab": "250000", "gpus": "384", "pp": "12", "dp": "4", "vp": ""}
    model = request(train_row(**row, global_batch="2048", metric="step_time_s", value="143.31")).kwargs["model"]
    assert isinstance(model, dict)
    assert {k: model[k] for k in ("layers", "hidden", "heads", "ffn", "vocab", "gated", "positions")} == {
        **{"layers": 72, "hidden": 14336, "heads": 64, "ffn": 57344, "vocab": 250000, "gated": False, "positions": 0}
    }


@pytest.mark.parametrize(
    ("cell", "zero"),
    [
        ("none", "none"),
        ("zero1", 1),
        ("fsdp shard_grad_op (zero2)", 2),
        ("none(DDP/dist-opt)", 1),
        ("fsdp full_shard (zero3)", "fsdp"),
        ("megatron-fsdp 64", "fsdp"),
        ("fsdp2", "fsdp"),
    ],
)
def test_sharding(cell: str, zero: str | int) -> None:
    assert request(train_row(zero_fsdp=cell)).kwargs["zero"] == zero


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tp": ""}, "layout not stated"),
        ({"dp": "16"}, "split does not multiply to the number of GPUs"),
        ({"micro_batch": ""}, "micro-batch not stated"),
        ({"recompute": ""}, "recomputation not stated"),
        ({"precision": ""}, "precision not stated"),
        ({"id": "ZZZ-1"}, "framework not stated"),
        ({"metric": "mfu", "value": "0.4"}, "only a FLOP rate is printed, and not how its FLOPs are counted"),
        ({"note": "LoRA"}, "LoRA fine-tuning is not covered"),
    ],
)
def test_training_reasons(changes: dict[str, str], reason: str) -> None:
    got = train_row(**changes)
    assert isinstance(got, Skip) and got.reason == reason


def test_one_figure_a_run_counts_and_memory_beside_it() -> None:
    rows = [
        TRAIN | {"id": f"NAR-{i}", "metric": m, "value": v}
        for i, (m, v) in enumerate(
            [("tflops_per_gpu", "140"), ("hfu", "0.45"), ("step_time_s", "30"), ("memory_gb", "40")]
        )
    ]
    got = training_rows(rows)
    assert [type(x).__name__ for x in got] == ["Skip", "Skip", "Request", "Request"]
    assert {x.reason for x in got if isinstance(x, Skip)} == {SAME_RUN}


def test_a_derived_row_counts_only_where_its_parent_is_missing() -> None:
    derived = TRAIN | {"id": "NAR-2", "metric": "step_time_s", "value": "30", "note": "[DERIVED] hardware FLOPs"}
    parent, child = training_rows([TRAIN, derived])
    assert isinstance(parent, Request) and child == Skip("NAR-2", DERIVED, "NAR")
    assert isinstance(training_rows([derived])[0], Request)


def test_every_alias_leads_somewhere() -> None:
    table = alias_names.table()
    assert [n for n in table["models"] if alias_names.model(n) is None] == []
    known = set(catalogue.names("gpu"))
    targets = set(table["gpus"].values()) | {r["name"] for r in table["gpu_patterns"]}
    assert {t for t in targets if catalogue.resolve("gpu", t) not in known} == set()


def test_own_tables_are_scored_but_for_whole_runs() -> None:
    outcomes = [o for path in published_tables() for o in read_rows(path)]
    ids = [o.id for o in outcomes]
    assert len(ids) == len(set(ids)) and 250 <= len(ids) <= 550
    skipped = {o.reason for o in outcomes if isinstance(o, Skip)}
    assert skipped <= {
        "whole run: layout, micro-batch or recomputation not stated",
        "distrusted: the same model is 20 % faster elsewhere",
    }
    assert {o.metric for o in outcomes if isinstance(o, Request)} <= METRICS.keys()
    assert sum(isinstance(o, Request) for o in outcomes) > 350
    assert sum(o.source == "optimus" for o in outcomes) == 11 + 22


def test_own_tables_hold_a_citation_a_row() -> None:
    for path in published_tables():
        with path.open(encoding="utf-8", newline="") as handle:
            rows = list(csv.DictReader(handle))
        assert all(len(row["source"]) > 10 and row["value"] for row in rows), path
    headers = [p.read_text(encoding="utf-8").splitlines()[0] for p in published_tables()]
    runs, training = ",".join(INFERENCE_COLUMNS), ",".join(TRAINING_COLUMNS)
    assert headers == [runs, runs, training]


def test_llama_layouts_use_every_gpu() -> None:
    for run in llama_hours():
        assert run.layouts and all(x["tp"] * x["dp"] == x["gpus"] for x in run.layouts)


def test_a_file_that_is_no_table_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n", encoding="utf-8")
    with pytest.raises(RooflmError, match="no header of a published table"):
        read_rows(tmp_path / "a.csv")
    with pytest.raises(RooflmError, match="cannot be read"):
        read_rows(tmp_path / "missing.csv")


def test_seven_thousand_rows_parse_in_a_second() -> None:
    rows = [INFER | {"id": f"argonne-{i}", "value": str(1 + i / 1000)} for i in range(7400)]
    start = time.perf_counter()
    assert len(inference_rows(rows)) == 7400
    assert time.perf_counter() - start < 2.0  # 0.4 s on an idle core; room for a busy one


_CELLS = st.one_of(
    st.sampled_from(["", "0", "1", "-3", "1e400", "nan", "inf", "max", "8", "2048", "fp8", "unstated", "1.5", "fsdp2"]),
    st.text(max_size=12),
)
_KEEP = st.booleans()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_cell_raises(data: st.DataObject) -> None:
    for base, columns in ((INFER, INFERENCE_COLUMNS), (LOAD, INFERENCE_COLUMNS), (TRAIN, TRAINING_COLUMNS)):
        row = {
            c: base.get(c, "") if data.draw(_KEEP) else data.draw(_CELLS)
            for c in columns
            if data.draw(_KEEP) or c == "metric"
        }
        read = training_rows if base is TRAIN else inference_rows
        (got,) = read([row])
        assert isinstance(got, Request | ServeRequest | Skip)
        if isinstance(got, Request):
            assert np.isfinite(got.measured) and got.measured > 0


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_no_text_raises_after_a_header(body: str) -> None:
    for columns in (INFERENCE_COLUMNS, TRAINING_COLUMNS):
        buffer = io.StringIO()
        csv.writer(buffer).writerow(columns)
        assert isinstance(parse(buffer.getvalue() + body), list)


def test_statistics_by_hand() -> None:
    got = describe(
        [10.0, 20.0, 40.0, 100.0], [11.0, 18.0, 40.0, 50.0], low=[9.0, 19.0, 30.0, 60.0], high=[12.0, 21, 39, 90]
    )
    assert got["rows"] == 4
    assert got["mape"] == pytest.approx((0.1 + 0.1 + 0.0 + 0.5) / 4)
    assert got["median_ape"] == pytest.approx(0.1)
    assert got["p90_ape"] == pytest.approx(0.1 + 0.7 * 0.4)
    assert got["bias"] == pytest.approx((0.1 - 0.1 + 0.0 - 0.5) / 4)
    assert got["coverage"] == 0.5


def test_summary_object() -> None:
    labels = {"gpu": ["a", "b", "b"], "source": ["s", "s", "t"]}
    got = summarise([1.0, 2.0, 4.0], [1.5, 2.0, 5.0], labels, skipped=["x", "y", "x"])
    assert (got["rows"], got["scored"], got["skipped"]) == (6, 3, {"x": 2, "y": 1})
    assert got["all"]["mape"] == pytest.approx(0.25)
    assert got["by_gpu"]["b"]["mape"] == pytest.approx(0.125)
    assert got["by_source"]["s"]["rows"] == 2
    assert got["by_model"] == {} and got["all"]["coverage"] is None


def test_labels_group_requests() -> None:
    got = labels([request(infer_row()), request(infer_row(gpu="L40S-48GB"))])
    assert got["gpu"] == ["h100-sxm-80gb", "l40s"] and got["metric"] == ["latency_s"] * 2
    assert summarise([1.0, 1.0], [1.0, 1.0], got)["by_model"]["llama-2-7b"]["rows"] == 2


@pytest.mark.parametrize(
    ("seq", "billions"), [(2048, 1.3160), (32768, 1.3789)]
)  # llm-foundry prints both counts for its 1B model: the learned positions differ
def test_sizes_give_the_published_number_of_parameters(seq: int, billions: float) -> None:
    row = {"id": "LLMF-1", "model": "MPT-1b", "layers": "24", "hidden": "2048", "heads": "16", "kv_heads": "16"}
    row |= {"ffn": "8192", "vocab": "50368", "seq": str(seq), "gpus": "32", "tp": "1", "pp": "1", "vp": "", "dp": "32"}
    got = request(train_row(**row, metric="step_time_s", value="2"))
    model = got.kwargs["model"]
    if isinstance(model, dict):
        assert float(parameters(model_from_sizes(model))) / 1e9 == pytest.approx(billions, rel=1e-3)
    else:
        assert seq == 2048 and model == "mpt-1b"


def test_summary_of_nothing() -> None:
    got = summarise([], [], skipped=["x"])
    assert got["rows"] == 1 and got["scored"] == 0 and got["all"]["mape"] is None
    with pytest.raises(ValueError, match="2 measured values, but 1"):
        describe([1.0, 2.0], [1.0])
