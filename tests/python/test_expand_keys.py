"""Arguments that are not the same arguments are never taken for each other."""

from __future__ import annotations

import collections
import enum
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import covering
import expansion
from expansion import ROUNDS, Step, assert_history, assert_same_when_warm, observe, trace_of

X = np.linspace(0.25, 1, 3, dtype=np.float32)
M = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
NAN = float("nan")

# ---- scalars ----------------------------------------------------------------------------------

PYTHON_SCALARS = [
    *(True, 1, 1.0, 1 + 0j, False, 0, 0.0, -0.0, 0j, complex(0, -0.0), complex(-0.0, 0)),
    *(2, 2.0, -1, -1.0, 0.1, NAN, -NAN, float("inf"), -float("inf")),
    *(2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400),
    *(1e300, 5e-324, 3.4028235e38, 3.5e38),
]
SCALAR_TYPES = [
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, np.longdouble, np.complex64, np.complex128),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4),
    *(jnp.float32, jnp.int8, jnp.bfloat16),
]
NUMPY_SCALARS = [scalar_type(value) for scalar_type in SCALAR_TYPES for value in (0, 1)]
OF_NUMPY = [*NUMPY_SCALARS, *map(np.float32, (-0.0, "nan", "inf"))]


class Level(enum.IntEnum):
    LOW = 0
    HIGH = 1


class Integer(int):
    pass


class Float(float):
    pass


OTHER_SCALARS = [
    *(Level.LOW, Level.HIGH, Integer(1), Integer(0), Float(1.0), Float("nan"), None, "1", b"1"),
    *(np.datetime64("2020"), np.str_("1"), object(), ..., NotImplemented, range(2), {1, 2}),
]

SCALAR_USES: dict[str, Callable[[Any, Any], Any]] = {
    "x+s": lambda x, s: x + s,
    "s-x": lambda x, s: s - x,
    "x**s": lambda x, s: x**s,
    "x==s": lambda x, s: x == s,
    "x<s": lambda x, s: x < s,
    "add": lambda x, s: jnp.add(x, s),
    "where": lambda x, s: jnp.where(x > 0, x, s),
    "full_like": lambda x, s: jnp.full_like(x, s),
    "clip": lambda x, s: jnp.clip(x, min=s),
    "lax.max": lambda x, s: lax.max(x, s),
    "at.set": lambda x, s: x.at[0].set(s),
    "index": lambda x, s: x[s],
    "axis": lambda x, s: jnp.sum(x[None], axis=s),
    "asarray": lambda x, s: jnp.asarray(s),
    "array of": lambda x, s: jnp.array([s, s]),
    "keepdims": lambda x, s: jnp.sum(x, keepdims=s),
    "jit": lambda x, s: jit_of_scalar(x, s),
    "static": lambda x, s: static_scalar(x, s),
}
DTYPES = [np.float32, np.int32]


@jax.jit
def jit_of_scalar(x, s):
    return x * s + 1


@functools.partial(jax.jit, static_argnums=1)
def static_scalar(x, s):
    return x * s, jnp.float32(1) if s is True else x


@pytest.mark.covering
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("use", SCALAR_USES.values(), ids=SCALAR_USES.keys())
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_scalars(use: Callable[[Any, Any], Any], dtype: Any) -> None:
    x = X.astype(dtype)

    def step(scalars: list[Any], full: bool) -> Step:
        return lambda make: [observe(make, lambda x: use(x, s), x, full=full) for s in scalars]

    # Scalars that compare equal are one to jax's own caches, so the order matters.
    start = [*SCALAR_USES.values()].index(use)
    scalars = [*PYTHON_SCALARS, *covering.one_in(3, [*OF_NUMPY, *OTHER_SCALARS], start)]
    order = scalars if dtype is np.float32 else scalars[::-1]
    assert_history([step(order, False)] * (ROUNDS - 1) + [step(order, True)])


def test_scalars_among_traced_ones() -> None:
    """A literal tracer, a weak one, an argument and a number of one value are four things."""

    def uses(x, weak, argument):
        one = jnp.asarray(1.0)
        scalars = [1.0, 1, one, weak, argument, jnp.float32(1), weak * 1, one * 1, x[0]]
        return [x + s for s in scalars], [jnp.power(x, s) for s in scalars]

    assert_same_when_warm((uses, X, 1.0, np.float32(1)))


# ---- traced values ----------------------------------------------------------------------------

UNARY = [jnp.add, jnp.multiply, jnp.maximum, jnp.dot, jnp.arctan2, lax.add, jnp.logaddexp]


@pytest.mark.parametrize("function", UNARY, ids=lambda function: function.__name__)
def test_one_value_twice(function: Callable[..., Any]) -> None:
    assert_same_when_warm(
        (lambda x, y: function(x, x), X, X),
        (lambda x, y: function(x, y), X, X),
        (lambda x, y: function(y, x), X, X),
        (lambda x, y: (function(x, y), function(y, y), function(y, x), function(x, x)), X, X),
        (lambda x, y: function(x + 1, x + 1), X, X),
    )


@pytest.mark.covering
@pytest.mark.parametrize("count", [2, 32, 33, 100])
@pytest.mark.parametrize(
    "combine",
    [jnp.stack, lambda xs: jnp.concatenate([x[None] for x in xs]), lambda xs: many(xs)],
    ids=["stack", "concatenate", "jit"],
)
def test_aliasing_among_many_leaves(count: int, combine: Callable[..., Any]) -> None:
    straight = list(range(count))
    orders = [
        straight,
        straight[::-1],
        straight[1:] + straight[:1],
        [0] * count,
        [i // 2 for i in straight],
        [i % (count // 2) for i in straight],
        [*straight[:-1], 0],
        [*straight[:-1], count // 2],
        [1, 0, *straight[2:-1], 0],
        [1, 0, *straight[2:-1], 1],
        [*straight[:2][::-1], *straight[2:], 0, 1],
        [*straight, 0, 1],
        [*straight, 1, 0],
        [*straight, count - 1],
        [*straight, count - 2],
    ]

    def reordered(order: list[int]) -> Callable[..., Any]:
        return lambda xs: combine([xs[i] for i in order])

    assert_same_when_warm(*((reordered(order), [X[0]] * count) for order in orders))


@jax.jit
def many(xs):
    return functools.reduce(lambda total, x: total * 2 - x, xs), xs[-1]


def test_types_of_traced_values() -> None:
    """Equal in all but one respect."""

    def use(x):
        return x * 2, jnp.sin(x), x + 1.5, jnp.sum(x), x.astype(float)

    dtypes = [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.int8, np.uint8, np.bool_]
    shapes = [(), (1,), (3,), (3, 1), (1, 3), (0,), (2, 0)]
    zeros = [(use, np.zeros(shape, dtype)) for shape in shapes for dtype in dtypes]
    assert_same_when_warm((use, 0.0), (use, 0), (use, False), (use, 0j), *zeros)


def test_values_made_inside() -> None:
    """Weak types, literals and results of other calls as arguments."""

    def use(x):
        weak = jnp.asarray(2.0)
        strong = jnp.float32(2.0)
        made = jnp.arange(3.0)
        values = [weak, strong, weak * 1, strong * 1, made, made[0], x[0], x.sum(), jnp.pi]
        return [x * value for value in values], [jnp.where(x > 0, v, x) for v in values]

    assert_same_when_warm((use, X))


def test_shardings_of_traced_values() -> None:
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,))

    def use(x):
        return x * 2, jnp.sin(x), jnp.sum(x), x.T, x.reshape(8)

    with jax.set_mesh(mesh):
        specs = [jax.P(), jax.P("i"), jax.P(None, "i")]
        arrays = [jax.device_put(np.ones((2, 4), np.float32), spec) for spec in specs]
        assert_same_when_warm(*((use, array) for array in arrays))


def test_memory_kinds_of_traced_values() -> None:
    def use(x):
        on_host = jax.device_put(x, jax.memory.Space.Host)
        back = jax.device_put(on_host, jax.memory.Space.Device)
        return jnp.sin(x), jnp.sin(on_host), x * x, on_host * on_host, back * x, jnp.sum(on_host)

    assert_same_when_warm((use, X), (lambda x: use(x * 1), X))


def test_symbolic_dimensions() -> None:
    scope = jax.export.SymbolicScope()
    shapes = [jax.export.symbolic_shape(text, scope=scope) for text in ("a", "b", "a+1", "2*a")]

    def use(x):
        return jnp.sum(x), x * 2, jnp.concatenate([x, x]), x.reshape(-1, 1), jnp.arange(x.shape[0])

    assert_same_when_warm(*((use, jax.ShapeDtypeStruct(s, np.float32)) for s in shapes))


def test_extended_types() -> None:
    def use(key):
        return jax.random.split(key), jax.random.normal(key, (2,)), jax.random.fold_in(key, 7)

    def of_many(keys):
        return keys[0], keys[:1], jnp.where(True, keys, keys), keys.reshape(-1), keys == keys

    keys = [jax.random.key(1), jax.random.key(1, impl="rbg"), jax.random.PRNGKey(1)]
    many_keys = [jax.random.split(key, 3) for key in keys]
    assert_same_when_warm(*((use, key) for key in keys), *((of_many, key) for key in many_keys))


# ---- the shape of a call ----------------------------------------------------------------------


class Pair(NamedTuple):
    left: Any
    right: Any


class OtherPair(NamedTuple):
    left: Any
    right: Any


class Sum(NamedTuple):
    """As equal as tuples are, and told apart by jax's pytrees."""

    left: Any
    right: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and sum(self) == sum(other)

    __hash__ = None


@jax.jit
def of_tree(tree):
    leaves = jax.tree.leaves(tree)
    paths = str(jax.tree.structure(tree))
    return [leaf * len(paths) for leaf in leaves], tree


TREES: list[Callable[[Any, Any], Any]] = [
    lambda x, y: (x, y),
    lambda x, y: [x, y],
    lambda x, y: (y, x),
    lambda x, y: (x, (y,)),
    lambda x, y: ((x,), y),
    lambda x, y: ((x, y),),
    lambda x, y: (x, [y]),
    lambda x, y: (x, y, None),
    lambda x, y: (None, x, y),
    lambda x, y: (x, None, y),
    lambda x, y: (x, (), y),
    lambda x, y: (x, [], y),
    lambda x, y: (x, {}, y),
    lambda x, y: {"a": x, "b": y},
    lambda x, y: {"b": y, "a": x},
    lambda x, y: {"a": y, "b": x},
    lambda x, y: {1: x, 2: y},
    lambda x, y: {1.0: x, 2: y},
    lambda x, y: {True: x, 2: y},
    lambda x, y: {("a", 1): x, ("b", 1): y},
    lambda x, y: {"a": {"b": x}, "c": y},
    lambda x, y: {"a": x, "b": {"c": y}},
    lambda x, y: collections.OrderedDict(a=x, b=y),
    lambda x, y: collections.OrderedDict(b=x, a=y),
    lambda x, y: collections.defaultdict(list, a=x, b=y),
    lambda x, y: collections.defaultdict(dict, a=x, b=y),
    lambda x, y: Pair(x, y),
    lambda x, y: OtherPair(x, y),
    lambda x, y: Pair(left=y, right=x),
    lambda x, y: Pair(Pair(x, y), x),
    lambda x, y: Sum(x, y),
    lambda x, y: [1, x, 2.0, y],
    lambda x, y: [1.0, x, 2, y],
    lambda x, y: [True, x, 2, y],
    lambda x, y: x,
    lambda x, y: (x,),
    lambda x, y: [[[x]]],
    lambda x, y: functools.reduce(lambda tree, _: (tree,), range(70), x),
    lambda x, y: functools.reduce(lambda tree, _: [tree, tree], range(6), x),
    lambda x, y: {f"layer_{i}": {"w": x, "b": y} for i in range(100)},
    lambda x, y: {f"layer_{i}": {"w": y, "b": x} for i in range(100)},
    lambda x, y: {f"layer_{i}": {"w": x, "b": x} for i in range(100)},
    lambda x, y: [x] * 300 + [y],
    lambda x, y: [x] * 301,
    lambda x, y: {"\ud800": x, "ä": y},
    lambda x, y: {"": x, "\0": y},
    lambda x, y: {"ab": x, "c": y},
    lambda x, y: {"a": x, "bc": y},
    lambda x, y: (),
]


def test_structures() -> None:
    def use(tree: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda x, y: of_tree(tree(x, y))

    assert_same_when_warm(*((use(tree), X, X) for tree in TREES))


@jax.jit
def of_keywords(a, b=2.0, *rest, c=3.0, **others):
    return [a * 2, b, c, *rest], dict(sorted(others.items()))


CALLS: dict[str, list[Callable[[Any, Any], Any]]] = {
    "positional or named": [
        lambda x, y: jnp.where(x > 0, x, y),
        lambda x, y: jnp.where(x > 0, y=y, x=x),
        lambda x, y: jnp.where(x > 0, x=y, y=x),
        lambda x, y: jnp.where(condition=x > 0, x=x, y=y),
        lambda x, y: jnp.clip(x, y),
        lambda x, y: jnp.clip(x, min=y),
        lambda x, y: jnp.clip(x, max=y),
        lambda x, y: jnp.clip(x, None, y),
        lambda x, y: jnp.clip(x, y, None),
        lambda x, y: jnp.clip(arr=x, max=y, min=x),
        lambda x, y: jnp.clip(arr=x, min=x, max=y),
    ],
    "a user's jit": [
        lambda x, y: of_keywords(x, y),
        lambda x, y: of_keywords(y, x),
        lambda x, y: of_keywords(x, b=y),
        lambda x, y: of_keywords(a=x, b=y),
        lambda x, y: of_keywords(b=y, a=x),
        lambda x, y: of_keywords(b=x, a=y),
        lambda x, y: of_keywords(x),
        lambda x, y: of_keywords(x, 2.0),
        lambda x, y: of_keywords(x, c=y),
        lambda x, y: of_keywords(x, y, x),
        lambda x, y: of_keywords(x, y, x, c=y),
        lambda x, y: of_keywords(x, p=y, q=x),
        lambda x, y: of_keywords(x, q=x, p=y),
        lambda x, y: of_keywords(x, p=x, q=y),
    ],
    "axes": [
        lambda x, y: jnp.sum(x[None], axis=0),
        lambda x, y: jnp.sum(x[None], axis=-1),
        lambda x, y: jnp.sum(x[None], axis=(0,)),
        lambda x, y: jnp.sum(x[None], axis=[0]),
        lambda x, y: jnp.sum(x[None], axis=(0, 1)),
        lambda x, y: jnp.sum(x[None], axis=(1, 0)),
        lambda x, y: jnp.sum(x[None], axis=None),
        lambda x, y: jnp.sum(x[None], axis=()),
        lambda x, y: jnp.sum(x[None], axis=True),
        lambda x, y: jnp.sum(x[None], axis=np.int64(0)),
        lambda x, y: jnp.sum(x[None], axis=np.array(0)),
        lambda x, y: jnp.sum(x[None], axis=Level.HIGH),
        lambda x, y: jnp.sum(x[None], 0, None, None, True),
        lambda x, y: jnp.sum(x[None], 0, keepdims=True),
        lambda x, y: jnp.sum(x[None], 0, keepdims=1),
        lambda x, y: jnp.transpose(x[None], (1, 0)),
        lambda x, y: jnp.transpose(x[None], [1, 0]),
        lambda x, y: jnp.transpose(x[None], [-1, 0]),
        lambda x, y: x[None].transpose(1, 0),
        lambda x, y: x[None].transpose((1, 0)),
        lambda x, y: x.reshape(1, 3),
        lambda x, y: x.reshape((1, 3)),
        lambda x, y: x.reshape([1, -1]),
        lambda x, y: jnp.expand_dims(x, (0, 2)),
        lambda x, y: jnp.expand_dims(x, [0, 2]),
    ],
    "dtypes": [
        (lambda d: lambda x, y: (x.astype(d), jnp.zeros(2, d), jnp.sum(x, dtype=d)))(dtype)
        for dtype in (
            *("float32", np.float32, jnp.float32, np.dtype("float32"), "f4", "<f4", ">f4"),
            *("float16", np.float16, jnp.bfloat16, "bfloat16", ml_dtypes.bfloat16, float, "float"),
            *(int, "int", "i4", np.int32, jnp.int32, bool, np.bool_, "bool", complex, "complex64"),
            *(np.float64, "float64", jnp.float64, np.dtype(">f4"), None, object, "no such dtype"),
            *(np.floating, jnp.floating, jnp.int4, "int4", jax.dtypes.float0, "O", "S1", "V4"),
        )
    ],
    "indices": [
        (lambda index: lambda x, y: x[None, :, None][index(y)])(index)
        for index in (
            *(lambda y: 0, lambda y: (0,), lambda y: [0], lambda y: False, lambda y: None),
            *(lambda y: ..., lambda y: (...,), lambda y: slice(None), lambda y: (0, 1)),
            *(lambda y: (0, slice(1, None)), lambda y: (0, slice(1, None, 1))),
            *(lambda y: (0, slice(None, 1)), lambda y: (0, slice(None, None, -1))),
            *(lambda y: (0, slice(0, 2)), lambda y: (0, slice(np.int32(0), 2))),
            *(lambda y: (0, slice(0, 2.0)), lambda y: (0, slice(False, 2))),
            *(lambda y: (0, y[0].astype(int)), lambda y: (0, slice(y[0].astype(int), None))),
            *(lambda y: (0, slice(None, y[0].astype(int))), lambda y: y.astype(int)),
            *(lambda y: (..., None), lambda y: (None, ...), lambda y: (0, y > 0)),
            *(lambda y: np.array([0, 0]), lambda y: (0, np.array([0, 2])), lambda y: (0, [0, 2])),
            *(lambda y: (0, [True, False, True]), lambda y: (0, np.array([True, False, True]))),
            *(lambda y: (0, 5), lambda y: (0, -1), lambda y: (0, -3), lambda y: 0.0, lambda y: "a"),
            *(lambda y: (0, np.int8(1)), lambda y: (0, np.uint8(1)), lambda y: (0, Level.HIGH)),
            *(lambda y: (0, y.astype("uint8")), lambda y: (y.astype(int) * 0, y.astype(int))),
        )
    ],
    "updates": [
        lambda x, y: x.at[0].set(y[0]),
        lambda x, y: x.at[0].add(y[0]),
        lambda x, y: x.at[0].set(1),
        lambda x, y: x.at[0].set(1.0),
        lambda x, y: x.at[0].set(y[0], mode="drop"),
        lambda x, y: x.at[0].set(y[0], mode=lax.GatherScatterMode.CLIP),
        lambda x, y: x.at[0].set(y[0], unique_indices=True),
        lambda x, y: x.at[0].set(y[0], indices_are_sorted=True),
        lambda x, y: x.at[1:].set(y[1:]),
        lambda x, y: x.at[...].set(y),
        lambda x, y: x.at[y > 0].set(0.0),
        lambda x, y: x.at[y.astype(int)].add(x),
        lambda x, y: y.at[x.astype(int)].add(y),
        lambda x, y: x.at[0].get(),
        lambda x, y: x.at[7].get(mode="fill", fill_value=3),
        lambda x, y: x.at[7].get(mode="fill", fill_value=3.0),
        lambda x, y: x.at[7].get(mode="fill", fill_value=NAN),
        lambda x, y: x.at[0].apply(jnp.sin),
        lambda x, y: x.at[0].apply(lambda v: v * 2),
        lambda x, y: x.at[0].multiply(y[0]),
        lambda x, y: x.at[0].max(y[0]),
    ],
    "enums and options": [
        lambda x, y: lax.dot(x, y),
        lambda x, y: lax.dot(x, y, precision=lax.Precision.HIGHEST),
        lambda x, y: lax.dot(x, y, precision="highest"),
        lambda x, y: lax.dot(x, y, precision=(lax.Precision.HIGH, lax.Precision.DEFAULT)),
        lambda x, y: lax.dot(x, y, precision="BF16_BF16_F32"),
        lambda x, y: lax.dot(x, y, preferred_element_type=np.float16),
        lambda x, y: jnp.dot(x, y, preferred_element_type="float16"),
        lambda x, y: jnp.round(x, 1),
        lambda x, y: jnp.round(x, decimals=-1),
        lambda x, y: jnp.sort(x, descending=True),
        lambda x, y: jnp.sort(x, stable=False),
        lambda x, y: jnp.pad(x, 1),
        lambda x, y: jnp.pad(x, (1, 2)),
        lambda x, y: jnp.pad(x, [(1, 2)]),
        lambda x, y: jnp.pad(x, ((1, 2),), mode="edge"),
        lambda x, y: jnp.pad(x, 1, constant_values=2),
        lambda x, y: jnp.pad(x, 1, constant_values=(2, 3.0)),
        lambda x, y: jnp.pad(x, 1, constant_values=x[0]),
        lambda x, y: jnp.einsum("i,i", x, y),
        lambda x, y: jnp.einsum("i,j", x, y),
        lambda x, y: jnp.einsum("i,i->i", x, y),
        lambda x, y: jnp.einsum(x, [0], y, [0]),
        lambda x, y: jnp.einsum(x, [0], y, [1]),
        lambda x, y: jnp.linalg.norm(x, ord=1),
        lambda x, y: jnp.linalg.norm(x, ord=1.0),
        lambda x, y: jnp.linalg.norm(x, ord=np.inf),
        lambda x, y: jnp.linalg.norm(x, ord="fro"),
        lambda x, y: jnp.arange(3),
        lambda x, y: jnp.arange(3.0),
        lambda x, y: jnp.arange(0, 3, 1),
        lambda x, y: jnp.linspace(0, 1, 3),
        lambda x, y: jnp.linspace(0, 1, 3, endpoint=False),
        lambda x, y: jnp.linspace(0, 1.0, 3),
        lambda x, y: jnp.split(x, 3),
        lambda x, y: jnp.split(x, [1]),
        lambda x, y: jnp.split(x, (1,)),
        lambda x, y: jnp.shape(x) + jnp.shape(y),
        lambda x, y: jnp.array([[1, 2], [3, x[0]]]),
        lambda x, y: jnp.array([[1.0, 2], [3, y[0]]]),
        lambda x, y: jnp.array([x[0], y[0], 1]),
        lambda x, y: jnp.array([y[0], x[0], True]),
    ],
    "results": [
        lambda x, y: jnp.asarray(x),
        lambda x, y: jnp.asarray(1.0),
        lambda x, y: jnp.asarray(x) is x,
        lambda x, y: jnp.array(x) is x,
        lambda x, y: jnp.shape(x) == (3,) and x * 2,
        lambda x, y: jnp.broadcast_arrays(x, y),
        lambda x, y: jnp.broadcast_arrays(x, x),
        lambda x, y: jnp.meshgrid(x, y),
        lambda x, y: jnp.divmod(x, y),
        lambda x, y: jnp.frexp(x),
        lambda x, y: jnp.linalg.eigh(x[:, None] * y),
        lambda x, y: jnp.linalg.slogdet(x[:, None] * y)._fields == ("sign", "logabsdet"),
        lambda x, y: jnp.unique(x, size=3, return_counts=True),
        lambda x, y: jnp.unique_all(x, size=3),
        lambda x, y: x.astype(jnp.result_type(x, np.float16)),
        lambda x, y: jnp.zeros(jnp.ndim(x) + jnp.size(x)),
        lambda x, y: lax.stop_gradient({"a": x, "b": [y, 1]}),
        lambda x, y: lax.optimization_barrier((x, [y], None)),
        lambda x, y: lax.full_like(x, 1),
    ],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS.keys())
def test_calls(calls: list[Callable[[Any, Any], Any]]) -> None:
    assert_same_when_warm(*((call, X, X) for call in calls))


# ---- callables --------------------------------------------------------------------------------


def double(x):
    return x * 2


def test_callables_as_arguments() -> None:
    jitted = jax.jit(double)
    functions = [
        jnp.sin,
        jnp.cos,
        jnp.add,
        lax.sin,
        jax.nn.relu,
        jax.nn.gelu,
        jax.nn.silu,
        double,
        lambda x: x * 2,
        lambda x: x * 3,
        functools.partial(jnp.add, 1),
        functools.partial(jnp.add, 2),
        jitted,
        jax.jit(double),
        jax.vmap(double),
        np.sin,
        float,
    ]

    def use(function: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda x: (
            lax.cond(x[0] > 0, function, jnp.negative, x),
            lax.map(function, x),
            lax.scan(lambda carry, v: (carry, function(v)), 0, x)[1],
            jnp.vectorize(function)(x),
            jnp.apply_along_axis(function, 0, x),
            jax.tree.map(function, [x, x]),
        )

    assert_same_when_warm(*((use(function), X) for function in functions))


def test_closures_with_changing_contents() -> None:
    factor = [1.0]

    def scaled(x):
        return x * factor[0]

    def step(value: float) -> Step:
        def trace(make: expansion.Maker) -> Any:
            factor[0] = value
            return observe(
                make,
                lambda x: (
                    lax.cond(x[0] > 0, scaled, jnp.sin, x),
                    lax.map(scaled, x),
                    lax.while_loop(lambda v: v[0] < 1, scaled, x),
                    jax.vmap(scaled)(x),
                ),
                X,
            )

        return trace

    assert_history([step(value) for value in (1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 1.0, 2.0)])


# ---- custom rules -----------------------------------------------------------------------------


@jax.custom_jvp
def with_jvp(x):
    return jnp.sin(x) * 2


with_jvp.defjvps(lambda t, ans, x: t * jnp.cos(x) * 2)


@jax.custom_vjp
def with_vjp(x):
    return jnp.sin(x) * 3


with_vjp.defvjp(lambda x: (with_vjp(x), x), lambda x, g: (g * jnp.cos(x),))

CUSTOM = [
    *(jax.nn.relu, jax.nn.silu, jax.nn.gelu, jax.nn.softmax, jax.nn.logsumexp, jax.nn.relu6),
    *(jax.scipy.special.logsumexp, jax.numpy.where, with_jvp, with_vjp),
]


@pytest.mark.parametrize("function", CUSTOM, ids=lambda f: getattr(f, "__name__", "where"))
def test_custom_rules(function: Callable[..., Any]) -> None:
    def call(x):
        return function(x > 0, x, x * 2) if function is jnp.where else function(x)

    def total(x):
        return jnp.sum(call(x))

    assert_same_when_warm(
        (call, X),
        (lambda x: (call(x), call(x), call(x * 2)), X),
        (jax.grad(total), X),
        (lambda x: jax.jvp(call, (x,), (x,)), X),
        (lambda x: jax.vjp(call, x)[1](x), X),
        (jax.vmap(call), M),
        (jax.hessian(total), X),
        (jax.checkpoint(total), X),
        (jax.jit(call), X),
        (lambda x: lax.scan(lambda c, v: (c + call(v), v), x[0], x), M),
    )


def test_a_rule_that_is_redefined() -> None:
    def step(rule: float) -> Step:
        def trace(make: expansion.Maker) -> Any:
            redefined.defjvp(lambda primals, tangents: (primals[0], tangents[0] * rule))
            jax.clear_caches()
            return observe(make, lambda x: (redefined(x), jax.jvp(redefined, (x,), (x,))), X)

        return trace

    redefined = jax.custom_jvp(lambda x: x * 1)
    assert_history([step(rule) for rule in (1.0, 1.0, 1.0, 2.0, 2.0, 1.0)])


# ---- mutable arguments ------------------------------------------------------------------------


def test_arguments_that_change_between_calls() -> None:
    def use(x):
        shape, pads, tree, index = [3], [[0, 1]], {"a": x}, [0]
        out = []
        for _ in range(3):
            out += [jnp.zeros(shape), jnp.pad(x, pads), of_tree(tree), x[tuple(index)]]
            shape.append(2)
            pads[0][1] += 1
            tree["b" * len(tree)] = x * 2
            index[0] += 1
        return out

    assert_same_when_warm((use, X))


def test_arrays_whose_values_change() -> None:
    array = np.arange(3.0, dtype=np.float32)
    index = np.array([0, 1])
    zero_dimensional = np.array(1.0)

    def step(value: float) -> Step:
        def trace(make: expansion.Maker) -> Any:
            array[:] = value
            index[:] = int(value)
            zero_dimensional[()] = value
            concrete = jnp.full(3, value)
            return observe(
                make,
                lambda x: (
                    x + array.copy(),
                    x[index],
                    x * zero_dimensional,
                    jnp.add(concrete, x),
                    jnp.where(x > 0, np.float32(value), x),
                    jnp.asarray(array.copy()),
                    jnp.array([*array]),
                    of_tree([array.copy(), x]),
                    jnp.take(x, index),
                    jnp.full(3, zero_dimensional),
                ),
                X,
            )

        return trace

    assert_history([step(value) for value in (0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 0.0, 1.0)])


class WithDtype:
    dtype = np.dtype("float32")


class WithArray:
    """A user's array, whose value may change."""

    def __init__(self, value: float):
        self.value = value

    def __jax_array__(self):
        return jnp.float32(self.value)


class WithHash:
    """A static argument, equal to others of its value."""

    def __init__(self, value: float, salt: int):
        self.value, self.salt = value, salt

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WithHash) and self.value == other.value


def test_objects_of_users() -> None:
    array = WithArray(0.0)

    def step(value: float, dtype: str) -> Step:
        def trace(make: expansion.Maker) -> Any:
            WithDtype.dtype = np.dtype(dtype)
            array.value = value
            return observe(
                make,
                lambda x: (
                    jnp.zeros(3, WithDtype),
                    x * array,
                    jnp.add(x, array),
                    static_object(x, WithHash(value, 1)),
                    static_object(x, WithHash(value, 2)),
                ),
                X,
            )

        return trace

    try:
        assert_history(
            [step(v, d) for v, d in [(1.0, "float32")] * 3 + [(2.0, "int32")] * 3 + [(1.0, "int8")]]
        )
    finally:
        WithDtype.dtype = np.dtype("float32")


@functools.partial(jax.jit, static_argnums=1)
def static_object(x, static):
    return x * static.value + static.salt


# ---- nested jits ------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames=("how", "sizes"))
def with_statics(x, how="sum", sizes=()):
    return [jnp.broadcast_to(getattr(jnp, how)(x), sizes)]


donating = jax.jit(lambda x, y: x * 2 + y, donate_argnums=0)
inlined = jax.jit(lambda x: jnp.sin(x) * x, inline=True)
keeping = jax.jit(lambda x, y: x, keep_unused=True)
captured = jnp.arange(3.0)
host_captured = np.arange(3.0, dtype=np.float32)
capturing = jax.jit(lambda x: x * captured + host_captured)
named = jax.jit(lambda x: jnp.cos(x) + 1)
nested = jax.jit(lambda x: named(named(x)) + inlined(x))
of_nothing = jax.jit(lambda: jnp.arange(3.0))
returning_argument = jax.jit(lambda x, y: (y, x, y, 1.0))


def test_nested_jits() -> None:
    assert_same_when_warm(
        (lambda x: with_statics(x), X),
        (lambda x: with_statics(x, "max"), X),
        (lambda x: with_statics(x, how="max", sizes=(2, 1)), X),
        (lambda x: with_statics(x, sizes=(2,), how="max"), X),
        (lambda x: with_statics(x, sizes=[2]), X),
        (lambda x: with_statics(x, sizes=(2, x)), X),
        (lambda x: (donating(x, x * 2), donating(x * 2, x), donating(x * 2, x * 3)), X),
        (lambda x: (inlined(x), inlined(inlined(x)), inlined(x)), X),
        (lambda x: (keeping(x, x), keeping(x * 2, x)), X),
        (lambda x: (capturing(x), capturing(x), capturing(x * 2)), X),
        (lambda x: (nested(x), named(x), nested(x * 2)), X),
        (lambda x: (of_nothing(), x * of_nothing()), X),
        (
            lambda x: (
                returning_argument(x, x),
                returning_argument(x, 1),
                returning_argument(2, x),
            ),
            X,
        ),
        (jax.grad(lambda x: jnp.sum(nested(x) + capturing(x))), X),
        (jax.vmap(nested), M),
    )


def test_a_new_jit_each_time() -> None:
    def use(x):
        local = jax.jit(lambda v: jnp.sin(v) * 2)
        also = jax.jit(lambda v: v * x)  # closes over a tracer
        return local(x), local(x), also(x), also(x), also(x * 2), jax.jit(jnp.dot)(x, x)

    assert_same_when_warm((use, X))


# A jit of two arguments that closes over two tracers.
CAPTURING: list[Callable[..., Any]] = [
    lambda v, w, x, y: v * x,
    lambda v, w, x, y: (x, v * 2),
    lambda v, w, x, y: x,
    lambda v, w, x, y: (w, y, v * 2),
    lambda v, w, x, y: (w * x, v * y),
    lambda v, w, x, y: x * 2,
    lambda v, w, x, y: (x * 2, v)[1],
    lambda v, w, x, y: jax.jit(lambda u: u * x)(v) + w,
    lambda v, w, x, y: lax.cond(v[0] > 0, lambda: x, lambda: w),
    lambda v, w, x, y: jnp.where(x > 0, v, y),
]


@pytest.mark.parametrize("inline", [False, True], ids=["called", "inlined"])
@pytest.mark.parametrize("number", range(len(CAPTURING)))
def test_jits_that_capture_what_they_are_given(number: int, inline: bool) -> None:
    """What comes from the closure is not what comes as an argument, even where it is the same."""

    def use(order: list[tuple[int, int]]) -> Callable[[Any], Any]:
        def calls(x):
            y = x + 1
            values = [x, y, x * 2, jnp.asarray(2.0) * x]
            capturing = jax.jit(lambda v, w: CAPTURING[number](v, w, x, y), inline=inline)
            return [capturing(values[v], values[w]) for v, w in order]

        return calls

    pairs = [(v, w) for v in range(4) for w in range(4)]
    assert_same_when_warm(
        (use([(0, 1)] * 3 + pairs), X),
        (use([(2, 3)] * 3 + pairs), X),
        (use([(0, 0), (0, 0), (1, 1), *pairs[::-1]]), X),
    )


def test_a_jit_over_a_tracer_of_an_outer_trace() -> None:
    def use(x):
        over = jax.jit(lambda v: v * x + jnp.sin(x))
        grad = jax.grad(lambda v: jnp.sum(over(v) * over(v)))(x)
        mapped = jax.vmap(lambda v: over(v) + x * v)(M[:, :3])
        scanned = lax.scan(lambda c, v: (c + over(v), jnp.sin(v) * x), x, M[:, :3])
        tangent = jax.jvp(lambda v: jnp.dot(over(v), x * v), (x,), (x,))
        branches = lax.cond(x[0] > 0, lambda v: jnp.add(over(v), x), lambda v: x * v, x)
        return grad, mapped, scanned, tangent, branches

    assert_same_when_warm((use, X))


@pytest.mark.parametrize("forget", ["nothing", "the jit", "everything", "by replacing"])
def test_a_jit_over_state(forget: str) -> None:
    """jax does not look at the state again until the jit is made to forget."""
    state = {"factor": 1.0}

    def scaled(x):
        return x * state["factor"]

    def step(value: float, inside: bool) -> Step:
        def trace(make: expansion.Maker) -> Any:
            def change() -> None:
                state["factor"] = value
                if forget == "the jit":
                    holder[0].clear_cache()
                elif forget == "everything":
                    jax.clear_caches()
                elif forget == "by replacing":
                    holder[0] = jax.jit(lambda x: scaled(x))

            def f(x):
                before = holder[0](x), holder[0](x)
                if inside:
                    change()
                return before, holder[0](x), holder[0](x)

            if not inside:
                change()
            return observe(make, f, X)

        return trace

    def begin(make: expansion.Maker) -> None:
        state["factor"] = 1.0
        holder[:] = [jax.jit(lambda x: scaled(x))]

    holder: list[Callable[..., Any]] = []
    values = (1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 1.0)
    for inside in (False, True):
        assert_history([begin, *(step(value, inside) for value in values)])


def test_caches_cleared_between_traces() -> None:
    steps = [trace_of(lambda x: (nested(x), jax.nn.gelu(x), jnp.linalg.det(x[:, None] * x)), X)]
    assert_history((steps * ROUNDS + [lambda make: jax.clear_caches()]) * 3)


def test_programs_of_a_jaxpr_are_their_own() -> None:
    """What a reader does to the params of an equation changes no other program."""

    def use(x):
        return jnp.sum(x * 2) + lax.reduce_sum(x, (0,)) + jax.nn.gelu(x)

    with expansion.empty_cache():
        expected = str(jax.make_jaxpr(lambda x: use(x))(X))
        for _ in range(ROUNDS + 1):
            jaxpr = expansion.warm_up(use, X, rounds=1)
            assert str(jaxpr) == expected
            for eqn in jaxpr.eqns:
                if eqn.primitive.name != "jit":
                    eqn.params["changed"] = True


def test_references() -> None:
    def use(x):
        ref = jax.new_ref(x)
        other = jax.new_ref(x * 2)
        ref[...] += 1
        other[0] = ref[1]
        jnp.sin(ref[...])
        return ref[...], other[...], ref[0] + other[1], jax.jit(lambda r: r[...])(ref)

    outer = jax.new_ref(jnp.zeros(3))

    def effectful(x):
        outer[...] = x
        outer[0] += 1
        return outer[...] * 2, jax.jit(lambda v: v + outer[...])(x)

    assert_same_when_warm((use, X), (effectful, X))


def test_strings() -> None:
    """Names are compared by their characters, and surrogates are characters."""
    names = ["a", "b", "ab", "\ud800", "\udfff", "\0", "", "ä", "a" * 20_000, "a" * 20_001]

    def use(name: str) -> Callable[[Any], Any]:
        return lambda x: (of_name(x, name), of_tree({name: x}), jax.named_call(jnp.sin)(x))

    assert_same_when_warm(*((use(name), X) for name in names))


@functools.partial(jax.jit, static_argnums=1)
def of_name(x, name):
    return x * len(name) + sum(map(ord, name[:1]))
