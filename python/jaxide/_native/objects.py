"""What the objects that programs refer to are: descriptions that outlive the process, and sameness.

The core knows most of a program by itself. What is left are the values of literals and constants,
contexts of equations, and params that are objects of jax, of libraries or of the user.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import jax
import numpy as np

from jaxide._native.content import (
    Contents,
    Known,
    Unsettled,
    element_text,
    is_global,
    name_of,
    text_of,
)

# Deeper nesting than this counts by its class.
MAX_DEPTH = 32
# Bytes of a numpy array that is compared by a copy.
MAX_CAPTURED = 1 << 20
_PLAIN = (type(None), bool, int, complex, str, bytes, type(...))
_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
)


class Private(NamedTuple):
    """Private things of jax that are met in programs."""

    literal_type: Any
    context_type: Any
    primitive_type: Any
    wrapped_type: Any
    tracer_type: Any
    # Arrays that literals have as values.
    array_types: tuple[type, ...]
    # Classes of values that never change and print as what they are.
    immutable_types: frozenset[type]
    mesh_type: Any
    # Classes of trees, an instance of which is what these fields are.
    tree_fields: dict[type, tuple[str, ...]]
    concrete_types: tuple[type, ...]
    # Whether two functions of derivative rules say the same; None where they are not read.
    rules_alike: Callable[[Any, Any], bool] | None


class Objects:
    """Descriptions and comparisons of objects."""

    def __init__(self, private: Private, known: Known):
        self._private = private
        self.known = known
        self.contents = Contents(known)
        self.settle_class = self.contents.settle_class
        self.settle_type = self.contents.settle_type

    def describe(self, value: Any) -> bytes:
        """A text that is the same for objects that are, in any process.

        Others may have the same one: an object without a description counts by its class, a
        function by its name.
        """
        return repr(self._parts(value, 0)).encode()

    def describe_settled(self, value: Any) -> bytes:
        """As :meth:`describe`, of an object that is structurally equal for ever.

        Raises:
          Unsettled: the object may change, or nothing is known of it.
        """
        return self.contents.content(value)

    def describe_captured(self, constant: Any) -> bytes:
        """A text for a constant that is built into an executable: of its elements, where they may
        be others later; arrays of jax's are told apart by identity.

        Raises:
          Unsettled: it is no array, or one that is too large to keep a copy.
        """
        if self.is_concrete(constant):
            return b"an array"
        if not self.is_plain_array(constant):
            raise Unsettled(f"a constant within is a {name_of(type(constant))}")
        if np.asarray(constant).nbytes > MAX_CAPTURED:
            raise Unsettled(f"a numpy array within has more than {MAX_CAPTURED} bytes")
        return repr(_elements(constant)).encode()

    def captured(self, constant: Any) -> Any:
        """A constant of a nested program as it is now, as an array that nobody can change."""
        return constant if self.is_concrete(constant) else np.array(constant)

    def is_concrete(self, constant: Any) -> bool:
        """Whether a constant is an array of jax's, which cannot change."""
        return type(constant) in self._private.concrete_types

    def is_plain_array(self, constant: Any) -> bool:
        """Whether a constant is an array of numpy's, and of no class derived from it."""
        return type(constant) in (np.ndarray, *self._private.array_types)

    def is_array(self, constant: Any) -> bool:
        """Whether a constant is an array, of jax's or numpy's."""
        return self.is_concrete(constant) or self.is_plain_array(constant)

    def same_captured(self, one: Any, another: Any) -> bool:
        """Whether two such constants are the same."""
        if one is another or isinstance(one, jax.Array) or isinstance(another, jax.Array):
            return one is another
        return _elements(one) == _elements(another)

    def interchangeable(self, one: Any, another: Any) -> bool:
        """Whether an executable that was made with one object does what one made with the other
        would, now and later; both are settled."""
        if one is another:
            return True
        if type(one) is not type(another):
            return False
        return self.contents.content(one) == self.contents.content(another)

    def outlives(self, value: Any) -> bool:
        """Whether keeping a settled object keeps nothing that its owner may want to be rid of."""
        if isinstance(value, (jax.Array, np.ndarray)):
            return False
        return all(map(_is_permanent, self.contents.identified(value)))

    def _parts(self, value: Any, depth: int) -> Any:
        private, class_ = self._private, type(value)
        if isinstance(value, _PLAIN):
            return class_.__name__, repr(value)
        if isinstance(value, float):
            return class_.__name__, value.hex()
        if isinstance(value, private.literal_type):
            return self._parts(value.val, depth)
        if (array := self._array(value)) is not None:
            return array
        own = name_of(class_)
        if depth == MAX_DEPTH:
            return own

        def parts(values: Any) -> tuple[Any, ...]:
            return tuple(self._parts(item, depth + 1) for item in values)

        if isinstance(value, (tuple, list)):
            return own, parts(value)
        if isinstance(value, dict):
            return own, tuple(parts(item) for item in value.items())
        if isinstance(value, (set, frozenset)):
            return own, tuple(sorted(map(element_text, parts(value))))
        if isinstance(value, (type, *_FUNCTIONS)):
            return own, name_of(value)
        if isinstance(value, functools.partial):
            return own, parts((value.func, value.args, value.keywords))
        if isinstance(value, enum.Enum):
            return own, value.name
        if isinstance(value, np.dtype):
            return own, value.name
        if isinstance(value, private.context_type):
            return own, parts(_fields(value))
        if class_ in private.tree_fields:
            return own, parts(self._within(value))
        if isinstance(value, private.primitive_type):
            return own, value.name
        if isinstance(value, private.mesh_type):
            devices = tuple(getattr(device, "id", None) for device in value.devices.flat)
            return own, text_of(value), value.devices.shape, devices
        if isinstance(value, jax.sharding.NamedSharding):
            return own, parts((value.mesh, value.spec, value.memory_kind))
        if class_ in private.immutable_types:
            return own, text_of(value)
        if dataclasses.is_dataclass(value):
            return own, parts(_values(value))
        return own

    def _array(self, value: Any) -> Any:
        """Type and elements of an array; None for anything else."""
        # Whether something is an array of jax's takes long to say.
        if not isinstance(value, (np.generic, np.ndarray, *self._private.array_types)):
            if not isinstance(value, jax.Array) or isinstance(value, self._private.tracer_type):
                return None
            if not value.is_fully_addressable:
                return "array", str(value.aval)
            if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
                return "keys", str(value.dtype), self._array(jax.random.key_data(value))
        elements = np.asarray(value)
        if elements.dtype == object:
            return None
        # The bytes of a number are in the order of the machine.
        name, ordered = _dtype_words(elements.dtype)
        weak = bool(getattr(value, "weak_type", False))
        return "array", name, elements.shape, weak, elements.astype(ordered, copy=False).tobytes()

    def same(self, one: Any, another: Any) -> bool:
        """Whether two objects are the same to whatever runs a program.

        Functions are by identity, but for derivative rules, which jax makes anew at each trace.
        """
        return self._same(one, another, 0)

    def _same(self, one: Any, another: Any, depth: int) -> bool:
        private = self._private
        class_: Any = type(one)
        if one is another:
            return True
        if class_ is not type(another) or depth == MAX_DEPTH:
            return False
        if isinstance(one, _PLAIN):
            # Zeros of a complex number have signs.
            return repr(one) == repr(another)
        if isinstance(one, float):
            return bool(one.hex() == another.hex())

        def same(ones: Any, others: Any) -> bool:
            return len(ones) == len(others) and all(
                self._same(a, b, depth + 1) for a, b in zip(ones, others, strict=True)
            )

        if isinstance(one, private.literal_type):
            return self._same(one.val, another.val, depth)
        if (array := self._array(one)) is not None:
            return bool(array == self._array(another)) and _is_read(one)
        if (within := self._within(one)) is not None:
            return same(within, self._within(another))
        if class_ in private.immutable_types or isinstance(
            one, (set, frozenset, np.dtype, private.mesh_type, jax.sharding.Sharding)
        ):
            return bool(one == another)
        if isinstance(one, functools.partial):
            parts = [(f.func, f.args, f.keywords) for f in (one, another)]
            return same(*parts)
        if isinstance(one, types.MethodType):
            return one.__func__ is another.__func__ and one.__self__ is another.__self__
        if isinstance(one, (types.FunctionType, private.wrapped_type)):
            alike = private.rules_alike
            return alike is not None and self._is_rule(one) and alike(one, another)
        if _is_frozen(one):
            return same(_values(one), _values(another))
        return False

    def _within(self, value: Any) -> list[Any] | None:
        """What a container, a tree or a context of jax's consists of; None for anything else."""
        if isinstance(value, (tuple, list)):
            return list(value)
        if isinstance(value, dict):
            return list(value.items())
        if isinstance(value, self._private.context_type):
            return _fields(value)
        names = self._private.tree_fields.get(type(value))
        return None if names is None else [getattr(value, name) for name in names]

    def _is_rule(self, function: Any) -> bool:
        """Whether a function is one that jax makes for a derivative rule."""
        return isinstance(function, self._private.wrapped_type) or name_of(function).startswith(
            "jax."
        )


@functools.lru_cache(maxsize=256)
def _dtype_words(dtype: Any) -> tuple[str, Any]:
    """The name of a dtype, which numpy makes anew each time, and the dtype in one byte order."""
    return dtype.name, dtype.newbyteorder("<")


def _elements(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    """The dtype, the shape and the elements of an array of numpy's."""
    elements = np.asarray(array)
    return elements.dtype.str, elements.shape, elements.tobytes()


def _values(value: Any) -> list[Any]:
    """The values of the fields of a dataclass."""
    return [getattr(value, field.name) for field in dataclasses.fields(value)]


def _is_frozen(value: Any) -> TypeGuard[Any]:
    """Whether a value is an instance of a frozen dataclass."""
    return dataclasses.is_dataclass(value) and bool(
        getattr(type(value), "__dataclass_params__").frozen  # noqa: B009
    )


def _is_permanent(value: Any) -> bool:
    """Whether what an executable tells by identity lives as long as the process anyway."""
    if isinstance(value, (type, types.FunctionType)):
        return is_global(value)
    if isinstance(value, enum.Enum):
        return is_global(type(value))
    # Code is that of functions of jax's; builtin functions are those of modules.
    return isinstance(value, (types.CodeType, types.BuiltinFunctionType, np.ufunc))


def _is_read(array: Any) -> bool:
    """Whether the elements of an array were compared, not its type alone."""
    return not isinstance(array, jax.Array) or array.is_fully_addressable


def _fields(context: Any) -> list[Any]:
    """What a context of equations consists of."""
    slots = (slot for class_ in type(context).__mro__ for slot in vars(class_).get("__slots__", ()))
    return [getattr(context, slot, None) for slot in slots if slot != "__weakref__"]
