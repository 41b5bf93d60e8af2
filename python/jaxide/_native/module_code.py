"""What the code of a module does, and what its source says, as far as the world's judgement needs.

For example which of its global variables the functions of a module assign.
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jaxide._native import trust

_IMMUTABLE = frozenset((type(None), bool, int, float, complex, str, bytes))


def is_imported_from(entries: Mapping[str, Any], name: str, module: str) -> bool:
    """Whether the file of a module with these entries imports a name from another module."""
    try:
        source = inspect.getsource(sys.modules[entries["__name__"]])
        body = ast.parse(source).body
    except (KeyError, OSError, SyntaxError, TypeError, ValueError):
        return False
    return any(
        isinstance(node, ast.ImportFrom)
        and (node.level, node.module) == (0, module)
        and any(alias.name == name == (alias.asname or name) for alias in node.names)
        for node in body
    )


def is_as_in_its_source(function: types.FunctionType) -> bool:
    """Whether a function is what its file defines: without decorators, and with these defaults as
    far as they are literals."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        (defined,) = ast.parse(source).body
    except (OSError, SyntaxError, ValueError):
        return False
    if not isinstance(defined, ast.FunctionDef) or defined.decorator_list:
        return False
    names = (arg.arg for arg in defined.args.kwonlyargs)
    pairs = zip(names, defined.args.kw_defaults, strict=True)
    keywords = {name: default for name, default in pairs if default is not None}
    defaults, kwdefaults = function.__defaults__ or (), function.__kwdefaults__ or {}
    return (
        len(defaults) == len(defined.args.defaults)
        and kwdefaults.keys() == keywords.keys()
        and all(map(_may_be, defaults, defined.args.defaults))
        and all(_may_be(kwdefaults[name], keywords[name]) for name in keywords)
    )


def _may_be(value: Any, written: ast.expr) -> bool:
    """Whether an expression may have this value."""
    if not isinstance(written, ast.Constant):
        return type(value) not in _IMMUTABLE
    return type(value) is type(written.value) and value == written.value


def _codes_of(module: str, entries: Mapping[str, Any]) -> Iterator[types.CodeType]:
    """The code of the functions that a module with these entries defines, and of those within
    them."""
    pending = [
        function.__code__
        for value in list(entries.values())
        if type(value) not in trust.PLAIN and not _is_from_elsewhere(value, module)
        for function in _functions_within(value)
        if function.__module__ == module
    ]
    while pending:
        code = pending.pop()
        pending += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        yield code


def _is_from_elsewhere(value: Any, module: str) -> bool:
    if not issubclass(type(value), (type, types.FunctionType)):
        return False
    try:
        own = value.__module__
    except Exception:  # the user's class says nothing
        return False
    # What stands in for classes of jaxlib has their module, and methods of jax.
    return type(own) is str and own != module and trust.is_jax_module(own)


def _has(code: types.CodeType, operations: set[int]) -> bool:
    return not operations.isdisjoint(code.co_code[::2])


def _named_by(code: types.CodeType, *operations: str) -> set[str]:
    """The global variables that instructions of a code name (``dis`` takes ten times as long)."""
    operations_of, values = code.co_code[::2], code.co_code[1::2]
    found = set()
    for operation in operations:
        wanted = dis.opmap[operation]
        at = operations_of.find(wanted)
        while at >= 0:
            index, before, shift = values[at], at - 1, 8
            while before >= 0 and operations_of[before] == dis.EXTENDED_ARG:
                index |= values[before] << shift
                before, shift = before - 1, shift + 8
            # The last bit of `LOAD_GLOBAL` says whether a call follows.
            found.add(code.co_names[index >> (operation == "LOAD_GLOBAL")])
            at = operations_of.find(wanted, at + 1)
    return found


def _once_for_each_module(
    find: Callable[[str, Mapping[str, Any]], frozenset[str]],
) -> Callable[[str, Mapping[str, Any]], frozenset[str]]:
    known: dict[str, frozenset[str]] = {}

    @functools.wraps(find)
    def found(module: str, entries: Mapping[str, Any]) -> frozenset[str]:
        if module not in known:
            known[module] = find(module, entries)
        return known[module]

    return found


@_once_for_each_module
def assigned(module: str, entries: Mapping[str, Any]) -> frozenset[str]:
    """The global variables that functions of a module with these entries assign."""
    found: set[str] = set()
    for code in _codes_of(module, entries):
        if _has(code, _STORES):
            found |= _named_by(code, "STORE_GLOBAL", "DELETE_GLOBAL")
    return frozenset(found)


@_once_for_each_module
def filled(module: str, entries: Mapping[str, Any]) -> frozenset[str]:
    """The global dicts that functions of a module change, as far as their code shows."""
    found: set[str] = set()
    for code in _codes_of(module, entries):
        if _CHANGING & set(code.co_names) or _has(code, _ITEMS):
            found |= _named_by(code, "LOAD_GLOBAL")
    return frozenset(found)


_CHANGING = {"clear", "pop", "popitem", "setdefault", "update"}
_ITEMS = {dis.opmap["STORE_SUBSCR"], dis.opmap["DELETE_SUBSCR"]}
_STORES = {dis.opmap["STORE_GLOBAL"], dis.opmap["DELETE_GLOBAL"]}


# Whatever the class of the class says.
_dict_of_class = type.__dict__["__dict__"].__get__


def _functions_within(value: Any) -> list[types.FunctionType]:
    members = list(_dict_of_class(value).values()) if issubclass(type(value), type) else [value]
    return [function for member in members for function in trust.functions_of(member)]
