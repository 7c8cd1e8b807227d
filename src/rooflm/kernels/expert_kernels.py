"""Which expert kernels an engine takes on a card: its usual ones or those that it is told; of several the fastest.

The tables hold several kinds a card and data type (CUTLASS, Triton, DeepGEMM), measured in one engine or another. An
engine has the usual one of those that were measured in it, and those that it makes itself and others borrow (FlashInfer
brings TensorRT-LLM's to vLLM). A type that nobody measured in it runs on a family that it has, measured in another.

Sources: TensorRT-LLM documentation, moe_config.backend, "autotuner"; SGLang, server_args.py, moe_runner_backend "auto";
vLLM, fused_moe/oracle (the backend is picked by card, data type and what is installed).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from rooflm.catalogue.abilities import listed
from rooflm.kernels.constants import _entries, _Entry, _parse, read, text_of, typed
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


def _tuned(entries: list[_Entry], expert_parallel: bool) -> list[_Entry]:
    """One entry an engine and family: without expert parallelism the fit to such rows, where there is one."""
    kinds: dict[tuple[tuple[str, ...], str, str], dict[str, _Entry]] = {}
    for e in entries:
        kinds.setdefault((e.engine, e.family, e.dtype), {})[e.kernel] = e
    return [
        e for own in kinds.values() for k, e in own.items() if (k == "tp") == ("tp" in own and not expert_parallel)
    ]  # fmt: skip


def _widest(entries: list[_Entry]) -> list[_Entry]:
    """Of the sets of one kernel in an engine for several cards of a generation the one for most cards."""
    ranked = sorted(entries, key=lambda e: len(e.gpu))
    return list({(e.engine, e.family, e.dtype, e.kernel): e for e in ranked}.values())


@cache
def choices(
    gpu: str, generation: str, engine: str, dtype: str, expert_parallel: bool = False, family: str = "",
    launched: bool = False,
) -> tuple[Choice, ...]:  # fmt: skip
    """The kernels from which an engine picks on a card: those of its generation's cards where none was measured on it,
    and where none was on those either the nearest set (`kernels.moe.usual`). family: those that the server was told to
    use, each as measured in the engine, else as in others; where nobody measured them its usual ones of each table,
    less those that its release lacks ("-"). launched: shared families start as measured in the engine itself.

    >>> [c.dtype for c in choices("h100-sxm-80gb", "hopper", "sglang", "fp8_block")]
    ['fp8_block']
    >>> len(choices("b200-sxm-180gb", "blackwell", "trtllm", "nvfp4")) > 1  # CUTLASS' are slow for few rows
    True
    >>> len(choices("b200-sxm-180gb", "blackwell", "trtllm", "nvfp4", family="cutlass, marlin"))
    1
    """
    told = listed(family)
    of_use = [e for e in _entries("moe") if e.kernel not in OTHER]
    here = [e for e in of_use if gpu in e.gpu] or _widest([e for e in of_use if e.architecture == generation])
    found: list[_Entry] = []
    for kind in (dtype, *WIDER.get(dtype, ())):
        same = [e for e in here if e.dtype == kind]
        here_too = {e.family for e in same if engine in e.engine}  # measured in the engine itself: that counts
        own = [e for e in same if engine in (*e.engine, e.family) or e.family in libraries()["everywhere"] - here_too]
        if not any(engine in e.engine for e in own):
            families = {e.family for e in here if engine in e.engine}
            own += [e for e in same if e.family in families and e not in own]
        brought = {e.family for e in own}
        wanted = [e for e in same if e.family in told and (e in own or e.family not in brought)]
        legal = [e for e in own if f"-{e.family}" not in told]
        found += _tuned(wanted or [e for e in legal if e.kernel in ("", "tp")] or legal, expert_parallel)
    shared = _tuned([e for e in here if e.family in libraries()["shared"] and not launched], expert_parallel)
    if any(e.dtype == dtype for e in found):
        return _read(found, shared)
    row = usual(gpu, generation, engine, dtype, expert_parallel).row
    return (Choice(dtype, typed(MoEConstants, row)), *_read(found, shared))


def _read(entries: list[_Entry], shared: list[_Entry]) -> tuple[Choice, ...]:
    """Entries with their constants; those of a shared family with its least start, in any engine and data type."""
    read = [(e, typed(MoEConstants, _parse("moe", e.text))) for e in (*entries, *shared)]
    least = [min([c.start, *(o.start for k, o in read[len(entries) :] if k.family == e.family)]) for e, c in read]
    found = zip(read[: len(entries)], least, strict=False)
    return tuple(Choice(e.dtype, c._replace(start=start), e.family) for (e, c), start in found)
