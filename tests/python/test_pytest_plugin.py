"""The plugin of pytest, in test suites of its users."""

from __future__ import annotations

import jax.extend
import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """Has jax import what it imports late: a test suite that runs in this process takes its own
    imports back, and jax would not be as it was."""
    jax.jit(lambda x: x + 1)(1.0)


PROGRAM = """
import jax.numpy as jnp

def test_step(jaxide_program):
    program = jaxide_program(lambda x: {body}, jnp.ones(3))
    assert len(program) == 1

def test_several(jaxide_program):
    jaxide_program.named("one")(lambda x: x + 1, 1.0)
    jaxide_program.named("two")(lambda x: x - 1, 1.0)
"""


def test_a_program_that_changes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=PROGRAM.format(body="x * 2"))
    missing = pytester.runpytest_inprocess()
    missing.assert_outcomes(failed=2)
    missing.stdout.fnmatch_lines(["*no program is stored in*--jaxide-update*"])
    pytester.runpytest_inprocess("--jaxide-update").assert_outcomes(passed=2)
    stored = {path.name for path in pytester.path.glob("__programs__/test_it/*")}
    assert stored == {"test_step.jaxide", "test_several-one.jaxide", "test_several-two.jaxide"}
    pytester.runpytest_inprocess().assert_outcomes(passed=2)
    # The same program otherwise written.
    pytester.makepyfile(test_it=PROGRAM.format(body="(\n lambda y: y * 2)(x)"))
    pytester.runpytest_inprocess().assert_outcomes(passed=2)
    pytester.makepyfile(test_it=PROGRAM.format(body="x * 3"))
    changed = pytester.runpytest_inprocess()
    changed.assert_outcomes(passed=1, failed=1)
    changed.stdout.fnmatch_lines(["*is not the one in*test_step.jaxide*", "*2.0*", "*3.0*"])


RETRACES = """
import jax
import jax.numpy as jnp

def test_once(jaxide_retraces):
    step = jax.jit(lambda x: x * 2)
    with jaxide_retraces():
        for _ in range(3):
            step(jnp.ones(3))

def test_shapes(jaxide_retraces):
    step = jax.jit(lambda x: x * 2)
    with jaxide_retraces(limit=2):
        for size in range(3):
            step(jnp.ones(size))

def test_two_are_allowed(jaxide_retraces):
    step = jax.jit(lambda x: x * 2)
    with jaxide_retraces(limit=2):
        for size in (1, 2, 1):
            step(jnp.ones(size))
"""


def test_functions_that_are_traced_again(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=RETRACES)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*traced 3 times (limit 2)*", "*shape of x: (1,) -> (2,)*"])


def test_the_plugin_does_not_import_jax(pytester: pytest.Pytester) -> None:
    """A test suite configures jax before it is imported."""
    pytester.makeconftest("import sys; assert 'jax' not in sys.modules")
    pytester.makepyfile(test_it="def test_nothing(): pass")
    pytester.runpytest_subprocess("-p", "no:hypothesispytest").assert_outcomes(passed=1)
