"""Communication between devices: what a collective sends, and how long it takes on one tier or across several.

Everything is one alpha-beta form, `steps · α + bytes / B`, in two editions: `ideal` is the lower bound, the cheapest
legal algorithm at the link's own rates; `on_tier` is what a library reaches. `hierarchical` sends a group over all the
tiers that it spans, `comm_time` adds what an engine does. Every numeric argument is a number or an array."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial, reduce
from typing import NamedTuple

from rooflm.catalogue.hardware import Link
from rooflm.graph.ops import Comm
from rooflm.kernels.blend import smooth_min
from rooflm.kernels.constants import ANY, Match, lookup, typed
from rooflm.kernels.training_factors import table
from rooflm.scenario.scenario import Scenario, arrays_in
from rooflm.units import Num, is_plain, larger, log2, once_each, pick, smaller

OPS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "p2p")
"""The operations, by name."""

DIRECT_KINDS = ("nvlink", "nvswitch", "xgmi")
"""Kinds of link on which every rank reads its peers' memory, so that one- and two-shot kernels are legal."""
NETWORKS = ("infiniband", "ethernet", "efa", "gpudirect-tcp")
"""Kinds of link between nodes, each with constants of its own (RoCE counts as InfiniBand, whose adapters it has)."""
IN_SWITCH_KINDS = ("nvswitch",)
"""Kinds of link whose switch adds up by itself (SHARP, since Hopper): all_reduce then sends V, not 2(n-1)/n V."""
MEASURED_RANKS = 8.0
"""The largest group measured in one tier: larger ones keep its efficiency."""

SHARP = 12.0
"""Exponent of the smooth minimum of two regimes: a library switches at once, if not always at the best size (NCCL's LL,
LL128 and Simple; the fit of every library's constants keeps it)."""
CHANNEL_BYTES = 16384.0
"""Message at which half of a short message's further channels are open (measured: flat below 8 KiB, again from 64)."""


class CollectiveConstants(NamedTuple):
    """What a library reaches on one kind of link, an operation: eight fitted numbers, and what they were fitted on."""

    start: Num  # s of a message
    step: Num  # s a hop; `library_hops` counts them
    eff_short: Num  # share of the link's rate at two ranks in the regime of small messages
    gain_short: Num  # its power in the group size
    wait: Num  # latency of the regime of large messages over the other's: its hops wait for fences, not flags
    eff_long: Num  # the share in the regime of large messages
    gain_long: Num  # its power
    grow: Num = 0.0  # growth of the short regime's latency to messages well over CHANNEL_BYTES: more channels open
    latency: Num = 0.0  # the link's latency that is inside the fitted times
    mesh: Num = 0.0  # links of a card where they were fitted, each to a card (0: a switch)
    whole: Num = 0.0  # fewer ranks than these take one link of a mesh


def volume(op: str, bytes_: Num, n: Num) -> Num:
    """Bytes that one rank sends, and receives. Zero for one rank.

    `bytes_` is V: the full vector of all_reduce and reduce_scatter, the gathered result of all_gather, what one rank
    holds for all its peers in all_to_all, the message of broadcast and p2p.

        all_reduce 2(n-1)/n V      reduce_scatter, all_gather, all_to_all (n-1)/n V      broadcast, p2p V

    Source: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication" (2007), table of lower bounds;
    the factors are those of "bus bandwidth" in nccl-tests, doc/PERFORMANCE.md."""
    return bytes_ * (pick(n > 1, 1.0, 0.0) if op in ("broadcast", "p2p") else (n - 1) / n * ways(op))


def ways(op: str) -> float:
    """2 for all_reduce, which is a reduce_scatter and an all_gather; 1 for all others."""
    return 2.0 if op == "all_reduce" else 1.0


ONE_HOP = ("all_to_all", "p2p")
"""Operations whose ranks send to each other straight away."""


def _steps(op: str, n: Num) -> Num:
    """Hops of latency that no algorithm avoids in a tree: log2(n) one way, twice that for all_reduce, one if direct.

    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (2005).

    >>> float(_steps("all_reduce", 8)), float(_steps("all_gather", 8)), float(_steps("p2p", 8))
    (6.0, 3.0, 1.0)
    """
    return 1.0 if op in ONE_HOP else log2(larger(n, 1.0)) * ways(op)


def by_tree(op: str, bytes_: Num, n: Num, bandwidth: Num, latency: Num) -> Num:
    """Seconds of a double binary tree at full link rate, flat over all n ranks: volume / B + hops α. Zero for one rank.

    Source: Sanders, Speck and Träff, "Two-tree algorithms" (2009), in NCCL since 2.4."""
    return pick(n > 1, volume(op, bytes_, n) / bandwidth + _steps(op, n) * latency, 0.0)


def ideal(op: str, bytes_: Num, n: Num, link: Link) -> Num:
    """Seconds of the cheapest legal algorithm at full link rate: the lower bound. Zero for one rank.

    A tree has a ring's volume and never more hops. With V bytes, n ranks, B one way a rank and α a hop, all_reduce:

        two-shot    2(n-1)/n V/B + 3 α        one-shot    (n-1) V/B + 2 α        in-switch    V/B + 2 α

    One- and two-shot (reduce_scatter, all_gather: half the volume, one α) are legal where ranks read each other's
    memory (DIRECT_KINDS), in-switch where the switch adds up (IN_SWITCH_KINDS).
    Source: TensorRT-LLM's and vLLM's custom all-reduce; NCCL's NVLS (SHARP)."""
    bandwidth, latency = link.bandwidth, link.latency
    tree = by_tree(op, bytes_, n, bandwidth, latency)
    if op in (*ONE_HOP, "broadcast"):
        return tree
    two_shot = volume(op, bytes_, n) / bandwidth + (3.0 if op == "all_reduce" else 1.0) * latency
    one_shot = (n - 1) * bytes_ / bandwidth + 2.0 * latency
    shots = smaller(two_shot, one_shot) if op == "all_reduce" else two_shot
    best = smaller(tree, shots) if link.kind in DIRECT_KINDS else tree
    if op == "all_reduce" and link.kind in IN_SWITCH_KINDS:
        best = smaller(best, bytes_ / bandwidth + 2.0 * latency)
    return pick(n > 1, best, 0.0)


def on_tier(op: str, bytes_: Num, n: Num, *, bandwidth: Num, latency: Num, c: CollectiveConstants) -> tuple[Num, Num]:
    """Seconds that a library takes on one tier, the smooth minimum of two regimes: its value for an empty message, and
    the rest (tiers add the one and overlap the other). Zero for one rank. One regime has short latency and low rate,
    the other long latency and high rate.

        w = start + step hops(n),  rate_r = eff_r (min(n, 8)/2)^gain_r B,  r in (short, long)
        t_short = w (1 + grow V / (V + 16 KiB)) + volume(V, n) / rate_short
        t_long = w wait + volume(V, n) / rate_long
        t = (t_short^-s + t_long^-s)^(-1/s) + steps(n) (α - α_fit)

    where s is SHARP and the last term moves the fitted latency to that of the link at hand. gain > 0 is in-switch
    reduction (NVLS), gain < 0 a shared link (PCIe root) or the growing volume of one-shot kernels.
    Source: the two regimes are NCCL's protocols (LL/LL128 and Simple: Hu et al., "Demystifying NCCL", 2025) and the
    one- and two-shot kernels; fitted by `rooflm_fit.collectives`.

    >>> nccl = CollectiveConstants(4.4e-6, 1.7e-6, 0.28, 0, 3.0, 0.66, 0.28)
    >>> round(float(sum(on_tier("all_reduce", 512, 8, bandwidth=450e9, latency=0, c=nccl))) * 1e6, 1)
    16.3
    """
    many = n > 1
    n = larger(n, 1.0)  # a grid's illegal points have fractions of a rank
    hops = library_hops(n)
    half = pick((n < c.whole) & (c.mesh > 0), 1.0, smaller(larger(n, 2.0), MEASURED_RANKS) * 0.5)
    wire = volume(op, bytes_, n) / bandwidth
    wait = c.start + c.step * hops
    opened = c.grow * bytes_ / (bytes_ + CHANNEL_BYTES)
    empty = smooth_min(SHARP, wait, wait * c.wait)
    full = smooth_min(
        SHARP,
        wait * (1.0 + opened) + wire / (c.eff_short * half**c.gain_short),
        wait * c.wait + wire / (c.eff_long * half**c.gain_long),
    )
    return pick(many, empty + _steps(op, n) * (latency - c.latency), 0.0), pick(many, full - empty, 0.0)


def library_hops(n: Num) -> Num:
    """Hops that a library's all_reduce waits for one after the other: a ring's n - 1, or a tree's 2 log2(n) + 1.

    all_reduce makes each hop of a ring twice; the constant a hop holds both. Eight ranks make the two equal (7). The
    latencies measured at 2, 4 and 8 ranks grow close to 1, 3, 7; larger groups were not measured and take the tree,
    as NCCL does since 2.4 (its release notes; Sanders et al. 2009)."""
    some = larger(n, 1.0)
    return smaller(some - 1.0, 2.0 * log2(some) + 1.0)


def ranks_in_tiers(n: Num, sizes: Sequence[Num], stride: Num = 1) -> tuple[Num, ...]:
    """How many ranks of a group each tier holds, nearest tier first; the last holds all.

    `stride` is the distance between neighbouring ranks in device numbers (tensor parallel 1, data parallel tp,
    pipeline tp · dp). A tier of S devices holds `clip(S / stride, 1, n)`; the last tier holds all n whatever its size:
    a group larger than the cluster is priced at the slowest tier (whether it exists is a question of fit, not of time).
    """
    return (*(smaller(larger(size / stride, 1.0), n) for size in sizes[:-1]), n * 1.0)


def hierarchical(
    op: str, bytes_: Num, n: Num, tiers: Sequence[Link],
    *, constants: Sequence[CollectiveConstants | None] | None = None, stride: Num = 1,
) -> Num:  # fmt: skip
    """Seconds of a collective of a group that may span several tiers. Zero for one rank.

    tiers: nearest first; constants: one a tier (None: `ideal`); stride: as in `ranks_in_tiers`. With g_i ranks in tier
    i, r_i = g_i / g_(i-1) and g_0 = 1, tier i does

        all_reduce, reduce_scatter, all_gather, broadcast    op among r_i ranks on V / g_(i-1) bytes
        all_to_all                       the share (g_i - g_(i-1)) / n of V that leaves tier i-1 and stays in i
        p2p                              V on the slowest tier that the group crosses

    which for all_reduce is reduce-scatter inside, all-reduce of the shard across, all-gather inside; broadcast
    scatters, and gathers again. Volumes add up to `volume(op, V, n)`, but where a library runs `by_ring`: a
    network then carries (n-1)/n of V / g_(i-1). Latencies add; transfers of different tiers run at once, in chunks
    (NCCL): the longest of them counts.
    Source: Thakur et al. (2005), section 5; Ueno and Yokota, "Exhaustive study of hierarchical allreduce" (2019)."""
    held = ranks_in_tiers(n, [tier.size for tier in tiers], stride)
    latency: Num = 0.0
    longest: Num = 0.0
    inner: Num = 1.0
    for tier, rule, outer in zip(tiers, constants or [None] * len(tiers), held, strict=True):
        ranks, part = outer / inner, part_of(op, bytes_, n, inner, outer)
        inner = outer
        if isinstance(ranks, float) and ranks <= 1.0:  # the group stays inside nearer tiers
            continue
        if rule is not None and tier is tiers[-1] and by_ring(op, tiers):
            part = part * ((n - 1.0) / n * ranks / larger(ranks - 1.0, 1e-9))
        if rule is None:
            floor = ideal(op, 0.0, ranks, tier)
            body = ideal(op, part, ranks, tier) - floor
        else:
            pairs = rule.mesh / larger(smaller(tier.size - 1.0, rule.mesh), 1.0)  # few cards share all links
            rate = tier.bandwidth * pick(rule.mesh > 0, pairs, 1.0)
            floor, body = on_tier(op, part, ranks, bandwidth=rate, latency=tier.latency, c=rule)
        if op == "p2p":  # a message takes one tier alone
            floor, body = 0.0, floor + body
        latency, longest = latency + floor, larger(longest, body)
    return latency + longest


def by_ring(op: str, tiers: Sequence[Link]) -> bool:
    """Whether NCCL runs a ring through all ranks of all nodes (src/graph/tuning.cc: no tree; TPUs run no NCCL)."""
    ringed = op in ("all_gather", "reduce_scatter") and len(tiers) > 1
    return ringed and tiers[-1].kind in NETWORKS and tiers[-2].kind in (*DIRECT_KINDS, "pcie")


def part_of(op: str, bytes_: Num, n: Num, inner: Num, outer: Num) -> Num:
    """The V of tier i's own collective among outer / inner ranks, such that volumes add up (see `hierarchical`)."""
    return bytes_ * outer / n if op == "all_to_all" else bytes_ if op == "p2p" else bytes_ / inner


def nearest(op: str, *, gpu: str, generation: str, library: str, kind: str) -> Match:
    """The row of an operation on a kind of link.

    library: nccl, flashinfer, or an engine with all-reduce kernels of its own (vllm, sglang; their other operations are
    NCCL's). NVLink-class links take the generation's row, else the common one; PCIe the GPU's own, else the link's;
    a network its kind's. Broadcast, which nobody measured, takes all_gather's."""
    link = kind if kind in ("pcie", *NETWORKS) else ""
    kernel = "all_gather" if op == "broadcast" else op
    return lookup("collective", gpu if link == "pcie" else "", link or generation, library, ANY, kernel)


@cache
def fitted(op: str, gpu: str, generation: str, library: str, kind: str) -> CollectiveConstants:
    """Constants of `nearest`."""
    return typed(CollectiveConstants, nearest(op, gpu=gpu, generation=generation, library=library, kind=kind).row)


def collective_constants(comm: Comm, s: Scenario) -> list[CollectiveConstants | None]:
    """The constants of a collective on every tier of the cluster; None where its links' own rates are those reached.
    An engine's own all-reduce is off where a group spans nodes (vLLM's and SGLang's custom_all_reduce.py): NCCL's."""
    device, tiers, k = s.cluster.device, s.cluster.tiers, s.engine.kernels
    if s.efficiency.mode != "calibrated" or device.measured is not None:
        return [None] * len(tiers)
    own = "nccl" if comm.op != "all_reduce" else k.whose if k.all_reduce == "custom" else k.all_reduce
    sizes: list[Num] = [1.0, *(t.size for t in tiers if t.kind not in NETWORKS)]
    inside = comm.ranks * comm.stride <= reduce(larger, sizes)
    found: list[CollectiveConstants | None] = []
    for t in tiers:
        a, b = (fitted(comm.op, device.kernels_from, device.kernel_generation, n, t.kind) for n in (own, "nccl"))
        c = a if a is b else CollectiveConstants(*(pick(inside, x, y) for x, y in zip(a, b, strict=True)))
        found.append(c._replace(whole=k.one_link * t.size))
    return found


def comm_time(comm: Comm, tiers: Sequence[Link], s: Scenario) -> Num:
    """Seconds of a collective; calibrated, its latency times the engine's collective_floor, all times its factor."""

    def seconds(bytes_: Num, ranks: Num, stride: Num) -> Num:
        own = collective_constants(comm._replace(ranks=ranks, stride=stride), s)
        call = partial(hierarchical, comm.op, n=ranks, tiers=tiers, constants=own, stride=stride)
        time, f = call(bytes_), s.engine.factors
        if s.efficiency.mode != "calibrated":
            return time
        if not is_plain(f.collective_floor, 1.0):
            time = time + (f.collective_floor - 1.0) * call(0.0)
        return time * f.collective_factor

    sizes = comm.bytes, comm.ranks, comm.stride
    swept = not s.axes or next(arrays_in((tiers, s.engine)), None) is not None
    return seconds(*sizes) if swept else once_each(seconds, *sizes)


def ring_wait(comm: Comm, tiers: Sequence[Link], owners: bool = False) -> Num:
    """Seconds that the hops of a ring over several nodes take, of all executions; 0 within one node, and for sums.
    owners: there is not one a layer but one a rank that owns tensors, of which a layer has WHOLE_TENSORS.

    A ring over n ranks on N nodes makes N - 1 hops between nodes and n - N within them, one after the other, before the
    last rank has the first one's data. An all_reduce takes a tree across nodes instead, whose hops grow with log N.
    Source: NCCL, src/graph/tuning.cc: latency of a ring is (nsteps - nInterSteps) intraLat + nInterSteps interLat with
    nsteps = n - 1 and nInterSteps = N - 1; hwLat of the Simple protocol: 3.4 us over NVLink, 14 us over the network."""
    if not by_ring(comm.op, tiers):
        return 0.0
    hop = table()["ring"]  # s
    nodes = comm.ranks / ranks_in_tiers(comm.ranks, [tier.size for tier in tiers], comm.stride)[-2]
    hops = (comm.ranks - nodes) * hop["within"] + (nodes - 1.0) * hop["across"]
    return (smaller(comm.ranks, WHOLE_TENSORS * comm.count) if owners else comm.count) * pick(nodes > 1, hops, 0.0)


WHOLE_TENSORS = 9.0
"""Tensors of a transformer layer: four or five of attention, two or three of the feed-forward, two norms."""
