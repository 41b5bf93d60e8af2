"""What an executable depends on besides the program: the items of its key.

Each item is written by one function, by content (:mod:`jaxide._native.content`). The items of the
program itself are those of its equality (``src/structure/``): equations, params, literals, types,
contexts, effects.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, NamedTuple

from jaxide import _compat, _core
from jaxide._native.content import IDENTITIES, Unsettled, is_genuine

# Variables that the compilers of devices read.
_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "TF_XLA_FLAGS")


class Hashed:
    """A large value that is equal to others that are, and has its hash at hand."""

    __slots__ = ("_hash", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._hash = hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if type(other) is not Hashed:
            return NotImplemented
        return self._hash == other._hash and bool(self.value == other.value)

    def __repr__(self) -> str:
        return repr(self.value)


class Call(NamedTuple):
    """A call of a jit for which an executable is looked for."""

    # What jax's own key has of shardings, layouts and options, in jax's order.
    resolved: tuple[Any, ...]
    context: tuple[Any, ...]
    settings: tuple[Any, ...]
    # The types of the constants.
    const_avals: tuple[Any, ...]
    # How often jax had been changed; None where it is not as ever.
    disturbed: int | None


def _contents(values: Sequence[Any]) -> tuple[Any, ...]:
    """The contents of objects, many of which are one."""
    known: dict[int, Any] = {}
    for value in values:
        if id(value) not in known:
            known[id(value)] = _content(value)
    return tuple(known[id(value)] for value in values)


def _content(value: Any) -> Any:
    return None if value is None else _compat.objects().contents.content(value)


def _each(index: int) -> Callable[[Call], Any]:
    return lambda call: _contents(call.resolved[index])


def _whole(index: int) -> Callable[[Call], Any]:
    return lambda call: _content(call.resolved[index])


class _Exactly:
    """What values are exactly, many of which are mostly the very objects of the call before."""

    def __init__(self) -> None:
        # Both at once, whatever other threads do. The objects are kept, so that they are the same.
        self._last: tuple[tuple[Any, ...], Hashed] = (), Hashed(())

    def __call__(self, values: tuple[Any, ...]) -> Hashed:
        last, exact = self._last
        if not (len(last) == len(values) and all(map(is_, last, values))):
            exact = Hashed(tuple(map(_exact, values)))
            self._last = values, exact
        return exact


# What jax's tracing caches have as key, such as meshes that are set, and every setting of jax, of
# this thread too.
_context, _settings = _Exactly(), _Exactly()


def _exact(value: Any) -> Any:
    """Something that is equal where values are, and of one class."""
    class_ = type(value)
    if class_ in (bool, str, type(None)):
        return class_, value
    if class_ is tuple:
        return tuple(map(_exact, value))
    if class_ in (int, float):
        return class_, repr(value)
    if is_genuine(class_):
        return class_, value
    # A value of the user's, such as that of a context: it is the very object.
    return class_, IDENTITIES.of(value)


def _environment(_: Call) -> Any:
    """Variables of the environment that compilers read."""
    return tuple(_core.environment_variables(_VARIABLES))


def _number_errors(_: Call) -> Any:
    """What becomes of errors in numbers that numpy finds at lowering: stock jax lowers each
    function, and fails each time.

    Raises:
      Unsettled: numpy tells somebody of them each time.
    """
    modes = _compat.numpy_error_state()
    if modes is None:
        raise Unsettled("numpy tells somebody of errors in numbers")
    return modes, any(
        action == "error" and issubclass(RuntimeWarning, category)
        for action, _, category, _, _ in warnings.filters
    )


def _transformations(_: Call) -> Any:
    """How often transformations of XLA's modules were registered: only XLA knows which are."""
    return _compat.transformations().times


def _constants(call: Call) -> Any:
    """How many arrays are captured; their types are the program's."""
    return len(call.const_avals)


def _jax(call: Call) -> bool:
    """That nothing of jax, and of what it lowers with, is another than it was: rules that lower
    call what its modules have. What somebody else's function does cannot be part of a key.

    Raises:
      Unsettled: something is.
    """
    if call.disturbed is None:
        raise Unsettled("somebody has changed jax")
    return True


ITEMS: dict[str, Callable[[Call], Any]] = {
    "jax": _jax,
    "input shardings": _each(0),
    "output shardings": _each(1),
    "input layouts": _each(2),
    "output layouts": _each(3),
    "donation": lambda call: tuple(map(bool, call.resolved[4])),
    "mesh": _whole(5),
    "name": _whole(6),
    "unused arguments": lambda call: bool(call.resolved[7]),
    "inlining": lambda call: bool(call.resolved[8]),
    "compiler options": _whole(9),
    "context": lambda call: _context(call.context),
    "settings": lambda call: _settings(call.settings),
    "environment": _environment,
    "errors in numbers": _number_errors,
    "transformations": _transformations,
    "number of constants": _constants,
}

Key = tuple[tuple[str, Any], ...]


def key_of(call: Call, left_out: frozenset[str] = frozenset()) -> Key:
    """The items of the key of an executable; tests leave some out.

    Raises:
      Unsettled: an item has no content.
    """
    return tuple((name, item(call)) for name, item in ITEMS.items() if name not in left_out)
