"""A train state that orbax saves and restores."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp

from libraries import Program


def train_state() -> Program:
    """A step of a perceptron; the results are those of steps before and after a checkpoint."""
    sizes = [16, 64, 64, 4]
    keys = jax.random.split(jax.random.key(0), len(sizes))
    params = [
        {"w": 0.1 * jax.random.normal(key, of), "b": jnp.zeros(of[1])}
        for key, of in zip(keys, itertools.pairwise(sizes), strict=False)
    ]
    tx = optax.adamw(1e-3)
    state = {"params": params, "opt": tx.init(params), "step": jnp.array(0), "key": keys[-1]}
    x = jax.random.normal(keys[-1], (8, 16))

    def step(state: Any, x: Any) -> Any:
        key, own = jax.random.split(state["key"])

        def loss(params: Any) -> Any:
            y = x + 0.1 * jax.random.normal(own, x.shape)
            for layer in params[:-1]:
                y = jax.nn.gelu(y @ layer["w"] + layer["b"])
            return jnp.mean((y @ params[-1]["w"] + params[-1]["b"]) ** 2)

        grads = jax.grad(loss)(state["params"])
        updates, opt = tx.update(grads, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt": opt, "step": state["step"] + 1, "key": key}

    def restored() -> Any:
        take = jax.jit(step)
        before = take(take(state, x), x)
        with tempfile.TemporaryDirectory() as folder, ocp.CheckpointManager(folder) as manager:
            manager.save(2, args=ocp.args.StandardSave(before))
            manager.wait_until_finished()
            shape = jax.tree.map(ocp.utils.to_shape_dtype_struct, before)
            after = manager.restore(2, args=ocp.args.StandardRestore(shape))
            names = sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("_METADATA"))
        assert names, "nothing was saved"
        return before, after, take(after, x)

    return Program(step, (state, x), restored)
