"""Pictures of a simulated deployment and of what a search found."""

from __future__ import annotations

from typing import Any

import numpy as np

from rooflm.errors import RooflmError
from rooflm.plots.bars import Bar, bars
from rooflm.plots.front import Cloud, front
from rooflm.plots.lines import Curve, Panel, timeline
from rooflm.plots.picture import Picture
from rooflm.plots.scale import Scale, Side
from rooflm.serving.said import title
from rooflm.shown.numbers import text


def load_picture(served: Any) -> Picture:
    """Requests queued and running, and KV memory, over time: requests hold, memory grows and is given back."""
    line = served.timeline
    times = tuple(line["time_s"].tolist())
    twice = tuple(np.repeat(line["time_s"], 2).tolist())
    held = 100 * np.column_stack([line["kv_before"], line["kv"]]).reshape(-1)
    counts = tuple(Curve(name, line[name], steps=True) for name in ("waiting", "running"))
    share = Scale("KV memory (% of capacity)", percent=True)
    panels = [Panel("", Scale("requests"), counts), Panel("", share, (Curve("KV memory", held, x=twice),))]
    about = f"{title(served.run.pools)}: {served.run.requests.name}"
    return timeline("Requests and KV memory over time", Side("time (s)", times, time=True), panels, about)


def search_picture(found: Any) -> Picture:
    """What a search found: of serving the trade-off of throughput and speed, of training the step times of the best.
    RooflmError where it found nothing."""
    if not found.top:
        raise RooflmError("the search found no legal point, so there is nothing to draw")
    same = {k: v for k, v in found.top[0].inputs.items()
            if len(found.front) > 1 and all(c.inputs.get(k) == v for c in (*found.top, *found.front))}  # fmt: skip

    def label(c: Any) -> str:
        return str(found.named({k: v for k, v in c.inputs.items() if k not in same}))

    shared = found.named(same) if any(v != 1 for v in same.values()) else ""
    about = ": ".join(filter(None, (found.model, shared)))
    if "tpot_s" not in found.top[0].outputs:
        steps = [(label(c), c.outputs["step_time_s"]) for c in found.top]
        made = [Bar(name, {"step": step}, end=text(step, "")) for name, step in steps]
        return bars(f"Best {found.goal.name}", Scale("step time (s)"), made, about)
    edge = sorted(found.front, key=lambda c: c.outputs["tpot_s"])
    user = np.array([1 / c.outputs["tpot_s"] for c in edge])
    gpu = np.array([c.outputs["output_tokens_per_s_per_gpu"] for c in edge])
    cloud = Cloud("trade-off", user, gpu, np.arange(len(edge)), tuple(map(label, edge)))
    sides = Scale("output tokens/s for one user"), Scale("output tokens/s per GPU")
    return front(f"Trade-off; best {found.goal.name}", *sides, [cloud], about)
