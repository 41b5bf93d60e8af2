"""What `scripts/libraries` has found: kept in docs/ecosystem.json, shown in docs/ecosystem.md."""

from __future__ import annotations

import fcntl
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import outcomes
from environments import PROJECT
from library_list import LIBRARIES

KEPT = PROJECT / "docs" / "ecosystem.json"
DOCUMENT = PROJECT / "docs" / "ecosystem.md"


def read() -> dict[str, Any]:
    """What is kept, by library."""
    found: dict[str, Any] = json.loads(KEPT.read_text("utf-8"))
    return found


@contextmanager
def _changed() -> Iterator[dict[str, Any]]:
    """What is kept, to be changed by one process at a time."""
    with open(KEPT, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        kept: dict[str, Any] = json.load(file)
        yield kept
        ordered = {name: kept[name] for name in LIBRARIES if name in kept}
        file.seek(0)
        file.write(json.dumps(ordered, indent=1) + "\n")
        file.truncate()


def add_programs(name: str, versions: Mapping[str, str], programs: Mapping[str, Any]) -> None:
    """Keeps what the programs of a library have come to."""
    with _changed() as kept:
        kept[name] = _of_versions(kept, name, versions) | {"programs": programs}


def begin_suite(
    name: str, versions: Mapping[str, str], files: Sequence[str], *, again: bool
) -> None:
    """Says which files with tests a library has; forgets what they came to if run `again`."""
    with _changed() as kept:
        before = _of_versions(kept, name, versions)
        results = [] if again or "suite" not in before else before["suite"]["results"]
        kept[name] = before | {"suite": {"files": list(files), "results": results}}


def _of_versions(kept: Mapping[str, Any], name: str, versions: Mapping[str, str]) -> dict[str, Any]:
    """What is kept of a library: the versions alone where they were others."""
    before = kept.get(name, {})
    is_same = all(before.get(key) == version for key, version in versions.items())
    return {**(before if is_same else {}), **versions}


def done(name: str) -> set[str]:
    """The files of a library that were run."""
    return {file for found in read()[name]["suite"]["results"] for file in found["files"]}


def add_result(name: str, result: Mapping[str, Any]) -> None:
    """Keeps what a file of tests has come to."""
    with _changed() as kept:
        kept[name]["suite"]["results"].append(result)


def write_document() -> None:
    """Puts the tables into the document."""
    results = read()
    text = DOCUMENT.read_text("utf-8")
    for name, content in sections(results).items():
        text = with_section(text, name, content)
    DOCUMENT.write_text(text, "utf-8")


def sections(results: Mapping[str, Any]) -> dict[str, str]:
    """The sections of the document that are made, by name."""
    return {
        "programs": program_table(results),
        "suites": suite_table(results),
        "notes": notes(results),
    }


def with_section(text: str, name: str, content: str) -> str:
    """A document with another content between the markers of a section."""
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    section = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(section.findall(text)) != 1:
        raise SystemExit(f"docs/ecosystem.md must hold the markers of section {name!r} once")
    return section.sub(lambda _: f"{begin}\n{content}\n{end}", text)


def is_worse(results: Mapping[str, Any]) -> bool:
    """Whether something is not as with stock jax."""
    programs = [p for result in results.values() for p in result.get("programs", {}).values()]
    suites = [suite for result in results.values() if (suite := _suite(result))]
    differ = any(p["identical"] is False or p["results"] is False for p in programs)
    return differ or any(suite["worse"] for suite in suites)


def _suite(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the suite of a library has come to; None where it was not run."""
    return outcomes.total(**result["suite"]) if "suite" in result else None


def suite_table(results: Mapping[str, Any]) -> str:
    """The table of the suites."""
    header = ["library", "version", "files", "run", "passed", "passed with stock", "worse"]
    rows = []
    for name, result in results.items():
        suite = _suite(result)
        if not suite:
            rows.append([name, result["version"], "not run", *[""] * 4])
            continue
        files = f"{suite['files']} of {suite['all']}"
        if suite["cut"]:
            files += f", {len(suite['cut'])} in part"
        numbers = [f"{suite[key]:,}" for key in ("run", "ours", "stock")]
        rows.append([name, result["version"], files, *numbers, str(len(suite["worse"]))])
    return table(header, rows)


def program_table(results: Mapping[str, Any]) -> str:
    """The table of the programs."""
    header = ["library", "program", "equations", "identical", "results"]
    header += ["cold", "warm", "with a store"]
    rows = []
    for name, result in results.items():
        for program, said in result.get("programs", {}).items():
            rows.append(
                [
                    name,
                    program,
                    f"{said['equations']:,}" if said["equations"] else "",
                    verdict(said["identical"]),
                    verdict(said["results"]),
                    *(
                        f"{said[key]:.1f}x" if said[key] else ""
                        for key in ("cold", "warm", "store")
                    ),
                ]
            )
    return table(header, rows)


def verdict(same: bool | None) -> str:
    return "" if same is None else "yes" if same else "**NO**"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first two columns are left-aligned and the others right-aligned."""
    lines = [header, [":--", ":--", *["--:"] * (len(header) - 2)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def notes(results: Mapping[str, Any]) -> str:
    """What the table of the suites leaves open: files that were not run, tests that are worse."""
    lines = []
    titles = {
        "left": "not run within the time",
        "cut": "ended by the time limit, and counted in part",
        "idle": "not traced by jaxide at the end of the file, although installed",
    }
    for name, result in results.items():
        suite = _suite(result)
        if not suite:
            continue
        for key, title in titles.items():
            if suite[key]:
                lines += wrapped(f"{name}, {title}: {', '.join(sorted(suite[key]))}")
        for test, (stock, ours) in suite["worse"].items():
            lines += wrapped(f"{name}, worse: `{test}`: {stock} with stock jax, {ours} with jaxide")
        for test, (stock, ours) in suite["flaky"].items():
            lines += wrapped(
                f"{name}, worse in one run of two: `{test}`: {stock} with stock jax, {ours} with "
                "jaxide"
            )
    return "\n".join(lines)


def wrapped(text: str) -> list[str]:
    """An entry of a list in lines that a document may have."""
    return textwrap.wrap(
        f"{text}.", 120, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
    )
