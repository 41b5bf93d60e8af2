"""What differentiation makes in between: the linear program, its dead code, accumulators, names."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.core import check_jaxpr
from jax._src.interpreters import ad

import jaxide
from expansion import assert_same_when_warm, counts_of, empty_cache, warm_up
from oracle import scrub

X = np.linspace(0.25, 1, 3, dtype=np.float32)


@jax.jit
def nested(x, y):
    return jnp.sin(x) * y, x + y


@jax.jit
def deeper(x, y):
    a, b = nested(x, y)
    return nested(a, b)[0] * jnp.tanh(x)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "plain": lambda x, y: x * y + jnp.sin(x),
    "literals": lambda x, y: 2.0 * x + y * 0.5 - x / 3,
    "jit": lambda x, y: nested(x, y)[0],
    "jit, one result dropped": lambda x, y: nested(x, y)[1] * 2,
    "jit, both results": lambda x, y: sum(nested(x, y)),
    "jit twice": lambda x, y: nested(*nested(x, y))[0],
    "jit in jit": deeper,
    "an input without influence": lambda x, y: jnp.sin(x),
    "an output twice": lambda x, y: (lambda z: (z, z, x))(x * y),
    "a constant output": lambda x, y: (x * 2, jnp.ones(3)),
    "an integer": lambda x, y: x * jnp.arange(3),
    "nothing": lambda x, y: (),
    "relu": lambda x, y: jax.nn.relu(x) * jax.nn.relu(y),
    "cond": lambda x, y: jax.lax.cond(x[0] > 0.5, jnp.sin, jnp.cos, y),
    "scan": lambda x, y: jax.lax.scan(lambda c, a: (c * a, c + a), y[0], x),
    "checkpoint": jax.checkpoint(lambda x, y: jnp.sin(jnp.sin(x) * y)),
}


def linear_program(function: Callable[..., Any], seen: list[Any]) -> Callable[..., Any]:
    """A function that shows the linear program of a pullback, as text and otherwise."""

    def traced(x: Any, y: Any) -> Any:
        out, pullback = jax.vjp(function, x, y)
        jaxpr = pullback.jaxpr
        seen.append(
            (
                scrub(jaxpr.pretty_print(source_info=True, name_stack=True)),
                jaxpr.debug_info._replace(func_src_info=""),
                str(jaxpr.effects),
                jaxpr.eqns is jaxpr.eqns,
                len({id(v) for eqn in jaxpr.eqns for v in (*eqn.invars, *eqn.outvars)}),
                len({id(eqn.params) for eqn in jaxpr.eqns}),
                [v.aval for v in (*jaxpr.constvars, *jaxpr.invars, *jaxpr.outvars)],
            )
        )
        assert len(jaxide.from_jaxpr(jaxpr)) == len(jaxpr.eqns)
        return pullback(jax.tree.map(jnp.ones_like, out))

    return traced


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of_a_pullback_reads_as_with_jax(name: str) -> None:
    shown: list[list[Any]] = []
    for make in (jax.make_jaxpr, jaxide.make_jaxpr):
        jax.clear_caches()
        seen: list[Any] = []
        for _ in range(3):
            make(linear_program(PROGRAMS[name], seen))(X, X + 1)
        shown.append(seen)
    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_of_several_shapes_in_turn(name: str) -> None:
    def gradient(x: Any, y: Any) -> Any:
        out, pullback = jax.vjp(PROGRAMS[name], x, y)
        return pullback(out)

    if name == "an integer":
        assert_same_when_warm((gradient, X, X + 1))
    else:
        other = np.ones(5, np.float32)
        shapes = [(X, X + 1), (other, other)]
        if name == "a constant output":
            shapes.pop()
        assert_same_when_warm(*((gradient, *shape) for shape in shapes))


def test_a_program_that_was_read_can_still_be_transposed() -> None:
    def gradient(x: Any, y: Any, read: bool) -> Any:
        out, pullback = jax.vjp(deeper, x, y)
        if read:
            assert pullback.jaxpr.eqns
        return pullback(out), pullback(2 * out)

    assert_same_when_warm(
        (lambda x, y: gradient(x, y, True), X, X + 1),
        (lambda x, y: gradient(x, y, False), X, X + 1),
    )


def test_a_pullback_with_accumulators_of_ones_own() -> None:
    def function(x: Any, y: Any) -> Any:
        _, pullback = jax.vjp(lambda x, y: x * y + deeper(x, y), x, y)
        ref = jax.new_ref(jnp.zeros(3))
        pullback.with_refs(ref, ad.ValAccum(jax.typeof(y)))(jnp.ones(3))
        return ref[...]

    assert_same_when_warm((function, X, X + 1))


def test_transpositions_of_a_fragment_go_with_it() -> None:
    def trace_once() -> weakref.ref[Any]:
        @jax.jit
        def inner(x):
            return jnp.sin(x) * 3

        for _ in range(4):
            jaxide.make_jaxpr(lambda x: jax.grad(lambda x: inner(x).sum())(x))(X)
        return weakref.ref(inner)

    with empty_cache():
        trace_once()
        gc.collect()
        before = jaxide.cache_info().entries
        gone = [trace_once() for _ in range(20)]
        jax.clear_caches()
        gc.collect()
        assert all(ref() is None for ref in gone)
        for _ in range(3):
            trace_once()
        gc.collect()
        assert jaxide.cache_info().entries <= before + 50


@pytest.mark.unaudited
def test_transpositions_are_replayed_without_their_params() -> None:
    def gradient(x: Any) -> Any:
        return jax.grad(lambda x: deeper(x, x).sum())(x)

    with empty_cache():
        warm_up(gradient, X, rounds=5)
        before = jaxide.cache_info()
        jaxide.make_jaxpr(lambda x: gradient(x))(X)
        after = jaxide.cache_info()
        assert after.misses == before.misses
        callables = jaxide.cache_info().callables.items()
        assert any(name.startswith("transpose of ") and c.hits > 0 for name, c in callables)
        assert counts_of("Array.__mul__").hits > 0


def test_operators_of_the_tracers_of_transformations_are_caught() -> None:
    def gradient(x: Any) -> Any:
        return jax.grad(lambda x: ((x * 2 + 1) @ x.T - x.sum()).mean())(x)

    with empty_cache():
        warm_up(gradient, X)
        for name in ("__mul__", "__add__", "__matmul__", "__sub__", "T", "sum", "mean"):
            assert counts_of(f"Array.{name}").hits > 0, name
    assert_same_when_warm((gradient, X))


# ---- eval_shape and names ----------------------------------------------------------------------


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x):
        return x * 2


SHAPES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "array": (lambda x: x * 2, (X,), {}),
    "weak type": (lambda x: x * 2, (1.0,), {}),
    "tree": (lambda x, *, y: {"a": x, "b": [y, None, 3]}, (X,), {"y": {"c": X}}),
    "jit": (nested, (X, X), {}),
    "unhashable": (Unhashable(), (X,), {}),
    "struct": (jnp.sin, (jax.ShapeDtypeStruct((2, 3), np.float32),), {}),
    "key": (jax.random.key, (0,), {}),
    "method": (X.sum, (), {}),
    "bad leaf": (lambda x: x, ("text",), {}),
    "bad result": (lambda x: "text", (X,), {}),
    "raises": (lambda x: x + jnp.ones(2), (X,), {}),
    "not callable": (3, (X,), {}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_evaluated_as_with_jax(name: str) -> None:
    function, args, kwargs = SHAPES[name]

    def outcome() -> Any:
        try:
            return jax.eval_shape(function, *args, **kwargs)
        except Exception as error:
            return type(error).__name__, scrub(str(error))

    jax.clear_caches()
    expected = outcome()
    jax.clear_caches()
    inside: list[Any] = []
    with jaxide.accelerated():
        for _ in range(3):
            jax.eval_shape(lambda x: x, X)  # something is traced
            jaxide.make_jaxpr(lambda x: (inside.append(outcome()), x)[1])(X)
    assert inside == [expected] * 3
    for leaf, other in zip(jax.tree.leaves(expected), jax.tree.leaves(inside[0]), strict=True):
        assert getattr(leaf, "sharding", None) == getattr(other, "sharding", None)
        assert getattr(leaf, "weak_type", None) == getattr(other, "weak_type", None)


def test_a_function_whose_shapes_are_evaluated_runs_once() -> None:
    runs: list[int] = []

    def fails(x: Any) -> Any:
        runs.append(1)
        raise TypeError("its own")

    def function(x: Any) -> Any:
        with pytest.raises(TypeError, match="its own"):
            jax.eval_shape(fails, x)
        return x

    jaxide.make_jaxpr(function)(X)
    assert runs == [1]


def test_shapes_of_a_function_that_captures_tracers() -> None:
    def function(x: Any) -> Any:
        out = jax.eval_shape(lambda y: x + y, x)
        return jnp.zeros(out.shape, out.dtype) + x

    assert_same_when_warm((function, X))


NAMED: dict[str, Callable[..., Any]] = {
    "defaults": lambda f: jax.jit(lambda x, y=1.0, *, z=2.0: f(x) + y + z),
    "starred": lambda f: jax.jit(lambda *rest, **named: f(rest[0])),
    "tree": lambda f: jax.jit(lambda x, tree=None: f(x)),
    "another name": lambda f: jax.jit(lambda z: f(z)),
    "static": lambda f: jax.jit(lambda n, x: f(x) * n, static_argnums=0),
}


@pytest.mark.parametrize("name", NAMED)
def test_names_of_arguments_are_those_of_the_function_at_hand(name: str) -> None:
    args = (3, X) if name == "static" else (X,)

    def names(make: Any) -> list[Any]:
        jax.clear_caches()
        found = []
        for _ in range(3):
            inner = NAMED[name](lambda x: jnp.sin(x) * 2)
            jaxpr = make(lambda x: inner(*args[:-1], x))(X)
            found += [
                eqn.params["jaxpr"].jaxpr.debug_info._replace(func_src_info="")
                for eqn in jaxpr.eqns
                if "jaxpr" in eqn.params
            ]
        return found

    expected, actual = names(jax.make_jaxpr), names(jaxide.make_jaxpr)
    assert expected and expected == actual


# ---- params that jax makes anew ----------------------------------------------------------------


CUSTOM: dict[str, Callable[..., Any]] = {
    "relu": jax.nn.relu,
    "relu6 of relu": lambda x: jax.nn.relu6(jax.nn.relu(x)),
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "sinc": jnp.sinc,
    "logaddexp": lambda x: jnp.logaddexp(x, 2 * x),
    "xlogy": lambda x: jax.scipy.special.xlogy(x, x + 1),
    "entr": lambda x: jax.scipy.special.entr(x),
    "i0": lambda x: jax.scipy.special.i0(x),
    "logsumexp": lambda x: jax.nn.logsumexp(x) + x,
    "gamma": lambda x: jax.random.gamma(jax.random.key(0), x),
}

NESTS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "plain": lambda f: lambda x: f(f(x)) + f(x),
    "grad": lambda f: jax.grad(lambda x: (f(x) * f(2 * x)).sum()),
    "grad of grad": lambda f: jax.grad(lambda x: jax.grad(lambda y: f(y).sum() ** 2)(x).sum()),
    "jvp": lambda f: lambda x: jax.jvp(lambda y: f(f(y)), (x,), (x,)),
    "vmap": lambda f: jax.vmap(lambda x: f(x) + f(x)),
    "jit": lambda f: jax.jit(lambda x: f(x) - f(x)),
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, a: (f(c), f(a)), x[0], x),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(lambda x: (f(x) + f(f(x))).sum())),
}


@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("name", CUSTOM)
def test_rules_of_jax_are_replayed_with_new_objects(name: str, nest: str) -> None:
    assert_same_when_warm((NESTS[nest](CUSTOM[name]), X))


def _customs(jaxpr: Any) -> list[Any]:
    return [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "custom_jvp_call"]


def test_each_replay_has_programs_of_its_own() -> None:
    def function(x: Any) -> Any:
        return jax.nn.relu(jax.nn.relu(x) * 2) + jax.nn.relu(x)

    with empty_cache():
        warm_up(function, X)
        before = jaxide.cache_info().misses
        jaxpr = jaxide.make_jaxpr(lambda x: function(x))(X)
        assert jaxide.cache_info().misses == before
    customs = _customs(jaxpr.jaxpr)
    assert len(customs) == 3
    for part in (
        lambda eqn: eqn.params["call_jaxpr"],
        lambda eqn: eqn.params["call_jaxpr"].jaxpr,
        lambda eqn: eqn.params["jvp_jaxpr_fun"],
        lambda eqn: eqn.params["call_jaxpr"].jaxpr.invars[0],
        lambda eqn: eqn.params["call_jaxpr"].jaxpr.eqns[0],
    ):
        assert len({id(part(eqn)) for eqn in customs}) == 3


def test_replayed_rules_can_be_differentiated() -> None:
    def function(x: Any) -> Any:
        return (jax.nn.relu(x - 0.5) * jax.nn.silu(x) + jax.nn.relu(x)).sum()

    stock = jax.make_jaxpr(lambda x: function(x))(X)
    warm_up(function, X)
    ours = jaxide.make_jaxpr(lambda x: function(x))(X)
    runs = [jax.extend.core.jaxpr_as_fun(jaxpr) for jaxpr in (stock, ours)]
    grads = [jax.grad(lambda x, run=run: run(x)[0]) for run in runs]
    np.testing.assert_array_equal(*(grad(X) for grad in grads))
    texts = [scrub(str(jax.make_jaxpr(grad)(X))) for grad in grads]
    assert texts[0] == texts[1]
    hessians = [jax.jacfwd(grad)(X) for grad in grads]
    np.testing.assert_array_equal(*hessians)


def test_a_rule_with_a_traced_argument_of_its_own_is_not_replayed() -> None:
    """A user's rule, called in a jit of the user's, with an argument that is not differentiated."""

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
    def scaled(scale, x):
        return x * scale

    @scaled.defjvp
    def _(scale, primals, tangents):
        return scaled(scale, *primals), tangents[0] * scale * 2

    inner = jax.jit(lambda s, x: scaled(s, x) + scaled(s * 2, x))
    assert_same_when_warm(
        (lambda s, x: inner(s, x), np.float32(2), X),
        (lambda s, x: jax.grad(lambda x: inner(s, x).sum())(x), np.float32(3), X),
    )


def test_the_memory_of_a_program_with_rules_is_freed() -> None:
    def trace_once(scale: float) -> weakref.ref[Any]:
        jaxpr = jaxide.make_jaxpr(lambda x: jax.nn.relu(x * scale) + jax.nn.relu(x))(X)
        return weakref.ref(jaxpr.jaxpr)

    warm_up(jax.nn.relu, X)
    gone = [trace_once(float(i)) for i in range(5)]
    jax.clear_caches()
    gc.collect()
    assert all(ref() is None for ref in gone)


def nested_types(jaxpr: Any) -> list[Any]:
    """The classes of the programs among params, however deep."""
    found = []
    for eqn in jaxpr.eqns:
        for value in jax.tree.leaves(tuple(eqn.params.values()), is_leaf=is_program):
            if is_program(value):
                found += [type(value), nested_types(value)]
    return found


def is_program(value: Any) -> bool:
    return isinstance(value, jax.extend.core.Jaxpr | jax.extend.core.ClosedJaxpr)


def test_nested_programs_that_are_read_are_of_jaxs_class() -> None:
    def function(x: Any) -> Any:
        looped = lax.scan(lambda c, _: (deeper(c, x), c), x, None, length=2)[0]
        solved = lax.custom_linear_solve(lambda y: y * 2, x, lambda _, y: y / 2, symmetric=True)
        return lax.cond(x[0] > 0, lambda y: y * looped, jnp.sin, solved).sum()

    for _ in range(3):
        jaxpr = jaxide.make_jaxpr(lambda x: jax.grad(function)(x))(X)
        stock = jax.make_jaxpr(lambda x: jax.grad(function)(x))(X)
        # Open jaxprs within closed ones are not read here.
        assert nested_types(jaxpr) == nested_types(stock) != []
        check_jaxpr(jaxpr.jaxpr)


def test_what_a_rule_makes_that_runs_is_what_replays_have_made() -> None:
    """A replay batches the solve, jax that of its pullback: it is one batched program."""

    def solved(a: Any, b: Any) -> Any:
        solve = lambda matvec, v: v / 2.0
        return lax.custom_linear_solve(lambda x: a @ x, b, solve, symmetric=True).sum()

    def function(a: Any, b: Any) -> Any:
        return jax.vmap(lambda a, b: jax.grad(lambda b: solved(a, b))(b))(a, b).sum()

    matrices, vectors = jnp.ones((2, 3, 3)), jnp.ones((2, 3))
    assert_same_when_warm((jax.grad(function, argnums=(0, 1)), matrices, vectors))
