"""Blocks in a terminal and in a notebook."""

import re
from html.parser import HTMLParser

import pytest

import rooflm
from rooflm.shown import progress
from rooflm.shown.blocks import BLANK, Code, Columns, Fact, Facts, Parts, Say, Table, folded
from rooflm.shown.notebook import drawn, html
from rooflm.shown.numbers import between, spoken, text, watt_hours
from rooflm.shown.terminal import lines

LONG = Table([("name", *(f"column {i}" for i in range(9))), ("a", *map(str, range(9)))], "l" + "r" * 9, head=True)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_table_keeps_every_cell_at_every_width(width):
    out = lines([LONG], width)
    assert max(map(len, out)) <= width
    assert re.findall(r"column \d", "\n".join(out)) == [f"column {i}" for i in range(9)]
    words = Table([("x", "a sentence of many words that takes several lines " * 4)], "lw")
    told = " ".join(" ".join(lines([words], width)).split())
    assert told == "x " + ("a sentence of many words that takes several lines " * 4).strip()


def test_spare_columns_go_first_and_are_named():
    out = lines([LONG._replace(spare=("column 3", "column 5"))], 85)
    assert "column 3" not in out[0] and "column 4" in out[0]
    assert out[-1].startswith("(left out: column 3")


def test_blocks_stand_beside_each_other_where_there_is_room():
    blocks = [Columns([Table([("a", "1")], "lr", "left"), Table([("b", "2")], "lr", "right")])]
    assert len(lines(blocks, 80)) == 2 and len(lines(blocks, 40)) == 5


def test_colours_only_where_they_are_asked_for():
    blocks = [Say("fits", "good"), BLANK, Code("rooflm infer x")]
    assert "\x1b" not in "".join(lines(blocks)) and "\x1b[1;32m" in "".join(lines(blocks, colour=True))


class Balanced(HTMLParser):
    """Every tag that opens closes."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, _):
        self.seen.append(tag)
        if tag not in ("br",):
            self.open.append(tag)

    def handle_startendtag(self, tag, _):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(fragment):
    parser = Balanced()
    parser.feed(fragment)
    assert not parser.open
    return parser.seen


def test_html_is_well_formed_and_escaped():
    made = html([Say("<b>", label="x"), Parts("p", {"a": 1.0, "<i>": 2.0}), LONG, Code("a < b")], {"k": "<v>"})
    assert "<b></b>" not in made and "&lt;i&gt;" in made and "&lt;v&gt;" in made
    assert read(made).count("rect") == 4


def test_results_show_themselves_verdict_first():
    e = rooflm.infer("llama-3.1-8b", gpu="h100", batch=8)
    t = rooflm.train("llama-3.1-8b", gpu="h100", gpus=8, batch=64, tokens=1e9)
    s = rooflm.serve("llama-7b", gpu="a100", concurrency=4, prompt=128, output=16)
    f = rooflm.search_infer("llama-7b", gpu="a100", gpus=1, batch=[1, 8])
    for result, first in ((e, "FITS"), (t, "FITS"), (s, "40 of 40 requests finished"), (f, "Best throughput per GPU")):
        made, printed = result._repr_html_(), str(result)
        assert read(made).count("table") >= 2 and first in made
        assert first in "".join(printed.splitlines()[:6])
        assert "assumed: cluster" in printed
    assert e._repr_html_().count("<svg") > 4  # a bar a phase, and a key to its parts
    assert e._repr_html_().index("FITS") < e._repr_html_().index("<svg")


def test_every_result_draws_itself(tmp_path):
    runs = (
        rooflm.infer("llama-3.1-8b", gpu="h100", batch=8),
        rooflm.train("llama-3.1-8b", gpu="h100", gpus=8, batch=64),
        rooflm.serve("llama-7b", gpu="a100", concurrency=4, prompt=128, output=16),
        rooflm.search_infer("llama-7b", gpu="a100", gpus=1, batch=[1, 8]),
        rooflm.search_train("llama-7b", gpu="a100", gpus=8, batch=8),
    )
    for number, result in enumerate(runs):
        path = tmp_path / f"{number}.svg"
        picture = result.plot(str(path))
        assert path.stat().st_size > 2000 and picture.to_dict()["title"]
    with pytest.raises(rooflm.RooflmError, match="found no legal point"):
        rooflm.search_infer("llama-7b", gpu="a100", gpus=1, tpot=1e-6).plot()


def test_what_the_command_line_prints_is_print(capsys):
    from rooflm.cli.app import main

    assert main(["infer", "llama-3.1-8b", "--gpu", "h100", "--batch", "8"]) == 0
    assert capsys.readouterr().out == f"{rooflm.infer('llama-3.1-8b', gpu='h100', batch=8)}\n"


def test_rows_are_short():
    model, device = rooflm.load_model("llama-3.1-8b"), rooflm.load_device("h100")
    assert repr(model) == "<Model llama-3.1-8b: 8.03 G parameters, 32 layers, hidden 4096>"
    assert repr(device) == "<Device h100-sxm-80gb: 989 TFLOP/s bf16, 79.65 GiB at 3.35 TB/s, 700 W>"
    assert model.parameters == pytest.approx(8.03e9, rel=1e-3) == model.active_parameters
    assert len(repr(rooflm.load_cluster("dgx-h100"))) < 120


def test_units_that_a_person_says():
    assert [text(s, "s") for s in (1260, 0.0548 * 86400, 2.47e7)] == ["21 minutes", "1.3 hours", "286 days"]
    assert spoken(1.3e6, "USD") == "1.3 million USD" and spoken(0.592, "USD") == "0.59 USD"
    assert between(0.006, 0.008, 0.007) == "between 6.00 and 8.00 ms"
    assert between(1200, 1500, 1300) == "between 20 and 25 minutes"
    assert watt_hours(0.000423 * 3.6e9) == "423 Wh"


def test_progress_in_a_notebook(monkeypatch):
    import sys
    import time
    from types import SimpleNamespace

    told = []
    place = SimpleNamespace(update=lambda h: told.append(h))
    fake = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=lambda h, display_id: place))
    monkeypatch.setattr(progress, "SLOW", 0.02)
    until = time.monotonic() + 60
    with progress.notebook_clock("searching"):
        while not told and time.monotonic() < until:
            time.sleep(0.01)
    assert re.search(r"rooflm: searching, \d+ s", told[0]) and told[-1] == ""
    told.clear()
    with progress.notebook_clock("searching"):
        pass
    assert told == [""]


def test_what_the_page_shows_is_drawn_everywhere() -> None:
    facts = Facts("In figures", [Fact("A step", "2 s", "measured")])
    fold = folded(["engine vllm"])
    code = Code("echo one", "To run it", "first this")
    memory = Parts("Memory", {"weights": 2.0**30}, "B", capacity=2.0**31)
    told = lines([facts, fold, code, memory])
    assert told == ["In figures", "  A step  2 s  measured", "Assumed", "engine vllm", "To run it", "echo one",
                    "first this", "Memory", "  weights  1.00 GiB  100.0 %"]  # fmt: skip
    for block, words in ((facts, "measured"), (fold, "engine vllm"), (code, "first this"), (memory, "1.00 GiB")):
        assert words in drawn(block)
