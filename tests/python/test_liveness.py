"""What is alive when: against counts by hand, a direct count, and XLA where nothing is fused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array, lax
from jax.experimental import pallas as pl

import jaxide

X = jnp.ones((8, 8))
SIZE = 256


def liveness_of(
    function: Callable[..., Any], *args: Any, donate: tuple[int, ...] = (), fused: bool = False
) -> jaxide.LivenessReport:
    report = jaxide.trace(function)(*args).liveness(donate, fused=fused)
    # What is alive at the peak is all that there is.
    assert sum(value.bytes for value in report.alive) == report.peak
    return report


def xla(function: Callable[..., Any], *args: Any) -> int:
    stats = jax.jit(function).lower(*args).compile().memory_analysis()
    return int(
        stats.argument_size_in_bytes
        + stats.output_size_in_bytes
        + stats.temp_size_in_bytes
        - stats.alias_size_in_bytes
    )


# ---- one program -------------------------------------------------------------------------------


def test_each_equation() -> None:
    def function(x: Array, y: Array) -> Array:
        a = x @ y
        b = a @ y
        c = a @ b
        return c @ c

    report = liveness_of(function, X, X)
    assert report.input_bytes == 2 * SIZE
    assert report.output_bytes == SIZE
    assert report.before == (2 * SIZE, 3 * SIZE, 4 * SIZE, 3 * SIZE)
    assert report.during == (3 * SIZE, 4 * SIZE, 5 * SIZE, 4 * SIZE)
    assert report.after == (3 * SIZE, 4 * SIZE, 3 * SIZE, 3 * SIZE)
    assert report.end == 3 * SIZE
    assert report.peak == 5 * SIZE
    assert report.peak_at is not None
    assert report.peak_at.path == (2,)
    assert [str(value).split(":")[0] for value in report.alive[:2]] == [
        f"dot_general at {__file__}"
    ] * 2
    assert {value.kind for value in report.alive} == {"input", "result"}
    assert report.last_use_of_inputs == (0, 1)
    assert report.last_use_of_results == ((2,), (2,), (3,), (4,))


def test_donated_inputs_are_given_back() -> None:
    function = lambda x, y: (x @ y) @ y
    assert liveness_of(function, X, X).peak == 4 * SIZE
    assert liveness_of(function, X, X, donate=(0,)).peak == 3 * SIZE
    assert liveness_of(function, X, X, donate=(0, 1)).after == (2 * SIZE, SIZE)


def test_wrong_donations() -> None:
    program = jaxide.trace(jnp.sin)(X)
    with pytest.raises(ValueError, match="donate names input 1, but the program has 1 inputs"):
        program.liveness(donate=(1,))


def direct_count(program: jaxide.Program) -> int:
    """The peak of a program whose results all have bytes of their own, by looking for each
    equation at each value."""
    jaxpr = program.jaxpr.jaxpr
    size = lambda var: math.prod(var.aval.shape) * var.aval.dtype.itemsize
    inputs = sum(map(size, jaxpr.invars))
    made = {var: at for at, eqn in enumerate(jaxpr.eqns) for var in eqn.outvars}
    needed = {var: at for at, eqn in enumerate(jaxpr.eqns) for var in eqn.invars if var in made}
    needed |= dict.fromkeys([var for var in jaxpr.outvars if var in made], len(jaxpr.eqns))
    return inputs + max(
        sum(
            size(var)
            for var, since in made.items()
            if since <= at <= max(needed.get(var, since), since)
        )
        for at in range(len(jaxpr.eqns))
    )


@pytest.mark.parametrize("seed", range(5))
def test_against_a_direct_count(seed: int) -> None:
    """Random programs of cumulative sums and products of matrices, which write over nothing."""
    import random

    rng = random.Random(seed)

    def function(x: Array) -> list[Array]:
        values = [x]
        for _ in range(40):
            a = rng.choice(values[-8:])
            values.append(rng.choice([lax.cumsum, lambda a: a @ rng.choice(values[:9]).T])(a))
        return rng.sample(values[1:], 3)

    program = jaxide.trace(function)(X)
    assert program.liveness().peak == direct_count(program)


# ---- taking over bytes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "new"),
    [
        (lambda a: lax.dynamic_update_slice(a, X[:1], (0, 0)), 0),
        (lambda a: a.at[0].set(2.0), 0),
        (lambda a: jnp.sin(a), 0),
        (lambda a: lax.cumsum(a), 1),
        (lambda a: a.T, 1),
    ],
)
def test_what_takes_over(update: Callable[[Array], Array], new: int) -> None:
    dead = liveness_of(lambda x: update(x @ x), X)
    kept = liveness_of(lambda x: (lambda a: (update(a), a))(x @ x), X)
    assert dead.during[-1] - dead.before[-1] == new * SIZE
    # What somebody else needs is not written over.
    assert kept.during[-1] - kept.before[-1] == SIZE


@pytest.mark.parametrize(
    "view", [lambda a: a.reshape(4, 16), lambda a: lax.bitcast_convert_type(a, jnp.int32)]
)
def test_views(view: Callable[[Array], Array]) -> None:
    for function in (lambda x: view(x @ x), lambda x: (lambda a: (view(a), a))(x @ x)):
        report = liveness_of(function, X)
        assert report.during[-1] == report.before[-1]


def test_inputs_are_not_written_over() -> None:
    assert liveness_of(jnp.sin, X).peak == 2 * SIZE
    assert liveness_of(jnp.sin, X, donate=(0,)).peak == SIZE


def test_outputs_have_bytes_of_their_own() -> None:
    assert liveness_of(lambda x: x, X).end == 2 * SIZE
    assert liveness_of(lambda x: x, X, donate=(0,)).end == SIZE
    assert liveness_of(lambda x: (lambda a: (a, a))(x @ x), X).end == 2 * SIZE
    assert liveness_of(lambda x: x.reshape(64), X).end == 2 * SIZE
    assert liveness_of(lambda x: (lambda a: (a, a.reshape(64)))(x @ x), X).end == 3 * SIZE


def test_constants_are_kept() -> None:
    captured = jnp.ones((16, 16))
    program = jaxide.trace(lambda x: jax.jit(lambda y: y @ captured[:8, :8])(x))(X)
    report = program.liveness()
    assert report.constant_bytes == 1024
    assert any(value.kind == "constant" and value.bytes == 1024 for value in report.alive)


def test_refs() -> None:
    def function(x: Array) -> Array:
        ref = jax.new_ref(x @ x)
        ref[0] = x[0]
        ref[1] += 1.0
        return ref[...] @ x

    report = liveness_of(function, X)
    # The Ref has the product's bytes; what is read of it has its own.
    assert report.peak == 3 * SIZE


def test_kernels_say_what_they_write_over() -> None:
    def add_one(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 1.0

    options = {"out_shape": jax.ShapeDtypeStruct(X.shape, X.dtype), "interpret": True}
    for aliases, new in (({0: 0}, 0), ({}, 1)):
        kernel = pl.pallas_call(add_one, input_output_aliases=aliases, **options)
        report = liveness_of(lambda x, kernel=kernel: kernel(x @ x), X)
        assert report.peak == (2 + new) * SIZE


# ---- programs within -----------------------------------------------------------------------------


def chain(x: Array) -> Array:
    a = x @ x
    b = a @ x
    return (a @ b) @ b


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint])
def test_calls_are_as_their_equations(wrap: Callable[..., Any]) -> None:
    """A call takes what its equations would take in its place."""
    inner = wrap(chain)
    nested = liveness_of(lambda x: inner(inner(x) @ x), X)
    flat = liveness_of(lambda x: chain(chain(x) @ x), X)
    assert nested.peak == flat.peak
    assert nested.peak_at is not None
    assert flat.peak_at is not None
    assert len(nested.peak_at.path) == 2
    assert (nested.peak_at.line, nested.end) == (flat.peak_at.line, flat.end)


def test_the_largest_branch() -> None:
    def function(i: Array, x: Array) -> Array:
        return lax.cond(i > 0, chain, lambda v: v @ v, x)

    report = liveness_of(function, 1, X)
    assert report.peak_at is not None
    assert report.peak_at.path[:1] == (2,)
    # The index and its conversion, x, and what the chain takes.
    within = liveness_of(chain, X).peak
    assert within <= report.peak <= within + 16


def test_loops() -> None:
    def function(x: Array, xs: Array) -> tuple[Array, Array]:
        return lax.scan(lambda c, s: (c @ s, c), x, xs)

    report = liveness_of(function, X, jnp.ones((5, 8, 8)))
    # x, xs, all that is stacked, the carry, its next value, and the slice.
    assert report.peak == (1 + 5 + 5 + 1 + 1 + 1) * SIZE
    assert {value.kind for value in report.alive} == {"input", "within", "result"}
    carried = liveness_of(lambda x, xs: function(x @ x, xs)[0], X, jnp.ones((5, 8, 8)))
    # What is carried has the bytes of the product, which nobody else needs.
    assert carried.peak == report.peak


def test_while_loops() -> None:
    def function(x: Array) -> Array:
        return lax.while_loop(lambda c: jnp.sum(c @ c @ c) < 9.0, lambda c: c + 1.0, x)

    report = liveness_of(function, X)
    # x, what is carried, and two products in the condition.
    assert report.peak == 4 * SIZE
    assert report.peak_at is not None
    assert report.peak_at.primitive == "dot_general"


def test_deep_and_shared_programs() -> None:
    inner = jax.jit(chain)
    for _ in range(30):
        inner = jax.jit(lambda x, inner=inner: inner(inner(x)))
    report = jaxide.trace(inner)(X).liveness()
    assert report.peak == liveness_of(lambda x: chain(chain(x)), X).peak


# ---- against XLA ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        chain,
        jax.jit(chain),
    ],
)
def test_as_xla_where_nothing_is_fused(function: Callable[..., Any]) -> None:
    x = jnp.ones((256, 256))
    assert liveness_of(function, x).peak == pytest.approx(xla(function, x), rel=0.01)


def test_fused() -> None:
    def function(x: Array) -> Array:
        y = x @ x
        return (y * 2.0 + (y - 1.0) * (y + 3.0)) @ x

    x = jnp.ones((256, 256))
    plain, fused = liveness_of(function, x), liveness_of(function, x, fused=True)
    assert fused.peak < plain.peak
    assert fused.peak == pytest.approx(xla(function, x), rel=0.01)


def test_report_is_a_table() -> None:
    text = str(liveness_of(chain, X))
    assert "peak: 1.00 KiB at" in text
    assert "f32[8,8]" in text


def test_values_are_told_by_position_or_line() -> None:
    report = liveness_of(lambda x, y: (x @ y) + 1, X, X)
    told = sorted(str(value) for value in report.alive)
    assert [text for text in told if text.startswith("input")] == ["input 0", "input 1"]
