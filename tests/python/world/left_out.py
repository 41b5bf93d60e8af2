"""Leaving an item out of the key: what is remembered then holds for what it should not hold for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxide import _core
from jaxide._jit import captured_arrays
from jaxide._native import content, world


def _in_words(item: str) -> Callable[[], None]:
    return lambda: _core.omit_key_item(item)


def _functions_of_numpy() -> None:
    own = world.World._differences

    def differences(self: Any, number: int) -> frozenset[Any]:
        return frozenset() if self._places[number].name == "numpy" else own(self, number)

    world.World._differences = differences  # type: ignore[method-assign]


def _lowering_rules() -> None:
    content._Writer.rules = lambda self, primitive: ()  # type: ignore[method-assign]


def _callbacks() -> None:
    content._Writer.callback = lambda self, value, depth: ()  # type: ignore[method-assign]


def _objects_among_params() -> None:
    write, of_any = content._Writer.write, content.Contents.content

    def write_any(self: Any, value: Any, depth: int = 0) -> Any:
        try:
            return write(self, value, depth)
        except content.Unsettled:
            return content.name_of(type(value))

    def content_of_any(self: Any, value: Any) -> bytes:
        try:
            return of_any(self, value)
        except content.Unsettled:
            return content.name_of(type(value)).encode()

    content._Writer.write = write_any  # type: ignore[method-assign]
    content.Contents.content = content_of_any  # type: ignore[method-assign]


def _captured_arrays() -> None:
    own = captured_arrays._of_elements
    captured_arrays._of_elements = lambda elements: own(elements * 0)


LEAVE_OUT: dict[str, Callable[[], None]] = {
    **{name: _in_words(name) for name in _core.key_items()},
    "functions of numpy": _functions_of_numpy,
    "lowering rules": _lowering_rules,
    "callbacks": _callbacks,
    "objects among params": _objects_among_params,
    "captured arrays": _captured_arrays,
}
