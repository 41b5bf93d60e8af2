"""Elementwise functions of jax.numpy."""

import jax.numpy as jnp
import numpy as np

from corpus.registry import boolean, c64, call, case, f32, i32, u8, u32, unit

UNARY = """
    abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh around asin asinh
    atan atanh cbrt ceil conj conjugate cos cosh deg2rad degrees exp exp2 expm1 fabs floor i0
    imag invert isfinite isinf isnan isneginf isposinf isreal iscomplex log log10 log1p log2
    logical_not nan_to_num negative positive rad2deg radians real reciprocal rint round sign signbit
    sin sinc sinh spacing sqrt square tan tanh trunc
""".split()
DOMAIN = {
    "acosh": f32(3, low=1.1, high=3.0),
    "arccosh": f32(3, low=1.1, high=3.0),
    "invert": i32(3),
}

for _name in UNARY:
    call(f"jnp.{_name}", getattr(jnp, _name), DOMAIN.get(_name, unit(3)))

BINARY = """
    add arctan2 atan2 copysign divide divmod equal float_power floor_divide fmax fmin fmod greater
    greater_equal heaviside hypot less less_equal logaddexp logaddexp2 logical_and logical_or
    logical_xor maximum minimum mod multiply nextafter not_equal pow power remainder subtract
    true_divide
""".split()

for _name in BINARY:
    call(f"jnp.{_name}", getattr(jnp, _name), unit(2, 3), unit(3))

for _name in "bitwise_and bitwise_or bitwise_xor left_shift right_shift gcd lcm".split():
    call(f"jnp.{_name}", getattr(jnp, _name), i32(3, low=1, high=5), i32(3, low=1, high=5))

call("bitwise_count", jnp.bitwise_count, u8(4))
call("bitwise_not", jnp.bitwise_not, u32(4))
call("frexp", jnp.frexp, f32(4))
call("modf", jnp.modf, f32(4))
call("ldexp", jnp.ldexp, f32(4), i32(4))
call("clip", lambda x: jnp.clip(x, -0.5, 0.5), f32(4))
call("clip_only_below", lambda x: jnp.clip(x, min=0), f32(4))
call("where", lambda m, x: jnp.where(m, x, 0.0), boolean(4), f32(4))
call("where_scalars", lambda m: jnp.where(m, 1, 2.0), boolean(4))
call("select", lambda x: jnp.select([x < 0, x > 1], [x, x * 2], default=7), f32(5))
call("piecewise", lambda x: jnp.piecewise(x, [x < 0, x >= 0], [-1, lambda v: v * v]), f32(5))
call("isclose", jnp.isclose, f32(4), f32(4))
call("real_if_close_parts", lambda z: (z.real, z.imag, z.conj(), abs(z)), c64(3))
call("unwrap", jnp.unwrap, f32(6))


@case(f32(3), f32(3))
def operators():
    def f(x, y):
        return x + y, x - y, x * y, x / y, x // y, x % y, x**2, x**y, -x, +x, abs(x)

    return f


@case(i32(3), i32(3, low=1, high=4))
def integer_operators():
    def f(x, y):
        return x & y, x | y, x ^ y, ~x, x << y, x >> y, x // y, x % y, divmod(x, y), x**3

    return f


@case(f32(3))
def reflected_operators():
    def f(x):
        return 1 + x, 2.0 - x, 3 * x, 4 / x, 2**x, 7 // x, 5 % x, np.float32(2) * x

    return f


@case(f32(3), f32(3))
def comparisons():
    def f(x, y):
        return x < y, x <= y, x > y, x >= y, x == y, x != y, x == 1, 2 > x

    return f


@case(f32(2, 3))
def methods():
    def f(x):
        return x.clip(0, 1), x.round(1), x.astype(int), x.conj(), x.real, x.T, x.nbytes, x.ndim

    return f
