"""Settings of jax, however they are assigned: calls are as jax stages them under these."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxide

X = np.arange(4.0, dtype=np.float32).reshape(2, 2)

# Settings that show in programs: the name, values, and the context manager.
SETTINGS: tuple[tuple[str, tuple[Any, ...], Callable[[Any], Any]], ...] = (
    (
        "jax_default_matmul_precision",
        (None, "float32", "bfloat16", "tensorfloat32"),
        jax.default_matmul_precision,
    ),
    ("jax_enable_x64", (False, True), jax.enable_x64),
    ("jax_numpy_dtype_promotion", ("standard", "strict"), jax.numpy_dtype_promotion),
    ("jax_numpy_rank_promotion", ("allow", "raise"), jax.numpy_rank_promotion),
    ("jax_default_prng_impl", ("threefry2x32", "rbg"), jax.default_prng_impl),
)


def terms(x: Any) -> Iterator[Callable[[], Any]]:
    yield lambda: jnp.dot(x, x)
    yield lambda: jnp.arange(2.0)[None]
    yield lambda: jnp.arange(2)
    yield lambda: jnp.ones(2, x.dtype)
    yield lambda: jax.jit(lambda a: jnp.sum(a @ a, dtype=float))(x)
    yield lambda: jax.random.uniform(jax.random.key(0), (2, 2))


def f(x: Any) -> Any:
    y = x
    for term in terms(x):
        with contextlib.suppress(TypeError, ValueError):
            y = y * 2 + term()
    return y


def check() -> None:
    expected = str(jax.make_jaxpr(lambda x: f(x))(X))
    assert str(jaxide.make_jaxpr(lambda x: f(x))(X)) == expected


@pytest.fixture
def restored() -> Iterator[None]:
    before = {name: getattr(jax.config, name) for name, *_ in SETTINGS}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("restored")
def test_walks(seed: int) -> None:
    """Contexts that are entered and left, and assignments for the process, by turns."""
    draw = random.Random(seed)
    with contextlib.ExitStack() as outermost:
        stacks = [outermost]
        for _ in range(12):
            for _ in range(draw.choice([1, 1, 2, 40])):
                name, values, manager = draw.choice(SETTINGS)
                match draw.choice(["enter", "enter", "leave", "update"]):
                    case "enter":
                        stacks.append(stacks[-1].enter_context(contextlib.ExitStack()))
                        stacks[-1].enter_context(manager(draw.choice(values)))
                    case "leave" if len(stacks) > 1:
                        stacks.pop().close()
                    case _:
                        jax.config.update(name, draw.choice(values))
            check()


def in_thread(run: Callable[[], None]) -> None:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def assign() -> None:
    jax.config.update("jax_default_matmul_precision", "float32")


def assign_in_context() -> None:
    with jax.default_matmul_precision("float32"):
        check()


def check_within(program: Callable[[Any], Any]) -> str:
    """Traces a program that assigns settings; the text."""
    texts = []
    for make_jaxpr in (jax.make_jaxpr, jaxide.make_jaxpr):
        jax.config.update("jax_default_matmul_precision", None)
        texts.append(str(make_jaxpr(lambda x: program(x))(X)))
    assert texts[0] == texts[1]
    return texts[0]


@pytest.mark.parametrize("run", [assign, assign_in_context])
@pytest.mark.usefixtures("restored")
def test_other_threads(run: Callable[[], None]) -> None:
    """Within a trace another thread assigns a setting: for all threads, or for itself alone."""

    def twice(x: Any) -> Any:
        y = jnp.dot(x, x)
        in_thread(run)
        return jnp.dot(y, x)

    for _ in range(3):
        text = check_within(twice)
        assert ("FLOAT32" in text or "HIGHEST" in text) == (run is assign)


@pytest.mark.usefixtures("restored")
def test_within_a_trace() -> None:
    """More assignments than are remembered, between two calls of one function."""

    def often(x: Any) -> Any:
        y = jnp.dot(x, x)
        for turn in range(100):
            jax.config.update("jax_default_matmul_precision", ("float32", "bfloat16")[turn % 2])
            jax.config.update("jax_numpy_rank_promotion", ("allow", "warn")[turn % 2])
        return jnp.dot(y, x)

    for _ in range(3):
        check_within(often)


def test_while_nothing_is_traced() -> None:
    """Assignments before, between and after activations."""
    for precision in (None, "float32", None, "bfloat16", "float32"):
        with jax.default_matmul_precision(precision):
            check()
            with jaxide.accelerated(), jax.default_matmul_precision("tensorfloat32"):
                check()
            check()
