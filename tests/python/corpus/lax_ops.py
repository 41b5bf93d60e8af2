"""The operators of jax.lax."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from corpus.registry import bf16, boolean, c64, call, case, f32, i8, i32, key, u8, u32, unit

for _name in """
    abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf
    erf_inv erfc exp exp2 expm1 floor is_finite lgamma log log1p logistic neg reciprocal round rsqrt
    sign sin sinh sqrt square tan tanh stop_gradient
""".split():
    call(
        f"lax.{_name}",
        getattr(lax, _name),
        f32(3, low=1.1, high=2.0) if _name == "acosh" else unit(3),
    )

for _name in """
    add atan2 div eq ge gt igamma igammac le lt max min mul ne nextafter pow rem sub zeta polygamma
""".split():
    call(f"lax.{_name}", getattr(lax, _name), unit(3), f32(3, low=1.1, high=2.0))

for _name in "bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic".split():
    call(f"lax.{_name}", getattr(lax, _name), i32(3, low=1, high=5), i32(3, low=1, high=5))

for _name in "bitwise_not clz population_count".split():
    call(f"lax.{_name}", getattr(lax, _name), u32(3))

call(
    "lax.complex_parts",
    lambda x, y: (lax.complex(x, y), lax.real(lax.complex(x, y))),
    f32(3),
    f32(3),
)
call("lax.conj_imag", lambda z: (lax.conj(z), lax.imag(z), lax.abs(z)), c64(3))
call("lax.integer_pow", lambda x: (lax.integer_pow(x, 3), lax.integer_pow(x, -2)), unit(3))
call("lax.regularized_beta", lambda a, b, x: lax.betainc(a, b, x), unit(3), unit(3), unit(3))
call("lax.random_gamma_grad", lax.random_gamma_grad, unit(3), unit(3))
call("lax.fma_like", lambda x: lax.add(lax.mul(x, 2.0), 1.0), f32(3))
call("lax.clamp", lambda x: lax.clamp(-1.0, x, 1.0), f32(3))
call("lax.select", lax.select, boolean(3), f32(3), f32(3))
call("lax.select_n", lambda i, x: lax.select_n(i, x, x * 2, x * 3), i32(3, low=0, high=3), f32(3))
call(
    "lax.convert_element_type",
    lambda x: (lax.convert_element_type(x, jnp.int8), lax.convert_element_type(x, float)),
    f32(3),
)
call(
    "lax.bitcast_convert_type",
    lambda x: (lax.bitcast_convert_type(x, jnp.int32), lax.bitcast_convert_type(x, jnp.uint8)),
    f32(3),
)
call("lax.reduce_precision", lambda x: lax.reduce_precision(x, 5, 10), f32(3))
call("lax.broadcast", lambda x: lax.broadcast(x, (2, 4)), f32(3))
call("lax.broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (1,)), f32(3))
call(
    "lax.broadcasted_iota",
    lambda: (lax.iota(jnp.int32, 4), lax.broadcasted_iota(jnp.float32, (2, 3), 1)),
)
call("lax.concatenate", lambda x, y: lax.concatenate([x, y], 0), f32(2, 3), f32(1, 3))
call("lax.expand_squeeze", lambda x: lax.squeeze(lax.expand_dims(x, (0, 2)), (2,)), f32(3))
call("lax.full", lambda x: (lax.full((2,), 3.0), lax.full_like(x, 1)), f32(3))
call("lax.pad", lambda x: lax.pad(x, 0.0, ((1, 2, 1), (-1, 0, 0))), f32(3, 4))
call("lax.reshape", lambda x: lax.reshape(x, (4, 3)), f32(3, 4))
call("lax.reshape_dimensions", lambda x: lax.reshape(x, (12,), (1, 0)), f32(3, 4))
call("lax.rev", lambda x: lax.rev(x, (0, 1)), f32(3, 4))
call("lax.slice", lambda x: lax.slice(x, (1, 0), (3, 4), (1, 2)), f32(3, 4))
call(
    "lax.slice_in_dim", lambda x: (lax.slice_in_dim(x, 1, 3), lax.index_in_dim(x, 1, 1)), f32(3, 4)
)
call("lax.split", lambda x: lax.split(x, (1, 3), axis=1), f32(3, 4))
call("lax.tile", lambda x: lax.tile(x, (2, 3)), f32(2, 2))
call("lax.transpose", lambda x: lax.transpose(x, (1, 2, 0)), f32(2, 3, 4))
call("lax.collapse", lambda x: lax.collapse(x, 1), f32(2, 3, 4))
call("lax.argmax", lambda x: (lax.argmax(x, 0, jnp.int32), lax.argmin(x, 1, jnp.uint8)), f32(3, 4))
call("lax.sort", lambda x: lax.sort(x, dimension=0), f32(3, 4))
call("lax.sort_key_val", lambda x, y: lax.sort_key_val(x, y), f32(4), i32(4))
call(
    "lax.sort_two_keys",
    lambda x, y, z: lax.sort((x, y, z), num_keys=2, is_stable=False),
    i32(4),
    i32(4),
    f32(4),
)
call("lax.top_k", lambda x: lax.top_k(x, 2), f32(3, 4))
call("lax.approx_max_k", lambda x: lax.approx_max_k(x, 2), f32(3, 8))
call("lax.dot", lax.dot, f32(3, 4), f32(4, 2))
call(
    "lax.dot_precision",
    lambda x, y: lax.dot(x, y, precision=lax.Precision.HIGHEST),
    f32(3, 4),
    f32(4),
)
call(
    "lax.dot_preferred_type",
    lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32),
    i8(3, 4),
    i8(4, 2),
)
call(
    "lax.dot_general",
    lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))),
    f32(2, 3, 4),
    f32(2, 4, 5),
)
call("lax.batch_matmul", lax.batch_matmul, f32(2, 3, 4), f32(2, 4, 5))
call(
    "lax.ragged_dot",
    lambda x, y, g: lax.ragged_dot(x, y, g),
    f32(4, 3),
    f32(2, 3, 2),
    i32(2, low=2, high=3),
)
call(
    "lax.conv",
    lambda x, k: lax.conv(x, k, (1, 1), "SAME"),
    f32(1, 2, 5, 5),
    f32(3, 2, 3, 3),
    tolerance=1e-4,
)
call(
    "lax.conv_general_dilated",
    lambda x, k: lax.conv_general_dilated(
        x,
        k,
        (2, 1),
        ((1, 1), (0, 2)),
        lhs_dilation=(1, 2),
        rhs_dilation=(2, 1),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ),
    f32(1, 5, 5, 2),
    f32(2, 2, 2, 3),
    tolerance=1e-4,
)
call(
    "lax.conv_groups",
    lambda x, k: lax.conv_general_dilated(x, k, (1,), "VALID", feature_group_count=2),
    f32(1, 4, 6),
    f32(4, 2, 3),
    tolerance=1e-4,
)
call(
    "lax.conv_transpose",
    lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"),
    f32(1, 3, 3, 2),
    f32(2, 2, 2, 3),
    tolerance=1e-4,
)
call(
    "lax.conv_patches",
    lambda x: lax.conv_general_dilated_patches(x, (2, 2), (1, 1), "VALID"),
    f32(1, 2, 4, 4),
)
call(
    "lax.conv_grad",
    lambda x, k: jax.grad(lambda w: lax.conv(x, w, (1, 1), "SAME").sum())(k),
    f32(1, 2, 4, 4),
    f32(3, 2, 3, 3),
    tolerance=1e-4,
)
call("lax.reduce_add", lambda x: lax.reduce(x, 0.0, lax.add, (0,)), f32(3, 4))
call("lax.reduce_custom", lambda x: lax.reduce(x, 1.0, lambda a, b: a * b + 0.0, (1,)), f32(3, 4))
call(
    "lax.reduce_two_operands",
    lambda x, i: lax.reduce((x, i), (0.0, 0), lambda a, b: (a[0] + b[0], a[1] + b[1]), (0,)),
    f32(4),
    i32(4),
)
call(
    "lax.reduce_named",
    lambda x: (
        lax.reduce_sum(x, (0,)),
        lax.reduce_max(x, (1,)),
        lax.reduce_min(x, (0,)),
        lax.reduce_prod(x, (0, 1)),
    ),
    f32(3, 4),
)
call(
    "lax.reduce_logic",
    lambda m: (lax.reduce_and(m, (0,)), lax.reduce_or(m, (1,)), lax.reduce_xor(m, (0,))),
    boolean(3, 4),
)
call(
    "lax.reduce_window",
    lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), "VALID"),
    f32(4, 4),
)
call(
    "lax.reduce_window_sum",
    lambda x: lax.reduce_window(x, 0.0, lax.add, (2,), (1,), ((1, 0),), window_dilation=(2,)),
    f32(5),
)
call(
    "lax.max_pool_grad",
    lambda x: jax.grad(
        lambda v: lax.reduce_window(v, -jnp.inf, lax.max, (2,), (2,), "VALID").sum()
    )(x),
    f32(4),
)
call(
    "lax.gather",
    lambda x, i: lax.gather(
        x, i, lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4), mode="clip"
    ),
    f32(3, 4),
    i32(2, 1, low=0, high=3),
)
call(
    "lax.scatter_add",
    lambda x, i, u: lax.scatter_add(x, i, u, lax.ScatterDimensionNumbers((1,), (0,), (0,))),
    f32(3, 4),
    i32(2, 1, low=0, high=3),
    f32(2, 4),
)
call(
    "lax.scatter_apply",
    lambda x, i: lax.scatter_apply(
        x, i, jnp.sin, lax.ScatterDimensionNumbers((), (0,), (0,)), update_shape=(2,)
    ),
    f32(4),
    i32(2, 1, low=0, high=4),
)
call("lax.optimization_barrier", lambda x: lax.optimization_barrier((x, x * 2)), f32(3))
call(
    "lax.after_all", lambda x: (lax.after_all(lax.create_token(), lax.create_token()), x)[1], f32(3)
)
call("lax.rng_bit_generator", lambda k: lax.rng_bit_generator(k, (3,)), u32(4))
call(
    "lax.rng_uniform",
    lambda a, b: lax.rng_uniform(a, b, (3,)),
    f32(),
    f32(),
    unevaluated="it is random",
)
call(
    "lax.custom_root",
    lambda a: lax.custom_root(
        lambda x: x * x - a,
        a,
        lambda f, x: lax.fori_loop(0, 8, lambda i, v: v - f(v) / (2 * v), x),
        lambda g, y: y / g(1.0),
    ),
    f32(low=1.0, high=4.0),
)
call(
    "lax.custom_linear_solve",
    lambda a, b: lax.custom_linear_solve(
        lambda x: a @ x,
        b,
        lambda mv, v: jnp.linalg.solve(a, v),
        symmetric=False,
        transpose_solve=lambda mv, v: jnp.linalg.solve(a.T, v),
    ),
    f32(3, 3),
    f32(3),
    tolerance=1e-2,
)
call(
    "lax.custom_linear_solve_grad",
    lambda a, b: jax.grad(
        lambda c: lax.custom_linear_solve(
            lambda x: a @ x, c, lambda mv, v: v / 2.0, symmetric=True
        ).sum()
    )(b),
    f32(3, 3),
    f32(3),
)
call(
    "lax.platform_dependent",
    lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos),
    f32(3),
)
call("lax.stop_gradient_pytree", lambda x: lax.stop_gradient({"a": x})["a"], f32(3))
call(
    "lax.composite",
    lambda x: lax.composite(lambda v, *, k: v * k, "my.scale", version=2)(x, k=3),
    f32(3),
)
call(
    "lax.cumulative_reverse",
    lambda x: (lax.cumsum(x, 1, reverse=True), lax.cummax(x, 0)),
    f32(3, 4),
)
call(
    "lax.dynamic_ops",
    lambda x, i: lax.dynamic_slice(lax.dynamic_update_slice(x, x[:1], (i, 0)), (0, i), (2, 2)),
    f32(3, 4),
    i32(low=0, high=3),
)
call(
    "lax.bits_of_dtypes",
    lambda x, u: (lax.population_count(u), lax.clz(u), lax.mul(x, x)),
    bf16(3),
    u8(3),
)
call("lax.key_operations", lambda k: lax.broadcast(k, (2,)), key())


@case(f32(3))
def lax_python_scalars():
    def f(x):
        return lax.add(x, 1.0), lax.mul(2.0, x), lax.max(x, np.float32(0)), lax.sub(1.0, 2.0)

    return f
