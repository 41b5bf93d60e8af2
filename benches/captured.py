"""Warm retraces of the workloads as closures: their arguments are captured arrays, not arguments.

A training step that is made anew in each round often has its weights and data that way. Each round
has arrays of its own, so nothing can be known by an array's identity. Stock and jaxide take turns;
the ratio is the median of the ratios of neighbours, and the texts are compared.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax

import jaxide
import report
import workloads
from jaxide._cli.timing import pairwise_ratio


def measure(workload: str, rounds: int) -> list[str]:
    """A row of the table."""
    function, args = workloads.ALL[workload]()

    def trace(make: Callable) -> tuple[float, Any]:
        captured = jax.block_until_ready(jax.tree.map(lambda leaf: leaf.copy(), args))
        gc.collect(1)
        start = time.perf_counter()
        jaxpr = make(lambda: function(*captured))()
        return time.perf_counter() - start, jaxpr

    expected = str(trace(jax.make_jaxpr)[1])
    same = all(str(trace(jaxide.make_jaxpr)[1]) == expected for _ in range(5))
    gc.collect()
    gc.freeze()
    times = [(trace(jax.make_jaxpr)[0], trace(jaxide.make_jaxpr)[0]) for _ in range(rounds)]
    gc.unfreeze()
    stock, ours = zip(*times, strict=True)
    medians = [f"{1e3 * statistics.median(column):.1f}" for column in (stock, ours)]
    ratio = pairwise_ratio(stock, ours)
    return [workload, "yes" if same else "DIFFERS", *medians, f"{ratio:.1f}x"]


def main() -> int:
    """Prints the table and puts it into the document; fails if a text differs."""
    rows, options = report.of_workloads(__doc__, measure, "warm retraces of each tracer")
    if not options.only:
        report.record("captured", ["workload", "identical", "jax, ms", "jaxide, ms", "ratio"], rows)
    return 1 if any("DIFFERS" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
