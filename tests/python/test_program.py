"""`Program`: made by `trace` and by `from_jaxpr`, looked at, and called."""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxide
from jaxide import _compat


@functools.partial(jax.tree_util.register_dataclass, data_fields=["w", "b"], meta_fields=["name"])
@dataclasses.dataclass
class Layer:
    w: Any
    b: Any
    name: str = "dense"


class Batch(NamedTuple):
    x: Any
    y: Any


def loss(params, batch, *, scale=1.0):
    hidden = jnp.tanh(batch.x @ params["layer"].w + params["layer"].b)
    error = hidden.sum(-1) - batch.y
    return {"loss": scale * jnp.mean(error**2), "parts": (error, None)}


def arguments() -> tuple:
    layer = Layer(np.full((3, 2), 0.5, np.float32), np.zeros(2, np.float32))
    batch = Batch(np.arange(12, dtype=np.float32).reshape(4, 3) / 10, np.ones(4, np.float32))
    return {"layer": layer}, batch


def nested(x):
    def body(carry, step):
        carry = lax.cond(carry[0] > step, jnp.sin, lambda v: v * 2, carry)
        return carry, jax.jit(jnp.sum)(carry)

    x = lax.while_loop(lambda v: v[0] < 3, lambda v: v + 1, x)
    return lax.scan(body, x, jnp.arange(4.0))


def assert_same_values(actual: Any, expected: Any) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert jax.typeof(a).dtype == jax.typeof(e).dtype
        np.testing.assert_allclose(a, e, rtol=1e-6)


PROGRAMS: dict[str, tuple[Callable, tuple, dict]] = {
    "scalar": (jnp.sin, (1.0,), {}),
    "tree": (loss, arguments(), {}),
    "keyword": (loss, arguments(), {"scale": 2.0}),
    "grad": (jax.grad(lambda p, b: loss(p, b)["loss"]), arguments(), {}),
    "nested": (nested, (np.zeros(2, np.float32),), {}),
    "no_arguments": (lambda: jnp.arange(3) * 2, (), {}),
    "no_results": (lambda x: None, (1.0,), {}),
    "no_equations": (lambda x, y: (y, x), (1.0, 2), {}),
    "unused": (lambda x, y: x * 2, (1.0, np.ones(3)), {}),
    "constants": (lambda x: x + jnp.arange(3.0) + np.arange(3), (np.ones(3, np.float32),), {}),
    "scalar_result_of_constant": (lambda x: 3.0, (1.0,), {}),
    "only_keywords": (lambda *, a, b: a - b, (), {"b": 1.0, "a": 2.0}),
    "vmap": (jax.vmap(jnp.dot), (np.ones((2, 3)), np.ones((2, 3))), {}),
    "random": (lambda k: jax.random.normal(k, (3,)), (jax.random.key(0),), {}),
    "custom_rule": (jax.nn.relu, (np.arange(-1.0, 2.0),), {}),
    "bfloat16": (lambda x: x @ x.T, (jnp.ones((2, 3), jnp.bfloat16),), {}),
    "integers": (lambda x, n: (x // n, x % n), (np.arange(5), 2), {}),
}


def fresh(function: Callable) -> Callable:
    """A function that jax has not traced yet and that has the same text."""
    return functools.wraps(function)(lambda *a, **k: function(*a, **k))


@pytest.fixture(params=PROGRAMS)
def traced(request: pytest.FixtureRequest) -> tuple[Any, Any, Callable, tuple, dict]:
    """A program, the jaxpr stock makes, and the call they were made from."""
    function, args, kwargs = PROGRAMS[request.param]
    expected = jax.make_jaxpr(fresh(function))(*args, **kwargs)
    return jaxide.trace(fresh(function))(*args, **kwargs), expected, function, args, kwargs


def test_trace(traced: tuple) -> None:
    program, expected, *_ = traced
    assert isinstance(program, jaxide.Program)
    assert str(program) == str(expected)
    assert isinstance(program.jaxpr, jax.extend.core.ClosedJaxpr)
    assert str(program.jaxpr) == str(expected)
    assert program.jaxpr is program.jaxpr
    assert len(program) == len(expected.eqns)
    assert list(program.in_avals) == list(expected.in_avals)
    assert list(program.out_avals) == list(expected.out_avals)
    assert isinstance(program.in_avals, list)
    assert isinstance(program.out_avals, list)
    assert [a.weak_type for a in program.in_avals] == [a.weak_type for a in expected.in_avals]
    assert [a.weak_type for a in program.out_avals] == [a.weak_type for a in expected.out_avals]


def test_call_as_the_function_was_called(traced: tuple) -> None:
    program, _, function, args, kwargs = traced
    expected = jax.jit(function)(*args, **kwargs)
    for _ in range(2):
        assert_same_values(program(*args, **kwargs), expected)


def test_call_with_flat_arguments(traced: tuple) -> None:
    """A program made of a jaxpr knows no tree: it takes and gives the leaves."""
    _, jaxpr, function, args, kwargs = traced
    program = jaxide.from_jaxpr(jaxpr)
    leaves = jax.tree.leaves((args, kwargs))
    expected = jax.tree.leaves(jax.jit(function)(*args, **kwargs))
    assert_same_values(list(program(*leaves)), expected)


def test_from_jaxpr(traced: tuple) -> None:
    program, jaxpr, *_ = traced
    again = jaxide.from_jaxpr(jaxpr)
    assert str(again) == str(program) == str(jaxpr)
    assert str(again.jaxpr) == str(jaxpr)
    assert len(again) == len(jaxpr.eqns)
    assert again.in_avals == list(jaxpr.in_avals)
    assert again.out_avals == list(jaxpr.out_avals)
    assert again.jaxpr.effects == jaxpr.effects
    assert [c is d for c, d in zip(again.jaxpr.consts, jaxpr.consts, strict=True)] == [
        True for _ in jaxpr.consts
    ]
    twice = jaxide.from_jaxpr(again.jaxpr)
    assert str(twice.jaxpr) == str(jaxpr)
    settings = {"source_info": True, "name_stack": True, "print_effects": True}
    assert again.jaxpr.pretty_print(**settings) == jaxpr.pretty_print(**settings)


def test_other_values_of_the_same_types() -> None:
    function, args, _ = PROGRAMS["tree"]
    program = jaxide.trace(function)(*args)
    other = jax.tree.map(lambda x: x * 0.5 + 1, args)
    assert_same_values(program(*other), jax.jit(function)(*other))


def test_default_keyword_is_part_of_the_program() -> None:
    args = arguments()
    program = jaxide.trace(loss)(*args)
    assert_same_values(program(*args), jax.jit(loss)(*args))
    scaled = jaxide.trace(loss)(*args, scale=2.0)
    assert_same_values(scaled(*args, scale=3.0), jax.jit(loss)(*args, scale=3.0))


def test_static_arguments() -> None:
    def f(x, n, *, mode):
        return x * n if mode == "scale" else x + n

    program = jaxide.trace(f, static_argnums=1, static_argnames="mode")(1.0, 3, mode="scale")
    expected = jax.jit(f, static_argnums=1, static_argnames="mode").trace(1.0, 3, mode="scale")
    assert str(program) == str(expected.jaxpr)
    assert len(program.in_avals) == 1
    assert program(2.0) == 6.0


def test_axis_environment() -> None:
    def f(x):
        return lax.psum(x, "i")

    program = jaxide.trace(f, axis_env=[("i", 2)])(1.0)
    assert str(program) == str(jax.make_jaxpr(f, axis_env=[("i", 2)])(1.0))
    assert str(jaxide.from_jaxpr(program.jaxpr)) == str(program)


def test_shapes_instead_of_values() -> None:
    program = jaxide.trace(jnp.sin)(jax.ShapeDtypeStruct((3,), jnp.float32))
    assert_same_values(program(np.ones(3, np.float32)), jnp.sin(np.ones(3, np.float32)))


def test_called_inside_transformations() -> None:
    """A program is an ordinary traceable function."""
    args = arguments()
    program = jaxide.trace(lambda p, b: loss(p, b)["loss"])(*args)

    def value(params, batch):
        return loss(params, batch)["loss"]

    assert_same_values(jax.jit(program)(*args), jax.jit(value)(*args))
    assert_same_values(jax.grad(program)(*args), jax.grad(value)(*args))
    batched = jax.tree.map(lambda x: np.stack([x, x * 2]), args)
    assert_same_values(jax.vmap(program)(*batched), jax.vmap(value)(*batched))


@pytest.mark.parametrize("make", [jax.make_jaxpr, jaxide.make_jaxpr])
def test_called_inside_a_trace(make: Callable) -> None:
    jaxpr = jax.make_jaxpr(jnp.sin)(1.0)
    text = str(make(lambda x: jaxide.from_jaxpr(jaxpr)(x))(1.0))
    assert re.search(r"= sin ", text)


def test_effects_happen_when_called() -> None:
    printed = []

    def f(x):
        jax.debug.callback(lambda v: printed.append(float(v)), x, ordered=True)
        return x + 1

    program = jaxide.trace(f)(1.0)
    assert printed == []
    assert program(5.0) == 6.0
    jax.effects_barrier()
    assert printed == [5.0]


def test_constants_are_kept() -> None:
    captured = jnp.arange(3.0)
    program = jaxide.trace(lambda x: x * captured)(2.0)
    assert [c is captured for c in program.jaxpr.consts] == [True]
    assert_same_values(program(2.0), captured * 2.0)


def test_jaxpr_outlives_its_program() -> None:
    jaxpr = jaxide.trace(nested)(np.zeros(2, np.float32)).jaxpr
    text = str(jaxpr)
    assert text == str(jax.make_jaxpr(nested)(np.zeros(2, np.float32)))
    assert str(jaxide.from_jaxpr(jaxpr).jaxpr) == text


def test_program_outlives_its_jaxpr() -> None:
    program = jaxide.from_jaxpr(jax.make_jaxpr(nested)(np.zeros(2, np.float32)))
    expected = jax.jit(nested)(np.zeros(2, np.float32))
    assert_same_values(list(program(np.zeros(2, np.float32))), list(expected))


def test_representation() -> None:
    program = jaxide.trace(jnp.sin)(1.0)
    assert "Program" in repr(program) or repr(program) == str(program)


def test_many_equations() -> None:
    def f(x):
        for _ in range(5000):
            x = lax.sin(x)
        return x

    program = jaxide.trace(f)(1.0)
    assert len(program) == 5000
    assert str(program) == str(jax.make_jaxpr(f)(1.0))


def test_deep_nesting() -> None:
    def nest(depth: int) -> Callable:
        return jnp.sin if depth == 0 else jax.jit(lambda x: nest(depth - 1)(x) + 1)

    jaxpr = jax.make_jaxpr(nest(30))(1.0)
    assert str(jaxide.from_jaxpr(jaxpr).jaxpr) == str(jaxpr)
    assert str(jaxide.trace(nest(30))(1.0)) == str(jaxpr)


def running(jaxpr: Any, *within: Any) -> Any:
    """The closed jaxpr whose jits run other programs."""
    eqns = [
        eqn.replace(params=eqn.params | {"jaxpr": own})
        for eqn, own in zip(jaxpr.eqns, within, strict=True)
    ]
    return _compat.close(_compat.open_part(jaxpr).replace(eqns=eqns), [])


def test_jaxprs_nested_more_deeply_than_python_goes() -> None:
    """They are read, asked and dropped without recursion."""
    once = jax.make_jaxpr(jax.jit(jnp.sin))(1.0)
    deep = once.eqns[0].params["jaxpr"]
    for _ in range(4000):
        deep = running(once, deep)
    program, another = jaxide.from_jaxpr(deep), jaxide.from_jaxpr(deep)
    assert program == another
    assert program.histogram() == {"jit": 4000, "sin": 1}
    assert program.find("sin")[0].path == (0,) * 4001
    assert program.cost().total.transcendentals == 1


def test_programs_within_are_read_once_whoever_runs_them() -> None:
    """There are 2^40 ways to the innermost one, through programs that differ."""
    once = jax.make_jaxpr(jax.jit(jnp.sin))(1.0)
    twice = jax.make_jaxpr(lambda x: jax.jit(jnp.cos)(jax.jit(jnp.sin)(x)))(1.0)
    jaxpr = once.eqns[0].params["jaxpr"]
    for _ in range(40):
        jaxpr = running(twice, running(once, jaxpr), running(once, jaxpr))
    program = jaxide.from_jaxpr(jaxpr)
    assert program.histogram(nested="each call")["sin"] == 2**40


def test_jaxprs_that_contain_themselves_are_refused() -> None:
    once = jax.make_jaxpr(jax.jit(jnp.sin))(1.0)
    inner, outer = (running(once, once.eqns[0].params["jaxpr"]) for _ in range(2))
    inner.eqns[0].params["jaxpr"] = running(once, outer)
    outer.eqns[0].params["jaxpr"] = inner
    try:
        with pytest.raises(ValueError, match="a jaxpr must not contain itself"):
            jaxide.from_jaxpr(outer)
    finally:
        del inner.eqns[0].params["jaxpr"]


def test_shared_nested_jaxpr_stays_shared() -> None:
    """jax prints a nested jaxpr that occurs twice once, so identity must survive."""
    inner = jax.jit(lambda x: jnp.sin(x) * 2)
    jaxpr = jax.make_jaxpr(lambda x: inner(inner(x)))(1.0)
    first, second = (eqn.params["jaxpr"] for eqn in jaxide.from_jaxpr(jaxpr).jaxpr.eqns)
    assert first is second


# ---- wrong arguments --------------------------------------------------------------------------


def product(x, y):
    return x * y


EXAMPLE = (1.0, np.ones(3, np.float32))


def both_programs() -> tuple[Any, Any]:
    """One that knows the tree of its arguments, and one that does not."""
    return jaxide.trace(product)(*EXAMPLE), jaxide.from_jaxpr(jax.make_jaxpr(product)(*EXAMPLE))


@pytest.mark.parametrize("args", [(), EXAMPLE[:1], (*EXAMPLE, 1.0)], ids=len)
def test_call_with_wrong_number_of_arguments(args: tuple) -> None:
    for program in both_programs():
        with pytest.raises(TypeError):
            program(*args)
    with pytest.raises(TypeError, match=str(len(args))):
        jaxide.from_jaxpr(jax.make_jaxpr(product)(*EXAMPLE))(*args)


@pytest.mark.parametrize(
    ("wrong", "given"),
    [
        (np.ones(4, np.float32), r"\(?4,?[\])]"),
        (np.ones((3, 1), np.float32), r"3, ?1[\])]"),
        (np.ones(3, np.int32), "i(nt)?32"),
        ("text", "str|text"),
        (object(), "object"),
    ],
    ids=["size", "rank", "dtype", "string", "object"],
)
def test_call_with_wrong_argument(wrong: Any, given: str) -> None:
    for program in both_programs():
        with pytest.raises(TypeError, match=given):
            program(EXAMPLE[0], wrong)
        assert jax.tree.leaves(program(*EXAMPLE))[0].shape == (3,)


def test_call_with_unknown_keyword() -> None:
    program = jaxide.trace(lambda x: x)(1.0)
    with pytest.raises(TypeError):
        program(1.0, unknown=2.0)
    with pytest.raises(TypeError):
        jaxide.from_jaxpr(program.jaxpr)(x=1.0)


def test_call_with_wrong_tree() -> None:
    program = jaxide.trace(lambda p: p["a"] + p["b"])({"a": 1.0, "b": 2.0})
    with pytest.raises(TypeError):
        program({"a": 1.0, "c": 2.0})
    with pytest.raises(TypeError):
        program([1.0, 2.0])


@pytest.mark.parametrize(
    ("value", "given"),
    [
        (None, "NoneType"),
        ("{ lambda ; a. let in (a,) }", "str"),
        (jnp.sin, "function|PjitFunction|jit"),
        (3, "int"),
        ([1], "list"),
    ],
)
def test_from_jaxpr_of_something_else(value: Any, given: str) -> None:
    with pytest.raises(TypeError, match=given):
        jaxide.from_jaxpr(value)


def test_trace_errors_as_make_jaxpr() -> None:
    def f(x):
        return x if x > 0 else -x

    errors = []
    for make in (jax.make_jaxpr, jaxide.trace):
        jax.clear_caches()
        with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
            make(f)(1.0)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
