"""What a value set by path may be: the rule of its field, said at the field itself where the class describes its
fields (`catalogue.fields`), else here."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from rooflm.catalogue.engine import ABOUT, PLACES, Kernels
from rooflm.catalogue.engines import known_kernels
from rooflm.catalogue.fields import About, abouts, bounded, held, one_of
from rooflm.scenario import paths
from rooflm.scenario.mapping import RECOMPUTE, SCHEDULES, Mapping
from rooflm.scenario.scenario import Workload
from rooflm.scenario.training import OPTIMIZERS, Training

CHOICES: dict[str, Any] = {
    "training.optimizer": OPTIMIZERS, "mapping.recompute": RECOMPUTE, "mapping.schedule": SCHEDULES,
    "quant.kind": ("any", "int", "float"), "workload.logits": ("last", "all"),
    **{f"engine.{path}": about.among for name, about in ABOUT.items() if about.among for path in (name, PLACES[name])},
}  # fmt: skip
"""Fields that hold one of a few words, by path."""

ANY, SOME, SHARE = About(""), About("", above=True), About("", high=1.0)
COUNT, FEW = About("", low=1, whole=True), About("", whole=True)
RULES: dict[tuple[type[Any], str], About] = {
    **{(Mapping, name): COUNT for name in ("tp", "pp", "dp", "cp", "ep", "vp", "micro_batch", "in_flight")},
    **{(Mapping, name): FEW for name in ("recompute_layers", "fsdp_group", "gpus")},
    (Mapping, "zero"): About("", high=3, whole=True),
    **{(Workload, name): COUNT for name in ("batch", "prompt", "output", "seq")},
    (Workload, "cached"): FEW,
    **{(Training, name): SHARE for name in ("trainable_layers", "offload_params", "offload_optimizer",
                                            "offload_activations")},
    (Training, "mtp"): FEW, (Training, "lora_rank"): FEW, (Training, "flushes"): COUNT,
}  # fmt: skip
"""(Class, field) -> its rule, for classes that do not describe their fields."""
MAY_BE_ZERO = ("latency", "idle", "price")
"""Fields without a default that may be 0; of the others those whose default is 0 may."""


def rule_of(owner: Any, name: str) -> About:
    """The rule of a field that holds a number: its own, else above 0, or 0 where that is its default.

    >>> rule_of(Mapping(), "tp").rule, rule_of(Mapping(), "fsdp_group").rule, rule_of({"bf16": 1.0}, "bf16").rule
    ('a whole number of at least 1', 'a whole number of at least 0', 'above 0')
    """
    if not is_dataclass(owner):
        return SOME
    kind: Any = type(owner)
    own = abouts(kind).get(name) or RULES.get((kind, name))
    if own is not None:
        return own
    default = next((f.default for f in fields(kind) if f.name == name), MISSING)
    zero = name in MAY_BE_ZERO or (isinstance(default, int | float) and default == 0)
    return ANY if zero else SOME


def allowed(root: Any, path: str, value: Any) -> Any:
    """A value as the field at a path holds it. Raises RooflmError for an unknown path and a value beyond its rule."""
    owner, name = paths.found(root, path)
    if path in CHOICES:
        return one_of(path, value, CHOICES[path])
    about = abouts(type(owner)).get(name) if is_dataclass(owner) else None
    if about is not None:
        value = held(path, value, about)
        if isinstance(owner, Kernels) and name == "whose":
            known_kernels(path, value)
    elif not isinstance(value, str | bool) and not is_dataclass(paths.get(root, path)):
        bounded(path, value, rule_of(owner, name))
    return value
