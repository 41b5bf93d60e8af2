"""Executables where somebody changes jax, or what jax lowers with: stock jax, which lowers each new
function, is the oracle."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src import compiler, core, dispatch, pjit
from jax._src.interpreters import mlir, pxla
from jax._src.lax import lax as lax_internal
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import hlo

import jaxide
from alone import run_alone
from compilations import Compiled
from jaxide import _core
from jaxide._jit import executables, intercept

X = np.float32(0.5)
MANY = np.arange(4, dtype=np.float32)
ONES = jnp.ones(4)
Change = Callable[[int], contextlib.AbstractContextManager[Any]]
Program = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]

# Functions made anew, and their arguments.
logistic: Program = lambda: (lambda x: lax.logistic(x), (X,))
gradient: Program = lambda: (jax.grad(lambda x: lax.logistic(x) * 2), (X,))
nested: Program = lambda: (lambda x: jax.jit(lambda y: lax.logistic(y))(x) + 1, (X,))
sine: Program = lambda: (lambda x: lax.sin(x), (X,))
compared: Program = lambda: (lambda x: x < 1, (MANY,))
captured: Program = lambda: (lambda x, many=MANY: x * 3 + many, (ONES,))
narrow: Program = lambda: (lambda x: (x * 3).astype(jnp.bfloat16) + 1, (MANY,))


@contextlib.contextmanager
def put(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def scaled_exp(factor: int) -> Any:
    exp = lax_internal.exp
    return lambda x, accuracy=None: exp(x) * np.float32(factor)


def of_function(factor: int) -> Any:
    return put(lax_internal, "exp", scaled_exp(factor))


STATE = {"factor": 1}


@contextlib.contextmanager
def of_state(factor: int) -> Iterator[None]:
    """One function, which reads what it multiplies by."""
    exp = lax_internal.exp
    STATE["factor"] = factor
    with put(lax_internal, "exp", lambda x, accuracy=None: exp(x) * np.float32(STATE["factor"])):
        yield


@contextlib.contextmanager
def of_primitive(factor: int) -> Iterator[None]:
    bind = lax.exp_p.bind
    lax.exp_p.bind = lambda *args, **params: bind(*args, **params) * np.float32(factor)
    try:
        yield
    finally:
        del lax.exp_p.bind


def of_code(factor: int) -> Any:
    codes = [(lambda x, accuracy: x).__code__, (lambda x, accuracy: x + x).__code__]
    return put(lax_internal.logistic_impl, "__code__", codes[factor % 2])


def of_dialect(factor: int) -> Any:
    return put(hlo, "sine", [hlo.cosine, hlo.tan][factor % 2])


def of_operation(factor: int) -> Any:
    return put(hlo.SineOp, "OPERATION_NAME", f"stablehlo.{['cosine', 'tan'][factor % 2]}")


def of_comparison(factor: int) -> Any:
    compare = hlo.compare
    changed = [lambda a, b, *rest, **kw: compare(b, a, *rest, **kw)]
    changed.append(lambda a, b, *rest, **kw: compare(a, a, *rest, **kw))
    return put(hlo, "compare", changed[factor % 2])


def of_options(factor: int) -> Any:
    def fail() -> None:
        raise ValueError(f"no options {factor}")

    return put(xla_client, "CompileOptions", fail)


def of_constants(factor: int) -> Any:
    handlers = dict(mlir._constant_handlers)

    def handler(handle: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        if np.asarray(value).dtype != np.float32:
            return handle(value, *args, **kwargs)
        return handlers[np.ndarray](np.asarray(value) * np.float32(factor), *args, **kwargs)

    changed = {type_: functools.partial(handler, handle) for type_, handle in handlers.items()}
    return mock.patch.dict(mlir._constant_handlers, changed)


def of_types(factor: int) -> Any:
    types = [ir.F16Type.get, ir.F32Type.get]
    return mock.patch.dict(mlir._dtype_to_ir_type, {np.dtype(jnp.bfloat16): types[factor % 2]})


def of_results(factor: int) -> Any:
    handle = pxla.global_result_handlers[core.ShapedArray]

    def changed(*args: Any, **kwargs: Any) -> Any:
        handle(*args, **kwargs)
        return lambda buffers: np.full(4, float(factor))

    return mock.patch.dict(pxla.global_result_handlers, {core.ShapedArray: changed})


@contextlib.contextmanager
def of_platform(factor: int) -> Iterator[None]:
    """A rule of a primitive that only the lowering of another one has."""
    rules = mlir._platform_specific_lowerings["cpu"]
    operation = [hlo.cosine, hlo.sine][factor % 2]
    try:
        mlir.register_lowering(lax.exp_p, lambda ctx, x, **_: [operation(x)], platform="cpu")
        yield
    finally:
        rules.pop(lax.exp_p, None)


@contextlib.contextmanager
def of_own_rule(factor: int) -> Iterator[None]:
    """The same, with rules that are jax's own."""
    rules = mlir._platform_specific_lowerings["cpu"]
    rule = mlir._lowerings[[lax.cos_p, lax.sin_p][factor % 2]]
    try:
        mlir.register_lowering(lax.exp_p, getattr(rule, "rule", rule), platform="cpu")
        yield
    finally:
        rules.pop(lax.exp_p, None)


@contextlib.contextmanager
def of_made_rule(factor: int) -> Iterator[None]:
    """The code of a rule that is in no module, from a file of jax's as it seems."""
    entry: Any = mlir._lowerings[lax.logistic_p]
    rule = getattr(entry, "rule", entry)
    source = f"""
    def outer({", ".join(rule.__code__.co_freevars)}):
        def f_lowered(ctx, *args, **params):
            {", ".join(rule.__code__.co_freevars)}
            return [hlo.{["cosine", "sine"][factor % 2]}(args[0])]
        return f_lowered
    """
    found: dict[str, Any] = {}
    exec(compile(textwrap.dedent(source), rule.__code__.co_filename, "exec"), found)
    code = found["outer"](*rule.__code__.co_freevars).__code__
    with put(rule, "__code__", code):
        yield


def of_compilation(factor: int) -> Any:
    def changed(*args: Any, **kwargs: Any) -> Any:
        raise ValueError(f"not compiled {factor}")

    return put(compiler, "compile_or_get_cached", changed)


CHANGES: list[tuple[Change, Program]] = [
    *((of_function, program) for program in (logistic, gradient, nested)),
    (of_state, logistic),
    *((of_primitive, program) for program in (logistic, nested)),
    (of_code, logistic),
    (of_dialect, sine),
    (of_operation, sine),
    (of_comparison, compared),
    (of_options, sine),
    (of_constants, captured),
    (of_types, narrow),
    (of_results, captured),
    (of_platform, logistic),
    (of_own_rule, logistic),
    (of_made_rule, logistic),
    (of_compilation, sine),
]


def outcome(jit: Any, program: Program) -> Any:
    function, args = program()
    try:
        return np.asarray(jit(function)(*args)).tolist()
    except ValueError as error:
        return repr(error)


def history(jit: Any, change: Change, program: Program) -> list[Any]:
    found = [outcome(jit, program)]
    for factor in (2, 5, 2):
        with change(factor):
            found += [outcome(jit, program), outcome(jit, program)]
        found.append(outcome(jit, program))
    return found


@contextlib.contextmanager
def installed() -> Iterator[Any]:
    with jaxide.accelerated():
        yield jax.jit


JITS = [lambda: contextlib.nullcontext(jaxide.jit), installed]


@pytest.mark.covering
@pytest.mark.parametrize("with_jit", JITS, ids=["jit", "install"])
@pytest.mark.parametrize(
    ("change", "program"), CHANGES, ids=lambda case: getattr(case, "__name__", None)
)
def test_what_somebody_changes_is_lowered_by_jax(
    change: Change, program: Program, with_jit: Callable[[], Any]
) -> None:
    jaxide.clear_caches()
    expected = history(jax.jit, change, program)
    assert len({repr(found) for found in expected}) == 3
    with with_jit() as jit:
        assert history(jit, change, program) == expected


MEANWHILE: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "somebody looks": _core.world_number,
    "a new name is there": lambda: setattr(lax_internal, "_saved", object()),
    "somebody registers a rule": lambda: mlir.register_lowering(
        core.Primitive("mine"), lambda ctx, x: [x]
    ),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_what_was_changed_while_it_was_lowered_is_not_shared(meanwhile: str) -> None:
    """Changed and put back before anybody could see it."""

    def compiled(jit: Any) -> list[Any]:
        exp, seen = lax_internal.exp, list[str]()

        def handle(record: logging.LogRecord) -> bool:
            text = record.getMessage()
            if text.startswith("Compiling") and not seen:
                seen.append(text)
                lax_internal.exp = lambda x, accuracy=None: exp(x) * 7
                MEANWHILE[meanwhile]()
            elif text.startswith("Finished jaxpr to MLIR") and len(seen) == 1:
                seen.append(text)
                lax_internal.exp = exp
            return False

        loggers = [logging.getLogger(module.__name__) for module in (pxla, dispatch)]
        for logger in loggers:
            logger.setLevel(logging.DEBUG)
            logger.addFilter(handle)
        try:
            found = [outcome(jit, logistic)]
        finally:
            for logger in loggers:
                logger.setLevel(logging.NOTSET)
                logger.removeFilter(handle)
        assert len(seen) == 2
        return [*found, outcome(jit, logistic)]

    jaxide.clear_caches()
    assert compiled(jaxide.jit) == compiled(jax.jit)


def test_executables_are_shared_again_once_all_is_as_it_was() -> None:
    jaxide.clear_caches()
    outcome(jaxide.jit, sine)
    with of_dialect(2):
        outcome(jaxide.jit, sine)
    outcome(jaxide.jit, sine)
    with Compiled() as compiled:
        outcome(jaxide.jit, sine)
    assert compiled.count == 0


@pytest.mark.parametrize("name", ["_pjit_call_impl_python", "_resolve_and_lower", "_trace_for_jit"])
def test_a_code_that_somebody_gives_a_function_of_jits_stays(name: str) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("not as it was")

    function = getattr(pjit, name)
    with put(function, "__code__", fail.__code__):
        for jit in (jax.jit, jaxide.jit, jax.jit):
            assert outcome(jit, sine) == "ValueError('not as it was')"
        with jaxide.accelerated():
            assert outcome(jax.jit, sine) == "ValueError('not as it was')"
        assert function.__code__ is fail.__code__


IN_A_PROCESS = {
    "modules of jax that assign attributes of jaxlib's classes": """
        import jax.experimental.buffer_callback
        try:
            import jax.experimental.transfer
        except ImportError:
            pass
    """,
    "a module that was changed before anybody looked": """
        import jax.experimental.jet as module
        stock, module.jet = module.jet, lambda *args: None
        assert _core.lowers_as_ever() is None
        module.jet = stock
    """,
    "a library with a rule that hands on": "import lineax",
    "warnings of a module that is new": """
        import warnings
        import jax.experimental.jet as module
        warn = compile("import warnings; warnings.warn('one')", "<here>", "exec")
        exec(warn, vars(module))
        assert _core.lowers_as_ever() is not None
        warnings.simplefilter("always")
        warnings.simplefilter("default")
        exec(warn, vars(module))
    """,
}


@pytest.mark.covering(times=2, each_value=False)
@pytest.mark.parametrize("harmless", IN_A_PROCESS)
def test_what_does_not_matter(harmless: str) -> None:
    source = textwrap.dedent(IN_A_PROCESS[harmless])
    code = f"""
import jax, jaxide
from jaxide import _core
jaxide.make_jaxpr(lambda x: x)(1.0)
{source}
assert _core.lowers_as_ever() is not None
"""
    run_alone(code)


def finding(folder: Path) -> str:
    """A ``PYTHONPATH`` by which modules of a folder are found first."""
    return os.pathsep.join((str(folder), *filter(None, (os.environ.get("PYTHONPATH"),))))


def test_what_lies_beside_a_package_of_one_file_is_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "typing_extensions.py").write_text("class Buffer: ...")
    (tmp_path / "mine.py").write_text("def rule(ctx, x, **params): return [x]")
    code = f"""
    import typing_extensions
    import jax, jaxide
    from jax.interpreters import mlir
    from jaxide import _core
    import mine
    assert typing_extensions.__file__.startswith({str(tmp_path)!r})
    jaxide.make_jaxpr(lambda x: x)(1.0)
    mlir.register_lowering(jax.lax.exp_p, mine.rule, platform="cpu")
    assert _core.lowers_as_ever() is None
    """
    run_alone(code, PYTHONPATH=finding(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        lambda: mock.patch.object(jax, "nobody_asks_for", 1, create=True),
        lambda: mock.patch.object(lax_internal, "nobody_asks_for", 1, create=True),
    ],
)
def test_new_names_do_not_matter(change: Callable[[], Any]) -> None:
    jaxide.clear_caches()
    outcome(jaxide.jit, sine)
    with change(), Compiled() as compiled:
        outcome(jaxide.jit, sine)
    assert compiled.count == 0


def test_what_no_key_finds_any_more_is_let_go() -> None:
    jaxide.clear_caches()
    shared = intercept.EXECUTABLES
    jit = functools.partial(jaxide.jit, captured="constants")
    for value in range(3 * executables.MAX_LOWERINGS):
        jit(lambda x, value=jnp.full(3, float(value)): x * value)(np.ones(3, np.float32))
    gc.collect()
    assert len(shared) == 1
    at_least = executables.MAX_LOWERINGS * executables.MIN_BYTES
    assert at_least <= shared.num_bytes < 1.2 * at_least


# Packages that jax and jaxlib import something of: the module of the package, what it has, and the
# module that has it then.
IMPORTED = {
    "flatbuffers": ("compat", "def import_numpy(): ...", "jax._src.export"),
    "jax_cuda13_plugin": ("_kernels", "class TritonKernel: ...", "jaxlib.gpu_triton"),
}


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("package", IMPORTED)
def test_a_package_that_jax_imports_from_is_no_change(
    package: str, is_late: bool, tmp_path: Path
) -> None:
    module, source, place = IMPORTED[package]
    name = source.split()[1].strip("():")
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / package / f"{module}.py").write_text(source)
    code = f"""
    import jax
    if {is_late}:
        import jaxide
        jaxide.make_jaxpr(lambda x: x)(1.0)
    import {place} as module
    from {package}.{module} import {name}
    module.{name} = {name}
    import jaxide
    from jaxide import _core
    jaxide.make_jaxpr(lambda x: x)(1.0)
    assert _core.lowers_as_ever() is not None
    """
    run_alone(code, PYTHONPATH=finding(tmp_path))


# What each step shows, and what is changed between: after modules of jax were imported late, and
# with functions of theirs.
HISTORIES = {
    "a method, by a function of a late module": """
        import jax.scipy.stats
        stock = core.ShapedArray.__dict__["_neg"]
        show(lambda x: -x * 3)
        core.ShapedArray._neg = staticmethod(jax.scipy.stats.norm.logpdf)
        show(lambda x: -x * 3)
        show(lambda x: -x * 7)
        core.ShapedArray._neg = stock
        show(lambda x: -x * 3)
        show(lambda x: -x * 7)
    """,
    "an operator of tracers, by a function of a late module": """
        import jax.scipy.stats
        stock = core.Tracer.__neg__
        show(lambda x: -x * 3)
        core.Tracer.__neg__ = jax.scipy.stats.norm.logpdf
        show(lambda x: -x * 3)
        core.Tracer.__neg__ = stock
        show(lambda x: -x * 3)
    """,
    "a rule that lowers within another, of a late module": """
        import jax._src.pallas.primitives as late
        table = mlir._platform_specific_lowerings["cpu"]
        show(lambda x: lax.bessel_i0e(x) * 3)
        mlir.register_lowering(lax.abs_p, late._reciprocal_lowering_rule, platform="cpu")
        show(lambda x: lax.bessel_i0e(x) * 3)
        show(lambda x: lax.bessel_i0e(x) * 2)
        del table[lax.abs_p]
        show(lambda x: lax.bessel_i0e(x) * 3)
        show(lambda x: lax.bessel_i0e(x) * 2)
    """,
    "a rule of a late primitive, replaced": """
        import jax._src.pallas.primitives as late
        def put(primitive):
            rule = functools.partial(batching.vectorized_batcher, primitive)
            batching.fancy_primitive_batchers[late.reciprocal_p] = rule
        def text():
            traced = jax.make_jaxpr(jax.vmap(jax.jit(lambda y: late.reciprocal(y) * 3)))
            print(traced(np.ones(2, np.float32)))
        put(late.reciprocal_p)
        text()
        text()
        put(lax.neg_p)
        text()
        put(late.reciprocal_p)
        text()
    """,
    "a staging rule, of a late module": """
        import jax.scipy.stats
        show(lambda x: lax.neg(x) * 3)
        partial_eval.custom_staging_rules[lax.neg_p] = jax.scipy.stats.norm.logpdf
        show(lambda x: lax.neg(x) * 3)
        del partial_eval.custom_staging_rules[lax.neg_p]
        show(lambda x: lax.neg(x) * 3)
    """,
    "a table by dtypes": """
        from jax._src import dtypes
        table = dtypes._dtype_to_inexact
        show(jax.nn.logsumexp, np.ones(3, np.float32))
        table[np.dtype("float32")] = np.dtype("float16")
        show(lambda x: jax.nn.logsumexp(x), np.ones(3, np.float32))
        del table[np.dtype("float32")]
        show(lambda x: jax.nn.logsumexp(x), np.ones(3, np.float32))
    """,
    "a method, by a function of no module of jax, after an import": """
        import copy
        stock = core.ShapedArray.__dict__["_abs"]
        show(lambda x: abs(x) * 3, -X)
        import_another()
        core.ShapedArray._abs = staticmethod(copy.copy)
        show(lambda x: abs(x) * 3, -X)
        core.ShapedArray._abs = stock
        show(lambda x: abs(x) * 3, -X)
    """,
    "a method, by a function of a module of jax that was known, after an import": """
        import jax.scipy.stats
        stock = core.ShapedArray.__dict__["_neg"]
        show(lambda x: -x * 3)
        import_another()
        core.ShapedArray._neg = staticmethod(jax.scipy.stats.norm.logpdf)
        show(lambda x: -x * 3)
        core.ShapedArray._neg = stock
        show(lambda x: -x * 3)
    """,
    "a table by dtypes, after an import": """
        from jax._src import dtypes
        table = dtypes._dtype_to_inexact
        show(jax.nn.logsumexp, np.ones(3, np.float32))
        import_another()
        table[np.dtype("float32")] = np.dtype("float16")
        show(lambda x: jax.nn.logsumexp(x), np.ones(3, np.float32))
        del table[np.dtype("float32")]
        show(lambda x: jax.nn.logsumexp(x), np.ones(3, np.float32))
    """,
    "a rule that lowers within another, after an import": """
        import jax._src.pallas.primitives as late
        table = mlir._platform_specific_lowerings["cpu"]
        show(lambda x: lax.bessel_i0e(x) * 3)
        import_another()
        mlir.register_lowering(lax.abs_p, late._reciprocal_lowering_rule, platform="cpu")
        show(lambda x: lax.bessel_i0e(x) * 3)
        show(lambda x: lax.bessel_i0e(x) * 2)
        del table[lax.abs_p]
        show(lambda x: lax.bessel_i0e(x) * 2)
    """,
    "a method, while a lazy module of jax waits": """
        import copy, importlib.util, sys
        spec = importlib.util.find_spec("jax.experimental.jet")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        stock = core.ShapedArray.__dict__["_invert"]
        show(lambda x: ~x * 3, np.int32(5))
        core.ShapedArray._invert = staticmethod(copy.copy)
        show(lambda x: ~x * 3, np.int32(5))
        core.ShapedArray._invert = stock
        show(lambda x: ~x * 3, np.int32(5))
    """,
    "a rule that a late module has registered, deleted": """
        import jax.experimental.sparse as sparse
        from jax.experimental.sparse import bcoo
        rule = ad.primitive_transposes[bcoo.bcoo_dot_general_p]
        indices = sparse.BCOO.fromdense(np.eye(3, dtype=np.float32)).indices
        def loss(y):
            return (sparse.BCOO((y, indices), shape=(3, 3)) @ (y * 2)).sum()
        for _ in range(3):
            show(lambda y: jax.grad(loss)(y), np.ones(3, np.float32))
        del ad.primitive_transposes[bcoo.bcoo_dot_general_p]
        show(lambda y: jax.grad(loss)(y), np.ones(3, np.float32))
        ad.primitive_transposes[bcoo.bcoo_dot_general_p] = rule
        show(lambda y: jax.grad(loss)(y) * 2, np.ones(3, np.float32))
    """,
    "a table by numbers": """
        from opt_einsum import paths
        letters = "abcdefghijklmnopq"
        subscripts = ",".join(map("".join, zip(letters, letters[1:]))) + "->aq"
        factors = [np.ones((2 + 7 * i % 5, 2 + 7 * (i + 1) % 5), np.float32) for i in range(16)]
        def product(*factors):
            return jax.numpy.einsum(subscripts, *factors, optimize="auto")
        def text():
            print(jax.make_jaxpr(lambda *factors: product(*factors))(*factors))
        text()
        text()
        paths._AUTO_CHOICES[16] = paths.branch_1
        text()
        del paths._AUTO_CHOICES[16]
        text()
    """,
    "a class that becomes abstract": """
        show(lambda x: lax.sin(x) * 2)
        mlir.LoweringRuleContext.__abstractmethods__ = frozenset({"no_method"})
        show(lambda x: lax.sin(x) * 2)
        mlir.LoweringRuleContext.__abstractmethods__ = frozenset()
        show(lambda x: lax.sin(x) * 3)
    """,
    "a rule for dead code that only hands on": """
        def drop(used_outs, eqn): return [False], None
        show(lambda x: lax.sin(x) * 3)
        partial_eval.dce_rules[lax.sin_p] = drop
        show(lambda x: lax.sin(x) * 3)
        show(lambda x: lax.sin(x) * 2)
        del partial_eval.dce_rules[lax.sin_p]
        show(lambda x: lax.sin(x) * 3)
        show(lambda x: lax.sin(x) * 2)
    """,
}
BEGINNING = """
import functools, itertools, sys, types
import numpy as np
import jax
from jax import lax
from jax._src import core
from jax._src.interpreters import ad, batching, mlir, partial_eval
from jax._src.lax import lax as internal
X = np.float32(0.5)
broadcast = internal.broadcast
if {is_patched}:
    internal.broadcast = lambda *args, **kwargs: broadcast(*args, **kwargs)
if {is_installed}:
    import jaxide
    jaxide.install()
def show(function, x=np.float32(0.5)):
    try:
        found = jax.jit(lambda x: function(x))(x)
        print(found.dtype, found)
    except Exception as error:
        print(type(error).__name__)
def import_another(numbers=itertools.count()):
    name = f"another_{{next(numbers)}}"
    sys.modules[name] = types.ModuleType(name)
show(lax.cos)
"""


def outputs(source: str, is_patched: bool = False) -> list[list[str]]:
    """What a script prints with stock jax, and with jaxide."""
    return [
        run_alone(
            BEGINNING.format(is_installed=is_installed, is_patched=is_patched)
            + textwrap.dedent(source)
        ).stdout.splitlines()
        for is_installed in (False, True)
    ]


@pytest.mark.covering(times=2, each_value=False)
@pytest.mark.parametrize("history", HISTORIES)
def test_changes_by_what_is_of_jax(history: str) -> None:
    stock, ours = outputs(HISTORIES[history])
    assert ours == stock
    assert len({*stock}) > 2


def test_what_is_made_of_a_function_that_was_patched_before_is_not_that_function() -> None:
    stock, ours = outputs(
        """
        def text():
            print(jax.make_jaxpr(lambda x: lax.full((2,), x[0]))(np.ones(3, np.float32)))
            show(lambda x: lax.full((2,), x))
        internal.broadcast = broadcast
        text()
        text()
        internal.broadcast = jax.jit(broadcast, static_argnums=1)
        text()
        internal.broadcast = broadcast
        text()
        internal.broadcast = types.FunctionType(broadcast.__code__, vars(internal), "broadcast")
        show(lambda x: lax.full((2,), x))
        internal.broadcast = broadcast
        text()
        """,
        is_patched=True,
    )
    assert ours == stock
    assert "TypeError" in stock


# What matters to nothing that is lowered, or is over.
HARMLESS = {
    "a name that numpy had": "np.float = float; np.product = np.prod",
    "a name for all modules": "builtins.ic = print; builtins.__IPYTHON__ = True",
    "a type of trees for files": """
        Named = collections.namedtuple("Named", "first second")
        jax.export.register_namedtuple_serialization(Named, serialized_name="Named")
        class Tree: ...
        jax.tree_util.register_pytree_node(Tree, lambda _: ((), None), lambda *_: Tree())
        jax.export.register_pytree_node_serialization(
            Tree, serialized_name="Tree", serialize_auxdata=lambda _: b"",
            deserialize_auxdata=lambda _: None)
    """,
    "a patch of a module that it imports": """
        with mock.patch("jax.scipy.stats.norm.logpdf", lambda x: x):
            run()
            assert _core.lowers_as_ever() is None
    """,
    "a rule of an interpreter": """
        from jax.experimental import jet
        jet.jet_rules[jax.lax.erf_inv_p] = lambda *_: 0
    """,
}


@pytest.mark.covering(times=2, each_value=False)
@pytest.mark.parametrize("what", HARMLESS)
def test_executables_are_shared_after(what: str) -> None:
    source = """
    import builtins, collections
    from unittest import mock
    import numpy as np
    import jax, jaxide
    from jaxide import _core
    jaxide.install()
    def run():
        jax.jit(lambda x: x + 5)(np.ones(3, np.float32))
    run()
    """
    after = "assert _core.lowers_as_ever() is not None and not _core.is_jax_altered()"
    run_alone("\n".join(map(textwrap.dedent, (source, HARMLESS[what], "run()", after))))
