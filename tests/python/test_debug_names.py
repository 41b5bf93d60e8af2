"""Names of arguments and results: those that jax makes, character for character."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxide
from jaxide._compat import hooks
from jaxide._compat.symbols import symbol

Pair = namedtuple("Pair", "first second")


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: Any
    b: Any


@jax.tree_util.register_pytree_node_class
class Unnamed:
    """A tree without keys: its parts have flat indices."""

    def __init__(self, *parts: Any):
        self.parts = parts

    def tree_flatten(self) -> tuple[Any, None]:
        return self.parts, None

    @classmethod
    def tree_unflatten(cls, _: None, parts: Any) -> Unnamed:
        return cls(*parts)


class Odd:
    """A key that spells itself as it likes."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __lt__(self, other: Odd) -> bool:
        return self.text < other.text


TREES = [
    {"w": 1.0, "it's": 2.0, 'say "no"': 3.0, "back\\slash": 4.0, "new\nline": 5.0, "": 6.0},
    {"é": 1.0, "\u2028": 2.0, "\ud800": 3.0, "\x7f": 4.0, "\U0001f600": 5.0},
    {1: 1.0, -5: 2.0, 2**70: 3.0},
    {True: 1.0, False: 2.0},
    {(1, "a"): 1.0, (2, "b"): 2.0},
    {1.5: 1.0, float("nan"): 2.0},
    {Odd("x]["): 1.0, Odd("<flat index 3>"): 2.0},
    {"<flat index 3>": 1.0, "<flat index": 2.0},
    [1.0, (2.0, [3.0, {"a": 4.0}])],
    Pair(1.0, Layer(2.0, [3.0])),
    Unnamed(1.0, Unnamed(2.0, {"k": 3.0})),
    [{"<flat index 1>": Unnamed(1.0)}],
    1.0,
    [],
    None,
]


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_paths(tree: Any) -> None:
    names = hooks.path_names()
    assert names is not None
    clean = symbol("linear_util:_clean_keystr_arg_names")
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    stock = [clean(path) for path, _ in leaves]
    assert [names(path) for path, _ in leaves] == stock
    for prefix in ("result", "", "\ud800", "<flat index "):
        expected = tuple(prefix + name for name in stock)
        assert names.of_leaves(prefix, leaves) == expected
        assert names.after(prefix, [path for path, _ in leaves]) == expected


class Failing:
    def __repr__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize("key", [Odd("\ud800"), Failing()], ids=["surrogate", "error"])
def test_keys_that_cannot_be_spelled(key: Any) -> None:
    """jax fails, and so does jaxide, in the same way."""
    names, path = hooks.path_names(), (jax.tree_util.DictKey(key),)
    assert names is not None
    errors = []
    for clean in (symbol("linear_util:_clean_keystr_arg_names"), names):
        with pytest.raises(Exception) as caught:
            clean(path)
        errors.append((caught.type, str(caught.value)))
    assert errors[0] == errors[1]


KEYS = st.one_of(st.text(max_size=6), st.integers(), st.tuples(st.integers(), st.text(max_size=2)))


@given(st.lists(KEYS, max_size=4))
def test_any_keys(keys: list[Any]) -> None:
    names = hooks.path_names()
    assert names is not None
    path = tuple(jax.tree_util.DictKey(key) for key in keys)
    assert names(path) == symbol("linear_util:_clean_keystr_arg_names")(path)


def plain(a: Any, b: Any = 1.0, *rest: Any, c: Any = 2.0, **more: Any) -> Any:
    return a


def positional(a: Any, b: Any, /, c: Any = 1.0) -> Any:
    return a


class Model:
    def method(self, x: Any, *, scale: Any = 1.0) -> Any:
        return x

    def __call__(self, x: Any) -> Any:
        return x


CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (plain, (1.0,), {}),
    (plain, ({"w": 1.0}, [2.0], 3.0, 4.0), {"d": 5.0, "c": {"x": 6.0}, "a_": 7.0}),
    (plain, (), {"b": 1.0, "a": 2.0}),
    (plain, (), {"b": 1.0}),
    (plain, (1.0,), {"a": 2.0}),
    (plain, (1.0,), {"\ud800": 2.0, "with space": 3.0}),
    (positional, (1.0, 2.0), {"c": 3.0}),
    (positional, (1.0,), {"b": 3.0}),
    (functools.partial(plain, 1.0), (2.0,), {"c": 3.0}),
    (functools.partial(plain, c=1.0), (2.0,), {}),
    (Model().method, ([1.0, 2.0],), {"scale": 3.0}),
    (Model(), ((1.0, 2.0),), {}),
    (lambda *xs, **ys: xs, (1.0, 2.0), {"z": 1.0, "y": 2.0}),
    (max, (1.0, 2.0), {}),
]


@pytest.mark.parametrize(("function", "args", "kwargs"), CALLS, ids=range(len(CALLS)))
def test_arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    names = hooks.argument_names()
    assert names is not None
    signature = symbol("api_util:fun_signature")(function)
    stock = symbol("api_util:_non_static_arg_names")(signature, args, kwargs, (), ())
    assert names(signature, args, kwargs) == stock


def signatures() -> dict[str, Callable[..., Any]]:
    def captured(a: Any, b: Any) -> Any:
        return lambda: (a, b)

    def documented(a: Any) -> Any: ...

    documented.__signature__ = None  # type: ignore[attr-defined]
    consts = (lambda: (x for x in ())).__code__.co_consts
    of_generator = next(const for const in consts if isinstance(const, types.CodeType))
    wrapped = functools.wraps(lambda first, second: None)(lambda *args: None)
    return {
        "plain": lambda a, b: (a, b),
        "default": lambda a, b=2, c=3: (a, b, c),
        "positional only": eval("lambda a, /, b: (a, b)"),
        "keyword only": lambda a, *, b=1: (a, b),
        "rest": lambda a, *rest: (a, rest),
        "named rest": lambda a, **rest: (a, rest),
        "captured": captured,
        "documented": documented,
        "wrapped": wrapped,
        "partial": functools.partial(captured, 1),
        "generator": types.FunctionType(of_generator, {}),
        "method": Unnamed.tree_flatten,
        "bound": Unnamed(1).tree_flatten,
        "class": Unnamed,
        "builtin": max,
    }


@pytest.mark.parametrize("name", signatures())
def test_any_signature(name: str) -> None:
    own, stock = hooks.argument_names(), symbol("api_util:_non_static_arg_names")
    signature = symbol("api_util:fun_signature")
    assert own is not None
    function = signatures()[name]
    for args in ((), (1,), (1, {"k": 2}), (1, [2, 3], 4), (1, 2, 3, 4)):
        for kwargs in ({}, {"b": 1}, {"c": (1, 2)}):
            expected = stock(signature(function), args, kwargs, (), ())
            assert own.of(function, args, kwargs, signature) == expected


def test_names_of_a_program() -> None:
    def step(params: Any, batch: Any) -> Any:
        return {"new": jax.tree.map(lambda p: p * batch.first, params), "loss": batch.second}

    args = [Layer({"it's": jnp.ones(2)}, [jnp.ones(2)])], Pair(jnp.ones(2), 1.0)
    found = [make(step)(*args).jaxpr.debug_info for make in (jax.make_jaxpr, jaxide.make_jaxpr)]
    assert found[0].arg_names == found[1].arg_names
    assert found[0].result_paths == found[1].result_paths
    assert 'params[0].w["it\'s"]' in found[1].arg_names


def test_trees_that_cannot_be_compared() -> None:
    """A tree that was there before has keys that do not compare with those at hand."""

    def f(q: Any) -> Any:
        return q

    for keys in (np.int32(1), (1, 2)):
        made = [m(f)({keys: 1.0}).jaxpr.debug_info for m in (jax.make_jaxpr, jaxide.make_jaxpr)]
        assert made[0].arg_names == made[1].arg_names


def test_names_that_are_too_few() -> None:
    """jax checks that each argument has a name."""

    def f(a: Any, b: Any, /, c: Any = 1.0, *, e: Any = 2.0, **g: Any) -> Any:
        return a

    errors = []
    for make in (jax.make_jaxpr, jaxide.make_jaxpr):
        with pytest.raises(AssertionError) as caught:
            make(f)(1.0, 2.0, a=3.0)
        errors.append(re.sub(r"0x[0-9a-f]+", "", str(caught.value)))
    assert errors[0] == errors[1]


def test_where_a_traced_function_warns() -> None:
    def mean(x: Any) -> Any:
        return jnp.mean(x, dtype=np.float64(1.0))

    heard = []
    for make in (jax.make_jaxpr, jaxide.make_jaxpr):
        jax.clear_caches()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make(lambda x: mean(x))(jnp.ones(3))
        heard.append([(str(w.message), w.filename, w.lineno) for w in caught])
    assert heard[0] == heard[1]
    assert heard[0]
