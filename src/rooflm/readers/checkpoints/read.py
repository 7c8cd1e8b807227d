"""A Hugging Face config.json to a Model, without transformers.

Each layer gets its mixer and feed-forward from what the config says (`families` has one row a model_type); equal
layers are then counted into blocks. A mixture of experts is never read as dense, latent attention never as plain
attention, a window never as full attention: those fields are honoured in a model_type of any name.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from rooflm.catalogue.model import INF, Attention, Block, Model, MoE
from rooflm.errors import RooflmError, RooflmWarning, near_matches
from rooflm.readers.checkpoints import layers
from rooflm.readers.checkpoints.config import Config, language_part, read_json
from rooflm.readers.checkpoints.families import Family, families, refused
from rooflm.readers.checkpoints.quantisation import codebook_values, scheme
from rooflm.readers.checkpoints.towers import tower_params
from rooflm.readers.checkpoints.unusual import BUILDERS
from rooflm.readers.models import checked

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_STRANGE = ("mamba", "ssm_", "linear_num", "linear_attn", "rwkv", "lru_", "attn_type_list", "block_configs",
            "compress_r", "sparse_attention", "hc_mult", "altup_", "laurel_", "num_kv_shared", "cla_share",
            "cross_attention", "H_cycles", "moba_", "nsa_", "engram", "conv_kernel_size", "depth_decoder",
            "index_topk_blocks", "gated_norm_rank", "cross_layer_interval",
            "n_recurrent", "total_ut_steps", "mean_recurrence")  # fmt: skip
"""Beginnings of fields that change what a layer is: an unknown family that sets one is refused."""
_DECODER = ("CausalLM", "LMHead", "ConditionalGeneration", "ForGeneration", "Chat")
_TWO_MATRICES = ("relu2", "xielu")


def _family(config: dict[str, Any], label: str) -> tuple[Family, bool]:
    """The family's row and whether the model_type is known; unknown ones read as Llama-like, with a warning."""
    name = config.get("model_type")
    if name is None:
        raise RooflmError(f"{label}: model_type is missing: give one, such as 'llama', 'qwen3' or 'deepseek_v3'")
    if not isinstance(name, str) or not name:
        raise RooflmError(f"{label}: model_type is {name!r}, but it must be a name such as 'llama'")
    short = name.lower().removesuffix("_text")
    why = refused(short) or (refused("t5") if config.get("is_encoder_decoder") is True else "")
    if why:
        raise RooflmError(f"{label}: model_type {name!r} cannot be read: {why}")
    if short in families():
        return families()[short], True
    kinds = [a for a in config.get("architectures") or [] if isinstance(a, str)]
    if kinds and not any(mark in a for a in kinds for mark in _DECODER):
        raise RooflmError(f"{label}: model_type {name!r} cannot be read: architectures is {kinds[0]!r}, which is not a "
                          "decoder-only language model")  # fmt: skip
    return Family(gated=config.get("hidden_act") not in _TWO_MATRICES), False


def _required(c: Config) -> None:
    """Refuse a config without the fields that nothing can stand in for, naming them all."""
    needed = ["hidden", "layers", "heads", "vocab"]
    if c.get("hybrid_override_pattern") or c.get("layers_block_type"):
        needed.remove("layers")
    if c.family.layers == "mamba":
        needed.remove("heads")
    elif not c.family.width_factor and not c.has("experts") and c.family.layers not in ("zamba2", "nas"):
        needed.append("width")
    if c.has("kv_lora_rank"):
        needed += ["qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"]
    if c.has("experts"):
        needed.append("top_k")
    missing = [c.key(n) for n in needed if c.get(c.key(n)) is None]
    if missing:
        raise RooflmError(f"{c.label}: missing field{'s' * (len(missing) > 1)} {', '.join(missing)}")


def _positions(c: Config) -> int:
    """Learned position embeddings: GPT-2 and encoders have them, rotary and ALiBi models none."""
    if "mpt" in c.family.extra:
        alibi = c.flag("attn_config.alibi") or not c.flag("learned_pos_emb?")
        return 0 if alibi else c.number("context")
    return 0 if c.family.position_offset is None else c.number("context") + c.family.position_offset


def read_config(path: str | Path) -> Model:
    """The model that a config.json (or the folder that holds it) describes, named after its folder or file.

    An unknown model_type is read as a Llama-like decoder, with a RooflmWarning that says so; RooflmError names the
    field, its value and the rule when the config is damaged or lacks what is needed.
    """
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    whole = read_json(file)
    beside = file.parent / "hf_quant_config.json"
    quantised = read_json(beside) if beside.is_file() else {}
    return from_fields(whole, str(file), name_of(file), beside=quantised, pooled=(file.parent / POOLED).is_file())


POOLED = "modules.json"
"""File of a repository whose model is used through sentence-transformers, which pools hidden states to embeddings."""


def name_of(file: Path) -> str:
    """What a config's model is called: the folder of a config.json, any other file's own name; in the hub's cache the
    repository's.

    >>> name_of(Path("/models/llama-tiny/config.json")), name_of(Path("configs/mine.json"))
    ('llama-tiny', 'mine')
    >>> name_of(Path("/cache/hub/models--Qwen--Qwen3-8B/snapshots/b968/config.json"))
    'qwen3-8b'
    """
    if file.name != "config.json":
        return file.stem
    folder = file.absolute().parent
    if folder.parent.name == "snapshots":
        return folder.parent.parent.name.rpartition("--")[2].lower()
    return folder.name or file.stem


def _read_part(whole: dict[str, Any], label: str) -> tuple[dict[str, Any], Config, bool]:
    """The language part's fields, as a checked config, and whether its model_type is known."""
    config = language_part(whole, label)
    family, known = _family(config, label)
    c = Config(config, family, label)
    if not known:
        strange = [k for k, v in config.items() if k.startswith(_STRANGE) and v not in (None, 0, False, {}, [])]
        if strange:
            near = near_matches(config["model_type"], families())
            kin = f"; if its layers are those of {' or '.join(near)}, say so as its model_type" * bool(near)
            raise RooflmError(f"{label}: model_type {config['model_type']!r} is unknown, and {strange[0]} says that "
                              f"its layers are not those of a plain decoder{kin}")  # fmt: skip
    _required(c)
    return config, c, known


def warn_approximations(c: Config, config: dict[str, Any], known: bool, tower: int) -> None:
    """Warn about what the answer rests on: an unknown family, an approximation, vision or audio towers."""
    said = []
    if not known:
        feed = "gated" if c.family.gated else "two-matrix"
        said.append(f"unknown model_type {config['model_type']!r}, read as a Llama-like decoder "
                    f"({feed} feed-forward, RMS norms, rotary embedding)")  # fmt: skip
    if c.family.note:
        said.append(f"{config['model_type']}: {c.family.note}")
    if tower:
        said.append(f"with its vision or audio towers, about {tower / 1e6:.0f} M parameters, in memory; images and "
                    "sounds count as tokens of the prompt, and the time of the towers is not counted")  # fmt: skip
    for text in said:
        warnings.warn(f"{c.label}: {text}", RooflmWarning, stacklevel=4)


def from_fields(
    whole: dict[str, Any], label: str, name: str, quant: str | None = None, dtype: str = "",
    beside: dict[str, Any] | None = None, pooled: bool = False,
) -> Model:  # fmt: skip
    """The model that the fields of a config describe. `quant` and `dtype`: its scheme and 16-bit type where they are
    known otherwise; `beside`: ModelOpt's hf_quant_config.json; `pooled`: its hidden states become embeddings."""
    config, c, known = _read_part(whole, label)
    tower = tower_params(whole, c.number("hidden"))
    warn_approximations(c, config, known, tower)
    family = c.family
    if family.layers:
        blocks, extra = BUILDERS[family.layers](c)
    else:
        blocks = layers.blocks(c)
        extra = layers.extra_params(c, blocks)
    if "mpt" in family.extra and c.flag("no_bias"):
        family = family._replace(norm="layer-no-bias")
    given = config.get("dtype") or config.get("torch_dtype")
    if quant is None:
        experts = any(isinstance(b.ffn, MoE) for b in blocks)
        quant = scheme(config, beside or {}, label, int(sum(b.count for b in blocks)), experts)
    extra += codebook_values(config, layers.matrices(blocks))
    model = Model(
        name=name, hidden=c.number("hidden"), vocab=c.number("vocab"), blocks=blocks, positions=_positions(c),
        streams=c.number("hc_mult", 4) if "hyper_connections" in family.extra else 1,
        max_context=_context(c), head=not pooled and _predicts(config, blocks),
        tied=c.flag("tie_word_embeddings" + "?" * family.tied),
        norm=family.norm, family=str(config.get("model_type") or ""), head_bias=c.flag(family.head_bias),
        extra_params=extra, tower_params=tower, mtp_params=layers.mtp_params(c, blocks),
        dtype=dtype or (_DTYPES.get(given, "bf16") if isinstance(given, str) else "bf16"), quant=quant, source=label,
    )  # fmt: skip
    return checked(model, label)


def _context(c: Config) -> float:
    """Tokens that it was made for; RoBERTa's positions begin after that of the padding."""
    return (c.number("context", 0, 0) or INF) - 2 * ("padded_positions" in c.family.extra)


_JUDGES = ("Model", "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM")


def _predicts(config: dict[str, Any], blocks: tuple[Block, ...]) -> bool:
    """Whether a checkpoint predicts tokens one after the other. Those of bare models embed texts (E5, GTE, BGE on
    decoders), those of classifiers judge them (rerankers), and encoders, whose tokens see each other, do either.

    Source: the hub's naming of classes: MistralModel has no head, MistralForCausalLM has one.
    """
    if any(isinstance(b.mixer, Attention) and not b.mixer.causal for b in blocks):
        return False
    kinds = [a for a in config.get("architectures") or [] if isinstance(a, str)]
    return not kinds or not kinds[0].endswith(_JUDGES) or any(mark in kinds[0] for mark in _DECODER)
