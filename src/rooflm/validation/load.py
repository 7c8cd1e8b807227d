"""Published rows measured under load -> predictions of the serving simulator; one run for all figures of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from rooflm.errors import RooflmError
from rooflm.serving.published import figures
from rooflm.validation.request import ServeRequest

REASONS = {
    "mtp-suspect": "under load: multi-token prediction suspected, not stated",
    "anomalous": "under load: contradicts its own neighbours",
    "precision-unstated": "under load: precision not stated",
    "layout-doubtful": "under load: split over GPUs in doubt",
}
"""Flag of a row whose conditions are not known -> why it is not scored (decided before any prediction)."""
NEEDED = ("model", "gpu", "tp", "prompt", "output")
"""What a run must state to be simulated."""


def barred(request: ServeRequest) -> str:
    """Why a row under load is not scored, or an empty text."""
    if any(request.kwargs.get(k) is None for k in NEEDED):
        return "under load: split or lengths not stated"
    return next((REASONS[f] for f in request.flags if f in REASONS), "")


def run_of(request: ServeRequest) -> str:
    """What rows must share to be figures of one simulated run."""
    load = (request.concurrency, request.rate, request.requests, request.spread, request.flags)
    return json.dumps((request.kwargs, load, request.facts), sort_keys=True, default=str)


def predict_load(
    requests: Sequence[ServeRequest], tell: Callable[[int], None] | None = None
) -> list[tuple[float, str]]:
    """(prediction in SI, reason why there is none) of each row, in order. tell: called with the rows done since."""
    done: dict[str, dict[str, float] | str] = {}
    result = []
    for r in requests:
        if tell:
            tell(1)
        why = barred(r)
        if why:
            result.append((float("nan"), why))
            continue
        run = run_of(r)
        if run not in done:
            try:
                done[run] = figures(r)
            except RooflmError as error:
                done[run] = str(error)
        found = done[run]
        result.append((float("nan"), found) if isinstance(found, str) else (found[r.metric], ""))
    return result
