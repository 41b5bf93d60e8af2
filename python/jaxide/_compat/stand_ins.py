"""Python functions that stand in for functions of jax while a trace of ours may run."""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

import jax

from jaxide import _core, _sites
from jaxide._compat.hooks import DEBUG_INFO, VJP
from jaxide._compat.sources import ACCUMULATORS, has_text
from jaxide._compat.symbols import Mismatch, checked_function, jax_module, optional_symbol, symbol
from jaxide._compat.tracing import private, type_of_jits
from jaxide._names import DebugInfos


def _is_cacheable(fun: Any) -> bool:
    """Whether jax's caches can hold a function."""
    try:
        hash(fun)
        weakref.ref(fun)
    except TypeError:
        return False
    return True


def debug_info_stand_in() -> DebugInfos | None:
    """``debug_info``, remembering; None where jax's makes names of more than it did."""
    registry = optional_symbol("tree_util:tracing_registry")
    names = "traced_for fun args kwargs static_argnums static_argnames"
    try:
        stock = checked_function(DEBUG_INFO, f"{names} result_paths_thunk sourceinfo signature")
    except Mismatch:
        return None
    if registry is None:
        return None
    source, new = private().fun_sourceinfo, private().debug_info
    return DebugInfos(_sites.copy_function(stock), source, registry.flatten, new)


def eval_shape_stand_in() -> Callable[..., Any] | None:
    """``eval_shape`` by a trace without a jit; None where jax reads a trace's shapes elsewhere."""
    function = inspect.unwrap(jax.eval_shape)
    out_info = optional_symbol("stages:_traced_out_info")
    ends = "return jit(fun).trace(*args, **kwargs).out_info"
    if out_info is None or not has_text(function, ends):
        return None
    from jaxide import _tracing  # which imports this module

    stock = _sites.copy_function(function)
    jit_type = type_of_jits()

    def eval_shape(fun: Any, *args: Any, **kwargs: Any) -> Any:
        traced = None
        if type(fun) is not jit_type and _is_cacheable(fun):
            traced = _tracing.trace(fun, args, kwargs)
        if traced is None:
            return stock(fun, *args, **kwargs)
        unspecified = (None,) * len(traced.jaxpr.out_avals)
        params = {"out_shardings": unspecified, "out_layouts": unspecified}
        return out_info(
            types.SimpleNamespace(_params=params, jaxpr=traced.jaxpr, out_tree=traced.out_tree)
        )

    return eval_shape


def vjp_stand_in() -> Callable[..., Any] | None:
    """``_vjp3_callable`` where all cotangents are wanted as values; None where jax's is another."""
    function = symbol(VJP)
    if not has_text(function, ACCUMULATORS):
        return None
    stock = _sites.copy_function(function)
    api, partial = jax_module("jax._src.api"), functools.partial
    backward, not_needed = api._vjp3_bwd, api.NotNeeded

    def hook(*given: Any) -> Any:
        if len(given) > 8:
            # Accumulators of the caller's own.
            return stock(*given)
        spec, out_known, jaxpr, out_primal_avals, in_tree, out_tree, args_res, opaque_res = given
        leaves = jax.tree.leaves(args_res, is_leaf=lambda x: isinstance(x, not_needed))
        residuals = [leaves[i.idx] if i.primal else opaque_res[i.idx] for i in spec]
        accumulators = _core.new_accumulators(jaxpr.invars, in_tree.num_leaves)
        pullback = partial(backward, in_tree, out_tree, out_known, jaxpr, out_primal_avals)
        return jax.tree_util.Partial(pullback, residuals, accumulators)

    return hook
