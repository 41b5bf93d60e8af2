"""Captured arrays as arguments: what is computed once, packed and associated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxide
from jaxide import _compat
from jaxide._jit.hoist_constants import hoist_constants
from jaxide._jit.split import MAX_PACKED, split

X = np.arange(1.0, 5.0, dtype=np.float32)
Make = Callable[[list[Any]], Callable[[Any], Any]]


def expensive(c: Any) -> Any:
    return jnp.exp(jnp.sin(c)).sum()


def jitted(f: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(f)


def with_jvp(f: Callable[..., Any]) -> Callable[..., Any]:
    g = jax.custom_jvp(f)
    g.defjvp(lambda p, t: (f(*p), t[0]))
    return g


def in_while(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: jax.lax.while_loop(lambda s: s[0].sum() < 1e3, lambda s: (f(s[0]),), (x,))[0]


# What is wrapped around a function that computes something of a captured array alone.
WRAPPED: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "plain": lambda f: f,
    "jit": jitted,
    "jit_in_jit": lambda f: jitted(lambda x: jitted(f)(x) + jitted(f)(x + 1)),
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c) * 0.01, c), x, None, length=3),
    "fori": lambda f: lambda x: jax.lax.fori_loop(0, 3, lambda _, c: f(c) * 0.01, x),
    "while": in_while,
    "cond": lambda f: lambda x: jax.lax.cond(x[0] > 0, f, lambda y: y - 1, x),
    "switch": lambda f: lambda x: jax.lax.switch(1, [lambda y: y, f, lambda y: f(y) * 2], x),
    "checkpoint": lambda f: jax.grad(lambda x: jax.checkpoint(f)(x).sum()),
    "vmap": lambda f: jax.vmap(f),
    "grad": lambda f: jax.grad(lambda x: f(x).sum()),
    "custom_jvp": with_jvp,
}


def arrays(i: int) -> list[Any]:
    rng = np.random.default_rng(i)
    c = jnp.asarray(rng.random((3, 7), np.float32))
    return [c, rng.random(4, np.float32), jnp.arange(2) + i, jnp.asarray([i % 2 == 0] * 4)]


def use(values: list[Any]) -> Callable[[Any], Any]:
    c, d, n, m = values
    return lambda x: x * expensive(c) + d[: n.size].sum() + jnp.where(m[0], x, n.sum())


@pytest.mark.covering
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
@pytest.mark.parametrize("captured", ["auto", "arguments"])
def test_results_are_right(wrap: Callable[..., Any], captured: str) -> None:
    jaxide.clear_caches()
    for i in range(3):
        make = lambda i=i: wrap(jax.jit(use(arrays(i))))
        got = jaxide.jit(make(), captured=captured)(X)
        expected = jax.jit(make())(X)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5), got, expected)


def primitives(jaxpr: Any) -> set[str]:
    found, pending = set(), [_compat.open_part(jaxpr)]
    while pending:
        for eqn in pending.pop().eqns:
            found.add(eqn.primitive.name)
            pending += _compat.jaxprs_in(eqn.params)
    return found


def parts(function: Callable[..., Any], *args: Any) -> Any:
    return split(hoist_constants(jax.make_jaxpr(function)(*args))[0])


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_what_depends_on_captured_arrays_alone_is_done_once(wrap: Callable[..., Any]) -> None:
    c = jnp.ones((3, 7))
    made = parts(wrap(jax.jit(lambda x: x * expensive(c))), X)
    assert {"exp", "sin"} <= primitives(made.preparation)
    assert not {"exp", "sin"} & primitives(made.rest)


def test_what_a_callback_gives_is_asked_for_each_time() -> None:
    c = np.ones(3, np.float32)
    calls: list[int] = []
    result = jax.ShapeDtypeStruct(c.shape, c.dtype)

    def host(value: Any) -> Any:
        calls.append(1)
        return value

    for captured in ("auto", "arguments"):
        for i in range(3):
            calls.clear()
            f = jaxide.jit(
                lambda x, i=i: x + jax.pure_callback(host, result, c + i),
                captured=captured,
            )
            for _ in range(4):
                f(1.0)
            jax.effects_barrier()
            assert len(calls) == 4


def test_an_endless_loop_in_a_branch_that_is_not_taken() -> None:
    for i in range(3):
        c = jnp.full(4, float(i))
        endless = lambda x, c=c: x + jax.lax.while_loop(lambda v: v[0] >= 0, lambda v: v, c)
        f = jaxide.jit(lambda x, e=endless: jax.lax.cond(x[0] > 0, lambda x: x, e, x))
        np.testing.assert_array_equal(f(X), X)


def test_small_arrays_are_packed() -> None:
    values = [np.full((2, 3), i, np.float32) for i in range(30)]
    values += [np.full(5, i, np.int32) for i in range(10)]
    large = np.ones(MAX_PACKED, np.float32)
    made = parts(lambda x: [jnp.sin(x * v) for v in (*values, large)], X[0])
    assert {aval.shape for aval in made.prepared} == {(230,), large.shape}


def test_sums_are_associated() -> None:
    values = [np.full(5, i, np.float32) for i in range(30)]
    made = parts(lambda x: sum(values, x) * values[1] * values[2], X[0])
    assert len(made.prepared) == 2
    for i in range(3):
        f = jaxide.jit(lambda x, i=i: sum((v + i for v in values), x))
        np.testing.assert_allclose(f(1.0), np.full(5, 1.0 + 435 + 30 * i), rtol=1e-6)


def test_what_grows_is_made_anew() -> None:
    """A small array that is spread is not kept in its large form."""
    c = np.ones(1000, np.float32)
    made = parts(lambda x: x + jnp.broadcast_to(jnp.sin(c), (1000, 1000)), X[0])
    assert [aval.shape for aval in made.prepared] == [(1000,)]
    assert "sin" in primitives(made.preparation)
