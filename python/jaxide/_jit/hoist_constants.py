"""Constants of nested programs are made constants of the program itself.

A function may call a jit, in a loop or a branch too, that captures an array: a constant of the
jit's program. An executable can be given another array only where that is an input of it, so the
constant becomes an operand of the equation, and so on outwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from jaxide import _compat, _core


class _Operands(NamedTuple):
    """Where new operands of an equation go."""

    # The param with the program, or the programs, that they are inputs of.
    name: str
    # The param that counts the operands before them, or how many these are.
    place: str | int = 0
    # The param that counts such operands.
    counted: str | None = None


# The last operands come first, so that the places of those before stay what they are.
OPERANDS = {
    "jit": (_Operands("jaxpr"),),
    "checkpoint": (_Operands("jaxpr"),),
    "scan": (_Operands("jaxpr"),),
    "while": (
        _Operands("body_jaxpr", "cond_nconsts", "body_nconsts"),
        _Operands("cond_jaxpr", 0, "cond_nconsts"),
    ),
    "cond": (_Operands("branches", 1),),
    "custom_jvp": (_Operands("call_jaxpr", 0, "num_consts"),),
    "custom_vjp": (_Operands("call_jaxpr", 0, "num_consts"),),
}


def hoist_constants(jaxpr: Any) -> tuple[Any, _core.Graph]:
    """The closed jaxpr, or one that computes the same, in which nested programs have no constants;
    and its graph.

    Programs of primitives that are not known here keep theirs, as do those with constants that are
    no arrays. Derivative rules are left as they are: the result is for execution only.
    """
    graph = _core.graph_of(jaxpr)
    if not graph.has_nested_constants():
        return jaxpr, graph
    hoisted = _Hoisting().jaxpr(jaxpr)
    return hoisted, _core.graph_of(hoisted)


class _Constants:
    """The constants of a program, each array once."""

    def __init__(self, jaxpr: Any):
        self.vars = list(_compat.open_part(jaxpr).constvars)
        self.values = list(jaxpr.consts)
        self._known = dict(zip(map(id, self.values), self.vars, strict=True))

    def var(self, value: Any, aval: Any) -> Any:
        """The variable of a constant, a new one where the program does not have it yet."""
        if id(value) not in self._known:
            self._known[id(value)] = _compat.new_var(aval)
            self.vars.append(self._known[id(value)])
            self.values.append(value)
        return self._known[id(value)]


class _Hoisting:
    def __init__(self) -> None:
        # By the addresses of jaxprs, which the outermost one keeps alive.
        self._made: dict[int, Any] = {}

    def jaxpr(self, jaxpr: Any) -> Any:
        """The closed jaxpr that has the constants of all within a jaxpr, open or closed."""
        if id(jaxpr) not in self._made:
            self._made[id(jaxpr)] = self._hoisted(_compat.closed_form(jaxpr))
        return self._made[id(jaxpr)]

    def _hoisted(self, jaxpr: Any) -> Any:
        constants, eqns = _Constants(jaxpr), _compat.open_part(jaxpr).eqns
        new = [self._eqn(eqn, constants) for eqn in eqns]
        if all(one is other for one, other in zip(new, eqns, strict=True)):
            return jaxpr
        return _compat.with_parts(jaxpr, constants.vars, constants.values, new)

    def _eqn(self, eqn: Any, constants: _Constants) -> Any:
        kind = _compat.hoisting_primitives().get(eqn.primitive)
        if kind is None:
            return eqn
        within = [self._within(eqn.params[operands.name]) for operands in OPERANDS[kind]]
        added = [_constants(jaxprs) for jaxprs in within]
        if not any(added) or not all(_are_arrays(j) for jaxprs in within for j in jaxprs):
            return eqn
        return with_constants_outside(eqn, kind, within, constants)

    def _within(self, param: Any) -> list[Any]:
        """The programs of a param, with the constants of all within them."""
        jaxprs = param if isinstance(param, tuple) else (param,)
        return [self.jaxpr(jaxpr) for jaxpr in jaxprs]


def with_constants_outside(eqn: Any, kind: str, within: list[list[Any]], constants: Any) -> Any:
    """An equation whose programs are others, and are given the constants of these as operands.

    Args:
      eqn: the equation.
      kind: what its primitive is, in ``OPERANDS``.
      within: for each of its params there, the closed jaxprs.
      constants: has the operand for the value of a constant.
    """
    invars, params = list(eqn.invars), dict(eqn.params)
    for operands, jaxprs in zip(OPERANDS[kind], within, strict=True):
        new = _constants(jaxprs)
        place = params[operands.place] if isinstance(operands.place, str) else operands.place
        invars[place:place] = [constants.var(*constant) for constant in new]
        hoisted = [_with_inputs(jaxpr, new) for jaxpr in jaxprs]
        params[operands.name] = _like(eqn.params[operands.name], hoisted)
        if operands.counted is not None:
            params[operands.counted] += len(new)
        params = _compat.with_operands(kind, params, len(new))
    return eqn.replace(invars=invars, params=params)


def _constants(jaxprs: Iterable[Any]) -> list[tuple[Any, Any]]:
    """The constants of closed jaxprs, each once, and their types."""
    found = {
        id(value): (value, aval)
        for jaxpr in jaxprs
        for value, aval in zip(jaxpr.consts, _compat.constant_types(jaxpr), strict=True)
    }
    return list(found.values())


def _are_arrays(jaxpr: Any) -> bool:
    """Whether the constants of a closed jaxpr are arrays, each another one."""
    distinct = len(set(map(id, jaxpr.consts))) == len(jaxpr.consts)
    return distinct and all(map(_compat.objects().is_array, jaxpr.consts))


def _with_inputs(jaxpr: Any, constants: Iterable[tuple[Any, Any]]) -> Any:
    """A closed jaxpr whose first inputs are these, among which are all its constants."""
    own = _Constants(jaxpr)
    variables = [own.var(*constant) for constant in constants]
    values = [value for value, _ in constants]
    return _compat.consts_as_invars(_compat.with_parts(jaxpr, variables, values, None))


def _like(param: Any, jaxprs: list[Any]) -> Any:
    """Jaxprs as a param has them: several or one, closed or open."""
    olds = param if isinstance(param, tuple) else (param,)
    new = [
        jaxpr if _compat.closed_form(old) is old else _compat.open_part(jaxpr)
        for old, jaxpr in zip(olds, jaxprs, strict=True)
    ]
    return tuple(new) if isinstance(param, tuple) else new[0]
