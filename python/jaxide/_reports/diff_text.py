"""A diff as text, and in colour for a terminal.

Programs of many layers differ in many equations alike: another width changes the type of each
result. The first equation of such a group is shown, with the number of the others.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxide._reports.diff_rows import DiffEquation, Difference, DiffRow, ProgramDiff
from jaxide._reports.diff_stat import DiffStat
from jaxide._reports.tables import as_text, counted, cut, shortened, shown_line

if TYPE_CHECKING:
    from rich.text import Text

# Characters of an equation that views show.
MAX_EQUATION = 300
# As many that differ alike are all shown.
MAX_ALIKE = 3
# Primitives of those that are named.
MAX_PRIMITIVES = 4
# Equations around one that differs, where others are left out.
CONTEXT = 3


class Line(NamedTuple):
    """A line of the text, and what it is."""

    kind: str
    text: str


_STYLES = {
    "title": "bold",
    "program": "bold",
    "hunk": "cyan",
    "removed": "red",
    "added": "green",
    "detail": "yellow",
    "moved": "magenta",
    "same": "dim",
}


_OF_EQUATIONS = ("removed", "added", "moved", "same")


def styled(programs: Sequence[ProgramDiff], stat: DiffStat, width: int | None) -> Iterator[Text]:
    """The text in colour; an equation takes one line of so many characters."""
    from rich.text import Text

    for kind, text in lines(programs, stat):
        shown = cut(text, width) if width is not None and kind in _OF_EQUATIONS else text
        yield Text(shown, style=_STYLES.get(kind, ""))


def lines(programs: Sequence[ProgramDiff], stat: DiffStat, repeats: bool = False) -> Iterator[Line]:
    """The text, line by line; with ``repeats`` equations that differ alike are all there."""
    yield Line("title", stat.summary)
    groups = _Groups(() if repeats else programs)
    if groups.has_any:
        yield from (Line("summary", text) for text in as_text(stat).split("\n")[1:])
    for program in programs:
        body = list(_of_program(program, groups))
        yield Line("program", f"=== {program.where}")
        yield from body or [Line("same", "  ... differs as those above")]
    if groups.left_out:
        left_out = counted(groups.left_out, "equation")
        yield Line("same", f"... and {left_out} that differ as others do: pretty(repeats=True)")


class _Groups:
    """Equations that differ alike, and which of them have been shown."""

    def __init__(self, programs: Iterable[ProgramDiff]):
        # How many there are of each primitive.
        self._primitives: dict[Any, collections.Counter[str]] = {}
        for program in programs:
            for row in program.changes:
                counts = self._primitives.setdefault(_key(program, row), collections.Counter())
                counts[_primitive(row)] += 1
        self._shown: set[Any] = set()
        self.left_out = 0

    @property
    def has_any(self) -> bool:
        return any(map(_is_large, self._primitives.values()))

    def others(self, program: ProgramDiff, row: DiffRow) -> collections.Counter[str] | None:
        """Those that differ alike, by primitive; None where one of these is shown already."""
        key = _key(program, row)
        counts = self._primitives.get(key)
        if counts is None or not _is_large(counts):
            return collections.Counter()
        if key in self._shown:
            self.left_out += 1
            return None
        self._shown.add(key)
        return counts - collections.Counter([_primitive(row)])


def _is_large(counts: collections.Counter[str]) -> bool:
    return counts.total() > MAX_ALIKE


def _primitive(row: DiffRow) -> str:
    of = row.new or row.old
    assert of is not None, "a row has an equation"
    return of.primitive


def _alike(counts: collections.Counter[str]) -> str:
    """How many equations differ alike, and of which primitives."""
    named = [f"{count:,} {name}" for name, count in counts.most_common(MAX_PRIMITIVES)]
    if len(counts) > MAX_PRIMITIVES:
        named.append(f"{len(counts) - MAX_PRIMITIVES:,} more primitives")
    return f"  ... and {counted(counts.total(), 'equation')} alike: {', '.join(named)}"


def _key(program: ProgramDiff, row: DiffRow) -> Any:
    """The same for equations that differ alike."""
    if row.kind == "changed" and row.old is not None and row.new is not None:
        places = row.old.path[-1], row.new.path[-1]
        differences = frozenset(
            (each.what, *map(_from_here, (each.old, each.new), places)) for each in row.differences
        )
        return row.kind, differences
    if row.kind.startswith("moved"):
        # Each is a row at two places.
        return row.kind, row.new
    # Words name objects as their program does.
    return row.kind, row.words, program.old_path, program.new_path


def _from_here(value: str, place: int) -> str:
    """A value; of an operand how far away the equation is that it is from."""
    return re.sub(r"^equation (\d+)", lambda found: f"{place - int(found[1])} before", value)


def _of_program(program: ProgramDiff, groups: _Groups) -> Iterator[Line]:
    yield from _ends(program.inputs)
    for hunk in program.hunks:
        yield from _hunk(program, hunk, groups)
    yield from _ends(program.results)


def _ends(ends: Sequence[Difference]) -> Iterator[Line]:
    """Inputs or results, those that differ alike as one."""
    alike: dict[Any, list[Difference]] = {}
    for end in ends:
        alike.setdefault((end.kind, end.old, end.new), []).append(end)
    for group in alike.values():
        if len(group) <= MAX_ALIKE:
            yield from (Line("detail", f"~ {end.what}: {end.values}") for end in group)
        else:
            said = f"{group[0].what} and {len(group) - 1:,} more"
            yield Line("detail", f"~ {said}: {group[0].values}")


def _hunk(program: ProgramDiff, hunk: Sequence[DiffRow], groups: _Groups) -> Iterator[Line]:
    rows = list(hunk)
    # Those that differ alike, by the place of each row that is shown.
    shown: dict[int, collections.Counter[str]] = {}
    for place, row in enumerate(rows):
        if row.kind != "same":
            others = groups.others(program, row) if row.is_counted else collections.Counter()
            if others is not None:
                shown[place] = others
    if not shown:
        return
    near = {at for place in shown for at in range(place - CONTEXT, place + CONTEXT + 1)}
    if all(row.kind == "same" or place in shown for place, row in enumerate(rows)):
        near.update(range(len(rows)))
    seen = [at for at, row in enumerate(rows) if at in (near if row.kind == "same" else shown)]
    yield Line("hunk", _header([rows[place] for place in seen]))
    for place in seen:
        yield from _row(rows[place])
        if shown.get(place):
            yield Line("same", _alike(shown[place]))


def _header(hunk: Sequence[DiffRow]) -> str:
    """Which equations of both programs a hunk shows."""

    def places(equations: Iterable[DiffEquation | None]) -> str:
        found = [each.path[-1] for each in equations if each is not None]
        if not found:
            return "none"
        return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"

    old = places(row.old for row in hunk if row.kind != "moved from")
    new = places(row.new for row in hunk if row.kind != "moved to")
    return f"@@ equations {old} | {new} @@"


def _row(row: DiffRow) -> Iterator[Line]:
    def line(mark: str, equation: DiffEquation, note: str = "") -> str:
        text = shortened(equation.text, MAX_EQUATION)
        return f"{mark} {text}  # {note}{shown_line(equation.line)}"

    old, new = row.old, row.new
    if row.kind == "same" and new is not None:
        yield Line("same", line(" ", new))
    elif row.kind == "moved to" and old is not None and new is not None:
        yield Line("moved", line("-", old, f"moved to equation {new.path[-1]}, "))
    elif row.kind == "moved from" and old is not None and new is not None:
        yield Line("moved", line("+", new, f"moved from equation {old.path[-1]}, "))
    else:
        if old is not None:
            yield Line("removed", line("-", old))
        if new is not None:
            yield Line("added", line("+", new))
        for each in row.differences:
            yield Line("detail", f"~   {each.what}: {each.values}")
