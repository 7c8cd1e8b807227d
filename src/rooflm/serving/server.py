"""A server: its options, as engines' documentation names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rooflm.catalogue.engine import ServerOptions
from rooflm.catalogue.fields import number
from rooflm.scenario.speculation import in_a_tree

FRONT = ("front", "tokenise", "carry", "stream")
"""Constants of an engine's host that a request costs on its way to the engine, and its tokens on their way back."""


@dataclass(frozen=True)
class Server(ServerOptions):
    """A server as it runs: its options, all limits said, and what a request costs in it."""

    budget: int = number(8192, "most new tokens in a pass of a rank", whole=True)
    max_sequences: int = number(1024, "running limit of a rank", whole=True)
    front: float = number(0.0, "time once a request in a front end that takes them one after the other", "s")
    tokenise: float = number(0.0, "time a prompt token in that front end", "s")
    template: float = number(0.0, "time once a request there, of all that came at once before one goes on", "s")
    request: float = number(0.0, "time until its client sees a token that was made", "s")
    carry: float = number(0.0, "time a prompt token on its way to the engine that others do not wait for", "s")
    stream: float = number(0.0, "time of a message to a client in a process that streams tokens", "s")
    cold: float = number(0.0, "more time of the first pass with prompts (kernels compile where nobody warmed up)", "s")

    def fronted(self, prompt: Any) -> Any:
        """Seconds of a request of `prompt` tokens in the front end.

        >>> Server(front=1e-3, tokenise=4e-6).fronted(1000)
        0.005
        """
        return self.front + self.template + self.tokenise * prompt

    @property
    def held(self) -> float:
        """Seconds of a request that the first of those which came at once waits for, each (docs/decisions/0468)."""
        return self.template + self.front * self.all_parsed

    def seen(self, prompt: Any) -> Any:
        """Seconds of a request of `prompt` tokens that others do not wait for, on its way to the engine and back.

        >>> Server(request=0.01, carry=4e-6).seen(1000)
        0.014
        """
        return self.request + self.carry * prompt

    def streaming(self, steps: Any) -> Any:
        """Seconds that the processes which stream tokens take for so many steps of a sequence.

        They pass tokens on beside the scheduler, message by message, each in `stream` s: of what a step makes, or of
        `stream_interval` tokens where that is fewer messages (docs/decisions/0326).

        >>> round(Server(stream=37e-6).streaming(1000), 6)
        0.037
        >>> round(Server(stream=37e-6, stream_interval=10, streams=2).streaming(1000), 6)
        0.00185
        """
        return steps * min(1.0, self.tokens_a_step / self.stream_interval) * self.stream / max(self.streams, 1)

    def seen_again(self, prompt: Any) -> Any:
        """Seconds that a decode server adds to that: none where router and servers get a request at once.

        vLLM's proxies (examples, toy_proxy_server.py) and `trtllm-serve disaggregated` send it to the prefill server
        for one token, wait for the answer, and send its text, as another request, to the decode server, whose front end
        takes it as well and which makes the first token that the client sees. SGLang's router sends it to both
        (docs/decisions/0259, 0271).

        >>> Server(request=0.01, handed_on=True).seen_again(1000), Server(request=0.01).seen_again(1000)
        (0.01, 0.0)
        """
        return self.handed_on * (self.fronted(prompt) + self.seen(prompt))

    @property
    def tokens_a_step(self) -> float:
        """Tokens that a sequence gains in a step, as known or of a chain of guesses (`speculation.in_a_tree`).

        >>> Server().tokens_a_step, round(Server(speculative=3, acceptance=0.8).tokens_a_step, 3)
        (1.0, 2.952)
        """
        return self.gained or in_a_tree(self.acceptance, self.speculative, branches=1)
