"""Questions about the equations of programs: against what jax says, and against plain counts."""

from __future__ import annotations

import collections
import copy
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.experimental import io_callback

import dependence
import jaxide
from jaxide._compat.symbols import symbol

jaxprs_in_params = symbol("core:jaxprs_in_params")

X = jnp.ones((4, 8))


def inner(x: Array, y: Array) -> tuple[Array, Array]:
    return jnp.sin(x), jnp.cos(y)


def layered(x: Array, y: Array) -> tuple[Array, Array]:
    with jax.named_scope("layer"):
        a, b = jax.jit(inner)(x, y)
        with jax.named_scope("loop"):
            c, _ = lax.scan(lambda c, _: (jnp.sin(c) + 1.0, None), a, length=3)
    return c, b


# ---- finding ------------------------------------------------------------------------------------


def test_histogram() -> None:
    program = jaxide.trace(lambda x, y: layered(*layered(x, y)))(X, X)
    counted: collections.Counter[str] = collections.Counter()

    def count(jaxpr: Any, times: int) -> None:
        for eqn in jaxpr.eqns:
            counted[eqn.primitive.name] += times
            for within in jaxprs_in_params(eqn.params):
                count(within, times)

    count(program.jaxpr.jaxpr, 1)
    assert program.histogram(nested="each call") == counted
    assert program.histogram(nested="none") == {"jit": 2, "scan": 2}
    assert list(program.histogram(nested="each call").values()) == sorted(
        counted.values(), reverse=True
    )
    # The jit's program is one, that of the scan is made anew.
    assert program.histogram()["cos"] == 1
    with pytest.raises(ValueError, match="nested must be 'once', 'each call' or 'none', got 'x'"):
        program.histogram(nested="x")  # type: ignore[arg-type]


def test_equations_are_named_by_their_places() -> None:
    program = jaxide.trace(layered)(X, X)
    found = program.find()
    assert [equation.path for equation in found] == [(0,), (0, 0), (0, 1), (1,), (1, 0), (1, 1)]
    for equation in found:
        eqns, place = program.jaxpr.jaxpr.eqns, equation.path
        for step, which in zip(place[:-1], equation.programs, strict=True):
            eqns = list(jaxprs_in_params(eqns[step].params))[which].eqns
        eqn = eqns[place[-1]]
        assert equation.primitive == eqn.primitive.name
        assert equation.in_avals == tuple(v.aval.str_short(short_dtypes=True) for v in eqn.invars)
        assert equation.out_avals == tuple(v.aval.str_short(short_dtypes=True) for v in eqn.outvars)


def test_find() -> None:
    program = jaxide.trace(layered)(X, X)
    paths = lambda **asked: [equation.path for equation in program.find(**asked)]
    assert paths(primitive="sin") == [(0, 0), (1, 0)]
    assert paths(dtype="float32", primitive="sin") == [(0, 0), (1, 0)]
    assert paths(dtype=jnp.int32) == []
    assert paths(shape=(4, 8), primitive="add") == [(1, 1)]
    assert paths(shape=(4,)) == []
    assert paths(name_scope="layer/loop") == [(1,), (1, 0), (1, 1)]
    assert len(paths(name_scope="layer")) == 6
    assert paths(name_scope="lay") == []
    line = inner.__code__.co_firstlineno + 1
    assert paths(line=f"test_queries.py:{line}") == [(0, 0), (0, 1)]
    assert paths(line=program.find("sin")[0].line) == [(0, 0), (0, 1)]
    assert len(paths(line="test_queries.py")) == 6
    assert paths(line="queries.py") == []


# ---- slices -------------------------------------------------------------------------------------


def swapping(x: Array, y: Array, z: Array) -> tuple[Array, Array, Array]:
    """Each carried value becomes the next one; only the last one takes something in."""
    step = lambda c, s: ((c[1], c[2], c[2] + s), None)
    return lax.scan(step, (x, y, x), jnp.broadcast_to(z, (3, *z.shape)))[0]


def skipping(x: Array, y: Array) -> tuple[Array, Array]:
    """A loop that may not run leaves what it was given."""
    return lax.while_loop(lambda c: c[1][0, 0] < 1.0, lambda c: (c[1], c[1] + 1.0), (x, y))


def branching(i: Array, x: Array, y: Array) -> tuple[Array, Array]:
    return lax.switch(i[0, 0].astype(int), [lambda x, y: (x, y), lambda x, y: (y, y)], x, y)


def through_ref(x: Array, y: Array, z: Array) -> tuple[Array, Array]:
    ref, other = jax.new_ref(jnp.zeros_like(x)), jax.new_ref(z)
    ref[...] = x
    before = ref[...]

    def add(_: int, carry: Array) -> Array:
        ref[...] += y
        return carry

    lax.fori_loop(0, 2, add, x)
    other[...] = before
    return before, ref[...]


def dropping(x: Array, y: Array, z: Array) -> tuple[Array]:
    outs = jax.jit(lambda x, y, z: (x + 1.0, jnp.sin(y), z))(x, y, z)
    return (outs[0],)


@pytest.mark.parametrize(
    ("function", "expected", "unused"),
    [
        (layered, [{0}, {1}], []),
        (swapping, [{0, 1, 2}, {0, 2}, {0, 2}], []),
        (skipping, [{0, 1}, {1}], []),
        (branching, [{0, 1, 2}, {2}], []),
        (through_ref, [{0}, {0, 1}], [2]),
        (dropping, [{0}], [1, 2]),
    ],
)
def test_slices(function: Callable[..., Any], expected: list[set[int]], unused: list[int]) -> None:
    args = (X,) * function.__code__.co_argcount
    program = jaxide.trace(function)(*args)
    found = [set(program.depends_on(at).inputs) for at in range(len(expected))]
    assert found == expected
    assert program.unused_inputs() == unused
    if function is not swapping:
        # Of a scan jax keeps what is carried at first, though no round may need it.
        dependence.assert_slices(program.jaxpr, program)


def test_values_do_not_change_with_what_they_do_not_depend_on() -> None:
    """Each output is evaluated with other values of the inputs that it does not depend on."""
    for function in (layered, through_ref, dropping):
        args = [X * (at + 1.0) for at in range(function.__code__.co_argcount)]
        program = jaxide.trace(function)(*args)
        out = jax.tree.leaves(function(*args))
        for at, value in enumerate(out):
            needed = set(program.depends_on(at).inputs)
            others = [arg if i in needed else arg + 7.0 for i, arg in enumerate(args)]
            np.testing.assert_array_equal(jax.tree.leaves(function(*others))[at], value)
            for position in needed:
                others = [arg + 0.5 * (i == position) for i, arg in enumerate(args)]
                assert not np.array_equal(jax.tree.leaves(function(*others))[at], value)


def test_equations_of_slices() -> None:
    program = jaxide.trace(layered)(X, X)
    found = program.depends_on(0)
    assert [e.path for e in found.equations] == [(0,), (0, 0), (1,), (1, 0), (1, 1)]
    assert [e.path for e in program.used_by(1).equations] == [(0,), (0, 1)]
    assert program.used_by(1).outputs == (1,)


def test_equations_are_read_when_they_are_looked_at() -> None:
    program = jaxide.trace(lambda x: sum((jnp.sin(x + i) for i in range(300)), x))(X)
    found = program.find("sin")
    whole = list(found)
    assert len(found) == len(whole) == 300
    assert whole == [found[at] for at in range(300)]
    assert whole == list(reversed(found))[::-1]
    assert found[-1] == whole[-1]
    assert found[250:260] == tuple(whole[250:260])
    assert found[::-100] == tuple(whole[::-100])
    for position in (300, -301):
        with pytest.raises(IndexError):
            found[position]
    assert found == whole
    assert found == tuple(found) == program.find("sin")
    assert whole[:-1] != found != "sin"
    assert hash(found) == hash(tuple(whole))
    assert repr(found) == repr(tuple(whole))
    assert copy.deepcopy(found) == pickle.loads(pickle.dumps(found)) == tuple(whole)
    assert not program.find("cos")
    assert program.find("cos") == []


def test_groups_are_read_when_they_are_looked_at() -> None:
    program = jaxide.trace(lambda x: [jnp.sin(x), jnp.cos(x), jnp.sin(x), jnp.cos(x)])(X)
    groups = program.duplicates()
    assert [[e.path for e in group] for group in groups] == [[(0,), (2,)], [(1,), (3,)]]
    assert groups == list(groups)
    assert groups[:1] == (groups[0],)
    assert groups[-1][1].primitive == "cos"
    with pytest.raises(IndexError):
        groups[2]
    assert copy.deepcopy(groups) == groups


def test_constants_of_slices() -> None:
    first, second = jnp.arange(8.0), jnp.arange(4.0)
    function = lambda x: (x * first, jax.jit(lambda x: x.T * second)(x))
    program = jaxide.trace(function)(X)
    ((one,), (two,)) = (program.depends_on(at).constants for at in range(2))
    assert (one.aval, two.aval) == ("f32[8]", "f32[4]")
    assert one.first_use is not None
    assert one.first_use.primitive == "broadcast_in_dim"


def test_wrong_positions() -> None:
    program = jaxide.trace(layered)(X, X)
    with pytest.raises(IndexError, match="the program has 2 outputs, there is no output 2"):
        program.depends_on(2)
    with pytest.raises(IndexError, match="the program has 2 inputs, there is no input 7"):
        program.used_by(7)


def test_ordered_effects_depend_on_those_before() -> None:
    call = lambda x: io_callback(lambda x: x, x, x, ordered=True)
    program = jaxide.trace(lambda x, y: (call(x), call(y)))(X, X)
    assert program.depends_on(1).inputs == (0, 1)
    assert program.used_by(0).outputs == (0, 1)
    unordered = lambda x: io_callback(lambda x: x, x, x)
    program = jaxide.trace(lambda x, y: (unordered(x), unordered(y)))(X, X)
    assert program.depends_on(1).inputs == (1,)
    assert program.dead() == []


def test_many_ways_to_ask_the_same_programs() -> None:
    """Each level asks the one below for other outputs, twice: 2**40 ways lead to the last one."""
    function = jax.jit(lambda x, y: (x + 1.0, y * 2.0))
    for _ in range(40):
        function = jax.jit(lambda x, y, f=function: f(*f(y, x)))
    program = jaxide.trace(function)(X, X)
    dependence.assert_slices(program.jaxpr, program)
    # Two runs of the one below change nothing round, so each level does what one level does.
    assert [program.depends_on(at).inputs for at in range(2)] == [(1,), (0,)]


# ---- dead code ----------------------------------------------------------------------------------


def test_dead() -> None:
    def function(x: Array, y: Array) -> Array:
        jnp.tan(x)
        outs = jax.jit(lambda x, y: (jnp.sin(x), jnp.cos(jnp.exp(y))))(x, y)
        jax.debug.print("{}", jnp.tanh(y))
        ref = jax.new_ref(x)
        ref[...] = y
        return outs[0]

    dead = jaxide.trace(function)(X, X).dead()
    names = [equation.primitive for equation in dead]
    # A Ref of the program's own that nobody reads is as dead as what is written to it.
    assert names[0] == "tan"
    assert {"exp", "cos"} <= set(names)
    assert not {"sin", "tanh", "jit", "debug_callback"} & set(names)


def test_dead_equations_can_be_left_out() -> None:
    """What remains where dead equations are left out computes the same."""

    def function(x: Array, y: Array) -> tuple[Array, ...]:
        unused = [jnp.sin(x) @ y.T, lax.cumsum(y)]
        kept = [jnp.cos(x), unused[1] + x]
        return tuple(kept)

    program = jaxide.trace(function)(X, X * 2.0)
    jaxpr = program.jaxpr.jaxpr
    dead = {equation.path[0] for equation in program.dead()}
    assert dead
    left = [eqn for at, eqn in enumerate(jaxpr.eqns) if at not in dead]
    smaller = jax.core.eval_jaxpr(jaxpr.replace(eqns=left), program.jaxpr.consts, X, X * 2.0)
    for own, other in zip(smaller, function(X, X * 2.0), strict=True):
        np.testing.assert_array_equal(own, other)


# ---- chains -------------------------------------------------------------------------------------


def test_critical_path() -> None:
    def function(x: Array) -> Array:
        long = jnp.sin(jnp.cos(jnp.tan(x)))
        return long + jnp.exp(x)

    path = jaxide.trace(function)(X).critical_path()
    assert [equation.primitive for equation in path.equations] == ["tan", "cos", "sin", "add"]
    assert (path.length, path.total) == (4, 5)
    assert path.parallelism == 1.25
    heavy = jaxide.trace(lambda x: (x @ x.T, function(x)))(X).critical_path("operations")
    assert [equation.primitive for equation in heavy.equations] == ["transpose", "dot_general"]
    assert heavy.length == 2 * 4 * 4 * 8


def test_critical_paths_through_programs() -> None:
    program = jaxide.trace(layered)(X, X)
    path = program.critical_path()
    # The jit, of which one equation is in the chain, and three rounds of two.
    assert path.length == 1 + 3 * 2
    assert [equation.path for equation in path.equations] == [(0,), (0, 0), (1,), (1, 0), (1, 1)]
    loop = jaxide.trace(lambda x: lax.while_loop(lambda c: c[0, 0] < 3, lambda c: c + 1, x))(X)
    once, often = loop.critical_path().length, loop.critical_path(while_trips=11).length
    condition = len(loop.jaxpr.jaxpr.eqns[0].params["cond_jaxpr"].jaxpr.eqns)
    assert often - once == 10 * (1 + condition)
    with pytest.raises(ValueError, match="while_trips must not be negative, got -1"):
        loop.critical_path(while_trips=-1)
    with pytest.raises(ValueError, match="by must be 'equations', 'operations' or 'bytes'"):
        loop.critical_path("time")  # type: ignore[arg-type]


def test_refs_and_order_make_chains() -> None:
    def function(x: Array) -> Array:
        ref = jax.new_ref(x)
        ref[0] = jnp.sin(x[0])
        ref[1] = x[0]
        return ref[...]

    path = jaxide.trace(function)(X).critical_path()
    names = [equation.primitive for equation in path.equations]
    assert names[-3:] == ["swap", "swap", "get"]


# ---- duplicates ---------------------------------------------------------------------------------


def test_duplicates() -> None:
    def function(x: Array) -> Array:
        a = jnp.sin(x) * 2.0
        b = jnp.sin(x) * 2.0
        c = jnp.sin(x) * 3.0
        return a + b + c

    groups = jaxide.trace(function)(X).duplicates()
    assert [[e.path for e in group] for group in groups] == [[(0,), (2,), (4,)], [(1,), (3,)]]
    start = function.__code__.co_firstlineno
    lines = [int(e.line.rpartition(":")[2].split()[0]) - start for e in groups[0]]
    assert lines == [1, 2, 3]


def test_duplicates_compute_the_same() -> None:
    """The equations of each group are evaluated, and agree; those in none do not."""

    def function(x: Array, key: Array) -> list[Array]:
        draws = [jax.random.normal(key, x.shape), jax.random.normal(key, x.shape)]
        return [*draws, jnp.where(x > 0, x, 0), jnp.where(x > 0, x, 0), jnp.where(x > 1, x, 0)]

    args = X, jax.random.key(0)
    program = jaxide.trace(function)(*args)
    jaxpr = program.jaxpr.jaxpr
    every = [var for eqn in jaxpr.eqns for var in eqn.outvars]
    values = jax.core.eval_jaxpr(
        jaxpr.replace(outvars=every, debug_info=jaxpr.debug_info.with_unknown_names()),
        program.jaxpr.consts,
        *args,
    )
    made = dict(zip(map(id, every), values, strict=True))
    groups = [g for g in program.duplicates() if len(g[0].path) == 1]
    assert groups
    for group in groups:
        first, *others = [jaxpr.eqns[equation.path[0]] for equation in group]
        for other in others:
            for one, another in zip(first.outvars, other.outvars, strict=True):
                np.testing.assert_array_equal(made[id(one)], made[id(another)])


def test_no_duplicates() -> None:
    def function(x: Array) -> list[Array]:
        ref = jax.new_ref(x)
        one = ref[...]
        ref[...] = one + 1.0
        return [
            one,
            ref[...],
            *[io_callback(lambda x: x, x, x) for _ in range(2)],
            *[lax.optimization_barrier(x) for _ in range(2)],
            *[lax.rng_uniform(0.0, 1.0, (2,)) for _ in range(2)],
            *[jax.jit(lambda: lax.rng_uniform(0.0, 1.0, (2,)))() for _ in range(2)],
            x * 1.0,
            x * -1.0,
        ]

    assert jaxide.trace(function)(X).duplicates() == []


# ---- constants, effects -------------------------------------------------------------------------


def test_large_constants() -> None:
    small, large = jnp.ones(8), jnp.ones((64, 64))
    program = jaxide.trace(lambda x: jax.jit(lambda x: x @ large[:8])(x * small))(X)
    every = program.large_constants(0)
    assert [(constant.aval, constant.bytes) for constant in every] == [
        ("f32[64,64]", 16384),
        ("f32[8]", 32),
    ]
    assert program.large_constants(16385) == []
    (found,) = program.large_constants(16384)
    assert found.first_use is not None
    assert "test_queries.py" in found.first_use.line
    assert "16.0 KiB, first used at" in str(found)
    assert program.large_constants() == []


def test_effects() -> None:
    def function(x: Array) -> Array:
        jax.debug.print("{}", x)
        ref = jax.new_ref(x)
        ref[...] += 1.0
        return jax.jit(lambda x: io_callback(lambda x: x, x, x, ordered=True))(ref[...])

    found = jaxide.trace(function)(X).effects()
    names = {name: [e.primitive for e in equations] for name, equations in found.items()}
    assert names["OrderedIO"] == ["jit", "io_callback"]
    assert len(names["Debug"]) == 1
    assert names["Read"][-1] == "get"
    assert "Write" in names or "Accum" in names
    assert jaxide.trace(jnp.sin)(X).effects() == {}


# ---- precision ----------------------------------------------------------------------------------

DTYPES = [
    *("bool int4 uint4 int8 uint8 int16 uint16 int32 uint32 bfloat16 float16 float32").split(),
    *("float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz").split(),
    *("float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn").split(),
    "complex64",
]


def every_number(name: str) -> np.ndarray[Any, Any] | None:
    """All finite numbers of a dtype of at most 16 bits."""
    dtype = jnp.dtype(name)
    if name == "bool":
        return np.array([False, True])
    if dtype.itemsize > 2:
        return None
    bits = 4 if name in ("int4", "uint4", "float4_e2m1fn") else 8 * dtype.itemsize
    raw = np.arange(2**bits, dtype=np.uint8 if bits <= 8 else np.uint16)
    if name in ("int4", "uint4"):
        low = -8 if name == "int4" else 0
        return np.arange(low, low + 16).astype(dtype)
    numbers = raw.view(dtype)
    with np.errstate(all="ignore"):
        return numbers[np.isfinite(numbers.astype(np.float64))]


def test_widening_keeps_every_number() -> None:
    """Every number of each small type is converted to each type and back to float64."""
    pairs = [(one, other) for one in DTYPES for other in DTYPES if one != other]
    values = {name: jnp.zeros(1, name) for name in DTYPES}

    def function(values: dict[str, Array]) -> list[Array]:
        return [lax.convert_element_type(values[one], jnp.dtype(to)) for one, to in pairs]

    report = jaxide.trace(function)(values).precision()
    found = {(c.from_dtype, c.to_dtype): c for c in report.conversions}
    assert len(found) == len(pairs)
    compared = 0
    for (one, to), conversion in found.items():
        numbers = every_number(one)
        if numbers is None:
            continue
        wide = numbers.astype(np.complex128 if to == "complex64" else np.float64)
        with np.errstate(all="ignore"):
            there = numbers.astype(np.float32).astype(jnp.dtype(to))
            kept = bool(np.all(there.astype(wide.dtype) == wide))
        if to == "bool":
            kept = False if one != "bool" else kept
        assert conversion.widens == kept, (one, to)
        compared += 1
    assert compared > 300


def test_precision() -> None:
    def function(x: Array) -> Array:
        low = x.astype(jnp.bfloat16)
        product = lax.dot(low, low.T, preferred_element_type=jnp.float32)
        return lax.reduce_precision(product, 8, 7).astype(jnp.float16)

    report = jaxide.trace(function)(X).precision()
    told = [(c.from_dtype, c.to_dtype, c.widens, c.explicit) for c in report.conversions]
    assert told == [
        ("float32", "bfloat16", False, True),
        ("bfloat16", "float32", True, False),
        ("float32", "float32 of e8m7", False, True),
        ("float32", "float16", False, True),
    ]
    assert len(report.narrowing) == 3
    assert len(report.widening) == 1
    first = report.conversions[0]
    assert (first.bytes_before, first.bytes_after) == (128, 64)
    start = function.__code__.co_firstlineno
    assert f"test_queries.py:{start + 1}" in first.equation.line
    assert "narrows" in str(report)
    assert jaxide.trace(jnp.sin)(X).precision().conversions == ()
