"""The whole run: steps from tokens, GPU-hours, days, cost, energy, and what failures and checkpoints leave of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rooflm.scenario.training import Training
from rooflm.units import Num, larger, pick, sqrt


class Job(NamedTuple):
    """A run of `steps` optimiser steps. seconds, gpu_hours, cost and energy are of undisturbed work; goodput is the
    share of wall-clock time that is such work, stated apart: with_failures = seconds / goodput."""

    steps: Num
    seconds: Num
    gpu_hours: Num
    cost: Num
    energy: Num
    goodput: Num
    checkpoint_interval: Num

    @property
    def days(self) -> Num:
        """Days of undisturbed work."""
        return self.seconds / 86400

    @property
    def days_with_failures(self) -> Num:
        """Days with checkpoints, failures and restarts; infinite where failures leave no time for progress."""
        some = self.goodput > 0
        return pick(some, self.days / pick(some, self.goodput, 1.0), np.inf)


def steps_of(tokens: Num, batch: Num, seq: Num) -> Num:
    """Optimiser steps that see `tokens` tokens: the nearest whole number, at least one. One step where tokens is 0.

    >>> float(steps_of(1e12, 2048, 2048))
    238419.0
    """
    return pick(tokens > 0, larger(np.rint(tokens / (batch * seq)), 1.0), 1.0)


def young_daly(write: Num, mtbf: Num) -> Num:
    """The checkpoint interval (s) that loses least: sqrt(2 C M) - C, with C s to write and M s between failures.

    Source: Young 1974; Daly 2006, "A higher order estimate of the optimum checkpoint interval", equation 9 for C < M/2.

    >>> round(float(young_daly(60.0, 3 * 3600.0)), 1)
    1078.4
    """
    return larger(sqrt(2.0 * write * mtbf) - write, write)


def goodput(interval: Num, write: Num, mtbf: Num, restart: Num) -> Num:
    """Share of the time that is progress: 1 / (1 + C/T) of it between checkpoints, less what failures cost.

    A failure loses half an interval (with its write) and a restart: (1 - ((T + C)/2 + R) / M) / (1 + C/T), at least 0.
    Source: Daly 2006, first-order form.

    >>> round(float(goodput(1800.0, 60.0, 3 * 3600.0, 600.0)), 3)
    0.831
    """
    lost = pick(mtbf < np.inf, ((interval + write) / 2 + restart) / mtbf, 0.0)
    return larger(1.0 - lost, 0.0) / (1.0 + write / interval)


def job(
    t: Training, tokens: Num, batch: Num, seq: Num, step_time: Num, gpus: Num, price: Num, energy: Num, state: Num
) -> Job:  # fmt: skip
    """The run of a step that takes `step_time` s and `energy` J on `gpus` GPUs of `price` USD/h; `state`: bytes that a
    GPU writes in a checkpoint. Without a mean time between failures (0) nothing fails and nothing is written."""
    steps = steps_of(tokens, batch, seq)
    seconds = steps * step_time
    fails = t.mtbf > 0
    mtbf = pick(fails, t.mtbf / gpus, np.inf)
    storage = t.checkpoint_bandwidth > 0
    write = pick(fails & storage, state / pick(storage, t.checkpoint_bandwidth, 1.0), 0.0)
    best = young_daly(write, pick(fails, mtbf, 1.0))
    given = t.checkpoint_interval > 0
    interval = larger(pick(given, t.checkpoint_interval, best), 1.0)
    share = pick(fails, goodput(interval, write, mtbf, t.restart), 1.0)
    hours = gpus * seconds / 3600
    return Job(steps, seconds, hours, hours * price, steps * energy, share, pick(fails, interval, np.inf))
