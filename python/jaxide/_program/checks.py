"""What numbers and names that are given may be, and whether anything may be done."""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Iterable
from typing import Any

# The largest number that the core takes.
MAX_NUMBER = 2**63 - 1
# What can be left out of a file.
DROPPABLE = ("callbacks", "rules", "trees")


class SwitchedOff(NotImplementedError):
    """What needs the native half cannot be done while a setting leaves all to jax."""


def natural(name: str, value: Any) -> int:
    """A whole number that is not negative.

    Raises:
      TypeError: it is no whole number.
      ValueError: it is negative, or has more than 63 bits.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {number}")
    if number > MAX_NUMBER:
        raise ValueError(f"{name} must be less than 2**63, got {number}")
    return number


def position(name: str, value: Any, count: int, of: str) -> int:
    """The position of one of so many things.

    Raises:
      TypeError: it is no whole number.
      IndexError: there are not so many.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None
    if not 0 <= number < count:
        raise IndexError(f"the program has {count} {of}s, there is no {of} {number}")
    return number


def sizes(shape: Any) -> tuple[int | str, ...]:
    """A shape: numbers, and symbolic sizes as texts.

    Raises:
      TypeError: it is none.
      ValueError: a size is negative.
    """
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise TypeError(f"shape must be a sequence of sizes, got {shape!r}")
    found: list[int | str] = []
    for size in shape:
        found.append(size if isinstance(size, str) else natural("a size", size))
    return tuple(found)


def path(name: str, value: Any) -> str:
    """A path of a file.

    Raises:
      TypeError: it is none.
    """
    try:
        return os.fsdecode(value)
    except TypeError:
        raise TypeError(f"{name} must be a str or an os.PathLike, got {value!r}") from None


def names(name: str, value: Any) -> list[str]:
    """Several names.

    Raises:
      TypeError: it is one text, or something else.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a sequence of names, got {value!r}")
    found = list(value)
    if not all(isinstance(each, str) for each in found):
        raise TypeError(f"{name} must be a sequence of names, got {value!r}")
    return found


def droppable(drop: Collection[str]) -> Collection[str]:
    """What is to be left out of a file.

    Raises:
      ValueError: nothing of such a name can be left out.
    """
    is_several = isinstance(drop, Collection) and not isinstance(drop, str)
    if not is_several or not set(drop) <= set(DROPPABLE):
        raise ValueError(f"drop takes a tuple of {', '.join(DROPPABLE)}, got {drop!r}")
    return drop
