"""On a jax whose traces are not known, all that reads a jaxpr works, and says the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import other_jax

# What the tools say of a program, and what commands end with.
SCRIPT = """
import json, sys, tempfile, warnings
from pathlib import Path

import jax
import jax.numpy as jnp

warnings.simplefilter("ignore")
import jaxide
from jaxide._cli import main

def step(w, x):
    def loss(w):
        c, ys = jax.lax.scan(lambda c, y: (jnp.tanh(c @ w) + y, c.sum()), x[0], x)
        return jax.lax.cond(c.sum() > 0, lambda: c.sum(), lambda: -c.sum()) + ys.sum()
    return jax.jit(jax.value_and_grad(loss))(w)

args = jnp.ones((3, 3)), jnp.ones((4, 3))
jaxpr = jax.make_jaxpr(step)(*args)
program = jaxide.from_jaxpr(jaxpr)
folder = Path(tempfile.mkdtemp())
optimized = program.optimize()
program.save(folder / "step.jaxide")
again = jaxide.load(folder / "step.jaxide")
module = folder / "steps.py"
module.write_text("import jax.numpy as jnp\\n\\ndef f(x):\\n    return jnp.sin(x) @ x\\n")
target, arg = f"{module}:f", ["--arg", "f32[3,3]"]
commands = [
    ["show", target, *arg],
    ["cost", target, *arg],
    ["hash", target, *arg],
    ["report", target, *arg, "-o", str(folder / "f.html")],
    ["report", target, *arg, "-o", str(folder / "f.jaxide")],
    ["diff", str(folder / "f.jaxide"), target, *arg],
    ["bench", target, *arg],
    ["doctor"],
]
print(json.dumps({
    "off": [c.name for c in jaxide.status().capabilities if not c.is_native][:1],
    "text": str(program) == str(jaxpr),
    "traced": str(jaxide.make_jaxpr(step)(*args)) == str(jaxpr),
    "hash": hex(program.structural_hash),
    "content": hex(program.content_hash),
    "same": program == again == jaxide.from_jaxpr(jax.make_jaxpr(step)(*args)),
    "cost": str(program.cost().total),
    "liveness": program.liveness().peak,
    "histogram": str(program.histogram()),
    "dead": len(program.dead()),
    "unused": str(program.unused_inputs()),
    "critical": str(program.critical_path()).splitlines()[0],
    "equations": [len(program), len(optimized), len(program.diff(optimized).differences)],
    "results": [float(p(*args)[0]) for p in (program, optimized, again)],
    "json": len(program.to_json()) > 1000,
    "python": "def " in program.to_python(),
    "dot": "digraph" in program.to_dot(),
    "commands": [main(command) for command in commands],
}))
"""


def said_by(jax: str | None) -> dict[str, Any]:
    path = os.pathsep.join(filter(None, [jax, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.fixture(scope="module")
def native() -> dict[str, Any]:
    """What is said on this jax."""
    return said_by(None)


@pytest.mark.parametrize("path", ["core:typeof", "core:pp_eqn"])
def test_tools_need_no_known_jax(path: str, native: dict[str, Any], tmp_path: Path) -> None:
    text = other_jax.changed(path, other_jax.QUIET)
    said = said_by(str(other_jax.copy_of_jax(tmp_path, "core", text)))
    off = {"core:typeof": ["traces"], "core:pp_eqn": ["printing"]}
    assert said == native | {"off": off[path]}
    assert native["off"] == []
    assert set(said["commands"]) == {0}
    assert said["text"] and said["traced"] and said["same"]
