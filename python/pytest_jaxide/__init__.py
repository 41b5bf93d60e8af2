"""Tests of the programs that functions are traced to.

A plugin of pytest, which finds it by itself. Two fixtures:

- ``jaxide_program`` fails when the program of a function is not the one that was stored;
- ``jaxide_retraces`` fails when functions are traced more often than they may be.

It is a package of its own, and imports jaxide only when a fixture is used: jax must not be imported
before a test suite has had time to configure it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

FOLDER = "__programs__"
# Of what a failure says, and of a file's name.
MAX_LINES = 30
MAX_NAME = 150
# The text and the hash are all that is compared, so no code is stored, nor what is made of it.
CODE = ("callbacks", "rules", "trees")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that stores programs."""
    parser.getgroup("jaxide").addoption(
        "--jaxide-update",
        action="store_true",
        help="store the programs that jaxide_program is given, instead of comparing them",
    )


class Failure(pytest.fail.Exception):  # type: ignore[misc, name-defined]
    """A failure of many lines, of which the list of failures at the end has the first only."""

    def __init__(self, message: str):
        super().__init__(message, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keeps the list of failures short: where ``CI`` is set, pytest does not cut what is there."""
    report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    if call.excinfo is not None and call.excinfo.errisinstance(Failure) and crash is not None:
        crash.message = crash.message.partition("\n")[0]
    return report


@pytest.fixture
def jaxide_program(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Traces a function and fails where its program is not the one that was stored.

    ``jaxide_program(fun, *args, **kwargs)`` traces ``fun`` as ``jaxide.trace`` does, compares the
    program with the one in ``__programs__/FILE/TEST.jaxide`` beside the test file, and returns it.
    Names of variables, places in the code and the values of captured arrays do not count. ``pytest
    --jaxide-update`` stores programs. A test that compares several calls it as
    ``jaxide_program.named("name")(fun, ...)``.

    Example:
      >>> def test_step(jaxide_program):
      ...     jaxide_program(step, params, batch)
    """
    return ProgramCheck(request.node, request.config.getoption("--jaxide-update"), "", {})


class ProgramCheck:
    """What ``jaxide_program`` is."""

    def __init__(self, test: pytest.Item, update: bool, name: str, checked: dict[str, str]):
        self._test, self._update, self._name = test, update, name
        # The names of the programs that the test has compared so far, by those of their files.
        self._checked = checked

    def named(self, name: str) -> ProgramCheck:
        """The same for another program of the test."""
        return ProgramCheck(self._test, self._update, name, self._checked)

    @property
    def path(self) -> Path:
        """Where the program is stored: by the classes, the name and the parameters of the test."""
        parts = self._test.nodeid.split("::", 1)[1].replace("::", "-")
        name = f"{parts}-{self._name}" if self._name else parts
        file = re.sub(r"[^\w.,=+\[\]-]", "_", name, flags=re.ASCII)
        if file != name or len(file) > MAX_NAME:
            # Two names must not be one.
            file = f"{file[:MAX_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        return self._test.path.parent / FOLDER / self._test.path.stem / f"{file}.jaxide"

    def __call__(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        import jaxide

        path = self.path
        # Some file systems do not tell the case.
        if path.name.lower() in self._checked:
            name = f"a program {self._name!r}" if self._name else "a program without a name"
            pytest.fail(
                f"the test has compared {name} already: another one needs a name of its own, "
                'jaxide_program.named("name")(fun, ...)',
                False,
            )
        self._checked[path.name.lower()] = self._name
        program = jaxide.trace(fun)(*args, **kwargs)
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            program.save(path, drop=CODE)
            return program
        if not path.is_file():
            pytest.fail(f"no program is stored in {path}: run pytest --jaxide-update", False)
        try:
            stored = jaxide.load(path)
        except (jaxide.StorageError, OSError) as error:
            pytest.fail(f"the program in {path} cannot be read: {error}", False)
        if stored.structural_hash != program.structural_hash:
            raise Failure(_difference(stored.diff(program), path))
        return program


def _difference(diff: Any, path: Path) -> str:
    """What is different, in a screenful."""
    lines = str(diff).splitlines()
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [f"... and {len(lines) - MAX_LINES:,} lines more"]
    return "\n".join(
        [
            f"another program: {lines[0]}",
            *lines[1:],
            f"stored in {path}; pytest --jaxide-update, if it is as it should be",
        ]
    )


@pytest.fixture
def jaxide_retraces() -> Callable[..., AbstractContextManager[None]]:
    """Fails where functions are traced more often than they may be.

    ``with jaxide_retraces(limit=1):`` counts the traces of every ``jax.jit`` (jaxide is installed
    meanwhile); where a function was traced more than ``limit`` times from one place, the test fails
    and says why. jax's own functions do not count: ``jnp.ones`` of three shapes is traced three
    times.
    """
    return _limited


@contextlib.contextmanager
def _limited(limit: int = 1) -> Iterator[None]:
    import jaxide
    from jaxide._jit.retraces import RETRACE_LOG

    def counts() -> dict[tuple[str, str], int]:
        rows = (row for row in jaxide.retraces() if not row.is_of_jax)
        return {(row.site, row.function): row.count for row in rows}

    with jaxide.accelerated():
        before = counts()
        yield
        more = {place: count - before.get(place, 0) for place, count in counts().items()}
    too_often = {place: count for place, count in more.items() if count > limit}
    if too_often:
        said = [
            f"traced {count} times (limit {limit}), the last time:\n{RETRACE_LOG.explain(function)}"
            for (_, function), count in too_often.items()
        ]
        raise Failure("\n\n".join(said))
