"""The command that starts a serving engine as a search's answer says, in the words of the engine's row
(`readers.command`), from the checkpoint of the scheme that was chosen; of training: `train_command`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rooflm.asked.arguments import defaults
from rooflm.asked.assumed import sharing
from rooflm.asked.build_inference import build_inference
from rooflm.catalogue.engine import Engine
from rooflm.catalogue.fields import words_in
from rooflm.catalogue.model import Model
from rooflm.catalogue.quant import Quant
from rooflm.readers.checkpoints.load import load_model
from rooflm.readers.command import command_of
from rooflm.scenario.mapping import SERVED_DEGREES
from rooflm.scenario.scenario import Scenario
from rooflm.search.checkpoint import home_of, plain_fp8, weights_for
from rooflm.units import highest

FORMS = ("env: ", "file: ")
"""How a text of `readers.command` begins that goes into the environment, or into the file of options."""
OPTIONS = "extra.yaml"
"""The file of options of engines that take some by a file alone."""


@dataclass(frozen=True)
class Start:
    """How to start a deployment. server: words of the server's command line; environment: variables before them;
    options: lines of its options file; after: commands to run once it is up; note: what to do first; gpus: per server;
    replicas: number of servers; before: for separate pools, how the prefill servers start; role: prefill or decode."""

    engine: Engine
    server: str
    environment: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    after: str = ""
    note: str = ""
    gpus: int = 1
    replicas: int = 1
    before: Start | None = None
    role: str = ""

    @property
    def text(self) -> str:
        """The commands: each one line of a shell; of pools with a line of comment before it."""
        if self.before is None:
            return self.line
        names = [[kind] if n == 1 else [f"{kind}{i + 1}" for i in range(n)]
                 for kind, n in (("PREFILL", self.before.replicas), ("DECODE", self.replicas))]  # fmt: skip
        return "\n".join([
            f"# prefill, {self.before.replicas} of:", self.before.line, f"# decode, {self.replicas} of:", self.line,
            "# in front of them, with every server's address:", self.router(*names),
        ])  # fmt: skip

    def router(self, prefills: Sequence[str], decodes: Sequence[str]) -> str:
        """What stands in front of servers of these hosts, as a line of a shell."""
        c = command_of(self.engine)

        def fill(each: str, hosts: Sequence[str]) -> str:
            return " ".join(each.format(host=host, port=c.port) for host in hosts)

        return c.router.format(
            prefills=fill(c.router_prefill, prefills), decodes=fill(c.router_decode, decodes),
            prefill_hosts=" ".join(prefills), decode_hosts=" ".join(decodes),
            prefill_ports=fill("{port}", prefills), decode_ports=fill("{port}", decodes),
            prefill_count=len(prefills), decode_count=len(decodes),
        )  # fmt: skip

    @property
    def line(self) -> str:
        """The command as one line of a shell."""
        lines = "".join(f"{line}\\n" for line in self.options)
        first = [f"printf '{lines}' > {OPTIONS} &&"] if lines else []
        return " ".join([*first, *self.environment, self.server, *([f"& {self.after}"] if self.after else [])])

    @property
    def words(self) -> list[str]:
        """The server's command line cut into words, as a container takes it."""
        return shlex.split(self.server)


NOWHERE = -1
"""Layers on a GPU of a device that is none (a CPU): its command does not ask for any."""
MACHINE = ("gpu", "engine", "quant", "cluster")
BESIDE = ("guesses", "draft", "adapters", "adapter_rank", "cpu_layers", "cpu_experts")
"""Arguments of a search that all its points share, and that the engine's start holds."""


def start_of(model: str | Model, found: Any, given: Mapping[str, Any], named: str = "") -> Start | None:
    """How the best answer's engine starts: of a search under load, the best of those simulated. given: the arguments of
    the search; named: what the command calls the model (default: as it is named)."""
    given = {**defaults("search_serve"), **{k: v for k, v in given.items() if v is not None}}
    if found.best is None:
        return None
    best = inputs_of(found)
    s = scenario_of(model, best, given)
    chosen = {**{k: given[k] for k in BESIDE if not isinstance(given.get(k), list | None)}, **best}
    if chosen.get("draft"):
        named_so, guesses = chosen["draft"], load_model(chosen["draft"])
        own = command_of(s.engine).weights and weights_for(named_so, guesses, s.quant, s.engine).name
        chosen["draft"] = own or home_of(named_so, guesses) or named_so
    if chosen.get("cpu_layers"):
        chosen["layers"] = int(s.model.layers) - int(chosen["cpu_layers"])
    elif s.cluster.device.called != "GPU":
        chosen["layers"] = NOWHERE
    longest = given["prompt"] + given["output"]
    if hasattr(found, "confirmed"):
        longest = math.floor(longest * given["spread"][1])
    name = named or getattr(model, "name", str(model))
    one = partial(start, name, s.model, s.engine, s.quant, length=int(longest))
    if "prefill_replicas" not in chosen:
        return one(chosen)
    split = {k: chosen[f"prefill_{k}"] for k in SERVED_DEGREES}
    before, after = one({**chosen, **split, "role": "prefill"}), one({**chosen, "role": "decode"})
    if before is None or after is None:
        return None
    before = replace(before, replicas=int(chosen["prefill_replicas"]))
    return replace(after, replicas=int(chosen["replicas"]), before=before)


def inputs_of(found: Any) -> dict[str, Any]:
    """Inputs of a search's answer: of one under load those of the best that was simulated, whose load is the batch."""
    confirmed = getattr(found, "chosen", None)
    best = dict(confirmed.candidate.inputs if confirmed else found.best.inputs)
    if hasattr(found, "confirmed"):
        best["batch"] = confirmed.load if confirmed and found.kind == "concurrency" else best.get("concurrency", 0)
    if "engine.token_budget" in best:
        best["token_budget"] = best["engine.token_budget"]
    return best


def scenario_of(model: str | Model, best: Mapping[str, Any], given: Mapping[str, Any]) -> Scenario:
    """The model, engine and scheme of a search's answer; of arguments that list several, without one in it, the first.
    Layers and experts on the host are as many as the most asked for, since one engine runs all points."""
    asked = {k: given[k] for k in MACHINE if k in given}
    one = {
        k: v[0] if isinstance(v, list) else v for k, v in {**asked, **best}.items() if k in MACHINE and v is not None
    }
    away = {k: int(np.max(given[k])) for k in ("cpu_layers", "cpu_experts")}
    told = {k: best.get(k, v) for k, v in (given["sets"] or {}).items() if k.startswith("engine.")}
    sets = {k: v for k, v in told.items() if not isinstance(v, list | tuple)}
    return build_inference(model=model, **one, **away, sets=sets, alone=False).scenario


def start(
    named: str, model: Model, engine: Engine, quant: Quant, chosen: Mapping[str, Any], length: int
) -> Start | None:  # fmt: skip
    """How the engine's family starts, or None for one of which no command is known. named: the model as it was asked
    for; chosen, length: as of `serve_command`."""
    if not command_of(engine).start:
        return None
    weights = weights_for(named, model, quant, engine)
    headless = int(chosen.get("guesses", 0)) > 0 and not chosen.get("draft") and model.mtp_params == 0
    heads = f"no heads that guess are known in {weights.name}: name a draft model, or put EAGLE heads into the options"
    note = "; ".join(text for text, wanted in ((weights.note, weights.note), (heads, headless)) if wanted)
    if highest(engine.kernels.empty_block) > 0:  # the length that its steps' times are for (kernels.dispatch)
        longest = min(float(model.max_context), float(engine.kernels.graph_length))
        chosen = {**chosen, "longest": max(int(longest), length)}
    return _started(weights.name, engine, quant, chosen, length, weights.online, note)


def serve_command(model: str, engine: Engine, quant: Quant, chosen: Mapping[str, Any], length: int) -> str:
    """The command of the engine's family for files of weights that are there, or an empty text for one that has none.

    chosen: tp, pp, dp, ep, batch (0: the engine's own limit), and where they were chosen a token_budget (infinity:
    prompts go in whole), draft, guesses, layers. length: longest sequence (prompt and output).

    >>> from rooflm.readers.schemes import PRESETS
    >>> from rooflm.readers.engines import load_engine
    >>> serve_command("m", load_engine("vllm"), PRESETS["bf16"], {"tp": 8, "batch": 64}, 640)[:76]
    'vllm serve m --tensor-parallel-size 8 --max-num-seqs 64 --max-model-len 640 '
    """
    return _started(model, engine, quant, chosen, length, True).text if command_of(engine).start else ""


def _started(
    model: str, engine: Engine, quant: Quant, chosen: Mapping[str, Any], length: int, online: bool, note: str = ""
) -> Start:  # fmt: skip
    """A start from these weights; online: the engine may narrow them as it loads."""
    v = {k: int(chosen.get(k, 1)) for k in ("tp", "pp", "dp", "ep", "batch")}
    v["budget"], v["whole"] = token_budget(engine, chosen, length)
    c, shared = command_of(engine), _shared(engine, v)
    rank = int(chosen.get("adapter_rank") or 16)
    ranks = [int(r) for r in words_in(c.ranks)] or [rank]
    alone = v["dp"] if v["dp"] > 1 and not shared and not c.dp else 1
    numbers = {
        **_numbers(engine, v, length), "length": int(chosen.get("longest", length)), "model": shlex.quote(model),
        "memory_fraction": _share(engine),
        "free_fraction": float(engine.room.free_fraction), "draft": chosen.get("draft", ""),
        "guesses": int(chosen.get("guesses", 0)), "guesses1": int(chosen.get("guesses", 0)) + 1,
        "layers": int(chosen.get("layers", 999)), "experts": int(chosen.get("cpu_experts") or 0), "port": c.port,
        "adapters": int(chosen.get("adapters") or 0),
        "rank": next((r for r in ranks if r >= rank), ranks[-1]),
    }  # fmt: skip
    notes = [note] if note else []
    if numbers["adapters"] and rank > ranks[-1]:
        notes.append(f"adapter_rank is {rank}, but {engine.name} serves adapters of rank {ranks[-1]} at most")
    texts = _texts(engine, quant, v, length, online, chosen)
    words = [text.format(**numbers) for text in texts if not text.startswith(FORMS)]
    environment, file = (
        [text.removeprefix(form).format(**numbers) for text in texts if text.startswith(form)] for form in FORMS
    )
    options = tuple(line for text in file for line in text.split("\n"))
    return Start(
        engine, " ".join([*words, *[c.file][: len(options)]]), tuple(environment), options, c.after.format(**numbers),
        "; ".join(notes), v["tp"] * v["pp"] * v["dp"] // alone, alone, role=str(chosen.get("role", "")),
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
    c = command_of(engine)
    known = bool(c.attention_dp) and (c.attention_tp or v["tp"] == 1)
    return known and v["ep"] > 1 and v["dp"] > 1


def _numbers(engine: Engine, v: Mapping[str, int], length: int) -> dict[str, Any]:
    """What a command's words may ask for; pages: tokens of a cache that holds every sequence in whole blocks."""
    ranks, each = v["dp"] if _shared(engine, v) else 1, -(-v["batch"] // v["dp"])
    more = {"group": v["tp"] * ranks, "group_budget": v["budget"] * sharing(engine, ranks), "each": each}
    block = int(engine.room.block)
    pages = -(-length // block) * block * max(each, 1)
    return {**v, **more, "length": length, "context": length * max(each, 1), "pages": pages}


def _share(engine: Engine) -> float:
    """Its share of memory: as it was told, else the one that is assumed; 0 where the engine works it out.

    >>> from rooflm.readers.engines import load_engine
    >>> [_share(load_engine(name)) for name in ("vllm", "sglang")]
    [0.9, 0.0]
    """
    return 0.0 if engine.server.reserved else float(engine.server.static_fraction or engine.room.memory_fraction)


def _texts(
    engine: Engine, quant: Quant, v: Mapping[str, int], length: int, online: bool, chosen: Mapping[str, Any]
) -> list[str]:
    """The parts of the command that the answer asks for."""
    c, shared = command_of(engine), _shared(engine, v)
    group = v["tp"] * v["dp"] if shared else v["tp"]
    cache, room = quant.kv_bits == 8, engine.room
    whole = c.whole if v["whole"] else ""
    guessed = int(chosen.get("guesses", 0)) > 0
    adapted = int(chosen.get("adapters") or 0) > 0
    asked = {
        c.layers_gpu: chosen.get("layers") != NOWHERE, c.experts_cpu: int(chosen.get("cpu_experts") or 0) > 0,
        c.tp: group > 1, c.pp: v["pp"] > 1, c.dp: v["dp"] > 1, c.ep: v["ep"] > 1, c.attention_dp: shared,
        c.batch: v["batch"] > 0, c.length: True, whole: True,
        c.budget: v["budget"] > 0 and (not whole or c.budget.split()[0] not in whole),
        c.chunked: 0 < v["budget"] < length, c.memory: 0 < _share(engine) < 1,
        c.free: room.free_fraction != 1 and not (cache and "{free_fraction" in c.kv8),
        c.fp8: online and plain_fp8(quant), c.kv8: cache, c.draft: guessed and bool(chosen.get("draft")),
        c.heads: guessed and not chosen.get("draft"), c.lora: adapted,
        {"prefill": c.prefill, "decode": c.decode}.get(str(chosen.get("role")), ""): True,
    }  # fmt: skip
    return [c.start, *(text for text, wanted in asked.items() if text and wanted)]
