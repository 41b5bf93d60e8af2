"""Executables where somebody changes jax, or what jax lowers with: stock jax, which lowers each new
function, is the oracle."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import subprocess
import sys
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
from jax._src import compiler, core, dispatch
from jax._src.interpreters import mlir, pxla
from jax._src.lax import lax as lax_internal
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import hlo

import jaxide
from compilations import Compiled
from jaxide import _core, _executables, _jits

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


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_what_was_changed_while_it_was_lowered_is_not_shared(is_looked_at: bool) -> None:
    """Changed and put back before anybody could see it."""

    def compiled(jit: Any) -> list[Any]:
        exp, seen = lax_internal.exp, list[str]()

        def handle(record: logging.LogRecord) -> bool:
            text = record.getMessage()
            if text.startswith("Compiling") and not seen:
                seen.append(text)
                lax_internal.exp = lambda x, accuracy=None: exp(x) * 7
                if is_looked_at:
                    _core.world_number()
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
    executables = _jits.EXECUTABLES
    jit = functools.partial(jaxide.jit, captured="constants")
    for value in range(3 * _executables.MAX_LOWERINGS):
        jit(lambda x, value=jnp.full(3, float(value)): x * value)(np.ones(3, np.float32))
    gc.collect()
    assert len(executables) == 1
    at_least = _executables.MAX_LOWERINGS * _executables.MIN_BYTES
    assert at_least <= executables.num_bytes < 1.2 * at_least


def test_a_package_that_jax_imports_from_is_no_change(tmp_path: Path) -> None:
    """A function of `flatbuffers` is in a module of jax's where that is installed."""
    package = tmp_path / "flatbuffers"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "compat.py").write_text("def import_numpy():\n    import numpy\n    return numpy\n")
    code = """
    import jax, jaxide
    from jaxide import _core
    assert _core.lowers_as_ever() is not None
    from flatbuffers.compat import import_numpy
    import jax._src.export as module
    module.import_numpy = import_numpy
    jaxide.make_jaxpr(lambda x: x)(1.0)
    import jax.export
    assert _core.lowers_as_ever() is not None
    """
    paths = [str(tmp_path), *filter(None, sys.path)]
    environment = {"PYTHONPATH": ":".join(paths), "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, check=True)
