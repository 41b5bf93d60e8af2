"""A traced value is needed as a Python value."""

import math
import operator
import pickle
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import bad_use, bad_uses


@bad_use
def if_on_tracer(make):
    def f(x):
        if x > 0:
            return x
        return -x

    make(f)(1.0)


@bad_use
def while_on_tracer(make):
    def f(x):
        while x < 10:
            x = x * 2
        return x

    make(f)(1.0)


@bad_use
def assert_on_tracer(make):
    def f(x):
        assert x > 0, "positive"
        return x

    make(f)(1.0)


@bad_use
def python_loop_to_traced_bound(make):
    def f(n):
        total = 0
        for i in range(n):
            total += i
        return total

    make(f)(3)


@bad_use
def depends_on_two_arguments(make):
    def f(x, unused, y):
        z = jnp.sin(x) * y
        return float(z)

    make(f)(1.0, 2.0, 3.0)


@bad_use
def depends_on_many_arguments(make):
    def f(params, *rest, scale):
        return int(params["w"] + params["b"] + rest[1] * scale)

    make(f)({"w": 1.0, "b": 2.0}, 1.0, 2.0, scale=3.0)


@bad_use
def depends_on_constants_only(make):
    def f(x):
        y = jnp.ones(3) + 1
        return x if y.sum() > 2 else -x

    make(f)(1.0)


@bad_use
def depends_on_captured_array(make):
    captured = jnp.arange(3.0)

    def f(x):
        return x if (captured * 2)[0] > 1 else -x

    make(f)(1.0)


@bad_use
def depends_on_many_operations(make):
    def f(x):
        y = jnp.zeros(())
        for i in range(8):
            y = y + jnp.full((), float(i))
        return bool(y)

    make(f)(1.0)


@bad_use
def long_program_before_the_error(make):
    def f(x):
        for _ in range(300):
            x = jnp.sin(x) + 1.0
        return float(x)

    make(f)(1.0)


@bad_use
def inside_jit(make):
    @jax.jit
    def inner(a, b):
        return a if b else -a

    make(lambda x: inner(x, x > 0))(1.0)


@bad_use
def inside_named_jit_with_keyword(make):
    @partial(jax.jit, static_argnames="n")
    def inner(a, *, flag, n):
        return a * n if flag else -a

    make(lambda x: inner(x, flag=x > 0, n=2))(1.0)


@bad_use
def inside_scan(make):
    def body(carry, x):
        if x > 0:
            carry = carry + x
        return carry, x

    make(lambda xs: lax.scan(body, 0.0, xs))(jnp.arange(3.0))


@bad_use
def inside_cond(make):
    make(lambda p, x: lax.cond(p, lambda v: float(v), lambda v: v, x))(True, 1.0)


@bad_use
def inside_while_loop(make):
    def body(carry):
        i, x = carry
        return i + 1, x if i > 3 else -x

    make(lambda x: lax.while_loop(lambda c: c[0] < 5, body, (0, x)))(1.0)


@bad_use
def inside_while_condition(make):
    make(lambda x: lax.while_loop(lambda c: bool(c < 5), lambda c: c + 1, x))(1.0)


@bad_use
def inside_fori_loop(make):
    make(lambda x: lax.fori_loop(0, 3, lambda i, c: [c, -c][i], x))(1.0)


@bad_use
def inside_grad(make):
    def loss(x):
        return x**2 if x > 0 else x

    make(jax.grad(loss))(1.0)


@bad_use
def inside_grad_of_jit(make):
    @jax.jit
    def loss(x):
        return x**2 if x > 0 else x

    make(jax.grad(loss))(1.0)


@bad_use
def inside_vmap(make):
    make(jax.vmap(lambda x: float(x)))(jnp.arange(3.0))


@bad_use
def inside_vmap_of_grad(make):
    make(jax.vmap(jax.grad(lambda x: x * int(x))))(jnp.arange(3.0))


@bad_use
def inside_jvp(make):
    make(lambda x: jax.jvp(lambda v: v if v else -v, (x,), (x,)))(1.0)


@bad_use
def inside_checkpoint(make):
    make(jax.grad(jax.checkpoint(lambda x: x if jnp.sin(x) > 0 else -x)))(1.0)


@bad_use
def inside_custom_jvp(make):
    @jax.custom_jvp
    def f(x):
        return x if x > 0 else -x

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    make(f)(1.0)


@bad_use
def inside_custom_vjp(make):
    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    def forward(x):
        return (f(x), x) if x > 0 else (f(x), -x)

    f.defvjp(forward, lambda residual, ct: (ct * residual,))
    make(jax.grad(f))(1.0)


@bad_use
def inside_eval_shape(make):
    make(lambda x: jax.eval_shape(lambda v: jnp.zeros(int(v)), x).shape[0] * x)(2)


@bad_use
def inside_hessian(make):
    make(jax.hessian(lambda x: x**3 if x > 0 else x))(1.0)


@bad_use
def inside_linear_solve(make):
    def matvec(x):
        return x * 2 if x[0] > 0 else x

    make(lambda b: lax.custom_linear_solve(matvec, b, lambda _, v: v / 2))(jnp.ones(2))


@bad_use
def boolean_mask_assignment_of_unknown_size(make):
    make(lambda x: x.at[x > 0].set(x[x > 1]))(jnp.arange(3.0))


@bad_use
def python_list_index(make):
    make(lambda i: [1.0, 2.0, 3.0][i])(1)


@bad_use
def membership(make):
    make(lambda x: x if 1.0 in [x, 2.0] else -x)(1.0)


@bad_use
def np_ufunc_with_out(make):
    make(lambda x: np.add(np.ones(3), x, out=np.zeros(3)))(jnp.ones(3))


bad_uses(
    float_conversion=lambda make: make(lambda x: float(x))(1.0),
    float_of_vector=lambda make: make(lambda x: float(x))(jnp.ones(3)),
    int_conversion=lambda make: make(lambda x: int(x))(1.0),
    int_conversion_of_int=lambda make: make(lambda x: int(x))(1),
    complex_conversion=lambda make: make(lambda x: complex(x))(1j),
    bool_conversion=lambda make: make(lambda x: bool(x))(True),
    bool_of_vector=lambda make: make(lambda x: bool(x))(jnp.ones(3)),
    bool_of_empty=lambda make: make(lambda x: bool(x))(jnp.ones(0)),
    not_operator=lambda make: make(lambda x: not x)(True),
    and_operator=lambda make: make(lambda x, y: x and y)(True, False),
    chained_comparison=lambda make: make(lambda x: 0 < x < 1)(0.5),
    builtin_min=lambda make: make(lambda x, y: min(x, y))(1.0, 2.0),
    builtin_sorted=lambda make: make(lambda x: sorted(x))(jnp.arange(3.0)),
    builtin_any=lambda make: make(lambda x: any(x))(jnp.arange(3) > 1),
    index_protocol=lambda make: make(lambda x: operator.index(x))(1),
    index_of_float=lambda make: make(lambda x: operator.index(x))(1.0),
    index_of_vector=lambda make: make(lambda x: operator.index(x))(jnp.arange(3)),
    hexadecimal=lambda make: make(lambda x: hex(x))(1),
    octal=lambda make: make(lambda x: oct(x))(1),
    math_function=lambda make: make(lambda x: math.sin(x))(1.0),
    math_gcd=lambda make: make(lambda x: math.gcd(x, 2))(4),
    format_specification=lambda make: make(lambda x: print(f"{x:.2f}"))(1.0),
    percent_format=lambda make: make(lambda x: "%d".__mod__(x))(1),
    item=lambda make: make(lambda x: x.item())(1.0),
    tolist=lambda make: make(lambda x: x.tolist())(jnp.ones(3)),
    tobytes=lambda make: make(lambda x: x.tobytes())(jnp.ones(3)),
    np_asarray=lambda make: make(lambda x: np.asarray(x))(jnp.ones(3)),
    np_array_with_dtype=lambda make: make(lambda x: np.array(x, dtype=np.float64))(1.0),
    np_sin=lambda make: make(lambda x: np.sin(x))(1.0),
    np_concatenate=lambda make: make(lambda x: np.concatenate([x, x]))(jnp.ones(3)),
    np_index=lambda make: make(lambda i: np.arange(3.0)[i])(1),
    np_assignment=lambda make: make(lambda x: np.zeros(3).__setitem__(0, x))(1.0),
    array_method=lambda make: make(lambda x: x.__array__())(jnp.ones(3)),
    dlpack=lambda make: make(lambda x: np.from_dlpack(x))(jnp.ones(3)),
    pickling=lambda make: make(lambda x: pickle.dumps(x))(jnp.ones(3)),
    arange_to_traced=lambda make: make(lambda n: jnp.arange(n))(3),
    zeros_of_traced_shape=lambda make: make(lambda n: jnp.zeros((2, n)))(3),
    reshape_to_traced=lambda make: make(lambda x, n: x.reshape(n, -1))(jnp.ones(4), 2),
    linspace_traced_count=lambda make: make(lambda n: jnp.linspace(0, 1, n))(3),
    slice_with_traced_bound=lambda make: make(lambda x, n: x[:n])(jnp.ones(4), 2),
    axis_traced=lambda make: make(lambda x, a: jnp.sum(x, axis=a))(jnp.ones(4), 0),
    boolean_mask=lambda make: make(lambda x: x[x > 0])(jnp.arange(3.0)),
    nonzero_without_size=lambda make: make(jnp.nonzero)(jnp.arange(3)),
    unique_without_size=lambda make: make(jnp.unique)(jnp.arange(3)),
    where_one_argument=lambda make: make(lambda x: jnp.where(x > 0))(jnp.arange(3)),
    repeat_without_total=lambda make: make(lambda x, n: jnp.repeat(x, n))(jnp.ones(3), 2),
    split_at_traced=lambda make: make(lambda x, i: jnp.split(x, [i]))(jnp.ones(3), 1),
    lax_slice_traced=lambda make: make(lambda x, i: lax.slice(x, (i,), (3,)))(jnp.ones(3), 1),
    dtype_from_tracer=lambda make: make(lambda x: jnp.zeros(3, dtype=x))(1.0),
    lax_full_traced_shape=lambda make: make(lambda n: lax.full((n,), 0.0))(3),
    tile_traced=lambda make: make(lambda x, n: jnp.tile(x, n))(jnp.ones(3), 2),
    one_hot_traced=lambda make: make(lambda i, n: jax.nn.one_hot(i, n))(1, 3),
    random_traced_shape=lambda make: make(lambda k, n: jax.random.normal(k, (n,)))(
        jax.random.key(0), 3
    ),
    random_choice_traced=lambda make: make(lambda k, n: jax.random.choice(k, 5, (2,), replace=n))(
        jax.random.key(0), True
    ),
)
