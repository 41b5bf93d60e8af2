"""`jaxide.jit`, and `jax.jit` while jaxide is installed: never the wrong program, and no compile
for a program that is known. Stock jax is the oracle of every value."""

from __future__ import annotations

import functools
import gc
import inspect
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxide
from compilations import Compiled
from jaxide._jit import intercept
from jaxide._jit.executables import Executables

X = np.arange(4.0, dtype=np.float32)
Make = Callable[[Any], Callable[..., Any]]


@pytest.fixture(params=["jaxide.jit", "jax.jit installed", "hashes of 4 bits"])
def jit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A jit that shares executables; with few bits, most programs have the hash of another one."""
    jaxide.clear_caches()
    if request.param == "hashes of 4 bits":
        monkeypatch.setattr(intercept, "EXECUTABLES", Executables(hash_bits=4))
    if request.param == "jaxide.jit":
        yield jaxide.jit
    else:
        with jaxide.accelerated():
            yield jax.jit


def assert_same(got: Any, expected: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    types = [jax.tree.map(jax.typeof, tree) for tree in (got, expected)]
    assert types[0] == types[1]


SAME: dict[str, Make] = {
    "lambda": lambda _: lambda x: jnp.sin(x) * 2,
    "grad": lambda _: jax.grad(lambda x: jnp.sum(jax.nn.gelu(x) ** 2)),
    "value_and_grad": lambda _: jax.value_and_grad(lambda x: jnp.sum(x**3)),
    "partial": lambda _: functools.partial(lambda s, x: x * s, 3.0),
    "scan": lambda _: lambda x: jax.lax.scan(lambda c, y: (c + y, c * y), 0.0, x),
    "cond": lambda _: lambda x: jax.lax.cond(x[0] > 0, lambda y: y + 1, lambda y: y - 1, x),
    "custom_jvp": lambda _: lambda x: jax.nn.relu(x) + jax.nn.silu(x),
    "callback": lambda _: lambda x: jax.pure_callback(np.sin, jax.typeof(x), x),
    "rng": lambda _: lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
    "nested": lambda _: lambda x: jax.jit(lambda y: jnp.cos(y) + 1)(x) * 2,
    "checkpoint": lambda _: jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(y) ** 2)(x).sum()),
    "pytree": lambda _: lambda x: {"a": x, "b": (x + 1, None)},
}


@pytest.mark.covering(times=2)
@pytest.mark.parametrize("make", SAME.values(), ids=SAME.keys())
def test_what_is_made_anew_is_compiled_once(make: Make, jit: Any) -> None:
    expected = jax.jit(make(None))(X)
    jit(make(None))(X)
    with Compiled() as compiled:
        for _ in range(4):
            assert_same(jit(make(None))(X), expected)
    assert compiled.count == 0


CAPTURED: dict[str, Callable[[float], Any]] = {
    "array": lambda i: jnp.full(4, i),
    "numpy": lambda i: np.full(4, i, np.float32),
    "key": lambda i: jax.random.key(int(i)),
    "committed": lambda i: jax.device_put(jnp.full(4, i), jax.devices()[0]),
}


def use(captured: Any, x: Any) -> Any:
    if jnp.issubdtype(captured.dtype, jax.dtypes.prng_key):
        return x + jax.random.normal(captured, x.shape)
    return jnp.sin(x) @ captured + captured


@pytest.mark.parametrize("make", CAPTURED.values(), ids=CAPTURED.keys())
def test_new_captured_arrays_are_used(make: Callable[[float], Any], jit: Any) -> None:
    """Those of the first are built in under `install`, as stock jax does; from the second on they
    are arguments."""
    values = [make(float(i)) for i in range(6)]
    expected = [jax.jit(functools.partial(use, value))(X) for value in values]
    new = lambda value: jit(lambda x: use(value, x))
    got = [new(value)(X) for value in values[:2]]
    with Compiled() as compiled:
        got += [new(value)(X) for value in values[2:]]
    assert compiled.count == 0
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_captured_array_may_be_unused(jit: Any) -> None:
    def make(a: Any, b: Any) -> Callable[..., Any]:
        def f(x: Any) -> Any:
            a * 2
            return x + b

        return f

    for i in range(4):
        np.testing.assert_array_equal(jit(make(jnp.ones(4), jnp.full(4, i)))(X), X + i)


def test_a_call_again_has_the_array_of_its_function(jit: Any) -> None:
    functions = [jit(lambda x, c=jnp.full(4, i): x + c) for i in range(3)]
    for _ in range(3):
        for i, function in enumerate(functions):
            np.testing.assert_array_equal(function(X), X + i)
            np.testing.assert_array_equal(function(X[:1]), X[:1] + np.full(4, i))


def test_numpy_arrays_count_as_they_were(jit: Any) -> None:
    """A function that was compiled has the elements that an array had then."""
    captured = np.zeros(4, np.float32)
    first = jit(lambda x: x + captured)
    np.testing.assert_array_equal(first(X), X)
    captured[:] = 1
    np.testing.assert_array_equal(first(X), X)
    np.testing.assert_array_equal(jit(lambda x: x + captured)(X), X + 1)
    captured[:] = 2
    np.testing.assert_array_equal(jit(lambda x: x + captured)(X), X + 2)
    np.testing.assert_array_equal(first(X), X)


@pytest.mark.parametrize("captured", ["float", "list", "dict", "bool", "zero-dimensional"])
def test_captured_python_values_count(captured: str, jit: Any) -> None:
    state: Any = {
        "float": lambda i: i + 0.5,
        "list": lambda i: [i, 2],
        "dict": lambda i: {"a": i},
        "bool": lambda i: i % 2 == 0,
        "zero-dimensional": lambda i: jnp.float32(i),
    }[captured]

    def make(value: Any) -> Callable[..., Any]:
        return lambda x: sum(jax.tree.leaves(value), x * (3 if value is True else 2))

    for i in range(4):
        assert_same(jit(make(state(i)))(X), jax.jit(make(state(i)))(X))


def test_a_mutated_list_counts(jit: Any) -> None:
    state = [1.0]
    for value in (1.0, 2.0, 1.0):
        state[0] = value
        np.testing.assert_array_equal(jit(lambda x: x + state[0])(X), X + value)


def test_callbacks_are_the_users(jit: Any) -> None:
    for i in range(4):
        seen: list[Any] = []
        effects: list[Any] = []

        def pure(x: Any, i: int = i) -> Any:
            return x + i

        def f(x: Any) -> Any:
            y = jax.pure_callback(pure, jax.typeof(x), x)
            jax.debug.callback(lambda v: seen.append(v), y)
            z = jax.experimental.io_callback(
                lambda v: effects.append(v) or v, jax.typeof(y), y, ordered=True
            )
            return z * 2

        np.testing.assert_array_equal(jit(f)(X), (X + i) * 2)
        jax.effects_barrier()
        np.testing.assert_array_equal(seen[0], X + i)
        np.testing.assert_array_equal(effects[0], X + i)


def test_printing_is_the_users(jit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("one", "two", "one"):

        def f(x: Any) -> Any:
            jax.debug.print(text + " {}", x[0])
            return x

        jit(f)(X)
        jax.effects_barrier()
        assert capsys.readouterr().out == f"{text} 0.0\n"


def rules(scale: float) -> Any:
    @jax.custom_vjp
    def f(x: Any) -> Any:
        return x * 2

    f.defvjp(lambda x: (f(x), None), lambda _, g: (g * scale,))
    return f


def test_rules_count_where_they_are_used(jit: Any) -> None:
    """The forward program is the same; what is differentiated is not."""
    for scale in (1.0, 2.0, 3.0):
        f = rules(scale)
        np.testing.assert_array_equal(jit(lambda x: f(x))(X), X * 2)
        jitted = jit(lambda x: f(x).sum())
        jitted(X)
        np.testing.assert_array_equal(jax.grad(jitted)(X), np.full(4, scale))
        np.testing.assert_array_equal(jit(jax.grad(lambda x: f(x).sum()))(X), np.full(4, scale))


def test_rules_need_no_compile_where_nothing_is_differentiated(jit: Any) -> None:
    jit(lambda x: rules(1.0)(x) + 1)(X)
    with Compiled() as compiled:
        jit(lambda x: rules(2.0)(x) + 1)(X)
    assert compiled.count == 0


def test_weak_types_count(jit: Any) -> None:
    make = lambda: lambda x, y: (x + y, y)
    for y in (1.0, np.float32(1), 1, True, np.float32(1), 1.0):
        assert_same(jit(make())(X, y), jax.jit(make())(X, y))


def test_configuration_counts(jit: Any) -> None:
    make = lambda: lambda x: (jnp.arange(3) + x.sum(), x @ x)
    for x64 in (False, True, False, True):
        with jax.enable_x64(x64):
            assert_same(jit(make())(X), jax.jit(make())(X))
    for precision in ("highest", "default", "highest"):
        with jax.default_matmul_precision(precision):
            assert_same(jit(make())(X), jax.jit(make())(X))


def test_settings_of_the_compiler_count(jit: Any) -> None:
    """They are no part of the key that jax has for a program, but are read for each new one."""
    make = lambda: lambda x: jnp.sin(x) * 13
    jit(make())(X)
    try:
        for changed in (True, False):
            jax.config.update("jax_disable_most_optimizations", changed)
            with Compiled() as compiled:
                assert_same(jit(make())(X), jit(make())(X))
            assert compiled.count == int(changed)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


def test_default_devices_count(jit: Any) -> None:
    for _ in range(2):
        for device in jax.devices()[:3]:
            with jax.default_device(device):
                assert jit(lambda x: x * 2)(X).devices() == {device}


def test_donation_counts(jit: Any) -> None:
    make = lambda: lambda x: x + 1
    for donate in ((), (0,), (), (0,)):
        x = jnp.ones(1000)
        np.testing.assert_array_equal(jit(make(), donate_argnums=donate)(x), np.full(1000, 2.0))
        assert x.is_deleted() == bool(donate)


def test_a_captured_array_may_be_donated(jit: Any) -> None:
    for _ in range(3):
        x = jnp.ones(1000)
        step = jit(lambda y: x + y, donate_argnums=0)
        np.testing.assert_array_equal(step(x), np.full(1000, 2.0))


class Config:
    """Equal where the sizes are, and never identical."""

    def __init__(self, size: int):
        self.size = size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.size == other.size

    def __hash__(self) -> int:
        return hash(self.size)


def test_static_arguments(jit: Any) -> None:
    make = lambda: lambda x, config, *, shift: jnp.tile(x, config.size) + shift
    jitted = jit(make(), static_argnums=1, static_argnames="shift")
    for size, shift in ((1, 0), (2, 0), (1, 1), (1, 0)):
        for function in (jitted, jit(make(), static_argnums=1, static_argnames="shift")):
            got = function(X, Config(size), shift=shift)
            np.testing.assert_array_equal(got, np.tile(X, size) + shift)


def test_names_of_arguments_are_those_of_the_call(jit: Any) -> None:
    for name in ("first", "second"):
        namespace: dict[str, Any] = {}
        exec(f"def f({name}):\n    return {name} * 2", namespace)
        jitted = jit(namespace["f"])
        jitted(X)
        with pytest.raises(TypeError, match=name):
            jitted("text")
        assert jitted.trace(X).jaxpr.jaxpr.debug_info.arg_names == (name,)


def test_errors_have_the_lines_of_the_call(jit: Any) -> None:
    def make(size: int) -> Callable[..., Any]:
        def f(x: Any) -> Any:
            y = x + 1
            return y + jnp.ones(size)

        return f

    jit(make(4))(X)
    with pytest.raises(TypeError, match="incompatible shapes"):
        jit(make(3))(X)
    np.testing.assert_array_equal(jit(make(4))(X), X + 2)


def test_nans_are_found_in_the_function_that_was_called(jit: Any) -> None:
    make = lambda: lambda x: jnp.log(x)
    jit(make())(X + 1)
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        jit(make())(X - 2)
    assert np.isnan(jit(make())(X - 2)).any()


def test_under_transformations(jit: Any) -> None:
    for i in range(3):
        inner = jit(lambda x: jnp.sin(x) * i)
        inner(X)
        assert_same(jax.vmap(inner)(X), jax.vmap(lambda x: jnp.sin(x) * i)(X))
        np.testing.assert_allclose(
            jax.vmap(jax.grad(inner))(X), np.cos(X) * i, rtol=1e-5, atol=1e-6
        )
        outer = jit(lambda x: jax.vmap(jax.grad(inner))(x))
        np.testing.assert_allclose(outer(X), np.cos(X) * i, rtol=1e-5, atol=1e-6)


def test_captured_tracers_are_of_their_transformation(jit: Any) -> None:
    def f(x: Any) -> Any:
        return jit(lambda y: y * x)(2.0)

    for _ in range(3):
        np.testing.assert_allclose(jax.grad(f)(3.0), 2.0)
        np.testing.assert_array_equal(jax.vmap(f)(X), X * 2)
        np.testing.assert_array_equal(jit(jax.vmap(f))(X), X * 2)


def test_references(jit: Any) -> None:
    """A program that captures or is given what can change is left to jax."""
    for i in range(3):
        ref = jax.new_ref(jnp.zeros(4))

        def f(x: Any) -> Any:
            ref[...] += x
            return ref[...]

        np.testing.assert_array_equal(jit(f)(X + i), X + i)
        np.testing.assert_array_equal(jit(f)(X), 2 * X + i)

        def g(r: Any) -> None:
            r[0] = 7.0

        jit(g)(ref)
        assert ref[0] == 7


def test_clearing_caches(jit: Any) -> None:
    make = lambda: lambda x: jnp.tanh(x) * 2
    expected = jax.jit(make())(X)
    jit(make())(X)
    jax.clear_caches()
    assert jaxide.cache_info().programs == 0
    assert_same(jit(make())(X), expected)
    jitted = jit(make())
    assert_same(jitted(X), expected)
    jitted.clear_cache()
    assert_same(jitted(X), expected)


def test_threads(jit: Any) -> None:
    """Many threads make the same functions at once, and others in between."""
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def work(thread: int) -> None:
        try:
            start.wait()
            for i in range(20):
                scale, data = float(i % 3), jnp.full(4, float(thread))
                got = jit(lambda x: jnp.sin(x) * scale + data)(X)
                np.testing.assert_allclose(got, np.sin(X) * scale + thread, rtol=1e-5, atol=1e-6)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_what_a_function_refers_to_goes_with_it(jit: Any) -> None:
    """Neither captured arrays, nor constants of jits within, nor callbacks, nor rules are kept."""

    class Held:
        def __init__(self) -> None:
            self.scale = 2.0

        def __call__(self, x: Any) -> Any:
            return x * self.scale

    def make() -> tuple[list[weakref.ref[Any]], Any]:
        array, inner_array, held = jnp.ones(4), jnp.ones(4) * 2, Held()
        inner = jax.jit(lambda x: x + inner_array)

        @jax.custom_jvp
        def rule(x: Any) -> Any:
            return x

        rule.defjvp(lambda p, t: (p[0], t[0] * held.scale))

        def f(x: Any) -> Any:
            y = jax.pure_callback(lambda v: held(v), jax.typeof(x), x)
            return rule(inner(y) + array)

        refs = [weakref.ref(value) for value in (array, inner_array, held)]
        return refs, jit(f)

    for _ in range(3):
        refs, f = make()
        np.testing.assert_array_equal(f(X), X * 2 + 3)
        del f
        # What is executed may be let go by another thread, a little later.
        until = time.monotonic() + 30
        while any(ref() is not None for ref in refs) and time.monotonic() < until:
            gc.collect()
            time.sleep(0.01)
        assert [ref() for ref in refs] == [None] * 3


def test_programs_are_bounded(jit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxide._jit.executables.MAX_NEW", 3)
    monkeypatch.setattr("jaxide._jit.executables.MAX_PROVEN", 2)
    for i in range(6):
        for _ in range(2):
            np.testing.assert_array_equal(jit(lambda x: x + i)(X), X + i)
        assert len(intercept.EXECUTABLES) <= 5


def test_devices(tmp_path: Any) -> None:
    """Shardings, meshes and devices, in a process that has eight of them."""
    script = tmp_path / "devices.py"
    script.write_text(_DEVICES)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr


_DEVICES = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import jax, numpy as np, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import jaxide

auto = (jax.sharding.AxisType.Auto,)
meshes = [jax.make_mesh((8,), ("a",), axis_types=auto),
          jax.make_mesh((4,), ("a",), axis_types=auto, devices=jax.devices()[4:])]
x = np.arange(16.0, dtype=np.float32).reshape(8, 2)
places = [None, jax.devices()[3], jax.devices()[5]]
places += [NamedSharding(mesh, P(*spec)) for mesh in meshes for spec in (("a",), (None,))]

def check(jit):
    for _ in range(2):
        for place in places:
            y = x if place is None else jax.device_put(x, place)
            for shift in (1.0, 2.0):
                captured = jax.device_put(np.full(2, shift, np.float32), jax.devices()[2])
                function = lambda v: jnp.sin(v) * 2 + captured
                expected = jax.jit(function)(y)
                got = jit(function)(y)
                again = jit(lambda v: jnp.sin(v) * 2 + captured)(y)
                for each in (got, again):
                    np.testing.assert_allclose(each, expected, rtol=1e-6)
                    assert each.sharding.device_set == expected.sharding.device_set, place
                    assert each.committed == expected.committed
    for place in places[3:]:
        out = jit(lambda v: v * 3, in_shardings=place, out_shardings=place)(x)
        np.testing.assert_array_equal(out, x * 3)
        assert out.sharding == place
    for mesh in meshes:
        bound = jit(lambda v: jax.lax.with_sharding_constraint(v + 1, NamedSharding(mesh, P("a"))))
        assert bound(x).sharding.device_set == set(mesh.devices.flat)
        summed = jit(jax.shard_map(lambda v: jax.lax.psum(v.sum(), "a"), mesh=mesh,
                                   in_specs=P("a"), out_specs=P()))
        np.testing.assert_array_equal(summed(x), x.sum())
    # A mismatch is said of the call that has it.
    two = jax.device_put(x, jax.devices()[1]), jax.device_put(x, jax.devices()[2])
    jit(lambda first, second: first + second)(two[0], two[0])
    try:
        jit(lambda first, other: first + other)(*two)
    except ValueError as error:
        assert "other" in str(error), error
    else:
        raise AssertionError("devices were mixed")

check(jaxide.jit)
with jaxide.accelerated():
    check(jax.jit)
"""


def test_it_is_a_jit_of_jax() -> None:
    def f(x: Any, n: int = 1) -> Any:
        """Doubles."""
        return x * 2 * n

    jitted = jaxide.jit(f, static_argnums=1)
    assert type(jitted) is type(jax.jit(f))
    assert (jitted.__name__, jitted.__doc__) == ("f", "Doubles.")
    assert jitted.__wrapped__ is f
    parameters = dict(inspect.signature(jaxide.jit).parameters)
    assert parameters.pop("captured").default == "auto"
    assert parameters == dict(inspect.signature(jax.jit).parameters)
    assert str(jitted.lower(X).as_text()) == str(jax.jit(f, static_argnums=1).lower(X).as_text())
    assert str(jitted.trace(X).jaxpr) == str(jax.jit(f, static_argnums=1).trace(X).jaxpr)
    assert jitted.eval_shape(X) == jax.eval_shape(f, X)
    np.testing.assert_array_equal(jitted.lower(X).compile()(X), X * 2)

    @jaxide.jit
    def g(x: Any) -> Any:
        return x + 1

    @jaxide.jit(static_argnames="n")
    def h(x: Any, n: int) -> Any:
        return x + n

    np.testing.assert_array_equal(g(h(X, n=2)), X + 3)
    with pytest.raises(TypeError):
        jaxide.jit(f, no_such_option=1)
    with pytest.raises(TypeError, match="callable"):
        jaxide.jit(3)


def test_what_became_of_calls() -> None:
    jaxide.clear_caches()
    first, second = (jaxide.jit(lambda x: jnp.sin(x) * 7) for _ in range(2))
    for _ in range(3):
        first(X)
        second(X)
    one, other = first.cache_info(), second.cache_info()
    assert (one.traces, one.shared, one.compiled) == (1, 0, 1)
    assert (other.traces, other.shared, other.compiled) == (1, 1, 0)
    assert one.compiling > 0 == other.compiling


def test_stock_is_left_alone() -> None:
    """Without an installation, a jit of jax shares nothing."""
    make = lambda: lambda x: jnp.sin(x) * 11
    jaxide.jit(make())(X)
    with Compiled() as compiled:
        jax.jit(make())(X)
        jax.jit(make())(X)
    assert compiled.count == 2


def test_modules_do_not_depend_on_what_was_traced_before(jit: Any) -> None:
    """Equal programs within are one function of the module, however many objects they are."""

    @jax.jit
    def inner(x: Any) -> Any:
        return jnp.sin(x) * 2

    def f(x: Any, forgets: bool = False) -> Any:
        x = inner(x)
        if forgets:
            inner.clear_cache()
        return inner(x) + jax.lax.cond(x[0] > 0, inner, lambda y: inner(y) - 1, x)

    stock = jax.jit(lambda x: f(x)).lower(X).as_text()
    plain = jit(lambda x: f(x)).lower(X).as_text()
    forgetful = jit(lambda x: f(x, forgets=True)).lower(X).as_text()
    assert forgetful == plain == stock
    expected = f(X)
    for forgets in (False, True):
        np.testing.assert_allclose(jit(lambda x: f(x, forgets=forgets))(X), expected, rtol=1e-6)


def test_jits_within_capture_numpy_arrays(jit: Any) -> None:
    table = np.zeros(4, np.float32)

    def make() -> Any:
        inner = jax.jit(lambda x: x + table)
        return jit(lambda x: inner(x) * 2)

    for value in (1.0, 2.0, 1.0):
        table[:] = value
        np.testing.assert_array_equal(make()(X), (X + value) * 2)
    with Compiled() as compiled:
        np.testing.assert_array_equal(make()(X), (X + 1) * 2)
        table[:] = 2
        np.testing.assert_array_equal(make()(X), (X + 2) * 2)
    assert compiled.count == 0


def within(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[Any], Any]:
    """Functions that call, within something, a jit that captures an array."""
    return lambda captured: wrap(jax.jit(lambda x: jnp.sin(x) * captured + captured[::-1]))


def with_custom_jvp(inner: Callable[..., Any]) -> Callable[..., Any]:
    f = jax.custom_jvp(inner)
    f.defjvp(lambda primals, tangents: (inner(*primals), tangents[0]))
    return f


def with_custom_vjp(inner: Callable[..., Any]) -> Callable[..., Any]:
    f = jax.custom_vjp(inner)
    f.defvjp(lambda x: (inner(x), None), lambda _, cotangent: (cotangent,))
    return f


def in_both_conditions(inner: Callable[..., Any]) -> Callable[..., Any]:
    """A while loop whose condition and body call it, and have constants of their own."""

    def f(x: Any) -> Any:
        least, step = jnp.full(4, 3.0) * x[0], x * 2
        condition = lambda c: jnp.any(inner(c) * 0 + c < least + 4)
        return jax.lax.while_loop(condition, lambda c: c + 1 + inner(c) * 0.01 + step, x)

    return f


def in_branches(inner: Callable[..., Any]) -> Callable[..., Any]:
    other = jax.jit(lambda x: x + jnp.ones(4))
    branches = [inner, lambda x: x - 1, lambda x: inner(other(x))]
    return lambda x: jax.lax.switch(jnp.argmax(x) - 1, branches, x)


def in_several_checkpoints(captured: Any) -> Callable[..., Any]:
    """Each with another array, some of them with that of another as well."""
    arrays = [captured * i for i in range(1, 9)]
    inner = [
        jax.jit(lambda x, a=a, b=b: jnp.sin(x * a) + b)
        for a, b in zip(arrays, arrays[3:], strict=False)
    ]
    inner += [jax.jit(lambda x, a=a: jnp.cos(x * a)) for a in arrays]

    def f(x: Any) -> Any:
        for function in inner:
            x = x + jax.checkpoint(lambda y, function=function: jax.checkpoint(function)(y) * 2)(x)
        return x.sum()

    return jax.grad(f)


WITHIN: dict[str, Callable[[Any], Any]] = {
    "several_checkpoints": in_several_checkpoints,
    "jit": within(lambda inner: lambda x: inner(x) + 1),
    "jit_twice": within(lambda inner: lambda x: inner(inner(x))),
    "jit_in_jit": within(lambda inner: lambda x: jax.jit(lambda y: inner(y) + inner(y + 1))(x)),
    "static_jit": within(lambda inner: jax.jit(lambda x, n=2: inner(x) * n, static_argnames="n")),
    "donating_jit": within(lambda inner: lambda x: jax.jit(inner, donate_argnums=0)(x * 2)),
    "also_outside": lambda c: lambda x: jax.jit(lambda y: y * c)(x) + c,
    "grad": within(lambda inner: jax.grad(lambda x: inner(x).sum())),
    "vmap": within(lambda inner: lambda x: jax.vmap(inner, out_axes=1)(jnp.stack([x, x]))),
    "scan": within(lambda inner: lambda x: jax.lax.scan(lambda c, y: (inner(c) + y, c), x, X)),
    "grad_of_scan": within(
        lambda inner: jax.grad(lambda x: jax.lax.scan(lambda c, y: (inner(c), y), x, X)[0].sum())
    ),
    "fori": within(lambda inner: lambda x: jax.lax.fori_loop(0, 3, lambda _, c: inner(c), x)),
    "while": within(in_both_conditions),
    "switch": within(in_branches),
    "checkpoint": within(lambda inner: jax.grad(lambda x: jax.checkpoint(inner)(x).sum())),
    "custom_jvp": within(with_custom_jvp),
    "custom_vjp": within(with_custom_vjp),
    "map": within(lambda inner: lambda x: jax.lax.map(lambda y: inner(y * x).sum(), x)),
}


@pytest.mark.covering
@pytest.mark.parametrize("array", [jnp.asarray, np.asarray], ids=["jax", "numpy"])
@pytest.mark.parametrize("make", WITHIN.values(), ids=WITHIN.keys())
def test_arrays_captured_within_are_used(
    make: Callable[[Any], Any], array: Callable[..., Any], jit: Any
) -> None:
    captured = [array(np.linspace(0.5, 1.0 + i, 4, dtype=np.float32)) for i in range(5)]
    expected = [jax.jit(make(value))(X) for value in captured]
    got = [jit(make(value))(X) for value in captured[:2]]
    functions = [make(value) for value in captured[2:]]
    with Compiled() as compiled:
        got += [jit(function)(X) for function in functions]
    assert compiled.count == 0
    for one, other in zip(got, expected, strict=True):
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), one, other)


def test_what_is_no_array_stays_within(jit: Any) -> None:
    """The constant of a program within that is a Ref is not made an argument."""
    for i in range(3):
        total = jax.new_ref(jnp.zeros(4))

        def f(x: Any, total: Any = total, scale: Any = jnp.full(4, i)) -> Any:
            jax.jit(lambda y: total.__setitem__(..., total[...] + y * scale))(x)
            return x

        jit(f)(X)
        np.testing.assert_array_equal(total[...], X * i)


def test_which_arrays_are_one_counts(jit: Any) -> None:
    def make(first: Any, second: Any) -> Any:
        return jit(lambda x: jax.jit(lambda y: y * first)(x) + jax.jit(lambda y: y * second)(x))

    one, two = jnp.full(4, 2.0), jnp.full(4, 3.0)
    for _ in range(2):
        for first, second in [(one, one), (one, two), (two, two), (two, one)]:
            np.testing.assert_array_equal(make(first, second)(X), X * first + X * second)
