"""Training loops that make their step function anew, with stock jax and with jaxide.

Each loop is a function of the number of the step that returns what to call and its arguments; every
step is a new function object, as in a notebook cell that is run again, a sweep, or a closure made
once an epoch. Measured are seconds of a step after the first two, and of a call of a function that
is known (the *cached call*), each loop and each way in a process of its own:

*jax*: stock; *persistent*: stock with the persistent compilation cache, filled; *jaxide*:
``jaxide.jit`` and ``jaxide.install()``.

*Known calls* are microseconds of calls of one compiled function with 1, 10 and 300 arguments, with
jax.jit, jaxide.jit and jax.jit while jaxide is installed, which take turns.
"""

import argparse
import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import report

WAYS = ("jax", "persistent", "jaxide")
Loop = Callable[[Callable[..., Any], int], tuple[Callable[..., Any], tuple[Any, ...]]]


def _mlp() -> Any:
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), 4)
    sizes = [(32, 64), (64, 64), (64, 64), (64, 8)]
    return [
        {"w": jax.random.normal(key, size) / 8, "b": jnp.zeros(size[1])}
        for key, size in zip(keys, sizes, strict=True)
    ]


def _predict(params: Any, x: Any) -> Any:
    import jax

    for layer in params[:-1]:
        x = jax.nn.gelu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def _loss(params: Any, x: Any, y: Any) -> Any:
    return ((_predict(params, x) - y) ** 2).mean()


def gpt_train(jit: Any, step: int) -> Any:
    """A new lambda each step: gradients and AdamW of a 12-layer GPT."""
    import workloads

    function, args = _once(workloads.gpt_train)
    return jit(lambda *a: function(*a)), args


def epochs(jit: Any, step: int) -> Any:
    """`value_and_grad` of a closure that is made once an epoch."""
    import jax
    import jax.numpy as jnp

    x, y = jnp.ones((16, 32)), jnp.ones((16, 8))
    weight = 0.1

    def loss(params: Any) -> Any:
        return _loss(params, x, y) + weight * (params[0]["w"] ** 2).sum()

    return jit(jax.value_and_grad(loss)), (_once(_mlp),)


def sweep(jit: Any, step: int) -> Any:
    """An optimiser that is made anew for each learning rate, which is an argument."""
    import jax
    import jax.numpy as jnp
    import optax

    def train(params: Any, rate: Any) -> Any:
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate))
        gradient = jax.grad(_loss)(params, jnp.ones((16, 32)), jnp.ones((16, 8)))
        updates, _ = optimizer.update(gradient, optimizer.init(params), params)
        return optax.apply_updates(params, updates)

    return jit(functools.partial(train)), (_once(_mlp), jnp.float32(10.0**-step))


def notebook(jit: Any, step: int) -> Any:
    """A cell that defines its function again each time it is run."""
    namespace: dict[str, Any] = {"loss": _loss}
    exec(
        "import jax, jax.numpy as jnp\n"
        "def step(params, x, y):\n"
        "    value, gradient = jax.value_and_grad(loss)(params, x, y)\n"
        "    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)\n",
        namespace,
    )
    import jax.numpy as jnp

    return jit(namespace["step"]), (_once(_mlp), jnp.ones((16, 32)), jnp.ones((16, 8)))


def inference(jit: Any, step: int) -> Any:
    """Hamiltonian Monte Carlo whose body closes over data: new arrays each time."""
    import jax
    import jax.numpy as jnp

    data = jnp.linspace(-1.0, 1.0, 256) + step
    target = jnp.sin(data)

    def potential(q: Any) -> Any:
        return ((target - q[0] * data - q[1]) ** 2).sum() / 2 + (q**2).sum() / 2

    def leapfrog(_: Any, state: Any) -> Any:
        q, p = state
        p = p - 0.01 * jax.grad(potential)(q)
        return q + 0.01 * p, p

    def sample(key: Any, q: Any) -> Any:
        p = jax.random.normal(key, q.shape)
        new, _ = jax.lax.fori_loop(0, 10, leapfrog, (q, p))
        accept = jnp.log(jax.random.uniform(key)) < potential(q) - potential(new)
        return jnp.where(accept, new, q)

    return jit(sample), (jax.random.key(step), jnp.zeros(2))


def modules(jit: Any, step: int) -> Any:
    """`equinox.filter_jit` of a function of modules that are made anew, with static fields."""
    import equinox
    import jax
    import jax.numpy as jnp

    model = equinox.nn.MLP(8, 8, 32, 2, activation=jax.nn.gelu, key=jax.random.key(step))
    function = equinox.filter_jit(lambda model, x: equinox.filter_grad(_of_module)(model, x))
    return function, (model, jnp.ones((16, 8)))


def _of_module(model: Any, x: Any) -> Any:
    import jax

    return (jax.vmap(model)(x) ** 2).mean()


def captured_float(jit: Any, step: int) -> Any:
    """A captured number that changes: another program each time, as it has to be."""
    import jax
    import jax.numpy as jnp

    rate = 0.1 * 0.5**step

    def train(params: Any, x: Any, y: Any) -> Any:
        gradient = jax.grad(_loss)(params, x, y)
        return jax.tree.map(lambda p, g: p - rate * g, params, gradient)

    return jit(train), (_once(_mlp), jnp.ones((16, 32)), jnp.ones((16, 8)))


LOOPS: dict[str, Loop] = {
    loop.__name__: loop
    for loop in (gpt_train, epochs, sweep, notebook, inference, modules, captured_float)
}


@functools.cache
def _once(make: Callable[[], Any]) -> Any:
    return make()


def run_loop(loop: str, way: str, steps: int) -> dict[str, Any]:
    """What a fresh process does: seconds of a step, and of a known call, as medians."""
    import jax

    jit: Any = jax.jit
    if way == "jaxide":
        import jaxide

        jaxide.install()
        jit = jaxide.jit
    seconds = []
    for step in range(steps + 2):
        function, args = LOOPS[loop](jit, step)
        jax.block_until_ready(args[-1])
        start = time.perf_counter()
        jax.block_until_ready(jax.tree.leaves(function(*args)))
        seconds.append(time.perf_counter() - start)
    known = []
    for _ in range(10):
        start = time.perf_counter()
        jax.block_until_ready(jax.tree.leaves(function(*args)))
        known.append(time.perf_counter() - start)
    result: dict[str, Any] = {
        "step": statistics.median(seconds[2:]),
        "known": statistics.median(known),
    }
    if way == "jaxide":
        explanation = jaxide.explain()
        result["explanation"] = str(explanation)
    return result


def run_known_calls(rounds: int) -> dict[str, dict[str, float]]:
    """What a fresh process does: microseconds of known calls, as medians of slices."""
    import jax
    import jax.numpy as jnp

    import jaxide

    result = {}
    for leaves in (1, 10, 300):
        args = [jnp.ones(4) + i for i in range(leaves)]
        jits: dict[str, Any] = {"jax.jit": jax.jit(lambda xs: xs[0] + xs[-1])}
        jits["jaxide.jit"] = jaxide.jit(lambda xs: xs[0] + xs[-1])
        with jaxide.accelerated():
            jits["installed"] = jax.jit(lambda xs: xs[0] + xs[-1])
            jits["installed"](args)
        samples: dict[str, list[float]] = {name: [] for name in jits}
        names = list(jits)
        for sample in range(60):
            # Each in turn is the first, the second and the last.
            for name in names[sample % 3 :] + names[: sample % 3]:
                jitted = jits[name]
                installed = (
                    jaxide.accelerated() if name == "installed" else contextlib.nullcontext()
                )
                with installed:
                    jax.block_until_ready(jitted(args))
                    start = time.perf_counter()
                    for _ in range(rounds):
                        jitted(args)
                    samples[name].append((time.perf_counter() - start) / rounds * 1e6)
        result[str(leaves)] = {
            name: statistics.median(
                one / stock for one, stock in zip(values, samples["jax.jit"], strict=True)
            )
            for name, values in samples.items()
        }
        result[str(leaves)]["jax.jit"] = statistics.median(samples["jax.jit"])
    return result


def in_process(*options: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    """What a fresh process says."""
    done = subprocess.run(
        [sys.executable, __file__, *options],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(loop: str, steps: int) -> dict[str, dict[str, Any]]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        cache = {
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        for way in WAYS:
            options = ("--run", loop, way, "--steps", str(steps))
            env = cache if way == "persistent" else {}
            if env:
                in_process(*options, env=env)
            found[way] = in_process(*options, env=env)
    return found


def main() -> None:
    """Prints the tables and puts them into the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=5, help="steps after the first two")
    parser.add_argument("--only", choices=LOOPS, nargs="+", help="measure, do not record")
    parser.add_argument("--explain", action="store_true", help="say why the last step was traced")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--known-calls", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run_loop(*options.run, options.steps)))
        return
    if options.known_calls:
        print(json.dumps(run_known_calls(200)))
        return
    rows = []
    for loop in options.only or LOOPS:
        found = measure(loop, options.steps)
        steps = [found[way]["step"] for way in WAYS]
        known = found["jaxide"]["known"]
        # Where a step is little more than a known call, their difference is noise.
        over = max(steps[-1] - known, 0.01 * known)
        ratios = [f"{step / steps[-1]:.0f}x" for step in steps[:-1]]
        ratios += [f"{(step - known) / over:.0f}x" for step in steps[:-1]]
        times = [f"{1e3 * seconds:.1f}" for seconds in (*steps, known)]
        rows.append([loop, *times, *ratios])
        print(*rows[-1], sep="  ", flush=True)
        if options.explain:
            print(found["jaxide"]["explanation"], flush=True)
    calls = in_process("--known-calls")
    call_rows = [
        [
            leaves,
            f"{row['jax.jit']:.2f}",
            f"{row['jaxide.jit']:.3f}x",
            f"{row['installed']:.3f}x",
        ]
        for leaves, row in calls.items()
    ]
    for row in call_rows:
        print(*row, sep="  ")
    if not options.only:
        header = ["loop", "jax, ms", "persistent, ms", "jaxide, ms", "known call, ms"]
        header += ["jax / jaxide", "persistent / jaxide"]
        header += ["jax / jaxide, over a known call", "persistent / jaxide, over a known call"]
        calls_header = ["arguments", "jax.jit, us", "jaxide.jit", "jax.jit, installed"]
        content = [
            report.table(header, rows),
            report.table(calls_header, call_rows),
            report.provenance("benches/loops.py"),
        ]
        report.replace_section("loops", "\n\n".join(content))


if __name__ == "__main__":
    main()
