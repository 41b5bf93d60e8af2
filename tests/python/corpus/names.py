"""Name stacks: named_scope, named_call and the names that transformations add."""

import jax
import jax.numpy as jnp

from corpus.registry import call, case, f32


@case(f32(3))
def named_scope():
    def f(x):
        with jax.named_scope("outer"):
            y = jnp.sin(x)
            with jax.named_scope("inner"):
                z = jnp.cos(y)
        return z * 2

    return f


@case(f32(3))
def named_scope_decorator():
    @jax.named_scope("layer")
    def layer(x):
        return jnp.tanh(x)

    return lambda x: layer(layer(x))


@case(f32(3))
def named_call():
    def f(x):
        return jax.named_call(lambda v: jnp.sin(v) * 2, name="block")(x)

    return f


@case(f32(3))
def named_scope_under_grad():
    def f(x):
        def loss(v):
            with jax.named_scope("loss"):
                return (jnp.sin(v) ** 2).sum()

        return jax.grad(loss)(x)

    return f


@case(f32(4, 3))
def named_scope_under_vmap_of_grad():
    @jax.named_scope("net")
    def net(v):
        return jnp.sin(v).sum()

    return lambda x: jax.vmap(jax.grad(net))(x)


@case(f32(3))
def named_scope_around_jit():
    def f(x):
        with jax.named_scope("around"):
            return jax.jit(jax.named_scope("within")(lambda v: v * 2))(x)

    return f


@case(f32(3))
def named_scope_around_control_flow():
    def f(x):
        with jax.named_scope("loop"):

            def body(c, v):
                with jax.named_scope("body"):
                    return c + v, jax.lax.cond(v > 0, jnp.sin, jnp.cos, v)

            return jax.lax.scan(body, 0.0, x)

    return f


@case(f32(3))
def named_scope_reentered():
    def f(x):
        for i in range(3):
            with jax.named_scope(f"step_{i}"):
                x = x * 2
        return x

    return f


@case(f32(3))
def named_scope_under_linearize():
    def f(x):
        y, tangent = jax.linearize(jax.named_scope("lin")(jnp.sin), x)
        with jax.named_scope("applied"):
            return y, tangent(x)

    return f


@case(f32(3))
def named_scope_over_make_jaxpr():
    def f(x):
        with jax.named_scope("first"):
            y = x + 1
        with jax.named_scope("first"):
            return y * 2, jax.checkpoint(jax.named_scope("remat")(jnp.sin))(y)

    return f


call(
    "named_custom_rule",
    lambda x: jax.grad(lambda v: jax.named_scope("act")(jax.nn.silu)(v).sum())(x),
    f32(3),
)


@case(f32(3), context=lambda: jax.named_scope("outside"))
def named_scope_outside_the_trace():
    return lambda x: jnp.sin(x) * 2
