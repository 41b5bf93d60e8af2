"""What is different in two programs: equations, inputs, results."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from jaxide._reports.tables import shortened

# Equations around a nested program that are named.
MAX_STEPS = 6


@dataclasses.dataclass(frozen=True)
class Difference:
    """One thing that is different in two programs.

    Attributes:
      kind: what differs: "added", "removed" or "moved", of an equation; of one that is in both
        "primitive", "param", "literal", "operand", "type of output", "context", "effects"; of a
        program "added input", "removed input", "type of input", "added constant",
        "removed constant", "type of constant", "constant" (its value), "added result",
        "removed result", "result", "effects".
      equation: the place of the equation in this program, None where it is none of this program.
      primitive: the name of its primitive.
      name: the name of a param, or the number of the operand, input, output or result.
      old: what the earlier program has.
      new: what this program has.
      source: the line of the user's code that the equation of this program is from.
      path: the equations that the programs are within, from the outermost on.
    """

    kind: str
    equation: int | None
    primitive: str | None
    name: str
    old: str
    new: str
    source: str | None
    path: tuple[int, ...]

    def __str__(self) -> str:
        if self.equation is not None:
            of = f"equation {self.equation} ({self.primitive})"
        else:
            of = "an equation" if self.kind == "removed" else ""
        if self.kind in ("added", "removed", "moved"):
            what = f"{self.kind} {of}"
        else:
            what = self.what + (f" of {of}" if of else "")
        within = "".join(f" within equation {eqn}" for eqn in self.path[: -MAX_STEPS - 1 : -1])
        if len(self.path) > MAX_STEPS:
            within += f" within {len(self.path) - MAX_STEPS} more"
        line = f" at {self.source}" if self.source else ""
        return f"{what}{within}: {self.values}{line}"

    @property
    def what(self) -> str:
        """What differs: ``"param axis"``, ``"type of output 0"``."""
        return f"{self.kind} {self.name}".rstrip()

    @property
    def kinds_of_values(self) -> tuple[str, str]:
        """What both have; of an operand not which equation it is from, but of which primitive."""
        if self.kind != "operand":
            return self.old, self.new
        old, new = (
            re.sub(r"^equation \d+ ", "result of ", value) for value in (self.old, self.new)
        )
        return old, new

    @property
    def values(self) -> str:
        """What both have, shortened."""
        values = [shortened(value) for value in (self.old, self.new) if value]
        return " -> ".join(values)


@dataclasses.dataclass(frozen=True)
class DiffEquation:
    """An equation of one of two programs that are compared."""

    path: tuple[int, ...]
    """The place of the equation in its program, and before it those of the equations that this
    program is within, from the outermost on."""
    primitive: str
    """The name of its primitive."""
    text: str
    """As in the text of the whole program, with the names there, but that nested programs are left
    out. In words where that text cannot be printed, since programs are nested too deeply."""
    line: str
    """The line of the user's code, as ``"train.py:7 (loss)"``, or ``"unknown"``."""
    scope: str = ""
    """Its name scopes, those around its program first, as ``"Block_0/Attention"``."""


@dataclasses.dataclass(frozen=True)
class DiffRow:
    """Equations side by side."""

    kind: str
    """``"added"``, ``"removed"``, ``"changed"`` or ``"same"``; and of one that is at another place
    ``"moved to"``, where it was, and ``"moved from"``, where it is."""
    old: DiffEquation | None
    """The equation of the old program; None of one that was added."""
    new: DiffEquation | None
    """The equation of the new program; None of one that was removed."""
    differences: tuple[Difference, ...]
    """What differs, of one that was changed."""
    words: str | None = None
    """What one that was added or removed says, without names of variables."""

    @property
    def is_counted(self) -> bool:
        """Whether it differs; one that was moved counts at its new place."""
        return self.kind not in ("same", "moved to")


@dataclasses.dataclass(frozen=True)
class ProgramDiff:
    """Where two programs differ, those within not looked at."""

    old_path: tuple[int, ...]
    """The places of the equations that the old program is within, from the outermost on."""
    new_path: tuple[int, ...]
    """The same of the new program."""
    within: tuple[str, ...]
    """The primitives of these equations and the params that the programs are in, as
    ``"scan[jaxpr]"``."""
    inputs: tuple[Difference, ...]
    """What differs of inputs and constants."""
    hunks: tuple[Sequence[DiffRow], ...]
    """The equations that differ, with some around them; their rows are made when they are looked
    at."""
    results: tuple[Difference, ...]
    """What differs of results, and of the effects of the programs."""
    added: int
    """How many equations only the new program has."""
    removed: int
    """How many equations only the old program has."""
    changed: int
    """How many equations are in both, and differ."""
    moved: int
    """How many equations are equal, and at another place."""

    @property
    def changes(self) -> Iterator[DiffRow]:
        """The rows that differ; one that was moved is at its new place."""
        for hunk in self.hunks:
            for row in hunk:
                if row.is_counted:
                    yield row

    @property
    def where(self) -> str:
        """Which programs they are, in words."""
        if not self.within:
            return "the program"
        steps = [
            f"{name} (equation {old})" if old == new else f"{name} (equation {old}, now {new})"
            for name, old, new in zip(self.within, self.old_path, self.new_path, strict=True)
        ]
        if len(steps) > 2 * MAX_STEPS:
            left_out = len(steps) - 2 * MAX_STEPS
            steps[MAX_STEPS:-MAX_STEPS] = [f"... {left_out} more ..."]
        return "within " + " / ".join(steps)


@dataclasses.dataclass(frozen=True)
class ScopeDiff:
    """How many equations of a name scope differ, those of scopes within it left out."""

    scope: str
    """As ``"Block_0/Attention"``; empty for equations that are in none."""
    added: int = 0
    removed: int = 0
    changed: int = 0
    moved: int = 0

    @property
    def count(self) -> int:
        """How many they are."""
        return self.added + self.removed + self.changed + self.moved


@dataclasses.dataclass(frozen=True)
class Repeated:
    """What is different in several equations, inputs or results in the same way."""

    what: str
    """As ``"param axis"``, or ``"type of output"``, whatever its number is."""
    old: str
    new: str
    count: int
