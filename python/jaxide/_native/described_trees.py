"""Trees of arguments and results in plain values: of tuples, lists, dicts and named tuples."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from jaxide._native.portable import place_of
from jaxide._native.storage import StorageError, Unstorable

# The class, the data and the children of a node of a tree; None for a leaf.
NodeOf = Callable[[Any], tuple[Any, list[Any]] | None]


def described_tree(tree: Any, node_of: NodeOf) -> Any:
    """A tree in plain values.

    Raises:
      Unstorable: it has nodes of a class that is not found by its name.
    """
    node = node_of(tree)
    if node is None:
        return None
    (class_, data), children = node
    described = tuple(described_tree(child, node_of) for child in children)
    if class_ in (tuple, list, type(None)):
        return class_.__name__, described
    if class_ is dict:
        return "dict", tuple(data), described
    place = place_of(class_)
    if place is None or not hasattr(class_, "_fields"):
        raise Unstorable(f"there are no trees of {class_}")
    return "named", place, described


def made_tree(tree: Any, leaves: Iterator[Any]) -> Any:
    """The tree that was described, with other leaves.

    Raises:
      LookupError: a class is not where it was.
    """
    match tree:
        case None:
            return next(leaves)
        case ("tuple", children):
            return tuple([made_tree(child, leaves) for child in children])
        case ("list", children):
            return [made_tree(child, leaves) for child in children]
        case ("NoneType", ()):
            return None
        case ("dict", names, children):
            made = [made_tree(child, leaves) for child in children]
            return dict(zip(names, made, strict=True))
        case ("named", place, children):
            # Nothing of the class runs.
            return tuple.__new__(_class_at(place), [made_tree(child, leaves) for child in children])
    raise StorageError("a tree of an unknown kind")


def _class_at(place: str) -> Any:
    module, _, qualname = place.partition(":")
    found: Any = sys.modules[module]
    for part in qualname.split("."):
        found = getattr(found, part)
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields")):
        raise LookupError(place)
    return found
