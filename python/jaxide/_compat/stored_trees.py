"""Tree structures in a stored program, and how they are made again.

Nodes of standard containers are known by themselves. Of the arguments and results of a program in a
file, those of other classes are known by their registration: the module and the name of the class,
and what jax keeps of a node. Example: ``optax.EmptyState()`` is the class ``EmptyState`` of
``optax._src.base``. Among params such nodes are there by name only, since what is made of them is
called by jax.

Nothing that a file names is looked up to be used. The structure of arguments is compared with that
of the arguments of a call. What the structure of results has by name, a function for example, is
taken from these arguments: it is the caller's own.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxide._compat.symbols import known_symbols, optional_symbol, symbol
from jaxide._native.content import name_of, text_of
from jaxide._native.global_names import found_global, global_name, variables
from jaxide._native.storage import Kind, StorageError, Unstorable

# How deep trees and values of nodes are nested, and of how many a node consists.
MAX_DEPTH = 500
MAX_VALUES = 1 << 20
# Classes of other programs that are not here, in a process.
MAX_MISSING = 4096
_CONTAINERS = {
    class_.__name__: class_
    for class_ in (tuple, list, dict, collections.OrderedDict, collections.defaultdict)
}
_FACTORIES = {class_.__name__: class_ for class_ in (int, float, complex, bool, str, list, dict)}


class _Named:
    """Stands for a value of a node that is known by a name. In a file nothing but a node has it.

    ``value`` is what it stands for, where somebody has given it: a file never has.
    """

    def __init__(self, kind: str, module: str, name: str, text: str, *rest: Any, value: Any = None):
        if not all(isinstance(part, str) for part in (kind, module, name, text)):
            raise StorageError("a name in a tree is no text")
        self.kind, self.module, self.name, self.rest = kind, module, name, rest
        self.text, self.value = text, value

    def __repr__(self) -> str:
        return self.text

    @property
    def key(self) -> tuple[Any, ...]:
        """The same for what is the same: of a named tuple its class, of a member its name."""
        which = self.rest[0] if self.kind == "member" else self.text if self.kind == "value" else ""
        return self.kind, self.module, self.name, str(which)


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


# ---- values of nodes ---------------------------------------------------------------------------


def _described(value: Any, depth: int = 0) -> Any:
    """What jax keeps of a node, classes and functions by name."""
    class_ = type(value)
    if depth > MAX_DEPTH:
        raise Unstorable("a node of a tree is nested too deeply")

    def within(values: Iterable[Any]) -> list[Any]:
        return [_described(item, depth + 1) for item in values]

    if class_ in (tuple, list):
        return class_(within(value))
    if class_ is dict:
        return dict(zip(within(value), within(value.values()), strict=True))
    if callable(value) and (place := global_name(value)) is not None:
        return _Named("global", *place, text_of(value), value=value)
    if isinstance(value, enum.Enum):
        return _Named("member", *_place(class_), text_of(value), value.name, value=value)
    if is_named_tuple(class_):
        fields = class_._fields, *within(value)
        return _Named("fields", *_place(class_), text_of(value), *fields, value=class_)
    if (name := _module_name(value)) is not None:
        return _Named("value", class_.__module__, name, text_of(value), value=value)
    return value


def _module_name(value: Any) -> str | None:
    """What the module of a value's class calls the value, which is one of a kind."""
    module = type(value).__module__
    if not _has_values(module):
        return None
    return next((name for name, found in variables(module).items() if found is value), None)


def _has_values(module: Any) -> bool:
    """Whether a module may have values of nodes: one of a library, or of the user's."""
    package = module.partition(".")[0] if isinstance(module, str) else "builtins"
    return package not in _LIBRARIES and package not in sys.stdlib_module_names


# Their values are what they consist of.
_LIBRARIES = ("__main__", "builtins", "jax", "jaxlib", "jaxide", "numpy")


def _place(value: Any) -> tuple[str, str]:
    if (place := global_name(value)) is None:
        raise Unstorable(f"{name_of(value)} is not what its module has under this name")
    return place


def _named_within(value: Any) -> Iterator[_Named]:
    """What a described value has by name, itself included."""
    pending = [value]
    while pending:
        value = pending.pop()
        if type(value) in (tuple, list):
            pending += value
        elif type(value) is dict:
            pending += (*value, *value.values())
        elif isinstance(value, _Named):
            yield value
            pending += value.rest


def _check(value: Any) -> None:
    """Refuses what a node in a file may not have: functions above all, which jax or a user would
    call, and what has functions."""
    pending = [value]
    while pending:
        value = pending.pop()
        if type(value) in (tuple, list, set, frozenset):
            pending += value
        elif type(value) is dict:
            pending += (*value, *value.values())
        elif isinstance(value, _Named):
            pending += value.rest
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


def _same(one: Any, another: Any) -> bool:
    """Whether two described values are the same. What a file has is of classes that it may have."""
    if type(one) is not type(another):
        return False
    if type(one) in (tuple, list):
        return len(one) == len(another) and all(map(_same, one, another))
    if type(one) is dict:
        return _same(list(one.items()), list(another.items()))
    if isinstance(one, _Named):
        return one.key == another.key and _same(one.rest, another.rest)
    if isinstance(one, np.ndarray):
        same_type: bool = (one.dtype, one.shape) == (another.dtype, another.shape)
        return same_type and bool(one.tobytes() == another.tobytes())
    if isinstance(one, float):
        return bool(one.hex() == another.hex())
    return bool(one == another)


class _Making:
    """Makes values of nodes; a file may not say of how many they consist.

    Args:
      given: what there is by name, by key.
    """

    def __init__(self, given: Mapping[tuple[Any, ...], Any]) -> None:
        self.left = MAX_VALUES
        self.given = given

    def value(self, value: Any) -> Any:
        """A value of a node.

        Raises:
          KeyError: it has something by name that nobody has given.
        """
        self.left -= 1
        if self.left < 0:
            raise StorageError("a tree consists of too many values")
        if type(value) in (tuple, list):
            return type(value)(map(self.value, value))
        if type(value) is dict:
            return {self.value(key): self.value(item) for key, item in value.items()}
        if not isinstance(value, _Named):
            return value
        found = self.given[value.key]
        if value.kind == "fields":
            return tuple.__new__(found, map(self.value, value.rest[1:]))
        return found


def is_named_tuple(class_: Any) -> bool:
    """Whether a class is one of named tuples."""
    return isinstance(class_, type) and issubclass(class_, tuple) and hasattr(class_, "_fields")


def _fields_of(class_: Any) -> tuple[str, ...] | None:
    """The names of the children of a node, where its class says them."""
    if is_named_tuple(class_):
        return tuple(class_._fields)
    if dataclasses.is_dataclass(class_):
        return tuple(field.name for field in dataclasses.fields(class_))
    return None


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


class StoredTree:
    """The structure of arguments or results, in rows."""

    def __init__(self, rows: Any):
        self.rows = rows
        # What it prints as; also checks that the rows are those of a tree.
        self._shown = _tree_of(rows, _shown)

    @classmethod
    def of(cls, tree: Any) -> StoredTree:
        """That of a structure of jax's.

        Raises:
          Unstorable: a class or a value has no name.
        """
        return cls(_rows(tree, _registration))

    def __repr__(self) -> str:
        return str(self._shown)

    @property
    def is_plain(self) -> bool:
        """Whether it is made of standard containers."""
        return not any(self._registered())

    def unknown(self, arguments: StoredTree) -> set[tuple[Any, ...]]:
        """The keys of what it has by name, and arguments do not have."""
        return self.named().keys() - arguments.named().keys()

    def describes(self, tree: Any) -> bool:
        """Whether a structure of jax's is this one."""
        try:
            return _same(_rows(tree, _registration), self.rows)
        except Unstorable:
            return False

    def missing(self) -> list[str]:
        """The classes of nodes that are not registered here as they were."""
        found = set()
        for module, name, fields, _ in self._registered():
            class_ = found_global(module, name)
            if not _is_registered(class_) or _fields_of(class_) != fields:
                found.add(f"{module}.{name}")
        return sorted(found)

    def named(self) -> dict[tuple[Any, ...], _Named]:
        """What its nodes have by name, by key."""
        return {named.key: named for *_, own in self._registered() for named in _named_within(own)}

    def _registered(self) -> Iterator[Any]:
        return (own for name, own, _ in self.rows if name == "registered")

    def made(self, arguments: Any) -> Any:
        """The structure of jax's. What it has by name is taken from the structure of the arguments.

        Raises:
          StorageError: that does not have it, or jax makes no such structure.
        """
        given = {key: named.value for key, named in StoredTree.of(arguments).named().items()}
        try:
            return _tree_of(self.rows, functools.partial(_made, _Making(given)))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise StorageError(f"the results cannot be given their structure: {error}") from None


def is_structure(tree: Any, of: Any) -> bool:
    """Whether the structure of arguments is the one of a program."""
    return bool(of.describes(tree) if isinstance(of, StoredTree) else tree == of)


def result_structure(of: Any, arguments: Any) -> Any:
    """The structure of a program's results, for arguments of a structure."""
    return of.made(arguments) if isinstance(of, StoredTree) else of


def stored_tree(tree: Any) -> StoredTree:
    """What a file has of a structure."""
    return tree if isinstance(tree, StoredTree) else StoredTree.of(tree)


def param_tree_parts(tree: Any) -> Any:
    """As ``tree_parts``, nodes of other classes by name; and whether only traces have such
    trees."""
    return _is_of_traces(tree), _rows(tree, _class_name)


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


def _class_name(class_: Any, own: Any) -> Any:
    if issubclass(class_, MissingNode):
        return *class_.place, repr(own)
    return str(class_.__module__), class_.__qualname__, text_of(own)


def _unregistered(class_: Any, own: Any) -> Any:
    raise Unstorable(f"{name_of(class_)} is no standard container")


def _registration(class_: Any, own: Any) -> Any:
    if issubclass(class_, MissingNode):
        return *class_.place, class_.fields, own
    if (place := global_name(class_)) is None or issubclass(class_, functools.partial):
        raise Unstorable(f"{name_of(class_)} is no class that a module has")
    return *place, _fields_of(class_), _described(own)


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
    return _tree_of(parts, _refused)


def _refused(described: Any, children: Sequence[Any], registry: Any) -> Any:
    raise StorageError("a tree has a node of a class that is none of jax's")


def _tree_of(
    parts: Any, registered: Callable[[Any, Sequence[Any], Any], Any], registry: Any = None
) -> Any:
    registry = symbol("tree_util:default_registry") if registry is None else registry
    # Trees with their depths.
    made: list[tuple[Any, int]] = []
    leaf, none = (_node(type_, registry) for type_ in ("leaf", "none"))
    for name, own, count in parts:
        if count > len(made) or count < 0:
            raise StorageError("a tree has fewer nodes than it says")
        children = [child for child, _ in made[len(made) - count :]]
        depth = 1 + max((depth for _, depth in made[len(made) - count :]), default=0)
        if depth > MAX_DEPTH:
            raise StorageError("a tree is nested too deeply")
        del made[len(made) - count :]
        if name == "leaf":
            tree = leaf
        elif name == "none":
            tree = none
        elif name == "registered":
            tree = registered(own, children, registry)
        else:
            class_ = _CONTAINERS.get(name) or _nodes().get(name)
            if class_ is None:
                raise StorageError(f"there are no trees of {name!r}")
            if class_ is collections.defaultdict:
                own = (own[0] and _FACTORIES[own[0]], own[1])
            tree = _inner(class_, own, children, registry)
        made.append((tree, depth))
    ((tree, _),) = made
    return tree


def _node(name: str, registry: Any) -> Any:
    """A leaf, or a tree without any."""
    return registry.flatten(0 if name == "leaf" else None)[1]


def _inner(class_: Any, own: Any, children: Sequence[Any], registry: Any) -> Any:
    make = jax.tree_util.PyTreeDef.from_node_data_and_children
    return make(registry, (class_, own), children)


def _is_registered(class_: Any) -> bool:
    return isinstance(class_, type) and (
        class_ in symbol("tree_util:_registry") or is_named_tuple(class_)
    )


def _made(making: _Making, described: Any, children: Sequence[Any], registry: Any) -> Any:
    """A node of a class that somebody has registered."""
    module, name, fields, own = described
    class_ = found_global(module, name)
    if not _is_registered(class_) or issubclass(class_, functools.partial):
        raise StorageError(f"{module}.{name} is not registered with jax here")
    if _fields_of(class_) != fields:
        raise StorageError(f"{module}.{name} has other fields here")
    made = making.value(own)
    if made is None or not is_named_tuple(class_):
        return _inner(class_, made, children, registry)
    # jax takes a registered class for a plain named tuple.
    return _by_example(class_, made, children)


def _shown(described: Any, children: Sequence[Any], registry: Any) -> Any:
    module, name, _fields, own = described
    if not isinstance(module, str) or not isinstance(name, str):
        raise StorageError("a name in a tree is no text")
    _check(own)
    node = _missing_class("missing", "Node", None)
    return _inner(node, _Text(f"{module}.{name}, {own!r}"), children, registry)


def _named_only(described: Any, children: Sequence[Any], registry: Any) -> Any:
    module, name, text = described
    return _inner(_missing_class(str(module), str(name), None), _Text(text), children, registry)


def _by_example(class_: Any, own: Any, children: Sequence[Any]) -> Any:
    """The structure of an instance, which the function that was registered has made."""
    leaves = [jax.tree.unflatten(child, [0] * child.num_leaves) for child in children]
    return jax.tree.structure(symbol("tree_util:_registry")[class_].from_iter(own, leaves))


class MissingNode:
    """Stands for a node whose class is not registered here; the class of each has its name."""

    place: tuple[str, str]
    fields: tuple[str, ...] | None


def _missing_class(module: str, name: str, fields: tuple[str, ...] | None) -> type[MissingNode]:
    """The class that stands for a class. jax keeps each: beyond so many one stands for all."""
    if _new_missing_class.cache_info().currsize >= MAX_MISSING:
        return _new_missing_class("missing", "Node", None)
    return _new_missing_class(module, name, fields)


@functools.cache
def _new_missing_class(module: str, name: str, fields: tuple[str, ...] | None) -> type[MissingNode]:
    def refuse(own: Any, children: Any) -> Any:
        raise StorageError(f"a file does not have the class {module}.{name} of a tree's node")

    # A class of a module that jax looks into, or of jaxide's, would be a change of jax.
    own = {"place": (module, name), "fields": fields, "__module__": "missing"}
    class_ = type(name.rpartition(".")[2], (MissingNode,), own)
    flatten = lambda node: ((), None)
    jax.tree_util.register_pytree_node(class_, flatten, refuse)
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
