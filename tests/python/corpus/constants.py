"""Values captured by the traced function rather than passed to it."""

import jax
import jax.numpy as jnp
import numpy as np

from corpus.registry import boolean, case, f32, i32

GLOBAL = np.linspace(0, 1, 3, dtype=np.float32)


@case(f32(3))
def constant_jax_array():
    table = jnp.asarray(GLOBAL)
    return lambda x: x + table


@case(f32(3))
def constant_numpy_array():
    table = np.array([1, 2, 3], np.float32)
    return lambda x: x + table


@case(f32(3))
def constant_numpy_double_array():
    table = np.array([1.0, 2.0, 3.0])
    return lambda x: x * table


@case(f32(3))
def constant_numpy_integers():
    table = np.array([1, 2, 3])
    return lambda x: (x * table, jnp.asarray(table), table)


@case(f32(3))
def constant_global():
    return lambda x: x * GLOBAL


@case(f32(3))
def constant_jax_scalar():
    scale = jnp.asarray(2.0)
    return lambda x: x * scale


@case(f32(3))
def constant_numpy_scalar():
    scale, zero_d = np.float32(2), np.array(3.0, np.float32)
    return lambda x: (x * scale, x * zero_d, scale)


@case(f32(3))
def constant_python_scalars():
    a, b, c, d = 1, 2.5, True, 1j
    return lambda x: (x * a, x + b, x * c, x * d)


@case(f32(3))
def constants_in_order_of_use():
    tables = {"a": jnp.asarray(GLOBAL), "b": [jnp.asarray(GLOBAL * 2), np.ones(3, np.float32)]}
    return lambda x: (x * tables["b"][1], x * tables["a"], x * tables["b"][0])


@case(f32(3))
def constant_used_twice():
    table = jnp.asarray(GLOBAL)
    return lambda x: x * table + jnp.sin(table) + table


@case(f32(3))
def constants_equal_but_distinct():
    first, second = jnp.asarray(GLOBAL), jnp.asarray(GLOBAL)
    return lambda x: (x * first, x * second)


@case(f32(3))
def constant_returned():
    table = jnp.asarray(GLOBAL)
    return lambda x: (table, x, table)


@case(f32(3))
def constant_unused():
    table = jnp.asarray(GLOBAL)
    return lambda x: (jnp.sin(table), x)[1]


@case()
def constants_only():
    table = jnp.asarray(GLOBAL)
    return lambda: table * 2


@case(f32(3))
def constant_in_jit():
    table = jnp.asarray(GLOBAL)
    return lambda x: jax.jit(lambda v: v * table)(x) + table


@case(f32(3))
def constant_in_two_jits():
    table, other = jnp.asarray(GLOBAL), np.ones(3, np.float32)
    return lambda x: jax.jit(lambda v: v * other)(jax.jit(lambda v: v * table + other)(x))


@case(f32(3))
def constant_in_scan():
    table = jnp.asarray(GLOBAL)
    return lambda x: jax.lax.scan(lambda c, v: (c + table * v, c.sum()), x, x)


@case(boolean(), f32(3))
def constant_in_cond():
    table, other = jnp.asarray(GLOBAL), jnp.asarray(GLOBAL * 3)
    return lambda p, x: jax.lax.cond(p, lambda v: v * table, lambda v: v + other, x)


@case(f32(3))
def constant_in_while():
    table = jnp.asarray(GLOBAL)

    def f(x):
        return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * table), (0, x))

    return f


@case(f32(3))
def constant_in_grad():
    table = jnp.asarray(GLOBAL)
    return lambda x: jax.grad(lambda v: (jnp.sin(v) * table).sum())(x)


@case(f32(4, 3))
def constant_in_vmap():
    table = jnp.asarray(GLOBAL)
    return lambda x: jax.vmap(lambda v: v * table)(x)


@case(f32(3))
def constant_in_custom_vjp():
    table = jnp.asarray(GLOBAL)

    def f(x):
        @jax.custom_vjp
        def scaled(v):
            return v * table

        scaled.defvjp(lambda v: (scaled(v), None), lambda _, c: (c * table,))
        return jax.grad(lambda v: scaled(v).sum())(x)

    return f


@case(f32(3))
def constant_in_checkpoint():
    table = jnp.asarray(GLOBAL)
    return lambda x: jax.grad(lambda v: jax.checkpoint(lambda u: jnp.sin(u * table))(v).sum())(x)


@case(f32(3))
def constant_key():
    key = jax.random.key(3)
    return lambda x: x + jax.random.normal(key, (3,))


@case(i32(2, low=0, high=3))
def constant_indexed_by_tracer():
    table = jnp.asarray(GLOBAL)
    return lambda i: (table[i], table.at[i].set(0.0))


@case(f32(3))
def constant_computed_inside():
    def f(x):
        mask = jnp.arange(3) > 1
        with jax.ensure_compile_time_eval():
            total = jnp.sum(jnp.arange(3.0))
        return jnp.where(mask, x, total)

    return f


@case(f32(3))
def constant_computed_by_numpy():
    return lambda x: x * np.tril(np.ones((3, 3), np.float32)) + np.pi


@case(f32(2))
def constant_large():
    table = np.arange(4000, dtype=np.float32).reshape(2, 2000)
    return lambda x: x @ table


@case(f32(0))
def constant_empty():
    table = np.zeros((0, 2), np.float32)
    return lambda x: x @ table


@case(f32(3))
def constant_bool_and_half():
    mask, half = np.array([True, False, True]), jnp.asarray(GLOBAL, jnp.bfloat16)
    return lambda x: jnp.where(mask, x, half)


@case(f32(3))
def constant_numpy_read_only_and_strided():
    table = np.arange(6, dtype=np.float32)[::2]
    table.flags.writeable = False
    return lambda x: x - table


@case(f32(3))
def constant_in_dict_of_arguments():
    bound = {"w": jnp.asarray(GLOBAL), "n": 3, "f": jnp.tanh}
    return lambda x: bound["f"](x * bound["w"]) ** bound["n"]
