"""What depends on captured arrays alone, in nested programs, is computed outside of them.

A jit, a loop or a branch may compute something of arrays that it is given from outside, the same
each time. The equations are done once before it, and it is given their results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxide import _compat
from jaxide._jit.hoist_constants import OPERANDS, with_constants_outside

Known = set[Any]


def pull_out(jaxpr: Any, is_free: Callable[[Any], bool]) -> Any:
    """The closed jaxpr, or one that computes the same, in which nested programs do nothing that
    depends on the constants of the jaxpr alone.

    Args:
      jaxpr: has no constants within.
      is_free: whether it does not matter where and how often an equation is computed.
    """
    inner = _compat.open_part(jaxpr)
    eqns = _Pulling(is_free).eqns(inner.eqns, set(inner.constvars))
    if all(one is other for one, other in zip(eqns, inner.eqns, strict=False)):
        return jaxpr
    return _compat.with_parts(jaxpr, list(inner.constvars), list(jaxpr.consts), eqns)


class _Outside:
    """Stands for constants whose values are variables of the program around."""

    def var(self, value: Any, aval: Any) -> Any:
        return value


class _Pulling:
    def __init__(self, is_free: Callable[[Any], bool]):
        self._is_free = is_free

    def eqns(self, eqns: Sequence[Any], known: Known) -> list[Any]:
        """Equations in whose programs nothing is done that depends on known values alone."""
        known, made = set(known), []
        for eqn in eqns:
            kind = _compat.hoisting_primitives().get(eqn.primitive)
            if self._depends_on(eqn, known):
                known.update(eqn.outvars)
            elif kind is not None and any(_is_var(a) and a in known for a in eqn.invars):
                outside, eqn = self._pulled(eqn, kind, known)
                made += outside
                known.update(var for other in outside for var in other.outvars)
            made.append(eqn)
        return made

    def _depends_on(self, eqn: Any, known: Known) -> bool:
        """Whether an equation depends on known values, and on nothing else."""
        operands = [atom for atom in eqn.invars if _is_var(atom)]
        return bool(operands) and all(a in known for a in operands) and self._is_free(eqn)

    def _pulled(self, eqn: Any, kind: str, known: Known) -> tuple[list[Any], Any]:
        """The equations that come out of another one's programs, and what is left of it."""
        outside: list[Any] = []
        groups = []
        for operands in OPERANDS[kind]:
            param = eqn.params[operands.name]
            jaxprs = param if isinstance(param, tuple) else (param,)
            atoms = _given(eqn, kind, operands.name)
            groups.append([self._split(jaxpr, atoms, known, outside) for jaxpr in jaxprs])
        if not outside:
            return [], eqn
        return outside, with_constants_outside(eqn, kind, groups, _Outside())

    def _split(self, jaxpr: Any, atoms: Sequence[Any], known: Known, outside: list[Any]) -> Any:
        """What is left of a jaxpr, whose constants are variables of the equations outside."""
        closed = _compat.closed_form(jaxpr)
        inner = _compat.open_part(closed)
        given = dict(zip(inner.invars, atoms, strict=False))
        stands = {v: a for v, a in given.items() if not _is_var(a) or a in known}
        own: Known = {var for var, atom in stands.items() if _is_var(atom)}
        eqns = self.eqns(inner.eqns, own)
        done = set(own)
        alone = []
        for eqn in eqns:
            if self._depends_on(eqn, done):
                alone.append(eqn)
                done.update(eqn.outvars)
        if not alone:
            return closed
        is_alone = set(map(id, alone))
        rest = [eqn for eqn in eqns if id(eqn) not in is_alone]
        used = {a for eqn in rest for a in eqn.invars if _is_var(a)}
        used.update(filter(_is_var, inner.outvars))
        wanted = [var for eqn in alone for var in eqn.outvars if var in used]
        outside += _renamed(alone, stands)
        results = [stands[var] for var in wanted]
        return _compat.with_parts(closed, wanted, results, rest)


def _given(eqn: Any, kind: str, param: str) -> Sequence[Any]:
    """The operands that the first inputs of a program are each time it runs."""
    params = eqn.params
    operands: Sequence[Any] = eqn.invars
    if kind == "scan":
        return operands[: _compat.scan_counts(params)[0]]
    if kind == "while":
        condition, body = params["cond_nconsts"], params["body_nconsts"]
        first = operands[:condition]
        return first if param == "cond_jaxpr" else operands[condition : condition + body]
    return operands[1:] if kind == "cond" else operands


def _renamed(eqns: Iterable[Any], stands: dict[Any, Any]) -> list[Any]:
    """Equations with other variables, which are noted."""
    made = []
    for eqn in eqns:
        invars = [stands.get(atom, atom) if _is_var(atom) else atom for atom in eqn.invars]
        outvars = [_compat.new_var(var.aval) for var in eqn.outvars]
        stands.update(zip(eqn.outvars, outvars, strict=True))
        made.append(eqn.replace(invars=invars, outvars=outvars))
    return made


def _is_var(atom: Any) -> bool:
    return not isinstance(atom, _compat.literal_type())
