"""The most bytes that are alive at any time, against what XLA sets aside.

    python benches/memory.py [--only WORKLOAD ...]

XLA's number is that of the compiled program: arguments, outputs and temporary buffers. Ours is the
peak of `Program.liveness`, each equation on its own, and with what is computed element by element
computed where it is needed (`fused=True`). The correlation is that of the logarithms, over the
workloads and over programs of the corpus.

Where the two differ, XLA's buffer assignment is read (`xla_buffers.py`), and the difference is
taken apart into what `Program.optimize` takes away as XLA does, the values that are there at one
peak and not at the other, and bytes that XLA sets aside in which nothing is at its peak.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import statistics
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun

import jaxide
import report
import workloads
import xla_buffers

# What is worth an explanation, as a share of XLA's bytes.
TOLERANCE = 0.05

# Programs of the corpus whose peak is smaller are left out: XLA rounds each buffer up.
LEAST = 128

Parts = collections.Counter[str]

# XLA has YNNPACK compute contractions and reductions with what is around them. What it takes for
# that is seen where it does not.
WITHOUT_YNNPACK = {"xla_cpu_experimental_ynn_fusion_type": ""}

# What a difference is made of, other than values: what `Program.optimize` takes away, as XLA does
# itself; and what XLA sets aside in which nothing is at its peak.
OPTIMIZED = "calls and unused equations"
ARGUMENTS = "unused arguments"
EMPTY, ROUNDING, GAPS = "outputs still empty", f"rounding to {xla_buffers.ALIGNMENT}", "gaps"

# Values of the compiled program that come from no equation: copies, addresses of other values.
OWN = "values of XLA's own"
VALUES = "values of equations"


def peak(found: jaxide.LivenessReport) -> int:
    """The peak without constants: XLA has them in the executable."""
    return found.peak - found.constant_bytes


def values(found: jaxide.LivenessReport, buffers: xla_buffers.Buffers) -> Parts:
    """By what makes them: bytes that are alive at our peak and not at XLA's, or below zero, at
    XLA's and not at ours.

    Values of the same bytes are the same where the same primitive made them, and where not, one
    stands for another (a copy in another layout for what it copies). Where one side has more of
    some size, that is the share of each of those that have no counterpart by name.
    """
    ours = collections.Counter(
        (value.equation.primitive if value.equation else value.kind, value.bytes)
        for value in found.alive
        if value.kind not in ("input", "constant")
    )
    theirs = collections.Counter(buffers.alive)
    shares = Parts({ARGUMENTS: found.input_bytes - buffers.arguments})
    for more, less, sign in ((ours - theirs, theirs - ours, 1), (theirs - ours, ours - theirs, -1)):
        sizes = collections.Counter[int]()
        for (_, size), count in more.items():
            sizes[size] += count
        excess = sizes.copy()
        for (_, size), count in less.items():
            excess[size] -= count
        for (name, size), count in more.items():
            shares[name] += round(sign * size * count * max(excess[size], 0) / sizes[size])
    return shares


def parts(
    fused: jaxide.LivenessReport, optimized: jaxide.LivenessReport, buffers: xla_buffers.Buffers
) -> Parts:
    """What the peak of a fused program and XLA's bytes differ by, and that of it optimized."""
    found = values(optimized, buffers)
    found[OPTIMIZED] = peak(fused) - peak(optimized)
    found[EMPTY] = -buffers.empty_outputs
    found[ROUNDING], found[GAPS] = -buffers.rounding, -buffers.gaps
    return found


def cause(name: str) -> str:
    """The group that a part of a difference belongs to."""
    if name in (OPTIMIZED, ARGUMENTS, EMPTY, ROUNDING, GAPS):
        return name
    return OWN if name.startswith("XLA's ") else VALUES


def explained(found: Parts, xla: int) -> str:
    """The parts of a difference that are more than a hundredth of XLA's bytes, and the others."""
    large = [(name, share) for name, share in found.items() if abs(share) > xla / 100]
    said = [f"{name} {share / xla:+.1%}" for name, share in sorted(large, key=lambda p: -abs(p[1]))]
    rest = found.total() - sum(share for _, share in large)
    return ", ".join([*said, f"others {rest / xla:+.1%}"] if abs(rest) > xla / 1000 else said)


def is_far(ours: int, xla: int) -> bool:
    """Whether two numbers differ by more than what is tolerated."""
    return abs(ours - xla) > TOLERANCE * xla


@dataclasses.dataclass(frozen=True)
class Measured:
    """A program: our peaks, one by one and fused, XLA's bytes, and what the last two differ by."""

    name: str
    plain: int
    fused: int
    buffers: xla_buffers.Buffers
    parts: Parts
    elsewise: int | None
    """What XLA sets aside without fusions that YNNPACK runs, if ours is far from what it does."""

    @classmethod
    def of(
        cls, name: str, program: jaxide.Program, function: Callable[..., Any], args: Iterable[Any]
    ) -> Measured:
        """Measures a program that was traced, and compiles it from its function."""
        plain, fused = program.liveness(), program.liveness(fused=True)
        optimized = program.optimize().liveness(fused=True)
        lowered = jax.jit(function).lower(*args)
        buffers = xla_buffers.compiled(lowered)
        found = parts(fused, optimized, buffers)
        missing = peak(fused) - buffers.total - found.total()
        if abs(missing) > len(found):  # Each part may have been rounded.
            raise ValueError(f"{name}: the parts of the difference miss {missing} bytes")
        far = is_far(peak(fused), buffers.total)
        elsewise = xla_buffers.set_aside(lowered.compile(WITHOUT_YNNPACK)) if far else None
        return cls(name, peak(plain), peak(fused), buffers, found, elsewise)

    @property
    def xla(self) -> int:
        """What XLA sets aside."""
        return self.buffers.total

    @property
    def cells(self) -> list[str]:
        """A row of the table."""
        numbers = [f"{number:,}" for number in (self.plain, self.fused, self.xla)]
        ratios = [f"{own / self.xla:.3f}" for own in (self.plain, self.fused)]
        said = []
        if is_far(self.plain, self.xla) and self.plain != self.fused:
            said.append(f"one by one: not fused {(self.plain - self.fused) / self.xla:+.1%}")
        if is_far(self.fused, self.xla):
            said.append(f"fused: {explained(self.parts, self.xla)}")
            if self.buffers.awaiting > TOLERANCE * self.xla:
                share = self.buffers.awaiting / self.xla
                said.append(f"one instruction of XLA's is the last to need {share:.1%}")
        if self.elsewise is not None and self.elsewise != self.xla:
            said.append(f"XLA without YNNPACK {self.elsewise / self.xla - 1:+.1%}")
        return [self.name, *numbers, *ratios, "; ".join(said)]

    def without(self, causes: Collection[str]) -> int:
        """Our peak, fused, if it did not differ from XLA's bytes by these causes."""
        return self.fused - sum(n for name, n in self.parts.items() if cause(name) in causes)

    def by_cause(self) -> Parts:
        """What the groups of parts add up to."""
        found = Parts()
        for name, share in self.parts.items():
            found[cause(name)] += share
        return found


def workload(name: str) -> Measured:
    """Measures a workload."""
    function, args = workloads.ALL[name]()
    return Measured.of(name, jaxide.trace(function)(*args), function, args)


def of_corpus() -> list[Measured]:
    """Measures programs of the corpus that are large enough and run on one device."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "python"))
    import corpus
    import oracle

    found = []
    for case in corpus.CASES:
        if case.unevaluated is not None or case.family in ("sharding", "collectives", "pallas"):
            continue
        with case.entered():
            (stock,) = oracle.trace_with([jax.make_jaxpr], case, cold=False, return_shape=False)
            program = jaxide.from_jaxpr(stock.jaxpr)
            if peak(program.liveness()) >= LEAST and not stock.jaxpr.effects:
                flat = jax.tree.leaves(oracle.dynamic_arguments(case, 1))
                function = jaxpr_as_fun(stock.jaxpr)
                found.append(Measured.of(str(case), program, function, flat))
                print(*found[-1].cells, sep="  ", flush=True)
    return found


CAUSES = ROUNDING, GAPS, EMPTY, OWN, ARGUMENTS, OPTIMIZED, VALUES
CAUSES_HEADER = [
    "what differs",
    "more than 5% in",
    "the most of all in",
    "within 5% without it",
    "and without those above",
    "most often (by more than 5%, in how many)",
]


def causes(far: list[Measured]) -> list[list[str]]:
    """A row for each cause: of how many of the programs it makes the difference."""
    most = Parts(max(CAUSES, key=lambda name: abs(m.by_cause()[name])) for m in far)
    rows = []
    for at, name in enumerate(CAUSES):
        large = sum(abs(m.by_cause()[name]) > TOLERANCE * m.xla for m in far)
        alone = sum(not is_far(m.without([name]), m.xla) for m in far)
        above = sum(not is_far(m.without(CAUSES[: at + 1]), m.xla) for m in far)
        often = Parts(
            f"{part} {'more' if share > 0 else 'less'}"
            for m in far
            for part, share in m.parts.items()
            if cause(part) == name != part and abs(share) > TOLERANCE * m.xla
        )
        said = ", ".join(f"{part} {count}" for part, count in often.most_common(8))
        rows.append([name, *map(str, (large, most[name], alone, above)), said])
    pairs = [(m, m.elsewise) for m in far if m.elsewise is not None]
    changed = sum(is_far(elsewise, m.xla) for m, elsewise in pairs)
    near = sum(not is_far(m.fused, elsewise) for m, elsewise in pairs)
    return [*rows, ["compiled without YNNPACK", str(changed), "", str(near), "", ""]]


def correlations(measured: list[Measured], idle: bool = True) -> list[str]:
    """Of the logarithms of our peaks with those of XLA's bytes, with or without the idle ones."""
    theirs = [math.log(m.xla - (0 if idle else m.buffers.idle)) for m in measured]
    ours = ([math.log(m.plain) for m in measured], [math.log(m.fused) for m in measured])
    return [f"{statistics.correlation(own, theirs):.4f}" for own in ours]


HEADER = ["program", "one by one, bytes", "fused", "XLA", "ratio", "fused"]
HEADER.append("what makes the difference, in parts of XLA's bytes")


def main() -> int:
    """Prints the tables and puts them into the document."""
    measured: list[Measured] = []

    def measure(name: str) -> list[str]:
        measured.append(workload(name))
        return measured[-1].cells

    rows, options = report.of_workloads(__doc__, measure)
    if options.only:
        return 0
    small = of_corpus()
    named = {"workloads": measured, f"{len(small)} of the corpus": small}
    for name, each in named.items():
        for said, idle in (("", True), (", of what is in XLA's bytes", False)):
            cells = [f"correlation, {name}{said}", "", "", "", *correlations(each, idle), ""]
            rows.append(cells)
            print(*cells, sep="  ", flush=True)
    report.record("memory", HEADER, rows)
    far = [each for each in small if is_far(each.fused, each.xla)]
    found = causes(far)
    print(len(far), "of the corpus are off by more than 5%, fused")
    for cells in found:
        print(*cells, sep="  ")
    header = [f"{CAUSES_HEADER[0]}, of {len(far)} programs", *CAUSES_HEADER[1:]]
    report.record("memory-corpus", header, found, script="memory")
    return 0


if __name__ == "__main__":
    sys.exit(main())
