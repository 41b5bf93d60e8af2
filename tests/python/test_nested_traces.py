"""Traces that a function starts while it is traced (``eval_shape``, ``make_jaxpr``), and what goes
with them."""

from __future__ import annotations

import functools
import gc
import itertools
import re
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest

import jaxide
from oracle import scrub

X = np.linspace(0.25, 1, 3, dtype=np.float32)
W = jnp.arange(3.0)
Outcome = Any


def outcome(run: Callable[[], Any]) -> Outcome:
    """What a call returns, or the error that it raises."""
    try:
        return run()
    except Exception as error:
        return type(error).__name__, scrub(str(error))


def assert_same_inside(look: Callable[[Any], Any]) -> None:
    """A function of a traced array finds the same with jax and with jaxide, cold and warm."""

    def seen_by(make: Callable[..., Any]) -> list[Outcome]:
        jax.clear_caches()
        jaxide.clear_caches()
        seen: list[Outcome] = []
        for _ in range(3):
            make(lambda x: (seen.append(outcome(lambda: look(x))), x)[1])(X)
        return seen

    expected = seen_by(jax.make_jaxpr)
    assert seen_by(jaxide.make_jaxpr) == expected
    with jaxide.accelerated():
        assert seen_by(jax.make_jaxpr) == expected


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Any) -> Any:
        return x * 2


def described(closed: Any, *shapes: Any) -> Any:
    """What a jaxpr says, with its names and the user's lines, and the types of its constants."""
    jaxpr = getattr(closed, "jaxpr", closed)
    info = jaxpr.debug_info
    return (
        scrub(jaxpr.pretty_print(source_info=True, name_stack=True)),
        (info.traced_for, scrub(info.func_src_info), info.arg_names, info.result_paths),
        [(type(const).__name__, str(jax.typeof(const))) for const in closed.consts],
        [str(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars)],
        re.sub(r"id=\d+", "id", str(jaxpr.effects)),
        [(str(shape), [s.weak_type for s in jax.tree.leaves(shape)]) for shape in shapes],
    )


def of_ref(use: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda x: use(jax.new_ref(x), x)


Given = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

# Functions of a traced array: a function with arguments, of which something is asked.
CASES: dict[str, Callable[[Any], Given]] = {
    "array": lambda x: (lambda y: y * 2, (x,), {}),
    "weak type": lambda x: (lambda y: y * 2, (1.0,), {}),
    "tree": lambda x: (lambda y, *, z: {"a": y, "b": [z, None, 3]}, (x,), {"z": {"c": x}}),
    "struct": lambda x: (jnp.sin, (jax.ShapeDtypeStruct((2, 3), np.float32),), {}),
    "nothing": lambda x: (lambda: None, (), {}),
    "captured tracer": lambda x: (lambda y: (x + y, x), (1.0,), {}),
    "captured results": lambda x: (lambda: (x, x * 2, W, np.float32(1), 3, True), (), {}),
    "captured of two traces": lambda x: (
        lambda y: jax.eval_shape(lambda: x + y * W) and y,
        (x,),
        {},
    ),
    "partial": lambda x: (functools.partial(lambda a, y, *z: (a * y, z), x), (x, 1, 2), {}),
    "partial by name": lambda x: (functools.partial(lambda y, *, a: a * y, a=x), (x,), {}),
    "partial of a partial": lambda x: (
        functools.partial(functools.partial(lambda a, b, y: a * b * y, x), x),
        (x,),
        {},
    ),
    "jit": lambda x: (jax.jit(lambda y: jnp.sin(y)), (x,), {}),
    "jit that captures": lambda x: (jax.jit(lambda y: x * y), (x,), {}),
    "unhashable": lambda x: (Unhashable(), (x,), {}),
    "key": lambda x: (jax.random.key, (0,), {}),
    "nested": lambda x: (lambda y: jax.eval_shape(lambda z: x + y + z, y), (x,), {}),
    "bad leaf": lambda x: (lambda y: y, ("text",), {}),
    "bad result": lambda x: (lambda y: {"a": [y, "text"]}, (x,), {}),
    "raises": lambda x: (lambda y: y + jnp.ones(2), (x,), {}),
    "not callable": lambda x: (3, (x,), {}),  # type: ignore[return-value,arg-type]
    "ref as an argument": of_ref(lambda r, x: (lambda s: s[...] * 2, (r,), {})),
    "captured ref": of_ref(lambda r, x: (lambda y: r[...] * y, (x,), {})),
    "ref twice": of_ref(lambda r, x: (lambda s, t: s[...], (r, r), {})),
    "ref captured and given": of_ref(lambda r, x: (lambda s: s[...] + r[...], (r,), {})),
    "ref returned": of_ref(lambda r, x: (lambda: r, (), {})),
    "own ref returned": lambda x: (lambda: {"a": jax.new_ref(x)}, (), {}),
}

QUESTIONS: dict[str, Callable[..., Any]] = {
    "eval_shape": lambda f, args, kwargs: (
        lambda out: (str(out), [(s.weak_type, s.sharding) for s in jax.tree.leaves(out)])
    )(jax.eval_shape(f, *args, **kwargs)),
    "make_jaxpr": lambda f, args, kwargs: described(jax.make_jaxpr(f)(*args, **kwargs)),
    "with shapes": lambda f, args, kwargs: described(
        *jax.make_jaxpr(f, return_shape=True)(*args, **kwargs)
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", CASES)
def test_as_with_jax(name: str, question: str) -> None:
    def look(x: Any) -> Any:
        function, args, kwargs = CASES[name](x)
        return QUESTIONS[question](function, args, kwargs)

    assert_same_inside(look)


class Failing:
    pass


jax.tree_util.register_pytree_node(Failing, lambda _: 1 / 0, lambda *_: Failing())


def dead() -> Any:
    kept: list[Any] = []
    jax.make_jaxpr(lambda x: (kept.append(x * 2), x)[1])(X)
    return kept[0]


def deleted() -> Any:
    array = jnp.arange(3.0) + 1
    array.delete()
    return array


# What is captured and returned at once, with which libraries ask for the types of a pytree.
CAPTURED: dict[str, Callable[[Any], Any]] = {
    "tree": lambda x: {"a": x, "b": [x * 2, None, W], "c": ()},
    "nothing": lambda x: None,
    "scalars": lambda x: (3, True, 2.0, np.float32(1), np.arange(3)),
    "weak types": lambda x: [jnp.asarray(1.0), x[0] * 2.0, jnp.add(1.0, 2.0)],
    "keys": lambda x: jax.random.key(0),
    "batched": lambda x: jax.vmap(lambda v: str(jax.eval_shape(lambda: v)) and v)(x),
    "tracer of a transformation": lambda x: jax.jvp(
        lambda v: (str(jax.eval_shape(lambda: v)), v * 2)[1], (x,), (x,)
    ),
    "struct": lambda x: jax.ShapeDtypeStruct((2,), np.float32),
    "text": lambda x: {"a": [x, "text"]},
    "ref": lambda x: jax.new_ref(x),
    "dead tracer": lambda x: dead(),
    "deleted array": lambda x: deleted(),
    "tree that fails": lambda x: [x, Failing()],
    "sharded": lambda x: jax.device_put(
        jnp.arange(4.0),
        jax.NamedSharding(jax.sharding.Mesh(jax.devices()[:2], "i"), jax.P("i")),
    ),
}

WAYS: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda value: lambda: value,
    "default": lambda value: lambda given=value: given,
    "two values": lambda value: lambda: (value, value),
    "global": lambda value: lambda: W,
    "star": lambda value: lambda *args, **kwargs: value,
    "needs an argument": lambda value: lambda a: value,
    "needs one by name": lambda value: lambda *, a: value,
}


@pytest.mark.parametrize("name", CAPTURED)
def test_shapes_of_what_is_captured(name: str) -> None:
    def look(x: Any) -> Any:
        value = CAPTURED[name](x)
        return [
            outcome(lambda: QUESTIONS["eval_shape"](way(value), (), {})) for way in WAYS.values()
        ]

    assert_same_inside(look)


def test_a_function_that_lives_on_is_traced_once() -> None:
    """jax knows it by its identity, whatever it has captured by then."""

    def look(x: Any) -> Any:
        value = x

        def function() -> Any:
            return value

        found = [str(jax.eval_shape(function))]
        value = (x, x[:2])
        found.append(str(jax.eval_shape(function)))
        return [*found, str(jax.make_jaxpr(function)()), str(jax.eval_shape(lambda: value))]

    assert_same_inside(look)


def test_settings_hold_for_what_is_captured() -> None:
    def look(x: Any) -> Any:
        ask = lambda: outcome(lambda: str(jax.eval_shape(lambda: x)).split(" at ")[0])
        found = [ask()]
        with jax.no_tracing():
            found.append(type(ask()))
        with jax.checking_leaks():
            found.append(ask())
        with jax.ensure_compile_time_eval():
            found.append(ask())
        with jax.enable_x64(True):
            found.append(ask())

        def unset() -> Any:
            return value

        found.append(outcome(lambda: jax.eval_shape(unset)))
        value = x
        found.append(str(jax.eval_shape(unset)))
        return found

    assert_same_inside(look)


@pytest.mark.parametrize("question", QUESTIONS)
def test_leaks_are_reported(question: str) -> None:
    leaked: list[Any] = []

    def look(x: Any) -> Any:
        with jax.checking_leaks():
            found = outcome(lambda: QUESTIONS[question](leaked.append, (x,), {}))
        return found[0], found[1].split(".")[0][:60], len(leaked)

    assert_same_inside(lambda x: (leaked.clear(), look(x)))


OPTIONS: dict[str, dict[str, Any]] = {
    "static": {"static_argnums": 1},
    "static, as a tuple": {"static_argnums": (1,)},
    "axis": {"axis_env": [("i", 2)]},
    "shape": {"return_shape": True},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_make_jaxpr(name: str) -> None:
    def function(y: Any, n: Any) -> Any:
        return (jax.lax.psum(y, "i") if name == "axis" else y) * n

    def look(x: Any) -> Any:
        made = jax.make_jaxpr(function, **OPTIONS[name])
        result = made(x, 2)
        found = described(*(result if name == "shape" else (result,)))
        return found, made.__name__, made.__qualname__, made.__module__

    assert_same_inside(look)


def test_a_function_is_traced_once_whoever_asks() -> None:
    asks: dict[str, Callable[..., Any]] = {
        "shape": lambda f, x: str(jax.eval_shape(f, x)),
        "jaxpr": lambda f, x: described(jax.make_jaxpr(f)(x)),
        "jit": lambda f, x: jax.jit(f)(x),
        "jit's jaxpr": lambda f, x: described(jax.jit(f).trace(x).jaxpr),
    }

    def look(order: tuple[str, ...], captures: bool, x: Any) -> Any:
        runs: list[int] = []

        def function(y: Any) -> Any:
            runs.append(1)
            return {"a": y * (x if captures else 2), "b": (y, W)}

        found = [asks[ask](function, x) for ask in order]
        return len(runs), [value for value in found if not isinstance(value, dict)]

    for order in itertools.permutations(asks, 2):
        for captures in (False, True):
            assert_same_inside(functools.partial(look, order, captures))


def test_programs_of_one_function_are_the_same_objects() -> None:
    def look(x: Any) -> Any:
        function = lambda y: x * y
        jaxprs = [jax.make_jaxpr(function)(x) for _ in range(2)]
        inner = [jaxpr.jaxpr for jaxpr in jaxprs]
        traced = jax.jit(function).trace(x).jaxpr.jaxpr
        return (
            jaxprs[0] is jaxprs[1],
            inner[0] is inner[1],
            inner[0] is traced,
            inner[0].eqns[0] is traced.eqns[0],
            all(jaxpr.consts[0] is x for jaxpr in jaxprs),
        )

    assert_same_inside(look)


def test_a_function_that_make_jaxpr_returned_can_be_called_later() -> None:
    def texts(make: Callable[..., Any]) -> list[str]:
        made: list[Any] = []
        make(lambda x: (made.append(jax.make_jaxpr(lambda y: jnp.sin(y) * 2)), x)[1])(X)
        return [str(made[0](X)), str(make(lambda x: made[0](x) and x)(X)), str(made[0](2.0))]

    assert texts(jaxide.make_jaxpr) == texts(jax.make_jaxpr)


def test_shapes_keep_no_traced_value_alive() -> None:
    held: list[weakref.ref[Any]] = []

    def kept(y: Any) -> Any:
        out = {"a": y * 2}
        held.append(weakref.ref(out["a"]))
        return out

    def function(x: Any) -> Any:
        jax.eval_shape(kept, x)
        gc.collect()
        assert held.pop()() is None
        return x

    jaxide.make_jaxpr(function)(X)


# ---- structs -----------------------------------------------------------------------------------


class OwnStruct(jax.ShapeDtypeStruct):
    pass


def structs() -> list[Any]:
    new, mesh = jax.ShapeDtypeStruct, jax.sharding.Mesh(np.array(jax.devices()[:2]), "i")
    named = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    single = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return [
        new((2,), np.float32),
        new((2,), "float32"),
        new((2, 1), np.float32),
        new((2,), np.int32),
        new((2,), np.float32, weak_type=True),
        new((2,), np.float32, sharding=named),
        new((2,), np.float32, sharding=single),
        new((2,), np.float32, sharding=jax.sharding.PartitionSpec("i")),
        new((2,), np.float32, is_ref=True),
        new((), jax.random.key(0).dtype),
        OwnStruct((2,), np.float32),
        object.__new__(new),
        (2,),
    ]


def test_structs_are_compared_as_with_jax() -> None:
    some, others = structs(), structs()

    def look(x: Any) -> Any:
        equal = [
            (outcome(lambda: one == other), outcome(lambda: one != other))
            for one, other in itertools.product(some, others)
        ]
        hashes = [outcome(lambda: hash(value)) for value in some]
        return equal, hashes, hashes[:5] == [hash(_parts(value)) for value in some[:5]]

    assert_same_inside(look)


def _parts(value: Any) -> tuple[Any, ...]:
    layout, axes = value.format.layout, value.manual_axis_type
    return value.shape, value.dtype, value.sharding, layout, value.weak_type, axes, value.is_ref


# ---- what is computed while a function is traced -----------------------------------------------


def shifted_by(x: Any) -> type:
    class Shifted:
        def __new__(cls, v: Any) -> Any:
            return v + x[0]

    return Shifted


COMPUTED: dict[str, Callable[[Any], Any]] = {
    "operators": lambda x: (W + 1) * (W > 1) - ~(W > 1),
    "ufunc": lambda x: jnp.logical_or(W > 1, True),
    "jit": lambda x: jnp.where(W > 1, W, 0.0),
    "weak type": lambda x: jnp.add(jnp.asarray(1.0), 2.0),
    "types": lambda x: jnp.float32(3),
    "integers": lambda x: jnp.bitwise_and(jnp.int32(6), 3),
    "of a tracer": lambda x: jnp.where(W > 1, x, W),
    "method of a ufunc": lambda x: jnp.add.reduce(W),
    "a user's jit": lambda x: jax.jit(lambda v: v + x)(W),
    "a user's ufunc": lambda x: jnp.frompyfunc(lambda a, b: a + b + x[0], 2, 1)(W, W),
    "fails": lambda x: jnp.add(jnp.ones(2), W),
    "array of a scalar": lambda x: jnp.asarray(np.bool_(True)),
    "array of an array": lambda x: jnp.array(W),
    "array of a number": lambda x: jnp.asarray(3, jnp.float32),
    "array of a tracer": lambda x: jnp.asarray(x),
    "functions": lambda x: jnp.cumsum(jnp.stack([W, W]), axis=1),
    "new jit": lambda x: jax.jit(lambda v: v * 2)(W),
    "random": lambda x: jax.random.normal(jax.random.key(0), (3,)),
    "lax": lambda x: jax.lax.convert_element_type(W, jnp.int32),
    "a class as a function": lambda x: jax.lax.map(shifted_by(x), W),
    "function of a function": lambda x: jnp.vectorize(lambda v: v + x[0])(W),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_at_compile_time(name: str) -> None:
    def look(x: Any) -> Any:
        with jax.ensure_compile_time_eval():
            value = outcome(lambda: COMPUTED[name](x))
        after = jnp.sin(W)
        is_traced = isinstance(value, jax.core.Tracer)
        plain = isinstance(value, jax.Array) and not is_traced
        return (
            type(value).__name__,
            np.asarray(value).tolist() if plain else str(value)[:60],
            (value.weak_type, value.committed) if plain else None,
            isinstance(after, jax.core.Tracer),
        )

    assert_same_inside(look)


# ---- arguments of functions with rules ----------------------------------------------------------

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "plain": lambda a, b: a * b,
    "default": lambda a, b=2.0: a * b,
    "starred": lambda a, *b: a * sum(b),
    "only by name": lambda a, *, b=2.0: a * b,
    "by name and needed": lambda a, *, b: a * b,
    "names": lambda a, **b: a * sum(b.values()),
    "partial": functools.partial(lambda c, a, b: a * b * c, 2.0),
}
ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "one": ((2.0,), {}),
    "two": ((2.0, 3.0), {}),
    "three": ((2.0, 3.0, 4.0), {}),
    "named": ((2.0,), {"b": 3.0}),
    "none": ((), {}),
}


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_of_functions_with_rules(name: str, arguments: str) -> None:
    args, kwargs = ARGUMENTS[arguments]

    def look(x: Any) -> Any:
        # A new one, which is not remembered.
        function = jax.custom_jvp(FUNCTIONS[name])
        function.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
        return str(jax.make_jaxpr(lambda: function(*args, **kwargs))())

    assert_same_inside(look)
