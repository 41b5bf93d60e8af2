"""Numbers in programs whose arrays the user has: what is remembered does not change with them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxide
from alone import run_alone

X = np.arange(3, dtype=np.float32)

Program = Callable[[Any], Any]


def custom_vjp(body: Program) -> Program:
    function = jax.custom_vjp(lambda x: body(x))
    function.defvjp(lambda x: (body(x), None), lambda _, ct: (body(ct),))
    return function


# What is around a function that uses a number.
AROUND: dict[str, Callable[[Program], Program]] = {
    "itself": lambda body: body,
    "jit": lambda body: jax.jit(lambda x: body(x)),
    "jit in jit": lambda body: jax.jit(lambda x: jax.jit(lambda y: body(y))(x)),
    "grad": lambda body: jax.grad(lambda x: jax.jit(lambda y: body(y))(x).sum()),
    "vmap": lambda body: lambda x: jax.vmap(jax.jit(lambda y: body(y)))(x[None]),
    "jvp": lambda body: lambda x: jax.jvp(jax.jit(lambda y: body(y)), (x,), (x,)),
    "checkpoint": lambda body: jax.grad(
        lambda x: jax.checkpoint(lambda y: body(y).sum())(jnp.sin(x))
    ),
    "scan": lambda body: jax.grad(
        lambda x: lax.scan(lambda c, _: (body(c), None), x, None, length=2)[0].sum()
    ),
    "cond": lambda body: jax.grad(
        lambda x: lax.cond(True, lambda y: body(y), lambda y: y * 1.0, x).sum()
    ),
    "while_loop": lambda body: (
        lambda x: jax.vmap(lambda y: lax.while_loop(lambda c: c[0] < 1, lambda c: body(c), y))(
            x[None]
        )
    ),
    "custom_vjp": lambda body: jax.grad(lambda x: custom_vjp(body)(x).sum()),
    "linear_transpose": lambda body: lambda x: jax.linear_transpose(lambda y: body(y), x)(x),
}

OPERATIONS: dict[str, Callable[[Any], Program]] = {
    "multiply": lambda number: lambda x: x * number,
    "where": lambda number: lambda x: x * 2.0 + jnp.where(X > 1, 0.0, number) * x,
    "full": lambda number: lambda x: x * jnp.full(3, number),
    "pad": lambda number: lambda x: lax.pad(x, number * 0, [(1, 1, 0)])[:3] * number,
}


def view(array: np.ndarray) -> np.ndarray:
    return array.view()


def read_only(array: np.ndarray) -> np.ndarray:
    made = array.view()
    made.flags.writeable = False
    return made


# Other objects with the memory of an array.
ALIASES: dict[str, Callable[[np.ndarray], Any]] = {
    "itself": lambda array: array,
    "view": view,
    "read-only": read_only,
    "ctypes": lambda array: np.ctypeslib.as_array(
        ctypes.cast(array.ctypes.data, ctypes.POINTER(ctypes.c_float)), (1,)
    ).reshape(()),
    "memoryview": lambda array: np.asarray(memoryview(array)),
    "view of another type": lambda array: array.view(np.int32).view(np.float32),
    "view of a view": lambda array: chained(array)[-1],
}


def chained(array: np.ndarray) -> list[np.ndarray]:
    """Views of the views of an array, each of which has the one before as its base."""
    made = [array]
    for kind in (Viewing, np.ndarray, Viewing, np.ndarray):
        made.append(made[-1].view(kind))
    return made


class Viewing(np.ndarray):
    """numpy leaves a view with its base where the two are of different classes."""


def text(make_jaxpr: Callable[..., Any], program: Program) -> str:
    return str(make_jaxpr(lambda x: program(x))(X))


def assert_kept_apart(around: Any, operation: Any, alias: Any) -> None:
    """Whoever uses a number gets it, whatever becomes of the array that had it before."""
    array = np.array(2.5, np.float32)
    for _ in range(3):
        text(jaxide.make_jaxpr, around(operation(alias(array))))
    array[...] = 7
    for number in (2.5, np.float32(2.5), np.array(2.5, np.float32), array, 7.0):
        stock = text(jax.make_jaxpr, around(operation(number)))
        for _ in range(2):
            assert text(jaxide.make_jaxpr, around(operation(number))) == stock


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("around", AROUND)
def test_arrays_that_are_written_to_between_traces(around: str, operation: str) -> None:
    if around == "linear_transpose" and operation == "where":
        pytest.skip("not linear")
    assert_kept_apart(AROUND[around], OPERATIONS[operation], ALIASES["itself"])


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("around", ["grad", "checkpoint", "custom_vjp"])
def test_other_objects_with_the_memory(around: str, alias: str) -> None:
    assert_kept_apart(AROUND[around], OPERATIONS["multiply"], ALIASES[alias])


@pytest.mark.parametrize("holder", range(3))
def test_a_view_between_is_held(holder: int) -> None:
    """Whoever has an array between a number and the memory can write to it."""
    array = np.array(2.5, np.float32)
    views = array, array.view(np.int32), array.view(np.int32).view(np.uint32)
    held = views[holder]
    program = AROUND["grad"](lambda x: x * views[-1].view(np.float32))
    del array
    for _ in range(3):
        text(jaxide.make_jaxpr, program)
    held[...] = np.float32(7).view(held.dtype)
    stock = text(jax.make_jaxpr, program)
    assert text(jaxide.make_jaxpr, program) == stock
    again = AROUND["grad"](OPERATIONS["multiply"](np.float32(2.5)))
    assert text(jaxide.make_jaxpr, again) == text(jax.make_jaxpr, again)


@pytest.mark.unaudited  # an audit has another view of the array
def test_random_numbers_in_a_loop_are_remembered() -> None:
    """`jax.random.uniform` has a number that is a view of a view."""

    def program(x: Any) -> Any:
        def body(carry: Any, key: Any) -> Any:
            python.append(len(python))  # so that the loop is traced each time
            return carry * jax.random.uniform(key, carry.shape), None

        keys = jax.random.split(jax.random.key(0), 2)
        return jax.grad(lambda x: lax.scan(body, x, keys)[0].sum())(x)

    python: list[int] = []
    for _ in range(3):
        text(jaxide.make_jaxpr, program)
    before = jaxide.cache_info()
    assert text(jaxide.make_jaxpr, program) == text(jax.make_jaxpr, program)
    after = jaxide.cache_info()
    assert after.callables["rule of scan"].hits > before.callables["rule of scan"].hits
    reason = "literal that may be written to"
    assert after.bypasses.get(reason, 0) == before.bypasses.get(reason, 0)


@pytest.mark.unaudited  # an audit has another view of the array
def test_numbers_of_jax_are_remembered() -> None:
    """An array that jax has made of a number does not make the call run."""
    program = AROUND["grad"](OPERATIONS["multiply"](2.5))
    for _ in range(3):
        text(jaxide.make_jaxpr, program)
    before = jaxide.cache_info()
    text(jaxide.make_jaxpr, program)
    after = jaxide.cache_info()
    assert after.hits > before.hits
    reason = "literal that may be written to"
    assert after.bypasses.get(reason, 0) == before.bypasses.get(reason, 0)


SIMPLIFIED = """
import gc
import jax, jax.numpy as jnp, numpy as np
import jaxide

jax.config.update("jax_use_simplified_jaxpr_constants", True)
X = np.arange(3, dtype=np.float32)


def results(jit, end):
    def run(k):
        return jit(lambda x: x * k + 1)(X).tolist()

    first, found = new(2.5), []
    found.append(run(first))
    end(first)
    for value in (2.5, 7.0, 2.5):
        found.append(run(new(value)))
    return found


def write(array):
    array[...] = 7


def donate(array):
    jax.jit(lambda x: x + 1, donate_argnums=0)(array)


for new, end in (
    (lambda value: np.full(3, value, np.float32), write),
    (lambda value: jnp.full(3, value) * 1, lambda array: array.delete()),
    (lambda value: jnp.full(3, value) * 1, donate),
):
    assert results(jaxide.jit, end) == results(jax.jit, end)


def leave():
    for value in range(20):
        c = jnp.full((777,), float(value))
        jaxide.jit(lambda x: x[0] + c.sum())(X)


leave()
gc.collect()
assert not [array for array in jax.live_arrays() if array.shape == (777,)]
"""


def test_captured_arrays_that_are_literals() -> None:
    """Under ``jax_use_simplified_jaxpr_constants`` any array is one."""
    run_alone(SIMPLIFIED)


def literals(jaxpr: Any) -> list[tuple[type, bool]]:
    """The types of the literals of a program, those of nested programs within their equation."""
    found: list[tuple[type, bool]] = []
    for eqn in jaxpr.eqns:
        found += [(type(v.val), v.aval.weak_type) for v in eqn.invars if hasattr(v, "val")]
        for nested in jax.extend.core.jaxprs_in_params(eqn.params):
            found += literals(nested)
    return found


def test_equal_literals_of_two_types_are_told_apart() -> None:
    """A derivative may capture either of them."""

    def function(x: Any) -> Any:
        some = jnp.array([True, False, True])
        return (jnp.array(1.0) * jnp.where(some, 1 - x, x)).sum()

    jax.clear_caches()
    stock = literals(jax.make_jaxpr(jax.grad(function))(X).jaxpr)
    jax.clear_caches()
    for _ in range(3):
        made = literals(jaxide.make_jaxpr(jax.grad(lambda x: function(x)))(X).jaxpr)
        assert made == stock
