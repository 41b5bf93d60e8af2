"""The values of captured arrays, as an executable that has them built in depends on them.

An array counts by its value, and by where and how it lies. The value is a digest of 256 bits of all
its bits, with the type: no two arrays that differ are known to have one digest, so equal digests
count as equal values. The digest of an array of jax's, which cannot change, is made once for as
long as the array lives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxide import _compat
from jaxide._addresses import AddressCache
from jaxide._content import Unsettled, dtype_words

Value = tuple[Any, ...]


class Digest(NamedTuple):
    """What a captured array is."""

    # All bits, dtype and shape.
    value: Value
    # The class, the sharding, the layout, whether it is committed and of a weak type.
    place: Any


_DIGESTS: AddressCache[Digest] = AddressCache()


def digests(constants: Sequence[Any]) -> tuple[Digest, ...]:
    """What each constant is.

    Raises:
      Unsettled: one of them is no array that an executable can have built in.
    """
    return tuple(map(_digest, constants))


def num_bytes(constants: Sequence[Any]) -> int:
    """Bytes of the elements of constants."""
    return sum(_num_bytes(constant) for constant in constants)


def _num_bytes(constant: Any) -> int:
    is_key = jax.dtypes.issubdtype(constant.dtype, jax.dtypes.extended)
    return int((jax.random.key_data(constant) if is_key else constant).nbytes)


def may_change(constant: Any) -> bool:
    """Whether somebody may write to a constant."""
    return not _compat.objects().is_concrete(constant)


def plainly_laid_out(constant: Any) -> Any:
    """A constant, or its elements where these lie otherwise than by default: an executable that is
    called without jax's checks would take them for others."""
    if may_change(constant) or jax.dtypes.issubdtype(constant.dtype, jax.dtypes.extended):
        return constant
    layout = constant.format.layout
    is_default = layout is None or _compat.is_default_layout(layout, constant)
    return constant if is_default else np.asarray(constant)


def _digest(constant: Any) -> Digest:
    if may_change(constant):
        return Digest(_of_elements(_elements(constant)), None)
    if constant.is_deleted():
        raise Unsettled("a captured array was deleted")
    digest = _DIGESTS.get(constant)
    if digest is None:
        digest = _of_array(constant)
        _DIGESTS.put(constant, digest)
    return digest


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


def _of_array(array: Any) -> Digest:
    if not array.is_fully_addressable:
        raise Unsettled("it captures an array of several processes")
    contents = _compat.objects().contents
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        data = _of_array(jax.random.key_data(array))
        return Digest((contents.content(array.dtype), *data.value), data.place)
    layout = str(array.format.layout)
    place = contents.content(array.sharding), array.committed, layout, bool(array.weak_type)
    return Digest(_of_elements(np.asarray(array)), place)
