"""What a source's page, script or tool says of all its rows, where a row's own cells leave it blank."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rooflm_fit.convert.cells import Row, text

BENCH = {"prompt": 1, "output": 128}
"""llama-bench's tg128, and ExLlamaV2's own test (test_inference.py --speed: 128 tokens after one)."""
TOLD: Mapping[str, Mapping[str, Any]] = {
    "cluster-perf": {"engine": "hf-boxes", "cluster": "ethernet-1g", "prompt": 32, "output": 128}
}
"""Source -> cells. llm-cluster-perf states neither engine, split, network nor prompts: read as docs/works/cluster.md
does. geerlingguy/ai-benchmarks, README: `llama-bench -n 128`, or obench.sh for Ollama (`ASKED`)."""
BENCHED: Mapping[str, Mapping[str, Any]] = dict.fromkeys(("exllamav2", "llama.cpp", "llama.cpp-vulkan"), BENCH)
"""Engine -> cells of rates of decoding, as its own benchmark has them, where a table prints no lengths."""
ASKED = {"prompt": 32, "output": 400}
"""obench.sh asks "Why is the blue sky blue?" behind the model's template; the answer's length is not printed."""

HELD = 2048
"""kyuz0/amd-strix-halo-toolboxes, benchmark/run_benchmarks.sh: prompts over a held context take -ub 2048 on ROCm (-ub
512 on Vulkan, both llama.cpp's 512 without one)."""

OF_2023 = {"llama.cpp": "llama.cpp-2023", "vllm": "vllm-2023"}
"""What mlc-ai/llm-perf-bench ran ("Setup Details"): llama.cpp 9476b01 and vLLM acbed3e, both of October 2023."""


def of_2023(values: Mapping[str, Any]) -> dict[str, Any]:
    """What differs in a row of llm-perf-bench: engines of 2023, Q4_0 files, products cut by rows over several cards.

    >>> of_2023({"engine": "llama.cpp", "gpus": 4, "quant": "w4a16kv16"})["tp"], of_2023({"engine": "mlc"})
    (4, {})
    """
    engine = str(values.get("engine"))
    if engine not in OF_2023:
        return {}
    changed: dict[str, Any] = {"engine": OF_2023[engine]}
    if engine == "llama.cpp":
        changed |= {"tp": values.get("gpus"), "pp": 1}
        changed |= {"quant": "q4_0"} if str(values.get("quant")).startswith("w4") else {}
    return changed


def told(row: Row, source: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Cells that the source states of all its rows, less those that the row holds; one stage a box.

    >>> told({"note": "Test 2.1; max_seq_len=512 max_gen_len=256"}, "cluster-perf", {"gpus": 4, "cluster": "x"})["pp"]
    4
    >>> told({}, "geerling", {"engine": "ollama"})["output"]
    400
    >>> told({}, "strix", {"engine": "llama.cpp", "cached": 32768})
    {'sets': {'engine.token_budget': 2048}}
    """
    prefills = values.get("metric", "ttft") in ("prefill_tokens_per_s", "ttft")
    cells = dict(TOLD.get(source, {} if prefills else BENCHED.get(str(values.get("engine")), {})))
    if source == "geerling" and values.get("engine") == "ollama":
        cells |= ASKED
    if source == "cluster-perf":
        longest = re.search(r"\bmax_gen_len=(\d{1,5})\b", text(row, "note"))
        cells |= {"output": int(longest[1])} if longest else {}
        cells |= {"tp": 1, "pp": int(values.get("gpus") or 1), "dp": 1, "ep": 1}
    if source == "strix" and values.get("cached") and values.get("engine") == "llama.cpp":
        cells["sets"] = {"engine.token_budget": HELD}
    found = {k: v for k, v in cells.items() if values.get(k) in (None, "")}
    return found | (of_2023(values) if source == "mlc" else {})
