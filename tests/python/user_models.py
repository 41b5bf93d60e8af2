"""Training steps as users write them, with the libraries that they use: each a function and example
arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Model = tuple[Callable[..., Any], tuple[Any, ...]]
WIDTH = 16


def linen_gpt() -> Model:
    """Two blocks of a GPT in flax's linen, dropout included, with adamw and a schedule."""
    import optax
    from flax import linen

    class Block(linen.Module):
        @linen.compact
        def __call__(self, x: Any, train: bool) -> Any:
            mask = linen.make_causal_mask(jnp.ones(x.shape[:2]))
            attention = linen.MultiHeadDotProductAttention(num_heads=2, name="attention")
            x = x + attention(linen.LayerNorm()(x), mask=mask)
            y = linen.Dense(4 * WIDTH)(linen.LayerNorm()(x))
            y = linen.Dense(WIDTH)(linen.gelu(y))
            return x + linen.Dropout(0.1, deterministic=not train)(y)

    class Gpt(linen.Module):
        @linen.compact
        def __call__(self, ids: Any, train: bool = False) -> Any:
            x = linen.Embed(32, WIDTH)(ids)
            for _ in range(2):
                x = Block()(x, train)
            return linen.Dense(32)(linen.LayerNorm()(x))

    model = Gpt()
    ids = jnp.zeros((2, 8), jnp.int32)
    params = model.init(jax.random.key(0), ids)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    def step(params: Any, state: Any, ids: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            logits = model.apply(params, ids[:, :-1], train=True, rngs={"dropout": key})
            return optax.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:]).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    return step, (params, tx.init(params), ids, jax.random.key(1))


def nnx_mlp() -> Model:
    """A perceptron with batch norm in flax's nnx, split and merged, with an optimizer."""
    import optax
    from flax import nnx

    class Mlp(nnx.Module):
        def __init__(self, rngs: Any):
            self.first = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
            self.norm = nnx.BatchNorm(WIDTH, rngs=rngs)
            self.second = nnx.Linear(WIDTH, 1, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.second(nnx.relu(self.norm(self.first(x))))

    model = Mlp(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))

    def step(state: Any, x: Any, y: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        loss = lambda model: jnp.mean((model(x) - y) ** 2)
        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), value

    return step, (state, jnp.ones((4, WIDTH)), jnp.ones((4, 1)))


def equinox_mlp() -> Model:
    """A perceptron in equinox with adam: modules are arguments and results."""
    import equinox as eqx
    import optax

    model = eqx.nn.MLP(WIDTH, 1, WIDTH, 2, activation=jax.nn.softplus, key=jax.random.key(0))
    tx = optax.adam(1e-3)
    params, static = eqx.partition(model, eqx.is_array)

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            return jnp.mean((jax.vmap(eqx.combine(params, static))(x) - y) ** 2)

        value, grads = eqx.filter_value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params)
        return eqx.apply_updates(params, updates), state, value

    return step, (params, tx.init(params), jnp.ones((4, WIDTH)), jnp.ones((4, 1)))


def diffrax_ode() -> Model:
    """The gradient of the solution of a neural differential equation."""
    import diffrax

    def solve(weights: Any, start: Any) -> Any:
        field = lambda t, y, args: jnp.tanh(args["w"] @ y + args["b"])
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Tsit5(),
            0.0,
            1.0,
            0.1,
            start,
            args=weights,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6),
            saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 5)),
        )
        return solution.ys.sum(), solution.stats

    weights = {"w": jnp.eye(4), "b": jnp.zeros(4)}
    return jax.grad(solve, has_aux=True), (weights, jnp.ones(4))


def numpyro_svi() -> Model:
    """A step of variational inference for a logistic regression."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    def model(x: Any, y: Any = None) -> None:
        weights = numpyro.sample("weights", dist.Normal(0, jnp.ones(4)).to_event(1))
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights * scale), obs=y)

    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(1e-2), Trace_ELBO())
    x, y = jnp.ones((8, 4)), jnp.zeros(8)
    return lambda state, x, y: svi.update(state, x, y), (svi.init(jax.random.key(0), x, y), x, y)


def scan_rnn() -> Model:
    """A recurrent network in plain jax, whose steps are checkpointed, with gradient descent."""

    def step(params: Any, xs: Any, ys: Any) -> Any:
        def loss(params: Any) -> Any:
            def cell(h: Any, x: Any) -> Any:
                h = jax.nn.silu(x @ params["x"] + jax.nn.relu(h) @ params["h"])
                return h, h

            _, hs = lax.scan(jax.checkpoint(cell), jnp.zeros((2, WIDTH)), xs)
            return jnp.mean(jax.nn.softplus(hs.sum(-1) - ys))

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    params = {"x": jnp.eye(WIDTH), "h": jnp.eye(WIDTH)}
    return step, (params, jnp.ones((5, 2, WIDTH)), jnp.ones((5, 2)))


MODELS: dict[str, Callable[[], Model]] = {
    make.__name__: make
    for make in (linen_gpt, nnx_mlp, equinox_mlp, diffrax_ode, numpyro_svi, scan_rnn)
}
