"""Code of functions of jax with calls of jaxide in it.

A trampoline that calls the function's own code is one frame more. Where most calls go on to that
code, the frame is spared: the code is compiled anew from its source, with a call before it, and one
after it if need be.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable
from typing import Any

_BEFORE = "jaxide: what is called before goes here"
_AFTER = "jaxide: what is called after goes here"
_HOOK = "jaxide: what calls another goes here"
# The variable by which the core knows code that is called as jax's own is: a frame like any other.
_CALLED = "jaxide_called"


def answered_first(function: types.FunctionType, hook: Callable[..., Any]) -> types.CodeType | None:
    """The code of ``function``, but that ``hook`` is called first, with the values of the
    parameters. If it does not return ``NotImplemented``, the function returns that.

    None where the source is not that of the function.
    """
    return _compiled(function, _answered(function), None, {_BEFORE: hook})


def _answered(function: types.FunctionType) -> str:
    passed = ", ".join(_parameters(function.__code__))
    return (
        f"jaxide = {_BEFORE!r}\n"
        f"jaxide = jaxide({passed})\n"
        "if jaxide is not NotImplemented:\n"
        "    return jaxide\n"
    )


def noted(
    function: types.FunctionType, before: Callable[..., Any], after: Callable[..., Any]
) -> types.CodeType | None:
    """The code of ``function``, but that ``before`` is called first, with the values of the
    parameters, and that the function returns what ``after`` makes of what ``before`` returned and
    of its result.

    None where the source is not that of the function.
    """
    passed = ", ".join(_parameters(function.__code__))
    begin = f"jaxide = {_BEFORE!r}\njaxide = jaxide({passed})\n"
    return _compiled(function, begin, _Returns(_AFTER), {_BEFORE: before, _AFTER: after})


def called_through(
    function: types.FunctionType, name: str, hook: Callable[..., Any], before: Callable[..., Any]
) -> types.CodeType | None:
    """The code of ``function``, but that ``hook(name, args, kwargs)`` is called where it calls
    ``name(*args, **kwargs)``, one of its parameters. As in ``answered_first``, ``before`` is called
    first.

    None where the source is not that of the function, or has no such call.
    """
    calls = _Calls(name)
    begin = f"{_CALLED} = {_HOOK!r}\n{_answered(function)}"
    code = _compiled(function, begin, calls, {_HOOK: hook, _BEFORE: before})
    return code if calls.found else None


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


class _Returns(ast.NodeTransformer):
    """Has the returns of a function go through a call; those of functions within stay."""

    def __init__(self, after: str) -> None:
        self.after = after

    def visit_Return(self, node: ast.Return) -> ast.AST:
        # A name first: the compiler warns of a call of a text.
        value = node.value or ast.Constant(None)
        made = f"jaxide = [{self.after!r}, jaxide, None]"
        [keep, give] = ast.parse(f"{made}\nreturn_ = jaxide[0](jaxide[1], jaxide[2])").body
        assert isinstance(keep, ast.Assign) and isinstance(keep.value, ast.List)
        assert isinstance(give, ast.Assign)
        keep.value.elts[2] = value
        block = ast.If(ast.Constant(True), [keep, ast.Return(give.value)], [])
        return ast.copy_location(block, node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node


class _Calls(ast.NodeTransformer):
    """Has the calls ``name(*args, **kwargs)`` of a function go through another."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(ast.Name(self.name), [ast.Starred(args)], [ast.keyword(None, kwargs)]):
                self.found = True
                called = ast.Call(ast.Name(_CALLED, ast.Load()), [node.func, args, kwargs], [])
                return ast.copy_location(called, node)
            case _:
                return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node


def _compiled(
    function: types.FunctionType,
    before: str,
    transformer: ast.NodeTransformer | None,
    constants: dict[str, Any],
) -> types.CodeType | None:
    code = function.__code__
    try:
        source = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError, SystemError):
        return None
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or code.co_freevars:
        return None
    ast.increment_lineno(tree, code.co_firstlineno - 1)
    tree.body[:0] = _imports(function)
    own = _code_of(tree, code)
    if own is None or (own.co_code, own.co_names, own.co_varnames) != (
        code.co_code,
        code.co_names,
        code.co_varnames,
    ):
        return None
    if transformer is not None:
        definition.body = [transformer.visit(statement) for statement in definition.body]
    added = ast.parse(before).body
    for statement in added:
        for node in ast.walk(statement):
            if hasattr(node, "lineno"):
                node.lineno = node.end_lineno = code.co_firstlineno  # type: ignore[attr-defined]
    definition.body[:0] = added
    ast.fix_missing_locations(tree)
    made = _code_of(tree, code)
    if made is None or made.co_freevars:
        return None
    return made.replace(
        co_consts=tuple(
            constants.get(constant, constant) if isinstance(constant, str) else constant
            for constant in made.co_consts
        ),
        co_name=code.co_name,
        co_qualname=code.co_qualname,
    )


def _imports(function: types.FunctionType) -> list[ast.stmt]:
    """Imports of the names that the function's module imports, as far as the function has them: the
    compiler looks at nothing else of a module."""
    imported = []
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        origin = getattr(value, "__module__", None)
        is_module = isinstance(value, types.ModuleType)
        if is_module or (value is not None and origin not in (None, function.__module__)):
            imported.append(name)
    return ast.parse(f"from x import {', '.join(imported)}").body if imported else []


def _code_of(tree: ast.Module, like: types.CodeType) -> types.CodeType | None:
    flags = like.co_flags & 0x1FF0000  # those of the file's `from __future__ import`
    module = compile(tree, like.co_filename, "exec", flags=flags, dont_inherit=True)
    codes = [const for const in module.co_consts if isinstance(const, types.CodeType)]
    return next((code for code in codes if code.co_name == like.co_name), None)
