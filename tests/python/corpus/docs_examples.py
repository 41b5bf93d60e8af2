"""Every worked example of jax's pages on jaxprs and of the docstring of make_jaxpr."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from corpus.registry import case, f32, given

ZEROS, ONES = given(lambda: jnp.zeros(8)), given(lambda: jnp.ones(8))


@case(3.0)
def docstring():
    def f(x):
        return jax.numpy.sin(jax.numpy.cos(x))

    return f


@case(3.0)
def docstring_grad():
    def f(x):
        return jax.numpy.sin(jax.numpy.cos(x))

    return jax.grad(f)


@case(ZEROS, ONES)
def understanding_first_example():
    def func1(first, second):
        temp = first + jnp.sin(second) * 3.0
        return jnp.sum(temp)

    return func1


@case(ZEROS, ONES)
def understanding_inlined_python():
    def func2(inner, first, second):
        temp = first + inner(second) * 3.0
        return jnp.sum(temp)

    def inner(second):
        if second.shape[0] > 4:
            return jnp.sin(second)
        else:
            raise AssertionError

    def func3(first, second):
        return func2(inner, first, second)

    return func3


@case((ZEROS, ONES))
def understanding_pytrees():
    def func4(arg):
        temp = arg[0] + jnp.sin(arg[1]) * 3.0
        return jnp.sum(temp)

    return func4


@case(ZEROS, ONES)
def understanding_constants():
    def func5(first, second):
        temp = first + jnp.sin(second) * 3.0 - jnp.ones(8)
        return temp

    def func6(first):
        return func5(first, jnp.ones(8))

    return lambda first, second: (func5(first, second), func6(first))


@case(1, 5.0)
def understanding_switch():
    def one_of_three(index, arg):
        return lax.switch(index, [lambda x: x + 1.0, lambda x: x - 2.0, lambda x: x + 3.0], arg)

    return one_of_three


@case(5.0)
def understanding_cond():
    def func7(arg):
        return lax.cond(arg >= 0.0, lambda xtrue: xtrue + 3.0, lambda xfalse: xfalse - 3.0, arg)

    return func7


@case(5.0, (given(lambda: jnp.zeros(1)), 2.0))
def understanding_cond_with_pair():
    def func8(arg1, arg2):
        return lax.cond(
            arg1 >= 0.0,
            lambda xtrue: xtrue[0],
            lambda xfalse: jnp.array([1]) + xfalse[1],
            arg2,
        )

    return func8


@case(given(lambda: np.ones(16)), 5)
def understanding_fori_loop():
    def func10(arg, n):
        ones = jnp.ones(arg.shape)
        return lax.fori_loop(0, n, lambda i, carry: carry + ones * 3.0 + arg, arg + ones)

    return func10


@case(given(lambda: np.ones(16)), 5.0)
def understanding_scan():
    def func11(arr, extra):
        ones = jnp.ones(arr.shape)

        def body(carry, aelems):
            ae1, ae2 = aelems
            return (carry + ae1 * ae2 + extra, carry)

        return lax.scan(body, 0.0, (arr, ones))

    return func11


@case(1.0)
def understanding_jit():
    def func12(arg):
        @jax.jit
        def inner(x):
            return x + arg * jnp.ones(1)

        return arg + inner(arg - 2.0)

    return func12


@case(3.0)
def key_concepts_log2():
    seen = []

    def log2(x):
        seen.append(jnp.shape(x))
        return jnp.log(x) / jnp.log(2.0)

    return log2


@case(f32(2), f32(3, 2), f32(3))
def key_concepts_selu_and_prediction():
    def selu(x, alpha=1.67, lmbda=1.05):
        return lmbda * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)

    def predict(b, w, y):
        return jnp.mean((selu(w @ b) - y) ** 2)

    return jax.value_and_grad(predict)


@case(f32(5))
def interpreter_tutorial_inverse():
    return lambda x: jnp.exp(jnp.tanh(x))


@case(f32(2, 3), f32(3))
def vmap_tutorial_convolution():
    def convolve(x, w):
        return jnp.array([jnp.dot(x[i - 1 : i + 2], w) for i in range(1, len(x) - 1)])

    return lambda xs, w: jax.vmap(convolve, in_axes=(0, None))(xs, w)
