"""Rows of a user's own, and bad input: files that are wrong in every way give one sentence and no traceback."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from rooflm.errors import RooflmError, UnknownNameError, near_matches
from rooflm.readers.devices import default_cluster, load_cluster, load_device
from rooflm.readers.provenance import Source, provenance

ROW = """
vendor = "me"
architecture = "mine"
peak = { fp32 = "1 TFLOP/s", bf16 = 2e12 }
sms = 10
clock = "1 GHz"
l1 = { size = "1 MiB", bandwidth = "3 TB/s" }
l2 = { size = "2 MiB", bandwidth = "2 TB/s" }
dram = { size = "4 GiB", bandwidth = "1 TB/s" }
tdp = "100 W"
idle = 10
price = 0
"""


def _write(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("head", "name"), [("", "mine"), ("[my-card]", "my-card")])
def test_a_file_of_ones_own(tmp_path: Path, head: str, name: str) -> None:
    path = _write(tmp_path, head + ROW)
    device = load_device(path)
    assert device.name == name
    assert device.peak == {"fp32": 1e12, "bf16": 2e12}
    assert device.dram.size == 4 * 2**30
    assert default_cluster(path) == "pcie4-8"
    assert provenance("gpu", path)["l2.size"].source == path
    assert load_cluster("pcie5-8", path).device.name == name


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    assert load_device(_write(tmp_path, ROW)).sms == 10
    assert load_device(_write(tmp_path, ROW.replace("sms = 10", "sms = 20"))).sms == 20


BAD = [
    ("sms = 10", 'sms = "many"', r"sms is 'many', but it must be a number"),
    ("sms = 10", "sms = -1", r"sms is -1, but it must be above 0"),
    ('tdp = "100 W"', 'tdp = "100 GB"', r"tdp is '100 GB', but its unit must be W"),
    ('tdp = "100 W"', "tdp = true", r"tdp is True, but it must be"),
    ('tdp = "100 W"', "tdp = inf", r"tdp is inf, but it must be finite"),
    ('tdp = "100 W"', 'tdp = "lots"', r"tdp is 'lots', "),
    ('"1 TB/s"', '"1 TX/s"', r"dram.bandwidth is '1 TX/s', but"),
    ("bf16", "bf15", r"peak has the unknown field 'bf15': did you mean 'bf16'"),
    ("idle", "idol", r"the row has the unknown field 'idol': did you mean 'idle'"),
    ("2e12", "[2e12]", r"peak.bf16 is \[2000000000000.0\], but it must be"),
    ("2e12", "-2e12", r"peak.bf16 is -2000000000000, but it must be above 0"),
    ('{ size = "2 MiB", bandwidth = "2 TB/s" }', "5", r"l2 is 5, but it must be a table"),
    ('{ fp32 = "1 TFLOP/s", bf16 = 2e12 }', "{}", r"peak is empty"),
    ("sms = 10", "sms = ", r"is not valid TOML: .*line 5"),
]


@pytest.mark.parametrize(("good", "bad", "message"), BAD)
def test_a_bad_file_is_one_sentence(tmp_path: Path, good: str, bad: str, message: str) -> None:
    assert good in ROW
    path = _write(tmp_path, ROW.replace(good, bad, 1))
    with pytest.raises(RooflmError, match=message) as caught:
        load_device(path)
    text = str(caught.value)
    assert text.startswith(path) and "\n" not in text


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RooflmError, match=r"cannot read gpu file .*no such file"):
        load_device(str(tmp_path / "none.toml"))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RooflmError, match="not a file of UTF-8"):
        load_device(str(binary))


def test_bad_clusters(tmp_path: Path) -> None:
    link = '{ name = "a", kind = "nvlink", size = 8, bandwidth = "1 GB/s", latency = "1 us" }'
    text = f'device = "a100"\ntiers = [ {link}, {link} ]\n'
    with pytest.raises(RooflmError, match="each must join more devices"):
        load_cluster(_write(tmp_path, text))
    with pytest.raises(RooflmError, match=r"tiers\[0\].kind is 'rope': it must be one of"):
        load_cluster(_write(tmp_path, text.replace("nvlink", "rope")))
    with pytest.raises(RooflmError, match=r"tiers\[0\].latency is '1 B', but its unit must be s"):
        load_cluster(_write(tmp_path, text.replace("1 us", "1 B")))
    with pytest.raises(UnknownNameError, match="unknown GPU 'a1003'"):
        load_cluster(_write(tmp_path, text.replace(f", {link}", "").replace("a100", "a1003")))


def test_missing_or_unknown_sources_are_refused(tmp_path: Path) -> None:
    path = _write(tmp_path, ROW + 'from = { default = "no-such-source" }\n')
    with pytest.raises(RooflmError, match="vendor has no source"):
        provenance("gpu", path)
    inline = 'from = { default = { source = "My lab", date = "2026-01", kind = "measured" }, "l2.size" = "idle" }\n'
    origin = provenance("gpu", _write(tmp_path, ROW + inline))
    assert origin["tdp"] == Source("My lab", "2026-01", "measured")
    assert origin["l2.size"].kind == "inferred"


def test_bad_sources_are_one_sentence(tmp_path: Path) -> None:
    for text, message in (
        ("from = 3\n", "from is 3, but it must be a table"),
        ('from = { default = { source = "My lab" } }\n', "lacks the field 'date'"),
        ('from = { default = { source = "My lab", date = "2026-01", kind = "hearsay" } }\n', "'hearsay'"),
    ):
        with pytest.raises(RooflmError, match=message):
            provenance("gpu", _write(tmp_path, ROW + text))


ODD = {
    "deep": "a = " + "[" * 5000, "long": "sms = " + "9" * 5000, "null": "x\0", "mark": "\ufeff",
    "two tables": "[a]\n[b]\n", "list": "[[a]]\n", "name": "name = nan\n" + ROW, "empty": "",
}  # fmt: skip


@pytest.mark.parametrize("text", list(ODD.values()), ids=list(ODD))
def test_odd_files_are_refused_politely(tmp_path: Path, text: str) -> None:
    for load in (load_device, load_cluster):
        with pytest.raises(RooflmError):
            load(_write(tmp_path, text))
    with pytest.raises(RooflmError):
        load_device("no\0name.toml")


def test_a_huge_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RooflmError, match="number of 1329 bits"):
        load_device(_write(tmp_path, ROW.replace('"100 W"', "1" + "0" * 400)))


def test_damaged_files_never_give_a_traceback(tmp_path: Path) -> None:
    """300 files with a piece cut out, doubled or replaced: each loads or raises RooflmError."""
    random = Random(7)
    junk = ['"', "=", "{", "]", "-", "1e999", "nan", "true", "[]", "\n", "é", "0", "\\", '""', "1979-05-27", "'''"]
    refused = 0
    for _ in range(300):
        start = random.randrange(len(ROW))
        end = start + random.randrange(12)
        piece = random.choice([*junk, ROW[start:end] * 2, ""])
        path = _write(tmp_path, ROW[:start] + piece + ROW[end:])
        try:
            device = load_device(path)
            assert math.isfinite(device.dram.bandwidth)
        except RooflmError as error:
            refused += 1
            assert len(str(error)) < 500
    assert refused > 150


def test_threads_may_read_the_catalogue_together():
    """msgspec crashes where two threads convert to a type for the first time at once; each try is a new interpreter."""
    import subprocess
    import sys

    code = """
import sys, threading
sys.setswitchinterval(1e-6)
from rooflm import catalogue
start = threading.Barrier(2)
def read(name):
    start.wait()
    load_cluster(default_cluster(name), load_device(name))
threads = [threading.Thread(target=read, args=(name,)) for name in ("a100-sxm-80gb", "h100-sxm-80gb")]
[t.start() for t in threads]
[t.join() for t in threads]
"""
    for _ in range(8):
        assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_only_the_rows_that_are_asked_for_are_parsed() -> None:
    """A cold prediction reads its device, cluster, model and engine, not all engines to find the usual one."""
    code = (
        "from rooflm import infer; from rooflm.readers.rows import _packaged_row;"
        "infer('llama-2-7b', gpu='a100'); print(_packaged_row.cache_info().currsize)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ran.stdout) <= 6


BASED = 'base = "dgx-h100"\n[[tiers]]\nname = "infiniband"\nbandwidth = "25 GB/s"\n'


def test_a_cluster_builds_on_a_known_one(tmp_path: Path) -> None:
    known, mine = load_cluster("dgx-h100"), load_cluster(_write(tmp_path, BASED))
    assert mine.device == known.device and mine.tiers[0] == known.tiers[0]
    assert mine.tiers[1] == replace(known.tiers[1], bandwidth=25e9)
    wider = BASED + '[[tiers]]\nname = "wan"\nkind = "ethernet"\nsize = 2e6\nbandwidth = "1 GB/s"\nlatency = "1 ms"\n'
    assert [t.name for t in load_cluster(_write(tmp_path, wider)).tiers] == ["nvlink", "infiniband", "wan"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("base = 3\n", "base is 3, but it must be the name of a cluster"),
        ('base = "dgx-h1000"\n', "unknown cluster 'dgx-h1000'"),
        ('base = "dgx-h100"\ntiers = 3\n', "tiers must be tables that each begin with a name"),
        ('base = "dgx-h100"\n[[tiers]]\nname = "wan"\n', r"lacks the field 'kind'"),
        ('base = "dgx-h100"\n[[tiers]]\nname = "nvlink"\nsize = 4e9\n', "each must join more devices"),
    ],
)
def test_a_bad_cluster_on_a_known_one_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(RooflmError, match=told):
        load_cluster(_write(tmp_path, text))


def test_thunderbolt_joins_macs_as_a_network_does(tmp_path: Path) -> None:
    tier = '[[tiers]]\nname = "cable"\nkind = "Thunderbolt"\nsize = 4\nbandwidth = "5 GB/s"\nlatency = "50 us"\n'
    found = load_cluster(_write(tmp_path, 'device = "apple-m3-ultra-80core-512gb"\n' + tier))
    assert [(t.name, t.kind, t.size) for t in found.tiers] == [("cable", "ethernet", 4)]


def test_short_names_that_share_two_letters_are_not_near() -> None:
    assert near_matches("foo", ["oom", "mfu"]) == [] and near_matches("tps", ["tp", "pp"]) == ["tp"]
