"""Optimisations of a loaded model: weight-only int8 and int4, torch.compile, CUDA graphs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from rooflm.errors import RooflmError
from rooflm.measure.case import Case

FEW_ROWS = 16
"""Rows up to which the packed product serves; above it, converting the weights once costs less."""


class Int8(nn.Module):
    """A linear layer with int8 weights and one scale a row: y = (x Wᵀ) s, by PyTorch's packed product."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(dim=1).clamp(min=1e-8).float() / 127
        self.register_buffer("weight", (weight.float() / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale.to(weight.dtype))
        self.bias = linear.bias
        self.in_features, self.out_features = linear.in_features, linear.out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product with dequantised weights."""
        flat = x.reshape(-1, x.shape[-1])
        if flat.shape[0] > FEW_ROWS:
            return functional.linear(x, self.weight.to(x.dtype) * self.scale[:, None], self.bias)
        out = torch.ops.aten._weight_int8pack_mm(flat, self.weight, self.scale)
        out = out.reshape(*x.shape[:-1], -1)
        return out if self.bias is None else out + self.bias


def quantise(model: Any, case: Case) -> Any:
    """The model with the linear layers of its blocks quantised (embedding and head stay), in place."""
    if case.quant == "none":
        return model
    if case.quant == "int4-wo":
        try:
            from torchao.quantization import Int4WeightOnlyConfig, quantize_
        except ImportError as error:
            raise RooflmError("quant 'int4-wo' needs torchao: pip install torchao") from error
        quantize_(model.model.layers, Int4WeightOnlyConfig(group_size=128))
        return model
    for layer in model.model.layers:
        for owner in (layer.self_attn, layer.mlp):
            for name, child in list(owner.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(owner, name, Int8(child))
    return model


def compiled(model: Any, case: Case) -> Any:
    """The model with its forward pass compiled (and replayed from CUDA graphs), where the case asks for it."""
    if case.graphs and not torch.cuda.is_available():
        raise RooflmError("graphs needs a CUDA GPU: leave it out on a CPU")
    if case.compiled or case.graphs:
        mode = "reduce-overhead" if case.graphs else "default"
        try:
            import torch._inductor.config as inductor

            inductor.compile_threads = 1  # a pool of compilers takes longer to start than it saves
            inductor.cpp.enable_kernel_profile = True  # names fused kernels in profiles; costs them nothing measurable
            # graphs need equal shapes: one for the prompt and one for a step, on a cache of fixed size
            model.forward = torch.compile(model.forward, mode=mode, dynamic=not case.graphs)
        except RuntimeError as error:
            raise RooflmError(f"torch.compile does not work here: {error}") from error
    return model


EXTERN = re.compile(r"aten::(mm|addmm|bmm|baddbmm|cat|_scaled_dot_product\w*|_weight_int8pack_mm)|mkl\w*::\w+")
"""Kernels that compiled code calls as they are."""


def profiled(function: Callable[[], Any]) -> int:
    """Kernels of a call by the profiler: those on the GPU, or on a CPU the compiler's fused ones and those it calls."""
    from torch.profiler import ProfilerActivity, profile

    gpu = torch.cuda.is_available()
    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * gpu]) as seen:
        function()
    if gpu:
        return sum(e.device_type == torch.autograd.DeviceType.CUDA for e in seen.events())
    return sum("cpp_fused" in e.name or EXTERN.fullmatch(e.name) is not None for e in seen.events())
