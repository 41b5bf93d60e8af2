"""Pytrees: classes that are registered, later, anew, or otherwise."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from world.world import attribute, item, kind

TREES = "pytree registry"


class Box:
    def __init__(self, a, b):
        self.a, self.b = a, b


@dataclasses.dataclass
class Data:
    a: object
    b: object


def _differences(of):
    """A jit that is given an object; the object stays a leaf or becomes a tree."""
    f = jax.jit(lambda n: n.a * 2 - n.b)
    return lambda x: f(of(x * 2, x * 3))


@kind(TREES)
def namedtuple_registered_later():
    class Two(NamedTuple):
        a: object
        b: object

    def change(on):
        if on and not registered:
            registered.append(1)
            jax.tree_util.register_pytree_node(
                Two, lambda n: ((n.b, n.a), None), lambda _, c: Two(c[1] * 100, c[0])
            )

    registered = []
    return _differences(Two), change


@kind(TREES)
def namedtuple_registered_later_for_a_tree_map():
    class Two(NamedTuple):
        a: object
        b: object

    def change(on):
        if on and not registered:
            registered.append(1)
            jax.tree_util.register_pytree_node(
                Two, lambda n: ((n.b,), n.a), lambda a, c: Two(a, c[0])
            )

    registered = []
    return lambda x: sum(jax.tree.map(jnp.sin, Two(x, x * 2))), change


@kind(TREES)
def class_registered_later():
    class Own(Box):
        pass

    def change(on):
        if on and not registered:
            registered.append(1)
            jax.tree_util.register_pytree_node(
                Own, lambda n: ((n.a, n.b), None), lambda _, c: Own(*c)
            )

    registered = []
    return _differences(Own), change


@kind(TREES)
def class_with_keys_registered_later():
    class Own(Box):
        pass

    def change(on):
        if on and not registered:
            registered.append(1)
            key = jax.tree_util.GetAttrKey
            jax.tree_util.register_pytree_with_keys(
                Own, lambda n: (((key("a"), n.a), (key("b"), n.b)), None), lambda _, c: Own(*c)
            )

    registered = []
    return _differences(Own), change


@kind(TREES)
def dataclass_registered_later():
    @dataclasses.dataclass
    class Own(Data):
        pass

    def change(on):
        if on and not registered:
            registered.append(1)
            jax.tree_util.register_dataclass(Own, ["a", "b"], [])

    registered = []
    return _differences(Own), change


@kind(TREES)
def static_class_registered_later():
    @dataclasses.dataclass(frozen=True)
    class Own:
        gain: float = 2.0

    own = Own()
    f = jax.jit(lambda n, x: x * n.gain)

    def change(on):
        if on and not registered:
            registered.append(1)
            jax.tree_util.register_static(Own)

    registered = []
    return lambda x: f(own, x), change


@kind(TREES)
def flattening_reads_a_list():
    class Own(Box):
        pass

    order = [False]
    jax.tree_util.register_pytree_node(
        Own,
        lambda n: ((n.b, n.a) if order[0] else (n.a, n.b), order[0]),
        lambda reverse, c: Own(*(c[::-1] if reverse else c)),
    )
    return _differences(Own), item(order, 0, True)


@kind(TREES)
def unflattening_reads_a_list():
    class Own(Box):
        pass

    gain = [2.0]
    jax.tree_util.register_pytree_node(
        Own, lambda n: ((n.a, n.b), None), lambda _, c: Own(c[0] * gain[0], c[1])
    )
    return lambda x: jax.tree.map(jnp.sin, Own(x, x * 2)).a, item(gain, 0, 7.0)


@kind(TREES)
def flattening_counts_its_calls():
    class Own(Box):
        pass

    calls, gain = [], [2.0]

    def flatten(n):
        calls.append(1)
        return (n.a, n.b), None

    jax.tree_util.register_pytree_node(Own, flatten, lambda _, c: Own(c[0] * gain[0], c[1]))
    body = lambda x: jax.tree.map(jnp.sin, Own(x, x * 2)).a
    return body, item(gain, 0, 7.0), lambda: len(calls)


@kind(TREES)
def metadata_of_a_tree():
    class Own(Box):
        meta = 2.0

    jax.tree_util.register_pytree_node(
        Own, lambda n: ((n.a, n.b), Own.meta), lambda m, c: Own(c[0] * m, c[1])
    )
    return _differences(Own), attribute(Own, "meta", 7.0)


@kind(TREES)
def equality_of_metadata():
    class Meta:
        gain = 2.0

        def __eq__(self, other):
            return isinstance(other, Meta)

        def __hash__(self):
            return 1

    class Own(Box):
        pass

    meta = Meta()
    jax.tree_util.register_pytree_node(
        Own, lambda n: ((n.a, n.b), meta), lambda m, c: Own(c[0] * m.gain, c[1])
    )
    return lambda x: jax.tree.map(jnp.sin, Own(x, x * 2)).a, attribute(meta, "gain", 7.0)


@kind(TREES)
def tree_as_argument_of_scan():
    class Own(Box):
        pass

    gain = [2.0]
    jax.tree_util.register_pytree_node(
        Own, lambda n: ((n.a, n.b), None), lambda _, c: Own(c[0], c[1] if gain[0] == 2.0 else c[0])
    )

    def f(x):
        out, _ = jax.lax.scan(lambda c, _: (Own(c.b, c.a), None), Own(x, x * 2), None, length=2)
        return out.a

    return f, item(gain, 0, 7.0)


@kind(TREES)
def class_attribute_of_a_tree():
    class Own(Box):
        gain = 2.0

    jax.tree_util.register_pytree_node(Own, lambda n: ((n.a, n.b), None), lambda _, c: Own(*c))
    f = lambda x: jax.jit(lambda n: n.a * n.gain)(Own(x, x))
    return f, attribute(Own, "gain", 7.0)


@kind(TREES)
def flattening_of_a_dataclass_field():
    @dataclasses.dataclass
    class Own:
        a: object
        gain: float

    jax.tree_util.register_dataclass(Own, ["a"], ["gain"])
    gain = [2.0]
    return lambda x: jax.jit(lambda n: n.a * n.gain)(Own(x, gain[0])), item(gain, 0, 7.0)


@kind(TREES)
def key_paths_of_a_tree():
    class Own(Box):
        pass

    names = ["a"]
    key = jax.tree_util.GetAttrKey
    jax.tree_util.register_pytree_with_keys(
        Own,
        lambda n: (((key(names[0]), n.a), (key("b"), n.b)), None),
        lambda _, c: Own(*c),
        lambda n: ((n.a, n.b), None),
    )
    return lambda x: jax.jit(lambda n: n.a + n.b)(Own(x, x * 2)), item(names, 0, "z")
