"""Passes: what they do, and what they leave alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax._src import core
from jax.experimental import io_callback

import jaxide
import oracle
import passes
import test_generated as generated
from jaxide import _compat

# Floats on which identities fail that hold for numbers.
SPECIAL = jnp.asarray([0.0, -0.0, 1.0, -1.0, jnp.inf, -jnp.inf, jnp.nan, 3e4, 2e-38], jnp.float32)
EXTREME = jnp.asarray([0, 1, -1, 2**31 - 1, -(2**31), 7], jnp.int32)


def traced(function: Callable[..., Any], *args: Any) -> jaxide.Program:
    return jaxide.from_jaxpr(jax.make_jaxpr(function)(*args))


def names(program: jaxide.Program) -> list[str]:
    return [eqn.primitive.name for eqn in program.jaxpr.jaxpr.eqns]


def assert_same_bits(before: jaxide.Program, after: jaxide.Program, *args: Any) -> None:
    oracle.assert_equal(oracle.describe_value(before(*args)), oracle.describe_value(after(*args)))


def assert_exact(
    function: Callable[..., Any], *args: Any, left: Sequence[str], **options: Any
) -> None:
    """The passes leave these equations, which compute the same."""
    program = traced(function, *args)
    after = passes.optimized(program, **options)
    assert names(after) == list(left), str(after)
    assert_same_bits(program, after, *args)


def test_unknown_passes_are_refused() -> None:
    program = traced(lambda x: x, 1.0)
    with pytest.raises(ValueError, match="there is no pass 'licm': passes must be among algebra"):
        program.optimize(["dce", "licm"])
    with pytest.raises(TypeError, match="passes must be a sequence of names"):
        program.optimize("dce")
    with pytest.raises(TypeError, match="inline must be a sequence of names"):
        program.optimize(inline="f")
    with pytest.raises(ValueError, match="max_folded must not be negative, got -1"):
        program.optimize(max_folded=-1)


def test_nothing_to_do_is_the_same_program() -> None:
    program = traced(jnp.sin, SPECIAL)
    assert program.optimize() is program
    assert traced(lambda x: (x, jnp.sin(x))[1] * 1, SPECIAL).optimize([]) is not None


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_identities_of_floats(dtype: Any) -> None:
    x = jnp.where(SPECIAL == SPECIAL[-1], jnp.finfo(dtype).tiny, SPECIAL).astype(dtype)
    scalar = np.dtype(dtype).type
    one, zero, minus_zero = map(scalar, (1.0, 0.0, -0.0))
    for function in (
        lambda x: lax.mul(x, one),
        lambda x: lax.mul(one, x),
        lambda x: lax.div(x, one),
        lambda x: lax.sub(x, zero),
        lambda x: lax.add(x, minus_zero),
        lambda x: lax.add(x, jnp.full_like(x, minus_zero)),
        lambda x: lax.neg(lax.neg(x)),
        lambda x: lax.rev(lax.rev(x, (0,)), (0,)),
        lambda x: lax.integer_pow(x, 1),
        lambda x: lax.select_n(x > 0, x, x),
        lambda x: lax.reshape(lax.reshape(x, (9, 1)), (9,)),
    ):
        assert_exact(function, x, left=[])
    for function, left in (
        (lambda x: lax.add(x, zero), ["add"]),
        (lambda x: lax.mul(x, zero), ["mul"]),
        (lambda x: lax.sub(x, minus_zero), ["sub"]),
        (lambda x: lax.max(x, x), ["max"]),
        (lambda x: lax.sub(x, x), ["sub"]),
        (lambda x: lax.add(lax.add(x, one), one), ["add", "add"]),
        (lambda x: lax.div(x, scalar(3.0)), ["div"]),
        (lambda x: lax.div(x, scalar(8.0)), ["mul"]),
        (lambda x: lax.abs(lax.abs(x)), ["abs"]),
        (lambda x: lax.div(x, zero), ["div"]),
    ):
        assert_exact(function, x, left=left)


def test_quotients_that_are_no_normal_numbers_stay() -> None:
    # 1 / 2**127 is subnormal.
    assert_exact(lambda x: lax.div(x, np.float32(2.0**127)), SPECIAL, left=["div"])
    assert_exact(lambda x: lax.div(x, np.float32(2.0**126)), SPECIAL, left=["mul"])


def test_identities_of_integers() -> None:
    for function, left in (
        (lambda x: lax.add(lax.add(x, np.int32(2**31 - 1)), np.int32(2)), ["add"]),
        (lambda x: lax.mul(lax.mul(x, np.int32(65536)), np.int32(65537)), ["mul"]),
        (lambda x: x * 1 + 0, []),
        (lambda x: ~~x, []),
        (lambda x: x & -1 | 0, []),
        (lambda x: lax.max(x, x), []),
        (lambda x: lax.convert_element_type(x.astype(jnp.int16), jnp.int32), None),
        (lambda x: x.astype(jnp.int8), ["convert_element_type"]),
        (lambda x: (x > 0).astype(jnp.float32).astype(bool), ["gt"]),
        (lambda x: lax.dynamic_update_slice(x, x + 1, (3,)), ["add"]),
    ):
        assert_exact(function, EXTREME, left=["convert_element_type"] * 2 if left is None else left)


def test_complex_products_stay() -> None:
    z = np.array([complex(np.inf, 0.0), complex(-0.0, np.nan)], np.complex64)
    assert_exact(lambda z: lax.mul(z, np.complex64(1)), z, left=["mul"])
    assert_exact(lambda z: lax.real(lax.complex(lax.real(z), lax.imag(z))), z, left=["real"])


def test_weak_types_stay() -> None:
    def function(x: Any) -> Any:
        return lax.convert_element_type(x, jnp.float32)

    program = traced(function, 1.0)
    assert program.jaxpr.in_avals[0].weak_type and not program.jaxpr.out_avals[0].weak_type
    assert program.optimize() is program


def test_reassociation_is_asked_for() -> None:
    x = np.linspace(0.1, 0.9, 7, dtype=np.float32)

    def function(x: Any) -> Any:
        return (x + 0.0) / 3.0 + np.float32(0.1) + np.float32(0.2)

    program = traced(function, x)
    assert names(passes.optimized(program)) == ["add", "div", "add", "add"]
    after = passes.optimized(program, allow_reassociation=True)
    assert names(after) == ["mul", "add"]
    np.testing.assert_allclose(after(x)[0], program(x)[0], rtol=1e-6)


def test_folding() -> None:
    def function(x: Any) -> Any:
        start = jnp.asarray(2) + jnp.asarray(3)
        return x + lax.mul(start, 2), jnp.arange(3)[1] * 2, lax.iota(np.int32, 3) * 2

    program = traced(function, np.int32(1))
    after = passes.optimized(program, passes.EXACT)
    assert names(after) == ["add"]
    assert_same_bits(program, after, np.int32(1))
    # Too many elements.
    large = traced(lambda: lax.iota(np.int32, 100) * 2)
    assert large.optimize() is large
    assert names(large.optimize(max_folded=100)) == []


def test_folded_arrays_are_constants() -> None:
    after = traced(lambda x: x + lax.iota(np.float32, 3) * 2, np.ones(3, np.float32)).optimize()
    assert str(after) == "{ lambda a:f32[3]; b:f32[3]. let c:f32[3] = add b a in (c,) }"
    np.testing.assert_array_equal(after.jaxpr.consts[0], [0, 2, 4])


def test_what_devices_do_not_agree_on_is_not_folded() -> None:
    pair = lambda value: lax.broadcast(value, (2,))

    def function(x: Any) -> Any:
        return (
            lax.exp(pair(np.float32(1))),
            lax.div(pair(np.int32(1)), pair(np.int32(0))),
            lax.convert_element_type(pair(np.float32(1e20)), jnp.int32),
            lax.mul(pair(np.float32(1e-30)), pair(np.float32(1e-10))),
            lax.max(pair(np.float32(0.0)), pair(np.float32(-0.0))),
            lax.mul(pair(np.float32(3)), pair(np.float32(5))),
            x,
        )

    after = passes.optimized(traced(function, 1.0))
    left = [name for name in names(after) if name != "broadcast_in_dim"]
    assert left == ["exp", "div", "convert_element_type", "mul", "max"]


def test_results_that_are_literals_are_arrays() -> None:
    program = traced(lambda x: (jax.jit(lambda x: (x, 2.0))(x), lax.add(np.int32(1), 1)), SPECIAL)
    assert_same_bits(program, passes.optimized(program), SPECIAL)


def test_common_subexpressions() -> None:
    def function(x: Any, y: Any) -> Any:
        first = jnp.sin(x)
        return first + jnp.sin(x), lax.add(y, y), x + 1.0, x + np.float32(1.0)

    args = SPECIAL, EXTREME
    assert_exact(function, *args, left=["sin", "add", "add", "add"], passes=["cse"])
    program = traced(function, *args)
    (line,) = {
        _compat.user_line(eqn.source_info.traceback)
        for eqn in program.optimize(["cse"]).jaxpr.jaxpr.eqns[:1]
    }
    assert line == _compat.user_line(program.jaxpr.jaxpr.eqns[0].source_info.traceback)


def test_outputs_that_nobody_used() -> None:
    """Variables that jax prints as `_`, which an earlier equation has for a later one."""

    def function(x: Any) -> Any:
        values, _ = lax.top_k(x, 2)
        _, places = lax.top_k(x, 2)
        return values, places

    assert_exact(function, SPECIAL[:5], left=["top_k"])


def test_operands_of_floats_are_not_exchanged() -> None:
    def function(x: Any, y: Any) -> Any:
        return x + y, y + x, x * y, y * x

    assert names(passes.optimized(traced(function, 1.0, 2.0))) == ["add", "add", "mul", "mul"]
    assert names(passes.optimized(traced(function, 1, 2))) == ["add", "mul"]


def test_effects_stay() -> None:
    def function(x: Any) -> Any:
        jax.debug.print("{}", x)
        jax.debug.print("{}", x)
        dead = jnp.exp(x)
        io_callback(lambda x: None, None, x + 1, ordered=True)
        io_callback(lambda x: None, None, x + 1, ordered=True)
        jax.debug.print("{}", dead * 0)
        return x * 1.0

    program = traced(function, np.float32(1))
    after = passes.optimized(program)
    assert len(passes.effects_of(after)) == 5
    assert names(after).count("add") == 1
    assert "exp" in names(after)


def test_references_stay() -> None:
    def function(x: Any) -> Any:
        ref, other = jax.new_ref(x), jax.new_ref(x)
        before = ref[...] + ref[...]
        ref[...] = before * 1.0
        other[...] += before
        return ref[...] + ref[...], other[...]

    program = traced(function, SPECIAL)
    after = passes.optimized(program, passes.EXACT)
    stateful = [name for name in names(program) if name in ("new_ref", "get", "swap", "addupdate")]
    assert [name for name in names(after) if name in stateful] == stateful
    assert_same_bits(program, after, SPECIAL)


def test_derivative_rules_stay() -> None:
    @jax.custom_jvp
    def twice(x: Any) -> Any:
        dead = jnp.cos(x)
        return x * 1.0 + x, dead

    @twice.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return twice(x), (t * 100.0, t)

    @jax.custom_vjp
    def thrice(x: Any) -> Any:
        return x * 1.0 + x + x

    thrice.defvjp(lambda x: (thrice(x), None), lambda _, ct: (ct * 1000.0,))

    def function(x: Any) -> Any:
        return twice(x)[0] + thrice(x)

    program = traced(function, np.float32(2))
    after = passes.optimized(program)
    assert names(after) == ["custom_jvp_call", "custom_vjp_call", "add"]
    run = lambda program: jax.grad(lambda x: program(x)[0])(np.float32(2))
    assert run(after) == run(program) == 1100.0


def test_checkpoints_stay() -> None:
    @jax.checkpoint
    def layer(x: Any) -> Any:
        return jnp.sin(jnp.sin(x * 1.0)) * jnp.sin(x)

    def loss(x: Any) -> Any:
        return (layer(x) + layer(x) + jnp.sin(x)).sum()

    program = traced(loss, SPECIAL[:3])
    assert names(passes.optimized(program)).count("remat2") == 2
    gradient = traced(jax.grad(loss), SPECIAL[:3])
    after = passes.optimized(gradient, passes.EXACT)
    assert names(after).count("remat2") == names(gradient).count("remat2") > 0
    assert_same_bits(gradient, after, SPECIAL[:3])
    # The optimized program is checkpointed as before when it is differentiated.
    again = traced(jax.grad(lambda x: passes.optimized(program)(x)[0]), SPECIAL[:3])
    assert names(again).count("remat2") == names(gradient).count("remat2")


def test_jits_that_are_more_than_calls_stay() -> None:
    mesh = jax.make_mesh((1,), ("i",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    body = lambda x: x * 2.0
    plain = jax.jit(body)
    for other in (
        jax.jit(body, donate_argnums=0),
        jax.jit(body, out_shardings=sharding),
        jax.jit(body, keep_unused=True),
    ):
        after = passes.optimized(traced(lambda x, other=other: plain(other(x)), np.float32(1)))
        assert names(after) == ["jit", "mul"]


def test_inlining_keeps_names_and_lines() -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        with jax.named_scope("inside"):
            return jnp.sin(x)

    @jax.jit
    def other(x: Any) -> Any:
        return jnp.cos(x)

    def function(x: Any) -> Any:
        with jax.named_scope("outside"):
            return other(inner(x))

    program = traced(function, 1.0)
    assert names(passes.optimized(program, ["inline"])) == ["sin", "cos"]
    after = passes.optimized(program, ["inline"], inline=["inner"])
    assert names(after) == ["sin", "jit"]
    source = after.jaxpr.jaxpr.eqns[0].source_info
    assert str(source.name_stack) == "outside/inside"
    assert "inner)" in (_compat.user_line(source.traceback) or "")


def test_programs_that_are_shared_stay_shared() -> None:
    inner = jax.jit(lambda x: x * 1.0 + jnp.sin(x) + jnp.sin(x))
    program = traced(lambda x: inner(inner(x)), 1.0)
    after = passes.optimized(program, max_inlined=0)
    first, second = (eqn.params["jaxpr"] for eqn in after.jaxpr.jaxpr.eqns)
    assert first is second
    assert len(first.jaxpr.eqns) == 3


def test_programs_that_jax_has_read_since() -> None:
    """What jax has of jits within is read once more when it traces the function itself."""

    def loss(x: Any) -> Any:
        return jax.nn.relu(jax.nn.relu(x @ x) @ x).sum()

    x = jnp.ones((4, 4))
    program = jaxide.trace(jax.grad(loss))(x)
    jax.jit(jax.grad(loss)).lower(x)
    after = passes.optimized(program, passes.EXACT)
    assert_same_bits(program, after, x)
    assert len(passes.optimized(program)) == 17


def test_what_only_one_equation_still_runs_is_inlined() -> None:
    inner = jax.jit(lambda x: functools.reduce(lambda x, f: f(x), [jnp.sin, jnp.cos] * 6, x))
    program = traced(lambda x: inner(x) + inner(x), 1.0)
    assert names(program) == ["jit", "jit", "add"]
    after = passes.optimized(program)
    assert names(after) == ["sin", "cos"] * 6 + ["add"]


def test_constants_of_what_is_inlined() -> None:
    weights = jnp.arange(3.0)
    inner = jax.jit(lambda x: x * weights)
    program = traced(lambda x: inner(x) + inner(x), SPECIAL[:3])
    after = passes.optimized(program, ["inline", "cse"])
    assert names(after) == ["mul", "add"]
    assert_same_bits(program, after, SPECIAL[:3])


def test_what_programs_within_need_not_compute() -> None:
    def scanned(x: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            used, unused = carry
            return (used + x, unused + jnp.exp(x)), (jnp.sin(x), jnp.cos(x))

        (total, _), (_, out) = lax.scan(body, (np.float32(0), np.float32(0)), x)
        return total, out

    def branches(x: Any) -> Any:
        one = lambda x: (jnp.sin(x), jnp.exp(x))
        return lax.cond(x[0] > 0, one, lambda x: (x, x), x)[0]

    def jitted(x: Any) -> Any:
        dead = jnp.exp(x)
        return jax.jit(lambda x, y: (jnp.sin(x), y))(x, dead)[0]

    def checkpointed(x: Any) -> Any:
        return jax.checkpoint(lambda x: (jnp.sin(x), jnp.exp(x)))(x)[0]

    for function in (scanned, branches, jitted, checkpointed):
        program = traced(function, SPECIAL)
        after = passes.optimized(program, ["dce"])
        assert "exp" in str(program) and "exp" not in str(after)
        assert_same_bits(program, after, SPECIAL)


def test_primitives_of_users_are_left_alone() -> None:
    mul = core.Primitive("mul")
    mul.def_impl(lambda x, y: x + y)
    mul.def_abstract_eval(lambda x, y: x)
    program = traced(lambda x: mul.bind(mul.bind(x, np.float32(1)), np.float32(1)), np.float32(3))
    assert program.optimize() is program


def test_trees_of_traced_functions() -> None:
    program = jaxide.trace(lambda x, *, y: {"sum": x["a"] * 1.0 + y + y})({"a": 1.0}, y=2.0)
    after = passes.optimized(program)
    assert after({"a": 1.0}, y=2.0) == program({"a": 1.0}, y=2.0)


def test_programs_nested_deeply() -> None:
    def nest(depth: int) -> Callable[..., Any]:
        if depth == 0:
            return lambda x: jnp.sin(x) + jnp.sin(x)
        inner = nest(depth - 1)
        return lambda x: lax.cond(x > 0, inner, lambda x: x, x)

    program = traced(nest(40), 1.0)
    after = passes.optimized(program)
    assert str(program).count(" sin ") == 2 and str(after).count(" sin ") == 1


@pytest.mark.parametrize("name", jaxide.PASSES)
def test_single_passes(name: str) -> None:
    """Each on its own changes no bit of a training step."""

    def loss(weights: Any, x: Any) -> Any:
        hidden = jax.nn.gelu(x @ weights["in"] + weights["bias"])
        return jnp.mean(jax.nn.log_softmax(hidden @ weights["out"])[:, 0]) ** 2

    def step(weights: Any, x: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(weights, x)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient)

    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    args = {"in": draw(4, 8), "bias": draw(8), "out": draw(8, 3)}, draw(5, 4)
    program = jaxide.trace(step)(*args)
    after = passes.optimized(program, [name])
    compiled = [jax.jit(p.__call__)(*args) for p in (program, after)]
    oracle.assert_equal(*map(oracle.describe_value, map(jax.tree.leaves, compiled)))
    if name in passes.EXACT:
        assert_same_bits(program, after, *args)


@settings(max_examples=2_000 if oracle.IS_LONG else 10)
@given(
    generated.programs(depth=2),
    st.lists(generated.arguments, min_size=1, max_size=3),
)
def test_generated_programs(steps: Any, args: list[Any]) -> None:
    def function(*values: Any) -> list[Any]:
        return [v for v in generated.run(steps, list(values)) if isinstance(v, jax.Array)]

    flat = [jnp.asarray(arg) for arg in args]
    try:
        jaxpr = jax.make_jaxpr(function)(*args)
        _compat.evaluate(jaxpr, flat)
    except Exception:
        return  # what stock refuses is the business of others
    program = jaxide.from_jaxpr(jaxpr)
    after = passes.optimized(program, passes.EXACT)
    passes.optimized(program)
    assert_same_bits(program, after, *flat)
