"""The command that starts a serving engine as a search's answer says, in the words of the engine's row
(`Engine.command`); of training: `train_command`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.engines import load_engine, usual_engine
from rooflm.catalogue.model import Model
from rooflm.catalogue.quant import Quant
from rooflm.scenario.build_inference import find_model, quant_for


def command_of(
    model: str | Model, found: Any, given: Mapping[str, Any], spread: tuple[float, float] | None
) -> str:  # fmt: skip
    """The command that starts the best answer's engine: of a search under load, the best of those simulated."""
    if found.best is None:
        return ""
    confirmed = getattr(found, "chosen", None)
    chosen = dict(confirmed.candidate.inputs if confirmed else found.best.inputs)
    if hasattr(found, "confirmed"):
        chosen["batch"] = confirmed.load if confirmed and found.kind == "concurrency" else chosen.get("concurrency", 0)
    if "engine.token_budget" in chosen:
        chosen["token_budget"] = chosen["engine.token_budget"]
    one = {k: (chosen[k] if k in chosen else given.get(k)) for k in ("engine", "quant")}
    quant = quant_for(find_model(model), one["quant"], [])
    longest = given["prompt"] + given["output"]
    if hasattr(found, "confirmed"):
        longest = math.floor(longest * (spread or (0.8, 1.2))[1])
    engine = load_engine(one["engine"] or usual_engine("inference"))
    name = model if isinstance(model, str) else str(model.source)
    return serve_command(name, engine, quant, chosen, int(longest))


def serve_command(model: str, engine: Engine, quant: Quant, chosen: Mapping[str, Any], length: int) -> str:
    """The command of the engine's family, or an empty text for one that has none.

    chosen: tp, pp, dp, ep, batch (0: the engine's own limit), and a token_budget where one was chosen (infinity:
    prompts go in whole). length: longest sequence (prompt and output).

    >>> from rooflm.catalogue.quant import PRESETS
    >>> from rooflm.catalogue.engines import load_engine
    >>> serve_command("m", load_engine("vllm"), PRESETS["bf16"], {"tp": 8, "batch": 64}, 640)[:76]
    'vllm serve m --tensor-parallel-size 8 --max-num-seqs 64 --max-model-len 640 '
    """
    if not engine.command.start:
        return ""
    v = {k: int(chosen.get(k, 1)) for k in ("tp", "pp", "dp", "ep", "batch")}
    v["budget"], v["whole"] = token_budget(engine, chosen, length)
    return " ".join(_words(engine, quant, v, length)).format(
        model=model, **_numbers(engine, v, length), memory_fraction=float(engine.room.memory_fraction),
        free_fraction=float(engine.room.free_fraction),
    )  # fmt: skip


def token_budget(engine: Engine, chosen: Mapping[str, Any], length: int) -> tuple[int, bool]:
    """New tokens a pass (0: nothing to say), and whether prompts were chosen to go in whole.

    >>> token_budget(Engine("vllm").but(token_budget=8192), {}, 640), token_budget(Engine("vllm"), {}, 640)
    ((8192, False), (0, False))
    >>> token_budget(Engine("vllm").but(token_budget=8192), {"token_budget": math.inf}, 9000)
    (9000, True)
    """
    own = float(engine.room.token_budget)
    asked = float(chosen.get("token_budget", own))
    if math.isfinite(asked):
        return int(asked), False
    return (int(max(own if math.isfinite(own) else 0, length)), True) if "token_budget" in chosen else (0, False)


def _shared(engine: Engine, v: Mapping[str, int]) -> bool:
    """Whether ranks share experts and have sequences of their own: then such engines count the whole group as one."""
    c = engine.command
    known = bool(c.attention_dp or c.attention_dp_file) and (c.attention_tp or v["tp"] == 1)
    return known and v["ep"] > 1 and v["dp"] > 1


def _numbers(engine: Engine, v: Mapping[str, int], length: int) -> dict[str, int]:
    """What a command's words may ask for."""
    ranks = v["dp"] if _shared(engine, v) else 1
    more = {"group": v["tp"] * ranks, "group_budget": v["budget"] * ranks, "each": -(-v["batch"] // v["dp"])}
    return {**v, **more, "length": length}


def _words(engine: Engine, quant: Quant, v: Mapping[str, int], length: int) -> list[str]:
    """The command's parts that the answer asks for, those of the file of options first."""
    c, shared = engine.command, _shared(engine, v)
    group = v["tp"] * v["dp"] if shared else v["tp"]
    narrow = quant.weight_bits == 8 and quant.act_bits == 8 and quant.kind != "int" and not quant.block
    cache = quant.kv_bits == 8
    room = engine.room
    file = [c.attention_dp_file] * shared + [c.kv8_file] * cache
    lines = "".join(f"{line}\\n" for text in file if text for line in text.split("\n"))
    whole = c.whole if v["whole"] else ""
    asked = {
        c.tp: group > 1, c.pp: v["pp"] > 1, c.dp: v["dp"] > 1, c.ep: v["ep"] > 1, c.attention_dp: shared,
        c.batch: v["batch"] > 0, c.length: True, whole: True,
        c.budget: v["budget"] > 0 and (not whole or c.budget.split()[0] not in whole),
        c.chunked: 0 < v["budget"] < length, c.memory: room.memory_fraction != 1,
        c.free: room.free_fraction != 1 and not (cache and c.kv8_file),
        c.fp8: narrow, c.kv8: cache, c.file: bool(lines),
    }  # fmt: skip
    words = [text for text, wanted in asked.items() if text and wanted]
    return [*([f"printf '{lines}' > extra.yaml &&"] if lines else []), c.start, *words]
