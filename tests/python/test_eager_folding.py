"""Calls within ``jax.ensure_compile_time_eval``: what has no traced operand is computed at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxide

ARRAY = jnp.arange(3.0)

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "comparisons": lambda x: (x != 0) & (x == x) & (x > 0.5) & ~(x < ARRAY),
    "scalars": lambda x: x * 2 + 1.5 - np.float32(3) * True,
    "numpy": lambda x: jnp.where(np.array([True, False, True]), x, np.zeros(3)),
    "arrays": lambda x: jnp.sin(ARRAY) * x + jnp.where(ARRAY > 1, x, 0.0),
    "constants": lambda x: jnp.ones(3) + x * jnp.linspace(0, 1, 3) + jnp.zeros_like(x),
    "random": lambda x: x + jax.random.normal(jax.random.key(0), (3,)),
    "jits": lambda x: jax.jit(lambda y: jnp.where(y > 0, y, jnp.full(3, 0.5).sum()))(x),
    "rules": lambda x: jax.nn.relu(x) + jax.nn.softplus(x) * jax.nn.relu(jnp.ones(3)),
    "loops": lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c * i + jnp.ones(3).sum(), x),
    "reductions": lambda x: jnp.all(x == x) * x.sum() + jnp.max(ARRAY) * x.mean(),
    "checkpoint": lambda x: jax.checkpoint(lambda y: jnp.tanh(y) * jnp.ones(3).sum())(x),
}

WRAPPERS: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "plain": lambda f: f,
    "jit": lambda f: jax.jit(f),
    "grad": lambda f: jax.grad(lambda x: (f(x) * 1.0).sum()),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x + 1])),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,)),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_same_as_stock(name: str, wrapper: str) -> None:
    """With and without folding in turn, so that neither has what the other is remembered for."""
    seen: list[list[tuple[bool, str]]] = []

    def function(folds: bool) -> Callable[[Any], Any]:
        def traced(x: Any) -> Any:
            context = jax.ensure_compile_time_eval() if folds else contextlib.nullcontext()
            with context:
                result = OPERATIONS[name](x)
                # What is computed, and what is traced.
                for part in (result, jnp.ones(2) * 2, jnp.asarray(3) == 3):
                    kind = isinstance(part, jax.core.Tracer), str(jax.typeof(part))
                    seen[-1].append(kind)
            return result

        return WRAPPERS[wrapper](traced)

    for folds in (True, False, True, True, False):
        texts = []
        for make in (jax.make_jaxpr, jaxide.make_jaxpr):
            seen.append([])
            made = make(function(folds))(jnp.arange(1.0, 4.0))
            texts.append(made.pretty_print(source_info=True, name_stack=True))
            texts.append(str([np.asarray(const).tolist() for const in made.consts]))
        assert texts[:2] == texts[2:]
        assert seen.pop() == seen.pop()
