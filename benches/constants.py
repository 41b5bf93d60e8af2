"""Calls of functions that capture arrays, after the first: stock jax and `jaxide.jit` in turns.

*first*: the function whose executable has its arrays built in; *anew*: one that captures other
values, which are arguments. Ratios are medians of the ratios of neighbours.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxide
import report
from jaxide._cli.timing import pairwise_ratio


def million(i: int) -> Callable[[Any], Any]:
    """`x * exp(sin(c)).sum()` with a million elements."""
    c = jnp.asarray(np.random.default_rng(i).random((2000, 500), np.float32))
    return lambda x: x * jnp.exp(jnp.sin(c)).sum()


def sum_of_600(i: int) -> Callable[[Any], Any]:
    """The sum of an argument and 600 arrays."""
    rng = np.random.default_rng(i)
    arrays = [jnp.asarray(rng.random(64, np.float32)) for _ in range(600)]
    return lambda x: sum(arrays, x)


def product_with_sum_of_600(i: int) -> Callable[[Any], Any]:
    """An argument times the sum of 600 arrays."""
    rng = np.random.default_rng(i)
    arrays = [jnp.asarray(rng.random((32, 32), np.float32)) for _ in range(600)]
    return lambda x: x * sum(arrays)


def million_in_a_loop(i: int) -> Callable[[Any], Any]:
    """The first one, in a jit within a loop."""
    function = jax.jit(million(i))
    return lambda x: jax.lax.fori_loop(0, 3, lambda _, y: function(y) * 1e-6, x)


FUNCTIONS = {
    f.__name__: f for f in (million, sum_of_600, product_with_sum_of_600, million_in_a_loop)
}


def seconds(function: Callable[..., Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        jax.block_until_ready(function(1.0))
    return (time.perf_counter() - start) / calls


def measure(name: str, rounds: int, calls: int) -> list[str]:
    """A row of the table."""
    make = FUNCTIONS[name]
    functions = [jax.jit(make(2))]
    for i in range(3):
        ours = jaxide.jit(make(i))
        jax.block_until_ready(ours(1.0))
        functions += [ours] * (i in (0, 2))
    for function in functions:
        seconds(function, calls)
    times = [[seconds(function, calls) for function in functions] for _ in range(rounds)]
    stock, first, anew = zip(*times, strict=True)
    ratios = [1 / pairwise_ratio(stock, ours) for ours in (first, anew)]
    return [name, f"{1e6 * sorted(stock)[rounds // 2]:.1f}", *(f"{r:.2f}x" for r in ratios)]


def main() -> int:
    """Prints the table and puts it into the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40, help="turns of each function")
    parser.add_argument("--calls", type=int, default=50, help="calls of a turn")
    parser.add_argument("--only", choices=FUNCTIONS, nargs="+", help="measure, do not record")
    options = parser.parse_args()
    rows = []
    for name in options.only or FUNCTIONS:
        rows.append(measure(name, options.rounds, options.calls))
        print(*rows[-1], sep="  ", flush=True)
    if not options.only:
        report.record("constants", ["function", "jax, us", "first", "anew"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
