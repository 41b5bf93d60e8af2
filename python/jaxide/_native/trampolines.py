"""Trampolines: code for functions of jax that passes their arguments to a hook.

A function of jax keeps its identity, name, signature and documentation: its code object alone is
exchanged for a trampoline's, which has the same parameters.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from jaxide import _core


def copy_function(
    function: types.FunctionType, names: dict[str, Any] | None = None
) -> types.FunctionType:
    """A function with the code that ``function`` has now, and the globals, where no ``names`` are
    given in their place."""
    copy = types.FunctionType(
        function.__code__,
        function.__globals__ if names is None else names,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = _core.keyword_defaults(function)
    copy.__qualname__ = function.__qualname__
    return copy


# What a template has in the place of the hook.
_HOOK = "jaxide: the hook goes here"


def trampoline(
    code: types.CodeType, hook: Callable[..., Any], with_closure: bool = False
) -> types.CodeType:
    """Code with the parameters of ``code`` that passes them to ``hook``, all by position.

    The order is that of ``def function(a, *args, k, **kwargs)``, which calls
    ``hook(a, args, k, kwargs)``.

    Args:
      code: the function's own code.
      hook: what is called.
      with_closure: the values of the closure are passed first, in the order of their names.
    """
    template, before, after = _template(
        code.co_argcount,
        code.co_kwonlyargcount,
        code.co_flags & inspect.CO_VARARGS,
        code.co_flags & inspect.CO_VARKEYWORDS,
        len(code.co_freevars),
        with_closure,
    )
    parameters = len(template.co_varnames) - 1
    return template.replace(
        co_consts=(*before, hook, *after),
        co_varnames=(*code.co_varnames[:parameters], "hook"),
        co_posonlyargcount=code.co_posonlyargcount,
        co_freevars=code.co_freevars,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
    )


@functools.cache
def _template(
    positional: int, keywords: int, varargs: int, varkeywords: int, free: int, with_closure: bool
) -> tuple[types.CodeType, tuple[Any, ...], tuple[Any, ...]]:
    """Code of a function with that many parameters and free variables that calls a constant; the
    constants before that one, and after it."""
    names = [f"p{i}" for i in range(positional)]
    keyword_names = [f"k{i}" for i in range(keywords)]
    parameters = list(names)
    passed = list(names)
    if varargs:
        parameters.append("*args")
        passed.append("args")
    elif keywords:
        parameters.append("*")
    parameters += keyword_names
    passed += keyword_names
    if varkeywords:
        parameters.append("**kwargs")
        passed.append("kwargs")
    cells = [f"c{i}" for i in range(free)]
    if with_closure:
        passed = cells + passed
    # The closure stays the function's own: code that does not take it over leaves holes where
    # debuggers look for its values.
    source = (
        f"def outer({', '.join(cells)}):\n"
        f"    def template({', '.join(parameters)}):\n"
        f"        hook = {_HOOK!r}\n"
        f"        return hook({', '.join(passed)})\n"
        f"        {', '.join(cells) or 'pass'}\n"
        f"    return template\n"
    )
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    code = namespace["outer"](*cells).__code__
    place = code.co_consts.index(_HOOK)
    return code, code.co_consts[:place], code.co_consts[place + 1 :]
