"""How deep the user's functions are called: as deep as stock jax calls them."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxide


def depths() -> dict[str, int]:
    """By what calls them, how many frames there are when the user's functions run."""
    base = len(inspect.stack())
    found: dict[str, int] = {}

    def note(name: str, result: Any) -> Any:
        found.setdefault(name, len(inspect.stack()) - base)
        return result

    jax.jit(lambda x: note("jit", x))(1)
    jax.jit(lambda x: jax.jit(lambda y: note("jit in a jit", y))(x))(1)
    lax.scan(lambda c, _: note("scan", (c, ())), 0, jnp.arange(4))
    lax.cond(True, lambda: note("cond", 1), lambda: 2)
    jax.grad(lambda x: note("grad", x))(1.0)
    jax.vmap(lambda x: note("vmap", x))(np.arange(3))

    @jax.custom_vjp
    def custom(x: Any) -> Any:
        return note("custom_vjp", x)

    custom.defvjp(
        lambda x: note("forward rule", (x, None)), lambda _, g: note("backward rule", (g,))
    )
    custom(1.0)
    jax.grad(custom)(1.0)
    jax.jit(lambda x: lax.scan(lambda c, y: note("scan in a jit", (c, y)), x, jnp.arange(3.0)))(1.0)
    jax.jit(lambda x: jax.checkpoint(lambda y: note("checkpoint in a jit", y))(x))(1.0)
    return found


def test_depths_are_stocks() -> None:
    stock = depths()
    with jaxide.accelerated():
        assert depths() == stock
    assert depths() == stock


def test_depths_while_a_trace_is_held() -> None:
    def fails(x: Any) -> Any:
        raise ValueError

    stock = depths()
    with jaxide.accelerated():
        with pytest.raises(ValueError) as raised:
            jax.make_jaxpr(fails)(1.0)
        # Its traceback holds the trace, so that functions of jax stay caught.
        assert depths() == stock
        del raised
