"""Jits of libraries while jaxide is installed: what they make anew is not compiled anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import brainstate
import equinox
import flax.nnx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.infer import HMC, MCMC, SVI, Trace_ELBO

import jaxide
from compilations import Compiled

X = np.linspace(-1, 1, 8, dtype=np.float32)


def equinox_modules(step: int) -> Any:
    """A step over modules with static fields; function, modules and optimiser are new."""
    model = equinox.nn.MLP(8, 1, 16, 2, activation=jax.nn.gelu, key=jax.random.key(step))
    optimiser = optax.adam(1e-2)

    @equinox.filter_jit
    def update(model: Any, state: Any, x: Any) -> Any:
        loss, grads = equinox.filter_value_and_grad(lambda m: jnp.mean(m(x) ** 2))(model)
        updates, state = optimiser.update(grads, state)
        return loss, equinox.apply_updates(model, updates), state

    state = optimiser.init(equinox.filter(model, equinox.is_array))
    loss, model, _ = update(model, state, X)
    return loss, jax.tree.leaves(equinox.filter(model, equinox.is_array))


def equinox_closure(step: int) -> Any:
    """A module that the function captures."""
    model = equinox.nn.Linear(8, 4, key=jax.random.key(step))
    return equinox.filter_jit(lambda x: jax.nn.relu(model(x)))(X)


def nnx_training(step: int) -> Any:
    """A step that changes the state of a model and of an optimiser."""
    model = flax.nnx.Linear(8, 2, rngs=flax.nnx.Rngs(step))
    optimiser = flax.nnx.Optimizer(model, optax.sgd(0.1), wrt=flax.nnx.Param)

    @flax.nnx.jit
    def update(model: Any, optimiser: Any, x: Any) -> Any:
        loss, grads = flax.nnx.value_and_grad(lambda m: jnp.mean(m(x) ** 2))(model)
        optimiser.update(model, grads)
        return loss

    return update(model, optimiser, X), model.kernel[...], model.bias[...]


def brainstate_states(step: int) -> Any:
    """A jit that reads and writes states."""
    weight = brainstate.ParamState(jnp.full((8,), 1.0 + step))
    count = brainstate.ShortTermState(jnp.zeros((), jnp.int32))

    @brainstate.transform.jit
    def update(x: Any) -> Any:
        grads = brainstate.transform.grad(lambda: jnp.sum((weight.value * x) ** 2), weight)()
        weight.value = weight.value - 0.1 * grads
        count.value = count.value + 1
        return weight.value @ x

    return update(X), update(X), weight.value, count.value


def numpyro_sampling(step: int) -> Any:
    """A chain of a model that captures its data."""
    data = jnp.asarray(X) * (1 + step)

    def model() -> None:
        location = numpyro.sample("location", dist.Normal(0, 10))
        with numpyro.plate("data", len(data)):
            numpyro.sample("observed", dist.Normal(location, 1), obs=data)

    sampler = MCMC(
        HMC(model, num_steps=2, trajectory_length=None),
        num_warmup=3,
        num_samples=4,
        progress_bar=False,
    )
    sampler.run(jax.random.key(0))
    return sampler.get_samples()


def numpyro_variational(step: int) -> Any:
    """Steps of an inference whose model, guide and optimiser are new."""
    data = jnp.asarray(X) + step

    def model() -> None:
        location = numpyro.sample("location", dist.Normal(0, 10))
        numpyro.sample("observed", dist.Normal(location, 1).to_event(0), obs=data.mean())

    def guide() -> None:
        mean = numpyro.param("mean", jnp.zeros(()))
        numpyro.sample("location", dist.Normal(mean, 0.1))

    inference = SVI(model, guide, optax.sgd(0.01), Trace_ELBO())
    state = inference.init(jax.random.key(0))
    update = jax.jit(inference.update)
    for _ in range(3):
        state, loss = update(state)
    return loss, inference.get_params(state)


LOOPS: list[Callable[[int], Any]] = [
    equinox_modules,
    equinox_closure,
    nnx_training,
    brainstate_states,
    numpyro_sampling,
    numpyro_variational,
]


@pytest.mark.covering(times=2, each_value=False)
@pytest.mark.parametrize("step", LOOPS, ids=lambda step: step.__name__)
def test_a_step_that_is_made_anew_is_compiled_once(step: Callable[[int], Any]) -> None:
    expected = [step(i) for i in range(3)]
    with jaxide.accelerated():
        got = [step(i) for i in range(2)]
        with Compiled() as compiled:
            got.append(step(2))
    assert compiled.count == 0
    for one, other in zip(got, expected, strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5), one, other)
