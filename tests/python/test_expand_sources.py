"""What is replayed belongs to the line that calls and to the name scopes around it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import source_info_util

import expansion
import jaxide
import oracle
from expansion import ROUNDS, assert_history, assert_same_when_warm, observe

X = np.linspace(0.25, 1, 3, dtype=np.float32)
M = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)


@jax.jit
def jitted(x):
    return jax.nn.gelu(x) * 2


inlined = jax.jit(lambda x: jax.nn.softmax(x) + 1, inline=True)


@jax.jit
@jax.named_call
def named(x):
    with jax.named_scope("inside"):
        return jnp.sin(x) + jnp.linalg.norm(x)


@functools.partial(jax.jit, inline=True)
def named_and_inlined(x):
    with jax.named_scope("inlined"):
        return jnp.cos(x) * jax.nn.gelu(x)


CALLS: dict[str, Callable[[Any], Any]] = {
    "operators": lambda x: -(x + 1) * 2 / x,
    "indexing": lambda x: x[0] + x[1:].sum() + x.at[0].set(3)[0],
    "methods": lambda x: x.mean() + x.astype(np.int32).max() + x.reshape(3, 1).T[0, 0],
    "numpy": lambda x: jnp.where(x > 0, jnp.sin(x), jnp.dot(x, x)),
    "lax": lambda x: lax.add(lax.sin(x), lax.exp(x)),
    "nn": lambda x: jax.nn.gelu(x) + jax.nn.softmax(x) + jax.nn.relu(x),
    "linalg": lambda x: jnp.linalg.norm(x) + jnp.linalg.det(x[:, None] * x),
    "random": lambda x: jax.random.normal(jax.random.key(0), (3,)) + x,
    "jit": jitted,
    "inlined jit": inlined,
    "named": named,
    "named and inlined": named_and_inlined,
    "constants": lambda x: jnp.zeros(3) + jnp.arange(3.0) + jnp.array([1.0, 2.0, 3.0]) + x,
    "many results": lambda x: jnp.stack(jnp.split(x, 3)) + sum(jnp.divmod(x, 2.0)),
}

every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


@every_call
def test_lines(call: Callable[[Any], Any]) -> None:
    """Equal calls from many lines and depths of the stack."""

    def deeper(x, depth):
        if depth == 0:
            return call(x)
        return deeper(x, depth - 1)

    def use(x):
        first = call(x)
        second = (
            call(x),
            call(
                x
            ),
        )  # fmt: skip
        return first, second, [call(x) for _ in range(2)], deeper(x, 3), deeper(x, 1)

    assert_same_when_warm((use, X), (lambda x: call(x), X), (lambda x: (call(x), use(x)), X))


@every_call
def test_scopes(call: Callable[[Any], Any]) -> None:
    def use(x):
        out = [call(x)]
        with jax.named_scope("a"):
            out.append(call(x))
            with jax.named_scope("b"):
                out += [call(x), call(x)]
            out.append(call(x))
        with jax.named_scope("a"), jax.named_scope("c/d"):
            out.append(call(x))
        return out, jax.named_call(call, name="called")(x), call(x)

    def first_inside(x):
        with jax.named_scope("first"):
            return call(x)

    assert_same_when_warm((first_inside, X), (call, X), (use, X), (first_inside, X))


def test_a_new_scope_each_time() -> None:
    def step(number: int) -> expansion.Step:
        def use(x):
            with jax.named_scope(f"step_{number}"):
                return [call(x) for call in CALLS.values()]

        return lambda make: observe(make, lambda x: use(x), X)

    assert_history([step(number) for number in range(2 * ROUNDS)])


@every_call
def test_bodies(call: Callable[[Any], Any]) -> None:
    """Calls in the bodies of control flow and transformations, under scopes inside and outside."""

    def scoped(x):
        with jax.named_scope("body"):
            return jnp.sum(call(x)) + x

    def use(x):
        with jax.named_scope("outside"):
            return (
                lax.scan(lambda c, v: (scoped(c), call(v)), x, M),
                lax.cond(x[0] > 0, scoped, lambda v: scoped(v) * 2, x),
                lax.while_loop(lambda v: jnp.sum(call(v)) < 3, scoped, x),
                lax.fori_loop(0, 3, lambda i, v: scoped(v), x),
                jax.jit(scoped)(x),
                jax.vmap(scoped)(M),
                jax.checkpoint(scoped)(x),
                scoped(x),
            )

    assert_same_when_warm((use, X), (scoped, X))


@pytest.mark.parametrize("name", ["numpy", "nn", "jit", "named", "named and inlined", "operators"])
def test_derivatives(name: str) -> None:
    call = CALLS[name]

    def total(x):
        with jax.named_scope("total"):
            return jnp.sum(call(x) * call(x))

    assert_same_when_warm(
        (jax.grad(total), X),
        (jax.value_and_grad(total), X),
        (lambda x: jax.jvp(total, (x,), (x,)), X),
        (jax.jit(jax.grad(jax.checkpoint(total))), X),
        (jax.hessian(total), X),
        (jax.vmap(jax.grad(total)), M),
    )


def test_lines_are_in_this_file() -> None:
    """Equal frames are only worth something if they are the right ones."""

    def use(x):
        first = jax.nn.softmax(x)
        return first, jax.nn.softmax(x)

    line = use.__code__.co_firstlineno
    with expansion.empty_cache():
        jaxpr = expansion.warm_up(use, X)
        assert expansion.counts_of("jax.nn.softmax").hits > 0
    lines = set()
    for eqn in jaxpr.eqns:
        frame = source_info_util.user_frame(eqn.source_info.traceback)
        assert frame is not None and frame.file_name == __file__
        lines.add(frame.start_line - line)
    assert lines == {1, 2}


def test_an_explicit_traceback() -> None:
    """Code that sets the source of what it traces, as interpreters of jaxprs do."""
    tracebacks = []
    jax.make_jaxpr(lambda x: tracebacks.append(source_info_util.current().traceback) or x)(X)

    def use(x):
        with source_info_util.user_context(tracebacks[0], name_stack=current_stack("explicit")):
            inside = [call(x) for call in CALLS.values()]
        return inside, [call(x) for call in CALLS.values()]

    def current_stack(name: str) -> Any:
        return source_info_util.current_name_stack().extend(name)

    assert_same_when_warm((use, X))


def test_jaxprs_evaluated_in_a_trace() -> None:
    jaxpr = jax.make_jaxpr(lambda x: [call(x) for call in CALLS.values()])(X)

    def use(x):
        with jax.named_scope("evaluated"):
            return jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x)

    assert_same_when_warm((use, X), (lambda x: (use(x), use(x * 2)), X))


def test_tracebacks_of_errors() -> None:
    """The lines of the user in the traceback of an error inside a replayed program."""

    def lines(make: expansion.Maker) -> list[tuple[str, int]]:
        def use(x):
            good = jnp.dot(x, x)
            with contextlib.suppress(TypeError):
                jnp.dot(x, x[:2])
            return good + jnp.dot(
                x,
                x[:1],
            )

        try:
            make(use)(X)
        except TypeError as error:
            frames = []
            traceback = error.__traceback__
            while traceback:
                code = traceback.tb_frame.f_code
                if source_info_util.is_user_filename(code.co_filename):
                    frames.append((code.co_name, traceback.tb_lineno))
                traceback = traceback.tb_next
            return frames
        raise AssertionError("expected an error")

    assert_history([lines] * (ROUNDS + 1))


def test_comparison_sees_lines_and_scopes() -> None:
    def shown(function: Callable[[Any], Any]) -> Any:
        return expansion.program(jax.make_jaxpr(function)(X))

    def scoped(x):
        with jax.named_scope("a"):
            return jnp.sin(x)

    def other(x):
        with jax.named_scope("b"):
            return jnp.sin(x)

    texts = [str(jax.make_jaxpr(function)(X)) for function in (scoped, other)]
    assert texts[0] == texts[1]
    assert shown(scoped) != shown(other)
    assert shown(lambda x: jnp.sin(x)) != shown(lambda x: jnp.sin(x))
    assert list(oracle.differences(shown(scoped), shown(scoped))) == []


def branches(x: Any, y: Any) -> tuple[Any, Any]:
    """Branches of which one has a tangent of zeros, and residuals that only the other has."""
    return lambda z: z * x, lambda z: y * 2.0


def one_conditional(x: Any, y: Any) -> Any:
    return lax.cond(x[0] > 0, *branches(x, y), x)


def another_conditional(x: Any, y: Any) -> Any:
    return lax.cond(x[0] > 0, *branches(x, y), x)


def one_switch(x: Any, y: Any) -> Any:
    return lax.switch(jnp.int32(y[0]), branches(x, y), x)


def another_switch(x: Any, y: Any) -> Any:
    return lax.switch(jnp.int32(y[0]), branches(x, y), x)


@pytest.mark.parametrize(
    "programs",
    [
        (one_conditional, another_conditional),
        (one_switch, another_switch),
    ],
    ids=["cond", "switch"],
)
@pytest.mark.parametrize(
    "transform",
    [
        jax.grad,
        jax.value_and_grad,
        jax.hessian,
        lambda f: jax.jit(jax.grad(f)),
        lambda f: jax.grad(jax.checkpoint(f)),
        lambda f: lambda x: jax.vmap(jax.grad(f))(x[None]),
        lambda f: lambda x: jax.jvp(f, (x,), (x,)),
        lambda f: lambda x: jax.linearize(f, x)[0],
    ],
    ids=["grad", "value_and_grad", "hessian", "jit", "checkpoint", "vmap", "jvp", "linearize"],
)
def test_what_a_branch_is_filled_up_with(programs: Any, transform: Any) -> None:
    def traced(make: Any, program: Any) -> str:
        jaxpr = make(lambda x, y: transform(lambda x: program(x, y).sum())(x))(X, X)
        text: str = jaxpr.pretty_print(source_info=True, name_stack=True)
        return text

    one, another = programs
    for program in (one, one, one, another, another, another, one):
        assert traced(jaxide.make_jaxpr, program) == traced(jax.make_jaxpr, program)
