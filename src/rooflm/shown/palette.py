"""The colour of every part (of a model, of memory, of time, of traffic), the same in all pictures.

Blues and oranges are a model's kernels, greens the passes of a training step, purples traffic between GPUs, greys idle
time; memory has its own colours. Neighbours also differ in lightness, so that they can be told apart without colour
vision and in grey print.
"""

from __future__ import annotations

from collections.abc import Iterable

PARTS = {
    # kernels of a model
    "attention": "#0072B2",
    "mlp": "#E69F00",
    "moe": "#A65628",
    "norm": "#F0E442",
    "embedding": "#B5DDF2",
    "logits": "#56B4E9",
    # what bounds
    "compute": "#0072B2",
    "dram": "#E69F00",
    "l2": "#F0E442",
    "l1": "#FFF3B0",
    # what a die is made of
    "cores": "#4C9FD0",
    "registers": "#009E73",
    "intra": "#CC79A7",
    "inter": "#8E4585",
    # passes of a training step
    "forward": "#66C2A5",
    "backward": "#00735C",
    "recompute": "#BFE8D4",
    # state and memory
    "weights": "#332288",
    "gradients": "#CC6677",
    "optimizer": "#D55E00",
    "offload": "#7F2704",
    "kv_cache": "#44AA99",
    "activations": "#DDCC77",
    "buffers": "#882255",
    # traffic
    "communication": "#8E4585",
    "tp_comm": "#CC79A7",
    "tp_regather": "#EBC3DA",
    "pp_comm": "#5E2A62",
    "dp_comm": "#9B6FB5",
    "cp_comm": "#D3B5E5",
    "ep_comm": "#C2185B",
    "network": "#8E4585",
    # nothing is computed
    "host": "#4D4D4D",
    "gaps": "#A6A6A6",
    "request": "#737373",
    "bubble": "#C9C9C9",
    "schedule": "#C9C9C9",
    "imbalance": "#8C8C8C",
    "overlap_tax": "#595959",
    # memory that holds nothing of the model
    "context": "#8C8C8C",
    "workspace": "#BFBFBF",
    "fragmentation": "#666666",
    # whose number
    "predicted": "#0072B2",
    "measured": "#222222",
    "published": "#222222",
    "other": "#E6E6E6",
}
"""Part -> its colour, in the order in which bars stack them."""

SERIES = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C6D1F", "#000000", "#999999", "#F0E442")
"""Colours of lines and groups that are no part of the above, in their order (Okabe and Ito 2008, yellow last, a brown
and a grey added): people with any kind of colour vision tell them apart."""

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
"""Markers that go with SERIES, so that grey prints tell lines apart."""
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
"""Strokes of lines that go with them, in pixels drawn and left out."""

EMPTY, LIMIT, GOOD = "#D0D0D0", "#111111", "#EEF3EE"
"""Cells that hold no value, lines of a limit, and the stretch in which a value is near enough."""


def colours(parts: Iterable[str]) -> dict[str, str]:
    """Colour by part, in the order in which they are stacked: the known ones as PARTS has them, then the rest, which
    take the colours of SERIES that are left.

    >>> colours(["zeal", "tp comm", "attention"])
    {'attention': '#0072B2', 'tp comm': '#CC79A7', 'zeal': '#E69F00'}
    """
    asked = dict.fromkeys(parts)
    place = {part: i for i, part in enumerate(PARTS)}
    if "weights" in asked:  # memory, in which logits are no kernel of the model
        place["logits"] = place["activations"]
    named = {p: p.replace(" ", "_") for p in asked}
    known = {p: PARTS[named[p]] for p in sorted((p for p in asked if named[p] in place), key=lambda p: place[named[p]])}
    last = {"other": known.pop("other")} if "other" in known else {}
    left = [c for c in SERIES if c not in known.values()] or list(SERIES)
    rest = [p for p in asked if p not in known and p not in last]
    return known | {p: left[i % len(left)] for i, p in enumerate(rest)} | last


def inked(colour: str) -> str:
    """A colour as dark as small words on white must be to be read: a contrast of 4.5 (WCAG 2.1, 1.4.3).

    >>> inked("#0072B2"), inked("#E69F00"), inked("#F0E442")
    ('#0072b2', '#9c6c00', '#7e7723')
    """
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    dim = min((0.18 / max(light, 1e-9)) ** (1 / 2.2), 1.0)
    return "#" + "".join(f"{round(255 * part * dim):02x}" for part in (red, green, blue))


def series(names: Iterable[str]) -> dict[str, str]:
    """Colour by name of lines or groups, in their order.

    >>> series(["a100", "h100"])
    {'a100': '#0072B2', 'h100': '#E69F00'}
    """
    return {name: SERIES[i % len(SERIES)] for i, name in enumerate(dict.fromkeys(names))}
