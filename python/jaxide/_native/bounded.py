"""Values by key, as many as fit, for any number of threads.

All are plain dicts: CPython's ``OrderedDict`` comes apart, and the process with it, where threads
change one whose keys are compared in Python.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def touch(values: dict[K, V], key: K) -> None:
    """Makes ``key`` the one that goes last, where it is there."""
    with contextlib.suppress(KeyError):  # another thread may drop it
        values[key] = values.pop(key)


def trim(values: dict[K, Any], size: int) -> None:
    """Drops what was put in first, until no more than ``size`` are left."""
    while len(values) > size:
        # Another thread may change it meanwhile.
        with contextlib.suppress(KeyError, RuntimeError, StopIteration):
            del values[next(iter(values))]


_MISSING = object()


class Bounded:
    """Values that are computed when first asked for; those computed first go first.

    Comparing keys is what costs here, so that nothing more is done where a value is known.
    """

    def __init__(self, size: int):
        self._size = size
        self._values: dict[Any, Any] = {}

    def get(self, key: Any, compute: Callable[[], Any]) -> Any:
        """The value of `key`; computed where it has no hash, as an object in a tree may have, or
        cannot be compared."""
        try:
            value = self._values.get(key, _MISSING)
        except Exception:  # of the key's own
            return compute()
        if value is _MISSING:
            value = compute()
            with contextlib.suppress(Exception):
                self._values[key] = value
            trim(self._values, self._size)
        return value
