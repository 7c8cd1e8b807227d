"""llm-analysis (Cheng Li): GPU-hours and latency of LLaMA 7B to 65B by closed formulas, beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rooflm.api import infer, infer_grid, train, train_grid
from rooflm.plots.bars import Bar, bars
from rooflm.plots.picture import Picture
from rooflm.plots.scale import Scale
from rooflm.works.study import Column, Study, Table, comparison, comparison_columns, errors_of, published

A100, H100 = "a100-sxm-80gb", "h100-sxm-80gb"
GPUS = 2048
LAYOUT: dict[str, Any] = {
    "gpus": GPUS, "tp": 8, "pp": 8, "batch": 4_000_000, "seq": 2048, "recompute": "selective", "sp": True, "zero": 0,
}  # fmt: skip
"""The layout of its script, which takes the paper's 4 million tokens of a step for 4 million sequences."""
OWN_LAYOUT: dict[str, dict[str, Any]] = {"llama-33b": {"tp": 4, "pp": 4}}
"""33B has 52 heads of 128, which do not divide by 8; 60 layers over 4 stages of 4 devices do."""
HEADS = {"llama-33b": (64, 104)}
"""Heads and their size by which 33B's shapes divide by 8 as its script takes them; the FLOPs are the same."""
TODAY: tuple[tuple[str, str], ...] = (
    (A100, "bf16"), (H100, "bf16"), (H100, "fp8"), ("h200-sxm-141gb", "fp8"), ("b200-sxm-180gb", "bf16"),
    ("b200-sxm-180gb", "nvfp4"), ("mi300x", "bf16"),
)  # fmt: skip
NEWER = {"llama-65b": 1.4e12, "llama-3.1-8b": 15e12, "llama-3.1-70b": 15e12}
"""Model -> tokens of its own training."""
PARTS = {
    "attn": "attention", "mlp": "mlp", "layernorm": "norm", "tp_comm": "tp_comm", "input_embedding": "embedding",
    "output_embedding_loss": "logits",
}  # fmt: skip
"""Its names of the parts of a model -> ours."""


def simplified(model: str) -> dict[str, Any]:
    """A LLaMA by the shapes of its script: two products of 4 h in the feed-forward instead of three of 8/3 h, one table
    for embedding and head; changes for `sets`."""
    hidden = {"llama-7b": 4096, "llama-13b": 5120, "llama-33b": 6656, "llama-65b": 8192}[model]
    shape = {"ffn.gated": False, "ffn.width": 4 * hidden}
    if model in HEADS:
        heads, size = HEADS[model]
        shape |= {"mixer.heads": heads, "mixer.kv_heads": heads, "mixer.head_dim": size}
    return {"model.tied": True, **{f"model.blocks.0.{k}": v for k, v in shape.items()}}


def run(row: Mapping[str, Any], gpu: str = A100, efficiency: str = "0.5,0.9", simple: bool = True) -> Any:
    """One of its training runs as we predict it. simple: by its shapes and layout, else by the model's own."""
    model = str(row["model"])
    layout = LAYOUT | ({"engine": "megatron-2022"} if simple else OWN_LAYOUT.get(model, {}))
    return train(
        model, gpu=gpu, tokens=1e9 * row["tokens_g"], micro_batch=row["micro_batch"], efficiency=efficiency,
        sets=simplified(model) if simple else None, **layout,
    )  # fmt: skip


def formula() -> Table:
    """GPU-hours of FLOPs alone: its formula and ours, by its shapes and layout."""
    rows = []
    for counted, column, gpu, efficiency in (
        ("its FLOPs at half the peak", "gpu_hours", A100, "0.5,0.9"),
        ("the same on H100", "h100_gpu_hours", H100, "0.5,0.9"),
        ("the same at the whole peak", "ideal_gpu_hours", A100, "ideal"),
    ):
        for row in published("analysis-hours"):
            ours = float(run(row, gpu, efficiency).flops_gpu_hours)
            rows.append({"counted": counted, "model": row["model"], **comparison(row[column], ours)})
    columns = (Column("counted", "counted"), Column("model", "model"), *comparison_columns("h", "llm-analysis"))
    notes = (
        "Steps are whole: we take the nearest number (122 and 171), its script drops the last part of one (122, 170).",
        "33B's 52 heads do not divide by 8: its FLOPs are those of 64 narrower heads.",
    )
    title = "GPU-hours by FLOPs alone, 2048 GPUs, tp 8, pp 8, its shapes (two products in the feed-forward)"
    return Table("formula", title, columns, tuple(rows), notes)


def hours() -> Table:
    """GPU-hours of the runs as the paper gives them, beside its formula and our predictions of the real shapes."""
    rows = []
    for row in published("analysis-hours"):
        real, full = run(row, simple=False), run(row, efficiency="calibrated", simple=False)
        for counted, ours in (
            ("llm-analysis", row["gpu_hours"]),
            ("FLOPs at half the peak", float(real.flops_gpu_hours)),
            ("calibrated", float(full.gpu_hours)),
        ):
            rows.append({"counted": counted, "model": row["model"], **comparison(row["paper_gpu_hours"], ours)})
    rows.sort(key=lambda r: ("llm-analysis", "FLOPs at half the peak", "calibrated").index(str(r["counted"])))
    columns = (
        Column("counted", "counted"),
        Column("model", "model"),
        *comparison_columns("h", "the paper", "predicted"),
    )
    notes = ("Real shapes; 33B runs tp 4, pp 4, the others tp 8, pp 8, with the micro-batches of its script.",)
    return Table("hours", "GPU-hours of the runs on 2048 A100-80GB", columns, tuple(rows), notes)


def today() -> Table:
    """The same runs, and two of today's models, on cards since."""
    rows = []
    for model, tokens in NEWER.items():
        grid = train_grid(
            model, gpu=[g for g, _ in TODAY], dtype=[d for _, d in TODAY], zip=("gpu", "dtype"), gpus=GPUS, tp=8, pp=4,
            batch=2048, seq=2048, tokens=tokens, outputs=["gpu_hours", "days", "mfu", "cost_usd", "fits"],
        )  # fmt: skip
        for i, (gpu, dtype) in enumerate(TODAY):
            found = {k: float(np.ravel(grid[k].values)[i]) for k in ("gpu_hours", "days", "mfu", "cost_usd")}
            fits = bool(np.ravel(grid.fits.values)[i])
            shown = found if fits else dict.fromkeys(found)
            rows.append({"model": model, "gpu": gpu, "dtype": dtype, **shown})
    columns = (Column("model", "model"), Column("gpu", "GPU"), Column("dtype", "products"),
               Column("gpu_hours", "GPU-hours", "h"), Column("days", "days", "d"), Column("mfu", "MFU", "share"),
               Column("cost_usd", "rent", "USD"))  # fmt: skip
    title = "The like on later cards: 2048 GPUs, tp 8, pp 4, 2048 sequences of 2048 tokens a step, calibrated"
    note = ("Where later cards gain nothing, the CPU that launches kernels bounds the step: `--set engine.graphed=1` "
            "of `rooflm train` puts layers in CUDA graphs.")  # fmt: skip
    return Table("today", title, columns, tuple(rows), (note,))


def latency() -> Table:
    """Prefill and decode of its tables, by scheme and efficiency."""
    rows, found = [], {}
    for row in published("analysis-latency"):
        key = tuple(row[k] for k in ("model", "quant", "tp", "efficiency"))
        if key not in found:
            found[key] = infer(row["model"], gpu=A100, batch=1, prompt=512, output=32, tp=row["tp"], quant=row["quant"],
                               efficiency=row["efficiency"])  # fmt: skip
        ours = found[key].ttft if row["phase"] == "prefill" else found[key].tpot
        shown = {k: row[k] for k in ("model", "quant", "efficiency", "phase")}
        rows.append(shown | comparison(row["seconds"], float(ours)))
    columns = (Column("model", "model"), Column("quant", "scheme"), Column("efficiency", "of peak"),
               Column("phase", "phase"), *comparison_columns("s"))  # fmt: skip
    notes = (
        "It counts the full square of attention scores, a head row for every prompt token and a KV cache that is loaded"
        " and stored; we count causal halves, the last row, and one read: hence the few per cent.",
    )
    title = "LLaMA on A100-80GB: batch 1, prompt 512, 32 tokens out (65B in 16 bits over two)"
    return Table("latency", title, columns, tuple(rows), notes)


def later() -> Table:
    """The best that the same work can take on later cards, and what a server takes."""
    gpus, schemes = (A100, H100, "h200-sxm-141gb", "b200-sxm-180gb"), ("w16a16", "w8a8", "w4a16")
    rows = []
    for model in ("llama-7b", "llama-13b", "llama-33b", "llama-3.1-8b", "qwen3-32b"):
        for efficiency in ("ideal", "calibrated"):
            grid = infer_grid(model, gpu=gpus, quant=schemes, batch=1, prompt=512, output=32, efficiency=efficiency,
                              outputs=["ttft_s", "tpot_s", "fits"])  # fmt: skip
            for gpu in gpus:
                for scheme in schemes:
                    at = grid.sel(gpu=gpu, quant=scheme)
                    both = {"prefill": float(at.ttft_s), "decode": float(at.tpot_s)} if bool(at.fits) else {}
                    rows.append({"model": model, "gpu": gpu, "quant": scheme, "efficiency": efficiency,
                                 "prefill": both.get("prefill"), "decode": both.get("decode")})  # fmt: skip
    columns = (Column("model", "model"), Column("gpu", "GPU"), Column("quant", "scheme"),
               Column("efficiency", "efficiency"), Column("prefill", "prefill", "s"),
               Column("decode", "a token", "s"))  # fmt: skip
    return Table("later", "The same request on later cards and models", columns, tuple(rows))


def parts() -> Table:
    """Its breakdowns beside ours: of the ideal prefill and decode step, and of a training run's forward pass."""
    rows = []
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in published("analysis-hours"):
        forward = run(row).detail["forward"]
        found[str(row["model"]), "forward"] = {k: float(v) / LAYOUT["pp"] for k, v in forward.items()}
        e = infer(row["model"], gpu=A100, prompt=512, output=32, tp=2 if row["model"] == "llama-65b" else 1,
                  efficiency="ideal")  # fmt: skip
        found[str(row["model"]), "prefill"], found[str(row["model"]), "decode"] = e.prefill_parts, e.decode_parts
    for row in published("analysis-parts"):
        ours = float(found[row["model"], row["phase"]].get(PARTS[row["part"]], 0.0))
        theirs = float(row["seconds"])
        whole = sum(r["seconds"] for r in published("analysis-parts")
                    if (r["model"], r["phase"]) == (row["model"], row["phase"]))  # fmt: skip
        mine = sum(map(float, found[row["model"], row["phase"]].values()))
        rows.append({"model": row["model"], "phase": row["phase"], "part": PARTS[row["part"]].replace("_", " "),
                     "theirs": theirs, "ours": ours, "their_share": theirs / whole,
                     "our_share": ours / mine})  # fmt: skip
    columns = (Column("model", "model"), Column("phase", "phase"), Column("part", "part"),
               Column("theirs", "its time", "s"), Column("ours", "ours", "s"),
               Column("their_share", "its share", "share"), Column("our_share", "ours", "share"))  # fmt: skip
    notes = ("forward: one stage's share of a micro-batch; it charges a read of the whole token table as embedding, and"
             " the head on every stage, we its rows and the head's own stage.",)  # fmt: skip
    return Table("parts", "Where the time goes, part by part", columns, tuple(rows), notes)


def hours_picture(table: Table, newer: Table) -> Picture:
    """GPU-hours of 65B's training, published and ours, beside the same on later cards."""
    told = {r["counted"]: r for r in table.rows if r["model"] == "llama-65b"}
    made = [Bar("the paper, A100", {"published": told["calibrated"]["published"] / 1e3}),
            Bar("llm-analysis, A100", {"published": told["llm-analysis"]["ours"] / 1e3})]  # fmt: skip
    made += [Bar(f"{r['gpu'].split('-')[0].upper()}, {r['dtype']}", {"predicted": r["gpu_hours"] / 1e3})
             for r in newer.rows if r["model"] == "llama-65b" and r["gpu_hours"] is not None]  # fmt: skip
    return bars("GPU-hours of training LLaMA 65B on 1.4 T tokens, 2048 GPUs", Scale("GPU-hours (thousands)"), made,
                "published: two rows of A100; predicted: calibrated, tp 8, pp 4, micro-batch 1,\n"
                "of which the quicker cards wait for the CPU that launches their kernels")  # fmt: skip


def parts_picture(table: Table) -> Picture:
    """Shares of a prefill, a decode step and a training forward pass of 7B, its and ours."""
    made = []
    for phase in ("forward", "prefill", "decode"):
        rows = [r for r in table.rows if (r["model"], r["phase"]) == ("llama-7b", phase)]
        for whose, key in (("llm-analysis", "their_share"), ("rooflm", "our_share")):
            made.append(Bar(whose, {r["part"].replace(" ", "_"): 100 * r[key] for r in rows}, phase))
    return bars("LLaMA 7B: share of the time by part", Scale("share of the time (%)", percent=True), made,
                "forward: of a training micro-batch; prefill and decode: ideal rates")  # fmt: skip


PICTURES = ("hours", "parts")
"""Names of its pictures, the first drawn where none is asked for."""


def study() -> Study:
    """All tables and pictures."""
    flops, runs, newer, times, shares = made = formula(), hours(), today(), latency(), parts()
    sums = [
        errors_of(rows) for rows in (flops.rows, [r for r in runs.rows if r["counted"] == "calibrated"], times.rows)
    ]
    said = [f"{100 * e.mean:.1f} %, at most {100 * e.most:.1f} %" for e in sums]
    return Study(
        "analysis", "LLaMA 7B to 65B by formula: GPU-hours, latency, parts",
        "llm-analysis (Cheng Li), github.com/cli99/llm-analysis, release of May 2023; GPU-hours of the runs: Touvron et"
        " al. 2023, arXiv 2302.13971, table 15",
        ("Nothing was fitted on any row here: its formulas and ours start from the same datasheets.",
         "Its training hours count FLOPs alone, at half the peak; `rooflm train --flops-only` does the same."),
        (*made, later()),
        (f"FLOPs alone, by its shapes: off its hours by {said[0]}.",
         f"Calibrated, by the real shapes: off the paper's hours by {said[1]}.",
         f"Latencies: off its tables by {said[2]}."),
        dict(zip(PICTURES, (lambda: hours_picture(runs, newer), lambda: parts_picture(shares)), strict=True)),
    )  # fmt: skip
