"""A program and those within it as data: what all formats are made of.

The native core reads the programs, each once, into tables (``src/python/tools/export.rs``). Here
they become variables, literals and equations with texts: names as in the text of the whole program,
types and params as jax prints them, lines of the user's code.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxide import _compat, _core
from jaxide._native.printing import object_text
from jaxide._reports.cost import Cost
from jaxide._reports.equations import Lines
from jaxide._reports.scopes import Scope, scope_of


@dataclasses.dataclass(frozen=True, slots=True)
class Type:
    """The type of variables or literals."""

    text: str
    """As in ``"f32[8,3]"``."""
    aval: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """A constant, an input or a result of an equation."""

    name: str
    type: Type


@dataclasses.dataclass(frozen=True, slots=True)
class Literal:
    """A scalar that is part of the program."""

    text: str
    """As in ``"2.0:f32[]"``."""
    value: Any
    type: Type


# The place of a variable in its program; of literal ``n``, ``-1 - n``.
Atom = int


@dataclasses.dataclass(frozen=True, slots=True)
class Params:
    """The params that equations of one primitive share."""

    values: Mapping[str, Any]
    """jax's own objects."""
    plain: Mapping[str, Any]
    """In terms of JSON; what has none is the object, under the key ``"object"``."""
    programs: Mapping[int, int]
    """The places of the programs among them, by the addresses of jax's objects."""
    nested: Sequence[int]
    """The places of the programs, in order of the params' names."""
    shown: Sequence[tuple[str, str | tuple[int, ...]]]
    """Those that jax prints: texts, or the places of programs."""
    name: str | None
    """How jax calls the programs."""

    @property
    def places(self) -> list[int]:
        """The places of the programs, in order, each once."""
        return list(dict.fromkeys(self.programs.values()))


@dataclasses.dataclass(frozen=True, slots=True)
class Equation:
    """An equation of a program."""

    primitive: Any
    params: Params
    inputs: Sequence[Atom]
    outputs: range
    """Places of variables."""
    effects: Sequence[str]
    line: str
    """The innermost line of code that is not installed (``"train.py:7 (loss)"``). An equation from
    nowhere has the line that runs its program, or ``"unknown"``."""
    name_stack: str
    scope: str
    """The name scopes around it (``"Block_0/Dense"``), those around its program first, without
    what transformations add."""
    traceback: Any
    context: Any
    """jax's context of the equation."""
    cost: Cost | None
    """Each time it runs, the programs that it runs included; None where that is not known."""
    is_leaf: bool
    """Whether it costs something by itself, and not what the programs cost that it runs."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramModel:
    """One program; those within are referred to by their places."""

    name: str
    function: str
    """The function that it was traced from, and where that is defined."""
    scopes: str
    """The name scopes around the first equation that runs it."""
    times: int
    """How often it runs; a branch that is not the most expensive one, 0 times."""
    live: Sequence[int] | None
    """The most bytes that are alive while each equation runs; of nested programs, of what they make
    themselves. None where nothing runs it."""
    variables: Sequence[Variable]
    """Constants, then inputs, then results of equations."""
    constants: Sequence[Any]
    """The values of the constants."""
    num_inputs: int
    outputs: Sequence[Atom]
    literals: Sequence[Literal]
    equations: Sequence[Equation]
    types: Sequence[Type]
    arg_names: Sequence[str] | None
    result_paths: Sequence[str] | None

    @property
    def inputs(self) -> range:
        """The places of the inputs."""
        return range(len(self.constants), len(self.constants) + self.num_inputs)

    def text_of(self, atom: Atom) -> str:
        """The name of a variable, or the text of a literal."""
        return self.variables[atom].name if atom >= 0 else self.literals[-1 - atom].text

    def type_of(self, atom: Atom) -> Type:
        return self.variables[atom].type if atom >= 0 else self.literals[-1 - atom].type


def read(graph: _core.Graph, while_trips: int = 1) -> list[ProgramModel]:
    """The program of a graph and those within, each once, the outermost one first.

    Raises:
      ValueError: ``while_trips`` is negative.
    """
    if while_trips < 0:
        raise ValueError(f"while_trips must not be negative, got {while_trips}")
    return _Reader(_core.tables(graph, while_trips)).programs


class _Reader:
    def __init__(self, tables: Sequence[Mapping[str, Any]]):
        self._line = Lines(own=True)
        self._shown: dict[tuple[int, int], Any] = {}
        # How the programs are called by those that run them.
        self._names: dict[int, str] = {}
        self._unnamed = _letters(tables)
        self._scopes: dict[int, str] = {}
        # The scopes and the line of the first equation that runs each program.
        self._around: dict[int, tuple[Scope, str]] = {}
        # Those that run a program are before it.
        self.programs = [self._program(place, table) for place, table in enumerate(tables)]

    def _program(self, place: int, table: Mapping[str, Any]) -> ProgramModel:
        types = [Type(aval.str_short(short_dtypes=True), aval) for aval in table["types"]]
        names = table["names"] or itertools.repeat(None)
        variables = [
            Variable(name or next(self._unnamed), types[type_])
            for name, type_ in zip(names, table["variables"], strict=False)
        ]
        params: dict[tuple[int, int], Params] = {}
        effects = [tuple(sorted(map(object_text, found))) for found in table["effects"]]
        around_scope, around_line = self._around.get(place, ((), "unknown"))
        sources = []
        for traceback, stack in table["sources"]:
            line = self._line(traceback)
            sources.append(
                (
                    traceback,
                    around_line if line == "unknown" else line,
                    "" if stack is None else str(stack),
                    around_scope + scope_of(stack),
                )
            )
        primitives, contexts = table["primitives"], table["contexts"]
        equations, eqns = [], table["eqns"]
        around = self._scopes.get(place, "")
        for primitive, which, effect, source, context, ins, first, count, cost, runs in eqns:
            if (primitive, which) not in params:
                params[primitive, which] = self._params(
                    primitives[primitive], *table["params"][which]
                )
            traceback, line, name_stack, scope = sources[source]
            for within in params[primitive, which].programs.values():
                scopes = "/".join(filter(None, (around, name_stack)))
                self._scopes.setdefault(within, scopes)
                self._around.setdefault(within, (scope, line))
            equations.append(
                Equation(
                    primitive=primitives[primitive],
                    params=params[primitive, which],
                    inputs=ins,
                    outputs=range(first, first + count),
                    effects=effects[effect],
                    line=line,
                    name_stack=name_stack,
                    scope="/".join(scope),
                    traceback=traceback,
                    context=contexts[context],
                    cost=None if cost is None else Cost(*cost),
                    is_leaf=not runs,
                )
            )
        function = table["function"]
        return ProgramModel(
            name=self._names.get(place) or function.rpartition(" at ")[0] or "program",
            function=function,
            scopes=around,
            times=table["times"],
            live=table["live"],
            variables=variables,
            constants=table["constants"],
            num_inputs=table["num_inputs"],
            outputs=table["outputs"],
            literals=[self._literal(literal) for literal in table["literals"]],
            equations=equations,
            types=types,
            arg_names=table["arg_names"],
            result_paths=table["result_paths"],
        )

    @staticmethod
    def _literal(literal: Any) -> Literal:
        type_ = Type(literal.aval.str_short(short_dtypes=True), literal.aval)
        return Literal(literal.pretty_print(None), literal.val, type_)

    def _params(
        self,
        primitive: Any,
        values: Mapping[str, Any],
        plain: Mapping[str, Any],
        programs: Sequence[tuple[Any, int]],
    ) -> Params:
        by_address = {id(jaxpr): place for jaxpr, place in programs}
        printing = _compat.printing()
        printed = printing.params(primitive, values, True) or printing.params(
            primitive, values, False
        )
        assert printed is not None
        pairs, _, name, _ = printed
        shown: list[tuple[str, str | tuple[int, ...]]] = []
        for key, value in pairs:
            if isinstance(value, str):
                shown.append((key, value))
                continue
            several = value if isinstance(value, tuple) else (value,)
            places = tuple(by_address[id(j)] for j in several if id(j) in by_address)
            shown.append((key, places))
        for jaxpr, place in programs:
            key = next((k for k, v in values.items() if v is jaxpr), "")
            part = key.removesuffix("_jaxpr") if key in ("cond_jaxpr", "body_jaxpr") else ""
            self._names.setdefault(place, name or part)
        nested = [place for _, place in programs]
        return Params(values, plain, by_address, nested, shown, name)


def _letters(tables: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Names that no variable has, in the order in which jax gives names."""
    taken = {name for table in tables for name in table["names"] or ()}
    for length in itertools.count(1):
        for letters in itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=length):
            name = "".join(letters)
            # After z comes ba, not aa.
            if name not in taken and (length == 1 or letters[0] != "a"):
                yield name
