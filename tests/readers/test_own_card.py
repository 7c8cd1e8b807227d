"""A card of one's own: what differs from a known card, or four figures of a datasheet."""

from pathlib import Path

import pytest

from rooflm import RooflmError, infer, load_device
from rooflm.cli.app import main


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def test_what_differs_from_a_known_card_is_enough(tmp_path: Path) -> None:
    mine, known = (
        load_device(written(tmp_path, 'base = "rtx-4090"\n[dram]\nsize = "48 GiB"\n')),
        load_device("rtx-4090"),
    )
    assert mine.dram.size == 48 * 2**30
    assert (mine.dram.bandwidth, mine.sms, mine.peak, mine.kernels_of) == (
        known.dram.bandwidth, known.sms, known.peak, "rtx-4090"
    )  # fmt: skip
    assert mine.inferred == "is rtx-4090 but for dram.size"
    assert load_device(written(tmp_path, 'base = "rtx-4090"\nnote = "mine"\n')).inferred == "is as rtx-4090"


@pytest.mark.parametrize(
    ("text", "whose"),
    [
        ('base = "rtx-4090"\nvendor = "moore"\narchitecture = "mtt"\n', "rtx-4090"),
        ('peak = "312 TFLOP/s"\nmemory = "80 GiB"\nbandwidth = "2.039 TB/s"\n', "a100-sxm-80gb"),
    ],
)
def test_an_answer_says_whose_constants_a_card_of_ones_own_takes(text: str, whose: str, tmp_path: Path) -> None:
    said = infer("llama-2-7b", gpu=written(tmp_path, text)).assumed
    assert f"efficiency calibrated (constants of {whose}: none of mine was measured" in " ".join(said)


def test_a_base_with_another_peak_scales_its_other_rates(tmp_path: Path) -> None:
    mine, known = load_device(written(tmp_path, 'base = "h100"\npeak = "1500 TFLOP/s"\n')), load_device("h100")
    assert mine.peak["bf16"] == 1500e12
    assert mine.peak["fp8"] / known.peak["fp8"] == pytest.approx(1500e12 / known.peak["bf16"])


def test_three_figures_are_enough_and_what_was_inferred_is_told(tmp_path: Path) -> None:
    text = 'peak = "312 TFLOP/s"\nmemory = "80 GiB"\nbandwidth = "2.039 TB/s"\n'
    path = written(tmp_path, text)
    mine, known = load_device(path), load_device("a100-sxm-80gb")
    assert (mine.sms, mine.l2.size) == (known.sms, known.l2.size)
    found = infer("llama-2-7b", gpu=path, batch=8)
    assert any("inferred from the nearest card, a100-sxm-80gb" in line for line in found.assumed)
    assert found.tpot == pytest.approx(infer("llama-2-7b", gpu="a100-sxm-80gb", batch=8, cluster="pcie4-8").tpot)


def test_sms_and_caches_grow_with_the_peak(tmp_path: Path) -> None:
    text = 'peak = "343.2 TFLOP/s"\nmemory = "80 GiB"\nbandwidth = "2.039 TB/s"\n[l2]\nsize = "30 MB"\n'
    mine, near = load_device(written(tmp_path, text)), load_device("a100-sxm-80gb")
    assert mine.inferred.startswith("inferred from the nearest card, a100-sxm-80gb")
    assert mine.l2.size == 30e6
    assert mine.sms == round(1.1 * near.sms)
    assert mine.l1.bandwidth == pytest.approx(1.1 * near.l1.bandwidth)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('peak = "150 TFLOP/s"\n', "missing memory, such as '24 GiB'; bandwidth, such as '1 TB/s'; or give base"),
        ('base = "rtx-4091"\n', "did you mean 'rtx-4090'"),
        ("base = 3\n", "base is 3, but it must be the name of a card"),
        ('base = "mine.toml"\n', "base is 'mine.toml', but it must be the name of a card"),
        ('[a]\nbase = "h100"\n[b]\nbase = "l4"\n', r"holds 2 tables \(a, b\), but a file describes one card"),
        ('base = "rtx-4090"\nmemmory = "48 GiB"\n', "memmory"),
        ('base = "rtx-4090"\ntflops = 100\n', "unknown field 'tflops': it knows peak, memory, bandwidth, base"),
        ('peak = "150 TB/s"\nmemory = "24 GiB"\nbandwidth = "1 TB/s"\n', "its unit must be FLOP/s"),
    ],
)
def test_every_missing_figure_is_named_at_once(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(RooflmError, match=says):
        load_device(written(tmp_path, text))


def test_a_file_may_name_its_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "RTX 4090 with 48 GB"\nbase = "rtx-4090"\nmemory = "48 GiB"\n')
    assert load_device(str(path)).name == "RTX 4090 with 48 GB"
    assert main(["show", "gpu", str(path)]) == 0
    assert "inferred," not in capsys.readouterr().out  # a kind without a date has no comma


@pytest.mark.parametrize("base", ["apple-m4-max-40core-128gb", "h200-sxm-141gb"])
def test_a_card_that_differs_in_nothing_is_as_fast(base: str, tmp_path: Path) -> None:
    """Its generation too: factors of a family are those of the nearest in time."""
    asked = {"engine": "llama.cpp", "quant": "q4_k_m", "batch": 1}
    mine, known = (infer("llama-3.1-8b", gpu=g, **asked) for g in (written(tmp_path, f'base = "{base}"\n'), base))
    assert (mine.ttft, mine.tpot) == (known.ttft, known.tpot)


@pytest.mark.parametrize("path", ["cluster.device.year=2020,2024", "quant.half=fp64", "quant.in_files=q4_k_m"])
def test_what_is_looked_up_by_is_one_value(path: str) -> None:
    with pytest.raises(RooflmError, match=r"must be one year|one of none, bf16, fp16|did you mean|no effect"):
        infer("llama-2-7b", gpu="h100", set=[path])


def test_a_power_limit_stands_beside_the_tdp_of_its_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "gpu", written(tmp_path, 'base = "rtx-4090"\npower_limit = "300 W"\n')]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["power", "limit", "300", "W"] in shown and ["TDP", "450", "W"] in [words[:3] for words in shown]
    assert main(["show", "gpu", "rtx-4090"]) == 0 and "power limit" not in capsys.readouterr().out


def test_a_price_that_a_file_leaves_out_is_not_said_to_be_its_own(tmp_path: Path) -> None:
    own = written(tmp_path, 'base = "h100"\nprice = "2 USD/h"\n')
    assert load_device(own).priced == ""
    assert load_device(written(tmp_path, 'base = "h100"\n')).priced == "of the card that it builds on"


def test_a_table_of_a_card_is_not_taken_for_its_name(tmp_path: Path) -> None:
    with pytest.raises(RooflmError, match="missing peak, such as"):
        load_device(written(tmp_path, '[dram]\nsize = "48 GB"\nbandwidth = "1 TB/s"\n'))
