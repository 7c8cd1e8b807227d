"""Pipeline schedules: how long the pipeline stands idle and how many micro-batches a stage holds.

Notation: p stages, m micro-batches, v virtual stages a device, F, B, W the time of forward, input-gradient and
weight-gradient pass of one micro-batch on one device. Sources: GPipe (arXiv 1811.06965), 1F1B and interleaving
(Narayanan et al. 2021, arXiv 2104.04473, section 2.2), zero-bubble (Qi et al. 2023, arXiv 2401.10241, table 1),
V-shaped (Qi et al. 2024, arXiv 2405.15362; their table, where F = B = W, stands on
hf.co/spaces/sail/pipeline-parallelism-with-controllable-memory), DualPipe (DeepSeek-V3, arXiv 2412.19437, table 2)."""

from __future__ import annotations

from rooflm.units import Num, floor, larger, pick, smaller

V_SHAPED = {"zb-v": 1.0, "v-half": 1 / 2, "v-min": 2 / 3}
"""Schedules whose first device has the last stage too, with their bubbles over 1F1B's (zb-v: over zb-h2's)."""


def fuller_end(schedule: str, p: Num, first: Num, last: Num) -> Num:
    """The most that one device has of the embedding's and the head's: both where it is alone, or stages are folded.

    >>> [fuller_end(*of, 1.0, 3.0) for of in (("1f1b", 1), ("1f1b", 2), ("v-min", 2))]
    [4.0, 3.0, 4.0]
    """
    return first + last if schedule in V_SHAPED else pick(p > 1, larger(first, last), first + last)


def bubble_time(schedule: str, p: Num, v: Num, forward: Num, dgrad: Num, wgrad: Num) -> Num:
    """Seconds that a device stands idle in a step: forward, dgrad, wgrad are seconds of one micro-batch on a device.

        gpipe, 1f1b   (p-1) (F+B+W)         interleaved   (p-1)/v (F+B+W)
        zb-h1         (p-1) (F+B-W)         zb-h2, zb-v   (p-1) (F+B-2W)        dualpipe   (p/2-1) (F+B+W+B-3W)
        v-half        (p-1) (F+B+W)/2       v-min         (p-1) (F+B+W) 2/3

    (never below 0; recomputation counts as part of B; DualPipe's F&B is taken as F+B+W.)"""
    if schedule == "dualpipe":
        return larger((p / 2 - 1) * (forward + 2 * dgrad - 2 * wgrad), 0.0)
    each = forward + dgrad + {"zb-h1": -1, "zb-h2": -2, "zb-v": -2}.get(schedule, 1) * wgrad
    return larger((p - 1) * V_SHAPED.get(schedule, 1.0) / chunks(schedule, v) * each, 0.0)


def table_time(p: Num, v: Num, m: Num, forward: Num, backward: Num) -> Num:
    """Seconds that interleaved 1F1B takes longer where ranks exchange at every step of its table (PyTorch): beside a
    neighbour's backward pass a forward pass takes as long, and around the ring of virtual stages nobody can run ahead.

        ((p-1) + (m-p) (v-1/2)) (B-F)/v    with v > 1 (else the ring is open), for m a multiple of p

    Source: torch/distributed/pipelining/schedules.py, PipelineScheduleMulti (each step's sends and receives are one
    batch that is waited for); the sum is that of its table, stepped through for p, m/p and v from 1 to 16."""
    steps = (p - 1) + larger(m - p, 0) * (v - 0.5)
    return pick((v > 1) & (p > 1), steps * larger(backward - forward, 0.0) / v, 0.0)


def chunks(schedule: str, v: Num) -> Num:
    """Virtual stages that the schedule interleaves."""
    return v if schedule == "interleaved" else 1


def in_flight(schedule: str, p: Num, m: Num, v: Num = 1, stage: Num = 0) -> Num:
    """Micro-batches whose activations stage `stage` (0-based) holds at its fullest moment, in units of a whole stage.

    GPipe m; 1F1B min(m, p - stage); interleaved min(m, p (1 + (p-1)/(p v)) - ...): the first stage holds
    1 + (p-1)/(p v) times as much as with 1F1B (Narayanan et al., section 2.2; Korthikanti et al. 2022, section 4.2.3),
    a later one 2 chunks less a stage; zb-h1 as 1F1B; zb-h2 min(m, 2p - 1 - 2 stage); dualpipe p + 1; V-shaped ones the
    same on all stages: p, (p + 2) // 2 and (p + 4) // 3."""
    held: dict[str, Num] = {
        "gpipe": m, "zb-h2": 2 * p - 1 - 2 * stage, "dualpipe": p + 1,
        "zb-v": p, "v-half": floor((p + 2) / 2), "v-min": floor((p + 4) / 3),
        # warm-up of 2 (p - stage - 1) + (v - 1) p chunks, and one in work; with v = 1 it is plain 1F1B
        "interleaved": pick(v > 1, (2 * (p - stage - 1) + (v - 1) * p + 1) / v, p - stage),
    }  # fmt: skip
    return smaller(m, 1.0 * held.get(schedule, p - stage))
