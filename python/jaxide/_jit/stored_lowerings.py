"""What programs were lowered to, in the store: a process that comes to one again does not lower it.

The key is what the executable depends on, in words that mean the same in every process: those of
the program and the items of :mod:`jaxide._jit.executable_key`. Under it is the key of the entry
that jax's persistent compilation cache has, and what a jit needs besides (``_compat.Lowered``).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import jax

from jaxide import _compat, _core
from jaxide._jit import captured_arrays
from jaxide._jit.executable_key import Call, Key
from jaxide._native.content import Unsettled, encoded


class StoredLowering:
    """What the store has of a program that is lowered for some shardings and settings, or shall
    have."""

    def __init__(self, key: int, jaxpr: Any, resolved: tuple[Any, ...]):
        self._key = key
        self._jaxpr = jaxpr
        self._resolved = resolved
        # What is to be stored, once nothing else has changed.
        self._lowered: _compat.Lowered | None = None

    @classmethod
    def sought(cls, jaxpr: Any, call: Call, key: Key, consts: Sequence[Any]) -> Any:
        """Where the store has what a closed jaxpr is lowered to; None where it cannot have it.

        Args:
          jaxpr: the closed jaxpr.
          call: the call of the jit.
          key: its items.
          consts: the captured arrays, those of nested programs too.
        """
        if not (_core.is_store_open() and _compat.stores_executables()):
            return None
        if not _compat.lowerings().are_kept() or _compat.transformations().times:
            return None
        try:
            words = _words(jaxpr, call, key, consts)
        except Unsettled:
            return None
        place = _core.key_of_value(words)
        return None if place is None else cls(place, jaxpr, call.resolved)

    def found(self) -> tuple[Any, str] | None:
        """What the program is lowered to, compiled, and the key that jax's cache has for it."""
        lowered = _compat.Lowered.of_value(_core.stored_value(self._key))
        if lowered is None or max(lowered.kept, default=-1) >= len(self._jaxpr.in_avals):
            return None
        lowering = _compat.lowerings().known(lowered, self._jaxpr, self._resolved)
        return None if lowering is None else (lowering, lowered.entry)

    def compile(self, lowering: Any) -> None:
        """Compiles what jax has lowered the program to."""
        self._lowered = _compat.lowerings().compiled(lowering, self._jaxpr, self._resolved)

    def keep(self) -> None:
        """Has the store keep what was compiled."""
        if self._lowered is not None:
            _core.store_value(self._key, tuple(self._lowered))


def numpy_has_warned() -> bool:
    """Whether numpy has warned of an error in numbers from a module of jax. Python may not show
    such a warning again in this process, and so nobody knows that there was one."""
    return any(
        name.startswith("jax._src.") and any(type(key) is tuple for key in registry)
        for name, module in list(sys.modules.items())
        if (registry := vars(module).get("__warningregistry__"))
    )


def names_of(jaxpr: Any) -> tuple[Any, ...]:
    """The names of a program that are in its module."""
    info = _compat.open_part(jaxpr).debug_info
    return info.arg_names, info.result_paths


def _words(jaxpr: Any, call: Call, key: Key, consts: Sequence[Any]) -> bytes:
    """What an executable depends on, and what is in the module that it is made of.

    Raises:
      Unsettled: another process cannot know that it has the same.
    """
    objects, items = _objects(), dict(key)
    known: dict[int, Any] = {}
    known_consts: dict[int, int] = {}

    def written(value: Any) -> Any:
        if id(value) not in known:
            known[id(value)] = objects.write(value)
        return known[id(value)]

    *places, donated, mesh, name, keep_unused, inline, options = call.resolved
    program = _core.graph_of(jaxpr).fingerprint("execution", objects)
    beside = (
        [list(map(written, each)) for each in places],
        list(map(bool, donated)),
        list(map(written, (mesh, name, bool(keep_unused), bool(inline), options))),
        list(map(_captured, consts)),
        # The module has each object once.
        [known_consts.setdefault(id(constant), len(known_consts)) for constant in consts],
        names_of(jaxpr),
        items["environment"],
        items["errors in numbers"],
    )
    return encoded((program, beside))


@functools.cache
def _objects() -> Any:
    return _compat.portable_objects(lambda constant: encoded(_captured(constant)))


def _captured(constant: Any) -> Any:
    """A captured array: its elements, and where they are.

    Raises:
      Unsettled: it is no array that an executable can have built in.
    """
    (value,) = captured_arrays.values([constant])
    if captured_arrays.may_change(constant):
        return value, None
    array: Any = jax.random.key_data(constant) if captured_arrays.is_key(constant) else constant
    place = _objects().write(array.sharding), array.committed, bool(array.weak_type)
    return value, place, str(array.format.layout)
