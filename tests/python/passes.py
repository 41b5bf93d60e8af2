"""What every optimized program has to be, whatever it was."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from jax._src import core

import jaxide
import oracle
from corpus import Case

EXACT = [name for name in jaxide.PASSES if name != "inline"]
"""Passes after which a program executed equation by equation computes the same bits: what is
inlined is compiled equation by equation then, and not as one program."""


def total(program: jaxide.Program) -> int:
    """The equations of a program and of all within, each program once."""
    return sum(len(jaxpr.eqns) for jaxpr in _within(program.jaxpr.jaxpr))


def _within(jaxpr: Any) -> Iterator[Any]:
    seen, pending = set(), [jaxpr]
    while pending:
        jaxpr = pending.pop()
        if id(jaxpr) not in seen:
            seen.add(id(jaxpr))
            yield jaxpr
            for eqn in jaxpr.eqns:
                pending += core.jaxprs_in_params(eqn.params)


def effects_of(program: jaxide.Program) -> list[tuple[str, list[str]]]:
    """The equations with effects, in order, and what these are."""
    eqns = (eqn for eqn in program.jaxpr.jaxpr.eqns if eqn.effects)
    return [
        (eqn.primitive.name, sorted(type(effect).__name__ for effect in eqn.effects))
        for eqn in eqns
    ]


def optimized(
    program: jaxide.Program,
    passes: Sequence[str] | None = None,
    axis_env: Sequence[tuple[str, int]] = (),
    **options: Any,
) -> jaxide.Program:
    """The program optimized, which is as it must be."""
    result = program.optimize(passes, **options)
    with core.extend_axis_env_nd(axis_env):
        core.check_jaxpr(result.jaxpr.jaxpr)
    assert result._read_graph().violations() == []
    assert result.in_avals == program.in_avals
    assert result.out_avals == program.out_avals
    assert effects_of(result) == effects_of(program)
    assert result.jaxpr.effects == program.jaxpr.effects
    oracle.assert_equal(
        oracle.describe_value(program.jaxpr.jaxpr.debug_info),
        oracle.describe_value(result.jaxpr.jaxpr.debug_info),
    )
    text = str(result)
    assert str(result.jaxpr) == text
    again = result.optimize(passes, **options)
    assert again is result, f"{text}\nbecomes\n{again}"
    return result


def assert_computes_the_same(case: Case, jaxpr: Any, program: jaxide.Program) -> None:
    """The program of a case, optimized, computes what its jaxpr does: all that is exact for each
    case, and for some of them everything, in a long run for all."""
    axis_env = case.options.get("axis_env") or ()
    exact = optimized(program, EXACT, axis_env)
    assert total(exact) <= total(program)
    if exact is not program:
        for seed in (1, 2):
            expected = oracle.evaluate(jaxpr, case, seed)
            actual = oracle.evaluate(exact.jaxpr, case, seed)
            oracle.assert_equal(oracle.describe_value(expected), oracle.describe_value(actual))
    if oracle.IS_LONG or zlib.crc32(case.name.encode()) % 8 == 0:
        whole = optimized(program, None, axis_env)
        expected = oracle.evaluate(jaxpr, case, 1)
        oracle.assert_close(expected, oracle.evaluate(whole.jaxpr, case, 1), case.tolerance)
