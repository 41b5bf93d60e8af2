"""`shard_map` under transformations, on meshes of one and of several devices.

As in `test_rules.py` the functions are defined anew each time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh

from expansion import (
    assert_history,
    assert_replayed,
    assert_same_when_warm,
    observe,
    trace_of,
)
from test_expand_lifted import scalar
from test_rules import KINDS, ROUNDS, TRANSFORMATIONS, layer

X = np.linspace(0.25, 1, 8, dtype=np.float32)

Function = Callable[[Any], Any]

MESHES = {
    "one device": Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("i", "j")),
    "four devices": Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("i", "j")),
}


def mapped(
    mesh: Mesh, f: Function, spec: Any = jax.P("i"), out: Any = None, **options: Any
) -> Function:
    out = spec if out is None else out
    return jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=out, **options)


def elementwise(mesh, x):
    return mapped(mesh, lambda y: jnp.tanh(y) * jax.nn.sigmoid(y) + 1)(x)


def with_captures(mesh, x):
    w = jnp.outer(x, x)
    return mapped(mesh, lambda y: layer(y, w[: y.size, : y.size]))(x)


def summed(mesh, x):
    def f(y):
        return lax.psum(y * y, "i") * lax.axis_index("i")

    return mapped(mesh, f, out=jax.P())(x)


def scalars(mesh, x):
    """Residuals without dimensions are given one."""

    def f(y):
        total = jnp.sin(y.sum())
        return y * total * jnp.cos(total)

    return mapped(mesh, f)(x)


def permuted(mesh, x):
    def f(y):
        n = mesh.shape["i"]
        y = lax.ppermute(jnp.sin(y), "i", [(k, (k + 1) % n) for k in range(n)])
        return lax.all_gather(y, "j", tiled=True) * 2

    return mapped(mesh, f, jax.P("i"), jax.P(("i", "j")))(x)


def unchecked(mesh, x):
    def f(y):
        return lax.psum(jnp.sin(y), "j") * y

    return mapped(mesh, f, jax.P("i"), check_vma=False)(x)


def partly_manual(mesh, x):
    return mapped(mesh, lambda y: jnp.sin(y) * y, axis_names={"i"})(x)


def scan_within(mesh, x):
    def f(y):
        return lax.scan(lambda c, z: (jnp.sin(c * z), c), y, jnp.stack([y, y * 2]))[0]

    return mapped(mesh, f)(x)


def jit_within(mesh, x):
    def f(y):
        jitted = jax.jit(lambda z: jnp.sin(z) * z)
        return jitted(y) + jitted(y * 2)

    return mapped(mesh, f)(x)


def rules_within(mesh, x):
    return mapped(mesh, lambda y: jax.nn.relu(y) * jax.nn.softplus(y))(x)


def twice(mesh, x):
    f = mapped(mesh, lambda y: jnp.sin(y) * y)
    return f(f(x)) * f(x)


def in_jit(mesh, x):
    return jax.jit(lambda y: elementwise(mesh, y) * y)(x)


def in_one_jit(mesh, x):
    jitted = jax.jit(lambda y: elementwise(mesh, y) * scalars(mesh, y))
    return jitted(jitted(x)) + jitted(x)


def in_scan(mesh, x):
    return lax.scan(lambda c, y: (elementwise(mesh, c * y), c.sum()), x, x)


def in_checkpoint(mesh, x):
    return jax.checkpoint(lambda y: elementwise(mesh, y) * y)(x)


def in_checkpoint_in_jit(mesh, x):
    return jax.jit(lambda y: in_checkpoint(mesh, y))(x)


def in_cond(mesh, x):
    return lax.cond(x[0] > 0, lambda y: elementwise(mesh, y), lambda y: y * 2, x)


CONSTRUCTS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in [
        elementwise,
        with_captures,
        summed,
        scalars,
        permuted,
        unchecked,
        partly_manual,
        scan_within,
        jit_within,
        rules_within,
        twice,
        in_jit,
        in_one_jit,
        in_scan,
        in_checkpoint,
        in_checkpoint_in_jit,
        in_cond,
    ]
}
NESTS: dict[str, Callable[[Function], Function]] = {
    **{
        name: TRANSFORMATIONS[name]
        for name in (
            "grad",
            "linearize",
            "jvp",
            "vmap",
            "vmap of grad",
            "grad of vmap",
            "grad of grad",
            "jvp of grad",
            "grad of jit",
            "grad of checkpoint",
            "grad of scan",
        )
    },
    "vmap over an axis": lambda f: lambda x: jax.vmap(f, spmd_axis_name="j")(jnp.stack([x, x * 2])),
    "vmap of jit": lambda f: lambda x: jax.vmap(jax.jit(lambda y: f(y)))(jnp.stack([x, x])),
    "vmap of jvp": lambda f: (
        lambda x: jax.vmap(lambda y: jax.jvp(f, (y,), (y * 2,)))(jnp.stack([x, x]))
    ),
}


@pytest.mark.covering(times=2)
@pytest.mark.parametrize("nest", NESTS)
@pytest.mark.parametrize("construct", CONSTRUCTS)
@pytest.mark.parametrize("mesh", MESHES)
def test_constructs(mesh: str, construct: str, nest: str) -> None:
    function = functools.partial(CONSTRUCTS[construct], MESHES[mesh])
    assert_same_when_warm((NESTS[nest](function), X), rounds=ROUNDS)


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_two_places(construct: str) -> None:
    """Sources are those of the place that calls, but for the programs' own."""
    function = functools.partial(CONSTRUCTS[construct], MESHES["four devices"])

    def here(make):
        return observe(make, lambda x: jax.grad(scalar(function))(x), X)

    def there(make):
        return observe(make, lambda x: jax.grad(scalar(function))(x), X)

    assert_history([here, there] * 4)


@pytest.mark.parametrize("construct", [elementwise, scalars, jit_within, in_one_jit])
def test_one_program_under_several_transformations(construct: Callable[..., Any]) -> None:
    """What jax has made of a program once it may show again."""
    names = ["jvp", "vmap", "grad", "jvp", "vmap of grad", "vmap", "grad of grad", "grad"]

    def f(x):
        jitted = jax.jit(lambda y: construct(MESHES["four devices"], y))
        made = [NESTS[name](jitted)(x) for name in names]
        return [leaf.sum() for leaf in jax.tree.leaves(made)]

    assert_history([trace_of(f, X)] * ROUNDS)


def test_meshes_and_specs_are_told_apart() -> None:
    def of(mesh, *specs, **options):
        def f(x):
            return jax.jit(mapped(MESHES[mesh], lambda y: jnp.sin(y) * y, *specs, **options))(x)

        return f

    explicit = jax.make_mesh((2, 2), ("i", "j"), axis_types=(AxisType.Explicit,) * 2)
    made = [
        of("one device"),
        of("four devices"),
        of("four devices", jax.P("j")),
        of("four devices", jax.P(("i", "j"))),
        of("four devices", jax.P(), jax.P()),
        of("four devices", check_vma=False),
        of("four devices", axis_names={"i"}),
        lambda x: jax.jit(mapped(explicit, lambda y: jnp.sin(y) * y))(x),
    ]
    for name in ("grad", "vmap"):
        assert_same_when_warm(*((NESTS[name](f), X) for f in made), rounds=ROUNDS)


# ---- what is remembered ----

REPLAYED: dict[str, tuple[str, ...]] = {
    "jvp": ("_jvp_jaxpr",),
    "vmap": ("_batch_jaxpr2",),
    "grad": ("_linearize_jaxpr", "_transpose_jaxpr_fancy"),
}
if "transpose of " not in KINDS:
    del REPLAYED["grad"]


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("nest", REPLAYED)
def test_shard_maps_in_jits_are_replayed(nest: str, mesh: str) -> None:
    function = NESTS[nest](functools.partial(in_one_jit, MESHES[mesh]))
    assert_replayed(REPLAYED[nest], function, X, rounds=ROUNDS)


@pytest.mark.skipif("transpose of " not in KINDS, reason="jax transposes linear programs")
@pytest.mark.parametrize("nest", ["grad", "vmap of grad", "grad of grad"])
def test_transpositions_are_replayed(nest: str) -> None:
    function = NESTS[nest](functools.partial(elementwise, MESHES["four devices"]))
    names = ("transpose of shard_map", "dead code of shard_map", "eval_jaxpr")
    assert_replayed(names, function, X, rounds=ROUNDS)
