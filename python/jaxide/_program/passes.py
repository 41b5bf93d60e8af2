"""Passes over programs: what they ask of Python, one small function each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxide import _compat, _core
from jaxide._compat import passes as _jax

PASSES = ("inline", "copies", "algebra", "fold", "cse", "dce")
"""Names of passes, in an order in which each finds what those before it have left."""


def optimize(
    graph: _core.Graph,
    debug_info: Any,
    passes: Sequence[str] | None,
    *,
    allow_reassociation: bool,
    max_folded: int,
    inline: Sequence[str] | None,
    max_inlined: int,
) -> _core.Graph:
    """The graph with passes done to it; itself where they find nothing."""
    if isinstance(passes, str):
        raise TypeError(f"passes must be a sequence of names, got the string {passes!r}")
    if isinstance(inline, str):
        raise TypeError(f"inline must be a sequence of names, got the string {inline!r}")
    names = list(PASSES if passes is None else passes)
    unknown = [name for name in names if name not in PASSES]
    if unknown:
        raise ValueError(
            f"there is no pass {unknown[0]!r}: passes must be among {', '.join(sorted(PASSES))}"
        )
    for name, limit in (("max_folded", max_folded), ("max_inlined", max_inlined)):
        if limit < 0:
            raise ValueError(f"{name} must not be negative, got {limit}")
    settings = {
        "passes": names,
        "allow_reassociation": allow_reassociation,
        "max_folded": max_folded,
        "inline": None if inline is None else list(inline),
        "max_inlined": max_inlined,
    }
    return _core.optimize(graph, debug_info, settings, Helpers)


def _is_known(primitive: Any) -> bool:
    return _jax.known_primitives().get(primitive.name) is primitive


def _number(value: Any) -> Any:
    """A value as a number of Python's, if it is one number."""
    # Typed ones are of classes of jax's.
    kinds: tuple[Any, ...] = (bool, int, float, complex)
    for kind in kinds:
        if isinstance(value, kind):
            return kind(value)
    if not isinstance(value, (np.ndarray, np.generic)) or value.shape:
        return None
    array = np.asarray(value)
    if array.dtype.kind == "V" and jax.dtypes.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float64)
    return array.item()


def _is_of(value: Any, aval: Any) -> bool:
    return bool(jax.typeof(value) == aval)


def _evaluate(
    primitive: Any, params: dict[str, Any], context: Any, operands: tuple[Any, ...], aval: Any
) -> Any:
    """What an equation computes; None where that depends on the device, or jax refuses it."""
    if any(map(_has_subnormal, operands)):
        return None
    try:
        value = _jax.evaluate_equation(primitive, params, context, operands)
    except Exception:
        # Whoever executes the program is told, as without the pass.
        return None
    if not _is_of(value, aval) or _has_subnormal(value):
        return None
    return None if primitive.name in _ROUNDED and _underflows(value, operands) else value


def _has_subnormal(value: Any) -> bool:
    """Whether a float is one that some devices take for zero."""
    array = np.asarray(value)
    if not jax.dtypes.issubdtype(array.dtype, np.inexact):
        return False
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    tiny = jax.numpy.finfo(array.dtype).tiny
    return any(bool(np.any((part != 0) & (np.abs(part) < tiny))) for part in parts)


# Arithmetic whose result may be too small for a normal number.
_ROUNDED = frozenset({"add", "sub", "mul", "div", "convert_element_type"})


def _underflows(value: Any, operands: tuple[Any, ...]) -> bool:
    """Whether a zero may stand for a number that other devices know."""
    is_nonzero = [np.asarray(operand) != 0 for operand in operands]
    zeros = np.asarray(value) == 0
    return bool(np.any(np.logical_and.reduce(np.broadcast_arrays(zeros, *is_nonzero))))


def _literal(value: Any, aval: Any) -> Any:
    """A literal of a type; None where the value is of another."""
    return _jax.new_literal(np.asarray(value), aval) if _is_of(value, aval) else None


def _array(value: Any, aval: Any) -> Any:
    """An array of jax's of a type; None where the value is of another."""
    if not _is_of(value, aval):
        return None
    return value if isinstance(value, jax.Array) else _jax.new_array(value)


def _as_value(number: float, aval: Any) -> Any:
    return _jax.typed_array(np.asarray(number, aval.dtype), aval)


def _with_programs(params: dict[str, Any], instead: dict[int, Any]) -> dict[str, Any]:
    """Params with other jaxprs, by the addresses of those that they replace."""
    return {name: _replaced(value, instead) for name, value in params.items()}


def _replaced(value: Any, instead: dict[int, Any]) -> Any:
    if id(value) in instead:
        return instead[id(value)]
    if isinstance(value, (tuple, list)):
        items = [_replaced(item, instead) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _is_closed(jaxpr: Any) -> bool:
    return _compat.closed_form(jaxpr) is jaxpr


def _trimmed(eqn: Any, used: list[bool]) -> Any:
    """What jax's rule leaves of an equation only some of whose outputs are used: operands and
    outputs that are left, params, effects; nothing where all of it goes, None where all stays."""
    try:
        operands, new = _jax.trim(used, eqn)
    except RecursionError:
        return None
    if new is None:
        return ()
    left = set(map(id, new.outvars))
    outputs = [id(var) in left for var in eqn.outvars]
    if all(operands) and all(outputs):
        return None
    return list(map(bool, operands)), outputs, new.params, new.effects


class Helpers:
    """What the native half calls."""

    is_known = staticmethod(_is_known)
    number = staticmethod(_number)
    evaluate = staticmethod(_evaluate)
    literal = staticmethod(_literal)
    array = staticmethod(_array)
    as_value = staticmethod(_as_value)
    multiplication = staticmethod(_jax.multiplication)
    with_programs = staticmethod(_with_programs)
    is_plain_call = staticmethod(_jax.is_plain_jit)
    is_closed = staticmethod(_is_closed)
    close = staticmethod(_compat.close)
    trimmed = staticmethod(_trimmed)
