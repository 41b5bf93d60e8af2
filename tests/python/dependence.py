"""What jax's removal of dead code says that outputs depend on: the oracle of slices."""

from __future__ import annotations

from typing import Any

import jaxide
from jaxide._compat.symbols import symbol

# Primitives without a rule for dead code, of which jax takes every result to depend on every
# operand; a slice may say less.
WITHOUT_RULE = {"while", "custom_linear_solve"}


def assert_slices(jaxpr: Any, program: jaxide.Program) -> None:
    """That slices, forward and backward, are as jax's removal of dead code has it."""
    open_jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    own = program.histogram()
    outputs, inputs = range(len(jaxpr.out_avals)), range(len(jaxpr.in_avals))
    dependencies = [set(program.depends_on(output).inputs) for output in outputs]
    for position in inputs:
        uses = program.used_by(position)
        assert set(uses.outputs) == {o for o in outputs if position in dependencies[o]}
    unused = set(program.unused_inputs())
    assert not unused & set().union(*dependencies)
    if open_jaxpr.effects:
        return
    exact = not WITHOUT_RULE & own.keys()
    for output, found in zip(outputs, dependencies, strict=True):
        expected = _needed(open_jaxpr, [position == output for position in outputs])
        assert found == expected if exact else found <= expected
    expected = set(inputs) - _needed(open_jaxpr, [True] * len(outputs))
    assert unused == expected if exact else unused >= expected


def _needed(jaxpr: Any, outputs: list[bool]) -> set[int]:
    """The inputs that remain when some outputs are needed."""
    _, used = symbol("interpreters.partial_eval:dce_jaxpr")(jaxpr, outputs)
    used = used[len(used) - len(jaxpr.invars) :]
    return {position for position, is_used in enumerate(used) if is_used}
