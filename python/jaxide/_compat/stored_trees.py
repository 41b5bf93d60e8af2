"""Tree structures in a stored program, and how they are made again."""

from __future__ import annotations

import collections
import functools
from typing import Any

import jax

from jaxide._compat.symbols import known_symbols, symbol
from jaxide._native.content import name_of
from jaxide._native.storage import StorageError, Unstorable

_CONTAINERS = {
    class_.__name__: class_
    for class_ in (tuple, list, dict, collections.OrderedDict, collections.defaultdict)
}


@functools.cache
def _nodes() -> dict[str, Any]:
    """Classes of jax's that are nodes of trees among params."""
    own = ("state.indexing:NDIndexer", "state.indexing:Slice")
    return {name_of(class_): class_ for class_ in known_symbols(own).values()}


def tree_parts(tree: Any) -> Any:
    """A tree in a list, children before parents: kind, data, number of children."""
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
        class_, own = data
        if (name := class_.__name__) in _CONTAINERS and _CONTAINERS[name] is class_:
            if name == "defaultdict" and own[0] not in (None, *_FACTORIES.values()):
                raise Unstorable(f"a defaultdict of {own[0]} has no form in a file")
            if name == "defaultdict":
                own = (own[0] and own[0].__name__, own[1])
            rows.append((name, own, len(children)))
        elif class_ is type(None):
            rows.append(("none", None, 0))
        elif _nodes().get(name_of(class_)) is class_:
            rows.append((name_of(class_), own, len(children)))
        else:
            raise Unstorable(
                f"{name_of(class_)} is no standard container: drop=('trees',) leaves out the "
                "structure of arguments and results"
            )
    return tuple(rows)


_FACTORIES = {class_.__name__: class_ for class_ in (int, float, complex, bool, str, list, dict)}


def tree_of(parts: Any) -> Any:
    make = jax.tree_util.PyTreeDef.from_node_data_and_children
    registry = symbol("tree_util:default_registry")
    made: list[Any] = []
    for name, own, count in parts:
        if count > len(made) or count < 0:
            raise StorageError("a tree has fewer nodes than it says")
        children = made[len(made) - count :]
        del made[len(made) - count :]
        if name == "leaf":
            made.append(jax.tree.structure(0))
            continue
        if name == "none":
            made.append(jax.tree.structure(None))
            continue
        class_ = _CONTAINERS.get(name) or _nodes().get(name)
        if class_ is None:
            raise StorageError(f"there are no trees of {name!r}")
        if class_ is collections.defaultdict:
            own = (own[0] and _FACTORIES[own[0]], own[1])
        made.append(make(registry, (class_, own), children))
    (tree,) = made
    return tree


def is_tree(tree: Any) -> bool:
    """Whether a tree is made of standard containers."""
    try:
        tree_parts(tree)
    except Unstorable:
        return False
    return True
