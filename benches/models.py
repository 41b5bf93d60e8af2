"""Training steps of models as users write them: each returns (step, example arguments).

They are measured beside the workloads. Needs: jax, numpy, optax; equinox for equinox_mlp, numpyro
for numpyro_svi.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Workload = tuple[Callable[..., Any], tuple[Any, ...]]


def _weights() -> Callable[..., jax.Array]:
    """Makes arrays of random numbers, of the shapes given."""
    rng = np.random.default_rng(0)
    return lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)


def lstm(layers: int = 3, steps: int = 20, batch: int = 4, width: int = 32) -> Workload:
    """Three LSTM layers, each a scan, with a classifier and adam."""
    import optax

    new = _weights()
    params = dict(
        layers=[
            dict(wx=new(width, 4 * width), wh=new(width, 4 * width), b=new(4 * width))
            for _ in range(layers)
        ],
        out=dict(w=new(width, 8), b=new(8)),
    )
    tx = optax.adam(1e-3)

    def cell(p: Any, carry: Any, x: Any) -> Any:
        h, c = carry
        gates = x @ p["wx"] + h @ p["wh"] + p["b"]
        i, f, o, u = jnp.split(gates, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(u)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def loss(p: Any, xs: Any, labels: Any) -> Any:
        for layer in p["layers"]:
            zeros = jnp.zeros((batch, width))
            body = lambda carry, x, layer=layer: cell(layer, carry, x)
            _, xs = lax.scan(body, (zeros, zeros), xs)
        logits = xs[-1] @ p["out"]["w"] + p["out"]["b"]
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(batch), labels])

    def step(p: Any, s: Any, xs: Any, labels: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(p, xs, labels)
        updates, s = tx.update(grads, s, p)
        return optax.apply_updates(p, updates), s, value

    labels = jnp.zeros(batch, jnp.int32)
    return step, (params, tx.init(params), new(steps, batch, width), labels)


def graph_network(rounds: int = 6, nodes: int = 20, edges: int = 60, width: int = 16) -> Workload:
    """Rounds of message passing over a graph, and gradient descent."""
    new, rng = _weights(), np.random.default_rng(1)
    dense = lambda: (new(2 * width, width), new(width))
    params = [dict(edge=dense(), node=dense()) for _ in range(rounds)]
    senders, receivers = (jnp.asarray(rng.integers(0, nodes, edges)) for _ in range(2))

    def layer(p: Any, *parts: Any) -> Any:
        return jax.nn.relu(jnp.concatenate(parts, -1) @ p[0] + p[1])

    def loss(params: Any, x: Any, senders: Any, receivers: Any) -> Any:
        for p in params:
            messages = layer(p["edge"], x[senders], x[receivers])
            x = x + layer(p["node"], x, jax.ops.segment_sum(messages, receivers, nodes))
        return jnp.mean(x**2)

    def step(params: Any, x: Any, senders: Any, receivers: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, senders, receivers)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return step, (params, new(nodes, width), senders, receivers)


def maml(tasks: int = 4, points: int = 10, width: int = 40) -> Workload:
    """Model-agnostic meta-learning: the gradient through two steps of descent, for many tasks."""
    new = _weights()
    params = [(new(1, width), new(width)), (new(width, width), new(width)), (new(width, 1), new(1))]

    def loss(params: Any, x: Any, y: Any) -> Any:
        *hidden, last = params
        for w, b in hidden:
            x = jax.nn.relu(x @ w + b)
        return jnp.mean((x @ last[0] + last[1] - y) ** 2)

    def descend(params: Any, grads: Any, rate: float) -> Any:
        return jax.tree.map(lambda p, g: p - rate * g, params, grads)

    def task(params: Any, x: Any, y: Any, new_x: Any, new_y: Any) -> Any:
        for _ in range(2):
            params = descend(params, jax.grad(loss)(params, x, y), 0.01)
        return loss(params, new_x, new_y)

    def step(params: Any, *data: Any) -> Any:
        every = lambda params: jnp.mean(jax.vmap(task, (None, 0, 0, 0, 0))(params, *data))
        value, grads = jax.value_and_grad(every)(params)
        return descend(params, grads, 0.001), value

    data = new(tasks, points, 1)
    return step, (params, data, data, data, data)


def equinox_mlp() -> Workload:
    """An equinox network of four layers and adam."""
    import equinox
    import optax

    model = equinox.nn.MLP(8, 4, 32, 3, key=jax.random.key(0))
    tx = optax.adam(1e-3)
    params, static = equinox.partition(model, equinox.is_array)

    @equinox.filter_value_and_grad
    def loss(model: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jax.vmap(model)(x) - y) ** 2)

    def step(params: Any, s: Any, x: Any, y: Any) -> Any:
        value, grads = loss(equinox.combine(params, static), x, y)
        updates, s = tx.update(grads, s, params)
        return equinox.apply_updates(params, updates), s, value

    return step, (params, tx.init(params), jnp.ones((16, 8)), jnp.ones((16, 4)))


def numpyro_svi() -> Workload:
    """A step of variational inference for a linear regression."""
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    x, y = jnp.ones((50, 3)), jnp.ones(50)

    def model(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(jnp.zeros(3), 1).to_event(1))
        b = numpyro.sample("b", dist.Normal(0.0, 1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with numpyro.plate("data", 50):
            numpyro.sample("obs", dist.Normal(x @ w + b, sigma), obs=y)

    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(1e-2), Trace_ELBO())
    state = svi.init(jax.random.PRNGKey(0), x, y)
    return lambda *args: svi.update(*args), (state, x, y)


ALL = dict(
    lstm=lstm,
    graph_network=graph_network,
    maml=maml,
    equinox_mlp=equinox_mlp,
    numpyro_svi=numpyro_svi,
)
