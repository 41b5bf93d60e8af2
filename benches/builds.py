"""First traces of two builds of jaxide, such as that of an older commit and this one.

First traces of fresh processes differ by more than what is to be measured. So a process of each
build imports everything and makes the arguments, then forks for each first trace: the two builds
take turns, and the difference is the median of the pairs. Several processes of each build are
started, since where things lie in memory makes a difference too. Linux only.
"""

import argparse
import ctypes
import gc
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import report
import workloads

# Computes while it is traced, which no process can do that was forked.
COMPUTES = {"diffrax_ode"}
HERE = Path(__file__).parent.parent / "python"
# So many new objects the garbage collector waits for until it looks at all that are not old. Where
# that comes is chance, and takes a millisecond: traces begin anywhere in between.
PERIOD = 11 * 700
# `madvise`: gives a process pages of its own before they are written to.
POPULATE_WRITE = 23


def own_pages() -> None:
    """Copies what this process shares with the one that it was forked from, so no trace has to."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, *_ = line.split()
        if access == "rw-p":
            begin, end = (int(address, 16) for address in addresses.split("-"))
            madvise(begin, end - begin, POPULATE_WRITE)


def serve(workload: str) -> None:
    """For each line of the standard input, writes the seconds of a first trace."""
    import jax

    import jaxide

    fun, args = workloads.ALL[workload]()
    jax.block_until_ready(args)
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


class Build:
    """A process that has imported a build."""

    def __init__(self, python: Path, workload: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", workload],
            env={**os.environ, "PYTHONPATH": str(python), "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def seconds(self, num_objects: int) -> float:
        """Seconds of a first trace, once so many objects were made."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{num_objects}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """Ends the process."""
        self.process.communicate()


def measure(workload: str, other: Path, rounds: int, processes: int) -> list[str]:
    """The row of one workload."""
    pairs = []
    for _ in range(processes):
        builds = [Build(other, workload), Build(HERE, workload)]
        for index in range(rounds):
            order = builds if index % 2 else builds[::-1]
            num_objects = PERIOD * index // rounds
            seconds = {id(build): build.seconds(num_objects) for build in order}
            pairs.append([seconds[id(build)] for build in builds])
        for build in builds:
            build.close()
    before, now = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
    change = statistics.median(now / before for before, now in pairs) - 1
    return [workload, f"{before:.1f}", f"{now:.1f}", f"{change:+.1%}"]


def main() -> None:
    """Prints the table and puts it into the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, nargs="?", help="the folder `python` of another build")
    parser.add_argument("--rounds", type=int, default=8, help="first traces of each process")
    parser.add_argument("--processes", type=int, default=8, help="processes of each build")
    names = [name for name in workloads.ALL if name not in COMPUTES]
    parser.add_argument("--only", choices=names, nargs="+", help="measure, do not record")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if options.other is None:
        parser.error("which other build?")
    rows = []
    for workload in options.only or names:
        rows.append(measure(workload, options.other.resolve(), options.rounds, options.processes))
        print(*rows[-1], sep="  ", flush=True)
    if not options.only:
        header = ["workload", "before, ms", "now, ms", "change"]
        report.record("builds", header, rows, command="python benches/builds.py OTHER/python")


if __name__ == "__main__":
    main()
