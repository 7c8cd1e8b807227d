"""Valid files of every kind that is read from outside."""

from __future__ import annotations

import csv
import struct
from typing import Any

from rooflm.measure import results
from rooflm.measure.case import Case
from rooflm.measure.results import Row, constant_stat
from rooflm.readers.rows import raw_row
from rooflm.validation.table import published_tables


def _row(kind: str, name: str, **more: Any) -> dict[str, Any]:
    row = {k: v for k, v in raw_row(kind, name)[0].items() if k not in ("aliases", "from")}
    return {**row, **more} if kind in ("gpu", "cluster") else {**row, "source": "a test", **more}


ROWS: dict[str, tuple[Any, ...]] = {
    "gpu": (
        {"base": "rtx-4090", "dram": {"size": "48 GiB"}},
        {"peak": "312 TFLOP/s", "memory": "80 GiB", "bandwidth": "2.039 TB/s"},
        _row("gpu", "a100"), _row("gpu", "h100"), _row("gpu", "mi300x"),
    ),
    "model": (_row("model", "llama-2-7b"), _row("model", "mixtral-8x7b"), _row("model", "deepseek-v3"),
              _row("model", "jamba-1.5-mini"), _row("model", "gemma-3-27b")),
    "engine": (
        {"source": "a test", "base": "vllm", "step": "0.5 ms", "memory_fraction": 0.95,
         "server": {"max_sequences": 256}},
        _row("engine", "vllm"), _row("engine", "llama.cpp"),
    ),
    "cluster": (_row("cluster", "dgx-h100"), _row("cluster", "dgx-a100")),
}  # fmt: skip

LLAMA = {"model_type": "llama", "hidden_act": "silu", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
         "max_position_embeddings": 8192, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
         "rms_norm_eps": 1e-5}  # fmt: skip
CONFIGS: tuple[Any, ...] = (
    LLAMA,
    LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
    LLAMA | {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}},
    LLAMA | {"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized",
     "config_groups": {"group_0": {
         "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
         "input_activations": {"num_bits": 8, "type": "float", "dynamic": True}}}, "ignore": ["lm_head"]}},
    {"model_type": "gemma3", "text_config": LLAMA | {"model_type": "gemma3_text", "head_dim": 256,
     "sliding_window": 1024, "sliding_window_pattern": 6},
     "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27,
     "intermediate_size": 4304, "num_attention_heads": 16, "patch_size": 14, "image_size": 896}},
    LLAMA | {"model_type": "deepseek_v3", "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
             "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
             "moe_intermediate_size": 2048, "n_shared_experts": 1, "first_k_dense_replace": 3, "moe_layer_freq": 1},
)  # fmt: skip


def _gguf() -> bytes:
    """A small llama as a GGUF header."""

    def text(word: str) -> bytes:
        return struct.pack("<Q", len(word)) + word.encode()

    def count(key: str, value: int) -> bytes:
        return text(key) + struct.pack("<II", 4, value)

    tensors = {"token_embd.weight": (512, 1000), **{f"blk.{i}.attn_q.weight": (512, 512) for i in range(2)}}
    pairs = {"llama.block_count": 2, "llama.embedding_length": 512, "llama.attention.head_count": 8,
             "llama.attention.head_count_kv": 8, "llama.feed_forward_length": 1024,
             "llama.context_length": 2048}  # fmt: skip
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs) + 2)
    head += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    head += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    head += b"".join(count(k, v) for k, v in pairs.items())
    for name, shape in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 1, 0)
    return head


GGUF: tuple[bytes, ...] = (_gguf(), *(_gguf()[:i] + b"\xff\xff\xff\x7f" + _gguf()[i + 4 :] for i in range(0, 900, 37)))

TRACES: tuple[Any, ...] = (
    [{"TIMESTAMP": f"2023-11-16 18:17:0{i}.98", "ContextTokens": 100 + i, "GeneratedTokens": 10} for i in range(5)],
    [{"timestamp": 1000 * i, "input_length": 700, "output_length": 20, "hash_ids": [0, i]} for i in range(5)],
    [{"arrived_at": float(i), "num_prefill_tokens": 50, "num_decode_tokens": 9, "priority": i} for i in range(5)],
    {"input_lens": [5, 6, 7], "output_lens": [7, 8, 9], "start_times": [2.0, 3.0, 4.0]},
    {"benchmarks": [{"requests": {"successful": [{"prompt_tokens": 9, "output_tokens": 8, "start_time": 1.0}]}}]},
)  # fmt: skip


MANY = 2000
"""Requests of a run: one of the 44,000 of a published one takes longer than all others, and is read like them."""


def published() -> tuple[Any, ...]:
    """A few rows of each published table (README's errors are of all), of runs soon simulated and not in doubt."""
    found = []
    for path in published_tables():
        with path.open(encoding="utf-8", newline="") as file:
            sure = [row for row in csv.DictReader(file) if not row.get("doubt")]
        rows = [row for row in sure if float(row.get("requests") or 0) <= MANY]
        for i in range(0, len(rows), max(len(rows) // 9, 1)):
            found.append([{k: v for k, v in r.items() if v} for r in rows[i : i + 2]])
    return tuple(found)


_SHAPE = "hidden=4096 vocab=32000 layers=32 heads=32 kv_heads=32 head_dim=128 width=11008"
_CASES = (Case(model="llama-7b", dtype="bf16"), Case(model="llama-7b", dtype="bf16", batch=4, tp=2, prompt=64))
RESULTS: tuple[Any, ...] = (
    [
        results.flat(Row(case, metric, "s", constant_stat(0.05), _SHAPE))
        for case in _CASES
        for metric in ("ttft_s", "tpot_s", "latency_s")
    ],
    [results.flat(Row(case, "memory_bytes", "B", constant_stat(2e10), _SHAPE)) for case in _CASES],
)

_STATS = {"mean": 100.0, "median": 100.0, "p50": 100.0, "p90": 120.0, "p99": 130.0}
BENCHMARKS: tuple[Any, ...] = (
    {"model_id": "llama-7b", "completed": 10, "num_prompts": 10, "max_concurrency": 4, "total_input_tokens": 5120,
     "total_output_tokens": 1280, "median_ttft_ms": 50.0, "median_tpot_ms": 10.0, "median_e2el_ms": 1300.0,
     "output_throughput": 400.0, "p99_ttft_ms": 60.0},
    [{"model_filename": "x.gguf", "n_prompt": 512, "n_gen": 0, "avg_ts": 5000.0},
     {"model_filename": "x.gguf", "n_prompt": 0, "n_gen": 128, "avg_ts": 50.0, "n_depth": 0}],
    {"benchmarks": [{"args": {"model": "llama-7b"}, "metrics": {
        "prompt_token_count": {"successful": {"median": 512}}, "output_token_count": {"successful": {"median": 128}},
        "time_to_first_token_ms": {"successful": _STATS}, "inter_token_latency_ms": {"successful": _STATS},
        "request_latency": {"successful": _STATS}, "request_concurrency": {"successful": {"median": 4.0}}}}]},
    {"config": {"backend": {"model": "llama-7b", "torch_dtype": "float16"}, "scenario": {
        "input_shapes": {"batch_size": 2, "sequence_length": 64}, "generate_kwargs": {"max_new_tokens": 8}}},
     "report": {"prefill": {"latency": _STATS, "memory": {"max_allocated": 15000.0}},
                "per_token": {"latency": _STATS}, "decode": {"latency": _STATS}}},
    {"records": {"time_to_first_token": {"p50": 50.0, "unit": "ms"}, "inter_token_latency": {"p50": 9.0, "unit": "ms"},
                 "input_sequence_length": {"avg": 512}, "output_sequence_length": {"avg": 128},
                 "request_latency": {"p50": 900.0, "unit": "ms"}},
     "input_config": {"loadgen": {"concurrency": 4}, "endpoint": {"model_names": ["llama-7b"]}}},
    {"time_to_first_token": {"avg": 50.0}, "inter_token_latency": {"avg": 9.0}, "input_sequence_length": {"avg": 512},
     "output_sequence_length": {"avg": 128}},
)  # fmt: skip
