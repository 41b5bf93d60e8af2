"""Python functions that stand in for functions of jax while a trace of ours may run."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from jaxide import _core
from jaxide._compat import capabilities
from jaxide._compat.hooks import (
    DEBUG_INFO,
    INCLUDE_FILENAME,
    KWARGS,
    MAKE_JAXPR_CLOSURE,
    VJP,
    argument_names,
)
from jaxide._compat.sources import inner_code
from jaxide._compat.symbols import jax_module, optional_symbol, symbol
from jaxide._compat.trace_calls import result_types, trace
from jaxide._compat.tracing import private, type_of_jits
from jaxide._native.bounded import trim
from jaxide._native.debug_names import DebugInfos, parameters
from jaxide._native.trampolines import copy_function

# Of how many files it is remembered whether they are jax's.
MAX_FILES = 4096


def _is_cacheable(fun: Any) -> bool:
    """Whether jax's caches can hold a function."""
    try:
        hash(fun)
        weakref.ref(fun)
    except TypeError:
        return False
    return True


def debug_info_stand_in() -> DebugInfos | None:
    """``debug_info``, remembering; None where it is left to jax."""
    registry = optional_symbol("tree_util:tracing_registry")
    if registry is None or not capabilities.has("names"):
        return None
    known = private()
    return DebugInfos(
        copy_function(symbol(DEBUG_INFO)),
        known.fun_sourceinfo,
        registry.flatten,
        known.debug_info,
        argument_names(),
        known.fun_signature,
    )


@functools.cache
def result_struct() -> Callable[[Any], Any] | None:
    """What jax says of a trace's result by its type; None where it reads that elsewhere."""
    out_info = optional_symbol("stages:_traced_out_info")
    if out_info is None:
        return None
    params, leaf = {"out_shardings": (None,), "out_layouts": (None,)}, jax.tree.structure(0)

    def struct(aval: Any) -> Any:
        program = types.SimpleNamespace(out_avals=(aval,))
        return out_info(types.SimpleNamespace(_params=params, jaxpr=program, out_tree=leaf))

    return struct


def result_shapes() -> Callable[[Any, Any], Any] | None:
    """What jax says of a trace's results by jax's ``FlatTree`` of their types and the program; None
    as above."""
    new_struct, varies = result_struct(), optional_symbol("config:_check_vma")
    if new_struct is None or varies is None:
        return None

    def shapes(out: Any, jaxpr: Any) -> Any:
        structs = _core.result_structs(out.vals, varies.value)
        if structs is None:
            structs = list(map(new_struct, jaxpr.out_avals))
        return out.tree.unflatten(structs)

    return shapes


def eval_shape_stand_in() -> Callable[..., Any] | None:
    """``eval_shape`` by a trace without a jit; None where that is left to jax."""
    function = inspect.unwrap(jax.eval_shape)
    shapes = result_shapes()
    if shapes is None or not capabilities.has("direct traces"):
        return None

    stock = copy_function(function)
    jit_type = type_of_jits()

    def eval_shape(fun: Any, *args: Any, **kwargs: Any) -> Any:
        found = None
        is_plain = type(fun) is not jit_type and _is_cacheable(fun)
        if is_plain and not _core.is_jax_altered():
            found = result_types(fun, args, kwargs)
        if found is None:
            return stock(fun, *args, **kwargs)
        return shapes(*found)

    return eval_shape


def captured_shapes() -> Callable[[Any], Any] | None:
    """What ``eval_shape`` says of a function that returns a value it has captured: by the value, or
    None where a leaf is neither traced nor an array. None where that is left to jax."""
    registry = optional_symbol("tree_util:default_registry")
    varies = optional_symbol("config:_check_vma")
    known = registry is not None and varies is not None and result_struct() is not None
    if not known or not capabilities.has("direct traces"):
        return None

    def shapes(value: Any) -> Any:
        if _core.is_jax_altered():
            return None
        leaves, tree = registry.flatten(value)
        avals = _core.array_types(leaves)
        structs = None if avals is None else _core.result_structs(avals, varies.value)
        return None if structs is None else tree.unflatten(structs)

    return shapes


def make_jaxpr_stand_in() -> Callable[..., Any] | None:
    """What the function that ``make_jaxpr`` returns does, without a jit; None where that is left to
    jax."""
    function = inspect.unwrap(jax.make_jaxpr)
    inner = inner_code("api:make_jaxpr", "extend_axis_env_nd")
    shapes = result_shapes()
    if shapes is None or inner is None or not capabilities.has("direct traces"):
        return None
    if inner.co_freevars != MAKE_JAXPR_CLOSURE:
        return None

    names = function.__globals__

    def hook(
        axis_env: Any, fun: Any, return_shape: Any, static_argnums: Any, args: Any, kwargs: Any
    ) -> Any:
        plain = type(static_argnums) is tuple and not static_argnums and not axis_env
        is_native = plain and not _core.is_jax_altered()
        traced = trace(fun, args, kwargs) if is_native else None
        if traced is None:
            cells = tuple(map(types.CellType, (axis_env, fun, return_shape, static_argnums)))
            return types.FunctionType(inner, names, closure=cells)(*args, **kwargs)
        if return_shape:
            return traced.jaxpr, shapes(traced.out, traced.jaxpr)
        return traced.jaxpr

    return hook


def resolve_kwargs_stand_in() -> Callable[..., Any] | None:
    """``resolve_kwargs``, which looks at no signature where all arguments are positional and given;
    None where it is left to jax."""
    if not capabilities.has("names"):
        return None
    stock = copy_function(symbol(KWARGS))

    def resolve_kwargs(fun: Any, args: Any, kwargs: Any) -> Any:
        own = None if kwargs or type(fun) is not types.FunctionType else parameters(fun)
        if own is not None and not _core.is_jax_altered():
            code = fun.__code__
            more = len(args) - code.co_argcount
            fits = more == 0 or (more > 0 and code.co_flags & inspect.CO_VARARGS)
            if fits and not code.co_kwonlyargcount:
                return tuple(args)
        return stock(fun, args, kwargs)

    return resolve_kwargs


def include_filename_stand_in() -> Callable[[str], bool] | None:
    """``include_filename``, which asks the file system about each file once; None where it is left
    to jax. equinox asks for all frames at each ``error_if``.

    jax compares the file with each path that it excludes, and asks whether the folder in which both
    are is that path. No folder is where the path is that of a file.
    """
    excluded = optional_symbol("traceback_util:_exclude_paths")
    if not capabilities.has("frames") or type(excluded) is not list or os.name != "posix":
        return None
    stock = copy_function(symbol(INCLUDE_FILENAME))
    starts_with = symbol("traceback_util:_path_starts_with")
    # Of the paths that jax has been told so far: those of files, and the others.
    before: list[str] = []
    files: set[str] = set()
    others: list[str] = []
    known: dict[str, bool] = {}

    def read() -> None:
        paths = list(excluded)
        known.clear()
        files.clear()
        are_files = [os.path.isabs(path) and os.path.isfile(path) for path in paths]
        files.update(os.path.abspath(path) for path in itertools.compress(paths, are_files))
        others[:] = [path for path, is_file in zip(paths, are_files, strict=True) if not is_file]
        before[:] = paths

    def include_filename(filename: str) -> bool:
        if type(filename) is not str or not os.path.isabs(filename) or _core.is_jax_altered():
            return bool(stock(filename))
        if before != excluded:
            read()
        # They are of the folder that is current.
        if not all(map(os.path.isabs, others)):
            return bool(stock(filename))
        if (is_included := known.get(filename)) is None:
            path = Path(os.path.abspath(filename))
            is_excluded = any(str(part) in files for part in (path, *path.parents))
            is_excluded = is_excluded or any(starts_with(filename, other) for other in others)
            known[filename] = is_included = not is_excluded
            trim(known, MAX_FILES)
        return is_included

    return include_filename


def vjp_stand_in() -> Callable[..., Any] | None:
    """``_vjp3_callable`` where all cotangents are wanted as values; None where it is left to
    jax."""
    if not capabilities.has("backward pass"):
        return None
    function = symbol(VJP)
    logs = "want_logs" in inspect.signature(function).parameters
    make = _vjp_of_values_and_logs if logs else _vjp_of_values
    return make(function, jax_module("jax._src.api"))


def _vjp_of_values(function: Any, api: Any) -> Callable[..., Any]:
    stock, partial = copy_function(function), functools.partial
    backward, not_needed = api._vjp3_bwd, api.NotNeeded

    def hook(*given: Any) -> Any:
        *own, accumulators = given
        if accumulators or _core.is_jax_altered():
            # Accumulators of the caller's own, or other functions of jax.
            return stock(*own, *accumulators)
        spec, out_known, jaxpr, out_primal_avals, in_tree, out_tree, args_res, opaque_res = own
        accumulators = _core.new_accumulators(jaxpr.invars, 0, in_tree.num_leaves)
        if accumulators is None:
            return stock(*own)
        leaves = jax.tree.leaves(args_res, is_leaf=lambda x: isinstance(x, not_needed))
        residuals = [leaves[i.idx] if i.primal else opaque_res[i.idx] for i in spec]
        pullback = partial(backward, in_tree, out_tree, out_known, jaxpr, out_primal_avals)
        return jax.tree_util.Partial(pullback, residuals, accumulators)

    return hook


def _vjp_of_values_and_logs(function: Any, api: Any) -> Callable[..., Any]:
    """As above: where rules log what they do, and the residuals are the first inputs."""
    stock, partial = copy_function(function), functools.partial
    backward, unsaved, kinds = api._vjp3_bwd, api.NotSaveable, (api.NotNeeded, api.NotSaveable)

    def hook(*given: Any) -> Any:
        *own, accumulators = given
        if accumulators or _core.is_jax_altered():
            return stock(*own, *accumulators)
        spec, zeros, jaxpr, out_avals, in_tree, out_tree, args_res, opaque, structured, logs = own
        leaves = jax.tree.leaves(args_res, is_leaf=lambda x: isinstance(x, kinds))
        residuals = [leaves[i.idx] if i.primal else opaque[i.idx] for i in spec]
        accumulators = _core.new_accumulators(jaxpr.invars, len(spec), in_tree.num_leaves)
        if accumulators is None or any(isinstance(x, unsaved) for x in residuals):
            # jax says which argument cannot be differentiated.
            return stock(*own)
        pullback = partial(backward, in_tree, out_tree, zeros, jaxpr, out_avals, logs)
        return jax.tree_util.Partial(pullback, residuals, structured, accumulators)

    return hook
