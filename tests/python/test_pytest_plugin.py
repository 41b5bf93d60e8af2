"""The plugin of pytest, in test suites of its users."""

from __future__ import annotations

import os
from pathlib import Path

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
    changed.stdout.fnmatch_lines(
        [
            "*another program: *1 changed*",
            "*2.0*",
            "*3.0*",
            "*test_step.jaxide; pytest --jaxide-up*",
        ]
    )


NAMES = """
import pytest
import jax.numpy as jnp

class TestOne:
    def test_it(self, jaxide_program):
        jaxide_program(lambda x: x + 1, 1.0)

class TestTwo:
    @pytest.mark.parametrize("text", ["a/b", "a_b", "\u00e4", "x" * 300])
    def test_it(self, jaxide_program, text):
        jaxide_program(lambda x: x * float(len(text)), 1.0)

    def test_twice(self, jaxide_program):
        jaxide_program(lambda x: x + 1, 1.0)
        jaxide_program.named("own")(lambda x: x + 2, 1.0)
        jaxide_program(lambda x: x + 3, 1.0)

    def test_named_twice(self, jaxide_program):
        jaxide_program.named("own")(lambda x: x + 2, 1.0)
        jaxide_program.named("Own")(lambda x: x + 2, 1.0)
"""


def test_each_program_has_a_file(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=NAMES)
    for options in (("--jaxide-update",), ()):
        result = pytester.runpytest_inprocess(*options)
        result.assert_outcomes(passed=5, failed=2)
        result.stdout.fnmatch_lines_random(
            [
                "*has compared a program without a name already*",
                "*compared a program 'Own' already*",
            ]
        )
    stored = {path.name for path in pytester.path.glob("__programs__/test_it/*")}
    assert {"TestOne-test_it.jaxide", "TestTwo-test_it[a_b].jaxide"} <= stored
    assert len(stored) == 8 and max(map(len, stored)) < 200


MODELS = """
import pytest
import user_models

@pytest.mark.parametrize("name", user_models.MODELS)
def test_step(jaxide_program, name):
    fun, args = user_models.MODELS[name]()
    jaxide_program(fun, *args)

def test_callback(jaxide_program):
    import jax
    jaxide_program(lambda x: jax.pure_callback(lambda x: x, x, x), 1.0)
"""


def test_programs_of_models(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """No code is stored, so everything can be."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # numpyro goes through sets of names
    # What makes the models is compiled once.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(pytester.path / "compiled"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    pytester.makepyfile(test_it=MODELS)
    for options in (("--jaxide-update",), ()):
        done = pytester.runpytest_subprocess("-p", "no:hypothesispytest", *options)
        done.assert_outcomes(passed=7)


LONG = """
import jax.numpy as jnp

def test_long(jaxide_program):
    def long(x):
        for _ in range({count}):
            x = {body}
        return x
    jaxide_program(long, 1.0)
"""


@pytest.mark.parametrize("ci", ["", "true"])
def test_a_failure_is_a_screenful(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str
) -> None:
    # Where CI is set, pytest gives the whole message in the list of failures too.
    monkeypatch.setenv("CI", ci)
    pytester.makepyfile(test_it=LONG.format(count=200, body="jnp.sin(x)"))
    pytester.runpytest_inprocess("--jaxide-update").assert_outcomes(passed=1)
    pytester.makepyfile(test_it=LONG.format(count=300, body="jnp.cos(x) * (_ + 2)"))
    result = pytester.runpytest_inprocess("--tb=short")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*another program: *", "*... and * lines more"])
    assert len(result.stdout.lines) < 60


def test_a_stored_program_that_cannot_be_read(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=LONG.format(count=2, body="jnp.sin(x)"))
    pytester.runpytest_inprocess("--jaxide-update").assert_outcomes(passed=1)
    (path,) = pytester.path.glob("__programs__/test_it/*")
    path.write_bytes(b"nothing")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the program in *test_long.jaxide cannot be read: *"])


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

def test_functions_of_jax_do_not_count(jaxide_retraces):
    with jaxide_retraces():
        for size in range(3):
            jnp.ones(size) + jnp.linalg.norm(jnp.arange(float(size + 1)))

def test_two_are_allowed(jaxide_retraces):
    step = jax.jit(lambda x: x * 2)
    with jaxide_retraces(limit=2):
        for size in (1, 2, 1):
            step(jnp.ones(size))
"""


def test_functions_that_are_traced_again(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=RETRACES)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*traced 3 times (limit 2)*", "*shape of x: (1,) -> (2,)*"])


def test_the_plugin_does_not_import_jax(pytester: pytest.Pytester) -> None:
    """A test suite configures jax before it is imported."""
    pytester.makeconftest("import sys; assert 'jax' not in sys.modules")
    pytester.makepyfile(test_it="def test_nothing(): pass")
    pytester.runpytest_subprocess("-p", "no:hypothesispytest").assert_outcomes(passed=1)
