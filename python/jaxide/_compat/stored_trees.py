"""Tree structures in a stored program, and how they are made again.

Nodes of standard containers are known by themselves. Those of others are known by their
registration, in files: the module and the name of the class, and what jax keeps of a node. Example:
``optax.EmptyState()`` is the class ``EmptyState`` of ``optax._src.base``.
"""

from __future__ import annotations

import collections
import enum
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxide._compat.symbols import known_symbols, symbol
from jaxide._native.content import name_of, text_of
from jaxide._native.global_names import found_global, global_name
from jaxide._native.storage import Kind, StorageError, Unstorable

_CONTAINERS = {
    class_.__name__: class_
    for class_ in (tuple, list, dict, collections.OrderedDict, collections.defaultdict)
}
_FACTORIES = {class_.__name__: class_ for class_ in (int, float, complex, bool, str, list, dict)}


class _Named:
    """Stands for a value of a node that is known by a name, and prints as it. In a file nothing but
    a node has it."""

    def __init__(self, kind: str, module: str, name: str, text: str, *rest: Any):
        self.kind, self.module, self.name, self.rest = kind, module, name, rest
        self.text = text

    def __repr__(self) -> str:
        return self.text


class _Missing(Exception):
    """A class, a function or a value that nobody has imported here."""


# ---- values of nodes ---------------------------------------------------------------------------


def _described(value: Any) -> Any:
    """What jax keeps of a node, classes and functions by name."""
    class_ = type(value)
    if class_ in (tuple, list):
        return class_(map(_described, value))
    if class_ is dict:
        return {_described(key): _described(item) for key, item in value.items()}
    if callable(value) and (place := global_name(value)) is not None:
        return _Named("global", *place, text_of(value))
    if isinstance(value, enum.Enum):
        return _Named("member", *_place(class_), text_of(value), value.name)
    if is_named_tuple(class_):
        return _Named("fields", *_place(class_), text_of(value), *map(_described, value))
    if (name := _module_name(value)) is not None:
        return _Named("value", class_.__module__, name, text_of(value))
    return value


def _module_name(value: Any) -> str | None:
    """What the module of a value's class calls the value, which is one of a kind."""
    module = type(value).__module__
    if module.partition(".")[0] in _LIBRARIES or module == "__main__":
        return None
    names = (name for name, found in vars(sys.modules[module]).items() if found is value)
    return next(names, None) if module in sys.modules else None


# Their values are what they consist of.
_LIBRARIES = ("builtins", "jax", "jaxlib", "numpy")


def _place(value: Any) -> tuple[str, str]:
    if (place := global_name(value)) is None:
        raise Unstorable(f"{name_of(value)} is not what its module has under this name")
    return place


def _made(value: Any) -> Any:
    """A value of a node, what has a name as it is here.

    Raises:
      _Missing: it is not here.
    """
    if type(value) in (tuple, list):
        return type(value)(map(_made, value))
    if type(value) is dict:
        return {_made(key): _made(item) for key, item in value.items()}
    if not isinstance(value, _Named):
        return value
    missing = _Missing(f"{value.module}.{value.name}")
    if value.kind == "value":
        found = vars(sys.modules.get(value.module, _Missing)).get(value.name)
        if type(found).__module__ != value.module:
            raise missing
        return found
    found = found_global(value.module, value.name)
    rest = tuple(map(_made, value.rest))
    if value.kind == "global" and found is not None:
        return found
    if value.kind == "member" and isinstance(found, enum.EnumMeta) and rest[0] in found.__members__:
        return found.__members__[rest[0]]
    if value.kind == "fields" and is_named_tuple(found) and len(found._fields) == len(rest):
        return tuple.__new__(found, rest)
    raise missing


def is_named_tuple(class_: Any) -> bool:
    """Whether a class is one of named tuples."""
    return isinstance(class_, type) and issubclass(class_, tuple) and hasattr(class_, "_fields")


# The kind of such values.
NAMED = Kind(
    "of a module",
    (_Named,),
    lambda value: (value.kind, value.module, value.name, value.text, *value.rest),
    lambda parts: _Named(*parts),
)


# ---- trees -------------------------------------------------------------------------------------


@functools.cache
def _nodes() -> dict[str, Any]:
    """Classes of jax's that are nodes of trees among params."""
    own = ("state.indexing:NDIndexer", "state.indexing:Slice")
    return {name_of(class_): class_ for class_ in known_symbols(own).values()}


def tree_parts(tree: Any) -> Any:
    """A tree of standard containers in a list, children before parents: kind, data, number of
    children."""
    return _rows(tree, _unregistered)


def registered_tree_parts(tree: Any) -> Any:
    """As ``tree_parts``, also of classes that somebody has registered."""
    return _rows(tree, _registration)


def _unregistered(class_: Any, own: Any) -> Any:
    raise Unstorable(f"{name_of(class_)} is no standard container")


def _registration(class_: Any, own: Any) -> Any:
    if issubclass(class_, MissingNode):
        return *class_.place, own
    if (place := global_name(class_)) is None:
        raise Unstorable(f"{name_of(class_)} is no class that a module has")
    return *place, _described(own)


def _rows(tree: Any, registration: Callable[[Any, Any], Any]) -> Any:
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
    data: tuple[Any, Any], num_children: int, registration: Callable[[Any, Any], Any]
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
    return "registered", registration(class_, own), num_children


def tree_of(parts: Any) -> Any:
    made: list[Any] = []
    for name, own, count in parts:
        if count > len(made) or count < 0:
            raise StorageError("a tree has fewer nodes than it says")
        children = made[len(made) - count :]
        del made[len(made) - count :]
        if name == "leaf":
            made.append(jax.tree.structure(0))
        elif name == "none":
            made.append(jax.tree.structure(None))
        elif name == "registered":
            made.append(_registered(own, children))
        else:
            class_ = _CONTAINERS.get(name) or _nodes().get(name)
            if class_ is None:
                raise StorageError(f"there are no trees of {name!r}")
            if class_ is collections.defaultdict:
                own = (own[0] and _FACTORIES[own[0]], own[1])
            made.append(_node(class_, own, children))
    (tree,) = made
    return tree


def _node(class_: Any, own: Any, children: Sequence[Any]) -> Any:
    make = jax.tree_util.PyTreeDef.from_node_data_and_children
    return make(symbol("tree_util:default_registry"), (class_, own), children)


def _registered(described: tuple[str, str, Any], children: Sequence[Any]) -> Any:
    """A node of a class that somebody has registered; one that says what is missing where nobody
    has, here."""
    module, name, own = described
    class_ = found_global(module, name)
    if isinstance(class_, type):
        try:
            made = _made(own)
            if made is None or not is_named_tuple(class_):
                return _node(class_, made, children)
            # jax takes a registered class for a plain named tuple.
            return _by_example(class_, made, children)
        except (_Missing, ValueError, TypeError, KeyError, AttributeError):
            pass
    return _node(_missing_class(str(module), str(name)), own, children)


def _by_example(class_: Any, own: Any, children: Sequence[Any]) -> Any:
    """The structure of an instance, which the function that was registered has made."""
    leaves = [jax.tree.unflatten(child, [0] * child.num_leaves) for child in children]
    return jax.tree.structure(symbol("tree_util:_registry")[class_].from_iter(own, leaves))


class MissingNode:
    """Stands for a node whose class is not registered here; the class of each has its name."""

    place: tuple[str, str]


@functools.cache
def _missing_class(module: str, name: str) -> type[MissingNode]:
    def refuse(own: Any, children: Any) -> Any:
        raise StorageError(f"{module}.{name} is not registered with jax here: import what it is of")

    # A class of a module that jax looks into, or of jaxide's, would be a change of jax.
    own = {"place": (module, name), "__module__": "missing"}
    class_ = type(name.rpartition(".")[2], (MissingNode,), own)
    jax.tree_util.register_pytree_node(class_, lambda node: ((), None), refuse)
    return class_


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
