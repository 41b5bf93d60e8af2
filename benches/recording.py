"""What a first trace without a store could be, if recording was free.

A fresh process traces once: stock jax, jaxide, and jaxide without replays, which records nothing.
They take turns. The kernel samples jaxide's processes (`perf`): the share of samples in jaxide's
own library is what recording, looking up and replaying take together. The *bound* is the ratio
without that share. No way to record less, later or in one pass reaches more: what is left is the
Python of jax, of libraries and of the user, which runs because nothing is known of it.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Sequence

KINDS = ("jax", "jaxide", "without replays")


class WithoutReplays(importlib.abc.MetaPathFinder):
    """Switches replays off when jaxide is imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "jaxide._compat.capabilities":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            module.lose("replays", "benches/recording.py measures without them")

        setattr(spec.loader, "exec_module", exec_module)  # noqa: B010
        return spec


if sys.argv[1:3] == ["--first", KINDS[2]]:
    sys.meta_path.insert(0, WithoutReplays())

import jax  # noqa: E402

import jaxide  # noqa: E402
import models  # noqa: E402
import report  # noqa: E402
import workloads  # noqa: E402

PROGRAMS = {
    name: (workloads.ALL | models.ALL)[name]
    for name in ("gpt_fwd", "linen_resnet", "lstm", "graph_network", "equinox_mlp")
}
LIBRARY = "_core.cpython"
FREQUENCY = 10_000


def trace_first(kind: str, workload: str) -> tuple[float, str, int, int, tuple[int, int]]:
    """What a fresh process does: seconds of the trace, the text, how many calls were recorded and
    replayed, and from when to when on the monotonic clock it was."""
    if kind != "jax":
        jaxide.install()
    fun, args = PROGRAMS[workload]()
    jax.block_until_ready(args)
    jaxide.clear_caches()
    gc.collect()  # else one of what was imported comes within by chance
    start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    made = jax.make_jaxpr(fun)(*args)
    end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    info, text = jaxide.cache_info(), hashlib.sha256(str(made).encode()).hexdigest()
    return (end - start) / 1e9, text, info.misses, info.hits, (start, end)


def in_a_process(
    kind: str, workload: str, before: Sequence[str] = ()
) -> tuple[float, str, int, int, tuple[int, int]]:
    """The same in a process of its own, which the command `before` starts."""
    command = [*before, sys.executable, "-W", "ignore", __file__, "--first", kind, workload]
    environment = {**os.environ, "JAXIDE_CACHE_DIR": "", "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    seconds, text, misses, hits, span = json.loads(done.stdout.splitlines()[-1])
    return seconds, text, misses, hits, span


def sampled(workload: str) -> list[bool]:
    """Whether each sample of jaxide's first trace is in its own library."""
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "perf.data")
        options = ["-q", "-k", "CLOCK_MONOTONIC", "-F", str(FREQUENCY), "-o", data]
        *_, (start, end) = in_a_process("jaxide", workload, ["perf", "record", *options])
        span = f"{start / 1e9:.9f},{end / 1e9:.9f}"
        command = ["perf", "script", "-i", data, "--time", span, "-F", "ip,dso"]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [LIBRARY in line for line in found.splitlines() if line]


def measure(workload: str, processes: int) -> list[str]:
    """The row of one workload."""
    runs = [[in_a_process(kind, workload) for kind in KINDS] for _ in range(processes)]
    texts = {text for run in runs for _, text, *_ in run}
    stock, ours, without = (
        statistics.median(run[place][0] for run in runs) for place in range(len(KINDS))
    )
    _, _, misses, hits, _ = runs[0][1]
    samples = [sample for _ in range(processes) for sample in sampled(workload)]
    share = sum(samples) / len(samples)
    return [
        workload,
        "yes" if len(texts) == 1 else "**NO**",
        f"{misses:,}",
        f"{hits:,}",
        *(f"{seconds * 1e3:.1f}" for seconds in (stock, ours, without)),
        f"{stock / ours:.2f}x",
        f"{stock / without:.2f}x",
        f"{share:.0%}",
        f"{stock / (ours * (1 - share)):.2f}x",
    ]


def main() -> int:
    """Prints the table and puts it into the document; fails if a text differs."""
    if shutil.which("perf") is None:
        sys.exit("perf, which samples the processes, is not installed (Debian: linux-perf)")
    header = ["workload", "identical", "recorded", "replayed"]
    header += ["jax, ms", "jaxide, ms", "without replays, ms"]
    header += ["ratio", "without replays", "jaxide's own", "bound"]
    return report.of_processes(__doc__, "recording", header, PROGRAMS, trace_first, measure)


if __name__ == "__main__":
    sys.exit(main())
