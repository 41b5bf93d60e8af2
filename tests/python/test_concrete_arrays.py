"""Calls on concrete arrays, such as weights that a closure has: constants of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import covering
import expansion
import jaxide
from expansion import (
    ROUNDS,
    Step,
    assert_history,
    assert_same_when_warm,
    empty_cache,
    observe,
    total,
    warm_up,
)

X = np.linspace(0.25, 1, 3, dtype=np.float32)

Program = Callable[[Any, Any, Any], Any]

# Each of a traced value and two concrete arrays of one type.
PROGRAMS: dict[str, Program] = {
    "operators": lambda x, w, v: x * w + v - w,
    "on the left": lambda x, w, v: w * x + (v @ x),
    "one array twice": lambda x, w, v: jnp.where(w > 0, w, x) + w,
    "the other first": lambda x, w, v: x * v + jnp.sin(w) * x,
    "arrays alone": lambda x, w, v: jnp.sin(w) + jnp.dot(w, v),
    "softmax": lambda x, w, v: jax.nn.softmax(x * w) + jax.nn.gelu(v),
    "passed on": lambda x, w, v: jnp.asarray(w) + x + w.astype(w.dtype) + v.reshape(v.shape),
    "returned": lambda x, w, v: (jnp.asarray(w), x, v, lax.stop_gradient(w)),
    "only the type": lambda x, w, v: x + jnp.zeros_like(w) + jnp.ones(v.shape) * len(w),
    "in a list": lambda x, w, v: jnp.stack([x, w, v]) + jnp.concatenate([w, x, v]).sum(),
    "indexed": lambda x, w, v: w[0] * x + v[1:].sum() + x.at[0].set(w[1]),
    "of a jit": lambda x, w, v: jax.jit(lambda a, b: a * b + w)(x, v),
    "in a scan": lambda x, w, v: lax.scan(lambda c, a: (c * w + a, c - v), x, jnp.stack([w, v])),
    "in a branch": lambda x, w, v: lax.cond(x[0] > 0, lambda a: a * w, lambda a: a + v, x),
    "in a checkpoint": lambda x, w, v: jax.checkpoint(lambda a: jnp.sin(a * w) * v)(x),
}

TRANSFORMATIONS: dict[str, Callable[[Program], Program]] = {
    "grad": lambda f: lambda x, w, v: jax.grad(lambda x: total(f(x, w, v)))(x),
    "grad by the array": lambda f: lambda x, w, v: jax.grad(lambda w: total(f(x, w, v)))(w),
    "grad by both": lambda f: (
        lambda x, w, v: jax.grad(lambda x, w: total(f(x, w, v)), argnums=(0, 1))(x, w)
    ),
    "jvp": lambda f: lambda x, w, v: jax.jvp(lambda w: f(x, w, v), (w,), (v,)),
    "tangents": lambda f: lambda x, w, v: jax.jvp(lambda x: f(x, w, v), (x,), (w,)),
    "vmap": lambda f: lambda x, w, v: jax.vmap(lambda w: f(x, w, v))(jnp.stack([w, w])),
    "vmap of the array": lambda f: (
        lambda x, w, v: jax.vmap(lambda a: f(x, w * a, v))(w + jnp.zeros(3))
    ),
    "linearize": lambda f: lambda x, w, v: jax.linearize(lambda w: f(x, w, v), w)[1](v),
    "grad of grad": lambda f: (
        lambda x, w, v: jax.grad(lambda w: total(jax.grad(lambda x: total(f(x, w, v)))(x)))(w)
    ),
    "grad of vmap": lambda f: (
        lambda x, w, v: jax.grad(
            lambda w: total(jax.vmap(lambda a: f(a, w, v))(jnp.stack([x, x])))
        )(w)
    ),
    "in a scan": lambda f: (
        lambda x, w, v: lax.scan(
            lambda c, _: (c - jax.grad(lambda c: total(f(c, w, v)))(c), c), x, None, length=2
        )
    ),
}


def arrays(number: int) -> tuple[Any, Any]:
    """Two arrays of one type that no other call has."""
    return jnp.arange(3.0) + number, jnp.arange(3.0) * number


def on(program: Program, w: Any, v: Any) -> tuple[Any, ...]:
    return (lambda x: program(x, w, v)), X


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_when_warm(name: str) -> None:
    program, (a, b), (c, d) = PROGRAMS[name], arrays(1), arrays(2)
    assert_same_when_warm(
        on(program, a, b), on(program, c, d), on(program, a, a), on(program, b, a)
    )


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_under_transformations(transformation: str) -> None:
    transformed = TRANSFORMATIONS[transformation]
    names = [name for name in PROGRAMS if name != "returned"]
    names = covering.one_in(4, names, list(TRANSFORMATIONS).index(transformation))
    programs = [transformed(PROGRAMS[name]) for name in names]
    (a, b), (c, d) = arrays(1), arrays(2)
    calls = [on(program, *pair) for pair in ((a, b), (c, d), (a, a)) for program in programs]
    assert_same_when_warm(*calls, rounds=2)


@pytest.mark.parametrize("transformation", [None, *TRANSFORMATIONS])
def test_calls_are_replayed(transformation: str | None) -> None:
    program = PROGRAMS["operators"]
    if transformation is not None:
        program = TRANSFORMATIONS[transformation](program)
    with empty_cache():
        for number in range(2 * ROUNDS):
            warm_up(*on(program, *arrays(number)), rounds=1)
        before = jaxide.cache_info()
        warm_up(*on(program, *arrays(2 * ROUNDS)), rounds=1)
        after = jaxide.cache_info()
    assert after.misses == before.misses
    assert after.bypasses == before.bypasses
    assert after.hits > before.hits


# What jax makes of these depends on what is in the second argument.
READING: dict[str, Callable[[Any, Any], Any]] = {
    "repeat": lambda x, n: jnp.repeat(x, n),
    "mask": lambda x, n: x[n > 1],
    "nonzero": lambda x, n: jnp.nonzero(n)[0] + x[0],
    "bool": lambda x, n: x * 2 if bool((n == 1).all()) else x,
    "item": lambda x, n: x * n[0].item(),
    "tolist": lambda x, n: jnp.reshape(jnp.zeros(sum(n.tolist())), -1),
    "numpy": lambda x, n: jnp.zeros(int(np.asarray(n).sum())),
    "numpy function": lambda x, n: x + np.sum(n),
    "memory": lambda x, n: x + memoryview(n).itemsize + np.frombuffer(memoryview(n), n.dtype)[0],
    "shape": lambda x, n: jnp.zeros(tuple(int(size) for size in n)),
    "jit": lambda x, n: jax.jit(lambda a: jnp.repeat(a, n, total_repeat_length=4))(x),
    "where": lambda x, n: jnp.where(n)[0] * x[0],
    "unique": lambda x, n: jnp.unique(n).astype(x.dtype),
    "loop": lambda x, n: [x * i for i in n],
    "format": lambda x, n: jax.named_call(lambda a: a * 2, name=f"{n}")(x),
}


def counts(*of: int) -> Any:
    return jnp.array(of)


@pytest.mark.parametrize("name", READING)
def test_values_that_are_looked_at(name: str) -> None:
    function = READING[name]

    def step(numbers: tuple[int, ...]) -> Step:
        def trace(make: expansion.Maker) -> Any:
            with jax.ensure_compile_time_eval():
                array = counts(*numbers)
            return observe(make, lambda x: function(x, array), X)

        return trace

    histories = [(1, 1, 1), (1, 2, 0), (1, 1, 1), (3, 0, 2), (1, 2, 0), (3, 0, 2), (1, 1, 1)]
    assert_history([step(numbers) for numbers in histories])


def test_a_read_is_counted() -> None:
    array = counts(1, 2, 3)
    with empty_cache():
        warm_up(lambda x: jnp.repeat(x, array), X, rounds=5)
        bypasses = jaxide.cache_info().callables["jax.numpy.repeat"].bypasses
    assert bypasses.get("function that looks into a concrete array", 0) >= 3


def test_types_are_told_apart() -> None:
    weak = jax.jit(lambda: jnp.broadcast_to(1.0, (3,)))()
    kinds = [
        jnp.arange(3.0),
        jnp.arange(3),
        jnp.arange(3.0, dtype=jnp.bfloat16),
        jnp.arange(3) > 1,
        weak,
        jnp.ones((1, 3)),
        jnp.ones((3, 1)),
        jnp.ones((0, 3)),
        jnp.ones(()),
        jax.device_put(jnp.arange(3.0), jax.devices()[0]),
        jax.device_put(
            jnp.arange(3.0),
            jax.NamedSharding(jax.make_mesh((1,), ("a",)), jax.P("a")),
        ),
        np.arange(3.0, dtype=np.float32),
    ]
    use = lambda x, w: (x * w, jnp.add(w, x), jnp.zeros_like(w), jnp.full_like(w, 2))
    assert_same_when_warm(*((lambda x, w=w: use(x, w), X) for w in kinds))


def test_an_array_and_its_tracer() -> None:
    """A function may get an array, the tracer of the array, or both."""
    identity = jax.jit(lambda a: a)

    def program(x, w, v):
        t, u = identity(w), identity(v)
        return (
            x * t + w,
            jnp.where(t > 0, w, v),
            jnp.where(u > 0, w, v),
            jnp.add(w, t),
            jnp.add(v, t),
            identity(t) * x,
            jnp.asarray(t),
            jax.vmap(lambda a, b: a * b)(t, w),
            jax.grad(lambda a: jnp.sum(a * u + t))(t),
            jax.grad(lambda a: jnp.sum(a * u + v))(w),
        )

    (a, b), (c, d) = arrays(1), arrays(2)
    assert_same_when_warm(*(on(program, *pair) for pair in ((a, b), (c, d), (a, a), (d, d))))


def test_deleted_array() -> None:
    array, other = jnp.arange(3.0), jnp.arange(3.0)
    warm_up(lambda x: x * other, X)
    array.delete()
    texts = [str(make(lambda x: x * array)(X)) for make in (jax.make_jaxpr, jaxide.make_jaxpr)]
    assert texts[0] == texts[1]
    assert_same_when_warm((lambda x: jnp.repeat(x, array), X))


def test_order_of_constants() -> None:
    """jax numbers constants by their first use, which need not be that of an equation."""
    identity = jax.jit(lambda a: a)

    def program(order: tuple[int, ...]) -> Program:
        def use(x, w, v):
            values = (w, v, w + v)
            kept = [identity(values[index]) for index in order[:2]]
            for index in order:
                x = x * values[index] + jnp.sin(values[0])
            return x, kept

        return use

    orders = [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 0, 1), (2, 2, 2)]
    (a, b), (c, d) = arrays(1), arrays(2)
    assert_same_when_warm(
        *(on(program(order), *pair) for order in orders for pair in ((a, b), (c, d)))
    )


def test_arrays_of_numpy_as_static_arguments() -> None:
    places = np.array([1, 2])

    def step(first: int, second: int) -> Step:
        def trace(make: expansion.Maker) -> Any:
            places[:] = first, second
            return observe(
                make,
                lambda x: (
                    jnp.split(x, places),
                    jnp.split(x, places.copy()),
                    jnp.take(x, places),
                    x[places],
                    x.at[places].add(places),
                    jnp.array_split(x, places[::2]),
                    jnp.repeat(x[:2], places),
                    jnp.pad(x, places),
                    jnp.tile(x, places),
                ),
                X,
            )

        return trace

    cases = [(1, 2), (1, 2), (1, 2), (0, 1), (0, 1), (2, 2), (1, 2), (0, 1), (2, 2)]
    assert_history([step(*case) for case in cases])


def test_numpy_arrays_are_replayed_where_they_are_static() -> None:
    with empty_cache():
        for _ in range(4):
            jaxide.make_jaxpr(lambda x: jnp.split(x, np.array([1, 2])))(X)
        counts = jaxide.cache_info().callables["jax.numpy.split"]
    assert counts.hits >= 2


def test_closure_under_eval_shape() -> None:
    def program(x, w, v):
        shape = jax.eval_shape(lambda: jnp.dot(w, v) * w)
        return x + jnp.zeros(shape.shape, shape.dtype)

    wide = jnp.ones((3, 3)), jnp.ones((3, 3))
    (a, b), (c, d) = arrays(1), arrays(2)
    assert_same_when_warm(
        on(program, a, b), on(program, c, d), on(program, *wide), on(program, a, a)
    )
