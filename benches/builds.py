"""First traces, or retraces, of two builds of jaxide, such as that of an older commit and this one.

First traces of fresh processes differ by more than what is to be measured. So a process of each
build imports everything and makes the arguments, then forks for each first trace: the two builds
take turns, and the difference is the median of the pairs. Several processes of each build are
started, since where things lie in memory makes a difference too. Retraces (`--warm`) take turns as
well, each after a trace by stock jax, as in `tracing.py`. Linux only.
"""

import argparse
import ctypes
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import report
import workloads

# Computes while it is traced, which no process can do that was forked.
COMPUTES = {"diffrax_ode"}
HERE = Path(__file__).parent.parent / "python"
# So many new objects the garbage collector waits for until it looks at all that are not old. Where
# that comes is chance, and takes a millisecond: traces begin anywhere in between.
PERIOD = 11 * 700
# `madvise`: gives a process pages before they are read, and its own before they are written to.
POPULATE_READ = 22
POPULATE_WRITE = 23


def own_pages() -> None:
    """Maps code, and copies what is shared with the parent process, so that no trace has to."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, *_ = line.split()
        if access[0] == "r":
            begin, end = (int(address, 16) for address in addresses.split("-"))
            madvise(begin, end - begin, POPULATE_WRITE if access == "rw-p" else POPULATE_READ)


def serve(workload: str, *, is_warm: bool) -> None:
    """For each line of the standard input, writes the seconds of a first trace, or of a retrace."""
    import jax

    import jaxide

    fun, args = workloads.ALL[workload]()
    jax.block_until_ready(args)
    if is_warm:
        retrace(jax.make_jaxpr, jaxide.make_jaxpr, fun, args)
        return
    gc.collect()
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            # So much of a period of the garbage collector has gone by.
            ballast = [[] for _ in range(int(line))]
            own_pages()
            start = time.perf_counter()
            jaxide.make_jaxpr(fun)(*args)
            print(time.perf_counter() - start, flush=True)
            del ballast
            os._exit(0)
        os.waitpid(child, 0)


def retrace(
    stock: Callable[..., Any], ours: Callable[..., Any], fun: Callable[..., Any], args: Any
) -> None:
    """For each line of the standard input, writes the seconds of a retrace by `ours`."""
    for tracer in (stock, ours, ours, ours):  # fills the caches
        tracer(lambda *args: fun(*args))(*args)
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for _ in sys.stdin:
        stock(lambda *args: fun(*args))(*args)
        gc.collect()
        start = time.perf_counter()
        jaxpr = ours(lambda *args: fun(*args))(*args)
        print(time.perf_counter() - start, flush=True)
        del jaxpr


class Build:
    """A process that has imported a build."""

    def __init__(self, python: Path, workload: str, *, is_warm: bool) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", workload, *["--warm"] * is_warm],
            env={**os.environ, "PYTHONPATH": str(python), "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def seconds(self, num_objects: int) -> float:
        """Seconds of a trace; of a first one, once so many objects were made."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{num_objects}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """Ends the process."""
        self.process.communicate()


def measure(workload: str, other: Path, rounds: int, processes: int, *, is_warm: bool) -> list[str]:
    """The row of one workload."""
    pairs = []
    for _ in range(processes):
        builds = [Build(python, workload, is_warm=is_warm) for python in (other, HERE)]
        for index in range(rounds):
            order = builds if index % 2 else builds[::-1]
            num_objects = PERIOD * index // rounds
            seconds = {id(build): build.seconds(num_objects) for build in order}
            pairs.append([seconds[id(build)] for build in builds])
        for build in builds:
            build.close()
    before, now = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
    change = statistics.median(now / before for before, now in pairs) - 1
    return [workload, f"{before:.2f}", f"{now:.2f}", f"{change:+.1%}"]


def main() -> None:
    """Prints the table and puts it into the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, nargs="?", help="the folder `python` of another build")
    parser.add_argument("--warm", action="store_true", help="retraces, not first traces")
    parser.add_argument("--rounds", type=int, help="traces of each process: 8, of retraces 50")
    parser.add_argument("--processes", type=int, default=8, help="processes of each build")
    parser.add_argument("--only", choices=workloads.ALL, nargs="+", help="measure, do not record")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, is_warm=options.warm)
        return
    if options.other is None:
        parser.error("which other build?")
    other = options.other.resolve()
    rounds = options.rounds or (50 if options.warm else 8)
    rows = []
    left_out = set() if options.warm else COMPUTES
    if refused := left_out.intersection(options.only or ()):
        parser.error(f"{', '.join(refused)}: only with --warm")
    for workload in options.only or [name for name in workloads.ALL if name not in left_out]:
        rows.append(measure(workload, other, rounds, options.processes, is_warm=options.warm))
        print(*rows[-1], sep="  ", flush=True)
    if not options.only:
        header = ["workload", "before, ms", "now, ms", "change"]
        table, option = ("builds-warm", " --warm") if options.warm else ("builds", "")
        given = [
            f" --{name} {getattr(options, name)}"
            for name in ("processes", "rounds")
            if getattr(options, name) != parser.get_default(name)
        ]
        command = f"python benches/builds.py OTHER/python{option}{''.join(given)}"
        report.record(table, header, rows, script="builds", command=command)


if __name__ == "__main__":
    main()
