"""Programs that jax makes of a loop, with equations at the line of the loop itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxide
from expansion import assert_same_when_warm, counts_of, total

X = np.linspace(0.25, 1, 24, dtype=np.float32).reshape(3, 2, 4)
W = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


def cell(w: Any, carry: Any, x: Any) -> Any:
    h, c = carry
    i, o = jnp.split(jnp.concatenate([x + h, h @ w]), 2)
    c = jax.nn.sigmoid(i) * c + jnp.tanh(i)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


# `h` is a carry and an output: its two cotangents are added at the line of the loop.
def at_one_line(w: Any, xs: Any) -> Any:
    zeros = jnp.zeros((2, 4))
    return lax.scan(lambda carry, x: cell(w, carry, x), (zeros, zeros), xs)[1]


def at_another_line(w: Any, xs: Any) -> Any:
    zeros = jnp.zeros((2, 4))
    return lax.scan(lambda carry, x: cell(w, carry, x), (zeros, zeros), xs)[1]


def at_both(w: Any, xs: Any) -> Any:
    return at_one_line(w, at_another_line(w, xs))


def in_python_loop(w: Any, xs: Any) -> Any:
    for _ in range(3):
        xs = at_one_line(w, xs)
    return xs


def in_branch(w: Any, xs: Any) -> Any:
    return lax.cond(xs[0, 0, 0] > 0, at_one_line, at_another_line, w, xs)


def in_loop(w: Any, xs: Any) -> Any:
    return lax.fori_loop(0, 2, lambda _, xs: at_one_line(w, xs), xs)


NETWORKS = dict(
    at_one_line=at_one_line,
    at_another_line=at_another_line,
    at_both=at_both,
    in_python_loop=in_python_loop,
    in_branch=in_branch,
    in_loop=in_loop,
    in_checkpoint=jax.checkpoint(at_one_line),
    in_jit=lambda w, xs: jax.jit(at_one_line)(w, xs) + at_one_line(w, xs),
)


def graded(network: Callable[..., Any]) -> Callable[..., Any]:
    return lambda w, xs: jax.value_and_grad(lambda *args: total(network(*args)))(w, xs)


@pytest.mark.parametrize("name", NETWORKS)
def test_loops_at_lines(name: str) -> None:
    assert_same_when_warm((graded(NETWORKS[name]), W, X))


def test_loops_at_lines_in_turn() -> None:
    """What is known of one line is not used at another."""
    assert_same_when_warm(*((graded(network), W, X) for network in NETWORKS.values()), rounds=2)


@pytest.mark.parametrize("outer", ["grad", "vmap", "jvp"])
def test_under_another_transformation(outer: str) -> None:
    def f(w: Any, xs: Any) -> Any:
        if outer == "vmap":
            return jax.vmap(graded(at_both), in_axes=(None, 0))(w, jnp.stack([xs, xs]))
        inner = lambda w: total(graded(at_both)(w, xs))
        return jax.grad(inner)(w) if outer == "grad" else jax.jvp(inner, (w,), (w,))

    assert_same_when_warm((f, W, X))


def test_the_backward_pass_is_replayed() -> None:
    def bypassed() -> int:
        names = ["transpose of scan", "transpose of vjp_node[scan]"]
        return sum(sum(counts_of(name).bypasses.values()) for name in names)

    def last(w: Any, xs: Any) -> Any:
        return at_one_line(w, xs)[-1]

    before = bypassed()
    for _ in range(5):
        jaxide.make_jaxpr(lambda *args: graded(last)(*args))(W, X)
    assert bypassed() == before
