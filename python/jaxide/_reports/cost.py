"""What executing a program costs, as data and for a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxide._reports.equations import Lines
from jaxide._reports.tables import Fitted, Shown, as_text, line, short, shown_line, size, table


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
    """The primitive, the line of the user's code (``"train.py:7 (loss)"``), or the program."""
    times: int
    """How often equations run, or the program."""
    cost: Cost
    """The cost of all of them together, or of the program each time."""

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
    def _of(cls, found: Mapping[str, Any], while_trips: int) -> CostReport:
        place = Lines(own=True)
        lines = (Share(line or "unknown", t, Cost(*c)) for line, t, c in found["by_line"])
        return cls(
            total=Cost(*found["total"]),
            by_primitive={
                share.name: share
                for share in _largest(Share(n, t, Cost(*c)) for n, t, c in found["by_primitive"])
            },
            lines=tuple(_largest(lines)),
            by_scope=tuple(_largest(_with_those_within(found["by_scope"]))),
            by_program=tuple(Share(n, t, Cost(*c)) for n, t, c in found["by_program"]),
            unknown=dict(found["unknown"]),
            loops=tuple(map(place, found["loops"])),
            while_trips=while_trips,
            branches=tuple(
                (place(traceback), tuple(Cost(*numbers) for numbers in costs))
                for traceback, costs in found["branches"]
            ),
        )

    __str__ = as_text

    def __repr__(self) -> str:
        flops, accessed = short(self.total.flops), size(self.total.bytes_accessed)
        return f"<jaxide.CostReport: {flops} flops, {accessed} accessed>"

    def __rich_console__(self, _console: Any, _options: Any) -> Any:
        total = Share("total", 1, self.total)
        yield _table("primitive", [*self.by_primitive.values()], total)
        yield _table("line", self.lines, total)
        if self.by_scope:
            yield _table("scope", self.by_scope, total)
        for name, count in self.unknown.items():
            yield line(f"not counted: {name}, {count:,} times")
        for place in self.loops:
            yield line(
                shown_line(f"taken to run {self.while_trips:,} times: the while loop at {place}")
            )


def _with_those_within(scopes: Any) -> list[Share]:
    """What scopes cost, and those around them."""
    found: dict[str, Share] = {}
    for names, times, numbers in scopes:
        for depth in range(1, len(names) + 1):
            name = "/".join(names[:depth])
            before = found.get(name, Share(name, 0, Cost()))
            found[name] = Share(name, before.times + times, before.cost + Cost(*numbers))
    return list(found.values())


def _largest(shares: Any) -> list[Share]:
    """Shares, the most expensive first."""
    by_work = lambda s: (s.cost.flops + s.cost.transcendentals, s.cost.bytes_accessed)
    return sorted(shares, key=by_work, reverse=True)


def _table(of: str, shares: Sequence[Share], total: Share) -> Fitted:
    def cells(share: Share) -> Iterator[str]:
        cost = share.cost
        yield shown_line(share.name)
        yield f"{share.times:,}"
        yield f"{share.part_of(total):.0%}"
        yield from map(short, (cost.flops, cost.transcendentals))
        yield from map(size, (cost.bytes_read, cost.bytes_written))
        yield f"{cost.intensity:.2f}"

    columns = ("times", "share", "flops", "transcendentals", "read", "written", "ops / byte")
    spare = ("ops / byte", "transcendentals", "written", "read", "times")
    return table((of, *columns), shares, cells, last=[total], spare=spare)
