"""One layer as nodes, and their FLOPs: what tests of the backward rules and of frameworks count by hand."""

from __future__ import annotations

from rooflm.catalogue.engine import Kernels
from rooflm.catalogue.model import MLP, Attention, Block, Model, MoE
from rooflm.graph.context import Context, Pass, Prefill
from rooflm.graph.forward import ffn_nodes, mixer_nodes
from rooflm.graph.ops import Comm, Op
from rooflm.readers.schemes import parse_quant
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.training import Training

H, S = 1024, 512


def layer(mapping: Mapping, flash: bool = False, ffn: MLP | MoE | None = None) -> list[Op | Comm]:
    block = Block(1, Attention(8, 8, H // 8, rope=False), ffn or MLP(4 * H, False))
    model = Model("m", H, 100, (block,))
    work = Pass(Prefill(1, S), None, S)
    c = Context(model, work, mapping, parse_quant("bf16"), Kernels(flash=flash), Training())
    return mixer_nodes(c, block, block.count) + ffn_nodes(c, block)


def products(nodes: list[Op | Comm]) -> float:
    return float(sum(n.count * n.flops for n in nodes if isinstance(n, Op) and n.rate != "vector"))
