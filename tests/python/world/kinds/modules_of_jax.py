"""Functions, classes and constants of jax's modules that are replaced."""

from __future__ import annotations

import types
from unittest import mock

import jax
import jax.nn
import jax.numpy as jnp
import jax.scipy.special
import jax.tree_util
from jax import lax
from jax._src import core, dtypes
from jax._src.lax import lax as lax_internal
from jax._src.numpy import lax_numpy, reductions, ufuncs, util

from world.world import attribute, context, item, kind, module

PATCHES = "modules and classes of jax"


def negated(f):
    """A function that negates what another returns."""
    return lambda *args, **kwargs: jax.tree.map(lax.neg, f(*args, **kwargs))


def counting(f):
    """A function that does the same as another, and how often it was called."""
    calls = []

    def g(*args, **kwargs):
        calls.append(1)
        return f(*args, **kwargs)

    return g, lambda: len(calls)


@kind(PATCHES)
def stop_gradient_by_mock():
    return (
        lambda x: jax.lax.stop_gradient(x) * x,
        context(lambda: mock.patch("jax.lax.stop_gradient", lambda x: x * 7)),
    )


@kind(PATCHES, tells=False)
def stop_gradient_within_a_function_of_jax():
    """`jax.nn.softmax` looks it up in the module."""
    return (
        lambda x: jax.nn.softmax(x) + jax.nn.logsumexp(x),
        context(lambda: mock.patch("jax.lax.stop_gradient", lambda x: x * 7)),
    )


@kind(PATCHES)
def sin_of_numpy_replaced():
    return lambda x: jnp.sin(x), attribute(jnp, "sin", lambda x: jnp.cos(x) * 2)


@kind(PATCHES)
def sin_of_numpy_by_vars():
    return lambda x: jnp.sin(x), item(vars(jnp), "sin", lambda x: jnp.cos(x) * 2)


@kind(PATCHES)
def sin_of_numpy_by_another_function_of_jax():
    return lambda x: jnp.sin(x), attribute(jnp, "sin", jnp.cos)


@kind(PATCHES)
def replacement_reads_a_global():
    f = lambda x: jnp.maximum(x, 0) * GAIN
    jax.nn.relu = f
    return lambda x: jax.nn.relu(x), item(globals(), "GAIN", 7.0)


GAIN = 2.0


@kind(PATCHES)
def replacement_counts_its_calls():
    g, calls = counting(jnp.tanh)
    jnp.tanh = g
    return lambda x: jnp.tanh(x), attribute(jnp, "tanh", jnp.sin), calls


@kind(PATCHES)
def replacement_under_the_name_of_jax():
    """A function of the user's that says it is jax's."""

    def relu(x):
        return jnp.maximum(x, 0) * GAIN

    relu.__module__ = "jax._src.nn.functions"
    relu.__qualname__ = "relu"
    jax.nn.relu = relu
    return lambda x: jax.nn.relu(x), item(globals(), "GAIN", 7.0)


@kind(PATCHES)
def replacement_with_a_file_of_jax():
    """Code that says it is from a file of jax."""
    source = "def relu(x):\n  return jnp.maximum(x, 0) * G['gain']\n"
    users = types.ModuleType("jax._src.nn.functions")
    gain = {"gain": 2.0}
    vars(users).update(jnp=jnp, G=gain)
    exec(compile(source, jax._src.nn.functions.__file__, "exec"), vars(users))
    jax.nn.relu = users.relu
    return lambda x: jax.nn.relu(x), item(gain, "gain", 7.0)


@kind(PATCHES)
def function_added_to_jax():
    users = module("import jax.numpy as jnp\nG = 2.0\ndef mine(x):\n  return x * G\n")
    jnp.mine = users.mine
    return lambda x: jnp.mine(x), attribute(users, "G", 7.0)


@kind(PATCHES)
def jit_added_to_jax():
    gain = [2.0]
    jnp.mine = jax.jit(lambda x: x * gain[0])

    def change(on):
        gain[0] = 7.0 if on else 2.0
        jnp.mine.clear_cache()

    return lambda x: jnp.mine(x), change


@kind(PATCHES)
def function_of_lax_replaced():
    return lambda x: lax.tanh(x), attribute(lax, "tanh", negated(lax.tanh))


@kind(PATCHES, tells=False)
def function_of_lax_within_numpy():
    """The functions of `jax.numpy` look it up in the module."""
    return lambda x: jnp.tanh(x) + jnp.sin(x), attribute(ufuncs.lax, "tanh", negated(lax.tanh))


@kind(PATCHES)
def internal_function_of_lax():
    return (
        lambda x: lax.sin(x) + lax.full_like(x, 2.0),
        attribute(lax_internal, "full", negated(lax_internal.full)),
    )


@kind(PATCHES, tells=False)
def internal_function_within_operators():
    return (
        lambda x: x + 1 + jnp.add(x, 2),
        attribute(ufuncs, "promote_args", negated_second(ufuncs.promote_args)),
    )


def negated_second(f):
    def g(*args, **kwargs):
        *rest, last = f(*args, **kwargs)
        return [*rest, lax.neg(lax_internal.asarray(last))]

    return g


@kind(PATCHES, tells=False)
def internal_function_within_reductions():
    real = reductions._reduction_dims
    return (
        lambda x: jnp.sum(x) * x + jnp.outer(x, x).max(),
        attribute(reductions, "_reduction_dims", lambda a, axis: real(a, None)),
    )


@kind(PATCHES)
def internal_function_within_indexing():
    from jax._src.numpy import indexing

    name = "rewriting_take" if hasattr(indexing, "rewriting_take") else "_rewriting_take"
    return lambda x: x[::-1] + x[0], attribute(indexing, name, lambda arr, *a, **k: lax.neg(arr))


@kind(PATCHES, tells=False)
def internal_function_counts_its_calls():
    g, calls = counting(util.promote_shapes)
    return lambda x: jnp.add(x, 1.0) * x, attribute(util, "promote_shapes", g), calls


@kind(PATCHES)
def primitive_of_a_module_replaced():
    return lambda x: lax.sin(x), attribute(lax_internal, "sin_p", _users_p())


def _users_p():
    from jax.extend.core import Primitive

    p = Primitive("mine")
    p.def_abstract_eval(lambda x, **_: core.ShapedArray(x.shape, x.dtype))
    return p


@kind(PATCHES)
def constant_of_jax_replaced():
    users = module("import jax.numpy as jnp\ndef f(x):\n  return x * jnp.pi\n")
    return users.f, attribute(jnp, "pi", 7.0)


@kind(PATCHES, tells=False)
def constant_of_jax_within_jax():
    real = lax_numpy.pi if hasattr(lax_numpy, "pi") else 3.0
    return (
        lambda x: jnp.deg2rad(x) + jnp.sinc(x),
        attribute(ufuncs, "np", _numpy_with(pi=real + 1)),
    )


def _numpy_with(**attributes):
    import numpy as np

    made = types.ModuleType("numpy")
    vars(made).update(vars(np), **attributes)
    return made


@kind(PATCHES)
def dtype_of_jax_replaced():
    users = module("import jax.numpy as jnp\ndef f(x):\n  return x + jnp.zeros(3, jnp.float32)\n")
    return users.f, attribute(jnp, "float32", jnp.int32)


@kind(PATCHES)
def class_of_arrays_replaced():
    users = module("import jax\ndef f(x):\n  return x * 2 if isinstance(x, jax.Array) else x * 7\n")
    return users.f, attribute(jax, "Array", int)


@kind(PATCHES, tells=False)
def function_of_dtypes_replaced():
    real = dtypes.canonicalize_dtype
    return (
        lambda x: jnp.asarray(x, jnp.float32) + jnp.zeros(3),
        attribute(dtypes, "canonicalize_dtype", lambda d, *a, **k: real(d, *a, **k)),
    )


@kind(PATCHES)
def method_of_shaped_array():
    return (
        lambda x: jnp.sin(x),
        attribute(core.ShapedArray, "str_short", lambda self, *a, **k: "an array"),
    )


@kind(PATCHES)
def attribute_added_to_shaped_array():
    users = module("import jax\ndef f(x):\n  return x * jax.typeof(x).gain\n")
    core.ShapedArray.gain = 2.0
    return users.f, attribute(core.ShapedArray, "gain", 7.0)


@kind(PATCHES)
def operator_of_tracers():
    real = core.Tracer.__mul__

    def new(self, other):
        return real(self, other) + 1

    return lambda x: x * 2, attribute(core.Tracer, "__mul__", new)


@kind(PATCHES)
def operator_of_abstract_values():
    return (
        lambda x: x * 2,
        attribute(core.ShapedArray, "_mul", staticmethod(lambda a, b: lax.neg(a))),
    )


@kind(PATCHES)
def method_of_abstract_values():
    return (
        lambda x: x.sum() * x,
        attribute(core.ShapedArray, "sum", core.aval_method(lambda a, *r, **k: lax.neg(a)[0])),
    )


@kind(PATCHES)
def property_of_abstract_values():
    return (
        lambda x: x.T * 2,
        attribute(core.ShapedArray, "T", core.aval_property(lambda a: lax.neg(a))),
    )


@kind(PATCHES)
def property_of_indexing_helpers():
    from jax._src.numpy import array_methods

    helper = array_methods._IndexUpdateRef
    return (
        lambda x: x.at[0].set(2.0),
        attribute(helper, "set", lambda self, v, **k: lax.neg(self.array)),
    )


@kind(PATCHES)
def method_of_tracers_itself():
    return (
        lambda x: x.sum() * x,
        attribute(core.Tracer, "sum", lambda self, *a, **k: lax.neg(self)[0]),
    )


@kind(PATCHES)
def attribute_added_to_tracers():
    core.Tracer.gain = 2.0
    return lambda x: x * x.gain, attribute(core.Tracer, "gain", 7.0)


@kind(PATCHES)
def call_of_custom_jvp():
    return (
        lambda x: jax.nn.relu(x) + jax.nn.silu(x),
        attribute(jax.custom_jvp, "__call__", lambda self, *a, **k: self.fun(*a, **k)),
    )


@kind(PATCHES)
def call_of_custom_vjp():
    f = jax.custom_vjp(lambda v: v * 2)
    f.defvjp(lambda v: (v * 2, v), lambda r, ct: (ct,))
    return lambda x: f(x), attribute(jax.custom_vjp, "__call__", lambda self, *a: self.fun(*a))


@kind(PATCHES)
def call_of_ufuncs():
    return (
        lambda x: jnp.add(x, 1) * jnp.multiply(x, 2),
        attribute(jnp.ufunc, "__call__", lambda self, *a, **k: lax.neg(a[0])),
    )


@kind(PATCHES)
def function_of_a_ufunc():
    return (
        lambda x: jnp.add.outer(x, x)[0] + jnp.add(x, x),
        attribute(jnp.ufunc, "outer", lambda self, a, b: lax.neg(a)[None]),
    )


def _innermost(f):
    while hasattr(f, "__wrapped__"):
        f = f.__wrapped__
    return f


@kind(PATCHES)
def default_of_a_function_of_numpy():
    f = _innermost(jnp.linspace)
    new = tuple(7 if v == 50 else v for v in f.__defaults__)
    return lambda x: x * jnp.linspace(0, x[0]).sum(), attribute(f, "__defaults__", new)


@kind(PATCHES)
def default_of_a_function_that_is_caught():
    f = _innermost(jnp.var)
    assert f.__defaults__[3] == 0
    new = (*f.__defaults__[:3], 1, *f.__defaults__[4:])
    return lambda x: x * jnp.var(x), attribute(f, "__defaults__", new)


@kind(PATCHES)
def keyword_default_of_a_function_of_jax():
    f = _innermost(jnp.var)
    new = {**f.__kwdefaults__, "correction": 1}
    return lambda x: x * jnp.var(x), attribute(f, "__kwdefaults__", new)


@kind(PATCHES, tells=False)
def default_of_a_jit_of_jax():
    f = _innermost(jnp.trace)
    new = (1, *f.__defaults__[1:])
    return lambda x: x * jnp.trace(jnp.outer(x, x)), attribute(f, "__defaults__", new)


@kind(PATCHES)
def code_of_a_function_of_jax():
    f = _innermost(jnp.flip)

    def new(m, axis=None):
        import jax

        return jax.lax.neg(m)

    return lambda x: jnp.flip(x), attribute(f, "__code__", new.__code__)


@kind(PATCHES)
def code_of_an_internal_function_of_jax():
    f = _innermost(lax_internal.full_like)

    def new(x, fill_value, dtype=None, shape=None, sharding=None):
        import jax

        return jax.lax.neg(x)

    return lambda x: lax.full_like(x, 2.0) + jnp.zeros_like(x), attribute(
        f, "__code__", new.__code__
    )


@kind(PATCHES)
def closure_of_a_function_of_jax():
    (cell,) = lax.fori_loop.__closure__
    new = lambda lower, upper, f, x, **_: lax.neg(x)
    return (
        lambda x: lax.fori_loop(0, 2, lambda i, v: v * 2, x),
        attribute(cell, "cell_contents", new),
    )


@kind(PATCHES)
def name_of_a_function_of_jax():
    f = jax.nn.relu
    inner = _innermost(f)
    return lambda x: jax.nn.relu(x), attribute(inner, "__name__", "renamed")


@kind(PATCHES)
def transformation_replaced():
    users = module("import jax\ndef f(x):\n  return jax.grad(lambda v: (v ** 2).sum())(x)\n")
    real = jax.grad
    return users.f, attribute(jax, "grad", lambda f: lambda x: real(f)(x) * 7)


@kind(PATCHES)
def jit_replaced():
    users = module("import jax\ndef f(x):\n  return jax.jit(lambda v: v * 2)(x)\n")
    return users.f, attribute(jax, "jit", lambda f: f)


@kind(PATCHES)
def scan_replaced():
    users = module(
        "import jax\ndef f(x):\n  return jax.lax.scan(lambda c, v: (c + v, c), x, x)[0]\n"
    )
    return users.f, attribute(lax, "scan", lambda f, c, xs: (c * 2, xs))


@kind(PATCHES)
def cond_replaced():
    real = lax.cond
    users = module(
        "import jax\ndef f(x):\n  return jax.lax.cond(x[0] > 0, lambda v: v, lambda v: -v, x)\n"
    )
    return users.f, attribute(lax, "cond", lambda p, a, b, *o: real(p, b, a, *o))


@kind(PATCHES)
def tree_map_replaced():
    real = jax.tree.map
    users = module("import jax\ndef f(x):\n  return jax.tree.map(lambda v: v * 2, (x,))[0]\n")
    return users.f, attribute(jax.tree, "map", lambda f, *t: real(lambda *v: f(*v) * 3, *t))


@kind(PATCHES)
def tree_flatten_replaced():
    real = jax.tree_util.tree_leaves
    users = module("import jax\ndef f(x):\n  return jax.tree_util.tree_leaves([x, -x])[0]\n")
    return users.f, attribute(jax.tree_util, "tree_leaves", lambda t: real(t)[::-1])


@kind(PATCHES)
def module_of_jax_replaced():
    users = module("import jax.numpy as jnp\ndef f(x):\n  return jnp.sin(x)\n")
    other = types.ModuleType("jax.numpy")
    vars(other).update(vars(jnp), sin=jnp.cos)
    return users.f, attribute(users, "jnp", other)


@kind(PATCHES)
def submodule_of_jax_replaced():
    users = module("import jax\ndef f(x):\n  return jax.nn.relu(x)\n")
    other = types.ModuleType("jax.nn")
    vars(other).update(vars(jax.nn), relu=jax.nn.relu6)
    return users.f, attribute(jax, "nn", other)


@kind(PATCHES)
def class_of_primitives():
    real = core.Primitive.bind
    seen = []

    def new(self, *args, **params):
        seen.append(self.name)
        return real(self, *args, **params)

    return lambda x: jnp.sin(x) * 2, attribute(core.Primitive, "bind", new), lambda: len(seen)


@kind(PATCHES)
def staging_of_traces():
    from jax._src.interpreters import partial_eval as pe

    real = pe.DynamicJaxprTrace.process_primitive
    seen = []

    def new(self, primitive, *args):
        seen.append(primitive.name)
        return real(self, primitive, *args)

    return (
        lambda x: jnp.sin(x) * 2,
        attribute(pe.DynamicJaxprTrace, "process_primitive", new),
        lambda: len(seen),
    )


@kind(PATCHES)
def printing_of_jaxprs():
    return (
        lambda x: jnp.sin(x) * 2,
        attribute(core, "pp_var", lambda *a, **k: core.pp.text("v")),
    )


@kind(PATCHES)
def printing_of_params():
    return (
        lambda x: jnp.sum(x) * x,
        attribute(core, "pp_kv_pair", lambda k, *a, **o: core.pp.text(f"<{k}>")),
    )


@kind(PATCHES)
def summary_of_sources():
    from jax._src import source_info_util

    return (
        lambda x: jnp.sin(x),
        attribute(source_info_util, "summarize", lambda *a, **k: "somewhere"),
    )


@kind(PATCHES)
def registered_exclusion_of_sources():
    import os

    from jax._src import source_info_util as s

    path = os.path.dirname(__file__)

    def change(on):
        if on:
            s.register_exclusion(path)
        else:
            s._exclude_paths.remove(path)
            getattr(s.is_user_filename, "cache_clear", lambda: None)()

    return lambda x: jnp.sin(x) * 2, change


@kind(PATCHES)
def name_of_a_jax_scope():
    real = jax.named_scope
    users = module("import jax\ndef f(x):\n  with jax.named_scope('a'):\n    return x * 2\n")
    return users.f, attribute(jax, "named_scope", lambda name: real(name + "b"))


@kind(PATCHES)
def function_of_random():
    return (
        lambda x: x + jax.random.normal(jax.random.key(0), (3,)),
        attribute(jax.random, "normal", jax.random.uniform),
    )


@kind(PATCHES)
def function_of_scipy():
    return (
        lambda x: jax.scipy.special.erf(x),
        attribute(jax.scipy.special, "erf", jnp.sin),
    )


@kind(PATCHES)
def operator_of_concrete_arrays():
    captured = jnp.ones(3)
    return (
        lambda x: captured * x,
        attribute(jax._src.array.ArrayImpl, "__mul__", lambda a, b: lax.neg(b)),
    )


@kind(PATCHES, tells=False)
def caches_cleared():
    return lambda x: jax.nn.gelu(jnp.sin(x)), lambda on: jax.clear_caches()


@kind(PATCHES)
def cache_of_a_jit_cleared():
    gain = [2.0]
    f = jax.jit(lambda x: x * gain[0])

    def change(on):
        gain[0] = 7.0 if on else 2.0
        f.clear_cache()

    return lambda x: f(x), change


@kind(PATCHES, tells=False)
def cache_of_a_jit_is_not_cleared():
    """jax does not look again at what a jit reads."""
    gain = [2.0]
    f = jax.jit(lambda x: x * gain[0])
    return lambda x: f(x), item(gain, 0, 7.0)
