"""Reports as tables: for a terminal, as text, for a notebook."""

from __future__ import annotations

import io
import os
from typing import Any

# How many rows of a table are shown.
MAX_ROWS = 20
# Of a text.
MAX_WIDTH = 10_000


def as_text(report: Any) -> str:
    """What is shown of a report, without colour."""
    from rich.console import Console

    # As wide as the report is: no path is broken.
    console = Console(width=MAX_WIDTH, color_system=None)
    with console.capture() as captured:
        console.print(report)
    return "\n".join(line.rstrip() for line in captured.get().split("\n"))


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
