"""Arguments of a jit as jax's cache of traces tells them apart: by types, and by static values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxide._native.interruptions import tried


class Arguments(NamedTuple):
    """The arguments of a call of a jit."""

    # jax's ``FlatTree`` of types and static values: the key of jax's cache.
    flat: Any
    # The same in plain values, by position and by name: whether each is static, and what it is.
    # Those of ``jnp.round(x, 2)`` are ``((False, float32[3]), (True, 2))`` and ``()``.
    plain: tuple[Any, ...]


class JitArguments:
    """Makes such arguments."""

    def __init__(self, flatten: Callable[..., Any], abstractify: Callable[[Any], Any]):
        self._flatten = flatten
        self._abstractify = abstractify

    def of(self, jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """The arguments of a call with such values or types; None where one is neither."""
        info, found = jitted._jit_info, None
        nums, names = info.static_argnums, info.static_argnames

        def plain(is_static: bool, value: Any) -> tuple[bool, Any]:
            return is_static, value if is_static else self._types(value)

        with tried():
            flat = self._flatten(args, kwargs, nums, names)
            flat = flat.update(tuple(map(self._abstractify, flat.vals)))
            count = len(args)
            positional = tuple(
                plain(place in nums or place - count in nums, value)
                for place, value in enumerate(args)
            )
            named = tuple((name, plain(name in names, kwargs[name])) for name in sorted(kwargs))
            found = Arguments(flat, (positional, named))
        return found

    def _types(self, value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value)(map(self._types, value))
        if type(value) is dict:
            return {name: self._types(item) for name, item in value.items()}
        return None if value is None else self._abstractify(value)
