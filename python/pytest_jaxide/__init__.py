"""Tests of the programs that functions are traced to.

A plugin of pytest, which finds it by itself. Two fixtures:

- ``jaxide_program`` fails when the program of a function is not the one that was stored;
- ``jaxide_retraces`` fails when functions are traced more often than they may be.

It is a package of its own, and imports jaxide only when a fixture is used: jax must not be imported
before a test suite has had time to configure it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

FOLDER = "__programs__"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that stores programs."""
    parser.getgroup("jaxide").addoption(
        "--jaxide-update",
        action="store_true",
        help="store the programs that jaxide_program is given, instead of comparing them",
    )


@pytest.fixture
def jaxide_program(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Traces a function and fails where its program is not the one that was stored.

    ``jaxide_program(fun, *args, **kwargs)`` traces ``fun`` as ``jaxide.trace`` does, compares the
    program with the one in ``__programs__/FILE/TEST.jaxide`` beside the test file, and returns it.
    Names of variables, places in the code and the values of captured arrays do not count. ``pytest
    --jaxide-update`` stores programs. A test that compares several calls it as
    ``jaxide_program.named("name")(fun, ...)``.
    """
    return ProgramCheck(request.node, request.config.getoption("--jaxide-update"))


class ProgramCheck:
    """What ``jaxide_program`` is."""

    def __init__(self, test: pytest.Item, update: bool, name: str = ""):
        self._test, self._update, self._name = test, update, name

    def named(self, name: str) -> ProgramCheck:
        """The same for another program of the test."""
        return ProgramCheck(self._test, self._update, name)

    @property
    def path(self) -> Path:
        """Where the program is stored."""
        name = f"{self._test.name}-{self._name}" if self._name else self._test.name
        file = re.sub(r"[^\w.,=+\[\]-]", "_", name) + ".jaxide"
        return self._test.path.parent / FOLDER / self._test.path.stem / file

    def __call__(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        import jaxide

        program = jaxide.trace(fun)(*args, **kwargs)
        path = self.path
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            program.save(path)
            return program
        if not path.is_file():
            pytest.fail(f"no program is stored in {path}: run pytest --jaxide-update", False)
        stored = jaxide.load(path)
        if stored.structural_hash != program.structural_hash:
            changes = str(stored.diff(program))
            pytest.fail(
                f"the program is not the one in {path} "
                f"(pytest --jaxide-update, if it is as it should be):\n{changes}",
                False,
            )
        return program


@pytest.fixture
def jaxide_retraces() -> Callable[..., AbstractContextManager[None]]:
    """Fails where functions are traced more often than they may be.

    ``with jaxide_retraces(limit=1):`` counts the traces of every ``jax.jit`` (jaxide is installed
    meanwhile); where a function was traced more than ``limit`` times from one place, the test fails
    and says why.
    """
    return _limited


@contextlib.contextmanager
def _limited(limit: int = 1) -> Iterator[None]:
    import jaxide
    from jaxide._jit.retraces import RETRACE_LOG

    def counts() -> dict[tuple[str, str], int]:
        return {(row.site, row.function): row.count for row in jaxide.retraces()}

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
        pytest.fail("\n\n".join(said), False)
