"""Caught functions look as jax made them: before, during, after a trace, and to other threads."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.numpy import add as imported_add
from jax.numpy import sin as imported_sin
from jax.numpy import where as imported_where

import expansion
import jaxide
from expansion import assert_same_when_warm, warm_up
from jaxide import _core

X = np.linspace(0.25, 1, 3, dtype=np.float32)

# Plain functions, jits, ufuncs, functions with custom rules, of every module that is caught.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": jnp.where,
    "zeros": jnp.zeros,
    "sum": jnp.sum,
    "sin": jnp.sin,
    "dot": jnp.dot,
    "add": jnp.add,
    "multiply": jnp.multiply,
    "einsum": jnp.einsum,
    "concatenate": jnp.concatenate,
    "clip": jnp.clip,
    "asarray": jnp.asarray,
    "norm": jnp.linalg.norm,
    "det": jnp.linalg.det,
    "rfft": jnp.fft.rfft,
    "lax.add": lax.add,
    "lax.dot_general": lax.dot_general,
    "lax.scan": lax.scan,
    "lax.cond": lax.cond,
    "lax.full": lax.full,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "softmax": jax.nn.softmax,
    "one_hot": jax.nn.one_hot,
    "glorot_normal": jax.nn.initializers.glorot_normal,
    "normal": jax.random.normal,
    "split": jax.random.split,
    "key": jax.random.key,
    "resize": jax.image.resize,
    "logsumexp": jax.scipy.special.logsumexp,
    "erf": jax.scipy.special.erf,
}
ATTRIBUTES = ("__name__", "__qualname__", "__module__", "__doc__", "__defaults__", "__kwdefaults__")


def appearance(function: Callable[..., Any]) -> dict[str, Any]:
    """What a user can tell about a function without calling it."""
    return {
        "identity": id(function),
        "type": type(function),
        "classes": [
            isinstance(function, cls) for cls in (types.FunctionType, jnp.ufunc, jax.custom_jvp)
        ],
        "attributes": [getattr(function, name, None) for name in ATTRIBUTES],
        "dictionary": sorted(getattr(function, "__dict__", ())),
        "wrapped": id(getattr(function, "__wrapped__", None)),
        "signature": str(inspect.signature(function)),
        "parameters": getattr(getattr(function, "__code__", None), "co_varnames", ())[:1],
        "source": inspect.getsource(function) if inspect.isfunction(function) else None,
        "file": inspect.getsourcefile(inspect.unwrap(function))
        if inspect.isfunction(inspect.unwrap(function))
        else None,
        "repr": repr(function),
        "hash": hash(function),
        "pickled": pickled(function),
        "copied": copy.copy(function) is function,
        "members": sorted(name for name in dir(function) if not name.startswith("__")),
        "callable": callable(function),
        "routine": inspect.isroutine(function),
    }


def pickled(function: Callable[..., Any]) -> Any:
    try:
        return pickle.loads(pickle.dumps(function)) is function
    except Exception as error:
        return type(error)


def everything() -> dict[str, Any]:
    return {name: appearance(function) for name, function in FUNCTIONS.items()}


@pytest.fixture(scope="module")
def stock() -> dict[str, Any]:
    return everything()


def programs(x):
    return (
        jnp.where(x > 0, jnp.sin(x), jax.nn.gelu(x)),
        jnp.linalg.norm(x) + jnp.add(x, 1),
        jax.random.normal(jax.random.key(0), (3,)),
    )


def test_before_and_after_traces(stock: dict[str, Any]) -> None:
    warm_up(programs, X)
    assert everything() == stock


def test_during_a_trace(stock: dict[str, Any]) -> None:
    seen = []

    def use(x):
        seen.append(everything())
        out = programs(x)
        seen.append(everything())
        return out

    warm_up(use, X)
    for shown in seen:
        for name, function in shown.items():
            assert function == stock[name], name


def test_after_errors(stock: dict[str, Any]) -> None:
    def bad(x):
        jnp.sin(x)
        jnp.dot(x, x[:2])

    for function in (bad, jax.jit(bad), jax.grad(bad), lambda x: sys.exit(0)):
        with pytest.raises((TypeError, SystemExit)):
            warm_up(function, X)
        assert everything() == stock


def test_names_and_keys() -> None:
    """Functions that were imported by name, wrapped, stored, and used as keys before the trace."""
    table = {function: name for name, function in FUNCTIONS.items()}
    partial = functools.partial(jnp.where, True)

    @functools.wraps(jnp.where)
    def wrapped(*args):
        return jnp.where(*args)

    def use(x):
        assert imported_sin is jnp.sin and imported_add is jnp.add
        assert all(table[function] == name for name, function in FUNCTIONS.items())
        assert wrapped.__wrapped__ is jnp.where
        rewrapped = functools.wraps(jnp.where)(lambda *args: jnp.where(*args))
        assert inspect.signature(rewrapped) == inspect.signature(jnp.where)
        return (
            imported_where(x > 0, imported_sin(x), imported_add(x, 1)),
            partial(x, 1),
            wrapped(x > 0, x, 2),
            rewrapped(x > 0, x, 2),
            FUNCTIONS["sum"](x),
            jnp.sum.__get__(x)(),
        )

    assert_same_when_warm((use, X))


def test_imported_names_are_caught() -> None:
    with expansion.empty_cache():
        warm_up(lambda x: imported_where(x > 0, imported_sin(x), 0.0), X)
        assert expansion.counts_of("jax.numpy.where").hits > 0


def test_methods_of_ufuncs() -> None:
    assert isinstance(jnp.add, jnp.ufunc)
    assert_same_when_warm(
        (lambda x: jnp.add.reduce(x), X),
        (lambda x: jnp.add.accumulate(x), X),
        (lambda x: jnp.add.outer(x, x), X),
        (lambda x: jnp.add.at(x, np.array([0, 1]), x[:2], inplace=False), X),
        (lambda x: jnp.add.at(x, jnp.array([0, 1]), 1.0, inplace=False), X),
        (lambda x: jnp.add.at(x, 0, 1.0), X),
        (lambda x: jnp.add.reduceat(x, jnp.array([0, 2])), X),
        (lambda x: jnp.multiply.reduce(x[None], axis=1, keepdims=True), X),
        (lambda x: jnp.logical_and.reduce(x > 0, where=x > 1, initial=True), X),
        (lambda x: (jnp.add.nin, jnp.add.identity, jnp.add.__name__) and x, X),
        (lambda x: jnp.frompyfunc(lambda a, b: a + b * 2, 2, 1).accumulate(x), X),
    )


def test_functions_as_values() -> None:
    """What jax derives from a caught function: its name, source line, parameters."""

    def use(x):
        return (
            jax.jit(jnp.where)(x > 0, x, 1.0),
            jax.jit(jnp.where, static_argnames="size")(x > 0, x, 1.0),
            jax.jit(lax.full, static_argnums=(0,))((2,), 1.0),
            jax.vmap(jnp.where)(x > 0, x, x),
            jax.checkpoint(jnp.where)(x > 0, x, x),
            jax.grad(lax.mul)(x[0], x[1]),
            jax.linearize(lax.sin, x)[0],
            jax.named_call(jnp.where)(x > 0, x, x),
            lax.cond(x[0] > 0, lax.add, lax.sub, x, x),
            jax.eval_shape(jnp.where, x > 0, x, x).shape == (3,) and x,
            jax.make_jaxpr(jnp.where)(x > 0, x, x).jaxpr.debug_info.func_src_info and x,
            jax.custom_jvp(jnp.where)(x > 0, x, x),
        )

    assert_same_when_warm((use, X))


def test_debug_info_of_functions_of_jax() -> None:
    def use(x):
        infos.append(
            [
                (info.func_src_info, info.arg_names, info.traced_for)
                for function in (jnp.where, lax.add, jnp.sin, jnp.sum, jax.nn.relu)
                for args in [(x > 0, x, x) if function is jnp.where else (x, x)]
                for args in [args[: 1 if function in (jnp.sin, jnp.sum, jax.nn.relu) else None]]
                for info in [jax.make_jaxpr(function)(*args).jaxpr.debug_info]
            ]
        )
        return x

    infos: list[Any] = []
    jax.make_jaxpr(lambda x: use(x))(X)
    jax.clear_caches()
    warm_up(use, X)
    assert all(info == infos[0] for info in infos)


def test_warnings_within_a_trace_are_of_the_line_that_their_level_names() -> None:
    def warn(function: Any) -> None:
        warnings.warn("of the caller", UserWarning, stacklevel=2, source=function)
        warnings.warn("of the caller, by place", UserWarning, 2, function)
        warnings.warn("of this line", UserWarning)  # noqa: B028

    def lines(make: Any) -> list[tuple[str, int]]:
        def function(x: Any) -> Any:
            warn(function)
            return jnp.sin(x)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make(function)(X)
        return [(w.filename, w.lineno) for w in caught]

    assert lines(jaxide.make_jaxpr) == lines(jax.make_jaxpr) != []


def test_warn_is_pythons_own() -> None:
    """The body of a user's jit may look at `warnings`, and change it for itself."""
    before = dict(vars(warnings))
    seen = []

    @jax.jit
    def looking(x):
        seen.append(warnings.warn)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("inside", stacklevel=1)
        seen.append([str(w.message) for w in caught])
        return x * 2

    jax.clear_caches()
    with warnings.catch_warnings():
        warm_up(looking, X)
    assert seen[1] == ["inside"]
    assert {name for name in before if vars(warnings)[name] is not before[name]} <= {"filters"}
    assert vars(warnings).keys() == before.keys()


# ---- other threads ----------------------------------------------------------------------------


def test_other_threads_see_stock(stock: dict[str, Any]) -> None:
    reference = str(jax.make_jaxpr(lambda x: programs(x))(X))
    results: dict[str, Any] = {}

    def other() -> None:
        results["appearance"] = everything()
        results["text"] = str(jax.make_jaxpr(lambda x: programs(x))(X))
        results["value"] = np.asarray(jnp.where(X > 0, jnp.sin(X), 0.0))
        jaxpr = jax.make_jaxpr(lambda x: results.__setitem__("type", type(x)) or x)(X)
        results["jaxpr"] = type(jaxpr)

    def use(x):
        before = jaxide.cache_info().hits, jaxide.cache_info().misses
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(120)
        assert not thread.is_alive()
        assert before == (jaxide.cache_info().hits, jaxide.cache_info().misses)
        return programs(x)

    warm_up(use, X)
    assert results["appearance"] == stock
    assert results["text"] == reference
    np.testing.assert_allclose(results["value"], np.sin(X), rtol=1e-6)
    assert results["type"] is _type_of_stock_tracer()


def _type_of_stock_tracer() -> type:
    seen: list[type] = []
    jax.make_jaxpr(lambda x: seen.append(type(x)) or x)(X)
    return seen[0]


# ---- nothing is left --------------------------------------------------------------------------


def touched() -> Iterator[tuple[str, Any]]:
    """Everything whose insides a trace of jaxide may change for a while."""
    for function in _core.interposed_functions():
        name = f"{function.__module__}.{function.__qualname__}"
        yield f"{name}.__code__", function.__code__
        yield f"{name}.__closure__", function.__closure__
        yield f"{name}.__dict__", dict(vars(function))
    for module in (*jax_modules(), warnings):
        yield module.__name__, {name: id(value) for name, value in vars(module).items()}
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__.startswith("jax"):
                members = {name: id(member) for name, member in vars(value).items()}
                yield f"{module.__name__}.{value.__qualname__}", (members, flags(value))
    jit = type(jax.jit(lambda: None))
    yield "jit", (flags(jit), {name: id(member) for name, member in vars(jit).items()})


def flags(cls: type) -> int:
    """The flags of a type but for Py_TPFLAGS_VALID_VERSION_TAG, which CPython sets at will."""
    return cls.__flags__ & ~(1 << 19)


def jax_modules() -> list[types.ModuleType]:
    names = sorted(name for name in sys.modules if name.split(".")[0] == "jax")
    return [sys.modules[name] for name in names]


def changes(before: list[tuple[str, Any]], after: list[tuple[str, Any]]) -> list[str]:
    assert [name for name, _ in before] == [name for name, _ in after]
    return [
        name for (name, old), (_, new) in zip(before, after, strict=True) if old is not new != old
    ]


def bad(x):
    jax.jit(lambda v: jnp.dot(v, v[:2]))(x)


ENDINGS: dict[str, Callable[[Any], Any]] = {
    "good": programs,
    "error": bad,
    "error in a derivative": jax.grad(lambda x: jnp.sum(bad(x))),
    "exit": lambda x: jnp.sin(x) and sys.exit(1),
    "interrupt in a jit": lambda x: jax.jit(lambda v: (_ for _ in ()).throw(KeyboardInterrupt))(x),
    "error in a callback of warnings": lambda x: _raising_warning(x),
    "nested": lambda x: jaxide.make_jaxpr(programs)(x) and x,
}


def _raising_warning(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return jnp.zeros(3, jnp.float64) + x


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_left(ending: str) -> None:
    def run() -> None:
        for _ in range(expansion.ROUNDS):
            try:
                jaxide.make_jaxpr(lambda x: ENDINGS[ending](x))(X)
            except BaseException as error:  # exits and interrupts too
                assert ending != "good", error

    run()  # jax fills caches of its own the first time
    before = list(touched())
    run()
    assert changes(before, list(touched())) == []


def test_something_is_there_meanwhile() -> None:
    """Otherwise the comparison above shows nothing."""
    before = dict(touched())
    seen: list[str] = []
    jaxide.make_jaxpr(
        lambda x: seen.extend(n for n, v in touched() if n in before and before[n] != v) or x
    )(X)
    assert len([name for name in seen if name.endswith(".__code__")]) > 100


def test_compiled_calls_are_fast_again() -> None:
    """A jit is called through its own pointer after a trace: by behaviour, no Python runs."""
    compiled = jax.jit(lambda x: x + 1)
    compiled(X)
    warm_up(programs, X)
    frames: list[str] = []

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            frames.append(frame.f_code.co_name)

    compiled(X)
    sys.setprofile(profile)
    try:
        compiled(X)
    finally:
        sys.setprofile(None)
    assert frames == []


def test_jits_keep_their_behaviour_in_a_trace() -> None:
    """Attributes and methods of a jit, and calls of compiled ones, while it is caught."""

    @functools.partial(jax.jit, static_argnames="n")
    def jitted(x, n=2):
        """Documentation."""
        return x * n

    def use(x):
        assert jitted.__doc__ == "Documentation." and jitted.__name__ == "jitted"
        assert str(inspect.signature(jitted)) == "(x, n=2)"
        assert inspect.unwrap(jitted) is jitted.__wrapped__
        with jax.ensure_compile_time_eval():
            assert float(jitted(2.0, n=3)) == 6.0
        assert jitted.lower(1.0).as_text()
        assert jitted.trace(1.0, n=4).jaxpr.eqns
        assert jitted.eval_shape(x).shape == (3,)

        class Owner:
            method = jitted

        return jitted(x), jitted(x, n=5), Owner.method(x), jitted.__call__(x), x @ jitted(x)

    assert_same_when_warm((use, X))


def test_weak_references_and_garbage() -> None:
    """Caught functions can be referred to weakly, and are not kept by the references."""

    def use(x):
        assert all(weakref.ref(f)() is f for f in FUNCTIONS.values() if weakly(f))
        gc.collect()
        return programs(x)

    def weakly(function: Callable[..., Any]) -> bool:
        try:
            weakref.ref(function)
        except TypeError:
            return False
        return True

    warm_up(use, X)
