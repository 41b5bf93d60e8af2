"""Programs as graphs of Google's Model Explorer: one graph, its nested programs as groups.

The format is that of its custom nodes: ``graphs`` of ``nodes`` with ``incomingEdges``, ``attrs``
and a ``namespace`` of groups, outermost first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jaxide._export.model import Atom, Equation, ProgramModel

# Longer attributes are cut.
MAX_VALUE = 1000


def text(programs: Sequence[ProgramModel]) -> str:
    """The JSON that Model Explorer reads."""
    document = {"label": programs[0].name, "graphs": _Graphs(programs).graphs()}
    return json.dumps(document, separators=(",", ":"))


def _attr(key: str, value: Any) -> dict[str, str]:
    return {"key": key, "value": str(value)[:MAX_VALUE]}


def _segment(name: str) -> str:
    """A group's name: a slash would make it two."""
    return name.replace("/", "∕").replace(";", ",") or "_"


class _Graphs:
    """A program is shown within the first equation that runs it; what runs it again is linked to a
    graph of its own by name."""

    def __init__(self, programs: Sequence[ProgramModel]):
        self._programs = programs
        self._callers = [0] * len(programs)
        for program in programs:
            for eqn in program.equations:
                for place in eqn.params.places:
                    self._callers[place] += 1

    def graphs(self) -> list[dict[str, Any]]:
        """The program, and each program that several equations run."""
        roots = [0, *(p for p, count in enumerate(self._callers) if p and count > 1)]
        return [self._graph(root) for root in roots]

    def _id(self, place: int) -> str:
        return f"{self._programs[place].name} ({place})" if place else self._programs[0].name

    def _graph(self, root: int) -> dict[str, Any]:
        nodes: list[dict[str, Any]] = []
        pending = [(root, "")]
        while pending:
            place, namespace = pending.pop()
            pending += reversed(self._program(place, namespace, nodes))
        return {"id": self._id(root), "nodes": nodes}

    def _program(
        self, place: int, namespace: str, nodes: list[dict[str, Any]]
    ) -> list[tuple[int, str]]:
        """Adds the nodes of a program. The nested programs that are shown in it, and where."""
        program = self._programs[place]
        sources: dict[Atom, tuple[str, str]] = {}
        within: list[tuple[int, str]] = []

        def add(id_: str, label: str, group: str, inputs: Sequence[Atom], **more: Any) -> None:
            nodes.append(
                {
                    "id": id_,
                    "label": label,
                    "namespace": group,
                    "incomingEdges": [
                        {
                            "sourceNodeId": sources[atom][0],
                            "sourceNodeOutputId": sources[atom][1],
                            "targetNodeInputId": str(number),
                        }
                        for number, atom in enumerate(inputs)
                        if atom >= 0
                    ],
                    **more,
                }
            )

        for number in range(len(program.constants) + program.num_inputs):
            kind = "constant" if number < len(program.constants) else "input"
            id_ = f"{place}.v{number}"
            add(id_, kind, namespace, [], outputsMetadata=self._outputs(program, [number]))
            sources[number] = id_, "0"
        for position, eqn in enumerate(program.equations):
            id_ = f"{place}.{position}"
            scopes = [_segment(scope) for scope in eqn.name_stack.split("/") if scope]
            group = "/".join([namespace, *scopes] if namespace else scopes)
            literals = [program.text_of(atom) for atom in eqn.inputs if atom < 0]
            add(
                id_,
                eqn.primitive.name,
                group,
                eqn.inputs,
                attrs=self._attrs(eqn, literals),
                outputsMetadata=self._outputs(program, eqn.outputs),
            )
            for place_within in eqn.params.places:
                if self._callers[place_within] == 1:
                    name = _segment(f"{self._programs[place_within].name} ({id_})")
                    within.append((place_within, f"{group}/{name}" if group else name))
                else:
                    nodes[-1]["subgraphIds"] = [
                        *nodes[-1].get("subgraphIds", []),
                        self._id(place_within),
                    ]
            sources.update((out, (id_, str(number))) for number, out in enumerate(eqn.outputs))
        for number, atom in enumerate(program.outputs):
            add(f"{place}.o{number}", "output", namespace, [atom])
        return within

    def _attrs(self, eqn: Equation, literals: Sequence[str]) -> list[dict[str, str]]:
        attrs = []
        for key, value in eqn.params.shown:
            if isinstance(value, tuple):
                value = ", ".join(self._programs[place].name for place in value)
            attrs.append(_attr(key, value))
        if literals:
            attrs.append(_attr("literals", " ".join(literals)))
        attrs.append(_attr("line", eqn.line))
        if eqn.cost is not None:
            attrs.append(_attr("flops", eqn.cost.flops))
            attrs.append(_attr("bytes", eqn.cost.bytes_accessed))
        if eqn.effects:
            attrs.append(_attr("effects", ", ".join(eqn.effects)))
        return attrs

    @staticmethod
    def _outputs(program: ProgramModel, variables: Sequence[int]) -> list[dict[str, Any]]:
        return [
            {
                "id": str(number),
                "attrs": [
                    _attr("__tensor_tag", program.variables[var].name),
                    _attr("tensor_shape", program.variables[var].type.text),
                ],
            }
            for number, var in enumerate(variables)
        ]
