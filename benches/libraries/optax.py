"""An update of a deep tree of parameters in optax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from libraries import Program


def deep_tree() -> Program:
    """Clipping, adamw for matrices and RMSprop for the rest, a schedule, accumulation, averages."""
    layer = {"w": (32, 32), "b": (32,), "norm": {"scale": (32,), "bias": (32,)}}
    shapes = {
        f"layer_{i}": {"attention": layer, "mlp": {"in": layer, "out": layer}} for i in range(8)
    }
    paths, tree = jax.tree.flatten(shapes, is_leaf=lambda shape: isinstance(shape, tuple))
    keys = jax.random.split(jax.random.key(0), len(paths))
    params = tree.unflatten(
        [jax.random.normal(key, shape) for key, shape in zip(keys, paths, strict=True)]
    )
    kinds = jax.tree.map(lambda p: "matrix" if p.ndim == 2 else "other", params)
    warm = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 1000)
    chain = optax.chain(
        optax.zero_nans(),
        optax.clip_by_global_norm(1.0),
        optax.partition(
            {
                "matrix": optax.chain(
                    optax.scale_by_adam(mu_dtype=jnp.bfloat16), optax.add_decayed_weights(1e-2)
                ),
                "other": optax.scale_by_rms(),
            },
            kinds,
        ),
        optax.scale_by_schedule(warm),
        optax.scale(-1.0),
    )
    tx = optax.MultiSteps(optax.apply_if_finite(chain, 3), every_k_schedule=2)

    def step(params: Any, average: Any, state: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            x = jax.random.normal(key, (4, 32))
            for block in params.values():
                for part in (block["attention"], block["mlp"]["in"], block["mlp"]["out"]):
                    y = jax.nn.gelu(x @ part["w"] + part["b"])
                    x = x + y * part["norm"]["scale"] + part["norm"]["bias"]
            return optax.huber_loss(x).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        average = optax.incremental_update(params, average, 0.01)
        return params, average, state, value, optax.tree.norm(grads)

    return Program(step, (params, params, tx.init(params), jax.random.key(1)))
