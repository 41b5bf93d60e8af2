"""Names of arguments and results, which jax derives from their trees anew at each trace."""

from __future__ import annotations

import inspect
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax


class Bounded:
    """Values by key, computed when first asked for; those computed first go first.

    Comparing keys is what costs here, so that nothing more is done where a value is known.
    """

    def __init__(self, size: int):
        self._size = size
        self._values: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any, compute: Callable[[], Any]) -> Any:
        """The value of `key`; computed where it has no hash, as an object in a tree may have."""
        try:
            value = self._values[key]
        except KeyError:
            value = self._values[key] = compute()
            if len(self._values) > self._size:
                self._values.popitem(last=False)
        except TypeError:
            value = compute()
        return value


ARGUMENT_NAMES = Bounded(256)
RESULT_PATHS = Bounded(256)


def parameters(fun: Callable[..., Any]) -> tuple[Any, ...] | None:
    """What of a plain function's signature decides which arguments get which names.

    None for whatever may have another signature than its code's.
    """
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


class ResultPaths:
    """``DebugInfo.set_result_paths``: names by the tree of the results, made by ``stock`` once."""

    def __init__(self, stock: Callable[[Any, Any], Any]):
        self._stock = stock

    def __call__(self, debug_info: Any, result: Any) -> Any:
        paths = RESULT_PATHS.get(
            ("nested", jax.tree.structure(result)),
            lambda: self._stock(debug_info, result).result_paths,
        )
        return debug_info._replace(result_paths=paths)
