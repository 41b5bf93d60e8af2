"""Programs traced with 64-bit types enabled."""

import jax
import jax.numpy as jnp
import numpy as np

from corpus.registry import c128, call, f32, f64, given, i32, i64, key, u64


def _float32_inside(x):
    with jax.enable_x64(False):
        return x * jnp.ones(3)


def _float64_inside(x):
    with jax.enable_x64(True):
        return x + jnp.asarray(np.ones(3))


ON = {"x64": True}

call(
    "x64_default_dtypes",
    lambda: (jnp.ones(2), jnp.arange(2), jnp.array(1j), jnp.zeros(2, int)),
    **ON,
)
call("x64_arithmetic", lambda x: (x + 1, x * 2.5, x / 3, x**2), f64(3), **ON)
call(
    "x64_promotion",
    lambda x, y, i, j: (x + y, i + j, x + j, y * i),
    f32(3),
    f64(3),
    i32(3),
    i64(3),
    **ON,
)
call("x64_unsigned", lambda u, i: (u + i, u >> 1, u * 2.0), u64(3), i64(3), **ON)
call("x64_complex", lambda z: (z * 1j, jnp.abs(z), jnp.fft.fft(z)), c128(4), **ON)
call("x64_python_scalars", lambda i, x, z: (i + x, z * x, i // 2), 3, 2.5, 1j, **ON)
call(
    "x64_numpy_arguments",
    lambda x, i: (x * i, i.sum()),
    given(lambda: np.ones(3)),
    given(lambda: np.arange(3)),
    **ON,
)
call(
    "x64_reductions",
    lambda x, i: (x.mean(), x.var(), i.sum(), jnp.argmax(x), x.astype(jnp.float32).sum()),
    f64(3),
    i32(3),
    **ON,
)
call(
    "x64_indexing",
    lambda x, i: (x[i], x.at[i].add(1), x[1:], jnp.take(x, i)),
    f64(4),
    i64(2, low=0, high=4),
    **ON,
)
call(
    "x64_linalg",
    lambda x: (jnp.linalg.inv(x @ x.T + 3 * jnp.eye(3)), jnp.linalg.norm(x)),
    f64(3, 3),
    **ON,
)
call("x64_grad", lambda x: jax.grad(lambda v: (jnp.sin(v) ** 2).sum())(x), f64(3), **ON)
call(
    "x64_random",
    lambda k: (jax.random.normal(k, (2,)), jax.random.bits(k, (2,), "uint64")),
    key(),
    **ON,
)
call("x64_scan", lambda x: jax.lax.scan(lambda c, v: (c + v, c), 0.0, x), f64(3), **ON)
call("x64_fori_loop", lambda x: jax.lax.fori_loop(0, 3, lambda i, v: v * i, x), f64(3), **ON)
call("x64_int_overflow_literal", lambda x: x + 2**40, i64(3), **ON)
call(
    "x64_conversions",
    lambda x: (x.astype(int), x.astype("float32"), jnp.asarray(x, jnp.int8), x.view(jnp.uint64)),
    f64(3),
    **ON,
)
call("x64_switched_inside", lambda x: _float32_inside(x), f32(3), **ON)
call("x64_switched_on_inside", lambda x: _float64_inside(x), f32(3))
