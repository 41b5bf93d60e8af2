"""Calls that must run each time do, and are counted with a reason; their side effects are seen."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback

import expansion
import jaxide
from expansion import assert_same_when_warm, warm_up

X = np.linspace(0.25, 1, 3, dtype=np.float32)
M = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)

CONCRETE = "concrete array"
READ = "function that looks into a concrete array"
CONSTANT = "traced constant"
CALLABLE = "callable without a stable identity"
UNHASHABLE = "unhashable argument"
UNKNOWN = "object of an unknown class"
LARGE = "value too large for a key"
WARNED = "function that warned"
NEW_OBJECTS = "new objects at each call"


@functools.partial(jax.jit, static_argnums=1)
def with_static(x, static):
    return x * 2


@jax.jit
def printing(x):
    jax.debug.print("x = {}", x)
    return x * 2


@jax.jit
def calling_back(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


jax_array = jnp.arange(3)


class Unhashable:
    __hash__ = None


# By name: the callable whose calls are bypassed, the reason, and a program that calls it once.
BYPASSED: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "numpy array": ("Array.__add__", CONCRETE, lambda x: x + X.copy()),
    "jax array": ("jax.numpy.repeat", READ, lambda x: jnp.repeat(x, jax_array)),
    "0-d array": ("Array.__mul__", CONCRETE, lambda x: x * np.array(2.0)),
    "array in an index": ("Array.__getitem__", CONCRETE, lambda x: x[np.array([0, 1])]),
    "array in a list": ("jax.numpy.stack", CONCRETE, lambda x: jnp.stack([x, X])),
    "captured constant": (
        "Array.__mul__",
        CONSTANT,
        lambda x: jax.jit(lambda v: v)(x) * jnp.asarray(X),
    ),
    "callable": ("Array.at[].apply", CALLABLE, lambda x: x.at[0].apply(lambda v: v * 2)),
    "unhashable object": ("Array.__eq__", UNHASHABLE, lambda x: x == Unhashable()),
    "object": ("Array.__eq__", UNKNOWN, lambda x: x == object()),
    "long text": ("with_static", LARGE, lambda x: with_static(x, "a" * 100_000)),
    "large integer": ("with_static", LARGE, lambda x: with_static(x, 2**70)),
    "warning": ("jax.numpy.zeros", WARNED, lambda x: x + jnp.zeros(3, jnp.float64)),
    "captured array": ("jax.numpy.array", CONSTANT, lambda x: x + jnp.array([1.0, 2.0, 3.0])),
    "new array": ("jax.numpy.array", NEW_OBJECTS, lambda x: jnp.array([[1.0, 2.0], [3.0, x[0]]])),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BYPASSED)
def test_reason_is_counted(name: str) -> None:
    callable_name, reason, function = BYPASSED[name]
    assert_same_when_warm((function, X))
    rounds = 5
    with expansion.empty_cache():
        warm_up(function, X, rounds=rounds)
        info = jaxide.cache_info()
    counts = info.callables[callable_name]
    # The first calls may be recorded before it shows that they cannot be replayed.
    assert counts.bypasses.get(reason, 0) >= rounds - 2, counts
    assert info.bypasses[reason] >= counts.bypasses[reason]


def test_effects_on_references_are_not_replayed() -> None:
    ref = jax.new_ref(jnp.zeros(3))
    writing = jax.jit(lambda x: ref.__setitem__(..., x) or ref[...] * 2)
    assert_same_when_warm((lambda x: (writing(x), writing(x * 2)), X))


# ---- callbacks --------------------------------------------------------------------------------


def by_identity(record: list[Any], tag: str) -> Callable[..., Any]:
    """A new callback that can be told from others by what it does."""

    def callback(*args: Any) -> Any:
        record.append(tag)
        return np.float32(len(tag))

    return callback


CALLBACKS: dict[str, Callable[[Callable[..., Any], Any], Any]] = {
    "pure_callback": lambda call, x: jax.pure_callback(call, jax.ShapeDtypeStruct((), x.dtype), x),
    "io_callback": lambda call, x: io_callback(call, jax.ShapeDtypeStruct((), x.dtype), x),
    "ordered io_callback": lambda call, x: io_callback(
        call, jax.ShapeDtypeStruct((), x.dtype), x, ordered=True
    ),
    "debug.callback": lambda call, x: (jax.debug.callback(call, x), x * 1.0)[1],
    "pure_callback in a jit": lambda call, x: jax.jit(
        lambda v: jax.pure_callback(call, jax.ShapeDtypeStruct((), v.dtype), v)
    )(x),
    "debug.callback in a branch": lambda call, x: lax.cond(
        x > 0, lambda v: (jax.debug.callback(call, v), v)[1], lambda v: v, x
    ),
}


@pytest.mark.parametrize("kind", CALLBACKS)
def test_each_program_calls_its_own_callback(kind: str) -> None:
    record: list[Any] = []
    use = CALLBACKS[kind]

    def program(tag: str) -> Any:
        callback = by_identity(record, tag)
        return jaxide.make_jaxpr(lambda x: use(callback, x) + use(callback, x))(np.float32(1))

    with expansion.empty_cache():
        programs = {tag * n: program(tag * n) for n in (1, 2, 3) for tag in "ab"}
        for tag, jaxpr in programs.items():
            record.clear()
            jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, np.float32(1))
            jax.effects_barrier()
            assert record == [tag, tag]


def test_callbacks_are_as_in_stock() -> None:
    def call(value):
        return np.float32(value)

    calls = [(lambda x: use(call, x) + use(call, x), np.float32(1)) for use in CALLBACKS.values()]
    assert_same_when_warm(
        *calls,
        (lambda x: (printing(x), printing(x * 2), printing(x)), X),
        (lambda x: (calling_back(x), calling_back(x * 2), calling_back(x)), X),
        (lambda x: jax.debug.print("{x}", x=x), X),
    )


def test_prints_print_each_time() -> None:
    with expansion.empty_cache():
        warm_up(printing, X)
        jaxpr = warm_up(lambda x: printing(printing(x)), X)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, X)
            jax.effects_barrier()
    assert out.getvalue() == f"x = {jnp.asarray(X)}\nx = {jnp.asarray(X * 2)}\n"


# ---- warnings and errors are repeated ---------------------------------------------------------

WARNING: dict[str, Callable[[Any], Any]] = {
    "truncated dtype": lambda x: jnp.zeros(3, jnp.float64) + x.astype(np.float64),
    "truncated dtype, in a jit": lambda x: jax.jit(lambda v: v + jnp.ones(3, np.int64))(x),
    "overflow of a scalar": lambda x: x * 1e300 + jnp.add(x, np.float64(1e300)),
    "overflow of a complex scalar": lambda x: x.astype(np.complex64) * 1e300j,
    "overflow in an update": lambda x: x.at[0].set(1e300),
    "imaginary part": lambda x: x.astype(np.complex64).astype(np.float32),
    "imaginary part of a scalar": lambda x: jnp.full_like(x, np.complex64(2j)),
    "imaginary part of an initializer": lambda x: jax.nn.initializers.normal(np.complex64(2))(
        jax.random.key(0), (3,)
    ),
    "invalid scalar": lambda x: jnp.full_like(x, float("nan"), dtype=np.int32),
    "scatter of another type": lambda x: x.astype(np.int8).at[0].set(1.5),
    "large index": lambda x: x[np.int64(1)] + x[-1],
    "deprecated": lambda x: jnp.clip(x, a_min=0, a_max=1) if False else jnp.fix(x),
    "nested": lambda x: jax.vmap(lambda row: row.astype(np.float64))(x[None]),
}


@pytest.mark.parametrize("name", WARNING)
def test_warnings_are_repeated(name: str) -> None:
    assert_same_when_warm((WARNING[name], X), (lambda x: [WARNING[name](x)] * 2, X), rounds=5)


def test_overflow() -> None:
    assert_same_when_warm(
        (lambda x: x + 2**70, X),
        (lambda x: x.astype(int) + 2**40, X),
        (lambda x: x.astype(np.uint8) + -1, X),
        (lambda x: jnp.add(x.astype(np.int8), 300), X),
        (lambda x: x.astype(int) + 2**30, X),
        (lambda x: jnp.arange(2**31) + x, X),
        rounds=5,
    )


ERRORS: list[Callable[[Any], Any]] = [
    lambda x: jnp.dot(x, x) + jnp.dot(x, x[:2]),
    lambda x: jnp.dot(x, x) + jnp.dot(x[:2], x),
    lambda x: x + x[:2],
    lambda x: (x + x, x + "a"),
    lambda x: (jnp.sum(x, axis=0), jnp.sum(x, axis=1)),
    lambda x: (jnp.reshape(x, (1, 3)), jnp.reshape(x, (2, 2))),
    lambda x: (jnp.concatenate([x, x]), jnp.concatenate([x, x[None]])),
    lambda x: (jnp.stack([x, x]), jnp.stack([x, x[:1]])),
    lambda x: (lax.add(x, x), lax.add(x, x.astype(int))),
    lambda x: (lax.add(x, x), lax.add(x, x[:2])),
    lambda x: (jnp.einsum("i,i", x, x), jnp.einsum("ij,i", x, x)),
    lambda x: (jnp.where(x > 0, x, x), jnp.where(x > 0, x)),
    lambda x: (jax.nn.softmax(x), jax.nn.softmax(x, axis=2)),
    lambda x: (x.at[0].set(1), x.at[0, 0].set(1)),
    lambda x: (x[0], x[0, 0]),
    lambda x: (x[0], x["a"]),
    lambda x: (x[0], x[0.5]),
    lambda x: (x.astype("int8"), x.astype("no dtype")),
    lambda x: (jnp.zeros(3), jnp.zeros(x)),
    lambda x: (jnp.arange(3), jnp.arange(x[0])),
    lambda x: (jnp.sin(x), jnp.sin("a")),
    lambda x: (jnp.sin(x), jnp.sin(x, x)),
    lambda x: (jnp.sin(x), jnp.sin(y=x)),
    lambda x: (jnp.sum(x), jnp.sum(x, no=1)),
    lambda x: (jnp.linalg.inv(x[:, None] * x), jnp.linalg.inv(x)),
    lambda x: (jax.random.split(jax.random.key(0)), jax.random.split(x)),
    lambda x: (jnp.sum(x), bool(jnp.sum(x))),
    lambda x: (jnp.sum(x), float(jnp.sum(x))),
    lambda x: (jnp.sum(x), range(jnp.sum(x).astype(int))),
    lambda x: (with_static(x, 1), with_static(x, [1])),
    lambda x: (with_static(x, 1), with_static(x, x)),
    lambda x: (with_static(x, 1), with_static(x)),
    lambda x: (with_static(x, 1), with_static(x, 1, 2)),
    lambda x: (lax.top_k(x, 2), lax.top_k(x, 4)),
    lambda x: (lax.dynamic_slice(x, (0,), (2,)), lax.dynamic_slice(x, (0,), (4,))),
    lambda x: (lax.psum(x, ()), lax.psum(x, "no axis")),
    lambda x: (jax.grad(jnp.sum)(x), jax.grad(jnp.sin)(x)),
    lambda x: (jnp.multiply.reduce(x), jnp.multiply.reduce(x, axis=3)),
    lambda x: (divmod(x, 2), divmod(x, None)),
    lambda x: (x**2, pow(x, 2, 3)),
    lambda x: (x @ x, x @ 2),
    lambda x: (~x.astype(int), ~x),
    lambda x: (x.astype(int) << 1, x << 1),
]  # fmt: skip


@pytest.mark.covering(kinds=lambda number: [])
@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_after_good_calls(number: int) -> None:
    """The first half of each program is replayed by then, the second half is jax's error."""
    use = ERRORS[number]
    assert_same_when_warm((use, X), (lambda x: (jnp.sin(x), use(x)), X), (jax.jit(use), X))


@pytest.mark.covering(kinds=lambda number: [])
@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_that_the_program_catches(number: int) -> None:
    """What was recorded of a call that failed is not replayed, and the trace goes on."""

    def caught(x):
        try:
            return ERRORS[number](x)
        except Exception as error:
            return jnp.sin(x) * len(str(error).split("\n")[0])

    assert_same_when_warm((lambda x: (x * 2, caught(x), jnp.cos(x), caught(x * 2)), X))


def test_copies_of_jits() -> None:
    """A copy does not say what it runs; it runs as jax's does."""
    user, own = copy.deepcopy(jax.jit(lambda x: jnp.sin(x) * 2)), copy.deepcopy(jax.nn.relu)
    assert_same_when_warm(
        (lambda x: (user(x), user(x * 2), own(x)), X),
        (lambda x: jax.grad(lambda v: jnp.sum(own(v) * user(v)))(x), X),
    )
