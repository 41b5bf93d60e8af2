"""Analyses, passes and storage of one long program, a chain of equations.

    python benches/analyses.py [--equations N] [--rounds N]

The program has been traced and read before; each row is the median of what one call takes. What
the native core takes is without the dataclasses that Python makes of its answer, but with the
records of the equations in it.
"""

import argparse
import gc
import statistics
import sys
from collections.abc import Callable, Iterator

import jaxide
import report
import workloads
from jaxide import _compat, _core
from jaxide._native import program_files
from structure import timed


def calls(
    program: jaxide.Program, other: jaxide.Program, half: jaxide.Program
) -> Iterator[tuple[str, Callable[[], object] | None, Callable[[], object]]]:
    """What is measured: its name, the call of the native core, the call as users make it."""
    graph, another = program._read_graph(), other._read_graph()
    halved = half._read_graph()
    content = program_files.to_bytes(_compat.program_files(), program.jaxpr, (None, None))
    yield "content_hash", None, lambda: program.content_hash
    yield "== another", None, lambda: program == other
    yield "str", None, lambda: str(program)
    yield "cost", lambda: _core.cost(graph, 1, _compat.own_line), program.cost
    yield "liveness", lambda: _core.liveness(graph, [False] * 2, False), program.liveness
    yield "histogram", lambda: _core.histogram(graph, "once"), program.histogram
    yield (
        "find, one of many",
        lambda: _core.find(graph, "cos", None, None, None, None),
        lambda: program.find("cos"),
    )
    yield "depends_on, all of it", lambda: _core.depends_on(graph, 0), lambda: program.depends_on(0)
    yield "used_by, all of it", lambda: _core.used_by(graph, 0), lambda: program.used_by(0)
    yield "unused_inputs", lambda: _core.unused_inputs(graph), program.unused_inputs
    yield "dead", lambda: _core.dead(graph), program.dead
    yield (
        "critical_path, all of it",
        lambda: _core.critical_path(graph, "equations", 1),
        program.critical_path,
    )
    yield "duplicates", lambda: _core.duplicates(graph), program.duplicates
    yield "large_constants", lambda: _core.large_constants(graph, 0), program.large_constants
    yield "precision", lambda: _core.precision(graph), program.precision
    yield "effects", lambda: _core.effects(graph), program.effects
    options = {"of": "content", "context": 3, "limit": None, "names": True}
    yield (
        "diff, one more equation, and its text",
        lambda: _core.diff(graph, another, **options),
        lambda: str(program.diff(other)),
    )
    yield (
        "diff, another dtype",
        lambda: _core.diff(graph, halved, **options),
        lambda: program.diff(half),
    )
    for name in jaxide.PASSES:
        yield f'optimize(["{name}"])', None, lambda name=name: program.optimize([name])
    yield (
        "save, without the disk",
        None,
        lambda: program_files.to_bytes(_compat.program_files(), program.jaxpr, (None, None)),
    )
    yield (
        "load, without the disk",
        None,
        lambda: program_files.of_bytes(_compat.program_files(), content),
    )
    for name in ("json", "python", "dot", "html", "pprof", "model_explorer"):
        yield f"to_{name}", None, getattr(program, f"to_{name}")


def measure(call: Callable[[], object] | None, rounds: int) -> str:
    """The median in milliseconds."""
    if call is None:
        return ""
    call()
    gc.collect()
    gc.freeze()
    times = [timed(call)[0] for _ in range(rounds)]
    gc.unfreeze()
    return f"{1e3 * statistics.median(times):,.1f}"


def main() -> int:
    """Prints the table and puts it into the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--equations", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    function, args = workloads.lax_chain(options.equations)
    program = jaxide.trace(function)(*args)
    other = jaxide.trace(lambda x, y: function(x, y) * 2.0)(*args)
    half = jaxide.trace(function)(*(arg.astype("bfloat16") for arg in args))
    rows = []
    for name, native, whole in calls(program, other, half):
        rows.append([f"`{name}`", measure(native, options.rounds), measure(whole, options.rounds)])
        print(*rows[-1], sep="  ", flush=True)
    header = [f"{options.equations:,} equations", "native core, ms", "whole call, ms"]
    report.record("analyses", header, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
