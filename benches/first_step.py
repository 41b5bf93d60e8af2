"""Time to the first step of fresh processes, with jax's persistent compilation cache filled: stock
jax, and jaxide with a store that an earlier process has filled.

The two take turns, each in a process of its own, after the imports and once the arguments exist.
The time is that until the first call of the jit has returned, less the time in which jax's cache
reads and loads the executable. The results are waited for afterwards: when XLA executes a program
for the first time it does more, and the same for both. Bits of the results are compared.
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
from typing import Any

import jax
import numpy as np

import jaxide
import models
import report
import workloads

PROGRAMS = workloads.ALL | models.ALL
KINDS = ("jax", "store")
LOADED = "/jax/compilation_cache/cache_retrieval_time_sec"


def step_first(kind: str, workload: str) -> tuple[float, float, str]:
    """What a fresh process does; seconds until the call returns without those in which the
    executable is loaded, these, and the digest of the results."""
    loading = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: loading.append(seconds) if name == LOADED else None
    )
    if kind == "store":
        jaxide.install()
    fun, args = PROGRAMS[workload]()
    jax.block_until_ready(args)
    step = jax.jit(fun)
    gc.collect()  # else one of what was imported comes within by chance
    loading.clear()
    start = time.perf_counter()
    result = step(*args)
    seconds = time.perf_counter() - start
    return seconds - sum(loading), sum(loading), bits(result)


def bits(result: Any) -> str:
    """A digest of the arrays of a tree."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.block_until_ready(result)):
        if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def in_a_process(
    kind: str, workload: str, folder: str, mode: str = "read"
) -> tuple[float, float, str]:
    """The same in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "0",  # numpyro walks sets of names: the program varies
        "JAXIDE_CACHE_DIR": os.path.join(folder, "store") if kind == "store" else "",
        "JAXIDE_CACHE_MODE": mode,
        "JAX_COMPILATION_CACHE_DIR": os.path.join(folder, "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }
    command = [sys.executable, __file__, "--first", kind, workload]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    seconds, loading, digest = json.loads(done.stdout.splitlines()[-1])
    return seconds, loading, digest


def measure(workload: str, processes: int) -> list[str]:
    """The row of one workload."""
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            in_a_process(kind, workload, folder, "write")
        runs = [[in_a_process(kind, workload, folder) for kind in KINDS] for _ in range(processes)]
    digests = {digest for run in runs for *_, digest in run}
    stock, store = (statistics.median(run[place][0] for run in runs) for place in (0, 1))
    loading = statistics.median(seconds for run in runs for _, seconds, _ in run)
    return [
        workload,
        "yes" if len(digests) == 1 else "**NO**",
        *(f"{seconds * 1e3:.1f}" for seconds in (loading, stock, store)),
        f"{stock / store:.1f}x",
    ]


def main() -> int:
    """Prints the table and puts it into the document; fails if a result differs."""
    header = ["workload", "identical", "loading, ms", "jax, ms", "with a store, ms", "ratio"]
    return report.of_processes(__doc__, "first_step", header, PROGRAMS, step_first, measure)


if __name__ == "__main__":
    sys.exit(main())
