"""Linear systems in lineax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import lineax

from libraries import Program


def solvers() -> Program:
    """Gradients through solutions by LU, QR, CG, GMRES and Cholesky, of trees and batches too."""

    def loss(matrix: Any, tall: Any, vector: Any) -> Any:
        general = lineax.MatrixLinearOperator(matrix)
        tags = lineax.positive_semidefinite_tag
        positive = lineax.MatrixLinearOperator(matrix @ matrix.T + jnp.eye(8), tags)
        function = lineax.FunctionLinearOperator(
            lambda y: {"a": matrix @ y["a"] + y["b"], "b": 2.0 * y["b"] - 0.1 * y["a"]},
            jax.eval_shape(lambda: {"a": vector, "b": vector}),
        )
        found = [
            lineax.linear_solve(general, vector, lineax.LU()).value,
            lineax.linear_solve(positive, vector, lineax.Cholesky()).value,
            lineax.linear_solve(
                positive, vector, lineax.CG(rtol=1e-4, atol=1e-4, max_steps=32), throw=False
            ).value,
            lineax.linear_solve(
                general, vector, lineax.GMRES(rtol=1e-4, atol=1e-4, max_steps=32), throw=False
            ).value,
            lineax.linear_solve(lineax.MatrixLinearOperator(tall), jnp.ones(12), lineax.QR()).value,
            lineax.linear_solve(
                function,
                {"a": vector, "b": vector},
                lineax.AutoLinearSolver(well_posed=True),
            ).value,
        ]
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(found))

    def step(matrix: Any, tall: Any, vectors: Any) -> Any:
        every = lambda m, t: jnp.mean(jax.vmap(loss, (None, None, 0))(m, t, vectors))
        return jax.value_and_grad(every, argnums=(0, 1))(matrix, tall)

    one, two, three = jax.random.split(jax.random.key(0), 3)
    matrix = jnp.eye(8) * 3 + 0.1 * jax.random.normal(one, (8, 8))
    tall = jax.random.normal(two, (12, 8))
    return Program(step, (matrix, tall, jax.random.normal(three, (4, 8))))
