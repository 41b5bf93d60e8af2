"""The objects of jax that the core talks to, looked up and checked."""

from __future__ import annotations

import copy
import functools
import types
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy._core import umath

from jaxide import _core
from jaxide._compat import capabilities
from jaxide._compat.derivative_rules import rule_reader
from jaxide._compat.flags import flags
from jaxide._compat.hooks import (
    DCE_CONSTS,
    compared_structs,
    derivations,
    flat_tree,
    hooked,
    is_hooked,
    parts,
    path_names,
    stock,
)
from jaxide._compat.jaxprs import are_always_closed, closed_jaxpr_type, open_jaxpr
from jaxide._compat.objects import (
    fixed_types,
    flat_trees,
    immutable_types,
    made_anew,
    objects,
    records,
    ref_effects,
    unexecuted_params,
)
from jaxide._compat.passes import takes_live_inputs, trim
from jaxide._compat.printing import printing
from jaxide._compat.sources import inner_code
from jaxide._compat.stand_ins import (
    captured_shapes,
    debug_info_stand_in,
    include_filename_stand_in,
    make_jaxpr_stand_in,
    resolve_kwargs_stand_in,
    result_struct,
    vjp_stand_in,
)
from jaxide._compat.stored_tracebacks import no_frames
from jaxide._compat.symbols import (
    Mismatch,
    check_methods,
    checked_function,
    jax_module,
    known_symbols,
    optional_symbol,
    slotted_class,
    symbol,
)
from jaxide._compat.tracing import flattened, type_of_jits
from jaxide._compat.transposition import (
    evaluation_step,
    log_merging,
    ref_transposition,
    transposition,
)
from jaxide._native.debug_names import Postponed, ResultPaths
from jaxide._native.jit_arguments import JitArguments
from jaxide._native.requests import Batching, Requests
from jaxide._native.requests import Symbols as RequestSymbols
from jaxide._native.trampolines import copy_function


def _user_frames() -> Callable[[Any], tuple[Any, ...]]:
    """The frames of a traceback that jax shows: the address of the code, and where it was."""
    is_users = symbol("source_info_util:is_user_filename")

    def user_frames(traceback: Any) -> tuple[Any, ...]:
        codes, places = traceback.raw_frames()
        frames = zip(codes, places, strict=True)
        return tuple((id(code), at) for code, at in frames if is_users(code.co_filename))

    return user_frames


def _located_primitives() -> set[Any]:
    """Primitives whose linearization makes equations at the line of the call within their programs:
    zeros for what only other branches have."""
    return {symbol("lax.control_flow.conditionals:cond_p")}


def _control_primitives() -> set[Any]:
    """Primitives with programs among their params, whose rules look at no value of an operand."""
    paths = """
        lax.control_flow.loops:scan_p lax.control_flow.loops:while_p
        lax.control_flow.conditionals:cond_p lax.control_flow.solves:linear_solve_p
        pjit:jit_p ad_checkpoint:remat_p
    """
    return set(known_symbols(paths.split()).values())


def _pullback_node(primitive: Any) -> Any:
    """What a primitive is in the linear program of a pullback (jax 0.12 on); None before."""
    node_of = optional_symbol("interpreters.ad:vjp_node")
    return None if node_of is None else node_of(primitive)


# Modules of jax, as paths of symbols begin.
_CORE, _PARTIAL_EVAL, _LAX = "core", "interpreters.partial_eval", "lax.lax"


def load_namespace() -> types.SimpleNamespace:
    """Looks up and checks every private symbol; the fields are those of ``Jax`` in the core.

    What traces need is looked up where they are native; a placeholder stands for it elsewhere.

    Raises:
      Mismatch: jaxprs are not what they were.
    """
    fields = {name: _PLACEHOLDERS[kind]() for name, kind in _core.namespace_fields()}
    fields |= _programs() | _constants()
    if capabilities.has("traces"):
        try:
            fields |= _of_traces()
        except Mismatch as mismatch:
            capabilities.lose("traces", str(mismatch))
    return types.SimpleNamespace(**fields)


class _Unknown:
    """Stands for a class of jax of which there are no instances."""

    __slots__ = (
        *("_trace", "aval", "_line_info", "val", "parent", "_debug_info"),
        *("frame", "parent_trace", "_invalidated", "_weakref", "requires_low"),
        *("array", "index", "primal", "tangent", "batch_dim", "source_info"),
        *("shape", "dtype", "_sharding", "_dll", "weak_type", "manual_axis_type", "is_ref"),
    )


# What stands for an object that is not looked up, by its class in the core.
_PLACEHOLDERS: dict[str, Callable[[], Any]] = {
    "PyAny": lambda: None,
    "PyDict": dict,
    "PySet": set,
    "PyString": str,
    "PyTuple": tuple,
    "PyType": lambda: _Unknown,
}


def _of_traces() -> dict[str, Any]:
    """What traces need besides what programs do."""
    _check_traces()
    _check_recording()
    groups = (
        _recording,
        _values,
        _traces,
        _sources,
        _settings,
        _binding,
        _dead_code,
        _derivatives,
    )
    return {name: value for group in groups for name, value in group().items()}


def _check_traces() -> None:
    """Checks the classes of traces and tracers, whose slots and methods the core has its own of,
    and those whose instances it makes without jax's constructors."""
    slotted_class(
        f"{_CORE}:Jaxpr",
        "__weakref__ _constvars _invars _outvars _eqns _effects _debug_info _is_high",
        "__weakref__ _all_invars _num_consts _outvars _eqns _effects _debug_info _is_high _consts",
        "__weakref__ _all_invars _outvars _eqns _effects _debug_info _is_high _consts",
    )
    slotted_class(f"{_CORE}:Var", "aval initial_qdd final_qdd", "aval")
    slotted_class("literals:TypedNdArray", "_aval _weak_type")
    slotted_class("literals:TypedFloat", "dtype aval")
    if not _interns_types():
        raise Mismatch("jax._src.core.ShapedArray is not interned")
    slotted_class(
        f"{_PARTIAL_EVAL}:DynamicJaxprTracer",
        "val mutable_qdd parent _debug_info",
        "val parent _debug_info",
    )
    slotted_class(f"{_PARTIAL_EVAL}:DynamicJaxprTrace", "frame tag parent_trace")
    slotted_class(f"{_CORE}:Tracer", "__weakref__ _trace _line_info aval")
    slotted_class(f"{_CORE}:Trace", "__weakref__ _invalidated _weakref requires_low")
    check_methods(
        f"{_PARTIAL_EVAL}:DynamicJaxprTracer",
        __init__="self trace aval val line_info parent",
        full_lower="self",
        get_referent="self",
        get_const="self",
        _origin_msg="self",
    )
    check_methods(
        f"{_PARTIAL_EVAL}:DynamicJaxprTrace",
        __init__="self debug_info parent_trace lower auto_dce",
        invalidate="self",
        to_jaxpr_tracer="self x source_info",
        var_to_tracer="self var source_info parent",
        new_arg="self aval source_info",
        make_eqn="self in_tracers out_avals primitive params effects source_info ctx",
        emit_eqn="self in_tracers out_avals primitive params effects source_info ctx",
        new_const="self c source_info aval",
        _new_const="self aval c source_info",
        get_const="self tracer",
        stage_value="self val",
        process_primitive="self primitive tracers params",
        default_process_primitive="self primitive tracers params source_info",
        process_custom_jvp_call="self prim fun jvp tracers symbolic_zeros",
        process_custom_vjp_call="self prim fun fwd bwd tracers out_trees symbolic_zeros",
        to_jaxpr="self out_tracers debug_info source_info",
    )


def _check_recording() -> None:
    """Checks what records equations."""
    slotted_class(
        f"{_PARTIAL_EVAL}:JaxprStackFrame",
        "gensym constid_to_tracer constvar_to_val tracing_eqns invars effects debug_info is_high "
        "mutable_qdds auto_dce",
        "gensym constid_to_tracer constvar_to_val tracing_eqns invars effects debug_info is_high "
        "auto_dce",
    )
    check_methods(
        f"{_PARTIAL_EVAL}:JaxprStackFrame",
        add_eqn="self eqn",
        get_eqns="self",
        to_jaxpr="self trace out_tracers debug_info source_info",
        newvar="self aval",
        find_progenitors="self tracer",
    )
    checked_function(
        f"{_PARTIAL_EVAL}:TracingEqn.__init__",
        "self in_tracers outvars primitive params effects source_info ctx",
    )
    check_methods(
        f"{_CORE}:Primitive",
        bind="self *args **params",
        bind_with_trace="self trace args avals params",
        is_high="self *avals **params",
    )


def _programs() -> dict[str, Any]:
    """Jaxprs, variables, equations and types, and what jax asks of them."""
    checked_function(
        f"{_CORE}:Jaxpr.__init__",
        "self constvars invars outvars eqns effects debug_info is_high",
        "self constvars invars outvars eqns effects debug_info is_high consts",
    )
    return dict(
        jaxpr_type=symbol(f"{_CORE}:Jaxpr"),
        closed_jaxpr_type=closed_jaxpr_type(),
        open_jaxpr=open_jaxpr,
        var_type=slotted_class(
            f"{_CORE}:Var",
            "aval",
            "aval initial_qdd final_qdd",
            "count aval initial_qdd final_qdd",
        ),
        drop_var_type=symbol(f"{_CORE}:DropVar"),
        literal_type=slotted_class(f"{_CORE}:Literal", "val aval"),
        eqn_type=slotted_class(
            f"{_CORE}:JaxprEqn", "invars outvars primitive params effects source_info ctx"
        ),
        abstract_value_type=symbol(f"{_CORE}:AbstractValue"),
        shaped_array_type=symbol(f"{_CORE}:ShapedArray"),
        interns_types=_interns_types(),
        auto_layout=symbol("layout:AutoLayout"),
        input_effect_type=symbol("effects:JaxprInputEffect"),
        ref_type=symbol("state.types:AbstractRef"),
        ref_effects=ref_effects(),
        jit_primitive=symbol("pjit:jit_p"),
        no_effects=symbol(f"{_CORE}:no_effects"),
        enable_checks=symbol("config:enable_checks"),
        partition_spec_type=jax.sharding.PartitionSpec,
        named_sharding_type=jax.sharding.NamedSharding,
        source_info_type=slotted_class("source_info_util:SourceInfo", "traceback name_stack"),
        source_info_context=symbol("source_info_util:_source_info_context"),
        get_traceback=symbol("source_info_util:Traceback.get_traceback"),
        traceback_type=symbol("source_info_util:Traceback"),
        empty_name_stack=symbol("source_info_util:NameStack")(),
        objects=objects(),
        printing=printing(),
        unexecuted_params=unexecuted_params(),
    )


def _constants() -> dict[str, Any]:
    """Arrays, numbers and literals in programs."""
    known_records, find_record = records()
    return dict(
        tree_fields=flat_trees(),
        typed_array_type=symbol("literals:TypedNdArray"),
        typed_float_type=symbol("literals:TypedFloat"),
        typed_scalar_types=set(symbol("literals:typed_scalar_types")),
        copy_function=copy.copy,
        copy_code=copy_function,
        jax_array_type=jax.Array,
        array_type=symbol("array:ArrayImpl"),
        plain_const_types={symbol("array:ArrayImpl"), symbol("literals:TypedNdArray")},
        zero_type=slotted_class("ad_util:Zero", "aval"),
        records=known_records,
        find_record=find_record,
    )


def _recording() -> dict[str, Any]:
    """Equations as they are recorded, and what jax makes of recorded programs."""
    compared = compared_structs()
    return dict(
        tracing_eqn_type=symbol(f"{_PARTIAL_EVAL}:TracingEqn"),
        aval_qdd_type=optional_symbol(f"{_CORE}:AvalQDD"),
        mutable_qdd_type=optional_symbol(f"{_CORE}:MutableQuasiDynamicData"),
        jit_node=_pullback_node(symbol("pjit:jit_p")),
        control_primitives=_control_primitives(),
        located_primitives=_located_primitives(),
        resolve_input_effects=checked_function(f"{_CORE}:resolve_input_effects", "effs invars"),
        make_jaxpr_effects=checked_function(
            f"{_PARTIAL_EVAL}:make_jaxpr_effects", "constvars invars outvars eqns"
        ),
        shape_dtype_struct_type=jax.ShapeDtypeStruct,
        stock_struct_eq=compared and copy_function(compared[0]),
        stock_struct_hash=compared and copy_function(compared[1]),
        result_struct=result_struct(),
        derivation_hooks={
            **{
                path: _core.DerivationCache(function.__name__, path, copy_function(function))
                for path, function in derivations().items()
            },
            **{
                path: _core.Parts(path, copy_function(function))
                for path, function in parts().items()
            },
        },
    )


def _values() -> dict[str, Any]:
    """Values in traces, and the types of Python objects."""
    return dict(
        index_update_ref_type=slotted_class("numpy.array_methods:_IndexUpdateRef", "array index"),
        array_methods=tuple(symbol("numpy.array_methods:_array_methods")),
        canonicalize_value=symbol("dtypes:canonicalize_value"),
        typeof_fn=symbol(f"{_CORE}:typeof"),
        is_literalable=checked_function(f"{_CORE}:is_literalable", "x for_ad"),
        literalable_scalar_types=symbol(f"{_CORE}:literalable_scalar_types"),
        stock_value=stock("value"),
        fixed_types=fixed_types(),
        tree_registry=symbol("tree_util:_registry"),
        immutable_types=immutable_types(),
        made_anew=made_anew,
        check_arg=checked_function("dispatch:check_arg", "arg"),
        float0=symbol("dtypes:float0"),
        flat_tree_leaves=flat_tree().leaves,
        flat_tree_with_leaves=flat_tree().with_leaves,
        flat_tree_type=flat_tree().type,
        stock_flat_tree_map2=_stock_map2(),
        stock_flat_tree_map=stock("map_leaves"),
        partial_type=functools.partial,
    )


def _traces() -> dict[str, Any]:
    """Traces and tracers, of ours and of transformations."""
    return dict(
        tracer_type=symbol(f"{_PARTIAL_EVAL}:DynamicJaxprTracer"),
        trace_type=symbol(f"{_PARTIAL_EVAL}:DynamicJaxprTrace"),
        any_tracer_type=symbol(f"{_CORE}:Tracer"),
        replays=capabilities.has("replays"),
        linearize_tracer_type=slotted_class("interpreters.ad:LinearizeTracer", "primal tangent"),
        **_transformations(),
        no_axis_name=symbol(f"{_CORE}:no_axis_name"),
        jit_type=type_of_jits(),
        trace_state=symbol(f"{_CORE}:trace_state_strong_ref"),
        weak_trace_state=symbol(f"{_CORE}:trace_state"),
        set_trace=checked_function(f"{_CORE}:trace_ctx.set_trace", "trace"),
        binding_trace=_binding_trace(),
        eval_trace=symbol(f"{_CORE}:eval_trace"),
        cur_qdd=optional_symbol(f"{_CORE}:cur_qdd"),
        full_lower=checked_function(f"{_CORE}:full_lower", "val"),
        get_referent=checked_function(f"{_CORE}:get_referent", "x"),
        **_evaluation(),
        canonical_input_code=inner_code("api:vjp", "canonicalize_value"),
        linear_input_code=inner_code("interpreters.ad:linearize", "new_arg"),
        make_jaxpr_hook=make_jaxpr_stand_in(),
        captured_shapes=captured_shapes(),
        include_filename_hook=include_filename_stand_in(),
        resolve_kwargs_hook=resolve_kwargs_stand_in(),
        jit_captures=_jit_captures(),
        requests=requests(),
        jits_forgot=_forgotten_jits(),
        stock_evict=stock("evict"),
        stock_check_returned_types=stock("check_types"),
        stock_check_returned_refs=stock("check_refs"),
        stock_inline=stock("inline"),
    )


def _sources() -> dict[str, Any]:
    """Source lines, name stacks, and names of arguments and results."""
    return dict(
        current_eqn_context=symbol(f"{_CORE}:current_jaxpr_eqn_context"),
        user_frames=_user_frames(),
        no_frames=no_frames,
        result_paths_hook=ResultPaths(stock("result_paths")) if is_hooked("result_paths") else None,
        clean_path_hook=path_names(),
        debug_info_hook=debug_info_stand_in(),
        postponed_paths=Postponed,
    )


def _settings() -> dict[str, Any]:
    """Settings of jax, numpy and Python on which traces depend."""
    return dict(
        trace_context=symbol("config:trace_context"),
        concrete_mesh=symbol("mesh:get_concrete_mesh"),
        empty_mesh=symbol("mesh:empty_concrete_mesh"),
        eager_constant_folding=symbol("config:eager_constant_folding"),
        flags=flags(),
        all_settings=jax.config._value_holders,
        numpy_errors=getattr(umath, "_extobj_contextvar", None),
        numpy_error_state=numpy_error_state,
        setting_type=symbol("config:State"),
        check_tracer_leaks=symbol("config:check_tracer_leaks"),
        no_tracing=symbol("config:no_tracing"),
        disable_jit=symbol("config:disable_jit"),
        warnings=warnings,
    )


def _binding() -> dict[str, Any]:
    """How a primitive is bound: abstract evaluation, staging and forwarding rules."""
    forwarding = symbol(f"{_PARTIAL_EVAL}:forwarding_rules")
    return dict(
        abstract_eval_cached=symbol(f"{_PARTIAL_EVAL}:_cached_abstract_eval"),
        unpack_pair=_unpack_pair,
        safe_zip=symbol("util:safe_zip"),
        verify_params_are_hashable=checked_function(
            f"{_PARTIAL_EVAL}:_verify_params_are_hashable", "primitive params"
        ),
        custom_staging_rules=symbol(f"{_PARTIAL_EVAL}:custom_staging_rules"),
        const_fold_rules=symbol(f"{_PARTIAL_EVAL}:const_fold_rules"),
        forwarding_rules=forwarding,
        **_staging_rules(),
        uncached_primitives={"custom_lin", "call_hi_primitive_linearized", "call_hi_primitive"},
        stock_bind=stock("bind"),
        primitive_bind_with_trace=symbol(f"{_CORE}:Primitive.bind_with_trace"),
        primitive_is_high=symbol(f"{_CORE}:Primitive.is_high"),
        primitive_bind=symbol(f"{_CORE}:Primitive.bind"),
        primitive_bind_params=symbol(f"{_CORE}:Primitive.get_bind_params"),
    )


def _staging_rules() -> dict[str, Any]:
    """Rules of jax whose work is done natively."""
    if not capabilities.has("staging rules"):
        return {}
    convert_bind = checked_function(
        f"{_LAX}:_convert_element_type_bind_with_trace", "trace args avals params"
    )
    convert_p = symbol(f"{_LAX}:convert_element_type_p")
    return dict(
        param_order_rules=dict(
            _ordering_rule(f"{_LAX}:_{name}_staging_rule", operands, params)
            for name, operands, params in (
                ("reshape", "x", "new_sizes dimensions sharding"),
                ("broadcast_in_dim", "x", "shape broadcast_dimensions sharding"),
                ("iota", "", "dtype shape dimension sharding"),
            )
        ),
        pure_forwarding_rules={
            checked_function(f"{_LAX}:_convert_elt_type_fwd_rule", "eqn"),
            checked_function(f"{_LAX}:_broadcast_in_dim_fwd_rule", "eqn"),
        },
        no_forwarding_rules={checked_function("pjit:pjit_forwarding_rule", "eqn")},
        sharding_bind_rules={convert_bind}
        if vars(convert_p).get("bind_with_trace") is convert_bind
        else set(),
    )


def _transformations() -> dict[str, Any]:
    """The traces of transformations under which calls are replayed, and their tracers."""
    found: dict[str, Any] = {}
    if capabilities.has("replays under grad"):
        found |= dict(linearize_trace_type=_linearize_trace())
    if capabilities.has("replays under jvp"):
        found |= dict(
            jvp_trace_type=_jvp_trace(),
            jvp_tracer_type=slotted_class("interpreters.ad:JVPTracer", "primal tangent"),
        )
    if capabilities.has("replays under vmap"):
        found |= dict(
            batch_trace_type=_batch_trace(),
            batch_tracer_type=slotted_class(
                "interpreters.batching:BatchTracer", "val batch_dim source_info"
            ),
        )
    return found


def _dead_code() -> dict[str, Any]:
    """How jax removes dead code."""
    return dict(
        dce_rules=symbol(f"{_PARTIAL_EVAL}:dce_rules"),
        trim=trim,
        trim_keeps_programs=takes_live_inputs(),
        # A loop has a new closed jaxpr each time where there are such, later mostly the one it had.
        trim_shares_programs=are_always_closed() and not takes_live_inputs(),
        stock_dce=stock("dce"),
        stock_dce_consts=_stock_dce_consts(),
    )


def _derivatives() -> dict[str, Any]:
    """Functions with rules for derivatives, and the backward pass."""
    transposition_step, transposition_loop = transposition()
    ref_accumulator, ref_transposition_step = ref_transposition()
    derivative_rules = rule_reader()
    return dict(
        custom_jvp_type=symbol("custom_derivatives:custom_jvp"),
        custom_vjp_type=symbol("custom_derivatives:custom_vjp"),
        custom_jvp_primitive=symbol("custom_derivatives:custom_jvp_call_p"),
        rule_primitives={
            symbol("custom_derivatives:custom_jvp_call_p"),
            symbol("custom_derivatives:custom_vjp_call_p"),
            symbol("interpreters.ad:custom_lin_p"),
        },
        renewal=derivative_rules and derivative_rules.renewal,
        pair_rules=derivative_rules and derivative_rules.pair,
        rule_words=derivative_rules and derivative_rules.words,
        may_hold_tracers=derivative_rules and derivative_rules.may_hold_tracers,
        rules_alike=derivative_rules and derivative_rules.are_alike,
        wrapped_function_type=symbol("linear_util:WrappedFun"),
        stock_check_input_type=stock("check_input"),
        vjp_hook=vjp_stand_in(),
        transposition_step=transposition_step,
        transposition_loop=transposition_loop,
        ref_accumulator=ref_accumulator,
        ref_transposition_step=ref_transposition_step,
        evaluation_step=evaluation_step(),
        merge_rule_logs=log_merging(),
        vjp_node_type=optional_symbol("interpreters.ad:VJPNode"),
        grad_accum_type=symbol("interpreters.ad:GradAccum"),
        val_accum_type=symbol("interpreters.ad:ValAccum"),
    )


def _stock_map2() -> Any:
    """A copy of the method that makes inputs of ``linearize``, from jax 0.12 on; None before."""
    code = inner_code("interpreters.ad:linearize", "new_arg")
    return stock("map_two_leaves") if code and "nz" in code.co_varnames else None


def _stock_dce_consts() -> Any:
    """A copy of how jax removes dead code from what it has recorded, from 0.11 on; None before."""
    return None if optional_symbol(DCE_CONSTS) is None else stock("dce_consts")


def _ordering_rule(path: str, operands: str, params: str) -> tuple[Any, tuple[str, ...]]:
    """A staging rule that only puts its params in the order of its parameters, and that order."""
    parameters = ("trace", "source_info", *operands.split(), *params.split())
    return checked_function(path, " ".join(parameters)), tuple(params.split())


def _interns_types() -> bool:
    """Whether jax interns ``ShapedArray``: equal types are one object."""
    cls: type = symbol("core:ShapedArray")
    one, other = (cls((2, 3), jax.numpy.float32) for _ in range(2))
    return one is other


def numpy_error_state() -> tuple[Any, ...] | None:
    """What numpy does about errors in numbers; None where it tells somebody else of them."""
    modes = np.geterr()
    if not {"ignore", "warn", "raise"}.issuperset(modes.values()):
        return None
    return tuple(sorted(modes.items()))


def _binding_trace() -> Any:
    """What ``Primitive.bind`` makes current while a rule runs: seen from inside a primitive."""
    core = jax_module("jax._src.core")
    seen = []
    probe = core.Primitive("jaxide_probe")
    probe.def_bind_with_trace(lambda *_: seen.append(core.trace_ctx.trace))
    probe.bind()
    return seen[0]


def _evaluation() -> dict[str, Any]:
    """``core.eval_jaxpr``, and what it does with an equation."""
    if not is_hooked("eval"):
        return {}
    own, user_context = copy_function(hooked("eval")), symbol("source_info_util:user_context")

    def evaluate(jaxpr: Any, consts: Any, args: Any, keeps_sources: Any) -> Any:
        return own(jaxpr, consts, *args, propagate_source_info=keeps_sources)

    def bind(primitive: Any, args: Any, params: Any, traceback: Any, name_stack: Any) -> Any:
        params = primitive.get_bind_params(params)
        with user_context(traceback, name_stack=name_stack):
            return primitive.bind(*args, **params)

    def raise_within(error: BaseException, traceback: Any, name_stack: Any) -> None:
        with user_context(traceback, name_stack=name_stack):
            raise error

    foreach = functools.partial(symbol("util:foreach"), lambda *_: None)
    called = (
        own,
        stock("bind"),
        symbol(f"{_CORE}:Primitive.get_bind_params"),
        symbol("source_info_util:current_name_stack"),
        symbol("source_info_util:NameStack.__add__"),
        *(getattr(user_context, name) for name in ("__init__", "__enter__", "__exit__")),
    )
    return dict(
        evaluation_codes=tuple(function.__code__ for function in called),
        stock_eval_jaxpr=evaluate,
        bind_equation=bind,
        raise_within=raise_within,
        foreach_pair=foreach,
    )


@functools.cache
def requests() -> Requests:
    """By which calls of its jits jax has made programs."""
    fun_sourceinfo = symbol("api_util:fun_sourceinfo")
    return Requests(
        RequestSymbols(
            jit=type_of_jits(),
            infer_params=symbol("pjit:_infer_params"),
            tracer=symbol(f"{_CORE}:Tracer"),
            arrays=(symbol("array:ArrayImpl"), symbol("literals:TypedNdArray")),
            aval=symbol(f"{_CORE}:ShapedArray"),
            typeof=jax.typeof,
            with_rule=symbol("custom_derivatives:custom_jvp"),
            source_of=fun_sourceinfo,
            rules=rule_reader(),
            params_of=_params_of_rule,
            reduction=optional_symbol("lax.lax:_reduction_jaxpr"),
            reductions=_reductions(),
            contexts=_contexts(),
            arguments=JitArguments(
                flattened, symbol(f"{_CORE}:ShapedArray"), symbol(f"{_CORE}:shaped_abstractify")
            ),
            within_equation=lambda: symbol(f"{_CORE}:current_jaxpr_eqn_context")().manager,
            user_context=symbol("source_info_util:user_context"),
            configuration=_configuration,
            derivations={path: symbol(path) for path in (*derivations(), *parts())},
            deriving=tuple(derivations()),
        )
    )


def _reductions() -> dict[str, Any]:
    """Functions of two numbers of which jax keeps programs, by name."""
    if optional_symbol("lax.lax:_reduction_jaxpr") is None:
        return {}
    names = ("add", "sub", "mul", "min", "max", "bitwise_and", "bitwise_or")
    return {name: getattr(jax.lax, name) for name in names}


def _contexts() -> Callable[[], tuple[Any, Any]]:
    """A function that says what jax's caches of programs go by besides, now and within an
    equation."""
    trace_context = symbol("config:trace_context")
    eqn_context = symbol(f"{_CORE}:current_jaxpr_eqn_context")
    # What it was last, with the context that equations had.
    last: list[Any] = [None, None, None]

    def contexts() -> tuple[Any, Any]:
        now, own = trace_context(), eqn_context()
        before, was, within = last
        if before == now and was == own:
            return now, within
        with own.manager:
            within = trace_context()
        last[:] = now, own, within
        return now, within

    return contexts


def _configuration() -> Any:
    """Everything that is configured in this thread; a text where something has no hash."""
    context = symbol("config:trace_context")(), symbol("mesh:get_concrete_mesh")()
    values = tuple(holder.value for holder in jax.config._value_holders.values())
    now = context, values, numpy_error_state(), _core.world_number()
    try:
        hash(now)
    except TypeError:
        return repr(now)
    return now


def _params_of_rule(function: Any, avals: tuple[Any, ...], batching: Batching) -> dict[str, Any]:
    """The params of the equation that a function with a derivative rule comes to, batched.

    Raises:
      LookupError: it comes to something else.
    """
    # As jax calls it, so that this call is neither recorded nor looked up.
    batched = functools.partial(symbol("custom_derivatives:custom_jvp.__call__"), function)
    for size, dims in reversed(batching):
        batched = jax.vmap(batched, in_axes=dims, axis_size=size)
    wrap, info = symbol("linear_util:wrap_init"), symbol("linear_util:DebugInfo")
    trace = symbol("interpreters.partial_eval:trace_to_jaxpr_dynamic")
    called = wrap(lambda *args: [batched(*args)], debug_info=info("custom_jvp", "", None, None))
    jaxpr, *_ = trace(called, avals)
    # `vmap` may move the dimensions of results besides.
    found = [eqn.params for eqn in jaxpr.eqns if "jvp_jaxpr_fun" in eqn.params]
    if len(found) != 1:
        raise LookupError(function)
    params: dict[str, Any] = found[0]
    return params


def _jit_captures() -> Callable[[Any, Any, Any], bool]:
    """A function that says whether what a jit traced for a call refers to traced values that are no
    arguments.

    The call was just made, so its program is in jax's cache.
    """
    infer = symbol("pjit:_infer_params")

    def captures(jitted: Any, args: Any, kwargs: Any) -> bool:
        fun, info = (getattr(jitted, name, None) for name in ("_fun", "_jit_info"))
        if fun is None or info is None:
            return True  # a copy of a jit, which does not say what it runs
        program, _ = infer(fun, info, args, kwargs)
        return bool(program.consts)

    return captures


def _forgotten_jits() -> Callable[[], bool]:
    """A function that says whether some jit's ``clear_cache`` was called since it was last asked.

    That empties one cache of jax, so an entry of ours is put there to see if it is still there.
    """
    cached = symbol("pjit:_infer_params_cached")
    mark = object()

    def probe() -> None: ...

    def forgot() -> bool:
        entry = cached(probe, None, None, (), None)
        if entry.pjit_params is mark:
            return False
        entry.pjit_params = mark
        return True

    forgot()
    return forgot


def _batch_trace() -> Any:
    """The trace of ``vmap``, whose axis says what its rules depend on."""
    slotted_class("interpreters.batching:AxisData", "name size spmd_name _ema")
    path = "interpreters.batching:BatchTrace"
    check_methods(path, __init__="self parent_trace tag axis_data")
    return symbol(path)


def _jvp_trace() -> Any:
    """The trace of forward-mode differentiation."""
    path = "interpreters.ad:JVPTrace"
    check_methods(path, __init__="self parent_trace tag")
    return symbol(path)


def _linearize_trace() -> Any:
    """The trace of reverse-mode differentiation, whose attributes the core reads by name."""
    path = "interpreters.ad:LinearizeTrace"
    check_methods(
        path, __init__="self parent_trace tangent_trace is_vjp", _name_stack_suffix="self"
    )
    return symbol(path)


def _unpack_pair(answer: Any) -> tuple[Any, Any]:
    """The two items that a rule of the user's answers, maybe as a list, with Python's errors."""
    out_avals, effects = answer
    return out_avals, effects
