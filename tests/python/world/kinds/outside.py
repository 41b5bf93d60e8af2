"""The process around jax: environment, numpy, Python, warnings."""

from __future__ import annotations

import os
import sys

import jax.numpy as jnp
import numpy as np

from world.world import attribute, context, item, kind, module

PROCESS = "state of the process"
NUMPY = "functions of numpy"


@kind(PROCESS)
def environment_variable():
    os.environ["WORLD_GAIN"] = "2.0"
    return lambda x: x * float(os.environ["WORLD_GAIN"]), item(os.environ, "WORLD_GAIN", "7.0")


@kind(PROCESS)
def environment_variable_by_getenv():
    os.environ["WORLD_GAIN"] = "2.0"
    users = module("import os\ndef f(x):\n  return x * float(os.getenv('WORLD_GAIN'))\n")
    return users.f, item(os.environ, "WORLD_GAIN", "7.0")


@kind(PROCESS, tells=False)
def environment_variable_of_jax():
    return lambda x: jnp.sin(x), item(os.environ, "JAX_ENABLE_X64", "1")


@kind(PROCESS)
def recursion_limit():
    old = sys.getrecursionlimit()
    return (
        lambda x: x * (sys.getrecursionlimit() / old),
        lambda on: sys.setrecursionlimit(old * 2 if on else old),
    )


@kind(PROCESS)
def print_options_of_numpy():
    a = np.linspace(0, 1, 4, dtype=np.float32)
    users = module("def f(x):\n  return x * len(str(A))\n")
    users.A = a
    return users.f, context(lambda: np.printoptions(precision=2))


@kind(PROCESS, tells=False)
def print_options_in_the_text():
    value = np.float32(1) / 3
    return lambda x: x * value, context(lambda: np.printoptions(precision=2, floatmode="fixed"))


@kind(PROCESS)
def error_state_of_numpy():
    users = module(
        "import numpy as np\ndef f(x):\n  return x * np.float32(np.log(np.float32(0)))\n"
    )
    return users.f, context(lambda: np.errstate(all="raise"))


@kind(PROCESS)
def error_state_of_numpy_within_jax():
    return lambda x: x * jnp.float16(1e30), context(lambda: np.errstate(all="raise"))


@kind(PROCESS, tells=False)
def trace_function():
    """A function that is replayed does not run, but its trace is the same."""
    users = module("def watched(x):\n  return x * 2\ndef f(x):\n  return watched(x)\n")
    return users.f, lambda on: sys.settrace((lambda *_: None) if on else None)


@kind(PROCESS)
def frame_of_the_caller():
    users = module(
        "import sys\nDEPTH = 0\ndef g(x):\n  return x * sys._getframe(1).f_lineno\n"
        "def f(x):\n  return g(x)\n"
    )
    other = users.f.__code__.replace(co_firstlineno=90)
    return users.f, attribute(users.f, "__code__", other)


@kind(PROCESS)
def platform_of_a_function():
    users = module("import sys\ndef f(x):\n  return x * (2 if sys.platform == 'linux' else 7)\n")
    return users.f, attribute(sys, "platform", "other")


# ---- numpy ----


@kind(NUMPY)
def prod_of_numpy():
    users = module("import numpy as np\ndef f(x):\n  return x * float(np.prod([2.0, 1.0]))\n")
    return users.f, attribute(np, "prod", lambda *a, **k: 7.0)


@kind(NUMPY, tells=False)
def prod_of_numpy_within_jax():
    return lambda x: x * jnp.mean(x), attribute(np, "prod", lambda *a, **k: 7)


@kind(NUMPY)
def asarray_of_numpy_within_jax():
    """`jax.numpy.pad` looks it up in the module."""
    real = np.asarray

    def new(a, *args, **kwargs):
        return real(2 if type(a) is int and a == 1 else a, *args, **kwargs)

    return lambda x: jnp.pad(x, 1)[1:4] + x, attribute(np, "asarray", new)


@kind(NUMPY, tells=False)
def broadcast_shapes_of_numpy():
    real = np.ndim
    return lambda x: jnp.add(x, 2.0), attribute(np, "ndim", lambda a: real(a))


@kind(NUMPY, tells=False)
def result_type_of_numpy():
    real = np.shape
    calls = []

    def new(a):
        calls.append(1)
        return real(a)

    return lambda x: jnp.reshape(jnp.tile(x, 2), (2, 3))[0], attribute(np, "shape", new)


@kind(NUMPY)
def constant_of_numpy():
    users = module("import numpy as np\ndef f(x):\n  return x * np.pi\n")
    return users.f, attribute(np, "pi", 7.0)


@kind(NUMPY, tells=False)
def constant_of_numpy_within_jax():
    return lambda x: jnp.degrees(x) + jnp.angle(x, deg=True), attribute(np, "pi", 3.0)


@kind(NUMPY)
def float32_of_numpy():
    users = module("import numpy as np\ndef f(x):\n  return x * np.float32(2)\n")
    return users.f, attribute(np, "float32", lambda v: 7.0)
