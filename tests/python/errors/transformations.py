"""Transformations applied to what they cannot transform."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from . import bad_use, bad_uses

_vector = np.ones(3, np.float32)


def _mesh(*names):
    devices = np.array(jax.devices()[:8]).reshape([8] + [1] * (len(names) - 1))
    return Mesh(devices, names)


@bad_use
def custom_vjp_without_rules(make):
    make(jax.grad(jax.custom_vjp(lambda x: x)))(1.0)


@bad_use
def custom_jvp_without_rule(make):
    make(jax.jvp)(jax.custom_jvp(lambda x: x), (1.0,), (1.0,))


@bad_use
def custom_jvp_without_rule_traced(make):
    f = jax.custom_jvp(lambda x: x)
    make(lambda x: jax.jvp(f, (x,), (x,)))(1.0)


def _custom_vjp(forward, backward, primal=lambda x: jnp.sin(x)):
    function = jax.custom_vjp(primal)
    function.defvjp(forward, backward)
    return function


@bad_use
def custom_vjp_forward_not_a_pair(make):
    make(jax.grad(_custom_vjp(lambda x: jnp.sin(x), lambda r, ct: (ct,))))(1.0)


@bad_use
def custom_vjp_forward_tree(make):
    make(jax.grad(_custom_vjp(lambda x: ((x, x), x), lambda r, ct: (ct,))))(1.0)


@bad_use
def custom_vjp_forward_shape(make):
    make(jax.grad(_custom_vjp(lambda x: (jnp.stack([x, x]), x), lambda r, ct: (ct,))))(1.0)


@bad_use
def custom_vjp_backward_count(make):
    make(jax.grad(_custom_vjp(lambda x: (x, x), lambda r, ct: (ct, ct))))(1.0)


@bad_use
def custom_vjp_backward_type(make):
    make(jax.grad(_custom_vjp(lambda x: (x, x), lambda r, ct: ct)))(1.0)


@bad_use
def custom_vjp_backward_shape(make):
    make(jax.grad(_custom_vjp(lambda x: (x, x), lambda r, ct: (jnp.ones(3),))))(1.0)


@bad_use
def custom_vjp_differentiating_static(make):
    @partial(jax.custom_vjp, nondiff_argnums=(1,))
    def f(x, n):
        return x * n

    f.defvjp(lambda x, n: (x * n, x), lambda n, r, ct: (ct * n,))
    make(lambda x, n: jax.grad(f, argnums=1)(x, n))(1.0, 2.0)


@bad_use
def custom_jvp_rule_result(make):
    f = jax.custom_jvp(lambda x: x)
    f.defjvp(lambda primals, tangents: primals[0])
    make(jax.grad(f))(1.0)


@bad_use
def custom_jvp_tangent_shape(make):
    f = jax.custom_jvp(lambda x: x)
    f.defjvp(lambda primals, tangents: (primals[0], jnp.ones(3)))
    make(jax.grad(f))(1.0)


@bad_use
def custom_jvp_tangent_tree(make):
    f = jax.custom_jvp(lambda x: x)
    f.defjvp(lambda primals, tangents: (primals[0], (tangents[0], tangents[0])))
    make(jax.grad(f))(1.0)


@bad_use
def custom_vmap_rule_result(make):
    f = jax.custom_batching.custom_vmap(lambda x: jnp.sin(x))
    f.def_vmap(lambda axis_size, in_batched, x: jnp.sin(x))
    make(jax.vmap(f))(_vector)


@bad_use
def custom_vmap_without_rule(make):
    make(jax.vmap(jax.custom_batching.custom_vmap(lambda x: jnp.sin(x))))(_vector)


@bad_use
def vjp_cotangent_tree(make):
    def f(x):
        _, pull_back = jax.vjp(lambda v: (v, v), x)
        return pull_back(x)

    make(f)(1.0)


@bad_use
def vjp_cotangent_shape(make):
    def f(x):
        _, pull_back = jax.vjp(jnp.sin, x)
        return pull_back(jnp.ones(3))

    make(f)(1.0)


@bad_use
def vjp_cotangent_dtype(make):
    def f(x):
        _, pull_back = jax.vjp(jnp.sin, x)
        return pull_back(1)

    make(f)(1.0)


@bad_use
def linearize_tangent_shape(make):
    def f(x):
        _, push_forward = jax.linearize(jnp.sin, x)
        return push_forward(jnp.ones(3))

    make(f)(1.0)


@bad_use
def shard_map_without_mesh(make):
    make(lambda x: jax.shard_map(lambda v: v, in_specs=P("i"), out_specs=P("i"))(x))(np.ones(8))


@bad_use
def shard_map_indivisible(make):
    make(jax.shard_map(lambda v: v, mesh=_mesh("i"), in_specs=P("i"), out_specs=P("i")))(np.ones(7))


@bad_use
def shard_map_unknown_axis(make):
    make(jax.shard_map(lambda v: v, mesh=_mesh("i"), in_specs=P("j"), out_specs=P("i")))(np.ones(8))


@bad_use
def shard_map_replication(make):
    make(jax.shard_map(lambda v: v, mesh=_mesh("i"), in_specs=P("i"), out_specs=P()))(np.ones(8))


@bad_use
def shard_map_specification_tree(make):
    make(jax.shard_map(lambda v: v, mesh=_mesh("i"), in_specs=(P("i"), P("i")), out_specs=P("i")))(
        np.ones(8)
    )


@bad_use
def shard_map_specification_rank(make):
    make(jax.shard_map(lambda v: v, mesh=_mesh("i"), in_specs=P("i", None), out_specs=P("i")))(
        np.ones(8)
    )


@bad_use
def shard_map_error_in_the_body(make):
    make(jax.shard_map(lambda v: float(v), mesh=_mesh("i"), in_specs=P("i"), out_specs=P("i")))(
        np.ones(8)
    )


@bad_use
def sharding_constraint_rank(make):
    sharding = NamedSharding(_mesh("i"), P("i", None))
    make(lambda x: lax.with_sharding_constraint(x, sharding))(np.ones(8))


@bad_use
def sharding_constraint_without_mesh(make):
    make(lambda x: lax.with_sharding_constraint(x, P("i")))(np.ones(8))


@bad_use
def explicit_sharding_conflict(make):
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        x = jax.device_put(np.ones(8), NamedSharding(mesh, P("a")))
        y = jax.device_put(np.ones(8), NamedSharding(mesh, P("b")))
        make(lambda x, y: x + y)(x, y)


@bad_use
def mesh_set_while_tracing(make):
    mesh = _mesh("i")

    def f(x):
        with jax.set_mesh(mesh):
            return x

    make(f)(1.0)


@bad_use
def pmap_sizes(make):
    make(jax.pmap(lambda x, y: x + y))(np.ones(2), np.ones(3))


@bad_use
def pmap_too_many(make):
    make(jax.pmap(lambda x: x))(np.ones(64))


bad_uses(
    grad_of_vector=lambda make: make(jax.grad(lambda x: x))(_vector),
    grad_of_integer=lambda make: make(jax.grad(lambda x: x))(1),
    grad_of_bool=lambda make: make(jax.grad(lambda x: x * 1.0))(True),
    grad_of_complex=lambda make: make(jax.grad(lambda x: x))(1j),
    grad_result_integer=lambda make: make(jax.grad(lambda x: jnp.int32(x)))(1.0),
    grad_result_complex=lambda make: make(jax.grad(lambda x: x * 1j))(1.0),
    grad_result_tuple=lambda make: make(jax.grad(lambda x: (x, x)))(1.0),
    grad_result_none=lambda make: make(jax.grad(lambda x: None))(1.0),
    grad_result_string=lambda make: make(jax.grad(lambda x: "text"))(1.0),
    grad_argnums=lambda make: make(jax.grad(lambda x: x, argnums=2))(1.0),
    grad_argnums_type=lambda make: make(jax.grad(lambda x: x, argnums="x"))(1.0),
    grad_auxiliary=lambda make: make(jax.grad(lambda x: x, has_aux=True))(1.0),
    grad_auxiliary_triple=lambda make: make(jax.grad(lambda x: (x, x, x), has_aux=True))(1.0),
    grad_of_string=lambda make: make(lambda x: jax.grad(lambda y: y)("text"))(1.0),
    grad_of_key=lambda make: make(jax.grad(lambda k: 1.0))(jax.random.key(0)),
    grad_not_callable=lambda make: make(lambda x: jax.grad(3)(x))(1.0),
    value_and_grad_of_vector=lambda make: make(jax.value_and_grad(lambda x: x * 2))(_vector),
    jacfwd_of_integer=lambda make: make(jax.jacfwd(lambda x: x))(1),
    jacrev_of_integer=lambda make: make(jax.jacrev(lambda x: x))(1),
    hessian_of_integer=lambda make: make(jax.hessian(lambda x: x * 1.0))(1),
    jvp_tree=lambda make: make(lambda x: jax.jvp(jnp.sin, (x,), (x, x)))(1.0),
    jvp_dtype=lambda make: make(lambda x: jax.jvp(jnp.sin, (x,), (1,)))(1.0),
    jvp_shape=lambda make: make(lambda x: jax.jvp(jnp.sin, (x,), (jnp.ones(3),)))(1.0),
    jvp_not_tuples=lambda make: make(lambda x: jax.jvp(jnp.sin, x, x))(1.0),
    linear_transpose_nonlinear=lambda make: make(lambda x: jax.linear_transpose(jnp.sin, x)(x))(
        1.0
    ),
    linear_transpose_cotangent=lambda make: make(
        lambda x: jax.linear_transpose(lambda v: v * 2, x)((x, x))
    )(1.0),
    closure_convert_argument=lambda make: make(lambda x: jax.closure_convert(jnp.sin, "text"))(1.0),
    checkpoint_static=lambda make: make(jax.checkpoint(lambda x, flag: x if flag else -x))(
        1.0, True
    ),
    checkpoint_static_of_tracer=lambda make: make(
        jax.checkpoint(lambda v, n: v if n else -v, static_argnums=1)
    )(1.0, 2),
    checkpoint_policy=lambda make: make(
        jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), policy=lambda *_, **__: "text"))
    )(1.0),
    vmap_sizes=lambda make: make(jax.vmap(lambda x, y: x + y))(np.ones(2), np.ones(3)),
    vmap_sizes_in_a_tree=lambda make: make(jax.vmap(lambda p, x: x))(
        {"a": np.ones(2), "b": [np.ones(3)]}, np.ones(2)
    ),
    vmap_of_scalar=lambda make: make(jax.vmap(lambda x: x))(1.0),
    vmap_without_arguments=lambda make: make(lambda x: jax.vmap(lambda: 1.0)())(1.0),
    vmap_nothing_mapped=lambda make: make(jax.vmap(lambda x: x, in_axes=None))(1.0),
    vmap_in_axes_count=lambda make: make(jax.vmap(lambda x: x, in_axes=(0, 0)))(_vector),
    vmap_in_axes_range=lambda make: make(jax.vmap(lambda x: x, in_axes=2))(_vector),
    vmap_in_axes_type=lambda make: make(lambda x: jax.vmap(lambda v: v, in_axes="a")(x))(_vector),
    vmap_out_axes=lambda make: make(jax.vmap(lambda x: x, out_axes=3))(_vector),
    vmap_out_axes_none=lambda make: make(jax.vmap(lambda x: x, out_axes=None))(_vector),
    vmap_out_axes_tree=lambda make: make(jax.vmap(lambda x: x, out_axes=(0, 0)))(_vector),
    vmap_axis_size=lambda make: make(jax.vmap(lambda x: x, axis_size=4))(_vector),
    vmap_result=lambda make: make(jax.vmap(lambda x: "text"))(_vector),
    psum_unbound_axis=lambda make: make(lambda x: lax.psum(x, "i"))(1.0),
    axis_index_unbound=lambda make: make(lambda x: lax.axis_index("i"))(1.0),
    axis_size_unbound=lambda make: make(lambda x: lax.axis_size("i"))(1.0),
    all_gather_unbound=lambda make: make(lambda x: lax.all_gather(x, "i"))(_vector),
    psum_axis_type=lambda make: make(lambda x: lax.psum(x, None))(1.0),
    psum_of_string=lambda make: make(jax.vmap(lambda x: lax.psum("a", "i"), axis_name="i"))(
        _vector
    ),
    ppermute_unbound=lambda make: make(lambda x: lax.ppermute(x, "i", [(0, 1)]))(1.0),
    ppermute_permutation=lambda make: make(
        jax.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (0, 2)]), axis_name="i")
    )(_vector),
    all_to_all_size=lambda make: make(
        jax.vmap(lambda x: lax.all_to_all(x, "i", 0, 0), axis_name="i")
    )(np.ones((3, 2))),
    axis_name_out_of_scope=lambda make: make(
        lambda x: jax.vmap(lambda v: v, axis_name="i")(x) + lax.axis_index("i")
    )(_vector),
    psum_axis_number=lambda make: make(lambda x: lax.psum(x, 3.5))(1.0),
    device_put_target=lambda make: make(lambda x: jax.device_put(x, "cpu"))(1.0),
    device_put_tree=lambda make: make(lambda x: jax.device_put([x], [None, None]))(1.0),
    named_scope_type=lambda make: make(lambda x: jax.named_scope(3).__enter__())(1.0),
    eval_shape_argument=lambda make: make(lambda x: jax.eval_shape(jnp.sin, "text"))(1.0),
    lowering_a_tracer=lambda make: make(lambda x: jax.jit(jnp.sin).lower(x).compile()(x))(1.0),
)
