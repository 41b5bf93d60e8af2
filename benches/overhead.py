"""What jaxide costs where it traces nothing, and what one caught call costs.

*Calls*: eager and compiled calls in fresh processes that differ in one thing: jaxide is not
imported, is imported, or is installed. The processes of the three kinds take turns.
*Caught calls*: calls with tracer arguments inside a trace, less the loop around them. Each result
is kept until the trace ends, as a program keeps those that it still needs.
"""

import argparse
import functools
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import report

KINDS = ("jax", "imported", "installed")
SLICES = 25


def eager_calls() -> dict[str, Callable[[], Any]]:
    """Calls that trace nothing once they are warm."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    x = jnp.ones((8, 8))
    positive = x > 0
    compiled = jax.jit(lambda x: x * 2 + 1)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(jnp.sin(x))))
    return {
        "a compiled function": lambda: compiled(x),
        "a compiled gradient": lambda: gradient(x),
        "x + x": lambda: x + x,
        "x[0]": lambda: x[0],
        "x.at[0].set(1.0)": lambda: x.at[0].set(1.0),
        "x.sum()": lambda: x.sum(),
        "lax.add": lambda: lax.add(x, x),
        "jnp.sin": lambda: jnp.sin(x),
        "jnp.where": lambda: jnp.where(positive, x, 0.0),
        "jnp.dot": lambda: jnp.dot(x, x),
        "jax.nn.softmax": lambda: jax.nn.softmax(x),
        "jax.random.normal": functools.partial(jax.random.normal, jax.random.key(0), (8,)),
    }


def run_calls(kind: str, rounds: int) -> dict[str, float]:
    """What a fresh process does: microseconds of each call, as the median of slices."""
    if kind != "jax":
        import jaxide

        if kind == "installed":
            jaxide.install()
    import jax

    result = {}
    for name, call in eager_calls().items():
        for _ in range(20):
            jax.block_until_ready(call())
        seconds = []
        for _ in range(SLICES):
            start = time.perf_counter()
            for _ in range(rounds):
                call()
            seconds.append((time.perf_counter() - start) / rounds)
        result[name] = statistics.median(seconds) * 1e6
    return result


def caught_calls() -> dict[str, Callable[[Any, Any], Any]]:
    """Calls of one or two tracers whose cost is looked at."""
    import jax.numpy as jnp
    from jax import lax

    return {
        "x + y": lambda x, y: x + y,
        "x * 2.0": lambda x, y: x * 2.0,
        "-x": lambda x, y: -x,
        "x.T": lambda x, y: x.T,
        "lax.sin(x)": lambda x, y: lax.sin(x),
        "lax.add(x, y)": lambda x, y: lax.add(x, y),
        "jnp.sin(x)": lambda x, y: jnp.sin(x),
        "jnp.add(x, y)": lambda x, y: jnp.add(x, y),
        "jnp.maximum(x, y)": lambda x, y: jnp.maximum(x, y),
    }


def caught_microseconds(
    make_jaxpr: Callable, call: Callable, calls: int, samples: int
) -> list[float]:
    """Microseconds of one call inside a trace, less an empty function's, several times."""
    import jax

    seconds = []

    def empty(x: Any, y: Any) -> Any:
        return x

    def loop(function: Callable, x: Any, y: Any) -> float:
        kept = [None] * calls
        gc.collect()
        start = time.perf_counter()
        for i in range(calls):
            kept[i] = function(x, y)
        return time.perf_counter() - start

    def traced(x: Any, y: Any) -> Any:
        seconds.append(loop(call, x, y) - loop(empty, x, y))
        return x

    array = jax.ShapeDtypeStruct((8, 8), "float32")
    for _ in range(samples + 2):
        make_jaxpr(lambda x, y: traced(x, y))(array, array)
    return [s / calls * 1e6 for s in seconds[2:]]


def in_fresh_process(*arguments: str) -> dict[str, float]:
    """The JSON that this script prints when a fresh process runs it with these arguments."""
    command = [sys.executable, __file__, "--child", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def median_of_ratios(ours: Sequence[float], stock: Sequence[float]) -> str:
    return f"{statistics.median(o / s for o, s in zip(ours, stock, strict=True)):.2f}"


def calls_table(processes: int, rounds: int) -> str:
    """The table of calls outside of traces."""
    measured: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for _ in range(processes):
        for kind in KINDS:
            measured[kind].append(in_fresh_process(kind, str(rounds)))
    rows = []
    for name in measured["jax"][0]:
        stock, imported, installed = ([m[name] for m in measured[kind]] for kind in KINDS)
        ratios = median_of_ratios(imported, stock), median_of_ratios(installed, stock)
        rows.append([f"`{name}`", f"{statistics.median(stock):.1f}", *ratios])
    return report.table(["call", "jax, us", "imported / jax", "installed / jax"], rows)


def caught_table(calls: int, samples: int) -> str:
    """The table of calls inside a trace."""
    import jax

    import jaxide

    rows = []
    for name, call in caught_calls().items():
        ours = caught_microseconds(jaxide.make_jaxpr, call, calls, samples)
        stock = caught_microseconds(jax.make_jaxpr, call, calls, 3)
        cells = [f"{statistics.median(stock):.1f}", f"{statistics.median(ours):.2f}"]
        rows.append([f"`{name}`", *cells, f"{min(ours):.2f}"])
    return report.table(["caught call", "jax, us", "jaxide, us", "least"], rows)


def main() -> None:
    """Prints the tables and puts them into the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=9, help="fresh processes of each kind")
    parser.add_argument("--rounds", type=int, default=100, help="calls in each of the slices")
    parser.add_argument("--calls", type=int, default=1000, help="caught calls in one trace")
    parser.add_argument("--samples", type=int, default=25, help="traces with caught calls")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, rounds = options.child
        print(json.dumps(run_calls(kind, int(rounds))))
        return

    tables = [
        calls_table(options.processes, options.rounds),
        caught_table(options.calls, options.samples),
    ]
    print(*tables, sep="\n\n")
    report.replace_section(
        "overhead", "\n\n".join([*tables, report.provenance("benches/overhead.py")])
    )


if __name__ == "__main__":
    main()
