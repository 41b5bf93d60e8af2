"""How much differs of two programs, and where."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jaxide._reports.diff_rows import Repeated, ScopeDiff
from jaxide._reports.tables import Shown, as_text, line, shortened, table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@dataclasses.dataclass(frozen=True, repr=False)
class DiffStat(Shown):
    """How much differs of two programs, in a few lines."""

    summary: str
    """How many equations were added, removed, changed and moved."""
    by_scope: tuple[ScopeDiff, ...]
    """The same for each name scope, the most first."""
    repeated: tuple[Repeated, ...]
    """What was changed in the same way at several places, the most frequent first."""

    __str__ = as_text

    def __repr__(self) -> str:
        return f"<jaxide.DiffStat: {self.summary}>"

    def __rich_console__(self, _console: Console, _options: Any) -> Iterator[RenderableType]:
        yield line(self.summary)
        if any(scope.scope for scope in self.by_scope):
            columns = ("scope", "added", "removed", "changed", "moved")
            yield table(columns, self.by_scope, _counts)
        if self.repeated:
            yield table(("the same change", "times"), self.repeated, _change)


def _counts(scope: ScopeDiff) -> Iterator[str]:
    yield scope.scope or "(none)"
    for number in (scope.added, scope.removed, scope.changed, scope.moved):
        yield f"{number:,}" if number else ""


def _change(each: Repeated) -> Iterator[str]:
    yield f"{each.what}: {shortened(each.old)} -> {shortened(each.new)}"
    yield f"{each.count:,}"
