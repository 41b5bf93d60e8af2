"""The values of captured arrays, as an executable that has them built in depends on them.

An array counts by its value, and by where and how it lies. The value is a digest of 256 bits of all
its bits, with the type: no two arrays that differ are known to have one digest, so equal digests
count as equal values. The digest of an array of jax's, which cannot change, is made once for as
long as the array lives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxide import _compat
from jaxide._native.addresses import AddressCache
from jaxide._native.content import Unsettled, dtype_words

# A digest of all bits, the dtype and the shape.
Value = tuple[Any, ...]
# The sharding, whether it is committed, the layout, and whether the type is weak.
Place = tuple[Any, ...]

_VALUES: AddressCache[Value] = AddressCache()
_PLACES: AddressCache[Place] = AddressCache()


def values(constants: Sequence[Any]) -> tuple[Value, ...]:
    """The value of each constant.

    Raises:
      Unsettled: one of them is no array that an executable can have built in.
    """
    return tuple(map(_value, constants))


def places(constants: Sequence[Any]) -> tuple[Place | None, ...]:
    """Where and how each constant lies; None for arrays of numpy's.

    Raises:
      Unsettled: nothing is known of a sharding.
    """
    return tuple(map(_place, constants))


def num_bytes(constants: Sequence[Any]) -> int:
    """Bytes of the elements of constants."""
    return sum(_num_bytes(constant) for constant in constants)


def _num_bytes(constant: Any) -> int:
    return int((jax.random.key_data(constant) if is_key(constant) else constant).nbytes)


def may_change(constant: Any) -> bool:
    """Whether somebody may write to a constant."""
    return not _compat.objects().is_concrete(constant)


def plainly_laid_out(constant: Any) -> Any:
    """A constant, or its elements where these lie otherwise than by default: an executable that is
    called without jax's checks would take them for others."""
    if may_change(constant) or is_key(constant):
        return constant
    layout = constant.format.layout
    is_default = layout is None or _compat.is_default_layout(layout, constant)
    return constant if is_default else np.asarray(constant)


def _value(constant: Any) -> Value:
    if may_change(constant):
        return _of_elements(_elements(constant))
    if constant.is_deleted():
        raise Unsettled("a captured array was deleted")
    value = _VALUES.get(constant)
    if value is None:
        value = _of_array(constant)
        _VALUES.put(constant, value)
    return value


def _place(constant: Any) -> Place | None:
    if may_change(constant):
        return None
    place = _PLACES.get(constant)
    if place is None:
        array: Any = jax.random.key_data(constant) if is_key(constant) else constant
        sharding = _compat.objects().contents.content(array.sharding)
        place = sharding, array.committed, str(array.format.layout), bool(array.weak_type)
        _PLACES.put(constant, place)
    return place


def _elements(constant: Any) -> np.ndarray[Any, Any]:
    if not _compat.objects().is_plain_array(constant):
        raise Unsettled("it captures what is no plain array")
    return np.asarray(constant)


def _of_elements(elements: np.ndarray[Any, Any]) -> Value:
    if elements.dtype.hasobject:
        raise Unsettled("it captures an array of objects")
    data: Any = np.ascontiguousarray(elements).reshape(-1).view(np.uint8)
    digest = hashlib.blake2b(data, digest_size=32).digest()
    return digest, dtype_words(elements.dtype), elements.shape


def _of_array(array: Any) -> Value:
    if not array.is_fully_addressable:
        raise Unsettled("it captures an array of several processes")
    if is_key(array):
        dtype = _compat.objects().contents.content(array.dtype)
        return dtype, *_of_array(jax.random.key_data(array))
    return _of_elements(np.asarray(array))


def is_key(array: Any) -> bool:
    """Whether an array has random keys as elements."""
    return bool(jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended))
