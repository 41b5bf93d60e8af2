"""Programs as graphs for Graphviz: a node for each equation, a cluster for each program."""

from __future__ import annotations

from collections.abc import Sequence

from jaxide._export.model import Atom, Equation, ProgramModel

# A label has at most so many characters of params.
MAX_PARAMS = 120


def text(programs: Sequence[ProgramModel], max_depth: int | None) -> str:
    """The graph, in Graphviz's language.

    Raises:
      ValueError: ``max_depth`` is negative.
    """
    if max_depth is not None and max_depth < 0:
        raise ValueError(f"max_depth must not be negative, got {max_depth}")
    return _Graph(programs, max_depth).text()


def quoted(text: str) -> str:
    """A text as a quoted string of the language, lines apart and control characters left out."""
    printable = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\l")
    return f'"{escaped}"'


class _Graph:
    def __init__(self, programs: Sequence[ProgramModel], max_depth: int | None):
        self._programs = programs
        self._max_depth = max_depth
        self._lines: list[str] = []

    def text(self) -> str:
        for place, depth in self._shown().items():
            self._cluster(place, depth)
        return "\n".join(
            [
                f"digraph {quoted(self._programs[0].name)} {{",
                "  compound=true; rankdir=TB; fontname=monospace;",
                "  node [shape=box, style=filled, fillcolor=white, fontname=monospace];",
                "  edge [fontname=monospace, fontsize=10];",
                *self._lines,
                "}",
                "",
            ]
        )

    def _shown(self) -> dict[int, int]:
        """The places of the programs that are shown, and how deep they are, level by level."""
        depths, level, depth = {0: 0}, [0], 0
        while level and (self._max_depth is None or depth < self._max_depth):
            depth += 1
            found: dict[int, int] = {}
            for place in level:
                for params in _distinct_params(self._programs[place]):
                    found.update((p, depth) for p in params if p not in depths)
            depths |= found
            level = list(found)
        self._depths = depths
        return depths

    def _cluster(self, place: int, depth: int) -> None:
        program, line = self._programs[place], self._lines.append
        line(f"  subgraph cluster_{place} {{")
        line(f"    label={quoted(program.name)}; style={'solid' if depth else 'invis'};")
        for number in range(len(program.constants) + program.num_inputs):
            variable = program.variables[number]
            kind = "constant" if number < len(program.constants) else "input"
            label = quoted(f"{variable.name}:{variable.type.text}")
            line(
                f"    p{place}v{number} [label={label}, shape=ellipse, tooltip={quoted(kind)}, "
                f"fillcolor={'lightyellow' if kind == 'constant' else 'lightblue'}];"
            )
        definers: dict[int, int] = {}
        for position, eqn in enumerate(program.equations):
            definers.update((out, position) for out in eqn.outputs)
            line(f"    p{place}e{position} [{self._attributes(program, eqn)}];")
        for number, atom in enumerate(program.outputs):
            label = quoted(f"{program.text_of(atom)}:{program.type_of(atom).text}")
            line(f"    p{place}o{number} [label={label}, shape=ellipse, fillcolor=lightgreen];")
        line("  }")

        def edge(atom: Atom, to: str) -> None:
            if atom < 0:
                return
            at = definers.get(atom)
            source = f"p{place}v{atom}" if at is None else f"p{place}e{at}"
            variable = program.variables[atom]
            label = quoted(f"{variable.name}:{variable.type.text}")
            line(f"  {source} -> {to} [label={label}];")

        for position, eqn in enumerate(program.equations):
            for atom in dict.fromkeys(eqn.inputs):
                edge(atom, f"p{place}e{position}")
            for within in eqn.params.places:
                if within in self._depths:
                    first = self._first_node(within)
                    line(
                        f"  p{place}e{position} -> {first} "
                        f"[style=dashed, color=gray, lhead=cluster_{within}];"
                    )
        for number, atom in enumerate(program.outputs):
            edge(atom, f"p{place}o{number}")

    def _first_node(self, place: int) -> str:
        """A node of a program, for an edge that goes to the whole of it."""
        program = self._programs[place]
        if program.constants or program.num_inputs:
            return f"p{place}v0"
        return f"p{place}e0" if program.equations else f"p{place}o0"

    def _attributes(self, program: ProgramModel, eqn: Equation) -> str:
        params = []
        for key, value in eqn.params.shown:
            if isinstance(value, tuple):
                value = ", ".join(self._programs[p].name for p in value)
            params.append(f"{key}={value}")
        listed = "\n".join(params)
        if len(listed) > MAX_PARAMS:
            listed = f"{listed[:MAX_PARAMS]}..."
        # Operands that no edge stands for.
        literals = [program.text_of(atom) for atom in eqn.inputs if atom < 0]
        head = " ".join([eqn.primitive.name, *literals])
        label = f"{head}\n{listed}\n" if listed else head
        tooltip = f"{eqn.line}\n{eqn.name_stack}".strip()
        hidden = any(p not in self._depths for p in eqn.params.places)
        color = ", fillcolor=lightgray" if hidden else ""
        return f"label={quoted(label)}, tooltip={quoted(tooltip)}{color}"


def _distinct_params(program: ProgramModel) -> list[list[int]]:
    """The places of programs of an equation, of equations with other params each."""
    distinct = {id(eqn.params): eqn.params for eqn in program.equations}
    return [params.places for params in distinct.values()]
