"""Tests of programs: of what a function is traced to, and of how often.

``pytest --jaxide-update examples/test_programs.py`` stores the programs anew.
"""

import jax
import jax.numpy as jnp
import pytest

import jaxide

WEIGHTS, DATA = jnp.ones((8, 4)), jnp.ones((2, 8))


def loss(w, x):
    return jnp.mean(jnp.sin(x @ w) ** 2)


@pytest.mark.parametrize("function", [loss, jax.grad(loss)], ids=["loss", "gradient"])
def test_the_program_is_what_it_was(jaxide_program, function):
    jaxide_program(function, WEIGHTS, DATA)


def test_the_gradient_has_three_products(jaxide_program):
    program = jaxide_program(jax.grad(loss, argnums=(0, 1)), WEIGHTS, DATA)
    assert program.histogram()["dot_general"] == 3


def test_every_input_is_used():
    program = jaxide.trace(loss)(WEIGHTS, DATA)
    assert program.unused_inputs() == []


def test_the_loop_is_traced_once(jaxide_retraces):
    step = jax.jit(lambda w, x: w - 0.1 * jax.grad(loss)(w, x))
    w = WEIGHTS
    with jaxide_retraces(limit=1):
        for _ in range(3):
            w = step(w, DATA)
