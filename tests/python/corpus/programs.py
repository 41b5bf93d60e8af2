"""Small whole programs: models, optimisers, solvers and simulations."""

import jax
import jax.numpy as jnp
import optax
from jax import lax

from corpus.registry import case, f32, i32, key, spd, unit


def dense(w, x):
    return jnp.tanh(x @ w["w"] + w["b"])


DENSE = {"w": f32(4, 4), "b": f32(4)}


@case([DENSE, DENSE], f32(3, 4), f32(3, 4))
def mlp_training_step():
    def loss(layers, x, y):
        for layer in layers:
            x = dense(layer, x)
        return jnp.mean((x - y) ** 2)

    def step(layers, x, y):
        value, grads = jax.value_and_grad(loss)(layers, x, y)
        return jax.tree.map(lambda w, g: w - 0.1 * g, layers, grads), value

    return step


def optimiser_step(optimiser):
    def step(params, grads):
        state = optimiser.init(params)
        updates, state = optimiser.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return step


for _name in ("sgd", "adam", "adamw", "lamb", "lion", "rmsprop", "adagrad", "adafactor"):
    case(DENSE, DENSE, name=f"optimiser_{_name}", tolerance=1e-4)(
        lambda make=getattr(optax, _name): optimiser_step(make(1e-2))
    )


@case(DENSE, f32(2, 4))
def optimiser_schedule_and_clipping():
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, 3, 10)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))

    def step(params, x):
        def one(carry, v):
            params, state = carry
            grads = jax.grad(lambda p: dense(p, v).sum())(params)
            updates, state = optimiser.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), optax.tree.norm(grads)

        return lax.scan(one, (params, optimiser.init(params)), x)

    return step


@case({"q": f32(4, 4), "k": f32(4, 4), "v": f32(4, 4)}, f32(2, 3, 4), tolerance=1e-4)
def attention_block():
    def attend(w, x):
        q, k, v = x @ w["q"], x @ w["k"], x @ w["v"]
        scores = jnp.einsum("btd,bsd->bts", q, k) / jnp.sqrt(q.shape[-1])
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        return jnp.einsum("bts,bsd->btd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)

    return jax.value_and_grad(lambda w, x: (attend(w, x) ** 2).mean())


@case(f32(3, 3, 2, 4), f32(2, 6, 6, 2), tolerance=1e-4)
def convolutional_network():
    def network(kernel, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)
        y = jax.nn.relu(y - y.mean((0, 1, 2))) / (y.std((0, 1, 2)) + 1e-5)
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return y.mean((1, 2)).sum()

    return jax.grad(network)


@case(f32(3, 9), f32(5, 3))
def gated_recurrent_network():
    def f(w, xs):
        def step(h, x):
            gates = jax.nn.sigmoid(x @ w[:, :6])
            z, r = jnp.split(gates, 2)
            h = (1 - z) * h + z * jnp.tanh(x @ w[:, 6:] + r * h)
            return h, h

        return lax.scan(step, jnp.zeros(3), xs)[1].sum()

    return jax.value_and_grad(f)


@case(f32(3))
def runge_kutta():
    def field(y, t):
        return jnp.stack([y[1], -y[0] + t, y[2] * 0.1])

    def step(y, t, h=0.1):
        k1 = field(y, t)
        k2 = field(y + h / 2 * k1, t + h / 2)
        k3 = field(y + h / 2 * k2, t + h / 2)
        k4 = field(y + h * k3, t + h)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), y

    return lambda y: lax.scan(step, y, jnp.linspace(0.0, 1.0, 5))


@case(f32(low=1.0, high=9.0))
def newton_with_tolerance():
    def f(a):
        def unfinished(state):
            x, previous, i = state
            return (jnp.abs(x - previous) > 1e-5) & (i < 20)

        def improve(state):
            x, _, i = state
            return x - (x * x - a) / (2 * x), x, i + 1

        return lax.while_loop(unfinished, improve, (a, a + 1, 0))[0]

    return f


@case(spd(3), f32(3), tolerance=1e-3)
def conjugate_gradient():
    def f(a, b):
        def step(_, state):
            x, r, p = state
            q = a @ p
            alpha = (r @ r) / (p @ q)
            s = r - alpha * q
            return x + alpha * p, s, s + (s @ s) / (r @ r) * p

        return lax.fori_loop(0, 3, step, (jnp.zeros(3), b, b))[0]

    return f


@case(f32(6, 2), f32(3, 2))
def k_means():
    def f(points, centres):
        def step(c, _):
            distances = ((points[:, None] - c) ** 2).sum(-1)
            member = jax.nn.one_hot(jnp.argmin(distances, 1), c.shape[0])
            return (member.T @ points) / jnp.maximum(member.sum(0)[:, None], 1), distances.min(1)

        return lax.scan(step, centres, None, length=2)

    return f


@case(key(), f32(3))
def random_walk_metropolis():
    def f(k, x):
        def step(state, k):
            x, accepted = state
            proposal, choice = jax.random.split(k)
            y = x + 0.1 * jax.random.normal(proposal, x.shape)
            accept = jnp.log(jax.random.uniform(choice)) < (x**2 - y**2).sum() / 2
            return (jnp.where(accept, y, x), accepted + accept), y

        return lax.scan(step, (x, 0), jax.random.split(k, 3))

    return f


@case(unit(4, 4), i32(5, low=0, high=4))
def viterbi():
    def f(transition, observed):
        def step(score, o):
            candidates = score[:, None] + jnp.log(transition)
            return candidates.max(0) + jnp.log(transition[:, o]), candidates.argmax(0)

        score, back = lax.scan(step, jnp.zeros(4), observed)
        return lax.scan(lambda s, b: (b[s], s), jnp.argmax(score), back, reverse=True)[1]

    return f


@case(f32(4, 3))
def pairwise_energy_forces():
    def energy(positions):
        difference = positions[:, None] - positions[None]
        squared = (difference**2).sum(-1) + jnp.eye(len(positions))
        return jnp.sum(jnp.triu(1 / squared**6 - 1 / squared**3, 1))

    return lambda positions: -jax.grad(energy)(positions)


@case(f32(2, 2), f32(5, 2))
def kalman_filter():
    def f(a, observations):
        def step(state, y):
            m, p = state
            m, p = a @ m, a @ p @ a.T + jnp.eye(2)
            gain = p @ jnp.linalg.inv(p + jnp.eye(2))
            return (m + gain @ (y - m), p - gain @ p), m

        return lax.scan(step, (jnp.zeros(2), jnp.eye(2)), observations)

    return f


@case(f32(4), f32(3))
def per_example_gradients_and_fisher():
    def f(w, x):
        grads = jax.vmap(jax.grad(lambda v, u: jnp.tanh(v * u).sum()), (None, 0))(w, x)
        return grads.T @ grads, jax.hessian(lambda v: jnp.tanh(v).prod())(w)

    return f


@case(f32(2, 5, 5))
def game_of_life_like_stencil():
    def f(grid):
        alive = grid > 0
        shifts = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
        neighbours = sum(jnp.roll(alive.astype(jnp.int32), s, (1, 2)) for s in shifts)
        return (neighbours == 3) | (alive & (neighbours == 2))

    return f
