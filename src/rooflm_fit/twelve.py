"""Twelve questions of a new user, each answered on the page, in the shell and in Python: docs/twelve-questions.md from
one table of the page's addresses. python -m rooflm_fit.twelve"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np

from rooflm.shown.numbers import count, days, gib, percent, seconds
from rooflm.sweep.files import write_text
from rooflm.web.asked import Asked, read_query
from rooflm.web.blocks import Answer
from rooflm.web.tabs.speed import BOUND, per_million
from rooflm.web.tabs.table import TABS
from rooflm.web.words import dollars

PAGE = Path(__file__).parents[2] / "docs" / "twelve-questions.md"
Objects = Sequence[Mapping[str, Any]]


class Question(NamedTuple):
    """A question. tab, texts: its place on the page and what stands in the fields there; read: its numbers out of what
    the shell prints as JSON (an object a command); python: the same out of the names that the code makes; told: each
    number as a person reads it; answer: the sentence that holds them."""

    text: str
    tab: str
    texts: Mapping[str, str]
    read: Callable[[Objects], Sequence[Any]]
    python: Sequence[str]
    told: Sequence[Callable[[Any], str]]
    answer: str

    @property
    def asked(self) -> Asked:
        """What the page is asked."""
        return read_query(self.tab, TABS[self.tab].keys, self.texts)

    @property
    def address(self) -> str:
        """The page's address below its host."""
        return f"/{self.tab}?{urlencode(self.texts)}"

    def on_the_page(self) -> Answer:
        """The page's answer."""
        return TABS[self.tab].answer(self.asked)

    def commands(self) -> list[str]:
        """The commands, as the page gives them."""
        return self.on_the_page().command.splitlines()

    def lines(self) -> str:
        """The Python, as the page gives it, ending in the numbers."""
        code = self.on_the_page().python
        kept = [line for line in code.splitlines() if not line.startswith(("print(", "import "))]
        short, tall = ", ".join(self.python), ",\n    ".join(self.python)
        last = f"print({short})" if len(short) < 80 else f"print(\n    {tall},\n)"
        return "\n".join(["import rooflm", "", *filter(None, kept), last])

    def in_the_shell(self) -> Sequence[Any]:
        """Its numbers by the commands."""
        return self.read([shell(command) for command in self.commands()])

    def in_python(self) -> Sequence[Any]:
        """Its numbers by the Python."""
        names: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(self.lines(), names)
        return [eval(expression, names) for expression in self.python]

    def words(self, numbers: Sequence[Any]) -> list[str]:
        """The numbers as the page says them."""
        return [write(n) for write, n in zip(self.told, numbers, strict=True)]


@lru_cache
def shell(command: str) -> dict[str, Any]:
    """The object that a command prints with --json."""
    from rooflm.cli.app import main

    words = shlex.split(command.partition(" --out ")[0])
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        status = main([*words[1:], "--json"])
    if status:
        raise ValueError(f"{command} ended with status {status}")
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def longest(objects: Objects) -> Sequence[Any]:
    """The longest prompt that fits, of each scheme of a grid over schemes and prompts."""
    (found,) = objects
    fits, prompts = np.asarray(found["fits"]), np.asarray(found["axes"]["prompt"])
    rows = fits if list(found["axes"])[-1] == "prompt" else fits.T
    return [int(prompts[row].max()) for row in rows]


def of_first(*keys: str) -> Callable[[Objects], Sequence[Any]]:
    """These keys of the first object."""
    return lambda objects: [objects[0][k] for k in keys]


def of_each(key: str) -> Callable[[Objects], Sequence[Any]]:
    """A key of every object."""
    return lambda objects: [o[key] for o in objects]


def of_best(*keys: str) -> Callable[[Objects], Sequence[Any]]:
    """These keys of the best point of a search."""
    return lambda objects: [{**objects[0]["best"]["inputs"], **objects[0]["best"]}[k] for k in keys]


def best(*keys: str) -> list[str]:
    """The same in Python."""
    return [f'answer.best.{"inputs" if k == "gpu" else "outputs"}["{k}"]' for k in keys]


def cents(value: Any) -> str:
    """A price in a table."""
    return f"{value:.2f}"


COST = "cost_usd_per_million_tokens"
LORA = {"train.lora_rank": "16", "train.base_bits": "4", "train.recompute": "full"}
Q = Question
QUESTIONS: tuple[Question, ...] = (
    Q("Will this model fit on my card?", "fits",
      {"model": "llama-3.1-8b", "gpu": "rtx-4090", "prompt": "2048", "batch": "1"},
      of_first("memory_bytes", "memory_capacity_bytes"), ["answer.memory.total", "answer.memory.capacity"], [gib, gib],
      "Yes: it takes {0} of {1}."),
    Q("Which quantisation makes it fit?", "fits", {"model": "llama-3.1-8b", "gpu": "rtx-3060-12gb", "batch": "1"},
      lambda o: [o[0]["would_fit"][0]["quant"], o[0]["would_fit"][0]["margin_bytes"]],
      ['answer.would_fit[0].change["quant"]', "answer.would_fit[0].margin"], [str, gib],
      "The widest is {0}, with {1} to spare."),
    Q("How many GPUs do 50 users need?", "search",
      {"model": "llama-3.1-70b", "gpu": "h100", "quant": "fp8", "find.concurrency": "50", "find.objective": "cost"},
      of_best("gpus", COST), best("gpus", COST), [lambda n: f"{count(n)} cards", dollars],
      "{0}, with the first token within a second and each further one within 50 ms; {1} a million tokens."),
    Q("Can I fine-tune it on 24 GB?", "train",
      {"model": "llama-3.1-8b", "gpu": "rtx-4090", "train.gpus": "1", "train.batch": "16", "train.seq": "2048",
       "train.tokens": "10M", **LORA},
      of_first("memory_bytes", "days"), ["answer.memory.total", "answer.days"], [gib, days],
      "With QLoRA, yes: {0}; ten million tokens take {1}."),
    Q("How many days and dollars does a training run take?", "train",
      {"model": "llama-3.1-8b", "gpu": "h100", "train.gpus": "64", "train.batch": "512", "train.seq": "8192",
       "train.tokens": "1T", "train.recompute": "full"},
      of_first("days", "cost_usd"), ["answer.days", "answer.cost"], [days, dollars], "{0} and {1} on 64 H100."),
    Q("How fast does the first token come?", "speed",
      {"model": "llama-3.1-70b", "gpu": "h100", "gpus": "4", "quant": "fp8", "prompt": "8192", "batch": "1"},
      of_first("ttft_s"), ["answer.ttft"], [seconds], "A prompt of 8192 tokens takes {0}."),
    Q("How long a context fits?", "map",
      {"model": "llama-3.1-8b", "gpu": "rtx-4090", "batch": "1", "map.x": "prompt", "map.xs": "8192..131072*2",
       "map.y": "quant", "map.ys": "bf16,fp8", "map.value": "memory_bytes"},
      longest, [f'int(grid.prompt.where(grid.fits.sel(quant="{q}")).max())' for q in ("bf16", "fp8")], [count, count],
      "Of these lengths {0} tokens with 16-bit weights, and {1} with 8-bit ones."),
    Q("Which card is the cheapest?", "search",
      {"model": "llama-3.1-8b", "gpu": "l4,l40s,a100,h100", "find.objective": "cost"},
      of_best("gpu", COST), best("gpu", COST), [str, dollars],
      "Of L4, L40S, A100 and H100 it is the {0}: {1} a million tokens."),
    Q("What bounds it?", "speed", {"model": "llama-3.1-8b", "gpu": "h100", "batch": "1"},
      lambda o: [o[0]["bound"]["decode"], o[0]["decode_mbu"]], ['answer.bound["decode"]', "answer.decode_mbu"],
      [lambda b: BOUND[b], percent], "Decoding is bound by {0}: it reaches {1} of the card's bandwidth."),
    Q("Two GPUs, or one bigger one?", "compare",
      {"model": "llama-3.1-70b", "quant": "fp8", "gpu": "h100", "gpus": "2", "b.gpu": "h200", "b.gpus": "1"},
      of_each(COST), ["answer_a.cost_per_million_tokens", "answer_b.cost_per_million_tokens"], [cents, cents],
      "Two H100 cost {0} USD a million tokens, one H200 {1} and is slower."),
    Q("Which of two engines is faster?", "compare",
      {"model": "llama-3.1-8b", "gpu": "h100", "batch": "32", "engine": "vllm", "b.engine": "sglang"},
      of_each("output_tokens_per_s"), ["answer_a.output_tokens_per_s", "answer_b.output_tokens_per_s"], [count, count],
      "vLLM makes {0} tokens a second, SGLang {1}."),
    Q("What do a million tokens cost, in dollars and in energy?", "speed",
      {"model": "llama-3.1-8b", "gpu": "h100", "batch": "32"},
      of_first(COST, "energy_j_per_token"), ["answer.cost_per_million_tokens", "answer.energy_per_token"],
      [dollars, per_million], "{0} and {1}."),
)  # fmt: skip
"""The questions."""
HEAD = """# Twelve questions

What a new user asks first, each answered in three ways that give the same number: on the page (`rooflm web`, which
`pip install '.[web]'` brings, then the link), in the shell, and in Python. Every tab of the page has the command and
the lines of Python under its answer, so one is the way to the others. [Forty more](questions.md) have their output
beside them.

<!-- by python -m rooflm_fit.twelve -->
"""


def section(number: int, q: Question) -> str:
    """A question with its answer and the three ways."""
    answer = q.answer.format(*q.words(q.in_the_shell()))
    code = "\n".join(q.commands())
    link = f"[{TABS[q.tab].title}](http://127.0.0.1:8018{q.address})"
    return (f"## {number}. {q.text}\n\n{answer} On the page: {link}.\n\n```bash\n{code}\n```\n\n"
            f"```python\n{q.lines()}\n```\n")  # fmt: skip


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(n, q) for n, q in enumerate(QUESTIONS, start=1))])


if __name__ == "__main__":
    write_text(PAGE, page())
