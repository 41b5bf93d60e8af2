"""jaxide leaves jax as it found it, and keeps nothing alive that stock would let go."""

import contextlib
import gc
import sys
import textwrap
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import config, core, source_info_util

import jaxide
from alone import run_alone

HERE = Path(__file__).parent


def run_python(script: str, **environment: str) -> str:
    """Runs a script in a fresh interpreter and returns what it printed."""
    finished = run_alone(script, **environment)
    assert finished.stderr == ""
    return finished.stdout


# ---- jax is the same objects before and after -------------------------------------------------

# Run before `import jaxide`, after it, and after traces and errors, always on the same objects.
SNAPSHOT = '''
import sys, types

def code_of(function):
    """What makes a Python function behave as it does."""
    return (
        function,
        function.__code__,
        function.__defaults__,
        function.__kwdefaults__,
        function.__globals__,
        function.__name__,
        function.__qualname__,
        function.__doc__,
    )

def entries(owner):
    """The functions and classes of a module or class, by name, with their insides."""
    for name, value in list(vars(owner).items()):
        inner = value
        if isinstance(inner, (staticmethod, classmethod)):
            inner = inner.__func__
        if isinstance(inner, property):
            for part in (inner.fget, inner.fset, inner.fdel):
                if isinstance(part, types.FunctionType):
                    yield f"{name}.{part.__name__}", code_of(part)
        if isinstance(inner, types.FunctionType):
            yield name, (value, *code_of(inner))
        elif callable(value) or isinstance(value, (property, types.MemberDescriptorType)):
            yield name, (value, type(value))
        wrapped = getattr(inner, "__wrapped__", None)
        if isinstance(wrapped, types.FunctionType):
            yield f"{name}.__wrapped__", code_of(wrapped)

def classes(module):
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__.startswith(("jax", "numpy")):
            yield value

def modules():
    return {
        name: module
        for name, module in sorted(sys.modules.items())
        if name.split(".")[0] in ("jax", "jaxlib") and isinstance(module, types.ModuleType)
    }

def snapshot(names):
    """Every function, class, method and slot of the named modules."""
    found = {}
    for name in names:
        module = sys.modules[name]
        for entry, parts in entries(module):
            found[f"{name}.{entry}"] = parts
        for owner in classes(module):
            prefix = f"{name}.{owner.__qualname__}"
            found[prefix] = (owner, owner.__bases__, owner.__mro__, type(owner))
            for entry, parts in entries(owner):
                found[f"{prefix}.{entry}"] = parts
    return found

def registries(names):
    """The dictionaries that jax looks types and primitives up in."""
    from jax._src import core
    found = {}
    for name in names:
        for variable, value in list(vars(sys.modules[name]).items()):
            if isinstance(value, dict):
                found[f"{name}.{variable}"] = {
                    key: handler
                    for key, handler in list(value.items())
                    if isinstance(key, (type, core.Primitive))
                }
    return found

def differences(before, after):
    for name in before.keys() | after.keys():
        if name not in before:
            yield f"{name} is new"
        elif name not in after:
            yield f"{name} is gone"
        elif len(before[name]) != len(after[name]) or any(
            a is not b and not (isinstance(a, tuple) and a == b)
            for a, b in zip(before[name], after[name])
        ):
            yield f"{name} changed"

def registry_differences(before, after):
    """All but entries for tracer and trace classes that did not exist before."""
    from jax._src import core
    known = {key for entries in before.values() for key in entries}
    for name in before.keys() | after.keys():
        old, new = before.get(name, {}), after.get(name, {})
        for key in old.keys() | new.keys():
            if key in old and key in new:
                if old[key] is not new[key]:
                    yield f"{name}[{key}] changed"
            elif key in old:
                yield f"{name}[{key}] is gone"
            elif key in known or not (
                isinstance(key, type) and issubclass(key, (core.Tracer, core.Trace))
            ):
                yield f"{name}[{key}] is new"
'''

# Good and bad traces; the first run also fills jax's own lazily made globals. `jax.extend` is
# public and adds rules to jax when first imported, by whomever.
EXERCISE = """
import re
import jax, jax.extend, jax.numpy as jnp, numpy as np
from jax import lax

def loss(params, x):
    hidden = jax.nn.relu(x @ params["w"])
    total, _ = lax.scan(lambda c, h: (c + jnp.sum(h), None), 0.0, hidden)
    total = lax.cond(total > 0, jnp.sin, jax.jit(jnp.cos), total)
    return lax.while_loop(lambda v: v < 3, lambda v: v + 1, lax.stop_gradient(total)) + total

def bad(x):
    return jnp.sin(x) if x > 0 else x

def exercise(make):
    params, x = {"w": np.ones((4, 3), np.float32)}, np.ones((2, 4), np.float32)
    texts = []
    for function in (loss, jax.value_and_grad(loss), jax.jit(loss), jax.checkpoint(loss)):
        texts.append(str(make(lambda p, x: function(p, x))(params, x)))
    texts.append(str(make(jax.vmap(lambda v: lax.psum(v, "i"), axis_name="i"))(x)))
    for wrong in (lambda: make(lambda v: bad(v))(1.0), lambda: make(lambda v: "text")(1.0),
                  lambda: make(lambda v: jax.jit(bad)(v))(1.0), lambda: make(lambda v: v)("a"),
                  lambda: make(lambda v: v.no_such_attribute)(1.0)):
        try:
            wrong()
        except Exception as error:
            texts.append(re.sub("0x[0-9a-f]+", "0x", f"{type(error)} {error}"))
        else:
            raise AssertionError("expected an error")
    return texts
"""


def test_jax_is_untouched() -> None:
    printed = run_python(
        SNAPSHOT
        + EXERCISE
        + textwrap.dedent(
            """
            reference = exercise(jax.make_jaxpr)
            names = list(modules())
            before, tables = snapshot(names), registries(names)

            import jaxide
            found = [f"import: {d}" for d in differences(before, snapshot(names))]
            found += [f"import: {d}" for d in registry_differences(tables, registries(names))]

            assert exercise(jaxide.make_jaxpr) == reference
            found += [f"traces: {d}" for d in differences(before, snapshot(names))]
            found += [f"traces: {d}" for d in registry_differences(tables, registries(names))]

            assert exercise(jax.make_jaxpr) == reference
            jax.clear_caches()
            assert exercise(jax.make_jaxpr) == reference
            found += [f"stock: {d}" for d in differences(before, snapshot(names))]
            print(len(before), len(tables))
            print("\\n".join(found))
            """
        )
    )
    counts, *found = printed.splitlines()
    objects, tables = map(int, counts.split())
    assert objects > 5000 and tables > 50, "the snapshot misses most of jax"
    assert [line for line in found if line] == []


def test_snapshot_sees_changes() -> None:
    """The comparison above must notice every way of replacing a part of jax."""
    printed = run_python(
        SNAPSHOT
        + """
import jax
from jax._src import core, config
from jax._src.interpreters import partial_eval as pe
names = list(modules())
before, tables = snapshot(names), registries(names)

def replacement(*args, **kwargs): pass

def check(label):
    print(label, any(differences(before, snapshot(names)))
          or any(registry_differences(tables, registries(names))))

check("nothing")
original = core.Primitive.bind
core.Primitive.bind = replacement
check("method")
core.Primitive.bind = original
code = pe.trace_to_jaxpr_dynamic.__wrapped__.__code__
pe.trace_to_jaxpr_dynamic.__wrapped__.__code__ = replacement.__code__
check("code")
pe.trace_to_jaxpr_dynamic.__wrapped__.__code__ = code
original = pe.DynamicJaxprTrace
pe.DynamicJaxprTrace = type("DynamicJaxprTrace", (original,), {})
check("class")
pe.DynamicJaxprTrace = original
core.new_function = replacement
check("name")
del core.new_function
core.pytype_aval_mappings[replacement.__class__] = replacement
check("registry")
del core.pytype_aval_mappings[replacement.__class__]
check("restored")
"""
    )
    assert (
        printed.split()
        == (
            "nothing False method True code True class True name True registry True restored False"
        ).split()
    )


def test_import_is_quiet_and_does_not_start_a_backend() -> None:
    printed = run_python(
        """
        import jax
        from jax._src import config, xla_bridge
        context = config.trace_context()
        import jaxide
        assert config.trace_context() == context
        assert not xla_bridge.backends_are_initialized()
        assert jax.make_jaxpr is not jaxide.make_jaxpr
        print("done")
        """
    )
    assert printed == "done\n"


@pytest.mark.parametrize("order", ["import jax, jaxide", "import jaxide, jax"])
def test_import_order(order: str) -> None:
    printed = run_python(
        f"""
        {order}
        import jax.numpy as jnp
        f = lambda x: jnp.sin(x) + 1
        assert str(jaxide.make_jaxpr(f)(1.0)) == str(jax.make_jaxpr(f)(1.0))
        print("done")
        """
    )
    assert printed == "done\n"


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "leaked = []; jaxide.make_jaxpr(lambda x: leaked.append(x))(1.0)",
        "jaxide.make_jaxpr(lambda x: sys.exit(0))(1.0)",
        "gc.disable()",
        "jax.clear_caches()",
        "threading.Thread(target=lambda: jaxide.make_jaxpr(jnp.sin)(1.0)).start()",
    ],
)
def test_interpreter_exits_cleanly(ending: str) -> None:
    """Programs, traces and tracers that live to the end of the process do no harm."""
    run_python(
        f"""
        import gc, sys, threading
        import jax, jax.numpy as jnp, jaxide
        captured = jnp.arange(3.0)
        program = jaxide.trace(lambda x: x * captured)(1.0)
        jaxpr = jaxide.make_jaxpr(jax.grad(lambda x: jnp.sum(x * captured)))(captured)
        {ending}
        """
    )


# ---- the state of this process ----------------------------------------------------------------


def thread_state() -> tuple:
    return (
        core.trace_ctx.trace,
        dict(core.trace_ctx.axis_env.axis_sizes),
        str(source_info_util.current_name_stack()),
        config.trace_context(),
        gc.isenabled(),
        gc.get_threshold(),
        sys.getrecursionlimit(),
        sys.getswitchinterval(),
        sys.gettrace(),
        sys.getprofile(),
    )


def bad(x):
    return x if x > 0 else -x


EVENTS: dict[str, Callable[[], object]] = {
    "trace": lambda: jaxide.make_jaxpr(lambda x: jnp.sin(x))(1.0),
    "gradient": lambda: jaxide.make_jaxpr(jax.grad(lambda x: jnp.sin(x)))(1.0),
    "program": lambda: jaxide.trace(lambda x: jnp.sin(x))(1.0)(2.0),
    "error": lambda: jaxide.make_jaxpr(bad)(1.0),
    "nested_error": lambda: jaxide.make_jaxpr(lambda x: jax.jit(lambda y: bad(y))(x))(1.0),
    "error_in_scope": lambda: jaxide.make_jaxpr(jax.named_call(bad, name="scope"))(1.0),
    "error_in_vmap": lambda: jaxide.make_jaxpr(jax.vmap(bad, axis_name="i"))(jnp.ones(3)),
    "error_in_scan": lambda: jaxide.make_jaxpr(
        lambda x: lax.scan(lambda c, _: (bad(c), None), x, None, length=2)
    )(1.0),
    "error_in_axis_env": lambda: jaxide.make_jaxpr(bad, axis_env=[("i", 2)])(1.0),
    "error_in_arguments": lambda: jaxide.make_jaxpr(bad)("text"),
    "error_in_result": lambda: jaxide.make_jaxpr(lambda x: object())(1.0),
    "error_in_call": lambda: jaxide.trace(lambda x: x)(1.0)("text"),
    "error_in_from_jaxpr": lambda: jaxide.from_jaxpr("text"),
    "interrupt": lambda: jaxide.make_jaxpr(_interrupt)(1.0),
}


def _interrupt(x):
    jnp.sin(x)
    raise KeyboardInterrupt


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("setting", ["plain", "x64", "scope", "checks", "inside_a_trace"])
def test_thread_state_is_restored(event: str, setting: str) -> None:
    def run() -> None:
        before = thread_state()
        try:
            EVENTS[event]()
        except (Exception, KeyboardInterrupt):
            assert "error" in event or event == "interrupt"
        assert thread_state() == before

    match setting:
        case "plain":
            run()
        case "x64":
            with jax.enable_x64(True):
                run()
        case "scope":
            with jax.named_scope("scope"):
                run()
        case "checks":
            with jax.enable_checks(True):
                run()
        case "inside_a_trace":
            jax.make_jaxpr(lambda x: (run(), jnp.sin(x))[1])(1.0)
            jaxide.make_jaxpr(lambda x: (run(), jnp.sin(x))[1])(1.0)
    assert core.trace_state_clean()


def test_jit_after_a_trace_is_stock() -> None:
    """Functions compiled before and after are executed by jax alone."""
    f = jax.jit(lambda x: jnp.sin(x) * 2)
    before = f(1.0)
    jaxide.make_jaxpr(f)(1.0)
    assert f(1.0) == before
    assert f._cache_size() == 1
    assert str(jax.make_jaxpr(f)(1.0)) == str(jaxide.make_jaxpr(f)(1.0))


# ---- nothing is kept alive --------------------------------------------------------------------


def collect() -> None:
    for _ in range(3):
        gc.collect()


class Weak:
    """An object that can be referenced weakly, for a function to capture."""


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    collect()


TRANSFORMS: dict[str, Callable[[Callable], Callable]] = {
    "plain": lambda f: f,
    "jit": lambda f: jax.jit(f),
    "grad": lambda f: jax.grad(lambda x: jnp.sum(f(x))),
    "vmap": lambda f: jax.vmap(lambda x: f(x)),
    "checkpoint": lambda f: jax.grad(lambda x: jnp.sum(jax.checkpoint(f)(x))),
    "scan": lambda f: lambda x: lax.scan(lambda c, v: (c, f(v)), 0.0, x),
    "cond": lambda f: lambda x: lax.cond(x[0] > 0, f, lambda v: v, x),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("make", [jaxide.make_jaxpr, jaxide.trace], ids=["make_jaxpr", "trace"])
def test_captured_objects_die(make: Callable, transform: str) -> None:
    """The function, what it captured, its tracers and its trace die with the program."""

    def trace() -> tuple[Any, list[weakref.ref]]:
        captured, marker = jnp.arange(3.0), Weak()
        references = [weakref.ref(captured), weakref.ref(marker)]

        def f(x):
            y = x * captured[0] + captured.sum()
            references.extend([weakref.ref(x), weakref.ref(y), weakref.ref(y._trace)])
            return y if marker else x

        references.append(weakref.ref(f))
        return make(TRANSFORMS[transform](f))(jnp.ones(3)), references

    result, references = trace()
    del result
    collect()
    assert len(references) >= 6
    assert [reference() for reference in references if reference() is not None] == []


FAILURES = {
    "in_the_function": bad,
    "interrupt": _interrupt,
    "result": lambda x: "text",
    "operand": lambda x: jnp.sin("text"),
    "nested": jax.jit(lambda x: bad(x)),
}


def survivors(make: Callable, failure: Callable, constant: Any) -> set[str]:
    """What is still alive of a trace that failed."""
    references = {}

    def attempt() -> None:
        captured, marker = jnp.asarray(constant), Weak()
        references.update(captured=weakref.ref(captured), marker=weakref.ref(marker))

        def f(x):
            y = jnp.sin(x) * (captured if marker and captured.ndim else 2.0)
            references.update(x=weakref.ref(x), y=weakref.ref(y), trace=weakref.ref(y._trace))
            return failure(y)

        references.update(f=weakref.ref(f))
        try:
            make(f)(1.0)
        except (Exception, KeyboardInterrupt):
            return
        raise AssertionError("expected an error")

    attempt()
    collect()
    assert len(references) == 6
    return {name for name, reference in references.items() if reference() is not None}


@pytest.mark.parametrize("failure", FAILURES)
def test_captured_objects_die_after_an_error(failure: str) -> None:
    assert survivors(jaxide.make_jaxpr, FAILURES[failure], 2.0) == set()


@pytest.mark.parametrize("failure", FAILURES)
def test_captured_array_after_an_error(failure: str) -> None:
    """Stock never frees a failed trace that has an array among its constants."""
    stock = survivors(jax.make_jaxpr, FAILURES[failure], [1.0, 2.0])
    assert survivors(jaxide.make_jaxpr, FAILURES[failure], [1.0, 2.0]) <= stock


def test_arguments_die() -> None:
    """A trace keeps the type of its arguments, not their values."""
    argument = jnp.arange(1000.0)
    reference = weakref.ref(argument)
    program = jaxide.trace(lambda x: x * 2)(argument)
    jaxpr = jaxide.make_jaxpr(lambda x: x * 2)(argument)
    del argument
    collect()
    assert reference() is None
    assert len(program) == len(jaxpr.eqns) == 1


def test_program_keeps_its_constants_alive() -> None:
    def trace() -> tuple[Any, weakref.ref]:
        captured = jnp.arange(3.0)
        return jaxide.trace(lambda x: x * captured)(1.0), weakref.ref(captured)

    program, reference = trace()
    collect()
    assert reference() is not None
    np.testing.assert_array_equal(program(2.0), [0.0, 2.0, 4.0])
    del program
    collect()
    assert reference() is None


def test_jaxpr_and_program_die() -> None:
    program = jaxide.trace(lambda x: jnp.sin(x))(1.0)
    jaxpr = program.jaxpr
    references = [weakref.ref(jaxpr)]
    copied = jaxide.from_jaxpr(jaxpr)
    del program, copied, jaxpr
    collect()
    assert references[0]() is None


def test_parameters_of_equations_die() -> None:
    def trace() -> list[weakref.ref]:
        inner = jax.jit(lambda x: jnp.sin(x) * 2)
        jaxpr = jaxide.make_jaxpr(lambda x: lax.cond(x > 0, inner, jnp.cos, x))(1.0)
        branches = jaxpr.eqns[-1].params["branches"]
        return [weakref.ref(jaxpr.jaxpr), *map(weakref.ref, branches)]

    references = trace()
    jax.clear_caches()
    collect()
    assert [reference() for reference in references] == [None] * 3


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_no_false_leaks(transform: str) -> None:
    with jax.checking_leaks():
        jaxide.make_jaxpr(TRANSFORMS[transform](lambda x: jnp.sin(x) * jnp.arange(3.0)[0]))(
            jnp.ones(3)
        )


def growing_program(captured: Any) -> Callable:
    def f(x):
        for i in range(20):
            x = jnp.sin(x) * captured + i
        total, _ = lax.scan(lambda c, v: (c + v, jnp.cos(v)), jnp.float32(0), x)
        return lax.cond(total > 0, jnp.sin, jax.jit(lambda v: v * 2), total)

    return f


def test_repeated_traces_do_not_leave_objects() -> None:
    """The number of objects the collector knows does not grow with the number of traces."""

    def trace(rounds: int) -> int:
        for _ in range(rounds):
            f = growing_program(jnp.arange(3.0))
            jaxide.make_jaxpr(f)(jnp.ones(3))
            jaxide.trace(jax.grad(f))(jnp.ones(3)).jaxpr.eqns
        collect()
        return len(gc.get_objects())

    trace(5)
    counts = [trace(10) for _ in range(4)]
    assert counts[-1] - counts[0] < 300, counts


def test_reference_counts_of_shared_objects_do_not_grow() -> None:
    """Primitives, types and singletons outlive every trace, so a lost reference adds up.

    Stock itself loses a few, and jaxide calls stock.
    """
    shared = {
        "sin": lax.sin_p,
        "mul": lax.mul_p,
        "scan": lax.scan_p,
        "cond": lax.cond_p,
        "float32": np.dtype("float32"),
        "int32": np.dtype("int32"),
        "mesh": jax.sharding.get_abstract_mesh(),
        "no_effects": core.no_effects,
        "trace": core.eval_trace,
        "trace_class": type(core.eval_trace),
        "array": jnp.arange(3.0),
        "code": growing_program.__code__,
        "inner_code": growing_program(0).__code__,
    }

    def trace(make: Callable) -> None:
        f = growing_program(shared["array"])
        jaxpr = make(f)(shared["array"])
        make(jax.grad(f))(shared["array"])
        str(jaxpr), jaxpr.in_avals, jaxpr.eqns
        for wrong in (bad, lambda x: x.sharding, lambda x: jnp.sin("text")):
            with contextlib.suppress(TypeError, AttributeError):
                make(wrong)(1.0)

    def growth(step: Callable[[], object], rounds: int = 30) -> dict[str, int]:
        counts = []
        for _ in range(2):
            for _ in range(rounds):
                step()
            collect()
            counts.append({name: sys.getrefcount(value) for name, value in shared.items()})
        first, last = counts
        return {name: last[name] - first[name] for name in shared}

    jaxpr = jax.make_jaxpr(growing_program(shared["array"]))(shared["array"])
    stock = growth(lambda: trace(jax.make_jaxpr))
    ours = growth(lambda: trace(jaxide.make_jaxpr))
    copied = growth(lambda: str(jaxide.from_jaxpr(jaxpr).jaxpr))
    assert {name: n for name, n in ours.items() if n >= max(stock[name], 0) + 15} == {}
    assert {name: n for name, n in copied.items() if n >= 15} == {}


def test_memory_of_repeated_traces_is_bounded() -> None:
    """The memory of the process, which counts what Rust allocates as well."""
    printed = run_python(
        """
        import gc, resource
        import jax, jax.numpy as jnp, jaxide
        from test_state import growing_program

        def peak(rounds):
            for _ in range(rounds):
                f = growing_program(jnp.arange(3.0))
                jaxide.trace(f)(jnp.ones(3)).jaxpr.eqns
                jaxide.make_jaxpr(jax.grad(f))(jnp.ones(3))
                jaxide.from_jaxpr(jaxide.make_jaxpr(lambda x: jnp.sin(x))(1.0)).jaxpr
                try:
                    jaxide.make_jaxpr(lambda x: float(f(x)))(jnp.ones(3))
                except TypeError:
                    pass
            gc.collect()
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        peak(20)
        print(*(peak(30) for _ in range(3)))
        """
    )
    sizes = [int(size) for size in printed.split()]
    assert sizes[-1] - sizes[0] < 6 * 1024, sizes  # KiB


# ---- the collector and deep programs ----------------------------------------------------------


def test_collector_runs_during_a_trace() -> None:
    """With the lowest threshold the collector runs at almost every allocation."""
    expected = str(jax.make_jaxpr(jax.grad(growing_program(2.0)))(jnp.ones(3)))
    jax.clear_caches()
    threshold = gc.get_threshold()
    gc.set_threshold(2, 1, 1)
    try:
        text = str(jaxide.make_jaxpr(jax.grad(growing_program(2.0)))(jnp.ones(3)))
    finally:
        gc.set_threshold(*threshold)
    assert text == expected


def test_collector_sees_cycles_through_tracers() -> None:
    """A tracer in a cycle with user objects is freed by the collector."""
    references = []

    def f(x):
        node = Weak()
        node.tracer = jnp.sin(x)
        node.self = node
        references.extend([weakref.ref(node), weakref.ref(node.tracer)])
        del node
        collect()
        return x

    jaxide.make_jaxpr(f)(1.0)
    collect()
    assert [r() for r in references] == [None, None]


def test_cycle_through_the_program() -> None:
    """A constant that refers to the function that captured it."""

    def trace() -> weakref.ref:
        holder = Weak()
        captured = jnp.arange(3.0)
        holder.f = lambda x: x * captured if holder else x
        holder.program = jaxide.trace(holder.f)(1.0)
        holder.jaxpr = holder.program.jaxpr
        return weakref.ref(holder)

    reference = trace()
    collect()
    assert reference() is None


DEEP = 10_000


def deep_chain(x):
    for _ in range(DEEP):
        x = lax.sin(x)
    return x


@pytest.mark.parametrize(
    "function",
    [deep_chain, lambda x: jax.jvp(deep_chain, (x,), (x,))],
    ids=["plain", "jvp"],
)
def test_deep_programs(function: Callable) -> None:
    """Long chains of equations are built, printed and freed without deep recursion."""
    jaxpr = jaxide.make_jaxpr(lambda x: function(x))(1.0)
    assert str(jaxpr) == str(jax.make_jaxpr(lambda x: function(x))(1.0))
    reference = weakref.ref(jaxpr)
    del jaxpr
    collect()
    assert reference() is None


def test_deep_chain_of_dead_equations() -> None:
    """The last of a long chain of linear tracers goes, and with it all the others."""

    def f(x):
        def loss(y):
            z = y
            for _ in range(DEEP):
                z = lax.neg(z)
            del z
            return jnp.sin(y)

        return jax.grad(loss)(x)

    assert str(jaxide.make_jaxpr(f)(1.0)) == str(jax.make_jaxpr(f)(1.0))


def test_error_after_a_deep_chain() -> None:
    def f(x):
        return float(deep_chain(x))

    texts = []
    for make in (jax.make_jaxpr, jaxide.make_jaxpr):
        jax.clear_caches()
        with pytest.raises(jax.errors.ConcretizationTypeError) as caught:
            make(f)(1.0)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_recursion_error_leaves_nothing_behind() -> None:
    def f(x):
        return f(jnp.sin(x))

    for make in (jaxide.make_jaxpr, jax.make_jaxpr):
        before = thread_state()
        with pytest.raises(RecursionError):
            make(f)(1.0)
        assert thread_state() == before
    assert str(jaxide.make_jaxpr(lambda x: jnp.cos(x))(1.0)) == str(
        jax.make_jaxpr(lambda x: jnp.cos(x))(1.0)
    )


def test_clearing_caches_inside_a_trace() -> None:
    def f(x):
        y = jnp.where(x > 0, x, 0)
        jax.clear_caches()
        return jax.jit(jnp.sin)(y) * 2

    texts = []
    for make in (jax.make_jaxpr, jaxide.make_jaxpr):
        jax.clear_caches()
        texts.append(str(make(lambda x: f(x))(jnp.ones(3))))
    assert texts[0] == texts[1]
