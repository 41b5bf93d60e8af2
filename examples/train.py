"""Trains a classifier whose step is made anew in each epoch.

The learning rate is a captured array, so all epochs have one program. jaxide compiles it twice,
stock jax once for each epoch; with ``--cache-dir`` the next run starts with what this one has
recorded and compiled.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp

import jaxide


def init(key, sizes=(64, 256, 256, 10)):
    """The parameters of a perceptron."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(k, (m, n)) / m**0.5, "b": jnp.zeros(n)}
        for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def loss(params, x, y):
    """Cross entropy."""
    *hidden, last = params
    for layer in hidden:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    logits = jax.nn.log_softmax(x @ last["w"] + last["b"])
    return -jnp.mean(jnp.sum(logits * y, axis=1))


def make_step(rate):
    """A step of gradient descent: a new function for each learning rate."""

    @jax.jit
    def step(params, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - rate * g, params, grads), value

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50, help="in each epoch")
    parser.add_argument("--stock", action="store_true", help="without jaxide")
    parser.add_argument("--cache-dir", help="a folder that the next run finds")
    options = parser.parse_args()

    if options.cache_dir is not None:
        jax.config.update("jax_compilation_cache_dir", f"{options.cache_dir}/jax")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    if not options.stock:
        store = f"{options.cache_dir}/jaxide" if options.cache_dir is not None else None
        jaxide.install(cache_dir=store)

    key = jax.random.key(0)
    x = jax.random.normal(key, (512, 64))
    y = jax.nn.one_hot(jnp.argmax(x[:, :10], axis=1), 10)
    params = init(key)
    for epoch in range(options.epochs):
        begin = time.perf_counter()
        step = make_step(jnp.float32(0.5 * 0.8**epoch))
        for _ in range(options.steps):
            params, value = step(params, x, y)
        value.block_until_ready()
        print(f"epoch {epoch}: loss {value:.3f}, {time.perf_counter() - begin:.2f} s")

    rows = [row for row in jaxide.retraces() if row.function.startswith("step at")]
    for row in rows:
        print(f"{row.function}: traced {row.count} times, {row.shared} without compiling")


if __name__ == "__main__":
    main()
