"""``abstracted_axes``: named axes as symbolic dimensions.

Older versions of jax took a pytree prefix of the arguments whose leaves name array axes. The same
is said today with ``jax.ShapeDtypeStruct`` and symbolic dimensions; this module translates.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
from jax.api_util import shaped_abstractify

_CONTAINERS = (tuple, list, Mapping)


def _names_axes(node: Any) -> bool:
    """Whether ``node`` names the axes of arrays, rather than holding further nodes."""
    if isinstance(node, Mapping):
        return bool(node) and all(isinstance(axis, int) for axis in node)
    if type(node) is tuple:
        return not any(isinstance(item, _CONTAINERS) for item in node)
    return node is None


def _axis_names(node: Any, ndim: int, where: str) -> dict[int, str]:
    """The names that ``node`` gives to the axes of an array of ``ndim`` axes."""
    if node is None or (isinstance(node, tuple) and all(name is None for name in node)):
        return {}
    if isinstance(node, Mapping):
        named = dict(node)
    elif len(node) == ndim:
        named = {axis: name for axis, name in enumerate(node) if name is not None}
    else:
        raise ValueError(
            f"abstracted_axes names {len(node)} axes of {where}, which has {ndim}: {node!r}"
        )
    for axis, name in named.items():
        if not -ndim <= axis < ndim:
            raise ValueError(f"abstracted_axes names axis {axis} of {where}, which has {ndim} axes")
        if not isinstance(name, str):
            raise TypeError(
                f"abstracted_axes: the name of axis {axis} of {where} must be a string, "
                f"got {name!r}"
            )
        if not name.isidentifier():
            raise ValueError(
                f"abstracted_axes: the name of axis {axis} of {where} must be an identifier, "
                f"got {name!r}"
            )
    return {axis % ndim: name for axis, name in named.items()}


class _Scope:
    """The symbolic dimensions of one trace: the same name is the same dimension."""

    def __init__(self) -> None:
        self._scope = jax.export.SymbolicScope()
        self._dims: dict[str, Any] = {}
        self._sizes: dict[str, tuple[int, str]] = {}

    def dim(self, name: str, size: int, where: str) -> Any:
        first, first_where = self._sizes.setdefault(name, (size, where))
        if first != size:
            raise ValueError(
                f"abstracted_axes: {name!r} is {size} for {where} but {first} for {first_where}"
            )
        if name not in self._dims:
            try:
                (self._dims[name],) = jax.export.symbolic_shape(name, scope=self._scope)
            except ValueError as error:
                raise ValueError(f"abstracted_axes: {name!r} for {where}: {error}") from None
        return self._dims[name]


def _abstract_array(node: Any, array: Any, where: str, scope: _Scope) -> Any:
    """``array`` itself, or its type with the named axes symbolic."""
    aval = shaped_abstractify(array)
    names = _axis_names(node, len(aval.shape), where)
    if not names:
        return array
    shape = tuple(
        scope.dim(names[axis], size, f"axis {axis} of {where}") if axis in names else size
        for axis, size in enumerate(aval.shape)
    )
    return jax.ShapeDtypeStruct(shape, aval.dtype, weak_type=aval.weak_type)


def _parameter_names(fun: Callable[..., Any], count: int) -> list[str]:
    """The names of the first ``count`` positional parameters, as far as ``fun`` tells them."""
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in positional][:count]
    return names + [f"args[{i}]" for i in range(len(names), count)]


def abstract_arguments(
    fun: Callable[..., Any],
    abstracted_axes: Any,
    args: tuple[Any, ...],
    static_argnums: int | Sequence[int],
    static_argnames: str | Iterable[str],
) -> tuple[Any, ...]:
    """The arguments with their named axes symbolic.

    Raises:
      TypeError: a name is not a string.
      ValueError: the axes do not fit the arguments, a name is no identifier, or one name stands for
        two sizes. The message names the argument.
    """
    names = _parameter_names(fun, len(args))
    argnums = [static_argnums] if isinstance(static_argnums, int) else static_argnums or ()
    argnames = {static_argnames} if isinstance(static_argnames, str) else set(static_argnames)
    static = {number % len(args) for number in argnums if args} | {
        position for position, name in enumerate(names) if name in argnames
    }
    if _names_axes(abstracted_axes):
        nodes = [None if i in static else abstracted_axes for i in range(len(args))]
    else:
        nodes = list(abstracted_axes)
    if len(nodes) != len(args):
        raise ValueError(
            f"abstracted_axes has {len(nodes)} entries for {len(args)} positional arguments"
        )
    scope = _Scope()
    return tuple(
        arg if position in static else _abstract_argument(node, arg, name, scope)
        for position, (node, arg, name) in enumerate(zip(nodes, args, names, strict=True))
    )


def _abstract_argument(node: Any, arg: Any, name: str, scope: _Scope) -> Any:
    leaves, tree = jax.tree_util.tree_flatten_with_path(arg)
    try:
        spread = jax.tree.broadcast(node, arg, is_leaf=_names_axes)
        nodes = jax.tree.leaves(spread, is_leaf=_names_axes)
    except ValueError as error:
        raise ValueError(
            f"abstracted_axes is not a prefix of the argument {name}: {error}"
        ) from None
    abstract = [
        _abstract_array(leaf_node, leaf, f"argument {name}{jax.tree_util.keystr(path)}", scope)
        for leaf_node, (path, leaf) in zip(nodes, leaves, strict=True)
    ]
    return jax.tree.unflatten(tree, abstract)
