"""grad, jvp, vjp, linearize, transposition, Jacobians and vmap."""

import jax
import jax.numpy as jnp

from corpus.registry import call, case, f32, i32


def mlp(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return x @ w + b


PARAMS = [(f32(3, 4), f32(4)), (f32(4, 2), f32(2))]

call("grad", lambda x: jax.grad(lambda v: jnp.sin(v).sum())(x), f32(3))
call("grad_of_grad", lambda x: jax.grad(jax.grad(lambda v: v**3 * jnp.exp(v)))(x), f32())
call("grad_third", lambda x: jax.grad(jax.grad(jax.grad(jnp.sin)))(x), f32())
call(
    "grad_argnums", lambda x, y: jax.grad(lambda a, b: (a * b).sum(), (0, 1))(x, y), f32(3), f32(3)
)
call("grad_aux", lambda x: jax.grad(lambda v: (v.sum(), {"v": v * 2}), has_aux=True)(x), f32(3))
call("grad_mlp", lambda p, x: jax.grad(lambda q: mlp(q, x).sum())(p), PARAMS, f32(5, 3))
call(
    "value_and_grad_mlp",
    lambda p, x: jax.value_and_grad(lambda q: mlp(q, x).mean())(p),
    PARAMS,
    f32(3),
)
call("grad_unused_argument", lambda x, y: jax.grad(lambda a, b: a.sum(), 1)(x, y), f32(3), f32(2))
call("grad_allow_int", lambda i: jax.grad(lambda v: v.sum() * 1.0, allow_int=True)(i), i32(3))
call(
    "grad_stop_gradient",
    lambda x: jax.grad(lambda v: (v * jax.lax.stop_gradient(v)).sum())(x),
    f32(3),
)
call("jvp", lambda x, t: jax.jvp(jnp.sin, (x,), (t,)), f32(3), f32(3))
call(
    "jvp_of_jvp",
    lambda x, t: jax.jvp(lambda v: jax.jvp(jnp.sin, (v,), (t,)), (x,), (t,)),
    f32(3),
    f32(3),
)
call(
    "jvp_aux", lambda x, t: jax.jvp(lambda v: (v * 2, v), (x,), (t,), has_aux=True), f32(3), f32(3)
)
call("vjp", lambda x, c: jax.vjp(jnp.sin, x)[1](c), f32(3), f32(3))
call("vjp_twice", lambda x, c: [jax.vjp(jnp.sin, x)[1](k * c) for k in (1.0, 2.0)], f32(3), f32(3))


@case(f32(3), f32(3))
def vjp_pullback_applied_twice():
    def f(x, c):
        y, pullback = jax.vjp(lambda v: (jnp.sin(v), v * 2), x)
        return y, pullback((c, c)), pullback((c * 2, c))

    return f


@case(f32(3), f32(3))
def linearize():
    def f(x, t):
        y, tangent = jax.linearize(lambda v: jnp.sin(v) * v, x)
        return y, tangent(t), tangent(2 * t)

    return f


@case(f32(3, 3), f32(3))
def linear_transpose():
    return lambda a, c: jax.linear_transpose(lambda v: a @ v, c)(c)


call("jacfwd", lambda x: jax.jacfwd(lambda v: jnp.sin(v) * v.sum())(x), f32(3))
call("jacrev", lambda x: jax.jacrev(lambda v: jnp.sin(v) * v.sum())(x), f32(3))
call(
    "jacfwd_pytree", lambda p: jax.jacfwd(lambda q: q["a"] * q["b"])(p), {"a": f32(2), "b": f32(2)}
)
call("hessian", lambda x: jax.hessian(lambda v: (v**3).sum() * v[0])(x), f32(3))
call("hvp", lambda x, t: jax.jvp(jax.grad(lambda v: (v**3).sum()), (x,), (t,)), f32(3), f32(3))
call("grad_of_vmap", lambda x: jax.grad(lambda v: jax.vmap(jnp.sin)(v).sum())(x), f32(3))
call("vmap_of_grad", lambda x: jax.vmap(jax.grad(lambda v: jnp.sin(v) * v))(x), f32(3))
call("vmap", lambda x: jax.vmap(jnp.sin)(x), f32(3))
call("vmap_axes", lambda x, y: jax.vmap(jnp.dot, (0, 1), 0)(x, y), f32(4, 3), f32(3, 4))
call("vmap_in_axes_none", lambda x, y: jax.vmap(jnp.multiply, (0, None))(x, y), f32(4, 3), f32(3))
call("vmap_out_axes", lambda x: jax.vmap(lambda v: v * 2, out_axes=1)(x), f32(4, 3))
call(
    "vmap_nested",
    lambda x, y: jax.vmap(jax.vmap(jnp.dot, (None, 0)), (0, None))(x, y),
    f32(4, 3),
    f32(5, 3),
)
call(
    "vmap_pytree",
    lambda d: jax.vmap(lambda e: e["a"] + e["b"].sum())(d),
    {"a": f32(4), "b": f32(4, 2)},
)
call("vmap_constant_output", lambda x: jax.vmap(lambda v: 1.0)(x), f32(4))
call("vmap_axis_size", lambda: jax.vmap(lambda: jnp.float32(1), axis_size=3)())
call("vmap_matmul", lambda x, w: jax.vmap(lambda v: v @ w)(x), f32(4, 3), f32(3, 2))
call(
    "vmap_gather", lambda x, i: jax.vmap(lambda v, j: v[j])(x, i), f32(4, 5), i32(4, low=0, high=5)
)
call(
    "vmap_collective",
    lambda x: jax.vmap(lambda v: v / jax.lax.psum(v, "i"), axis_name="i")(x),
    f32(4),
)
call("eval_shape_inside", lambda x: x * jax.eval_shape(lambda v: v @ v.T, x).shape[0], f32(3, 2))


@case(f32(), f32())
def closure_convert():
    def f(x, y):
        converted, consts = jax.closure_convert(lambda v: x * v, y)
        return converted(y, *consts)

    return f
