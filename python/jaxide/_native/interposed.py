"""Which functions of jax are interposed while a trace of jaxide may run.

An interposed function keeps its identity, name, signature and documentation. Only its code object
is exchanged, for a trampoline with the same parameters that calls into the core. The core replays
what an equal call appended before, or calls a copy of the function with the original code.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

from jaxide import _core
from jaxide._native import trust
from jaxide._native.trampolines import copy_function, trampoline

# Modules whose public functions are macros over primitives.
MODULES = (
    "jax.numpy",
    "jax.numpy.linalg",
    "jax.numpy.fft",
    "jax.lax",
    "jax.lax.linalg",
    "jax.nn",
    "jax.nn.initializers",
    "jax.random",
    "jax.image",
    "jax.scipy",
)

# Functions that read or write something besides their arguments and jax's configuration.
STATEFUL = {
    "get_printoptions",
    "printoptions",
    "set_printoptions",
    "from_dlpack",
    "fromfile",
    "load",
    "save",
    "savez",
}

# What is interposed, by address.
_interposed: dict[int, Any] = {}

# Callables of jax that are no functions, by address, with their names. They live as long as the
# process.
_callables: dict[int, tuple[Any, str]] = {}

# The modules of `MODULES` that were imported, by the names under which they were.
_loaded: dict[str, types.ModuleType] = {}

# How many names a module had when it was looked through.
_names_seen: dict[str, int] = {}

# What `interpose_new` was told to interpose. How many modules there were when it last looked: -1
# where one of jax's was still being imported.
_types: set[type] | None = None
_filter_code: types.CodeType | None = None
_modules_seen = 0
# Annotations by address, which stay alive here, with whether they are of functions.
_annotations: dict[int, tuple[Any, bool]] = {}
# The globals and the file of functions by address, with whether such functions are jax's.
_files: dict[tuple[int, int], tuple[Any, str, bool]] = {}


def _is_interposed(module: str) -> bool:
    """Whether public functions of a module are interposed: of `MODULES`, `jax.scipy` with what is
    below it."""
    return (module in MODULES or module.startswith("jax.scipy.")) and "._" not in module


def interpose_loaded(
    jit_type: type, callable_types: tuple[type, ...], filter_code: types.CodeType
) -> None:
    """Interposes the public functions of imported modules; those of later imports, `interpose_new`.

    Args:
      jit_type: the type of what ``jax.jit`` returns, whose instances are interposed by the core.
      callable_types: other types whose instances at module level live as long as the module.
      filter_code: the code of the functions that filter the tracebacks of others.
    """
    global _types, _filter_code
    _types = {jit_type, *callable_types}
    _filter_code = filter_code
    interpose_new()


def interpose_new() -> None:
    """Interposes the public functions of the modules that were imported since the last time."""
    global _modules_seen
    if _types is None or len(sys.modules) == _modules_seen:
        return
    modules_seen = len(sys.modules)
    found = _core.extend_world()
    if found is None:
        return  # the next one will
    new, is_complete = found
    _loaded.update((name, new[name]) for name in sorted(new) if _is_interposed(name))
    for module_name, module in list(_loaded.items()):
        if _names_seen.get(module_name) == len(vars(module)):
            continue
        # Other threads may import more of it meanwhile.
        names = list(vars(module).items())
        for name, value in names:
            if type(name) is not str or name.startswith("_") or id(value) in _interposed:
                continue
            if type(value) is types.FunctionType:
                if name not in STATEFUL and _is_own(value) and not _takes_functions(value):
                    interpose(value, f"{module_name}.{name}")
            elif type(value) in _types and not trust.is_foreign(value):
                _interposed[id(value)] = value
                _callables[id(value)] = value, f"{module_name}.{name}"
                _core.trust_callable(value)
                _trust_within(value, _types)
        _names_seen[module_name] = len(names)
    _modules_seen = modules_seen if is_complete else -1


def _trust_within(value: Any, types_: set[type]) -> None:
    """Lets the jit that a universal function, or a function with a derivative rule, calls be one of
    jax's own."""
    for attribute in ("_func", "fun"):
        within = getattr(value, attribute, None)
        if type(within) in types_ and not trust.is_foreign(within):
            _core.trust_callable(within)


def callables() -> Iterable[tuple[Any, str]]:
    """Callables of jax that are interposed and are no functions, with their names."""
    return _callables.values()


def name_of_callable(value: Any) -> str | None:
    """The name of a callable of jax that is no function, where it is interposed."""
    known = _callables.get(id(value))
    return known[1] if known is not None and known[0] is value else None


def _is_own(function: types.FunctionType) -> bool:
    """As ``trust.is_own_callable``. Functions that wrap nothing have it in common with those of
    their file."""
    if function.__closure__ or vars(function):
        return trust.is_own_callable(function)
    names, file = function.__globals__, function.__code__.co_filename
    key = id(names), id(file)
    known = _files.get(key)
    if known is None:
        known = _files[key] = names, file, trust.is_own_callable(function)
    return known[2]


def _takes_functions(function: types.FunctionType) -> bool:
    """Whether a function has to be given: calls with a user's function are never remembered."""
    # `inspect.signature` would take most of the time of the first trace after an import.
    within: Any = inspect.unwrap(function) if "__wrapped__" in vars(function) else function
    if not isinstance(within, types.FunctionType):
        return True
    of_functions = []
    for name, annotation in within.__annotations__.items():
        # Few annotations serve all functions of jax.
        known = _annotations.get(id(annotation))
        if known is None:
            known = annotation, "Callable" in str(annotation)
            _annotations[id(annotation)] = known
        if known[1]:
            of_functions.append(name)
    return bool(of_functions) and not set(of_functions).isdisjoint(_required(within))


def _required(function: types.FunctionType) -> tuple[str, ...]:
    """The parameters that have no defaults."""
    code = function.__code__
    positional, rest = code.co_varnames[: code.co_argcount], code.co_varnames[code.co_argcount :]
    named, rest = rest[: code.co_kwonlyargcount], rest[code.co_kwonlyargcount :]
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return (
        *positional[: len(positional) - len(function.__defaults__ or ())],
        *(name for name in named if name not in (_core.keyword_defaults(function) or ())),
        *rest[:stars],
    )


def interpose(
    function: types.FunctionType,
    name: str,
    original: Callable[..., Any] | None = None,
    types_only: bool = False,
) -> None:
    """Interposes one function, for as long as the process lives.

    Args:
      function: the function.
      name: how it is counted.
      original: what does the same, where there is something better than the function.
      types_only: it asks traced values for nothing but their types.

    Where a function filters the tracebacks of another, the other is interposed: whatever is called
    from there on is not in the filtered traceback.
    """
    if id(function) in _interposed:
        return
    _interposed[id(function)] = function
    if function.__code__ is _filter_code:
        interpose(vars(function)["__wrapped__"], name, original, types_only)
        return
    code = function.__code__
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    _core.interpose_function(
        name,
        function,
        original or copy_function(function),
        functools.partial(trampoline, code),
        code.co_argcount,
        bool(code.co_flags & inspect.CO_VARARGS),
        keywords,
        bool(code.co_flags & inspect.CO_VARKEYWORDS),
        types_only,
    )
