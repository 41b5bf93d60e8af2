"""A joint distribution in TensorFlow Probability on jax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

from libraries import Program

tfd, tfb = tfp.distributions, tfp.bijectors


def joint_distribution() -> Program:
    """Gradients of the log density in unconstrained space, and samples, for several chains."""
    x = jax.random.normal(jax.random.key(0), (24, 3))

    def model() -> Any:
        return tfd.JointDistributionSequentialAutoBatched(
            [
                tfd.Gamma(2.0, 1.0),
                lambda scale: tfd.MultivariateNormalDiag(jnp.zeros(3), scale * jnp.ones(3)),
                tfd.Beta(2.0, 2.0),
                lambda share, w, scale: tfd.MixtureSameFamily(
                    tfd.Categorical(probs=jnp.stack([share, 1.0 - share])),
                    tfd.Normal(jnp.stack([x @ w, jnp.zeros(24)], -1), scale),
                ),
            ]
        )

    bijectors = [tfb.Softplus(), tfb.Identity(), tfb.Sigmoid()]

    def density(free: Any, y: Any) -> Any:
        values = [bijector(value) for bijector, value in zip(bijectors, free, strict=True)]
        logs = [
            jnp.sum(bijector.forward_log_det_jacobian(value, event_ndims=value.ndim))
            for bijector, value in zip(bijectors, free, strict=True)
        ]
        return model().log_prob([*values, y]) + sum(logs)

    def step(free: Any, y: Any, key: Any) -> Any:
        values, grads = jax.vmap(jax.value_and_grad(density), (0, None))(free, y)
        return values, grads, model().sample(seed=key)

    free = [jnp.zeros(4), jnp.ones((4, 3)), jnp.zeros(4)]
    return Program(step, (free, jnp.ones(24), jax.random.PRNGKey(1)))
