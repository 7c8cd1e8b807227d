"""Draws pictures as one self-contained interactive page with plotly (the extra `rooflm[plot]`)."""

from __future__ import annotations

import html
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from rooflm.errors import RooflmError
from rooflm.plots.pictures import MOST_MARKED, OKABE_ITO, Bars, Front, HeatMap, Lines, Picture, Roofline

DASHES = ("solid", "dash", "dashdot", "dot")


def needed() -> Any:
    """plotly's graph objects. Raises RooflmError when plotly is not installed."""
    try:
        import plotly.graph_objects
        import plotly.subplots
    except ImportError as error:
        raise RooflmError("an .html picture needs plotly: pip install 'rooflm[plot]', or write .png or .svg") from error
    return plotly


def save(picture: Picture, path: str) -> None:
    """Write the page."""
    text = figure_of(picture).to_html(include_plotlyjs=True, full_html=True)
    text = text.replace("<head>", f"<head><title>{escape(picture.title.partition(chr(10))[0])}</title>", 1)
    Path(path).write_text(text, encoding="utf-8")


def figure_of(picture: Picture) -> Any:
    """The plotly figure of a picture."""
    plotly = needed()
    draw: dict[type, Any] = {HeatMap: _heatmap, Lines: _lines, Bars: _bars, Roofline: _roofline, Front: _front}
    figure = draw[type(picture)](picture, plotly)
    head, _, rest = picture.title.partition("\n")
    shown = f"<b>{html.escape(head)}</b>" + (f"<br><sub>{html.escape(rest)}</sub>" if rest else "")
    figure.update_layout(title=shown, template="plotly_white")
    return figure


def _heatmap(p: HeatMap, plotly: Any) -> Any:
    figure = plotly.subplots.make_subplots(
        1, len(p.panels), subplot_titles=[q.title for q in p.panels], shared_yaxes=True
    )
    cells = [q.cells for q in p.panels]
    real = np.concatenate([c[np.isfinite(c)] for c in cells])
    low, high = (0.0, 100.0) if p.scale.percent else (float(real.min(initial=0)), float(real.max(initial=1)))
    for i, panel in enumerate(p.panels):
        words = np.where(np.isfinite(panel.cells), np.vectorize(lambda v: f"{v:.3g}")(panel.cells), panel.why)
        figure.add_trace(
            plotly.graph_objects.Heatmap(
                z=panel.cells,
                x=p.x.ticks,
                y=p.y.ticks,
                text=words,
                texttemplate="%{text}",
                zmin=low,
                zmax=high,
                colorscale="Viridis",
                colorbar={"title": p.scale.label},
                showscale=i == 0,
            ),
            1,
            i + 1,
        )
        figure.update_xaxes(title=p.x.label, type="category", row=1, col=i + 1)
    figure.update_yaxes(title=p.y.label, type="category", row=1, col=1)
    figure.update_layout(plot_bgcolor="#C8C8C8")
    return figure


def _lines(p: Lines, plotly: Any) -> Any:
    figure = plotly.subplots.make_subplots(1, len(p.panels), subplot_titles=[t for t, _ in p.panels], shared_yaxes=True)
    for i, (_, series) in enumerate(p.panels):
        for j, one in enumerate(series):
            figure.add_trace(
                plotly.graph_objects.Scatter(
                    x=list(p.x.values),
                    y=one.y,
                    name=one.name,
                    legendgroup=one.name,
                    showlegend=i == 0,
                    mode="lines+markers" if len(p.x.values) <= MOST_MARKED else "lines",
                    line={
                        "color": OKABE_ITO[j % len(OKABE_ITO)],
                        "shape": "hv" if p.x.time else "linear",
                        "dash": "solid" if len(p.x.values) <= MOST_MARKED else DASHES[j % len(DASHES)],
                    },
                    marker={"symbol": j},
                ),
                1,
                i + 1,
            )
        figure.update_xaxes(title=p.x.label, type="log" if p.x.spread else None, row=1, col=i + 1)
    figure.update_yaxes(type="log" if p.scale.log else None)
    figure.update_yaxes(title=p.scale.label, row=1, col=1)
    return figure


def _bars(p: Bars, plotly: Any) -> Any:
    go = plotly.graph_objects
    labels = [text.replace("\n", "<br>") for text in p.labels]
    figure = go.Figure(
        [
            go.Bar(name=name, x=labels, y=values, marker_color=OKABE_ITO[i % len(OKABE_ITO)])
            for i, (name, values) in enumerate(p.parts.items())
        ]
    )
    if p.limits is not None:
        figure.add_trace(
            go.Scatter(
                name=p.limit_name,
                x=labels,
                y=p.limits,
                mode="markers",
                marker={"symbol": "line-ew", "size": 40, "line": {"width": 3, "color": "black"}},
            )
        )
    figure.update_layout(barmode="stack", yaxis_title=p.scale.label)
    return figure


def _roofline(p: Roofline, plotly: Any) -> Any:
    go = plotly.graph_objects
    figure = go.Figure(
        [go.Scatter(x=r.x, y=r.y, name=r.name, mode="lines", line={"color": "#444444"}) for r in p.roofs]
    )
    for i, cloud in enumerate(p.clouds):
        weight = np.ones(len(cloud.x)) if cloud.weight is None else cloud.weight
        figure.add_trace(
            go.Scatter(
                x=cloud.x,
                y=cloud.y,
                name=cloud.name,
                text=list(cloud.labels),
                mode="markers",
                marker={"size": 6 + 30 * np.sqrt(weight), "color": OKABE_ITO[i], "symbol": i},
            )
        )
    figure.update_xaxes(title="arithmetic intensity (FLOP/B)", type="log")
    figure.update_yaxes(title="performance (FLOP/s)", type="log")
    return figure


def _front(p: Front, plotly: Any) -> Any:
    go = plotly.graph_objects
    figure = go.Figure()
    for i, (cloud, best) in enumerate(zip(p.clouds, p.fronts, strict=True)):
        colour = OKABE_ITO[i % len(OKABE_ITO)]
        step = max(len(cloud.x) // 4000, 1)
        figure.add_trace(
            go.Scattergl(
                x=cloud.x[::step],
                y=cloud.y[::step],
                mode="markers",
                showlegend=False,
                marker={"size": 3, "color": colour, "opacity": 0.3},
            )
        )
        figure.add_trace(
            go.Scatter(
                x=cloud.x[best],
                y=cloud.y[best],
                mode="lines+markers",
                name=cloud.name,
                text=list(cloud.labels),
                line={"color": colour},
            )
        )
    figure.update_layout(xaxis_title=p.x.label, yaxis_title=p.y.label)
    return figure
