"""Scripts in processes of their own."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest


def run_warm(
    script: str, python: tuple[str, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script that ``WITH`` says with jaxide or with stock jax; jaxide adds nothing to its
    store, unless the environment says so. ``python`` are options of the interpreter."""
    settled = {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",
        "WITH": "jaxide",
        "JAXIDE_CACHE_MODE": "read",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, *python, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **settled},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def run_alone(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a fresh interpreter, which has to end well."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parent,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that the first of the processes of this run makes, and that all only read."""
    of_worker = factory.getbasetemp()
    base = of_worker.parent if "PYTEST_XDIST_WORKER" in os.environ else of_worker
    folder, complete = base / name, base / f"{name}.complete"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            make(folder)
            complete.touch()
    return folder
