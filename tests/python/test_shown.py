"""How reports show themselves: short where they are named, whole as text and in notebooks."""

from __future__ import annotations

import dataclasses
import html
import io
import os
import re
import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

import jaxide
from jaxide import _compat
from jaxide._reports.tables import cut, shown_line


def layer(x: jax.Array) -> jax.Array:
    with jax.named_scope("<b>&"):
        return jax.lax.scan(lambda c, r: (jnp.tanh(c + r), c.astype(jnp.bfloat16)), x[0], x)[0]


X = jnp.ones((4, 3))
PROGRAM = jaxide.trace(layer)(X)
OTHER = jaxide.trace(lambda x: layer(x) * 2)(X)

REPORTS: dict[str, tuple[Any, str]] = {
    "program": (lambda: PROGRAM, "<jaxide.Program: 1 inputs"),
    "cost": (PROGRAM.cost, "<jaxide.CostReport: 24 flops, "),
    "liveness": (PROGRAM.liveness, "<jaxide.LivenessReport: "),
    "precision": (PROGRAM.precision, "<jaxide.PrecisionReport: 1 conversion>"),
    "diff": (lambda: PROGRAM.diff(OTHER), "<jaxide.Diff: "),
    "cache": (jaxide.cache_info, "<jaxide.CacheInfo: "),
    "retraces": (jaxide.retraces, "<jaxide.Retraces: "),
    "explanation": (lambda: explanation(), "<jaxide.Explanation: "),
    "status": (jaxide.status, "<jaxide.Status: jax "),
    "audit": (jaxide.audit_report, "<jaxide.AuditReport: "),
}


def explanation() -> Any:
    step = jaxide.jit(lambda x: x * 2)
    step(X)
    return step.explain()


@pytest.mark.parametrize("name", REPORTS)
def test_reports_show_themselves(name: str) -> None:
    make, begins = REPORTS[name]
    report = make()
    assert repr(report).startswith(begins)
    assert len(repr(report)) < 200 and "\n" not in repr(report)
    page = report._repr_html_()
    assert page.startswith("<pre ") and page.endswith("</pre>")
    # Nothing in it is taken for HTML: what is left without the styles is the text.
    text = html.unescape(re.sub(r"<[^>]*>", "", page))
    # The text of a program is shown in part, that of the log is as wide as its longest line.
    whole = name not in ("program", "retraces")
    words = str(report).split() if whole else ["called", "at"] * (name == "retraces")
    assert [word for word in words if word not in text] == []
    assert set(re.findall(r"<(/?\w+)", page)) <= {"pre", "/pre", "span", "/span"}


@pytest.mark.parametrize("name", REPORTS)
def test_the_text_of_a_report_shows_nothing_else_in_a_notebook(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, _ = REPORTS[name]
    report = make()
    shown: list[Any] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *parts: shown.append(parts))
    assert str(report)
    assert not shown


def test_a_program_is_shown_without_the_colours_of_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printing = _compat.printing()
    in_colour = dataclasses.replace(printing._private, use_color=lambda: True)
    monkeypatch.setattr(printing, "_private", in_colour)
    assert "\x1b" in PROGRAM.pretty(max_eqns=1)
    assert "\x1b" not in PROGRAM._repr_html_()


def test_a_large_program_is_shown_in_part() -> None:
    program = jaxide.trace(lambda x: [x := jnp.sin(x) for _ in range(2000)][-1])(1.0)
    assert len(program._repr_html_()) < 10_000
    assert "1960 " in program._repr_html_()


def test_the_cache_is_a_table() -> None:
    jaxide.make_jaxpr(lambda x: jnp.var(x))(X)
    text = str(jaxide.cache_info())
    assert "callable" in text and "total" in text and "executed programs" in text


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["cost", "liveness", "precision", "cache", "retraces"])
def test_tables_are_as_wide_as_a_terminal(name: str, width: int) -> None:
    make, _ = REPORTS[name]
    jaxide.jit(lambda x: x * 3)(X)
    out = io.StringIO()
    Console(file=out, width=width).print(make())
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    # No cell takes two lines: each row of the whole text is there.
    rows = [line for line in str(make()).splitlines() if line.strip()]
    shown = [line for line in lines if line.strip() and "no room for" not in line]
    if name in ("cost", "precision"):
        assert len(shown) == len(rows)


def test_name_scopes_are_no_markup() -> None:
    def scoped(x: jax.Array) -> jax.Array:
        with jax.named_scope("[bold]layer[/bold]"):
            return jnp.sin(x @ x.T)

    out = io.StringIO()
    Console(file=out, width=200).print(jaxide.trace(scoped)(X).liveness())
    assert "[bold]layer[/bold]" in out.getvalue()


def test_cells_of_notebooks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = "/tmp/ipykernel_12/345.py"
    assert shown_line(f"mul at {cell}:3 (loss)") == f"mul at {cell}:3 (loss)"
    name = lambda file: ("Cell", "In[7]") if file == cell else None
    shell = types.SimpleNamespace(compile=types.SimpleNamespace(format_code_name=name))
    kernel = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    assert shown_line(f"mul at {cell}:3 (loss)") == "mul at In[7]:3 (loss)"
    kernel.get_ipython = lambda: None
    assert shown_line(f"mul at {cell}:3 (loss)") == f"mul at {cell}:3 (loss)"


def test_an_equation_of_a_diff_takes_one_line() -> None:
    out = io.StringIO()
    Console(file=out, width=60, force_terminal=True, color_system=None).print(PROGRAM.diff(OTHER))
    lines = [line for line in out.getvalue().splitlines() if line.startswith(("+ ", "- "))]
    (diff,) = PROGRAM.diff(OTHER).programs
    assert len(lines) == diff.added + diff.removed + 2 * diff.changed
    assert all(len(line) <= 60 and "test_shown.py" in line for line in lines)


def test_paths_are_short() -> None:
    here = os.getcwd() + os.sep
    assert shown_line(f"{here}train.py:7 (loss)") == "train.py:7 (loss)"
    installed = "/usr/lib/python3/site-packages/flax/linen/linear.py:287 (Dense)"
    assert shown_line(f"mul at {installed}") == "mul at flax/linen/linear.py:287 (Dense)"
    short = cut("flax/linen/linear.py:287 (Dense)", 20)
    assert len(short) == 20 and short.startswith("flax…") and short.endswith(".py:287 (Dense)")
