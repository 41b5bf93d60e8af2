"""Which rules lower primitives, and whether they are jax's own."""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import sys
import types
import weakref
from collections.abc import Iterable
from typing import Any

import jax
import jaxlib
import numpy as np

from jaxide import _core
from jaxide._compat.symbols import symbol
from jaxide._native import trust

_FOLDERS = tuple(
    os.path.dirname(os.path.abspath(module.__file__ or "")) + os.sep for module in (jax, jaxlib)
)
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PACKAGES = frozenset({"jax", "jaxlib", "numpy", "ml_dtypes", "builtins", "functools", "operator"})
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
# Deeper than this nothing is looked for.
_MAX_DEPTH = 24


def is_file_of_jax(filename: str) -> bool:
    """Whether a file is one of the installed jax."""
    return os.path.abspath(filename).startswith(_FOLDERS)


def is_internal_file(filename: str) -> bool:
    """Whether a file is one of jax's or of jaxide's."""
    return os.path.abspath(filename).startswith((*_FOLDERS, _OWN)) or filename.startswith("<frozen")


class LoweringRules:
    """The rules that are registered, looked at each time anew."""

    def __init__(self) -> None:
        self._rules = symbol("interpreters.mlir:_lowerings")
        self._by_platform = symbol("interpreters.mlir:_platform_specific_lowerings")
        # By the address of a rule that is jax's own, which is kept.
        self._own: dict[int, tuple[Any, Any]] = {}

    def of(self, primitive: Any) -> tuple[Any, ...] | None:
        """The rules by which a primitive is lowered, by their addresses, which nothing else will
        have; None where one of them is not jax's own."""
        tables = ((None, self._rules), *self._by_platform.items())
        found = []
        for platform, table in tables:
            entry = table.get(primitive)
            if entry is not None:
                rule = getattr(entry, "rule", entry)
                if not self._is_own(rule):
                    return None
                found.append((platform, id(rule), bool(getattr(entry, "inline", True))))
        return tuple(found)

    def _is_own(self, rule: Any) -> bool:
        code = getattr(rule, "__code__", None)
        known = self._own.get(id(rule))
        if known is not None and known[1] is code:
            return True
        if not _Reader().is_own(rule, 0):
            return False
        self._own[id(rule)] = rule, code
        return True


@functools.cache
def lowering_rules() -> LoweringRules:
    """The rules that are registered."""
    return LoweringRules()


class _Reader:
    """Looks through what a rule consists of."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}

    def is_own(self, value: Any, depth: int) -> bool:
        """Whether something is jax's, and all that it refers to of its own."""
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            return True
        if id(value) in self._seen:
            return True
        if depth > _MAX_DEPTH:
            return False
        self._seen[id(value)] = value

        def within(values: Iterable[Any]) -> bool:
            return all(self.is_own(item, depth + 1) for item in values)

        if isinstance(value, types.FunctionType):
            # Whoever gives it another code is noticed, wherever it is kept.
            _core.watch_function(value)
            return _is_function_of_jax(value) and within(_parts(value))
        if isinstance(value, trust.PARTIAL):
            return within((value.func, *value.args, *value.keywords.values()))
        if isinstance(value, (types.MethodType,)):
            return within((value.__func__, value.__self__))
        if type(value) in (tuple, list, frozenset, set):
            return within(value)
        if type(value) is dict:
            return within((*value, *value.values()))
        if isinstance(value, type):
            return _package(value.__module__) in _PACKAGES and _is_named(value)
        if isinstance(value, types.BuiltinFunctionType):
            owner = value.__self__
            return isinstance(owner, types.ModuleType) or owner is None or within((owner,))
        if isinstance(value, types.ModuleType):
            return _package(value.__name__) in _PACKAGES
        if isinstance(value, (np.dtype, np.ufunc, np.generic, weakref.ref, property)):
            return True
        if hasattr(value, "__wrapped__"):
            return within((value.__wrapped__,))
        class_ = type(value)
        if not self.is_own(class_, depth + 1):
            return False
        if isinstance(value, enum.Enum):
            return True
        return within(_state(value))


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _is_function_of_jax(function: types.FunctionType) -> bool:
    """Whether the code of a function is from a file of the installed jax, and its module jax's."""
    module = sys.modules.get(function.__globals__.get("__name__", ""))
    return (
        is_file_of_jax(function.__code__.co_filename)
        and module is not None
        and vars(module) is function.__globals__
    ) or _is_of_library(function)


def _is_of_library(function: types.FunctionType) -> bool:
    """Whether a function is the standard library's or numpy's, as those around a wrapper are."""
    name = function.__globals__.get("__name__", "")
    module = sys.modules.get(name)
    is_trusted = name in ("functools", "contextlib", "operator") or _package(name) == "numpy"
    return is_trusted and module is not None and vars(module) is function.__globals__


def _is_named(class_: type) -> bool:
    found: Any = sys.modules.get(class_.__module__)
    for part in class_.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is class_ or not class_.__flags__ & (1 << 9) or found is None


def _parts(function: types.FunctionType) -> Iterable[Any]:
    """What a function has besides its code."""
    yield from function.__defaults__ or ()
    yield from (_core.keyword_defaults(function) or {}).values()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty
            continue
    yield from vars(function).values()


def _state(value: Any) -> Iterable[Any]:
    """What an instance of a class of jax's refers to."""
    if dataclasses.is_dataclass(value):
        yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))
    yield from getattr(value, "__dict__", {}).values()
    for class_ in type(value).__mro__:
        slots = vars(class_).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__weakref__", "__dict__"):
                yield getattr(value, slot, None)
