"""Fits and minimisations in optimistix."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optimistix

from libraries import Program


def least_squares() -> Program:
    """The gradient of a fit by Levenberg-Marquardt with respect to the data."""

    def residuals(params: Any, data: Any) -> Any:
        x, y = data
        peaks = params["height"] * jnp.exp(-((x[:, None] - params["place"]) ** 2) / params["width"])
        return peaks.sum(-1) + params["base"] - y

    def fit(x: Any, y: Any) -> Any:
        start = {
            "height": jnp.ones(3),
            "place": jnp.array([0.2, 0.5, 0.8]),
            "width": jnp.full(3, 0.02),
            "base": jnp.array(0.0),
        }
        solver = optimistix.LevenbergMarquardt(rtol=1e-4, atol=1e-4)
        found = optimistix.least_squares(
            residuals, solver, start, (x, y), max_steps=64, throw=False
        )
        return jnp.sum(found.value["height"]), found.value

    x = jnp.linspace(0.0, 1.0, 50)
    y = jnp.exp(-((x - 0.4) ** 2) / 0.01) + 0.5 * jnp.exp(-((x - 0.7) ** 2) / 0.03)
    return Program(jax.value_and_grad(fit, argnums=1, has_aux=True), (x, y))


def bfgs() -> Program:
    """A logistic regression by BFGS, for several penalties at once, with implicit gradients."""

    def objective(weights: Any, args: Any) -> Any:
        x, y, penalty = args
        scores = x @ weights["w"] + weights["b"]
        loss = jnp.mean(jax.nn.softplus(scores) - y * scores)
        return loss + penalty * jnp.sum(weights["w"] ** 2)

    def fit(penalty: Any, x: Any, y: Any) -> Any:
        start = {"w": jnp.zeros(8), "b": jnp.array(0.0)}
        solver = optimistix.BFGS(rtol=1e-4, atol=1e-4)
        found = optimistix.minimise(
            objective, solver, start, (x, y, penalty), max_steps=64, throw=False
        )
        return found.value, found.stats["num_steps"]

    def every(penalties: Any, x: Any, y: Any) -> Any:
        gradient = jax.grad(lambda p: jnp.sum(fit(p, x, y)[0]["w"] ** 2))(penalties[0])
        return jax.vmap(fit, (0, None, None))(penalties, x, y), gradient

    x = jax.random.normal(jax.random.key(0), (64, 8))
    y = (x[:, 0] + 0.1 * x[:, 1] > 0).astype(jnp.float32)
    return Program(every, (jnp.array([0.01, 0.1, 1.0]), x, y))
