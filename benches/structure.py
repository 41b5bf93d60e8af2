"""Reading and hashing programs, against the time of stock's `str(jaxpr)`.

For an existing jaxpr, traced by stock jax: its structural hash, and a `Program` made of it. For a
trace of jaxide's: the trace alone, and its structural hash, which is not there before it is asked
for. All take turns; the ratios are the medians of the ratios of neighbours.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core

import jaxide
import report
import workloads
from jaxide._cli.timing import pairwise_ratio


def timed(function: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function(*args)
    return time.perf_counter() - start, result


def count(jaxpr: Any) -> int:
    """Equations, those of programs within as often as they are printed."""
    within = jax.extend.core.jaxprs_in_params
    return sum(1 + sum(map(count, within(eqn.params))) for eqn in jaxpr.eqns)


def measure(workload: str, rounds: int) -> list[str]:
    """A row of the table."""
    function, args = workloads.ALL[workload]()
    jaxpr = jax.make_jaxpr(function)(*args)
    trace = lambda: jaxide.trace(lambda *args: function(*args))(*args)
    hash_of = lambda program: program.structural_hash

    def one_round() -> tuple[float, ...]:
        gc.collect(1)
        existing = [
            timed(function, jaxpr)[0]
            for function in (str, jaxide.structural_hash, jaxide.from_jaxpr)
        ]
        tracing, program = timed(trace)
        return *existing, tracing, timed(hash_of, program)[0]

    for _ in range(3):
        one_round()
    gc.collect()
    gc.freeze()
    columns = list(zip(*(one_round() for _ in range(rounds)), strict=True))
    gc.unfreeze()
    text, hashing, reading, tracing, hashing_trace = columns
    milliseconds = [f"{1e3 * statistics.median(column):.2f}" for column in columns]
    return [
        workload,
        f"{len(jaxpr.eqns):,} / {count(jaxpr.jaxpr):,}",
        milliseconds[0],
        milliseconds[1],
        f"{pairwise_ratio(text, hashing):.1f}x",
        milliseconds[2],
        f"{pairwise_ratio(text, reading):.1f}x",
        milliseconds[3],
        milliseconds[4],
        f"{100 * pairwise_ratio(hashing_trace, tracing):.0f}%",
    ]


HEADER = [
    "workload",
    "equations: top / all",
    "`str`, ms",
    "`structural_hash`, ms",
    "`str` / hash",
    "`from_jaxpr`, ms",
    "`str` / read",
    "jaxide's trace, ms",
    "its hash, ms",
    "hash / trace",
]


def main() -> int:
    """Prints the table and puts it into the document."""
    rows, options = report.of_workloads(__doc__, measure, "measurements of each kind")
    if not options.only:
        report.record("structure", HEADER, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
