"""How an engine is started: words of its command line, of its environment and of its container."""

from __future__ import annotations

from dataclasses import dataclass

from rooflm.catalogue.engine import Engine
from rooflm.catalogue.fields import count, flag, word


@dataclass(frozen=True)
class Command:
    """How it is started: how each part of a search's answer is written on its command line, or, after "env: " or
    "file: ", in its environment or as lines of its file of options.

    In braces: `model`, `tp`, `pp`, `dp`, `ep`, `batch` (sequences), `each` (of a rank), `length`, `context` (of all
    sequences together), `budget`, `memory_fraction`, `free_fraction`, `port`, `layers` (of the device), `experts`
    (layers whose experts the host has), `adapters`, `rank` (their greatest), `draft`, `guesses`, `guesses1` (one more);
    of attention data parallelism `group` (its ranks in all), `group_budget`."""

    start: str = word("", "the program that serves (none: no command is known)")
    train: str = word("", "the program that trains: a key of `search.train_command.PROGRAMS`")
    configs: str = word("", "models that it has a configuration of: MODEL=MODULE/CONFIGURATION, with commas")
    tp: str = word("", "a tensor group above 1")
    pp: str = word("", "pipeline stages above 1")
    dp: str = word("", "data-parallel ranks above 1")
    ep: str = word("", "expert ranks above 1")
    attention_dp: str = word("", "ranks that share experts and have sequences of their own")
    attention_tp: bool = flag(True, "such ranks may be tensor groups")
    batch: str = word("", "most sequences at a time")
    length: str = word("", "longest sequence")
    whole: str = word("", "prompts go in whole")
    budget: str = word("", "tokens of a pass")
    chunked: str = word("", "prompts longer than that go in by chunks")
    memory: str = word("", "share of memory, where it is not all, and the engine does not work it out")
    free: str = word("", "share of what is left for the cache, where it is not all and `kv8` does not tell it")
    fp8: str = word("", "8-bit weights and activations")
    kv8: str = word("", "an 8-bit cache")
    experts_cpu: str = word("", "layers whose experts stay in the host's memory")
    layers_gpu: str = word("", "layers that the device holds, where it is not all")
    draft: str = word("", "a draft model that guesses tokens: its name, and how many a step")
    heads: str = word("", "the model's own layers that guess tokens: how many a step")
    lora: str = word("", "adapters served beside the model: how many at a time, of which rank")
    ranks: str = word("", "greatest ranks of adapters that it may be told, rising (none: any)")
    prefill: str = word("", "a replica that only prefills, the cache going to another")
    decode: str = word("", "a replica that only decodes")
    router: str = word("", "what stands in front of both, told every server (or hosts and ports of each)")
    router_prefill: str = word("", "how it is told one prefill server")
    router_decode: str = word("", "how it is told one decode server")
    pool_env: str = word("", "environment of such a server, a variable a line; host is its own address")
    file: str = word("", "the file of options")
    weights: str = word("", "kind of files that it loads", ("", "gguf"))
    image: str = word("", "container image that it is published in (none: no deployment file is written)")
    host: str = word("", "that it listens to other machines, and its port")
    port: int = count(8000, "port of its server")
    after: str = word("", "what loads the model once the server runs")

    @property
    def pools(self) -> bool:
        """Whether it can run separate prefill and decode replicas (assumed where it has no known command)."""
        return bool(self.prefill) or not self.start


def command_of(engine: Engine) -> Command:
    """How an engine is started: of one that says nothing of it, no command is known.

    >>> command_of(Engine("own")).start
    ''
    """
    return engine.command if isinstance(engine.command, Command) else Command()
