"""Side effects: callbacks, debugging and their order."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from corpus.registry import call, case, f32, i32


def double(x):
    return np.asarray(x) * 2


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


call("pure_callback", lambda x: jax.pure_callback(double, like(x), x), f32(3))
call(
    "pure_callback_vmap",
    lambda x: jax.vmap(lambda v: jax.pure_callback(double, like(v), v, vmap_method="sequential"))(
        x
    ),
    f32(3),
)
call(
    "pure_callback_expand_dims",
    lambda x: jax.vmap(lambda v: jax.pure_callback(double, like(v), v, vmap_method="expand_dims"))(
        x
    ),
    f32(3),
)
call("pure_callback_unused", lambda x: (jax.pure_callback(double, like(x), x), x)[1], f32(3))
call(
    "pure_callback_in_jit",
    lambda x: jax.jit(lambda v: jax.pure_callback(double, like(v), v))(x),
    f32(3),
)
call(
    "pure_callback_pytree",
    lambda x: jax.pure_callback(lambda d: {"r": np.asarray(d["x"])}, {"r": like(x)}, {"x": x})["r"],
    f32(3),
)
call("io_callback", lambda x: io_callback(double, like(x), x), f32(3))
call(
    "io_callback_ordered",
    lambda x: io_callback(
        double, like(x), io_callback(double, like(x), x, ordered=True), ordered=True
    ),
    f32(3),
)
call("io_callback_unused", lambda x: (io_callback(lambda v: None, None, x), x * 2)[1], f32(3))
call(
    "io_callback_in_scan",
    lambda x: jax.lax.scan(lambda c, v: (c + io_callback(double, like(v), v), None), 0.0, x)[0],
    f32(3),
)
call(
    "io_callback_ordered_in_scan",
    lambda x: jax.lax.scan(
        lambda c, v: (c + io_callback(double, like(v), v, ordered=True), None), 0.0, x
    )[0],
    f32(3),
)
call("debug_print", lambda x: (jax.debug.print("x = {}", x), x * 2)[1], f32(3))
call(
    "debug_print_keywords",
    lambda x: (jax.debug.print("{a} {b:.2f} {c}", a=x[0], b=x[1], c="text"), x)[1],
    f32(3),
)
call(
    "debug_print_ordered",
    lambda x: (
        jax.debug.print("{}", x, ordered=True),
        jax.debug.print("{}", x + 1, ordered=True),
        x,
    )[2],
    f32(3),
)
call("debug_print_without_values", lambda x: (jax.debug.print("here"), x)[1], f32(3))
call(
    "debug_print_vmap",
    lambda x: jax.vmap(lambda v: (jax.debug.print("{}", v), v * 2)[1])(x),
    f32(3),
)
call(
    "debug_print_grad",
    lambda x: jax.grad(lambda v: (jax.debug.print("{}", v), (v**2).sum())[1])(x),
    f32(3),
)
call(
    "debug_print_in_cond",
    lambda x: jax.lax.cond(
        x[0] > 0, lambda v: (jax.debug.print("{}", v), v)[1], lambda v: v * 2, x
    ),
    f32(3),
)
call(
    "debug_print_in_while",
    lambda n: jax.lax.while_loop(
        lambda c: c < 3, lambda c: (jax.debug.print("{}", c), c + 1)[1], n
    ),
    i32(low=0, high=3),
)
call(
    "debug_print_in_scan",
    lambda x: jax.lax.scan(lambda c, v: ((jax.debug.print("{}", v), c + v)[1], v), 0.0, x),
    f32(3),
)
call(
    "debug_print_in_jit",
    lambda x: jax.jit(lambda v: (jax.debug.print("{}", v), v + 1)[1])(x),
    f32(3),
)
call(
    "debug_print_in_checkpoint",
    lambda x: jax.grad(
        lambda v: jax.checkpoint(lambda u: (jax.debug.print("{}", u), jnp.sin(u).sum())[1])(v)
    )(x),
    f32(3),
)
call(
    "debug_callback", lambda x: (jax.debug.callback(lambda v, tag: None, x, tag="t"), x)[1], f32(3)
)
call(
    "debug_callback_ordered",
    lambda x: (jax.debug.callback(lambda v: None, x, ordered=True), x * 2)[1],
    f32(3),
)
call(
    "debug_callback_in_fori_loop",
    lambda x: jax.lax.fori_loop(
        0, 2, lambda i, v: (jax.debug.callback(lambda *_: None, i, v), v * 2)[1], x
    ),
    f32(3),
)


@case(f32(3))
def effects_of_several_kinds():
    def f(x):
        jax.debug.print("start {}", x)
        y = io_callback(double, like(x), x, ordered=True)
        jax.debug.callback(lambda v: None, y)
        return y + jax.pure_callback(double, like(x), x)

    return f


@case(f32(3))
def callback_in_custom_vjp():
    @jax.custom_vjp
    def host_sine(x):
        return jax.pure_callback(lambda v: np.sin(v), like(x), x)

    host_sine.defvjp(lambda x: (host_sine(x), x), lambda x, c: (c * jnp.cos(x),))
    return lambda x: jax.value_and_grad(lambda v: host_sine(v).sum())(x)


@case(f32(3))
def callback_partial():
    scale = functools.partial(np.multiply, np.float32(3))
    return lambda x: jax.pure_callback(scale, like(x), x)
