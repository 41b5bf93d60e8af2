"""The examples run, and the notebook's outputs are those of its cells."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "XLA_FLAGS": ""},
        check=False,
    )


def test_training(tmp_path: Path) -> None:
    """Of five epochs the first two are compiled."""
    done = run(EXAMPLES / "train.py", "--steps", "2", "--cache-dir", tmp_path, folder=tmp_path)
    assert not done.returncode, done.stderr
    losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([\d.]+)", done.stdout)]
    assert len(losses) == 5 and sorted(losses, reverse=True) == losses
    assert "traced 5 times, 3 without compiling" in done.stdout
    assert any((tmp_path / "jaxide").iterdir()) and any((tmp_path / "jax").iterdir())


def test_programs(tmp_path: Path) -> None:
    done = run("-m", "pytest", "-q", EXAMPLES / "test_programs.py", folder=tmp_path)
    assert not done.returncode, done.stdout
    assert "5 passed" in done.stdout


@pytest.mark.parametrize("differ", [False, True], ids=["same", "differ"])
def test_processes(differ: bool, tmp_path: Path) -> None:
    options = ["--differ"] if differ else []
    done = run(EXAMPLES / "same_program.py", *options, folder=tmp_path)
    assert done.returncode == differ, done.stderr
    said = "do not have the same program" if differ else "all processes have the program"
    assert done.stdout.count(said) == 2
    assert done.stdout.count("3.0:f32[]") == 2 * differ


def outputs_of(code: str, namespace: dict[str, Any]) -> list[str]:
    """What a cell prints, and the value of its last expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(tree, "cell", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
            if value is not None:
                return [text for text in (out.getvalue(), repr(value)) if text]
    return [out.getvalue()] if out.getvalue() else []


def test_notebook() -> None:
    cells = json.loads((EXAMPLES / "explore.ipynb").read_text())["cells"]
    namespace: dict[str, Any] = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        kept = [
            "".join(output["text"] if "text" in output else output["data"]["text/plain"])
            for output in cell["outputs"]
        ]
        assert outputs_of("".join(cell["source"]), namespace) == kept
        shown += kept
    assert len(shown) > 5
