"""Stored programs: what their objects are in words, and objects of words.

The core writes and reads the bytes and all that it knows of programs. What is left are the objects
among params, types, constants and sources. Each is a *record*: the name of what it is, and parts,
which are plain values or objects again. Nothing of a file is looked up but in tables made here and
in ``_compat/storage.py``, by names that the tables have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from jaxide._native.content import name_of
from jaxide._native.interruptions import is_of_signal


class StorageError(ValueError):
    """A program that cannot be stored, or a file that is not a stored program.

    The message names the equation and its line, or the byte of the file.
    """


class Unstorable(Exception):
    """An object has no form in a file; what is wrong with it, in words."""


class Kind(NamedTuple):
    """What is stored of the objects of some classes."""

    name: str
    classes: tuple[type, ...]
    # The parts of an object: plain values, containers, and objects that have a kind.
    parts: Callable[[Any], Any]
    # The object of these parts.
    make: Callable[[Any], Any]


class Private(NamedTuple):
    """Private things of jax that programs are stored and loaded with."""

    kinds: tuple[Kind, ...]
    # The name of the kind of an object whose class is one of many.
    kind_name: Callable[[Any], str | None]
    # Enumerations, named tuples and trees, by their qualified names.
    classes: Mapping[str, type]
    # An instance of one of them that has fields.
    of_fields: Callable[[type, Mapping[str, Any]], Any]
    # Functions of jax that programs may have, by their names.
    functions: Callable[[], Mapping[str, Callable[..., Any]]]
    primitives: Callable[[], Mapping[str, Any]]
    # Which dtype has a name.
    dtypes: Mapping[str, Any]
    aval: Callable[[tuple[int, ...], Any, bool], Any]
    debug_info: Callable[..., Any]
    close: Callable[[Any, list[Any]], Any]
    # The file, the function and the place of an instruction.
    frame: Callable[[Any, int], tuple[str, str, tuple[int, int, int, int]]]
    tracebacks: Callable[[Sequence[Any], Sequence[Any]], list[Any]]
    # Params that are functions: those that transformations call, and those that executions call.
    rules: frozenset[str]
    callbacks: frozenset[str]
    user_line: Callable[[Any], str]
    # Modules of which nothing was looked up, and what there is with them.
    late: Collection[str]
    whole: Callable[[], Private]
    version: str


def function_name(private: Private, value: Any) -> str | None:
    """The name of a function of jax that programs may have; None for anything else."""
    name = f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', None)}"
    return name if private.functions().get(name) is value else None


class Records:
    """Records of objects."""

    # The names of params whose values are checked, by `check_param`.
    guarded_params: frozenset[str] = frozenset()

    def __init__(self, private: Private):
        self._checked: set[str] = set()
        self._know(private)

    def _know(self, private: Private) -> None:
        self._private = private
        self._kinds: dict[type, Kind] = {}
        self._by_name: dict[str, Kind] = {}
        self._add(private.kinds)

    def _add(self, kinds: Iterable[Kind]) -> None:
        self._kinds |= {class_: kind for kind in kinds for class_ in kind.classes}
        self._by_name |= {kind.name: kind for kind in kinds}

    def _is_late(self, module: str) -> bool:
        """Whether what a module has was not looked up; now it is."""
        is_late = module in self._private.late
        if is_late:
            self._know(self._private.whole())
        return is_late

    def record(self, value: Any, place: str) -> tuple[str, Any]:
        """The name of what an object is, and its parts."""
        private = self._private
        kind = self._kinds.get(type(value))
        if kind is None and (kind_name := private.kind_name(value)) is not None:
            kind = self._by_name[kind_name]
        if kind is None and self._is_late(type(value).__module__):
            return self.record(value, place)
        if kind is not None:
            return kind.name, kind.parts(value)
        if (name := self._function_name(value)) is not None:
            return "function", name
        for what, places in (("rules", private.rules), ("callbacks", private.callbacks)):
            if place in places:
                return self.function(value, place, what)
        if isinstance(value, functools.partial) and self._function_name(value.func) is not None:
            return "partial", (value.func, value.args, value.keywords)
        if callable(value) and hasattr(value, "__qualname__"):
            raise Unstorable(f"{value.__qualname__} is Python code that is not jax's own")
        raise Unstorable(
            f"nothing is known of a {type(value).__module__}.{type(value).__qualname__}"
        )

    def function(self, value: Any, place: str, what: str) -> tuple[str, Any]:
        """The record of a function that transformations or executions call."""
        raise Unstorable(f"{_REASONS[what]}, which is Python code")

    def _function_name(self, value: Any) -> str | None:
        return function_name(self._private, value)

    def check_class(self, name: str) -> None:
        """Refuses an enumeration or a named tuple that no table has."""
        if name not in self._checked and self._is_late(name.rpartition(".")[0]):
            return self.check_class(name)
        if name not in self._checked and name not in self._private.classes:
            raise Unstorable(f"{name} is no class that jaxide knows")
        self._checked.add(name)

    def array(self, value: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
        """The dtype, the shape and the elements of an array, least significant byte first."""
        dtype = value.dtype
        if dtype == self._private.dtypes["float0"]:
            return "float0", value.shape, b""
        if self._private.dtypes.get(dtype.name) != dtype:
            raise Unstorable(f"an array of {dtype} has no form in a file")
        ordered = dtype.newbyteorder("<") if dtype.isbuiltin == 1 else dtype
        return dtype.name, value.shape, value.astype(ordered, copy=False).tobytes()

    def frame(self, code: Any, place: int) -> tuple[str, str, tuple[int, int, int, int]]:
        """The file, the function and the place of an instruction."""
        return self._private.frame(code, place)

    def placed(
        self, error: Exception, path: list[int], eqn: tuple[str, Any] | None, what: str
    ) -> Exception:
        """What is raised for an object of a program."""
        if not isinstance(error, Unstorable):
            return error
        if eqn is None:
            return StorageError(f"the program cannot be stored: {what}: {error}")
        primitive, traceback = eqn
        line = self._private.user_line(traceback)
        number = ".".join(map(str, path))
        return StorageError(
            f"equation {number} ({primitive}) at {line} cannot be stored: {what}: {error}"
        )


_REASONS = {
    "rules": "it is a rule that transformations call",
    "callbacks": "it is a callback",
}


class Objects:
    """Objects of records."""

    # The one that jax has.
    nan = np.nan
    # The names of params whose values are checked, by `check_param`.
    guarded_params: frozenset[str] = frozenset()

    def __init__(self, private: Private):
        self._make: dict[str, Callable[[Any], Any]] = {}
        self._know(private)
        self._make["function"] = self._function
        self._make["partial"] = self._partial
        self._make["value"] = lambda value: value

    def _know(self, private: Private) -> None:
        self._private = private
        self._add(private.kinds)
        self._by_last_name = {name.rpartition(".")[2]: c for name, c in private.classes.items()}

    def _add(self, kinds: Iterable[Kind]) -> None:
        self._make |= {kind.name: kind.make for kind in kinds}

    def _is_late(self) -> bool:
        """Whether not all was looked up; now it is."""
        is_late = bool(self._private.late)
        if is_late:
            self._know(self._private.whole())
        return is_late

    def object(self, kind: str, parts: Any) -> Any:
        """The object of a record."""
        make = self._make.get(kind)
        if make is None:
            if self._is_late():
                return self.object(kind, parts)
            raise StorageError(f"jax {self._private.version} has nothing that is a {kind!r}")
        return make(parts)

    def _function(self, name: str) -> Any:
        function = self._private.functions().get(name)
        if function is None:
            raise StorageError(f"jax {self._private.version} has no function {name}")
        return function

    def _partial(self, parts: Any) -> Any:
        function, args, keywords = parts
        if not self.may_be_partial(function):
            raise StorageError(f"a partial has a {name_of(type(function))} that is none of jax's")
        return functools.partial(function, *args, **keywords)

    def may_be_partial(self, function: Any) -> bool:
        """Whether partials of a function are stored."""
        return function_name(self._private, function) is not None

    def _class(self, name: str) -> type:
        if name.rpartition(".")[0] in self._private.late:
            self._is_late()
        found = self._private.classes.get(name) or self._by_last_name.get(name.rpartition(".")[2])
        if found is None:
            if self._is_late():
                return self._class(name)
            raise StorageError(f"jax {self._private.version} has no class {name}")
        return found

    def member(self, class_name: str, name: str) -> Any:
        """A member of an enumeration."""
        try:
            return self._class(class_name)[name]  # type: ignore[index]
        except (KeyError, TypeError):
            raise StorageError(f"{class_name} has no member {name!r}") from None

    def named(self, class_name: str, fields: dict[str, Any]) -> Any:
        """A named tuple, or a tree."""
        class_ = self._class(class_name)
        try:
            return self._private.of_fields(class_, fields)
        except (TypeError, AssertionError) as error:
            raise StorageError(f"{class_name} has other fields: {error}") from None

    def dtype(self, name: str) -> Any:
        """The dtype of a name."""
        dtype = self._private.dtypes.get(name)
        if dtype is None:
            raise StorageError(f"there is no dtype {name!r}")
        return dtype

    def array(self, dtype: str, shape: tuple[int, ...], data: bytes) -> np.ndarray:
        """The array of these elements, which nobody else has."""
        own = self.dtype(dtype)
        if own.itemsize == 0:
            return np.zeros(shape, own)
        stored = own.newbyteorder("<") if own.isbuiltin == 1 else own
        return np.frombuffer(data, stored).reshape(shape).astype(own)

    def aval(self, dtype: str, shape: tuple[int, ...], weak_type: bool) -> Any:
        """The type of arrays."""
        return self._private.aval(shape, self.dtype(dtype), weak_type)

    def unknown_type(self) -> NoReturn:
        """Refuses a type that no record says."""
        raise StorageError("a type of the program has no record")

    def changed(self, primitive: str) -> NoReturn:
        """Refuses a primitive that has become another."""
        raise StorageError(f"{primitive} of jax {self._private.version} has other results")

    def effect(self, effect: Any, var: Any) -> Any:
        """An effect, on a variable where it is of a kind that is."""
        return effect if var is None else effect(var)

    def debug_info(
        self,
        traced_for: str,
        func_src_info: str,
        arg_names: list[str] | None,
        result_paths: list[str] | None,
    ) -> Any:
        """Where a program is from, and what its arguments and results are called."""
        names = [None if names is None else tuple(names) for names in (arg_names, result_paths)]
        return self._private.debug_info(traced_for, func_src_info, *names)

    def close(self, jaxpr: Any, consts: list[Any]) -> Any:
        """A closed jaxpr."""
        return self._private.close(jaxpr, consts)

    def tracebacks(self, frames: Sequence[Any], stacks: Sequence[Any]) -> list[Any]:
        """The tracebacks of stacks of frames."""
        return self._private.tracebacks(frames, stacks)

    def refused(self, error: Any, offset: int | None) -> Exception:
        """What is raised for a part of a file."""
        if isinstance(error, str):
            return StorageError(error)
        if is_of_signal(error.__traceback__):
            own: Exception = error
            return own
        raised = StorageError(f"{error} (byte {offset})" if offset else str(error))
        if not isinstance(error, (StorageError, Unstorable)):
            raised = StorageError(f"{type(error).__name__}: {error} (byte {offset})")
            raised.__cause__ = error
        return raised
