"""Which expert kernels an engine takes on a card: its usual ones or those that it is told; of several the fastest.

The tables hold several kinds a card and data type (CUTLASS, Triton, DeepGEMM), measured in one engine or another. An
engine has the usual one of those that were measured in it, and those that it makes itself and others borrow (FlashInfer
brings TensorRT-LLM's to vLLM). A type that nobody measured in it runs on a family that it has, measured in another.

Sources: TensorRT-LLM documentation, moe_config.backend, "autotuner"; SGLang, server_args.py, moe_runner_backend "auto";
vLLM, fused_moe/oracle (the backend is picked by card, data type and what is installed)."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from rooflm.catalogue.abilities import listed
from rooflm.kernels.constants import DTYPE_KIN, Entry, entries_of, parsed, read, text_of, typed
from rooflm.kernels.derating import card_file
from rooflm.kernels.moe import MoEConstants, usual

OTHER = ("plain", "untuned")
"""Kernels of another purpose (no gate projection), or that ran without tuning."""
WIDER = {"mxfp4_mxfp8": ("mxfp4",)}
"""Data type -> those whose kernels take the same weights with wider activations: legal, and fast for few tokens."""


@cache
def libraries() -> dict[str, set[str]]:
    """Families that engines take from one library (data/calibration/experts.toml)."""
    return read(text_of("experts"), dict[str, set[str]], "experts")


class Choice(NamedTuple):
    """A kernel: the data type that it computes in (its name in the tables) and its constants."""

    dtype: str
    constants: MoEConstants
    family: str = ""


def _tuned(entries: list[Entry], expert_parallel: bool) -> list[Entry]:
    """Of each engine and data type without expert parallelism those fitted to such runs ("tp"), if there are any,
    else the general ones: an engine may have one library for whole experts and another for spread ones."""
    whole = set() if expert_parallel else {(e.engine, e.dtype) for e in entries if e.kernel == "tp"}
    return [e for e in entries if (e.kernel == "tp") == ((e.engine, e.dtype) in whole)] or entries


def _widest(entries: list[Entry]) -> list[Entry]:
    """Of the entries of one engine, library, data type and kernel for cards of a generation, that for most cards."""
    ranked = sorted(entries, key=lambda e: len(e.gpu))
    return list({(e.engine, e.family, e.dtype, e.kernel): e for e in ranked}.values())


@cache
def choices(
    gpu: str, generation: str, engine: str, dtype: str, expert_parallel: bool = False, family: str = "",
    launched: bool = False,
) -> tuple[Choice, ...]:  # fmt: skip
    """The expert kernels from which an engine picks the fastest on a card: those measured on the card, else on its
    generation's cards, else those that it takes on a kin generation's ([kin] in devices.toml; of a shared library's the
    card's own for the nearest data type before them), else the nearest set (`kernels.moe.usual`).

    dtype: of the experts' weights, as the tables know it. family: libraries that the server was told to use, with
    commas, each as measured in this engine or else in another; "-NAME" is one that the release lacks. Where none of the
    named was measured, the engine's usual kernels serve. launched: kernels of shared libraries keep the start time that
    was measured in the engine itself, instead of the least of all engines.

    >>> [c.dtype for c in choices("h100-sxm-80gb", "hopper", "sglang", "fp8_block")]
    ['fp8_block']
    >>> len(choices("b200-sxm-180gb", "blackwell", "trtllm", "nvfp4")) > 1  # CUTLASS' are slow for few rows
    True
    >>> len(choices("b200-sxm-180gb", "blackwell", "trtllm", "nvfp4", family="cutlass, marlin"))
    1
    """
    of_use = [e for e in entries_of("moe") if e.kernel not in OTHER]
    own = [e for e in of_use if gpu in e.gpu] or _widest([e for e in of_use if e.architecture == generation])
    for kin in ("", *card_file().kin.get(generation, "").split()):
        here = _widest([e for e in of_use if e.architecture == kin]) if kin else own
        chosen = _measured(here, engine, dtype, expert_parallel, listed(family))
        if any(e.dtype == dtype for e in chosen):
            library = {e.family for e in chosen if kin} & libraries()["shared"]
            alike = [e for e in own if e.family in library and e.dtype in DTYPE_KIN.get(dtype, ())[:1]]
            if alike:
                here, chosen = own, _tuned([e._replace(dtype=dtype) for e in alike], expert_parallel)
            return _read(chosen, [] if launched else here)
    row = usual(gpu, generation, engine, dtype, expert_parallel).row
    wider = _measured(own, engine, dtype, expert_parallel, listed(family))
    return (Choice(dtype, typed(MoEConstants, row)), *_read(wider, [] if launched else own))


def _measured(here: list[Entry], engine: str, dtype: str, expert_parallel: bool, named: tuple[str, ...]) -> list[Entry]:
    """Of the entries of a card or generation, those that an engine takes."""
    chosen: list[Entry] = []
    for kind in (dtype, *WIDER.get(dtype, ())):
        same = [e for e in here if e.dtype == kind]
        here_too = {e.family for e in same if engine in e.engine}  # measured in the engine itself: that counts
        measured = [
            e for e in same if engine in (*e.engine, e.family) or e.family in libraries()["everywhere"] - here_too
        ]
        if not any(engine in e.engine for e in measured):
            families = {e.family for e in here if engine in e.engine}
            measured += [e for e in same if e.family in families and e not in measured]
        brought = {e.family for e in measured}
        wanted = [e for e in same if e.family in named and (e in measured or e.family not in brought)]
        legal = [e for e in measured if f"-{e.family}" not in named] or measured
        chosen += _tuned(wanted or [e for e in legal if e.kernel in ("", "tp")] or legal, expert_parallel)
    return chosen


def _read(entries: list[Entry], here: list[Entry]) -> tuple[Choice, ...]:
    """Entries with their constants. A shared library's kernel has the least start time of any engine and data type."""
    shared = [e for e in here if e.family in libraries()["shared"]]
    fits = {e: typed(MoEConstants, parsed("moe", e.text)) for e in (*entries, *shared)}
    least = [min(fits[k].start for k in (e, *(k for k in shared if k.family == e.family))) for e in entries]
    pairs = zip(entries, least, strict=True)
    return tuple(Choice(e.dtype, fits[e]._replace(start=start), e.family) for e, start in pairs)
