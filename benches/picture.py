"""The picture of the README, made of the tables of docs/performance.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from report import PERFORMANCE

PICTURE = PERFORMANCE.parent / "images" / "ratios.svg"
WIDTH, MARGIN, LABELS, ROW, BAR = 860, 20, 110, 18, 12
# For the number behind the longest bar.
NUMBER = 48
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 13px }
  .label, .number { dominant-baseline: central }
  .label { text-anchor: end }
  .note { fill: #57606a; font-size: 11px }
  .back { fill: #ffffff; stroke: #d0d7de }
  .bar { fill: #3f51b5 }
  .one { stroke: #57606a; stroke-dasharray: 2 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .note { fill: #9da7b3 }
    .back { fill: #161b22; stroke: #30363d }
    .bar { fill: #8c9eff }
    .one { stroke: #9da7b3 }
  }
"""


class Table(NamedTuple):
    """A table of ratios, and what it was measured with."""

    ratios: list[tuple[str, float]]
    versions: str


def table_of(text: str, name: str, column: str) -> Table:
    """The ratios in a column of a table, by the names in the first one."""
    section = text.partition(f"<!-- begin: {name} -->")[2].partition("<!-- end:")[0]
    header, _, *rows = (
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in section.strip().partition("\n\n")[0].splitlines()
    )
    which = header.index(column)
    ratios = [(row[0], float(row[which].rstrip("x"))) for row in rows]
    found = re.search(r"with (jaxide .*)\.$", section, re.MULTILINE)
    assert found is not None, f"the table {name} does not say what it was made with"
    return Table(ratios, found[1])


def bars(ratios: list[tuple[str, float]], x: float, y: float, width: float) -> Iterator[str]:
    """Bars of ratios; the dashed line is stock jax."""
    scale = (width - NUMBER) / max(ratio for _, ratio in ratios)
    for position, (_, ratio) in enumerate(ratios):
        top = y + position * ROW
        length = ratio * scale
        yield f'<rect class="bar" x="{x}" y="{top:g}" width="{length:.1f}" height="{BAR}" rx="2"/>'
        number = f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"
        middle = top + BAR / 2
        yield f'<text class="number" x="{x + length + 5:.1f}" y="{middle:g}">{number}</text>'
    one, end = x + scale, y + len(ratios) * ROW - ROW + BAR
    yield f'<path class="one" d="M{one:.1f} {y - 4:g}V{end + 4:g}"/>'


def labels(ratios: list[tuple[str, float]], y: float) -> Iterator[str]:
    """The names in front of bars."""
    for position, (name, _) in enumerate(ratios):
        middle = y + position * ROW + BAR / 2
        x = MARGIN + LABELS - 8
        yield f'<text class="label" x="{x}" y="{middle:g}">{escape(name)}</text>'


def picture(text: str) -> str:
    """The picture, as SVG, of the document with the tables."""
    again = table_of(text, "tracing", "ratio")
    first = table_of(text, "first_step", "ratio")
    loops = table_of(text, "loops", "jax / jaxide")
    assert again.versions == first.versions == loops.versions, "tables of several machines"
    assert [name for name, _ in again.ratios] == [name for name, _ in first.ratios]

    left = MARGIN + LABELS
    half = (WIDTH - MARGIN - left) / 2
    top = MARGIN + 28
    below = top + len(again.ratios) * ROW + 42
    height = below + len(loops.ratios) * ROW + 34
    titles = [
        (left, top, "A program traced again"),
        (left + half, top, "The first step of a process, with a store"),
        (left, below, "A step of a loop that makes its step function anew"),
    ]
    note = f"Times as fast as stock jax, which is the dashed line. {loops.versions}."
    parts = [
        f'<rect class="back" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        *(f'<text class="title" x="{x:g}" y="{y - 12:g}">{title}</text>' for x, y, title in titles),
        *labels(again.ratios, top),
        *bars(again.ratios, left, top, half),
        *bars(first.ratios, left + half, top, half),
        *labels(loops.ratios, below),
        *bars(loops.ratios, left, below, 2 * half),
        f'<text class="note" x="{left}" y="{height - 14}">{escape(note)}</text>',
    ]
    body = "\n".join(parts)
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n'
        f"<title>{escape(note)}</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def main() -> None:
    path: Path = PICTURE
    path.parent.mkdir(exist_ok=True)
    path.write_text(picture(PERFORMANCE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
