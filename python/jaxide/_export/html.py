"""Programs as a page for a browser: one file, which works offline.

The page is ``page.html`` with ``page.css`` and ``page.js`` in it, and the program as JSON, from
which the script makes rows when they come into view. Nothing of the program is markup: texts become
text nodes, and only the script and the style that are meant may run, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jaxide._export.model import Params, ProgramModel
from jaxide._reports.cost import Cost


def text(programs: Sequence[ProgramModel]) -> str:
    """The page of a program and those within it."""

    def resource(name: str) -> str:
        return files(__package__).joinpath(name).read_text(encoding="utf-8")

    style, script = resource("page.css"), resource("page.js")
    data = json.dumps(_data(programs), allow_nan=False, separators=(",", ":"))
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


def _data(programs: Sequence[ProgramModel]) -> dict[str, Any]:
    """What the script reads: columns, with places in tables."""
    types, params, primitives = _Table(), _Table(), _Table()
    lines, stacks, effects = _Table(), _Table(), _Table()
    columns = [
        _columns(program, types, params, primitives, lines, stacks, effects) for program in programs
    ]
    total = sum((eqn.cost for eqn in programs[0].equations if eqn.cost is not None), start=Cost())
    return {
        "function": programs[0].function or programs[0].name,
        "total": {"flops": total.flops, "bytes": total.bytes_accessed},
        "programs": columns,
        "types": types.items,
        "params": params.items,
        "primitives": primitives.items,
        "lines": lines.items,
        "stacks": stacks.items,
        "effects": effects.items,
    }


def _columns(
    program: ProgramModel,
    types: _Table,
    params: _Table,
    primitives: _Table,
    lines: _Table,
    stacks: _Table,
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
        "effects": [effects.place(eqn.effects) for eqn in equations],
        "flops": [None if cost is None else cost.flops for cost in costs],
        "transcendentals": [None if cost is None else cost.transcendentals for cost in costs],
        "bytes": [None if cost is None else cost.bytes_accessed for cost in costs],
        "live": program.live,
    }


def _params(params: Params) -> dict[str, Any]:
    return {"shown": params.shown, "programs": params.places}
