"""What type checkers know of functions that are given to jaxide."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

# Each line that reveals a type says which.
CODE = """
from pathlib import Path
import jax
import jaxide

def loss(params: dict[str, jax.Array], x: jax.Array, scale: float = 1.0) -> jax.Array:
    return x

@jaxide.jit
def decorated(x: jax.Array, n: int) -> tuple[jax.Array, int]:
    return x, n

@jaxide.jit(captured="arguments", static_argnums=1)
def with_options(x: jax.Array, n: int) -> jax.Array:
    return x

x = jax.numpy.ones(3)
program = jaxide.trace(loss)({"w": x}, x)
reveal_type(program)  # Program
reveal_type(jaxide.make_jaxpr(loss)({"w": x}, x, scale=2.0))  # ClosedJaxpr
reveal_type(jaxide.make_jaxpr(loss, return_shape=True)({}, x))  # tuple[ClosedJaxpr, Any]
reveal_type(decorated(x, 1))  # tuple[Array, int]
reveal_type(with_options(x, n=1))  # Array
reveal_type(jaxide.jit(loss)({}, x))  # Array
reveal_type(decorated.cache_info())  # Counts
reveal_type(decorated.lower(x, 1))  # Lowered
reveal_type(program.to_json())  # str
reveal_type(program.to_json(Path("a")))  # None
reveal_type(program.to_pprof())  # bytes
reveal_type(program.to_html())  # str
reveal_type(jaxide.report_run().to_json())  # str
reveal_type(jaxide.report_run().to_html("a.html"))  # None
"""

# Each line is an error of this kind.
WRONG = """
import jax
import jaxide

def loss(x: jax.Array, scale: float) -> jax.Array:
    return x

x = jax.numpy.ones(3)
jaxide.jit(loss)(x, "one")  # arg-type
jaxide.jit(loss)(x)  # call-arg
jaxide.trace(loss)(x, 1.0, 2.0)  # call-arg
jaxide.make_jaxpr(loss)(x, scal=1.0)  # call-arg
jaxide.jit(loss)(x, 1.0).nothing  # attr-defined
"""


def check(tmp_path: Path, code: str) -> dict[int, str]:
    """What mypy says of each line."""
    path = tmp_path / "checked.py"
    path.write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={"MYPYPATH": str(ROOT / "python"), "PATH": ""},
    )
    lines = re.findall(r"checked\.py:(\d+): (.*)", done.stdout)
    assert lines, done.stdout + done.stderr
    return {int(number): said for number, said in lines}


def expected(code: str) -> dict[int, str]:
    lines = enumerate(code.splitlines(), 1)
    return {number: line.partition("  # ")[2] for number, line in lines if "  # " in line}


def test_types_are_kept(tmp_path: Path) -> None:
    said = check(tmp_path, CODE)
    # Without modules. From jax 0.11 on open and closed jaxprs are one class.
    shown = {
        number: re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", re.sub(r'.*is "(.*)"', r"\1", text))
        for number, text in said.items()
    }
    shown = {number: re.sub(r"\bJaxpr", "ClosedJaxpr", text) for number, text in shown.items()}
    assert shown == expected(CODE)


def test_wrong_calls_are_errors(tmp_path: Path) -> None:
    said = check(tmp_path, WRONG)
    shown = {number: re.sub(r".*\[([a-z-]+)\]$", r"\1", text) for number, text in said.items()}
    assert shown == expected(WRONG)


def check_with_pyright(tmp_path: Path, code: str) -> dict[int, str]:
    """What pyright says of each line."""
    (tmp_path / "checked.py").write_text(code)
    settings = {"extraPaths": [str(ROOT / "python")], "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = json.loads(done.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1: each["message"] for each in said}


def test_pyright_knows_types(tmp_path: Path) -> None:
    said = check_with_pyright(tmp_path, CODE)
    found = {line: text.rpartition(" is ")[2].strip('"') for line, text in said.items()}
    # From jax 0.11 on open and closed jaxprs are one class.
    found = {line: re.sub(r"\bJaxpr", "ClosedJaxpr", text) for line, text in found.items()}
    assert found == expected(CODE)


def test_pyright_finds_wrong_calls(tmp_path: Path) -> None:
    assert check_with_pyright(tmp_path, WRONG).keys() == expected(WRONG).keys()
