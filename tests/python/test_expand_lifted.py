"""Calls under reverse-mode differentiation, and the backward pass: recorded once, then replayed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxide
from expansion import assert_same_when_warm, counts_of, empty_cache, total, warm_up

X = np.linspace(0.25, 1, 3, dtype=np.float32)
M = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
CAPTURED = jnp.arange(3.0)


def scalar(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` with all its results added up."""
    return lambda *args: total(f(*args))


@jax.jit
def two_results(x, y):
    return {"sum": x + y, "products": (x * y, x * x)}


@functools.partial(jax.jit, inline=True)
def inlined(x):
    return jnp.tanh(x) * x


@jax.custom_jvp
def with_jvp(x):
    return jnp.sin(x)


with_jvp.defjvp(lambda primals, tangents: (with_jvp(*primals), 3 * tangents[0]))


@jax.custom_vjp
def with_vjp(x):
    return jnp.sin(x)


with_vjp.defvjp(lambda x: (with_vjp(x), jnp.cos(x)), lambda cos, g: (g * cos * 2,))


@jax.jit
def keeps_one(x, y):
    return x, y, jnp.sin(x) * y


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "operators": lambda x, y: x * y + x / y - x**3 + 2.0 * y - x,
    "same operand twice": lambda x, y: x * x + jnp.multiply(y, y),
    "same residual often": lambda x, y: jnp.sin(x) * x * y * x,
    "scalars": lambda x, y: (0.5 * x + 1) * np.float32(2) - (y - 1.5) * 3,
    "captured array": lambda x, y: x * CAPTURED + jnp.sin(y * CAPTURED),
    "captured twice": lambda x, y: jnp.sin(x) * CAPTURED + jnp.sin(y) * CAPTURED,
    "reductions": lambda x, y: jnp.mean(x) + jnp.max(y) - jnp.var(x) + jnp.linalg.norm(y),
    "where": lambda x, y: jnp.where(x > y, x * 2, y),
    "select": lambda x, y: lax.select(x > y, x, y),
    "concatenate": lambda x, y: jnp.concatenate([x, y, x]),
    "stack": lambda x, y: jnp.stack([x, x, y])[::2],
    "indexing": lambda x, y: x[1:] * y[:2] + x[0],
    "gather": lambda x, y: x[jnp.array([0, 2, 0])] * y,
    "scatter": lambda x, y: x.at[0].set(y[1]).at[1:].add(y[0]),
    "clip": lambda x, y: jnp.clip(x, 0.3, 0.8) * y,
    "sort": lambda x, y: jnp.sort(x) * y,
    "products": lambda x, y: jnp.dot(x, y) + jnp.outer(x, y) @ M,
    "einsum": lambda x, y: jnp.einsum("i,j,jk->ik", x, y, M),
    "activations": lambda x, y: jax.nn.gelu(x) + jax.nn.softmax(y) + jax.nn.relu(x - y),
    "logsumexp": lambda x, y: jax.nn.logsumexp(x) - jax.nn.log_softmax(y)[0],
    "jit": lambda x, y: two_results(x, y),
    "jit of a result": lambda x, y: two_results(two_results(x, y)["sum"], y),
    "jit, an argument twice": lambda x, y: two_results(x, x),
    "jit that passes on": lambda x, y: keeps_one(x, y)[0] * keeps_one(y, x)[2],
    "inlined jit": lambda x, y: inlined(x) * inlined(y),
    "integers beside": lambda x, y: x * jnp.arange(3) + jnp.argmax(y),
    "not differentiated": lambda x, y: x * lax.stop_gradient(jnp.exp(y)),
    "no use of one": lambda x, y: jnp.exp(x),
    "casts": lambda x, y: x.astype(jnp.float16).astype(jnp.float32) * y.astype(int),
    "broadcasts": lambda x, y: x[:, None] * y[None, :] + 1.0,
    "transposes": lambda x, y: (x[:, None] * M).T @ y,
    "cumulative": lambda x, y: jnp.cumsum(x) * jnp.cumprod(y),
    "custom rules": lambda x, y: with_jvp(x) * with_vjp(y) + with_vjp(x),
    "scan": lambda x, y: lax.scan(lambda c, s: (c * s + jnp.sin(x), c), y, x[:, None] * M),
    "cond": lambda x, y: lax.cond(x[0] > 0, lambda v: jnp.sin(v) * y, lambda v: v * 2, x),
    "fori": lambda x, y: lax.fori_loop(0, 3, lambda i, v: v * jnp.cos(y), x),
    "checkpoint": lambda x, y: jax.checkpoint(lambda v: jnp.sin(jnp.sin(v)) * y)(x),
    "vmap": lambda x, y: jax.vmap(lambda v: jnp.sin(v) * y)(x),
    "names": lambda x, y: named(x) + named(y) * jax.named_call(jnp.sin, name="call")(x),
    "shapes and dtypes": lambda x, y: x * x.size + y.astype(x.dtype).reshape(x.shape),
    "random": lambda x, y: x * jax.random.normal(jax.random.key(0), (3,)) + y,
    "complex": lambda x, y: jnp.abs(x + 1j * y) ** 2,
}


def named(x):
    with jax.named_scope("inner"):
        return jnp.tanh(x) * x


TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "grad": lambda f: jax.grad(scalar(f), argnums=(0, 1)),
    "grad of one": lambda f: jax.grad(scalar(f), argnums=1),
    "value_and_grad": lambda f: jax.value_and_grad(
        lambda x, y: (scalar(f)(x, y), f(x, y)), argnums=0, has_aux=True
    ),
    "vjp": lambda f: lambda x, y: pull_back(f, x, y),
    "linearize": lambda f: lambda x, y: push_forward(f, x, y),
    "grad of jit": lambda f: jax.grad(jax.jit(scalar(f)), argnums=(0, 1)),
    "jit of grad": lambda f: jax.jit(jax.grad(scalar(f), argnums=(0, 1))),
    "grad of grad": lambda f: jax.grad(
        lambda x, y: jnp.sum(jax.grad(scalar(f))(x, y) ** 2), argnums=(0, 1)
    ),
    "jacrev": lambda f: jax.jacrev(f),
    "hessian": lambda f: jax.hessian(scalar(f)),
    "vmap of grad": lambda f: jax.vmap(jax.grad(scalar(f)), in_axes=(0, None)),
    "grad of vmap": lambda f: jax.grad(
        lambda x, y: scalar(jax.vmap(f, in_axes=(0, None)))(jnp.stack([x, x]), y)
    ),
}


def pull_back(f, x, y):
    out, back = jax.vjp(f, x, y)
    return back(jax.tree.map(jnp.ones_like, out))


def push_forward(f, x, y):
    out, forward = jax.linearize(f, x, y)
    return out, forward(x, y), forward(y, y)


@pytest.mark.covering(times=2)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_when_warm(name: str, transform: str) -> None:
    arguments = (M, X) if transform.startswith("vmap") else (X, X + 1)
    transformed = TRANSFORMS[transform](FUNCTIONS[name])
    assert_same_when_warm((transformed, *arguments))


def test_calls_that_could_be_taken_for_each_other() -> None:
    f, g = scalar(FUNCTIONS["operators"]), scalar(FUNCTIONS["activations"])

    def of_both(x, y):
        return f(x, y) * g(x, y)

    assert_same_when_warm(
        (f, X, X),
        (jax.grad(f), X, X),
        (jax.grad(f, argnums=(0, 1)), X, X),
        (jax.grad(lambda x: f(x, x)), X),
        (jax.grad(lambda x, y: f(y, x)), X, X),
        (lambda x, y: push_forward(f, x, y), X, X),
        (jax.grad(of_both), X, X),
        (jax.grad(of_both), X.astype(np.float16), X),
        (jax.grad(of_both), X, 1.5),
    )


def test_name_scopes() -> None:
    def within(*scopes):
        def f(x):
            for scope in scopes:
                with jax.named_scope(scope):
                    x = jnp.sin(x) * x
            return jnp.sum(x)

        return f

    def around(x):
        with jax.named_scope("outside"):
            return jax.grad(within("a", "b"))(x)

    assert_same_when_warm(
        (jax.grad(within("a", "a")), X),
        (jax.grad(within("a", "b")), X),
        (around, X),
        (jax.grad(lambda x: jax.jit(within("b"))(x)), X),
    )


def test_residuals_in_the_order_of_their_use() -> None:
    """The same value is a residual of several calls; which comes first decides its place."""

    def f(order):
        def of(x, y):
            values = {"x": jnp.sin(x), "y": jnp.sin(y)}
            for a, b in order:
                values[a] = values[a] * values[b]
            return jnp.sum(values["x"] + values["y"])

        return lambda x, y: jax.linearize(of, x, y)[1](x, y)

    orders = ("xy", "yx", "xx"), ("yx", "xy", "xy"), ("xx", "xy", "yx"), ("yy", "yy", "xy")
    assert_same_when_warm(*((f(order), X, X) for order in orders))
    assert_same_when_warm(
        *((jax.jit(lambda x, y, f=f(order): jax.grad(scalar(f))(x, y)), X, X) for order in orders)
    )


def test_accumulation_of_cotangents() -> None:
    """How often a value was used decides whether its cotangent is set or added."""

    def uses(times):
        def f(x):
            y = jnp.sin(x)
            return sum(jnp.sum(y * float(i + 1)) for i in range(times))

        return f

    assert_same_when_warm(*((jax.grad(uses(times)), X) for times in (1, 2, 3, 1)))


def test_leaks_are_reported_as_by_stock() -> None:
    kept = []

    def leaky(x):
        kept.append(jnp.sin(x))
        return jnp.sum(kept[-1])

    assert_same_when_warm((jax.grad(leaky), X), (lambda x: jax.grad(leaky)(x) * kept[0], X))


def test_leak_checks() -> None:
    with jax.checking_leaks():
        assert_same_when_warm((jax.grad(scalar(FUNCTIONS["activations"])), X, X))


def test_errors_of_warm_calls() -> None:
    good = jax.grad(lambda x: jnp.sum(jnp.dot(x, M) * x))
    assert_same_when_warm(
        (good, X),
        (jax.grad(lambda x: jnp.sum(jnp.dot(x, M[:2]))), X),
        (jax.grad(lambda x: jnp.dot(x, M)), X),
        (jax.grad(lambda x: jnp.sum(x)), np.arange(3)),
        (jax.grad(lambda x: jnp.sum(lax.population_count(x.astype(int)) * x)), X),
        (good, X),
    )


def test_configurations() -> None:
    f = jax.grad(lambda x: jnp.sum(jnp.sin(x) * (x @ M)))

    def precisely(x):
        with jax.default_matmul_precision("float32"):
            return f(x)

    assert_same_when_warm((f, X), (precisely, X), (f, X))


def test_forward_and_backward_calls_are_replayed() -> None:
    with empty_cache():
        f = jax.grad(lambda x: lax.dot(lax.sin(x), x))
        warm_up(f, X)
        before = counts_of("jax.lax.sin"), counts_of("transpose of mul")
        warm_up(f, X, rounds=1)
        after = counts_of("jax.lax.sin"), counts_of("transpose of mul")
        for cold, warm in zip(before, after, strict=True):
            assert warm.hits > cold.hits
            assert warm.misses == cold.misses


def test_numerics() -> None:
    f = jax.grad(scalar(FUNCTIONS["activations"]), argnums=(0, 1))
    with empty_cache():
        jaxpr = warm_up(f, X, X + 1)
        found = jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, X, X + 1)
    for value, expected in zip(found, f(X, X + 1), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_under_install() -> None:
    f = jax.grad(scalar(FUNCTIONS["activations"]), argnums=(0, 1))
    expected = f(X, X + 1)
    with jaxide.accelerated():
        for _ in range(3):
            found = jax.jit(lambda x, y: f(x, y))(X, X + 1)
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-6)
