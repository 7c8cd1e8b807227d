"""A server: its options, as engines' documentation names them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Server:
    """Options of the server, as its documentation names them; none is fitted.

    scheduler: a key of SCHEDULERS. policy: order of the queue. budget: most new tokens in a pass (of a rank).
    max_sequences: running limit (of a rank). preemption: "recompute" or "swap". front: serial seconds a request in the
    front end (tokeniser, HTTP); request: other seconds between arrival and scheduler. stream_interval: tokens that are
    made before the client sees the first. receive_interval: decode steps between two looks at the queue. lookahead:
    1 where the next pass is made up while one runs (overlapped, asynchronous scheduling): what arrives meanwhile waits
    for the one after it. wait_steps, wait_share: prompts wait up to that many decode steps for as many tokens as that
    share of the budget (TensorRT-LLM's batch_wait_timeout_iters, batch_wait_max_tokens_ratio).
    prefix_caching: whole blocks of earlier prompts are found again; cache_block: tokens of a block. speculative: tokens
    guessed a step; acceptance: chance that a guess is right; draft: cost of a guess over that of a step.
    swap_bandwidth: B/s between device and host, all GPUs of the instance. static_fraction: share of the device that
    weights and cache take together (SGLang's mem_fraction_static; 0: the engine's memory_fraction, for all it holds).
    """

    scheduler: str = "continuous"
    policy: str = "fcfs"
    budget: int = 8192
    max_sequences: int = 1024
    preemption: str = "recompute"
    front: float = 0.0
    request: float = 0.0
    stream_interval: int = 1
    receive_interval: int = 1
    lookahead: int = 0
    wait_steps: int = 0
    wait_share: float = 0.0
    prefix_caching: bool = False
    cache_block: int = 16
    speculative: int = 0
    acceptance: float = 0.7
    draft: float = 0.03
    swap_bandwidth: float = 25e9
    static_fraction: float = 0.0

    @property
    def tokens_a_step(self) -> float:
        """Tokens that a sequence gains in a step: (1 - a^(n+1)) / (1 - a) for n guesses right with chance a each.

        Source: Leviathan et al., "Fast inference from transformers via speculative decoding", equation 1.

        >>> Server().tokens_a_step, round(Server(speculative=3, acceptance=0.8).tokens_a_step, 3)
        (1.0, 2.952)
        """
        n, a = self.speculative, self.acceptance
        return 1.0 if not n else float(n + 1) if a >= 1 else (1 - a ** (n + 1)) / (1 - a)
