"""Settings that turn a trace into an error."""

import gc

import jax
import jax.numpy as jnp
import numpy as np

from . import bad_use

_matrix = np.ones((2, 3), np.float32)


@bad_use
def no_tracing(make):
    with jax.no_tracing():
        make(lambda x: jnp.sin(x))(1.0)


@bad_use
def no_tracing_inside(make):
    def f(x):
        with jax.no_tracing():
            return jax.jit(lambda y: jnp.sin(y))(x)

    make(f)(1.0)


@bad_use
def leak_check_of_an_argument(make):
    leaked = []
    with jax.checking_leaks():
        make(lambda x: leaked.append(x))(1.0)


@bad_use
def leak_check_of_a_nested_jit(make):
    leaked = []

    @jax.jit
    def inner(x):
        y = jnp.sin(x)
        leaked.append(y)
        return y

    with jax.checking_leaks():
        make(lambda x: inner(x) * 2)(1.0)


@bad_use
def leak_check_of_scan(make):
    leaked = []

    def body(carry, x):
        leaked.append(carry)
        return carry + x, x

    with jax.checking_leaks():
        make(lambda xs: jax.lax.scan(body, 0.0, xs))(jnp.ones(3))


@bad_use
def leak_check_of_an_attribute(make):
    class Layer:
        pass

    layer = Layer()

    def f(x):
        layer.activation = x * 2
        return x

    gc.collect()
    with jax.checking_leaks():
        make(f)(1.0)


@bad_use
def leak_check_of_vmap(make):
    leaked = []
    with jax.checking_leaks():
        make(jax.vmap(lambda x: leaked.append(x)))(jnp.ones(3))


@bad_use
def key_reuse(make):
    def f(key):
        return jax.random.normal(key) + jax.random.uniform(key)

    with jax.debug_key_reuse(True):
        make(lambda k: jax.jit(f)(k))(jax.random.key(0))
        jax.jit(f)(jax.random.key(0))


@bad_use
def rank_promotion(make):
    with jax.numpy_rank_promotion("raise"):
        make(lambda x: x + x[0])(_matrix)


@bad_use
def strict_dtype_promotion(make):
    with jax.numpy_dtype_promotion("strict"):
        make(lambda x: x + jnp.arange(3))(_matrix)


@bad_use
def enable_checks_with_a_bad_primitive(make):
    with jax.enable_checks(True):
        make(lambda x: jax.lax.add_p.bind(x, jnp.ones(4)))(jnp.ones(3))


@bad_use
def compile_time_evaluation_of_a_tracer(make):
    def f(x):
        with jax.ensure_compile_time_eval():
            return x if jnp.sin(x) > 0 else -x

    make(f)(1.0)


@bad_use
def disable_jit_inside_scan(make):
    def body(carry, x):
        return (carry + x if x > 0 else carry), x

    with jax.disable_jit():
        make(lambda xs: jax.lax.scan(body, 0.0, xs))(np.ones(3))


@bad_use
def unknown_matmul_precision(make):
    with jax.default_matmul_precision("no such precision"):
        make(lambda x: x @ x.T)(_matrix)


@bad_use
def configuration_inside_trace(make):
    def f(x):
        jax.config.update("jax_no_such_option", True)
        return x

    make(f)(1.0)


@bad_use
def default_device_of_wrong_type(make):
    def f(x):
        with jax.default_device("no such device"):
            return x + jnp.ones(3)

    make(f)(1.0)
