"""Labels in matplotlib figures, set where they cover neither each other nor what they name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.patheffects import withStroke

INK = "#222222"
HALO = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}


def spaced(axes: Any, texts: list[tuple[float, float, str, str]]) -> None:
    """Labels beside their points: one for points that lie on each other, pushed down where two labels would."""
    groups: list[tuple[float, float, list[str], str]] = []
    for x, y, name, colour in sorted(texts, key=lambda t: (-t[1], t[0])):
        lx, ly = math.log10(x), math.log10(y)
        near = next((g for g in groups if g[3] == colour and abs(lx - g[0]) < 0.15 and abs(ly - g[1]) < 0.15), None)
        if near is None:
            groups.append((lx, ly, [name], colour))
        elif name not in near[2]:
            near[2].append(name)
    placed: list[tuple[float, float]] = []
    low, high = (math.log10(v) for v in axes.get_xlim())
    for lx, ly, names, colour in groups:
        left = lx > low + 0.7 * (high - low)  # no room at its right
        shift = -0.22 if left else 0.0
        while any(abs(lx - px) < 0.9 and abs(ly + shift - py) < 0.14 for px, py in placed):
            shift -= 0.15
        placed.append((lx, ly + shift))
        told = ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")
        axes.annotate(
            told,
            (10**lx, 10**ly),
            xytext=(10 ** (lx - 0.02 if left else lx + 0.12), 10 ** (ly + shift)),
            fontsize=8,
            color=INK,
            va="center",
            ha="right" if left else "left",
            bbox=HALO,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6},
        )


SIZE = 7.5
"""Points: size of the labels of `beside`."""


def beside(axes: Any, labels: Sequence[tuple[float, float, str]], lines: Sequence[tuple[Any, Any]]) -> None:
    """Labels (x, y, text in data units) above, below or beside their points: each where its box covers least
    of the lines (arrays of x and y), of the labels before it, and of what lies outside the axes."""
    axes.figure.draw_without_rendering()  # settles the layout, on which the scales to points rest
    points = 72.0 / axes.figure.dpi
    busy = [np.empty((0, 2))]
    for x, y in lines:
        ends = axes.transData.transform(np.column_stack([x, y])) * points
        busy += [np.linspace(a, b, 12) for a, b in pairwise(ends)] or [ends]
        busy += [ends] * 4  # a marker weighs more than a line
    taken, frame = np.concatenate(busy), axes.get_window_extent()
    inside = np.array([[frame.x0, frame.y0], [frame.x1, frame.y1]]) * points
    for x, y, text in labels:
        wide, tall = 0.51 * SIZE * len(text), 1.2 * SIZE
        at = axes.transData.transform((x, y)) * points
        aside = wide / 2 + 4
        places = [(0.0, 11.0), (0.0, -11.0), (aside + 3, 0.0), (-aside - 3, 0.0)]
        places += [(side, up) for up in (10.0, -10.0) for side in (aside, -aside)]
        best: tuple[float, Any] = (np.inf, None)
        for shift in places:
            half = np.array([wide / 2, tall / 2])
            box = np.array([at + shift - half, at + shift + half])
            covered = np.all((taken > box[0] - 2) & (taken < box[1] + 2), axis=1).sum()
            outside = np.maximum(inside[0] - box[0], 0).sum() + np.maximum(box[1] - inside[1], 0).sum()
            best = min(best, (float(covered + 3 * outside), (shift, box)), key=lambda found: found[0])
        shift, box = best[1]
        across, up = np.linspace(box[0, 0], box[1, 0], 8), np.linspace(box[0, 1], box[1, 1], 3)
        corners = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
        taken = np.concatenate([taken, corners, corners])  # another label weighs more than a line
        axes.annotate(
            text, (x, y), xytext=shift, textcoords="offset points", fontsize=SIZE, color="#444444", ha="center",
            va="center", path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip
