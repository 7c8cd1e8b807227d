"""Tensor, pipeline and data parallelism of a Llama-like Hugging Face model, in plain torch.distributed.

Tensor: Megatron's split (arXiv 1909.08053): Q, K, V, gate and up by columns, output and down by rows with an
all-reduce behind each; the embedding and the head by vocabulary. Whole groups of query heads go to a rank, so ranks may
hold one group more than others (SmolLM2's three, say, over two ranks). Pipeline: layers in contiguous stages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from rooflm.errors import RooflmError
from rooflm.measure.case import Case
from rooflm.measure.expect import stage_layers


class Place(NamedTuple):
    """Where a rank stands: its number in each group, and the groups; tensor ranks are neighbours, then data, then
    pipeline, as in `Mapping.order`."""

    rank: int
    tensor: int
    data: int
    stage: int
    tensor_group: Any
    data_group: Any
    previous: int
    following: int


def place(case: Case, rank: int) -> Place:
    """The place of a rank; makes the groups (every rank must call this)."""
    tp, dp = case.tp, case.dp
    tensor, data, stage = rank % tp, rank // tp % dp, rank // (tp * dp)
    groups: dict[str, Any] = {"tensor": None, "data": None}
    for s in range(case.pp):
        for d in range(dp):
            members = [(s * dp + d) * tp + t for t in range(tp)]
            made = dist.new_group(members) if case.world > 1 else None
            groups["tensor"] = made if rank in members else groups["tensor"]
        for t in range(tp):
            members = [(s * dp + d) * tp + t for d in range(dp)]
            made = dist.new_group(members) if case.world > 1 else None
            groups["data"] = made if rank in members else groups["data"]
    step = tp * dp
    return Place(rank, tensor, data, stage, groups["tensor"], groups["data"], rank - step, rank + step)


def share(total: int, ways: int, index: int) -> slice:
    """The part of `total` equal things that rank `index` holds; the first ranks take one more where it does not divide.

    >>> share(3, 2, 0), share(3, 2, 1)
    (slice(0, 2, None), slice(2, 3, None))
    """
    sizes = [total // ways + (i < total % ways) for i in range(ways)]
    start = sum(sizes[:index])
    return slice(start, start + sizes[index])


def columns(linear: nn.Linear, part: slice) -> nn.Linear:
    """The rows of the weight (columns of the product) of `part`, as a layer of its own."""
    made = nn.Linear(linear.in_features, part.stop - part.start, linear.bias is not None, device="meta")
    made.weight = nn.Parameter(linear.weight.detach()[part].clone())
    if linear.bias is not None:
        made.bias = nn.Parameter(linear.bias.detach()[part].clone())
    return made


class Reduce(torch.autograd.Function):
    """Partial sums added up over a group, in place; the gradient of each rank is that of the sum."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        """All-reduce."""
        ctx.mark_dirty(x)
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient as it is."""
        return grads[0], None


class Copy(torch.autograd.Function):
    """What every rank of a group reads: nothing forward, the ranks' gradients added up backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        """The input as it is."""
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """All-reduce of the gradient."""
        total = grads[0].contiguous()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class Shared(nn.Module):
    """A norm whose output all ranks of the tensor group read."""

    def __init__(self, norm: nn.Module, group: Any) -> None:
        super().__init__()
        self.norm, self.group = norm, group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The norm; backward, its gradient is added up over the group."""
        out: torch.Tensor = Copy.apply(self.norm(x), self.group)
        return out


class Rows(nn.Module):
    """A linear layer over a part of its inputs, whose partial sums an all-reduce adds up."""

    def __init__(self, linear: nn.Linear, part: slice, group: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(linear.weight.detach()[:, part].clone())
        self.bias = linear.bias
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x W over all ranks, plus the bias once."""
        out: torch.Tensor = Reduce.apply(functional.linear(x, self.weight), self.group)
        return out if self.bias is None else out + self.bias


class Table(nn.Module):
    """An embedding split by vocabulary: rows that a rank does not hold are zero, an all-reduce adds the ranks up."""

    def __init__(self, table: nn.Embedding, part: slice, group: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(table.weight.detach()[part].clone())
        self.part, self.group = part, group

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows of the tokens."""
        own = (ids >= self.part.start) & (ids < self.part.stop)
        rows = functional.embedding((ids - self.part.start) * own, self.weight) * own.unsqueeze(-1)
        out: torch.Tensor = Reduce.apply(rows, self.group)
        return out


class Head(nn.Module):
    """Logits split by vocabulary, gathered on every rank."""

    def __init__(self, weight: torch.Tensor, part: slice, ways: int, group: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach()[part].clone())
        self.ways, self.group = ways, group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of the whole vocabulary."""
        local = functional.linear(x, self.weight)
        rows = local.reshape(-1, local.shape[-1])
        gathered = [torch.empty_like(rows) for _ in range(self.ways)]
        dist.all_gather(gathered, rows, group=self.group)
        return torch.cat(gathered, dim=-1).reshape(*local.shape[:-1], -1)


class Flat(nn.Module):
    """A head that sees its rows as a matrix.

    The last token of each sequence is a slice with gaps, which PyTorch multiplies sequence by sequence: on CPUs in bf16
    it copies the whole table for each (0.1 s a sequence for 32,000 tokens, where the product takes 3 ms). Engines
    gather the rows first, and so does this.
    """

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of every row."""
        made: torch.Tensor = self.head(x.reshape(-1, x.shape[-1]))
        return made.reshape(*x.shape[:-1], -1)


def llama_like(model: Any) -> None:
    """RooflmError unless the model has the layers that can be split here."""
    try:
        layer = model.model.layers[0]
        _ = (layer.self_attn.q_proj, layer.self_attn.o_proj, layer.mlp.gate_proj, layer.mlp.down_proj, model.lm_head)
    except AttributeError as error:
        kind = type(model).__name__
        raise RooflmError(f"{kind} cannot be split here: tensor and pipeline parallelism are for Llama-like models "
                          "(leave tp and pp at 1)") from error  # fmt: skip


def split_tensor(model: Any, ways: int, index: int, group: Any) -> None:
    """Replace the linear layers, embedding and head by the share of rank `index`, in place."""
    vocab = model.lm_head.weight.shape[0]
    config = model.config
    if vocab % ways:
        raise RooflmError(f"tp is {ways}, but it must divide the vocabulary of {vocab}")
    if config.num_key_value_heads < ways:
        raise RooflmError(f"tp is {ways}, but there are only {config.num_key_value_heads} key-value heads")
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        dim, query_group = attention.head_dim, attention.num_key_value_groups
        kv = share(attention.k_proj.out_features // dim, ways, index)
        keys = slice(kv.start * dim, kv.stop * dim)
        queries = slice(keys.start * query_group, keys.stop * query_group)
        attention.q_proj = columns(attention.q_proj, queries)
        attention.k_proj, attention.v_proj = columns(attention.k_proj, keys), columns(attention.v_proj, keys)
        attention.o_proj = Rows(attention.o_proj, queries, group)
        wide = share(mlp.gate_proj.out_features, ways, index)
        mlp.gate_proj, mlp.up_proj = columns(mlp.gate_proj, wide), columns(mlp.up_proj, wide)
        mlp.down_proj = Rows(mlp.down_proj, wide, group)
    part = share(vocab, ways, index)
    head = Head(model.lm_head.weight, part, ways, group)
    model.model.embed_tokens = Table(model.model.embed_tokens, part, group)
    if config.tie_word_embeddings:
        head.weight = model.model.embed_tokens.weight
    model.lm_head = head


def keep_stage(model: Any, stages: int, stage: int) -> None:
    """Keep the layers of one pipeline stage, the embedding on the first and the head on the last, in place."""
    sizes = stage_layers(len(model.model.layers), stages)
    start = sum(sizes[:stage])
    model.model.layers = model.model.layers[start : start + sizes[stage]]
    for index, layer in enumerate(model.model.layers):
        layer.self_attn.layer_idx = index
    model.config.num_hidden_layers = sizes[stage]
    if stage:
        model.model.embed_tokens = nn.Identity()
    if stage < stages - 1:
        model.model.norm = nn.Identity()
        model.lm_head = nn.Identity()


class Runner:
    """The forward pass of one rank: embeds or receives, runs its layers, sends on or gives logits of the last token."""

    def __init__(self, model: Any, case: Case, at: Place | None) -> None:
        self.model, self.case, self.at = model, case, at
        self.stage, self.stages = (at.stage if at else 0), case.pp
        self.hidden, self.dtype = model.config.hidden_size, model.dtype
        if at is not None and (case.tp > 1 or case.pp > 1):
            llama_like(model)
        if at is not None and case.pp > 1:
            keep_stage(model, case.pp, at.stage)
        if at is not None and case.tp > 1:
            split_tensor(model, case.tp, at.tensor, at.tensor_group)
        if isinstance(getattr(model, "lm_head", None), nn.Linear | Head):
            model.lm_head = Flat(model.lm_head)

    def cache(self) -> Any:
        """A new, empty KV cache; of fixed size where CUDA graphs replay the same addresses."""
        from transformers import DynamicCache, StaticCache

        if self.case.graphs:
            return StaticCache(config=self.model.config, max_cache_len=self.case.prompt + self.case.output)
        return DynamicCache()

    def forward(self, ids: torch.Tensor, cache: Any, keep: int = 1) -> torch.Tensor | None:
        """Logits of the last `keep` tokens (0: of all) on the last stage, None before. ids gives the shape to all."""
        if self.stages == 1:
            return self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=keep).logits
        assert self.at is not None
        given: dict[str, Any] = {"input_ids": ids}
        if self.stage:
            hidden = torch.empty(*ids.shape, self.hidden, dtype=self.dtype, device=ids.device)
            dist.recv(hidden, self.at.previous)
            given = {"inputs_embeds": hidden}
        out = self.model.model(**given, past_key_values=cache, use_cache=True).last_hidden_state
        if self.stage < self.stages - 1:
            dist.send(out.contiguous(), self.at.following)
            return None
        return self.model.lm_head(out[:, -keep:] if keep else out)

    def next_ids(self, logits: torch.Tensor | None, rows: int, device: torch.device) -> torch.Tensor:
        """The greedy next token of each sequence, known to every stage: the last one tells the others."""
        if logits is not None:
            ids = logits[:, -1].argmax(-1, keepdim=True)
        else:
            ids = torch.empty(rows, 1, dtype=torch.long, device=device)
        if self.stages > 1:
            dist.broadcast(ids, src=self.case.world - 1)
        return ids
