"""Which replica a request goes to."""

from __future__ import annotations

from collections.abc import Sequence

from rooflm.errors import RooflmError
from rooflm.serving.replica import Replica

ROUTERS = ("round-robin", "least-loaded", "prefix-aware")


class Router:
    """Picks a replica of a pool. round-robin: in turn; least-loaded: fewest requests queued and running; prefix-aware:
    the longest cached prefix, unless that replica has over `slack` times the load of the least loaded one, and `spare`
    requests more (both by hand)."""

    slack, spare = 1.5, 4

    def __init__(self, kind: str) -> None:
        if kind not in ROUTERS:
            raise RooflmError(f"router is {kind!r}, but it must be one of {', '.join(ROUTERS)}")
        self.kind, self._turn = kind, -1

    def pick(self, pool: Sequence[Replica], request: int) -> Replica:
        """The replica for a request."""
        if len(pool) == 1:
            return pool[0]
        if self.kind == "round-robin":
            self._turn = (self._turn + 1) % len(pool)
            return pool[self._turn]
        loads = [r.load() for r in pool]
        least = min(loads)
        if self.kind == "least-loaded":
            return pool[loads.index(least)]
        best, hit = pool[loads.index(least)], 0
        for r, load in zip(pool, loads, strict=True):
            found = r.kv.hit(request)
            if found > hit and load <= self.slack * least + self.spare:
                best, hit = r, found
        return best
