"""Calls on values of an enclosing trace, which are constants of the program that records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxide
from expansion import assert_same_when_warm, empty_cache, warm_up

X = np.linspace(0.25, 1, 3, dtype=np.float32)

Bodies = dict[str, Callable[[Any, Any, Any], Any]]

# Each of a value of the inner program and two of the enclosing one.
BODIES: Bodies = {
    "one": lambda c, w, v: c * w,
    "two in order": lambda c, w, v: (c * w) + jnp.sin(v) * c,
    "two in the other order": lambda c, w, v: (c * v) + jnp.sin(w) * c,
    "one of them often": lambda c, w, v: w * w + c * w - w,
    "the same twice": lambda c, w, v: jnp.where(w > 0, w, c) + jax.nn.softmax(v),
    "alone": lambda c, w, v: c + w * v + jnp.exp(w),
    "in a nested jit": lambda c, w, v: jax.nn.gelu(w) + c + jnp.clip(v, w, c),
    "passed on": lambda c, w, v: jnp.asarray(w) + c + w.astype(w.dtype) + v.reshape(v.shape),
    "only its type": lambda c, w, v: c + jnp.zeros_like(w) + jnp.ones(v.shape) * jnp.shape(w)[0],
    "passed on first": lambda c, w, v: (jnp.asarray(v), c * w, jnp.asarray(v) * c)[1:][0] + c * v,
    "indexed": lambda c, w, v: w[0] * c + v[1:].sum() + c.at[0].set(w[1]),
    "product": lambda c, w, v: jnp.dot(w, v) * c + jnp.outer(w, v) @ c,
    "no gradient": lambda c, w, v: lax.stop_gradient(w) * c + lax.stop_gradient(v),
}

CONSTRUCTS: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "scan": lambda body, x: lax.scan(lambda c, _: (body(c), c), x, None, length=2),
    "while": lambda body, x: lax.while_loop(lambda c: c[0] < 9, body, x),
    "fori": lambda body, x: lax.fori_loop(0, 2, lambda i, c: body(c), x),
    "cond": lambda body, x: lax.cond(x[0] > 0, body, lambda c: c, x),
    "jit": lambda body, x: jax.jit(body)(x),
    "checkpoint": lambda body, x: jax.checkpoint(body)(x),
    "vmap": lambda body, x: jax.vmap(body)(jnp.stack([x, x])),
    "jvp": lambda body, x: jax.jvp(body, (x,), (x,)),
    "vmap in a scan": lambda body, x: lax.scan(
        lambda c, _: (c, jax.vmap(body)(jnp.stack([c, c]))), x, None, length=2
    ),
    "grad in a scan": lambda body, x: lax.scan(
        lambda c, _: (jax.grad(lambda v: jnp.sum(body(v)))(c), c), x, None, length=2
    ),
    "scan in a scan": lambda body, x: lax.scan(
        lambda c, _: lax.scan(lambda d, _: (body(d) + c, d), c, None, length=2), x, None, length=2
    ),
}


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_same_when_warm(construct: str) -> None:
    programs = [
        lambda x, w, v, body=body: CONSTRUCTS[construct](lambda c: body(c, w, v), x)
        for body in BODIES.values()
    ]
    assert_same_when_warm(*((program, X, X + 1, X + 2) for program in programs))


@pytest.mark.covering(times=4, each_value=False)
@pytest.mark.parametrize("construct", sorted(set(CONSTRUCTS) - {"while", "fori"}))
def test_under_transformations(construct: str) -> None:
    def total(x, w, v):
        bodies = (BODIES[name] for name in ("two in order", "the same twice", "in a nested jit"))
        results = [CONSTRUCTS[construct](lambda c, b=b: b(c, w, v), x) for b in bodies]
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(results))

    stacked = np.stack([X, X])
    assert_same_when_warm(
        (jax.grad(total, argnums=(0, 1, 2)), X, X, X),
        (jax.grad(total), X, X, X),
        (lambda x, w, v: jax.jvp(lambda w: total(x, w, v), (w,), (w,)), X, X, X),
        (jax.vmap(total, in_axes=(None, 0, None)), X, stacked, X),
        (jax.vmap(jax.grad(total, 1)), stacked, stacked, stacked),
        rounds=2,
    )


def test_calls_are_replayed() -> None:
    def program(x, w):
        return lax.scan(lambda c, _: (jnp.sin(c * w) + w, c), x, None, length=2)

    with empty_cache():
        warm_up(program, X, X)
        misses = jaxide.cache_info().misses
        warm_up(program, X, X, rounds=1)
        assert jaxide.cache_info().misses == misses
        bypasses: dict[str, int] = {}
        for name in ("Array.__mul__", "Array.__add__", "sin"):
            bypasses.update(jaxide.cache_info().callables[name].bypasses)
        assert bypasses == {}


def test_order_of_constants() -> None:
    """jax numbers constants by their first use, which need not be that of an equation."""

    def of(*order: int) -> Callable[..., Any]:
        def program(x, u, v, w):
            values = (u, v, w)

            def body(c, _):
                for index in order:
                    c = c * values[index]
                    c = jnp.where(values[index] > 0, c, jnp.asarray(values[0]))
                return c, jnp.stack([values[index] for index in order])

            return lax.scan(body, x, None, length=2)

        return program

    orders = [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 0, 1), (2, 2, 2), (0, 1, 2)]
    assert_same_when_warm(*((of(*order), X, X, X, X) for order in orders))


def test_values_of_two_enclosing_traces() -> None:
    def program(x, w):
        def outer(c, _):
            inner = lax.scan(lambda d, _: (d * c + w * jnp.sin(c), d * w), c, None, length=2)
            return inner[0] * w, inner[1]

        return lax.scan(outer, x, None, length=3)

    def of_transformations(x, w):
        return jax.grad(
            lambda v: jnp.sum(
                jax.vmap(lambda u: lax.scan(lambda c, _: (c * v + u * w, c), u, None, length=2)[0])(
                    jnp.stack([v, x])
                )
            )
        )(x)

    assert_same_when_warm((program, X, X), (of_transformations, X, X))


def test_values_of_traces_that_are_over() -> None:
    leaked: list[Any] = []

    def leaks(x):
        lax.scan(lambda c, _: (leaked.append(c) or c, c), x, None, length=2)
        return leaked.pop() * x

    def leaks_inside(x):
        jax.jit(lambda v: leaked.append(v) or v)(x)
        old = leaked.pop()
        return lax.scan(lambda c, _: (c + jnp.sin(old), c), x, None, length=2)

    assert_same_when_warm((leaks, X), (leaks_inside, X))
