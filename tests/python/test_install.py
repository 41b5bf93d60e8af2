"""`install`, `uninstall` and `accelerated`: every trace of the process, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import jaxide
import resting
from jaxide import _core

X = np.arange(3.0, dtype=np.float32)


def _tracer_type() -> type:
    seen: list[type] = []
    jaxide.make_jaxpr(lambda x: seen.append(type(x)))(X)
    return seen[0]


OURS = _tracer_type()


@pytest.fixture(autouse=True)
def uninstalled() -> Iterator[None]:
    yield
    jaxide.uninstall()


def is_ours(start: Callable[[Callable[..., Any]], Any]) -> bool:
    """Whether the trace that `start` starts of a function has jaxide's tracers."""
    seen: list[type] = []

    def function(x: Any) -> Any:
        seen.append(type(x))
        return jnp.sin(x) * 2

    start(function)
    assert seen
    return all(kind is OURS for kind in seen)


STARTS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "make_jaxpr": lambda f: jax.make_jaxpr(f)(X),
    "jit": lambda f: jax.jit(f)(X),
    "lower": lambda f: jax.jit(f).lower(X),
    "eval_shape": lambda f: jax.eval_shape(f, X),
    "export": lambda f: jax.export.export(jax.jit(f))(X),
    "scan": lambda f: jax.lax.scan(lambda c, x: (c, f(x)), 0.0, X),
    "cond": lambda f: jax.lax.cond(jnp.any(X > 1), f, f, X),
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_every_trace_is_recorded_by_jaxide(start: Callable[..., Any]) -> None:
    jax.clear_caches()
    assert not is_ours(start)
    jaxide.install()
    assert is_ours(start)
    jaxide.uninstall()
    assert not is_ours(start)
    with jaxide.accelerated():
        assert is_ours(start)
    assert not is_ours(start)


def test_install_is_idempotent_and_accelerated_nests() -> None:
    start = STARTS["jit"]
    jaxide.install()
    jaxide.install()
    with jaxide.accelerated(), jaxide.accelerated():
        jaxide.uninstall()
        assert is_ours(start)
    assert not is_ours(start)
    jaxide.uninstall()
    assert not is_ours(start)


def test_leaving_by_an_error_ends_the_acceleration() -> None:
    with pytest.raises(ZeroDivisionError), jaxide.accelerated():
        raise ZeroDivisionError
    assert not is_ours(STARTS["jit"])


def test_all_threads_are_accelerated() -> None:
    found: list[bool] = []
    jaxide.install()
    thread = threading.Thread(target=lambda: found.append(is_ours(STARTS["jit"])))
    thread.start()
    thread.join()
    assert found == [True]


def test_threads_may_enter_and_leave_at_any_time() -> None:
    barrier = threading.Barrier(4)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                barrier.wait()
                with jaxide.accelerated():
                    scale = float(number * 100 + turn)
                    expected = X * np.float32(scale) + 1
                    np.testing.assert_array_equal(jax.jit(lambda x: x * scale + 1)(X), expected)
        except BaseException as failure:
            failures.append(failure)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not is_ours(STARTS["jit"])


def _modules() -> list[types.ModuleType]:
    touched = [m for name, m in sorted(sys.modules.items()) if name.partition(".")[0] == "jax"]
    return [*touched, warnings]


def _state() -> dict[tuple[str, ...], int]:
    """Identities of all that modules and classes of jax hold, and of the code of functions."""
    found: dict[tuple[str, ...], int] = {}

    def note(path: tuple[str, ...], value: Any) -> None:
        found[path] = id(value)
        code = getattr(value, "__code__", None)
        if isinstance(value, types.FunctionType) and code is not None:
            found[(*path, "__code__")] = id(code)

    for module in _modules():
        for name, value in vars(module).items():
            note((module.__name__, name), value)
            if isinstance(value, type) and value.__module__.partition(".")[0] in ("jax", "jaxlib"):
                for attribute, member in vars(value).items():
                    note((module.__name__, name, attribute), member)
    return found


def test_uninstall_leaves_jax_as_it_was_found() -> None:
    jax.jit(lambda x: jnp.where(x > 0, x, jax.nn.relu(x)))(X)
    before = _state()
    jaxide.install()
    during = _state()
    changed = {path for path in before if during.get(path) != before[path]}
    assert ("jax.numpy", "where", "__code__") in changed
    assert all(path[-1] == "__code__" or path == ("warnings", "warn") for path in changed)
    jax.jit(lambda x: jnp.where(x > 0, x, jax.nn.relu(x)).at[0].set(jnp.sum(x)))(X)
    jaxide.uninstall()
    after = _state()
    # Imports that jax makes when it is used add names; nothing that was there may differ.
    assert {path for path in before if after.get(path) != before[path]} == set()
    assert not {path for path in after if "jaxide" in str(path)}


def test_calls_outside_of_traces_run_the_code_of_jax() -> None:
    """In a process of its own, since a trace that another test gave up and still holds counts."""
    made = subprocess.run([sys.executable, resting.__file__], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr


def test_a_thread_that_rests_leaves_the_traces_of_others_alone() -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def rest() -> None:
        x = jnp.asarray(X)
        while not stop.is_set():
            resting.COMPILED(x)
            jnp.where(x > 0, x, 0.0)

    def trace(number: int) -> None:
        try:
            for turn in range(40):
                scale = float(number * 100 + turn)
                text = str(jax.make_jaxpr(lambda x: jnp.where(x > scale, jnp.sin(x) * scale, x))(X))
                assert "mul" in text and f"{scale}:f32[]" in text
        except BaseException as failure:
            failures.append(failure)

    jaxide.install()
    idle = threading.Thread(target=rest)
    idle.start()
    threads = [threading.Thread(target=trace, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    idle.join()
    assert not failures


def test_results_and_texts_are_the_same_when_installed() -> None:
    def step(w: Any, x: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)
        return w - 0.1 * gradient, loss

    w, x = np.ones((3, 2), np.float32), np.ones((4, 3), np.float32)
    texts, numbers = [], []
    for installed in (False, True, True, True):
        jax.clear_caches()
        if installed:
            jaxide.install()
        texts.append(str(jax.make_jaxpr(lambda w, x: step(w, x))(w, x)))
        numbers.append(jax.tree.map(np.asarray, jax.jit(lambda w, x: step(w, x))(w, x)))
    assert len(set(texts)) == 1
    for other in numbers[1:]:
        jax.tree.map(np.testing.assert_array_equal, numbers[0], other)


def test_a_trace_outlives_the_acceleration_it_began_in() -> None:
    def function(x: Any) -> Any:
        y = jnp.sin(x)
        jaxide.uninstall()
        return jnp.where(y > 0, y, x) + 1

    expected = str(jax.make_jaxpr(lambda x: function(x))(X))
    jaxide.install()
    assert str(jax.make_jaxpr(lambda x: function(x))(X)) == expected


def test_modules_imported_later_are_caught() -> None:
    import jax.scipy.stats

    caught = {id(function) for function in _core.interposed_functions()}
    jaxide.make_jaxpr(lambda x: x)(X)
    caught_now = {id(function) for function in _core.interposed_functions()}
    assert caught <= caught_now
    assert id(jax.scipy.stats.norm.logpdf) in caught_now


def test_cache_info_adds_up_and_is_cleared() -> None:
    def function(x: Any) -> Any:
        return jnp.sin(x) + jnp.sin(x) * jnp.asarray(X)

    jaxide.clear_caches()
    assert jaxide.cache_info().entries == 0
    for _ in range(3):
        jaxide.make_jaxpr(lambda x: function(x))(X)
    info = jaxide.cache_info()
    assert info.hits == sum(c.hits for c in info.callables.values()) > 0
    assert info.misses == sum(c.misses for c in info.callables.values()) > 0
    assert info.entries == sum(c.entries for c in info.callables.values())
    assert info.bypasses.keys() == {r for c in info.callables.values() for r in c.bypasses}
    assert 0 < info.bytes <= info.max_bytes
    jax.clear_caches()
    cleared = jaxide.cache_info()
    assert (cleared.hits, cleared.misses, cleared.entries, cleared.bytes) == (0, 0, 0, 0)


def test_a_script_answers_calls() -> None:
    def function(x: Any) -> Any:
        return jnp.sin(x) + jnp.sum(x)

    def measured(x: Any) -> Any:
        with _core.Script() as script:
            first = function(x)
            assert len(script) == 3
            script.play()
            assert function(x) is first
            with pytest.raises(RuntimeError, match="more calls"):
                jnp.cos(x)
        return function(x)

    assert len(jaxide.make_jaxpr(measured)(X).eqns) == 6
