"""FLOP conventions of published TFLOP/s, used to turn such a figure back into the time that was measured.

They are accounting rules of the sources, not the estimator's model of work.
"""

from __future__ import annotations

from rooflm.catalogue.model import Attention, Model
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


def causal_model_flops(batch: Num, seq: Num, params: Num, layers: Num, hidden: Num) -> Num:
    """Model FLOPs a step: 6 a token and parameter, and half of attention's pairs, 6 s l h a token.

    Source: Chowdhery et al. 2022 (PaLM, arXiv 2204.02311) appendix B (6 N + 12 L H Q T), with half of its pairs.

    >>> causal_model_flops(1, 2, 10, 3, 4) == 2 * (60 + 6 * 3 * 4 * 2)
    True
    """
    return batch * seq * (6 * params + 6 * layers * hidden * seq)


def megatron_halved_flops(batch: Num, seq: Num, model: Model) -> Num:
    """Model FLOPs a step as Megatron-LM prints them since 2024: 6 a token and active parameter (the head counts, the
    input's table does not), and half of attention's pairs, 3 s heads (width of keys + of values) a token and layer.

    Source: megatron/training/training.py, num_floating_point_operations (causal attention: half of the pairs).

    >>> from rooflm.readers.checkpoints.load import load_model
    >>> flops = megatron_halved_flops(2048, 4096, load_model("qwen3-235b-a22b"))
    >>> round(flops / 19.7 / 256 / 1e12)  # yanring/Megatron-MoE-ModelZoo prints 245 beside 19.7 s on 256 GPUs
    247
    """
    mixers = [(float(b.count), b.mixer) for b in model.blocks if isinstance(b.mixer, Attention)]
    pairs = sum(n * float(m.heads) * float(m.head_dim + m.v_dim) for n, m in mixers)
    table = 0.0 if model.tied else float(model.vocab * model.hidden)
    return batch * seq * (6 * (float(model.active_parameters) - table) + 3 * seq * pairs)
