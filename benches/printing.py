"""Printing programs, against stock's `str(jaxpr)`.

A jaxpr that jaxide has traced and nobody has read; a `Program` made of a jaxpr that stock has
traced, with and without reading it into the IR. All print the same text; all take turns; the ratios
are the medians of the ratios of neighbours. Then the text of ever longer chains.
"""

import gc
import statistics
import sys
from collections.abc import Callable
from typing import Any

import jax

import jaxide
import report
import workloads
from jaxide._cli.timing import pairwise_ratio
from structure import count, timed

LENGTHS = (1_000, 10_000, 100_000, 1_000_000)


def measure(name: str, function: Callable[..., Any], args: Any, rounds: int) -> list[str]:
    """A row of the table."""
    jaxpr = jax.make_jaxpr(function)(*args)
    known = jaxide.from_jaxpr(jaxpr)

    def one_round() -> tuple[float, ...]:
        gc.collect(1)
        traced = jaxide.make_jaxpr(lambda *args: function(*args))(*args)
        stock, expected = timed(str, jaxpr)
        own, text = timed(str, traced)
        of_program, program_text = timed(str, known)
        reading, read_text = timed(lambda: str(jaxide.from_jaxpr(jaxpr)))
        assert text == program_text == read_text == expected
        return stock, own, of_program, reading

    if rounds > 1:
        one_round()
    gc.collect()
    gc.freeze()
    columns = list(zip(*(one_round() for _ in range(rounds)), strict=True))
    gc.unfreeze()
    stock, *others = columns
    cells = [f"{1e3 * statistics.median(stock):.1f}"]
    for column in others:
        cells += [f"{1e3 * statistics.median(column):.2f}", f"{pairwise_ratio(stock, column):.1f}x"]
    return [name, f"{len(jaxpr.eqns):,} / {count(jaxpr.jaxpr):,}", *cells]


HEADER = [
    "program",
    "equations: top / all",
    "jax, ms",
    "jaxide's trace, ms",
    "ratio",
    "`Program`, ms",
    "ratio",
    "read and printed, ms",
    "ratio",
]


def main() -> int:
    """Prints the table and puts it into the document."""
    rows, options = report.of_workloads(
        __doc__,
        lambda workload, rounds: measure(workload, *workloads.ALL[workload](), rounds),
        "measurements of each kind",
    )
    if not options.only:
        for length in LENGTHS:
            program = workloads.lax_chain(length)
            rounds = max(1, min(options.rounds, 100_000 // length))
            rows.append(measure(f"lax_chain, {length:,}", *program, rounds))
            print(*rows[-1], sep="  ", flush=True)
        report.record("printing", HEADER, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
