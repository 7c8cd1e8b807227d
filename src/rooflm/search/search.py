"""The best point of a space under constraints: exact, because every point of the space is evaluated by array sweeps.
Each block of the grids is digested where it runs (search/digest.py); here the digests become one answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from rooflm.errors import RooflmError
from rooflm.search.digest import KEPT, AnswerKey, Digest, Location, Ranked, SearchTask
from rooflm.search.limits import MEMORY, Limit, percent, times
from rooflm.search.result import Blocked, SearchResult
from rooflm.search.space import Candidate
from rooflm.shown.progress import notebook_clock, tell_done
from rooflm.sweep.axes import size_of
from rooflm.sweep.pareto import front
from rooflm.sweep.sweep import blocks
from rooflm.sweep.workers import in_processes, spread

BLOCKED = 3
"""Better points that a constraint rules out that a search explains."""
SPLIT = 250
"""Points of a grid of small arrays that take as long as all else that a grid takes."""
MOST = 50_000_000
"""Most points of a search: what is kept of those that break a limit fits in memory."""


def search(
    task: SearchTask, on: str = "local", assumed: Iterable[str] = (), plain_grids: int = 0, small: bool = False
) -> SearchResult:
    """Evaluate every point of the grids; the best, the front, and what rules out better points. plain_grids: the first
    so many grids have no pools and the others do; their own answer is kept too (0: all grids are of one kind); small:
    the arrays of a grid are small, so that most of its time is plain Python's. Ctrl-C ends it with what was evaluated
    until then, if anything was."""
    points = sum(size_of(grid.axes) for grid in task.grids)
    if points > MOST:
        raise RooflmError(
            f"this search has {points:,} points, more than the {MOST:,} that are tried: name fewer values "
            "(--gpus, --tp, --pp, --batch and the like), or a smaller --gpus-max"
        )
    parts = [(i, b) for i, grid in enumerate(task.grids) for b in blocks(grid.axes, task.block)]
    order = {part: i for i, part in enumerate(parts)}
    with notebook_clock("searching"):
        worth = len(parts) + points / SPLIT
        done = in_processes(task, parts, worth) if small and on == "local" else spread(task, parts, on)
        found, tried, interrupted = {}, 0, ""
        with closing(done):  # whoever listens may end it: then its processes end at once, too
            try:
                for part, digest in done:
                    found[order[part]] = digest
                    tell_done(tried := tried + digest.points, points)
            except KeyboardInterrupt:
                if not found:
                    raise
                interrupted = f"{tried:,} of {points:,} points evaluated"
    digests = [found[i] for i in sorted(found)]
    answer = replace(concluded(task, digests, assumed), interrupted=interrupted)
    plain = [d for d in digests if d.where.grid < plain_grids]
    if not plain or plain_grids == len(task.grids):
        return answer
    return replace(answer, without_pools=concluded(task, plain, assumed))


def concluded(task: SearchTask, digests: Sequence[Digest], assumed: Iterable[str]) -> SearchResult:
    """The answer that the digests of all blocks make."""
    limits = task.rules
    top, twins = merged(task, digests)
    edges = [e for d in digests for e in d.front]
    kept: Any = front(np.array([e[0] for e in edges]), np.array([e[1] for e in edges])) if edges else []
    different = [i for n, i in enumerate(kept) if n == 0 or not same_trade(edges[int(kept[n - 1])], edges[int(i)])]
    chosen = [task.candidate(*edges[int(i)][2:]) for i in thinned(different, 4 * KEPT)]
    near = min((d.nearest for d in digests if d.nearest), key=lambda n: n[0], default=None)
    feasible = sum(d.feasible for d in digests)
    best = tuple(task.candidate(t.spot, t.outputs) for t in top)
    return SearchResult(
        task.goal, sum(d.points for d in digests), feasible, best, tuple(chosen),
        tuple(_blocked(task, digests, top[0], limits)) if top else (),
        None if feasible or near is None else _explained(task, near[1], limits),
        () if feasible else tuple(_unmet(limits, digests)), tuple(assumed),
        without_effect([(task.inputs(t.spot), [task.inputs(s) for s in twins[i]]) for i, t in enumerate(top)]),
        error_band=task.error_band(top[0].spot) if top else {}, **_of_cards(task, digests, best),
        limits=tuple(limit.told for limit in task.limits),
    )  # fmt: skip


def _of_cards(task: SearchTask, digests: Sequence[Digest], best: Sequence[Candidate]) -> dict[str, Any]:
    """The best point of each card of which the best answers hold none, and the cards that have no legal point."""
    first: dict[str, Candidate] = {}
    for one in sorted((r for d in digests for r in d.by_card), key=lambda r: (r.score, r.then, r.spot)):
        first.setdefault(str(task.inputs(one.spot)["gpu"]), task.candidate(one.spot, one.outputs))
    named = {str(c.inputs.get("gpu")) for c in best}
    others = tuple(c for name, c in first.items() if name not in named)
    return {"others": others, "ruled_out": tuple(n for n in task.cards if first and n not in first)}


def thinned(indices: Any, most: int) -> list[int]:
    """At most `most` of the indices, evenly spaced, including both ends.

    >>> thinned(range(5), 3)
    [0, 2, 4]
    """
    listed = [int(i) for i in indices]
    if len(listed) <= most:
        return listed
    return [listed[round(i * (len(listed) - 1) / (most - 1))] for i in range(most)]


def same_trade(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two points of a front are the same trade-off, differing only in an option without effect."""
    return bool(np.allclose(one[:2], other[:2], rtol=1e-9, atol=0.0))


def merged(task: SearchTask, digests: Sequence[Digest]) -> tuple[list[Ranked], list[list[Location]]]:
    """The best answers of all blocks, and the twins of each; of these the first of the space stands."""
    kept: list[Ranked] = []
    others: list[list[Location]] = []
    seen: set[AnswerKey] = set()
    for one in sorted((t for d in digests for t in d.top), key=lambda t: (float(f"{t.score:.12g}"), t.then, t.spot)):
        twin = next((i for i, k in enumerate(kept) if task.twin_outputs and one.signature == k.signature), None)
        if twin is not None and one.answer not in seen:
            others[twin].append(one.spot)
        elif one.answer not in seen:
            if len(kept) == KEPT:
                break
            kept.append(one)
            others.append([])
        seen.add(one.answer)
    return kept, others


def without_effect(points: Sequence[tuple[dict[str, Any], Sequence[dict[str, Any]]]]) -> tuple[str, ...]:
    """Options that differ between points with the same outputs, in words. points: the inputs of each point and of its
    twins.

    >>> without_effect([({"tp": 8, "zero": 0}, [{"tp": 8, "zero": 1}]), ({"tp": 4, "zero": 0}, [])])
    ('zero 1 is as 0 in 1 of 2',)
    """
    times: dict[str, int] = {}
    for kept, twins in points:
        single = [(k, t[k], kept[k]) for t in twins for k in kept if [n for n in kept if t.get(n) != kept[n]] == [k]]
        for name, other, value in single:
            words = f"{name} {other} is as {value}"
            times[words] = times.get(words, 0) + 1
    return tuple(f"{w} in all" if n == len(points) else f"{w} in {n} of {len(points)}" for w, n in times.items())


def _blocked(task: SearchTask, digests: Sequence[Digest], best: Ranked, limits: Sequence[Limit]) -> list[Blocked]:
    """Points better than the best that a limit rules out: the next one of the best's own answer, then those of other
    answers, nearest in score to the best first."""
    near: list[tuple[bool, float, Location, AnswerKey]] = []
    for d in digests:
        better = np.flatnonzero(d.blocked < best.score)
        closest = better[np.argsort(-d.blocked[better], kind="stable")]
        numbers = task.answers(d.where.grid, d.where.block, d.blocked_at[closest])
        first = np.sort(np.unique(numbers, return_index=True)[1]) if task.best_of else np.arange(len(closest))
        for at, i in enumerate(closest[first]):
            spot = d.where._replace(at=int(d.blocked_at[i]))
            answer = task.answer(spot)
            if at < BLOCKED or answer == best.answer:
                near.append((answer != best.answer, -float(d.blocked[i]), spot, answer))
            elif not task.best_of:
                break
    nearest: dict[Any, Location] = {}
    for _, score, spot, answer in sorted(near, key=lambda n: n[:2]):
        nearest.setdefault(answer if task.best_of or not task.twin_outputs else f"{score:.9g}", spot)
    return [_explained(task, spot, limits) for spot in list(nearest.values())[:BLOCKED]]


def _explained(task: SearchTask, spot: Location, limits: Sequence[Limit]) -> Blocked:
    """A point and the constraints that it violates, in words."""
    candidate = task.candidate(spot)
    broken = [(limit, candidate.outputs[limit.key]) for limit in limits]
    return Blocked(candidate, tuple(limit.described(value) for limit, value in broken if limit.excess(value) > 0))


def _unmet(limits: Sequence[Limit], digests: Sequence[Digest]) -> list[str]:
    """Limits that no point meets even by itself."""
    out = []
    for i, limit in enumerate(limits):
        least = min((d.least[i] for d in digests), default=np.inf)
        if 0 < least < np.inf:
            if limit.key == MEMORY.key:
                out.append(f"No point fits: the nearest takes {times(1 + least)} the memory allowed")
                continue
            nearest = f"the nearest is {f'{percent(least)} off' if least < 1 else f'off by {times(1 + least)}'}"
            out.append(f"No point at all meets {limit.label} ({limit.written(limit.bound)}): {nearest}")
    return out
