"""custom_jvp, custom_vjp, custom_vmap, custom transposes and closures under them."""

import functools

import jax
import jax.numpy as jnp

from corpus.registry import call, case, f32, i32


def clipped_jvp():
    @jax.custom_jvp
    def clipped(x):
        return jnp.clip(x, -1, 1)

    @clipped.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        return clipped(x), t * 0.5

    return clipped


def scaled_vjp():
    @jax.custom_vjp
    def scaled(x, y):
        return jnp.sin(x) * y

    def forward(x, y):
        return scaled(x, y), (jnp.cos(x), jnp.sin(x), y)

    def backward(residuals, c):
        cos, sin, y = residuals
        return cos * c * y, sin * c

    scaled.defvjp(forward, backward)
    return scaled


@case(f32(3))
def custom_jvp():
    clipped = clipped_jvp()
    return lambda x: clipped(x)


@case(f32(3))
def custom_jvp_grad():
    clipped = clipped_jvp()
    return lambda x: jax.grad(lambda v: clipped(v).sum())(x)


@case(f32(3), f32(3))
def custom_jvp_jvp():
    clipped = clipped_jvp()
    return lambda x, t: jax.jvp(clipped, (x,), (t,))


@case(f32(4, 3))
def custom_jvp_vmap():
    clipped = clipped_jvp()
    return lambda x: jax.vmap(jax.grad(lambda v: clipped(v).sum()))(x)


@case(f32(3))
def custom_jvp_in_jit_and_scan():
    clipped = clipped_jvp()

    def f(x):
        y = jax.jit(clipped)(x)
        return jax.lax.scan(lambda c, _: (clipped(c), None), y, None, length=2)[0]

    return f


@case(f32(3))
def custom_jvp_nondiff():
    @functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
    def apply(g, x):
        return g(x)

    @apply.defjvp
    def _(g, primals, tangents):
        return g(primals[0]), 2 * tangents[0]

    return lambda x: jax.grad(lambda v: apply(jnp.sin, v).sum())(x)


@case(f32(3))
def custom_jvp_defjvps():
    @jax.custom_jvp
    def product(x, y):
        return x * y

    product.defjvps(lambda t, ans, x, y: t * y, None)
    return lambda x: (product(x, 2 * x), jax.grad(lambda v: product(v, v).sum())(x))


@case(f32(3))
def custom_jvp_symbolic_zeros():
    @jax.custom_jvp
    def added(x, y):
        return x + y

    def rule(primals, tangents):
        assert type(tangents[1]) is jax.custom_derivatives.SymbolicZero
        return added(*primals), tangents[0] * 3

    added.defjvp(rule, symbolic_zeros=True)
    return lambda x: jax.jvp(lambda v: added(v, 1.0), (x,), (x,))


@case(f32(3), f32(3))
def custom_vjp():
    scaled = scaled_vjp()
    return lambda x, y: scaled(x, y)


@case(f32(3), f32(3))
def custom_vjp_grad():
    scaled = scaled_vjp()
    return lambda x, y: jax.grad(lambda a, b: scaled(a, b).sum(), (0, 1))(x, y)


@case(f32(3), f32(3))
def custom_vjp_second_order():
    scaled = scaled_vjp()
    return lambda x, y: jax.grad(lambda v: jax.grad(lambda u: scaled(u, y).sum())(v).sum())(x)


@case(f32(4, 3), f32(4, 3))
def custom_vjp_vmap_of_grad():
    scaled = scaled_vjp()
    return lambda x, y: jax.vmap(jax.grad(lambda a, b: scaled(a, b).sum()))(x, y)


@case(f32(4, 3), f32(3))
def custom_vjp_grad_of_vmap():
    scaled = scaled_vjp()
    return lambda x, y: jax.grad(lambda v: jax.vmap(scaled, (0, None))(v, y).sum())(x)


@case(f32(3), f32(3))
def custom_vjp_under_jit_and_cond():
    scaled = scaled_vjp()

    def f(x, y):
        def loss(v):
            return jax.lax.cond(v[0] > 0, lambda: jax.jit(scaled)(v, y).sum(), lambda: v.sum())

        return jax.grad(loss)(x)

    return f


@case(f32(5, 3), f32(3))
def custom_vjp_in_scan():
    scaled = scaled_vjp()
    return lambda xs, y: jax.grad(
        lambda v: jax.lax.scan(lambda c, x: (scaled(c, x), None), v, xs)[0].sum()
    )(y)


@case(f32(3))
def custom_vjp_nondiff():
    @functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
    def power(x, n):
        return x**n

    power.defvjp(lambda x, n: (x**n, x), lambda n, x, c: (n * x ** (n - 1) * c,))
    return lambda x: jax.value_and_grad(lambda v: power(v, 3).sum())(x)


@case({"a": f32(2), "b": f32()})
def custom_vjp_pytrees():
    @jax.custom_vjp
    def total(d):
        return {"t": d["a"].sum() * d["b"]}

    total.defvjp(lambda d: (total(d), d), lambda d, c: ({"a": d["a"] * c["t"], "b": c["t"]},))
    return lambda d: jax.grad(lambda e: total(e)["t"])(d)


@case(f32(3), i32(3))
def custom_vjp_integer_argument():
    @jax.custom_vjp
    def masked(x, i):
        return x * i

    masked.defvjp(lambda x, i: (x * i, i), lambda i, c: (c * i, None))
    return lambda x, i: jax.grad(lambda v: masked(v, i).sum())(x)


@case(f32(3))
def custom_vjp_symbolic_zeros():
    @jax.custom_vjp
    def product(x, y):
        return x * y

    def forward(x, y):
        assert y.perturbed is False
        return x.value * y.value, (x.value, y.value)

    product.defvjp(forward, lambda r, c: (c * r[1], None), symbolic_zeros=True)
    return lambda x: jax.grad(lambda v: product(v, 2.0).sum())(x)


@case(f32(3))
def custom_vjp_optimize_remat():
    @jax.custom_vjp
    def sine(x):
        return jnp.sin(x)

    sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, c: (jnp.cos(x) * c,), optimize_remat=True)
    return lambda x: (sine(x), jax.grad(lambda v: sine(v).sum())(x))


@case(f32(3))
def custom_gradient():
    def f(x):
        @jax.custom_gradient
        def g(v):
            return v**2, lambda c: c * 3 * v

        return g(x), jax.grad(lambda v: g(v).sum())(x)

    return f


@case(f32(4, 3), f32(3))
def custom_vmap():
    @jax.custom_batching.custom_vmap
    def product(x, y):
        return x * y

    @product.def_vmap
    def _(axis_size, in_batched, x, y):
        return x * y + axis_size, True

    return lambda x, y: (product(y, y), jax.vmap(product, (0, None))(x, y))


@case(f32(4, 3))
def sequential_vmap():
    @jax.custom_batching.sequential_vmap
    def norm(x):
        return jnp.sqrt((x * x).sum())

    return lambda x: jax.vmap(norm)(x)


@case(f32(3), f32(3))
def linear_call():
    def f(x, y):
        return jax.custom_derivatives.linear_call(lambda r, v: v * r, lambda r, c: c * r, x, y)

    return f


@case(f32(low=1.0, high=2.0))
def custom_root_grad():
    def f(a):
        def solve(g, x):
            return jax.lax.fori_loop(0, 6, lambda i, v: v - g(v) / (2 * v), x)

        def root(b):
            return jax.lax.custom_root(lambda x: x * x - b, b, solve, lambda g, y: y / g(1.0))

        return jax.value_and_grad(root)(a)

    return f


for _name in "relu silu gelu softplus log_softmax logsumexp".split():
    call(
        f"grad_of_nn_{_name}",
        lambda x, g=getattr(jax.nn, _name): jax.grad(lambda v: g(v).sum())(x),
        f32(3),
    )
