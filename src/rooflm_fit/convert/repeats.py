"""Benchmarks that send the same prompts in several runs, with the prefix cache left on: what later runs find there.

The mean of what is cached becomes `cached`, of each prompt's own. What a run finds of its own pool of prompts becomes
`shared_prefix`, as if all prompts of a run had it in common: the memory of different prompts is left out.
"""

from __future__ import annotations

import re
from typing import Any

from rooflm_fit.convert.cells import shipped

EARLIER = {80: 10, 320: 80, 500: 80, 1000: 10}
"""Requests of a run of SGLang's cookbook -> those of the run before it, with the same prompts (1, 16, then 64 or 100
clients; of two runs 10 and 1,000)."""
SHORT = 1000
"""Longest prompt of a page's first runs, of as many requests as any later one."""


STUDY = re.compile(r"(\d)p\dd_conc(\d+)_in2048_out(\d+)(?:_\d{4}(\d{4}_\d{6}))?")
"""Name of a run of a study of pools with prompts that fit the cache: prefill servers, clients, longest output, when."""
TURNS = (128, 64, 32)
"""Clients of its runs in their order: run_benchmark.sh sends the same 500 prompts (a fixed seed) in each."""
SENT = 501
"""Requests of each, with the one that `vllm bench serve` sends first to see whether the server answers. Its router goes
round: with two prefill servers the prompts of a second run meet the other one, which has not seen them (TTFT of 64
clients, outputs of up to 128: 0.88 s with two servers, 0.41 and 0.53 with one and three)."""
ALONE = "prefix caching seems on in the runs with one client"
"""vllm bench serve draws its prompts with one seed (--seed 0, --dataset-name random), so that the ten of a run with one
client are the first of the hundred that eight clients sent: all of them stand in the cache, the first as well."""


def sent_before(note: str, clients: Any) -> bool:
    """True where a run's prompts had all been sent to the same servers before: in a study of pools, and where a note
    says that its runs with one client find them.

    >>> sent_before(f"vllm bench serve; {ALONE}", 1), sent_before(f"vllm bench serve; {ALONE}", 8)
    (True, False)
    >>> [sent_before(f"pd_ratio; {p}p1d_conc64_in2048_out128_20250922_063641.json", 64) for p in (1, 2, 3)]
    [True, False, True]
    """
    if ALONE in note:
        return clients == 1
    name = STUDY.search(note)
    if not name or "pd_ratio" not in note or clients not in TURNS:
        return False
    run, servers = TURNS.index(clients), int(name[1])
    met = any((run - earlier) * SENT % servers == 0 for earlier in range(run))
    return met or name[4] in shipped("study_runs")["warm"]


POOL, EACH = 100, 10
"""Prompts that aiperf makes unless told otherwise (--num-dataset-entries in its documentation), requests a client of
AIConfigurator's runs: the pool is sent again and again. INFERRED from what came out: its runs of TensorRT-LLM 1.2 and
vLLM 0.12 on Hopper decode as fast as if all prompts but a pool were in the cache; those of 1.0.0rc3, by genai-perf with
12 prompts a client (eval/benchmarks/genai_perf_runner.py at 5e16187), as if none were."""
OWN_POOL = ("1.0.0rc3",)
"""Releases whose runs had as many prompts as requests."""


def from_pool(prompt: float | None, clients: Any, release: str) -> int:
    """Tokens of a prompt that a run's own pool of prompts left in the prefix cache (mean).

    >>> from_pool(4000, 40, "0.12.0"), from_pool(4000, 8, "0.12.0"), from_pool(4000, 40, "1.0.0rc3")
    (3000, 0, 0)
    """
    if not prompt or not isinstance(clients, int) or release in OWN_POOL:
        return 0
    return round(prompt * max(0.0, 1.0 - POOL / (EACH * clients)))


def earlier_prompts(note: str, prompt: float | None, requests: int | None) -> int:
    """Tokens of a prompt that earlier runs left in the prefix cache (mean), where a page's runs draw the same prompts.

    SGLang's bench_serving draws lengths and texts with one seed: the first n requests of a run are those of an earlier
    run with n, and texts are cut to their length, so that a prompt of up to 8,000 tokens starts as that of up to 1,000
    did. Pages run 1000/1000 first, then 1000/8000 (the same prompts again), then 8000/1000, each with more and more
    clients. Source: sgl-project/sglang, bench_serving.py, sample_random_requests; sgl-cookbook's pages.

    >>> note = "up to 8000/1000 (random-range-ratio 0, the default); a page's runs draw the same prompts (one seed)"
    >>> earlier_prompts(note, 3981, 320), earlier_prompts(note.replace("8000/1000", "1000/8000"), 497, 320)
    (1370, 497)
    """
    nominal = re.search(r"up to (\d+)/(\d+)", note)
    if not (nominal and prompt and requests) or "draw the same prompts" not in note:
        return 0
    longest, output = int(nominal[1]), int(nominal[2])
    again = 1.0 if longest == SHORT < output else EARLIER.get(requests, 0) / requests
    return round(again * prompt + (1 - again) * (SHORT / 2 if longest > 2 * SHORT else 0))
