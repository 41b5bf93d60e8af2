"""A normalizing flow in distrax."""

from __future__ import annotations

from typing import Any

import distrax
import jax
import jax.numpy as jnp

from libraries import Program


def flow() -> Program:
    """A training step of couplings by rational quadratic splines, with samples and a divergence."""
    size, bins, layers, width = 6, 8, 4, 32
    mask = jnp.arange(size) % 2 == 0
    out = size * (3 * bins + 1)

    def conditioner(weights: Any, x: Any) -> Any:
        hidden = jax.nn.relu(x @ weights["w"] + weights["b"])
        return (hidden @ weights["out"]).reshape((*x.shape[:-1], size, 3 * bins + 1))

    def distribution(params: Any) -> Any:
        couplings = []
        for number, weights in enumerate(params):
            couplings.append(
                distrax.MaskedCoupling(
                    mask if number % 2 else ~mask,
                    bijector=lambda p: distrax.RationalQuadraticSpline(p, -3.0, 3.0),
                    conditioner=lambda x, weights=weights: conditioner(weights, x),
                )
            )
        base = distrax.Independent(distrax.Normal(jnp.zeros(size), jnp.ones(size)), 1)
        return distrax.Transformed(base, distrax.Inverse(distrax.Chain(couplings)))

    def step(params: Any, x: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            return -jnp.mean(distribution(params).log_prob(x))

        value, grads = jax.value_and_grad(loss)(params)
        params = jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)
        samples, densities = distribution(params).sample_and_log_prob(seed=key, sample_shape=(16,))
        one, other = (distrax.Categorical(logits=samples[:, i : i + 3]) for i in (0, 3))
        return params, value, densities, one.kl_divergence(other), one.entropy()

    keys = jax.random.split(jax.random.key(0), 2 * layers)
    params = [
        {
            "w": 0.1 * jax.random.normal(keys[2 * i], (size, width)),
            "b": jnp.zeros(width),
            "out": 0.1 * jax.random.normal(keys[2 * i + 1], (width, out)),
        }
        for i in range(layers)
    ]
    x = jax.random.normal(jax.random.key(1), (32, size))
    return Program(step, (params, x, jax.random.key(2)))
