"""Functions of the user: what they read, what they are, and their code."""

from __future__ import annotations

import builtins
import functools
import linecache
import math

import jax
import jax.numpy as jnp
import numpy as np

from world.world import attribute, item, kind, module

READS = "what a function reads"
CODE = "code of functions"
NAMES = "names that are printed"

GAIN = 2.0
TABLE = {"gain": 2.0, "nested": {"gain": [2.0]}}


@kind(READS)
def global_variable():
    return lambda x: jnp.sin(x) * GAIN, item(globals(), "GAIN", 7.0)


@kind(READS)
def global_variable_through_vars():
    users = module("import jax.numpy as jnp\nGAIN = 2.0\ndef f(x):\n  return jnp.sin(x) * GAIN\n")
    return users.f, item(vars(users), "GAIN", 7.0)


@kind(READS)
def attribute_of_the_users_module():
    users = module("GAIN = 2.0")
    globals()["users"] = users
    return lambda x: jnp.sin(x) * users.GAIN, attribute(users, "GAIN", 7.0)


@kind(READS)
def attribute_of_a_module_through_getattr():
    users = module("GAIN = {'v': 2.0}\ndef __getattr__(name):\n  return GAIN['v']\n")
    return lambda x: jnp.sin(x) * users.gain, item(users.GAIN, "v", 7.0)


@kind(READS)
def global_variable_is_deleted():
    users = module("import jax.numpy as jnp\nGAIN = 2.0\ndef f(x):\n  return jnp.sin(x) * GAIN\n")

    def change(on):
        if on:
            del users.GAIN
        else:
            users.GAIN = 2.0

    return users.f, change


@kind(READS)
def global_variable_appears_over_a_builtin():
    users = module("def f(x):\n  return x * len('ab')\n")
    return users.f, attribute(users, "len", lambda _: 7)


@kind(READS)
def builtin_is_replaced():
    users = module("def f(x):\n  return x * max(1.0, 2.0)\n")
    real = builtins.max
    return users.f, attribute(
        builtins, "max", lambda *a, **k: real(*a, **k) if a != (1.0, 2.0) else 7.0
    )


@kind(READS)
def builtin_abs_is_replaced():
    real = builtins.abs
    new = lambda v: real(v) * 3 if isinstance(v, jax.core.Tracer) else real(v)
    return lambda x: abs(x), attribute(builtins, "abs", new)


@kind(READS)
def global_variable_of_another_kind():
    users = module("import jax.numpy as jnp\nf_ = jnp.sin\ndef f(x):\n  return f_(x)\n")
    return users.f, attribute(users, "f_", jnp.cos)


@kind(READS)
def global_function_of_the_users():
    users = module(
        "def g(x):\n  return x * 2\ndef h(x):\n  return x * 7\ndef f(x):\n  return g(x) + 1\n"
    )
    return users.f, attribute(users, "g", users.h)


@kind(READS)
def global_deep_below():
    users = module(
        "G = 2.0\ndef a(x):\n  return x * G\ndef b(x):\n  return a(x)\ndef c(x):\n  return b(x)\n"
        "def f(x):\n  return c(x) + 1\n"
    )
    return users.f, attribute(users, "G", 7.0)


@kind(READS)
def minus_zero():
    users = module("import jax.numpy as jnp\nG = 0.0\ndef f(x):\n  return jnp.maximum(x, G)\n")
    return users.f, attribute(users, "G", -0.0)


@kind(READS)
def number_of_another_type():
    users = module("import jax.numpy as jnp\nG = 2\ndef f(x):\n  return x + jnp.full(3, G)\n")
    return users.f, attribute(users, "G", 2.0)


@kind(READS)
def boolean_for_a_number():
    users = module("import jax.numpy as jnp\nG = 1\ndef f(x):\n  return jnp.where(x > 0, G, x)\n")
    return users.f, attribute(users, "G", True)


@kind(READS)
def nan_of_another_sign():
    users = module("import jax.numpy as jnp\nG = float('nan')\ndef f(x):\n  return jnp.add(x, G)\n")
    return users.f, attribute(users, "G", -float("nan"))


@kind(READS)
def numpy_scalar_of_another_type():
    users = module("import numpy as np\nG = np.float32(2)\ndef f(x):\n  return (x * G).real\n")
    return users.f, attribute(users, "G", np.complex64(2))


@kind(READS)
def string_of_an_einsum():
    users = module(
        "import jax.numpy as jnp\nS = 'i,i->i'\ndef f(x):\n  return jnp.einsum(S, x, x) + x\n"
    )
    return users.f, attribute(users, "S", "i,i->")


@kind(READS)
def closure_cell():
    gain = 2.0

    def change(on):
        nonlocal gain
        gain = 7.0 if on else 2.0

    return lambda x: jnp.sin(x) * gain, change


@kind(READS)
def contents_of_a_cell():
    gain = 2.0
    body = lambda x: jnp.sin(x) * gain
    return body, attribute(body.__closure__[0], "cell_contents", 7.0)


@kind(READS)
def cell_of_a_function_below():
    gain = 2.0

    def inner(x):
        return x * gain

    def outer(x):
        return inner(x) + 1

    return outer, attribute(inner.__closure__[0], "cell_contents", 7.0)


@kind(READS)
def default_argument():
    def f(x, gain=2.0):
        return jnp.sin(x) * gain

    return lambda x: f(x), attribute(f, "__defaults__", (7.0,))


@kind(READS)
def default_argument_of_a_modules_function():
    users = module("def g(x, gain=2.0):\n  return x * gain\ndef f(x):\n  return g(x)\n")
    return users.f, attribute(users.g, "__defaults__", (7.0,))


@kind(READS)
def keyword_default():
    def f(x, *, gain=2.0):
        return jnp.sin(x) * gain

    return lambda x: f(x), attribute(f, "__kwdefaults__", {"gain": 7.0})


@kind(READS)
def item_of_keyword_defaults():
    def f(x, *, gain=2.0):
        return jnp.sin(x) * gain

    return lambda x: f(x), item(f.__kwdefaults__, "gain", 7.0)


@kind(READS)
def list_as_default():
    def f(x, gain=[2.0]):  # noqa: B006
        return jnp.sin(x) * gain[0]

    return lambda x: f(x), item(f.__defaults__[0], 0, 7.0)


@kind(READS)
def attribute_of_a_function():
    def f(x):
        return jnp.sin(x) * f.gain

    f.gain = 2.0
    return f, attribute(f, "gain", 7.0)


@kind(READS)
def item_of_a_functions_dict():
    def f(x):
        return jnp.sin(x) * f.gain

    f.gain = 2.0
    return f, item(f.__dict__, "gain", 7.0)


@kind(READS)
def keywords_of_a_partial():
    f = functools.partial(lambda x, gain: jnp.sin(x) * gain, gain=2.0)
    return lambda x: f(x), item(f.keywords, "gain", 7.0)


@kind(READS)
def state_of_a_partial():
    g = lambda gain, x: jnp.sin(x) * gain
    f = functools.partial(g, 2.0)

    def change(on):
        f.__setstate__((g, (7.0 if on else 2.0,), {}, {}))

    return lambda x: f(x), change


@kind(READS)
def partial_is_replaced():
    real = functools.partial
    users = module(
        "import functools, jax.numpy as jnp\n"
        "def f(x):\n  return functools.partial(jnp.multiply, 2.0)(x)\n"
    )
    new = lambda f, *a, **k: real(f, 7.0) if a == (2.0,) else real(f, *a, **k)
    return users.f, attribute(functools, "partial", new)


@kind(READS)
def function_of_math_is_replaced():
    users = module("import math\ndef f(x):\n  return x * math.sqrt(4.0)\n")
    return users.f, attribute(math, "sqrt", lambda _: 7.0)


@kind(READS)
def constant_of_math_is_replaced():
    users = module("import math\ndef f(x):\n  return x * math.pi\n")
    return users.f, attribute(math, "pi", 7.0)


@kind(READS)
def users_own_dict():
    users = module("T = {'a': [2.0]}\ndef f(x):\n  return x * T['a'][0]\n")
    return users.f, item(users.T["a"], 0, 7.0)


@kind(READS)
def users_globals_read_by_a_builtin():
    users = module("G = 2.0\ndef f(x):\n  return x * globals()['G']\n")
    return users.f, attribute(users, "G", 7.0)


@kind(READS)
def users_globals_read_by_eval():
    users = module("G = 2.0\ndef f(x):\n  return x * eval('G')\n")
    return users.f, attribute(users, "G", 7.0)


@kind(READS)
def name_that_is_imported():
    import sys

    users = module("def f(x):\n  import users_constants as c\n  return x * c.G\n")
    constants = module("G = 2.0")
    other = module("G = 7.0")
    sys.modules["users_constants"] = constants
    return users.f, item(sys.modules, "users_constants", other)


# ---- code ----


@kind(CODE)
def code_of_a_function():
    def f(x):
        return x * 2

    def g(x):
        return x * 7

    return lambda x: f(x), attribute(f, "__code__", g.__code__)


@kind(CODE)
def code_of_the_function_itself():
    def f(x):
        return x * 2

    def g(x):
        return x * 7

    return f, attribute(f, "__code__", g.__code__)


@kind(CODE)
def constants_of_a_code():
    users = module("def g(x):\n  return x * 2.0\ndef f(x):\n  return g(x)\n")
    old = users.g.__code__
    new = old.replace(co_consts=tuple(7.0 if c == 2.0 else c for c in old.co_consts))
    return users.f, attribute(users.g, "__code__", new)


@kind(CODE)
def lines_of_a_code():
    """The same instructions at another line of the same file."""
    users = module("def g(x):\n  return x * 2.0\ndef f(x):\n  return g(x)\n")
    old = users.g.__code__
    return users.f, attribute(users.g, "__code__", old.replace(co_firstlineno=90))


@kind(CODE)
def file_of_a_code():
    users = module("def g(x):\n  return x * 2.0\ndef f(x):\n  return g(x)\n")
    old = users.g.__code__
    new = old.replace(co_filename="/users/elsewhere.py")
    return users.f, attribute(users.g, "__code__", new)


@kind(CODE)
def module_is_executed_again():
    source = "import jax.numpy as jnp\n{}def f(x):\n  return jnp.sin(x) * {}\n"
    users = module(source.format("", 2.0))

    def change(on):
        text = source.format("\n\n" if on else "", 7.0 if on else 2.0)
        exec(compile(text, "/users/users_module.py", "exec"), vars(users))

    return lambda x: users.f(x), change


@kind(CODE)
def module_is_executed_again_further_down():
    """The same code but for its lines."""
    source = "import jax.numpy as jnp\n{}def f(x):\n  return jnp.sin(x) * 2\n"
    users = module(source.format(""))

    def change(on):
        text = source.format("\n\n" if on else "")
        exec(compile(text, "/users/users_module.py", "exec"), vars(users))

    return lambda x: users.f(x), change


@kind(CODE)
def module_is_reloaded():
    import importlib
    import os
    import sys
    import tempfile

    # The same for the histories of a pair, whose processes have one parent.
    folder = os.path.join(tempfile.gettempdir(), f"world-{os.getppid()}")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "users_reloaded.py")

    def write(gain):
        with open(path, "w") as file:
            file.write(f"import jax.numpy as jnp\ndef f(x):\n  return jnp.sin(x) * {gain}\n")
        linecache.clearcache()

    write(2.0)
    sys.dont_write_bytecode = True
    sys.path.insert(0, folder)
    import users_reloaded

    def change(on):
        write(7.0 if on else 2.0)
        importlib.reload(users_reloaded)

    return lambda x: users_reloaded.f(x), change


@kind(CODE)
def qualified_name_of_a_code():
    users = module("def g(x):\n  return x * 2.0\ndef f(x):\n  return g(x)\n")
    old = users.g.__code__
    new = old.replace(co_name="h", co_qualname="outer.<locals>.h")
    return users.f, attribute(users.g, "__code__", new)


# ---- names ----


def _jitted():
    def double(v):
        return v * 2

    return double


@kind(NAMES)
def name_of_a_function():
    f = _jitted()
    return lambda x: jax.jit(f)(x), attribute(f, "__name__", "other")


@kind(NAMES, tells=False)
def qualified_name_of_a_function():
    f = _jitted()
    return lambda x: jax.jit(f)(x), attribute(f, "__qualname__", "other")


@kind(NAMES)
def name_of_a_callable_object():
    class Double:
        def __call__(self, v):
            return v * 2

    f = Double()
    f.__name__ = "before"
    return lambda x: jax.jit(f)(x), attribute(f, "__name__", "after")


@kind(NAMES)
def name_of_a_callback():
    def host(v):
        return np.asarray(v)

    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    return (
        lambda x: jax.pure_callback(host, shape, x, vmap_method="sequential"),
        attribute(host, "__qualname__", "other"),
    )


@kind(NAMES)
def representation_of_a_callback():
    class Host:
        text = "before"

        def __call__(self, v):
            return np.asarray(v)

        def __repr__(self):
            return self.text

    host = Host()
    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    return (
        lambda x: jax.pure_callback(host, shape, x, vmap_method="sequential"),
        attribute(Host, "text", "after"),
    )


@kind(NAMES)
def signature_of_a_function():
    f = _jitted()
    import inspect

    new = inspect.Signature([inspect.Parameter("w", inspect.Parameter.POSITIONAL_OR_KEYWORD)])
    return lambda x: jax.jit(f)(x), attribute(f, "__signature__", new)


@kind(NAMES)
def wrapped_function_of_a_function():
    f = _jitted()
    g = lambda renamed: renamed
    return lambda x: jax.jit(f)(x), attribute(f, "__wrapped__", g)


@kind(NAMES)
def name_of_a_scope():
    users = module(
        "import jax\nN = 'a'\ndef f(x):\n  return jax.named_call(lambda v: v * 2, name=N)(x)\n"
    )
    return users.f, attribute(users, "N", "b")


@kind(NAMES)
def name_of_a_dtype_class():
    class Mine:
        dtype = np.dtype("float32")

    return lambda x: jnp.zeros(3, Mine) + x, attribute(Mine, "dtype", np.dtype("float16"))
