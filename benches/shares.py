"""Whose Python a warm retrace runs: the user's, a library's, jax's, jaxide's.

The process is sampled by its CPU time. A sample counts to the innermost function on the stack that
is of one of the four; what passes in the standard library or in jax's trees (`jax.tree_util`, which
calls back into the classes of libraries) counts to whoever called it, and native code to the line
that calls it. What is the user's and the libraries' runs whatever records it: jax's time over
theirs is the *bound* of what any tracer of Python functions can reach.
"""

import argparse
import collections
import gc
import json
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import jax

import jaxide
import report
import workloads

OWNERS = ("jax", "libraries", "user", "jaxide")
TRACERS = {"jax": jax.make_jaxpr, "jaxide": jaxide.make_jaxpr}
INTERVAL = 0.001
STANDARD = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
LIBRARIES = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


def owner(file: str) -> str | None:
    """Whose a file is; None for what counts to its caller."""
    if file.startswith("<") or "/jax/_src/tree_util" in file:
        return None
    if "/jaxide/" in file:
        return "jaxide"
    if file.startswith(LIBRARIES):
        is_of_jax = any(f"/{package}/" in file for package in ("jax", "jaxlib"))
        return "jax" if is_of_jax else "libraries"
    return None if file.startswith(STANDARD) else "user"


def milliseconds(
    tracer: Callable[..., Any], fun: Callable[..., Any], args: Any, seconds: float
) -> dict[str, float]:
    """CPU milliseconds of a warm retrace, by owner."""

    def retrace() -> None:
        tracer(lambda *a: fun(*a))(*args)

    owners: dict[str, str | None] = {}
    samples: collections.Counter[str] = collections.Counter()

    def sample(_signal: int, frame: FrameType | None) -> None:
        while frame is not None:
            file = frame.f_code.co_filename
            if file not in owners:
                owners[file] = owner(file)
            if (found := owners[file]) is not None:
                samples[found] += 1
                return
            frame = frame.f_back

    for _ in range(4):
        retrace()
    gc.collect()
    gc.freeze()
    before = signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    start = time.process_time()
    count, taken = 0, 0.0
    while taken < seconds:
        retrace()
        count += 1
        taken = time.process_time() - start
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)
    gc.unfreeze()
    each = 1e3 * taken / count / samples.total()
    return {owner: each * samples[owner] for owner in OWNERS}


def row(workload: str, seconds: float) -> list[str]:
    """The row of one workload."""
    fun, args = workloads.ALL[workload]()
    stock, ours = (milliseconds(tracer, fun, args, seconds) for tracer in TRACERS.values())
    total, floor = sum(stock.values()), ours["libraries"] + ours["user"]
    cells = [f"{total:.0f}", f"{sum(ours.values()):.1f}", *(f"{ours[name]:.1f}" for name in OWNERS)]
    # What is hardly seen is no number to divide by.
    bound = f"{total / floor:,.0f}x" if floor > sum(ours.values()) / 20 else ""
    return [workload, *cells, bound]


def main() -> int:
    """Prints the table and puts it into the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=6, help="how long each tracer is sampled")
    parser.add_argument("--only", choices=workloads.ALL, nargs="+", help="measure, do not record")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(row(options.row, options.seconds)))
        return 0
    rows = []
    for workload in options.only or (name for name in workloads.ALL if name not in workloads.PLAIN):
        # A process for each: what others have imported is collected as garbage with it.
        command = [sys.executable, __file__, "--row", workload, "--seconds", str(options.seconds)]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(made.stdout.splitlines()[-1]))
        print(*rows[-1], sep="  ", flush=True)
    if not options.only:
        header = [
            "workload",
            "jax, ms",
            "jaxide, ms",
            *(f"of it {name}" for name in OWNERS),
            "bound",
        ]
        report.record("shares", header, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
