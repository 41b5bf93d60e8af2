"""What `scripts/libraries` has found: kept in docs/ecosystem.json, shown in docs/ecosystem.md."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from environments import PROJECT
from library_list import LIBRARIES

KEPT = PROJECT / "docs" / "ecosystem.json"
DOCUMENT = PROJECT / "docs" / "ecosystem.md"


def read() -> dict[str, Any]:
    """What is kept, by library."""
    found: dict[str, Any] = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    return found


def update(name: str, **parts: Any) -> None:
    """Keeps parts of what was found for a library; the others stay."""
    kept = read()
    kept[name] = kept.get(name, {}) | parts
    ordered = {name: kept[name] for name in LIBRARIES if name in kept}
    KEPT.write_text(json.dumps(ordered, indent=1) + "\n", "utf-8")


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
    suites = [result["suite"] for result in results.values() if "suite" in result]
    differ = any(p["identical"] is False or p["results"] is False for p in programs)
    return differ or any(suite["worse"] for suite in suites)


def suite_table(results: Mapping[str, Any]) -> str:
    """The table of the suites."""
    header = ["library", "version", "files", "run", "passed", "passed with stock", "worse"]
    rows = []
    for name, result in results.items():
        suite = result.get("suite")
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
        suite = result.get("suite")
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
