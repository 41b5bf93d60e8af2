"""The most bytes that are alive at any time, against what XLA sets aside.

XLA's number is that of the compiled program: arguments, outputs and temporary buffers, less what is
shared (`memory_analysis`). Ours is the peak of `Program.liveness`, each equation on its own, and
with what is computed element by element computed where it is needed (`fused=True`). The correlation
is that of the logarithms, over the workloads and over programs of the corpus.
"""

import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun

import jaxide
import report
import workloads

# Programs of the corpus whose peak is smaller are left out: XLA rounds each buffer up.
LEAST = 128


def xla(function: Callable[..., Any], *args: Any) -> int:
    """The bytes that the compiled program has."""
    stats = jax.jit(function).lower(*args).compile().memory_analysis()
    own = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes
    return int(own - stats.alias_size_in_bytes)


def peaks(program: jaxide.Program) -> tuple[int, int]:
    """Of the equations one by one, and fused; XLA has constants in the executable."""
    plain, fused = program.liveness(), program.liveness(fused=True)
    return plain.peak - plain.constant_bytes, fused.peak - fused.constant_bytes


Row = tuple[str, int, int, int]


def row(name: str, plain: int, fused: int, theirs: int) -> list[str]:
    """A row of the table."""
    cells = f"{plain:,}", f"{fused:,}", f"{theirs:,}"
    return [name, *cells, f"{plain / theirs:.3f}", f"{fused / theirs:.3f}"]


def of_workloads() -> list[Row]:
    """What the workloads take."""
    rows = []
    for name, make in workloads.ALL.items():
        function, args = make()
        rows.append((name, *peaks(jaxide.trace(function)(*args)), xla(function, *args)))
        print(*row(*rows[-1]), sep="  ", flush=True)
    return rows


def of_corpus() -> list[Row]:
    """What programs of the corpus take that are large enough and run on one device."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "python"))
    import corpus
    import oracle

    rows = []
    for case in corpus.CASES:
        if case.unevaluated is not None or case.family in ("sharding", "collectives", "pallas"):
            continue
        with case.entered():
            (stock,) = oracle.trace_with([jax.make_jaxpr], case, cold=False, return_shape=False)
            program = jaxide.from_jaxpr(stock.jaxpr)
            plain, fused = peaks(program)
            if plain >= LEAST and not stock.jaxpr.effects:
                flat = jax.tree.leaves(oracle.dynamic_arguments(case, 1))
                rows.append((str(case), plain, fused, xla(jaxpr_as_fun(stock.jaxpr), *flat)))
                print(*row(*rows[-1]), sep="  ", flush=True)
    return rows


def correlations(rows: list[Row]) -> list[str]:
    """Of the logarithms of our numbers with those of XLA's."""
    logs = [[math.log(number) for number in numbers] for _, *numbers in rows]
    *ours, theirs = zip(*logs, strict=True)
    return [f"{statistics.correlation(own, theirs):.4f}" for own in ours]


HEADER = ["program", "one by one, bytes", "fused", "XLA", "ratio", "fused"]


def main() -> int:
    """Prints the table and puts it into the document."""
    rows = of_workloads()
    corpus_rows = of_corpus()
    cells = [row(*each) for each in rows]
    for name, each in (("workloads", rows), (f"{len(corpus_rows)} of the corpus", corpus_rows)):
        cells.append([f"correlation, {name}", "", "", "", *correlations(each)])
        print(*cells[-1], sep="  ", flush=True)
    report.record("memory", HEADER, cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
