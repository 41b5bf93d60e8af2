"""Scopes of what is replayed under differentiation, and of steps of evaluated programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxide

X = np.linspace(0.1, 0.9, 3).astype(np.float32)


@jax.custom_jvp
def ruled(x: Any) -> Any:
    return jnp.sin(x)


ruled.defjvp(lambda p, t: (jnp.sin(p[0]), jnp.cos(p[0]) * t[0]))


def named(x: Any) -> Any:
    with jax.named_scope("A"):
        return jnp.tanh(x) * x


def alike(x: Any) -> Any:
    """A body with equations that are alike, on several lines."""
    a = jax.nn.sigmoid(x) * jnp.tanh(x)
    b = jax.nn.sigmoid(a) * jnp.tanh(a)
    c = jax.nn.sigmoid(b) * jnp.tanh(b)
    return jax.nn.sigmoid(c) * jnp.tanh(c) + a * b * c


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "functions": lambda x: (
        jnp.mean(jax.nn.gelu(x)) + jnp.where(x > 0.5, x, x**2).reshape(3, 1)[:, 0]
    ),
    "rules": lambda x: jax.nn.relu(x) + jax.nn.softplus(x) + ruled(x) + jax.nn.logsumexp(x),
    "named": named,
    "jits": lambda x: jax.jit(lambda x: named(jnp.cos(x)))(x),
    "checkpoint": lambda x: jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))(x),
    "linalg": lambda x: lax.linalg.qr(jnp.outer(x, x) + jnp.eye(3))[0][0],
    "gamma": lambda x: lax.igamma(jnp.ones(3), x),
    "loops": lambda x: lax.scan(lambda c, a: (alike(c) * a, c), x, x)[0],
    "hoisted": lambda x: lax.scan(lambda c, a: (c * jnp.cos(x) + a, c), x, x)[0],
    "branches": lambda x: lax.cond(x[0] > 0.5, alike, named, x),
}

DERIVATIVES: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "grad": lambda f: jax.grad(lambda x: f(x).sum()),
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](x),
    "grad of vmap": lambda f: jax.grad(lambda x: jax.vmap(f)(jnp.stack([x, x])).sum()),
    "vmap of grad": lambda f: lambda x: jax.vmap(jax.grad(lambda x: f(x).sum()))(jnp.stack([x, x])),
    "jvp of grad": lambda f: lambda x: jax.jvp(jax.grad(lambda x: f(x).sum()), (x,), (x,))[1],
}


def within(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function in several scopes, in none first."""

    def called(x: Any) -> Any:
        x = f(x)
        with jax.named_scope("B"):
            x = f(x)
        with jax.named_scope("A"), jax.named_scope("B"):
            x = f(x)
        with jax.named_scope("A"):
            return f(x) + f(x)

    return called


def begun_within(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The derivative in a scope."""

    def called(x: Any) -> Any:
        with jax.named_scope("outer"):
            return f(x)

    return called


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_scopes_as_stock(name: str, derivative: str) -> None:
    """Each program is new: traced by stock jax, then three times by jaxide."""
    derive, function = DERIVATIVES[derivative], within(FUNCTIONS[name])
    for build in (derive, lambda f: begun_within(derive(f))):
        expected = jax.make_jaxpr(lambda x: build(function)(x))(X)
        text = expected.pretty_print(name_stack=True, source_info=True)
        for _ in range(3):
            made = jaxide.make_jaxpr(lambda x: build(function)(x))(X)
            assert made.pretty_print(name_stack=True, source_info=True) == text


def test_steps_are_replayed() -> None:
    before = steps()
    jaxide.make_jaxpr(jax.grad(lambda x: lax.scan(lambda c, a: (alike(c) * a, c), x, x)[0].sum()))(
        X
    )
    assert steps() > before


def steps() -> int:
    found = jaxide.cache_info().callables.items()
    return sum(info.hits for name, info in found if name.startswith("step of"))
