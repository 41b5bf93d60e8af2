"""``Equation``: an equation of a program or of one within, as data."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, overload

from jaxide import _compat, _core

Item = TypeVar("Item", covariant=True)

# So many items are read at a time.
BLOCK = 256


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
    """The name of its primitive, as in ``"dot_general"``."""
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
    """The lines of tracebacks, each looked up once: the innermost ones of the user's code or, where
    ``own`` says so, of code that is not installed."""

    def __init__(self, own: bool = False) -> None:
        self._line = _compat.own_line if own else _compat.user_line
        # The traceback is kept, so that no other comes to have its address.
        self._known: dict[int, tuple[Any, str]] = {}

    def __call__(self, traceback: Any) -> str:
        """The line, or ``"unknown"``."""
        known = self._known.get(id(traceback))
        if known is None:
            line = (traceback is not None and self._line(traceback)) or "unknown"
            known = self._known[id(traceback)] = traceback, line
        return known[1]

    def equation(self, record: Mapping[str, Any]) -> Equation:
        """The equation of a record of the native core."""
        fields = dict(record)
        return Equation(line=self(fields.pop("traceback")), **fields)


class Read(Sequence[Item]):
    """Items that are read when they are looked at. Equal to any sequence of the same items; a copy
    is a tuple."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (list(self),)


class Records(Protocol):
    """What the native core has found, as records that it makes when they are asked for."""

    def __len__(self) -> int: ...
    def records(self, start: int, stop: int, /) -> list[dict[str, Any]]: ...


class Blocks(Read[Item]):
    """Items that are made of records, a block of them at a time."""

    def __init__(self, found: Records, item: Callable[[Mapping[str, Any]], Item]):
        self._found = found
        self._item = item
        self._blocks: dict[int, list[Item]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def _block(self, number: int) -> list[Item]:
        if number not in self._blocks:
            start = number * BLOCK
            records = self._found.records(start, min(start + BLOCK, len(self)))
            self._blocks[number] = list(map(self._item, records))
        return self._blocks[number]

    def __iter__(self) -> Iterator[Item]:
        for start in range(0, len(self), BLOCK):
            yield from self._block(start // BLOCK)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return tuple(self._block(at // BLOCK)[at % BLOCK] for at in positions)
        return self._block(positions // BLOCK)[positions % BLOCK]


class Equations(Blocks[Equation]):
    """Equations that were found."""

    def __init__(self, found: _core.Found, lines: Lines):
        super().__init__(found, lines.equation)


class Groups(Read[Sequence[Equation]]):
    """Groups of equations that were found."""

    def __init__(self, lengths: Sequence[int], equations: Equations):
        self._ends = (0, *itertools.accumulate(lengths))
        self._equations = equations

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> Sequence[Equation]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Sequence[Equation]]: ...
    def __getitem__(self, index: int | slice) -> Sequence[Equation] | Sequence[Sequence[Equation]]:
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return tuple(self[at] for at in positions)
        return self._equations[self._ends[positions] : self._ends[positions + 1]]
