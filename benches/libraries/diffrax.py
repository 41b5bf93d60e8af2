"""Differential equations in diffrax."""

from __future__ import annotations

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from libraries import Program


def neural_ode() -> Program:
    """A training step of a neural differential equation, with the recursive checkpoint adjoint."""
    model = eqx.nn.MLP(2, 2, 64, 2, activation=jax.nn.softplus, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    tx = optax.adabelief(3e-3)
    times = jnp.linspace(0.0, 10.0, 20)

    def solve(model: Any, start: Any) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: model(y)),
            diffrax.Tsit5(),
            times[0],
            times[-1],
            times[1] - times[0],
            start,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6),
            adjoint=diffrax.RecursiveCheckpointAdjoint(checkpoints=8),
        )
        return solution.ys

    def step(params: Any, state: Any, paths: Any) -> Any:
        def loss(params: Any) -> Any:
            model = eqx.combine(params, static)
            found = jax.vmap(solve, (None, 0))(model, paths[:, 0])
            return jnp.mean((found - paths) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    paths = jax.random.normal(jax.random.key(1), (4, 20, 2))
    return Program(step, (params, tx.init(params), paths))


def sde() -> Program:
    """The gradient of the expectation of a stochastic differential equation."""

    def solve(params: Any, key: Any) -> Any:
        drift = lambda t, y, args: args["a"] @ jnp.tanh(y)
        diffusion = lambda t, y, args: jnp.diag(args["b"] * jax.nn.sigmoid(y))
        path = diffrax.VirtualBrownianTree(0.0, 1.0, 1e-2, (4,), key, diffrax.SpaceTimeLevyArea)
        terms = diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, path))
        solution = diffrax.diffeqsolve(
            terms, diffrax.Heun(), 0.0, 1.0, 0.05, jnp.ones(4), args=params, max_steps=64
        )
        return jnp.sum(solution.ys**2)

    def loss(params: Any, keys: Any) -> Any:
        return jnp.mean(jax.vmap(solve, (None, 0))(params, keys))

    params = {"a": -jnp.eye(4), "b": jnp.full(4, 0.1)}
    return Program(jax.value_and_grad(loss), (params, jax.random.split(jax.random.key(0), 8)))
