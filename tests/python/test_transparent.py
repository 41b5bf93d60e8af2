"""Functions of the user as arguments: remembered by what they do where their code shows it."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.core import jaxpr_as_fun

import jaxide
from expansion import (
    assert_history,
    assert_same_when_warm,
    counts_of,
    empty_cache,
    observe,
    trace_of,
    warm_up,
)
from jaxide._native import pure_functions

X = np.linspace(0.25, 1, 3, dtype=np.float32)
M = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    with empty_cache():
        yield


def eval_shape_counts() -> jaxide.CallableInfo:
    return counts_of("jax.eval_shape")


def shapes(function: Callable[[Any], Any]) -> Any:
    """The shapes that a function asked for, traced three times."""
    asked = []

    def program(x):
        asked.append(jax.eval_shape(function(x)))
        return x

    for _ in range(3):
        jaxide.make_jaxpr(lambda x: program(x))(X)
    return asked


def asking(make: Callable[[], Any], held: bool = False) -> Callable[[Any], Any]:
    """A program with the shapes of what a new function returns; `held`: by more than the call."""

    def program(x):
        if held:
            function = make()
            return jnp.zeros(jax.eval_shape(function).shape)
        return jnp.zeros(jax.eval_shape(make()).shape)

    return program


# ---- what code reads --------------------------------------------------------------------------


GLOBAL = 3


def reading_globals(x, n=2):
    return jnp.sin(x).reshape(GLOBAL) * n + math.sqrt(2.0)


def with_inner_functions(x):
    found = [jnp.cos(v) for v in x]
    found.append(GLOBAL)

    def inner(y):
        return y + x

    return inner(x), found, lambda y: y * GLOBAL


def test_reads() -> None:
    def names(function: Callable[..., Any]) -> set[tuple[str, ...]]:
        reads = pure_functions.reads(function.__code__)
        assert reads is not None
        found = ((read.name, *(name for name, _ in read.attributes)) for read in reads.variables)
        return set(found)

    expected = {("jnp", "sin"), ("GLOBAL",), ("math", "sqrt")}
    assert names(reading_globals) == expected
    if sys.version_info < (3, 12):  # else a comprehension is part of its function, in a handler
        assert names(with_inner_functions) == {("jnp", "cos"), ("GLOBAL",)}
    cell = X
    assert names(lambda: (cell.shape, jnp.linalg.norm(cell))) == {
        ("cell",),
        ("cell", "shape"),
        ("jnp", "linalg", "norm"),
    }


def stores_globally(x):
    global GLOBAL
    GLOBAL = 3
    return x


def handles_errors(x):
    try:
        return x
    except ValueError:
        return x + 1


def enters(x):
    with jax.named_scope("a"):
        return x * 2


def generates(x):
    yield x


def imports(x):
    import os

    return x, os


def sets_an_attribute(x):
    x.attribute = 1
    return x


def deletes_a_global(x):
    global GLOBAL
    del GLOBAL
    return x


def defines_a_class(x):
    class Inner:
        pass

    return x, Inner


async def awaits(x):
    return x


OPAQUE = [
    *(stores_globally, handles_errors, enters, generates, imports, sets_an_attribute),
    *(deletes_a_global, defines_a_class, awaits),
]


@pytest.mark.parametrize("function", OPAQUE, ids=lambda f: f.__name__)
def test_code_that_may_do_more(function: Callable[..., Any]) -> None:
    assert pure_functions.reads(function.__code__) is None


def test_code_that_stores_in_an_outer_variable() -> None:
    count = 0

    def counting(x):
        nonlocal count
        count += 1
        return x

    assert pure_functions.reads(counting.__code__) is None
    assert counting(1) == count


@pytest.mark.parametrize(
    ("changes", "function"),
    [
        (False, lambda x: x.sum()),
        (True, lambda x: x.append(1)),
        (True, lambda x: x.update({})),
        (True, lambda x: x.__setitem__(0, 1)),
        (True, lambda x: [lambda: x.pop()]),
    ],
)
def test_code_that_changes_containers(changes: bool, function: Callable[..., Any]) -> None:
    reads = pure_functions.reads(function.__code__)
    assert reads is not None
    assert reads.changes == changes


# ---- eval_shape -------------------------------------------------------------------------------

counts_references = pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="docs/limits.md: who has a function does not show there"
)


@counts_references
def test_shapes_are_replayed() -> None:
    shape = (2, 3)
    asked = shapes(lambda x: lambda: jnp.zeros(shape, jnp.int16))
    assert {(s.shape, s.dtype) for s in asked} == {((2, 3), np.dtype("int16"))}
    counts = eval_shape_counts()
    assert (counts.misses, counts.hits, counts.bypasses) == (1, 2, {})


@counts_references
def test_shapes_of_initializers() -> None:
    """As flax asks for them."""
    init = jax.nn.initializers.lecun_normal()
    for shape in ((2, 3), (4, 5), (2, 3)):
        args, kwargs = (shape, jnp.float32), {}
        asked = shapes(lambda x: lambda: init(jax.random.key(0), *args, **kwargs))
        assert [s.shape for s in asked] == [shape] * 3
    counts = eval_shape_counts()
    assert (counts.misses, counts.hits, counts.bypasses) == (2, 7, {})


@counts_references
def test_shapes_of_what_is_traced() -> None:
    for traced in (X, M, M > 0):
        jaxpr = [
            str(make(lambda x: jnp.zeros(jax.eval_shape(lambda: (x, x.T))[1].shape))(traced))
            for make in (jax.make_jaxpr, *[jaxide.make_jaxpr] * 3)
        ]
        assert len(set(jaxpr)) == 1
    counts = eval_shape_counts()
    assert (counts.misses, counts.hits, counts.bypasses) == (3, 6, {})


def test_shapes_in_other_traces() -> None:
    def asks(x):
        struct = jax.eval_shape(lambda: jnp.outer(x, x))
        return x * struct.size

    def total(x):
        return asks(x).sum()

    assert_same_when_warm(
        (asks, X),
        (jax.grad(total), X),
        (lambda x: jax.jvp(asks, (x,), (x,)), X),
        (jax.vmap(asks), M),
        (jax.jit(asks), X),
        (lambda x: lax.scan(lambda c, v: (c, asks(v)), 0.0, x), M),
        (jax.hessian(total), X),
    )


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, x: Any = None) -> Any:
        self.count += 1
        return jnp.zeros(self.count)


def test_shapes_of_values_of_enclosing_traces() -> None:
    def program(x, w):
        def body(c, _):
            of_outer = jax.eval_shape(lambda: jnp.outer(w, c))
            lifted = jax.vmap(lambda v: v * jnp.ones(jax.eval_shape(lambda: v * w).shape))(w)
            return c + jnp.zeros(of_outer.shape).sum() + lifted.sum(), c

        looped = lax.scan(body, x, None, length=2)
        gradient = jax.grad(
            lambda v: lax.scan(
                lambda c, _: (c * jnp.ones(jax.eval_shape(lambda: v * c).shape), c),
                v,
                None,
                length=2,
            )[0].sum()
        )
        return looped, gradient(x)

    wide = np.ones((3, 3), np.float32)
    assert_same_when_warm((program, X, X), (program, X, X.astype(np.float16)), (program, X, X))
    assert_same_when_warm((program, wide, wide[0]), (program, wide[0], wide[0]))


def test_types_as_arguments() -> None:
    """A type that stands for an array is known by what it says."""

    def program(x, struct):
        joined = jnp.result_type(struct, x), jax.eval_shape(lambda a: jnp.sin(a) * 2, struct)
        return x.astype(joined[0]) * jnp.zeros(joined[1].shape, joined[1].dtype)

    kinds = [
        jax.ShapeDtypeStruct((3,), np.float32),
        jax.ShapeDtypeStruct((3,), np.float16),
        jax.ShapeDtypeStruct((3,), np.float32, weak_type=True),
        jax.ShapeDtypeStruct((1,), np.float32),
        jax.ShapeDtypeStruct((3,), np.float32),
        jax.ShapeDtypeStruct((3,), np.complex64),
    ]
    assert_same_when_warm(*((lambda x, kind=kind: program(x, kind), X) for kind in kinds))


def test_side_effects_happen_at_each_call() -> None:
    seen: list[int] = []
    counter, state = Counter(), {"n": 0}

    def change_state():
        state["n"] += 1
        return jnp.zeros(state["n"])

    makers: list[Callable[[], Any]] = [
        lambda: lambda: (seen.append(1), jnp.zeros(len(seen)))[1],
        lambda: lambda: counter(),
        lambda: lambda: jnp.zeros(next(numbers)),
        lambda: lambda: change_state(),
    ]
    numbers = iter(range(1, 5))
    for make in makers:
        asked = shapes(lambda x: make())
        assert [s.shape for s in asked] == [(1,), (2,), (3,)]
    assert len(seen) == counter.count == state["n"] == 3


@pytest.mark.parametrize("held", [False, True])
def test_what_is_read_may_change(held: bool) -> None:
    """A function that is there for longer is traced once by jax, whatever it reads."""
    holder = {"n": 1}
    sizes = [1]

    def with_default(n=1):
        return jnp.zeros(n)

    def with_keyword(*, n=1):
        return jnp.zeros(n)

    def helper():
        return jnp.zeros(holder["n"])

    kept = lambda: jnp.zeros(sizes[0])
    makers: list[Callable[[], Any]] = [
        lambda: lambda: jnp.zeros(GLOBAL),
        lambda: (lambda n: lambda: jnp.zeros(n))(GLOBAL),
        lambda: lambda: jnp.zeros(holder["n"]),
        lambda: lambda: jnp.zeros(sizes[0]),
        lambda: with_default,
        lambda: with_keyword,
        lambda: kept,
        lambda: reads_global,
        lambda: lambda: with_default(),
        lambda: lambda: helper(),
        lambda: lambda: jax.eval_shape(kept),
        lambda: lambda: jax.jit(helper)(),
        lambda: lambda: [lambda: jnp.zeros(GLOBAL)][0](),
        lambda: lambda n=holder["n"]: jnp.zeros(n),
        lambda: functools.partial(lambda n: jnp.zeros(n), GLOBAL),
    ]

    def step(number: int, value: int) -> Callable[..., Any]:
        def trace(make: Any) -> Any:
            global GLOBAL
            before, GLOBAL = GLOBAL, value
            holder["n"] = sizes[0] = value
            with_default.__defaults__ = (value,)
            with_keyword.__kwdefaults__ = {"n": value}
            program = asking(makers[number], held)
            try:
                return observe(make, lambda x: program(x), X)
            finally:
                GLOBAL = before

        return trace

    values = (1, 1, 1, 2, 2, 3, 2, 1)
    assert_history([step(n, value) for value in values for n in range(len(makers))])


def reads_global():
    return jnp.zeros(GLOBAL)


def test_code_that_is_replaced() -> None:
    def one():
        return jnp.zeros(1)

    def two():
        return jnp.zeros(2)

    def step(code: Any) -> Callable[..., Any]:
        def trace(make: Any) -> Any:
            one.__code__ = code
            return [
                observe(make, lambda x: jnp.zeros(jax.eval_shape(one).shape), X),
                observe(make, lambda x: jnp.zeros(jax.eval_shape(lambda: one()).shape), X),
            ]

        return trace

    codes = [one.__code__, two.__code__]
    assert_history([step(codes[n]) for n in (0, 0, 0, 1, 1, 0, 1)])


def test_functions_that_call_each_other() -> None:
    def even(n):
        return jnp.zeros(n) if n == 0 else odd(n - 1)

    def odd(n):
        return jnp.zeros(1) if n == 0 else even(n - 1)

    for n in (4, 5, 4):
        assert shapes(lambda x: lambda: even(n))[-1].shape == ((n % 2),)


def test_what_shapes_depend_on_besides() -> None:
    def asks(x):
        return jnp.zeros(3, jax.eval_shape(lambda: jnp.arange(3) * 1.0).dtype) * x.sum()

    def step(enabled: bool) -> Callable[..., Any]:
        def trace(make: Any) -> Any:
            with jax.enable_x64(enabled):
                return observe(make, lambda x: asks(x), X)

        return trace

    assert_history([step(enabled) for enabled in (False, False, True, True, False, True)])


def test_errors_of_functions() -> None:
    def fails(x):
        return jax.eval_shape(lambda: jnp.zeros(3) + jnp.zeros(4))

    def returns_no_array(x):
        return jax.eval_shape(lambda: "text")

    assert_same_when_warm((fails, X), (returns_no_array, X))


# ---- custom derivative rules ------------------------------------------------------------------


@jax.custom_jvp
def doubled(x):
    return jnp.where(x > 0, x * 2, jnp.finfo(x.dtype).tiny)


@doubled.defjvp
def doubled_jvp(primals, tangents):
    return doubled(*primals), tangents[0] * 5


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def scaled(x, n):
    return x * n


@scaled.defjvp
def scaled_jvp(n, primals, tangents):
    return scaled(*primals, n), tangents[0] * n


def test_custom_jvp_is_replayed() -> None:
    for _ in range(4):
        jaxide.make_jaxpr(lambda x: (doubled(x), doubled(x), scaled(x, 2), scaled(x, 3)))(X)
    counts = counts_of("custom_jvp")
    assert (counts.bypasses, counts.hits) == ({}, 10)


def test_custom_jvp_in_programs() -> None:
    def program(x):
        return doubled(x), doubled(x * 2), doubled(x[0]), scaled(x, 2), scaled(x, n=3), scaled(x, 2)

    def total(x):
        return sum(jnp.sum(y) for y in program(x))

    assert_same_when_warm(
        (program, X),
        (jax.grad(total), X),
        (lambda x: jax.jvp(program, (x,), (x,)), X),
        (lambda x: jax.linearize(program, x)[1](x), X),
        (jax.vmap(program), M),
        (jax.hessian(total), X),
        (jax.jit(program), X),
        (jax.grad(jax.jit(total)), X),
        (jax.grad(jax.checkpoint(total)), X),
        (lambda x: lax.scan(lambda c, v: (c + total(v), v), 0.0, x), M),
    )


def test_rules_are_those_of_the_call() -> None:
    """Two functions with equal code, and rules of their own."""

    def make_scaled(rule: float) -> Any:
        @jax.custom_jvp
        def same(x):
            return x * 2

        same.defjvp(lambda primals, tangents: (same(*primals), tangents[0] * rule))
        return same

    def program(x):
        return [jax.jvp(make_scaled(rule), (x,), (x,)) for rule in (1.0, 2.0, 3.0)], [
            make_scaled(rule)(x) for rule in (1.0, 2.0, 1.0)
        ]

    assert_same_when_warm((program, X))
    jaxpr = warm_up(lambda x: [make_scaled(rule)(x) for rule in (1.0, 2.0, 1.0)], 1.0)
    evaluate = jaxpr_as_fun(jaxpr)
    assert jax.jvp(evaluate, (1.0,), (1.0,))[1] == [1.0, 2.0, 1.0]


def test_rules_that_refer_to_traced_values() -> None:
    def program(x, y):
        @jax.custom_jvp
        def by_value(z):
            return z * 2

        by_value.defjvp(lambda primals, tangents: (by_value(*primals), tangents[0] * y))

        @jax.custom_jvp
        def captures(z):
            return z * y

        captures.defjvp(lambda primals, tangents: (captures(*primals), tangents[0]))
        return by_value(x), jax.jvp(by_value, (x,), (x,)), captures(x), captures(y)

    assert_same_when_warm((program, X, X))


def test_custom_jvp_with_side_effects() -> None:
    global noisy
    calls = []

    @jax.custom_jvp
    def noisy(x):
        calls.append(1)
        return x * len(calls)

    noisy.defjvp(lambda primals, tangents: (noisy(*primals), tangents[0]))
    for n in range(1, 5):
        jaxpr = jaxide.make_jaxpr(lambda x: noisy(x))(1.0)
        assert len(calls) == n
        assert float(jaxpr_as_fun(jaxpr)(3.0)[0]) == 3 * n


def test_custom_jvp_of_what_changes() -> None:
    global variable
    factor = [2.0]

    @jax.custom_jvp
    def variable(x):
        return x * factor[0]

    def step(value: float, rule: float) -> Callable[..., Any]:
        def trace(make: Any) -> Any:
            factor[0] = value
            variable.defjvp(lambda primals, tangents: (variable(*primals), tangents[0] * rule))
            return observe(make, lambda x: (variable(x), jax.jvp(variable, (x,), (x,))), X)

        return trace

    pairs = [(1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (2.0, 2.0), (2.0, 2.0), (1.0, 1.0)]
    assert_history([step(value, rule) for value, rule in pairs * 2])


# ---- functions that take functions ------------------------------------------------------------


def test_functions_of_functions() -> None:
    """A program that jax makes of a function is one for each function object."""

    def same_object(x):
        add = lambda a, b: a + b
        return [lax.reduce(x, np.float32(0), add, (0,)) for _ in range(3)]

    def new_object(x):
        return [lax.reduce(x, np.float32(0), lambda a, b: a + b, (0,)) for _ in range(3)]

    def mapped(x):
        return jax.tree.map(lambda v: v * 2, {"a": x, "b": x})

    def piecewise(x):
        return jnp.piecewise(x, [x < 0, x > 1], [lambda v: v, lambda v: v * 2, lambda v: v - 1])

    def along(x):
        return jnp.apply_along_axis(lambda v: v.sum(), 0, x)

    def select(x):
        return jnp.vectorize(lambda a, b: a if a.ndim else a + b)(x, x)

    assert_same_when_warm(
        *((program, X) for program in (same_object, new_object, mapped, piecewise, select)),
        (along, M),
    )


def test_tracers_of_a_finished_trace() -> None:
    leaked = []
    jax.make_jaxpr(lambda x: leaked.append(x) or x)(X)
    assert_same_when_warm((lambda x: jax.eval_shape(lambda: leaked[0] + 1), X))
    assert trace_of(lambda x: x, X)(jaxide.make_jaxpr)[1] == []
