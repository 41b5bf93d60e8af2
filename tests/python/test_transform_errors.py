"""What jax raises under transformations, jaxide raises, and afterwards traces as before."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxpr_as_fun

import jaxide
from errors import BadUse
from test_errors import Raised, assert_raises_as_stock, good_text, outcome
from transforms import total

Function = Callable[[Any], Any]

VECTOR = np.ones(3, np.float32)


def custom_vjp(forward: Callable[..., Any], backward: Callable[..., Any]) -> Function:
    function = jax.custom_vjp(lambda v: jnp.sin(v))
    function.defvjp(forward, backward)
    return function


def custom_jvp(rule: Callable[..., Any]) -> Function:
    function = jax.custom_jvp(lambda v: jnp.sin(v))
    function.defjvp(rule)
    return function


def saved(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.sin(x), x


def leaked(transform: Callable[[Function], Function]) -> Function:
    """Uses a tracer of an inner transformation after the transformation has ended."""

    def f(x: jax.Array) -> Any:
        kept = []

        def inner(v: jax.Array) -> jax.Array:
            kept.append(v * 2)
            return jnp.sum(v)

        transform(inner)(x)
        return kept[0] + x

    return f


def branching(v: jax.Array) -> jax.Array:
    return v * 2 if v.sum() > 0 else v


# Each misuses a transformation, or does within one what cannot be done there.
MISUSES: dict[str, Function] = {
    "grad of a vector": lambda x: jax.grad(lambda v: v * 2)(x),
    "grad of integers": lambda x: jax.grad(lambda v: v.sum() * 1.0)(x.astype(int)),
    "grad of an integer result": lambda x: jax.grad(lambda v: v.sum().astype(int))(x),
    "grad of a complex result": lambda x: jax.grad(lambda v: v.sum() * 1j)(x),
    "grad of real as holomorphic": lambda x: jax.grad(jnp.sum, holomorphic=True)(x),
    "grad of a pair": lambda x: jax.grad(lambda v: (v.sum(), v.sum()))(x),
    "grad by a missing argument": lambda x: jax.grad(jnp.sum, argnums=1)(x),
    "grad without its aux": lambda x: jax.grad(jnp.sum, has_aux=True)(x),
    "value_and_grad of a vector": lambda x: jax.value_and_grad(lambda v: v)(x),
    "jacfwd of integers": lambda x: jax.jacfwd(lambda v: v * 2)(x.astype(int)),
    "jacrev of an integer result": lambda x: jax.jacrev(lambda v: v.astype(int))(x),
    "hessian of integers": lambda x: jax.hessian(jnp.sum)(x.astype(int)),
    "jvp with a tangent of another shape": lambda x: jax.jvp(jnp.sin, (x,), (x[:2],)),
    "jvp with a tangent of another dtype": lambda x: jax.jvp(
        jnp.sin, (x,), (x.astype(jnp.bfloat16),)
    ),
    "jvp with one tangent too many": lambda x: jax.jvp(jnp.sin, (x,), (x, x)),
    "jvp of a float0 primal": lambda x: jax.jvp(jnp.sin, (x,), (np.zeros(3, jax.dtypes.float0),)),
    "vjp with a cotangent of another structure": lambda x: jax.vjp(lambda v: (v, v), x)[1](x),
    "vjp with a cotangent of another shape": lambda x: jax.vjp(jnp.sum, x)[1](x),
    "vjp with a cotangent of another dtype": lambda x: jax.vjp(jnp.sin, x)[1](x.astype(int)),
    "vjp without its aux": lambda x: jax.vjp(jnp.sin, x, has_aux=True),
    "linearize at another shape": lambda x: jax.linearize(jnp.sin, x)[1](x[:2]),
    "linearize at another dtype": lambda x: jax.linearize(jnp.sin, x)[1](x.astype(int)),
    "transpose of what is not linear": lambda x: jax.linear_transpose(jnp.sin, x)(x),
    "vmap of two sizes": lambda x: jax.vmap(jnp.add)(x, x[:2]),
    "vmap of a tree of two sizes": lambda x: jax.vmap(lambda d: d["a"])({"a": x, "b": x[:1]}),
    "vmap along a missing axis": lambda x: jax.vmap(jnp.sin, in_axes=1)(x),
    "vmap along no axis": lambda x: jax.vmap(jnp.sin, in_axes=None)(x),
    "vmap of a scalar": lambda x: jax.vmap(jnp.sin)(x[0]),
    "vmap with another axis_size": lambda x: jax.vmap(jnp.sin, axis_size=4)(x),
    "vmap out_axes beyond the result": lambda x: jax.vmap(jnp.sin, out_axes=2)(x),
    "vmap out_axes of another structure": lambda x: jax.vmap(jnp.sin, out_axes=(0, 0))(x),
    "vmap out_axes None of a mapped value": lambda x: jax.vmap(jnp.sin, out_axes=None)(x),
    "vmap of another axis name": lambda x: jax.vmap(lambda v: lax.psum(v, "j"), axis_name="i")(x),
    "vmap with a permutation that repeats": lambda x: jax.vmap(
        lambda v: lax.ppermute(v, "i", [(0, 1), (1, 1)]), axis_name="i"
    )(x),
    "custom_vjp with a cotangent of another structure": lambda x: jax.grad(
        lambda v: custom_vjp(saved, lambda r, ct: ((ct, ct),))(v).sum()
    )(x),
    "custom_vjp with one cotangent too many": lambda x: jax.grad(
        lambda v: custom_vjp(saved, lambda r, ct: (ct, ct))(v).sum()
    )(x),
    "custom_vjp with a cotangent of another shape": lambda x: jax.grad(
        lambda v: custom_vjp(saved, lambda r, ct: (ct[:2],))(v).sum()
    )(x),
    "custom_vjp with a forward of another structure": lambda x: jax.grad(
        lambda v: custom_vjp(lambda v: ((v, v), v), lambda r, ct: (ct,))(v).sum()
    )(x),
    "custom_vjp that is not a pair": lambda x: jax.grad(
        lambda v: custom_vjp(jnp.sin, lambda r, ct: (ct,))(v).sum()
    )(x),
    "custom_vjp in forward mode": lambda x: jax.jvp(
        custom_vjp(saved, lambda r, ct: (ct,)), (x,), (x,)
    ),
    "custom_jvp with a tangent of another shape": lambda x: jax.jvp(
        custom_jvp(lambda p, t: (jnp.sin(p[0]), t[0][:2])), (x,), (x,)
    ),
    "custom_jvp with a tangent of another dtype": lambda x: jax.jvp(
        custom_jvp(lambda p, t: (jnp.sin(p[0]), t[0].astype(int))), (x,), (x,)
    ),
    "custom_jvp without a rule": lambda x: jax.jvp(jax.custom_jvp(jnp.sin), (x,), (x,)),
    "missing rule of a callback": lambda x: jax.grad(
        lambda v: jax.pure_callback(np.sin, jax.typeof(v), v).sum()
    )(x),
    "missing rule of a collective": lambda x: jax.vmap(
        jax.grad(lambda v: lax.pmax(v, "i")), axis_name="i"
    )(x),
    "reverse mode of a while loop": lambda x: jax.grad(
        lambda v: lax.while_loop(lambda s: s.sum() < 9, lambda s: s * 2, v).sum()
    )(x),
    "branch on a tracer in grad": lambda x: jax.grad(lambda v: branching(v).sum())(x),
    "branch on a tracer in vmap": lambda x: jax.vmap(branching)(x),
    "numpy of a tracer in jvp": lambda x: jax.jvp(lambda v: jnp.sin(np.asarray(v)), (x,), (x,)),
    "scan with a carry of another type in vmap": lambda x: jax.vmap(
        lambda v: lax.scan(lambda c, _: (c.astype(int), None), v, None, length=2)
    )(x),
    "cond with branches of other types in grad": lambda x: jax.grad(
        lambda v: lax.cond(v.sum() > 0, lambda w: w.sum(), lambda w: w, v)
    )(x),
    "checkpoint with a branch": lambda x: jax.grad(lambda v: jax.checkpoint(branching)(v).sum())(x),
    "error of the user in grad": lambda x: jax.grad(lambda v: {}["missing"])(x),
    "leaked by grad": leaked(jax.grad),
    "leaked by vmap": leaked(jax.vmap),
    "leaked by jit": leaked(jax.jit),
    "leaked by checkpoint": leaked(jax.checkpoint),
    "leaked by linearize": leaked(lambda f: functools.partial(jax.linearize, f)),
    "leaked by vmap of grad": leaked(lambda f: jax.vmap(jax.grad(f))),
}

# What the misuses happen under.
ENCLOSING: dict[str, Callable[[Function], Function]] = {
    "nothing": lambda f: f,
    "jit": jax.jit,
    "grad": lambda f: jax.grad(lambda v: total(f(v))),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x])),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,)),
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](x),
    "checkpoint": jax.checkpoint,
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (c, f(c)), x, None, length=2),
    "cond": lambda f: lambda x: lax.cond(x.sum() > 0, f, f, x),
    "jacrev": lambda f: jax.jacrev(lambda v: total(f(v))),
    "vmap of grad": lambda f: (
        lambda x: jax.vmap(jax.grad(lambda v: total(f(v))))(jnp.stack([x, x]))
    ),
    "grad of checkpoint": lambda f: jax.grad(lambda v: total(jax.checkpoint(f)(v))),
    "jit of grad of scan": lambda f: jax.jit(
        jax.grad(lambda v: lax.scan(lambda c, _: (c, total(f(v))), v, None, length=2)[1].sum())
    ),
}


def bad_use(misuse: str, enclosing: str) -> BadUse:
    def use(make: Callable[..., Any]) -> None:
        # A fresh function: jax remembers by the function what it has traced.
        jaxpr = make(ENCLOSING[enclosing](lambda x: MISUSES[misuse](x)))(VECTOR)
        # A trace takes leaked tracers as constants: that is an error when the program runs.
        jaxpr_as_fun(jaxpr)(VECTOR)

    return use


def combinations() -> list[Any]:
    """Every misuse by itself and under three constructs, so that each construct is met often."""
    others = itertools.cycle([name for name in ENCLOSING if name != "nothing"])
    return [
        pytest.param(bad_use(misuse, enclosing), id=f"{misuse} under {enclosing}")
        for misuse in MISUSES
        for enclosing in ["nothing", *itertools.islice(others, 3)]
    ]


# A misuse, and what it is under.
each_part = pytest.mark.covering(kinds=lambda use: use.split(" under "))


@pytest.fixture(scope="module")
def good_reference() -> Iterator[str]:
    yield good_text(jax.make_jaxpr)


@each_part
@pytest.mark.parametrize("use", combinations())
def test_raises_as_stock(use: BadUse, good_reference: str) -> None:
    assert_raises_as_stock(use, good_reference)


@each_part
@pytest.mark.parametrize("use", combinations())
def test_raises_again(use: BadUse) -> None:
    """When the calls before the error are replayed, the error is still the same."""

    def outcomes(make_jaxpr: Callable[..., Any]) -> list[Raised | None]:
        jax.clear_caches()
        return [outcome(use, make_jaxpr, cold=False) for _ in range(3)]

    assert outcomes(jaxide.make_jaxpr) == outcomes(jax.make_jaxpr)


def test_there_are_enough_bad_uses() -> None:
    assert len(MISUSES) >= 40
    assert len(combinations()) >= 200


def test_missing_rules_are_named() -> None:
    """Primitives of the user without rules, which jax names in its messages."""
    primitive = jax.extend.core.Primitive("ruleless")
    primitive.def_abstract_eval(lambda aval: aval)
    for transform in (jax.vmap, jax.grad, lambda f: functools.partial(jax.linearize, f)):
        use = lambda make: make(transform(lambda x: primitive.bind(x) * 1.0))(
            VECTOR if transform is jax.vmap else 1.0
        )
        expected = outcome(use, jax.make_jaxpr)
        assert expected.type is NotImplementedError and "ruleless" in expected.text
        assert outcome(use, jaxide.make_jaxpr) == expected
