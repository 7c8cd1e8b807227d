"""How well a training step uses its devices: what an answer alone tells of its figures."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

from rooflm.asked.answers import flops
from rooflm.asked.answers.use import matrix_peak
from rooflm.estimate.figures import figure
from rooflm.estimate.step import by_name
from rooflm.estimate.training import TrainingFigures
from rooflm.graph.ops import Comm, Op
from rooflm.kernels.rates import rates
from rooflm.units import Num


class StepUse(TrainingFigures):
    """Rates and utilisation of a training step."""

    convention: ClassVar[str] = "full"
    """What attention's FLOPs are counted by in `mfu`, `hfu` and the model's FLOP/s."""

    @figure
    def tokens_per_s_per_gpu(self) -> Num:
        """Trained tokens a second and GPU."""
        w = self.scenario.workload
        return w.batch * w.seq / self._device_seconds

    @figure
    def model_tflops_per_gpu(self) -> Num:
        """Model TFLOP/s a GPU, all pairs of tokens counted in attention."""
        return self._model_flops / self._device_seconds / 1e12

    @figure
    def mfu(self) -> Num:
        """Model FLOP/s over the peak of the products' data type, all pairs counted in attention, as most published."""
        return self._model_flops / self._peak_work

    @figure
    def mfu_causal(self) -> Num:
        """The same with half of the pairs: those that attention needs."""
        s = self.scenario
        forward, _ = flops.forward_flops(s, causal=True)
        return flops.trained_flops(s, forward, causal=True) * s.workload.batch / self._peak_work

    @figure
    def hfu(self) -> Num:
        """Executed FLOP/s over peak, recomputation included."""
        again = flops.recomputed_flops(self.scenario, self._forward[1]) * self.scenario.workload.batch
        return (self._model_flops + again) / self._peak_work

    @cached_property
    def _forward(self) -> tuple[Num, list[Op | Comm]]:
        """FLOPs of a sequence's forward pass, all pairs of tokens counted, and the nodes of its layers."""
        return flops.forward_flops(self.scenario, causal=False)

    @cached_property
    def _model_flops(self) -> Num:
        """FLOPs of a step, all pairs of tokens counted in attention."""
        s = self.scenario
        return flops.trained_flops(s, self._forward[0], causal=False) * s.workload.batch

    @cached_property
    def _device_seconds(self) -> Num:
        """Seconds of a step on all GPUs."""
        return self.step_time * self.gpus

    @cached_property
    def _peak_work(self) -> Num:
        """FLOPs of a step at the peak of the products' data type."""
        return self.step_time * (self.gpus * matrix_peak(self.scenario))

    @figure
    def bubble_fraction(self) -> Num:
        """Idle over busy time of the schedule."""
        return self.step.once["bubble"] / (self.step.micro_batches * self.step.micro.mean)

    @figure
    def flops_time(self) -> Num:
        """Seconds of a step if only its FLOPs took time, each at the peak of its data type."""
        peak, ops = rates(self.scenario).peak, [t.node for group in self.passes for t in group]
        each = sum(flops.count_flops([op]) / peak[op.rate] for op in ops if isinstance(op, Op))
        return each * self.micro_batches / self.scenario.mapping.pp

    @figure
    def power(self) -> Num:
        """Mean watts of one GPU."""
        return self.step_energy / self._device_seconds

    @figure
    def components(self) -> dict[str, Num]:
        """Device seconds of a step by part of the model (attention, mlp, norm, embedding, logits, tp_comm ...), all
        passes, mean over the stages; communication counts in full, shown or hidden."""
        times = self.micro_batches / self.scenario.mapping.pp
        seconds = [pair for phase in self.detail.values() for pair in phase.items()]
        return by_name((name.replace("regather", "comm"), times * value) for name, value in seconds)
