"""Does memory stay flat? Many traces of many different closures and shapes, in one process.

Each trace makes a new closure from one of `--closures` recipes, with a captured number that never
comes back, a jit of its own and a scan of its own. The caches fill during the warm-up; from then on
the resident set, measured after a garbage collection and after the allocator has given back what is
free, must not grow by more than a tolerance, and the expansion cache must stay within its bounds.
The exit code is 0 if both hold.

With `--tracer jit` each closure is executed by a `jaxide.jit` of its own; its number comes back,
and only what it captures is new.

The tolerance is for the fragmentation of the heap and for caches of jax that fill slowly. In a run
of the usual length it is less than a hundred bytes a trace: one small object that leaked at each
trace would not pass.
"""

import argparse
import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import jaxide


def execute(function: Callable[..., Any]) -> Callable[..., Any]:
    """Calls a jit of the function that is made for this call."""

    def zeros(like: Any) -> Any:
        is_key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
        return jax.random.key(0) if is_key else np.zeros(like.shape, like.dtype)

    return lambda *args: jaxide.jit(function)(*map(zeros, args))


TRACERS = {"jax": jax.make_jaxpr, "jaxide": jaxide.make_jaxpr, "jit": execute}
SAMPLES = 10

Closure = tuple[Callable[..., Any], tuple[Any, ...]]


def closure(recipe: int, number: float) -> Closure:
    """A new function after a recipe, and arguments for it; `number` is a literal of the program."""
    rows, columns = 2 + recipe % 10, 1 + recipe // 10 % 10
    power, scale = 1 + recipe // 100 % 5, float(recipe)
    table = np.full(columns, scale, np.float32)

    def body(carry: Any, row: Any) -> tuple[Any, Any]:
        return carry * scale + jnp.sum(row), jnp.tanh(row)

    @jax.jit
    def layer(x: Any, weights: Any) -> Any:
        return jax.nn.gelu(x @ weights + table) ** power

    def function(x: Any, weights: Any, key: Any) -> dict[str, Any]:
        hidden = layer(x, weights) + number
        hidden = hidden.at[recipe % rows].set(scale)
        noise = jax.random.normal(jax.random.fold_in(key, recipe), hidden.shape)
        total, rows_seen = lax.scan(body, jnp.float32(0), jnp.where(hidden > scale, hidden, noise))
        return {"total": total, "rows": jax.nn.softmax(rows_seen)[:, ::-1], "mean": hidden.mean()}

    shapes = ((rows, columns), (columns, columns))
    arrays = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    return function, (*arrays, jax.eval_shape(lambda: jax.random.key(0)))


def trace_all(tracer: str, closures: int, traces: range) -> Iterator[int]:
    """Traces one closure after the other and yields how often it has."""
    for trace in traces:
        # Another number is another program, which has to be compiled.
        number = 0.5 if tracer == "jit" else trace + 0.5
        function, args = closure(trace % closures, number)
        TRACERS[tracer](function)(*args)
        yield trace + 1


def resident_bytes() -> int:
    """The resident set, once all that is free has been given back."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bounds_exceeded(info: jaxide.CacheInfo) -> list[str]:
    """Which bounds of the cache do not hold, in words."""
    most = max((c.entries for c in info.callables.values()), default=0)
    bounds = {
        "entries": (info.entries, info.max_entries),
        "entries of one callable": (most, info.max_entries_per_callable),
        "bytes": (info.bytes, info.max_bytes),
    }
    return [f"{name}: {n:,} of {bound:,}" for name, (n, bound) in bounds.items() if n > bound]


@dataclass(frozen=True)
class Sample:
    """The state of the process after so many traces."""

    traces: int
    resident: int
    cache: jaxide.CacheInfo


def soak(
    tracer: str, traces: int, closures: int, advance: Callable[[int], None] = lambda _: None
) -> list[Sample]:
    """Traces, and looks at the process after the warm-up and then at equal distances.

    The warm-up fills every cache: it is half of the run, and no less than two rounds.
    """
    warm_up = max(traces // 2, min(2 * closures, traces - 1))
    measured = {
        warm_up + (traces - warm_up) * sample // SAMPLES for sample in range(SAMPLES + 1)
    } | {traces}
    samples = []
    for done in trace_all(tracer, closures, range(traces)):
        advance(done)
        if done in measured:
            samples.append(Sample(done, resident_bytes(), jaxide.cache_info()))
    return samples


def growth(samples: list[Sample]) -> int:
    """By how many bytes the resident set grew since the warm-up."""
    return samples[-1].resident - samples[0].resident


def report(samples: list[Sample]) -> Table:
    table = Table("traces", "resident MiB", "entries", "KiB of entries", "hits", "evictions")
    for column in table.columns:
        column.justify = "right"
    for sample in samples:
        info = sample.cache
        table.add_row(
            f"{sample.traces:,}",
            f"{sample.resident / 2**20:.1f}",
            f"{info.entries:,}",
            f"{info.bytes / 2**10:,.0f}",
            f"{info.hits:,}",
            f"{info.evictions:,}",
        )
    return table


def main() -> int:
    """Soaks, prints what was measured, and says whether memory stayed flat."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=int, default=100_000, help="default: %(default)s")
    parser.add_argument("--closures", type=int, default=1_000, help="default: %(default)s")
    parser.add_argument("--tolerance", type=float, default=8, help="MiB, default: %(default)s")
    parser.add_argument("--tracer", choices=TRACERS, default="jaxide", help="default: %(default)s")
    options = parser.parse_args()

    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    start = time.perf_counter()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("Tracing", total=options.traces)
        samples = soak(
            options.tracer,
            options.traces,
            options.closures,
            lambda done: progress.update(task, completed=done),
        )
    seconds = time.perf_counter() - start

    console.print(report(samples))
    grown, exceeded = growth(samples), bounds_exceeded(samples[-1].cache)
    flat = grown <= options.tolerance * 2**20
    console.print(
        f"{options.traces:,} traces of {options.closures:,} closures by {options.tracer} in "
        f"{seconds:,.0f} s; since the warm-up the resident set grew by {grown / 2**20:.1f} MiB "
        f"(tolerance {options.tolerance:g}): {'flat' if flat else 'it grows'}."
    )
    for bound in exceeded:
        console.print(f"A bound of the cache is exceeded: {bound}.")
    return 0 if flat and not exceeded else 1


if __name__ == "__main__":
    sys.exit(main())
