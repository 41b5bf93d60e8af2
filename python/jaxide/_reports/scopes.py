"""Name scopes: those of equations, and the parameters that the equations of each scope read."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jaxide import _core

Scope = tuple[str, ...]

# Scopes that jax adds: of what a checkpoint computes again.
_ADDED = frozenset({"checkpoint", "rematted_computation"})
# Outside of all scopes these hand a parameter on: what reads their result reads the parameter.
_HANDED_ON = frozenset(
    {"convert_element_type", "copy", "copy_p", "reduce_precision", "reshape", "squeeze"}
    | {"expand_dims", "transpose", "sharding_constraint", "optimization_barrier"}
)
# More equations than this, counted for each way in which a program is run, are not looked through:
# then the equation that runs a program reads all of its operands.
_MAX_STEPS = 1 << 20


def scope_of(stack: Any) -> Scope:
    """The scopes of a name stack, the outermost one first: what transformations add is left out.

    Within a transformation the scopes around it may be there once more:
    ``transpose(jvp(a))/jvp(a)`` is in ``a``.
    """
    scopes: Scope = ()
    within: list[str] = []
    for entry in () if stack is None else stack.stack:
        if type(entry).__name__ == "Scope":
            within += (name for name in entry.name.split("/") if name and name not in _ADDED)
        else:
            scopes, within = _joined(scopes, tuple(within)), []
    return _joined(scopes, tuple(within))


def _joined(scopes: Scope, within: Scope) -> Scope:
    if within[: len(scopes)] == scopes:
        return within
    return scopes if scopes[: len(within)] == within else scopes + within


def parameters(graph: _core.Graph) -> dict[str, int]:
    """How many parameters the equations of each scope read, by the scope (``"Block_0/Dense"``).

    ``docs/cost.md`` says what counts as a parameter, and for which scope.
    """
    tables = _core.tables(graph, 1)
    sizes = _sizes(tables[0])
    found: dict[str, int] = {}
    for variable, scope in _Readers(tables).scopes(sizes).items():
        for depth in range(1, len(scope) + 1):
            name = "/".join(scope[:depth])
            found[name] = found.get(name, 0) + sizes[variable]
    return found


def _sizes(table: Mapping[str, Any]) -> dict[int, int]:
    """The parameters of a program: variables, and the number of their elements.

    They are constants and leaves of trees. An argument that is an array is data, unless there is
    nothing else.
    """
    constants, inputs = len(table["constants"]), table["num_inputs"]
    names: Sequence[str] = table["arg_names"] or ()
    arrays: dict[int, int] = {}
    others: dict[int, int] = {}
    for variable in range(constants + inputs):
        aval = table["types"][table["variables"][variable]]
        if not _is_inexact(aval):
            continue
        position = variable - constants
        is_array = 0 <= position < len(names) and names[position].isidentifier()
        # A symbolic size counts as one, as in costs.
        size = math.prod(n if isinstance(n, int) else 1 for n in aval.shape)
        (arrays if is_array else others)[variable] = size
    return others or arrays


def _is_inexact(aval: Any) -> bool:
    """Whether values are floating or complex numbers."""
    dtype = getattr(aval, "dtype", None)
    # Types beside numpy's (bfloat16, float8) are of kind V, and their names say what they are.
    return dtype is not None and (
        getattr(dtype, "kind", "") in "fc" or str(dtype).startswith(("bfloat", "float"))
    )


@dataclasses.dataclass(frozen=True)
class _Run:
    """A program that is run: the scope around it, and which of its variables are parameters."""

    place: int
    around: Scope
    known: Mapping[int, int]


class _Readers:
    """Which scopes read parameters."""

    def __init__(self, tables: Sequence[Mapping[str, Any]]):
        self._tables = tables
        self._found: dict[int, Scope] = {}
        self._steps = 0

    def scopes(self, parameters: Iterable[int]) -> dict[int, Scope]:
        """The innermost scope around all equations in scopes that read each parameter."""
        pending = [_Run(0, (), {variable: variable for variable in parameters})]
        seen = set()
        while pending:
            run = pending.pop()
            key = (run.place, run.around, tuple(run.known.items()))
            if key in seen:
                continue
            seen.add(key)
            pending += self._of(run)
        return self._found

    def _of(self, run: _Run) -> Iterator[_Run]:
        """Notes who reads parameters in a program; the programs that it runs with some of them."""
        table, known = self._tables[run.place], dict(run.known)
        self._steps += len(table["eqns"])
        scopes: dict[int, Scope] = {}
        for primitive, which, _, source, _, ins, first, _, _, _ in table["eqns"]:
            read = [atom for atom in ins if atom in known]
            if not read:
                continue
            if source not in scopes:
                scopes[source] = run.around + scope_of(table["sources"][source][1])
            scope = scopes[source]
            values, _, programs = table["params"][which]
            if programs and self._steps < _MAX_STEPS:
                for jaxpr, place in programs:
                    operands = _operands(ins, values, jaxpr)
                    if inner := self._handed(place, operands, known):
                        yield _Run(place, scope, inner)
            elif scope:
                for atom in read:
                    before = self._found.get(known[atom])
                    self._found[known[atom]] = scope if before is None else _common(before, scope)
            elif table["primitives"][primitive].name in _HANDED_ON:
                known[first] = known[read[0]]

    def _handed(
        self, place: int, operands: Sequence[int], known: Mapping[int, int]
    ) -> dict[int, int]:
        """The variables of a program that are parameters, where it is run with some operands."""
        table = self._tables[place]
        constants, inputs = len(table["constants"]), table["num_inputs"]
        # An operand that says which branch is run comes first.
        own = operands[max(0, len(operands) - inputs) :]
        return {constants + n: known[atom] for n, atom in enumerate(own) if atom in known}


def _operands(ins: Sequence[int], values: Mapping[str, Any], jaxpr: Any) -> Sequence[int]:
    """Which operands of an equation one of its programs gets."""
    if "cond_nconsts" not in values:
        return ins
    # A while loop: constants of the condition, those of the body, what is carried.
    condition = values["cond_nconsts"]
    both = condition + values["body_nconsts"]
    own = ins[:condition] if values["cond_jaxpr"] is jaxpr else ins[condition:both]
    return [*own, *ins[both:]]


def _common(one: Scope, other: Scope) -> Scope:
    depth = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    return one[: min(len(one), len(other)) if depth is None else depth]
