"""Programs with Refs under transformations: kernels of Pallas, Refs that a function allocates, and
loops and branches that read and write them.

As in `test_rules.py` the functions are defined anew each time, so what is replayed was made of
other programs that say the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import core
from jax._src.state.discharge import run_state
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as pltriton

from expansion import (
    assert_history,
    assert_replayed,
    assert_same_when_warm,
    empty_cache,
    observe,
    trace_of,
    warm_up,
)
from test_expand_lifted import scalar
from test_rules import ROUNDS, TRANSFORMATIONS

# From jax 0.11 on.
ONE_CLASS = jax.extend.core.ClosedJaxpr is jax.extend.core.Jaxpr

X = np.linspace(0.25, 1, 8, dtype=np.float32)

Function = Callable[[Any], Any]


# ---- kernels ----


def like(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def gated(x_ref, o_ref):
    y = jnp.tanh(x_ref[...])
    o_ref[...] = y * jax.nn.sigmoid(y) + jnp.where(y > 0, y, 0.0)


def kernel(x):
    return pl.pallas_call(lambda *refs: gated(*refs), out_shape=like(x), interpret=True)(x)


def compiled_kernel(x):
    return pl.pallas_call(lambda *refs: gated(*refs), out_shape=like(x))(x)


def blocks(x):
    spec = pl.BlockSpec((4,), lambda i: (i,))
    half = pl.BlockSpec((4,), lambda i: (i // 2 * 2,))

    def body(x_ref, y_ref, z_ref, o_ref):
        o_ref[...] = x_ref[...] * y_ref[...] + jnp.sin(z_ref[...])

    call = pl.pallas_call(
        body,
        out_shape=like(x),
        grid=(2,),
        in_specs=[spec, half, spec],
        out_specs=spec,
        interpret=True,
    )
    return call(x, x * 2, jnp.arange(8.0))


def kernel_twice(x):
    call = pl.pallas_call(lambda *refs: gated(*refs), out_shape=like(x), interpret=True)
    return call(x) * call(call(x))


def kernels_of_one_body(x):
    for _ in range(3):
        x = kernel(x)
    return x


def several_outputs(x):
    def body(x_ref, y_ref, o_ref, p_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
        p_ref[...] = x_ref[...].sum(keepdims=True)

    out = (like(x), jax.ShapeDtypeStruct((1,), x.dtype))
    return pl.pallas_call(body, out_shape=out, interpret=True, name="several")(x, jnp.cos(x))


def accumulation(x):
    def body(x_ref, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[pl.ds(2, 4)] += x_ref[pl.ds(0, 4)] * 2
        o_ref[0] = x_ref[3]

    return pl.pallas_call(body, out_shape=like(x), interpret=True)(x)


def loop_in_kernel(x):
    def body(x_ref, o_ref):
        def step(i, total):
            o_ref[i] = jnp.sin(x_ref[i]) * total
            return total + x_ref[i]

        o_ref[0] = lax.fori_loop(0, 4, step, jnp.float32(0))

    return pl.pallas_call(body, out_shape=like(x), interpret=True)(x)


def branch_in_kernel(x):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...]

        @pl.when(x_ref[0] > 0)
        def _():
            o_ref[...] = x_ref[...] * 2

    return pl.pallas_call(body, out_shape=like(x), interpret=True)(x)


def grid_in_kernel(x):
    def body(x_ref, o_ref):
        o_ref[pl.program_id(0)] = x_ref[0] * pl.num_programs(0)

    return pl.pallas_call(body, out_shape=like(x), grid=(8,), interpret=True)(x)


def scratch(x):
    def body(x_ref, o_ref, s_ref):
        s_ref[...] = x_ref[...] * 2
        o_ref[...] = s_ref[...]

    shapes = [pltpu.VMEM((8,), jnp.float32)]
    return pl.pallas_call(body, out_shape=like(x), scratch_shapes=shapes, interpret=True)(x)


def aliased(x):
    def body(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]

    aliases = {0: 0}
    return pl.pallas_call(body, out_shape=like(x), input_output_aliases=aliases, interpret=True)(
        x, x * 2
    )


def prefetched(x):
    def body(s_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * s_ref[0]

    spec = pl.BlockSpec((4,), lambda i, s: (s[i],))
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(2,), in_specs=[spec], out_specs=spec
    )
    places = (x[:2] > 0).astype(jnp.int32)
    return pl.pallas_call(body, grid_spec=grid, out_shape=like(x), interpret=True)(places, x)


def with_params(x):
    return pl.pallas_call(
        lambda *refs: gated(*refs),
        out_shape=like(x),
        compiler_params=pltriton.CompilerParams(num_warps=2),
        cost_estimate=pl.CostEstimate(flops=10, transcendentals=8, bytes_accessed=64),
        name="gate",
    )(x)


def with_memory_spaces(x):
    spec = pl.BlockSpec(memory_space=pltpu.SMEM)
    call = pl.pallas_call(
        lambda *refs: gated(*refs),
        out_shape=like(x),
        in_specs=[spec],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=1 << 20),
    )
    return call(x)


def with_a_size(x, size):
    spec = pl.BlockSpec((size,), lambda i: (i,))
    call = pl.pallas_call(
        lambda *refs: gated(*refs),
        out_shape=like(x),
        grid=(8 // size,),
        in_specs=[spec],
        out_specs=spec,
        interpret=True,
    )
    return call(x)


def kernel_in_scan(x):
    return lax.scan(lambda c, y: (kernel(c * y), c.sum()), x, x)


def kernel_in_cond(x):
    return lax.cond(x.sum() > 0, kernel, accumulation, x)


def kernel_in_checkpoint(x):
    return jax.checkpoint(lambda y: jnp.sin(kernel(y)))(x)


def kernel_in_jit(x):
    jitted = jax.jit(lambda y: kernel(y) * y)
    return jitted(x) + jitted(x * 2)


def kernel_with_rule(x):
    @jax.custom_vjp
    def f(y):
        return kernel(y)

    f.defvjp(lambda y: (f(y), y), lambda y, ct: (kernel(ct * y),))
    return f(x) * f(x * 2)


# ---- Refs ----


def allocated(x):
    ref = jax.new_ref(x)
    ref[...] = jnp.sin(ref[...]) * x
    ref[0] = ref[1] * 2
    return ref[...]


def allocated_in_jit(x):
    return jax.jit(lambda y: allocated(y) + y)(x)


def in_loop(x):
    ref = jax.new_ref(x)

    def body(i, c):
        ref[...] += jnp.sin(c)
        return c * 2

    return lax.fori_loop(0, 3, body, x) + ref[...]


def in_scan(x):
    ref = jax.new_ref(jnp.zeros_like(x))

    def body(c, y):
        ref[0] = c * y
        return c + ref[0], ref[1]

    return lax.scan(body, x[0], x), ref[...]


def in_while(x):
    ref = jax.new_ref(x)

    def body(i):
        ref[...] = ref[...] * 2
        return i + 1

    lax.while_loop(lambda i: i < 3, body, 0)
    return ref[...]


def in_cond(x):
    ref = jax.new_ref(x)

    def double():
        ref[...] = ref[...] * 2

    lax.cond(x[0] > 0, double, lambda: None)
    return ref[...]


def in_checkpoint(x):
    return jax.checkpoint(lambda y: allocated(y) * y)(x)


def allocated_in_scan(x):
    return lax.scan(lambda c, y: (allocated(c * y), c.sum()), x, x)


def passed_to_jit(x):
    ref = jax.new_ref(x)

    @jax.jit
    def add(ref, y):
        ref[...] += jnp.cos(y)
        return ref[...] * y

    return add(ref, x) + add(ref, x * 2) + ref[...]


def state(x):
    def body(refs):
        a, b = refs
        a[...] = jnp.sin(b[...]) * a[...]
        b[0] = a[1]

    return run_state(body)((x, x * 2))


KERNELS = [
    kernel,
    compiled_kernel,
    blocks,
    kernel_twice,
    kernels_of_one_body,
    several_outputs,
    accumulation,
    loop_in_kernel,
    branch_in_kernel,
    grid_in_kernel,
    scratch,
    aliased,
    prefetched,
    with_params,
    with_memory_spaces,
    kernel_in_scan,
    kernel_in_cond,
    kernel_in_checkpoint,
    kernel_in_jit,
    kernel_with_rule,
]
REFS = [
    allocated,
    allocated_in_jit,
    in_loop,
    in_scan,
    in_while,
    in_cond,
    in_checkpoint,
    allocated_in_scan,
    passed_to_jit,
    state,
]
CONSTRUCTS: dict[str, Function] = {function.__name__: function for function in KERNELS + REFS}

NESTS: dict[str, Callable[[Function], Function]] = {
    **{
        name: TRANSFORMATIONS[name]
        for name in ("grad", "linearize", "jvp", "vmap", "vmap of grad", "grad of scan")
    },
    "none": lambda f: f,
    "vmap of an axis": lambda f: lambda x: jax.vmap(f, 1, 1)(jnp.stack([x, x * 2], 1)),
    "vmap of vmap": lambda f: (
        lambda x: jax.vmap(jax.vmap(f))(jnp.stack([x, x] * 2).reshape(2, 2, 8))
    ),
    "jvp of vmap": lambda f: (
        lambda x: jax.jvp(jax.vmap(f), (jnp.stack([x, x]),), (jnp.stack([x, x * 2]),))
    ),
    "vmap of jvp": lambda f: (
        lambda x: jax.vmap(lambda y: jax.jvp(f, (y,), (y * 2,)))(jnp.stack([x, x]))
    ),
    "jvp of jvp": lambda f: (
        lambda x: jax.jvp(lambda y: jax.jvp(f, (y,), (y,)), (x,), (jnp.cos(x),))
    ),
    "jvp of jit": lambda f: lambda x: jax.jvp(jax.jit(lambda y: f(y)), (x,), (x,)),
    "vmap of jit": lambda f: lambda x: jax.vmap(jax.jit(lambda y: f(y)))(jnp.stack([x, x])),
}


@pytest.mark.covering(times=2)
@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_constructs(construct: str, nest: str) -> None:
    assert_same_when_warm((NESTS[nest](CONSTRUCTS[construct]), X), rounds=ROUNDS)


@pytest.mark.covering(times=12, each_value=False)
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_two_places(construct: str) -> None:
    """Sources are those of the place that calls, but for the programs' own."""

    def here(make):
        return observe(make, lambda x: NESTS["vmap of jvp"](CONSTRUCTS[construct])(x), X)

    def there(make):
        return observe(make, lambda x: NESTS["vmap of jvp"](CONSTRUCTS[construct])(x), X)

    assert_history([here, there] * 4)


@pytest.mark.parametrize("construct", [kernel, blocks, kernel_in_scan, allocated, in_loop])
def test_one_program_under_several_transformations(construct: Function) -> None:
    """What jax has made of a program once it may show again."""
    names = ["jvp", "vmap", "jvp", "vmap of jvp", "vmap", "none"]

    def f(x):
        jitted = jax.jit(lambda y: construct(y))
        made = [NESTS[name](jitted)(x) for name in names]
        return [leaf.sum() for leaf in jax.tree.leaves(made)]

    assert_history([trace_of(f, X)] * ROUNDS)


def test_a_kernel_that_changes() -> None:
    """Kernels that do not say the same are not taken for each other."""

    def scaled(factor, **params):
        def f(x):
            def body(x_ref, o_ref):
                o_ref[...] = x_ref[...] * factor

            return pl.pallas_call(body, out_shape=like(x), **{"interpret": True, **params})(x)

        return f

    made: list[Function] = [
        scaled(2.0),
        scaled(3.0),
        scaled(2.0, name="f"),
        scaled(2.0, interpret=False),
        scaled(2.0, grid=(1,)),
        scaled(2.0, cost_estimate=pl.CostEstimate(flops=1, transcendentals=0, bytes_accessed=0)),
        scaled(2.0, cost_estimate=pl.CostEstimate(flops=2, transcendentals=0, bytes_accessed=0)),
        scaled(2.0, compiler_params=pltriton.CompilerParams(num_warps=1)),
        scaled(2.0, compiler_params=pltriton.CompilerParams(num_warps=2)),
        functools.partial(with_a_size, size=4),
        functools.partial(with_a_size, size=2),
    ]
    for name in ("jvp", "vmap"):
        nest = NESTS[name]
        assert_same_when_warm(*((nest(f), X) for f in made), rounds=ROUNDS)


def test_writes_are_told_from_reads() -> None:
    """Programs whose equations differ in nothing but what they do to which Ref."""

    def of(write):
        def f(x):
            def body(a_ref, b_ref, o_ref):
                write(a_ref, b_ref, o_ref)

            return pl.pallas_call(body, out_shape=like(x), interpret=True)(x, x * 2)

        return f

    def first(a, b, o):
        o[...] = a[...]

    def second(a, b, o):
        o[...] = b[...]

    def added(a, b, o):
        o[...] += a[...]

    def swapped(a, b, o):
        o[...] = a[...]
        a[...] = b[...]

    made = [of(write) for write in (first, second, added, swapped)]
    assert_same_when_warm(*((NESTS["vmap"](f), X) for f in made), rounds=ROUNDS)


@pytest.mark.covering(times=2)
@pytest.mark.parametrize("nest", ["jvp", "vmap", "grad", "vmap of jvp"])
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_programs_are_well_formed(construct: str, nest: str) -> None:
    function = NESTS[nest](CONSTRUCTS[construct])
    with empty_cache():
        try:
            jax.make_jaxpr(function)(X)
        except (ValueError, NotImplementedError, AssertionError, TypeError):
            pytest.skip("none in jax")
        core.check_jaxpr(warm_up(function, X, rounds=ROUNDS).jaxpr)


def test_refs_are_told_apart() -> None:
    """Calls that differ in which Refs are one, or in the types of these."""

    def of(make):
        def f(x):
            one, other = make(x)
            one[...] += other[...]
            other[1] = one[0].astype(other.dtype)
            lax.fori_loop(0, 2, lambda i, _: one.__setitem__(i, one[i] * 2), None)
            return one[...], other[...]

        return f

    def same(x):
        ref = jax.new_ref(x)
        return ref, ref

    made = [
        of(lambda x: (jax.new_ref(x), jax.new_ref(x))),
        of(same),
        of(lambda x: (jax.new_ref(x), jax.new_ref(x.astype(jnp.float16)))),
        of(lambda x: (jax.new_ref(jnp.stack([x, x])), jax.new_ref(x))),
    ]
    for name in ("none", "jvp", "vmap", "grad"):
        assert_same_when_warm(*((NESTS[name](f), X) for f in made), rounds=ROUNDS)


def test_a_ref_that_is_two_arguments() -> None:
    """jax refuses it, whatever it was given before."""

    @jax.jit
    def add(one, other):
        one[...] += other[...]

    def f(x):
        one, other = jax.new_ref(x), jax.new_ref(x * 2)
        add(one, other)
        return one[...]

    def g(x):
        ref = jax.new_ref(x)
        add(ref, ref)
        return ref[...]

    for name in ("none", "jvp", "vmap", "grad"):
        assert_same_when_warm((NESTS[name](f), X), (NESTS[name](g), X), rounds=ROUNDS)


def test_a_frozen_ref() -> None:
    def f(x):
        ref = jax.new_ref(x)
        ref[0] = ref[1] * 2
        return jax.freeze(ref)

    def g(x):
        ref = jax.new_ref(x)
        y = jax.freeze(ref)
        return y + ref[...]

    for name in ("none", "jvp", "vmap", "grad"):
        assert_same_when_warm((NESTS[name](f), X), (NESTS[name](g), X), rounds=ROUNDS)


def test_refs_of_ones_own() -> None:
    """Refs that are arguments of the function that is traced, and Refs that it captures."""
    ref = jax.new_ref(jnp.ones(8))

    def argument(ref, x):
        ref[...] = ref[...] * x
        jax.jit(lambda r, y: r.__setitem__(0, y[0]))(ref, x)
        return jnp.sin(ref[...])

    def captured(x):
        ref[...] = ref[...] * x
        return jnp.sin(ref[...])

    assert_same_when_warm((argument, ref, X), rounds=ROUNDS)
    assert_same_when_warm((captured, X), rounds=ROUNDS)
    assert_same_when_warm((NESTS["jvp"](captured), X), (NESTS["vmap"](captured), X), rounds=ROUNDS)


def test_cotangents_that_are_added_to_refs() -> None:
    def f(x):
        _, pullback = jax.vjp(lambda x, y: allocated(x) * y + in_loop(x * y), x, x * 2)
        sums = jax.new_ref(jnp.zeros_like(x)), jax.new_ref(jnp.ones_like(x))
        pullback.with_refs(*sums)(jnp.cos(x))
        pullback.with_refs(*sums)(jnp.sin(x))
        return [ref[...] for ref in sums]

    assert_same_when_warm((f, X), (NESTS["vmap"](lambda x: sum(f(x))), X), rounds=ROUNDS)


# ---- what is remembered ----


@pytest.mark.parametrize(
    ("nest", "construct"),
    [
        *(("jvp", f) for f in (allocated, in_loop, in_scan, in_while, in_cond, state)),
        *(("vmap", f) for f in (allocated, in_loop, in_scan, in_while)),
        *(("grad", f) for f in (allocated, in_loop, in_scan, in_cond)),
    ],
)
def test_refs_are_replayed(nest: str, construct: Function) -> None:
    function = NESTS[nest](construct)
    names = ["Array.__setitem__", "Array.__getitem__"]
    rules = {
        in_loop: "scan",
        in_scan: "scan",
        in_while: "while",
        in_cond: "cond",
        state: "run_state",
    }
    if construct in rules:
        names.append(f"rule of {rules[construct]}")
    assert_replayed(names, function, X, rounds=ROUNDS)


# In jax 0.12 it is not replayed beside a Ref that the function makes (docs/limits.md).
BESIDE_REFS = [in_loop, in_scan] if ONE_CLASS else [allocated, in_loop, in_scan]


@pytest.mark.parametrize("construct", BESIDE_REFS)
def test_the_backward_pass_beside_refs_is_replayed(construct: Function) -> None:
    """Equations whose cotangents are added to no Ref."""

    def function(x: Any) -> Any:
        return jax.grad(lambda y: scalar(construct)(jnp.tanh(y) * y * 3))(x)

    assert_replayed(["transpose of mul"], function, X, rounds=ROUNDS)


DERIVED = {"jvp": "_jvp_jaxpr", "vmap": "_batch_jaxpr2"}
if ONE_CLASS:
    # There jax remembers by the kernel what it makes of it, so it may occur twice.
    del DERIVED["jvp"]


@pytest.mark.parametrize(
    ("nest", "construct"),
    [
        *((nest, f) for nest in DERIVED for f in (kernel, blocks, accumulation, with_params)),
        *(("vmap", f) for f in (scratch, aliased, loop_in_kernel, branch_in_kernel)),
        *((nest, f) for nest in DERIVED for f in (kernel_in_jit, allocated_in_jit)),
    ],
)
def test_kernels_are_replayed(nest: str, construct: Function) -> None:
    assert_replayed([DERIVED[nest]], NESTS[nest](construct), X, rounds=ROUNDS)


def kernels_of(jaxpr: Any) -> list[Any]:
    return [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "pallas_call"]


@pytest.mark.parametrize("nest", DERIVED)
def test_replayed_kernels_are_whole(nest: str) -> None:
    """What a replay hands out can be executed and transformed, and is nobody else's."""
    function = NESTS[nest](lambda x: several_outputs(x)[0] + kernel(x))
    with empty_cache():
        expected = jax.jit(lambda x: function(x))(X)
        jaxprs = [warm_up(function, X, rounds=count) for count in (ROUNDS, 1)]
        for jaxpr in jaxprs:
            made = jax.extend.core.jaxpr_as_fun(jaxpr)(X)
            for one, other in zip(jax.tree.leaves(expected), made, strict=True):
                np.testing.assert_array_equal(one, other)
            for eqn in kernels_of(jaxpr):
                inputs = {*eqn.params["jaxpr"].invars}
                effects = [*eqn.params["jaxpr"].effects]
                effects += [e for inner in eqn.params["jaxpr"].eqns for e in inner.effects]
                assert effects and all(effect.input in inputs for effect in effects)
    one, other = ({id(eqn.params["jaxpr"]) for eqn in kernels_of(jaxpr)} for jaxpr in jaxprs)
    assert not one & other
