"""The structural hash of programs, and their equality."""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import itertools
import os
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import core
from jax._src.debugging import debug_effect
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import covering
import jaxide
from alone import run_alone
from corpus import CASES

X = np.linspace(0.25, 1, 3, dtype=np.float32)


def program_of(function: Callable[..., Any], *args: Any) -> jaxide.Program:
    return jaxide.trace(lambda *a: function(*a))(*args)


def of_stock(function: Callable[..., Any], *args: Any) -> jaxide.Program:
    return jaxide.from_jaxpr(jax.make_jaxpr(lambda *a: function(*a))(*args))


def assert_same(one: jaxide.Program, another: jaxide.Program) -> None:
    assert one == another
    assert another == one
    assert one.structural_hash == another.structural_hash
    assert one.content_hash == another.content_hash
    assert hash(one) == hash(another)


# ---- what does not count ----


def layer(x, w):
    return jnp.tanh(x @ w) * jax.nn.sigmoid(x)


def looped(x):
    def body(carry, _):
        return layer(carry, jnp.outer(x, x)), jax.nn.relu(carry)

    return lax.scan(body, x, None, length=3)


def branching(x):
    return lax.cond(x.sum() > 0, lambda v: jnp.sin(v) * 2, lambda v: v - 1, x)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "layer": lambda x: layer(x, jnp.outer(x, x)),
    "loop": looped,
    "branch": branching,
    "gradient": jax.grad(lambda x: looped(x)[0].sum()),
    "batched": lambda x: jax.vmap(branching)(jnp.stack([x, x])),
    "jit": lambda x: jax.jit(lambda v: jnp.where(v > 0, v, 0.0))(x),
    "random": lambda x: x * jax.random.normal(jax.random.key(3), (3,)),
    "constants": lambda x: x * jnp.arange(3.0) + np.ones(3, np.float32),
    "solve": lambda x: jnp.linalg.inv(jnp.outer(x, x) + jnp.eye(3)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_program_is_itself(name: str) -> None:
    """Whoever traced it, and whatever was traced before."""
    function = FUNCTIONS[name]
    first = program_of(function, X)
    jax.make_jaxpr(lambda x: jnp.fft.fft(x) + name.count("a"))(X)
    assert_same(first, program_of(function, X))
    assert_same(first, of_stock(function, X))
    assert_same(first, jaxide.from_jaxpr(first.jaxpr))
    jax.clear_caches()
    again = program_of(function, X)
    assert first.structural_hash == again.structural_hash


def test_names_and_lines_do_not_count() -> None:
    def one(x, y):
        product = x * y
        return jnp.sin(product)

    def another(left, right):
        # On other lines, under a name.
        with jax.named_scope("scope"):
            made = left * right

        return jnp.sin(made)

    assert_same(program_of(one, X, X), program_of(another, X, X))


def test_different_programs() -> None:
    """Every pair of a few programs that differ in one thing."""

    class Mode(enum.Enum):
        A = 1

    weak = jnp.asarray(2.0)
    programs = [
        program_of(f, *args)
        for f, *args in [
            (lambda x: x * 2.0, X),
            (lambda x: x * 3.0, X),
            (lambda x: 2.0 * x, X),
            (lambda x: x * -2.0, X),
            (lambda x: x * 2.0, X[:2]),
            (lambda x: x * 2.0, X.astype(np.float16)),
            (lambda x: x * 2.0, 1.0),
            (lambda x: x * 2.0, jnp.float32(1.0)),
            (lambda x: x * weak, 1.0),
            (lambda x: (x * 2.0, x), X),
            (lambda x: (x, x * 2.0), X),
            (lambda x, y: x * 2.0, X, X),
            (lambda x, y: y * 2.0, X, X),
            (lambda x: jnp.sum(x, axis=0), X[None]),
            (lambda x: jnp.sum(x, axis=1), X[None]),
            (lambda x: lax.scan(lambda c, _: (c * 2, None), x, None, length=2)[0], X),
            (lambda x: lax.scan(lambda c, _: (c * 2, None), x, None, length=3)[0], X),
            (lambda x: lax.scan(lambda c, _: (c * 3, None), x, None, length=3)[0], X),
            (lambda x: lax.scan(lambda c, _: (c * 3, None), x, None, 3, reverse=True)[0], X),
            (lambda x: jax.debug.print("{}", x), X),
            (lambda x: jax.debug.print("{}!", x), X),
            (lambda x: lax.reduce_precision(x, 5, 10), X),
            (lambda x: lax.reduce_precision(x, 5, 9), X),
            (lambda x: x.astype(jnp.int32), X),
            (lambda x: x.astype(jnp.int16), X),
        ]
    ]
    for one, another in itertools.combinations(programs, 2):
        assert one != another, (str(one), str(another))
        assert one.structural_hash != another.structural_hash, (str(one), str(another))


def test_configuration_counts() -> None:
    with jax.threefry_partitionable(True):
        one = program_of(jnp.sin, X)
    with jax.threefry_partitionable(False):
        another = program_of(jnp.sin, X)
    assert one != another
    assert one.structural_hash != another.structural_hash


def test_functions_count_by_identity() -> None:
    """Callbacks of equal signature: only the hash, which outlives the process, may agree."""

    def callback(by):
        return lambda v: np.asarray(v) * by

    def calling(function):
        return lambda x: jax.pure_callback(function, jax.ShapeDtypeStruct((3,), np.float32), x)

    double, triple = callback(2), callback(3)
    assert_same(program_of(calling(double), X), program_of(calling(double), X))
    assert program_of(calling(double), X) != program_of(calling(triple), X)


def test_derivative_rules_count() -> None:
    def with_rule(by):
        @jax.custom_vjp
        def f(x):
            return jnp.sin(x)

        f.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * by,))
        return f

    double, triple = with_rule(2.0), with_rule(3.0)
    assert program_of(double, X) != program_of(triple, X)
    assert_same(program_of(jax.nn.relu, X), program_of(jax.nn.relu, X))


# ---- constants ----


def test_constants() -> None:
    def multiplying(by):
        return lambda x: x * by

    ones, twos = jnp.ones(3), jnp.ones(3) * 2
    one, again, other = (program_of(multiplying(by), X) for by in (ones, ones + 0, twos))
    assert_same(one, again)
    assert one.structural_hash == other.structural_hash
    assert one.content_hash != other.content_hash
    assert one != other


@pytest.mark.parametrize("values", [(0.0, -0.0), (np.nan, -np.nan), (1.0, np.nextafter(1.0, 2.0))])
def test_bits_of_constants(values: tuple[float, float]) -> None:
    one, another = (np.full(3, value) for value in values)
    with jax.enable_x64(True):
        programs = [program_of(lambda x, c=c: x * c, X) for c in (one, another, one.copy())]
    assert programs[0] != programs[1]
    assert programs[0].content_hash != programs[1].content_hash
    assert_same(programs[0], programs[2])


def test_constants_that_change() -> None:
    """What is in an array of numpy's counts as it is now."""
    array = np.ones(3, np.float32)
    program = jaxide.from_jaxpr(_with_constant(array))
    before, structure = program.content_hash, program.structural_hash
    array[0] = 5
    assert program.content_hash != before
    assert program.structural_hash == structure
    assert program == jaxide.from_jaxpr(_with_constant(array.copy()))


def _with_constant(array: Any) -> Any:
    """A jaxpr with an array of numpy's itself among its constants."""
    jaxpr = jax.make_jaxpr(lambda x: x * jnp.asarray([1.0, 2.0, 3.0]))(X)
    (_,) = jaxpr.consts
    return jaxpr.replace(consts=[array])


# ---- every field counts ----


class Other(enum.Enum):
    MEMBER = 0


def mutations(value: Any) -> Iterator[Any]:
    """Values that are one step away."""
    if value is None:
        yield 0
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
    elif isinstance(value, float):
        yield value + 1.0
    elif isinstance(value, str):
        yield f"{value}x"
    elif isinstance(value, enum.Enum):
        yield from (member for member in type(value) if member is not value)
        yield Other.MEMBER
    elif isinstance(value, (getattr(core, "ClosedJaxpr", core.Jaxpr), core.Jaxpr)):
        yield from itertools.islice(mutated(value), 3)
    elif isinstance(value, tuple):
        make = type(value)._make if hasattr(value, "_fields") else type(value)
        yield (*value, 7)
        for index, item in enumerate(value):
            for new in itertools.islice(mutations(item), 2):
                yield make((*value[:index], new, *value[index + 1 :]))
    elif isinstance(value, np.dtype):
        yield np.dtype(np.int8 if value != np.int8 else np.int16)
    elif isinstance(value, jax.tree_util.PyTreeDef):
        yield jax.tree.structure((value, 0))
    elif isinstance(value, PartitionSpec):
        yield PartitionSpec("other")
    elif isinstance(value, Mesh):
        yield Mesh(
            np.array(jax.devices()[:1]), (*(f"{name}x" for name in value.axis_names), "y")[:1]
        )
    elif isinstance(value, NamedSharding):
        yield from (NamedSharding(mesh, PartitionSpec()) for mesh in mutations(value.mesh))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            for new in itertools.islice(mutations(getattr(value, field.name)), 1):
                changed = copy.copy(value)
                object.__setattr__(changed, field.name, new)
                yield changed
    else:
        yield "other"


def mutated(jaxpr: Any) -> Iterator[Any]:
    """Jaxprs in which one param of one equation is another."""
    opened = getattr(jaxpr, "jaxpr", jaxpr)
    for index, eqn in enumerate(opened.eqns):
        for name, value in eqn.params.items():
            for new in mutations(value):
                eqns = list(opened.eqns)
                eqns[index] = eqn.replace(params={**eqn.params, name: new})
                replaced = opened.replace(eqns=eqns)
                yield jaxpr.replace(jaxpr=replaced) if opened is not jaxpr else replaced


def sharded(x):
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
    return lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec("data")))


MUTATED: dict[str, Callable[[Any], Any]] = {
    **FUNCTIONS,
    "sharding": sharded,
    "gather": lambda x: x[np.array([0, 2])],
    "convolution": lambda x: lax.conv(x[None, None], x[None, None, :2], (1,), "SAME"),
    "product": lambda x: lax.dot_general(x, x, (((0,), (0,)), ((), ())), lax.Precision.HIGHEST),
    "sort": lambda x: lax.sort((x, x * 2), num_keys=2),
    "fft": jnp.fft.fft,
    "checkpoint": jax.grad(lambda x: jax.checkpoint(lambda v: jnp.sin(jnp.sin(v)))(x).sum()),
    "print": lambda x: jax.debug.print("{x}", x=x),
}


@pytest.mark.parametrize("name", MUTATED)
def test_every_param_counts(name: str) -> None:
    jaxpr = jax.make_jaxpr(lambda x: MUTATED[name](x))(X)
    program = jaxide.from_jaxpr(jaxpr)
    count = 0
    for other in mutated(jaxpr):
        mutant = jaxide.from_jaxpr(other)
        assert mutant != program, str(other)
        assert mutant.structural_hash != program.structural_hash, str(other)
        count += 1
    assert count > 1


def fields(eqn: Any) -> Iterator[Any]:
    """Equations that differ in a field other than the params."""
    other = core.Primitive(f"other {eqn.primitive.name}")
    other.multiple_results = eqn.primitive.multiple_results
    yield eqn.replace(primitive=other)
    yield eqn.replace(invars=[*eqn.invars, *eqn.invars[:1]])
    yield eqn.replace(
        invars=[core.Literal(np.float32(9), core.typeof(np.float32(9))), *eqn.invars[1:]]
    )
    yield eqn.replace(effects={debug_effect})
    yield eqn.replace(ctx=types.SimpleNamespace(compute_type="host"))


@pytest.mark.parametrize("name", ["layer", "loop", "branch"])
def test_every_field_counts(name: str) -> None:
    jaxpr = jax.make_jaxpr(lambda x: FUNCTIONS[name](x))(X)
    program = jaxide.from_jaxpr(jaxpr)
    for index, eqn in enumerate(jaxpr.eqns):
        for new in fields(eqn):
            eqns = [*jaxpr.eqns[:index], new, *jaxpr.eqns[index + 1 :]]
            other = jaxide.from_jaxpr(jaxpr.replace(jaxpr=jaxpr.jaxpr.replace(eqns=eqns)))
            assert other != program
            assert other.structural_hash != program.structural_hash


# ---- many programs ----


def test_corpus() -> None:
    """The same function traced twice is equal, whoever traces; equal programs read the same."""
    seen: dict[int, list[jaxide.Program]] = {}
    for case in covering.one_in(4, CASES, start=0):
        if case.unevaluated is not None or case.family in ("pallas", "refs"):
            continue
        with case.entered():
            args, kwargs = case.arguments()
            stock, ours = (
                make(case.function(), **case.options)(*args, **kwargs)
                for make in (jax.make_jaxpr, jaxide.make_jaxpr)
            )
            if isinstance(stock, tuple):
                stock, ours = stock[0], ours[0]
        program = jaxide.from_jaxpr(stock)
        assert program.structural_hash == jaxide.structural_hash(ours), case
        for other in seen.setdefault(program.structural_hash, []):
            if other == program:
                assert str(other) == str(program), case
        seen[program.structural_hash].append(program)
    assert len(seen) > (125 if covering.is_short else 500)


HASHES = """
import jax, jax.numpy as jnp, numpy as np, sys
sys.path.insert(0, {folder!r})
import test_structure
for name, function in test_structure.MUTATED.items():
    program = test_structure.program_of(function, test_structure.X)
    print(name, program.structural_hash, program.content_hash)
"""


def test_processes() -> None:
    """The same in a process with other hashes of strings, another history, other addresses."""

    def hashes(seed: str, before: str) -> str:
        code = before + HASHES.format(folder=os.path.dirname(__file__))
        return run_alone(code, PYTHONHASHSEED=seed).stdout

    first = hashes("1", "")
    assert first == hashes("2", "import jaxide\nkept = [object() for _ in range(1000)]\n")
    assert len(set(first.splitlines())) == len(MUTATED)


# ---- the functions ----


def test_structural_hash_of_a_jaxpr() -> None:
    jaxpr = jax.make_jaxpr(lambda x: looped(x))(X)
    assert jaxide.structural_hash(jaxpr) == program_of(looped, X).structural_hash
    assert jaxide.structural_hash(jaxpr) == jaxide.structural_hash(jaxpr.jaxpr)
    assert 0 <= jaxide.structural_hash(jaxpr) < 1 << 128
    with pytest.raises(TypeError, match=r"structural_hash expects a jaxpr, got .*int"):
        jaxide.structural_hash(3)


def test_comparison_with_something_else() -> None:
    program = program_of(jnp.sin, X)
    assert program != 3
    assert program != program.jaxpr
    assert len({program, program_of(jnp.sin, X), program_of(jnp.cos, X)}) == 2


def test_deep_programs() -> None:
    """One in another in another."""
    function: Any = jnp.sin
    for _ in range(15):
        function = functools.partial(lambda f, x: jax.jit(lambda v: f(v))(x), function)
    program = of_stock(function, X)
    assert program == of_stock(function, X)
