"""Optimus (Kundu et al.): training and inference by table, generations, and what nodes, memories and networks buy."""

from __future__ import annotations

from typing import Any

import numpy as np

from rooflm.api import infer, infer_grid, train
from rooflm.explore import Ladder
from rooflm.plots.bars import Bar, bars
from rooflm.plots.lines import Curve, lines
from rooflm.plots.picture import Picture
from rooflm.plots.scale import Scale, Side
from rooflm.technology.generations import CHANGES, MODES, ends, rungs
from rooflm.works import technology_hardware as hardware
from rooflm.works.study import FITTED, Column, Study, Table, comparison, comparison_columns, errors_of, published

A100 = "a100-sxm-80gb"
HEADS = {"efficiency": "real", "activations": "kept"}
"""Shorter headings."""
POLICIES: dict[str, dict[str, Any]] = {
    "none": {"recompute": "none", "sp": False},
    "selective": {"recompute": "selective", "sp": True},
    "full": {"recompute": "full", "sp": False},
}
"""Recomputation as Korthikanti et al. run it: selective goes with sequence parallelism."""
HELD = ("weights", "gradients", "optimizer", "activations")
GB = 1e9
PRINTED = 35.0
"""Times faster from A100 with HDR to B200-NVS-L: "about 35" in its abstract."""


def training() -> Table:
    """Its table I: step times, measured, its own and ours."""
    rows = []
    for r in published("technology-training"):
        e = train(
            r["model"], gpu=A100, cluster="dgx-a100", seq=2048, dtype="fp16", zero=0, sp=r["recompute"] == "selective",
            **{k: r[k] for k in ("engine", "batch", "dp", "tp", "pp", "vp", "micro_batch", "recompute")},
        )  # fmt: skip
        rows.append({"model": r["model"], "gpus": r["gpus"], "recompute": r["recompute"], "optimus": r["optimus_s"],
                     **comparison(r["measured_s"], float(e.step_time), r["fitted"])})  # fmt: skip
    columns = (Column("model", "model"), Column("gpus", "GPUs", "1"), Column("recompute", "recompute"),
               Column("optimus", "Optimus", "s"), *comparison_columns("s", "measured"))  # fmt: skip
    notes = ("With the source of the fitted rows left out of the fit: 3.2 % (docs/training.md).",)
    return Table("training", "Table I: a training step on A100-80GB, tp 8", columns, tuple(rows), notes)


def inference() -> Table:
    """Its table II: latencies of Llama-2."""
    rows = []
    for r in published("technology-inference"):
        e = infer(r["model"], gpu=r["gpu"], tp=r["tp"], batch=1, prompt=200, output=200, engine="trtllm-nemo")
        rows.append({k: r[k] for k in ("model", "gpu", "tp")} | comparison(r["measured_s"], float(e.latency), FITTED))
    columns = (
        Column("model", "model"),
        Column("gpu", "GPU"),
        Column("tp", "tp", "1"),
        *comparison_columns("s", "measured"),
    )
    notes = ("With that engine left out of the fit: 10 % (docs/accuracy.md).",)
    return Table("inference", "Table II: Llama-2, batch 1, 200 tokens in, 200 out", columns, tuple(rows), notes)


def memory() -> Table:
    """Its figure 4: what fills an A100 under each policy of recomputation."""
    rows = []
    chosen = [r for r in published("technology-training")
              if r["engine"] == "megatron-2022" and r["recompute"] == "full"]  # fmt: skip
    for r in chosen:
        for policy, options in POLICIES.items():
            shape = {k: r[k] for k in ("tp", "pp", "vp", "batch", "micro_batch")}
            e = train(r["model"], gpu=A100, engine="megatron-2022", dtype="fp16", zero=0, efficiency="ideal",
                      **shape, **options)  # fmt: skip
            held = {k: float(v) for k, v in e.memory.parts.items()}
            state = {k: held.pop(k) for k in HELD}
            rows.append({"model": r["model"], "recompute": policy, **state, "rest": sum(held.values()),
                         "total": float(e.memory.total), "capacity": float(e.memory.capacity),
                         "fits": bool(e.fits)})  # fmt: skip
    columns = (Column("model", "model"), Column("recompute", "recompute"),
               *(Column(k, HEADS.get(k, k), "B", "GiB") for k in (*HELD, "total")),
               Column("fits", "fits"))  # fmt: skip
    notes = ("As the paper says: nothing fits without recomputation, everything with selective or full.",)
    return Table("memory", "Figure 4: GiB of the fullest A100-80GB by recomputation", columns, tuple(rows), notes)


DRAWN = "gpt3-175b"
"""The model of its pictures."""
LADDERS = {DRAWN: Ladder(DRAWN), "llama-3.1-70b": Ladder("llama-3.1-70b", seq=8192)}
"""Model -> the stated configuration, of the work's model and of one of today's."""


def ladder() -> Table:
    """Its figure 5: times faster a sequence than A100 with HDR, rung by rung."""
    rows = []
    for model, own in LADDERS.items():
        times = {mode: own.times(mode) for mode in MODES} | {"one width": own.times("ideal", "one width")}
        for name in rungs():
            last = PRINTED if (model, name) == (DRAWN, ends()[1]) else None
            rows.append({"model": model, "system": name, "products": rungs()[name]["dtype"],
                         **{k: v[name] for k, v in times.items()}, "printed": last})  # fmt: skip
    columns = (Column("model", "model"), Column("system", "system"), Column("products", "products"),
               *(Column(k, k, "times") for k in (*MODES, "one width")),
               Column("printed", "paper", "times"))  # fmt: skip
    notes = (
        "1024 GPUs, tp 8, pp 8, selective recomputation, 1024 sequences a step (L: four times as many).",
        "one width: bytes of all kernels and messages, and all products, in the narrowest format, as a tool counts that"
        " has one precision; no training runs so. `rooflm explore generations MODEL --readings` varies what the paper"
        " leaves open.",
    )
    return Table("ladder", "Figure 5: times faster a sequence than A100 with HDR", columns, tuple(rows), notes)


def worth() -> Table:
    """What each change from the first rung to the last is worth."""
    names = (*CHANGES, "efficiency")
    rows = []
    for model, own in LADDERS.items():
        for mode in MODES:
            factors = own.worth(mode)
            all_ = float(np.prod([*factors.values()]))
            rows.append({"model": model, "mode": mode, **{n: factors.get(n) for n in names}, "all": all_})
    columns = (
        Column("model", "model"),
        Column("mode", "mode"),
        *(Column(n, HEADS.get(n, n), "times") for n in (*names, "all")),
    )
    notes = ("Factors whose product is the whole; each the mean over all orders of making the changes.",)
    return Table("worth", "What each change of the ladder is worth", columns, tuple(rows), notes)


def serving() -> Table:
    """The same cards in inference, with today's engine and models."""
    gpus = (A100, "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb")
    rows = []
    for model, tp in (("llama-2-13b", 1), ("llama-2-70b", 8), ("llama-3.1-70b", 8), ("gpt-oss-120b", 1)):
        grid = infer_grid(model, gpu=gpus, tp=tp, batch=[1, 64], prompt=200, output=200,
                          outputs=["ttft_s", "tpot_s", "latency_s", "fits"])  # fmt: skip
        for gpu in gpus:
            for batch in (1, 64):
                at = grid.sel(gpu=gpu, batch=batch)
                times = {k: float(at[k]) if bool(at.fits) else None for k in ("ttft_s", "tpot_s", "latency_s")}
                rows.append({"model": model, "tp": tp, "gpu": gpu, "batch": batch, **times})
    columns = (Column("model", "model"), Column("tp", "tp", "1"), Column("gpu", "GPU"), Column("batch", "batch", "1"),
               Column("ttft_s", "first token", "s"), Column("tpot_s", "a token", "s"),
               Column("latency_s", "request", "s"))  # fmt: skip
    return Table("serving", "The same step in inference: 200 tokens in, 200 out", columns, tuple(rows))


def memory_picture(table: Table) -> Picture:
    """Stacked bars against the card's memory."""
    made = [
        Bar(r["recompute"], {**{k: r[k] / GB for k in HELD}, "other": r["rest"] / GB}, r["model"], r["capacity"] / GB,
            "" if r["fits"] else "OOM")
        for r in table.rows
    ]  # fmt: skip
    return bars("Training memory of GPT models on one A100 80 GB, by recomputation",
                Scale("memory of the fullest GPU (GB)"), made,
                "tp 8, Korthikanti et al.'s four configurations", "the card's 80 GiB")  # fmt: skip


def ladder_picture() -> Picture:
    """Time a sequence over that of the last rung, by segment."""
    found = LADDERS[DRAWN].segments()
    unit = sum(found[ends()[1]].values())
    made = [Bar(f"{k}, {rungs()[k]['dtype']}", {p: s / unit for p, s in v.items()}) for k, v in found.items()]
    return bars(f"{DRAWN} training on 1024 GPUs, A100 to B200", Scale(f"time a sequence, {ends()[1]} = 1"), made,
                "calibrated, tp 8, pp 8; the paper prints about 35 for the first bar")  # fmt: skip


def times_picture(table: Table) -> Picture:
    """Times faster than the first rung, a line a way of reading the kernels' rates, and what the paper prints."""
    mine = [r for r in table.rows if r["model"] == DRAWN]
    made = [Curve(mode, np.array([float(r[mode]) for r in mine])) for mode in (*MODES, "one width")]
    printed = [r for r in mine if r["printed"]]
    made.append(Curve("the paper", np.array([float(r["printed"]) for r in printed]),
                      tuple(r["system"] for r in printed), dots=True))  # fmt: skip
    return lines(f"{DRAWN} training on 1024 GPUs: times faster than {ends()[0]}",
                 Side("system", tuple(r["system"] for r in mine)), Scale("times faster a sequence", log=True), made,
                 "rates of the kernels: calibrated, flat shares of the peak, or ideal; one width: all in the"
                 " narrowest format")  # fmt: skip


PICTURES = ("ladder", "times", "memory", *hardware.PICTURES)
"""Names of its pictures, the first drawn where none is asked for."""


def study() -> Study:
    """All tables and pictures."""
    steps, requests, held, rungs_ = training(), inference(), memory(), ladder()
    series = hardware.bottleneck()
    error = {n: errors_of(t.rows) for n, t in (("steps", steps), ("requests", requests))}
    said = {n: f"{100 * e.mean:.1f} %, at most {100 * e.most:.1f} %" for n, e in error.items()}
    apart = errors_of(steps.pairs(fitted="no"))
    whole = LADDERS[DRAWN].gain("calibrated")
    return Study(
        "technology", "Training and inference from A100 to B200, and the technology beneath",
        "Optimus: Kundu, Guo, BanaGozar, De Alwis, Sengupta, Gupta and Mallik, IISWC 2024, arXiv 2407.14645; ladder and"
        " sweeps by its figures' captions, its tool is closed",
        ("Calibrated tables I and II are of runs that took part in the fit, except where the last column says no.",
         "Nodes, memories and networks: ideal rates, no software, so bounds that move as hardware moves."),
        (steps, requests, held, rungs_, worth(), serving(), hardware.gemv(), hardware.gemms(),
         hardware.dram(), hardware.network(), hardware.nodes(), series),
        (f"Steps are off by {said['steps']} (two rows in no fit: {100 * apart.mean:.1f} %; Optimus itself 4.6 and 9.3);"
         f" requests by {said['requests']} (Optimus 13 at most).",
         f"A100 to B200 is {whole:.1f} times, where the paper prints about 35: no reading with the formats of real"
         " training reaches it.",
         *hardware.findings(series)),
        dict(zip(PICTURES, (ladder_picture, lambda: times_picture(rungs_), lambda: memory_picture(held),
                            *hardware.PICTURES.values()), strict=True)),
    )  # fmt: skip
