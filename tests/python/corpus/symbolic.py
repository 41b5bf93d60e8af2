"""Shapes with symbolic dimensions."""

import jax
import jax.numpy as jnp
from jax import export

from corpus.registry import call

SYMBOLIC = {"unevaluated": "its dimensions have no size"}


def shaped(*shapes, dtype=jnp.float32, constraints=()):
    """Arguments whose symbolic dimensions belong to one scope."""
    scope = export.SymbolicScope(constraints)
    return [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), dtype) for shape in shapes
    ]


call("symbolic_elementwise", lambda x: jnp.sin(x) + x * 2, *shaped("n"), **SYMBOLIC)
call("symbolic_reduction", lambda x: (x.sum(0), x.mean(1)), *shaped("n, m"), **SYMBOLIC)
call("symbolic_matmul", lambda x, y: x @ y, *shaped("b, k", "k, 3"), **SYMBOLIC)
call(
    "symbolic_reshape",
    lambda x: (x.reshape(-1), x.reshape(x.shape[0] * 2, -1)),
    *shaped("n, 4"),
    **SYMBOLIC,
)
call("symbolic_concatenate", lambda x, y: jnp.concatenate([x, y]), *shaped("n", "m"), **SYMBOLIC)
call("symbolic_broadcast", lambda x, y: x + y, *shaped("n, m", "m"), **SYMBOLIC)
call(
    "symbolic_slice",
    lambda x: (x[1:], x[::-1], x[0]),
    *shaped("n", constraints=("n >= 2",)),
    **SYMBOLIC,
)
call("symbolic_arange", lambda x: x + jnp.arange(x.shape[0]), *shaped("n"), **SYMBOLIC)
call(
    "symbolic_dimension_as_value",
    lambda x: x.sum() / x.shape[0] + x.shape[0] // 2,
    *shaped("n"),
    **SYMBOLIC,
)
call(
    "symbolic_constraints",
    lambda x: x[: x.shape[0] // 2],
    *shaped("2*n", constraints=("n >= 4",)),
    **SYMBOLIC,
)
call("symbolic_pad", lambda x: jnp.pad(x, (1, 2)), *shaped("n"), **SYMBOLIC)
call("symbolic_where", lambda x: jnp.where(x > 0, x, 0.0), *shaped("n, 3"), **SYMBOLIC)
call("symbolic_softmax", lambda x: jax.nn.softmax(x, axis=-1), *shaped("b, 5"), **SYMBOLIC)
call("symbolic_grad", lambda x: jax.grad(lambda v: (v**2).sum())(x), *shaped("n"), **SYMBOLIC)
call("symbolic_vmap", lambda x: jax.vmap(lambda v: v * v.sum())(x), *shaped("b, 3"), **SYMBOLIC)
call(
    "symbolic_scan",
    lambda x: jax.lax.scan(lambda c, v: (c + v, v), jnp.zeros(3), x),
    *shaped("n, 3"),
    **SYMBOLIC,
)
call("symbolic_jit", lambda x: jax.jit(lambda v: v.T * 2)(x), *shaped("a, b"), **SYMBOLIC)
call(
    "symbolic_while",
    lambda x: jax.lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], 0.0),
    *shaped("n"),
    **SYMBOLIC,
)
call(
    "symbolic_cond",
    lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x),
    *shaped("n"),
    **SYMBOLIC,
)
call(
    "symbolic_einsum",
    lambda x, y: jnp.einsum("bij,bjk->bik", x, y),
    *shaped("b, i, j", "b, j, 2"),
    **SYMBOLIC,
)
call("symbolic_reused_dimension", lambda x, y: x * y, *shaped("n, n", "n"), **SYMBOLIC)
call("symbolic_integers", lambda x: x + 1, *shaped("n", dtype=jnp.int32), **SYMBOLIC)
call(
    "shape_struct_arguments",
    lambda x, y: x @ y,
    jax.ShapeDtypeStruct((2, 3), jnp.float32),
    jax.ShapeDtypeStruct((3,), jnp.bfloat16),
    unevaluated="its arguments have no value",
)
call(
    "shape_struct_weak_type",
    lambda x: x + 1,
    jax.ShapeDtypeStruct((), jnp.float32, weak_type=True),
    unevaluated="its arguments have no value",
)
