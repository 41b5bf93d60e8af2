"""What `scripts/libraries` makes of outcomes, its tables, and programs of installed libraries."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

import libraries
from expansion import assert_same_when_warm
from test_port import SCRIPTS

# Of the libraries that the tests of jaxide need anyway.
PROGRAMS = [
    name
    for library in ("flax", "equinox", "optax", "diffrax", "numpyro", "brainstate")
    for name in libraries.BY_LIBRARY[library]
]


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.fixture
def outcomes() -> ModuleType:
    import outcomes

    return outcomes


@pytest.fixture
def ecosystem() -> ModuleType:
    import ecosystem

    return ecosystem


def log(*said: Any) -> list[str]:
    return [json.dumps(line) for line in said]


ENDS = {"ends": 0, "installed": True}


def test_of(name: str, outcome: str) -> list[dict[str, Any]]:
    return [{"begins": name}, {"test": name, "outcome": outcome, "says": ""}]


test_of.__test__ = False  # type: ignore[attr-defined]


def test_the_worst_phase_of_a_test_counts(outcomes: ModuleType) -> None:
    lines = log(
        {"begins": "a"},
        {"test": "a", "outcome": "passed", "says": ""},
        {"test": "a", "outcome": "error", "says": "teardown"},
        {"ends": 1, "installed": True},
        {"status": 1},
    )
    run = outcomes.parse(lines)
    assert run.outcomes == {"a": "error"}
    assert run.says == {"a": "teardown"}
    assert run.is_installed and not run.is_cut and run.unfinished is None


def test_names_that_differ_by_addresses_are_told_apart(outcomes: ModuleType) -> None:
    one, other = (
        log(*test_of(f"t[<f at {a}>]", "passed"), *test_of(f"t[<f at {b}>]", "failed"), ENDS)
        for a, b in (("0x7f0000000001", "0x7f0000000002"), ("0x7e0000000001", "0x7e0000000002"))
    )
    assert outcomes.parse(one).outcomes == outcomes.parse(other).outcomes
    assert set(outcomes.parse(one).outcomes.values()) == {"passed", "failed"}


def test_the_test_in_which_a_process_died_is_unfinished(outcomes: ModuleType) -> None:
    lines = [
        *log(*test_of("a", "passed"), {"begins": "b"}),
        '{"test": "b", "outc',
        '{"status": -11}',
    ]
    run = outcomes.parse(lines)
    assert run.outcomes == {"a": "passed"}
    assert run.unfinished == "b" and not run.is_cut and run.is_installed is None


@pytest.mark.parametrize("ours", ["failed", "error", "skipped"])
def test_what_does_not_pass_any_more_is_worse(outcomes: ModuleType, ours: str) -> None:
    stock = outcomes.parse(log(*test_of("a", "passed"), *test_of("b", "failed"), ENDS))
    other = outcomes.parse(log(*test_of("a", ours), *test_of("b", "failed"), ENDS))
    assert outcomes.compare(stock, other) == (2, 1, 0, {"a": ("passed", ours)})
    assert not outcomes.compare(stock, stock).worse
    assert not outcomes.compare(other, stock).worse


def test_what_is_missing_is_worse_unless_the_time_was_over(outcomes: ModuleType) -> None:
    stock = outcomes.parse(log(*test_of("a", "passed"), *test_of("b", "passed"), ENDS))
    died = log(*test_of("a", "passed"), {"begins": "b"})
    compared = outcomes.compare(stock, outcomes.parse([*died, *log({"status": -11})]))
    assert compared == (2, 2, 1, {"b": ("passed", "missing")})
    cut = outcomes.compare(stock, outcomes.parse([*died, *log({"cut": True})]))
    assert cut == (1, 1, 1, {})
    # The tests were over, and the process was long in coming to its end.
    assert not outcomes.parse(log(*test_of("a", "passed"), ENDS, {"cut": True})).is_cut


def kept(outcomes: ModuleType, file: str, *found: Any, is_cut: bool = False) -> dict[str, Any]:
    """The result of a file that was run once, or twice."""
    first, again = (*found, None)[:2]
    result = outcomes.result(file, first, again, jaxide="c0ffee", is_cut=is_cut, is_idle=is_cut)
    loaded: dict[str, Any] = json.loads(json.dumps(result))
    return loaded


def test_what_is_worse_once_is_flaky(outcomes: ModuleType) -> None:
    worse = {"a": ("passed", "failed"), "b": ("passed", "error")}
    results = [
        kept(
            outcomes,
            "f",
            outcomes.Compared(3, 3, 1, worse),
            outcomes.Compared(3, 3, 2, {"b": ("passed", "error")}),
        ),
        kept(outcomes, "g", outcomes.Compared(2, 1, 1, {}), is_cut=True),
    ]
    found = outcomes.total(["f", "g", "h"], results)
    assert found["worse"] == {"b": ["passed", "error"]}
    assert found["flaky"] == {"a": ["passed", "failed"]}
    assert (found["run"], found["stock"], found["ours"]) == (5, 4, 2)
    assert (found["files"], found["all"], found["left"], found["cut"]) == (2, 3, ["h"], ["g"])


def test_results_are_kept_until_a_version_changes(
    outcomes: ModuleType, ecosystem: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ecosystem, "KEPT", tmp_path / "kept.json")
    ecosystem.KEPT.write_text("{}")
    files = ["f", "g"]
    result = kept(outcomes, "f", outcomes.Compared(3, 3, 3, {}))
    ecosystem.add_programs("optax", {"version": "1"}, {"p": {}})
    ecosystem.begin_suite("optax", {"version": "1"}, files, again=False)
    ecosystem.add_result("optax", result)
    ecosystem.begin_suite("optax", {"version": "1"}, files, again=False)
    assert ecosystem.done("optax") == {"f"}
    assert ecosystem.read()["optax"]["programs"] == {"p": {}}
    ecosystem.begin_suite("optax", {"version": "1"}, files, again=True)
    assert not ecosystem.done("optax")
    ecosystem.add_result("optax", result)
    ecosystem.begin_suite("optax", {"version": "2"}, files, again=False)
    assert not ecosystem.done("optax") and "programs" not in ecosystem.read()["optax"]


def test_the_tables_say_what_is_missing(outcomes: ModuleType, ecosystem: ModuleType) -> None:
    compared = outcomes.Compared(3, 3, 2, {"t": ("passed", "failed")})
    results_kept = [kept(outcomes, "f", compared, compared, is_cut=True)]
    suite = {"files": ["f", "h"], "results": results_kept}
    program = {"equations": 1200, "identical": False, "results": True}
    ratios = {"cold": 1.0, "warm": 2.5, "store": 3.0}
    results = {
        "one": {"version": "1", "suite": suite, "programs": {"p": program | ratios}},
        "other": {"version": "2"},
    }
    sections = ecosystem.sections(results)
    assert "| one | 1 | 1 of 2, 1 in part | 3 | 2 | 3 | 1 |" in sections["suites"]
    assert "| other | 2 | not run |" in sections["suites"]
    assert "| one | p | 1,200 | **NO** | yes | 1.0x | 2.5x | 3.0x |" in sections["programs"]
    for said in ("not run within the time: h", "`t`: passed with stock jax, failed with jaxide"):
        assert said in sections["notes"]
    assert ecosystem.is_worse(results) and not ecosystem.is_worse({"other": {"version": "2"}})


def test_the_document_is_what_is_kept(ecosystem: ModuleType) -> None:
    text = ecosystem.DOCUMENT.read_text("utf-8")
    for name, content in ecosystem.sections(ecosystem.read()).items():
        assert text == ecosystem.with_section(text, name, content), name


def test_each_library_has_programs_and_its_place(ecosystem: ModuleType) -> None:
    from library_list import LIBRARIES

    assert libraries.BY_LIBRARY.keys() == LIBRARIES.keys()
    folder = Path(libraries.__file__).parent
    modules = {name.partition(":")[0] for of in libraries.BY_LIBRARY.values() for name in of}
    assert modules == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert all(f"``{module}``" in (libraries.__doc__ or "") for module in modules)
    assert ecosystem.read().keys() <= LIBRARIES.keys()


@pytest.mark.covering(times=1, each_value=False)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    program = libraries.make(name)
    assert_same_when_warm((program.step, *program.args), rounds=1)
    jax.eval_shape(program.step, *program.args)  # The same could be an error.
