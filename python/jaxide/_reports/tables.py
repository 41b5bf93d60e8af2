"""Reports as tables for a terminal."""

from __future__ import annotations

from typing import Any

# How many rows of a table are shown.
MAX_ROWS = 20


def as_text(report: Any) -> str:
    """What is shown of a report, without colour."""
    from rich.console import Console

    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(report)
    return captured.get()


def short(number: int) -> str:
    """A number in at most three digits and a unit."""
    value = float(number)
    for unit in ("", "k", "M", "G", "T", "P", "E"):
        if value < 1000 or unit == "E":
            break
        value /= 1000
    return f"{value:.0f}" if unit == "" else f"{value:.3g} {unit}"
