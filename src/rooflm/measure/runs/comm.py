"""Bytes and calls by collective: a dispatch mode over `c10d` and `_c10d_functional` operations.

Each operation is counted once, by its inputs; waits, barriers and receives are not counted. `sent` applies the volume
of `rooflm.kernels.collectives`: bytes that one rank sends, as predictions count them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from rooflm.kernels.collectives import volume

OPS = {
    "allreduce_": "all_reduce", "all_reduce": "all_reduce", "all_reduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce", "all_reduce_coalesced": "all_reduce",
    "allgather_": "all_gather", "_allgather_base_": "all_gather", "all_gather_into_tensor": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather", "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_": "reduce_scatter", "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall_": "all_to_all", "alltoall_base_": "all_to_all", "all_to_all_single": "all_to_all",
    "send": "p2p", "broadcast_": "broadcast", "broadcast": "broadcast",
}  # fmt: skip
"""Name of an operation of either library -> ours. Receives, waits and barriers are left out."""
OUTPUT_FIRST = ("allgather_", "_allgather_base_", "reduce_scatter_", "_reduce_scatter_base_", "alltoall_",
                "alltoall_base_", "allgather_into_tensor_coalesced_")  # fmt: skip
"""c10d operations whose first argument is the output and second the input."""


def nbytes(value: Any) -> int:
    """Bytes of a tensor or of (nested) lists of them."""
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(nbytes(v) for v in value) if isinstance(value, list | tuple) else 0


def group_size(args: Any) -> int:
    """Ranks of the process group among the arguments: an object (c10d) or its name (functional); else the world."""
    for arg in reversed(list(args)):
        if isinstance(arg, str):
            try:
                return int(torch._C._distributed_c10d._resolve_process_group(arg).size())
            except (RuntimeError, ValueError, LookupError):
                continue
        if isinstance(arg, torch.ScriptObject):
            try:
                return int(dist.ProcessGroup.unbox(arg).size())
            except (RuntimeError, TypeError):
                continue
    return dist.get_world_size()


class Count(TorchDispatchMode):
    """Counts collectives while it is on: calls, bytes of the inputs, and bytes that this rank sends, by operation."""

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        """Forget what was counted."""
        self.calls: dict[str, int] = defaultdict(int)
        self.inputs: dict[str, int] = defaultdict(int)
        self.sent: dict[str, float] = defaultdict(float)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and count it when it is a collective."""
        if func.namespace in ("c10d", "_c10d_functional"):
            name = func._schema.name.split("::")[1]
            op = OPS.get(name)
            if op is not None:
                self.count(op, name, args)
        return func(*args, **(kwargs or {}))

    def count(self, op: str, name: str, args: Any) -> None:
        """One operation: V is the input, or what all ranks gather of it."""
        ranks = 2 if op == "p2p" else group_size(args)
        given = nbytes(args[1] if name in OUTPUT_FIRST else args[0])
        self.calls[op] += 1
        self.inputs[op] += given
        self.sent[op] += float(volume(op, given * ranks if op == "all_gather" else given, ranks))


def dispatched(function: Any) -> int:
    """Kernels that a call runs in eager mode: dispatched operations that are neither views nor empty allocations."""

    class Kernels(TorchDispatchMode):
        total = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func._schema.name.split("::")[1]
            if not func.is_view and not name.startswith(("empty", "_unsafe_view", "detach", "new_empty", "reshape")):
                self.total += 1
            return func(*args, **(kwargs or {}))

    with Kernels() as kernels:
        function()
    return kernels.total
