"""What executing a program costs, as data and for a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from jaxide import _compat, _core
from jaxide._reports.equations import Lines
from jaxide._reports.scopes import parameters
from jaxide._reports.tables import (
    MAX_ROWS,
    Fitted,
    Shown,
    as_text,
    line,
    short,
    shown_line,
    size,
    table,
)

# What costs are added up by.
By = Literal["primitive", "line", "scope", "program"]


@dataclasses.dataclass(frozen=True)
class Cost:
    """What executing something costs, its equations one by one."""

    flops: int = 0
    """Additions, multiplications, comparisons and conversions, of elements."""
    transcendentals: int = 0
    """Evaluations of transcendental functions, which are no flops."""
    bytes_read: int = 0
    """Bytes of operands."""
    bytes_written: int = 0
    """Bytes of results."""

    @property
    def bytes_accessed(self) -> int:
        """Bytes that are read or written."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: flops and transcendentals by byte; 0 where no byte is accessed."""
        work = self.flops + self.transcendentals
        return work / self.bytes_accessed if self.bytes_accessed else 0.0

    def __add__(self, other: Cost) -> Cost:
        own, others = dataclasses.astuple(self), dataclasses.astuple(other)
        return Cost(*(a + b for a, b in zip(own, others, strict=True)))


@dataclasses.dataclass(frozen=True)
class Share:
    """The cost of some of the equations."""

    name: str
    """The primitive, the line of the user's code (``"train.py:7 (loss)"``), the name scope
    (``"Block_0/Attention/qkv"``), or the program."""
    times: int
    """How often equations run, or the program."""
    cost: Cost
    """The cost of all of them together, or of the program each time."""
    parameters: int | None = None
    """How many parameters the equations of a name scope read; None of what is no scope."""

    def part_of(self, whole: Share) -> float:
        """Which part of the arithmetic of another this is, from 0 to 1; of the bytes, where that
        has no arithmetic."""
        own, others = self.cost, whole.cost
        if work := others.flops + others.transcendentals:
            return (own.flops + own.transcendentals) / work
        return own.bytes_accessed / others.bytes_accessed if others.bytes_accessed else 0.0


@dataclasses.dataclass(frozen=True)
class CostReport(Shown):
    """The cost of a program and of its parts. ``str`` is a table."""

    total: Cost
    """The whole program, loops as often as they run."""
    by_primitive: Mapping[str, Share]
    """By name of the primitive, the most expensive first."""
    lines: Sequence[Share]
    """By the innermost line of code that is not installed, the most expensive first. An equation
    from nowhere counts for the line that runs its program, or for ``"unknown"``."""
    by_scope: Sequence[Share]
    """By name scope (``"Block_0/Attention/qkv"``), the most expensive first: each with the scopes
    within it, forward and backward. Scopes are those of ``jax.named_scope`` and of modules of flax;
    equations outside of all are in none."""
    by_program: Sequence[Share]
    """The program, then nested ones; branches that are not the most expensive run 0 times."""
    unknown: Mapping[str, int]
    """Primitives without a rule, and how often they run: they count as nothing."""
    loops: Sequence[str]
    """The lines of ``while`` loops: the program does not say how often they run."""
    while_trips: int
    """How often they were taken to run."""
    branches: Sequence[tuple[str, Sequence[Cost]]]
    """The lines of equations with branches, and what each costs; the most expensive one counts."""

    @classmethod
    def _of(
        cls, found: Mapping[str, Any], while_trips: int, counts: Mapping[str, int]
    ) -> CostReport:
        place = Lines(own=True)
        lines = (Share(line or "unknown", t, Cost(*c)) for line, t, c in found["by_line"])
        return cls(
            total=Cost(*found["total"]),
            by_primitive={
                share.name: share
                for share in _largest(Share(n, t, Cost(*c)) for n, t, c in found["by_primitive"])
            },
            lines=tuple(_largest(lines)),
            by_scope=tuple(_largest(_with_those_within(found["by_scope"], counts))),
            by_program=tuple(Share(n, t, Cost(*c)) for n, t, c in found["by_program"]),
            unknown=dict(found["unknown"]),
            loops=tuple(map(place, found["loops"])),
            while_trips=while_trips,
            branches=tuple(
                (place(traceback), tuple(Cost(*numbers) for numbers in costs))
                for traceback, costs in found["branches"]
            ),
        )

    def shares(self, by: By) -> Sequence[Share]:
        """The shares of :attr:`by_primitive`, :attr:`lines`, :attr:`by_scope` or
        :attr:`by_program`.

        Raises:
          ValueError: ``by`` is none of them.
        """
        all_shares: dict[str, Sequence[Share]] = {
            "primitive": tuple(self.by_primitive.values()),
            "line": self.lines,
            "scope": self.by_scope,
            "program": self.by_program,
        }
        if by not in all_shares:
            raise ValueError(f"by must be one of {', '.join(all_shares)}, got {by!r}")
        return all_shares[by]

    def table(self, by: By) -> CostTable:
        """All shares of one kind, as a table. ``str`` is its text.

        Raises:
          ValueError: ``by`` is no kind of share.
        """
        return CostTable(by, self.shares(by), self._total)

    @property
    def _total(self) -> Share:
        return Share("total", 1, self.total)

    __str__ = as_text

    def __repr__(self) -> str:
        flops, accessed = short(self.total.flops), size(self.total.bytes_accessed)
        return f"<jaxide.CostReport: {flops} flops, {accessed} accessed>"

    def __rich_console__(self, _console: Any, _options: Any) -> Any:
        kinds: tuple[By, ...] = ("primitive", "line", "scope")
        for by in kinds if self.by_scope else kinds[:2]:
            yield _table(by, self.shares(by), self._total)
        for name, count in self.unknown.items():
            yield line(f"not counted: {name}, {count:,} times")
        for place in self.loops:
            yield line(
                shown_line(f"taken to run {self.while_trips:,} times: the while loop at {place}")
            )


@dataclasses.dataclass(frozen=True)
class CostTable(Shown):
    """All shares of one kind. ``str`` is a table."""

    by: By
    shares: Sequence[Share]
    total: Share
    """The whole program."""

    __str__ = as_text

    def __rich_console__(self, _console: Any, _options: Any) -> Any:
        yield _table(self.by, self.shares, self.total, most=len(self.shares))


def cost_report(graph: _core.Graph, while_trips: int) -> CostReport:
    """What a program costs."""
    found = _core.cost(graph, while_trips, _compat.own_line)
    return CostReport._of(found, while_trips, parameters(graph) if found["by_scope"] else {})


def _with_those_within(scopes: Any, counts: Mapping[str, int]) -> list[Share]:
    """What scopes cost, and those around them; how many parameters they read."""
    found: dict[str, Share] = {}
    for names, times, numbers in scopes:
        for depth in range(1, len(names) + 1):
            name = "/".join(names[:depth])
            before = found.get(name, Share(name, 0, Cost()))
            cost = before.cost + Cost(*numbers)
            found[name] = Share(name, before.times + times, cost, counts.get(name, 0))
    return list(found.values())


def _largest(shares: Any) -> list[Share]:
    """Shares, the most expensive first."""
    by_work = lambda s: (s.cost.flops + s.cost.transcendentals, s.cost.bytes_accessed)
    return sorted(shares, key=by_work, reverse=True)


def _table(by: By, shares: Sequence[Share], total: Share, most: int = MAX_ROWS) -> Fitted:
    def cells(share: Share) -> Iterator[str]:
        cost = share.cost
        # Of programs the cost is that of each time.
        part = share.part_of(total) * (share.times if by == "program" else 1)
        yield shown_line(share.name)
        yield f"{share.times:,}"
        yield f"{part:.0%}"
        yield from map(short, (cost.flops, cost.transcendentals))
        yield from map(size, (cost.bytes_read, cost.bytes_written))
        yield f"{cost.intensity:.2f}"
        if by == "scope":
            yield "" if share.parameters is None else f"{share.parameters:,}"

    columns = ["times", "share", "flops", "transcendentals", "read", "written", "ops / byte"]
    spare = ["ops / byte", "transcendentals", "written", "read", "times"]
    if by == "scope":
        columns.append("parameters")
        spare.append("parameters")
    return table((by, *columns), shares, cells, last=[total], most=most, spare=spare)
