"""Programs of real size, written with libraries: jaxide against stock jax.

The programs are those of `benches/libraries/`. In one process the texts of the jaxprs are compared,
and the bits of the results: of the jitted function with stock jax, then twice with jaxide
installed, re-created the second time. Ratios are as in the other tables: *warm* retraces of a
re-created function in one process, *cold* first traces of fresh processes, and those *with a
store*. `scripts/libraries` runs this in the environment of each library.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import jax

import first_step
import jaxide
import libraries
import tracing
import warm_start
from jaxide._cli.timing import pairwise_ratio, warm_retraces

TRACERS = (jax.make_jaxpr, jaxide.make_jaxpr)


def recreated(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The same function as another object."""
    return lambda *args: fun(*args)


def compare(name: str, rounds: int) -> dict[str, Any]:
    """Texts, results and warm retraces of a program, in this process."""
    program = libraries.make(name)
    run = program.run or (lambda: jax.jit(recreated(program.step))(*program.args))
    stock = first_step.bits(run())
    with jaxide.accelerated():
        ours = [first_step.bits(run()) for _ in range(2)]
    jaxprs = [tracer(recreated(program.step))(*program.args) for tracer in TRACERS]
    seconds = warm_retraces(TRACERS, program.step, program.args, rounds=rounds)
    return {
        "equations": tracing.read_equations(jaxprs[0]),
        "identical": str(jaxprs[0]) == str(jaxprs[1]),
        "results": ours == [stock, stock],
        "warm": pairwise_ratio(*seconds),
    }


def first_traces(name: str, processes: int) -> dict[str, Any]:
    """First traces of fresh processes: whether all have one text, and the ratios."""
    with tempfile.TemporaryDirectory() as parent:
        folder = os.path.join(parent, "store")
        first = lambda kind, mode: warm_start.in_a_process(kind, name, folder, mode, __file__)
        first("store", "write")
        runs = [[first(kind, "read") for kind in warm_start.KINDS] for _ in range(processes)]
    stock, ours, store = (
        statistics.median(run[place][0] for run in runs) for place in range(len(warm_start.KINDS))
    )
    is_identical = len({text for run in runs for *_, text in run}) == 1
    return {"identical": is_identical, "cold": stock / ours, "store": stock / store}


def measure(name: str, rounds: int, processes: int) -> dict[str, Any]:
    """What a program comes to, each part in processes of its own."""
    command = [sys.executable, __file__, "--compare", name, "--rounds", str(rounds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    compared: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    first = first_traces(name, processes)
    is_identical = compared["identical"] and first["identical"]
    return compared | first | {"identical": is_identical}


def first(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What `warm_start` traces."""
    program = libraries.make(name)
    return program.step, program.args


def main() -> int:
    """Prints what the programs of libraries come to, as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="warm retraces of each tracer")
    parser.add_argument("--processes", type=int, default=3, help="fresh processes of each kind")
    parser.add_argument("--of", choices=libraries.BY_LIBRARY, help="a library")
    parser.add_argument("--compare", help=argparse.SUPPRESS)
    parser.add_argument("--first", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compare:
        said: Any = compare(options.compare, options.rounds)
    elif options.first:
        kind, name = options.first
        said = warm_start.first_trace(kind, lambda: first(name))
    else:
        said = {
            name.partition(":")[2]: measure(name, options.rounds, options.processes)
            for name in libraries.BY_LIBRARY[options.of]
        }
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
