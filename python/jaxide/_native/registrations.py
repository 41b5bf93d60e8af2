"""How classes are registered with jax as nodes of trees: what their functions do, as a digest.

What is of jax or of an installed library counts by its name, and by the plain values that it closes
over. Example: ``jax.tree_util.register_dataclass`` counts by the names of the fields, in order.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import types
from collections.abc import Iterable
from typing import Any

from jaxide._native import trust
from jaxide._native.content import PLAIN, name_of
from jaxide._native.derivative_rules import contents
from jaxide._native.rule_contents import BYTECODE, Words, asked_by


def digest(class_: type, functions: Iterable[Any]) -> tuple[str, str]:
    """The version of bytecode, and a digest of what the functions of a registration do. The first
    is empty where no code but that of libraries counts.

    Raises:
      Unstorable: they have something of which that cannot be said.
    """
    together: Any = [*functions, class_]
    names: frozenset[str] = frozenset()
    while True:
        words = _RegistrationWords(class_, names)
        said = words.of(together)
        wanted = words.asked | _MAKE_INSTANCES if words.have_code else names
        if wanted <= names:
            return BYTECODE if words.have_code else "", hashlib.sha256(said).hexdigest()
        names |= wanted


# What is asked of a class when it is called, and when an instance is taken apart.
_MAKE_INSTANCES = frozenset({"__new__", "__init__", "__post_init__", "__iter__", "__slots__"})


class _RegistrationWords(Words):
    """Says what the functions of a registration consist of. Of the class itself they have what is
    asked for by name, so that other methods may be edited."""

    def __init__(self, class_: type, names: frozenset[str]):
        super().__init__()
        self._registered, self._names = class_, names
        self.have_code = False
        # The attributes that code asks for.
        self.asked: frozenset[str] = frozenset()

    def _object(self, value: Any) -> Any:
        class_ = type(value)
        if value is self._registered:
            return "the class", [*map(self._methods, sorted(self._names))]
        if class_ is operator.methodcaller:
            parts: Any = value.__reduce__()[1]
            return "method", self._methods(parts[0]), self._parts(parts[1:])
        if class_ is types.MethodType and isinstance(value.__self__, type):
            return "method", self._methods(value.__func__.__name__), self._part(value.__func__)
        if class_ is types.FunctionType and _is_installed(value):
            return "of a library", name_of(value), [*map(self._beside, contents(value))]
        if class_ is functools.partial and _is_installed(value.func):
            given = (*value.args, *sorted(value.keywords.items()))
            return "partial", self._part(value.func), [*map(self._beside, given)]
        if class_ is types.CodeType:
            self.have_code = True
            self.asked |= frozenset(asked_by(value).attributes)
        return super()._object(value)

    def _methods(self, name: str) -> list[Any]:
        """What classes have under a name: each may call that of the next."""
        found = (vars(base).get(name) for base in self._registered.__mro__)
        return [self._part(method) for method in found if method is not None]

    def _beside(self, value: Any) -> Any:
        """What a function of a library has: what is neither plain nor a function counts by its
        class."""
        if type(value) is tuple:
            return "tuple", [*map(self._beside, value)]
        if value is self._registered or type(value) in (*PLAIN, *_FUNCTIONS):
            return self._part(value)
        return name_of(value if isinstance(value, type) else type(value))


_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial, operator.methodcaller)


def _is_installed(function: Any) -> bool:
    """Whether a function is of jax, of Python or of an installed library."""
    code = getattr(function, "__code__", None)
    return code is not None and trust.is_installed_file(code.co_filename)
