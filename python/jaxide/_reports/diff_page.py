"""A diff as a page of HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

from jaxide._reports.diff_rows import DiffEquation, Difference, DiffRow, ProgramDiff
from jaxide._reports.diff_stat import DiffStat
from jaxide._reports.diff_text import MAX_EQUATION
from jaxide._reports.tables import as_text, shortened


def text(programs: Sequence[ProgramDiff], stat: DiffStat) -> str:
    """The page, which needs nothing else."""
    tables = as_text(stat).partition("\n")[2].strip("\n")
    body = [f"<pre>{html.escape(tables)}</pre>"] if tables else []
    for program in programs:
        body.append(f"<h2>{html.escape(program.where)}</h2>")
        body += _html_ends(program.inputs)
        if program.hunks:
            body.append('<div class="wide rows"><table>')
            body.append("<thead><tr><th>#<th>old<th>line<th>#<th>new<th>line</tr></thead>")
            for hunk in program.hunks:
                body.append("<tbody>")
                body += (_html_row(row) for row in hunk)
                body.append("</tbody>")
            body.append("</table></div>")
        body += _html_ends(program.results)
    return _PAGE.format(summary=html.escape(stat.summary), body="\n".join(body))


def _values(difference: Difference) -> str:
    old, new = (shortened(value) for value in (difference.old, difference.new))
    values = []
    if old:
        values.append(f"<del>{html.escape(old)}</del>")
    if new:
        values.append(f"<ins>{html.escape(new)}</ins>")
    return " &rarr; ".join(values)


def _html_ends(ends: Sequence[Difference]) -> list[str]:
    items = (f"<li>{html.escape(end.what)}: {_values(end)}</li>" for end in ends)
    return ["<ul>", *items, "</ul>"] if ends else []


def _html_row(row: DiffRow) -> str:
    def cells(equation: DiffEquation | None, side: str) -> str:
        if equation is None:
            return "<td><td><td>"
        text = html.escape(shortened(equation.text, MAX_EQUATION))
        return (
            f'<td>{equation.path[-1]}<td class="{side}"><code>{text}</code>'
            f"<td>{html.escape(equation.line)}"
        )

    class_ = row.kind.split()[0]
    rows = [f'<tr class="{class_}">{cells(row.old, "old")}{cells(row.new, "new")}</tr>']
    for each in row.differences:
        of = html.escape(each.what)
        rows.append(f'<tr class="detail"><td colspan="6"><code>{of}: {_values(each)}</code></tr>')
    return "\n".join(rows)


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{summary}</title>
<meta name="viewport" content="width=device-width">
<style>
:root {{
  color-scheme: light dark; --text: #1f2328; --muted: #59636e; --page: #fff; --line: #d1d9e0;
  --removed: #ffebe9; --added: #dafbe1; --changed: #fff8c5; --detail: #fffdf0; --moved: #fbefff;
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --text: #f0f6fc; --muted: #9198a1; --page: #0d1117; --line: #3d444d;
    --removed: #4c1f22; --added: #163b23; --changed: #3b3219; --detail: #241f13; --moved: #33234d;
  }}
}}
body {{ font: 14px system-ui, sans-serif; margin: 2em; }}
body {{ color: var(--text); background: var(--page); }}
h1 {{ font-size: 1.3em; }} h2 {{ font-size: 1.05em; margin-top: 2em; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; }}
th {{ text-align: left; font-weight: 600; color: var(--muted); padding: 1px 6px; }}
td {{ vertical-align: top; padding: 1px 6px; }}
code, li, pre {{ font: 12px ui-monospace, monospace; white-space: pre-wrap; }}
pre {{ white-space: pre; overflow-x: auto; }}
.rows table {{ width: 100%; min-width: 60em; table-layout: fixed; }}
.rows td {{ overflow-wrap: anywhere; }}
.rows th:nth-child(3n+1) {{ width: 4em; }} .rows th:nth-child(3n) {{ width: 16%; }}
.rows td:nth-child(3n+1) {{ color: var(--muted); text-align: right; }}
.rows td:nth-child(3n) {{ color: var(--muted); font-size: 12px; }}
.rows tbody {{ border-top: 1px solid var(--line); border-bottom: 1em solid transparent; }}
del, tr.removed .old {{ background: var(--removed); text-decoration: none; }}
ins, tr.added .new {{ background: var(--added); text-decoration: none; }}
tr.changed td {{ background: var(--changed); }}
tr.moved td {{ background: var(--moved); }}
.rows tr.detail td {{
  background: var(--detail); color: var(--text); text-align: left; padding-left: 4.5em;
}}
</style>
</head>
<body>
<h1>{summary}</h1>
{body}
</body>
</html>
"""
