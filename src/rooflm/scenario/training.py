"""Training: what a training run does beyond the model, the split and the data: optimiser, adapters, offload, the job.

Every default is what a plain mixed-precision pre-training run does. Numbers may be arrays; texts are structural."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rooflm.catalogue.fields import count, flag, number, share, word
from rooflm.scenario.adapters import MODULES
from rooflm.units import Num, is_plain


class Optimizer(NamedTuple):
    """What an update keeps and moves, a trained parameter."""

    state: float  # bytes beside the master copy
    divisor: float = 0.0  # 1 where it divides by a tensor made for it
    joined: float = 1.0  # 1 where gradients are joined in fp32
    flops: float = 0.0  # on fp32 units, a parameter
    moved: float = 0.0  # bytes that further kernels move, a parameter
    products: float = 0.0  # products of each matrix of a layer with one of its size


OPTIMIZERS = {
    "adam": Optimizer(8.0, divisor=1.0), "adam-bf16": Optimizer(4.0, divisor=1.0, joined=0.0),
    "adam8bit": Optimizer(2.0, flops=740.0), "adafactor": Optimizer(0.0), "sgd": Optimizer(0.0),
    "sgd-momentum": Optimizer(4.0), "muon": Optimizer(4.0, moved=40.0, products=15.0),
}  # fmt: skip
"""Two fp32 moments (Adam), of 16 bits (DeepSeek-V3, arXiv 2412.19437), of 8 (Dettmers et al., arXiv 2110.02861); sums
by row and column (Adafactor); one momentum (SGD; Muon, whose 5 Newton-Schulz steps are some 3 products with the smaller
side of each matrix: Jordan 2024; Moonlight, arXiv 2502.16982). divisor: PyTorch, torch/optim/adam.py. flops: states are
looked up and searched for value by value (bitsandbytes, csrc/kernels.cu; docs/decisions/0323)."""


@dataclass(frozen=True)
class Training:
    """Options of a training run."""

    optimizer: str = word("adam", "what updates the weights", tuple(OPTIMIZERS))
    master: bool = flag(True, "an fp32 master copy of 16-bit weights is kept")
    remainders: bool = flag(False, "of that copy only the 16 bits that the bf16 weight lacks are kept")
    """Apex' and Megatron-Core's store_param_remainders (precision-aware optimizer)."""
    grad_bytes: Num = number(0, "bytes a gradient (0: the engine's habit: 4 with fp32 accumulation, else 2)", "bytes")
    in_backward: bool = flag(False, "each gradient is used up as it is made (the update runs in the backward pass)")
    clip: bool = flag(True, "gradients are clipped by their global norm")
    loss_scaling: bool = flag(False, "fp16 losses are scaled: gradients are unscaled and checked (set with dtype fp16)")
    dropout: bool = flag(False, "masks on attention scores and both outputs of a layer")
    imbalance: Num = number(1.0, "tokens of the busiest of several expert ranks over the mean (0: nothing balances)")
    consecutive: bool = flag(False, "a token's experts are neighbours, on few ranks (balanced gates of benchmarks)")
    flushes: Num = count(1, "times that a step fills and drains its pipeline (gradients accumulated over whole ones)")
    mtp: Num = count(0, "layers that predict tokens further ahead, each with a loss of its own (DeepSeek-V3: 1)", low=0)
    last_layers: Num = count(0, "layers of a last stage laid out by hand, with those ahead (0: even; time only)", 0)
    trainable_layers: Num = share(1.0, "share of the layers that are trained, the last ones")
    """The first need no backward pass; their activations are counted as if kept."""
    embeddings: bool = flag(True, "the token table and head are trained too")
    lora_rank: Num = count(0, "rank of adapters on lora_modules, everything else frozen (0: none)", low=0)
    lora_modules: tuple[str, ...] = MODULES
    """Products that have adapters, by name."""
    base_bits: Num = number(16, "stored bits of a frozen base weight (4 with scales is QLoRA)", low=2, high=16)
    packed_mean: Num = number(0, "mean length of the documents packed in a sequence (0: a sequence is one document)")
    packed_square: Num = number(0, "mean square of these lengths: attention sees only its own document")
    offload_params: Num = share(0.0, "share of the weights kept in host memory and moved as needed")
    offload_optimizer: Num = share(0.0, "the same of the optimiser's states")
    offload_activations: Num = share(0.0, "the same of activations")
    mtbf: Num = number(0, "mean time between failures of one GPU (0: none)", "s")
    restart: Num = number(600.0, "time to restart after a failure", "s")
    checkpoint_bandwidth: Num = number(1e9, "to storage, a GPU (0: writing costs nothing)", "bytes/s")
    checkpoint_interval: Num = number(0, "time between checkpoints (0: Young and Daly's)", "s")

    @property
    def adapters(self) -> bool:
        """Whether only low-rank adapters are trained (structural: an array of ranks means yes)."""
        return not is_plain(self.lora_rank, 0)

    @property
    def update(self) -> Optimizer:
        """What the optimizer keeps and moves; without a master copy Adam's moments are as wide as weights (PyTorch)."""
        return OPTIMIZERS["adam-bf16" if self.optimizer == "adam" and not self.master else self.optimizer]

    @property
    def packed(self) -> bool:
        """Whether sequences hold several documents (structural: an array means yes)."""
        return not is_plain(self.packed_square, 0)
