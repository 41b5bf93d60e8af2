"""Nested programs that are structurally equal are made one object before it is lowered.

jax lowers a nested program once for each object. Whether two equal ones are one object depends on
what was traced before and on what caches have forgotten since; the module should not.
"""

from __future__ import annotations

import weakref
from typing import Any

from jaxide import _compat, _core
from jaxide._native.content import Unsettled

# By the address of the jaxpr; both are forgotten with it.
_known: dict[int, tuple[weakref.ref[Any], Any]] = {}


def deduplicate(jaxpr: Any) -> Any:
    """``jaxpr``, or one that is structurally equal, in which equal programs are one object.

    It is the same one each time. Where nothing shows that programs are equal they are left.
    """
    found = _known.get(id(jaxpr))
    if found is not None and found[0]() is jaxpr:
        return found[1] or jaxpr
    try:
        pairs = _core.graph_of(jaxpr).repeated()
    except (Unsettled, RecursionError):
        pairs = []
    deduplicated = _Replacing(pairs).jaxpr(jaxpr) if pairs else None
    place = id(jaxpr)
    _known[place] = weakref.ref(jaxpr, lambda _: _known.pop(place, None)), deduplicated
    return deduplicated or jaxpr


class _Replacing:
    """Puts jaxprs in the places of others."""

    def __init__(self, pairs: list[tuple[Any, Any]]):
        self._stands = {id(other): one for one, other in pairs}
        self._made: dict[int, Any] = {}

    def jaxpr(self, jaxpr: Any) -> Any:
        jaxpr = self._stands.get(id(jaxpr), jaxpr)
        if id(jaxpr) not in self._made:
            self._made[id(jaxpr)] = self._replaced(jaxpr)
        return self._made[id(jaxpr)]

    def _replaced(self, jaxpr: Any) -> Any:
        inner = _compat.open_part(jaxpr)
        if inner is jaxpr:
            eqns = [self._eqn(eqn) for eqn in jaxpr.eqns]
            changed = any(new is not old for new, old in zip(eqns, jaxpr.eqns, strict=True))
            return jaxpr.replace(eqns=eqns) if changed else jaxpr
        new = self.jaxpr(inner)
        return jaxpr if new is inner else jaxpr.replace(jaxpr=new)

    def _eqn(self, eqn: Any) -> Any:
        params = {name: self._value(value) for name, value in eqn.params.items()}
        changed = any(params[name] is not value for name, value in eqn.params.items())
        return eqn.replace(params=params) if changed else eqn

    def _value(self, value: Any) -> Any:
        if _compat.is_jaxpr(value):
            return self.jaxpr(value)
        if type(value) in (tuple, list):
            items = [self._value(item) for item in value]
            if any(new is not old for new, old in zip(items, value, strict=True)):
                return type(value)(items)
        return value
