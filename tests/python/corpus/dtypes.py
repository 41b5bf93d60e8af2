"""Every element type, and the promotion between them."""

import jax
import jax.numpy as jnp
import numpy as np

from corpus.registry import (
    array,
    bf16,
    boolean,
    c64,
    call,
    case,
    f16,
    f32,
    given,
    host,
    i8,
    i32,
    key,
    u8,
)

SMALL = """
    bool int2 int4 int8 int16 int32 uint2 uint4 uint8 uint16 uint32 bfloat16 float16 float32
    float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2
    float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn
""".split()

for _name in SMALL:
    call(
        f"dtype_{_name}",
        lambda x: (x, x.astype(jnp.float32) * 2, x.reshape(2, 2)),
        array(
            jnp.dtype(_name), 4, **({"low": 0.5, "high": 4.0} if _name == "float8_e8m0fnu" else {})
        ),
    )

PROMOTED = [
    "bool",
    "int8",
    "uint8",
    "int32",
    "uint32",
    "bfloat16",
    "float16",
    "float32",
    "complex64",
]
for _name in PROMOTED:
    call(
        f"promote_{_name}",
        lambda x, others: [x + y for y in others],
        array(jnp.dtype(_name), 2),
        [array(jnp.dtype(other), 2) for other in PROMOTED],
        tolerance=1e-2,
    )

for _name in ["int8", "uint8", "bfloat16", "float16", "complex64"]:
    call(
        f"arithmetic_{_name}",
        lambda x: (x + x, x * 2, x - 1, x.sum(), x @ x, x == 0),
        array(jnp.dtype(_name), 4),
        tolerance=5e-2,
    )

call("int4_arithmetic", lambda x: (x + x, x * x), array(jnp.int4, 4))
call(
    "float8_dot",
    lambda x: jax.lax.dot(x, x, preferred_element_type=jnp.float32),
    array(jnp.float8_e4m3fn, 4, 4),
    tolerance=1e-2,
)
call("bool_arithmetic", lambda x: (x & True, ~x, x + x, x * 1, -x.astype(int), x.sum()), boolean(3))
call("numpy_arguments", lambda x, y: x * y, host(f32(3)), host(i32(3)))
call("numpy_scalar_arguments", lambda x, y: x * y + np.int8(3), host(f32()), host(i8()))
call(
    "numpy_generic_literals",
    lambda x: (x + np.float16(1), x + np.int32(2), x * np.bool_(True)),
    f32(3),
)
call(
    "numpy_wide_arguments",
    lambda x, i: (x, i),
    given(lambda: np.ones(2)),
    given(lambda: np.arange(3)),
)
call(
    "dtype_inspection",
    lambda x: jnp.ones(3, x.dtype) * jnp.finfo(x.dtype).eps + jnp.iinfo(jnp.int8).max,
    bf16(3),
)
call(
    "default_dtypes",
    lambda: (jnp.ones(2), jnp.arange(2), jnp.array(1j), jnp.array(True), jnp.array(2)),
)
call(
    "complex_operations",
    lambda z: (jnp.exp(z), z * z.conj(), jnp.angle(z), z.real + z.imag * 1j, jnp.sum(z)),
    c64(3),
)
call("complex_grad", lambda z: jax.grad(lambda w: jnp.abs(w).sum())(z), c64(3))
call("complex_holomorphic", lambda z: jax.grad(lambda w: w**2, holomorphic=True)(z), c64())
call(
    "float0_tangents",
    lambda i: jax.jvp(lambda v: v * 2, (i,), (np.zeros((3,), jax.dtypes.float0),)),
    i32(3),
)
call("float0_cotangents", lambda x, i: jax.vjp(lambda v, j: v * j, x, i)[1](x), f32(3), i32(3))
call(
    "float0_argument",
    lambda t: t,
    given(lambda: np.zeros((2,), jax.dtypes.float0)),
    unevaluated="jax makes no device arrays of float0",
)
call(
    "low_precision_reduction",
    lambda x, y: (x.sum(), jnp.mean(y), jnp.var(x)),
    bf16(8),
    f16(8),
    tolerance=2e-2,
)
call("mixed_matmul", lambda x, y: x @ y, bf16(3, 4), f32(4, 2), tolerance=1e-2)
call(
    "matmul_precision",
    lambda x: jnp.matmul(x, x, precision="highest", preferred_element_type=jnp.float32),
    bf16(3, 3),
    tolerance=1e-2,
)
call("key_dtype", lambda k: (jax.random.key_data(k), jax.random.clone(k), k.reshape(1)), key())
call("key_rbg", lambda k: jax.random.split(k), key(0, impl="rbg"))
call("key_unsafe_rbg", lambda k: jax.random.uniform(k, (2,)), key(0, impl="unsafe_rbg"))
call(
    "key_in_pytree",
    lambda d: {"k": jax.random.fold_in(d["k"], 1), "x": d["x"]},
    {"k": key(), "x": f32(2)},
)
call(
    "strict_promotion",
    lambda x, y: x + y,
    f32(2),
    f32(2),
    context=lambda: jax.numpy_dtype_promotion("strict"),
)
call(
    "default_matmul_precision",
    lambda x: x @ x,
    f32(2, 2),
    context=lambda: jax.default_matmul_precision("bfloat16"),
    tolerance=1e-1,
)
call("uint8_overflow", lambda x: (x + 255, x - 1, x * 200), u8(3))


@case(f32(3), i32(3))
def weak_types():
    def f(x, i):
        return x + 1, i + 1.5, i * 2, i / 2, 1 + 1j * x, jnp.where(i > 0, 1, 2), jnp.add(1, 2.0)

    return f


@case(1, 2.5, True, 1j)
def weak_arguments():
    return lambda i, x, b, z: (i, x, b, z, i + x, x * 2, i * b, z + x)


@case(3, f32(3))
def weak_argument_and_array():
    return lambda n, x: (x * n, x + n / 2, jnp.full(2, n), n * n)


@case(i32())
def weak_through_jit_and_scan():
    def f(i):
        doubled = jax.jit(lambda v: v * 2)(1.0)
        total, _ = jax.lax.scan(lambda c, _: (c + 1, None), 0, None, length=3)
        return doubled + i, total * 1.5, jax.jit(lambda a, b: a + b)(1, i)

    return f


@case(given(lambda: jnp.asarray(1.0) * 1), given(lambda: jnp.ones(())))
def weak_and_strong_scalars():
    return lambda x, y: (
        x + y,
        jnp.sin(x),
        x.astype(jnp.bfloat16) + y,
        jax.lax.convert_element_type(x, float),
    )
