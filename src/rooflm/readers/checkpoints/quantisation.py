"""The scheme of a quantised checkpoint, out of `quantization_config` or the hf_quant_config.json beside it.

Every method that transformers, vLLM, SGLang and TensorRT-LLM load has a row in METHODS; what is unknown is told by
name, never read as 16 bits in silence. The answer is a name that `rooflm.catalogue.quant` reads. Sources: transformers
documentation, "Quantization" (a page a method; fields of the config classes in utils/quantization_config.py);
compressed-tensors' QuantizationConfig; ModelOpt's hf_quant_config.json; Quark's "Exporting to Hugging Face format".
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rooflm.errors import RooflmError, RooflmWarning

Fields = Mapping[str, Any]

WIDE_GROUP = 100_000
"""A group as large as this is a channel or a tensor: its scales weigh nothing."""
ROW = 4096
"""Values that share a scale where there is one for a row of a matrix."""


def _number(value: Any, default: float) -> float:
    """A positive, finite number, or the default."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    return float(value) if good else default


def _table(value: Any) -> Fields:
    return value if isinstance(value, Mapping) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def weight_only(bits: float, group: float = 128) -> str:
    """Integer weights of any width with one 16-bit scale a group, activations at 16 bits.

    >>> weight_only(4), weight_only(3, 64), weight_only(8, -1), weight_only(2.25, 0), weight_only(2, 0)
    ('int4', 'w3a16g64', 'int8-wo', 'w2.25a16', 'w2a16g4096')
    """
    if bits == 4 and group in (0, 128):
        return "int4"
    if bits == 8:
        return "int8-wo"
    if 0 < group < WIDE_GROUP:
        return f"w{bits:g}a16g{group:g}"
    row = float(bits).is_integer() and bits < 8  # without a group, such a width would be read as grouped by 128
    return f"w{bits:g}a16" + f"g{ROW}" * row


def _gptq(q: Fields) -> str:
    """GPTQ, AWQ and AutoRound; a group of -1 is a row. AutoRound has floats too, as `data_type` says."""
    bits, acts = _number(q.get("bits"), 4), _number(q.get("act_bits"), 16)
    group = WIDE_GROUP if q.get("group_size") == -1 else _number(q.get("group_size"), 0)
    kind = str(q.get("data_type", "int")).lower().replace("-", "_")
    if kind.startswith(("mx", "nv", "fp")):
        block = {"group_size": group or 16 if kind.startswith("nv") else group or 32 * kind.startswith("mx")}
        return _group({"weights": block | {"num_bits": bits, "type": "float"}, "input_activations": {"num_bits": acts}})
    if acts == 8:
        return f"w{bits:g}a8"
    known = str(q.get("quant_method", "")).lower().partition("_")[0]
    return known if bits == 4 and group in (0, 128) and known in ("gptq", "awq") else weight_only(bits, group)


def _bitsandbytes(q: Fields) -> str:
    """8 bits compute in int8 (LLM.int8); 4 bits have a scale every 64 values, of 32 bits or (double) of 8 and a bit."""
    if q.get("load_in_8bit"):
        return "int8"
    return weight_only(4, 128 if q.get("bnb_4bit_use_double_quant") else 32)


def _algorithm(name: str) -> str:
    """ModelOpt's and TensorRT-LLM's quant_algo.

    >>> [_algorithm(a) for a in ("FP8", "NVFP4", "W4A16_AWQ", "FP8_PB_WO", "W4A8_AWQ", "W8A8_SQ_PER_CHANNEL")]
    ['fp8', 'nvfp4', 'awq', 'fp8-block', 'w4a8', 'int8']
    """
    low = name.lower().replace("-", "_")
    if low.startswith("w8a8_sq"):
        return "int8"
    if low.startswith(("fp8_pb", "fp8_block")):
        return "fp8-block"
    return {
        "fp8": "fp8", "fp8_per_channel_per_token": "fp8", "nvfp4": "nvfp4", "nvfp4_awq": "nvfp4", "w4a16_awq": "awq",
        "w4a16_gptq": "gptq", "w4a16": "int4", "w8a16": "int8-wo", "w8a16_gptq": "int8-wo", "w4a8_awq": "w4a8",
        "w4a8_nvfp4_fp8": "w4a8", "w4a8_mxfp4_fp8": "mxfp4a8", "w4a16_mxfp4": "mxfp4", "mxfp4": "mxfp4",
        "mxfp8": "mxfp8", "w4a16_nvfp4": "w4a16g16", "int8": "int8",
    }.get(low, "")  # fmt: skip


def _modelopt(q: Fields) -> str:
    inner = _table(q.get("quantization")) or q
    name = str(inner.get("quant_algo") or "")
    rows = _table(inner.get("quantized_layers"))
    if name.lower() != "mixed_precision":
        return _algorithm(name) if name else _groups(inner)
    return _mixed({key: _algorithm(str(_table(row).get("quant_algo"))) for key, row in rows.items()}) or _groups(inner)


def _mixed(layers: Mapping[str, str]) -> str:
    """Modules, or patterns of some, each with a scheme of its own: the narrowest, and what stays beside it, in 8 bits
    where all others are of that width.

    >>> _mixed({"layers.1.mixer.experts.0.up_proj": "nvfp4", "layers.0.mixer.in_proj": "fp8"})
    'nvfp4-fp8'
    >>> _mixed({"1.mlp.experts.0.up_proj": "nvfp4"}), _mixed({"1.mlp.up_proj": "nvfp4", "1.self_attn.q_proj": "fp8"})
    ('nvfp4-experts', 'nvfp4-ffn-fp8')
    >>> _mixed({"Linear": "fp8", "re:.*mlp.experts.*": "w4a16g32"}), _mixed({"Linear": "int4"})
    ('w4a16g32-fp8', 'int4')
    """
    known = {name for name in layers.values() if name}
    low = min(sorted(known), key=_width, default="")
    narrow = [key.lower() for key, name in layers.items() if name == low]
    others = [key.lower() for key, name in layers.items() if name not in ("", low)]
    fp8 = "-fp8" * bool(others and all(_width(name) <= 8.5 for name in known))
    if low and all("expert" in key and "shared" not in key for key in narrow):
        return low + (fp8 or "-experts")
    attention = any(map(_ATTENDS.search, others)) and not any(_ATTENDS.search(key) for key in narrow if key not in ALL)
    return low + ("-ffn" + fp8) * attention


ALL = ("*", "linear")
"""Patterns of all modules."""
_ATTENDS = re.compile(r"attn|attention|mixer|[qkvo]_proj|qkv|^(\*|linear)$")
"""What names of modules of the mixer hold, and patterns of all modules."""


def _group(group: Fields) -> str:
    """One group of compressed-tensors: widths and types of weights and input activations."""
    weights, acts = _table(group.get("weights")), _table(group.get("input_activations"))
    bits, kind = _number(weights.get("num_bits"), 16), str(weights.get("type", "int"))
    act_bits, size = _number(acts.get("num_bits"), 16) if acts else 16, _number(weights.get("group_size"), 0)
    if kind == "float":
        if bits == 8:
            block = str(weights.get("strategy")) == "block"
            return ("fp8-block" if block else "mxfp8" if size == 32 else "fp8") if act_bits == 8 else "w8a16"
        if bits == 4:
            narrow = {4: "nvfp4" if size == 16 or not size else "w4a4g32", 8: "mxfp4a8"}
            return narrow.get(int(act_bits), "w4a16g16" if size == 16 else "w4a16g32")
        return ""
    if act_bits == 16:
        return weight_only(bits, size)
    return "int8" if bits == act_bits == 8 else f"w{bits:g}a{act_bits:g}" + (f"g{size:g}" if size else "")


def _groups(q: Fields) -> str:
    """The groups of compressed-tensors, each with its targets; in a single group all of them share one scheme."""
    groups = [_table(g) for g in _table(q.get("config_groups")).values()]
    names = {_group(g) for g in groups} - {""}
    if len(names) < 2:
        return next(iter(names), "")
    return _mixed({str(target): _group(g) for g in groups for target in _listed(g.get("targets"))})


def _width(name: str) -> float:
    from rooflm.readers.schemes import parse_quant

    return float(parse_quant(name).weight_bits)


def _hqq(q: Fields) -> str:
    """A scale and a zero point of 16 bits each a group: as many bits as one for half of it."""
    inner = _table(q.get("quant_config")) or q
    params = _table(inner.get("weight_quant_params")) or inner
    return weight_only(_number(params.get("nbits"), 4), _number(params.get("group_size"), 64) // 2)


def _torchao(q: Fields) -> str:
    """quant_type is a text with arguments beside it, or a nested {"default": {"_type": ..., "_data": ...}}."""
    kind: Any = q.get("quant_type")
    arguments = _table(q.get("quant_type_kwargs"))
    if isinstance(kind, Mapping):
        chosen = _table(kind.get("default")) or _table(next(iter(kind.values()), {}))
        kind, arguments = chosen.get("_type", ""), _table(chosen.get("_data"))
        each = next((v for k, v in arguments.items() if k.endswith("fqn_to_config")), None)
        if isinstance(each, Mapping):  # a configuration a module, of which one is for all others
            return _torchao({"quant_type": {"default": _table(each.get("_default"))}})
    low = re.sub(r"[^a-z0-9]", "", str(kind).lower())
    group = _number(arguments.get("group_size"), 0)
    for mark, name in (
        ("int8dynamicactivationint4", f"w4a8g{group or 32:g}"),
        ("int8dynamicactivationint8", "int8"),
        ("float8dynamicactivationint4", f"w4a8g{group or 128:g}"),
        ("float8dynamicactivation", "fp8"),
        ("float8weightonly", "w8a16"),
        ("float8staticactivation", "fp8"),
        ("nvfp4", "nvfp4"),
        ("int4weightonly", weight_only(4, group or 128)),
        ("int8weightonly", "int8-wo"),
    ):
        if mark in low:
            return name
    if "uintx" in low or "intx" in low:
        bits = re.search(r"\d", str(arguments.get("dtype") or arguments.get("weight_dtype") or ""))
        return weight_only(float(bits[0]), group or 64) if bits else ""
    return ""


def _quark(q: Fields) -> str:
    """The scheme of a checkpoint that AMD Quark has quantised: one for all, and others by patterns of names."""
    whole = _table(q.get("global_quant_config")) or q
    own = {key: _quark_scheme(_table(row)) for key, row in _table(q.get("layer_quant_config")).items()}
    return _mixed({"*": _quark_scheme(whole)} | {key: name for key, name in own.items() if name})


def _quark_scheme(whole: Fields) -> str:
    """The scheme of one configuration, by its weights' and inputs' types."""
    weight: Any = whole.get("weight")
    weights = _table(weight[-1] if isinstance(weight, list) and weight else weight)
    acts: Any = whole.get("input_tensors")
    inputs = _table(acts[-1] if isinstance(acts, list) and acts else acts)
    kind, act = str(weights.get("dtype", "")).lower(), str(inputs.get("dtype", "")).lower()
    group = _number(weights.get("group_size"), 0)
    if kind.startswith("fp8"):
        return ("mxfp8" if group == 32 else "fp8") if act.startswith("fp8") else "w8a16"
    if kind in ("fp4", "mxfp4"):
        return {"fp4": "w4a4g32", "mxfp4": "w4a4g32", "fp8_e4m3": "mxfp4a8"}.get(act, "w4a16g32")
    bits = re.search(r"\d+", kind)
    if kind.startswith(("int", "uint")) and bits:
        return "int8" if bits[0] == "8" and act.startswith("int8") else weight_only(float(bits[0]), group or 128)
    return ""


def _aqlm(q: Fields) -> str:
    """Codes of `num_codebooks` books of 2^nbits entries for each in_group x out_group weights (arXiv 2401.06118)."""
    bits = _number(q.get("num_codebooks"), 1) * _number(q.get("nbits_per_codebook"), 16)
    return weight_only(bits / (_number(q.get("in_group_size"), 8) * _number(q.get("out_group_size"), 1)), 0)


def _vptq(q: Fields) -> str:
    """Index widths of centroids and of residual centroids over the vectors' length (arXiv 2409.17066)."""
    layers = _table(q.get("config_for_layers"))
    first = _table(next(iter(layers.values()), {}))

    def last(key: str) -> float:
        value = first.get(key)
        return _number(value[-1] if isinstance(value, list) and value else value, 0)

    length = last("vector_lens")
    if not length:
        return ""
    books = [c for c in (last("num_centroids"), last("num_res_centroids")) if c > 1]
    return weight_only(round(sum(math.log2(c) for c in books) / length, 3), 0) if books else ""


def _quanto(q: Fields) -> str:
    bits = re.search(r"\d+", str(q.get("weights", "")))
    if bits is None:
        return ""
    if str(q.get("activations") or "none").lower() == "none":
        return "w8a16" if "float" in str(q.get("weights")) else weight_only(float(bits[0]), 128)
    return "fp8" if "float" in str(q.get("weights")) else "int8"


def _mlx(q: Fields) -> str:
    """MLX's own form, which names no method: a 16-bit scale and bias a group, embedding and head quantised too.

    >>> _mlx({"group_size": 64, "bits": 4}), _mlx({"group_size": 32, "bits": 4, "mode": "mxfp4"})
    ('w4a16g32e4.5', 'w4a16g64e4.25')
    """
    bits, group = _number(q.get("bits"), 4), _number(q.get("group_size"), 64)
    each = 8 if str(q.get("mode", "affine")).lower() in ("mxfp4", "mxfp8", "nvfp4") else 32
    return f"w{bits:g}a16g{16 * group / each:g}e{bits + each / group:g}"


def _stated(bits: str, usual: float, group: str = "", size: float = 0) -> Callable[[Fields], str]:
    """A reader of integer weights whose width and group stand in fields of these names, with what they are unless said
    (size 0: no group)."""
    return lambda q: weight_only(_number(q.get(bits), usual), _number(q.get(group), size))


METHODS: dict[str, str | Callable[[Fields], str]] = {
    **dict.fromkeys(("auto-round", "awq", "awq-marlin", "gptq", "gptq-marlin", "moe-wna16"), _gptq),
    **dict.fromkeys(("modelopt", "modelopt-fp4", "modelopt-mixed"), _modelopt),
    **dict.fromkeys(("fbgemm-fp8", "ptpc-fp8", "w8a8-fp8"), "fp8"),
    **{name: name for name in ("mxfp4", "mxfp8", "nvfp4")},
    "bitnet": "w2a8",  # ternary weights, four to a byte
    "eetq": "int8-wo", "experts-int8": "int8-wo-experts", "petit-nvfp4": "w4a16g16", "w8a8-int8": "int8",
    "deepspeedfp": _stated("bits", 8, "group_size", 512), "higgs": _stated("bits", 4, "group_size", 256),
    "exl2": _stated("bits", 4), "exl3": _stated("bits", 4), "spqr": _stated("bits", 3, "beta1", 16),
    "sinq": _stated("nbits", 4, "group_size", 64),
    "fp-quant": lambda q: "nvfp4" if "nv" in str(q.get("forward_dtype", "")).lower() else "w4a4g32",
    "fp8": lambda q: "fp8-block" if q.get("weight_block_size") else "fp8",
    "aqlm": _aqlm, "bitsandbytes": _bitsandbytes, "compressed-tensors": _groups, "hqq": _hqq, "quanto": _quanto,
    "quark": _quark, "torchao": _torchao, "vptq": _vptq,
}  # fmt: skip
"""quant_method (in lower case, with hyphens) -> its scheme's name, or what finds it (empty: this form is not known)."""


def codebook_values(config: Fields, matrices: int) -> int:
    """16-bit values of the codebooks that AQLM keeps for each matrix: books x entries x values an entry stands for.

    >>> codebook_values({"quantization_config": {"quant_method": "aqlm", "num_codebooks": 1, "nbits_per_codebook": 16,
    ...     "in_group_size": 8, "out_group_size": 1}}, 7)
    3670016
    """
    q = _table(config.get("quantization_config"))
    if str(q.get("quant_method", "")).lower() != "aqlm":
        return 0
    bits = min(int(_number(q.get("nbits_per_codebook"), 16)), 16)
    group = _number(q.get("in_group_size"), 8) * _number(q.get("out_group_size"), 1)
    return int(matrices * _number(q.get("num_codebooks"), 1) * 2**bits * group)


_LISTS = ("ignore", "exclude", "exclude_modules", "modules_to_not_convert", "skip_modules", "ignored_layers",
          "modules_to_not_quantize", "llm_int8_skip_modules")  # fmt: skip


def kept_wide(q: Fields) -> list[str]:
    """Patterns of the modules that stay at 16 bits; each quantisation method has its own name for this list. GPTQModel
    marks them in `dynamic`, AutoRound by their width in `extra_config`.

    >>> kept_wide({"dynamic": {"-:.*attn.*": {}}}), kept_wide({"extra_config": {"model.0.q_proj": {"bits": 16}}})
    (['.*attn.*'], ['model.0.q_proj'])
    """
    inner = _table(q.get("quantization"))
    for source in (q, inner, _table(q.get("quant_config"))):
        for key in _LISTS:
            listed = source.get(key)
            if isinstance(listed, list):
                return [str(x).lower() for x in listed]
    marked = [key[2:] for key in _table(q.get("dynamic")) if key.startswith("-:")]
    wider = (key for key, row in _table(q.get("extra_config")).items() if _number(_table(row).get("bits"), 0) >= 16)
    return [key.lower() for key in (*marked, *wider)]


_SMALL = re.compile(r"norm|indexer|conv1d|in_proj_(a|b|ba)\b|(^|[._])gate\W*$|expert_gate|router|[._]o_proj\W*$")
"""Modules that weigh little, whatever their width (the output product alone: MiMo-V2.5)."""


def suffix(patterns: Iterable[str], targets: Iterable[str], layers: int, experts: bool) -> str:
    """Which parts stay wide, as the end of a scheme's name: "-experts" where only routed experts are narrow, "-ffn"
    where attention stays wide, else nothing. A part counts as wide where its modules of most layers are named (small
    ones aside).

    >>> suffix(["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"], ["Linear"], 60, True)
    '-experts'
    >>> suffix(["layers.*.post_attention_layernorm"], [], 60, True), suffix(["layers.*.self_attn*"], [], 60, False)
    ('', '-ffn')
    >>> suffix([f"{i}.{m}" for i in range(9) for m in ("linear_attn.conv1d", "mlp.shared_expert_gate")], [], 9, True)
    ''
    """
    listed = [p for p in patterns if not _SMALL.search(p)]

    def wide(*marks: str) -> bool:
        named = [p for p in listed if any(m in p for m in marks)]
        return any(re.search(r"[*]", p) or not re.search(r"\.\d+\.", p) for p in named) or len(named) > layers / 2

    only = [t.lower() for t in targets]
    if experts and only and all("expert" in t and "shared" not in t for t in only):
        return "-experts"
    attention = wide("attn", "attention", "mixer", "q_proj", "qkv")
    if attention and experts and wide("shared_expert", "shared_mlp"):
        return "-experts"
    return "-ffn" if attention else ""


def kv_bits(q: Fields) -> int:
    """Width of the cache that the checkpoint asks for; 0 where it says nothing.

    >>> kv_bits({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}), kv_bits({"kv_cache_quant_algo": "NVFP4"})
    (8, 4)
    """
    for source in (q, _table(q.get("quantization"))):
        scheme = source.get("kv_cache_scheme") or source.get("kv_cache_quant_config")
        if isinstance(scheme, Mapping) and scheme:
            inner = scheme if "num_bits" in scheme or "dtype" in scheme else _table(next(iter(scheme.values())))
            bits = re.search(r"\d+", str(inner.get("num_bits") or _table(inner.get("output_tensors")).get("dtype")
                                         or inner.get("dtype") or ""))  # fmt: skip
            return int(bits[0]) if bits and bits[0] in ("4", "8") else 0
        named = str(source.get("kv_cache_quant_algo") or source.get("kv_cache_dtype") or "").lower()
        if named not in ("", "none", "auto"):
            return 4 if "4" in named else 8 if "8" in named else 0
    return 0


def scheme(config: Fields, beside: Fields, label: str, layers: int, experts: bool) -> str:
    """The scheme's name; "" where the checkpoint is not quantised. `beside`: hf_quant_config.json's content ({}: none).

    A method, or a form of one, that is not known is told in a RooflmWarning: the answer is then for 16 bits.
    """
    q = _table(config.get("quantization_config")) or _table(config.get("compression_config")) or beside
    q = q or _table(config.get("quantization"))
    word = config.get("quantization_config")
    if isinstance(word, str) and not q:
        q = {"quant_method": word}
    elif word is not None and not isinstance(word, Mapping | str):
        raise RooflmError(f"{label}: quantization_config is {word!r}, but it must be a JSON object")
    if not q:
        return ""
    if not any(k in q for k in ("quant_method", "quant_algo", "quantization", "config_groups")) and "bits" in q:
        return _mlx(q)
    algorithm = q.get("quant_algo") or _table(q.get("quantization")).get("quant_algo")
    method = str(q.get("quant_method") or ("modelopt" if algorithm else "")).lower()
    method = method.split("/")[-1].replace("_", "-")
    known = METHODS.get(method, "")
    name = known if isinstance(known, str) else known(q)
    if not name and method == "modelopt" and beside is not q and beside:
        q, name = beside, _modelopt(beside)
    if name.startswith("fp8") and (config.get("expert_dtype") or q.get("expert_dtype")) == "fp4":
        name = "mxfp4a8-fp8"
        warnings.warn(f"{label}: expert_dtype is 'fp4': experts in mxfp4, all other matrices in blocks of fp8",
                      RooflmWarning, stacklevel=3)  # fmt: skip
    if not name:
        shown = method or "no quant_method"
        detail = f" with quant_algo {algorithm!r}" if algorithm else ""
        warnings.warn(f"{label}: quantization_config names {shown!r}{detail}, whose widths are not known: read as 16 "
                      "bits; give --quant, such as int4 or fp8", RooflmWarning, stacklevel=3)  # fmt: skip
        return ""
    groups = _table(q.get("config_groups")).values()
    targets = [t for g in groups for t in _listed(_table(g).get("targets")) if isinstance(t, str)]
    said = name.startswith("mxfp4") or name.endswith(("-experts", "-fp8", "-ffn"))
    end = "" if said else suffix(kept_wide(q), targets, layers, experts)
    bits = kv_bits(q)
    name += end
    return name + (("-" if "-" in name else "") + f"kv{bits}" if bits else "")
