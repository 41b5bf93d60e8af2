"""The functions of jax that the core steps into, and the codes with which they call it."""

from __future__ import annotations

import functools
import gc
import inspect
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxide import _core
from jaxide._compat import capabilities
from jaxide._compat.passes import takes_live_inputs
from jaxide._compat.sources import is_known
from jaxide._compat.symbols import Mismatch, checked_function, optional_symbol, symbol
from jaxide._native import trust
from jaxide._native.debug_names import ArgumentNames
from jaxide._native.instrumented import answered_first, called_through
from jaxide._native.trampolines import copy_function
from jaxide._native.trampolines import trampoline as trampoline_of

_PARTIAL_EVAL = "jax._src.interpreters.partial_eval"
# Where functions of jax are.
DEBUG_INFO = "api_util:debug_info"
CHECK_INPUT = "api:_check_input_dtype_revderiv"
VJP = "api:_vjp3_callable"
DCE = "interpreters.partial_eval:dce_jaxpr_consts"
DCE_CONSTS = "interpreters.ad:_dce_consts"
CHECK_TYPES = "interpreters.partial_eval:_check_returned_jaxtypes"
CHECK_REFS = "interpreters.partial_eval:_check_no_returned_refs"
BACKWARD = "interpreters.ad:backward_pass3"
EVALUATION = "core:eval_jaxpr"
INLINE = "interpreters.partial_eval:inline_jaxpr_into_trace"
MAKE_JAXPR = "api:make_jaxpr"
# What the function refers to that it returns.
MAKE_JAXPR_CLOSURE = ("axis_env", "fun", "return_shape", "static_argnums")
KWARGS = "api_util:resolve_kwargs"
INCLUDE_FILENAME = "traceback_util:include_filename"
RESULT_PATHS = "linear_util:DebugInfo.set_result_paths"
CLEAN_PATH = "linear_util:_clean_keystr_arg_names"


class _FlatTree(NamedTuple):
    """jax's tree of one ``PyTreeDef``: its class, its method ``map``, how leaves are read and
    replaced."""

    type: Any
    map: Any
    leaves: str
    with_leaves: Callable[[Any, Any], Any]


def flat_tree() -> _FlatTree:
    new = optional_symbol("flattree:FTPyTree")
    if new is None:
        map_leaves = checked_function("tree_util:FlatTree.map", "self f")
        update = checked_function("tree_util:FlatTree.update", "self new_vals")
        return _FlatTree(symbol("tree_util:FlatTree"), map_leaves, "vals", update)
    map_leaves = checked_function("flattree:FTPyTree.map", "self f")
    return _FlatTree(new, map_leaves, "xs", lambda tree, leaves: new(leaves, tree.tree))


@functools.cache
def path_names() -> _core.PathNames | None:
    """What names places in trees as jax does; None where that is left to jax."""
    cleaned = stock("clean_path")
    if cleaned is None:
        return None
    keys = (
        symbol("tree_util:DictKey"),
        symbol("tree_util:SequenceKey"),
        symbol("tree_util:GetAttrKey"),
    )
    return _core.PathNames(cleaned, cleaned.__globals__, keys)


@functools.cache
def argument_names() -> ArgumentNames | None:
    """What names arguments as jax does where none is static; None where that is left to jax."""
    names, registry = path_names(), optional_symbol("tree_util:tracing_registry")
    if names is None or registry is None:
        return None
    return ArgumentNames(names, registry.flatten_with_path)


def compared_structs() -> tuple[Any, Any] | None:
    """``__eq__`` and ``__hash__`` of ``ShapeDtypeStruct``; None where they are left to jax."""
    if not capabilities.has("shapes"):
        return None
    return jax.ShapeDtypeStruct.__eq__, jax.ShapeDtypeStruct.__hash__


# Functions whose results jax keeps with the program that is their first argument.
_DERIVATIONS = {
    "interpreters.ad:_linearize_jaxpr": "jaxpr nonzeros instantiate allow_fwds is_vjp",
    "interpreters.ad:_jvp_jaxpr": "jaxpr nonzeros instantiate",
    "interpreters.batching:_batch_jaxpr2": "closed_jaxpr axis_data in_axes",
    "interpreters.batching:_batch_jaxpr_axes": "closed_jaxpr axis_data in_axes out_axes_dest",
    "pjit:_transpose_jaxpr_fancy": "jaxpr in_tree in_avals specs",
}


# Other such functions. What they make has variables of the program.
_PARTS = {
    "interpreters.partial_eval:_dce_jaxpr": "jaxpr used_outputs instantiate",
    "pjit:_dce_jaxpr_pjit": "jaxpr used_outputs",
    "interpreters.partial_eval:_prune_closed_jaxpr_outputs": "jaxpr used_outputs",
}
# From jax 0.12 on.
_NEW_PARTS = {
    "interpreters.partial_eval:_dce_jaxpr": "jaxpr used_outputs instantiate live_inputs",
    "interpreters.partial_eval:_prune_jaxpr_outputs_cached": "jaxpr used_outputs",
}


@functools.cache
def derivations() -> dict[str, types.FunctionType]:
    """Those of these functions that this jax has, by path, as they are behind their caches."""
    return _behind_caches({path: of for path, of in _DERIVATIONS.items() if is_known(path)})


@functools.cache
def parts() -> dict[str, types.FunctionType]:
    """As ``derivations``, of functions that make a program of parts of another."""
    return _behind_caches(_NEW_PARTS if takes_live_inputs() else _PARTS)


def _behind_caches(paths: dict[str, str]) -> dict[str, types.FunctionType]:
    found: dict[str, types.FunctionType] = {}
    for path, parameters in paths.items() if capabilities.has("replays") else ():
        # A native cache has no attribute for what it wraps.
        for behind in gc.get_referents(optional_symbol(path)):
            function = inspect.unwrap(behind) if callable(behind) else None
            if not isinstance(function, types.FunctionType) or function.__closure__ is not None:
                continue
            if " ".join(inspect.signature(function).parameters) == parameters:
                found[path] = function
    return found


# Functions of jax that the core steps into, by the names that the core has for them.
_HOOKED: dict[str, Callable[[], Any]] = {
    "evict": lambda: checked_function("pjit:jit_evict_fn", "self"),
    "result_paths": lambda: checked_function(RESULT_PATHS, "self ans"),
    "clean_path": lambda: checked_function(CLEAN_PATH, "k"),
    "bind": lambda: checked_function("core:Primitive.bind", "self *args **params"),
    "inline": lambda: checked_function(INLINE, "trace src jaxpr consts *arg_tracers"),
    "value": lambda: inspect.unwrap(symbol("array:ArrayImpl._value").fget),
    "eval": lambda: checked_function(EVALUATION, "jaxpr consts *args propagate_source_info"),
    "dce": lambda: checked_function(DCE, "jaxpr used_outputs instantiate"),
    "dce_consts": lambda: checked_function(DCE_CONSTS, "jaxpr consts"),
    "check_input": lambda: checked_function(CHECK_INPUT, "name holomorphic allow_int x"),
    "debug_info": lambda: symbol(DEBUG_INFO),
    "vjp": lambda: symbol(VJP),
    "resolve_kwargs": lambda: symbol(KWARGS),
    "include_filename": lambda: checked_function(INCLUDE_FILENAME, "filename"),
    "struct_eq": lambda: jax.ShapeDtypeStruct.__eq__,
    "struct_hash": lambda: jax.ShapeDtypeStruct.__hash__,
    "make_jaxpr": lambda: inspect.unwrap(symbol(MAKE_JAXPR)),
    "trace": lambda: _tracing(),
    "map_leaves": lambda: flat_tree().map,
    "map_two_leaves": lambda: checked_function("flattree:FlatTree.map2", "self t2 f"),
    "backward": lambda: checked_function(
        BACKWARD, "jaxpr transform_stack consts primals_in cotangents_in"
    ),
    "check_types": lambda: checked_function(CHECK_TYPES, "dbg out_tracers"),
    "check_refs": lambda: checked_function(CHECK_REFS, "dbg out_tracers"),
}


def _tracing() -> types.FunctionType | None:
    """The function that traces others, behind its cache; None where it is not found."""
    uncached = optional_symbol("interpreters.partial_eval:trace_to_jaxpr_nocache")
    cached = symbol("interpreters.partial_eval:trace_to_jaxpr")
    for function in (uncached, *map(inspect.unwrap, filter(callable, gc.get_referents(cached)))):
        if isinstance(function, types.FunctionType) and function.__module__ == _PARTIAL_EVAL:
            return function
    return None


# What the others are part of; those that are not here, of every trace.
_CAPABILITIES = {
    "inline": "inlining",
    "eval": "evaluation",
    "backward": "backward pass",
    "vjp": "backward pass",
    "trace": "traces",
    "struct_eq": "shapes",
    "struct_hash": "shapes",
    "make_jaxpr": "direct traces",
    "include_filename": "frames",
    **dict.fromkeys(("dce", "dce_consts"), "dead code"),
    **dict.fromkeys(("result_paths", "clean_path", "debug_info", "resolve_kwargs"), "names"),
    **dict.fromkeys(("map_leaves", "map_two_leaves", "check_input"), "leaves"),
    **dict.fromkeys(("check_types", "check_refs"), "leaves"),
}


def is_hooked(name: str) -> bool:
    """Whether the core steps into a function of jax."""
    capability = _CAPABILITIES.get(name)
    return capability is None or capabilities.has(capability)


def hooked(name: str) -> Any:
    """A function of jax that the core steps into."""
    for kept in (derivations(), parts()):
        if name in kept:
            return kept[name]
    return _HOOKED[name]()


def stock(name: str) -> Any:
    """A copy of a function of jax that the core steps into; None where it does not."""
    return copy_function(hooked(name)) if is_hooked(name) else None


def trampoline(name: str, hook: Callable[..., Any]) -> tuple[Any, types.CodeType] | None:
    """A function of jax and a code object for it that calls ``hook``; None where it is left to
    jax."""
    if not is_hooked(name):
        return None
    function = hooked(name)
    if function is None:
        return None
    if not trust.is_own_function(function):
        # Somebody has replaced it before jaxide was imported.
        raise Mismatch(f"{function.__qualname__} is not jax's own")
    if name in ("bind", "backward"):
        # What is not ours goes on to jax's own code: in the same frame, if need be.
        code = answered_first(function, hook)
        if code is not None:
            return function, code
        own = copy_function(function)
        hook = (_bind_or_stock if name == "bind" else _pass_or_stock)(hook, own)
    if name == "trace":
        code = called_through(function, "fun", hook, _core.promised_trace)
        return None if code is None else (function, code)
    if name == "make_jaxpr":
        return function, _returning(function.__code__, hook)
    return function, trampoline_of(function.__code__, hook)


def _bind_or_stock(hook: Callable[..., Any], stock: Callable[..., Any]) -> Callable[..., Any]:
    def bind(primitive: Any, args: Any, params: Any) -> Any:
        result = hook(primitive, args, params)
        return stock(primitive, *args, **params) if result is NotImplemented else result

    return bind


def _pass_or_stock(hook: Callable[..., Any], stock: Callable[..., Any]) -> Callable[..., Any]:
    def backward_pass(*args: Any) -> Any:
        result = hook(*args)
        return stock(*args) if result is NotImplemented else result

    return backward_pass


def _returning(own: types.CodeType, hook: Callable[..., Any]) -> types.CodeType:
    """Code as ``own``, but that the function it returns calls ``hook``."""
    constants = (
        trampoline_of(constant, hook, with_closure=True)
        if isinstance(constant, types.CodeType) and constant.co_freevars == MAKE_JAXPR_CLOSURE
        else constant
        for constant in own.co_consts
    )
    return own.replace(co_consts=tuple(constants))
