"""What passes leave of programs, and how long they take.

Equations are counted in the program and all within it, each program once. The time is that of
`Program.optimize()` on a program that has been read, all passes to their fixpoint; the values of
equations on literals are computed in the first run, which is not counted.
"""

import statistics
import sys

import jax

import jaxide
import report
import workloads
from structure import count, timed

HEADER = [
    "program",
    "equations",
    "all passes",
    *(f"only `{name}`" for name in jaxide.PASSES),
    "time, ms",
]


def measure(workload: str, rounds: int) -> list[str]:
    """A row of the table."""
    function, args = workloads.ALL[workload]()
    program = jaxide.from_jaxpr(jax.make_jaxpr(function)(*args))
    optimized = program.optimize()
    single = [program.optimize([name]) for name in jaxide.PASSES]
    numbers = [count(p.jaxpr.jaxpr) for p in (program, optimized, *single)]
    times = [timed(program.optimize)[0] for _ in range(rounds)]
    return [
        workload,
        f"{numbers[0]:,}",
        *(f"{number:,} ({number / numbers[0] - 1:+.0%})" for number in numbers[1:]),
        f"{1e3 * statistics.median(times):.1f}",
    ]


def main() -> int:
    """Prints the table and puts it into the document."""
    rows, options = report.of_workloads(__doc__, measure, "measurements of the time")
    if not options.only:
        report.record("passes", HEADER, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
