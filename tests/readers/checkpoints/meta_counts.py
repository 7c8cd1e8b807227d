"""Parameters of causal families on the meta device against ours: `python tests/readers/checkpoints/meta_counts.py`.

Each family's default config goes through AutoConfig and its class without memory, and as JSON through our reader.
Families whose default config its own class refuses are left out: they cannot be counted.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

from rooflm.errors import RooflmError, RooflmWarning
from rooflm.readers.checkpoints.read import read_config

APART = {"longcat_flash": "transformers allocates gate and up for the identity experts too: 741 B for the card's 562 B"}


USUAL: dict[str, dict[str, object]] = {
    "deepseek_v2": {"num_experts_per_tok": 6}, "glm4_moe": {"head_dim": 128}, "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 64, "moe_topk": 8, "intermediate_size": 3072},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16}, "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
}  # fmt: skip
"""Fields that published configs of a family have and its default, which no class or no reader takes, has not."""


class Count(NamedTuple):
    """One family: parameters by transformers and by us (0: refused), what we said, or why theirs cannot be counted."""

    family: str
    theirs: int
    ours: int
    said: str

    @property
    def off(self) -> float:
        return self.ours / self.theirs - 1 if self.theirs and self.ours else float("nan")

    @property
    def told(self) -> bool:
        """Right to 0.5 %, or refused or warned of with a reason."""
        return abs(self.off) <= 0.005 or bool(self.said or self.family in APART)


def causal_families() -> dict[str, str]:
    """model_type -> class, of the installed transformers."""
    from transformers.models.auto import modeling_auto as auto

    return dict(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def count(family: str, name: str, **given: object) -> Count:
    """Both counts of one family; `given`: fields of its config that are not its defaults."""
    import torch
    import transformers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config = transformers.AutoConfig.for_model(family, **USUAL.get(family, {}) | given)
            text = config.to_json_string(use_diff=False)
            with torch.device("meta"):
                model = getattr(transformers, name)._from_config(config)
        except Exception as error:  # whatever their class does not accept of its own default
            return Count(family, 0, 0, f"{type(error).__name__}: {error}"[:100])
        theirs = sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RooflmWarning)
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(json.loads(text)))
        try:
            ours = int(read_config(path).parameters)
        except RooflmError as error:
            return Count(family, theirs, 0, str(error).partition("config.json: ")[2])
    return Count(family, theirs, ours, "; ".join(str(w.message).partition("config.json: ")[2] for w in said))


def main() -> int:
    """Prints every family; the number of those that are neither right nor told is the exit status."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    silent = 0
    asked = sys.argv[1:]
    for family, name in causal_families().items():
        if asked and family not in asked:
            continue
        c = count(family, name if isinstance(name, str) else name[0])
        state = "cannot be counted" if not c.theirs else "refused" if not c.ours else f"{c.off:+.2%}"
        print(f"{family:28}{state:>20}  {(c.said or APART.get(family, ''))[:120]}")
        silent += bool(c.theirs) and not c.told
    return silent


if __name__ == "__main__":
    raise SystemExit(main())
