"""Tracing without a jit: what ``jax.jit(fun).trace(*args)`` does with the default options.

``jax.make_jaxpr`` makes a compiled function and asks it for its trace. Most of what that prepares
(shardings, layouts, donation, the types that lowering needs) is not part of a jaxpr. Here is what
is, in the order of jax's ``_infer_params`` and ``_trace_for_jit``; it ends in the same cache, so that
a function object is traced once, whoever asks.
"""

from __future__ import annotations

import contextlib
import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxide import _compat


class Traced(NamedTuple):
    """A traced function: its closed jaxpr, and the trees of its arguments and results."""

    jaxpr: Any
    in_tree: Any
    out_tree: Any


class _ArgumentNames:
    """Names of arguments, which jax derives anew at each trace; bounded, least recent first."""

    def __init__(self, size: int):
        self._size = size
        self._names: OrderedDict[Any, tuple[str, ...] | None] = OrderedDict()

    def __call__(
        self, signature: inspect.Signature | None, tree: Any, args: Any, kwargs: Any
    ) -> tuple[str, ...] | None:
        key = (signature, tree)
        try:
            names = self._names[key]
            self._names.move_to_end(key)
        except KeyError:
            names = _compat.private().argument_names(signature, args, kwargs, (), ())
            self._names[key] = names
            if len(self._names) > self._size:
                self._names.popitem(last=False)
        except TypeError:  # a default value, or a node of the tree, that has no hash
            names = _compat.private().argument_names(signature, args, kwargs, (), ())
        return names


_argument_names = _ArgumentNames(256)


def trace(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced | None:
    """Traces ``fun``; None where more is needed than this. A jit then finds what was traced in
    jax's cache."""
    jax = _compat.private()
    if jax.debug_key_reuse.value or jax.check_tracer_leaks.value:
        return None
    jax.check_callable(fun)
    leaves, in_tree = _compat.flatten_arguments(args, kwargs)
    avals = []
    for leaf in leaves.vals:
        if type(leaf) is jax.array_type and type(leaf.sharding) is jax.single_device_sharding:
            avals.append(leaf.aval)
            continue
        try:
            aval = jax.shaped_abstractify(leaf)
        except Exception:  # jax says what is wrong with which argument
            return None
        if type(aval) is not jax.shaped_array:
            return None
        avals.append(aval)
    in_avals = leaves.update(avals)

    debug_info = getattr(fun, "__fun_debug_info__", None)
    if debug_info is None:
        source = jax.fun_sourceinfo(fun)
        names = _argument_names(jax.fun_signature(fun), leaves.tree, args, kwargs)
        debug_info = jax.debug_info("jit", source, names, jax.initial_result_paths)
    state = _compat.quasi_dynamic_state(fun, in_avals)
    timed = (
        jax.log_elapsed_time(
            "Finished tracing {fun_name} for jit in {elapsed_time:.9f} sec",
            jax.fun_name(fun),
            event=jax.trace_event,
        )
        if jax.is_top_level()
        else contextlib.nullcontext()
    )
    with timed:
        jaxpr, out = jax.trace_to_jaxpr(fun, in_avals, debug_info, *state)
    if any(not _is_array(const) for const in jaxpr.consts):
        return None
    paths = tuple(f"result{jax.clean_path(path)}" for path in out.paths)
    getattr(jaxpr, "jaxpr", jaxpr)._debug_info = jaxpr.debug_info._replace(result_paths=paths)
    _compat.note_quasi_dynamic_state(fun, in_avals, state)
    return Traced(jaxpr, in_tree, out.tree)


def _is_array(const: Any) -> bool:
    """Whether a captured value is an array, not a tracer or a Ref."""
    jax = _compat.private()
    return type(const) is jax.array_type or (
        not isinstance(const, jax.tracer) and type(jax.typeof(const)) is jax.shaped_array
    )
