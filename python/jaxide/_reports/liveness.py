"""Which values of a program are alive when, as data and for a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from jaxide import _core
from jaxide._reports.equations import Equation, Lines
from jaxide._reports.tables import MAX_ROWS, Shown, as_text, counted, line, shown_line, size, table


@dataclasses.dataclass(frozen=True)
class LiveValue:
    """A value that is alive."""

    kind: Literal["input", "constant", "result", "within", "output"]
    """What it is: an input of the program; a constant of it or of a nested program; a result of an
    equation; or what an equation has for itself while it runs a program (what a loop carries, and
    the slices that its body reads); or the copy that an output of a program is."""
    position: int
    """Its position among the inputs, the constants of its program, the results of its equation, or
    the inputs of the program that its equation runs, or the outputs."""
    path: tuple[int, ...]
    """The positions of the equations through which one comes to the program that it is in."""
    equation: Equation | None
    """The equation that it is of; None of inputs, constants and outputs."""
    aval: str
    """Its type, as in ``"f32[8,3]"``."""
    bytes: int
    """Its size."""

    def __str__(self) -> str:
        if self.equation is None:
            return f"{self.kind} {self.position}"
        return f"{self.equation.primitive} at {self.equation.line}"


@dataclasses.dataclass(frozen=True)
class LivenessReport(Shown):
    """Which values of a program are alive when. ``str`` is a table of those at the peak."""

    peak: int
    """The most bytes that are alive at any time."""
    peak_at: Equation | None
    """The innermost equation at which they are; None where it is before the first equation or after
    the last one."""
    alive: tuple[LiveValue, ...]
    """The values that are alive then, the largest first."""
    before: tuple[int, ...]
    """The bytes that are alive before each equation of the outermost program."""
    during: tuple[int, ...]
    """The most bytes while it runs: its operands, its results, and its nested programs."""
    after: tuple[int, ...]
    """The bytes when it has run, and values that nobody needs any more are gone."""
    end: int
    """The bytes when all have run, and each output has its own."""
    last_use_of_inputs: tuple[int | None, ...]
    """The position of the last equation that needs each input; the number of equations where it is
    an output; None where nothing needs it."""
    last_use_of_results: tuple[tuple[int | None, ...], ...]
    """The same of the results of each equation."""
    input_bytes: int
    """All inputs."""
    constant_bytes: int
    """The constants of the program and of those within."""
    output_bytes: int
    """The outputs, each once."""

    @classmethod
    def _of(cls, graph: _core.Graph, donated: list[bool], fused: bool) -> LivenessReport:
        found = dict(_core.liveness(graph, donated, fused))
        lines = Lines(own=True)

        def value(record: Mapping[str, Any]) -> LiveValue:
            fields = dict(record)
            equation = fields.pop("equation")
            return LiveValue(equation=equation and lines.equation(equation), **fields)

        peak_at = found.pop("peak_at")
        return cls(
            peak_at=peak_at and lines.equation(peak_at),
            alive=tuple(map(value, found.pop("alive"))),
            **found,
        )

    __str__ = as_text

    def __repr__(self) -> str:
        alive = counted(len(self.alive), "value")
        return f"<jaxide.LivenessReport: {size(self.peak)} at the peak, in {alive}>"

    def __rich_console__(self, _console: Any, _options: Any) -> Any:
        place = f"at {self.peak_at}" if self.peak_at else "outside of the equations"
        yield line(shown_line(f"peak: {size(self.peak)} {place}"))
        rest = sum(value.bytes for value in self.alive[MAX_ROWS:])
        yield table(
            ("alive there", "type", "size"),
            self.alive,
            lambda value: (shown_line(str(value)), value.aval, size(value.bytes)),
            texts=2,
            more=f" of {size(rest)}",
        )


def donations(donate: Iterable[int], inputs: int) -> list[bool]:
    """Which inputs are donated."""
    donated = [False] * inputs
    for position in donate:
        if not isinstance(position, int) or not 0 <= position < inputs:
            raise ValueError(
                f"donate names input {position!r}, but the program has {inputs} inputs, from 0 on"
            )
        donated[position] = True
    return donated
