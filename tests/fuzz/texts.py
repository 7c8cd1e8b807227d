"""What a person, or chance, may write for an option: legal, borderline and broken texts, made from the tables
of arguments (`asked.arguments`, `cli.options`) and of fields (`catalogue.fields`): a new option is drawn too."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import cache

from hypothesis import strategies as st

from leaves import leaves
from rooflm.asked import paths
from rooflm.asked.arguments import Argument
from rooflm.asked.bounds import about_at, rule_of
from rooflm.asked.build_inference import build_inference
from rooflm.asked.build_training import build_training
from rooflm.cli.options import rows_of
from rooflm.readers.rows import names

BROKEN = (
    "", " ", ",", ",,", "nan", "NaN,1", "inf", "-inf", "-1", "-0.0", "0", "0.5", "1e400", "1e30", "9007199254740993",
    "99999999999999999999", "1e-300", "5e-324", "²", "\uff11", "\u0663", "..", "1..", "..8", "8..1", "1..1e9", "1..4*1",
    "1..8*0", "1..2+1e-12", "1,", "1,1", "1,2,x", "true", "null", "None",
    "a" * 300, "\x00", "é", "<b>x</b>", "../x", "{}",
    "[[", "1_000", "0x10", "=", "%s", "1;2", "~root/x.toml", "/dev/null", ".", "/", "x.toml", "x.json", "x.gguf",
    "1 GiB", "2 TB/s", "..B", "1kk", "fp8kv²", "w0a0", "w-1a16", "w1e9a16", "-w", "🦙", "1e5", "65537", "\n", "'", '"',
)  # fmt: skip
"""Texts that break most options, and are right for a few."""
SIZES = ("1", "2", "3", "4", "7", "8", "16", "64", "100", "512", "1000", "2048", "4096", "32768", "131072")
RARELY = (*[False] * 11, True)
"""How often something is broken."""
LISTS = ("1,2", "1,8,64", "1..4", "1..512*2", "16..64+16", "2,1", "3,2,1", "8,8.0", "1..3,5")
QUANTS = (
    "w16a16kv16", "fp8", "int4", "nvfp4", "w4a16kv8", "fp8kv8", "int8-wo", "q4_k_m", "awq", "mxfp4", "fp32", "int8",
)  # fmt: skip
MODELS = (
    "llama-7b", "llama-2-70b", "llama-3.1-8b", "mixtral-8x7b", "deepseek-v3.2", "qwen3-next-80b-a3b", "gemma-3-27b",
    "gpt-oss-120b", "opt-350m", "jamba-1.5-mini", "falcon-40b", "smollm2-135m", "gpt3-175b", "bloom-176b", "kimi-k2.5",
)  # fmt: skip


def rows(kind: str) -> st.SearchStrategy[str]:
    """Names of a kind of row, and lists of two."""
    one = st.sampled_from(names(kind))
    return st.one_of(one, st.lists(one, min_size=2, max_size=2, unique=True).map(",".join))


def words(a: Argument) -> st.SearchStrategy[str]:
    """The words of an option: those it lists, else those of its help."""
    return st.sampled_from(a.words or tuple(re.findall(r"[\w:=-]+", a.help)) or ("x",))


def sizes(a: Argument) -> st.SearchStrategy[str]:
    """Numbers of an option."""
    usual = [str(a.default)] if a.default not in (None, "") else []
    return st.sampled_from([*SIZES, *usual])


KINDS: Mapping[str, Callable[[Argument], st.SearchStrategy[str]]] = {
    "numbers": lambda a: sizes(a) | sizes(a) | st.sampled_from(LISTS),
    "amounts": lambda _: st.sampled_from(("1e9", "300B", "1.4T", "2M,4M")),
    "amount": lambda _: st.sampled_from(("1e9", "300B", "1.4T", "2M")),
    "names": words, "joined": words, "text": words,
    "factors": lambda _: st.sampled_from(("calibrated", "ideal", "0.7,0.9", "1,1", "0.5,0.8;0.7,0.9", "0.5")),
    "stage": lambda _: st.sampled_from(("0", "1", "2", "3", "fsdp", "1,3")),
    "count": sizes, "number": sizes,
    "seconds": lambda _: st.sampled_from(("500ms", "2", "0.05", "1 s", "10us")),
    "joules": lambda _: st.sampled_from(("20GWh", "70TJ", "1")),
    "share": lambda _: st.sampled_from(("0.1", "10%", "0", "0.99")),
    "budgets": lambda _: st.sampled_from(("512", "off", "512..2048*2,off")),
    "spread": lambda _: st.sampled_from(("0.8,1.2", "1,1", "0.5", "0,2")),
    "sets": lambda _: st.nothing(), "zips": lambda _: st.sampled_from(("batch,prompt", "gpu,tp", "tp,pp")),
    "listed": lambda _: st.sampled_from(("tpot_s", "fits,reason", "memory", "bound", "parts_s", "x")),
    "pairs": lambda _: st.sampled_from(
        ("budget=4096", "prefix_caching=true", "max_sequences=8", "block=16", "stream_interval=10", "budget=abc", "x=1")
    ),
}  # fmt: skip
"""Kind of argument -> legal texts of it. Kinds of rows (devices, engine, ...) draw the catalogue's names."""
ROWS = {"device": "gpu", "cluster": "cluster", "engine": "engine", "scheme": ""}


def legal(a: Argument) -> st.SearchStrategy[str]:
    """Texts that an option may well have."""
    row = ROWS.get(a.kind.removesuffix("s"))
    if row is None:
        return KINDS.get(a.kind, words)(a)  # a new kind has the words of its help
    return rows(row) if row else st.sampled_from(QUANTS)


@cache
def settable(training: bool) -> dict[str, tuple[str, ...]]:
    """Path -> legal texts of it, for every path of a scenario of inference or of training."""
    if training:
        s = build_training(model="mixtral-8x7b", gpu="h100", gpus=16, batch=64).scenario
    else:
        s = build_inference(model="mixtral-8x7b", gpu="h100", gpus=2).scenario
    found: dict[str, tuple[str, ...]] = {}
    for path, value in leaves(s):
        if isinstance(value, bool):
            found[path] = ("true", "false")
        elif isinstance(value, str):
            about = about_at(path)
            found[path] = (*(about.among if about else ()), value or "x")
        else:
            rule = rule_of(*paths.found(s, path))
            near = [value, 2 * value, value / 2, rule.low, rule.high, rule.low - 1, 1, 2]
            texts = [f"{v:.17g}" for v in near if math.isfinite(v)]
            found[path] = (*texts, ",".join(dict.fromkeys(texts[:2])), "inf")
    return found


@st.composite
def option(draw: st.DrawFn, a: Argument, training: bool) -> list[str]:
    """The words of a command line that give one option."""
    name = a.option or f"--{a.name.replace('_', '-')}"
    bad = draw(st.sampled_from(RARELY))
    if a.kind == "sets":
        known = settable(training)
        path = draw(st.sampled_from(sorted(known)))
        return [name, f"{path}={draw(st.sampled_from(BROKEN) if bad else st.sampled_from(known[path]))}"]
    if a.kind == "flag":
        return [name]
    if a.kind == "switch":
        return [name if draw(st.booleans()) else f"--no-{name[2:]}"]
    return [name, draw(st.sampled_from(BROKEN) if bad else legal(a))]


KEPT_OUT = ("out", "plot", "on", "json", "trace")
"""Options that write or read files, or ask a cluster: they have tests of their own."""
BASES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "infer": (("infer",), ("--gpu", "h100")),
    "train": (("train",), ("--gpu", "h100", "--gpus", "16", "--batch", "64")),
    "serve": (("serve",), ("--gpu", "h100", "--concurrency", "4", "--requests", "40")),
    "search infer": (("search_infer", "search_serve"), ("--gpu", "h100", "--gpus", "2")),
    "search train": (("search_train",), ("--gpu", "h100", "--gpus", "8", "--batch", "64")),
}
"""Command -> its calls, and options with which it answers; those drawn come after them and win."""


@st.composite
def lines(draw: st.DrawFn, command: str) -> tuple[str, ...]:
    """A command line with up to four options beyond those that it needs."""
    calls, base = BASES[command]
    rows = [a for a in rows_of(command, calls).values() if a.name not in KEPT_OUT and a.kind != "file"]
    chosen = draw(st.lists(st.sampled_from(rows), max_size=3, unique_by=lambda a: a.name))
    training = command in ("train", "search train")
    given = [piece for a in chosen for piece in draw(option(a, training))]
    model = draw(st.sampled_from(BROKEN if draw(st.sampled_from(RARELY)) else MODELS))
    shown = ["--json"] if draw(st.booleans()) else []
    return (*command.split(), model, *base, *given, *shown)
