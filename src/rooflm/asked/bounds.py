"""What a value set by path may be: the rule of its field, said at the field itself where the class describes its
fields (`catalogue.fields`), else here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from rooflm.asked import paths
from rooflm.asked.quantities import READ
from rooflm.catalogue.engine import ServerOptions
from rooflm.catalogue.fields import About, abouts
from rooflm.catalogue.hardware import Cluster, Device, Link, Memory
from rooflm.catalogue.model import Model
from rooflm.catalogue.quant import Quant
from rooflm.errors import RooflmError
from rooflm.readers.engines import ABOUT, known_words
from rooflm.readers.quantities import WRITTEN
from rooflm.readers.rows import names
from rooflm.readers.tables import check_bounds, check_unit, field_value, one_of
from rooflm.scenario.adapters import Adapters
from rooflm.scenario.mapping import Mapping
from rooflm.scenario.offload import Offload
from rooflm.scenario.scenario import Efficiency, Scenario, Workload
from rooflm.scenario.speculation import Speculation
from rooflm.scenario.training import Training
from rooflm.shown.numbers import chosen_text

DESCRIBED = {"workload": Workload, "mapping": Mapping, "efficiency": Efficiency, "training": Training,
             "speculation": Speculation, "offload": Offload, "adapters": Adapters, "quant": Quant}  # fmt: skip
ANY, SOME = About(""), About("", above=True)
RATE = About("dense rate of a data type", "flop/s", above=True)
"""Rules of numbers that say none themselves: those whose default is 0 may be 0."""


def rule_of(owner: Any, name: str) -> About:
    """The rule of a field that holds a number: its own, else above 0, or 0 where that is its default.

    >>> rule_of(Mapping(), "tp").low, rule_of(Mapping(), "fsdp_group").low, rule_of({"bf16": 1.0}, "bf16").above
    (1.0, 0, True)
    """
    if not is_dataclass(owner):
        return SOME
    kind: Any = type(owner)
    about = abouts(kind).get(name)
    if about is not None:
        return about
    default = next((f.default for f in fields(kind) if f.name == name), MISSING)
    return ANY if isinstance(default, int | float) and default == 0 else SOME


def about_at(path: str) -> About | None:
    """What is known of the field at a path; None where its field does not say."""
    part, _, rest = path.partition(".")
    *above, name = rest.split(".")
    if part == "engine":
        return (abouts(ServerOptions) if above[-1:] == ["server"] else ABOUT).get(name)
    if part == "cluster" and above[-1:] == ["peak"]:
        return RATE
    kind = DESCRIBED.get(part) or (Model if part == "model" and not above else None)
    if part == "cluster":
        levels = {"tiers": Link, "device": Device, "l1": Memory, "l2": Memory, "dram": Memory}
        kind = next((levels[k] for k in reversed(above) if k in levels), None if above else Cluster)
    return abouts(kind).get(name) if kind else None


def unit_at(path: str) -> str | None:
    """The unit in which the field at a path counts, as `quantities.amount` takes it; None where its field does not say.

    >>> unit_at("training.mtbf"), unit_at("engine.step"), unit_at("mapping.tp"), unit_at("cluster.device.tdp")
    ('s', 's', '', 'W')
    """
    about = about_at(path)
    unit = "" if about is None or about.unit == "1" else WRITTEN.get(about.unit, about.unit)
    return unit if about and unit in READ else None


def written_unit(path: str) -> str:
    """The unit of the field at a path as people write it; "" where it has none."""
    about = about_at(path) if "." in path else None
    return WRITTEN.get(about.unit, "") if about else ""


def with_unit(path: str, value: float) -> str:
    """A value of the field at a path as it was chosen, with its unit.

    >>> with_unit("cluster.device.dram.bandwidth", 3.35e12), with_unit("engine.step", 1e-3), with_unit("mapping.tp", 8)
    ('3.35 TB/s', '1 ms', '8')
    """
    return chosen_text(value, written_unit(path))


def allowed(root: Any, path: str, value: Any) -> Any:
    """A value as the field at a path holds it. Raises RooflmError for an unknown path and a value beyond its rule."""
    if "." not in path:
        raise RooflmError(f"path {path!r} must start with model., workload., mapping., cluster., engine. or quant.")
    owner, name = paths.found(root, path)
    about = abouts(type(owner)).get(name) if is_dataclass(owner) else None
    if about is not None:
        value = field_value(path, value, about)
        if path.startswith("engine."):
            known_words("kernels" if name == "whose" else name, value, path)
        elif name == "kernels_of":
            one_of(path, value, names("gpu"))
    elif not isinstance(value, str | bool) and not is_dataclass(paths.get(root, path)):
        check_bounds(path, value, rule_of(owner, name))
    check_unit(path, value, (about_at(path) or ANY).unit)
    return value


OF_TRAINING = (
    "training.", "workload.seq", "workload.tokens", "mapping.vp", "mapping.sp", "mapping.micro_batch",
    "mapping.recompute", "mapping.zero", "mapping.fsdp_group", "mapping.schedule",
)  # fmt: skip
OF_INFERENCE = (
    "speculation.", "offload.", "adapters.", "workload.prompt", "workload.output", "workload.cached",
    "workload.logits", "mapping.in_flight",
)  # fmt: skip
"""Beginnings of paths that only one phase reads."""
FACTORS = ("efficiency.compute", "efficiency.memory", "efficiency.network")
"""Read in the mode "flat" alone."""


def effective(s: Scenario, sets: Iterable[str], training: bool) -> None:
    """RooflmError for a path that was set and that this prediction does not read.

    >>> from rooflm.asked.build_inference import build_inference
    >>> build_inference(model="llama-7b", gpu="a100", sets={"training.mtp": 1})
    Traceback (most recent call last):
    rooflm.errors.RooflmError: training.mtp is of training: it has no effect on inference
    """
    for path in sets:
        if path.startswith(OF_INFERENCE if training else OF_TRAINING):
            own, other = ("inference", "training") if training else ("training", "inference")
            raise RooflmError(f"{path} is of {own}: it has no effect on {other}")
        if path == "quant.in_files":
            raise RooflmError(f"{path} has no effect on a scheme that was chosen: name the one of the files by --quant")
        if path in FACTORS and s.efficiency.mode != "flat":
            mode = s.efficiency.mode
            raise RooflmError(
                f"{path} has no effect with efficiency {mode}: give --efficiency as factors such as 0.7,0.9 instead"
            )
