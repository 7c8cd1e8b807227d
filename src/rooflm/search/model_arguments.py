"""A model's shape as Megatron-LM's arguments (megatron/training/arguments.py, commit 000c4ac2; multi-latent attention
and experts: docs/user-guide, 2026)."""

from __future__ import annotations

from rooflm.catalogue.model import MLA, MLP, Attention, Block, CompressedAttention, Model, MoE


def megatron_model(model: Model, tokenizer: str) -> list[str]:
    """Words that make the model itself: layers, widths, heads, experts, norms, tokenizer; none for a model whose mixers
    have no arguments there. tokenizer: hub id or folder whose tokenizer it takes.

    >>> from rooflm.readers.checkpoints.load import load_model
    >>> megatron_model(load_model("llama-3.1-8b"), "x")[:3]
    ['--num-layers 32', '--hidden-size 4096', '--num-attention-heads 32']
    """
    m = model.scaled
    mixers = {b.mixer for b in m.blocks}
    experts = [b for b in m.blocks if isinstance(b.ffn, MoE)]
    dense = [b for b in m.blocks if isinstance(b.ffn, MLP)]
    one = next(iter(mixers))
    if len(mixers) != 1 or not isinstance(one, Attention | MLA) or isinstance(one, CompressedAttention):
        return []
    if len({b.ffn for b in experts}) > 1:
        return []
    gated = all(b.ffn.gated for b in m.blocks if b.ffn is not None)
    words = [f"--num-layers {_n(m.layers)}", f"--hidden-size {_n(m.hidden)}", f"--num-attention-heads {_n(one.heads)}"]
    words += _latent(one) if isinstance(one, MLA) else _heads(one, m.hidden)
    words += [f"--ffn-hidden-size {_n(b.ffn.width)}" for b in dense[:1] if isinstance(b.ffn, MLP)]
    words += _experts(m.blocks, experts)
    words += ["--swiglu"] if gated else []
    words += ["--normalization RMSNorm"] if m.norm == "rms" else []
    biased = (isinstance(one, Attention) and one.out_bias) or any(b.ffn.bias for b in dense if isinstance(b.ffn, MLP))
    words += [] if biased else ["--disable-bias-linear"]
    rotary = isinstance(one, MLA) or one.rope
    words += ["--position-embedding-type rope"] if rotary else []
    words += [] if m.tied else ["--untie-embeddings-and-output-weights"]
    words.append(f"--tokenizer-type HuggingFaceTokenizer --tokenizer-model {tokenizer}")
    return words


def _n(value: object) -> int:
    return int(float(str(value)))


def _heads(a: Attention, hidden: object) -> list[str]:
    """Grouped queries, the head's width where it is not the usual one, norms and biases of queries and keys."""
    words = [f"--group-query-attention --num-query-groups {_n(a.kv_heads)}"] if a.kv_heads != a.heads else []
    words += [f"--kv-channels {_n(a.head_dim)}"] if _n(a.head_dim) * _n(a.heads) != _n(hidden) else []
    return [*words, *(["--qk-layernorm"] if a.qk_norm else []), *(["--add-qkv-bias"] if a.bias else [])]


def _latent(a: MLA) -> list[str]:
    words = ["--multi-latent-attention"] + ([f"--q-lora-rank {_n(a.q_rank)}"] if a.q_rank else [])
    return [*words, f"--kv-lora-rank {_n(a.kv_rank)}", f"--qk-head-dim {_n(a.nope_dim)}",
            f"--qk-pos-emb-head-dim {_n(a.rope_dim)}", f"--v-head-dim {_n(a.value_dim)}"]  # fmt: skip


def _experts(blocks: tuple[Block, ...], experts: list[Block]) -> list[str]:
    """Routed and shared experts, and which layers have them."""
    if not experts or not isinstance(experts[0].ffn, MoE):
        return []
    f = experts[0].ffn
    words = [
        f"--num-experts {_n(f.experts)}",
        f"--moe-router-topk {_n(f.top_k)}",
        f"--moe-ffn-hidden-size {_n(f.width)}",
    ]
    words += [f"--moe-shared-expert-intermediate-size {_n(f.shared_width)}"] if f.shared_width else []
    if len(experts) != len(blocks):
        pattern = "+".join(f"[{int(isinstance(b.ffn, MoE))}]*{_n(b.count)}" for b in blocks)
        words.append(f"--moe-layer-freq '({pattern})'")
    return words
