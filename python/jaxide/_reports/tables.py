"""Reports as tables: for a terminal, as text, for a notebook."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.table import Table
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

    # As wide as the report is: no path is broken.
    console = Console(width=MAX_WIDTH, color_system=None)
    with console.capture() as captured:
        console.print(report)
    return "\n".join(line.rstrip() for line in captured.get().split("\n"))


def table(
    columns: Sequence[str],
    items: Sequence[Item],
    cells: Callable[[Item], Iterable[str]],
    *,
    texts: int = 1,
    last: Sequence[Item] = (),
    most: int = MAX_ROWS,
    more: str = "",
) -> Table:
    """A table of items, each with its cells: some texts, then numbers. None of them is markup.

    Args:
      texts: how many columns are texts.
      last: what comes after the items, such as the sum of all.
      most: so many items are shown; the caption says how many more there are, and ``more``.
    """
    from rich.table import Table

    made = Table(box=None, pad_edge=False, caption_justify="left")
    for place, column in enumerate(columns):
        made.add_column(column, justify="left" if place < texts else "right", overflow="fold")
    for item in (*items[:most], *last):
        made.add_row(*map(line, cells(item)))
    if len(items) > most:
        made.caption = f"{len(items) - most:,} more{more}"
    return made


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


def shown_line(line: str) -> str:
    """A line of code (``"/home/me/train.py:7 (loss)"``) with its path from the working directory,
    where it is in there."""
    folder = os.getcwd() + os.sep
    return line.removeprefix(folder)


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
