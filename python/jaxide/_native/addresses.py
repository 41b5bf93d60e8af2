"""What is known of objects for as long as they live."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class ByIdentity:
    """An object in a key, which keeps the object alive and is equal to that of no other object."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.of is other.of

    def __hash__(self) -> int:
        return id(self.of)


class AddressCache(Generic[V]):
    """Values by the very object that they are of, which is not kept alive.

    The address is the fast first look; a weak reference says whether it is still the same object's.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], V]] = {}

    def get(self, of: Any) -> V | None:
        """The value of an object; None where there is none."""
        found = self._entries.get(id(of))
        return found[1] if found is not None and found[0]() is of else None

    def put(self, of: Any, value: V) -> None:
        """Gives an object a value, which goes with it.

        Raises:
          TypeError: nothing can refer to the object weakly.
        """
        address, entries = id(of), self._entries

        def gone(ref: weakref.ref[Any]) -> None:
            if (entry := entries.get(address)) is not None and entry[0] is ref:
                del entries[address]

        entries[address] = weakref.ref(of, gone), value
