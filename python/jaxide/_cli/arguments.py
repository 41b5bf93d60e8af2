"""The arguments that a function is traced with, written as types."""

from __future__ import annotations

import ast
import re
from typing import Any

import click
import jax
import jax.numpy as jnp

from jaxide._cli.targets import find, in_users_code

# Of an argument in a message.
MAX_SHOWN = 80
# `f32`, `bf16`, `i8`, `f8_e4m3fn`: how jax prints dtypes.
_SHORT = re.compile(r"(bf|f|i|u|c)(\d+)(_\w+)?")
_LONG_NAMES = {"bf": "bfloat", "f": "float", "i": "int", "u": "uint", "c": "complex"}

# A string, which may look like anything, or a type: `f32[8,128]`, `bool[]`, `key[4]`.
_TOKEN = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<dtype>[a-z]\w*)\[(?P<shape>[^\[\]]*)\]"""
)


def parse(text: str) -> Any:
    """The argument that a text stands for.

    - ``f32[8,128]``, ``bool[]``, ``key[4]``: an array of this type, as jax prints it
    - ``tree:{"w": f32[8,8], "b": (f32[8], None)}``: dicts, lists and tuples of types
    - ``from:MODULE:OBJECT``: the object, or what it returns where it is a function
    - ``3``, ``0.5``, ``True``, ``"relu"``, ``None``: the Python value

    Raises:
      click.BadParameter: the text is none of these.
    """
    if text.startswith("from:"):
        found = find(text.removeprefix("from:"))
        with in_users_code(f"calling {text.removeprefix('from:')} for an argument"):
            return found() if callable(found) else found
    body = text.removeprefix("tree:")
    types: list[Any] = []

    def placeholder(match: re.Match[str]) -> str:
        if match["text"] is not None:
            return match["text"]
        types.append(_array(match["dtype"], match["shape"], text))
        return f"_{len(types) - 1}"

    try:
        tree = ast.parse(_TOKEN.sub(placeholder, body).strip(), mode="eval").body
        return _value(tree, types, text)
    except click.ClickException:
        raise
    except (RecursionError, MemoryError):
        raise _unreadable(text, "it is nested too deeply") from None
    except (SyntaxError, ValueError, TypeError):
        raise _unreadable(text, "expected a type such as f32[8,128], or a tree of types") from None


def _unreadable(text: str, why: str) -> click.BadParameter:
    shown = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    return click.BadParameter(f"{shown!r} is no argument: {why}")


def _array(dtype_name: str, shape_text: str, text: str) -> Any:
    """The type of an array."""
    try:
        dims = [d for d in shape_text.split(",") if d.strip()]
        shape = tuple(int(d) for d in dims)
    except ValueError:
        raise _unreadable(text, f"[{shape_text}] is no shape, which is integers") from None
    if any(d < 0 for d in shape):
        raise _unreadable(text, f"[{shape_text}] has a negative dimension")
    if dtype_name == "key":
        return jax.eval_shape(lambda: jnp.broadcast_to(jax.random.key(0), shape))
    short = _SHORT.fullmatch(dtype_name)
    name = _LONG_NAMES[short[1]] + short[2] + (short[3] or "") if short else dtype_name
    try:
        dtype = jnp.dtype(name)
    except TypeError:
        raise _unreadable(text, f"there is no dtype {dtype_name!r}") from None
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise _unreadable(text, f"jax has {dtype_name} only with 64-bit types: add --x64")
    return jax.ShapeDtypeStruct(shape, dtype)


def _value(node: ast.expr, types: list[Any], text: str) -> Any:
    """The pytree of a piece of syntax."""
    match node:
        case ast.Name(id=name) if name[1:].isdigit() and int(name[1:]) < len(types):
            return types[int(name[1:])]
        case ast.Tuple(elts=elements):
            return tuple(_value(element, types, text) for element in elements)
        case ast.List(elts=elements):
            return [_value(element, types, text) for element in elements]
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_constant(k, text): _value(v, types, text) for k, v in pairs}
        case _:
            return _constant(node, text)


def _constant(node: ast.expr | None, text: str) -> Any:
    """A Python value."""
    try:
        return ast.literal_eval(node) if node is not None else None
    except ValueError:
        said = "expected types, Python values, and dicts, lists and tuples of them"
        raise _unreadable(text, said) from None
