"""Functions that the source code of programs uses: its text is copied into it, from here."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.interpreters import ad


@functools.cache
def _primitive(name):
    """The primitive of a name."""
    # Not before it is needed: with this module jax looks up compiled programs by more settings.
    from jax.extend.core import Primitive, primitives

    for value in [*vars(primitives).values(), *ad.primitive_jvps, *ad.primitive_transposes]:
        if isinstance(value, Primitive) and value.name == name:
            return value
    raise LookupError(f"jax {jax.__version__} has no primitive {name}")


def _bind(name, *operands, **params):
    """Binds a primitive that no public function binds with these params."""
    return _primitive(name).bind(*operands, **params)


@functools.cache
def _jaxpr(function, *types):
    """The closed jaxpr of a function, the same one each time."""
    return jax.make_jaxpr(function)(*types)


@functools.cache
def _open_jaxpr(function, *types):
    """The jaxpr of a function without constants."""
    return _jaxpr(function, *types).jaxpr


def _flat_tree(kind, *parts):
    """A tree among the params of a loop (jax 0.11 on)."""
    import importlib

    return getattr(importlib.import_module("jax._src.flattree"), kind)(*parts)


def _array(shape, dtype, **options):
    """The type of an array."""
    return jax.ShapeDtypeStruct(
        shape, jnp.dtype(dtype) if isinstance(dtype, str) else dtype, **options
    )


def _constant(values):
    """An array of jax's, of numpy's dtype."""
    with jax.enable_x64(True):
        return jnp.asarray(values)


def _key_dtype(impl):
    """The dtype of random keys."""
    return jax.eval_shape(lambda: jax.random.key(0, impl=impl)).dtype


def _jit(function, name, **options):
    """A jit of a function under the name that it had."""
    return jax.jit(_named(function, name), **options)


def _scan(body, consts, carry, xs, **options):
    """A scan whose body takes and returns arrays one by one."""

    def step(carry, xs):
        outs = body(*consts, *carry, *xs)
        return outs[: len(carry)], outs[len(carry) :]

    carry, ys = lax.scan(step, tuple(carry), tuple(xs), **options)
    return *carry, *ys


def _while_loop(cond, cond_consts, body, body_consts, init):
    """A while loop whose functions take and return arrays one by one."""
    return lax.while_loop(
        lambda carry: cond(*cond_consts, *carry)[0],
        lambda carry: body(*body_consts, *carry),
        init,
    )


def _named(function, name):
    """A function under another name."""

    def named(*args):
        return function(*args)

    named.__name__ = named.__qualname__ = name
    return named


def _left_out(name):
    """Stands for a derivative rule that was left out."""

    def rule(*args):
        raise NotImplementedError(f"the derivative rule {name} was left out")

    return _named(rule, name)


def _without_jvp(function, name, jvp, **options):
    """A function that cannot be differentiated, since its rule was left out."""
    own = jax.custom_jvp(_named(function, name))
    own.defjvp(_left_out(jvp), **options)
    return own


def _without_vjp(function, name, fwd, bwd, **options):
    """A function that cannot be differentiated, since its rules were left out."""
    own = jax.custom_vjp(_named(function, name))
    own.defvjp(_left_out(fwd), _left_out(bwd), **options)
    return own
