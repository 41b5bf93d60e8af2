"""jit inside a traced function, and jit's options."""

import functools

import jax
import jax.numpy as jnp

from corpus.registry import call, case, f32, i32


@case(f32(3))
def jit():
    return lambda x: jax.jit(jnp.sin)(x)


@case(f32(3), f32(3))
def jit_called_twice():
    def f(x, y):
        @jax.jit
        def g(a):
            return jnp.sin(a) * 2

        return g(x) + g(y)

    return f


@case(f32(3))
def jit_called_with_two_types():
    def f(x):
        g = jax.jit(lambda a: a * 2)
        return g(x), g(x[0]), g(1), g(x)

    return f


@case(f32(3))
def jit_nested():
    def f(x):
        @jax.jit
        def outer(a):
            @jax.jit
            def inner(b):
                return b * 2

            return inner(a) + inner(a + 1)

        return outer(x)

    return f


@case(f32(3))
def jit_static_argnums():
    return lambda x: jax.jit(lambda a, n: a**n, static_argnums=1)(x, 3)


@case(f32(3))
def jit_static_argnames():
    return lambda x: jax.jit(lambda a, *, mode: a + len(mode), static_argnames="mode")(x, mode="ab")


@case(f32(3))
def jit_donated():
    return lambda x: jax.jit(lambda a: a + 1, donate_argnums=0)(x * 1)


@case(f32(3))
def jit_donated_names():
    return lambda x: jax.jit(lambda a: a + 1, donate_argnames="a")(a=x * 1)


@case(f32(3))
def jit_inline():
    return lambda x: jax.jit(lambda a: jnp.sin(a) + 1, inline=True)(x)


@case(f32(3), f32(2))
def jit_keep_unused():
    return lambda x, y: jax.jit(lambda a, b: a, keep_unused=True)(x, y)


@case(f32(3), f32(2))
def jit_unused_argument():
    return lambda x, y: jax.jit(lambda a, b: a * 2)(x, y)


@case(f32(3))
def jit_keywords():
    return lambda x: jax.jit(lambda a, b=2.0, *, c: a * b + c)(x, c=x)


@case(f32(3), kwargs={"scale": f32(3), "bias": f32()})
def keyword_arguments():
    return lambda x, *, bias, scale: x * scale + bias


@case(f32(3))
def jit_closes_over_tracer():
    def f(x):
        y = jnp.cos(x)
        return jax.jit(lambda a: a * y)(x)

    return f


@case(f32(3))
def jit_forwarded_and_constant_outputs():
    return lambda x: jax.jit(lambda a: (a, 1, a * 2, jnp.arange(2), a))(x)


@case(f32(3))
def jit_pytrees():
    return lambda x: jax.jit(lambda d: {"s": d["x"][0] + d["y"], "t": (d["y"],)})(
        {"x": (x,), "y": 1.0}
    )


@case(f32(3))
def jit_grad_inside():
    return lambda x: jax.jit(jax.grad(lambda a: jnp.sin(a).sum()))(x)


@case(f32(3))
def jit_grad_outside():
    return lambda x: jax.grad(jax.jit(lambda a: (jnp.sin(a) * a).sum()))(x)


@case(f32(4, 3))
def jit_vmap_outside():
    return lambda x: jax.vmap(jax.jit(lambda a: a / a.sum()))(x)


@case(f32(3))
def jit_partial():
    return lambda x: jax.jit(functools.partial(jnp.add, 1.0))(x)


@case(f32(3))
def jit_name():
    def f(x):
        def renamed(a):
            return a * 2

        renamed.__name__ = "other_name"
        return jax.jit(renamed)(x)

    return f


@case(f32(3), f32(3))
def traced_function_is_jitted():
    return jax.jit(lambda x, y: x * y + jnp.sin(x))


@case(f32(3), 2, options={"static_argnums": 1})
def static_argnums():
    return lambda x, n: x**n


@case("add", f32(3), (1, 2), options={"static_argnums": (0, -1)})
def static_argnums_negative():
    return lambda mode, x, shape: (x if mode == "add" else -x) + shape[1]


@case(f32(3), options={"return_shape": True})
def return_shape():
    return lambda x: {"a": x, "b": (x[:1], 1.0), "c": None}


@case(f32(3), i32(2), options={"return_shape": True, "static_argnums": ()})
def return_shape_no_outputs():
    return lambda x, i: None


call("jit_of_jnp_function", lambda x: jnp.linalg.norm(x, axis=-1), f32(3, 4))
