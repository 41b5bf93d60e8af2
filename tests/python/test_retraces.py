"""The ledger: what was traced again, why, and where its program is another one."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import jaxide
from alone import run_alone
from jaxide._jit.retraces import MAX_SITES, RetraceLog

X = np.arange(4.0, dtype=np.float32)


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    jaxide.clear_caches()
    yield
    jaxide.clear_caches()


def last() -> jaxide.Explanation:
    explanation = jaxide.explain()
    assert explanation is not None
    return explanation


def kinds(explanation: jaxide.Explanation) -> list[str]:
    return [change.kind for change in explanation.changes]


def test_a_loop_has_one_row() -> None:
    for _ in range(5):
        jaxide.jit(lambda x: jnp.sin(x) * 2)(X)
    (row,) = jaxide.retraces()
    assert (row.count, row.same, row.shared) == (5, 4, 4)
    assert row.reasons == {"first call": 1, "new function object": 4}
    assert row.tracing > 0 and row.compiling > 0 and row.seconds >= row.tracing
    assert __file__ in row.site and "test_a_loop_has_one_row" in row.site
    assert "<lambda>" in row.function and __file__ in row.function


def test_only_outermost_traces_of_installed_or_own_jits() -> None:
    jax.jit(lambda x: x + 1)(X)
    assert jaxide.retraces() == ()
    inner = jax.jit(lambda x: x * 3)
    with jaxide.accelerated():
        jax.jit(lambda x: inner(x) + 1)(X)
    (row,) = jaxide.retraces()
    assert row.count == 1


def new(body: Callable[..., Any], **options: Any) -> Any:
    return jaxide.jit(body, **options)


def call(jitted: Any, *args: Any, **kwargs: Any) -> jaxide.Explanation:
    """All calls are at one place."""
    jitted(*args, **kwargs)
    return last()


def test_changes_of_arguments() -> None:
    f = jaxide.jit(lambda x, y=0: (x, y))
    assert kinds(call(f, X)) == ["first call"]
    changes = call(f, X[:2]).changes
    assert changes == (jaxide.Change("shape", "x", "(4,)", "(2,)"),)
    changes = call(f, X[:2].astype(np.int32)).changes
    assert changes == (jaxide.Change("dtype", "x", "float32", "int32"),)
    assert kinds(call(f, X, 1)) == ["argument structure", "shape", "dtype"]
    assert call(f, X, np.int32(1)).changes == (jaxide.Change("weak_type", "y", "True", "False"),)
    assert kinds(call(f, [X], np.int32(1)))[0] == "argument structure"


def test_changes_of_static_arguments() -> None:
    f = jaxide.jit(lambda x, n, *, shift: x * n + shift, static_argnums=1, static_argnames="shift")
    call(f, X, 2, shift=1)
    explanation = call(f, X, 3, shift=1)
    assert explanation.changes == (jaxide.Change("static value", "n", "2", "3"),)
    assert any("traced" in advice for advice in explanation.advice)
    assert call(f, X, 3, shift=0).changes == (jaxide.Change("static value", "shift", "1", "0"),)


def test_changes_of_configuration() -> None:
    f = jaxide.jit(lambda x: x @ x)
    call(f, X)
    with jax.default_matmul_precision("highest"):
        (change,) = call(f, X).changes
    assert change == jaxide.Change("config", "jax_default_matmul_precision", "None", "highest")


def test_new_jits_and_cleared_caches() -> None:
    def f(x: Any) -> Any:
        return x + 3

    # jax finds the second by the function, where the options are the same.
    found = [kinds(call(jaxide.jit(f, donate_argnums=d), X)) for d in ((), (0,))]
    assert found == [["first call"], ["new jit"]]
    jitted = jaxide.jit(lambda x: x + 4)
    for _ in range(2):
        explanation = call(jitted, X)
        jitted.clear_cache()
    assert kinds(explanation) == ["cache cleared"]


def test_a_captured_value_is_named() -> None:
    def make(rate: float) -> Callable[..., Any]:
        def step(x: Any) -> Any:
            y = jnp.sin(x)
            return y * rate

        return step

    for rate in (0.5, 0.5):
        explanation = call(new(make(rate)), X)
    assert explanation.known and explanation.differences == ()
    explanation = call(new(make(0.25)), X)
    (difference,) = explanation.differences
    assert (difference.kind, difference.primitive) == ("literal", "mul")
    assert difference.old.startswith("0.5:f32[]") and difference.new.startswith("0.25:f32[]")
    line = step_line(make(0.0))
    assert difference.source is not None and f"{__file__}:{line}" in difference.source
    assert any("pass it as an argument" in advice for advice in explanation.advice)
    assert f"{difference.old} -> {difference.new}" in str(explanation)


def step_line(step: Callable[..., Any]) -> int:
    return step.__code__.co_firstlineno + 2


DIFFERENCES: dict[str, tuple[Callable[[bool], Callable[..., Any]], str]] = {
    "primitive": (lambda new: lambda x: jnp.sin(x) if new else jnp.cos(x), "primitive"),
    "param": (lambda new: lambda x: jnp.sum(x.reshape(2, 2), int(new)), "param"),
    "operand": (lambda new: lambda x: jnp.sin(x) * (x if new else 2.0), "operand"),
    "length": (lambda new: lambda x: (x * 2) + 1 if new else x * 2, "added"),
    "result": (lambda new: lambda x: (x * 2, x) if new else (x * 2, x * 2), "removed"),
    "nested": (
        lambda new: lambda x: jax.lax.scan(lambda c, y: (c + y * (3 if new else 2), c), 0.0, x),
        "literal",
    ),
    "callback": (
        lambda new: lambda x: jax.pure_callback(np.sin if new else np.cos, jax.typeof(x), x),
        "param",
    ),
}


@pytest.mark.parametrize(("make", "kind"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_differences(make: Callable[[bool], Callable[..., Any]], kind: str) -> None:
    call(new(make(False)), X)
    explanation = call(new(make(True)), X)
    assert explanation.known is False
    assert explanation.differences and explanation.differences[0].kind.startswith(kind)
    if explanation.differences[0].equation is not None:
        assert __file__ in str(explanation.differences[0].source)


def test_the_nearest_program_is_compared() -> None:
    make = lambda a, b: lambda x: x * a + b
    for a, b in ((1.5, 2.5), (3.5, 4.5)):
        call(new(make(a, b)), X)
    (difference,) = call(new(make(1.5, 4.5)), X).differences
    assert difference.kind == "literal"


def test_explanations_of_functions() -> None:
    def f(x: Any) -> Any:
        return x * 2

    def g(x: Any) -> Any:
        return x * 3

    jitted = jaxide.jit(f)
    jitted(X)
    jaxide.jit(g)(X)
    of_f, of_g = jaxide.explain(f), jaxide.explain(g)
    assert of_f is not None and "f at" in of_f.function
    assert of_g is not None and "g at" in of_g.function
    assert jitted.explain() == of_f
    assert jaxide.jit(lambda x: x).explain() is None
    assert jaxide.explain(lambda x: x) is None


def test_programs_that_are_left_to_jax_have_a_reason() -> None:
    ref = jax.new_ref(jnp.zeros(4))
    explanation = call(new(lambda x: ref[...] + x), X)
    assert explanation.reason is not None and "plain array" in explanation.reason


def test_it_is_readable() -> None:
    for _ in range(2):
        jaxide.jit(lambda x: x - 1)(X)
    text = str(jaxide.retraces())
    assert "test_retraces.py" in text and "new function object" in text
    out = io.StringIO()
    Console(file=out, width=300).print(jaxide.retraces())
    assert "shared" in out.getvalue()
    assert "the program is one that is known" in str(last())


def test_sites_are_bounded() -> None:
    jaxide.jit(lambda x: x + 5)(X)
    ledger = RetraceLog()
    from jaxide import _compat

    jaxpr = jax.make_jaxpr(lambda x: x)(X)
    call_ = _compat.JitCall(
        test_sites_are_bounded, "", None, jaxpr, (), (), jax.tree.structure(0), {}, {}, None
    )
    for i in range(MAX_SITES + 10):
        ledger.traced(call_._replace(place=str(i)), 0.0)
    assert len(ledger.retraces()) == MAX_SITES


def test_a_value_whose_repr_raises() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no text")

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return self is other

    f = jaxide.jit(lambda x, n: x, static_argnums=1)
    call(f, X, Odd())
    assert kinds(call(f, X, 3)) == ["static value"]


def test_the_log_says_what_is_traced_again(caplog: pytest.LogCaptureFixture) -> None:
    step = jaxide.jit(lambda x: jnp.ones(len(x)) * x)
    with caplog.at_level("INFO", logger="jaxide.retraces"):
        for size in (1, 2, 2, 3):
            step(jnp.zeros(size))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2, said
    assert "<lambda> at " in said[0] and "trace 2: shape of x: (1,) -> (2,)" in said[0]
    assert "trace 3: shape of x: (2,) -> (3,)" in said[1]
    # Nobody asks any more, whatever another test has asked for.
    with caplog.at_level("WARNING", logger="jaxide.retraces"):
        step(jnp.zeros(4))
    assert len(caplog.records) == 2


LOGGED = """
import jax.numpy as jnp
import jaxide
step = jaxide.jit(lambda x: x * 2)
step(jnp.zeros(1)), step(jnp.zeros(2))
"""


def test_the_environment_has_the_log_printed() -> None:
    done = run_alone(LOGGED, JAXIDE_LOG="retraces")
    assert "jaxide.retraces: <lambda> at <string>:4" in done.stderr
    assert run_alone(LOGGED, JAXIDE_LOG="").stderr == ""
    said = run_alone(LOGGED, JAXIDE_LOG="no").stderr
    assert "JAXIDE_LOG is a list of loggers (retraces), got 'no'" in said


def test_a_known_program_that_is_compiled_anew_is_no_contradiction() -> None:
    @jaxide.jit
    def scaled(x: Any) -> Any:
        return x * 2

    scaled(jnp.ones(3))
    with jax.default_matmul_precision("float32"):
        scaled(jnp.ones(3))
    said = jaxide.explain(scaled)
    assert said is not None and said.known
    # Called from elsewhere, the function is not called for the first time.
    assert [change.kind for change in said.changes] == ["config"]
    assert ("nothing was compiled" in str(said)) == (not said.compiled)
    assert ("compiled anew" in str(said)) == said.compiled


def test_the_log_says_what_is_traced_again_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    @jaxide.jit
    def scaled(x: Any) -> Any:
        return x * 2

    with caplog.at_level("INFO", logger="jaxide.retraces"):
        scaled(jnp.ones(3))
        assert not caplog.messages
        scaled(jnp.ones(4))
    (said,) = caplog.messages
    assert "shape of x: (3,) -> (4,)" in said


def test_a_literal_of_another_type_is_no_value_to_pass() -> None:
    @jaxide.jit
    def scaled(x: Any) -> Any:
        return x * 2

    for x in (jnp.ones(3), jnp.ones(3, int)):
        scaled(x)
    said = jaxide.explain(scaled)
    assert said is not None
    assert any(each.kind == "literal" for each in said.differences)
    assert not any("built into the program" in advice for advice in said.advice)
