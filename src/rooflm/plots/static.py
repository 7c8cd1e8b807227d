"""Draws pictures with matplotlib: png and svg, legible in print and without colour vision.

Colours: viridis for maps, Okabe and Ito's palette for lines and bars (with a marker or hatch each, so that grey prints
still tell them apart).
"""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.collections import PathCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rooflm.plots.labels import INK, beside, spaced
from rooflm.plots.pictures import (
    MOST_MARKED,
    OKABE_ITO,
    Bars,
    Front,
    HeatMap,
    Lines,
    Picture,
    Roofline,
    Scale,
    Side,
    number,
)

MARKERS = "osD^vP*X<>"
HATCHES = ("", "//", "..", "\\\\", "xx", "--", "++", "oo", "", "**")
GREY = "#C8C8C8"
STROKES = ("-", "--", "-.", ":")
MOST_WRITTEN = 20 * 16
"""Most cells of a map that get their value written in them."""
WIDEST = 11.0
"""Inches beyond which a picture of bars turns its labels rather than grow."""

STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "text.color": INK,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.axisbelow": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "rooflm",
    "figure.dpi": 130,
    "savefig.dpi": 160,
}


def save(picture: Picture, path: str) -> None:
    """Draw a picture and write it; the format is the path's."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        figure = figure_of(picture)
        figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def figure_of(picture: Picture) -> Figure:
    """The matplotlib figure of a picture."""
    draw: dict[type, Any] = {HeatMap: _heatmap, Lines: _lines, Bars: _bars, Roofline: _roofline, Front: _front}
    figure: Figure = draw[type(picture)](picture)
    return figure


def _figure(width: float, height: float, title: str) -> Figure:
    """A figure with its heading above, and the second line of the title as a small footing."""
    figure = Figure(figsize=(width, height), layout="constrained")
    head, _, rest = title.partition("\n")
    figure.suptitle(textwrap.fill(head, max(int(width * 8), 20)), fontsize=12, fontweight="bold")
    if rest:
        figure.supxlabel(textwrap.fill(rest, max(int(width * 13), 20)), fontsize=8.5, color="#555555")
    return figure


def _panels(figure: Figure, count: int, share: bool = True) -> list[Any]:
    columns = min(count, 3 if count != 4 else 2)
    rows = math.ceil(count / columns)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=share, sharey=share)
    flat = list(grid.flat)
    for extra in flat[count:]:
        extra.set_visible(False)
    return flat[:count]


def _cell(value: float, scale: Scale) -> str:
    """A value short enough for a cell."""
    if scale.percent:
        return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
    if abs(value) >= 1e4:
        return number(value)
    return f"{value:.0f}" if abs(value) >= 100 else (f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}")


def _heatmap(p: HeatMap) -> Figure:
    rows, columns = len(p.y.values), len(p.x.values)
    count = len(p.panels)
    across = min(count, 3 if count != 4 else 2)
    wide = min(max(0.46 * columns, 3.2), 8.0) + 0.7
    tall = min(max(0.34 * rows, 2.4), 7.5) + 0.5
    figure = _figure(max(wide * across + 1.2, 6.0), tall * math.ceil(count / across) + 1.3, p.title)
    flat = _panels(figure, count)
    real = np.concatenate([q.cells[np.isfinite(q.cells)].reshape(-1) for q in p.panels] or [np.zeros(1)])
    low, high = (float(real.min()), float(real.max())) if real.size else (0.0, 1.0)
    if p.scale.percent:
        low, high = 0.0, 100.0
    high = high if high > low else low + abs(low) * 0.01 + 1e-12
    norm: Any = LogNorm(low, high) if p.scale.log and low > 0 else Normalize(low, high)
    colours = colormaps["viridis"].with_extremes(bad=GREY)
    size = max(5.5, min(9.0, 15 * wide / columns, 28 * tall / rows))
    mesh = None
    for axes, panel in zip(flat, p.panels, strict=True):
        mesh = axes.imshow(np.ma.masked_invalid(panel.cells), norm=norm, cmap=colours, aspect="auto", origin="lower")
        axes.set_title(panel.title)
        axes.set_xticks(range(columns), p.x.ticks)
        axes.set_yticks(range(rows), p.y.ticks)
        if columns > 14 or max(map(len, p.x.ticks)) * columns > 60:
            axes.tick_params(axis="x", labelrotation=90)
        _thin_ticks(axes, rows, columns)
        axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
        axes.tick_params(which="minor", length=0)
        if rows * columns <= MOST_WRITTEN:
            axes.grid(which="minor", color="white", linewidth=0.8)
            _write_cells(axes, panel, p.scale, norm, colours, size)
        elif (panel.why == "OOM").any():
            axes.plot([], [], "s", color=GREY, label="OOM: does not fit in memory")
            axes.legend(loc="upper right")
        axes.label_outer()
    for axes in flat:
        if axes.get_subplotspec().is_last_row() or len(flat) <= across:
            axes.set_xlabel(p.x.label)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel(p.y.label)
    if mesh is not None and real.size:
        name = textwrap.fill(p.scale.label, max(int(13 * tall * math.ceil(count / across)), 24))
        bar = figure.colorbar(mesh, ax=flat, label=name, fraction=0.05, pad=0.02)
        if isinstance(norm, LogNorm):
            _plain_log(bar.ax.yaxis, low, high)
    return figure


def _thin_ticks(axes: Any, rows: int, columns: int) -> None:
    """Write every second, fourth, ... tick where there are too many to read."""
    for count, axis in ((columns, axes.xaxis), (rows, axes.yaxis)):
        step = 2 ** max(math.ceil(math.log2(count / 32)), 0) if count > 32 else 1
        for place, text in enumerate(axis.get_ticklabels()):
            text.set_visible(place % step == 0)


def _write_cells(axes: Any, panel: Any, scale: Scale, norm: Any, colours: Any, size: float) -> None:
    """The value (or the word that says why there is none) in each cell, in black or white, whichever reads."""
    for (row, column), value in np.ndenumerate(panel.cells):
        if np.isfinite(value):
            red, green, blue, _ = colours(norm(value))
            ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
            axes.text(column, row, _cell(value, scale), ha="center", va="center", fontsize=size, color=ink)
        else:
            why = str(panel.why[row, column])
            axes.text(column, row, why, ha="center", va="center", fontsize=size * 0.85, color="#555555")


def _plain_log(axis: Any, low: float, high: float) -> None:
    """Plain numbers on a logarithmic axis, more of them when it spans little."""
    decades = math.log10(high / low) if low > 0 and high > low else 1.0
    subs = (1.0,) if decades > 4 else ((1.0, 2.0, 5.0) if decades > 0.8 else tuple(np.arange(1.0, 10.0)))
    axis.set_major_locator(LogLocator(subs=subs, numticks=30))
    axis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
    axis.set_minor_formatter(NullFormatter())


def _x_axis(axes: Any, side: Side) -> None:
    if side.spread:
        axes.set_xscale("log", base=2)
        values: list[float] = []
        apart = max(math.log2(max(side.values) / min(side.values)) / 12, 0.75)
        for value in sorted(side.values):
            if not values or math.log2(value / values[-1]) >= apart:
                values.append(value)
        axes.set_xticks(values, [number(v) for v in values])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))


def _lines(p: Lines) -> Figure:
    count = len(p.panels)
    columns = min(count, 3 if count != 4 else 2)
    figure = _figure(max(4.6 * columns, 7.2), 3.7 * math.ceil(count / columns) + 1.2, p.title)
    flat = _panels(figure, count)
    values = np.concatenate([s.y for _, series in p.panels for s in series])
    real = values[np.isfinite(values)]
    xs = np.array(p.x.values, dtype=float) if p.x.numeric else np.arange(len(p.x.values))
    for axes, (title, series) in zip(flat, p.panels, strict=True):
        for i, one in enumerate(series):
            axes.plot(
                xs,
                one.y,
                color=OKABE_ITO[i % len(OKABE_ITO)],
                marker=MARKERS[i % len(MARKERS)] if len(xs) <= MOST_MARKED else "",
                linestyle=STROKES[i % len(STROKES)] if len(xs) > MOST_MARKED else "-",
                drawstyle="steps-post" if p.x.time else "default",
                markersize=4.5,
                linewidth=1.6,
                label=one.name,
            )
            _end_mark(axes, xs, one.y, OKABE_ITO[i % len(OKABE_ITO)])
        axes.set_title(title)
        axes.grid(color="#E2E2E2")
        if p.x.numeric:
            _x_axis(axes, p.x)
        else:
            axes.set_xticks(xs, p.x.ticks)
        if p.scale.log and real.size:
            axes.set_yscale("log")
            axes.margins(y=0.08)
            _plain_log(axes.yaxis, float(real.min()), float(real.max()))
        else:
            top = float(real.max(initial=0.0))
            axes.set_ylim(0, 102 if p.scale.percent and top > 60 else 1.05 * top or 1.0)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
        axes.set_xlabel(p.x.label)
    flat[0].set_ylabel(textwrap.fill(p.scale.label, 46))
    if any(s.name for s in p.panels[0][1]):
        handles, labels = flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", frameon=False)
    if p.note:
        flat[-1].annotate(p.note, (0.99, 0.02), xycoords="axes fraction", ha="right", fontsize=8, color="#555555")
    return figure


def _end_mark(axes: Any, x: Any, y: Any, colour: str) -> None:
    """A cross at the last point of a line that ends before the axis does."""
    good = np.flatnonzero(np.isfinite(y))
    if good.size and good[-1] < len(y) - 1:
        axes.plot(x[good[-1]], y[good[-1]], marker="x", markersize=9, markeredgewidth=2, color=colour)


def _bars(p: Bars) -> Figure:
    count = len(p.labels)
    longest = max(len(line) for label in p.labels for line in label.split("\n"))
    side_by_side = count * (0.085 * longest + 0.15) + 2.4  # inches: labels of 10 points, and the legend
    turned = side_by_side > WIDEST
    wide = max(0.55 * count + 4.2, 7.0, 0.0 if turned else side_by_side)
    figure = _figure(wide, 5.2 + (0.05 * longest if turned else 0), p.title)
    axes = figure.subplots()
    base = np.zeros(count)
    width = 0.7 if count > 1 else 0.35
    for i, (name, values) in enumerate(p.parts.items()):
        axes.bar(
            range(count),
            values,
            width,
            bottom=base,
            label=name,
            color=OKABE_ITO[i % len(OKABE_ITO)],
            hatch=HATCHES[i % len(HATCHES)],
            edgecolor="white",
            linewidth=0.5,
        )
        base = base + values
    top = float(base.max(initial=0.0))
    if p.limits is not None:
        for place, limit in enumerate(p.limits):
            axes.hlines(
                limit,
                place - width / 2 - 0.1,
                place + width / 2 + 0.1,
                color="black",
                linewidth=2,
                label=p.limit_name if place == 0 else "_",
            )
        top = max(top, float(np.max(p.limits)))
    for place, mark in enumerate(p.marks):
        if mark:
            axes.text(
                place, base[place] + 0.01 * top, mark, ha="center", va="bottom", fontweight="bold", color="#B00000"
            )
    axes.set_ylim(0, 100 if p.scale.percent else top * 1.08)
    axes.set_xlim(-0.6 if count > 1 else -1, count - 0.4 if count > 1 else 1)
    axes.set_xticks(
        range(count),
        [v.replace("\n", ", ") for v in p.labels] if turned else p.labels,
        rotation=60 if turned else 0,
        ha="right" if turned else "center",
    )
    axes.set_ylabel(p.scale.label)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
    axes.grid(axis="y", color="#E2E2E2")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right upper", frameon=False)
    return figure


def _roofline(p: Roofline) -> Figure:
    figure = _figure(9.0, 5.6, p.title)
    axes = figure.subplots()
    styles = ("-", "--", "-.", ":")
    for i, roof in enumerate(p.roofs):
        axes.plot(roof.x, roof.y, color="#444444", linestyle=styles[i % 4], linewidth=1.4, label=roof.name)
    texts: list[tuple[float, float, str, str]] = []
    for i, cloud in enumerate(p.clouds):
        colour = OKABE_ITO[i]
        weight = np.ones(len(cloud.x)) if cloud.weight is None else cloud.weight
        axes.scatter(
            cloud.x,
            cloud.y,
            s=25 + 500 * weight,
            color=colour,
            marker=MARKERS[i],
            alpha=0.8,
            edgecolor="white",
            label=cloud.name,
        )
        heavy = set(np.argsort(-weight)[:6].tolist())
        texts += [(cloud.x[j], cloud.y[j], cloud.labels[j], colour) for j in heavy if weight[j] >= 0.02]
    axes.set_xscale("log")
    axes.set_yscale("log")
    spaced(axes, texts)
    axes.set_xlabel("arithmetic intensity (FLOP/B)")
    axes.set_ylabel("performance (FLOP/s)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
    axes.grid(color="#E8E8E8", which="major")
    legend = figure.legend(loc="outside right upper", frameon=False, title="area: share of the time")
    for handle in legend.legend_handles:
        if isinstance(handle, PathCollection):
            handle.set_sizes([45])
    return figure


def _front(p: Front) -> Figure:
    figure = _figure(8.6, 5.6, p.title)
    axes = figure.subplots()
    low, high = np.inf, 0.0
    written: list[tuple[float, float, str]] = []
    for i, (cloud, best) in enumerate(zip(p.clouds, p.fronts, strict=True)):
        colour = OKABE_ITO[i % len(OKABE_ITO)]
        step = max(len(cloud.x) // 4000, 1)
        axes.scatter(cloud.x[::step], cloud.y[::step], s=6, color=colour, alpha=0.25, linewidths=0, rasterized=True)
        axes.plot(
            cloud.x[best],
            cloud.y[best],
            color=colour,
            marker=MARKERS[i % len(MARKERS)],
            markersize=5,
            linewidth=1.8,
            label=cloud.name,
        )
        if len(best):
            low, high = min(low, float(cloud.y[best].min())), max(high, float(cloud.y[best].max()))
        some = sorted({0, len(best) // 2, len(best) - 1}) if len(best) and len(p.clouds) <= 4 else ()
        written += [(float(cloud.x[best[j]]), float(cloud.y[best[j]]), cloud.labels[j]) for j in some]
    axes.set_xlabel(p.x.label)
    axes.set_ylabel(p.y.label)
    if low > 0 and high > 20 * low:
        axes.set_yscale("log")
    axes.margins(x=0.13, y=0.1)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
    axes.grid(color="#E2E2E2")
    if len(p.clouds) > 1:
        figure.legend(loc="outside right upper", frameon=False)
    beside(axes, written, [(c.x[best], c.y[best]) for c, best in zip(p.clouds, p.fronts, strict=True)])
    return figure
