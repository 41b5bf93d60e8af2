"""Functions that equations with derivative rules have among their params: which they are."""

from __future__ import annotations

import functools
import inspect
import types

from jaxide._compat.jaxprs import closed_jaxpr_type
from jaxide._compat.sources import has_text
from jaxide._compat.symbols import optional_symbol, symbol
from jaxide._compat.tracing import type_of_jits
from jaxide._native.derivative_rules import Private, Rules

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
        # From jax 0.11 on: of what is left of a call after partial evaluation.
        "rule of the unknown",
        "interpreters.partial_eval:JaxprTrace.process_custom_jvp_call",
        "in_avals in_tangent_avals jvp",
        """
        @partial(lu.wrap_init, debug_info=jvp.debug_info)
        @_memoize
        def jvp_jaxpr_thunk(*in_zeros):
          for store in jvp.stores: store and store.reset()
          nz_tangent_avals, zero_avals = partition_list(in_zeros, in_tangent_avals)
          jvp_, out_zeros = _jvp_jaxpr_zeros(jvp, in_zeros, tuple(zero_avals))
          jvp_jaxpr, _, consts = trace_to_jaxpr_dynamic(
              jvp_.with_unknown_names(), (*in_avals, *nz_tangent_avals))
          return jvp_jaxpr, consts, out_zeros()
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
        # From jax 0.12 on.
        "batched backward that sums",
        "interpreters.batching:batch_custom_vjp_bwd",
        "axis_data bwd in_dims name num_res out_dim_dests tag",
        """
        in_dims_ = in_dims() if callable(in_dims) else in_dims
        shared = any(d is None and type(x) is not SymbolicZero
                     for x, d in list(zip(args, in_dims_))[num_res():])
        args = [SymbolicZero(core.mapped_aval(axis_data.size, dim, x.aval))
                if type(x) is SymbolicZero else x
                for x, dim in zip(args, in_dims_)]
        """,
    ),
    (
        "number of residuals",
        "interpreters.batching:BatchTrace.process_custom_vjp_call",
        "out_trees",
        "lambda: len(out_trees()[2])",
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
def rule_reader() -> Rules | None:
    """Reads functions among the params of equations with derivative rules."""
    wrap, names = symbol("linear_util:wrap_init"), symbol("linear_util:DebugInfo")
    transformed = symbol("linear_util:transformation_with_aux2")
    memoize = optional_symbol("interpreters.partial_eval:_memoize")
    if memoize is None:
        return None
    _, stored = transformed(lambda f, store: None)(wrap(len, debug_info=names("", "", (), ())))
    known = {stored.__code__: "stored"}
    for kind, path, closure, text in _RULE_FUNCTIONS:
        function = inspect.unwrap(symbol(path))
        if has_text(function, text):
            codes = [c for c in function.__code__.co_consts if isinstance(c, types.CodeType)]
            closures = [tuple(names.split()) for names in closure.split("|")]
            known |= {c: kind for c in codes if c.co_freevars in closures}
    return Rules(
        Private(
            known_codes=known,
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
