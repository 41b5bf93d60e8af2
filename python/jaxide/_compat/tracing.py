"""What starting and finishing a trace needs of jax."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from jaxide._compat.jaxprs import with_constants
from jaxide._compat.symbols import Mismatch, checked_function, optional_symbol, symbol

_P = ParamSpec("_P")
_R = TypeVar("_R")


@functools.cache
def private() -> types.SimpleNamespace:
    """What `_tracing` needs of jax's private functions."""
    return types.SimpleNamespace(
        argument_names=checked_function(
            "api_util:_non_static_arg_names",
            "fn_signature args kwargs static_argnums static_argnames",
        ),
        array_type=symbol("array:ArrayImpl"),
        check_callable=checked_function("api_util:check_callable", "fun"),
        check_no_aliased_references=checked_function(
            "api_util:_check_no_aliased_closed_over_refs", "dbg consts args"
        ),
        check_tracer_leaks=symbol("config:check_tracer_leaks"),
        clean_path=checked_function("linear_util:_clean_keystr_arg_names", "k"),
        debug_info=symbol("core:DebugInfo"),
        debug_key_reuse=symbol("config:debug_key_reuse"),
        flat_tree=optional_symbol("tree_util:FlatTree"),
        flatten_static=optional_symbol(
            "flattree:flatten_static_argnums_argnames_and_return_various_trees"
        ),
        fun_name=checked_function("util:fun_name", "fun default_name"),
        fun_signature=checked_function("api_util:fun_signature", "fun"),
        fun_sourceinfo=checked_function("api_util:fun_sourceinfo", "fun"),
        initial_result_paths=symbol("core:initial_result_paths"),
        is_top_level=is_top_level(),
        log_elapsed_time=symbol("dispatch:log_elapsed_time"),
        mutable_array_checks=symbol("config:mutable_array_checks"),
        quasi_dynamic_index=optional_symbol("pjit:_qdd_cache_index"),
        quasi_dynamic_update=optional_symbol("pjit:_qdd_cache_update"),
        separate_consts=symbol("interpreters.partial_eval:separate_consts"),
        shaped_abstractify=checked_function("core:shaped_abstractify", "x"),
        shaped_array=symbol("core:ShapedArray"),
        single_device_sharding=symbol("sharding_impls:SingleDeviceSharding"),
        trace_event=symbol("dispatch:JAXPR_TRACE_EVENT"),
        trace_to_jaxpr=symbol("interpreters.partial_eval:trace_to_jaxpr"),
        tracer=symbol("core:Tracer"),
        typeof=symbol("core:typeof"),
    )


def flatten_arguments(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """jax's ``FlatTree`` of the arguments of a jit, and their tree as a trace reports it."""
    jax = private()
    if jax.flatten_static is not None:
        leaves, _, tree = jax.flatten_static(args, kwargs, (), ())
        return leaves, tree
    # What `flatten_static_argnums_argnames` makes of two trees without static leaves.
    leaves = jax.flat_tree.flatten((args, kwargs))
    leaves.statics = (False, False)
    return leaves, leaves.tree


def flattened(args: Any, kwargs: Any, static_argnums: Any, static_argnames: Any) -> Any:
    """jax's ``FlatTree`` of the arguments of a jit, of which some are static."""
    jax = private()
    if jax.flatten_static is not None:
        return jax.flatten_static(args, kwargs, static_argnums, static_argnames)[0]
    return jax.flat_tree.flatten_static_argnums_argnames(
        args, kwargs, static_argnums, static_argnames
    )


def quasi_dynamic_state(fun: Any, avals: Any) -> tuple[Any, ...]:
    """What jax before 0.11 adds to the key of a trace for types with quasi-dynamic data."""
    index = private().quasi_dynamic_index
    return () if index is None else (index(fun, avals.vals),)


def note_quasi_dynamic_state(fun: Any, avals: Any, state: tuple[Any, ...]) -> None:
    """Records, as jax before 0.11 does, that a trace captured nothing with quasi-dynamic data."""
    if state:
        private().quasi_dynamic_update(fun, avals.vals, *state, [], [])


def check_captured(fun: Any, avals: Any, state: tuple[Any, ...], args: Any, jaxpr: Any) -> Any:
    """Does what a jit does about captured values that are no arrays; they stay constants.

    Raises:
      ValueError: a mutable array is both captured and an argument.
    """
    jax = private()
    consts: list[Any] = []
    if any(isinstance(c, jax.tracer) or (state and jax.typeof(c).has_qdd) for c in jaxpr.consts):
        jaxpr, consts = jax.separate_consts(jaxpr)
    if jax.mutable_array_checks.value:
        jax.check_no_aliased_references(jaxpr.debug_info, (*jaxpr.consts, *consts), args)
    if state:
        quasi_dynamic = jaxpr.in_aval_qdds[: len(consts)]
        jax.quasi_dynamic_update(fun, avals.vals, *state, consts, quasi_dynamic)
    return with_constants(jaxpr, consts)


def is_top_level() -> Callable[[], bool]:
    """The function that says whether no trace is running."""
    found: Callable[[], bool] = optional_symbol("core:trace_ctx.is_top_level") or symbol(
        "core:trace_state_clean"
    )
    return found


def type_of_jits() -> type:
    """The type of what jax's own ``jax.jit`` returns."""
    found = type(symbol("api:jit")(lambda: None))
    if found is types.FunctionType:
        raise Mismatch("jax.jit is not jax's own")
    return found


def api_boundary(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """jax's own boundary, which hides internal frames from tracebacks."""
    bounded: Callable[_P, _R] = symbol("traceback_util:api_boundary")(function)
    return bounded


def wraps(function: Callable[..., Any]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """jax's ``wraps``, tolerant of callables without a name."""
    decorator: Callable[[Callable[_P, _R]], Callable[_P, _R]] = symbol("util:wraps")(function)
    return decorator


def extend_axis_env(axis_env: Any) -> Any:
    """A context with named axes, as ``jax.make_jaxpr(axis_env=...)`` sets up."""
    return symbol("core:extend_axis_env_nd")(axis_env) if axis_env else contextlib.nullcontext()
