"""Which functions and values are jax's own, and which were put there by somebody else.

A function of jax is one whose code is from a file of the installed jax and whose globals are those
of the module that jax has imported from that file.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import jax

OF_JAX = os.path.join(os.path.dirname(inspect.getfile(jax)), "")

# The class of partial applications; nothing is one where somebody has replaced it before.
PARTIAL: Any = functools.partial if isinstance(functools.partial, type) else ()

# Packages that jax is built on. What they define does not change jax when jax uses it.
_FOUNDATION: tuple[str, ...] = (
    "jaxlib",
    "nanobind",
    "numpy",
    "ml_dtypes",
    "opt_einsum",
    "scipy",
    "jaxide",
)
_FOUNDATION += ("absl", "cloudpickle", "etils", "google", "hypothesis", "portpicker", "zstandard")
_OWN_PACKAGES = frozenset(("jax", *_FOUNDATION))
# Classes whose instances have no functions in them and are nobody's.
PLAIN: frozenset[type] = frozenset(
    (str, bytes, int, float, complex, bool, type(None), list, dict, set, frozenset)
)
PLAIN |= {types.ModuleType, types.BuiltinFunctionType, types.WrapperDescriptorType}
PLAIN |= {types.MethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType}
# Files that were asked about, with whether their code belongs to a library.
FILES: dict[str, bool] = {}
# Modules of the standard library whose objects stand in for others.
_STAND_INS = ("unittest", "doctest", "pdb", "code")


def is_jax_module(name: str) -> bool:
    """Whether a module of this name is one of jax's."""
    return name == "jax" or name.startswith("jax.")


def is_own_function(function: Any) -> bool:
    """Whether a Python function is jax's own, with the code and the globals that jax gave it."""
    if not isinstance(function, types.FunctionType):
        return False
    if not function.__code__.co_filename.startswith(OF_JAX):
        return False
    name = function.__globals__.get("__name__")
    if not isinstance(name, str) or not is_jax_module(name):
        return False
    module = sys.modules.get(name)
    return module is not None and vars(module) is function.__globals__


def is_own_callable(value: Any) -> bool:
    """Whether a callable of jax, a function or what jax makes of one, consists of jax's functions
    alone."""
    found = list(functions_of(value))
    return bool(found) and all(map(is_own_function, found)) and not is_foreign(value)


def functions_of(value: Any) -> Iterator[types.FunctionType]:
    """The Python functions that a callable is made of: through partial applications, methods, jits
    and functions with derivative rules."""
    if type(value) in PLAIN or isinstance(value, type):
        return iter(())
    if type(value) is types.FunctionType and not hasattr(value, "__wrapped__"):
        return iter((value,))
    return (part for part in _parts_of(value) if isinstance(part, types.FunctionType))


def _parts_of(value: Any) -> Iterator[Any]:
    """What a callable is made of: functions, and objects of which nothing more is known."""
    pending, seen = [value], set()
    while pending:
        item = pending.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, types.FunctionType):
            yield item
            # What filters tracebacks has a file of jax's, whatever it calls.
            pending.append(getattr(item, "__wrapped__", None))
        elif isinstance(item, PARTIAL):
            pending += [item.func, *item.args, *item.keywords.values()]
        elif isinstance(item, (types.MethodType, staticmethod, classmethod)):
            pending.append(item.__func__)
        elif isinstance(item, property):
            pending += [item.fget, item.fset, item.fdel]
        elif isinstance(item, tuple):
            # Methods and properties of types of arrays are named tuples.
            pending += item
        elif not isinstance(item, (type, types.ModuleType)):
            own = getattr(item, "__dict__", None)
            names = ("__wrapped__", "fun", "jvp", "fwd", "bwd", "func", "_fun", "_func")
            if isinstance(own, dict):
                pending += [own[name] for name in names if name in own]
            if item is not value:
                yield item


@cache
def _library_folders() -> tuple[str, ...]:
    """Where code is that belongs to jax, to Python or to what jax is built on."""
    folders = [OF_JAX]
    for name in _FOUNDATION:
        module = sys.modules.get(name)
        if module is not None and getattr(module, "__file__", None):
            folders.append(os.path.join(os.path.dirname(inspect.getfile(module)), ""))
    folders.append(os.path.join(sysconfig.get_path("stdlib"), ""))
    return tuple(folders)


@cache
def _packages() -> tuple[str, ...]:
    """Where packages are installed, which is a folder of the standard library's."""
    return tuple(os.path.join(sysconfig.get_path(key), "") for key in ("purelib", "platlib"))


def _is_of_library(function: types.FunctionType) -> bool:
    """Whether a function's code belongs to jax, to Python or to what jax is built on."""
    file = function.__code__.co_filename
    if file.startswith("<"):
        # Code that was generated, such as the methods of a dataclass, is its module's.
        name = str(function.__globals__.get("__name__", ""))
        frozen = file.startswith(("<frozen ", "<__array_function__"))
        return frozen or is_jax_module(name) or name.startswith("namedtuple_")
    return is_file_of_library(file)


def is_file_of_library(file: str) -> bool:
    """Whether the code of a file belongs to jax, to Python or to what jax is built on."""
    known = FILES.get(file)
    if known is None:
        known = FILES[file] = _is_in_folder_of_library(file)
    return known


def _is_in_folder_of_library(file: str) -> bool:
    own = next((folder for folder in _library_folders() if file.startswith(folder)), None)
    if own is None:
        return False
    if own == _library_folders()[-1]:
        below = file[len(own) :].split(os.sep)[0].removesuffix(".py")
        return below not in _STAND_INS and not file.startswith(_packages())
    return True


def is_foreign(value: Any) -> bool:
    """Whether somebody else has put a value in a module, class or registry of jax: code, or an
    instance of a class, that is neither of jax nor of what jax is built on."""
    if type(value) in PLAIN or isinstance(value, types.ModuleType):
        return False
    if type(value) is types.FunctionType and not hasattr(value, "__wrapped__"):
        return not all(map(_is_of_library, _with_captured(value)))
    if isinstance(value, type):
        return _is_of_foreign_class(value)
    for part in _parts_of(value):
        if isinstance(part, types.FunctionType):
            if not all(map(_is_of_library, _with_captured(part))):
                return True
        elif _is_of_foreign_class(part):
            return True
    return _is_of_foreign_class(value)


def _with_captured(function: types.FunctionType) -> Iterable[types.FunctionType]:
    """A function and those in its closure: jax wraps rules that somebody registers."""
    if not function.__closure__:
        return (function,)
    return _captured(function)


def _captured(function: types.FunctionType) -> Iterator[types.FunctionType]:
    pending, seen = [function], set()
    while pending:
        item = pending.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        for cell in item.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # it is empty
                continue
            if isinstance(content, types.FunctionType):
                pending.append(content)


def _is_of_foreign_class(value: Any) -> bool:
    """Whether a class, or the class of a value, is somebody else's."""
    module = (value if isinstance(value, type) else type(value)).__module__
    package = module.partition(".")[0] if isinstance(module, str) else ""
    if package in _OWN_PACKAGES:
        return False
    return package not in sys.stdlib_module_names or package in _STAND_INS
