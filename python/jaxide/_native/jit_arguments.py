"""Arguments of a jit as jax's cache of traces tells them apart: by types, and by static values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxide._native.interruptions import tried

# Whether an argument is static, and its value; else containers with types in the place of leaves.
_Argument = tuple[bool, Any]


class Arguments:
    """The arguments of a call of a jit.

    Attributes:
      positional, named: plain values. Those of ``jnp.round(x, 2)`` are
        ``((False, float32[3]), (True, 2))`` and ``()``.
    """

    def __init__(
        self,
        positional: tuple[_Argument, ...],
        named: tuple[tuple[str, _Argument], ...],
        flatten: Callable[[Any, Any], Any],
    ):
        self.positional = positional
        self.named = named
        self._flatten = flatten
        self._flat: Any = None

    @property
    def flat(self) -> Any:
        """jax's ``FlatTree`` of types and static values: the key of jax's cache."""
        if self._flat is None:
            args = tuple(value for _, value in self.positional)
            kwargs = {name: value for name, (_, value) in self.named}
            with tried():
                self._flat = self._flatten(args, kwargs)
        return self._flat


class JitArguments:
    """Makes such arguments."""

    def __init__(self, flatten: Callable[..., Any], aval: type, abstractify: Callable[[Any], Any]):
        self._flatten = flatten
        self._aval = aval
        self._abstractify = abstractify

    def of(self, jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """The arguments of a call with such values or types; None where one is neither."""
        info, found = jitted._jit_info, None
        nums, names = info.static_argnums, info.static_argnames

        def argument(is_static: bool, value: Any) -> _Argument:
            return is_static, value if is_static else self._types(value)

        with tried():
            count = len(args)
            positional = tuple(
                argument(place in nums or place - count in nums, value)
                for place, value in enumerate(args)
            )
            named = tuple((name, argument(name in names, kwargs[name])) for name in sorted(kwargs))
            found = Arguments(
                positional, named, lambda args, kwargs: self._flatten(args, kwargs, nums, names)
            )
        return found

    def _types(self, value: Any) -> Any:
        if value is None or type(value) is self._aval:
            return value
        if type(value) in (tuple, list):
            return type(value)(map(self._types, value))
        if type(value) is dict:
            return {name: self._types(item) for name, item in value.items()}
        return self._abstractify(value)
