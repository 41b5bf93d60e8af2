"""``jaxide.jit``."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import jax

from jaxide import _compat, _core, _settings
from jaxide._jit.explanation import Explanation
from jaxide._jit.intercept import Counts, sharing
from jaxide._jit.retraces import RETRACE_LOG
from jaxide._native import interposed

_MISSING: Any = object()
_P = ParamSpec("_P")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)


class Jitted(Protocol[_P, _R_co]):
    """What :func:`jit` returns, for type checkers: the parameters and the result of the function,
    the methods of jax's jits, and two more."""

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...
    def trace(self, *args: _P.args, **kwargs: _P.kwargs) -> jax.stages.Traced: ...
    def lower(self, *args: _P.args, **kwargs: _P.kwargs) -> jax.stages.Lowered: ...
    def eval_shape(self, *args: _P.args, **kwargs: _P.kwargs) -> Any: ...
    def clear_cache(self) -> None: ...
    def cache_info(self) -> Counts: ...
    def explain(self) -> Explanation | None: ...


@overload
def jit(fun: Callable[_P, _R], /, *, captured: str = "auto", **options: Any) -> Jitted[_P, _R]: ...


@overload
def jit(
    *, captured: str = "auto", **options: Any
) -> Callable[[Callable[_P, _R]], Jitted[_P, _R]]: ...


def jit(fun: Callable[..., Any] = _MISSING, /, *, captured: str = "auto", **options: Any) -> Any:
    """As :func:`jax.jit`, for functions that are re-created: executables are found by the program.

    Stock jax traces, lowers and compiles each new function object: a step function that is defined
    in a loop, a closure over a configuration, a cell of a notebook that is run again. This traces
    the function (fast, see :func:`jaxide.make_jaxpr`). Where its program is equal to one that was
    compiled before, it runs that executable. The result is a function of jax's own class, and a
    call of a known function object costs the same as in jax.

    Example:
      >>> jaxide.clear_caches()
      >>> for _ in range(3):
      ...     step = jaxide.jit(lambda x: x * 2 + 1)
      ...     y = step(1.0)
      >>> step.cache_info().compiled, step.cache_info().shared
      (0, 1)

    Args:
      fun: the function; without it, a decorator is returned.
      captured: how arrays that the function captures are given to the executable. With "auto"
        those of the first function are built in, as in stock jax, and functions that capture equal
        arrays run the same executable; other arrays are arguments of a second executable. With
        "constants" arrays are always built in, with "arguments" never.
      **options: those of :func:`jax.jit`.

    Returns:
      The result of :func:`jax.jit`, with two more methods. ``cache_info()`` returns
      :class:`Counts`, what became of its calls. ``explain()`` returns an :class:`Explanation`, why
      its function was last traced and what is new in its program, or None.

    Raises:
      ValueError: ``captured`` is none of the three.
    """
    captured = _settings.SETTINGS["captured"].checked(captured)
    if fun is _MISSING:
        return functools.partial(jit, captured=captured, **options)
    counts = Counts(captured=captured)
    jitted: Any = jax.jit(fun, **options)
    place = _share(jitted, counts) if _compat.shares_executables() else None

    def cache_info() -> Counts:
        """What became of the calls for which jax had no executable."""
        return copy.copy(counts)

    def explain() -> Explanation | None:
        """Why the function at this place of the code was last traced, and what is new in its
        program; None where it was not."""
        return None if place is None else RETRACE_LOG.explain(place)

    jitted.cache_info = cache_info
    jitted.explain = explain
    return jitted


# By the address of jax's options of the jit, which the entry keeps.
_COUNTS: dict[int, tuple[Any, Counts]] = {}


def _share(jitted: Any, counts: Counts) -> str:
    """Has a jit share executables, and counts what becomes of its calls; where its function is."""
    options = _compat.catch_misses(jitted, _miss)
    _COUNTS[id(options)] = options, counts
    weakref.finalize(jitted, _COUNTS.pop, id(options), None).atexit = False
    stock_lower = _compat.lower_of(jitted)

    def lower(*args: Any, **kwargs: Any) -> Any:
        """Lowers the function for the arguments, as the method of jax's jits does; equal programs
        within its program are lowered once."""
        with _activation(), sharing(counts):
            return stock_lower(*args, **kwargs)

    jitted.lower = lower
    return _compat.function_place(jitted._fun)


def _miss(stock: Callable[..., Any], options: Any, args: Any, kwargs: Any) -> Any:
    """Stands in for what a jit does where it finds no executable."""
    _, counts = _COUNTS.get(id(options)) or (None, Counts())
    interposed.interpose_new()
    with _activation(), sharing(counts):
        return stock(*args, **kwargs)


def _activation() -> AbstractContextManager[Any]:
    """A context in which traces are recorded, unless anything may be affected that somebody has
    changed of jax."""
    is_left = not _compat.native() or _core.is_jax_altered()
    return contextlib.nullcontext() if is_left else _core.Activation()


_OPTION = inspect.Parameter("captured", inspect.Parameter.KEYWORD_ONLY, default="auto")
_STOCK = inspect.signature(jax.jit)
jit.__signature__ = _STOCK.replace(  # type: ignore[attr-defined]
    parameters=[*_STOCK.parameters.values(), _OPTION]
)
