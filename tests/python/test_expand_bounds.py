"""The expansion cache keeps within its bounds, and keeps nothing alive that is gone."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import expansion
import jaxide
from expansion import counts_of, warm_up
from jaxide import _core, cache_info

X = np.ones(3, np.float32)


@pytest.fixture(autouse=True)
def bounds() -> Iterator[tuple[int, int, int]]:
    """The bounds as they were, which each test finds and leaves, around an empty cache."""
    info = cache_info()
    before = (info.max_entries_per_callable, info.max_entries, info.max_bytes)
    with expansion.empty_cache():
        yield before
        _core.set_fragment_bounds(*before)


def scalars(count: int, start: int = 0) -> None:
    """Traces calls of one callable with that many signatures."""
    jaxide.make_jaxpr(lambda x: [x + float(i) for i in range(start, start + count)])(X)


def shapes(count: int, start: int = 1) -> None:
    """Traces calls of many callables with that many types."""
    for n in range(start, start + count):
        warm_up(lambda x: jax.nn.gelu(jnp.sin(x) * 2 + x[0]), np.ones(n, np.float32), rounds=2)


def within_bounds() -> bool:
    info = cache_info()
    return (
        info.entries <= info.max_entries
        and info.bytes <= info.max_bytes
        and all(c.entries <= info.max_entries_per_callable for c in info.callables.values())
    )


def assert_adds_up() -> None:
    info = cache_info()
    callables = info.callables.values()
    assert info.hits == sum(c.hits for c in callables)
    assert info.misses == sum(c.misses for c in callables)
    assert info.bypasses == dict(sum((Counter(c.bypasses) for c in callables), Counter()))
    assert info.entries == sum(c.entries for c in callables)
    assert (info.entries == 0) == (info.bytes == 0)


def test_counts() -> None:
    assert_adds_up()
    assert cache_info().entries == 0
    for _ in range(4):
        jaxide.make_jaxpr(lambda x: (x + 1.0, x + 1.0, x + 2.0))(X)
        assert_adds_up()
    counts = counts_of("Array.__add__")
    assert (counts.hits + counts.misses, counts.entries) == (12, 2)
    assert 2 <= counts.misses <= 4  # recorded once or twice
    assert not counts.bypasses
    shapes(3)
    assert_adds_up()


def test_no_trace_no_count() -> None:
    jnp.sin(X) + 1
    jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(X)
    jax.jit(lambda x: jax.nn.gelu(x))(X)
    info = cache_info()
    assert (info.hits, info.misses, info.entries, dict(info.bypasses)) == (0, 0, 0, {})


@pytest.mark.parametrize("clear", [jax.clear_caches, jaxide.clear_caches])
def test_clearing(clear) -> None:
    shapes(2)
    assert cache_info().entries > 0 and cache_info().hits > 0
    clear()
    info = cache_info()
    assert (info.entries, info.bytes, info.hits, info.misses, info.evictions) == (0, 0, 0, 0, 0)
    assert dict(info.callables) == {}
    shapes(2)
    assert cache_info().hits > 0
    assert_adds_up()


def test_entries_of_one_callable(bounds: tuple[int, int, int]) -> None:
    _core.set_fragment_bounds(10, *bounds[1:])
    scalars(100)
    assert counts_of("Array.__add__").entries == 10
    assert within_bounds()
    assert cache_info().evictions >= 90
    assert_adds_up()


def test_entries_in_all(bounds: tuple[int, int, int]) -> None:
    _core.set_fragment_bounds(bounds[0], 25, bounds[2])
    for start in range(1, 20, 3):
        shapes(3, start)
        assert within_bounds()
        assert_adds_up()
    assert cache_info().entries > 0 and cache_info().evictions > 0


def test_bytes_in_all(bounds: tuple[int, int, int]) -> None:
    shapes(2)
    limit = cache_info().bytes
    _core.set_fragment_bounds(*bounds[:2], limit)
    for start in range(3, 20, 3):
        shapes(3, start)
        assert within_bounds()
        assert_adds_up()
    assert cache_info().bytes > 0 and cache_info().evictions > 0


@pytest.mark.parametrize("which", [0, 1, 2])
def test_smaller_bounds_take_effect_at_once(bounds: tuple[int, int, int], which: int) -> None:
    shapes(10)
    scalars(30)
    before = cache_info()
    smaller = list(bounds)
    smaller[which] = (3, before.entries // 3, before.bytes // 3)[which]
    _core.set_fragment_bounds(*smaller)
    assert within_bounds()
    assert cache_info().entries < before.entries
    assert_adds_up()


@pytest.mark.parametrize(
    "nothing", [(0, 0, 0), (0, 100, 1 << 20), (100, 0, 1 << 20), (100, 100, 0)]
)
def test_no_room(nothing: tuple[int, int, int]) -> None:
    """Programs are the same without a cache."""
    _core.set_fragment_bounds(*nothing)
    expected = str(jax.make_jaxpr(lambda x: jax.nn.gelu(x + 1.0))(X))
    assert str(warm_up(lambda x: jax.nn.gelu(x + 1.0), X, rounds=4)) == expected
    assert (cache_info().entries, cache_info().bytes, cache_info().hits) == (0, 0, 0)


def test_the_least_recently_used_goes_first(bounds: tuple[int, int, int]) -> None:
    def misses(*values: float) -> int:
        before = counts_of("Array.__add__").misses
        jaxide.make_jaxpr(lambda x: [x + value for value in values])(X)
        return counts_of("Array.__add__").misses - before

    _core.set_fragment_bounds(3, *bounds[1:])
    for _ in range(2):  # recorded, and confirmed where that is needed
        misses(1.0, 2.0, 3.0)
    assert misses(1.0, 2.0, 3.0) == 0
    assert misses(1.0) == 0  # now 2.0 is the oldest
    assert misses(4.0) == 1
    misses(4.0)
    assert misses(3.0, 1.0, 4.0) == 0
    assert misses(2.0) == 1  # which drops 3.0
    misses(2.0)
    assert misses(1.0, 4.0, 2.0) == 0
    assert misses(3.0) == 1


def test_programs_under_tight_bounds() -> None:
    """Entries that go and come back while a program is traced change nothing."""
    _core.set_fragment_bounds(2, 6, 1 << 20)

    def use(x):
        for n in range(6):
            x = jnp.sin(x) + float(n) * jax.nn.gelu(x) + jnp.sum(x[n % 3 :]) + jitted(x)
        return x

    jitted = jax.jit(lambda x: jnp.cos(x) * 2)
    _core.set_fragment_bounds(2, 6, 1 << 20)
    expansion.assert_same_when_warm((use, X), (use, np.ones(4, np.float32)))
    assert within_bounds()


def test_a_jit_that_is_gone_takes_its_entries_along() -> None:
    for _ in range(3):
        warm_up(lambda x: jnp.sin(x) * 2, X)
    before = cache_info()

    def trace() -> weakref.ref:
        captured = np.ones(3, np.float32)
        local = jax.jit(lambda x: jnp.sum(x * captured))
        warm_up(lambda x: local(x) + local(x), X, rounds=4)
        return weakref.ref(local)

    reference = trace()
    assert counts_of("trace.<locals>.<lambda>").entries > 0 or cache_info().entries > before.entries
    jaxide.make_jaxpr(lambda x: x)(X)
    called = cache_info()
    gc.collect()
    assert reference() is None
    left = cache_info()
    assert not any("trace.<locals>" in name for name in left.callables)
    # Its calls have happened all the same.
    assert sum(c.hits for c in left.callables.values()) < called.hits
    assert (left.hits, left.misses, left.bypasses) == (called.hits, called.misses, called.bypasses)


def test_many_jits_that_go() -> None:
    """A new closure in each trace: nothing piles up."""

    def trace() -> None:
        local = jax.jit(lambda x: jnp.sin(x) * 2)
        jaxide.make_jaxpr(lambda x: local(x) + local(x))(X)

    def sizes() -> tuple[int, int]:
        gc.collect()
        return cache_info().entries, len(cache_info().callables)

    for _ in range(5):
        trace()
    first = sizes()
    for _ in range(40):
        trace()
    assert sizes() == first


def test_arguments_are_not_kept() -> None:
    class Doubling:
        def __call__(self, x):
            return x * 2

    def trace() -> list[weakref.ref]:
        array, function = jnp.ones(3) * 5, Doubling()
        warm_up(lambda x: (x + array, jax.lax.map(function, x), jnp.stack([x, array])), X)
        return [weakref.ref(array), weakref.ref(function)]

    references = trace()
    jax.clear_caches()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_info_is_a_snapshot() -> None:
    warm_up(lambda x: x + 1, X)
    info = cache_info()
    hits, entries = info.hits, info.entries
    shapes(3)
    assert (info.hits, info.entries) == (hits, entries)
    with pytest.raises(AttributeError):
        info.hits = 0
