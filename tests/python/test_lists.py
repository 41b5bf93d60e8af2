"""The lists of a traced jaxpr, which exist once something reads them."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest

import jaxide

CAPTURED = np.arange(3.0, dtype=np.float32)

READERS: dict[str, Callable[[Any], Any]] = {
    "constvars": lambda jaxpr: jaxpr.constvars,
    "invars": lambda jaxpr: jaxpr.invars,
    "outvars": lambda jaxpr: jaxpr.outvars,
    "eqns": lambda jaxpr: jaxpr.eqns,
}


def function(x: Any, y: Any) -> Any:
    return jnp.sin(x) * CAPTURED, y, x, 2.0, jnp.sin(x) + y


def traced() -> Any:
    return jaxide.make_jaxpr(lambda x, y: function(x, y))(CAPTURED, 1.0)


def assert_consistent(closed: Any) -> None:
    """Each variable is one object wherever it occurs, as in a jaxpr of stock jax."""
    stock = jax.make_jaxpr(lambda x, y: function(x, y))(CAPTURED, 1.0)
    jax.extend.core.jaxpr_as_fun(closed)  # reads the whole
    occurrences = []
    for jaxpr in (closed.jaxpr, stock.jaxpr):
        atoms = [*jaxpr.constvars, *jaxpr.invars]
        for eqn in jaxpr.eqns:
            atoms += [*eqn.invars, *eqn.outvars]
        atoms += jaxpr.outvars
        numbers: dict[int, int] = {}
        literal = jax.extend.core.Literal
        occurrences.append(
            [
                repr(a) if isinstance(a, literal) else numbers.setdefault(id(a), len(numbers))
                for a in atoms
            ]
        )
    ours, expected = occurrences
    assert ours == expected
    assert str(closed) == str(stock)


@pytest.mark.parametrize("order", itertools.permutations(READERS), ids="-".join)
def test_whatever_is_read_first(order: tuple[str, ...]) -> None:
    closed = traced()
    for name in order:
        first = READERS[name](closed.jaxpr)
        assert [a is b for a, b in zip(READERS[name](closed.jaxpr), first, strict=True)]
        assert all(
            a is b for a, b in zip(READERS[name](closed.jaxpr), READERS[name](closed), strict=True)
        )
    assert type(closed.jaxpr) is type(jax.make_jaxpr(function)(CAPTURED, 1.0).jaxpr)
    assert_consistent(closed)


def test_lists_stay_the_same_objects() -> None:
    jaxpr = traced().jaxpr
    outvars = jaxpr.outvars
    _ = jaxpr.eqns
    assert jaxpr.outvars is outvars
    assert jaxpr.eqns is jaxpr.eqns


def test_nothing_is_read_from_a_dropped_jaxpr() -> None:
    closed = traced()
    invars = closed.jaxpr.invars
    del closed
    assert [str(v.aval) for v in invars] == ["float32[3]", "~float32[]"]


def test_lists_can_be_replaced() -> None:
    jaxpr = traced().jaxpr
    jaxpr._outvars = jaxpr.outvars[:1]
    assert len(jaxpr.outvars) == 1
    assert len(jaxpr.eqns) == len(traced().jaxpr.eqns)
    assert len(jaxpr.outvars) == 1
    with pytest.raises(AttributeError):
        del traced().jaxpr._outvars


@pytest.mark.parametrize("read", ["nothing", *READERS])
def test_copies(read: str) -> None:
    closed = traced()
    if read != "nothing":
        READERS[read](closed.jaxpr)
    for made in (copy.copy(closed), closed.replace(), closed.jaxpr.replace(eqns=closed.eqns[:1])):
        assert len(made.outvars) == 5
        assert made.outvars[1] is closed.jaxpr.outvars[1]
        assert made.invars[0] is closed.jaxpr.invars[0]


@pytest.mark.parametrize("read", ["nothing", *READERS])
def test_closing_over_other_constants(read: str) -> None:
    closed = traced()
    open_jaxpr = closed.jaxpr
    if read != "nothing":
        READERS[read](open_jaxpr)
    again = jax.extend.core.ClosedJaxpr(open_jaxpr, [CAPTURED + 1])
    (first, *_) = jax.extend.core.jaxpr_as_fun(again)(CAPTURED, np.float32(1))
    np.testing.assert_allclose(first, np.sin(CAPTURED) * (CAPTURED + 1), rtol=1e-6)
    assert_consistent(closed)


def test_names_are_counted_where_jax_checks_itself() -> None:
    with jax.enable_checks(True):
        assert_consistent(traced())


@jax.jit
def product(x: Any, y: Any) -> Any:
    return x * y


LITERALS: dict[str, Callable[[Any], Any]] = {
    "scalars": lambda x: (x * 2.5, x * 2.5),
    "arrays": lambda x: (x * jnp.array(7, jnp.int32), x * jnp.array(7, jnp.int32)),
    "one for two": lambda x: (lambda y: (x * y, x * y))(jnp.array(7.0)),
    "of jits": lambda x: (product(x, jnp.array(7.0)), product(x, jnp.array(7.0))),
}


@pytest.mark.parametrize("function", LITERALS.values(), ids=LITERALS)
def test_literals_are_as_many_objects(function: Callable[[Any], Any]) -> None:
    """jax tells literals and their values apart by identity when it evaluates a loop partially."""

    def identities(make: Callable[..., Any]) -> list[int]:
        jaxpr = make(lambda x: function(x))(1.5).jaxpr
        literals = [a for eqn in jaxpr.eqns for a in eqn.invars if hasattr(a, "val")]
        numbers: dict[int, int] = {}
        objects = [part for literal in literals for part in (literal, literal.val)]
        return [numbers.setdefault(id(part), len(numbers)) for part in objects]

    expected = identities(jax.make_jaxpr)
    assert [identities(jaxide.make_jaxpr) for _ in range(3)] == [expected] * 3
