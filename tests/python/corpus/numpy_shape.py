"""Array creation, shapes, joining and rearranging in jax.numpy."""

import jax.numpy as jnp
import numpy as np

from corpus.registry import call, case, f32, i32

X = f32(2, 3)

call("reshape", lambda x: x.reshape(3, -1), X)
call("ravel", jnp.ravel, X)
call("transpose", lambda x: jnp.transpose(x, (2, 0, 1)), f32(2, 3, 4))
call("swapaxes", lambda x: jnp.swapaxes(x, 0, 1), X)
call("moveaxis", lambda x: jnp.moveaxis(x, 0, -1), f32(2, 3, 4))
call("rollaxis", lambda x: jnp.rollaxis(x, 2), f32(2, 3, 4))
call("expand_dims", lambda x: jnp.expand_dims(x, (0, 2)), X)
call("squeeze", lambda x: jnp.squeeze(x, 1), f32(2, 1, 3))
call("broadcast_to", lambda x: jnp.broadcast_to(x, (4, 2, 3)), X)
call("broadcast_arrays", lambda x, y: jnp.broadcast_arrays(x, y), X, f32(3))
call("atleast_nd", lambda x: (jnp.atleast_1d(x), jnp.atleast_2d(x), jnp.atleast_3d(x)), f32())
call("concatenate", lambda x, y: jnp.concatenate([x, y, x], axis=1), X, f32(2, 1))
call("concatenate_mixed_dtypes", lambda x, y: jnp.concatenate([x, y]), f32(2), i32(3))
call("stack", lambda x: jnp.stack([x, x, x * 2], axis=-1), X)
call("hvd_stack", lambda x: (jnp.hstack([x, x]), jnp.vstack([x, x]), jnp.dstack([x, x])), X)
call("column_stack", lambda x: jnp.column_stack([x, x]), f32(3))
call("append", jnp.append, X, f32(2))
call("block", lambda x: jnp.block([[x, x], [x * 2, jnp.ones((2, 3))]]), X)
call("split", lambda x: jnp.split(x, 3, axis=1), X)
call("split_indices", lambda x: jnp.split(x, [1, 3]), f32(5))
call("array_split", lambda x: jnp.array_split(x, 3), f32(5))
call("hvd_split", lambda x: (jnp.hsplit(x, 2), jnp.vsplit(x, 2), jnp.dsplit(x, 2)), f32(2, 2, 2))
call("unstack", jnp.unstack, X)
call("tile", lambda x: jnp.tile(x, (2, 1, 3)), X)
call("repeat", lambda x: jnp.repeat(x, 2, axis=0), X)
call("repeat_counts", lambda x: jnp.repeat(x, np.array([1, 2, 3])), f32(3))
call(
    "repeat_total_length",
    lambda x, n: jnp.repeat(x, n, total_repeat_length=4),
    f32(2),
    i32(2, low=1, high=3),
)
call("flip", lambda x: (jnp.flip(x), jnp.fliplr(x), jnp.flipud(x)), X)
call("rot90", lambda x: jnp.rot90(x, 3), X)
call("roll", lambda x: jnp.roll(x, 1), X)
call("roll_axes", lambda x: jnp.roll(x, (1, -1), (0, 1)), X)
call("roll_traced_shift", jnp.roll, f32(4), i32())
call("pad_constant", lambda x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=3), X)
for _mode in ("edge", "reflect", "symmetric", "wrap", "linear_ramp", "mean", "maximum", "empty"):
    call(f"pad_{_mode}", lambda x, mode=_mode: jnp.pad(x, 1, mode=mode), X)
call("resize", lambda x: jnp.resize(x, (2, 5)), X)
call("trim_zeros_like_delete", lambda x: jnp.delete(x, 1), f32(4))
call(
    "delete_traced_index",
    lambda x, i: jnp.delete(x, i, assume_unique_indices=True),
    f32(4),
    i32(1, low=0, high=4),
)
call("insert", lambda x: jnp.insert(x, 1, 7.0), f32(4))
call("diag", lambda x: (jnp.diag(x), jnp.diag(x @ x.T), jnp.diagonal(x)), f32(3, 3))
call("diag_from_vector", lambda x: (jnp.diag(x, 1), jnp.diagflat(x)), f32(3))
call("fill_diagonal", lambda x: jnp.fill_diagonal(x, 0.0, inplace=False), f32(3, 3))
call("tri", lambda x: (jnp.tril(x), jnp.triu(x, 1), jnp.tri(3)), f32(3, 3))
call("tri_indices", lambda x: (x[jnp.tril_indices(3)], x[jnp.triu_indices_from(x, 1)]), f32(3, 3))
call("vander", jnp.vander, f32(3))
call("meshgrid", lambda x, y: jnp.meshgrid(x, y, indexing="ij"), f32(2), f32(3))
call("zeros_ones_full", lambda: (jnp.zeros((2, 3)), jnp.ones(2, int), jnp.full((2,), 7.5)))
call(
    "like",
    lambda x: (jnp.zeros_like(x), jnp.ones_like(x), jnp.full_like(x, 3), jnp.empty_like(x)),
    X,
)
call("eye_identity", lambda: (jnp.eye(3), jnp.eye(2, 3, 1, dtype=int), jnp.identity(2)))
call("arange", lambda x: (jnp.arange(5), jnp.arange(1, 2, 0.25), x + jnp.arange(3)), f32(3))
call("linspace", jnp.linspace, f32(), f32())
call(
    "linspace_concrete",
    lambda: (jnp.linspace(0, 1, 5), jnp.logspace(0, 2, 3), jnp.geomspace(1, 8, 4)),
)
call("indices", lambda: jnp.indices((2, 3)))
call(
    "index_tricks",
    lambda: (
        jnp.mgrid[:2, :3],
        jnp.ogrid[:2, :3],
        jnp.r_[1:3, 5],
        jnp.c_[jnp.ones(2), jnp.zeros(2)],
    ),
)
call("ix_", lambda x: x[jnp.ix_(jnp.array([0, 1]), jnp.array([0, 2]))], X)
call("array_of_tracers", lambda x: jnp.array([x, x * 2, 1.0]), f32())
call("array_nested", lambda x: jnp.array([[x, 0], [1, x]]), f32())
call("asarray", lambda x: (jnp.asarray(x), jnp.asarray(x, jnp.float16), jnp.asarray([1, 2])), X)
call("copy", lambda x: (jnp.copy(x), x.copy(), jnp.array(x, copy=True)), X)
call("astype", lambda x: (x.astype(jnp.int32), x.astype(bool), jnp.astype(x, jnp.bfloat16)), X)
call("view", lambda x: (x.view(jnp.int32), x.view(jnp.uint8)), X)
call("frombuffer_constant", lambda x: x + jnp.frombuffer(b"\x01\x02\x03", dtype=jnp.uint8), f32(3))
call("fromfunction", lambda: jnp.fromfunction(lambda i, j: i + j, (2, 3), dtype=int))
call("matrix_transpose", lambda x: (x.mT, jnp.matrix_transpose(x), jnp.permute_dims(x, (1, 0))), X)
call("bit_packing", lambda x: jnp.unpackbits(jnp.packbits(x > 0)), f32(9))
call("apply_along_axis", lambda x: jnp.apply_along_axis(jnp.sum, 1, x), X)
call("apply_over_axes", lambda x: jnp.apply_over_axes(jnp.sum, x, (0, 1)), X)
call("vectorize", lambda x, y: jnp.vectorize(jnp.dot, signature="(n),(n)->()")(x, y), X, f32(3))


@case(X)
def shape_arithmetic():
    def f(x):
        rows, columns = x.shape
        return jnp.zeros((columns, rows)).at[0].set(x[:, 0]), x.size * 2.0, jnp.shape(x)[0] + x

    return f
