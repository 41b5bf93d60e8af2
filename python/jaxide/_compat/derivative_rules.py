"""Functions that equations with derivative rules have among their params: which they are."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

from jaxide._compat import capabilities
from jaxide._compat.jaxprs import closed_jaxpr_type
from jaxide._compat.symbols import optional_symbol, symbol
from jaxide._compat.tracing import type_of_jits
from jaxide._native.derivative_rules import Private, Rules

# Functions within functions of jax that equations with derivative rules have among their params:
# what they are called in words, where they are, and their closure in each version.
_RULE_FUNCTIONS = (
    (
        "rule",
        "interpreters.partial_eval:DynamicJaxprTrace.process_custom_jvp_call",
        "in_avals in_tangent_avals jvp self",
    ),
    (
        # From jax 0.12 on: of what is left of a call after partial evaluation.
        "rule of the unknown",
        "interpreters.partial_eval:JaxprTrace.process_custom_jvp_call",
        "in_avals in_tangent_avals jvp",
    ),
    ("lifted rule", "custom_derivatives:lift_jvp", "jvp_jaxpr_fun num_consts"),
    ("pruned rule", "custom_derivatives:_custom_jvp_call_dce", "eqn jvp_jaxpr_fun used_outs"),
    (
        "forward",
        "interpreters.partial_eval:DynamicJaxprTrace.process_custom_vjp_call",
        "fwd in_avals self",
    ),
    (
        "trees",
        "interpreters.partial_eval:DynamicJaxprTrace.process_custom_vjp_call",
        "num_consts out_trees",
    ),
    (
        "forward of the unknown",
        "interpreters.partial_eval:JaxprTrace.process_custom_vjp_call",
        "fwd in_avals",
    ),
    (
        "batched dimensions",
        "interpreters.batching:BatchTrace.process_custom_vjp_call",
        "in_dims out_dims2 out_trees",
    ),
    (
        "batched backward",
        "interpreters.batching:batch_custom_vjp_bwd",
        "axis_data bwd in_dims out_dim_dests tag",
    ),
    (
        # From jax 0.12 on.
        "batched backward that sums",
        "interpreters.batching:batch_custom_vjp_bwd",
        "axis_data bwd in_dims name num_res out_dim_dests tag",
    ),
    (
        "number of residuals",
        "interpreters.batching:BatchTrace.process_custom_vjp_call",
        "out_trees",
    ),
    ("lifted forward", "custom_derivatives:lift_fwd", "fwd_jaxpr_thunk num_consts"),
    (
        "pruned forward",
        "custom_derivatives:_custom_vjp_call_dce",
        "fwd_jaxpr_thunk out_trees used_outs",
    ),
    (
        "pruned backward",
        "custom_derivatives:_custom_vjp_call_dce",
        "bwd call_jaxpr out_trees symbolic_zeros used_outs | bwd call_jaxpr out_trees used_outs",
    ),
)


def rule_functions() -> Iterator[tuple[str, types.CodeType, dict[str, Any]]]:
    """Functions within functions of jax that equations have among their params: what each is
    called in words, its code, and the variables of its module."""
    wrap, names = symbol("linear_util:wrap_init"), symbol("linear_util:DebugInfo")
    transformed = symbol("linear_util:transformation_with_aux2")
    _, stored = transformed(lambda f, store: None)(wrap(len, debug_info=names("", "", (), ())))
    yield "stored", stored.__code__, stored.__globals__
    for kind, path, closure in _RULE_FUNCTIONS:
        function = inspect.unwrap(optional_symbol(path))
        if function is not None:
            codes = [c for c in function.__code__.co_consts if isinstance(c, types.CodeType)]
            closures = [tuple(names.split()) for names in closure.split("|")]
            for code in codes:
                if code.co_freevars in closures:
                    yield kind, code, function.__globals__


@functools.cache
def rule_reader() -> Rules | None:
    """Reads functions among the params of equations with derivative rules."""
    wrap, names = symbol("linear_util:wrap_init"), symbol("linear_util:DebugInfo")
    memoize = optional_symbol("interpreters.partial_eval:_memoize")
    if memoize is None or not capabilities.has("derivative rules"):
        return None
    return Rules(
        Private(
            known_codes={code: kind for kind, code, _ in rule_functions()},
            memoize=memoize,
            wrap=wrap,
            wrapped_type=symbol("linear_util:WrappedFun"),
            store_type=symbol("linear_util:Store"),
            store_error=symbol("linear_util:StoreException"),
            debug_info_type=names,
            tag_type=symbol("core:TraceTag"),
            aval_type=symbol("core:ShapedArray"),
            eqn_type=symbol("core:JaxprEqn"),
            jaxpr_types=(closed_jaxpr_type(), symbol("core:Jaxpr")),
            unhashable_type=symbol("util:Unhashable"),
            no_axis_name=symbol("core:no_axis_name"),
            axis_type=symbol("interpreters.batching:AxisData"),
            # What is applied is the function, by a `partial`.
            batched_rule=symbol("interpreters.batching:batch_custom_jvp_subtrace").args[0],
            jit_type=type_of_jits(),
            custom_rule_types=(
                symbol("custom_derivatives:custom_jvp"),
                symbol("custom_derivatives:custom_vjp"),
            ),
            trace_type=symbol("core:Trace"),
            tracer_type=symbol("core:Tracer"),
            never_followed=(type(symbol("tree_util:default_registry")),),
        )
    )
