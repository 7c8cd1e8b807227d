"""Shortened LLaMA (Kim et al.): maps of GPU utilisation and latency over batch and length, pruned models too."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rooflm.api import infer, infer_grid
from rooflm.plots.lines import Curve, Panel, panels
from rooflm.plots.maps import Map, heatmap
from rooflm.plots.picture import Picture
from rooflm.plots.scale import Scale, Side
from rooflm.works.study import FITTED, KEPT, Column, Study, Table, comparison, comparison_columns, errors_of, published

if TYPE_CHECKING:
    import xarray

CASES = (
    ("llama-7b", "rtx-3090", 0.27),
    ("llama-7b", "a100-sxm-80gb", 0.27),
    ("llama-7b", "h100-sxm-80gb", 0.27),
    ("vicuna-13b", "h100-sxm-80gb", 0.29),
)
"""Model, GPU and share pruned of the work's maps."""
TODAY = (
    ("llama-3.1-8b", "rtx-5090", 0.27),
    ("llama-3.1-8b", "h200-sxm-141gb", 0.27),
    ("llama-3.1-8b", "b200-sxm-180gb", 0.27),
)
"""The same of today."""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512)
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
WORDS = {"original": "no", "width-pruned": "width", "depth-pruned": "depth"}
"""Variant -> what is pruned of it."""
SETUP: dict[str, Any] = {"engine": "hf-eager-4.28", "prompt": 12}
"""Hugging Face's generate in 16 bits, a prompt of some 12 tokens, output length forced."""
DRAWN = 384
"""The largest batch of the work's curves."""
VARIANTS = ("original", "width-pruned", "depth-pruned")


@lru_cache
def utilisation(cases: tuple[tuple[str, str, float], ...] = CASES) -> xarray.Dataset:
    """Busy share, fit and latency over case, batch and length."""
    models, gpus, _ = zip(*cases, strict=True)
    return infer_grid(models, gpu=gpus, zip=("model", "gpu"), batch=BATCHES, output=LENGTHS,
                      outputs=["busy", "fits", "latency_s", "memory_bytes"], **SETUP)  # fmt: skip


@lru_cache
def latency(model: str, gpu: str, share: float) -> xarray.Dataset:
    """Seconds of a request and its fit over variant, batch and length."""
    changes = {"model.width_prune": [0, share, 0], "model.depth_prune": [0, 0, share]}
    return infer_grid(model, gpu=gpu, batch=BATCHES, output=[128, 512], sets=changes, zip=tuple(changes),
                      outputs=["latency_s", "fits", "tpot_s"], **SETUP)  # fmt: skip


def curve(case: tuple[str, str, float], variant: str, output: int) -> np.ndarray[Any, Any]:
    """Latency (s) over the batch, not-a-number where memory ends."""
    grid = latency(*case)
    axis = next(d for d in grid["latency_s"].dims if d not in ("batch", "output"))
    at = grid.isel({axis: VARIANTS.index(variant)}).sel(output=output)
    values: np.ndarray[Any, Any] = np.where(at.fits.values, at["latency_s"].values, np.nan)
    return values


def cells() -> Table:
    """The cells whose number the work prints."""
    rows = []
    for r in published("maps-cells"):
        index = next(i for i, c in enumerate(CASES) if (c[0], c[1]) == (r["model"], r["gpu"]))
        at = utilisation().isel(model=index).sel(batch=r["batch"], output=r["output"])
        ours = float(at.busy) if bool(at.fits) else None
        rows.append({"model": r["model"], "gpu": r["gpu"], "batch": r["batch"], "output": r["output"],
                     **comparison(r["percent"] / 100, ours, r["fitted"]),
                     "verdict": "" if ours is not None else "OOM"})  # fmt: skip
    columns = (Column("model", "model"), Column("gpu", "GPU"), Column("batch", "batch", "1"),
               Column("output", "out", "1"), *comparison_columns("share", "printed"),
               Column("verdict", ""))  # fmt: skip
    notes = ("7B on RTX 3090, batch 128, 512 tokens cannot be: 32.8 GiB of KV cache and 12.6 of weights on 24.",)
    return Table("cells", "GPU busy (nvidia-smi's utilisation): the printed cells", columns, tuple(rows), notes)


def ends() -> Table:
    """The batch size at which memory ends, by length: the last batch of the map that runs."""
    rows = []
    for cases in (CASES, TODAY):
        grid = utilisation(cases)
        for i, (model, gpu, _) in enumerate(cases):
            fits = grid.fits.isel(model=i).transpose("batch", "output").values
            last = [max((b for b, ok in zip(BATCHES, fits[:, j], strict=True) if ok), default=0)
                    for j in range(len(LENGTHS))]  # fmt: skip
            rows.append({"model": model, "gpu": gpu, **{f"l{n}": b for n, b in zip(LENGTHS, last, strict=True)}})
    columns = (Column("model", "model"), Column("gpu", "GPU"), *(Column(f"l{n}", str(n), "1") for n in LENGTHS))
    notes = ("One batch further of the map is out of memory: weights, KV cache, what torch.cat holds twice of a layer,"
             " context. 7B with 512 tokens ends below 256 on 80 GB, as the work's originals do.",)  # fmt: skip
    return Table("ends", "The last batch that runs, by tokens generated", columns, tuple(rows), notes)


def times() -> Table:
    """Latency at batch 1 and at the last batch that runs, beside the ends of the work's curves."""
    rows = []
    for r in published("maps-latency"):
        case = next(c for c in CASES if (c[0], c[1]) == (r["model"], r["gpu"]))
        y = curve(case, r["variant"], r["output"])[: BATCHES.index(DRAWN) + 1]
        last = int(np.flatnonzero(np.isfinite(y))[-1])
        shown = {k: r[k] for k in ("model", "gpu", "output")} | {"variant": WORDS[r["variant"]]}
        for batch, value, key in ((1, y[0], "first_s"), (BATCHES[last], y[last], "last_s")):
            # only the first point's launch cost was set by these curves
            fitted = r["fitted"] if key == "first_s" else "no"
            rows.append(shown | {"batch": batch} | comparison(float(r[key]), float(value), fitted))
    columns = (Column("model", "model"), Column("gpu", "GPU"), Column("output", "out", "1"),
               Column("variant", "pruned"), Column("batch", "batch", "1"),
               *comparison_columns("s", "read"))  # fmt: skip
    notes = (
        "Read from a picture, 10 to 20 % either way; its tops are of the last batch of any variant, ours of the row's.",
        "RTX 3090 at batch 1: see the next table.",
    )
    return Table("times", "Latency of a request: the ends of the curves", columns, tuple(rows), notes)


SLOW = ("llama-7b", "rtx-3090", 512, "original")
"""The one reading that sets how long a launch took on the host of the work's RTX 3090."""
TRIED = (20e-6, 40e-6)
"""s a launch between which that is sought: a request's time grows in proportion where launches bound it."""


def single_request_latency(model: str, gpu: str, output: int, variant: str, issue: float) -> float:
    """Latency at batch 1 if a kernel launch takes the host `issue` seconds."""
    share = next(c[2] for c in CASES if c[:2] == (model, gpu))
    pruned = {f"model.{word}_prune": share * (WORDS[variant] == word) for word in ("width", "depth")}
    issues = dict.fromkeys(("engine.issue_prefill", "engine.issue_decode"), issue)
    return float(infer(model, gpu=gpu, batch=1, output=output, sets=pruned | issues, **SETUP).latency)


def slow_launch() -> float:
    """The launch time (s) that reproduces the reading SLOW."""
    read = next(float(r["first_s"]) for r in published("maps-latency")
                if (r["model"], r["gpu"], r["output"], r["variant"]) == SLOW)  # fmt: skip
    low, high = (single_request_latency(*SLOW, issue) for issue in TRIED)
    return TRIED[0] + (read - low) / (high - low) * (TRIED[1] - TRIED[0])


def hosts() -> Table:
    """RTX 3090 at batch 1: as predicted, and with the host's time a launch that one of the readings asks for."""
    slow, rows = slow_launch(), []
    for r in published("maps-latency"):
        where = (r["model"], r["gpu"], r["output"], r["variant"])
        if where[:2] != SLOW[:2]:
            continue
        usual = curve(next(c for c in CASES if c[:2] == where[:2]), r["variant"], r["output"])[0]
        off = float(usual / r["first_s"] - 1)
        rows.append(
            {
                "output": r["output"],
                "variant": WORDS[r["variant"]],
                "usual": off,
                **comparison(
                    float(r["first_s"]), single_request_latency(*where, slow), FITTED if where == SLOW else KEPT
                ),
            }
        )
    columns = (Column("output", "out", "1"), Column("variant", "pruned"),
               Column("usual", "off, usual host", "change"), *comparison_columns("s", "read", "slow host"))  # fmt: skip
    notes = (
        f"Slow host: {1e6 * slow:.0f} us a launch, which one of the six readings sets, where A100's and H100's hosts"
        " take 9.6. A layer of that release launches some 48 kernels (16 of its two norms, 12 of rotary positions), and"
        " some 1,400 launches a token bound these runs: narrower layers change nothing, fewer layers do.",
        "The host is no property of the card, so predictions keep the usual one; of a host of one's own:"
        f" --set engine.issue_decode={1e6 * slow:.0f}us --set engine.issue_prefill={1e6 * slow:.0f}us.",
    )
    return Table("hosts", "RTX 3090 at batch 1, by what a launch takes its host", columns, tuple(rows), notes)


def pruned() -> Table:
    """What pruning width or depth does to latency: over every cell that both models can run."""
    rows = []
    for case in (*CASES, *TODAY):
        for variant in VARIANTS[1:]:
            ratios = []
            for output in (128, 512):
                both = curve(case, variant, output) / curve(case, "original", output)
                ratios += [float(v) for v in both[np.isfinite(both)]]
            one = float(curve(case, variant, 128)[0] / curve(case, "original", 128)[0])
            rows.append({"model": case[0], "gpu": case[1], "share": case[2], "variant": variant, "one": one,
                         "least": min(ratios), "most": max(ratios)})  # fmt: skip
    columns = (Column("model", "model"), Column("gpu", "GPU"), Column("share", "pruned", "share"),
               Column("variant", "variant"), Column("one", "batch 1", "times"), Column("least", "least", "times"),
               Column("most", "most", "times"))  # fmt: skip
    notes = ("The work: fewer layers are faster at every batch, narrower ones at batch 1 are not. (Its scissors sign"
             " has been misread as x2: the variants are pruned, not doubled.)",)  # fmt: skip
    return Table("pruned", "Latency of pruned models over that of the original", columns, tuple(rows), notes)


def grid_table() -> Table:
    """Every cell of the maps, today's cards and models beside the work's."""
    rows = []
    for cases in (CASES, TODAY):
        grid = utilisation(cases).transpose("model", "batch", "output")
        for i, (model, gpu, _) in enumerate(cases):
            for j, batch in enumerate(BATCHES):
                for k, output in enumerate(LENGTHS):
                    fits = bool(grid.fits.values[i, j, k])
                    rows.append({"model": model, "gpu": gpu, "batch": batch, "output": output, "fits": fits,
                                 "busy": float(grid.busy.values[i, j, k]) if fits else None,
                                 "latency_s": float(grid.latency_s.values[i, j, k]) if fits else None})  # fmt: skip
    columns = (Column("model", "model"), Column("gpu", "GPU"), Column("batch", "batch", "1"),
               Column("output", "tokens out", "1"), Column("fits", "fits"), Column("busy", "busy", "share"),
               Column("latency_s", "latency", "s"))  # fmt: skip
    return Table("map", "Every cell of the maps", columns, tuple(rows))


def heat_map() -> Picture:
    """Busy share over batch and length, a map a case, OOM where memory ends."""
    made = []
    for cases in (CASES, TODAY):
        grid = utilisation(cases).transpose("model", "output", "batch")
        for i, (model, gpu, _) in enumerate(cases):
            fits = grid.fits.values[i]
            share = np.where(fits, 100 * grid.busy.values[i], np.nan)
            made.append(Map(f"{model}, {gpu.split('-sxm')[0]}", share, np.where(fits, "", "OOM")))
    return heatmap("GPU busy over batch and tokens generated", Side("batch (sequences)", BATCHES),
                   Side("tokens generated", LENGTHS), Scale("share of time with a kernel running (%)", percent=True),
                   made, "eager Hugging Face, 16 bits, 12 tokens in; the last three are of today",
                   across=2)  # fmt: skip


def curves(output: int) -> Picture:
    """Latency over the batch of the three variants, a panel a case; lines end where memory does."""
    made, scale = [], Scale("latency of a request (s)")
    for case in (*CASES, *TODAY[:2]):
        drawn = [Curve(v, y, lost=np.isnan(y)) for v in VARIANTS for y in [curve(case, v, output)]]
        drawn += [
            Curve(r["variant"], np.array([float(r["first_s"])]), (1,), dots=True)
            for r in published("maps-latency")
            if (r["model"], r["gpu"], r["output"]) == (*case[:2], output)
        ]
        made.append(Panel(f"{case[0]}, {case[1].split('-sxm')[0]}", scale, tuple(drawn)))
    return panels(f"Latency of a request, {output} tokens generated", Side("batch (sequences)", BATCHES), made,
                  "original, 27 or 29 % of the width, and of the layers, pruned",
                  ("hollow points: the work's at batch 1, read from its picture",))  # fmt: skip


PICTURES: dict[str, Callable[[], Picture]] = {
    "utilisation": heat_map, "latency-128": partial(curves, 128), "latency-512": partial(curves, 512),
}  # fmt: skip
"""Its pictures, the first drawn where none is asked for."""


def study() -> Study:
    """All tables and pictures."""
    printed, read, host = cells(), times(), hosts()
    ran = errors_of(printed.pairs())
    others = errors_of(host.pairs(fitted=KEPT)).mean
    early = {word: errors_of([r for r in read.pairs(fitted=word) if r["batch"] == 1]) for word in ("fitted", "no")}
    return Study(
        "maps", "GPU utilisation and latency over batch and length, original and pruned models",
        "Shortened LLaMA: Kim, Kim, Kim, Castells, Choi, Shin and Song, arXiv 2402.02834, and its repository's demo",
        ("Hugging Face's generate in 16 bits, torch 2.0 and 2.1, 12 tokens in, output length forced (engine"
         " hf-eager-4.28).",
         "The launch cost of that engine was set by the work's 14 ms a token of 7B on A100 and H100; nothing else here"
         " took part in a fit."),
        (printed, ends(), read, host, pruned(), grid_table()),
        (f"Printed utilisations that can be: off by {100 * ran.mean:.1f} %, at most {100 * ran.most:.1f} %.",
         "Memory ends where the originals' curves do: 7B with 512 tokens at batch 128 on 80 GB.",
         f"Latency at batch 1: {100 * early['fitted'].mean:.0f} % off where it set the constant,"
         f" {100 * early['no'].mean:.0f} % elsewhere. The work's RTX 3090 stood in a slower host: with the launch cost"
         f" that one of its six readings asks for the other five are {100 * others:.0f} % off.",
         "Fewer layers are faster at every batch; narrower ones at batch 1 only where memory bounds, not the host."),
        PICTURES,
    )  # fmt: skip
