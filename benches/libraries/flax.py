"""Training steps in flax: a language model in linen, a convolutional network in nnx."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx
from flax.training.train_state import TrainState

from libraries import Program

WIDTH, HEADS, LAYERS, WORDS = 64, 4, 4, 256


class Block(linen.Module):
    """Attention and a feed-forward network, with dropout."""

    @linen.compact
    def __call__(self, x: Any, is_training: bool) -> Any:
        mask = linen.make_causal_mask(jnp.ones(x.shape[:2]))
        attention = linen.MultiHeadDotProductAttention(
            num_heads=HEADS, dropout_rate=0.1, deterministic=not is_training
        )
        x = x + attention(linen.LayerNorm()(x), mask=mask)
        y = linen.Dense(4 * WIDTH)(linen.LayerNorm()(x))
        y = linen.Dense(WIDTH)(linen.gelu(y))
        return x + linen.Dropout(0.1, deterministic=not is_training)(y)


class Transformer(linen.Module):
    """A decoder: embeddings, blocks, logits."""

    @linen.compact
    def __call__(self, words: Any, is_training: bool) -> Any:
        x = linen.Embed(WORDS, WIDTH)(words)
        x = x + self.param("places", linen.initializers.normal(), (words.shape[1], WIDTH))
        for _ in range(LAYERS):
            x = linen.remat(Block, static_argnums=(2,))()(x, is_training)
        return linen.Dense(WORDS)(linen.LayerNorm()(x))


def linen_transformer() -> Program:
    """Four checkpointed blocks with dropout, a TrainState, adamw and a schedule."""
    model = Transformer()
    words = jax.random.randint(jax.random.key(2), (4, 33), 0, WORDS)
    params = model.init(jax.random.key(0), words[:, :-1], False)["params"]
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    state = TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    def step(state: Any, words: Any, key: Any) -> Any:
        key = jax.random.fold_in(key, state.step)

        def loss(params: Any) -> Any:
            logits = state.apply_fn({"params": params}, words[:, :-1], True, rngs={"dropout": key})
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, words[:, 1:])
            return losses.mean(), logits

        (value, logits), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        accuracy = jnp.mean(jnp.argmax(logits, -1) == words[:, 1:])
        return state.apply_gradients(grads=grads), value, accuracy

    return Program(step, (state, words, jax.random.key(1)))


class Cnn(nnx.Module):
    """Convolutions with batch norm, dropout and two dense layers."""

    def __init__(self, rngs: nnx.Rngs):
        sizes = [(1, 16), (16, 32), (32, 32)]
        self.convolutions = nnx.List([nnx.Conv(*of, (3, 3), rngs=rngs) for of in sizes])
        self.norms = nnx.List([nnx.BatchNorm(n, rngs=rngs) for _, n in sizes])
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.hidden = nnx.Linear(32 * 9, 64, rngs=rngs)
        self.out = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = nnx.avg_pool(nnx.relu(norm(convolution(x))), (2, 2), (2, 2))
        x = nnx.relu(self.hidden(self.dropout(x.reshape(x.shape[0], -1))))
        return self.out(x)


def nnx_cnn() -> Program:
    """A step with an optimizer and metrics, on modules that are split and merged."""
    model = Cnn(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
    graph, state = nnx.split((model, optimizer, metrics))

    def step(state: Any, images: Any, labels: Any) -> Any:
        model, optimizer, metrics = nnx.merge(graph, state)

        def loss(model: Any) -> Any:
            logits = model(images)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return losses.mean(), logits

        (value, logits), grads = nnx.value_and_grad(loss, has_aux=True)(model)
        metrics.update(loss=value, logits=logits, labels=labels)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer, metrics)), value

    images = jax.random.normal(jax.random.key(0), (8, 24, 24, 1))
    return Program(step, (state, images, jnp.arange(8) % 10))
