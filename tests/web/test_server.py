"""The page without a browser: answers, errors, what it must never do."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import shlex
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from base64 import urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rooflm
from rooflm.cli.app import main
from rooflm.shown.blocks import Code, Facts, Table
from rooflm.shown.numbers import count, seconds
from rooflm.shown.progress import tell_done
from rooflm.web import page
from rooflm.web.asked import read_query
from rooflm.web.blocks import Choices
from rooflm.web.dropped import dropped_model, keep
from rooflm.web.fields import BY_KEY, FIELDS, choices
from rooflm.web.server import run
from rooflm.web.tabs.table import TABS
from rooflm.web.work import lines

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8,
          "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 4096, "vocab_size": 32000,
          "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}  # fmt: skip
QUICK = [name for name in TABS if name != "serve"]


def get(address: str, **headers: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and text of an address."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=600) as reply:
            return reply.status, {k.lower(): v for k, v in reply.headers.items()}, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read().decode()


def asked(tab: str, **texts: str) -> Any:
    """What an address asks of a tab."""
    return read_query(tab, TABS[tab].keys, {k.replace("__", "."): v for k, v in texts.items()})


def answered(tab: str, **texts: str) -> Any:
    """The answer of a tab."""
    return TABS[tab].answer(asked(tab, **texts))


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_is_one_page_that_needs_no_other_host(tab: str, address: str) -> None:
    status, headers, text = get(f"{address}/{tab}?output=64&batch=4&now=1")
    assert status == 200 and 'class="lead"' in text and "cannot be answered" not in text
    lists = set(re.findall(r' list="([^"]+)"', text))
    assert lists and lists == set(re.findall(r'<datalist id="([^"]+)"', text))
    assert "default-src 'none'" in headers["content-security-policy"]
    assert not [s for s in ('src="http', 'href="http', "url(http", "//cdn", "@import") if s in text]


ERRORS = [
    ("fits", {"model": "lama-3.1-8b"}, "model", "unknown model 'lama-3.1-8b': did you mean"),
    ("fits", {"model": ""}, "model", "model is missing: name one"),
    ("fits", {"gpu": "h1000"}, "gpu", "unknown GPU 'h1000'"),
    ("fits", {"gpu": ""}, "gpu", "gpu is missing"),
    ("fits", {"gpu": "h100,a100"}, "gpu", "gpu is a list"),
    ("fits", {"batch": "0"}, "batch", "batch is 0, but it must be"),
    ("fits", {"batch": "many"}, "batch", "batch is 'many', but it must be a number"),
    ("fits", {"batch": "1e9"}, "batch", "the page works out at most"),
    ("fits", {"tp": "3", "gpus": "4"}, "gpus", "gpus is 4, but tp 3 must divide it"),
    ("speed", {"quant": "fp7"}, "quant", "unknown quantisation 'fp7'"),
    ("speed", {"engine": "vlm"}, "engine", "unknown engine 'vlm'"),
    ("speed", {"efficiency": "perfect"}, "efficiency", "must be one of"),
    ("serve", {"ttft": "soon"}, "ttft", "ttft is 'soon'"),
    ("serve", {"concurrency": "5000"}, "concurrency", "at most 4,096"),
    ("serve", {"concurrency": "0"}, "concurrency", "whole number of at least 1"),
    ("serve", {"concurrency": "1.5"}, "concurrency", "whole number of at least 1"),
    ("compare", {"b.gpus": "0"}, "b.gpus", "gpus is 0"),
    ("search", {"find.gpus_max": "1000"}, "find.gpus_max", "at most 64"),
    ("search", {"find.concurrency": "1.5"}, "find.concurrency", "must be"),
    ("train", {"train.tokens": "lots"}, "train.tokens", "tokens is 'lots'"),
    ("train", {"train.recompute": "twice"}, "train.recompute", "must be one of"),
    ("compare", {"b.gpu": "h1000"}, "b.gpu", "unknown GPU"),
    ("map", {"map.y": "batch"}, "map.y", "choose another"),
    ("map", {"map.xs": "8"}, "map.xs", "at least two values"),
    ("map", {"map.xs": "1..100000"}, "map.xs", "100"),
    ("map", {"map.xs": "1..1000"}, "map.xs", "at most 100"),
]  # fmt: skip


@pytest.mark.parametrize(("tab", "texts", "field", "sentence"), ERRORS, ids=lambda v: str(v)[:30])
def test_an_error_is_its_one_sentence_beside_its_field(tab: str, texts: dict[str, str], field: str,
                                                       sentence: str) -> None:  # fmt: skip
    found = page.Shown(TABS[tab], read_query(tab, TABS[tab].keys, texts))
    assert list(found.errors) == [field], found.errors
    assert sentence in found.errors[field] and "\n" not in found.errors[field]
    assert "Traceback" not in found.html()


def test_no_text_of_the_page_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mine" / "model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "card.toml").write_text('base = "h100"\n', encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    opened: list[str] = []
    real = Path.open

    def watched(self: Path, *given: Any, **more: Any) -> Any:
        opened.append(str(self))
        return real(self, *given, **more)

    monkeypatch.setattr(Path, "open", watched)
    paths = [str(folder), "mine/model", "config.json", "./config.json", "card.toml", "../card.toml", "/etc/passwd",
             "~/x.json", "file:///etc/passwd", "__import__('os')", "http://127.0.0.1/x.json", "a/b"]  # fmt: skip
    for key in ("model", "gpu", "engine", "quant", "cluster", "b.model"):
        for text in paths:
            tab = "compare" if "." in key else "fits"
            found = page.Shown(TABS[tab], read_query(tab, TABS[tab].keys, {key: text}))
            assert key in found.errors, (key, text)
    assert not [name for name in opened if str(tmp_path) in str(Path(name).resolve())]


def test_arguments_that_are_no_field_do_nothing(address: str) -> None:
    plain, more = (get(f"{address}/fits{q}")[2] for q in ("", "?on=ray://evil:1&sets=model.hidden=1&trace=/etc/passwd"))
    told = re.findall(r' *<p class="quiet" role="status">The address has (?:on|sets|trace), .*</p>\n', more)
    assert len(told) == 3 and plain.split() == re.sub("|".join(map(re.escape, told)), "", more).split()


def test_a_foreign_host_and_a_long_address_are_refused(address: str) -> None:
    assert get(f"{address}/fits", Host="evil.example")[0] == 400
    assert get(f"{address}/fits?model={'x' * 17000}")[0] == 414
    assert get(f"{address}/nowhere")[0] == 404
    assert get(f"{address}/fits/frames/gpu")[0] == 404
    assert inspect.signature(run).parameters["host"].default == "127.0.0.1"


def test_the_figures_are_those_of_python_and_code_gives_them_again(capsys: pytest.CaptureFixture[str]) -> None:
    texts = {"model": "llama-3.1-70b", "gpu": "h100", "gpus": "4", "quant": "fp8", "batch": "32"}
    found = answered("speed", **texts)
    own = rooflm.infer("llama-3.1-70b", gpu="h100", gpus=4, quant="fp8", batch=32, prompt=1024, output=256)
    assert found.data()["tpot_s"] == pytest.approx(own.tpot, rel=1e-12)
    names: dict[str, Any] = {}
    exec(found.python, names)
    assert names["answer"].tpot == own.tpot
    capsys.readouterr()
    assert main([*shlex.split(found.command)[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tpot_s"] == pytest.approx(own.tpot, rel=1e-12)


@pytest.mark.parametrize(("changed", "name"), [
    ({"model": "llama-7b"}, "llama-7b"), ({"gpu": "h200"}, "h200"), ({"gpus": "2"}, "2 cards"),
    ({"quant": "fp8"}, "fp8"), ({"engine": "sglang"}, "sglang"), ({"batch": "3"}, "3 at once"),
    ({"model": "qwen3-30b-a3b", "gpu": "mi355x", "engine": "sglang"}, "qwen3-30b-a3b, mi355x, sglang"),
])  # fmt: skip
def test_a_side_of_a_comparison_is_named_by_what_differs(changed: dict[str, str], name: str) -> None:
    found = answered("compare", **{f"b__{k}": v for k, v in changed.items()})
    assert found.blocks[0].rows[0][2] == f"B: {name}"
    assert "qwen3-30b-a3b" not in found.verdict  # long names stand over their columns alone


def test_splits_are_searched_where_that_of_the_fields_breaks_a_rule() -> None:
    found = answered("train", train__gpus="6", train__objective="time")
    assert found.more and "multiple of dp" in found.verdict
    whole = found.more()
    assert whole.verdict.startswith("Best split: ") and "multiple of dp" in whole.said[0]


def test_names_stand_left_and_numbers_right() -> None:
    html = page.Shown(TABS["search"], read_query("search", TABS["search"].keys, {"find.gpus_max": "1"})).html()
    assert '<th scope="col" data-left>Split</th><th scope="col">At once</th>' in html
    assert "<td data-left>none</td>" in html and '">--max-num-seqs</span>' in html


@pytest.mark.parametrize(("x", "y"), [("batch", "prompt"), ("prompt", "batch"), ("gpu", "batch"), ("batch", "gpu")])
def test_a_map_of_unequal_sides_holds_each_points_own_value(x: str, y: str) -> None:
    sides = {"batch": "1,64", "prompt": "256,1024,4096", "gpu": "h100,mi300x,l4"}
    found = answered("map", map__x=x, map__xs=sides[x], map__y=y, map__ys=sides[y])
    (head, *rows), *_ = (t.rows for t in found.blocks[0].blocks)
    assert len(head) == 1 + len(sides[x].split(",")) and len(rows) == len(sides[y].split(","))
    asked_for = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 1, "prompt": 1024, "output": 256, "batch": 8}
    for up, row in zip(sides[y].split(","), rows, strict=True):
        for right, cell in zip(sides[x].split(","), row[1:], strict=True):
            here = {x: right, y: up}
            own = rooflm.infer(**asked_for | {k: v if k == "gpu" else int(v) for k, v in here.items()})
            assert cell == (seconds(own.tpot) if own.fits else "cannot run"), here
    assert len(found.figures()) == 1
    assert any(re.search(r"between .* in four of five like cases", s) for s in found.said)
    told = [block.text for block in found.blocks[1].blocks]
    assert "engine vllm" in told and (("mi300x" in " ".join(told)) == ("gpu" in (x, y)))


def test_what_the_compared_assume_is_told_of_each() -> None:
    found = answered("compare", b__gpu="mi300x")
    told = [block.text for block in found.blocks[1].blocks]
    assert any("cluster dgx-h100" in text and "B: mi300x" in text for text in told), told
    assert found.python.count("import") == 1


@pytest.mark.parametrize("tab", QUICK)
def test_downloads(tab: str, address: str) -> None:
    values = json.loads(get(f"{address}/{tab}/download.json?batch=4")[2])
    assert values
    status, headers, text = get(f"{address}/{tab}/download.csv?batch=4")
    assert status == 200 and len(text.splitlines()) >= 2 and "rooflm-" in headers["content-disposition"]
    if tab == "fits":
        own = rooflm.infer("llama-3.1-8b", gpu="h100", gpus=1, batch=4, prompt=1024, output=256)
        assert values["memory_bytes"] == own.memory.total
    assert get(f"{address}/{tab}/download.json?gpu=h1000")[0] == 400


def test_what_would_fit_but_has_no_field_is_told_in_words() -> None:
    found = answered("fits", model="gpt-oss-120b", gpu="rtx-4090")
    assert "would also fit with engine llama.cpp and cpu-experts" in " ".join(found.said)


def test_the_speed_tab_tells_what_would_be_quicker_as_the_command_does() -> None:
    given = {"model": "qwen3-235b-a22b", "gpu": "b200", "gpus": "4", "engine": "trtllm", "quant": "nvfp4"}
    told = " ".join(answered("speed", **given, batch="64").said)
    assert "on trtllm kernels, where it has them for this checkpoint, it would take" in told


def test_what_does_not_fit_says_what_would() -> None:
    found = answered("fits", model="llama-3.1-70b", gpu="h100")
    assert found.tone == "bad" and "GiB too much" in found.verdict
    (offers,) = [b for b in found.blocks if isinstance(b, Choices)]
    for offer in offers.rows:
        texts = dict(urllib.parse.parse_qsl(offer.query))
        assert TABS["fits"].answer(read_query("fits", TABS["fits"].keys, texts)).tone == "good", offer
    assert len(offers.rows) >= 3
    tuned, *_ = [b for b in answered("train", train__gpus="1", gpu="rtx-4090").blocks if isinstance(b, Choices)]
    texts = dict(urllib.parse.parse_qsl(tuned.rows[0].query))
    assert TABS["train"].answer(read_query("train", TABS["train"].keys, texts)).tone == "good"


def test_an_answer_that_takes_seconds_comes_after_the_page(address: str) -> None:
    query = "output=24&find.gpus_max=4"
    text = get(f"{address}/search?{query}")[2]
    assert "data-later" in text and 'class="lead"' not in text
    assert re.search(rf'<noscript><meta http-equiv="refresh" content="0; url=/search\?{query}&amp;now=1">'.replace(
        "&find", "&amp;find"), text)  # fmt: skip
    *before, last = get(f"{address}/search/answer?{query}")[2].splitlines()
    assert "Best" in json.loads(last)["html"] and all("total" in json.loads(line) for line in before)
    assert 'class="lead"' in get(f"{address}/search?{query}")[2]  # it is known now


def test_work_that_nobody_waits_for_ends() -> None:
    told: list[int] = []

    def make() -> None:
        for n in range(10_000):
            time.sleep(0.01)
            tell_done(n, 10_000)
            told.append(n)

    async def leave() -> None:
        reply = lines(asyncio.to_thread, make)
        first = json.loads(await anext(reply))
        assert first["total"] in (0, 10_000)
        await reply.aclose()

    asyncio.run(leave())
    assert len(told) < 9_000


def test_a_prompt_that_no_server_takes_is_told_without_a_number() -> None:
    for limits in ({}, {"ttft": "", "tpot": ""}):
        found = answered("serve", prompt="200000", output="8", **limits)
        assert found.verdict == "Not one request of this length is served." and "131072" in found.said[0]
        assert found.figures() == () and [type(b).__name__ for b in found.blocks] == ["Fold"]


def test_serving_without_memory_says_what_would_fit_a_click_away() -> None:
    found = answered("serve", model="llama-3.1-70b", output="16")
    (offers,) = [b for b in found.blocks if isinstance(b, Choices)]
    assert found.tone == "bad" and "no memory for a KV cache" in found.verdict and len(offers.rows) >= 3
    texts = dict(urllib.parse.parse_qsl(offers.rows[0].query))
    assert TABS["serve"].answer(read_query("serve", TABS["serve"].keys, texts)).data()["runs"]


@pytest.mark.parametrize(("other", "verdict"), [
    ({"b__gpu": "a100"}, "A: h100 is the quickest; A: h100 and B: a100 are as cheap, within the error band"),
    ({"b__batch": "32"}, "A: 8 at once is the quickest; B: 32 at once is the cheapest a token."),
    ({"b__gpu": "h100-sxm-80gb"}, "within the error band of each other"),
])  # fmt: skip
def test_what_lies_within_the_error_bands_is_called_alike(other: dict[str, str], verdict: str) -> None:
    found = answered("compare", **other)
    assert verdict in found.verdict
    bands = [row for row in found.blocks[0].rows if row[0] == "in four of five like cases"]
    assert len(bands) == 3 and all(re.fullmatch(r"[\d.]+ to [\d.]+ m?s", cell) for row in bands for cell in row[1:])
    marked = {found.blocks[0].rows[1 + i][0] for i, _ in found.blocks[0].best}
    assert ("Whole request" in marked) == ("quickest" in found.verdict)


def test_a_load_within_limits_holds_and_the_next_breaks() -> None:
    found = answered("serve", output="16", tpot="12ms")
    values = found.data()
    edge, runs = values["most_clients"], values["runs"]
    assert f"Up to {edge} clients" in found.verdict
    for r in runs:
        within = r["ttft_p95"] <= 1 and r["tpot_p95"] <= 0.012
        assert within == (r["clients"] <= edge)


def test_the_load_that_holds_is_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    found = answered("serve", output="16", tpot="12ms", concurrency="24")
    capsys.readouterr()
    told = []
    for line in found.command.splitlines():
        assert main([*shlex.split(line)[1:], "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out))
    (chosen,) = [r for r in found.data()["runs"] if r["clients"] == 24]
    assert told[0]["ttft_s"]["p95"] == chosen["ttft_p95"] and told[0]["tpot_s"]["mean"] == chosen["tpot_mean"]
    assert told[1]["found"]["concurrency"] == found.data()["most_clients"]


def test_a_search_under_load_says_what_was_simulated() -> None:
    found = answered("search", find__concurrency="20", find__gpus_max="2", output="64")
    assert "Simulated with 20 clients" in " ".join(found.said)
    for query in ({}, {"find__concurrency": "20"}):
        (users,) = [
            b for b in answered("search", find__gpus_max="2", output="64", **query).blocks if isinstance(b, Facts)
        ]
        first, each = users.rows[:2]
        assert (
            re.search(r"between .* in four of five like cases \(\d+ measured\)", first.note) and "between" in each.note
        )
    assert any(isinstance(b, Code) and b.text.startswith("vllm serve") for b in found.blocks)
    (best,) = [b for b in found.blocks if isinstance(b, Table)]
    assert best.title == "The best answers: the first simulated, the rest estimated"
    none = answered("search", ttft="1us")
    assert none.tone == "bad" and "Nothing meets" in none.verdict


def test_frames_are_the_answers_at_the_stops(address: str) -> None:
    frames = {f["value"]: f for f in json.loads(get(f"{address}/fits/frames/batch?gpu=a100")[2])}
    assert list(frames) == [str(s) for s in BY_KEY["batch"].stops]
    assert frames["64"]["html"] == json.loads(get(f"{address}/fits/answer?gpu=a100&batch=64")[2])["html"]


def test_an_address_holds_the_whole_scenario() -> None:
    texts = {"model": "qwen3-32b", "gpu": "h200", "batch": "16", "map.value": "mfu"}
    once = asked("fits", **texts)
    assert dict(urllib.parse.parse_qsl(once.query())) == texts
    assert not read_query("fits", TABS["fits"].keys, {"batch": BY_KEY["batch"].usual}).query()


def test_a_dropped_config_goes_into_the_address(address: str) -> None:
    data = json.dumps({**CONFIG, "model_type": "llamalike"}).encode()
    request = urllib.request.Request(f"{address}/drop?name=../../my%20config.json", data=data, method="POST")
    with urllib.request.urlopen(request, timeout=600) as reply:
        name = json.load(reply)["model"]
    assert name.split("~")[1] == "my-config.json"
    text = get(f"{address}/fits?{urllib.parse.urlencode({'model': name})}")[2]
    assert "it fits" in text and "read as a Llama-like decoder" in text and "my-config.json" in text
    assert dropped_model(name)[0].hidden == 1024


def test_what_is_no_model_is_refused_in_a_sentence() -> None:
    for data, sentence in ((b"hello", "neither JSON nor GGUF"), (b"{}", "model_type"), (b"GGUF" + b"\0" * 40, "GGUF"),
                           (b"[" * 100_000, "neither JSON"), (b" " * (3 << 20), "more than is read")):  # fmt: skip
        with pytest.raises(rooflm.RooflmError, match=sentence):
            keep("x.json", data)
    bomb = urlsafe_b64encode(zlib.compress(b" " * (64 << 20), 9)).decode()
    for name in ("config~x~!!", "config~x~AAAA", f"config~x~{bomb}", "file~x~0123"):
        assert "model" in asked("fits", model=name).errors(), name[:40]


def test_ten_people_at_once_get_what_each_asked(address: str) -> None:
    asks = [f"{address}/speed/answer?batch={n}&prompt=777" for n in range(1, 11)]
    with ThreadPoolExecutor(10) as pool:
        together = list(pool.map(lambda a: json.loads(get(a)[2])["html"], asks))
    for n, html in enumerate(together, start=1):
        own = rooflm.infer("llama-3.1-8b", gpu="h100", gpus=1, batch=n, prompt=777, output=256)
        assert f"{count(own.output_tokens_per_s)} tokens a second in all" in html


def test_every_field_is_an_argument_and_says_what_it_is() -> None:
    assert not [f.key for f in FIELDS if not f.help]
    assert "llama-3.1-8b" in choices("model") and "fp8" in choices("quant")


def test_the_train_tab_searches_splits_and_each_is_a_click_away(capsys: pytest.CaptureFixture[str]) -> None:
    texts = {"model": "llama-3.1-8b", "gpu": "h100", "train.gpus": "4", "train.objective": "time"}
    found = TABS["train"].answer(read_query("train", TABS["train"].keys, texts))
    quick, found = found, found.more()
    assert quick.tone == "bad" and "does not fit" in quick.verdict
    assert found.tone == "plain" and found.verdict.startswith("Best split: ") and "4.18 GiB too much" in found.said[0]
    choices, run = found.blocks[:2]
    own = rooflm.search_train("llama-3.1-8b", gpu="h100", gpus=4, batch=64, seq=2048, tokens=10e9)
    query = dict(urllib.parse.parse_qsl(choices.rows[0].query))
    taken = TABS["train"].answer(read_query("train", TABS["train"].keys, query))
    assert taken.data()["step_time_s"] == pytest.approx(own.best.outputs["step_time_s"], rel=1e-9)
    assert "torchrun" in run.text
    capsys.readouterr()
    search = found.command.splitlines()[1]
    assert search.startswith("rooflm search train") and main([*shlex.split(search)[1:], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["best"]["step_time_s"] == own.best.outputs["step_time_s"] and told["command"] == run.text
    names: dict[str, Any] = {}
    exec(found.python, names)
    assert names["found"].best == own.best
    assert "train.objective" in page.Shown(TABS["train"], read_query("train", TABS["train"].keys, {
        **texts, "train.gpus": "4096", "train.batch": "4096"})).errors  # fmt: skip


def test_an_address_that_is_taken_or_is_none_is_told(capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["web", "--port", port, "--no-browser"]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith(f"rooflm: cannot listen at 127.0.0.1, port {port}: address already in use: try ")


def test_names_of_an_address_that_a_tab_does_not_read_are_told(address: str) -> None:
    told = get(f"{address}/train?gpus=64&trane.seq=8&now=1")[2]
    assert "The address has gpus, which is not read here: did you mean train.gpus?" in told
    assert "The address has trane.seq, which is not read here: did you mean train.seq?" in told
    for fine in ("train?gpus=64&train.gpus=64&now=1", "fits?tpot=12ms&batch=8"):  # kept for other tabs
        assert "The address has" not in get(f"{address}/{fine}")[2]
    hostile = get(f"{address}/fits?<b>x</b>=1")[2]
    assert "The address has &lt;b&gt;x" in hostile and "<b>x" not in hostile
