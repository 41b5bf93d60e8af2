"""Programs as a page for a browser: one file, which works offline.

The page is ``page.html`` with ``page.css``, ``page_charts.js`` and ``page.js`` in it. It has the
program as JSON, from which the script makes rows when they come into view. Nothing of the program
is markup: texts become text nodes, and only the script and the style that are meant may run, by
their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from jaxide._export.model import Params, ProgramModel
from jaxide._reports.cost import CostReport, Share
from jaxide._reports.equations import Equation
from jaxide._reports.liveness import LivenessReport, LiveValue

# In the order in which they use each other.
SCRIPTS = ("page_charts.js", "page.js")
# The steps of an argument's name: `p['w'][0]` is in `p`, in `['w']`, in `[0]`.
_STEPS = re.compile(r"\[[^\]]*\]|\.?[^.\[]+")


def text(programs: Sequence[ProgramModel], cost: CostReport, liveness: LivenessReport) -> str:
    """The page of a program and those within it, with what it costs and what is alive."""

    def resource(name: str) -> str:
        return files(__package__).joinpath(name).read_text(encoding="utf-8")

    style, script = resource("page.css"), "".join(map(resource, SCRIPTS))
    found = _data(programs, cost, liveness)
    data = json.dumps(found, allow_nan=False, separators=(",", ":"))
    parts = {
        "TITLE": html.escape(programs[0].name),
        "STYLE_HASH": _digest(style),
        "SCRIPT_HASH": _digest(script),
        "STYLE": style,
        "SCRIPT": script,
        # In a script nothing but its end is markup.
        "DATA": data.replace("<", "\\u003c"),
    }
    # What one part says is not looked through for the others' marks.
    first, *rest = resource("page.html").split("@")
    whole = [first]
    for part in rest:
        whole.append(parts.get(part, part))
    return "".join(whole)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class _Table:
    """Things that occur often, each once."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._places: dict[Any, int] = {}

    def place(self, key: Any, item: Any = None) -> int:
        known = self._places.get(key)
        if known is None:
            known = self._places[key] = len(self.items)
            self.items.append(key if item is None else item)
        return known


def _data(
    programs: Sequence[ProgramModel], cost: CostReport, liveness: LivenessReport
) -> dict[str, Any]:
    """What the script reads: columns, with places in tables."""
    types, params, primitives = _Table(), _Table(), _Table()
    lines, stacks, scopes, effects = _Table(), _Table(), _Table(), _Table()
    columns = [
        _columns(program, types, params, primitives, lines, stacks, scopes, effects)
        for program in programs
    ]
    return {
        "function": programs[0].function or programs[0].name,
        "cost": _costs(cost),
        "memory": _memory(programs, liveness, types, lines),
        "programs": columns,
        "types": types.items,
        "params": params.items,
        "primitives": primitives.items,
        "lines": lines.items,
        "stacks": stacks.items,
        "scopes": scopes.items,
        "effects": effects.items,
    }


def _costs(report: CostReport) -> dict[str, Any]:
    """What the program costs, as rows."""

    def rows(shares: Iterable[Share]) -> list[list[Any]]:
        return [
            [
                share.name,
                share.times,
                share.cost.flops,
                share.cost.transcendentals,
                share.cost.bytes_accessed,
                share.parameters,
            ]
            for share in shares
        ]

    return {
        "total": rows([Share("total", 1, report.total)])[0],
        "scopes": rows(report.by_scope),
        "lines": rows(report.lines),
        "primitives": rows(report.by_primitive.values()),
        "unknown": list(report.unknown.items()),
        "loops": list(report.loops),
        "while_trips": report.while_trips,
    }


def _memory(
    programs: Sequence[ProgramModel], report: LivenessReport, types: _Table, lines: _Table
) -> dict[str, Any]:
    """What is alive at the peak: what each value is, its type, bytes, line, and equation; the
    groups that it is in."""
    return {
        "peak": report.peak,
        "at": None if report.peak_at is None else _place(programs, report.peak_at),
        "alive": [
            [
                *_described(programs[0], value),
                types.place(value.aval),
                value.bytes,
                None if at is None else lines.place(_equation(programs, at).line),
                at,
                _groups(programs, value, at),
            ]
            for value, at in (
                (v, None if v.equation is None else _place(programs, v.equation))
                for v in report.alive
            )
        ],
    }


def _described(program: ProgramModel, value: LiveValue) -> tuple[str, str]:
    """What a value is, and what it is called."""
    if value.equation is not None:
        return value.kind, value.equation.primitive
    names = {"input": program.arg_names, "output": program.result_paths}.get(value.kind) or ()
    known = value.position < len(names)
    return value.kind, names[value.position] if known else f"{value.kind} {value.position}"


def _groups(
    programs: Sequence[ProgramModel], value: LiveValue, at: tuple[int, int] | None
) -> list[str]:
    """The groups that a value is in, the outermost one first: name scopes, or the steps to an
    input."""
    if at is not None:
        scope = _equation(programs, at).scope
        return ["results", *scope.split("/")] if scope else ["results"]
    steps = _STEPS.findall(_described(programs[0], value)[1]) if value.kind == "input" else []
    return [f"{value.kind}s", *steps]


def _equation(programs: Sequence[ProgramModel], at: tuple[int, int]) -> Any:
    return programs[at[0]].equations[at[1]]


def _place(programs: Sequence[ProgramModel], equation: Equation) -> tuple[int, int]:
    """The place of the program of an equation, and its position there."""
    place = 0
    for position, nth in zip(equation.path, equation.programs, strict=False):
        place = programs[place].equations[position].params.nested[nth]
    return place, equation.path[-1]


def _columns(
    program: ProgramModel,
    types: _Table,
    params: _Table,
    primitives: _Table,
    lines: _Table,
    stacks: _Table,
    scopes: _Table,
    effects: _Table,
) -> dict[str, Any]:
    equations = program.equations
    costs = [eqn.cost for eqn in equations]
    of_type = {id(type_): types.place(type_.text) for type_ in program.types}
    return {
        "name": program.name,
        "function": program.function,
        "times": program.times,
        "names": [variable.name for variable in program.variables],
        "types": [of_type[id(variable.type)] for variable in program.variables],
        "literals": [literal.text for literal in program.literals],
        "constants": len(program.constants),
        "inputs": program.num_inputs,
        "outputs": program.outputs,
        "primitives": [primitives.place(eqn.primitive.name) for eqn in equations],
        "params": [params.place(id(eqn.params), _params(eqn.params)) for eqn in equations],
        "inputs_of": [eqn.inputs for eqn in equations],
        "first": [eqn.outputs.start for eqn in equations],
        "lines": [lines.place(eqn.line) for eqn in equations],
        "stacks": [
            stacks.place("/".join(filter(None, (program.scopes, eqn.name_stack))))
            for eqn in equations
        ],
        "scopes": [scopes.place(eqn.scope) for eqn in equations],
        "effects": [effects.place(eqn.effects) for eqn in equations],
        "flops": [None if cost is None else cost.flops for cost in costs],
        "transcendentals": [None if cost is None else cost.transcendentals for cost in costs],
        "bytes": [None if cost is None else cost.bytes_accessed for cost in costs],
        "live": program.live,
    }


def _params(params: Params) -> dict[str, Any]:
    return {"shown": params.shown, "programs": params.places}
