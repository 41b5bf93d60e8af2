"""Everything that depends on jax's version: the only file that branches on it.

The trace leans on private parts of jax. ``load`` looks each of them up and checks that it is what
the trace was written against: classes by their slots, functions by their parameter names. Anything
else is a ``Mismatch``: jaxide then says so once and hands every trace to stock jax.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import importlib
import inspect
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from jaxide import _core, _objects, _sites, _transparent
from jaxide._names import DebugInfos, Postponed, ResultPaths
from jaxide._rules import Private, Rules

SUPPORTED = "jax 0.10.2 to 0.12"


class Mismatch(Exception):
    """A private symbol of jax is missing or not what the trace was written against."""


class JaxideFallbackWarning(UserWarning):
    """jaxide does not know this jax and leaves tracing to it."""


def _module(name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Mismatch(f"{name} ({error})") from None


def _symbol(path: str) -> Any:
    """The object at ``module:attribute.attribute`` below ``jax._src``."""
    module, _, attributes = path.partition(":")
    found: Any = _module(f"jax._src.{module}")
    for attribute in attributes.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            raise Mismatch(f"jax._src.{path} is missing") from None
    return found


def _function(path: str, *signatures: str) -> Any:
    """The function at ``path``, whose parameters read like one of ``signatures``."""
    function = _symbol(path)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise Mismatch(f"jax._src.{path} has no signature ({error})") from None
    stars: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    names = " ".join(stars.get(p.kind, "") + p.name for p in parameters)
    if names not in signatures:
        raise Mismatch(f"jax._src.{path} takes ({names}), not ({' or '.join(signatures)})")
    return function


def _slotted(path: str, *layouts: str) -> Any:
    """The class at ``path``, whose own ``__slots__`` read like one of ``layouts``."""
    cls = _symbol(path)
    own = vars(cls).get("__slots__")
    slots = "no __slots__" if own is None else " ".join(own)
    if slots not in layouts:
        raise Mismatch(f"jax._src.{path} has the slots ({slots}), not ({' or '.join(layouts)})")
    return cls


def _methods(path: str, **signatures: str) -> None:
    """Checks methods that the trace overrides or calls."""
    for name, signature in signatures.items():
        _function(f"{path}.{name}", *signature.split(" | "))


def _optional(path: str) -> Any:
    try:
        return _symbol(path)
    except Mismatch:
        return None


def _immutable_types() -> set[type]:
    """Classes of jax's whose instances never change: equal ones are the same. Params have them."""
    paths = """
        mesh:Mesh mesh:AbstractMesh named_sharding:UnspecifiedValue
        sharding_impls:SingleDeviceSharding partition_spec:PartitionSpec
        partition_spec:UnconstrainedSingleton layout:Layout layout:Format layout:AutoLayoutSingleton
        ad_checkpoint:DotsSaveable ad_checkpoint:SaveOnlyTheseNames
        ad_checkpoint:SaveAnyNamesButThese tree_util:PyTreeDef
    """
    found = (_optional(path) for path in paths.split())
    return {cls for cls in found if isinstance(cls, type)}


def _flat_trees() -> dict[type, tuple[str, ...]]:
    """Classes of trees among params, from jax 0.11 on: an instance is what these fields are."""
    fields = {
        "flattree:FTTuple": "elts",
        "flattree:FTDict": "keys _vals",
        "flattree:FTPyTree": "xs _tree",
        "flattree:FTSingleton": "val",
        "flattree:FTStatic": "val",
        "flattree:FTFiltered": "val",
        "util:Either": "is_right val",
    }
    found = {_optional(path): names for path, names in fields.items()}
    return {cls: tuple(names.split()) for cls, names in found.items() if isinstance(cls, type)}


def _user_frames() -> Callable[[Any], tuple[Any, ...]]:
    """The frames of a traceback that jax shows: the address of the code, and where it was."""
    is_users = _symbol("source_info_util:is_user_filename")

    def user_frames(traceback: Any) -> tuple[Any, ...]:
        codes, places = traceback.raw_frames()
        frames = zip(codes, places, strict=True)
        return tuple((id(code), at) for code, at in frames if is_users(code.co_filename))

    return user_frames


def _array_value() -> Any:
    """The function behind a concrete array's property ``_value``."""
    return inspect.unwrap(_symbol("array:ArrayImpl._value").fget)


def _control_primitives() -> set[Any]:
    """Primitives with programs among their params, whose rules look at no value of an operand."""
    paths = """
        lax.control_flow.loops:scan_p lax.control_flow.loops:while_p
        lax.control_flow.conditionals:cond_p lax.control_flow.solves:linear_solve_p
        pjit:jit_p ad_checkpoint:remat_p
    """
    return {found for found in map(_optional, paths.split()) if found is not None}


def _load() -> types.SimpleNamespace:
    """Looks up and checks every private symbol; the fields are those of ``Jax`` in the core."""
    pe, core = "interpreters.partial_eval", "core"
    transposition_step, transposition_loop = _transposition()

    tracer = _slotted(
        f"{pe}:DynamicJaxprTracer",
        "val mutable_qdd parent _debug_info",
        "val parent _debug_info",
    )
    trace = _slotted(f"{pe}:DynamicJaxprTrace", "frame tag parent_trace")
    _slotted(f"{core}:Tracer", "__weakref__ _trace _line_info aval")
    _slotted(f"{core}:Trace", "__weakref__ _invalidated _weakref requires_low")
    _methods(
        f"{pe}:DynamicJaxprTracer",
        __init__="self trace aval val line_info parent",
        full_lower="self",
        get_referent="self",
        get_const="self",
        _origin_msg="self",
    )
    _methods(
        f"{pe}:DynamicJaxprTrace",
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
    _slotted(
        f"{pe}:JaxprStackFrame",
        "gensym constid_to_tracer constvar_to_val tracing_eqns invars effects debug_info is_high "
        "mutable_qdds auto_dce",
        "gensym constid_to_tracer constvar_to_val tracing_eqns invars effects debug_info is_high "
        "auto_dce",
    )
    _methods(
        f"{pe}:JaxprStackFrame",
        add_eqn="self eqn",
        get_eqns="self",
        to_jaxpr="self trace out_tracers debug_info source_info",
        newvar="self aval",
        find_progenitors="self tracer",
    )
    _function(
        f"{pe}:TracingEqn.__init__",
        "self in_tracers outvars primitive params effects source_info ctx",
    )
    _methods(
        f"{core}:Primitive",
        bind="self *args **params",
        bind_with_trace="self trace args avals params",
        is_high="self *avals **params",
    )
    jaxpr = _slotted(
        f"{core}:Jaxpr",
        "__weakref__ _constvars _invars _outvars _eqns _effects _debug_info _is_high",
        "__weakref__ _all_invars _outvars _eqns _effects _debug_info _is_high _consts",
    )
    _function(
        f"{core}:Jaxpr.__init__",
        "self constvars invars outvars eqns effects debug_info is_high",
        "self constvars invars outvars eqns effects debug_info is_high consts",
    )
    lax = "lax.lax"
    rules = _symbol(f"{pe}:custom_staging_rules")
    derivative_rules = _derivative_rules()
    forwarding = _symbol(f"{pe}:forwarding_rules")
    convert_bind = _function(
        f"{lax}:_convert_element_type_bind_with_trace", "trace args avals params"
    )
    convert_p = _symbol(f"{lax}:convert_element_type_p")

    return types.SimpleNamespace(
        tracer_type=tracer,
        trace_type=trace,
        any_tracer_type=_symbol(f"{core}:Tracer"),
        jaxpr_type=jaxpr,
        closed_jaxpr_type=_closed_jaxpr_type(),
        var_type=_slotted(f"{core}:Var", "aval initial_qdd final_qdd", "aval"),
        drop_var_type=_symbol(f"{core}:DropVar"),
        literal_type=_slotted(f"{core}:Literal", "val aval"),
        eqn_type=_slotted(
            f"{core}:JaxprEqn", "invars outvars primitive params effects source_info ctx"
        ),
        tracing_eqn_type=_symbol(f"{pe}:TracingEqn"),
        abstract_value_type=_symbol(f"{core}:AbstractValue"),
        shaped_array_type=_interned_aval(),
        source_info_type=_slotted("source_info_util:SourceInfo", "traceback name_stack"),
        input_effect_type=_symbol("effects:JaxprInputEffect"),
        typed_array_type=_slotted("literals:TypedNdArray", "_aval _weak_type"),
        typed_float_type=_slotted("literals:TypedFloat", "dtype aval"),
        typed_scalar_types=set(_symbol("literals:typed_scalar_types")),
        copy_function=copy.copy,
        linearize_trace_type=_linearize_trace(),
        linearize_tracer_type=_slotted("interpreters.ad:LinearizeTracer", "primal tangent"),
        jvp_trace_type=_jvp_trace(),
        jvp_tracer_type=_slotted("interpreters.ad:JVPTracer", "primal tangent"),
        batch_trace_type=_batch_trace(),
        batch_tracer_type=_slotted(
            "interpreters.batching:BatchTracer", "val batch_dim source_info"
        ),
        no_axis_name=_symbol(f"{core}:no_axis_name"),
        index_update_ref_type=_slotted("numpy.array_methods:_IndexUpdateRef", "array index"),
        jit_type=_jit_type(),
        aval_qdd_type=_optional(f"{core}:AvalQDD"),
        mutable_qdd_type=_optional(f"{core}:MutableQuasiDynamicData"),
        trace_state=_symbol(f"{core}:trace_state_strong_ref"),
        weak_trace_state=_symbol(f"{core}:trace_state"),
        set_trace=_function(f"{core}:trace_ctx.set_trace", "trace"),
        binding_trace=_binding_trace(),
        eval_trace=_symbol(f"{core}:eval_trace"),
        source_info_context=_symbol("source_info_util:_source_info_context"),
        get_traceback=_symbol("source_info_util:Traceback.get_traceback"),
        empty_name_stack=_symbol("source_info_util:NameStack")(),
        trace_context=_symbol("config:trace_context"),
        eager_constant_folding=_symbol("config:eager_constant_folding"),
        current_eqn_context=_symbol(f"{core}:current_jaxpr_eqn_context"),
        copy_code=_sites.copy_function,
        array_methods=tuple(_symbol("numpy.array_methods:_array_methods")),
        other_settings=tuple(
            _symbol(f"config:{name}")
            for name in (
                "default_prng_impl",
                "enable_custom_prng",
                "legacy_prng_key",
                "enable_checks",
                "debug_nans",
                "debug_infs",
                "jax_platforms",
                "disable_vmap_shmap_error",
            )
        ),
        check_tracer_leaks=_symbol("config:check_tracer_leaks"),
        no_tracing=_symbol("config:no_tracing"),
        disable_jit=_symbol("config:disable_jit"),
        enable_checks=_symbol("config:enable_checks"),
        warnings=warnings,
        canonicalize_value=_symbol("dtypes:canonicalize_value"),
        typeof_fn=_symbol(f"{core}:typeof"),
        is_literalable=_function(f"{core}:is_literalable", "x for_ad"),
        literalable_scalar_types=_symbol(f"{core}:literalable_scalar_types"),
        array_type=_symbol("array:ArrayImpl"),
        stock_value=_sites.copy_function(_array_value()),
        plain_const_types={_symbol("array:ArrayImpl"), _symbol("literals:TypedNdArray")},
        immutable_types=_immutable_types(),
        flat_trees=_flat_trees(),
        user_frames=_user_frames(),
        jit_primitive=_symbol("pjit:jit_p"),
        control_primitives=_control_primitives(),
        cur_qdd=_optional(f"{core}:cur_qdd"),
        full_lower=_function(f"{core}:full_lower", "val"),
        get_referent=_function(f"{core}:get_referent", "x"),
        abstract_eval_cached=_symbol(f"{pe}:_cached_abstract_eval"),
        verify_params_are_hashable=_function(
            f"{pe}:_verify_params_are_hashable", "primitive params"
        ),
        resolve_input_effects=_function(f"{core}:resolve_input_effects", "effs invars"),
        make_jaxpr_effects=_function(f"{pe}:make_jaxpr_effects", "constvars invars outvars eqns"),
        no_effects=_symbol(f"{core}:no_effects"),
        custom_staging_rules=rules,
        const_fold_rules=_symbol(f"{pe}:const_fold_rules"),
        forwarding_rules=forwarding,
        param_order_rules=dict(
            _ordering_rule(f"{lax}:_{name}_staging_rule", operands, params)
            for name, operands, params in (
                ("reshape", "x", "new_sizes dimensions sharding"),
                ("broadcast_in_dim", "x", "shape broadcast_dimensions sharding"),
                ("iota", "", "dtype shape dimension sharding"),
            )
        ),
        pure_forwarding_rules={
            _function(f"{lax}:_convert_elt_type_fwd_rule", "eqn"),
            _function(f"{lax}:_broadcast_in_dim_fwd_rule", "eqn"),
        },
        no_forwarding_rules={_function("pjit:pjit_forwarding_rule", "eqn")},
        sharding_bind_rules={convert_bind}
        if vars(convert_p).get("bind_with_trace") is convert_bind
        else set(),
        uncached_primitives={"custom_lin", "call_hi_primitive_linearized", "call_hi_primitive"},
        stock_bind=_sites.copy_function(_symbol(f"{core}:Primitive.bind")),
        dce_rules=_symbol(f"{pe}:dce_rules"),
        plain_dce_rules=_has_plain_dce_rules(),
        stock_dce=_sites.copy_function(_function(_DCE, "jaxpr used_outputs instantiate")),
        stock_eval_jaxpr=_stock_evaluation(),
        custom_jvp_type=_symbol("custom_derivatives:custom_jvp"),
        custom_vjp_type=_symbol("custom_derivatives:custom_vjp"),
        named_sharding_type=jax.sharding.NamedSharding,
        shape_dtype_struct_type=jax.ShapeDtypeStruct,
        custom_jvp_primitive=_symbol("custom_derivatives:custom_jvp_call_p"),
        rule_primitives={
            _symbol("custom_derivatives:custom_jvp_call_p"),
            _symbol("custom_derivatives:custom_vjp_call_p"),
            _symbol("interpreters.ad:custom_lin_p"),
        },
        renewal=derivative_rules and derivative_rules.renewal,
        pair_rules=derivative_rules and derivative_rules.pair,
        rule_words=derivative_rules and derivative_rules.words,
        rules_alike=derivative_rules and derivative_rules.are_alike,
        wrapped_function_type=_symbol("linear_util:WrappedFun"),
        check_arg=_function("dispatch:check_arg", "arg"),
        float0=_symbol("dtypes:float0"),
        canonical_input_code=_inner_code("api:vjp", "canonicalize_value", _CANONICAL_INPUT),
        linear_input_code=_inner_code("interpreters.ad:linearize", "new_arg", _LINEAR_INPUT),
        stock_check_input_type=_sites.copy_function(_function(_CHECK_INPUT, _CHECK_INPUT_NAMES)),
        vjp_hook=_vjp_hook(),
        result_paths_hook=ResultPaths(_sites.copy_function(_function(_RESULT_PATHS, "self ans"))),
        debug_info_hook=_debug_infos(),
        objects=objects(),
        unexecuted_params=_unexecuted_params(),
        derivation_hooks={
            path: _core.DerivationCache(function.__name__, _sites.copy_function(function))
            for path, function in _derivations().items()
        },
        postponed_paths=Postponed,
        jit_captures=_jit_captures,
        jits_forgot=_forgotten_jits(),
        stock_evict=_sites.copy_function(_function("pjit:jit_evict_fn", "self")),
        flat_tree_leaves=_flat_tree().leaves,
        flat_tree_with_leaves=_flat_tree().with_leaves,
        stock_flat_tree_map=_sites.copy_function(_flat_tree().map),
        stock_check_returned_types=_sites.copy_function(_function(_CHECK_TYPES, "dbg out_tracers")),
        stock_check_returned_refs=_sites.copy_function(_function(_CHECK_REFS, "dbg out_tracers")),
        partial_type=functools.partial,
        stock_backward_pass=_sites.copy_function(_function(_BACKWARD, _BACKWARD_PARAMETERS)),
        transposition_step=transposition_step,
        transposition_loop=transposition_loop,
        merge_rule_logs=_optional("interpreters.ad:_merge_rule_logs"),
        vjp_node_type=_optional("interpreters.ad:VJPNode"),
        zero_type=_slotted("ad_util:Zero", "aval"),
        grad_accum_type=_symbol("interpreters.ad:GradAccum"),
        val_accum_type=_symbol("interpreters.ad:ValAccum"),
        stock_inline=_sites.copy_function(
            _function(_INLINE, "trace src jaxpr consts *arg_tracers")
        ),
        primitive_bind_with_trace=_symbol(f"{core}:Primitive.bind_with_trace"),
        primitive_is_high=_symbol(f"{core}:Primitive.is_high"),
        open_jaxpr=_open_jaxpr,
    )


# Functions within functions of jax, as they read where what they do is done natively.
_CANONICAL_INPUT = "lambda x: x if isinstance(x, core.Tracer) else canonicalize_value(x)"
_LINEAR_INPUT = """
def make_tracer(_lin_trace, p):
  t = tangent_trace.new_arg(typeof(p).to_tangent_aval(), source_info)
  if (not isinstance(t, Zero)
      and isinstance(typeof(t), core.ShapedArray)
      and dtype(t) == float0):
    t = p2tz(t)
  return LinearizeTracer(_lin_trace, p, t).full_lower()
"""
_ACCUMULATORS = """
maybe_accums = [check_accum(v.aval.to_ct_aval(), x) if isinstance(x, ad.GradAccum) else
                ad.RefAccum(v.aval.to_ct_aval(), x) if _is_ref(x) else
                ad.NullAccum(v.aval.to_ct_aval()) if isinstance(x, DontWant) else
                ad.ValAccum(v.aval.to_ct_aval())
                for v, x in zip(jaxpr.invars, maybe_ct_refs_flat)]
return Partial(partial(_vjp3_bwd, in_tree, out_tree, out_known, jaxpr,
                       out_primal_avals), residuals, maybe_accums)
"""


def _contains(function: Any, text: str) -> bool:
    """Whether the source of a function has a piece of text, however it is indented."""
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        return False
    return " ".join(text.split()) in " ".join(source.split())


def _inner_code(path: str, name: str, text: str) -> types.CodeType | None:
    """The code of the function that a function makes in which a name occurs; None where its text is
    another."""
    function = inspect.unwrap(_symbol(path))
    codes = [
        code
        for code in function.__code__.co_consts
        if isinstance(code, types.CodeType) and name in code.co_names
    ]
    return codes[0] if len(codes) == 1 and _contains(function, text) else None


# Functions within functions of jax that equations with derivative rules have among their params:
# what they are called in words, where they are, their closure in each version, and their text.
_RULE_FUNCTIONS = (
    (
        "rule",
        "interpreters.partial_eval:DynamicJaxprTrace.process_custom_jvp_call",
        "in_avals in_tangent_avals jvp self",
        """
        @partial(lu.wrap_init, debug_info=jvp.debug_info)
        @_memoize
        def jvp_jaxpr_thunk(*in_zeros):
          for store in jvp.stores: store and store.reset()
          nz_tangent_avals, zero_avals = partition_list(in_zeros, in_tangent_avals)
          jvp_, out_zeros = _jvp_jaxpr_zeros(jvp, in_zeros, tuple(zero_avals))
          in_avals_ = (*in_avals, *nz_tangent_avals)
          jaxpr, _, out_consts = trace_to_jaxpr_dynamic(jvp_.with_unknown_names(),
                                                        in_avals_, lower=self.requires_low)
          return jaxpr, out_consts, out_zeros()
        """,
    ),
    (
        "lifted rule",
        "custom_derivatives:lift_jvp",
        "jvp_jaxpr_fun num_consts",
        """
        jvp_jaxpr, jvp_consts, out_zeros = jvp_jaxpr_fun.call_wrapped(*zeros)
        nonzero_tangents = [t for t in tangents if type(t) is not SymbolicZero]
        out = core.eval_jaxpr(jvp_jaxpr, jvp_consts, *primals, *nonzero_tangents)
        """,
    ),
    (
        "pruned rule",
        "custom_derivatives:_custom_jvp_call_dce",
        "eqn jvp_jaxpr_fun used_outs",
        """
        def dce_jvp_jaxpr_thunk(*in_zeros):
          jvp_jaxpr, consts, out_zeros = jvp_jaxpr_fun.call_wrapped(*in_zeros)
          sz = eqn.params["symbolic_zeros"]
          nz_used_outs = [u for u, z in zip(used_outs, out_zeros) if not z] if sz else used_outs
          dce_jvp_jaxpr, _ = pe.dce_jaxpr(jvp_jaxpr, [*used_outs, *nz_used_outs], True)
          dce_out_zeros = [v for used, v in zip(used_outs, out_zeros) if used]
          return dce_jvp_jaxpr, consts, dce_out_zeros
        """,
    ),
    (
        "forward",
        "interpreters.partial_eval:DynamicJaxprTrace.process_custom_vjp_call",
        "fwd in_avals self",
        """
        @partial(lu.wrap_init, debug_info=fwd.debug_info)
        @_memoize
        def fwd_jaxpr_from_zeros(*zeros):
          for store in fwd.stores: store and store.reset()
          fwd_ = _interleave_fun(fwd.with_unknown_names(), zeros)
          jaxpr, _, consts = trace_to_jaxpr_dynamic(fwd_, in_avals, lower=self.requires_low)
          return jaxpr, consts
        """,
    ),
    (
        "trees",
        "interpreters.partial_eval:DynamicJaxprTrace.process_custom_vjp_call",
        "num_consts out_trees",
        """
        def out_trees_():
          out_tree, res_tree, input_fwds = out_trees()
          input_fwds = [f if f is None else f + num_consts for f in input_fwds]
          return out_tree, res_tree, input_fwds
        """,
    ),
    (
        "forward of the unknown",
        "interpreters.partial_eval:JaxprTrace.process_custom_vjp_call",
        "fwd in_avals",
        """
        def fwd_jaxpr_thunk(*zeros):
          fwd_ = _interleave_fun(fwd.with_unknown_names(), zeros)
          fwd_jaxpr, _, consts = trace_to_jaxpr_dynamic(fwd_, in_avals)
          return fwd_jaxpr, consts
        """,
    ),
    (
        "batched dimensions",
        "interpreters.batching:BatchTrace.process_custom_vjp_call",
        "in_dims out_dims2 out_trees",
        """
        def bwd_in_dims():
          _, _, input_fwds = out_trees()
          pruned_dims = iter(out_dims2())
          full_dims = [next(pruned_dims) if f is None else in_dims[f] for f in input_fwds]
          return [*full_dims, *pruned_dims]
        """,
    ),
    (
        "batched backward",
        "interpreters.batching:batch_custom_vjp_bwd",
        "axis_data bwd in_dims out_dim_dests tag",
        """
        in_dims_ = in_dims() if callable(in_dims) else in_dims
        args = [SymbolicZero(core.mapped_aval(axis_data.size, dim, x.aval))
                if type(x) is SymbolicZero else x
                for x, dim in zip(args, in_dims_)]
        """,
    ),
    (
        "lifted forward",
        "custom_derivatives:lift_fwd",
        "fwd_jaxpr_thunk num_consts",
        """
        fwd_jaxpr, fwd_consts = fwd_jaxpr_thunk.call_wrapped(*in_nonzeros)
        return core.eval_jaxpr(fwd_jaxpr, fwd_consts, *primals)
        """,
    ),
    (
        "pruned forward",
        "custom_derivatives:_custom_vjp_call_dce",
        "fwd_jaxpr_thunk out_trees used_outs",
        """
        _, res_tree, fwds = out_trees()
        num_res_out = res_tree.num_leaves - sum(f is not None for f in fwds)
        dce_fwd_jaxpr, _ = _cached_closed_call_dce_instantiate(
            fwd_jaxpr, (True,) * num_res_out + tuple(used_outs))
        """,
    ),
    (
        "pruned backward",
        "custom_derivatives:_custom_vjp_call_dce",
        "bwd call_jaxpr out_trees symbolic_zeros used_outs | bwd call_jaxpr out_trees used_outs",
        """
        def dce_bwd(*args):
          _, res_tree, _ = out_trees()
          res, cts = split_list(args, [res_tree.num_leaves])
          cts_ = iter(cts)
          all_cts = []
          for used, aval in zip(used_outs, call_jaxpr.out_avals):
            if used:
              all_cts.append(next(cts_))
        """,
    ),
)


@functools.cache
def _derivative_rules() -> Rules | None:
    """Reads functions among the params of equations with derivative rules."""
    wrap, names = _symbol("linear_util:wrap_init"), _symbol("linear_util:DebugInfo")
    transformed = _symbol("linear_util:transformation_with_aux2")
    memoize = _optional("interpreters.partial_eval:_memoize")
    if memoize is None:
        return None
    _, stored = transformed(lambda f, store: None)(wrap(len, debug_info=names("", "", (), ())))
    known = {stored.__code__: "stored"}
    for kind, path, closure, text in _RULE_FUNCTIONS:
        function = inspect.unwrap(_symbol(path))
        if _contains(function, text):
            codes = [c for c in function.__code__.co_consts if isinstance(c, types.CodeType)]
            closures = [tuple(names.split()) for names in closure.split("|")]
            known |= {c: kind for c in codes if c.co_freevars in closures}
    return Rules(
        Private(
            known_codes=known,
            memoize=memoize,
            wrap=wrap,
            wrapped_type=_symbol("linear_util:WrappedFun"),
            store_type=_symbol("linear_util:Store"),
            store_error=_symbol("linear_util:StoreException"),
            debug_info_type=names,
            tag_type=_symbol("core:TraceTag"),
            aval_type=_symbol("core:ShapedArray"),
            eqn_type=_symbol("core:JaxprEqn"),
            jaxpr_types=(_closed_jaxpr_type(), _symbol("core:Jaxpr")),
            unhashable_type=_symbol("util:Unhashable"),
            no_axis_name=_symbol("core:no_axis_name"),
            jit_type=_jit_type(),
            custom_rule_types=(
                _symbol("custom_derivatives:custom_jvp"),
                _symbol("custom_derivatives:custom_vjp"),
            ),
            trace_type=_symbol("core:Trace"),
            tracer_type=_symbol("core:Tracer"),
            never_followed=(type(_symbol("tree_util:default_registry")),),
        )
    )


def _is_cacheable(fun: Any) -> bool:
    """Whether jax's caches can hold a function."""
    try:
        hash(fun)
        weakref.ref(fun)
    except TypeError:
        return False
    return True


def _debug_infos() -> DebugInfos | None:
    """``debug_info``, remembering; None where jax's makes names of more than it did."""
    registry = _optional("tree_util:tracing_registry")
    names = "traced_for fun args kwargs static_argnums static_argnames"
    try:
        stock = _function(_DEBUG_INFO, f"{names} result_paths_thunk sourceinfo signature")
    except Mismatch:
        return None
    if registry is None:
        return None
    source, new = private().fun_sourceinfo, private().debug_info
    return DebugInfos(_sites.copy_function(stock), source, registry.flatten, new)


def _eval_shape() -> Callable[..., Any] | None:
    """``eval_shape`` by a trace without a jit; None where jax reads a trace's shapes elsewhere."""
    function = inspect.unwrap(jax.eval_shape)
    out_info = _optional("stages:_traced_out_info")
    ends = "return jit(fun).trace(*args, **kwargs).out_info"
    if out_info is None or not _contains(function, ends):
        return None
    from jaxide import _tracing  # which imports this module

    stock = _sites.copy_function(function)
    jit_type = _jit_type()

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


def _vjp_hook() -> Callable[..., Any] | None:
    """``_vjp3_callable`` where all cotangents are wanted as values; None where jax's is another."""
    function = _symbol(_VJP)
    if not _contains(function, _ACCUMULATORS):
        return None
    stock = _sites.copy_function(function)
    api, partial = _module("jax._src.api"), functools.partial
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


def _has_plain_dce_rules() -> bool:
    """Whether rules for dead code are given nothing but an equation and which outputs are used."""
    try:
        _function("pjit:dce_jaxpr_pjit_rule", "used_outputs eqn")
    except Mismatch:
        return False
    return True


def _ordering_rule(path: str, operands: str, params: str) -> tuple[Any, tuple[str, ...]]:
    """A staging rule that only puts its params in the order of its parameters, and that order."""
    parameters = ("trace", "source_info", *operands.split(), *params.split())
    return _function(path, " ".join(parameters)), tuple(params.split())


def _interned_aval() -> type:
    """``ShapedArray``, which jax interns: equal types are one object."""
    cls = _symbol("core:ShapedArray")
    one, other = (cls((2, 3), jax.numpy.float32) for _ in range(2))
    if one is not other:
        raise Mismatch("jax._src.core.ShapedArray is not interned")
    return cls


@functools.cache
def private() -> types.SimpleNamespace:
    """What `_tracing` needs of jax's private functions."""
    return types.SimpleNamespace(
        argument_names=_function(
            "api_util:_non_static_arg_names",
            "fn_signature args kwargs static_argnums static_argnames",
        ),
        array_type=_symbol("array:ArrayImpl"),
        check_callable=_function("api_util:check_callable", "fun"),
        check_no_aliased_references=_function(
            "api_util:_check_no_aliased_closed_over_refs", "dbg consts args"
        ),
        check_tracer_leaks=_symbol("config:check_tracer_leaks"),
        clean_path=_function("linear_util:_clean_keystr_arg_names", "k"),
        debug_info=_symbol("core:DebugInfo"),
        debug_key_reuse=_symbol("config:debug_key_reuse"),
        flat_tree=_optional("tree_util:FlatTree"),
        flatten_static=_optional(
            "flattree:flatten_static_argnums_argnames_and_return_various_trees"
        ),
        fun_name=_function("util:fun_name", "fun default_name"),
        fun_signature=_function("api_util:fun_signature", "fun"),
        fun_sourceinfo=_function("api_util:fun_sourceinfo", "fun"),
        initial_result_paths=_symbol("core:initial_result_paths"),
        is_top_level=_is_top_level(),
        log_elapsed_time=_symbol("dispatch:log_elapsed_time"),
        mutable_array_checks=_symbol("config:mutable_array_checks"),
        quasi_dynamic_index=_optional("pjit:_qdd_cache_index"),
        quasi_dynamic_update=_optional("pjit:_qdd_cache_update"),
        separate_consts=_symbol("interpreters.partial_eval:separate_consts"),
        shaped_abstractify=_function("core:shaped_abstractify", "x"),
        shaped_array=_symbol("core:ShapedArray"),
        single_device_sharding=_symbol("sharding_impls:SingleDeviceSharding"),
        trace_event=_symbol("dispatch:JAXPR_TRACE_EVENT"),
        trace_to_jaxpr=_symbol("interpreters.partial_eval:trace_to_jaxpr"),
        tracer=_symbol("core:Tracer"),
        typeof=_symbol("core:typeof"),
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
    return _with_constants(jaxpr, consts)


def _is_top_level() -> Callable[[], bool]:
    """The function that says whether no trace is running."""
    return _optional("core:trace_ctx.is_top_level") or _symbol("core:trace_state_clean")


def _jit_type() -> type:
    """The type of what ``jax.jit`` returns."""
    return type(jax.jit(lambda: None))


def _catch() -> None:
    """Catches the functions of jax whose calls are remembered."""
    scalar = type(jax.numpy.float32)
    trusted = (_symbol("custom_derivatives:custom_jvp"), jax.numpy.ufunc, scalar)
    _sites.catch_loaded(_jit_type(), trusted, api_boundary(lambda: None).__code__)
    _transparent.trust()
    _core.catch_instances("jax.numpy scalar type", scalar)
    _function("numpy.ufunc_api:ufunc.__call__", "self *args out where")
    _core.catch_instances("ufunc", jax.numpy.ufunc)
    _function("custom_derivatives:custom_jvp.__call__", "self *args **kwargs")
    _core.catch_instances("custom_jvp", _symbol("custom_derivatives:custom_jvp"))
    _function("custom_derivatives:custom_vjp.__call__", "self *args **kwargs")
    _core.catch_instances("custom_vjp", _symbol("custom_derivatives:custom_vjp"))
    eval_shape = _function("api:eval_shape", "fun *args **kwargs")
    _sites.catch(eval_shape, "jax.eval_shape", _eval_shape(), types_only=True)
    update_ref = _symbol("numpy.array_methods:_IndexUpdateRef")
    for name, method in vars(update_ref).items():
        if isinstance(method, types.FunctionType) and not name.startswith("_"):
            _sites.catch(method, f"Array.at[].{name}")
    # Those of the tracers of transformations; jaxide's own have slots for them.
    for name, member in vars(_symbol("core:Tracer")).items():
        if name in _PROPERTIES and isinstance(member, property):
            member = member.fget
        if isinstance(member, types.FunctionType) and member.__code__ in _forwarding_codes():
            _sites.catch(member, f"Array.{name}")


# The array properties whose value is traced.
_PROPERTIES = ("T", "mT", "real", "imag")


@functools.cache
def _forwarding_codes() -> set[types.CodeType]:
    """The codes of the operators, methods and properties of jax's tracers."""
    methods = "numpy.array_methods"
    return {
        _symbol(f"{methods}:_forward_operator_to_aval")("add").__code__,
        _symbol(f"{methods}:_forward_method_to_aval")("sum").__code__,
        _symbol(f"{methods}:_forward_property_to_aval")("T").fget.__code__,
    }


def _binding_trace() -> Any:
    """What ``Primitive.bind`` makes current while a rule runs: seen from inside a primitive."""
    core = _module("jax._src.core")
    seen = []
    probe = core.Primitive("jaxide_probe")
    probe.def_bind_with_trace(lambda *_: seen.append(core.trace_ctx.trace))
    probe.bind()
    return seen[0]


_HOOK = "jaxide: the hook goes here"


def _bind_template(self: Any, *args: Any, **params: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(self, args, params)


def _inline_template(trace: Any, src: Any, jaxpr: Any, consts: Any, *arg_tracers: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(trace, src, jaxpr, consts, arg_tracers)


def _stock_evaluation() -> Callable[..., Any]:
    """``core.eval_jaxpr``, with the arguments of the program as a tuple."""
    stock = _sites.copy_function(_function(_EVALUATION, _EVALUATION_PARAMETERS))
    return lambda jaxpr, consts, args, keeps_sources: stock(
        jaxpr, consts, *args, propagate_source_info=keeps_sources
    )


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


def _jit_captures(jitted: Any, args: Any, kwargs: Any) -> bool:
    """Whether what ``jitted`` traced for a call refers to traced values that are no arguments.

    The call was just made, so this finds its program in jax's cache.
    """
    infer = _symbol("pjit:_infer_params")
    program, _ = infer(jitted._fun, jitted._jit_info, args, kwargs)
    return bool(program.consts)


def _forgotten_jits() -> Callable[[], bool]:
    """A function that says whether some jit's ``clear_cache`` was called since it was last asked.

    That empties one cache of jax, so an entry of ours is put there to see if it is still there.
    """
    cached = _symbol("pjit:_infer_params_cached")
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


def _result_paths_template(self: Any, ans: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(self, ans)


def _map_template(self: Any, f: Any) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(self, f)


def _dce_template(jaxpr: Any, used_outputs: Any, instantiate: Any = False) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(jaxpr, used_outputs, instantiate)


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


def _batch_trace() -> Any:
    """The trace of ``vmap``, whose axis says what its rules depend on."""
    _slotted("interpreters.batching:AxisData", "name size spmd_name _ema")
    path = "interpreters.batching:BatchTrace"
    _methods(path, __init__="self parent_trace tag axis_data")
    return _symbol(path)


def _jvp_trace() -> Any:
    """The trace of forward-mode differentiation."""
    path = "interpreters.ad:JVPTrace"
    _methods(path, __init__="self parent_trace tag")
    return _symbol(path)


def _linearize_trace() -> Any:
    """The trace of reverse-mode differentiation, whose attributes the core reads by name."""
    path = "interpreters.ad:LinearizeTrace"
    _methods(path, __init__="self parent_trace tangent_trace is_vjp", _name_stack_suffix="self")
    return _symbol(path)


def _backward_template(
    jaxpr: Any, transform_stack: Any, consts: Any, primals_in: Any, cotangents_in: Any
) -> Any:
    hook: Any = "jaxide: the hook goes here"
    return hook(jaxpr, transform_stack, consts, primals_in, cotangents_in)


def _transposition() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """One step of jax's ``backward_pass3``, and its loop's context.

    The step transposes an equation as jax does, and returns what its rule logs (jax 0.12 on). The
    context runs a loop with the name stack that jax gives it.
    """
    ad = _module("jax._src.interpreters.ad")
    transform_name_stack = _function("source_info_util:transform_name_stack", "name")
    name_stack_context = _function("interpreters.ad:_name_stack_ctx", "src_info")
    rule_of = _function("interpreters.ad:get_primitive_transpose", "p")

    def undefined(x: Any) -> Any:
        return ad.UndefinedPrimal(x.aval) if isinstance(x, ad.GradAccum) else x

    def step(eqn: Any, cts_in: Any, operands: Any) -> Any:
        primitive = eqn.primitive
        cts = cts_in if primitive.multiple_results else cts_in[0]
        with eqn.ctx.manager, name_stack_context(eqn.source_info):
            if primitive in ad.fancy_transposes:
                return ad.fancy_transposes[primitive](cts, *operands, **eqn.params)
            rule = rule_of(primitive)
            primals = list(map(undefined, operands))
            if getattr(primitive, "call_primitive", False):
                params = dict(eqn.params)
                call_jaxpr = params.pop("call_jaxpr")
                out = rule(params, call_jaxpr, primals, cts, [v.aval for v in eqn.outvars])
            else:
                out = rule(cts, *primals, **eqn.params)
            for x, ct in zip(operands, out, strict=False):
                if isinstance(x, ad.GradAccum):
                    x.accum(ct)
        return None

    def loop(transform_stack: bool, body: Callable[[], Any]) -> Any:
        if not transform_stack:
            return body()
        with transform_name_stack("transpose"):
            return body()

    return step, loop


class _FlatTree(NamedTuple):
    """jax's tree of one ``PyTreeDef``: its method ``map``, how leaves are read and replaced."""

    map: Any
    leaves: str
    with_leaves: Callable[[Any, Any], Any]


def _flat_tree() -> _FlatTree:
    new = _optional("flattree:FTPyTree")
    if new is None:
        map_leaves = _function("tree_util:FlatTree.map", "self f")
        return _FlatTree(
            map_leaves, "vals", _function("tree_util:FlatTree.update", "self new_vals")
        )
    map_leaves = _function("flattree:FTPyTree.map", "self f")
    return _FlatTree(map_leaves, "xs", lambda tree, leaves: new(leaves, tree.tree))


# Functions whose results jax keeps with the program that is their first argument.
_DERIVATIONS = {
    "interpreters.ad:_linearize_jaxpr": "jaxpr nonzeros instantiate allow_fwds is_vjp",
    "interpreters.ad:_jvp_jaxpr": "jaxpr nonzeros instantiate",
    "interpreters.batching:_batch_jaxpr2": "closed_jaxpr axis_data in_axes",
    "interpreters.batching:_batch_jaxpr_axes": "closed_jaxpr axis_data in_axes out_axes_dest",
    "pjit:_transpose_jaxpr_fancy": "jaxpr in_tree in_avals specs",
}


@functools.cache
def objects() -> _objects.Objects:
    """What the objects in programs are."""
    derivative_rules = _derivative_rules()
    return _objects.Objects(
        _objects.Private(
            literal_type=_symbol("core:Literal"),
            context_type=_symbol("core:JaxprEqnContext"),
            primitive_type=_symbol("core:Primitive"),
            wrapped_type=_symbol("linear_util:WrappedFun"),
            tracer_type=_symbol("core:Tracer"),
            array_types=(_symbol("literals:TypedNdArray"),),
            immutable_types=frozenset(_immutable_types()),
            mesh_type=_symbol("mesh:Mesh"),
            tree_fields=_flat_trees(),
            effect_type=_symbol("effects:Effect"),
            aval_type=_symbol("core:ShapedArray"),
            concrete_types=_concrete_types(),
            callback_types=(_symbol("callback:_FlatCallback"),),
            callback_modules=frozenset({"jax._src.callback", "jax._src.debugging"}),
            rules_alike=derivative_rules.are_alike if derivative_rules else None,
        )
    )


def _concrete_types() -> tuple[type, ...]:
    """The classes of arrays that cannot change."""
    keys = _symbol("random.prng:PRNGKeyArray")
    return _symbol("array:ArrayImpl"), keys


# Params of which nothing is executed: rules of transformations and what they need, what a
# checkpoint saves, and functions beside the jaxpr that was made of them.
_UNEXECUTED = {
    "custom_derivatives:custom_jvp_call_p": "jvp_jaxpr_fun symbolic_zeros",
    "custom_derivatives:custom_vjp_call_p": "fwd_jaxpr_thunk bwd out_trees symbolic_zeros",
    "custom_batching:custom_vmap_p": "rule",
    "ad_checkpoint:remat_p": "policy",
    "lax.lax:reduce_p": "computation",
}


def _unexecuted_params() -> dict[Any, frozenset[str]]:
    """Params that have no part in the execution, by primitive."""
    found = {_optional(path): frozenset(names.split()) for path, names in _UNEXECUTED.items()}
    found.pop(None, None)
    return found


@functools.cache
def _derivations() -> dict[str, types.FunctionType]:
    """Those of these functions that this jax has, by path, as they are behind their caches."""
    found = {}
    for path, parameters in _DERIVATIONS.items():
        # A native cache has no attribute for what it wraps.
        for behind in gc.get_referents(_optional(path)):
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
        return _derivations()[name], _derivation_template
    return {
        "evict": (_function("pjit:jit_evict_fn", "self"), _evict_template),
        "result_paths": (_function(_RESULT_PATHS, "self ans"), _result_paths_template),
        "bind": (_symbol("core:Primitive.bind"), _bind_template),
        "inline": (_symbol(_INLINE), _inline_template),
        "value": (_array_value(), _value_template),
        "eval": (_function(_EVALUATION, _EVALUATION_PARAMETERS), _evaluation_template),
        "dce": (_function(_DCE, "jaxpr used_outputs instantiate"), _dce_template),
        "check_input": (_function(_CHECK_INPUT, _CHECK_INPUT_NAMES), _check_input_template),
        "debug_info": (_symbol(_DEBUG_INFO), _debug_info_template),
        "vjp": (_symbol(_VJP), _vjp_template),
        "map_leaves": (_flat_tree().map, _map_template),
        "backward": (_function(_BACKWARD, _BACKWARD_PARAMETERS), _backward_template),
        "check_types": (_function(_CHECK_TYPES, "dbg out_tracers"), _check_template),
        "check_refs": (_function(_CHECK_REFS, "dbg out_tracers"), _check_template),
    }[name]


_DEBUG_INFO = "api_util:debug_info"
_CHECK_INPUT = "api:_check_input_dtype_revderiv"
_CHECK_INPUT_NAMES = "name holomorphic allow_int x"
_VJP = "api:_vjp3_callable"
_DCE = "interpreters.partial_eval:dce_jaxpr_consts"
_CHECK_TYPES = "interpreters.partial_eval:_check_returned_jaxtypes"
_CHECK_REFS = "interpreters.partial_eval:_check_no_returned_refs"
_BACKWARD = "interpreters.ad:backward_pass3"
_BACKWARD_PARAMETERS = "jaxpr transform_stack consts primals_in cotangents_in"
_EVALUATION = "core:eval_jaxpr"
_EVALUATION_PARAMETERS = "jaxpr consts *args propagate_source_info"
_INLINE = "interpreters.partial_eval:inline_jaxpr_into_trace"
_RESULT_PATHS = "linear_util:DebugInfo.set_result_paths"


def _trampoline(name: str, hook: Callable[..., Any]) -> tuple[Any, types.CodeType]:
    """A function of jax and a code object for it that calls ``hook``."""
    function, template = _hooked(name)
    own = function.__code__
    code = template.__code__
    return function, code.replace(
        co_consts=tuple(hook if constant == _HOOK else constant for constant in code.co_consts),
        co_filename=own.co_filename,
        co_firstlineno=own.co_firstlineno,
        co_name=own.co_name,
        co_qualname=own.co_qualname,
    )


class _Cache:
    """Something remembered in the shape of a cache of jax: ``jax.clear_caches`` empties it."""

    def __init__(self, clear: Callable[[], None], count: Callable[[], int]):
        self.cache_clear, self._count = clear, count

    def cache_info(self) -> str:
        return f"{self._count()} entries"

    def cache_keys(self) -> list[Any]:
        return []


# What `jax.clear_caches` empties besides jax's own; it does not keep them alive.
_CACHES: list[_Cache] = []


def clear_with_jax(clear: Callable[[], None], count: Callable[[], int], what: str) -> None:
    """Has ``jax.clear_caches()`` call ``clear``."""
    _CACHES.append(_Cache(clear, count))
    _function("util:register_cache", "cache for_what")(_CACHES[-1], what)


def _clear_core() -> None:
    _core.clear_memo()
    _core.clear_fragments()


def _register(tracer: type, trace: type, jaxpr: type) -> None:
    """Makes jax treat the core's types as it treats its own."""
    core = _module("jax._src.core")
    core.pytype_aval_mappings[tracer] = core.pytype_aval_mappings[
        _symbol("interpreters.partial_eval:DynamicJaxprTracer")
    ]
    util = _module("jax._src.util")
    util.weakref_cache_key_types.add(jaxpr)
    clear_with_jax(_clear_core, _core.memo_len, "jaxide abstract evaluation")
    for register in (
        _function("source_info_util:register_exclusion", "path"),
        _function("traceback_util:register_exclusion", "path"),
    ):
        register(__file__.rpartition("/")[0] + "/")


@functools.cache
def native() -> bool:
    """Whether the native trace runs; where it does not, one warning has said why."""
    try:
        private()
        execution()
        jit_tracing()
        namespace = _load()
        types_ = _core.initialize(namespace, _trampoline)
        _register(*types_)
        _catch()
    except (Mismatch, AttributeError, TypeError) as error:
        warnings.warn(
            f"jaxide does not know jax {jax.__version__}: {error}. Supported: {SUPPORTED}. "
            "Tracing is left to stock jax.",
            JaxideFallbackWarning,
            stacklevel=2,
        )
        return False
    return True


def api_boundary(function: Callable[..., Any]) -> Callable[..., Any]:
    """jax's own boundary, which hides internal frames from tracebacks."""
    return _symbol("traceback_util:api_boundary")(function)


def wraps(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """jax's ``wraps``, tolerant of callables without a name."""
    return _symbol("util:wraps")(function)


def extend_axis_env(axis_env: Any) -> Any:
    """A context with named axes, as ``jax.make_jaxpr(axis_env=...)`` sets up."""
    return _symbol("core:extend_axis_env_nd")(axis_env) if axis_env else contextlib.nullcontext()


@functools.cache
def _jaxpr_type() -> Any:
    return _symbol("core:Jaxpr")


@functools.cache
def _closed_jaxpr_type() -> Any:
    """``ClosedJaxpr``, which from jax 0.11 on is ``Jaxpr`` itself."""
    return _optional("core:ClosedJaxpr") or _jaxpr_type()


def closed_jaxpr(traced: Any) -> Any:
    """The closed jaxpr of ``jit(f).trace(...)``, captured tracers as constants again."""
    return _with_constants(traced.jaxpr, getattr(traced, "_consts", ()))


def _with_constants(jaxpr: Any, consts: Any) -> Any:
    """A jit's program whose leading arguments are captured values, as constants again."""
    if not consts:
        return jaxpr
    if _closed_jaxpr_type() is _jaxpr_type():
        return jaxpr.with_consts(consts)
    convert = _symbol("interpreters.partial_eval:convert_invars_to_constvars")
    return close(convert(jaxpr.jaxpr, len(consts)), consts)


def close(jaxpr: Any, consts: list[Any]) -> Any:
    """The closed jaxpr of an open one and the values of its constants."""
    if _closed_jaxpr_type() is _jaxpr_type():
        return jaxpr.with_consts(consts)
    return _closed_jaxpr_type()(jaxpr, consts)


def evaluate(jaxpr: Any, args: list[Any]) -> list[Any]:
    """Executes a closed jaxpr, equation by equation, or stages it where a trace is current."""
    return _symbol("core:jaxpr_as_fun")(jaxpr)(*args)


def _open_jaxpr(jaxpr: Any) -> tuple[Any, list[Any]]:
    """The open jaxpr and the constants of any jaxpr."""
    if isinstance(jaxpr, _jaxpr_type()):  # from jax 0.11 on also a closed one
        return jaxpr, list(getattr(jaxpr, "consts", []))
    if isinstance(jaxpr, _closed_jaxpr_type()):
        return jaxpr.jaxpr, list(jaxpr.consts)
    raise TypeError(f"expected a jaxpr, got {type(jaxpr).__module__}.{type(jaxpr).__qualname__}")


def open_part(jaxpr: Any) -> Any:
    """What has the equations of a jaxpr, open or closed: itself, where there is one class."""
    return (
        jaxpr.jaxpr if type(jaxpr) is _closed_jaxpr_type() is not _jaxpr_type() else jaxpr
    )


def closed_form(jaxpr: Any) -> Any:
    """A closed jaxpr: itself, or an open one with no constants."""
    is_closed = type(jaxpr) is _closed_jaxpr_type() or _closed_jaxpr_type() is _jaxpr_type()
    return jaxpr if is_closed else close(jaxpr, [])


def lift(jaxpr: Any) -> Any:
    """The closed jaxpr whose constants are its first inputs."""
    convert = _symbol("interpreters.partial_eval:convert_constvars_jaxpr")
    if _closed_jaxpr_type() is _jaxpr_type():
        return convert(jaxpr)
    return close(convert(jaxpr.jaxpr), [])


def with_parts(jaxpr: Any, constvars: list[Any], consts: list[Any], eqns: list[Any] | None) -> Any:
    """The closed jaxpr with other constants, and other equations where they are given."""
    inner = open_part(jaxpr)
    changed = {"constvars": constvars, "eqns": inner.eqns if eqns is None else eqns}
    if inner is jaxpr:
        return jaxpr.replace(**changed, consts=consts)
    return close(inner.replace(**changed), consts)


def new_var(aval: Any) -> Any:
    """A variable of its own."""
    return _symbol("core:Var")(aval)


_LIFTING = {
    "jit": "pjit:jit_p",
    "checkpoint": "ad_checkpoint:remat_p",
    "scan": "lax.control_flow.loops:scan_p",
    "while": "lax.control_flow.loops:while_p",
    "cond": "lax.control_flow.conditionals:cond_p",
    "custom_jvp": "custom_derivatives:custom_jvp_call_p",
    "custom_vjp": "custom_derivatives:custom_vjp_call_p",
}


@functools.cache
def lifting_primitives() -> dict[Any, str]:
    """Primitives with programs among their params that can be given more operands."""
    found = {_optional(path): kind for kind, path in _LIFTING.items()}
    found.pop(None, None)
    return found


def with_operands(kind: str, params: dict[str, Any], count: int) -> dict[str, Any]:
    """The params of an equation with so many more operands, which are the first, not counting those
    that only count them."""
    if kind == "jit":
        unspecified = _symbol("sharding_impls:UNSPECIFIED")
        return params | {
            "in_shardings": (unspecified,) * count + tuple(params["in_shardings"]),
            "in_layouts": (None,) * count + tuple(params["in_layouts"]),
            "donated_invars": (False,) * count + tuple(params["donated_invars"]),
        }
    if kind != "scan":
        return params
    if "num_consts" in params:
        return params | {"num_consts": params["num_consts"] + count}
    # Constants, carry and inputs as trees.
    pack, nones = _symbol("flattree:pack"), _symbol("flattree:nones")
    consts, carry, xs = params["ft_in"].unpack()
    return params | {"ft_in": pack(((nones(count), consts), carry, xs))}


def is_jaxpr(value: Any) -> bool:
    """Whether ``value`` is a jaxpr, closed or open."""
    return isinstance(value, (_jaxpr_type(), _closed_jaxpr_type()))


def constant_types(jaxpr: Any) -> list[Any]:
    """The types of the constants of a closed jaxpr."""
    return [var.aval for var in getattr(jaxpr, "jaxpr", jaxpr).constvars]


_EXECUTE = "pjit:_pjit_call_impl_python"
_EXECUTE_PARAMETERS = (
    "*args jaxpr in_shardings out_shardings in_layouts out_layouts donated_invars ctx_mesh name "
    "keep_unused inline compiler_options_kvs"
)


class _Execution:
    """How jax executes a jit's program: the steps of ``_pjit_call_impl_python``."""

    def __init__(self) -> None:
        function = _function(_EXECUTE, _EXECUTE_PARAMETERS)
        self.function = function
        self.stock = _sites.copy_function(function)
        self.param_names = _EXECUTE_PARAMETERS.split()[1:]
        self.lowering = _function(
            "pjit:_resolve_and_lower",
            f"args {' '.join(self.param_names[:-1])} lowering_platforms lowering_parameters "
            "pgle_profiler compiler_options_kvs",
        )
        self.stock_lowering = _sites.copy_function(self.lowering)
        self.test_event = _function("util:test_event", "name *args")
        self.argument_type = _function("pjit:convert_to_metaty", "arg")
        self._trace_context = _symbol("config:trace_context")
        self._new_type = _symbol("pjit:MetaTy")
        self._resolve_in_shardings = _function(
            "pjit:_resolve_in_shardings", "args pjit_in_shardings"
        )
        self._resolve_in_layouts = _function(
            "pjit:_resolve_in_layouts", "args jit_in_layouts resolved_in_shardings in_avals"
        )
        self._resolve_out_layouts = _function(
            "pjit:_resolve_out_layouts", "out_layouts out_shardings out_avals"
        )
        self._lower = _symbol("pjit:_pjit_lower")
        self._lowering_parameters = _symbol("interpreters.mlir:LoweringParameters")
        self._unspecified = _symbol("sharding_impls:UNSPECIFIED")
        names = "enable_pgle distributed_debug use_simplified_jaxpr_constants"
        self._settings = [_symbol(f"config:{name}") for name in names.split()]

    def is_plain(self) -> bool:
        """Whether no setting asks jax for more than to lower, compile and run."""
        return not any(setting.value for setting in self._settings)

    def configuration(self) -> tuple[Any, ...]:
        """All that is set: what is part of jax's key for a lowering, and what XLA is told besides,
        which jax reads anew for each new program."""
        values = tuple(jax.config.values.values())
        try:
            hash(values)
        except TypeError:  # an option of a library
            values = tuple(map(repr, values))
        return self._trace_context(), values

    def constant_type(self, aval: Any) -> Any:
        """A constant goes wherever the computation is, as one that is built in does."""
        return self._new_type(aval, None, None, False, False)

    def resolve(
        self, const_avals: Sequence[Any], args: Sequence[Any], params: dict[str, Any]
    ) -> tuple[Any, ...]:
        """What the lowering of a program depends on besides the program and the configuration.

        Raises:
          ValueError: the shardings of arguments contradict those that were asked for.
        """
        jaxpr, num_consts = params["jaxpr"], len(const_avals)
        types_ = [*map(self.constant_type, const_avals), *map(self.argument_type, args)]
        in_shardings = self._resolve_in_shardings(
            types_, (self._unspecified,) * num_consts + tuple(params["in_shardings"])
        )
        in_layouts = self._resolve_in_layouts(
            types_,
            (None,) * num_consts + tuple(params["in_layouts"]),
            in_shardings,
            [*const_avals, *jaxpr.in_avals],
        )
        out_layouts = self._resolve_out_layouts(
            params["out_layouts"], params["out_shardings"], jaxpr.out_avals
        )
        return (
            tuple(in_shardings),
            params["out_shardings"],
            tuple(in_layouts),
            tuple(out_layouts),
            (False,) * num_consts + tuple(params["donated_invars"]),
            *(params[name] for name in self.param_names[6:]),
        )

    def lower(self, jaxpr: Any, resolved: tuple[Any, ...]) -> Any:
        """What ``jaxpr`` is lowered to; jax remembers it for as long as the jaxpr lives."""
        return self._lower(
            jaxpr,
            *resolved,
            lowering_platforms=None,
            lowering_parameters=self._lowering_parameters(),
            pgle_profiler=None,
        )


@functools.cache
def execution() -> _Execution:
    """How jax executes a jit's program."""
    return _Execution()


def coordination_client() -> Any:
    """The client of the service by which processes find each other; None where there is none."""
    return _symbol("distributed:global_state").client


class JitCall(NamedTuple):
    """A jit that was traced for a call."""

    fun: Callable[..., Any]
    # The name of the function and the place of its definition.
    place: str
    # jax's options of the jit, the same object for the same jit.
    jit: Any
    jaxpr: Any
    avals: tuple[Any, ...]
    arg_names: tuple[str, ...]
    tree: Any
    # Static arguments by name or position.
    static: dict[str, Any]
    settings: dict[str, Any]
    context: Any


_TRACE = "pjit:_trace_for_jit"
_TRACE_PARAMETERS = "fun ji ctx_mesh dbg avals args kwargs"


class _JitTracing:
    """How jax traces a jit for a call that it has not traced."""

    def __init__(self) -> None:
        self.function = _function(_TRACE, _TRACE_PARAMETERS)
        self.stock = _sites.copy_function(self.function)
        self._is_top_level = _is_top_level()
        self._current = _function("source_info_util:current", "")
        self._user_frames = _function("source_info_util:user_frames", "traceback")
        self._trace_context = _symbol("config:trace_context")

    def is_top_level(self) -> bool:
        """Whether no trace is under way."""
        return bool(self._is_top_level())

    def call_of(self, traced: Any, fun: Any, jit: Any, args: Any, kwargs: Any) -> JitCall:
        """What was traced for what."""
        names = list(getattr(jit.fun_signature, "parameters", ()))
        name_of = lambda i: names[i] if i < len(names) else f"argument {i}"
        static = {name_of(i): args[i] for i in jit.static_argnums if i < len(args)}
        static |= {name: kwargs[name] for name in jit.static_argnames if name in kwargs}
        return JitCall(
            fun,
            jit.fun_sourceinfo or "<unknown>",
            jit,
            traced.params["jaxpr"],
            traced.in_avals,
            traced.arg_names,
            traced.in_tree,
            static,
            jax.config.values,
            self._trace_context(),
        )

    def line(self, traceback: Any) -> str | None:
        """The innermost line of the user's code in a traceback."""
        frame = next(iter(self._user_frames(traceback)), None) if traceback else None
        return frame and f"{frame.file_name}:{frame.start_line} ({frame.function_name})"

    def call_site(self) -> str:
        """The line of the user's code that is running."""
        return self.line(self._current().traceback) or "<unknown>"


@functools.cache
def jit_tracing() -> _JitTracing:
    """How jax traces a jit."""
    return _JitTracing()


def call_site() -> str:
    """The line of the user's code that is running."""
    return jit_tracing().call_site()


def user_line(traceback: Any) -> str | None:
    """The innermost line of the user's code in a traceback."""
    return jit_tracing().line(traceback)


def function_place(fun: Callable[..., Any]) -> str:
    """The name of a function and the place of its definition, as jits have it."""
    return private().fun_sourceinfo(fun) or "<unknown>"


def _exchange_code(function: Any, hook: Callable[..., Any]) -> None:
    """Makes a function call ``hook`` with what its parameters are, in their order."""
    function.__code__ = _sites.trampoline(function.__code__, hook)


def intercept_jits(
    trace: Callable[..., Any],
    execute: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    lowered: Callable[[Any], Any],
) -> None:
    """From now on jits call ``trace(fun, options, mesh, debug_info, avals, args, kwargs)`` where
    they have to be traced, ``execute(args, params)`` where they have no executable, and lower
    ``lowered(jaxpr)``."""
    jax_ = execution()
    stock = jax_.stock_lowering
    _exchange_code(jax_.lowering, lambda args, jaxpr, *rest: stock(args, lowered(jaxpr), *rest))
    names = execution().param_names
    _exchange_code(jit_tracing().function, trace)
    _exchange_code(
        execution().function,
        lambda args, *params: execute(args, dict(zip(names, params, strict=True))),
    )


def leave_jits() -> None:
    """Lets jits be as they were."""
    for of in (jit_tracing(), execution()):
        of.function.__code__ = of.stock.__code__
    execution().lowering.__code__ = execution().stock_lowering.__code__


def lower_of(jitted: Any) -> Callable[..., Any]:
    """The method ``lower`` of a jit, without a reference to it: it needs no more than this."""
    this = types.SimpleNamespace(_fun=jitted._fun, _jit_info=jitted._jit_info)
    return functools.partial(type(jitted).lower, this)


def _miss_template(fun: Any, jit_info: Any) -> Any:
    def template(*args: Any, **kwargs: Any) -> Any:
        hook: Any = "jaxide: the hook goes here"
        return hook(fun, jit_info, args, kwargs)

    return template


def catch_misses(
    jitted: Any, hook: Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
) -> Any:
    """Has ``jitted`` call ``hook(stock, options, args, kwargs)`` where it finds no executable.

    Returns its options, which tell it from other jits. Tracebacks keep the code of their frames, so
    the code may not refer to the jit: the hook has to be the same one for all.
    """
    functions = [f for f in gc.get_referents(jitted) if isinstance(f, types.FunctionType)]
    misses = [f for f in map(inspect.unwrap, functions) if f.__name__ == "cache_miss"]
    if len(misses) != 1 or misses[0].__code__.co_freevars != ("fun", "jit_info"):
        raise Mismatch("jax.jit does not handle what it has not compiled as it did")
    [miss] = misses
    miss.__code__ = _miss_code(miss.__code__, hook)
    return jitted._jit_info


@functools.cache
def _miss_code(stock: types.CodeType, hook: Callable[..., Any]) -> types.CodeType:
    module = vars(_module("jax._src.pjit"))

    def caught(fun: Any, jit_info: Any, args: Any, kwargs: Any) -> Any:
        cells = types.CellType(fun), types.CellType(jit_info)
        miss = types.FunctionType(stock, module, stock.co_name, None, cells)
        return hook(miss, jit_info, args, kwargs)

    code = _miss_template(None, None).__code__
    return code.replace(
        co_consts=tuple(caught if value == _HOOK else value for value in code.co_consts),
        co_filename=stock.co_filename,
        co_firstlineno=stock.co_firstlineno,
        co_name=stock.co_name,
        co_qualname=stock.co_qualname,
    )
