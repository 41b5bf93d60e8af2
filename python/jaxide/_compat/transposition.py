"""The steps of jax's backward pass, for the core's loop over equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxide._compat.symbols import checked_function, jax_module, optional_symbol, symbol


def transposition() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """One step of jax's ``backward_pass3``, and its loop's context.

    The step transposes an equation as jax does, and returns what its rule does: from jax 0.12 on,
    what it logs. The context runs a loop with the name stack that jax gives it.
    """
    ad = jax_module("jax._src.interpreters.ad")
    transform_name_stack = checked_function("source_info_util:transform_name_stack", "name")
    name_stack_context = checked_function("interpreters.ad:_name_stack_ctx", "src_info")
    safe_zip = symbol("util:safe_zip")
    rule_of = checked_function("interpreters.ad:get_primitive_transpose", "p")

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
            for x, ct in safe_zip(operands, out):
                if isinstance(x, ad.GradAccum):
                    x.accum(ct)
        return None

    def loop(transform_stack: bool, body: Callable[[], Any]) -> Any:
        if not transform_stack:
            return body()
        with transform_name_stack("transpose"):
            return body()

    return step, loop


def log_merging() -> Callable[[Any, Any, Any], Any] | None:
    """How what the rule of an equation logs joins what others have logged; None where rules log
    nothing (before jax 0.12)."""
    merge = optional_symbol("interpreters.ad:_merge_rule_logs")
    if merge is None:
        return None
    name_stack_context = checked_function("interpreters.ad:_name_stack_ctx", "src_info")

    def merged(eqn: Any, logs: Any, logged: Any) -> Any:
        with eqn.ctx.manager, name_stack_context(eqn.source_info):
            return merge(logs, logged, eqn.primitive)

    return merged


def ref_transposition() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """As ``transposition``, for equations that make Refs or read their last values.

    The first function makes what cotangents of such an equation's result are added to: None for
    what they are added to otherwise, ``NotImplemented`` where jax has no rule.
    """
    ad = jax_module("jax._src.interpreters.ad")
    freeze, empty = symbol("core:freeze_p"), symbol("core:empty_ref_p")
    accumulating = symbol("core:accum_grad_in_ref_p")
    allocating = (symbol("core:ref_p"), empty)
    name_stack_context = checked_function("interpreters.ad:_name_stack_ctx", "src_info")
    new = checked_function("interpreters.ad:RefAccum", "aval ref")

    def accumulator(primitive: Any, aval: Any) -> Any:
        if primitive is freeze:
            return None
        if primitive is accumulating:
            return new(aval.to_ct_aval())
        if primitive in allocating:
            return new(aval.inner_aval.to_ct_aval())
        return NotImplemented

    def step(eqn: Any, result: Any, operand: Any) -> None:
        with eqn.ctx.manager, name_stack_context(eqn.source_info):
            cotangent = result.freeze()
            if eqn.primitive is not empty and isinstance(operand, ad.GradAccum):
                operand.accum(cotangent)

    return accumulator, step


def evaluation_step() -> Callable[[Any, Any], Any]:
    """What ``backward_pass3`` does with an equation that is not linear."""
    name_stack_context = checked_function("interpreters.ad:_name_stack_ctx", "src_info")
    foreach = symbol("util:foreach")

    def step(eqn: Any, operands: Any) -> Any:
        params = eqn.primitive.get_bind_params(eqn.params)
        with eqn.ctx.manager, name_stack_context(eqn.source_info):
            answer = eqn.primitive.bind(*operands, **params)
        results: list[Any] = []
        answer = answer if eqn.primitive.multiple_results else [answer]
        foreach(lambda _, result: results.append(result), eqn.outvars, answer)
        return results

    return step
