"""What an object among a program's params is to whatever lowers and runs the program.

The *content* of an object is bytes: two objects with one content can stand for each other in an
executable, now and later. It is made of exact classes, of all bits of numbers, and of the contents
of what an object consists of, whatever ``==`` says of them. What can only be told by identity
(functions that are called back) has a serial number, which no other object of the process ever
has. An object that may change, or of whose class nothing is known, has no content.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import hashlib
import itertools
import re
import struct
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxide._native.addresses import AddressCache

# Deeper nesting than this has no content.
MAX_DEPTH = 32
# A longer text of an element of a set counts by its digest: each set around would double it by
# escaping quotes.
MAX_ELEMENT = 1 << 12
_ADDRESS = re.compile(r"(?:at )?0x[0-9a-fA-F]+")
# Packages whose classes say nothing but what their instances consist of.
_TRUSTED = frozenset({"jax", "jaxlib", "numpy", "ml_dtypes", "builtins", "types", "functools"})


class Unsettled(Exception):
    """A program has an object that may be another thing when it is executed again."""


class Known(NamedTuple):
    """Classes of jax's that are met in programs."""

    literal: Any
    context: Any
    primitive: Any
    # Arrays that literals have as values.
    arrays: tuple[type, ...]
    # Python numbers with a dtype.
    numbers: tuple[type, ...]
    # Classes whose instances never change, and print as what they are.
    immutable: frozenset[type]
    # Classes whose instances consist of the same for as long as they live, and are met often.
    lasting: tuple[type, ...]
    mesh: Any
    partition_spec: Any
    tree: Any
    # Classes of trees, an instance of which is what these fields are.
    fields: dict[type, tuple[str, ...]]
    effect: Any
    aval: Any
    # Classes of what jax makes of the user's function for a callback, modules of its closures.
    callbacks: tuple[type, ...]
    callback_modules: frozenset[str]
    # The class of the dtypes of random keys, and whether an implementation is jax's own.
    key_dtype: Any
    is_own_implementation: Callable[[Any], bool]
    # The rules that lower a primitive; None where they are not jax's own.
    lowering_rules: Callable[[Any], tuple[Any, ...] | None]


def name_of(of: Any) -> str:
    """The module and the name of a class or function."""
    return f"{getattr(of, '__module__', None)}.{getattr(of, '__qualname__', None)}"


def text_of(value: Any) -> str:
    """How a value prints, without addresses."""
    return _ADDRESS.sub("", repr(value))


def element_text(parts: Any) -> str:
    """What an element of a set is sorted and known by."""
    text = repr(parts)
    if len(text) <= MAX_ELEMENT:
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_global(value: Any) -> bool:
    """Whether a class or function is what its module has under its name."""
    found = sys.modules.get(getattr(value, "__module__", None) or "")
    for part in getattr(value, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is value


def is_genuine(class_: type) -> bool:
    """Whether a class is one of jax's or of the libraries that jax is made of."""
    package = (class_.__module__ or "").partition(".")[0]
    return package in _TRUSTED and (is_global(class_) or class_.__flags__ & (1 << 9) == 0)


class Identities:
    """Serial numbers of objects, which keep none of them alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._next = itertools.count(1)
        self._lock = threading.RLock()

    def of(self, value: Any) -> int:
        """The number of an object: the same one each time, and never another object's.

        Raises:
          Unsettled: nothing tells whether the object is still there.
        """
        place, known = id(value), self._known
        found = known.get(place)
        if found is not None and found[0]() is value:
            return found[1]
        number = next(self._next)

        def gone(ref: weakref.ref[Any]) -> None:
            if (entry := known.get(place)) is not None and entry[0] is ref:
                del known[place]

        try:
            ref = weakref.ref(value, gone)
        except TypeError:
            raise Unsettled(f"nothing tells one {name_of(type(value))} from another") from None
        with self._lock:
            found = known.get(place)
            if found is not None and found[0]() is value:
                return found[1]
            known[place] = ref, number
        return number


IDENTITIES = Identities()


class Writer:
    """Writes one content."""

    def __init__(self, known: Known):
        self._known = known
        # Objects that are told apart by identity.
        self.identified: list[Any] = []
        # Whether something was met that may change or whose rules may.
        self._has_mutable = False

    def write(self, value: Any, depth: int = 0) -> Any:
        """Nested tuples of texts, bytes and whole numbers, which no other content has."""
        class_ = type(value)
        if class_ in PLAIN:
            return PLAIN[class_](value)
        if not isinstance(value, self._known.lasting):
            return self._written(value, class_, depth)
        if (found := _LASTING.get(value)) is not None:
            return found
        num_identified, had_mutable = len(self.identified), self._has_mutable
        self._has_mutable = False
        written = self._written(value, class_, depth)
        if not self._has_mutable and len(self.identified) == num_identified:
            with contextlib.suppress(TypeError):  # nothing refers to it weakly
                _LASTING.put(value, written)
        self._has_mutable |= had_mutable
        return written

    def _written(self, value: Any, class_: Any, depth: int) -> Any:
        if depth == MAX_DEPTH:
            raise Unsettled(f"a {name_of(class_)} is nested too deeply")
        if class_ is jax.sharding.SingleDeviceSharding:
            (device,) = value.device_set
            return name_of(class_), self.device(device), self.write(value.memory_kind)
        known = self._known

        def parts(values: Iterable[Any]) -> tuple[Any, ...]:
            return tuple(self.write(item, depth + 1) for item in values)

        if class_ is tuple:
            return "tuple", parts(value)
        if class_ is list:
            self._has_mutable = True
            return "list", parts(value)
        if class_ is dict:
            self._has_mutable = True
            return "dict", tuple(parts(item) for item in value.items())
        if class_ is frozenset:
            return "frozenset", tuple(sorted(map(element_text, parts(value))))
        if class_ is known.literal:
            return "literal", self.write(value.val, depth + 1)
        if class_ in known.arrays:
            return name_of(class_), bool(value.weak_type), *_elements(np.asarray(value))
        if class_ in known.numbers:
            plain = next(base for base in (int, float, complex) if issubclass(class_, base))
            return name_of(class_), self.dtype(value.dtype), PLAIN[plain](plain(value))
        if isinstance(value, np.generic):
            return _scalar(value)
        if isinstance(value, np.dtype):
            return self.dtype(value)
        if class_ is known.key_dtype:
            return self.key_dtype(value)
        if isinstance(value, type):
            return "class", self.identity(value)
        if isinstance(value, enum.Enum):
            return self.member(value)
        if class_ is known.tree:
            return "tree", self.tree(value, depth)
        if class_ in known.callbacks or self._is_callback(value):
            return self.callback(value, depth)
        if (own := self._of_jax(value, parts)) is not None:
            return own
        if name_of(value).startswith("jax.") and _is_function(value) and is_global(value):
            return "function", self.identity(value)
        raise Unsettled(f"a {name_of(class_)} may change")

    def _of_jax(self, value: Any, parts: Callable[[Iterable[Any]], Any]) -> Any:
        """The content of an instance of a class of jax's; None for anything else."""
        known, class_ = self._known, type(value)
        own = name_of(class_)
        if isinstance(value, known.primitive):
            return "primitive", self.identity(value), self.rules(value)
        if not is_genuine(class_):
            return None
        if isinstance(value, known.context):
            return own, parts(slots_of(value))
        if class_ in known.fields:
            return own, parts(getattr(value, name) for name in known.fields[class_])
        if isinstance(value, known.mesh):
            types_ = tuple(map(text_of, value.axis_types or ()))
            devices = parts(value.devices.flat)
            return own, parts(value.axis_names), types_, value.devices.shape, devices
        if isinstance(value, jax.Device):
            return self.device(value)
        if isinstance(value, jax.sharding.NamedSharding):
            ids = getattr(value, "_logical_device_ids", None)
            return own, parts((value.mesh, value.spec, value.memory_kind, ids))
        if class_ is known.partition_spec:
            return own, parts((value.partitions, value.unreduced, value.reduced))
        if isinstance(value, jax.sharding.Sharding):
            return own, text_of(value), parts(getattr(value, "_device_assignment", ()))
        if class_ in known.immutable or isinstance(value, known.effect):
            return own, text_of(value)
        if class_ is known.aval:
            return own, parts((value.shape, value.dtype)), text_of(value)
        if dataclasses.is_dataclass(value) and _is_frozen(value):
            return own, parts(fields_of(value))
        if isinstance(value, tuple):  # a named one
            return own, parts(value)
        return None

    def identity(self, value: Any) -> int:
        """The serial number of an object, which is noted."""
        self.identified.append(value)
        return IDENTITIES.of(value)

    def device(self, device: jax.Device) -> Any:
        """A device of one client, which a process may have several of."""
        own = name_of(type(device))
        return own, device.platform, device.id, device.process_index, id(device.client)

    def member(self, value: enum.Enum) -> Any:
        """A member of an enumeration, or several of its flags: by the very class."""
        class_, name = type(value), value._name_
        if class_._member_map_.get(name) is value:
            return "member", self.identity(class_), name
        if type(value._value_) is not int:
            raise Unsettled(f"a {name_of(class_)} is none of its members")
        return "flags", self.identity(class_), value._value_

    def rules(self, primitive: Any) -> Any:
        """The rules that lower a primitive, jax's own.

        Stock jax runs them for each new function. A rule of the user's may do another thing then.
        """
        rules = self._known.lowering_rules(primitive)
        self._has_mutable = True
        if rules is None:
            raise Unsettled(f"a rule that is not jax's own lowers {primitive}")
        if _NOTED.rules is not None:
            _NOTED.rules[IDENTITIES.of(primitive)] = rules
        return rules

    def dtype(self, value: Any) -> Any:
        """A dtype of numpy's with its byte order."""
        if value.hasobject or value.names or value.metadata or value.subdtype:
            raise Unsettled(f"nothing is known of the dtype {value}")
        return "dtype", value.name, value.str, self.identity(value.type)

    def key_dtype(self, value: Any) -> Any:
        """A dtype of random keys, whose implementation is one of jax's own."""
        if not self._known.is_own_implementation(value._impl):
            raise Unsettled(f"{value.name} is no generator of jax's")
        return "keys", value.name

    def tree(self, tree: Any, depth: int) -> Any:
        """A tree with the classes of its nodes and of their keys."""
        if depth >= MAX_DEPTH:
            raise Unsettled("a tree is nested too deeply")
        node = tree.node_data()
        if node is None:
            return "leaf", tree.num_leaves
        class_, data = node
        children = tuple(self.tree(child, depth + 1) for child in tree.children())
        return self.identity(class_), self._node_data(data, depth), children

    def _node_data(self, data: Any, depth: int) -> Any:
        try:
            return self.write(data, depth + 1)
        except Unsettled:
            # Whoever is called back looks at the very object.
            return self.identity(data)

    def callback(self, value: Any, depth: int) -> Any:
        """What is called back is the very object; what is around it is jax's."""
        own = name_of(type(value))

        def within(values: Iterable[Any]) -> tuple[Any, ...]:
            return tuple(self._called(item, depth + 1) for item in values)

        if self._is_callback(value):
            if value.__defaults__ or value.__kwdefaults__:
                raise Unsettled(f"{name_of(value)} has defaults")
            return own, self.identity(value.__code__), within(_cells(value))
        return own, within(fields_of(value))

    def _called(self, value: Any, depth: int) -> Any:
        if depth >= MAX_DEPTH:
            raise Unsettled("a callback is nested too deeply")
        if isinstance(value, types.MethodType):
            return "method", self.identity(value.__func__), self._receiver(value.__self__)
        if type(value) in self._known.callbacks or self._is_callback(value):
            return self.callback(value, depth)
        if type(value) in PLAIN or type(value) is self._known.tree:
            return self.write(value, depth)
        return "object", self._receiver(value)

    def _receiver(self, value: Any) -> Any:
        if _is_of_module(value):
            # It lives as long as its module, and cannot be referred to weakly.
            _KEPT[id(value)] = value
            self.identified.append(value)
            return "permanent", id(value)
        return self.identity(value)

    def _is_callback(self, value: Any) -> bool:
        """Whether a function is a closure that jax makes around the user's."""
        return (
            type(value) is types.FunctionType
            and value.__module__ in self._known.callback_modules
            and "<locals>" in value.__qualname__
            and value.__globals__.get("__name__") == value.__module__
        )


def encoded(written: Any) -> bytes:
    return repr(written).encode("utf-8", "surrogatepass")


# The contents of meshes and contexts, which jax makes once and has in each program.
_LASTING: AddressCache[Any] = AddressCache()

# Ufuncs of modules that were called back.
_KEPT: dict[int, Any] = {}

_bits: Callable[[float], bytes] = lambda value: struct.pack("<d", value)
PLAIN: dict[type, Callable[[Any], Any]] = {
    type(None): lambda _: "None",
    type(...): lambda _: "...",
    bool: lambda value: ("bool", int(value)),
    int: lambda value: ("int", hex(value)),
    str: lambda value: ("str", value),
    bytes: lambda value: ("bytes", value),
    float: lambda value: ("float", _bits(value)),
    complex: lambda value: ("complex", _bits(value.real), _bits(value.imag)),
}


class _Noted(threading.local):
    """The rules of the primitives that were met, where somebody asks."""

    def __init__(self) -> None:
        self.rules: dict[int, Any] | None = None


_NOTED = _Noted()


@contextlib.contextmanager
def noting_rules() -> Iterator[dict[int, Any]]:
    """The rules that lower the primitives whose contents are asked for in this context."""
    before, _NOTED.rules = _NOTED.rules, {}
    try:
        yield _NOTED.rules
    finally:
        _NOTED.rules = before


class Contents:
    """The contents of objects."""

    def __init__(self, known: Known):
        self._known = known
        # Those of primitives, with the rules that are in them.
        self._primitives: AddressCache[tuple[Any, bytes]] = AddressCache()

    def content(self, value: Any) -> bytes:
        """What an object is to an executable.

        Raises:
          Unsettled: it may change, or nothing is known of it.
        """
        writer = Writer(self._known)
        if not isinstance(value, self._known.primitive):
            return encoded(writer.write(value))
        rules, found = writer.rules(value), self._primitives.get(value)
        if found is None or found[0] != rules:
            found = rules, encoded(writer.write(value))
            self._primitives.put(value, found)
        return found[1]

    def identified(self, value: Any) -> list[Any]:
        """The objects in a settled one that only identity tells apart."""
        writer = Writer(self._known)
        writer.write(value)
        return writer.identified

    def settle_class(self, name: str) -> None:
        """Makes sure that the name of a class of enums or named tuples tells which one it is.

        Raises:
          Unsettled: it may be the user's.
        """
        if name not in _SETTLED_CLASSES:
            module, _, qualname = name.rpartition(".")
            if module.partition(".")[0] not in _TRUSTED:
                raise Unsettled(f"a {name} is no class of jax's")
            found = getattr(sys.modules.get(module), qualname, None)
            if not (isinstance(found, type) and found.__module__ == module):
                raise Unsettled(f"a {name} is no class of jax's")
            _SETTLED_CLASSES.add(name)

    def settle_type(self, aval: Any) -> None:
        """Makes sure that the text of an array type tells which one it is.

        Raises:
          Unsettled: its dtype or its mesh may be another one of the same name.
        """
        if type(aval) is not self._known.aval:
            raise Unsettled(f"a value is a {name_of(type(aval))}")
        writer = Writer(self._known)
        writer.write(aval.dtype)
        mesh = aval.sharding.mesh
        if not all(type(name) is str for name in mesh.axis_names):
            raise Unsettled("an axis of a mesh has a name that is no text")


_SETTLED_CLASSES: set[str] = set()


def _scalar(value: np.generic) -> Any:
    if type(value) is not value.dtype.type or value.dtype.hasobject or value.dtype.names:
        raise Unsettled(f"a {name_of(type(value))} is no plain number")
    return "scalar", *_elements(np.asarray(value))


def _elements(elements: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """The dtype, the shape and all bits of an array."""
    if elements.dtype.hasobject:
        raise Unsettled("an array has objects as elements")
    return *dtype_words(elements.dtype), elements.shape, elements.tobytes()


@functools.lru_cache(maxsize=256)
def dtype_words(dtype: Any) -> tuple[str, str]:
    """The name of a dtype, which numpy makes anew each time, and how numpy writes it."""
    return dtype.name, dtype.str


def _is_of_module(value: Any) -> bool:
    """Whether something is a ufunc of a module: not one that ``np.frompyfunc`` has made."""
    if type(value) is not np.ufunc:
        return False
    modules = (np, sys.modules.get("scipy.special"))
    return any(getattr(module, value.__name__, None) is value for module in modules)


def _is_function(value: Any) -> bool:
    return isinstance(value, (types.FunctionType, types.BuiltinFunctionType))


def _is_frozen(value: Any) -> bool:
    return bool(getattr(type(value), "__dataclass_params__").frozen)  # noqa: B009


def fields_of(value: Any) -> list[Any]:
    """The values of the fields of a dataclass."""
    return [getattr(value, field.name) for field in dataclasses.fields(value)]


def slots_of(value: Any) -> list[Any]:
    """The values of the slots of an object."""
    slots = (slot for class_ in type(value).__mro__ for slot in vars(class_).get("__slots__", ()))
    return [getattr(value, slot, None) for slot in slots if slot != "__weakref__"]


def _cells(function: types.FunctionType) -> list[Any]:
    """What a closure refers to."""
    return [cell.cell_contents for cell in function.__closure__ or ()]
