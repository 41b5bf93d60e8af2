"""Modules of jax that are imported late, by other threads or exchanged, and whoever comes in while
jaxide looks at what has changed: each in a process of its own, compared with stock jax."""

from __future__ import annotations

import textwrap

import pytest

from alone import run_alone

PRELUDE = """
import functools, os, signal, sys, threading, types
from unittest import mock

import jax, jax.numpy as jnp, numpy as np
from jax import lax

import jaxide
import jax._src.numpy.tensor_contractions as tensors
import jax._src.numpy.window_functions as windows

X = np.ones(3, np.float32)

def text(make, program):
    return str(make(lambda x: program(x))(X))

def warm(program):
    for _ in range(4):
        text(jaxide.make_jaxpr, program)

def is_same(program):
    return text(jaxide.make_jaxpr, program) == text(jax.make_jaxpr, program)

def sine(x):
    return jnp.sin(x)

def product(x):
    return jnp.vecdot(x, x)

def window(x):
    return jnp.hamming(5) * x[0]

OTHER_PRODUCT = mock.patch.object(tensors, "vdot", lambda a, b, **k: a[0] * 5)
OTHER_WINDOW = mock.patch.object(windows, "ufuncs", types.SimpleNamespace(cos=jnp.sin))

def convolution(x):
    import jax.scipy.signal
    return jax.scipy.signal.convolve(x, x)

def assert_convolution_is_watched():
    import jax._src.scipy.signal as internal
    warm(convolution)
    with mock.patch.object(internal, "_convolve_nd", lambda x, *a, **k: x * 3):
        assert is_same(convolution)
    assert is_same(convolution)
    function, code = internal._convolve_nd, internal._convolve_nd.__code__
    function.__code__ = (lambda x, *a, **k: x * 7).__code__
    assert is_same(convolution)
    function.__code__ = code
    assert is_same(convolution)

class Alarm(Exception):
    pass

def alarm(*_):
    raise Alarm

def raise_at(name, skipped=0):
    '''A signal whose handler raises arrives when jaxide calls a function.'''
    seen = []
    signal.signal(signal.SIGUSR1, alarm)
    def look(frame, event, _):
        if event == "call" and frame.f_code.co_name == name:
            seen.append(name)
            if len(seen) > skipped:
                sys.setprofile(None)
                os.kill(os.getpid(), signal.SIGUSR1)
    sys.setprofile(look)

def assert_alarm(program):
    try:
        text(jaxide.make_jaxpr, program)
    except Alarm:
        return
    finally:
        sys.setprofile(None)
    raise AssertionError("the exception of the handler is gone")

def at_the_limit(make, program):
    '''The program's text as soon as the stack has room for it.'''
    def deep(n):
        return deep(n - 1) if n else text(make, program)
    for n in range(990, 0, -1):
        try:
            return deep(n)
        except RecursionError:
            pass
"""

SCRIPTS = {
    "another module of the name": """
        import jax._src.numpy.lax_numpy as numpy
        warm(product)  # imports from it when it is called
        other = types.ModuleType(numpy.__name__)
        vars(other).update(vars(numpy))
        other.moveaxis = lambda a, *args: numpy.moveaxis(a, *args) * 2
        with mock.patch.dict(sys.modules, {numpy.__name__: other}):
            assert is_same(product)
        assert is_same(product)
    """,
    "a module that is gone again": """
        with mock.patch.dict(sys.modules):
            warm(convolution)
            import jax._src.scipy.signal as internal
        kept = internal
        with mock.patch.object(kept, "_convolve_nd", lambda x, *a, **k: x * 3):
            assert is_same(jax.scipy.signal.convolve and (lambda x: internal.convolve(x, x)))
        assert is_same(lambda x: internal.convolve(x, x))
    """,
    "a module under another name": """
        shim = types.ModuleType("maps")
        shim.xmap = None
        sys.modules["jax.experimental.maps"] = shim
        warm(product)
        shim.xmap = jax.vmap
        with OTHER_PRODUCT:
            assert is_same(product)
            assert is_same(product)
        assert is_same(product)
    """,
    "a module that has its own names": """
        shim = types.ModuleType("jax.experimental.maps")
        shim.names = vars(shim)
        sys.modules[shim.__name__] = shim
        warm(sine)
        assert_convolution_is_watched()
    """,
    "modules that are none": """
        warm(sine)
        nameless, odd = types.ModuleType("x"), types.ModuleType("y")
        del nameless.__name__
        odd.__name__ = 5
        class Angry(types.ModuleType):
            def __getattribute__(self, name):
                raise RuntimeError(name)
        for name, module in {
            3: types.ModuleType("x"),
            "jax.experimental.nameless": nameless,
            "jax.experimental.odd": odd,
            "jax.experimental.angry": Angry("jax.experimental.angry"),
            "jax.experimental.none": None,
        }.items():
            sys.modules[name] = module
            assert is_same(sine), name
        for name in list(sys.modules):
            if type(name) is not str:
                del sys.modules[name]
        assert_convolution_is_watched()
    """,
    "a lazy module": """
        import importlib.util
        warm(sine)
        spec = importlib.util.find_spec("jax.experimental.ode")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        assert is_same(sine)
        assert type(module) is not types.ModuleType
        assert module.odeint
        with mock.patch.object(module, "ravel_pytree", None):
            assert is_same(sine)
    """,
    "a module whose import ends after a look": """
        import jax.scipy.stats
        internal = sys.modules["jax._src.scipy.stats.norm"]
        internal.__spec__._initializing = True
        assert is_same(jax.scipy.stats.norm.pdf)
        internal.__spec__._initializing = False
        warm(jax.scipy.stats.norm.pdf)
        with mock.patch.object(internal, "logpdf", lambda x, *_: x * 3):
            assert is_same(jax.scipy.stats.norm.pdf)
        assert is_same(jax.scipy.stats.norm.pdf)
    """,
    "a module without a name": """
        import jax.scipy.stats
        del jax.scipy.stats.__name__
        assert is_same(jax.scipy.stats.norm.pdf)
    """,
    "the recursion limit while jaxide looks": """
        warm(product)
        with OTHER_PRODUCT:
            assert at_the_limit(jaxide.make_jaxpr, product) == text(jax.make_jaxpr, product)
            assert is_same(product)
        assert is_same(product)
    """,
    "the recursion limit while modules are taken in": """
        warm(sine)
        import jax.scipy.signal
        at_the_limit(jaxide.make_jaxpr, sine)
        assert_convolution_is_watched()
    """,
    "an exception while jaxide looks": """
        warm(product)
        with OTHER_PRODUCT:
            raise_at("_counts")
            assert_alarm(product)
            assert is_same(product)
        assert is_same(product)
    """,
    "an exception while modules are taken in": """
        warm(sine)
        import jax.scipy.ndimage
        raise_at("_is_file_of_library")
        assert_alarm(sine)
        assert_convolution_is_watched()
    """,
    "an exception while classes are taken in": """
        from jaxide import _core
        warm(sine)
        import jax.scipy.stats
        raise_at("_is_file_of_library", skipped=3)
        assert_alarm(sine)
        warm(sine)
        before = _core.world_number()
        with mock.patch.object(jax.scipy.stats.gaussian_kde, "evaluate", None):
            assert _core.world_number() != before
        assert _core.world_number() == before
    """,
    "a change while jaxide looks at another": """
        warm(product)
        warm(window)
        def change():
            OTHER_PRODUCT.start()
            text(jaxide.make_jaxpr, product)
        def look(frame, event, _):
            if event == "call" and frame.f_code.co_name == "_counts":
                sys.setprofile(None)
                thread = threading.Thread(target=change)
                thread.start()
                thread.join()
        with OTHER_WINDOW:
            sys.setprofile(look)
            text(jaxide.make_jaxpr, sine)
            sys.setprofile(None)
            assert all(is_same(program) for program in (product, window) for _ in range(3))
        assert all(is_same(program) for program in (product, window) for _ in range(3))
        OTHER_PRODUCT.stop()
        assert all(is_same(program) for program in (product, window) for _ in range(3))
    """,
    "changes by two threads": """
        sys.setswitchinterval(1e-6)
        changes = {product: (tensors, "vdot", lambda a, b, **k: a[0] * 5),
                   window: (windows, "ufuncs", types.SimpleNamespace(cos=jnp.sin))}
        texts = {}
        for program, change in changes.items():
            warm(program)
            with mock.patch.object(*change):
                texts[program] = [text(jax.make_jaxpr, program)]
            texts[program].append(text(jax.make_jaxpr, program))
        wrong = []
        def run(program):
            module, name, new = changes[program]
            old = getattr(module, name)
            for _ in range(400):
                for value, expected in zip((new, old), texts[program]):
                    setattr(module, name, value)
                    for _ in range(2):
                        if text(jaxide.make_jaxpr, program) != expected:
                            wrong.append(program)
        threads = [threading.Thread(target=run, args=(program,)) for program in changes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, len(wrong)
    """,
    "another thread imports": """
        sys.setswitchinterval(1e-6)
        warm(sine)
        thread = threading.Thread(target=__import__, args=("jax.scipy.signal",))
        thread.start()
        while "jax._src.scipy.signal" not in sys.modules:
            pass
        warm(sine)
        thread.join()
        assert_convolution_is_watched()
    """,
    "others import while modules are listed": """
        sys.setswitchinterval(1e-6)
        errors = []
        def importing(thread):
            for number in range(300):
                sys.modules[f"user_{thread}_{number}"] = types.ModuleType("user")
        for turn in range(10):
            threads = [threading.Thread(target=importing, args=((turn, n),)) for n in range(4)]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                text(jaxide.make_jaxpr, sine)
            for name in [name for name in sys.modules if name.startswith("user_")]:
                del sys.modules[name]
    """,
    "a module imported within a trace": """
        warm(sine)
        def program(x):
            y = convolution(x)
            import jax._src.scipy.signal as internal
            with mock.patch.object(internal, "_convolve_nd", lambda x, *a, **k: x * 3):
                z = convolution(x)
            return y, z
        warm(program)
        assert is_same(program)
    """,
    "the start of a backend and a first trace": """
        from jaxide._native import world
        looks = []
        stock = world.World.look
        world.World.look = lambda *args: looks.append(args) or stock(*args)
        @functools.total_ordering
        class Ordered:
            def __lt__(self, other):
                return False
        import jax.scipy.stats
        jax.block_until_ready(jnp.ones(3))
        text(jaxide.make_jaxpr, sine)
        assert not looks
        lax.cos_p.mine = 1
        text(jaxide.make_jaxpr, sine)
        assert looks
    """,
    "a trace between a module of dialects and the one that replaces its classes": """
        import jaxlib.mlir.dialects._arith_ops_gen
        warm(sine)
        import jaxlib.mlir.dialects.arith
        warm(sine)
        assert jaxide._core.lowers_as_ever() is not None
    """,
    "another thread imports modules with primitives and dialects": """
        sys.setswitchinterval(1e-4)
        warm(sine)
        thread = threading.Thread(target=__import__, args=("jax.experimental.pallas.tpu",))
        thread.start()
        while thread.is_alive():
            text(jaxide.make_jaxpr, sine)
        thread.join()
        text(jaxide.make_jaxpr, sine)
        assert jaxide._core.lowers_as_ever() is not None
        assert not jaxide._core.is_jax_altered()
    """,
    "a module that keeps what somebody has put at the standard output": """
        import io
        class Captured(io.StringIO):
            pass
        warm(sine)
        with mock.patch.object(sys, "stdout", Captured()):
            import jax._src.test_util
        warm(sine)
        assert jaxide._core.lowers_as_ever() is not None
    """,
}


@pytest.mark.covering(times=8, each_value=False)
@pytest.mark.parametrize("name", SCRIPTS)
def test_in_a_process(name: str) -> None:
    run_alone(PRELUDE + textwrap.dedent(SCRIPTS[name]))
