"""Where two programs differ, as data."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jaxide import _core
from jaxide._reports import diff_page, diff_text
from jaxide._reports.diff_rows import (
    DiffEquation,
    Difference,
    DiffRow,
    ProgramDiff,
    Repeated,
    ScopeDiff,
)
from jaxide._reports.diff_stat import DiffStat
from jaxide._reports.equations import Blocks, Lines
from jaxide._reports.tables import Shown

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

# Equations around one that differs; no program has more.
MAX_CONTEXT = 2**31


@dataclasses.dataclass(frozen=True, repr=False)
class Diff(Shown):
    """Where a program differs from another one; false where they are equal. ``str`` is a text like
    a unified diff: ``-`` is the old program, ``+`` the new one, ``~`` says what was changed.
    Equations that differ alike are there once, with their number; ``pretty(repeats=True)`` has
    all."""

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
        lines = Lines(own=True)
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

    @property
    def by_scope(self) -> tuple[ScopeDiff, ...]:
        """How many equations differ in each name scope, the most first."""
        kinds = {"moved from": "moved"}
        found: dict[str, collections.Counter[str]] = {}
        for row in self.changes:
            of = row.new or row.old
            assert of is not None, "a row has an equation"
            counts = found.setdefault(of.scope, collections.Counter())
            counts[kinds.get(row.kind, row.kind)] += 1
        scopes = (ScopeDiff(scope, **counts) for scope, counts in found.items())
        return tuple(sorted(scopes, key=lambda scope: -scope.count))

    @property
    def repeated(self) -> tuple[Repeated, ...]:
        """What was changed in the same way at several places, the most frequent first."""
        found: collections.Counter[tuple[str, str, str]] = collections.Counter()
        for each in self.differences:
            if each.kind not in ("added", "removed", "moved"):
                # Which of its outputs it is says little.
                what = each.what if each.kind == "param" else each.kind
                found[what, *each.kinds_of_values] += 1
        # Operands from others of the same primitive say nothing alone.
        found = collections.Counter({key: n for key, n in found.items() if key[1] != key[2]})
        return tuple(Repeated(*key, count) for key, count in found.most_common() if count > 1)

    def __str__(self) -> str:
        return self.pretty()

    def pretty(self, *, repeats: bool = False) -> str:
        """The text of the diff.

        Args:
          repeats: whether equations that differ alike are all there, not only the first of them.
        """
        return "\n".join(text for _, text in diff_text.lines(self.programs, self.stat(), repeats))

    def stat(self) -> DiffStat:
        """How much differs, and where: by name scope, and what is different in the same way."""
        return DiffStat(self.summary, self.by_scope, self.repeated)

    def __repr__(self) -> str:
        return f"<jaxide.Diff: {self.summary}>"

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        # A notebook has room beside.
        width = options.max_width if console.is_terminal else None
        yield from diff_text.styled(self.programs, self.stat(), width)

    def html(self) -> str:
        """A page that needs nothing else, the programs side by side."""
        return diff_page.text(self.programs, self.stat())


def _program(found: Mapping[str, Any], line: Lines) -> ProgramDiff:
    old_path, new_path = (tuple(step[side] for step in found["path"]) for side in (0, 1))
    old_scopes, new_scopes = found["scopes"]

    def equation(
        each: Mapping[str, Any] | None, path: tuple[int, ...], around: Sequence[str]
    ) -> DiffEquation | None:
        if each is None:
            return None
        place, scope = (*path, each["place"]), "/".join((*around, *each["scopes"]))
        return DiffEquation(place, each["primitive"], each["text"], line(each["traceback"]), scope)

    def end(detail: tuple[str, str, str, str]) -> Difference:
        kind, name, old, new = detail
        return Difference(kind, None, None, name, old, new, None, new_path)

    def row(each: Mapping[str, Any]) -> DiffRow:
        old = equation(each["old"], old_path, old_scopes)
        new = equation(each["new"], new_path, new_scopes)
        differences = tuple(
            Difference(
                kind, new.path[-1], new.primitive, name, was, is_, _known(new.line), new_path
            )
            for kind, name, was, is_ in each["details"]
            if new is not None
        )
        return DiffRow(each["kind"], old, new, differences, each["words"])

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
