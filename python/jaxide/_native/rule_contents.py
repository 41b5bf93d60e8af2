"""What a derivative rule consists of, in words. Rules with the same words do the same.

A rule is a function of somebody's module. It is made of its code, defaults, attributes and closure,
of what it finds by global names, and of all that these consist of in turn. Example: the words of a
rule that calls ``helper`` of the same module have the code of ``helper``. What is of an installed
library counts by its name: libraries are taken to be what they are. Of an object that nobody can
say what it consists of, there are no words.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import functools
import gc
import importlib.util
import inspect
import itertools
import re
import struct
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxide._native import rule_sources
from jaxide._native.content import PLAIN, element_text, name_of, text_of
from jaxide._native.derivative_rules import contents
from jaxide._native.global_names import global_name
from jaxide._native.interruptions import is_of_signal
from jaxide._native.rule_sources import (
    imported_by,
    instructions_of,
    is_of_library,
    parts_of,
    places,
)
from jaxide._native.storage import Unstorable

# What another Python makes of the same lines is other code.
BYTECODE = importlib.util.MAGIC_NUMBER.hex()
# Of what a rule may consist: parts, and bytes of arrays and texts.
_MAX_PARTS = 1 << 17
_MAX_BYTES = 1 << 22
# Of tuples in tuples, and of modules in modules.
_MAX_DEPTH = 32


def words(function: types.FunctionType, registry: Mapping[type, Any]) -> bytes:
    """What a function consists of, with the sources of the modules that it may use.

    Args:
      registry: how classes are registered with jax as nodes of trees.

    Raises:
      Unstorable: that cannot be said.
    """
    words_ = Words(registry)
    said = words_.of(function)
    return said + rule_sources.digest(words_.modules)


# ---- libraries ---------------------------------------------------------------------------------


def library_name(value: Any) -> tuple[str, str] | None:
    """The name of a callable of Python or of an installed library; None for anything else."""
    place = global_name(value) if callable(value) else None
    return place if place is not None and is_of_library(place[0]) else None


def owner(function: types.FunctionType) -> str | None:
    """The module whose variables a function has; None where no module has them."""
    name = function.__globals__.get("__name__")
    found = sys.modules.get(name) if type(name) is str else None
    is_own = found is not None and getattr(found, "__dict__", None) is function.__globals__
    return name if is_own else None


def _is_module_of_library(module: types.ModuleType) -> bool:
    return is_of_library(module.__name__) and sys.modules.get(module.__name__) is module


# ---- what code asks for ------------------------------------------------------------------------


class Asked(NamedTuple):
    """The names that code asks for, with all code in it."""

    variables: tuple[str, ...]
    attributes: tuple[str, ...]
    modules: tuple[str, ...]
    # Names that are asked for nothing at once: others get what they stand for.
    handed_on: frozenset[str]


_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "LOAD_SUPER_ATTR"})
_VARIABLES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_CLOSED = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})


@functools.lru_cache(maxsize=1024)
def asked_by(code: types.CodeType) -> Asked:
    """What code asks for."""
    found: dict[str, set[str]] = {field: set() for field in Asked._fields}
    uses = [*_uses(code)]
    # What variables of functions were imported as.
    imported: dict[str, set[str]] = {}
    for use in uses:
        if use.operation in _IMPORTS and use.following.opname.startswith("STORE_"):
            stored, *_ = _names(use.following)
            imported.setdefault(stored, set()).update(use.names)
    for operation, names, following in uses:
        is_asked = following.opname in _ATTRIBUTES
        if operation == "IMPORT_NAME":
            found["modules"].update(names)
        elif operation in _ATTRIBUTES:
            found["attributes"].update(names)
        elif operation in _VARIABLES:
            found["variables"].update(names)
        if operation in _IMPORTS:
            continue
        handed_on = names[operation.startswith("STORE_") : len(names) - is_asked]
        if operation in _VARIABLES | _ATTRIBUTES | _CLOSED:
            found["handed_on"].update(handed_on)
        found["handed_on"].update(*(imported.get(name, ()) for name in handed_on))
    variables, attributes, modules = (tuple(sorted(found[kind])) for kind in Asked._fields[:3])
    return Asked(variables, attributes, modules, frozenset(found["handed_on"]))


_IMPORTS = frozenset({"IMPORT_NAME", "IMPORT_FROM"})


class _Use(NamedTuple):
    """What an instruction does with names."""

    operation: str
    names: tuple[str, ...]
    following: dis.Instruction


def _uses(code: types.CodeType) -> Iterator[_Use]:
    """What code, and all code in it, does with names."""
    instructions = instructions_of(code)
    for place, (instruction, following) in enumerate(itertools.pairwise(instructions)):
        names = _names(instruction)
        if instruction.opname == "IMPORT_NAME":
            names = (imported_by(instructions, place),)
        if names:
            yield _Use(instruction.opname, names, following)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _uses(const)


def _names(instruction: dis.Instruction) -> tuple[str, ...]:
    """The names in an instruction; Python has instructions for two variables."""
    name = instruction.argval
    if type(name) is tuple and "_FAST" in instruction.opname:
        return name
    return (name,) if type(name) is str and instruction.opname not in _NO_NAMES else ()


_NO_NAMES = ("LOAD_CONST", "RETURN_CONST", "KW_NAMES", "COMPARE_OP")


# ---- words -------------------------------------------------------------------------------------


class Words:
    """Says what something consists of: plain values in place, anything else once, by a number."""

    def __init__(self, registry: Mapping[type, Any]) -> None:
        self._registry = registry
        # The modules of somebody's that the code and the classes are of.
        self.modules: set[str] = set()
        self._left, self._bytes_left = _MAX_PARTS, _MAX_BYTES
        # By address, with the objects themselves: some exist for these words alone.
        self._numbers: dict[int, tuple[int, Any]] = {}
        self._objects: list[Any] = []

    def of(self, value: Any) -> bytes:
        """The words of an object, and of all that it consists of.

        Raises:
          Unstorable: that cannot be said.
        """
        try:
            return repr(self._all_of(value)).encode("utf-8", "surrogatepass")
        except Exception as error:
            if isinstance(error, Unstorable) or is_of_signal(error.__traceback__):
                raise
            # Objects of somebody's may refuse to be looked at; an array of jax's may be deleted.
            raise Unstorable(f"there is what cannot be read: {error}") from error

    def _all_of(self, value: Any) -> list[Any]:
        self._number(value)
        said: list[Any] = []
        while len(said) < len(self._objects):
            said.append(self._object(self._objects[len(said)]))
        return said

    def _number(self, value: Any) -> int:
        number = len(self._objects)
        self._numbers[id(value)] = number, value
        self._objects.append(value)
        return number

    def _part(self, value: Any, depth: int = 0) -> Any:
        """A part of something: what it is, or its number."""
        self._count_part(depth)
        class_ = type(value)
        if class_ in PLAIN:
            if class_ in (str, bytes):
                self._count(len(value))
            elif class_ is int:
                self._count(value.bit_length() // 8)
            return PLAIN[class_](value)
        if class_ is tuple:
            return "tuple", [self._part(item, depth + 1) for item in value]
        if class_ in (set, frozenset):
            return class_.__name__, self._elements(value, depth)
        if (known := self._numbers.get(id(value))) is not None:
            return "object", known[0]
        if (place := library_name(value)) is not None:
            self._check_place(place)
            return "global", place
        if isinstance(value, types.ModuleType):
            if not _is_module_of_library(value):
                raise Unstorable(f"nothing tells what a rule asks the module {value.__name__} for")
            return "module", value.__name__
        return "object", self._number(value)

    def _parts(self, values: Iterable[Any]) -> list[Any]:
        return [self._part(value) for value in values]

    def _elements(self, values: Iterable[Any], depth: int) -> list[str]:
        """The elements of a set, whose places among others nothing tells."""
        return sorted(element_text(self._element(value, depth + 1)) for value in values)

    def _element(self, value: Any, depth: int) -> Any:
        if type(value) in PLAIN:
            return self._part(value, depth)
        self._count_part(depth)
        if type(value) is tuple:
            return "tuple", [self._element(item, depth + 1) for item in value]
        if type(value) is frozenset:
            return "frozenset", self._elements(value, depth)
        raise Unstorable(f"a {name_of(type(value))} is in a set")

    def _count_part(self, depth: int) -> None:
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            raise Unstorable("a rule consists of too much")

    def _count(self, num_bytes: int) -> None:
        self._bytes_left -= num_bytes
        if self._bytes_left < 0:
            raise Unstorable("a rule has too many bytes of arrays and texts")

    def _object(self, value: Any) -> Any:
        """What an object is."""
        class_: Any = type(value)
        if (say := _SAID.get(class_)) is not None:
            return say(self, value)
        if issubclass(class_, type):
            return self._class(value)
        if issubclass(class_, np.dtype):
            return self._dtype(value)
        if name_of(class_) in _JITS:
            return self._jit(value)
        if library_name(class_) is None:
            return self._instance(value)
        if class_ is np.ndarray or issubclass(class_, np.generic):
            return self._array(value)
        if isinstance(value, jax.Array):
            return self._array_of_jax(value)
        if name_of(class_) in _WITH_ATTRIBUTES:
            return name_of(class_), self._part(vars(value))
        return self._of_library(value)

    # ---- code ----

    def _function(self, function: types.FunctionType) -> Any:
        code, variables = function.__code__, function.__globals__
        asked = asked_by(code)
        own = [function.__defaults__, function.__kwdefaults__, function.__doc__, vars(function)]
        if _REFLECTION.intersection(asked.attributes):
            raise Unstorable("a rule asks for variables of other code")
        cells = zip(code.co_freevars, contents(function), strict=True)
        closed = [self._named(name, value, asked) for name, value in cells]
        module = variables.get("__name__")
        is_of_theirs = is_of_library(module) and owner(function) is not None
        found = self._constants if is_of_theirs else self._found
        if not is_of_theirs:
            self.modules.add(str(module))
        names = function.__name__, function.__qualname__, str(function.__module__)
        return "function", str(module), names, self._parts((code, *own)), closed, found(function)

    def _found(self, function: types.FunctionType) -> Any:
        """What a function of somebody's finds by global names."""
        asked, variables = asked_by(function.__code__), function.__globals__
        found = [(name, self._variable(function, name, asked)) for name in asked.variables]
        for name in asked.modules:
            candidates = places(str(variables.get("__package__") or ""), name)
            modules = [sys.modules[place] for place in candidates if place in sys.modules]
            if not modules:
                raise Unstorable(f"a rule imports {name}, which was not imported yet")
            found += [(name, self._named(name, module, asked)) for module in modules]
        return found

    def _variable(self, function: types.FunctionType, name: str, asked: Asked) -> Any:
        if name in function.__globals__:
            return self._named(name, function.__globals__[name], asked)
        found: dict[str, Any] = getattr(function, "__builtins__")  # noqa: B009
        if name not in found:
            return "nothing"
        value = found[name]
        if vars(builtins).get(name) is not value:
            return self._part(value)
        self._check_place(("builtins", name))
        return "builtin", name

    def _constants(self, function: types.FunctionType) -> Any:
        """The plain values that a function of a library finds by global names."""
        variables = function.__globals__
        asked = [n for n in asked_by(function.__code__).variables if n in variables]
        return [(n, self._part(variables[n])) for n in asked if _is_constant(variables[n])]

    def _check_place(self, place: tuple[str, str]) -> None:
        if place in _LOOK_UP:
            raise Unstorable(f"nothing tells what a rule finds by {place[1]}")

    def _named(self, name: str, value: Any, asked: Asked) -> Any:
        """What a name of a function's stands for: of a module what the function may ask it for."""
        if isinstance(value, types.ModuleType):
            return self._module(name, value, asked, 0)
        return self._part(value)

    def _module(self, name: str, module: types.ModuleType, asked: Asked, depth: int) -> Any:
        if _is_module_of_library(module):
            return "module", module.__name__
        is_told = name not in asked.handed_on and "getattr" not in asked.variables
        is_told &= "__dict__" not in asked.attributes
        if type(module) is not types.ModuleType or not is_told or depth > _MAX_DEPTH:
            raise Unstorable(f"nothing tells what a rule asks the module {module.__name__} for")
        own = vars(module)
        found = []
        for attribute in asked.attributes:
            value = own.get(attribute)
            if isinstance(value, types.ModuleType):
                found.append((attribute, self._module(attribute, value, asked, depth + 1)))
            elif attribute in own:
                found.append((attribute, self._part(value, depth)))
        if "__getattr__" in own:
            found.append(("__getattr__", self._part(own["__getattr__"], depth)))
        return "module", module.__name__, found

    def _code(self, code: types.CodeType) -> Any:
        own, consts = parts_of(code)
        return "code", *own, self._parts(consts)

    def _jit(self, jit: Any) -> Any:
        own = dict(vars(jit))
        info = own.pop("_jit_info")._asdict()
        options = [(name, text_of(info[name])) for name in info if name not in _OF_FUNCTION]
        return "jit", self._part(own), options

    # ---- values ----

    def _array(self, value: Any) -> Any:
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise Unstorable("an array has objects as elements")
        self._count(array.nbytes)
        flags = value.flags
        layout = flags.c_contiguous, flags.f_contiguous, flags.writeable
        own = self._part(array.dtype), array.shape, array.tobytes()
        return name_of(type(value)), layout, own

    def _array_of_jax(self, value: Any) -> Any:
        if isinstance(value, jax.core.Tracer) or not value.is_fully_addressable:
            raise Unstorable("the elements of an array are not known")
        return "array of jax", bool(value.weak_type), self._part(np.asarray(value))

    def _dtype(self, dtype: Any) -> Any:
        if dtype.metadata:
            raise Unstorable("a dtype has metadata")
        return "dtype", repr(dtype)

    def _class(self, class_: Any) -> Any:
        own = [
            (name, self._part(value))
            for name, value in vars(class_).items()
            if name not in _SAYS_LITTLE
            and not isinstance(value, types.GetSetDescriptorType)
            and not (name == "__doc__" and _is_of_dataclass(class_, value))
        ]
        self.modules.add(str(class_.__module__))
        entry = self._registry.get(class_)
        registered = () if entry is None else (entry.to_iter, entry.from_iter)
        parts = self._parts((type(class_), *class_.__bases__, *registered))
        return "class", name_of(class_), parts, own

    def _instance(self, value: Any) -> Any:
        """An instance of somebody's class."""
        class_ = type(value)
        hidden: list[Any] = [base for base in class_.__mro__ if _hides(base)]
        if hidden:
            raise Unstorable(f"nothing is known of what a {name_of(hidden[0])} has")
        for base, size in _SIZES.items():
            if issubclass(class_, base):
                self._count(size(value))
        plain = [self._part(base_value(value)) for base_value in _values_of(class_)]
        own = dict(getattr(value, "__dict__", {}))
        own.pop("__objclass__", None)
        slots = [
            (name, self._part(_in_slot(member, value)))
            for base in class_.__mro__
            for name, member in vars(base).items()
            if isinstance(member, types.MemberDescriptorType)
        ]
        return "instance", self._part(class_), plain, self._part(own), slots

    def _of_library(self, value: Any) -> Any:
        """An instance of a library's class, by what it is pickled as."""
        class_ = type(value)
        self._count(sys.getsizeof(value))
        try:
            reduced = value.__reduce_ex__(2)
        except Exception as error:
            raise Unstorable(f"nothing is known of a {name_of(class_)}: {error}") from None
        if isinstance(reduced, str):
            module = sys.modules.get(class_.__module__)
            if getattr(module, reduced, None) is not value:
                raise Unstorable(f"nothing is known of a {name_of(class_)}")
            return "global", class_.__module__, reduced
        make, args, *rest = reduced
        state, items, pairs = (*rest, None, None, None)[:3]
        parts = make, args, state, list(items or ()), [*map(tuple, pairs or ())]
        return "made by", self._parts(parts)

    def _builtin(self, value: Any) -> Any:
        """A function in C of a module, or a method of an object."""
        of, name = value.__self__, value.__name__
        if isinstance(of, types.ModuleType):
            if getattr(of, name, None) is not value:
                raise Unstorable(f"{name} is not what its module has")
            return "builtin", of.__name__, name
        return "method", name, self._part(of)

    def _cache(self, cache: Any) -> Any:
        """A function that keeps its results."""
        # The class in C shows its function to the garbage collector alone.
        if not any(cache.__wrapped__ is held for held in gc.get_referents(cache)):
            raise Unstorable(f"nothing tells which function {cache.__name__} keeps the results of")
        return "cache", self._part(vars(cache))

    def _field(self, field: Any) -> Any:
        names = [name for name in field.__slots__ if name not in ("type", "_field_type")]
        kind = getattr(field._field_type, "name", None)
        return "field", kind, [(name, self._part(getattr(field, name))) for name in names]

    def _ufunc(self, ufunc: Any) -> Any:
        name = ufunc.__name__
        if getattr(np, name, None) is not ufunc:
            raise Unstorable(f"nothing is known of the ufunc {name}")
        return "ufunc", name


def _attributes(*names: str) -> Callable[[Words, Any], Any]:
    """Says an object by some of its attributes."""

    def say(words_: Words, value: Any) -> Any:
        return type(value).__name__, words_._parts(getattr(value, name) for name in names)

    return say


def _items(words_: Words, value: Mapping[Any, Any]) -> Any:
    return type(value).__name__, [words_._parts(item) for item in value.items()]


_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)
_GENERIC = ("__name__", "__bound__", "__constraints__", "__covariant__", "__contravariant__")
# What is said of an object of the very class.
_SAID: dict[type, Callable[[Words, Any], Any]] = {
    list: lambda words_, value: ("list", words_._parts(value)),
    dict: _items,
    types.MappingProxyType: _items,
    types.FunctionType: Words._function,
    types.CodeType: Words._code,
    types.MethodType: _attributes("__func__", "__self__"),
    types.BuiltinFunctionType: Words._builtin,
    types.MethodWrapperType: _attributes("__name__", "__self__"),
    **dict.fromkeys(_DESCRIPTORS, _attributes("__name__", "__objclass__")),
    types.CellType: _attributes("cell_contents"),
    functools.partial: _attributes("func", "args", "keywords", "__dict__"),
    functools.cached_property: _attributes("func", "attrname"),
    type(functools.lru_cache(len)): Words._cache,
    staticmethod: _attributes("__func__", "__dict__"),
    classmethod: _attributes("__func__", "__dict__"),
    property: _attributes("fget", "fset", "fdel", "__doc__"),
    dataclasses.Field: Words._field,
    typing.TypeVar: _attributes(*_GENERIC),
    types.UnionType: _attributes("__args__"),
    np.ufunc: Words._ufunc,
    re.Pattern: _attributes("pattern", "flags"),
}
# What consists of its attributes: functions with derivative rules.
_WITH_ATTRIBUTES = frozenset(
    {
        "jax._src.custom_derivatives.custom_jvp",
        "jax._src.custom_derivatives.custom_vjp",
        "jax._src.custom_batching.custom_vmap",
    }
)
_JITS = frozenset({"jaxlib._jax.PjitFunction", "jaxlib._pjit.PjitFunction"})
# What a jit has of its function, which counts whole, and of the place of its definition.
_OF_FUNCTION = ("fun_sourceinfo", "fun_signature")
# Of a class: what does not decide what it and its instances do, and what C makes of it.
_SAYS_LITTLE = frozenset(
    {
        *("__module__", "__firstlineno__", "__static_attributes__", "__dict__", "__weakref__"),
        *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__"),
        *("__orig_bases__", "__parameters__", "__type_params__", "_abc_impl"),
    }
)
# What finds things by names that are no names of code.
_LOOK_UP = frozenset(
    {
        *(("builtins", name) for name in ("__import__", "compile", "eval", "exec", "globals")),
        *(("importlib", "import_module"), ("importlib", "reload"), ("pkgutil", "resolve_name")),
        ("pydoc", "locate"),
    }
)
# Attributes that lead to the variables of other code, or to those of a module.
_REFLECTION = frozenset(
    {"__globals__", "f_globals", "f_locals", "f_back", "__getattribute__", "import_module"}
)
# Classes of plain values, of which others may be made, and what a value is as one of these.
_PLAIN_BASES: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
# The bytes of such values, before they are copied.
_SIZES: dict[Any, Any] = {base: base.__sizeof__ for base in _PLAIN_BASES}


def _values_of(class_: type) -> list[Callable[[Any], Any]]:
    return [value for base, value in _PLAIN_BASES.items() if issubclass(class_, base)]


def _hides(class_: type) -> bool:
    """Whether instances of a class have more than attributes: it is written in C."""
    if class_ is object or class_ in _PLAIN_BASES:
        return False
    is_of_python = bool(class_.__flags__ & _HEAP) and not class_.__flags__ & _IMMUTABLE
    slots = sum(isinstance(own, types.MemberDescriptorType) for own in vars(class_).values())
    # A class in Python adds its slots, and attributes and weak references.
    added = class_.__basicsize__ - (class_.__base__ or object).__basicsize__
    is_of_python &= added <= (slots + 2) * _POINTER
    return not is_of_python or class_.__module__.partition(".")[0] == "jaxlib"


_HEAP, _IMMUTABLE = 1 << 9, 1 << 8
_POINTER = struct.calcsize("P")


def _in_slot(member: types.MemberDescriptorType, value: Any) -> Any:
    try:
        return member.__get__(value)
    except AttributeError:  # nothing was assigned yet
        return inspect.Parameter.empty


def _is_of_dataclass(class_: Any, doc: Any) -> bool:
    """Whether a docstring may be the signature that a dataclass gets: with what defaults print as,
    which may be addresses."""
    is_signature = isinstance(doc, str) and doc.startswith(f"{class_.__name__}(")
    return is_signature and "__dataclass_fields__" in vars(class_)


def _is_constant(value: Any) -> bool:
    """Whether a variable of a library's module is a plain value."""
    return type(value) in _CONSTANTS or isinstance(value, np.generic)


_CONSTANTS = frozenset({*PLAIN, tuple, list, dict, set, frozenset, np.ndarray})
