"""Arrays with no elements, and arrays with no dimensions."""

import jax
import jax.numpy as jnp

from corpus.registry import call, f32, i32

call("empty_arithmetic", lambda x: (x + 1, x * x, jnp.sin(x)), f32(0))
call("empty_two_dimensions", lambda x: (x.T, x.reshape(3, 0, 2), x.sum(0), x.sum(1)), f32(0, 3))
call(
    "empty_reductions",
    lambda x: (x.sum(), x.prod(), x.mean(), x.any(), jnp.max(x, initial=1.0)),
    f32(0),
)
call("empty_matmul", lambda x, y: x @ y, f32(2, 0), f32(0, 3))
call("empty_concatenate", lambda x, y: jnp.concatenate([x, y]), f32(0), f32(3))
call("empty_indexing", lambda x, i: (x[:0], x[i], x[1:1, None]), f32(4), i32(0))
call("empty_scatter", lambda x, i: x.at[i].set(1.0), f32(4), i32(0))
call("empty_scan", lambda x: jax.lax.scan(lambda c, v: (c + v.sum(), v), 0.0, x), f32(0, 2))
call(
    "empty_scan_of_length_zero",
    lambda c: jax.lax.scan(lambda a, _: (a * 2, a), c, None, length=0),
    f32(3),
)
call("empty_map", lambda x: jax.lax.map(jnp.sin, x), f32(0, 3))
call("empty_fori_loop", lambda x: jax.lax.fori_loop(3, 3, lambda i, v: v + 1, x), f32(2))
call("empty_vmap", lambda x: jax.vmap(jnp.sin)(x), f32(0, 2))
call("empty_grad", lambda x: jax.grad(lambda v: (v**2).sum())(x), f32(0, 3))
call("empty_sort", lambda x: (jnp.sort(x), jnp.argsort(x), jnp.cumsum(x)), f32(0))
call("empty_split", lambda x: jnp.split(x, [0, 2]), f32(2))
call("empty_pad", lambda x: jnp.pad(x, (1, 1)), f32(0))
call(
    "empty_creation",
    lambda: (jnp.zeros((0, 2)), jnp.array([]), jnp.arange(0), jnp.ones((2, 0), int)),
)
call("empty_linalg", lambda x: (jnp.linalg.norm(x), jnp.trace(x), jnp.linalg.det(x)), f32(0, 0))
call(
    "scalar_operations",
    lambda x: (x + 1, x.reshape(1), x[None], x[()], x.sum(), jnp.expand_dims(x, 0)),
    f32(),
)
call(
    "size_one_axes",
    lambda x: (x.squeeze(), x + jnp.ones((3, 1, 4)), x.sum(1), x.transpose(2, 0, 1)),
    f32(1, 1, 1),
)
