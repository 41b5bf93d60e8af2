"""A tracer outlives the trace it belongs to.

A trace takes a foreign tracer as a constant, so that many leaks show only when the program runs.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import jaxpr_as_fun

from . import bad_use

_global_state: dict[str, object] = {}


def _run(make, function, *args):
    """Traces `function` and executes the result."""
    return jaxpr_as_fun(make(function)(*args))(*jax.tree.leaves(args))


def _leak_into(leaked: list, transform=jax.jit):
    """Runs `transform` of a function that stores a derived tracer in `leaked`."""

    def keeps_its_input(x):
        y = jnp.sin(x) * 2.0
        leaked.append(y)
        return y.sum()

    return transform(keeps_its_input)


@bad_use
def from_make_jaxpr_used_eagerly(make):
    leaked = []
    make(_leak_into(leaked, lambda f: f))(1.0)
    leaked[0] + 1


@bad_use
def from_make_jaxpr_used_in_next_trace(make):
    leaked = []
    make(_leak_into(leaked, lambda f: f))(1.0)
    _run(make, lambda x: x + leaked[0], 1.0)


@bad_use
def argument_itself(make):
    leaked = []
    make(lambda x: leaked.append(x))(1.0)
    _run(make, lambda x: jnp.sin(leaked[0]), 1.0)


@bad_use
def from_jit(make):
    leaked = []
    make(_leak_into(leaked))(1.0)
    _run(make, lambda x: x * leaked[0], 1.0)


@bad_use
def from_jit_in_the_same_trace(make):
    leaked = []
    inner = _leak_into(leaked)
    _run(make, lambda x: inner(x) + leaked[0], 1.0)


@bad_use
def from_grad(make):
    leaked = []
    make(_leak_into(leaked, jax.grad))(1.0)
    _run(make, lambda x: x - leaked[0], 1.0)


@bad_use
def from_vmap(make):
    leaked = []
    make(_leak_into(leaked, jax.vmap))(jnp.ones(3))
    _run(make, lambda x: x + leaked[0], 1.0)


@bad_use
def from_vmap_in_the_same_trace(make):
    leaked = []
    mapped = _leak_into(leaked, jax.vmap)
    _run(make, lambda x: mapped(x) + leaked[0], jnp.ones(3))


@bad_use
def from_checkpoint(make):
    leaked = []
    function = _leak_into(leaked, jax.checkpoint)
    _run(make, lambda x: function(x) * leaked[0], 1.0)


@bad_use
def from_eval_shape(make):
    leaked = []
    _run(make, lambda x: jax.eval_shape(_leak_into(leaked, lambda f: f), x) and x * leaked[0], 1.0)


@bad_use
def from_linearize(make):
    leaked = []
    make(lambda x: jax.linearize(_leak_into(leaked, lambda f: f), x)[0])(1.0)
    _run(make, lambda x: x + leaked[0], 1.0)


@bad_use
def from_scan(make):
    leaked = []

    def body(carry, x):
        leaked.append(carry + x)
        return carry, x

    _run(make, lambda xs: lax.scan(body, 0.0, xs)[0] + leaked[0], jnp.ones(3))


@bad_use
def from_fori_loop(make):
    leaked = []

    def body(i, x):
        leaked.append(i)
        return x * i

    _run(make, lambda x: lax.fori_loop(0, 3, body, x) + leaked[-1], 1.0)


@bad_use
def from_while_condition(make):
    leaked = []

    def condition(x):
        leaked.append(x)
        return x < 3

    _run(make, lambda x: lax.while_loop(condition, lambda v: v + 1, x) + leaked[0], 1.0)


@bad_use
def from_cond_branch(make):
    leaked = []

    def branch(x):
        leaked.append(jnp.cos(x))
        return x

    _run(make, lambda x: lax.cond(x > 0, branch, lambda v: v, x) + leaked[0], 1.0)


@bad_use
def from_custom_vjp_forward(make):
    leaked = []

    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    def forward(x):
        leaked.append(x * 2)
        return f(x), x

    f.defvjp(forward, lambda residual, ct: (ct + residual,))
    make(jax.grad(f))(1.0)
    _run(make, lambda x: x + leaked[0], 1.0)


@bad_use
def through_global_state(make):
    def remember(x):
        _global_state["activation"] = x * 3
        return x

    make(remember)(1.0)
    try:
        _run(make, lambda x: _global_state["activation"] + x, 1.0)
    finally:
        _global_state.clear()


@bad_use
def through_object_attribute(make):
    class Layer:
        def __call__(self, x):
            self.cache = jnp.tanh(x)
            return self.cache

    layer = Layer()
    make(jax.jit(layer))(1.0)
    _run(make, lambda x: layer.cache * x, 1.0)


@bad_use
def as_argument_of_later_trace(make):
    leaked = []
    make(_leak_into(leaked, lambda f: f))(1.0)
    _run(make, lambda x: x + 1, leaked[0])


@bad_use
def as_result_of_later_trace(make):
    leaked = []
    make(_leak_into(leaked, lambda f: f))(1.0)
    jax.eval_shape(lambda x: leaked[0], 1.0)
    _run(make, lambda x: jnp.stack([x, leaked[0]]), 1.0)


@bad_use
def as_operand_of_nested_jit(make):
    leaked = []
    make(_leak_into(leaked, lambda f: f))(1.0)
    _run(make, lambda x: jax.jit(lambda a, b: a + b)(x, leaked[0]), 1.0)


@bad_use
def captured_by_scan_body(make):
    leaked = []
    make(_leak_into(leaked, lambda f: f))(1.0)
    _run(make, lambda xs: lax.scan(lambda c, x: (c + leaked[0], x), 0.0, xs), jnp.ones(3))


@bad_use
def converted_to_numpy(make):
    leaked = []
    make(_leak_into(leaked, lambda f: f))(1.0)
    np.asarray(leaked[0])


@bad_use
def converted_to_bool(make):
    leaked = []
    make(_leak_into(leaked, lambda f: f))(1.0)
    bool(leaked[0])


@bad_use
def executed_by_jit(make):
    leaked = []
    make(_leak_into(leaked, lambda f: f))(1.0)
    jax.jit(jnp.sin)(leaked[0])


@bad_use
def inner_tracer_escapes_to_outer_trace(make):
    def outer(x):
        escaped = []
        make(lambda y: escaped.append(x * y))(2.0)
        return x + escaped[0]

    _run(make, outer, 1.0)


@bad_use
def from_trace_that_failed(make):
    leaked = []

    def fails(x):
        leaked.append(jnp.exp(x))
        raise KeyError("after the leak")

    try:
        make(fails)(1.0)
    except KeyError:
        pass
    _run(make, lambda x: x / leaked[0], 1.0)
