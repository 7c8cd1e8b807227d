"""What each joint fit of engines frees, and how far: constants with their priors, releases that share them, cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rooflm.readers.checkpoints.load import load_model
from rooflm.validation.request import Request
from rooflm.validation.score import engine_of
from rooflm_fit.common import Param


class Card(NamedTuple):
    """Prior widths (log) of a card's factors in a job; 0 leaves the factor alone."""

    compute: float = 0.2
    bandwidth: float = 0.2
    few: float = 0.0
    sm_stream: float = 0.0


@dataclass(frozen=True)
class Job:
    """One joint fit. rows: sources and (released) engine rows; shared: constants that all its engine rows have in
    common; own: constants that each has for itself; cards: GPU -> which of its factors are free ("*": every GPU); kin:
    the same of a family of cards (`Device.product_family`), whose factors multiply those of its cards; generation: of
    one generation of a family over the one before it; start: where a family's factor starts, if not at 1; odd: which of
    its rows ran kernels that no other row did, so that they are predicted and not fitted; bound: cards whose own
    factors hold in one engine row of it alone; taken: constants of its engine rows that another's fit gives, and whose;
    lent: cards whose row is stated but for these factors, which are their family's."""

    engines: tuple[str, ...]
    shared: tuple[Param, ...] = ()
    own: Mapping[str, tuple[Param, ...]] = field(default_factory=dict)
    cards: Mapping[str, Card] = field(default_factory=dict)
    skip: tuple[str, ...] = ()
    kin: Card | None = None
    generation: Card | None = None
    start: Mapping[str, float] = field(default_factory=dict)
    odd: Callable[[Request], bool] = lambda request: False
    bound: Mapping[str, str] = field(default_factory=dict)
    taken: Mapping[str, str] = field(default_factory=dict)
    lent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


FREE = {
    "compute": Param("compute", 1.0, 0.03, 1.8), "bandwidth": Param("bandwidth", 1.0, 0.03, 1.8),
    "few": Param("few", 2.0, 0.01, 30.0), "sm_stream": Param("sm_stream", 4.0, 0.5, 60.0),
}  # fmt: skip
"""A card's factors: where they start, and their bounds."""


def host(step: float = 1e-3, sequence: float = 10e-6, request: float = 10e-3) -> tuple[Param, ...]:
    """The host's constants with wide priors around their usual values (s)."""
    return (
        Param("step", step, 1e-6, 2e-2, prior=0.8),
        Param("sequence", sequence, 1e-8, 2e-3, prior=0.8),
        Param("request", request, 1e-5, 1.0, prior=0.8),
        Param("gap", 1e-6, 1e-8, 2e-5, prior=0.5),
    )


def kernel(*names: str, width: float = 0.25, high: float = 4.0) -> tuple[Param, ...]:
    """Factors on kernels around 1."""
    return tuple(Param(n, 1.0, 0.3, high, prior=width) for n in names)


def reread(start: float) -> Param:
    """Time of query heads that read the KV cache each by itself, over 16-bit values at L1's rate."""
    return Param("kv_reread", start, 0.0, 24.0, log=False, prior=2.0)


APPLE = ("apple-m1-7core-8gb", "apple-m1-max-32core-64gb", "apple-m1-pro-14core-16gb", "apple-m2-ultra-76core-192gb",
         "apple-m3-max-40core-64gb", "apple-m3-pro-18core-36gb")  # fmt: skip
CONVERT = Param("kv_convert", 250.0, 1.0, 1e4, prior=1.0)
EXPERTS = Param("moe_factor", 0.8, 0.3, 4.0, prior=0.25)
"""Both start at what two engines agree on: one model and card alone would have to tell them from 60 and 1."""
COLLECTIVE = Param("collective_floor", 1.5, 0.3, 12.0, prior=0.2)
ALIKE = Param("alike", 0.85, 0.0, 1.0, log=False, prior=0.2)
"""Both about where every engine's own rows put them: what is left out may hold all that tells them."""


def wide_experts(r: Request) -> bool:
    """Whether a row ran bf16 experts on kernels of their own: of prompts, one product an expert by a library, sorted by
    the host (ggml-cuda.cu, ggml_cuda_mul_mat_id: mmq takes quantised weights alone); of a token on Vulkan, the matrix
    kernels of prompts (ggml-vulkan.cpp, ggml_vk_use_mul_mat_vec_id: fp32, fp16 and quantised weights alone)."""
    model = load_model(r.group[0])
    if r.kwargs.get("quant") != "bf16" or not bool(model.active_parameters < model.parameters):
        return False
    return ("vulkan" in engine_of(r)) == (r.metric == "decode_tokens_per_s")


SMS = Param("sm_stream", 6.5, 1.0, 60.0, prior=0.3)
"""Bytes a clock that an SM takes in CUDA's kernels for few rows: 20 cards of four families agree, whatever their
memory, so that they need no share of the bandwidth of their own (decision 126)."""

METAL = (Param("gap", 7e-6, 1e-7, 5e-5, prior=0.5),)
"""Time between kernels on Metal: 27 of Apple's rows agree on some 10 us, 1 us is CUDA's."""

LAUNCH = Param("gap", 3e-6, 1e-7, 5e-5, prior=0.8)
"""Time between kernels where no graph holds them: HIP's builds without GGML_HIP_GRAPHS, Vulkan's barriers."""

TILES = (Param("tile_rate", 570.0, 50.0, 5e3, prior=0.1), Param("row_rate", 265.0, 50.0, 5e3, prior=0.1))
"""FLOPs a clock of an SM in experts' tiles, full or not, and what rows take in truth: rows of one model and batch tell
only their sum, several of both tell them apart, and cards hardly: the prior keeps what was read off 21 rows
(decision 290)."""


def no_tiles(r: Request) -> bool:
    """Whether a row is none of prompts of quantised experts, which go by tiles."""
    model = load_model(r.group[0])
    return r.metric != "prefill_tokens_per_s" or not bool(model.active_parameters < model.parameters)


JOBS: dict[str, Job] = {
    "vllm-2024": Job(  # the runs of 2023 are of a release before CUDA graphs, which its row only stands in for
        ("vllm-2024",),
        (*host(1.6e-3, 60e-6, 20e-3), COLLECTIVE, reread(2.0), CONVERT,
         *kernel("gemm_factor"), EXPERTS),
        cards={"gh200-96gb": Card(), "a100-sxm-40gb": Card(0.1, 0.1), "h100-sxm-80gb": Card(0.1, 0.1)}, skip=("mlc",),
    ),
    "vllm-2024-rocm": Job(  # what a compute unit takes is the same in two generations: of one left out the other tells
        ("vllm-2024-rocm",),
        (*host(2e-3, 60e-6, 50e-3), Param("collective_factor", 1.0, 0.3, 20.0, prior=1.0),  # RCCL's over NCCL's
         reread(4.0), Param("block_rate", 2e9, 1e8, 1e11, prior=0.5), *kernel("stream_factor", width=0.5, high=10.0)),
        kin=Card(0, 0, few=1.0, sm_stream=1.0),
        lent={"mi325x": ("few", "sm_stream"), "mi355x": ("few",)},  # of MI300X's chip and its successor, which ran none
    ),
    "trtllm-2024": Job(  # no card's factors: left out, cards are predicted better by one set (decision 141)
        ("trtllm-2024",),
        (*host(0.3e-3, 10e-6, 5e-3), COLLECTIVE, ALIKE, CONVERT, reread(2.0), *kernel("gemm_factor"), EXPERTS),
    ),
    "trtllm": Job(
        ("trtllm-0.5", "trtllm-0.6", "trtllm-0.9"),
        (*host(0.3e-3, 1e-6, 3e-3), COLLECTIVE,
         *kernel("gemm_factor", "attention_factor", "decode_factor", "stream_factor"), EXPERTS),
        own={"trtllm-0.5": (reread(4.5),), "trtllm-0.6": (reread(4.5),),
             "trtllm-0.9": (reread(4.5), ALIKE)},
        kin=Card(0, 0.1), skip=("trtllm09-mixtral-fp8",),  # no card's own: left out, cards are predicted better
    ),
    "trtllm-nemo": Job(
        ("trtllm-nemo",),
        (*host(0.3e-3, 10e-6, 20e-3), COLLECTIVE, *kernel("gemm_factor", "attention_factor", "decode_factor")),
    ),
    "fastertransformer": Job(
        ("fastertransformer",),
        (*host(0.5e-3, 5e-6, 2e-3), COLLECTIVE),  # products as measured: a factor of theirs does not carry over
    ),
    "megatron-infer": Job(
        ("megatron-infer",),
        (Param("step", 5e-3, 1e-6, 2e-1, prior=0.8), Param("sequence", 3e-3, 1e-8, 1e-1, prior=1.0),
         Param("gap", 1e-6, 1e-8, 2e-5, prior=0.5), COLLECTIVE, *kernel("gemm_factor")),
    ),
    "llama.cpp": Job(
        ("llama.cpp-2024-05", "llama.cpp", "llama.cpp-2025-02", "llama.cpp-2024-05-metal", "llama.cpp-metal-2025-02",
         "ollama-2025-12", "ollama-2025-12-metal"),
        (Param("step", 0.2e-3, 1e-6, 5e-3, prior=0.8), Param("gap", 1e-6, 1e-8, 2e-5, prior=0.5),
         *kernel("attention_factor", "stream_factor", width=0.5),
         Param("collective_factor", 1.0, 0.1, 20.0, prior=0.6),
         reread(4.0), SMS, Param("message", 0.15e-3, 1e-6, 5e-3, prior=0.8)),  # a graph a stage, and the copy between
        own={"llama.cpp-2024-05": (*kernel("decode_factor", width=0.5),
                                   Param("dequant", 1.0, 0.01, 20.0, prior=1.0))}
            | dict.fromkeys(("llama.cpp-2024-05-metal", "llama.cpp-metal-2025-02", "ollama-2025-12-metal"), METAL),
        cards=dict.fromkeys(APPLE, Card(0.4, 0.2)) | {"*": Card(0.4, 0)},
        kin=Card(0.5, 0.3), generation=Card(0.3, 0.2),
        bound={"apple-m1-max-32core-64gb": "llama.cpp-2024-05"},  # 8B: 36 tokens/s, 46 in 2026 (normiebench)
        skip=("mlc",),  # of 2023: several GPUs cut every product by rows, layers came later
    ),
    "llama.cpp-experts": Job(  # of shipped tables: those of the other jobs hold no such row
        ("llama.cpp", "llama.cpp-2026-06", "llama.cpp-2026-05", "llama.cpp-2026-02", "llama.cpp-2026-01",
         "llama.cpp-2025-12", "llama.cpp-2025-10"), TILES,
        odd=no_tiles, skip=("tinychat-other",),
    ),
    "llama.cpp-radeon": Job(
        ("llama.cpp-rocm", "llama.cpp-vulkan-rocm", "llama.cpp-vulkan-rocm-2025-08", "ollama-rocm"),
        own={"llama.cpp-rocm": (*kernel("attention_factor", "moe_factor", "decode_factor", width=0.5, high=10.0),
                                LAUNCH),
             "llama.cpp-vulkan-rocm": (*kernel("attention_factor", "moe_factor", "decode_factor", width=0.5, high=10.0),
                                       Param("bf16_share", 0.3, 0.02, 1.0, prior=0.5), LAUNCH)},
        kin=Card(0.06, 0.1), generation=Card(0, 0), odd=wide_experts,  # other generations' factors are stated
        start={"~radeon|compute": 0.6},  # which these reach: 0.66 and 0.66 by HIP, 0.59 and 0.52 by Vulkan
    ),
    "mlx": Job(("mlx",), own={"mlx": (Param("gap", 2e-6, 1e-7, 5e-5, prior=0.8),
                                      *kernel("gemm_factor", "attention_factor", "decode_factor", width=0.7))}),
    "tinychat": Job(
        ("tinychat", "tinychat-2.0"),
        (Param("step", 0.5e-3, 1e-6, 5e-3, prior=0.8), Param("gap", 1e-6, 1e-8, 2e-5, prior=0.5), SMS),
        own={"tinychat-2.0": kernel("gemm_factor", "attention_factor", width=0.5)},
        cards={"rtx-4090": Card(0.4, 0.3), "jetson-agx-orin-64gb": Card(0.3, 0.3), "a100-sxm-80gb": Card(0.1, 0.2)},
    ),
    "mlc": Job(
        ("mlc",),
        (Param("gap", 1e-6, 1e-8, 1e-4, prior=0.8), COLLECTIVE._replace(prior=0.6),
         Param("request", 5e-3, 1e-5, 1.0, prior=0.8)),
    ),
    "exllamav2": Job(
        ("exllamav2",),
        (Param("step", 0.3e-3, 1e-6, 5e-3, prior=0.8), Param("gap", 1e-6, 1e-8, 1e-4, prior=0.8),
         Param("request", 5e-3, 1e-5, 1.0, prior=0.8)),
        taken={"sm_stream": "llama.cpp-2024-05"},  # its own ask for 6.2 with RTX 4090 and 7.0 without (decision 141)
    ),
}  # fmt: skip
