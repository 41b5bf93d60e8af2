"""Attacks on what differentiation makes in between: literals, captured tracers, unread programs."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import core

import jaxide
from expansion import assert_history, assert_same_when_warm, trace_of
from jaxide._compat import open_part

X = np.linspace(0.25, 1, 3, dtype=np.float32)


def halved(x: Any) -> Any:
    y, linear = jax.linearize(lambda x: x / 2, x)
    return linear(y) + linear(x)


def pulled_back(wrap: Callable[..., Any]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        y, pullback = jax.vjp(halved, x)
        return wrap(lambda y: pullback(y)[0])(y)

    return f


def linear_transposed(x: Any) -> Any:
    def transposed(x: Any) -> Any:
        y, linear = jax.linearize(lambda x: sum(jax.jvp(lambda x: x + 1, (x,), (x * 2,))), x)
        return jax.linear_transpose(linear, x)(y)[0]

    _y, linear = jax.linearize(transposed, x)
    return jax.jit(linear)(x)


LITERALS: dict[str, Callable[[Any], Any]] = {
    "jit of a pullback": pulled_back(jax.jit),
    "scan of a pullback": pulled_back(
        lambda f: lambda y: lax.scan(lambda c, _: (f(c), None), y, None, length=2)[0]
    ),
    "jit of a pullback under vmap": lambda x: jax.vmap(pulled_back(jax.jit))(x[None]),
    "jit of a linear function": lambda x: jax.jit(jax.linearize(halved, x)[1])(x),
    "twice in a trace": lambda x: linear_transposed(x) + linear_transposed(x),
}


@pytest.mark.parametrize("name", LITERALS)
def test_a_literal_that_is_several_residuals_is_one(name: str) -> None:
    assert_same_when_warm((LITERALS[name], X))


def stopped(x: Any) -> Any:
    return jax.jit(lambda y: lax.stop_gradient(x) * x * y)(x)


def stopped_in_loop(x: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] + 1, lax.stop_gradient(x) * x * c[1]

    return lax.while_loop(lambda c: c[0] < 2, body, (0, x))[1]


OUTER: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "linearize": lambda f: lambda x: jax.linearize(f, x)[0],
    "vmap": lambda f: lambda x: jax.vmap(f)(x[None]),
    "plain": lambda f: f,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,)),
}


@pytest.mark.parametrize("function", [stopped, stopped_in_loop])
@pytest.mark.parametrize("first", OUTER)
def test_functions_that_ask_what_a_captured_tracer_is(first: str, function: Any) -> None:
    steps = [trace_of(OUTER[name](function), X) for name in (first, *OUTER)]
    assert_history(steps, 3)


def unread() -> Any:
    return jaxide.make_jaxpr(lambda x: jax.jit(lambda x: x * 2)(x) if x.ndim else x)(X[0])


def test_an_unread_program_is_pickled() -> None:
    jaxpr = jaxide.make_jaxpr(lambda x: x)(X)
    again = pickle.loads(pickle.dumps(jaxpr))
    assert str(again) == str(jax.make_jaxpr(lambda x: x)(X))
    assert type(again.jaxpr) is core.Jaxpr


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_of_an_unread_program_is_jaxs(copied: Callable[[Any], Any]) -> None:
    jaxpr = open_part(unread())
    made = copied(jaxpr)
    assert type(made) is core.Jaxpr
    assert str(made) == str(jaxpr)


def test_errors_of_logs_say_where_the_equation_is_from() -> None:
    hijax = pytest.importorskip("jax._src.hijax")
    if not hasattr(getattr(hijax, "custom_vjp3", None), "defvjp_with_logs"):
        pytest.skip("rules log nothing in this jax")

    @hijax.custom_vjp3
    def logged(x: Any) -> Any:
        return jnp.sin(x)

    logged.defvjp_with_logs(
        lambda x: (jnp.sin(x), x), lambda r, g: ((g * jnp.cos(r),), {"a": r * 2})
    )

    def causes(make: Callable[..., Any]) -> list[str]:
        with pytest.raises(ValueError, match="Duplicate backward-pass log key") as caught:
            make(lambda x: jax.vjp(lambda x: logged(logged(x)), x)[1](x))(X)
        found, error = [], caught.value.__cause__
        while error is not None:
            found.append(type(error).__name__)
            error = error.__cause__
        return found

    assert causes(jaxide.make_jaxpr) == causes(jax.make_jaxpr)
