"""Training steps in haiku: a residual network and a transformer."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from libraries import Program


def resnet() -> Program:
    """A residual network with batch norm, its states, momentum and weight decay."""

    def forward(images: Any, is_training: bool) -> Any:
        network = hk.nets.ResNet(
            blocks_per_group=(1, 1, 1, 1),
            num_classes=10,
            channels_per_group=(8, 16, 16, 32),
            bottleneck=False,
        )
        return network(images, is_training=is_training)

    model = hk.transform_with_state(forward)
    images = jax.random.normal(jax.random.key(0), (4, 32, 32, 3))
    params, state = model.init(jax.random.key(1), images, True)
    momenta = jax.tree.map(jnp.zeros_like, params)

    def step(params: Any, state: Any, momenta: Any, images: Any, labels: Any) -> Any:
        def loss(params: Any) -> Any:
            logits, new = model.apply(params, state, None, images, True)
            chosen = jax.nn.log_softmax(logits)[jnp.arange(labels.shape[0]), labels]
            decay = sum(jnp.sum(p**2) for p in jax.tree.leaves(params))
            return -chosen.mean() + 1e-4 * decay, new

        (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params)
        moved = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, grads)
        return jax.tree.map(lambda p, m: p - 0.01 * m, params, moved), new, moved, value

    return Program(step, (params, state, momenta, images, jnp.arange(4)))


def transformer() -> Program:
    """Blocks with attention and dropout, layers stacked in a scan."""
    width, heads, layers, words = 64, 4, 4, 128

    def block(x: Any) -> Any:
        init = hk.initializers.VarianceScaling(1.0)
        norm = lambda x: hk.LayerNorm(-1, create_scale=True, create_offset=True)(x)
        mask = jnp.tril(jnp.ones((1, 1, x.shape[1], x.shape[1])))
        y = norm(x)
        attention = hk.MultiHeadAttention(heads, width // heads, w_init=init)
        x = x + hk.dropout(hk.next_rng_key(), 0.1, attention(y, y, y, mask=mask))
        y = hk.Linear(width)(jax.nn.gelu(hk.Linear(4 * width)(norm(x))))
        return x + hk.dropout(hk.next_rng_key(), 0.1, y)

    def forward(ids: Any) -> Any:
        x = hk.Embed(words, width)(ids)
        x = hk.experimental.layer_stack(layers)(block)(x)
        return hk.Linear(words)(x)

    model = hk.transform(forward)
    ids = jax.random.randint(jax.random.key(0), (4, 17), 0, words)
    params = model.init(jax.random.key(1), ids[:, :-1])

    def step(params: Any, key: Any, ids: Any) -> Any:
        def loss(params: Any) -> Any:
            logits = model.apply(params, key, ids[:, :-1])
            chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), ids[:, 1:, None], -1)
            return -chosen.mean()

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    return Program(step, (params, jax.random.key(2), ids))
