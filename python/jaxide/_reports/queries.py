"""Questions about the equations of programs, and their answers as data."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxide import _compat, _core
from jaxide._reports.equations import Equation, Equations, Groups, Lines
from jaxide._reports.tables import Shown, as_text, counted, shown_line, size, table


@dataclasses.dataclass(frozen=True)
class Constant:
    """An array that a program or one of its nested programs has captured."""

    path: tuple[int, ...]
    """The positions of the equations through which one comes to the program that has it."""
    position: int
    """Its position among the program's constants."""
    aval: str
    """Its type, as in ``"f32[8,3]"``."""
    bytes: int
    """Its size."""
    first_use: Equation | None
    """The first equation of the program that has it as an operand; None where none does."""

    @classmethod
    def _of(cls, record: Mapping[str, Any], lines: Lines) -> Constant:
        fields = dict(record)
        use = fields.pop("first_use")
        return cls(first_use=use and lines.equation(use), **fields)

    def __str__(self) -> str:
        use = f"first used at {self.first_use.line}" if self.first_use else "used by no equation"
        return f"{self.aval}, {size(self.bytes)}, {use}"


@dataclasses.dataclass(frozen=True)
class Dependencies:
    """The inputs, constants and equations that an output depends on."""

    inputs: tuple[int, ...]
    """Positions among the inputs."""
    constants: tuple[Constant, ...]
    """Captured arrays, those of nested programs included."""
    equations: Sequence[Equation]
    """In order, those of nested programs included; made when they are looked at."""


@dataclasses.dataclass(frozen=True)
class Uses:
    """The outputs and equations that depend on an input."""

    outputs: tuple[int, ...]
    """Positions among the outputs."""
    equations: Sequence[Equation]
    """In order, those of nested programs included; made when they are looked at."""


@dataclasses.dataclass(frozen=True)
class CriticalPath:
    """The longest chain of equations each of which needs a result of the one before."""

    by: str
    """What is summed: ``"equations"``, ``"operations"`` or ``"bytes"``."""
    length: int
    """The sum over the chain, loops as often as they run."""
    total: int
    """The sum over all equations, branches that do not run left out."""
    equations: Sequence[Equation]
    """The chain; after an equation that runs a program comes the chain within, the first time."""

    @property
    def parallelism(self) -> float:
        """How many times the chain all equations are; 1 where nothing can run side by side."""
        return self.total / self.length if self.length else 1.0


@dataclasses.dataclass(frozen=True)
class Conversion:
    """A change of the precision of numbers."""

    equation: Equation
    """The equation that converts."""
    from_dtype: str
    """The dtype of the operand, as in ``"float32"``."""
    to_dtype: str
    """The dtype of the result."""
    widens: bool
    """Whether every finite number of the one is a number of the other. Otherwise it narrows."""
    explicit: bool
    """Whether it is what the equation is for; a contraction that accumulates in another type
    converts besides."""
    bytes_before: int
    """Bytes of the operand."""
    bytes_after: int
    """Bytes of the result."""

    @property
    def narrows(self) -> bool:
        """Whether there are finite numbers that it changes."""
        return not self.widens


@dataclasses.dataclass(frozen=True)
class PrecisionReport(Shown):
    """The changes of precision in a program. ``str`` is a table."""

    conversions: tuple[Conversion, ...]
    """In the order of the equations."""

    @property
    def widening(self) -> list[Conversion]:
        """The conversions that change no number."""
        return [conversion for conversion in self.conversions if conversion.widens]

    @property
    def narrowing(self) -> list[Conversion]:
        """The conversions that change some numbers."""
        return [conversion for conversion in self.conversions if conversion.narrows]

    __str__ = as_text

    def __repr__(self) -> str:
        return f"<jaxide.PrecisionReport: {counted(len(self.conversions), 'conversion')}>"

    def __rich_console__(self, _console: Any, _options: Any) -> Any:
        def cells(conversion: Conversion) -> Iterator[str]:
            yield shown_line(conversion.equation.line)
            yield from (conversion.equation.primitive, conversion.from_dtype, conversion.to_dtype)
            yield "widens" if conversion.widens else "narrows"
            yield from map(size, (conversion.bytes_before, conversion.bytes_after))

        columns = ("line", "primitive", "from", "to", "", "before", "after")
        yield table(columns, self.conversions, cells, texts=5)


def find(
    graph: _core.Graph,
    primitive: str | None,
    dtype: Any,
    shape: Sequence[int | str] | None,
    line: str | None,
    name_scope: str | None,
) -> Sequence[Equation]:
    """See ``Program.find``."""
    lines = Lines()
    if primitive is not None and _compat.primitive_or_none(primitive) is None:
        known = [name for name, _ in _core.histogram(graph, "once")]
        if primitive not in known:
            raise ValueError(no_name(primitive, known))
    found = _core.find(
        graph,
        primitive,
        None if dtype is None else _dtype_name(dtype),
        None if shape is None else tuple(shape),
        name_scope,
        None if line is None else _on_line(line, lines),
    )
    return Equations(found, lines)


def depends_on(graph: _core.Graph, output: int) -> Dependencies:
    """See ``Program.depends_on``."""
    lines = Lines()
    found = _core.depends_on(graph, output)
    return Dependencies(
        tuple(found["inputs"]),
        tuple(Constant._of(record, lines) for record in found["constants"]),
        Equations(found["equations"], lines),
    )


def used_by(graph: _core.Graph, position: int) -> Uses:
    """See ``Program.used_by``."""
    outputs, equations = _core.used_by(graph, position)
    return Uses(tuple(outputs), Equations(equations, Lines()))


def dead(graph: _core.Graph) -> Sequence[Equation]:
    """See ``Program.dead``."""
    return Equations(_core.dead(graph), Lines())


def critical_path(graph: _core.Graph, by: str, trips: int) -> CriticalPath:
    """See ``Program.critical_path``."""
    length, total, equations = _core.critical_path(graph, by, trips)
    return CriticalPath(by, length, total, Equations(equations, Lines()))


def duplicates(graph: _core.Graph) -> Sequence[Sequence[Equation]]:
    """See ``Program.duplicates``."""
    lengths, equations = _core.duplicates(graph)
    return Groups(lengths, Equations(equations, Lines()))


def large_constants(graph: _core.Graph, min_bytes: int) -> list[Constant]:
    """See ``Program.large_constants``."""
    lines = Lines()
    return [Constant._of(record, lines) for record in _core.large_constants(graph, min_bytes)]


def precision(graph: _core.Graph) -> PrecisionReport:
    """See ``Program.precision``."""
    lines = Lines()
    return PrecisionReport(
        tuple(
            Conversion(**{**record, "equation": lines.equation(record["equation"])})
            for record in _core.precision(graph)
        )
    )


def effects(graph: _core.Graph) -> dict[str, Sequence[Equation]]:
    """See ``Program.effects``."""
    lines = Lines()
    return {
        name.removesuffix("Effect"): Equations(found, lines) for name, found in _core.effects(graph)
    }


def _dtype_name(dtype: Any) -> str:
    """The name of a dtype; those that numpy does not know are what they are called."""
    try:
        name: str = np.dtype(dtype).name
        return name
    except TypeError:
        name = str(dtype)
    if isinstance(dtype, str) and not name.startswith("key<") and name not in _compat.dtypes():
        raise ValueError(f"there is no dtype {name!r}")
    return name


def no_name(name: str, known: Iterable[str]) -> str:
    """Says that nothing is called so, and what is."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"no equation is called {name!r}{hint}"


def _on_line(line: str, lines: Lines) -> Callable[[Any], bool]:
    """Whether a traceback is on a line, or in a file; of its path the last part is enough."""

    def is_wanted(traceback: Any) -> bool:
        found = lines(traceback)
        place = found.rpartition(" (")[0]
        file = place.rpartition(":")[0]
        return any(known == line or known.endswith(f"/{line}") for known in (found, place, file))

    return is_wanted
