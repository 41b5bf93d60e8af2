"""Programs that are evaluated equation by equation while others are traced."""

from __future__ import annotations

import functools
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.xla_metadata
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import core, source_info_util
from jax.experimental.compute_on import compute_on
from jax.interpreters import ad, batching, mlir

import covering
import jaxide
from expansion import (
    assert_history,
    assert_same_when_warm,
    counts_of,
    empty_cache,
    total,
    trace_of,
    warm_up,
)
from test_custom_rules import clipped, of_tree, scaled, soft

X = np.linspace(0.25, 1, 3, dtype=np.float32)
TABLE = np.arange(3, dtype=np.float32)

Function = Callable[[Any], Any]


@jax.jit
def at_module_level(x):
    return jnp.sin(x) * 2


FUNCTIONS: dict[str, Function] = {
    "operators": lambda x: x * 2 + jnp.sin(x) - jnp.where(x > 0, x, 0.5),
    "functions": lambda x: jax.nn.softmax(x) * jnp.cumsum(x) + jax.nn.gelu(x),
    "constant": lambda x: x * TABLE + jnp.asarray(TABLE),
    "captured array": lambda x: x * jnp.arange(3.0),
    "scope": lambda x: jax.named_scope("scope")(jnp.sin)(x) * 2,
    "nothing": lambda x: x,
    "literal": lambda x: (x, 2.0, jnp.float32(1)),
    "tree": lambda x: {"a": x, "b": [x * 2, x]},
    "scan": lambda x: lax.scan(lambda c, v: (c * v, c + v), x, jnp.stack([x, x])),
    "cond": lambda x: lax.cond(x[0] > 0, jnp.sin, lambda v: v * 2, x),
    "while": lambda x: lax.while_loop(lambda c: c[0] < 9, lambda c: c * 2, x),
    "checkpoint": lambda x: jax.checkpoint(lambda v: jnp.sin(jnp.cos(v)))(x),
    "jit of a module": lambda x: at_module_level(x) + at_module_level(x * 2),
    "new jit": lambda x: jax.jit(lambda v: jnp.sin(v) * v)(x),
    "one jit twice": lambda x: (lambda f: f(x) + f(f(x)))(jax.jit(lambda v: v * 3)),
    "rules of jax": lambda x: jax.nn.relu(x) + jax.nn.softplus(x) + jax.nn.silu(x),
    "rules of the user": lambda x: clipped(x, 0.5) + soft(x) + scaled(x, 2.0),
    "rule of a tree": lambda x: of_tree({"a": x, "b": (x,)}),
    "grad": lambda x: jax.grad(lambda v: jnp.sum(jnp.tanh(v) * v))(x),
    "vmap": lambda x: jax.vmap(lambda v: v * x)(jnp.stack([x, x])),
    "effect": lambda x: (jax.debug.print("{}", x), x * 2)[1],
}


def evaluated(function: Function, x: Any) -> Any:
    jaxpr = jax.make_jaxpr(function)(x)
    return core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x)


def twice(function: Function, x: Any) -> Any:
    evaluate = core.jaxpr_as_fun(jax.make_jaxpr(function)(x))
    return evaluate(x), evaluate(x * 2)


def without_sources(function: Function, x: Any) -> Any:
    jaxpr = jax.make_jaxpr(function)(x)
    return core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x, propagate_source_info=False)


def closed_over(function: Function, x: Any) -> Any:
    converted, consts = jax.closure_convert(lambda v: total(function(v * x)), x)
    return converted(x, *consts)


EVALUATIONS = {f.__name__: f for f in (evaluated, twice, without_sources, closed_over)}

TRANSFORMATIONS: dict[str, Callable[[Function], Function]] = {
    "none": lambda f: f,
    "grad": lambda f: jax.grad(lambda x: total(f(x))),
    "jvp": lambda f: lambda x: jax.jvp(lambda v: total(f(v)), (x,), (x,)),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x])),
    "vmap of grad": lambda f: (
        lambda x: jax.vmap(jax.grad(lambda v: total(f(v))))(jnp.stack([x, x]))
    ),
    "grad of grad": lambda f: jax.grad(lambda x: total(jax.grad(lambda v: total(f(v)))(x))),
    "grad of checkpoint": lambda f: jax.grad(jax.checkpoint(lambda x: total(f(x)))),
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (c + total(f(c)), None), x, None, length=2),
    "grad of jit": lambda f: jax.grad(jax.jit(lambda x: total(f(x)))),
}


@pytest.mark.covering(times=1)
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_when_warm(name: str, transformation: str) -> None:
    programs = [
        TRANSFORMATIONS[transformation](functools.partial(evaluate, FUNCTIONS[name]))
        for evaluate in EVALUATIONS.values()
    ]
    assert_same_when_warm(*((program, X) for program in programs))


def test_programs_that_are_kept() -> None:
    """A program from before a trace, and the same one under several transformations."""
    kept = {
        name: jax.make_jaxpr(function)(X)
        for name, function in FUNCTIONS.items()
        if name not in ("while", "effect")
    }

    def use(name: str, transformations: list[str]) -> Function:
        evaluate = core.jaxpr_as_fun(kept[name])
        made = [TRANSFORMATIONS[name](evaluate) for name in transformations]
        return lambda x: [f(x) for f in made]

    growing = list(TRANSFORMATIONS)
    for name in covering.one_in(3, list(kept), start=0):
        steps = [trace_of(use(name, growing[:count]), X) for count in range(1, len(growing) + 1)]
        assert_history([step for step in steps for _ in range(2)])


def test_an_evaluation_beside_a_rule() -> None:
    """One program is evaluated and is the body of a loop."""

    def program(x):
        jaxpr = jax.make_jaxpr(lambda v: (jnp.sin(v) * v, jax.nn.relu(v)))(x)
        body = core.jaxpr_as_fun(jaxpr)
        looped = lax.scan(lambda c, _: tuple(body(c)), x, None, length=2)
        return looped, body(x), jax.grad(lambda v: total(body(v)))(x)

    def of_loop(x):
        loop = jax.make_jaxpr(lambda v: lax.scan(lambda c, _: (c * v, c), v, None, length=2))(x)
        evaluate = core.jaxpr_as_fun(loop)
        return evaluate(x), jax.grad(lambda v: total(evaluate(v)))(x), evaluate(x * 2)

    assert_same_when_warm((program, X), (of_loop, X), (jax.grad(lambda x: total(of_loop(x))), X))


@pytest.mark.parametrize("transformation", ["none", "grad", "vmap", "jvp"])
def test_evaluations_are_replayed(transformation: str) -> None:
    program = TRANSFORMATIONS[transformation](functools.partial(evaluated, FUNCTIONS["operators"]))
    with empty_cache():
        warm_up(program, X, rounds=4)
        before = counts_of("eval_jaxpr")
        warm_up(program, X, rounds=1)
        assert counts_of("eval_jaxpr").hits > before.hits


def own_primitive() -> Any:
    """A primitive of the user's: a program that has it is evaluated equation by equation."""
    own = jax.extend.core.Primitive("own")
    own.def_impl(lambda x, **_: x * 2)
    own.def_abstract_eval(lambda x, **_: x)
    ad.deflinear2(own, lambda cotangent, *_, **params: [own.bind(cotangent, **params)])
    batching.primitive_batchers[own] = lambda args, dims, **params: (
        own.bind(*args, **params),
        dims[0],
    )
    mlir.register_lowering(own, mlir.lower_fun(lambda x, **_: x * 2, multiple_results=False))
    return own


OWN = own_primitive()


def with_own(function: Function, x: Any) -> Any:
    return jax.tree.map(lambda leaf: OWN.bind(jnp.asarray(leaf)), function(OWN.bind(x, at=1)))


@pytest.mark.covering(times=1)
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_primitive_of_the_user(name: str, transformation: str) -> None:
    function = functools.partial(with_own, FUNCTIONS[name])
    programs = [
        TRANSFORMATIONS[transformation](functools.partial(evaluate, function))
        for evaluate in EVALUATIONS.values()
    ]
    assert_same_when_warm(*((program, X) for program in programs))


def test_a_primitive_of_the_user_leaves_the_rest_native() -> None:
    """jax's own loop over the equations does not run."""
    called: set[str] = set()
    jaxpr = jax.make_jaxpr(functools.partial(with_own, FUNCTIONS["operators"]))(X)
    with empty_cache():
        before = counts_of("eval_jaxpr").bypasses
        sys.setprofile(lambda frame, *_: called.add(frame.f_code.co_name))
        try:
            jaxide.make_jaxpr(lambda x: core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x))(X)
        finally:
            sys.setprofile(None)
        assert counts_of("eval_jaxpr").bypasses != before
    assert "bind" in called
    assert "clean_up_dead_vars" not in called


def test_sources_of_a_backward_rule() -> None:
    """Without its own an equation has the source that is current: that of the call."""

    def program(propagate: bool, x: Any) -> Any:
        def rule(_: Any, cotangent: Any) -> Any:
            jaxpr = jax.make_jaxpr(lambda v: OWN.bind(jnp.sin(v)) * at_module_level(v))(cotangent)
            return core.eval_jaxpr(
                jaxpr.jaxpr, jaxpr.consts, cotangent, propagate_source_info=propagate
            )

        function = jax.custom_vjp(lambda v: v * 2)
        function.defvjp(lambda v: (v * 2, None), rule)
        return jax.vjp(function, x)[1](x)

    assert_same_when_warm(*((functools.partial(program, flag), X) for flag in (True, False)))


def contexts(x: Any) -> Any:
    """Equations of other contexts than the one in which they are evaluated."""
    with jax.threefry_partitionable(not jax.config.jax_threefry_partitionable):
        bits = jax.random.bits(jax.random.key(1), (3,))
    with jax.experimental.xla_metadata.set_xla_metadata(a="b"):
        y = jnp.sin(x)
    with compute_on("device_host"):
        return y * x, bits, OWN.bind(x)


def test_contexts() -> None:
    program = functools.partial(evaluated, contexts)

    def in_another(x: Any) -> Any:
        with jax.default_matmul_precision("highest"), jax.named_scope("scope"):
            return program(x), jax.make_jaxpr(lambda v: v * 2)(x).out_avals[0].shape

    assert_same_when_warm((program, X), (in_another, X), (jax.grad(lambda x: total(program(x))), X))


def test_a_primitive_with_a_binding_of_its_own() -> None:
    class Counting(jax.extend.core.Primitive):
        bound = 0

        def bind(self, *args: Any, **params: Any) -> Any:
            Counting.bound += 1
            return super().bind(*args, **params)

        def get_bind_params(self, params: Any) -> Any:
            return dict(params, seen=params["seen"] + 1)

    own = Counting("counting")
    own.def_abstract_eval(lambda x, seen: x)

    def program(x: Any) -> Any:
        (once,) = evaluated(lambda v: own.bind(v, seen=0) + 1, x)
        return evaluated(lambda v: own.bind(v, seen=5) * once, x)

    bound = []
    for make in (jax.make_jaxpr, jaxide.make_jaxpr):
        Counting.bound = 0
        make(lambda x: program(x))(X)
        bound.append(Counting.bound)
    assert bound[0] == bound[1] == 4
    assert_same_when_warm((program, X))


def test_values_die_with_their_last_use() -> None:
    """A primitive that asks which of its results so far are alive."""
    results: list[weakref.ref[Any]] = []
    alive: list[list[bool]] = []

    class Looking(jax.extend.core.Primitive):
        def bind(self, *args: Any, **params: Any) -> Any:
            alive.append([result() is not None for result in results])
            result = super().bind(*args, **params)
            results.append(weakref.ref(result))
            return result

    looking = Looking("looking")
    looking.def_abstract_eval(lambda x: x)

    def inner(v: Any) -> Any:
        first = looking.bind(v)
        second = looking.bind(first * 2)
        third = looking.bind(second + 1)
        return looking.bind(third), second

    jaxpr = jax.make_jaxpr(inner)(X)
    results.clear()
    alive.clear()
    jaxide.make_jaxpr(lambda x: core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x))(X)
    assert alive[-1] == [False, True, True]


def raising(what: str) -> Function:
    """Programs that are evaluated for arguments of another shape, where an equation raises."""
    failing = jax.extend.core.Primitive("failing")

    def evaluate(aval: Any) -> Any:
        if aval.shape == (2,):
            raise ZeroDivisionError("no more")
        return aval

    failing.def_abstract_eval(evaluate)

    def program(x: Any) -> Any:
        if what == "user's":
            jaxpr = jax.make_jaxpr(lambda v: failing.bind(jnp.sin(v)))(x)
            return core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x[:2])
        jaxpr = jax.make_jaxpr(lambda v, w: OWN.bind(v) + w)(x, x)
        return core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x, x[:2])

    return program


@pytest.mark.parametrize("what", ["user's", "jax's"])
def test_an_equation_that_raises(what: str) -> None:
    """With the error jax tells where the equation is from."""
    causes = []
    for make in (jax.make_jaxpr, jaxide.make_jaxpr):
        with pytest.raises((ZeroDivisionError, TypeError)) as caught:
            make(raising(what))(X)
        error = caught.value
        frames = traceback.extract_tb(error.__cause__.__traceback__)
        lines = [(frame.name, frame.lineno) for frame in frames if frame.filename == __file__]
        causes.append((type(error), str(error), type(error.__cause__), lines))
    assert causes[0] == causes[1]
    assert causes[0][2].__name__ == "JaxStackTraceBeforeTransformation"


def changed(eqns: Callable[..., list[Any]]) -> Any:
    """A program with other equations than it was traced with."""
    jaxpr = jax.make_jaxpr(lambda v: OWN.bind(jnp.sin(v)) + v)(X).jaxpr
    return jaxpr.replace(eqns=eqns(jaxpr, *jaxpr.eqns))


HANDMADE: dict[str, Callable[..., list[Any]]] = {
    "one output more": lambda _, sine, own, add: [
        sine.replace(outvars=[*sine.outvars, core.DropVar(sine.outvars[0].aval)]),
        own,
        add,
    ],
    "no output": lambda jaxpr, sine, own, add: [
        sine,
        own.replace(outvars=[]),
        add.replace(invars=[jaxpr.invars[0]] * 2),
    ],
    "an equation twice": lambda _, sine, own, add: [sine, own, own, add],
    "undefined": lambda _, sine, own, add: [own, sine, add],
}


@pytest.mark.parametrize("name", HANDMADE)
def test_programs_made_by_hand(name: str) -> None:
    program = changed(HANDMADE[name])

    def outcome(make: Any) -> Any:
        try:
            return str(make(lambda x: core.eval_jaxpr(program, [], x))(X))
        except Exception as error:
            return type(error)

    assert outcome(jaxide.make_jaxpr) == outcome(jax.make_jaxpr)


@pytest.mark.parametrize("results", [0, 1, 3])
def test_another_number_of_results(results: int) -> None:
    class Many(jax.extend.core.Primitive):
        results = 2

        def bind_with_trace(self, *args: Any) -> Any:
            return (super().bind_with_trace(*args) * 2)[: Many.results]

    many = Many("many")
    many.multiple_results = True
    many.def_abstract_eval(lambda x: [x, x])

    def outcome(make: Any) -> Any:
        def program(x: Any) -> Any:
            jaxpr = jax.make_jaxpr(lambda v: many.bind(v)[0] * 2)(x)
            Many.results = results
            try:
                return core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x)
            finally:
                Many.results = 2

        try:
            return str(make(program)(X))
        except Exception as error:
            return type(error), str(error)

    assert outcome(jaxide.make_jaxpr) == outcome(jax.make_jaxpr)


def test_params_that_are_written_to() -> None:
    """Equations with equal params have a dict each."""

    class Writing(jax.extend.core.Primitive):
        def get_bind_params(self, params: Any) -> Any:
            params["seen"] = params.get("seen", 0) + 1
            return params

    writing = Writing("writing")
    writing.def_abstract_eval(lambda x, **_: x)
    program = lambda x: evaluated(lambda v: writing.bind(v, a=1) + writing.bind(v * 2, a=1), x)
    assert_same_when_warm((program, X))


def test_a_scope_that_is_left_open() -> None:
    """It holds for the equations after it."""
    scopes: list[Any] = []

    class Opening(jax.extend.core.Primitive):
        def get_bind_params(self, params: Any) -> Any:
            scopes.append(jax.named_scope("left"))
            scopes[-1].__enter__()
            return params

    opening = Opening("opening")
    opening.def_abstract_eval(lambda x: x)

    def program(x: Any) -> Any:
        jaxpr = jax.make_jaxpr(lambda v: jnp.sin(opening.bind(v)))(x)
        try:
            return core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x)
        finally:
            while scopes:
                scopes.pop().__exit__(None, None, None)

    assert_same_when_warm((program, X))


def test_an_abstract_evaluation_warns_once() -> None:
    """It is remembered for the configuration of its equation, whoever evaluates that."""

    def program(x: Any) -> Any:
        with jax.enable_x64(True):
            jaxpr = jax.make_jaxpr(lambda v: (v, jax.random.bits(jax.random.key(0), (3,))))(x)
        evaluate = core.jaxpr_as_fun(jaxpr)
        return evaluate(x), jax.vmap(evaluate)(jnp.stack([x, x]))

    counts = []
    for make in (jax.make_jaxpr, jaxide.make_jaxpr):
        jax.clear_caches()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make(lambda x: program(x))(X)
        counts.append(len(caught))
    assert counts[0] == counts[1]


CHANGES: dict[str, Callable[[Any], None]] = {
    "the binding of a primitive": lambda patch: patch.setattr(
        lax.sin_p, "bind", lambda *args, **_: lax.cos_p.bind(*args, accuracy=None), raising=False
    ),
    "the name stack": lambda patch: patch.setattr(
        source_info_util,
        "current_name_stack",
        lambda: source_info_util.NameStack().extend("mine"),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_jax_within_a_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def text(make: Any) -> str:
        def program(x: Any) -> Any:
            jaxpr = jax.make_jaxpr(lambda v: OWN.bind(v) + jnp.sin(v))(x)
            with monkeypatch.context() as patch:
                CHANGES[name](patch)
                return core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x)

        return make(program)(X).pretty_print(name_stack=True)

    assert text(jaxide.make_jaxpr) == text(jax.make_jaxpr)


def test_wrong_arguments() -> None:
    jaxpr = jax.make_jaxpr(lambda x, y: x * y)(X, X)
    assert_same_when_warm(
        (lambda x: core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x), X),
        (lambda x: core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x, x, x), X),
        (lambda x: core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x, x[:2]), X),
        (lambda x: core.eval_jaxpr(jaxpr.jaxpr, [x], x, x), X),
        (lambda x: core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x, 2.0), X),
    )


def test_numerics() -> None:
    jaxpr = jax.make_jaxpr(FUNCTIONS["rules of the user"])(X)
    evaluate = core.jaxpr_as_fun(jaxpr)
    gradient = jax.grad(lambda x: total(evaluate(x)))
    traced = warm_up(gradient, X)
    (actual,) = core.eval_jaxpr(traced.jaxpr, traced.consts, X)
    np.testing.assert_array_equal(actual, gradient(X))
    with jaxide.accelerated():
        np.testing.assert_array_equal(jax.jit(gradient)(X), jax.jit(lambda x: gradient(x))(X))
