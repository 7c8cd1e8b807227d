"""Tables of the older format become tables of runs: names, splits, units, conventions, what counts; nothing raises."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflm.asked import paths
from rooflm.asked.build_training import build_training
from rooflm.errors import RooflmError
from rooflm.estimate.training import train_scenario
from rooflm.readers import rows as catalogue
from rooflm.serving.deploy import make_server
from rooflm.validation import Request, Skip, model_from_sizes, read_rows
from rooflm.validation.columns import COLUMNS
from rooflm.validation.table import parse, read_row
from rooflm_fit.convert import names as alias_names
from rooflm_fit.convert.cells import Cells
from rooflm_fit.convert.conventions import megatron_hardware_flops, megatron_model_flops
from rooflm_fit.convert.repeats import ALONE
from rooflm_fit.convert.serving import SET, campaign_options, recipes
from rooflm_fit.convert.tables import (
    CONTRADICTS,
    DERIVED,
    DUPLICATE,
    SAME_RUN,
    converted,
    inference_rows,
    main,
    text_of,
    training_rows,
)
from rooflm_fit.convert.training import maxtext_sizes

INFERENCE_COLUMNS = (
    *("id", "source", "model", "params_b", "gpu", "gpus", "tp", "pp", "engine"),
    *("precision_weights", "precision_activations", "precision_kv"),
    *("batch", "input_len", "output_len", "metric", "value", "note"),
)
TRAINING_COLUMNS = (
    *("id", "source", "model", "params_b", "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq"),
    *("gpu", "gpus", "tp", "pp", "vp", "cp", "ep", "dp", "zero_fsdp", "sequence_parallel", "recompute", "precision"),
    *("global_batch", "micro_batch", "metric", "value", "note"),
)

INFER = {
    "id": "argonne-1", "model": "meta-llama/Llama-2-7b-hf", "gpu": "Nvidia H100", "gpus": "2", "tp": "2", "pp": "1",
    "engine": "vLLM", "precision_weights": "fp16", "precision_activations": "fp16", "precision_kv": "fp16",
    "batch": "16", "input_len": "128", "output_len": "256", "metric": "latency_s", "value": "2.5",
    "note": "trust=A; fixed",
}  # fmt: skip
TRAIN = {
    "id": "NAR-1", "model": "GPT 76.1B", "layers": "60", "hidden": "10240", "heads": "80", "kv_heads": "80",
    "ffn": "40960", "vocab": "51200", "seq": "2048", "gpu": "A100-80GB SXM", "gpus": "1024", "tp": "8", "pp": "4",
    "vp": "3", "dp": "32", "zero_fsdp": "none", "sequence_parallel": "no", "recompute": "full", "precision": "fp16",
    "global_batch": "1792", "micro_batch": "2", "metric": "tflops_per_gpu", "value": "140", "note": "hardware FLOPs",
}  # fmt: skip


def infer_row(**changes: str) -> Cells:
    return inference_rows([INFER | changes])[0]


def train_row(**changes: str) -> Cells:
    return training_rows([TRAIN | changes])[0]


def read(cells: Cells) -> Request:
    found = read_row(cells)
    assert isinstance(found, Request), found
    return found


def test_an_inference_row_becomes_the_arguments_of_infer() -> None:
    cells = infer_row()
    assert {k: cells[k] for k in ("model", "gpu", "engine", "release", "quant", "batch", "prompt", "output")} == {
        **{"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "engine": "vllm", "release": "2024"},
        **{"quant": "w16a16kv16", "batch": "16", "prompt": "128", "output": "256"},
    }
    got = read(cells)
    assert got.kwargs == {
        **{"model": "llama-2-7b", "gpu": "h100-sxm-80gb", "gpus": 2, "tp": 2, "pp": 1, "dp": 1, "ep": 1},
        **{"batch": 16, "prompt": 128, "output": 256, "quant": "w16a16kv16", "engine": "vllm-2024"},
    }
    assert (got.task, got.metric, got.measured, got.trust, got.source) == ("infer", "latency_s", 2.5, "A", "argonne")
    assert got.group == ("llama-2-7b", "h100-sxm-80gb") and not got.assumed and not got.apart


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
    got = read(infer_row(metric=metric, value=value))
    assert (got.metric, got.measured) == pytest.approx(want)


def test_llama_bench_lengths_and_layer_split() -> None:
    row = {"id": "xd-1", "engine": "llama.cpp", "gpus": "4", "tp": "1", "pp": "4", "gpu": "3090 24GB", "batch": "1"}
    row |= {"precision_weights": "Q4_K_M", "precision_activations": "f16", "precision_kv": "f16"}
    decode = infer_row(**row, metric="decode_tok_s", input_len="0", output_len="512")
    prefill = infer_row(**row, metric="prefill_tok_s", input_len="512", output_len="0")
    assert (decode["prompt"], decode["output"], decode["pp"]) == ("1", "512", "4")
    assert (prefill["prompt"], prefill["output"]) == ("512", "1")
    assert (decode["source"], decode["quant"], decode["release"]) == ("llamacpp-multi", "q4_k_m", "2024-05")
    held = infer_row(**row | {"id": "strix-1"}, metric="prefill_tok_s", input_len="2048", output_len="0",
                     note="trust=A; context of 32768 tokens already held (d32768)")  # fmt: skip
    assert (held["prompt"], held["cached"]) == ("34816", "32768")


def test_a_files_size_and_the_backend_that_ran_it_are_conditions() -> None:
    row = {"id": "strix-1", "model": "gemma-4-31B-it-UD-Q8_K_XL", "params_b": "30.7", "engine": "llama.cpp b9187"}
    row |= {
        "precision_weights": "Q8_K_XL",
        "precision_activations": "f16",
        "precision_kv": "f16",
        "gpus": "1",
        "tp": "1",
    }
    made = infer_row(**row, note="trust=A; backend vulkan_radv, flash attention True, file 32.6 GiB")
    assert (made["model"], made["engine"], made["quant"]) == ("gemma-4-31b", "llama.cpp-vulkan", "q8_0")
    assert made["sets"].startswith("quant.weight_bits=9.12")
    plain = infer_row(**row | {"precision_weights": "BF16"}, note="trust=A; backend rocm-7_2_3, file 57.2 GiB")
    assert (plain["engine"], plain["quant"]) == ("llama.cpp", "bf16")
    mlx = infer_row(precision_weights="q4", precision_activations="", precision_kv="", engine="mlx-lm 0.28.2")
    assert "quant.table_bits=4.5" in mlx["sets"]
    assert infer_row(engine="ollama")["engine"] == "ollama" and infer_row(engine="mlx-lm 0.28.2")["engine"] == "mlx"


def test_what_is_missing_stays_blank_and_what_is_unclear_is_a_doubt() -> None:
    assert infer_row(model="nobody-7b")["params"] == "7000000000"
    assert infer_row(model="nobody-30B-A3B")["active"] == "3000000000"
    assert infer_row(gpu="Abacus 3000")["gpu"] == "Abacus 3000"
    assert infer_row(engine="mystery")["engine"] == "mystery"
    assert infer_row(note="trust=C; odd")["trust"] == "C"
    assert "output" not in infer_row(output_len="")
    assert "tp" not in infer_row(tp="", pp="") and infer_row(tp="", pp="")["gpus"] == "2"
    assert infer_row(tp="")["tp"] == infer_row(gpus="")["gpus"] == "2" and infer_row(pp="")["pp"] == "1"
    assert infer_row(tp="3")["doubt"] == "split does not multiply to the number of GPUs"
    assert infer_row(precision_weights="")["doubt"] == "precision not stated"
    assert infer_row(metric="joy")["metric"] == "joy"


def test_the_largest_batch_is_a_load_that_runs_at_once() -> None:
    cells = infer_row(batch="max", metric="throughput_out_tok_s")
    assert (cells["task"], cells["concurrency"], cells["scheduler"]) == ("serve", "max", "static")


def test_expert_parallel_rows_keep_attention_split_over_all_gpus() -> None:
    row = {"model": "mistralai/Mixtral-8x7B-v0.1", "gpus": "4", "tp": "1"}
    got = infer_row(**row, note="trust=B; EP; expert parallel = gpus")
    assert (got["tp"], got["ep"]) == ("4", "4")


def test_a_card_of_two_devices_is_split_as_software_sees_it() -> None:
    own = infer_row(gpu="AMD MI250")
    assert (own["gpu"], own["gpus"], own["tp"], own["pp"]) == ("mi250-gcd", "4", "4", "1")
    other = infer_row(gpu="AMD MI300X")
    assert (other["gpu"], other["gpus"], other["tp"]) == ("mi300x", "2", "2")
    dies = infer_row(id="own-1", gpu="mi250-gcd")  # a source that counts dies
    assert (dies["gpu"], dies["gpus"], dies["tp"]) == ("mi250-gcd", "2", "2")
    loaded = infer_row(gpu="MI250", note="trust=A; closed loop")
    assert (loaded["task"], loaded["gpu"], loaded["tp"]) == ("serve", "mi250-gcd", "4")


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("NIM 1.8.0 (TensorRT-LLM)", ("trtllm", "0.17")),
        ("NIM 1.3", ("trtllm", "0.17")),
        ("NIM 1.10.1 (TensorRT-LLM)", ("trtllm", "")),
        ("NIM", ("trtllm", "")),
        ("NIM 1.8.0 (vLLM)", ("vllm", "")),
        ("NIM 1.12 (SGLang)", ("sglang", "")),
    ],
)
def test_a_nim_has_the_release_of_its_time_and_its_own_engine(text: str, engine: tuple[str, str]) -> None:
    assert alias_names.engine(text) == engine


def test_lone_cards_of_a_page_of_2023_ran_its_engine_too() -> None:
    row = {"id": "mlc-0003", "model": "Llama2-7B", "gpu": "RTX4090-24GB", "engine": "llama.cpp"}
    assert infer_row(**row, gpus="1", tp="1")["engine"] == infer_row(**row)["engine"] == "llama.cpp-2023"


def test_an_int8_cache_converts_in_hardware_whatever_the_weights() -> None:
    for weights in ("fp16", "int8"):
        own = infer_row(precision_weights=weights, precision_kv="int8")
        assert own["sets"] == "engine.kv_convert=0"
    assert "sets" not in infer_row(precision_weights="int8", precision_kv="fp8")


def test_what_ran_on_one_card_of_a_source_is_its_own() -> None:
    later = {"gpu": "Nvidia GH200", "engine": "TensorRT-LLM"}
    windowed = {"gpu": "Nvidia H100", "engine": "vLLM", "model": "mistralai/Mistral-7B-v0.1"}
    assert infer_row(**later)["sets"] == "engine.kv_reread=0"
    assert infer_row(**windowed)["sets"] == "engine.unsplit=512;engine.block_rate=1836000000"
    for other in (
        later | {"gpu": "Nvidia H100"},
        windowed | {"gpu": "Nvidia A100"},
        windowed | {"model": "Qwen/Qwen2-7B"},
    ):
        assert "sets" not in infer_row(**other)


def test_argonnes_a100_is_the_40_gb_card_and_others_are_not() -> None:
    assert infer_row(gpu="Nvidia A100")["gpu"] == "a100-sxm-40gb"
    assert infer_row(id="ft-1", gpu="A100-SXM-80GB", engine="FasterTransformer")["gpu"] == "a100-sxm-80gb"


def test_one_measurement_printed_in_two_tables_counts_once() -> None:
    rows = [INFER, INFER | {"id": "argonne-2"}, INFER | {"id": "argonne-3", "value": "2.6"}]
    assert [c.get("doubt", "") for c in inference_rows(rows)] == ["", DUPLICATE, ""]


LOAD = INFER | {"id": "aic-1", "engine": "trtllm 1.0.0rc3", "metric": "ttft_ms", "precision_weights": "fp8"}
LOAD |= {"model": "deepseek-ai/DeepSeek-R1", "gpu": "H200-SXM-141GB", "gpus": "64", "tp": "64", "batch": "32"}


def test_rows_under_load_have_the_true_split() -> None:
    note = (
        "trust=B; moe_tp=8 moe_ep=8 attn_dp=1; batch = concurrency; 2026_01_14_deepseek_trtllm_c32_tp8_ep8_epnone_983"
    )
    got = inference_rows([LOAD | {"note": note}])[0]
    assert [got[k] for k in ("gpus", "tp", "ep", "dp")] == ["8", "8", "8", "1"]
    assert (got["concurrency"], got.get("spread"), got["task"]) == ("32", None, "serve")  # its client fixes lengths
    assert got["doubt"].startswith("multi-token prediction suspected")  # by its day, of a release that no script had
    assert read(got).measured == 0.0025


def test_products_in_the_tp_column_without_a_name_in_the_id() -> None:
    note = "trust=B; moe_tp=4 moe_ep=4 attn_dp=1; batch = concurrency; dsr1_cfg717"
    got = inference_rows([LOAD | {"tp": "16", "gpus": "16", "note": note}])[0]
    assert (got["tp"], got["gpus"]) == ("4", "4")


def test_r1_and_v3_of_one_run_count_once() -> None:
    plain = LOAD | {"note": "trust=B; moe_tp=1 moe_ep=8 attn_dp=1; x_tp8_ep8_"}
    rows = inference_rows([plain, plain | {"id": "aic-2", "model": "deepseek-ai/DeepSeek-V3"}])
    assert [DUPLICATE in c.get("doubt", "") for c in rows] == [False, True]


def test_a_run_that_decodes_slower_than_with_longer_prompts_is_set_apart() -> None:
    def tpot(number: int, prompt: str, value: str) -> dict[str, str]:
        run = {"id": f"aic-{number}", "metric": "tpot_ms", "input_len": prompt, "output_len": "1024", "value": value}
        return LOAD | run | {"model": "Qwen/Qwen3-32B", "tp": "1", "gpus": "1", "note": "trust=B; batch = concurrency"}

    def doubted(*rows: dict[str, str]) -> list[bool]:
        return [CONTRADICTS in c.get("doubt", "") for c in inference_rows(rows)]

    ttft = tpot(3, "1024", "300") | {"metric": "ttft_ms"}
    assert doubted(tpot(1, "1024", "22.6"), tpot(2, "8192", "17.4"), ttft) == [True, False, True]
    assert doubted(tpot(1, "1024", "17.9"), tpot(2, "8192", "17.4"), ttft) == [False, False, False]  # they scatter
    assert doubted(tpot(1, "1024", "22.6"), tpot(2, "8192", "17.4") | {"batch": "16"}) == [False, False]


def test_a_batch_that_takes_longer_than_a_larger_one_is_set_apart() -> None:
    def doubted(*seconds: tuple[str, str], **more: str) -> list[bool]:
        rows = [INFER | more | {"id": f"argonne-{i}", "batch": n, "value": v} for i, (n, v) in enumerate(seconds)]
        return [CONTRADICTS in c.get("doubt", "") for c in inference_rows(rows)]

    assert doubted(("1", "2.15"), ("16", "1.45"), ("32", "2.2")) == [True, False, False]
    assert doubted(("1", "1.5"), ("16", "1.45")) == [False, False]  # repeats differ by as much
    assert doubted(("1", "2.15"), ("16", "1.45"), metric="ttft") == [False, False]


RUN = {
    "id": "aic-0001", "model": "deepseek-ai/DeepSeek-R1", "gpu": "H200-SXM-141GB", "gpus": "8", "tp": "8", "pp": "1",
    "engine": "trtllm 1.1.0rc2.post2", "precision_weights": "fp8", "precision_kv": "", "batch": "4",
    "input_len": "1024", "output_len": "1024", "metric": "tpot_ms", "value": "8.6", "source": "aic",
    "note": "trust=B; moe_tp=1 moe_ep=8 attn_dp=1; batch = concurrency; "
    "2026_03_25_deepseek_r1_h200_sxm_trtllm_fp8_agg_1024x1024_c4_tp8_0_ep8_0_1252",
}  # fmt: skip


def run(**changes: str) -> Cells:
    return inference_rows([{**RUN, **changes}])[0]


def test_speculative_runs_are_known_by_their_image_and_configuration() -> None:
    """InferenceX, nvidia-master.yaml: 1.2.0rc6.post3 stands in entries with MTP alone, 1.2.0rc6.post2 in plain ones,
    1.1.0rc2.post2 in both, of which the dump of 2026-04-27 holds the plain ones."""
    guessed = run()
    assert (guessed["guesses"], guessed["acceptance"], guessed["budget"]) == ("3", "0.6", "1104")
    assert guessed["doubt"] == "speculative decoding, its acceptance not stated"
    plain = run(note=RUN["note"].replace("2026_03_25_deepseek_r1", "db-dump 2026-04-27 dsr1"))
    assert not {"guesses", "doubt"} & plain.keys()
    assert "doubt" not in run(engine="sglang 0.5.9")
    four = {"gpu": "B200-180GB", "precision_weights": "nvfp4", "tp": "4", "gpus": "4"}
    four |= {"note": "trust=B; moe_tp=4 moe_ep=1 attn_dp=1; 2026_04_06_deepseek_r1_b200_trtllm_tp4_ep1_41"}
    assert run(**four, engine="trtllm 1.2.0rc6.post3")["guesses"] == "3"
    assert "guesses" not in run(**four, engine="trtllm 1.2.0rc6.post2")
    of_both = [run(**four, engine="trtllm 1.1.0rc2.post2", batch=n).get("guesses") for n in ("8", "32")]
    assert of_both == ["3", None]  # with 32 clients only plain runs have four whole sets of experts
    ranks = four | {"note": "trust=C; moe_tp=1 moe_ep=4 attn_dp=4; 2026_03_25_deepseek_r1_b200_trtllm_x_990"}
    assert run(**ranks, engine="trtllm 1.2.0rc6.post3", batch="256")["guesses"] == "1"


def test_a_source_of_a_load_is_known_by_the_words_of_its_benchmark() -> None:
    new = INFER | {"id": "somebody-7", "metric": "tpot_ms", "batch": "", "source": "a blog"}
    (closed,) = inference_rows([new | {"note": "vllm bench serve --max-concurrency 16"}])
    assert (closed["task"], closed["concurrency"]) == ("serve", "16")
    (open_loop,) = inference_rows([new | {"note": "request rate 4.5/s, 500 requests"}])
    assert (open_loop["rate"], open_loop["requests"]) == ("4.5", "500")
    (fixed,) = inference_rows([new | {"metric": "decode_tok_s", "note": "request rate 4/s"}])
    assert "task" not in fixed


def test_a_limit_that_a_row_cannot_give_is_left_to_the_engine() -> None:
    assert "max_sequences" in run(model="openai/gpt-oss-120b", engine="trtllm")
    assert "max_sequences" not in run(
        model="openai/gpt-oss-120b", engine="trtllm", metric="throughput_out_tok_s", batch=""
    )


def test_a_figure_that_is_no_number_stays_a_row() -> None:
    rows = [{**RUN, "value": value, "note": "trust=B"} for value in ("n/a", "1,024.5", "", "nan")]
    made = inference_rows(rows)
    assert [c.get("value", "") for c in made] == ["n/a", "1,024.5", "", "nan"]
    none, figure, empty, nan = (read_row(c) for c in made)
    assert isinstance(figure, Request) and figure.measured == 1.0245
    for skip in (none, empty, nan):
        assert isinstance(skip, Skip) and "but a measurement must be a number above 0" in skip.reason


def test_first_chunks_without_text_are_those_of_short_prompts() -> None:
    plain = {"note": RUN["note"].replace("2026_03_25_deepseek_r1", "dsr1")}
    assert run(**plain, input_len="1024", output_len="1024")["stream_interval"] == "10"
    assert "stream_interval" not in run(**plain, input_len="8192", output_len="1024")
    assert "stream_interval" not in run(**plain, gpu="B200-180GB")


def test_what_scripts_captured_and_held_back_holds_from_their_clients_on() -> None:
    plain = {"note": "moe_tp=8 moe_ep=1 attn_dp=1", "gpu": "B200-180GB", "tp": "8", "engine": "trtllm 1.2.0rc6.post2"}
    few, many = run(**plain, batch="8"), run(**plain, batch="64")
    assert (many["wait_steps"], many["wait_share"]) == ("40", "0.8")
    room = ";engine.free_fraction=0.8"
    assert many["sets"] == "engine.captured=8192;engine.experts=trtllm" + room  # MOE_BACKEND of the same script
    assert (few["sets"], "wait_steps" in few) == ("engine.experts=trtllm" + room, False)
    assert "wait_steps" not in run(**plain, batch="64", input_len="8192")


def test_budgets_of_runs_with_fixed_lengths_are_those_of_their_generators_form() -> None:
    """One prompt of 1,024 tokens a pass in the older form (500 over the prompt), two in the later one (1,500)."""
    own = {"engine": "trtllm 1.0.0rc3", "gpu": "H100-SXM-80GB", "model": "Qwen/Qwen3-235B-A22B-FP8"}
    forms = [
        run(**own, input_len="1024", note=f"moe_tp=1 moe_ep={split} attn_dp=1; tp4_epnone_1")["budget"]
        for split in (1, 4)
    ]
    assert forms == ["1528", "2528"]


def test_the_library_of_experts_is_a_cell_of_its_row() -> None:
    plain = {"note": "moe_tp=4 moe_ep=1 attn_dp=1", "gpu": "B200-180GB", "precision_weights": "nvfp4", "tp": "4"}
    assert run(**plain)["sets"] == "engine.experts=trtllm;engine.free_fraction=0.8"
    assert "engine.experts" not in run(**plain | {"engine": "sglang 0.5.9"}).get("sets", "")


def test_scripts_that_no_row_of_the_table_has_give_their_own_options() -> None:
    """InferenceX gptoss_fp4_b200_docker.sh (October 2025, and 2026), gptoss_fp4_b200_trt.sh, dsr1_fp8_b200_trt.sh."""
    oss = {"model": "openai/gpt-oss-120b", "gpu": "B200-180GB", "precision_weights": "nvfp4", "tp": "2", "batch": "64"}
    old, new = (run(**oss, engine=f"vllm {release}") for release in ("", "0.15.1"))
    assert (old["release"], old["quant"], old["lookahead"]) == ("0.10.2", "mxfp4", "1")
    assert (new["quant"], "lookahead" in new) == ("mxfp4kv8", False)
    note = "concurrency 64 differs from batch_size; moe_tp=1 moe_ep=2 attn_dp=2"
    rank = run(**oss | {"tp": "1", "gpus": "", "batch": "32"}, engine="trtllm 1.2.0rc2", note=note)
    assert (rank["dp"], rank["concurrency"], rank["wait_steps"]) == ("2", "64", "50")
    assert "engine.free_fraction=0.85" in rank["sets"]
    r1 = {"model": "deepseek-ai/DeepSeek-R1", "gpu": "B200-180GB", "precision_weights": "fp8", "tp": "4", "gpus": "4"}
    long = run(**r1, engine="trtllm 1.2.0rc6.post2", input_len="8192", batch="16", note="moe_tp=4 moe_ep=1 attn_dp=1")
    assert "engine.free_fraction=0.75" in long["sets"]
    eight = {"model": "MiniMaxAI/MiniMax-M2.5", "gpu": "B300", "engine": "vllm 0.19.0", "tp": "8", "gpus": "8"}
    ep = [run(**eight, precision_weights=w, note="moe_tp=8 moe_ep=1 attn_dp=1")["ep"] for w in ("nvfp4", "fp8")]
    assert ep == ["1", "8"]  # a block of fp8 weights is 128 wide, of nvfp4 16
    kimi = {"model": "moonshotai/Kimi-K2.5", "engine": "vllm 0.18.0", "precision_weights": "nvfp4", "tp": "4"}
    ep = [run(**kimi, gpu=gpu, note="moe_tp=1 moe_ep=4 attn_dp=1")["ep"] for gpu in ("MI355X", "B200-180GB")]
    assert ep == ["4", "1"]  # kimik2.5_fp4_mi355x.sh takes EP_SIZE


def test_scripts_after_the_tables_dumps_give_their_own_options_too() -> None:
    """InferenceX qwen3.5_fp4_b200_trt.sh (June 2026), qwen3.5_fp8_h100.sh, qwen3.5_fp4_rtx6000pro_sglang.sh,
    minimaxm2.5_fp4_mi355x.sh, minimaxm2.5_fp8_h200.sh, dsv4_fp4_b200.sh, dsv4_fp8_h200.sh."""
    qwen = {"model": "Qwen/Qwen3.5-397B-A17B", "tp": "4", "gpus": "4", "note": "moe_tp=4 moe_ep=1 attn_dp=1"}
    trt = qwen | {"gpu": "B200-180GB", "engine": "trtllm 1.3.0rc18", "precision_weights": "nvfp4"}
    lengths = [("8192", "1024"), ("1024", "1024"), ("1024", "8192")]
    found = [run(**trt, input_len=i, output_len=o) for i, o in lengths]
    assert [(f["budget"], f["wait_steps"], f["wait_share"]) for f in found] == [
        (budget, "50", "0.45") for budget in ("32768", "16384", "9472")
    ]
    hopper = qwen | {"gpu": "H100-SXM-80GB", "engine": "sglang 0.5.12", "precision_weights": "fp8"}
    assert [run(**hopper, batch=n)["receive_interval"] for n in ("4", "32", "64")] == ["2", "1200", "600"]
    rtx = run(**qwen, gpu="RTX-6000-Pro-Blackwell-SE", engine="sglang 0.5.16", precision_weights="nvfp4")
    assert (rtx["max_sequences"], "stand_in" in rtx) == ("128", False)
    minimax = {"model": "MiniMaxAI/MiniMax-M2.5", "engine": "vllm 0.19.1", "gpu": "MI355X", "note": "trust=B"}
    assert ["reduce_bits" in run(**minimax, precision_weights=w)["sets"] for w in ("nvfp4", "fp8")] == [False, True]
    hopper = minimax | {"gpu": "H200-SXM-141GB", "engine": "vllm 0.22.0", "precision_weights": "fp8"}
    assert (run(**hopper)["budget"], run(**hopper)["quant"]) == ("32768", "fp8-blockkv8")
    v4 = {"model": "deepseek-ai/DeepSeek-V4-Pro", "tp": "8", "gpus": "8", "batch": "16", "note": "attn_dp=1"}
    b200 = run(**v4, gpu="B200-180GB", engine="sglang deepseek-v4-blackwell", precision_weights="nvfp4")
    assert (b200["quant"], b200["budget"], b200["max_sequences"]) == ("mxfp4a8-fp8-kv8", "8192", "24")
    h200 = run(**v4, gpu="H200-SXM-141GB", engine="vllm deepseekv4-cu129", precision_weights="fp8")
    assert (h200["quant"], h200["tp"], h200["dp"], h200["ep"]) == ("mxfp4a8-fp8-kv8", "1", "8", "8")


def test_sparse_attention_on_blackwell_keeps_its_cache_in_8_bits_in_sglang() -> None:
    """server_args.py: kv_cache_dtype auto is fp8_e4m3 from compute capability 10 on, bfloat16 below."""
    row = {"model": "deepseek-ai/DeepSeek-V3.2", "engine": "sglang 0.5.8", "precision_weights": "fp8", "tp": "8"}
    found = [run(**row, gpu=gpu, note="online serving")["quant"] for gpu in ("B200-180GB", "H200-SXM-141GB")]
    assert found == ["fp8-blockkv8", "fp8-block"]


def test_a_server_without_aiter_has_tritons_attention_and_no_empty_blocks() -> None:
    model = {"model": "baidu/ERNIE-4.5-21B-A3B-PT", "precision_weights": "bf16"}
    own = {"engine": "sglang 0.5.7", "gpu": "MI300X", **model}
    said = "online serving; server: {}python -m sglang.launch_server --tp 1; docs"
    assert "sets" not in run(**own, note=said.format(""))
    bare = run(**own, note=said.format("SGLANG_USE_AITER=0 "))["sets"]
    assert {"engine.experts=triton", "engine.empty_block=0"} == set(bare.split(";"))


def test_servers_of_the_study_of_ratios_have_all_eight_gpus() -> None:
    study = "prefill_replicas=1 decode_replicas={}, each tp 2; 1p1d_conc64_in2048_out128; pd_ratio/results.csv"
    given = {
        "source": "a study, online serving",
        "id": "dstackpd-1",
        "engine": "sglang",
        "tp": "2",
        "metric": "ttft_ms",
    }
    assert [run(**given, note=study.format(n))["tp"] for n in (1, 3)] == ["4", "2"]
    assert "prefix cache" in run(**given, note=study.format(3), batch="64")["doubt"]
    assert "prefix cache" not in run(**given, note=study.format(3), batch="128").get("doubt", "")


def test_fp8_of_a_block_scaled_checkpoint_is_by_blocks() -> None:
    assert run()["quant"] == "fp8-blockkv8"
    assert run(model="meta-llama/Llama-3.1-70B", note="trust=B")["quant"] == "fp8kv8"


def test_lengths_are_fixed_in_the_campaign_whose_client_fixes_them() -> None:
    assert run()["spread"] == "0.8,1"
    assert "spread" not in run(engine="trtllm 1.0.0rc3", note="trust=B; x_tp4_epnone_1")
    assert "spread" not in run(
        engine="vllm 9.9", note="trust=B; x_tp4_epnone_1"
    )  # by whose run it was, not its release


def test_a_pool_of_prompts_that_comes_back_is_in_the_cache() -> None:
    own = {"engine": "trtllm 1.2.0rc6.post1", "input_len": "4000", "note": "trust=B; qwen3_32b_c_tp4_epnone_1"}
    assert [run(**own, batch=n).get("shared_prefix") for n in ("8", "40")] == [None, "3000"]
    assert "shared_prefix" not in run(**own | {"engine": "trtllm 1.0.0rc3"}, batch="40")
    assert "shared_prefix" not in run(**own | {"note": "trust=B; x_tp4_ep1_1"}, batch="40")


def test_the_campaigns_own_runs_have_no_script_of_others() -> None:
    assert "wait_steps" in run(**LLAMA, engine="trtllm")
    assert "wait_steps" not in run(**LLAMA | {"note": "trust=B; x_tp4_epnone_1"}, engine="trtllm")


def test_experts_stay_whole_where_blocks_do_not_divide() -> None:
    model = {"model": "MiniMaxAI/MiniMax-M2.5"}
    split = run(**model, engine="vllm 0.18.0", note="trust=B; moe_tp=8 moe_ep=1 attn_dp=1")
    half = run(**model, engine="vllm 0.16.0", tp="4", note="trust=B; moe_tp=4 moe_ep=1 attn_dp=1")
    assert [(c["tp"], c["ep"]) for c in (split, half)] == [("8", "8"), ("4", "1")]


def test_runs_older_than_the_experts_column_are_split_as_their_scripts_did() -> None:
    """dsr1_fp8_h200_trt_slurm.sh and gptoss_fp4_h200_trt_slurm.sh, before they took EP_SIZE and DP_ATTENTION."""
    old = {"engine": "trtllm", "note": "trust=B; moe_tp=8 moe_ep=1 attn_dp=1; dsr1_h200_trtllm_fp8_agg_c64_cfg83"}
    keys = ("gpus", "tp", "dp", "ep")
    assert [run(**old, batch="64")[k] for k in keys] == ["8", "8", "1", "8"]
    assert [run(**old, batch="64", input_len="8192")[k] for k in keys] == ["8", "1", "8", "8"]
    old |= {"model": "openai/gpt-oss-120b", "tp": "4", "batch": "64", "input_len": "8192"}
    assert [run(**old)[k] for k in keys] == ["4", "4", "1", "4"]
    assert run(**old | {"engine": "trtllm gpt-oss-dev"})["ep"] == "1"


def test_kimi_never_ran_with_experts_apart_and_later_in_graphs() -> None:
    """InferenceX kimik2.5_fp4_b200.sh: no --enable-expert-parallel; from pull request 1047 on larger graphs."""
    kimi = {"model": "moonshotai/Kimi-K2.5", "gpu": "B200-180GB", "engine": "vllm 0.17.0", "precision_weights": "nvfp4"}
    kimi |= {"tp": "4", "gpus": "4"}
    rows = [run(**kimi, note=f"trust=B; {label} attn_dp=1; x") for label in ("moe_tp=4 moe_ep=1", "moe_tp=1 moe_ep=4")]
    assert [c["ep"] for c in rows] == ["1", "1"]
    inside = "engine.reduce_norm=1048576"  # what fuse_allreduce_rms asks for
    assert [c["sets"].partition(";")[2] for c in rows] == [f"engine.captured=2048;{inside}", inside]
    assert all(c["sets"].startswith("engine.all_reduce=flashinfer") for c in rows)  # fuse_allreduce_rms


def test_ranks_of_attention_are_filed_as_products_and_their_clients_a_rank() -> None:
    """A degree n of dp-attn is n or n x n in attn_dp, the batch is that of one rank: the campaign's machines have eight
    GPUs (with 16 or 64, TPOT comes out 30 to 80 % too fast, and the note's clients are eight times the batch)."""
    told = "trust=C; concurrency 256 differs from batch_size; moe_tp={} moe_ep={} attn_dp={};"
    deepseek = {"model": "deepseek-ai/DeepSeek-R1", "gpu": "B200-180GB", "engine": "trtllm 1.2.0rc6.post2"}
    for tensor, experts, ranks, n in ((1, 8, 8, "8"), (8, 8, 64, "8"), (4, 4, 16, "4")):
        cells = run(**deepseek, tp="1", batch="32", note=told.format(tensor, experts, ranks) + " x")
        split = [cells[k] for k in ("gpus", "tp", "dp", "ep", "concurrency")]
        assert split == [n, "1", n, n, "256"]


def test_ranks_of_vllm_are_those_of_its_experts_but_where_a_script_asks_for_ranks() -> None:
    """Kimi-K2.5 on B200: 4 clients "a rank" with attn_dp = 4 are, to the last digit, another dump's run of 16 clients
    with tp 4 and ep 4. MiniMax-M2.5 in 4 bits has --data-parallel-size 2 from 256 clients on."""
    told = "trust=C; concurrency {} differs from batch_size; moe_tp=1 moe_ep={} attn_dp={}; x"
    row = {"gpu": "B200-180GB", "precision_weights": "nvfp4"}
    kimi = run(**row, model="moonshotai/Kimi-K2.5", engine="vllm 0.17.0", tp="4", batch="4",
               note=told.format(16, 16, 4))  # fmt: skip
    keys = ("gpus", "tp", "dp", "concurrency")
    assert [kimi[k] for k in keys] == ["4", "4", "1", "16"]
    minimax = row | {"model": "MiniMaxAI/MiniMax-M2.5", "engine": "vllm 0.19.0", "tp": "2"}
    few, many = (run(**minimax, batch=n, note=told.format(2 * int(n), 4, 2)) for n in ("64", "128"))
    assert [few[k] for k in keys] == ["2", "2", "1", "128"]
    assert [many[k] for k in keys] == ["2", "1", "2", "256"]


def test_pools_on_gb200_are_those_that_their_launcher_asked_for() -> None:
    """InferenceX runners/launch_gb200-nv.sh: the table's tp counts the devices of all pools. First tokens are apart."""
    row = {"model": "deepseek-ai/DeepSeek-R1", "gpu": "GB200-192GB", "engine": "trtllm ", "precision_weights": "nvfp4"}
    row |= {"note": "trust=B; moe_tp=1 moe_ep=1 attn_dp=1; x", "gpus": "36", "tp": "36"}
    keys = ("prefill_replicas", "prefill_tp", "prefill_dp", "replicas", "tp", "dp", "ep", "concurrency")
    tensors, ranks = (run(**row, batch=n) for n in ("64", "1075"))
    assert [tensors[k] for k in keys] == ["1", "4", "1", "4", "8", "1", "8", "64"]
    assert [ranks[k] for k in keys] == ["1", "1", "4", "1", "1", "32", "32", "1075"]
    assert (tensors["release"], tensors["quant"], "gpus" in tensors) == ("1.1.0rc5", "nvfp4-ffn-kv8", False)
    assert "doubt" not in tensors and "Dynamo" in run(**row, batch="64", metric="ttft_ms")["doubt"]
    assert run(**row, batch="144")["guesses"] == "3"


def test_pools_of_sglang_on_gb200_have_slots_for_experts_that_stand_twice() -> None:
    """The same launcher: 256 experts do not divide among 48 or 24 ranks, 288 slots do."""
    row = {"model": "deepseek-ai/DeepSeek-R1", "gpu": "GB200-192GB", "engine": "sglang ", "precision_weights": "fp8"}
    row |= {"note": "trust=B; moe_tp=72 moe_ep=1 attn_dp=1; x", "gpus": "72", "tp": "72", "batch": "1024"}
    keys = ("prefill_replicas", "prefill_dp", "replicas", "tp", "dp", "ep", "quant", "receive_interval")
    short, long = (run(**row, input_len=n) for n in ("1024", "8192"))
    assert [short[k] for k in keys] == ["3", "8", "1", "1", "48", "48", "fp8-block", "1"]
    assert [long[k] for k in keys] == ["6", "8", "1", "1", "24", "24", "fp8-block", "1"]
    assert "model.blocks.1.ffn.experts=288" in short["sets"] and "padded" in short["doubt"]
    fewer = [run(**row | {"gpus": n, "tp": n, "note": row["note"].replace("72", n)}) for n in ("20", "48")]
    assert [(c["prefill_replicas"], c["replicas"], c["dp"]) for c in fewer] == [("1", "4", "4"), ("2", "1", "32")]


@pytest.mark.parametrize("spelled", ["vllm 0.17.0", "vLLM 0.17.0", "vllm/vllm-openai:v0.17.0"])
def test_a_split_does_not_hang_on_how_an_engine_is_spelled(spelled: str) -> None:
    row = {"model": "moonshotai/Kimi-K2.5", "gpu": "B200-180GB", "precision_weights": "nvfp4", "tp": "4", "batch": "64"}
    assert run(**row, engine=spelled, note="trust=B; moe_tp=1 moe_ep=4 attn_dp=1; x").get("ep", "1") == "1"


@pytest.mark.parametrize(
    ("model", "gpu", "printed", "quant"),
    [("openai/gpt-oss-120b", "H100-SXM-80GB", "bf16", "mxfp4"), ("openai/gpt-oss-120b", "MI300X", "mxfp4", "mxfp4"),
     ("lmsys/gpt-oss-120b-bf16", "H100-SXM-80GB", "bf16", "bf16"), ("Qwen/Qwen3-32B", "B300", "int4", "w4a16"),
     ("Qwen/Qwen3-32B", "H200-SXM-141GB", "w4afp8", "w4a8kv16")],
)  # fmt: skip
def test_a_type_says_nothing_of_a_cache_that_is_not_printed(model: str, gpu: str, printed: str, quant: str) -> None:
    """And a checkpoint of one type is of it, whatever the table files it under."""
    row = {"model": model, "gpu": gpu, "precision_weights": printed, "engine": "sglang 0.5.9", "batch": "8"}
    assert run(**row, note="trust=B; moe_tp=8 moe_ep=1 attn_dp=1; x")["quant"].replace("kv8", "") == quant


def test_experts_cut_over_ranks_of_attention_are_on_none_of_them_whole() -> None:
    """InferenceX gptoss-fp4-b200-trt of December 2025: dp-attn with ep 1."""
    note = "trust=C; concurrency 64 differs from batch_size; moe_tp=2 moe_ep=1 attn_dp=2; x"
    cells = run(model="openai/gpt-oss-120b", gpu="B200-180GB", engine="trtllm 1.2.0rc2", tp="1", batch="32", note=note)
    assert [cells[k] for k in ("tp", "dp", "ep", "concurrency")] == ["1", "2", "2", "64"]


def test_4_bits_on_amds_cards_are_quarks_with_what_scripts_set() -> None:
    """InferenceX amd-master.yaml: amd/DeepSeek-R1-0528-MXFP4-Preview, amd/Llama-3.3-70B-Instruct-MXFP4-Preview; gpt-oss
    has its own type; every script of ATOM sets an fp8 cache."""
    row = {"gpu": "MI355X", "precision_weights": "fp4", "tp": "8"}
    dense, experts, atom, own = (
        run(**row, model=m, engine=e, note="trust=B; moe_tp=8 moe_ep=1 attn_dp=1; x", batch="64", input_len="8192")
        for m, e in (
            ("meta-llama/Llama-3.3-70B-Instruct", "vllm "),
            ("deepseek-ai/DeepSeek-R1", "sglang 0.5.9"),
            ("MiniMaxAI/MiniMax-M2.5", "rocm/atom:rocm7.2.2_pytorch_release_2.10.0_atom0.1.2.post"),
            ("openai/gpt-oss-120b", "atom 0.1.1"),
        )
    )
    assert (dense["quant"], dense["budget"], dense["release"]) == ("w4a4g32kv8", "131072", "0.10.1")
    assert (experts["quant"], experts["budget"]) == ("w4a4g32-ffnkv8", "32768")
    assert (atom["quant"], atom["engine"], atom["release"]) == ("w4a4g32-ffnkv8", "atom", "0.1.2.post")
    assert (own["quant"], own["release"]) == ("mxfp4kv8", "0.1.1")


def test_scripts_of_then_hold_for_images_of_then() -> None:
    """InferenceX: gptoss_fp4_b200_docker.sh (asynchronous scheduling until vLLM has it by itself, an fp8 cache from
    0.11.2 on), minimaxm2.5_fp8_b200.sh before pull request 947, kimik2.5_int4_b200.sh around 935."""
    row = {"gpu": "B200-180GB", "tp": "4", "batch": "64", "note": "trust=B; moe_tp=4 moe_ep=1 attn_dp=1; 2026_04_06_x"}
    oss = [run(**row, model="openai/gpt-oss-120b", precision_weights="nvfp4", engine=f"vllm {v}")
           for v in ("0.11.0", "0.13.0", "0.15.1")]  # fmt: skip
    assert [(c["quant"], c.get("lookahead")) for c in oss] == [("mxfp4", "1"), ("mxfp4kv8", "1"), ("mxfp4kv8", None)]
    minimax = [run(**row, model="MiniMaxAI/MiniMax-M2.5", precision_weights="fp8", engine=f"vllm {v}")
               for v in ("0.17.0", "0.19.0")]  # fmt: skip
    assert [(c["ep"], c["quant"], c["budget"]) for c in minimax] == [
        ("4", "fp8-block", "8192"),
        ("1", "fp8-blockkv8", "2048"),
    ]
    kimi = row | {"model": "moonshotai/Kimi-K2.5", "precision_weights": "int4_wo", "engine": "vllm 0.15.1"}
    sets = [run(**kimi)["sets"], run(**kimi | {"note": "trust=B; moe_tp=4 moe_ep=1 attn_dp=1; 2026_03_25_x"})["sets"]]
    assert ["experts=trtllm" in sets[0], "experts=marlin" in sets[1]] == [True, True]


def test_outputs_that_end_early_keep_their_longest() -> None:
    note = "trust=B; online serving, closed loop; fixed input length, outputs may end early (mean output 697 of 2048)"
    assert run(engine="sglang ", note=note)["output_limit"] == "2048"


def test_commits_of_nightly_builds_are_of_their_engine() -> None:
    """Such a build is none of the runs that name no image, which are of 2025."""
    builds = (
        "vllm nightly-5b8c30d62b754b57",
        "vllm/vllm-openai:nightly-96142f209453a381",
        "rocm/vllm-dev:nightly_main",
    )
    for cells in (run(engine=build, note="trust=C; attn_dp=1", model="openai/gpt-oss-120b") for build in builds):
        assert (cells["engine"], cells["release"]) == ("vllm", "nightly")


OF_LOAD = ("requests", "warmup", "spread", "output_limit", "prompt", "output")
POOLS = ("prefill_replicas", "prefill_tp", "prefill_dp", "prefill_ep", "replicas", "tp", "dp", "ep")
OF_ROWS = (*OF_LOAD, *POOLS, "accepted", "cache", "cluster.launching", "doubt", "engine", "guesses", "image", "release",
           "scheme", "slots", "split", "stand_in")  # fmt: skip
"""What recipes set that is no option of a server."""
TOLD = ("InferenceX", "aiconfigurator", "llm_args.py", "server_args.py", "perf-overview.md", "the same page",
        "sgl-cookbook", "NIM LLM benchmarking", "benchmark_serving.py", "inference_results_v4.1",
        "config.json of nvidia")  # fmt: skip
"""Scripts and pages that recipes name."""


def test_every_recipe_says_where_it_is_from_and_names_real_options() -> None:
    for row in recipes():
        assert any(name in row["source"] for name in TOLD)
        given = {"engine": row["when"].get("engine", ["trtllm"])[0], "concurrency": 16, "prompt": 1024, "output": 1024}
        given |= {"tp": 4, "source": row["when"].get("sources", ["aic"])[0]}
        given |= {"gpu": row["when"].get("gpu", [""])[0], "release": row["when"].get("release", [""])[0]}
        given |= {"note": row["when"].get("until", "")}
        found = campaign_options(given, row["when"].get("model", [""])[0], row["when"].get("weights", [""])[0], {})
        own = {k: v for k, v in found.items() if k not in (*OF_ROWS, *SET)}
        assert make_server(own).budget >= 1
        assert all(catalogue.resolve("gpu", g) == g for g in row["when"].get("gpu", []))
        assert all(catalogue.resolve("model", m) == m for m in row["when"].get("model", []))


def test_a_campaigns_machine_is_not_every_machine_of_its_card() -> None:
    """Its B300 launch in half the time; nobody else's do (docs/decisions/0364)."""
    given = {"engine": "sglang", "concurrency": 16, "prompt": 1024, "output": 1024, "tp": 4, "source": "aic"}
    of = {gpu: campaign_options(given | {"gpu": gpu}, "qwen3.5-397b-a17b", "nvfp4", {}) for gpu in
          ("b200-sxm-180gb", "b300-sxm-288gb", "gb300")}  # fmt: skip
    assert {gpu: found.get("cluster.launching", 1) for gpu, found in of.items()} == dict(
        zip(of, (1, 0.5, 1), strict=True)
    )
    row = {"engine": "SGLang 0.5.10", "gpu": "B300", "tp": "4", "gpus": "4", "precision_weights": "nvfp4"}
    assert "cluster.launching=0.5" in run(**row, batch="4", note="trust=B; moe_tp=4 moe_ep=1 attn_dp=1")["sets"]


def test_runs_older_than_the_columns_of_their_split_have_that_of_the_campaigns_configuration() -> None:
    """InferenceX .github/configs/nvidia-master.yaml, dsr1-fp4-b200-trt: ep above 32 clients, dp-attn above 128."""
    old = {"engine": "trtllm", "gpu": "B200-180GB", "tp": "4", "gpus": "4", "precision_weights": "nvfp4"}
    old |= {"note": "trust=B; moe_tp=4 moe_ep=1 attn_dp=1"}
    few, some, many = (run(**old, batch=n) for n in ("32", "128", "256"))
    found = [(c["tp"], c["dp"], c["ep"]) for c in (few, some, many)]
    assert found == [("4", "1", "1"), ("4", "1", "4"), ("1", "4", "4")]
    assert "cutlass" in many["sets"] and "experts=trtllm" in some["sets"]
    assert many["quant"] == "nvfp4-ffn-kv8"  # the checkpoint that the configuration names
    assert run(**old | {"engine": "trtllm 1.2.0rc6.post2"}, batch="128")["ep"] == "1"  # its columns say so


def test_llama_in_four_bits_ran_as_in_eight() -> None:
    """InferenceX 70b_fp4_b200_trt_slurm.sh, 70b_fp4_b200_docker.sh."""
    llama = {"model": "nvidia/Llama-3.3-70B-Instruct-FP4", "gpu": "B200-180GB", "tp": "2", "gpus": "2"}
    llama |= {"precision_weights": "nvfp4", "note": "trust=B; attn_dp=1"}
    trt, vllm = (run(**llama, engine=name) for name in ("trtllm", "vllm"))
    assert (trt["budget"], trt["wait_steps"], trt["quant"]) == ("16384", "20", "nvfp4kv8")
    assert (vllm["max_sequences"], vllm["quant"]) == ("512", "nvfp4kv8")


def test_offline_runs_have_their_requests_and_graphs_and_no_front_end() -> None:
    """TensorRT-LLM's perf-overview.md: $num_requests by lengths, batch_sizes of its graphs, trtllm-bench."""
    row = {**RUN, "id": "trtllm10-0001", "engine": "trtllm 1.0", "model": "meta-llama/Llama-3.1-405B", "batch": ""}
    row |= {
        "input_len": "128",
        "output_len": "4096",
        "source": "TensorRT-LLM perf-overview v1.0",
        "note": "trust=B; max load",
    }
    found = inference_rows([row])[0]
    assert [found[k] for k in ("concurrency", "requests", "front", "tokenise")] == ["max", "1500", "0", "0"]
    assert "engine.graphs=1 2 4 8 16 " in found["sets"]
    assert "requests" not in run(engine="trtllm 1.0")


def test_a_tables_own_clients_and_limits() -> None:
    """trtllm-bench's estimate, ShareGPT's answers, genai-perf's windows, the C++ executor under NIM."""
    bench = {**RUN, "id": "trtllm17-0001", "engine": "TensorRT-LLM 0.17", "model": "Llama-3.3-70B", "batch": "",
             "tp": "2", "gpu": "H100-SXM-80GB", "precision_weights": "fp8", "input_len": "1000", "output_len": "1000",
             "note": "trust=B; max load"}  # fmt: skip
    found = inference_rows([bench])[0]
    assert (int(found["budget"]), int(found["max_sequences"])) == (2048, 384)
    chat = {**RUN, "id": "trtserve-0001", "engine": "TensorRT-LLM 0.14", "batch": "", "input_len": "202",
            "output_len": "214", "note": "online serving QPS=2, 500 requests, dataset mean lengths"}  # fmt: skip
    assert inference_rows([chat])[0]["output_limit"] == "1024"
    assert "output_limit" not in inference_rows([chat | {"input_len": "467", "output_len": "256"}])[0]
    nim = {**RUN, "id": "nim-0001", "engine": "NIM 1.8.0 (TensorRT-LLM)", "batch": "25", "note": "concurrency;"}
    assert [inference_rows([nim])[0][k] for k in ("release", "warmup", "spread")] == ["0.17", "25", "0.98,1.02"]
    assert "warmup" not in inference_rows([nim | {"batch": "1"}])[0]


QSERVE = {
    "id": "qserve-0001",
    "model": "Llama-2-7B",
    "gpu": "A100-80GB",
    **dict.fromkeys(("gpus", "tp", "pp", "value"), "1"),
    "batch": "max",
    "input_len": "1024",
    "output_len": "512",
    "metric": "throughput_out_tok_s",
    "note": "trust=B",
    "engine": "TensorRT-LLM",
    "precision_weights": "int8",
    "precision_activations": "int8",
}


def test_mixtral_in_fp8_had_wide_experts_before_support_came() -> None:
    row = QSERVE | {"id": "trtllm-0100", "model": "Mixtral 8x7B", "engine": "TensorRT-LLM v0.9.0", "batch": "512"}
    row |= {"gpu": "H100-80GB", "precision_weights": "fp8", "precision_activations": "fp8", "precision_kv": "fp8"}
    found = inference_rows([row])[0]
    assert (found["quant"], found["sets"]) == ("w16a16kv8", "engine.moe_factor=1.59")
    assert "sets" not in inference_rows([row | {"gpu": "L40S-48GB"}])[0]
    assert inference_rows([row | {"model": "Llama-2-7B"}])[0]["quant"] == "fp8kv8"


def test_qserve_and_what_it_was_compared_with() -> None:
    smooth = inference_rows([QSERVE])[0]
    assert [smooth[k] for k in ("engine", "release", "quant", "concurrency", "scheduler")] == [
        "trtllm", "2024", "int8kv8", "max", "static"]  # fmt: skip
    own = QSERVE | {"engine": "QServe", "precision_weights": "int4", "precision_kv": "int4", "batch": "190"}
    found = inference_rows([own])[0]
    assert (found["engine"], found["quant"], found["sets"]) == ("qserve", "w4a8kv4", "quant.kind=int")
    assert "stand_in" not in found


LLAMA = {"model": "meta-llama/Llama-3.1-70B", "note": "trust=B; moe_tp=4 moe_ep=1 attn_dp=1", "tp": "4", "batch": "16"}


def test_options_are_those_of_the_script_under_its_conditions_alone() -> None:
    short = run(**LLAMA, engine="trtllm")
    assert (short["budget"], short["wait_steps"], short["release"]) == ("16384", "20", "1.1.0rc2.post2")
    assert "wait_steps" not in run(**LLAMA | {"tp": "8"}, engine="trtllm")
    assert "wait_steps" not in run(**LLAMA, engine="trtllm", output_len="8192")
    house = run(model="Qwen/Qwen3-32B", engine="trtllm 1.0.0rc3", batch="64", input_len="4096", note="x_epnone_1")
    assert house["budget"] == str(4096 + 64 + 500)
    fp4 = {"engine": "sglang 0.5.9", "gpu": "B300", "precision_weights": "nvfp4"}
    assert [run(**fp4, batch=n)["receive_interval"] for n in ("8", "64")] == ["10", "30"]
    assert "receive_interval" not in run(model="Qwen/Qwen3.5-397B-A17B", engine="sglang 0.5.9")
    assert "budget" not in run(model="somebody/s-7b", engine="vllm 0.18.0")


def test_a_run_without_a_script_has_what_the_nearest_of_its_model_sets() -> None:
    """Decision 0341: what scripts choose by card or weights is lent among cards of a generation and weights as wide."""
    older = run(**LLAMA | {"gpu": "H100-SXM-80GB"}, engine="trtllm")
    assert (older["budget"], older["wait_steps"]) == ("16384", "20")
    assert older["stand_in"].endswith("script for llama-3.1-70b in fp8 on h200-sxm-141gb")
    newer = run(**LLAMA | {"gpu": "B300", "precision_weights": "nvfp4"}, engine="trtllm")
    assert newer["stand_in"].endswith("in nvfp4 on b200-sxm-180gb")
    next_door = {"engine": "sglang 0.5.9", "gpu": "GB300", "precision_weights": "nvfp4"}
    assert [run(**next_door, batch=n)["receive_interval"] for n in ("8", "64")] == ["10", "30"]
    wide = run(**next_door | {"precision_weights": "bf16"})
    assert "kv8" not in wide["quant"] and "reduce_norm" not in wide.get("sets", "")
    for unknown in (run(model="somebody/s-7b", engine="vllm 0.18.0"), run(**LLAMA, engine="trtllm")):
        assert "stand_in" not in unknown


def test_what_all_scripts_of_an_engine_set_is_of_models_without_one_too() -> None:
    """vLLM before 0.14 schedules asynchronously; SGLang on Blackwell looks at its queue every 10 or 30 steps."""
    early, late = (run(model="somebody/s-7b", engine=f"vllm {release}") for release in ("0.11.0", "0.18.0"))
    assert "engine.overlap=true" in early["sets"] and "sets" not in late
    plain = {"model": "somebody/s-7b", "engine": "sglang 0.5.9", "precision_weights": "bf16"}
    found = [run(**plain, gpu=gpu, batch="64").get("receive_interval") for gpu in ("GB200", "RTX-PRO-6000", "H200")]
    assert found == ["30", "30", None]


def test_a_running_limit_is_never_carried_to_another_card() -> None:
    limits = {gpu: run(model="Qwen/Qwen3.5-397B-A17B", engine="sglang 0.5.9", gpu=gpu).get("max_sequences")
              for gpu in ("H200-SXM-141GB", "H100-SXM-80GB", "GB200-192GB", "MI300X")}  # fmt: skip
    assert limits == {"H200-SXM-141GB": "128", "H100-SXM-80GB": "256", "GB200-192GB": None, "MI300X": None}


def test_a_running_limit_below_the_clients_is_of_another_form_of_the_script() -> None:
    """InferenceX dsr1_fp8_b200.sh with four GPUs: 32 sequences; no run has more clients than its limit."""
    four = {"engine": "sglang 0.5.9", "gpu": "B200-180GB", "tp": "4", "gpus": "4"}
    four |= {"note": "trust=B; moe_tp=4 moe_ep=1 attn_dp=1"}
    found = {n: run(**four, batch=n).get("max_sequences") for n in ("32", "64")}
    assert found == {"32": "32", "64": None}


def test_four_bits_are_those_of_the_checkpoint_that_the_script_names() -> None:
    fp4 = {"engine": "sglang 0.5.9", "gpu": "B200-180GB", "precision_weights": "nvfp4"}
    models = ("deepseek-ai/DeepSeek-R1", "Qwen/Qwen3.5-397B-A17B", "zhipuai/GLM-5")
    assert [run(**fp4, model=m)["quant"] for m in models] == ["nvfp4-ffn-kv8", "nvfp4-experts-kv8", "nvfp4-ffn-kv8"]


def test_cache_and_release_come_from_the_script_where_it_says_them() -> None:
    minimax = {"model": "MiniMaxAI/MiniMax-M2.5", "engine": "vllm 0.18.0", "note": "trust=B"}
    assert run(**minimax)["quant"] == "fp8-block"
    assert run(**minimax | {"gpu": "B200-180GB"})["quant"] == "fp8-blockkv8"
    assert run(model="Qwen/Qwen3-32B", engine="vllm 0.18.0", note="trust=B")["quant"] == "fp8-blockkv8"
    assert run(model="nvidia/Qwen3-32B-FP8", engine="vllm 0.18.0", note="trust=B")["quant"] == "fp8kv8"  # ModelOpt's
    glm = {"model": "zai-org/GLM-5", "engine": "sglang 0.5.9"}
    assert [run(**glm, gpu=g)["quant"] for g in ("H200-SXM-141GB", "B200-180GB")] == ["fp8-block", "fp8-blockkv8"]
    assert run(**LLAMA, engine="vllm")["release"] == "0.10.2"
    assert run(**LLAMA, engine="vllm 0.18.0")["release"] == "0.18.0"


def test_a_file_of_options_that_the_engine_does_not_read_sets_nothing() -> None:
    """InferenceX' script for Llama on H100 says --config=config.yaml, which vLLM 0.10.2 takes for no file."""
    found = {g: run(**LLAMA, engine="vllm", gpu=g)["quant"] for g in ("H100-SXM-80GB", "H200-SXM-141GB", "B200-180GB")}
    assert found == {"H100-SXM-80GB": "fp8", "H200-SXM-141GB": "fp8kv8", "B200-180GB": "fp8kv8"}


def test_own_runs_of_the_campaign_leave_a_fifth_of_what_is_free() -> None:
    row = {"model": "Qwen/Qwen3-32B", "gpu": "H100-SXM-80GB", "tp": "1", "engine": "trtllm 1.0.0rc3", "batch": "128"}
    own = run(**row, note="trust=C; qwen3_32b_h100_sxm_trtllm_agg_2048x512_c128_tp1_epnone_42")
    assert own["sets"] == "engine.free_fraction=0.8"
    assert "free_fraction" not in run(**row, note="trust=B").get("sets", "")


def test_pools_and_server_flags_are_read_off_a_row() -> None:
    note = "trust=B; online serving, closed loop; 500 requests; DISAGGREGATED: prefill_replicas=3 decode_replicas=1; x"
    got = run(id="dstackpd-1", engine="sglang", note=note, gpus="8", tp="2", batch="64")
    assert [got[k] for k in ("prefill_replicas", "replicas", "tp", "concurrency", "requests")] == [
        *("3", "1", "2", "64", "500")
    ]
    flags = (
        "trust=B; online serving; server: sglang serve --tp 8 --chunked-prefill-size 131072 --mem-fraction-static .8"
    )
    assert run(id="sglcook-1", engine="sglang 0.5.9", note=flags)["budget"] == "131072"


def test_a_server_runs_what_it_was_told_and_what_follows_from_it() -> None:
    """SGLang, server_args.py: guessing limits what runs to 48, unless the command says otherwise."""
    row = {"id": "sglcook-1", "engine": "sglang 0.5.7", "gpu": "B200", "tp": "1", "gpus": "1", "batch": "1"}
    note = "trust=B; online serving; server: sglang serve --attention-backend {} --tp 1"
    assert run(**row, note=note.format("triton"))["sets"] == "engine.attention=triton"
    assert "sets" not in run(**row, note=note.format("fa3"))
    glm = row | {"model": "zai-org/GLM-4.7-Flash", "precision_weights": "bf16"}  # no family that auto names
    assert run(**glm, note=note.format("fa3"))["sets"] == "engine.experts=triton"
    assert "sets" not in run(**glm, note=note.format("fa3") + " --moe-runner-backend flashinfer_trtllm")
    assert "sets" not in run(**glm | {"model": "Qwen/Qwen3-30B-A3B"}, note=note.format("fa3"))
    row |= {"model": "deepseek-ai/DeepSeek-V3.2-Exp", "engine": "sglang 0.5.6", "tp": "8", "gpus": "8"}
    row |= {"precision_weights": "fp8"}
    assert run(**row, note="trust=B; online serving; SPECULATIVE")["max_sequences"] == "48"
    assert "sets" not in run(**row, note="trust=B; online serving; SPECULATIVE")
    ahead = run(**row, note="trust=B; online serving; SPECULATIVE; server: SGLANG_ENABLE_SPEC_V2=1 sglang serve")
    assert ahead["sets"] == "engine.overlap=true"
    told = "trust=B; online serving; SPECULATIVE; server: sglang serve --max-running-requests 200"
    assert run(**row, note=told)["max_sequences"] == "200"
    assert "max_sequences" not in run(**row | {"engine": "sglang 0.5.9"}, note="trust=B; online serving")


def test_experts_under_data_parallel_attention_are_never_whole_on_a_rank() -> None:
    row = {"id": "sglcook-1", "engine": "sglang 0.5.7", "gpu": "MI300X", "model": "deepseek-ai/DeepSeek-V3", "tp": "1"}
    note = "trust=B; online serving; moe_tp={} moe_ep=1 attn_dp=8"
    assert [run(**row, gpus="8", note=note.format(n))["ep"] for n in (8, 1)] == ["8", "1"]


def test_runs_that_waited_for_their_text_are_set_apart() -> None:
    """SGLang pull request 25309: Kimi's tokens became text 330 times as fast; the page's peak is 4.3 times its mean."""
    row = {"id": "sglcook-1", "gpu": "H200", "precision_weights": "int4", "note": "trust=B; online serving"}
    kimi, linear = "moonshotai/Kimi-K2.5", "moonshotai/Kimi-Linear-48B-A3B-Instruct"
    doubts = [
        run(**row, model=m, engine=e).get("doubt", "")
        for m, e in ((kimi, "sglang 0.5.9"), (kimi, "sglang 0.5.12"), (kimi, "vllm 0.16.0"), (linear, "sglang 0.5.9"))
    ]
    assert ["turns them into text" in d for d in doubts] == [True, False, False, False]


def test_checkpoints_in_four_bits_keep_the_parts_wide_that_their_config_names() -> None:
    """Kimi-K2.5's own checkpoint has routed experts in int4 alone (ignore: self_attn, shared_experts, mlp)."""
    row = {"id": "aic-1", "engine": "vllm 0.16.0", "gpu": "H200-SXM-141GB", "precision_weights": "int4_wo"}
    kimi = run(**row, model="moonshotai/Kimi-K2.5", batch="8", note="trust=B")
    assert (kimi["quant"], kimi["max_sequences"]) == ("w4a16g32-experts", "8")
    assert run(**row, model="Qwen/Qwen3-32B-AWQ")["quant"] == "awq"
    assert run(**row, model="meta-llama/Llama-3.1-70B")["quant"] == "int4"


PAGE = (
    "trust=B; online serving, sglang bench_serving; closed loop; {n} requests; dataset random, lengths drawn uniformly "
    "up to {lengths} (random-range-ratio 0, the default), columns hold the means; prefix cache left on, and a page's "
    "runs draw the same prompts (one seed), so that later ones can find them cached (TTFT, throughput)"
)


@pytest.mark.parametrize(
    ("lengths", "n", "prompt", "cached"),
    [
        ("1000/1000", "10", "610", None),  # the first run of a page
        ("1000/1000", "80", "496", "62"),  # the ten of before
        ("1000/1000", "500", "500", "80"),
        ("1000/8000", "10", "610", "609"),  # the same prompts again
        ("8000/1000", "10", "4194", "500"),  # that begin as the short ones did
        ("8000/1000", "320", "3981", "1370"),
    ],
)
def test_later_runs_of_a_page_find_the_prompts_of_earlier_ones(
    lengths: str, n: str, prompt: str, cached: str | None
) -> None:
    note = PAGE.format(n=n, lengths=lengths)
    got = run(id="sglcook-1", engine="sglang 0.5.7", gpu="MI300X", note=note, input_len=prompt, output_len="500")
    assert got.get("cached") == cached
    assert "cached" not in run(id="sglcook-1", engine="sglang", note=note.split("; prefix")[0])


def test_a_study_that_repeats_its_prompts_has_them_cached_for_steps_too() -> None:
    note = "trust=B; online serving; prefill_replicas=1 decode_replicas=3; 1p3d_conc64_in2048_out128; pd_ratio"
    row = {"id": "dstackpd-1", "engine": "sglang", "gpus": "8", "tp": "2", "input_len": "2048", "note": note}
    assert run(**row, batch="64", metric="tpot_ms")["cached"] == "2047"
    assert "cached" not in run(**row, batch="128", metric="tpot_ms")


def test_a_router_that_goes_round_brings_prompts_back_to_the_same_server_or_not() -> None:
    """501 requests a run (one asks whether the server answers): with two prefill servers every other run is new."""
    note = "trust=B; online serving; prefill_replicas={0} decode_replicas=1; {0}p1d_conc{1}_in2048_out128; pd_ratio"
    row = {"id": "dstackpd-1", "engine": "sglang", "gpus": "8", "tp": "2", "input_len": "2048"}
    found = {
        (servers, n): "cached" in run(**row, batch=str(n), note=note.format(servers, n))
        for servers in (1, 2, 3)
        for n in (128, 64, 32)
    }
    assert [k for k, v in found.items() if v] == [(1, 64), (1, 32), (2, 32), (3, 64), (3, 32)]


def test_a_study_says_how_outputs_end_and_which_servers_were_cold() -> None:
    note = "trust=B; online serving; outputs may end early (mean output 67 of 128); {}; pd_ratio"
    row = {"id": "dstackpd-1", "engine": "sglang", "gpus": "8", "tp": "2", "input_len": "2048", "batch": "128"}
    first = run(**row, note=note.format("1p3d_conc128_in2048_out128_20250923_033738.json"))
    assert (first["output_ended"], first["cold"]) == ("36", "2.4")
    assert "cold" not in run(**row, note=note.format("1p3d_conc128_in2048_out2048_20250914_014638.json"))


def test_the_first_runs_of_a_campaign_spread_their_experts() -> None:
    """InferenceX, dsr1_fp4_b200_docker.sh of October 2025: --enable-ep-moe, whatever the table's later column says."""
    note = "trust=B; moe_tp=4 moe_ep=1 attn_dp=1; batch = concurrency; dsr1_b200_sglang_fp4_agg_1024x1024_c4_cfg1"
    row = {"gpu": "B200-180GB", "tp": "4", "gpus": "4", "precision_weights": "nvfp4", "note": note}
    assert [run(**row, engine=e)["ep"] for e in ("sglang", "sglang 0.5.9")] == ["4", "1"]


def test_prompts_that_a_client_and_a_server_count_differently_are_the_servers() -> None:
    """InferenceX pull requests 937, 1381 and 1502: 7,140 tokens of the client were 35,921 of SGLang 0.5.10."""
    row = {"engine": "sglang 0.5.10.post1", "gpu": "B300", "input_len": "8192", "output_len": "1024"}
    row |= {"note": "trust=B; db-dump 2026-04-27"}
    assert int(run(**row)["prompt"]) == pytest.approx(8192 * 35921 / 7140, rel=1e-3)
    mended = {"note": "trust=B; db-dump 2026-06-08"}, {"note": "trust=B"}, {"engine": "sglang 0.5.11"}, {"gpu": "H200"}
    assert [run(**row | other)["prompt"] for other in mended] == ["8192"] * 4
    assert run(**row | {"engine": "sglang 0.5.9"})["prompt"] == "8192"
    assert run(**row, model="Qwen/Qwen3.5-397B-A17B")["prompt"] == "8192"


def test_a_page_that_prints_its_accepted_guesses_is_no_more_in_doubt() -> None:
    """sgl-cookbook, DeepSeek-V3_2.md, 5.1.1 ("Accept length" 2.46), and GLM-5.md, 5.1 (GLM-5-FP8, eight H200, 3.48)."""
    row = {"id": "sglcook-1", "tp": "8", "gpus": "8", "batch": "1", "note": "trust=B; online serving; SPECULATIVE"}
    deepseek = {"model": "deepseek-ai/DeepSeek-V3.2-Exp", "engine": "sglang 0.5.6", "gpu": "B200"}
    got = run(**row, **deepseek, precision_weights="fp8")
    assert (got["guesses"], got["accepted"], got.get("doubt", "")) == ("3", "2.46", "")
    assert "speculative" in run(**row, **deepseek | {"gpu": "H200"}, precision_weights="fp8")["doubt"]
    glm = run(**row, model="zai-org/GLM-5", engine="sglang", gpu="H200", precision_weights="bf16")
    assert (glm["quant"], glm["accepted"]) == ("fp8-block", "3.48")
    amd = {"note": row["note"] + "; server: sglang serve --chunked-prefill-size 131072 --mem-fraction-static 0.80"}
    other = run(**row | amd, model="zai-org/GLM-5", engine="sglang", gpu="H200", precision_weights="bf16")
    assert (other["budget"], other["static_fraction"]) == ("8192", "0.85")  # that command is of another machine


def test_a_checkpoint_runs_in_its_own_scheme_and_as_its_model() -> None:
    row = {"id": "sglcook-1", "engine": "sglang 0.5.7", "gpu": "MI300X", "note": "trust=B; online serving"}
    fp8 = run(**row, model="mistralai/Ministral-3-14B-Instruct-2512", precision_weights="bf16")
    assert (fp8["model"], fp8["quant"]) == ("ministral-3-14b", "fp8")
    assert run(**row, model="mistralai/Ministral-3-14B-Base-2512", precision_weights="bf16")["quant"] == "bf16"
    coder = run(**row, model="Qwen/Qwen3-Coder-Next", precision_weights="bf16")
    assert (coder["model"], coder["quant"]) == ("qwen3-next-80b-a3b", "bf16")


def test_hardware_flops_turn_back_into_the_step_time() -> None:
    """Narayanan et al. 2021 table 1: the 175B row, 1024 GPUs, batch 1536, 140 TFLOP/s -> 34 days for 300B tokens."""
    seconds = megatron_hardware_flops(1536, 2048, 96, 12288, 51200) / (140e12 * 1024)
    days = seconds * 300e9 / (1536 * 2048) / 86400
    assert days == pytest.approx(34.4, abs=0.5)  # the paper says 34 days
    got = read(train_row())
    assert got.metric == "step_time_s"
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
    got = read(train_row())
    want = {"gpus": 1024, "tp": 8, "pp": 4, "vp": 3, "cp": 1, "ep": 1, "dp": 32, "batch": 1792, "seq": 2048}
    want |= {"micro_batch": 2}
    assert {k: got.kwargs[k] for k in want} == want
    assert [got.kwargs[k] for k in ("recompute", "zero", "sp", "dtype", "engine")] == [
        *("full", "0", False, "fp16", "megatron-2021")
    ]
    assert got.kwargs["sets"]["cluster.tiers.1.bandwidth"] == 8 * 200e9 / 8 / 8


def test_sizes_of_a_model_that_no_catalogue_has() -> None:
    row = {"id": "BLM-1", "model": "BLOOM candidate 181B", "layers": "72", "hidden": "14336", "heads": "64"}
    row |= {"kv_heads": "64", "ffn": "57344", "vocab": "250000", "gpus": "384", "pp": "12", "dp": "4", "vp": ""}
    model = read(train_row(**row, global_batch="2048", metric="step_time_s", value="143.31")).kwargs["model"]
    assert {k: model[k] for k in ("layers", "hidden", "heads", "ffn", "vocab", "gated", "positions")} == {
        **{"layers": 72, "hidden": 14336, "heads": 64, "ffn": 57344, "vocab": 250000, "gated": False, "positions": 0}
    }


def test_own_sizes_are_gated_where_their_count_says_so() -> None:
    row = {"id": "ZZZ-1", "model": "own model", "params_b": "7", "vp": "", "layers": "32", "hidden": "4096"}
    row |= {"heads": "32", "kv_heads": "32", "ffn": "11008", "vocab": "32000"}
    assert train_row(**row)["gated"] == "yes"
    assert train_row(**row | {"ffn": "16384"})["gated"] == "no"  # two matrices of 16384 make 7B


@pytest.mark.parametrize("billions", [16, 32, 64, 128, 512, 1024])
def test_maxtext_scales_make_the_printed_counts(billions: int) -> None:
    model = model_from_sizes(maxtext_sizes(billions))
    assert float(model.parameters) == pytest.approx(billions * 1e9, rel=0.035)


@pytest.mark.parametrize(
    ("cell", "zero"),
    [
        ("none", "0"), ("zero1", "1"), ("fsdp shard_grad_op (zero2)", "2"), ("none(DDP/dist-opt)", "1"),
        ("fsdp full_shard (zero3)", "3"), ("megatron-fsdp 64", "3"), ("fsdp2", "3"), ("hsdp", "3"),
    ],
)  # fmt: skip
def test_sharding(cell: str, zero: str) -> None:
    assert train_row(zero_fsdp=cell)["zero"] == zero


def test_what_sets_training_rows_apart() -> None:
    assert train_row(dp="16")["doubt"] == "split does not multiply to the number of GPUs"
    assert train_row(precision="")["doubt"] == "precision not stated"
    flops = train_row(metric="mfu", value="0.4")
    assert flops["doubt"] == "only a FLOP rate is printed, and not how its FLOPs are counted"
    assert "adapters" in train_row(note="LoRA")["doubt"]
    assert "micro_batch" not in train_row(micro_batch="") and "recompute" not in train_row(recompute="")
    dropped = {"id": "MBR-1", "model": "Qwen3_30B_a3B (tokendrop)", "source": "x (25.09 NeMo Container)"}
    assert "capacity" in train_row(**dropped, precision="")["doubt"]
    unknown = train_row(id="ZZZ-1", metric="step_time_s", value="30")
    assert "engine" not in unknown and "doubt" not in unknown
    assert "engine not stated: megatron" in read(unknown).assumed


def test_adapters_of_litgpt_hold_what_four_bit_products_read() -> None:
    run = {"id": "litgpt-1", "gpu": "A100-40GB", "metric": "memory_gb", "value": "23", "gpus": "1", "tp": "1",
           "pp": "1", "vp": "", "dp": "", "micro_batch": "1", "seq": "", "global_batch": "", "recompute": "",
           "zero_fsdp": "none", "note": "LoRA on Alpaca (longest 1044 to 1304 tokens)"}  # fmt: skip
    wide, narrow = (train_row(**run, model="Llama 2 13B LoRA", precision=p) for p in ("bf16", "bnb.nf4"))
    assert "doubt" not in wide and wide["engine"] == "peft" and wide["seq"] == "1304"
    assert "copied_inputs" not in wide["sets"] and "engine.copied_inputs=true" in narrow["sets"]
    both = [narrow["sets"].replace("inputs=true", f"inputs={told}") for told in ("true", "false")]
    runs = [build_training(**read(narrow | {"sets": sets}).kwargs).scenario for sets in both]
    held = [float(train_scenario(run).memory.total) for run in runs]
    assert held[0] - held[1] == pytest.approx(2 * 40 * (2 * 5120 + 13824) * 1304)
    assert train_row(**run, model="Phi 1.5 Adapter", precision="bf16")["seq"] == "1044"


def test_precisions_that_are_told_beside_the_column() -> None:
    page = {"id": "MBR-1", "source": "x (25.09 NeMo Container)", "model": "LLAMA3_8B", "gpu": "B200"}
    assert train_row(**page, precision="")["dtype"] == "fp8"
    outside = train_row(**page, precision="FP8-CS (FP8-MX)", note="the value outside brackets is taken")
    assert outside["dtype"] == "fp8" and "precision" not in outside.get("doubt", "")
    run = train_row(id="TT-1", model="Llama 3.1 405B", gpu="H100-96GB HBM2e 500W", precision="float8 + async TP")
    assert run["dtype"] == "fp8" and "engine.tp_overlap=0.7" in run["sets"]


def test_prompts_of_one_client_stand_in_the_cache_where_the_note_says_so() -> None:
    page = {"id": "thor-1", "model": "Qwen/Qwen3-32B-AWQ", "gpu": "Jetson AGX Thor 128GB", "engine": "vllm"}
    page |= {"precision_weights": "int4", "precision_activations": "bf16", "precision_kv": "", "gpus": "1", "tp": "1"}
    page |= {"pp": "1", "input_len": "2043", "output_len": "128", "value": "13", "note": f"online serving; {ALONE}"}
    rate = page | {"metric": "throughput_out_tok_s", "batch": "1"}
    alone, late = inference_rows([rate])[0], inference_rows([rate | {"metric": "ttft_ms"}])[0]
    assert alone["cached"] == "2042" and "doubt" not in alone and "prefix cache" in late["doubt"]
    assert "cached" not in inference_rows([rate | {"batch": "8"}])[0]


def test_machines_by_the_names_under_which_they_are_sold() -> None:
    sold = {"M4 Max Mac Studio": "apple-m4-max-40core-128gb", "Framework Desktop (128GB)": "strix-halo-128gb",
            "M2 MacBook Air": "apple-m2-10core-24gb"}  # fmt: skip
    assert {name: alias_names.gpu(name, "geerling") for name in sold} == sold


def test_one_figure_a_run_counts_and_memory_beside_it() -> None:
    rows = [
        TRAIN | {"id": f"NAR-{i}", "metric": m, "value": v}
        for i, (m, v) in enumerate(
            [("tflops_per_gpu", "140"), ("hfu", "0.45"), ("step_time_s", "30"), ("memory_gb", "40")]
        )
    ]
    assert [c.get("doubt") for c in training_rows(rows)] == [SAME_RUN, SAME_RUN, None, None]


def test_a_derived_row_counts_only_where_its_parent_is_missing() -> None:
    derived = TRAIN | {"id": "NAR-2", "metric": "step_time_s", "value": "30", "note": "[DERIVED] hardware FLOPs"}
    parent, child = training_rows([TRAIN, derived])
    assert "doubt" not in parent and child["doubt"] == DERIVED
    assert "doubt" not in training_rows([derived])[0]


def test_every_alias_leads_somewhere() -> None:
    table = alias_names.table()
    assert [n for n in table["models"] if alias_names.model(n) is None] == []
    targets = {*table["gpus"].values(), *table["gpu_patterns"].values()}
    known = set(catalogue.names("gpu"))
    assert {t for t in targets if catalogue.resolve("gpu", t) not in known} == set()


@pytest.mark.parametrize(
    ("seq", "billions"), [(2048, 1.3160), (32768, 1.3789)]
)  # llm-foundry prints both counts for its 1B model: the learned positions differ
def test_sizes_give_the_published_number_of_parameters(seq: int, billions: float) -> None:
    row = {"id": "LLMF-1", "model": "MPT-1b", "layers": "24", "hidden": "2048", "heads": "16", "kv_heads": "16"}
    row |= {"ffn": "8192", "vocab": "50368", "seq": str(seq), "gpus": "32", "tp": "1", "pp": "1", "vp": "", "dp": "32"}
    model = read(train_row(**row, metric="step_time_s", value="2")).kwargs["model"]
    if isinstance(model, dict):
        assert float(model_from_sizes(model).parameters) / 1e9 == pytest.approx(billions, rel=1e-3)
    else:
        assert seq == 2048 and model == "mpt-1b"


def as_text(rows: list[dict[str, str]], columns: tuple[str, ...]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def test_the_script_writes_a_table_that_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text(as_text([INFER, LOAD], INFERENCE_COLUMNS), encoding="utf-8")
    assert main([str(old), str(new)]) == 0
    assert "2 rows, 1 of them set apart, 0 not read" in capsys.readouterr().err
    kinds = [r.task if isinstance(r, Request) else r.reason for r in read_rows(new)]
    assert kinds == ["infer", "serve"]
    header = new.read_text(encoding="utf-8").splitlines()[0].split(",")
    assert set(header) <= set(COLUMNS) and header[0] == "id" and header[-1] == "note"
    with pytest.raises(RooflmError, match="scripts/convert-published"):
        read_rows(old)


def test_rows_that_cannot_be_read_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old.csv"
    old.write_text(as_text([INFER, LOAD], INFERENCE_COLUMNS), encoding="utf-8")
    monkeypatch.setattr("rooflm_fit.convert.tables.tidy_inference", {}.__getitem__)
    assert main([str(old), str(tmp_path / "new.csv")]) == 0
    assert "2 rows, 2 of them set apart, 1 not read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"), [("x,y\n1,2\n", "no header of the older format"), (None, "No such file")]
)
def test_what_cannot_be_converted_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "a.csv").write_text(content, encoding="utf-8")
    assert main([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_every_path_that_is_written_exists() -> None:
    from rooflm.validation.cells import settings_of

    s = build_training(model="deepseek-v3", gpu="h100-sxm-80gb", gpus=64, ep=64, batch=64).scenario
    rows = [train_row(), train_row(id="MBR-1", model="DeepSeekV3", note="26.06 NeMo Container", precision="MXFP8"),
            train_row(id="STAS-1", zero_fsdp="zero3 + optimizer cpu offload")]  # fmt: skip
    found = {path: value for cells in rows for path, value in settings_of(cells).items()}
    assert {"cluster.tiers.1.bandwidth", "training.offload_optimizer", "engine.dedup"} <= found.keys()
    for path, value in found.items():
        paths.put(s, path, value)


_CELLS = st.one_of(
    st.sampled_from(["", "0", "1", "-3", "1e400", "nan", "inf", "max", "8", "2048", "fp8", "unstated", "1.5", "fsdp2"]),
    st.text(max_size=12),
)
_KEEP = st.booleans()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_cell_raises(data: st.DataObject) -> None:
    for base, columns in ((INFER, INFERENCE_COLUMNS), (LOAD, INFERENCE_COLUMNS), (TRAIN, TRAINING_COLUMNS)):
        row = {
            c: base.get(c, "") if data.draw(_KEEP) else data.draw(_CELLS)
            for c in columns
            if data.draw(_KEEP) or c == "metric"
        }
        (got,) = (training_rows if base is TRAIN else inference_rows)([row])
        assert isinstance(read_row(got), Request | Skip)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_no_text_raises_after_a_header(body: str) -> None:
    for columns in (INFERENCE_COLUMNS, TRAINING_COLUMNS):
        buffer = io.StringIO()
        csv.writer(buffer).writerow(columns)
        rows = converted(buffer.getvalue() + body)
        if rows:
            assert len(parse(text_of(rows))) == len(rows)


def test_a_run_that_contradicts_littles_law_is_doubted() -> None:
    from rooflm_fit.convert.tables import impossible

    run = {"source": "x", "task": "serve", "concurrency": "128", "output": "36", "prompt": "2048"}
    figures = {"ttft": ("1257", "ms"), "tpot": ("10.2", "ms"), "output_tokens_per_s": ("7.55", "tokens/s")}
    rows = [run | {"metric": m, "value": v, "unit": u} for m, (v, u) in figures.items()]
    assert all("doubt" in cells for cells in impossible(rows))
    rows[2]["value"] = "2800"  # 128 x 36 / (1.257 + 35 x 0.0102) = 2855
    assert not any("doubt" in cells for cells in impossible(rows))


def test_golden_values_run_on_the_gpus_that_their_tests_tell() -> None:
    from rooflm_fit.convert.golden import golden

    row = {"model": "mixtral mixtral_8x7b_alltoall_tp2pp4ep4_release", "gpu": "A100-80GB", "tp": "2", "pp": "4"}
    row |= {"ep": "4", "note": "num-experts=8; moe-token-dispatcher-type=alltoall;", "metric": "step_time_s"}
    said = golden(row)
    assert (said["ran"]["gpus"], said["ran"]["ep"], said["doubt"]) == (128, 8, "")
    assert said["sets"]["engine.dedup"] is False and 1.3 < said["sets"]["training.imbalance"] < 1.4
    held = golden(row | {"metric": "memory_gb"})
    assert "last pipeline stage" in held["doubt"] and held["sets"]["engine.context"] == 0
    assert golden(row | {"metric": "memory_gb", "pp": "1"})["doubt"] == ""
    assert golden({"model": "gpt gpt3_15b_8t_release_sm_gb200", "gpu": "GB200"})["ran"]["gpus"] == 128
    assert golden({"model": "gpt gpt3_15b_8t_release_sm", "gpu": "GB200"})["ran"]["gpus"] == 256
    assert "NVFP4" in golden({"model": "nemotron nemotron3_super_release_gb200", "gpu": "GB200"})["doubt"]
    assert golden({"model": "nemotron nemotron3_super_release_gb200_sm", "gpu": "GB200"})["doubt"] == ""


def test_adapters_and_packed_documents_are_as_their_scripts_had_them() -> None:
    bridge = {"id": "MBR-1", "source": "x", "model": "LLAMA3_70B", "gpu": "H100-80GB", "precision": "FP8", "vp": "5"}
    (cells,) = training_rows([TRAIN | bridge | {"note": "26.06 NeMo Container; LoRA Performance"}])
    assert (cells["lora_rank"], cells["lora_modules"]) == ("16", "qkv")
    assert "training.packed_mean=185" in cells["sets"] and "adapters" not in cells.get("doubt", "")
    (full,) = training_rows([TRAIN | bridge | {"note": "26.06 NeMo Container; Pre-Training Performance"}])
    assert "lora_rank" not in full and "packed" not in full.get("sets", "")
    (other,) = training_rows([TRAIN | {"id": "LL2-1", "note": "LoRA"}])
    assert "adapters not stated" in other["doubt"]


def test_scripts_of_adapters_say_nothing_of_full_runs() -> None:
    row = {"id": "AUTO-031", "model": "Llama3 8B", "gpu": "H100-80GB", "precision": "BF16", "recompute": "full"}
    (tuned,) = training_rows([TRAIN | row | {"note": "Fine-Tuning (LoRA) Performance"}])
    (whole,) = training_rows([TRAIN | row | {"note": "Pre-Training Performance"}])
    assert (tuned["recompute"], whole["recompute"]) == ("none", "full")


@pytest.mark.parametrize(("model", "gpus", "ep"), [("GPT OSS 120B", "64", "64"), ("GPT OSS 120B", "8", "8"),
                                                   ("gpt-oss-20b", "64", "8")])  # fmt: skip
def test_ranks_of_experts_are_the_scripts_for_its_model_and_gpus(model: str, gpus: str, ep: str) -> None:
    row = {"id": "MBR-757", "model": model, "gpu": "B200", "gpus": gpus, "tp": "1", "pp": "1", "ep": "8", "dp": gpus}
    assert train_row(**row, precision="BF16", note="25.11 NeMo Container")["ep"] == ep


def test_what_a_sources_page_says_of_all_its_rows_is_in_them() -> None:
    row = dict.fromkeys(INFERENCE_COLUMNS, "") | {
        "id": "rtx3060-0010", "model": "Llama-2-13B", "gpu": "RTX3060-12GB", "gpus": "4", "batch": "12",
        "engine": "unstated (one GPU per Linux box over Ethernet)", "precision_weights": "fp16",
        "metric": "throughput_out_tok_s", "value": "51.82", "note": "trust=B; max_seq_len=512 max_gen_len=256",
    }  # fmt: skip
    (boxes,) = inference_rows([row])
    said = {"engine": "hf-boxes", "cluster": "ethernet-1g", "pp": "4", "tp": "1", "prompt": "32", "output": "256"}
    assert said.items() <= boxes.items()
    pi = "trust=B; eval rate; system as printed: Pi CM5 - 16GB (AMD AI Pro R9700) [GPU]"
    home = row | {"id": "geerling-0001", "gpu": "R9700", "gpus": "1", "engine": "llama.cpp (Vulkan)", "note": pi}
    (patched,) = inference_rows([home])
    assert "Raspberry Pi" in patched["doubt"] and (patched["prompt"], patched["output"]) == ("1", "128")
    (whole,) = inference_rows(
        [home | {"engine": "ollama", "note": pi.replace("Pi CM5 - 16GB", "Intel 265K Custom PC")}]
    )
    assert "doubt" not in whole and whole["output"] == "128"
    assert (whole["engine"], whole["release"]) == ("llama.cpp-vulkan", "b7340")  # llama-bench, by his issues
    other = home | {
        "engine": "llama.cpp (Vulkan)",
        "gpu": "RTX3060-12GB",
        "note": pi.replace("AMD AI Pro R9700", "Nvidia RTX 3060"),
    }
    (fed,) = inference_rows([other])
    assert "processor feeds the card" in fed["doubt"]
    (asked,) = inference_rows(
        [home | {"engine": "ollama", "note": "trust=B; eval rate; system as printed: a Mac [GPU]"}]
    )
    assert asked["output"] == "400"


SERVED = {
    "id": "mine-1", "source": "a page", "model": "Qwen/Qwen3-32B", "gpu": "NVIDIA H200", "gpus": "2", "tp": "2",
    "pp": "1", "engine": "vllm/vllm-openai:v0.11.0", "precision_weights": "FP8 (E4M3)", "batch": "64",
    "input_len": "1024", "output_len": "512", "metric": "ttft_ms", "value": "900", "note": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({}, {"task": "serve", "concurrency": "64", "engine": "vllm", "release": "0.11.0", "quant": "fp8-blockkv8"}),
        ({"engine": "SGLang main", "note": "8 clients"}, {"engine": "sglang", "release": "main"}),
        ({"engine": "dynamo-trt 0.8.1", "note": "bench_serving"}, {"engine": "trtllm", "release": ""}),
        ({"precision_weights": "bfloat16"}, {"quant": "bf16"}),
        ({"precision_weights": "awq"}, {"quant": "awq"}),
        ({"precision_weights": "fp8 block"}, {"quant": "fp8-blockkv8"}),
        ({"gpu": "8xH100 SXM"}, {"gpu": "h100-sxm-80gb"}),
        ({"gpu": "b200-trt"}, {"gpu": "b200-sxm-180gb"}),
        ({"metric": "mean_itl_ms"}, {"metric": "tpot", "unit": "ms"}),
        ({"metric": "tokens/s/user", "value": "50"}, {"metric": "tpot", "unit": "s", "value": "0.02"}),
        ({"metric": "output tok/s/gpu", "value": "500"}, {"metric": "output_tokens_per_s", "value": "1000"}),
        ({"metric": "median_ttft_ms"}, {"metric": "ttft_p50", "unit": "ms"}),
    ],
)
def test_what_others_write_is_read(changes: dict[str, str], want: dict[str, str]) -> None:
    cells = inference_rows([SERVED | changes])[0]
    assert {name: cells.get(name, "") for name in want} == want
    read(cells)


def test_a_campaign_is_known_by_what_its_rows_say() -> None:
    said = {"note": "silicon measurement in NVIDIA aiconfigurator; moe_tp=1 moe_ep=1 attn_dp=1; batch = concurrency"}
    own, other = (inference_rows([SERVED | said | {"id": name}])[0] for name in ("aic-1", "mine-1"))
    assert own | {"id": ""} == other | {"id": ""}
    assert own["spread"] == "0.8,1"


def test_mlperf_rows_have_their_data_sets_and_launch_files() -> None:
    """inference_results_v4.1, closed/NVIDIA/configs; the data sets are known, their lengths not printed in the rows."""
    said = {"id": "mlperf-1", "source": "MLPerf Inference v4.1 closed (HPE)", "model": "llama2-70b-99",
            "params_b": "70", "gpus": "4", "gpu": "H100 [HPE_ProLiant_DL380a_H100_NVL_94GBx4_TRT]",
            "engine": "submission stack", "metric": "throughput_out_tok_s", "value": "8858.78"}  # fmt: skip
    notes = [f"trust=B; {name}, OpenOrca/mixed dataset variable lengths (blank)" for name in ("Offline", "Server")]
    offline, server = (inference_rows([dict.fromkeys(INFERENCE_COLUMNS, "") | said | {"note": n}])[0] for n in notes)
    names = ("gpu", "engine", "release", "gpus", "tp", "quant", "prompt", "output", "output_limit", "max_sequences")
    assert [offline[n] for n in names] == ["h100-nvl-94gb", "trtllm", "0.12", "4", "2", "fp8kv8", "222", "292", "1024",
                                           "1300"]  # fmt: skip
    assert (offline["concurrency"], "doubt" in offline) == ("max", False)
    assert "limits of latency" in server["doubt"]


def test_a_model_whose_script_is_unknown_has_what_the_others_share() -> None:
    said = SERVED | {"id": "aic-1", "engine": "sglang 0.5.9", "gpu": "B200-180GB", "model": "Qwen/Qwen3-235B-A22B"}
    cells = [inference_rows([said | {"batch": n}])[0] for n in ("4", "64")]
    assert [(c["receive_interval"], c["quant"]) for c in cells] == [("10", "fp8-blockkv8"), ("30", "fp8-blockkv8")]


@pytest.mark.parametrize(
    ("said", "engine"),
    [("MosaicML LLM Foundry README", "llm-foundry"), ("pytorch/torchtitan", "torchtitan"), ("a blog", "")],
)
def test_a_training_source_that_names_its_framework_has_it(said: str, engine: str) -> None:
    cells = training_rows([TRAIN | {"id": "ZZ-1", "source": said, "precision": "bf16-mixed"}])[0]
    assert (cells.get("engine", ""), cells["dtype"]) == (engine, "bf16")


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"gpus": "8", "tp": "1", "note": "DP-attention, EP8"}, {"tp": "1", "dp": "8", "ep": "8"}),
        ({"gpus": "8", "tp": "8", "note": "server: sglang serve --tp 8 --dp 8 --enable-dp-attention; docs"},
         {"tp": "1", "dp": "8", "ep": "8"}),
        ({"gpus": "8", "tp": "8", "note": "8 clients"}, {"tp": "8", "dp": "1", "ep": "1"}),
        ({"gpus": "8", "tp": "", "note": "NVIDIA aiconfigurator"}, {"gpus": "8", "tp": ""}),
    ],
)  # fmt: skip
def test_ranks_of_attention_in_words(changes: dict[str, str], want: dict[str, str]) -> None:
    cells = inference_rows([SERVED | {"model": "deepseek-ai/DeepSeek-V3", "engine": "sglang 0.5.9"} | changes])[0]
    assert {name: cells.get(name, "") for name in want} == want
    read(cells)
