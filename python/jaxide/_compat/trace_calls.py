"""Tracing without a jit: what ``jax.jit(fun).trace(*args)`` does with the default options.

``jax.make_jaxpr`` makes a compiled function and asks it for its trace. Most of what that prepares
(shardings, layouts, donation, the types that lowering needs) is not part of a jaxpr. Here is what
is, in the order of jax's ``_infer_params`` and ``_trace_for_jit``; it ends in the same cache, so
that a function object is traced once, whoever asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxide import _core
from jaxide._compat import monitoring
from jaxide._compat.hooks import argument_names, path_names
from jaxide._compat.jaxprs import set_names
from jaxide._compat.tracing import (
    check_captured,
    flatten_arguments,
    note_quasi_dynamic_state,
    private,
    quasi_dynamic_state,
)
from jaxide._native.debug_names import (
    ARGUMENT_NAMES,
    RESULT_PATHS,
    Postponed,
    outermost,
    parameters,
)


class Traced(NamedTuple):
    """A traced function: its closed jaxpr, the tree of its arguments, and jax's ``FlatTree`` of the
    types of its results."""

    jaxpr: Any
    in_tree: Any
    out: Any

    @property
    def out_tree(self) -> Any:
        return self.out.tree


def trace(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced | None:
    """Traces ``fun``; None where more is needed than this. A jit then finds what was traced in
    jax's cache."""
    run = _run(fun, args, kwargs)
    if run is None:
        return None
    jaxpr, out = run.jaxpr, run.out
    paths = RESULT_PATHS.get(("outermost", out.tree), lambda: _paths(out))
    set_names(jaxpr, jaxpr.debug_info._replace(result_paths=paths))
    if all(_is_array(const) for const in jaxpr.consts):
        note_quasi_dynamic_state(fun, run.in_avals, run.state)
    else:
        jaxpr = check_captured(fun, run.in_avals, run.state, run.leaves, jaxpr)
    return Traced(jaxpr, run.in_tree, out)


def result_types(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any] | None:
    """As ``trace``, where only the types of the results are wanted: jax's ``FlatTree`` of them, and
    the program."""
    run = _run(fun, args, kwargs)
    if run is None:
        return None
    jaxpr, out = run.jaxpr, run.out
    if type(jaxpr.debug_info.result_paths) is Postponed:
        # A jit that finds the program names them; until then only error messages ask.
        paths = Postponed(lambda: _paths(out))
        set_names(jaxpr, jaxpr.debug_info._replace(result_paths=paths))
    if all(_has_array_type(const) for const in jaxpr.consts):
        note_quasi_dynamic_state(fun, run.in_avals, run.state)
    else:
        check_captured(fun, run.in_avals, run.state, run.leaves, jaxpr)
    return out, jaxpr


class _Run(NamedTuple):
    """What jax's ``trace_to_jaxpr`` returned, and what it was given."""

    jaxpr: Any
    out: Any
    in_avals: Any
    in_tree: Any
    leaves: tuple[Any, ...]
    state: tuple[Any, ...]


def _run(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Run | None:
    known = private()
    if known.debug_key_reuse.value or known.check_tracer_leaks.value:
        return None
    known.check_callable(fun)
    leaves, in_tree = flatten_arguments(args, kwargs)
    # Of the shardings only a named one is part of a type.
    avals = _core.plain_types(
        leaves.vals, known.array_type, known.single_device_sharding, _plain_aval
    )
    if avals is None:
        return None
    in_avals = leaves.update(avals)

    debug_info = getattr(fun, "__fun_debug_info__", None)
    if debug_info is None:
        source = known.fun_sourceinfo(fun)
        names = ARGUMENT_NAMES.get(
            (parameters(fun) or known.fun_signature(fun), leaves.tree),
            lambda: _argument_names(fun, args, kwargs),
        )
        debug_info = known.debug_info("jit", source, names, known.initial_result_paths)
    if debug_info.arg_names is not None and len(debug_info.arg_names) != len(leaves.vals):
        return None  # jax raises
    state = quasi_dynamic_state(fun, in_avals)
    is_outermost = known.is_top_level()
    if is_outermost:
        monitoring.expect(debug_info.func_src_info)
    timed = (
        known.log_elapsed_time(
            "Finished tracing {fun_name} for jit in {elapsed_time:.9f} sec",
            known.fun_name(fun),
            event=known.trace_event,
        )
        if is_outermost
        else contextlib.nullcontext()
    )
    with timed, outermost(debug_info):
        jaxpr, out = known.trace_to_jaxpr(fun, in_avals, debug_info, *state)
    return _Run(jaxpr, out, in_avals, in_tree, leaves.vals, state)


def _argument_names(fun: Any, args: Any, kwargs: Any) -> tuple[str, ...]:
    """The names of arguments by their places."""
    known, own = private(), argument_names()
    if own is not None:
        return own.of(fun, args, kwargs, known.fun_signature)
    signature = known.fun_signature(fun)
    names: tuple[str, ...] = known.argument_names(signature, args, kwargs, (), ())
    return names


def _paths(out: Any) -> tuple[str, ...]:
    """The names of results by their places."""
    names = path_names()
    if names is not None:
        return names.after("result", out.paths.vals)
    clean = private().clean_path
    return tuple(f"result{clean(path)}" for path in out.paths)


def _plain_aval(leaf: Any) -> Any:
    """The type of an argument where it is an array; None for whatever jax has more to say about."""
    known = private()
    if type(leaf) is known.array_type:
        return known.shaped_abstractify(leaf)
    try:
        aval = known.shaped_abstractify(leaf)
    except Exception:  # jax says what is wrong with which argument
        return None
    return aval if type(aval) is known.shaped_array else None


def _is_array(const: Any) -> bool:
    """Whether a captured value is an array, not a tracer or a Ref."""
    known = private()
    if type(const) is known.array_type:
        return True
    return not isinstance(const, known.tracer) and _has_array_type(const)


def _has_array_type(const: Any) -> bool:
    """Whether a captured value is an array or the tracer of one."""
    known = private()
    return type(const) is known.array_type or type(known.typeof(const)) is known.shaped_array
