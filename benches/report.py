"""Markdown tables, put between their markers in docs/performance.md."""

import argparse
import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import workloads

PERFORMANCE = Path(__file__).parent.parent / "docs" / "performance.md"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first column is left-aligned and the others right-aligned."""
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def provenance(script: str, command: str = "make bench") -> str:
    """The line that says what made a table, and with what."""
    return (
        f"Made by `{command}` (`{script}`) with jaxide {version('jaxide')}, jax {version('jax')}, "
        f"CPython {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores."
    )


def record(
    name: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    script: str | None = None,
    command: str = "make bench",
) -> None:
    """Puts the table of `benches/NAME.py`, or of another script there, into the document.

    A table that is there for both ends has a section for the oldest jax beside that for the newest.
    """
    content = [table(header, rows), provenance(f"benches/{script or name}.py", command)]
    replace_section(section_of(name), "\n\n".join(content))


def section_of(name: str) -> str:
    """The section of a table that is made with the installed jax."""
    oldest = f"{name}, oldest jax"
    is_oldest = tuple(map(int, version("jax").split(".")[:2])) < (0, 11)
    has_both = f"<!-- begin: {oldest} -->" in PERFORMANCE.read_text("utf-8")
    return oldest if is_oldest and has_both else name


def of_workloads(
    document: str, measure: Callable[..., list[str]], rounds: str | None = None
) -> tuple[list[list[str]], argparse.Namespace]:
    """The rows that `measure` makes of the workloads, printed as they come, and the options given.

    Where `--only` is among them the rows are no whole table. Where `rounds` says what there can be
    several of, `measure` is told how many.
    """
    parser = argparse.ArgumentParser(description=document.partition("\n")[0])
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=15, help=rounds)
    parser.add_argument("--only", choices=workloads.ALL, nargs="+", help="measure, do not record")
    options = parser.parse_args()
    rows = []
    for workload in options.only or workloads.ALL:
        rows.append(measure(workload, *([] if rounds is None else [options.rounds])))
        print(*rows[-1], sep="  ", flush=True)
    return rows, options


def of_processes(
    document: str,
    name: str,
    header: Sequence[str],
    programs: Mapping[str, Any],
    first: Callable[[str, str], Any],
    measure: Callable[[str, int], list[str]],
) -> int:
    """Measures programs in fresh processes, and puts the table into the document; 1 where a program
    comes out otherwise.

    With `--first KIND PROGRAM` this is such a process, which prints what `first` says. `measure`
    makes the row of a program with so many processes of each kind; the second column says whether
    all came to the same.
    """
    parser = argparse.ArgumentParser(description=document.partition("\n\n")[0])
    parser.add_argument("--processes", type=int, default=5, help="fresh processes of each kind")
    parser.add_argument("--only", choices=programs, nargs="+", help="measure, do not record")
    parser.add_argument("--first", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first:
        print(json.dumps(first(*options.first)))
        return 0
    rows = []
    for program in options.only or programs:
        rows.append(measure(program, options.processes))
        print(*rows[-1], sep="  ", flush=True)
    if not options.only:
        record(name, header, rows)
    return 0 if all(row[1] == "yes" for row in rows) else 1


def replace_section(name: str, content: str, path: Path = PERFORMANCE) -> None:
    """Puts `content` between the markers of section `name` in the document at `path`."""
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    section = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    text = path.read_text(encoding="utf-8")
    if len(section.findall(text)) != 1:
        raise ValueError(f"{path.name} must hold the markers of section {name!r} exactly once")
    replacement = f"{begin}\n{content}\n{end}"
    path.write_text(section.sub(lambda _: replacement, text), encoding="utf-8")
