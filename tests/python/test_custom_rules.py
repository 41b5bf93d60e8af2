"""Direct calls of functions with derivative rules of the user's."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import expansion
import jaxide
from expansion import (
    Step,
    assert_history,
    assert_same_when_warm,
    empty_cache,
    observe,
    total,
    warm_up,
)

X = np.linspace(0.25, 1, 3, dtype=np.float32)

FACTOR = 2.0


@jax.custom_vjp
def clipped(x, low):
    return jnp.maximum(x, low) * FACTOR


def _clipped_fwd(x, low):
    y = jnp.maximum(x, low)
    return y * FACTOR, (x, low, jnp.sin(y))


def _clipped_bwd(residuals, ct):
    x, low, sine = residuals
    return jnp.where(x > low, ct * sine, 0.0), jnp.sum(ct * jnp.cos(x))


clipped.defvjp(_clipped_fwd, _clipped_bwd)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def scaled(x, by):
    return x * by


scaled.defvjp(lambda x, by: (x * by, jnp.exp(x)), lambda by, residual, ct: (ct * residual * by,))


@jax.custom_vjp
def of_tree(tree):
    return {"sum": tree["a"] + tree["b"][0], "product": tree["a"] * tree["b"][0]}


of_tree.defvjp(
    lambda tree: (of_tree(tree), tree),
    lambda tree, ct: ({"a": ct["sum"] + ct["product"] * tree["b"][0], "b": (ct["sum"],)},),
)


@jax.custom_vjp
def with_nothing(x, n):
    return x * n


with_nothing.defvjp(lambda x, n: (x * n, n), lambda n, ct: (ct * n, None))


@jax.custom_vjp
def with_zeros(x, y):
    return jnp.sin(x), y


def _with_zeros_fwd(x, y):
    return (jnp.sin(x.value), y.value), (x.perturbed, y.perturbed, x.value)


def _with_zeros_bwd(residuals, cts):
    used = [not isinstance(ct, jax.custom_derivatives.SymbolicZero) for ct in cts]
    assert used[0]
    return cts[0] * jnp.cos(residuals[2]), (cts[1] if used[1] else jnp.zeros(3))


with_zeros.defvjp(_with_zeros_fwd, _with_zeros_bwd, symbolic_zeros=True)


@jax.custom_vjp
def forwarding(x, y):
    return x, x * y


forwarding.defvjp(lambda x, y: ((x, x * y), (x, y, x)), lambda r, ct: (ct[0] * r[1], ct[1] * r[2]))


@jax.custom_vjp
def looping(x):
    return lax.scan(lambda c, _: (c * x, None), x, None, length=2)[0]


looping.defvjp(
    lambda x: (looping(x), x), lambda x, ct: (lax.fori_loop(0, 2, lambda i, c: c * x, ct),)
)


@jax.custom_vjp
def remat_optimised(x):
    return jnp.sin(x) * jnp.cos(x)


remat_optimised.defvjp(
    lambda x: (jnp.sin(x) * jnp.cos(x), jnp.tanh(x)), lambda r, ct: (ct * r,), optimize_remat=True
)


@jax.custom_jvp
def soft(x):
    return jnp.log1p(jnp.exp(x))


@soft.defjvp
def _soft_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return soft(x), dx * jax.nn.sigmoid(x)


@jax.custom_jvp
def by_argument(x, y):
    return x * y


by_argument.defjvps(lambda t, out, x, y: t * y, None)


def nested_rules(x):
    return clipped(soft(x), 0.5) + scaled(soft(x), 3.0)


Program = Callable[[Any], Any]

PROGRAMS: dict[str, Program] = {
    "vjp": lambda x: clipped(x, 0.5) + clipped(x, 0.25),
    "vjp twice of the same": lambda x: clipped(clipped(x, 0.5), 0.5),
    "all arguments": lambda x: clipped(x, x[0]) * x,
    "nondifferentiable argument": lambda x: scaled(x, 3.0) + scaled(x, 4.0),
    "tree": lambda x: of_tree({"a": x, "b": (x * 2,)}),
    "nothing for an integer": lambda x: with_nothing(x, 3) + with_nothing(x, jnp.arange(3)),
    "symbolic zeros": lambda x: with_zeros(x, X)[0] + with_zeros(X, x)[1] * with_zeros(x, x)[0],
    "forwarded": lambda x: forwarding(x, x * 2),
    "loops in the rules": looping,
    "optimised remat": remat_optimised,
    "jvp": lambda x: soft(x) * soft(x * 2),
    "jvps": lambda x: by_argument(x, 2.0) + by_argument(2.0, x),
    "nested rules": nested_rules,
    "in a jit": lambda x: jax.jit(lambda v: clipped(v, 0.5) * soft(v))(x),
    "in a scan": lambda x: lax.scan(lambda c, _: (clipped(c, 0.5), soft(c)), x, None, length=2),
    "in a branch": lambda x: lax.cond(x[0] > 0, lambda v: clipped(v, 0.5), soft, x),
}

TRANSFORMATIONS: dict[str, Callable[[Program], Program]] = {
    "none": lambda f: f,
    "grad": lambda f: jax.grad(lambda x: total(f(x))),
    "vjp": lambda f: lambda x: jax.vjp(f, x)[0],
    "linearize": lambda f: lambda x: jax.linearize(lambda x: total(f(x)), x)[1](x),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x])),
    "grad of vmap": lambda f: jax.grad(lambda x: total(jax.vmap(f)(jnp.stack([x, x])))),
    "vmap of grad": lambda f: (
        lambda x: jax.vmap(jax.grad(lambda x: total(f(x))))(jnp.stack([x, x]))
    ),
    "grad of jit": lambda f: jax.grad(jax.jit(lambda x: total(f(x)))),
    "grad of checkpoint": lambda f: jax.grad(jax.checkpoint(lambda x: total(f(x)))),
    "checkpoint": lambda f: jax.checkpoint(f),
    "value_and_grad": lambda f: jax.value_and_grad(lambda x: (total(f(x)), x), has_aux=True),
    "jacrev": lambda f: jax.jacrev(lambda x: total(f(x))),
    "grad of grad": lambda f: jax.grad(lambda x: total(jax.grad(lambda x: total(f(x)))(x))),
    "jvp": lambda f: lambda x: jax.jvp(lambda x: total(f(x)), (x,), (x,)),
}


@pytest.mark.covering(times=2)
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_when_warm(name: str, transformation: str) -> None:
    program = TRANSFORMATIONS[transformation](PROGRAMS[name])
    other = TRANSFORMATIONS[transformation](lambda x: total(PROGRAMS[name](x)) + soft(x))
    assert_same_when_warm((program, X), (other, X))


def first_place(x: Any) -> Any:
    return clipped(x, 0.5) + soft(x)


def second_place(x: Any) -> Any:
    y = clipped(x, 0.5)
    return soft(x) + y


def places(function: Callable[..., Any]) -> list[Any]:
    """The frames of each equation that are in this file."""

    def of(jaxpr: Any) -> list[Any]:
        found = []
        for eqn in jaxpr.eqns:
            frames = eqn.source_info.traceback.frames
            found.append([(f.function_name, f.line_num) for f in frames if f.file_name == __file__])
            found += [of(nested) for nested in expansion.core.jaxprs_in_params(eqn.params)]
        return found

    return of(function(X).jaxpr)


@pytest.mark.parametrize("transformation", ["none", "grad", "vmap", "jvp", "vmap of grad"])
def test_lines_of_the_user(transformation: str) -> None:
    """A function is called from several places, and its rule's equations have its own lines."""
    transform = TRANSFORMATIONS[transformation]
    makers = (jax.make_jaxpr, jaxide.make_jaxpr)
    for place in [first_place, second_place, nested_rules] * 4:
        stock, ours = (places(make(lambda x: transform(place)(x))) for make in makers)
        assert stock == ours


# From jax 0.11 on jax transposes linear programs itself, and batched rules are new each time.
IS_NEWEST = jax.extend.core.ClosedJaxpr is jax.extend.core.Jaxpr
REPLAYED = ["none", "grad"] + ([] if IS_NEWEST else ["vmap", "vmap of grad", "grad of vmap"])


@pytest.mark.parametrize("transformation", REPLAYED)
@pytest.mark.parametrize("name", ["vjp", "nondifferentiable argument", "tree", "forwarded", "jvp"])
def test_calls_are_replayed(name: str, transformation: str) -> None:
    program = TRANSFORMATIONS[transformation](PROGRAMS[name])
    with empty_cache():
        warm_up(program, X, rounds=4)
        before = jaxide.cache_info()
        warm_up(program, X, rounds=1)
        after = jaxide.cache_info()
    kind = "custom_jvp" if name == "jvp" else "custom_vjp"
    assert after.callables[kind].hits > before.callables[kind].hits
    assert after.callables[kind].bypasses == before.callables[kind].bypasses
    if "grad" in transformation and name != "jvp" and not IS_NEWEST:
        of_rules = "transpose of custom_lin"
        assert after.callables[of_rules].hits > before.callables[of_rules].hits


runs: list[str] = []


@jax.custom_vjp
def telling(x):
    return x * 2


def _telling_fwd(x):
    runs.append("fwd")
    return x * 2, x


def _telling_bwd(x, ct):
    runs.append("bwd")
    return (ct * x,)


telling.defvjp(_telling_fwd, _telling_bwd)


def test_rules_with_side_effects_run_each_time() -> None:
    runs.clear()
    for round_ in range(1, 6):
        jaxide.make_jaxpr(lambda x: jax.grad(lambda v: jnp.sum(telling(v)))(x))(X)
        assert runs == ["fwd", "bwd"] * round_


def test_what_rules_read_may_change() -> None:
    def step(factor: float) -> Step:
        def trace(make: expansion.Maker) -> Any:
            global FACTOR
            FACTOR = factor
            return observe(make, lambda x: jax.grad(lambda v: jnp.sum(clipped(v, 0.5)))(x), X)

        return trace

    try:
        assert_history([step(factor) for factor in (2.0, 2.0, 2.0, 3.0, 3.0, 2.0, math.pi, 2.0)])
    finally:
        globals()["FACTOR"] = 2.0


@jax.custom_vjp
def redefined(x):
    return x * 2


def test_rules_may_be_replaced() -> None:
    def step(bwd: Callable[..., Any]) -> Step:
        def trace(make: expansion.Maker) -> Any:
            redefined.defvjp(lambda x: (x * 2, x), bwd)
            return observe(make, lambda x: jax.grad(lambda v: jnp.sum(redefined(v)))(x), X)

        return trace

    one, another = (lambda x, ct: (ct * x,)), (lambda x, ct: (jnp.sin(ct),))
    assert_history([step(bwd) for bwd in (one, one, one, another, another, one, another)])


def test_functions_defined_anew() -> None:
    def program(power: int) -> Program:
        def use(x):
            @jax.custom_vjp
            def own(v):
                return v**power

            own.defvjp(lambda v: (v**power, v), lambda v, ct: (ct * power * v,))
            return own(x) + own(x * 2)

        return jax.grad(lambda x: jnp.sum(use(x)))

    assert_same_when_warm(*((program(power), X) for power in (2, 3, 2, 4)))


@jax.custom_vjp
def wrong_structure(x):
    return x * 2


wrong_structure.defvjp(lambda x: (x * 2, x), lambda x, ct: (ct, ct))


@jax.custom_vjp
def wrong_type(x):
    return x * 2


wrong_type.defvjp(lambda x: (x * 2, x), lambda x, ct: (ct[:1],))


@jax.custom_vjp
def no_pair(x):
    return x * 2


no_pair.defvjp(lambda x: x * 2, lambda x, ct: (ct,))


@pytest.mark.parametrize("function", [wrong_structure, wrong_type, no_pair])
def test_errors_of_rules(function: Program) -> None:
    assert_same_when_warm(
        (jax.grad(lambda x: jnp.sum(function(x))), X),
        (jax.vmap(jax.grad(lambda x: jnp.sum(function(x)))), np.stack([X, X])),
        (jax.jacfwd(function), X),
        (function, X),
    )


def test_numerics() -> None:
    def loss(x):
        return total([nested_rules(x), of_tree({"a": x, "b": (x,)}), forwarding(x, x)])

    transformed = [
        (jax.grad(loss), X),
        (jax.vmap(jax.grad(loss)), np.stack([X, X])),
        (jax.jit(jax.value_and_grad(loss)), X),
    ]
    for function, value in transformed:
        traced = warm_up(function, value)
        actual = jax.core.eval_jaxpr(traced.jaxpr, traced.consts, value)
        jax.tree.map(np.testing.assert_array_equal, actual, jax.tree.leaves(function(value)))
