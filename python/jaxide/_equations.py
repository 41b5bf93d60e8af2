"""``Equation``: an equation of a program or of one within, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxide import _compat


@dataclasses.dataclass(frozen=True)
class Equation:
    """An equation of a program, or of a program that one of its equations runs."""

    path: tuple[int, ...]
    """Positions, from the outermost program inwards: ``(12, 3)`` is equation 3 of the program that
    equation 12 runs. Of a program that several equations run it is the way through one of them."""
    programs: tuple[int, ...]
    """Which of its programs each of the equations on the way runs, in the order of its params
    sorted by name: one number fewer than ``path`` has."""
    primitive: str
    line: str
    """The innermost line of the user's code, as in ``"train.py:7 (loss)"``, or ``"unknown"``."""
    name_stack: str
    """The name scopes around it, those around the equations on the way first."""
    in_avals: tuple[str, ...]
    """The types of the operands, as in ``"f32[8,3]"``."""
    out_avals: tuple[str, ...]
    """The types of the results."""

    def __str__(self) -> str:
        place = ".".join(map(str, self.path))
        arrow = f"{' '.join(self.in_avals)} -> {' '.join(self.out_avals)}"
        scope = f" [{self.name_stack}]" if self.name_stack else ""
        return f"{place}: {self.primitive} {arrow}  {self.line}{scope}"


class Lines:
    """The lines of tracebacks, each looked up once."""

    def __init__(self) -> None:
        # The traceback is kept, so that no other comes to have its address.
        self._known: dict[int, tuple[Any, str]] = {}

    def __call__(self, traceback: Any) -> str:
        """The innermost line of the user's code, or ``"unknown"``."""
        known = self._known.get(id(traceback))
        if known is None:
            line = (traceback is not None and _compat.user_line(traceback)) or "unknown"
            known = self._known[id(traceback)] = traceback, line
        return known[1]

    def equation(self, record: Mapping[str, Any]) -> Equation:
        """The equation of a record of the native core."""
        fields = dict(record)
        return Equation(line=self(fields.pop("traceback")), **fields)
