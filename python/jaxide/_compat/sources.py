"""What functions and classes of jax say: digests of their sources, and which of them are known.

``known_sources.json`` has, for each that jaxide's own code rests on, the digests in each version of
jax that jaxide was compared with (``scripts/port`` writes the file), and those of whole files: a
file that is known need not be looked through.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import io
import json
import tokenize
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxide._compat.symbols import optional_symbol, symbol

FOLDER = Path(jax.__file__).parent / "_src"
KNOWN = Path(__file__).with_name("known_sources.json")

# Stands for the digest of what a version of jax does not have.
ABSENT = "absent"


class Known(NamedTuple):
    """The digests that are known: of a file or a path, each with the versions that have it."""

    files: dict[str, dict[str, str]]
    paths: dict[str, dict[str, str]]


@functools.cache
def known() -> Known:
    """What ``known_sources.json`` has; nothing, where it cannot be read."""
    try:
        found = json.loads(KNOWN.read_text("utf-8"))
        return Known({**found["files"]}, {**found["paths"]})
    except (OSError, ValueError, KeyError, TypeError):
        return Known({}, {})


def is_known(path: str) -> bool:
    """Whether the installed jax has at ``path`` (``module:name.name``, below ``jax._src``) what one
    of the known versions has there."""
    module = path.partition(":")[0]
    if _is_known_file(module):
        return True
    found = digest(path)
    if found == ABSENT and optional_symbol(path) is not None:
        return False  # it is there, and nobody knows from where
    return found in known().paths.get(path, ())


def is_there(path: str) -> bool:
    """Whether there is a file in which ``path`` would be."""
    return file_digest(path.partition(":")[0]) != ABSENT


@functools.cache
def _is_known_file(module: str) -> bool:
    return file_digest(module) in known().files.get(module, ())


@functools.cache
def file_digest(module: str) -> str:
    """The digest of a module's file."""
    try:
        return _digest(file_of(module).read_bytes())
    except OSError:
        return ABSENT


@functools.cache
def digest(path: str) -> str:
    """The digest of the source at ``path``, without comments, documentation and layout."""
    found = source(path)
    return ABSENT if found is None else _digest(normalized(found).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def file_of(module: str) -> Path:
    """The file of a module, named below ``jax._src``."""
    path = FOLDER.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def _parsed(module: str) -> tuple[ast.Module, list[str]] | None:
    try:
        text = file_of(module).read_text("utf-8")
        return ast.parse(text), io.StringIO(text).readlines()
    except (OSError, SyntaxError, ValueError):
        return None


def source(path: str) -> str | None:
    """The source of all statements that say what is at ``path``, decorators included; None where
    there are none.

    Example: for ``core:Var.pretty_print``, the method, and ``Var.pretty_print = ...`` elsewhere in
    the file.
    """
    parsed, found = _parsed(path.partition(":")[0]), bindings(path)
    if parsed is None or not found:
        return None
    texts = []
    for node in found:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        texts.append("".join(parsed[1][first - 1 : node.end_lineno]))
    return "".join(texts)


def bindings(path: str) -> list[ast.stmt]:
    """The statements of a file that say what is at ``path``, or may do so."""
    module, _, names = path.partition(":")
    parsed = _parsed(module)
    if parsed is None:
        return []
    name, _, member = names.partition(".")
    found = list(_binding(parsed[0].body, name))
    if member:
        classes = [node for node in found if isinstance(node, ast.ClassDef)]
        members = [m for node in classes for m in _binding(node.body, member)]
        found = [node for node in found if node not in classes]
        return sorted([*found, *members] if members else [], key=lambda node: node.lineno)
    return found


def _binding(body: Sequence[ast.AST], name: str) -> Iterator[ast.stmt]:
    """The statements of a scope that bind a name, or an attribute of what has it."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner = ast.walk(node) if node.name != name else ()
            if node.name == name or any(
                isinstance(n, ast.Global) and name in n.names for n in inner
            ):
                yield node
        elif isinstance(node, ast.stmt):
            blocks = [n for n in ast.iter_child_nodes(node) if isinstance(n, _BLOCKS)]
            heads = [n for n in ast.iter_child_nodes(node) if n not in blocks]
            heads += [n.pattern for n in blocks if isinstance(n, ast.match_case)]
            names = [getattr(n, "name", None) for n in blocks]
            if name in names or any(_binds(n, name) for n in heads or [node]):
                yield node
            else:
                yield from _binding(blocks, name)
        else:
            yield from _binding(list(ast.iter_child_nodes(node)), name)


_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
# What may bind any name of a module.
_DYNAMIC = ("globals", "locals", "vars", "exec", "eval")


def _binds(node: ast.AST, name: str) -> bool:
    """Whether a part of a statement binds a name, or an attribute of what has it."""
    for part in ast.walk(node):
        match part:
            case ast.Name(id=found, ctx=ast.Store() | ast.Del()) if found == name:
                return True
            case ast.Attribute(value=ast.Name(id=found), ctx=ast.Store() | ast.Del()):
                if found == name:
                    return True
            case ast.alias(name=imported, asname=alias):
                if (alias or imported.partition(".")[0]) in (name, "*"):
                    return True
            case ast.MatchAs(name=found) | ast.MatchStar(name=found) if found == name:
                return True
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[ast.Name(id=of), *_]):
                if of == name:
                    return True
            case ast.Call(func=ast.Name(id="setattr" | "delattr")):
                return True
            case ast.Call(func=ast.Name(id=called)) if called in _DYNAMIC:
                return True
    return False


def node_at(path: str) -> ast.stmt | None:
    """The last statement that defines what is at ``path``: a function, a class or an assignment."""
    module, _, names = path.partition(":")
    parsed = _parsed(module)
    node: Any = None if parsed is None else parsed[0]
    for name in names.split("."):
        node = None if node is None else _member(node, name)
    found: ast.stmt | None = node
    return found


def _member(node: ast.AST, name: str) -> ast.stmt | None:
    """The last statement in a module or class that defines a name."""
    found: ast.stmt | None = None
    pending = list(ast.iter_child_nodes(node))[::-1]
    while pending:
        child = pending.pop()
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found = child if child.name == name else found
        elif isinstance(child, ast.Assign):
            targets = [t.id for t in child.targets if isinstance(t, ast.Name)]
            found = child if name in targets else found
        elif isinstance(child, ast.AnnAssign):
            is_it = isinstance(child.target, ast.Name) and child.target.id == name
            found = child if is_it and child.value is not None else found
        elif isinstance(child, (ast.If, ast.Try, ast.With)):
            pending += list(ast.iter_child_nodes(child))[::-1]
    return found


def normalized(text: str) -> str:
    """A piece of source without comments, documentation and layout.

    It has a line for each logical line, with its level of indentation and its tokens. What cannot
    be read is as it is.
    """
    try:
        return "\n".join(
            " ".join([str(level), *(string for _, string in tokens)])
            for level, tokens in _logical_lines(text)
            if [kind for kind, _ in tokens] != [tokenize.STRING]
        )
    except (tokenize.TokenError, SyntaxError):
        return text


def _logical_lines(text: str) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """The logical lines of a source: the level of indentation, and the tokens with their kinds.

    A formatted string is one token, as it was before Python 3.12.
    """
    level, tokens, opened = 0, list[tuple[int, str]](), list[tuple[int, int]]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if name in ("FSTRING_START", "TSTRING_START"):
            opened.append(token.start)
        elif name in ("FSTRING_END", "TSTRING_END"):
            start = opened.pop()
            if not opened:
                tokens.append((tokenize.OP, _between(text, start, token.end)))
        elif opened or token.type in (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER):
            continue
        elif token.type == tokenize.INDENT:
            level += 1
        elif token.type == tokenize.DEDENT:
            level -= 1
        elif token.type == tokenize.NEWLINE:
            yield level, tokens
            tokens = []
        else:
            tokens.append((token.type, token.string))


def _between(text: str, start: tuple[int, int], end: tuple[int, int]) -> str:
    lines = io.StringIO(text).readlines()[start[0] - 1 : end[0]]
    lines[-1] = lines[-1][: end[1]]
    lines[0] = lines[0][start[1] :]
    return "".join(lines)


def inner_code(path: str, name: str) -> types.CodeType | None:
    """The code of the one function in a function in which a name occurs; None where there is no
    one."""
    codes = [
        code
        for code in inspect.unwrap(symbol(path)).__code__.co_consts
        if isinstance(code, types.CodeType) and name in code.co_names
    ]
    return codes[0] if len(codes) == 1 else None
