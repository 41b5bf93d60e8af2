"""Rules of jax for primitives with programs among their params, under transformations.

The programs are traced anew each time, since the functions are defined anew, so what is replayed
was made of other programs that say the same.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental.ode import odeint
from jax.scipy.linalg import expm
from jax.scipy.sparse.linalg import cg

import covering
import jaxide
import oracle
from expansion import (
    Step,
    assert_history,
    assert_same_when_warm,
    counts_of,
    empty_cache,
    observe,
    trace_of,
    warm_up,
)
from test_expand_lifted import scalar

X = np.linspace(0.25, 1, 3, dtype=np.float32)
M = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
ROUNDS = 5

Function = Callable[[Any], Any]


def layer(h, w):
    h = jnp.tanh(h @ w)
    return h * jax.nn.sigmoid(h) + jnp.where(h > 0, h, 0.0)


def scan(x):
    def body(carry, w):
        return layer(carry, w), carry.sum()

    return lax.scan(body, x, jnp.stack([jnp.outer(x, x), x * jnp.ones((3, 3))]))


def scan_with_captures(x):
    w = jnp.outer(x, x)

    def body(carry, _):
        return layer(carry, w) + x, None

    return lax.scan(body, x, None, length=3)[0]


def nested_scan(x):
    def outer(carry, y):
        def inner(carry, z):
            return carry * z + jnp.sin(y), carry

        return lax.scan(inner, carry, x)[0], y * 2

    return lax.scan(outer, x, x)


def scan_with_checkpoint(x):
    @jax.checkpoint
    def body(carry, y):
        return jnp.sin(carry * y) + 1, carry[0]

    return lax.scan(body, x, x)


def fori(x):
    return lax.fori_loop(0, 3, lambda i, y: layer(y, M) * i, x)


def while_loop(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1]) * c[1]), (0, x))


def cond(x):
    return lax.cond(x.sum() > 0, lambda y: layer(y, M), lambda y: y * 2, x)


def cond_with_captures(x):
    y = jnp.cos(x)
    return lax.cond(x[0] > 0, lambda: x * y, lambda: y + 1)


def cond_of_equal_branches(x):
    return lax.cond(x[0] > 0, jnp.sin, jnp.sin, x)


def switches(x):
    for i in range(3):
        x = lax.switch(i, [lambda y: y * 2, functools.partial(layer, w=M), jnp.sin], x)
    return x


def jit_of_new_function(x):
    jitted = jax.jit(lambda y: layer(y, jnp.outer(y, y)) + 1)
    return jitted(jitted(x)) + jitted(x)


def jits_of_one_body(x):
    def made():
        return jax.jit(lambda y: layer(y, M) + 1)

    return made()(made()(x))


def nested_jits(x):
    @jax.jit
    def outer(y):
        inner = jax.jit(lambda z: jnp.sin(z) * y)
        return inner(y) + inner(y + 1)

    return outer(x)


def scan_in_jit(x):
    return jax.jit(scan_with_captures)(x)


def checkpoint(x):
    return jax.checkpoint(lambda y: layer(y, M))(x)


def checkpoint_with_policy(x):
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    return jax.checkpoint(lambda y: layer(y, M) @ M, policy=policy)(x)


def checkpoint_of_names(x):
    def f(y):
        return jax.ad_checkpoint.checkpoint_name(jnp.sin(y), "kept") * jnp.cos(y)

    policy = jax.checkpoint_policies.save_only_these_names("kept")
    return jax.checkpoint(f, policy=policy)(x)


def linear_solve(x):
    w = jnp.outer(x, x) + jnp.eye(3) * 3

    def solve(_, b):
        return b / 2

    return lax.custom_linear_solve(lambda v: w @ v, x, solve, symmetric=True)


def root(x):
    return lax.custom_root(lambda y: y * y - x, x, lambda f, y: y - f(y), lambda g, y: y / g(1.0))


def custom_rule_in_scan(x):
    return lax.scan(lambda carry, y: (jax.nn.relu(carry * y), jax.nn.softmax(carry)), x, x)


def custom_rules_in_checkpoint(x):
    def f(y):
        return jax.nn.relu(y) * jnp.logaddexp(y, x) + jax.nn.softmax(jnp.sin(y))

    return jax.checkpoint(f)(x)


def custom_rules_in_loops(x):
    def body(carry, y):
        low = lax.cond(y > 0, jax.nn.relu, jax.nn.softplus, carry * y)
        return low, jax.vmap(jax.nn.relu6)(jnp.outer(carry, x))

    return lax.scan(body, x, x)


@jax.custom_jvp
def cubed(x):
    return x * x * x


@cubed.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return cubed(x), 3 * x * x * t


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 2))
def scaled_by(factor, x, offset):
    return factor * x + offset


scaled_by.defjvp(lambda factor, offset, x, t: (scaled_by(factor, *x, offset), factor * t[0]))


def users_rules_in_scan(x):
    return lax.scan(lambda carry, y: (cubed(carry) * scaled_by(2, y, 1.5), None), x, x)


@jax.custom_vjp
def squared(x):
    return x * x


squared.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * x * ct,))


def user_rule_in_scan(x):
    return lax.scan(lambda carry, y: (squared(carry) * y, None), x, x)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rotated(pair, z, name):
    return {name: jnp.sin(pair[0]) * z, "rest": pair[1]}


def rotated_fwd(pair, z, name):
    # The rule calls the function itself.
    return rotated(pair, z, name), (pair, z, jnp.cos(pair[0]))


def rotated_bwd(name, kept, ct):
    pair, z, c = kept
    return (ct[name] * c * z, ct["rest"] * 2), ct[name] * jnp.sin(pair[0])


rotated.defvjp(rotated_fwd, rotated_bwd)


def user_rules_in_loops(x):
    def body(carry, y):
        made = rotated((carry, y), x, "first")
        branch = lax.cond(y > 0, squared, jnp.tanh, y)
        return made["first"] + made["rest"] * branch, jax.vmap(squared)(carry)

    return lax.scan(body, x, x)


def user_rule_in_checkpoint(x):
    def f(y):
        return squared(jnp.sin(y)) * rotated((y, x), y * 2, "a")["a"]

    return jax.checkpoint(f)(x)


def user_rule_in_map(x):
    return lax.map(lambda y: squared(rotated((y, y), y, "b")["b"]), x)


def associative(x):
    return lax.associative_scan(lambda a, b: a * b + a, x)


def shard_map(x):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    specs = dict(in_specs=jax.P(), out_specs=jax.P())
    return jax.shard_map(lambda y: layer(y, jnp.outer(y, y)) + 1, mesh=mesh, **specs)(x)


def named(x):
    def body(carry, y):
        with jax.named_scope("inside"):
            return carry * y, None

    with jax.named_scope("outside"):
        return lax.scan(body, x, x)[0]


CONSTRUCTS: dict[str, Function] = {
    function.__name__: function
    for function in [
        scan,
        scan_with_captures,
        nested_scan,
        scan_with_checkpoint,
        fori,
        while_loop,
        cond,
        cond_with_captures,
        cond_of_equal_branches,
        switches,
        jit_of_new_function,
        jits_of_one_body,
        nested_jits,
        scan_in_jit,
        checkpoint,
        checkpoint_with_policy,
        checkpoint_of_names,
        linear_solve,
        root,
        custom_rule_in_scan,
        custom_rules_in_checkpoint,
        custom_rules_in_loops,
        users_rules_in_scan,
        user_rule_in_scan,
        user_rules_in_loops,
        user_rule_in_checkpoint,
        user_rule_in_map,
        associative,
        shard_map,
        named,
    ]
}


def pulled_back(f: Function) -> Function:
    def transformed(x):
        out, back = jax.vjp(f, x)
        return back(jax.tree.map(jnp.ones_like, out))

    return transformed


TRANSFORMATIONS: dict[str, Callable[[Function], Function]] = {
    "grad": lambda f: jax.grad(scalar(f)),
    "vjp": pulled_back,
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](x * 2),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (jnp.cos(x),)),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x * 2])),
    "vmap beside": lambda f: lambda x: jax.vmap(lambda s: f(x * s))(jnp.arange(2.0)),
    "vmap of grad": lambda f: lambda x: jax.vmap(jax.grad(scalar(f)))(jnp.stack([x, x * 2])),
    "grad of vmap": lambda f: (
        lambda x: jax.grad(lambda y: scalar(jax.vmap(f))(jnp.stack([y, y * 2])))(x)
    ),
    "grad of grad": lambda f: jax.grad(scalar(jax.grad(scalar(f)))),
    "jvp of grad": lambda f: lambda x: jax.jvp(jax.grad(scalar(f)), (x,), (x * 2,)),
    "hessian": lambda f: jax.hessian(scalar(f)),
    "jacfwd": jax.jacfwd,
    "checkpoint of grad": lambda f: jax.checkpoint(jax.grad(scalar(f))),
    "grad of checkpoint": lambda f: jax.grad(scalar(jax.checkpoint(f))),
    "jit of grad": lambda f: jax.jit(jax.grad(scalar(f))),
    "grad of jit": lambda f: jax.grad(scalar(jax.jit(lambda x: f(x)))),
    "grad of scan": lambda f: jax.grad(
        lambda x: lax.scan(lambda c, y: (c + scalar(f)(x * y), None), 0.0, x)[0]
    ),
}


@pytest.mark.covering(times=2)
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_constructs(construct: str, transformation: str) -> None:
    transformed = TRANSFORMATIONS[transformation](CONSTRUCTS[construct])
    assert_same_when_warm((transformed, X), rounds=ROUNDS)


@pytest.mark.covering(times=12, each_value=False)
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_two_places(construct: str) -> None:
    """Sources are those of the place that calls, but for the programs' own."""

    def here(make):
        return observe(make, lambda x: jax.grad(scalar(CONSTRUCTS[construct]))(x), X)

    def there(make):
        return observe(make, lambda x: jax.grad(scalar(CONSTRUCTS[construct]))(x), X)

    assert_history([here, there] * 4)


# Functions of libraries with loops within.
WITH_LOOPS: dict[str, Function] = {
    "cg": lambda x: cg(lambda v: v * 2, x)[0],
    "polyval": lambda x: jnp.polyval(jnp.ones(40) * x[0], x),
    "expm": lambda x: expm(jnp.outer(x, x))[0],
    "odeint": lambda x: odeint(lambda y, _: -y, x, jnp.array([0.0, 1.0]))[1],
    "associative_scan": lambda x: lax.associative_scan(jnp.multiply, x),
}


@pytest.mark.covering
@pytest.mark.parametrize("transformation", ["grad", "jvp", "vmap of grad", "grad of grad"])
@pytest.mark.parametrize("name", WITH_LOOPS)
def test_several_calls(name: str, transformation: str) -> None:
    """What jax makes of one call's programs may be made of another's as well."""
    f = WITH_LOOPS[name]
    program = TRANSFORMATIONS[transformation](lambda x: f(x) * f(x * 2) + f(f(x)))
    assert_history([trace_of(program, X)] * ROUNDS)


# ---- one program under several transformations ----


def of_one_program(construct: str, transformations: Sequence[str]) -> Function:
    """The same jitted function, so the same program, under each of the transformations."""

    def f(x):
        jitted = jax.jit(lambda y: CONSTRUCTS[construct](y))
        made = [TRANSFORMATIONS[name](jitted)(x) for name in transformations]
        return [leaf.sum() for leaf in jax.tree.leaves(made) if leaf.dtype == x.dtype]

    return f


names = st.sampled_from(sorted(set(TRANSFORMATIONS) - {"hessian"}))
constructs = st.sampled_from(sorted(CONSTRUCTS))


@given(
    st.lists(st.tuples(constructs, st.lists(names, min_size=1, max_size=3)), min_size=1, max_size=3)
)
@settings(deadline=None, max_examples=500 if oracle.IS_LONG else covering.examples(3, 12))
def test_random_histories(programs: list[tuple[str, list[str]]]) -> None:
    """Programs that use what others have left behind, in any order."""
    functions = [of_one_program(*program) for program in programs]
    steps: list[Step] = [trace_of(function, X) for function in functions]
    assert_history(steps * ROUNDS)
    assert_history(
        [trace_of(lambda x: [function(x) for function in functions], X)] * ROUNDS + steps
    )


# A program that is printed is read in full meanwhile, as part of another one.
@example("associative", ["grad", "checkpoint of grad"])
@example("linear_solve", ["grad", "checkpoint of grad"])
@given(constructs, st.lists(names, min_size=2, max_size=4))
@settings(deadline=None, max_examples=500 if oracle.IS_LONG else covering.examples(3, 8))
def test_growing_histories(construct: str, transformations: list[str]) -> None:
    """A program that is used under one transformation more each time."""
    functions = [
        of_one_program(construct, transformations[:count])
        for count in range(1, len(transformations) + 1)
    ]
    assert_history([step for f in functions for step in [trace_of(f, X)] * 3])


def test_programs_that_live_on() -> None:
    """A program from before a trace is the same one within it."""
    kept = {}

    def step(make, name, transformations):
        if name not in kept:
            kept[name] = jax.jit(lambda x: scan_with_captures(x))
        made = [TRANSFORMATIONS[transformation](kept[name]) for transformation in transformations]
        return observe(make, lambda x: [f(x) for f in made], X)

    def forget(_make):
        kept.clear()

    def of(name, *transformations):
        return lambda make: step(make, name, transformations)

    steps = [of("a", "grad"), of("b", "grad"), of("a", "jvp"), of("a", "grad", "jvp")]
    together = [of("a", "grad", "grad of grad"), of("b", "vmap", "vmap of grad", "grad")]
    assert_history([*(steps * 3), forget, *(together * 3), *steps, forget, *together])


def test_dropped_outputs() -> None:
    """jax notes which results nobody held when it made a program: one more thing that it says."""

    def value(x):
        return lax.fori_loop(0, 3, lambda i, y: jnp.sin(y), x)

    def gradient(x):
        return jax.grad(lambda y: lax.fori_loop(0, 3, lambda i, z: jnp.sin(z), y).sum())(x)

    of_scan = TRANSFORMATIONS["grad of scan"]
    steps = [trace_of(of_scan(f), X) for f in (value, gradient)]
    assert_history([*([steps[0]] * ROUNDS), *([steps[1]] * ROUNDS)])


# ---- what is remembered ----


REPLAYED = {
    "scan": ("scan",),
    "nested_scan": ("scan",),
    "fori": ("scan",),
    "cond": ("cond",),
    "checkpoint": ("remat2",),
    "checkpoint_of_names": ("remat2",),
    "linear_solve": ("custom_linear_solve",),
    "custom_rule_in_scan": ("scan",),
    "custom_rules_in_checkpoint": ("remat2",),
    "custom_rules_in_loops": ("scan",),
    "users_rules_in_scan": ("scan",),
    "user_rule_in_scan": ("scan",),
    "user_rules_in_loops": ("scan",),
    "user_rule_in_checkpoint": ("remat2",),
    "user_rule_in_map": ("scan",),
}


# From jax 0.11 on, where these are one class, jax transposes linear programs itself, and the
# programs of these constructs differ in more than the core knows of (docs/limits.md).
if jax.extend.core.ClosedJaxpr is jax.extend.core.Jaxpr:
    KINDS = ("rule of ",)
    for name in (
        "checkpoint_of_names",
        "custom_rule_in_scan",
        "custom_rules_in_loops",
        "users_rules_in_scan",
        "user_rules_in_loops",
    ):
        del REPLAYED[name]
else:
    KINDS = ("rule of ", "transpose of ")


@pytest.mark.parametrize("construct", REPLAYED)
def test_rules_are_replayed(construct: str) -> None:
    function = jax.grad(scalar(CONSTRUCTS[construct]))
    with empty_cache():
        warm_up(function, X, rounds=ROUNDS)
        names = [f"{kind}{name}" for name in REPLAYED[construct] for kind in KINDS]
        before = {name: counts_of(name) for name in names}
        warm_up(function, X, rounds=1)
        for name in names:
            after = counts_of(name)
            assert after.hits > before[name].hits, name
            assert (after.misses, after.bypasses) == (before[name].misses, before[name].bypasses)


@pytest.mark.skipif("transpose of " not in KINDS, reason="jax transposes linear programs")
def test_transpositions_of_shard_map_are_replayed() -> None:
    names = ("transpose of shard_map", "dead code of shard_map")
    with empty_cache():
        warm_up(jax.grad(scalar(shard_map)), X, rounds=ROUNDS)
        before = [counts_of(name) for name in names]
        warm_up(jax.grad(scalar(shard_map)), X, rounds=1)
        for name, old in zip(names, before, strict=True):
            new = counts_of(name)
            assert new.hits > old.hits, name
            assert (new.misses, new.bypasses) == (old.misses, old.bypasses)


def test_programs_are_let_go() -> None:
    def trace():
        jaxpr = warm_up(jax.grad(scalar(scan)), X, rounds=1)
        (eqn,) = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"][:1]
        return weakref.ref(eqn.params["jaxpr"].jaxpr)

    with empty_cache():
        refs = [trace() for _ in range(ROUNDS + 10)]
        gc.collect()
        # What is gone is looked for once a trace.
        refs.append(trace())
        gc.collect()
        # What fragments were learnt from is kept, what they were replayed for is not.
        assert not any(ref() for ref in refs[ROUNDS:-1])


def test_a_body_that_changes() -> None:
    """Programs that do not say the same are not taken for each other."""

    def scaled(factor, name="f"):
        def f(x):
            def body(carry, y):
                return carry * factor + jnp.sin(y), None

            body.__name__ = name
            return lax.scan(body, x, x)[0]

        return f

    made = [scaled(2.0), scaled(3.0), scaled(2), scaled(np.float32(2)), scaled(2.0, "g"), scaled(M)]
    assert_same_when_warm(*((pulled_back(f), X) for f in made), rounds=ROUNDS)


def test_effects_run_each_time() -> None:
    seen = []

    def f(x):
        def body(carry, y):
            seen.append(y)
            jax.debug.print("{}", y)
            return carry * y, None

        return lax.scan(body, x, x)[0]

    with empty_cache():
        for count in range(1, 6):
            jaxpr = warm_up(jax.grad(scalar(f)), X, rounds=1)
            assert len(seen) == count
            assert "debug" in str(jaxpr)


def test_a_users_rule_runs_each_time() -> None:
    """Unless its instructions show that nobody can tell."""
    seen = []

    @jax.custom_jvp
    def doubled(x):
        return x * 2

    @doubled.defjvp
    def rule(primals, tangents):
        seen.append(primals)
        return doubled(*primals), tangents[0] * 2

    @jax.custom_vjp
    def halved(x):
        return x / 2

    def forward(x):
        seen.append(x)
        return halved(x), None

    def backward(_, ct):
        seen.append(ct)
        return (ct / 2,)

    halved.defvjp(forward, backward)

    def runs_of(make, function):
        def f(x):
            return lax.scan(lambda carry, y: (function(carry) * y, None), x, x)[0]

        before = len(seen)
        observe(make, jax.grad(scalar(f)), X)
        return len(seen) - before

    for function in (doubled, halved):
        with empty_cache():
            expected = runs_of(jax.make_jaxpr, function)
            assert expected > 0
            assert [runs_of(jaxide.make_jaxpr, function) for _ in range(6)] == [expected] * 6


def test_a_rule_that_changes() -> None:
    """Programs that have different rules do not say the same."""

    def with_rule(factor):
        @jax.custom_jvp
        def f(x):
            return x * 2

        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * factor))
        return lambda x: lax.scan(lambda carry, y: (f(carry) * y, None), x, x)[0]

    def with_backward(factor):
        @jax.custom_vjp
        def f(x):
            return x * 2

        f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * x * factor,))
        return lambda x: lax.scan(lambda carry, y: (f(carry) * y, None), x, x)[0]

    made = [with_(factor) for with_ in (with_rule, with_backward) for factor in (2, 3.0, 2)]
    assert_same_when_warm(*((pulled_back(f), X) for f in made), rounds=ROUNDS)


@pytest.mark.covering
@pytest.mark.parametrize(
    "construct", [custom_rules_in_loops, user_rules_in_loops, user_rule_in_checkpoint]
)
@pytest.mark.parametrize("transformation", ["vmap", "grad of scan", "checkpoint of grad"])
def test_rules_of_twins_are_their_own(construct: Function, transformation: str) -> None:
    """What a replay hands out can be differentiated once more, from another line."""

    def once(make):
        jaxpr = make(lambda x: TRANSFORMATIONS[transformation](construct)(x))(X)
        return jax.extend.core.jaxpr_as_fun(jaxpr)

    def step(make):
        f = once(make)
        return observe(make, lambda x: jax.grad(lambda y: f(y)[0].sum())(x), X)

    assert_history([step] * ROUNDS)
