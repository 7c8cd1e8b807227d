"""Shin et al.: inference time, memory, bytes between GPUs, utilisation and accuracy by split, fusion and batch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rooflm.api import infer, infer_grid
from rooflm.plots.bars import Bar, bars
from rooflm.plots.lines import Curve, lines
from rooflm.plots.picture import Picture
from rooflm.plots.scale import Scale, Side
from rooflm.readers.rows import DATA
from rooflm.works.study import KEPT, Column, Study, Table, comparison, comparison_columns, errors_of, published

if TYPE_CHECKING:
    import xarray

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
PROMPT, OUTPUT, GPUS = 128, 128, 4
MACHINES = (("llama-2-7b", "a100-pcie-40gb"), ("llama-3.1-8b", "h100-sxm-80gb"), ("qwen3-32b", "h200-sxm-141gb"))
"""Model and GPU: as one of the work's time would choose them (its own are not public), and of today."""
MACHINE, SMALL = (str(DATA / "works" / f"profiler-{name}.toml") for name in ("machine", "model"))
"""Two cores as `rooflm calibrate` made them a device, and the small Llama that ran on them."""
STRATEGIES = ("tensor", "pipeline")
KERNELS = ("unfused", "fused")


@lru_cache
def grid(model: str, gpu: str) -> xarray.Dataset:
    """Kernels (unfused, fused) by strategy (tensor, pipeline) by batch, in plain PyTorch."""
    return infer_grid(
        model, gpu=gpu, engine="hf-eager-4.28", sets={"engine.fused": [False, True]}, tp=[GPUS, 1], pp=[1, GPUS],
        zip=("tp", "pp"), batch=BATCHES, prompt=PROMPT, output=OUTPUT,
        outputs=["comm_bytes", "memory_bytes", "latency_s", "max_batch", "fits", "busy", "output_tokens_per_s"],
    )  # fmt: skip


def ordered(found: xarray.Dataset, key: str) -> np.ndarray[Any, Any]:
    """An output with the axes fused, strategy, batch."""
    values: np.ndarray[Any, Any] = found[key].transpose("engine.fused", "tp", "batch").values
    return values


def sent(found: xarray.Dataset) -> np.ndarray[Any, Any]:
    """Bytes that one GPU sends for a whole request: the prefill and every decode step after it."""
    prefill, decode = ordered(found, "comm_bytes.prefill"), ordered(found, "comm_bytes.decode")
    whole: np.ndarray[Any, Any] = prefill + (OUTPUT - 1) * decode
    return whole


def by_hand(strategy: str, batch: int) -> float:
    """Bytes that one of four GPUs sends for a request of Llama-2 7B, counted by hand: two all-reduces a layer of 16-bit
    hidden values, 2 (n-1)/n of them each; or one message a stage border, from three of four stages."""
    layers, hidden, tokens = 32, 4096, batch * (PROMPT + OUTPUT - 1)
    if strategy == "tensor":
        return 2 * layers * 2 * (GPUS - 1) / GPUS * tokens * hidden * 2
    return float(tokens * hidden * 2)


def table(model: str, gpu: str) -> Table:
    """Time, memory, bytes, busy share and rate of one machine."""
    found = grid(model, gpu)
    keys = ("memory_bytes", "latency_s", "output_tokens_per_s", "busy", "fits")
    values = {k: ordered(found, k) for k in keys} | {"sent": sent(found)}
    rows = []
    for i, fusion in enumerate(KERNELS):
        for j, strategy in enumerate(STRATEGIES):
            for k, batch in enumerate(BATCHES):
                fits = bool(values["fits"][i, j, k])
                ran = {n: float(values[n][i, j, k]) if fits else None
                       for n in ("latency_s", "output_tokens_per_s", "busy")}  # fmt: skip
                rows.append({"kernels": fusion, "strategy": strategy, "batch": batch,
                             "sent": float(values["sent"][i, j, k]), "memory": float(values["memory_bytes"][i, j, k]),
                             "fits": fits, **ran})  # fmt: skip
    columns = (Column("kernels", "kernels"), Column("strategy", "split"), Column("batch", "batch", "1"),
               Column("sent", "sent a GPU", "B"), Column("memory", "memory", "B"), Column("fits", "fits"),
               Column("latency_s", "request", "s"), Column("output_tokens_per_s", "tokens/s", "1/s"),
               Column("busy", "busy", "share"))  # fmt: skip
    return Table(f"{model}", f"{model} over {GPUS} {gpu}: {PROMPT} tokens in, {OUTPUT} out", columns, tuple(rows))


def bytes_table() -> Table:
    """Bytes that a GPU sends, beside those counted by hand."""
    values = sent(grid(*MACHINES[0]))[0]
    rows = [
        {"strategy": s, "batch": b, **comparison(by_hand(s, b), float(values[j, k]), KEPT)}
        for j, s in enumerate(STRATEGIES) for k, b in enumerate(BATCHES) if b in (1, 8, 64)
    ]  # fmt: skip
    columns = (Column("strategy", "split"), Column("batch", "batch", "1"), *comparison_columns("B", "by hand"))
    notes = (
        "By hand leaves out embedding and logits of a vocabulary split in four, and an idle last stage. Measured with"
        " gloo between processes, `rooflm measure --strategy tp2,pp2` counts the same bytes as predicted.",
    )
    return Table("bytes", "Bytes that one of four GPUs sends for a request of Llama-2 7B", columns, tuple(rows), notes)


@lru_cache
def measured() -> tuple[Mapping[str, Any], ...]:
    """The cases that `rooflm measure` ran on two cores, with what is predicted of each."""
    found = []
    for r in published("profiler-measured"):
        two = {k: 2 if r["split"] == split else 1 for k, split in (("tp", "tensor"), ("pp", "pipeline"))}
        e = infer(SMALL, gpu=MACHINE, quant="fp32", batch=r["batch"], prompt=r["prompt"], output=r["output"],
                  sets={"engine.fused": r["kernels"] == "fused"}, tp=two["tp"], pp=two["pp"])  # fmt: skip
        found.append({**r, "predicted": {"ttft_s": float(e.ttft), "tpot_s": float(e.tpot),
                                         "memory_bytes": float(e.memory.total),
                                         **{f"{k}_bytes": float(v) for k, v in e.comm_bytes.items()}}})  # fmt: skip
    return tuple(found)


FIT = ("ttft_s", "tpot_s", "memory_bytes")
"""Metrics to which the machine's constants were fitted."""
CASE = (Column("case", "split"), Column("batch", "batch", "1"))
"""The columns that say which case was measured."""


def rows_of(metrics: Mapping[str, str]) -> tuple[Mapping[str, Any], ...]:
    """A row for each metric (name -> its words) of each measured case that has it and is not zero."""
    cases = [(r, m) for r in measured() for m in metrics if r[m]]
    return tuple({"case": r["split"] if r["kernels"] == "unfused" else f"{r['split']}, fused", "what": metrics[m],
                  **{k: r[k] for k in ("split", "kernels", "batch", "prompt", "load")},
                  **comparison(float(r[m]), r["predicted"][m], r["fitted"] if m in FIT else KEPT)}
                 for r, m in cases)  # fmt: skip


def measured_times() -> Table:
    """Times of the strategies as measured on two cores, beside the predicted ones."""
    rows = rows_of({"ttft_s": "first token", "tpot_s": "per token"})
    columns = (*CASE, Column("load", "load"), Column("what", "time"), *comparison_columns("s", "measured", "predicted"))
    notes = (
        "A Llama of six layers (examples/configs/llama-110m, fp32), one rank a core, CPU time of the ranks; 128 tokens"
        " in with light other load on the cores, 64 with heavy. Those with heavy load took 1.2 to 1.8 times what is"
        " predicted, whatever the split: cores that are shared are slower by the CPU's own clock too.",
    )
    return Table("measured", "Measured on two cores: time by split and kernels", columns, rows, notes)


def measured_bytes() -> Table:
    """Memory and bytes of the strategies as measured on two cores, beside the predicted ones."""
    rows = rows_of({"memory_bytes": "memory", "prefill_bytes": "sent, prefill", "decode_bytes": "sent, a step"})
    columns = (*CASE, Column("prompt", "prompt", "1"), Column("what", "of a rank"),
               *comparison_columns("B", "measured", "predicted"))  # fmt: skip
    return Table("measured-bytes", "Measured on two cores: memory and bytes by split", columns, rows)


def findings_table() -> Table:
    """Each finding of the work's abstract, and what comes out here."""
    found = grid(*MACHINES[0])
    time, fits, rate = (ordered(found, k) for k in ("latency_s", "fits", "output_tokens_per_s"))
    volume = sent(found)
    both = fits[0] & fits[1]
    per = rate / np.array(BATCHES)
    said = (
        f"sends {volume[0, 0, 6] / volume[0, 0, 0]:.0f} times the bytes at batch 64; a sequence gets"
        f" {100 * per[0, 0, 6] / per[0, 0, 0]:.0f} % of its rate",
        f"out of memory above batch {int(ordered(found, 'max_batch')[0, 0, 0])} (tensor),"
        f" {int(ordered(found, 'max_batch')[0, 1, 0])} (pipeline)",
        f"pipeline: {volume[0, 1, 3] / volume[0, 0, 3]:.3f} of the bytes, {time[0, 1, 3] / time[0, 0, 3]:.1f} times the"
        " time at batch 8",
        f"{(time[1] / time[0])[both].min():.2f} to {(time[1] / time[0])[both].max():.2f} of the unfused kernels' time",
    )
    own = published("profiler-findings")
    predicted = iter(said)
    here = [r["measured"] or next(predicted) for r in own]
    rows = [{"axis": r["axis"], "finding": r["finding"], "here": s} for r, s in zip(own, here, strict=True)]
    columns = (Column("axis", "axis"), Column("here", "what comes out here, of the first machine"))
    notes = ("The abstract: " + "; ".join(str(r["finding"]) for r in own) + ".",)
    return Table("findings", "What the abstract says, and what comes out", columns, tuple(rows), notes)


def sent_picture() -> Picture:
    """Bytes a request over the batch."""
    values = sent(grid(*MACHINES[0]))[0] / 1e9
    curves = [Curve(f"{s} parallel", values[j]) for j, s in enumerate(STRATEGIES)]
    title = f"{MACHINES[0][0]} over {GPUS} GPUs: sent by one GPU for a request"
    return lines(title, Side("batch (sequences)", BATCHES),
                 Scale("sent (GB)", log=True), curves)  # fmt: skip


def time_picture() -> Picture:
    """Seconds of a request at batch 8 by split and kernels."""
    made = []
    for model, gpu in MACHINES:
        time = ordered(grid(model, gpu), "latency_s")[:, :, BATCHES.index(8)]
        made += [Bar(f"{strategy}, {fusion}", {"predicted": float(time[i, j])}, f"{model}, {gpu.split('-')[0]}")
                 for j, strategy in enumerate(STRATEGIES) for i, fusion in enumerate(KERNELS)]  # fmt: skip
    return bars("A request at batch 8 over four GPUs, by split and kernels", Scale("time (s)"), made)


PICTURES = {"sent": sent_picture, "time": time_picture}
"""Its pictures, the first drawn where none is asked for."""


def study() -> Study:
    """All tables and pictures."""
    hand, times, memory = bytes_table(), measured_times(), measured_bytes()
    off = errors_of(hand.pairs())
    quiet, loud = (errors_of(times.pairs(load=word)) for word in ("light", "heavy"))
    aside = errors_of(times.pairs(load="light", fitted=KEPT))
    held = errors_of(memory.pairs(what="memory"))
    sent = errors_of([r for r in memory.pairs() if r["what"] != "memory"])
    return Study(
        "profiler", "Time, memory and bytes of inference by split, fusion and batch",
        "Shin, Go, Yoo, Yang and Yoo, J-KICS 49(10), 1377-1385, 2024, doi 10.7840/kics.2024.49.10.1377 (abstract; its"
        " models, GPUs and tables are not public)",
        ("Plain PyTorch (engine hf-eager-4.28) on four GPUs; nothing of the work could be fitted, it prints no number.",
         "Measured with the project's own profiler on two cores; on a machine of one's own: `rooflm measure MODEL"
         " --strategy none,tp2,pp2 --optimise none,compile --batch 1,8,64` and `rooflm compare`."),
        (findings_table(), hand, times, memory, *(table(*m) for m in MACHINES)),
        (f"Bytes between the GPUs are those counted by hand, within {100 * off.most:.0f} %.",
         f"Measured on two cores: bytes sent as predicted (off by at most {sent.most:.0e}); memory off by"
         f" {100 * held.mean:.0f} %; times off by {100 * quiet.mean:.0f} % with light other load on the cores"
         f" ({100 * aside.mean:.0f} % in no fit), by {100 * loud.mean:.0f} % with heavy load.",
         *(f"By {r['axis']}: {r['here']}." for r in findings_table().rows[:4])),
        PICTURES,
    )  # fmt: skip
