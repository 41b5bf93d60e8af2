"""How the cost of an equation grows with the program, for jaxide and for stock jax.

Three tables: the time of an equation and the peak memory of an equation while a long program of
plain lax primitives is traced, and the time of an operation when the program reads
`tracer.sharding` (an AttributeError) between its operations. Each measurement has a process to
itself. Time is the tracing thread's own, since what is compared was not measured side by side.
Memory is the growth of the process's peak resident set, which counts what Rust allocates as well
as what Python does.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import jaxide
import report
import workloads

TRACERS = {"jax": jax.make_jaxpr, "jaxide": jaxide.make_jaxpr}
CHAIN_LENGTHS = [10_000, 100_000, 1_000_000]
SHARDING_LENGTHS = [250, 500, 1_000, 2_000]
WARM_UP_LENGTH = 100

Workload = tuple[Callable[..., Any], tuple[Any, ...]]


def sharding_chain(n: int) -> Workload:
    """n operations, each followed by a look at the sharding of its result."""

    def f(x, y):
        for _ in range(n // 2):
            x = lax.mul(x, y)
            assert not hasattr(x, "sharding")  # unknown while tracing
            x = lax.sin(x)
            assert not hasattr(x, "sharding")
        return x

    return f, (jnp.ones((8, 8)), jnp.ones((8, 8)))


PROGRAMS = {"lax_chain": workloads.lax_chain, "sharding_chain": sharding_chain}


def peak_bytes() -> int:
    """The largest resident set of this process since it was last reset."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def reset_peak() -> None:
    """Sets the largest resident set to the present one."""
    Path("/proc/self/clear_refs").write_text("5")


def trace_here(tracer: str, program: str, n: int, repeats: int) -> dict[str, float]:
    """What a fresh process does: warms up on a short program, then traces the long one."""
    make_jaxpr = TRACERS[tracer]
    fun, args = PROGRAMS[program](WARM_UP_LENGTH)
    make_jaxpr(fun)(*args)
    fun, args = PROGRAMS[program](n)
    jax.block_until_ready(args)
    seconds = []
    growth = 0
    for repeat in range(repeats):
        gc.collect()
        reset_peak()
        before = peak_bytes()
        start = time.thread_time()
        jaxpr = make_jaxpr(lambda *a: fun(*a))(*args)
        seconds.append(time.thread_time() - start)
        if repeat == 0:  # later traces find memory that the first one left to the allocator
            growth = peak_bytes() - before
        assert len(jaxpr.eqns) == n
        del jaxpr
    return {"microseconds": statistics.median(seconds) / n * 1e6, "bytes": growth / n}


def trace_in_fresh_process(tracer: str, program: str, n: int) -> dict[str, float]:
    repeats = 1 if n >= 1_000_000 else 3 if n >= 100_000 else 9
    command = [sys.executable, __file__, "--child", tracer, program, str(n), str(repeats)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def growth_row(name: str, values: Sequence[float], digits: int) -> list[str]:
    """A row of values by program length, closed by the growth from the first to the last."""
    return [name, *(f"{v:,.{digits}f}" for v in values), f"{values[-1] / values[0]:.2f}x"]


def main() -> None:
    """Prints the tables and puts them into the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        tracer, program, n, repeats = options.child
        print(json.dumps(trace_here(tracer, program, int(n), int(repeats))))
        return

    sections = []
    for program, lengths, rows in [
        ("lax_chain", CHAIN_LENGTHS, {"microseconds": 2, "bytes": 0}),
        ("sharding_chain", SHARDING_LENGTHS, {"microseconds": 1}),
    ]:
        results = {
            tracer: [trace_in_fresh_process(tracer, program, n) for n in lengths]
            for tracer in TRACERS
        }
        for quantity, digits in rows.items():
            values = {t: [r[quantity] for r in results[t]] for t in TRACERS}
            body = [growth_row(tracer, values[tracer], digits) for tracer in TRACERS]
            ratios = [s / o for s, o in zip(values["jax"], values["jaxide"], strict=True)]
            body.append(["jax / jaxide", *(f"{r:.2f}x" for r in ratios), ""])
            header = [f"{quantity} an equation at", *(f"{n:,}" for n in lengths), "growth"]
            sections.append(f"`{program}`:\n\n{report.table(header, body)}")
            print(sections[-1], flush=True)
    sections.append(report.provenance("benches/scale.py"))
    report.replace_section("scale", "\n\n".join(sections))


if __name__ == "__main__":
    main()
