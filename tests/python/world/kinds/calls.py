"""What a call of jax's is given."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from world.world import item, kind, module

TYPES = "types of values"
REPETITION = "repetition of values"
NUMBERS = "numbers"
TEXTS = "texts"
PROGRAMS = "what programs say"
LINES = "lines of calls"


@kind(TYPES)
def type_of_an_argument():
    dtype = ["float32"]
    return lambda x: jnp.sin(x.astype(dtype[0])).astype("float32"), item(dtype, 0, "float16")


@kind(REPETITION)
def one_argument_twice():
    once = [False]

    def f(x):
        y, z = x * 2, x * 3
        return jnp.subtract(y, z if once[0] else y)

    return f, item(once, 0, True)


@kind(NUMBERS)
def number_as_an_argument():
    gain = [2.0]
    return lambda x: jnp.multiply(x, gain[0]), item(gain, 0, 7.0)


@kind(TEXTS)
def text_as_an_argument():
    spec = ["i,i->i"]
    return lambda x: jnp.einsum(spec[0], x, x) + x, item(spec, 0, "i,i->")


@kind(PROGRAMS)
def program_of_a_loop():
    gain = [2.0]

    def f(x):
        step = lambda c, _: (jnp.sin(c) * gain[0], None)
        return jax.grad(lambda v: lax.scan(step, v, None, length=2)[0].sum())(x)

    return f, item(gain, 0, 7.0)


@kind(LINES)
def line_of_a_differentiated_call():
    users = module(
        "import jax\n@jax.custom_jvp\ndef double(v):\n  return v * 2\n"
        "@double.defjvp\ndef rule(p, t):\n  return double(*p), t[0] * 2.0\n"
    )
    below = [False]

    def called(v):
        if below[0]:
            return users.double(v)
        return users.double(v)

    return lambda x: jax.grad(lambda v: called(v).sum())(x), item(below, 0, True)
