"""FLOP conventions of published TFLOP/s, used to turn such a figure back into the time that was measured.

They are accounting rules of the sources, not the estimator's model of work.
"""

from __future__ import annotations

from rooflm.units import Num


def megatron_hardware_flops(batch: Num, seq: Num, layers: Num, hidden: Num, vocab: Num) -> Num:
    """FLOPs a step with full recomputation: 96 B s l h^2 (1 + s/(6h) + V/(16 l h)).

    Source: Narayanan et al. 2021 (arXiv 2104.04473) eq. 3; also BigScience's chronicles.

    >>> f = megatron_hardware_flops(1536, 2048, 96, 12288, 51200)
    >>> round(f / 1e18, 2)
    4.51
    """
    return 96 * batch * seq * layers * hidden**2 * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden))


def megatron_model_flops(batch: Num, seq: Num, layers: Num, hidden: Num, vocab: Num) -> Num:
    """Model FLOPs a step, attention not causal: 72 B s l h^2 (1 + s/(6h) + V/(12 l h)).

    Source: Korthikanti et al. 2022 (arXiv 2205.05198) appendix A.

    >>> round(megatron_model_flops(64, 2048, 96, 12288, 51200) / 64 / 13.75 / 312e12, 3)  # printed: 0.514
    0.514
    """
    return 72 * batch * seq * layers * hidden**2 * (1 + seq / (6 * hidden) + vocab / (12 * layers * hidden))
