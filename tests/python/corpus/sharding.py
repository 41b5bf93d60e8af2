"""Meshes: explicit and automatic sharding, shard_map and pmap on eight host devices."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from corpus.registry import Spec, call, case, f32, given, i32


def mesh(*sizes, axes=("x", "y"), kind=AxisType.Auto):
    return jax.make_mesh(sizes, axes[: len(sizes)], axis_types=(kind,) * len(sizes))


def explicit(*sizes):
    return lambda: jax.set_mesh(mesh(*sizes, kind=AxisType.Explicit))


def automatic(*sizes):
    return lambda: jax.set_mesh(mesh(*sizes))


def placed(spec: Spec, *names) -> Spec:
    """The argument laid out over the mesh that the case is entered with."""
    return Spec(lambda rng: jax.device_put(spec.make(rng), P(*names)))


LINE, GRID = explicit(8), explicit(4, 2)
X, XY = placed(f32(8, 4), "x"), placed(f32(8, 4), "x", "y")

call("explicit_elementwise", lambda x: jnp.sin(x) * 2, X, context=LINE)
call("explicit_grid", lambda x: (x + x, x.T, x.sum(0), x.sum(1), x.sum()), XY, context=GRID)
call(
    "explicit_matmul",
    lambda x, w: x @ w,
    placed(f32(8, 4), "x", None),
    placed(f32(4, 2), None, "y"),
    context=GRID,
)
call(
    "explicit_matmul_contracted",
    lambda x, w: jnp.einsum("ij,jk->ik", x, w, out_sharding=P("x", None)),
    placed(f32(8, 4), "x", "y"),
    placed(f32(4, 2), "y", None),
    context=GRID,
)
call(
    "explicit_reshard", lambda x: jax.reshard(x, P(None, "x")), placed(f32(8, 8), "x"), context=LINE
)
call(
    "explicit_reshape",
    lambda x: (x.reshape(8, 2, 2), lax.reshape(x, (32,), out_sharding=P("x"))),
    X,
    context=LINE,
)
call("explicit_broadcast", lambda x, y: x + y, X, placed(f32(4)), context=LINE)
call("explicit_grad", lambda x: jax.grad(lambda v: (jnp.sin(v) ** 2).sum())(x), X, context=LINE)
call(
    "explicit_scan",
    lambda x: lax.scan(lambda c, v: (c + v, v * 2), jnp.zeros(4), x),
    placed(f32(3, 4)),
    context=LINE,
)
call(
    "explicit_scan_sharded_carry",
    lambda c, x: lax.scan(lambda a, v: (a * v, None), c, x)[0],
    X,
    placed(f32(3, 4)),
    context=LINE,
)
call("explicit_cond", lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), X, context=LINE)
call("explicit_vmap", lambda x: jax.vmap(lambda v: v * v.sum())(x), X, context=LINE)
call(
    "explicit_indexing",
    lambda x, i: x.at[i].get(out_sharding=P(None, None)),
    X,
    placed(i32(3, low=0, high=8)),
    context=LINE,
)
call("explicit_jit", lambda x: jax.jit(lambda v: v * 2)(x), X, context=LINE)
call(
    "explicit_auto_axes",
    lambda x: jax.sharding.auto_axes(lambda v: jnp.sort(v, axis=0), out_sharding=P("x"))(x),
    X,
    context=LINE,
)
call(
    "explicit_one_hot",
    lambda i: jax.nn.one_hot(i, 4),
    placed(i32(8, low=0, high=4), "x"),
    context=LINE,
)
call(
    "auto_constraint",
    lambda x: lax.with_sharding_constraint(x * 2, P("x")),
    X,
    context=automatic(8),
)
call(
    "auto_constraint_grad",
    lambda x: jax.grad(lambda v: lax.with_sharding_constraint(v, P("x")).sum())(x),
    X,
    context=automatic(8),
)
call(
    "auto_constraint_named",
    lambda x: lax.with_sharding_constraint(x, NamedSharding(mesh(2, 4), P("x", "y"))),
    f32(8, 4),
)
call("device_put_named", lambda x: jax.device_put(x, NamedSharding(mesh(8), P("x"))), f32(8))
call(
    "device_put_device", lambda x: (jax.device_put(x, jax.devices()[0]), jax.device_put(x)), f32(8)
)
call(
    "jit_shardings",
    lambda x: jax.jit(
        lambda v: v * 2,
        in_shardings=NamedSharding(mesh(8), P("x")),
        out_shardings=NamedSharding(mesh(8), P()),
    )(x),
    f32(8),
)
call(
    "sharded_argument_no_context",
    lambda x: x * 2,
    given(lambda: jax.device_put(jnp.ones(8), NamedSharding(mesh(8), P("x")))),
)
call(
    "committed_argument",
    lambda x: x + 1,
    given(lambda: jax.device_put(jnp.ones(4), jax.devices()[3])),
)


@case(f32(8))
def constant_sharded():
    table = jax.device_put(jnp.arange(8.0), NamedSharding(mesh(8), P("x")))
    return lambda x: jnp.dot(x, table)


def mapped(body, in_specs=P("x"), out_specs=P("x"), sizes=(8,), **options):
    """A factory of the body under shard_map."""
    return lambda *args: jax.shard_map(
        body, mesh=mesh(*sizes), in_specs=in_specs, out_specs=out_specs, **options
    )(*args)


call("shard_map", mapped(lambda x: x * 2), f32(8, 2))
call("shard_map_psum", mapped(lambda x: lax.psum(x, "x"), out_specs=P()), f32(8, 2))
call("shard_map_axis_index", mapped(lambda x: x + lax.axis_index("x") * lax.axis_size("x")), f32(8))
call(
    "shard_map_ppermute",
    mapped(lambda x: lax.ppermute(x, "x", [(i, (i + 1) % 8) for i in range(8)])),
    f32(8),
)
call(
    "shard_map_all_gather",
    mapped(lambda x: lax.all_gather(x, "x", tiled=True), out_specs=P(), check_vma=False),
    f32(8, 2),
)
call("shard_map_all_to_all", mapped(lambda x: lax.all_to_all(x, "x", 1, 0)), f32(8, 8))
call(
    "shard_map_psum_scatter",
    mapped(lambda x: lax.psum_scatter(x, "x", tiled=True), in_specs=P(None), check_vma=False),
    f32(8),
)
call(
    "shard_map_reductions",
    mapped(lambda x: (lax.pmax(x, "x"), lax.pmin(x, "x"), lax.pmean(x, "x")), out_specs=P()),
    f32(8),
)
call(
    "shard_map_grid",
    mapped(lambda x: lax.psum(x, "y"), P("x", "y"), P("x", None), sizes=(4, 2)),
    f32(8, 4),
)
call(
    "shard_map_grad",
    lambda x: jax.grad(lambda v: mapped(lambda u: lax.psum((u**2).sum(), "x"), out_specs=P())(v))(
        x
    ),
    f32(8),
)
call(
    "shard_map_scan",
    mapped(lambda x: lax.scan(lambda c, _: (c + x, None), x, None, length=2)[0]),
    f32(8),
)
call("shard_map_pcast", mapped(lambda x: x + lax.pcast(jnp.ones(1), "x", to="varying")), f32(8))
call(
    "shard_map_partly_automatic",
    lambda x: jax.jit(
        jax.shard_map(
            lambda v: v * lax.axis_size("x"),
            mesh=mesh(4, 2),
            in_specs=P("x"),
            out_specs=P("x"),
            axis_names={"x"},
        )
    )(x),
    f32(8, 2),
)
call("shard_map_in_jit", lambda x: jax.jit(mapped(jnp.sin))(x), f32(8))
call("shard_map_closed_over", lambda x, w: mapped(lambda v: v * w.sum())(x), f32(8), f32(3))
call(
    "shard_map_two_arguments",
    mapped(lambda x, w: x @ w, (P("x"), P()), P("x")),
    f32(8, 3),
    f32(3, 2),
)
call(
    "shard_map_from_context",
    lambda x: jax.shard_map(lambda v: v * 2, out_specs=P("x"))(x),
    X,
    context=LINE,
)

call("pmap", lambda x: jax.pmap(lambda v: v * 2)(x), f32(8, 2))
call("pmap_psum", lambda x: jax.pmap(lambda v: lax.psum(v, "i"), axis_name="i")(x), f32(8))
call(
    "pmap_in_axes",
    lambda x, y: jax.pmap(lambda a, b: a + b, in_axes=(0, None))(x, y),
    f32(8, 2),
    f32(2),
)
call("pmap_grad", lambda x: jax.grad(lambda v: jax.pmap(jnp.sin)(v).sum())(x), f32(8))


@case(f32(8, 4), f32(4, 4))
def data_parallel_gradient():
    grid = mesh(8)

    @functools.partial(jax.shard_map, mesh=grid, in_specs=(P("x"), P()), out_specs=P())
    def gradient(x, w):
        return lax.pmean(jax.grad(lambda v: jnp.tanh(x @ v).mean())(w), "x")

    return lambda x, w: w - 0.1 * gradient(x, w)
