"""Functions, arguments, static arguments and results that jax does not take."""

import dataclasses
import datetime
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from . import bad_use, bad_uses


class _Unregistered:
    """A class that is no pytree and no array."""

    def __repr__(self):
        return "_Unregistered()"


class _UnhashableStatic:
    __hash__ = None

    def __eq__(self, other):
        return self is other


class _ConfigurationError(Exception):
    """An exception that jax does not know."""


def _identity(x):
    return x


@bad_use
def generator_function(make):
    def f(x):
        yield x

    make(f)(1.0)


@bad_use
def asynchronous_function(make):
    async def f(x):
        return x

    make(f)(1.0)


@bad_use
def asynchronous_generator(make):
    async def f(x):
        yield x

    make(f)(1.0)


@bad_use
def generator_inside_jit(make):
    def f(x):
        yield x

    make(lambda x: jax.jit(f)(x))(1.0)


@bad_use
def result_of_mixed_dictionary(make):
    make(lambda x: {1: x, "a": x})(1.0)


@bad_use
def result_deep_in_a_tree(make):
    make(lambda x: {"a": (x, [x, "text"])})(1.0)


@bad_use
def argument_deep_in_a_tree(make):
    make(lambda params, x: x)({"layer": [1.0, {"name": "dense"}]}, 2.0)


@bad_use
def registered_class_with_bad_children(make):
    @partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["n"])
    @dataclasses.dataclass
    class Layer:
        w: object
        n: int

    make(lambda layer: layer.w)(Layer(w="text", n=1))


@bad_use
def static_argument_traced_in_nested_jit(make):
    inner = jax.jit(lambda x, n: x * n, static_argnums=1)
    make(lambda x, n: inner(x, n))(1.0, 2)


@bad_use
def static_keyword_traced_in_nested_jit(make):
    inner = jax.jit(lambda x, *, n: x * n, static_argnames="n")
    make(lambda x, n: inner(x, n=n))(1.0, 2)


@bad_use
def static_name_unknown_in_nested_jit(make):
    make(lambda x: jax.jit(_identity, static_argnames="no_such_name")(x))(1.0)


@bad_use
def donated_and_static_in_nested_jit(make):
    make(lambda x: jax.jit(_identity, static_argnums=0, donate_argnums=0)(x))(1)


@bad_use
def donated_out_of_range_in_nested_jit(make):
    make(lambda x: jax.jit(_identity, donate_argnums=3)(x))(1.0)


@bad_use
def donated_name_unknown_in_nested_jit(make):
    make(lambda x: jax.jit(_identity, donate_argnames="no_such_name")(x))(1.0)


@bad_use
def jit_of_a_non_callable(make):
    make(lambda x: jax.jit(3)(x))(1.0)


@bad_use
def missing_argument_of_nested_jit(make):
    make(lambda x: jax.jit(lambda a, b: a + b)(x))(1.0)


@bad_use
def unknown_argument_of_nested_jit(make):
    make(lambda x: jax.jit(lambda a: a)(x, unknown=x))(1.0)


@bad_use
def array_captured_as_object(make):
    captured = np.array([object()])
    make(lambda x: x + captured)(1.0)


@bad_use
def exception_of_the_user(make):
    def f(x):
        raise _ConfigurationError("wrong setting", 42)

    make(f)(1.0)


@bad_use
def exception_with_a_cause(make):
    def f(x):
        try:
            {}["missing"]
        except KeyError as error:
            raise ValueError("no such layer") from error

    make(lambda x: jax.jit(f)(jnp.sin(x)))(1.0)


@bad_use
def exception_during_exception(make):
    def f(x):
        try:
            float(x)
        finally:
            raise LookupError("while handling")

    make(f)(1.0)


@bad_use
def exception_without_context(make):
    def f(x):
        try:
            float(x)
        except TypeError:
            raise ValueError("a static value is needed") from None

    make(f)(1.0)


@bad_use
def exception_group(make):
    def f(x):
        errors = []
        for convert in (int, float):
            try:
                convert(x)
            except TypeError as error:
                errors.append(error)
        raise ExceptionGroup("conversions", errors)

    make(f)(1.0)


@bad_use
def stop_iteration(make):
    make(lambda x: next(iter([])))(1.0)


@bad_use
def base_exception(make):
    def f(x):
        raise KeyboardInterrupt("stopped by the user")

    make(lambda x: jax.jit(f)(x + 1))(1.0)


@bad_use
def system_exit(make):
    def f(x):
        raise SystemExit(3)

    make(f)(1.0)


@bad_use
def exception_in_flattening(make):
    class Broken:
        pass

    def flatten(_):
        raise RuntimeError("cannot flatten")

    jax.tree_util.register_pytree_node(Broken, flatten, lambda *_: Broken())
    make(lambda x: x)(Broken())


@bad_use
def exception_in_unflattening(make):
    class Broken:
        pass

    def unflatten(*_):
        raise RuntimeError("cannot unflatten")

    jax.tree_util.register_pytree_node(Broken, lambda _: ((1.0,), None), unflatten)
    make(lambda x: x)(Broken())


@bad_use
def exception_in_flattening_the_result(make):
    class Broken:
        pass

    def flatten(_):
        raise RuntimeError("cannot flatten")

    jax.tree_util.register_pytree_node(Broken, flatten, lambda *_: Broken())
    make(lambda x: Broken())(1.0)


@bad_use
def jax_array_protocol_that_fails(make):
    class Broken:
        def __jax_array__(self):
            raise RuntimeError("not yet initialised")

    broken = Broken()
    make(lambda x: x + broken)(1.0)


@bad_use
def jax_array_protocol_of_wrong_type(make):
    class Wrong:
        def __jax_array__(self):
            return "text"

    wrong = Wrong()
    make(lambda x: jnp.sin(wrong) + x)(1.0)


@bad_use
def jax_array_protocol_as_argument(make):
    class Wrapper:
        def __jax_array__(self):
            return jnp.ones(3)

    make(lambda x: x)(Wrapper())


@bad_use
def deleted_array_captured(make):
    captured = jnp.ones(3)
    captured.delete()
    make(lambda x: captured[0] + x)(1.0)


@bad_use
def too_many_positional(make):
    def loss(params, batch):
        return params * batch

    make(loss)(1.0, 2.0, 3.0)


@bad_use
def callable_instance_missing_argument(make):
    class Model:
        def __call__(self, x, y):
            return x + y

    make(Model())(1.0)


@bad_use
def partial_with_clashing_keyword(make):
    make(partial(lambda x, y: x + y, x=1.0))(2.0)


bad_uses(
    fun_is_none=lambda make: make(None)(1.0),
    fun_is_a_number=lambda make: make(3)(1.0),
    fun_is_an_array=lambda make: make(jnp.ones(3))(1.0),
    fun_is_unhashable=lambda make: make([1, 2])(1.0),
    fun_is_a_class_without_signature=lambda make: make(_Unregistered)(1.0),
    missing_argument=lambda make: make(lambda x, y: x + y)(1.0),
    missing_keyword_argument=lambda make: make(lambda x, *, scale: x * scale)(1.0),
    extra_argument=lambda make: make(lambda x: x)(1.0, 2.0),
    unknown_keyword=lambda make: make(lambda x: x)(1.0, unknown=2.0),
    argument_given_twice=lambda make: make(lambda x: x)(1.0, x=2.0),
    argument_object=lambda make: make(lambda x: x)(_Unregistered()),
    argument_string=lambda make: make(lambda x: x)("text"),
    argument_bytes=lambda make: make(lambda x: x)(b"bytes"),
    argument_type=lambda make: make(lambda x: x)(float),
    argument_function=lambda make: make(lambda f, x: f(x))(_identity, 1.0),
    argument_set=lambda make: make(lambda x: x)({1.0}),
    argument_date=lambda make: make(lambda x: x)(datetime.date(2024, 1, 2)),
    argument_object_array=lambda make: make(lambda x: x)(np.array([None])),
    argument_string_array=lambda make: make(lambda x: x)(np.array(["a", "b"])),
    argument_structured_array=lambda make: make(lambda x: x)(np.zeros(2, [("a", "f4")])),
    argument_mixed_dictionary=lambda make: make(lambda x: x)({1: 1.0, "a": 2.0}),
    argument_integer_overflow=lambda make: make(lambda x: x)(2**70),
    argument_keyword_object=lambda make: make(lambda *, x: x)(x=_Unregistered()),
    result_object=lambda make: make(lambda x: _Unregistered())(1.0),
    result_string=lambda make: make(lambda x: "text")(1.0),
    result_set=lambda make: make(lambda x: {1.0})(1.0),
    result_function=lambda make: make(lambda x: _identity)(1.0),
    result_generator=lambda make: make(lambda x: (y for y in [x]))(1.0),
    result_ellipsis=lambda make: make(lambda x: (x, ...))(1.0),
    result_type=lambda make: make(lambda x: [x, float])(1.0),
    result_object_array=lambda make: make(lambda x: np.array([None]))(1.0),
    result_integer_overflow=lambda make: make(lambda x: 2**70)(1.0),
    result_of_nested_jit=lambda make: make(lambda x: jax.jit(lambda y: "text")(x))(1.0),
    argument_of_nested_jit=lambda make: make(lambda x: jax.jit(_identity)("text"))(1.0),
    jnp_of_string=lambda make: make(lambda x: jnp.sin("text"))(1.0),
    jnp_of_list=lambda make: make(lambda x: jnp.sin([x]))(1.0),
    jnp_of_none=lambda make: make(lambda x: jnp.add(x, None))(1.0),
    jnp_of_object=lambda make: make(lambda x: jnp.add(x, _Unregistered()))(1.0),
    jnp_array_ragged=lambda make: make(lambda x: jnp.array([[x], [x, x]]))(1.0),
    jnp_array_of_object=lambda make: make(lambda x: jnp.array(x, dtype=object))(1.0),
    jnp_array_of_strings=lambda make: make(lambda x: jnp.array(["a", x]))(1.0),
    jnp_asarray_of_none=lambda make: make(lambda x: jnp.asarray(None) + x)(1.0),
    lax_of_list=lambda make: make(lambda x: jax.lax.sin([x]))(1.0),
    lax_of_string=lambda make: make(lambda x: jax.lax.add(x, "text"))(1.0),
    static_argnums_unhashable=lambda make: make(lambda x, n: x, static_argnums=1)(1.0, [1]),
    static_argnums_unhashable_class=lambda make: make(lambda x, n: x, static_argnums=1)(
        1.0, _UnhashableStatic()
    ),
    static_argnums_dictionary=lambda make: make(lambda x, n: x, static_argnums=1)(1.0, {"a": 1}),
    static_argnums_jax_array=lambda make: make(lambda x, n: x, static_argnums=1)(1.0, jnp.ones(3)),
    static_argnums_numpy_array=lambda make: make(lambda x, n: x, static_argnums=1)(1.0, np.ones(3)),
    static_argnums_out_of_range=lambda make: make(lambda x: x, static_argnums=3)(1.0),
    static_argnums_negative_out_of_range=lambda make: make(lambda x: x, static_argnums=-3)(1.0),
    static_argnums_out_of_range_varargs=lambda make: make(lambda *xs: xs, static_argnums=3)("text"),
    static_argnums_beyond_the_call=lambda make: make(lambda x, y="a": x, static_argnums=(1,))(
        _Unregistered()
    ),
    static_argnums_string=lambda make: make(lambda x: x, static_argnums="x")(1.0),
    static_argnums_float=lambda make: make(lambda x: x, static_argnums=0.5)(1.0),
    static_argnums_mixed=lambda make: make(lambda x: x, static_argnums=(0, "x"))(1.0),
    static_argnums_array=lambda make: make(lambda x, y: x, static_argnums=np.array([[0]]))(1, 2),
    static_argnums_duplicate_traced=lambda make: make(lambda x, n: x[n], static_argnums=(0, 0))(
        1.0, 2
    ),
    static_argnums_of_a_tracer=lambda make: make(
        lambda y: make(lambda x, n: x * n, static_argnums=1)(1.0, y)
    )(2),
    axis_env_wrong_type=lambda make: make(lambda x: x, axis_env=3)(1.0),
    axis_env_without_size=lambda make: make(lambda x: x, axis_env=["i"])(1.0),
    axis_env_unhashable_name=lambda make: make(lambda x: x, axis_env=[(["i"], 2)])(1.0),
    axis_env_of_other_name=lambda make: make(lambda x: jax.lax.psum(x, "j"), axis_env=[("i", 2)])(
        1.0
    ),
    unknown_option=lambda make: make(lambda x: x, no_such_option=1)(1.0),
)
