"""The oracle must see every difference: a program changed in one respect is not the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import core

import oracle
from oracle import Traced


def trace() -> Traced:
    table = jnp.arange(3.0)

    def program(x: jax.Array) -> dict[str, Any]:
        with jax.named_scope("first"):
            y = jnp.sin(x) * 2.0
        z = jax.lax.cond(x[0] > 0, lambda v: v * 3.0, lambda v: v, y)
        jax.debug.print("{}", z)
        return {"y": y + table, "z": z}

    return Traced(jax.make_jaxpr(program)(np.ones(3, np.float32)), program)


def with_eqns(closed: Any, eqns: list[Any]) -> Any:
    return closed.replace(jaxpr=closed.jaxpr.replace(eqns=eqns), consts=closed.consts)


def change_eqn(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A mutation of the first equation of that primitive."""

    def mutate(closed: Any) -> Any:
        eqns = list(closed.jaxpr.eqns)
        index = next(i for i, e in enumerate(eqns) if e.primitive.name == name)
        eqns[index] = change(eqns[index])
        return with_eqns(closed, eqns)

    return mutate


def drop_an_equation(closed: Any) -> Any:
    return with_eqns(closed, [e for e in closed.jaxpr.eqns if e.primitive.name != "debug_print"])


def swap_equations(closed: Any) -> Any:
    first, second, *rest = closed.jaxpr.eqns
    return with_eqns(closed, [second, first, *rest])


def change_literal(eqn: Any) -> Any:
    operand, literal = eqn.invars
    return eqn.replace(invars=[operand, core.Literal(np.float32(2.5), literal.aval)])


def change_literal_type(eqn: Any) -> Any:
    """The same number of the same type, held in a Python float: it prints alike."""
    operand, literal = eqn.invars
    return eqn.replace(invars=[operand, core.Literal(float(literal.val), literal.aval)])


def change_weak_type(eqn: Any) -> Any:
    operand, literal = eqn.invars
    aval = literal.aval.update(weak_type=not literal.aval.weak_type)
    return eqn.replace(invars=[operand, core.Literal(literal.val, aval)])


def change_name_stack(eqn: Any) -> Any:
    stack = eqn.source_info.name_stack.extend("second")
    return eqn.replace(source_info=eqn.source_info.replace(name_stack=stack))


def change_source_line(eqn: Any) -> Any:
    def elsewhere(x: jax.Array) -> jax.Array:
        return jax.lax.sin(x)

    (other,) = jax.make_jaxpr(elsewhere)(1.0).jaxpr.eqns
    traceback = other.source_info.traceback
    return eqn.replace(source_info=eqn.source_info.replace(traceback=traceback))


def change_context(eqn: Any) -> Any:
    with jax.threefry_partitionable(not eqn.ctx.threefry_partitionable):
        return eqn.replace(ctx=core.current_jaxpr_eqn_context())


def change_param(eqn: Any) -> Any:
    return eqn.replace(params={**eqn.params, "limit_indices": [1]})


def change_param_that_jax_does_not_print(eqn: Any) -> Any:
    return eqn.replace(params={**eqn.params, "sharding": 1})


def reorder_params(eqn: Any) -> Any:
    return eqn.replace(params=dict(reversed(eqn.params.items())))


def drop_effects(eqn: Any) -> Any:
    return eqn.replace(effects=core.no_effects)


def change_nested_literal(eqn: Any) -> Any:
    branches = tuple(
        change_eqn("mul", change_literal)(b) if b.jaxpr.eqns else b for b in eqn.params["branches"]
    )
    return eqn.replace(params={**eqn.params, "branches": branches})


def rename_variable(eqn: Any) -> Any:
    """The same equation, binding a variable that its users do not read."""
    return eqn.replace(outvars=[core.Var(v.aval) for v in eqn.outvars])


def change_debug_info(field: str, value: Any) -> Callable[[Any], Any]:
    def mutate(closed: Any) -> Any:
        info = closed.jaxpr.debug_info._replace(**{field: value})
        return closed.replace(jaxpr=closed.jaxpr.replace(debug_info=info), consts=closed.consts)

    return mutate


def copy_consts(closed: Any) -> Any:
    """Equal constants, but no longer the objects that the function captured."""
    return closed.replace(jaxpr=closed.jaxpr, consts=[c.copy() for c in closed.consts])


def change_consts(closed: Any) -> Any:
    return closed.replace(jaxpr=closed.jaxpr, consts=[c + 1 for c in closed.consts])


MUTATIONS: dict[str, Callable[[Any], Any]] = {
    "dropped equation": drop_an_equation,
    "swapped equations": swap_equations,
    "literal": change_eqn("mul", change_literal),
    "literal's Python type": change_eqn("mul", change_literal_type),
    "weak type": change_eqn("mul", change_weak_type),
    "name stack": change_eqn("sin", change_name_stack),
    "source line": change_eqn("sin", change_source_line),
    "equation context": change_eqn("sin", change_context),
    "param": change_eqn("slice", change_param),
    "unprinted param": change_eqn("convert_element_type", change_param_that_jax_does_not_print),
    "order of params": change_eqn("slice", reorder_params),
    "effects of an equation": change_eqn("debug_print", drop_effects),
    "nested literal": change_eqn("cond", change_nested_literal),
    "variable": change_eqn("sin", rename_variable),
    "effects": lambda closed: closed.replace(
        jaxpr=closed.jaxpr.replace(effects=core.no_effects), consts=closed.consts
    ),
    "function name": change_debug_info("func_src_info", "other at here.py:1"),
    "argument names": change_debug_info("arg_names", ("y",)),
    "result paths": change_debug_info("result_paths", ("result[0]", "result[1]")),
    "identity of constants": copy_consts,
    "value of constants": change_consts,
}


def test_a_program_is_the_same_as_itself() -> None:
    first, second = (trace() for _ in range(2))
    assert oracle.texts(first.jaxpr) == oracle.texts(second.jaxpr)
    oracle.assert_same_description(first, second)


@pytest.mark.parametrize("mutate", MUTATIONS.values(), ids=MUTATIONS)
def test_change_is_described(mutate: Callable[[Any], Any]) -> None:
    original = trace()
    changed = Traced(mutate(original.jaxpr), original.function)
    with pytest.raises(AssertionError, match="differences"):
        oracle.assert_same_description(original, changed)


PRINTED = {
    "dropped equation": "default",
    "literal": "default",
    "nested literal": "default",
    "name stack": "name_stack",
    "source line": "source_info",
    "effects": "effects",
    "unprinted param": "no_custom_rules",
}


@pytest.mark.parametrize("mutation", PRINTED)
def test_change_is_printed(mutation: str) -> None:
    original = trace()
    changed = MUTATIONS[mutation](original.jaxpr)
    setting = PRINTED[mutation]
    assert oracle.texts(original.jaxpr)[setting] != oracle.texts(changed)[setting]
    with pytest.raises(AssertionError):
        oracle.assert_same_texts(original.jaxpr, changed, lambda: (original.jaxpr, original.jaxpr))


def test_addresses_may_differ_only_where_stock_differs() -> None:
    class Printed:
        """A stand-in for a jaxpr that prints the given text."""

        def __init__(self, text: str):
            self.text = text

        def pretty_print(self, **settings: Any) -> str:
            return self.text

    one, other, longer = map(Printed, ("f at 0x7f01", "f at 0x7f02", "g at 0x7f02"))
    oracle.assert_same_texts(one, other, lambda: (one, other))
    with pytest.raises(AssertionError):
        oracle.assert_same_texts(one, other, lambda: (one, one))
    with pytest.raises(AssertionError):
        oracle.assert_same_texts(one, longer, lambda: (one, other))


def test_effects_are_a_set() -> None:
    first, second = "in () : { Write<a>, Read<b> } }", "in () : { Read<b>, Write<a> } }"
    assert oracle.sort_effects(first) == oracle.sort_effects(second) == second
    assert oracle.sort_effects("in () : { Debug } }") == "in () : { Debug } }"
    other = "in () : { Read<a>, Write<a> } }"
    assert oracle.sort_effects(other) != oracle.sort_effects(first)


def test_values_are_compared_by_their_bits() -> None:
    zero, minus_zero, nan = np.float32(0.0), np.float32(-0.0), np.float32("nan")
    oracle.assert_equal(oracle.describe_value([nan]), oracle.describe_value([nan.copy()]))
    with pytest.raises(AssertionError):
        oracle.assert_equal(oracle.describe_value([zero]), oracle.describe_value([minus_zero]))
    with pytest.raises(AssertionError):
        oracle.assert_equal(oracle.describe_value([zero]), oracle.describe_value([np.float64(0)]))
    with pytest.raises(AssertionError):
        oracle.assert_close([np.float32(1.0)], [np.float32(1.1)], 1e-5)
