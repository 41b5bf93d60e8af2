"""Names of arguments and results, which jax derives from their trees anew at each trace."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import operator
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax

from jaxide import _core
from jaxide._native.bounded import Bounded

# From Python 3.14 on: an argument of a `partial` that is still to come.
_PLACEHOLDER = getattr(functools, "Placeholder", None)

ARGUMENT_NAMES = Bounded(1024)
RESULT_PATHS = Bounded(256)


def parameters(fun: Callable[..., Any]) -> tuple[Any, ...] | None:
    """What of a function's signature decides which arguments get which names.

    None for whatever may have another signature than that of a plain function's code, without the
    arguments that a ``partial`` has.
    """
    if type(fun) is functools.partial and not (fun.keywords or fun.__dict__):
        own = parameters(fun.func)
        placed = _PLACEHOLDER is not None and any(arg is _PLACEHOLDER for arg in fun.args)
        return None if own is None or placed else ("partial", len(fun.args), *own)
    if type(fun) is not types.FunctionType or fun.__dict__:
        return None
    code = fun.__code__
    return (
        code.co_varnames,
        code.co_posonlyargcount,
        code.co_argcount,
        code.co_kwonlyargcount,
        code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
        len(fun.__defaults__ or ()),
        tuple(fun.__kwdefaults__ or ()),
    )


class ArgumentNames:
    """``api_util._non_static_arg_names`` where no argument is static.

    Example: ``f(x, {"w": y})`` of ``def f(a, b)`` has the names ``("a", "b['w']")``.
    """

    def __init__(self, names: _core.PathNames, flatten: Callable[[Any], tuple[Any, Any]]):
        self._names = names
        self._flatten = flatten

    def of(
        self,
        fun: Callable[..., Any],
        args: Any,
        kwargs: dict[str, Any],
        signature: Callable[[Any], inspect.Signature | None],
    ) -> tuple[str, ...]:
        """The names for a function with a signature, which a plain function need not be asked
        for."""
        given = None if kwargs else _positional(fun, args)
        if given is None:
            return self(signature(fun), args, kwargs)
        return self._named(given)

    def __call__(
        self, signature: inspect.Signature | None, args: Any, kwargs: dict[str, Any]
    ) -> tuple[str, ...]:
        # Positional arguments, then those with names, in the order of the names.
        named = sorted(kwargs.items(), key=operator.itemgetter(0))
        bound = None
        if signature is not None:
            with contextlib.suppress(ValueError, TypeError):
                bound = signature.bind(*args, **kwargs).arguments
        if bound is None or signature is None:
            given = [("args", list(args))] + [(f"kwargs['{name}']", x) for name, x in named]
        else:
            kinds = ((name, p.kind) for name, p in signature.parameters.items())
            rest = next(
                (name for name, kind in kinds if kind == inspect.Parameter.VAR_KEYWORD), None
            )
            given = [(name, x) for name, x in bound.items() if name not in kwargs and name != rest]
            given += [(name if name in bound else f"{rest}['{name}']", x) for name, x in named]
        return self._named(given)

    def _named(self, given: list[tuple[str, Any]]) -> tuple[str, ...]:
        leaves = ((name, self._flatten(x)[0]) for name, x in given)
        return tuple(
            itertools.chain.from_iterable(itertools.starmap(self._names.of_leaves, leaves))
        )


def _positional(fun: Callable[..., Any], args: Any) -> list[tuple[str, Any]] | None:
    """The arguments of a plain function by parameter, as its signature binds them; None where that
    is to be asked."""
    if type(fun) is not types.FunctionType or fun.__dict__:
        return None
    code = fun.__code__
    names = code.co_varnames[: code.co_argcount]
    least = len(names) - len(fun.__defaults__ or ())
    varies = bool(code.co_flags & inspect.CO_VARARGS)
    if code.co_kwonlyargcount or len(args) < least or (len(args) > len(names) and not varies):
        return None
    # The argument of a comprehension has another name in the signature.
    if any(name.startswith(".") for name in names):
        return None
    given = list(zip(names, args, strict=False))
    if rest := tuple(args)[len(names) :]:
        given.append((code.co_varnames[len(names)], rest))
    return given


class DebugInfos:
    """``api_util.debug_info``: the names of a function's arguments, made by ``stock`` once for each
    signature and tree of arguments."""

    def __init__(
        self,
        stock: Callable[..., Any],
        source: Callable[[Any], str],
        tree: Callable[[Any], Any],
        new: Callable[..., Any],
        names: ArgumentNames | None,
        signature: Callable[[Any], inspect.Signature | None],
    ):
        self._stock = stock
        self._names = names
        self._signature = signature
        self._source = source
        self._tree = tree
        self._new = new

    def __call__(
        self,
        traced_for: str,
        fun: Callable[..., Any],
        args: Any,
        kwargs: dict[str, Any],
        static_argnums: Any,
        static_argnames: Any,
        result_paths_thunk: Any,
        sourceinfo: Any,
        signature: Any,
    ) -> Any:
        def stock() -> Any:
            return self._stock(
                traced_for,
                fun,
                args,
                kwargs,
                static_argnums=static_argnums,
                static_argnames=static_argnames,
                result_paths_thunk=result_paths_thunk,
                sourceinfo=sourceinfo,
                signature=signature,
            )

        given = sourceinfo is not None or signature is not None
        static = (static_argnums, static_argnames)
        # A function without attributes has no debug info of its own.
        own = None if given else parameters(fun)
        if own is None or any(type(names) is not tuple for names in static):
            return stock()
        key = ("nested", own, self._tree((tuple(args), kwargs))[1], static)

        def named() -> Any:
            if self._names is None or static != ((), ()):
                return stock().arg_names
            return self._names.of(fun, args, kwargs, self._signature)

        names = ARGUMENT_NAMES.get(key, named)
        return self._new(traced_for, self._source(fun), names, result_paths_thunk)


class _Outermost(threading.local):
    """The debug info of the trace of this thread whose result paths are named when it is over."""

    debug_info: Any = None


_OUTERMOST = _Outermost()


@contextlib.contextmanager
def outermost(debug_info: Any) -> Iterator[None]:
    """Within, the result paths of ``debug_info`` are not named unless an error message asks."""
    before, _OUTERMOST.debug_info = _OUTERMOST.debug_info, debug_info
    try:
        yield
    finally:
        _OUTERMOST.debug_info = before


class Postponed:
    """Result paths for error messages only: the caller of the trace puts others in their place."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Callable[[], Any]):
        self._compute = compute

    def __call__(self) -> Any:
        return self._compute()


class ResultPaths:
    """``DebugInfo.set_result_paths``: names by the tree of the results, made by ``stock`` once."""

    def __init__(self, stock: Callable[[Any, Any], Any]):
        self._stock = stock

    def __call__(self, debug_info: Any, result: Any) -> Any:
        if debug_info is _OUTERMOST.debug_info:
            paths = Postponed(lambda: self._stock(debug_info, result).result_paths)
        else:
            paths = RESULT_PATHS.get(
                ("nested", jax.tree.structure(result)),
                lambda: self._stock(debug_info, result).result_paths,
            )
        return debug_info._replace(result_paths=paths)
