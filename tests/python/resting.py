"""Under `install()`, calls outside of traces run jax's own code: the script of `test_install`."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxide

X = np.arange(3.0, dtype=np.float32)
WHERE = jnp.where.__code__
COMPILED = jax.jit(lambda x: x * 2)

CALLS: dict[str, Callable[[], Any]] = {
    "function": lambda: jnp.where(X > 0, X, 0.0),
    "jit": lambda: COMPILED(X),
    "operator": lambda: jnp.asarray(X) + 1,
    "ufunc": lambda: jnp.add(X, X),
    "bind": lambda: jax.lax.neg_p.bind(jnp.asarray(X)),
    "custom_jvp": lambda: jax.nn.relu(X),
}


def is_caught() -> bool:
    """Whether functions of jax have code of jaxide."""
    return jnp.where.__code__ is not WHERE


def rests_at_a_call(call: Callable[[], Any]) -> None:
    expected = np.asarray(call())  # whatever it traces, it has traced
    jaxide.install()
    for _ in range(3):
        jax.make_jaxpr(lambda x: jnp.sin(x) * 2)(X)
        assert is_caught()
        np.testing.assert_array_equal(np.asarray(call()), expected)
        assert not is_caught()
    jaxide.uninstall()
    assert not is_caught()


def stays_caught_while_a_trace_is_recording() -> None:
    seen: list[bool] = []

    def function(x: Any) -> Any:
        jax.eval_shape(jnp.sin, X)
        jnp.where(X > 0, X, 0.0)
        seen.append(is_caught())
        return x

    jaxide.install()
    jax.eval_shape(function, X)
    assert seen == [True]
    jnp.where(X > 0, X, 0.0)
    assert not is_caught()
    jaxide.uninstall()


def counts_a_trace_that_was_given_up_while_it_is_alive() -> None:
    def function(x: Any) -> Any:
        raise ZeroDivisionError

    jaxide.install()
    try:
        jax.eval_shape(function, X)
    except ZeroDivisionError as error:
        kept: Any = error
    jnp.where(X > 0, X, 0.0)
    assert is_caught()
    del kept
    gc.collect()
    jnp.where(X > 0, X, 0.0)
    assert not is_caught()
    jaxide.uninstall()


if __name__ == "__main__":
    for name, one in CALLS.items():
        print(name, flush=True)
        rests_at_a_call(one)
    stays_caught_while_a_trace_is_recording()
    counts_a_trace_that_was_given_up_while_it_is_alive()
