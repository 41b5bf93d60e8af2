"""A step of an environment of brax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from brax import envs

from libraries import Program


def ant() -> Program:
    """Two steps of four ants, by the spring pipeline, with the gradient for the actions."""
    environment = envs.get_environment("ant", backend="spring")
    state = jax.vmap(environment.reset)(jax.random.split(jax.random.PRNGKey(0), 4))

    def step(state: Any, actions: Any) -> Any:
        def reward(actions: Any) -> Any:
            after = jax.vmap(environment.step)(state, actions)
            return jnp.mean(after.reward), after

        (value, after), grads = jax.value_and_grad(reward, has_aux=True)(actions)
        return jax.vmap(environment.step)(after, actions + 0.1 * grads), value

    return Program(step, (state, jnp.full((4, environment.action_size), 0.1)))
