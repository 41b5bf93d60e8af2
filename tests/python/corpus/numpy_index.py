"""Indexing, gathering and scattering."""

import jax
import jax.numpy as jnp
import numpy as np

from corpus.registry import boolean, call, case, f32, i32, key, u8

X = f32(4, 5)
ROWS = i32(3, low=0, high=4)

call("index_int", lambda x: (x[0], x[-1], x[1, 2]), X)
call("index_slice", lambda x: (x[1:3], x[:, ::2], x[::-1], x[-3:-1, 1]), X)
call("index_negative_step", lambda x: x[3:0:-2, ::-1], X)
call("index_ellipsis_none", lambda x: (x[..., 0], x[None], x[:, None, 1], x[...]), X)
call("index_traced", lambda x, i: x[i], X, i32(low=0, high=4))
call("index_traced_two", lambda x, i, j: x[i, j], X, i32(low=0, high=4), i32(low=-2, high=3))
call("index_traced_and_slice", lambda x, i: x[1:3, i], X, i32(low=0, high=4))
call("index_array", lambda x, i: x[i], X, ROWS)
call("index_arrays", lambda x, i: x[i, i], X, ROWS)
call("index_arrays_broadcast", lambda x, i: x[i[:, None], i], X, ROWS)
call("index_array_and_slice", lambda x, i: x[i, 1:4], X, ROWS)
call("index_arrays_apart", lambda x, i: x[i, :, i], f32(4, 2, 5), ROWS)
call("index_numpy_array", lambda x: x[np.array([0, 2])], X)
call("index_list", lambda x: x[jnp.array([3, 1, 0])], X)
call("index_unsigned", lambda x, i: x[i], X, u8(3, low=0, high=4))
call("index_bool_constant", lambda x: x[np.array([True, False, True, True])], X)
call("index_numpy_with_tracer", lambda i: jnp.asarray(np.arange(5.0))[i], i32(low=0, high=5))
call("index_iterate", lambda x: [row.sum() for row in x], X)
call("take", lambda x, i: jnp.take(x, i, axis=1), X, ROWS)
for _mode in ("fill", "clip", "wrap"):
    call(f"take_{_mode}", lambda x, i, mode=_mode: jnp.take(x, i, mode=mode), X, ROWS)
call("take_along_axis", lambda x, i: jnp.take_along_axis(x, i, axis=1), X, i32(4, 2, low=0, high=4))
call("put", lambda x, i: jnp.put(x, i, 1.0, inplace=False), X, ROWS)
call(
    "put_along_axis",
    lambda x, i: jnp.put_along_axis(x, i, 1.0, 1, inplace=False),
    X,
    i32(4, 2, low=0, high=4),
)
call("choose", lambda i, x: jnp.choose(i, x, mode="clip"), i32(5, low=0, high=4), X)
call("compress", lambda m, x: jnp.compress(m, x, axis=0, size=2), boolean(4), X)
call(
    "place_putmask",
    lambda x, m: jnp.place(x, m, jnp.array([1.0, 2.0]), inplace=False),
    X,
    boolean(4, 5),
)
call("get_fill", lambda x, i: x.at[i].get(mode="fill", fill_value=7.0), X, ROWS)
call(
    "get_promise", lambda x, i: x.at[i].get(mode="promise_in_bounds", unique_indices=True), X, ROWS
)
call("get_wrap_negative", lambda x, i: x.at[i].get(wrap_negative_indices=False), X, ROWS)
for _name in ("set", "add", "multiply", "divide", "power", "min", "max", "subtract"):
    call(f"at_{_name}", lambda x, i, name=_name: getattr(x.at[i], name)(2.0), X, ROWS)
call("at_apply", lambda x, i: x.at[i].apply(jnp.sin), X, ROWS)
call(
    "at_set_slice",
    lambda x: (x.at[0].set(1.0), x.at[1:3, ::2].set(0), x.at[..., 1].add(x[:, 0])),
    X,
)
call("at_set_row", lambda x, i, y: x.at[i].set(y), X, i32(low=0, high=4), f32(5))
call("at_set_mask", lambda x: x.at[np.eye(4, 5) > 0].set(0.0), X)
call("at_add_sorted", lambda x, i: x.at[i].add(1, indices_are_sorted=True, mode="drop"), X, ROWS)
call("at_mixed_dtype", lambda x, i: i.at[0].set(x[0, 0].astype(int)), X, ROWS)
call("gather_grad", lambda x, i: jax.grad(lambda v: v[i].sum())(x), X, ROWS)
call("scatter_grad", lambda x, i: jax.grad(lambda v: (x.at[i].set(v) ** 2).sum())(x[:3]), X, ROWS)
call("scatter_vmap", lambda x, i: jax.vmap(lambda v, j: v.at[j].add(1.0))(x[:3], i), X, ROWS)
call("index_key_array", lambda k, i: k[i], key(0, 4), i32(low=0, high=4))
call(
    "dynamic_index",
    lambda x, i: jax.lax.dynamic_index_in_dim(x, i, 1, keepdims=False),
    X,
    i32(low=0, high=4),
)
call(
    "dynamic_update",
    lambda x, i, y: jax.lax.dynamic_update_index_in_dim(x, y, i, 0),
    X,
    i32(low=0, high=4),
    f32(5),
)
call("dynamic_slice", lambda x, i: jax.lax.dynamic_slice(x, (i, 0), (2, 3)), X, i32(low=0, high=3))
call(
    "dynamic_slice_mixed",
    lambda x, i: jax.lax.dynamic_slice_in_dim(x, i, 2, axis=1),
    X,
    u8(low=0, high=3),
)
call(
    "dynamic_update_slice",
    lambda x, y, i: jax.lax.dynamic_update_slice(x, y, (i, 1)),
    X,
    f32(2, 2),
    i32(low=0, high=3),
)
call("segment_sum", lambda x, i: jax.ops.segment_sum(x, i, num_segments=4), f32(3, 2), ROWS)
call(
    "segment_max_min_prod",
    lambda x, i: (
        jax.ops.segment_max(x, i, 4),
        jax.ops.segment_min(x, i, 4),
        jax.ops.segment_prod(x, i, 4),
    ),
    f32(3),
    ROWS,
)


@case(X)
def index_with_grid():
    def f(x):
        i, j = jnp.meshgrid(jnp.arange(2), jnp.arange(3), indexing="ij")
        return x[i, j], x.at[i, j].mul(2.0)

    return f


@case(f32(6), i32(low=0, high=3))
def sliding_windows():
    def f(x, start):
        return jax.vmap(lambda i: jax.lax.dynamic_slice(x, (i,), (3,)))(jnp.arange(4) + start)

    return f
