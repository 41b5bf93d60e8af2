"""Traces of programs that were traced before with other sizes: stock jax and jaxide.

Each program is traced once; then it is traced with sizes that nobody had before. Stock jax and
jaxide take turns, each with sizes of its own, so that neither finds what the other left.
"""

import argparse
import gc
import itertools
import statistics
import time

import jax
import jax.numpy as jnp

import jaxide
import report


def mlp(width):
    """One gradient step of a network of two layers, `tanh` and weight decay."""

    def loss(params, x, y):
        hidden = jnp.tanh(x @ params["in"] + params["bias"])
        return jnp.mean((hidden @ params["out"] - y) ** 2) + 1e-4 * jnp.sum(params["in"] ** 2)

    def step(params, x, y):
        grads = jax.grad(loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g / (1.0 + jnp.abs(g)), params, grads)

    shapes = {"in": (8, width), "bias": (width,), "out": (width, 4)}
    return step, ({name: jnp.ones(shape) for name, shape in shapes.items()}, *_data(8, 4))


def adam(width):
    """One Adam update of ten arrays."""

    def update(grads, moments):
        def one(g, m):
            first, second = 0.9 * m[0] + 0.1 * g, 0.999 * m[1] + 0.001 * g**2
            return -1e-3 * first / (jnp.sqrt(second) + 1e-8), (first, second)

        return [one(g, m) for g, m in zip(grads, moments, strict=True)]

    arrays = [jnp.ones((width + i, width)) for i in range(10)]
    return update, (arrays, [(a, a) for a in arrays])


def elementwise(width):
    """Thirty operators and functions."""

    def program(x):
        for _ in range(10):
            x = jnp.sin(x) * x + 1.0
        return x

    return program, (jnp.ones((width, 3)),)


def softmax(width):
    """Functions that do not compute element by element."""

    def program(x):
        return jax.nn.softmax(x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True))

    return program, (jnp.ones((width, 5)),)


PROGRAMS = {
    "elementwise": elementwise,
    "adam": adam,
    "mlp": mlp,
    "softmax": softmax,
}


def _data(inputs, outputs):
    return jnp.ones((16, inputs)), jnp.ones((16, outputs))


def measure(name, rounds):
    """The row of a program: medians of the traces of each, and the ratio."""
    widths = itertools.count(10)
    makers = {"jax": jax.make_jaxpr, "jaxide": jaxide.make_jaxpr}
    times = {kind: [] for kind in makers}
    is_same = True
    for turn in range(rounds + 1):
        for kind, make in makers.items():
            fun, args = PROGRAMS[name](next(widths))
            jax.block_until_ready(args)
            gc.collect()
            start = time.perf_counter()
            made = make(fun)(*args)
            taken = time.perf_counter() - start
            if turn:
                times[kind].append(taken)
            elif kind == "jaxide":
                is_same = str(made) == str(jax.make_jaxpr(PROGRAMS[name](11)[0])(*args))
    stock, ours = (statistics.median(times[kind]) for kind in makers)
    return [
        name,
        "yes" if is_same else "no",
        f"{stock * 1e3:.2f}",
        f"{ours * 1e3:.2f}",
        f"{stock / ours:.1f}x",
    ]


def main():
    """Makes the table, and puts it into docs/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="traces of each")
    parser.add_argument("--only", choices=PROGRAMS, nargs="+", help="measure, do not record")
    options = parser.parse_args()
    rows = []
    for name in options.only or PROGRAMS:
        rows.append(measure(name, options.rounds))
        print(*rows[-1], sep="  ", flush=True)
    if not options.only:
        header = ["program", "identical", "jax, ms", "jaxide, ms", "ratio"]
        report.record("other_sizes", header, rows)


if __name__ == "__main__":
    main()
