"""Tree structures in a stored program, and how they are made again.

A tree is written as rows, children before parents: the kind of a node, what jax keeps of it, and
how many children it has. Nodes of standard containers are known by themselves. Among params nodes
of other classes are there by name only, since what is made of them is called by jax. Of arguments
and results see ``stored_structures``.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from jaxide._compat.symbols import known_symbols, optional_symbol, symbol
from jaxide._native.content import name_of, text_of
from jaxide._native.storage import StorageError, Unstorable

Made = TypeVar("Made")

# How deep trees and values of nodes are nested.
MAX_DEPTH = 500
# Classes of other programs that are not here, in a process.
MAX_MISSING = 4096
_CONTAINERS = {
    class_.__name__: class_
    for class_ in (tuple, list, dict, collections.OrderedDict, collections.defaultdict)
}
_FACTORIES = {class_.__name__: class_ for class_ in (int, float, complex, bool, str, list, dict)}


@functools.cache
def _nodes() -> dict[str, Any]:
    """Classes of jax's that are nodes of trees among params."""
    own = ("state.indexing:NDIndexer", "state.indexing:Slice")
    return {name_of(class_): class_ for class_ in known_symbols(own).values()}


def tree_parts(tree: Any) -> Any:
    """A tree of standard containers in a list, children before parents: kind, data, number of
    children."""
    return rows_of(tree, _unregistered)


def param_tree_parts(tree: Any) -> Any:
    """As ``tree_parts``, nodes of other classes by name; and whether only traces have such
    trees."""
    return _is_of_traces(tree), rows_of(tree, _class_name)


def param_tree_of(parts: Any) -> Any:
    is_of_traces, rows = parts
    path = "tree_util:tracing_registry" if is_of_traces else "tree_util:default_registry"
    return _tree_of(rows, _named_only, optional_symbol(path))


def _is_of_traces(tree: Any) -> bool:
    """Whether a tree is of the registry that traces have (jax 0.12 on)."""
    if optional_symbol("tree_util:tracing_registry") is None:
        return False
    try:
        jax.tree_util.treedef_tuple([tree])
    except ValueError:
        return True
    return False


def _class_name(class_: Any, own: Any, num_children: int) -> Any:
    if issubclass(class_, MissingNode):
        return *class_.place, repr(own)
    return str(class_.__module__), class_.__qualname__, text_of(own)


def _unregistered(class_: Any, own: Any, num_children: int) -> Any:
    raise Unstorable(f"{name_of(class_)} is no standard container")


def rows_of(tree: Any, registration: Callable[[Any, Any, int], Any]) -> Any:
    rows: list[Any] = []
    pending = [(tree, False)]
    while pending:
        tree, is_open = pending.pop()
        data = tree.node_data()
        children = tree.children()
        if children and not is_open:
            pending.append((tree, True))
            pending += [(child, False) for child in reversed(children)]
            continue
        if data is None:
            # A leaf, or `None`, which is a tree without leaves.
            rows.append(("leaf" if tree.num_leaves else "none", None, 0))
            continue
        rows.append(_row(data, len(children), registration))
    return tuple(rows)


def _row(
    data: tuple[Any, Any], num_children: int, registration: Callable[[Any, Any, int], Any]
) -> tuple[Any, ...]:
    class_, own = data
    name = class_.__name__
    if class_ is type(None):
        return "none", None, 0
    if _CONTAINERS.get(name) is class_:
        if name == "defaultdict":
            if own[0] not in (None, *_FACTORIES.values()):
                raise Unstorable(f"a defaultdict of {own[0]} has no form in a file")
            own = own[0] and own[0].__name__, own[1]
        return name, own, num_children
    if _nodes().get(name_of(class_)) is class_:
        return name_of(class_), own, num_children
    return "registered", registration(class_, own, num_children), num_children


def tree_of(parts: Any) -> Any:
    """A tree of standard containers.

    Raises:
      StorageError: it has other nodes.
    """
    return _tree_of(parts, _refused)


def _refused(described: Any, children: Sequence[Any], registry: Any) -> Any:
    raise StorageError("a tree has a node of a class that is none of jax's")


def fold(
    rows: Any, leaf: Callable[[], Made], node: Callable[[str, Any, Sequence[Made]], Made]
) -> Made:
    """What rows come to, from the leaves up. ``None`` is a node without children.

    Raises:
      StorageError: they are those of no tree.
    """
    # What was made, with its depth.
    made: list[tuple[Made, int]] = []
    for name, own, count in rows:
        if type(count) is not int or not 0 <= count <= len(made):
            raise StorageError("a tree has fewer nodes than it says")
        below = made[len(made) - count :]
        depth = 1 + max((depth for _, depth in below), default=0)
        if depth > MAX_DEPTH:
            raise StorageError("a tree is nested too deeply")
        del made[len(made) - count :]
        if name in ("leaf", "none") and count:
            raise StorageError("a leaf of a tree has children")
        value = leaf() if name == "leaf" else node(name, own, [child for child, _ in below])
        made.append((value, depth))
    if len(made) != 1:
        raise StorageError("there are several trees, or none")
    return made[0][0]


class ContainerData(NamedTuple):
    """What a standard container has besides its children."""

    class_: Any
    keys: Sequence[Any] | None
    # What a defaultdict makes a value by.
    factory: Any


def check_plain(
    value: Any, parts: Callable[[Any], Iterable[Any] | None] = lambda value: None
) -> None:
    """Refuses what a node in a file may not have: functions above all, which jax or a user would
    call, and what has functions. ``parts`` says what else consists of values.

    Raises:
      StorageError: it has such a thing.
    """
    pending = [value]
    while pending:
        value = pending.pop()
        if type(value) in (tuple, list, set, frozenset):
            pending += value
        elif type(value) is dict:
            pending += (*value, *value.values())
        elif (within := parts(value)) is not None:
            pending += within
        elif type(value) not in _PLAIN and not isinstance(value, _OF_JAX):
            raise StorageError(f"a node of a tree has a {name_of(type(value))}")


_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(...), np.ndarray)
_OF_JAX = (
    np.generic,
    np.dtype,
    jax.tree_util.PyTreeDef,
    jax.core.AbstractValue,
    jax.sharding.Sharding,
    jax.sharding.PartitionSpec,
    jax.sharding.Mesh,
    jax.sharding.AbstractMesh,
)


def container_data(name: Any, own: Any, count: int) -> ContainerData | None:
    """That of a row; None of one that is for no standard container.

    Raises:
      StorageError: there are not as many keys as children, or the same key is there twice.
    """
    class_ = _CONTAINERS.get(name) if type(name) is str else None
    if class_ is None:
        return None
    factory, keys = own if class_ is collections.defaultdict else (None, own)
    if class_ in (tuple, list):
        if own is not None:
            raise StorageError(f"a {name} of a tree has keys")
        return ContainerData(class_, None, None)
    is_known = factory is None or (type(factory) is str and factory in _FACTORIES)
    if type(keys) not in (tuple, list) or len(keys) != count or not is_known:
        raise StorageError(f"a {name} of a tree has other keys than children")
    check_plain(keys)
    if len(set(keys)) != count:
        raise StorageError(f"a {name} of a tree has a key twice")
    return ContainerData(class_, keys, factory and _FACTORIES[factory])


def own_class(name: Any) -> Any:
    """A class of jax's that nodes of trees are of; None where it has none of this name."""
    return _nodes().get(name) if type(name) is str else None


def _tree_of(
    rows: Any, registered: Callable[[Any, Sequence[Any], Any], Any], registry: Any = None
) -> Any:
    registry = symbol("tree_util:default_registry") if registry is None else registry
    leaf, none = (_node(type_, registry) for type_ in ("leaf", "none"))

    def node(name: str, own: Any, children: Sequence[Any]) -> Any:
        if name == "none":
            return none
        if name == "registered":
            return registered(own, children, registry)
        if (data := container_data(name, own, len(children))) is not None:
            with_factory = data.class_ is collections.defaultdict
            kept = (data.factory, data.keys) if with_factory else data.keys
            return _inner(data.class_, kept, children, registry)
        if (class_ := own_class(name)) is None:
            raise StorageError(f"there are no trees of {name!r}")
        return _inner(class_, own, children, registry)

    return fold(rows, lambda: leaf, node)


def _node(name: str, registry: Any) -> Any:
    """A leaf, or a tree without any."""
    return registry.flatten(0 if name == "leaf" else None)[1]


def _inner(class_: Any, own: Any, children: Sequence[Any], registry: Any) -> Any:
    make = jax.tree_util.PyTreeDef.from_node_data_and_children
    return make(registry, (class_, own), children)


def _named_only(described: Any, children: Sequence[Any], registry: Any) -> Any:
    module, name, text = described
    return _inner(_missing_class(str(module), str(name)), _Text(text), children, registry)


class MissingNode:
    """Stands for a node whose class is not registered here; the class of each has its name."""

    place: tuple[str, str]


def _missing_class(module: str, name: str) -> type[MissingNode]:
    """The class that stands for a class. jax keeps each: beyond so many one stands for all."""
    if _new_missing_class.cache_info().currsize >= MAX_MISSING:
        return _new_missing_class("missing", "Node")
    return _new_missing_class(module, name)


@functools.cache
def _new_missing_class(module: str, name: str) -> type[MissingNode]:
    def refuse(own: Any, children: Any) -> Any:
        raise StorageError(f"a file does not have the class {module}.{name} of a tree's node")

    # A class of a module that jax looks into, or of jaxide's, would be a change of jax.
    own = {"place": (module, name), "__module__": "missing"}
    class_ = type(name.rpartition(".")[2], (MissingNode,), own)
    flatten = lambda node: ((), None)
    jax.tree_util.register_pytree_node(class_, flatten, refuse)
    return class_


class _Text:
    """Prints as what it stands for."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Text) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def is_named_tuple(class_: Any) -> bool:
    """Whether a class is one of named tuples."""
    return isinstance(class_, type) and issubclass(class_, tuple) and hasattr(class_, "_fields")


def fields_of(class_: Any) -> tuple[str, ...] | None:
    """The names of the children of a node, where its class says them."""
    if is_named_tuple(class_):
        return tuple(class_._fields)
    if dataclasses.is_dataclass(class_):
        return tuple(field.name for field in dataclasses.fields(class_))
    return None


def is_plain_tree(tree: Any) -> bool:
    """Whether a tree is made of standard containers."""
    try:
        tree_parts(tree)
    except Unstorable:
        return False
    return True


def missing_classes(tree: Any) -> list[str]:
    """The classes of a tree's nodes that are not registered here."""
    found, pending = set(), [tree]
    while pending:
        node = pending.pop()
        pending += node.children()
        if (data := node.node_data()) is not None and issubclass(data[0], MissingNode):
            found.add(".".join(data[0].place))
    return sorted(found)
