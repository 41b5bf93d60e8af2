"""Steps of inference in numpyro."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal

from libraries import Program


def hierarchical(x: Any, groups: Any, y: Any = None) -> None:
    """A hierarchical regression with correlated effects and heavy tails."""
    size = x.shape[-1]
    mean = numpyro.sample("mean", dist.Normal(0.0, jnp.ones(size)).to_event(1))
    scales = numpyro.sample("scales", dist.HalfCauchy(jnp.ones(size)).to_event(1))
    factor = numpyro.sample("factor", dist.LKJCholesky(size, 2.0))
    with numpyro.plate("groups", 6):
        effects = numpyro.sample(
            "effects", dist.MultivariateNormal(mean, scale_tril=scales[:, None] * factor)
        )
    freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.1))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    location = jnp.sum(x * effects[groups], -1)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.StudentT(freedom, location, noise), obs=y)


def data() -> tuple[Any, ...]:
    x = jax.random.normal(jax.random.key(0), (48, 3))
    return x, jnp.arange(48) % 6, x @ jnp.array([1.0, -1.0, 0.5])


def svi() -> Program:
    """A step of variational inference with a full covariance."""
    guide = AutoMultivariateNormal(hierarchical)
    inference = SVI(hierarchical, guide, numpyro.optim.Adam(1e-2), Trace_ELBO(num_particles=2))
    args = data()
    state = inference.init(jax.random.key(1), *args)
    return Program(lambda *given: inference.update(*given), (state, *args))


def nuts() -> Program:
    """A step of NUTS with adaptation of step size and mass matrix."""
    kernel = NUTS(hierarchical, max_tree_depth=5)
    args = data()
    state = kernel.init(jax.random.PRNGKey(1), 20, None, args, {})
    return Program(lambda state, *given: kernel.sample(state, given, {}), (state, *args))
