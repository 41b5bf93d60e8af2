"""Calls within ``jax.ensure_compile_time_eval``: what has no traced operand is computed at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxide
from alone import run_alone

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


FLAGS: dict[str, Callable[[Any, Any], Any]] = {
    "and": lambda p, q: p & q,
    "or": lambda p, q: p | q | True,
    "not": lambda p, q: ~p,
    "xor": lambda p, q: p ^ q,
    "equal": lambda p, q: p == q,
    "compared": lambda p, q: (p != q, p > q, p >= q, p < q, p <= q),
    "scalars": lambda p, q: (jnp.asarray(True), jnp.asarray(np.False_), jnp.array(p)),
    "numpy": lambda p, q: p | np.array([True, False]),
    "any": lambda p, q: (jnp.any(q), jnp.all(q, axis=0), q.any(axis=0, keepdims=True)),
    "where": lambda p, q: jnp.where(p, q, ~q),
    "converted": lambda p, q: (p.astype(int), p.astype(bool), q * 2.0, jnp.asarray(q, "int8")),
    "logical": lambda p, q: (jnp.logical_and(p, q), jnp.logical_not(q), jnp.logical_xor(p, q)),
    "integers": lambda p, q: (jnp.arange(3) == 1, jnp.int32(2) > 1, jnp.zeros(2, int) != 0),
    "lax": lambda p, q: (jax.lax.bitwise_or(p, p), jax.lax.eq(q, q), jax.lax.reduce_or(q, (0,))),
    "jits": lambda p, q: jax.jit(lambda a, b: (a & b, a | ~b))(p, q),
    "returned": lambda p, q: jax.jit(lambda a, b: (a, True, b & b))(p, q),
    "donated": lambda p, q: jax.jit(lambda a: ~a, donate_argnums=0)(jnp.array(q)),
    "placed": lambda p, q: jax.device_put(q, jax.devices()[0]) & p,
    "large": lambda p, q: jnp.ones((9, 9), bool) & p,
}

SITUATIONS: dict[str, Callable[[], Any]] = {
    "plain": contextlib.nullcontext,
    "x64": lambda: jax.enable_x64(True),
    "no jit": jax.disable_jit,
    "device": lambda: jax.default_device(jax.devices()[0]),
    "mesh": lambda: (
        jax.sharding.use_mesh(jax.make_mesh((1,), ("i",)))
        if hasattr(jax.sharding, "use_mesh")
        else jax.set_mesh(jax.make_mesh((1,), ("i",)))
    ),
    "checked": lambda: jax.enable_checks(True),
    "guarded": lambda: jax.transfer_guard("disallow"),
}


def described(value: Any) -> Any:
    """All that can be told of a value."""
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return type(value).__name__, str(jax.typeof(value))
    aval = value.aval
    return (
        (str(aval), aval.weak_type, str(aval.sharding), value.sharding, value.committed),
        (value.sharding.memory_kind, str(value.format), value.is_fully_addressable),
        (value.dtype, np.asarray(value).tolist(), len(value.addressable_shards)),
    )


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("name", FLAGS)
def test_flags(name: str, situation: str) -> None:
    """What is computed of flags, by numpy where XLA would compile it, is what jax returns; so are
    errors."""

    def seen(make: Any) -> list[Any]:
        found: list[Any] = []

        def traced(x: Any) -> Any:
            p, q = jnp.asarray(True), jnp.array([True, False])
            with jax.ensure_compile_time_eval():
                for flag in (p, q, p):
                    results = jax.tree.leaves(FLAGS[name](flag, q))
                    found.append([described(result) for result in results])
                    # What was computed is an argument of the next.
                    found.append(described(results[-1] | results[-1]) if name != "converted" else 0)
            return x

        with SITUATIONS[situation]():
            try:
                found.append(str(make(lambda x: traced(x))(1.0)))
            except Exception as error:
                found.append((type(error), str(error)))
        return found

    jax.clear_caches()
    for _ in range(2):
        assert seen(jaxide.make_jaxpr) == seen(jax.make_jaxpr)


def test_flags_are_not_compiled() -> None:
    run_alone(
        """
        import jax, jax.numpy as jnp, numpy as np, jaxide
        from compilations import Compiled

        p, q = jnp.ones((1, 2, 3), bool), jnp.zeros((1, 2, 3), bool)

        def compilations_of(times):
            def traced(x):
                with jax.ensure_compile_time_eval():
                    for _ in range(times):
                        assert not jnp.any((p | q) ^ (p == ~q))
                return x
            jax.clear_caches()
            with Compiled() as compiled:
                jaxide.make_jaxpr(traced)(1.0)
            return compiled.count

        assert compilations_of(3) == 0
        # What is computed often is compiled: that is faster then.
        assert compilations_of(100) > 0
    """,
        PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    )
