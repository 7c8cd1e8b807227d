"""Hardware to explore, as `rooflm explore` does: grids over nodes, memories and networks, the best split of a budget,
designs that no other beats, products by GPU, and known dies as they are rebuilt."""

from __future__ import annotations

from rooflm.asked.answers.causes import CAUSES
from rooflm.sweep.pareto import pareto
from rooflm.technology.explore import Columns, Space, grid
from rooflm.technology.front import Front
from rooflm.technology.front import search as front
from rooflm.technology.generations import Ladder
from rooflm.technology.reports import gemm_bounds, reconstruction, select, shares, stops_helping
from rooflm.technology.split import COMPONENTS, Split, evolution, exhaustive, gradient, problem
from rooflm.technology.tasks import DIES, Task, legal_splits, make_task, on_cluster

__all__ = [
    "CAUSES", "COMPONENTS", "DIES", "Columns", "Front", "Ladder", "Space", "Split", "Task", "evolution", "exhaustive",
    "front", "gemm_bounds", "gradient", "grid", "legal_splits", "make_task", "on_cluster", "pareto", "problem",
    "reconstruction", "select", "shares", "stops_helping",
]  # fmt: skip
