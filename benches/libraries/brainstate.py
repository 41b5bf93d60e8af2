"""A recurrent network in brainstate, whose states are read and written."""

from __future__ import annotations

from typing import Any

import brainstate
import jax
import jax.numpy as jnp

from libraries import Program


class Rnn(brainstate.nn.Module):
    """Two layers of gated units, and a readout."""

    def __init__(self, size: int, width: int, out: int):
        super().__init__()
        self.first = brainstate.nn.GRUCell(size, width)
        self.second = brainstate.nn.GRUCell(width, width)
        self.readout = brainstate.nn.Linear(width, out)

    def update(self, x: Any) -> Any:
        return self.readout(self.second(self.first(x)))


def rnn() -> Program:
    """The gradient through a loop over time, and descent, for weights that are given."""
    brainstate.random.seed(0)
    model = Rnn(8, 32, 4)
    brainstate.nn.init_all_states(model, batch_size=4)
    weights = model.states(brainstate.ParamState)
    values = {str(name): weight.value for name, weight in weights.items()}

    def loss(xs: Any, ys: Any) -> Any:
        brainstate.nn.reset_all_states(model, batch_size=4)
        found = brainstate.transform.for_loop(model.update, xs)
        return jnp.mean((found - ys) ** 2)

    def step(values: Any, xs: Any, ys: Any) -> Any:
        before = {name: state.value for name, state in model.states().items()}
        # brainstate refuses to write tracers to states that nobody traces.
        with brainstate.StateTraceStack():
            try:
                for name, weight in weights.items():
                    weight.value = values[str(name)]
                gradient = brainstate.transform.grad(loss, weights, return_value=True)
                grads, value = gradient(xs, ys)
                for name, weight in weights.items():
                    move = lambda w, g: w - 0.01 * g
                    weight.value = jax.tree.map(move, weight.value, grads[name])
                return {str(name): weight.value for name, weight in weights.items()}, value
            finally:
                for name, state in model.states().items():
                    state.value = before[name]

    xs = jax.random.normal(jax.random.key(0), (20, 4, 8))
    return Program(step, (values, xs, jnp.ones((20, 4, 4))))
