"""Programs as JSON, as ``program.schema.json`` describes it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import jax

from jaxide._export.model import Equation, Literal, Params, ProgramModel, Type
from jaxide._native.printing import object_text

FORMAT = "jaxide-program"
# Raised where a reader of the last version would misread the new one.
VERSION = 1


def text(programs: Sequence[ProgramModel]) -> str:
    """The JSON of a program and those within it."""
    return json.dumps(document(programs), allow_nan=False, separators=(",", ":"))


def document(programs: Sequence[ProgramModel]) -> dict[str, Any]:
    """What the JSON says."""
    writer = _Writer()
    return {
        "format": FORMAT,
        "version": VERSION,
        "jaxide": version("jaxide"),
        "jax": jax.__version__,
        "programs": [writer.program(program) for program in programs],
        "types": writer.types,
    }


class _Writer:
    def __init__(self) -> None:
        self.types: list[dict[str, Any]] = []
        self._places: dict[tuple[str, bool], int] = {}
        self._params: dict[int, dict[str, Any]] = {}

    def program(self, program: ProgramModel) -> dict[str, Any]:
        places = {id(type_): self._type(type_) for type_ in program.types}

        def atom(a: int) -> int | dict[str, Any]:
            return a if a >= 0 else self._literal(program.literals[-1 - a])

        return {
            "name": program.name,
            "function": program.function,
            "scopes": program.scopes,
            "times": program.times,
            "variables": [[v.name, places[id(v.type)]] for v in program.variables],
            "constants": list(range(len(program.constants))),
            "inputs": list(program.inputs),
            "outputs": [atom(a) for a in program.outputs],
            "input_names": program.arg_names,
            "output_names": program.result_paths,
            "equations": [
                {
                    "primitive": eqn.primitive.name,
                    "params": self._params_of(eqn.params),
                    "inputs": [atom(a) for a in eqn.inputs],
                    "outputs": list(eqn.outputs),
                    "effects": eqn.effects,
                    "line": None if eqn.line == "unknown" else eqn.line,
                    "name_stack": eqn.name_stack,
                    "cost": _cost(eqn),
                }
                for eqn in program.equations
            ],
        }

    def _type(self, type_: Type) -> int:
        weak = bool(getattr(type_.aval, "weak_type", False))
        known = self._places.get((type_.text, weak))
        if known is None:
            known = self._places[type_.text, weak] = len(self.types)
            shape, dtype = getattr(type_.aval, "shape", None), getattr(type_.aval, "dtype", None)
            self.types.append(
                {
                    "text": type_.text,
                    "dtype": None if dtype is None else str(dtype),
                    # Symbolic sizes are texts.
                    "shape": None
                    if shape is None
                    else [size if isinstance(size, int) else str(size) for size in shape],
                    "weak_type": weak,
                }
            )
        return known

    def _literal(self, literal: Literal) -> dict[str, Any]:
        value = literal.value
        value = value.item() if hasattr(value, "item") else value
        return {
            "literal": plain(value),
            "text": literal.text,
            "type": self._type(literal.type),
        }

    def _params_of(self, params: Params) -> dict[str, Any]:
        known = self._params.get(id(params))
        if known is None:
            known = self._params[id(params)] = {
                name: plain(value) for name, value in params.plain.items()
            }
        return known


def _cost(eqn: Equation) -> dict[str, int] | None:
    if eqn.cost is None:
        return None
    return {f.name: getattr(eqn.cost, f.name) for f in dataclasses.fields(eqn.cost)}


def plain(value: Any) -> Any:
    """A value in JSON; numbers that it does not have are texts, objects what jax prints of them."""
    if type(value) is dict:
        return {
            key: object_text(item) if key == "object" else plain(item)
            for key, item in value.items()
        }
    if type(value) is list:
        return [plain(item) for item in value]
    if type(value) is float and not math.isfinite(value):
        return {"float": str(value)}
    if type(value) is complex:
        return {"complex": str(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    return {"object": object_text(value)}
