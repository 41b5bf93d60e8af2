"""What jax makes of the programs of jits that are made anew at each trace.

jax has caches of what it derives from a program (its linearization, `jvp`, batched form,
transpose), which know it by identity. Here other programs were there before, which say the same.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax._src.core import jaxprs_in_params

import jaxide
from expansion import (
    ROUNDS,
    assert_history,
    assert_replayed,
    assert_same_when_warm,
    total,
    trace_of,
    warm_up,
)
from test_custom_rules import PROGRAMS as OF_USERS
from test_custom_rules import TRANSFORMATIONS

X = np.linspace(0.25, 1, 3, dtype=np.float32)
Function = Callable[[Any], Any]

BODIES: dict[str, Function] = {
    "product": lambda x: jnp.sin(x) * x,
    "where": lambda x: jnp.where(x > 1, x * 2, jnp.cos(x)),
    "rule": lambda x: jax.nn.relu(x) * 2.0,
    "softmax": lambda x: jax.nn.softmax(x) + x,
    "constant": lambda x: x * jnp.arange(3.0),
    "stopped": lambda x: lax.stop_gradient(x) * x,
    "update": lambda x: x.at[0].set(2.0) * x[1],
    "identity": lambda x: x,
    "zero": lambda x: jnp.round(x) + jnp.zeros(3),
    "scan": lambda x: lax.scan(lambda c, _: (jnp.sin(c) * c, None), x, None, length=2)[0],
    "cond": lambda x: lax.cond(x[0] > 0, lambda v: v * jnp.tanh(v), lambda v: v, x),
    "fori": lambda x: lax.fori_loop(0, 2, lambda _, v: v * jnp.exp(v), x),
    "checkpoint": lambda x: jax.checkpoint(lambda v: jnp.sin(jnp.sin(v)))(x),
    "switch": lambda x: lax.switch(1, [lambda v: v, lambda v: v * v], x),
    "user's rules": lambda x: total(OF_USERS["looping"](x)) * x,
}


def called_twice(f: Function, x: Any) -> Any:
    jitted = jax.jit(lambda v: f(v))
    return jitted(jitted(x))


def two_of_one_body(f: Function, x: Any) -> Any:
    one, another = (jax.jit(lambda v: f(v)) for _ in range(2))
    return one(x) * another(x) + one(x)


def beside_and_within_a_loop(f: Function, x: Any) -> Any:
    jitted = jax.jit(lambda v: f(v))
    return lax.scan(lambda c, _: (jitted(c), None), x, None, length=2)[0] + jitted(x)


def with_other_tangents(f: Function, x: Any) -> Any:
    jitted = jax.jit(lambda a, b: f(a) * b)
    return jitted(x, x) + jitted(x, 2.0) + jitted(lax.stop_gradient(x), x)


def differentiated_within(f: Function, x: Any) -> Any:
    jitted = jax.jit(lambda v: f(v))
    return jax.grad(lambda v: jitted(v).sum())(x) + jitted(x)


def batched_within(f: Function, x: Any) -> Any:
    jitted = jax.jit(lambda v: f(v))
    return jax.vmap(jitted)(jnp.stack([x, x]))[0] + jitted(x)


def recomputed_within(f: Function, x: Any) -> Any:
    jitted = jax.jit(lambda v: f(v))
    return jax.checkpoint(lambda v: jitted(v) * v)(x) + jitted(x)


def nested(f: Function, x: Any) -> Any:
    inner = jax.jit(lambda v: f(v))
    outer = jax.jit(lambda v: inner(v) + jnp.cos(inner(v)))
    return outer(x) * inner(x)


def forwarding(f: Function, x: Any) -> Any:
    p, q, r = jax.jit(lambda v: (f(v), v, f(v)))(x)
    return p * q + r


def inlined(f: Function, x: Any) -> Any:
    return jax.jit(lambda v: f(v), inline=True)(x)


def inlined_twice(f: Function, x: Any) -> Any:
    """The equations of both calls have the same params, which jax's removal of dead code parts."""
    jitted = jax.jit(lambda v: f(v), inline=True)
    return jitted(jitted(x))


USES = [
    called_twice,
    two_of_one_body,
    beside_and_within_a_loop,
    with_other_tangents,
    differentiated_within,
    batched_within,
    recomputed_within,
    nested,
    forwarding,
    inlined,
    inlined_twice,
]


def using(use: Callable[[Function, Any], Any], body: str, transformation: str) -> Function:
    return TRANSFORMATIONS[transformation](lambda x: use(BODIES[body], x))


@pytest.mark.covering(times=2)
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("use", USES)
def test_uses(use: Callable[[Function, Any], Any], transformation: str) -> None:
    count = 1 if " of " in transformation else 2
    bodies = random.Random(f"{use.__name__} {transformation}").sample(sorted(BODIES), count)
    assert_same_when_warm(*((using(use, body, transformation), X) for body in bodies))


@pytest.mark.parametrize("body", BODIES)
def test_bodies(body: str) -> None:
    transformations = ("grad", "jvp", "vmap", "vmap of grad")
    assert_same_when_warm(*((using(called_twice, body, name), X) for name in transformations))


@pytest.mark.parametrize("body", ["scan", "fori", "cond", "checkpoint"])
def test_loops_that_are_inlined_twice(body: str) -> None:
    transformations = ("grad", "vjp", "grad of vmap")
    assert_same_when_warm(*((using(inlined_twice, body, name), X) for name in transformations))


calls = st.tuples(
    st.sampled_from(USES), st.sampled_from(sorted(BODIES)), st.sampled_from(list(TRANSFORMATIONS))
)


@given(st.lists(calls, min_size=1, max_size=3), st.randoms())
@settings(deadline=None, max_examples=15)
def test_random_histories(programs: list[Any], order: random.Random) -> None:
    steps = [trace_of(using(*program), X) for program in programs] * ROUNDS
    order.shuffle(steps)
    assert_history(steps)


DERIVED = {
    "grad": ("_linearize_jaxpr", "_transpose_jaxpr_fancy"),
    "jvp": ("_jvp_jaxpr",),
    "vmap": ("_batch_jaxpr2",),
}


@pytest.mark.parametrize("transformation", DERIVED)
@pytest.mark.parametrize("body", ["product", "where", "update"])
def test_derivations_are_replayed(body: str, transformation: str) -> None:
    program = using(called_twice, body, transformation)
    assert_replayed(DERIVED[transformation], program, X, rounds=3)


def jits(jaxpr: Any) -> list[Any]:
    """The programs of the jits of a jaxpr."""
    own = [eqn.params["jaxpr"] for eqn in jaxpr.eqns if eqn.primitive.name == "jit"]
    within = (inner for eqn in jaxpr.eqns for inner in jaxprs_in_params(eqn.params))
    return [*own, *(program for inner in within for program in jits(inner))]


def test_objects() -> None:
    """One jit has one linearization, two have two, and so have two traces."""
    one_jit = using(called_twice, "product", "grad")
    two_jits = using(two_of_one_body, "product", "grad")
    for make in (jax.make_jaxpr, jaxide.make_jaxpr):
        kept = []
        for program, distinct in ((one_jit, 2), (two_jits, 4)):
            for _ in range(ROUNDS + 1):
                kept.append(make(lambda x, program=program: program(x))(X))
                assert len({id(found) for found in jits(kept[-1].jaxpr)}) == distinct
        everything = [found for jaxpr in kept for found in {id(j): j for j in jits(jaxpr.jaxpr)}]
        assert len(everything) == len(set(everything))


def test_evaluation() -> None:
    """What stands for a derived program computes what that would."""
    for use in (with_other_tangents, nested, forwarding):
        program = using(use, "where", "grad")
        warm_up(program, X, rounds=ROUNDS)
        jaxpr = jaxide.make_jaxpr(lambda x, program=program: program(x))(X)
        out = jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, X)
        np.testing.assert_allclose(out[0], program(X), rtol=1e-6)


def test_rules_that_warn_run_each_time() -> None:
    @jax.custom_jvp
    def telling(x):
        return x * 2

    @telling.defjvp
    def _(primals, tangents):
        warnings.warn("a rule runs", stacklevel=2)
        return telling(*primals), tangents[0] * 2

    assert_same_when_warm((jax.grad(lambda x: jax.jit(lambda v: telling(v))(x).sum()), X))


def test_configuration() -> None:
    """A derivation made in one configuration is none for another."""
    program = using(called_twice, "softmax", "grad")

    def in_precision(precision):
        def step(make):
            with jax.default_matmul_precision(precision):
                return trace_of(lambda x: program(x) @ x, X)(make)

        return step

    assert_history([in_precision("float32"), in_precision("bfloat16")], ROUNDS)


def test_cleared_caches() -> None:
    program = using(nested, "product", "grad")

    def clear(_make):
        jax.clear_caches()

    assert_history([trace_of(program, X), clear] * ROUNDS + [trace_of(program, X)] * ROUNDS)
