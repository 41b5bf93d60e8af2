"""Arguments that are none: an error that names them, and nothing of how it is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxide

PROGRAM = jaxide.trace(lambda x, y: (jnp.sin(x) * y, jax.jit(jnp.cos)(x)))(jnp.ones(3), jnp.ones(3))
HUGE = 1 << 70
P = jaxide.Program

WRONG: list[tuple[Callable[[P], Any], type[Exception], str]] = [
    (lambda p: p.depends_on(2), IndexError, "the program has 2 outputs, there is no output 2"),
    (lambda p: p.depends_on(-1), IndexError, "there is no output -1"),
    (lambda p: p.depends_on(HUGE), IndexError, "there is no output 118059"),
    (lambda p: p.depends_on("a"), TypeError, "output must be a whole number, got 'a'"),  # type: ignore[arg-type]
    (lambda p: p.used_by(HUGE), IndexError, "there is no input 118059"),
    (lambda p: p.used_by(1.0), TypeError, "position must be a whole number"),  # type: ignore[arg-type]
    (lambda p: p.cost(while_trips=HUGE), ValueError, r"while_trips must be less than 2\*\*63"),
    (lambda p: p.cost(while_trips=-1), ValueError, "while_trips must not be negative, got -1"),
    (lambda p: p.cost(while_trips="a"), TypeError, "while_trips must be a whole number"),  # type: ignore[arg-type]
    (lambda p: p.to_html(while_trips=HUGE), ValueError, "while_trips must be less than"),
    (lambda p: p.to_json(while_trips=HUGE), ValueError, "while_trips must be less than"),
    (lambda p: p.critical_path("bytes", while_trips=HUGE), ValueError, "while_trips must be less"),
    (lambda p: p.pretty(width=-1), ValueError, "width must not be negative, got -1"),
    (lambda p: p.pretty(width="a"), TypeError, "width must be a whole number"),
    (lambda p: p.pretty(max_depth=-1), ValueError, "max_depth must not be negative"),
    (lambda p: p.pretty(max_eqns=1.5), TypeError, "max_eqns must be a whole number"),  # type: ignore[arg-type]
    (lambda p: p.pretty(collapse="cos"), TypeError, "collapse must be a sequence of names, got"),
    (lambda p: p.pretty(collapse=[3]), TypeError, "collapse must be a sequence of names"),  # type: ignore[list-item]
    (lambda p: p.pretty(collapse=["kos"]), ValueError, "no equation with a program.*'kos'"),
    (lambda p: p.find("nosuch"), ValueError, "no equation is called 'nosuch'"),
    (lambda p: p.find("sim"), ValueError, "did you mean 'sin'?"),
    (lambda p: p.find(dtype="float23"), ValueError, "there is no dtype 'float23'"),
    (lambda p: p.find(shape=3), TypeError, "shape must be a sequence of sizes, got 3"),  # type: ignore[arg-type]
    (lambda p: p.find(shape="3"), TypeError, "shape must be a sequence of sizes, got '3'"),
    (lambda p: p.find(shape=(-1,)), ValueError, "a size must not be negative, got -1"),
    (lambda p: p.liveness(donate="a"), ValueError, "donate names input 'a'"),  # type: ignore[arg-type]
    (lambda p: p.liveness(donate=[HUGE]), ValueError, "donate names input 118059"),
    (lambda p: jaxide.explain("x"), TypeError, "explain takes a function, got 'x'"),  # type: ignore[arg-type]
    (lambda p: jaxide.install(audit=HUGE), ValueError, "audit is a number of replays"),
]


@pytest.mark.parametrize(("call", "error", "said"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_said(call: Callable[[P], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call(PROGRAM)


def test_limits_that_are_large_are_none() -> None:
    text = PROGRAM.pretty(width=1000)
    assert PROGRAM.pretty(width=(1 << 63) - 1) == text
    assert PROGRAM.pretty(max_depth=1 << 40, max_eqns=1 << 40) == PROGRAM.pretty()
    assert "cos" in PROGRAM.pretty() and "sin" in PROGRAM.pretty(collapse=["cos"])


def test_what_is_not_there_is_not_found() -> None:
    """Names that jax has are no mistakes."""
    assert len(PROGRAM.find("tanh")) == 0
    assert len(PROGRAM.find(dtype="bfloat16")) == len(PROGRAM.find(dtype="key<fry>")) == 0
    assert len(PROGRAM.find(shape=("n", 3))) == 0


def test_an_error_names_the_file(tmp_path: Path) -> None:
    for write in (PROGRAM.save, PROGRAM.to_json, PROGRAM.to_html):
        with pytest.raises(FileNotFoundError) as raised:
            write(tmp_path / "none" / "a.jaxide")
        assert raised.value.filename == str(tmp_path / "none" / "a.jaxide")
