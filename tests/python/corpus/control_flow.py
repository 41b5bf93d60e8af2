"""Structured control flow: cond, switch, while, fori, scan, map and associative scans."""

import jax
import jax.numpy as jnp
from jax import lax

from corpus.registry import boolean, call, case, f32, i32, u32


@case(boolean(), f32(3))
def cond():
    return lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x)


@case(f32(3))
def cond_closures():
    def f(x):
        scale = x.sum()
        return lax.cond(scale > 0, lambda: x * scale, lambda: x - 1)

    return f


@case(i32(), f32(3))
def cond_on_an_integer():
    return lambda i, x: lax.cond(i, lambda v: (v, 1), lambda v: (v * 2, 0), x)


@case(boolean(), f32(2))
def cond_pytree_operands():
    def f(p, x):
        return lax.cond(p, lambda d: d["a"] + d["b"], lambda d: d["a"], {"a": x, "b": 1.0})

    return f


@case(boolean(), boolean(), f32(2))
def cond_nested():
    def f(p, q, x):
        return lax.cond(p, lambda v: lax.cond(q, jnp.sin, jnp.cos, v), lambda v: v, x)

    return f


@case(boolean(), f32(3))
def cond_grad():
    return lambda p, x: jax.grad(lambda v: lax.cond(p, jnp.sum, jnp.prod, v))(x)


@case(boolean(4), f32(4, 2))
def cond_vmap_of_predicate():
    return lambda p, x: jax.vmap(lambda q, v: lax.cond(q, jnp.sin, jnp.cos, v))(p, x)


@case(i32(), f32(3))
def switch():
    return lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda v: v * 2], x)


@case(i32(), f32(3))
def switch_same_branches():
    return lambda i, x: lax.switch(i, [jnp.sin, jnp.sin, jnp.cos], x)


@case(f32(3))
def switch_single_branch():
    return lambda x: lax.switch(0, [jnp.sin], x)


@case(f32(low=1.0, high=2.0))
def while_loop():
    return lambda x: lax.while_loop(lambda v: v < 100, lambda v: v * 2, x)


@case(f32(3), i32(low=1, high=5))
def while_loop_closed_over():
    def f(x, n):
        step = jnp.cos(x)
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + step), (0, x))

    return f


@case(f32(3))
def while_loop_jvp():
    def f(x):
        def loop(v):
            return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, v))[
                1
            ]

        return jax.jvp(loop, (x,), (jnp.ones_like(x),))

    return f


@case(f32(4))
def while_loop_batched_condition():
    def f(x):
        return jax.vmap(
            lambda v: lax.while_loop(lambda c: c < 10, lambda c: jnp.abs(c) * 2 + 1, v)
        )(x)

    return f


@case(f32(3))
def fori_loop():
    return lambda x: lax.fori_loop(0, 5, lambda i, v: v + i, x)


@case(f32(3), i32(low=1, high=4))
def fori_loop_traced_bound():
    return lambda x, n: lax.fori_loop(0, n, lambda i, v: v * 1.5, x)


@case(f32(3))
def fori_loop_unrolled():
    return lambda x: lax.fori_loop(0, 6, lambda i, v: jnp.sin(v), x, unroll=2)


@case(f32(3))
def fori_loop_grad():
    return lambda x: jax.grad(lambda v: lax.fori_loop(0, 3, lambda i, u: jnp.sin(u), v).sum())(x)


@case(f32(), f32(5))
def scan():
    return lambda c, xs: lax.scan(lambda a, x: (a + x, a * x), c, xs)


@case(f32(), f32(5))
def scan_reverse():
    return lambda c, xs: lax.scan(lambda a, x: (a + x, a), c, xs, reverse=True)


@case(f32(), f32(6))
def scan_unroll():
    return lambda c, xs: lax.scan(lambda a, x: (a * x, None), c, xs, unroll=3)


@case(f32(3))
def scan_without_inputs():
    return lambda c: lax.scan(lambda a, _: (jnp.sin(a), a.sum()), c, None, length=4)


@case(f32(3), f32(5, 3), f32(3, 3))
def scan_rnn():
    def f(h, xs, w):
        def step(h, x):
            h = jnp.tanh(x + w @ h)
            return h, {"h": h, "norm": jnp.linalg.norm(h)}

        return lax.scan(step, h, xs)

    return f


@case(f32(3), f32(5, 3), f32(3, 3))
def scan_grad():
    def f(h, xs, w):
        def loss(w):
            return lax.scan(lambda h, x: (jnp.tanh(x + w @ h), None), h, xs)[0].sum()

        return jax.value_and_grad(loss)(w)

    return f


@case(f32(4, 3), f32(4, 5, 3))
def scan_vmap():
    return lambda c, xs: jax.vmap(lambda a, b: lax.scan(lambda u, x: (u + x, u), a, b))(c, xs)


@case(f32(2, 2), f32(3, 2))
def scan_nested():
    def f(c, xs):
        def outer(a, x):
            return lax.scan(lambda b, y: (b + y * x, b), a, c)[0], x.sum()

        return lax.scan(outer, xs[0], xs)

    return f


@case(f32(), i32(5))
def scan_weak_typed_carry():
    return lambda x, n: lax.scan(lambda c, i: (c + i, i), 0.0, n * x)


@case(f32(), f32(4))
def scan_forwarded_carry():
    return lambda c, xs: lax.scan(lambda a, x: ((a[0], a[1] + x * a[0]), x), (c, c), xs)


@case(f32(5, 2))
def map_():
    return lambda xs: lax.map(lambda x: jnp.sin(x).sum(), xs)


@case(f32(6, 2))
def map_in_batches():
    return lambda xs: lax.map(lambda x: jnp.sin(x).sum(), xs, batch_size=4)


@case(f32(5))
def associative_scan():
    return lambda xs: lax.associative_scan(jnp.add, xs)


@case(f32(6, 2), f32(6, 2))
def associative_scan_pairs():
    def f(a, b):
        return lax.associative_scan(
            lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a, b), reverse=True, axis=0
        )

    return f


for _name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    call(f"lax.{_name}", getattr(lax, _name), f32(5))


@case(u32(3), f32(3))
def cond_inside_scan_inside_while():
    def f(n, x):
        def body(c):
            i, v = c
            v, ys = lax.scan(
                lambda a, y: lax.cond(y > 0, lambda: (a + y, y), lambda: (a, -y)), v.sum(), v
            )
            return i + 1, ys + v

        return lax.while_loop(lambda c: c[0] < 2, body, (n[0] * 0, x))

    return f
