"""Programs at random, in turns: `jax.jit` and `jaxide.jit` give the same bits, warnings and errors.

A case is a sequence of functions that are made anew. Neighbours differ in little: a value captured,
its class, how it is captured, an option of the jit, what is around it. So most functions find
executables of earlier ones, which must not be theirs.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, given, settings
from jax.experimental import io_callback

import covering
import jaxide
import oracle

EXAMPLES = 2_500 if oracle.IS_LONG else covering.examples(4, 8)
NAN, INF = float("nan"), float("inf")
SCALARS = [0.0, -0.0, 1, 1.0, True, NAN, -NAN, INF, np.float32(1), np.int8(1), 2**31, 1 + 0j]
ELEMENTS = [[1.0, 2.0, 3.0], [1.0, 2.0, 3.5], [0.0, -0.0, NAN], [-0.0, 0.0, -NAN], [INF, 1.0, 0.0]]
X = np.array([0.5, INF, -2.0], np.float32)

Function = Callable[[Any], Any]


class Log:
    """A callable that equals all others."""

    def __init__(self, value: Any):
        self.value = value
        self.rows: list[Any] = []

    def __call__(self, x: Any) -> Any:
        self.rows.append(np.asarray(x).tolist())
        return np.asarray(x) * np.float32(abs(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Log)

    def __hash__(self) -> int:
        return 0


ARRAYS: dict[str, Callable[[list[float]], Any]] = {
    "numpy": lambda e: np.array(e, np.float32),
    "jax": lambda e: jnp.array(e, jnp.float32),
    "half": lambda e: np.array(e, np.float16),
    "mask": lambda e: np.array(e, np.float32) > 1,
    "committed": lambda e: jax.device_put(np.array(e, np.float32), jax.devices()[1]),
    "view": lambda e: np.array([*e, 0.0], np.float32)[:3],
    "strided": lambda e: np.repeat(np.array(e, np.float32), 2)[::2],
    "weak": lambda e: jax.lax.convert_element_type(jnp.array(e), float),
}


def use_scalar(scalar: Any, array: Any, log: Log) -> Function:
    return lambda x: jnp.where(x > 0, scalar, x)


def use_array(scalar: Any, array: Any, log: Log) -> Function:
    return lambda x: jnp.where(x > 0, array, x)


def use_sums(scalar: Any, array: Any, log: Log) -> Function:
    return lambda x: jnp.where(jnp.isfinite(array).all(), x, array[::-1])


def use_literal_in_loop(scalar: Any, array: Any, log: Log) -> Function:
    body = lambda c, _: (jnp.where(c > 0, array, scalar).astype(c.dtype), None)
    return lambda x: jax.lax.scan(body, jnp.asarray(x, jnp.complex64), None, length=2)[0]


def use_callback(scalar: Any, array: Any, log: Log) -> Function:
    result = jax.ShapeDtypeStruct((3,), np.float32)
    return lambda x: io_callback(log, result, x * 1)


def use_tree(scalar: Any, array: Any, log: Log) -> Function:
    result = jax.ShapeDtypeStruct((), np.int32)
    classes = lambda tree: np.int32(sum(len(type(key).__name__) for key in tree))
    if isinstance(scalar, (np.generic, complex)):
        scalar = 1
    return lambda x: jax.pure_callback(_classes(classes), result, {scalar: x})


@functools.cache
def _classes(function: Any) -> Any:
    return function


def use_nested(scalar: Any, array: Any, log: Log) -> Function:
    inner = jax.jit(lambda x: jnp.where(x > 1, array, x))
    return lambda x: jax.lax.cond(x[0] > 0, inner, lambda y: inner(y) + 0, x).astype(np.float32)


USES = [
    use_scalar,
    use_array,
    use_sums,
    use_literal_in_loop,
    use_callback,
    use_tree,
    use_nested,
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"donate_argnums": 0},
    {"keep_unused": True},
    {"inline": True},
]

steps = st.tuples(
    st.sampled_from(USES),
    st.sampled_from(SCALARS),
    st.sampled_from(ELEMENTS),
    st.sampled_from(sorted(ARRAYS)),
    st.sampled_from(OPTIONS),
    st.sampled_from(["", "change", "lower", "again"]),
)


def outcome(run: Callable[[], Any]) -> Any:
    """All bits of the results, or the error."""
    try:
        results = jax.tree.leaves(run())
    except Exception as error:
        return type(error).__name__, str(error)
    return [
        (str(r.dtype), r.weak_type, r.committed, str(r.sharding), r.shape, np.asarray(r).tobytes())
        for r in results
    ]


def run_steps(jit: Any, cases: list[Any], values_differ: bool) -> list[Any]:
    seen = []
    for use, scalar, elements, kind, options, then in cases:
        # What an argument may do otherwise than a constant is documented: the values are equal.
        array = ARRAYS[kind](elements if values_differ else ELEMENTS[0])
        log = Log(1.0)
        f = jit(use(scalar, array, log), **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            seen.append(outcome(lambda f=f: f(jnp.array(X))))
            if then == "change" and isinstance(array, np.ndarray):
                array[...] = 1
            if then == "lower":
                seen.append(outcome(lambda f=f: f.lower(X).compile()(X)))
            if then:
                seen.append(outcome(lambda f=f: f(X)))
                seen.append(outcome(lambda f=f: f(jax.device_put(X, jax.devices()[1]))))
        jax.effects_barrier()
        seen.append(([(str(w.message), w.category, w.lineno) for w in caught], log.rows))
    return seen


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=2, max_size=6))
def test_equal_values(cases: list[Any]) -> None:
    assert_same_outcomes(run_steps, cases, False)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=2, max_size=6))
def test_other_values(cases: list[Any]) -> None:
    """Of functions that only choose among elements, arguments have the bits of constants."""
    assert_same_outcomes(run_steps, cases, True)


def assert_same_outcomes(run: Any, cases: list[Any], values_differ: bool) -> None:
    expected = run(jax.jit, cases, values_differ)
    for captured in ("auto", "constants", "arguments"):
        jit = functools.partial(jaxide.jit, captured=captured)
        got = run(jit, cases, values_differ)
        for index, (one, other) in enumerate(zip(got, expected, strict=True)):
            assert one == other, (captured, index)
