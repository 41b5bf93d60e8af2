"""The short run covers what it has to, and leaves nothing out that is asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import covering

pytest_plugins = ["pytester"]

HERE = Path(__file__).parent

TESTS = """
import pytest

NUMBERS = [pytest.param(n, id=f"{n % 3}-{n}") for n in range(12)]

@pytest.mark.covering(times=2)
@pytest.mark.parametrize("x", range(5))
@pytest.mark.parametrize("y", "abcd")
def test_two(x, y):
    pass

@pytest.mark.covering(kinds=lambda n: [n[0]])
@pytest.mark.parametrize("n", NUMBERS)
def test_one(n):
    pass

@pytest.mark.covering(kinds=lambda n: [n[0]])
@pytest.mark.parametrize("n", NUMBERS)
def test_other(n):
    pass

@pytest.mark.covering(kinds=lambda n: [n[0]], each_value=False)
@pytest.mark.parametrize("number", NUMBERS)
def test_kinds(number):
    pass

@pytest.mark.covering(together=True)
@pytest.mark.parametrize("x", range(5))
@pytest.mark.parametrize("y", "ab")
def test_first(x, y):
    pass

@pytest.mark.covering(together=True)
@pytest.mark.parametrize("x", range(5))
@pytest.mark.parametrize("y", "ab")
def test_second(x, y):
    pass

@pytest.mark.parametrize("x", range(7))
def test_unmarked(x):
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A test suite with the configuration of this one."""
    paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest((HERE / "conftest.py").read_text())
    pytester.makeini("[pytest]\nmarkers = covering: as here")
    pytester.makepyfile(test_it=TESTS)
    return pytester


def selected(suite: pytest.Pytester, *arguments: str) -> list[list[str]]:
    """The functions and values of the tests that a run takes."""
    made = suite.runpytest_subprocess("--collect-only", "-q", "-o", "addopts=", *arguments)
    assert made.ret == 0
    ids = [line.partition("::")[2] for line in made.outlines if "::" in line]
    return [id.rstrip("]").replace("[", "-").split("-") for id in ids]


ALL = 20 + 3 * 12 + 2 * 10 + 7


def test_the_short_run_covers(suite: pytest.Pytester) -> None:
    found = selected(suite)
    assert len(found) < ALL / 2
    of = lambda *names: [values for name, *values in found if name in names]
    two = of("test_two")
    assert len(two) <= 12
    for place, values in enumerate(["abcd", "01234"]):
        for value in values:
            assert sum(found[place] == value for found in two) >= 2
    assert sorted(int(n) for _, n in of("test_one", "test_other")) == list(range(12))
    for name in ("test_one", "test_other", "test_kinds"):
        assert {kind for kind, _ in of(name)} == set("012")
    assert len(of("test_kinds")) == 3
    together = of("test_first", "test_second")
    assert {y for y, _ in together} == set("ab") and {x for _, x in together} == set("01234")
    assert of("test_first") and of("test_second") and len(together) <= 7
    assert len(of("test_unmarked")) == 7


def test_what_is_asked_for_runs(suite: pytest.Pytester) -> None:
    assert len(selected(suite, "--long")) == ALL
    assert len(selected(suite, "test_it.py::test_two")) == 20
    named = [f"test_it.py::test_kinds[0-{number}]" for number in range(0, 12, 3)]
    assert len(selected(suite, *named)) == 4
    assert len(selected(suite, "-k", "test_kinds and 1-")) > 3


def test_a_new_value_is_covered() -> None:
    def candidates(count: int) -> list[covering.Candidate]:
        made = []
        for x in range(count):
            for y in "abc":
                demands = covering.Counter({("x", x): 1, ("y", y): 1})
                made.append(covering.Candidate(f"test[{x}-{y}]", demands, frozenset()))
        return made

    before, after = (list(covering.cover(candidates(count))) for count in (6, 7))
    assert len(before) == 6 and len(after) == 7
    assert {demand for c in after for demand in c.demands} == {
        *(("x", x) for x in range(7)),
        *(("y", y) for y in "abc"),
    }
    assert list(covering.cover(reversed(candidates(7)))) == after


def test_pairs_come_first() -> None:
    """Of combinations that cover as much, the one with new pairs of values is taken."""
    made = []
    for x in range(6):
        for y in range(2):
            for z in range(3):
                values = [("x", x), ("y", y), ("z", z)]
                pairs = frozenset({(values[0], values[1]), (values[1], values[2])})
                demands = covering.Counter(dict.fromkeys(values, 2))
                made.append(covering.Candidate(f"test[{x}-{y}-{z}]", demands, pairs))
    chosen = list(covering.cover(made))
    assert len(chosen) <= 14
    assert len({pair for candidate in chosen for pair in candidate.pairs}) >= 16


def test_by_turns() -> None:
    ids = [f"a[{n}]" for n in "xyzvw"] + ["b[1]", "b[2]"]
    turns = [list(covering.by_turns(reversed(ids), turn)) for turn in (0, 1)]
    assert turns == [["a[v]", "a[x]", "a[z]", "b[1]"], ["a[w]", "a[y]", "b[2]"]]


def test_one_in_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    values = list("abcdefg")
    monkeypatch.setattr(covering, "is_short", False)
    assert covering.one_in(3, values, 0) == values
    assert covering.examples(1, 2) == 2
    monkeypatch.setattr(covering, "is_short", True)
    parts = [covering.one_in(3, values, start) for start in range(3)]
    assert sorted(value for part in parts for value in part) == values
    assert all(2 <= len(part) <= 3 for part in parts)
    assert covering.examples(1, 2) == 1
