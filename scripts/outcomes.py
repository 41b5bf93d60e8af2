"""Outcomes of the tests of libraries, with stock jax and with jaxide, for `scripts/libraries`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# A test that is expected to fail, and does, has come to what its library says.
GOOD = ("passed", "xfailed")
# The worst of what the phases of a test say, or the parts of a test with parts.
WORST = ("error", "failed", "xfailed", "skipped", "passed")


class Run(NamedTuple):
    """What a process has said of the tests of a file."""

    outcomes: dict[str, str]
    # Whether a time limit has ended the process before the tests were over.
    is_cut: bool
    # The test in which the process was ended, or has died.
    unfinished: str | None
    # Whether jaxide's tracers were in use when all was run; None where it did not come to that.
    is_installed: bool | None
    # What pytest says of failures.
    says: dict[str, str]


def parse(lines: Iterable[str]) -> Run:
    """Reads the log that `suite_plugin` has written, and `suites` has closed."""
    outcomes: dict[str, str] = {}
    says: dict[str, str] = {}
    named: dict[str, str] = {}
    times: Counter[str] = Counter()
    unfinished = is_installed = None
    is_cut = False
    for line in lines:
        said = _line(line)
        if "begins" in said:
            name = without_addresses(said["begins"])
            times[name] += 1
            # Names that differ by addresses alone are numbered.
            unfinished = name if times[name] == 1 else f"{name} #{times[name]}"
            named[said["begins"]] = unfinished
        elif "test" in said:
            name = named.get(said["test"], said["test"])
            outcomes[name] = min(outcomes.get(name, "passed"), said["outcome"], key=WORST.index)
            if said["says"]:
                says[name] = said["says"]
        elif "ends" in said:
            unfinished, is_installed = None, said["installed"]
        elif "cut" in said:
            is_cut = is_installed is None
    if unfinished is not None:
        outcomes.pop(unfinished, None)
    return Run(outcomes, is_cut, unfinished, is_installed, says)


def _line(line: str) -> dict[str, Any]:
    """A line of a log; empty where the process was ended while it wrote the line."""
    try:
        said: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return said


def without_addresses(test: str) -> str:
    """The name of a test without the addresses of objects, which differ by process."""
    return re.sub(r"0x[0-9a-f]{6,}", "0x", test)


class Compared(NamedTuple):
    """The tests of a file with stock jax and with jaxide."""

    run: int
    stock: int
    ours: int
    worse: dict[str, tuple[str, str]]


def compare(stock: Run, ours: Run) -> Compared:
    """Compares the two runs of a file.

    Where a time limit has ended one, only tests that both have finished count. Otherwise a test
    that is missing with jaxide is worse: the process died.
    """
    names = stock.outcomes.keys() | ours.outcomes.keys()
    if stock.is_cut or ours.is_cut:
        names = stock.outcomes.keys() & ours.outcomes.keys()
    both = {
        name: (stock.outcomes.get(name, "missing"), ours.outcomes.get(name, "missing"))
        for name in sorted(names)
    }
    ran = [pair for pair in both.values() if pair[0] not in ("skipped", "missing")]
    return Compared(
        run=len(ran),
        stock=sum(before in GOOD for before, _ in ran),
        ours=sum(after in GOOD for _, after in ran),
        worse={name: pair for name, pair in both.items() if _is_worse(*pair)},
    )


def _is_worse(stock: str, ours: str) -> bool:
    """Whether a test fails with jaxide that does not fail with stock jax."""
    if ours in ("failed", "error", "missing"):
        return stock in (*GOOD, "skipped", "missing")
    return ours == "skipped" and stock in GOOD


def result(
    file: str, first: Compared, again: Compared | None, *, jaxide: str, is_cut: bool, is_idle: bool
) -> dict[str, Any]:
    """What a file has come to, to be kept: in its run and, where tests are worse, run `again`.

    A test that is worse in the first run of its file and not in the second is flaky. A file is
    `idle` after which jax's own tracers were in use although jaxide was installed.
    """
    worse, flaky = {}, {}
    for test, pair in first.worse.items():
        (worse if again and test in again.worse else flaky)[test] = pair
    return {
        "files": [file],
        "jaxide": jaxide,
        "cut": [file] if is_cut else [],
        "idle": [file] if is_idle else [],
        "run": first.run,
        "stock": first.stock,
        "ours": first.ours,
        "worse": worse,
        "flaky": flaky,
    }


def total(files: Sequence[str], results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a suite has come to: its files, and the results of those that were run."""

    def together(key: str) -> list[str]:
        return sorted(file for found in results for file in found[key])

    def all_of(key: str) -> dict[str, Any]:
        return {test: pair for found in results for test, pair in found[key].items()}

    done = together("files")
    return {
        "files": len(done),
        "all": len(files),
        "left": sorted(set(files) - set(done)),
        "cut": together("cut"),
        "idle": together("idle"),
        **{key: sum(found[key] for found in results) for key in ("run", "stock", "ours")},
        "worse": all_of("worse"),
        "flaky": all_of("flaky"),
    }
