"""Kernels of blackjax on a regression."""

from __future__ import annotations

from typing import Any

import blackjax
import jax
import jax.numpy as jnp
from jax.scipy import stats

from libraries import Program


def density(params: Any, x: Any, y: Any) -> Any:
    """The log density of a robust regression and its prior."""
    scale = jnp.exp(params["log_scale"])
    prior = stats.norm.logpdf(params["w"]).sum() + stats.expon.logpdf(scale)
    errors = (y - x @ params["w"] - params["b"]) / scale
    return prior + jnp.sum(stats.t.logpdf(errors, 4.0) - params["log_scale"])


def _program(make: Any) -> Program:
    """Ten steps of a kernel in a scan, for four chains."""
    x = jax.random.normal(jax.random.key(0), (32, 5))
    params = {"w": jnp.zeros(5), "b": jnp.array(0.0), "log_scale": jnp.array(0.0)}

    def chain(key: Any, x: Any, y: Any) -> Any:
        kernel = make(lambda params: density(params, x, y))
        state = kernel.init(params)

        def body(state: Any, key: Any) -> Any:
            state, info = kernel.step(key, state)
            return state, (state.position, info.acceptance_rate, info.is_divergent)

        return jax.lax.scan(body, state, jax.random.split(key, 10))

    step = lambda keys, x, y: jax.vmap(chain, (0, None, None))(keys, x, y)
    return Program(step, (jax.random.split(jax.random.key(1), 4), x, x @ jnp.arange(5.0)))


def nuts() -> Program:
    """NUTS with a diagonal mass matrix."""
    return _program(lambda density: blackjax.nuts(density, 0.05, jnp.ones(7), max_num_doublings=5))


def hmc() -> Program:
    """HMC with ten integration steps."""
    return _program(lambda density: blackjax.hmc(density, 0.05, jnp.ones(7), 10))
