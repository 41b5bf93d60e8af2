"""Answers of the retrace log, as data and for a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jaxide import _compat
from jaxide._reports.diff_rows import Difference
from jaxide._reports.tables import Shown, as_text, counted, shown_line, table

if TYPE_CHECKING:
    from jaxide._reports.tables import Fitted

_ADVICE = {
    "new function object": (
        "the function is made anew: make it once, outside of the loop, or have jaxide run what was "
        "compiled before (jaxide.jit, jaxide.install)"
    ),
    "new jit": "jax.jit is applied anew: apply it once, outside of the loop",
    "argument structure": "give arguments of one structure: each is traced by itself",
    "shape": "pad to few shapes, or put those that occur into buckets: each shape is compiled",
    "dtype": "convert the argument before the call: each dtype is compiled",
    "weak_type": (
        "give an array where a Python number was given, or the other way round: "
        "jnp.asarray(x, dtype) is not weakly typed"
    ),
    "sharding": "place the argument as before (jax.device_put)",
    "static value": "make the argument a traced one, if it need not be a Python value",
    "config": "set this once, before the first call",
    "cache cleared": "something cleared jax's caches (jax.clear_caches, clear_cache)",
    "literal": "the value is built into the program: pass it as an argument, as an array",
}


class Change(NamedTuple):
    """Something about a call that was different from the trace before, of the same function at
    this call site or, for the first one there, at another.

    ``kind`` is one of "first call", "new function object", "new jit", "argument structure",
    "shape", "dtype", "weak_type", "sharding", "static value", "config" and "cache cleared";
    ``name`` that of the argument or setting.
    """

    kind: str
    name: str = ""
    old: str = ""
    new: str = ""

    def __str__(self) -> str:
        of = f" of {self.name}" if self.name else ""
        values = f": {self.old} -> {self.new}" if self.old or self.new else ""
        return f"{self.kind}{of}{values}"


def _without_repetition(all_: Sequence[Difference]) -> list[str]:
    """A line for each difference; one for all equal differences of one line of the user's code."""
    same: dict[object, list[Difference]] = {}
    for each in all_:
        same.setdefault((each.kind, each.old, each.new, each.source), []).append(each)

    def others(found: Sequence[Difference]) -> str:
        return f", and {len(found) - 1} more like it" if len(found) > 1 else ""

    return [f"    {found[0]}{others(found)}" for found in same.values()]


def _has_another_type(difference: Difference) -> bool:
    """Whether a literal is another one (``2.0:f32[]``, ``2:i32[]``) since the types are others."""
    types = [value.rpartition(":")[2] for value in (difference.old, difference.new)]
    return difference.kind == "literal" and types[0] != types[1]


@dataclasses.dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """Why a function was traced, and what its program has that the nearest earlier one has not.

    Attributes:
      site: where it was called.
      function: which function it was.
      changes: what was different from the trace before.
      differences: where the program differs from the nearest earlier one of this call site; empty
        where it is a known program, or none was executed.
      known: whether an earlier program said the same; None where it was not executed.
      compiled: whether it was lowered or compiled, as a known one is under other settings.
      reason: why no executable was shared, where that is not because the program is new.
    """

    site: str
    function: str
    changes: tuple[Change, ...]
    differences: tuple[Difference, ...]
    known: bool | None
    reason: str | None
    compiled: bool = False

    @property
    def advice(self) -> tuple[str, ...]:
        """What to change in the code."""
        kinds = [change.kind for change in self.changes]
        kinds += [each.kind for each in self.differences if not _has_another_type(each)]
        return tuple(dict.fromkeys(_ADVICE[kind] for kind in kinds if kind in _ADVICE))

    def __str__(self) -> str:
        lines = [f"{self.function}, called at {self.site}", "  traced because of"]
        lines += [f"    {change}" for change in self.changes]
        if self.known and self.compiled:
            lines.append("  the program is one that is known, but it was compiled anew")
        elif self.known:
            lines.append("  the program is one that is known: nothing was compiled for it")
        elif self.known is not None:
            lines.append("  the program is new")
        if self.differences:
            lines.append("  from the nearest earlier program it differs in")
            lines += _without_repetition(self.differences)
        if self.reason:
            lines.append(f"  its executable is its own: {self.reason}")
        lines += [f"  - {advice}" for advice in self.advice]
        return "\n".join(map(shown_line, lines))

    def __repr__(self) -> str:
        changes = counted(len(self.changes), "change")
        return f"<jaxide.Explanation: {self.function}, {changes}>"


@dataclasses.dataclass(frozen=True)
class Retrace:
    """The traces of one function from one place in the code.

    Attributes:
      site: where it was called.
      function: which function it was.
      count: how often it was traced.
      tracing: seconds spent tracing.
      lowering: seconds spent lowering; those of programs that are left to stock jax are counted as
        compiling.
      compiling: seconds spent compiling.
      reasons: how often something was different from the trace before, by kind.
      same: how often the program was one that is known.
      shared: how often nothing was lowered or compiled for it.
    """

    site: str
    function: str
    count: int
    tracing: float
    lowering: float
    compiling: float
    reasons: Mapping[str, int]
    same: int
    shared: int

    @property
    def is_of_jax(self) -> bool:
        """Whether the function is one of jax's own, such as that of ``jnp.ones``."""
        return _compat.is_place_of_jax(self.function)

    @property
    def seconds(self) -> float:
        """All that was spent."""
        return self.tracing + self.lowering + self.compiling


class Retraces(tuple[Retrace, ...], Shown):
    """The retrace log, one row for each function and place in the code, the dearest first."""

    __slots__ = ()

    __str__ = as_text

    def __rich__(self) -> Fitted:
        def cells(row: Retrace) -> Iterator[str]:
            yield from (shown_line(row.site), shown_line(row.function))
            yield ", ".join(f"{kind} ({count})" for kind, count in row.reasons.items())
            yield from map(str, (row.count, row.same, row.shared))
            yield from (f"{each:.3f}" for each in (row.tracing, row.lowering, row.compiling))

        texts = ("called at", "function", "because of")
        numbers = ("traces", "same program", "shared", "tracing s", "lowering s", "compiling s")
        spare = ("same program", "lowering s", "tracing s", "compiling s", "shared")
        return table((*texts, *numbers), self, cells, texts=3, most=len(self), spare=spare)

    def __repr__(self) -> str:
        traces = counted(sum(row.count for row in self), "trace")
        return f"<jaxide.Retraces: {counted(len(self), 'function')}, {traces}>"
