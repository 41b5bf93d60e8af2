"""Nests of up to three transformations: every value is taken apart layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax._src.core import jaxpr_as_fun

import covering
import jaxide
import oracle
from expansion import ROUNDS, assert_same_when_warm, counts_of, empty_cache, warm_up
from test_expand_lifted import FUNCTIONS, scalar

X = np.linspace(0.25, 1, 3, dtype=np.float32)

Function = Callable[[Any], Any]


def pull_back(f: Function) -> Function:
    def transformed(x):
        out, back = jax.vjp(f, x)
        return back(jax.tree.map(jnp.ones_like, out))

    return transformed


def all_added(f: Function) -> Function:
    return jax.vmap(lambda v: jax.tree.map(lambda y: lax.psum(y, "i"), f(v)), axis_name="i")


def within_a_scope(f: Function) -> Function:
    def transformed(x):
        with jax.named_scope("scope"):
            return f(x)

    return transformed


# Each makes a function of three numbers into another one.
LAYERS: dict[str, Callable[[Function], Function]] = {
    "grad": lambda f: jax.grad(scalar(f)),
    "value_and_grad": lambda f: jax.value_and_grad(scalar(f)),
    "aux": lambda f: jax.grad(lambda x: (scalar(f)(x), f(x)), has_aux=True),
    "vjp": pull_back,
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](x * 2),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (jnp.cos(x),)),
    "jvp of one value": lambda f: lambda x: jax.jvp(f, (x,), (x,)),
    "jvp of a constant": lambda f: lambda x: jax.jvp(lambda c: f(x * c), (2.0,), (1.0,)),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x * 2])),
    "vmap of columns": lambda f: lambda x: jax.vmap(f, in_axes=1)(jnp.stack([x, x], 1)),
    "vmap beside": lambda f: lambda x: jax.vmap(lambda s: f(x * s))(jnp.arange(2.0)),
    "vmap with a name": lambda f: lambda x: all_added(f)(jnp.stack([x, x * 2])),
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
    "scope": within_a_scope,
}


def nested(names: tuple[str, ...], function: str, captured: Any = None) -> Function:
    """The function under the transformations, the first one outermost."""

    def f(x):
        return FUNCTIONS[function](x, x + 1 if captured is None else captured)

    for name in reversed(names):
        f = LAYERS[name](f)
    return f


@pytest.mark.covering(times=2)
@pytest.mark.parametrize("inner", LAYERS)
@pytest.mark.parametrize("outer", LAYERS)
def test_pairs(outer: str, inner: str) -> None:
    assert_same_when_warm((nested((outer, inner), "operators"), X))


@given(
    st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=3),
    st.sampled_from(sorted(FUNCTIONS)),
)
@settings(deadline=None, max_examples=2_000 if oracle.IS_LONG else covering.examples(5, 30))
def test_random_nests(names: list[str], function: str) -> None:
    # Jacobians of Jacobians grow with each.
    if sum(name.startswith("jac") for name in names) < 2:
        arrays = (None, jnp.asarray(X), jnp.asarray(X + 1))
        assert_same_when_warm(*((nested(tuple(names), function, w), X) for w in arrays))


@pytest.mark.parametrize(
    "names",
    [
        ("jvp",),
        ("vmap",),
        ("grad", "grad"),
        ("grad", "vmap"),
        ("vmap", "grad"),
        ("vmap", "vmap", "grad"),
        ("jvp", "vmap", "grad"),
        ("grad", "grad", "grad"),
    ],
)
def test_nests_are_replayed(names: tuple[str, ...]) -> None:
    function = nested(names, "operators")
    with empty_cache():
        warm_up(function, X, rounds=2 * ROUNDS)
        misses = jaxide.cache_info().misses
        multiplied = counts_of("Array.__mul__").hits
        warm_up(function, X, rounds=1)
        assert jaxide.cache_info().misses == misses
        assert counts_of("Array.__mul__").hits > multiplied


def test_calls_that_could_be_taken_for_each_other() -> None:
    def f(x, y):
        return x * y + jnp.sin(x) * 2

    def total(x, y):
        return jnp.sum(f(x, y))

    stacked = np.stack([X, X])
    square = np.ones((3, 3), np.float32)
    assert_same_when_warm(
        (jax.vmap(f), stacked, stacked),
        (jax.vmap(f, in_axes=(0, None)), stacked, X),
        (jax.vmap(f, in_axes=(None, 0)), X, stacked),
        (jax.vmap(f), square, square),
        (jax.vmap(f, in_axes=1), square, square),
        (jax.vmap(f, in_axes=(0, 1)), square, square),
        (jax.vmap(jax.vmap(f)), square, square),
        (jax.vmap(jax.vmap(f), in_axes=(0, None)), square, X),
        (lambda x, y: jax.vmap(lambda v: f(v, v))(x), stacked, stacked),
        (lambda x, y: jax.jvp(f, (x, y), (x, y)), X, X),
        (lambda x, y: jax.jvp(f, (x, y), (y, x)), X, X),
        (lambda x, y: jax.jvp(f, (x, x), (y, y)), X, X),
        (lambda x, y: jax.jvp(lambda v: f(v, y), (x,), (y,)), X, X),
        (jax.vmap(jax.grad(total)), stacked, stacked),
        (jax.vmap(jax.grad(total), in_axes=(0, None)), stacked, X),
        (jax.grad(lambda x, y: jnp.sum(jax.vmap(f)(x, y))), stacked, stacked),
        (jax.grad(lambda x, y: jnp.sum(jax.grad(total)(x, y))), X, X),
        (jax.grad(lambda x, y: jnp.sum(jax.grad(total, 1)(x, y))), X, X),
        (jax.grad(lambda x, y: jnp.sum(jax.grad(total)(x, x))), X, X),
        (jax.vmap(f, axis_name="i"), stacked, stacked),
        (jax.vmap(lambda x, y: lax.psum(f(x, y), "i"), axis_name="i"), stacked, stacked),
        (jax.vmap(lambda x, y: lax.axis_index("i") * f(x, y), axis_name="i"), stacked, stacked),
        (jax.vmap(lambda x, y: lax.axis_index("j") * f(x, y), axis_name="j"), stacked, stacked),
        (jax.vmap(lambda x, y: f(x, y), axis_size=2), stacked, stacked),
    )


def test_rules_that_are_made_anew_under_vmap() -> None:
    """Each has wrappers of its own, which work once."""

    def program(x):
        batched = jax.vmap(lambda v: jax.nn.relu(v) * jnp.sinc(v) + jax.nn.silu(v))
        return batched(x), batched(x * 2)

    def twice(x):
        once = jax.make_jaxpr(program)(x)
        evaluate = jaxpr_as_fun(once)
        return jax.jvp(lambda v: evaluate(v), (x,), (x,)), jax.grad(lambda v: evaluate(v)[0].sum())(
            x
        )

    stacked = np.stack([X, X])
    assert_same_when_warm((program, stacked), (twice, stacked))
    jaxpr = warm_up(program, stacked)
    evaluate = jaxpr_as_fun(jaxpr)
    for _ in range(2):
        tangents = jax.jvp(evaluate, (stacked,), (stacked,))[1]
        expected = jax.jvp(program, (stacked,), (stacked,))[1]
        for tangent, correct in zip(tangents, jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(tangent, correct, rtol=1e-6)


def test_values_of_other_transformations() -> None:
    """Captured from outside, or of a transformation that is over."""

    def program(x, y):
        outer = jax.vmap(lambda v: jax.grad(lambda w: jnp.sum(w * v * y))(v))(jnp.stack([x, x]))
        inner = jax.jvp(lambda v: jax.vmap(lambda w: w * v + y)(jnp.stack([x, v])), (x,), (y,))
        again = jax.grad(lambda v: jax.jvp(lambda w: jnp.sum(w * v), (x,), (y,))[1])(x)
        return outer, inner, again

    assert_same_when_warm((program, X, X))
    leaked: list[Any] = []

    def leaks(x):
        jax.vmap(lambda v: leaked.append(v) or v)(jnp.stack([x, x]))
        return leaked.pop() * 2

    assert_same_when_warm((leaks, X))
