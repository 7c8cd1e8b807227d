"""Training: what a training run does beyond the model, the split and the data: optimiser, adapters, offload, the job.

Every default is what a plain mixed-precision pre-training run does. Numbers may be arrays; texts are structural.
"""

from __future__ import annotations

from dataclasses import dataclass

from rooflm.units import Num, is_plain

OPTIMIZERS = ("adam", "adam-bf16", "adam8bit", "adafactor", "sgd", "sgd-momentum", "muon")
"""Optimisers by name; `training_memory.STATE_BYTES` holds what each keeps."""


@dataclass(frozen=True)
class Training:
    """Options of a training run.

    optimizer: one of OPTIMIZERS. master: fp32 master copy of 16-bit weights; remainders: of that copy only the 16 bits
    that the bf16 weight lacks are kept (store_param_remainders of apex and of Megatron-Core's precision-aware
    optimizer). grad_bytes: bytes a gradient (0: the engine's habit, 4 with fp32 accumulation, 2 without). clip:
    gradients are clipped by their global norm. loss_scaling: fp16 losses are scaled, so that gradients are unscaled
    and checked (set with dtype fp16). dropout: masks on attention scores and both outputs of a layer.
    imbalance: tokens of the busiest expert rank over the mean (dropless); with a capacity factor, that factor.
    consecutive: a token's experts are neighbours, so that it goes to few ranks (the balanced gates of benchmarks).
    flushes: times that a step fills and drains its pipeline (where gradients are accumulated over whole pipelines).
    mtp: layers that predict tokens further ahead, each with a loss of its own (multi-token prediction; DeepSeek-V3 1).
    trainable_layers: share of the layers that are trained (the last ones; the first are frozen, need no backward pass,
    and their activations are counted as if kept); embeddings: the token table and head are trained too.
    lora_rank > 0: adapters of that rank on lora_modules (names of products: qkv, q, kv, out, gate_up, gate, up,
    down), everything else frozen; base_bits: stored bits of a frozen base weight (16;
    4 with scales is QLoRA, arXiv 2305.14314).
    packed_mean, packed_square: mean and mean square of the lengths of the documents packed in a sequence (0: each
    sequence is one document): attention sees only its own document.
    offload_params, offload_optimizer, offload_activations: shares kept in host memory and moved as needed.
    fp8_weights: fp8 copies of the weights are kept beside the 16-bit ones.
    mtbf: mean time between failures of one GPU (s; 0: none); restart: time to restart after one (s);
    checkpoint_bandwidth: B/s to storage a GPU (0: writing costs nothing); checkpoint_interval: s (0: Young/Daly).
    """

    optimizer: str = "adam"
    master: bool = True
    remainders: bool = False
    grad_bytes: Num = 0
    clip: bool = True
    loss_scaling: bool = False
    dropout: bool = False
    imbalance: Num = 1.0
    consecutive: bool = False
    flushes: Num = 1
    mtp: Num = 0
    trainable_layers: Num = 1.0
    embeddings: bool = True
    lora_rank: Num = 0
    lora_modules: tuple[str, ...] = ("qkv", "q", "kv", "out", "gate_up", "gate", "up", "down")
    base_bits: Num = 16
    packed_mean: Num = 0
    packed_square: Num = 0
    offload_params: Num = 0
    offload_optimizer: Num = 0
    offload_activations: Num = 0
    fp8_weights: bool = False
    mtbf: Num = 0
    restart: Num = 600.0
    checkpoint_bandwidth: Num = 1e9
    checkpoint_interval: Num = 0

    @property
    def adapters(self) -> bool:
        """Whether only low-rank adapters are trained (structural: an array of ranks means yes)."""
        return not is_plain(self.lora_rank, 0)

    @property
    def packed(self) -> bool:
        """Whether sequences hold several documents (structural: an array means yes)."""
        return not is_plain(self.packed_square, 0)
