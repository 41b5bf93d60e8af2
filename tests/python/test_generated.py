"""Random programs against stock jax.

A program is drawn as data: a list of steps, each an operator applied to values made before it, or
a transformation or control-flow construct around a smaller program. Running the data as a Python
function gives the function that is traced. `HYPOTHESIS_PROFILE=long` draws many more.

Two kinds of programs: operators on values that fit each other, deeply nested, and calls of all of
jax's public functions with arguments that fit or do not. Traces are cold, or they find all that the
programs before left in the caches, so that what is remembered of one call is found by others.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import example as explicit_example
from hypothesis import strategies as st
from jax import lax

import covering
import jaxide
import oracle
import random_calls
from corpus import Case

COMMON = {
    "deadline": None,
    "derandomize": "CI" in os.environ,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("default", max_examples=covering.examples(60, 300), **COMMON)
settings.register_profile("long", max_examples=10_000, **COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

DTYPES = [jnp.float32, jnp.float32, jnp.bfloat16, jnp.int32, jnp.uint8, jnp.bool_]
SHAPES = [(), (3,), (2, 3), (2, 1), (0,)]


def as_float(x: Any) -> jax.Array:
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32)


def as_number(x: Any) -> Any:
    return x * 1 if jnp.result_type(x) == jnp.bool_ else x


def flattened(x: Any) -> jax.Array:
    return jnp.ravel(as_float(x))


# Every operator takes any values: what has to agree is made to agree inside the program.
UNARY: dict[str, Callable[[Any], Any]] = {
    "sin": lambda x: jnp.sin(as_float(x)),
    "lax.tanh": lambda x: lax.tanh(as_float(x)),
    "neg": lambda x: -as_number(x),
    "abs": lambda x: jnp.abs(x),
    "square": lambda x: x**2 if jnp.result_type(x) != jnp.bool_ else x,
    "double": lambda x: as_number(x) * 2,
    "plus half": lambda x: x + 0.5,
    "half of": lambda x: 0.5 * as_number(x),
    "numpy scalar": lambda x: x + np.float32(1.5),
    "numpy array": lambda x: x * np.ones(3, np.float32) if np.shape(x) in ((3,), (2, 3)) else x,
    "sum": jnp.sum,
    "mean": lambda x: jnp.mean(as_float(x)),
    "max": lambda x: jnp.max(x, initial=0),
    "transpose": jnp.transpose,
    "ravel": jnp.ravel,
    "expand": lambda x: jnp.expand_dims(x, 0) if np.ndim(x) < 3 else x,
    "first": lambda x: jnp.asarray(x)[0] if np.ndim(x) and np.shape(x)[0] else x,
    "reverse": lambda x: jnp.asarray(x)[::-1] if np.ndim(x) else x,
    "float32": lambda x: lax.convert_element_type(x, jnp.float32),
    "bfloat16": lambda x: jnp.asarray(x).astype(jnp.bfloat16),
    "int32": lambda x: jnp.asarray(x).astype(jnp.int32),
    "softmax": lambda x: jax.nn.softmax(flattened(x)),
    "gelu": lambda x: jax.nn.gelu(as_float(x)),
    "relu": lambda x: jax.nn.relu(as_float(x)),
    "cumsum": lambda x: jnp.cumsum(as_float(x)),
    "sort": lambda x: jnp.sort(flattened(x)),
    "stop_gradient": lax.stop_gradient,
    "zeros_like": jnp.zeros_like,
    "set": lambda x: jnp.ravel(x).at[:1].set(1),
    "isnan": lambda x: jnp.isnan(as_float(x)),
    "var": lambda x: jnp.var(flattened(x), ddof=0),
}


def broadcastable(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The function on the values themselves where their shapes agree, else on their sums."""

    def apply(x: Any, y: Any) -> Any:
        try:
            np.broadcast_shapes(np.shape(x), np.shape(y))
        except ValueError:
            x, y = jnp.sum(x), jnp.sum(y)
        return function(x, y)

    return apply


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": broadcastable(lambda x, y: x + y),
    "sub": broadcastable(lambda x, y: as_number(x) - as_number(y)),
    "mul": broadcastable(lambda x, y: x * y),
    "div": broadcastable(lambda x, y: x / y),
    "maximum": broadcastable(jnp.maximum),
    "less": broadcastable(lambda x, y: x < y),
    "where": broadcastable(lambda x, y: jnp.where(x > 0, x, y)),
    "arctan2": broadcastable(jnp.arctan2),
    "outer": lambda x, y: jnp.outer(jnp.ravel(x)[:2], jnp.ravel(y)[:2]),
    "dot": lambda x, y: jnp.dot(flattened(x).sum(), flattened(y)),
    "concatenate": lambda x, y: jnp.concatenate([jnp.ravel(x)[:3], jnp.ravel(y)[:3]]),
    "lax.add": lambda x, y: (
        lax.add(jnp.sum(as_float(x)).astype(jnp.float32), 1.0 + y.sum())
        if isinstance(y, jax.Array) and y.dtype == jnp.float32
        else x
    ),
    "gather": lambda x, y: jnp.take(jnp.append(flattened(x), 1), jnp.sum(y).astype(int)),
}


@dataclasses.dataclass(frozen=True)
class Apply:
    """An operator on earlier values, each named by its (wrapped) position."""

    name: str
    operands: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Nest:
    """A construct around a smaller program of one value (and what it closes over)."""

    kind: str
    operand: int
    captured: int
    body: Program


@dataclasses.dataclass(frozen=True)
class Program:
    steps: tuple[Any, ...]
    outputs: tuple[int, ...]


def run(program: Program, values: Sequence[Any]) -> list[Any]:
    """The program as the Python function that it stands for."""
    values = list(values)
    for step in program.steps:
        if isinstance(step, Apply):
            operands = [values[i % len(values)] for i in step.operands]
            values.append((UNARY | BINARY)[step.name](*operands))
        else:
            operand, captured = (values[i % len(values)] for i in (step.operand, step.captured))
            values.append(NESTS[step.kind](step.body, operand, captured))
    return [values[i % len(values)] for i in program.outputs]


def body_of(program: Program, captured: Any) -> Callable[[Any], Any]:
    """The nested program as a function of one value, with one result."""
    return lambda x: run(program, [x, captured])[0]


def keeping_type(body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The body for a carry: its result has the shape and type of its argument."""

    def carried(x: jax.Array) -> jax.Array:
        return x + 0 * jnp.sum(as_float(body(x))).astype(x.dtype)

    return carried


def scalar(body: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: jnp.sum(as_float(body(x)))


NESTS: dict[str, Callable[[Program, Any, Any], Any]] = {
    "jit": lambda p, x, c: jax.jit(body_of(p, c))(x),
    "jit with operand": lambda p, x, c: jax.jit(lambda a, b: body_of(p, b)(a))(x, c),
    "checkpoint": lambda p, x, c: jax.checkpoint(body_of(p, c))(x),
    "grad": lambda p, x, c: jax.grad(scalar(body_of(p, c)))(as_float(x)),
    "value_and_grad": lambda p, x, c: jax.value_and_grad(scalar(body_of(p, c)))(as_float(x))[0],
    "jvp": lambda p, x, c: jax.jvp(scalar(body_of(p, c)), (as_float(x),), (as_float(x),))[1],
    "linearize": lambda p, x, c: jax.linearize(scalar(body_of(p, c)), as_float(x))[1](as_float(x)),
    "vmap": lambda p, x, c: jax.vmap(scalar(body_of(p, c)))(jnp.stack([jnp.ravel(x)] * 2)),
    "cond": lambda p, x, c: lax.cond(
        jnp.sum(as_float(c)) > 0,
        lambda v: scalar(body_of(p, c))(v).astype(jnp.float32),
        lambda v: jnp.sum(as_float(v)).astype(jnp.float32),
        x,
    ),
    "scan": lambda p, x, c: lax.scan(
        lambda a, v: (keeping_type(body_of(p, c))(a) + v, v),
        jnp.float32(0),
        flattened(x)[:3].astype(jnp.float32),
    )[0],
    "scan without inputs": lambda p, x, c: lax.scan(
        lambda a, _: (keeping_type(body_of(p, c))(a), a), as_float(x), None, length=2
    )[1],
    "while": lambda p, x, c: lax.while_loop(
        lambda s: s[0] < 2,
        lambda s: (s[0] + 1, keeping_type(body_of(p, c))(s[1])),
        (0, as_float(x)),
    )[1],
    "fori_loop": lambda p, x, c: lax.fori_loop(
        0, 2, lambda i, v: keeping_type(body_of(p, c))(v), as_float(x)
    ),
    "named_scope": lambda p, x, c: jax.named_scope("block")(body_of(p, c))(x),
    "custom_jvp": lambda p, x, c: with_custom_jvp(scalar(body_of(p, c)))(as_float(x)),
}


def with_custom_jvp(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    wrapped = jax.custom_jvp(function)
    wrapped.defjvp(lambda x, t: (function(*x), jnp.sum(t[0])))
    return wrapped


positions = st.integers(0, 30)
applications = st.one_of(
    st.builds(Apply, st.sampled_from(list(UNARY)), st.tuples(positions)),
    st.builds(Apply, st.sampled_from(list(BINARY)), st.tuples(positions, positions)),
)


def programs(depth: int, most_steps: int = 6) -> st.SearchStrategy[Program]:
    steps = applications
    if depth:
        nests = st.builds(
            Nest, st.sampled_from(list(NESTS)), positions, positions, programs(depth - 1, 3)
        )
        steps = st.one_of(applications, applications, nests)
    outputs = st.lists(positions, min_size=1, max_size=3).map(tuple)
    return st.builds(Program, st.lists(steps, max_size=most_steps).map(tuple), outputs)


def example(dtype: Any, shape: tuple[int, ...]) -> jax.Array:
    return jnp.asarray(np.linspace(0, 2, int(np.prod(shape))).reshape(shape).astype(dtype))


arguments = st.one_of(
    st.builds(example, st.sampled_from(DTYPES), st.sampled_from(SHAPES)),
    st.sampled_from([1, 2.5, True, np.float32(1.5), np.int32(2)]),
)


# The function of a custom rule captures the tracer that it is differentiated in.
CAPTURED_TRACER = Program(
    (Nest("grad", 0, 0, Program((Nest("custom_jvp", 0, 0, Program((), (1,))),), (0,))),), (0,)
)


# jax does not differentiate a while loop in reverse.
WHILE = Nest("while", 0, 0, Program((), (0,)))
NOT_DIFFERENTIABLE = Program((Nest("grad", 0, 0, Program((WHILE,), (2,))),), (0,))


@explicit_example(NOT_DIFFERENTIABLE, [1])
@explicit_example(CAPTURED_TRACER, [1])
@given(programs(depth=2), st.lists(arguments, min_size=1, max_size=3))
def test_generated(program: Program, args: list[Any]) -> None:
    case = Case("generated", lambda: lambda *values: run(program, values), tuple(args))
    try:
        oracle.trace_with([jax.make_jaxpr], case, cold=True)
    except Exception as expected:  # jax refuses the program: jaxide has to, in the same words
        with pytest.raises(type(expected)) as caught:
            oracle.trace_with([jaxide.make_jaxpr], case, cold=True)
        assert type(caught.value) is type(expected)
        assert oracle.scrub(str(caught.value)) == oracle.scrub(str(expected))
        return
    stock, ours = oracle.trace_with([jax.make_jaxpr, jaxide.make_jaxpr], case, cold=True)
    oracle.assert_same(case, stock, ours, cold=True, every_setting=True)


# What a program does with its arguments; what its steps say goes to the log.
Body = Callable[[Sequence[Any], random_calls.Log], list[Any]]


@dataclasses.dataclass
class Outcome:
    """What tracing a program made, or the error that it raised, and what its steps said."""

    traced: oracle.Traced | None
    error: tuple[type, str] | None
    log: random_calls.Log
    warned: list[tuple[Any, ...]]

    def text(self) -> str:
        if self.traced is None:
            return ""
        return oracle.scrub(self.traced.jaxpr.pretty_print(source_info=True, name_stack=True))


def outcome(maker: Callable[..., Any], body: Body, args: Sequence[Any]) -> Outcome:
    log: random_calls.Log = []

    def function(*values: Any) -> list[Any]:
        return [value for value in body(values, log) if isinstance(value, jax.Array)]

    traced = error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            traced = oracle.Traced(maker(function)(*args), function)
        except Exception as raised:
            error = (type(raised), oracle.scrub(str(raised)))
    warned = [(w.category, str(w.message), w.filename, w.lineno) for w in caught]
    return Outcome(traced, error, log, warned)


def assert_same_when_repeated(
    makers: Sequence[Callable[..., Any]], body: Body, args: Sequence[Any]
) -> None:
    """Both makers, in their order, make the same of the program, and again, and again.

    Nothing is cleared, neither between the traces nor between the programs.
    """
    for repetition in range(3):
        made = {maker: outcome(maker, body, args) for maker in makers}
        stock, ours = made[jax.make_jaxpr], made[jaxide.make_jaxpr]
        oracle.assert_equal(stock.error, ours.error)
        oracle.assert_equal(stock.log, ours.log)
        if repetition > 0:  # the body of a jit warns in whichever trace comes first
            oracle.assert_equal(stock.warned, ours.warned)
        assert stock.text() == ours.text()
    if stock.traced is not None:
        oracle.assert_same_description(stock.traced, ours.traced)


orders = st.permutations([jax.make_jaxpr, jaxide.make_jaxpr])


@given(
    programs(depth=2),
    st.lists(arguments, min_size=1, max_size=3),
    st.lists(arguments, max_size=2),
    orders,
)
def test_generated_warm(
    program: Program, args: list[Any], captured: list[Any], makers: list[Callable[..., Any]]
) -> None:
    assert_same_when_repeated(makers, lambda values, log: run(program, [*values, *captured]), args)


@given(
    random_calls.programs(depth=2),
    st.lists(random_calls.arguments, min_size=1, max_size=3),
    st.lists(random_calls.arguments, max_size=2),
    orders,
)
def test_calls(
    program: random_calls.Program,
    args: list[Any],
    captured: list[Any],
    makers: list[Callable[..., Any]],
) -> None:
    assert_same_when_repeated(
        makers, lambda values, log: random_calls.run(program, [*values, *captured], log), args
    )
