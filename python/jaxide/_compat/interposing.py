"""Which functions of jax are interposed."""

from __future__ import annotations

import functools
import types

import jax

from jaxide import _core
from jaxide._compat import capabilities
from jaxide._compat.stand_ins import eval_shape_stand_in
from jaxide._compat.symbols import LOOKED_UP, checked_function, known_symbols, symbol
from jaxide._compat.tracing import api_boundary, type_of_jits
from jaxide._native import interposed, pure_functions, trust
from jaxide._native.classes import tell_classes
from jaxide._native.world import World, survey

# What says how jax differs from what it was.
_worlds: list[World] = []


def world() -> World:
    """What says how jax differs from what it was."""
    return _worlds[-1]


def interpose_functions() -> None:
    """Interposes the functions of jax whose calls are remembered."""
    tell_classes()
    custom_rules = (
        symbol("custom_derivatives:custom_jvp"),
        symbol("custom_derivatives:custom_vjp"),
    )
    primitive_type = symbol("core:Primitive")
    of_jax = survey(primitive_type, custom_rules)
    world = World(of_jax, _core.is_noted_code, primitive_type, LOOKED_UP)
    _worlds.append(world)
    _core.set_world(of_jax, world)
    if not capabilities.has("replays"):
        return
    scalar = type(jax.numpy.float32)
    trusted = (symbol("custom_derivatives:custom_jvp"), jax.numpy.ufunc, scalar)
    interposed.interpose_loaded(type_of_jits(), trusted, api_boundary(lambda: None).__code__)
    pure_functions.trust_pure_functions(
        symbol("numpy.array_methods:_array_methods"), type_of_jits()
    )
    for policy in filter(trust.is_own_function, known_symbols(_POLICIES).values()):
        _core.trust_callable(policy)
    _core.interpose_instances("jax.numpy scalar type", scalar)
    checked_function("numpy.ufunc_api:ufunc.__call__", "self *args out where")
    _core.interpose_instances("ufunc", jax.numpy.ufunc)
    checked_function("custom_derivatives:custom_jvp.__call__", "self *args **kwargs")
    _core.interpose_instances("custom_jvp", symbol("custom_derivatives:custom_jvp"))
    checked_function("custom_derivatives:custom_vjp.__call__", "self *args **kwargs")
    _core.interpose_instances("custom_vjp", symbol("custom_derivatives:custom_vjp"))
    eval_shape = checked_function("api:eval_shape", "fun *args **kwargs")
    interposed.interpose(eval_shape, "jax.eval_shape", eval_shape_stand_in(), types_only=True)
    update_ref = symbol("numpy.array_methods:_IndexUpdateRef")
    for name, method in vars(update_ref).items():
        if trust.is_own_function(method) and not name.startswith("_"):
            interposed.interpose(method, f"Array.at[].{name}")
    # Those of the tracers of transformations; jaxide's own have slots for them.
    for name, member in vars(symbol("core:Tracer")).items():
        if name in _PROPERTIES and isinstance(member, property):
            member = member.fget
        if isinstance(member, types.FunctionType) and member.__code__ in _forwarding_codes():
            interposed.interpose(member, f"Array.{name}")


# Policies of checkpoints that jax has under their names; others are what they close over.
_POLICIES = tuple(
    f"ad_checkpoint:{which}_saveable"
    for which in ("everything", "nothing", "dots", "dots_with_no_batch_dims")
)

# The array properties whose value is traced.
_PROPERTIES = ("T", "mT", "real", "imag")


@functools.cache
def _forwarding_codes() -> set[types.CodeType]:
    """The codes of the operators, methods and properties of jax's tracers."""
    methods = "numpy.array_methods"
    return {
        symbol(f"{methods}:_forward_operator_to_aval")("add").__code__,
        symbol(f"{methods}:_forward_method_to_aval")("sum").__code__,
        symbol(f"{methods}:_forward_property_to_aval")("T").fget.__code__,
    }
