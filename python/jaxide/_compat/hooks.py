"""The functions of jax that the core steps into, and the codes with which they call it."""

from __future__ import annotations

import functools
import gc
import inspect
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from jaxide import _trust
from jaxide._compat.sources import STRUCT_EQ, STRUCT_HASH, has_text
from jaxide._compat.symbols import Mismatch, checked_function, optional_symbol, symbol
from jaxide._instrumented import answered_first
from jaxide._sites import copy_function

# What a template has in the place of the hook.
HOOK = "jaxide: the hook goes here"

# Where functions of jax are, and their parameters.
DEBUG_INFO = "api_util:debug_info"
CHECK_INPUT = "api:_check_input_dtype_revderiv"
CHECK_INPUT_NAMES = "name holomorphic allow_int x"
VJP = "api:_vjp3_callable"
DCE = "interpreters.partial_eval:dce_jaxpr_consts"
DCE_CONSTS = "interpreters.ad:_dce_consts"
CHECK_TYPES = "interpreters.partial_eval:_check_returned_jaxtypes"
CHECK_REFS = "interpreters.partial_eval:_check_no_returned_refs"
BACKWARD = "interpreters.ad:backward_pass3"
BACKWARD_PARAMETERS = "jaxpr transform_stack consts primals_in cotangents_in"
EVALUATION = "core:eval_jaxpr"
EVALUATION_PARAMETERS = "jaxpr consts *args propagate_source_info"
INLINE = "interpreters.partial_eval:inline_jaxpr_into_trace"
MAKE_JAXPR = "api:make_jaxpr"
# What the function refers to that it returns.
MAKE_JAXPR_CLOSURE = ("axis_env", "fun", "return_shape", "static_argnums")
KWARGS = "api_util:resolve_kwargs"
RESULT_PATHS = "linear_util:DebugInfo.set_result_paths"


def array_value() -> Any:
    """The function behind a concrete array's property ``_value``."""
    return inspect.unwrap(symbol("array:ArrayImpl._value").fget)


def _bind_template(self: Any, *args: Any, **params: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(self, args, params)


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


def _inline_template(trace: Any, src: Any, jaxpr: Any, consts: Any, *arg_tracers: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(trace, src, jaxpr, consts, arg_tracers)


def _evaluation_template(
    jaxpr: Any, consts: Any, *args: Any, propagate_source_info: Any = True
) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(jaxpr, consts, args, propagate_source_info)


def _value_template(self: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(self)


def _evict_template(self: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(self)


def _result_paths_template(self: Any, ans: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(self, ans)


def _map_template(self: Any, f: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(self, f)


def _dce_template(jaxpr: Any, used_outputs: Any, instantiate: Any = False) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(jaxpr, used_outputs, instantiate)


def _dce_consts_template(jaxpr: Any, consts: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(jaxpr, consts)


def _check_input_template(name: Any, holomorphic: Any, allow_int: Any, x: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(name, holomorphic, allow_int, x)


def _debug_info_template(
    traced_for: Any,
    fun: Any,
    args: Any,
    kwargs: Any,
    *,
    static_argnums: Any,
    static_argnames: Any,
    result_paths_thunk: Any,
    sourceinfo: Any,
    signature: Any,
) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(
        traced_for,
        fun,
        args,
        kwargs,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        result_paths_thunk=result_paths_thunk,
        sourceinfo=sourceinfo,
        signature=signature,
    )


def _vjp_template(
    spec: Any,
    out_known: Any,
    jaxpr: Any,
    out_primal_avals: Any,
    in_tree: Any,
    out_tree: Any,
    args_res: Any,
    opaque_res: Any,
    *maybe_ct_refs: Any,
) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(
        spec,
        out_known,
        jaxpr,
        out_primal_avals,
        in_tree,
        out_tree,
        args_res,
        opaque_res,
        *maybe_ct_refs,
    )


def _check_template(dbg: Any, out_tracers: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(dbg, out_tracers)


def _backward_template(
    jaxpr: Any, transform_stack: Any, consts: Any, primals_in: Any, cotangents_in: Any
) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(jaxpr, transform_stack, consts, primals_in, cotangents_in)


def _resolve_kwargs_template(fun: Any, args: Any, kwargs: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(fun, args, kwargs)


def _struct_eq_template(self: Any, other: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(self, other)


def _make_jaxpr_template(axis_env: Any, fun: Any, return_shape: Any, static_argnums: Any) -> Any:
    def make_jaxpr_f(*args: Any, **kwargs: Any) -> Any:
        hook: Any = "jaxide: the hook goes here"
        return hook((axis_env, fun, return_shape, static_argnums), args, kwargs)

    return make_jaxpr_f


class _FlatTree(NamedTuple):
    """jax's tree of one ``PyTreeDef``: its method ``map``, how leaves are read and replaced."""

    map: Any
    leaves: str
    with_leaves: Callable[[Any, Any], Any]


def flat_tree() -> _FlatTree:
    new = optional_symbol("flattree:FTPyTree")
    if new is None:
        map_leaves = checked_function("tree_util:FlatTree.map", "self f")
        return _FlatTree(
            map_leaves, "vals", checked_function("tree_util:FlatTree.update", "self new_vals")
        )
    map_leaves = checked_function("flattree:FTPyTree.map", "self f")
    return _FlatTree(map_leaves, "xs", lambda tree, leaves: new(leaves, tree.tree))


def compared_structs() -> tuple[Any, Any] | None:
    """``__eq__`` and ``__hash__`` of ``ShapeDtypeStruct``; None where they go by something else."""
    functions = jax.ShapeDtypeStruct.__eq__, jax.ShapeDtypeStruct.__hash__
    known = zip(functions, (STRUCT_EQ, STRUCT_HASH), strict=True)
    return functions if all(has_text(function, text) for function, text in known) else None


# Functions whose results jax keeps with the program that is their first argument.
_DERIVATIONS = {
    "interpreters.ad:_linearize_jaxpr": "jaxpr nonzeros instantiate allow_fwds is_vjp",
    "interpreters.ad:_jvp_jaxpr": "jaxpr nonzeros instantiate",
    "interpreters.batching:_batch_jaxpr2": "closed_jaxpr axis_data in_axes",
    "interpreters.batching:_batch_jaxpr_axes": "closed_jaxpr axis_data in_axes out_axes_dest",
    "pjit:_transpose_jaxpr_fancy": "jaxpr in_tree in_avals specs",
}


@functools.cache
def derivations() -> dict[str, types.FunctionType]:
    """Those of these functions that this jax has, by path, as they are behind their caches."""
    found = {}
    for path, parameters in _DERIVATIONS.items():
        # A native cache has no attribute for what it wraps.
        for behind in gc.get_referents(optional_symbol(path)):
            function = inspect.unwrap(behind) if callable(behind) else None
            if not isinstance(function, types.FunctionType) or function.__closure__ is not None:
                continue
            if " ".join(inspect.signature(function).parameters) == parameters:
                found[path] = function
    return found


def _derivation_template(jaxpr: Any, *key: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(jaxpr, *key)


def _hooked(name: str) -> tuple[Any, Any]:
    """A function of jax that the core steps into, and how it is to call the core."""
    if name in _DERIVATIONS:
        return derivations()[name], _derivation_template
    return {
        "evict": (checked_function("pjit:jit_evict_fn", "self"), _evict_template),
        "result_paths": (checked_function(RESULT_PATHS, "self ans"), _result_paths_template),
        "bind": (symbol("core:Primitive.bind"), _bind_template),
        "inline": (symbol(INLINE), _inline_template),
        "value": (array_value(), _value_template),
        "eval": (checked_function(EVALUATION, EVALUATION_PARAMETERS), _evaluation_template),
        "dce": (checked_function(DCE, "jaxpr used_outputs instantiate"), _dce_template),
        "dce_consts": (optional_symbol(DCE_CONSTS), _dce_consts_template),
        "check_input": (checked_function(CHECK_INPUT, CHECK_INPUT_NAMES), _check_input_template),
        "debug_info": (symbol(DEBUG_INFO), _debug_info_template),
        "vjp": (symbol(VJP), _vjp_template),
        "resolve_kwargs": (symbol(KWARGS), _resolve_kwargs_template),
        "struct_eq": (jax.ShapeDtypeStruct.__eq__, _struct_eq_template),
        "struct_hash": (jax.ShapeDtypeStruct.__hash__, _value_template),
        "make_jaxpr": (inspect.unwrap(symbol(MAKE_JAXPR)), _make_jaxpr_template),
        "map_leaves": (flat_tree().map, _map_template),
        "backward": (checked_function(BACKWARD, BACKWARD_PARAMETERS), _backward_template),
        "check_types": (checked_function(CHECK_TYPES, "dbg out_tracers"), _check_template),
        "check_refs": (checked_function(CHECK_REFS, "dbg out_tracers"), _check_template),
    }[name]


def trampoline(name: str, hook: Callable[..., Any]) -> tuple[Any, types.CodeType]:
    """A function of jax and a code object for it that calls ``hook``."""
    function, template = _hooked(name)
    if not _trust.is_own_function(function):
        # Somebody has replaced it before jaxide was imported.
        raise Mismatch(f"{function.__qualname__} is not jax's own")
    or_stock = {_bind_template: _bind_or_stock, _backward_template: _pass_or_stock}.get(template)
    if or_stock is not None:
        # What is not ours goes on to jax's own code: in the same frame, if need be.
        code = answered_first(function, hook)
        if code is not None:
            return function, code
        hook = or_stock(hook, copy_function(function))
    if template is _make_jaxpr_template:
        return function, _returning(function.__code__, template.__code__, hook)
    return function, _calling(function.__code__, template.__code__, hook)


def _returning(
    own: types.CodeType, template: types.CodeType, hook: Callable[..., Any]
) -> types.CodeType:
    """Code as ``own``, but that the function it returns is as that of ``template``."""
    (inner,) = (code for code in template.co_consts if isinstance(code, types.CodeType))
    constants = (
        _calling(constant, inner, hook)
        if isinstance(constant, types.CodeType) and constant.co_freevars == inner.co_freevars
        else constant
        for constant in own.co_consts
    )
    return own.replace(co_consts=tuple(constants))


def _calling(own: types.CodeType, code: types.CodeType, hook: Callable[..., Any]) -> types.CodeType:
    """A template's code for a function with the code ``own``."""
    return code.replace(
        co_consts=tuple(hook if constant == HOOK else constant for constant in code.co_consts),
        co_filename=own.co_filename,
        co_firstlineno=own.co_firstlineno,
        co_name=own.co_name,
        co_qualname=own.co_qualname,
    )
