"""Whose Python a warm retrace runs: the user's, a library's, jax's, jaxide's.

The process is sampled by its CPU time. A sample counts to the innermost function on the stack that
is of one of the four; what passes in the standard library or in jax's trees (`jax.tree_util`, which
calls back into the classes of libraries) counts to whoever called it, and native code to the line
that calls it. What is the user's and the libraries' runs whatever records it: jax's time over
theirs is the *bound* of what any tracer of Python functions can reach.

A second table has what is jax's and jaxide's by *entry*: the function of jax that the innermost
function of the user's or a library's has called. What such a function calls back is theirs again,
so an entry's time is what it costs over the functions that it is given.
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
from pathlib import Path
from types import FrameType
from typing import Any

import jax

import jaxide
import report
import workloads

OWNERS = ("jax", "libraries", "user", "jaxide")
TRACERS = {"jax": jax.make_jaxpr, "jaxide": jaxide.make_jaxpr}
INTERVAL = 0.001
ENTRIES = 12
WRAPPERS = ("reraise_with_filtered_traceback", "wrapper")
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


class Samples:
    """Where the CPU time of warm retraces passes, by owner and entry."""

    def __init__(self) -> None:
        self.found: collections.Counter[tuple[str, str]] = collections.Counter()
        self._owners: dict[str, str | None] = {}

    def take(self, _signal: int, frame: FrameType | None) -> None:
        """Counts the stack that ends in a frame, as a handler of signals."""
        innermost, entry = None, ""
        while frame is not None:
            code = frame.f_code
            if code.co_filename not in self._owners:
                self._owners[code.co_filename] = owner(code.co_filename)
            found = self._owners[code.co_filename]
            innermost = innermost or found
            if found in ("libraries", "user"):
                break
            if found == "jax" and code.co_name not in WRAPPERS:
                entry = f"{Path(code.co_filename).stem}.{code.co_name}"
            frame = frame.f_back
        if innermost is not None:
            self.found[innermost, entry] += 1


def milliseconds(
    tracer: Callable[..., Any], fun: Callable[..., Any], args: Any, seconds: float
) -> collections.Counter[tuple[str, str]]:
    """CPU milliseconds of a warm retrace, by owner and entry."""

    def retrace() -> None:
        tracer(lambda *a: fun(*a))(*args)

    samples = Samples()
    for _ in range(4):
        retrace()
    gc.collect()
    gc.freeze()
    before = signal.signal(signal.SIGPROF, samples.take)
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
    each = 1e3 * taken / count / samples.found.total()
    return collections.Counter({key: each * n for key, n in samples.found.items()})


def rows_of(workload: str, seconds: float) -> tuple[list[str], list[list[str]]]:
    """The rows of one workload in the two tables."""
    fun, args = workloads.ALL[workload]()
    stock, ours = (milliseconds(tracer, fun, args, seconds) for tracer in TRACERS.values())
    by_owner: collections.Counter[str] = collections.Counter()
    by_entry: collections.Counter[str] = collections.Counter()
    for (whose, entry), taken in ours.items():
        by_owner[whose] += taken
        if whose in ("jax", "jaxide"):
            by_entry[entry] += taken
    total, floor = stock.total(), by_owner["libraries"] + by_owner["user"]
    cells = [f"{total:.0f}", f"{ours.total():.1f}", *(f"{by_owner[name]:.1f}" for name in OWNERS)]
    # What is hardly seen is no number to divide by.
    is_seen = floor > ours.total() / 20
    shares = [workload, *cells, f"{total / floor:,.0f}x" if is_seen else ""]
    entries, left = [], ours.total()
    for entry, taken in by_entry.most_common(ENTRIES if is_seen else 0):
        left -= taken
        cells = [entry or "the trace itself", f"{taken:.1f}", f"{taken / ours.total():.1%}"]
        entries.append([workload, *cells, f"{total / left:.2f}x"])
    return shares, entries


def main() -> int:
    """Prints the tables and puts them into the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=6, help="how long each tracer is sampled")
    parser.add_argument("--only", choices=workloads.ALL, nargs="+", help="measure, do not record")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(rows_of(options.row, options.seconds)))
        return 0
    shares, entries = [], []
    for workload in options.only or (name for name in workloads.ALL if name not in workloads.PLAIN):
        # A process for each: what others have imported is collected as garbage with it.
        command = [sys.executable, __file__, "--row", workload, "--seconds", str(options.seconds)]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        share, by_entry = json.loads(made.stdout.splitlines()[-1])
        for cells in (share, *by_entry):
            print(*cells, sep="  ", flush=True)
        shares.append(share)
        entries += by_entry
    if not options.only:
        owners = (f"of it {name}" for name in OWNERS)
        report.record("shares", ["workload", "jax, ms", "jaxide, ms", *owners, "bound"], shares)
        header = ["workload", "entry", "ms", "share", "ratio if these were free"]
        report.record("entries", header, entries, script="shares")
    return 0


if __name__ == "__main__":
    sys.exit(main())
