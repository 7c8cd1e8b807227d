"""How well a request uses its devices, and what it costs: what an answer alone tells of its figures."""

from __future__ import annotations

from functools import cached_property, reduce

import numpy as np

from rooflm.estimate.figures import figure
from rooflm.estimate.inference import InferenceFigures
from rooflm.estimate.offloaded import host_bytes, host_watts
from rooflm.kernels.rates import best_rates, integer_dots, rates
from rooflm.scenario.scenario import Scenario
from rooflm.units import Num, larger, pick


def matrix_peak(s: Scenario) -> Num:
    """FLOP/s of a device, whatever the efficiency, at the best rate of the fastest of the types that its products take:
    the scheme's, or what attention runs in (B300 multiplies 8-bit integers more slowly than 16-bit floats); or 8-bit
    integers, where products of narrow weights run by them (`dots`)."""
    r, best, peak = rates(s), best_rates(s).peak, s.cluster.device.peak
    ints = pick((s.quant.weight_bits < 16) & (s.engine.kernels.dots > 0), integer_dots(s), 0.0)
    return reduce(larger, (peak[r.dtype[k]] * (best[k] / r.peak[k]) for k in ("quant", "half", "rest")), ints)


def usd_per_million(hourly: Num, rate: Num) -> Num:
    """USD a million tokens: of USD an hour for all GPUs, and tokens a second.

    >>> usd_per_million(7.2, 1000.0)
    2.0
    """
    return hourly / 3600 / rate * 1e6


class RequestUse(InferenceFigures):
    """Rates, utilisation, energy and cost of a request."""

    @figure
    def output_tokens_per_s_per_gpu(self) -> Num:
        """Output tokens a second and GPU."""
        return self.output_tokens_per_s / self.gpus

    @figure
    def cost_per_million_tokens(self) -> Num:
        """USD a million output tokens (of a model that embeds: prompt tokens)."""
        s = self.scenario
        return usd_per_million(s.cluster.device.price * self.gpus, s.asked / self.latency)

    def _whole(self, name: str) -> Num:
        """A quantity of `Step` over the whole request: all waves and stages, without draft passes."""
        steps = larger(self.scenario.workload.output - 1, 0) / self.gained
        return self.waves * (self.in_prompts(name) + steps * self.in_step(name))

    @cached_property
    def _peaks(self) -> tuple[Num, Num]:
        """FLOP/s in the data types of the products, and B/s, of all stages together."""
        s = self.scenario
        return s.mapping.pp * matrix_peak(s), s.mapping.pp * s.cluster.device.dram.bandwidth

    @figure
    def mfu(self) -> Num:
        """Model FLOP/s over peak, whole request."""
        return self._whole("flops") / (self.latency * self._peaks[0])

    @figure
    def mbu(self) -> Num:
        """Memory bandwidth over peak, whole request."""
        return self._whole("bytes") / (self.latency * self._peaks[1])

    @figure
    def prefill_mfu(self) -> Num:
        """Model FLOP/s over peak, prefill."""
        return self.in_prompts("flops") / (self.ttft * self._peaks[0])

    @figure
    def decode_mbu(self) -> Num:
        """Memory bandwidth over peak, decode."""
        return self.in_step("bytes") / (self.tpot * self.gained * self._peaks[1])

    @figure
    def busy(self) -> Num:
        """Share of time with a kernel running."""
        return self._whole("busy") / self.scenario.mapping.pp / self.latency

    @figure
    def energy_per_token(self) -> Num:
        """Joules an output token (of a model that embeds: of a prompt's token), all GPUs; and the host's CPU while it
        works on layers."""
        s = self.scenario
        energy = self.gpus * (s.cluster.device.idle * self.latency + self._whole("dynamic") / s.mapping.pp)
        host = host_watts(s) * s.mapping.dp * self.parts.get("host layers", 0.0)  # each replica has layers on its own
        return (energy + host) / s.asked

    @figure
    def power(self) -> Num:
        """Mean watts of one GPU, and its share of those of the host's CPU while it works on layers."""
        return self.energy_per_token * self.scenario.asked / (self.latency * self.gpus)

    @figure
    def host_memory(self) -> Num:
        """Bytes of the host's memory that layers held there take, with their cache."""
        s = self.scenario
        if s.offload.off:
            return 0.0 * s.workload.batch
        weights, cache = host_bytes(s, np.inf, s.workload.prompt + s.workload.output)
        return weights + s.workload.batch * cache
