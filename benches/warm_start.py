"""First traces of fresh processes: stock jax, jaxide without a store, jaxide with a store that an
earlier process has filled.

The three take turns, each in a process of its own: after the imports comes `jaxide.install()`, as
in `docs/warm_start.md`, then the arguments are made, then the function is traced. What installing
takes has a column of its own.
The store is filled by one process that traces once. Texts of all three are compared.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax

import jaxide
import models
import report
import workloads

PROGRAMS = workloads.ALL | models.ALL
KINDS = ("jax", "jaxide", "store")


def trace_first(kind: str, workload: str) -> tuple[float, float, str]:
    """What a fresh process does with a workload."""
    return first_trace(kind, PROGRAMS[workload])


def first_trace(
    kind: str, make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
) -> tuple[float, float, str]:
    """Installs jaxide, makes the arguments, then traces once; seconds of the trace and of the
    installation, and the text."""
    start = time.perf_counter()
    if kind != "jax":
        jaxide.install()
    installing = time.perf_counter() - start
    fun, args = make()
    jax.block_until_ready(args)
    gc.collect()  # else one of what was imported comes within by chance
    start = time.perf_counter()
    made = jax.make_jaxpr(fun)(*args)
    seconds = time.perf_counter() - start
    return seconds, installing, hashlib.sha256(str(made).encode()).hexdigest()


def in_a_process(
    kind: str, workload: str, folder: str, mode: str = "read", script: str = __file__
) -> tuple[float, float, str]:
    """The same in a process of its own, which `script` begins."""
    environment = {**os.environ, "JAXIDE_CACHE_DIR": "", "JAXIDE_CACHE_MODE": mode}
    environment["PYTHONHASHSEED"] = "0"  # numpyro walks sets of names: stock's own text varies
    if kind == "store":
        environment["JAXIDE_CACHE_DIR"] = folder
    command = [sys.executable, script, "--first", kind, workload]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    seconds, installing, text = json.loads(done.stdout.splitlines()[-1])
    return seconds, installing, text


def measure(workload: str, processes: int) -> list[str]:
    """The row of one workload."""
    with tempfile.TemporaryDirectory() as parent:
        folder = os.path.join(parent, "store")
        in_a_process("store", workload, folder, "write")
        runs = [[in_a_process(kind, workload, folder) for kind in KINDS] for _ in range(processes)]
    texts = {text for run in runs for *_, text in run}
    stock, ours, store = (
        statistics.median(run[place][0] for run in runs) for place in range(len(KINDS))
    )
    installing = statistics.median(run[-1][1] for run in runs)
    return [
        workload,
        "yes" if len(texts) == 1 else "**NO**",
        *(f"{seconds * 1e3:.1f}" for seconds in (stock, ours, store)),
        f"{stock / ours:.1f}x",
        f"{stock / store:.1f}x",
        f"{installing * 1e3:.1f}",
    ]


def main() -> int:
    """Prints the table and puts it into the document; fails if a text differs."""
    header = ["workload", "identical", "jax, ms", "jaxide, ms", "with a store, ms"]
    header += ["ratio", "with a store", "install, ms"]
    return report.of_processes(__doc__, "warm_start", header, PROGRAMS, trace_first, measure)


if __name__ == "__main__":
    sys.exit(main())
