"""What jaxide can do with the installed jax, and the functions and classes of jax on which each
capability rests.

A capability does work of jax's natively, or stands in for it. So it rests on what jax's own source
says. Where that is not known (``sources.py``), the capability is off, with those that need it: jax
does the work. Nothing else changes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from jaxide import _settings
from jaxide._compat import sources
from jaxide._compat.pointwise import BINARY, LAX, NUMPY, SPECIAL


class Capability(NamedTuple):
    """Something that jaxide does in place of jax."""

    name: str
    means: str
    """What a user has of it."""
    needs: tuple[str, ...]
    """The capabilities without which there is not this one."""
    rests_on: tuple[str, ...]
    """Functions and classes of jax, as paths below ``jax._src``."""


def _paths(module: str, names: str) -> tuple[str, ...]:
    return tuple(f"{module}:{name}" for name in names.split())


_CORE, _PARTIAL_EVAL, _AD = "core", "interpreters.partial_eval", "interpreters.ad"
_BATCHING, _SOURCES, _API = "interpreters.batching", "source_info_util", "api"

CAPABILITIES = (
    Capability(
        "programs",
        "jaxprs are read: hash, equality, cost, liveness, diff, passes, files, exports",
        (),
        (),
    ),
    Capability(
        "printing",
        "programs are printed by Rust",
        ("programs",),
        (
            *_paths(
                _CORE,
                "pp_toplevel_jaxpr pp_jaxpr pp_jaxprs pp_shared_jaxpr pp_jaxpr_skeleton pp_eqns "
                "pp_eqn _pp_eqn pp_kv_pairs pp_kv_pair pp_vars pp_var pp_aval pp_effect "
                "JaxprPpContext _encode_digits_alphabetic Jaxpr.pretty_print Var.pretty_print "
                "DropVar.pretty_print Literal.pretty_print Jaxpr.__str__ Jaxpr.__repr__ "
                "ClosedJaxpr _dropvars",
            ),
            "pjit:_pjit_pp_rule",
            *_paths(
                "pretty_printer",
                "Doc Doc.format join text brk nest group concat source_map keyword type_annotation "
                "color nil",
            ),
        ),
    ),
    Capability(
        "traces",
        "traces are recorded by Rust",
        ("programs",),
        (
            *_paths(
                _CORE,
                "Tracer Trace Literal Var DropVar JaxprEqn JaxprEqnContext AbstractValue "
                "ShapedArray AvalQDD MutableQuasiDynamicData Primitive TracingContext "
                "take_current_trace set_current_trace is_literalable typeof "
                "full_lower get_referent resolve_input_effects cur_qdd new_jaxpr_eqn",
            ),
            *_paths(
                _PARTIAL_EVAL,
                "DynamicJaxprTracer DynamicJaxprTrace JaxprStackFrame TracingEqn "
                "make_jaxpr_effects _cached_abstract_eval _verify_params_are_hashable "
                "try_constant_folding",
            ),
            *_paths(_SOURCES, "SourceInfo current NameStack"),
            *_paths("literals", "TypedNdArray TypedFloat"),
            "dtypes:canonicalize_value",
        ),
    ),
    Capability(
        "staging rules",
        "rules that only order params, or forward an operand, are not called",
        ("traces",),
        (
            *_paths(
                "lax.lax",
                "_reshape_staging_rule _broadcast_in_dim_staging_rule _iota_staging_rule "
                "_convert_elt_type_fwd_rule _broadcast_in_dim_fwd_rule "
                "_convert_element_type_bind_with_trace",
            ),
            "pjit:pjit_forwarding_rule",
        ),
    ),
    Capability(
        "names",
        "names of arguments and results are made once, or when they are read",
        ("traces",),
        (
            *_paths(
                "api_util",
                "debug_info fun_signature fun_sourceinfo _non_static_arg_names resolve_kwargs",
            ),
            *_paths("linear_util", "DebugInfo _clean_keystr_arg_names"),
            "util:fun_name",
        ),
    ),
    Capability(
        "flags",
        "operations on flags that jax executes while it traces are not compiled",
        ("traces",),
        (
            *_paths("dispatch", "apply_primitive xla_primitive_callable"),
            *_paths("pjit", "_pjit_call_impl"),
            f"{_CORE}:EvalTrace",
        ),
    ),
    Capability(
        "frames",
        "whether a file is jax's is asked of the file system once",
        ("traces",),
        (*_paths("traceback_util", "include_filename _path_starts_with register_exclusion"),),
    ),
    Capability(
        "direct traces",
        "make_jaxpr and eval_shape trace without a jit",
        ("traces", "names"),
        (
            *_paths(
                "pjit",
                "_infer_params _infer_params_cached _infer_input_type _trace_for_jit jit_trace "
                "make_jit _parse_jit_arguments _split_layout_and_sharding "
                "_process_in_axis_resources _check_and_canonicalize_out_shardings "
                "_qdd_cache_index _qdd_cache_update",
            ),
            *_paths(_API, "jit make_jaxpr eval_shape"),
            *_paths(
                "api_util",
                "check_callable _check_no_aliased_closed_over_refs infer_argnums_and_argnames "
                "resolve_argnums",
            ),
            *_paths(
                _PARTIAL_EVAL,
                "trace_to_jaxpr separate_consts convert_invars_to_constvars",
            ),
            *_paths("stages", "_traced_out_info Traced"),
            "core:shaped_abstractify",
            *_paths(
                "flattree", "flatten_static_argnums_argnames_and_return_various_trees FlatTree"
            ),
        ),
    ),
    Capability(
        "shapes",
        "ShapeDtypeStructs are compared by Rust",
        ("traces",),
        _paths("core", "ShapeDtypeStruct"),
    ),
    Capability(
        "leaves",
        "what jax does with each argument and result is done with all at once",
        ("traces",),
        (
            *_paths("tree_util", "FlatTree"),
            *_paths("flattree", "FlatTree FTPyTree"),
            *_paths(_API, "vjp _check_input_dtype_revderiv"),
            *_paths(_AD, "linearize LinearizeTracer"),
            "ad_util:p2tz",
            *_paths(_PARTIAL_EVAL, "_check_returned_jaxtypes _check_no_returned_refs"),
            "dispatch:check_arg",
        ),
    ),
    Capability(
        "inlining",
        "programs of jits are inlined by Rust",
        ("traces",),
        _paths(_PARTIAL_EVAL, "inline_jaxpr_into_trace"),
    ),
    Capability(
        "replays",
        "calls of jax's functions are recorded once and replayed",
        ("traces",),
        (
            *_paths("pjit", "jit_evict_fn _infer_params_cached"),
            *_paths("config", "Config State"),
            *_paths("numpy.array_methods", "_IndexUpdateRef _IndexUpdateHelper"),
            "array:ArrayImpl._value",
        ),
    ),
    Capability(
        "replays of other sizes",
        "what was recorded of a function that computes element by element holds for other sizes",
        ("replays",),
        (
            *_paths(
                "numpy.ufuncs",
                f"{' '.join(name for name in NUMPY.split() if name != 'trunc')} add subtract "
                "multiply true_divide floor_divide remainder power maximum minimum bitwise_and "
                "bitwise_or bitwise_xor left_shift right_shift equal not_equal less less_equal "
                "greater greater_equal logical_and logical_or logical_not logaddexp arctan2 hypot "
                "_power _pow_int_int _constant_like unary_ufunc binary_ufunc",
            ),
            *_paths(
                "numpy.util",
                "promote_args promote_args_inexact promote_args_numeric promote_shapes "
                "promote_dtypes promote_dtypes_inexact promote_dtypes_numeric check_arraylike "
                "ensure_arraylike _rank_promotion_warning_or_error",
            ),
            *_paths(
                "numpy.array_methods", " ".join(f"_operator_{name}" for name in BINARY.split())
            ),
            *_paths("numpy.array_methods", "_astype _forward_operator_to_aval"),
            *_paths("numpy.ufunc_api", "ufunc"),
            "numpy.lax_numpy:trunc",
            *_paths(
                "lax.lax",
                f"{' '.join(name for name in LAX.split() if name not in SPECIAL.split())} naryop "
                "naryop_dtype_rule broadcasting_shape_rule asarray _convert_element_type "
                "_unbroadcast _add_transpose _sub_transpose _div_transpose_rule "
                "_select_transpose_rule _convert_element_type_transpose_rule",
            ),
            *_paths("lax.special", SPECIAL),
            *_paths(_BATCHING, "broadcast_batcher _handle_scalar_broadcasting"),
            *_paths(_AD, "add_jaxvals instantiate_zeros"),
        ),
    ),
    Capability(
        "replays under grad",
        "calls under reverse-mode differentiation are replayed",
        ("replays",),
        (*_paths(_AD, "LinearizeTrace LinearizeTracer"), "ad_util:Zero"),
    ),
    Capability(
        "replays under jvp",
        "calls under forward-mode differentiation are replayed",
        ("replays",),
        _paths(_AD, "JVPTrace JVPTracer"),
    ),
    Capability(
        "replays under vmap",
        "calls under vmap are replayed",
        ("replays",),
        _paths(_BATCHING, "BatchTrace BatchTracer AxisData"),
    ),
    Capability(
        "evaluation",
        "what evaluates programs replays their equations",
        ("replays",),
        _paths(_CORE, "eval_jaxpr"),
    ),
    Capability(
        "derived programs",
        "what jax derives of a jit's program is made once for all equal programs",
        ("replays",),
        (
            *_paths(_AD, "_linearize_jaxpr _jvp_jaxpr"),
            *_paths(_BATCHING, "_batch_jaxpr2 _batch_jaxpr_axes"),
            "pjit:_transpose_jaxpr_fancy",
        ),
    ),
    Capability(
        "derivative rules",
        "calls of custom_jvp and custom_vjp functions are replayed in all programs",
        ("replays",),
        (
            *_paths(
                _PARTIAL_EVAL,
                "DynamicJaxprTrace.process_custom_jvp_call "
                "DynamicJaxprTrace.process_custom_vjp_call "
                "JaxprTrace.process_custom_jvp_call JaxprTrace.process_custom_vjp_call _memoize",
            ),
            *_paths(_BATCHING, "BatchTrace.process_custom_vjp_call batch_custom_vjp_bwd"),
            *_paths(
                "custom_derivatives",
                "lift_jvp lift_fwd _custom_jvp_call_dce _custom_vjp_call_dce custom_jvp custom_vjp",
            ),
            *_paths("linear_util", "WrappedFun Store EqualStore transformation_with_aux2"),
        ),
    ),
    Capability(
        "dead code",
        "removal of dead code is replayed",
        ("replays",),
        (
            *_paths(
                _PARTIAL_EVAL,
                "dce_jaxpr dce_jaxpr_consts _dce_jaxpr _default_dce_rule has_effects close_jaxpr",
            ),
            *_paths(_AD, "_dce_consts"),
            "pjit:dce_jaxpr_pjit_rule",
            "ad_checkpoint:remat_dce",
        ),
    ),
    Capability(
        "backward pass",
        "transposed equations of backward passes are replayed",
        ("replays",),
        (
            *_paths(
                _AD,
                "backward_pass3 GradAccum ValAccum RefAccum NullAccum UndefinedPrimal "
                "get_primitive_transpose _name_stack_ctx _merge_rule_logs VJPNode vjp_node",
            ),
            *_paths(_API, "_vjp3_callable _vjp3_bwd _vjp_accum _is_ref _is_ref_aval"),
            *_paths(_SOURCES, "transform_name_stack"),
        ),
    ),
    Capability(
        "executables",
        "functions with equal programs share executables; retraces are logged",
        ("replays",),
        (
            *_paths(
                "pjit",
                "_pjit_call_impl_python _resolve_and_lower _resolve_in_shardings "
                "_resolve_in_layouts _resolve_out_layouts _pjit_lower _trace_for_jit "
                "convert_to_metaty _cpp_pjit",
            ),
            *_paths("interpreters.mlir", "LoweringParameters"),
            *_paths(_SOURCES, "user_frames current"),
            "util:test_event",
        ),
    ),
    Capability(
        "stored executables",
        "the store says to what programs were compiled, and they are not lowered again",
        ("executables",),
        (
            *_paths(
                "interpreters.pxla",
                "lower_sharding_computation _dce_jaxpr _cached_lowering_to_hlo MeshComputation "
                "UnloadedMeshExecutable _cached_compilation create_compile_options",
            ),
            *_paths(
                "compiler",
                "compile_or_get_cached _resolve_compilation_strategy _get_cache_key _cache_read "
                "use_detailed_logging",
            ),
            *_paths(
                "compilation_cache",
                "get_cache_key is_cache_used is_executable_in_cache get_executable_and_time "
                "_initialize_cache",
            ),
            *_paths("cache_key", "get _hash_computation _canonicalize_ir _serialize_ir"),
        ),
    ),
)
BY_NAME = {capability.name: capability for capability in CAPABILITIES}

# Why capabilities are off that were found to be while jaxide was set up.
_lost: dict[str, str] = {}


@functools.cache
def changed(name: str) -> tuple[str, ...]:
    """What a capability rests on of which the installed jax has another source than is known."""
    assumed = _settings.value("assume_known")
    if name in assumed or "all" in assumed:
        return ()
    return tuple(path for path in BY_NAME[name].rests_on if not sources.is_known(path))


@functools.cache
def has(name: str) -> bool:
    """Whether jaxide does natively what a capability says."""
    return next(reasons(name), None) is None


def reasons(name: str) -> Iterator[str]:
    """Why a capability is off: nothing, where it is on."""
    if name in _lost:
        yield _lost[name]
    paths = changed(name)
    if paths and not any(map(sources.is_there, paths)):
        yield "jax is installed without its sources"
    elif paths:
        count = len(paths)
        what = "function or class" if count == 1 else "functions or classes"
        yield f"{count} {what} of jax that it stands in for changed"
    for needed in BY_NAME[name].needs:
        if not has(needed):
            yield f"it needs {needed}"


def lose(name: str, why: str) -> None:
    """Switches a capability off: what it needs was found to be missing."""
    _lost.setdefault(name, why)
    has.cache_clear()


def off() -> list[str]:
    """The capabilities that are off, without those that only need others."""
    return [
        capability.name
        for capability in CAPABILITIES
        if not has(capability.name) and all(map(has, capability.needs))
    ]
