"""A training step in equinox, as in its MLP-mixer example."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from libraries import Program


class Block(eqx.Module):
    """Mixes patches, then channels."""

    patches: eqx.nn.MLP
    channels: eqx.nn.MLP
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm]

    def __init__(self, patches: int, width: int, *, key: Any):
        one, other = jax.random.split(key)
        self.patches = eqx.nn.MLP(patches, patches, 2 * patches, 1, key=one)
        self.channels = eqx.nn.MLP(width, width, 2 * width, 1, key=other)
        self.norms = eqx.nn.LayerNorm((width, patches)), eqx.nn.LayerNorm((patches, width))

    def __call__(self, x: Any) -> Any:
        x = x + jax.vmap(self.patches)(self.norms[0](x))
        y = x.T
        y = y + jax.vmap(self.channels)(self.norms[1](y))
        return y.T


class Mixer(eqx.Module):
    """Patches of images, blocks, a classifier."""

    first: eqx.nn.Conv2d
    blocks: list[Block]
    norm: eqx.nn.LayerNorm
    last: eqx.nn.Linear

    def __init__(self, width: int, depth: int, *, key: Any):
        keys = jax.random.split(key, depth + 2)
        self.first = eqx.nn.Conv2d(3, width, 4, stride=4, key=keys[0])
        self.blocks = [Block(64, width, key=key) for key in keys[2:]]
        self.norm = eqx.nn.LayerNorm((width, 64))
        self.last = eqx.nn.Linear(width, 10, key=keys[1])

    def __call__(self, image: Any) -> Any:
        x = self.first(image).reshape(-1, 64)
        for block in self.blocks:
            x = block(x)
        return self.last(self.norm(x).mean(-1))


def mixer() -> Program:
    """Four blocks, filtered gradients, adam with a schedule."""
    model = Mixer(32, 4, key=jax.random.key(0))
    tx = optax.adam(optax.cosine_decay_schedule(1e-3, 100))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    @eqx.filter_value_and_grad
    def loss(model: Any, images: Any, labels: Any) -> Any:
        logits = jax.vmap(model)(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(params: Any, state: Any, images: Any, labels: Any) -> Any:
        model = eqx.combine(params, static)
        value, grads = loss(model, images, labels)
        updates, state = tx.update(grads, state, params)
        model = eqx.apply_updates(model, updates)
        return eqx.filter(model, eqx.is_inexact_array), state, value

    images = jax.random.normal(jax.random.key(1), (8, 3, 32, 32))
    return Program(step, (params, tx.init(params), images, jnp.arange(8) % 10))
