"""The report of a run as a page for a browser: one file, which works offline and without scripts.

The page is ``run_page.html`` with ``run_page.css`` and ``run_page.js`` in it. Nothing of the run is
markup: texts are escaped, and only the script and the style that are meant may run, by their
hashes.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from jaxide._reports.run import NOT_RECORDED
from jaxide._reports.tables import size

# Threads that have a lane of their own; those of the others are one.
MAX_LANES = 12
OTHER_THREADS = "other threads"
# Rows of a table.
MAX_ROWS = 2500
# How wide a time line is, in units of its own, and how high a row of it.
WIDTH, HEIGHT = 1000.0, 14

_KINDS = {
    "trace": ("tracing", "Tracing"),
    "lower": ("lowering", "Lowering"),
    "compile": ("compiling", "Compiling"),
    "load": ("loading", "Loading from caches"),
    "rest": ("rest", "The rest"),
}


def text(report: Mapping[str, Any]) -> str:
    """The page of a report, which is given as plain values (``RunReport.to_json``)."""

    def resource(name: str) -> str:
        return files(__package__).joinpath(name).read_text(encoding="utf-8")

    style, script = resource("run_page.css"), resource("run_page.js")
    parts = {
        "TITLE": html.escape(report["title"]),
        "STYLE_HASH": _digest(style),
        "SCRIPT_HASH": _digest(script),
        "STYLE": style,
        "SCRIPT": script,
        "ABOUT": html.escape(_about(report)),
        "BODY": "\n".join(_sections(report)),
    }
    # What one part says is not looked through for the others' marks.
    first, *rest = resource("run_page.html").split("@")
    page = "".join([first, *(parts.get(part, part) for part in rest)])
    # A name may have half of a surrogate pair, which no file can have.
    return page.encode("utf-8", "backslashreplace").decode()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _about(report: Mapping[str, Any]) -> str:
    versions = report["versions"]
    said = [
        f"jaxide {versions['jaxide']}",
        f"jax {versions['jax']}",
        f"Python {versions['python']}",
    ]
    said += [", ".join(report["devices"]) or "no devices in use", f"process {report['pid']}"]
    if report["began"]:
        said.append(f"begun {report['began']}")
        said.append(f"{_seconds(report['seconds'])} s")
    return " · ".join(said)


def _sections(report: Mapping[str, Any]) -> Iterator[str]:
    yield from _head(report)
    if report["spans"]:
        yield from _timeline(report)
    yield from _functions(report)
    yield from _retraces(report)
    yield from _expansions(report)
    yield from _capabilities(report)
    yield from _settings(report)


def _head(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Where the time went</h2>"
    if not report["began"]:
        yield f'<p class="notice">{html.escape(NOT_RECORDED)}</p>'
        return
    times = {kind: report["times"][name] for kind, (name, _) in _KINDS.items()}
    whole = sum(times.values()) or 1.0
    bars, begin = [], 0.0
    for kind, seconds in times.items():
        width = WIDTH * seconds / whole
        bars.append(_rect(kind, begin, 0, width, 10, f"{_KINDS[kind][1]}: {_seconds(seconds)} s"))
        begin += width
    yield (
        f'<svg class="share" viewBox="0 0 {WIDTH:.0f} 10" preserveAspectRatio="none" role="img" '
        f'aria-label="Where the time went">{"".join(bars)}</svg>'
    )
    items = [
        f'<li><i class="{kind}"></i>{_KINDS[kind][1]} <b>{_seconds(seconds)} s</b> '
        f'<span class="weak">{100 * seconds / whole:.0f}%</span></li>'
        for kind, seconds in times.items()
    ]
    yield f'<ul class="legend">{"".join(items)}</ul>'
    if report["recorded"] < 0.99 * report["seconds"]:
        yield _note(f"Recorded were {_seconds(report['recorded'])} s of the run.")
    if sum(list(times.values())[:-1]) > report["recorded"]:
        yield _note("Several threads worked at once; their seconds are added.")


# The time line


class _Placed(NamedTuple):
    """A span and the row of its lane: those within others are below them."""

    span: Mapping[str, Any]
    depth: int


def _timeline(report: Mapping[str, Any]) -> Iterator[str]:
    spans, total = report["spans"], max(report["seconds"], 1e-9)
    yield "<h2>Time line</h2>"
    if report["num_spans"] > len(spans):
        yield _note(f"The longest {len(spans):,} of {report['num_spans']:,}.")
    for thread, placed in _lanes(spans).items():
        height = HEIGHT * (1 + max(depth for _, depth in placed))
        drawn = [
            _rect(
                span["kind"],
                WIDTH * span["begin"] / total,
                HEIGHT * depth,
                WIDTH * span["seconds"] / total,
                HEIGHT,
                f"{span['kind']} {span['name']} {span['line']}: {_seconds(span['seconds'])} s "
                f"at {_seconds(span['begin'])} s",
            )
            for span, depth in placed
        ]
        yield (
            f'<figure class="lane"><figcaption>{html.escape(thread)}</figcaption>'
            f'<svg viewBox="0 0 {WIDTH:.0f} {height}" height="{height}" preserveAspectRatio="none" '
            f'role="img" aria-label="{html.escape(thread)}">{"".join(drawn)}</svg></figure>'
        )
    ticks = "".join(f"<span>{_seconds(total * part / 4)} s</span>" for part in range(5))
    yield f'<div class="ticks">{ticks}</div>'


def _lanes(spans: Sequence[Mapping[str, Any]]) -> dict[str, list[_Placed]]:
    """The spans of each thread, in order, each below those that it is within."""
    lanes: dict[str, list[_Placed]] = {}
    ends: dict[str, list[float]] = {}
    for span in spans:
        thread = span["thread"]
        if thread not in lanes and len(lanes) >= MAX_LANES:
            thread = OTHER_THREADS
        open_ = ends.setdefault(thread, [])
        middle = span["begin"] + span["seconds"] / 2
        while open_ and open_[-1] <= middle:
            open_.pop()
        lanes.setdefault(thread, []).append(_Placed(span, len(open_)))
        open_.append(span["begin"] + span["seconds"])
    return lanes


def _rect(kind: str, x: float, y: float, width: float, height: float, said: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.3f}" y="{y}" width="{max(width, 0.0):.3f}" '
        f'height="{height}"><title>{html.escape(said)}</title></rect>'
    )


# Tables


class _Cell(NamedTuple):
    """A cell: its text, its class, the number by which it is sorted, and what is said of it."""

    text: str
    class_: str = ""
    value: float | None = None
    title: str = ""


class _Head(NamedTuple):
    """The head of a column: its name, what it is, whether numbers are in it, and whether rows are
    in the order of it."""

    name: str
    means: str = ""
    is_number: bool = False
    is_order: bool = False


def _count(number: int) -> _Cell:
    return _Cell(f"{number:,}", "number" if number else "number zero", number)


def _time(seconds: float) -> _Cell:
    return _Cell(_seconds(seconds), "number" if seconds else "number zero", seconds)


def _code(said: str) -> _Cell:
    return _Cell(said, "code")


def _line(line: str) -> _Cell:
    """A line of code: of an installed package without the folder of packages."""
    _, folder, rest = line.rpartition("site-packages/")
    return _Cell(rest, "code", title=line) if folder else _code(line)


def _prose(said: str) -> _Cell:
    return _Cell(said, "prose")


class _Row(NamedTuple):
    """A row, and whether it is of a function of jax's own."""

    cells: Sequence[_Cell]
    is_of_jax: bool = False


def _table(heads: Sequence[_Head], rows: Sequence[_Row]) -> Iterator[str]:
    """A table, without the columns in which nothing is."""
    used = [column for column in range(len(heads)) if any(row.cells[column].text for row in rows)]
    yield '<div class="scroll" tabindex="0"><table><thead><tr>'
    for head in (heads[column] for column in used):
        class_ = ' class="number"' if head.is_number else ""
        titled = f' title="{html.escape(head.means)}"' if head.means else ""
        order = ' aria-sort="descending"' if head.is_order else ""
        yield f'<th scope="col"{class_}{titled}{order}>{html.escape(head.name)}</th>'
    yield "</tr></thead><tbody>"
    for row in rows[:MAX_ROWS]:
        of_jax = ' class="jax"' if row.is_of_jax else ""
        yield f"<tr{of_jax}>{''.join(_td(row.cells[column]) for column in used)}</tr>"
    yield "</tbody></table></div>"
    if len(rows) > MAX_ROWS:
        yield _note(f"{len(rows) - MAX_ROWS:,} more.")


def _td(cell: _Cell) -> str:
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    title = f' title="{html.escape(cell.title)}"' if cell.title else ""
    return f'<td class="{cell.class_}"{value}{title}>{html.escape(cell.text)}</td>'


def _functions(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Functions</h2>"
    functions = report["functions"]
    if not functions:
        yield _note("None was traced.")
        return
    yield _note(
        "Shared: the function ran an executable that an equal program had. What is within "
        "something else counts once: a compilation within a trace is compiling."
    )
    if any(row["is_of_jax"] for row in functions):
        yield (
            '<p><label id="own" hidden><input type="checkbox"> without functions of jax\'s own '
            "(<code>jnp.ones</code>)</label></p>"
        )
    # Where nothing was loaded, nobody looks for it.
    loads = any(row["loaded"] or row["stored"] for row in functions)
    counts = [
        _Head("traced", "traces that are not within others", True),
        _Head("by jaxide", "traces that jaxide recorded", True),
        _Head("lowered", "programs that were lowered", True),
        _Head("compiled", "programs that XLA compiled", True),
        _Head("shared", "executables that were found by the program", True),
    ]
    counted = ["traced", "recorded", "lowered", "compiled", "shared"]
    timed = ["tracing", "lowering", "compiling"]
    if loads:
        counts += [
            _Head("loaded", "executables that jax's compilation cache had", True),
            _Head("stored", "those of them that the store knew: nothing was lowered", True),
        ]
        counted += ["loaded", "stored"]
        timed += ["loading"]
    heads = [
        _Head("function"),
        _Head("defined at", "where jax says it"),
        *counts,
        _Head("seconds", "", True, True),
        *(_Head(name, "seconds", True) for name in timed),
        _Head("left to jax because of", "why executables were not looked for by program"),
    ]
    rows = [
        _Row(
            [
                _Cell(row["name"], "code name"),
                _line(row["line"]),
                *(_count(row[name]) for name in counted),
                _time(sum(row[name] for name in timed)),
                *(_time(row[name]) for name in timed),
                _prose(_counted(row["left"])),
            ],
            row["is_of_jax"],
        )
        for row in functions
    ]
    yield from _table(heads, rows)


def _retraces(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Retraces</h2>"
    again = [row for row in report["retraces"] if row["count"] > 1]
    if not again:
        yield _note("No jit was traced again.")
        return
    yield _note("Jits that one place of the code has traced several times, and what was different.")
    heads = [
        _Head("function"),
        _Head("defined at"),
        _Head("called at"),
        _Head("traces", "", True),
        _Head("same program", "how often the program was one that is known", True),
        _Head("shared", "how often nothing was lowered or compiled", True),
        _Head("seconds", "tracing, lowering and compiling", True, True),
        _Head("because of"),
    ]
    rows = [
        _Row(
            [
                _Cell(row["function"].partition(" at ")[0], "code name"),
                _line(row["function"].partition(" at ")[2]),
                _line(row["site"]),
                *(_count(row[name]) for name in ("count", "same", "shared")),
                _time(row["tracing"] + row["lowering"] + row["compiling"]),
                _prose(_counted(row["reasons"])),
            ],
            row["is_of_jax"],
        )
        for row in again
    ]
    yield from _table(heads, rows)


def _expansions(report: Mapping[str, Any]) -> Iterator[str]:
    cache = report["cache"]
    yield "<h2>Expansion cache</h2>"
    yield _note(
        f"{cache['hits']:,} calls were replayed, {cache['misses']:,} were recorded; "
        f"{cache['entries']:,} signatures and {cache['programs']:,} executed programs are "
        f"remembered, {size(cache['bytes'] + cache['program_bytes'])}."
    )
    if cache["bypasses"]:
        yield _note(f"Calls that ran because they must: {_counted(cache['bypasses'])}.")
    yield from map(_note, _store(report["store"]))
    audit = report["audit"]
    if audit["every"] or audit["differences"]:
        kinds = "replays", "evaluations", "executables"
        different = sum(audit[f"{kind}_different"] for kind in kinds)
        yield _note(f"Audit of one in {audit['every']:,}: {different:,} differences.")
    if not cache["callables"]:
        return
    heads = [
        _Head("callable"),
        _Head("hits", "calls that were replayed", True),
        _Head("misses", "calls that ran, and were recorded", True),
        _Head("bypasses", "calls that ran because they must", True),
        _Head("entries", "signatures that are remembered", True),
        _Head("ran because of"),
    ]
    most = sorted(
        cache["callables"].items(), key=lambda item: -(item[1]["hits"] + item[1]["misses"])
    )
    rows = [
        _Row(
            [
                _code(name),
                _count(of["hits"]),
                _count(of["misses"]),
                _count(sum(of["bypasses"].values())),
                _count(of["entries"]),
                _prose(_counted(of["bypasses"])),
            ]
        )
        for name, of in most
    ]
    yield f"<details><summary>By callable ({len(rows):,})</summary>"
    yield from _table(heads, rows)
    yield "</details>"


def _store(store: Mapping[str, Any] | None) -> Iterator[str]:
    if store is None:
        return
    yield (
        f"Store in {store['folder']} ({store['mode']}): {store['hits']:,} hits, "
        f"{store['misses']:,} misses; it had the whole programs of {store['whole']:,} functions."
    )
    if store["traced"]:
        yield f"Functions that were traced all the same: {_counted(store['traced'])}."


def _capabilities(report: Mapping[str, Any]) -> Iterator[str]:
    every = report["capabilities"]
    off = [each for each in every if not each["is_native"]]
    yield "<h2>Left to jax</h2>"
    if not off:
        yield _note(f"Nothing: jaxide has all {len(every)} capabilities with this jax.")
        return
    heads = [_Head("capability"), _Head("why it is off"), _Head("what it is")]
    rows = [
        _Row([_Cell(each["name"], "name"), _prose(each["why"]), _prose(each["means"])])
        for each in off
    ]
    yield from _table(heads, rows)


def _settings(report: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Settings</h2>"
    heads = [_Head(name) for name in ("setting", "value", "from", "variable", "what it does")]
    rows = [
        _Row(
            [
                _Cell(each["name"], "code name"),
                _code(each["shown"]),
                _Cell(each["source"], "zero" if each["source"] == "default" else ""),
                _code(each["variable"]),
                _prose(each["means"]),
            ]
        )
        for each in report["settings"]
    ]
    yield from _table(heads, rows)


def _counted(counts: Mapping[str, int]) -> str:
    most: Iterable[tuple[str, int]] = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{what} ({count:,})" for what, count in most)


def _note(said: str) -> str:
    return f'<p class="weak">{html.escape(said)}</p>'


def _seconds(seconds: float) -> str:
    """Seconds in as many digits as matter."""
    if seconds == 0:
        return "0"
    if seconds < 0.0001:
        return "<0.0001"
    if seconds >= 100:
        return f"{seconds:,.0f}"
    return f"{seconds:.2f}" if seconds >= 1 else f"{seconds:.4f}"
