"""Linear algebra: jax.numpy.linalg, jax.scipy.linalg, jax.lax.linalg and products."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import lax

from corpus.registry import c64, call, f32, spd

A, S, B = f32(3, 3), spd(3), f32(3, 2)
LOOSE = {"tolerance": 1e-3}
linalg = jnp.linalg

for _name in "cholesky inv det slogdet pinv eigvalsh svdvals cond matrix_rank trace".split():
    call(f"linalg_{_name}", getattr(linalg, _name), S, **LOOSE)

call(
    "linalg_norms",
    lambda x: (
        linalg.norm(x),
        linalg.norm(x, 1),
        linalg.norm(x, "nuc"),
        linalg.norm(x, axis=0, ord=3),
    ),
    A,
    **LOOSE,
)
call("linalg_vector_norm", lambda x: (linalg.vector_norm(x, ord=jnp.inf), linalg.matrix_norm(x)), A)
call("linalg_solve", lambda s, b: linalg.solve(s, b), S, B, **LOOSE)
call(
    "linalg_solve_grad", lambda s, b: jax.grad(lambda m: linalg.solve(m, b).sum())(s), S, B, **LOOSE
)
call("linalg_lstsq", lambda a, b: linalg.lstsq(a, b)[0], f32(4, 2), f32(4), **LOOSE)
call("linalg_eigh", lambda s: linalg.eigh(s), S, **LOOSE)
call("linalg_eigh_grad", lambda s: jax.grad(lambda m: linalg.eigh(m)[0][0])(s), S, **LOOSE)
call("linalg_eig", lambda s: linalg.eigvals(s), S, **LOOSE)
call("linalg_svd", lambda a: linalg.svd(a, full_matrices=False), f32(4, 3), **LOOSE)
call(
    "linalg_svd_grad",
    lambda a: jax.grad(lambda m: linalg.svd(m, compute_uv=False).sum())(a),
    A,
    **LOOSE,
)
call("linalg_qr", lambda a: linalg.qr(a), f32(4, 3), **LOOSE)
call("linalg_qr_complete", lambda a: linalg.qr(a, mode="complete"), f32(4, 3), **LOOSE)
call("linalg_qr_grad", lambda a: jax.grad(lambda m: linalg.qr(m)[1].sum())(a), f32(4, 3), **LOOSE)
call(
    "linalg_matrix_power",
    lambda a: (linalg.matrix_power(a, 3), linalg.matrix_power(a, -1)),
    S,
    **LOOSE,
)
call("linalg_multi_dot", lambda a, b: linalg.multi_dot([a, a, b]), A, B, **LOOSE)
call(
    "linalg_tensorsolve",
    lambda a, b: linalg.tensorsolve(a.reshape(3, 1, 3, 1), b),
    S,
    f32(3, 1),
    **LOOSE,
)
call("linalg_tensorinv", lambda a: linalg.tensorinv(a.reshape(3, 1, 3, 1), ind=2), S, **LOOSE)
call("linalg_cholesky_grad", lambda s: jax.grad(lambda m: linalg.cholesky(m).sum())(s), S, **LOOSE)
call(
    "linalg_batched",
    lambda s: (linalg.inv(s[None]), jax.vmap(linalg.det)(jnp.stack([s, 2 * s]))),
    S,
    **LOOSE,
)
call("linalg_complex", lambda s: linalg.cholesky(s), spd(3, jnp.complex64), **LOOSE)
call(
    "linalg_products",
    lambda a, b: (linalg.outer(a[0], a[1]), linalg.vecdot(a, a), linalg.cross(a, a[::-1])),
    A,
    B,
)
call(
    "linalg_diagonal",
    lambda a: (linalg.diagonal(a), linalg.matrix_transpose(a), linalg.trace(a, offset=1)),
    A,
)
call("scipy_linalg_cho", lambda s, b: jsl.cho_solve(jsl.cho_factor(s), b), S, B, **LOOSE)
call("scipy_linalg_lu", lambda a: jsl.lu(a), S, **LOOSE)
call(
    "scipy_linalg_lu_solve", lambda a, b: jsl.lu_solve(jsl.lu_factor(a), b, trans=1), S, B, **LOOSE
)
call("scipy_linalg_solve", lambda a, b: jsl.solve(a, b, assume_a="pos"), S, B, **LOOSE)
call(
    "scipy_linalg_solve_triangular",
    lambda a, b: jsl.solve_triangular(a, b, lower=True, trans="T"),
    S,
    B,
    **LOOSE,
)
call("scipy_linalg_expm", lambda a: jsl.expm(a / 4), A, **LOOSE)
call("scipy_linalg_sqrtm", lambda a: jsl.sqrtm(a), S, **LOOSE)
call("scipy_linalg_schur", lambda a: jsl.schur(a, output="complex"), S, **LOOSE)
call("scipy_linalg_polar", lambda a: jsl.polar(a), S, tolerance=1e-2)
call("scipy_linalg_block_diag", lambda a, b: jsl.block_diag(a, b), A, B)
call("scipy_linalg_toeplitz", lambda a: (jsl.toeplitz(a), jsl.hilbert(3)), f32(3))
call(
    "scipy_linalg_eigh_tridiagonal",
    lambda d, e: jsl.eigh_tridiagonal(d, e, eigvals_only=True),
    f32(4),
    f32(3),
    **LOOSE,
)
call("scipy_linalg_hessenberg", lambda a: jsl.hessenberg(a), A, **LOOSE)
call(
    "lax_linalg_triangular_solve",
    lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True, unit_diagonal=True),
    S,
    B,
    **LOOSE,
)
call("lax_linalg_lu", lambda a: lax.linalg.lu(a), S, **LOOSE)
call("lax_linalg_qdwh", lambda a: lax.linalg.qdwh(a)[0], S, tolerance=1e-2)
call(
    "lax_linalg_householder",
    lambda a: lax.linalg.householder_product(a, jnp.ones(3) / 2),
    A,
    **LOOSE,
)
call(
    "lax_linalg_tridiagonal_solve",
    lambda d, b: lax.linalg.tridiagonal_solve(d, d * 0 + 4, d, b),
    f32(3),
    B,
    **LOOSE,
)
call("lax_linalg_symmetric_product", lambda a: lax.linalg.symmetric_product(a, a, alpha=2.0), A)

call("dot", jnp.dot, A, f32(3))
call("matmul_batched", jnp.matmul, f32(2, 3, 4), f32(4, 5))
call("matmul_vectors", lambda x, y: x @ y, f32(3), f32(3))
call(
    "tensordot", lambda x, y: jnp.tensordot(x, y, axes=((1, 2), (0, 1))), f32(2, 3, 4), f32(3, 4, 5)
)
call(
    "vecdot_matvec", lambda x, y: (jnp.vecdot(x, x), jnp.matvec(x, y), jnp.vecmat(y, x)), A, f32(3)
)
for _subscripts, _shapes in {
    "ij,jk->ik": ((2, 3), (3, 4)),
    "bij,bjk->bik": ((2, 2, 3), (2, 3, 4)),
    "ij->ji": ((2, 3),),
    "ii->i": ((3, 3),),
    "ii": ((3, 3),),
    "ij,ij->": ((2, 3), (2, 3)),
    "i,j->ij": ((2,), (3,)),
    "bhtd,bhsd->bhts": ((1, 2, 3, 4), (1, 2, 5, 4)),
    "...ij,...jk->...ik": ((2, 1, 3, 4), (2, 4, 2)),
    "ij,jk,kl->il": ((2, 3), (3, 4), (4, 2)),
    "abc->b": ((2, 3, 4),),
}.items():
    call(
        f"einsum {_subscripts}",
        lambda *xs, subscripts=_subscripts: jnp.einsum(subscripts, *xs),
        *[f32(*s) for s in _shapes],
    )
call(
    "einsum_path_and_options",
    lambda x: jnp.einsum("ij,jk,kl", x, x, x, optimize="optimal", precision="highest"),
    A,
)
call(
    "einsum_complex_grad",
    lambda z: jax.vjp(lambda w: jnp.einsum("ij,jk->ik", w, w), z)[1](z),
    c64(2, 2),
)
