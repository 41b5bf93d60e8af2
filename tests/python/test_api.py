"""The signature of `make_jaxpr`: every option, every kind of callable, and what it returns."""

import functools
import inspect
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxide
import oracle

MAKERS = (jax.make_jaxpr, jaxide.make_jaxpr)


class Call(NamedTuple):
    """A function made anew for each trace, the arguments it is traced with, and the options."""

    function: Callable[[], Callable]
    args: tuple = ()
    kwargs: Mapping[str, Any] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})


class Pair(NamedTuple):
    a: Any
    b: Any


def assert_same_program(call: Call) -> tuple[Any, Any]:
    """Traces with both makers; returns both results after comparing the programs."""
    traces = []
    for make in MAKERS:
        jax.clear_caches()
        function = call.function()
        result = make(function, **call.options)(*call.args, **call.kwargs)
        traces.append(oracle.Traced(result, function))
    stock, ours = traces
    assert oracle.texts(ours.jaxpr) == oracle.texts(stock.jaxpr)
    oracle.assert_same_description(stock, ours)
    return stock.result, ours.result


# ---- the signature itself ---------------------------------------------------------------------


def test_signature() -> None:
    parameters = inspect.signature(jaxide.make_jaxpr).parameters
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    keyword = [p for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert [(p.name, p.default) for p in positional] == [
        ("fun", inspect.Parameter.empty),
        ("static_argnums", ()),
        ("axis_env", None),
        ("return_shape", False),
    ]
    assert [(p.name, p.default) for p in keyword] == [
        ("static_argnames", ()),
        ("abstracted_axes", None),
    ]
    stock = [p.name for p in inspect.signature(jax.make_jaxpr).parameters.values()]
    assert [p.name for p in positional] == stock


def test_trace_takes_the_same_options() -> None:
    names = list(inspect.signature(jaxide.make_jaxpr).parameters)
    names.remove("return_shape")
    assert list(inspect.signature(jaxide.trace).parameters) == names


def test_version() -> None:
    assert jaxide.__version__.split(".")[0].isdigit()


def test_documentation() -> None:
    for public in (jaxide.make_jaxpr, jaxide.trace, jaxide.from_jaxpr, jaxide.Program):
        assert inspect.getdoc(public)


@pytest.mark.parametrize("positional", [(1,), (1, None), (1, None, False)])
def test_options_by_position(positional: tuple) -> None:
    def f(x, n):
        return x * n

    assert str(jaxide.make_jaxpr(f, *positional)(1.0, 2)) == str(
        jax.make_jaxpr(f, *positional)(1.0, 2)
    )


def test_as_a_decorator() -> None:
    @jaxide.make_jaxpr
    def f(x):
        return jnp.sin(x)

    assert str(f(1.0)) == str(jax.make_jaxpr(f.__wrapped__)(1.0))


# ---- options ----------------------------------------------------------------------------------


def scale(x, n, *, shift=0.0):
    return x * n + shift


def power(n, x):
    return x**n


def total(*xs, **named):
    return sum(x for x in xs if not isinstance(x, str)) + sum(named.values())


def defaults(x, mode="fast", steps=3):
    for _ in range(steps):
        x = jnp.sin(x) if mode == "fast" else jnp.cos(x)
    return x


def rank(x):
    return lax.psum(x, "i") / lax.axis_size("j") + lax.axis_index("i")


STATIC_AND_AXES = {
    "one": Call(lambda: lambda x, n: scale(x, n), (1.0, 3), {}, {"static_argnums": 1}),
    "first": Call(lambda: lambda n, x: power(n, x), (3, 1.0), {}, {"static_argnums": 0}),
    "tuple": Call(lambda: lambda n, x: power(n, x), (3, 1.0), {}, {"static_argnums": (0,)}),
    "list": Call(lambda: lambda n, x: power(n, x), (3, 1.0), {}, {"static_argnums": [0]}),
    "negative": Call(lambda: lambda x, n: scale(x, n), (1.0, 3), {}, {"static_argnums": -1}),
    "all": Call(lambda: lambda x, n: scale(x, n), (1.0, 3), {}, {"static_argnums": (0, 1)}),
    "both_signs": Call(lambda: lambda x, n: scale(x, n), (1.0, 3), {}, {"static_argnums": (1, -1)}),
    "empty_list": Call(lambda: lambda x, n: scale(x, n), (1.0, 3), {}, {"static_argnums": []}),
    "none": Call(lambda: lambda x, n: scale(x, n), (1.0, 3), {}, {"static_argnums": None}),
    "varargs": Call(lambda: lambda *xs: total(*xs), (1.0, "text", 2.0), {}, {"static_argnums": 1}),
    "default_not_given": Call(
        lambda: functools.partial(defaults), (1.0,), {}, {"static_argnums": (1, 2)}
    ),
    "default_given": Call(
        lambda: functools.partial(defaults), (1.0, "slow", 2), {}, {"static_argnums": (1, 2)}
    ),
    "static_given_by_name": Call(
        lambda: lambda x, n: x * n, (1.0,), {"n": 3}, {"static_argnums": 1}
    ),
    "static_function": Call(lambda: lambda f, x: f(x), (jnp.sin, 1.0), {}, {"static_argnums": 0}),
    "static_none": Call(
        lambda: lambda x, y: x if y is None else y, (1.0, None), {}, {"static_argnums": 1}
    ),
    "static_tuple": Call(
        lambda: lambda x, s: x.reshape(s), (np.ones(4), (2, 2)), {}, {"static_argnums": 1}
    ),
    "numpy_integer": Call(
        lambda: lambda x, n: scale(x, n), (1.0, 3), {}, {"static_argnums": np.int64(1)}
    ),
    "axis_env": Call(lambda: lambda x: rank(x), (1.0,), {}, {"axis_env": [("i", 4), ("j", 2)]}),
    "axis_env_tuple": Call(
        lambda: lambda x: rank(x), (1.0,), {}, {"axis_env": (("j", 2), ("i", 4))}
    ),
    "axis_env_empty": Call(lambda: lambda x: x, (1.0,), {}, {"axis_env": []}),
    "axis_env_shadowed": Call(
        lambda: jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i"),
        (np.ones(3),),
        {},
        {"axis_env": [("i", 8)]},
    ),
    "all_options": Call(
        lambda: lambda x, n, *, shift: lax.psum(x, "i") * n + shift,
        (1.0, 2),
        {"shift": 3},
        {"static_argnums": 1, "axis_env": [("i", 2)], "return_shape": True},
    ),
}

ARGUMENTS = {
    "keyword": Call(lambda: lambda x, *, shift: scale(x, 2, shift=shift), (1.0,), {"shift": 2.0}),
    "only_keywords": Call(lambda: lambda *, b, a: a - b, (), {"b": 1.0, "a": 2.0}),
    "keyword_order": Call(lambda: lambda **named: named, (), {"z": 1.0, "a": 2, "m": True}),
    "positional_as_keyword": Call(lambda: lambda x, y: x - y, (), {"y": 1.0, "x": 2.0}),
    "tree_keyword": Call(
        lambda: lambda *, params: params["w"] @ params["b"][0],
        (),
        {"params": {"w": np.ones((2, 3)), "b": (np.ones(3), None)}},
    ),
    "nothing": Call(lambda: lambda: 1.0),
    "nothing_at_all": Call(lambda: lambda: None),
    "varargs": Call(lambda: lambda *xs, **named: total(*xs, **named), (1.0, 2), {"a": 3.0}),
    "positional_only": Call(lambda: lambda x, /, y: x + y, (1.0, 2.0)),
    "shape_struct": Call(
        lambda: lambda x: jnp.sin(x), (jax.ShapeDtypeStruct((2, 3), jnp.bfloat16),)
    ),
    "weak_shape_struct": Call(
        lambda: lambda x: x * np.float16(2),
        (jax.ShapeDtypeStruct((2,), jnp.float32, weak_type=True),),
    ),
    "python_scalars": Call(lambda: lambda *xs: xs, (True, 1, 1.0, 1j)),
    "numpy_scalars": Call(lambda: lambda *xs: xs, (np.int8(1), np.float16(2), np.bool_(True))),
    "numpy_64_bits": Call(lambda: lambda x, y: x + y, (np.float64(1), np.arange(3))),
    "jax_arrays": Call(lambda: lambda x, y: x + y, (jnp.ones(3), jnp.bfloat16(2))),
    "key": Call(lambda: lambda k: jax.random.split(k), (jax.random.key(0),)),
    "none_and_empty": Call(lambda: lambda *xs: xs, (None, (), {}, [], 1.0)),
    "named_tuple": Call(lambda: lambda p: p.a, (Pair((1.0,), {"w": 2.0}),)),
}


@pytest.mark.parametrize("call", [pytest.param(c, id=n) for n, c in STATIC_AND_AXES.items()])
def test_options(call: Call) -> None:
    assert_same_program(call)


@pytest.mark.parametrize("call", [pytest.param(c, id=n) for n, c in ARGUMENTS.items()])
def test_arguments(call: Call) -> None:
    assert_same_program(call)


@pytest.mark.parametrize("call", [pytest.param(c, id=n) for n, c in ARGUMENTS.items()])
def test_return_shape(call: Call) -> None:
    stock, ours = assert_same_program(call._replace(options={"return_shape": True}))
    assert isinstance(ours, tuple)
    assert repr(ours[1]) == repr(stock[1])
    assert jax.tree.structure(ours[1]) == jax.tree.structure(stock[1])


def test_result_is_a_closed_jaxpr() -> None:
    result = jaxide.make_jaxpr(lambda x: jnp.sin(x))(1.0)
    assert isinstance(result, jax.extend.core.ClosedJaxpr)
    assert jax.extend.core.jaxpr_as_fun(result)(1.0) == [jnp.sin(1.0)]
    inlined = jax.make_jaxpr(jax.extend.core.jaxpr_as_fun(result))(1.0)
    assert str(inlined) == str(jaxide.make_jaxpr(jax.extend.core.jaxpr_as_fun(result))(1.0))


@pytest.mark.parametrize(
    "transform", [jax.jit, jax.grad, jax.vmap, jax.jacfwd, jax.checkpoint, jax.linearize]
)
def test_result_is_accepted_by_transformations(transform: Callable) -> None:
    def text(make: Callable) -> str:
        jaxpr = make(lambda x: jnp.sin(x) * jnp.cumsum(jnp.ones(3))[2])(1.0)

        def evaluate(x):
            return jax.extend.core.jaxpr_as_fun(jaxpr)(x)[0]

        if transform is jax.linearize:
            return str(jax.make_jaxpr(lambda x: jax.linearize(evaluate, x)[0])(1.0))
        x = jnp.ones(2) if transform is jax.vmap else 1.0
        return str(jax.make_jaxpr(transform(evaluate))(x))

    assert text(jaxide.make_jaxpr) == text(jax.make_jaxpr)


# ---- how often the function runs --------------------------------------------------------------


def test_function_runs_as_often_as_with_stock() -> None:
    """Stock traces a function object once for each signature, until caches are cleared."""

    def history(make: Callable) -> list[tuple[int, bool]]:
        runs = []

        def f(x, n=1):
            runs.append(n)
            return x * n

        jax.clear_caches()
        traced, again = make(f), make(f)
        first = traced(1.0)
        steps = []
        for call in (
            lambda: traced(1.0),
            lambda: traced(2.0),
            lambda: again(1.0),
            lambda: traced(jnp.ones(3)),
            lambda: traced(1),
            lambda: traced(1.0, 2),
            lambda: traced(1.0, n=2),
            lambda: traced(1.0),
            lambda: jax.clear_caches() or traced(1.0),
            lambda: jax.jit(f)(1.0) and traced(1.0),
        ):
            result = call()
            steps.append((len(runs), result is first))
        return steps

    assert history(jaxide.make_jaxpr) == history(jax.make_jaxpr)


@pytest.mark.parametrize("order", [MAKERS, MAKERS[::-1]], ids=["stock_first", "jaxide_first"])
def test_same_function_object_with_both(order: tuple[Callable, Callable]) -> None:
    """Neither maker hands the other a program that only it could have made."""
    inner = jax.jit(lambda x: jnp.sin(x) * 2)

    def f(x):
        return jax.vmap(inner)(x) + jax.grad(inner)(x[0])

    first, second = (make(f)(jnp.ones(3)) for make in order)
    assert str(first) == str(second)
    jax.clear_caches()
    assert str(order[1](f)(jnp.ones(3))) == str(second)


# ---- metadata and kinds of callable -----------------------------------------------------------


class Model:
    """A model with parameters."""

    def __init__(self, w: float = 2.0):
        self.w = w

    def __call__(self, x):
        return x * self.w

    def forward(self, x, n=1):
        """Runs the model."""
        return self(x) * n

    @classmethod
    def build(cls, x):
        return cls(3.0)(x)

    @staticmethod
    def activation(x):
        return jnp.tanh(x)


class UnhashableModel(Model):
    __hash__ = None


class SlottedModel:
    """Cannot be referenced weakly."""

    __slots__ = ("w",)

    def __init__(self):
        self.w = 2.0

    def __call__(self, x):
        return jnp.cos(x) * self.w


def documented(x: jax.Array, n: int = 1) -> jax.Array:
    """Multiplies."""
    return x * n


documented.label = "an attribute"


@functools.wraps(documented)
def wrapped(*args, **kwargs):
    return documented(*args, **kwargs)


def with_jvp(function: Callable) -> Callable:
    function = jax.custom_jvp(function)
    function.defjvp(lambda primals, tangents: (function(*primals), tangents[0]))
    return function


def with_vjp(function: Callable) -> Callable:
    function = jax.custom_vjp(function)
    function.defvjp(lambda x: (function(x), None), lambda _, ct: (ct,))
    return function


CALLABLES: dict[str, Callable[[], Callable]] = {
    "function": lambda: documented,
    "lambda": lambda: lambda x: x,
    "wrapped": lambda: wrapped,
    "partial": lambda: functools.partial(documented, n=2),
    "partial_positional": lambda: functools.partial(operator.mul, 2.0),
    "partial_of_partial": lambda: functools.partial(functools.partial(documented, n=2)),
    "tree_partial": lambda: jax.tree_util.Partial(documented, n=2),
    "instance": lambda: Model(),
    "unhashable_instance": lambda: UnhashableModel(),
    "slotted_instance": lambda: SlottedModel(),
    "bound_method": lambda: Model().forward,
    "unhashable_bound_method": lambda: UnhashableModel().forward,
    "class_method": lambda: Model.build,
    "static_method": lambda: Model.activation,
    "builtin": lambda: abs,
    "builtin_operator": lambda: operator.neg,
    "method_of_builtin": lambda: (2.0).__mul__,
    "type": lambda: jnp.float32,
    "jitted": lambda: jax.jit(documented),
    "jnp_function": lambda: jnp.sin,
    "jnp_ufunc": lambda: jnp.negative,
    "lax_function": lambda: lax.exp,
    "grad": lambda: jax.grad(documented),
    "vmap": lambda: jax.vmap(documented),
    "checkpoint": lambda: jax.checkpoint(documented),
    "custom_jvp": lambda: with_jvp(documented),
    "custom_vjp": lambda: with_vjp(documented),
    "itemgetter": lambda: operator.itemgetter(0),
    "cached": lambda: functools.lru_cache(documented),
    "single_dispatch": lambda: functools.singledispatch(documented),
    "vectorized": lambda: jnp.vectorize(documented),
    "numpy_frompyfunc": lambda: jnp.frompyfunc(lambda x, y: x + y, 2, 1).reduce,
}

# These hash their argument, or do not take a traced one, so only their metadata counts.
NOT_TRACEABLE = {"cached", "method_of_builtin"}


@pytest.mark.parametrize("name", CALLABLES)
def test_metadata(name: str) -> None:
    fun = CALLABLES[name]()
    # From Python 3.14 on, a class has them among its attributes once they were read.
    getattr(fun, "__annotations__", None)
    stock, ours = (make(fun) for make in MAKERS)
    assert vars(ours).keys() == vars(stock).keys()
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
        assert getattr(ours, attribute, None) == getattr(stock, attribute, None), attribute
    # Unhashable and weakly unreferenceable callables are wrapped in a new partial each time.
    assert type(getattr(ours, "__wrapped__", None)) is type(getattr(stock, "__wrapped__", None))
    if stock.__wrapped__ is fun:
        assert ours.__wrapped__ is fun
    try:
        signature = inspect.signature(stock)
    except (TypeError, ValueError):
        with pytest.raises((TypeError, ValueError)):
            inspect.signature(ours)
    else:
        assert inspect.signature(ours) == signature


@pytest.mark.parametrize("name", sorted(CALLABLES.keys() - NOT_TRACEABLE))
def test_callables(name: str) -> None:
    scalar = name not in ("vmap", "itemgetter", "numpy_frompyfunc")
    assert_same_program(Call(CALLABLES[name], (1.0 if scalar else jnp.ones(3),)))


# ---- static_argnames --------------------------------------------------------------------------


def jit_text(function: Callable, args: tuple, kwargs: dict, options: dict) -> str:
    jax.clear_caches()
    return str(jax.jit(function, **options).trace(*args, **kwargs).jaxpr)


@pytest.mark.parametrize(
    ("args", "kwargs", "options"),
    [
        ((1.0,), {"n": 3}, {"static_argnames": "n"}),
        ((1.0,), {"n": 3}, {"static_argnames": ("n",)}),
        ((1.0,), {"n": 3}, {"static_argnames": ["n"]}),
        ((1.0,), {"n": 3, "mode": "double"}, {"static_argnames": ("n", "mode")}),
        ((1.0,), {"mode": "double", "n": 3}, {"static_argnames": ("mode",)}),
        ((1.0, 3), {}, {"static_argnames": "n"}),
        ((1.0, 3), {"mode": "double"}, {"static_argnames": ("mode", "n")}),
        ((1.0, 3), {"mode": "double"}, {"static_argnames": "mode", "static_argnums": 1}),
        ((1.0, 3), {"mode": "double"}, {"static_argnames": ["mode"], "static_argnums": (1,)}),
        ((1.0, 3), {"mode": "double"}, {"static_argnames": "mode", "static_argnums": (-1,)}),
        ((1.0,), {"n": 3}, {"static_argnames": "n", "static_argnums": 1}),
        ((1.0,), {}, {"static_argnames": "mode"}),
        ((1.0,), {"n": 2.0}, {"static_argnames": ("mode",)}),
    ],
)
def test_static_argnames(args: tuple, kwargs: dict, options: dict) -> None:
    def f(x, n=2, *, mode="single"):
        x = x * n
        return x + x if mode == "double" else x

    ours = str(jaxide.make_jaxpr(f, **options)(*args, **kwargs))
    assert ours == jit_text(f, args, kwargs, options)
    assert str(jaxide.trace(f, **options)(*args, **kwargs)) == ours


def test_static_argnames_give_python_values() -> None:
    seen = []

    def f(x, *, axis, labels):
        seen.append((axis, labels))
        return jnp.sum(x, axis)

    make = jaxide.make_jaxpr(f, static_argnames=("axis", "labels"))
    make(jnp.ones((2, 3)), axis=1, labels=("a", "b"))
    assert seen == [(1, ("a", "b"))]


@pytest.mark.parametrize(
    ("options", "kwargs"),
    [
        ({"static_argnames": "no_such_name"}, {"n": 3}),
        ({"static_argnames": ("n", "no_such_name")}, {"n": 3}),
        ({"static_argnames": 3}, {"n": 3}),
        ({"static_argnames": ("n", 3)}, {"n": 3}),
        ({"static_argnames": "n"}, {"n": [3]}),
        ({"static_argnames": "n", "static_argnums": 7}, {"n": 3}),
    ],
)
def test_static_argnames_errors(options: dict, kwargs: dict) -> None:
    def f(x, n):
        return x * n

    def raised(run: Callable) -> BaseException:
        with pytest.raises((TypeError, ValueError)) as caught:
            run()
        return caught.value

    expected = raised(lambda: jax.jit(f, **options).trace(1.0, **kwargs))
    ours = raised(lambda: jaxide.make_jaxpr(f, **options)(1.0, **kwargs))
    assert (type(ours), str(ours)) == (type(expected), str(expected))


# ---- abstracted_axes --------------------------------------------------------------------------


# Dimensions of one scope, in which the same name is the same dimension.
B, K, LONG, M, N, T = jax.export.symbolic_shape("b, k, batch_size_2, m, n, t")


def symbolic(*shape: Any, dtype: Any = jnp.float32, **options: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, **options)


def f32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


ABSTRACTED: dict[str, tuple[Callable, tuple, Any, list]] = {
    # name: function, arguments, abstracted_axes, the arguments stock jax is given instead
    "one_axis": (lambda x: jnp.sin(x), (f32(3),), ("n",), [symbolic(N)]),
    "two_axes": (lambda x: x.T, (f32(3, 4),), ("n", "m"), [symbolic(N, M)]),
    "square": (lambda x: x @ x, (f32(3, 3),), ("n", "n"), [symbolic(N, N)]),
    "one_of_two": (lambda x: x + 1, (f32(3, 4),), (None, "m"), [symbolic(3, M)]),
    "dictionary": (lambda x: x.sum(0), (f32(3, 4),), {0: "n"}, [symbolic(N, 4)]),
    "dictionary_of_both": (lambda x: x.T, (f32(3, 4),), {1: "m", 0: "n"}, [symbolic(N, M)]),
    "dictionary_for_one": (lambda x: x * 2, (f32(3, 4),), ({1: "m"},), [symbolic(3, M)]),
    "per_argument": (
        lambda x, w: x @ w,
        (f32(8, 3), f32(3, 4)),
        ({0: "b"}, None),
        [symbolic(B, 3), symbolic(3, 4)],
    ),
    "per_argument_tuples": (
        lambda x, w: x @ w,
        (f32(8, 3), f32(3, 4)),
        (("b", "n"), ("n", "m")),
        [symbolic(B, N), symbolic(N, M)],
    ),
    "empty_leaf": (
        lambda x, y: x.sum() + y,
        (f32(8), f32(3)),
        (("b",), ()),
        [symbolic(B), symbolic(3)],
    ),
    "broadcast_to_all": (lambda x, y: x + y, (f32(3), f32(3)), ("n",), [symbolic(N), symbolic(N)]),
    "broadcast_dictionary": (
        lambda x, y: x[:, 0] + y,
        (f32(3, 2), f32(3)),
        {0: "n"},
        [symbolic(N, 2), symbolic(N)],
    ),
    "prefix_of_a_tree": (
        lambda p, x: p["w"] @ x + p["b"],
        ({"w": f32(3, 4), "b": f32(3)}, f32(4)),
        ({0: "n"}, None),
        [{"w": symbolic(N, 4), "b": symbolic(N)}, f32(4)],
    ),
    "tree": (
        lambda p: p["w"].sum(0) * p["b"][0],
        ({"w": f32(3, 4), "b": [f32(4)]},),
        ({"w": ("n", "m"), "b": [("m",)]},),
        [{"w": symbolic(N, M), "b": [symbolic(M)]}],
    ),
    "named_tuple": (
        lambda p, s: p.a + p.b * s,
        (Pair(f32(3), f32(3)), 2.0),
        (Pair(("n",), {0: "n"}), None),
        [Pair(symbolic(N), symbolic(N)), 2.0],
    ),
    "nothing_named": (lambda x: x + 1, (f32(3),), (None,), [f32(3)]),
    "nothing_at_all": (lambda x: x + 1, (f32(3),), (), [f32(3)]),
    "grad": (
        jax.grad(lambda w, x: jnp.tanh(x @ w).mean()),
        (f32(3, 4), f32(8, 3)),
        (None, {0: "b"}),
        [symbolic(3, 4), symbolic(B, 3)],
    ),
    "scan": (
        lambda xs: lax.scan(lambda c, x: (c + x, x * 2), f32(), xs),
        (f32(5),),
        ("t",),
        [symbolic(T)],
    ),
    "nested_jit": (jax.jit(lambda x: jnp.exp(x).mean()), (f32(5),), ("n",), [symbolic(N)]),
    "reshape": (lambda x: x.reshape(-1), (f32(3, 4),), ("n", "m"), [symbolic(N, M)]),
    "shape_in_arithmetic": (
        lambda x: x / x.shape[0] + jnp.arange(x.shape[0]),
        (f32(3),),
        ("n",),
        [symbolic(N)],
    ),
    "long_name": (lambda x: x, (f32(3),), ("batch_size_2",), [symbolic(LONG)]),
    "shape_struct": (
        lambda x: x * 2,
        (jax.ShapeDtypeStruct((3,), jnp.float32),),
        ("n",),
        [symbolic(N)],
    ),
    "bfloat16": (
        lambda x: x * 2,
        (jnp.ones(3, jnp.bfloat16),),
        ("n",),
        [symbolic(N, dtype=jnp.bfloat16)],
    ),
    "weak_type": (
        lambda x: x * np.float16(2),
        (jax.ShapeDtypeStruct((3,), jnp.float32, weak_type=True),),
        ("n",),
        [symbolic(N, weak_type=True)],
    ),
    "scalar_beside": (lambda x, s: x * s, (f32(3), 2.0), (("n",), None), [symbolic(N), 2.0]),
}


@pytest.mark.parametrize("name", ABSTRACTED)
def test_abstracted_axes(name: str) -> None:
    function, args, axes, symbolic_args = ABSTRACTED[name]
    expected = jax.make_jaxpr(lambda *a: function(*a), return_shape=True)(*symbolic_args)
    ours = jaxide.make_jaxpr(lambda *a: function(*a), return_shape=True, abstracted_axes=axes)(
        *args
    )
    assert str(ours[0]) == str(expected[0])
    assert repr(ours[1]) == repr(expected[1])
    assert [str(a) for a in ours[0].in_avals] == [str(a) for a in expected[0].in_avals]
    assert [a.weak_type for a in ours[0].in_avals] == [a.weak_type for a in expected[0].in_avals]
    program = jaxide.trace(lambda *a: function(*a), abstracted_axes=axes)(*args)
    assert str(program) == str(expected[0])


def test_abstracted_axes_share_one_scope() -> None:
    jaxpr = jaxide.make_jaxpr(lambda x, y: (x, y), abstracted_axes=("n",))(f32(3), f32(3))
    (x,), (y,) = (aval.shape for aval in jaxpr.in_avals)
    assert x == y
    assert x.scope is y.scope


def test_abstracted_axes_with_static_arguments() -> None:
    """A static argument has no axes, and its place in the prefix holds None."""
    x = symbolic(N)
    for axes in (("n",), {0: "n"}, (("n",), None), ({0: "n"}, ())):
        ours = jaxide.make_jaxpr(lambda x, k: x**k, static_argnums=1, abstracted_axes=axes)
        expected = jax.make_jaxpr(lambda x, k: x**k, static_argnums=1)
        assert str(ours(f32(3), 2)) == str(expected(x, 2))
    ours = jaxide.make_jaxpr(lambda x, *, k: x**k, static_argnames="k", abstracted_axes=("n",))
    assert str(ours(f32(3), k=2)) == str(jax.make_jaxpr(lambda x: x**2)(x))


def test_abstracted_axes_with_axis_env() -> None:
    x = symbolic(N)
    options = {"axis_env": [("i", 2)]}
    ours = jaxide.make_jaxpr(lambda x: lax.psum(x, "i"), abstracted_axes=("n",), **options)
    assert str(ours(f32(3))) == str(jax.make_jaxpr(lambda x: lax.psum(x, "i"), **options)(x))


def test_abstracted_axes_do_not_depend_on_the_sizes() -> None:
    make = jaxide.make_jaxpr(lambda x: jnp.cumsum(x) / x.shape[0], abstracted_axes=("n",))
    assert str(make(f32(3))) == str(make(f32(7))) == str(make(f32(1)))


def test_error_inside_a_symbolic_trace() -> None:
    """What the function does with a symbolic dimension fails as in stock."""

    def raised(run: Callable) -> BaseException:
        with pytest.raises(Exception) as caught:
            run()
        return caught.value

    def f(x):
        return x if x.shape[0] > 4 else -x

    ours = raised(lambda: jaxide.make_jaxpr(f, abstracted_axes=("n",))(f32(3)))
    expected = raised(lambda: jax.make_jaxpr(f)(symbolic(N)))
    assert (type(ours), str(ours)) == (type(expected), str(expected))


def named(first, second):
    return first, second


@pytest.mark.parametrize(
    ("axes", "args", "mentions"),
    [
        # The same name for different sizes.
        ((("n",), ("n",)), (f32(3), f32(4)), ["second", "n", "3", "4"]),
        (("n",), (f32(3), f32(4)), ["second", "n", "3", "4"]),
        (({0: "n"}, {1: "n"}), (f32(3), f32(2, 5)), ["second", "n", "3", "5"]),
        ((("n", "n"), None), (f32(3, 4), f32()), ["first", "n", "3", "4"]),
        (({"w": ("k",)}, ("k",)), ({"w": f32(3)}, f32(9)), ["second", "k", "3", "9"]),
        # The wrong rank.
        ((("n", "m"), None), (f32(3), f32()), ["first"]),
        ((None, ("n",)), (f32(3), f32(2, 2)), ["second"]),
        ((None, {2: "n"}), (f32(3), f32(2, 2)), ["second"]),
        # The wrong structure.
        ((None, {"w": ("n",)}), (f32(3), {"b": f32(3)}), ["second"]),
        ((None, [("n",), ("n",)]), (f32(3), [f32(3)]), ["second"]),
        # Not a name.
        ((None, (3,)), (f32(3), f32(3)), ["second", "3"]),
        ((None, {0: 3.5}), (f32(3), f32(3)), ["second", "3.5"]),
        ((None, ("1n",)), (f32(3), f32(3)), ["second", "1n"]),
        ((None, ("n m",)), (f32(3), f32(3)), ["second", "n m"]),
        ((None, ("n+1",)), (f32(3), f32(3)), ["second", "n+1"]),
        ((None, ("",)), (f32(3), f32(3)), ["second"]),
    ],
)
def test_abstracted_axes_errors(axes: Any, args: tuple, mentions: list[str]) -> None:
    for make in (jaxide.make_jaxpr, jaxide.trace):
        with pytest.raises((TypeError, ValueError)) as caught:
            make(named, abstracted_axes=axes)(*args)
        assert all(text in str(caught.value) for text in mentions), str(caught.value)


def test_same_name_for_two_sizes_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="second"):
        jaxide.make_jaxpr(named, abstracted_axes=("n",))(f32(3), f32(4))


def test_too_few_or_many_entries() -> None:
    for axes in (({0: "n"},), ({0: "n"}, None, None)):
        with pytest.raises((TypeError, ValueError)):
            jaxide.make_jaxpr(named, abstracted_axes=axes)(f32(3), f32(3))
