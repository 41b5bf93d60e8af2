"""The structure of arguments and results in a stored program.

Nodes of other classes than standard containers are known by their registration: the module and the
name of the class, and what jax keeps of a node. Example: ``optax.EmptyState()`` is the class
``EmptyState`` of ``optax._src.base``.

Nothing that a file names is looked up to be used. The structure of arguments is compared with that
of the arguments of a call. What the structure of results has by name, a function for example, is
taken from these arguments: it is the caller's own. Results are made of rows without a structure of
jax's, which trusts what it is given.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxide._compat.stored_trees import (
    MAX_DEPTH,
    check_plain,
    container_data,
    fields_of,
    fold,
    is_named_tuple,
    rows_of,
)
from jaxide._compat.symbols import symbol
from jaxide._native import registrations
from jaxide._native.addresses import ByIdentity
from jaxide._native.content import name_of, text_of
from jaxide._native.global_names import found_global, global_name, variables
from jaxide._native.storage import Kind, StorageError, Unstorable

# Of how many values a node consists.
MAX_VALUES = 1 << 20


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
    if (local := _local_name(value)) is not None:
        return _Named("local", *local, text_of(value), value=value)
    if isinstance(value, enum.Enum):
        return _Named("member", *_place(class_), text_of(value), value.name, value=value)
    if is_named_tuple(class_):
        fields = class_._fields, *within(value)
        return _Named("fields", *_place(class_), text_of(value), *fields, value=class_)
    if (name := _module_name(value)) is not None:
        return _Named("value", class_.__module__, name, text_of(value), value=value)
    return value


def _local_name(value: Any) -> tuple[str, str] | None:
    """The module and the name of a local function, or of a method with the class of its object."""
    function = value.__func__ if isinstance(value, types.MethodType) else value
    if not isinstance(function, types.FunctionType):
        return None
    of = "" if function is value else f" of {name_of(type(value.__self__))}"
    return str(function.__module__), f"{function.__qualname__}{of}"


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


def _same(one: Any, another: Any) -> bool:
    """Whether a described value of the caller's is the same as one of a file, by ``==`` as in jax's
    structures. What a file has compares as jax, numpy or Python do."""
    if isinstance(one, _Named) or isinstance(another, _Named):
        are_named = isinstance(one, _Named) and isinstance(another, _Named)
        return are_named and one.key == another.key and _same(one.rest, another.rest)
    if type(another) in (tuple, list):
        is_same_kind = type(one) is type(another) and len(one) == len(another)
        return is_same_kind and all(map(_same, one, another))
    if type(another) is dict:
        return type(one) is dict and _are_same_items(one, another)
    if isinstance(another, np.ndarray):
        same_type = type(one) is np.ndarray and one.dtype == another.dtype
        return same_type and one.shape == another.shape and one.tobytes() == another.tobytes()
    return bool(one == another)


def _are_same_items(one: dict[Any, Any], another: dict[Any, Any]) -> bool:
    if len(one) != len(another):
        return False
    if any(isinstance(key, _Named) for key in another):
        return _same(list(one.items()), list(another.items()))
    return all(key in one and _same(one[key], value) for key, value in another.items())


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


# The kind of such values.
NAMED = Kind(
    "of a module",
    (_Named,),
    lambda value: (value.kind, value.module, value.name, value.text, *value.rest),
    lambda parts: _Named(*parts),
)


# ---- structures --------------------------------------------------------------------------------


def _rows_of(tree: Any) -> Any:
    """A structure of jax's in rows. Where somebody's own code has a node, it may ask the nodes in
    that for anything: all classes count whole.

    Raises:
      Unstorable: a class or a value has no name, or nothing tells what it consists of.
    """
    classes: dict[Any, None] = {}
    rows_of(tree, lambda class_, own, num_children: classes.setdefault(class_))
    digests = _Digests()
    is_whole = any(digests.of(class_).is_whole for class_ in classes if _has_digest(class_))
    rows = rows_of(tree, functools.partial(_registration, digests, is_whole))
    kept = [own[3] for name, own, _ in rows if name == "registered"]
    known: dict[Any, Any] = {}
    for named in _named_within(kept):
        if named.kind == "local" and known.setdefault(named.key, named.value) != named.value:
            raise Unstorable(f"a tree has two functions that are {named.module}.{named.name}")
    return rows


def _registration(
    digests: _Digests, is_whole: bool, class_: Any, own: Any, num_children: int
) -> Any:
    """A node in a file: its class, how that is registered, what jax keeps of the node, and how it
    is here."""
    if issubclass(class_, functools.partial):
        raise Unstorable(f"a {name_of(class_)} has a function")
    if (place := global_name(class_)) is None:
        raise Unstorable(f"{name_of(class_)} is no class that a module has")
    registered_as = _registered_as(class_, digests, is_whole)
    described = _described(own)
    return *place, registered_as, described, *_state(class_, own, num_children, described, is_whole)


def _state(class_: Any, own: Any, num_children: int, described: Any, is_whole: bool) -> list[Any]:
    """In which order a node has its children, and what that consists of which it has by name,
    where somebody's own code may use it."""
    registry = symbol("tree_util:_registry")
    order = registrations.order(class_, registry, own, num_children)
    values = [named.value for named in _named_within(described)] if is_whole else []
    digest = registrations.digest_of(values, registry) if values else ""
    return [order, digest] if digest or order is not None else []


def _registered_as(class_: Any, digests: _Digests, is_whole: bool) -> Any:
    """How a class is registered: its fields, and what its functions do.

    Raises:
      Unstorable: that cannot be said.
    """
    fields = fields_of(class_)
    if is_whole or _has_digest(class_):
        return fields, *digests.of(class_, is_whole)
    return fields


def _has_digest(class_: Any) -> bool:
    """Whether a class is more than its fields."""
    return class_ in symbol("tree_util:_registry") or not registrations.is_made_plainly(class_)


class _Digests:
    """What the functions do that classes are registered with, each read once: what they use may
    have changed by the next time."""

    def __init__(self) -> None:
        self._known: dict[tuple[ByIdentity, bool], registrations.Digest] = {}

    def of(self, class_: Any, is_whole: bool = False) -> registrations.Digest:
        """
        Raises:
          Unstorable: that cannot be said.
        """
        key = ByIdentity(class_), is_whole
        if (known := self._known.get(key)) is None:
            registry = symbol("tree_util:_registry")
            known = registrations.digest(class_, registry, is_whole=is_whole)
            self._known[key] = known
        return known


def _registered_class(described: Any) -> Any:
    """The class of a node; None where none is registered here as it was."""
    module, name, registered_as, *_ = described
    class_ = found_global(module, name)
    if not isinstance(class_, type) or issubclass(class_, functools.partial):
        return None
    if class_ not in symbol("tree_util:_registry") and not is_named_tuple(class_):
        return None
    try:
        is_whole = _counts_whole(registered_as)
        is_same = _registered_as(class_, _Digests(), is_whole) == registered_as
    except Unstorable:
        return None
    return class_ if is_same else None


def _counts_whole(registered_as: Any) -> bool:
    return type(registered_as) is tuple and len(registered_as) == 4 and registered_as[3] is True


def _parts_of_named(value: Any) -> Iterable[Any] | None:
    return value.rest if isinstance(value, _Named) else None


class StoredTree:
    """The structure of arguments or results, in rows.

    Raises:
      StorageError: the rows are those of no tree, or have something else than values.
    """

    def __init__(self, rows: Any):
        self.rows = rows
        # The structure of jax's that it described last.
        self._last: Any = None
        # The nodes of results that were compared, by their rows: what they were made of.
        self._compared: dict[int, list[Any]] = {}
        # What it prints as; also looks at all of it.
        self._text = fold(rows, lambda: "*", _text_of)

    @classmethod
    def of(cls, tree: Any) -> StoredTree:
        """That of a structure of jax's.

        Raises:
          Unstorable: a class or a value has no name.
          StorageError: a node has something else than values.
        """
        return cls(_rows_of(tree))

    def __repr__(self) -> str:
        return f"PyTreeDef({self._text})"

    @property
    def num_leaves(self) -> int:
        """How many leaves it has."""
        return sum(name == "leaf" for name, *_ in self.rows)

    @property
    def is_plain(self) -> bool:
        """Whether it is made of standard containers."""
        return not any(self._registered())

    def unknown(self, arguments: StoredTree) -> set[tuple[Any, ...]]:
        """The keys of what it has by name, and arguments do not have."""
        return self.named().keys() - arguments.named().keys()

    def describes(self, tree: Any) -> bool:
        """Whether a structure of jax's is this one."""
        if self._last is not None and tree == self._last:
            return True
        try:
            rows = _rows_of(tree)
        except Unstorable:
            return False
        is_same = _same(rows, self.rows)
        if is_same:
            self._last = tree
        return is_same

    def missing(self) -> list[str]:
        """The classes of nodes that are not registered here as they were."""
        found = {
            f"{described[0]}.{described[1]}"
            for described in self._registered()
            if _registered_class(described) is None
        }
        return sorted(found)

    def named(self) -> dict[tuple[Any, ...], _Named]:
        """What its nodes have by name, by key."""
        return {named.key: named for own in self._kept() for named in _named_within(own)}

    def _registered(self) -> Iterator[Any]:
        return (own for name, own, _ in self.rows if name == "registered")

    def _kept(self) -> Iterator[Any]:
        """What jax keeps of its nodes."""
        return (own[3] for own in self._registered())

    def results(self, leaves: Sequence[Any], arguments: Any) -> Any:
        """Results of this structure. What it has by name is taken from the structure of the
        arguments.

        Raises:
          StorageError: that does not have it, or a class is not registered here.
        """
        given: dict[tuple[Any, ...], Any] = {}
        if self.named():
            found = StoredTree.of(arguments).named()
            given = {key: named.value for key, named in found.items()}
        making, rest = _Making(given), iter(leaves)
        return fold(self.rows, lambda: next(rest), functools.partial(_made, making, self._compared))


def _text_of(name: str, own: Any, children: Sequence[str]) -> str:
    """What a node prints as. Looks at what it has.

    Raises:
      StorageError: that is something else than values, or not as many as children.
    """
    if name == "none":
        return "None"
    if name == "registered":
        module, class_, _registered, kept, *_ = own
        if type(module) is not str or type(class_) is not str:
            raise StorageError("a name in a tree is no text")
        check_plain(kept, _parts_of_named)
        return f"CustomNode({class_}[{kept!r}], [{', '.join(children)}])"
    data = container_data(name, own, len(children))
    if data is None:
        raise StorageError(f"there are no trees of {name!r} among arguments and results")
    if data.keys is None:
        inside = ", ".join(children)
        comma = "," if len(children) == 1 else ""
        return f"[{inside}]" if data.class_ is list else f"({inside}{comma})"
    inside = ", ".join(f"{key!r}: {child}" for key, child in zip(data.keys, children, strict=True))
    return f"{{{inside}}}" if data.class_ is dict else f"{name}({{{inside}}})"


def _made(
    making: _Making, compared: dict[int, list[Any]], name: str, own: Any, children: Sequence[Any]
) -> Any:
    """A node of results."""
    if name == "none":
        return None
    if (data := container_data(name, own, len(children))) is not None:
        if data.keys is None:
            return data.class_(children)
        items = zip(data.keys, children, strict=True)
        return data.class_(items) if data.factory is None else data.class_(data.factory, items)
    class_ = _registered_class(own)
    if class_ is None:
        raise StorageError(f"{own[0]}.{own[1]} is not registered with jax here as it was")
    registration = symbol("tree_util:_registry").get(class_)
    try:
        kept = making.value(own[3])
    except KeyError as error:
        raise StorageError(f"no argument has {error}") from None
    if registration is None:
        return class_(*children)
    used = [class_, *(making.given[named.key] for named in _named_within(own[3]))]
    known = compared.get(id(own))
    if known is None or any(one is not other for one, other in zip(known, used, strict=True)):
        is_whole = _counts_whole(own[2])
        described = _described(kept)
        if _state(class_, kept, len(children), described, is_whole) != list(own[4:]):
            raise StorageError(f"{own[0]}.{own[1]} is made in another way or order here")
        compared[id(own)] = used
    return registration.from_iter(kept, tuple(children))


def is_structure(tree: Any, of: Any) -> bool:
    """Whether the structure of arguments is the one of a program."""
    return bool(of.describes(tree) if isinstance(of, StoredTree) else tree == of)


def results(of: Any, arguments: Any) -> Callable[[Sequence[Any]], Any]:
    """What makes results of a program, for arguments of a structure."""
    if isinstance(of, StoredTree):
        return functools.partial(of.results, arguments=arguments)
    return functools.partial(jax.tree.unflatten, of)


def stored_tree(tree: Any) -> StoredTree:
    """What a file has of a structure."""
    return tree if isinstance(tree, StoredTree) else StoredTree.of(tree)
