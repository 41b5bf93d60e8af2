"""`assert_same_program` over processes on loopback that `jax.distributed` connects."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxide

X = np.arange(4.0, dtype=np.float32)

SCRIPT = """
import json, os, sys
import jax, jax.numpy as jnp
rank, count, port = map(int, sys.argv[1:])
jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)
import jaxide
x = jnp.ones(4)

def check(function, timeout=120.0):
    try:
        jaxide.assert_same_program(jaxide.trace(function)(x), timeout=timeout)
        return "same"
    except (jaxide.ProgramMismatchError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"

"""


def run(count: int, body: str, folder: Path) -> list[Any]:
    """What each process prints; `found` in each is what it has to say."""
    script = folder / "script.py"
    script.write_text(SCRIPT + textwrap.dedent(body) + "\nprint(json.dumps(found), flush=True)\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(count), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        for rank in range(count)
    ]
    try:
        done = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, done, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(out.splitlines()[-1]) for out, _ in done]


@pytest.mark.parametrize("count", [2, 4])
def test_processes(count: int, tmp_path: Path) -> None:
    """The last process has another number, another length, and another program within."""
    body = """
    last = rank == count - 1
    scale = 3.0 if last else 2.0
    data = jnp.ones(4) * rank

    def differs(x):
        y = jnp.sin(x)
        return y * scale

    def longer(x):
        y = x + 1
        return y * 5 if last else y

    def within(x):
        return jax.lax.scan(lambda c, y: (c + y * scale, c), 0.0, x)

    found = [
        check(lambda x: jnp.sin(x) + data),
        check(differs),
        check(longer),
        check(within),
        check(lambda x: jnp.cos(x)),
    ]
    """
    answers = run(count, body, tmp_path)
    assert all(answer == answers[0] for answer in answers)
    same, differs, longer, within, again = answers[0]
    assert same == again == "same"
    lines = (tmp_path / "script.py").read_text().splitlines()
    line = lambda text: 1 + next(i for i, each in enumerate(lines) if text in each)
    others = "process 0" if count == 2 else "processes 0, 1, 2"
    for text, where, what in (
        (differs, "return y * scale", ("2.0:f32[]", "3.0:f32[]")),
        (within, "c + y * scale", ("2.0:f32[]", "3.0:f32[]")),
    ):
        of_first, of_last = text.splitlines()[1:]
        assert text.startswith("ProgramMismatchError") and "mul" in of_first and "mul" in of_last
        assert of_first.startswith(f"  {others}: equation") and what[0] in of_first
        assert of_last.startswith(f"  process {count - 1}: equation") and what[1] in of_last
        for each in (of_first, of_last):
            assert f"script.py:{line(where)}" in each
    of_first, of_last = longer.splitlines()[1:]
    assert "results" in of_first and "mul" in of_last
    assert f"script.py:{line('y * 5')}" in of_last


def test_a_process_that_does_not_come(tmp_path: Path) -> None:
    body = """
    found = check(lambda x: x, timeout=2.0) if rank == 0 else "absent"
    """
    late, absent = run(2, body, tmp_path)
    assert absent == "absent"
    assert late.startswith("TimeoutError: process 1 has not called jaxide.assert_same_program")


def test_one_process_has_nothing_to_compare() -> None:
    program = jaxide.trace(lambda x: x * 2)(X)
    jaxide.assert_same_program(program)
    jaxide.assert_same_program(program.jaxpr)
    with pytest.raises(TypeError, match="Program or a jaxpr, got an object of type"):
        jaxide.assert_same_program(3)


def test_without_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(RuntimeError, match=r"jax\.distributed\.initialize"):
        jaxide.assert_same_program(jaxide.trace(lambda x: x)(X))
