"""The prefix cache and the memory of running requests, by hand."""

from __future__ import annotations

from rooflm.serving.capacity import Capacity
from rooflm.serving.kv import Kv, PrefixCache, whole_blocks

COMMON, OWN = (0, 64), 64


# requests 1, 11, 21, ... have the same prompt


def memory(tokens: float = 1000.0) -> Kv:
    cache = PrefixCache(16)
    return Kv(Capacity(tokens, 0.0, 1.0), cache, lambda request: [COMMON, (request % 10, OWN)])


def test_what_running_requests_share_counts_once_and_what_nobody_uses_is_free() -> None:
    kv = memory()
    assert kv.admit(1, 128) == 0 and kv.used == 128
    kv.share(1)
    assert kv.used == 128  # computed blocks go from the request to the cache: no memory appears or goes
    assert kv.need(2, 128) == 64 and kv.admit(2, 128) == 64
    kv.share(2)
    assert kv.used == 192
    kv.release(1, 128)
    assert kv.used == 128 and kv.cache is not None and kv.cache.idle == OWN
    kv.release(2, 130)  # two tokens of output
    assert kv.used == -2  # nobody reserved them here
    assert kv.cache.idle == 64 + 2 * OWN


def test_blocks_in_use_are_never_given_up() -> None:
    kv = memory()
    kv.admit(1, 128)
    kv.share(1)
    assert kv.cache is not None
    kv.cache.shrink(0)
    assert kv.cache.match([COMMON, (1, OWN)]) == (128, 0)
    kv.release(1, 128)
    kv.cache.shrink(70)  # the end of the prompt goes first, in whole blocks
    assert kv.cache.match([COMMON, (1, OWN)]) == (64, 64)
    kv.cache.shrink(0)
    assert kv.cache.match([COMMON, (1, OWN)]) == (0, 0) and not kv.cache.tokens


def test_two_that_compute_the_same_at_once_hold_it_twice() -> None:
    kv = memory()
    kv.admit(1, 128)
    kv.admit(2, 128)
    kv.share(1)
    kv.share(2)
    assert kv.used == 256
    kv.release(1, 128)
    assert kv.used == 128 and kv.cache is not None and kv.cache.idle == 128
    kv.release(2, 128)
    assert kv.used == 0 and kv.cache.idle == 64 + 2 * OWN


def test_the_last_token_is_computed_in_any_case() -> None:
    kv = memory()
    kv.admit(1, 128)
    kv.share(1)
    assert kv.admit(11, 128) == 112  # the same prompt again: all but its last block


def test_hashes_of_less_than_a_block_are_joined() -> None:
    assert whole_blocks([1, 2, 3, 4], 8, 40, 16) == [(2, 16), (4, 16)]
    assert whole_blocks([1, 2], [10, 100], 60, 16) == []  # a hash that reaches beyond the prompt, and half a block


def test_what_running_requests_have_in_common_is_counted_as_it_grows_and_ends() -> None:
    kv = memory()
    for request in (1, 2, 3):
        kv.admit(request, 128)
        kv.share(request)
    cache = kv.cache
    assert cache is not None and (cache.common, cache.again) == (64, 128)
    kv.release(1, 128)
    assert (cache.common, cache.again) == (64, 64)
    kv.release(2, 128)
    assert (cache.common, cache.again) == (0, 0)
