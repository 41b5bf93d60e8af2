"""Where two programs differ, as data, as text, for a terminal and as a page of HTML."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxide import _core
from jaxide._reports.equations import Blocks, Lines
from jaxide._reports.tables import Shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Characters of an equation and of a value that views show.
MAX_EQUATION = 300
MAX_VALUE = 160
# Equations around one that differs; no program has more.
MAX_CONTEXT = 2**31
# Equations around a nested program that are named.
MAX_STEPS = 6


def shortened(text: str, most: int) -> str:
    """A text on one line, the end left out where it is long, and how much that is."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    return f"{line[:most]}... ({len(line) - most:,} more characters)"


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
            what = _what(self) + (f" of {of}" if of else "")
        within = "".join(f" within equation {eqn}" for eqn in self.path[: -MAX_STEPS - 1 : -1])
        if len(self.path) > MAX_STEPS:
            within += f" within {len(self.path) - MAX_STEPS} more"
        line = f" at {self.source}" if self.source else ""
        return f"{what}{within}: {self.values}{line}"

    @property
    def values(self) -> str:
        """What both have, shortened."""
        values = [shortened(value, MAX_VALUE) for value in (self.old, self.new) if value]
        return " -> ".join(values)


@dataclasses.dataclass(frozen=True)
class DiffEquation:
    """An equation of one of two programs that are compared."""

    path: tuple[int, ...]
    """The place of the equation in its program, and before it those of the equations that this
    program is within, from the outermost on."""
    primitive: str
    text: str
    """As in the text of the whole program, with the names there, but that nested programs are left
    out. In words where that text cannot be printed, since programs are nested too deeply."""
    line: str
    """The line of the user's code, as ``"train.py:7 (loss)"``, or ``"unknown"``."""


@dataclasses.dataclass(frozen=True)
class DiffRow:
    """Equations side by side."""

    kind: str
    """``"added"``, ``"removed"``, ``"changed"`` or ``"same"``; and of one that is at another place
    ``"moved to"``, where it was, and ``"moved from"``, where it is."""
    old: DiffEquation | None
    new: DiffEquation | None
    differences: tuple[Difference, ...]
    """What differs, of one that was changed."""


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
    removed: int
    changed: int
    moved: int

    @property
    def changes(self) -> Iterator[DiffRow]:
        """The rows that differ; one that was moved is at its new place."""
        for hunk in self.hunks:
            for row in hunk:
                if row.kind not in ("same", "moved to"):
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


@dataclasses.dataclass(frozen=True, repr=False)
class Diff(Shown):
    """Where a program differs from another one; false where they are equal. ``str`` is a text like
    a unified diff: ``-`` is the old program, ``+`` the new one, ``~`` says what was changed."""

    programs: tuple[ProgramDiff, ...]
    """The programs that differ by themselves: the two, and those within them."""
    count: int
    """How many differences there are."""

    @classmethod
    def _of(
        cls,
        old: _core.Graph,
        new: _core.Graph,
        *,
        of: str = "content",
        context: int = 0,
        limit: int | None = None,
        names: bool = True,
    ) -> Diff:
        """Compares two programs.

        Args:
          of: what is compared: "structure", "content", or what "execution" depends on.
          context: how many equations around those that differ are shown.
          limit: how many differences are described.
          names: whether equations are printed with their names, or put in words.
        """
        found = _core.diff(old, new, of=of, context=context, limit=limit, names=names)
        lines = Lines()
        return cls(tuple(_program(each, lines) for each in found["programs"]), found["count"])

    def __bool__(self) -> bool:
        return bool(self.programs)

    @property
    def changes(self) -> tuple[DiffRow, ...]:
        """The equations that were added, removed, changed or moved, those of nested programs
        included."""
        return tuple(row for program in self.programs for row in program.changes)

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All that differs, one thing after another."""
        return tuple(
            difference
            for program in self.programs
            for difference in (
                *program.inputs,
                *(each for row in program.changes for each in _differences(row)),
                *program.results,
            )
        )

    @property
    def summary(self) -> str:
        """How many equations were added, removed, changed and moved."""
        if not self:
            return "no differences"
        kinds = ("added", "removed", "changed", "moved")
        totals = {kind: sum(getattr(each, kind) for each in self.programs) for kind in kinds}
        parts = [f"{count:,} {kind}" for kind, count in totals.items() if count]
        parts = [f"equations: {', '.join(parts)}"] if parts else []
        ends = sum(len(each.inputs) + len(each.results) for each in self.programs)
        if ends:
            parts.append(f"inputs, results and effects: {ends:,}")
        return "; ".join(parts)

    def __str__(self) -> str:
        return "\n".join(text for _, text in self._lines())

    def __repr__(self) -> str:
        return f"<jaxide.Diff: {self.summary}>"

    def __rich_console__(self, _console: Console, _options: Any) -> Iterator[Text]:
        from rich.text import Text

        for kind, text in self._lines():
            yield Text(text, style=_STYLES.get(kind, ""))

    def _lines(self) -> Iterator[_Line]:
        """The text, line by line."""
        if not self:
            yield _Line("title", "no differences")
            return
        yield _Line("title", self.summary)
        for program in self.programs:
            yield _Line("program", f"=== {program.where}")
            yield from (_Line("detail", f"~ {_what(end)}: {end.values}") for end in program.inputs)
            for hunk in program.hunks:
                yield _Line("hunk", _header(hunk))
                for row in hunk:
                    yield from _row(row)
            yield from (_Line("detail", f"~ {_what(end)}: {end.values}") for end in program.results)

    def html(self) -> str:
        """A page that needs nothing else, the programs side by side."""
        body = []
        for program in self.programs:
            body.append(f"<h2>{html.escape(program.where)}</h2>")
            body += _html_ends(program.inputs)
            if program.hunks:
                body.append(
                    "<table><thead><tr><th>#<th>old<th>line<th>#<th>new<th>line</tr></thead>"
                )
                for hunk in program.hunks:
                    body.append("<tbody>")
                    body += (_html_row(row) for row in hunk)
                    body.append("</tbody>")
                body.append("</table>")
            body += _html_ends(program.results)
        return _PAGE.format(summary=html.escape(self.summary), body="\n".join(body))


class _Line(NamedTuple):
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

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{summary}</title>
<style>
body {{ font: 14px system-ui, sans-serif; margin: 2em; color: #1f2328; background: #fff; }}
h1 {{ font-size: 1.3em; }} h2 {{ font-size: 1.05em; margin-top: 2em; }}
table {{ border-collapse: collapse; width: 100%; table-layout: fixed; }}
th {{ text-align: left; font-weight: 600; color: #59636e; }}
th:nth-child(3n+1) {{ width: 4em; }} th:nth-child(3n) {{ width: 16%; }}
td {{ vertical-align: top; padding: 1px 6px; overflow-wrap: anywhere; }}
td:nth-child(3n+1) {{ color: #59636e; text-align: right; }}
td:nth-child(3n) {{ color: #59636e; font-size: 12px; }}
code, li {{ font: 12px ui-monospace, monospace; white-space: pre-wrap; }}
tbody {{ border-top: 1px solid #d1d9e0; border-bottom: 1em solid transparent; }}
del, tr.removed .old {{ background: #ffebe9; text-decoration: none; }}
ins, tr.added .new {{ background: #dafbe1; text-decoration: none; }}
tr.changed td {{ background: #fff8c5; }}
tr.moved td {{ background: #fbefff; }}
tr.detail td {{ background: #fffdf0; color: #1f2328; text-align: left; padding-left: 4.5em; }}
</style>
</head>
<body>
<h1>{summary}</h1>
{body}
</body>
</html>
"""


def _program(found: Mapping[str, Any], line: Lines) -> ProgramDiff:
    old_path, new_path = (tuple(step[side] for step in found["path"]) for side in (0, 1))

    def equation(each: Mapping[str, Any] | None, path: tuple[int, ...]) -> DiffEquation | None:
        if each is None:
            return None
        return DiffEquation(
            (*path, each["place"]), each["primitive"], each["text"], line(each["traceback"])
        )

    def end(detail: tuple[str, str, str, str]) -> Difference:
        kind, name, old, new = detail
        return Difference(kind, None, None, name, old, new, None, new_path)

    def row(each: Mapping[str, Any]) -> DiffRow:
        old, new = equation(each["old"], old_path), equation(each["new"], new_path)
        differences = tuple(
            Difference(
                kind, new.path[-1], new.primitive, name, was, is_, _known(new.line), new_path
            )
            for kind, name, was, is_ in each["details"]
            if new is not None
        )
        return DiffRow(each["kind"], old, new, differences)

    return ProgramDiff(
        old_path,
        new_path,
        tuple(f"{primitive}[{param}]" for _, _, primitive, param in found["path"]),
        tuple(map(end, found["before"])),
        tuple(Blocks(hunk, row) for hunk in found["hunks"]),
        tuple(map(end, found["after"])),
        *found["counts"],
    )


def _known(line: str) -> str | None:
    return None if line == "unknown" else line


def _differences(row: DiffRow) -> Sequence[Difference]:
    """A row that differs as differences."""
    old, new = row.old, row.new
    if row.kind == "changed":
        return row.differences
    if new is None:
        assert old is not None
        path = old.path[:-1]
        return [Difference("removed", None, old.primitive, "", old.text, "", None, path)]
    place, path = new.path[-1], new.path[:-1]
    kind, places = "added", ("", new.text)
    if old is not None:
        kind, places = "moved", (f"equation {old.path[-1]}", f"equation {place}")
    return [Difference(kind, place, new.primitive, "", *places, _known(new.line), path)]


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


def _row(row: DiffRow) -> Iterator[_Line]:
    def line(mark: str, equation: DiffEquation, note: str = "") -> str:
        text = shortened(equation.text, MAX_EQUATION)
        return f"{mark} {text}  # {note}{equation.line}"

    old, new = row.old, row.new
    if row.kind == "same" and new is not None:
        yield _Line("same", line(" ", new))
    elif row.kind == "moved to" and old is not None and new is not None:
        yield _Line("moved", line("-", old, f"moved to equation {new.path[-1]}, "))
    elif row.kind == "moved from" and old is not None and new is not None:
        yield _Line("moved", line("+", new, f"moved from equation {old.path[-1]}, "))
    else:
        if old is not None:
            yield _Line("removed", line("-", old))
        if new is not None:
            yield _Line("added", line("+", new))
        for each in row.differences:
            yield _Line("detail", f"~   {_what(each)}: {each.values}")


def _what(difference: Difference) -> str:
    return f"{difference.kind} {difference.name}".rstrip()


def _values(difference: Difference) -> str:
    old, new = (shortened(value, MAX_VALUE) for value in (difference.old, difference.new))
    values = []
    if old:
        values.append(f"<del>{html.escape(old)}</del>")
    if new:
        values.append(f"<ins>{html.escape(new)}</ins>")
    return " &rarr; ".join(values)


def _html_ends(ends: Sequence[Difference]) -> list[str]:
    items = (f"<li>{html.escape(_what(end))}: {_values(end)}</li>" for end in ends)
    return ["<ul>", *items, "</ul>"] if ends else []


def _html_row(row: DiffRow) -> str:
    def cells(equation: DiffEquation | None, side: str) -> str:
        if equation is None:
            return "<td><td><td>"
        text = html.escape(shortened(equation.text, MAX_EQUATION))
        return (
            f'<td>{equation.path[-1]}<td class="{side}"><code>{text}</code>'
            f"<td>{html.escape(equation.line)}"
        )

    class_ = row.kind.split()[0]
    rows = [f'<tr class="{class_}">{cells(row.old, "old")}{cells(row.new, "new")}</tr>']
    for each in row.differences:
        of = html.escape(_what(each))
        rows.append(f'<tr class="detail"><td colspan="6"><code>{of}: {_values(each)}</code></tr>')
    return "\n".join(rows)
