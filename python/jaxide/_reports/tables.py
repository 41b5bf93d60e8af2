"""Reports as tables: for a terminal, as text, for a notebook."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

Item = TypeVar("Item")

# How many rows of a table are shown.
MAX_ROWS = 20
# Of a text.
MAX_WIDTH = 10_000
# Of a value in it.
MAX_VALUE = 160


def as_text(report: Any) -> str:
    """What is shown of a report, without colour."""
    from rich.console import Console

    # As wide as the report is: no path is broken. In a notebook rich would show it, too.
    console = Console(width=MAX_WIDTH, color_system=None, force_jupyter=False)
    with console.capture() as captured:
        console.print(report)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def table(
    columns: Sequence[str],
    items: Sequence[Item],
    cells: Callable[[Item], Iterable[str]],
    *,
    texts: int = 1,
    last: Sequence[Item] = (),
    most: int = MAX_ROWS,
    more: str = "",
    spare: Sequence[str] = (),
    prose: str | None = None,
) -> Fitted:
    """A table of items, each with its cells: some texts, then numbers. None of them is markup.

    Args:
      texts: how many columns are texts.
      last: what comes after the items, such as the sum of all.
      most: so many items are shown; the caption says how many more there are, and ``more``.
      spare: columns that are left out where there is no room, the first one first.
      prose: the column of sentences, which are wrapped.
    """
    rows = [list(cells(item)) for item in (*items[:most], *last)]
    caption = f"{len(items) - most:,} more{more}" if len(items) > most else ""
    return Fitted(list(columns), rows, texts, caption, list(spare), prose)


class Fitted:
    """A table that is as wide as there is room: spare columns are left out, then texts are cut in
    the middle. No cell but of prose takes two lines."""

    def __init__(
        self,
        columns: list[str],
        rows: list[list[str]],
        texts: int,
        caption: str,
        spare: list[str],
        prose: str | None,
    ):
        self._columns, self._rows, self._texts = columns, rows, texts
        self._caption, self._spare, self._prose = caption, spare, prose

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Any]:
        from rich.table import Table

        shown, widths, left_out = self._fitted(options.max_width)
        made = Table(box=None, pad_edge=False)
        cells = [list(column) for column in zip(*self._rows, strict=True)] or [
            [] for _ in self._columns
        ]
        for place in shown:
            justify: Any = "left" if place < self._texts else "right"
            is_prose = self._columns[place] == self._prose
            made.add_column(line(self._columns[place]), justify=justify, no_wrap=not is_prose)
            if not is_prose:
                cells[place] = [cut(cell, widths[place]) for cell in cells[place]]
        for row in zip(*(cells[place] for place in shown), strict=True):
            made.add_row(*map(line, row))
        yield made
        if self._caption:
            yield line(self._caption)
        if left_out:
            yield line(f"(no room for: {', '.join(left_out)})")

    def _fitted(self, room: int) -> tuple[list[int], list[int], list[str]]:
        """Which columns are shown, how wide each is, and the names of the others."""
        from rich.cells import cell_len

        columns = zip(self._columns, *self._rows, strict=True)
        widths = [max(map(cell_len, column)) for column in columns]
        least = [
            min(width, MIN_TEXT) if place < self._texts else width
            for place, width in enumerate(widths)
        ]
        shown, left_out = list(range(len(widths))), []
        for name in self._spare:
            if sum(least[place] for place in shown) + _GAP * (len(shown) - 1) <= room:
                break
            shown.remove(self._columns.index(name))
            left_out.append(name)
        texts = [place for place in shown if place < self._texts]
        left = room - sum(widths[place] for place in shown) - _GAP * (len(shown) - 1)
        while left < 0 and any(widths[place] > least[place] for place in texts):
            widest = max(texts, key=lambda place: widths[place] - least[place])
            widths[widest] -= 1
            left += 1
        return shown, widths, left_out


# Characters of a text that is cut, and between columns.
MIN_TEXT = 24
_GAP = 2


def cut(text: str, most: int) -> str:
    """A text of so many characters: what is left out is in the middle, more of the end is there."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= most:
        return text
    begin = (most - 1) // 4
    end = text[len(text) - (most - 1 - begin) :]
    while end and cell_len(end) > most - 1 - begin:
        end = end[1:]
    return f"{set_cell_size(text, begin)}\N{HORIZONTAL ELLIPSIS}{end}"


def line(text: str) -> Text:
    """A line of a report, in which nothing is markup: a name scope is ``[layer]``."""
    from rich.text import Text

    return Text(text)


def shortened(text: str, most: int = MAX_VALUE) -> str:
    """A text on one line, the end left out where it is long, and how much that is."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    return f"{line[:most]}... ({len(line) - most:,} more characters)"


def shown_line(text: str) -> str:
    """A text with a line of code (``"/home/me/train.py:7 (loss)"``), in which the path is short:
    from the working directory, and of an installed package from that."""
    text = text.replace(os.getcwd() + os.sep, "")
    return _INSTALLED.sub("", _CELL.sub(_cell_of, text))


def _cell_of(file: re.Match[str]) -> str:
    """The cell that a kernel of Jupyter's has put into a file: ``In[3]``."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name = shell and shell.compile.format_code_name(file[0])
    return name[1] if name else file[0]


_CELL = re.compile(r"[^\s()]*ipykernel_\d+[/\\]\d+\.py")
_INSTALLED = re.compile(r"(?<!\S)\S*[/\\](?:site|dist)-packages[/\\]")


def as_html(report: Any) -> str:
    """What a notebook shows of a report: the same in HTML, colours included."""
    from rich.console import Console
    from rich.text import Text

    shown = report if hasattr(report, "__rich_console__") or hasattr(report, "__rich__") else None
    # In a notebook rich would print at once.
    console = Console(
        width=160, file=io.StringIO(), record=True, force_jupyter=False, color_system="truecolor"
    )
    console.print(Text(str(report)) if shown is None else shown)
    return console.export_html(inline_styles=True, code_format=_PRE)


# The text of a console, which is escaped.
_PRE = '<pre style="white-space:pre;overflow-x:auto;line-height:normal">{code}</pre>'


class Shown:
    """A report that notebooks show as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return as_html(self)


def counted(count: int, what: str) -> str:
    """A number of things: ``"1 equation"``, ``"3 equations"``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def short(number: int) -> str:
    """A number in at most three digits and a unit."""
    value = float(number)
    for unit in ("", "k", "M", "G", "T", "P", "E"):
        if value < 1000 or unit == "E":
            break
        value /= 1000
    return f"{value:.0f}" if unit == "" else f"{value:.3g} {unit}"


def size(number: int) -> str:
    """A number of bytes in three digits and a binary unit: ``"812 B"``, ``"1.18 MiB"``."""
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if value < 1024 or unit == "EiB":
            break
        value /= 1024
    digits = 0 if unit == "B" or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"
