"""Custom primitives, references, effects and callbacks used against their rules."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching

from . import bad_use, bad_uses

_vector = np.ones(3, np.float32)


def _primitive(abstract_eval=lambda x, **_: x, multiple_results=False) -> Primitive:
    primitive = Primitive("custom")
    primitive.multiple_results = multiple_results
    if abstract_eval is not None:
        primitive.def_abstract_eval(abstract_eval)
    return primitive


@bad_use
def primitive_without_abstract_eval(make):
    primitive = _primitive(None)
    make(lambda x: primitive.bind(x))(1.0)


@bad_use
def primitive_with_unhashable_parameter(make):
    primitive = _primitive()
    make(lambda x: primitive.bind(x, sizes=[1, 2]))(1.0)


@bad_use
def primitive_with_unhashable_parameter_among_others(make):
    primitive = _primitive()
    make(lambda x: primitive.bind(x, axis=0, labels={"a"}, name="n"))(1.0)


@bad_use
def primitive_with_array_parameter(make):
    primitive = _primitive()
    make(lambda x: primitive.bind(x, weights=np.ones(3)))(1.0)


@bad_use
def primitive_with_tracer_parameter(make):
    primitive = _primitive()
    make(lambda x: primitive.bind(1.0, scale=x))(1.0)


@bad_use
def primitive_whose_abstract_eval_fails(make):
    def abstract_eval(x, *, limit):
        raise ArithmeticError(f"{x.str_short()} is over the limit {limit}")

    primitive = _primitive(abstract_eval)
    make(lambda x: primitive.bind(x, limit=3))(1.0)


@bad_use
def primitive_with_unknown_parameter(make):
    primitive = _primitive(lambda x: x)
    make(lambda x: primitive.bind(x, unknown=3))(1.0)


@bad_use
def primitive_with_wrong_arity(make):
    primitive = _primitive(lambda x, y: x)
    make(lambda x: primitive.bind(x))(1.0)


@bad_use
def primitive_returning_one_for_many(make):
    primitive = _primitive(multiple_results=True)
    make(lambda x: primitive.bind(x))(1.0)


@bad_use
def primitive_returning_many_for_one(make):
    primitive = _primitive(lambda x: [x, x])
    make(lambda x: primitive.bind(x))(1.0)


@bad_use
def primitive_returning_no_aval(make):
    primitive = _primitive(lambda x: "float32")
    make(lambda x: jnp.sin(primitive.bind(x)))(1.0)


@bad_use
def primitive_of_a_string(make):
    primitive = _primitive()
    make(lambda x: primitive.bind("text"))(1.0)


@bad_use
def primitive_of_a_list(make):
    primitive = _primitive()
    make(lambda x: primitive.bind([x]))(1.0)


@bad_use
def primitive_without_derivative(make):
    primitive = _primitive()
    make(jax.grad(lambda x: primitive.bind(x)))(1.0)


@bad_use
def primitive_without_transpose(make):
    primitive = _primitive()
    ad.primitive_jvps[primitive] = lambda primals, tangents: (
        primitive.bind(*primals),
        primitive.bind(*tangents),
    )
    make(jax.grad(lambda x: primitive.bind(x)))(1.0)


@bad_use
def primitive_without_batching(make):
    primitive = _primitive()
    make(jax.vmap(lambda x: primitive.bind(x)))(_vector)


@bad_use
def primitive_whose_batching_fails(make):
    primitive = _primitive()

    def batch(args, dims):
        raise IndexError(f"cannot batch along {dims}")

    batching.primitive_batchers[primitive] = batch
    make(jax.vmap(lambda x: primitive.bind(x)))(_vector)


@bad_use
def primitive_whose_derivative_fails(make):
    primitive = _primitive()

    def differentiate(primals, tangents):
        raise ZeroDivisionError("no derivative here")

    ad.primitive_jvps[primitive] = differentiate
    make(lambda x: jax.jvp(primitive.bind, (x,), (x,)))(1.0)


@bad_use
def primitive_whose_rule_concretizes(make):
    primitive = _primitive()
    ad.primitive_jvps[primitive] = lambda primals, tangents: (float(primals[0]), tangents[0])
    make(jax.grad(lambda x: primitive.bind(x)))(1.0)


@bad_use
def reference_returned(make):
    make(lambda x: jax.new_ref(x))(1.0)


@bad_use
def reference_argument_returned(make):
    make(lambda ref: ref)(jax.new_ref(1.0))


@bad_use
def reference_captured_returned(make):
    ref = jax.new_ref(1.0)
    make(lambda x: (x, ref))(1.0)


@bad_use
def reference_returned_from_jit(make):
    make(lambda x: jax.jit(lambda v: jax.new_ref(v))(x)[...])(1.0)


@bad_use
def reference_passed_twice(make):
    def f(a, b):
        a[...] += 1.0
        return b[...]

    ref = jax.new_ref(1.0)
    make(lambda x: jax.jit(f)(ref, ref) + x)(1.0)


@bad_use
def reference_passed_and_captured(make):
    ref = jax.new_ref(1.0)

    @jax.jit
    def f(a):
        ref[...] = a[...]

    make(lambda x: f(ref))(1.0)


@bad_use
def reference_in_scan_carry(make):
    make(lambda x: lax.scan(lambda r, _: (r, None), jax.new_ref(x), None, length=2))(1.0)


@bad_use
def reference_returned_by_cond(make):
    def f(x):
        a, b = jax.new_ref(x), jax.new_ref(x)
        return lax.cond(x > 0, lambda: a, lambda: b)[...]

    make(f)(1.0)


@bad_use
def reference_written_with_wrong_shape(make):
    def f(x):
        ref = jax.new_ref(x)
        ref[...] = jnp.ones(4)
        return ref[...]

    make(f)(_vector)


@bad_use
def reference_written_with_wrong_dtype(make):
    def f(x):
        ref = jax.new_ref(x)
        ref[...] = jnp.arange(3)
        return ref[...]

    make(f)(_vector)


@bad_use
def reference_used_as_value(make):
    make(lambda x: jnp.sin(jax.new_ref(x)))(1.0)


@bad_use
def reference_added(make):
    make(lambda x: jax.new_ref(x) + 1)(1.0)


@bad_use
def reference_of_reference(make):
    make(lambda x: jax.new_ref(jax.new_ref(x)))(1.0)


@bad_use
def reference_written_under_vmap(make):
    ref = jax.new_ref(jnp.zeros(()))

    def f(x):
        ref[...] = x
        return x

    make(jax.vmap(f))(_vector)


@bad_use
def reference_leaked(make):
    leaked = []

    def f(x):
        leaked.append(jax.new_ref(x))
        return x

    make(f)(1.0)
    jaxpr_as_fun(make(lambda x: leaked[0][...] + x)(1.0))(1.0)


@bad_use
def ordered_effect_under_vmap(make):
    callback = partial(jax.experimental.io_callback, lambda v: v, jnp.float32(0), ordered=True)
    make(jax.vmap(lambda x: callback(x)))(_vector)


@bad_use
def callback_under_grad(make):
    callback = partial(jax.pure_callback, np.sin, jax.ShapeDtypeStruct((), np.float32))
    make(jax.grad(lambda x: callback(x)))(1.0)


@bad_use
def callback_under_vmap_without_method(make):
    callback = partial(jax.pure_callback, np.sin, jax.ShapeDtypeStruct((), np.float32))
    make(jax.vmap(lambda x: callback(x)))(_vector)


@bad_use
def effect_in_checkpoint(make):
    @jax.checkpoint
    def f(x):
        jax.experimental.io_callback(print, None, x, ordered=True)
        return jnp.sin(x)

    make(jax.grad(f))(1.0)


bad_uses(
    callback_result_type=lambda make: make(lambda x: jax.pure_callback(np.sin, "text", x))(1.0),
    callback_result_dtype=lambda make: make(
        lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), np.float64), x)
    )(1.0),
    callback_vmap_method=lambda make: make(
        lambda x: jax.pure_callback(np.sin, x, x, vmap_method="no such method")
    )(1.0),
    debug_print_missing_value=lambda make: make(lambda x: jax.debug.print("{} {}", x))(1.0),
    debug_print_extra_value=lambda make: make(lambda x: jax.debug.print("{}", x, x))(1.0),
    debug_print_unknown_name=lambda make: make(lambda x: jax.debug.print("{y}", x=x))(1.0),
    debug_print_format=lambda make: make(lambda x: jax.debug.print(x))(1.0),
    debug_callback_type=lambda make: make(lambda x: jax.debug.callback("text", x))(1.0),
)
