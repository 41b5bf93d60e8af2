"""How classes are registered with jax as nodes of trees: what their functions do, as a digest.

What is of jax or of an installed library counts by its name, and by the plain values that it closes
over. Example: ``jax.tree_util.register_dataclass`` counts by the names of the fields, in order. A
class counts whole where somebody's code takes its nodes apart or makes them: such code may ask a
node for anything.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import operator
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from jaxide._native import rule_sources, trust
from jaxide._native.content import PLAIN, name_of
from jaxide._native.derivative_rules import contents
from jaxide._native.interruptions import is_of_signal
from jaxide._native.rule_contents import BYTECODE, Words, asked_by, owner
from jaxide._native.rule_sources import is_of_library


class Digest(NamedTuple):
    """What the functions do that a class is registered with."""

    # The version of bytecode; empty where no code but that of libraries counts.
    bytecode: str
    digest: str
    # Whether somebody's own code has nodes of the class.
    is_whole: bool


def digest(class_: type, registry: Mapping[type, Any], *, is_whole: bool = False) -> Digest:
    """What the functions do that a class is registered with, or how it is made if it is not
    registered.

    Args:
      is_whole: whether somebody's own code has nodes of the class in any case.

    Raises:
      Unstorable: they have something of which that cannot be said.
    """
    entry = registry.get(class_)
    functions = () if entry is None else (entry.to_iter, entry.from_iter)
    words = _RegistrationWords(class_, registry, is_whole=is_whole)
    said = words.of([*functions, class_])
    if not is_whole and (words.asks_class or _runs_own_code(class_, functions, words.texts)):
        return digest(class_, registry, is_whole=True)
    if is_whole:
        said += rule_sources.digest(words.modules)
    bytecode = BYTECODE if words.have_code else ""
    return Digest(bytecode, hashlib.sha256(said).hexdigest(), is_whole)


def digest_of(values: Sequence[Any], registry: Mapping[type, Any]) -> str:
    """What values of nodes consist of.

    Raises:
      Unstorable: that cannot be said.
    """
    return hashlib.sha256(Words(registry).of([*values])).hexdigest()


def is_made_plainly(class_: Any) -> bool:
    """Whether a named tuple is made of its fields, by no code of somebody's."""
    make = getattr(class_.__new__, "__globals__", {})
    is_own = str(make.get("__name__")).startswith("namedtuple_")
    return is_own and class_.__init__ is object.__init__ and type(class_) is type


class _RegistrationWords(Words):
    """Says what the functions of a registration consist of."""

    def __init__(self, class_: type, registry: Mapping[type, Any], *, is_whole: bool):
        super().__init__(registry)
        self._registered, self._is_whole = class_, is_whole
        self.have_code = False
        # Whether somebody's code has nodes of the class.
        self.asks_class = False
        # Texts that functions of libraries close over, such as names of fields.
        self.texts: set[str] = set()

    def _object(self, value: Any) -> Any:
        class_ = type(value)
        if value is self._registered and not self._is_whole:
            overrides = [(name, self._beside(own)) for name, own in _overrides(value).items()]
            return "the class", name_of(value), overrides
        if class_ is operator.methodcaller:
            parts: Any = value.__reduce__()[1]
            return "method", self._methods(parts[0]), self._parts(parts[1:])
        if class_ is types.MethodType and isinstance(value.__self__, type):
            return "method", self._methods(value.__func__.__name__), self._part(value.__func__)
        if class_ is types.FunctionType:
            if _is_installed(value):
                return "of a library", name_of(value), [*map(self._beside, contents(value))]
            self.asks_class |= not _takes_attributes(value)
        if class_ is functools.partial and _is_installed(value.func):
            given = (*value.args, *sorted(value.keywords.items()))
            return "partial", self._part(value.func), [*map(self._beside, given)]
        if class_ is types.CodeType:
            self.have_code = True
        return super()._object(value)

    def _methods(self, name: str) -> list[Any]:
        """What classes have under a name: each may call that of the next."""
        found = (vars(base).get(name) for base in self._registered.__mro__)
        return [self._part(method) for method in found if method is not None]

    def _beside(self, value: Any) -> Any:
        """What a function of a library has: what is neither plain nor can be called counts by its
        class."""
        class_ = type(value)
        if class_ in (tuple, list):
            return class_.__name__, [*map(self._beside, value)]
        if isinstance(value, (dict, types.MappingProxyType)):
            return class_.__name__, [*map(self._beside, value.items())]
        if class_ is str:
            self.texts.add(value)
        if class_ in (set, frozenset):
            self.texts.update(item for item in value if type(item) is str)
        if isinstance(value, type) and value is not self._registered:
            return name_of(value)
        is_kept = class_ in (*PLAIN, set, frozenset) or value is self._registered
        if is_kept or callable(value) or not is_of_library(class_.__module__):
            return self._part(value)
        return name_of(class_)


def _is_installed(function: Any) -> bool:
    """Whether a function is of jax, of Python or of an installed library."""
    code = getattr(function, "__code__", None)
    return code is not None and trust.is_installed_file(code.co_filename)


def _takes_attributes(function: types.FunctionType) -> bool:
    """Whether a function that is of no module, such as one of equinox, asks for attributes as they
    are kept."""
    attributes = asked_by(function.__code__).attributes
    return owner(function) is None and _OF_ATTRIBUTES.issuperset(attributes)


_OF_ATTRIBUTES = frozenset({"__dict__", "get", "__new__", "__setattr__"})


def _calls_class(functions: Sequence[Any]) -> bool:
    """Whether nodes are made by calling the class, and not as empty objects by a library."""
    if not functions:
        return True
    make = functions[1]
    while isinstance(make, (functools.partial, types.MethodType)):
        make = make.func if isinstance(make, functools.partial) else make.__func__
    if not isinstance(make, types.FunctionType) or "__new__" not in make.__code__.co_names:
        return True
    return not _is_installed(make) and owner(make) is not None


def _runs_own_code(class_: type, functions: Sequence[Any], fields: Collection[str]) -> bool:
    """Whether somebody's code runs when a library takes nodes apart or makes them."""
    owns = [vars(base) for base in class_.__mro__ if not is_of_library(base.__module__)]
    hooks = [own.get(name) for own in owns for name in _HOOKS]
    if any(hook is not None and not _is_of_python(hook) for hook in hooks):
        return True
    if any(_computes(own.get(field)) for own in owns for field in fields):
        return True
    if any(map(_is_code, _overrides(class_).values())):
        return True
    if not _calls_class(functions):
        return False
    made: Any = dataclasses.fields(class_) if dataclasses.is_dataclass(class_) else ()
    if any(not field.init or field.name not in fields for field in made):
        return True  # with what its constructor makes of its own accord
    meta: Any = type(class_)
    metas = [vars(base) for base in meta.__mro__ if not is_of_library(base.__module__)]
    found = [own.get(name) for own in owns for name in _CONSTRUCTORS]
    found += [own.get("__call__") for own in metas]
    return any(_is_own(getattr(make, "__func__", make)) for make in found if make is not None)


# What is asked for attributes.
_HOOKS = ("__getattribute__", "__getattr__", "__dict__")
_CONSTRUCTORS = ("__new__", "__init__", "__post_init__", "__setattr__", "__attrs_attrs__")


def _computes(value: Any) -> bool:
    """Whether a field is more than a value: a property or another descriptor."""
    has_hooks = hasattr(type(value), "__get__") or hasattr(type(value), "__set__")
    return has_hooks and not _is_of_python(value) and type(value) is not types.FunctionType


def _is_of_python(value: Any) -> bool:
    return isinstance(value, (types.GetSetDescriptorType, types.MemberDescriptorType))


def _overrides(class_: type) -> dict[str, Any]:
    """What a class has of somebody's in place of what a base of a library has: the library's code
    may ask for it."""
    theirs = [vars(base) for base in class_.__mro__ if is_of_library(base.__module__)]
    owns = [vars(base) for base in class_.__mro__ if not is_of_library(base.__module__)]
    known = {name for own in theirs for name in own if not _is_dunder(name)} - {"_abc_impl"}
    found = {name: value for own in reversed(owns) for name, value in own.items() if name in known}
    return {name: found[name] for name in sorted(found) if not _is_installed(found[name])}


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_code(value: Any) -> bool:
    return callable(value) or hasattr(type(value), "__get__")


def _is_own(value: Any) -> bool:
    """Whether somebody has written a constructor; dataclasses make theirs."""
    if not isinstance(value, types.FunctionType):
        return True
    is_made = value.__code__.co_qualname.startswith("__create_fn__.<locals>.")
    return not is_made and not _is_installed(value)


def order(class_: type, registry: Mapping[type, Any], kept: Any, num_children: int) -> Any:
    """In which order a node has its children: which attributes of it they are, and which of them
    come of taking it apart. What is of a library counts by name otherwise, and may go by the order
    of a set. None where nothing tells, as for nodes that ask their children for something.

    Args:
      kept: what jax keeps of the node.
    """
    entry = registry.get(class_)
    if entry is None or _is_told(entry) or hasattr(class_, "__del__"):
        return None
    marks = tuple(object() for _ in range(num_children))
    places = {id(mark): place for place, mark in enumerate(marks)}
    try:
        made = entry.from_iter(kept, marks)
        taken = [places.get(id(child), -1) for child in entry.to_iter(made)[0]]
        own = vars(made)
    except Exception as error:
        if is_of_signal(error.__traceback__):
            raise
        return None
    return sorted((str(n), places[id(v)]) for n, v in own.items() if id(v) in places), taken


def _is_told(entry: Any) -> bool:
    """Whether the functions of a registration say in which order they have children: those of
    jax's dataclasses close over names, and those of equinox have them in their code."""
    function = entry.to_iter
    if not isinstance(function, types.FunctionType):
        return False
    is_of_jax = trust.is_own_function(function)
    name = function.__qualname__
    return (is_of_jax and name.startswith("register_dataclass.")) or owner(function) is None
