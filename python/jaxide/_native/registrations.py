"""How classes are registered with jax as nodes of trees: what their functions do, as a digest.

What is of jax or of an installed library counts by its name, and by the plain values that it closes
over. Example: ``jax.tree_util.register_dataclass`` counts by the names of the fields, in order. A
class counts whole where somebody's code takes its nodes apart or makes them: such code may ask a
node for anything.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import types
from collections.abc import Mapping, Sequence
from typing import Any

from jaxide._native import trust
from jaxide._native.content import PLAIN, name_of
from jaxide._native.derivative_rules import contents
from jaxide._native.rule_contents import BYTECODE, Words, asked_by, owner
from jaxide._native.rule_sources import is_of_library


def digest(class_: type, registry: Mapping[type, Any]) -> tuple[str, str]:
    """The version of bytecode, and a digest of what the functions do that a class is registered
    with, or of how it is made if it is not registered. The first is empty where no code but that of
    libraries counts.

    Raises:
      Unstorable: they have something of which that cannot be said.
    """
    entry = registry.get(class_)
    functions = () if entry is None else (entry.to_iter, entry.from_iter)
    words = _RegistrationWords(class_, registry, is_whole=False)
    said = words.of([*functions, class_])
    if words.asks_class or (_calls_class(functions) and _has_own_constructor(class_)):
        words = _RegistrationWords(class_, registry, is_whole=True)
        said = words.of([*functions, class_])
    return BYTECODE if words.have_code else "", hashlib.sha256(said).hexdigest()


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

    def _object(self, value: Any) -> Any:
        class_ = type(value)
        if value is self._registered and not self._is_whole:
            return "the class", name_of(value), self._fields(value)
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

    def _fields(self, class_: Any) -> Any:
        """What the constructor of a dataclass makes of its own accord."""
        fields = vars(class_).get("__dataclass_fields__", {}).values()
        return [(field.name, self._part(field)) for field in fields if not field.init]

    def _methods(self, name: str) -> list[Any]:
        """What classes have under a name: each may call that of the next."""
        found = (vars(base).get(name) for base in self._registered.__mro__)
        return [self._part(method) for method in found if method is not None]

    def _beside(self, value: Any) -> Any:
        """What a function of a library has: what is neither plain nor can be called counts by its
        class."""
        if type(value) in (tuple, list):
            return type(value).__name__, [*map(self._beside, value)]
        if type(value) is dict:
            return "dict", [*map(self._beside, value.items())]
        if value is self._registered or type(value) in PLAIN:
            return self._part(value)
        if isinstance(value, type):
            return name_of(value)
        return self._part(value) if callable(value) else name_of(type(value))


def _is_installed(function: Any) -> bool:
    """Whether a function is of jax, of Python or of an installed library."""
    code = getattr(function, "__code__", None)
    return code is not None and trust.is_installed_file(code.co_filename)


def _takes_attributes(function: types.FunctionType) -> bool:
    """Whether a function that is of no module, such as one of equinox, asks for attributes as they
    are kept."""
    attributes = asked_by(function.__code__).attributes
    return owner(function) is None and _OF_ATTRIBUTES.issuperset(attributes)


_OF_ATTRIBUTES = frozenset({"__dict__", "get"})


def _calls_class(functions: Sequence[Any]) -> bool:
    """Whether nodes are made by calling the class."""
    if not functions:
        return True
    make = functions[1]
    function = getattr(make.func if isinstance(make, functools.partial) else make, "__func__", make)
    function = function.func if isinstance(function, functools.partial) else function
    makes_empty = _is_installed(function) and "__new__" in function.__code__.co_names
    return not makes_empty


def _has_own_constructor(class_: type) -> bool:
    """Whether somebody's code runs when a class is called."""
    places = [(base, name) for base in class_.__mro__ for name in _CONSTRUCTORS]
    meta: Any = type(class_)
    places += [(base, "__call__") for base in meta.__mro__]
    found = [vars(base).get(name) for base, name in places if not is_of_library(base.__module__)]
    return any(_is_own(getattr(made, "__func__", made)) for made in found if made is not None)


_CONSTRUCTORS = ("__new__", "__init__", "__post_init__", "__setattr__")


def _is_own(value: Any) -> bool:
    """Whether somebody has written a constructor; dataclasses and attrs make theirs."""
    if not isinstance(value, types.FunctionType):
        return True
    code = value.__code__
    is_made = code.co_qualname.startswith("__create_fn__.<locals>.")
    is_made |= code.co_filename.startswith("<attrs generated")
    return not is_made and not _is_installed(value)
