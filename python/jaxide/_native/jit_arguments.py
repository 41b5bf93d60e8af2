"""Arguments of a jit as jax's cache of traces tells them apart: by types, and by static values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxide._native.interruptions import tried

# Whether an argument is static, and its value; else containers with types in the place of leaves.
Argument = tuple[bool, Any]


class Arguments(NamedTuple):
    """The arguments of a call of a jit, by position and by name.

    Example: those of ``jnp.round(x, 2)`` are ``((False, float32[3]), (True, 2))`` and ``()``.
    """

    positional: tuple[Argument, ...]
    named: tuple[tuple[str, Argument], ...]


class JitArguments:
    """Makes such arguments, and compares them with those for which jax traces a function."""

    def __init__(self, abstractify: Callable[[Any], Any], given: Callable[[Any], Any]):
        self._abstractify = abstractify
        # Positional and named arguments with types in the place of arrays; None where the
        # containers are not Python's own.
        self._given = given

    def of(self, jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """The arguments of a call with such values or types; None where one is neither."""
        info, found = jitted._jit_info, None
        nums, names = frozenset(info.static_argnums), frozenset(info.static_argnames)

        def argument(is_static: bool, value: Any) -> Argument:
            return is_static, value if is_static else self._types(value)

        with tried():
            count = len(args)
            found = Arguments(
                tuple(
                    argument(place in nums or place - count in nums, value)
                    for place, value in enumerate(args)
                ),
                tuple((name, argument(name in names, kwargs[name])) for name in sorted(kwargs)),
            )
        return found

    def _types(self, value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value)(map(self._types, value))
        if type(value) is dict:
            return {name: self._types(item) for name, item in value.items()}
        return None if value is None else self._abstractify(value)

    def leaves(self, arguments: Arguments) -> frozenset[Any]:
        """The types in arguments."""
        found: list[Any] = []
        named = (argument for _, argument in arguments.named)
        for is_static, value in (*arguments.positional, *named):
            if not is_static:
                _add_leaves(value, found)
        return frozenset(found)

    def fit(self, arguments: Arguments, in_avals: Any) -> bool:
        """Whether jax traces a function for such arguments: ``in_avals`` are jax's own."""
        given = self._given(in_avals)
        if given is None:
            return False
        args, kwargs = given
        return (
            len(args) == len(arguments.positional)
            and sorted(kwargs) == [name for name, _ in arguments.named]
            and all(_fits(*pair) for pair in zip(arguments.positional, args, strict=True))
            and all(_fits(argument, kwargs[name]) for name, argument in arguments.named)
        )


def _add_leaves(value: Any, found: list[Any]) -> None:
    if type(value) in (tuple, list):
        for item in value:
            _add_leaves(item, found)
    elif type(value) is dict:
        for item in value.values():
            _add_leaves(item, found)
    elif value is not None:
        found.append(value)


def _fits(argument: Argument, given: Any) -> bool:
    is_static, value = argument
    # As jax's cache compares static values.
    return bool(value == given) if is_static else _are_types(value, given)


def _are_types(types: Any, given: Any) -> bool:
    if type(types) is not type(given):
        return False
    if type(types) in (tuple, list):
        return len(types) == len(given) and all(map(_are_types, types, given))
    if type(types) is dict:
        return types.keys() == given.keys() and all(
            _are_types(item, given[name]) for name, item in types.items()
        )
    return bool(types == given)
