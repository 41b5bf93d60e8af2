"""The demonstration: a GPT training step, traced by jax and by jaxide, compared and executed."""

import statistics
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import jaxide
from jaxide._cli.timing import pairwise_ratio, warm_retraces

PyTree = Any

# What two correct executions of one program may differ by where a backend compiles it in two
# ways; on CPU the results are equal.
TOLERANCE = 1e-4


def gpt(
    layers: int = 12,
    width: int = 64,
    heads: int = 4,
    tokens: int = 32,
    vocab: int = 128,
    batch: int = 2,
) -> tuple[PyTree, Callable[[PyTree, jax.Array], jax.Array], jax.Array]:
    """A GPT in plain `jax.numpy`: its parameters, its loss function and a batch of token ids."""
    rng = np.random.RandomState(0)

    def weight(*shape: int) -> jax.Array:
        return jnp.asarray(rng.randn(*shape).astype("f") * 0.02)

    def norm_params() -> tuple[jax.Array, jax.Array]:
        return jnp.ones(width), jnp.zeros(width)

    params = dict(
        wte=weight(vocab, width),
        wpe=weight(tokens, width),
        lnf=norm_params(),
        blocks=[
            dict(
                ln1=norm_params(),
                qkv=(weight(width, 3 * width), jnp.zeros(3 * width)),
                o=(weight(width, width), jnp.zeros(width)),
                ln2=norm_params(),
                up=(weight(width, 4 * width), jnp.zeros(4 * width)),
                dn=(weight(4 * width, width), jnp.zeros(width)),
            )
            for _ in range(layers)
        ],
    )

    def layer_norm(p: tuple[jax.Array, jax.Array], x: jax.Array) -> jax.Array:
        mean = x.mean(-1, keepdims=True)
        var = x.var(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(var + 1e-5) * p[0] + p[1]

    def linear(p: tuple[jax.Array, jax.Array], x: jax.Array) -> jax.Array:
        return x @ p[0] + p[1]

    def attention(b: PyTree, x: jax.Array) -> jax.Array:
        batch, tokens, width = x.shape
        q, k, v = jnp.split(linear(b["qkv"], x), 3, axis=-1)

        def split_heads(t: jax.Array) -> jax.Array:
            return t.reshape(batch, tokens, heads, width // heads).transpose(0, 2, 1, 3)

        q, k, v = map(split_heads, (q, k, v))
        scores = jnp.einsum("bhtd,bhsd->bhts", q, k) / np.sqrt(width // heads)
        mask = jnp.tril(jnp.ones((tokens, tokens), bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
        out = jnp.einsum("bhts,bhsd->bhtd", weights, v)
        return linear(b["o"], out.transpose(0, 2, 1, 3).reshape(batch, tokens, width))

    def forward(p: PyTree, ids: jax.Array) -> jax.Array:
        x = p["wte"][ids] + p["wpe"][None, : ids.shape[1]]
        for b in p["blocks"]:
            x = x + attention(b, layer_norm(b["ln1"], x))
            x = x + linear(b["dn"], jax.nn.gelu(linear(b["up"], layer_norm(b["ln2"], x))))
        logits: jax.Array = layer_norm(p["lnf"], x) @ p["wte"].T
        return logits

    def loss(p: PyTree, ids: jax.Array) -> jax.Array:
        logp = jax.nn.log_softmax(forward(p, ids[:, :-1]))
        return -jnp.take_along_axis(logp, ids[:, 1:, None], axis=-1).mean()

    return params, loss, jnp.zeros((batch, tokens), jnp.int32)


def gpt_train() -> tuple[Callable[..., PyTree], tuple[PyTree, ...]]:
    """A whole training step of the GPT (gradient and AdamW update) and example arguments."""
    import optax  # of the `demo` extra: the package itself does without it

    params, loss, ids = gpt()
    optimizer = optax.adamw(1e-3)

    def step(params: PyTree, state: PyTree, ids: jax.Array) -> tuple[PyTree, PyTree, jax.Array]:
        value, grads = jax.value_and_grad(loss)(params, ids)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    return step, (params, optimizer.init(params), ids)


def excerpt(text: str, arguments: int = 2, equations: int = 8) -> str:
    """The first lines of a jaxpr: of its arguments, and of its equations."""
    lines = text.splitlines()
    body = 1 + next(i for i, line in enumerate(lines) if line.endswith(" let"))
    head = lines[:body] if body <= arguments + 1 else [*lines[:arguments], "    ..."]
    return "\n".join([*head, *lines[body : body + equations], "    ..."])


def largest_difference(expected: PyTree, actual: PyTree) -> float:
    """The largest absolute difference of two pytrees of arrays; infinite if array types differ."""

    def difference(x: jax.Array, y: jax.Array) -> float:
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            return np.inf
        if np.array_equal(x, y):
            return 0.0
        return float(np.abs(np.asarray(x, np.float64) - np.asarray(y, np.float64)).max())

    # NumPy's maximum, since a NaN must not get lost in it.
    return float(np.max(jax.tree.leaves(jax.tree.map(difference, expected, actual))))


def run(rounds: int = 7) -> int:
    """Runs the demonstration; returns 0 if texts and numbers agree, 1 otherwise."""
    console = Console(highlight=False)
    console.print(
        f"[bold]jaxide {jaxide.__version__}[/] beside jax {jax.__version__}: one training step of "
        "a 12-layer GPT, value_and_grad and optax.adamw\n"
    )
    step, args = gpt_train()

    with console.status("Tracing"):
        program = jaxide.trace(step)(*args)
        expected_jaxpr = jax.make_jaxpr(step)(*args)
        expected_text, text = str(expected_jaxpr), str(jaxide.make_jaxpr(step)(*args))
        stock, ours = warm_retraces([jax.make_jaxpr, jaxide.make_jaxpr], step, args, rounds=rounds)
    same_text = text == expected_text == str(program)

    console.print(excerpt(text), markup=False, no_wrap=True, overflow="ellipsis")
    console.print()
    table = Table("", "jax", "jaxide")
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("equations", f"{len(expected_jaxpr.eqns):,}", f"{len(program):,}")
    table.add_row("characters", f"{len(expected_text):,}", f"{len(text):,}")
    table.add_row("retrace, ms", *(f"{statistics.median(s) * 1e3:.1f}" for s in (stock, ours)))
    console.print(table)
    console.print(f"texts: {'identical' if same_text else '[red]DIFFERENT[/]'}")
    console.print(f"speed: jaxide traces {pairwise_ratio(stock, ours):.1f} times as fast as jax")

    with console.status("Compiling and running both (about 20 seconds)"):
        expected = jax.jit(step)(*args)
        actual = jax.jit(lambda *a: program(*a))(*args)
        difference = largest_difference(expected, actual)
    same_numbers = difference <= TOLERANCE
    verdict = "all equal" if difference == 0 else f"largest difference {difference:.2g}"
    console.print(
        f"numbers: jaxide's program and jax.jit of the step, {len(jax.tree.leaves(expected))} "
        f"arrays: {verdict if same_numbers else f'[red]DIFFERENT[/], {verdict}'}"
    )
    return 0 if same_text and same_numbers else 1
