"""The passes of a training step by strategy: the whole model, a tensor rank's share of it, or a stage of a pipeline."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from rooflm.measure.case import Case
from rooflm.measure.runs.parallel import Copy, Place, Reduce, Shared, keep_stage, llama_like, split_tensor


class Plain:
    """The whole model on every rank. value: the loss of the last step, where the rank knows it."""

    value: float | None = None

    def __init__(self, model: Any, ids: torch.Tensor) -> None:
        self.model, self.ids = model, ids

    def forward(self) -> None:
        """Loss of the next tokens."""
        self.loss = self.model(self.ids, labels=self.ids, use_cache=False).loss

    def backward(self) -> None:
        """Gradients."""
        self.loss.backward()
        self.value = float(self.loss.detach())
        del self.loss


class Tensor(Plain):
    """A tensor rank's share: Megatron's split (arXiv 1909.08053) with its cross-entropy over a split vocabulary."""

    def __init__(self, model: Any, case: Case, at: Place, ids: torch.Tensor) -> None:
        llama_like(model)
        split_tensor(model, case.tp, at.tensor, at.tensor_group)
        for layer in model.model.layers:
            layer.input_layernorm = Shared(layer.input_layernorm, at.tensor_group)
            layer.post_attention_layernorm = Shared(layer.post_attention_layernorm, at.tensor_group)
        self.model, self.ids, self.group = model, ids, at.tensor_group
        self.first = at.tensor * model.lm_head.weight.shape[0]

    def forward(self) -> None:
        """Loss of the next tokens."""
        hidden = self.model.model(self.ids, use_cache=False).last_hidden_state
        logits = functional.linear(Copy.apply(hidden, self.group), self.model.lm_head.weight)
        self.loss = split_loss(logits, following(self.ids), self.first, self.group)


class Pipeline:
    """A stage of a pipeline with one micro-batch: hidden states forward, their gradients back, and the gradients of an
    embedding that is also the head added up between the end stages."""

    value: float | None = None

    def __init__(self, model: Any, case: Case, at: Place, ids: torch.Tensor) -> None:
        llama_like(model)
        self.tied = bool(model.config.tie_word_embeddings)
        self.table = model.lm_head.weight
        keep_stage(model, case.pp, at.stage)
        self.model, self.ids, self.at = model, ids, at
        self.first, self.last = at.stage == 0, at.stage == case.pp - 1
        made = dist.new_group([0, case.pp - 1]) if case.pp > 2 else None
        self.ends = made

    def forward(self) -> None:
        """The stage's layers; the loss on the last stage."""
        if self.first:
            self.given: Any = {"input_ids": self.ids}
        else:
            shape = (*self.ids.shape, self.model.config.hidden_size)
            hidden = torch.empty(shape, dtype=self.model.dtype, device=self.ids.device)
            dist.recv(hidden, self.at.previous)
            self.given = {"inputs_embeds": hidden.requires_grad_()}
        self.out = self.model.model(**self.given, use_cache=False).last_hidden_state
        if not self.last:
            dist.send(self.out.detach().contiguous(), self.at.following)
            return
        logits = self.model.lm_head(self.out).float().flatten(0, 1)
        self.out = functional.cross_entropy(logits, following(self.ids).flatten(), ignore_index=-100)

    def backward(self) -> None:
        """Gradients of the stage, and of its input sent back."""
        if self.last:
            self.out.backward()
            self.value = float(self.out.detach())
        else:
            grad = torch.empty_like(self.out)
            dist.recv(grad, self.at.following)
            self.out.backward(grad)
        if not self.first:
            dist.send(self.given["inputs_embeds"].grad, self.at.previous)
        if self.tied and (self.first or self.last):
            dist.all_reduce(self.table.grad, group=self.ends)
        del self.out, self.given


def following(ids: torch.Tensor) -> torch.Tensor:
    """The next token of each, -100 (no loss) behind the last."""
    return functional.pad(ids[:, 1:], (0, 1), value=-100)


def split_loss(logits: torch.Tensor, goal: torch.Tensor, first: int, group: Any) -> torch.Tensor:
    """Mean cross-entropy where each rank holds a share of the vocabulary from token `first` on.

    Three numbers a row are reduced over the group: the largest logit, the sum of exponentials, the goal's logit.
    """
    rows, goal = logits.float().flatten(0, 1), goal.flatten()
    top = rows.detach().amax(-1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
    rows = rows - top[:, None]
    total = Reduce.apply(rows.exp().sum(-1), group)
    local = goal - first
    own = (local >= 0) & (local < rows.shape[1])
    hit = rows.gather(-1, (local * own)[:, None]).squeeze(-1) * own
    chosen = Reduce.apply(hit, group)
    loss: torch.Tensor = ((total.log() - chosen) * (goal >= 0)).sum() / (goal >= 0).sum()
    return loss
