"""llm-cluster-perf (Bin Tan): Llama-2 13B over boxes of one RTX 3060 each, and what other boxes would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rooflm.api import infer, infer_grid
from rooflm.plots.bars import Bar, bars
from rooflm.plots.lines import Curve, lines
from rooflm.plots.picture import Picture
from rooflm.plots.scale import Scale, Side
from rooflm.works.study import FITTED, KEPT, Column, Study, Table, comparison, comparison_columns, errors_of, published

MODEL, CARD, ENGINE = "llama-2-13b", "rtx-3060-12gb", "hf-boxes"
NETWORKS = ("ethernet-1g", "ethernet-10g", "ethernet-25g", "ethernet-100g")
DELAYED = 0.04
"""s: how long Linux delays TCP's acknowledgement of a small message that nothing answers (TCP_DELACK_MIN)."""
READINGS: dict[str, Callable[[int], dict[str, Any]]] = {
    "12.4 ms a message (as predicted above)": lambda boxes: {},
    "37 ms a token, however many boxes": lambda boxes: {"engine.message": 0.0, "engine.step": 0.037},
    "40 ms (TCP's delayed ACK) a relaying box": lambda boxes: {"engine.message": 0.0,
                                                               "engine.step": DELAYED * (boxes - 2)},
    "12.4 ms a message, two batches in flight": lambda boxes: {"mapping.in_flight": 2},
    "40 ms a relaying box, two in flight": lambda boxes: {"engine.message": 0.0, "mapping.in_flight": 2,
                                                          "engine.step": DELAYED * (boxes - 2)},
}  # fmt: skip
"""Readings of what passes between boxes -> changes of the scenario for so many boxes. The source states none."""
FLOOR = 0.053
"""Mean error on the ten later rows of the best step time that never falls as the batch grows (decision 0046)."""


def run(row: Mapping[str, Any], **sets: Any) -> Any:
    """A row of the source as it is read here: layers split over the boxes, 1 Gb/s."""
    return infer(
        MODEL, gpu=CARD, cluster="ethernet-1g", pp=row["boxes"], batch=row["batch"], prompt=row["prompt"],
        output=row["output"], engine=ENGINE, sets=sets or None,
    )  # fmt: skip


def rows() -> Table:
    """All its rows: three boxes, on which the host's time a message was fitted, and four, in no fit."""
    found = []
    for r in published("cluster-rows"):
        e = run(r)
        found.append({"test": str(r["test"]), "date": str(r["date"]), "boxes": r["boxes"], "output": r["output"],
                      "batch": r["batch"],
                      **comparison(r["tokens_per_s"], float(e.output_tokens_per_s), r["fitted"])})  # fmt: skip
    columns = (Column("test", "test"), Column("date", "date"), Column("boxes", "boxes", "1"),
               Column("output", "out", "1"), Column("batch", "batch", "1"),
               *comparison_columns("1/s", "tokens/s", "predicted"))  # fmt: skip
    notes = (
        "Its step times fall where the batch grows (232, 187, 216, 201, 169, 229 ms for 12, 16, 20, 24, 32, 48): they"
        " are of several weeks of tuning that is not described. No step time that grows with the batch comes nearer to"
        f" the ten later rows than {100 * FLOOR:.0f} % in the mean.",
    )
    return Table("rows", "Llama-2 13B over boxes of one RTX 3060 each", columns, tuple(found), notes)


def readings() -> Table:
    """Mean errors of other readings of what passes between boxes."""
    found = []
    for name, changes in READINGS.items():
        cells = {FITTED: [], KEPT: []}  # type: dict[str, list[Mapping[str, Any]]]
        for r in published("cluster-rows"):
            e = run(r, **changes(int(r["boxes"])))
            cells[r["fitted"]].append(comparison(r["tokens_per_s"], float(e.output_tokens_per_s), r["fitted"]))
        eight, ten = errors_of(cells[FITTED]), errors_of(cells[KEPT])
        found.append({"reading": name, "eight": eight.mean, "ten": ten.mean, "most": ten.most})
    columns = (Column("reading", "what passes between boxes"), Column("eight", "3 boxes, mean", "share"),
               Column("ten", "4 boxes, mean", "share"), Column("most", "most", "share"))  # fmt: skip
    notes = ("The last four are told, not used: the eight rows of three boxes cannot choose among them; to choose by"
             " the ten would be a fit on them.",)  # fmt: skip
    return Table("readings", "What the rows say of the network and the hosts", columns, tuple(found), notes)


def parts() -> Table:
    """Where a token's time goes."""
    found = []
    for r in published("cluster-rows"):
        p = {k: float(v) for k, v in run(r).decode_parts.items()}
        network, host = p.pop("pp_comm"), p.pop("host")
        found.append({"boxes": r["boxes"], "batch": r["batch"], "output": r["output"], "gpu": sum(p.values()),
                      "network": network, "host": host, "all": sum(p.values()) + network + host})  # fmt: skip
    columns = (Column("boxes", "boxes", "1"), Column("batch", "batch", "1"), Column("output", "tokens out", "1"),
               Column("gpu", "GPUs", "s"), Column("network", "payload", "s"),
               Column("host", "hosts, messages", "s"), Column("all", "a token", "s"))  # fmt: skip
    notes = ("The source, batch 1: about 0.1 s of GPU computation and 0.04 s in others.",)
    return Table(
        "parts", "Where the time of a token goes: one batch passes box after box", columns, tuple(found), notes
    )


def ethernet() -> Table:
    """What Ethernet costs under the default engine, split by layers and by tensors."""
    found = []
    for network in NETWORKS:
        for tp, pp in ((1, 4), (4, 1)):
            for batch in (1, 32):
                e = infer(MODEL, gpu=CARD, cluster=network, tp=tp, pp=pp, batch=batch, prompt=32, output=256)
                sent = sum(float(v) for k, v in e.decode_parts.items() if k.endswith("_comm"))
                found.append({"network": network, "split": "tp 4" if tp > 1 else "pp 4", "batch": batch,
                              "tpot": float(e.tpot), "network_s": sent, "share": sent / float(e.tpot),
                              "rate": float(e.output_tokens_per_s)})  # fmt: skip
    columns = (Column("network", "network"), Column("split", "split"), Column("batch", "batch", "1"),
               Column("tpot", "a token", "s"), Column("network_s", "network", "s"), Column("share", "share", "share"),
               Column("rate", "tokens/s", "1/s"))  # fmt: skip
    notes = ("The usual server keeps as many batches in flight as boxes and pays the link's own latency alone: it is"
             " what such boxes could do, not what the source's program did.",)  # fmt: skip
    return Table("ethernet", "What Ethernet costs the default engine on four boxes", columns, tuple(found), notes)


def dollars(gpu: str) -> float:
    """Price of a card when new (data/works/cluster-cards.csv)."""
    return float(next(r["usd"] for r in published("cluster-cards") if r["gpu"] == gpu))


def scaling() -> Table:
    """More boxes: the largest batch, its throughput, what a box more gains, throughput a dollar of cards."""
    found: list[dict[str, Any]] = []
    before: dict[str, float] = {}
    for engine in (ENGINE, "vllm"):
        for boxes in range(3, 9):
            fits = infer(MODEL, gpu=CARD, cluster="ethernet-1g", pp=boxes, batch=1, prompt=32, output=220,
                         engine=engine)  # fmt: skip
            batch = min(int(fits.max_batch), 256)
            e = infer(MODEL, gpu=CARD, cluster="ethernet-1g", pp=boxes, batch=batch, prompt=32, output=220,
                      engine=engine)  # fmt: skip
            rate, usd = float(e.output_tokens_per_s), boxes * dollars(CARD)
            gain = rate / before[engine] - 1 if engine in before else None
            found.append({"engine": engine, "boxes": boxes, "batch": batch, "rate": rate, "gain": gain,
                          "usd": usd, "per": rate / usd})  # fmt: skip
            before[engine] = rate
    columns = (Column("engine", "engine"), Column("boxes", "boxes", "1"), Column("batch", "batch", "1"),
               Column("rate", "tokens/s", "1/s"), Column("gain", "a box more", "change"), Column("usd", "cards", "USD"),
               Column("per", "tokens/s/USD", "1/s"))  # fmt: skip
    notes = ("Batch: the largest that fits, at most 256; 32 tokens in, 220 out. Cards alone: not boxes, not power.",)
    return Table("scaling", "More boxes of the same card over 1 Gb/s", columns, tuple(found), notes)


def cards() -> Table:
    """Other cards for the same model: as few as hold it, the best batch of up to 256, tokens a second a dollar."""
    found = []
    batches = [1, 8, 16, 32, 64, 96, 128, 256]
    for r in published("cluster-cards"):
        gpu = str(r["gpu"])
        for boxes in (1, 2, 3, 4):
            e = infer(MODEL, gpu=gpu, cluster="ethernet-10g", pp=boxes, batch=8, prompt=32, output=220)
            if bool(e.fits):
                break
        grid = infer_grid(MODEL, gpu=gpu, cluster="ethernet-10g", pp=boxes, batch=batches, prompt=32, output=220,
                          outputs=["output_tokens_per_s", "fits"])  # fmt: skip
        rates = np.where(grid.fits.values, grid.output_tokens_per_s.values, 0.0)
        best, usd = int(np.argmax(rates)), boxes * dollars(gpu)
        found.append({"gpu": gpu, "cards": boxes, "batch": batches[best], "rate": float(rates[best]),
                      "one": float(grid.output_tokens_per_s.values[0]), "usd": usd,
                      "per": float(rates[best]) / usd, "price": str(r["kind"])})  # fmt: skip
    columns = (Column("gpu", "card"), Column("cards", "cards", "1"), Column("one", "alone", "1/s"),
               Column("batch", "batch", "1"), Column("rate", "tokens/s", "1/s"), Column("usd", "cards", "USD"),
               Column("per", "tokens/s/USD", "1/s"), Column("price", "price"))  # fmt: skip
    notes = ("The fewest cards that hold batch 8, one a box over 10 Gb/s where several; the default engine.",)
    return Table("cards", "The same model on today's cards", columns, tuple(found), notes)


def rows_picture(table: Table) -> Picture:
    """Tokens a second over the batch, measured and predicted, for three and for four boxes."""
    made = []
    for boxes, output in ((3, 128), (4, 256), (4, 220)):
        mine = [r for r in table.rows if (r["boxes"], r["output"]) == (boxes, output)]
        x = tuple(int(r["batch"]) for r in mine)
        name = f"{boxes} boxes, {output} tokens out"
        made += [Curve(name, np.array([r["ours"] for r in mine]), x, marked=False),
                 Curve(name, np.array([r["published"] for r in mine]), x, dots=True)]  # fmt: skip
    batches = (1, 2, 4, 8, 16, 32, 64, 96)
    return lines("Llama-2 13B over boxes of one RTX 3060", Side("batch (sequences)", batches),
                 Scale("output tokens per second", log=True), made,
                 "1 Gb/s Ethernet; only the rows of three boxes took part in a fit",
                 ("lines: predicted; points: measured",))  # fmt: skip


def scaling_picture(table: Table) -> Picture:
    """Tokens a second a dollar by engine and boxes."""
    made = [Bar(f"{r['boxes']} boxes", {"predicted": 1e3 * r["per"]}, r["engine"]) for r in table.rows]
    return bars("Llama-2 13B over boxes of one RTX 3060: throughput a dollar of cards",
                Scale("tokens per second per 1000 USD"), made,
                "at the largest batch that fits, at most 256")  # fmt: skip


PICTURES = ("rows", "scaling")
"""Names of its pictures, the first drawn where none is asked for."""


def study() -> Study:
    """All tables and pictures."""
    own, more = rows(), scaling()
    eight, ten = (errors_of(own.pairs(fitted=f)) for f in (FITTED, KEPT))
    return Study(
        "cluster", "Llama-2 13B over boxes of one RTX 3060 each",
        "Bin Tan, llm-cluster-perf, github.com/project-ai101/llm-cluster-perf, perf_tune_1.md, March and April 2024",
        ("Read as layers split over the boxes, one batch passing box after box in eager PyTorch over 1 Gb/s Ethernet,"
         " 32 tokens in; the source states neither split nor engine, network or prompts.",
         "One constant is fitted, on the eight rows of three boxes: 12.4 ms of host time a message. The ten rows of"
         " four boxes are in no fit."),
        (own, readings(), parts(), ethernet(), more, cards()),
        (f"Three boxes: off by {100 * eight.mean:.1f} %, at most {100 * eight.most:.0f} %, in sample.",
         f"Four boxes: off by {100 * ten.mean:.0f} %, at most {100 * ten.most:.0f} %: too fast for the small batches of"
         " March, too slow for the large ones of April. 12 % cannot be had with what the eight rows say.",
         "A tensor split of three boxes is no candidate: 40 heads do not divide by three."),
        dict(zip(PICTURES, (lambda: rows_picture(own), lambda: scaling_picture(more)), strict=True)),
    )  # fmt: skip
