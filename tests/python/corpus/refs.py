"""Mutable references."""

import jax
import jax.numpy as jnp
from jax import lax

from corpus.registry import case, f32, given, i32


@case(f32(3))
def ref_read_and_write():
    def f(x):
        ref = jax.new_ref(x)
        ref[0] = 5.0
        ref[1:] += 1.0
        return ref[...]

    return f


@case(f32(3))
def ref_freeze():
    def f(x):
        ref = jax.new_ref(jnp.zeros(3))
        ref[...] = x * 2
        return jax.freeze(ref)

    return f


@case(f32(3), i32(low=0, high=3))
def ref_traced_index():
    def f(x, i):
        ref = jax.new_ref(x)
        ref[i] = 1.0
        return ref[i] + ref[...]

    return f


@case(f32(3))
def ref_functions():
    def f(x):
        ref = jax.new_ref(x)
        old = jax.ref.swap(ref, 0, 7.0)
        jax.ref.addupdate(ref, ..., x)
        jax.ref.set(ref, 2, old)
        return jax.ref.get(ref, ...)

    return f


@case(f32(4))
def ref_in_scan():
    def f(x):
        total = jax.new_ref(jnp.zeros(()))

        def body(_, v):
            total[...] += v
            return None, total[...]

        _, ys = lax.scan(body, None, x)
        return total[...], ys

    return f


@case(f32(3))
def ref_in_fori_loop():
    def f(x):
        ref = jax.new_ref(x)

        def body(i, _):
            ref[i] = ref[i] * 2

        lax.fori_loop(0, 3, body, None)
        return ref[...]

    return f


@case(f32(3))
def ref_in_jit():
    def f(x):
        ref = jax.new_ref(x)

        @jax.jit
        def update(r, v):
            r[...] = r[...] + v

        update(ref, x)
        update(ref, x)
        return ref[...]

    return f


@case(f32(3))
def ref_closed_over_by_jit():
    def f(x):
        ref = jax.new_ref(x)

        @jax.jit
        def update():
            ref[0] = ref[1]

        update()
        return ref[...]

    return f


@case(given(lambda: jax.new_ref(jnp.arange(3.0))), f32(3))
def ref_argument():
    def f(ref, x):
        ref[...] = ref[...] * x
        return x + 1

    return f


@case(f32(3))
def ref_captured():
    ref = jax.new_ref(jnp.arange(3.0))

    def f(x):
        ref[...] = x
        return x * 2

    return f


@case(f32(3))
def ref_grad():
    def f(x):
        def loss(v):
            ref = jax.new_ref(jnp.zeros(()))
            ref[...] += (v**2).sum()
            return ref[...]

        return jax.grad(loss)(x)

    return f


@case(f32(4, 3))
def ref_vmap():
    def f(x):
        def one(v):
            ref = jax.new_ref(v)
            ref[0] = v.sum()
            return ref[...]

        return jax.vmap(one)(x)

    return f


@case(f32(3))
def ref_two():
    def f(x):
        a, b = jax.new_ref(x), jax.new_ref(x * 2)
        a[...], b[...] = b[...], a[...]
        return a[...] - b[...]

    return f


@case(f32(3))
def ref_slices():
    def f(x):
        ref = jax.new_ref(jnp.zeros((2, 3)))
        ref[0, :] = x
        ref[1, :1] = 4.0 * x[:1]
        return ref[:, 1:], ref.shape[0] * ref[0]

    return f


@case(f32(3))
def ref_unused():
    def f(x):
        ref = jax.new_ref(x)
        ref[0] = 1.0
        return x * 2

    return f
