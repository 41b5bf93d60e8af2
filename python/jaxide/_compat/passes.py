"""What passes over programs ask of jax: primitives, values, rules."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import jax
import numpy as np

from jaxide._compat.symbols import (
    Mismatch,
    checked_function,
    jax_module,
    known_symbols,
    symbol,
)

# Modules all of whose primitives are known by their names.
_MODULES = (
    "lax.lax",
    "lax.slicing",
    "lax.ann",
    "lax.convolution",
    "lax.fft",
    "lax.linalg",
    "lax.other",
    "lax.parallel",
    "lax.special",
    "lax.windowed_reductions",
    "lax.control_flow.conditionals",
    "lax.control_flow.loops",
    "lax.control_flow.solves",
)
# Others that are.
_PRIMITIVES = (
    "pjit:jit_p",
    "pjit:sharding_constraint_p",
    "ad_checkpoint:remat_p",
    "ad_checkpoint:name_p",
    "core:closed_call_p",
    "custom_derivatives:custom_jvp_call_p",
    "custom_derivatives:custom_vjp_call_p",
    "prng:random_bits_p",
    "prng:random_fold_in_p",
    "prng:random_seed_p",
    "prng:random_split_p",
    "prng:random_unwrap_p",
    "prng:random_wrap_p",
    "prng:threefry2x32_p",
    "shard_map:shard_map_p",
)


@functools.cache
def known_primitives() -> dict[str, Any]:
    """jax's own primitives that passes know by their names."""
    primitive = symbol("core:Primitive")
    found = [*known_symbols(_PRIMITIVES).values()]
    for module in _MODULES:
        try:
            found += vars(jax_module(f"jax._src.{module}")).values()
        except Mismatch:
            continue
    return {value.name: value for value in found if isinstance(value, primitive)}


@functools.cache
def multiplication() -> tuple[Any, dict[str, Any]]:
    """The primitive that multiplies, and its params."""
    with symbol("core:eval_context")():
        (eqn,) = jax.make_jaxpr(jax.lax.mul)(1.0, 1.0).eqns
    return eqn.primitive, eqn.params


def evaluate_equation(
    primitive: Any, params: dict[str, Any], context: Any, operands: tuple[Any, ...]
) -> Any:
    """What an equation of a single result computes, outside any trace."""
    with symbol("core:eval_context")(), context.manager:
        return primitive.bind(*operands, **params)


def new_literal(value: np.ndarray, aval: Any) -> Any:
    """A literal of a type."""
    return symbol("core:Literal")(typed_array(value, aval), aval)


def new_array(value: Any) -> Any:
    """An array of jax's with a value and its type."""
    with symbol("core:eval_context")():
        return jax.device_put(value)


def typed_array(value: np.ndarray, aval: Any) -> Any:
    """An array of numpy's that has a type of jax's."""
    class_ = symbol("literals:TypedNdArray")
    # Before jax 0.10 it has only whether the type is weak.
    return class_(value, aval if "_aval" in vars(class_) else aval.weak_type)


@functools.cache
def takes_live_inputs() -> bool:
    """Whether rules for dead code are told which operands live, and return an equation in which
    nothing is dead as it is (jax 0.12 on)."""
    rule = checked_function(
        "pjit:dce_jaxpr_pjit_rule", "used_outputs eqn", "used_outputs live_ins eqn"
    )
    return "live_ins" in inspect.signature(rule).parameters


def trim(used: list[bool], eqn: Any) -> tuple[list[bool], Any]:
    """jax's rule for dead code in an equation: which operands are used, and the new equation."""
    rule = symbol("interpreters.partial_eval:dce_rules")[eqn.primitive]
    if takes_live_inputs():
        trimmed: tuple[list[bool], Any] = rule(used, [True] * len(eqn.invars), eqn)
    else:
        trimmed = rule(used, eqn)
    return trimmed


def is_plain_jit(params: dict[str, Any]) -> bool:
    """Whether a jit donates, places and compiles nothing in a way of its own."""
    unspecified = symbol("sharding_impls:UNSPECIFIED")
    return (
        not any(params["donated_invars"])
        and all(s is unspecified for s in (*params["in_shardings"], *params["out_shardings"]))
        and all(layout is None for layout in (*params["in_layouts"], *params["out_layouts"]))
        and not params["compiler_options_kvs"]
        and params["ctx_mesh"].empty
        and not params["keep_unused"]
    )
