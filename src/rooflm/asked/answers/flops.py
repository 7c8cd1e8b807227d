"""FLOPs of training as utilisation counts them: of a sequence through the whole unsplit model, and what runs again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rooflm.estimate.training_step import Nodes, context, document, forward_nodes
from rooflm.graph import backward as rules
from rooflm.graph.ops import PRODUCTS, Comm, Op, attended
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num


def count_flops(nodes: Sequence[Op | Comm]) -> Num:
    """FLOPs of matrix products, attention and scans; elementwise work does not count."""
    return sum(n.count * n.flops for n in nodes if isinstance(n, Op) and n.kind in PRODUCTS) + 0.0


def on_one_device(s: Scenario) -> dict[str, Nodes]:
    """Forward nodes of one sequence through the whole model on one device, experts evenly loaded; `forward_flops`."""
    engine = s.engine.but(flash=True, flash_heads="", masked=False, one_kernel=False)
    even = replace(s, mapping=Mapping(), engine=engine, training=replace(s.training, imbalance=1.0))
    return forward_nodes(even, context(even))


def forward_flops(s: Scenario, causal: bool) -> tuple[Num, Nodes]:
    """(all forward FLOPs, nodes of the layers) of one sequence through the whole unsplit model.

    causal: only pairs of tokens that attention really needs; otherwise all pairs, as most published figures count: as
    many times those, of a window too, whose square no figure counts beyond its keys."""
    nodes = on_one_device(s)
    if not causal:
        pairs = document(s) / attended(document(s), 0, np.inf)
        nodes["layers"] = [n._replace(flops=n.flops * pairs) if isinstance(n, Op) and halved(n) else n
                           for n in nodes["layers"]]  # fmt: skip
    return sum(count_flops(nodes[place]) for place in nodes), nodes["layers"]


def halved(op: Op) -> bool:
    """Whether an operation is causal attention, which needs about half of all pairs (`attention.prefill_attention`)."""
    return op.kind == "mla_attention" or (op.kind == "attention" and len(op.shape) == 8)


def trained_flops(s: Scenario, forward: Num) -> Num:
    """FLOPs of one sequence, forward and backward: three times the forward pass; of a frozen base without the products
    for its weights' gradients (4 FLOPs a parameter and token, not 6), but with three times those of its adapters.

    forward: `forward_flops`. Source: Hu et al., "LoRA", arXiv 2106.09685, section 4.2 (no gradients of frozen ones)."""
    if not s.training.adapters:
        return 3.0 * forward
    places = on_one_device(s)
    frozen = [n for nodes in places.values() for n in nodes if isinstance(n, Op) and n.kind in ("gemm", "moe")]
    return 3.0 * (forward + count_flops(rules.adapters(places["layers"], s.training))) - count_flops(frozen)


def recomputed_flops(s: Scenario, layers: Nodes) -> Num:
    """FLOPs of one sequence that recomputation runs again, of the forward nodes of all layers."""
    policy, modules = s.mapping.recompute, s.mapping.recompute_modules
    core: Nodes = []
    if not s.engine.kernels.flash and (policy == "selective" or (policy == "none" and "core_attn" in modules)):
        core = [n for n in layers if isinstance(n, Op) and n.kind == "attention"]
    policy, share = "none" if policy == "selective" else policy, s.mapping.recomputed(s.model.layers)
    return count_flops([*core, *rules.recomputed(layers, policy, share, s.engine.habits.early_stop, modules)])
