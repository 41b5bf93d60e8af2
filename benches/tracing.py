"""Tracing speed of jaxide against stock jax, over all workloads and models.

A *warm retrace* traces the same program through a new function object, the caches of both tracers
being filled; stock and jaxide take turns in one process, and the ratio is the median of the ratios
of neighbours. It is measured as traced, and again with every equation of the result read, nested
ones included, since what is filled on demand is paid for by whoever reads it. A *cold* trace is
the first one of a fresh process, after the arguments exist. The *floor* is the user's own code with
every call of jax answered from a list: no tracer of Python functions can be faster.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src.core import jaxprs_in_params

import jaxide
import models
import report
import workloads
from jaxide import _core
from jaxide._cli.timing import pairwise_ratio, warm_retraces

PROGRAMS = workloads.ALL | models.ALL
TRACERS = {"jax": jax.make_jaxpr, "jaxide": jaxide.make_jaxpr}


def read_equations(jaxpr: Any) -> int:
    """Reads every field of every equation, nested ones included; returns how many there are."""
    count = 0
    pending = [jaxpr]
    while pending:
        for eqn in pending.pop().eqns:
            _ = eqn.primitive, eqn.invars, eqn.outvars, eqn.effects, eqn.source_info, eqn.ctx
            pending.extend(jaxprs_in_params(eqn.params))
            count += 1
    return count


def cold_seconds(tracer: str, workload: str) -> float:
    """Seconds of the first trace of a fresh process."""
    command = [sys.executable, __file__, "--cold", tracer, workload]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def trace_cold(tracer: str, workload: str) -> float:
    """What the fresh process does: makes the arguments, then traces once."""
    fun, args = PROGRAMS[workload]()
    jax.block_until_ready(args)
    gc.collect()  # else one of what was imported comes within by chance
    start = time.perf_counter()
    TRACERS[tracer](fun)(*args)
    return time.perf_counter() - start


def floor_seconds(fun: Callable[..., Any], args: Sequence[Any], rounds: int) -> list[float]:
    """Seconds of the user's code alone, its calls of jax answered with what they returned."""
    seconds = []

    def measured(*tracers: Any) -> Any:
        with _core.Script() as script:
            result = fun(*tracers)
            for _ in range(rounds):
                gc.collect()
                script.play()
                start = time.perf_counter()
                fun(*tracers)
                seconds.append(time.perf_counter() - start)
        return result

    jaxide.make_jaxpr(measured)(*args)
    return seconds


def milliseconds(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.1f}"


def ratio(stock: Sequence[float], ours: Sequence[float]) -> str:
    return f"{pairwise_ratio(stock, ours):.2f}x"


def measure(workload: str, make: Callable[[], Any], rounds: int, processes: int) -> list[str]:
    """The row of one workload."""
    fun, args = make()
    stock_jaxpr, our_jaxpr = (make_jaxpr(fun)(*args) for make_jaxpr in TRACERS.values())
    identical = str(stock_jaxpr) == str(our_jaxpr)
    equations = f"{len(stock_jaxpr.eqns):,} / {read_equations(stock_jaxpr):,}"
    del stock_jaxpr, our_jaxpr

    tracers = list(TRACERS.values())
    warm = warm_retraces(tracers, fun, args, rounds=rounds)
    read = warm_retraces(tracers, fun, args, rounds=rounds, read=read_equations)
    by_process = [[cold_seconds(tracer, workload) for tracer in TRACERS] for _ in range(processes)]
    cold = list(zip(*by_process, strict=True))
    floor = floor_seconds(fun, args, rounds) if workload in workloads.PLAIN else None
    cells = [
        cell
        for stock, ours in (warm, read, cold)
        for cell in (milliseconds(stock), milliseconds(ours), ratio(stock, ours))
    ]
    floor_cells = ["", ""]
    if floor is not None:
        highest = statistics.median(warm[0]) / statistics.median(floor)
        floor_cells = [milliseconds(floor), f"{highest:.0f}x"]
    verdict = "yes" if identical else "**NO**"
    return [workload, equations, verdict, *cells[:3], *floor_cells, *cells[3:]]


def row_of(workload: str, rounds: int, processes: int) -> list[str]:
    """The row of one workload, measured in a process of its own: what others left in the heap slows
    down whoever makes objects."""
    numbers = ["--rounds", str(rounds), "--processes", str(processes)]
    command = [sys.executable, __file__, "--row", workload, *numbers]
    made = subprocess.run(command, check=True, capture_output=True, text=True)
    row: list[str] = json.loads(made.stdout.splitlines()[-1])
    return row


def main() -> int:
    """Prints the table and puts it into the document; fails if a text differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="warm retraces of each tracer")
    parser.add_argument("--processes", type=int, default=3, help="fresh processes of each tracer")
    parser.add_argument("--only", choices=PROGRAMS, nargs="+", help="measure, do not record")
    parser.add_argument("--cold", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cold:
        print(trace_cold(*options.cold))
        return 0
    if options.row:
        make = PROGRAMS[options.row]
        print(json.dumps(measure(options.row, make, options.rounds, options.processes)))
        return 0

    rows = []
    for workload in options.only or PROGRAMS:
        rows.append(row_of(workload, options.rounds, options.processes))
        print(*rows[-1], sep="  ", flush=True)
    header = ["workload", "equations: top / all", "identical"]
    for kind in ("warm", "warm, read", "cold"):
        header += [f"{kind}: jax, ms", "jaxide, ms", "ratio"]
        header += ["floor, ms", "jax / floor"] if kind == "warm" else []
    if not options.only:
        report.record("tracing", header, rows)
    return 0 if all(row[2] == "yes" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
