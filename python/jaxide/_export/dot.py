"""Programs as graphs for Graphviz: a node for each equation, a cluster for each program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from jaxide._export.model import Atom, Equation, ProgramModel

# A label has at most so many characters of params.
MAX_PARAMS = 120
# So many nodes Graphviz lays out within seconds; twice as many of a training step take a minute.
MAX_NODES = 300
# Graphs of more nodes are laid out by Graphviz in fewer rounds, and have types in tooltips.
MANY_NODES = 100

Limit = int | Literal["auto"] | None


def text(programs: Sequence[ProgramModel], max_depth: Limit, max_eqns: Limit) -> str:
    """The graph, in Graphviz's language.

    Raises:
      ValueError: a limit is negative, or a word but ``"auto"``.
    """
    for name, limit in (("max_depth", max_depth), ("max_eqns", max_eqns)):
        if isinstance(limit, str):
            if limit != "auto":
                raise ValueError(f"{name} must be a number, None or 'auto', got {limit!r}")
        elif limit is not None and limit < 0:
            raise ValueError(f"{name} must not be negative, got {limit}")
    return _Graph(programs, max_depth, max_eqns).text()


def quoted(text: str) -> str:
    """A text as a quoted string of the language, lines apart and control characters left out."""
    printable = "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\l")
    return f'"{escaped}"'


class _Graph:
    def __init__(self, programs: Sequence[ProgramModel], max_depth: Limit, max_eqns: Limit):
        self._programs = programs
        self._all_depths = self._depths_of_all()
        self._max_eqns = None if isinstance(max_eqns, str) else max_eqns
        self._max_depth = self._fitting_depth() if isinstance(max_depth, str) else max_depth
        self._depths = self._up_to(self._max_depth)
        if max_depth == max_eqns == "auto" and self._count(self._depths) > MAX_NODES:
            self._max_eqns = self._fitting_eqns()
        self._is_large = self._count(self._depths) > MANY_NODES
        self._lines: list[str] = []

    def _up_to(self, depth: int | None) -> dict[int, int]:
        """The places of the programs up to a depth, and how deep they are."""
        return {p: own for p, own in self._all_depths.items() if depth is None or own <= depth}

    def _fitting_depth(self) -> int:
        """The greatest depth that Graphviz can lay out; 0 where there is none."""
        depths = range(max(self._all_depths.values()), 0, -1)
        return next((d for d in depths if self._count(self._up_to(d)) <= MAX_NODES), 0)

    def _fitting_eqns(self) -> int:
        """How many equations of the outermost program fit beside what goes in and out."""
        return max(MAX_NODES - self._ends(self._programs[0]), MAX_NODES // 2)

    @staticmethod
    def _ends(program: ProgramModel) -> int:
        """How many values go into a program and out of it."""
        return len(program.constants) + program.num_inputs + len(program.outputs)

    def _count(self, places: Iterable[int]) -> int:
        """How many nodes programs have."""
        return sum(
            self._ends(self._programs[place])
            + len(self._programs[place].equations)
            - len(self._hidden_run(place))
            for place in places
        )

    def _left_out(self) -> list[str]:
        """What of the program is not shown, and how it is."""
        hidden = [place for place in self._all_depths if place not in self._depths]
        said = []
        if hidden:
            count = sum(len(self._programs[place].equations) for place in hidden)
            said.append(
                f"nested programs deeper than {self._max_depth} are single nodes: "
                f"{count:,} equations; to_dot(max_depth=None) shows all"
            )
        runs = [self._hidden_run(place) for place in self._depths]
        if any(runs):
            said.append(
                f"the first and the last equations of programs are shown: {sum(map(len, runs)):,} "
                "equations between them are not; to_dot(max_eqns=None) shows all"
            )
        return said

    def _hidden_run(self, place: int) -> range:
        """The equations of a program that are not shown."""
        count, limit = len(self._programs[place].equations), self._max_eqns
        if limit is None or count <= limit:
            return range(0)
        return range(limit - limit // 2, count - limit // 2)

    def text(self) -> str:
        for place, depth in self._depths.items():
            self._cluster(place, depth)
        left_out = self._left_out()
        label = f"  label={quoted(chr(10).join(left_out))}; labelloc=t;" if left_out else None
        # Graphviz looks for a better place for each node, in rounds.
        rounds = "  nslimit=1; nslimit1=1; mclimit=0.1; splines=line;" if self._is_large else None
        return "\n".join(
            [
                *(f"// {said}" for said in left_out),
                f"digraph {quoted(self._programs[0].name)} {{",
                "  compound=true; rankdir=TB; fontname=monospace;",
                *filter(None, (label, rounds)),
                "  node [shape=box, style=filled, fillcolor=white, fontname=monospace];",
                "  edge [fontname=monospace, fontsize=10];",
                *self._lines,
                "}",
                "",
            ]
        )

    def _depths_of_all(self) -> dict[int, int]:
        """How deep the programs are, by their places, level by level."""
        depths, level, depth = {0: 0}, [0], 0
        while level:
            depth += 1
            found: dict[int, int] = {}
            for place in level:
                for params in _distinct_params(self._programs[place]):
                    found.update((p, depth) for p in params if p not in depths)
            depths |= found
            level = list(found)
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
        hidden = self._hidden_run(place)
        definers: dict[int, str] = {}

        def node(position: int) -> str:
            return f"p{place}hidden" if position in hidden else f"p{place}e{position}"

        for position, eqn in enumerate(program.equations):
            definers.update((out, node(position)) for out in eqn.outputs)
            if position not in hidden:
                line(f"    {node(position)} [{self._attributes(program, eqn)}];")
        if hidden:
            label = quoted(f"... {len(hidden):,} equations ...")
            line(f"    p{place}hidden [label={label}, shape=plain, fillcolor=none];")
        for number, atom in enumerate(program.outputs):
            label = quoted(f"{program.text_of(atom)}:{program.type_of(atom).text}")
            line(f"    p{place}o{number} [label={label}, shape=ellipse, fillcolor=lightgreen];")
        line("  }")

        def edge(atom: Atom, to: str) -> None:
            if atom < 0:
                return
            source = definers.get(atom) or f"p{place}v{atom}"
            is_hidden = f"p{place}hidden" in (source, to)
            if is_hidden and (source == to or (source, to) in joined):
                return
            joined.add((source, to))
            variable = program.variables[atom]
            label = quoted(f"{variable.name}:{variable.type.text}")
            kind = "edgetooltip" if self._is_large else "label"
            line(f"  {source} -> {to}" + (";" if is_hidden else f" [{kind}={label}];"))

        # What is joined already: of hidden equations several edges would be between two nodes.
        joined: set[tuple[str, str]] = set()
        called: set[tuple[str, int]] = set()
        for position, eqn in enumerate(program.equations):
            for atom in dict.fromkeys(eqn.inputs):
                edge(atom, node(position))
            for within in eqn.params.places:
                # Equations that are hidden have one edge to a program.
                if within in self._depths and (node(position), within) not in called:
                    called.add((node(position), within))
                    line(
                        f"  {node(position)} -> {self._first_node(within)} "
                        f"[style=dashed, color=gray, lhead=cluster_{within}];"
                    )
        for number, atom in enumerate(program.outputs):
            edge(atom, f"p{place}o{number}")

    def _first_node(self, place: int) -> str:
        """A node of a program, for an edge that goes to the whole of it."""
        program = self._programs[place]
        if program.constants or program.num_inputs:
            return f"p{place}v0"
        if not program.equations:
            return f"p{place}o0"
        return f"p{place}hidden" if 0 in self._hidden_run(place) else f"p{place}e0"

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
