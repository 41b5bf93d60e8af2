"""The pytest plugin of `scripts/libraries`: installs jaxide, and writes each outcome as it comes.

`JAXIDE_TEST_SUITE_LOG` names the file. jaxide is installed where `JAXIDE_TEST_SUITE_INSTALL` is 1.
A line is written when a test begins, too: where the process dies, the log says in which test. Tests
run in an order of chance, always the same, where `JAXIDE_TEST_SUITE_SAMPLE` is 1.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from typing import Any

import outcomes
import pytest

# So much of what pytest says of a failure is kept, from the end.
KEPT = 4000


def _write(**line: Any) -> None:
    with open(os.environ["JAXIDE_TEST_SUITE_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


def _tracer_type() -> type:
    """The type of the tracers that jax makes now."""
    import jax

    seen: list[type] = []
    jax.make_jaxpr(lambda x: seen.append(type(x)))(0.0)
    return seen[0]


STOCK = pytest.StashKey[type]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[STOCK] = _tracer_type()
    if os.environ.get("JAXIDE_TEST_SUITE_INSTALL") == "1":
        import jaxide

        jaxide.install()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("JAXIDE_TEST_SUITE_SAMPLE") != "1":
        return
    times: Counter[str] = Counter()
    places = {}
    for item in items:
        name = outcomes.without_addresses(item.nodeid)
        times[name] += 1
        places[item] = hashlib.sha256(f"{name} {times[name]}".encode()).digest()
    items.sort(key=places.__getitem__)


def pytest_runtest_logstart(nodeid: str, location: Any) -> None:
    _write(begins=nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(test=f"{report.nodeid} (collection)", outcome="error", says=_said(report))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    outcome = _outcome(report)
    if outcome:
        says = _said(report) if outcome in ("failed", "error") else ""
        _write(test=report.nodeid, outcome=outcome, says=says, seconds=report.duration)


def _outcome(report: pytest.TestReport) -> str | None:
    """What a phase of a test says of the test; None where it says nothing."""
    if report.failed:
        return "failed" if report.when == "call" else "error"
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "passed"
    if report.skipped:
        return "skipped"
    return "passed" if report.when == "call" else None


def _said(report: pytest.CollectReport | pytest.TestReport) -> str:
    return str(report.longreprtext)[-KEPT:]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    is_installed = _tracer_type() is not session.config.stash[STOCK]
    _write(ends=int(exitstatus), installed=is_installed)
