"""Calls of functions that compute element by element: what was recorded for arrays of one size is
replayed for others."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import covering
import jaxide
from alone import run_alone
from expansion import assert_same_when_warm, empty_cache, total, warm_up
from jaxide._compat import pointwise
from jaxide._compat.symbols import optional_symbol

# The same function, and the same kinds of dimensions, are not the same sizes.
SHAPES = [(3, 4), (5, 6), (4, 3), (4, 4), (1, 4), (5, 1), (0, 4), (7,), (2,), (), (2, 3, 4)]

DTYPES = ["float32", "int32", "uint8", "bool", "complex64", "bfloat16"]

Binary = Callable[[Any, Any], Any]

BINARY: dict[str, Binary] = {
    **{
        f"operator {name}": getattr(operator, name)
        for name in (
            "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift lt le eq ne gt ge"
        ).split()
    },
    "maximum": jnp.maximum,
    "logaddexp": jnp.logaddexp,
    "hypot": jnp.hypot,
    "lax": lambda x, y: lax.max(lax.mul(x, y), lax.sub(x, y)),
    "where": lambda x, y: jnp.where(x > y, x, y),
    "like": lambda x, y: jnp.ones_like(x) + lax.full_like(y, 2),
}

UNARY: dict[str, Callable[[Any], Any]] = {
    **{f"jax.numpy.{name}": getattr(jnp, name) for name in pointwise.NUMPY.split()},
    "operators": lambda x: (-x, abs(x), ~x),
    "times a number": lambda x: (x * 2, 0.5 * x, x + 1j, x - True),
    "number": lambda x: (2**x, 1 / x, x**3, x**0.5, x**-1, x**0),
    "numpy number": lambda x: x * np.float32(2) + np.int8(1),
    "astype": lambda x: (x.astype(jnp.float16), x.astype("int8"), x.astype(bool)),
    "nothing": lambda x: (x == None, x != "a"),  # noqa: E711
    "keywords": lambda x: jnp.add(x, 1, where=x > 0),
    "scoped": lambda x: jax.named_scope("outer")(lambda x: jnp.sqrt(x) * x)(x),
    "itself": lambda x: (x * x, x + x),
    "with a scalar": lambda x: (x * jnp.sum(x), jnp.max(x) - x),
    "a row": lambda x: x * x[:1] if x.ndim else x,
    "lax": lambda x: lax.integer_pow(lax.stop_gradient(lax.convert_element_type(x, "float32")), 3),
}

TRANSFORMATIONS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "grad": lambda f: jax.grad(lambda *a: total(f(*a)).real.astype("float32"), allow_int=True),
    "jvp": lambda f: lambda *a: jax.jvp(f, a, a),
    "linearize": lambda f: lambda *a: jax.linearize(f, *a)[1](*a),
    "vmap": lambda f: lambda *a: jax.vmap(f)(*a) if a[0].ndim else f(*a),
    "vmap of one": lambda f: (
        lambda *a: jax.vmap(lambda x: f(x, *(b[0] for b in a[1:])))(a[0]) if a[0].ndim else f(*a)
    ),
    "vmap of the last": lambda f: (
        lambda *a: jax.vmap(f, in_axes=-1, out_axes=-1)(*a) if a[0].ndim else f(*a)
    ),
    "vmap of vmap": lambda f: lambda *a: jax.vmap(jax.vmap(f))(*a) if a[0].ndim > 1 else f(*a),
    "grad of vmap": lambda f: (
        lambda *a: (
            jax.grad(lambda *a: total(jax.vmap(f)(*a)).real.astype("float32"))(*a)
            if a[0].ndim
            else f(*a)
        )
    ),
    "grad of grad": lambda f: (
        lambda *a: jax.grad(lambda x: total(jax.grad(lambda y: total(f(y, *a[1:])))(x)))(a[0])
    ),
    "scan": lambda f: (
        lambda *a: lax.scan(lambda c, x: (c + 1, f(*x)), 0, a) if a[0].ndim else f(*a)
    ),
    "jit": lambda f: lambda *a: jax.jit(lambda *a: f(*a))(*a),
    "checkpoint": lambda f: lambda *a: jax.checkpoint(f)(*a),
}


def array(shape: tuple[int, ...], dtype: str, number: int = 0) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype) if number else jnp.ones(shape, dtype)


def calls_of(function: Callable[..., Any], arity: int, dtype: str) -> list[tuple[Any, ...]]:
    return [(function, *[array(shape, dtype)] * arity) for shape in SHAPES]


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize("name", UNARY)
def test_of_one_array(name: str) -> None:
    for dtype in covering.one_in(6, DTYPES, list(UNARY).index(name)):
        assert_same_when_warm(*calls_of(UNARY[name], 1, dtype), rounds=1)


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize("name", BINARY)
def test_of_two_arrays(name: str) -> None:
    for dtype in covering.one_in(6, DTYPES, list(BINARY).index(name)):
        assert_same_when_warm(*calls_of(BINARY[name], 2, dtype), rounds=1)


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize("name", BINARY)
def test_of_two_types(name: str) -> None:
    pairs = [(a, b) for a in DTYPES for b in DTYPES if a != b]
    for dtypes in covering.one_in(15, pairs, list(BINARY).index(name)):
        of_types = [[array(shape, dtype) for dtype in dtypes] for shape in SHAPES]
        assert_same_when_warm(*((BINARY[name], *args) for args in of_types), rounds=1)


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize("name", BINARY)
def test_of_two_shapes(name: str) -> None:
    pairs = [
        ((3, 4), (4,)),
        ((5, 6), (6,)),
        ((4, 4), (4,)),
        ((3, 1), (1, 4)),
        ((5, 1), (1, 5)),
        ((3, 4), (3, 4)),
        ((2, 3), ()),
        ((4, 5), ()),
        ((), (6, 5)),
        ((3,), (1,)),
    ]
    calls = [[array(shape, "float32") for shape in pair] for pair in pairs]
    assert_same_when_warm(*((BINARY[name], *args) for args in calls), rounds=1)


@pytest.mark.covering(by_turns=True)
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_under_transformations(transformation: str) -> None:
    transformed = TRANSFORMATIONS[transformation]
    number = list(TRANSFORMATIONS).index(transformation)
    for arity, functions in ((1, UNARY), (2, BINARY)):
        for name in covering.one_in(len(TRANSFORMATIONS), list(functions), number):
            assert_same_when_warm(
                *calls_of(transformed(functions[name]), arity, "float32"), rounds=1
            )


# From jax 0.11 on, what a jit comes to under these has programs, which have sizes.
_WITHOUT_PROGRAMS = [] if jax.__version_info__ >= (0, 11) else ["grad", "linearize"]


@pytest.mark.parametrize("transformation", [None, "jvp", "vmap", "scan", "jit", *_WITHOUT_PROGRAMS])
def test_other_sizes_are_replayed(transformation: str | None) -> None:
    def program(x: Any, y: Any) -> Any:
        return jnp.sqrt(x) * y + 2.0 * x - jnp.tanh(y / x) ** 2

    of = program if transformation is None else TRANSFORMATIONS[transformation](program)
    with empty_cache():
        warm_up(of, *[array((3, 4), "float32")] * 2, rounds=1)
        before = jaxide.cache_info().callables
        warm_up(of, *[array((3, 5), "float32")] * 2, rounds=1)
        after = jaxide.cache_info().callables
    names = [name for name in after if name.startswith("Array.__") or name in ("sqrt", "tanh")]
    assert len(names) >= 6
    for name in names:
        assert after[name].misses == before[name].misses, name
        assert after[name].hits > before[name].hits, name


def test_what_is_changed_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay of other sizes rests on jax as it was, as any other."""
    with empty_cache():
        warm_up(lambda x: x * 2.0 + x, jnp.ones((3, 4)), rounds=1)
        stock = lax.mul_p.bind

        def bind(*args: Any, **params: Any) -> Any:
            return lax.neg(stock(*args, **params))

        monkeypatch.setattr(lax.mul_p, "bind", bind)
        traced = [
            str(make(lambda x: x * 2.0 + x)(jnp.ones((5, 6))))
            for make in (jax.make_jaxpr, jaxide.make_jaxpr)
        ]
    assert traced[0] == traced[1]


# Calls of one type each are known for all sizes. Then that is forgotten and the types are gone, and
# another type is at the address of one, of which a call is known.
WHERE_ANOTHER_WAS = """
import jax, jax.numpy as jnp, jaxide
from jax import lax
from jax._src import core
from jaxide import _core

def trace(function, dtype, size, make=jaxide.make_jaxpr):
    return make(lambda x: function(x))(jax.ShapeDtypeStruct((size,), dtype))

functions = [lax.sinh, lax.cosh, lax.tan, lax.asin, lax.acos, lax.atan, lax.asinh, lax.exp, lax.log]
places = {}
for number, function in enumerate(functions, 31):
    for _ in range(2):
        trace(function, "float16", number)
    places[id(core.ShapedArray((number,), jnp.dtype("float16")))] = function
info = _core.fragment_info()
bounds = [info[f"max_{of}"] for of in ("entries_per_callable", "entries", "bytes")]
_core.set_fragment_bounds(1, *bounds[1:])
for function in functions:
    trace(function, "bfloat16", 7)
_core.set_fragment_bounds(*bounds)
for start in range(0, 70_000, 1000):  # more than all types that are kept
    types = [jax.ShapeDtypeStruct((start + n, 2), "int8") for n in range(1000)]
    jaxide.make_jaxpr(lambda *xs: [lax.rev(x, (0,)) for x in xs])(*types)
kept = []
for size in range(3000, 100_000):
    kept.append(core.ShapedArray((size,), jnp.dtype("float32")))
    if (function := places.get(id(kept[-1]))) is not None:
        break
if function is None:
    raise SystemExit
for _ in range(2):
    trace(function, "float32", size)
assert str(trace(function, "float16", 5)) == str(trace(function, "float16", 5, jax.make_jaxpr))
print("again")
"""


@pytest.mark.skipif(covering.is_short, reason="70,000 types: half a minute")
def test_a_type_where_another_one_was() -> None:
    # Whether an address is used again is chance.
    assert "again\n" in (run_alone(WHERE_ANOTHER_WAS).stdout for _ in range(6))


def test_settings_count() -> None:
    calls = [
        lambda x: x * 2 + x.astype(float),
        lambda x: jnp.sqrt(x) * np.float64(3),
    ]
    with empty_cache():
        for shape in [(3, 4), (5, 6), (7, 8)]:
            for wide in (False, True):
                with jax.enable_x64(wide):
                    for call in calls:
                        x = jnp.ones(shape, "float32")
                        assert str(jaxide.make_jaxpr(call)(x)) == str(jax.make_jaxpr(call)(x))


def test_jax_has_what_is_listed() -> None:
    for name in pointwise.NUMPY.split():
        assert hasattr(jnp, name), name
    for name in pointwise.LAX.split():
        assert hasattr(lax, name), name
    for name in pointwise.PRIMITIVES.split():
        assert optional_symbol(f"lax.lax:{name}_p") is not None, name
    for name in pointwise.SPECIAL.split():
        assert optional_symbol(f"lax.special:{name}_p") is not None, name
