"""Warm retraces of loops, branches, checkpoints, kernels and Refs whose functions are defined anew
each time, of programs that are evaluated, and of functions with rules of the user's.

jax knows what it has made of a body by the body's identity, so it differentiates and batches each
of them from the start. Stock and jaxide take turns; the ratio is the median of the ratios of
neighbours, and the texts are compared.
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import eval_jaxpr
from jax.experimental import pallas

import jaxide
import report

Function = Callable[..., Any]

LAYERS = 4
WIDTH = 8


def layer(h: Any, w: Any, b: Any) -> Any:
    """About ten equations."""
    h = jnp.tanh(h @ w + b)
    return h * jax.nn.sigmoid(h) + jnp.where(h > 0, h, 0.0)


def plain() -> Function:
    def f(ws, bs, x):
        for i in range(LAYERS):
            x = layer(x, ws[i], bs[i])
        return x.sum()

    return f


def scan() -> Function:
    def f(ws, bs, x):
        carry, ys = lax.scan(lambda c, wb: (layer(c, *wb), c.sum()), x, (ws, bs))
        return carry.sum() + ys.sum()

    return f


def scan_of_custom_rules() -> Function:
    def f(ws, bs, x):
        def body(c, wb):
            return jax.nn.relu(c @ wb[0] + wb[1]), jax.nn.softplus(c).sum()

        carry, ys = lax.scan(body, x, (ws, bs))
        return carry.sum() + ys.sum()

    return f


@jax.custom_vjp
def clipped(h: Any) -> Any:
    """A rule of the user's for the backward pass."""
    return jnp.clip(h, -1.0, 1.0)


def _clipped_fwd(h: Any) -> Any:
    return jnp.clip(h, -1.0, 1.0), jnp.abs(h) < 1.0


def _clipped_bwd(inside: Any, ct: Any) -> Any:
    return (jnp.where(inside, ct, 0.1 * ct),)


clipped.defvjp(_clipped_fwd, _clipped_bwd)


def custom_vjps() -> Function:
    def f(ws, bs, x):
        for i in range(LAYERS):
            x = clipped(x @ ws[i] + bs[i])
        return x.sum()

    return f


def evaluations() -> Function:
    def f(ws, bs, x):
        for i in range(LAYERS):
            jaxpr = jax.make_jaxpr(lambda *a: layer(*a))(x, ws[i], bs[i])
            (x,) = eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x, ws[i], bs[i])
        return x.sum()

    return f


def scan_of_checkpoint() -> Function:
    def f(ws, bs, x):
        body = jax.checkpoint(lambda c, wb: (layer(c, *wb), c.sum()))
        carry, ys = lax.scan(body, x, (ws, bs))
        return carry.sum() + ys.sum()

    return f


def checkpoints() -> Function:
    def f(ws, bs, x):
        for i in range(LAYERS):
            x = jax.checkpoint(lambda *a: layer(*a))(x, ws[i], bs[i])
        return x.sum()

    return f


def conds() -> Function:
    def f(ws, bs, x):
        for i in range(LAYERS):
            w, b = ws[i], bs[i]
            x = lax.cond(x.sum() > 0, lambda x, w=w, b=b: layer(x, w, b), lambda x: x * 2, x)
        return x.sum()

    return f


def fori() -> Function:
    return lambda ws, bs, x: lax.fori_loop(0, LAYERS, lambda i, x: layer(x, ws[i], bs[i]), x).sum()


def while_loop() -> Function:
    def f(ws, bs, x):
        def body(c):
            return c[0] + 1, layer(c[1], ws[0], bs[0])

        return lax.while_loop(lambda c: c[0] < LAYERS, body, (0, x))[1].sum()

    return f


def jits() -> Function:
    def f(ws, bs, x):
        jitted = jax.jit(lambda *a: layer(*a))
        for i in range(LAYERS):
            x = jitted(x, ws[i], bs[i])
        return x.sum()

    return f


def shard_maps() -> Function:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))

    def f(ws, bs, x):
        for i in range(LAYERS):
            specs = {"mesh": mesh, "in_specs": jax.P(), "out_specs": jax.P()}
            x = jax.shard_map(lambda *a: layer(*a), **specs)(x, ws[i], bs[i])
        return x.sum()

    return f


def jits_of_shard_map() -> Function:
    return lambda ws, bs, x: jax.jit(lambda *a: shard_maps()(*a))(ws, bs, x)


def kernels() -> Function:
    def body(x_ref, w_ref, b_ref, o_ref):
        o_ref[...] = layer(x_ref[...], w_ref[...], b_ref[...])

    def f(ws, bs, x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        for i in range(LAYERS):
            kernel = pallas.pallas_call(lambda *refs: body(*refs), out_shape=shape, interpret=True)
            x = kernel(x, ws[i], bs[i])
        return x.sum()

    return f


def refs() -> Function:
    def f(ws, bs, x):
        ref, total = jax.new_ref(x), jax.new_ref(jnp.zeros(()))
        for i in range(LAYERS):
            ref[...] = layer(ref[...], ws[i], bs[i])

        def body(c, wb):
            total[...] += c.sum()
            return layer(c, *wb), None

        return lax.scan(body, ref[...], (ws, bs))[0].sum() + total[...]

    return f


PROGRAMS = [
    plain,
    scan,
    custom_vjps,
    evaluations,
    scan_of_custom_rules,
    scan_of_checkpoint,
    checkpoints,
    conds,
    fori,
    while_loop,
    jits,
    shard_maps,
    jits_of_shard_map,
    kernels,
    refs,
]
TRANSFORMATIONS: dict[str, Callable[[Function], Function]] = {
    "none": lambda f: f,
    "jvp": lambda f: lambda *a: jax.jvp(f, a, a),
    "vmap": lambda f: (
        lambda ws, bs, x: jax.vmap(f, in_axes=(None, None, 0))(ws, bs, jnp.stack([x, x]))
    ),
    "grad": lambda f: jax.grad(f, argnums=(0, 1)),
    "vmap of grad": lambda f: (
        lambda ws, bs, x: jax.vmap(jax.grad(f), in_axes=(None, None, 0))(ws, bs, jnp.stack([x, x]))
    ),
    "grad of grad": lambda f: jax.grad(lambda *a: jax.grad(f)(*a).sum()),
}


def measure(program: Callable[[], Function], transform: Callable, rounds: int) -> str:
    """The ratio, or why there is none."""
    args = (jnp.ones((LAYERS, WIDTH, WIDTH)), jnp.ones((LAYERS, WIDTH)), jnp.ones(WIDTH))

    def trace(make: Callable) -> tuple[float, Any]:
        f = transform(program())
        function = lambda *a: f(*a)
        gc.collect(1)
        start = time.perf_counter()
        jaxpr = make(function)(*args)
        return time.perf_counter() - start, jaxpr

    try:
        expected = str(trace(jax.make_jaxpr)[1])
    except (ValueError, AttributeError):
        return "none in jax"
    same = all(str(trace(jaxide.make_jaxpr)[1]) == expected for _ in range(5))
    gc.collect()
    gc.freeze()
    ratios = [trace(jax.make_jaxpr)[0] / trace(jaxide.make_jaxpr)[0] for _ in range(rounds)]
    gc.unfreeze()
    return f"{statistics.median(ratios):.1f}x" + ("" if same else " DIFFERS")


def main() -> int:
    """Prints the table and puts it into the document; fails if a text differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="warm retraces of each tracer")
    parser.add_argument("--only", nargs="+", help="measure these programs, do not record")
    options = parser.parse_args()
    rows = []
    for program in PROGRAMS:
        if options.only and program.__name__ not in options.only:
            continue
        cells = [measure(program, t, options.rounds) for t in TRANSFORMATIONS.values()]
        rows.append([program.__name__, *cells])
        print(*rows[-1], sep="  ", flush=True)
    if not options.only:
        report.record("rules", ["program", *TRANSFORMATIONS], rows)
    return 1 if any("DIFFERS" in cell for row in rows for cell in row) else 0


if __name__ == "__main__":
    sys.exit(main())
