"""Jaxprs, open and closed, which from jax 0.11 on are one class."""

from __future__ import annotations

import functools
from typing import Any

from jaxide._compat.symbols import known_symbols, optional_symbol, symbol


@functools.cache
def _jaxpr_type() -> Any:
    return symbol("core:Jaxpr")


@functools.cache
def closed_jaxpr_type() -> Any:
    """``ClosedJaxpr``, which from jax 0.11 on is ``Jaxpr`` itself."""
    return optional_symbol("core:ClosedJaxpr") or _jaxpr_type()


def are_always_closed() -> bool:
    """Whether there are no other jaxprs."""
    return closed_jaxpr_type() is _jaxpr_type()


def closed_jaxpr(traced: Any) -> Any:
    """The closed jaxpr of ``jit(f).trace(...)``, captured tracers as constants again."""
    return with_constants(traced.jaxpr, getattr(traced, "_consts", ()))


def with_constants(jaxpr: Any, consts: Any) -> Any:
    """A jit's program whose leading arguments are captured values, as constants again."""
    if not consts:
        return jaxpr
    if not are_always_closed():
        return close(_with_constvars(jaxpr.jaxpr, len(consts)), consts)
    if "_num_consts" in _jaxpr_type().__slots__:  # jax 0.11.0
        jaxpr = _with_constvars(jaxpr, len(consts))
    return jaxpr.with_consts(consts)


def _with_constvars(jaxpr: Any, count: int) -> Any:
    """The open jaxpr whose first inputs are constvars. From jax 0.11.1 on they are just that."""
    return symbol("interpreters.partial_eval:convert_invars_to_constvars")(jaxpr, count)


def close(jaxpr: Any, consts: list[Any]) -> Any:
    """The closed jaxpr of an open one and the values of its constants."""
    if are_always_closed():
        return jaxpr.with_consts(consts)
    return closed_jaxpr_type()(jaxpr, consts)


def evaluate(jaxpr: Any, args: list[Any]) -> list[Any]:
    """Executes a closed jaxpr, equation by equation, or stages it where a trace is current."""
    results: list[Any] = symbol("core:jaxpr_as_fun")(jaxpr)(*args)
    return results


def open_jaxpr(jaxpr: Any) -> tuple[Any, list[Any]]:
    """The open jaxpr and the constants of any jaxpr."""
    if isinstance(jaxpr, _jaxpr_type()):  # from jax 0.11 on also a closed one
        return jaxpr, list(getattr(jaxpr, "consts", []))
    if isinstance(jaxpr, closed_jaxpr_type()):
        return jaxpr.jaxpr, list(jaxpr.consts)
    raise TypeError(f"expected a jaxpr, got {type(jaxpr).__module__}.{type(jaxpr).__qualname__}")


def open_part(jaxpr: Any) -> Any:
    """What has the equations of a jaxpr, open or closed: itself, where there is one class."""
    return jaxpr.jaxpr if type(jaxpr) is closed_jaxpr_type() is not _jaxpr_type() else jaxpr


def set_names(jaxpr: Any, debug_info: Any) -> None:
    """Gives a jaxpr, open or closed, other names."""
    open_part(jaxpr)._debug_info = debug_info


def closed_form(jaxpr: Any) -> Any:
    """A closed jaxpr: itself, or an open one with no constants."""
    is_closed = type(jaxpr) is closed_jaxpr_type() or are_always_closed()
    return jaxpr if is_closed else close(jaxpr, [])


def consts_as_invars(jaxpr: Any) -> Any:
    """The closed jaxpr whose constants are its first inputs."""
    convert = symbol("interpreters.partial_eval:convert_constvars_jaxpr")
    if are_always_closed():
        return convert(jaxpr)
    return close(convert(jaxpr.jaxpr), [])


def with_parts(jaxpr: Any, constvars: list[Any], consts: list[Any], eqns: list[Any] | None) -> Any:
    """The closed jaxpr with other constants, and other equations where they are given."""
    inner = open_part(jaxpr)
    changed = {"constvars": constvars, "eqns": inner.eqns if eqns is None else eqns}
    if inner is jaxpr:
        return jaxpr.replace(**changed, consts=consts)
    return close(inner.replace(**changed), consts)


def program(like: Any, inputs: list[Any], eqns: list[Any], outputs: list[Any]) -> Any:
    """A closed jaxpr without constants or effects, for execution only; otherwise like another."""
    inner = open_part(like)
    changed = {
        "constvars": [],
        "invars": inputs,
        "outvars": outputs,
        "eqns": eqns,
        "effects": frozenset(),
        "debug_info": inner.debug_info.with_unknown_names(),
    }
    if inner is like:
        return like.replace(**changed, consts=[])
    return close(inner.replace(**changed), [])


def with_values(jaxpr: Any, consts: list[Any]) -> Any:
    """The closed jaxpr with other values of its constants."""
    return with_parts(jaxpr, list(open_part(jaxpr).constvars), consts, None)


def with_names(jaxpr: Any, arg_names: Any, result_paths: Any) -> Any:
    """The closed jaxpr with other names of its arguments and results."""
    inner = open_part(jaxpr)
    info = inner.debug_info._replace(arg_names=arg_names, result_paths=result_paths)
    if inner is jaxpr:
        return jaxpr.replace(debug_info=info)
    return close(inner.replace(debug_info=info), jaxpr.consts)


def jaxprs_in(params: dict[str, Any]) -> list[Any]:
    """The open jaxprs among params."""
    found = symbol("core:jaxprs_in_params")(params)
    return [open_jaxpr(jaxpr)[0] for jaxpr in found]


@functools.cache
def literal_type() -> Any:
    """The class of literals."""
    return symbol("core:Literal")


@functools.cache
def var_type() -> Any:
    """The class of variables."""
    return symbol("core:Var")


def new_var(aval: Any) -> Any:
    """A variable of its own."""
    return var_type()(aval)


_HOISTING = {
    "pjit:jit_p": "jit",
    "ad_checkpoint:remat_p": "checkpoint",
    "lax.control_flow.loops:scan_p": "scan",
    "lax.control_flow.loops:while_p": "while",
    "lax.control_flow.conditionals:cond_p": "cond",
    "custom_derivatives:custom_jvp_call_p": "custom_jvp",
    "custom_derivatives:custom_vjp_call_p": "custom_vjp",
}


@functools.cache
def hoisting_primitives() -> dict[Any, str]:
    """Primitives with programs among their params that can be given more operands."""
    return {primitive: _HOISTING[path] for path, primitive in known_symbols(_HOISTING).items()}


def with_operands(kind: str, params: dict[str, Any], count: int) -> dict[str, Any]:
    """The params of an equation with so many more operands, which are the first, not counting those
    that only count them."""
    if kind == "jit":
        unspecified = symbol("sharding_impls:UNSPECIFIED")
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
    pack, nones = symbol("flattree:pack"), symbol("flattree:nones")
    consts, carry, xs = params["ft_in"].unpack()
    return params | {"ft_in": pack(((nones(count), consts), carry, xs))}


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """How many of a scan's operands are constants, and how many are carried."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(consts), len(carry)


def is_inlined(inline: Any) -> bool:
    """Whether the param of a jit says that it is to be inlined, which is an enumeration from jax
    0.12 on."""
    return inline if isinstance(inline, bool) else inline.name == "JAX_LATE"


def is_jaxpr(value: Any) -> bool:
    """Whether ``value`` is a jaxpr, closed or open."""
    return isinstance(value, (_jaxpr_type(), closed_jaxpr_type()))


def constant_types(jaxpr: Any) -> list[Any]:
    """The types of the constants of a closed jaxpr."""
    return [var.aval for var in open_part(jaxpr).constvars]
