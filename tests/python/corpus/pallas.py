"""Pallas kernels, interpreted."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from corpus.registry import case, f32, i32


def like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def add_kernel(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


@case(f32(8), f32(8))
def pallas_add():
    return lambda x, y: pl.pallas_call(add_kernel, like(x), interpret=True)(x, y)


@case(f32(16), f32(16))
def pallas_grid():
    def f(x, y):
        block = pl.BlockSpec((8,), lambda i: (i,))
        return pl.pallas_call(
            add_kernel, like(x), grid=(2,), in_specs=[block, block], out_specs=block, interpret=True
        )(x, y)

    return f


@case(f32(8, 4), f32(4, 8))
def pallas_matmul():
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    def f(x, y):
        return pl.pallas_call(
            kernel,
            jax.ShapeDtypeStruct((8, 8), x.dtype),
            grid=(2, 2),
            in_specs=[
                pl.BlockSpec((4, 4), lambda i, j: (i, 0)),
                pl.BlockSpec((4, 4), lambda i, j: (0, j)),
            ],
            out_specs=pl.BlockSpec((4, 4), lambda i, j: (i, j)),
            interpret=True,
        )(x, y)

    return f


@case(f32(8))
def pallas_program_id():
    def kernel(o_ref):
        i = pl.program_id(0)
        o_ref[i] = i * pl.num_programs(0)

    return lambda x: (
        x
        + pl.pallas_call(kernel, jax.ShapeDtypeStruct((8,), jnp.int32), grid=(8,), interpret=True)()
    )


@case(f32(8))
def pallas_loop_and_condition():
    def kernel(x_ref, o_ref):
        def body(i, total):
            return total + x_ref[i]

        o_ref[0] = jax.lax.fori_loop(0, x_ref.shape[0], body, 0.0)

        @pl.when(o_ref[0] > 0)
        def _():
            o_ref[0] = o_ref[0] * 2

    return lambda x: pl.pallas_call(kernel, jax.ShapeDtypeStruct((1,), x.dtype), interpret=True)(x)


@case(f32(8))
def pallas_two_outputs():
    def kernel(x_ref, a_ref, b_ref):
        a_ref[...] = jnp.sin(x_ref[...])
        b_ref[...] = x_ref[...] * 2

    return lambda x: pl.pallas_call(kernel, [like(x), like(x)], name="both", interpret=True)(x)


@case(f32(8))
def pallas_aliased():
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + 1

    return lambda x: pl.pallas_call(kernel, like(x), input_output_aliases={0: 0}, interpret=True)(x)


@case(f32(3, 8), f32(3, 8))
def pallas_vmap():
    return lambda x, y: jax.vmap(
        lambda a, b: pl.pallas_call(add_kernel, like(a), interpret=True)(a, b)
    )(x, y)


@case(f32(8), f32(8))
def pallas_in_jit():
    @jax.jit
    def add(x, y):
        return pl.pallas_call(add_kernel, like(x), interpret=True)(x, y)

    return lambda x, y: add(x, y) * add(y, x)


@case(f32(8), i32(4, low=0, high=8))
def pallas_dynamic_slice():
    def kernel(x_ref, i_ref, o_ref):
        start = i_ref[0] // 2
        o_ref[...] = x_ref[pl.ds(start, 4)]

    return lambda x, i: pl.pallas_call(kernel, jax.ShapeDtypeStruct((4,), x.dtype), interpret=True)(
        x, i
    )


@case(f32(8))
def pallas_partial_kernel():
    def kernel(x_ref, o_ref, *, scale):
        o_ref[...] = x_ref[...] * scale

    return lambda x: pl.pallas_call(functools.partial(kernel, scale=3.0), like(x), interpret=True)(
        x
    )


@case(f32(8))
def pallas_jvp():
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.sin(x_ref[...])

    return lambda x: jax.jvp(
        lambda v: pl.pallas_call(kernel, like(v), interpret=True)(v), (x,), (x,)
    )
